//! The databases of Finance and Logistics, and the counts in them and in the databases of the Onceboxes.
//!
//! Finance and Logistics simulate other systems, so their databases share nothing with Oncebox's.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, Params, Transaction, TransactionBehavior};

use crate::base::clock::Timestamp;
use crate::store::error::Result;
use crate::store::pool;

/// How long a write waits for the parent process, which reads the file.
const MAX_BUSY: Duration = Duration::from_secs(5);

const FINANCE_SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS invoices (
      number          INTEGER PRIMARY KEY,
      customer        TEXT NOT NULL,
      amount_cents    INTEGER NOT NULL,
      status          TEXT NOT NULL DEFAULT 'open',
      paid_at         INTEGER,
      -- Set in the transaction that sets paid, cleared when Oncebox has acknowledged the event.
      to_publish      INTEGER NOT NULL DEFAULT 0,
      acknowledged_at INTEGER,
      CONSTRAINT invoice_status_is_known CHECK (status IN ('open', 'paid'))
    ) STRICT;
    CREATE INDEX IF NOT EXISTS invoices_to_publish ON invoices (number) WHERE to_publish = 1;";

// The output of `oncebox source ddl`, with a trigger for these invoices.
const FINANCE_OUTBOX: &str = "
    CREATE TABLE IF NOT EXISTS outbox (
      id              INTEGER PRIMARY KEY AUTOINCREMENT,
      event_type      TEXT NOT NULL,
      payload         TEXT NOT NULL,
      idempotency_key TEXT,
      aggregate_type  TEXT,
      aggregate_id    TEXT
    ) STRICT;
    CREATE TRIGGER IF NOT EXISTS invoice_is_paid
    AFTER UPDATE OF status ON invoices
    WHEN NEW.status = 'paid' AND OLD.status <> 'paid'
    BEGIN
      INSERT INTO outbox (event_type, payload, idempotency_key, aggregate_type, aggregate_id)
      VALUES ('invoice.paid',
              json_object('invoice', NEW.number, 'customer', NEW.customer,
                          'amount_cents', NEW.amount_cents, 'currency', 'EUR', 'paid_at', NEW.paid_at),
              'invoice.paid:' || NEW.number, 'invoice', CAST(NEW.number AS TEXT));
    END;";

const CREATE_INVOICE: &str =
    "INSERT INTO invoices (number, customer, amount_cents) VALUES (?1, ?2, ?3)";

const PAY: &str = "
    UPDATE invoices SET status = 'paid', paid_at = ?2, to_publish = 1
     WHERE number IN (SELECT number FROM invoices WHERE status = 'open' ORDER BY number LIMIT ?1)";

const TO_PUBLISH: &str = "
    SELECT number, customer, amount_cents, paid_at FROM invoices
     WHERE to_publish = 1
     ORDER BY number LIMIT ?1";

const ACKNOWLEDGE: &str =
    "UPDATE invoices SET to_publish = 0, acknowledged_at = ?2 WHERE number = ?1 AND to_publish = 1";

const FINANCE_COUNTS: &str = "
    SELECT coalesce(max(number), 0),
           count(*) FILTER (WHERE status = 'paid'),
           count(*) FILTER (WHERE acknowledged_at IS NOT NULL)
      FROM invoices";

const INVOICES: &str =
    "SELECT number, acknowledged_at IS NOT NULL FROM invoices WHERE status = 'paid'";

