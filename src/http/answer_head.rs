//! Reads the head of a target's answer as it came, and rewrites one that the HTTP library would refuse.
//!
//! The status line says whether the target took an event. A mistake in a field that nobody reads must not turn a success
//! into a failure that is sent again: RFC 9112, section 5.2, lets a client replace a fold by spaces, for example.

use crate::base::headers::CUSTOM_DATA;
use crate::base::words::words;

/// Fields of an answer that the library reads.
const MAX_FIELDS: usize = 128;
/// The largest head that is read.
pub(super) const MAX_HEAD_BYTES: usize = 16 * 1024 - 1;
/// The most that a rewritten head is larger than it was.
pub(super) const MAX_GROWTH: usize = 256;
/// The field of a rewritten head that names its [`Oddity`]s. One that a target sends is dropped.
pub(super) const ODDITIES: &str = "oncebox-oddities";
/// The fields that a rewritten head keeps: those that somebody reads, beside the length of the body.
const KEPT: [&str; 3] = ["content-type", "retry-after", CUSTOM_DATA];

words! {
    /// What is wrong with the head of an answer whose status counts all the same.
    pub enum Oddity {
        /// The status line has the wrong form or version, but a status.
        StatusLine = "status-line",
        /// A field goes on in the next line.
        Fold = "fold",
        /// A line that is no field.
        NoColon = "no-colon",
        /// A name that is no token, or a space before the colon.
        Name = "name",
        /// A value with a control character.
        Value = "value",
        /// More fields than are read.
        Fields = "fields",
        /// A head that is larger than is read.
        Size = "size",
        /// The length of the body is no number, or there are several.
        Length = "length",
    }
}

impl Oddity {
    /// The oddity in words for a person.
    pub const fn says(self) -> &'static str {
        match self {
            Self::StatusLine => "a malformed status line",
            Self::Fold => "a folded field",
            Self::NoColon => "a line without a colon",
            Self::Name => "a malformed field name",
            Self::Value => "a control character in a field",
            Self::Fields => "more than 128 fields",
            Self::Size => "more than 16 KiB",
            Self::Length => "a malformed Content-Length",
        }
    }
}

/// What the bytes of an answer begin with.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HeadStart {
    /// More bytes are needed.
    Incomplete,
    /// A head that the library can read.
    Readable,
    /// An interim answer (1xx) of so many bytes. The final one follows.
    Interim(usize),
    /// A head of so many bytes, and its rewritten form.
    Odd {
        /// Bytes of the head as it came.
        length: usize,
        /// The head that takes its place.
        rewritten: Vec<u8>,
    },
    /// No status can be read: it is no HTTP.
    Unreadable,
}

/// Looks at the bytes that came of an answer.
pub(super) fn look(input: &[u8]) -> HeadStart {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut head = httparse::Response::new(&mut fields);
    match head.parse(input) {
        Ok(httparse::Status::Complete(length)) => match head.code {
            Some(100 | 102..=199) => HeadStart::Interim(length),
            _ if is_readable(&head) => HeadStart::Readable,
            _ => rewrite(input),
        },
        Ok(httparse::Status::Partial) if input.len() < MAX_HEAD_BYTES => HeadStart::Incomplete,
        Ok(httparse::Status::Partial) | Err(_) => rewrite(input),
    }
}

/// Whether the library finds the end of the body, and no field of ours is the target's.
fn is_readable(head: &httparse::Response<'_, '_>) -> bool {
    let lengths = head.headers.iter().filter(|field| is(field.name, "content-length"));
    let is_ours = head.headers.iter().any(|field| is(field.name, ODDITIES));
    !is_ours && length_of(lengths.map(|field| field.value)).is_ok()
}

fn is(name: &str, other: &str) -> bool {
    name.eq_ignore_ascii_case(other)
}

