//! `/v1/audit-events`: who changed what. Looked at here; written by [`crate::api::audited`].

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::api::Api;
use crate::api::call::{Call, page_of};
use crate::api::problem::Problem;
use crate::clock::Timestamp;
use crate::domain::audit::{AuditEvent, Outcome};
use crate::http::message::Response;
use crate::store::audit_events::{self, Filter};

/// `GET /v1/audit-events`, newest first.
pub(super) fn list(api: &Api, call: &Call) -> Result<Response, Problem> {
    let query = call.query(&["actor", "action", "resource", "result", "since", "until"])?;
    let page = query.page()?;
    let filter = Filter {
        actor: query.text("actor"),
        action: query.text("action"),
        resource: query.text("resource"),
        outcome: query.word("result", Outcome::parse)?,
        since: query.time("since")?,
        until: query.time("until")?,
    };
    let before = page.after.unwrap_or(i64::MAX);
    let found =
        api.store.read(|tx| audit_events::page(tx, &call.tenant, &filter, before, page.limit))?;
    Ok(page_of(&found, page, |event| event.seq, shown))
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
