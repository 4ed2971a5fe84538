//! Messages to the service manager: ready, stopping, still alive (`sd_notify(3)`).
//!
//! One datagram each, of lines `NAME=value`. A manager that cannot be reached changes nothing for the
//! service: it is logged once, and the work goes on. Own lines instead of a crate, because what is
//! needed of it is a datagram.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long a manager that does not read may hold up its service.
const SEND_SPAN: Duration = Duration::from_secs(1);

/// The line to the service manager; without one, everything is said into the void.
#[derive(Debug, Default)]
pub struct Notifier {
    line: Option<(UnixDatagram, SocketAddr)>,
    failed: AtomicBool,
}

impl Notifier {
    /// A line to the address in `NOTIFY_SOCKET`: a path, or `@name` for an abstract one. An address that
    /// cannot be used is logged.
    pub fn to(address: Option<&str>) -> Self {
        let Some(address) = address else { return Self::default() };
        let line = open(address).inspect_err(|error| {
            tracing::warn!(%error, address, "the service manager cannot be told anything");
        });
        Self { line: line.ok(), failed: AtomicBool::new(false) }
    }

    /// Whether there is a manager that listens.
    pub fn is_heard(&self) -> bool {
        self.line.is_some()
    }

    /// The service works; `status` says so to people.
    pub fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={}", one_line(status)));
    }

    /// A sentence for people, shown by `systemctl status`.
    pub fn status(&self, status: &str) {
        self.send(&format!("STATUS={}", one_line(status)));
    }

    /// The start takes longer: so much more may pass before the manager loses patience.
    pub fn extend_start(&self, span: Duration, status: &str) {
        let status = one_line(status);
        self.send(&format!("EXTEND_TIMEOUT_USEC={}\nSTATUS={status}", span.as_micros()));
    }

    /// The settings are being read again; [`Notifier::ready`] ends it. `monotonic` is the machine's
    /// `CLOCK_MONOTONIC`, by which the manager tells this from an earlier message.
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
        let Some((socket, address)) = &self.line else { return };
        let sent = socket.send_to_addr(message.as_bytes(), address);
        let failed = sent.is_err();
        let before = self.failed.swap(failed, Ordering::Relaxed);
        match sent {
            // Once: the watchdog's message would say it again every few seconds.
            Err(error) if !before => {
                tracing::warn!(%error, "the service manager could not be told; the service goes on");
            }
            Ok(_) if before => tracing::info!("the service manager can be told again"),
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
    socket.set_write_timeout(Some(SEND_SPAN))?;
    Ok((socket, to))
}

/// A line break in a status would begin another message.
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
    fn a_manager_that_is_not_there_is_no_error() {
        for address in [None, Some("/nowhere/notify"), Some("notify"), Some("@"), Some("")] {
            let notifier = Notifier::to(address);
            notifier.ready("Ready.");
            notifier.alive();
        }
    }
}
