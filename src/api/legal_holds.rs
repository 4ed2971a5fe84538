//! `/v1/legal-holds`: events that are kept whatever the settings say. Only for admin tokens of the tenant `default`: a
//! hold of one tenant keeps files that have events of all.

use std::convert::identity;
use std::time::Duration;

use crate::api::archived;
use crate::api::call::page_found;
use crate::api::prelude::*;
use crate::api::schema::TypeName;
use crate::base::id;
use crate::model::name::Name;
use crate::model::token::Right::Box;
use crate::store::legal_holds::{self, Cover, LegalHold, MAX_OF_TENANT, Terms};
use crate::store::page::RowPage;
use crate::store::tenants;

/// How long the events that a new hold keeps are counted.
const MAX_COUNT_SPAN: Duration = Duration::from_millis(500);

const NAME: Param = Param::path::<NameText>("name", "The hold's name.", "audit-2026");
const TENANT: Param =
    Param::query::<NameText>("tenant", "The tenant; `default` if absent.", "acme");

/// Legal holds.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Legal holds",
    about: "Events that are kept whatever the settings say. While a hold is in force they are not archived, not \
            expunged, and no month of the archive with one is deleted. Only for admin tokens of the tenant `default`.",
    routes: &[
        get("/v1/legal-holds", Box, Listed(list))
            .doc("listLegalHolds", "List the legal holds of a tenant", &[TENANT, LIMIT, AFTER])
            .about("Those in force, the oldest first.")
            .returns(&[Returns::page::<LegalHold>("A page of legal holds.")]),
        post("/v1/legal-holds", Box, Act("legal_hold.create", create))
            .doc("createLegalHold", "Keep events", &[])
            .about(
                "Events that match all given conditions are kept, also those that come later. A hold that could keep \
                 nothing is refused with 422. The answer says how many events it keeps now.",
            )
            .returns(&[Returns::json::<Created>(201, "The hold, and what it keeps now.")])
            .body::<LegalHoldCreation>(
                r#"{"name":"audit-2026","reason":"Tax audit","event_type":"invoice.paid","since":"2026-01-01T00:00:00Z"}"#,
            ),
        delete("/v1/legal-holds/{name}", Box, Act("legal_hold.delete", remove))
            .doc("deleteLegalHold", "End a legal hold", &[NAME, TENANT])
            .about("From then on its events are archived and deleted as the settings say.")
            .returns(&[Returns::nothing("It has ended.")]),
    ],
};

/// `POST /v1/legal-holds`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LegalHoldCreation {
    name: Name,
    /// Whose events; `default` if absent.
    tenant: Option<Name>,
    /// Why they must be kept.
    reason: Is<Text<1, 500>>,
    /// The exact type; absent, as the other conditions: any.
    event_type: Option<Is<TypeName>>,
    /// The aggregate's type. With it or `aggregate_id`, no webhook event is meant.
    aggregate_type: Option<String>,
    /// The aggregate's id.
    aggregate_id: Option<String>,
    /// Received from this time on.
    since: Option<Timestamp>,
    /// Received before this time.
    until: Option<Timestamp>,
}

/// A new hold.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "LegalHoldCreated")]
struct Created {
    #[serde(flatten)]
    hold: LegalHold,
    /// What it keeps now, in the database and in the archive.
    covers: Cover,
}

/// Refuses a hold that no event can match.
fn check(terms: &Terms) -> Result<(), Problem> {
    let Terms { event_type, aggregate_type, aggregate_id, since, until, .. } = terms;
    let texts = [
        ("event_type", event_type),
        ("aggregate_type", aggregate_type),
        ("aggregate_id", aggregate_id),
    ];
    for (field, text) in texts {
        let Some(text) = text else { continue };
        let is_pattern = text == "*" || (field == "event_type" && text.contains('*'));
        let why = if text.is_empty() {
            "is empty"
        } else if is_pattern {
            "is a pattern"
        } else {
            continue;
        };
        return Err(Problem::unprocessable(format!(
            "{field} {why}, so the hold would keep nothing. It is compared as it is; leave it out for any."
        )));
    }
    match (since, until) {
        (Some(since), Some(until)) if since >= until => Err(Problem::unprocessable(format!(
            "until ({until}) is not after since ({since}), so the hold would keep nothing."
        ))),
        _ => Ok(()),
    }
}

