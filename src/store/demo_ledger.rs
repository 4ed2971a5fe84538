//! The two ledgers of `oncebox demo`: Finance's file and Logistics' file, and the count over them.
//!
//! They belong to stand-ins for other people's systems and share nothing with our own file. They live
//! here all the same, because only `store` may know that they are SQLite.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use crate::base::clock::Timestamp;
use crate::store::error::Result;
use crate::store::pool;

/// How long a stand-in waits for the other process that looks into its file.
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

// What `oncebox source ddl` prints, with the trigger made for these invoices.
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

const CREATE_INVOICE: &str = "
    INSERT INTO invoices (number, customer, amount_cents)
    VALUES (?1, ?2, ?3)";

const PAY: &str = "
    UPDATE invoices
       SET status = 'paid', paid_at = ?2, to_publish = 1
     WHERE number IN (SELECT number FROM invoices WHERE status = 'open' ORDER BY number LIMIT ?1)";

const TO_PUBLISH: &str = "
    SELECT number, customer, amount_cents, paid_at
      FROM invoices
     WHERE to_publish = 1
     ORDER BY number
     LIMIT ?1";

const ACKNOWLEDGE: &str = "
    UPDATE invoices
       SET to_publish = 0, acknowledged_at = ?2
     WHERE number = ?1 AND to_publish = 1";

const FINANCE_COUNTS: &str = "
    SELECT coalesce(max(number), 0),
           count(*) FILTER (WHERE status = 'paid'),
           count(*) FILTER (WHERE acknowledged_at IS NOT NULL)
      FROM invoices";

const INVOICES: &str = "
    SELECT number, acknowledged_at IS NOT NULL
      FROM invoices
     WHERE status = 'paid'";

// Nothing in `shipments` forbids a second shipment of an invoice: only the guard does, so that the count
// can fail if the guard does not work.
const LOGISTICS_SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS processed_events (
      event_id     TEXT PRIMARY KEY,
      processed_at INTEGER NOT NULL,
      -- How often the event was delivered; all but the first were absorbed.
      seen_count   INTEGER NOT NULL DEFAULT 1
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS shipments (
      seq        INTEGER PRIMARY KEY AUTOINCREMENT,
      invoice    INTEGER NOT NULL,
      event_id   TEXT NOT NULL,
      shipped_at INTEGER NOT NULL
    ) STRICT;";

const GUARD: &str = "
    INSERT INTO processed_events (event_id, processed_at)
    VALUES (?1, ?2)
        ON CONFLICT (event_id) DO UPDATE SET seen_count = seen_count + 1
 RETURNING seen_count";

const SHIP: &str = "
    INSERT INTO shipments (invoice, event_id, shipped_at)
    VALUES (?1, ?2, ?3)";

const LOGISTICS_COUNTS: &str = "
    SELECT (SELECT count(*) FROM shipments),
           (SELECT coalesce(sum(seen_count - 1), 0) FROM processed_events)";

const SHIPMENTS: &str = "
    SELECT invoice, count(*), min(shipped_at)
      FROM shipments
     GROUP BY invoice";

const GUARDED: &str = "SELECT count(*) FROM processed_events";

// The demo publishes under `invoice.paid:<number>`, with the number as the aggregate.
const RECEIVED: &str = "
    SELECT CAST(aggregate_id AS INTEGER), received_at, duplicate_count
      FROM outbox";

const ATTEMPTS: &str = "
    SELECT attempt_count, count(*)
      FROM deliveries
     GROUP BY attempt_count";

const REPEATED_WEBHOOKS: &str = "SELECT coalesce(sum(duplicate_count), 0) FROM webhook_events";

const NOT_COMPLETED: &str = "SELECT count(*) FROM deliveries WHERE state <> 'completed'";

/// A paid invoice that Oncebox has not acknowledged yet.
#[derive(Clone, Debug)]
pub struct Paid {
    /// Its number, from 1.
    pub number: u32,
    /// Who paid.
    pub customer: String,
    /// How much.
    pub amount_cents: u32,
    /// When.
    pub paid_at: Timestamp,
}

/// How far Finance is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FinanceCounts {
    /// The highest number that was given.
    pub created: u32,
    /// Invoices that are paid.
    pub paid: u32,
    /// Invoices whose event Oncebox has acknowledged.
    pub acknowledged: u32,
}

