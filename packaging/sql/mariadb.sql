-- Guards for a consumer that keeps its data in MariaDB 10.2 or newer, or MySQL 8. InnoDB only: MyISAM and Aria have no
-- transactions, and nothing below holds there.
--
-- What the consumer does for an event, and the note that it did so, are one transaction of the consumer's own
-- database: they are there together or not at all. docs/guards.md says which guard is right when.
--
--   @consumer_group  who does it, such as 'accounting'; 1 to 64 characters
--   @event_id        the webhook-id header of the request; 1 to 255 characters
--   @entity          what it is about, such as 'article/17'; @version whatever grows with each of its changes
--
-- Parameters are written as user variables; with a driver put ? or %s there.
-- The part after each [name] is one piece to paste. All of them are run by the tests of Oncebox (on MariaDB 10.11),
-- with processes that are killed at any moment.

-- [tables] Once, in a migration. A second time does no harm. Ids are compared byte by byte: under the usual collation
-- 'Evt_1' and 'evt_1 ' would be the same event, and one of them lost.
CREATE TABLE IF NOT EXISTS processed_events (
  consumer_group VARCHAR(64)  CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  event_id       VARBINARY(255) NOT NULL,
  processed_at   TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
  seen_count     INT UNSIGNED NOT NULL DEFAULT 1,
  PRIMARY KEY (consumer_group, event_id),
  KEY processed_events_age (processed_at)
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS processed_versions (
  consumer_group VARCHAR(64)  CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  entity         VARBINARY(255) NOT NULL,
  version        BIGINT NOT NULL,
  processed_at   TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
  PRIMARY KEY (consumer_group, entity)
) ENGINE = InnoDB;

-- [begin] innodb_flush_log_at_trx_commit must be 1, its default: with 0 or 2 a power cut takes back what was answered
-- 2xx. Error 1205 (lock wait timeout) undoes only the statement, not the transaction: always ROLLBACK then, and
-- also after 1213 (deadlock), and let the event come again.
SET SESSION sql_mode = CONCAT_WS(',', NULLIF(@@sql_mode, ''), 'STRICT_TRANS_TABLES');
START TRANSACTION;

-- [claim] Exactly 1 row affected: the first time, do it. 2: it was done before, so commit and answer 2xx.
-- While another transaction holds the same claim, this waits for its end.
-- Not INSERT IGNORE: it turns every error into a warning, so that an id that is too long is cut and taken for another.
-- Not "event_id = event_id" on a duplicate key: it affects 0 rows for a plain client, but 1, as if it were the
-- first time, for one that asks for found rows, as JDBC, PDO with FOUND_ROWS and Django do.
INSERT INTO processed_events (consumer_group, event_id)
VALUES (@consumer_group, @event_id)
    ON DUPLICATE KEY UPDATE seen_count = seen_count + 1;

-- Then the effect, in this transaction, only when the claim affected exactly 1 row. In plain SQL ROW_COUNT() tells:
--   INSERT INTO bookings (invoice) SELECT @invoice FROM DUAL WHERE ROW_COUNT() = 1;
-- It is the count of the statement just before, so put nothing in between.

-- [claim newer] For events that carry a whole state: instead of the claim above. The first statement makes the
-- entity's row and locks it; what it affects does not matter. The second affects 1 row: this version is newer than
-- the last one done, do it. 0: it is the same or an older one, which must not be done any more. A version that is
-- NULL fails in the first: it is neither.
INSERT INTO processed_versions (consumer_group, entity, version)
VALUES (@consumer_group, @entity, IF(@version IS NULL, NULL, -9223372036854775808))
    ON DUPLICATE KEY UPDATE processed_at = processed_at;
UPDATE processed_versions
   SET version = @version, processed_at = CURRENT_TIMESTAMP
 WHERE consumer_group = @consumer_group
   AND entity = @entity
   AND version < @version;

-- [commit] Only after it answer 2xx. If anything failed before: ROLLBACK, and answer 500; it comes again.
COMMIT;

-- [cleanup] From time to time, in a transaction of its own; again while it deletes 1,000 rows. 90 days are longer
-- than anything is retried; a dead letter that a person replays after that takes effect again.
-- processed_versions has one row for each entity and is kept.
DELETE FROM processed_events
 WHERE processed_at < NOW() - INTERVAL 90 DAY
 ORDER BY processed_at
 LIMIT 1000;
