//! Table `escalations`: failures that a person must see. Each is raised and resolved in the transaction of
//! its cause.

use crate::model::audit::changes::Changes;
use crate::model::audit::{Actor, NewAuditEvent};
use crate::model::escalation::{CALM_AFTER, Class, Escalation, NewEscalation, Severity};
use crate::store::column::Count;
use crate::store::page::Newest;
use crate::store::prelude::*;
use crate::store::{audit_events, operational};

const RAISE_AGAIN: &str = "
    UPDATE escalations SET last_at = ?5, count = count + 1, detail = ?4
     WHERE tenant = ?1 AND class = ?2 AND subject = ?3 AND resolved_at IS NULL";

// The latest one of its cause, if it ended a short time ago and nobody has acknowledged it. One that ended later than can be
// ended before the clock was set back.
const REOPEN: &str = "
    UPDATE escalations
       SET resolved_at = NULL, reopened_at = ?5, last_at = ?5, count = count + 1, detail = ?4
     WHERE seq = (SELECT seq FROM escalations
                   WHERE tenant = ?1 AND class = ?2 AND subject = ?3 ORDER BY seq DESC LIMIT 1)
       AND resolved_at > ?6 AND acknowledged_at IS NULL
    RETURNING id";

const OPEN_COUNT: &str = "
    SELECT count FROM escalations
     WHERE tenant = ?1 AND class = ?2 AND subject = ?3 AND resolved_at IS NULL";

const RESOLVE: &str = "
    UPDATE escalations SET resolved_at = ?4
     WHERE tenant = ?1 AND class = ?2 AND subject = ?3 AND resolved_at IS NULL
    RETURNING id, detail, reopened_at";

const ACKNOWLEDGE: &str = "
    UPDATE escalations
       SET acknowledged_at = ?2, acknowledged_by = ?3, resolved_at = iif(?4, ?2, resolved_at)
     WHERE seq = ?1 AND acknowledged_at IS NULL";

columns! {
    /// Reads an escalation.
    fn read() -> Escalation = "escalations" [
        seq, id, tenant, class, subject, detail, first_at, last_at, count as Count(count), acknowledged_at,
        acknowledged_by, resolved_at, reopened_at
    ] {
        seq, new: NewEscalation { id, tenant, class, subject, detail }, first_at, last_at, count, acknowledged_at,
        acknowledged_by, resolved_at, reopened_at
    }
    /// An escalation by its number.
    pub(crate) fn by_seq(seq: i64) -> Option = "WHERE seq = ?1";
    /// An escalation by its id.
    pub fn by_id(tenant: &str, id: &str) -> Option = "WHERE tenant = ?1 AND id = ?2";
    // Classes (?4) are a JSON array.
    pub(super) const PAGE = "WHERE tenant = ?1 AND seq < ?2
            AND (?4 IS NULL OR class IN (SELECT value FROM json_each(?4))) AND (?5 IS NULL OR subject = ?5)
          ORDER BY seq DESC LIMIT ?3";
    pub(super) const PAGE_OF_OPEN = "WHERE tenant = ?1 AND seq < ?2 AND resolved_at IS NULL
            AND (?4 IS NULL OR class IN (SELECT value FROM json_each(?4))) AND (?5 IS NULL OR subject = ?5)
          ORDER BY seq DESC LIMIT ?3";
}

// Served by the partial index of those that are open.
const OPEN: &str = "
    SELECT class, count(*), count(*) FILTER (WHERE acknowledged_at IS NULL) FROM escalations
     WHERE resolved_at IS NULL
     GROUP BY class";

queries! {
    /// Tenant and subject of escalations about dead letters where none is left: none is dead or parked, and none that is
    /// sent again is still open.
    pub fn without_dead(limit: u32) -> Vec<(String, String)> = rows as tuple "
    SELECT e.tenant, e.subject FROM escalations AS e
      JOIN subscriptions AS s ON s.tenant = e.tenant AND s.name = substr(e.subject, 14) AND s.deleted_at IS NULL
     WHERE e.resolved_at IS NULL AND e.class = 'delivery.dead_lettered'
       AND NOT EXISTS (SELECT 1 FROM deliveries WHERE subscription_seq = s.seq AND state = 'dead_letter')
       AND NOT EXISTS (SELECT 1 FROM deliveries WHERE subscription_seq = s.seq AND state = 'parked')
       AND NOT EXISTS (SELECT 1 FROM deliveries
                        WHERE subscription_seq = s.seq AND run_no > 1 AND finished_at IS NULL)
     LIMIT ?1";
}

