//! The generic scheme, defined by settings, for providers without a scheme of their own.
//!
//! Not here: signatures in a body or over sorted form fields; those need schemes of their own.

use std::fmt;

use ring::signature::ED25519;
use schemars::{JsonSchema, json_schema};
use serde::{Deserialize, Serialize};

use super::acknowledgement::{Acknowledgement, AcknowledgementError};
use super::check::{
    Incoming, MAX_SIGNATURES, Refused, Verified, any_match, any_public_match, is_header_name,
    long_enough, malformed, needed, time_digits,
};
use super::conduct::HandshakeName;
use super::header_names::HeaderNames;
use super::naming::{Facts, StatedIdentity, bounded_type};
use super::shared::{self, check_password, is_user};
use super::signing::{Encoding, Hash, SecretEncoding, SecretError, mac, same_secret};
use super::template::{Piece, Template};
use crate::base::clock::Timestamp;
use crate::base::headers::Headers;
use crate::base::schema::{HEADER_NAME, described};
use crate::base::words::{as_text, words};
use crate::model::json_fields;
use crate::model::pointer::{Pointer, PointerError};

/// Id and type are found by the settings ([`Generic::identify`]).
pub(super) static FACTS: Facts = Facts::new("generic", "invoice.paid");

/// Settings of the generic scheme, checked against each other.
///
/// ```
/// use oncebox::signatures::Scheme;
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
    /// Its settings.
    pub fn settings(&self) -> &Settings {
        &self.0
    }

    pub(super) fn check_secret(&self, text: &str) -> Result<(), SecretError> {
        match &self.0.check {
            Check::Hmac(check) => long_enough(check.secret_encoding.key(text.as_bytes())?.len()),
            Check::Ed25519(check) => check.public_key(text).map(drop),
            Check::Token(_) => long_enough(text.len()),
            Check::Basic(_) => check_password(text),
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
            Check::Token(TokenCheck { header, prefix }) => {
                let value = needed(incoming.headers, header)?;
                let token = value
                    .strip_prefix(prefix.as_str())
                    .ok_or_else(|| malformed(header, "it has another prefix"))?;
                shared::matching(secrets, |secret| same_secret(token.as_bytes(), secret))
            }
            Check::Basic(BasicCheck { user }) => shared::basic(user, secrets, incoming),
        }
    }

    /// The signed parts, if the id is in a header that is not signed.
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

    /// The path of the list of events; `None` if a request is one event.
    pub(super) fn items(&self) -> Option<Vec<&str>> {
        self.0.items.as_ref().map(Items::steps)
    }

    /// Whether a header field of this name carries the signature or the secret.
    pub(super) fn is_proof(&self, name: &str) -> bool {
        match &self.0.check {
            Check::Hmac(check) | Check::Ed25519(check) => check.header.has(name),
            Check::Token(TokenCheck { header, .. }) => header.eq_ignore_ascii_case(name),
            Check::Basic(_) => name.eq_ignore_ascii_case("authorization"),
        }
    }

    /// Whether a request carries a header field with a signature or a secret.
    pub(super) fn has_signature(&self, headers: &Headers) -> bool {
        headers.iter().any(|(name, _)| self.is_proof(name))
    }

    /// The header fields that are kept: those of id and type, never one with a signature or secret.
    pub(super) fn kept(&self) -> Vec<&str> {
        let id = match &self.0.event_id {
            IdPlace::Header(name) => Some(name.as_str()),
            IdPlace::Pointer(_) | IdPlace::BodyHash => None,
        };
        let event_type = self.type_field();
        let secret =
            |name: &&str| self.is_proof(name) || name.eq_ignore_ascii_case("authorization");
        id.into_iter().chain(event_type).filter(|name| !secret(name)).collect()
    }

    /// Whether the bytes of a body are its id.
    pub(super) const fn is_named_by_bytes(&self) -> bool {
        matches!(self.0.event_id, IdPlace::BodyHash)
    }

    /// The name of the header field that has the type.
    pub(super) fn type_field(&self) -> Option<&str> {
        match &self.0.event_type {
            Some(TypePlace::Header(name)) => Some(name.as_str()),
            Some(TypePlace::Pointer(_) | TypePlace::Constant(_)) | None => None,
        }
    }

    pub(super) fn identify(&self, incoming: &Incoming<'_>) -> StatedIdentity {
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
        StatedIdentity { event_id, event_type }
    }
}

