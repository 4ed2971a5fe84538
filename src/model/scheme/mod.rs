//! How a provider proves that a webhook is its own, and where the webhook's id and type stand.
//!
//! Not here: reading the request from the wire, storing what was accepted, and our own signature on
//! what we send ([`super::signature`]). Every scheme works on the raw body bytes. Nothing in a body is
//! parsed before its signature has been found correct, but for the providers that put the signature into
//! the body: there no more is read than what the check needs.

pub mod adyen;
mod asymmetric;
pub mod batch;
pub mod certificate;
mod check;
pub mod diagnosis;
pub mod encoding;
mod fingerprint;
pub mod form;
pub mod generic;
pub mod handshake;
mod header_list;
mod identity;
mod incoming;
mod mailgun;
mod naming;
pub mod paypal;
mod plain;
mod refused;
pub mod sample;
mod sendgrid;
mod shared;
pub mod sns;
mod standard;
pub mod template;
mod twilio;

use std::time::Duration;

use serde_json::{Map, Value};

use crate::base::clock::{Timestamp, millis};
use crate::base::headers::Headers;
use crate::model::signature::SecretError;

use adyen::Adyen;
use certificate::Proof;
use check::long_enough;
use generic::Generic;
use header_list::Listed;
use paypal::Paypal;
use plain::Plain;
use sns::Sns;
use standard::Key;

pub use identity::Identity;
pub use incoming::Incoming;
pub use refused::Refused;
pub(crate) use standard::id_header;

/// How far a signed timestamp may be from our clock: what every reference library uses.
const TOLERANCE_DEFAULT: Duration = Duration::from_mins(5);
/// No provider's secret comes near this; what is longer is a file pasted by mistake.
const MAX_SECRET_BYTES: usize = 1024;

/// The signature scheme of a provider.
///
/// *Shape*: `{"kind":"stripe"}`; only some have settings, such as `generic`, see [`Generic`].
///
/// ```
/// use oncebox::model::scheme::Scheme;
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
    /// use oncebox::model::scheme::Scheme;
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
        if text.len() > MAX_SECRET_BYTES {
            return Err(SecretError::Long { bytes: text.len(), max: MAX_SECRET_BYTES });
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
    /// use oncebox::base::clock::Timestamp;
    /// use oncebox::model::scheme::{Incoming, Scheme};
    /// use oncebox::base::headers::Headers;
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
    /// use oncebox::model::scheme::{Incoming, Scheme};
    /// use oncebox::base::headers::Headers;
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
        let found = match self {
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
        Identity::of(found, incoming.body)
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

#[cfg(test)]
mod tests {
    use super::check::SECRET_BYTES_MIN;
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
}
