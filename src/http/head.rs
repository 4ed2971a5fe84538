//! Parses the head of a request, or refuses it. Pure.
//!
//! Strict, against request smuggling: a head is refused if two readers could disagree about where the request ends
//! (RFC 9112, section 11.2). Not here: bodies.

use std::mem::MaybeUninit;
use std::net::SocketAddr;

use crate::base::headers::Headers;
use crate::http::message::{Head, Method};

/// Most fields that can be parsed; the configured limit may be lower.
const MAX_FIELDS: usize = 128;

/// The listener's refusal of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) detail: &'static str,
}

impl Refusal {
    pub(crate) const fn new(status: u16, detail: &'static str) -> Self {
        Self { status, detail }
    }
}

const fn bad(detail: &'static str) -> Refusal {
    Refusal::new(400, detail)
}

/// The length of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyLength {
    Fixed(u64),
    Chunked,
}

/// How to answer a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplyMode {
    /// Another request may follow.
    pub(crate) persist: bool,
    /// The client uses HTTP/1.0 and must be told that the connection stays open.
    pub(crate) old: bool,
    /// The method was HEAD.
    pub(crate) head_only: bool,
}

impl ReplyMode {
    /// For the answer to a request that could not be read completely.
    pub(crate) const CLOSE: Self = Self { persist: false, old: false, head_only: false };

    pub(crate) const fn closing(self) -> Self {
        Self { persist: false, ..self }
    }
}

/// A parsed head.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) head: Head,
    pub(crate) body_length: BodyLength,
    pub(crate) mode: ReplyMode,
    /// The client waits for `100 Continue` before it sends the body.
    pub(crate) expects: bool,
}

/// Searches from `from` on for the empty line that ends a head, and returns the head's length.
///
/// Checks each byte, so that garbage is refused at once and at the same byte however the network splits the input.
/// Unlike `httparse`, refuses a bare LF as a line end.
pub(crate) fn end(bytes: &[u8], from: usize) -> Result<Option<usize>, Refusal> {
    let mut before = from.checked_sub(1).and_then(|at| bytes.get(at)).copied().unwrap_or(0);
    for (at, &byte) in bytes.iter().enumerate().skip(from) {
        if (byte == b'\n') != (before == b'\r') {
            return Err(bad("a line must end with CR LF, and neither is allowed elsewhere"));
        }
        if byte.is_ascii_control() && !matches!(byte, b'\r' | b'\n' | b'\t') {
            return Err(bad("a control character in the head"));
        }
        let past = at.saturating_add(1);
        if byte == b'\n' && bytes.get(..past).is_some_and(|head| head.ends_with(b"\r\n\r\n")) {
            return Ok(Some(past));
        }
        before = byte;
    }
    Ok(None)
}

/// Parses a complete head that [`end`] has accepted. The listening socket, the client and the request id are filled in
/// later.
pub(crate) fn parse(bytes: &[u8], peer: SocketAddr, most: usize) -> Result<Parsed, Refusal> {
    let mut room = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut raw = httparse::Request::new(&mut []);
    match raw.parse_with_uninit_headers(bytes, &mut room) {
        Ok(httparse::Status::Complete(used)) if used == bytes.len() => (),
        Ok(_) => return Err(bad("the head does not end where its fields end")),
        Err(error) => return Err(syntax(error, bytes)),
    }
    if raw.headers.len() > most {
        return Err(TOO_MANY_FIELDS);
    }
    let old = raw.version == Some(0);
    let method = raw.method.and_then(Method::parse);
    let method = method.ok_or(Refusal::new(501, "this method is not implemented"))?;
    let mut headers = Headers::default();
    let mut fields = Fields::default();
    for field in raw.headers.iter() {
        headers.push(field.name, field.value);
        fields.note(field.name, field.value);
    }
    let host = fields.host(old)?;
    let body_length = fields.body_length(old)?;
    let expects = fields.expects(old)? && body_length != BodyLength::Fixed(0);
    let (path, query) = target(method, raw.path.unwrap_or_default(), host)?;
    let persist = !fields.connection.close && (fields.connection.keep_alive || !old);
    let mode = ReplyMode { persist, old, head_only: method == Method::Head };
    let door = 0;
    let client = peer.ip();
    let request_id = String::new();
    let head = Head { method, path, query, headers, door, peer, client, request_id };
    Ok(Parsed { head, body_length, mode, expects })
}

const TOO_MANY_FIELDS: Refusal = Refusal::new(431, "too many header fields");

fn syntax(error: httparse::Error, bytes: &[u8]) -> Refusal {
    match error {
        httparse::Error::TooManyHeaders => TOO_MANY_FIELDS,
        httparse::Error::Version if other_version(bytes) => {
            Refusal::new(505, "only HTTP/1.0 and HTTP/1.1 are supported")
        }
        httparse::Error::HeaderName => bad("a malformed field name"),
        httparse::Error::HeaderValue => bad("a malformed field value"),
        httparse::Error::NewLine
        | httparse::Error::Status
        | httparse::Error::Token
        | httparse::Error::Version => bad("a malformed request line"),
    }
}

