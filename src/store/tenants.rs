//! Table `tenants`.
//!
//! Suspending a tenant changes no other row: the queries for its tokens ([`crate::store::tokens`]), its providers and
//! the holds of its subscriptions ([`crate::store::holds`]) read `suspended_at`.

use schemars::JsonSchema;
use serde::Serialize;

use crate::base::schema::Text;
use crate::model::name::Name;
use crate::privacy::policy::Pii;
use crate::store::prelude::*;
use crate::store::{past_holds, subscriptions};

/// The longest title, in characters.
pub const MAX_TITLE_CHARS: usize = 200;

/// A tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Tenant {
    /// Its number in the file.
    #[serde(skip)]
    pub seq: i64,
    // Every row of the tenant contains it; it never changes.
    pub name: Name,
    /// A title for people.
    #[schemars(with = "Text<0, MAX_TITLE_CHARS>")]
    pub title: String,
    pub pii: Pii,
    /// Whether somebody has stated `pii`. Only that of the tenant `default` may be one that nobody has stated.
    pub pii_stated: bool,
    pub created_at: Timestamp,
    /// When it was suspended; null if it is not.
    pub suspended_at: Option<Timestamp>,
}

columns! {
    fn tenant() -> Tenant = "tenants" [seq, name, title, created_at, suspended_at, pii, pii_stated] {
        seq, name, title, pii, pii_stated, created_at, suspended_at
    }
    /// A tenant by its name.
    pub fn by_name(name: &str) -> Option = "WHERE name = ?1";
    /// Tenants by number, after `after`.
    pub fn page(after: i64, limit: u32) -> Vec = "WHERE seq > ?1 ORDER BY seq LIMIT ?2";
}

const PII: &str = "SELECT pii FROM tenants WHERE name = ?1";

const COUNT_MAIL: &str = "
    UPDATE tenants
       SET mail_count = CASE mail_day WHEN ?2 THEN mail_count ELSE 0 END + ?3,
           event_mail_count = CASE mail_day WHEN ?2 THEN event_mail_count ELSE 0 END + ?4,
           mail_day = ?2
     WHERE name = ?1";

const MAILS: &str = "
    SELECT mail_count, event_mail_count
      FROM tenants
     WHERE name = ?1
       AND mail_day = ?2";

const SUSPEND: &str =
    "UPDATE tenants SET suspended_at = ?2 WHERE name = ?1 AND suspended_at IS NULL";

const RESUME: &str =
    "UPDATE tenants SET suspended_at = NULL WHERE name = ?1 AND suspended_at IS NOT NULL";

queries! {
    /// Whether somebody has stated the privacy policy of the tenant `default`.
    pub fn is_pii_stated() -> bool = value
        "SELECT EXISTS (SELECT 1 FROM tenants WHERE name = 'default' AND pii_stated = 1)";

    /// Whether a tenant is suspended; false if it does not exist.
    pub fn is_suspended(name: &str) -> bool = value
        "SELECT EXISTS (SELECT 1 FROM tenants WHERE name = ?1 AND suspended_at IS NOT NULL)";
}

changes! {
    /// Changes the title.
    /// Fails with `Changed` when there is no such tenant.
    pub fn set_title(name: &str, title: &str) of "the tenant" =
        "UPDATE tenants SET title = ?2 WHERE name = ?1";

    fn write_pii(name: &str, pii: &Pii) of "the tenant" =
        "UPDATE tenants SET pii = ?2, pii_stated = 1 WHERE name = ?1";
}

/// Sets the privacy policy for events published after the commit.
/// Fails with `Changed` when there is no such tenant.
pub fn set_pii(tx: &WriteTx<'_>, name: &str, pii: &Pii) -> Result<()> {
    tx.providers_changed(name);
    write_pii(tx, name, pii)
}

/// Stores a tenant; returns whether its name was free.
pub fn insert(
    tx: &WriteTx<'_>,
    name: &Name,
    title: &str,
    pii: &Pii,
    now: Timestamp,
) -> Result<bool> {
    let stored = insert!(tx, "tenants" { name, title, created_at: now, pii, pii_stated: true } "ON CONFLICT DO NOTHING")?;
    Ok(stored == 1)
}

/// The privacy policy for published events; the default if the tenant does not exist.
pub fn pii(tx: &ReadTx<'_>, name: &str) -> Result<Pii> {
    Ok(tx.first(PII, [name], |row| cell(row, 0, "tenants.pii"))?.unwrap_or_default())
}

/// Suspends a tenant, or resumes it; returns whether that changed anything. Applies to every request and
/// delivery after the commit.
pub fn set_suspended(
    tx: &WriteTx<'_>,
    name: &str,
    is_suspended: bool,
    now: Timestamp,
) -> Result<bool> {
    let changed = if is_suspended {
        tx.execute(SUSPEND, (name, now))?
    } else {
        past_holds::keep_suspended(tx, name, now)?;
        tx.execute(RESUME, [name])?
    };
    if changed == 1 {
        tx.tokens_changed();
        tx.providers_changed(name);
        for subscription in subscriptions::all_of(tx, name)?.into_keys() {
            tx.subscription_changed(subscription);
        }
    }
    Ok(changed == 1)
}

/// When the day (UTC) of a time ends.
pub fn end_of_day(at: Timestamp) -> Timestamp {
    Timestamp::from_secs(day(at).saturating_add(1).saturating_mul(SECS_OF_DAY))
}

/// What an e-mail is of. Each kind is counted by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MailKind {
    /// An alert.
    Alert,
    /// An event of a subscription.
    Event,
}

/// How many e-mails of this kind a tenant has sent on the day (UTC).
pub fn mails(tx: &ReadTx<'_>, name: &str, now: Timestamp, kind: MailKind) -> Result<u32> {
    let column = match kind {
        MailKind::Alert => 0,
        MailKind::Event => 1,
    };
    let sent = tx.first(MAILS, (name, day(now)), |row| Ok(row.get(column)?))?;
    Ok(sent.unwrap_or(0))
}

/// Counts one more of them.
pub fn count_mail(tx: &WriteTx<'_>, name: &str, now: Timestamp, kind: MailKind) -> Result<()> {
    let is_of_event = kind == MailKind::Event;
    let values = (name, day(now), u32::from(!is_of_event), u32::from(is_of_event));
    tx.change_one(COUNT_MAIL, values, "the tenant")
}

const SECS_OF_DAY: i64 = 86_400;

fn day(at: Timestamp) -> i64 {
    at.secs().div_euclid(SECS_OF_DAY)
}
