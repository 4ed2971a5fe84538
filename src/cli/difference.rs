//! What is declared against what exists: field by field, without carrying anything out.
//!
//! Not here: secrets, which only the service can compare.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::base::clock::Timestamp;
use crate::cli::{Failure, exit};
use crate::config::declared::{Kind, Thing};
use crate::model::subscription::Policy;
use crate::privacy::policy::Pii;
use crate::signatures::Scheme;
use crate::sources::Settings;

/// A field that differs: its name, what is there, and what is declared.
#[derive(Debug, PartialEq)]
pub(super) struct Difference {
    pub(super) field: String,
    pub(super) from: Value,
    pub(super) to: Value,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} -> {}", self.field, self.from, self.to)
    }
}

/// The declared fields in the form in which the API shows them.
pub(super) fn fields(thing: &Thing) -> Result<Map<String, Value>, Failure> {
    let of = |(name, value): (&String, &Value)| Ok((name.clone(), form(thing, name, value)?));
    thing.fields.iter().map(of).collect()
}

fn form(thing: &Thing, name: &str, value: &Value) -> Result<Value, Failure> {
    let read = match (thing.kind, name, value) {
        (Kind::Provider, "scheme", Value::String(word)) => {
            through::<Scheme>(serde_json::json!({ "kind": word }))
        }
        (Kind::Provider, "scheme", other) => through::<Scheme>(other.clone()),
        (Kind::Provider | Kind::Tenant, "pii", other) => {
            let stated = Pii::from_json(other);
            return stated
                .map(|pii| pii.to_json())
                .map_err(|error| Failure::input(format!("{name}: {error}")));
        }
        (Kind::Subscription, "policy", other) => through::<Policy>(other.clone()),
        (Kind::Source, "settings", other) => {
            let kind = thing.fields.get("kind").and_then(Value::as_str).unwrap_or_default();
            let read = Settings::read(kind, other.clone());
            return read
                .map(|settings| settings.to_json())
                .map_err(|error| Failure::input(format!("{name}: {error}")));
        }
        (Kind::Token, "expires_at", other) => through::<Timestamp>(other.clone()),
        (_, _, other) => Ok(other.clone()),
    };
    read.map_err(|error| Failure::input(format!("{name}: {error}")))
}

/// A value as it looks after it was read and written.
fn through<T: DeserializeOwned + Serialize>(value: Value) -> serde_json::Result<Value> {
    serde_json::to_value(serde_json::from_value::<T>(value)?)
}

/// The declared fields that exist otherwise. What is not declared is left as it is.
pub(super) fn between(declared: &Map<String, Value>, existing: &Value) -> Vec<Difference> {
    let differs = |(field, to): (&String, &Value)| {
        let from = existing.get(field).cloned().unwrap_or_default();
        (from != *to).then(|| Difference { field: field.clone(), from, to: to.clone() })
    };
    declared.iter().filter_map(differs).collect()
}

/// The same for a source, some of whose fields are of its making and stay as they are.
///
/// # Errors
/// When it is of another kind.
pub(super) fn of_source(
    declared: &Map<String, Value>,
    existing: &Value,
) -> Result<Vec<Difference>, Failure> {
    let mut found = between(declared, existing);
    if let Some(kind) = found.iter().find(|difference| difference.field == "kind") {
        let why = format!("{kind}: the kind of a source is not changed");
        return Err(Failure::new(exit::CONFLICT, why).and(
            "Remove it (oncebox source remove) and apply again: it is then read from the start.",
        ));
    }
    // Where reading began is of no more consequence, and never is shown as null.
    found.retain(|difference| {
        let is_never = difference.from.is_null() && difference.to == 0;
        difference.field != "from" && !(difference.field == "silent_after_ms" && is_never)
    });
    Ok(found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn thing(kind: Kind, fields: &Value) -> Thing {
        let fields = fields.as_object().unwrap().clone();
        Thing { kind, name: "x".to_owned(), fields, secrets: Vec::new(), token_file: None }
    }

    #[test]
    fn a_value_that_is_written_otherwise_is_no_difference() {
        let declared = thing(Kind::Provider, &json!({ "scheme": "stripe", "tolerance_secs": 300 }));
        let declared = fields(&declared).unwrap();
        let mut existing =
            json!({ "scheme": { "kind": "stripe" }, "tolerance_secs": 300, "id": 1 });
        assert_eq!(between(&declared, &existing), []);
        existing["tolerance_secs"] = 60.into();
        let found = between(&declared, &existing);
        assert_eq!(found[0].to_string(), "tolerance_secs 60 -> 300");
        let token = thing(Kind::Token, &json!({ "expires_at": "2027-01-01T01:00:00+01:00" }));
        let shown = json!({ "expires_at": "2027-01-01T00:00:00.000Z" });
        assert_eq!(between(&fields(&token).unwrap(), &shown), []);
    }

    #[test]
    fn what_cannot_be_read_is_refused_with_its_name() {
        let declared = thing(Kind::Subscription, &json!({ "policy": { "stepps": [] } }));
        let refusal = fields(&declared).unwrap_err().message;
        assert!(refusal.starts_with("policy: unknown field `stepps`"), "{refusal}");
    }
}