/// The length of the body, if the fields name one; an error if they name something else.
fn length_of<'a, I: Iterator<Item = &'a [u8]>>(values: I) -> Result<Option<u64>, Oddity> {
    let mut length = None;
    for value in values.flat_map(|value| value.split(|byte| *byte == b',')) {
        let text = std::str::from_utf8(value.trim_ascii()).unwrap_or_default();
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let one = text.parse::<u64>().ok().filter(|_| is_number).ok_or(Oddity::Length)?;
        if length.is_some_and(|before| before != one) {
            return Err(Oddity::Length);
        }
        length = Some(one);
    }
    Ok(length)
}

/// One field of a head.
struct Field {
    name: String,
    value: Vec<u8>,
}

/// A head that is read leniently.
#[derive(Default)]
struct LenientHead {
    fields: Vec<Field>,
    oddities: Vec<Oddity>,
}

impl LenientHead {
    fn note(&mut self, oddity: Oddity) {
        if !self.oddities.contains(&oddity) {
            self.oddities.push(oddity);
        }
    }

    fn line(&mut self, line: &[u8]) {
        if line.first().is_some_and(|byte| b" \t".contains(byte)) {
            self.note(Oddity::Fold);
            if let Some(last) = self.fields.last_mut() {
                last.value.push(b' ');
                last.value.extend(line.trim_ascii());
            }
            return;
        }
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            return self.note(Oddity::NoColon);
        };
        let (name, value) = line.split_at_checked(colon).unwrap_or_default();
        let value = value.get(1..).unwrap_or_default().trim_ascii();
        let bare = name.trim_ascii_end();
        if bare.len() < name.len() {
            self.note(Oddity::Name);
        }
        match std::str::from_utf8(bare) {
            Ok(name) if !name.is_empty() && name.bytes().all(is_token) => {
                self.fields.push(Field { name: name.to_ascii_lowercase(), value: value.to_vec() });
            }
            Ok(_) | Err(_) => self.note(Oddity::Name),
        }
    }

    fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        let named = self.fields.iter().filter(move |field| field.name == name);
        named.map(|field| field.value.as_slice())
    }

    fn has(&self, name: &str, word: &[u8]) -> bool {
        let words = self.values(name).flat_map(|value| value.split(|byte| *byte == b','));
        words.map(<[u8]>::trim_ascii).any(|found| found.eq_ignore_ascii_case(word))
    }
}

