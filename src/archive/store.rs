//! Rows of finished events: which are old enough, and how they move between the database and the file of a month.
//!
//! The file of a month has the whole schema, so that what reads the database reads it as well. Rows keep their numbers.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;

use ring::digest::{Context, SHA256};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, Row, TransactionBehavior, params_from_iter};

use crate::archive::{Archive, Batch, Kind, Month, Numbers, Summary};
use crate::base::clock::Timestamp;
use crate::config::settings::Archive as Settings;
use crate::model::audit::chain::Head;
use crate::store::error::{Error, Result};
use crate::store::legal_holds::is_held_by;
use crate::store::page::number_at;
use crate::store::seen_keys::{self, Seen};
use crate::store::tx::{ReadTx, WriteTx, WriterCache, tuple};
use crate::store::{audit_events, outbox_lists, read_only, schema, webhook_events};
use crate::sys::files;

/// Rows that one look reads.
const LOOKED_AT: i64 = 2_000;
/// Events of one batch.
const MAX_EVENTS: usize = 64;
/// Bytes of the bodies of one batch, unless one alone has more.
const MAX_BYTES: u64 = 1 << 20;

const OUT: &str = "
    SELECT value FROM meta
     WHERE key >= 'archive_out/' AND key < 'archive_out0'
     ORDER BY key LIMIT 100000";

const NOTE_OUT: &str = "
    INSERT INTO meta (key, value) VALUES (?1, ?2)
        ON CONFLICT (key) DO UPDATE SET value = excluded.value";

/// The key in the meta of a month's file under which it has when rows were moved into it last.
const SINCE: &str = "archived_at";

/// A quarter of a MiB: what a write is delayed by it stays small.
const GIVE_BACK: &str = "PRAGMA incremental_vacuum(64)";

const HOT: &str = "
    SELECT (SELECT count(*) FROM outbox) + (SELECT count(*) FROM webhook_events),
           (SELECT min(at) FROM (
              SELECT (SELECT received_at FROM outbox ORDER BY seq LIMIT 1) AS at
               UNION ALL
              SELECT (SELECT received_at FROM webhook_events ORDER BY seq LIMIT 1)))";

const META: &str = "SELECT value FROM meta WHERE key = ?1";

const FORGET_OUT: &str = "DELETE FROM meta WHERE key = ?1";

// A child may have been published since the parent was found.
const HAS_CHILD: &str =
    "SELECT 1 FROM outbox WHERE parent_seq IN (SELECT value FROM json_each(?1)) LIMIT 1";

const FORGET_BODIES: &str = "DELETE FROM payloads WHERE seq IN (SELECT value FROM json_each(?1))";

const COLUMNS: &str = "SELECT name FROM pragma_table_info(?1) ORDER BY cid";

// The triggers keep plain SQL in order, and would refuse rows that are moved. The rows that others refer to may be in the
// database or in another file.
const FOR_ROWS_THAT_MOVE: &str = "
    PRAGMA foreign_keys = OFF;
    DROP TRIGGER IF EXISTS outbox_own_columns_are_left_out;
    DROP TRIGGER IF EXISTS deliveries_count_deaths;
    DROP TRIGGER IF EXISTS subscriptions_updated_at;
    DROP INDEX IF EXISTS subscriptions_name;";

/// The views with the names of other outboxes, each with the column that identifies a row.
const VIEWS: [(&str, &str); 7] = [
    ("integration_outbox", "outbox_id"),
    ("outbox_events", "id"),
    ("webhook_deliveries", "id"),
    ("message", "msg_id"),
    ("external_call", "call_id"),
    ("request", "req_id"),
    ("response", "res_id"),
];
/// Files that `views` attaches. SQLite's limit is 10; one is left to the reader.
const MAX_ATTACHED: usize = 9;

// An ERP may have a table or a view of this name.
const HAS_VIEW: &str = "
    SELECT 1 FROM sqlite_master AS m JOIN pragma_table_info(m.name) AS c
     WHERE m.type = 'view' AND m.name = ?1 AND c.name = ?2";

/// The mark for the column `own`: the database refuses rows by plain SQL that are not new.
const OWN_AS_OURS: &str = "max(?, 1)";

