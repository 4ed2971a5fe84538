//! `/livez`, `/readyz`, `/v1/stats`: whether it works, and how much there is.

use serde_json::{Value, json};

use crate::api::call::{Call, ok};
use crate::api::problem::Problem;
use crate::api::{Api, DEFAULT_TENANT};
use crate::http::message::Response;
use crate::http::service::Reply;
use crate::store::stats;
use crate::store::writer::Queue;

/// `GET /livez`: the process answers.
#[expect(clippy::unnecessary_wraps, reason = "every route has this shape")]
pub(super) fn live(_api: &Api, _call: &Call) -> Result<Response, Problem> {
    Ok(ok(&json!({ "status": "ok" })))
}

/// `GET /readyz`: the database can be written; sent after COMMIT.
pub(super) fn ready(api: &Api, _call: Call, reply: Reply) {
    api.store.writer().submit(Queue::Accept, stats::probe, move |written| {
        reply.send(written.map_or_else(
            |error| Problem::from(error).into(),
            |()| ok(&json!({ "status": "ready" })),
        ));
    });
}

/// `GET /v1/stats`: what the tenant has. What the writer does shows how busy the others are, so that only
/// the box's own tenant is told.
pub(super) fn show(api: &Api, call: &Call) -> Result<Response, Problem> {
    let counts = api.store.snapshot(|tx| stats::counts(tx, &call.tenant))?;
    let stats::Counts { subscriptions, pending, dead_letters, oldest_due_at } = counts;
    let mut body = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "now": api.clock.wall(),
        "subscriptions": subscriptions,
        "pending": pending,
        "dead_letters": dead_letters,
        "oldest_due_at": oldest_due_at,
    });
    if let (DEFAULT_TENANT, Value::Object(fields)) = (call.tenant.as_str(), &mut body) {
        let writer = api.store.writer();
        fields.insert("writer_waiting".to_owned(), writer.waiting().into());
        fields.insert("writer_commits".to_owned(), writer.commits().into());
        fields.insert("writer_jobs".to_owned(), writer.jobs().into());
    }
    Ok(ok(&body))
}
