//! Table `subscriptions`: which events are delivered, and where.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::base::clock::millis;
use crate::model::failure::{Streak, UNSEEN_AFTER};
use crate::model::form_body::Body;
use crate::model::format::PayloadFilter;
use crate::model::health_probe::Health;
use crate::model::hold::HoldReason;
use crate::model::outcome::AttemptClass;
use crate::model::subscription::{
    NewSubscription, Routed, Subscription, SubscriptionState, SubscriptionTerms, Target,
};
use crate::store::column::{Json, word};
use crate::store::credentials::{self, Owner};
use crate::store::holds;
use crate::store::matching::{self, MatchedSubscription};
use crate::store::page::{self, RowPage};
use crate::store::prelude::*;
use crate::store::routes::{KnownTerms, Route, RouteCache, RowDifferences, StoredRoute, StoredRow};
use crate::store::tx::ChangedSubscriptions;
use crate::sys::host;

columns! {
    /// Reads the terms of a subscription. This is the expensive part: filters take a millisecond.
    fn terms() -> NewSubscription = "subscriptions" [
        id, tenant, name, owner_id, source, event_types as Json(event_types), target_kind, url, method,
        headers as Json(headers), policy as Json(policy), ordering, format, event_headers as Json(event_headers), filter,
        template, order_terms as Json(order)
    ] {
        id, tenant, name, target: target(target_kind, url)?,
        terms: SubscriptionTerms {
            owner_id, source, event_types, method, headers, policy, ordering, order, format, event_headers,
            filter: Option::unwrap_or_default(filter), template: Json::optional(template),
        },
    }
    const TERMS = "WHERE seq = ?1";
}

/// A row without its terms.
struct LiveRow {
    seq: SubscriptionSeq,
    tenant: String,
    site_host: Option<String>,
    state: SubscriptionState,
    failure_count: u32,
    streak: Streak,
    failing_since: Option<Timestamp>,
    last_success_at: Option<Timestamp>,
    last_failure_at: Option<Timestamp>,
    created_at: Timestamp,
    updated_at: Timestamp,
}

columns! {
    fn live_row() -> LiveRow = "subscriptions" [
        seq, tenant, site_host, state, failure_count, streak_class, streak_count, failing_since, last_success_at,
        last_failure_at, created_at, updated_at
    ] {
        seq, tenant, site_host, state, failure_count, streak: stored_streak(streak_class, streak_count), failing_since,
        last_success_at, last_failure_at, created_at, updated_at
    }
    // By name or id.
    const FIND = "WHERE deleted_at IS NULL AND tenant = ?1 AND (name = ?2 OR id = ?2)";
    const BY_SEQ = "WHERE deleted_at IS NULL AND seq = ?1";
    // With the long texts of the terms, which are read by `terms`, so that a page ends by their bytes.
    const PAGE with ", filter, template, headers, policy, event_headers, event_types, order_terms" =
        "WHERE deleted_at IS NULL AND tenant = ?1 AND seq > ?2
            AND (?4 IS NULL OR owner_id = ?4)
            AND (?5 IS NULL OR state = ?5)
            AND (?6 IS NULL OR ?6 = (failing_since IS NOT NULL
                 OR EXISTS (SELECT 1 FROM holds AS h WHERE h.subscription_seq IN (0, subscriptions.seq))
                 OR EXISTS (SELECT 1 FROM tenants AS t WHERE t.name = ?1 AND t.suspended_at IS NOT NULL)))
          ORDER BY seq LIMIT ?3";
    // The limit is far above what routing, which knows all subscriptions, can serve (docs/data.md).
    const LIVE = "WHERE deleted_at IS NULL AND (?1 IS NULL OR tenant = ?1) ORDER BY seq LIMIT 100000";
}

// Deleted ones too.
const ALL_OF: &str = "
    SELECT seq, iif(deleted_at IS NULL, name, NULL) FROM subscriptions
     WHERE tenant = ?1
     LIMIT 100000";

// The limit is that of `LIVE`.
const STORED_ROWS: &str =
    "SELECT seq, updated_at FROM subscriptions WHERE deleted_at IS NULL ORDER BY seq LIMIT 100000";

