//! `/v1/deliveries` and `/v1/dead-letters`: listing, showing, retrying and cancelling deliveries.

use crate::api::archived::{self, By};
use crate::api::call::{Query, page_found};
use crate::api::events::TRACE_ID;
use crate::api::prelude::*;
use crate::api::schema::{AnyDeliveryId, TrueOrFalse};
use crate::base::id::DeliverySeq;
use crate::jobs::tables;
use crate::model::attempt::Attempt;
use crate::model::delivery::{Delivery, DeliveryState, QueuePlace};
use crate::model::hold::PastHold;
use crate::model::outcome::AttemptClass;
use crate::model::subscription::Target;
use crate::model::waiting::{self, WaitContext, Waiting};
use crate::store::error::Error;
use crate::store::failures::{self, Failure};
use crate::store::{
    attempts, delivery_lists, lanes, past_holds, renderings, settlement, subscriptions,
};

pub(super) const ID: Param = Param::path::<AnyDeliveryId>("id", "The delivery's id.", "dlv_17");
const STATE: Param = Param::query::<DeliveryState>("state", "Only those in this state.", "");
const POSTPONED: Param = Param::query::<TrueOrFalse>(
    "postponed",
    "Only those that wait behind others of their lane, or only the others.",
    "true",
);
const QUEUE: Param = Param::query::<QueuePlace>(
    "queue",
    "Only pending ones that were never attempted: `new` all of them, `in_queue` those that wait behind no other of their lane.",
    "",
);
const IN_FLIGHT: Param = Param::query::<TrueOrFalse>(
    "in_flight",
    "Only those that are being attempted at this moment.",
    "true",
);
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
const ANSWER: Param = Param::query::<SomeText>(
    "answer",
    "Only those whose target answered in this sentence, as the summary has it.",
    "unknown article A-99",
);

