//! A turn at a lock that another program takes again as soon as it has let go of it.
//!
//! Between two transactions of such a program the lock is free for some 20 µs. A thread that is woken when it is
//! let go comes too late on another processor, and on the same one as soon as the other runs on. So one thread
//! waits on each processor, in the kernel's queue for the lock, and means to run so shortly that the kernel runs it
//! at once: on whichever processor the lock is let go, the thread there is awake before the other has gone on.
//! It takes the lock, keeps it until the other has come for it and gone to sleep, and lets it go for us.
//! What was measured: `docs/decisions/0009-plain-sql.md`.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::machine::locks::LockFile;
use crate::machine::processor;

/// How long a lock that was got is kept: the other comes for it within some 20 µs and then pauses for a
/// millisecond at least (SQLite's busy handler, `sqliteDefaultBusyCallback`).
const KEPT: Duration = Duration::from_micros(300);
/// More processors than this are not waited on: each costs a thread, and its wake-up with every turn.
const PROCESSORS_MOST: usize = 64;
/// Bytes of a waiting thread's stack; it calls nothing deep.
const STACK: usize = 64 * 1024;

/// Where turns at one byte's lock are waited for. The threads end with it, those that wait in the kernel as soon
/// as they get the lock.
#[derive(Debug)]
pub struct LockQueue {
    place: Arc<Place>,
}

#[derive(Debug)]
struct Place {
    lock: LockFile,
    byte: u32,
    turn: Mutex<Turn>,
    changed: Condvar,
}

/// How it stands with the next turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// Nobody waits for one.
    Unwanted,
    /// Somebody waits.
    Wanted,
    /// It has come: the lock is ours.
    Come,
    /// There will be none any more: the queue is dropped, or the system refuses the lock.
    Over,
}

impl LockQueue {
    /// Starts waiting on every processor that this process may use.
    ///
    /// # Errors
    /// What the system says: it is older than Linux 6.12 or not allowed what this needs, the file system knows no
    /// such locks, there are too many processors, or no threads.
    pub fn start(lock: LockFile, byte: u32) -> io::Result<Self> {
        let processors = processor::usable();
        if processors.is_empty() || processors.len() > PROCESSORS_MOST {
            return Err(io::ErrorKind::Unsupported.into());
        }
        lock.give_up(byte)?;
        let place = Place { lock, byte, turn: Mutex::new(Turn::Unwanted), changed: Condvar::new() };
        // From here on it is dropped, which ends the threads, where one of them cannot do as it should.
        let queue = Self { place: Arc::new(place) };
        for processor in processors {
            queue.station(processor)?;
        }
        Ok(queue)
    }

    /// Starts the thread of one processor, and waits until it is there.
    #[expect(
        clippy::disallowed_methods,
        reason = "it may wait in the kernel for ever, and nobody joins it"
    )]
    fn station(&self, processor: usize) -> io::Result<()> {
        let place = Arc::clone(&self.place);
        let (tell, told) = crossbeam_channel::bounded(1);
        std::thread::Builder::new().name(format!("lock-{processor}")).stack_size(STACK).spawn(
            move || {
                let ready = processor::stay_on(processor).and_then(|()| processor::run_at_once());
                let is_ready = ready.is_ok();
                if tell.send(ready).is_ok() && is_ready {
                    place.wait_here();
                }
            },
        )?;
        told.recv().unwrap_or_else(|_ended| Err(io::ErrorKind::Other.into()))
    }

    /// Waits until the lock is let go, at most so long; tells whether it was. Then it is free, and those who
    /// came for it meanwhile pause: whoever was waited for takes it now.
    ///
    /// # Errors
    /// When no turn will come any more: the system refuses locks that it gave before.
    pub fn wait(&self, at_most: Duration) -> io::Result<bool> {
        let place = &*self.place;
        let mut turn = place.turn();
        if *turn == Turn::Over {
            return Err(io::ErrorKind::Unsupported.into());
        }
        *turn = Turn::Wanted;
        place.changed.notify_all();
        let came = place.changed.wait_timeout_while(turn, at_most, |turn| *turn == Turn::Wanted);
        let (mut turn, _) = came.unwrap_or_else(PoisonError::into_inner);
        match *turn {
            Turn::Come => {
                let kept = place.changed.wait_timeout_while(turn, KEPT, |_| true);
                (turn, _) = kept.unwrap_or_else(PoisonError::into_inner);
                *turn = Turn::Unwanted;
                place.lock.give_up(place.byte).map(|()| true)
            }
            Turn::Over => Err(io::ErrorKind::Unsupported.into()),
            Turn::Wanted | Turn::Unwanted => {
                *turn = Turn::Unwanted;
                Ok(false)
            }
        }
    }
}

