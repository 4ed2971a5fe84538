-- Guards for a consumer that keeps its data in SQLite 3.24 or newer.
--
-- What the consumer does for an event, and the note that it did so, are one transaction of the consumer's own
-- file: they are there together or not at all. docs/guards.md says which guard is right when.
--
--   :consumer_group  who does it, such as 'accounting'; 1 to 64 characters
--   :event_id        the webhook-id header of the request; 1 to 255 characters
--   :entity          what it is about, such as 'article/17'; :version whatever grows with each of its changes
--
-- The part after each [name] is one piece to paste. All of them are run by the tests of Oncebox, with processes
-- that are killed at any moment.

-- [tables] Once, in a migration. A second time does no harm.
CREATE TABLE IF NOT EXISTS processed_events (
  consumer_group TEXT NOT NULL CHECK (length(consumer_group) BETWEEN 1 AND 64),
  event_id       TEXT NOT NULL CHECK (length(event_id) BETWEEN 1 AND 255),
  -- Milliseconds since 1970, UTC.
  processed_at   INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)),
  PRIMARY KEY (consumer_group, event_id)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS processed_versions (
  consumer_group TEXT NOT NULL CHECK (length(consumer_group) BETWEEN 1 AND 64),
  entity         TEXT NOT NULL CHECK (length(entity) BETWEEN 1 AND 255),
  version        INTEGER NOT NULL,
  processed_at   INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)),
  PRIMARY KEY (consumer_group, entity)
) WITHOUT ROWID;

-- [begin] IMMEDIATE takes the write lock now. A plain BEGIN takes it at the first write, and then fails with
-- SQLITE_BUSY, past any busy_timeout, when this transaction has read something that was changed since.
-- Set the timeout once per connection: without it a second consumer fails instead of waiting.
PRAGMA busy_timeout = 10000;
BEGIN IMMEDIATE;

-- [claim] One row changed: the first time, do it. None: it was done before, so commit and answer 2xx.
INSERT INTO processed_events (consumer_group, event_id)
VALUES (:consumer_group, :event_id)
    ON CONFLICT DO NOTHING;

-- Then the effect, in this transaction, only when the claim changed a row. In plain SQL changes() tells:
--   INSERT INTO bookings (invoice) SELECT :invoice WHERE changes() = 1;
-- It is the count of the statement just before, so put nothing in between.

-- [claim newer] For events that carry a whole state: instead of the claim above. One row changed: this version is
-- newer than the last one done, do it. None: it is the same or an older one, which must not be done any more.
INSERT INTO processed_versions (consumer_group, entity, version)
VALUES (:consumer_group, :entity, :version)
    ON CONFLICT (consumer_group, entity) DO UPDATE
   SET version = excluded.version, processed_at = excluded.processed_at
 WHERE excluded.version > processed_versions.version;

-- [commit] Only after it answer 2xx. If anything failed before: ROLLBACK, and answer 500; it comes again.
COMMIT;

-- [cleanup] From time to time, in a transaction of its own; again while it changes 1,000 rows. 90 days are longer
-- than anything is retried; a dead letter that a person replays after that takes effect again.
-- processed_versions has one row for each entity and is kept.
DELETE FROM processed_events
 WHERE (consumer_group, event_id) IN (
       SELECT consumer_group, event_id
         FROM processed_events
        WHERE processed_at < (CAST(strftime('%s', 'now') AS INTEGER) - 90 * 86400) * 1000
        LIMIT 1000);
