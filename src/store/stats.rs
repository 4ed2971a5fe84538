//! Counts over several tables, and a test write. Inspecting a file without serving it: its integrity, its schema and what
//! needs attention.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use crate::model::duty::Chore;
use crate::model::hold::HoldReason;
use crate::model::in_doubt::Window;
use crate::store::column::Count;
use crate::store::prelude::*;
use crate::store::{chores, holds, meta, pool, quarantine, schema, schema_shape, tenants};

// A partial index serves each count. The statement must repeat the condition of the index literally.
pub(super) const COUNTS: &str = "
    SELECT (SELECT count(*) FROM subscriptions WHERE tenant = ?1 AND deleted_at IS NULL),
           (SELECT count(*)
              FROM subscriptions AS s
              JOIN deliveries AS d ON d.subscription_seq = s.seq
             WHERE s.tenant = ?1 AND d.state = 'pending' AND d.head = 1)
         + (SELECT count(*)
              FROM subscriptions AS s
              JOIN deliveries AS d ON d.subscription_seq = s.seq
             WHERE s.tenant = ?1 AND d.state = 'pending' AND d.head = 0),
           (SELECT count(*)
              FROM deliveries
             WHERE state = 'dead_letter'
               AND tenant = ?1),
           (SELECT count(*)
              FROM deliveries
             WHERE state = 'in_doubt'
               AND tenant = ?1),
           (SELECT min((SELECT min(d.due_at)
                          FROM deliveries AS d
                         WHERE d.subscription_seq = s.seq
                           AND d.state = 'pending'
                           AND d.head = 1))
              FROM subscriptions AS s
             WHERE s.tenant = ?1
               AND s.deleted_at IS NULL
               AND NOT EXISTS (SELECT 1 FROM holds AS h WHERE h.subscription_seq IN (s.seq, 0))),
           (SELECT count(*)
              FROM deliveries
             WHERE state = 'leased'
               AND tenant = ?1),
           (SELECT count(*)
              FROM deliveries
             WHERE state = 'parked'
               AND tenant = ?1)";

// Over all tenants. Held deliveries are not overdue, and pull deliveries wait for their consumers. Costs one seek per
// subscription.
pub(super) const OVERDUE: &str = "
    SELECT min((SELECT min(d.due_at)
                  FROM deliveries AS d
                 WHERE d.subscription_seq = s.seq
                   AND d.state = 'pending'
                   AND d.head = 1))
      FROM subscriptions AS s
     WHERE s.deleted_at IS NULL AND s.target_kind = 'http'
       AND NOT EXISTS (SELECT 1 FROM holds AS h WHERE h.subscription_seq IN (s.seq, 0))";

pub(super) const DEAD: &str = "SELECT count(*) FROM deliveries WHERE state = 'dead_letter'";

pub(super) const IN_DOUBT: &str = "SELECT count(*) FROM deliveries WHERE state = 'in_doubt'";

pub(super) const DEPTH: &str = "
    SELECT count(*) + (SELECT count(*) FROM deliveries WHERE state = 'pending' AND head = 0),
           count(*) FILTER (WHERE due_at <= ?1)
      FROM deliveries WHERE state = 'pending' AND head = 1";

pub(super) const LEASED: &str = "SELECT count(*) FROM deliveries WHERE state = 'leased'";

const QUICK: &str = "PRAGMA quick_check(5)";
const DEEP: &str = "PRAGMA integrity_check(5)";
/// The count of orphaned rows stops here.
const MAX_ORPHANS: usize = 1000;

/// What may need a person's attention, over all tenants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attention {
    /// The earliest due time of a delivery that is not held.
    pub oldest_due_at: Option<Timestamp>,
    /// Deliveries that were given up.
    pub dead_letters: u64,
    /// How many holds exist, by reason.
    pub holds: Vec<(HoldReason, u64)>,
    /// Events that cannot be used.
    pub quarantined: u64,
    /// Deliveries that may have been made before a restore.
    pub in_doubt: u64,
    /// After a restore: in which time new events are held for review.
    pub window: Option<Window>,
    /// The periodic duties; none in an older file.
    pub chores: Vec<Chore>,
}

/// The counts of [`Attention`], which read an index each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttentionCounts {
    /// Deliveries that were given up.
    pub dead_letters: u64,
    /// Events that cannot be used.
    pub quarantined: u64,
    /// Deliveries that may have been made before a restore.
    pub in_doubt: u64,
}

impl AttentionCounts {
    /// How many rows were counted.
    pub const fn rows(&self) -> u64 {
        self.dead_letters.saturating_add(self.quarantined).saturating_add(self.in_doubt)
    }
}

/// Counts what needs attention, over all tenants.
pub fn attention_counts(tx: &ReadTx<'_>) -> Result<AttentionCounts> {
    let dead_letters = tx.count(DEAD, [])?;
    let quarantined = quarantine::count(tx)?;
    let in_doubt = tx.count(IN_DOUBT, [])?;
    Ok(AttentionCounts { dead_letters, quarantined, in_doubt })
}

/// What needs attention; costs one seek per subscription, and the counts.
pub fn attention(tx: &ReadTx<'_>) -> Result<Attention> {
    attention_in(tx, attention_counts(tx)?, true)
}