/// Finance's file.
#[derive(Debug)]
pub struct Finance(Connection);

impl Finance {
    /// Opens the file, making it where there is none.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn open(path: &Path) -> Result<Self> {
        open(path, FINANCE_SCHEMA).map(Self)
    }

    /// Gives it an outbox of its own, filled in the transaction that marks an invoice paid.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn give_outbox(&self) -> Result<()> {
        Ok(self.0.execute_batch(FINANCE_OUTBOX)?)
    }

    /// Writes new invoices, given as number, customer and amount; none of them is paid.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn create(&mut self, invoices: &[(u32, String, u32)]) -> Result<()> {
        let tx = self.0.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for invoice in invoices {
            tx.prepare_cached(CREATE_INVOICE)?.execute((&invoice.0, &invoice.1, &invoice.2))?;
        }
        Ok(tx.commit()?)
    }

    /// Marks the oldest open invoices paid and to be published: one transaction for both.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn pay(&mut self, most: u32, now: Timestamp) -> Result<()> {
        let tx = self.0.transaction_with_behavior(TransactionBehavior::Immediate)?;
        tx.prepare_cached(PAY)?.execute((most, now))?;
        Ok(tx.commit()?)
    }

    /// The oldest invoices that are still to be published.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn to_publish(&self, most: u32) -> Result<Vec<Paid>> {
        let mut statement = self.0.prepare_cached(TO_PUBLISH)?;
        let rows = statement.query_map([most], |row| {
            Ok(Paid {
                number: row.get(0)?,
                customer: row.get(1)?,
                amount_cents: row.get(2)?,
                paid_at: row.get(3)?,
            })
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Notes that Oncebox has these.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn acknowledge(&mut self, batch: &[Paid], now: Timestamp) -> Result<()> {
        let tx = self.0.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for paid in batch {
            tx.prepare_cached(ACKNOWLEDGE)?.execute((paid.number, now))?;
        }
        Ok(tx.commit()?)
    }

    /// How far it is.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn counts(&self) -> Result<FinanceCounts> {
        let mut statement = self.0.prepare_cached(FINANCE_COUNTS)?;
        Ok(statement.query_row([], |row| {
            Ok(FinanceCounts { created: row.get(0)?, paid: row.get(1)?, acknowledged: row.get(2)? })
        })?)
    }

    /// Every paid invoice, and whether Oncebox has acknowledged it.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn invoices(&self) -> Result<BTreeMap<u32, bool>> {
        let mut statement = self.0.prepare_cached(INVOICES)?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// What SQLite's own check of the file says: `ok`, or what is damaged.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn integrity(&self) -> Result<String> {
        integrity(&self.0)
    }
}

/// One event as it reached Logistics.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// Its `webhook-id`.
    pub event_id: String,
    /// Which invoice it is about.
    pub invoice: u32,
}

/// How Logistics keeps its promise; only the demo's own tests ask for another way than the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bookkeeping {
    /// Guard and shipment in one transaction, the shipment only for a new guard.
    Right,
    /// The guard is written and not looked at: repetitions ship again.
    WithoutGuard,
    /// The guard is written and the shipment is forgotten.
    WithoutEffect,
}

/// Logistics' file.
#[derive(Debug)]
pub struct Logistics(Connection);

impl Logistics {
    /// Opens the file, making it where there is none.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn open(path: &Path) -> Result<Self> {
        open(path, LOGISTICS_SCHEMA).map(Self)
    }

    /// Takes many arrivals in one transaction; on the disk when this returns.
    ///
    /// # Errors
    /// What SQLite says. Nothing of the batch was stored then.
    pub fn take(&mut self, batch: &[(Arrival, Bookkeeping)], now: Timestamp) -> Result<()> {
        let tx = self.0.transaction_with_behavior(TransactionBehavior::Immediate)?;
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
        Ok(tx.commit()?)
    }

    /// Shipments, and redeliveries the guard has absorbed.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn counts(&self) -> Result<(u32, u32)> {
        let mut statement = self.0.prepare_cached(LOGISTICS_COUNTS)?;
        Ok(statement.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?)
    }

    /// Per invoice: how many shipments, and when the first was.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn shipments(&self) -> Result<BTreeMap<u32, (u32, Timestamp)>> {
        let mut statement = self.0.prepare_cached(SHIPMENTS)?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Events the guard knows.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn guarded(&self) -> Result<u32> {
        Ok(self.0.query_row(GUARDED, [], |row| row.get(0))?)
    }

    /// What SQLite's own check of the file says: `ok`, or what is damaged.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn integrity(&self) -> Result<String> {
        integrity(&self.0)
    }
}

