//! `/v1/deliveries` and `/v1/dead-letters`: looking at the units of work, and sending them again.

use serde_json::{Value, json};

use crate::api::audited::{Audited, Change, change};
use crate::api::call::{Call, ok, page_found, page_of};
use crate::api::problem::Problem;
use crate::api::route::Answer::{Listed, Now};
use crate::api::route::{Answer, Param, Resource, Returns, doc, route, shape};
use crate::api::schema::{self, AFTER, LIMIT, SINCE, UNTIL};
use crate::api::{Api, lists};
use crate::base::id::DeliverySeq;
use crate::http::message::Method::{Get, Post};
use crate::http::message::Response;
use crate::model::delivery::AttemptClass;
use crate::model::delivery::{Attempt, Delivery, State};
use crate::model::token::Right;
use crate::store::error::{Error, Result as StoreResult};
use crate::store::tx::WriteTx;
use crate::store::{attempts, delivery_lists, settlement};

pub(super) const ID: Param = Param::path("id", "The delivery's id.", id_schema, "dlv_17");
const STATE: Param = Param::query("state", "Only those in this state.", state_schema, "");
const SUBSCRIPTION: Param = Param::query(
    "subscription",
    "Only those to the subscription of this name.",
    schema::some_text,
    "erp",
);
const EVENT_ID: Param = Param::query(
    "event_id",
    "Only those of this event or webhook event.",
    schema::some_text,
    "019c1447-5800-7000-8000-000000000001",
)
.quick();

/// The units of work.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Deliveries",
    about: "One event for one subscription: the unit of work. Its attempts are never changed.",
    routes: &[
        route(
            Get,
            "/v1/deliveries",
            Some(Right::Read),
            Listed(list),
            doc(
                "listDeliveries",
                "List the deliveries",
                "The newest first.",
                &[Returns::page("A page of deliveries.", "Delivery")],
            )
            .params(&[STATE, SUBSCRIPTION, EVENT_ID, SINCE, UNTIL, LIMIT, AFTER]),
        ),
        route(
            Get,
            "/v1/deliveries/{id}",
            Some(Right::Read),
            Now(show),
            doc(
                "getDelivery",
                "Show a delivery",
                "Where it stands, and when it is tried next.",
                &[Returns::json(200, "The delivery.", "Delivery")],
            )
            .params(&[ID]),
        ),
        route(
            Get,
            "/v1/deliveries/{id}/attempts",
            Some(Right::Read),
            Listed(list_attempts),
            doc(
                "listAttempts",
                "List the attempts of a delivery",
                "The first one first.",
                &[Returns::page("A page of attempts.", "Attempt")],
            )
            .params(&[ID, LIMIT, AFTER]),
        ),
        route(
            Post,
            "/v1/deliveries/{id}/retry",
            Some(Right::Operate),
            Answer::Change("delivery.retry", retry),
            doc(
                "retryDelivery",
                "Send a delivery again",
                "Due now if it waits, taken back if a consumer has it, reopened if it was given up. It keeps its \
                 `webhook-id`.",
                &[Returns::json(200, "The delivery as it is now.", "Delivery")],
            )
            .params(&[ID]),
        ),
        route(
            Post,
            "/v1/deliveries/{id}/cancel",
            Some(Right::Operate),
            Answer::Change("delivery.cancel", cancel),
            doc(
                "cancelDelivery",
                "Cancel a delivery",
                "It is not tried again. What is in flight, or with a consumer, at this moment may still be done.",
                &[Returns::json(200, "The delivery as it is now.", "Delivery")],
            )
            .params(&[ID]),
        ),
        route(
            Get,
            "/v1/dead-letters",
            Some(Right::Read),
            Listed(list_dead),
            doc(
                "listDeadLetters",
                "List the dead letters",
                "Deliveries that were given up. They stay until a person retries or cancels them.",
                &[Returns::page("A page of deliveries.", "Delivery")],
            )
            .params(&[SUBSCRIPTION, SINCE, UNTIL, LIMIT, AFTER]),
        ),
    ],
    shapes: &[shape("Delivery", delivery_schema), shape("Attempt", attempt_schema)],
};

/// Which deliveries a person can send again.
const RETRY_RULE: &str = "only a delivery that waits, that a consumer has or that was given up can be sent again, and only while its subscription exists";
/// Which deliveries a person can stop.
const CANCEL_RULE: &str =
    "only a delivery that waits, that a consumer has, that is dead or in doubt can be cancelled";

