//! Table `legal_holds`: events that are kept whatever the settings say.
//!
//! They stay where they are: the database does not give them to the archive, and no file with one is deleted.

use schemars::JsonSchema;
use serde::Serialize;

use crate::base::schema::{NameText, Text};
use crate::model::name::Name;
use crate::store::column::Count;
use crate::store::page::number_at;
use crate::store::prelude::*;
use crate::store::{outbox_lists, webhook_events};

/// Numbers of events that one query compares.
const COMPARED_AT_ONCE: i64 = 20_000;
/// The most of one tenant: each costs a comparison for each event.
pub const MAX_OF_TENANT: u64 = 100;

/// Whether `h`, a hold, is about the row `e` of `outbox` or `webhook_events`.
macro_rules! is_held_by {
    ("outbox") => {
        concat!(
            is_held_by!(@),
            " AND (h.aggregate_type IS NULL OR h.aggregate_type = e.aggregate_type)
              AND (h.aggregate_id IS NULL OR h.aggregate_id = e.aggregate_id)"
        )
    };
    ("webhook_events") => {
        concat!(is_held_by!(@), " AND h.aggregate_type IS NULL AND h.aggregate_id IS NULL")
    };
    (@) => {
        "h.tenant = e.tenant AND h.deleted_at IS NULL AND (h.event_type IS NULL OR h.event_type = e.event_type)
         AND (h.since IS NULL OR e.received_at >= h.since) AND (h.until IS NULL OR e.received_at < h.until)"
    };
}

/// Whether an event `e` is finished, and has what can be removed.
macro_rules! can_be_expunged {
    ($events:tt) => {
        concat!(
            "e.expunged_at IS NULL AND e.open_deliveries = 0
             AND e.status IN ('completed', 'skipped', 'cancelled')
             AND NOT EXISTS (SELECT 1 FROM legal_holds AS h WHERE ",
            is_held_by!($events),
            ")"
        )
    };
}
pub(crate) use {can_be_expunged, is_held_by};

/// What a hold is about. What is absent is any.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "LegalHoldTerms")]
pub struct Terms {
    /// Why they must be kept.
    #[schemars(with = "Text<1, 500>")]
    pub reason: String,
    /// The exact type.
    pub event_type: Option<String>,
    /// The aggregate's type. With it or `aggregate_id`, no webhook event is meant.
    pub aggregate_type: Option<String>,
    /// The aggregate's id.
    pub aggregate_id: Option<String>,
    /// Received from this time on.
    pub since: Option<Timestamp>,
    /// Received before this time.
    pub until: Option<Timestamp>,
}

/// A hold in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LegalHold {
    /// Its number in the file.
    #[serde(skip)]
    pub seq: i64,
    /// Its id.
    pub id: String,
    /// Its tenant.
    #[serde(skip)]
    pub tenant: String,
    #[schemars(with = "NameText")]
    pub name: String,
    #[serde(flatten)]
    pub terms: Terms,
    pub created_at: Timestamp,
}

columns! {
    fn legal_hold() -> LegalHold = "legal_holds" [
        seq, id, tenant, name, reason, event_type, aggregate_type, aggregate_id, since, until, created_at
    ] {
        seq, id, tenant, name,
        terms: Terms { reason, event_type, aggregate_type, aggregate_id, since, until }, created_at
    }
    /// A hold by its name.
    pub fn by_name(tenant: &str, name: &str) -> Option = "WHERE tenant = ?1 AND name = ?2 AND deleted_at IS NULL";
    /// The holds of a tenant by number, after `after`.
    pub fn page(tenant: &str, after: i64, limit: u32) -> Vec =
        "WHERE tenant = ?1 AND seq > ?2 AND deleted_at IS NULL ORDER BY seq LIMIT ?3";
    /// The holds of all tenants.
    pub fn all() -> Vec = "WHERE deleted_at IS NULL ORDER BY seq";
}

const COUNT: &str = "SELECT count(*) FROM legal_holds WHERE tenant = ?1 AND deleted_at IS NULL";

/// Whether a file has an event that a hold is about; the hold is that of ?1 to ?6, since the file has none.
const HOLDS: &str = concat!(
    "WITH h (tenant, event_type, aggregate_type, aggregate_id, since, until, deleted_at) AS (
          VALUES (?1, ?2, ?3, ?4, ?5, ?6, NULL))
     SELECT EXISTS (SELECT 1 FROM h JOIN outbox AS e WHERE ",
    is_held_by!("outbox"),
    ") OR EXISTS (SELECT 1 FROM h JOIN webhook_events AS e WHERE ",
    is_held_by!("webhook_events"),
    ")"
);

