//! Opens a TCP connection to a host with several addresses.
//!
//! A dead address must not cost its timeout at every delivery: the next address is tried after a short head start while
//! the first still waits (RFC 8305, section 5), and the address that worked last is tried first.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};

use crate::base::clock::Clock;

/// How long an address is tried alone, before the next one is tried beside it. Source: RFC 8305, section 8.
const HEAD_START: Duration = Duration::from_millis(250);
/// Hosts whose last address is remembered. All are forgotten when there are more.
const MAX_HOSTS: usize = 1024;

/// The address at which each host was reached last.
#[derive(Debug, Default)]
pub(super) struct Reached(Mutex<BTreeMap<String, IpAddr>>);

impl Reached {
    /// Puts the address that worked last in front of the others.
    fn sort(&self, host: &str, addresses: &mut [SocketAddr]) {
        let known = self.0.lock().get(host).copied();
        let at = addresses.iter().position(|address| Some(address.ip()) == known);
        if let Some(front) = at.and_then(|at| addresses.get_mut(..=at)) {
            front.rotate_right(1);
        }
    }

    fn note(&self, host: &str, address: IpAddr) {
        let mut known = self.0.lock();
        if known.len() >= MAX_HOSTS && !known.contains_key(host) {
            known.clear();
        }
        known.insert(host.to_owned(), address);
    }
}

/// Connects to the first address that answers. Each address that fails, for whatever reason, leads to the next one.
/// Fails with [`ErrorKind::TimedOut`] when the time is over, else with the error of the last address.
pub(super) fn connect(
    host: &str,
    addresses: &[SocketAddr],
    reached: &Reached,
    timeout: Duration,
) -> io::Result<TcpStream> {
    let mut addresses = addresses.to_vec();
    reached.sort(host, &mut addresses);
    let stream = race(&addresses, timeout)?;
    if addresses.len() > 1 {
        reached.note(host, stream.peer_addr()?.ip());
    }
    Ok(stream)
}

fn race(addresses: &[SocketAddr], timeout: Duration) -> io::Result<TcpStream> {
    let clock = Clock::machine();
    let deadline = clock.monotonic().saturating_add(timeout);
    let mut waiting = addresses.iter();
    let mut under_way: Vec<Socket> = Vec::new();
    let mut failed = io::Error::from(ErrorKind::NotFound);
    let mut next_start = Duration::ZERO;
    loop {
        let now = clock.monotonic();
        if now >= deadline {
            return Err(ErrorKind::TimedOut.into());
        }
        if under_way.is_empty() || now >= next_start {
            match waiting.next().map(start) {
                Some(Ok(socket)) => under_way.push(socket),
                Some(Err(error)) => {
                    failed = error;
                    continue;
                }
                None if under_way.is_empty() => return Err(failed),
                None => {}
            }
            next_start = now.saturating_add(HEAD_START);
        }
        let until = if waiting.len() > 0 { deadline.min(next_start) } else { deadline };
        wait(&under_way, until.saturating_sub(now))?;
        let mut still = Vec::new();
        for socket in under_way {
            match state(&socket) {
                Ok(true) => {
                    socket.set_nonblocking(false)?;
                    return Ok(socket.into());
                }
                Ok(false) => still.push(socket),
                Err(error) => {
                    failed = error;
                    next_start = Duration::ZERO;
                }
            }
        }
        under_way = still;
    }
}

/// Begins to connect, without waiting.
fn start(address: &SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(*address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    match socket.connect(&(*address).into()) {
        Err(error) if error.raw_os_error() != Some(Errno::INPROGRESS.raw_os_error()) => Err(error),
        Ok(()) | Err(_) => Ok(socket),
    }
}

/// Waits until one of the sockets is connected or has failed, or the time is over.
fn wait(sockets: &[Socket], time: Duration) -> io::Result<()> {
    let mut polled: Vec<PollFd<'_>> =
        sockets.iter().map(|socket| PollFd::new(socket, PollFlags::OUT)).collect();
    let span = Timespec::try_from(time).map_err(io::Error::other)?;
    match poll(&mut polled, Some(&span)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Whether a socket is connected; its error if it failed.
fn state(socket: &Socket) -> io::Result<bool> {
    if let Some(error) = socket.take_error()? {
        return Err(error);
    }
    match socket.peer_addr() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotConnected => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::http::server::bind;

    const LONG: Duration = Duration::from_mins(1);

    fn listening() -> TcpListener {
        bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap()
    }

    /// An address where nobody answers, and what keeps it silent: a listener whose queue is full.
    fn silent() -> (SocketAddr, Vec<Socket>) {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        listener.listen(0).unwrap();
        let address = listener.local_addr().unwrap().as_socket().unwrap();
        let mut kept = vec![listener];
        kept.extend((0..4).map(|_| start(&address).unwrap()));
        (address, kept)
    }

    #[test]
    fn a_silent_address_does_not_keep_the_next_one_waiting() {
        let (dead, _kept) = silent();
        let listener = listening();
        let live = listener.local_addr().unwrap();
        let reached = Reached::default();
        let clock = Clock::machine();
        let stream = connect("erp:80", &[dead, live], &reached, LONG).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), live);
        assert!(clock.monotonic() < LONG / 2);
    }

    #[test]
    fn the_address_that_worked_last_is_tried_first() {
        let [one, two] = ["192.0.2.1:80", "192.0.2.2:80"].map(|text| text.parse().unwrap());
        let reached = Reached::default();
        let sorted = |host: &str| {
            let mut addresses = [one, two];
            reached.sort(host, &mut addresses);
            addresses
        };
        assert_eq!(sorted("erp:80"), [one, two]);
        reached.note("erp:80", SocketAddr::ip(&two));
        assert_eq!(sorted("erp:80"), [two, one]);
        assert_eq!(sorted("other:80"), [one, two]);
        reached.note("erp:80", "192.0.2.9".parse().unwrap());
        assert_eq!(sorted("erp:80"), [one, two], "an address that the name no longer has");
    }

    #[test]
    fn every_error_of_an_address_leads_to_the_next_one() {
        let listener = listening();
        let live = listener.local_addr().unwrap();
        let refusing = listening().local_addr().unwrap();
        // The kernel refuses to connect to a broadcast address (EACCES), and to port 0 or class E as it is set up.
        for bad in [refusing, "255.255.255.255:9".parse().unwrap(), "240.0.0.1:0".parse().unwrap()]
        {
            let stream = connect("erp:80", &[bad, live], &Reached::default(), LONG).unwrap();
            assert_eq!(stream.peer_addr().unwrap(), live, "{bad}");
        }
        let error = connect("erp:80", &[refusing], &Reached::default(), LONG).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    }

    #[test]
    fn the_time_of_all_addresses_has_an_end() {
        let (dead, _kept) = silent();
        let time = Duration::from_millis(300);
        let error = connect("erp:80", &[dead, dead], &Reached::default(), time).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let reached = Reached::default();
        for n in 0..MAX_HOSTS * 2 {
            reached.note(&format!("{n}.test:80"), IpAddr::from([192, 0, 2, 1]));
        }
        assert!(reached.0.lock().len() <= MAX_HOSTS);
    }
}
