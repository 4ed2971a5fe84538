//! Policies on personal data: rules over the paths and texts of a body, applied before the body is stored.
//!
//! A body is never re-serialised: changes are spliced into it, and every other byte stays. Not here: keys and ciphers
//! ([`crate::keys::subject`]), and when a policy is applied ([`crate::privacy`]).

mod body;
pub mod detect;
mod matching;
mod metadata;
mod response_scrub;
mod rules;

use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::base::schema::values;

pub use body::{Applied, Shape};
pub use matching::{Edit, Finding, With};
pub use response_scrub::ResponseScrub;
pub use rules::{Policy, PolicyError, Refused};

/// What happens to personal data before it is stored: `allow` stores it unchanged, a policy applies its rules
/// (docs/privacy.md).
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[schemars(untagged)]
pub enum Pii {
    // Everything is stored unchanged.
    #[default]
    #[schemars(with = "AllowWord")]
    Allow,
    // These rules apply.
    #[schemars(with = "Policy")]
    Rules(Arc<Policy>),
}

impl Pii {
    /// The rules, if there are any.
    pub fn rules(&self) -> Option<&Arc<Policy>> {
        match self {
            Self::Allow => None,
            Self::Rules(policy) => Some(policy),
        }
    }

    /// Reads the stored form.
    pub fn parse(text: &str) -> Option<Self> {
        if text == "allow" {
            return Some(Self::Allow);
        }
        Policy::parse(text).ok().map(|policy| Self::Rules(Arc::new(policy)))
    }

    /// Reads it from JSON: `"allow"`, or an object.
    pub fn from_json(value: &serde_json::Value) -> Result<Self, PolicyError> {
        match value {
            serde_json::Value::String(word) if word == "allow" => Ok(Self::Allow),
            serde_json::Value::Object(_) => {
                let policy = Policy::parse(&value.to_string())?.into_strict()?;
                Ok(Self::Rules(Arc::new(policy)))
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

impl Serialize for Pii {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.to_json().serialize(to)
    }
}

impl<'de> Deserialize<'de> for Pii {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let read = Self::from_json(&serde_json::Value::deserialize(from)?);
        let unusable = |error| format!("The `pii` policy on personal data cannot be used: {error}");
        read.map_err(|error| D::Error::custom(unusable(error)))
    }
}

values! {
    /// The word for no policy.
    AllowWord = { "type": "string", "enum": ["allow"] }
}

/// The stored form.
impl fmt::Display for Pii {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allow => f.write_str("allow"),
            Self::Rules(_) => write!(f, "{}", self.to_json()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_survives_its_stored_form() {
        let text = r#"{"rules":[{"path":"$..iban","action":"seal"},{"detect":["email"],"action":"mask"},{"path":"$.shop","action":"allow"}],"subject":"$.customer.id","unreadable":"reject","identifiers":"allow","answers":"drop"}"#;
        let pii = Pii::parse(text).unwrap();
        assert_eq!(pii.to_string(), text);
        assert_eq!(Pii::from_json(&pii.to_json()).unwrap(), pii);
        assert_eq!(Pii::parse("allow"), Some(Pii::Allow));
        assert_eq!(Pii::Allow.to_json(), "allow");
    }

    #[test]
    fn an_invalid_policy_is_refused_with_the_reason() {
        for (text, reason) in [
            (r#"{"rules":[]}"#, "1 to 32 rules"),
            (r#"{"rules":[{"action":"mask"}]}"#, "rule 1: give a path"),
            (r#"{"rules":[{"detect":["email"],"action":"allow"}]}"#, "rule 1: allow takes a path"),
            (r#"{"rules":[{"path":"$.a[-1]","action":"mask"}]}"#, "character 5"),
            (r#"{"rules":[{"path":"$.1a","action":"mask"}]}"#, "character 3"),
            (r#"{"rules":[{"path":"$.a","action":"mask"}],"subject":"$[01]"}"#, "character 5"),
            (r#"{"rules":[{"path":"$.a","action":"burn"}]}"#, "unknown variant `burn`"),
            (r#"{"rules":[{"path":"$.a","action":"mask","x":1}]}"#, "unknown field `x`"),
            (r#"{"rules":[{"detect":["ssn"],"action":"mask"}]}"#, "unknown variant `ssn`"),
        ] {
            let given = serde_json::from_str(text).unwrap();
            let error = Pii::from_json(&given).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
        assert_eq!(Pii::from_json(&serde_json::json!("deny")), Err(PolicyError::NotOne));
    }
}
