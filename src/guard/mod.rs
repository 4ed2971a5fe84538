//! For a consumer written in Rust: an effect that happens once, however often its webhook comes.
//!
//! The guard and the effect are one transaction in the consumer's own database: what was done is known, and
//! what is known was done, through crashes at any moment. Statements for other languages and databases are in
//! `packaging/sql/`; `docs/guards.md` says which guard is right where. Not here: the guard of a consumer
//! without a database, which is `POST /v1/processed-events`.

mod store;

use rusqlite::Transaction;

pub(crate) use store::Savepoint;

/// The tables that the guards keep in the consumer's file. They are made when they are first needed; this is
/// for who would rather make them in a migration. Running it again does nothing.
pub const TABLE: &str = store::TABLES;

/// Characters of a consumer group at most.
const MAX_GROUP_CHARS: usize = 64;
/// Characters of an event's id or an entity's name at most.
const MAX_ID_CHARS: usize = 255;

/// What a guard did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a webhook that was done before is acknowledged, too"]
pub enum Once<T> {
    /// The effect was carried out, now, with this result. It holds when the transaction is committed.
    Done(T),
    /// It was carried out before, or by a newer version: nothing was done. Acknowledge the webhook.
    Before,
}

impl<T> Once<T> {
    /// The effect's result, if it was carried out now.
    pub fn done(self) -> Option<T> {
        match self {
            Self::Done(result) => Some(result),
            Self::Before => None,
        }
    }
}

/// Why a guard could not tell. Nothing was done; the webhook has to come again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name that no row can hold.
    #[error("the guard's {what} has {have} characters; it must have 1 to {most}")]
    Name {
        /// Which.
        what: &'static str,
        /// How many it has.
        have: usize,
        /// How many it may have.
        most: usize,
    },
    /// What SQLite says: that the file is locked, or that it has a `processed_events` of another shape.
    #[error("the guard could not be claimed: {0}")]
    Sqlite(#[from] rusqlite::Error),
}

/// So that a closure that only does SQL needs no error of its own.
impl From<Error> for rusqlite::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Sqlite(error) => error,
            named @ Error::Name { .. } => Self::ToSqlConversionFailure(Box::new(named)),
        }
    }
}

/// Carries out an effect unless this consumer group has done so for this event, in the caller's transaction.
///
/// `event_id` is the `webhook-id`. The effect has to use the transaction it is given, and nothing that this
/// transaction does not undo: what it calls over the network happens again after a crash. When it fails, the
/// claim is undone with it, even if the caller goes on to commit.
///
/// ```
/// use oncebox::guard::{self, Once};
/// use oncebox::rusqlite::{Connection, Transaction, TransactionBehavior};
///
/// fn book(tx: &Transaction<'_>, number: i64) -> oncebox::rusqlite::Result<()> {
///     tx.execute("INSERT INTO bookings (invoice) VALUES (?1)", [number]).map(drop)
/// }
///
/// # fn main() -> oncebox::rusqlite::Result<()> {
/// # let mut ledger = Connection::open_in_memory()?;
/// # ledger.execute_batch("CREATE TABLE bookings (invoice INTEGER NOT NULL)")?;
/// for expected in [Once::Done(()), Once::Before, Once::Before] {
///     let tx = ledger.transaction_with_behavior(TransactionBehavior::Immediate)?;
///     let once = guard::once(&tx, "accounting", "evt_1", |tx| book(tx, 4711))?;
///     tx.commit()?; // only now answer 2xx
///     assert_eq!(once, expected);
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// The effect's own, or [`Error`] turned into it; then nothing was done.
pub fn once<T, E: From<Error>>(
    tx: &Transaction<'_>,
    consumer_group: &str,
    event_id: &str,
    effect: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
) -> Result<Once<T>, E> {
    named("consumer group", consumer_group, MAX_GROUP_CHARS)?;
    named("event id", event_id, MAX_ID_CHARS)?;
    let claim = || store::claim(tx, consumer_group, event_id);
    guarded(tx, claim, effect)
}

/// Carries out an effect only when its version of the entity is newer than the last one this consumer group has
/// carried out: for events that carry a whole state, of which the latest counts.
///
/// A repeated event has the same version, so it is not carried out again; one that was overtaken is not
/// carried out at all. The version is whatever grows with each change at the source: a row version, a sequence
/// number, the time of the change in milliseconds.
///
/// ```
/// use oncebox::guard::{self, Once};
/// # use oncebox::rusqlite::{Connection, Result, TransactionBehavior};
/// # let mut stock = Connection::open_in_memory()?;
/// # stock.execute_batch("CREATE TABLE stock (article TEXT PRIMARY KEY, pieces INTEGER NOT NULL)")?;
/// # let mut set = |version, pieces: i64| -> Result<Once<usize>> {
/// # let tx = stock.transaction_with_behavior(TransactionBehavior::Immediate)?;
/// let once = guard::once_newer(&tx, "warehouse", "article/17", version, |tx| {
///     tx.execute("INSERT OR REPLACE INTO stock VALUES ('17', ?1)", [pieces])
/// })?;
/// # tx.commit()?;
/// # Ok(once)
/// # };
/// # assert_eq!(set(2, 40)?, Once::Done(1));
/// # assert_eq!(set(1, 50)?, Once::Before);
/// # assert_eq!(set(2, 40)?, Once::Before);
/// # Ok::<(), oncebox::rusqlite::Error>(())
/// ```
///
/// # Errors
/// The effect's own, or [`Error`] turned into it; then nothing was done.
pub fn once_newer<T, E: From<Error>>(
    tx: &Transaction<'_>,
    consumer_group: &str,
    entity: &str,
    version: i64,
    effect: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
) -> Result<Once<T>, E> {
    named("consumer group", consumer_group, MAX_GROUP_CHARS)?;
    named("entity", entity, MAX_ID_CHARS)?;
    let claim = || store::claim_newer(tx, consumer_group, entity, version);
    guarded(tx, claim, effect)
}

fn guarded<T, E: From<Error>>(
    tx: &Transaction<'_>,
    claim: impl FnOnce() -> rusqlite::Result<bool>,
    effect: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
) -> Result<Once<T>, E> {
    let savepoint = Savepoint::begin(tx).map_err(Error::from)?;
    let once = if claim().map_err(Error::from)? { Once::Done(effect(tx)?) } else { Once::Before };
    savepoint.keep().map_err(Error::from)?;
    Ok(once)
}

fn named(what: &'static str, name: &str, most: usize) -> Result<(), Error> {
    let have = name.chars().count();
    if (1..=most).contains(&have) { Ok(()) } else { Err(Error::Name { what, have, most }) }
}
