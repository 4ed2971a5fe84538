//! Policies on personal data in requests and answers.

use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::api::problem::Problem;
use crate::api::schema::{Text, values};
use crate::privacy::policy::detect::Detector;
use crate::privacy::policy::{Action, MAX_RULES, Pii};

/// Reads `"allow"` or a policy.
/// Fails with 422 that says what is wrong with it.
pub(super) fn read(value: &Value) -> Result<Pii, Problem> {
    Pii::from_json(value).map_err(|error| {
        Problem::unprocessable(format!("The policy on personal data cannot be used: {error}."))
    })
}

/// Writes a policy in the form that requests have.
pub(super) fn write<S: Serializer>(pii: &Pii, to: S) -> Result<S::Ok, S::Error> {
    pii.to_json().serialize(to)
}

/// What happens to personal data before it is stored: `allow` stores it unchanged, a policy applies its rules
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
    /// The word for no policy.
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
    /// The path of the subject's name; fields are sealed under that subject's key. Without it, an event is its own
    /// subject.
    #[serde(default)]
    subject: Text<1, 512>,
    /// What happens to a body that cannot be parsed; `reject` if absent.
    #[serde(default)]
    unreadable: RejectOrAllow,
    /// What happens if a detector finds something in an id or key outside the body; `reject` if absent.
    #[serde(default)]
    identifiers: RejectOrAllow,
    /// What is kept of receivers' answers. `mask` (if absent): what is not personal; `drop`: nothing.
    #[serde(default)]
    answers: MaskOrDrop,
}

#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "describes what the model reads")]
struct PiiRule {
    /// Where to look: `$`, then `.name`, `['name']`, `[n]`, `[*]`, `.*` or `..name`. Fields of a form are members.
    #[serde(default)]
    path: Text<1, 512>,
    /// What to detect in the texts at `path`, or in all texts if it is absent.
    #[serde(default)]
    detect: Vec<Detector>,
    action: Action,
}
