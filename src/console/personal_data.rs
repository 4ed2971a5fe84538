//! The choice of what happens to personal data: a sentence for each of the usual policies, and a field for rules of one's own.

use serde::de::IgnoredAny;

use crate::console::fields::Field;
use crate::console::form::Form;
use crate::console::json::indented;
use crate::console::prelude::*;
use crate::console::texts::Texts;
use crate::privacy::policy::Pii;

/// The value of the choice whose rules are typed.
const OWN: &str = "own";

/// One of the usual policies.
struct Usual {
    /// As the API takes it.
    policy: &'static str,
    /// What it does, in a sentence.
    text: fn(&Texts) -> &'static str,
}

/// The usual policies. The detectors are those of `docs/privacy.md`.
const USUAL: [Usual; 4] = [
    Usual { policy: "allow", text: |t| t.pii_allow },
    Usual {
        policy: r#"{"rules":[{"detect":["email","phone","card","iban"],"action":"seal"}]}"#,
        text: |t| t.pii_seal,
    },
    Usual {
        policy: r#"{"rules":[{"detect":["email","phone","card","iban"],"action":"mask"}]}"#,
        text: |t| t.pii_mask,
    },
    Usual {
        policy: r#"{"rules":[{"detect":["email","phone","card","iban"],"action":"reject"}]}"#,
        text: |t| t.pii_reject,
    },
];

/// The policy that was chosen or typed, as it is stored.
pub(super) fn typed(path: &str, given: &Form) -> String {
    let chosen = given.get(path).unwrap_or_default();
    let text = if chosen == OWN { given.get(&rules_of(path)).unwrap_or_default() } else { chosen };
    canonical(text)
}

/// The choice, with its field for rules.
pub(super) fn show(view: &View<'_>, field: &Field, given: &Form) -> Markup {
    let t = view.t;
    let path = field.path.as_str();
    let policy = typed(path, given);
    let is_usual = USUAL.iter().any(|usual| canonical(usual.policy) == policy);
    let is_own = given.get(path) == Some(OWN) || (!policy.is_empty() && !is_usual);
    let is_json = serde_json::from_str::<IgnoredAny>(&policy).is_ok();
    let rules = match (is_own, is_json) {
        (false, _) => String::new(),
        (true, true) => indented(&policy, usize::MAX),
        // It is shown as it was typed, beside its error.
        (true, false) => policy.clone(),
    };
    html! {
        @for usual in &USUAL {
            label.choice { input type="radio" name=(path) value=(usual.policy) required[field.is_required]
                checked[!is_own && canonical(usual.policy) == policy]; span { ((usual.text)(t)) } }
        }
        label.choice { input type="radio" name=(path) value=(OWN) required[field.is_required] checked[is_own]; span { (t.pii_own) } }
        div.field data-by=(path) data-of=(OWN) {
            label { span { (t.pii_rules) }
                textarea name=(rules_of(path)) rows=(rules.lines().count().clamp(3, 16)) spellcheck="false" { "\n" (rules) } }
        }
    }
}

/// The name of the field for rules.
fn rules_of(path: &str) -> String {
    format!("{path}.rules")
}

/// A policy as it is stored, so that two texts of the same policy are equal; a text that is none stays.
fn canonical(text: &str) -> String {
    let value = match text.trim() {
        "allow" => Value::from("allow"),
        text => serde_json::from_str(text).unwrap_or_default(),
    };
    Pii::from_json(&value).map_or_else(|_| text.trim().to_owned(), |policy| policy.to_string())
}