/// Settings that contradict each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// `{ts}` in the template without a header for it.
    #[error("`signed` contains {{ts}}, so `timestamp` must name the header that it comes from")]
    NoTimestamp,
    /// A time that is checked but not signed.
    #[error(
        "`timestamp` is set but `signed` does not contain {{ts}}: a time that is not signed proves nothing"
    )]
    TimestampNotSigned,
    /// `{id}` in the template, but the id is in the body.
    #[error(
        "`signed` contains {{id}}, so `event_id` must be a header: the body is read only after the check"
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
    /// Ed25519 with a hash function set.
    #[error("`hash` can be set for `hmac` only: ed25519 has its own")]
    HashOfEd25519,
    /// An answer that cannot be sent.
    #[error(transparent)]
    Answer(#[from] AcknowledgementError),
    /// A constant that is not a valid event type.
    #[error(
        "the constant event type must have 1 to 128 bytes, no white space or control characters"
    )]
    Constant,
}

/// A scheme made of settings: an HMAC or ed25519 over a template, a shared token, or basic authentication.
// As read: some exclude others, which [`Generic`] has checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// How the provider proves itself.
    pub check: Check,
    /// Where the provider's id of the event is; default: the body's digest.
    #[serde(default)]
    pub event_id: IdPlace,
    /// Where the body has a list of events, each handled on its own; `""` is the body itself. By default a request is
    /// one event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<Items>,
    /// Where the event's type is; default: the type `unknown`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_type: Option<TypePlace>,
    /// The answer when a webhook is stored; default: Oncebox's JSON, or what a provider with this header field reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Acknowledgement>,
    /// The handshakes that are answered; default: those of a provider with this header field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshakes: Option<Vec<HandshakeName>>,
}

/// How a provider proves itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[schemars(rename = "GenericCheck")]
pub enum Check {
    /// A signature with a shared secret (HMAC).
    Hmac(#[serde(deserialize_with = "json_fields::object")] SignedCheck),
    /// A signature with a key pair (ed25519); the secret is the public key.
    Ed25519(#[serde(deserialize_with = "json_fields::object")] SignedCheck),
    /// A shared token in a header field. As JSON: `{"token":{"header":"X-Gitlab-Token"}}`.
    Token(#[serde(deserialize_with = "json_fields::object")] TokenCheck),
    /// A user name and a password (basic authentication); the secret is the password.
    Basic(#[serde(deserialize_with = "json_fields::object")] BasicCheck),
}

/// A shared token in a header field.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenCheck {
    /// The header that carries it.
    #[schemars(regex(pattern = HEADER_NAME))]
    pub header: String,
    /// The text before the token, such as `Bearer `.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
}

/// A user name and a password.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BasicCheck {
    /// The user name.
    pub user: String,
}

/// A signature over a template.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SignedCheck {
    /// The hash function of an HMAC; default: SHA-256.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<Hash>,
    /// The template of what is signed, like `{ts}.{body}`.
    pub signed: Template,
    /// The header fields that may carry the signature.
    pub header: HeaderNames,
    /// The text before each signature, such as `sha256=`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// The encoding of the signature; default: hex.
    #[serde(default)]
    pub encoding: Encoding,
    /// The encoding of the secret; default: the text is the key.
    #[serde(default)]
    pub secret_encoding: SecretEncoding,
    /// The character between several signatures; by default there is one signature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub separator: Option<char>,
    /// The signed time; by default no time is checked.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "json_fields::optional_object"
    )]
    pub timestamp: Option<TimestampPlace>,
}

