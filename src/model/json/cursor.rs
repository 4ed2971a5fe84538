//! Reads JSON in place: a cursor finds the position of each value in a body, without building a tree in memory.
//!
//! [`Cursor::of`] validates the body with `serde_json`, so the cursor only has to find where values end. Not here: values in
//! memory ([`super::value`]), the syntax of pointers and paths ([`crate::model::pointer`], [`crate::model::json_path`]).

use std::borrow::Cow;
use std::ops::Range;

use serde::de::IgnoredAny;

use crate::base::text::without_mark;

/// How deep JSON may be nested.
pub const MAX_DEPTH: usize = 128;

/// The type of a value, as its first byte tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonKind {
    /// `{`
    Object,
    /// `[`
    Array,
    /// `"`
    Text,
    /// A number, `true`, `false` or `null`.
    Plain,
}

/// A position in a JSON body.
#[derive(Clone, Debug)]
pub struct Cursor<'t> {
    body: &'t [u8],
    at: usize,
}

impl<'t> Cursor<'t> {
    /// A cursor at the start of a body; `None` if the body is not JSON. A byte order mark before the JSON is skipped.
    pub fn of(body: &'t [u8]) -> Option<Self> {
        std::str::from_utf8(body).ok()?;
        Self::of_bytes(body)
    }

    /// Like [`Cursor::of`], but the strings in the body need not be UTF-8.
    pub(crate) fn of_bytes(body: &'t [u8]) -> Option<Self> {
        Self::checked(body).ok()
    }

    /// Like [`Cursor::of_bytes`].
    /// Fails with what is wrong with the body, and where.
    pub(super) fn checked(body: &'t [u8]) -> serde_json::Result<Self> {
        let json = without_mark(body);
        serde_json::from_slice::<IgnoredAny>(json)?;
        Ok(Self { body, at: body.len().saturating_sub(json.len()) })
    }

    /// The position, in bytes.
    pub fn at(&self) -> usize {
        self.at
    }

    /// The text of a span; empty if it is not UTF-8.
    pub fn text(&self, span: &Range<usize>) -> &'t str {
        std::str::from_utf8(self.body.get(span.clone()).unwrap_or_default()).unwrap_or_default()
    }

    /// The type of the next value.
    pub fn kind(&mut self) -> JsonKind {
        match self.peek() {
            Some(b'{') => JsonKind::Object,
            Some(b'[') => JsonKind::Array,
            Some(b'"') => JsonKind::Text,
            _ => JsonKind::Plain,
        }
    }

    /// Skips white space; returns the next byte without skipping it.
    pub fn peek(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.byte() {
            self.at += 1;
        }
        self.byte()
    }

    /// Skips white space, and the next byte if it is this one.
    pub fn eats(&mut self, wanted: u8) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.at += 1;
        }
        found
    }

    /// Skips the bracket that opens an object or an array.
    pub fn enter(&mut self) {
        self.at += 1;
    }

    /// Skips a whole value of any type; returns its span.
    pub fn value(&mut self) -> Range<usize> {
        let _first = self.peek();
        let start = self.at;
        let mut open = 0_u64;
        loop {
            match self.peek() {
                None => break,
                Some(b'{' | b'[') => {
                    open += 1;
                    self.at += 1;
                }
                Some(b'}' | b']') => {
                    open = open.saturating_sub(1);
                    self.at += 1;
                }
                Some(b',' | b':') => self.at += 1,
                Some(b'"') => self.skip_string(),
                Some(_) => self.skip_plain(),
            }
            if open == 0 {
                break;
            }
        }
        start..self.at
    }

    fn byte(&self) -> Option<u8> {
        self.body.get(self.at).copied()
    }

    fn skip_string(&mut self) {
        self.at += 1;
        while let Some(rest) = self.body.get(self.at..)
            && let Some(next) = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'))
        {
            let is_end = rest.get(next) == Some(&b'"');
            self.at += next + if is_end { 1 } else { 2 };
            if is_end {
                return;
            }
        }
        self.at = self.body.len();
    }

    fn skip_plain(&mut self) {
        while !matches!(
            self.byte(),
            None | Some(
                b',' | b':' | b'}' | b']' | b'{' | b'[' | b'"' | b' ' | b'\n' | b'\r' | b'\t'
            )
        ) {
            self.at += 1;
        }
    }
}

/// The text of a JSON string; `None` if `raw` is not a JSON string. An escape of half a character, as it remains where a
/// program cuts a text inside an emoji, reads as U+FFFD.
pub fn unescaped(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    let Some((plain, mut rest)) = inner.split_once('\\') else {
        return Some(Cow::Borrowed(inner));
    };
    let mut text = String::with_capacity(inner.len());
    text.push_str(plain);
    loop {
        let (escaped, after) = escape(rest)?;
        text.push(escaped);
        let Some((plain, next)) = after.split_once('\\') else {
            text.push_str(after);
            return Some(Cow::Owned(text));
        };
        text.push_str(plain);
        rest = next;
    }
}

