//! Sample webhooks: what a provider would send, signed as it would sign.
//!
//! Not here: the generic scheme, whose requests only its settings know; and posting the sample.

use data_encoding::{BASE64, HEXLOWER};
use serde_json::{Value, json};

use crate::clock::Timestamp;
use crate::domain::scheme::Scheme;
use crate::domain::signature::{Hash, SecretError, SigningSecret, mac};
use crate::id::{self, Draw};

/// A request's header fields and its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The fields, the signature among them.
    pub headers: Vec<(String, String)>,
    /// The body, as it was signed.
    pub body: Vec<u8>,
}

/// Why there is no sample.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SampleError {
    /// Nothing is known of what such a provider sends.
    #[error("there are no samples for the scheme {kind}: only its settings know its requests")]
    NoSuch {
        /// The scheme.
        kind: &'static str,
    },
    /// The secret is none of the scheme's.
    #[error("the secret cannot be used: {0}")]
    Secret(#[from] SecretError),
}

/// What a sample is about.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The provider's id for the event.
    pub id: &'a str,
    /// Its type, in the provider's spelling.
    pub event_type: &'a str,
    /// When it is signed.
    pub at: Timestamp,
}

/// The type of a scheme's sample unless another is asked for.
pub fn type_default(scheme: &Scheme) -> &'static str {
    match scheme {
        Scheme::Stripe | Scheme::Standard | Scheme::Generic(_) => "invoice.paid",
        Scheme::Github => "push",
        Scheme::Shopify => "orders/paid",
    }
}

/// A new id, in the form that the scheme's providers give theirs.
///
/// ```
/// use oncebox::clock::Timestamp;
/// use oncebox::domain::{sample, scheme::Scheme};
/// let id = sample::new_id(&Scheme::Stripe, Timestamp::from_secs(0), &oncebox::id::SystemDraw::new());
/// assert!(id.starts_with("evt_") && id.len() == 28);
/// ```
pub fn new_id(scheme: &Scheme, at: Timestamp, draw: &dyn Draw) -> String {
    let mut bytes = [0_u8; 12];
    draw.fill(&mut bytes);
    match scheme {
        Scheme::Stripe => format!("evt_{}", HEXLOWER.encode(&bytes)),
        Scheme::Standard => format!("msg_{}", HEXLOWER.encode(&bytes)),
        Scheme::Github | Scheme::Shopify | Scheme::Generic(_) => id::uuid7(at, draw),
    }
}

/// What the provider would send.
///
/// ```
/// use oncebox::clock::Timestamp;
/// use oncebox::domain::{sample::{Subject, sample}, scheme::Scheme};
/// let subject = Subject { id: "4711", event_type: "push", at: Timestamp::from_secs(0) };
/// let made = sample(&Scheme::Github, "0123456789abcdef", subject)?;
/// assert!(made.headers.iter().any(|(name, _)| name == "X-Hub-Signature-256"));
/// # Ok::<(), oncebox::domain::sample::SampleError>(())
/// ```
///
/// # Errors
/// For the generic scheme, and for a secret that is none of the scheme's.
pub fn sample(scheme: &Scheme, secret: &str, subject: Subject<'_>) -> Result<Sample, SampleError> {
    scheme.check_secret(secret)?;
    let (body, mut headers) = match scheme {
        Scheme::Stripe => stripe(secret, subject),
        Scheme::Github => github(secret, subject),
        Scheme::Shopify => shopify(secret, subject),
        Scheme::Standard => standard(secret, subject)?,
        Scheme::Generic(_) => return Err(SampleError::NoSuch { kind: scheme.kind() }),
    };
    headers.insert(0, ("Content-Type", "application/json".to_owned()));
    let headers = headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Ok(Sample { headers, body })
}

