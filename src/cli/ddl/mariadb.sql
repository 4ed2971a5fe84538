-- The outbox of an ERP on MariaDB or MySQL, for the ODBC source of a later version: this version of Oncebox
-- does not read it. Until then, publish with POST /v1/events or `oncebox emit`.
CREATE TABLE IF NOT EXISTS {table} (
  id              BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  event_type      VARCHAR(128) CHARACTER SET ascii NOT NULL,
  payload         LONGTEXT CHARACTER SET utf8mb4 NOT NULL CHECK (JSON_VALID(payload)),
  idempotency_key VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL UNIQUE,
  aggregate_type  VARCHAR(64) CHARACTER SET utf8mb4,
  aggregate_id    VARCHAR(255) CHARACTER SET utf8mb4,
  occurred_at     DATETIME(3) NOT NULL DEFAULT (UTC_TIMESTAMP(3)),
  -- Set by Oncebox once the row is on its disk. Ids are given before they are committed, and may be
  -- committed in another order: a cursor would miss rows, a mark does not.
  taken_at        DATETIME(3) NULL,
  INDEX {table}_waiting (taken_at, id)
) ENGINE = InnoDB;

--   CREATE USER oncebox@localhost IDENTIFIED BY '…';
--   GRANT SELECT, UPDATE (taken_at) ON {table} TO oncebox@localhost;

--   CREATE TRIGGER invoices_to_{table} AFTER INSERT ON invoices FOR EACH ROW
--     INSERT INTO {table} (event_type, payload, idempotency_key, aggregate_type, aggregate_id)
--     VALUES ('invoice.created', JSON_OBJECT('number', NEW.number, 'total', NEW.total),
--             CONCAT('invoice.created:', NEW.number), 'invoice', NEW.number);
