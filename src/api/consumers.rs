//! `/v1/consumers`: those who ask for the events of a pull subscription, and say what came of them.
//!
//! What they do is no change by a person: it is answered after COMMIT, stands in the attempts, and makes no
//! audit event.

use std::time::Duration;

use data_encoding::BASE64;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::api::Api;
use crate::api::call::{Call, ok};
use crate::api::consumer_shapes::{self as shapes, MAX_REASON_CHARS, MAX_WORDS};
use crate::api::kind::Kind;
use crate::api::problem::Problem;
use crate::api::route::Answer::Later;
use crate::api::route::{Param, Resource, Returns, doc, route};
use crate::base::clock::Timestamp;
use crate::base::id::DeliverySeq;
use crate::http::message::Method::{Get, Head, Post};
use crate::http::message::Response;
use crate::http::service::Reply;
use crate::model::lease::LeaseOutcome;
use crate::model::subscription::{HoldReason, Subscription, Target};
use crate::model::token::Right;
use crate::pipeline::consume::{Answer, Item, LeaseRequest, MAX_ITEMS, MAX_WAIT, Report};
use crate::pipeline::destinations::{lease_of, lease_time};
use crate::store::consuming::ReportResult;
use crate::store::error::Result as StoreResult;
use crate::store::subscriptions;

/// The longest wait a consumer may ask for when it hands something back.
const MAX_DELAY: Duration = Duration::from_hours(7 * 24);
/// When to come again where too many wait.
const CROWDED_RETRY_AFTER_SECS: u64 = 5;

const NAME: Param =
    Param::path("name", "The pull subscription's name or id.", shapes::id, "warehouse");

/// Those who ask for events.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Consumers",
    about: "For programs that ask for events instead of being called. What is given is leased: done within the \
            lease, or given again.",
    routes: &[
        route(
            Get,
            "/v1/consumers/{name}/next",
            Some(Right::Operate),
            Later(next),
            doc(
                "nextEvents",
                "Lease the next events",
                "The oldest due ones, each to one consumer. Answered after COMMIT; without any, when `wait` is \
                 over.",
                &[Returns::json(200, "What is leased; perhaps nothing.", "Leases")],
            )
            .params(&[
                NAME,
                Param::query("max", "How many at most; 1 if absent.", shapes::max, "10"),
                Param::query(
                    "wait",
                    "Seconds to wait for the first; 0 if absent.",
                    shapes::wait,
                    "20",
                ),
                Param::query(
                    "payload",
                    "`base64`: every payload in base64, for those who need its exact bytes.",
                    shapes::payload_form,
                    "",
                ),
            ])
            .problems(&[Kind::Conflict]),
        ),
        route(
            Post,
            "/v1/consumers/{name}/ack",
            Some(Right::Operate),
            Later(ack),
            doc(
                "acknowledgeEvents",
                "Say that events are done",
                "Each is answered on its own. A lease that is over is accepted while nobody else has the event.",
                &[Returns::json(200, "What became of each, in order.", "Heard")],
            )
            .params(&[NAME])
            .body("Acknowledgements", shapes::ack_example)
            .problems(&[Kind::Conflict]),
        ),
        route(
            Post,
            "/v1/consumers/{name}/nack",
            Some(Right::Operate),
            Later(nack),
            doc(
                "returnEvents",
                "Say that events did not work",
                "A failed attempt: given again by the schedule, or after `delay`; a dead letter after the last \
                 one, or at once with `dead`.",
                &[Returns::json(200, "What became of each, in order.", "Heard")],
            )
            .params(&[NAME])
            .body("Returns", shapes::nack_example)
            .problems(&[Kind::Conflict]),
        ),
        route(
            Post,
            "/v1/consumers/{name}/extend",
            Some(Right::Operate),
            Later(extend),
            doc(
                "extendLeases",
                "Ask for more time",
                "The leases end after `lease` from now, or after the subscription's own time. One that is over begins \
                 again while nobody else has the event.",
                &[Returns::json(200, "What became of each, in order.", "Heard")],
            )
            .params(&[NAME])
            .body("Extension", shapes::extend_example)
            .problems(&[Kind::Conflict]),
        ),
    ],
    shapes: shapes::ALL,
};

/// `GET /v1/consumers/{name}/next`
fn next(api: &Api, call: Call, reply: Reply) {
    // Who asks for the head alone would never see what it was leased.
    if call.request.head.method == Head {
        return reply.send(ok(&json!({ "items": [], "held": null })));
    }
    let (subscription, most, wait, exact) = match asked(api, &call) {
        Ok(asked) => asked,
        Err(problem) => return reply.send(problem.into()),
    };
    let show = move |answer| shown(answer, exact).unwrap_or_else(Into::into);
    let (subscription, show) = (subscription.seq, Box::new(show));
    api.flow.consume.next(LeaseRequest { subscription, most, wait, reply, show });
}

