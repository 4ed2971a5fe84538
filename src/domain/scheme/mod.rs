//! How a provider proves that a webhook is its own, and where the webhook's id and type stand.
//!
//! Not here: reading the request from the wire, storing what was accepted, and our own signature on
//! what we send ([`super::signature`]). Every scheme works on the raw body bytes. Nothing in a body is
//! parsed before its signature has been found correct, but for the providers that put the signature into
//! the body: there no more is read than what the check needs.

pub mod adyen;
pub mod batch;
pub mod certificate;
mod costly;
pub mod diagnosis;
pub mod encoding;
pub mod form;
pub mod generic;
pub mod handshake;
mod listed;
mod mailgun;
mod naming;
pub mod paypal;
mod plain;
pub mod sample;
mod sendgrid;
mod shared;
pub mod sns;
mod standard;
pub mod template;
mod twilio;

use std::time::Duration;

use serde_json::{Map, Value};

use crate::clock::{Timestamp, millis};
use crate::domain::provider::TOLERANCE_DEFAULT;
use crate::domain::signature::SecretError;
use crate::headers::Headers;
use crate::id;

use adyen::Adyen;
use certificate::Proof;
use generic::Generic;
use listed::Listed;
use paypal::Paypal;
use plain::Plain;
use sns::Sns;
use standard::Key;
pub(crate) use standard::id_header;

/// Ids longer than this are stored as their SHA-256, in characters.
const EVENT_ID_CHARS_MAX: usize = 500;
/// How long an event type may be, in bytes. Source: the `event_type` column.
const EVENT_TYPE_BYTES_MAX: usize = 128;
/// What an event is called whose type nobody gave.
const TYPE_UNKNOWN: &str = "unknown";
/// Keys below 128 bits can be searched for by who holds one signed request.
const SECRET_BYTES_MIN: usize = 16;
/// No provider's secret comes near this; what is longer is a file pasted by mistake.
const SECRET_BYTES_MAX: usize = 1024;
/// Signatures of one request that are looked at: a sender that rotates gives two or three.
const SIGNATURES_MOST: usize = 64;
/// The same of those by public key, each of which costs far more.
const PUBLIC_SIGNATURES_MOST: usize = 4;
/// Checks by public key of one request, every key with every signature: two signatures for each of as many
/// keys as a provider may have.
const PUBLIC_CHECKS_MOST: usize = 64;
/// Times with more digits than this lie beyond the year 30,000 in milliseconds.
const TIME_DIGITS_MAX: usize = 15;

/// The signature scheme of a provider.
///
/// *Shape*: `{"kind":"stripe"}`; only some have settings, such as `generic`, see [`Generic`].
///
/// ```
/// use oncebox::domain::scheme::Scheme;
/// let scheme: Scheme = serde_json::from_str(r#"{"kind":"github"}"#)?;
/// assert_eq!(scheme.kind(), "github");
/// let wrong = serde_json::from_str::<Scheme>(r#"{"kind":"github","header":"X"}"#);
/// assert_eq!(wrong.unwrap_err().to_string(), "the scheme `github` has no setting `header`");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "Map<String, Value>", into = "Map<String, Value>")]
pub enum Scheme {
    /// Standard Webhooks `v1` and `v1a`, under `webhook-*` or `svix-*` headers: Svix, Clerk, Resend and
    /// others.
    Standard,
    /// Standard Webhooks with the secret's text as the key.
    Polar,
    /// One HMAC under one header: GitHub, Shopify, Slack, Square and others.
    Plain(&'static Plain),
    /// Time and HMACs listed in one header: Stripe, Paddle.
    Listed(&'static Listed),
    /// GitLab: its token, or its signing token.
    Gitlab,
    /// Chargebee: basic authentication.
    Chargebee {
        /// The user name.
        user: String,
    },
    /// Twilio: an HMAC over URL and form, or over a URL with the body's digest.
    Twilio,
    /// Mailgun: an HMAC in the body over time and token.
    Mailgun,
    /// SendGrid: ECDSA with its public key; batches.
    Sendgrid,
    /// Adyen: an HMAC in each item of a batch.
    Adyen(Adyen),
    /// PayPal: RSA with a certificate of its own.
    Paypal(Box<Paypal>),
    /// Amazon SNS: RSA with a certificate of its own.
    Sns(Box<Sns>),
    /// Dynamics 365 Business Central: a shared `clientState` in each item of a batch.
    Dynamics,
    /// Put together from settings: HMAC or ed25519 over a template, a shared token, or basic
    /// authentication.
    Generic(Box<Generic>),
}

/// A request as it came in, as far as its signature may cover it.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    /// The method, as sent.
    pub method: &'a str,
    /// The path with its query, as the request line has it.
    pub path: &'a str,
    /// The URL at which the provider knows us, with path and query. Behind a proxy it is configured.
    pub url: &'a str,
    /// All header fields.
    pub headers: &'a Headers,
    /// The body, not a byte changed.
    pub body: &'a [u8],
}

/// What a webhook is called, so that its repetition is known and subscriptions can ask for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The provider's id for the event, 1 to 500 characters, none of them a control character. The
    /// SHA-256 of the body as hex if the provider gives none, of the id if that does not fit.
    pub event_id: String,
    /// 1 to 128 bytes without control characters and white space; `unknown` if there is none.
    pub event_type: String,
}

