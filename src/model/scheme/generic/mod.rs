//! The scheme that is put together from settings, for providers that have none of their own here.
//!
//! Not here: signatures in a body or over sorted form fields; those are schemes of their own.

mod basic;
mod settings;
mod signed;

use serde::{Deserialize, Serialize};

use super::check::{Verified, long_enough};
use super::incoming::Incoming;
use super::refused::{Refused, malformed, needed};
use super::shared;
use super::template::Piece;
use crate::base::clock::Timestamp;
use crate::model::signature::{SecretError, same_secret};

pub(super) use basic::{check_password, is_user};
pub use settings::{Check, IdPlace, Items, Settings, SettingsError, TypePlace};

/// Settings of the generic scheme, checked against each other.
///
/// ```
/// use oncebox::model::scheme::Scheme;
/// let slack: Scheme = serde_json::from_str(
///     r#"{
///         "kind": "generic",
///         "check": {"hmac": {
///             "signed": "v0:{ts}:{body}",
///             "header": "X-Slack-Signature",
///             "prefix": "v0=",
///             "timestamp": {"header": "X-Slack-Request-Timestamp", "unit": "s"}
///         }},
///         "event_id": {"pointer": "/event_id"},
///         "event_type": {"pointer": "/event/type"}
///     }"#,
/// )?;
/// assert_eq!(slack.kind(), "generic");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Settings", into = "Settings")]
pub struct Generic(Settings);

impl TryFrom<Settings> for Generic {
    type Error = SettingsError;

    fn try_from(settings: Settings) -> Result<Self, SettingsError> {
        settings.fit()?;
        Ok(Self(settings))
    }
}

impl From<Generic> for Settings {
    fn from(generic: Generic) -> Self {
        generic.0
    }
}

impl Generic {
    /// The settings that it was made from.
    pub fn settings(&self) -> &Settings {
        &self.0
    }

    pub(super) fn check_secret(&self, text: &str) -> Result<(), SecretError> {
        match &self.0.check {
            Check::Hmac(check) => long_enough(check.secret_encoding.key(text.as_bytes())?.len()),
            Check::Ed25519(check) => check.public_key(text).map(drop),
            Check::Token { .. } => long_enough(text.len()),
            Check::Basic { .. } => check_password(text),
        }
    }

    pub(super) fn verify(
        &self,
        secrets: &[&[u8]],
        incoming: &Incoming<'_>,
    ) -> Result<Verified, Refused> {
        match &self.0.check {
            Check::Hmac(check) => check.verify_hmac(secrets, incoming, &self.0.event_id),
            Check::Ed25519(check) => check.verify_ed25519(secrets, incoming, &self.0.event_id),
            Check::Token { header, prefix } => {
                let value = needed(incoming.headers, header)?;
                let token = value
                    .strip_prefix(prefix.as_str())
                    .ok_or_else(|| malformed(header, "its prefix is another one"))?;
                shared::matching(secrets, |secret| same_secret(token.as_bytes(), secret))
            }
            Check::Basic { user } => shared::basic(user, secrets, incoming),
        }
    }

