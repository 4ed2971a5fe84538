//! `/v1/consumers`: consumers lease the events of a pull subscription, and acknowledge or return them.
//!
//! Their requests are answered after COMMIT and recorded as attempts; they make no audit events.

use std::collections::BTreeMap;
use std::time::Duration;

use data_encoding::BASE64;
use serde_json::value::RawValue;

use crate::api::prelude::*;
use crate::api::schema::{AnyDeliveryId, Base64};
use crate::base::clock::span;
use crate::base::fair::Payer;
use crate::base::id::DeliverySeq;
use crate::http::message::Method::Head;
use crate::model::delivery::DeliveryState;
use crate::model::hold::HoldReason;
use crate::model::lease;
use crate::model::subscription::{Subscription, Target};
use crate::pipeline::consume::{Answer, Item, LeaseRequest, MAX_ITEMS, MAX_WAIT, Report};
use crate::pipeline::destinations::{lease_of, lease_time};
use crate::store::consuming::ReportResult;
use crate::store::subscriptions;

/// The most leases that one request may name.
const MAX_LEASES_NAMED: usize = 500;
/// Characters of a reason that are kept.
const MAX_REASON_CHARS: usize = 2048;
/// The longest `delay` a consumer may ask for when it returns an event.
const MAX_DELAY: Duration = Duration::from_hours(7 * 24);
/// `Retry-After` if too many consumers wait.
const CROWDED_RETRY_AFTER_SECS: u64 = 5;

const NAME: Param =
    Param::path::<NameText>("name", "The pull subscription's name or id.", "warehouse");

/// Pull consumers.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Consumers",
    about: "For programs that fetch events instead of being called. An event is leased: if it is not acknowledged \
            within the lease, it is leased again.",
    routes: &[
        get("/v1/consumers/{name}/next", Operate, Later(next))
            .doc("nextEvents", "Lease the next events", &[
                NAME,
                Param::query::<Max>("max", "Maximum number of events; 1 if absent.", "10"),
                Param::query::<Wait>("wait", "Seconds to wait for the first event; 0 if absent.", "20"),
                Param::query::<PayloadForm>(
                    "payload",
                    "`base64`: every payload in base64, for consumers that need its exact bytes.",
                    "",
                ),
            ])
            .about(
                "Leases the oldest due events, each to one consumer. Answered after COMMIT, or \
                 without events when `wait` is over.",
            )
            .returns(&[Returns::json::<Leases<'_>>(200, "The leased events; there may be none.")])
            .problems(&[Kind::Conflict]),
        post("/v1/consumers/{name}/ack", Operate, Later(ack))
            .doc("acknowledgeEvents", "Acknowledge events", &[NAME])
            .about(
                "Each lease has its own result. An expired lease is accepted as long as no other \
                 consumer has the event.",
            )
            .returns(&[Returns::json::<Outcomes>(200, "The result of each lease, in order.")])
            .body::<Acknowledgements>(
                r#"{"items":[{"delivery":"dlv_17",
                "lease":"019c1447-5800-7000-8000-000000000001"}]}"#,
            )
            .problems(&[Kind::Conflict]),
        post("/v1/consumers/{name}/nack", Operate, Later(nack))
            .doc("returnEvents", "Return events that failed", &[NAME])
            .about(
                "Each is a failed attempt. The event is leased again by the retry schedule, or after \
                 `delay`. After the last attempt, or at once with `dead`, it becomes a dead letter.",
            )
            .returns(&[Returns::json::<Outcomes>(200, "The result of each lease, in order.")])
            .body::<HandedBack>(
                r#"{"items":[{"delivery":"dlv_17",
                "lease":"019c1447-5800-7000-8000-000000000001","reason":"no stock",
                "delay":"5min"}]}"#,
            )
            .problems(&[Kind::Conflict]),
        post("/v1/consumers/{name}/extend", Operate, Later(extend))
            .doc("extendLeases", "Extend leases", &[NAME])
            .about(
                "The leases end after `lease` from now, or after the subscription's own lease time. An \
                 expired lease begins again as long as no other consumer has the event.",
            )
            .returns(&[Returns::json::<Outcomes>(200, "The result of each lease, in order.")])
            .body::<Extension>(
                r#"{"items":[{"delivery":"dlv_17",
                "lease":"019c1447-5800-7000-8000-000000000001"}],"lease":"5min"}"#,
            )
            .problems(&[Kind::Conflict]),
    ],
};