/// Why a webhook is not believed. For our log: outside, every one of them is the same 401.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A header that the scheme needs is not there.
    #[error("the header {header} is missing")]
    Missing {
        /// Its name.
        header: String,
    },
    /// A header is there but cannot be read.
    #[error("the header {header} cannot be read: {why}")]
    Malformed {
        /// Its name.
        header: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The body has not what the scheme signs with.
    #[error("the body cannot be checked: {why}")]
    Body {
        /// What is wrong with it.
        why: &'static str,
    },
    /// Everything is right but the time. Only said of a correct signature, so a caller whose own clock
    /// is in doubt may ask for the webhook again.
    #[error("the signature is correct but {skew_secs} s away from our time")]
    Stale {
        /// How far its time is from ours, in whole seconds, either way.
        skew_secs: u64,
    },
    /// The time is too far away for the signature to be worth a check by public key.
    #[error("its time is {skew_secs} s away from ours, so its signature was not checked")]
    Untimely {
        /// How far its time is from ours, in whole seconds, either way.
        skew_secs: u64,
    },
    /// No secret in force makes this signature.
    #[error("no secret in force makes this signature")]
    Mismatch,
    /// There is no usable secret to check with.
    #[error("no usable secret is in force for this provider")]
    NoSecret,
}

impl Scheme {
    /// The word for it in settings and rows.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Polar => "polar",
            Self::Plain(plain) => plain.kind,
            Self::Listed(listed) => listed.kind,
            Self::Gitlab => "gitlab",
            Self::Chargebee { .. } => "chargebee",
            Self::Twilio => "twilio",
            Self::Mailgun => "mailgun",
            Self::Sendgrid => "sendgrid",
            Self::Adyen(_) => "adyen",
            Self::Paypal(_) => "paypal",
            Self::Sns(_) => "sns",
            Self::Dynamics => "dynamics",
            Self::Generic(_) => "generic",
        }
    }

    /// The scheme of that word, if it needs no settings.
    ///
    /// ```
    /// use oncebox::domain::scheme::Scheme;
    /// assert_eq!(Scheme::of("slack").map(|scheme| scheme.kind()), Some("slack"));
    /// assert_eq!(Scheme::of("generic"), None);
    /// ```
    pub fn of(kind: &str) -> Option<Self> {
        form::plain(kind)
    }

    /// Whether its providers share a secret with us; others sign with a certificate.
    pub const fn has_secret(&self) -> bool {
        !matches!(self, Self::Paypal(_) | Self::Sns(_))
    }

    /// Whether what is entered as its secret may be a public key, which everybody may know.
    pub fn takes_public_keys(&self) -> bool {
        match self {
            Self::Standard | Self::Sendgrid => true,
            Self::Generic(generic) => {
                matches!(generic.settings().check, generic::Check::Ed25519(_))
            }
            _ => false,
        }
    }

    /// How far a signed time may be from ours unless told. Nobody says whether Mailgun and PayPal sign anew
    /// when they send again, so theirs outlast their retries; what was recorded is known by its token.
    pub const fn tolerance_default(&self) -> Duration {
        match self {
            Self::Mailgun => Duration::from_hours(12),
            Self::Paypal(_) => Duration::from_hours(4 * 24),
            _ => TOLERANCE_DEFAULT,
        }
    }

    /// Where the certificate of a request has to be fetched, for the schemes that need one. Its host is the
    /// provider's own, whatever the request says.
    ///
    /// # Errors
    /// When the request names none, or another's.
    pub fn certificate_url(&self, incoming: &Incoming<'_>) -> Result<Option<String>, Refused> {
        match self {
            Self::Paypal(paypal) => paypal::certificate_url(paypal, incoming),
            Self::Sns(sns) => sns::certificate_url(sns, incoming),
            _ => Ok(None),
        }
    }

    /// Looks at a secret when it is entered, so that a wrong paste is noticed before the first webhook.
    ///
    /// # Errors
    /// [`SecretError`], each with what to do.
    pub fn check_secret(&self, text: &str) -> Result<(), SecretError> {
        if text.is_empty() {
            return Err(SecretError::Empty);
        }
        if text.len() > SECRET_BYTES_MAX {
            return Err(SecretError::Long { bytes: text.len(), max: SECRET_BYTES_MAX });
        }
        if text.trim() != text || text.chars().any(char::is_control) {
            return Err(SecretError::Blank);
        }
        match self {
            Self::Standard => standard::check_secret(text, Key::Decoded),
            Self::Polar => standard::check_secret(text, Key::Verbatim),
            Self::Gitlab if text.starts_with(shared::SIGNING_PREFIX) => {
                standard::check_secret(text, Key::Decoded)
            }
            Self::Listed(listed) => listed.check_secret(text),
            Self::Plain(_) | Self::Gitlab | Self::Twilio | Self::Mailgun | Self::Dynamics => {
                long_enough(text.len())
            }
            Self::Paypal(_) | Self::Sns(_) => Err(SecretError::None),
            Self::Sendgrid => sendgrid::check_secret(text),
            Self::Adyen(_) => adyen::check_secret(text),
            Self::Chargebee { .. } => generic::check_password(text),
            Self::Generic(generic) => generic.check_secret(text),
        }
    }

    /// Whether one of the secrets made this request's signature; tells which, by its place in `secrets`.
    ///
    /// Every secret is tried against every signature in the request, in constant time each. Where the
    /// scheme has a time, it must be within `tolerance` of `now` (wall time), either way.
    ///
    /// ```
    /// use oncebox::clock::Timestamp;
    /// use oncebox::domain::scheme::{Incoming, Scheme};
    /// use oncebox::headers::Headers;
    /// use std::time::Duration;
    /// let mut headers = Headers::default();
    /// headers.push(
    ///     "X-Hub-Signature-256",
    ///     b"sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
    /// );
    /// let incoming = Incoming {
    ///     method: "POST",
    ///     path: "/in/github",
    ///     url: "https://edge.example/in/github",
    ///     headers: &headers,
    ///     body: b"Hello, World!",
    /// };
    /// let secrets = ["a newer secret", "It's a Secret to Everybody"];
    /// let (now, tolerance) = (Timestamp::from_secs(0), Duration::from_mins(5));
    /// let github = Scheme::of("github").unwrap();
    /// assert_eq!(github.verify(&secrets, &incoming, now, tolerance), Ok(1));
    /// ```
    ///
    /// # Errors
    /// [`Refused`]; [`Refused::Stale`] only when all else is right.
    pub fn verify<S: AsRef<[u8]>>(
        &self,
        secrets: &[S],
        incoming: &Incoming<'_>,
        now: Timestamp,
        tolerance: Duration,
    ) -> Result<usize, Refused> {
        self.verify_with(secrets, Proof::default(), incoming, now, tolerance)
    }

    /// The same with what was fetched for it.
    ///
    /// # Errors
    /// [`Refused`]; [`Refused::Stale`] only when all else is right.
    pub fn verify_with<S: AsRef<[u8]>>(
        &self,
        secrets: &[S],
        proof: Proof<'_>,
        incoming: &Incoming<'_>,
        now: Timestamp,
        tolerance: Duration,
    ) -> Result<usize, Refused> {
        let secrets: Vec<&[u8]> = secrets.iter().map(AsRef::as_ref).collect();
        let secrets = secrets.as_slice();
        let verified = match self {
            Self::Standard => standard::verify(secrets, incoming, Key::Decoded)?,
            Self::Polar => standard::verify(secrets, incoming, Key::Verbatim)?,
            Self::Plain(plain) => plain.verify(secrets, incoming)?,
            Self::Listed(listed) => listed.verify(secrets, incoming)?,
            Self::Gitlab => shared::gitlab(secrets, incoming)?,
            Self::Chargebee { user } => shared::basic(user, secrets, incoming)?,
            Self::Twilio => twilio::verify(secrets, incoming)?,
            Self::Mailgun => mailgun::verify(secrets, incoming)?,
            Self::Sendgrid => sendgrid::verify(secrets, incoming)?,
            Self::Adyen(_) => adyen::verify(secrets, incoming)?,
            Self::Paypal(paypal) => paypal::verify(paypal, proof, incoming, now)?,
            Self::Sns(sns) => sns::verify(sns, proof, incoming)?,
            Self::Dynamics => shared::dynamics(secrets, incoming)?,
            Self::Generic(generic) => generic.verify(secrets, incoming)?,
        };
        let Some(signed_at) = verified.signed_at else { return Ok(verified.secret) };
        let skew_ms = now.ms().abs_diff(signed_at.ms());
        if i64::try_from(skew_ms).map_or(true, |skew| skew > millis(tolerance)) {
            return Err(Refused::Stale { skew_secs: skew_ms / 1000 });
        }
        Ok(verified.secret)
    }

    /// The id and type of a webhook. Call it after [`Scheme::verify`]: it parses the body.
    ///
    /// ```
    /// use oncebox::domain::scheme::{Incoming, Scheme};
    /// use oncebox::headers::Headers;
    /// let incoming = Incoming {
    ///     method: "POST",
    ///     path: "/in/stripe",
    ///     url: "https://edge.example/in/stripe",
    ///     headers: &Headers::default(),
    ///     body: br#"{"id":"evt_1","type":"invoice.paid"}"#,
    /// };
    /// let identity = Scheme::of("stripe").unwrap().identify(&incoming);
    /// assert_eq!((&*identity.event_id, &*identity.event_type), ("evt_1", "invoice.paid"));
    /// ```
    pub fn identify(&self, incoming: &Incoming<'_>) -> Identity {
        let (event_id, event_type) = match self {
            Self::Standard | Self::Polar => standard::identify(incoming),
            Self::Plain(plain) => plain.naming.identify(incoming),
            Self::Listed(listed) => listed.naming.identify(incoming),
            Self::Gitlab => shared::GITLAB.identify(incoming),
            Self::Chargebee { .. } => shared::CHARGEBEE.identify(incoming),
            Self::Twilio => twilio::identify(incoming),
            Self::Mailgun => mailgun::NAMING.identify(incoming),
            Self::Sendgrid => sendgrid::NAMING.identify(incoming),
            Self::Adyen(_) => adyen::identify(incoming),
            Self::Paypal(_) => paypal::NAMING.identify(incoming),
            Self::Sns(_) => sns::NAMING.identify(incoming),
            Self::Dynamics => shared::DYNAMICS.identify(incoming),
            Self::Generic(generic) => generic.identify(incoming),
        };
        Identity {
            event_id: event_id
                .and_then(|id| bounded_id(&id))
                .unwrap_or_else(|| id::sha256_hex(incoming.body)),
            event_type: event_type
                .and_then(|name| bounded_type(&name))
                .unwrap_or_else(|| TYPE_UNKNOWN.to_owned()),
        }
    }

    /// The header fields that are kept with a webhook event: what tells about it, never a signature.
    pub fn kept(&self, headers: &Headers) -> Vec<(String, String)> {
        let own: &[&str] = match self {
            Self::Standard | Self::Polar => standard::OWN.kept,
            Self::Plain(plain) => plain.naming.kept,
            Self::Listed(listed) => listed.naming.kept,
            Self::Gitlab => shared::GITLAB.kept,
            Self::Twilio => twilio::NAMING.kept,
            Self::Sendgrid => sendgrid::NAMING.kept,
            Self::Paypal(_) => paypal::NAMING.kept,
            Self::Sns(_) => sns::NAMING.kept,
            Self::Chargebee { .. } | Self::Mailgun | Self::Adyen(_) | Self::Dynamics => &[],
            Self::Generic(generic) => &generic.kept(),
        };
        let names = naming::KEPT_ALWAYS.iter().chain(own);
        let found = names.filter_map(|name| {
            headers.get(name).map(|value| ((*name).to_owned(), value.to_owned()))
        });
        found.collect()
    }
}

