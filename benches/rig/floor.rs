//! The floor: the same rows, written by a bare program with nothing around it.
//!
//! Same schema, same pragmas, statements prepared once, as many rows in a transaction as the server
//! had jobs in one. What the server reaches of this is its ratio.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};

use super::load::EVENT_BYTES;
use super::server::fresh_directory;

/// The pragmas of `store/schema.rs`.
const PRAGMAS: &str = "
    PRAGMA page_size = 2048;
    PRAGMA auto_vacuum = INCREMENTAL;
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = FULL;
    PRAGMA foreign_keys = ON;
    PRAGMA secure_delete = ON;
    PRAGMA temp_store = MEMORY;
    PRAGMA cache_size = -16000;
    PRAGMA wal_autocheckpoint = 4000;
    PRAGMA trusted_schema = OFF;";

const SUBSCRIPTION: &str = "
    INSERT INTO subscriptions (id, name, event_types, url, created_at, updated_at)
    VALUES ('019a0000-0000-7000-8000-000000000000', 'floor', '[\"*\"]', 'http://127.0.0.1/', 1, 1)";

const EVENT: &str = "
    INSERT INTO outbox
           (id, tenant, source_system, idempotency_key, event_type, payload, content_type, received_at,
            routed_at, open_deliveries, own)
    VALUES (?1, 'default', 'api', ?2, 'bench.event', ?3, 'application/json', ?4, ?4, ?5, 1)";

// The trigger lets no event begin as anything but pending.
const SKIPPED: &str = "
    UPDATE outbox SET status = 'skipped', completed_at = ?2 WHERE seq = ?1";

const WEBHOOK: &str = "
    INSERT INTO webhook_events
           (id, provider, provider_event_id, event_type, received_at, payload, content_type, headers,
            key_id, status, open_deliveries, completed_at)
    VALUES (?1, 'bench', ?2, 'bench.event', ?4, ?3, 'application/json', ?8, ?5, ?6, ?7,
            CASE WHEN ?7 = 0 THEN ?4 END)";

const DELIVERY: &str = "
    INSERT INTO deliveries (outbox_seq, webhook_seq, subscription_seq, tenant, order_at, due_at)
    VALUES (?1, ?2, 1, 'default', ?3, ?3)";

const ATTEMPT: &str = "
    INSERT INTO attempts (delivery_seq, n, started_at, finished_at, url, class, counted, http_status,
                          latency_ms, excerpt, key_id, span)
    VALUES (?1, 1, ?2, ?2, 'http://127.0.0.1:40000/hook', 'success', 0, 200, 1, 'ok', ?3,
            '00f067aa0ba902b7')";

const DELIVERED: &str = "
    UPDATE deliveries
       SET state = 'completed', due_at = NULL, finished_at = ?2, attempt_count = attempt_count + 1,
           last_class = 'success'
     WHERE seq = ?1 AND run_no = 1 AND state = 'pending'";

const COMPLETED: &str = "
    UPDATE outbox SET status = 'completed', open_deliveries = 0, completed_at = ?2 WHERE seq = ?1";

const KEY_ID: &str = "019a0000-0000-7000-8000-000000000001";
const HEADERS: &str = "{\"content-type\":\"application/json\",\
    \"webhook-id\":\"000000000000000000000001\",\"webhook-timestamp\":\"1700000000\"}";
const NOW: i64 = 1_763_000_000_000;

/// Which rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rows {
    /// An event nobody wants.
    Event,
    /// An event and its delivery.
    EventAndDelivery,
    /// A webhook event nobody wants.
    Webhook,
    /// A webhook event and its delivery.
    WebhookAndDelivery,
    /// An event and its delivery, then its attempt and what that changes in both.
    WholeLife,
}

/// A bare database.
pub(crate) struct Floor {
    conn: Connection,
    directory: PathBuf,
    /// Events written so far.
    n: i64,
    /// Deliveries whose end is not written yet.
    open: Vec<(i64, i64)>,
}

/// Opens a file as the server does.
pub(crate) fn open(path: &std::path::Path) -> Connection {
    let conn = Connection::open(path).unwrap();
    conn.set_prepared_statement_cache_capacity(32);
    conn.execute_batch(PRAGMAS).unwrap();
    conn
}

impl Floor {
    pub(crate) fn new() -> Self {
        let directory = fresh_directory("floor");
        let conn = open(&directory.join("floor.db"));
        conn.execute_batch(include_str!("../../schema.sql")).unwrap();
        conn.execute(SUBSCRIPTION, []).unwrap();
        Self { conn, directory, n: 0, open: Vec::new() }
    }

    /// Events a second, in transactions of `batch` jobs. The life of an event is two jobs.
    pub(crate) fn per_second(&mut self, rows: Rows, batch: f64, span: Duration) -> f64 {
        let before = self.n;
        let begun = Instant::now();
        let accepts = if rows == Rows::WholeLife { batch / 2.0 } else { batch };
        let accepts = (accepts.round() as i64).max(1);
        while begun.elapsed() < span {
            self.conn.execute_batch("BEGIN IMMEDIATE").unwrap();
            for (delivery, event) in std::mem::take(&mut self.open) {
                self.settle(delivery, event);
            }
            for _ in 0..accepts {
                self.accept(rows);
            }
            self.conn.execute_batch("COMMIT").unwrap();
        }
        (self.n - before) as f64 / begun.elapsed().as_secs_f64()
    }

    fn accept(&mut self, rows: Rows) {
        self.n += 1;
        let n = self.n;
        let id = format!("019a0000-{:04x}-7{:03x}-8000-{n:012x}", n >> 12 & 0xffff, n & 0xfff);
        let key = format!("{n:024}");
        let payload = [b'x'; EVENT_BYTES];
        let conn = &self.conn;
        let with_delivery = !matches!(rows, Rows::Event | Rows::Webhook);
        let webhook = matches!(rows, Rows::Webhook | Rows::WebhookAndDelivery);
        let open = i64::from(with_delivery);
        let mut insert = conn.prepare_cached(if webhook { WEBHOOK } else { EVENT }).unwrap();
        if webhook {
            let status = if with_delivery { "received" } else { "skipped" };
            insert
                .execute(params![id, key, &payload[..], NOW, KEY_ID, status, open, HEADERS])
                .unwrap();
        } else {
            insert.execute(params![id, key, &payload[..], NOW, open]).unwrap();
        }
        let event = conn.last_insert_rowid();
        if with_delivery {
            let place = if webhook { (None, Some(event)) } else { (Some(event), None) };
            let mut insert = conn.prepare_cached(DELIVERY).unwrap();
            insert.execute((place.0, place.1, NOW)).unwrap();
        } else if !webhook {
            conn.prepare_cached(SKIPPED).unwrap().execute((event, NOW)).unwrap();
        }
        if rows == Rows::WholeLife {
            self.open.push((conn.last_insert_rowid(), event));
        }
    }

    fn settle(&self, delivery: i64, event: i64) {
        let one = |sql: &str, first: i64| {
            assert_eq!(self.conn.prepare_cached(sql).unwrap().execute((first, NOW)).unwrap(), 1);
        };
        let mut attempt = self.conn.prepare_cached(ATTEMPT).unwrap();
        attempt.execute((delivery, NOW, KEY_ID)).unwrap();
        one(DELIVERED, delivery);
        one(COMPLETED, event);
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.directory));
    }
}
