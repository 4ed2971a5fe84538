//! `/v1/deliveries` and `/v1/dead-letters`: listing, showing, retrying and cancelling deliveries.

use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::api::audited::{Audited, Change, change};
use crate::api::call::{Call, ok, page_found, page_of};
use crate::api::context::Api;
use crate::api::lists;
use crate::api::problem::Problem;
use crate::api::route::Answer::{Act, Listed, Now};
use crate::api::route::{AFTER, LIMIT, Param, Resource, Returns, SINCE, UNTIL, get, post};
use crate::api::schema::{
    AnyDeliveryId, DeliveryId, LaneId, NameText, SomeText, Whole, answers, value, values,
};
use crate::base::clock::Timestamp;
use crate::base::id::DeliverySeq;
use crate::http::message::Response;
use crate::jobs::tables;
use crate::model::delivery::{Attempt, Delivery, State};
use crate::model::hold::HoldReason;
use crate::model::lane;
use crate::model::outcome::AttemptClass;
use crate::model::subscription::Target;
use crate::model::token::Right::{Operate, Read};
use crate::model::waiting::{self, WaitContext, Waiting};
use crate::store::error::{Error, Result as StoreResult};
use crate::store::failures::{self, Failure};
use crate::store::tx::{ReadTx, WriteTx};
use crate::store::{attempts, delivery_lists, lanes, settlement, subscriptions};

pub(super) const ID: Param = Param::path::<AnyDeliveryId>("id", "The delivery's id.", "dlv_17");
const STATE: Param = Param::query::<State>("state", "Only those in this state.", "");
const SUBSCRIPTION: Param =
    Param::query::<SomeText>("subscription", "Only those to the subscription of this name.", "erp");
const EVENT_ID: Param = Param::query::<SomeText>(
    "event_id",
    "Only those of this event or webhook event.",
    "019c1447-5800-7000-8000-000000000001",
)
.quick();

const CLASS: Param =
    Param::query::<AttemptClass>("class", "Only those whose last attempt ended like this.", "");
const CODE: Param =
    Param::query::<Whole<100, 999>>("code", "Only those whose last answer had this status.", "503");

/// Deliveries.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Deliveries",
    about: "One event for one subscription: the unit of work. Its attempts are never changed.",
    routes: &[
        get("/v1/deliveries", Read, Listed(list))
            .doc("listDeliveries", "List the deliveries")
            .about("The newest first.")
            .returns(&[Returns::page::<InFlightDelivery>("A page of deliveries.")])
            .params(&[STATE, SUBSCRIPTION, EVENT_ID, SINCE, UNTIL, LIMIT, AFTER]),
        get("/v1/deliveries/{id}", Read, Now(show))
            .doc("getDelivery", "Show a delivery")
            .about("Its state, why it waits, and its latest error.")
            .returns(&[Returns::json::<DeliveryDetail>(200, "The delivery.")])
            .params(&[ID]),
        get("/v1/deliveries/{id}/attempts", Read, Listed(list_attempts))
            .doc("listAttempts", "List the attempts of a delivery")
            .about("The oldest first.")
            .returns(&[Returns::page::<AttemptAnswer>("A page of attempts.")])
            .params(&[ID, LIMIT, AFTER]),
        post("/v1/deliveries/{id}/retry", Operate, Act("delivery.retry", retry))
            .doc("retryDelivery", "Send a delivery again")
            .about(
                "A waiting delivery becomes due now. A parked one goes back to its place in its lane. A \
                 leased one is taken back from its consumer. A dead letter is reopened. The delivery keeps \
                 its `webhook-id`.",
            )
            .returns(&[Returns::json::<DeliveryAnswer>(200, "The delivery as it is now.")])
            .params(&[ID]),
        post("/v1/deliveries/{id}/cancel", Operate, Act("delivery.cancel", cancel))
            .doc("cancelDelivery", "Cancel a delivery")
            .about(
                "It is not tried again. An attempt that is in flight or leased at this moment may \
                 still succeed.",
            )
            .returns(&[Returns::json::<DeliveryAnswer>(200, "The delivery as it is now.")])
            .params(&[ID]),
        get("/v1/dead-letters", Read, Listed(list_dead))
            .doc("listDeadLetters", "List the dead letters")
            .about(
                "Deliveries that were given up. They stay until a person retries or cancels them.",
            )
            .returns(&[Returns::page::<InFlightDelivery>("A page of deliveries.")])
            .params(&[SUBSCRIPTION, CLASS, CODE, SINCE, UNTIL, LIMIT, AFTER]),
    ],
};

/// Why a delivery cannot be sent again.
const RETRY_RULE: &str = "only a delivery that waits, that is parked, that a consumer has or that was given up can be sent again, and only while its subscription exists";
/// Why a delivery cannot be cancelled.
const CANCEL_RULE: &str = "only a delivery that waits, that a consumer has, that is dead, parked or in doubt can be cancelled";

