//! Signature schemes: how a provider proves that it sent a webhook, and where the webhook's id and type are.
//!
//! Every scheme works on the raw body bytes. A body is parsed only after its signature was verified; if the signature
//! is in the body, only the fields for the check are read before.

pub mod acknowledgement;
pub mod adyen;
mod answering;
pub mod batch;
mod certificate;
pub mod certificate_cache;
pub(crate) mod check;
pub mod conduct;
pub mod diagnosis;
pub mod fingerprint;
pub mod generic;
pub mod handshake;
pub mod header_names;
mod hmac_header;
mod json_variants;
mod mailgun;
mod naming;
pub mod new_secret;
mod paypal;
pub mod provider;
pub mod sample;
mod sendgrid;
mod settings_schema;
mod shared;
pub mod signing;
pub mod signing_key;
mod sns;
pub(crate) mod standard;
pub mod template;
mod twilio;

use std::time::Duration;

use serde_json::{Map, Value};

use crate::base::clock::Timestamp;
use crate::base::headers::Headers;

use adyen::Adyen;
use check::{long_enough, skew_beyond};
use generic::{Check, Generic};
use hmac_header::{
    FORGEJO, FRAPPE, GITEA, GITHUB, GRAFANA, HmacHeader, LINEAR, META, PADDLE, PAGERDUTY, SHOPIFY,
    SLACK, SQUARE, STRIPE, TERRAFORM, WOOCOMMERCE, XERO, ZOOM,
};
use naming::Facts;
use paypal::Paypal;
use signing::SecretError;
use sns::Sns;
use standard::Key;

pub use check::{Incoming, Refused};
pub use naming::Identity;

/// How far a signed timestamp may be from our clock, as in every reference library.
const TOLERANCE_DEFAULT: Duration = Duration::from_mins(5);
/// Far longer than any provider's secret; a longer text is a file pasted by mistake.
const MAX_SECRET_BYTES: usize = 1024;

/// The schemes that need no settings, in the order of our lists.
static WITHOUT_SETTINGS: [Scheme; 25] = [
    Scheme::Standard,
    Scheme::HmacHeader(&STRIPE),
    Scheme::HmacHeader(&GITHUB),
    Scheme::HmacHeader(&SHOPIFY),
    Scheme::Gitlab,
    Scheme::HmacHeader(&SLACK),
    Scheme::HmacHeader(&SQUARE),
    Scheme::HmacHeader(&PADDLE),
    Scheme::Polar,
    Scheme::HmacHeader(&WOOCOMMERCE),
    Scheme::Twilio,
    Scheme::Sendgrid,
    Scheme::Mailgun,
    Scheme::Adyen(Adyen { accepted: false }),
    Scheme::Dynamics,
    Scheme::HmacHeader(&GITEA),
    Scheme::HmacHeader(&FORGEJO),
    Scheme::HmacHeader(&PAGERDUTY),
    Scheme::HmacHeader(&LINEAR),
    Scheme::HmacHeader(&TERRAFORM),
    Scheme::HmacHeader(&GRAFANA),
    Scheme::HmacHeader(&FRAPPE),
    Scheme::HmacHeader(&META),
    Scheme::HmacHeader(&XERO),
    Scheme::HmacHeader(&ZOOM),
];

/// The kinds of schemes that need settings.
const WITH_SETTINGS: [&str; 4] = ["chargebee", "paypal", "sns", "generic"];

/// The kinds of all schemes.
pub fn kinds() -> impl Iterator<Item = &'static str> {
    WITHOUT_SETTINGS.iter().map(Scheme::kind).chain(WITH_SETTINGS)
}

fn kinds_listed() -> String {
    kinds().collect::<Vec<_>>().join(", ")
}

/// The signature scheme of a provider.
///
/// *Shape*: `{"kind":"stripe"}`; only some have settings, such as `generic`, see [`Generic`].
///
/// ```
/// use oncebox::signatures::Scheme;
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
    HmacHeader(&'static HmacHeader),
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
    /// PayPal: signs with a certificate, and the request names its URL.
    Paypal(Box<Paypal>),
    /// Amazon SNS: signs with a certificate, and the request names its URL.
    Sns(Box<Sns>),
    /// Dynamics 365 Business Central: a shared `clientState` in each item of a batch.
    Dynamics,
    /// Defined by settings: HMAC or ed25519 over a template, a shared token, or basic authentication.
    Generic(Box<Generic>),
}