/// The character of an escape without its backslash, and what follows it.
fn escape(text: &str) -> Option<(char, &str)> {
    let mut rest = text.chars();
    let plain = match rest.next()? {
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'u' => return code_unit(rest.as_str()).map(|(unit, rest)| character(unit, rest)),
        other => other,
    };
    Some((plain, rest.as_str()))
}

/// The number of four hexadecimal digits, and what follows them.
fn code_unit(text: &str) -> Option<(u32, &str)> {
    let (digits, rest) = text.split_at_checked(4)?;
    let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let unit = u32::from_str_radix(digits, 16).ok().filter(|_| is_hex)?;
    Some((unit, rest))
}

/// The character of a UTF-16 code unit, or of two that are a pair.
fn character(unit: u32, rest: &str) -> (char, &str) {
    if (0xd800..0xdc00).contains(&unit)
        && let Some((low, after)) = rest.strip_prefix("\\u").and_then(code_unit)
        && (0xdc00..0xe000).contains(&low)
    {
        let code = 0x10000 + ((unit & 0x3ff) << 10) + (low & 0x3ff);
        return (char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER), after);
    }
    (char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER), rest)
}

/// A text as a JSON string.
pub fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Whether JSON is nested no deeper than [`MAX_DEPTH`]. The result for invalid JSON is undefined.
///
/// ```
/// use oncebox::model::json::is_shallow;
/// assert!(is_shallow(br#"{"a":["[[["]}"#));
/// assert!(!is_shallow(&b"[".repeat(129)));
/// ```
pub fn is_shallow(json: &[u8]) -> bool {
    // Nothing is deeper than it has brackets, and most texts have few.
    if json.iter().filter(|byte| matches!(byte, b'{' | b'[')).count() <= MAX_DEPTH {
        return true;
    }
    let mut depth = 0_usize;
    let mut in_string = false;
    let mut escaped = false;
    for byte in json {
        match (in_string, *byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => in_string = !in_string,
            (false, b'{' | b'[') => depth = depth.saturating_add(1),
            (false, b'}' | b']') => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_skipped_to_its_end() {
        for (text, value) in [
            (r#" {"a" : [1, "]}"], "b\"" : {} } "#, r#"{"a" : [1, "]}"], "b\"" : {} }"#),
            ("-1.50e+3 ", "-1.50e+3"),
            ("\n\"x\\\\\"", "\"x\\\\\""),
            ("null", "null"),
            ("[]", "[]"),
        ] {
            let mut cursor = Cursor::of(text.as_bytes()).unwrap();
            let span = cursor.value();
            assert_eq!(cursor.text(&span), value);
            assert_eq!(cursor.peek(), None);
        }
    }

    #[test]
    fn what_is_not_json_is_not_read() {
        for body in [&b"{"[..], b"", b"a=b", b"\"\xff\"", b"{} {}", b"01"] {
            assert!(Cursor::of(body).is_none(), "{body:?}");
        }
    }

    #[test]
    fn escapes_in_a_string_are_decoded() {
        assert_eq!(unescaped(r#""a\u0040b""#).as_deref(), Some("a@b"));
        assert_eq!(unescaped(r#""a@b""#).as_deref(), Some("a@b"));
        assert_eq!(quoted("a\"b"), r#""a\"b""#);
        for (raw, text) in [
            (r#""\b\f\n\r\t\/\\\"""#, "\u{8}\u{c}\n\r\t/\\\""),
            (r#""\ud83d\ude00\u00fC""#, "\u{1f600}ü"),
            // Half a character, before and after other texts, and two first halves.
            (r#""\ud83d""#, "\u{fffd}"),
            (r#""a\ud83d b""#, "a\u{fffd} b"),
            (r#""\ude00\ud83d""#, "\u{fffd}\u{fffd}"),
            (r#""\ud83d\ud83d\ude00""#, "\u{fffd}\u{1f600}"),
            (r#""\ud83d\n""#, "\u{fffd}\n"),
        ] {
            assert!(Cursor::of(raw.as_bytes()).is_some(), "{raw}");
            assert_eq!(unescaped(raw).as_deref(), Some(text), "{raw}");
        }
        for raw in ["", "\"", "a", "\"\\u12\"", "\"\\\""] {
            assert_eq!(unescaped(raw), None, "{raw}");
        }
    }

    #[test]
    fn a_byte_order_mark_is_skipped_and_counts_as_bytes() {
        let body = "\u{feff}{\"a\":1}".as_bytes();
        let mut cursor = Cursor::of(body).unwrap();
        assert_eq!((cursor.kind(), cursor.at()), (JsonKind::Object, 3));
        let span = cursor.value();
        assert_eq!(cursor.text(&span), "{\"a\":1}");
        for body in ["\u{feff}\u{feff}1", "{\u{feff}}", "\u{feff}"] {
            assert!(Cursor::of(body.as_bytes()).is_none(), "{body:?}");
        }
    }
}