const AUDIT_EVENTS: Part =
    Part { table: "audit_events", condition: "seq IN (SELECT value FROM json_each(?1))" };

/// Tenant, source, key, id and status of an event.
type Identified = (String, String, String, String, String);

/// Rows of a table that belong to events; ?1 of the condition has the events' numbers as JSON.
struct Part {
    table: &'static str,
    condition: &'static str,
}

/// What is done with one kind of event.
struct Statements {
    /// The event and all that belongs to it, in the order in which it is deleted.
    parts: [Part; 5],
    bodies: Part,
    /// What else a reader needs. It is copied and stays.
    needed: Part,
    /// Numbers, months and bytes of rows, and whether they are old: finished before ?2, or before that of their tenant
    /// in ?5; ?1 < number < ?3.
    old: &'static str,
    identities: &'static str,
    bodies_of: &'static str,
    received_from: &'static str,
    by_id: &'static str,
    by_number: &'static str,
}

macro_rules! statements {
    ($events:tt, $of:literal, ($source:literal, $key:literal, $parent:literal), $finished:literal, $from:expr) => {
        Statements {
            parts: [
                statements!(@ "renderings", $of),
                statements!(@ "failures", $of),
                statements!(@ "attempts", $of),
                Part { table: "deliveries", condition: concat!($of, " IN (SELECT value FROM json_each(?1))") },
                Part { table: $events, condition: "seq IN (SELECT value FROM json_each(?1))" },
            ],
            bodies: Part {
                table: "payloads",
                condition: concat!("seq IN (SELECT payload_seq FROM ", $events,
                                   " WHERE seq IN (SELECT value FROM json_each(?1)))"),
            },
            needed: Part {
                table: "subscriptions",
                condition: concat!("seq IN (SELECT subscription_seq FROM deliveries WHERE ", $of,
                                   " IN (SELECT value FROM json_each(?1)))"),
            },
            // Beside its body, an attempt counts as long as the longest answer that is kept.
            old: concat!(
                "SELECT seq, coalesce(strftime('%Y-%m', completed_at / 1000, 'unixepoch'), ''),
                        coalesce(octet_length(payload),
                                 (SELECT octet_length(body) FROM payloads WHERE seq = e.payload_seq), 0)
                        + (SELECT coalesce(sum(2048 * d.attempt_count + coalesce(octet_length(r.body), 0)), 0)
                             FROM deliveries AS d LEFT JOIN renderings AS r ON r.delivery_seq = d.seq
                            WHERE d.", $of, " = e.seq),
                        completed_at < by AND ", $finished, "
                        AND NOT EXISTS (SELECT 1 FROM legal_holds AS h WHERE ", is_held_by!($events), ")
                        AND NOT EXISTS (SELECT 1 FROM deliveries AS d WHERE d.", $of, " = e.seq
                                           AND (state NOT IN ('completed', 'skipped', 'cancelled')
                                                OR finished_at >= by
                                                OR EXISTS (SELECT 1 FROM external_calls AS x
                                                            WHERE x.subscription_seq = d.subscription_seq
                                                              AND x.entity = coalesce(d.entity, d.seq)
                                                              AND d.seq IN (x.delivery_seq, x.made_seq))))
                   FROM (SELECT *, coalesce(json_extract(?5, '$.\"' || tenant || '\"'), ?2) AS by
                           FROM ", $events, ") AS e
                  WHERE seq > ?1 AND seq < ?3 ORDER BY seq LIMIT ?4"),
            identities: concat!("SELECT tenant, ", $source, ", ", $key, ", id, status FROM ", $events,
                                " WHERE seq IN (SELECT value FROM json_each(?1))"),
            bodies_of: concat!("SELECT json_group_array(payload_seq) FROM ", $events,
                               " WHERE payload_seq IS NOT NULL AND seq IN (SELECT value FROM json_each(?1))"),
            received_from: $from,
            by_id: concat!("SELECT seq, id, ", $parent, " FROM ", $events, " WHERE tenant = ?1 AND id = ?2"),
            by_number: concat!("SELECT seq, id, ", $parent, " FROM ", $events, " WHERE seq = ?1"),
        }
    };
    (@ $table:literal, $of:literal) => {
        Part {
            table: $table,
            condition: concat!("delivery_seq IN (SELECT seq FROM deliveries WHERE ", $of,
                               " IN (SELECT value FROM json_each(?1)))"),
        }
    };
}

// A parent stays until its children are gone, since they refer to it. A child stays until its parent is finished, whose
// status depends on it.
const EVENTS: Statements = statements!(
    "outbox",
    "outbox_seq",
    ("source_system", "idempotency_key", "parent_seq"),
    "status IN ('completed', 'skipped', 'cancelled')
     AND NOT EXISTS (SELECT 1 FROM outbox AS c WHERE c.parent_seq = e.seq)
     AND NOT EXISTS (SELECT 1 FROM outbox AS p WHERE p.seq = e.parent_seq
                        AND p.status NOT IN ('completed', 'skipped', 'cancelled'))",
    outbox_lists::RECEIVED_FROM
);

const WEBHOOK_EVENTS: Statements = statements!(
    "webhook_events",
    "webhook_seq",
    ("provider", "provider_event_id", "NULL"),
    // A captured request may be sent again under another id for 30 days (`replay_window_secs`).
    "status IN ('completed', 'skipped') AND (fingerprint IS NULL OR received_at < by - 2592000000)",
    webhook_events::RECEIVED_FROM
);

const fn of(kind: Kind) -> &'static Statements {
    match kind {
        Kind::Event => &EVENTS,
        Kind::WebhookEvent => &WEBHOOK_EVENTS,
    }
}

