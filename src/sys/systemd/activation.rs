//! Listening sockets that the service manager opened and hands over (`sd_listen_fds(3)`).
//!
//! They stay open while the service is restarted, so no connection is refused meanwhile: what comes in
//! waits for the next start. Not here: what is served on which.

use std::io;
use std::net::TcpListener;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::path::Path;

use socket2::{Socket, Type};

/// The first descriptor that is handed over.
const FIRST: RawFd = 3;
/// Sockets that are taken at most; there are two things to serve.
const MAX_SOCKETS: RawFd = 16;

/// A socket and the name the manager gave it.
#[derive(Debug)]
pub struct Passed {
    /// `FileDescriptorName=` of the socket unit; the unit's own name unless told.
    pub name: String,
    /// The socket, listening.
    pub socket: TcpListener,
}

/// What the manager says in `LISTEN_PID`, `LISTEN_FDS` and `LISTEN_FDNAMES`.
#[derive(Clone, Debug, Default)]
pub struct Offer {
    /// For which process the sockets are.
    pub pid: Option<String>,
    /// How many there are.
    pub count: Option<String>,
    /// Their names, with colons between them.
    pub names: Option<String>,
}

impl Offer {
    /// Takes the sockets. To be called once, before this process opens anything: what is taken twice
    /// would be closed twice.
    ///
    /// # Errors
    /// When a descriptor is not a listening TCP socket; which one, and what to change.
    pub fn take(self) -> io::Result<Vec<Passed>> {
        let ours = self.pid.is_some_and(|pid| pid.parse() == Ok(std::process::id()));
        let count = self.count.filter(|_| ours).and_then(|count| count.parse::<RawFd>().ok());
        let mut names = self.names.as_deref().unwrap_or_default().split(':');
        let end = FIRST.saturating_add(count.unwrap_or(0).clamp(0, MAX_SOCKETS));
        (FIRST..end)
            .map(|fd| {
                let name = names.next().unwrap_or_default().to_owned();
                let socket =
                    socket(fd).map_err(|error| io::Error::other(refusal(fd, &name, &error)))?;
                Ok(Passed { name, socket })
            })
            .collect()
    }
}

fn refusal(fd: RawFd, name: &str, error: &io::Error) -> String {
    format!(
        "the service manager handed over descriptor {fd} ({name:?}), but {error}; Oncebox takes \
         ListenStream= sockets with an address and a port"
    )
}

#[expect(unsafe_code, reason = "a number becomes a descriptor; the protocol knows nothing else")]
fn socket(fd: RawFd) -> io::Result<TcpListener> {
    if !Path::new("/proc/self/fd").join(fd.to_string()).exists() {
        return Err(io::Error::other("it is not open"));
    }
    // SAFETY: it is open, as was just seen, and by the protocol it is ours: the manager opened it for this
    // process alone, and `Offer::take` consumes the offer.
    let socket = Socket::from(unsafe { OwnedFd::from_raw_fd(fd) });
    // A child that inherited it would keep the port open behind our back.
    socket.set_cloexec(true)?;
    let is_tcp = socket.r#type().is_ok_and(|kind| kind == Type::STREAM)
        && socket.local_addr().is_ok_and(|address| address.as_socket().is_some());
    if !is_tcp {
        return Err(io::Error::other("it is not a TCP socket"));
    }
    if !socket.is_listener()? {
        return Err(io::Error::other("it does not listen"));
    }
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(pid: &str, count: &str) -> Offer {
        let some = |text: &str| Some(text.to_owned());
        Offer { pid: some(pid), count: some(count), names: None }
    }

    #[test]
    fn what_is_meant_for_another_process_is_left_alone() {
        let own = std::process::id().to_string();
        assert!(Offer::default().take().unwrap().is_empty());
        assert!(offer("1", "1").take().unwrap().is_empty());
        assert!(offer(&own, "0").take().unwrap().is_empty());
        assert!(offer(&own, "-5").take().unwrap().is_empty());
        assert!(offer(&own, "many").take().unwrap().is_empty());
    }
}