/// `GET /v1/consumers/{name}/next`
fn next(api: &Api, call: Call, reply: Reply) {
    // A HEAD request would never see the events that it leased.
    if call.request.head.method == Head {
        return reply.send(ok(&Leases { items: Vec::new(), held: None }));
    }
    let (subscription, most, wait, exact) = match read_next(api, &call) {
        Ok(read) => read,
        Err(problem) => return reply.send(problem.into()),
    };
    let show = move |answer| shown(answer, exact).unwrap_or_else(Into::into);
    let subscription = subscription.seq;
    let show = Box::new(show);
    let payer = Payer::tenant(&call.tenant);
    api.flow.consume.next(LeaseRequest { subscription, payer, most, wait, reply, show });
}

fn read_next(api: &Api, call: &Call) -> Result<(Subscription, u32, Duration, bool), Problem> {
    let number = |name, most: u64, default| {
        let found: u64 = call.query.word(name, |text| text.parse().ok())?.unwrap_or(default);
        let least = default;
        if (least..=most).contains(&found) {
            return Ok(found);
        }
        Err(Problem::bad_request(format!("{name} must be {least} to {most}.")))
    };
    let most = u32::try_from(number("max", MAX_ITEMS.into(), 1)?).unwrap_or(1);
    let wait = Duration::from_secs(number("wait", MAX_WAIT.as_secs(), 0)?);
    let form = call.query.word("payload", |text| match text {
        "json" => Some(false),
        "base64" => Some(true),
        _ => None,
    })?;
    Ok((find(api, call)?, most, wait, form.unwrap_or(false)))
}

/// The pull subscription that the path names.
fn find(api: &Api, call: &Call) -> Result<Subscription, Problem> {
    let found = api.env.store.read(|tx| subscriptions::find(tx, &call.tenant, call.param(0)))?;
    let found = found.or_not_found("subscription")?;
    match found.new.target {
        Target::Pull => Ok(found),
        _ => Err(Problem::conflict(
            "The subscription is not a pull subscription: its events are sent to its url.",
        )),
    }
}

fn shown(answer: Answer, exact: bool) -> Result<Response, Problem> {
    let (items, held) = match answer {
        Answer::Items(items) => (items, None),
        Answer::Nothing(held) => (Vec::new(), held),
        Answer::Saturated => {
            let detail =
                "Too many consumers wait for events; try again later, or with a shorter wait.";
            return Err(Problem::unavailable(detail, CROWDED_RETRY_AFTER_SECS));
        }
        Answer::Gone => return Err(Problem::not_found("subscription")),
        Answer::Unusable(reason) => {
            let detail = "The subscription cannot be used now; the log says why.";
            return Err(Problem::unavailable(detail, CROWDED_RETRY_AFTER_SECS).because(reason));
        }
        Answer::Failed(error) => return Err(error.into()),
    };
    let items = items.iter().map(|item| LeasedEvent::new(item, exact)).collect();
    Ok(ok(&Leases { items, held }))
}

values! {
    /// Events of one request.
    Max = { "type": "integer", "minimum": 1, "maximum": MAX_ITEMS }
    /// Seconds to wait.
    Wait = { "type": "integer", "minimum": 0, "maximum": MAX_WAIT.as_secs() }
    /// How a payload is shown.
    PayloadForm = { "type": "string", "enum": ["json", "base64"] }
    /// The status of one lease.
    ReportStatus = { "type": "integer", "enum": [200, 404, 409, 500] }
}

#[derive(Serialize, JsonSchema)]
struct Leases<'a> {
    items: Vec<LeasedEvent<'a>>,
    /// Why no events are leased now.
    held: Option<HoldReason>,
}

#[derive(Serialize, JsonSchema)]
struct LeasedEvent<'a> {
    delivery: DeliverySeq,
    /// The lease's id. Send it with each report about this event.
    lease: Is<Uuid, &'a str>,
    lease_until: Timestamp,
    /// 1 for the first lease of this event, and 1 more each time it is leased again.
    attempt: Is<Whole<1, { 1 << 31 }>, u32>,
    event_id: Is<Uuid, &'a str>,
    /// The same each time it is leased: the key for the guard.
    webhook_id: &'a str,
    event_type: &'a str,
    aggregate_type: Option<&'a str>,
    aggregate_id: Option<&'a str>,
    /// The header fields that a request to a URL would have.
    headers: BTreeMap<&'a str, &'a str>,
    content_type: &'a str,
    /// The payload, if it is JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Value>")]
    payload: Option<&'a RawValue>,
    /// The payload's bytes, if it is not JSON or `payload=base64` was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Base64")]
    payload_base64: Option<String>,
}

