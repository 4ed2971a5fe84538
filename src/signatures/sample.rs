//! Sample webhooks, signed like a provider's own. Not possible for providers that sign with a key only they have.
//!
//! Not here: posting the sample.

use data_encoding::{BASE64, HEXLOWER};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};

use super::check::Incoming;
use super::hmac_header::{HmacHeader, Time};
use super::naming::{Facts, Locator};
use super::signing::{Hash, SecretError, SigningSecret, mac};
use super::{Scheme, adyen, mailgun, sendgrid, shared, standard, twilio};
use crate::base::clock::Timestamp;
use crate::base::headers::Headers;
use crate::base::id::{self, Draw};

/// Why there is no sample of a scheme that is checked with a public key.
const BY_PUBLIC_KEY: &str =
    "it is checked with a public key, and only the sender has the private one";

/// A request's header fields and its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The fields, including the signature.
    pub headers: Vec<(String, String)>,
    /// The body, as it was signed.
    pub body: Vec<u8>,
}

/// Why there is no sample.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SampleError {
    /// Only the provider can sign.
    #[error("there are no samples for the scheme {kind}: {why}")]
    NoSuch {
        /// The scheme.
        kind: &'static str,
        /// Why not.
        why: &'static str,
    },
    /// The private key did not sign.
    #[error("the private key did not sign: this machine gives no randomness")]
    Unsigned,
    /// The secret is not valid for the scheme.
    #[error("the secret cannot be used: {0}")]
    Secret(#[from] SecretError),
}

/// The event of a sample.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The provider's id for the event.
    pub id: &'a str,
    /// Its type, in the provider's spelling.
    pub event_type: &'a str,
    /// When it is signed.
    pub at: Timestamp,
    /// The URL that the provider posts to.
    pub url: &'a str,
}

/// The default type of a scheme's sample.
pub fn type_default(scheme: &Scheme) -> &'static str {
    scheme.facts().sample_type
}

/// A new id in the form of the scheme's providers.
///
/// ```
/// use oncebox::base::clock::Timestamp;
/// use oncebox::signatures::{Scheme, sample};
/// let stripe = Scheme::of("stripe").unwrap();
/// let id = sample::new_id(&stripe, Timestamp::from_secs(0), &oncebox::base::id::SystemDraw::new());
/// assert!(id.starts_with("evt_") && id.len() == 28);
/// ```
pub fn new_id(scheme: &Scheme, at: Timestamp, draw: &dyn Draw) -> String {
    let mut bytes = [0_u8; 12];
    draw.fill(&mut bytes);
    match scheme {
        Scheme::HmacHeader(scheme) if scheme.lists_values() => {
            format!("evt_{}", HEXLOWER.encode(&bytes))
        }
        Scheme::Standard | Scheme::Polar => format!("msg_{}", HEXLOWER.encode(&bytes)),
        _ => id::uuid7(at, draw),
    }
}

/// A request like the provider's own. Refused if nobody but the provider can sign, or if the secret is not valid for
/// the scheme.
///
/// ```
/// use oncebox::base::clock::Timestamp;
/// use oncebox::signatures::sample::{Subject, sample};
/// use oncebox::signatures::Scheme;
/// let (at, url) = (Timestamp::from_secs(0), "https://edge.example/in/github");
/// let subject = Subject { id: "4711", event_type: "push", at, url };
/// let made = sample(&Scheme::of("github").unwrap(), "0123456789abcdef", subject)?;
/// assert!(made.headers.iter().any(|(name, _)| name == "x-hub-signature-256"));
/// # Ok::<(), oncebox::signatures::sample::SampleError>(())
/// ```
pub fn sample(scheme: &Scheme, secret: &str, subject: Subject<'_>) -> Result<Sample, SampleError> {
    only_certified(scheme)?;
    scheme.check_secret(secret)?;
    let Subject { id, at, .. } = subject;
    let seconds = at.secs().to_string();
    let mut draft = Draft::new(scheme.facts(), subject);
    Ok(match scheme {
        Scheme::Standard => return standard_webhooks(scheme, secret, subject),
        Scheme::Gitlab if secret.starts_with(shared::SIGNING_PREFIX) => {
            return standard_webhooks(scheme, secret, subject);
        }
        Scheme::Polar => {
            let sample = draft.done();
            let parts = [id.as_bytes(), b".", seconds.as_bytes(), b".", &sample.body];
            let signature = BASE64.encode(&mac(Hash::Sha256, secret.as_bytes(), &parts));
            sample
                .with("webhook-timestamp", seconds)
                .with("webhook-signature", format!("v1,{signature}"))
        }
        Scheme::HmacHeader(scheme) => hmac_sample(scheme, secret, subject),
        Scheme::Gitlab => draft.done().with("x-gitlab-token", secret.to_owned()),
        Scheme::Chargebee { user } => {
            let password = BASE64.encode(format!("{user}:{secret}").as_bytes());
            draft.done().with("authorization", format!("Basic {password}"))
        }
        Scheme::Mailgun => {
            // A token is accepted with one body only, and the time is part of the body.
            let token = id::sha256_hex(format!("{id}:{seconds}").as_bytes());
            let signature = mailgun::sign(secret, &seconds, &token);
            put(&mut draft.body, &["signature", "timestamp"], &seconds);
            put(&mut draft.body, &["signature", "token"], &token);
            put(&mut draft.body, &["signature", "signature"], &signature);
            draft.done()
        }
        Scheme::Twilio => twilio_sample(secret, subject),
        Scheme::Adyen(_) => adyen_sample(secret, subject),
        Scheme::Dynamics => {
            put(&mut draft.body, &["clientState"], secret);
            draft.body = json!({ "value": [draft.body] });
            draft.done()
        }
        Scheme::Sendgrid => return Err(none(scheme, BY_PUBLIC_KEY)),
        Scheme::Paypal(_) | Scheme::Sns(_) | Scheme::Generic(_) => {
            return Err(none(scheme, "only its settings know its requests"));
        }
    })
}

