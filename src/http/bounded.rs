//! Bounds a connection of a library that bounds neither its time nor what it reads of a line.
//!
//! The library connects to a port of this machine. A thread passes on what both sides send until a bound is reached.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::base::clock::Clock;

/// Bytes that are passed on at once.
const CHUNK: usize = 16 * 1024;

/// What a connection may take.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Time to connect to an address.
    pub connect: Duration,
    /// Time for all of it after that.
    pub total: Duration,
    /// Bytes of the server.
    pub bytes: usize,
}

/// The bound that ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exceeded {
    /// It took too long.
    Time,
    /// The server sent too much.
    Bytes,
}

/// Connects to a server and lets `run` talk to it through a local address. Also returns the bound that ended the
/// connection, if one did. Fails when the server cannot be connected to.
pub fn bounded<T>(
    server: (&str, u16),
    bounds: Bounds,
    run: impl FnOnce(SocketAddr) -> T,
) -> io::Result<(T, Option<Exceeded>)> {
    let server = connect(server, bounds.connect)?;
    #[expect(clippy::disallowed_methods, reason = "only the library connects to it, once")]
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    thread::scope(|scope| {
        let named = thread::Builder::new().name("bounded".to_owned());
        let passing = named.spawn_scoped(scope, move || pass(&listener, &server, bounds))?;
        let done = run(address);
        // An error of a socket is an end of the connection, which the library has seen too.
        Ok((done, passing.join().ok().and_then(Result::ok).flatten()))
    })
}

fn connect(server: (&str, u16), timeout: Duration) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in server.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(connected) => return Ok(connected),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// Passes on what both sides send until one of them ends or a bound is reached.
fn pass(
    listener: &TcpListener,
    server: &TcpStream,
    Bounds { connect, total, bytes }: Bounds,
) -> io::Result<Option<Exceeded>> {
    let clock = Clock::machine();
    let deadline = clock.monotonic().saturating_add(total);
    // Whether one of them is ready before the deadline.
    let wait = |polled: &mut [PollFd<'_>]| loop {
        let left = deadline.saturating_sub(clock.monotonic());
        let span = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(polled, Some(&span)) {
            Err(Errno::INTR) => {}
            Err(error) => return Err(io::Error::from(error)),
            Ok(ready) => return Ok(ready > 0 && !left.is_zero()),
        }
    };
    if !wait(&mut [PollFd::new(listener, PollFlags::IN)])? {
        return Ok(Some(Exceeded::Time));
    }
    let (client, _) = listener.accept()?;
    client.set_write_timeout(Some(connect))?;
    server.set_write_timeout(Some(connect))?;
    let mut left = bytes;
    loop {
        let mut polled = [&client, server].map(|from| PollFd::new(from, PollFlags::IN));
        if !wait(&mut polled)? {
            return Ok(Some(Exceeded::Time));
        }
        let [client_is_ready, server_is_ready] = polled.map(|one| !one.revents().is_empty());
        if client_is_ready && copy(&client, server)? == 0 {
            return Ok(None);
        }
        let received = if server_is_ready { copy(server, &client)? } else { continue };
        if received == 0 {
            return Ok(None);
        }
        left = match left.checked_sub(received) {
            Some(left) => left,
            None => return Ok(Some(Exceeded::Bytes)),
        };
    }
}

/// Passes on what can be read now; returns how much.
fn copy(mut from: &TcpStream, mut to: &TcpStream) -> io::Result<usize> {
    let mut chunk = [0; CHUNK];
    let length = from.read(&mut chunk)?;
    to.write_all(chunk.get(..length).unwrap_or_default())?;
    Ok(length)
}