/// What needs attention, with counts that are known.
pub fn attention_with(tx: &ReadTx<'_>, counts: AttentionCounts) -> Result<Attention> {
    attention_in(tx, counts, true)
}

/// What needs attention, in a file that may be of an older version.
fn attention_in(tx: &ReadTx<'_>, counts: AttentionCounts, is_known: bool) -> Result<Attention> {
    let AttentionCounts { dead_letters, quarantined, in_doubt } = counts;
    let oldest_due_at = tx.value(OVERDUE, [])?;
    let holds = holds::count(tx)?;
    let window = meta::fence(tx)?.window;
    let chores = if is_known { chores::all(tx)? } else { Vec::new() };
    Ok(Attention { oldest_due_at, dead_letters, holds, quarantined, in_doubt, window, chores })
}

/// How many deliveries are pending, and how many of them are due, over all tenants. Reads a whole index.
pub fn depth(tx: &ReadTx<'_>, now: Timestamp) -> Result<(u64, u64)> {
    let found = tx.first(DEPTH, [now], tuple)?;
    Ok(found.map_or((0, 0), |(Count(all), Count(due))| (all, due)))
}

queries! {
    /// How many deliveries consumers have, over all tenants.
    pub fn leased() -> u64 = count LEASED;
}

changes! {
    /// Writes a row, to check that the database is writable: SQLite writes and syncs the log.
    pub fn probe() then mark_unseen = "
    INSERT INTO meta (key, value) VALUES ('probe', 0)
        ON CONFLICT (key) DO UPDATE SET value = (meta.value + 1) % 1000";
}

/// Counts of one tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TenantCounts {
    pub subscriptions: u64,
    /// Deliveries that wait, due or not.
    pub pending: u64,
    /// Deliveries that are leased to consumers.
    pub leased: u64,
    /// Deliveries that were given up.
    pub dead_letters: u64,
    /// Deliveries that may have been sent before a restore.
    pub in_doubt: u64,
    /// Deliveries that were taken out of their lanes and wait for a person.
    pub parked: u64,
    /// Events that cannot be used and wait for a person.
    pub quarantined: u64,
    /// When the most overdue delivery was due, without deliveries that are held.
    pub oldest_due_at: Option<Timestamp>,
}

impl TenantCounts {
    /// How many rows were counted.
    pub fn rows(&self) -> u64 {
        let Self { pending, leased, dead_letters, in_doubt, parked, quarantined, .. } = *self;
        [pending, leased, dead_letters, in_doubt, parked, quarantined].into_iter().sum()
    }
}

/// Counts what a tenant has.
pub fn counts(tx: &ReadTx<'_>, tenant: &str) -> Result<TenantCounts> {
    let quarantined = quarantine::count_of(tx, tenant)?;
    let counts = tx.prepare(COUNTS)?.query_row([tenant], |row| {
        let (Count(subscriptions), Count(pending), Count(dead_letters), Count(in_doubt)) =
            row.try_into()?;
        let oldest_due_at = row.get(4)?;
        let Count(leased) = row.get(5)?;
        let Count(parked) = row.get(6)?;
        Ok(TenantCounts {
            subscriptions,
            pending,
            leased,
            dead_letters,
            in_doubt,
            parked,
            quarantined,
            oldest_due_at,
        })
    });
    Ok(counts?)
}

/// What the inspection found.
#[derive(Clone, Debug)]
pub struct Findings {
    /// What is damaged; empty if nothing is.
    pub damage: Vec<String>,
    /// Rows that refer to rows that do not exist.
    pub orphans: u64,
    /// The journal mode, which must be `wal`.
    pub journal_mode: String,
    /// The schema's version.
    pub version: i64,
    /// The newest version this program knows.
    pub version_known: i64,
    /// The id of the key that sealed its secrets.
    pub key_id: Option<String>,
    /// Whether somebody has stated the privacy policy of the tenant `default`; `None` in an older file.
    pub pii_stated: Option<bool>,
    /// What may need a person's attention.
    pub attention: Attention,
}

/// Inspects a file; a service may be using it. `deep` also compares the indexes with their tables, which takes as long
/// as reading the whole file.
pub fn inspect(path: &Path, deep: bool) -> Result<Findings> {
    let conn = pool::open_reader(path)?;
    let mut statement = conn.prepare(if deep { DEEP } else { QUICK })?;
    let lines = statement.query_map([], |row| row.get::<_, String>(0))?;
    let messages = lines.collect::<std::result::Result<Vec<_>, _>>()?;
    let orphans = schema_shape::orphans(&conn, MAX_ORPHANS)?.len();
    let tx = ReadTx::new(&conn);
    let version = conn.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let is_known = version == schema::VERSION;
    Ok(Findings {
        damage: messages.into_iter().filter(|line| line != "ok").collect(),
        orphans: u64::try_from(orphans).unwrap_or(u64::MAX),
        journal_mode: conn.query_row("PRAGMA journal_mode", [], |row| row.get(0))?,
        version,
        pii_stated: is_known.then(|| tenants::is_pii_stated(&tx)).transpose()?,
        version_known: schema::VERSION,
        key_id: meta::master_key_id(&tx)?,
        attention: attention_in(&tx, attention_counts(&tx)?, is_known)?,
    })
}
