//! `/livez`, `/readyz`, `/v1/stats`: whether it works, and how much there is.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::api::call::{Call, ok};
use crate::api::context::Api;
use crate::api::kind::Kind;
use crate::api::problem::{CheckAnswer, Problem};
use crate::api::route::Answer::{Listed, Now};
use crate::api::route::{Param, Resource, Returns, get, public};
use crate::api::schema::values;
use crate::api::{health, lists};
use crate::base::clock::Timestamp;
use crate::http::message::Method::Get;
use crate::http::message::Response;
use crate::model::tenant::DEFAULT as DEFAULT_TENANT;
use crate::model::token::Right::Read;
use crate::store::stats::{self, TenantCounts};

/// How it is.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Status",
    about: "Whether it works, and how much there is.",
    routes: &[
        public(Get, "/livez", Now(live))
            .doc("getLiveness", "Whether the process answers")
            .about("For a supervisor that restarts what does not answer.")
            .returns(&[Returns::json::<Health>(200, "It does.")]),
        public(Get, "/readyz", Now(ready))
            .doc("getReadiness", "Whether it keeps its promises")
            .about(
                "It writes to the database, and looks at the disk, the clock and what waits. \
                 With `verbose` every check is listed; a check that only warns does not make \
                 it unready.",
            )
            .returns(&[Returns::json::<Readiness>(200, "No check fails.")])
            .params(&[Param::query::<String>("verbose", "Lists every check.", "true").bare()])
            .problems(&[Kind::NotReady]),
        get("/v1/stats", Read, Listed(show))
            .doc("getStats", "How much there is")
            .about(
                "Counts of the tenant. With a token of the tenant `default` also what the \
                 writer does, for all of them together.",
            )
            .returns(&[Returns::json::<Stats>(200, "The counts.")]),
    ],
};

/// `GET /livez`: the process answers.
#[expect(clippy::unnecessary_wraps, reason = "every route has this shape")]
pub(super) fn live(_api: &Api, _call: &Call) -> Result<Response, Problem> {
    Ok(ok(&Health::OK))
}

/// `GET /readyz`: whether it keeps its promises.
pub(super) fn ready(api: &Api, call: &Call) -> Result<Response, Problem> {
    let verbose = call.query.has("verbose");
    let checks = health::checks(api);
    let listed = verbose.then(|| checks.iter().map(CheckAnswer::of).collect());
    match health::failures(&checks) {
        Some(why) => Err(Problem::not_ready(why, listed)),
        None => Ok(ok(&Readiness { status: "ready", checks: listed })),
    }
}

values! {
    /// The word of a process that answers.
    OkWord = { "type": "string", "enum": ["ok"] }
    /// The word of one that is ready.
    ReadyWord = { "type": "string", "enum": ["ready"] }
}

/// That the process answers.
#[derive(Serialize, JsonSchema)]
pub(super) struct Health {
    #[schemars(with = "OkWord")]
    status: &'static str,
}

impl Health {
    pub(super) const OK: Self = Self { status: "ok" };
}

/// That it keeps its promises.
#[derive(Serialize, JsonSchema)]
struct Readiness {
    #[schemars(with = "ReadyWord")]
    status: &'static str,
    /// With `verbose` alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<CheckAnswer>")]
    checks: Option<Vec<Value>>,
}

/// How much there is.
#[derive(Serialize, JsonSchema)]
struct Stats {
    /// The version of Oncebox.
    version: &'static str,
    /// Its clock.
    now: Timestamp,
    #[serde(flatten, with = "CountsAnswer")]
    counts: TenantCounts,
    #[serde(flatten)]
    box_wide: Option<BoxStats>,
}

#[derive(Serialize, JsonSchema)]
#[serde(remote = "TenantCounts")]
struct CountsAnswer {
    subscriptions: u64,
    /// Deliveries that are due or wait.
    pending: u64,
    /// Deliveries that consumers have.
    leased: u64,
    /// Deliveries that were given up.
    dead_letters: u64,
    /// Deliveries that may have been made before a restore.
    in_doubt: u64,
    /// Events that cannot be used and wait for a person.
    quarantined: u64,
    /// When the most overdue delivery was due; what a pause holds is not counted.
    oldest_due_at: Option<Timestamp>,
}

/// What the writer does for all tenants, which shows how busy the others are.
#[derive(Serialize, JsonSchema)]
struct BoxStats {
    /// Consumers' requests that wait for an event.
    consumers_waiting: usize,
    /// Jobs before the writer now.
    writer_waiting: usize,
    /// Transactions since the start.
    writer_commits: u64,
    /// Jobs since the start.
    writer_jobs: u64,
    /// The program that keeps the write-ahead log from being emptied by reading in a transaction.
    log_reader: Option<String>,
}

/// `GET /v1/stats`: what the tenant has. What the writer does shows how busy other tenants are, so only the
/// tenant `default` sees it.
pub(super) fn show(api: &Api, call: &Call) -> Result<Response, Problem> {
    let counts = lists::read(api, call, |tx| stats::counts(tx, &call.tenant))?;
    let box_wide = (call.tenant == DEFAULT_TENANT).then(|| {
        let writer = api.store.writer();
        BoxStats {
            consumers_waiting: api.flow.consume.waiting(),
            writer_waiting: writer.waiting(),
            writer_commits: writer.done().commits.get(),
            writer_jobs: writer.done().jobs.get(),
            log_reader: writer.room().reader(),
        }
    });
    let (version, now) = (env!("CARGO_PKG_VERSION"), api.clock.wall());
    Ok(ok(&Stats { version, now, counts, box_wide }))
}
