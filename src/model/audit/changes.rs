//! The changed fields of a resource, before and after, without secrets; and cleaning texts that a caller chose.

use serde_json::{Map, Value, json};

use crate::model::json::carried;

/// Fields that change with every update and carry no information.
const FIELDS_LEFT_OUT: [&str; 3] = ["updated_at", "last_used_at", "created_at"];
/// Fields whose values are never stored, for any kind of resource.
const FIELDS_SECRET: [&str; 5] = ["token", "secret", "secrets", "password", "key"];
/// The longest stored value, in characters.
const MAX_VALUE_CHARS: usize = 2_000;

/// The longest stored text, in characters. Without a limit, any caller could fill the file.
const MAX_TEXT_CHARS: usize = 255;
/// Prefixes of our secrets. A path or header may contain a secret by mistake.
const SECRET_PREFIXES: [&str; 6] =
    ["obx_", "obs_", "obl_", "whsec_", "whsk_", "oncebox-master-key-1:"];

/// The changed fields of a resource: name to `{"before":…,"after":…}`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes(Map<String, Value>);

impl Changes {
    /// No changed fields.
    pub fn none() -> Self {
        Self::default()
    }

    /// The fields in which two versions of a resource differ. `Null` stands for a missing resource.
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
            let was = old.get(name);
            let is = new.get(name);
            if was == is || FIELDS_LEFT_OUT.contains(&name.as_str()) {
                continue;
            }
            let was = was.unwrap_or(&Value::Null);
            let is = is.unwrap_or(&Value::Null);
            let (was, is) = if name == "headers" {
                masked_headers(was, is)
            } else {
                (shown(name, was), shown(name, is))
            };
            changes.0.insert(name.clone(), json!({ "before": was, "after": is }));
        }
        changes
    }

    /// Adds a value that is not a field of the resource itself, such as the number of rows that a bulk change touched.
    #[must_use]
    pub fn and(mut self, name: &str, after: impl Into<Value>) -> Self {
        let after = after.into();
        let after = shown(name, &after);
        self.0.insert(name.to_owned(), json!({ "before": null, "after": after }));
        self
    }

    /// Whether nothing changed.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The text that is stored in the column `changes`.
    pub fn to_text(&self) -> String {
        carried::written(&Value::Object(self.0.clone()))
    }
}

/// A value as it is stored: without secrets and not too long.
fn shown(name: &str, value: &Value) -> Value {
    if FIELDS_SECRET.contains(&name) && !value.is_null() {
        return "…".into();
    }
    let text = match value {
        Value::String(text) if name == "url" => without_query(text),
        Value::String(text) => text.clone(),
        other => carried::written(other),
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

/// A URL without its query, which may contain a password.
fn without_query(url: &str) -> String {
    match url.split_once('?') {
        Some((before, _)) => format!("{before}?…"),
        None => url.to_owned(),
    }
}

/// Header values may be passwords. Only the names are stored, and whether a value changed.
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

/// The text without control characters and secrets, cut to the limit.
pub(super) fn sanitize(text: &str) -> String {
    let clean = text.chars().filter(|c| !c.is_control()).take(MAX_TEXT_CHARS).collect::<String>();
    without_secrets(&clean)
}

/// The text with each token, signing secret and master key replaced by its prefix and `…`.
pub fn without_secrets(text: &str) -> String {
    let mut text = text.to_owned();
    for prefix in SECRET_PREFIXES {
        let mut parts = text.split(prefix);
        let mut masked = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let is_secret = |c: char| c.is_ascii_alphanumeric() || "-_+/=".contains(c);
            masked.push_str(prefix);
            masked.push('…');
            masked.push_str(part.trim_start_matches(is_secret));
        }
        text = masked;
    }
    text
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

    #[test]
    fn a_secret_in_a_path_is_not_stored() {
        assert_eq!(sanitize("/v1/tokens/obx_AbC-12_3"), "/v1/tokens/obx_…");
        assert_eq!(sanitize("x whsec_MfKQ9r8/+= y obx_1, obx_2"), "x whsec_… y obx_…, obx_…");
        assert_eq!(sanitize("a\nb\u{1b}[0m"), "ab[0m");
        assert_eq!(sanitize(&"x".repeat(1000)).len(), MAX_TEXT_CHARS);
    }
}
