//! Transactions as types: a function that takes `&WriteTx` may write, one that takes `&ReadTx` only reads.
//!
//! A write transaction also collects its [`Effects`], which other threads learn after COMMIT.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::Arc;

use rusqlite::types::FromSql;
use rusqlite::{Connection, Params, Row, Statement};

use crate::base::clock::Timestamp;
use crate::base::id::{DeliverySeq, SubscriptionSeq};
use crate::formats::filter::Unknown;
use crate::model::failure::Streak;
use crate::model::hold::Gate;
use crate::model::in_doubt::Fence;
use crate::store::column::Count;
use crate::store::error::{Error, Result};
use crate::store::fresh::Fresh;
use crate::store::kept_answers::KeptAnswers;
use crate::store::matching::Matches;
use crate::store::routes::{KnownTerms, RouteCache};

/// A read transaction. Outside `Store::snapshot` and `Store::list`, each statement sees the latest commit.
#[derive(Debug)]
pub struct ReadTx<'c> {
    conn: &'c Connection,
    known: KnownTerms<'c>,
}

impl<'c> ReadTx<'c> {
    pub(crate) fn new(conn: &'c Connection) -> Self {
        Self { conn, known: KnownTerms::None }
    }

    /// A transaction that knows the terms of subscriptions.
    pub(crate) fn knowing(conn: &'c Connection, known: KnownTerms<'c>) -> Self {
        Self { conn, known }
    }

    pub(crate) fn known(&self) -> KnownTerms<'c> {
        self.known
    }

    pub(crate) fn conn(&self) -> &'c Connection {
        self.conn
    }

    /// A statement from the connection's cache.
    pub(crate) fn prepare(&self, sql: &str) -> Result<rusqlite::CachedStatement<'c>> {
        Ok(self.conn.prepare_cached(sql)?)
    }

    /// The rows of a query. The row function may fail, for example on an unreadable value.
    pub(crate) fn rows<T>(
        &self,
        sql: &str,
        params: impl Params,
        mut row: impl FnMut(&Row<'_>) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut statement = self.prepare(sql)?;
        let mut found = statement.query(params)?;
        let mut all = Vec::new();
        while let Some(next) = found.next()? {
            all.push(row(next)?);
        }
        Ok(all)
    }

    /// The first row of a query, if there is one.
    pub(crate) fn first<T>(
        &self,
        sql: &str,
        params: impl Params,
        row: impl FnOnce(&Row<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        first(&mut *self.prepare(sql)?, params, row)
    }

    /// The first column of each row of a query.
    pub(crate) fn list<T: FromSql>(&self, sql: &str, params: impl Params) -> Result<Vec<T>> {
        self.rows(sql, params, |row| Ok(row.get(0)?))
    }

    /// The first column of the first row of a query, if there is one.
    pub(crate) fn find<T: FromSql>(&self, sql: &str, params: impl Params) -> Result<Option<T>> {
        self.first(sql, params, |row| Ok(row.get(0)?))
    }

    /// The first column of a query that always has a row.
    pub(crate) fn value<T: FromSql>(&self, sql: &str, params: impl Params) -> Result<T> {
        Ok(self.prepare(sql)?.query_row(params, |row| row.get(0))?)
    }

    /// The first column of a query that counts.
    pub(crate) fn count(&self, sql: &str, params: impl Params) -> Result<u64> {
        self.value(sql, params).map(|Count(count)| count)
    }

    /// Whether a query has a row.
    pub(crate) fn exists(&self, sql: &str, params: impl Params) -> Result<bool> {
        Ok(self.prepare(sql)?.exists(params)?)
    }
}

/// What other threads must learn after the commit.
#[derive(Debug, Default)]
pub struct Effects {
    /// Subscriptions that have something new to send.
    pub rang: Vec<SubscriptionSeq>,
    /// What the holds of subscriptions allow now. The dispatcher learns it before it learns what is settled.
    pub gates: Vec<(SubscriptionSeq, Gate)>,
    /// Deliveries whose attempt is settled.
    pub settled: Vec<Settled>,
    /// The subscriptions that were created, changed, held or deleted.
    pub subscriptions_changed: ChangedSubscriptions,
    /// The tenants of which a provider or its secret was created, changed or deleted, or that changed themselves.
    pub providers_changed: BTreeSet<String>,
    /// Whether a token was created or revoked.
    pub tokens_changed: bool,
    /// The event types that were registered, changed or deleted, by tenant and name.
    pub event_types_changed: BTreeSet<(String, String)>,
    /// Whether a source was created, changed or deleted.
    pub sources_changed: bool,
    /// Whether a subject was erased.
    pub subjects_erased: bool,
    /// Jobs whose changes need not be seen at once: a test write, the time of a last use.
    pub unseen_jobs: usize,
}

/// Subscriptions whose state, holds, terms or credentials changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangedSubscriptions {
    /// All of them may have changed: a hold of the site, the settings.
    pub all: bool,
    /// Their numbers.
    pub these: BTreeSet<SubscriptionSeq>,
}

