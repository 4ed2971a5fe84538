//! Policies on personal data in requests and answers.

use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::api::problem::Problem;
use crate::api::schema::{Text, values};
use crate::privacy::policy::detect::Detector;
use crate::privacy::policy::{Action, MAX_RULES, Pii};

/// Reads what is stated: `"allow"`, or a policy.
/// Fails with 422 with what is wrong with it.
pub(super) fn read(value: &Value) -> Result<Pii, Problem> {
    Pii::from_json(value).map_err(|error| {
        Problem::unprocessable(format!("The policy on personal data cannot be used: {error}."))
    })
}

/// Writes it as it was stated.
pub(super) fn write<S: Serializer>(pii: &Pii, to: S) -> Result<S::Ok, S::Error> {
    pii.to_json().serialize(to)
}

/// What happens to personal data before it is stored: `allow` stores what comes as it is, or a policy of rules
/// (docs/privacy.md).
#[derive(JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "Pii")]
#[expect(dead_code, reason = "describes what the model reads")]
pub(super) enum PiiForm {
    Word(Allow),
    Policy(PiiPolicy),
}

values! {
    /// The word that stands for no policy.
    Allow = { "type": "string", "enum": ["allow"] }
    /// What happens where a policy cannot decide.
    RejectOrAllow = { "type": "string", "enum": ["reject", "allow"] }
    /// What is kept of answers.
    MaskOrDrop = { "type": "string", "enum": ["mask", "drop"] }
}

#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "describes what the model reads")]
pub(super) struct PiiPolicy {
    #[schemars(length(min = 1, max = MAX_RULES))]
    rules: Vec<PiiRule>,
    /// The path of the name under whose key fields are sealed; without one an event is its own subject.
    #[serde(default)]
    subject: Text<1, 512>,
    /// A body in which no path can be looked for: refused, unless told.
    #[serde(default)]
    unreadable: RejectOrAllow,
    /// An id or key beside the body in which a detector finds something: refused, unless told.
    #[serde(default)]
    identifiers: RejectOrAllow,
    /// What is kept of receivers' answers: what is not personal, unless told to keep nothing.
    #[serde(default)]
    answers: MaskOrDrop,
}

#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "describes what the model reads")]
struct PiiRule {
    /// Where: `$`, then `.name`, `['name']`, `[n]`, `[*]`, `.*` or `..name`. Fields of a form are members.
    #[serde(default)]
    path: Text<1, 512>,
    /// What is looked for in the texts there, or in all.
    #[serde(default)]
    detect: Vec<Detector>,
    action: Action,
}
