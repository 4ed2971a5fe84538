//! What happens to personal data before it is stored: a policy of rules over the places and the texts of a
//! body.
//!
//! A body is never written anew: what a rule changes is spliced into it, and every other byte stays. Not
//! here: keys and ciphers ([`crate::keyring::subject`]), and where a policy is asked (`flow::privacy`).

mod apply;
mod body;
mod echo;
pub mod sealed;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::domain::detect::Detector;
use crate::domain::event::NewEvent;
use crate::domain::json_path::Path;
pub use apply::{Applied, Edit, Finding, Shape, With};
pub use echo::Echo;

/// Rules of a policy at most.
pub const RULES_MOST: usize = 32;
/// Bytes of a policy's text at most.
pub const TEXT_BYTES_MOST: usize = 16 * 1024;

/// What is stated about personal data: nothing is done, or these rules hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Pii {
    /// Everything is stored as it comes.
    #[default]
    Allow,
    /// These rules hold.
    Rules(Arc<Policy>),
}

impl Pii {
    /// The rules, where there are any.
    pub fn rules(&self) -> Option<&Arc<Policy>> {
        match self {
            Self::Allow => None,
            Self::Rules(policy) => Some(policy),
        }
    }

    /// Reads the form in which the file keeps it.
    pub fn parse(text: &str) -> Option<Self> {
        if text == "allow" {
            return Some(Self::Allow);
        }
        Policy::parse(text).ok().map(|policy| Self::Rules(Arc::new(policy)))
    }

    /// Reads it from JSON: `"allow"`, or an object.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_json(value: &serde_json::Value) -> Result<Self, PolicyError> {
        match value {
            serde_json::Value::String(word) if word == "allow" => Ok(Self::Allow),
            serde_json::Value::Object(_) => {
                Policy::parse(&value.to_string()).map(|policy| Self::Rules(Arc::new(policy)))
            }
            _ => Err(PolicyError::NotOne),
        }
    }

    /// As JSON.
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Allow => "allow".into(),
            Self::Rules(policy) => serde_json::to_value(&**policy).unwrap_or_default(),
        }
    }
}

/// The form in which the file keeps it.
impl fmt::Display for Pii {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allow => f.write_str("allow"),
            Self::Rules(_) => write!(f, "{}", self.to_json()),
        }
    }
}

/// What a rule does with what it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Leaves it out.
    Drop,
    /// Leaves a few characters of it.
    Mask,
    /// Puts a keyed hash in its place: equal values stay equal.
    Hash,
    /// Keeps it under its subject's key; it is opened in what is sent.
    Seal,
    /// Refuses the whole event.
    Reject,
    /// Leaves it as it is, whatever other rules say.
    Allow,
}

impl Action {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Drop, Self::Mask, Self::Hash, Self::Seal, Self::Reject, Self::Allow];

    /// The word in a policy.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Mask => "mask",
            Self::Hash => "hash",
            Self::Seal => "seal",
            Self::Reject => "reject",
            Self::Allow => "allow",
        }
    }
}

/// One rule: what stands at a path, or what detectors find (at a path, or anywhere).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The places it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<Path>,
    /// What is looked for in the texts there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub detect: Vec<Detector>,
    /// What is done with it.
    pub action: Action,
}

/// Refuse something, or take it as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Otherwise {
    /// It is refused.
    #[default]
    Reject,
    /// It is taken as it is.
    Allow,
}

/// What is kept of a receiver's answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answers {
    /// Its beginning, with what was sealed and what detectors find taken out.
    #[default]
    Mask,
    /// Nothing.
    Drop,
}

/// What happens to personal data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// The first that matches counts; `allow` before all others.
    pub rules: Vec<Rule>,
    /// Where the name of the person stands under whose key fields are sealed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<Path>,
    /// A body in which no path can be looked for.
    #[serde(default)]
    pub unreadable: Otherwise,
    /// An id, key or other word beside the body in which a detector finds something.
    #[serde(default)]
    pub identifiers: Otherwise,
    /// What receivers answer.
    #[serde(default)]
    pub answers: Answers,
}

/// Why something is not a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// Neither the word nor an object.
    #[error("a policy is \"allow\" or a JSON object with rules")]
    NotOne,
    /// Not the JSON of one.
    #[error("{0}")]
    Json(String),
    /// Too long.
    #[error("a policy has at most {TEXT_BYTES_MOST} bytes")]
    Long,
    /// No rules, or too many.
    #[error("a policy has 1 to {RULES_MOST} rules, this one has {0}")]
    Rules(usize),
    /// A rule about nothing.
    #[error("rule {0}: give a path, or what to detect, or both")]
    About(usize),
    /// An exception that is no place.
    #[error("rule {0}: allow takes a path, and nothing to detect")]
    Allow(usize),
}

