//! Policies on personal data in requests and answers: how they are read, and what the document says of them.

use serde_json::{Value, json};

use crate::api::problem::Problem;
use crate::api::schema;
use crate::privacy::policy::detect::Detector;
use crate::privacy::policy::{Action, MAX_RULES, Pii};

/// Reads what is stated: `"allow"`, or a policy.
///
/// # Errors
/// 422 with what is wrong with it.
pub(super) fn read(value: &Value) -> Result<Pii, Problem> {
    Pii::from_json(value).map_err(|error| {
        Problem::unprocessable(format!("The policy on personal data cannot be used: {error}."))
    })
}

/// What is stated, as a field.
pub(super) fn stated() -> Value {
    let schema = json!({ "oneOf": [{ "const": "allow" }, schema::of("PiiPolicy")] });
    let about = "What happens to personal data before it is stored: `allow` stores what comes as it is, or a \
                 policy of rules (docs/privacy.md).";
    schema::about(schema, about)
}

/// A policy.
pub(super) fn policy() -> Value {
    let path = schema::about(
        schema::text_of(1, 512),
        "Where: `$`, then `.name`, `['name']`, `[n]`, `[*]`, `.*` or `..name`. Fields of a form are members.",
    );
    let detect = schema::about(
        schema::list(schema::words(Detector::ALL.map(Detector::as_str))),
        "What is looked for in the texts there, or in all.",
    );
    let rule = schema::request(
        &["action"],
        json!({
            "path": path, "detect": detect, "action": schema::words(Action::ALL.map(Action::as_str)),
        }),
    );
    let mut rules = schema::list(rule);
    if let Value::Object(fields) = &mut rules {
        fields.insert("minItems".to_owned(), 1.into());
        fields.insert("maxItems".to_owned(), MAX_RULES.into());
    }
    let otherwise = |about: &str| schema::about(schema::words(["reject", "allow"]), about);
    let subject = schema::about(
        schema::text_of(1, 512),
        "The path of the name under whose key fields are sealed; without one an event is its own subject.",
    );
    schema::request(
        &["rules"],
        json!({
            "rules": rules, "subject": subject,
            "unreadable": otherwise("A body in which no path can be looked for: refused, unless told."),
            "identifiers": otherwise(
                "An id or key beside the body in which a detector finds something: refused, unless told."),
            "answers": schema::about(
                schema::words(["mask", "drop"]),
                "What is kept of receivers' answers: what is not personal, unless told to keep nothing."),
        }),
    )
}
