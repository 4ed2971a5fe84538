-- The outbox of an ERP that keeps its data in SQLite. Oncebox only reads it.
--   oncebox source add erp --sqlite /path/to/erp.db --table {table}
--
-- Nothing here can fail a transaction of the ERP: there is no UNIQUE, no CHECK, no NOT NULL. Oncebox quarantines a row
-- that it cannot use, with the reason.
PRAGMA journal_mode = WAL;

CREATE TABLE IF NOT EXISTS {table} (
  -- AUTOINCREMENT: no id is ever given twice, so that none is missed.
  id              INTEGER PRIMARY KEY AUTOINCREMENT,
  event_type      TEXT,
  payload         TEXT,
  -- The fact's own name. By default each row is a fact of its own. If two rows have one key, the first becomes the
  -- event; the second is read, counted as a repetition and not sent. Give a key only where the ERP may write one fact
  -- twice, and a new key (a version, a time) where a fact happens again.
  -- Time first: keys that come together stand together in indexes.
  idempotency_key TEXT DEFAULT (printf('%x-', CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)) || lower(hex(randomblob(16)))),
  aggregate_type  TEXT,
  aggregate_id    TEXT,
  occurred_at     TEXT DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);

-- What is older than a month has long been copied: delete it when you like, but never change a row.
CREATE INDEX IF NOT EXISTS {table}_occurred_at ON {table} (occurred_at);
--   DELETE FROM {table} WHERE occurred_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-30 days');

-- SQLite has no GRANT: what a program may do is what it may do to the file. The service needs to read the
-- file and to write into its directory, where SQLite keeps the -shm and the -wal:
--   usermod -aG erp oncebox && chmod 2770 /path/to && chmod 660 /path/to/erp.db

-- An example: each new and each deleted invoice is a fact. A trigger runs in the ERP's own transaction, so that there
-- is neither an invoice without its event nor an event without its invoice. INSERT, DELETE, INSERT of one invoice are
-- three rows with three keys. last_insert_rowid() of the ERP stays as it was.
--   CREATE TRIGGER invoices_to_{table}_new AFTER INSERT ON invoices
--   BEGIN
--     INSERT INTO {table} (event_type, payload, aggregate_type, aggregate_id)
--     VALUES ('invoice.created', json_object('number', NEW.number, 'total', NEW.total), 'invoice', NEW.number);
--   END;
--   CREATE TRIGGER invoices_to_{table}_gone AFTER DELETE ON invoices
--   BEGIN
--     INSERT INTO {table} (event_type, payload, aggregate_type, aggregate_id)
--     VALUES ('invoice.deleted', json_object('number', OLD.number), 'invoice', OLD.number);
--   END;
