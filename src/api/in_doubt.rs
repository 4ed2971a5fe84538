//! Deliveries in doubt after a restore: how many there are, and what a person decides about them.
//!
//! Not here: listing them (`GET /v1/deliveries?state=in_doubt`).

use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::audited::{Audited, Change, change};
use crate::api::call::{Call, ok};
use crate::api::deliveries::{ID, act};
use crate::api::problem::Problem;
use crate::api::route::Answer::{self, Listed};
use crate::api::route::{Resource, Returns, doc, route, shape};
use crate::api::schema;
use crate::api::{Api, lists};
use crate::base::clock::Timestamp;
use crate::base::id::DeliverySeq;
use crate::http::message::Method::{Get, Post};
use crate::http::message::Response;
use crate::model::in_doubt::Fence;
use crate::model::token::Right;
use crate::store::error::Error;
use crate::store::in_doubt::{self, Filter};
use crate::store::tx::{ReadTx, WriteTx};
use crate::store::{meta, settlement};

/// Deliveries moved by one request, in one transaction; the sender asks again while there is more.
const ROWS_A_REQUEST: u32 = 2000;
/// Why a delivery that a person settled is skipped, unless they say.
const SETTLED: &str = "made before the restore";
/// Which deliveries this is for.
const RULE: &str = "only a delivery in doubt can be released or skipped";

const MOVED: &[Returns] = &[Returns::json(200, "How many were moved, or would be.", "Moved")];
const ONE: &[Returns] = &[Returns::json(200, "The delivery as it is now.", "Delivery")];

/// Deliveries in doubt.
pub(super) const RESOURCE: Resource = Resource {
    tag: "InDoubt",
    about: "After a restore: deliveries that may have been made before. They wait for a person.",
    routes: &[
        route(
            Get,
            "/v1/in-doubt",
            Some(Right::Read),
            Listed(show),
            doc(
                "getDoubt",
                "What is in doubt since the latest restore",
                "When the file was restored, from what, and how many deliveries wait for a decision.",
                &[Returns::json(200, "What is in doubt.", "InDoubt")],
            ),
        ),
        route(
            Post,
            "/v1/in-doubt/end",
            Some(Right::Box),
            Answer::Change("in_doubt.end", end),
            doc(
                "endDoubt",
                "Doubt nothing that comes in any more",
                "Ends the time after a restore in which events that come in may be held. What is in doubt \
                 already stays so.",
                &[Returns::json(200, "What is in doubt.", "InDoubt")],
            ),
        ),
        route(
            Post,
            "/v1/deliveries/release",
            Some(Right::Operate),
            Answer::Change("delivery.release_many", release_many),
            doc(
                "releaseDeliveries",
                "Let deliveries in doubt be sent",
                "At most 2,000 a request; `more` says whether to ask again.",
                MOVED,
            )
            .body("Selection", selection_example),
        ),
        route(
            Post,
            "/v1/deliveries/skip",
            Some(Right::Operate),
            Answer::Change("delivery.skip_many", skip_many),
            doc(
                "skipDeliveries",
                "End deliveries in doubt without sending them",
                "They were made before the restore. At most 2,000 a request; `more` says whether to ask \
                 again.",
                MOVED,
            )
            .body("Selection", selection_example),
        ),
        route(
            Post,
            "/v1/deliveries/{id}/release",
            Some(Right::Operate),
            Answer::Change("delivery.release", release),
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
            Answer::Change("delivery.skip", skip),
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
        shape("InDoubt", in_doubt_schema),
        shape("Selection", selection_schema),
        shape("Moved", moved_schema),
    ],
};

/// `GET /v1/in-doubt`
pub(super) fn show(api: &Api, call: &Call) -> Result<Response, Problem> {
    Ok(ok(&lists::read(api, call, |tx| shown(tx, &call.tenant))?))
}

/// `POST /v1/in-doubt/end`
pub(super) fn end(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let tenant = call.tenant.clone();
    change(api, call, move |tx| {
        let before = shown(tx, &tenant)?;
        meta::set_window(tx, None)?;
        let after = shown(tx, &tenant)?;
        let change = Change::changed("doubt", "end", &before, &after);
        Ok(Ok((after, change)))
    })
}

fn shown(tx: &ReadTx<'_>, tenant: &str) -> Result<Value, Error> {
    let Fence { epoch, window } = meta::fence(tx)?;
    let restored = meta::restored(tx)?;
    Ok(json!({
        "epoch": epoch,
        "restored_at": restored.as_ref().map(|restored| restored.at),
        "restored_from": restored.map(|restored| restored.from),
        "lost_at": window.map(|window| window.lost_at),
        "until": window.map(|window| window.until),
        "in_doubt": in_doubt::count(tx, tenant, &Filter::default())?,
    }))
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
pub(super) fn release(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    one(api, call, Decision::Release)
}

/// `POST /v1/deliveries/{id}/skip`
pub(super) fn skip(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    one(api, call, Decision::Skip(reason(call)))
}

fn reason(call: &Call) -> String {
    format!("{SETTLED}, says {}", call.who.display)
}

fn one(api: &Api, call: &Call, decision: Decision) -> Result<Audited<Value>, Problem> {
    let now = api.clock.now();
    act(api, call, RULE, move |tx, seq| decision.carry_out(tx, seq, now))
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
pub(super) fn release_many(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    many(api, call, Decision::Release)
}

/// `POST /v1/deliveries/skip`
pub(super) fn skip_many(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    many(api, call, Decision::Skip(reason(call)))
}

/// Finds them on a reader, and carries out the decision in one transaction with its audit event.
fn many(api: &Api, call: &Call, decision: Decision) -> Result<Audited<Value>, Problem> {
    let Selection { filter, dry_run } = call.json()?;
    let chosen = json!({
        "subscription": filter.subscription, "event_type": filter.event_type,
        "since": filter.since, "until": filter.until,
    });
    let Selected { subscription, event_type, since, until } = filter;
    let filter = Filter { subscription, event_type, since, until };
    let tenant = &call.tenant;
    let (found, all) = api.store.snapshot(|tx| {
        let found = in_doubt::in_doubt(tx, tenant, &filter, ROWS_A_REQUEST)?;
        Ok((found, in_doubt::count(tx, tenant, &filter)?))
    })?;
    let now = api.clock.now();
    change(api, call, move |tx| {
        let (mut count, mut more) = (all, false);
        if !dry_run {
            count = decide(tx, &found, &decision, now)?;
            more = u64::try_from(found.len()).is_ok_and(|found| found < all);
        }
        let body = json!({ "count": count, "more": more, "dry_run": dry_run });
        let change = Change::changed("delivery", "in_doubt", &Value::Null, &body);
        Ok(Ok((body, change.and("filter", chosen.clone()))))
    })
}

/// Who decided the same meanwhile is no failure.
fn decide(
    tx: &WriteTx<'_>,
    found: &[DeliverySeq],
    decision: &Decision,
    now: Timestamp,
) -> Result<u64, Error> {
    let mut moved = 0;
    for delivery in found {
        match tx.apart(|| decision.carry_out(tx, *delivery, now))? {
            Ok(()) => moved += 1,
            Err(Error::Changed(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(moved)
}

fn in_doubt_schema() -> Value {
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
