//! `/livez`, `/readyz`, `/v1/stats`: whether it works, and how much there is.

use serde_json::{Value, json};

use crate::api::call::{Call, ok};
use crate::api::kind::Kind;
use crate::api::problem::Problem;
use crate::api::route::Answer::{Listed, Now};
use crate::api::route::{Param, Resource, Returns, doc, route, shape};
use crate::api::{Api, DEFAULT_TENANT, health, lists, schema};
use crate::http::message::Method::Get;
use crate::http::message::Response;
use crate::model::health::Check;
use crate::model::token::Right;
use crate::store::stats;

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
            Now(ready),
            doc(
                "getReadiness",
                "Whether it keeps its promises",
                "It writes to the database, and looks at the disk, the clock and what waits. With `verbose` \
                 every check is listed; a check that only warns does not make it unready.",
                &[Returns::json(200, "No check fails.", "Readiness")],
            )
            .params(&[Param::query("verbose", "Lists every check.", schema::text, "true").bare()])
            .problems(&[Kind::NotReady]),
        ),
        route(
            Get,
            "/v1/stats",
            Some(Right::Read),
            Listed(show),
            doc(
                "getStats",
                "How much there is",
                "Counts of the tenant. With a token of the tenant `default` also what the writer does, for \
                 all of them together.",
                &[Returns::json(200, "The counts.", "Stats")],
            ),
        ),
    ],
    shapes: &[
        shape("Health", health_schema),
        shape("Readiness", readiness_schema),
        shape("Check", check_schema),
        shape("Stats", stats_schema),
    ],
};

/// `GET /livez`: the process answers.
#[expect(clippy::unnecessary_wraps, reason = "every route has this shape")]
pub(super) fn live(_api: &Api, _call: &Call) -> Result<Response, Problem> {
    Ok(ok(&json!({ "status": "ok" })))
}

/// `GET /readyz`: whether it keeps its promises.
pub(super) fn ready(api: &Api, call: &Call) -> Result<Response, Problem> {
    let verbose = call.query.has("verbose");
    let checks = health::checks(api);
    let listed = verbose.then(|| ("checks", shown(&checks)));
    if let Some(why) = health::failures(&checks) {
        return Err(Problem::not_ready(why, listed));
    }
    let mut body = json!({ "status": "ready" });
    if let (Value::Object(members), Some((name, list))) = (&mut body, listed) {
        members.insert(name.to_owned(), list);
    }
    Ok(ok(&body))
}

pub(super) fn shown(checks: &[Check]) -> Value {
    let each = checks.iter().map(|check| {
        let Check { name, level, value, detail } = check;
        json!({ "name": name, "state": level.as_str(), "detail": detail, "value": value })
    });
    each.collect()
}

/// `GET /v1/stats`: what the tenant has. What the writer does shows how busy the others are, so that only
/// the box's own tenant is told.
pub(super) fn show(api: &Api, call: &Call) -> Result<Response, Problem> {
    let counts = lists::read(api, call, |tx| stats::counts(tx, &call.tenant))?;
    let stats::TenantCounts {
        subscriptions,
        pending,
        dead_letters,
        in_doubt,
        quarantined,
        oldest_due_at,
        leased,
    } = counts;
    let mut body = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "now": api.clock.wall(),
        "subscriptions": subscriptions,
        "pending": pending,
        "leased": leased,
        "dead_letters": dead_letters,
        "in_doubt": in_doubt,
        "quarantined": quarantined,
        "oldest_due_at": oldest_due_at,
    });
    if let (DEFAULT_TENANT, Value::Object(fields)) = (call.tenant.as_str(), &mut body) {
        let writer = api.store.writer();
        let waiting = api.flow.consume.waiting();
        fields.insert("consumers_waiting".to_owned(), waiting.into());
        fields.insert("writer_waiting".to_owned(), writer.waiting().into());
        fields.insert("writer_commits".to_owned(), writer.done().commits.get().into());
        fields.insert("writer_jobs".to_owned(), writer.done().jobs.get().into());
        fields.insert("log_reader".to_owned(), writer.room().reader().into());
    }
    Ok(ok(&body))
}

fn health_schema() -> Value {
    schema::object(json!({ "status": schema::words(["ok"]) }))
}

fn readiness_schema() -> Value {
    let fields = json!({
        "status": schema::words(["ready"]),
        "checks": schema::about(schema::list(schema::of("Check")), "With `verbose` alone."),
    });
    schema::object_with(&["status"], fields)
}

fn check_schema() -> Value {
    schema::object(json!({
        "name": schema::about(schema::text(), "What was looked at; stable."),
        "state": schema::words(["ok", "warn", "fail"]),
        "detail": schema::about(schema::text(), "What was seen, and what to do."),
        "value": schema::about(json!({}), "The reading, for programs."),
    }))
}

fn stats_schema() -> Value {
    let mut stats = schema::object(json!({
        "version": schema::about(schema::text(), "The version of Oncebox."),
        "now": schema::about(schema::time(), "Its clock."),
        "subscriptions": schema::count(),
        "pending": schema::about(schema::count(), "Deliveries that are due or wait."),
        "leased": schema::about(schema::count(), "Deliveries that consumers have."),
        "dead_letters": schema::about(schema::count(), "Deliveries that were given up."),
        "in_doubt": schema::about(schema::count(), "Deliveries that may have been made before a restore."),
        "quarantined": schema::about(schema::count(), "Events that cannot be used and wait for a person."),
        "oldest_due_at": schema::about(schema::nullable(schema::time()),
            "When the most overdue delivery was due; what a pause holds is not counted."),
    }));
    for (name, about) in [
        ("consumers_waiting", "Consumers' requests that wait for an event."),
        ("writer_waiting", "Jobs before the writer now."),
        ("writer_commits", "Transactions since the start."),
        ("writer_jobs", "Jobs since the start."),
    ] {
        stats = schema::with_optional(stats, name, schema::about(schema::count(), about));
    }
    let about = "The program that keeps the write-ahead log from being emptied by reading in a transaction.";
    let reader = schema::about(schema::nullable(schema::text()), about);
    schema::with_optional(stats, "log_reader", reader)
}
