//! Table `meta`: facts about the file itself.

use crate::model::audit::chain::Head;
use crate::model::in_doubt::{Fence, Window};
use crate::store::column::word;
use crate::store::prelude::*;

const READ: &str = "SELECT value FROM meta WHERE key = ?1";

const WRITE: &str = "
    INSERT INTO meta (key, value) VALUES (?1, ?2)
        ON CONFLICT (key) DO UPDATE SET value = excluded.value";

const FORGET_WINDOW: &str = "DELETE FROM meta WHERE key IN ('in_doubt_lost_at', 'in_doubt_until')";

const FORGET_BACKUP_FAILURE: &str =
    "DELETE FROM meta WHERE key IN ('backup_failed_at', 'backup_failure')";

const IN_HAND: &str = "
    SELECT substr(key, 9), value FROM meta
     WHERE key >= 'in_hand/' AND key < 'in_hand0'
     LIMIT 10000";

const REMOVE: &str = "DELETE FROM meta WHERE key = ?1";

/// The id of the master key that sealed the secrets in this file.
pub fn master_key_id(tx: &ReadTx<'_>) -> Result<Option<String>> {
    tx.find(READ, ["master_key_id"])
}

/// Stores the id of the master key.
pub fn set_master_key_id(tx: &WriteTx<'_>, key_id: &str) -> Result<()> {
    tx.execute(WRITE, ["master_key_id", key_id]).map(drop)
}

/// Since when the master key is in use; `None` in a file of an older version.
pub fn master_key_since(tx: &ReadTx<'_>) -> Result<Option<Timestamp>> {
    let since: Option<i64> = tx.find(READ, ["master_key_since"])?;
    Ok(since.map(Timestamp::from_ms))
}

/// Stores since when the master key is in use.
pub fn set_master_key_since(tx: &WriteTx<'_>, at: Timestamp) -> Result<()> {
    tx.execute(WRITE, ("master_key_since", at)).map(drop)
}

/// How many deliveries have become dead letters in this file, ever.
pub fn deaths(tx: &ReadTx<'_>) -> Result<i64> {
    let deaths = tx.find(READ, ["deaths"])?;
    Ok(deaths.unwrap_or(0))
}

/// The id of this database, which its copies share; `None` until a service of this version has opened it.
pub fn database_id(tx: &ReadTx<'_>) -> Result<Option<String>> {
    tx.find(READ, ["database_id"])
}

/// Stores the id of this database.
pub fn set_database_id(tx: &WriteTx<'_>, id: &str) -> Result<()> {
    tx.execute(WRITE, ["database_id", id]).map(drop)
}

/// The epoch, and the window of time in which new events are held for review after a restore.
pub fn fence(tx: &ReadTx<'_>) -> Result<Fence> {
    let number = |key: &str| -> Result<Option<i64>> { tx.find(READ, [key]) };
    let lost_at = number("in_doubt_lost_at")?.map(Timestamp::from_ms);
    let until = number("in_doubt_until")?.map(Timestamp::from_ms);
    let window = lost_at.zip(until).map(|(lost_at, until)| Window { lost_at, until });
    let epoch = number("epoch")?.and_then(|epoch| u32::try_from(epoch).ok()).unwrap_or(0);
    Ok(Fence { epoch, window })
}

/// The fence, from the writer's cache.
pub(crate) fn cached_fence(tx: &WriteTx<'_>) -> Result<Fence> {
    if let Some(fence) = tx.cached_fence().get() {
        return Ok(fence);
    }
    let fence = fence(tx)?;
    tx.cached_fence().set(Some(fence));
    Ok(fence)
}

/// A restore of this file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// When it was restored (wall time).
    pub at: Timestamp,
    /// The backup it was restored from.
    pub from: String,
}

/// The latest restore of the file; `None` if it was never restored.
pub fn restored(tx: &ReadTx<'_>) -> Result<Option<Restored>> {
    let at = tx.find(READ, ["restored_at"])?;
    let from = tx.find(READ, ["restored_from"])?;
    Ok(at.zip(from).map(|(at, from)| Restored { at, from }))
}

/// Stores a restore.
pub(crate) fn set_restored(tx: &WriteTx<'_>, restored: &Restored, fence: Fence) -> Result<()> {
    let Restored { at, from } = restored;
    let mut write = tx.prepare(WRITE)?;
    write.execute(("restored_at", at))?;
    write.execute(("restored_from", from))?;
    write.execute(("epoch", fence.epoch))?;
    set_window(tx, fence.window)
}

/// Sets the window in which new events are held for review; `None` stops holding.
pub fn set_window(tx: &WriteTx<'_>, window: Option<Window>) -> Result<()> {
    match window {
        Some(Window { lost_at, until }) => {
            let mut write = tx.prepare(WRITE)?;
            write.execute(("in_doubt_lost_at", lost_at))?;
            write.execute(("in_doubt_until", until))?;
        }
        None => {
            let _none = tx.execute(FORGET_WINDOW, [])?;
        }
    }
    tx.cached_fence().set(None);
    Ok(())
}

