//! Files that have a past: millions of finished events, or deliveries that wait.

use rusqlite::Connection;

/// Rows of one transaction while a file is filled.
const CHUNK: i64 = 50_000;

const SUBSCRIPTION: &str = "
    INSERT INTO subscriptions (id, name, event_types, url, created_at, updated_at)
    VALUES ('019a0000-0000-7000-8000-000000000000', 'history', '[\"*\"]', ?1, 1, 1)";

const NUMBERS: &str =
    "WITH RECURSIVE n (i) AS (SELECT ?1 UNION ALL SELECT i + 1 FROM n WHERE i < ?2)";

const EVENTS: &str = "
    INSERT INTO outbox (seq, id, source_system, idempotency_key, event_type, payload, received_at,
                        routed_at, status, open_deliveries, completed_at)
    SELECT i, printf('0198%04x-%04x-7000-8000-%012x', i >> 16, i & 65535, i), 'history',
           printf('%024d', i), 'bench.event', randomblob(500), ?3, ?3,
           iif(?4 IS NULL, 'completed', 'failed'), iif(?4 IS NULL, 0, 1), iif(?4 IS NULL, ?3, NULL)
      FROM n";

const DELIVERIES: &str = "
    INSERT INTO deliveries (outbox_seq, subscription_seq, tenant, order_at, state, due_at, delay_ms,
                            attempt_count, counted_failures, last_class, finished_at)
    SELECT i, 1, 'default', ?3, iif(?4 IS NULL, 'completed', 'pending'), ?4 + i % 1000,
           iif(?4 IS NULL, 0, 3600000), 1, iif(?4 IS NULL, 0, 1),
           iif(?4 IS NULL, 'success', 'transient'), iif(?4 IS NULL, ?3, NULL)
      FROM n";

const ATTEMPTS: &str = "
    INSERT INTO attempts (delivery_seq, n, started_at, finished_at, url, class, counted, http_status,
                          latency_ms, excerpt, failed_reason, key_id, span)
    SELECT d.seq, 1, ?3, ?3, 'http://127.0.0.1:40000/hook', iif(?4 IS NULL, 'success', 'transient'),
           iif(?4 IS NULL, 0, 1), iif(?4 IS NULL, 200, 503), 1, 'ok',
           iif(?4 IS NULL, NULL, 'the target answered 503'),
           '019a0000-0000-7000-8000-000000000001', '00f067aa0ba902b7'
      FROM n JOIN deliveries AS d ON d.outbox_seq = n.i";

/// Puts the one subscription into a file that has none.
pub(crate) fn subscribe(conn: &Connection, url: &str) {
    conn.execute(SUBSCRIPTION, [url]).unwrap();
}

const CONSUMER: &str = "
    INSERT INTO subscriptions (id, name, event_types, target_kind, url, created_at, updated_at)
    VALUES (?1, ?1, json_array(?2), 'pull', '', 1, 1)";

/// Puts a subscription into a file whose deliveries nobody takes.
#[allow(dead_code, reason = "one of the benches needs it")]
pub(crate) fn subscribe_to(conn: &Connection, name: &str, event_type: &str) {
    conn.execute(CONSUMER, [name, event_type]).unwrap();
}

/// Writes `count` events with one delivery each: finished, or waiting for a retry at `due_at`.
pub(crate) fn write(conn: &Connection, count: i64, now: i64, due_at: Option<i64>) {
    let trigger = "SELECT sql FROM sqlite_master WHERE name = 'outbox_own_columns_are_left_out'";
    let trigger: String = conn.query_row(trigger, [], |row| row.get(0)).unwrap();
    // The trigger refuses any event that begins finished; the pragma saves an hour of syncs.
    conn.execute_batch("PRAGMA synchronous = OFF; DROP TRIGGER outbox_own_columns_are_left_out")
        .unwrap();
    let last: i64 =
        conn.query_row("SELECT coalesce(max(seq), 0) FROM outbox", [], |row| row.get(0)).unwrap();
    let mut from = last + 1;
    while from <= last + count {
        let to = (from + CHUNK - 1).min(last + count);
        conn.execute_batch("BEGIN IMMEDIATE").unwrap();
        for insert in [EVENTS, DELIVERIES, ATTEMPTS] {
            conn.execute(&format!("{NUMBERS}{insert}"), (from, to, now, due_at)).unwrap();
        }
        conn.execute_batch("COMMIT").unwrap();
        from = to + 1;
    }
    conn.execute_batch(&format!("{trigger}; PRAGMA synchronous = FULL")).unwrap();
    let emptied = "PRAGMA wal_checkpoint(TRUNCATE)";
    conn.query_row(emptied, [], |_| Ok(())).unwrap();
}