fn none(scheme: &Scheme, why: &'static str) -> SampleError {
    SampleError::NoSuch { kind: scheme.kind(), why }
}

/// A request like that of a provider whose signature is checked with a public key; `sign` signs with the private one.
pub fn sample_by_key(
    scheme: &Scheme,
    subject: Subject<'_>,
    sign: impl FnOnce(&[u8]) -> Option<Vec<u8>>,
) -> Result<Sample, SampleError> {
    only_certified(scheme)?;
    let id = subject.id;
    let seconds = subject.at.secs().to_string();
    let signed = |message: &[u8]| match sign(message) {
        Some(signature) => Ok(BASE64.encode(&signature)),
        None => Err(SampleError::Unsigned),
    };
    match scheme {
        Scheme::Standard => {
            let sample = Draft::new(&standard::STANDARD, subject).done();
            let parts = [id.as_bytes(), b".", seconds.as_bytes(), b".", &sample.body];
            let signature = signed(&parts.concat())?;
            Ok(sample
                .with("webhook-timestamp", seconds)
                .with("webhook-signature", format!("v1a,{signature}")))
        }
        Scheme::Sendgrid => {
            let mut draft = Draft::new(&sendgrid::FACTS, subject);
            draft.body = json!([draft.body]);
            let sample = draft.done();
            let signature = signed(&[seconds.as_bytes(), &sample.body].concat())?;
            Ok(sample.with(sendgrid::TIMESTAMP, seconds).with(sendgrid::SIGNATURE, signature))
        }
        _ => Err(none(scheme, "no public key checks it")),
    }
}

/// Refuses a scheme whose provider signs with a certificate, because only the provider has its key.
fn only_certified(scheme: &Scheme) -> Result<(), SampleError> {
    let why = match scheme {
        Scheme::Paypal(_) => {
            "PayPal signs with the key of its own certificate, which nobody else has; a payment in its sandbox \
             sends a real one"
        }
        Scheme::Sns(_) => {
            "Amazon signs with the key of its own certificate, which nobody else has; `aws sns publish` to the \
             topic sends a real one"
        }
        _ => return Ok(()),
    };
    Err(none(scheme, why))
}

fn standard_webhooks(
    scheme: &Scheme,
    secret: &str,
    subject: Subject<'_>,
) -> Result<Sample, SampleError> {
    let Subject { id, at, .. } = subject;
    if !secret.starts_with(shared::SIGNING_PREFIX) {
        return Err(none(scheme, BY_PUBLIC_KEY));
    }
    let sample = Draft::new(scheme.facts(), subject).done();
    let signature = SigningSecret::parse(secret)?.sign(id, at, &sample.body);
    Ok(sample.with("webhook-timestamp", at.secs().to_string()).with("webhook-signature", signature))
}

/// A status update of a message.
fn twilio_sample(secret: &str, subject: Subject<'_>) -> Sample {
    let Subject { id, event_type, at: _, url } = subject;
    let status = event_type.strip_prefix("message.").unwrap_or(event_type);
    let name = if status == event_type { "EventType" } else { "MessageStatus" };
    let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let body =
        format!("MessageSid={}&{name}={}&To=%2B491234567", encode(id), encode(status)).into_bytes();
    let form = "application/x-www-form-urlencoded".to_owned();
    let signature = twilio::sign(secret, url, &body);
    Sample { headers: vec![("content-type".to_owned(), form)], body }
        .with("i-twilio-idempotency-token", id.to_owned())
        .with("x-twilio-signature", signature)
}