/// Whether the request line is `method target HTTP/x` with another version, and not just malformed.
fn other_version(bytes: &[u8]) -> bool {
    let line = bytes.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|&byte| byte == b' ');
    let version = words.nth(2).and_then(|word| word.strip_prefix(b"HTTP/"));
    let digits = |text: &[u8]| text.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
    words.next().is_none() && version.is_some_and(|text| !text.is_empty() && digits(text))
}

/// Path and query of the request target.
///
/// The absolute form, which RFC 9112 (section 3.2.2) requires to be accepted, must name the same host as the Host field:
/// otherwise a proxy and this program could treat the request differently.
fn target(
    method: Method,
    raw: &str,
    host: Option<&[u8]>,
) -> Result<(String, Option<String>), Refusal> {
    if !raw.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
        return Err(bad("a character in the target that must be percent-encoded"));
    }
    if raw == "*" && method == Method::Options {
        return Ok((raw.to_owned(), None));
    }
    let mut origin = raw;
    if let Some(rest) = raw.strip_prefix("http://").or_else(|| raw.strip_prefix("https://")) {
        let (authority, from_path) =
            match rest.find(['/', '?']).and_then(|at| rest.split_at_checked(at)) {
                Some(parts) => parts,
                None => (rest, "/"),
            };
        if !host.is_some_and(|host| host.eq_ignore_ascii_case(authority.as_bytes())) {
            return Err(bad("the target and the Host field name different hosts"));
        }
        origin = from_path;
    }
    let (path, query) = match origin.split_once('?') {
        Some((path, query)) => (path, Some(query.to_owned())),
        None => (origin, None),
    };
    match path {
        "" if origin.len() < raw.len() => Ok(("/".to_owned(), query)),
        _ if path.starts_with('/') => Ok((path.to_owned(), query)),
        _ => Err(bad("the target must be a path")),
    }
}

/// The fields that decide where the request ends and whether the connection stays open.
#[derive(Default)]
struct Fields<'a> {
    hosts: usize,
    host: Option<&'a [u8]>,
    lengths: usize,
    length: &'a [u8],
    codings: usize,
    coding: &'a [u8],
    expect: bool,
    expect_other: bool,
    connection: ConnectionOptions,
}

/// The known options of the Connection field.
#[derive(Default)]
struct ConnectionOptions {
    close: bool,
    keep_alive: bool,
}

impl<'a> Fields<'a> {
    fn note(&mut self, name: &str, value: &'a [u8]) {
        if name.eq_ignore_ascii_case("host") {
            self.hosts = self.hosts.saturating_add(1);
            self.host = Some(value);
        } else if name.eq_ignore_ascii_case("content-length") {
            self.lengths = self.lengths.saturating_add(1);
            self.length = value;
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            self.codings = self.codings.saturating_add(1);
            self.coding = value;
        } else if name.eq_ignore_ascii_case("expect") {
            let known = value.eq_ignore_ascii_case(b"100-continue");
            self.expect |= known;
            self.expect_other |= !known;
        } else if name.eq_ignore_ascii_case("connection") {
            for option in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
                self.connection.close |= option.eq_ignore_ascii_case(b"close");
                self.connection.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
            }
        }
    }

    fn host(&self, old: bool) -> Result<Option<&'a [u8]>, Refusal> {
        let is_invalid = |byte: &u8| !byte.is_ascii_graphic() || b"/?#@,\\".contains(byte);
        match (self.hosts, self.host) {
            (0, _) if old => Ok(None),
            (0, _) => Err(bad("the Host field is missing")),
            (1, Some(host)) if !host.iter().any(is_invalid) => Ok(Some(host)),
            (1, _) => Err(bad("a malformed Host field")),
            _ => Err(bad("more than one Host field")),
        }
    }

    fn body_length(&self, old: bool) -> Result<BodyLength, Refusal> {
        match (self.lengths, self.codings) {
            (0, 0) => Ok(BodyLength::Fixed(0)),
            (1, 0) => length(self.length).map(BodyLength::Fixed),
            (_, 0) => Err(bad("more than one Content-Length field")),
            (0, _) if old => Err(bad("Transfer-Encoding does not exist in HTTP/1.0")),
            (0, 1) if self.coding.eq_ignore_ascii_case(b"chunked") => Ok(BodyLength::Chunked),
            (0, _) => Err(Refusal::new(501, "the only supported transfer coding is chunked")),
            _ => Err(bad("both Content-Length and Transfer-Encoding")),
        }
    }

    /// Whether the client waits for `100 Continue`. HTTP/1.0 has no expectations (RFC 9110, 10.1.1).
    fn expects(&self, old: bool) -> Result<bool, Refusal> {
        if self.expect_other {
            return Err(Refusal::new(417, "the only supported expectation is 100-continue"));
        }
        Ok(self.expect && !old)
    }
}

/// Parses digits only: `u64::from_str` would accept `+5`. A number beyond 64 bits becomes the largest one, which is over
/// every limit.
fn length(value: &[u8]) -> Result<u64, Refusal> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(bad("Content-Length is not a number"));
    }
    let digit = |byte: &u8| u64::from(byte.saturating_sub(b'0'));
    Ok(value.iter().fold(0, |sum: u64, byte| sum.saturating_mul(10).saturating_add(digit(byte))))
}
