//! Table `meta`: facts about the file itself.

use rusqlite::OptionalExtension;

use crate::domain::audit::chain::Head;
use crate::store::column::word;
use crate::store::error::Result;
use crate::store::tx::{ReadTx, WriteTx};

const READ: &str = "
    SELECT value
      FROM meta
     WHERE key = ?1";

const WRITE: &str = "
    INSERT INTO meta (key, value)
    VALUES (?1, ?2)
        ON CONFLICT (key) DO UPDATE SET value = excluded.value";

/// The id of the master key that sealed the secrets in this file.
///
/// # Errors
/// When the file cannot be read.
pub fn master_key_id(tx: &ReadTx<'_>) -> Result<Option<String>> {
    Ok(tx.prepare(READ)?.query_row(["master_key_id"], |row| row.get(0)).optional()?)
}

/// Remembers the id of the master key.
///
/// # Errors
/// When the file cannot be written.
pub fn set_master_key_id(tx: &WriteTx<'_>, key_id: &str) -> Result<()> {
    tx.prepare(WRITE)?.execute(["master_key_id", key_id])?;
    Ok(())
}

/// The last audit event, as it was remembered when it was written; `None` before the first.
///
/// # Errors
/// When the file cannot be read.
pub fn audit_head(tx: &ReadTx<'_>) -> Result<Option<Head>> {
    place(tx, "audit_head")
}

/// The place before the first audit event of this file: the beginning, or the last that was archived.
///
/// # Errors
/// When the file cannot be read.
pub fn audit_start(tx: &ReadTx<'_>) -> Result<Head> {
    Ok(place(tx, "audit_start")?.unwrap_or(Head::START))
}

/// Remembers the last audit event.
///
/// # Errors
/// When the file cannot be written.
pub(super) fn set_audit_head(tx: &WriteTx<'_>, head: Head) -> Result<()> {
    tx.prepare(WRITE)?.execute(("audit_head", head.to_string()))?;
    Ok(())
}

fn place(tx: &ReadTx<'_>, key: &str) -> Result<Option<Head>> {
    let text: Option<String> = tx.prepare(READ)?.query_row([key], |row| row.get(0)).optional()?;
    text.map(|text| word("meta.value", &text, Head::parse)).transpose()
}