/// Where the signed time is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TimestampPlace {
    /// The header that carries it.
    #[schemars(regex(pattern = HEADER_NAME))]
    pub header: String,
    /// The unit in which it counts since 1970; default: seconds.
    #[serde(default)]
    pub unit: Unit,
}

words! {
    /// The unit of a time.
    #[derive(Default)]
    pub enum Unit {
        /// Seconds.
        #[default]
        S = "s",
        /// Milliseconds.
        Ms = "ms",
    }
}

/// Where the provider's id of an event is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IdPlace {
    /// In a header.
    Header(#[schemars(regex(pattern = HEADER_NAME))] String),
    /// In the JSON body.
    Pointer(Pointer),
    /// Nowhere: the SHA-256 of the body is the id.
    #[default]
    BodyHash,
}

/// The JSON pointer to a list of events; `None`: the body itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Items(Option<Pointer>);

impl Items {
    fn parse(text: &str) -> Result<Self, PointerError> {
        (!text.is_empty()).then(|| Pointer::parse(text)).transpose().map(Self)
    }

    fn steps(&self) -> Vec<&str> {
        let steps = self.0.as_ref().map(Pointer::steps).unwrap_or_default();
        steps.iter().map(String::as_str).collect()
    }
}

as_text!(Items);
described!(Items, json_schema!({ "type": "string", "maxLength": 512 }));

impl fmt::Display for Items {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|pointer| pointer.fmt(f))
    }
}

/// Where an event's type is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TypePlace {
    /// In a header.
    Header(#[schemars(regex(pattern = HEADER_NAME))] String),
    /// In the JSON body.
    Pointer(Pointer),
    /// Every event has this type.
    Constant(String),
}