/// Raises an escalation: a new row, or one more of the open one, or the latest one again if it comes and goes and
/// ended less than [`CALM_AFTER`] ago. Tells whether it was not open before; then it is audited as Oncebox's own doing.
pub fn raise(tx: &WriteTx<'_>, new: &NewEscalation, now: Timestamp) -> Result<bool> {
    let NewEscalation { id, tenant, class, subject, detail } = new;
    let may_be_reopened = class.comes_and_goes();
    let class = class.as_str();
    if tx.execute(RAISE_AGAIN, (tenant, class, subject, detail, now))? == 1 {
        return Ok(false);
    }
    let calm_since = now.minus(CALM_AFTER);
    let key = (tenant, class, subject, detail, now, calm_since);
    let reopened: Option<String> =
        if may_be_reopened { tx.first(REOPEN, key, |row| Ok(row.get(0)?))? } else { None };
    let id = reopened.as_ref().unwrap_or(id);
    if reopened.is_none() {
        insert!(tx, "escalations" { id, tenant, class, subject, detail, first_at: now, last_at: now })?;
    }
    let changes = Changes::none().and("class", class).and("subject", subject.as_str());
    let event = NewAuditEvent::local(now, tenant, Actor::system(), "escalation.raise");
    audit_events::append(tx, &event.of("escalation", id, changes.and("detail", detail.as_str())))?;
    let new = NewEscalation { id: id.clone(), ..new.clone() };
    operational::raised(tx, &new, reopened.map(|_| now), now)?;
    Ok(true)
}

/// How often the open escalation of a cause was raised; 0 where none is open.
pub fn open_count(tx: &ReadTx<'_>, tenant: &str, class: Class, subject: &str) -> Result<u64> {
    let key = (tenant, class.as_str(), subject);
    Ok(tx.find(OPEN_COUNT, key)?.map_or(0, |Count(count)| count))
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
    let found: Option<(String, String, Option<Timestamp>)> = tx.first(RESOLVE, key, tuple)?;
    let Some((id, detail, reopened_at)) = found else { return Ok(()) };
    let tenant = tenant.to_owned();
    let subject = subject.to_owned();
    let over = NewEscalation { id, tenant, class, subject, detail };
    operational::resolved(tx, &over, reopened_at, now)
}

/// Ends at most `limit` escalations about dead letters of subscriptions that have none left.
pub fn end_without_dead(tx: &WriteTx<'_>, limit: u32, now: Timestamp) -> Result<()> {
    for (tenant, subject) in without_dead(tx, limit)? {
        resolve(tx, &tenant, Class::DeliveryDead, &subject, now)?;
    }
    Ok(())
}

/// Acknowledges an escalation. Of some classes it is resolved by that.
/// Fails with `Changed` when it was acknowledged before.
pub fn acknowledge(tx: &WriteTx<'_>, seen: &Escalation, by: &str, now: Timestamp) -> Result<()> {
    let ends = seen.new.class.ends_when_seen();
    tx.change_one(ACKNOWLEDGE, (seen.seq, now, by, ends), "the escalation")
}

/// Which escalations a list shows. `None` means any.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Whether those that are over are shown as well.
    pub all: bool,
    /// Their severity.
    pub severity: Option<Severity>,
    /// Their subject.
    pub subject: Option<&'a str>,
}

/// Escalations, newest first, below `before`.
pub fn page(tx: &ReadTx<'_>, newest: Newest<'_>, wanted: Wanted<'_>) -> Result<Vec<Escalation>> {
    let Newest { tenant, before, limit } = newest;
    let Wanted { all, severity, subject } = wanted;
    let sql = if all { PAGE } else { PAGE_OF_OPEN };
    let classes = severity.map(|severity| {
        let all = Class::ALL.into_iter().filter(|class| class.severity() == severity);
        serde_json::json!(all.map(Class::as_str).collect::<Vec<_>>()).to_string()
    });
    tx.rows(sql, (tenant, before, limit, classes, subject), read)
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
    tx.rows(OPEN, [], |row| {
        let (class, Count(count), Count(unseen)) = tuple(row)?;
        Ok(Open { class, count, unseen })
    })
}
