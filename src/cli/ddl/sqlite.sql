-- The outbox of an ERP that keeps its data in SQLite. Oncebox only reads it.
--   oncebox source add erp --sqlite /path/to/erp.db --table {table}
PRAGMA journal_mode = WAL;

CREATE TABLE IF NOT EXISTS {table} (
  -- AUTOINCREMENT: no id is ever given twice, so that none is missed.
  id              INTEGER PRIMARY KEY AUTOINCREMENT,
  event_type      TEXT NOT NULL,
  payload         TEXT NOT NULL CHECK (json_valid(payload)),
  -- The fact's own name. Without one a row's id and content are its name.
  idempotency_key TEXT UNIQUE,
  aggregate_type  TEXT,
  aggregate_id    TEXT,
  occurred_at     TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);

-- What is older than a month has long been copied: delete it when you like, but never change a row.
CREATE INDEX IF NOT EXISTS {table}_occurred_at ON {table} (occurred_at);
--   DELETE FROM {table} WHERE occurred_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-30 days');

-- SQLite has no GRANT: what a program may do is what it may do to the file. The service needs to read the
-- file and to write into its directory, where SQLite keeps the -shm and the -wal:
--   usermod -aG erp oncebox && chmod 2770 /path/to && chmod 660 /path/to/erp.db

-- An example: every new invoice is a fact. The trigger runs in the ERP's own transaction, so that there is
-- neither an invoice without its event nor an event without its invoice.
--   CREATE TRIGGER invoices_to_{table} AFTER INSERT ON invoices
--   BEGIN
--     INSERT INTO {table} (event_type, payload, idempotency_key, aggregate_type, aggregate_id)
--     VALUES ('invoice.created', json_object('number', NEW.number, 'total', NEW.total),
--             'invoice.created:' || NEW.number, 'invoice', NEW.number);
--   END;