/// `GET /v1/deliveries`
pub(super) fn list(api: &Api, call: &Call) -> Result<Response, Problem> {
    let query = &call.query;
    let filter = delivery_lists::Filter {
        state: query.one_of("state", State::ALL, State::as_str)?,
        subscription: query.text("subscription"),
        event_id: query.text("event_id"),
        made: query.span()?,
        ..delivery_lists::Filter::default()
    };
    page(api, call, &filter)
}

/// `GET /v1/dead-letters`
pub(super) fn list_dead(api: &Api, call: &Call) -> Result<Response, Problem> {
    let query = &call.query;
    let filter = delivery_lists::Filter {
        state: Some(State::DeadLetter),
        subscription: query.text("subscription"),
        class: query.one_of("class", AttemptClass::ALL, AttemptClass::as_str)?,
        code: query
            .word("code", |text| text.parse().ok().filter(|code| (100..=999).contains(code)))?,
        made: query.span()?,
        ..delivery_lists::Filter::default()
    };
    page(api, call, &filter)
}

fn page(api: &Api, call: &Call, filter: &delivery_lists::Filter) -> Result<Response, Problem> {
    let page = call.query.page()?;
    let newest = page.newest(&call.tenant);
    let found = lists::read(api, call, |tx| delivery_lists::page(tx, newest, filter))?;
    Ok(page_found(&found, |delivery| value(InFlightDelivery::of(api, delivery))))
}

/// `GET /v1/deliveries/{id}`
pub(super) fn show(api: &Api, call: &Call) -> Result<Response, Problem> {
    let delivery = find(api, call)?;
    let (waiting, failure) =
        api.store.read(|tx| Ok((waiting(api, tx, &delivery)?, failures::of(tx, delivery.seq)?)))?;
    Ok(ok(&DeliveryDetail {
        delivery: InFlightDelivery::of(api, &delivery),
        waiting: waiting.as_ref().map(WaitingAnswer::of),
        failure: failure.map(FailureAnswer::of),
    }))
}

/// Why a delivery waits.
pub(super) fn waiting(api: &Api, tx: &ReadTx<'_>, of: &Delivery) -> StoreResult<Option<Waiting>> {
    let Some(subscription) = subscriptions::find(tx, &of.tenant, &of.subscription)? else {
        return Ok(None);
    };
    let head = match of.is_behind.then(|| lanes::waits_for(tx, of.seq)) {
        Some(head) => head?.map(|head| delivery_lists::by_seq(tx, &of.tenant, head)),
        None => None,
    };
    let head = head.transpose()?.flatten();
    let known = |delivery| WaitContext {
        delivery,
        holds: &subscription.holds,
        is_pull: subscription.new.target == Target::Pull,
        in_flight_since: api.flow.in_flight.since(delivery.seq),
        rate: subscription.new.policy.rate.as_deref(),
        now: api.clock.now(),
    };
    Ok(waiting::waiting(known(of), head.as_ref().map(known)))
}

/// `GET /v1/deliveries/{id}/attempts`
pub(super) fn list_attempts(api: &Api, call: &Call) -> Result<Response, Problem> {
    let delivery = find(api, call)?;
    let page = call.query.page()?;
    let after = page.after.and_then(|after| u32::try_from(after).ok()).unwrap_or(0);
    let found = lists::read(api, call, |tx| attempts::of(tx, delivery.seq, after, page.limit))?;
    let show = |a: &Attempt| {
        value(AttemptAnswer { id: format!("{}.{}", delivery.seq, a.n), attempt: a.clone() })
    };
    Ok(page_of(&found, page, |a| i64::from(a.n), show))
}

/// `POST /v1/deliveries/{id}/retry`: due now if it waits, reopened if it was given up. A dead letter does not overtake
/// those of its lane that a job is about to replay.
pub(super) fn retry(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let (now, of) = (api.clock.now(), find(api, call)?);
    if let (State::DeadLetter, Some(lane)) = (of.state, of.lane) {
        let (tenant, place) = (&call.tenant, (of.order_at, of.seq));
        let job = api.store.read(|tx| tables::replays_before(tx, tenant, lane, place))?;
        if let Some(job) = job {
            return Err(Problem::conflict(format!(
                "The job {job} replays earlier dead letters of its lane; wait for its end, or pause or cancel it."
            )));
        }
    }
    act(api, call, (RETRY_RULE, None), move |tx, of| settlement::retry(tx, of.seq, now))
}

/// `POST /v1/deliveries/{id}/cancel`
pub(super) fn cancel(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let now = api.clock.now();
    let reason = format!("cancelled by {}", call.who.display);
    act(api, call, (CANCEL_RULE, None), move |tx, of| settlement::cancel(tx, of.seq, &reason, now))
}

