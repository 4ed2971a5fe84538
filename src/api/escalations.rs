//! `/v1/escalations`: failures that a person must see.

use std::convert::identity;

use crate::api::prelude::*;
use crate::api::schema::{SomeText, TrueOrFalse};
use crate::model::escalation::{Escalation, Severity};
use crate::store::escalations::{self, Wanted};

const ID: Param =
    Param::path::<Uuid>("id", "The escalation's id.", "019c1447-5800-7000-8000-000000000001");
const ALL: Param =
    Param::query::<TrueOrFalse>("all", "`true`: those that are over as well.", "true");
const SEVERITY: Param =
    Param::query::<Severity>("severity", "Only those of this severity.", "critical");
const SUBJECT: Param = Param::query::<SomeText>(
    "subject",
    "Only those about this thing: its kind, a colon and its name.",
    "subscription:erp",
);

/// What a person must see.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Escalations",
    about: "Failures that a person must see. One that is open counts up instead of standing there twice. Alert \
            channels tell people of them.",
    routes: &[
        get("/v1/escalations", Read, Listed(list))
            .doc("listEscalations", "List the escalations", &[ALL, SEVERITY, SUBJECT, LIMIT, AFTER])
            .about("The newest first; only those that are open, unless `all` is `true`.")
            .returns(&[Returns::page::<Escalation>("A page of escalations.")]),
        get("/v1/escalations/{id}", Read, Now(show))
            .doc("getEscalation", "Show an escalation", &[ID])
            .about("Also one that is over.")
            .returns(&[Returns::json::<Escalation>(200, "The escalation.")]),
        post(
            "/v1/escalations/{id}/acknowledge",
            Operate,
            Act("escalation.acknowledge", acknowledge),
        )
        .doc("acknowledgeEscalation", "Acknowledge an escalation", &[ID])
        .about(
            "Says that somebody has seen it. It stays open until its cause is gone. One of the classes \
                 `drop.rejected`, `delivery.dead_lettered`, `credential.rotation_failed` and \
                 `tenant.over_limit` ends with it.",
        )
        .returns(&[Returns::json::<Escalation>(200, "The escalation as it is now.")]),
    ],
};

/// `GET /v1/escalations`
fn list(api: &Api, call: &Call) -> Result<Response, Problem> {
    let page = call.query.page()?;
    let all = call.query.word("all", |text| text.parse::<bool>().ok())?.unwrap_or(false);
    let wanted = Wanted {
        all,
        severity: call.query.one_of("severity", Severity::ALL, Severity::as_str)?,
        subject: call.query.get("subject"),
    };
    let read = |tx: &ReadTx<'_>| escalations::page(tx, page.newest(&call.tenant), wanted);
    let found = lists::read(api, call, read)?;
    Ok(page_of(&found, page, |found| found.seq, identity))
}

/// `GET /v1/escalations/{id}`
fn show(api: &Api, call: &Call) -> Result<Response, Problem> {
    let found = api.env.store.read(|tx| escalations::by_id(tx, &call.tenant, call.param(0)))?;
    let found = found.or_not_found("escalation")?;
    Ok(ok(&found))
}

/// `POST /v1/escalations/{id}/acknowledge`
fn acknowledge(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let tenant = call.tenant.clone();
    let id = call.param(0).to_owned();
    let by = if call.who.display.is_empty() { &call.who.id } else { &call.who.display };
    let by = by.clone();
    let now = api.env.clock.wall();
    change(api, call, move |tx| {
        let before = escalations::by_id(tx, &tenant, &id)?.or_not_found("escalation")?;
        if let Some(at) = before.acknowledged_at {
            let by = before.acknowledged_by.unwrap_or_default();
            let detail = format!("It was acknowledged at {at} by {by:?} already.");
            return Err(Problem::conflict(detail).into());
        }
        escalations::acknowledge(tx, &before, &by, now)?;
        let after = escalations::by_id(tx, &tenant, &id)?.or_not_found("escalation")?;
        Ok(Change::changed("escalation", &id, &before, &after))
    })
}
