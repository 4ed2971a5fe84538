//! `/v1/audit-events`: lists who changed what. [`crate::api::audited`] writes the events.

use serde_json::value::RawValue;

use crate::api::archived::{self, audit_months};
use crate::api::call::page_found;
use crate::api::kind::Kind;
use crate::api::prelude::*;
use crate::api::route::Route;
use crate::api::routes;
use crate::api::schema::{AnyObject, Sha256};

use crate::archive::audit::may_have;
use crate::model::audit::chain::Report;
use crate::model::audit::{AuditEvent, Hash, Outcome};
use crate::store::audit_events::{self, AuditEventFilter, ResourceName};
use crate::store::meta;
use crate::store::page::{Newest, RowPage, Span};
use crate::store::tx::ReadTx;

/// The audit trail.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Audit events",
    about: "Who changed what, from where, and what was refused. Each event has the hash of the one before it; \
            `oncebox audit verify` checks the chain.",
    routes: &[
        get("/v1/audit-events", Admin, Listed(list))
        .doc(
            "listAuditEvents",
            "List the audit events",
            &[
                ACTOR,
                ACTION,
                RESOURCE_OF,
                RESULT,
                CORRELATION_ID,
                AGGREGATE_TYPE,
                AGGREGATE_ID,
                SINCE,
                UNTIL,
                LIMIT,
                AFTER,
            ],
        )
        .about("The newest first. Webhooks and published events are not audited.")
        .problems(&[Kind::Unprocessable])
        .returns(&[Returns::page::<AuditEventAnswer<'_>>("A page of audit events.")]),
        get("/v1/audit-events/{seq}", Admin, Now(show))
            .doc("getAuditEvent", "Show an audit event", &[SEQ])
            .about("As the list shows it.")
            .returns(&[Returns::json::<AuditEventAnswer<'_>>(200, "The audit event.")]),
        get("/v1/audit-events/verification", Admin, Listed(verify))
            .doc("verifyAuditEvents", "Verify the newest audit events", &[])
            .about(
                "Checks the hashes of the newest 1,000 audit events in the database, of all tenants: they are one chain. \
                 `oncebox audit verify` checks all of it, with the files of earlier months.",
            )
            .returns(&[Returns::json::<Verification>(200, "Whether they are intact.")])],
};

/// The most audit events that are verified at once.
const MAX_VERIFIED: u32 = 1_000;
/// The most files of months that a page searches.
const MAX_FILES: u32 = 12;
/// Events of an aggregate and deliveries, from which on no earlier month is searched for more.
const MAX_RESOURCES: usize = 1_000;
/// The most breaks that are shown.
const MAX_BREAKS: usize = 10;

const SEQ: Param =
    Param::path::<Whole<1, 9_223_372_036_854_775_807>>("seq", "The audit event's number.", "17");
const ACTOR: Param = Param::query::<SomeText>(
    "actor",
    "Only those of this actor: a token's id or name, or `token`, `cli`, `system`, `anonymous`.",
    "system",
);
const ACTION: Param = Param::query::<SomeText>(
    "action",
    "Only this action; the part before the dot means all actions on that type of resource.",
    "subscription.pause",
);
const RESOURCE_OF: Param = Param::query::<SomeText>(
    "resource",
    "Only those about the resource of this id or name, or about all resources of this type. Refused calls are found by both \
     its id and its name.",
    "subscription",
);
const RESULT: Param = Param::query::<Outcome>("result", "Only those with this result.", "");
const CORRELATION_ID: Param = Param::query::<SomeText>(
    "correlation_id",
    "Only those of calls with this `X-Correlation-Id`, else with this trace id.",
    "ticket-17",
)
.quick();
const AGGREGATE_TYPE: Param = Param::query::<SomeText>(
    "aggregate_type",
    "With `aggregate_id`: the type of that thing.",
    "invoice",
);
const AGGREGATE_ID: Param = Param::query::<SomeText>(
    "aggregate_id",
    "Only those about the events of this thing and their deliveries, the newest 1,000 of each month at most.",
    "4711",
)
.quick();

/// `GET /v1/audit-events`, newest first.
pub(super) fn list(api: &Api, call: &Call) -> Result<Response, Problem> {
    let query = &call.query;
    let page = call.query.page()?;
    let mut filter = AuditEventFilter {
        actor: query.text("actor"),
        action: query.text("action"),
        resource: query.text("resource"),
        outcome: query.word("result", |text| Outcome::parse(&text.to_ascii_uppercase()))?,
        correlation_id: query.text("correlation_id"),
        resources: None,
        done: query.span()?,
    };
    let kind = query.text("aggregate_type");
    let id = query.text("aggregate_id");
    if kind.is_some() && id.is_none() {
        return Err(Problem::unprocessable("aggregate_type needs aggregate_id."));
    }
    if let Some(id) = id {
        filter.resources = Some(resources_of(api, call, kind.as_deref(), &id)?);
    } else if let Some(name) = filter.resource.as_ref().filter(|name| !is_type(name)) {
        let names = api.env.store.read(|tx| audit_events::names_of(tx, &call.tenant, name))?;
        if let Some(names) = names {
            filter.resources = Some(serde_json::to_string(&names).unwrap_or_default());
            filter.resource = None;
        }
    }
    let found = everywhere(api, call, page.newest(&call.tenant), &filter)?;
    Ok(page_found(&found, AuditEventAnswer::new))
}

/// Whether it is a type of resources that calls change.
fn is_type(name: &str) -> bool {
    let mut actions = routes().filter_map(Route::action);
    actions.any(|action| action.split('.').next() == Some(name))
}

/// The events of an aggregate and their deliveries, wherever they are, until there are enough; as JSON.
fn resources_of(api: &Api, call: &Call, kind: Option<&str>, id: &str) -> Result<String, Problem> {
    let end = lists::end(api);
    let of = &call.tenant;
    let read = |tx: &ReadTx<'_>| audit_events::resources_of(tx, of, kind, id);
    let mut found = lists::read_until(api, call, end, read)?;
    for of_month in archived::each(api)? {
        if found.len() >= MAX_RESOURCES {
            break;
        }
        found.extend(lists::read_until(&of_month, call, end, read)?);
    }
    let named = |name| ResourceName { name, kind: None };
    let found: Vec<ResourceName> = found.into_iter().map(named).collect();
    Ok(serde_json::to_string(&found).unwrap_or_default())
}

/// A page from the database, then from the files of the months before it, until it is full.
fn everywhere(
    api: &Api,
    call: &Call,
    mut newest: Newest<'_>,
    filter: &AuditEventFilter,
) -> Result<RowPage<AuditEvent>, Problem> {
    let end = lists::end(api);
    let (mut found, start) = lists::read_until(api, call, end, |tx| {
        Ok((audit_events::page(tx, newest, filter)?, meta::audit_start(tx)?))
    })?;
    let (Some(mut start), Span { since, until }) = (start, filter.done) else { return Ok(found) };
    let mut searched = 0;
    for of_month in audit_months(api, |month| may_have(month, since, until))? {
        // Rows after the start of what was read count there, and are on this page already.
        newest.before = newest.before.min(start.seq.saturating_add(1));
        if found.next.is_some() {
            break;
        }
        let first = of_month.env.store.read(meta::audit_start)?;
        let Some(first) = first.filter(|first| first.seq.saturating_add(1) < newest.before) else {
            continue;
        };
        start = first;
        if searched == MAX_FILES {
            found.next = Some(newest.before);
            break;
        }
        searched += 1;
        let rows = u32::try_from(found.rows.len()).unwrap_or(u32::MAX);
        let rest = Newest { limit: newest.limit.saturating_sub(rows), ..newest };
        let more =
            lists::read_until(&of_month, call, end, |tx| audit_events::page(tx, rest, filter))?;
        found.rows.extend(more.rows);
        found.next = more.next;
    }
    Ok(found)
}

/// `GET /v1/audit-events/{seq}`
fn show(api: &Api, call: &Call) -> Result<Response, Problem> {
    let seq = call.param(0).parse().ok().or_not_found("audit event")?;
    let by_seq = |api: &Api| api.env.store.read(|tx| audit_events::by_seq(tx, &call.tenant, seq));
    let mut found = by_seq(api)?;
    if found.is_none() && api.env.store.read(audit_events::start)?.seq >= seq {
        for of_month in audit_months(api, |_| true)? {
            if of_month.env.store.read(meta::audit_start)?.is_some_and(|first| first.seq < seq) {
                found = by_seq(&of_month)?;
                break;
            }
        }
    }
    Ok(ok(&AuditEventAnswer::new(&found.or_not_found("audit event")?)))
}

/// Whether the newest audit events are intact.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "AuditVerification")]
struct Verification {
    /// Whether there is no break.
    ok: bool,
    /// How many audit events were checked.
    rows: u64,
    /// The first one.
    from_seq: i64,
    /// The last one.
    to_seq: i64,
    /// At most ten breaks, in words.
    breaks: Vec<String>,
}

/// `GET /v1/audit-events/verification`
fn verify(api: &Api, call: &Call) -> Result<Response, Problem> {
    let report = lists::read(api, call, |tx| audit_events::verify_newest(tx, MAX_VERIFIED))?;
    let Report { rows, start, end, breaks } = report;
    let ok_so_far = breaks.is_empty();
    let from_seq = start.seq.saturating_add(1);
    let breaks = breaks.iter().take(MAX_BREAKS).map(ToString::to_string).collect();
    Ok(ok(&Verification { ok: ok_so_far, rows, from_seq, to_seq: end.seq, breaks }))
}

values! {
    /// The kinds of actors.
    ActorKind = { "type": "string", "enum": ["token", "user", "cli", "system", "anonymous"] }
}

/// An audit event.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "AuditEvent")]
struct AuditEventAnswer<'a> {
    seq: Is<u64, i64>,
    at: Timestamp,
    actor: ActorAnswer<'a>,
    resource: ResourceAnswer<'a>,
    /// The fields that changed, each with `before` and `after`; no secrets.
    #[schemars(with = "AnyObject")]
    changes: Option<&'a RawValue>,
    #[serde(flatten, with = "AuditEventFields")]
    kept: &'a AuditEvent,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Actor")]
struct ActorAnswer<'a> {
    r#type: Is<ActorKind, &'a str>,
    id: &'a str,
    display: &'a str,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "AuditedResource")]
struct ResourceAnswer<'a> {
    r#type: &'a str,
    id: Option<&'a str>,
}

#[derive(Serialize, JsonSchema)]
#[serde(remote = "AuditEvent")]
struct AuditEventFields {
    tenant: String,
    address: Option<String>,
    user_agent: Option<String>,
    action: String,
    #[schemars(with = "Outcome")]
    result: String,
    request_id: Option<String>,
    correlation_id: Option<String>,
    method: Option<String>,
    path: Option<String>,
    #[schemars(with = "Option<Whole<100, 599>>")]
    status: Option<i64>,
    #[schemars(with = "Sha256")]
    previous_hash: Hash,
    #[schemars(with = "Sha256")]
    hash: Hash,
}

impl<'a> AuditEventAnswer<'a> {
    fn new(kept: &'a AuditEvent) -> Self {
        Self {
            seq: kept.seq.into(),
            at: Timestamp::from_ms(kept.at),
            actor: ActorAnswer {
                r#type: kept.actor_type.as_str().into(),
                id: &kept.actor_id,
                display: &kept.actor_display,
            },
            resource: ResourceAnswer {
                r#type: &kept.resource_type,
                id: kept.resource_id.as_deref(),
            },
            changes: serde_json::from_str(&kept.changes).ok(),
            kept,
        }
    }
}
