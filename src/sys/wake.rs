//! A wait that signals end.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The read end of a pipe into which signals write a byte.
#[derive(Debug)]
pub struct SignalWake(UnixStream);

impl SignalWake {
    /// Each of these signals ends a wait. Register what else the signal does before: a wait ends after that.
    /// Fails if the system has no descriptor left, or a signal may not be caught.
    ///
    /// ```
    /// use std::time::Duration;
    /// let wake = oncebox::sys::wake::SignalWake::on(&[])?;
    /// wake.wait(Duration::from_millis(1));
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub fn on(signals: &[i32]) -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        read.set_nonblocking(true)?;
        for signal in signals {
            signal_hook::low_level::pipe::register(*signal, write.try_clone()?)?;
        }
        Ok(Self(read))
    }

    /// Waits for one of the signals, at most `most`. A signal since the last wait counts.
    pub fn wait(&self, most: Duration) {
        let timeout = Timespec::try_from(most).ok();
        let mut waited = [PollFd::new(&self.0, PollFlags::IN)];
        // An error ends the wait early, which is harmless: the caller looks at its flags.
        if poll(&mut waited, timeout.as_ref()).is_ok_and(|ready| ready > 0) {
            let mut signalled = [0; 64];
            let _drained = (&self.0).read(&mut signalled).is_ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use signal_hook::consts::SIGUSR2;

    #[test]
    fn a_signal_ends_a_wait_that_begins_later_once() {
        let wake = SignalWake::on(&[SIGUSR2]).unwrap();
        signal_hook::low_level::raise(SIGUSR2).unwrap();
        wake.wait(Duration::from_hours(1));
        assert!((&wake.0).read(&mut [0; 1]).is_err(), "the byte was read");
    }
}
