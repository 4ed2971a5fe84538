//! Proposes a schema from payloads: types, members that are always there, and formats of texts.
//!
//! No payload becomes a tree in memory: each only adds to a [`Shape`], whose size has a limit.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::base::clock::Timestamp;
use crate::model::json::quoted;

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
    /// How many objects have it, and which was the last: a name may be repeated in one.
    count: usize,
    last: usize,
}

impl Default for Samples {
    fn default() -> Self {
        Self { count: 0, shape: Shape::default(), room: MAX_BYTES }
    }
}

impl Samples {
    /// Adds a payload. One that is not JSON changes nothing.
    pub fn add(&mut self, payload: &[u8]) {
        let mut with = self.clone();
        let look = Look { shape: &mut with.shape, room: &mut with.room, depth: 0 };
        let mut json = serde_json::Deserializer::from_slice(payload);
        if look.deserialize(&mut json).and_then(|()| json.end()).is_ok() {
            with.count = with.count.saturating_add(1);
            *self = with;
        }
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

    /// The member of an object, added if there is room; `None` once the object counts as a map.
    fn member(&mut self, name: String, room: &mut usize) -> Option<&mut Self> {
        if !self.is_map && !self.members.contains_key(&name) {
            let bytes = quoted(&name).len().saturating_mul(2);
            self.is_map = self.members.len() >= MAX_MEMBERS || !takes(room, bytes);
        }
        if self.is_map {
            self.members.clear();
            return None;
        }
        let member = self.members.entry(name).or_default();
        if member.last != self.objects {
            (member.last, member.count) = (self.objects, member.count.saturating_add(1));
        }
        Some(&mut member.shape)
    }
}

/// Takes the room for one more value and so many bytes.
fn takes(room: &mut usize, bytes: usize) -> bool {
    let left = room.checked_sub(bytes.saturating_add(BYTES_OF_ONE));
    *room = left.unwrap_or(*room);
    left.is_some()
}

/// Reads one value into the shape of its place.
struct Look<'s> {
    shape: &'s mut Shape,
    room: &'s mut usize,
    depth: usize,
}

impl Look<'_> {
    fn is(self, name: &'static str) {
        self.shape.types.insert(name);
    }
}

impl<'de> DeserializeSeed<'de> for Look<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<(), D::Error> {
        value.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Look<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.is("null");
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        self.is("boolean");
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        self.is("integer");
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        self.is("integer");
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        self.is("number");
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        let is_time = text.contains('T') && Timestamp::parse(text).is_some();
        let is_uuid = text.len() == 36 && uuid::Uuid::try_parse(text).is_ok();
        let Shape { texts, times, uuids, .. } = &mut *self.shape;
        *texts = texts.saturating_add(1);
        *times = times.saturating_add(is_time.into());
        *uuids = uuids.saturating_add(is_uuid.into());
        self.is("string");
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Self { shape, room, depth } = self;
        shape.types.insert("array");
        loop {
            let may = depth < MAX_DEPTH && (shape.items.is_some() || takes(room, 0));
            if !may {
                while items.next_element::<IgnoredAny>()?.is_some() {}
                return Ok(());
            }
            let mut inner = shape.items.take().unwrap_or_default();
            let look = Look { shape: &mut inner, room, depth: depth.saturating_add(1) };
            let is_one = items.next_element_seed(look)?.is_some();
            // An empty list says nothing of its items.
            shape.items = (is_one || !inner.types.is_empty()).then_some(inner);
            if !is_one {
                return Ok(());
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let Self { shape, room, depth } = self;
        shape.types.insert("object");
        shape.objects = shape.objects.saturating_add(1);
        while let Some(name) = members.next_key::<String>()? {
            match shape.member(name, room) {
                Some(inner) if depth < MAX_DEPTH => {
                    let depth = depth.saturating_add(1);
                    members.next_value_seed(Look { shape: inner, room, depth })?;
                }
                _ => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
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
        let compiled = Schema::compile(&schema).unwrap();
        for payload in &payloads {
            assert_eq!(compiled.check(payload.to_string().as_bytes(), false), None);
        }
    }

    #[test]
    fn what_is_not_json_changes_nothing_and_a_repeated_name_counts_once() {
        let mut samples = Samples::default();
        for payload in [&br#"{"a":1,"a":2}"#[..], br#"{"a":1,"b":"\ud800"}"#, b"{}}", b""] {
            samples.add(payload);
        }
        assert_eq!((samples.count, &samples.schema()["required"]), (1, &json!(["a"])));
        assert_eq!(samples.schema()["properties"], json!({ "a": { "type": "integer" } }));
    }

    #[test]
    fn an_object_of_many_names_is_a_map_and_lists_without_items_say_nothing() {
        let many: Map<String, Value> = (0..101).map(|n| (n.to_string(), n.into())).collect();
        let shown = proposed(&[json!({ "map": many, "list": [] })]);
        assert_eq!(shown["properties"]["map"], json!({ "type": "object" }));
        assert_eq!(shown["properties"]["list"], json!({ "type": "array" }));
    }
}
