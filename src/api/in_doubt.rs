//! Deliveries in doubt after a restore: counting them, and releasing or skipping many.
//!
//! Not here: listing them (`GET /v1/deliveries?state=in_doubt`), and deciding about one ([`super::lanes`]).

use crate::api::prelude::*;
use crate::base::id::DeliverySeq;
use crate::model::in_doubt::Fence;
use crate::model::token::Right::Box;
use crate::store::error::Error;
use crate::store::in_doubt::{self, InDoubtFilter};
use crate::store::{meta, settlement};

/// The most deliveries of one request, in one transaction; the client repeats it while `more` is true.
const ROWS_A_REQUEST: u32 = 2000;

const MOVED: &[Returns] = &[Returns::json::<Moved>(200, "How many were changed, or would be.")];

/// Deliveries in doubt.
pub(super) const RESOURCE: Resource = Resource {
    tag: "In doubt",
    about: "After a restore: deliveries that may have been sent before. They wait for a person.",
    routes: &[
        get("/v1/in-doubt", Read, Listed(show))
            .doc("getInDoubt", "Show what is in doubt since the latest restore", &[])
            .about(
                "When the file was restored, from what, and how many deliveries wait for a \
                 decision.",
            )
            .returns(&[Returns::json::<InDoubt>(200, "What is in doubt.")]),
        post("/v1/in-doubt/end", Box, Act("in_doubt.end", end))
            .doc("endInDoubt", "Stop holding new events for review", &[])
            .about(
                "Ends the time after a restore in which new events may be held. Deliveries \
                 that are in doubt already stay so.",
            )
            .returns(&[Returns::json::<InDoubt>(200, "What is in doubt.")]),
        post("/v1/deliveries/release", Operate, Act("delivery.release_many", release_many))
            .doc("releaseDeliveries", "Let deliveries in doubt be sent", &[])
            .about("At most 2,000 per request; repeat it while `more` is true.")
            .returns(MOVED)
            .body::<Selection>(r#"{"filter":{"subscription":"erp"},"dry_run":true}"#),
        post("/v1/deliveries/skip", Operate, Act("delivery.skip_many", skip_many))
            .doc("skipDeliveries", "End deliveries in doubt without sending them", &[])
            .about(
                "For deliveries that were sent before the restore. At most 2,000 per request; repeat \
                 it while `more` is true.",
            )
            .returns(MOVED)
            .body::<Selection>(r#"{"filter":{"subscription":"erp"},"dry_run":true}"#),
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
        Ok(Change::changed("in_doubt", "end", &before, &after))
    })
}

/// What is in doubt.
#[derive(Serialize, JsonSchema)]
struct InDoubt {
    /// How often the database was restored.
    epoch: u32,
    /// When it was restored last.
    restored_at: Option<Timestamp>,
    /// The backup it was restored from.
    restored_from: Option<String>,
    /// Events that happened after this time cannot have been sent before the restore.
    lost_at: Option<Timestamp>,
    /// Until when new events may be held; null: none are held.
    until: Option<Timestamp>,
    /// Deliveries that wait for a decision.
    #[serde(rename = "in_doubt")]
    count: u64,
}

fn shown(tx: &ReadTx<'_>, tenant: &str) -> Result<Value, Error> {
    let Fence { epoch, window } = meta::fence(tx)?;
    let (restored_at, restored_from) =
        meta::restored(tx)?.map(|restored| (restored.at, restored.from)).unzip();
    let (lost_at, until) = window.map(|window| (window.lost_at, window.until)).unzip();
    let count = in_doubt::count(tx, tenant, &InDoubtFilter::default())?;
    Ok(value(InDoubt { epoch, restored_at, restored_from, lost_at, until, count }))
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

/// The reason that a skipped delivery gets, if the person gives none.
pub(super) fn reason(call: &Call) -> String {
    format!("made before the restore, says {}", call.who.display)
}

/// The body of a decision about many.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Selection {
    /// Which ones; an empty object means all.
    filter: Selected,
    /// Only count them.
    #[serde(default)]
    dry_run: bool,
}

/// A filter of deliveries.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Selected {
    /// By name or id.
    subscription: Option<String>,
    event_type: Option<String>,
    /// Received at or after this time.
    since: Option<Timestamp>,
    /// Received before this time.
    until: Option<Timestamp>,
}

/// The result of a decision about many.
#[derive(Serialize, JsonSchema)]
struct Moved {
    count: u64,
    /// Whether more deliveries match: repeat the request.
    more: bool,
    dry_run: bool,
}

/// `POST /v1/deliveries/release`
pub(super) fn release_many(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    many(api, call, Decision::Release)
}

/// `POST /v1/deliveries/skip`
pub(super) fn skip_many(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    many(api, call, Decision::Skip(reason(call)))
}

/// Finds the deliveries with a reader. Then carries out the decision in one transaction with its audit event.
fn many(api: &Api, call: &Call, decision: Decision) -> Result<Audited<Value>, Problem> {
    let Selection { filter, dry_run } = call.json()?;
    let chosen = value(&filter);
    let Selected { subscription, event_type, since, until } = filter;
    let filter = InDoubtFilter { subscription, event_type, since, until };
    let tenant = &call.tenant;
    let (found, all) = api.env.store.snapshot(|tx| {
        let found = in_doubt::in_doubt(tx, tenant, &filter, ROWS_A_REQUEST)?;
        Ok((found, in_doubt::count(tx, tenant, &filter)?))
    })?;
    let now = api.env.clock.now();
    change(api, call, move |tx| {
        let mut count = all;
        let mut more = false;
        if !dry_run {
            count = decide(tx, &found, &decision, now)?;
            more = u64::try_from(found.len()).is_ok_and(|found| found < all);
        }
        let change =
            Change::changed("delivery", "in_doubt", &Value::Null, &Moved { count, more, dry_run });
        Ok(change.and("filter", chosen.clone()))
    })
}

/// Carries out the decision. Leaves out deliveries that another request has changed in the meantime.
fn decide(
    tx: &WriteTx<'_>,
    found: &[DeliverySeq],
    decision: &Decision,
    now: Timestamp,
) -> Result<u64, Error> {
    let mut moved = 0;
    for delivery in found {
        match tx.in_savepoint(|| decision.carry_out(tx, *delivery, now))? {
            Ok(()) => moved += 1,
            Err(Error::Changed(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(moved)
}
