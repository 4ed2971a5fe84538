//! JSON and lines of JSON. Payloads are stored byte for byte.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::model::event_field::EventField;
use crate::model::json;
use crate::model::json_fields::Few;
use crate::sources::cell::Cell;
use crate::sources::draft::Draft;
use crate::sources::folder_settings::{FolderSettings, MAX_FILE_ROWS, MAX_NAME_CHARS, MAX_NODES};
use crate::sources::reading::{FileRow, Position, Rows};

/// The longest object of header fields.
const MAX_HEADERS_BYTES: usize = 16_384;

/// Rows that are kept of an array: one above the limit, to show that there are too many.
const ROWS_KEPT: usize = MAX_FILE_ROWS + 1;

/// One object, or an array of them.
pub(super) fn rows(settings: &FolderSettings, text: &str) -> Result<Vec<FileRow>, String> {
    let wrong = |error: serde_json::Error| format!("it is not JSON: {error}");
    let objects: Few<&RawValue, ROWS_KEPT> = if text.trim_start().starts_with('[') {
        serde_json::from_str(text).map_err(wrong)?
    } else {
        Few { kept: vec![serde_json::from_str(text).map_err(wrong)?], count: 1 }
    };
    let mut rows = Rows::default();
    for (object, n) in objects.kept.iter().zip(1..) {
        rows.push(row(settings, object.get(), Position::Row(n))?)?;
    }
    Ok(rows.rows)
}

/// One object per line; empty lines are skipped.
pub(super) fn line_rows(settings: &FolderSettings, text: &str) -> Result<Vec<FileRow>, String> {
    let lines = text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty());
    let mut rows = Rows::default();
    for (line, n) in lines {
        rows.push(row(settings, line.trim(), Position::Line(n))?)?;
    }
    Ok(rows.rows)
}

/// Reads an event in the form of the API. An object without a payload is the payload itself; its other fields are
/// then found by the settings' names.
fn row(settings: &FolderSettings, text: &str, position: Position) -> Result<FileRow, String> {
    let wrong = |why: String| format!("{position}: {why}");
    if !text.starts_with('{') {
        return Err(wrong("it is not an object".to_owned()));
    }
    if !json::is_shallow(text.as_bytes()) {
        return Err(wrong(format!("it is nested deeper than {}", json::MAX_DEPTH)));
    }
    let object: RawObject<'_> =
        serde_json::from_str(text).map_err(|error| wrong(format!("it is not JSON: {error}")))?;
    if let Some(name) = object.repeated_names().find(|name| fills_a_field(settings, name)) {
        return Err(wrong(format!("the name {name:?} occurs twice: remove one of them")));
    }
    let payload = object.get(settings.name(EventField::Payload));
    if payload.is_some()
        && let Some(odd) = object.names().find(|name| !fills_a_field(settings, name))
    {
        let odd: String = odd.chars().take(MAX_NAME_CHARS).collect();
        let why = format!("there is no field {odd:?}; there are event_type, payload, and more");
        return Err(wrong(why));
    }
    let mut draft = Draft::default();
    for field in EventField::ALL.into_iter().filter(|field| *field != EventField::Payload) {
        let name = settings.name(field);
        if let Some(raw) = object.get(name) {
            match cell(field, raw.get()) {
                Ok(Some(cell)) => draft.put(field, cell),
                Ok(None) => {}
                Err(why) => return Err(wrong(format!("{name} {why}"))),
            }
        }
    }
    let own = payload.map_or(text, |raw| raw.get());
    draft.put(EventField::Payload, Cell::Text(own.to_owned()));
    Ok(FileRow { draft, position })
}

/// Whether a member fills a field. With a payload every member must, so that no misspelt field is ignored.
fn fills_a_field(settings: &FolderSettings, name: &str) -> bool {
    EventField::ALL.into_iter().any(|field| settings.name(field) == name)
}

/// The members of an object in order, with their values as text.
struct RawObject<'t>(Vec<(String, &'t RawValue)>);

impl<'t> RawObject<'t> {
    fn get(&self, name: &str) -> Option<&'t RawValue> {
        self.0.iter().find(|(own, _)| own == name).map(|(_, value)| *value)
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    fn repeated_names(&self) -> impl Iterator<Item = &str> {
        let mut seen = BTreeSet::new();
        self.names().filter(move |name| !seen.insert(*name))
    }
}

impl<'de: 't, 't> Deserialize<'de> for RawObject<'t> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Members)
    }
}

struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = RawObject<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            if members.len() >= MAX_NODES {
                let why = format!("an object has more than {MAX_NODES} members");
                return Err(A::Error::custom(why));
            }
            members.push(member);
        }
        Ok(RawObject(members))
    }
}

/// The value of a field. A number keeps its text, because as a float two long numbers may be equal.
fn cell(field: EventField, raw: &str) -> Result<Option<Cell>, String> {
    let text = match raw.as_bytes().first() {
        Some(b'n') => return Ok(None),
        Some(b'"') => json::unescaped(raw).ok_or("is not a text")?.into_owned(),
        Some(b'{') if field == EventField::Headers && raw.len() > MAX_HEADERS_BYTES => {
            return Err(format!("has more than {MAX_HEADERS_BYTES} bytes"));
        }
        Some(b'[') => return Err("is neither a text nor a number".to_owned()),
        Some(b'{') if field != EventField::Headers => {
            return Err("is neither a text nor a number".to_owned());
        }
        _ => raw.to_owned(),
    };
    Ok(Some(Cell::Text(text)))
}