const OWNERS: &str = "
    SELECT seq, tenant
      FROM subscriptions
     WHERE seq IN (SELECT value FROM json_each(?1))";

const HAS_ORDER: &str = "
    SELECT 1 FROM subscriptions
     WHERE (?1 IS NULL OR tenant = ?1)
       AND (ordering <> 'none'
            OR json_extract(order_terms, '$.latest_only')
            OR json_extract(order_terms, '$.external_calls') IS NOT NULL)
       AND deleted_at IS NULL
     LIMIT 1";

const SET_STATE: &str =
    "UPDATE subscriptions SET state = ?2, updated_at = ?3 WHERE seq = ?1 AND deleted_at IS NULL";

const SET_SITE_HOST: &str =
    "UPDATE subscriptions SET site_host = ?2 WHERE seq = ?1 AND site_host IS NOT ?2";

const HEALTH: &str = "
    SELECT state, unhealthy_since, probed_at, detail, was_refused, ended_at FROM health_probes
     WHERE subscription_seq = ?1";

const DELETE: &str = "
    UPDATE subscriptions SET deleted_at = ?2, updated_at = ?2
     WHERE seq = ?1 AND deleted_at IS NULL";

// A success in the same transaction (?4) resets the count. After a long time without an attempt (?8), `failing_since`
// is reset. Where all goes well, the time of the last success is written once a second.
pub(super) const STORE_ATTEMPTS: &str = "
    UPDATE subscriptions
       SET failure_count   = CASE WHEN ?4 IS NULL THEN failure_count + ?2 ELSE ?2 END,
           failing_since   = CASE WHEN ?4 IS NOT NULL OR last_failure_at < ?5 - ?8 THEN ?3
                                  ELSE coalesce(failing_since, ?3) END,
           last_success_at = coalesce(?4, last_success_at),
           last_failure_at = coalesce(?5, last_failure_at),
           streak_class    = ?6,
           streak_count    = ?7
     WHERE seq = ?1
       AND NOT (?2 = 0 AND ?5 IS NULL AND failure_count = 0 AND failing_since IS NULL AND streak_class IS ?6
                AND streak_count = ?7
                AND coalesce(last_success_at BETWEEN ?4 - 1000 AND ?4, FALSE))";

// After a pause or an offline time `failing_since` is reset, because that time is not the endpoint's failure.
const RESTART_FAILING: &str = "
    UPDATE subscriptions SET failing_since = ?2
     WHERE seq IN (SELECT seq FROM subscriptions
                    WHERE failing_since IS NOT NULL AND (seq = ?1 OR ?1 = 0) LIMIT 100000)";

changes! {
    /// Limits times that were stored while the clock was ahead.
    pub fn clamp(now: Timestamp) = "
    UPDATE subscriptions
       SET last_success_at = min(last_success_at, ?1), last_failure_at = min(last_failure_at, ?1)
     WHERE last_success_at > ?1 OR last_failure_at > ?1";
}

/// Stores a subscription; `None` when its name is taken.
pub fn insert(
    tx: &WriteTx<'_>,
    new: &Arc<NewSubscription>,
    now: Timestamp,
) -> Result<Option<SubscriptionSeq>> {
    let inserted = insert!(tx, "subscriptions" of new {
        id, tenant, name, owner_id, source, event_types: Json(&new.event_types), target_kind: new.target.kind(),
        url: new.target.url(), method, headers: Json(&new.headers), policy: Json(&new.policy), ordering, format,
        event_headers: Json(&new.event_headers), filter: stored_filter(new), template: new.template.as_ref().map(Json),
        created_at: now, updated_at: now, order_terms: Json(&new.order)
    } "ON CONFLICT DO NOTHING")?;
    if inserted == 0 {
        return Ok(None);
    }
    let seq = SubscriptionSeq(tx.conn().last_insert_rowid());
    put_route(tx, seq, Arc::clone(new), now);
    Ok(Some(seq))
}

