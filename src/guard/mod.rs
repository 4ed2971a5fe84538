//! For consumers in Rust: makes an effect happen once, even if its webhook comes several times.
//!
//! Guard and effect are in one transaction of the consumer's own database, so that a crash at any moment loses or repeats
//! nothing. `packaging/sql/` has the statements for other languages and databases; `docs/guards.md` helps to choose a
//! guard. Not here: the guard of a consumer without a database (`POST /v1/processed-events`).

mod store;

use rusqlite::Transaction;

pub(crate) use store::Savepoint;

/// The SQL that creates the guards' tables in the consumer's file. They are created automatically when first needed; use
/// this to create them in a migration. Running it again does nothing.
pub const TABLE: &str = store::TABLES;

/// The longest name of a consumer group, in characters.
const MAX_GROUP_CHARS: usize = 64;
/// The longest id of an event or name of an entity, in characters.
const MAX_ID_CHARS: usize = 255;

/// The result of a guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "acknowledge a webhook that was done before, too"]
pub enum Once<T> {
    /// The effect was applied now, with this result. It takes effect when the transaction is committed.
    Done(T),
    /// The event, or a newer version, was applied before: nothing was done. Acknowledge the webhook.
    Before,
}

impl<T> Once<T> {
    /// The effect's result, if it was applied now.
    pub fn done(self) -> Option<T> {
        match self {
            Self::Done(result) => Some(result),
            Self::Before => None,
        }
    }
}

/// Why a guard failed. Nothing was done; the webhook must be sent again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name is too short or too long.
    #[error("the guard's {what} has {have} characters; it must have 1 to {most}")]
    Name {
        /// The name's field.
        what: &'static str,
        /// Its number of characters.
        have: usize,
        /// The largest number of characters.
        most: usize,
    },
    /// SQLite failed: for example the file is locked, or its `processed_events` has other columns.
    #[error("the guard could not be claimed: {0}")]
    Sqlite(#[from] rusqlite::Error),
}

/// Lets a closure that only runs SQL return [`rusqlite::Error`].
impl From<Error> for rusqlite::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Sqlite(error) => error,
            named @ Error::Name { .. } => Self::ToSqlConversionFailure(Box::new(named)),
        }
    }
}

/// Applies an effect in the caller's transaction, unless this consumer group has already applied this event.
///
/// `event_id` is the `webhook-id`. The effect must use the given transaction, and nothing that the transaction cannot roll
/// back: calls over the network would happen again after a crash. If the effect fails, effect and claim are rolled back,
/// even if the caller commits the transaction, and the error is returned.
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
pub fn once<T, E: From<Error>>(
    tx: &Transaction<'_>,
    consumer_group: &str,
    event_id: &str,
    effect: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
) -> Result<Once<T>, E> {
    check_length("consumer group", consumer_group, MAX_GROUP_CHARS)?;
    check_length("event id", event_id, MAX_ID_CHARS)?;
    let claim = || store::claim(tx, consumer_group, event_id);
    guarded(tx, claim, effect)
}

/// Applies an effect only if its version of the entity is newer than the last one that this consumer group has applied. For
/// events that carry a complete state, of which only the latest counts.
///
/// A repeated event has the same version, so it is not applied again; an overtaken event is not applied at all. The
/// version is any number that grows with each change at the source: a row version, a sequence number, or the time of the
/// change in milliseconds. If the effect fails, effect and claim are rolled back, as with [`once`].
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
pub fn once_newer<T, E: From<Error>>(
    tx: &Transaction<'_>,
    consumer_group: &str,
    entity: &str,
    version: i64,
    effect: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
) -> Result<Once<T>, E> {
    check_length("consumer group", consumer_group, MAX_GROUP_CHARS)?;
    check_length("entity", entity, MAX_ID_CHARS)?;
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

fn check_length(what: &'static str, name: &str, most: usize) -> Result<(), Error> {
    let have = name.chars().count();
    if (1..=most).contains(&have) { Ok(()) } else { Err(Error::Name { what, have, most }) }
}
