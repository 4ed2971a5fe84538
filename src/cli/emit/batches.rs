//! Groups lines of JSON into batches. The same input always gives the same batches, so that it can be sent again.
//!
//! Not here: whether an event is valid. Only the service checks more than "an object with an `event_type`".

use std::io::{BufRead, Read};

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::base::id;

/// Longest line: more than the largest payload in base64.
const MAX_LINE_BYTES: u64 = 40 << 20;
/// Largest batch: half of the service's default limit for a request body.
const MAX_BATCH_BYTES: usize = 8 << 20;
/// Part of each batch's key. To be changed when the layout of batches changes.
const KEY_LABEL: &str = "oncebox emit 1";

/// Events of one request: the service stores all of them or none.
#[derive(Debug)]
pub(super) struct Batch {
    /// A JSON array with each event on its own line, so that line numbers in the service's errors lead to the event.
    pub(super) body: String,
    /// The idempotency key: if the service knows it, it repeats its answer and stores nothing.
    pub(super) key: String,
    /// Each event's line number in the input; empty for an event from flags.
    pub(super) lines: Vec<u64>,
}

/// Why a line cannot be sent.
#[derive(Debug, thiserror::Error)]
pub(super) enum BadLine {
    /// It is not a JSON object with an `event_type`.
    #[error("line {line}: {why}. Nothing of its batch was stored ({batch}).")]
    NoEvent {
        /// Its number, from 1.
        line: u64,
        /// The reason.
        why: String,
        /// The lines of its batch.
        batch: String,
    },
    /// The input could not be read.
    #[error("line {line}: {source}")]
    Unreadable {
        /// The line that could not be read.
        line: u64,
        /// The cause.
        source: std::io::Error,
    },
}

impl Batch {
    /// A batch of one event from flags.
    pub(super) fn single(event: String, key: String) -> Self {
        Self { body: event, key, lines: Vec::new() }
    }

    /// Its lines as text, such as "lines 3 to 7".
    pub(super) fn line_range(&self) -> String {
        line_range(self.lines.first(), self.lines.last())
    }
}

fn line_range(first: Option<&u64>, last: Option<&u64>) -> String {
    match (first, last) {
        (Some(first), Some(last)) if first == last => format!("line {first}"),
        (Some(first), Some(last)) => format!("lines {first} to {last}"),
        _ => "the event".to_owned(),
    }
}

/// The batches of an input.
#[derive(Debug)]
pub(super) struct Batches<R> {
    input: R,
    /// Lines read so far.
    line: u64,
    max_events: usize,
    /// A line that was read but did not fit: it begins the next batch.
    pushed_back: Option<(u64, String)>,
}

/// The check that a line is an event, made here so that a bad line is named before its batch is sent.
#[derive(Deserialize)]
struct Event {
    #[expect(dead_code, reason = "only its presence is looked at")]
    event_type: IgnoredAny,
}

impl<R: BufRead> Batches<R> {
    pub(super) fn new(input: R, max_events: usize) -> Self {
        Self { input, line: 0, max_events, pushed_back: None }
    }

    /// The next batch; `None` at the end of the input.
    pub(super) fn next(&mut self) -> Result<Option<Batch>, BadLine> {
        let (mut body, mut lines) = (String::from("["), Vec::new());
        while let Some((line, text)) = self.event(lines.first().copied())? {
            if !lines.is_empty() && body.len() + text.len() > MAX_BATCH_BYTES {
                self.pushed_back = Some((line, text));
                break;
            }
            if !lines.is_empty() {
                body.push_str(",\n");
            }
            body.push_str(&text);
            lines.push(line);
            if lines.len() == self.max_events {
                break;
            }
        }
        let Some(first) = lines.first() else { return Ok(None) };
        body.push(']');
        // The line number is part of the key, so that equal lines further down are separate events.
        let key = id::sha256_hex(format!("{KEY_LABEL}\n{first}\n{body}").as_bytes());
        Ok(Some(Batch { body, key, lines }))
    }

