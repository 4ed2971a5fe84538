//! The outermost layer of a connection: it sees requests and answers as they are, without TLS.
//!
//! It rewrites the head of an answer that the library would refuse ([`answer_head`]), and reports a kept connection that
//! the server had closed.

use std::io::ErrorKind;

use ureq::Error;
use ureq::unversioned::transport::{Buffers, ConnectionDetails, Connector, NextTimeout, Transport};

use crate::base::clock::Clock;
use crate::http::answer_head::{self, HeadStart};
use crate::http::socket::left_of;

/// A kept connection ended before anything of the answer came.
#[derive(Debug, thiserror::Error)]
#[error("the server closed a kept connection when the next request was sent: {0}")]
pub(super) struct KeptConnectionClosed(pub(super) String);

/// Wraps each connection in an [`Exchange`].
#[derive(Clone, Debug)]
pub(super) struct Exchanges;

impl<In: Transport> Connector<In> for Exchanges {
    type Out = Exchange<In>;

    fn connect(
        &self,
        _details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Exchange<In>>, Error> {
        Ok(chained.map(|inner| Exchange { inner, state: ExchangeState::Idle { was_used: false } }))
    }
}

#[derive(Clone, Copy, Debug)]
enum ExchangeState {
    /// Nothing was asked yet, or the last answer's head has come.
    Idle { was_used: bool },
    /// A request is written; its answer is not complete to the end of its head.
    Asked { was_used: bool, has_input: bool },
}

/// A connection on which one request follows the other.
#[derive(Debug)]
pub(super) struct Exchange<T> {
    inner: T,
    state: ExchangeState,
}

impl<T: Transport> Exchange<T> {
    /// Reads on until the head of the answer can be handed on. All reads share the time: a head that comes byte by byte would
    /// else have all of it for each byte.
    fn await_head(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let clock = Clock::machine();
        let begun = clock.monotonic();
        loop {
            let waited = clock.monotonic().saturating_sub(begun);
            let has_more = self.inner.await_input(left_of(timeout, waited))?;
            let buffers = self.inner.buffers();
            let input = buffers.input();
            if let ExchangeState::Asked { has_input, .. } = &mut self.state {
                *has_input |= !input.is_empty();
            }
            let mut start = answer_head::look(input);
            while let HeadStart::Interim(length) = start {
                buffers.input_consume(length);
                start = answer_head::look(buffers.input());
            }
            match start {
                HeadStart::Incomplete if has_more => {}
                HeadStart::Odd { length, rewritten } => {
                    replace(buffers, length, &rewritten);
                    self.state = ExchangeState::Idle { was_used: true };
                    return Ok(true);
                }
                HeadStart::Readable => {
                    self.state = ExchangeState::Idle { was_used: true };
                    return Ok(true);
                }
                HeadStart::Incomplete | HeadStart::Interim(_) | HeadStart::Unreadable => {
                    return Ok(has_more);
                }
            }
        }
    }
}

/// Puts `new` in the place of the first bytes that came. Whoever fills the buffer leaves room for it.
fn replace(buffers: &mut dyn Buffers, length: usize, new: &[u8]) {
    let rest = buffers.input().get(length..).unwrap_or_default();
    let whole = [new, rest].concat();
    let all = buffers.input().len();
    buffers.input_consume(all);
    let room = buffers.input_append_buf();
    let fits = room.len().min(whole.len());
    if let (Some(room), Some(whole)) = (room.get_mut(..fits), whole.get(..fits)) {
        room.copy_from_slice(whole);
    }
    buffers.input_appended(fits);
}

/// Whether an error is the end of a connection.
fn is_end(error: &Error) -> bool {
    let Error::Io(error) = error else { return false };
    matches!(
        error.kind(),
        ErrorKind::BrokenPipe
            | ErrorKind::ConnectionAborted
            | ErrorKind::ConnectionReset
            | ErrorKind::UnexpectedEof
    )
}

impl<T: Transport> Transport for Exchange<T> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.inner.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        if let ExchangeState::Idle { was_used } = self.state {
            self.state = ExchangeState::Asked { was_used, has_input: false };
        }
        self.inner.transmit_output(amount, timeout)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        if matches!(self.state, ExchangeState::Idle { .. }) {
            return self.inner.await_input(timeout);
        }
        let read = self.await_head(timeout);
        let ExchangeState::Asked { was_used: true, has_input: false } = self.state else {
            return read;
        };
        let why = match read {
            Ok(false) => "it ended".to_owned(),
            Err(error) if is_end(&error) => error.to_string(),
            other => return other,
        };
        Err(Error::Other(Box::new(KeptConnectionClosed(why))))
    }

    fn is_open(&mut self) -> bool {
        self.inner.is_open()
    }

    fn is_tls(&self) -> bool {
        self.inner.is_tls()
    }
}