/// Changes one delivery. `rule` is the detail of the 409 if its state does not allow that. The reason is audited.
pub(super) fn act(
    api: &Api,
    call: &Call,
    (rule, reason): (&'static str, Option<String>),
    mut run: impl FnMut(&WriteTx<'_>, &Delivery) -> StoreResult<()> + Send + 'static,
) -> Result<Audited<Value>, Problem> {
    let found = find(api, call)?;
    let (tenant, seq) = (call.tenant.clone(), found.seq);
    change(api, call, move |tx| {
        let missing = || Ok(Err(Problem::not_found("delivery")));
        let Some(before) = delivery_lists::by_seq(tx, &tenant, seq)? else { return missing() };
        match tx.in_savepoint(|| run(tx, &before))? {
            // A statement found a row in another state. What those before it changed is undone.
            Err(Error::Changed(_)) => {
                return Ok(Err(refused(&before, rule)));
            }
            done => done?,
        }
        let Some(after) = delivery_lists::by_seq(tx, &tenant, seq)? else { return missing() };
        let body = DeliveryAnswer::of(&after);
        let change =
            Change::changed("delivery", &seq.to_string(), &DeliveryAnswer::of(&before), &body);
        let change = match &reason {
            Some(reason) => change.and("given_reason", reason.as_str()),
            None => change,
        };
        Ok(Ok((body, change)))
    })
}

/// The 409 for a delivery in another state: it names the state, the rule, and what can be done.
pub(super) fn refused(delivery: &Delivery, rule: &str) -> Problem {
    let possible = match delivery.state {
        State::Pending if delivery.lane.is_some() => "retry, park, move-to-end, skip, cancel",
        State::Pending | State::DeadLetter => "retry, skip, cancel",
        State::Leased => "retry, cancel",
        State::Waiting => "cancel",
        State::Parked | State::InDoubt => "release, skip, cancel",
        State::Skipped | State::Cancelled => "retry",
        State::Completed => "a replay of its event",
    };
    let Delivery { seq, state, .. } = delivery;
    Problem::conflict(format!("{seq} is {state}; {rule}. Possible now: {possible}."))
}

pub(super) fn find(api: &Api, call: &Call) -> Result<Delivery, Problem> {
    let missing = || Problem::not_found("delivery");
    let seq = DeliverySeq::parse(call.param(0)).ok_or_else(missing)?;
    let found = api.store.read(|tx| delivery_lists::by_seq(tx, &call.tenant, seq))?;
    found.ok_or_else(missing)
}

/// A delivery.
#[derive(Serialize, JsonSchema)]
#[serde(remote = "Delivery")]
#[schemars(rename = "Delivery")]
pub(super) struct DeliveryAnswer {
    #[serde(rename = "id", serialize_with = "as_text")]
    #[schemars(with = "DeliveryId")]
    seq: DeliverySeq,
    #[schemars(with = "NameText")]
    tenant: String,
    #[serde(rename = "of", serialize_with = "as_kind")]
    #[schemars(with = "CarriedKind")]
    of_webhook_event: bool,
    event_id: String,
    event_type: String,
    /// The type of the thing that the event is about; null for a webhook event.
    aggregate_type: Option<String>,
    /// The id of that thing.
    aggregate_id: Option<String>,
    /// The event's own key, or the provider's id of the webhook event.
    key: String,
    /// The subscription's name.
    #[schemars(with = "NameText")]
    subscription: String,
    state: State,
    /// When it was made.
    created_at: Timestamp,
    /// When it is tried next; null if it is not tried again.
    due_at: Option<Timestamp>,
    /// When the consumer's lease ends; null if it is not leased.
    lease_until: Option<Timestamp>,
    /// When the target's time to confirm it ends; null if it does not wait for that.
    confirm_until: Option<Timestamp>,
    /// Its lane; null if it has none.
    #[serde(serialize_with = "as_lane")]
    #[schemars(with = "Option<LaneId>")]
    lane: Option<i64>,
    /// The time by which its lane is ordered.
    order_at: Timestamp,
    /// Whether it arrived after deliveries that come behind it in its lane.
    late: bool,
    /// Whether it waits for an earlier delivery of its lane.
    is_behind: bool,
    /// Attempts in all runs.
    attempt_count: u32,
    /// Failed attempts of this run that count towards `max_attempts`.
    counted_failures: u32,
    last_class: Option<AttemptClass>,
    /// The number of the run. Reopening a dead letter adds 1.
    run_no: u32,
    finished_at: Option<Timestamp>,
    /// Why it ended, or why it waits.
    reason: Option<String>,
}
answers!(DeliveryAnswer, Delivery);

/// A delivery, and whether it is being attempted at this moment.
#[derive(Serialize, JsonSchema)]
pub(super) struct InFlightDelivery<T = DeliveryAnswer> {
    #[serde(flatten)]
    delivery: T,
    /// When the current attempt began; null if there is none.
    in_flight_since: Option<Timestamp>,
}

impl InFlightDelivery<Value> {
    pub(super) fn of(api: &Api, delivery: &Delivery) -> Self {
        // The outcome may be stored a moment before the deliverer is done.
        let is_open = delivery.state == State::Pending;
        let in_flight_since = api.flow.in_flight.since(delivery.seq).filter(|_| is_open);
        Self { delivery: DeliveryAnswer::of(delivery), in_flight_since }
    }
}

/// A delivery, why it waits, and its failure.
#[derive(Serialize, JsonSchema)]
struct DeliveryDetail<T = InFlightDelivery, W = WaitingAnswer> {
    #[serde(flatten)]
    delivery: T,
    /// Why it waits; null if it has ended.
    waiting: Option<W>,
    /// What went wrong with it; null if no attempt has failed.
    failure: Option<FailureAnswer>,
}

/// Why a delivery waits.
#[derive(Serialize, JsonSchema)]
#[serde(remote = "Waiting")]
#[schemars(rename = "Waiting")]
struct WaitingAnswer {
    reason: waiting::WaitReason,
    /// The reason, for a person.
    detail: String,
    /// The earliest end of the wait; null if it is unknown.
    until: Option<Timestamp>,
    /// The hold that stops it.
    hold: Option<HoldReason>,
    /// The earlier delivery that it waits for.
    #[serde(serialize_with = "as_optional_text")]
    #[schemars(with = "Option<DeliveryId>")]
    behind: Option<DeliverySeq>,
}
answers!(WaitingAnswer, Waiting);

/// What went wrong with a delivery, from its first failed attempt until it succeeds.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Failure")]
struct FailureAnswer {
    #[schemars(with = "FailureId")]
    id: String,
    /// The class of the latest failed attempt.
    class: AttemptClass,
    /// The HTTP status of that attempt, or its kind of error: `no_connection`, `refused`, `tls`, `timeout`, `broken`,
    /// `blocked`, `unbuildable`, `consumer`, `unconfirmed`.
    code: String,
    first_at: Timestamp,
    last_at: Timestamp,
    /// Failed attempts.
    count: u32,
    /// When the delivery succeeded; null if it has not.
    resolved_at: Option<Timestamp>,
}

impl FailureAnswer {
    fn of(failure: Failure) -> Self {
        let Failure { seq, class, code, first_at, last_at, count, resolved_at, alone: _ } = failure;
        Self { id: format!("flr_{seq}"), class, code, first_at, last_at, count, resolved_at }
    }
}

values! {
    /// What a delivery carries.
    CarriedKind = { "type": "string", "enum": ["event", "webhook_event"] }
    /// An id of a failure.
    FailureId = { "type": "string", "pattern": "^flr_[0-9]+$" }
    /// An id of an attempt.
    AttemptId = { "type": "string", "pattern": r"^dlv_[0-9]+\.[0-9]+$" }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a field by reference")]
fn as_text<S: Serializer>(seq: &DeliverySeq, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(seq)
}

#[expect(clippy::ref_option, reason = "serde passes a field by reference")]
fn as_lane<S: Serializer>(lane: &Option<i64>, to: S) -> Result<S::Ok, S::Error> {
    lane.map(lane::id).serialize(to)
}

#[expect(clippy::ref_option, reason = "serde passes a field by reference")]
fn as_optional_text<S: Serializer>(seq: &Option<DeliverySeq>, to: S) -> Result<S::Ok, S::Error> {
    seq.map(|seq| seq.to_string()).serialize(to)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a field by reference")]
fn as_kind<S: Serializer>(of_webhook_event: &bool, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(if *of_webhook_event { "webhook_event" } else { "event" })
}

/// An attempt.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Attempt")]
struct AttemptAnswer {
    #[schemars(with = "AttemptId")]
    id: String,
    #[serde(flatten, with = "AttemptFields")]
    attempt: Attempt,
}

#[derive(Serialize, JsonSchema)]
#[serde(remote = "Attempt")]
struct AttemptFields {
    #[schemars(with = "Whole<1, { 1 << 31 }>")]
    n: u32,
    started_at: Timestamp,
    finished_at: Timestamp,
    /// The URL that was called; empty if nothing was sent.
    url: String,
    class: AttemptClass,
    /// Whether it counts towards `max_attempts`.
    counted: bool,
    #[schemars(with = "Option<Whole<100, 999>>")]
    http_status: Option<u16>,
    latency_ms: u32,
    /// The first 2,048 characters of the answer.
    excerpt: Option<String>,
    failed_reason: Option<String>,
    /// The id of the credential it was signed with.
    key_id: Option<String>,
    /// The id of its span in the trace.
    span: Option<String>,
}
