//! `/v1/providers/{name}/sample`: a webhook like the provider's own, signed and checked, without storing it.

use crate::api::prelude::*;
use crate::api::providers::{NAME, url_of};
use crate::base::headers::Headers;
use crate::signatures::Incoming;
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
             It is not stored. Of header fields only the names are shown; in the body the secret and signatures are `***`. Answers 409 where nobody \
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
    /// The names of its header fields.
    headers: Vec<String>,
    body: String,
    /// What was read from it: the provider's id of the event.
    event_id: String,
    event_type: String,
}

/// A body without the secret, and without what is made with it: such a sample could be posted as genuine.
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
        headers: made.headers.into_iter().map(|(name, _)| name).collect(),
        body,
        event_id: identity.event_id,
        event_type: identity.event_type,
    }))
}
