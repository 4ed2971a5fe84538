-- Guards for a consumer that keeps its data in PostgreSQL 9.5 or newer.
--
-- What the consumer does for an event, and the note that it did so, are one transaction of the consumer's own
-- database: they are there together or not at all. docs/guards.md says which guard is right when.
--
--   consumer_group  who does it, such as 'accounting'; 1 to 64 characters
--   event_id        the webhook-id header of the request; 1 to 255 characters
--   entity          what it is about, such as 'article/17'; version whatever grows with each of its changes
--
-- Parameters are written as psql takes them, :'event_id'; for a driver put $1, ? or %s there.
-- The part after each [name] is one piece to paste. All of them are run by the tests of Oncebox, with processes
-- that are killed at any moment.

-- [tables] Once, in a migration. A second time does no harm.
CREATE TABLE IF NOT EXISTS processed_events (
  consumer_group text NOT NULL CHECK (length(consumer_group) BETWEEN 1 AND 64),
  event_id       text NOT NULL CHECK (length(event_id) BETWEEN 1 AND 255),
  processed_at   timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (consumer_group, event_id)
);
CREATE INDEX IF NOT EXISTS processed_events_age ON processed_events (processed_at);
CREATE TABLE IF NOT EXISTS processed_versions (
  consumer_group text NOT NULL CHECK (length(consumer_group) BETWEEN 1 AND 64),
  entity         text NOT NULL CHECK (length(entity) BETWEEN 1 AND 255),
  version        bigint NOT NULL,
  processed_at   timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (consumer_group, entity)
);

-- [begin] READ COMMITTED is what the server does unless told otherwise. Under REPEATABLE READ and SERIALIZABLE it is
-- right as well, but the second of two at the same time fails with SQLSTATE 40001 instead of being told that
-- it was done before: roll back and run the whole transaction again.
-- synchronous_commit must be on: with "off" a power cut takes back what was answered 2xx.
BEGIN ISOLATION LEVEL READ COMMITTED;

-- [claim] One row inserted: the first time, do it. None: it was done before, so commit and answer 2xx.
-- While another transaction holds the same claim, this waits for its end: after its COMMIT no row is inserted
-- here, after its ROLLBACK one is.
INSERT INTO processed_events (consumer_group, event_id)
VALUES (:'consumer_group', :'event_id')
    ON CONFLICT (consumer_group, event_id) DO NOTHING;

-- Then the effect, in this transaction, only when the claim inserted a row: the driver's row count says so, in psql
-- :ROW_COUNT, in PL/pgSQL GET DIAGNOSTICS. Or in one statement, with RETURNING event_id added to the claim:
--   WITH claimed AS (INSERT … RETURNING event_id)
--   INSERT INTO bookings (invoice) SELECT … FROM claimed;

-- [claim newer] For events that carry a whole state: instead of the claim above. One row: this version is newer than
-- the last one done, do it. None: it is the same or an older one, which must not be done any more. The row stays
-- locked until the end of the transaction, so two versions of one entity are done one after the other.
INSERT INTO processed_versions (consumer_group, entity, version)
VALUES (:'consumer_group', :'entity', :'version')
    ON CONFLICT (consumer_group, entity) DO UPDATE
   SET version = excluded.version, processed_at = excluded.processed_at
 WHERE excluded.version > processed_versions.version;

-- [commit] Only after it answer 2xx. If anything failed before: ROLLBACK, and answer 500; it comes again.
COMMIT;

-- [cleanup] From time to time, in a transaction of its own; again while it deletes 1,000 rows. 90 days are longer
-- than anything is retried; a dead letter that a person replays after that takes effect again.
-- processed_versions has one row for each entity and is kept.
DELETE FROM processed_events
 WHERE (consumer_group, event_id) IN (
       SELECT consumer_group, event_id
         FROM processed_events
        WHERE processed_at < now() - interval '90 days'
        ORDER BY processed_at
        LIMIT 1000);
