//! What every connection is set up with: how it waits, what it keeps, and that a reader only reads.

use std::time::Duration;

use rusqlite::Connection;
use rusqlite::functions::FunctionFlags;

use crate::base::id;
use crate::store::error::Result;

/// How often a locked database is tried again, a millisecond apart, before it is `Busy`.
const MAX_BUSY_TRIES: i32 = 2_000;
/// Statements kept prepared per connection: above the number of statements in `store`.
pub(super) const STATEMENTS_KEPT: usize = 192;

/// Sets up a connection that only reads.
pub(crate) fn configure_reader(conn: &Connection) -> Result<()> {
    Ok(set_up_reader(conn)?)
}

/// The same, as a pool wants it.
pub(super) fn set_up_reader(conn: &Connection) -> rusqlite::Result<()> {
    conn.busy_handler(Some(wait_for_lock))?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
    conn.execute_batch(
        "PRAGMA query_only = ON;
         PRAGMA temp_store = MEMORY;
         PRAGMA cache_size = -1500;
         PRAGMA trusted_schema = OFF;",
    )?;
    // Lets a list be searched by webhook-id, which is computed from the identity and not stored.
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    conn.create_scalar_function("webhook_id", 3, flags, |call| {
        let (tenant, source, key): (String, String, String) =
            (call.get(0)?, call.get(1)?, call.get(2)?);
        Ok(id::webhook_id(&tenant, &source, &key))
    })
}

#[expect(clippy::disallowed_methods, reason = "SQLite calls this and wants to be kept waiting")]
pub(super) fn wait_for_lock(tries: i32) -> bool {
    std::thread::sleep(Duration::from_millis(1));
    tries < MAX_BUSY_TRIES
}
