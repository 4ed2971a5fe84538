//! A value as the schema of its type describes it, read for people: for flags, forms and their help.
//!
//! Not here: whether a value is within its limits, which `api::limits` says.

use serde_json::{Map, Value};

use crate::api::schema::{self, Describe};

/// The schema of a value in a request, with all schemas behind it.
#[derive(Debug)]
pub struct SentType {
    pub(super) schema: Value,
    pub(super) named: Map<String, Value>,
}

impl SentType {
    pub(super) fn of(describe: Describe) -> Self {
        let mut generator = schema::settings().for_deserialize().into_generator();
        let schema = describe(&mut generator).to_value();
        Self { schema, named: generator.take_definitions(true) }
    }

    /// The value that a request sends.
    pub const fn value(&self) -> DescribedValue<'_> {
        DescribedValue { schema: &self.schema, named: &self.named }
    }
}

/// A value that a schema describes.
#[derive(Clone, Copy, Debug)]
pub struct DescribedValue<'s> {
    schema: &'s Value,
    /// The schemas that it refers to by name.
    named: &'s Map<String, Value>,
}

/// What a value is. Null is left out: it stands for "not set".
#[derive(Clone, Debug)]
pub enum ValueKind<'s> {
    /// One of these words.
    Words(Vec<String>),
    /// Yes or no.
    Boolean,
    /// A whole number of these bounds.
    Integer {
        /// The smallest.
        least: Option<u64>,
        /// The largest.
        most: Option<u64>,
    },
    /// A number.
    Number,
    /// A time in RFC 3339.
    Time,
    /// Bytes, as base64.
    Bytes,
    /// A text.
    Text {
        /// Its characters at most.
        most_chars: Option<u64>,
    },
    /// A list of such values.
    List(DescribedValue<'s>),
    /// An object with any members.
    Map {
        /// Whether each is a text.
        of_texts: bool,
    },
    /// An object with members of its own.
    Object,
    /// Anything, or a value of several forms.
    Other,
}

/// A condition for the use of a value: another field has one of these values. A schema says it as `x-of`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsedFor {
    /// The path of the other field.
    pub field: String,
    /// Its values.
    pub values: Vec<String>,
}

impl<'s> DescribedValue<'s> {
    const fn with(self, schema: &'s Value) -> Self {
        Self { schema, ..self }
    }

    /// The forms of the value, without null. Most values have a single form.
    pub fn forms(self) -> Vec<Self> {
        if let Some(referred) = self.referred() {
            return self.with(referred).forms();
        }
        let forms = self.own_forms();
        if forms.is_empty() {
            return vec![self];
        }
        forms.into_iter().flat_map(Self::forms).collect()
    }

    /// The forms without null that its schema lists; none if it lists none.
    fn own_forms(self) -> Vec<Self> {
        let of = |word: &str| self.schema.get(word).and_then(Value::as_array);
        let listed = of("oneOf").or_else(|| of("anyOf")).into_iter().flatten();
        listed.filter(|form| !is_null(form)).map(|form| self.with(form)).collect()
    }

    fn referred(self) -> Option<&'s Value> {
        let name = self.schema.get("$ref")?.as_str()?.rsplit('/').next()?;
        self.named.get(name)
    }

    /// What it is.
    pub fn kind(self) -> ValueKind<'s> {
        match self.forms().as_slice() {
            [form] => form.own_kind(),
            _ => ValueKind::Other,
        }
    }

    fn own_kind(self) -> ValueKind<'s> {
        if let Some(words) = self.words() {
            return ValueKind::Words(words);
        }
        let bound = |name: &str| self.schema.get(name).and_then(Value::as_u64);
        let has = |name: &str| self.schema.get(name).is_some();
        match self.own_type() {
            "boolean" => ValueKind::Boolean,
            "integer" => ValueKind::Integer { least: bound("minimum"), most: bound("maximum") },
            "number" => ValueKind::Number,
            "string" if self.schema.get("format").is_some_and(|name| name == "date-time") => {
                ValueKind::Time
            }
            "string" if has("contentEncoding") => ValueKind::Bytes,
            "string" => ValueKind::Text { most_chars: bound("maxLength") },
            "array" => ValueKind::List(self.with(self.schema.get("items").unwrap_or(&Value::Null))),
            "object" if has("properties") => ValueKind::Object,
            "object" => {
                let others = self.schema.get("additionalProperties");
                let of_texts = others.and_then(|others| others.get("type"));
                ValueKind::Map { of_texts: of_texts.is_some_and(|name| name == "string") }
            }
            _ => ValueKind::Other,
        }
    }

    /// Its type; empty if the schema allows any.
    fn own_type(self) -> &'s str {
        match self.schema.get("type") {
            Some(Value::String(name)) => name,
            Some(Value::Array(names)) => {
                let mut names = names.iter().filter_map(Value::as_str);
                names.find(|name| *name != "null").unwrap_or_default()
            }
            _ => "",
        }
    }

    /// The only texts that it may be.
    pub fn words(self) -> Option<Vec<String>> {
        Some(self.fixed_texts()?.into_iter().map(str::to_owned).collect())
    }

    /// The only texts that it may be, as the schema has them.
    pub fn fixed_texts(self) -> Option<Vec<&'s str>> {
        if let Some(listed) = self.schema.get("enum").and_then(Value::as_array) {
            return Some(listed.iter().filter_map(Value::as_str).collect());
        }
        self.schema.get("const").and_then(Value::as_str).map(|word| vec![word])
    }

    /// Its description: that of the field, else that of the type.
    pub fn about(self) -> &'s str {
        if let Some(own) = self.schema.get("description").and_then(Value::as_str) {
            return own;
        }
        match (self.referred(), self.own_forms().as_slice()) {
            (Some(referred), _) => self.with(referred).about(),
            (None, [form]) => form.about(),
            (None, _) => "",
        }
    }

    /// The members that an object has of its own, in their order.
    pub fn members(self) -> impl Iterator<Item = (&'s str, Self)> {
        let members = self.schema.get("properties").and_then(Value::as_object);
        members.into_iter().flatten().map(move |(name, schema)| (name.as_str(), self.with(schema)))
    }

    /// A member that an object has of its own.
    pub fn member(self, name: &str) -> Option<Self> {
        Some(self.with(self.schema.get("properties")?.get(name)?))
    }

    /// Whether an object must have this member.
    pub fn requires(self, name: &str) -> bool {
        let required = self.schema.get("required").and_then(Value::as_array);
        required.is_some_and(|names| names.iter().any(|known| known == name))
    }

    /// The condition for its use, if there is one.
    pub fn used_for(self) -> Option<UsedFor> {
        let (field, values) = self.schema.get("x-of")?.as_object()?.iter().next()?;
        let values = values.as_array().map(Vec::as_slice).unwrap_or_default();
        Some(UsedFor { field: field.clone(), values: texts(values) })
    }

    /// The value that an emptied field stands for: an empty text, list or object if there may be one, else null.
    pub fn emptied(self) -> Value {
        let bound = |name: &str| self.schema.get(name).and_then(Value::as_u64);
        let fits_pattern = || {
            let pattern = self.schema.get("pattern").and_then(Value::as_str)?;
            Some(regex_lite::Regex::new(pattern).ok()?.is_match(""))
        };
        match self.own_type() {
            "string" if bound("minLength") == Some(0) || fits_pattern() == Some(true) => "".into(),
            "array" if bound("minItems").unwrap_or_default() == 0 => Value::Array(Vec::new()),
            "object" => Value::Object(Map::new()),
            _ => Value::Null,
        }
    }
}

