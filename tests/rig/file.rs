//! The database file, looked at from outside: as text for a test to compare, and checked for
//! everything that must hold whenever the service is stopped.

use std::fmt::Write as _;
use std::path::Path;

use oncebox::model::audit::AuditEvent;
use oncebox::model::audit::chain::{Head, hash_of};
use oncebox::store::audit_events::Trail;
use oncebox::store::error::Error;
use rusqlite::{Connection, OpenFlags, Row};

/// A connection of the test's own, that cannot write.
pub(crate) fn open(path: &Path) -> Connection {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags).unwrap();
    conn.busy_timeout(std::time::Duration::from_mins(1)).unwrap();
    conn
}

/// An outbox as an ERP has it.
pub(crate) const OUTBOX: &str = "CREATE TABLE IF NOT EXISTS outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT, event_type TEXT, payload TEXT)";

/// A file of an ERP with an outbox.
pub(crate) fn new_outbox(path: &Path) -> Connection {
    let erp = Connection::open(path).unwrap();
    erp.busy_timeout(std::time::Duration::from_mins(1)).unwrap();
    erp.run(OUTBOX);
    erp
}

/// Makes the audit events of a file that no process has open say that they were made earlier: the chain anew, with the
/// time that `at` says of each row's number and time.
pub(crate) fn made_earlier(path: &Path, at: impl Fn(i64, i64) -> i64) {
    let trail = Trail::open(path).unwrap().unwrap();
    let (mut rows, mut head) = (Vec::new(), trail.start());
    let keep = |_: &Path, row: AuditEvent| {
        rows.push(row);
        Ok::<(), Error>(())
    };
    trail.walk(keep).unwrap();
    drop(trail);
    let conn = Connection::open(path).unwrap();
    let sql = "SELECT sql || ';' FROM sqlite_master WHERE name = 'audit_events_are_never_changed'";
    let trigger = lines(&conn, sql).concat();
    conn.run("BEGIN; DROP TRIGGER audit_events_are_never_changed");
    for mut row in rows {
        (row.at, row.previous_hash) = (at(row.seq, row.at), head.hash);
        head = Head { seq: row.seq, hash: hash_of(&row) };
        let sql = "UPDATE audit_events SET at = ?2, previous_hash = ?3, hash = ?4 WHERE seq = ?1";
        conn.execute(sql, (row.seq, row.at, row.previous_hash.0, head.hash.0)).unwrap();
    }
    let sql = "UPDATE meta SET value = ?1 WHERE key = 'audit_head'";
    conn.execute(sql, [head.to_string()]).unwrap();
    conn.run(&format!("{trigger} COMMIT"));
}

/// Statements that must succeed.
pub(crate) trait Run {
    fn run(&self, sql: &str);
}

impl Run for Connection {
    #[track_caller]
    fn run(&self, sql: &str) {
        self.execute_batch(sql).unwrap();
    }
}

/// The rows of a query, each as one line of values between spaces.
pub(crate) fn lines(conn: &Connection, sql: &str) -> Vec<String> {
    let mut statement = conn.prepare_cached(sql).unwrap();
    let columns = statement.column_count();
    let line = |row: &Row<'_>| {
        let mut text = String::new();
        for column in 0..columns {
            let value = match row.get_ref(column)? {
                rusqlite::types::ValueRef::Null => "-".to_owned(),
                rusqlite::types::ValueRef::Integer(number) => number.to_string(),
                rusqlite::types::ValueRef::Real(number) => number.to_string(),
                rusqlite::types::ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
                rusqlite::types::ValueRef::Blob(blob) => format!("{} bytes", blob.len()),
            };
            write!(text, "{}{value}", if column == 0 { "" } else { " " }).unwrap();
        }
        Ok(text)
    };
    let rows = statement.query_map([], line).unwrap();
    rows.map(Result::unwrap).collect()
}

/// The files below a folder in which a text stands, as they are on the disk now. A mark is ASCII: it stays where
/// it stands, whatever is around it.
pub(crate) fn holding(folder: &Path, mark: &str) -> Vec<String> {
    let (mut open, mut found) = (vec![folder.to_owned()], Vec::new());
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
                continue;
            }
            // A file may be gone by now: the service works on.
            let bytes = std::fs::read(&path).unwrap_or_default();
            if String::from_utf8_lossy(&bytes).contains(mark) {
                found.push(path.display().to_string());
            }
        }
    }
    found
}

