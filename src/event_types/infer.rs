//! Proposes a schema from payloads: types, members that are always there, and formats of texts.
//!
//! One payload at a time is read; each only adds to a [`Shape`], whose size has a limit.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::base::clock::Timestamp;
use crate::model::json::{Json, Members, quoted};

/// Payloads that are looked at.
pub const MAX_SAMPLES: u32 = 500;
/// Different members of an object that are described; one with more is a map.
const MAX_MEMBERS: usize = 100;
/// How deep values are described.
const MAX_DEPTH: usize = 12;
/// Bytes of a proposal, about: less than a schema may have. What does not fit is not described.
const MAX_BYTES: usize = 56 * 1024;
/// Bytes of a proposal for each value that it describes, without its name.
const BYTES_OF_ONE: usize = 100;

/// What the payloads seen so far have in common.
#[derive(Clone, Debug)]
pub struct Samples {
    /// How many payloads it was.
    pub count: usize,
    shape: Shape,
    /// Bytes that the proposal may still grow.
    room: usize,
}

/// What is known of the values at one place.
#[derive(Clone, Debug, Default)]
struct Shape {
    types: BTreeSet<&'static str>,
    items: Option<Box<Self>>,
    objects: usize,
    members: BTreeMap<String, Member>,
    is_map: bool,
    texts: usize,
    times: usize,
    uuids: usize,
}

#[derive(Clone, Debug, Default)]
struct Member {
    shape: Shape,
    /// How many objects have it.
    count: usize,
}

impl Default for Samples {
    fn default() -> Self {
        Self { count: 0, shape: Shape::default(), room: MAX_BYTES }
    }
}

impl Samples {
    /// Adds a payload. One that fits no schema, because it is not JSON or has a name twice, changes nothing.
    pub fn add(&mut self, payload: &[u8]) {
        let Some(value) = Json::read(payload).ok().filter(|value| !is_ambiguous(value)) else {
            return;
        };
        self.count = self.count.saturating_add(1);
        Look { room: &mut self.room }.add(&mut self.shape, &value, 0);
    }

    /// A schema that all of the payloads fit.
    pub fn schema(&self) -> Value {
        let mut schema = self.shape.schema();
        if let Value::Object(members) = &mut schema {
            members.insert(
                "$schema".to_owned(),
                "https://json-schema.org/draft/2020-12/schema".into(),
            );
        }
        schema
    }
}

impl Shape {
    fn schema(&self) -> Value {
        let has_numbers = self.types.contains("number");
        let is_listed = |name: &&&str| **name != "integer" || !has_numbers;
        let types: Vec<Value> =
            self.types.iter().filter(is_listed).map(|name| (*name).into()).collect();
        let mut keywords = Map::new();
        match types.as_slice() {
            [] => return Value::Object(keywords),
            [one] => keywords.insert("type".to_owned(), one.clone()),
            _ => keywords.insert("type".to_owned(), types.into()),
        };
        if let Some(items) = &self.items {
            keywords.insert("items".to_owned(), items.schema());
        }
        if !self.members.is_empty() {
            let named = self.members.iter();
            let properties: Map<String, Value> =
                named.clone().map(|(name, one)| (name.clone(), one.shape.schema())).collect();
            let required = named.filter(|(_, one)| one.count == self.objects);
            let required: Vec<Value> = required.map(|(name, _)| name.as_str().into()).collect();
            keywords.insert("properties".to_owned(), properties.into());
            keywords.insert("required".to_owned(), required.into());
        }
        let format = match self.texts {
            0 => None,
            all if all == self.times => Some("date-time"),
            all if all == self.uuids => Some("uuid"),
            _ => None,
        };
        if let Some(format) = format {
            keywords.insert("format".to_owned(), format.into());
        }
        Value::Object(keywords)
    }

    fn add_text(&mut self, text: &str) {
        let is_time = text.contains('T') && Timestamp::parse(text).is_some();
        let is_uuid = text.len() == 36 && uuid::Uuid::try_parse(text).is_ok();
        self.texts = self.texts.saturating_add(1);
        self.times = self.times.saturating_add(is_time.into());
        self.uuids = self.uuids.saturating_add(is_uuid.into());
    }

    /// The member of an object, added if there is room; `None` once the object counts as a map.
    fn member(&mut self, name: &str, room: &mut usize) -> Option<&mut Self> {
        if !self.is_map && !self.members.contains_key(name) {
            let bytes = quoted(name).len().saturating_mul(2);
            self.is_map = self.members.len() >= MAX_MEMBERS || !takes(room, bytes);
        }
        if self.is_map {
            self.members.clear();
            return None;
        }
        let member = self.members.entry(name.to_owned()).or_default();
        member.count = member.count.saturating_add(1);
        Some(&mut member.shape)
    }
}