/// Before which time an event has finished that is moved.
#[derive(Clone, Debug)]
pub struct Before {
    by: Timestamp,
    /// Of tenants for which it differs: milliseconds by their names, as JSON.
    of: Option<String>,
    latest: Timestamp,
}

impl Before {
    /// One time for all tenants.
    pub const fn all(by: Timestamp) -> Self {
        Self { by, of: None, latest: by }
    }

    /// What the settings say at a time.
    pub fn set(Settings { after, after_of, .. }: &Settings, now: Timestamp) -> Self {
        let of: BTreeMap<_, _> =
            after_of.iter().map(|(tenant, after)| (tenant, now.minus(*after).ms())).collect();
        let shortest = after_of.values().min().map_or(*after, |least| *least.min(after));
        let json = (!of.is_empty()).then(|| serde_json::json!(of).to_string());
        Self { by: now.minus(*after), of: json, latest: now.minus(shortest) }
    }
}

/// Where a walk over all events of a kind stands.
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    after: i64,
    below: i64,
}

/// Begins a walk over the events that may have finished by then.
pub fn walk(tx: &ReadTx<'_>, kind: Kind, before: &Before) -> Result<Walk> {
    Ok(Walk { after: 0, below: number_at(tx, of(kind).received_from, before.latest)? })
}

/// Goes on with a walk: the next events that finished by then, all in one month; `None` at its end. A batch may be
/// empty.
pub fn next(
    tx: &ReadTx<'_>,
    kind: Kind,
    walk: &mut Walk,
    Before { by, of: by_of, .. }: &Before,
) -> Result<Option<Batch>> {
    let mut batch = Batch { kind, month: Month::default(), seqs: Vec::new(), bytes: 0 };
    let mut statement = tx.prepare(of(kind).old)?;
    let mut rows = statement.query((walk.after, by, walk.below, LOOKED_AT, by_of))?;
    let mut is_end = true;
    while let Some(row) = rows.next()? {
        let (seq, month, bytes, is_old): (i64, String, i64, bool) =
            (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
        is_end = false;
        if is_old {
            let bytes = u64::try_from(bytes).unwrap_or(0);
            let month = Month::parse(&month).unwrap_or_default();
            let is_first = batch.seqs.is_empty();
            let is_full = batch.seqs.len() >= MAX_EVENTS || batch.bytes + bytes > MAX_BYTES;
            if !is_first && (is_full || month != batch.month) {
                break;
            }
            batch.month = month;
            batch.bytes += bytes;
            batch.seqs.push(seq);
        }
        walk.after = seq;
    }
    Ok((!is_end).then_some(batch))
}

/// Events that would move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// How many.
    pub events: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
}

