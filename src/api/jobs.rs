//! `/v1/jobs`: bulk operations and their progress, and the requests that start them.
//!
//! Not here: the requests for dead letters ([`super::dead_letters`]), and for a single event ([`super::replays`]).

use std::collections::BTreeMap;
use std::slice;
use std::time::Duration;

use serde_json::json;

use crate::api::archived;
use crate::api::audited::ChangeResult;
use crate::api::call::page_found;
use crate::api::prelude::*;
use crate::api::subscriptions::{self as subscriptions_api, ID as SUBSCRIPTION_ID};
use crate::base::id::{self, DeliverySeq};
use crate::jobs::tables::held::{self, HeldDeliveries};
use crate::jobs::{
    Became, CountedMatches, Cursor, Item, Job, JobFilter, JobKind, JobState, MAX_RATE, Matched,
    NewJob, expunging, tables,
};
use crate::model::json_fields;
use crate::store::error::Error;
use crate::store::{delivery_lists, outbox_lists, settlement, subscriptions, webhook_events};

/// How long the matches of a job are counted.
const MAX_COUNT_SPAN: Duration = Duration::from_millis(500);
/// How many matches a dry run shows.
const SAMPLE: usize = 10;

const ID: Param =
    Param::path::<Uuid>("id", "The job's id.", "019c1447-5800-7000-8000-000000000001");
const STATE: Param = Param::query::<JobState>("state", "Only those in this state.", "");

const ONE: &[Returns] = &[Returns::json::<JobAnswer>(200, "The job as it is now.")];

/// The answers of requests that start a job.
pub(super) const MADE: &[Returns] = &[
    Returns::json::<JobAnswer>(
        201,
        "The job. It runs in the background; get it again to see its progress.",
    ),
    Returns::json::<JobPreview>(200, "The result of a dry run: how many match."),
];

