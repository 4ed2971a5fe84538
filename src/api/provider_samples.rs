//! `/v1/providers/{name}/sample`: a webhook like the provider's own, signed and checked, without storing it.

use crate::api::prelude::*;
use crate::api::providers::{NAME, url_of};
use crate::base::headers::Headers;
use crate::signatures::Incoming;
use crate::signatures::new_secret::new_secret;
use crate::signatures::sample::{self, Subject};

/// The placeholder of a secret, or of a signature made with one.
const HIDDEN: &str = "***";

/// Fields of bodies that have the secret, or are made with it: of Mailgun, Adyen and Dynamics.
const SIGNING: [&str; 4] = ["signature", "token", "hmacSignature", "clientState"];

/// Samples of webhooks.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Provider samples",
    about: "Webhooks like a provider's own, to try its scheme and its secret.",
    routes: &[get("/v1/providers/{name}/sample", Operate, Now(show))
        .doc("tryProvider", "Check a signed sample", &[NAME])
        .about(
            "Makes a webhook like the provider's own, signs it with the newest secret, and checks it as one that comes in. \
             It is not stored. The secret and what is made with it are `***` in header fields and body. Answers 409 where nobody \
             but the provider can sign; `oncebox trigger` posts a sample that is stored.",
        )
        .returns(&[Returns::json::<SampleAnswer>(200, "The sample.")])
        .problems(&[Kind::Conflict])],
};

/// A sample, and whether it would be taken.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ProviderSample")]
struct SampleAnswer {
    ok: bool,
    /// Why it would be refused.
    why: Option<String>,
    /// The URL that it is for.
    url: String,
    /// Its header fields.
    headers: Vec<SampleField>,
    body: String,
    /// What was read from it: the provider's id of the event.
    event_id: String,
    event_type: String,
}

/// A header field of a sample.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ProviderSampleField")]
struct SampleField {
    name: String,
    value: String,
}

/// Header fields whose secret and signed values are `***`. `other` has the fields of the same sample under another secret:
/// values that differ depend on the secret.
fn shown_fields(own: Vec<(String, String)>, other: &[(String, String)]) -> Vec<SampleField> {
    let shown = |(name, value): (String, String)| {
        let known = other.iter().find(|(known, _)| *known == name);
        let value = match known {
            Some((_, same)) if *same == value => value,
            Some((_, differing)) => format!("{}{HIDDEN}", common_start(&value, differing)),
            None => HIDDEN.to_owned(),
        };
        SampleField { name, value }
    };
    own.into_iter().map(shown).collect()
}

/// The beginning that two values have in common, up to its last mark: `t=1700000000,v1=`.
fn common_start<'a>(value: &'a str, other: &str) -> &'a str {
    let is_equal = |(a, b): (char, char)| a == b;
    let common = value.chars().zip(other.chars()).take_while(|pair| is_equal(*pair));
    let bytes = common.map(|(letter, _)| letter.len_utf8()).sum();
    let common = value.get(..bytes).unwrap_or_default();
    let end = common.rfind([',', '=', ' ']).map_or(0, |at| at.saturating_add(1));
    common.get(..end).unwrap_or_default()
}

/// A body whose secret and signed values are `***`: nobody can post the sample as genuine.
fn hidden(name: &str, mut value: Value) -> Value {
    match &mut value {
        Value::Object(fields) => {
            for (name, field) in fields {
                *field = hidden(name, field.take());
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = hidden(name, item.take())),
        _ if SIGNING.contains(&name) => value = HIDDEN.into(),
        _ => {}
    }
    value
}

/// `GET /v1/providers/{name}/sample`
fn show(api: &Api, call: &Call) -> Result<Response, Problem> {
    let found = api.flow.receive.provider(&call.tenant, call.param(0))?.or_not_found("provider")?;
    let provider = &found.provider.new;
    let scheme = &provider.scheme;
    let secret = found.secrets.first().map_or("", |secret| secret.as_str());
    let (url, path) = url_of(provider, api.env.settings.get().listen.public_url.as_deref());
    let url = url.unwrap_or_else(|| format!("http://localhost{path}"));
    let at = api.env.clock.for_signatures();
    let id = sample::new_id(scheme, at, &*api.env.draw);
    let event_type = sample::type_default(scheme);
    let subject = Subject { id: &id, event_type, at, url: &url };
    let made = sample::sample(scheme, secret, subject)
        .map_err(|error| Problem::conflict(format!("There is no sample: {error}.")))?;
    let another = new_secret(scheme, &*api.env.draw);
    let other = sample::sample(scheme, &another, subject).map(|other| other.headers);
    let mut headers = Headers::default();
    for (name, value) in &made.headers {
        headers.push(name, value.as_bytes());
    }
    let incoming =
        Incoming { method: "POST", path: &path, url: &url, headers: &headers, body: &made.body };
    let verified = scheme.verify(&found.secrets, &incoming, at, provider.tolerance);
    let identity = scheme.identify(&incoming);
    let body = match serde_json::from_slice::<Value>(&made.body) {
        Ok(json) => hidden("", json).to_string(),
        Err(_) => String::from_utf8_lossy(&made.body).replace(secret, HIDDEN),
    };
    Ok(ok(&SampleAnswer {
        ok: verified.is_ok(),
        why: verified.err().map(|refused| refused.to_string()),
        url,
        headers: shown_fields(made.headers, &other.unwrap_or_default()),
        body,
        event_id: identity.event_id,
        event_type: identity.event_type,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_shows_what_no_secret_makes() {
        let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let own = vec![
            field("content-type", "application/json"),
            field("stripe-signature", "t=1700000000,v1=5257a8"),
            field("x-hub-signature-256", "sha256=ab12"),
            field("authorization", "Basic ZXJwOnNlY3JldA=="),
            field("webhook-signature", "v1,Zm9v"),
            field("x-signature", "Zm9v"),
            field("x-gitlab-token", "a secret"),
        ];
        let other = [
            field("content-type", "application/json"),
            field("stripe-signature", "t=1700000000,v1=52ffff"),
            field("x-hub-signature-256", "sha256=abcd"),
            field("authorization", "Basic ZXJwOm90aGVy"),
            field("webhook-signature", "v1,YmFy"),
            field("x-signature", "Zg=="),
        ];
        let shown = shown_fields(own, &other).into_iter().map(|field| field.value);
        let shown: Vec<String> = shown.collect();
        assert_eq!(
            shown,
            [
                "application/json",
                "t=1700000000,v1=***",
                "sha256=***",
                "Basic ***",
                "v1,***",
                "***",
                "***"
            ]
        );
    }
}