/// `GET /v1/deliveries`
pub(super) fn list(api: &Api, call: &Call) -> Result<Response, Problem> {
    let query = &call.query;
    let filter = delivery_lists::Filter {
        state: query.one_of("state", State::ALL, State::as_str)?,
        subscription: query.text("subscription"),
        event_id: query.text("event_id"),
        made: query.span()?,
    };
    page(api, call, &filter)
}

/// `GET /v1/dead-letters`
pub(super) fn list_dead(api: &Api, call: &Call) -> Result<Response, Problem> {
    let query = &call.query;
    let filter = delivery_lists::Filter {
        state: Some(State::DeadLetter),
        subscription: query.text("subscription"),
        event_id: None,
        made: query.span()?,
    };
    page(api, call, &filter)
}

fn page(api: &Api, call: &Call, filter: &delivery_lists::Filter) -> Result<Response, Problem> {
    let page = call.query.page()?;
    let newest = page.newest(&call.tenant);
    let found = lists::read(api, call, |tx| delivery_lists::page(tx, newest, filter))?;
    Ok(page_found(&found, shown))
}

/// `GET /v1/deliveries/{id}`
pub(super) fn show(api: &Api, call: &Call) -> Result<Response, Problem> {
    Ok(ok(&shown(&find(api, call)?)))
}

/// `GET /v1/deliveries/{id}/attempts`
pub(super) fn list_attempts(api: &Api, call: &Call) -> Result<Response, Problem> {
    let delivery = find(api, call)?;
    let page = call.query.page()?;
    let after = page.after.and_then(|after| u32::try_from(after).ok()).unwrap_or(0);
    let found = lists::read(api, call, |tx| attempts::of(tx, delivery.seq, after, page.limit))?;
    Ok(page_of(&found, page, |a| i64::from(a.n), |a| shown_attempt(delivery.seq, a)))
}

/// `POST /v1/deliveries/{id}/retry`: due now if it waits, reopened if it was given up.
pub(super) fn retry(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let now = api.clock.now();
    act(api, call, RETRY_RULE, move |tx, seq| settlement::retry(tx, seq, now))
}

/// `POST /v1/deliveries/{id}/cancel`
pub(super) fn cancel(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let now = api.clock.now();
    let reason = format!("cancelled by {}", call.who.display);
    act(api, call, CANCEL_RULE, move |tx, seq| settlement::cancel(tx, seq, &reason, now))
}

