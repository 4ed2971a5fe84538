//! Credentials: what a subscription signs with and logs on with, and what a provider's webhooks are checked with.
//!
//! Not here: the text forms of signing keys ([`crate::signatures::signing_key`]), certificates
//! ([`crate::http::identity`]), sealing ([`crate::keys`]).

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::base::headers;
use crate::base::words::words;
use crate::model::target_url::TargetUrl;

/// The longest secret that goes into a header field.
const MAX_HEADER_SECRET_BYTES: usize = 8000;
/// The longest secret of any kind: a certificate's chain and key.
pub const MAX_SECRET_BYTES: usize = 64 * 1024;

words! {
    /// What a credential is.
    pub enum CredentialKind as "CredentialKind" {
        /// A shared secret; requests are signed with an HMAC (`v1`).
        Signing = "signing",
        /// A key pair; requests are signed with ed25519 (`v1a`).
        SigningEd25519 = "signing_ed25519",
        /// A token of the header field `authorization`.
        Bearer = "bearer",
        /// A user and a password.
        Basic = "basic",
        /// A key in a header field that the settings name.
        ApiKey = "api_key",
        /// OAuth 2.0 client credentials.
        Oauth2 = "oauth2",
        /// A TLS client certificate.
        ClientCertificate = "client_certificate",
    }
}

/// What a credential is for. A subscription has at most one active credential of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Signatures.
    Sign,
    /// The header field that authenticates a request.
    LogOn,
    /// The TLS handshake.
    Handshake,
}

impl CredentialKind {
    /// What it is for.
    pub const fn purpose(self) -> Purpose {
        match self {
            Self::Signing | Self::SigningEd25519 => Purpose::Sign,
            Self::Bearer | Self::Basic | Self::ApiKey | Self::Oauth2 => Purpose::LogOn,
            Self::ClientCertificate => Purpose::Handshake,
        }
    }
}

words! {
    /// Where a credential stands in its life.
    pub enum CredentialState as "CredentialState" {
        /// Being verified. A signing credential signs already, beside the active one.
        Next = "next",
        /// Used.
        Active = "active",
        /// Replaced, and valid for a while. A signing credential still signs, beside the active one.
        Retiring = "retiring",
        /// Not used any more.
        Revoked = "revoked",
    }
}

/// What of a credential is no secret. Stored in `credentials.settings`, without its kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Settings {
    /// The secret is `whsec_…`.
    Signing {},
    /// The secret is `whsk_…`.
    SigningEd25519 {
        /// `whpk_…`, which receivers check with.
        public_key: String,
    },
    /// The secret is the token.
    Bearer {},
    /// The secret is the password.
    Basic {
        /// The user name.
        user: String,
    },
    /// The secret is the field's whole value.
    ApiKey {
        /// The header field's name.
        header: String,
    },
    /// The secret is the client's.
    Oauth2(Oauth2),
    /// The secret is the PEM of the certificate, its chain and its key.
    ClientCertificate {
        /// The SHA-256 of the certificate, in hex.
        fingerprint: String,
    },
}

/// An OAuth 2.0 client and where it gets its tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Oauth2 {
    /// The token endpoint.
    pub token_url: String,
    /// The client's name there.
    pub client_id: String,
    /// What is asked for, words with a space between them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Whom the token is for, where the endpoint wants to know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    /// How the client authenticates.
    #[serde(default)]
    pub client_auth: ClientAuth,
}

words! {
    /// How an OAuth 2.0 client authenticates at the token endpoint.
    #[derive(Default)]
    pub enum ClientAuth as "ClientAuth" {
        /// With a header field (`client_secret_basic`).
        #[default]
        Basic = "basic",
        /// With fields of the form (`client_secret_post`).
        Body = "body",
    }
}