/// Why a scheme's settings are refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SchemeError {
    /// `kind` is missing or not a string.
    #[error("a scheme needs a `kind`, one of {}", kinds_listed())]
    NoKind,
    /// There is no such scheme.
    #[error("there is no scheme `{kind}`; there are {}", kinds_listed())]
    UnknownKind {
        /// The requested kind.
        kind: String,
    },
    /// The scheme does not have this setting.
    #[error("the scheme `{kind}` has no setting `{setting}`")]
    NoSuchSetting {
        /// The scheme.
        kind: String,
        /// The setting.
        setting: String,
    },
    /// The settings contradict each other, or one is missing.
    #[error("the scheme `{kind}` cannot be set like this: {why}")]
    Settings {
        /// The scheme.
        kind: String,
        /// Why they are refused.
        why: String,
    },
}

/// Settings of `chargebee`.
#[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Basic {
    /// The user name; the secret is the password.
    #[schemars(length(min = 1, max = 255))]
    user: String,
}

impl TryFrom<Map<String, Value>> for Scheme {
    type Error = SchemeError;

    fn try_from(mut settings: Map<String, Value>) -> Result<Self, SchemeError> {
        let Some(Value::String(kind)) = settings.remove("kind") else {
            return Err(SchemeError::NoKind);
        };
        if kind != "adyen"
            && let Some(scheme) = Self::of(&kind)
        {
            return match settings.keys().next() {
                Some(setting) => Err(SchemeError::NoSuchSetting { kind, setting: setting.clone() }),
                None => Ok(scheme),
            };
        }
        let settings = Value::Object(settings);
        let text = |error: serde_json::Error| error.to_string();
        let read = match kind.as_str() {
            "chargebee" => {
                serde_json::from_value(settings).map_err(text).and_then(|Basic { user }| {
                    let why = || generic::SettingsError::User.to_string();
                    shared::is_user(&user).then_some(Self::Chargebee { user }).ok_or_else(why)
                })
            }
            "adyen" => serde_json::from_value(settings).map(Self::Adyen).map_err(text),
            "generic" => serde_json::from_value(settings).map(Self::Generic).map_err(text),
            "paypal" => serde_json::from_value(settings)
                .map_err(text)
                .and_then(|paypal: Paypal| paypal.check().map(|()| Self::Paypal(Box::new(paypal)))),
            "sns" => serde_json::from_value(settings)
                .map_err(text)
                .and_then(|sns: Sns| sns.check().map(|()| Self::Sns(Box::new(sns)))),
            _ => return Err(SchemeError::UnknownKind { kind }),
        };
        read.map_err(|why| SchemeError::Settings { kind, why })
    }
}

impl From<Scheme> for Map<String, Value> {
    fn from(scheme: Scheme) -> Self {
        let mut settings = Self::new();
        settings.insert("kind".to_owned(), Value::from(scheme.kind()));
        let own = match scheme {
            Scheme::Chargebee { user } => serde_json::to_value(Basic { user }),
            Scheme::Paypal(paypal) => serde_json::to_value(paypal),
            Scheme::Sns(sns) => serde_json::to_value(sns),
            Scheme::Adyen(adyen) => serde_json::to_value(adyen),
            Scheme::Generic(generic) => serde_json::to_value(generic),
            _ => return settings,
        };
        if let Ok(Value::Object(own)) = own {
            settings.extend(own);
        }
        settings
    }
}