/// What Oncebox's own file says when all is over.
#[derive(Clone, Debug, Default)]
pub struct Carried {
    /// When Oncebox received the event of an invoice.
    pub received: BTreeMap<u32, Timestamp>,
    /// Publications, or webhooks, of an event that was there already.
    pub repeated: u32,
    /// How many deliveries took how many settled attempts.
    pub attempts: BTreeMap<u32, u32>,
    /// Deliveries that are not completed.
    pub not_completed: u32,
    /// What SQLite's own check of the file says.
    pub integrity: String,
}

/// Reads the file of a stopped Oncebox.
///
/// # Errors
/// What SQLite says.
pub fn carried(path: &Path) -> Result<Carried> {
    let conn = pool::open_reader(path)?;
    let mut carried = Carried { integrity: integrity(&conn)?, ..Carried::default() };
    let mut statement = conn.prepare(RECEIVED)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        carried.received.insert(row.get(0)?, row.get(1)?);
        let repeated: u32 = row.get(2)?;
        carried.repeated = carried.repeated.saturating_add(repeated);
    }
    let webhooks: u32 = conn.query_row(REPEATED_WEBHOOKS, [], |row| row.get(0))?;
    carried.repeated = carried.repeated.saturating_add(webhooks);
    let mut statement = conn.prepare(ATTEMPTS)?;
    let counted = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    carried.attempts = counted.collect::<rusqlite::Result<_>>()?;
    carried.not_completed = conn.query_row(NOT_COMPLETED, [], |row| row.get(0))?;
    Ok(carried)
}

#[expect(clippy::disallowed_methods, reason = "the store is what opens databases")]
fn open(path: &Path, schema: &str) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    conn.busy_timeout(MAX_BUSY)?;
    conn.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;")?;
    conn.execute_batch(schema)?;
    Ok(conn)
}

fn integrity(conn: &Connection) -> Result<String> {
    Ok(conn.query_row("PRAGMA integrity_check", [], |row| row.get(0))?)
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
        let mut logistics = Logistics::open(&dir.path().join("logistics.db")).unwrap();
        let right = |n| (arrival(n), Bookkeeping::Right);
        logistics.take(&[right(1), right(1), right(2)], Timestamp::from_ms(5)).unwrap();
        logistics.take(&[right(2)], Timestamp::from_ms(6)).unwrap();
        assert_eq!(logistics.counts().unwrap(), (2, 2));
        assert_eq!(logistics.shipments().unwrap()[&2], (1, Timestamp::from_ms(5)));
    }

    #[test]
    fn without_the_guard_a_repeated_arrival_ships_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut logistics = Logistics::open(&dir.path().join("logistics.db")).unwrap();
        let blind = (arrival(1), Bookkeeping::WithoutGuard);
        logistics.take(&[blind.clone(), blind], Timestamp::from_ms(5)).unwrap();
        assert_eq!(logistics.shipments().unwrap()[&1].0, 2);
    }

    #[test]
    fn what_is_paid_stays_to_be_published_until_it_is_acknowledged() {
        let dir = tempfile::tempdir().unwrap();
        let mut finance = Finance::open(&dir.path().join("finance.db")).unwrap();
        let invoice = |n: u32| (n, "C-1".to_owned(), 100);
        finance.create(&[invoice(1), invoice(2), invoice(3)]).unwrap();
        finance.pay(2, Timestamp::from_ms(7)).unwrap();
        let batch = finance.to_publish(10).unwrap();
        assert_eq!(batch.iter().map(|paid| paid.number).collect::<Vec<_>>(), [1, 2]);
        finance.acknowledge(&batch[..1], Timestamp::from_ms(8)).unwrap();
        assert_eq!(finance.to_publish(10).unwrap().len(), 1);
        let counts = finance.counts().unwrap();
        assert_eq!(counts, FinanceCounts { created: 3, paid: 2, acknowledged: 1 });
        assert_eq!(finance.invoices().unwrap(), BTreeMap::from([(1, true), (2, false)]));
    }
}
