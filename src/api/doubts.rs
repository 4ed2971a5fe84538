//! Deliveries in doubt after a restore: how many there are, and what a person decides about them.
//!
//! Not here: listing them (`GET /v1/deliveries?state=in_doubt`).

use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::Api;
use crate::api::call::{Call, ok};
use crate::api::deliveries::{ID, changed, find};
use crate::api::problem::Problem;
use crate::api::route::Answer::Now;
use crate::api::route::{Resource, Returns, doc, route, shape};
use crate::api::schema;
use crate::clock::Timestamp;
use crate::domain::doubt::Fence;
use crate::domain::token::Right;
use crate::http::message::Method::{Get, Post};
use crate::http::message::Response;
use crate::id::DeliverySeq;
use crate::store::doubts::{self, Filter};
use crate::store::error::Error;
use crate::store::tx::WriteTx;
use crate::store::writer::Queue;
use crate::store::{meta, settlement};

/// Deliveries moved in one transaction.
const ROWS_A_COMMIT: u32 = 500;
/// Deliveries moved by one request; the sender asks again while there is more.
const ROWS_A_REQUEST: u64 = 10_000;
/// Why a delivery that a person settled is skipped, unless they say.
const SETTLED: &str = "made before the restore";
/// Which deliveries this is for.
const RULE: &str = "only a delivery in doubt can be released or skipped";

const MOVED: &[Returns] = &[Returns::json(200, "How many were moved, or would be.", "Moved")];
const ONE: &[Returns] = &[Returns::json(200, "The delivery as it is now.", "Delivery")];

/// Deliveries in doubt.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Doubt",
    about: "After a restore: deliveries that may have been made before. They wait for a person.",
    routes: &[
        route(
            Get,
            "/v1/doubt",
            Some(Right::Read),
            Now(show),
            doc(
                "getDoubt",
                "What is in doubt since the latest restore",
                "When the file was restored, from what, and how many deliveries wait for a decision.",
                &[Returns::json(200, "What is in doubt.", "Doubt")],
            ),
        ),
        route(
            Post,
            "/v1/doubt/end",
            Some(Right::Box),
            Now(end),
            doc(
                "endDoubt",
                "Doubt nothing that comes in any more",
                "Ends the time after a restore in which events that come in may be held. What is in doubt \
                 already stays so.",
                &[Returns::json(200, "What is in doubt.", "Doubt")],
            ),
        ),
        route(
            Post,
            "/v1/deliveries/release",
            Some(Right::Operate),
            Now(release_many),
            doc(
                "releaseDeliveries",
                "Let deliveries in doubt be sent",
                "At most 10,000 a request; `more` says whether to ask again.",
                MOVED,
            )
            .body("Selection", selection_example),
        ),
        route(
            Post,
            "/v1/deliveries/skip",
            Some(Right::Operate),
            Now(skip_many),
            doc(
                "skipDeliveries",
                "End deliveries in doubt without sending them",
                "They were made before the restore. At most 10,000 a request; `more` says whether to ask \
                 again.",
                MOVED,
            )
            .body("Selection", selection_example),
        ),
        route(
            Post,
            "/v1/deliveries/{id}/release",
            Some(Right::Operate),
            Now(release),
            doc(
                "releaseDelivery",
                "Let a delivery in doubt be sent",
                "It keeps its `webhook-id`, so a consumer with a guard takes it once.",
                ONE,
            )
            .params(&[ID]),
        ),
        route(
            Post,
            "/v1/deliveries/{id}/skip",
            Some(Right::Operate),
            Now(skip),
            doc(
                "skipDelivery",
                "End a delivery in doubt without sending it",
                "It was made before the restore.",
                ONE,
            )
            .params(&[ID]),
        ),
    ],
    shapes: &[
        shape("Doubt", doubt_schema),
        shape("Selection", selection_schema),
        shape("Moved", moved_schema),
    ],
};

/// `GET /v1/doubt`
pub(super) fn show(api: &Api, call: &Call) -> Result<Response, Problem> {
    let (fence, restored, count) = api.store.snapshot(|tx| {
        let count = doubts::count(tx, &call.tenant, &Filter::default())?;
        Ok((meta::fence(tx)?, meta::restored(tx)?, count))
    })?;
    let Fence { epoch, window } = fence;
    Ok(ok(&json!({
        "epoch": epoch,
        "restored_at": restored.as_ref().map(|restored| restored.at),
        "restored_from": restored.map(|restored| restored.from),
        "lost_at": window.map(|window| window.lost_at),
        "until": window.map(|window| window.until),
        "in_doubt": count,
    })))
}

