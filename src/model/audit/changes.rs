//! What changed of a thing: field by field, before and after, without secrets.

use serde_json::{Map, Value, json};

use crate::model::audit::kept::without_secrets;

/// Fields that change with every change and say nothing.
const FIELDS_LEFT_OUT: [&str; 3] = ["updated_at", "last_used_at", "created_at"];
/// Fields whose values are never kept, whatever the thing is.
const FIELDS_SECRET: [&str; 5] = ["token", "secret", "secrets", "password", "key"];
/// Characters of one value that are kept.
const MAX_VALUE_CHARS: usize = 2_000;

/// The changed fields of a thing: name to `{"before":…,"after":…}`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes(Map<String, Value>);

impl Changes {
    /// Nothing changed, or nothing that has fields.
    pub fn none() -> Self {
        Self::default()
    }

    /// The fields in which two forms of a thing differ. `Null` is a thing that is not there.
    ///
    /// ```
    /// use oncebox::model::audit::changes::Changes;
    /// use serde_json::json;
    /// let before = json!({ "state": "ACTIVE", "name": "erp" });
    /// let after = json!({ "state": "PAUSED", "name": "erp" });
    /// let text = Changes::between(&before, &after).to_text();
    /// assert_eq!(text, r#"{"state":{"before":"ACTIVE","after":"PAUSED"}}"#);
    /// ```
    pub fn between(before: &Value, after: &Value) -> Self {
        let nothing = Map::new();
        let old = before.as_object().unwrap_or(&nothing);
        let new = after.as_object().unwrap_or(&nothing);
        let mut changes = Self::none();
        let gone = old.keys().filter(|name| !new.contains_key(*name));
        for name in new.keys().chain(gone) {
            let (was, is) = (old.get(name), new.get(name));
            if was == is || FIELDS_LEFT_OUT.contains(&name.as_str()) {
                continue;
            }
            let (was, is) = (was.unwrap_or(&Value::Null), is.unwrap_or(&Value::Null));
            let (was, is) = if name == "headers" {
                masked_headers(was, is)
            } else {
                (shown(name, was), shown(name, is))
            };
            changes.0.insert(name.clone(), json!({ "before": was, "after": is }));
        }
        changes
    }

    /// The same with one more field that was set. For what is no field of the thing itself: the secret
    /// that was added to a provider, the number of rows that a bulk change touched.
    #[must_use]
    pub fn and(mut self, name: &str, after: impl Into<Value>) -> Self {
        let after = after.into();
        let after = shown(name, &after);
        self.0.insert(name.to_owned(), json!({ "before": null, "after": after }));
        self
    }

    /// Whether there is nothing.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The form in which the column holds it.
    pub fn to_text(&self) -> String {
        Value::Object(self.0.clone()).to_string()
    }
}

/// A value as it is kept.
fn shown(name: &str, value: &Value) -> Value {
    if FIELDS_SECRET.contains(&name) && !value.is_null() {
        return "…".into();
    }
    let text = match value {
        Value::String(text) if name == "url" => without_query(text),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let safe = without_secrets(&text);
    if safe.chars().count() > MAX_VALUE_CHARS {
        return safe.chars().take(MAX_VALUE_CHARS).chain("…".chars()).collect::<String>().into();
    }
    match value {
        Value::String(_) => safe.into(),
        _ if safe == text => value.clone(),
        _ => safe.into(),
    }
}

/// A URL without what may be a password in it.
fn without_query(url: &str) -> String {
    match url.split_once('?') {
        Some((before, _)) => format!("{before}?…"),
        None => url.to_owned(),
    }
}

/// Header fields may hold whatever a target wants to see, a password too: only their names are kept, and
/// whether the value is another one.
fn masked_headers(before: &Value, after: &Value) -> (Value, Value) {
    let masked = |of: &Value, other: &Value, differs: &str| {
        let Some(fields) = of.as_object() else { return of.clone() };
        let mask = |(name, value): (&String, &Value)| {
            let same = other.get(name).is_none_or(|have| have == value);
            (name.clone(), if same { "…".into() } else { differs.into() })
        };
        Value::Object(fields.iter().map(mask).collect())
    };
    (masked(before, after, "…"), masked(after, before, "… (another value)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changed_fields_are_kept() {
        let before = json!({ "a": 1, "b": [1], "gone": true, "updated_at": 1 });
        let after = json!({ "a": 1, "b": [2], "new": "x", "updated_at": 2 });
        let text = Changes::between(&before, &after).to_text();
        assert_eq!(
            text,
            r#"{"b":{"before":[1],"after":[2]},"new":{"before":null,"after":"x"},"gone":{"before":true,"after":null}}"#
        );
        assert!(Changes::between(&after, &after).is_empty());
    }

    #[test]
    fn no_secret_is_kept() {
        let after = json!({
            "token": "obx_hidden", "url": "https://erp.example/in?key=hidden",
            "headers": { "X-Key": "hidden" }, "note": "use obx_hidden", "deep": { "a": ["whsec_hidden"] },
        });
        let text = Changes::between(&Value::Null, &after).and("secret", "hidden").to_text();
        assert!(!text.contains("hidden") && text.contains("X-Key"), "{text}");
        let before = json!({ "headers": { "X-Key": "one", "X-Same": "s" } });
        let after = json!({ "headers": { "X-Key": "two", "X-Same": "s" } });
        let text = Changes::between(&before, &after).to_text();
        assert!(!text.contains("two") && text.contains("another value"), "{text}");
    }

    #[test]
    fn a_long_value_is_cut() {
        let text = Changes::none().and("note", "x".repeat(100_000)).to_text();
        assert!(text.chars().count() < MAX_VALUE_CHARS + 100);
    }
}