// `shipments` allows a second shipment of an invoice: only the guard prevents it, so that a broken guard is counted.
const LOGISTICS_SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS processed_events (
      event_id     TEXT PRIMARY KEY,
      processed_at INTEGER NOT NULL,
      -- Number of deliveries of the event; all but the first were absorbed.
      seen_count   INTEGER NOT NULL DEFAULT 1
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS shipments (
      seq        INTEGER PRIMARY KEY AUTOINCREMENT,
      invoice    INTEGER NOT NULL,
      event_id   TEXT NOT NULL,
      shipped_at INTEGER NOT NULL
    ) STRICT;";

const GUARD: &str = "
    INSERT INTO processed_events (event_id, processed_at) VALUES (?1, ?2)
        ON CONFLICT (event_id) DO UPDATE SET seen_count = seen_count + 1
 RETURNING seen_count";

const SHIP: &str = "INSERT INTO shipments (invoice, event_id, shipped_at) VALUES (?1, ?2, ?3)";

const LOGISTICS_COUNTS: &str = "
    SELECT (SELECT count(*) FROM shipments),
           (SELECT coalesce(sum(seen_count - 1), 0) FROM processed_events)";

const SHIPMENTS: &str = "SELECT invoice, count(*), min(shipped_at) FROM shipments GROUP BY invoice";

// The demo publishes under `invoice.paid:<number>`, with the number as the aggregate.
const RECEIVED: &str = "SELECT CAST(aggregate_id AS INTEGER), received_at FROM outbox";

const ATTEMPTS: &str = "SELECT attempt_count, count(*) FROM deliveries GROUP BY attempt_count";

const REPEATED: &str = "
    SELECT (SELECT coalesce(sum(duplicate_count), 0) FROM outbox)
         + (SELECT coalesce(sum(duplicate_count), 0) FROM webhook_events)";

const NOT_COMPLETED: &str = "SELECT count(*) FROM deliveries WHERE state <> 'completed'";

/// A paid invoice that Oncebox has not acknowledged yet.
#[derive(Clone, Debug)]
pub(super) struct Invoice {
    pub(super) number: u32,
    pub(super) customer: String,
    pub(super) amount_cents: u32,
    pub(super) paid_at: Timestamp,
}

/// The progress of Finance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FinanceCounts {
    /// The highest invoice number.
    pub(super) created: u32,
    pub(super) paid: u32,
    /// Invoices whose event Oncebox has acknowledged.
    pub(super) acknowledged: u32,
}

/// The database of Finance or Logistics.
#[derive(Debug)]
pub(super) struct Ledger(Connection);

impl Ledger {
    /// Opens the file, and creates it if it is missing.
    #[expect(clippy::disallowed_methods, reason = "the file is not Oncebox's own")]
    fn open(path: &Path, schema: &str) -> Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = Connection::open_with_flags(path, flags)?;
        conn.busy_timeout(MAX_BUSY)?;
        conn.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;")?;
        conn.execute_batch(schema)?;
        Ok(Self(conn))
    }

    /// Runs `act` in one transaction, which is on disk when this returns.
    fn write(&mut self, act: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<()>) -> Result<()> {
        let tx = self.0.transaction_with_behavior(TransactionBehavior::Immediate)?;
        act(&tx)?;
        Ok(tx.commit()?)
    }
}