impl ChangedSubscriptions {
    /// All subscriptions.
    pub fn all() -> Self {
        Self { all: true, these: BTreeSet::new() }
    }

    /// Whether none has changed.
    pub fn is_empty(&self) -> bool {
        !self.all && self.these.is_empty()
    }

    /// Adds others.
    pub fn append(&mut self, mut others: Self) {
        self.all |= others.all;
        self.these.append(&mut others.these);
    }
}

/// A delivery whose attempt is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// The delivery.
    pub delivery: DeliverySeq,
    /// Its subscription.
    pub subscription: SubscriptionSeq,
    /// The time of the next attempt, if there is one.
    pub next_due: Option<Timestamp>,
}

/// The attempts of a transaction, summed up per subscription; written with one UPDATE before COMMIT.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AttemptSummary {
    /// The streak of failures, including those before this transaction; `None` if it was not read.
    pub(crate) streak: Option<Streak>,
    pub(crate) failures_since_success: u32,
    pub(crate) first_failure_at: Option<Timestamp>,
    pub(crate) last_success_at: Option<Timestamp>,
    pub(crate) last_failure_at: Option<Timestamp>,
}

/// What the writer caches between transactions.
#[derive(Debug, Default)]
pub(crate) struct WriterCache {
    /// The terms of live subscriptions. Other threads match events against them.
    pub(crate) routes: RouteCache,
    /// The bytes of the terms of providers, sources and event types, of all tenants.
    pub(crate) other_terms: Cell<Option<u64>>,
    /// What the kept answers to changes take.
    pub(crate) kept_answers: KeptAnswers,
    /// The fence of the latest restore.
    pub(crate) fence: Cell<Option<Fence>>,
    /// The subscriptions that have a hold.
    pub(crate) held: RefCell<Option<BTreeSet<i64>>>,
    /// Whether an event was archived.
    pub(crate) has_seen: Cell<Option<bool>>,
    /// The requests of new deliveries. Deliverers take them.
    pub(crate) fresh: Arc<Fresh>,
}

impl WriterCache {
    /// A transaction was rolled back: forgets what it has put here.
    pub(crate) fn roll_back(&self) {
        self.roll_back_to(0);
        self.kept_answers.deleted();
        self.routes.doubt();
    }

    /// A part of a transaction was rolled back: forgets what it has put here. `mark`: the steps of the routes before it.
    fn roll_back_to(&self, mark: usize) {
        self.held.replace(None);
        self.has_seen.set(None);
        self.other_terms.set(None);
        self.fence.set(None);
        self.routes.roll_back(mark);
    }
}

/// A new delivery that becomes a dead letter when its transaction ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SetAside {
    pub(crate) delivery: DeliverySeq,
    /// Why it is not known whether it is wanted.
    pub(crate) why: Unknown,
    pub(crate) now: Timestamp,
}

/// A write transaction.
#[derive(Debug)]
pub struct WriteTx<'c> {
    read: ReadTx<'c>,
    cache: &'c WriterCache,
    effects: RefCell<Effects>,
    attempts: RefCell<BTreeMap<i64, AttemptSummary>>,
    /// New deliveries that are dead letters when the transaction ends.
    set_aside: RefCell<Vec<SetAside>>,
    /// What was found before the transaction.
    matches: RefCell<Option<Arc<Matches>>>,
    /// See [`WriteTx::is_relayed`].
    has_relayed: Cell<bool>,
}

impl<'c> Deref for WriteTx<'c> {
    type Target = ReadTx<'c>;

    fn deref(&self) -> &Self::Target {
        &self.read
    }
}

