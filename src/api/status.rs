//! `/livez`, `/readyz`, `/v1/stats`: whether it works, and how much there is.

use serde_json::{Value, json};

use crate::api::Api;
use crate::api::call::{Call, ok};
use crate::api::kind::Kind;
use crate::api::problem::Problem;
use crate::api::route::Answer::{Later, Now};
use crate::api::route::{Resource, Returns, doc, route, shape};
use crate::api::schema;
use crate::domain::token::Right;
use crate::http::message::Method::Get;
use crate::http::message::Response;
use crate::http::service::Reply;
use crate::store::stats;
use crate::store::writer::Queue;

/// How it is.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Status",
    about: "Whether it works, and how much there is.",
    routes: &[
        route(
            Get,
            "/livez",
            None,
            Now(live),
            doc(
                "getLiveness",
                "Whether the process answers",
                "For a supervisor that restarts what does not answer.",
                &[Returns::json(200, "It does.", "Health")],
            ),
        ),
        route(
            Get,
            "/readyz",
            None,
            Later(ready),
            doc(
                "getReadiness",
                "Whether the database can be written",
                "It writes to the database and answers after COMMIT.",
                &[Returns::json(200, "It can.", "Health")],
            )
            .problems(&[Kind::DiskFull]),
        ),
        route(
            Get,
            "/v1/stats",
            Some(Right::Read),
            Now(show),
            doc(
                "getStats",
                "How much there is",
                "Counts of the tenant, and what the writer has done since the start.",
                &[Returns::json(200, "The counts.", "Stats")],
            ),
        ),
    ],
    shapes: &[shape("Health", health_schema), shape("Stats", stats_schema)],
};

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

/// `GET /v1/stats`
pub(super) fn show(api: &Api, call: &Call) -> Result<Response, Problem> {
    let counts = api.store.snapshot(|tx| stats::counts(tx, &call.tenant))?;
    let stats::Counts { subscriptions, pending, dead_letters, in_doubt, oldest_due_at } = counts;
    Ok(ok(&json!({
        "version": env!("CARGO_PKG_VERSION"),
        "now": api.clock.wall(),
        "subscriptions": subscriptions,
        "pending": pending,
        "dead_letters": dead_letters,
        "in_doubt": in_doubt,
        "oldest_due_at": oldest_due_at,
        "writer_waiting": api.store.writer().waiting(),
        "writer_commits": api.store.writer().commits(),
        "writer_jobs": api.store.writer().jobs(),
    })))
}

fn health_schema() -> Value {
    schema::object(json!({ "status": schema::words(["ok", "ready"]) }))
}

fn stats_schema() -> Value {
    schema::object(json!({
        "version": schema::about(schema::text(), "The version of Oncebox."),
        "now": schema::about(schema::time(), "Its clock."),
        "subscriptions": schema::count(),
        "pending": schema::about(schema::count(), "Deliveries that are due or wait."),
        "dead_letters": schema::about(schema::count(), "Deliveries that were given up."),
        "in_doubt": schema::about(schema::count(), "Deliveries that may have been made before a restore."),
        "oldest_due_at": schema::nullable(schema::time()),
        "writer_waiting": schema::about(schema::count(), "Jobs before the writer now."),
        "writer_commits": schema::about(schema::count(), "Transactions since the start."),
        "writer_jobs": schema::about(schema::count(), "Jobs since the start."),
    }))
}
