//! HTTP/1.1 as far as tests need it: one request on a connection of its own, and reading messages.

use std::fmt::Write as _;
use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use data_encoding::{BASE64, HEXLOWER};
use ring::hmac;
use serde_json::Value;

/// No exchange of a test takes longer.
const PATIENCE: Duration = Duration::from_mins(3);

/// A request or an answer, taken apart. Names of fields are in lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) first_line: String,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Message {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(have, _)| have == name).map(|(_, value)| value.as_str())
    }

    /// Whether one of its signatures by Standard Webhooks was made with this secret.
    pub(crate) fn is_signed(&self, secret: &str) -> bool {
        let key = BASE64.decode(secret.strip_prefix("whsec_").unwrap().as_bytes()).unwrap();
        let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
        let field = |name| self.field(name).unwrap();
        let signed = [field("webhook-id"), ".", field("webhook-timestamp"), "."].concat();
        let signed = [signed.as_bytes(), &self.body].concat();
        let mut own =
            field("webhook-signature").split(' ').filter_map(|one| one.strip_prefix("v1,"));
        own.any(|mac| hmac::verify(&key, &signed, &BASE64.decode(mac.as_bytes()).unwrap()).is_ok())
    }
}

/// GitHub's signature of a body.
pub(crate) fn github(secret: &str, body: &[u8]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    format!("sha256={}", HEXLOWER.encode(hmac::sign(&key, body).as_ref()))
}

/// Reads one message byte by byte, so that nothing after it is taken; `None` when the other end closed before its first byte.
pub(crate) fn read_message(from: &mut impl Read) -> io::Result<Option<Message>> {
    let Some(mut message) = read_head(from)? else { return Ok(None) };
    let length = message.field("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
    message.body = vec![0; length];
    from.read_exact(&mut message.body)?;
    Ok(Some(message))
}

/// Reads a message up to its body, which an answer to `HEAD` does not have.
fn read_head(from: &mut impl Read) -> io::Result<Option<Message>> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        let read = match from.read(&mut byte) {
            // A wait with a time limit is not begun again by the system after a signal.
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read?,
        };
        if read == 0 {
            let cut = io::Error::new(ErrorKind::UnexpectedEof, "the head broke off");
            return if head.is_empty() { Ok(None) } else { Err(cut) };
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let mut lines = head.split_terminator("\r\n");
    let first_line = lines.next().unwrap_or_default().to_owned();
    let fields: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    Ok(Some(Message { first_line, fields, body: Vec::new() }))
}

/// An answer of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) message: Message,
}

impl Answer {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.message.field(name)
    }

    pub(crate) fn body(&self) -> &[u8] {
        &self.message.body
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.message.body).into_owned()
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.message.body)
            .unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// What a problem says a person can do about it.
    #[track_caller]
    pub(crate) fn detail(&self) -> String {
        self.json()["detail"].as_str().unwrap().to_owned()
    }

    /// Asserts that a problem says this.
    #[track_caller]
    pub(crate) fn tells(self, part: &str) -> Self {
        assert!(self.detail().contains(part), "{part:?}: {}", self.text());
        self
    }

    /// Asserts the status.
    #[track_caller]
    pub(crate) fn is(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.text());
        self
    }
}

/// Sends one request and reads its answer.
pub(crate) fn send(
    address: SocketAddr,
    method: &str,
    path: &str,
    fields: &[(&str, &str)],
    body: &[u8],
) -> io::Result<Answer> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut request = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\n");
    for (name, value) in fields {
        write!(request, "{name}: {value}\r\n").map_err(io::Error::other)?;
    }
    let length = body.len();
    write!(request, "Content-Length: {length}\r\nConnection: close\r\n\r\n")
        .map_err(io::Error::other)?;
    let mut bytes = request.into_bytes();
    bytes.extend_from_slice(body);
    // A body that is refused early is not read to its end; the answer comes all the same.
    let written = stream.write_all(&bytes);
    let mut answer = BufReader::new(stream);
    let read = if method == "HEAD" { read_head(&mut answer) } else { read_message(&mut answer) };
    match read {
        Ok(Some(message)) => {
            let status = message.first_line.split(' ').nth(1).and_then(|text| text.parse().ok());
            let status = status.ok_or_else(|| io::Error::other("no status line"))?;
            Ok(Answer { status, message })
        }
        Ok(None) => Err(written.err().unwrap_or_else(|| ErrorKind::UnexpectedEof.into())),
        Err(error) => Err(error),
    }
}
