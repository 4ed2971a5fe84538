//! The rules of a policy on personal data, why a text is not a policy, and why a policy refuses an event.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::words::words;
use crate::model::json_path::Path;
use crate::privacy::policy::detect::Detector;

/// Rules of a policy at most.
pub const MAX_RULES: usize = 32;
/// Bytes of a policy's text at most.
pub const MAX_TEXT_BYTES: usize = 16 * 1024;

words! {
    /// What a rule does with a matched value.
    pub enum Action as "PiiAction" {
        /// Removes it.
        Drop = "drop",
        /// Keeps only a few characters of it.
        Mask = "mask",
        /// Replaces it by a keyed hash: equal values stay equal.
        Hash = "hash",
        /// Seals it under its subject's key; it is opened when the event is sent.
        Seal = "seal",
        /// Refuses the whole event.
        Reject = "reject",
        /// Leaves it unchanged and overrides all other rules.
        Allow = "allow",
    }
}

/// One rule: it applies to the values at a path, or to the matches of detectors (at a path, or anywhere).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "PiiRule", description = "")]
pub struct Rule {
    /// Where to look: `$`, then `.name`, `['name']`, `[n]`, `[*]`, `.*` or `..name`. Fields of a form are members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Path")]
    pub path: Option<Path>,
    /// What to detect in the texts at `path`, or in all texts if it is absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub detect: Vec<Detector>,
    pub action: Action,
}

words! {
    /// Whether to refuse an event or to accept it unchanged.
    #[derive(Default)]
    pub enum RejectOrAllow {
        /// It is refused.
        #[default]
        Reject = "reject",
        /// It is accepted unchanged.
        Allow = "allow",
    }
}

words! {
    /// What is stored of a receiver's answer.
    #[derive(Default)]
    pub enum Answers {
        /// Its beginning, without sealed data and with the matches of detectors masked.
        #[default]
        Mask = "mask",
        /// Nothing.
        Drop = "drop",
    }
}

/// A policy on personal data. The first matching rule applies; `allow` comes before all others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "PiiPolicy", description = "")]
pub struct Policy {
    #[schemars(length(min = 1, max = MAX_RULES))]
    pub rules: Vec<Rule>,
    /// The path of the subject's name; fields are sealed under that subject's key. Without it, an event is its own
    /// subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Path")]
    pub subject: Option<Path>,
    /// What happens to a body that cannot be parsed; `reject` if absent.
    #[serde(default)]
    pub unreadable: RejectOrAllow,
    /// What happens if a detector finds something in an id or key outside the body; `reject` if absent.
    #[serde(default)]
    pub identifiers: RejectOrAllow,
    /// What is kept of receivers' answers. `mask` (if absent): what is not personal; `drop`: nothing.
    #[serde(default)]
    pub answers: Answers,
}

/// Why something is not a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// Neither `allow` nor an object.
    #[error("a policy is \"allow\" or a JSON object with rules")]
    NotOne,
    /// The JSON is not a policy.
    #[error("{0}")]
    Json(String),
    /// Too long.
    #[error("a policy has at most {MAX_TEXT_BYTES} bytes")]
    Long,
    /// No rules, or too many.
    #[error("a policy has 1 to {MAX_RULES} rules, this one has {0}")]
    Rules(usize),
    /// A rule without a path and without detectors.
    #[error("rule {0}: give a path, or what to detect, or both")]
    About(usize),
    /// An `allow` rule without a path, or with detectors.
    #[error("rule {0}: allow takes a path, and nothing to detect")]
    Allow(usize),
}

impl Policy {
    /// The policy, if RFC 9535 allows all of its paths. Stored ones may be of a version that allowed a little more.
    pub fn into_strict(self) -> Result<Self, PolicyError> {
        let paths = self.rules.iter().filter_map(|rule| rule.path.as_ref()).chain(&self.subject);
        for path in paths {
            let strict = path.clone().into_strict();
            strict.map_err(|error| PolicyError::Json(error.to_string()))?;
        }
        Ok(self)
    }

    /// Reads a policy.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(PolicyError::Long);
        }
        let policy: Self =
            serde_json::from_str(text).map_err(|error| PolicyError::Json(error.to_string()))?;
        if policy.rules.is_empty() || policy.rules.len() > MAX_RULES {
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

    /// Whether a rule has a path in the body.
    pub(super) fn has_paths(&self) -> bool {
        self.rules.iter().any(|rule| rule.path.is_some() && rule.action != Action::Allow)
    }
}

/// Why an event is not stored. The text names the rule and the path, never the value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A rule rejects it.
    #[error(
        "rule {rule} of the policy on personal data rejects {}{path}",
        detector.map_or_else(String::new, |kind| format!("what looks like {} at ", named(kind)))
    )]
    Rule {
        /// The rule's number, from 1.
        rule: usize,
        /// The path or position of the value.
        path: String,
        /// The detector that matched, if any.
        detector: Option<Detector>,
    },
    /// The body cannot be searched for paths.
    #[error(
        "the policy on personal data has rules with paths, and this body is neither JSON (nested at most \
         128 deep) nor a form"
    )]
    Unreadable,
    /// The body has too many matches.
    #[error(
        "the policy on personal data would change more than {most} values of the body: split it"
    )]
    Many {
        /// The limit.
        most: usize,
    },
    /// A detector matches in an identifier.
    #[error(
        "{field} looks like {} (rule {rule} of the policy on personal data): it is stored unchanged \
         and must not name a person",
        named(*detector)
    )]
    Identifier {
        /// The identifier's name.
        field: &'static str,
        /// The rule's number, from 1.
        rule: usize,
        /// The detector that matched.
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