/// When and why the latest scheduled backup failed; `None` if it succeeded.
pub fn backup_failure(tx: &ReadTx<'_>) -> Result<Option<(Timestamp, String)>> {
    let at = tx.find(READ, ["backup_failed_at"])?;
    let why = tx.find(READ, ["backup_failure"])?;
    Ok(at.zip(why))
}

/// Stores that the latest scheduled backup failed; `None`: it succeeded.
pub fn set_backup_failure(tx: &WriteTx<'_>, failure: Option<&(Timestamp, String)>) -> Result<()> {
    let Some((at, why)) = failure else {
        let _none = tx.execute(FORGET_BACKUP_FAILURE, [])?;
        return Ok(());
    };
    let mut write = tx.prepare(WRITE)?;
    write.execute(("backup_failed_at", at))?;
    write.execute(("backup_failure", why))?;
    Ok(())
}

/// Marks of work in progress. Each has the item, the number of the start that set it, and how many earlier unclean ends
/// happened during that work (-1: the end of that run does not count).
pub fn in_hand(tx: &ReadTx<'_>) -> Result<Vec<(String, i64, i32)>> {
    tx.rows(IN_HAND, [], |row| {
        let item: String = row.get(0)?;
        let at: String = row.get(1)?;
        let (boot, ends) = word("meta.value", &at, |text| {
            let (boot, ends) = text.split_once(':')?;
            Some((boot.parse().ok()?, ends.parse().ok()?))
        })?;
        Ok((item, boot, ends))
    })
}

/// Marks work that begins.
pub fn set_in_hand(tx: &WriteTx<'_>, item: &str, boot: i64, ends: i32) -> Result<()> {
    let key = format!("in_hand/{item}");
    tx.execute(WRITE, [key, format!("{boot}:{ends}")]).map(drop)
}

/// Removes the mark.
pub fn not_in_hand(tx: &WriteTx<'_>, item: &str) -> Result<()> {
    tx.execute(REMOVE, [format!("in_hand/{item}")]).map(drop)
}

/// Whether this site has ever had a network connection to the outside.
pub fn has_had_line(tx: &ReadTx<'_>) -> Result<bool> {
    Ok(tx.find::<i64>(READ, ["line_seen"])?.is_some())
}

/// Stores that this site has a network connection to the outside.
pub fn set_has_had_line(tx: &WriteTx<'_>) -> Result<()> {
    tx.execute(WRITE, ("line_seen", 1)).map(drop)
}

/// The key under which tokens are hashed, in [`SEALED`].
pub const TOKEN_PEPPER: &str = "token_pepper";
/// The key that signs exports of audit events, in [`SEALED`].
pub const AUDIT_KEY: &str = "audit_key";
/// Keys that are sealed under the master key.
pub const SEALED: [&str; 2] = [TOKEN_PEPPER, AUDIT_KEY];

/// The context that a key of [`SEALED`] is sealed under.
pub fn context(name: &str) -> String {
    format!("meta|{name}|value")
}

/// A key of [`SEALED`]; `None` if it was never made.
pub fn sealed(tx: &ReadTx<'_>, name: &str) -> Result<Option<Vec<u8>>> {
    tx.find(READ, [name])
}

/// Removes a key of [`SEALED`]: the next one is made when it is needed.
pub fn forget_sealed(tx: &WriteTx<'_>, name: &str) -> Result<()> {
    tx.execute(REMOVE, [name]).map(drop)
}

/// Stores a key of [`SEALED`].
pub fn set_sealed(tx: &WriteTx<'_>, name: &str, sealed: &[u8]) -> Result<()> {
    tx.execute(WRITE, (name, sealed)).map(drop)
}

/// The stored head of the audit chain; `None` before the first audit event.
pub fn audit_head(tx: &ReadTx<'_>) -> Result<Option<Head>> {
    place(tx, "audit_head")
}

/// The head before this file's first audit event; `None` if it is the start of the chain. In the file of a month, `None`
/// means that it has no rows yet.
pub fn audit_start(tx: &ReadTx<'_>) -> Result<Option<Head>> {
    place(tx, "audit_start")
}

/// Stores the head before this file's first audit event.
pub(super) fn set_audit_start(tx: &WriteTx<'_>, head: Head) -> Result<()> {
    tx.execute(WRITE, ("audit_start", head.to_string())).map(drop)
}

/// Stores the head of the audit chain.
pub(super) fn set_audit_head(tx: &WriteTx<'_>, head: Head) -> Result<()> {
    tx.execute(WRITE, ("audit_head", head.to_string())).map(drop)
}

fn place(tx: &ReadTx<'_>, key: &str) -> Result<Option<Head>> {
    let text: Option<String> = tx.find(READ, [key])?;
    text.map(|text| word("meta.value", &text, Head::parse)).transpose()
}
