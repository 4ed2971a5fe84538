//! Bodies of requests with the terms of a subscription beside a few texts.
//!
//! Serde's `flatten` would let unknown fields pass, and the numbers of a filter would lose digits on its way.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Error, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::api::schema::value;
use crate::model::subscription::SubscriptionTerms;

/// Terms that null removes from a subscription. As any other term of a change, null is an absent one.
const REMOVED_BY_NULL: [&str; 2] = ["filter", "template"];

/// The texts beside the terms of a body, and the meaning of null in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct BodyForm {
    /// The text that it must have.
    pub(super) required: Option<&'static str>,
    /// Names of texts that are listed before the terms.
    pub(super) before: &'static [&'static str],
    /// Names of texts that are listed after the terms.
    pub(super) after: &'static [&'static str],
    /// Whether a subscription is changed: a term may be null then.
    pub(super) is_change: bool,
}

/// A body that was read.
#[derive(Debug, Default)]
pub(super) struct TermsBody {
    texts: BTreeMap<&'static str, String>,
    /// The terms.
    pub(super) change: TermsChange,
}

/// The terms that a body names, with their values.
#[derive(Clone, Debug, Default)]
pub(super) struct TermsChange {
    names: BTreeSet<String>,
    terms: SubscriptionTerms,
}

impl TermsBody {
    /// Reads a body.
    /// Fails as a derived type does: a term of another form, an unknown field, one that is missing or there twice.
    pub(super) fn read<'de, D: Deserializer<'de>>(
        from: D,
        form: BodyForm,
    ) -> Result<Self, D::Error> {
        from.deserialize_map(BodyFields(form))
    }

    /// Takes one of the texts.
    pub(super) fn text(&mut self, name: &'static str) -> Option<String> {
        self.texts.remove(name)
    }
}

impl TermsChange {
    /// Replaces the terms that it names.
    pub(super) fn apply(&self, terms: &mut SubscriptionTerms) {
        for name in &self.names {
            terms.replace(name, &self.terms);
        }
    }

    /// The terms of a new subscription: the default of each one that it does not name.
    pub(super) fn into_terms(self) -> SubscriptionTerms {
        self.terms
    }
}

/// The names of all terms, in their order.
fn term_names() -> Vec<String> {
    match value(SubscriptionTerms::default()) {
        Value::Object(terms) => terms.into_iter().map(|(name, _)| name).collect(),
        _ => Vec::new(),
    }
}

struct BodyFields(BodyForm);

impl<'de> Visitor<'de> for BodyFields {
    type Value = TermsBody;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<TermsBody, A::Error> {
        let Self(BodyForm { required, before, after, is_change }) = self;
        let terms = term_names();
        let mut body = TermsBody::default();
        let mut seen = BTreeSet::new();
        while let Some(name) = fields.next_key::<String>()? {
            if seen.contains(&name) {
                return Err(A::Error::custom(format!("duplicate field `{name}`")));
            }
            if let Some(text) = before.iter().chain(after).find(|text| **text == name) {
                let value = if required == Some(*text) {
                    fields.next_value().map(Some)
                } else {
                    fields.next_value()
                };
                body.texts.extend(value?.map(|value| (*text, value)));
            } else if terms.contains(&name) {
                let given = fields.next_value_seed(Term { name: &name, is_change })?;
                if let Some(given) = given {
                    body.change.terms.replace(&name, &given);
                    body.change.names.insert(name.clone());
                }
            } else {
                let before = before.iter().copied();
                let terms = terms.iter().map(String::as_str);
                let known: Vec<&str> = before.chain(terms).chain(after.iter().copied()).collect();
                let known = known.join("`, `");
                let why = format!("unknown field `{name}`, expected one of `{known}`");
                return Err(A::Error::custom(why));
            }
            seen.insert(name);
        }
        match required.filter(|name| !seen.contains(*name)) {
            Some(missing) => Err(A::Error::missing_field(missing)),
            None => Ok(body),
        }
    }
}

/// The value of a term, read as terms with the default of all others. `None` changes nothing.
#[derive(Clone, Copy)]
struct Term<'n> {
    name: &'n str,
    is_change: bool,
}

impl<'de> DeserializeSeed<'de> for Term<'_> {
    type Value = Option<SubscriptionTerms>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        if self.is_change { from.deserialize_option(self) } else { self.visit_some(from) }
    }
}