/// Jobs.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Jobs",
    about: "One operation on many deliveries or events, run in the background. A job continues after a \
            restart, and does nothing twice.",
    routes: &[
        get("/v1/jobs", Read, Listed(list))
            .doc("listJobs", "List the jobs", &[STATE, LIMIT, AFTER])
            .about("The newest first.")
            .returns(&[Returns::page::<JobAnswer>("A page of jobs.")]),
        get("/v1/jobs/{id}", Read, Now(show))
            .doc("getJob", "Show a job", &[ID])
            .about("With its progress: `done` and `skipped` of `matched`.")
            .returns(&[Returns::json::<JobAnswer>(200, "The job.")]),
        post("/v1/jobs/{id}/pause", Operate, Act("job.pause", pause))
            .doc("pauseJob", "Pause a job", &[ID])
            .about("It goes on where it was when it is resumed, also after a restart.")
            .returns(ONE),
        post("/v1/jobs/{id}/resume", Operate, Act("job.resume", resume))
            .doc("resumeJob", "Let a paused job go on", &[ID])
            .about("It continues where it was paused.")
            .returns(ONE),
        post("/v1/jobs/{id}/cancel", Operate, Act("job.cancel", cancel))
            .doc("cancelJob", "Stop a job", &[ID])
            .about("What it has done is not undone.")
            .returns(ONE),
        post("/v1/events/replay", Operate, Act("job.replay_events", replay_events))
            .doc("replayEvents", "Send events again", &[])
            .about(
                "Sends all final deliveries of the events again, also the completed ones. They keep their \
                 `webhook-id`; the oldest event is first. With `subscription`, only its deliveries are sent; \
                 a matching event that has none gets one. An event without any delivery goes to the \
                 subscriptions that match it now.",
            )
            .returns(MADE)
            .body::<Request>(
                r#"{"filter":{"event_type":"invoice.created","since":"2026-01-31T00:00:00Z"},"rate":50}"#,
            ),
        post(
            "/v1/webhook-events/replay",
            Operate,
            Act("job.replay_webhook_events", replay_webhook_events),
        )
        .doc("replayWebhookEvents", "Send webhook events again", &[])
        .about("Like `POST /v1/events/replay`.")
        .returns(MADE)
        .body::<Request>(r#"{"filter":{"provider":"stripe"},"dry_run":true}"#),
        post("/v1/events/expunge", Admin, Act("job.expunge_events", expunge_events))
            .doc("expungeEvents", "Remove what finished events have", &[])
            .about(
                "Payload, header fields, what was sent and the answers are removed for good, in the database and in \
                 the archive. Id, key, types, states, times and SHA-256 stay; `expunged_at` says when it was. What is \
                 open or dead stays, and what a legal hold is about. Such an event cannot be sent again. Backups that \
                 were made before still have everything.",
            )
            .returns(MADE)
            .body::<Expunge>(
                r#"{"filter":{"event_type":"customer.changed","until":"2026-01-31T00:00:00Z"},"reason":"Not needed"}"#,
            ),
        post(
            "/v1/webhook-events/expunge",
            Admin,
            Act("job.expunge_webhook_events", expunge_webhook_events),
        )
        .doc("expungeWebhookEvents", "Remove what finished webhook events have", &[])
        .about("Like `POST /v1/events/expunge`.")
        .returns(MADE)
        .body::<Expunge>(r#"{"filter":{"provider":"stripe"},"reason":"Not needed","dry_run":true}"#),
        post("/v1/subscriptions/{id}/recover", Operate, Act("subscription.recover", recover))
            .doc(
                "recoverSubscription",
                "Send a subscription what it has missed",
                &[SUBSCRIPTION_ID],
            )
            .about(
                "Resumes the subscription and sends it everything from `since` on: its dead letters, and \
                 matching events and webhook events that have no delivery for it.",
            )
            .returns(MADE)
            .body::<Recovery>(r#"{"since":"2026-01-31T12:00:00Z","rate":50}"#),
    ],
};

/// Starts a job on many events or dead letters.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Replay")]
pub(super) struct Request {
    /// Which ones; an empty object means all.
    #[serde(deserialize_with = "json_fields::object")]
    pub(super) filter: JobFilter,
    /// Only count them, and show the first ten.
    #[serde(default)]
    pub(super) dry_run: bool,
    /// The most deliveries per second; no limit if absent.
    #[serde(default, deserialize_with = "json_fields::whole")]
    #[schemars(with = "Option<Whole<1, MAX_RATE>>")]
    pub(super) rate: Option<u32>,
}

/// Starts a job that removes what events have.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Expunge {
    /// Which ones; an empty object means all that are finished.
    #[serde(deserialize_with = "json_fields::object")]
    filter: JobFilter,
    /// Why; it is kept with the job and in the audit.
    reason: Is<Text<1, 500>>,
    /// Only count them, and show the first ten.
    #[serde(default)]
    dry_run: bool,
}

/// The body of a recovery.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Recovery {
    /// Events received at or after this time.
    since: Timestamp,
    /// Events received before this time.
    until: Option<Timestamp>,
    /// Only count them, and show the first ten. The subscription is not resumed.
    #[serde(default)]
    dry_run: bool,
    /// The most deliveries per second; no limit if absent.
    #[serde(default, deserialize_with = "json_fields::whole")]
    #[schemars(with = "Option<Whole<1, MAX_RATE>>")]
    rate: Option<u32>,
}

/// `GET /v1/jobs`
fn list(api: &Api, call: &Call) -> Result<Response, Problem> {
    let page = call.query.page()?;
    let state = call.query.one_of("state", JobState::ALL, JobState::as_str)?;
    let read = |tx: &ReadTx<'_>| {
        let found = tables::page(tx, page.newest(&call.tenant), state)?;
        let waiting = held::waiting(tx, &found.rows)?;
        Ok((found, waiting))
    };
    let (found, waiting) = lists::read(api, call, read)?;
    Ok(page_found(&found, |job| JobAnswer::with_waiting(job, waiting.get(&job.seq).copied())))
}