/// Deliveries.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Deliveries",
    about: "One event for one subscription: the unit of work. Its attempts are never changed.",
    routes: &[
        get("/v1/deliveries", Read, Listed(list))
            .doc(
                "listDeliveries",
                "List the deliveries",
                &[
                    STATE, SUBSCRIPTION, EVENT_ID, TRACE_ID, CLASS, CODE, POSTPONED, QUEUE, IN_FLIGHT, SINCE,
                    UNTIL, LIMIT, AFTER,
                ],
            )
            .about("The newest first.")
            .returns(&[Returns::page::<InFlightDelivery>("A page of deliveries.")]),
        get("/v1/deliveries/{id}", Read, Now(show))
            .doc("getDelivery", "Show a delivery", &[ID])
            .about("Its state, why it waits, and its latest error.")
            .returns(&[Returns::json::<DeliveryDetail>(200, "The delivery.")]),
        get("/v1/deliveries/{id}/attempts", Read, Listed(list_attempts))
            .doc("listAttempts", "List the attempts of a delivery", &[ID, LIMIT, AFTER])
            .about("The oldest first.")
            .returns(&[Returns::page::<AttemptAnswer<'_>>("A page of attempts.")]),
        post("/v1/deliveries/{id}/retry", Operate, Act("delivery.retry", retry))
            .doc("retryDelivery", "Send a delivery again", &[ID])
            .about(
                "A waiting delivery becomes due now. A parked one goes back to its place in its lane. A \
                 leased one is taken back from its consumer. A dead letter is reopened. The delivery keeps \
                 its `webhook-id`, and each attempt sends the same body, unless it is rendered anew.",
            )
            .optional_body::<RetryRequest>(r#"{"rendered_anew":true}"#)
            .returns(&[Returns::json::<Delivery>(200, "The delivery as it is now.")]),
        post("/v1/deliveries/{id}/cancel", Operate, Act("delivery.cancel", cancel))
            .doc("cancelDelivery", "Cancel a delivery", &[ID])
            .about(
                "It is not tried again. An attempt that is in flight or leased at this moment may \
                 still succeed.",
            )
            .returns(&[Returns::json::<Delivery>(200, "The delivery as it is now.")]),
        get("/v1/dead-letters", Read, Listed(list_dead))
            .doc(
                "listDeadLetters",
                "List the dead letters",
                &[SUBSCRIPTION, CLASS, CODE, ANSWER, SINCE, UNTIL, LIMIT, AFTER],
            )
            .about(
                "Deliveries that were given up. They stay until a person retries or cancels them.",
            )
            .returns(&[Returns::page::<InFlightDelivery>("A page of deliveries.")]),
    ],
};

/// How a delivery is sent again.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct RetryRequest {
    /// Make a new run, whose first attempt makes body and header fields anew by the subscription's format and template
    /// of now.
    rendered_anew: bool,
}

/// Why a delivery cannot be sent again.
const RETRY_RULE: &str = "only a delivery that waits, that is parked, that a consumer has or that was given up, skipped or cancelled can be sent again, and only while its subscription exists";
/// Why a delivery cannot be rendered anew once more: what each attempt has sent is kept.
const TOO_OFTEN: &str = "it was rendered anew 16 times, which is the limit; send it as it is, or its event as a new one: oncebox event replay --as-new";
/// Why a delivery cannot be cancelled.
const CANCEL_RULE: &str = "only a delivery that waits, that a consumer has, that is dead, parked or in doubt can be cancelled";

/// `GET /v1/deliveries`
pub(super) fn list(api: &Api, call: &Call) -> Result<Response, Problem> {
    let query = &call.query;
    let is_asked = query.word("in_flight", |text| text.parse().ok())?.unwrap_or(false);
    let all = api.flow.in_flight.all();
    let filter = delivery_lists::DeliveryFilter {
        state: query.one_of("state", DeliveryState::ALL, DeliveryState::as_str)?,
        subscription: query.text("subscription"),
        event_id: query.text("event_id"),
        trace_id: query.text("trace_id"),
        postponed: query.word("postponed", |text| text.parse().ok())?,
        queue: query.one_of("queue", QueuePlace::ALL, QueuePlace::as_str)?,
        in_flight: is_asked.then(|| all.into_iter().map(|(delivery, _)| delivery.0).collect()),
        class: query.one_of("class", AttemptClass::ALL, AttemptClass::as_str)?,
        code: code(query)?,
        answer: None,
        made: query.span()?,
    };
    page(api, call, &filter)
}

/// `GET /v1/dead-letters`
pub(super) fn list_dead(api: &Api, call: &Call) -> Result<Response, Problem> {
    let query = &call.query;
    let filter = delivery_lists::DeliveryFilter {
        state: Some(DeliveryState::DeadLetter),
        subscription: query.text("subscription"),
        class: query.one_of("class", AttemptClass::ALL, AttemptClass::as_str)?,
        code: code(query)?,
        answer: query.text("answer"),
        made: query.span()?,
        ..delivery_lists::DeliveryFilter::default()
    };
    page(api, call, &filter)
}

fn code(query: &Query) -> Result<Option<u16>, Problem> {
    query.word("code", |text| text.parse().ok().filter(|code| (100..=999).contains(code)))
}

fn page(
    api: &Api,
    call: &Call,
    filter: &delivery_lists::DeliveryFilter,
) -> Result<Response, Problem> {
    let page = call.query.page()?;
    let newest = page.newest(&call.tenant);
    let found =
        archived::page(api, call, page.limit, None, |tx| delivery_lists::page(tx, newest, filter))?;
    Ok(page_found(&found, |delivery| value(InFlightDelivery::of(api, delivery.clone()))))
}

/// `GET /v1/deliveries/{id}`
pub(super) fn show(api: &Api, call: &Call) -> Result<Response, Problem> {
    let seq = number(call)?;
    let found = archived::find_with(api, By::Number(seq.0), |tx| {
        let Some(found) = delivery_lists::by_seq(tx, &call.tenant, seq)? else { return Ok(None) };
        let answer = delivery_lists::answer(tx, seq)?;
        let more = (waiting(api, tx, &found)?, failures::of(tx, seq)?, answer);
        Ok(Some((found, more)))
    })?;
    let (delivery, (waiting, failure, answer)) = found.or_not_found("delivery")?;
    let past_holds = api.env.store.read(|tx| past_holds(api, tx, &delivery))?;
    let delivery = InFlightDelivery::of(api, delivery);
    Ok(ok(&DeliveryDetail { delivery, waiting, failure, answer, past_holds }))
}

/// The holds during which a delivery waited and that have ended.
fn past_holds(api: &Api, tx: &ReadTx<'_>, of: &Delivery) -> StoreResult<Vec<PastHold>> {
    let Some(subscription) = subscriptions::find(tx, &of.tenant, &of.subscription)? else {
        return Ok(Vec::new());
    };
    let site = subscriptions::site(&subscription);
    let until = of.finished_at.unwrap_or_else(|| api.env.clock.wall());
    past_holds::between(tx, subscription.seq, site, of.created_at, until)
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
        now: api.env.clock.now(),
    };
    Ok(waiting::waiting(known(of), head.as_ref().map(known)))
}