/// Notes the terms that a subscription has now.
fn put_route(
    tx: &WriteTx<'_>,
    seq: SubscriptionSeq,
    new: Arc<NewSubscription>,
    updated_at: Timestamp,
) {
    let route = Arc::new(Route::new(seq, new));
    tx.route_cache().note_written(seq, updated_at);
    tx.route_cache().put(seq, &route.new.tenant, Some(Arc::clone(&route)));
    tx.subscription_changed(seq);
}

/// A subscription by its name or its UUID.
pub fn find(tx: &ReadTx<'_>, tenant: &str, name_or_id: &str) -> Result<Option<Subscription>> {
    let row = tx.first(FIND, (tenant, name_or_id), live_row)?;
    row.map(|row| subscription(tx, row, Terms::OfRow)).transpose()
}

/// A subscription by its number.
pub fn by_seq(tx: &ReadTx<'_>, seq: SubscriptionSeq) -> Result<Option<Subscription>> {
    let row = tx.first(BY_SEQ, [seq], live_row)?;
    row.map(|row| subscription(tx, row, Terms::OfRow)).transpose()
}

/// As [`find()`], with the terms of [`latest`].
pub fn find_latest(tx: &ReadTx<'_>, tenant: &str, name: &str) -> Result<Option<Subscription>> {
    let row = tx.first(FIND, (tenant, name), live_row)?;
    row.map(|row| subscription(tx, row, Terms::Latest)).transpose()
}

/// A subscription by its number, with its terms as they were last committed: a snapshot that began before may see newer
/// ones. Parses nothing.
pub fn latest(tx: &ReadTx<'_>, seq: SubscriptionSeq) -> Result<Option<Subscription>> {
    let row = tx.first(BY_SEQ, [seq], live_row)?;
    row.map(|row| subscription(tx, row, Terms::Latest)).transpose()
}

/// Which subscriptions a list shows. `None` means any.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Their owner.
    pub owner_id: Option<&'a str>,
    /// An event type that they want.
    pub event_type: Option<&'a str>,
    /// Their state.
    pub state: Option<SubscriptionState>,
    /// Whether they fail or are held.
    pub troubled: Option<bool>,
    /// Only those with a number above this one.
    pub after: i64,
    /// The maximum number of rows.
    pub limit: u32,
}

/// A page of subscriptions by number. No index serves the filter: subscriptions are few, and routing reads them all. Event
/// types are patterns, so a page that is filtered by one may have fewer rows than `limit` and not be the last.
pub fn page(tx: &ReadTx<'_>, tenant: &str, wanted: Wanted<'_>) -> Result<RowPage<Subscription>> {
    let Wanted { owner_id, event_type, state, troubled, mut after, limit } = wanted;
    let seq = |found: &Subscription| found.seq.0;
    let row = |row: &Row<'_>| subscription(tx, live_row(row)?, Terms::OfRow);
    let is_wanted =
        |found: &Subscription| event_type.is_none_or(|name| found.new.event_types.matches(name));
    let mut statement = tx.prepare(PAGE)?;
    loop {
        let params = (tenant, after, limit, owner_id, state, troubled);
        let mut found = page::page(&mut statement, params, limit, seq, row)?;
        found.rows.retain(is_wanted);
        match found.next {
            Some(next) if found.rows.is_empty() => after = next,
            _ => return Ok(found),
        }
    }
}

/// All subscriptions of a tenant, each with its name; `None` where it is deleted.
pub fn all_of(tx: &ReadTx<'_>, tenant: &str) -> Result<HashMap<SubscriptionSeq, Option<String>>> {
    let found = tx.rows(ALL_OF, [tenant], tuple)?;
    Ok(found.into_iter().collect())
}