impl<'c> WriteTx<'c> {
    pub(crate) fn new(conn: &'c Connection, cache: &'c WriterCache) -> Self {
        Self {
            read: ReadTx::knowing(conn, KnownTerms::Writing(&cache.routes)),
            cache,
            effects: RefCell::default(),
            attempts: RefCell::default(),
            set_aside: RefCell::default(),
            matches: RefCell::default(),
            has_relayed: Cell::new(false),
        }
    }

    /// Runs a statement; returns how many rows it changed.
    pub(crate) fn execute(&self, sql: &str, params: impl Params) -> Result<usize> {
        Ok(self.prepare(sql)?.execute(params)?)
    }

    /// Runs a statement. Fails with `Changed` unless it changed exactly one row.
    pub(crate) fn change_one(
        &self,
        sql: &str,
        params: impl Params,
        what: &'static str,
    ) -> Result<()> {
        one_row(self.execute(sql, params)?, what)
    }

    /// Whether all rows that plain SQL inserted are routed. Once is enough, because no other program can commit during
    /// the transaction.
    pub(crate) fn is_relayed(&self) -> bool {
        self.has_relayed.get()
    }

    /// All rows that plain SQL inserted are routed, or cannot be now.
    pub(crate) fn set_relayed(&self) {
        self.has_relayed.set(true);
    }

    /// Runs `part` in a savepoint, which is rolled back if `part` fails. Its effects stay, but they
    /// only make the dispatcher look for due deliveries. The inner error is that of `part`.
    /// Fails if SQLite has rolled back the whole transaction.
    pub fn in_savepoint<T>(&self, part: impl FnOnce() -> Result<T>) -> Result<Result<T>> {
        self.in_savepoint_kept_if(part, |_| true)
    }

    /// The same for a part that can be refused: a refusal is rolled back too, so that it leaves nothing of what the part
    /// wrote before.
    pub fn unless_refused<T, R>(
        &self,
        part: impl FnOnce() -> Result<std::result::Result<T, R>>,
    ) -> Result<Result<std::result::Result<T, R>>> {
        self.in_savepoint_kept_if(part, std::result::Result::is_ok)
    }

    fn in_savepoint_kept_if<T>(
        &self,
        part: impl FnOnce() -> Result<T>,
        is_kept: impl FnOnce(&T) -> bool,
    ) -> Result<Result<T>> {
        self.conn().execute_batch("SAVEPOINT part")?;
        let set_aside = self.set_aside.borrow().len();
        let mark = self.cache.routes.mark();
        let answers = self.cache.kept_answers.mark();
        let done = part();
        let is_kept = done.as_ref().is_ok_and(is_kept);
        if !is_kept {
            self.set_aside.borrow_mut().truncate(set_aside);
            self.cache.roll_back_to(mark);
            self.cache.kept_answers.roll_back(answers);
        }
        let end = if is_kept { "RELEASE part" } else { "ROLLBACK TO part; RELEASE part" };
        match (done, self.conn().execute_batch(end)) {
            // SQLite rolled back the whole transaction, for example because the disk is full.
            (Err(error), Err(_gone)) => Err(error),
            (done, ended) => Ok(ended.map(|()| done)?),
        }
    }

    /// The terms of live subscriptions. `subscriptions` loads them.
    pub(super) fn route_cache(&self) -> &RouteCache {
        &self.cache.routes
    }

    /// The requests of new deliveries.
    pub(super) fn fresh(&self) -> &Fresh {
        &self.cache.fresh
    }

    /// The cached bytes of terms that are no subscription's. `limits` fills it.
    pub(super) fn other_terms(&self) -> &Cell<Option<u64>> {
        &self.cache.other_terms
    }

    /// What the kept answers to changes take. `idempotency_keys` fills it.
    pub(super) fn kept_answers(&self) -> &KeptAnswers {
        &self.cache.kept_answers
    }

    /// The cached fence. `meta` fills it.
    pub(super) fn cached_fence(&self) -> &Cell<Option<Fence>> {
        &self.cache.fence
    }

    pub(crate) fn ring(&self, subscription: SubscriptionSeq) {
        let rang = &mut self.effects.borrow_mut().rang;
        if rang.last() != Some(&subscription) {
            rang.push(subscription);
        }
    }