/// `POST /v1/doubt/end`
pub(super) fn end(api: &Api, call: &Call) -> Result<Response, Problem> {
    api.store.writer().write(Queue::Accept, |tx: &WriteTx<'_>| meta::set_window(tx, None))?;
    show(api, call)
}

/// What a person decides about a delivery in doubt.
#[derive(Clone, Debug)]
enum Decision {
    Release,
    Skip(String),
}

impl Decision {
    fn carry_out(
        &self,
        tx: &WriteTx<'_>,
        delivery: DeliverySeq,
        now: Timestamp,
    ) -> Result<(), Error> {
        match self {
            Self::Release => settlement::release(tx, delivery, now),
            Self::Skip(reason) => settlement::skip(tx, delivery, reason, now),
        }
    }
}

/// `POST /v1/deliveries/{id}/release`
pub(super) fn release(api: &Api, call: &Call) -> Result<Response, Problem> {
    one(api, call, Decision::Release)
}

/// `POST /v1/deliveries/{id}/skip`
pub(super) fn skip(api: &Api, call: &Call) -> Result<Response, Problem> {
    one(api, call, Decision::Skip(reason(call)))
}

fn reason(call: &Call) -> String {
    format!("{SETTLED}, says {}", call.actor)
}

fn one(api: &Api, call: &Call, decision: Decision) -> Result<Response, Problem> {
    let (seq, now) = (find(api, call)?.seq, api.clock.now());
    let run = move |tx: &WriteTx<'_>| decision.carry_out(tx, seq, now);
    changed(api, call, api.store.writer().write(Queue::Accept, run), RULE)
}

/// The body of a decision about many.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Selection {
    filter: Selected,
    #[serde(default)]
    dry_run: bool,
}

/// Which ones are meant.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Selected {
    subscription: Option<String>,
    event_type: Option<String>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
}

/// `POST /v1/deliveries/release`
pub(super) fn release_many(api: &Api, call: &Call) -> Result<Response, Problem> {
    many(api, call, &Decision::Release)
}

/// `POST /v1/deliveries/skip`
pub(super) fn skip_many(api: &Api, call: &Call) -> Result<Response, Problem> {
    many(api, call, &Decision::Skip(reason(call)))
}

fn many(api: &Api, call: &Call, decision: &Decision) -> Result<Response, Problem> {
    let Selection { filter, dry_run } = call.json()?;
    let Selected { subscription, event_type, since, until } = filter;
    let filter = Filter { subscription, event_type, since, until };
    if dry_run {
        let count = api.store.read(|tx| doubts::count(tx, &call.tenant, &filter))?;
        return Ok(ok(&json!({ "count": count, "more": false, "dry_run": true })));
    }
    let (mut after, mut count) = (DeliverySeq(0), 0_u64);
    while count < ROWS_A_REQUEST {
        let found = api
            .store
            .read(|tx| doubts::in_doubt(tx, &call.tenant, &filter, after, ROWS_A_COMMIT))?;
        let Some(last) = found.last() else {
            return Ok(ok(&json!({ "count": count, "more": false, "dry_run": false })));
        };
        after = *last;
        count += decide(api, found, decision.clone())?;
    }
    Ok(ok(&json!({ "count": count, "more": true, "dry_run": false })))
}

/// Carries out a decision in one transaction. Who decided the same meanwhile is no failure.
fn decide(api: &Api, found: Vec<DeliverySeq>, decision: Decision) -> Result<u64, Error> {
    let now = api.clock.now();
    api.store.writer().write(Queue::Accept, move |tx: &WriteTx<'_>| {
        let mut moved = 0;
        for delivery in &found {
            match decision.carry_out(tx, *delivery, now) {
                Ok(()) => moved += 1,
                Err(Error::Changed(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(moved)
    })
}

fn doubt_schema() -> Value {
    let time = || schema::nullable(schema::time());
    schema::object(json!({
        "epoch": schema::about(schema::count(), "How often the file was restored."),
        "restored_at": schema::about(time(), "When it was restored last."),
        "restored_from": schema::about(schema::nullable(schema::text()), "From which backup."),
        "lost_at": schema::about(time(), "What happened later cannot have been sent before."),
        "until": schema::about(time(), "Until when what comes in may be held; null: nothing is."),
        "in_doubt": schema::about(schema::count(), "Deliveries that wait for a decision."),
    }))
}

fn selection_schema() -> Value {
    let filter = schema::request(
        &[],
        json!({
            "subscription": schema::about(schema::nullable(schema::text()), "By name or id."),
            "event_type": schema::nullable(schema::text()),
            "since": schema::about(schema::nullable(schema::time()), "Received at or after."),
            "until": schema::about(schema::nullable(schema::time()), "Received before."),
        }),
    );
    schema::request(
        &["filter"],
        json!({
            "filter": schema::about(filter, "Which ones; an empty object means all."),
            "dry_run": schema::about(schema::yes_or_no(), "Only count them."),
        }),
    )
}

fn selection_example() -> Value {
    json!({ "filter": { "subscription": "erp" }, "dry_run": true })
}

fn moved_schema() -> Value {
    schema::object(json!({
        "count": schema::count(),
        "more": schema::about(schema::yes_or_no(), "Whether there is more: ask again."),
        "dry_run": schema::yes_or_no(),
    }))
}
