//! What a receiver says of what it was sent: the beginning of its answer is kept, and what was sealed must not
//! come back into the file that way.

use std::sync::Arc;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use zeroize::Zeroizing;

use crate::model::json::{Cursor, Kind, unescaped};
use crate::model::sealed::{Form, SHOWN};
use crate::privacy::policy::rules::{Answers, Policy};

/// Values shorter than this would take apart every answer; they are left.
const CHARS_LEAST: usize = 3;

/// What is taken out of an answer.
#[derive(Default)]
pub struct ResponseScrub {
    /// What was opened for sending, the longest first.
    spoken: Vec<Zeroizing<String>>,
    policy: Option<Arc<Policy>>,
}

impl std::fmt::Debug for ResponseScrub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ResponseScrub({} values)", self.spoken.len())
    }
}

impl ResponseScrub {
    /// What the policy finds.
    pub fn of(policy: Option<Arc<Policy>>) -> Self {
        Self { spoken: Vec::new(), policy }
    }

    /// Whether anything is to be taken out.
    pub fn is_idle(&self) -> bool {
        self.spoken.is_empty() && self.policy.is_none()
    }

    /// Something was opened and is sent.
    pub fn opened(&mut self, form: Form, plain: &[u8]) {
        let Ok(plain) = std::str::from_utf8(plain) else { return };
        match (form, Cursor::of(plain.as_bytes())) {
            (Form::Value, Some(cursor)) => self.values(cursor),
            _ => self.add(plain),
        }
        self.spoken.sort_by_key(|spoken| std::cmp::Reverse(spoken.len()));
    }

    /// Every text and number of a JSON value; names of members are not about anybody.
    fn values(&mut self, mut cursor: Cursor<'_>) {
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
                (Kind::Text, Some(text)) => {
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
            let known = self.spoken.iter().any(|spoken| **spoken == form);
            if form.chars().count() >= CHARS_LEAST && !known {
                self.spoken.push(Zeroizing::new(form));
            }
        }
    }

    /// A text without what was opened and what detectors find; nothing where the policy keeps no answers.
    pub fn clean(&self, text: String) -> String {
        if self.policy.as_ref().is_some_and(|policy| policy.answers == Answers::Drop) {
            return String::new();
        }
        self.clean_reason(text)
    }

    /// The same where something has to be told.
    pub fn clean_reason(&self, mut text: String) -> String {
        for spoken in &self.spoken {
            text = without(text, spoken);
        }
        let masked = self.policy.as_ref().and_then(|policy| policy.masked(&text));
        masked.unwrap_or(text)
    }
}

/// A text without another, in whatever case its plain letters are.
fn without(text: String, taken: &str) -> String {
    let (lower, taken) = (text.to_ascii_lowercase(), taken.to_ascii_lowercase());
    if !lower.contains(&taken) {
        return text;
    }
    let mut left = String::with_capacity(text.len());
    let mut past = 0;
    for (at, found) in lower.match_indices(&taken) {
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
    fn what_was_opened_does_not_come_back() {
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
    fn what_detectors_find_is_masked_and_answers_may_not_be_kept_at_all() {
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