    pub(crate) fn gate_changed(&self, subscription: SubscriptionSeq, gate: Gate) {
        self.effects.borrow_mut().gates.push((subscription, gate));
    }

    /// The cached subscriptions that have a hold. `holds` fills it.
    pub(super) fn held(&self) -> &RefCell<Option<BTreeSet<i64>>> {
        &self.cache.held
    }

    /// Whether an event was archived. `seen_keys` fills it.
    pub(super) fn has_seen(&self) -> &Cell<Option<bool>> {
        &self.cache.has_seen
    }

    pub(crate) fn settled(&self, settled: Settled) {
        self.effects.borrow_mut().settled.push(settled);
    }

    /// A subscription has changed; its terms are changed by `subscriptions` alone.
    pub(crate) fn subscription_changed(&self, subscription: SubscriptionSeq) {
        self.effects.borrow_mut().subscriptions_changed.these.insert(subscription);
    }

    /// All subscriptions may have changed.
    pub(crate) fn all_subscriptions_changed(&self) {
        self.effects.borrow_mut().subscriptions_changed.all = true;
    }

    /// Providers of a tenant have changed.
    pub(crate) fn providers_changed(&self, tenant: &str) {
        self.effects.borrow_mut().providers_changed.insert(tenant.to_owned());
        self.cache.other_terms.set(None);
    }

    /// Called once by a job whose changes need not be seen at once.
    pub(crate) fn mark_unseen(&self) {
        self.effects.borrow_mut().unseen_jobs += 1;
    }

    pub(crate) fn tokens_changed(&self) {
        self.effects.borrow_mut().tokens_changed = true;
    }

    pub(crate) fn event_type_changed(&self, tenant: &str, name: &str) {
        let key = (tenant.to_owned(), name.to_owned());
        self.effects.borrow_mut().event_types_changed.insert(key);
        self.cache.other_terms.set(None);
    }

    pub(crate) fn sources_changed(&self) {
        self.effects.borrow_mut().sources_changed = true;
        self.cache.other_terms.set(None);
    }

    pub(crate) fn subjects_erased(&self) {
        self.effects.borrow_mut().subjects_erased = true;
    }

    pub(crate) fn note_attempt(
        &self,
        subscription: SubscriptionSeq,
        change: impl FnOnce(&mut AttemptSummary),
    ) {
        change(self.attempts.borrow_mut().entry(subscription.0).or_default());
    }

    /// The summary of a subscription's attempts in this transaction so far.
    pub(crate) fn noted_attempts(&self, subscription: SubscriptionSeq) -> AttemptSummary {
        self.attempts.borrow().get(&subscription.0).copied().unwrap_or_default()
    }

    /// Uses what was found before the transaction.
    pub(crate) fn set_matches(&self, matches: Option<&Arc<Matches>>) {
        self.matches.replace(matches.cloned());
    }

    pub(super) fn matches(&self) -> &RefCell<Option<Arc<Matches>>> {
        &self.matches
    }

    /// Makes a new delivery a dead letter before COMMIT, when its event's row is complete.
    pub(crate) fn set_aside(&self, delivery: SetAside) {
        self.set_aside.borrow_mut().push(delivery);
    }

    pub(crate) fn take_set_aside(&self) -> Vec<SetAside> {
        self.set_aside.take()
    }

    pub(crate) fn take_attempts(&self) -> BTreeMap<i64, AttemptSummary> {
        self.attempts.take()
    }

    pub(crate) fn into_effects(self) -> Effects {
        self.effects.into_inner()
    }
}

/// Fails with `Changed` unless a statement changed exactly one row.
pub(crate) fn one_row(changed: usize, what: &'static str) -> Result<()> {
    if changed == 1 { Ok(()) } else { Err(Error::Changed(what)) }
}

/// The first row of a query, if there is one.
pub(crate) fn first<T>(
    statement: &mut Statement<'_>,
    params: impl Params,
    row: impl FnOnce(&Row<'_>) -> Result<T>,
) -> Result<Option<T>> {
    let mut found = statement.query(params)?;
    found.next()?.map(row).transpose()
}

/// The columns of a row as a tuple.
pub(crate) fn tuple<T>(row: &Row<'_>) -> Result<T>
where
    T: for<'r> TryFrom<&'r Row<'r>, Error = rusqlite::Error>,
{
    Ok(T::try_from(row)?)
}
