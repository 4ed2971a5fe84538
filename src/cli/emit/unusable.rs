//! Lines that are no usable events: stored quarantined, or appended to a file.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use data_encoding::BASE64;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::base::id;
use crate::cli::emit::batches::{BadLine, Batch};
use crate::cli::prelude::*;

/// Part of the key of a quarantined line. To be changed when its form changes.
const KEY_LABEL: &str = "oncebox emit quarantine 1";
/// The type of an event without a usable one.
const TYPE_UNUSABLE: &str = "unusable";
/// How much of a line is stored if the whole line is refused.
const EXCERPT_BYTES: usize = 4096;
/// The longest reason that the service takes.
const MAX_REASON_CHARS: usize = 1000;
/// The fields of a line that help a person to find and to repair its event.
const KEPT_FIELDS: [&str; 5] =
    ["event_type", "idempotency_key", "source_system", "aggregate_type", "aggregate_id"];

/// The requests by which a line can be stored quarantined, the most telling one first: with its own type, key and
/// payload; with the whole line as the payload; with the beginning of the line. A second run makes the same requests.
pub(super) fn forms(bad: &BadLine) -> Vec<Batch> {
    let excerpt = bad.bytes.get(..EXCERPT_BYTES).unwrap_or(&bad.bytes);
    let reason = format!("line {} of oncebox emit: {}", bad.number, bad.why);
    let reason: String = reason.chars().take(MAX_REASON_CHARS).collect();
    let request = |mut event: Map<String, Value>, payload: &str| {
        event.insert("quarantine".to_owned(), reason.clone().into());
        let head = Value::Object(event).to_string();
        let head = head.strip_suffix('}').unwrap_or(&head);
        let body = format!("{head},{payload}}}");
        let number = bad.number;
        let key = id::sha256_hex(format!("{KEY_LABEL}\n{number}\n{body}").as_bytes());
        Batch::single(body, key)
    };
    let bare = || Map::from_iter([("event_type".to_owned(), TYPE_UNUSABLE.into())]);
    let encoded = |bytes: &[u8]| format!("\"payload_base64\":\"{}\"", BASE64.encode(bytes));
    let mut forms = Vec::new();
    if let Ok(own) = serde_json::from_slice::<Map<String, Value>>(&bad.bytes) {
        let mut event = bare();
        for name in KEPT_FIELDS {
            if let Some(value) = own.get(name) {
                event.insert(name.to_owned(), value.clone());
            }
        }
        let payload = payload_as_written(&bad.bytes).unwrap_or_else(|| encoded(&bad.bytes));
        forms.push(request(event, &payload));
    }
    forms.push(request(bare(), &encoded(&bad.bytes)));
    forms.push(request(bare(), &encoded(excerpt)));
    forms
}

/// The member `payload` of a line, byte for byte.
fn payload_as_written(line: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct WithPayload<'a> {
        #[serde(borrow)]
        payload: &'a RawValue,
    }
    let found: WithPayload<'_> = serde_json::from_slice(line).ok()?;
    Some(format!("\"payload\":{}", found.payload.get()))
}

/// The file that takes rejected lines.
#[derive(Debug)]
pub(super) struct RejectedFile {
    path: PathBuf,
    file: File,
}

impl RejectedFile {
    /// Opens the file, or creates it.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let opened = OpenOptions::new().create(true).append(true).open(path);
        let file = opened.map_err(|error| unwritable(path, &error))?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Appends a line. It is on the disk afterwards, because the input may be deleted then.
    pub(super) fn append(&mut self, line: &[u8]) -> Result<(), Failure> {
        let written = self.file.write_all(&[line, b"\n"].concat());
        let written = written.and_then(|()| self.file.sync_data());
        written.map_err(|error| unwritable(&self.path, &error))
    }

    /// Its path.
    pub(super) fn shown(&self) -> impl std::fmt::Display {
        self.path.display()
    }
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(format!("{} cannot be written: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bodies(line: &[u8]) -> Vec<String> {
        let bad = BadLine { number: 7, bytes: line.to_vec(), why: "odd".to_owned() };
        forms(&bad).into_iter().map(|batch| batch.body).collect()
    }

    #[test]
    fn a_line_is_kept_with_its_own_type_and_payload_else_as_it_is() {
        let line = br#"{"event_type":"","idempotency_key":"k","payload":{ "x": 1.10 },"odd":1}"#;
        let found = bodies(line);
        assert_eq!(
            found[0],
            r#"{"event_type":"","idempotency_key":"k","quarantine":"line 7 of oncebox emit: odd","payload":{ "x": 1.10 }}"#
        );
        let encoded = format!(r#""payload_base64":"{}""#, BASE64.encode(line));
        assert!(found[1].contains("\"unusable\"") && found[1].contains(&encoded), "{}", found[1]);
        let found = bodies(b"\xff{");
        assert_eq!(found.len(), 2);
        assert!(found[0].ends_with(r#""payload_base64":"/3s="}"#), "{}", found[0]);
        let long = bodies(&b"x".repeat(10_000));
        assert!(long[0].len() > 10_000 && long[1].len() < 6_000);
    }
}
