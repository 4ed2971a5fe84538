//! The two protocols between a service manager and its service: socket activation (`sd_listen_fds(3)`) and
//! notifications (`sd_notify(3)`).
//!
//! Both are a few lines, so no crate is used. `app::supervision` decides what is sent when.

use std::io;
use std::net::TcpListener;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use socket2::{Socket, Type};

/// The first descriptor that the manager passes.
const FIRST: RawFd = 3;
/// Sockets taken at most; the service has two listeners.
const MAX_SOCKETS: RawFd = 16;

/// A listening socket from the manager. It stays open while the service restarts, so no connection is refused.
#[derive(Debug)]
pub struct Passed {
    /// `FileDescriptorName=` of the socket unit; by default the unit's own name.
    pub name: String,
    /// The listening socket.
    pub socket: TcpListener,
}

/// The variables `LISTEN_PID`, `LISTEN_FDS` and `LISTEN_FDNAMES`.
#[derive(Clone, Debug, Default)]
pub struct Offer {
    /// The process that the sockets are for.
    pub pid: Option<String>,
    /// The number of sockets.
    pub count: Option<String>,
    /// Their names, separated by colons.
    pub names: Option<String>,
}

impl Offer {
    /// Takes the sockets. Call it once, before this process opens any descriptor: a descriptor taken twice would be
    /// closed twice. Fails if a descriptor is not a listening TCP socket; the error says which, and what to change.
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
        "the service manager passed descriptor {fd} ({name:?}), but {error}; Oncebox takes \
         ListenStream= sockets with an address and a port"
    )
}

#[expect(unsafe_code, reason = "the protocol passes descriptors as plain numbers")]
fn socket(fd: RawFd) -> io::Result<TcpListener> {
    if !Path::new("/proc/self/fd").join(fd.to_string()).exists() {
        return Err(io::Error::other("it is not open"));
    }
    // SAFETY: it is open, as just checked, and by the protocol this process owns it: the manager opened it for this
    // process alone, and `Offer::take` consumes the offer.
    let socket = Socket::from(unsafe { OwnedFd::from_raw_fd(fd) });
    // A child process that inherited it would keep the port open.
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

/// How long a send may block if the manager does not read.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// Sends notifications to the service manager; without one, it sends nothing.
#[derive(Debug, Default)]
pub struct Notifier {
    socket: Option<(UnixDatagram, SocketAddr)>,
    failed: AtomicBool,
}

impl Notifier {
    /// Sends to the address in `NOTIFY_SOCKET`: a path, or `@name` for an abstract one. An address that
    /// cannot be used is logged.
    pub fn to(address: Option<&str>) -> Self {
        let Some(address) = address else { return Self::default() };
        let socket = open(address).inspect_err(|error| {
            tracing::warn!(%error, address, "the service manager cannot be notified");
        });
        Self { socket: socket.ok(), failed: AtomicBool::new(false) }
    }

    /// Whether there is a service manager to notify.
    pub fn is_heard(&self) -> bool {
        self.socket.is_some()
    }

    /// The service is ready; `status` is shown to people.
    pub fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={}", one_line(status)));
    }

    /// Sets the text that `systemctl status` shows.
    pub fn status(&self, status: &str) {
        self.send(&format!("STATUS={}", one_line(status)));
    }

    /// The start takes longer: extends the manager's start timeout by `span` from now.
    pub fn extend_start(&self, span: Duration, status: &str) {
        let status = one_line(status);
        self.send(&format!("EXTEND_TIMEOUT_USEC={}\nSTATUS={status}", span.as_micros()));
    }

    /// The settings are being read again; [`Notifier::ready`] ends it. `monotonic` is the machine's
    /// `CLOCK_MONOTONIC`, by which the manager orders its messages.
    pub fn reloading(&self, monotonic: Duration) {
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={}", monotonic.as_micros()));
    }

    /// The service is ending.
    pub fn stopping(&self, status: &str) {
        self.send(&format!("STOPPING=1\nSTATUS={}", one_line(status)));
    }

    /// The service is alive.
    pub fn alive(&self) {
        self.send("WATCHDOG=1");
    }

    fn send(&self, message: &str) {
        let Some((socket, address)) = &self.socket else { return };
        let sent = socket.send_to_addr(message.as_bytes(), address);
        let failed = sent.is_err();
        let before = self.failed.swap(failed, Ordering::Relaxed);
        match sent {
            // Once, because the watchdog's message would repeat it every few seconds.
            Err(error) if !before => {
                tracing::warn!(%error, "the service manager could not be notified; the service continues");
            }
            Ok(_) if before => tracing::info!("the service manager can be notified again"),
            _ => (),
        }
    }
}

fn open(address: &str) -> io::Result<(UnixDatagram, SocketAddr)> {
    let to = match address.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None if address.starts_with('/') => SocketAddr::from_pathname(address)?,
        None => {
            let message = "NOTIFY_SOCKET must be an absolute path, or a name after @";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(SEND_TIMEOUT))?;
    Ok((socket, to))
}

/// Replaces control characters: a line break in a status would begin another message.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(manager: &UnixDatagram) -> String {
        manager.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut buffer = [0; 512];
        let length = manager.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    #[test]
    fn messages_have_the_form_of_the_protocol() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let notifier = Notifier::to(path.to_str());
        notifier.ready("Ready.\nWATCHDOG=1");
        assert_eq!(heard(&manager), "READY=1\nSTATUS=Ready. WATCHDOG=1");
        notifier.reloading(Duration::from_millis(1500));
        assert_eq!(heard(&manager), "RELOADING=1\nMONOTONIC_USEC=1500000");
        notifier.alive();
        assert_eq!(heard(&manager), "WATCHDOG=1");
        notifier.extend_start(Duration::from_mins(1), "Upgrading.");
        assert_eq!(heard(&manager), "EXTEND_TIMEOUT_USEC=60000000\nSTATUS=Upgrading.");
    }

    #[test]
    fn an_abstract_name_is_understood() {
        let name = format!("oncebox-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        Notifier::to(Some(&format!("@{name}"))).stopping("Stopping.");
        assert_eq!(heard(&manager), "STOPPING=1\nSTATUS=Stopping.");
    }

    #[test]
    fn a_missing_manager_is_no_error() {
        for address in [None, Some("/nowhere/notify"), Some("notify"), Some("@"), Some("")] {
            let notifier = Notifier::to(address);
            notifier.ready("Ready.");
            notifier.alive();
        }
    }

    fn offer(pid: &str, count: &str) -> Offer {
        let some = |text: &str| Some(text.to_owned());
        Offer { pid: some(pid), count: some(count), names: None }
    }

    #[test]
    fn sockets_for_another_process_are_left_alone() {
        let own = std::process::id().to_string();
        assert!(Offer::default().take().unwrap().is_empty());
        assert!(offer("1", "1").take().unwrap().is_empty());
        assert!(offer(&own, "0").take().unwrap().is_empty());
        assert!(offer(&own, "-5").take().unwrap().is_empty());
        assert!(offer(&own, "many").take().unwrap().is_empty());
    }
}
