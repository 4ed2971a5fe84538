//! `/v1/refused-webhooks`: what came in and was refused, and why. In memory, since the start of the process.
//! [`super::refused_rows`] keeps them.

use crate::api::prelude::*;
use crate::api::refused_rows::Refused;
use crate::http::message::{Asked, Method};

/// The most characters that are kept of a provider's name, and of a reason.
const MAX_NAME_CHARS: usize = 63;
const MAX_REASON_CHARS: usize = 300;
const PATH: &str = "/in/";
/// The status for an unknown provider.
const NOT_FOUND: u16 = 404;

/// The refused webhooks.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Refused webhooks",
    about: "Webhooks that were refused since the start of the process.",
    routes: &[get("/v1/refused-webhooks", Read, Now(list))
        .doc("listRefusedWebhooks", "List the refused webhooks", &[])
        .about(
            "The latest first, at most 200. Refusals of the same provider, reason and address within an hour are \
             one row. A webhook to an unknown provider belongs to the tenant `default`. A restart forgets them.",
        )
        .returns(&[Returns::json::<RefusedAnswer>(200, "The refused webhooks.")])],
};

/// What was refused.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RefusedWebhooks")]
struct RefusedAnswer {
    /// Since when they are kept: the start of the process.
    since: Timestamp,
    items: Vec<Refused>,
}

/// `GET /v1/refused-webhooks`
#[expect(clippy::unnecessary_wraps, reason = "every route has this shape")]
fn list(api: &Api, call: &Call) -> Result<Response, Problem> {
    let items = api.refused_webhooks.of(&call.tenant);
    Ok(ok(&RefusedAnswer { since: api.started_at, items }))
}

/// Notes an answer, if it refuses a webhook.
pub(super) fn note(api: &Api, asked: &Asked, response: &Response) {
    let Some((Method::Post, path)) = &asked.target else { return };
    let Some(name) = path.strip_prefix(PATH).filter(|_| response.status >= 400) else { return };
    let (tenant, provider) = name.split_once('/').unwrap_or((DEFAULT_TENANT, name));
    if provider.contains('/') {
        return;
    }
    let is_known = response.status != NOT_FOUND
        && api.flow.receive.provider(tenant, provider).is_ok_and(|found| found.is_some());
    let body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
    let detail = body.get("detail").and_then(Value::as_str).unwrap_or_default();
    let is_missing = response.status == NOT_FOUND;
    let detail = if is_missing { "There is no such provider." } else { detail };
    let reason = match &response.cause {
        Some(cause) => format!("{detail} The cause: {cause}."),
        None => detail.to_owned(),
    };
    let cut = |text: &str, most| text.chars().take(most).collect::<String>();
    let now = api.clock.wall();
    let name = if is_known { provider } else { name };
    let refused = Refused {
        provider: cut(name, MAX_NAME_CHARS),
        is_known,
        status: response.status,
        reason: cut(&reason, MAX_REASON_CHARS),
        address: asked.client,
        first_at: now,
        last_at: now,
        count: 1,
    };
    api.refused_webhooks.note(if is_known { tenant } else { DEFAULT_TENANT }, refused);
}