impl<'a> LeasedEvent<'a> {
    fn new(item: &'a Item, exact: bool) -> Self {
        let Item { outgoing, lease, until, attempt, headers } = item;
        let json = outgoing.content_type.contains("json") && !exact;
        let payload = json.then(|| serde_json::from_slice::<&RawValue>(&outgoing.payload).ok());
        // JSON would lose the whitespace around the payload: that goes as base64.
        let payload = payload.flatten().filter(|raw| raw.get().len() == outgoing.payload.len());
        let headers = headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        Self {
            delivery: outgoing.delivery,
            lease: lease.as_str().into(),
            lease_until: *until,
            attempt: (*attempt).into(),
            event_id: outgoing.event_id.as_str().into(),
            webhook_id: &outgoing.webhook_id,
            event_type: &outgoing.event_type,
            aggregate_type: outgoing.aggregate_type.as_deref(),
            aggregate_id: outgoing.aggregate_id.as_deref(),
            headers: headers.collect(),
            content_type: &outgoing.content_type,
            payload_base64: payload.is_none().then(|| BASE64.encode(&outgoing.payload)),
            payload,
        }
    }
}

/// The lease of a delivery.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Lease {
    #[schemars(with = "AnyDeliveryId")]
    delivery: DeliverySeq,
    lease: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Acknowledgements {
    #[schemars(length(min = 1, max = MAX_LEASES_NAMED))]
    items: Vec<Lease>,
}

/// A lease that a consumer returns.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Return")]
struct Returned {
    #[schemars(with = "AnyDeliveryId")]
    delivery: DeliverySeq,
    lease: String,
    /// Why; the first 2048 characters are kept.
    reason: Option<String>,
    /// When it may be leased again, like `30s`, at most `7days`; by the retry schedule if absent.
    delay: Option<Is<SomeText>>,
    /// It can never succeed: it becomes a dead letter at once.
    #[serde(default)]
    dead: bool,
    /// false: it was not tried, and does not count towards `max_attempts`.
    #[serde(default = "yes")]
    counted: bool,
    /// The consumer cannot work now, perhaps because its database is away. It does not count; the subscription is held,
    /// and one event at a time is leased as a probe until one is acknowledged.
    #[serde(default)]
    away: bool,
}

