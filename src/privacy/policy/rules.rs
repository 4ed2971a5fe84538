//! A policy on personal data: its rules, why a text is no policy, and why a policy refuses an event.

use serde::{Deserialize, Serialize};

use crate::model::json_path::Path;
use crate::privacy::policy::detect::Detector;

/// Rules of a policy at most.
pub const MAX_RULES: usize = 32;
/// Bytes of a policy's text at most.
pub const MAX_TEXT_BYTES: usize = 16 * 1024;

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
    #[error("a policy has at most {MAX_TEXT_BYTES} bytes")]
    Long,
    /// No rules, or too many.
    #[error("a policy has 1 to {MAX_RULES} rules, this one has {0}")]
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

    /// Whether a rule names a place in the body.
    pub(super) fn names_places(&self) -> bool {
        self.rules.iter().any(|rule| rule.path.is_some() && rule.action != Action::Allow)
    }
}

/// Why an event is not stored. Names the rule and the place, never the value.
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
    /// Too much of it would be changed.
    #[error(
        "the policy on personal data would change more than {most} places of the body: split it"
    )]
    Many {
        /// How many at most.
        most: usize,
    },
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