impl Count {
    /// Both together.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            events: self.events.saturating_add(other.events),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }
}

/// Counts the events that finished by then.
pub fn count(tx: &ReadTx<'_>, kind: Kind, before: &Before) -> Result<Count> {
    let (mut walk, mut all) = (walk(tx, kind, before)?, Count::default());
    while let Some(batch) = next(tx, kind, &mut walk, before)? {
        let events = u64::try_from(batch.seqs.len()).unwrap_or(0);
        all = all.and(Count { events, bytes: batch.bytes });
    }
    Ok(all)
}

/// Batches that the file of a month may have although the database has them: a move was begun, or an event came back.
pub fn out(tx: &ReadTx<'_>) -> Result<Vec<Batch>> {
    let noted: Vec<String> = tx.list(OUT, [])?;
    Ok(noted.iter().filter_map(|text| serde_json::from_str(text).ok()).collect())
}

/// Notes that the file of the month may have rows that the database has as well. `false`: another note has one of them, and
/// has to be worked off first.
pub fn note_out(tx: &WriteTx<'_>, batch: &Batch) -> Result<bool> {
    let is_same = |other: &Batch| {
        other.kind == batch.kind && other.seqs.iter().any(|seq| batch.seqs.contains(seq))
    };
    if out(tx)?.iter().any(is_same) {
        return Ok(false);
    }
    let text = serde_json::to_string(batch).unwrap_or_default();
    tx.execute(NOTE_OUT, (out_key(batch), text))?;
    Ok(true)
}

/// Notes that the file of the month has no row of the batch, or the database has none.
pub fn forget_out(tx: &WriteTx<'_>, batch: &Batch) -> Result<()> {
    tx.execute(FORGET_OUT, [out_key(batch)]).map(drop)
}

fn out_key(batch: &Batch) -> String {
    format!("archive_out/{}/{}", batch.kind, batch.seqs.first().copied().unwrap_or_default())
}

/// Where an event is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its number.
    pub seq: i64,
    /// Its id.
    pub id: String,
    /// The number of its parent.
    pub parent: Option<i64>,
}

/// Which event is looked for.
#[derive(Clone, Debug)]
pub enum Wanted {
    /// By tenant and id.
    Id(String, String),
    /// By its number.
    Number(i64),
}

/// Finds an event; `None` if the file does not have it.
pub fn place(tx: &ReadTx<'_>, kind: Kind, wanted: &Wanted) -> Result<Option<Place>> {
    let row = |row: &Row<'_>| Ok(Place { seq: row.get(0)?, id: row.get(1)?, parent: row.get(2)? });
    let Statements { by_id, by_number, .. } = of(kind);
    match wanted {
        Wanted::Id(tenant, id) => tx.first(by_id, (tenant, id), row),
        Wanted::Number(seq) => tx.first(by_number, [seq], row),
    }
}

/// Brings an event back into the database, as itself; does nothing if it is there. `from` is the file of the month.
/// Fails with `Constraint` if another event has its key by now.
pub fn bring_back(tx: &WriteTx<'_>, from: &ReadTx<'_>, batch: &Batch) -> Result<()> {
    let Some(seq) = batch.seqs.first().copied() else { return Ok(()) };
    if place(tx, batch.kind, &Wanted::Number(seq))?.is_some() {
        return Ok(());
    }
    let found =
        place(from, batch.kind, &Wanted::Number(seq))?.ok_or(Error::Changed("the event"))?;
    // A parent that is nowhere any more was deleted with its month.
    let parent = match found.parent {
        Some(parent) if place(tx, batch.kind, &Wanted::Number(parent))?.is_none() => "? * NULL",
        _ => "?",
    };
    for part in moved(batch.kind).collect::<Vec<_>>().into_iter().rev() {
        each_row(from, part, &batch.json(), |row, columns| {
            put(tx, ("INSERT", part.table), row, columns, [OWN_AS_OURS, parent])
        })?;
    }
    let identities: Vec<Identified> =
        from.rows(of(batch.kind).identities, [batch.json()], tuple)?;
    for (tenant, source, key, ..) in &identities {
        seen_keys::forget(tx, (batch.kind.as_str(), (tenant, source, key)))?;
    }
    note_out(tx, batch).map(drop)
}

