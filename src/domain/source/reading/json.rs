//! JSON and lines of JSON. Payloads are kept to the byte.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::domain::source::draft::Draft;
use crate::domain::source::field::{Cell, Field};
use crate::domain::source::folder::FolderSettings;
use crate::domain::source::reading::{Fault, FileRow, Place};

/// One object, or an array of them.
pub(super) fn rows(settings: &FolderSettings, text: &str) -> Result<Vec<FileRow>, Fault> {
    let wrong = |error: serde_json::Error| Fault(format!("it is not JSON: {error}"));
    let objects: Vec<&RawValue> = if text.trim_start().starts_with('[') {
        serde_json::from_str(text).map_err(wrong)?
    } else {
        vec![serde_json::from_str(text).map_err(wrong)?]
    };
    let rows = objects.iter().enumerate();
    rows.map(|(n, object)| row(settings, object.get(), Place::Row(n.saturating_add(1)))).collect()
}

/// An object a line; empty lines count for nothing.
pub(super) fn line_rows(settings: &FolderSettings, text: &str) -> Result<Vec<FileRow>, Fault> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines.map(|(n, line)| row(settings, line.trim(), Place::Line(n.saturating_add(1)))).collect()
}

/// An event as it is published, or, where fields are mapped and it has no payload, any object: then it is
/// the payload itself.
fn row(settings: &FolderSettings, text: &str, place: Place) -> Result<FileRow, Fault> {
    let wrong = |error: serde_json::Error| Fault::at(place, format!("it is not JSON: {error}"));
    if !text.starts_with('{') {
        return Err(Fault::at(place, "it is no object"));
    }
    let members: Map<String, Value> = serde_json::from_str(text).map_err(wrong)?;
    let written: Written<'_> = serde_json::from_str(text).map_err(wrong)?;
    if let Some(name) = written.twice().find(|name| fills_a_field(settings, name)) {
        return Err(Fault::at(place, format!("{name:?} stands in it twice: which one is meant?")));
    }
    let payload = settings.name(Field::Payload);
    let is_event = members.contains_key(payload);
    let mut draft = Draft::default();
    for field in Field::ALL.into_iter().filter(|field| *field != Field::Payload) {
        let name = settings.name(field);
        if let (Some(value), Some(raw)) = (members.get(name), written.get(name)) {
            match cell(field, value, raw.get()) {
                Ok(Some(cell)) => draft.put(field, cell),
                Ok(None) => {}
                Err(why) => return Err(Fault::at(place, format!("{name} {why}"))),
            }
        }
    }
    let own = written.get(payload).map_or(text, |raw| raw.get());
    draft.put(Field::Payload, Cell::Text(own.to_owned()));
    if is_event && let Some(odd) = unknown(settings, &members) {
        let why = format!("there is no field {odd:?}; there are event_type, payload, and more");
        return Err(Fault::at(place, why));
    }
    Ok(FileRow { draft, place })
}

/// A member that fills no field: a misspelt one must not pass for none.
fn unknown<'a>(settings: &FolderSettings, members: &'a Map<String, Value>) -> Option<&'a str> {
    members.keys().map(String::as_str).find(|name| !fills_a_field(settings, name))
}

fn fills_a_field(settings: &FolderSettings, name: &str) -> bool {
    Field::ALL.iter().any(|field| settings.name(*field) == name)
}

/// The members of an object as they are written, in their order.
struct Written<'t>(Vec<(String, &'t RawValue)>);

impl<'t> Written<'t> {
    fn get(&self, name: &str) -> Option<&'t RawValue> {
        self.0.iter().find(|(written, _)| written == name).map(|(_, value)| *value)
    }

    /// Names that stand there again.
    fn twice(&self) -> impl Iterator<Item = &str> {
        let mut seen = BTreeSet::new();
        self.0.iter().map(|(name, _)| name.as_str()).filter(move |name| !seen.insert(*name))
    }
}

impl<'de: 't, 't> Deserialize<'de> for Written<'t> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Members)
    }
}

struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Written<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(Written(members))
    }
}

/// A number is taken as it is written: as floats, two long ones may be the same.
fn cell(field: Field, value: &Value, written: &str) -> Result<Option<Cell>, &'static str> {
    Ok(match value {
        Value::Null => None,
        Value::String(text) => Some(Cell::Text(text.clone())),
        Value::Number(_) => Some(Cell::Text(written.to_owned())),
        Value::Bool(yes) => Some(Cell::Text(yes.to_string())),
        Value::Object(_) if field == Field::Headers => Some(Cell::Text(value.to_string())),
        Value::Object(_) | Value::Array(_) => return Err("is neither a text nor a number"),
    })
}