impl Drop for LockQueue {
    fn drop(&mut self) {
        *self.place.turn() = Turn::Over;
        self.place.changed.notify_all();
    }
}

impl Place {
    fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the thread of a processor does.
    fn wait_here(&self) {
        let mut turn = self.turn();
        loop {
            match *turn {
                Turn::Over => return,
                Turn::Unwanted | Turn::Come => {
                    turn = self.changed.wait(turn).unwrap_or_else(PoisonError::into_inner);
                }
                Turn::Wanted => {
                    drop(turn);
                    let taken = self.lock.take(self.byte);
                    turn = self.turn();
                    match *turn {
                        Turn::Wanted if taken.is_ok() => *turn = Turn::Come,
                        // The lock is one for all processors: it is another's turn by now, and his lock.
                        Turn::Come => {}
                        Turn::Wanted => *turn = Turn::Over,
                        // Nobody waits any more.
                        Turn::Unwanted | Turn::Over => drop(self.lock.give_up(self.byte)),
                    }
                    self.changed.notify_all();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(20);
    const SHORT: Duration = Duration::from_millis(5);
    const BYTE: u32 = 120;

    #[expect(clippy::disallowed_methods, reason = "the other program has the lock for a while")]
    fn pause() {
        std::thread::sleep(SHORT);
    }

    /// A queue and another program's lock, or nothing where the system has no such queue.
    fn queue_and_other(file: &tempfile::NamedTempFile) -> Option<(LockQueue, LockFile)> {
        let [ours, theirs] = [0, 1].map(|_| LockFile::open(file.path()).unwrap());
        match LockQueue::start(ours, BYTE) {
            Ok(queue) => Some((queue, theirs)),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                eprintln!("skipped: needs Linux 6.12");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn a_turn_comes_when_the_lock_is_let_go_and_not_before() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let Some((queue, other)) = queue_and_other(&file) else { return };
        other.take(BYTE).unwrap();
        assert!(!queue.wait(SHORT).unwrap());
        std::thread::scope(|threads| {
            let turn = threads.spawn(|| queue.wait(LONG).unwrap());
            pause();
            assert!(!turn.is_finished());
            other.give_up(BYTE).unwrap();
            assert!(turn.join().unwrap());
        });
    }

    #[test]
    fn the_lock_is_free_once_a_turn_has_come_and_after_a_wait_in_vain() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let Some((queue, other)) = queue_and_other(&file) else { return };
        for _ in 0..20 {
            assert!(queue.wait(LONG).unwrap());
            other.take(BYTE).unwrap();
            assert!(!queue.wait(Duration::ZERO).unwrap());
            other.give_up(BYTE).unwrap();
        }
        // Whoever waited in vain above gets it late, and has to let it go.
        other.take(BYTE).unwrap();
    }

    #[test]
    fn who_takes_the_lock_again_at_once_does_not_keep_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let Some((queue, other)) = queue_and_other(&file) else { return };
        let (stop, stopped) = crossbeam_channel::bounded::<()>(0);
        std::thread::scope(|threads| {
            threads.spawn(move || {
                while stopped.try_recv() != Err(crossbeam_channel::TryRecvError::Disconnected) {
                    other.take(BYTE).unwrap();
                    pause();
                    other.give_up(BYTE).unwrap();
                }
            });
            for _ in 0..50 {
                assert!(queue.wait(LONG).unwrap());
            }
            drop(stop);
        });
    }

    #[test]
    fn the_threads_end_with_the_queue_and_leave_the_lock_alone() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let Some((queue, other)) = queue_and_other(&file) else { return };
        other.take(BYTE).unwrap();
        assert!(!queue.wait(SHORT).unwrap());
        let place = Arc::downgrade(&queue.place);
        drop(queue);
        other.give_up(BYTE).unwrap();
        while place.strong_count() > 0 {
            std::thread::yield_now();
        }
        other.take(BYTE).unwrap();
    }
}