/// All rows of a query.
fn rows<T, C: FromIterator<T>>(
    conn: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnMut(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
) -> Result<C> {
    let mut statement = conn.prepare_cached(sql)?;
    Ok(statement.query_map(params, read)?.collect::<rusqlite::Result<_>>()?)
}

/// The result of SQLite's integrity check: `ok`, or the damage.
fn integrity(conn: &Connection) -> Result<String> {
    Ok(conn.query_row("PRAGMA integrity_check", [], |row| row.get(0))?)
}

/// Finance's database.
impl Ledger {
    pub(super) fn finance(path: &Path) -> Result<Self> {
        Self::open(path, FINANCE_SCHEMA)
    }

    /// Creates an outbox table, and a trigger that fills it when an invoice is marked paid.
    pub(super) fn create_outbox(&self) -> Result<()> {
        Ok(self.0.execute_batch(FINANCE_OUTBOX)?)
    }

    /// Writes new, unpaid invoices: number, customer and amount.
    pub(super) fn create(&mut self, invoices: &[(u32, String, u32)]) -> Result<()> {
        self.write(|tx| {
            invoices.iter().try_for_each(|(number, customer, cents)| {
                tx.prepare_cached(CREATE_INVOICE)?.execute((number, customer, cents)).map(drop)
            })
        })
    }

    /// Marks the oldest open invoices paid and to be published, in one transaction.
    pub(super) fn pay(&mut self, most: u32, now: Timestamp) -> Result<()> {
        self.write(|tx| tx.prepare_cached(PAY)?.execute((most, now)).map(drop))
    }

    /// The oldest invoices that must still be published.
    pub(super) fn to_publish(&self, most: u32) -> Result<Vec<Invoice>> {
        rows(&self.0, TO_PUBLISH, [most], |row| {
            let number = row.get(0)?;
            let customer = row.get(1)?;
            Ok(Invoice { number, customer, amount_cents: row.get(2)?, paid_at: row.get(3)? })
        })
    }

    /// Records that Oncebox has acknowledged these.
    pub(super) fn acknowledge(&mut self, batch: &[Invoice], now: Timestamp) -> Result<()> {
        self.write(|tx| {
            batch.iter().try_for_each(|paid| {
                tx.prepare_cached(ACKNOWLEDGE)?.execute((paid.number, now)).map(drop)
            })
        })
    }

    /// The progress.
    pub(super) fn paid(&self) -> Result<FinanceCounts> {
        let mut statement = self.0.prepare_cached(FINANCE_COUNTS)?;
        Ok(statement.query_row([], |row| {
            Ok(FinanceCounts { created: row.get(0)?, paid: row.get(1)?, acknowledged: row.get(2)? })
        })?)
    }

    /// Every paid invoice, and whether Oncebox has acknowledged it.
    pub(super) fn invoices(&self) -> Result<BTreeMap<u32, bool>> {
        rows(&self.0, INVOICES, [], |row| Ok((row.get(0)?, row.get(1)?)))
    }
}

/// A delivered event.
#[derive(Clone, Debug)]
pub(super) struct Arrival {
    /// Its `webhook-id`.
    pub(super) event_id: String,
    /// Its invoice.
    pub(super) invoice: u32,
}

/// How Logistics books an arrival. Only `--break` asks for another way than the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bookkeeping {
    /// Guard and shipment in one transaction; ships only if the guard is new.
    Right,
    /// Ignores the guard: repeated events ship again.
    WithoutGuard,
    /// Writes the guard, but no shipment.
    WithoutEffect,
}

/// Logistics' database.
impl Ledger {
    pub(super) fn logistics(path: &Path) -> Result<Self> {
        Self::open(path, LOGISTICS_SCHEMA)
    }

    /// Books many arrivals in one transaction: all or none.
    pub(super) fn take(&mut self, batch: &[(Arrival, Bookkeeping)], now: Timestamp) -> Result<()> {
        self.write(|tx| {
            for (Arrival { event_id, invoice }, bookkeeping) in batch {
                let mut guard = tx.prepare_cached(GUARD)?;
                let seen: u32 = guard.query_row((event_id, now), |row| row.get(0))?;
                let ship = match bookkeeping {
                    Bookkeeping::Right => seen == 1,
                    Bookkeeping::WithoutGuard => true,
                    Bookkeeping::WithoutEffect => false,
                };
                if ship {
                    tx.prepare_cached(SHIP)?.execute((invoice, event_id, now))?;
                }
            }
            Ok(())
        })
    }

    /// The numbers of shipments and of redeliveries that the guard absorbed.
    pub(super) fn shipped(&self) -> Result<(u32, u32)> {
        let mut statement = self.0.prepare_cached(LOGISTICS_COUNTS)?;
        Ok(statement.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?)
    }