/// `GET /v1/deliveries/{id}/attempts`
pub(super) fn list_attempts(api: &Api, call: &Call) -> Result<Response, Problem> {
    let seq = number(call)?;
    let page = call.query.page()?;
    let after = page.after.and_then(|after| u32::try_from(after).ok()).unwrap_or(0);
    let found = archived::find_with(api, By::Number(seq.0), |tx| {
        let Some(found) = delivery_lists::by_seq(tx, &call.tenant, seq)? else { return Ok(None) };
        Ok(Some((found, attempts::of(tx, seq, after, page.limit)?)))
    })?;
    let (_, found) = found.or_not_found("delivery")?;
    let show = |a: &Attempt| value(AttemptAnswer { id: format!("{seq}.{}", a.n), attempt: a });
    Ok(page_of(&found, page, |a| i64::from(a.n), show))
}

/// `POST /v1/deliveries/{id}/retry`: due now if it waits, reopened if it was given up. A dead letter does not overtake
/// those of its lane that a job is about to replay.
pub(super) fn retry(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let now = api.env.clock.now();
    let of = find(api, call)?;
    let RetryRequest { rendered_anew } = call.optional_json()?;
    if let (DeliveryState::DeadLetter, Some(lane)) = (of.state, of.lane) {
        let tenant = &call.tenant;
        let replay =
            |tx: &ReadTx<'_>| tables::replays_before(tx, tenant, lane, of.order_at, of.seq);
        let job = api.env.store.read(replay)?;
        if let Some(job) = job {
            return Err(Problem::conflict(format!(
                "The job {job} replays earlier dead letters of its lane; wait for its end, or pause or cancel it."
            )));
        }
    }
    // Held until the change is stored: what is being attempted would go out twice, with two bodies.
    let claim = rendered_anew.then(|| api.flow.in_flight.claim(of.seq));
    if matches!(claim, Some(None)) {
        return Err(refused(&of, "an attempt is in flight: wait for its end"));
    }
    if rendered_anew
        && api.env.store.read(|tx| renderings::count_past(tx, of.seq))? >= renderings::MAX_PAST
    {
        return Err(refused(&of, TOO_OFTEN));
    }
    act(api, call, RETRY_RULE, None, move |tx, of| {
        settlement::retry(tx, of.seq, rendered_anew, now)
    })
}

/// `POST /v1/deliveries/{id}/cancel`
pub(super) fn cancel(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let now = api.env.clock.now();
    let reason = format!("cancelled by {}", call.who.display);
    act(api, call, CANCEL_RULE, None, move |tx, of| settlement::cancel(tx, of.seq, &reason, now))
}

