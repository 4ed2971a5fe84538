//! Forms of the values that a declared object may have, as JSON types.

use serde_json::{Value, json};
use toml::de::DeValue;

/// The JSON types of a value, the type of the items of a list, and both in words.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form(&'static [&'static str], &'static str, &'static str);

impl Form {
    pub(super) const TEXT: Self = Self(&["string"], "", "a string in quotes");
    pub(super) const NUMBER: Self = Self(&["integer"], "", "a whole number");
    pub(super) const SWITCH: Self = Self(&["boolean"], "", "true or false");
    pub(super) const WORDS: Self = Self(&["array"], "string", "a list of strings");
    pub(super) const TABLE: Self = Self(&["object"], "", "a table");
    pub(super) const TABLES: Self = Self(&["array"], "object", "a list of tables");
    pub(super) const TEXT_OR_TABLE: Self = Self(&["string", "object"], "", "a string or a table");
    pub(super) const TEXT_OR_WORDS: Self =
        Self(&["string", "array"], "string", "a string or a list of strings");

    /// Its JSON Schema.
    pub(super) fn schema(self, about: &str) -> Value {
        let Self(types, ..) = self;
        let types = if let [one] = types { json!(one) } else { json!(types) };
        json!({ "type": types, "description": about })
    }

    /// Whether a value of a file has this form.
    /// Fails with the form in words.
    pub(super) fn takes(self, value: &DeValue<'_>) -> Result<(), &'static str> {
        let Self(types, items, wanted) = self;
        let of_type = |value: &DeValue<'_>| match value {
            DeValue::String(_) => "string",
            DeValue::Integer(_) => "integer",
            DeValue::Boolean(_) => "boolean",
            DeValue::Array(_) => "array",
            DeValue::Table(_) => "object",
            _ => "another",
        };
        let mut list = value.as_array().into_iter().flatten();
        let fits = types.contains(&of_type(value)) && list.all(|v| of_type(v.get_ref()) == items);
        fits.then_some(()).ok_or(wanted)
    }
}
