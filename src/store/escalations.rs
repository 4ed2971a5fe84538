//! Table `escalations`: failures that a person must see. Each is raised and resolved in the transaction of
//! its cause.

use rusqlite::Row;

use crate::base::clock::Timestamp;
use crate::model::audit::changes::Changes;
use crate::model::audit::{Actor, NewAuditEvent};
use crate::model::escalation::{Class, Escalation, NewEscalation};
use crate::store::column::{count, word};
use crate::store::error::Result;
use crate::store::page::Newest;
use crate::store::tx::{ReadTx, WriteTx, first, one_row, rows};
use crate::store::{audit_events, operational};

const RAISE_AGAIN: &str = "
    UPDATE escalations
       SET last_at = ?5, count = count + 1, detail = ?4
     WHERE tenant = ?1
       AND class = ?2
       AND subject = ?3
       AND resolved_at IS NULL";

const RAISE: &str = "
    INSERT INTO escalations (id, tenant, class, subject, detail, first_at, last_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6)";

const OPEN_COUNT: &str = "
    SELECT count
      FROM escalations
     WHERE tenant = ?1
       AND class = ?2
       AND subject = ?3
       AND resolved_at IS NULL";

const RESOLVE: &str = "
    UPDATE escalations
       SET resolved_at = ?4
     WHERE tenant = ?1
       AND class = ?2
       AND subject = ?3
       AND resolved_at IS NULL
    RETURNING id, detail";

const ACKNOWLEDGE: &str = "
    UPDATE escalations
       SET acknowledged_at = ?2, acknowledged_by = ?3, resolved_at = iif(?4, ?2, resolved_at)
     WHERE seq = ?1
       AND acknowledged_at IS NULL";

/// What [`read`] takes, in its order.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT seq, id, tenant, class, subject, detail, first_at, last_at, count, acknowledged_at,
                acknowledged_by, resolved_at
               FROM escalations
              WHERE tenant = ?1 ",
            $rest
        )
    };
}

const BY_ID: &str = select!("AND id = ?2");

pub(super) const PAGE: &str = select!("AND seq < ?2 ORDER BY seq DESC LIMIT ?3");

pub(super) const PAGE_OF_OPEN: &str =
    select!("AND seq < ?2 AND resolved_at IS NULL ORDER BY seq DESC LIMIT ?3");

// Served by the partial index of those that are open.
const OPEN: &str = "
    SELECT class, count(*), count(*) FILTER (WHERE acknowledged_at IS NULL)
      FROM escalations
     WHERE resolved_at IS NULL
     GROUP BY class";

/// Raises an escalation: a new row, or one more of the open one. Tells whether it is new. The first is
/// audited as Oncebox's own doing.
pub fn raise(tx: &WriteTx<'_>, new: &NewEscalation, now: Timestamp) -> Result<bool> {
    let NewEscalation { id, tenant, class, subject, detail } = new;
    let class = class.as_str();
    if tx.prepare(RAISE_AGAIN)?.execute((tenant, class, subject, detail, now))? == 1 {
        return Ok(false);
    }
    tx.prepare(RAISE)?.execute((id, tenant, class, subject, detail, now))?;
    let changes = Changes::none().and("class", class).and("subject", subject.as_str());
    let event = NewAuditEvent::local(now, tenant, Actor::system(), "escalation.raise");
    audit_events::append(tx, &event.of("escalation", id, changes.and("detail", detail.as_str())))?;
    operational::raised(tx, new, now)?;
    Ok(true)
}

/// How often the open escalation of a cause was raised; 0 where none is open.
pub fn open_count(tx: &ReadTx<'_>, tenant: &str, class: Class, subject: &str) -> Result<u64> {
    let key = (tenant, class.as_str(), subject);
    let found: Option<u64> = first(&mut *tx.prepare(OPEN_COUNT)?, key, |row| Ok(count(row, 0)?))?;
    Ok(found.unwrap_or(0))
}

/// Ends the open escalation of a cause that is gone, if there is one.
pub fn resolve(
    tx: &WriteTx<'_>,
    tenant: &str,
    class: Class,
    subject: &str,
    now: Timestamp,
) -> Result<()> {
    let key = (tenant, class.as_str(), subject, now);
    let found: Option<(String, String)> =
        first(&mut *tx.prepare(RESOLVE)?, key, |row| Ok((row.get(0)?, row.get(1)?)))?;
    match found {
        Some((id, detail)) => {
            operational::resolved(tx, (tenant, class, subject), (&id, &detail), now)
        }
        None => Ok(()),
    }
}

/// Acknowledges an escalation. Of some classes it is resolved by that.
/// Fails with `Changed` when it was acknowledged before.
pub fn acknowledge(tx: &WriteTx<'_>, seen: &Escalation, by: &str, now: Timestamp) -> Result<()> {
    let ends = seen.new.class.ends_when_seen();
    one_row(tx.prepare(ACKNOWLEDGE)?.execute((seen.seq, now, by, ends))?, "the escalation")
}

/// An escalation by its id.
pub fn by_id(tx: &ReadTx<'_>, tenant: &str, id: &str) -> Result<Option<Escalation>> {
    first(&mut *tx.prepare(BY_ID)?, (tenant, id), read)
}

/// Escalations, newest first, below `before`; with `all` those that are over as well.
pub fn page(tx: &ReadTx<'_>, newest: Newest<'_>, all: bool) -> Result<Vec<Escalation>> {
    let Newest { tenant, before, limit } = newest;
    let sql = if all { PAGE } else { PAGE_OF_OPEN };
    rows(&mut *tx.prepare(sql)?, (tenant, before, limit), read)
}

/// How many of a class are open, over all tenants, and how many of these nobody has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// What happened.
    pub class: Class,
    /// Open ones.
    pub count: u64,
    /// Of these: those nobody has seen.
    pub unseen: u64,
}

/// What is open, by class.
pub fn open(tx: &ReadTx<'_>) -> Result<Vec<Open>> {
    rows(&mut *tx.prepare(OPEN)?, [], |row| {
        let class: String = row.get(0)?;
        Ok(Open {
            class: word("escalations.class", &class, Class::parse)?,
            count: count(row, 1)?,
            unseen: count(row, 2)?,
        })
    })
}

/// Reads a row of the columns that the statements here name.
pub(crate) fn read(row: &Row<'_>) -> Result<Escalation> {
    let class: String = row.get(3)?;
    Ok(Escalation {
        seq: row.get(0)?,
        new: NewEscalation {
            id: row.get(1)?,
            tenant: row.get(2)?,
            class: word("escalations.class", &class, Class::parse)?,
            subject: row.get(4)?,
            detail: row.get(5)?,
        },
        first_at: row.get(6)?,
        last_at: row.get(7)?,
        count: count(row, 8)?,
        acknowledged_at: row.get(9)?,
        acknowledged_by: row.get(10)?,
        resolved_at: row.get(11)?,
    })
}
