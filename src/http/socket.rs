//! The TCP connection of the client. It leaves out the library's system calls that change nothing: an event's delivery
//! has one `send` for head and body, and sets a timeout only where another was set.

use std::io::{self, ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::set_tcp_quickack;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use ureq::Error;
use ureq::Timeout::Connect as ConnectTimeout;
use ureq::unversioned::transport::time::Duration as Left;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};

use crate::base::clock::Clock;
use crate::http::answer_head::MAX_GROWTH;
use crate::http::connecting::{self, Reached};
use crate::http::resolver::{bare_host, port_of};
use crate::http::tunnel::{Proxy, ProxyFailed};

/// Timeouts of the socket are multiples of this, rounded up: the rest of a request's time is mostly the same then.
const STEP: Duration = Duration::from_millis(20);
/// Bytes that wait to be sent with what follows; also the most of a TLS record.
pub(super) const MAX_UNSENT: usize = 16 * 1024;
/// Reads of a connection with TLS that are acknowledged at once. Servers send session tickets before an answer, and hold the
/// answer back until the tickets are acknowledged; one that answers by the head alone and closes would lose it.
const QUICK_READS: u8 = 8;
/// The least time for the answer of a proxy.
const MIN_TUNNEL: Duration = Duration::from_millis(10);
/// The most time to connect to a host, with all its addresses.
const MAX_CONNECT: Duration = Duration::from_mins(5);

/// Opens connections.
#[derive(Clone, Debug, Default)]
pub(super) struct Opener {
    /// Shared by all connections of a client.
    pub(super) reached: Arc<Reached>,
    /// What stands between this site and the Internet.
    pub(super) proxy: Option<Arc<Proxy>>,
}

impl Opener {
    /// The proxy through which a URL is called.
    pub(super) fn proxy_of(&self, uri: &Uri) -> Option<&Arc<Proxy>> {
        let host = bare_host(uri).unwrap_or_default();
        self.proxy.as_ref().filter(|proxy| proxy.rules.serves(host))
    }

    /// Connects to the host of a URL, or to the proxy. For an `https` URL the proxy has opened a tunnel to the host.
    pub(super) fn open(
        &self,
        uri: &Uri,
        addresses: &[SocketAddr],
        time: Duration,
    ) -> io::Result<TcpStream> {
        let to = format!("{}:{}", uri.host().unwrap_or_default(), port_of(uri));
        let Some(proxy) = self.proxy_of(uri) else {
            return connecting::connect(&to, addresses, &self.reached, time);
        };
        let clock = Clock::machine();
        let begun = clock.monotonic();
        let host = proxy.rules.to_string();
        let mut stream = connecting::connect(&host, addresses, &self.reached, time)?;
        if uri.scheme_str() == Some("https") {
            let left = time.saturating_sub(clock.monotonic().saturating_sub(begun));
            proxy.open_tunnel(&mut stream, &to, left.max(MIN_TUNNEL))?;
        }
        Ok(stream)
    }
}

impl Connector<()> for Opener {
    type Out = Socket;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        _: Option<()>,
    ) -> Result<Option<Socket>, Error> {
        let time = details.timeout.not_zero().map_or(MAX_CONNECT, |time| MAX_CONNECT.min(*time));
        let stream = self.open(details.uri, &details.addrs, time);
        let stream = stream.map_err(|error| {
            if is_timeout(&error) { Error::Timeout(ConnectTimeout) } else { connect_error(error) }
        })?;
        let is_plain = !details.needs_tls();
        let proxy = self.proxy_of(details.uri).filter(|_| is_plain);
        let through = proxy.zip(details.uri.authority()).map(|(proxy, authority)| Through {
            proxy: Arc::clone(proxy),
            authority: authority.to_string(),
        });
        stream.set_nodelay(true)?;
        let config = details.config;
        let buffers = LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size());
        Ok(Some(Socket {
            stream,
            buffers,
            unsent: Vec::new(),
            read_timeout: None,
            is_fresh: false,
            write_error: None,
            quick_reads: if details.needs_tls() { QUICK_READS } else { 0 },
            holds_back: is_plain,
            through,
            is_at_head: true,
        }))
    }
}

/// An error of connecting; one of the proxy keeps its own words.
fn connect_error(error: io::Error) -> Error {
    match error.downcast::<ProxyFailed>() {
        Ok(failed) => Error::Other(Box::new(failed)),
        Err(error) => Error::Io(error),
    }
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
    /// The timeout for reading that the socket has.
    read_timeout: Option<Duration>,
    /// Whether an answer has just come.
    is_fresh: bool,
    /// Why the request could not be written to its end. The server may have answered before: its answer is read, and
    /// this error counts only if there is none.
    write_error: Option<Error>,
    /// Reads before which the kernel is told to acknowledge at once.
    quick_reads: u8,
    /// Whether what is written waits for what follows. TLS puts head and body together itself.
    holds_back: bool,
    /// The proxy, which reads each request without TLS.
    through: Option<Through>,
    /// Whether the next bytes are the head of a request.
    is_at_head: bool,
}

