//! `/livez`, `/readyz`, `/v1/stats`: whether it works, and how much there is.

use serde_json::{Value, json};

use crate::api::call::{Call, ok};
use crate::api::kind::Kind;
use crate::api::problem::Problem;
use crate::api::route::Answer::{Later, Now};
use crate::api::route::{Resource, Returns, doc, route, shape};
use crate::api::schema;
use crate::api::{Api, DEFAULT_TENANT};
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
                "Counts of the tenant. With a token of the tenant `default` also what the writer does, for \
                 all of them together.",
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

fn health_schema() -> Value {
    schema::object(json!({ "status": schema::words(["ok", "ready"]) }))
}

fn stats_schema() -> Value {
    let mut stats = schema::object(json!({
        "version": schema::about(schema::text(), "The version of Oncebox."),
        "now": schema::about(schema::time(), "Its clock."),
        "subscriptions": schema::count(),
        "pending": schema::about(schema::count(), "Deliveries that are due or wait."),
        "dead_letters": schema::about(schema::count(), "Deliveries that were given up."),
        "oldest_due_at": schema::nullable(schema::time()),
    }));
    for (name, about) in [
        ("writer_waiting", "Jobs before the writer now."),
        ("writer_commits", "Transactions since the start."),
        ("writer_jobs", "Jobs since the start."),
    ] {
        stats = schema::with_optional(stats, name, schema::about(schema::count(), about));
    }
    stats
}