/// Counts what a hold keeps in the database and in each month of the archive.
fn cover(api: &Api, tenant: &str, terms: &Terms) -> Result<Cover, Problem> {
    let end = api.env.clock.monotonic().saturating_add(MAX_COUNT_SPAN);
    let is_over = || api.env.clock.monotonic() >= end;
    let mut found = api.env.store.read(|tx| legal_holds::cover(tx, tenant, terms, &is_over))?;
    for of_month in archived::each(api)? {
        let more = of_month.env.store.read(|tx| legal_holds::cover(tx, tenant, terms, &is_over))?;
        found = found.and(more);
    }
    Ok(found)
}

fn tenant_of(call: &Call) -> String {
    call.query.text("tenant").unwrap_or_else(|| DEFAULT_TENANT.to_owned())
}

/// `GET /v1/legal-holds`
fn list(api: &Api, call: &Call) -> Result<Response, Problem> {
    let page = call.query.page()?;
    let tenant = tenant_of(call);
    let after = page.after.unwrap_or(0);
    let rows = lists::read(api, call, |tx| legal_holds::page(tx, &tenant, after, page.limit))?;
    Ok(page_found(&RowPage::of(rows, page.limit, |hold| hold.seq), identity))
}

/// `POST /v1/legal-holds`
fn create(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let given: LegalHoldCreation = call.json()?;
    let LegalHoldCreation { name, tenant, aggregate_type, aggregate_id, since, until, .. } = given;
    let reason = given.reason.0;
    let event_type = bare(given.event_type);
    let terms = Terms { reason, event_type, aggregate_type, aggregate_id, since, until };
    check(&terms)?;
    let tenant = tenant.map_or_else(|| DEFAULT_TENANT.to_owned(), |name| name.as_str().to_owned());
    // A batch of an expunge in the file of a month reads the holds and ends before this one is in force, or obeys it. A
    // month that is deleted is gone before what the hold keeps is counted.
    let _no_batch = api.flow.archiving.archive.write_alone();
    let covers = cover(api, &tenant, &terms)?;
    let now = api.env.clock.wall();
    let hold_id = id::uuid7_of(now, &["legal_hold", &tenant, name.as_str()]);
    change(api, call, move |tx| {
        if tenants::by_name(tx, &tenant)?.is_none() {
            return Err(Problem::unprocessable("There is no such tenant.").into());
        }
        if legal_holds::by_name(tx, &tenant, name.as_str())?.is_some() {
            let detail = format!("There is a legal hold named {:?} already.", name.as_str());
            return Err(Problem::conflict(detail).into());
        }
        if !legal_holds::insert(tx, &hold_id, &tenant, &name, &terms, now)? {
            let detail = format!("A tenant may have {MAX_OF_TENANT} legal holds.");
            return Err(Problem::unprocessable(detail).into());
        }
        let made = legal_holds::by_name(tx, &tenant, name.as_str())?.or_not_found("legal hold")?;
        let created = Created { hold: made, covers };
        Ok(Change::made("legal_hold", name.as_str(), &created.hold).answer(created))
    })
}

/// `DELETE /v1/legal-holds/{name}`
fn remove(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let tenant = tenant_of(call);
    let name = call.param(0).to_owned();
    let now = api.env.clock.wall();
    change(api, call, move |tx| {
        let hold = legal_holds::by_name(tx, &tenant, &name)?.or_not_found("legal hold")?;
        legal_holds::delete(tx, &tenant, &name, now)?;
        Ok(Change::gone("legal_hold", &name, &hold))
    })
}
