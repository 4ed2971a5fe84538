//! Encodes a response into the bytes of an answer, and writes them.

use std::io::{self, IoSlice, Read, Write};

use parking_lot::Mutex;
use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;

use crate::base::clock::Timestamp;
use crate::http::head::ReplyMode;
use crate::http::message::{FileBody, Response};

/// The date format of RFC 9110, section 5.6.7.
const DATE: &[BorrowedFormatItem<'_>] = format_description!(
    "[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT"
);

/// The fields that frame an answer. Only the listener sets them, so that none is sent twice.
const RESERVED: [&str; 4] = ["content-length", "transfer-encoding", "connection", "date"];

/// Bytes of a file that are held at once: reading them keeps the thread from other connections.
const PART_BYTES: u64 = 64 << 10;

/// The `date` field of the current second.
#[derive(Debug, Default)]
pub(crate) struct DateLine(Mutex<(i64, Vec<u8>)>);

impl DateLine {
    fn append(&self, now: Timestamp, to: &mut Vec<u8>) {
        let mut guard = self.0.lock();
        let (second, line) = &mut *guard;
        if *second != now.secs() || line.is_empty() {
            *second = now.secs();
            *line = date_line(now).unwrap_or_default();
        }
        to.extend_from_slice(line);
    }
}

/// `None` after the year 9999: an answer may go without a date.
fn date_line(now: Timestamp) -> Option<Vec<u8>> {
    let date = OffsetDateTime::from_unix_timestamp(now.secs()).ok()?.format(DATE).ok()?;
    Some(format!("date: {date}\r\n").into_bytes())
}

/// An encoded answer, and how much of it is sent.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    head: Vec<u8>,
    body: Vec<u8>,
    sent: usize,
    /// What follows the body.
    rest: Option<FileBody>,
}

/// How far an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    All,
    /// The socket takes no more now.
    Some,
    /// A part of a file is through, and the next one is read.
    Part,
}

impl Outgoing {
    /// Encodes an answer. `persist`: another request may follow on the connection.
    pub(crate) fn new(
        response: Response,
        mode: ReplyMode,
        persist: bool,
        date: &DateLine,
        now: Timestamp,
    ) -> Self {
        let mut head = Vec::with_capacity(256);
        head.extend_from_slice(b"HTTP/1.1 ");
        head.extend_from_slice(itoa::Buffer::new().format(response.status).as_bytes());
        let code = http::StatusCode::from_u16(response.status).ok();
        head.push(b' ');
        let reason = code.and_then(|code| code.canonical_reason()).unwrap_or_default();
        head.extend_from_slice(reason.as_bytes());
        head.extend_from_slice(b"\r\n");
        for (name, value) in &response.headers {
            if !RESERVED.iter().any(|reserved| reserved.eq_ignore_ascii_case(name)) {
                field(&mut head, name, value);
            }
        }
        let bodiless = matches!(response.status, 204 | 304);
        if !bodiless {
            head.extend_from_slice(b"content-length: ");
            let body = u64::try_from(response.body.len()).unwrap_or(u64::MAX);
            let bytes = response.file.as_ref().map_or(body, |file| file.bytes);
            head.extend_from_slice(itoa::Buffer::new().format(bytes).as_bytes());
            head.extend_from_slice(b"\r\n");
        }
        date.append(now, &mut head);
        match (persist, mode.old) {
            (false, _) => head.extend_from_slice(b"connection: close\r\n"),
            (true, true) => head.extend_from_slice(b"connection: keep-alive\r\n"),
            (true, false) => (),
        }
        head.extend_from_slice(b"\r\n");
        let (body, rest) = if bodiless || mode.head_only {
            (Vec::new(), None)
        } else {
            (response.body, response.file)
        };
        Self { head, body, sent: 0, rest }
    }

    /// Writes as much as the socket takes in one call.
    /// Fails when the socket does, or when a file is shorter than it was.
    pub(crate) fn write_some(&mut self, mut socket: impl Write) -> io::Result<Written> {
        let head = self.head.get(self.sent..).unwrap_or_default();
        let past = self.sent.saturating_sub(self.head.len());
        let body = self.body.get(past..).unwrap_or_default();
        let written = if body.is_empty() {
            socket.write(head)?
        } else {
            socket.write_vectored(&[IoSlice::new(head), IoSlice::new(body)])?
        };
        self.sent = self.sent.saturating_add(written);
        if self.sent < self.head.len().saturating_add(self.body.len()) {
            return Ok(Written::Some);
        }
        let Some(rest) = self.rest.as_mut().filter(|rest| rest.bytes > 0) else {
            return Ok(Written::All);
        };
        let next = rest.bytes.min(PART_BYTES);
        rest.bytes = rest.bytes.saturating_sub(next);
        self.head.clear();
        self.body.resize(usize::try_from(next).unwrap_or_default(), 0);
        (&*rest.file).read_exact(&mut self.body)?;
        self.sent = 0;
        Ok(Written::Part)
    }