impl Settings {
    /// The kind.
    pub const fn kind(&self) -> CredentialKind {
        match self {
            Self::Signing {} => CredentialKind::Signing,
            Self::SigningEd25519 { .. } => CredentialKind::SigningEd25519,
            Self::Bearer {} => CredentialKind::Bearer,
            Self::Basic { .. } => CredentialKind::Basic,
            Self::ApiKey { .. } => CredentialKind::ApiKey,
            Self::Oauth2(_) => CredentialKind::Oauth2,
            Self::ClientCertificate { .. } => CredentialKind::ClientCertificate,
        }
    }

    /// `whpk_…`, which a receiver checks with; `None` where it needs the secret.
    pub fn public_key(&self) -> Option<&str> {
        match self {
            Self::SigningEd25519 { public_key } => Some(public_key),
            _ => None,
        }
    }

    /// Reads the settings of a kind; `None` when they are of another.
    ///
    /// ```
    /// use oncebox::model::credential::{CredentialKind, Settings};
    /// let settings = Settings::read(CredentialKind::Basic, r#"{"user":"erp"}"#).unwrap();
    /// assert_eq!(settings, Settings::Basic { user: "erp".to_owned() });
    /// assert!(Settings::read(CredentialKind::Bearer, r#"{"user":"erp"}"#).is_none());
    /// ```
    pub fn read(kind: CredentialKind, json: &str) -> Option<Self> {
        let mut fields: Map<String, Value> = serde_json::from_str(json).ok()?;
        fields.insert("kind".to_owned(), kind.as_str().into());
        serde_json::from_value(Value::Object(fields)).ok()
    }

    /// The settings as an object, without the kind.
    pub fn to_json(&self) -> Value {
        let mut written = serde_json::to_value(self).unwrap_or_default();
        if let Value::Object(fields) = &mut written {
            fields.remove("kind");
        }
        written
    }

    /// Whether settings and secret can be used, where header fields carry the secret; the error says what is wrong and
    /// what to do. Signing keys and certificates are checked where they are read.
    pub fn check(&self, secret: &str) -> Result<(), String> {
        match self {
            Self::Signing {} | Self::SigningEd25519 { .. } | Self::ClientCertificate { .. } => {
                Ok(())
            }
            Self::Bearer {} => check_bearer(secret),
            Self::Basic { user } => check_basic(user, secret),
            Self::ApiKey { header } => check_api_key(header, secret),
            Self::Oauth2(client) => {
                client.check().and_then(|()| check_text("client secret", secret))
            }
        }
    }
}

impl Oauth2 {
    fn check(&self) -> Result<(), String> {
        let url = TargetUrl::parse(&self.token_url);
        let url = url.map_err(|error| format!("token_url cannot be used: {error}"))?;
        if url.has_placeholders() {
            return Err(
                "token_url has placeholders; the token does not depend on the event".to_owned()
            );
        }
        let given = [
            ("client_id", Some(&self.client_id)),
            ("scope", self.scope.as_ref()),
            ("audience", self.audience.as_ref()),
        ];
        for (name, text) in given {
            let fits = |text: &&String| (1..=1000).contains(&text.len()) && is_printable(text);
            if text.is_some_and(|text| !fits(&text)) {
                return Err(format!("{name} must have 1 to 1000 printable characters"));
            }
        }
        Ok(())
    }
}

fn check_bearer(token: &str) -> Result<(), String> {
    if token.get(..7).is_some_and(|start| start.eq_ignore_ascii_case("bearer ")) {
        return Err("the token begins with the word `Bearer`; leave it out, it is added".to_owned());
    }
    check_field("token", token)?;
    if token.contains(' ') {
        return Err("the token contains a space; paste it again without".to_owned());
    }
    Ok(())
}

fn check_basic(user: &str, password: &str) -> Result<(), String> {
    check_text("user", user)?;
    if user.contains(':') {
        return Err("the user contains a colon, which ends it in basic authentication".to_owned());
    }
    check_text("password", password)
}

fn check_api_key(header: &str, key: &str) -> Result<(), String> {
    if !headers::is_name(header) {
        return Err(format!(
            "{header:?} is not the name of a header field; it is one like X-API-Key"
        ));
    }
    check_field("key", key)
}