    /// The next line that is not empty, checked.
    fn event(&mut self, first: Option<u64>) -> Result<Option<(u64, String)>, BadLine> {
        if let Some(event) = self.pushed_back.take() {
            return Ok(Some(event));
        }
        while let Some(text) = self.read(first)? {
            if text.is_empty() {
                continue;
            }
            let parsed: Result<Event, _> = serde_json::from_str(&text);
            return match parsed {
                Ok(_event) if text.starts_with('{') => Ok(Some((self.line, text))),
                Ok(_) => Err(self.bad(first, "an event is a JSON object")),
                Err(error) => Err(self.bad(first, &error.to_string())),
            };
        }
        Ok(None)
    }

    /// The next line without spaces around it; `None` at the end of the input.
    fn read(&mut self, first: Option<u64>) -> Result<Option<String>, BadLine> {
        let mut bytes = Vec::new();
        let mut limited = (&mut self.input).take(MAX_LINE_BYTES + 1);
        self.line += 1;
        let read = limited.read_until(b'\n', &mut bytes);
        let read = read.map_err(|source| BadLine::Unreadable { line: self.line, source })?;
        if read == 0 {
            return Ok(None);
        }
        if u64::try_from(read).unwrap_or(u64::MAX) > MAX_LINE_BYTES {
            return Err(self.bad(first, "it is longer than any event may be"));
        }
        match String::from_utf8(bytes) {
            // Some editors write a byte order mark at the beginning of a file.
            Ok(text) => Ok(Some(text.trim_start_matches('\u{feff}').trim().to_owned())),
            Err(error) => Err(self.bad(first, &format!("it is not UTF-8: {error}"))),
        }
    }

    fn bad(&self, first: Option<u64>, why: &str) -> BadLine {
        // The message begins with the input's line number; the parser's "line 1" would mislead.
        let why = why.replace(" at line 1 column", " at column");
        let batch = line_range(first.as_ref().or(Some(&self.line)), Some(&self.line));
        BadLine::NoEvent { line: self.line, why, batch }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(input: &str, most: usize) -> Result<Vec<Batch>, String> {
        let mut batches = Batches::new(input.as_bytes(), most);
        let mut found = Vec::new();
        while let Some(batch) = batches.next().map_err(|bad| bad.to_string())? {
            found.push(batch);
        }
        Ok(found)
    }

    const EVENT: &str = r#"{"event_type":"a","payload":1}"#;

    #[test]
    fn equal_lines_further_down_have_another_key_and_a_second_run_has_the_same() {
        let input = format!("\u{feff}{EVENT}\n\n{EVENT}\r\n{EVENT}\n{EVENT}");
        let found = all(&input, 2).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].lines.clone(), found[1].lines.clone()), (vec![1, 3], vec![4, 5]));
        assert_eq!(found[0].body, found[1].body);
        assert_ne!(found[0].key, found[1].key);
        assert_eq!(found[0].key, all(&input, 2).unwrap()[0].key);
        assert_eq!(found[1].line_range(), "lines 4 to 5");
    }

    #[test]
    fn a_bad_line_is_named_with_its_batch() {
        for (line, why) in [
            ("{", "line 3: EOF while parsing an object at column 1. Nothing"),
            ("[1]", "line 3: an event is a JSON object"),
            ("{\"payload\":1}", "line 3: missing field `event_type`"),
        ] {
            let refusal = all(&format!("{EVENT}\n{EVENT}\n{line}\n"), 2).unwrap_err();
            assert!(refusal.starts_with(why), "{refusal}");
            assert!(refusal.ends_with("(line 3)."), "{refusal}");
        }
        assert!(all(&format!("{EVENT}\n7\n"), 5).unwrap_err().ends_with("(lines 1 to 2)."));
    }

    #[test]
    fn a_batch_ends_before_it_is_too_large() {
        let event = format!(r#"{{"event_type":"a","payload":"{}"}}"#, "x".repeat(3 << 20));
        let found = all(&format!("{event}\n{event}\n{event}\n"), 100).unwrap();
        assert_eq!(found.iter().map(|batch| batch.lines.len()).collect::<Vec<_>>(), [2, 1]);
    }
}
