//! Inspects a file without serving it: its integrity, its schema and what needs attention. Changes nothing.

use std::path::Path;

use crate::store::error::Result;
use crate::store::pool;
use crate::store::tx::ReadTx;
use crate::store::{meta, stats};
use crate::store::{schema, schema_shape};

const QUICK: &str = "PRAGMA quick_check(5)";
const DEEP: &str = "PRAGMA integrity_check(5)";
/// Rows that point nowhere are counted up to here.
const MAX_ORPHANS: usize = 1000;

/// What the inspection found.
#[derive(Clone, Debug)]
pub struct Findings {
    /// What is damaged; empty: nothing.
    pub damage: Vec<String>,
    /// Rows that refer to rows that are not there.
    pub orphans: u64,
    /// How changes are written; must be `wal`.
    pub journal_mode: String,
    /// The schema's version.
    pub version: i64,
    /// The newest version this program knows.
    pub version_known: i64,
    /// The id of the key that sealed its secrets.
    pub key_id: Option<String>,
    /// What a person may have to look at.
    pub attention: stats::Attention,
}

/// Inspects a file, which may be served meanwhile. `deep` also compares the indexes with their tables, which takes as
/// long as reading the whole file.
pub fn inspect(path: &Path, deep: bool) -> Result<Findings> {
    let conn = pool::open_reader(path)?;
    let mut statement = conn.prepare(if deep { DEEP } else { QUICK })?;
    let lines = statement.query_map([], |row| row.get::<_, String>(0))?;
    let said = lines.collect::<std::result::Result<Vec<_>, _>>()?;
    let orphans = schema_shape::orphans(&conn, MAX_ORPHANS)?.len();
    let tx = ReadTx::new(&conn);
    Ok(Findings {
        damage: said.into_iter().filter(|line| line != "ok").collect(),
        orphans: u64::try_from(orphans).unwrap_or(u64::MAX),
        journal_mode: conn.query_row("PRAGMA journal_mode", [], |row| row.get(0))?,
        version: conn.query_row("PRAGMA user_version", [], |row| row.get(0))?,
        version_known: schema::VERSION,
        key_id: meta::master_key_id(&tx)?,
        attention: stats::attention(&tx)?,
    })
}

/// Empties the write-ahead log into a file that nobody serves.
pub fn empty_log(path: &Path) -> Result<()> {
    let conn = schema::open_writer(path)?;
    conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    Ok(())
}
