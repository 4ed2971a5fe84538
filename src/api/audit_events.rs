//! `/v1/audit-events`: who changed what. Looked at here; written by [`crate::api::audited`].

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::api::call::{Call, page_found};
use crate::api::problem::Problem;
use crate::api::route::Answer::Listed;
use crate::api::route::{Param, Resource, Returns, doc, route, shape};
use crate::api::schema::{self, AFTER, LIMIT, SINCE, UNTIL};
use crate::api::{Api, lists};
use crate::base::clock::Timestamp;
use crate::http::message::Method::Get;
use crate::http::message::Response;
use crate::model::audit::{AuditEvent, Outcome};
use crate::model::token::Right;
use crate::store::audit_events::{self, Filter};

/// Who changed what.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Audit events",
    about: "Who changed what, from where, and what was refused. Each names the hash of the one before it; \
            `oncebox audit verify` checks the chain.",
    routes: &[route(
        Get,
        "/v1/audit-events",
        Some(Right::Admin),
        Listed(list),
        doc(
            "listAuditEvents",
            "List the audit events",
            "The newest first. What providers and publishers send makes none.",
            &[Returns::page("A page of audit events.", "AuditEvent")],
        )
        .params(&[ACTOR, ACTION, RESOURCE_OF, RESULT, SINCE, UNTIL, LIMIT, AFTER]),
    )],
    shapes: &[shape("AuditEvent", schema)],
};

const ACTOR: Param = Param::query(
    "actor",
    "Only by this one: a token's id or name, or `token`, `cli`, `system`, `anonymous`.",
    schema::text,
    "system",
);
const ACTION: Param = Param::query(
    "action",
    "Only this action, or with the part before the dot everything done to such things.",
    schema::text,
    "subscription.pause",
);
const RESOURCE_OF: Param = Param::query(
    "resource",
    "Only about the thing of this id or kind.",
    schema::text,
    "subscription",
);
const RESULT: Param = Param::query("result", "Only what came to this.", result_schema, "");

/// `GET /v1/audit-events`, newest first.
pub(super) fn list(api: &Api, call: &Call) -> Result<Response, Problem> {
    let (query, page) = (&call.query, call.query.page()?);
    let filter = Filter {
        actor: query.text("actor"),
        action: query.text("action"),
        resource: query.text("resource"),
        outcome: query.word("result", Outcome::parse)?,
        done: query.span()?,
    };
    let newest = page.newest(&call.tenant);
    let found = lists::read(api, call, |tx| audit_events::page(tx, newest, &filter))?;
    Ok(page_found(&found, shown))
}

fn shown(event: &AuditEvent) -> Value {
    let AuditEvent {
        seq,
        at,
        tenant,
        actor_type,
        actor_id,
        actor_display,
        address,
        user_agent,
        action,
        resource_type,
        resource_id,
        result,
        request_id,
        correlation_id,
        method,
        path,
        status,
        changes,
        previous_hash,
        hash,
    } = event;
    let changes: Option<&RawValue> = serde_json::from_str(changes).ok();
    json!({
        "seq": seq, "at": Timestamp::from_ms(*at), "tenant": tenant,
        "actor": { "type": actor_type, "id": actor_id, "display": actor_display },
        "address": address, "user_agent": user_agent, "action": action,
        "resource": { "type": resource_type, "id": resource_id }, "result": result,
        "request_id": request_id, "correlation_id": correlation_id, "method": method, "path": path,
        "status": status, "changes": changes, "previous_hash": previous_hash, "hash": hash,
    })
}

fn result_schema() -> Value {
    schema::words(Outcome::ALL.map(Outcome::as_str))
}

fn schema() -> Value {
    let hash = || json!({ "type": "string", "pattern": "^[0-9a-f]{64}$" });
    let maybe = || schema::nullable(schema::text());
    schema::object(json!({
        "seq": schema::count(),
        "at": schema::time(),
        "tenant": schema::text(),
        "actor": schema::object(json!({
            "type": schema::words(["token", "cli", "system", "anonymous"]),
            "id": schema::text(),
            "display": schema::text(),
        })),
        "address": maybe(),
        "user_agent": maybe(),
        "action": schema::text(),
        "resource": schema::object(json!({ "type": schema::text(), "id": maybe() })),
        "result": result_schema(),
        "request_id": maybe(),
        "correlation_id": maybe(),
        "method": maybe(),
        "path": maybe(),
        "status": schema::nullable(schema::integer(100, 599)),
        "changes": schema::about(
            json!({ "type": "object" }),
            "The fields that changed, each with `before` and `after`; no secrets.",
        ),
        "previous_hash": hash(),
        "hash": hash(),
    }))
}
