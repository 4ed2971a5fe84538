//! Forms of amounts: sizes in bytes and spans of time, each with a unit.

use std::fmt::Display;
use std::time::Duration;

use serde_json::{Value, json};
use toml::de::DeValue;

use crate::config::parse::{Form, Given};

/// Units of sizes, largest first.
const UNITS: [(&str, u64); 6] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
];

/// A number of bytes as people write it.
fn size(bytes: u64) -> Value {
    let fits = UNITS.iter().find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit));
    match fits {
        Some((name, unit)) => format!("{}{name}", bytes / unit).into(),
        None => bytes.into(),
    }
}

/// A number of bytes within bounds, like `1048576` or `"1MiB"`.
pub(super) struct Size(pub(super) u64, pub(super) u64);

/// The same, for what is held in 32 bits.
pub(super) struct Bytes(pub(super) u32, pub(super) u32);

impl Size {
    fn says_of(&self, given: &dyn Display) -> String {
        format!("is {given}; it must be {}", self.says())
    }
}

impl Form for Size {
    type Held = u64;

    fn read(&self, given: Given<'_>) -> Result<u64, String> {
        let in_units = given.text().ok().and_then(|text| {
            let (unit, bytes) = UNITS.iter().find(|(unit, _)| text.ends_with(unit))?;
            let number: u64 = text.strip_suffix(unit)?.trim().parse().ok()?;
            number.checked_mul(*bytes)
        });
        let bytes = match (in_units, given) {
            (Some(bytes), _) => bytes,
            (None, Given::Toml(DeValue::String(text))) => {
                return Err(self.says_of(&format!("{text:?}")));
            }
            (None, Given::Text(text)) if text.parse::<u64>().is_err() => {
                return Err(self.says_of(&format!("{text:?}")));
            }
            (None, given) => given.number()?,
        };
        if (self.0..=self.1).contains(&bytes) {
            return Ok(bytes);
        }
        Err(self.says_of(&bytes))
    }

    fn shown(&self, held: &u64) -> Value {
        size(*held)
    }

    fn schema(&self) -> Value {
        json!({ "anyOf": [
            { "type": "integer", "minimum": self.0, "maximum": self.1 },
            { "type": "string", "pattern": "^[0-9]+ ?([KMG]iB|kB|MB|GB)$" },
        ] })
    }

    fn says(&self) -> String {
        let plain = |bytes| size(bytes).to_string().replace('"', "");
        format!("{} to {} bytes, or like 64MiB", plain(self.0), plain(self.1))
    }
}

impl Form for Bytes {
    type Held = u32;

    fn read(&self, given: Given<'_>) -> Result<u32, String> {
        let size = self.size();
        let bytes = size.read(given)?;
        u32::try_from(bytes).map_err(|_why| size.says_of(&bytes))
    }

    fn shown(&self, held: &u32) -> Value {
        size((*held).into())
    }

    fn schema(&self) -> Value {
        self.size().schema()
    }

    fn says(&self) -> String {
        self.size().says()
    }
}

impl Bytes {
    fn size(&self) -> Size {
        Size(self.0.into(), self.1.into())
    }
}

/// A span as people write it: one word.
pub(super) fn span_text(span: Duration) -> String {
    humantime::format_duration(span).to_string().replace(' ', "")
}

/// Reads a span.
pub(super) fn span(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|error| format!("{text:?} is not a span like 500ms, 5s or 30min: {error}"))
}

/// A span of time within bounds, like `"30s"`.
pub(super) struct Span(pub(super) Duration, pub(super) Duration);

impl Form for Span {
    type Held = Duration;

    fn read(&self, given: Given<'_>) -> Result<Duration, String> {
        let span = span(given.text()?)?;
        if (self.0..=self.1).contains(&span) {
            return Ok(span);
        }
        Err(format!("is {}; it must be {}", span_text(span), self.says()))
    }

    fn shown(&self, held: &Duration) -> Value {
        span_text(*held).into()
    }

    fn schema(&self) -> Value {
        json!({ "type": "string", "examples": ["500ms", "30s", "12h"] })
    }

    fn says(&self) -> String {
        format!("{} to {}", span_text(self.0), span_text(self.1))
    }
}

/// The waits of the delivery schedule.
pub(super) struct Steps;

impl Form for Steps {
    type Held = Vec<Duration>;

    fn read(&self, given: Given<'_>) -> Result<Vec<Duration>, String> {
        given.list()?.iter().map(|word| span(word)).collect()
    }

    fn shown(&self, held: &Vec<Duration>) -> Value {
        held.iter().copied().map(span_text).collect()
    }

    fn schema(&self) -> Value {
        json!({ "type": "array", "minItems": 1, "maxItems": 50, "items": { "type": "string" } })
    }

    fn says(&self) -> String {
        "a list of 1 to 50 spans of 100ms to 7days".to_owned()
    }
}