impl Scheme {
    fn facts(&self) -> &'static Facts {
        match self {
            Self::Standard => &standard::STANDARD,
            Self::Polar => &standard::POLAR,
            Self::HmacHeader(scheme) => &scheme.facts,
            Self::Gitlab => &shared::GITLAB,
            Self::Chargebee { .. } => &shared::CHARGEBEE,
            Self::Twilio => &twilio::FACTS,
            Self::Mailgun => &mailgun::FACTS,
            Self::Sendgrid => &sendgrid::FACTS,
            Self::Adyen(_) => &adyen::FACTS,
            Self::Paypal(_) => &paypal::FACTS,
            Self::Sns(_) => &sns::FACTS,
            Self::Dynamics => &shared::DYNAMICS,
            Self::Generic(_) => &generic::FACTS,
        }
    }

    /// The facts of its provider. For `generic` those of the providers with the same header field come first: the settings
    /// describe such a provider, which makes the same handshakes and reads the same answers.
    fn alike(&self) -> impl Iterator<Item = &'static Facts> {
        let twins = WITHOUT_SETTINGS.iter().filter_map(move |scheme| match (self, scheme) {
            (Self::Generic(generic), Self::HmacHeader(scheme))
                if generic.is_proof(scheme.header) =>
            {
                Some(&scheme.facts)
            }
            _ => None,
        });
        twins.chain([self.facts()])
    }

    /// The name of the scheme in settings and rows.
    pub fn kind(&self) -> &'static str {
        self.facts().kind
    }

    /// The scheme of that kind, if it needs no settings.
    ///
    /// ```
    /// use oncebox::signatures::Scheme;
    /// assert_eq!(Scheme::of("slack").map(|scheme| scheme.kind()), Some("slack"));
    /// assert_eq!(Scheme::of("generic"), None);
    /// ```
    pub fn of(kind: &str) -> Option<Self> {
        WITHOUT_SETTINGS.iter().find(|scheme| scheme.kind() == kind).cloned()
    }

    /// Whether its provider may send an event with `GET`: then the query is the form.
    pub fn takes_get(&self) -> bool {
        self.facts().takes_get
    }

    /// Whether it uses secrets or public keys that are entered; otherwise its providers sign with a certificate.
    pub const fn has_secret(&self) -> bool {
        !matches!(self, Self::Paypal(_) | Self::Sns(_))
    }

    /// Whether a public key can be entered as its secret.
    pub fn takes_public_keys(&self) -> bool {
        match self {
            Self::Standard | Self::Sendgrid => true,
            Self::Generic(generic) => matches!(generic.settings().check, Check::Ed25519(_)),
            _ => false,
        }
    }

    /// Whether a request is checked with a public key, which costs many times as much as an HMAC.
    pub fn is_asymmetric<S: AsRef<[u8]>>(&self, secrets: &[S]) -> bool {
        match self {
            Self::Standard => secrets.iter().any(|secret| standard::is_public(secret.as_ref())),
            _ => !self.has_secret() || self.takes_public_keys(),
        }
    }

    /// The text to enter for a public key, given as the 32 bytes of ed25519 or the point of P-256.
    pub fn public_text(&self, key: &[u8]) -> Option<String> {
        match self {
            Self::Standard => Some(standard::public_text(key)),
            Self::Sendgrid => Some(sendgrid::public_text(key)),
            _ => None,
        }
    }

    /// The default of how far a signed time may be from ours. It is undocumented whether Mailgun and PayPal sign
    /// retries anew, so theirs is longer than their retries last; a recorded request is recognised by its token.
    pub fn tolerance_default(&self) -> Duration {
        match self.kind() {
            "mailgun" => Duration::from_hours(12),
            "paypal" => Duration::from_hours(4 * 24),
            _ => TOLERANCE_DEFAULT,
        }
    }

    /// The URL of a request's certificate, for schemes that need one. Refuses a request that names none, or one that
    /// is not on the provider's own host.
    pub fn certificate_url(&self, incoming: &Incoming<'_>) -> Result<Option<String>, Refused> {
        match self {
            Self::Paypal(paypal) if paypal.certificates.is_none() => {
                paypal::certificate_url(incoming).map(Some)
            }
            Self::Sns(sns) if sns.certificates.is_none() => {
                sns::certificate_url(sns, incoming).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Refuses a request with a costly check if its claimed time is further from `now` than `tolerance`
    /// ([`Refused::Untimely`]), before anything is fetched or computed. A request without a readable time passes; the
    /// signature check decides about it.
    pub fn in_time(
        &self,
        incoming: &Incoming<'_>,
        now: Timestamp,
        tolerance: Duration,
    ) -> Result<(), Refused> {
        let claimed = match self {
            Self::Standard => standard::claimed_time(incoming),
            Self::Sendgrid => sendgrid::claimed_time(incoming),
            Self::Paypal(_) => incoming.headers.get(paypal::TIME).and_then(Timestamp::parse),
            Self::Generic(generic) => generic.claimed_time(incoming),
            _ => None,
        };
        match claimed.and_then(|at| skew_beyond(at, now, tolerance)) {
            Some(skew_secs) => Err(Refused::Untimely { skew_secs }),
            None => Ok(()),
        }
    }

    /// Checks a secret when it is entered, so that a wrong paste is noticed before the first webhook.
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
            Self::HmacHeader(scheme) => scheme.check_secret(text),
            Self::Gitlab | Self::Twilio | Self::Mailgun | Self::Dynamics => long_enough(text.len()),
            Self::Paypal(_) | Self::Sns(_) => Err(SecretError::None),
            Self::Sendgrid => sendgrid::check_secret(text),
            Self::Adyen(_) => adyen::check_secret(text),
            Self::Chargebee { .. } => shared::check_password(text),
            Self::Generic(generic) => generic.check_secret(text),
        }
    }

    /// Verifies a request; returns the index of the secret that signed it.
    ///
    /// Every secret is compared with every signature in the request, each in constant time. If the scheme signs a
    /// time, it must be within `tolerance` of `now` (wall time), before or after. [`Refused::Stale`] means that
    /// everything else is correct.
    ///
    /// ```
    /// use oncebox::base::clock::Timestamp;
    /// use oncebox::signatures::{Incoming, Scheme};
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
    pub fn verify<S: AsRef<[u8]>>(
        &self,
        secrets: &[S],
        incoming: &Incoming<'_>,
        now: Timestamp,
        tolerance: Duration,
    ) -> Result<usize, Refused> {
        self.verify_with(secrets, None, incoming, now, tolerance)
    }

    /// Like [`Scheme::verify`], with the certificate that was fetched for the request, PEM.
    pub fn verify_with<S: AsRef<[u8]>>(
        &self,
        secrets: &[S],
        fetched: Option<&[u8]>,
        incoming: &Incoming<'_>,
        now: Timestamp,
        tolerance: Duration,
    ) -> Result<usize, Refused> {
        let secrets: Vec<&[u8]> = secrets.iter().map(AsRef::as_ref).collect();
        let secrets = secrets.as_slice();
        let verified = match self {
            Self::Standard => standard::verify(secrets, incoming, Key::Decoded)?,
            Self::Polar => standard::verify(secrets, incoming, Key::Verbatim)?,
            Self::HmacHeader(scheme) => scheme.verify(secrets, incoming)?,
            Self::Gitlab => shared::gitlab(secrets, incoming)?,
            Self::Chargebee { user } => shared::basic(user, secrets, incoming)?,
            Self::Twilio => twilio::verify(secrets, incoming)?,
            Self::Mailgun => mailgun::verify(secrets, incoming)?,
            Self::Sendgrid => sendgrid::verify(secrets, incoming)?,
            Self::Adyen(_) => adyen::verify(secrets, incoming)?,
            Self::Paypal(paypal) => paypal::verify(paypal, fetched, incoming, now)?,
            Self::Sns(sns) => sns::verify(sns, fetched, incoming)?,
            Self::Dynamics => shared::dynamics(secrets, incoming)?,
            Self::Generic(generic) => generic.verify(secrets, incoming)?,
        };
        verified.if_fresh(now, tolerance)
    }

    /// The id and type of a webhook. Call it after [`Scheme::verify`]: it parses the body.
    ///
    /// ```
    /// use oncebox::signatures::{Incoming, Scheme};
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
        let view = naming::json_view(incoming);
        let read = Incoming { body: &view, ..*incoming };
        let stated = match self {
            Self::Standard | Self::Polar => standard::identify(&read),
            Self::Twilio => twilio::identify(incoming),
            Self::Mailgun => mailgun::identify(&read),
            Self::Adyen(_) => adyen::identify(&read),
            Self::Generic(generic) => generic.identify(&read),
            _ => self.facts().identify(&read),
        };
        Identity::of(stated, incoming.body)
    }

    /// The name of the header field in which the provider names the type of a webhook; `None` if it has no such field.
    pub fn type_field<'s>(&'s self, incoming: &Incoming<'_>) -> Option<&'s str> {
        match self {
            Self::Generic(generic) => generic.type_field(),
            _ => self.facts().type_field(incoming),
        }
    }

    /// Whether a webhook has no id but its bytes, because its settings say so.
    pub const fn is_named_by_bytes(&self) -> bool {
        matches!(self, Self::Generic(generic) if generic.is_named_by_bytes())
    }

    /// The header fields that are kept with a webhook event, never a signature.
    pub fn kept(&self, headers: &Headers) -> Vec<(String, String)> {
        let own: &[&str] = match self {
            Self::Generic(generic) => &generic.kept(),
            _ => self.facts().kept,
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
        for kind in kinds() {
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
    fn a_header_field_with_the_type_is_kept() {
        for scheme in &WITHOUT_SETTINGS {
            for locator in scheme.facts().types {
                if let naming::Locator::Header(name) = locator {
                    assert!(scheme.facts().kept.contains(name), "{name} of {}", scheme.kind());
                }
            }
        }
    }

    #[test]
    fn wrong_settings_are_refused_with_the_known_kinds() {
        let refuse = |text: &str| serde_json::from_str::<Scheme>(text).unwrap_err().to_string();
        assert!(
            refuse(r#"{"kind":"strip"}"#)
                .contains("there is no scheme `strip`; there are standard")
        );
        assert!(refuse(r#"{"sort":"stripe"}"#).contains("needs a `kind`"));
        assert!(refuse(r#"{"kind":7}"#).contains("needs a `kind`"));
    }

    #[test]
    fn secrets_are_checked_when_they_are_entered() {
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
    fn a_request_with_a_public_key_check_is_refused_by_its_time_alone() {
        let paypal = r#"{"kind":"paypal","webhook_id":"4JH86294D6297924G"}"#;
        let keyed = r#"{"kind":"generic","check":{"ed25519":{"signed":"{ts}{body}","header":"X",
            "timestamp":{"header":"X-Time"}}}}"#;
        let of = |text: &str| serde_json::from_str::<Scheme>(text).unwrap();
        for (scheme, secret, header, time) in [
            (Scheme::Standard, "whpk_AAAA", "webhook-timestamp", "1700000301"),
            (Scheme::Standard, "whpk_AAAA", "svix-timestamp", "1700000301"),
            (Scheme::Sendgrid, "x", "x-twilio-email-event-webhook-timestamp", "1699999699"),
            (of(paypal), "", "paypal-transmission-time", "2023-11-14T22:18:21Z"),
            (of(keyed), "x", "x-time", "1700000301"),
        ] {
            assert!(scheme.is_asymmetric(&[secret]), "{scheme:?}");
            let judge = |signature: &str, time: &str, now| {
                let mut headers = Headers::default();
                headers.push(header, time.as_bytes());
                headers.push(signature, b"x");
                let method = "POST";
                let path = "/";
                let url = "";
                let incoming = Incoming { method, path, url, headers: &headers, body: b"" };
                scheme.in_time(&incoming, Timestamp::from_secs(now), Duration::from_mins(5))
            };
            let signature = header.replace("timestamp", "signature");
            let late = Err(Refused::Untimely { skew_secs: 301 });
            assert_eq!(judge(&signature, time, 1_700_000_000), late, "{header}");
            assert_eq!(
                judge(&signature, time, 1_700_000_001 - 2 * i64::from(time == "1699999699")),
                Ok(())
            );
            assert_eq!(judge(&signature, "none", 1_700_000_000), Ok(()));
        }
        assert!(!Scheme::Standard.is_asymmetric(&["whsec_AAAA"]));
    }
}