/// `GET /v1/jobs/{id}`
fn show(api: &Api, call: &Call) -> Result<Response, Problem> {
    let found = api.env.store.read(|tx| tables::by_id(tx, &call.tenant, call.param(0)))?;
    let found = found.or_not_found("job")?;
    let now = api.env.clock.now();
    let (became, waiting, held) = api.env.store.read(|tx| {
        let waiting = held::waiting(tx, slice::from_ref(&found))?;
        Ok((tables::became(tx, found.seq)?, waiting, held::of_job(tx, &found, now)?))
    })?;
    let mut answer = JobAnswer::with_waiting(&found, waiting.get(&found.seq).copied());
    if let Value::Object(fields) = &mut answer {
        fields.insert("held".to_owned(), value(held));
        fields.insert("became".to_owned(), value(became));
    }
    Ok(ok(&answer))
}

/// `POST /v1/jobs/{id}/pause`
fn pause(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let now = api.env.clock.now();
    act(api, call, &[JobState::Running], move |tx, seq| tables::pause(tx, seq, Some(now)))
}

/// `POST /v1/jobs/{id}/resume`
fn resume(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    act(api, call, &[JobState::Paused], |tx, seq| tables::pause(tx, seq, None))
}

/// `POST /v1/jobs/{id}/cancel`
fn cancel(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let now = api.env.clock.now();
    let from = &[JobState::Running, JobState::Paused];
    act(api, call, from, move |tx, seq| tables::end(tx, seq, JobState::Cancelled, None, now))
}