/// Takes the room for one more value and so many bytes.
fn takes(room: &mut usize, bytes: usize) -> bool {
    let left = room.checked_sub(bytes.saturating_add(BYTES_OF_ONE));
    *room = left.unwrap_or(*room);
    left.is_some()
}

/// Adds values to the shapes of their places.
struct Look<'r> {
    room: &'r mut usize,
}

impl Look<'_> {
    fn add(&mut self, shape: &mut Shape, value: &Json, depth: usize) {
        let name = match value {
            Json::Null => "null",
            Json::Bool(_) => "boolean",
            // `1.0` is a whole number for a schema, and a sign that others are not.
            Json::Number(text) if text.contains(['.', 'e', 'E']) => "number",
            Json::Whole(_) | Json::Number(_) => "integer",
            Json::Text(text) => {
                shape.add_text(text);
                "string"
            }
            Json::List(items) => {
                self.add_items(shape, items, depth);
                "array"
            }
            Json::Object(members) => {
                self.add_members(shape, members, depth);
                "object"
            }
        };
        shape.types.insert(name);
    }

    fn add_items(&mut self, shape: &mut Shape, items: &[Json], depth: usize) {
        // An empty list says nothing of its items.
        let may = depth < MAX_DEPTH && (shape.items.is_some() || takes(self.room, 0));
        if !may || items.is_empty() {
            return;
        }
        let mut inner = shape.items.take().unwrap_or_default();
        for item in items {
            self.add(&mut inner, item, depth.saturating_add(1));
        }
        shape.items = Some(inner);
    }

    fn add_members(&mut self, shape: &mut Shape, members: &Members, depth: usize) {
        shape.objects = shape.objects.saturating_add(1);
        for (name, value) in members.iter() {
            match shape.member(name, self.room) {
                Some(inner) if depth < MAX_DEPTH => {
                    self.add(inner, value, depth.saturating_add(1));
                }
                _ => {}
            }
        }
    }
}

/// Whether an object in a value has a name twice.
fn is_ambiguous(value: &Json) -> bool {
    match value {
        Json::Object(members) => {
            members.is_ambiguous() || members.iter().any(|(_, inner)| is_ambiguous(inner))
        }
        Json::List(items) => items.iter().any(is_ambiguous),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::event_types::json_schema::Schema;

    fn proposed(payloads: &[Value]) -> Value {
        let mut samples = Samples::default();
        for payload in payloads {
            samples.add(payload.to_string().as_bytes());
        }
        samples.schema()
    }

    #[test]
    fn a_proposal_of_many_names_can_be_registered_and_fits() {
        let payloads: Vec<Value> = (0..20)
            .map(|n| {
                let inner =
                    |m: u32| (format!("\u{1}{m}"), json!({ format!("{n}-{m}"): [[n, 1.5], null] }));
                Value::Object((0..90).map(inner).collect())
            })
            .collect();
        let schema = proposed(&payloads);
        let compiled = Schema::compile(&Json::from(&schema)).unwrap();
        for payload in &payloads {
            assert_eq!(compiled.check(payload.to_string().as_bytes(), false), None);
        }
    }

    #[test]
    fn a_payload_that_fits_no_schema_changes_nothing() {
        let mut samples = Samples::default();
        for payload in [&br#"{"a":1,"a":2}"#[..], br#"{"c":[{"a":1,"a":2}]}"#, b"{}}", b"", b"\xff"]
        {
            samples.add(payload);
        }
        assert_eq!(samples.count, 0);
        samples.add(br#"{"a":18446744073709551617,"b":"\ud800"}"#);
        assert_eq!((samples.count, &samples.schema()["required"]), (1, &json!(["a", "b"])));
        assert_eq!(samples.schema()["properties"]["a"], json!({ "type": "integer" }));
    }

    #[test]
    fn an_object_of_many_names_is_a_map_and_lists_without_items_say_nothing() {
        let many: Map<String, Value> = (0..101).map(|n| (n.to_string(), n.into())).collect();
        let shown = proposed(&[json!({ "map": many, "list": [] })]);
        assert_eq!(shown["properties"]["map"], json!({ "type": "object" }));
        assert_eq!(shown["properties"]["list"], json!({ "type": "array" }));
    }
}