/// Changes one delivery. `rule` is the detail of the 409 if its state does not allow that. The reason is audited.
pub(super) fn act(
    api: &Api,
    call: &Call,
    rule: &'static str,
    reason: Option<String>,
    mut run: impl FnMut(&WriteTx<'_>, &Delivery) -> StoreResult<()> + Send + 'static,
) -> Result<Audited<Value>, Problem> {
    let found = find(api, call)?;
    let tenant = call.tenant.clone();
    let seq = found.seq;
    change(api, call, move |tx| {
        let before = delivery_lists::by_seq(tx, &tenant, seq)?.or_not_found("delivery")?;
        match tx.in_savepoint(|| run(tx, &before))? {
            // A statement found a row in another state. What those before it changed is undone.
            Err(Error::Changed(_)) => {
                return Err(refused(&before, rule).into());
            }
            done => done?,
        }
        let after = delivery_lists::by_seq(tx, &tenant, seq)?.or_not_found("delivery")?;
        let change = Change::changed("delivery", &seq.to_string(), &before, &after);
        let change = match &reason {
            Some(reason) => change.and("given_reason", reason.as_str()),
            None => change,
        };
        Ok(change)
    })
}

/// The 409 for a delivery in another state: it names the state, the rule, and what can be done.
pub(super) fn refused(delivery: &Delivery, rule: &str) -> Problem {
    let possible = match delivery.state {
        DeliveryState::Pending if delivery.lane.is_some() => {
            "retry, park, move-to-end, skip, cancel"
        }
        DeliveryState::Pending | DeliveryState::DeadLetter => "retry, skip, cancel",
        DeliveryState::Leased => "retry, cancel",
        DeliveryState::Waiting => "cancel",
        DeliveryState::Parked | DeliveryState::InDoubt => "release, skip, cancel",
        DeliveryState::Skipped | DeliveryState::Cancelled => "retry",
        DeliveryState::Completed => "a replay of its event",
    };
    let Delivery { seq, state, .. } = delivery;
    Problem::conflict(format!("{seq} is {state}; {rule}. Possible now: {possible}."))
}

/// A delivery that may change.
/// Fails with 404 if there is none, and with 409 if it is in the archive.
pub(super) fn find(api: &Api, call: &Call) -> Result<Delivery, Problem> {
    let found = find_anywhere(api, call)?;
    match &found.archived_in {
        Some(month) => Err(archived::unchangeable(month)),
        None => Ok(found),
    }
}

/// A delivery, with an API for the file it is in.
pub(super) fn find_where_it_is(api: &Api, call: &Call) -> Result<(Api, Delivery), Problem> {
    let found = find_anywhere(api, call)?;
    Ok((archived::reading(api, found.archived_in.as_deref())?, found))
}

fn find_anywhere(api: &Api, call: &Call) -> Result<Delivery, Problem> {
    let seq = number(call)?;
    archived::find(api, By::Number(seq.0), |tx| delivery_lists::by_seq(tx, &call.tenant, seq))?
        .or_not_found("delivery")
}

fn number(call: &Call) -> Result<DeliverySeq, Problem> {
    DeliverySeq::parse(call.param(0)).ok().or_not_found("delivery")
}

/// A delivery, and whether it is being attempted at this moment.
#[derive(Serialize, JsonSchema)]
pub(super) struct InFlightDelivery {
    #[serde(flatten)]
    delivery: Delivery,
    /// When the current attempt began; null if there is none.
    in_flight_since: Option<Timestamp>,
}

impl InFlightDelivery {
    pub(super) fn of(api: &Api, delivery: Delivery) -> Self {
        // The outcome may be stored a moment before the deliverer is done.
        let is_open = delivery.state == DeliveryState::Pending;
        let in_flight_since = api.flow.in_flight.since(delivery.seq).filter(|_| is_open);
        Self { delivery, in_flight_since }
    }
}

/// A delivery, why it waits, and its failure.
#[derive(Serialize, JsonSchema)]
struct DeliveryDetail {
    #[serde(flatten)]
    delivery: InFlightDelivery,
    /// Why it waits; null if it has ended.
    waiting: Option<Waiting>,
    /// What went wrong with it; null if no attempt has failed.
    failure: Option<Failure>,
    /// The sentence in which the target answered, as the summary of dead letters has it; null for other deliveries.
    answer: Option<String>,
    /// The holds of its subscription during which it waited and that have ended: the latest ten, the newest first.
    past_holds: Vec<PastHold>,
}

values! {
    /// An id of an attempt.
    AttemptId = { "type": "string", "pattern": r"^dlv_[0-9]+\.[0-9]+$" }
}

/// An attempt.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Attempt")]
struct AttemptAnswer<'a> {
    #[schemars(with = "AttemptId")]
    id: String,
    #[serde(flatten)]
    attempt: &'a Attempt,
}
