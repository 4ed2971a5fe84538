//! Why a policy on personal data refuses an event.

use crate::model::detect::Detector;

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