/// A payment with the id as its reference.
fn adyen_sample(secret: &str, subject: Subject<'_>) -> Sample {
    let Subject { id, event_type, at, url: _ } = subject;
    let mut item = json!({ "NotificationRequestItem": {
        "eventCode": event_type, "success": "true", "eventDate": at,
        "merchantAccountCode": "TestMerchant", "merchantReference": "4711", "pspReference": id,
        "amount": { "value": 11_900, "currency": "EUR" },
    } });
    let signature = adyen::signature(secret, item.to_string().as_bytes());
    put(&mut item, &["NotificationRequestItem", "additionalData", "hmacSignature"], &signature);
    let body = json!({ "live": "false", "notificationItems": [item] }).to_string().into_bytes();
    Sample { headers: vec![("content-type".to_owned(), "application/json".to_owned())], body }
}

fn hmac_sample(scheme: &HmacHeader, secret: &str, subject: Subject<'_>) -> Sample {
    let mut draft = Draft::new(&scheme.facts, subject);
    if let (Time::Body(field), Value::Object(fields)) = (&scheme.time, &mut draft.body) {
        fields.insert((*field).to_owned(), subject.at.ms().into());
    }
    if let Some(path) = scheme.facts.items {
        let list = Value::Array(vec![draft.body]);
        draft.body = path.iter().rev().fold(list, |inner, step| json!({ *step: inner }));
    }
    let mut sample = draft.done();
    let time = subject.at.secs().to_string();
    let headers = Headers::default();
    let url = subject.url;
    let incoming =
        Incoming { method: "POST", path: "", url, headers: &headers, body: &sample.body };
    let signature = scheme.encoding.encode(&scheme.sign(secret.as_bytes(), &time, &incoming));
    let mut field = format!("{}{signature}", scheme.prefix);
    match scheme.time {
        Time::Header(header) => sample = sample.with(header, time),
        Time::Entry(name) => {
            field = format!("{name}{time}{}{field}", scheme.separator.unwrap_or_default());
        }
        Time::Body(_) | Time::Unsigned => {}
    }
    sample.with(scheme.header, field)
}

impl Sample {
    fn with(mut self, name: &str, value: String) -> Self {
        self.headers.push((name.to_owned(), value));
        self
    }
}

/// A sample before it is signed, with id and type where the scheme expects them.
struct Draft {
    headers: Vec<(String, String)>,
    body: Value,
}

impl Draft {
    fn new(facts: &Facts, subject: Subject<'_>) -> Self {
        let Subject { id, event_type, at, url: _ } = subject;
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        let mut draft = Self { headers, body: content(facts.kind, subject) };
        // The second half of `pull_request.opened` is in the body.
        let (name, detail) = match (&facts.detail, event_type.split_once('.')) {
            (Some(place), Some((name, detail))) => (name, Some((place, detail))),
            _ => (event_type, None),
        };
        match facts.ids.first() {
            Some(place) => draft.put(place, id),
            // The id is the body's digest, so each sample needs another body.
            None => draft.put(&Locator::Body(&["sample_id"]), id),
        }
        if let Some(place) = facts.types.first() {
            draft.put(place, name);
        }
        if let Some((place, detail)) = detail {
            draft.put(place, detail);
        }
        if facts.kind == "shopify" {
            draft.headers.push(("x-shopify-triggered-at".to_owned(), at.to_string()));
        }
        draft
    }

    fn put(&mut self, locator: &Locator, text: &str) {
        match locator {
            Locator::Header(name) | Locator::Encoded(name) | Locator::Headers(name, _) => {
                self.headers.push(((*name).to_owned(), text.to_owned()));
            }
            Locator::Body(path) => put(&mut self.body, path, text),
        }
    }

    fn done(self) -> Sample {
        Sample { headers: self.headers, body: self.body.to_string().into_bytes() }
    }
}

/// Sets a text at a path, creating the objects and lists on the way.
fn put(within: &mut Value, path: &[&str], text: &str) {
    let Some((step, rest)) = path.split_first() else {
        *within = Value::from(text);
        return;
    };
    if *step == "0" {
        let mut item = Value::Null;
        put(&mut item, rest, text);
        *within = Value::Array(vec![item]);
        return;
    }
    if !within.is_object() {
        *within = Value::Object(Map::new());
    }
    if let Value::Object(fields) = within {
        put(fields.entry((*step).to_owned()).or_insert(Value::Null), rest, text);
    }
}