    /// Bytes of memory held.
    pub(crate) fn held(&self) -> usize {
        self.head.capacity().saturating_add(self.body.capacity())
    }
}

/// Appends a header field. A control character in the value could begin another field or a second answer, so it
/// becomes a space.
fn field(to: &mut Vec<u8>, name: &str, value: &str) {
    to.extend_from_slice(name.as_bytes());
    to.extend_from_slice(b": ");
    to.extend(value.bytes().map(|byte| if byte.is_ascii_control() { b' ' } else { byte }));
    to.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use std::io::Seek;
    use std::sync::Arc;

    use super::*;

    const KEEP: ReplyMode = ReplyMode { persist: true, old: false, head_only: false };

    fn text(response: Response, mode: ReplyMode) -> String {
        let date = DateLine::default();
        let now = Timestamp::from_secs(784_111_777);
        let mut outgoing = Outgoing::new(response, mode, mode.persist, &date, now);
        let mut bytes = Vec::new();
        assert_eq!(outgoing.write_some(&mut bytes).unwrap(), Written::All);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn an_answer_carries_length_and_date() {
        let response = Response::with_body(200, "text/plain", b"hello".to_vec());
        let wanted = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 5\r\n\
                      date: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\nhello";
        assert_eq!(text(response, KEEP), wanted);
    }

    #[test]
    fn an_answer_to_head_says_how_long_the_body_would_be() {
        let response = Response::with_body(200, "text/plain", vec![b'x'; 1234]);
        let answer = text(response, ReplyMode { head_only: true, ..KEEP });
        assert!(answer.contains("content-length: 1234\r\n") && answer.ends_with("\r\n\r\n"));
    }

    #[test]
    fn an_answer_without_content_has_no_length() {
        let answer = text(Response::new(204), ReplyMode::CLOSE);
        assert!(!answer.contains("content-length") && answer.contains("connection: close\r\n"));
    }

    #[test]
    fn a_field_cannot_begin_another_one_or_frame_the_answer() {
        let response = Response::new(200)
            .header("location", "/\r\nset-cookie: a=b")
            .header("content-length", "99")
            .header("transfer-encoding", "chunked");
        let answer = text(response, KEEP);
        assert!(answer.contains("location: /  set-cookie: a=b\r\ncontent-length: 0\r\n"));
        assert!(!answer.contains("length: 99") && !answer.contains("chunked"));
    }

    #[test]
    fn a_socket_that_takes_one_byte_at_a_time_gets_the_same_answer() {
        struct Narrow(Vec<u8>);
        impl Write for Narrow {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.extend(bytes.first());
                Ok(bytes.len().min(1))
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let response = Response::with_body(200, "text/plain", b"hello".to_vec());
        let wanted = text(response.clone(), KEEP);
        let date = DateLine::default();
        let now = Timestamp::from_secs(784_111_777);
        let mut outgoing = Outgoing::new(response, KEEP, true, &date, now);
        let mut narrow = Narrow(Vec::new());
        while outgoing.write_some(&mut narrow).unwrap() != Written::All {}
        assert_eq!(String::from_utf8(narrow.0).unwrap(), wanted);
    }

    #[test]
    fn a_file_is_sent_in_parts_and_one_that_became_shorter_ends_the_connection() {
        let content: Vec<u8> = (0..200_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        let sent = |bytes: u64| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&content).unwrap();
            file.rewind().unwrap();
            let file = Some(FileBody { file: Arc::new(file), bytes });
            let response = Response { file, ..Response::new(200) };
            let date = DateLine::default();
            let now = Timestamp::from_secs(784_111_777);
            let mut outgoing = Outgoing::new(response, KEEP, true, &date, now);
            let mut bytes = Vec::new();
            loop {
                match outgoing.write_some(&mut bytes) {
                    Ok(Written::All) => return Ok(bytes),
                    Ok(_) => assert!(outgoing.held() < 100_000),
                    Err(error) => return Err(error.kind()),
                }
            }
        };
        let whole = sent(200_000).unwrap();
        assert!(whole.ends_with(&content) && whole.len() < content.len() + 200);
        assert!(whole.starts_with(b"HTTP/1.1 200 OK\r\ncontent-length: 200000\r\n"));
        assert_eq!(sent(200_001).unwrap_err(), io::ErrorKind::UnexpectedEof);
    }
}
