//! Transactions as types: what takes a `&WriteTx` writes, what takes a `&ReadTx` only reads.
//!
//! A write transaction also collects what must be told to others once it is committed, and no sooner.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::Arc;

use rusqlite::{Connection, Statement};

use crate::base::clock::Timestamp;
use crate::base::id::{DeliverySeq, SubscriptionSeq};
use crate::model::failure::Streak;
use crate::model::hold::Gate;
use crate::model::in_doubt::Fence;
use crate::model::subscription::Subscription;
use crate::store::error::Result;

/// Reads. Each statement sees the file as of its own start, unless it came from `Store::snapshot`.
#[derive(Debug)]
pub struct ReadTx<'c> {
    conn: &'c Connection,
}

impl<'c> ReadTx<'c> {
    pub(crate) fn new(conn: &'c Connection) -> Self {
        Self { conn }
    }

    pub(crate) fn conn(&self) -> &'c Connection {
        self.conn
    }

    /// A statement from the connection's cache.
    pub(crate) fn prepare(&self, sql: &str) -> Result<rusqlite::CachedStatement<'c>> {
        Ok(self.conn.prepare_cached(sql)?)
    }
}

/// What others have to learn after the commit.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each concerns another listener")]
pub struct Effects {
    /// Subscriptions that have something new to send.
    pub rang: Vec<SubscriptionSeq>,
    /// What the holds of subscriptions allow now. The dispatcher learns it before it learns what is settled.
    pub gates: Vec<(SubscriptionSeq, Gate)>,
    /// Deliveries whose attempt is settled.
    pub settled: Vec<Settled>,
    /// Whether a subscription was made, changed, held or deleted.
    pub subscriptions_changed: bool,
    /// Whether a provider or its secret was made, changed or deleted.
    pub providers_changed: bool,
    /// Whether a token was made or revoked.
    pub tokens_changed: bool,
    /// Whether a source was made, changed or deleted.
    pub sources_changed: bool,
    /// Whether a subject was erased.
    pub subjects_erased: bool,
}

/// A delivery whose attempt is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// Which.
    pub delivery: DeliverySeq,
    /// Whose.
    pub subscription: SubscriptionSeq,
    /// When it is tried again.
    pub next_due: Option<Timestamp>,
}

/// What the attempts of a transaction mean for one subscription; written as one UPDATE before COMMIT.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AttemptSummary {
    /// The failures in a row, those before this transaction included; `None` until one is looked at.
    pub(crate) streak: Option<Streak>,
    pub(crate) failures_since_success: u32,
    pub(crate) first_failure_at: Option<Timestamp>,
    pub(crate) last_success_at: Option<Timestamp>,
    pub(crate) last_failure_at: Option<Timestamp>,
}

/// What the writer keeps between transactions, so that routing reads it once.
#[derive(Debug, Default)]
pub(crate) struct Remembered {
    /// The live subscriptions.
    pub(crate) routes: RefCell<Option<Arc<Vec<Subscription>>>>,
    /// What the file remembers of its latest restore.
    pub(crate) fence: Cell<Option<Fence>>,
    /// The subscriptions that have a hold.
    pub(crate) held: RefCell<Option<BTreeSet<i64>>>,
}

impl Remembered {
    /// Lets all of it be read again.
    pub(crate) fn forget(&self) {
        self.held.replace(None);
        self.routes.replace(None);
        self.fence.set(None);
    }
}

/// Writes and reads in one transaction.
#[derive(Debug)]
pub struct WriteTx<'c> {
    read: ReadTx<'c>,
    remembered: &'c Remembered,
    effects: RefCell<Effects>,
    attempts: RefCell<BTreeMap<i64, AttemptSummary>>,
    /// Whether [`WriteTx::is_first_look`] was asked.
    has_looked: Cell<bool>,
}

impl<'c> Deref for WriteTx<'c> {
    type Target = ReadTx<'c>;

    fn deref(&self) -> &Self::Target {
        &self.read
    }
}