/// A short body like those of the provider.
fn content(kind: &str, Subject { event_type, at, .. }: Subject<'_>) -> Value {
    match kind {
        "stripe" => json!({
            "id": "",
            "object": "event",
            "api_version": "2025-03-31.basil",
            "created": at.secs(),
            "data": { "object": {
                "id": "in_4711",
                "object": event_type.rsplit_once('.').map_or(event_type, |(object, _)| object),
                "customer": "cus_sample", "currency": "eur",
                "amount_due": 11_900, "amount_paid": 11_900, "status": "paid", "number": "4711",
            } },
            "livemode": false,
            "pending_webhooks": 1,
        }),
        "github" | "gitea" | "forgejo" | "gitlab" => json!({
            "ref": "refs/heads/main",
            "after": "6113728f27ae82c7b1a177c8d03f9e96e0adf246",
            "repository": { "id": 1, "name": "sample", "full_name": "octo-org/sample" },
            "sender": { "login": "octocat", "id": 583_231, "type": "User" },
            "head_commit": { "message": "Sample", "timestamp": at },
        }),
        "shopify" | "woocommerce" => json!({
            "id": 4711,
            "name": "#4711",
            "email": "buyer@example.com",
            "created_at": at,
            "currency": "EUR",
            "total_price": "119.00",
            "line_items": [{ "id": 1, "title": "Sample", "quantity": 1, "price": "119.00" }],
        }),
        "standard" | "polar" => json!({ "type": "", "timestamp": at, "data": { "id": 4711 } }),
        // Without a time: where the id is the body's digest, a sample with an equal id must have an equal body.
        _ => json!({
            "data": { "id": 4711, "currency": "EUR", "total": "119.00", "status": "paid" },
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::kinds;
    use super::*;
    use crate::base::id::SystemDraw;

    /// Every scheme that needs no settings, with a secret.
    fn schemes() -> Vec<(Scheme, &'static str)> {
        let secret = |kind: &str| match kind {
            "standard" => "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "stripe" => "whsec_0123456789abcdef",
            _ => "0123456789abcdef0123456789abcdef",
        };
        // SendGrid's are signed by a key pair.
        let ours = kinds().filter(|kind| *kind != "sendgrid");
        let mut all: Vec<_> =
            ours.filter_map(|kind| Some((Scheme::of(kind)?, secret(kind)))).collect();
        all.push((Scheme::Gitlab, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"));
        all.push((Scheme::Chargebee { user: "erp".to_owned() }, "0123456789abcdef"));
        all
    }

    #[test]
    fn a_sample_is_accepted_and_has_the_requested_id_and_type() {
        let at = Timestamp::from_secs(1_700_000_000);
        let url = "http://127.0.0.1/in/x";
        for (scheme, secret) in schemes() {
            let id = new_id(&scheme, at, &SystemDraw::new());
            for event_type in [type_default(&scheme), "thing.changed"] {
                let subject = Subject { id: &id, event_type, at, url };
                let made = sample(&scheme, secret, subject).unwrap();
                let mut headers = Headers::default();
                for (name, value) in &made.headers {
                    headers.push(name, value.as_bytes());
                }
                let incoming = Incoming {
                    method: "POST",
                    path: "/in/x",
                    url,
                    headers: &headers,
                    body: &made.body,
                };
                let tolerance = Duration::from_mins(5);
                let verified = scheme.verify(&[secret], &incoming, at, tolerance);
                assert_eq!(verified, Ok(0), "{scheme:?}");
                let events = scheme.events(&incoming).unwrap();
                let [item] = events.items.as_slice() else { panic!("{scheme:?}: {events:?}") };
                assert_eq!(item.identity.event_type, event_type, "{scheme:?}");
                let by_body = item.identity.event_id == id::sha256_hex(&item.payload);
                assert!(by_body || item.identity.event_id.starts_with(&id), "{scheme:?}: {item:?}");
            }
        }
    }

    #[test]
    fn a_secret_that_is_not_valid_for_the_scheme_makes_no_sample() {
        let at = Timestamp::from_secs(0);
        let url = "http://127.0.0.1/in/x";
        let subject = Subject { id: "1", event_type: "x", at, url };
        for (scheme, _) in schemes() {
            assert!(matches!(sample(&scheme, "short", subject), Err(SampleError::Secret(_))));
        }
        let generic = r#"{"kind":"generic","check":{"token":{"header":"X-Token"}}}"#;
        let generic: Scheme = serde_json::from_str(generic).unwrap();
        let refused = sample(&generic, "0123456789abcdef", subject);
        assert!(matches!(refused, Err(SampleError::NoSuch { kind: "generic", .. })));
    }
}
