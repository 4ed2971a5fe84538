//! A table of an ERP's own `SQLite` file, read only.
//!
//! A read is one short transaction over at most 100 rows and 4 MiB, on a read-only connection, so that it delays the
//! ERP as little as possible. Its statement is built from the quoted names in the source's settings; no other
//! statement is built at run time.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rusqlite::limits::Limit;
use rusqlite::types::{FromSql, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags, Row, TransactionBehavior};

use crate::config::settings::MAX_PAYLOAD_BYTES;
use crate::model::event_field::EventField;
use crate::sources::cell::Cell;
use crate::sources::draft::Draft;
use crate::sources::shared::{Obstacle, SourceError};
use crate::sources::table_settings::{TableSettings, TableState};

/// Rows of one read.
pub const MAX_ROWS: u32 = 100;
/// After so many bytes a read ends early: without a write-ahead log a reader delays the ERP's commits.
pub const MAX_BYTES: usize = 4 << 20;
/// Payloads up to this size are read at once; for larger ones the rows are read again, with more memory.
pub const PAYLOAD_BYTES_SMALL: u32 = 1 << 20;
/// How long to wait for a lock of the ERP.
const BUSY_TIMEOUT: Duration = Duration::from_millis(250);
/// Characters read of a cell other than the payload: more than any field accepts.
const MAX_CELL_CHARS: u32 = 5_000;

/// The largest value that a statement may produce: more than a payload.
const MAX_VALUE_BYTES: i32 = 26 << 20;
/// The longest statement in the schema.
const MAX_SQL_BYTES: i32 = 1 << 20;
/// Steps of SQLite in one read; a full read takes some thousands.
const MAX_STEPS: u32 = 50_000_000;
/// The number of steps between two counts.
const STEPS_COUNTED: u16 = 10_000;

/// The device and inode of a file, without opening it.
pub fn file_of(path: &Path) -> Result<(u64, u64), SourceError> {
    let meta = std::fs::metadata(path).map_err(|error| {
        SourceError::passing(format!("{:?} cannot be read: {error}", path.to_string_lossy()))
    })?;
    Ok((meta.dev(), meta.ino()))
}

/// A connection to the file of a usable table.
#[derive(Debug)]
pub struct Foreign {
    conn: Connection,
    table: TableSettings,
    file: (u64, u64),
    /// The file's `schema_version` when the statement was built.
    schema_version: i64,
    /// The fields that the table has, in the order of the statement.
    fields: Vec<EventField>,
    select: String,
    /// Steps that the current read may still take.
    steps: Arc<AtomicU32>,
}

/// The result of one read.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The state of the table.
    pub table: TableState,
    /// Rows after the cursor, by id.
    pub rows: Vec<(i64, Draft)>,
    /// Whether there are more rows after them.
    pub more: bool,
    /// Whether a payload was left out that can be read with more memory.
    pub unread: bool,
}

impl Foreign {
    /// Opens a table. Its path must not contain links (see `fs::canonicalize`).
    pub fn open(table: &TableSettings) -> Result<Self, SourceError> {
        let file = file_of(&table.path)?;
        let conn = connect(&table.path)?;
        let steps = Arc::new(AtomicU32::new(MAX_STEPS));
        bound(&conn, &steps).map_err(|error| failed(&table.path, &error))?;
        let mut foreign = Self {
            conn,
            table: table.clone(),
            file,
            schema_version: 0,
            fields: Vec::new(),
            select: String::new(),
            steps,
        };
        foreign.learn_schema()?;
        Ok(foreign)
    }

    /// A number that changes when another program has changed the file.
    pub fn data_version(&self) -> Result<i64, SourceError> {
        self.pragma("PRAGMA data_version")
    }

    /// The file that is open.
    pub const fn file(&self) -> (u64, u64) {
        self.file
    }

    /// The fields that the table has.
    pub fn fields(&self) -> &[EventField] {
        &self.fields
    }

    /// The file's journal mode, such as `wal`.
    pub fn journal_mode(&self) -> Result<String, SourceError> {
        self.pragma("PRAGMA journal_mode")
    }

    fn pragma<T: FromSql>(&self, sql: &str) -> Result<T, SourceError> {
        let read = self.conn.query_row(sql, [], |row| row.get(0));
        read.map_err(|error| failed(&self.table.path, &error))
    }

    fn learn_schema(&mut self) -> Result<(), SourceError> {
        self.schema_version = self.pragma("PRAGMA schema_version")?;
        self.fields = fields(&self.conn, &self.table)?;
        self.select = select(&self.table, &self.fields);
        Ok(())
    }