fn asked(api: &Api, call: &Call) -> Result<(Subscription, u32, Duration, bool), Problem> {
    let number = |name, most: u64, unasked| {
        let found: u64 = call.query.word(name, |text| text.parse().ok())?.unwrap_or(unasked);
        let least = unasked;
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
    let found = api.store.read(|tx| subscriptions::find(tx, &call.tenant, call.param(0)))?;
    let found = found.ok_or_else(|| Problem::not_found("subscription"))?;
    match found.new.target {
        Target::Pull => Ok(found),
        Target::Http(_) => Err(Problem::conflict(
            "The subscription is no pull subscription: its events are sent to its url.",
        )),
    }
}

fn shown(answer: Answer, exact: bool) -> Result<Response, Problem> {
    let (items, held) = match answer {
        Answer::Items(items) => (items, None),
        Answer::Nothing(held) => (Vec::new(), held),
        Answer::Crowded => {
            let detail = "Too many consumers wait for events; come again, or wait less.";
            return Err(Problem::unavailable(detail, CROWDED_RETRY_AFTER_SECS));
        }
        Answer::Gone => return Err(Problem::not_found("subscription")),
        Answer::Unusable(reason) => {
            let detail = "The subscription cannot be used now; the log says why.";
            return Err(Problem::unavailable(detail, CROWDED_RETRY_AFTER_SECS).because(reason));
        }
        Answer::Failed(error) => return Err(error.into()),
    };
    let items = items.iter().map(|item| ShownItem::new(item, exact)).collect();
    let body = serde_json::to_vec(&ShownLeases { items, held: held.map(HoldReason::as_str) });
    // Texts and numbers under names that are texts: there is nothing that JSON could not hold.
    let body = body.unwrap_or_default();
    Ok(Response::with_body(200, "application/json", body))
}

#[derive(Serialize)]
struct ShownLeases<'a> {
    items: Vec<ShownItem<'a>>,
    held: Option<&'static str>,
}

#[derive(Serialize)]
struct ShownItem<'a> {
    delivery: String,
    lease: &'a str,
    lease_until: Timestamp,
    attempt: u32,
    event_id: &'a str,
    webhook_id: &'a str,
    event_type: &'a str,
    aggregate_type: Option<&'a str>,
    aggregate_id: Option<&'a str>,
    headers: Map<String, Value>,
    content_type: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
}

impl<'a> ShownItem<'a> {
    fn new(item: &'a Item, exact: bool) -> Self {
        let Item { parcel, lease, until, attempt, headers } = item;
        let json = parcel.content_type.contains("json") && !exact;
        let payload = json.then(|| serde_json::from_slice::<&RawValue>(&parcel.payload).ok());
        // Blanks around it would be lost.
        let payload = payload.flatten().filter(|raw| raw.get().len() == parcel.payload.len());
        let fields = headers.iter().map(|(name, value)| (name.clone(), value.as_str().into()));
        Self {
            delivery: parcel.delivery.to_string(),
            lease,
            lease_until: *until,
            attempt: *attempt,
            event_id: &parcel.event_id,
            webhook_id: &parcel.webhook_id,
            event_type: &parcel.event_type,
            aggregate_type: parcel.aggregate_type.as_deref(),
            aggregate_id: parcel.aggregate_id.as_deref(),
            headers: fields.collect(),
            content_type: &parcel.content_type,
            payload_base64: payload.is_none().then(|| BASE64.encode(&parcel.payload)),
            payload,
        }
    }
}

/// One lease that a consumer speaks of.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Spoken {
    delivery: String,
    lease: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Acknowledgements {
    items: Vec<Spoken>,
}

/// One lease that a consumer hands back.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Returned {
    delivery: String,
    lease: String,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    delay: Option<String>,
    #[serde(default)]
    dead: bool,
    #[serde(default = "yes")]
    counted: bool,
}