    /// For each invoice: the number of shipments, and the time of the first.
    pub(super) fn shipments(&self) -> Result<BTreeMap<u32, (u32, Timestamp)>> {
        rows(&self.0, SHIPMENTS, [], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))
    }

    /// The number of events that the guard knows.
    pub(super) fn guarded(&self) -> Result<u32> {
        Ok(self.0.query_row("SELECT count(*) FROM processed_events", [], |row| row.get(0))?)
    }

    pub(super) fn integrity(&self) -> Result<String> {
        integrity(&self.0)
    }
}

/// The counts in an Oncebox's database.
#[derive(Clone, Debug, Default)]
pub(super) struct OnceboxCounts {
    /// When it accepted the event of each invoice.
    pub(super) received: BTreeMap<u32, Timestamp>,
    /// Repeated publications and webhooks.
    pub(super) repeated: u32,
    /// Number of deliveries by their number of attempts.
    pub(super) attempts: BTreeMap<u32, u32>,
    /// Deliveries that are not completed.
    pub(super) not_completed: u32,
    pub(super) integrity: String,
}

/// Counts in the database of a stopped Oncebox.
pub(super) fn oncebox_counts(path: &Path) -> Result<OnceboxCounts> {
    let conn = pool::open_reader(path)?;
    Ok(OnceboxCounts {
        received: rows(&conn, RECEIVED, [], |row| Ok((row.get(0)?, row.get(1)?)))?,
        repeated: conn.query_row(REPEATED, [], |row| row.get(0))?,
        attempts: rows(&conn, ATTEMPTS, [], |row| Ok((row.get(0)?, row.get(1)?)))?,
        not_completed: conn.query_row(NOT_COMPLETED, [], |row| row.get(0))?,
        integrity: integrity(&conn)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(invoice: u32) -> Arrival {
        Arrival { event_id: format!("evt_{invoice}"), invoice }
    }

    #[test]
    fn a_repeated_arrival_ships_nothing_and_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let mut logistics = Ledger::logistics(&dir.path().join("logistics.db")).unwrap();
        let right = |n| (arrival(n), Bookkeeping::Right);
        logistics.take(&[right(1), right(1), right(2)], Timestamp::from_ms(5)).unwrap();
        logistics.take(&[right(2)], Timestamp::from_ms(6)).unwrap();
        assert_eq!(logistics.shipped().unwrap(), (2, 2));
        assert_eq!(logistics.shipments().unwrap()[&2], (1, Timestamp::from_ms(5)));
    }

    #[test]
    fn without_the_guard_a_repeated_arrival_ships_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut logistics = Ledger::logistics(&dir.path().join("logistics.db")).unwrap();
        let blind = (arrival(1), Bookkeeping::WithoutGuard);
        logistics.take(&[blind.clone(), blind], Timestamp::from_ms(5)).unwrap();
        assert_eq!(logistics.shipments().unwrap()[&1].0, 2);
    }

    #[test]
    fn what_is_paid_stays_to_be_published_until_it_is_acknowledged() {
        let dir = tempfile::tempdir().unwrap();
        let mut finance = Ledger::finance(&dir.path().join("finance.db")).unwrap();
        let invoice = |n: u32| (n, "C-1".to_owned(), 100);
        finance.create(&[invoice(1), invoice(2), invoice(3)]).unwrap();
        finance.pay(2, Timestamp::from_ms(7)).unwrap();
        let batch = finance.to_publish(10).unwrap();
        assert_eq!(batch.iter().map(|paid| paid.number).collect::<Vec<_>>(), [1, 2]);
        finance.acknowledge(&batch[..1], Timestamp::from_ms(8)).unwrap();
        assert_eq!(finance.to_publish(10).unwrap().len(), 1);
        let counts = finance.paid().unwrap();
        assert_eq!(counts, FinanceCounts { created: 3, paid: 2, acknowledged: 1 });
        assert_eq!(finance.invoices().unwrap(), BTreeMap::from([(1, true), (2, false)]));
    }
}