/// A correct signature: whose, and when it says it was made.
struct Verified {
    secret: usize,
    signed_at: Option<Timestamp>,
}

/// The signature that is right under one of the usable secrets, if any is.
///
/// `expected` gives what a secret would have signed, `None` for a secret that cannot be used.
fn any_match(
    secrets: &[&[u8]],
    offered: &[Vec<u8>],
    expected: impl Fn(&[u8]) -> Option<Vec<u8>>,
) -> Result<usize, Refused> {
    let mut refused = Refused::NoSecret;
    for (index, secret) in secrets.iter().enumerate() {
        // Anybody can sign with an empty key.
        if secret.is_empty() {
            continue;
        }
        let Some(expected) = expected(secret) else { continue };
        refused = Refused::Mismatch;
        // Nothing equals nothing, and proves nothing.
        if !expected.is_empty()
            && offered
                .iter()
                .take(SIGNATURES_MOST)
                .any(|signature| super::signature::same(signature, &expected))
        {
            return Ok(index);
        }
    }
    Err(refused)
}

/// How many signatures are tried with each of so many public keys.
fn public_signatures(keys: usize) -> usize {
    PUBLIC_SIGNATURES_MOST.min(PUBLIC_CHECKS_MOST.checked_div(keys).unwrap_or(0))
}