/// Changes a job in one of the states `from`, and wakes the thread of the jobs.
fn act(
    api: &Api,
    call: &Call,
    from: &'static [JobState],
    run: impl Fn(&WriteTx<'_>, i64) -> StoreResult<()> + Send + 'static,
) -> Result<Audited<Value>, Problem> {
    let tenant = call.tenant.clone();
    let id = call.param(0).to_owned();
    let changed = change(api, call, move |tx| {
        let before = tables::by_id(tx, &tenant, &id)?.or_not_found("job")?;
        if !from.contains(&before.state) {
            let detail = format!("The job is {} already.", before.state.as_str());
            return Err(Problem::conflict(detail).into());
        }
        run(tx, before.seq)?;
        let after = tables::by_id(tx, &tenant, &id)?.or_not_found("job")?;
        Ok(Change::changed("job", &id, &JobAnswer::of(&before), &JobAnswer::of(&after)))
    })?;
    api.flow.jobs.ring();
    Ok(changed)
}

/// `POST /v1/events/replay`
fn replay_events(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let Request { filter, dry_run, rate } = call.json()?;
    none_of(&[
        ("provider", filter.provider.is_some()),
        ("ids", filter.ids.is_some()),
        ("answer", filter.answer.is_some()),
    ])?;
    let request = JobRequest { kind: JobKind::ReplayEvents, filter, rate, reason: None };
    start(api, call, request, dry_run)
}

/// `POST /v1/webhook-events/replay`
fn replay_webhook_events(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let Request { filter, dry_run, rate } = call.json()?;
    none_of(&[
        ("aggregate_type", filter.aggregate_type.is_some()),
        ("aggregate_id", filter.aggregate_id.is_some()),
        ("ids", filter.ids.is_some()),
        ("answer", filter.answer.is_some()),
    ])?;
    let request = JobRequest { kind: JobKind::ReplayWebhookEvents, filter, rate, reason: None };
    start(api, call, request, dry_run)
}

/// `POST /v1/events/expunge`
fn expunge_events(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    expunge(api, call, JobKind::ExpungeEvents)
}

/// `POST /v1/webhook-events/expunge`
fn expunge_webhook_events(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    expunge(api, call, JobKind::ExpungeWebhookEvents)
}

fn expunge(api: &Api, call: &Call, kind: JobKind) -> Result<Audited<Value>, Problem> {
    let Expunge { filter, reason, dry_run } = call.json()?;
    let is_of_events = kind == JobKind::ExpungeEvents;
    none_of(&[
        ("subscription", filter.subscription.is_some()),
        ("class", filter.class.is_some()),
        ("code", filter.code.is_some()),
        ("ids", filter.ids.is_some()),
        ("answer", filter.answer.is_some()),
        ("provider", filter.provider.is_some() && is_of_events),
        ("aggregate_type", filter.aggregate_type.is_some() && !is_of_events),
        ("aggregate_id", filter.aggregate_id.is_some() && !is_of_events),
    ])?;
    start(api, call, JobRequest { kind, filter, rate: None, reason: Some(reason.0) }, dry_run)
}

/// `POST /v1/subscriptions/{id}/recover`
fn recover(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let Recovery { since, until, dry_run, rate } = call.json()?;
    let found = subscriptions_api::find(api, call)?;
    let filter = JobFilter {
        subscription: Some(found.new.id.clone()),
        since: Some(since),
        until,
        ..JobFilter::default()
    };
    let request = JobRequest { kind: JobKind::Recover, filter, rate, reason: None };
    let (new, counted) = request.count(api, call)?;
    if dry_run {
        return Ok(Audited::dry_run(JobPreview::of(api, &new, &counted)?));
    }
    let matched = counted.matched;
    let mut first = api.env.store.snapshot(|tx| tables::next_batch(tx, &new, &new.cursor))?;
    let end = api.env.clock.monotonic().saturating_add(MAX_COUNT_SPAN);
    while first.items.is_empty() && !first.is_last && api.env.clock.monotonic() < end {
        first = api.env.store.snapshot(|tx| tables::next_batch(tx, &new, &first.cursor))?;
    }
    let wall = api.env.clock.wall();
    let now = api.env.clock.now();
    let made = change(api, call, move |tx| {
        let before = subscriptions::by_seq(tx, found.seq)?.or_not_found("subscription")?;
        settlement::resume(tx, &before, wall)?;
        let before = json!({ "state": before.state.as_str() });
        let after = json!({ "state": "ACTIVE" });
        tables::insert(tx, &new, matched)?;
        // The first batch is in the same transaction, so that the oldest deliveries are sent before waiting ones.
        let job = tables::by_id(tx, &new.tenant, &new.id)?.ok_or(Error::Changed("the job"))?;
        tables::advance(tx, &job, &first, None, now)?;
        let job = tables::by_id(tx, &new.tenant, &new.id)?.ok_or(Error::Changed("the job"))?;
        let job = JobAnswer::of(&job);
        let change = Change::made_within("subscription", &found.new.id, &before, &after);
        Ok(change.and("job", job.clone()).answer(job))
    })?;
    api.flow.jobs.ring();
    Ok(made)
}

/// A job as a person asks for it.
pub(super) struct JobRequest {
    pub(super) kind: JobKind,
    pub(super) filter: JobFilter,
    pub(super) rate: Option<u32>,
    pub(super) reason: Option<String>,
}

/// Makes a job and its audit event in one transaction. A dry run only counts the matches.
pub(super) fn start(
    api: &Api,
    call: &Call,
    request: JobRequest,
    dry_run: bool,
) -> Result<Audited<Value>, Problem> {
    let (new, counted) = request.count(api, call)?;
    if dry_run {
        return Ok(Audited::dry_run(JobPreview::of(api, &new, &counted)?));
    }
    let made = change(api, call, move |tx| insert(tx, &new, counted.matched))?;
    api.flow.jobs.ring();
    Ok(made)
}

fn insert(tx: &WriteTx<'_>, new: &NewJob, matched: Matched) -> ChangeResult {
    tables::insert(tx, new, matched)?;
    let job = tables::by_id(tx, &new.tenant, &new.id)?.or_not_found("job")?;
    Ok(Change::made("job", &new.id, &JobAnswer::of(&job)))
}

impl JobRequest {
    /// Checks the request, and counts its matches.
    fn count(self, api: &Api, call: &Call) -> Result<(NewJob, CountedMatches), Problem> {
        let Self { kind, filter, rate, reason } = self;
        let now = api.env.clock.now();
        let mut new = NewJob {
            id: id::uuid7(api.env.clock.wall(), &*api.env.draw),
            tenant: call.tenant.clone(),
            kind,
            filter,
            rate,
            reason,
            requested_by: call.who.display.clone(),
            created_at: now,
            cursor: Cursor::default(),
        };
        let named = new.filter.subscription.as_deref();
        let is_known = |tx: &ReadTx<'_>| match named {
            Some(name) => Ok(subscriptions::find(tx, &new.tenant, name)?.is_some()),
            None => Ok(true),
        };
        if !api.env.store.read(is_known)? {
            let detail = format!("There is no subscription {:?}.", named.unwrap_or_default());
            return Err(Problem::unprocessable(detail));
        }
        new.cursor = api.env.store.read(|tx| tables::start(tx, kind, &new.filter))?;
        let clock = api.env.clock.clone();
        let own = api.env.clock.clone();
        let end = clock.monotonic().saturating_add(MAX_COUNT_SPAN);
        let gives_up = move || own.monotonic() >= end.saturating_add(MAX_COUNT_SPAN);
        let count =
            |tx: &ReadTx<'_>| tables::matched(tx, &new, SAMPLE, || clock.monotonic() >= end);
        let counted = api.env.store.list(gives_up, count);
        if kind.is_expunging()
            && let Ok(mut counted) = counted
        {
            let matched = &mut counted.matched;
            // Samples are of the database alone.
            let archive = &api.flow.archiving.archive;
            for month in archived::names(archive)? {
                let is_over = || clock.monotonic() >= end;
                let more =
                    expunging::matched_in_month(&api.env.store, archive, &new, &month, is_over);
                let more = more.unwrap_or_else(|error| {
                    tracing::error!(%error, %month, "a month of the archive cannot be read");
                    Matched { count: 0, is_more: true }
                });
                matched.count = matched.count.saturating_add(more.count);
                matched.is_more |= more.is_more;
            }
            return Ok((new, counted));
        }
        match counted {
            // Even a single query took too long, as on a slow disk. The job itself may take longer.
            Err(Error::TooLong) => {
                let matched = Matched { count: 0, is_more: true };
                Ok((new, CountedMatches { matched, ..CountedMatches::default() }))
            }
            counted => counted.map(|counted| (new, counted)).map_err(Into::into),
        }
    }
}