    /// What is signed, where the id stands in a header that is not.
    pub(super) fn signed_without_id<'a>(
        &'a self,
        incoming: &Incoming<'a>,
    ) -> Option<Vec<&'a [u8]>> {
        let (Check::Hmac(check) | Check::Ed25519(check)) = &self.0.check else { return None };
        let IdPlace::Header(id) = &self.0.event_id else { return None };
        let covers_id = check.signed.pieces().iter().any(|piece| match piece {
            Piece::Id => true,
            Piece::Header(name) => name.eq_ignore_ascii_case(id),
            _ => false,
        });
        if covers_id {
            return None;
        }
        check.parts(incoming, &self.0.event_id).ok().map(|(parts, _)| parts)
    }

    /// The time that a request says it was signed at.
    pub(super) fn claimed_time(&self, incoming: &Incoming<'_>) -> Option<Timestamp> {
        let (Check::Hmac(check) | Check::Ed25519(check)) = &self.0.check else { return None };
        check.timestamp.as_ref()?.read(incoming).ok().map(|(_, at)| at)
    }

    /// Where a list of events stands, step by step.
    pub(super) fn items(&self) -> Option<Vec<&str>> {
        self.0.items.as_ref().map(Items::steps)
    }

    /// The header fields that are kept: what id, type and time stand in, never what proves anything.
    pub(super) fn kept(&self) -> Vec<&str> {
        let proof = match &self.0.check {
            Check::Hmac(check) | Check::Ed25519(check) => check.header.as_str(),
            Check::Token { header, .. } => header,
            Check::Basic { .. } => "authorization",
        };
        let id = match &self.0.event_id {
            IdPlace::Header(name) => Some(name.as_str()),
            IdPlace::Pointer(_) | IdPlace::BodyHash => None,
        };
        let event_type = match &self.0.event_type {
            Some(TypePlace::Header(name)) => Some(name.as_str()),
            Some(TypePlace::Pointer(_) | TypePlace::Constant(_)) | None => None,
        };
        let secret = |name: &&str| {
            name.eq_ignore_ascii_case(proof) || name.eq_ignore_ascii_case("authorization")
        };
        id.into_iter().chain(event_type).filter(|name| !secret(name)).collect()
    }

    pub(super) fn identify(&self, incoming: &Incoming<'_>) -> (Option<String>, Option<String>) {
        let header = |name: &str| incoming.headers.get(name).map(str::to_owned);
        let event_id = match &self.0.event_id {
            IdPlace::Header(name) => header(name),
            IdPlace::Pointer(pointer) => pointer.text_in(incoming.body),
            IdPlace::BodyHash => None,
        };
        let event_type = self.0.event_type.as_ref().and_then(|place| match place {
            TypePlace::Header(name) => header(name),
            TypePlace::Pointer(pointer) => pointer.text_in(incoming.body),
            TypePlace::Constant(name) => Some(name.clone()),
        });
        (event_id, event_type)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refuse(settings: &str) -> String {
        serde_json::from_str::<Generic>(settings).unwrap_err().to_string()
    }

    #[test]
    fn settings_that_contradict_each_other_are_refused() {
        let hmac =
            |more: &str| refuse(&format!(r#"{{"check":{{"hmac":{{"header":"X",{more}}}}}}}"#));
        assert!(hmac(r#""signed":"{ts}{body}""#).contains("`timestamp` must name the header"));
        let unsigned = hmac(r#""signed":"{body}","timestamp":{"header":"T"}"#);
        assert!(unsigned.contains("a time that is not signed proves nothing"));
        assert!(hmac(r#""signed":"{id}{body}""#).contains("`event_id` must be a header"));
        assert!(
            hmac(r#""signed":"{body}","separator":"a""#).contains("can be part of a signature")
        );
        assert!(hmac(r#""signed":"{bdy}""#).contains("there are {id}, {ts}, {method}"));
        assert!(hmac(r#""signed":"{body}","hsh":"sha1""#).contains("unknown field `hsh`"));
        assert!(hmac(r#""signed":"{body}","hash":"md5""#).contains("expected one of `sha1`"));
    }

    #[test]
    fn wrong_names_are_refused() {
        assert!(
            refuse(r#"{"check":{"token":{"header":"a b"}}}"#).contains("`a b` is not a header")
        );
        assert!(refuse(r#"{"check":{"basic":{"user":"a:b"}}}"#).contains("colon"));
        let long = "u".repeat(256);
        assert!(refuse(&format!(r#"{{"check":{{"basic":{{"user":"{long}"}}}}}}"#)).contains("255"));
        let place = |place: &str| {
            refuse(&format!(r#"{{"check":{{"basic":{{"user":"u"}}}},"event_type":{place}}}"#))
        };
        assert!(place(r#"{"constant":"a b"}"#).contains("no white space"));
        assert!(place(r#"{"pointer":"id"}"#).contains("beginning with a slash"));
        assert!(place(r#"{"header":""}"#).contains("not a header name"));
    }

    #[test]
    fn settings_survive_being_stored() {
        let text = r#"{"check":{"hmac":{"hash":"sha512","signed":"{ts}.{body}","header":"X-Sig",
            "prefix":"v1=","encoding":"base64url","secret_encoding":"hex","separator":",",
            "timestamp":{"header":"X-Ts","unit":"ms"}}},"event_id":{"header":"X-Id"},
            "event_type":{"constant":"order"}}"#;
        let generic: Generic = serde_json::from_str(text).unwrap();
        let stored = serde_json::to_string(&generic).unwrap();
        assert_eq!(serde_json::from_str::<Generic>(&stored).unwrap(), generic);
    }
}