/// Where requests without TLS go through a proxy.
#[derive(Debug)]
struct Through {
    proxy: Arc<Proxy>,
    /// The host of the URL, with its port if it names one.
    authority: String,
}

impl Socket {
    /// Sends what waits. An error is kept for [`Transport::await_input`].
    fn send_unsent(&mut self, timeout: NextTimeout) {
        if self.unsent.is_empty() {
            return;
        }
        let unsent = std::mem::take(&mut self.unsent);
        if self.write_error.is_none() {
            self.write_error = self.send(&unsent, timeout).err();
        }
        self.unsent = unsent;
        self.unsent.clear();
    }

    /// Sends all bytes. While the server does not read, three quarters of the time are waited; then an answer that has
    /// come ends the wait.
    fn send(&self, bytes: &[u8], timeout: NextTimeout) -> Result<(), Error> {
        let late = || Error::Timeout(timeout.reason);
        if timeout.after.is_zero() {
            return Err(late());
        }
        let all = timeout.not_zero().map_or(MAX_CONNECT, |all| *all);
        let clock = Clock::machine();
        let mut rest = bytes;
        let mut begun = None;
        while !rest.is_empty() {
            match send(&self.stream, rest, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(sent) => rest = rest.get(sent..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let now = clock.monotonic();
                    let waited = now.saturating_sub(*begun.get_or_insert(now));
                    let patience = all.saturating_sub(all / 4).saturating_sub(waited);
                    let left = all.saturating_sub(waited);
                    if left.is_zero() || (patience.is_zero() && self.has_input()) {
                        return Err(late());
                    }
                    let wait = if patience.is_zero() { left } else { patience };
                    self.wait_until_writable(wait)?;
                }
                Err(error) => return Err(Error::Io(error.into())),
            }
        }
        Ok(())
    }

    fn wait_until_writable(&self, time: Duration) -> Result<(), Error> {
        let span = Timespec::try_from(time).map_err(|why| Error::Io(io::Error::other(why)))?;
        match poll(&mut [PollFd::new(&self.stream, PollFlags::OUT)], Some(&span)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(Error::Io(error.into())),
        }
    }

    /// Whether the server has sent something that was not read yet.
    fn has_input(&self) -> bool {
        let looks = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        recv(&self.stream, &mut [0_u8][..], looks).is_ok_and(|(length, _)| length > 0)
    }
}

/// What is left of a time limit after some of it was waited.
pub(super) fn left_of(mut timeout: NextTimeout, waited: Duration) -> NextTimeout {
    if let Left::Exact(all) = timeout.after {
        timeout.after = Left::Exact(all.saturating_sub(waited));
    }
    timeout
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
        let output = self.buffers.output().get(..amount).unwrap_or_default();
        match &self.through {
            Some(through) if self.is_at_head => {
                self.unsent.extend(through.proxy.rewritten(&through.authority, output));
            }
            Some(_) | None => self.unsent.extend(output),
        }
        self.is_at_head = false;
        if !self.holds_back || self.unsent.len() >= MAX_UNSENT {
            self.send_unsent(timeout.for_write());
        }
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.send_unsent(timeout.for_write());
        self.is_at_head = true;
        let read = self.read(timeout.for_read());
        if !matches!(read, Ok(true))
            && let Some(error) = self.write_error.take()
        {
            return Err(error);
        }
        read
    }

    /// Whether nothing has come that nobody asked for, as the end of the connection. It is asked when an answer was read,
    /// and again before the next request: the second look suffices.
    fn is_open(&mut self) -> bool {
        let looks = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        self.write_error.is_none()
            && (std::mem::take(&mut self.is_fresh)
                || matches!(recv(&self.stream, &mut [0_u8][..], looks), Err(Errno::AGAIN)))
    }
}

impl Socket {
    fn read(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let most = rounded(timeout)?;
        if self.read_timeout != most {
            self.stream.set_read_timeout(most)?;
            self.read_timeout = most;
        }
        if let Some(left) = self.quick_reads.checked_sub(1) {
            self.quick_reads = left;
            // It only saves time.
            set_tcp_quickack(&self.stream, true).unwrap_or_default();
        }
        // A signal begins the wait anew; the service has none that come often.
        let amount = loop {
            let room = self.buffers.input_append_buf();
            let most = room.len().saturating_sub(MAX_GROWTH);
            match self.stream.read(room.get_mut(..most).unwrap_or_default()) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read.map_err(|error| failed(error, timeout))?,
            }
        };
        self.buffers.input_appended(amount);
        self.is_fresh = amount > 0;
        Ok(amount > 0)
    }
}