type Made = (Vec<u8>, Vec<(&'static str, String)>);

fn bytes(body: &Value) -> Vec<u8> {
    body.to_string().into_bytes()
}

fn stripe(secret: &str, Subject { id, event_type, at }: Subject<'_>) -> Made {
    let object = event_type.rsplit_once('.').map_or(event_type, |(object, _)| object);
    let body = bytes(&json!({
        "id": id,
        "object": "event",
        "api_version": "2025-03-31.basil",
        "created": at.secs(),
        "data": { "object": {
            "id": "in_4711", "object": object, "customer": "cus_sample", "currency": "eur",
            "amount_due": 11_900, "amount_paid": 11_900, "status": "paid", "number": "4711",
        } },
        "livemode": false,
        "pending_webhooks": 1,
        "type": event_type,
    }));
    let time = at.secs().to_string();
    let signature = mac(Hash::Sha256, secret.as_bytes(), &[time.as_bytes(), b".", &body]);
    let field = format!("t={time},v1={}", HEXLOWER.encode(&signature));
    (body, vec![("Stripe-Signature", field)])
}

fn github(secret: &str, Subject { id, event_type, at }: Subject<'_>) -> Made {
    let (event, action) = match event_type.split_once('.') {
        Some((event, action)) => (event, Some(action)),
        None => (event_type, None),
    };
    let mut body = json!({
        "ref": "refs/heads/main",
        "after": "6113728f27ae82c7b1a177c8d03f9e96e0adf246",
        "repository": { "id": 1, "name": "sample", "full_name": "octo-org/sample", "private": true },
        "sender": { "login": "octocat", "id": 583_231, "type": "User" },
        "head_commit": { "message": "Sample", "timestamp": at },
    });
    if let (Some(action), Value::Object(fields)) = (action, &mut body) {
        fields.insert("action".to_owned(), action.into());
    }
    let body = bytes(&body);
    let signature = mac(Hash::Sha256, secret.as_bytes(), &[&body]);
    let headers = vec![
        ("X-GitHub-Event", event.to_owned()),
        ("X-GitHub-Delivery", id.to_owned()),
        ("X-Hub-Signature-256", format!("sha256={}", HEXLOWER.encode(&signature))),
    ];
    (body, headers)
}

fn shopify(secret: &str, Subject { id, event_type, at }: Subject<'_>) -> Made {
    let body = bytes(&json!({
        "id": 4711,
        "name": "#4711",
        "email": "buyer@example.com",
        "created_at": at,
        "currency": "EUR",
        "total_price": "119.00",
        "financial_status": "paid",
        "line_items": [{ "id": 1, "title": "Sample", "quantity": 1, "price": "119.00" }],
    }));
    let signature = mac(Hash::Sha256, secret.as_bytes(), &[&body]);
    let headers = vec![
        ("X-Shopify-Topic", event_type.to_owned()),
        ("X-Shopify-Event-Id", id.to_owned()),
        ("X-Shopify-Webhook-Id", id.to_owned()),
        ("X-Shopify-Shop-Domain", "sample.myshopify.com".to_owned()),
        ("X-Shopify-Triggered-At", at.to_string()),
        ("X-Shopify-Hmac-Sha256", BASE64.encode(&signature)),
    ];
    (body, headers)
}

fn standard(
    secret: &str,
    Subject { id, event_type, at }: Subject<'_>,
) -> Result<Made, SecretError> {
    let body = bytes(&json!({
        "type": event_type,
        "timestamp": at,
        "data": { "id": 4711, "currency": "EUR", "total": "119.00", "status": "paid" },
    }));
    let headers = vec![
        ("webhook-id", id.to_owned()),
        ("webhook-timestamp", at.secs().to_string()),
        ("webhook-signature", SigningSecret::parse(secret)?.sign(id, at, &body)),
    ];
    Ok((body, headers))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::domain::scheme::Incoming;
    use crate::headers::Headers;
    use crate::id::SystemDraw;

    const SECRETS: [(Scheme, &str); 4] = [
        (Scheme::Stripe, "whsec_0123456789abcdef"),
        (Scheme::Github, "0123456789abcdef"),
        (Scheme::Shopify, "0123456789abcdef"),
        (Scheme::Standard, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
    ];

    fn received(sample: &Sample) -> Headers {
        let mut headers = Headers::default();
        for (name, value) in &sample.headers {
            headers.push(name, value.as_bytes());
        }
        headers
    }

    #[test]
    fn a_sample_is_accepted_and_is_called_what_was_asked_for() {
        let at = Timestamp::from_secs(1_700_000_000);
        for (scheme, secret) in SECRETS {
            let id = new_id(&scheme, at, &SystemDraw::new());
            for event_type in [type_default(&scheme), "thing.changed"] {
                let made = sample(&scheme, secret, Subject { id: &id, event_type, at }).unwrap();
                let headers = received(&made);
                let incoming = Incoming {
                    method: "POST",
                    path: "/in/x",
                    url: "http://127.0.0.1/in/x",
                    headers: &headers,
                    body: &made.body,
                };
                let tolerance = Duration::from_mins(5);
                assert_eq!(scheme.verify(&[secret], &incoming, at, tolerance), Ok(0));
                let identity = scheme.identify(&incoming);
                assert_eq!((&*identity.event_id, &*identity.event_type), (&*id, event_type));
            }
        }
    }

    #[test]
    fn a_secret_that_is_none_of_the_schemes_makes_no_sample() {
        let subject = Subject { id: "1", event_type: "x", at: Timestamp::from_secs(0) };
        for (scheme, _) in SECRETS {
            assert!(matches!(sample(&scheme, "short", subject), Err(SampleError::Secret(_))));
        }
        let generic = r#"{"kind":"generic","check":{"token":{"header":"X-Token"}}}"#;
        let generic: Scheme = serde_json::from_str(generic).unwrap();
        let refused = sample(&generic, "0123456789abcdef", subject);
        assert_eq!(refused, Err(SampleError::NoSuch { kind: "generic" }));
    }
}