/// Those of a batch that the database has.
pub fn present(tx: &ReadTx<'_>, batch: &Batch) -> Result<Batch> {
    let mut there = batch.clone();
    let mut seqs = Vec::new();
    for seq in &batch.seqs {
        if place(tx, batch.kind, &Wanted::Number(*seq))?.is_some() {
            seqs.push(*seq);
        }
    }
    there.seqs = seqs;
    Ok(there)
}

/// The numbers of what a file has.
pub fn numbers(month: &ReadTx<'_>) -> Result<Numbers> {
    let of = |table: &str| -> Result<(i64, i64)> {
        let sql = format!("SELECT coalesce(min(seq), 0), coalesce(max(seq), 0) FROM (
            SELECT (SELECT min(seq) FROM {table}) AS seq UNION ALL SELECT (SELECT max(seq) FROM {table}))");
        Ok(month.first(&sql, [], tuple)?.unwrap_or_default())
    };
    Ok([of("outbox")?, of("webhook_events")?, of("deliveries")?])
}

/// Events and webhook events that are in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hot {
    /// How many.
    pub events: u64,
    /// When the oldest one was received; `None`: there is none.
    pub oldest_at: Option<Timestamp>,
}

/// Counts what is in the database. Reads an index of it.
pub fn hot(tx: &ReadTx<'_>) -> Result<Hot> {
    let (events, oldest_at): (i64, Option<Timestamp>) =
        tx.first(HOT, [], tuple)?.unwrap_or_default();
    Ok(Hot { events: u64::try_from(events).unwrap_or(0), oldest_at })
}

/// The unused pages of the database, and all of them.
pub fn pages(tx: &ReadTx<'_>) -> Result<(u32, u32)> {
    Ok((tx.value("PRAGMA freelist_count", [])?, tx.value("PRAGMA page_count", [])?))
}

/// Gives a few unused pages back to the file system.
pub fn give_back(tx: &WriteTx<'_>) -> Result<()> {
    let mut statement = tx.prepare(GIVE_BACK)?;
    let mut rows = statement.query([])?;
    // Each step gives back one page.
    while rows.next()?.is_some() {}
    Ok(())
}

/// When rows were moved into the file of a month last; `None` if it does not say.
pub fn since(month: &ReadTx<'_>) -> Result<Option<Timestamp>> {
    month.find(META, [SINCE])
}

/// Deletes from the database what the file of the month has, and notes the keys of the events. `false`: a row is another
/// one by now, and all stay.
pub fn end(tx: &WriteTx<'_>, batch: &Batch, copied: &Summary) -> Result<bool> {
    let seqs = batch.json();
    let is_parent = batch.kind == Kind::Event && tx.exists(HAS_CHILD, [&seqs])?;
    if is_parent || summary(tx, batch)? != *copied {
        return Ok(false);
    }
    let identities: Vec<Identified> = tx.rows(of(batch.kind).identities, [&seqs], tuple)?;
    for (tenant, source, key, id, status) in identities {
        let seen = Seen { id, status, month: batch.month.to_string() };
        let identity = (tenant.as_str(), source.as_str(), key.as_str());
        seen_keys::note(tx, (batch.kind.as_str(), identity), &seen)?;
    }
    delete(tx, batch)?;
    forget_out(tx, batch)?;
    Ok(true)
}

fn delete(tx: &WriteTx<'_>, batch: &Batch) -> Result<()> {
    let (Statements { parts, bodies_of, .. }, seqs) = (of(batch.kind), batch.json());
    let bodies: String = tx.value(bodies_of, [&seqs])?;
    for Part { table, condition } in parts {
        tx.execute(&format!("DELETE FROM {table} WHERE {condition}"), [&seqs])?;
    }
    tx.execute(FORGET_BODIES, [bodies]).map(drop)
}