impl Policy {
    /// Reads a policy.
    ///
    /// # Errors
    /// What is wrong with it; a path that is wrong is named with the place in it.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        if text.len() > TEXT_BYTES_MOST {
            return Err(PolicyError::Long);
        }
        let policy: Self =
            serde_json::from_str(text).map_err(|error| PolicyError::Json(error.to_string()))?;
        if policy.rules.is_empty() || policy.rules.len() > RULES_MOST {
            return Err(PolicyError::Rules(policy.rules.len()));
        }
        for (n, rule) in (1..).zip(&policy.rules) {
            if rule.path.is_none() && rule.detect.is_empty() {
                return Err(PolicyError::About(n));
            }
            if rule.action == Action::Allow && (rule.path.is_none() || !rule.detect.is_empty()) {
                return Err(PolicyError::Allow(n));
            }
        }
        Ok(policy)
    }

    /// Whether a rule names a place in the body.
    fn names_places(&self) -> bool {
        self.rules.iter().any(|rule| rule.path.is_some() && rule.action != Action::Allow)
    }

    /// What is left of a text that is kept but never sent, such as a header field or a receiver's answer: all
    /// that a detector of the policy finds is masked.
    pub fn masked(&self, text: &str) -> Option<String> {
        let mut masked = String::new();
        let mut past = 0;
        for found in self.found_in(text) {
            masked.push_str(text.get(past..found.span.start).unwrap_or_default());
            masked.push_str(&found.detector.mask(text.get(found.span.clone()).unwrap_or_default()));
            past = found.span.end;
        }
        if past == 0 {
            return None;
        }
        masked.push_str(text.get(past..).unwrap_or_default());
        Some(masked)
    }

    /// A reason as it may be kept: without what it quotes, which can be anything that came in.
    pub fn told(&self, reason: &str) -> String {
        let bare = unquoted(reason);
        self.masked(&bare).unwrap_or(bare)
    }

    /// Looks through the words beside the body, which are stored as they are given.
    ///
    /// # Errors
    /// The first in which a detector finds something, unless the policy takes them.
    pub fn check_identifiers(&self, words: &[(&'static str, Option<&str>)]) -> Result<(), Refused> {
        if self.identifiers == Otherwise::Allow {
            return Ok(());
        }
        for &(field, word) in words {
            if let Some(found) = word.and_then(|word| self.found_in(word).into_iter().next()) {
                let (rule, detector) = (found.rule + 1, found.detector);
                return Err(Refused::Identifier { field, rule, detector });
            }
        }
        Ok(())
    }

    /// Why an event that stands in the file already cannot be taken; `None`: nothing in it is personal by this
    /// policy. What would be changed is too late to change.
    pub fn objects_to(
        &self,
        event: &NewEvent,
        other_words: &[(&'static str, Option<String>)],
    ) -> Option<String> {
        const TOO_LATE: &str = "its text stands in the database as it was inserted, and discarding it does not \
                                take it back: publish such events over HTTP or let a source read them";
        let other = other_words.iter().map(|(field, word)| (*field, word.as_deref()));
        let words: Vec<_> = event.words().into_iter().chain(other).collect();
        let refused = self.check_identifiers(&words).err();
        let applied = self.apply(&event.content_type, &event.payload, &|_| String::new(), true);
        let reason = match (refused, applied) {
            (Some(refused), _) | (None, Err(refused)) => refused.to_string(),
            (None, Ok(applied)) => {
                let Finding { rule, path, .. } = applied.findings.first()?;
                format!("rule {rule} of the policy on personal data is about what stands at {path}")
            }
        };
        Some(format!("{reason}; {TOO_LATE}"))
    }

    /// Refuses where a rule that rejects finds something in a header field.
    ///
    /// # Errors
    /// The rule and the field.
    pub fn check_header(&self, name: &str, value: &str) -> Result<(), Refused> {
        let rejects = |found: &apply::Found| {
            self.rules.get(found.rule).is_some_and(|rule| rule.action == Action::Reject)
        };
        match self.found_in(value).into_iter().find(rejects) {
            Some(found) => Err(Refused::Rule {
                rule: found.rule + 1,
                path: format!("the header field {name}"),
                detector: Some(found.detector),
            }),
            None => Ok(()),
        }
    }
}

/// A text with nothing in its quotation marks. What is not closed goes to the end.
fn unquoted(text: &str) -> String {
    let mut bare = String::with_capacity(text.len());
    let (mut is_inside, mut is_escaped) = (false, false);
    for letter in text.chars() {
        match (is_inside, letter) {
            (false, '"') => {
                is_inside = true;
                bare.push_str("\"…\"");
            }
            (false, letter) => bare.push(letter),
            (true, '"') if !is_escaped => is_inside = false,
            (true, _) => {}
        }
        is_escaped = is_inside && letter == '\\' && !is_escaped;
    }
    bare
}

/// Why an event is not stored. Names the rule and the place, never what stands there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A rule rejects it.
    #[error(
        "rule {rule} of the policy on personal data rejects {}{path}",
        detector.map_or_else(String::new, |kind| format!("what looks like {} at ", named(kind)))
    )]
    Rule {
        /// Which, from 1.
        rule: usize,
        /// Where.
        path: String,
        /// What was found there.
        detector: Option<Detector>,
    },
    /// No path can be looked for.
    #[error(
        "the policy on personal data names places in the body, and this body is neither JSON (nested at most \
         128 deep) nor a form"
    )]
    Unreadable,
    /// A word beside the body.
    #[error(
        "{field} looks like {} (rule {rule} of the policy on personal data): it is stored as it is given \
         and must name nobody",
        named(*detector)
    )]
    Identifier {
        /// Its name.
        field: &'static str,
        /// Which rule, from 1.
        rule: usize,
        /// What was found in it.
        detector: Detector,
    },
}

