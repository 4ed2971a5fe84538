//! Table `seen_keys`: events that have left the database for the archive, so that one that is sent again is known. Table
//! `seen_sources`: where they came from.
//!
//! As long as nothing was archived, an event costs no look-up here.

use rusqlite::ToSql;
use rusqlite::types::ValueRef;
use uuid::Uuid;

use crate::base::id;
use crate::store::prelude::*;

/// Which table an event was in.
pub const EVENT: &str = "event";
/// As [`EVENT`], for webhook events.
pub const WEBHOOK_EVENT: &str = "webhook_event";

const FIND: &str = "
    SELECT id, coalesce(status, 'completed'), printf('%04d-%02d', month / 100, month % 100), unsent IS NULL
      FROM seen_keys
     WHERE hash = ?1";

const PAGE: &str = "
    SELECT hash, month < CAST(replace(?3, '-', '') AS INTEGER)
                 AND printf('%04d-%02d', month / 100, month % 100) NOT IN (SELECT value FROM json_each(?4))
      FROM seen_keys
     WHERE hash > ?1
     ORDER BY hash
     LIMIT ?2";

const ANY: &str = "SELECT EXISTS (SELECT 1 FROM seen_keys)";

const NOTE: &str = "
    INSERT INTO seen_keys (hash, id, status, month, unsent)
    VALUES (?1, ?2, nullif(?3, 'completed'), CAST(replace(?4, '-', '') AS INTEGER), iif(?5, NULL, 1))
        ON CONFLICT (hash) DO UPDATE SET status = excluded.status, month = excluded.month, unsent = excluded.unsent";

const NOTE_SOURCE: &str =
    "INSERT INTO seen_sources (kind, tenant, source) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING";

const SOURCES: &str =
    "SELECT source FROM seen_sources WHERE kind = ?1 AND tenant = ?2 ORDER BY source LIMIT 1000";

const FORGET: &str = "DELETE FROM seen_keys WHERE hash = ?1";

/// 16 bytes for the identity of an event.
pub type Hash = Vec<u8>;
/// Tenant, source and key of an event: what makes it one event.
pub type Identity<'a> = (&'a str, &'a str, &'a str);

/// An event that was archived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its id.
    pub id: String,
    /// How it ended.
    pub status: String,
    /// The month in whose file it is, like `2026-11`.
    pub month: String,
    /// Whether somebody sent it to us; false: it came by its provider's list alone.
    pub was_sent: bool,
}

/// Finds an archived event; `None` if there is none.
pub fn find(tx: &WriteTx<'_>, kind: &str, identity: Identity<'_>) -> Result<Option<Seen>> {
    let has_any = match tx.has_seen().get() {
        Some(has_any) => has_any,
        None => tx.value(ANY, [])?,
    };
    tx.has_seen().set(Some(has_any));
    if has_any { look_up(tx, kind, identity) } else { Ok(None) }
}

/// As [`find`], for readers.
pub fn look_up(tx: &ReadTx<'_>, kind: &str, identity: Identity<'_>) -> Result<Option<Seen>> {
    tx.first(FIND, [hash(kind, identity)], seen)
}

fn seen(row: &Row<'_>) -> Result<Seen> {
    let id = match row.get_ref(0)? {
        ValueRef::Blob(id) => Uuid::from_slice(id).map(|id| id.to_string()).unwrap_or_default(),
        id => id.as_str().unwrap_or_default().to_owned(),
    };
    Ok(Seen { id, status: row.get(1)?, month: row.get(2)?, was_sent: row.get(3)? })
}

/// The months in which events of a tenant with this key are, whatever their source.
pub fn months_of(tx: &ReadTx<'_>, kind: &str, tenant: &str, key: &str) -> Result<Vec<String>> {
    let sources: Vec<String> = tx.list(SOURCES, (kind, tenant))?;
    let mut months = Vec::new();
    for source in sources {
        months.extend(look_up(tx, kind, (tenant, &source, key))?.map(|seen| seen.month));
    }
    Ok(months)
}

/// Notes an event that is archived.
pub fn note(
    tx: &WriteTx<'_>,
    kind: &str,
    identity: Identity<'_>,
    Seen { id, status, month, was_sent }: &Seen,
) -> Result<()> {
    tx.has_seen().set(Some(true));
    let (tenant, source, _) = identity;
    tx.execute(NOTE_SOURCE, (kind, tenant, source))?;
    // Only what is shown as it was given.
    let uuid = Uuid::try_parse(id).ok().filter(|uuid| uuid.to_string() == *id);
    let id: &dyn ToSql = match &uuid {
        Some(uuid) => &uuid.as_bytes().as_slice(),
        None => id,
    };
    tx.execute(NOTE, (hash(kind, identity), id, status, month, was_sent)).map(drop)
}

/// The next `limit` keys after `after`: the last one, and those of months before `month` that are not kept; `None` at the end.
pub fn old(
    tx: &ReadTx<'_>,
    after: &[u8],
    limit: u32,
    month: &str,
    kept: &[String],
) -> Result<Option<(Hash, Vec<Hash>)>> {
    let kept = serde_json::json!(kept).to_string();
    let page: Vec<(Hash, bool)> = tx.rows(PAGE, (after, limit, month, kept), tuple)?;
    let Some((last, _)) = page.last().cloned() else { return Ok(None) };
    let old = page.into_iter().filter(|(_, is_old)| *is_old).map(|(hash, _)| hash);
    Ok(Some((last, old.collect())))
}

/// Forgets events by their keys.
pub fn forget_all(tx: &WriteTx<'_>, hashes: &[Hash]) -> Result<()> {
    hashes.iter().try_for_each(|hash| tx.execute(FORGET, [hash]).map(drop))
}

/// Forgets an event that has come back.
pub fn forget(tx: &WriteTx<'_>, kind: &str, identity: Identity<'_>) -> Result<()> {
    tx.execute(FORGET, [hash(kind, identity)]).map(drop)
}

/// Finds an archived event by its `webhook-id`; `None` if there is none.
pub fn by_webhook_id(tx: &ReadTx<'_>, webhook_id: &str) -> Result<Option<Seen>> {
    match id::webhook_id_bytes(webhook_id) {
        Some(hash) => tx.first(FIND, [hash], seen),
        None => Ok(None),
    }
}

/// The bytes of the event's `webhook-id`.
fn hash(kind: &str, (tenant, source, key): Identity<'_>) -> Hash {
    let source = if kind == WEBHOOK_EVENT { format!("in:{source}") } else { source.to_owned() };
    id::webhook_id_bytes(&id::webhook_id(tenant, &source, key)).unwrap_or_default()
}