/// Counts and hashes the rows of a batch that move.
fn summary(tx: &ReadTx<'_>, batch: &Batch) -> Result<Summary> {
    let mut sum = Sum::new();
    for part in moved(batch.kind) {
        each_row(tx, part, &batch.json(), |row, columns| sum.add(part.table, row, columns.len()))?;
    }
    Ok(sum.finish())
}

fn moved(kind: Kind) -> impl Iterator<Item = &'static Part> {
    let Statements { parts, bodies, .. } = of(kind);
    parts.iter().chain([bodies])
}

struct Sum {
    rows: u64,
    hash: Context,
}

impl Sum {
    fn new() -> Self {
        Self { rows: 0, hash: Context::new(&SHA256) }
    }

    fn add(&mut self, table: &str, row: &Row<'_>, columns: usize) -> Result<()> {
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

    fn finish(self) -> Summary {
        Summary { rows: self.rows, sha256: self.hash.finish().as_ref().to_vec() }
    }
}

fn each_row(
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

/// SQL that attaches months to the database and makes temporary views over both, named as the views of each. `months` has
/// the latest first.
pub fn views(database: &Path, archive: &Archive, months: &[Month]) -> Result<String> {
    let (attached, left_out) = months.split_at(months.len().min(MAX_ATTACHED));
    let known = |path: &Path| {
        let (reader, mut known) = (read_only(path)?, Vec::new());
        for view in VIEWS {
            known.extend(reader.tx().exists(HAS_VIEW, view)?.then_some(view));
        }
        Ok::<_, Error>(known)
    };
    let mut views: Vec<(&str, &str, String)> = known(database)?
        .into_iter()
        .map(|(name, key)| {
            (name, key, format!("CREATE TEMP VIEW {name} AS SELECT * FROM main.{name}"))
        })
        .collect();
    let mut lines = vec![format!("-- sqlite3 -readonly -init FILE {}", quoted(database))];
    lines.extend(
        left_out.iter().map(|month| format!("-- left out, {MAX_ATTACHED} are attached: {month}")),
    );
    for month in attached {
        let (path, schema) = (archive.path(month), month.schema());
        lines.push(format!("ATTACH {} AS {schema};", quoted(&path)));
        let known = known(&path)?;
        for (name, key, view) in &mut views {
            if known.contains(&(*name, *key)) {
                // An event that is being moved, or has come back, is in both.
                let part = format!("\n UNION ALL SELECT * FROM {schema}.{name} WHERE");
                view.extend([part, format!(" {key} NOT IN (SELECT {key} FROM main.{name})")]);
            } else {
                lines.push(format!("-- left out, its schema is older: {name} of {month}"));
            }
        }
    }
    lines.extend(views.into_iter().map(|(_, _, view)| view + ";"));
    Ok(lines.join("\n") + "\n")
}

fn quoted(path: &Path) -> String {
    format!("'{}'", path.to_string_lossy().replace('\'', "''"))
}

/// Counts and hashes audit events, whose numbers are given as JSON.
pub fn audit_summary(tx: &ReadTx<'_>, seqs: &str) -> Result<Summary> {
    let mut sum = Sum::new();
    each_row(tx, &AUDIT_EVENTS, seqs, |row, columns| {
        sum.add(AUDIT_EVENTS.table, row, columns.len())
    })?;
    Ok(sum.finish())
}

/// Makes the file of a month, unless it is there. It gets its name when its tables are in it, so that no reader meets it
/// without them.
pub fn make(archive: &Archive, month: &Month) -> Result<()> {
    let path = archive.path(month);
    if path.exists() {
        return Ok(());
    }
    let failed = |source| Error::File { path: path.clone(), source: Arc::new(source) };
    DirBuilder::new().recursive(true).mode(0o700).create(archive.directory()).map_err(failed)?;
    files::sync_directory_of(archive.directory()).map_err(failed)?;
    let unnamed = files::with_ending(&path, ".new");
    MonthFile::open(&unnamed)?.empty_log()?;
    fs::rename(&unnamed, &path).map_err(failed)?;
    for ending in ["-wal", "-shm"] {
        let _left = fs::remove_file(files::with_ending(&unnamed, ending));
    }
    files::sync_directory_of(&path).map_err(failed)
}

/// The file of a month, open to be written. Nothing else writes it.
pub struct MonthFile {
    conn: Connection,
    cache: WriterCache,
}

impl MonthFile {
    /// Opens the file, and creates it if it does not exist.
    /// Fails if its schema is another one, or it cannot be made durable.
    pub fn open(path: &Path) -> Result<Self> {
        let conn = schema::open_writer(path)?;
        conn.execute_batch(FOR_ROWS_THAT_MOVE)?;
        Ok(Self { conn, cache: WriterCache::default() })
    }

    /// Copies a batch into the file, commits, and reads it again.
    pub fn take_in(
        &mut self,
        from: &ReadTx<'_>,
        batch: &Batch,
        now: Timestamp,
    ) -> Result<(Summary, Summary)> {
        let (mut sum, seqs) = (Sum::new(), batch.json());
        self.change(|to| {
            // A move that was cut short may have left them.
            delete(to, batch)?;
            each_row(from, &of(batch.kind).needed, &seqs, |row, columns| {
                put(to, ("INSERT OR REPLACE", of(batch.kind).needed.table), row, columns, ["?"; 2])
            })?;
            for part in moved(batch.kind) {
                each_row(from, part, &seqs, |row, columns| {
                    sum.add(part.table, row, columns.len())?;
                    put(to, ("INSERT", part.table), row, columns, ["?"; 2])
                })?;
            }
            to.execute(NOTE_OUT, (SINCE, now)).map(drop)
        })?;
        Ok((sum.finish(), summary(&ReadTx::new(&self.conn), batch)?))
    }

    /// Copies audit events into the file, commits, and reads them again. Rows that a move left there stay. The first row
    /// of the file follows `start`, and `last` is the last one.
    pub fn take_in_audit(
        &mut self,
        from: &ReadTx<'_>,
        seqs: &str,
        [start, last]: [Head; 2],
        now: Timestamp,
    ) -> Result<(Summary, Summary)> {
        self.change(|to| {
            each_row(from, &AUDIT_EVENTS, seqs, |row, columns| {
                put(to, ("INSERT OR IGNORE", AUDIT_EVENTS.table), row, columns, ["?"; 2])
            })?;
            audit_events::note_ends(to, start, last)?;
            to.execute(NOTE_OUT, (SINCE, now)).map(drop)
        })?;
        Ok((audit_summary(from, seqs)?, audit_summary(&ReadTx::new(&self.conn), seqs)?))
    }

    /// Deletes what the file has of a batch.
    pub fn drop_out(&mut self, batch: &Batch) -> Result<()> {
        self.change(|tx| delete(tx, batch))
    }

    /// Copies the write-ahead log into the file.
    pub fn empty_log(&self) -> Result<()> {
        Ok(self.conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?)
    }

    /// As [`Self::empty_log`].
    /// Fails with `Busy` while somebody reads an earlier state.
    pub fn empty_log_surely(&self) -> Result<()> {
        let sql = "PRAGMA wal_checkpoint(TRUNCATE)";
        let is_busy: bool = self.conn.query_row(sql, [], |row| row.get(0))?;
        if is_busy { Err(Error::Busy) } else { Ok(()) }
    }

    /// Changes the file in one transaction.
    pub fn change<T>(&mut self, run: impl FnOnce(&WriteTx<'_>) -> Result<T>) -> Result<T> {
        let transaction = self.conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let done = run(&WriteTx::new(&transaction, &self.cache))?;
        transaction.commit().map_err(Error::at_commit)?;
        Ok(done)
    }
}

/// Writes a row; the marks are those for the columns `own` and `parent_seq`.
fn put(
    to: &WriteTx<'_>,
    (insert, table): (&str, &str),
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
    let (names, marks) = (columns.join(", "), marks.join(", "));
    let sql = format!("{insert} INTO {table} ({names}) VALUES ({marks})");
    let values: rusqlite::Result<Vec<_>> =
        (0..columns.len()).map(|n| row.get_ref(n).map(ToSqlOutput::Borrowed)).collect();
    to.execute(&sql, params_from_iter(values?)).map(drop)
}