/// Does something to one delivery; `rule` says when that can be done.
pub(super) fn act(
    api: &Api,
    call: &Call,
    rule: &str,
    mut run: impl FnMut(&WriteTx<'_>, DeliverySeq) -> StoreResult<()> + Send + 'static,
) -> Result<Audited<Value>, Problem> {
    let found = find(api, call)?;
    let (tenant, seq) = (call.tenant.clone(), found.seq);
    let rule = rule.to_owned();
    change(api, call, move |tx| {
        let missing = || Ok(Err(Problem::not_found("delivery")));
        let Some(before) = delivery_lists::by_seq(tx, &tenant, seq)? else { return missing() };
        match tx.apart(|| run(tx, seq))? {
            // A statement found a row in another state. What those before it changed is undone.
            Err(Error::Changed(_)) => {
                let detail = format!("{seq} is {}; {rule}.", before.state);
                return Ok(Err(Problem::conflict(detail)));
            }
            done => done?,
        }
        let Some(after) = delivery_lists::by_seq(tx, &tenant, seq)? else { return missing() };
        let body = shown(&after);
        let change = Change::changed("delivery", &seq.to_string(), &shown(&before), &body);
        Ok(Ok((body, change)))
    })
}

pub(super) fn find(api: &Api, call: &Call) -> Result<Delivery, Problem> {
    let missing = || Problem::not_found("delivery");
    let seq = DeliverySeq::parse(call.param(0)).ok_or_else(missing)?;
    let found = api.store.read(|tx| delivery_lists::by_seq(tx, &call.tenant, seq))?;
    found.ok_or_else(missing)
}

fn shown(delivery: &Delivery) -> Value {
    let Delivery {
        seq,
        tenant,
        event_id,
        of_webhook_event,
        event_type,
        aggregate_type,
        aggregate_id,
        key,
        subscription,
        state,
        due_at,
        lease_until,
        is_behind,
        attempt_count,
        counted_failures,
        last_class,
        run_no,
        finished_at,
        reason,
    } = delivery;
    let kind = if *of_webhook_event { "webhook_event" } else { "event" };
    json!({
        "id": seq.to_string(), "tenant": tenant, "of": kind, "event_id": event_id,
        "event_type": event_type, "aggregate_type": aggregate_type, "aggregate_id": aggregate_id, "key": key,
        "subscription": subscription, "state": state.as_str(),
        "due_at": due_at, "lease_until": lease_until, "is_behind": is_behind, "attempt_count": attempt_count, "counted_failures": counted_failures,
        "last_class": last_class.map(AttemptClass::as_str), "run_no": run_no,
        "finished_at": finished_at, "reason": reason,
    })
}

fn shown_attempt(delivery: DeliverySeq, attempt: &Attempt) -> Value {
    let Attempt {
        n,
        started_at,
        finished_at,
        url,
        class,
        counted,
        http_status,
        latency_ms,
        excerpt,
        failed_reason,
        key_id,
        span,
    } = attempt;
    json!({
        "id": format!("{delivery}.{n}"), "n": n, "started_at": started_at,
        "finished_at": finished_at, "url": url, "class": class.as_str(), "counted": counted,
        "http_status": http_status, "latency_ms": latency_ms, "excerpt": excerpt,
        "failed_reason": failed_reason, "key_id": key_id, "span": span,
    })
}

fn id_schema() -> Value {
    json!({ "type": "string", "pattern": "^(dlv_)?[0-9]{1,18}$" })
}

fn state_schema() -> Value {
    schema::words(State::ALL.map(State::as_str))
}

fn class_schema() -> Value {
    schema::words(AttemptClass::ALL.map(AttemptClass::as_str))
}

fn delivery_schema() -> Value {
    let due = schema::nullable(schema::time());
    schema::object(json!({
        "id": { "type": "string", "pattern": "^dlv_[0-9]+$" }, "tenant": schema::name(),
        "of": schema::words(["event", "webhook_event"]), "event_id": schema::text(),
        "event_type": schema::text(),
        "aggregate_type": schema::about(
            schema::nullable(schema::text()), "What it happened to; null for a webhook event."),
        "aggregate_id": schema::about(schema::nullable(schema::text()), "Which one."),
        "key": schema::about(
            schema::text(), "The event's own key, or the provider's id of the webhook event."),
        "subscription": schema::about(schema::name(), "The subscription's name."),
        "state": state_schema(),
        "due_at": schema::about(due, "When it is tried next; null when nothing is left to try."),
        "lease_until": schema::about(
            schema::nullable(schema::time()), "Until when a consumer has it; null when none has."),
        "is_behind": schema::about(schema::yes_or_no(), "Whether it waits for another one of its order."),
        "attempt_count": schema::about(schema::count(), "Attempts in all runs."),
        "counted_failures": schema::about(schema::count(), "Failed attempts of this run that count."),
        "last_class": schema::nullable(class_schema()),
        "run_no": schema::about(schema::count(), "How often it was begun: a retry of a dead one adds 1."),
        "finished_at": schema::nullable(schema::time()),
        "reason": schema::about(schema::nullable(schema::text()), "Why it ended, or why it waits."),
    }))
}

fn attempt_schema() -> Value {
    let excerpt = schema::nullable(schema::text());
    schema::object(json!({
        "id": { "type": "string", "pattern": "^dlv_[0-9]+\\.[0-9]+$" }, "n": schema::integer(1, 1 << 31),
        "started_at": schema::time(), "finished_at": schema::time(),
        "url": schema::about(schema::text(), "As called; empty when nothing was sent."),
        "class": class_schema(),
        "counted": schema::about(schema::yes_or_no(), "Whether it brings the end nearer."),
        "http_status": schema::nullable(schema::integer(100, 999)),
        "latency_ms": schema::count(),
        "excerpt": schema::about(excerpt, "The first 2,048 characters of the answer."),
        "failed_reason": schema::nullable(schema::text()),
        "key_id": schema::about(schema::nullable(schema::text()), "The credential it was signed with."),
        "span": schema::about(schema::nullable(schema::text()), "Its span in the trace."),
    }))
}
