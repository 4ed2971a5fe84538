//! Table `meta`: facts about the file itself.

use rusqlite::OptionalExtension;

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