/// Everything that is carried out, as text. Times are seconds after `since_ms`.
pub(crate) fn dump(conn: &Connection, since_ms: i64) -> String {
    let mut text = String::new();
    for line in
        lines(conn, "SELECT seq || '|' || event_type || ' ' || status FROM outbox ORDER BY seq")
    {
        let (seq, shown) = line.split_once('|').unwrap();
        writeln!(text, "{shown}").unwrap();
        deliveries(conn, &mut text, &format!("outbox_seq = {seq}"), since_ms);
    }
    let webhooks =
        "SELECT seq || '|in ' || event_type || ' ' || status FROM webhook_events ORDER BY seq";
    for line in lines(conn, webhooks) {
        let (seq, shown) = line.split_once('|').unwrap();
        writeln!(text, "{shown}").unwrap();
        deliveries(conn, &mut text, &format!("webhook_seq = {seq}"), since_ms);
    }
    text
}

fn deliveries(conn: &Connection, text: &mut String, of: &str, since_ms: i64) {
    let sql = format!(
        "SELECT d.seq || '|' || s.name || ' ' || d.state
                || coalesce(' due +' || ((d.due_at - {since_ms}) / 1000) || 's', '')
                || iif(d.run_no > 1, ' run ' || d.run_no, '') || coalesce(': ' || d.reason, '')
           FROM deliveries AS d JOIN subscriptions AS s ON s.seq = d.subscription_seq
          WHERE d.{of} ORDER BY d.seq"
    );
    for line in lines(conn, &sql) {
        let (seq, shown) = line.split_once('|').unwrap();
        writeln!(text, "  {shown}").unwrap();
        let sql = format!(
            "SELECT n || ' +' || ((started_at - {since_ms}) / 1000) || 's ' || class
                    || iif(counted = 1, ' counted', '') || coalesce(' ' || http_status, '')
               FROM attempts WHERE delivery_seq = {seq} ORDER BY n"
        );
        for attempt in lines(conn, &sql) {
            writeln!(text, "    {attempt}").unwrap();
        }
    }
}