    /// Reads at most `limit` rows after a cursor, in one snapshot. Of a payload of more than `payload_bytes` only the
    /// size is read.
    pub fn read(
        &mut self,
        cursor: i64,
        limit: u32,
        payload_bytes: u32,
    ) -> Result<Batch, SourceError> {
        self.steps.store(MAX_STEPS, Ordering::Relaxed);
        if self.pragma::<i64>("PRAGMA schema_version")? != self.schema_version {
            self.learn_schema()?;
        }
        let Self { conn, table, file, fields, select, .. } = self;
        let unreadable = |error: rusqlite::Error| failed(&table.path, &error);
        let snapshot =
            conn.transaction_with_behavior(TransactionBehavior::Deferred).map_err(unreadable)?;
        let highest = highest(&snapshot, &table.table).map_err(unreadable)?;
        let (mut rows, more) = read_rows(&snapshot, select, fields, cursor, limit, payload_bytes)
            .map_err(unreadable)?;
        snapshot.finish().map_err(unreadable)?;
        let is_readable = |(_, row): &(i64, Draft)| {
            row.unread_payload().is_some_and(|bytes| bytes <= u64::from(MAX_PAYLOAD_BYTES))
        };
        let unread = rows.iter().any(is_readable);
        let at_cursor = match rows.first() {
            Some((id, row)) if *id == cursor => Some(row.fingerprint()),
            _ => None,
        };
        if at_cursor.is_some() {
            rows.remove(0);
        }
        let has = |field: &EventField| fields.contains(field);
        let of = EventField::OF_FINGERPRINT.iter().filter(|field| has(field));
        let columns = of.map(|field| table.column(*field).to_owned()).collect();
        let state = TableState { file: *file, highest, columns, at_cursor };
        Ok(Batch { table: state, rows, more, unread })
    }
}

#[expect(clippy::disallowed_methods, reason = "the store is what opens a database")]
fn connect(path: &Path) -> Result<Connection, SourceError> {
    let unopenable = |error: rusqlite::Error| {
        let failed = failed(path, &error);
        if failed.kind == Obstacle::Passing {
            return failed;
        }
        let shown = path.to_string_lossy();
        let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        SourceError::lasting(format!(
            "{shown:?} cannot be opened: {error}. The service needs to read the file and, where it has a \
             write-ahead log, to write into its directory: that is where SQLite keeps {name}-shm"
        ))
    };
    // The caller has checked the path; a link created since is not followed.
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let conn = Connection::open_with_flags(path, flags).map_err(unopenable)?;
    conn.busy_timeout(BUSY_TIMEOUT).map_err(unopenable)?;
    let set = "PRAGMA query_only = ON; PRAGMA cache_size = -500; PRAGMA trusted_schema = OFF;
               PRAGMA mmap_size = 0; PRAGMA cell_size_check = ON;";
    conn.execute_batch(set).map_err(unopenable)?;
    // Opening reads nothing, so errors show with the first query.
    conn.query_row("PRAGMA schema_version", [], |_| Ok(())).map_err(unopenable)?;
    Ok(conn)
}

/// Limits the memory and time of a statement, because the file's schema may contain computed columns.
fn bound(conn: &Connection, steps: &Arc<AtomicU32>) -> rusqlite::Result<()> {
    let _before = conn.set_limit(Limit::SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)?;
    let _before = conn.set_limit(Limit::SQLITE_LIMIT_SQL_LENGTH, MAX_SQL_BYTES)?;
    let steps = Arc::clone(steps);
    let is_over = move || {
        let counted = u32::from(STEPS_COUNTED);
        let had =
            steps.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(counted));
        had.is_err()
    };
    conn.progress_handler(i32::from(STEPS_COUNTED), Some(is_over))
}

/// The fields that the table has a column for.
fn fields(conn: &Connection, table: &TableSettings) -> Result<Vec<EventField>, SourceError> {
    let there = columns(conn, &table.table).map_err(|error| failed(&table.path, &error))?;
    let TableSettings { table: name, id, .. } = table;
    let path = table.path.to_string_lossy();
    if there.is_empty() {
        return Err(SourceError::lasting(format!(
            "there is no table {name:?} in {path:?}; `oncebox source ddl sqlite` prints one"
        )));
    }
    let has = |column: &str| there.iter().any(|have| have.eq_ignore_ascii_case(column));
    let missing = |column: &str, field: &str| {
        SourceError::lasting(format!(
            "the table {name:?} has no column {column:?} for {field}: name another one in the settings \
             (columns), or add it to the table"
        ))
    };
    if !has(id) {
        return Err(missing(id, "id"));
    }
    let numbered = conn
        .column_metadata(None, name.as_str(), id.as_str())
        .is_ok_and(|(_, _, _, primary, counted)| primary && counted);
    if !numbered {
        return Err(SourceError::lasting(format!(
            "{name}.{id} is not INTEGER PRIMARY KEY AUTOINCREMENT: without AUTOINCREMENT the ids of \
             deleted rows are given again, and events would be missed. `oncebox source ddl sqlite` prints a \
             suitable table"
        )));
    }
    let mut fields = Vec::new();
    for field in EventField::ALL {
        let column = table.column(field);
        if has(column) {
            fields.push(field);
        } else if table.needs(field) {
            return Err(missing(column, field.as_str()));
        }
    }
    Ok(fields)
}