macro_rules! covered {
    ($events:tt) => {
        concat!(
            "WITH h (tenant, event_type, aggregate_type, aggregate_id, since, until, deleted_at) AS (
                  VALUES (?1, ?2, ?3, ?4, ?5, ?6, NULL))
             SELECT count(*) FROM h JOIN ",
            $events,
            " AS e WHERE e.seq >= ?7 AND e.seq < ?8 AND ",
            is_held_by!($events)
        )
    };
}

const COVERED: &str = covered!("outbox");
const COVERED_WEBHOOK: &str = covered!("webhook_events");

changes! {
    /// Ends a hold.
    /// Fails with `Changed` when there is no such hold.
    pub fn delete(tenant: &str, name: &str, now: Timestamp) of "the legal hold" =
        "UPDATE legal_holds SET deleted_at = ?3 WHERE tenant = ?1 AND name = ?2 AND deleted_at IS NULL";
}

/// Stores a hold; `false` if the tenant has [`MAX_OF_TENANT`].
/// Fails with `Constraint` if its name is taken.
pub fn insert(
    tx: &WriteTx<'_>,
    id: &str,
    tenant: &str,
    name: &Name,
    Terms { reason, event_type, aggregate_type, aggregate_id, since, until }: &Terms,
    created_at: Timestamp,
) -> Result<bool> {
    let Count(count) = tx.value(COUNT, [tenant])?;
    if count >= MAX_OF_TENANT {
        return Ok(false);
    }
    insert!(tx, "legal_holds" {
        id, tenant, name, reason, event_type, aggregate_type, aggregate_id, since, until, created_at
    })?;
    Ok(true)
}

/// Writes the holds into the file of a month, so that its statements see them.
pub fn lend(month: &WriteTx<'_>, holds: &[LegalHold]) -> Result<()> {
    for LegalHold { id, tenant, name, terms, created_at, .. } in holds {
        let Terms { reason, event_type, aggregate_type, aggregate_id, since, until } = terms;
        insert!(month, "legal_holds" {
            id, tenant, name, reason, event_type, aggregate_type, aggregate_id, since, until, created_at
        })?;
    }
    Ok(())
}

/// Removes them again.
pub fn take_back(month: &WriteTx<'_>) -> Result<()> {
    month.execute("DELETE FROM legal_holds", []).map(drop)
}

/// Whether the file of a month has an event of a hold.
pub fn is_in(month: &ReadTx<'_>, hold: &LegalHold) -> Result<bool> {
    let Terms { event_type, aggregate_type, aggregate_id, since, until, .. } = &hold.terms;
    let params = (&hold.tenant, event_type, aggregate_type, aggregate_id, since, until);
    month.value(HOLDS, params)
}

/// How much a hold keeps in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "LegalHoldCover")]
pub struct Cover {
    /// Events that are stored now.
    pub events: u64,
    /// Webhook events that are stored now.
    pub webhook_events: u64,
    /// Whether there may be more: counting all of them would take too long.
    pub more: bool,
}

impl Cover {
    /// The sum of two files.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            events: self.events.saturating_add(other.events),
            webhook_events: self.webhook_events.saturating_add(other.webhook_events),
            more: self.more || other.more,
        }
    }
}

/// Counts the events of a file that a hold is about, until `is_over`.
pub fn cover(
    tx: &ReadTx<'_>,
    tenant: &str,
    terms: &Terms,
    is_over: &impl Fn() -> bool,
) -> Result<Cover> {
    let mut found = Cover::default();
    for (sql, received_from, count) in [
        (COVERED, outbox_lists::RECEIVED_FROM, &mut found.events),
        (COVERED_WEBHOOK, webhook_events::RECEIVED_FROM, &mut found.webhook_events),
    ] {
        let mut at = terms.since.map_or(Ok(0), |since| number_at(tx, received_from, since))?;
        let below = terms.until.map_or(Ok(i64::MAX), |at| number_at(tx, received_from, at))?;
        // After a restore numbers jump far ahead, so the next slice begins at the next row.
        while let Some(first) = tx.first(received_from, [at], |row| Ok(row.get::<_, i64>(0)?))? {
            if first >= below {
                break;
            }
            if is_over() {
                found.more = true;
                break;
            }
            let Terms { event_type, aggregate_type, aggregate_id, since, until, .. } = terms;
            at = first.saturating_add(COMPARED_AT_ONCE).min(below);
            let of = (tenant, event_type, aggregate_type, aggregate_id, since, until, first, at);
            let Count(more) = tx.value(sql, of)?;
            *count += more;
        }
    }
    Ok(found)
}