/// Refuses filters that do not apply here.
fn none_of(others: &[(&str, bool)]) -> Result<(), Problem> {
    let found = others.iter().find(|(_, is_given)| *is_given);
    found.map_or(Ok(()), |(name, _)| {
        Err(Problem::unprocessable(format!("{name} is not a filter here.")))
    })
}

/// Refuses filters that only apply to events.
pub(super) fn check_of_dead_letters(filter: &JobFilter) -> Result<(), Problem> {
    none_of(&[("provider", filter.provider.is_some())])
}

/// The result of a dry run.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ReplayDryRun")]
pub(super) struct JobPreview {
    dry_run: bool,
    /// How many dead letters or events match.
    count: u64,
    /// Whether more than `count` match: not all were counted.
    more: bool,
    /// The oldest ones, at most ten.
    sample: Vec<Sample>,
    /// Deliveries that would wait for a held subscription. Known for dead letters, and for events with one receiver.
    held: Vec<HeldDeliveries>,
}

/// A dead letter or an event that matches.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ReplaySample")]
struct Sample {
    /// The id of a delivery, an event or a webhook event.
    id: String,
    event_type: String,
    aggregate_type: Option<String>,
    aggregate_id: Option<String>,
    /// The subscription's name; null for an event.
    subscription: Option<Is<NameText>>,
}

impl JobPreview {
    fn of(api: &Api, new: &NewJob, counted: &CountedMatches) -> Result<Value, Problem> {
        let now = api.env.clock.now();
        let (sample, held) = api.env.store.read(|tx| {
            let each = counted.first.iter().map(|item| sampled(tx, new, item));
            let sample = each.filter_map(StoreResult::transpose).collect::<StoreResult<_>>()?;
            let counts = counts_by_subscription(tx, new, counted)?;
            Ok((sample, held::of_new(tx, new, &counts, now)?))
        })?;
        let Matched { count, is_more: more } = counted.matched;
        Ok(value(Self { dry_run: true, count, more, sample, held }))
    }
}

/// The numbers of matches by subscription, as far as these are known.
fn counts_by_subscription(
    tx: &ReadTx<'_>,
    new: &NewJob,
    counted: &CountedMatches,
) -> StoreResult<BTreeMap<i64, u64>> {
    let named = match &new.filter.subscription {
        Some(name) if !new.kind.is_of_dead_letters() => subscriptions::find(tx, &new.tenant, name)?,
        _ => None,
    };
    let mut counts = counted.by_subscription.clone();
    counts
        .extend(named.map(|of| (of.seq.0, counted.matched.count)).filter(|(_, count)| *count > 0));
    Ok(counts)
}

