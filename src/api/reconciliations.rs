//! `/v1/providers/{name}/reconciliations`: comparisons of a provider's list with the webhooks that came.

use std::borrow::Cow;
use std::time::Duration;

use crate::api::call::page_found;
use crate::api::list_sources;
use crate::api::prelude::*;
use crate::api::providers;
use crate::base::id;
use crate::model::name::Name;
use crate::sources::reconciliation::{
    MAX_PERIOD, NewRun, ReconciledCounts, ReconciledDay, Run, RunState, YOUNG, store,
};

const ID: Param =
    Param::path::<Uuid>("id", "The reconciliation's id.", "019c1447-5800-7000-8000-000000000001");

/// Comparisons with the lists of providers.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Reconciliations",
    about: "Comparisons of a provider's own list with the webhooks that came: what was sent, received, missing and taken in.",
    routes: &[
        get("/v1/providers/{name}/reconciliations", Read, Listed(list))
            .doc("listReconciliations", "List the reconciliations of a provider", &[providers::NAME, LIMIT, AFTER])
            .about("The newest first, at most 200 of a provider.")
            .returns(&[Returns::page::<ReconciliationAnswer<'_>>("A page of reconciliations.")]),
        post("/v1/providers/{name}/reconciliations", Operate, Act("reconciliation.start", start))
            .doc("reconcileProvider", "Compare a provider's list with what came", &[providers::NAME])
            .about(
                "Reads the list since a time, in the background, and takes in what is missing. Items of the last five minutes \
                 are left out: their webhooks may still come. Answers 409 if no source reads the provider's list, if it is \
                 paused, and while a reconciliation is under way.",
            )
            .returns(&[Returns::json::<ReconciliationAnswer<'_>>(
                201,
                "The reconciliation. It runs in the background; get it again to see its end.",
            )])
            .problems(&[Kind::Conflict])
            .optional_body::<ReconciliationRequest>(r#"{"since":"2026-01-24T12:00:00Z","dry_run":true}"#),
        get("/v1/providers/{name}/reconciliations/{id}", Read, Now(show))
            .doc("getReconciliation", "Show a reconciliation", &[providers::NAME, ID])
            .about("With its numbers, once it is done.")
            .returns(&[Returns::json::<ReconciliationAnswer<'_>>(200, "The reconciliation.")]),
    ],
};

/// `POST /v1/providers/{name}/reconciliations`
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReconciliationRequest {
    /// Items from this time on are compared; as the provider's `reconcile.since_secs` if absent, 92 days at most.
    since: Option<Timestamp>,
    /// Take nothing in, and only report.
    #[serde(default)]
    dry_run: bool,
    /// The source that reads the list, if several do.
    source: Option<Name>,
}

/// A reconciliation.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Reconciliation")]
pub(super) struct ReconciliationAnswer<'a> {
    id: Is<Uuid, &'a str>,
    tenant: Is<NameText, &'a str>,
    provider: Is<NameText, &'a str>,
    /// The source that reads the list.
    source: Is<NameText, &'a str>,
    state: RunState,
    /// Whether nothing is taken in.
    dry_run: bool,
    /// Items from this time on are compared …
    since: Timestamp,
    /// … up to this one.
    until: Timestamp,
    /// The numbers of all days; 0 until it is done.
    #[serde(flatten)]
    total: ReconciledCounts,
    /// The numbers of each day that has items, the oldest first.
    days: &'a [ReconciledDay],
    /// Who asked for it; null: it was due.
    requested_by: Option<&'a str>,
    began_at: Timestamp,
    ended_at: Option<Timestamp>,
    /// Why it failed. While it runs: why the latest page was not had, which is asked for again.
    error: Option<Cow<'a, str>>,
}

/// A run; while it is under way, with the error of its reader.
fn shown(api: &Api, run: &Run) -> Value {
    let new = &run.new;
    let of_reader = || api.flow.sources.of(new.source_seq).comparison_error;
    let error = match run.state {
        RunState::Running => of_reader().map(Cow::Owned),
        RunState::Done | RunState::Failed => run.error.as_deref().map(Cow::Borrowed),
    };
    value(ReconciliationAnswer {
        id: new.id.as_str().into(),
        tenant: new.tenant.as_str().into(),
        provider: new.provider.as_str().into(),
        source: run.source.as_str().into(),
        state: run.state,
        dry_run: new.is_dry,
        since: new.since,
        until: new.until,
        total: run.total(),
        days: &run.days,
        requested_by: new.requested_by.as_deref(),
        began_at: new.began_at,
        ended_at: run.ended_at,
        error,
    })
}

/// `GET /v1/providers/{name}/reconciliations`
fn list(api: &Api, call: &Call) -> Result<Response, Problem> {
    let provider = providers::find(api, call)?;
    let page = call.query.page()?;
    let newest = page.newest(&call.tenant);
    let name = provider.new.name.as_str();
    let found = lists::read(api, call, |tx| store::page(tx, newest, name))?;
    Ok(page_found(&found, |run| shown(api, run)))
}

/// `GET /v1/providers/{name}/reconciliations/{id}`
fn show(api: &Api, call: &Call) -> Result<Response, Problem> {
    let found =
        api.env.store.read(|tx| store::by_id(tx, &call.tenant, call.param(0), call.param(1)))?;
    Ok(ok(&shown(api, &found.or_not_found("reconciliation")?)))
}

/// `POST /v1/providers/{name}/reconciliations`
fn start(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let provider = providers::find(api, call)?;
    let ReconciliationRequest { since, dry_run, source } = call.optional_json()?;
    let source = list_sources::of(api, &provider, source.as_ref())?;
    let now = api.env.clock.wall();
    let since =
        since.unwrap_or_else(|| now.minus(Duration::from_secs(provider.new.reconcile.since_secs)));
    let until = now.minus(YOUNG);
    check_period(since, until, now)?;
    let new = NewRun {
        id: id::uuid7(now, &*api.env.draw),
        tenant: call.tenant.clone(),
        provider: provider.new.name.to_string(),
        source_seq: source.seq,
        is_dry: dry_run,
        since,
        until,
        requested_by: Some(call.who.display.clone()),
        began_at: now,
    };
    let own = api.clone();
    change(api, call, move |tx| {
        if store::insert(tx, &new)?.is_none() {
            let under_way = store::running_of(tx, new.source_seq)?;
            let id = under_way.map(|run| run.new.id).unwrap_or_default();
            let detail =
                format!("The reconciliation {id} of this list is under way. Wait for its end.");
            return Err(Problem::conflict(detail).into());
        }
        let made = store::running_of(tx, new.source_seq)?.or_not_found("reconciliation")?;
        Ok(Change::made("reconciliation", &new.id, &shown(&own, &made)))
    })
}

fn check_period(since: Timestamp, until: Timestamp, now: Timestamp) -> Result<(), Problem> {
    if since >= until {
        let minutes = YOUNG.as_secs() / 60;
        return Err(Problem::unprocessable(format!(
            "since must be more than {minutes} minutes ago: webhooks of younger items may still come."
        )));
    }
    if now.since(since) > MAX_PERIOD {
        let days = MAX_PERIOD.as_secs() / Duration::from_hours(24).as_secs();
        return Err(Problem::unprocessable(format!("since must be at most {days} days ago.")));
    }
    Ok(())
}
