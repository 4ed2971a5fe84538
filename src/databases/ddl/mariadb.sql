-- The tables of an ERP on MariaDB or MySQL into which Oncebox writes events, each once. Run it as an administrator, in the
-- database of the ERP. InnoDB alone has transactions.
-- The guard: one row for each event that took effect. Its insert and the effect are one transaction.
CREATE TABLE IF NOT EXISTS processed_events (
  consumer_group VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  event_id       VARBINARY(255) NOT NULL,
  processed_at   TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
  seen_count     INT UNSIGNED NOT NULL DEFAULT 1,
  PRIMARY KEY (consumer_group, event_id),
  KEY processed_events_age (processed_at)
) ENGINE = InnoDB;

-- The inbox: a row for each event, for programs of the ERP that take it from there. Only with --inbox {inbox}.
CREATE TABLE IF NOT EXISTS {inbox} (
  id             BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  webhook_id     VARBINARY(255) NOT NULL,
  event_type     VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  aggregate_type VARCHAR(64) CHARACTER SET utf8mb4,
  aggregate_id   VARCHAR(255) CHARACTER SET utf8mb4,
  payload        LONGTEXT CHARACTER SET utf8mb4 NOT NULL,
  occurred_at    DATETIME(3) NOT NULL,
  tenant         VARCHAR(63) CHARACTER SET utf8mb4 NOT NULL,
  received_at    TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP
) ENGINE = InnoDB;

GRANT INSERT ON processed_events TO {user};
GRANT INSERT ON {inbox} TO {user};