fn sampled(tx: &ReadTx<'_>, new: &NewJob, item: &Item) -> StoreResult<Option<Sample>> {
    if new.kind.is_of_dead_letters() {
        let found = delivery_lists::by_seq(tx, &new.tenant, DeliverySeq(item.seq))?;
        return Ok(found.map(|found| Sample {
            id: found.seq.to_string(),
            event_type: found.event_type,
            aggregate_type: found.aggregate_type,
            aggregate_id: found.aggregate_id,
            subscription: Some(found.subscription.into()),
        }));
    }
    if item.is_webhook_event {
        let found = webhook_events::by_seq(tx, item.seq)?;
        return Ok(found.map(|found| Sample {
            id: found.new.id,
            event_type: found.new.event_type,
            aggregate_type: None,
            aggregate_id: None,
            subscription: None,
        }));
    }
    let found = outbox_lists::by_seq(tx, item.seq)?;
    Ok(found.map(|found| Sample {
        id: found.new.id,
        event_type: found.new.event_type,
        aggregate_type: found.new.aggregate_type,
        aggregate_id: found.new.aggregate_id,
        subscription: None,
    }))
}

/// A job.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Job")]
pub(super) struct JobAnswer<'a> {
    id: Is<Uuid, &'a str>,
    tenant: Is<NameText, &'a str>,
    /// The operation.
    kind: JobKind,
    state: JobState,
    /// Which dead letters or events it is for.
    filter: Is<JobFilter, Value>,
    /// The most deliveries per second; null: no limit.
    rate: Option<u32>,
    /// The reason that the person gave.
    reason: Option<&'a str>,
    /// How many dead letters or events matched when it was made.
    matched: u64,
    /// Whether more than `matched` matched: not all were counted.
    matched_more: bool,
    /// How many of them are done.
    done: u64,
    /// How many were skipped because they had changed in the meantime.
    skipped: u64,
    /// How many of them somebody else acted on before the job came to them; 0 until it is completed.
    acted_on_meanwhile: u64,
    /// Deliveries that were reopened, created or ended.
    deliveries: u64,
    requested_by: &'a str,
    created_at: Timestamp,
    finished_at: Option<Timestamp>,
    /// Why it failed.
    error: Option<&'a str>,
    /// How many of the first 1,000 of its deliveries have not ended. Null until the job is completed, if it sends nothing,
    /// and of the older jobs of a page with more than 20,000 deliveries.
    waiting: Option<u64>,
    /// Those that wait because their subscription is held; null in lists.
    held: Option<Vec<HeldDeliveries>>,
    /// What became of the first 1,000 of its deliveries; null in lists, and where it has none.
    became: Option<Became>,
}

impl JobAnswer<'_> {
    fn of(job: &Job) -> Value {
        Self::with_waiting(job, None)
    }

    fn with_waiting(job: &Job, waiting: Option<u64>) -> Value {
        let Job { new, state, matched, progress, error, finished_at, .. } = job;
        let mut filter = value(&new.filter);
        if let Value::Object(fields) = &mut filter {
            fields.retain(|_, given| !given.is_null());
        }
        let passed = progress.done.saturating_add(progress.skipped);
        let is_whole = *state == JobState::Completed && !matched.is_more;
        value(JobAnswer {
            id: new.id.as_str().into(),
            tenant: new.tenant.as_str().into(),
            kind: new.kind,
            state: *state,
            filter: filter.into(),
            rate: new.rate,
            reason: new.reason.as_deref(),
            matched: matched.count,
            matched_more: matched.is_more,
            done: progress.done,
            skipped: progress.skipped,
            acted_on_meanwhile: if is_whole { matched.count.saturating_sub(passed) } else { 0 },
            deliveries: progress.deliveries,
            requested_by: &new.requested_by,
            created_at: new.created_at,
            finished_at: *finished_at,
            error: error.as_deref(),
            waiting,
            held: None,
            became: None,
        })
    }
}
