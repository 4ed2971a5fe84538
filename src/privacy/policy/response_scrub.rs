//! Removes sealed data from a receiver's answer. The beginning of the answer is stored, and a receiver may quote what
//! it was sent.

use std::sync::Arc;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use zeroize::Zeroizing;

use crate::model::json::{Cursor, JsonKind, unescaped};
use crate::model::sealed::{Form, SHOWN};
use crate::privacy::policy::rules::{Answers, Policy};

/// Shorter values are not removed: they would occur in every answer.
const MIN_CHARS: usize = 3;

/// What to remove from an answer.
#[derive(Default)]
pub struct ResponseScrub {
    /// Values that were opened for sending, the longest first.
    values: Vec<Zeroizing<String>>,
    policy: Option<Arc<Policy>>,
}

impl std::fmt::Debug for ResponseScrub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ResponseScrub({} values)", self.values.len())
    }
}

impl ResponseScrub {
    /// Masks what the policy's detectors match.
    pub fn of(policy: Option<Arc<Policy>>) -> Self {
        Self { values: Vec::new(), policy }
    }

    /// Whether there is nothing to remove.
    pub fn is_idle(&self) -> bool {
        self.values.is_empty() && self.policy.is_none()
    }

    /// Adds a value that was opened and is sent.
    pub fn opened(&mut self, form: Form, plain: &[u8]) {
        let Ok(plain) = std::str::from_utf8(plain) else { return };
        match (form, Cursor::of(plain.as_bytes())) {
            (Form::Value, Some(cursor)) => self.add_json(cursor),
            _ => self.add(plain),
        }
        self.values.sort_by_key(|value| std::cmp::Reverse(value.len()));
    }

    /// Adds every text and number of a JSON value, but not the names of members.
    fn add_json(&mut self, mut cursor: Cursor<'_>) {
        while let Some(byte) = cursor.peek() {
            if b"{}[],:".contains(&byte) {
                cursor.eats(byte);
                continue;
            }
            let kind = cursor.kind();
            let span = cursor.value();
            let raw = cursor.text(&span);
            if cursor.peek() == Some(b':') || matches!(raw, "true" | "false" | "null") {
                continue;
            }
            match (kind, unescaped(raw)) {
                (JsonKind::Text, Some(text)) => {
                    self.add(raw.trim_matches('"'));
                    self.add(&text);
                }
                _ => self.add(raw),
            }
        }
    }

    fn add(&mut self, text: &str) {
        let encoded = utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        for form in [text.to_owned(), encoded] {
            let known = self.values.iter().any(|value| **value == form);
            if form.chars().count() >= MIN_CHARS && !known {
                self.values.push(Zeroizing::new(form));
            }
        }
    }

    /// An answer without the opened values and the matches of detectors; empty if the policy stores no answers.
    pub fn clean(&self, text: String) -> String {
        if self.policy.as_ref().is_some_and(|policy| policy.answers == Answers::Drop) {
            return String::new();
        }
        self.clean_reason(text)
    }

    /// Like [`ResponseScrub::clean`], but never empty: for the reason of a failure.
    pub fn clean_reason(&self, mut text: String) -> String {
        for value in &self.values {
            text = without(text, value);
        }
        let masked = self.policy.as_ref().and_then(|policy| policy.masked(&text));
        masked.unwrap_or(text)
    }
}

/// A text without another one, compared without ASCII case.
fn without(text: String, removed: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let removed = removed.to_ascii_lowercase();
    if !lower.contains(&removed) {
        return text;
    }
    let mut left = String::with_capacity(text.len());
    let mut past = 0;
    for (at, found) in lower.match_indices(&removed) {
        left.push_str(text.get(past..at).unwrap_or_default());
        left.push_str(SHOWN);
        past = at + found.len();
    }
    left.push_str(text.get(past..).unwrap_or_default());
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opened_values_are_removed_from_an_answer() {
        let mut echo = ResponseScrub::default();
        echo.opened(Form::Value, r#"{"email":"Jane.Roe@x.org","no":471100,"ok":true}"#.as_bytes());
        echo.opened(Form::Value, r#""M\u00fcller""#.as_bytes());
        echo.opened(Form::Part, b"ab");
        let answer =
            "email jane.roe@X.org (Jane%2ERoe%40x%2Eorg) of Müller, 471100: ab, M\\u00FCller";
        let clean = echo.clean(answer.to_owned());
        assert_eq!(clean, "email [sealed] ([sealed]) of [sealed], [sealed]: ab, [sealed]");
    }

    #[test]
    fn matches_are_masked_and_a_policy_may_drop_answers() {
        let policy = |answers: &str| {
            let text = format!(
                r#"{{"rules":[{{"detect":["email"],"action":"hash"}}],"answers":"{answers}"}}"#
            );
            ResponseScrub::of(Some(Arc::new(Policy::parse(&text).unwrap())))
        };
        assert_eq!(policy("mask").clean("no a@x.org".to_owned()), "no ***@x.org");
        assert_eq!(policy("drop").clean("anything".to_owned()), "");
        assert!(ResponseScrub::default().is_idle() && !policy("mask").is_idle());
    }
}
