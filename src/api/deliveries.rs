//! `/v1/deliveries` and `/v1/dead-letters`: looking at the units of work, and sending them again.

use serde_json::{Value, json};

use crate::api::Api;
use crate::api::audited::{Audited, Change, change};
use crate::api::call::{Call, ok, page_of};
use crate::api::problem::Problem;
use crate::domain::delivery::{Attempt, Delivery, State};
use crate::domain::failure::Class;
use crate::http::message::Response;
use crate::id::DeliverySeq;
use crate::store::error::{Error, Result as StoreResult};
use crate::store::tx::WriteTx;
use crate::store::{attempts, delivery_lists, settlement};

/// Which deliveries a person can send again.
const RETRY_RULE: &str = "only a delivery that waits or was given up can be sent again, and only while its subscription exists";
/// Which deliveries a person can stop.
const CANCEL_RULE: &str = "only a delivery that waits or is dead can be cancelled";

/// `GET /v1/deliveries`
pub(super) fn list(api: &Api, call: &Call) -> Result<Response, Problem> {
    let query = call.query(&["state", "subscription", "event_id"])?;
    let filter = delivery_lists::Filter {
        state: query.word("state", State::parse)?,
        subscription: query.text("subscription"),
        event_id: query.text("event_id"),
    };
    page(api, call, &filter)
}

/// `GET /v1/dead-letters`
pub(super) fn list_dead(api: &Api, call: &Call) -> Result<Response, Problem> {
    let query = call.query(&["subscription"])?;
    let filter = delivery_lists::Filter {
        state: Some(State::DeadLetter),
        subscription: query.text("subscription"),
        event_id: None,
    };
    page(api, call, &filter)
}

fn page(api: &Api, call: &Call, filter: &delivery_lists::Filter) -> Result<Response, Problem> {
    let page = call.query(&["state", "subscription", "event_id"])?.page()?;
    let before = page.after.unwrap_or(i64::MAX);
    let found =
        api.store.read(|tx| delivery_lists::page(tx, &call.tenant, filter, before, page.limit))?;
    Ok(page_of(&found, page, |delivery| delivery.seq.0, shown))
}

/// `GET /v1/deliveries/{id}`
pub(super) fn show(api: &Api, call: &Call) -> Result<Response, Problem> {
    Ok(ok(&shown(&find(api, call)?)))
}

/// `GET /v1/deliveries/{id}/attempts`
pub(super) fn list_attempts(api: &Api, call: &Call) -> Result<Response, Problem> {
    let delivery = find(api, call)?;
    let page = call.query(&[])?.page()?;
    let after = page.after.and_then(|after| u32::try_from(after).ok()).unwrap_or(0);
    let found = api.store.read(|tx| attempts::of(tx, delivery.seq, after, page.limit))?;
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
fn act(
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
        match run(tx, seq) {
            // The statement found the row in another state, and changed nothing.
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

fn find(api: &Api, call: &Call) -> Result<Delivery, Problem> {
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
        subscription,
        state,
        due_at,
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
        "event_type": event_type, "subscription": subscription, "state": state.as_str(),
        "due_at": due_at, "attempt_count": attempt_count, "counted_failures": counted_failures,
        "last_class": last_class.map(Class::as_str), "run_no": run_no,
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
