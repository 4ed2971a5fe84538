//! `/v1/refused-webhooks`: what came in and was refused, and why. [`crate::pipeline::refused_webhooks`] keeps them.

use std::convert::identity;

use crate::api::prelude::*;
use crate::http::message::{Asked, Method};
use crate::model::webhook_event::RefusedWebhook;

/// The most characters that are kept of a provider's name, and of a reason.
const MAX_NAME_CHARS: usize = 63;
const MAX_REASON_CHARS: usize = 300;
const PATH: &str = "/in/";
/// The status for an unknown provider.
const NOT_FOUND: u16 = 404;

const PROVIDER: Param =
    Param::query::<SomeText>("provider", "Only those to the provider of this name.", "stripe");

/// The refused webhooks.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Refused webhooks",
    about: "Webhooks that were refused, without their bodies.",
    routes: &[get("/v1/refused-webhooks", Read, Now(list))
        .doc("listRefusedWebhooks", "List the refused webhooks", &[PROVIDER, SINCE, UNTIL, LIMIT, AFTER])
        .about(
            "The latest first. Refusals of the same provider, reason and address within an hour are one row. The \
             last 1,000 rows are kept, 50 of them for unknown providers; fewer if all tenants together have 10,000. \
             A webhook to an unknown provider belongs to the tenant `default`. A restart keeps them; the last \
             second may be missing after the process was killed.",
        )
        .returns(&[Returns::page::<RefusedWebhook>("A page of refused webhooks.")])],
};

/// `GET /v1/refused-webhooks`
fn list(api: &Api, call: &Call) -> Result<Response, Problem> {
    let page = call.query.page()?;
    let span = call.query.span()?;
    let provider = call.query.get("provider");
    let found = api.flow.refusals.webhooks.page(page.newest(&call.tenant), |row| {
        provider.is_none_or(|provider| row.provider == provider) && span.has(row.last_at)
    });
    Ok(page_of(&found, page, |row| row.seq, identity))
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
    let now = api.env.clock.wall();
    let name = if is_known { provider } else { name };
    let refused = RefusedWebhook {
        seq: 0,
        provider: cut(name, MAX_NAME_CHARS),
        is_known,
        status: response.status,
        reason: cut(&reason, MAX_REASON_CHARS),
        address: asked.client.to_string(),
        first_at: now,
        last_at: now,
        count: 1,
    };
    api.flow.refusals.webhooks.note(if is_known { tenant } else { DEFAULT_TENANT }, refused);
}
