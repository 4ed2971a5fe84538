//! `/v1/escalations`: failures that a person must see.

use serde_json::{Value, json};

use crate::api::audited::{Audited, Change, change};
use crate::api::call::{Call, page_of};
use crate::api::problem::Problem;
use crate::api::route::Answer::Listed;
use crate::api::route::{Answer, Param, Resource, Returns, doc, route, shape};
use crate::api::schema::{self, AFTER, LIMIT};
use crate::api::{Api, lists};
use crate::http::message::Method::{Get, Post};
use crate::http::message::Response;
use crate::model::escalation::{Class, Escalation, NewEscalation};
use crate::model::token::Right;
use crate::store::escalations;

const ID: Param =
    Param::path("id", "The escalation's id.", schema::uuid, "019c1447-5800-7000-8000-000000000001");
const ALL: Param = Param::query("all", "`true`: those that are over as well.", yes_or_no, "true");

/// What a person must see.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Escalations",
    about: "Failures that a person must see. One that is open counts up instead of standing there twice. This \
            version sends them nowhere: they are shown here, in `/readyz?verbose` and in `/metrics`.",
    routes: &[
        route(
            Get,
            "/v1/escalations",
            Some(Right::Read),
            Listed(list),
            doc(
                "listEscalations",
                "List the escalations",
                "The newest first; only those that are open, unless `all` is `true`.",
                &[Returns::page("A page of escalations.", "Escalation")],
            )
            .params(&[ALL, LIMIT, AFTER]),
        ),
        route(
            Post,
            "/v1/escalations/{id}/acknowledge",
            Some(Right::Operate),
            Answer::Change("escalation.acknowledge", acknowledge),
            doc(
                "acknowledgeEscalation",
                "Acknowledge an escalation",
                "Says that somebody has seen it. It stays open until its cause is gone; one of the class \
                 `drop.rejected` ends with it.",
                &[Returns::json(200, "The escalation as it is now.", "Escalation")],
            )
            .params(&[ID]),
        ),
    ],
    shapes: &[shape("Escalation", escalation_schema)],
};

/// `GET /v1/escalations`
fn list(api: &Api, call: &Call) -> Result<Response, Problem> {
    let page = call.query.page()?;
    let all = call.query.word("all", |text| text.parse::<bool>().ok())?.unwrap_or(false);
    let found = lists::read(api, call, |tx| escalations::page(tx, page.newest(&call.tenant), all))?;
    Ok(page_of(&found, page, |found| found.seq, shown))
}

/// `POST /v1/escalations/{id}/acknowledge`
fn acknowledge(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let (tenant, id) = (call.tenant.clone(), call.param(0).to_owned());
    let by = if call.who.display.is_empty() { &call.who.id } else { &call.who.display };
    let (by, now) = (by.clone(), api.clock.wall());
    change(api, call, move |tx| {
        let missing = || Ok(Err(Problem::not_found("escalation")));
        let Some(before) = escalations::by_id(tx, &tenant, &id)? else { return missing() };
        if let Some(at) = before.acknowledged_at {
            let by = before.acknowledged_by.unwrap_or_default();
            let detail = format!("It was acknowledged at {at} by {by:?} already.");
            return Ok(Err(Problem::conflict(detail)));
        }
        escalations::acknowledge(tx, &before, &by, now)?;
        let Some(after) = escalations::by_id(tx, &tenant, &id)? else { return missing() };
        let body = shown(&after);
        let change = Change::changed("escalation", &id, &shown(&before), &body);
        Ok(Ok((body, change)))
    })
}

fn shown(escalation: &Escalation) -> Value {
    let Escalation {
        seq: _,
        new,
        first_at,
        last_at,
        count,
        acknowledged_at,
        acknowledged_by,
        resolved_at,
    } = escalation;
    let NewEscalation { id, tenant, class, subject, detail } = new;
    json!({
        "id": id, "tenant": tenant, "class": class.as_str(), "subject": subject, "detail": detail,
        "first_at": first_at, "last_at": last_at, "count": count,
        "acknowledged_at": acknowledged_at, "acknowledged_by": acknowledged_by,
        "resolved_at": resolved_at,
    })
}

fn yes_or_no() -> Value {
    schema::words(["true", "false"])
}

fn escalation_schema() -> Value {
    let or_null = schema::nullable;
    schema::object(json!({
        "id": schema::uuid(), "tenant": schema::name(),
        "class": schema::about(schema::words(Class::ALL.map(Class::as_str)), "What happened."),
        "subject": schema::about(schema::text(), "To what, such as `source:erp`."),
        "detail": schema::about(schema::text(), "What was seen last, and what to do."),
        "first_at": schema::time(), "last_at": schema::time(), "count": schema::count(),
        "acknowledged_at": or_null(schema::time()), "acknowledged_by": or_null(schema::text()),
        "resolved_at": schema::about(
            or_null(schema::time()), "When it was over; null while it is open."),
    }))
}
