//! Table `seen_keys`: events that have left the database for the archive, so that one that is sent again is known.
//!
//! As long as nothing was archived, an event costs no look-up here.

use ring::digest::{SHA256, digest};

use crate::store::prelude::*;

/// Which table an event was in, for its hash.
pub const EVENT: &str = "event";
/// As [`EVENT`], for webhook events.
pub const WEBHOOK_EVENT: &str = "webhook_event";

const FIND: &str = "SELECT id, status, month FROM seen_keys WHERE hash = ?1";

const ANY: &str = "SELECT EXISTS (SELECT 1 FROM seen_keys)";

const NOTE: &str = "
    INSERT INTO seen_keys (hash, id, status, month, seen_at) VALUES (?1, ?2, ?3, ?4, ?5)
        ON CONFLICT (hash) DO UPDATE
       SET status = excluded.status, month = excluded.month, seen_at = excluded.seen_at";

const FORGET: &str = "DELETE FROM seen_keys WHERE hash = ?1";

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
    tx.first(FIND, [hash(kind, identity)], |row| {
        Ok(Seen { id: row.get(0)?, status: row.get(1)?, month: row.get(2)? })
    })
}

/// Notes an event that is archived.
pub fn note(
    tx: &WriteTx<'_>,
    (kind, identity): (&str, Identity<'_>),
    Seen { id, status, month }: &Seen,
    now: Timestamp,
) -> Result<()> {
    tx.has_seen().set(Some(true));
    tx.execute(NOTE, (hash(kind, identity), id, status, month, now)).map(drop)
}

/// Forgets an event that has come back.
pub fn forget(tx: &WriteTx<'_>, (kind, identity): (&str, Identity<'_>)) -> Result<()> {
    tx.execute(FORGET, [hash(kind, identity)]).map(drop)
}

/// 16 bytes that stand for an event's identity. As JSON, no two identities have the same text.
fn hash(kind: &str, (tenant, source, key): Identity<'_>) -> Vec<u8> {
    let text = serde_json::json!([kind, tenant, source, key]).to_string();
    digest(&SHA256, text.as_bytes()).as_ref().iter().take(16).copied().collect()
}
