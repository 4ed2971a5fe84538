//! Reads fields of the API's answers. A field that is missing or null is empty: pages show what is there.

use serde_json::Value;

/// Fields of a JSON object.
pub(super) trait Fields {
    /// A text; empty if there is none.
    fn text(&self, name: &str) -> &str;
    /// A text, if there is one.
    fn maybe(&self, name: &str) -> Option<&str>;
    /// The first of these texts that is there; empty if none is.
    fn first_of(&self, names: &[&str]) -> &str {
        names.iter().find_map(|name| self.maybe(name)).unwrap_or_default()
    }
    /// A whole number; 0 if there is none.
    fn int(&self, name: &str) -> i64;
    /// Whether a field is `true`.
    fn is(&self, name: &str) -> bool;
    /// The items of a list; none if there is no list.
    fn items(&self, name: &str) -> &[Value];
    /// What is made of each item of a list.
    fn each<T>(&self, name: &str, with: impl FnMut(&Value) -> T) -> Vec<T> {
        self.items(name).iter().map(with).collect()
    }
    /// A field; null if there is none.
    fn field(&self, name: &str) -> &Value;
}

impl Fields for Value {
    fn text(&self, name: &str) -> &str {
        self.maybe(name).unwrap_or_default()
    }

    fn maybe(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(Self::as_str)
    }

    fn int(&self, name: &str) -> i64 {
        self.get(name).and_then(Self::as_i64).unwrap_or_default()
    }

    fn is(&self, name: &str) -> bool {
        self.get(name).and_then(Self::as_bool).unwrap_or_default()
    }

    fn items(&self, name: &str) -> &[Value] {
        self.get(name).and_then(Self::as_array).map_or(&[], Vec::as_slice)
    }

    fn field(&self, name: &str) -> &Value {
        self.get(name).unwrap_or(&Self::Null)
    }
}