fn yes() -> bool {
    true
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Returns")]
struct HandedBack {
    #[schemars(length(min = 1, max = MAX_LEASES_NAMED))]
    items: Vec<Returned>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Extension {
    #[schemars(length(min = 1, max = MAX_LEASES_NAMED))]
    items: Vec<Lease>,
    /// How long the leases last from now, like `5min`.
    lease: Option<Is<SomeText>>,
}

/// The result of each lease, in order.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Heard")]
struct Outcomes {
    items: Vec<LeaseOutcome>,
}

/// The result of one lease.
#[derive(Serialize, JsonSchema)]
struct LeaseOutcome {
    delivery: DeliverySeq,
    /// 200: stored; 404: the subscription has no such delivery; 409: the lease does not allow it, and `detail` says why;
    /// 500: it cannot be stored, and the log says why.
    #[schemars(with = "ReportStatus")]
    status: u16,
    /// The delivery's state now.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "DeliveryState")]
    state: Option<DeliveryState>,
    /// When an extended lease ends.
    #[expect(clippy::option_option, reason = "absent, null and a time are three things")]
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_until: Option<Option<Timestamp>>,
    /// The same was reported before.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    already_processed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    detail: Option<String>,
}

/// `POST /v1/consumers/{name}/ack`
fn ack(api: &Api, call: Call, reply: Reply) {
    settle(api, &call, reply, |call| {
        let Acknowledgements { items } = call.json()?;
        let done = |Lease { delivery, lease }| Report {
            delivery,
            lease,
            outcome: lease::LeaseOutcome::Done,
        };
        Ok(items.into_iter().map(done).collect())
    });
}

/// `POST /v1/consumers/{name}/nack`
fn nack(api: &Api, call: Call, reply: Reply) {
    settle(api, &call, reply, |call| {
        let HandedBack { items } = call.json()?;
        items.into_iter().map(returned).collect()
    });
}

fn returned(item: Returned) -> Result<Report, Problem> {
    let Returned { delivery, lease, reason, delay, dead, counted, away } = item;
    let wait = delay.as_deref().map(delay_of).transpose()?;
    let reason = reason.map(|text| text.chars().take(MAX_REASON_CHARS).collect());
    let reason = reason.filter(|text: &String| !text.is_empty());
    if dead && (wait.is_some() || !counted || away) {
        let detail = "dead gives up at once; it cannot be combined with delay, counted or away.";
        return Err(Problem::unprocessable(detail));
    }
    let outcome = if dead {
        lease::LeaseOutcome::Refused {
            reason: reason.unwrap_or_else(|| "the consumer gave it up".to_owned()),
        }
    } else if away {
        let reason = reason.unwrap_or_else(|| "the consumer cannot work now".to_owned());
        lease::LeaseOutcome::Away { reason, wait }
    } else {
        let default = if counted { "the consumer failed" } else { "the consumer handed it back" };
        lease::LeaseOutcome::Failed {
            reason: reason.unwrap_or_else(|| default.to_owned()),
            wait,
            counted,
        }
    };
    Ok(Report { delivery, lease, outcome })
}

fn delay_of(text: &str) -> Result<Duration, Problem> {
    let wrong = |why: String| Problem::unprocessable(format!("delay {why}."));
    let span = span(text).map_err(wrong)?;
    if span > MAX_DELAY {
        return Err(wrong(format!("{text:?} cannot be: it is at most 7days")));
    }
    Ok(span)
}

fn settle(
    api: &Api,
    call: &Call,
    reply: Reply,
    read: impl FnOnce(&Call) -> Result<Vec<Report>, Problem>,
) {
    let read = read(call).and_then(|reports| Ok((find(api, call)?, reports)));
    let (subscription, reports) = match read {
        Ok(read) => read,
        Err(problem) => return reply.send(problem.into()),
    };
    let deliveries: Vec<DeliverySeq> = reports.iter().map(|report| report.delivery).collect();
    api.flow.consume.settle(&subscription, reports, move |results| {
        reply.send(outcomes(&deliveries, results));
    });
}

/// `POST /v1/consumers/{name}/extend`
fn extend(api: &Api, call: Call, reply: Reply) {
    let (subscription, leases, span) = match extension(api, &call) {
        Ok(read) => read,
        Err(problem) => return reply.send(problem.into()),
    };
    let deliveries: Vec<DeliverySeq> = leases.iter().map(|(delivery, _)| *delivery).collect();
    api.flow.consume.extend(subscription.seq, leases, span, move |results| {
        reply.send(outcomes(&deliveries, results));
    });
}

type NamedLeases = Vec<(DeliverySeq, String)>;

fn extension(api: &Api, call: &Call) -> Result<(Subscription, NamedLeases, Duration), Problem> {
    let Extension { items, lease } = call.json()?;
    let leases = items.into_iter().map(|Lease { delivery, lease }| (delivery, lease)).collect();
    let subscription = find(api, call)?;
    let own = || lease_time(&subscription.new.policy);
    let span = lease.as_deref().map_or_else(own, lease_of);
    let span = span.map_err(|why| Problem::unprocessable(format!("{why}.")))?;
    Ok((subscription, leases, span))
}

/// The result of each lease, each with its own status.
fn outcomes(deliveries: &[DeliverySeq], results: StoreResult<Vec<ReportResult>>) -> Response {
    let results = match results {
        Ok(results) => results,
        Err(error) => return Problem::from(error).into(),
    };
    let shown = |(delivery, result): (&DeliverySeq, &ReportResult)| {
        let delivery = *delivery;
        let refused = |status, detail| (status, Some(detail));
        let (status, detail) = match result {
            ReportResult::Stored(..) | ReportResult::Again(_) => (200, None),
            ReportResult::Refused(why) => refused(409, why.clone()),
            ReportResult::Unusable => {
                refused(500, format!("the report on {delivery} cannot be stored; the log says why"))
            }
            ReportResult::Missing => {
                refused(404, format!("there is no delivery {delivery} in this subscription"))
            }
        };
        let (state, lease_until) = match result {
            ReportResult::Stored(state, until) => (Some(*state), Some(*until)),
            ReportResult::Again(state) => (Some(*state), None),
            _ => (None, None),
        };
        let already_processed = matches!(result, ReportResult::Again(_));
        LeaseOutcome { delivery, status, state, lease_until, already_processed, detail }
    };
    ok(&Outcomes { items: deliveries.iter().zip(&results).map(shown).collect() })
}
