//! `/livez`, `/readyz`, `/v1/stats`, `/v1/stats/recent`: health checks, counts, and what happened in the last hour, which
//! [`crate::pipeline::recent`] keeps.

use std::time::Duration;

use crate::api::health;
use crate::api::prelude::*;
use crate::api::route::public;
use crate::base::build;
use crate::http::message::Method::Get;
use crate::model::attempt::RecentAttempt;
use crate::model::health::Check;
use crate::pipeline::recent::{LATENCY_BOUNDS_MS, Minute, Reading};
use crate::store::stats::{self, TenantCounts};
use crate::store::{runs, subscriptions, tenants};

/// Health checks and counts.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Status",
    about: "Health checks and counts.",
    routes: &[
        public(Get, "/livez", Now(live))
            .doc("getLiveness", "Whether the process answers", &[])
            .about("For a supervisor that restarts a process that does not answer.")
            .returns(&[Returns::json::<Health>(200, "The process answers.")]),
        public(Get, "/readyz", Now(ready))
            .doc(
                "getReadiness",
                "Whether the service is ready",
                &[Param::query::<String>("verbose", "Lists every check.", "true").bare()],
            )
            .about(
                "Writes to the database, and checks the disk, the clock and waiting work. With \
                 `verbose` every check is listed. A check that only warns does not make the service \
                 unready.",
            )
            .returns(&[Returns::json::<Readiness>(200, "No check fails.")])
            .problems(&[Kind::NotReady]),
        get("/v1/stats", Read, Listed(show))
            .doc("getStats", "Show the counts", &[])
            .about(
                "Counts of the tenant. A token of the tenant `default` also gets counts of the writer, \
                 for all tenants together. With more than 10,000 pending deliveries, the counts of the tenant are a \
                 second old at most.",
            )
            .returns(&[Returns::json::<Stats>(200, "The counts.")]),
        get("/v1/stats/recent", Read, Listed(show_recent))
            .doc("getRecentStats", "Show the last hour", &[SUBSCRIPTION, ATTEMPTS])
            .about(
                "Counts of the tenant by minute, which outlast a restart, and the latest 50 attempts of each \
                 subscription since the start. A kill loses the minute that runs: see `whole`.",
            )
            .returns(&[Returns::json::<RecentStats>(200, "The last hour.")]),
    ],
};

const SUBSCRIPTION: Param =
    Param::query::<NameText>("subscription", "Attempts of this subscription alone.", "erp");
const ATTEMPTS: Param = Param::query::<Whole<1, 50>>(
    "attempts",
    "Maximum number of attempts of each subscription.",
    "30",
);

/// `GET /livez`: the process answers.
#[expect(clippy::unnecessary_wraps, reason = "every route has this shape")]
pub(super) fn live(_api: &Api, _call: &Call) -> Result<Response, Problem> {
    Ok(ok(&Health::OK))
}

