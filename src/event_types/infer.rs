//! Proposes a schema from payloads: types, members that are always there, and formats of texts.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::base::clock::Timestamp;
use crate::event_types::json_schema::type_of;

/// Payloads that are looked at.
pub const MAX_SAMPLES: u32 = 500;
/// Different members of an object that are described; one with more is a map.
const MAX_MEMBERS: usize = 100;
/// How deep values are described.
const MAX_DEPTH: usize = 12;

/// A schema that all of these values fit.
pub fn propose(values: &[Value]) -> Value {
    let all: Vec<&Value> = values.iter().collect();
    let mut schema = of(&all, 0);
    if let Value::Object(members) = &mut schema {
        members.insert("$schema".to_owned(), "https://json-schema.org/draft/2020-12/schema".into());
    }
    schema
}

fn of(values: &[&Value], depth: usize) -> Value {
    let mut types: Vec<&str> = values.iter().map(|value| precise(value)).collect();
    types.sort_unstable();
    types.dedup();
    if types.contains(&"number") {
        types.retain(|name| *name != "integer");
    }
    let mut schema = match types.as_slice() {
        [] => return json!({}),
        [one] => json!({ "type": one }),
        several => json!({ "type": several }),
    };
    let Value::Object(keywords) = &mut schema else { return schema };
    if depth < MAX_DEPTH {
        let items: Vec<&Value> =
            values.iter().filter_map(|value| value.as_array()).flatten().collect();
        if !items.is_empty() {
            keywords.insert("items".to_owned(), of(&items, depth.saturating_add(1)));
        }
        if let Some((properties, required)) = members(values, depth) {
            keywords.insert("properties".to_owned(), properties);
            keywords.insert("required".to_owned(), required);
        }
    }
    let texts: Vec<&str> = values.iter().filter_map(|value| value.as_str()).collect();
    if let Some(format) = format_of(&texts) {
        keywords.insert("format".to_owned(), format.into());
    }
    schema
}

fn precise(value: &Value) -> &'static str {
    if value.is_i64() || value.is_u64() { "integer" } else { type_of(value) }
}

fn members(values: &[&Value], depth: usize) -> Option<(Value, Value)> {
    let objects: Vec<_> = values.iter().filter_map(|value| value.as_object()).collect();
    let mut by_name: BTreeMap<&String, Vec<&Value>> = BTreeMap::new();
    for (name, value) in objects.iter().copied().flatten() {
        by_name.entry(name).or_default().push(value);
    }
    if by_name.is_empty() || by_name.len() > MAX_MEMBERS {
        return None;
    }
    let required: Vec<&&String> = by_name
        .iter()
        .filter(|(_, values)| values.len() == objects.len())
        .map(|(name, _)| name)
        .collect();
    let properties: BTreeMap<&&String, Value> =
        by_name.iter().map(|(name, values)| (name, of(values, depth.saturating_add(1)))).collect();
    Some((json!(properties), json!(required)))
}

fn format_of(texts: &[&str]) -> Option<&'static str> {
    let are = |fits: fn(&str) -> bool| !texts.is_empty() && texts.iter().all(|text| fits(text));
    if are(|text| text.contains('T') && Timestamp::parse(text).is_some()) {
        Some("date-time")
    } else if are(|text| text.len() == 36 && uuid::Uuid::try_parse(text).is_ok()) {
        Some("uuid")
    } else {
        None
    }
}