/// What must hold of every file, and a query of what breaks it.
pub(crate) const RULES: [(&str, &str); 11] = [
        ("foreign keys point somewhere", "PRAGMA foreign_key_check"),
        (
            "what waits has a due time, and nothing else has",
            "SELECT seq, state FROM deliveries WHERE (state = 'pending') <> (due_at IS NOT NULL)",
        ),
        (
            "every attempt is counted once, and numbered without a gap",
            "SELECT d.seq, d.attempt_count, count(a.n), max(a.n) FROM deliveries AS d
               LEFT JOIN attempts AS a ON a.delivery_seq = d.seq GROUP BY d.seq
             HAVING d.attempt_count <> count(a.n) OR coalesce(max(a.n), 0) <> count(a.n)",
        ),
        (
            "a lane has one head, its first that is not finished or one that somebody has in hand, unless it is blocked",
            "SELECT d.lane FROM deliveries AS d
              WHERE d.lane IS NOT NULL AND d.finished_at IS NULL AND d.state <> 'parked'
              GROUP BY d.lane HAVING sum(d.head) > 1 OR (
                sum(d.head = 1 AND d.state IN ('leased', 'waiting')) = 0
                AND (SELECT f.head = EXISTS (
                            SELECT 1 FROM deliveries AS b WHERE b.lane = f.lane AND b.state = 'dead_letter'
                               AND b.head = 1 AND (b.order_at, b.seq) < (f.order_at, f.seq)
                               AND coalesce(o.exclude_failed, 0) = 0)
                       FROM deliveries AS f LEFT JOIN outbox AS o ON o.seq = f.outbox_seq
                      WHERE f.lane = d.lane AND f.finished_at IS NULL AND f.state <> 'parked'
                      ORDER BY f.order_at, f.seq LIMIT 1))",
        ),
        (
            "a completed delivery has a success in its last attempt",
            "SELECT d.seq FROM deliveries AS d WHERE d.state = 'completed' AND NOT EXISTS (
               SELECT 1 FROM attempts AS a WHERE a.delivery_seq = d.seq AND a.class = 'success')",
        ),
        (
            "an open delivery has a subscription that can still take it",
            "SELECT d.seq FROM deliveries AS d JOIN subscriptions AS s ON s.seq = d.subscription_seq
              WHERE d.finished_at IS NULL AND s.deleted_at IS NOT NULL",
        ),
        (
            "an event's status is what its deliveries and its hard children say",
            "WITH alone AS (
                    SELECT o.seq, count(d.seq) FILTER (WHERE d.finished_at IS NULL) AS open,
                           CASE WHEN o.error_code IS NOT NULL AND count(d.seq) = 0
                                THEN iif(o.completed_at IS NULL, 'quarantined', 'cancelled')
                                WHEN sum(d.state = 'pending' AND d.counted_failures > 0) > 0 THEN 'failed'
                                WHEN count(d.seq) = 0 THEN 'skipped'
                                WHEN sum(d.state IN ('leased', 'waiting')) > 0 THEN 'processing'
                                WHEN sum(d.finished_at IS NULL) = count(d.seq) THEN 'pending'
                                WHEN sum(d.finished_at IS NULL) > 0 THEN 'processing'
                                WHEN sum(d.state = 'dead_letter') > 0 THEN 'dead_letter'
                                WHEN sum(d.state = 'completed') > 0 THEN 'completed'
                                WHEN sum(d.state = 'cancelled') = count(d.seq) THEN 'cancelled'
                                ELSE 'skipped' END AS says
                      FROM outbox AS o LEFT JOIN deliveries AS d ON d.outbox_seq = o.seq
                     GROUP BY o.seq),
                  children AS (
                    SELECT parent_seq AS seq, sum(status = 'dead_letter') > 0 AS dead,
                           sum(completed_at IS NULL) > 0 AS open, sum(status = 'completed') > 0 AS done
                      FROM outbox WHERE parent_binding = 'hard' AND routed_at IS NOT NULL
                     GROUP BY parent_seq),
                  together AS (
                    SELECT a.seq, a.open,
                           CASE WHEN c.seq IS NULL OR a.says NOT IN ('completed', 'skipped') THEN a.says
                                WHEN c.dead THEN 'dead_letter'
                                WHEN c.open THEN 'processing'
                                ELSE iif(c.done, 'completed', a.says) END AS says
                      FROM alone AS a LEFT JOIN children AS c ON c.seq = a.seq)
             SELECT o.seq, o.status, o.open_deliveries, t.says, t.open
               FROM outbox AS o JOIN together AS t ON t.seq = o.seq
              WHERE o.routed_at IS NOT NULL AND (t.says <> o.status OR t.open <> o.open_deliveries)",
        ),
        (
            "a parent knows how many hard children it has",
            "SELECT o.seq, o.hard_children FROM outbox AS o
              WHERE o.hard_children <> (SELECT count(*) FROM outbox AS c WHERE c.parent_seq = o.seq
                    AND c.parent_binding = 'hard' AND c.routed_at IS NOT NULL)",
        ),
        (
            "a webhook event knows how many of its deliveries are open",
            "SELECT w.seq, w.status, w.open_deliveries FROM webhook_events AS w
              WHERE w.open_deliveries <> (SELECT count(*) FROM deliveries AS d
                    WHERE d.webhook_seq = w.seq AND d.finished_at IS NULL)",
        ),
        (
            "no request's key is left without its answer",
            "SELECT key FROM idempotency_keys WHERE status IS NULL",
        ),
        ("no event is left without a look for who wants it", "SELECT seq FROM outbox WHERE routed_at IS NULL"),
];

/// Asserts what must hold of every file that no process has open.
pub(crate) fn check(path: &Path) {
    let chain = Trail::open(path).unwrap().unwrap().verify(&[]).unwrap();
    assert_eq!(chain.breaks, [], "the chain of audit events holds");
    let conn = open(path);
    assert_eq!(lines(&conn, "PRAGMA integrity_check"), ["ok"]);
    let none: [&str; 0] = [];
    for (rule, broken) in RULES {
        assert_eq!(lines(&conn, broken), none, "{rule}");
    }
}