fn columns(conn: &Connection, table: &str) -> rusqlite::Result<Vec<String>> {
    let mut statement = conn.prepare("SELECT name FROM pragma_table_xinfo(?1)")?;
    let names = statement.query_map([table], |row| row.get(0))?;
    names.collect()
}

/// The statement that reads rows. Columns are qualified with their table: SQLite reads an unknown bare name in double
/// quotes as a text.
fn select(table: &TableSettings, fields: &[EventField]) -> String {
    let name = quoted(&table.table);
    let id = format!("{name}.{}", quoted(&table.id));
    let mut columns = vec![id.clone()];
    for field in fields {
        let column = format!("{name}.{}", quoted(table.column(*field)));
        if *field == EventField::Payload {
            columns.push(format!("iif(octet_length({column}) <= ?3, {column}, NULL)"));
            columns.push(format!("octet_length({column})"));
        } else {
            let cut = format!("substr({column}, 1, {MAX_CELL_CHARS})");
            columns
                .push(format!("iif(octet_length({column}) <= {MAX_CELL_CHARS}, {column}, {cut})"));
        }
    }
    let columns = columns.join(", ");
    format!("SELECT {columns} FROM {name} WHERE {id} >= ?1 ORDER BY {id} LIMIT ?2")
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

type Rows = Vec<(i64, Draft)>;

/// The highest id that a table ever gave.
fn highest(snapshot: &Connection, table: &str) -> rusqlite::Result<i64> {
    let sql = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = ?1 COLLATE NOCASE";
    snapshot.query_row(sql, [table], |row| row.get(0))
}

/// Rows from `cursor` on, and whether there are more.
fn read_rows(
    snapshot: &Connection,
    select: &str,
    fields: &[EventField],
    cursor: i64,
    limit: u32,
    payload_bytes: u32,
) -> rusqlite::Result<(Rows, bool)> {
    let mut rows: Rows = Vec::new();
    let mut bytes = 0_usize;
    let mut more = false;
    // The row at the cursor, `limit` rows after it, and one that shows that there are more.
    let mut statement = snapshot.prepare_cached(select)?;
    let mut found = statement.query((cursor, i64::from(limit).saturating_add(2), payload_bytes))?;
    while let Some(row) = found.next()? {
        let id: i64 = row.get(0)?;
        let behind = rows.iter().filter(|(have, _)| *have != cursor).count();
        let full = behind >= usize::try_from(limit).unwrap_or(usize::MAX);
        if id != cursor && (full || (behind > 0 && bytes > MAX_BYTES)) {
            more = true;
            break;
        }
        let row = draft(row, fields)?;
        bytes = bytes.saturating_add(row.bytes());
        rows.push((id, row));
    }
    Ok((rows, more))
}

fn draft(row: &Row<'_>, fields: &[EventField]) -> rusqlite::Result<Draft> {
    let mut draft = Draft::default();
    let mut n = 1;
    for field in fields {
        let cell = cell(row.get_ref(n)?);
        n = n.saturating_add(1);
        if *field == EventField::Payload {
            let bytes: Option<i64> = row.get(n)?;
            n = n.saturating_add(1);
            match (cell, bytes) {
                (Some(cell), _) => draft.put(*field, cell),
                (None, Some(bytes)) => draft.put(*field, Cell::TooLarge(bytes.unsigned_abs())),
                (None, None) => {}
            }
        } else if let Some(cell) = cell {
            draft.put(*field, cell);
        }
    }
    Ok(draft)
}

fn cell(value: ValueRef<'_>) -> Option<Cell> {
    Some(match value {
        ValueRef::Null => return None,
        ValueRef::Integer(n) => Cell::Integer(n),
        ValueRef::Real(n) => Cell::Real(n),
        ValueRef::Text(text) => match std::str::from_utf8(text) {
            Ok(text) => Cell::Text(text.to_owned()),
            Err(_) => Cell::Bytes(text.to_vec()),
        },
        ValueRef::Blob(bytes) => Cell::Bytes(bytes.to_vec()),
    })
}

fn failed(path: &Path, error: &rusqlite::Error) -> SourceError {
    let path = path.to_string_lossy();
    let why = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            return SourceError::passing("the file is locked by another program".to_owned());
        }
        Some(ErrorCode::TooBig | ErrorCode::OutOfMemory) => format!(
            "{path:?}: a value of a row after the cursor has more than {MAX_VALUE_BYTES} bytes, which is never \
             read: look for a generated column or a zeroblob(), or move the cursor past the row"
        ),
        Some(ErrorCode::OperationInterrupted) => format!(
            "{path:?}: reading {MAX_ROWS} rows took more than {MAX_STEPS} steps of SQLite: look for a generated \
             column that computes, or run PRAGMA integrity_check on the file"
        ),
        _ => format!("{path:?}: {error}"),
    };
    SourceError::lasting(why)
}
