//! What can be set of the generic scheme, and what contradicts itself.

use serde::{Deserialize, Serialize};

use super::basic::is_user;
use crate::model::pointer::{Pointer, PointerError};
use crate::model::scheme::encoding::{Encoding, SecretEncoding};
use crate::model::scheme::identity::bounded_type;
use crate::model::scheme::template::{Piece, Template};
use crate::model::signature::Hash;
use crate::model::strict_object;

/// Settings that contradict each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// `{ts}` in the template without a header to take it from.
    #[error("`signed` contains {{ts}}, so `timestamp` must name the header that it comes from")]
    NoTimestamp,
    /// A time that is checked but could be changed by anybody.
    #[error(
        "`timestamp` is set but `signed` does not contain {{ts}}: a time that is not signed proves nothing"
    )]
    TimestampNotSigned,
    /// `{id}` in the template, but the id comes out of the body.
    #[error(
        "`signed` contains {{id}}, so `event_id` must be a header: bodies are read after the check only"
    )]
    IdNotInHeader,
    /// One header cannot name several events.
    #[error("with `items`, `event_id` must be a `pointer` within each item, or `body_hash` of it")]
    IdOfBatch,
    /// A separator that occurs inside signatures.
    #[error(
        "`separator` is `{0}`, which can be part of a signature; use a space, comma or semicolon"
    )]
    Separator(char),
    /// A name that no header can have.
    #[error("`{0}` is not a header name")]
    Header(String),
    /// A user name that basic authentication cannot carry.
    #[error("`user` must have 1 to 255 characters, without a colon or control characters")]
    User,
    /// Ed25519 hashes in its own way.
    #[error("`hash` goes with `hmac`: ed25519 has its own")]
    HashOfEd25519,
    /// A constant that is no event type.
    #[error(
        "the constant event type must have 1 to 128 bytes, no white space or control characters"
    )]
    Constant,
}

/// What can be set, before it is known to fit together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// How the provider proves itself.
    pub check: Check,
    /// Where the provider's id of the event stands; the body's digest unless told.
    #[serde(default)]
    pub event_id: IdPlace,
    /// Where a list of events stands in the body, each taken for itself; `""` is the body itself. A request
    /// is one event unless told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<Items>,
    /// Where the event's type stands; `unknown` unless told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_type: Option<TypePlace>,
}

/// How a provider proves itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Check {
    /// An HMAC over a template.
    Hmac(#[serde(deserialize_with = "strict_object::read")] SignedCheck),
    /// An ed25519 signature over a template; the secret is the public key.
    Ed25519(#[serde(deserialize_with = "strict_object::read")] SignedCheck),
    /// A shared token in a header: `{"token":{"header":"X-Gitlab-Token"}}`.
    Token {
        /// The header that carries it.
        header: String,
        /// What stands before the token, such as `Bearer `.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        prefix: String,
    },
    /// Basic authentication; the secret is the password.
    Basic {
        /// The user name.
        user: String,
    },
}

/// A signature over a template.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignedCheck {
    /// The hash function of an HMAC; SHA-256 unless told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<Hash>,
    /// What is signed.
    pub signed: Template,
    /// The header that carries the signature.
    pub header: String,
    /// What stands before each signature, such as `sha256=`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// How the signature is written; hex unless told.
    #[serde(default)]
    pub encoding: Encoding,
    /// How the secret is written; as its own bytes unless told.
    #[serde(default)]
    pub secret_encoding: SecretEncoding,
    /// What stands between several signatures; there is only one unless told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub separator: Option<char>,
    /// The time that is signed; none is checked unless told.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "strict_object::optional"
    )]
    pub timestamp: Option<TimestampPlace>,
}

/// Where the signed time stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimestampPlace {
    /// The header that carries it.
    pub header: String,
    /// What it counts since 1970; seconds unless told.
    #[serde(default)]
    pub unit: Unit,
}

/// What a time counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Seconds.
    #[default]
    S,
    /// Milliseconds.
    Ms,
}

/// Where the provider's id of an event stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdPlace {
    /// In a header.
    Header(String),
    /// In the JSON body.
    Pointer(Pointer),
    /// Nowhere: the SHA-256 of the body stands for it.
    #[default]
    BodyHash,
}

/// Where a list of events stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Items(Option<Pointer>);

impl Items {
    /// The way to it, step by step.
    pub(super) fn steps(&self) -> Vec<&str> {
        let steps = self.0.as_ref().map(Pointer::steps).unwrap_or_default();
        steps.iter().map(String::as_str).collect()
    }
}

impl TryFrom<String> for Items {
    type Error = PointerError;

    fn try_from(text: String) -> Result<Self, PointerError> {
        (!text.is_empty()).then(|| Pointer::parse(&text)).transpose().map(Self)
    }
}

impl From<Items> for String {
    fn from(items: Items) -> Self {
        items.0.map(Self::from).unwrap_or_default()
    }
}

/// Where an event's type stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TypePlace {
    /// In a header.
    Header(String),
    /// In the JSON body.
    Pointer(Pointer),
    /// It is always this.
    Constant(String),
}

impl Settings {
    /// Whether they fit together.
    pub(super) fn fit(&self) -> Result<(), SettingsError> {
        match &self.check {
            Check::Ed25519(SignedCheck { hash: Some(_), .. }) => {
                return Err(SettingsError::HashOfEd25519);
            }
            Check::Hmac(check) | Check::Ed25519(check) => check.fits(&self.event_id)?,
            Check::Token { header, .. } => header_name(header)?,
            Check::Basic { user } if is_user(user) => {}
            Check::Basic { .. } => return Err(SettingsError::User),
        }
        if let IdPlace::Header(name) = &self.event_id {
            if self.items.is_some() {
                return Err(SettingsError::IdOfBatch);
            }
            header_name(name)?;
        }
        match &self.event_type {
            Some(TypePlace::Header(name)) => header_name(name)?,
            Some(TypePlace::Constant(name)) => {
                if bounded_type(name).as_ref() != Some(name) {
                    return Err(SettingsError::Constant);
                }
            }
            Some(TypePlace::Pointer(_)) | None => {}
        }
        Ok(())
    }
}

impl SignedCheck {
    /// Whether they fit together, and with where the id stands.
    fn fits(&self, event_id: &IdPlace) -> Result<(), SettingsError> {
        header_name(&self.header)?;
        match (&self.timestamp, self.signed.has(&Piece::Time)) {
            (None, true) => return Err(SettingsError::NoTimestamp),
            (Some(_), false) => return Err(SettingsError::TimestampNotSigned),
            (Some(place), true) => header_name(&place.header)?,
            (None, false) => {}
        }
        if self.signed.has(&Piece::Id) && !matches!(event_id, IdPlace::Header(_)) {
            return Err(SettingsError::IdNotInHeader);
        }
        match self.separator {
            Some(letter) if letter.is_alphanumeric() || "+/=_-".contains(letter) => {
                Err(SettingsError::Separator(letter))
            }
            Some(_) | None => Ok(()),
        }
    }
}

fn header_name(name: &str) -> Result<(), SettingsError> {
    http::HeaderName::from_bytes(name.as_bytes())
        .map(drop)
        .map_err(|_why| SettingsError::Header(name.to_owned()))
}
