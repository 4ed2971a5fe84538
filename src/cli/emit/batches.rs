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

/// One line of the input with an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InputLine {
    /// Its number, from 1.
    pub(super) number: u64,
    /// Its text without spaces around it.
    pub(super) text: String,
}

/// A line that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BadLine {
    /// Its number, from 1.
    pub(super) number: u64,
    /// Its bytes without the line end; of a line that is too long, its beginning.
    pub(super) bytes: Vec<u8>,
    /// Why it cannot be used.
    pub(super) why: String,
}

/// The next part of an input.
#[derive(Debug)]
pub(super) enum Part {
    /// Events to send together.
    Batch(Batch),
    /// A line that cannot be sent.
    Bad(BadLine),
}

/// Events of one request: the service stores all of them or none.
#[derive(Debug)]
pub(super) struct Batch {
    /// The request body. An array has each event on its own line, so that line numbers in the service's errors lead to
    /// the event.
    pub(super) body: String,
    /// The idempotency key: if the service knows it, it repeats its answer and stores nothing.
    pub(super) key: String,
    /// The lines of the input; empty for an event from flags.
    pub(super) lines: Vec<InputLine>,
}

/// The input could not be read.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {source}")]
pub(super) struct Unreadable {
    /// The line that could not be read.
    line: u64,
    /// The cause.
    source: std::io::Error,
}

impl Batch {
    /// A batch of one event that is no line of the input.
    pub(super) fn single(event: String, key: String) -> Self {
        Self { body: event, key, lines: Vec::new() }
    }

    /// A batch of lines; `None` without any.
    pub(super) fn of(lines: Vec<InputLine>) -> Option<Self> {
        let first = lines.first()?.number;
        let texts: Vec<&str> = lines.iter().map(|line| line.text.as_str()).collect();
        let body = format!("[{}]", texts.join(",\n"));
        // The line number is part of the key, so that equal lines further down are separate events.
        let key = id::sha256_hex(format!("{KEY_LABEL}\n{first}\n{body}").as_bytes());
        Some(Self { body, key, lines })
    }

    /// Its lines as text, such as "lines 3 to 7".
    pub(super) fn line_range(&self) -> String {
        match (self.lines.first(), self.lines.last()) {
            (Some(first), Some(last)) if first == last => format!("line {}", first.number),
            (Some(first), Some(last)) => format!("lines {} to {}", first.number, last.number),
            _ => "the event".to_owned(),
        }
    }

    /// Takes a line out: the line, and the batch of all others.
    pub(super) fn without(mut self, index: usize) -> (Option<InputLine>, Option<Self>) {
        let taken = (index < self.lines.len()).then(|| self.lines.remove(index));
        (taken, Self::of(self.lines))
    }

    /// The batches of its first and its second half.
    pub(super) fn halves(mut self) -> (Option<Self>, Option<Self>) {
        let second = self.lines.split_off(self.lines.len() / 2);
        (Self::of(self.lines), Self::of(second))
    }
}

/// The parts of an input.
#[derive(Debug)]
pub(super) struct Batches<R> {
    input: R,
    /// Lines read so far.
    line: u64,
    max_events: usize,
    /// A line that was read but did not fit: it begins the next part.
    pushed_back: Option<Result<InputLine, BadLine>>,
}

/// The check that a line is an event, made here so that most bad lines are found before their batch is sent.
#[derive(Deserialize)]
struct Event {
    #[expect(dead_code, reason = "only its presence is looked at")]
    event_type: IgnoredAny,
}

impl<R: BufRead> Batches<R> {
    pub(super) fn new(input: R, max_events: usize) -> Self {
        Self { input, line: 0, max_events, pushed_back: None }
    }

    /// The next part; `None` at the end of the input. A bad line ends the batch before it.
    pub(super) fn next(&mut self) -> Result<Option<Part>, Unreadable> {
        let mut lines: Vec<InputLine> = Vec::new();
        let mut bytes: usize = 0;
        while lines.len() < self.max_events {
            let line = match self.line()? {
                None => break,
                Some(Err(bad)) if lines.is_empty() => return Ok(Some(Part::Bad(bad))),
                Some(Err(bad)) => {
                    self.pushed_back = Some(Err(bad));
                    break;
                }
                Some(Ok(line)) => line,
            };
            bytes += line.text.len() + 2;
            if !lines.is_empty() && bytes > MAX_BATCH_BYTES {
                self.pushed_back = Some(Ok(line));
                break;
            }
            lines.push(line);
        }
        Ok(Batch::of(lines).map(Part::Batch))
    }

    /// The next line that is not empty, checked.
    fn line(&mut self) -> Result<Option<Result<InputLine, BadLine>>, Unreadable> {
        if let Some(line) = self.pushed_back.take() {
            return Ok(Some(line));
        }
        while let Some(read) = self.read()? {
            match read {
                Ok(line) if line.text.is_empty() => {}
                Ok(line) => return Ok(Some(checked(line))),
                Err(bad) => return Ok(Some(Err(bad))),
            }
        }
        Ok(None)
    }