impl Settings {
    /// Checks that the settings do not contradict each other.
    fn fit(&self) -> Result<(), SettingsError> {
        match &self.check {
            Check::Ed25519(SignedCheck { hash: Some(_), .. }) => {
                return Err(SettingsError::HashOfEd25519);
            }
            Check::Hmac(check) | Check::Ed25519(check) => check.fits(&self.event_id)?,
            Check::Token(TokenCheck { header, .. }) => header_name(header)?,
            Check::Basic(BasicCheck { user }) if is_user(user) => {}
            Check::Basic(_) => return Err(SettingsError::User),
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
        if let Some(answer) = &self.answer {
            answer.fit()?;
        }
        Ok(())
    }
}

impl SignedCheck {
    /// Checks that the settings contradict neither each other nor `event_id`.
    fn fits(&self, event_id: &IdPlace) -> Result<(), SettingsError> {
        match (&self.timestamp, self.signed.pieces().contains(&Piece::Time)) {
            (None, true) => return Err(SettingsError::NoTimestamp),
            (Some(_), false) => return Err(SettingsError::TimestampNotSigned),
            (Some(place), true) => header_name(&place.header)?,
            (None, false) => {}
        }
        if self.signed.pieces().contains(&Piece::Id) && !matches!(event_id, IdPlace::Header(_)) {
            return Err(SettingsError::IdNotInHeader);
        }
        match self.separator {
            Some(letter) if letter.is_alphanumeric() || "+/=_-".contains(letter) => {
                Err(SettingsError::Separator(letter))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn verify_hmac(
        &self,
        secrets: &[&[u8]],
        incoming: &Incoming<'_>,
        event_id: &IdPlace,
    ) -> Result<Verified, Refused> {
        let offered = self.offered(incoming)?;
        let (parts, signed_at) = self.parts(incoming, event_id)?;
        let hash = self.hash.unwrap_or_default();
        let secret = any_match(secrets, &offered, |secret| {
            let key = self.secret_encoding.key(secret).ok().filter(|key| !key.is_empty())?;
            Some(mac(hash, &key, &parts))
        })?;
        Ok(Verified { secret, signed_at })
    }

    fn verify_ed25519(
        &self,
        secrets: &[&[u8]],
        incoming: &Incoming<'_>,
        event_id: &IdPlace,
    ) -> Result<Verified, Refused> {
        let offered = self.offered(incoming)?;
        let (parts, signed_at) = self.parts(incoming, event_id)?;
        let key = |text: &&[u8]| self.secret_encoding.key(text).ok().map(|key| key.to_vec());
        let keys: Vec<Option<Vec<u8>>> = secrets.iter().map(key).collect();
        let secret = any_public_match(&ED25519, &keys, &offered, &parts.concat())?;
        Ok(Verified { secret, signed_at })
    }

    /// An ed25519 public key has 32 bytes. Source: RFC 8032.
    fn public_key(&self, text: &str) -> Result<(), SecretError> {
        let key = self.secret_encoding.key(text.as_bytes())?;
        let wanted = "an ed25519 public key of 32 bytes in `secret_encoding`";
        (key.len() == 32).then_some(()).ok_or(SecretError::Encoding { encoding: wanted })
    }

    /// The signed parts, and the time in them.
    fn parts<'a>(
        &'a self,
        incoming: &Incoming<'a>,
        event_id: &IdPlace,
    ) -> Result<(Vec<&'a [u8]>, Option<Timestamp>), Refused> {
        let (time, signed_at) = match &self.timestamp {
            Some(place) => place.read(incoming).map(|(text, at)| (text, Some(at)))?,
            None => ("", None),
        };
        let mut parts: Vec<&[u8]> = Vec::with_capacity(self.signed.pieces().len());
        for piece in self.signed.pieces() {
            let text = match (piece, event_id) {
                (Piece::Literal(text), _) => text,
                (Piece::Id, IdPlace::Header(name)) | (Piece::Header(name), _) => {
                    needed(incoming.headers, name)?
                }
                // `fits` refuses such settings.
                (Piece::Id, IdPlace::Pointer(_) | IdPlace::BodyHash) => "",
                (Piece::Time, _) => time,
                (Piece::Method, _) => incoming.method,
                (Piece::Path, _) => incoming.path,
                (Piece::Url, _) => incoming.url,
                (Piece::Body, _) => {
                    parts.push(incoming.body);
                    continue;
                }
            };
            parts.push(text.as_bytes());
        }
        Ok((parts, signed_at))
    }

    /// The signatures that the request carries, decoded.
    fn offered(&self, incoming: &Incoming<'_>) -> Result<Vec<Vec<u8>>, Refused> {
        let missing = || Refused::Missing { header: self.header.to_string() };
        self.header.values(incoming.headers).next().ok_or_else(missing)?;
        let mut offered = Vec::new();
        for value in self.header.values(incoming.headers) {
            let mut rest = Some(value);
            while let Some(text) = rest {
                let split = self.separator.and_then(|letter| text.split_once(letter));
                let entry = split.map_or(text, |(entry, _)| entry).trim();
                rest = split.map(|(_, after)| after).filter(|_| offered.len() < MAX_SIGNATURES);
                let encoded = entry.strip_prefix(self.prefix.as_str());
                offered.extend(encoded.and_then(|encoded| self.encoding.decode(encoded)));
            }
        }
        if offered.is_empty() {
            return Err(malformed(
                &self.header.to_string(),
                "no signature in it has the configured prefix and encoding",
            ));
        }
        Ok(offered)
    }
}

fn header_name(name: &str) -> Result<(), SettingsError> {
    is_header_name(name).then_some(()).ok_or_else(|| SettingsError::Header(name.to_owned()))
}

impl TimestampPlace {
    fn read<'a>(&self, incoming: &Incoming<'a>) -> Result<(&'a str, Timestamp), Refused> {
        let text = needed(incoming.headers, &self.header)?;
        let count =
            time_digits(text).ok_or_else(|| malformed(&self.header, "it is not a whole number"))?;
        let at = match self.unit {
            Unit::S => Timestamp::from_secs(count),
            Unit::Ms => Timestamp::from_ms(count),
        };
        Ok((text, at))
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
        assert!(hmac(r#""signed":"{body}","hash":"md5""#).contains("one of sha256, sha1, sha512"));
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
