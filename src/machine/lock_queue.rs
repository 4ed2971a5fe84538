//! A turn at a lock that another program takes again as soon as it has let go of it.
//!
//! Between two transactions of such a program the lock is free for some 20 µs. A thread that is woken when it is
//! let go comes too late on another processor, and on the same one as soon as the other runs on. So one thread
//! waits on each processor, in the kernel's queue for the lock, and means to run so shortly that the kernel runs it
//! at once: on whichever processor the lock is let go, the thread there is awake before the other has gone on.
//! It takes the lock, keeps it until the other has come for it and gone to sleep, and lets it go for us. Whoever
//! never sleeps between two tries can still come first.
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
const PROCESSORS_MOST: usize = 32;
/// Bytes of a waiting thread's stack; it calls nothing deep.
const STACK: usize = 64 * 1024;
/// How long until a lock is let go once more where the system had no memory for that.
const AGAIN: Duration = Duration::from_millis(1);

/// Where turns at one byte's lock are waited for. The threads end with it, those that wait in the kernel as soon
/// as they get the lock.
#[derive(Debug)]
pub struct LockQueue {
    place: Arc<Place>,
}

#[derive(Debug)]
struct Place {
    /// One open file for all threads, so that the lock is one and theirs together: the kernel wakes all of them, and
    /// whoever comes first gets it for all.
    lock: LockFile,
    byte: u16,
    turn: Mutex<Turn>,
    /// Tells the threads that a turn is wanted.
    wanted: Condvar,
    /// Tells who wants it that it has come.
    come: Condvar,
}

/// The next turn.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    /// Which it is: a thread may be late, and bring the lock for one that is over.
    number: u64,
    stands: Stands,
}

/// How it stands with a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stands {
    /// Nobody waits for it.
    #[default]
    Unwanted,
    /// Somebody waits.
    Wanted,
    /// It has come: the lock is ours.
    Come,
    /// There will be none any more: the queue is dropped, or the system refuses the lock.
    Over,
}

impl LockQueue {
    /// Starts waiting on every processor.
    ///
    /// # Errors
    /// `Unsupported` where a lock may be let go on a processor that this process may not use, where there are more
    /// than 32, and before Linux 6.12; else what the system says.
    pub fn start(lock: LockFile, byte: u16) -> io::Result<Self> {
        let processors = processor::usable();
        if !processor::are_all_usable() || processors.len() > PROCESSORS_MOST {
            return Err(io::ErrorKind::Unsupported.into());
        }
        lock.give_up(byte)?;
        let (turn, wanted, come) = Default::default();
        // From here on it is dropped, which ends the threads, where one of them cannot do as it should.
        let queue = Self { place: Arc::new(Place { lock, byte, turn, wanted, come }) };
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
        if turn.stands == Stands::Over {
            return Err(io::ErrorKind::Unsupported.into());
        }
        *turn = Turn { number: turn.number.wrapping_add(1), stands: Stands::Wanted };
        place.wanted.notify_all();
        let is_wanted = |turn: &mut Turn| turn.stands == Stands::Wanted;
        let came = place.come.wait_timeout_while(turn, at_most, is_wanted);
        let (mut turn, _) = came.unwrap_or_else(PoisonError::into_inner);
        match turn.stands {
            Stands::Come => {
                let kept = place.come.wait_timeout_while(turn, KEPT, |_| true);
                (turn, _) = kept.unwrap_or_else(PoisonError::into_inner);
                turn.stands = Stands::Unwanted;
                place.let_go();
                Ok(true)
            }
            Stands::Over => Err(io::ErrorKind::Unsupported.into()),
            Stands::Wanted | Stands::Unwanted => {
                turn.stands = Stands::Unwanted;
                Ok(false)
            }
        }
    }
}

impl Drop for LockQueue {
    fn drop(&mut self) {
        self.place.turn().stands = Stands::Over;
        self.place.wanted.notify_all();
    }
}

impl Place {
    fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the lock go. The system may lack the memory for that; until it has some nobody could write the file.
    #[expect(
        clippy::disallowed_methods,
        reason = "there is nothing else to do, and nobody to wait for"
    )]
    fn let_go(&self) {
        while let Err(error) = self.lock.give_up(self.byte) {
            tracing::error!(%error, "the database's lock cannot be let go; trying again");
            std::thread::sleep(AGAIN);
        }
    }

    /// What the thread of a processor does.
    fn wait_here(&self) {
        let mut turn = self.turn();
        loop {
            match turn.stands {
                Stands::Over => return,
                Stands::Unwanted | Stands::Come => {
                    turn = self.wanted.wait(turn).unwrap_or_else(PoisonError::into_inner);
                }
                Stands::Wanted => {
                    let asked = turn.number;
                    drop(turn);
                    let taken = self.lock.take(self.byte);
                    turn = self.turn();
                    self.brought(&mut turn, asked, &taken);
                }
            }
        }
    }

    /// A thread is back from the kernel.
    fn brought(&self, turn: &mut Turn, asked: u64, taken: &io::Result<()>) {
        match (turn.stands, taken) {
            // Of another turn by now: what was taken for the last one may have been let go since.
            (Stands::Wanted, Ok(())) if turn.number != asked => {}
            (Stands::Wanted, Ok(())) => {
                turn.stands = Stands::Come;
                self.come.notify_one();
            }
            // Another thread was first, and the lock is the same.
            (Stands::Come, _) => {}
            (_, Err(_refused)) => {
                turn.stands = Stands::Over;
                self.come.notify_one();
                self.wanted.notify_all();
            }
            (Stands::Unwanted | Stands::Over, Ok(())) => self.let_go(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(20);
    const SHORT: Duration = Duration::from_millis(5);
    const BYTE: u16 = 120;

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