    /// The next line without spaces around it; `None` at the end of the input.
    fn read(&mut self) -> Result<Option<Result<InputLine, BadLine>>, Unreadable> {
        let mut bytes = Vec::new();
        self.line += 1;
        let number = self.line;
        let unreadable = |source| Unreadable { line: number, source };
        let mut limited = (&mut self.input).take(MAX_LINE_BYTES + 1);
        let read = limited.read_until(b'\n', &mut bytes).map_err(unreadable)?;
        if read == 0 {
            return Ok(None);
        }
        if u64::try_from(read).unwrap_or(u64::MAX) > MAX_LINE_BYTES {
            if bytes.last() != Some(&b'\n') {
                self.input.skip_until(b'\n').map_err(unreadable)?;
            }
            bytes.truncate(4096);
            let why = "it is longer than any event may be".to_owned();
            return Ok(Some(Err(BadLine { number, bytes, why })));
        }
        Ok(Some(match String::from_utf8(bytes) {
            // Some editors write a byte order mark at the beginning of a file.
            Ok(text) => {
                let text = text.trim_start_matches('\u{feff}').trim().to_owned();
                Ok(InputLine { number, text })
            }
            Err(error) => {
                let why = format!("it is not UTF-8: {error}");
                let mut bytes = error.into_bytes();
                let end = bytes.trim_ascii_end().len();
                bytes.truncate(end);
                Err(BadLine { number, bytes, why })
            }
        }))
    }
}

fn checked(line: InputLine) -> Result<InputLine, BadLine> {
    let parsed: Result<Event, _> = serde_json::from_str(&line.text);
    let why = match parsed {
        Ok(_event) if line.text.starts_with('{') => return Ok(line),
        Ok(_) => "an event is a JSON object".to_owned(),
        // The message begins with the input's line number; the parser's "line 1" would mislead.
        Err(error) => error.to_string().replace(" at line 1 column", " at column"),
    };
    Err(BadLine { number: line.number, bytes: line.text.into_bytes(), why })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(input: &[u8], most: usize) -> Vec<Part> {
        let mut batches = Batches::new(input, most);
        std::iter::from_fn(|| batches.next().unwrap()).collect()
    }

    fn batch(part: &Part) -> &Batch {
        match part {
            Part::Batch(batch) => batch,
            Part::Bad(bad) => panic!("{bad:?}"),
        }
    }

    fn numbers(batch: &Batch) -> Vec<u64> {
        batch.lines.iter().map(|line| line.number).collect()
    }

    const EVENT: &str = r#"{"event_type":"a","payload":1}"#;

    #[test]
    fn equal_lines_further_down_have_another_key_and_a_second_run_has_the_same() {
        let input = format!("\u{feff}{EVENT}\n\n{EVENT}\r\n{EVENT}\n{EVENT}");
        let found = all(input.as_bytes(), 2);
        assert_eq!(found.len(), 2);
        let first = batch(&found[0]);
        let second = batch(&found[1]);
        assert_eq!((numbers(first), numbers(second)), (vec![1, 3], vec![4, 5]));
        assert_eq!(first.body, second.body);
        assert_ne!(first.key, second.key);
        assert_eq!(first.key, batch(&all(input.as_bytes(), 2)[0]).key);
        assert_eq!(second.line_range(), "lines 4 to 5");
    }

    #[test]
    fn a_bad_line_stands_alone_with_its_reason() {
        for (line, why) in [
            (&b"{"[..], "EOF while parsing an object at column 1"),
            (b"[1]", "an event is a JSON object"),
            (b"{\"payload\":1}", "missing field `event_type`"),
            (b"{\"event_type\":\"Gr\xf6\"}", "it is not UTF-8"),
        ] {
            let input = [EVENT.as_bytes(), line, EVENT.as_bytes()].join(&b'\n');
            let found = all(&input, 5);
            assert_eq!(numbers(batch(&found[0])), [1]);
            assert_eq!(numbers(batch(&found[2])), [3]);
            let Part::Bad(bad) = &found[1] else { panic!("{found:?}") };
            assert_eq!((bad.number, &*bad.bytes), (2, line));
            assert!(bad.why.starts_with(why), "{}", bad.why);
        }
    }

    #[test]
    fn after_a_line_that_is_too_long_the_next_one_is_read() {
        let long = usize::try_from(MAX_LINE_BYTES).unwrap();
        for more in [0, 1, 2, 9] {
            let input = format!("{}\n{EVENT}\n", "x".repeat(long + more));
            let found = all(input.as_bytes(), 5);
            assert!(matches!(&found[0], Part::Bad(bad) if bad.bytes.len() == 4096), "{more}");
            assert_eq!(numbers(batch(&found[1])), [2], "{more}");
        }
    }

    #[test]
    fn a_batch_ends_before_it_is_too_large() {
        let event = format!(r#"{{"event_type":"a","payload":"{}"}}"#, "x".repeat(3 << 20));
        let found = all(format!("{event}\n{event}\n{event}\n").as_bytes(), 100);
        assert_eq!(found.iter().map(|part| batch(part).lines.len()).collect::<Vec<_>>(), [2, 1]);
    }

    #[test]
    fn a_batch_comes_apart_into_batches_that_a_second_run_makes_again() {
        let lines = |numbers: &[u64]| -> Vec<InputLine> {
            numbers
                .iter()
                .map(|number| InputLine { number: *number, text: EVENT.to_owned() })
                .collect()
        };
        let whole = || Batch::of(lines(&[1, 2, 3])).unwrap();
        let (taken, rest) = whole().without(1);
        assert_eq!(taken.unwrap().number, 2);
        assert_eq!(rest.unwrap().key, Batch::of(lines(&[1, 3])).unwrap().key);
        let (first, second) = whole().halves();
        assert_eq!((numbers(&first.unwrap()), numbers(&second.unwrap())), (vec![1], vec![2, 3]));
        let (taken, rest) = Batch::of(lines(&[7])).unwrap().without(0);
        assert_eq!((taken.unwrap().number, rest.is_none()), (7, true));
    }
}
