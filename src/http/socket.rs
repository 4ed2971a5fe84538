//! The TCP connection of the client. It leaves out the library's system calls that change nothing: an event's delivery
//! has one `send` for head and body, and sets a timeout only where another was set.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use ureq::Error;
use ureq::Timeout::Connect as ConnectTimeout;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};

use crate::base::clock::Clock;

/// Timeouts of the socket are multiples of this, rounded up: the rest of a request's time is mostly the same then.
const STEP: Duration = Duration::from_millis(20);
/// Bytes that wait to be sent with what follows.
const MAX_UNSENT: usize = 16 * 1024;
/// The least time that an address is tried, and the most for all.
const MIN_CONNECT: Duration = Duration::from_millis(10);
const MAX_CONNECT: Duration = Duration::from_mins(5);

/// Opens connections.
#[derive(Debug)]
pub(super) struct Opener;

impl Connector<()> for Opener {
    type Out = Socket;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        _: Option<()>,
    ) -> Result<Option<Socket>, Error> {
        let config = details.config;
        let stream = connect(&details.addrs, details.timeout)?;
        stream.set_nodelay(true)?;
        let buffers = LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size());
        Ok(Some(Socket { stream, buffers, unsent: Vec::new(), set: [None; 2], is_fresh: false }))
    }
}

/// Tries the addresses in turn. Each gets its part of the time that is left, the last one all of it.
fn connect(addresses: &[SocketAddr], timeout: NextTimeout) -> Result<TcpStream, Error> {
    let clock = Clock::machine();
    let begun = clock.monotonic();
    let all = timeout.not_zero().map_or(MAX_CONNECT, |all| MAX_CONNECT.min(*all));
    let mut failed = Error::Io(ErrorKind::ConnectionRefused.into());
    for (address, others) in addresses.iter().zip((1_u32..=16).rev().skip(16 - addresses.len())) {
        let left = all.saturating_sub(clock.monotonic().saturating_sub(begun));
        let own = left.checked_div(others).unwrap_or(left).max(MIN_CONNECT);
        let connected = TcpStream::connect_timeout(address, own);
        failed = match connected {
            Ok(stream) => return Ok(stream),
            Err(error) if is_timeout(&error) => Error::Timeout(ConnectTimeout),
            Err(error) if is_of_address(&error) => Error::Io(error),
            Err(error) => return Err(Error::Io(error)),
        };
    }
    Err(failed)
}

/// Whether another address of the host may work.
fn is_of_address(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionRefused
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::AddrNotAvailable
    )
}

/// An expired timeout of a socket is `WouldBlock`.
fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock)
}

/// A connection.
#[derive(Debug)]
pub(super) struct Socket {
    stream: TcpStream,
    buffers: LazyBuffers,
    /// The beginning of a request: its head is sent with its body.
    unsent: Vec<u8>,
    /// The timeouts for reading and writing that the socket has.
    set: [Option<Duration>; 2],
    /// Whether an answer has just come.
    is_fresh: bool,
}

impl Socket {
    fn send_all(&mut self, timeout: NextTimeout) -> Result<(), Error> {
        if self.unsent.is_empty() {
            return Ok(());
        }
        let most = rounded(timeout)?;
        if self.set[1] != most {
            self.stream.set_write_timeout(most)?;
            self.set[1] = most;
        }
        let sent = self.stream.write_all(&self.unsent);
        self.unsent.clear();
        sent.map_err(|error| failed(error, timeout))
    }
}

/// A timeout as it is set; an expired one is an error.
fn rounded(timeout: NextTimeout) -> Result<Option<Duration>, Error> {
    if timeout.after.is_zero() {
        return Err(Error::Timeout(timeout.reason));
    }
    let steps = |span: Duration| u32::try_from(span.as_nanos().div_ceil(STEP.as_nanos())).ok();
    Ok(timeout.not_zero().and_then(|span| steps(*span)).and_then(|steps| STEP.checked_mul(steps)))
}

fn failed(error: io::Error, timeout: NextTimeout) -> Error {
    if is_timeout(&error) { Error::Timeout(timeout.reason) } else { Error::Io(error) }
}

impl Transport for Socket {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.unsent.extend(self.buffers.output().iter().take(amount));
        if self.unsent.len() < MAX_UNSENT { Ok(()) } else { self.send_all(timeout.for_write()) }
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.send_all(timeout.for_write())?;
        let timeout = timeout.for_read();
        let most = rounded(timeout)?;
        if self.set[0] != most {
            self.stream.set_read_timeout(most)?;
            self.set[0] = most;
        }
        // A signal begins the wait anew; the service has none that come often.
        let amount = loop {
            match self.stream.read(self.buffers.input_append_buf()) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read.map_err(|error| failed(error, timeout))?,
            }
        };
        self.buffers.input_appended(amount);
        self.is_fresh = amount > 0;
        Ok(amount > 0)
    }

    /// Whether nothing has come that nobody asked for, as the end of the connection. It is asked when an answer was read,
    /// and again before the next request: the second look suffices.
    fn is_open(&mut self) -> bool {
        let looks = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        std::mem::take(&mut self.is_fresh)
            || matches!(recv(&self.stream, &mut [0_u8][..], looks), Err(Errno::AGAIN))
    }
}
