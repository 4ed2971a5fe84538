//! Limits of bodies: what the document says of lengths and numbers holds for every route, because it is checked where
//! bodies are read. Not here: limits that depend on more than the value ([`crate::api::subscription_terms`] and others).

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Map, Value};

use crate::api::description::{Body, Doc};
use crate::api::problem::Problem;
use crate::api::schema;

/// A schema, and those that it refers to by name.
type Described = (Value, Map<String, Value>);

/// The schemas of bodies that were read so far, by the name of their operation.
#[derive(Debug, Default)]
pub(super) struct Limits(Mutex<BTreeMap<&'static str, Arc<Described>>>);

/// Why a value is not what a schema describes.
enum Misfit {
    /// It has another form, of which reading the body has told.
    Form,
    /// It is out of a limit.
    Limit(String),
}

impl Limits {
    /// Fails with 422 that names the member that is out of a limit.
    pub(super) fn check(&self, doc: &Doc, body: &[u8]) -> Result<(), Problem> {
        let Some(Body::Json { describe, .. }) = doc.body else { return Ok(()) };
        let described = {
            let mut kept = self.0.lock();
            let described = || Arc::new(schema::body_schema(describe));
            Arc::clone(kept.entry(doc.id).or_insert_with(described))
        };
        let (schema, named) = &*described;
        let Ok(value) = serde_json::from_slice(body) else { return Ok(()) };
        match fits(schema, named, &value, "the body") {
            Err(Misfit::Limit(why)) => Err(Problem::unprocessable(format!("{why}."))),
            Ok(()) | Err(Misfit::Form) => Ok(()),
        }
    }
}

fn fits(
    schema: &Value,
    named: &Map<String, Value>,
    value: &Value,
    name: &str,
) -> Result<(), Misfit> {
    if let Some(path) = schema.get("$ref").and_then(Value::as_str) {
        let referred = path.rsplit('/').next().and_then(|last| named.get(last));
        referred.map_or(Ok(()), |schema| fits(schema, named, value, name))?;
    }
    if !is_of_form(schema, value) {
        return Err(Misfit::Form);
    }
    for parts in ["anyOf", "oneOf"].iter().filter_map(|word| schema.get(*word)?.as_array()) {
        let mut why = Misfit::Form;
        let is_any = parts.iter().any(|part| match fits(part, named, value, name) {
            Ok(()) => true,
            Err(limit @ Misfit::Limit(_)) => {
                why = limit;
                false
            }
            Err(Misfit::Form) => false,
        });
        if !is_any {
            return Err(why);
        }
    }
    within(schema, value, name)?;
    match value {
        Value::Object(members) => all(members.iter().map(|(name, value)| {
            let own = schema.get("properties").and_then(|own| own.get(name));
            let schema = own.or_else(|| schema.get("additionalProperties"));
            schema.map_or(Ok(()), |schema| fits(schema, named, value, name))
        })),
        Value::Array(items) => all(items.iter().map(|item| {
            schema.get("items").map_or(Ok(()), |schema| fits(schema, named, item, name))
        })),
        _ => Ok(()),
    }
}

/// The first limit that is not kept counts more than another form.
fn all(parts: impl Iterator<Item = Result<(), Misfit>>) -> Result<(), Misfit> {
    let mut fits = Ok(());
    for part in parts {
        match part {
            Ok(()) => {}
            Err(Misfit::Form) => fits = part,
            Err(Misfit::Limit(_)) => return part,
        }
    }
    fits
}

/// Whether a value is of the type, the constant and the members that a schema asks for.
fn is_of_form(schema: &Value, value: &Value) -> bool {
    let is_type = |word: &Value| match value {
        Value::Null => word == "null",
        Value::Bool(_) => word == "boolean",
        Value::Number(_) => word == "number" || word == "integer",
        Value::String(_) => word == "string",
        Value::Array(_) => word == "array",
        Value::Object(_) => word == "object",
    };
    let list = |word| schema.get(word).and_then(Value::as_array);
    let has = |name: &Value| name.as_str().is_some_and(|name| value.get(name).is_some());
    schema.get("type").is_none_or(|types| match types {
        Value::Array(types) => types.iter().any(is_type),
        one => is_type(one),
    }) && schema.get("const").is_none_or(|only| only == value)
        && list("enum").is_none_or(|words| words.contains(value))
        && list("required").is_none_or(|names| names.iter().all(has))
}

fn within(schema: &Value, value: &Value, name: &str) -> Result<(), Misfit> {
    let (least, most, have, of) = match value {
        Value::String(text) => {
            ("minLength", "maxLength", count(text.chars().count()), " characters")
        }
        Value::Array(items) => ("minItems", "maxItems", count(items.len()), " entries"),
        Value::Number(number) => ("minimum", "maximum", number.as_f64(), ""),
        _ => return Ok(()),
    };
    let bound = |word| schema.get(word).and_then(Value::as_f64);
    let (least, most) = (bound(least), bound(most));
    let fits = have.is_none_or(|have| {
        least.is_none_or(|least| have >= least) && most.is_none_or(|most| have <= most)
    });
    if fits {
        return Ok(());
    }
    let range = match (least, most) {
        (Some(least), Some(most)) => format!("{least} to {most}"),
        (Some(least), None) => format!("at least {least}"),
        (None, most) => format!("at most {}", most.unwrap_or_default()),
    };
    let verb = if of.is_empty() { "be" } else { "have" };
    Err(Misfit::Limit(format!("{name} must {verb} {range}{of}")))
}

fn count(of: usize) -> Option<f64> {
    u32::try_from(of).ok().map(f64::from)
}