fn named(detector: Detector) -> &'static str {
    match detector {
        Detector::Email => "an e-mail address",
        Detector::Phone => "a telephone number",
        Detector::Card => "a card number",
        Detector::Iban => "an IBAN",
    }
}

/// The key of a subject that is not in the file yet, sealed for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSubjectKey {
    /// Whose subject it is.
    pub tenant: String,
    /// The subject's name, as the file keeps it: an HMAC.
    pub subject: [u8; 32],
    /// The key's name.
    pub key_id: [u8; 16],
    /// The key, sealed under the master key.
    pub sealed: Vec<u8>,
    /// Which.
    pub master_key_id: String,
}

/// What of an event is sealed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sealed {
    /// How many places of the body.
    pub fields: u32,
    /// The key they are sealed under, where it has to be stored with the event.
    pub key: Option<Arc<NewSubjectKey>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_read_and_written_the_same() {
        let text = r#"{"rules":[{"path":"$..iban","action":"seal"},{"detect":["email"],"action":"mask"},{"path":"$.shop","action":"allow"}],"subject":"$.customer.id","unreadable":"reject","identifiers":"allow","answers":"drop"}"#;
        let pii = Pii::parse(text).unwrap();
        assert_eq!(pii.to_string(), text);
        assert_eq!(Pii::from_json(&pii.to_json()).unwrap(), pii);
        assert_eq!(Pii::parse("allow"), Some(Pii::Allow));
        assert_eq!(Pii::Allow.to_json(), "allow");
    }

    #[test]
    fn what_is_no_policy_is_refused_with_the_reason() {
        for (text, reason) in [
            (r#"{"rules":[]}"#, "1 to 32 rules"),
            (r#"{"rules":[{"action":"mask"}]}"#, "rule 1: give a path"),
            (r#"{"rules":[{"detect":["email"],"action":"allow"}]}"#, "rule 1: allow takes a path"),
            (r#"{"rules":[{"path":"$.a[-1]","action":"mask"}]}"#, "character 5"),
            (r#"{"rules":[{"path":"$.a","action":"burn"}]}"#, "unknown variant `burn`"),
            (r#"{"rules":[{"path":"$.a","action":"mask","x":1}]}"#, "unknown field `x`"),
            (r#"{"rules":[{"detect":["ssn"],"action":"mask"}]}"#, "unknown variant `ssn`"),
        ] {
            let error = Policy::parse(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
        assert_eq!(Pii::from_json(&serde_json::json!("deny")), Err(PolicyError::NotOne));
    }

    #[test]
    fn texts_beside_the_body_are_masked_or_refused() {
        let policy =
            Policy::parse(r#"{"rules":[{"detect":["email","card"],"action":"seal"}]}"#).unwrap();
        assert_eq!(
            policy.masked("no a@example.org and 4111111111111111!").as_deref(),
            Some("no ***@example.org and ***1111!")
        );
        assert_eq!(policy.masked("nothing"), None);
        let reason = r#"id was "a \"b\" c" and x is "y", not b@x.org or "z"#;
        assert_eq!(policy.told(reason), r#"id was "…" and x is "…", not ***@x.org or "…""#);
        let words =
            [("aggregate_id", Some("17")), ("idempotency_key", Some("order of a@example.org"))];
        let refused = policy.check_identifiers(&words).unwrap_err().to_string();
        assert!(refused.starts_with("idempotency_key looks like an e-mail address"), "{refused}");
        assert!(!refused.contains("example.org"));
    }
}
