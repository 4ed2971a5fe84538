//! Inspects a file without serving it: its integrity, its schema and what needs attention. Changes nothing.

use std::path::Path;

use crate::store::error::Result;
use crate::store::pool;
use crate::store::tx::ReadTx;
use crate::store::{meta, stats};
use crate::store::{schema, schema_shape};

const QUICK: &str = "PRAGMA quick_check(5)";
const DEEP: &str = "PRAGMA integrity_check(5)";
/// The count of orphaned rows stops here.
const MAX_ORPHANS: usize = 1000;

/// What the inspection found.
#[derive(Clone, Debug)]
pub struct Findings {
    /// What is damaged; empty if nothing is.
    pub damage: Vec<String>,
    /// Rows that refer to rows that do not exist.
    pub orphans: u64,
    /// The journal mode, which must be `wal`.
    pub journal_mode: String,
    /// The schema's version.
    pub version: i64,
    /// The newest version this program knows.
    pub version_known: i64,
    /// The id of the key that sealed its secrets.
    pub key_id: Option<String>,
    /// What may need a person's attention.
    pub attention: stats::Attention,
}

/// Inspects a file; a service may be using it. `deep` also compares the indexes with their tables, which takes as long
/// as reading the whole file.
pub fn inspect(path: &Path, deep: bool) -> Result<Findings> {
    let conn = pool::open_reader(path)?;
    let mut statement = conn.prepare(if deep { DEEP } else { QUICK })?;
    let lines = statement.query_map([], |row| row.get::<_, String>(0))?;
    let messages = lines.collect::<std::result::Result<Vec<_>, _>>()?;
    let orphans = schema_shape::orphans(&conn, MAX_ORPHANS)?.len();
    let tx = ReadTx::new(&conn);
    Ok(Findings {
        damage: messages.into_iter().filter(|line| line != "ok").collect(),
        orphans: u64::try_from(orphans).unwrap_or(u64::MAX),
        journal_mode: conn.query_row("PRAGMA journal_mode", [], |row| row.get(0))?,
        version: conn.query_row("PRAGMA user_version", [], |row| row.get(0))?,
        version_known: schema::VERSION,
        key_id: meta::master_key_id(&tx)?,
        attention: stats::attention(&tx)?,
    })
}

/// Copies the write-ahead log into a file that no service is using, and empties the log.
pub fn empty_log(path: &Path) -> Result<()> {
    let conn = schema::open_writer(path)?;
    conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    Ok(())
}
