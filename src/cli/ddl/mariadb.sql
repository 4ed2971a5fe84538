-- The outbox of an ERP on MariaDB 10.6 or MySQL 8.0.13, or later.
[mark]--   oncebox source add erp --database erp --table {table}
[claim]--   oncebox source add erp --database erp --table {table} --mode claim
--
-- Nothing here can fail or delay a transaction of the ERP: there is no UNIQUE, no CHECK, no limit on a text, no index
-- on a text. Oncebox quarantines a row that it cannot use, with the reason.
CREATE TABLE IF NOT EXISTS {table} (
  id              BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  -- LONGTEXT: in strict mode a text that is too long for its column fails the INSERT of the ERP.
  event_type      LONGTEXT,
  payload         LONGTEXT,
  -- The fact's own name. By default each row is a fact of its own. If two rows have one key, the first becomes the
  -- event; the second is taken, counted as a repetition and not sent. Give a key only where the ERP may write one
  -- fact twice, and a new key (a version, a time) where a fact happens again.
  idempotency_key LONGTEXT DEFAULT (UUID()),
  aggregate_type  LONGTEXT,
  aggregate_id    LONGTEXT,
  -- In UTC.
  occurred_at     DATETIME(3) NULL DEFAULT (UTC_TIMESTAMP(3)),
[claim]  -- The box that takes the row: only that box stores and marks it.
[claim]  taken_by        VARCHAR(255) NULL,
  -- Set by Oncebox once the row is on its disk. Ids are given before they are committed, and may be committed in
  -- another order: a cursor over ids would miss rows, a mark does not.
  taken_at        DATETIME(3) NULL,
  -- Needed: without it each poll reads all rows that were ever taken. It delays nobody, because Oncebox marks rows by
  -- their ids alone, at READ COMMITTED.
  INDEX {table}_waiting (taken_at, id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4;

-- Oncebox needs these rights and no more. Instead of % name the address of its machine.
--   CREATE USER oncebox@'%' IDENTIFIED BY '…';
[mark]--   GRANT SELECT, UPDATE (taken_at) ON {table} TO oncebox@'%';
[claim]--   GRANT SELECT, UPDATE (taken_at, taken_by) ON {table} TO oncebox@'%';

-- An example: each new and each deleted invoice is a fact, in the ERP's own transaction. INSERT, DELETE, INSERT of
-- one invoice are three rows with three keys. A trigger runs with the rights of the account that creates it: use the
-- one that owns the ERP's tables, because without it every INSERT of the ERP would fail. LAST_INSERT_ID() of the ERP
-- stays as it was. A binary column needs TO_BASE64(): bytes that are no text would be refused. CREATE TRIGGER waits
-- for open transactions on the table, and new ones wait behind it: lock_wait_timeout bounds that.
--   SET SESSION lock_wait_timeout = 2;
--   CREATE TRIGGER invoices_to_{table}_new AFTER INSERT ON invoices FOR EACH ROW
--     INSERT INTO {table} (event_type, payload, aggregate_type, aggregate_id)
--     VALUES ('invoice.created', JSON_OBJECT('number', NEW.number, 'total', NEW.total), 'invoice', NEW.number);
--   CREATE TRIGGER invoices_to_{table}_gone AFTER DELETE ON invoices FOR EACH ROW
--     INSERT INTO {table} (event_type, payload, aggregate_type, aggregate_id)
--     VALUES ('invoice.deleted', JSON_OBJECT('number', OLD.number), 'invoice', OLD.number);

-- Rows that were taken a month ago, a few at a time. At the default isolation this DELETE would block the INSERTs of
-- the ERP while it runs:
--   SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;
--   DELETE FROM {table} WHERE taken_at < UTC_TIMESTAMP(3) - INTERVAL 30 DAY ORDER BY id LIMIT 1000;