impl<'de> Visitor<'de> for Term<'_> {
    type Value = Option<SubscriptionTerms>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the term {}", self.name)
    }

    fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
        Ok(REMOVED_BY_NULL.contains(&self.name).then(SubscriptionTerms::default))
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        let member = OneMember { name: Some(self.name), value: Some(from) };
        SubscriptionTerms::deserialize(MapAccessDeserializer::new(member)).map(Some)
    }
}

/// An object with one member.
struct OneMember<'n, D> {
    name: Option<&'n str>,
    value: Option<D>,
}

impl<'de, D: Deserializer<'de>> MapAccess<'de> for OneMember<'_, D> {
    type Error = D::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, D::Error> {
        self.name.take().map(|name| seed.deserialize(name.into_deserializer())).transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, D::Error> {
        let value = self.value.take().ok_or_else(|| D::Error::custom("a member has one value"))?;
        seed.deserialize(value)
    }
}

impl JsonSchema for TermsChange {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "TermsChange".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = SubscriptionTerms::json_schema(generator);
        let terms = schema.get_mut("properties").and_then(Value::as_object_mut);
        terms.into_iter().flat_map(|terms| terms.values_mut()).for_each(allow_null);
        schema
    }
}

/// Lets the value of a schema be null too.
fn allow_null(schema: &mut Value) {
    let Value::Object(members) = schema else { return };
    members.remove("default");
    match members.get_mut("type") {
        Some(Value::Array(types)) if types.iter().any(|one| one == "null") => {}
        Some(Value::Array(types)) => types.push("null".into()),
        Some(one) => *one = json!([one.clone(), "null"]),
        None => {}
    }
    if let Some(referred) = members.shift_remove("$ref") {
        let parts = json!([{ "$ref": referred }, { "type": "null" }]);
        members.insert("anyOf".to_owned(), parts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value of each term that is not its default.
    const OTHERS: &str = r#"{
        "event_types": ["a.*"], "source": "all", "owner_id": "me", "method": "PUT", "headers": {"x-a": "b"},
        "policy": {"timeout": "5s"}, "ordering": "key", "order": {"group": "g"}, "format": "cloudevents_binary",
        "event_headers": ["x-b"], "filter": [{"path": "$.a", "op": "gt", "value": 1}], "template": {"body": "a"}
    }"#;

    fn read(text: &str, is_change: bool) -> Result<TermsBody, String> {
        let form = BodyForm { required: None, before: &["url"], after: &["try"], is_change };
        let mut from = serde_json::Deserializer::from_str(text);
        TermsBody::read(&mut from, form).map_err(|error| error.to_string())
    }

    #[test]
    fn each_term_can_be_changed() {
        let others: Value = serde_json::from_str(OTHERS).unwrap();
        let default = value(SubscriptionTerms::default());
        for name in term_names() {
            assert!(others.get(&name).is_some_and(|other| *other != default[&name]), "{name}");
            let body = read(&json!({ &name: others[&name] }).to_string(), true).unwrap();
            let mut terms = SubscriptionTerms::default();
            body.change.apply(&mut terms);
            let mut expected = default.clone();
            expected[&name] = others[&name].clone();
            assert_eq!(value(terms), expected, "{name}");
        }
    }

    #[test]
    fn null_removes_a_filter_and_a_template_and_changes_nothing_else() {
        for name in term_names() {
            let mut terms: SubscriptionTerms = serde_json::from_str(OTHERS).unwrap();
            let before = value(&terms);
            read(&json!({ &name: null }).to_string(), true).unwrap().change.apply(&mut terms);
            let is_removed = REMOVED_BY_NULL.contains(&name.as_str());
            assert_eq!(value(terms) != before, is_removed, "{name}");
        }
        assert!(read(r#"{"policy": null}"#, false).is_err());
    }

    #[test]
    fn a_mistake_is_named_with_its_place() {
        let unknown = read("{\"url\": \"a\",\n \"polcy\": {}}", true).unwrap_err();
        assert!(unknown.starts_with("unknown field `polcy`, expected one of `url`, `event_types`"));
        assert!(unknown.ends_with("`template`, `try` at line 2 column 8"), "{unknown}");
        let nested = read("{\"policy\":\n{\"timeout\":\n 5}}", true).unwrap_err();
        assert_eq!(nested, "invalid type: integer `5`, expected a string at line 3 column 2");
        let twice = read(r#"{"owner_id": null, "owner_id": "a"}"#, true).unwrap_err();
        assert!(twice.starts_with("duplicate field `owner_id`"), "{twice}");
    }
}
