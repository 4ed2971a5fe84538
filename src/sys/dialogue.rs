//! A program that runs beside the service and answers it: bytes to its standard input, bytes from its standard output, and a
//! deadline for each exchange.
//!
//! [`Dialogue`] reads and writes like a file, until its deadline: then every call fails with `TimedOut`. Dropping it kills the
//! program. Its standard error goes nowhere: what it prints may hold secrets. Not here: what the bytes mean.

use std::ffi::OsString;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::base::clock::Clock;
use crate::sys::user;

/// How often the clock is looked at while nothing comes: not every clock is the machine's.
const LOOK: Duration = Duration::from_secs(1);

/// A program that answers. Dropping it kills it.
#[derive(Debug)]
pub struct Dialogue {
    child: Child,
    stdin: ChildStdin,
    stdout: ChildStdout,
    clock: Clock,
    /// By the monotonic clock.
    deadline: Duration,
}

impl Dialogue {
    /// Starts it without arguments. `without`: variables removed from the inherited environment; `with`: variables added.
    pub fn start(
        program: &Path,
        without: &[OsString],
        with: &[(&str, &str)],
        clock: &Clock,
    ) -> io::Result<Self> {
        let mut command = Command::new(program);
        for name in without {
            command.env_remove(name);
        }
        // A group of its own: Ctrl-C is for the service, which ends what it has begun.
        command.envs(with.iter().copied()).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = user::spawn(&mut command)?;
        let pipes = (child.stdin.take(), child.stdout.take());
        let (Some(stdin), Some(stdout)) = pipes else {
            return Err(io::Error::other("the program was started without pipes"));
        };
        let dialogue = Self { child, stdin, stdout, clock: clock.clone(), deadline: Duration::MAX };
        // An error from here on drops `dialogue`, which kills the program.
        rustix::io::ioctl_fionbio(&dialogue.stdin, true)?;
        rustix::io::ioctl_fionbio(&dialogue.stdout, true)?;
        Ok(dialogue)
    }

    /// The id of its process.
    #[cfg(any(test, feature = "internals"))]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// From now on, reading and writing fail after this span.
    pub fn allow(&mut self, span: Duration) {
        self.deadline = self.clock.monotonic().saturating_add(span);
    }
}

/// Waits until a pipe is ready, or fails at the deadline.
fn ready(pipe: &impl AsFd, how: PollFlags, clock: &Clock, deadline: Duration) -> io::Result<()> {
    let left = deadline.saturating_sub(clock.monotonic());
    if left.is_zero() {
        return Err(ErrorKind::TimedOut.into());
    }
    // A millisecond more, so that a wait never ends just before its deadline. Whatever ends it early: then it is asked again.
    let span = Timespec::try_from(left.saturating_add(Duration::from_millis(1)).min(LOOK)).ok();
    let _ready = poll(&mut [PollFd::new(pipe, how)], span.as_ref());
    Ok(())
}

impl Read for Dialogue {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.stdout.read(into) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    ready(&self.stdout, PollFlags::IN, &self.clock, self.deadline)?;
                }
                done => return done,
            }
        }
    }
}

impl Write for Dialogue {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.stdin.write(bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    ready(&self.stdin, PollFlags::OUT, &self.clock, self.deadline)?;
                }
                done => return done,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Dialogue {
    fn drop(&mut self) {
        // Fails only if it has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cat() -> Dialogue {
        Dialogue::start(Path::new("/bin/cat"), &[], &[], &Clock::machine()).unwrap()
    }

    #[test]
    fn what_it_says_is_read_and_silence_ends_at_the_deadline() {
        let mut cat = cat();
        cat.allow(Duration::from_mins(1));
        cat.write_all(b"hello").unwrap();
        let mut answer = [0; 5];
        cat.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"hello");
        cat.allow(Duration::from_millis(50));
        assert_eq!(cat.read(&mut answer).unwrap_err().kind(), ErrorKind::TimedOut);
    }

    #[test]
    fn one_that_reads_nothing_ends_at_the_deadline() {
        let program = Path::new("/bin/cat");
        let mut cat = Dialogue::start(program, &[], &[], &Clock::machine()).unwrap();
        cat.allow(Duration::from_millis(200));
        // Nobody reads what it prints, so that it stops reading.
        let error = cat.write_all(&vec![b'x'; 4 << 20]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }

    #[test]
    fn one_that_is_dropped_is_killed_and_reaped() {
        let cat = cat();
        let folder = format!("/proc/{}", cat.id());
        assert!(Path::new(&folder).exists());
        drop(cat);
        assert!(!Path::new(&folder).exists());
    }
}