fn yes() -> bool {
    true
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HandedBack {
    items: Vec<Returned>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Extension {
    items: Vec<Spoken>,
    #[serde(default)]
    lease: Option<String>,
}

/// `POST /v1/consumers/{name}/ack`
fn ack(api: &Api, call: Call, reply: Reply) {
    settle(api, &call, reply, |call| {
        let Acknowledgements { items } = call.json()?;
        few(items.len())?;
        items
            .into_iter()
            .map(|Spoken { delivery, lease }| {
                Ok(Report { delivery: number(&delivery)?, lease, outcome: LeaseOutcome::Done })
            })
            .collect()
    });
}

/// `POST /v1/consumers/{name}/nack`
fn nack(api: &Api, call: Call, reply: Reply) {
    settle(api, &call, reply, |call| {
        let HandedBack { items } = call.json()?;
        few(items.len())?;
        items.into_iter().map(returned).collect()
    });
}

fn returned(item: Returned) -> Result<Report, Problem> {
    let Returned { delivery, lease, reason, delay, dead, counted } = item;
    let wait = delay.as_deref().map(delay_of).transpose()?;
    let reason = reason.map(|text| text.chars().take(MAX_REASON_CHARS).collect());
    let reason = reason.filter(|text: &String| !text.is_empty());
    if dead && (wait.is_some() || !counted) {
        let detail = "dead gives up at once: it goes with neither delay nor counted.";
        return Err(Problem::unprocessable(detail));
    }
    let outcome = if dead {
        LeaseOutcome::Refused {
            reason: reason.unwrap_or_else(|| "the consumer gave it up".to_owned()),
        }
    } else {
        let unsaid = if counted { "the consumer failed" } else { "the consumer handed it back" };
        LeaseOutcome::Failed { reason: reason.unwrap_or_else(|| unsaid.to_owned()), wait, counted }
    };
    Ok(Report { delivery: number(&delivery)?, lease, outcome })
}

fn delay_of(text: &str) -> Result<Duration, Problem> {
    let wrong = |why: String| Problem::unprocessable(format!("delay {text:?} cannot be: {why}."));
    let span = humantime::parse_duration(text).map_err(|error| wrong(error.to_string()))?;
    if span > MAX_DELAY {
        return Err(wrong("it is at most 7days".to_owned()));
    }
    Ok(span)
}

fn settle(
    api: &Api,
    call: &Call,
    reply: Reply,
    read: impl FnOnce(&Call) -> Result<Vec<Report>, Problem>,
) {
    let read = read(call).and_then(|words| Ok((find(api, call)?, words)));
    let (subscription, words) = match read {
        Ok(read) => read,
        Err(problem) => return reply.send(problem.into()),
    };
    let deliveries: Vec<DeliverySeq> = words.iter().map(|word| word.delivery).collect();
    api.flow.consume.settle(&subscription, words, move |heard| {
        reply.send(shown_heard(&deliveries, heard));
    });
}

/// `POST /v1/consumers/{name}/extend`
fn extend(api: &Api, call: Call, reply: Reply) {
    let (subscription, leases, span) = match extension(api, &call) {
        Ok(read) => read,
        Err(problem) => return reply.send(problem.into()),
    };
    let deliveries: Vec<DeliverySeq> = leases.iter().map(|(delivery, _)| *delivery).collect();
    api.flow.consume.extend(subscription.seq, leases, span, move |heard| {
        reply.send(shown_heard(&deliveries, heard));
    });
}

type Leases = Vec<(DeliverySeq, String)>;

fn extension(api: &Api, call: &Call) -> Result<(Subscription, Leases, Duration), Problem> {
    let Extension { items, lease } = call.json()?;
    few(items.len())?;
    let leases = items
        .into_iter()
        .map(|Spoken { delivery, lease }| Ok((number(&delivery)?, lease)))
        .collect::<Result<_, Problem>>()?;
    let subscription = find(api, call)?;
    let own = || lease_time(&subscription.new.policy);
    let span = lease.as_deref().map_or_else(own, lease_of);
    let span = span.map_err(|why| Problem::unprocessable(format!("{why}.")))?;
    Ok((subscription, leases, span))
}

fn few(count: usize) -> Result<(), Problem> {
    if (1..=MAX_WORDS).contains(&count) {
        return Ok(());
    }
    let detail = format!("items must have 1 to {MAX_WORDS} entries, not {count}.");
    Err(Problem::unprocessable(detail))
}

fn number(text: &str) -> Result<DeliverySeq, Problem> {
    DeliverySeq::parse(text).ok_or_else(|| {
        let detail = format!("delivery {text:?} is no delivery's id; one is like dlv_17.");
        Problem::unprocessable(detail)
    })
}

/// What became of each: a status of its own, as if it had been asked alone.
fn shown_heard(deliveries: &[DeliverySeq], heard: StoreResult<Vec<ReportResult>>) -> Response {
    let heard = match heard {
        Ok(heard) => heard,
        Err(error) => return Problem::from(error).into(),
    };
    let shown = |(delivery, heard): (&DeliverySeq, &ReportResult)| {
        let id = delivery.to_string();
        match heard {
            ReportResult::Stored(state, until) => {
                json!({ "delivery": id, "status": 200, "state": state.as_str(), "lease_until": until })
            }
            ReportResult::Again(state) => json!({
                "delivery": id, "status": 200, "state": state.as_str(), "already_processed": true,
            }),
            ReportResult::Refused(why) => json!({ "delivery": id, "status": 409, "detail": why }),
            ReportResult::Unusable => {
                let detail = format!("what was said of {id} cannot be stored; the log says why");
                json!({ "delivery": id, "status": 500, "detail": detail })
            }
            ReportResult::Missing => {
                let detail = format!("there is no delivery {id} in this subscription");
                json!({ "delivery": id, "status": 404, "detail": detail })
            }
        }
    };
    let items: Vec<Value> = deliveries.iter().zip(&heard).map(shown).collect();
    ok(&json!({ "items": items }))
}
