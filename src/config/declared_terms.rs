//! Terms of a declared subscription. Their names, forms and descriptions are those of the API, so that a new term can be
//! declared too.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::config::field_form::Form;
use crate::model::subscription::SubscriptionTerms;

/// A term.
#[derive(Debug)]
pub(super) struct DeclaredTerm {
    pub(super) name: String,
    /// Its description, and the words or the fields that it may have.
    pub(super) about: String,
    pub(super) form: Form,
}

/// All terms, in their order.
pub(super) fn all() -> Vec<DeclaredTerm> {
    let mut settings = SchemaSettings::draft2020_12().for_deserialize();
    settings.inline_subschemas = true;
    let schema = SubscriptionTerms::json_schema(&mut settings.into_generator());
    let properties = schema.get("properties").and_then(Value::as_object);
    let terms = properties.into_iter().flatten();
    terms
        .map(|(name, schema)| DeclaredTerm {
            name: name.clone(),
            about: about(schema),
            form: form(schema),
        })
        .collect()
}

/// The first sentence of a description, and the words or the fields.
fn about(schema: &Value) -> String {
    let description = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    let description = description.split_whitespace().collect::<Vec<_>>().join(" ");
    let sentence = description.split(". ").next().unwrap_or_default().trim_end_matches('.');
    let schema = without_null(schema);
    let words = schema.get("enum").and_then(Value::as_array).into_iter().flatten();
    let members = schema.get("items").map_or(schema, without_null).get("properties");
    let fields =
        members.and_then(Value::as_object).into_iter().flatten().map(|(name, _)| name.as_str());
    let values: Vec<&str> = words.filter_map(Value::as_str).chain(fields).collect();
    let values = values.join(", ");
    match (sentence.is_empty(), values.is_empty()) {
        (_, true) => sentence.to_owned(),
        (true, false) => values,
        (false, false) => format!("{sentence} ({values})"),
    }
}

fn form(schema: &Value) -> Form {
    let schema = without_null(schema);
    match json_type(schema) {
        "integer" => Form::NUMBER,
        "boolean" => Form::SWITCH,
        "object" => Form::TABLE,
        "array" => match schema.get("items").map(|items| json_type(without_null(items))) {
            Some("object") => Form::TABLES,
            _ => Form::WORDS,
        },
        _ => Form::TEXT,
    }
}

/// The type of a value that is not null.
fn json_type(schema: &Value) -> &str {
    let types = match schema.get("type") {
        Some(Value::Array(types)) => types.as_slice(),
        Some(one) => std::slice::from_ref(one),
        None => &[],
    };
    types.iter().filter_map(Value::as_str).find(|one| *one != "null").unwrap_or_default()
}

/// The schema of a value that is not null.
fn without_null(schema: &Value) -> &Value {
    let parts = schema.get("anyOf").and_then(Value::as_array);
    let described = parts.and_then(|parts| parts.iter().find(|part| !json_type(part).is_empty()));
    described.unwrap_or(schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_and_descriptions_are_those_of_the_terms() {
        let terms = all();
        let of = |name: &str| terms.iter().find(|term| term.name == name).unwrap();
        assert_eq!(of("owner_id").about, "The person or system that answers for it");
        assert_eq!(of("method").about, "POST, PUT, PATCH");
        assert!(of("policy").about.ends_with(", classes, event_fields, probe)"));
        assert!(of("ordering").about.ends_with(" (none, key, strict)"));
        assert!(of("filter").about.ends_with(" (path, op, value)"));
        let form = |name: &str| of(name).form.schema("")["type"].clone();
        assert_eq!(form("event_types"), "array");
        for name in ["source", "method", "ordering", "format"] {
            assert_eq!(form(name), "string", "{name}");
        }
        for name in ["headers", "policy", "order", "template"] {
            assert_eq!(form(name), "object", "{name}");
        }
    }
}