/// `GET /readyz`: whether the service is ready.
pub(super) fn ready(api: &Api, call: &Call) -> Result<Response, Problem> {
    let verbose = call.query.has("verbose");
    let checks = health::checks(api);
    let failure = health::failures(&checks);
    let listed = verbose.then_some(checks);
    match failure {
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

/// The answer of a process that works.
#[derive(Serialize, JsonSchema)]
pub(super) struct Health {
    #[schemars(with = "OkWord")]
    status: &'static str,
}

impl Health {
    pub(super) const OK: Self = Self { status: "ok" };
}

/// The answer of a service that is ready.
#[derive(Serialize, JsonSchema)]
struct Readiness {
    #[schemars(with = "ReadyWord")]
    status: &'static str,
    /// Only with `verbose`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<Check>")]
    checks: Option<Vec<Check>>,
}

/// Counts of a tenant.
#[derive(Serialize, JsonSchema)]
struct Stats {
    /// The version of Oncebox.
    version: &'static str,
    /// The time on this machine.
    now: Timestamp,
    #[serde(flatten)]
    counts: TenantCounts,
    #[serde(flatten)]
    box_wide: Option<BoxStats>,
}

/// Counts of the writer, for all tenants together.
#[derive(Serialize, JsonSchema)]
struct BoxStats {
    /// Consumers' requests that wait for an event.
    consumers_waiting: usize,
    /// Jobs that wait for the writer now.
    writer_waiting: usize,
    /// Transactions since the start.
    writer_commits: u64,
    /// Jobs since the start.
    writer_jobs: u64,
    /// The program whose open read transaction prevents checkpoints of the write-ahead log.
    log_reader: Option<String>,
    /// Whether somebody has stated what is stored of personal data in published events of the tenant `default`.
    pii_stated: bool,
}

/// Counts what a tenant has.
fn counts(api: &Api, call: &Call) -> Result<TenantCounts, Problem> {
    let now = api.env.clock.monotonic();
    let count = || lists::read(api, call, |tx| stats::counts(tx, &call.tenant));
    api.kept_counts.of_tenant(&call.tenant, now, count)
}

/// `GET /v1/stats`. Counts of the writer show how busy other tenants are, so only the tenant `default` gets them.
pub(super) fn show(api: &Api, call: &Call) -> Result<Response, Problem> {
    let counts = counts(api, call)?;
    let pii_stated = api.env.store.read(tenants::is_pii_stated)?;
    let box_wide = (call.tenant == DEFAULT_TENANT).then(|| {
        let writer = api.env.store.writer();
        BoxStats {
            consumers_waiting: api.flow.consume.waiting(),
            writer_waiting: writer.waiting(),
            writer_commits: writer.done().commits.get(),
            writer_jobs: writer.done().jobs.get(),
            log_reader: writer.room().reader(),
            pii_stated,
        }
    });
    let version = build::VERSION;
    let now = api.env.clock.wall();
    Ok(ok(&Stats { version, now, counts, box_wide }))
}

/// The last hour of a tenant.
#[derive(Serialize, JsonSchema)]
pub(super) struct RecentStats {
    /// The time on this machine.
    now: Timestamp,
    /// When counting began: the start of the process, or of the oldest minute that one before it has stored.
    since: Timestamp,
    /// The upper bounds of the latency buckets, in milliseconds. The last bucket has no bound.
    latency_bounds_ms: [u32; LATENCY_BOUNDS_MS.len()],
    /// The last 60 minutes, the oldest first. The last one is not over.
    minutes: Vec<MinuteAnswer>,
    /// The subscriptions that had attempts, by name.
    subscriptions: Vec<Subscription>,
    /// Attempts, events and webhooks of the whole service that were not counted: only 1,000 subscriptions and 100
    /// tenants are.
    left_out: u64,
}

/// The counts of a minute.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RecentMinute")]
struct MinuteAnswer {
    /// When it began.
    at: Timestamp,
    /// Whether the service ran and counted all the time. If not, the counts are of a part, and 0 says nothing.
    whole: bool,
    #[serde(flatten)]
    counts: Minute,
}

/// The latest attempts of a subscription.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RecentSubscription")]
struct Subscription {
    subscription: Is<NameText>,
    /// At most 50, the newest first.
    attempts: Vec<RecentAttempt>,
}

/// `GET /v1/stats/recent`
pub(super) fn show_recent(api: &Api, call: &Call) -> Result<Response, Problem> {
    let own = lists::read(api, call, |tx| subscriptions::all_of(tx, &call.tenant))?;
    let recent = &api.flow.receive.counts.recent;
    let Reading { since, first, minutes, attempts, left_out } =
        recent.read(&call.tenant, |seq| own.contains_key(&seq));
    let wanted = call.query.get("subscription");
    let most: Option<usize> = call.query.word("attempts", |text| text.parse().ok())?;
    let now = api.env.clock.wall();
    let coverage = api.env.store.read(|tx| runs::coverage(tx, first, now))?;
    let each = |(n, counts)| {
        let at = first.plus(Duration::from_mins(n));
        let whole = coverage.is_whole(at, at.plus(Duration::from_mins(1)).min(now));
        MinuteAnswer { at, whole, counts }
    };
    let minutes = (0_u64..).zip(minutes).map(each).collect();
    let named = attempts.into_iter().filter(|(_, attempts)| !attempts.is_empty());
    let mut subscriptions: Vec<Subscription> = named
        .filter_map(|(seq, mut attempts)| {
            attempts.truncate(most.unwrap_or(usize::MAX));
            let subscription = own.get(&seq)?.clone()?;
            if wanted.is_some_and(|wanted| wanted != subscription.as_str()) {
                return None;
            }
            Some(Subscription { subscription: subscription.into(), attempts })
        })
        .collect();
    subscriptions.sort_unstable_by(|a, b| a.subscription.cmp(&b.subscription));
    let latency_bounds_ms = LATENCY_BOUNDS_MS;
    Ok(ok(&RecentStats { now, since, latency_bounds_ms, minutes, subscriptions, left_out }))
}