fn needed<'a>(headers: &'a Headers, name: &str) -> Result<&'a str, Refused> {
    headers.get(name).ok_or_else(|| Refused::Missing { header: name.to_owned() })
}

fn body(why: &'static str) -> Refused {
    Refused::Body { why }
}

fn malformed(header: &str, why: &'static str) -> Refused {
    Refused::Malformed { header: header.to_owned(), why }
}

/// A count since 1970 in plain digits; signs, spaces and fractions are not taken.
fn time_digits(text: &str) -> Option<i64> {
    let plain = (1..=TIME_DIGITS_MAX).contains(&text.len());
    (plain && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok()).flatten()
}

fn long_enough(bytes: usize) -> Result<(), SecretError> {
    if bytes < SECRET_BYTES_MIN {
        return Err(SecretError::Short { bytes, min: SECRET_BYTES_MIN });
    }
    Ok(())
}

fn bounded_id(id: &str) -> Option<String> {
    let id = id.trim();
    if id.is_empty() {
        return None;
    }
    if id.chars().any(char::is_control) || id.chars().count() > EVENT_ID_CHARS_MAX {
        return Some(id::sha256_hex(id.as_bytes()));
    }
    Some(id.to_owned())
}

fn bounded_type(name: &str) -> Option<String> {
    let mut bounded = String::new();
    for letter in name.trim().chars() {
        // A pattern names neither, and a line break would forge lines in logs.
        let letter = if letter.is_control() || letter.is_whitespace() { '_' } else { letter };
        if bounded.len() + letter.len_utf8() > EVENT_TYPE_BYTES_MAX {
            break;
        }
        bounded.push(letter);
    }
    (!bounded.is_empty()).then_some(bounded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheme_survives_its_settings_form() {
        for kind in form::KINDS.iter().copied() {
            let text = format!(r#"{{"kind":"{kind}"}}"#);
            let read = serde_json::from_str::<Scheme>(&text);
            assert_eq!(read.as_ref().ok(), Scheme::of(kind).as_ref());
            match read {
                Ok(scheme) => assert_eq!(serde_json::to_string(&scheme).unwrap(), text),
                Err(error) => assert!(error.to_string().contains(kind), "{error}"),
            }
        }
    }

    #[test]
    fn wrong_settings_are_refused_with_what_there_is() {
        let refuse = |text: &str| serde_json::from_str::<Scheme>(text).unwrap_err().to_string();
        assert!(
            refuse(r#"{"kind":"strip"}"#)
                .contains("there is no scheme `strip`; there are standard")
        );
        assert!(refuse(r#"{"sort":"stripe"}"#).contains("needs a `kind`"));
        assert!(refuse(r#"{"kind":7}"#).contains("needs a `kind`"));
    }

    #[test]
    fn secrets_are_looked_at_when_they_are_entered() {
        let check = |scheme: Scheme, text: &str| scheme.check_secret(text);
        let of = |kind: &str| Scheme::of(kind).unwrap();
        assert_eq!(check(of("github"), ""), Err(SecretError::Empty));
        assert_eq!(check(of("github"), "0123456789abcdef\n"), Err(SecretError::Blank));
        assert_eq!(
            check(of("shopify"), "short"),
            Err(SecretError::Short { bytes: 5, min: SECRET_BYTES_MIN })
        );
        assert_eq!(check(of("shopify"), "0123456789abcdef"), Ok(()));
        assert!(matches!(check(of("github"), &"x".repeat(2000)), Err(SecretError::Long { .. })));
        assert!(matches!(
            check(of("stripe"), "sk_live_0123456789"),
            Err(SecretError::NoPrefix { .. })
        ));
        assert_eq!(check(of("stripe"), "whsec_0123456789abcdef"), Ok(()));
        assert!(matches!(
            check(Scheme::Standard, "0123456789abcdef"),
            Err(SecretError::NoPrefix { .. })
        ));
    }

    #[test]
    fn ids_that_do_not_fit_are_stored_as_their_digest() {
        assert_eq!(bounded_id(" evt_1 ").as_deref(), Some("evt_1"));
        assert_eq!(bounded_id("  "), None);
        assert_eq!(bounded_id(&"x".repeat(500)).map(|id| id.len()), Some(500));
        assert_eq!(bounded_id(&"x".repeat(501)), Some(id::sha256_hex("x".repeat(501).as_bytes())));
        assert_eq!(bounded_id("a\nb"), Some(id::sha256_hex(b"a\nb")));
    }

    #[test]
    fn types_are_cut_and_cleaned() {
        assert_eq!(bounded_type("Push Hook").as_deref(), Some("Push_Hook"));
        assert_eq!(bounded_type("a\u{1b}[31m\u{85}b").as_deref(), Some("a_[31m_b"));
        assert_eq!(bounded_type(&"ä".repeat(100)), Some("ä".repeat(64)));
        assert_eq!(bounded_type("\t"), None);
    }
}