/// A character of a field name. Source: RFC 9110, section 5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// A byte that may stand in the value of a field.
fn is_value(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

fn rewrite(input: &[u8]) -> HeadStart {
    let mut head = LenientHead::default();
    let mut lines = input.split_inclusive(|byte| *byte == b'\n');
    let mut length: usize = 0;
    let mut first = None;
    let mut is_complete = false;
    for line in lines.by_ref() {
        if line.last() != Some(&b'\n') {
            break;
        }
        length = length.saturating_add(line.len());
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        match first {
            None if text.is_empty() => {}
            None => first = Some(text),
            Some(_) if text.is_empty() => {
                is_complete = true;
                break;
            }
            Some(_) => head.line(text),
        }
    }
    if !is_complete && input.len() < MAX_HEAD_BYTES {
        let is_http = first.is_none_or(|line| StatusLine::read(line).is_some());
        return if is_http { HeadStart::Incomplete } else { HeadStart::Unreadable };
    }
    let Some(status) = first.and_then(StatusLine::read) else { return HeadStart::Unreadable };
    if is_complete && matches!(status.code, 100 | 102..=199) {
        return HeadStart::Interim(length);
    }
    if status.is_odd {
        head.note(Oddity::StatusLine);
    }
    if !is_complete {
        head.note(Oddity::Size);
        length = input.len();
    }
    if head.fields.len() > MAX_FIELDS {
        head.note(Oddity::Fields);
    }
    HeadStart::Odd { length, rewritten: written(&status, head, is_complete) }
}

/// The head with the fields that somebody reads. Where the end of the body is not known, the connection ends with it;
/// of a head that is too large, no body is read.
fn written(status: &StatusLine, mut head: LenientHead, is_complete: bool) -> Vec<u8> {
    let is_valid = |field: &Field| field.value.iter().all(|byte| is_value(*byte));
    if !head.fields.iter().all(is_valid) {
        head.note(Oddity::Value);
    }
    let length = length_of(head.values("content-length"));
    let is_chunked = head.has("transfer-encoding", b"chunked");
    let mut is_last = status.is_odd || !is_complete || head.has("connection", b"close");
    if length.is_err() && !is_chunked {
        head.note(Oddity::Length);
        is_last = true;
    }
    let version = if status.is_old { "1.0" } else { "1.1" };
    let mut text = format!("HTTP/{version} {} \r\n", status.code).into_bytes();
    let mut put = |name: &str, value: &[u8]| {
        text.extend(name.as_bytes());
        text.extend(b": ");
        text.extend(value);
        text.extend(b"\r\n");
    };
    match length {
        _ if !is_complete => put("content-length", b"0"),
        _ if is_chunked => put("transfer-encoding", b"chunked"),
        Ok(Some(length)) => put("content-length", length.to_string().as_bytes()),
        Ok(None) | Err(_) => {}
    }
    if is_last {
        put("connection", b"close");
    }
    for field in head.fields.iter().filter(|field| KEPT.contains(&field.name.as_str())) {
        let value: Vec<u8> = field.value.iter().copied().filter(|byte| is_value(*byte)).collect();
        put(&field.name, &value);
    }
    let oddities: Vec<&str> = head.oddities.iter().map(|oddity| oddity.as_str()).collect();
    if !oddities.is_empty() {
        put(ODDITIES, oddities.join(",").as_bytes());
    }
    text.extend(b"\r\n");
    text
}

/// The first line of an answer, read leniently.
struct StatusLine {
    code: u16,
    is_old: bool,
    is_odd: bool,
}

impl StatusLine {
    fn read(line: &[u8]) -> Option<Self> {
        let rest = line.strip_prefix(b"HTTP/")?;
        let space = rest.iter().position(|byte| *byte == b' ')?;
        let (version, rest) = rest.split_at_checked(space)?;
        if !version.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.') {
            return None;
        }
        let after = rest.trim_ascii_start();
        let (digits, reason) = after.split_at_checked(3)?;
        let code = std::str::from_utf8(digits).ok()?.parse().ok()?;
        if !(100..=999).contains(&code) || reason.first().is_some_and(u8::is_ascii_digit) {
            return None;
        }
        let is_plain = rest.len() == after.len().saturating_add(1)
            && reason.first().is_none_or(|byte| *byte == b' ')
            && reason.iter().all(|byte| is_value(*byte));
        let is_known = [&b"1.0"[..], b"1.1"].contains(&version);
        Some(Self { code, is_old: version == b"1.0", is_odd: !(is_plain && is_known) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn odd(input: &[u8], wanted: &str) {
        let HeadStart::Odd { length, rewritten } = look(input) else {
            panic!("{:?} is {:?}", String::from_utf8_lossy(input), look(input));
        };
        assert_eq!(String::from_utf8_lossy(&rewritten), wanted);
        assert!(rewritten.len() <= length + MAX_GROWTH);
        assert!(rewritten.ends_with(b"\r\n\r\n"));
    }

    #[test]
    fn a_correct_head_stays_as_it_came() {
        for head in [
            &b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"[..],
            b"HTTP/1.0 204\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: 2, 2\r\n\r\nok",
            b"HTTP/1.1 500 F\xfcnf\nx: y\n\n",
        ] {
            assert_eq!(look(head), HeadStart::Readable, "{:?}", String::from_utf8_lossy(head));
        }
        for part in [&b""[..], b"HTTP/1.1 200 OK\r\nx: y\r\n", b"HTTP/1.1 200 OK\r\nx: a\r\n b\r\n"]
        {
            assert_eq!(look(part), HeadStart::Incomplete, "{:?}", String::from_utf8_lossy(part));
        }
    }

    #[test]
    fn an_odd_field_is_dropped_or_joined_and_named() {
        odd(
            b"HTTP/1.1 200 OK\r\nX-Policy: a\r\n  b\r\nContent-Length: 5\r\n\r\nhello",
            "HTTP/1.1 200 \r\ncontent-length: 5\r\noncebox-oddities: fold\r\n\r\n",
        );
        odd(
            b"HTTP/1.1 429 X\r\nno field at all\r\nRetry-After:\r\n 60\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 429 \r\ncontent-length: 0\r\nretry-after:  60\r\noncebox-oddities: no-colon,fold\r\n\r\n",
        );
        odd(
            b"HTTP/1.1 200 OK\r\nContent-Length : 0\r\nB\xe4d: 1\r\nX: a\x01b\r\n\r\n",
            "HTTP/1.1 200 \r\ncontent-length: 0\r\noncebox-oddities: name,value\r\n\r\n",
        );
        odd(
            b"HTTP/1.1 200 OK\r\nOncebox-Oddities: fold\r\ntransfer-encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 \r\ntransfer-encoding: chunked\r\n\r\n",
        );
    }

    #[test]
    fn a_body_whose_length_is_not_known_ends_with_the_connection() {
        for length in ["x", "1\r\ncontent-length: 2", "", "99999999999999999999"] {
            odd(
                format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n").as_bytes(),
                "HTTP/1.1 200 \r\nconnection: close\r\noncebox-oddities: length\r\n\r\n",
            );
        }
    }

    #[test]
    fn the_status_counts_however_its_line_is_written() {
        for line in ["HTTP/1.1  202 OK", "HTTP/2 202", "HTTP/1.1 202\tOK", "HTTP/1.1 202 O\x01K"] {
            odd(
                format!("{line}\r\ncontent-length: 0\r\n\r\n").as_bytes(),
                "HTTP/1.1 202 \r\ncontent-length: 0\r\nconnection: close\r\noncebox-oddities: status-line\r\n\r\n",
            );
        }
        for line in ["HTTP/1.1 OK", "SSH-2.0-x", "HTTP/1.1 2020 OK", "HTTP/1.1 20", "<html>"] {
            let head = format!("{line}\r\n\r\n");
            assert_eq!(look(head.as_bytes()), HeadStart::Unreadable, "{line}");
        }
    }

    #[test]
    fn of_a_head_with_too_much_in_it_the_status_and_the_first_fields_count() {
        let fields = "x-y: z\r\n".repeat(MAX_FIELDS + 1);
        odd(
            format!("HTTP/1.1 200 OK\r\n{fields}content-length: 0\r\n\r\n").as_bytes(),
            "HTTP/1.1 200 \r\ncontent-length: 0\r\noncebox-oddities: fields\r\n\r\n",
        );
        let large =
            format!("HTTP/1.1 503 X\r\nretry-after: 9\r\nx: {}", "y".repeat(MAX_HEAD_BYTES));
        odd(
            large.as_bytes(),
            "HTTP/1.1 503 \r\ncontent-length: 0\r\nconnection: close\r\nretry-after: 9\r\n\
             oncebox-oddities: size\r\n\r\n",
        );
    }

    #[test]
    fn an_interim_answer_is_skipped_with_its_fields() {
        let interim = b"HTTP/1.1 100 Continue\r\ndate: x\r\n\r\n";
        assert_eq!(look(interim), HeadStart::Interim(interim.len()));
        let folded = b"HTTP/1.1 103 Early Hints\r\nlink: a\r\n b\r\n\r\n";
        assert_eq!(look(folded), HeadStart::Interim(folded.len()));
    }
}
