//! How rows are read, written, counted and hashed, whatever columns their table has.

use ring::digest::{Context, SHA256};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Row, params_from_iter};

use super::{Part, Statements, of};
use crate::archive::{ArchivedKind, Batch, Summary};
use crate::store::error::Result;
use crate::store::tx::{ReadTx, WriteTx};

const COLUMNS: &str = "SELECT name FROM pragma_table_info(?1) ORDER BY cid";

const FORGET_BODIES: &str = "DELETE FROM payloads WHERE seq IN (SELECT value FROM json_each(?1))";

pub(super) fn moved(kind: ArchivedKind) -> impl Iterator<Item = &'static Part> {
    let Statements { parts, bodies, .. } = of(kind);
    parts.iter().chain([bodies])
}

/// Counts and hashes the rows of a batch that move.
pub(super) fn summary(tx: &ReadTx<'_>, batch: &Batch) -> Result<Summary> {
    let mut sum = Sum::new();
    for part in moved(batch.kind) {
        each_row(tx, part, &batch.json(), |row, columns| sum.add(part.table, row, columns.len()))?;
    }
    Ok(sum.finish())
}

pub(super) struct Sum {
    rows: u64,
    hash: Context,
}

impl Sum {
    pub(super) fn new() -> Self {
        Self { rows: 0, hash: Context::new(&SHA256) }
    }

    pub(super) fn add(&mut self, table: &str, row: &Row<'_>, columns: usize) -> Result<()> {
        self.rows += 1;
        self.hash.update(table.as_bytes());
        for n in 0..columns {
            let (tag, bytes): (u8, &[u8]) = match row.get_ref(n)? {
                ValueRef::Null => (0, &[]),
                ValueRef::Integer(number) => (1, &number.to_le_bytes()[..]),
                ValueRef::Real(number) => (2, &number.to_le_bytes()[..]),
                ValueRef::Text(text) => (3, text),
                ValueRef::Blob(bytes) => (4, bytes),
            };
            self.hash.update(&[tag]);
            self.hash.update(&bytes.len().to_le_bytes());
            self.hash.update(bytes);
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Summary {
        Summary { rows: self.rows, sha256: self.hash.finish().as_ref().to_vec() }
    }
}

pub(super) fn each_row(
    tx: &ReadTx<'_>,
    Part { table, condition }: &Part,
    seqs: &str,
    mut with: impl FnMut(&Row<'_>, &[String]) -> Result<()>,
) -> Result<()> {
    let columns: Vec<String> = tx.list(COLUMNS, [table])?;
    let names = columns.join(", ");
    let sql = format!("SELECT {names} FROM {table} WHERE {condition} ORDER BY 1, 2");
    let mut statement = tx.prepare(&sql)?;
    let mut rows = statement.query([seqs])?;
    while let Some(row) = rows.next()? {
        with(row, &columns)?;
    }
    Ok(())
}

/// Writes a row into a table. `insert` says what happens to a row that is there; the marks are those for the columns `own` and `parent_seq`.
pub(super) fn put(
    to: &WriteTx<'_>,
    insert: &str,
    table: &str,
    row: &Row<'_>,
    columns: &[String],
    [own, parent]: [&str; 2],
) -> Result<()> {
    let mark = |name: &String| match name.as_str() {
        "own" => own,
        "parent_seq" => parent,
        _ => "?",
    };
    let marks: Vec<&str> = columns.iter().map(mark).collect();
    let names = columns.join(", ");
    let marks = marks.join(", ");
    let sql = format!("{insert} INTO {table} ({names}) VALUES ({marks})");
    let values: rusqlite::Result<Vec<_>> =
        (0..columns.len()).map(|n| row.get_ref(n).map(ToSqlOutput::Borrowed)).collect();
    to.execute(&sql, params_from_iter(values?)).map(drop)
}

pub(super) fn delete(tx: &WriteTx<'_>, batch: &Batch) -> Result<()> {
    let Statements { parts, bodies_of, .. } = of(batch.kind);
    let seqs = batch.json();
    let bodies: String = tx.value(bodies_of, [&seqs])?;
    for Part { table, condition } in parts {
        tx.execute(&format!("DELETE FROM {table} WHERE {condition}"), [&seqs])?;
    }
    tx.execute(FORGET_BODIES, [bodies]).map(drop)
}