/// The tenants of subscriptions, also of deleted ones.
pub fn owners(
    tx: &ReadTx<'_>,
    of: &BTreeSet<SubscriptionSeq>,
) -> Result<HashMap<SubscriptionSeq, String>> {
    let of = serde_json::json!(of.iter().map(|seq| seq.0).collect::<Vec<_>>()).to_string();
    let found = tx.rows(OWNERS, [of], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(found.into_iter().collect())
}

/// All readable subscriptions of all tenants, as [`latest`] reads them.
pub fn live(tx: &ReadTx<'_>) -> Result<Vec<Subscription>> {
    readable(tx, None, Terms::Latest)
}

/// All readable subscriptions of a tenant, as [`latest`] reads them.
pub fn live_of(tx: &ReadTx<'_>, tenant: &str) -> Result<Vec<Subscription>> {
    readable(tx, Some(tenant), Terms::Latest)
}

/// The readable ones of changed subscriptions, as [`latest`] reads them. Deleted ones are left out.
pub fn changed(tx: &ReadTx<'_>, changed: &ChangedSubscriptions) -> Result<Vec<Subscription>> {
    if changed.all {
        return live(tx);
    }
    let mut rows = Vec::with_capacity(changed.these.len());
    for seq in &changed.these {
        rows.extend(tx.first(BY_SEQ, [seq], |row| Ok(live_row(row)))?);
    }
    only_readable(tx, rows, Terms::Latest)
}

fn readable(tx: &ReadTx<'_>, tenant: Option<&str>, terms: Terms) -> Result<Vec<Subscription>> {
    let rows = tx.rows(LIVE, [tenant], |row| Ok(live_row(row)))?;
    only_readable(tx, rows, terms)
}

fn only_readable(
    tx: &ReadTx<'_>,
    rows: Vec<Result<LiveRow>>,
    terms: Terms,
) -> Result<Vec<Subscription>> {
    let mut live = Vec::with_capacity(rows.len());
    for row in rows {
        match row.and_then(|row| subscription(tx, row, terms)) {
            Ok(subscription) => live.push(subscription),
            // A damaged row must not stop the other subscriptions.
            Err(error @ Error::Unreadable { .. }) => {
                tracing::error!(%error, "a subscription cannot be read; it is ignored until it is repaired");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(live)
}

/// The routes of all readable subscriptions.
pub(super) fn live_routes(tx: &ReadTx<'_>) -> Result<Vec<StoredRoute>> {
    let live = readable(tx, None, Terms::OfRow)?;
    Ok(live.into_iter().map(stored_route).collect())
}

fn stored_route(found: Subscription) -> StoredRoute {
    let Subscription { seq, new, updated_at, .. } = found;
    StoredRoute { route: Arc::new(Route::new(seq, new)), updated_at }
}

/// Compares the writer's routes with the rows, and reads those again that another program wrote. Returns how many
/// it read.
pub(super) fn compare_routes(tx: &ReadTx<'_>, routes: &RouteCache) -> Result<usize> {
    let rows = tx
        .rows(STORED_ROWS, [], |row| Ok(StoredRow { seq: row.get(0)?, updated_at: row.get(1)? }))?;
    let RowDifferences { written, mut gone } = routes.differences(&rows);
    for row in &written {
        let read = tx.first(BY_SEQ, [row.seq], |row| Ok(live_row(row)))?;
        match only_readable(tx, read.into_iter().collect(), Terms::OfRow)?.pop() {
            Some(found) => {
                let StoredRoute { route, .. } = stored_route(found);
                routes.put(row.seq, &route.new.tenant, Some(Arc::clone(&route)));
                routes.note_written(row.seq, row.updated_at);
            }
            None => gone.push(row.seq),
        }
    }
    for seq in gone {
        if let Some(gone) = routes.get(seq) {
            routes.put(seq, &gone.new.tenant, None);
        }
    }
    routes.compared();
    Ok(written.len())
}

/// The routes that the writer knows.
pub(crate) fn routes<'t>(tx: &'t WriteTx<'_>) -> Result<&'t RouteCache> {
    let cache = tx.route_cache();
    if !cache.is_loaded() {
        cache.load(live_routes(tx)?);
    }
    Ok(cache)
}

/// The subscriptions that match an event with this id: as it was found before the transaction, or found now.
pub(super) fn matching(
    tx: &WriteTx<'_>,
    id: &str,
    event: Routed<'_>,
    body: Body<'_>,
) -> Result<Vec<MatchedSubscription>> {
    let among = routes(tx)?.of(event.tenant);
    let payload = || Ok(body.json_view());
    match tx.matches().borrow().as_ref() {
        Some(found) => found.now(&among, id, event, payload),
        None => matching::matching(&among, event, payload),
    }
}

/// Whether any subscription is ordered.
pub(crate) fn is_order_asked_for(tx: &WriteTx<'_>) -> Result<bool> {
    Ok(routes(tx)?.facts().asks_for_order)
}

/// Whether a subscription of a tenant, or of any, asks for order.
pub fn has_order(tx: &ReadTx<'_>, tenant: Option<&str>) -> Result<bool> {
    let found = tx.first(HAS_ORDER, [tenant], |_| Ok(()))?;
    Ok(found.is_some())
}

/// Updates everything except name, tenant, target kind and state.
/// Fails with `Changed` when it was deleted meanwhile.
pub fn update(tx: &WriteTx<'_>, changed: &Subscription, now: Timestamp) -> Result<()> {
    let new = &changed.new;
    let updated = update!(tx, "subscriptions" of new {
        owner_id, source, event_types: Json(&new.event_types), url: new.target.url(), method, headers: Json(&new.headers),
        policy: Json(&new.policy), ordering, format, event_headers: Json(&new.event_headers),
        filter: stored_filter(new), template: new.template.as_ref().map(Json), updated_at: now,
        order_terms: Json(&new.order)
    } "WHERE seq = ? AND deleted_at IS NULL", [changed.seq])?;
    one_row(updated, "the subscription")?;
    put_route(tx, changed.seq, Arc::clone(new), now);
    Ok(())
}

/// Sets the state. The caller must put or release the matching hold.
/// Fails with `Changed` when it was deleted meanwhile.
pub fn set_state(
    tx: &WriteTx<'_>,
    seq: SubscriptionSeq,
    state: SubscriptionState,
    now: Timestamp,
) -> Result<()> {
    let updated = tx.execute(SET_STATE, (seq, state.as_str(), now))?;
    tx.subscription_changed(seq);
    one_row(updated, "the subscription")?;
    tx.route_cache().note_written(seq, now);
    Ok(())
}

/// Deletes a subscription and revokes its credentials; its deliveries stay. The caller must check that none is
/// unfinished or a dead letter. Returns the ids of the revoked credentials.
/// Fails with `Changed` when it was deleted already.
pub fn delete(tx: &WriteTx<'_>, seq: SubscriptionSeq, now: Timestamp) -> Result<Vec<String>> {
    let deleted = tx.execute(DELETE, (seq, now))?;
    tx.subscription_changed(seq);
    one_row(deleted, "the subscription")?;
    if let Some(gone) = routes(tx)?.get(seq) {
        tx.route_cache().put(seq, &gone.new.tenant, None);
    }
    forget_health(tx, seq)?;
    credentials::revoke_all(tx, Owner::Subscription(seq))
}

/// The stored streak of failures of a subscription.
pub(super) fn streak(tx: &ReadTx<'_>, seq: SubscriptionSeq) -> Result<Streak> {
    Ok(tx.first(BY_SEQ, [seq], live_row)?.map(|found| found.streak).unwrap_or_default())
}

/// Resets `failing_since` of a failing subscription to `now`; `holds::SITE` means all subscriptions.
pub fn restart_failing(tx: &WriteTx<'_>, seq: SubscriptionSeq, now: Timestamp) -> Result<()> {
    tx.execute(RESTART_FAILING, (seq, now)).map(drop)
}

/// Writes the summaries of this transaction's attempts to their subscriptions.
pub(crate) fn store_attempts(tx: &WriteTx<'_>) -> Result<()> {
    for (seq, attempts) in tx.take_attempts() {
        tx.execute(
            STORE_ATTEMPTS,
            (
                seq,
                attempts.failures_since_success,
                attempts.first_failure_at,
                attempts.last_success_at,
                attempts.last_failure_at,
                attempts.streak.and_then(|streak| streak.class).map(AttemptClass::as_str),
                attempts.streak.map_or(0, |streak| streak.count),
                millis(UNSEEN_AFTER),
            ),
        )?;
    }
    Ok(())
}

/// The number under which the holds of the site are found that apply to a subscription; its own, if none does.
pub fn site(subscription: &Subscription) -> SubscriptionSeq {
    if needs_line(subscription) { holds::SITE } else { subscription.seq }
}

/// Whether a subscription is called over the line to the outside. Targets on this machine are not, nor a host with an
/// address on a network that this machine is connected to.
fn needs_line(subscription: &Subscription) -> bool {
    let Target::Http(url) = &subscription.new.target else { return false };
    let is_on_site = url
        .literal_ip()
        .map_or_else(|| subscription.site_host.as_deref() == Some(url.host()), host::is_on_site);
    subscription.new.target.needs_network() && !is_on_site
}

/// Notes which host of a subscription has an address on a network of this machine; `None`: none.
pub fn set_site_host(tx: &WriteTx<'_>, seq: SubscriptionSeq, host: Option<&str>) -> Result<()> {
    if tx.execute(SET_SITE_HOST, (seq, host))? > 0 {
        tx.subscription_changed(seq);
    }
    Ok(())
}

changes! {
    /// Forgets what the probes of a target came to.
    pub(super) fn forget_health(of: SubscriptionSeq) =
        "DELETE FROM health_probes WHERE subscription_seq = ?1";
}

/// Which terms a reader wants.
#[derive(Clone, Copy, Debug)]
enum Terms {
    /// Those of its row.
    OfRow,
    /// Those that were last committed.
    Latest,
}

/// The terms of a subscription. The writer has them already, so that it parses none.
fn terms_of(tx: &ReadTx<'_>, row: &LiveRow, wanted: Terms) -> Result<Arc<NewSubscription>> {
    let known = match (tx.known(), wanted) {
        (KnownTerms::Writing(routes), _) => routes.get(row.seq),
        (KnownTerms::Committed(routes), Terms::Latest) => routes.get(&row.tenant, row.seq),
        (KnownTerms::Committed(_) | KnownTerms::None, _) => None,
    };
    if let Some(route) = known {
        return Ok(Arc::clone(&route.new));
    }
    match tx.known() {
        KnownTerms::Writing(routes) => routes.shared.parsed_by_writer.add(),
        KnownTerms::Committed(routes) => routes.parsed_by_readers.add(),
        KnownTerms::None => {}
    }
    let found = tx.first(TERMS, [row.seq], terms)?;
    found.map(Arc::new).ok_or(Error::Changed("the subscription"))
}

fn subscription(tx: &ReadTx<'_>, row: LiveRow, wanted: Terms) -> Result<Subscription> {
    let new = terms_of(tx, &row, wanted)?;
    let LiveRow { seq, tenant: _, site_host, state, failure_count, streak, .. } = row;
    let LiveRow { failing_since, last_success_at, last_failure_at, created_at, updated_at, .. } =
        row;
    let mut found = Subscription {
        seq,
        site_host,
        new,
        state,
        holds: holds::of(tx, seq)?,
        health: None,
        failure_count,
        streak,
        failing_since,
        last_success_at,
        last_failure_at,
        created_at,
        updated_at,
    };
    if !needs_line(&found) {
        found.holds.retain(|hold| hold.reason != HoldReason::Offline);
    }
    if found.new.policy.probe.is_some() {
        let read =
            in_order!(Health { state, unhealthy_since, probed_at, detail, was_refused, ended_at });
        let last = tx.first(HEALTH, [found.seq], read)?.unwrap_or_default();
        found.health = Some(last.with_attempts(found.last_success_at, found.last_failure_at));
    }
    Ok(found)
}

/// The column `filter`.
fn stored_filter(new: &NewSubscription) -> Option<Json<&PayloadFilter>> {
    (!new.filter.is_empty()).then_some(Json(&new.filter))
}

fn target(kind: String, url: String) -> Result<Target> {
    word("subscriptions.url", &url, |url| Target::parse(&kind, url))
}

fn stored_streak(class: Option<String>, count: u32) -> Streak {
    Streak { class: class.as_deref().and_then(AttemptClass::parse), count }
}
