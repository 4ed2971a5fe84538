//! Lines of JSON, cut into batches that are the same every time the input is.
//!
//! Not here: what an event must hold beyond being an object with a type, which the service decides.

use std::io::{BufRead, Read};
use std::ops::ControlFlow;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::base::id;

/// A line beyond this is no event: above the largest payload there can be, in base64.
const MAX_LINE_BYTES: u64 = 40 << 20;
/// A batch ends before it grows beyond this: half of what the service takes unless told otherwise.
const MAX_BATCH_BYTES: usize = 8 << 20;
/// Lets another layout of batches have other keys.
const KEY_LABEL: &str = "oncebox emit 1";

/// Events that are sent in one request, stored all or none.
#[derive(Debug)]
pub(super) struct Batch {
    /// An array, each event on a line of its own, so that the service's line numbers lead to ours.
    pub(super) body: String,
    /// Known to the service, it is answered and not stored again.
    pub(super) key: String,
    /// The input's line of each event; empty for an event from flags.
    pub(super) lines: Vec<u64>,
}

/// A line that is no event.
#[derive(Debug, thiserror::Error)]
pub(super) enum BadLine {
    /// It is no JSON object with a type.
    #[error("line {line}: {why}. Nothing of its batch was stored ({batch}).")]
    NoEvent {
        /// Which, from 1.
        line: u64,
        /// What is wrong with it.
        why: String,
        /// The lines that would have been sent together.
        batch: String,
    },
    /// The input broke off.
    #[error("line {line}: {source}")]
    Unreadable {
        /// The line that could not be read.
        line: u64,
        /// What the system said.
        source: std::io::Error,
    },
}

impl Batch {
    /// One event that is no line of an input.
    pub(super) fn single(event: String, key: String) -> Self {
        Self { body: event, key, lines: Vec::new() }
    }

    /// Which lines it holds, for a person.
    pub(super) fn place(&self) -> String {
        place(self.lines.first(), self.lines.last())
    }
}

fn place(first: Option<&u64>, last: Option<&u64>) -> String {
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
    events_most: usize,
    /// A line that was read and begins the next batch.
    left: Option<(u64, String)>,
}

/// What every event has, looked at here so that a bad line is named before anything is sent.
#[derive(Deserialize)]
struct Event {
    #[expect(dead_code, reason = "only its presence is looked at")]
    event_type: IgnoredAny,
}

impl<R: BufRead> Batches<R> {
    pub(super) fn new(input: R, events_most: usize) -> Self {
        Self { input, line: 0, events_most, left: None }
    }

    /// The next batch; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Batch>, BadLine> {
        let (mut body, mut lines) = (String::from("["), Vec::new());
        while let Some((line, text)) = self.event(lines.first().copied())? {
            if !lines.is_empty() && body.len() + text.len() > MAX_BATCH_BYTES {
                self.left = Some((line, text));
                break;
            }
            if !lines.is_empty() {
                body.push_str(",\n");
            }
            body.push_str(&text);
            lines.push(line);
            if lines.len() == self.events_most {
                break;
            }
        }
        let Some(first) = lines.first() else { return Ok(None) };
        body.push(']');
        // With its place in the input, so that equal lines further down are events of their own.
        let key = id::sha256_hex(format!("{KEY_LABEL}\n{first}\n{body}").as_bytes());
        Ok(Some(Batch { body, key, lines }))
    }

    /// The next line that holds something, checked.
    fn event(&mut self, first: Option<u64>) -> Result<Option<(u64, String)>, BadLine> {
        if let Some(left) = self.left.take() {
            return Ok(Some(left));
        }
        loop {
            match self.read(first)? {
                ControlFlow::Break(()) => return Ok(None),
                ControlFlow::Continue(text) if text.is_empty() => {}
                ControlFlow::Continue(text) => {
                    let looked: Result<Event, _> = serde_json::from_str(&text);
                    return match looked {
                        Ok(_event) if text.starts_with('{') => Ok(Some((self.line, text))),
                        Ok(_) => Err(self.bad(first, "an event is a JSON object")),
                        Err(error) => Err(self.bad(first, &error.to_string())),
                    };
                }
            }
        }
    }

    fn read(&mut self, first: Option<u64>) -> Result<ControlFlow<(), String>, BadLine> {
        let mut bytes = Vec::new();
        let mut limited = (&mut self.input).take(MAX_LINE_BYTES + 1);
        self.line += 1;
        let read = limited.read_until(b'\n', &mut bytes);
        let read = read.map_err(|source| BadLine::Unreadable { line: self.line, source })?;
        if read == 0 {
            return Ok(ControlFlow::Break(()));
        }
        if u64::try_from(read).unwrap_or(u64::MAX) > MAX_LINE_BYTES {
            return Err(self.bad(first, "it is longer than any event may be"));
        }
        match String::from_utf8(bytes) {
            // A byte order mark is what some editors begin a file with.
            Ok(text) => {
                Ok(ControlFlow::Continue(text.trim_start_matches('\u{feff}').trim().to_owned()))
            }
            Err(error) => Err(self.bad(first, &format!("it is not UTF-8: {error}"))),
        }
    }

    fn bad(&self, first: Option<u64>, why: &str) -> BadLine {
        // The message begins with our line number; the parser's would mislead.
        let why = why.replace(" at line 1 column", " at column");
        let batch = place(first.as_ref().or(Some(&self.line)), Some(&self.line));
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
        assert_eq!(found[1].place(), "lines 4 to 5");
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
