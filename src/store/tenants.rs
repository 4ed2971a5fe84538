//! Table `tenants`.
//!
//! Suspending a tenant changes no other row: the queries for its tokens ([`crate::store::tokens`]), its providers and
//! the holds of its subscriptions ([`crate::store::holds`]) read `suspended_at`.

use rusqlite::Row;

use crate::base::clock::Timestamp;
use crate::model::name::Name;
use crate::privacy::policy::Pii;
use crate::store::column::word;
use crate::store::error::Result;
use crate::store::tx::{ReadTx, WriteTx, first, one_row, rows};

/// A stored tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// Its number in the file.
    pub seq: i64,
    /// Its name, which every row of the tenant contains; it never changes.
    pub name: Name,
    /// Its title for people.
    pub title: String,
    /// The privacy policy for published events.
    pub pii: Pii,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was suspended: its tokens and new events are refused, and its deliveries wait.
    pub suspended_at: Option<Timestamp>,
}

const INSERT: &str = "
    INSERT INTO tenants (name, title, created_at, pii)
    VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT DO NOTHING";

const MAILS: &str = "
    SELECT mail_count
      FROM tenants
     WHERE name = ?1
       AND mail_day = ?2";

const COUNT_MAIL: &str = "
    UPDATE tenants
       SET mail_count = CASE mail_day WHEN ?2 THEN mail_count ELSE 0 END + 1, mail_day = ?2
     WHERE name = ?1";

/// Selects the columns that [`tenant`] reads, in its order.
macro_rules! select {
    ($rest:literal) => {
        concat!("SELECT seq, name, title, created_at, suspended_at, pii FROM tenants ", $rest)
    };
}

const BY_NAME: &str = select!("WHERE name = ?1");

const PAGE: &str = select!("WHERE seq > ?1 ORDER BY seq LIMIT ?2");

const SET_TITLE: &str = "
    UPDATE tenants
       SET title = ?2
     WHERE name = ?1";

const PII: &str = "
    SELECT pii
      FROM tenants
     WHERE name = ?1";

const SET_PII: &str = "
    UPDATE tenants
       SET pii = ?2
     WHERE name = ?1";

const SUSPEND: &str = "
    UPDATE tenants
       SET suspended_at = ?2
     WHERE name = ?1
       AND suspended_at IS NULL";

const RESUME: &str = "
    UPDATE tenants
       SET suspended_at = NULL
     WHERE name = ?1
       AND suspended_at IS NOT NULL";

const IS_SUSPENDED: &str = "
    SELECT EXISTS (
           SELECT 1
             FROM tenants
            WHERE name = ?1
              AND suspended_at IS NOT NULL)";

/// Stores a tenant; returns whether its name was free.
pub fn insert(
    tx: &WriteTx<'_>,
    (name, title): (&Name, &str),
    pii: &Pii,
    now: Timestamp,
) -> Result<bool> {
    Ok(tx.prepare(INSERT)?.execute((name.as_str(), title, now, pii.to_string()))? == 1)
}

/// A tenant by its name.
pub fn by_name(tx: &ReadTx<'_>, name: &str) -> Result<Option<Tenant>> {
    first(&mut *tx.prepare(BY_NAME)?, [name], tenant)
}

/// Tenants by number, after `after`.
pub fn page(tx: &ReadTx<'_>, after: i64, limit: u32) -> Result<Vec<Tenant>> {
    rows(&mut *tx.prepare(PAGE)?, (after, limit), tenant)
}

/// Whether a tenant is suspended; false if it does not exist.
pub fn is_suspended(tx: &ReadTx<'_>, name: &str) -> Result<bool> {
    Ok(tx.prepare(IS_SUSPENDED)?.query_row([name], |row| row.get(0))?)
}

/// Changes the title.
/// Fails with `Changed` when there is no such tenant.
pub fn set_title(tx: &WriteTx<'_>, name: &str, title: &str) -> Result<()> {
    one_row(tx.prepare(SET_TITLE)?.execute((name, title))?, "the tenant")
}

/// The privacy policy for published events; the default if the tenant does not exist.
pub fn pii(tx: &ReadTx<'_>, name: &str) -> Result<Pii> {
    let stated = first(&mut *tx.prepare(PII)?, [name], |row| {
        let pii: String = row.get(0)?;
        word("tenants.pii", &pii, Pii::parse)
    })?;
    Ok(stated.unwrap_or_default())
}

/// Sets the privacy policy for events published after the commit.
/// Fails with `Changed` when there is no such tenant.
pub fn set_pii(tx: &WriteTx<'_>, name: &str, pii: &Pii) -> Result<()> {
    let changed = tx.prepare(SET_PII)?.execute((name, pii.to_string()))?;
    tx.providers_changed();
    one_row(changed, "the tenant")
}

/// Suspends a tenant, or resumes it with `None`; returns whether that changed anything. Applies to every request and
/// delivery after the commit.
pub fn set_suspended(tx: &WriteTx<'_>, name: &str, since: Option<Timestamp>) -> Result<bool> {
    let changed = match since {
        Some(since) => tx.prepare(SUSPEND)?.execute((name, since))?,
        None => tx.prepare(RESUME)?.execute([name])?,
    };
    if changed == 1 {
        tx.tokens_changed();
        tx.providers_changed();
        tx.subscriptions_changed();
    }
    Ok(changed == 1)
}

/// How many e-mails of a tenant were sent on the day (UTC).
pub fn mails(tx: &ReadTx<'_>, name: &str, now: Timestamp) -> Result<u32> {
    let sent = first(&mut *tx.prepare(MAILS)?, (name, day(now)), |row| Ok(row.get(0)?))?;
    Ok(sent.unwrap_or(0))
}

/// Counts one more of them.
pub fn count_mail(tx: &WriteTx<'_>, name: &str, now: Timestamp) -> Result<()> {
    one_row(tx.prepare(COUNT_MAIL)?.execute((name, day(now)))?, "the tenant")
}

fn day(at: Timestamp) -> i64 {
    at.secs().div_euclid(86_400)
}

fn tenant(row: &Row<'_>) -> Result<Tenant> {
    let name: String = row.get(1)?;
    let pii: String = row.get(5)?;
    Ok(Tenant {
        seq: row.get(0)?,
        name: word("tenants.name", &name, |text| Name::parse(text).ok())?,
        title: row.get(2)?,
        pii: word("tenants.pii", &pii, Pii::parse)?,
        created_at: row.get(3)?,
        suspended_at: row.get(4)?,
    })
}