/// What goes into a header field as it is.
fn check_field(what: &str, text: &str) -> Result<(), String> {
    check_text(what, text)?;
    let is_field = text.bytes().all(|b| (b' '..=b'~').contains(&b));
    if !is_field || text.trim() != text {
        return Err(format!(
            "the {what} has characters that a header field cannot carry, or begins or ends with a space; paste it again"
        ));
    }
    Ok(())
}

fn check_text(what: &str, text: &str) -> Result<(), String> {
    match text.len() {
        0 => Err(format!("the {what} is empty")),
        bytes if bytes > MAX_HEADER_SECRET_BYTES => {
            Err(format!("the {what} has {bytes} bytes; at most {MAX_HEADER_SECRET_BYTES} are sent"))
        }
        _ if !is_printable(text) => Err(format!(
            "the {what} contains a line break or a control character; paste it again without"
        )),
        _ => Ok(()),
    }
}

fn is_printable(text: &str) -> bool {
    !text.chars().any(char::is_control)
}

/// How a credential is rotated by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RotationPlan {
    /// How often; `None`: only when a person asks.
    pub every: Option<Duration>,
    /// The command of the settings that makes the next one; without it Oncebox makes one, where it signs.
    pub command: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(json: &str) -> Settings {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn settings_survive_their_column() {
        for json in [
            r#"{"kind":"signing"}"#,
            r#"{"kind":"signing_ed25519","public_key":"whpk_x"}"#,
            r#"{"kind":"bearer"}"#,
            r#"{"kind":"basic","user":"erp"}"#,
            r#"{"kind":"api_key","header":"X-API-Key"}"#,
            r#"{"kind":"oauth2","token_url":"https://a/","client_id":"c","scope":"s","client_auth":"body"}"#,
            r#"{"kind":"client_certificate","fingerprint":"00"}"#,
        ] {
            let one = settings(json);
            assert_eq!(Settings::read(one.kind(), &one.to_json().to_string()), Some(one), "{json}");
        }
        for kind in CredentialKind::ALL {
            assert_eq!(CredentialKind::parse(kind.as_str()), Some(kind));
        }
    }

    #[test]
    fn what_cannot_be_sent_is_refused_with_the_reason() {
        let refused = |json: &str, secret: &str| settings(json).check(secret).unwrap_err();
        let bearer = r#"{"kind":"bearer"}"#;
        assert!(refused(bearer, "Bearer abc").contains("leave it out"));
        assert!(refused(bearer, "a b").contains("space"));
        assert!(refused(bearer, "a\nb").contains("line break"));
        assert!(refused(bearer, "ü").contains("header field"));
        assert!(refused(bearer, "").contains("empty"));
        assert!(refused(bearer, &"x".repeat(8001)).contains("8001 bytes"));
        assert!(refused(r#"{"kind":"basic","user":"a:b"}"#, "x").contains("colon"));
        assert!(refused(r#"{"kind":"basic","user":""}"#, "x").contains("user is empty"));
        assert!(refused(r#"{"kind":"api_key","header":"X Key"}"#, "x").contains("X-API-Key"));
        let oauth2 = |url: &str, id: &str| {
            format!(r#"{{"kind":"oauth2","token_url":"{url}","client_id":"{id}"}}"#)
        };
        assert!(refused(&oauth2("ftp://a/", "c"), "x").starts_with("token_url cannot be used"));
        assert!(refused(&oauth2("https://a/{id}", "c"), "x").contains("placeholders"));
        assert!(refused(&oauth2("https://a/", ""), "x").contains("client_id"));
        assert!(refused(&oauth2("https://a/", "c"), "").contains("client secret is empty"));
        assert_eq!(settings(r#"{"kind":"basic","user":"erp"}"#).check("pässword: x"), Ok(()));
        let authorization = r#"{"kind":"api_key","header":"Authorization"}"#;
        assert_eq!(settings(authorization).check("token 0a:1b"), Ok(()));
    }
}