impl<'c> WriteTx<'c> {
    pub(crate) fn new(conn: &'c Connection, remembered: &'c Remembered) -> Self {
        Self {
            read: ReadTx::new(conn),
            remembered,
            effects: RefCell::default(),
            attempts: RefCell::default(),
            has_looked: Cell::new(false),
        }
    }

    /// Whether this is the first time that this transaction asks; nobody else commits while it lasts.
    pub(crate) fn is_first_look(&self) -> bool {
        !self.has_looked.replace(true)
    }

    /// Runs a part in a savepoint: if it fails, nothing of it stays in the file. The subscriptions it rang are still
    /// rung, which costs them a look. The inner error is the part's.
    /// Fails when the whole transaction is lost.
    pub(crate) fn apart<T>(&self, part: impl FnOnce() -> Result<T>) -> Result<Result<T>> {
        self.conn().execute_batch("SAVEPOINT part")?;
        let done = part();
        let end = if done.is_ok() { "RELEASE part" } else { "ROLLBACK TO part; RELEASE part" };
        match (done, self.conn().execute_batch(end)) {
            // A full disk undoes everything at once.
            (Err(error), Err(_gone)) => Err(error),
            (done, ended) => Ok(ended.map(|()| done)?),
        }
    }

    pub(crate) fn routes(&self) -> &RefCell<Option<Arc<Vec<Subscription>>>> {
        &self.remembered.routes
    }

    /// What the writer keeps of the latest restore. `meta` fills it.
    pub(super) fn kept_fence(&self) -> &Cell<Option<Fence>> {
        &self.remembered.fence
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

    /// The subscriptions that have a hold, where they were read. `holds` fills it.
    pub(super) fn held(&self) -> &RefCell<Option<BTreeSet<i64>>> {
        &self.remembered.held
    }

    pub(crate) fn settled(&self, settled: Settled) {
        self.effects.borrow_mut().settled.push(settled);
    }

    pub(crate) fn subscriptions_changed(&self) {
        self.effects.borrow_mut().subscriptions_changed = true;
        self.remembered.routes.replace(None);
    }

    pub(crate) fn providers_changed(&self) {
        self.effects.borrow_mut().providers_changed = true;
    }

    pub(crate) fn tokens_changed(&self) {
        self.effects.borrow_mut().tokens_changed = true;
    }

    pub(crate) fn sources_changed(&self) {
        self.effects.borrow_mut().sources_changed = true;
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

    /// What this transaction has noted of a subscription's attempts so far.
    pub(crate) fn noted_attempts(&self, subscription: SubscriptionSeq) -> AttemptSummary {
        self.attempts.borrow().get(&subscription.0).copied().unwrap_or_default()
    }

    pub(crate) fn take_attempts(&self) -> BTreeMap<i64, AttemptSummary> {
        self.attempts.take()
    }

    pub(crate) fn into_effects(self) -> Effects {
        self.effects.into_inner()
    }
}

/// Runs a statement that must change exactly one row.
pub(crate) fn one_row(changed: usize, what: &'static str) -> Result<()> {
    if changed == 1 { Ok(()) } else { Err(crate::store::error::Error::Changed(what)) }
}

/// Collects the rows of a query through a row function that may find a value unreadable.
pub(crate) fn rows<T>(
    statement: &mut Statement<'_>,
    params: impl rusqlite::Params,
    mut row: impl FnMut(&rusqlite::Row<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    let mut found = statement.query(params)?;
    let mut all = Vec::new();
    while let Some(next) = found.next()? {
        all.push(row(next)?);
    }
    Ok(all)
}

/// The first row of a query, if there is one.
pub(crate) fn first<T>(
    statement: &mut Statement<'_>,
    params: impl rusqlite::Params,
    row: impl FnOnce(&rusqlite::Row<'_>) -> Result<T>,
) -> Result<Option<T>> {
    let mut found = statement.query(params)?;
    match found.next()? {
        Some(next) => row(next).map(Some),
        None => Ok(None),
    }
}
