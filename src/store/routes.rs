//! The terms of live subscriptions, parsed once and kept by number: what routing asks of each of them.
//!
//! The writer changes its table in place and notes how to undo each step, so a change costs its own subscription, and a
//! transaction that is rolled back leaves nothing. After COMMIT other threads get the lists of the tenants that changed.
//! The writer never parses terms: who hands in a subscription has parsed it. Not here: states, holds and failures, which
//! are read from their rows.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;

use crate::base::clock::Timestamp;
use crate::base::id::SubscriptionSeq;
use crate::model::operational::OperationalKind;
use crate::model::subscription::{NewSubscription, Routed};
use crate::store::route_index::RouteIndex;
use crate::telemetry::tally::Counter;

/// Subscriptions of a tenant that are asked without an index: asking them takes 2 µs, and a change makes no index necessary.
const ASKED_ONE_BY_ONE: usize = 64;

/// A live subscription as routing needs it.
#[derive(Debug)]
pub struct Route {
    /// Its number.
    pub seq: SubscriptionSeq,
    /// Its terms.
    pub new: Arc<NewSubscription>,
    facts: RouteFacts,
}

/// Facts about one subscription, or about several together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RouteFacts {
    /// The order of events matters.
    pub(crate) asks_for_order: bool,
    /// A funnel point is set.
    pub(crate) has_funnel: bool,
    /// Matching looks at payloads.
    pub(crate) reads_payload: bool,
    /// The operational events that are named, a bit for each.
    named: u32,
    /// Bytes of the terms as they are stored.
    pub(crate) bytes: u64,
}

impl RouteFacts {
    fn of(new: &NewSubscription) -> Self {
        let is_named = |kind: &OperationalKind| new.event_types.names(kind.as_str());
        let bits = OperationalKind::ALL.into_iter().filter(is_named).map(bit);
        Self {
            asks_for_order: new.asks_for_order(),
            has_funnel: new.order.funnel_point.is_some(),
            reads_payload: new.reads_payload(),
            named: bits.fold(0, |all, one| all | one),
            bytes: stored_bytes(new),
        }
    }