fn is_null(schema: &Value) -> bool {
    schema.get("type").is_some_and(|name| name == "null")
}

fn texts(values: &[Value]) -> Vec<String> {
    values.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sent(schema: Value) -> SentType {
        let rate =
            json!({ "description": "of the type", "type": ["integer", "null"], "maximum": 9 });
        let target = json!({ "oneOf": [
            { "properties": { "kind": { "const": "http" } }, "required": ["kind"] },
            { "properties": { "kind": { "const": "pull" } } },
        ] });
        let named = [("Rate".to_owned(), rate), ("Target".to_owned(), target)];
        SentType { schema, named: named.into_iter().collect() }
    }

    #[test]
    fn a_value_is_what_its_schema_and_the_schemas_behind_it_say() {
        for (schema, kind, about) in [
            (json!({ "$ref": "#/Rate" }), "Integer { least: None, most: Some(9) }", "of the type"),
            (
                json!({ "anyOf": [{ "$ref": "#/Rate" }, { "type": "null" }], "description": "own" }),
                "Integer { least: None, most: Some(9) }",
                "own",
            ),
            (
                json!({ "anyOf": [{ "$ref": "#/Rate" }, { "type": "null" }] }),
                "Integer { least: None, most: Some(9) }",
                "of the type",
            ),
            (json!({ "enum": ["a", "b", null] }), r#"Words(["a", "b"])"#, ""),
            (json!({ "type": "string", "format": "date-time" }), "Time", ""),
            (json!({ "type": "string", "contentEncoding": "base64" }), "Bytes", ""),
            (json!({ "type": "string", "maxLength": 5 }), "Text { most_chars: Some(5) }", ""),
            (
                json!({ "type": "object", "additionalProperties": { "type": "string" } }),
                "Map { of_texts: true }",
                "",
            ),
            (json!({ "type": "object", "properties": {} }), "Object", ""),
            (json!({ "$ref": "#/Target" }), "Other", ""),
            (json!({}), "Other", ""),
        ] {
            let sent = sent(schema);
            let value = sent.value();
            assert_eq!((format!("{:?}", value.kind()).as_str(), value.about()), (kind, about));
        }
    }

    #[test]
    fn each_form_has_its_members() {
        let sent = sent(json!({ "anyOf": [{ "$ref": "#/Target" }, { "type": "null" }] }));
        let forms = sent.value().forms();
        let kinds: Vec<_> = forms.iter().filter_map(|form| form.member("kind")?.words()).collect();
        assert_eq!(kinds, [["http"], ["pull"]]);
        assert_eq!(
            forms.iter().map(|form| form.requires("kind")).collect::<Vec<_>>(),
            [true, false]
        );
    }

    #[test]
    fn an_emptied_value_is_empty_where_it_may_be() {
        for (schema, emptied) in [
            (json!({ "type": "string", "minLength": 0 }), json!("")),
            (json!({ "type": ["string", "null"], "pattern": "^a*$" }), json!("")),
            (json!({ "type": "string" }), Value::Null),
            (json!({ "type": "array" }), json!([])),
            (json!({ "type": "array", "minItems": 1 }), Value::Null),
            (json!({ "type": "object" }), json!({})),
            (json!({ "type": "integer" }), Value::Null),
        ] {
            assert_eq!(sent(schema).value().emptied(), emptied);
        }
    }
}
