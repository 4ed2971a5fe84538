//! The complete request and response that the rest of the program works with.

use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::base::headers::Headers;
use crate::base::words::words;

words! {
    /// The known methods. The listener refuses any other with 501.
    pub enum Method {
        /// `GET`
        Get = "GET",
        /// `HEAD`: routed as `GET`, answered without a body.
        Head = "HEAD",
        /// `POST`
        Post = "POST",
        /// `PUT`
        Put = "PUT",
        /// `PATCH`
        Patch = "PATCH",
        /// `DELETE`
        Delete = "DELETE",
        /// `OPTIONS`
        Options = "OPTIONS",
        /// `TRACE`: no route has it; it is known only so that it is refused with 405 and not with 501.
        Trace = "TRACE",
    }
}

/// The head of a request: known before the body is read, to choose its limit or refuse it.
#[derive(Clone, Debug)]
pub struct Head {
    /// The method.
    pub method: Method,
    /// The path as sent, starting with `/` (or `*` for `OPTIONS *`), not decoded, without the query.
    pub path: String,
    /// The part after `?`, not decoded.
    pub query: Option<String>,
    /// All header fields.
    pub headers: Headers,
    /// Index of the listening socket that it came to.
    pub door: usize,
    /// The other end of the socket: the client's, or a proxy's.
    pub peer: SocketAddr,
    /// The client's address, as trusted proxies report it; see [`crate::http::proxies`].
    pub client: IpAddr,
    /// Its id in the log, in records and in its answer.
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
    /// The body as sent, without transfer coding.
    pub body: Vec<u8>,
}

impl Request {
    /// Bytes of memory held.
    pub(crate) fn held(&self) -> usize {
        self.head.held().saturating_add(self.body.capacity())
    }

    /// The client's address, as trusted proxies report it.
    #[cfg(any(test, feature = "internals"))]
    pub const fn client_address(&self) -> IpAddr {
        self.head.client
    }

    /// Its id in the log, in records and in its answer.
    pub fn request_id(&self) -> &str {
        &self.head.request_id
    }
}

/// What is remembered of a request until it is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Its id.
    pub request_id: String,
    /// The client's address, as trusted proxies report it.
    pub client: IpAddr,
    /// Method and path, if they could be read. The path is printable ASCII.
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

/// Not an HTTP status: tells the listener to close the connection instead of answering.
const HANG_UP: u16 = 1;

/// A file whose content is the body of an answer. It is read while it is sent, a part at a time.
#[derive(Clone, Debug)]
pub struct FileBody {
    /// The file, read from where it stands.
    pub file: Arc<File>,
    /// How many bytes of it are sent.
    pub bytes: u64,
}

impl PartialEq for FileBody {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.file, &other.file)
    }
}

impl Eq for FileBody {}

/// An answer. The listener adds `content-length`, `date` and `connection`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// Further header fields: names in lower case, values without control characters.
    pub headers: Vec<(&'static str, String)>,
    /// The body; empty for none.
    pub body: Vec<u8>,
    /// A file in place of the body.
    pub file: Option<FileBody>,
    /// Whether the connection is closed after this answer.
    pub close: bool,
    /// Why it is a refusal, only for the log.
    pub cause: Option<String>,
    /// Who changed something, what was done, and to what; only for the log.
    pub done: Option<Box<[String; 3]>>,
}

impl Response {
    /// An answer without a body.
    pub fn new(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: Vec::new(),
            file: None,
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

    /// No answer: the connection is closed. For test receivers whose answers get lost.
    pub fn hang_up() -> Self {
        Self::new(HANG_UP)
    }

    /// Whether to close the connection instead of answering.
    pub(crate) fn is_hang_up(&self) -> bool {
        self.status == HANG_UP
    }

    /// Adds a reason for the log.
    #[cfg(any(test, feature = "internals"))]
    #[must_use]
    pub fn because(mut self, cause: impl Into<String>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// Adds a header field.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}