    fn and(self, other: Self) -> Self {
        Self {
            asks_for_order: self.asks_for_order || other.asks_for_order,
            has_funnel: self.has_funnel || other.has_funnel,
            reads_payload: self.reads_payload || other.reads_payload,
            named: self.named | other.named,
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    /// Whether an operational event is named.
    pub(crate) fn names(self, kind: OperationalKind) -> bool {
        self.named & bit(kind) != 0
    }
}

/// Bytes of the columns that have terms of a subscription: see `store::limits`.
fn stored_bytes(new: &NewSubscription) -> u64 {
    let filter = (!new.filter.is_empty()).then_some(&new.filter);
    let texts = [
        serde_json::to_string(&new.event_types),
        serde_json::to_string(&new.headers),
        serde_json::to_string(&new.policy),
        serde_json::to_string(&new.event_headers),
        serde_json::to_string(&new.order),
        filter.map_or(Ok(String::new()), serde_json::to_string),
        new.template.as_ref().map_or(Ok(String::new()), serde_json::to_string),
    ];
    let bytes =
        texts.iter().flatten().map(String::len).fold(new.target.url().len(), usize::saturating_add);
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// The bit of an operational event.
fn bit(kind: OperationalKind) -> u32 {
    let place = OperationalKind::ALL.into_iter().position(|one| one == kind).unwrap_or_default();
    1_u32.wrapping_shl(u32::try_from(place).unwrap_or_default())
}

impl Route {
    /// The route of a subscription with these terms.
    pub(crate) fn new(seq: SubscriptionSeq, new: Arc<NewSubscription>) -> Self {
        let facts = RouteFacts::of(&new);
        Self { seq, new, facts }
    }
}

/// The routes of one tenant, by number.
#[derive(Debug, Default)]
pub struct TenantRoutes {
    routes: Vec<Arc<Route>>,
    facts: RouteFacts,
    /// Made by the first event that needs it.
    index: RwLock<Option<Arc<RouteIndex>>>,
}

impl TenantRoutes {
    fn of(routes: Vec<Arc<Route>>) -> Self {
        let facts = routes.iter().fold(RouteFacts::default(), |all, route| all.and(route.facts));
        Self { routes, facts, index: RwLock::new(None) }
    }

    /// Those that can want an event, by number; each is still to be asked. An event that names its target passes patterns by.
    pub(crate) fn candidates(&self, event: Routed<'_>) -> Cow<'_, [Arc<Route>]> {
        if event.target.is_some() || self.routes.len() <= ASKED_ONE_BY_ONE {
            return Cow::Borrowed(&self.routes);
        }
        let places = self.index().places(event.event_type);
        Cow::Owned(places.into_iter().filter_map(|place| self.routes.get(place).cloned()).collect())
    }

    fn index(&self) -> Arc<RouteIndex> {
        let known = self.index.read().clone();
        known.unwrap_or_else(|| {
            let patterns = self.routes.iter().map(|route| &route.new.event_types);
            let made = Arc::new(RouteIndex::of(patterns));
            *self.index.write() = Some(Arc::clone(&made));
            made
        })
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Route>> {
        self.routes.iter()
    }

    /// The route of a subscription.
    pub fn get(&self, seq: SubscriptionSeq) -> Option<&Arc<Route>> {
        let at = self.routes.binary_search_by_key(&seq, |route| route.seq).ok()?;
        self.routes.get(at)
    }

    /// Facts about them together.
    pub(crate) const fn facts(&self) -> RouteFacts {
        self.facts
    }

    /// The list with another route of this number, or none.
    fn with(&self, seq: SubscriptionSeq, route: Option<Arc<Route>>) -> Self {
        let mut routes = self.routes.clone();
        match (routes.binary_search_by_key(&seq, |route| route.seq), route) {
            (Ok(at), Some(route)) => {
                routes.get_mut(at).into_iter().for_each(|have| have.clone_from(&route));
            }
            (Ok(at), None) => drop(routes.remove(at)),
            (Err(at), Some(route)) => routes.insert(at, route),
            (Err(_), None) => {}
        }
        Self::of(routes)
    }
}

/// All routes, as the writer knows them.
#[derive(Debug, Default)]
struct RouteTable {
    by_seq: HashMap<SubscriptionSeq, Arc<Route>>,
    by_tenant: HashMap<String, Arc<TenantRoutes>>,
    facts: RouteFacts,
}

impl RouteTable {
    fn of(found: Vec<Arc<Route>>) -> Self {
        let mut by_tenant = HashMap::<String, Vec<Arc<Route>>>::new();
        for route in &found {
            by_tenant.entry(route.new.tenant.clone()).or_default().push(Arc::clone(route));
        }
        let list = |(tenant, mut routes): (String, Vec<Arc<Route>>)| {
            routes.sort_unstable_by_key(|route| route.seq);
            (tenant, Arc::new(TenantRoutes::of(routes)))
        };
        let by_tenant = by_tenant.into_iter().map(list).collect();
        let by_seq = found.into_iter().map(|route| (route.seq, route)).collect();
        let mut table = Self { by_seq, by_tenant, facts: RouteFacts::default() };
        table.sum_up();
        table
    }

    fn sum_up(&mut self) {
        let all = self.by_tenant.values();
        self.facts = all.fold(RouteFacts::default(), |sum, own| sum.and(own.facts));
    }

    /// Replaces the route of a number, or removes it. Returns the one before.
    fn put(&mut self, seq: SubscriptionSeq, route: Option<Arc<Route>>) -> Option<Arc<Route>> {
        let before = match &route {
            Some(route) => self.by_seq.insert(seq, Arc::clone(route)),
            None => self.by_seq.remove(&seq),
        };
        let either = route.as_ref().or(before.as_ref())?;
        let tenant = either.new.tenant.clone();
        let list = self.by_tenant.entry(tenant.clone()).or_default();
        *list = Arc::new(list.with(seq, route));
        if list.routes.is_empty() {
            self.by_tenant.remove(&tenant);
        }
        self.sum_up();
        before
    }
}

/// Routes as they were last committed, and how often terms were parsed. Other threads read it.
#[derive(Debug, Default)]
pub struct SharedRoutes {
    tenants: RwLock<HashMap<String, Arc<TenantRoutes>>>,
    /// Whether all are known and none asks for order.
    none_asks_for_order: AtomicBool,
    /// How often the writer's thread parsed them outside transactions: at the start, and those that another program changed.
    pub parsed_at_loads: Counter,
    /// How often the writer parsed the terms of a subscription in a transaction.
    pub parsed_by_writer: Counter,
    /// How often other threads did.
    pub parsed_by_readers: Counter,
}

impl SharedRoutes {
    /// The routes of a tenant; `None` if it has none, or if none is known yet.
    pub fn of(&self, tenant: &str) -> Option<Arc<TenantRoutes>> {
        self.tenants.read().get(tenant).cloned()
    }

    /// Whether any subscription of any tenant asks for order, or may: before the first load none is known.
    pub fn may_ask_for_order(&self) -> bool {
        !self.none_asks_for_order.load(Ordering::Acquire)
    }

    /// The route of a subscription of a tenant.
    pub(crate) fn get(&self, tenant: &str, seq: SubscriptionSeq) -> Option<Arc<Route>> {
        self.tenants.read().get(tenant)?.get(seq).cloned()
    }
}

/// How to undo one step of a transaction.
#[derive(Debug)]
enum Undo {
    /// The table was loaded: forget it.
    Loaded,
    /// A route was put or removed.
    Put { seq: SubscriptionSeq, tenant: String, before: Option<Arc<Route>> },
    /// A row was written.
    Written { seq: SubscriptionSeq, before: Option<Timestamp> },
}

/// The row of a live subscription as it is stored: when it was last written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredRow {
    pub(crate) seq: SubscriptionSeq,
    pub(crate) updated_at: Timestamp,
}

/// A route with the time at which its row was written.
#[derive(Debug)]
pub(crate) struct StoredRoute {
    pub(crate) route: Arc<Route>,
    pub(crate) updated_at: Timestamp,
}

/// How the stored rows differ from the table.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RowDifferences {
    /// Rows that are new, or were written at another time.
    pub(crate) written: Vec<StoredRow>,
    /// Subscriptions whose rows are gone.
    pub(crate) gone: Vec<SubscriptionSeq>,
}

/// The writer's routes, with what its transaction has changed.
#[derive(Debug, Default)]
pub(crate) struct RouteCache {
    pub(crate) shared: Arc<SharedRoutes>,
    table: RefCell<Option<RouteTable>>,
    /// When the rows were written, as far as this process knows.
    written: RefCell<HashMap<SubscriptionSeq, Timestamp>>,
    undo: RefCell<Vec<Undo>>,
    /// Whether another program has committed since the table was compared with the rows.
    is_doubtful: Cell<bool>,
    /// Whether the table is to be compared with the rows before the next transaction.
    must_compare: Cell<bool>,
}

impl RouteCache {
    /// Whether routes are known.
    pub(crate) fn is_loaded(&self) -> bool {
        self.table.borrow().is_some()
    }

    /// Loads the table.
    pub(crate) fn load(&self, found: Vec<StoredRoute>) {
        self.written.replace(found.iter().map(|one| (one.route.seq, one.updated_at)).collect());
        let routes = found.into_iter().map(|one| one.route).collect();
        self.table.replace(Some(RouteTable::of(routes)));
        self.compared();
        self.undo.borrow_mut().push(Undo::Loaded);
    }

    /// Notes when the row of a subscription was written.
    pub(crate) fn note_written(&self, seq: SubscriptionSeq, updated_at: Timestamp) {
        let before = self.written.borrow_mut().insert(seq, updated_at);
        self.undo.borrow_mut().push(Undo::Written { seq, before });
    }

    /// Compares the table with the rows that are stored.
    pub(crate) fn differences(&self, stored: &[StoredRow]) -> RowDifferences {
        let known = self.written.borrow();
        let is_other = |row: &&StoredRow| known.get(&row.seq) != Some(&row.updated_at);
        let written = stored.iter().filter(is_other).copied().collect();
        let there: BTreeSet<SubscriptionSeq> = stored.iter().map(|row| row.seq).collect();
        let table = self.table.borrow();
        let routes = table.iter().flat_map(|table| table.by_seq.keys());
        let gone = routes.filter(|seq| !there.contains(seq)).copied().collect();
        RowDifferences { written, gone }
    }

    /// Whether the table is to be compared with the rows.
    pub(crate) fn must_compare(&self) -> bool {
        self.must_compare.get()
    }

    /// The table is as the rows are.
    pub(crate) fn compared(&self) {
        self.is_doubtful.set(false);
        self.must_compare.set(false);
    }

    /// Puts a route, or removes it. Nothing is done if no table is loaded: loading finds it.
    pub(crate) fn put(&self, seq: SubscriptionSeq, tenant: &str, route: Option<Arc<Route>>) {
        let mut table = self.table.borrow_mut();
        let Some(table) = table.as_mut() else { return };
        let is_gone = route.is_none();
        let before = table.put(seq, route);
        let mut undo = self.undo.borrow_mut();
        undo.push(Undo::Put { seq, tenant: tenant.to_owned(), before });
        if is_gone {
            let before = self.written.borrow_mut().remove(&seq);
            undo.push(Undo::Written { seq, before });
        }
    }

    /// The route of a subscription.
    pub(crate) fn get(&self, seq: SubscriptionSeq) -> Option<Arc<Route>> {
        self.table.borrow().as_ref()?.by_seq.get(&seq).cloned()
    }

    /// The routes of a tenant.
    pub(crate) fn of(&self, tenant: &str) -> Arc<TenantRoutes> {
        let table = self.table.borrow();
        let found = table.as_ref().and_then(|table| table.by_tenant.get(tenant));
        found.cloned().unwrap_or_default()
    }

    /// The routes of the tenants with this fact.
    pub(crate) fn having(&self, fact: impl Fn(RouteFacts) -> bool) -> Vec<Arc<TenantRoutes>> {
        let table = self.table.borrow();
        let tenants = table.iter().flat_map(|table| table.by_tenant.values());
        tenants.filter(|own| fact(own.facts)).cloned().collect()
    }

    /// Facts about all subscriptions together.
    pub(crate) fn facts(&self) -> RouteFacts {
        self.table.borrow().as_ref().map(|table| table.facts).unwrap_or_default()
    }

    /// Another program has committed. It may have changed subscriptions.
    pub(crate) fn note_foreign_commit(&self) {
        self.is_doubtful.set(true);
    }

    /// A transaction was rolled back, perhaps because another program has deleted a subscription. If other programs have
    /// committed, the table is compared with the rows before the next transaction.
    pub(crate) fn doubt(&self) {
        self.must_compare.set(self.must_compare.get() || self.is_doubtful.get());
    }

    /// How many steps can be undone.
    pub(crate) fn mark(&self) -> usize {
        self.undo.borrow().len()
    }

    /// Undoes the steps after a mark.
    pub(crate) fn roll_back(&self, mark: usize) {
        let steps: Vec<Undo> = {
            let mut undo = self.undo.borrow_mut();
            let from = mark.min(undo.len());
            undo.drain(from..).rev().collect()
        };
        let mut table = self.table.borrow_mut();
        for step in steps {
            match step {
                Undo::Loaded => *table = None,
                Undo::Written { seq, before } => {
                    let mut written = self.written.borrow_mut();
                    match before {
                        Some(before) => drop(written.insert(seq, before)),
                        None => drop(written.remove(&seq)),
                    }
                }
                Undo::Put { seq, before, .. } => {
                    table
                        .as_mut()
                        .into_iter()
                        .for_each(|table| drop(table.put(seq, before.clone())));
                }
            }
        }
    }

    /// A transaction was committed: other threads see what it changed.
    pub(crate) fn commit(&self) {
        let steps = self.undo.take();
        if steps.is_empty() {
            return;
        }
        let table = self.table.borrow();
        let Some(table) = table.as_ref() else { return };
        self.shared.none_asks_for_order.store(!table.facts.asks_for_order, Ordering::Release);
        let mut tenants = self.shared.tenants.write();
        if steps.iter().any(|step| matches!(step, Undo::Loaded)) {
            tenants.clone_from(&table.by_tenant);
            return;
        }
        let changed: BTreeSet<String> = steps.into_iter().filter_map(Undo::tenant).collect();
        for tenant in changed {
            match table.by_tenant.get(&tenant) {
                Some(list) => drop(tenants.insert(tenant, Arc::clone(list))),
                None => drop(tenants.remove(&tenant)),
            }
        }
    }
}

impl Undo {
    fn tenant(self) -> Option<String> {
        match self {
            Self::Loaded | Self::Written { .. } => None,
            Self::Put { tenant, .. } => Some(tenant),
        }
    }
}

/// Where a transaction finds the terms of a subscription before it parses its row.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum KnownTerms<'c> {
    /// Nowhere.
    #[default]
    None,
    /// A reader: as they were last committed.
    Committed(&'c SharedRoutes),
    /// The writer: as they are in its transaction.
    Writing(&'c RouteCache),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn until_routes_are_known_any_may_ask_for_order() {
        let cache = RouteCache::default();
        assert!(cache.shared.may_ask_for_order());
        cache.load(Vec::new());
        assert!(cache.shared.may_ask_for_order(), "not committed yet");
        cache.commit();
        assert!(!cache.shared.may_ask_for_order());
    }
}
