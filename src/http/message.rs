//! A request and a response as the rest of the program sees them: complete, framed, no socket.

use std::net::{IpAddr, SocketAddr};

use crate::base::headers::Headers;

/// The methods the product knows. Any other is refused with 501 by the listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// `GET`
    Get,
    /// `HEAD`: routed as `GET`, answered without a body.
    Head,
    /// `POST`
    Post,
    /// `PUT`
    Put,
    /// `PATCH`
    Patch,
    /// `DELETE`
    Delete,
    /// `OPTIONS`
    Options,
    /// `TRACE`: answered nowhere, but known, so that it is refused with 405 and not with 501.
    Trace,
}

impl Method {
    /// Every method, with its name on the request line.
    const ALL: [(Self, &'static str); 8] = [
        (Self::Get, "GET"),
        (Self::Head, "HEAD"),
        (Self::Post, "POST"),
        (Self::Put, "PUT"),
        (Self::Patch, "PATCH"),
        (Self::Delete, "DELETE"),
        (Self::Options, "OPTIONS"),
        (Self::Trace, "TRACE"),
    ];

    /// The name on the request line.
    pub fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(method, _)| *method == self).map_or("", |(_, name)| name)
    }

    /// Reads a method; it is case-sensitive (RFC 9110, section 9.1).
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, name)| *name == text).map(|(method, _)| *method)
    }
}

/// What is known before the body is read: enough to choose its limit, or to refuse.
#[derive(Clone, Debug)]
pub struct Head {
    /// The method.
    pub method: Method,
    /// The path as sent, starting with `/` (or `*` for `OPTIONS *`), not decoded, without the query.
    pub path: String,
    /// What stood behind `?`, not decoded.
    pub query: Option<String>,
    /// All header fields.
    pub headers: Headers,
    /// Which of the server's listening sockets it came to, in their order.
    pub door: usize,
    /// The other end of the socket: the client's, or a proxy's.
    pub peer: SocketAddr,
    /// Who sent it, as trusted proxies tell; see [`crate::http::proxies`].
    pub client: IpAddr,
    /// What it is called in the log, in records and in its answer.
    pub request_id: String,
}

impl Head {
    /// Bytes of memory held.
    pub(crate) fn held(&self) -> usize {
        let query = self.query.as_ref().map_or(0, String::capacity);
        let strings = [self.path.capacity(), query, self.request_id.capacity()];
        strings
            .into_iter()
            .fold(size_of::<Self>(), usize::saturating_add)
            .saturating_add(self.headers.held())
    }
}

/// A complete request.
#[derive(Clone, Debug)]
pub struct Request {
    /// Everything before the body.
    pub head: Head,
    /// The body, after transfer coding was removed; otherwise as sent.
    pub body: Vec<u8>,
}

impl Request {
    /// Bytes of memory held.
    pub(crate) fn held(&self) -> usize {
        self.head.held().saturating_add(self.body.capacity())
    }

    /// Who sent it, as trusted proxies tell: for records, throttling and the log.
    #[cfg(any(test, feature = "internals"))]
    pub const fn client_address(&self) -> IpAddr {
        self.head.client
    }

    /// What it is called in the log, in records and in its answer.
    pub fn request_id(&self) -> &str {
        &self.head.request_id
    }
}

/// What is remembered of a request until it is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// What it is called.
    pub request_id: String,
    /// Who sent it, as trusted proxies tell.
    pub client: IpAddr,
    /// Method and path, where they could be read. The path is printable ASCII.
    pub target: Option<(Method, String)>,
}

impl Asked {
    /// What is remembered of a head.
    pub(crate) fn of(head: &Head) -> Self {
        Self {
            request_id: head.request_id.clone(),
            client: head.client,
            target: Some((head.method, head.path.clone())),
        }
    }
}

/// No status code of HTTP: tells the listener to close the connection instead of answering.
const HANG_UP: u16 = 1;

/// An answer. The listener adds `content-length`, `date` and `connection`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// Further header fields: names in lower case, values without control characters.
    pub headers: Vec<(&'static str, String)>,
    /// The body; empty for none.
    pub body: Vec<u8>,
    /// Whether the connection is closed after this answer.
    pub close: bool,
    /// Why it is refused, for the log alone: it is never sent.
    pub cause: Option<String>,
    /// Who changed something, what was done, and to what, for the log alone.
    pub done: Option<Box<[String; 3]>>,
}

impl Response {
    /// An answer without a body.
    pub fn new(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: Vec::new(),
            close: false,
            cause: None,
            done: None,
        }
    }

    /// An answer with a body of the given media type.
    pub fn with_body(status: u16, content_type: &str, body: Vec<u8>) -> Self {
        let headers = vec![("content-type", content_type.to_owned())];
        Self { headers, body, ..Self::new(status) }
    }

    /// No answer: the connection is closed. For stand-ins that play a receiver whose answers get lost.
    pub fn hang_up() -> Self {
        Self::new(HANG_UP)
    }

    /// Whether this is no answer but the end of the connection.
    pub(crate) fn is_hang_up(&self) -> bool {
        self.status == HANG_UP
    }

    /// The same answer with a reason for the log.
    #[cfg(any(test, feature = "internals"))]
    #[must_use]
    pub fn because(mut self, cause: impl Into<String>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// The same answer with one more header field.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}
