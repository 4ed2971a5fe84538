-- From version 9 to 10.

ALTER TABLE outbox ADD COLUMN expunged_at INTEGER;
ALTER TABLE webhook_events ADD COLUMN expunged_at INTEGER;

-- The rows get smaller: there is one for each event of a year.
CREATE TABLE seen_keys_10 (
  -- The 16 bytes of its webhook-id, which stand for tenant, source and key.
  hash   BLOB PRIMARY KEY,
  -- Its id; the 16 bytes of a UUID, otherwise as text.
  id     ANY NOT NULL,
  -- How it ended; NULL: completed.
  status TEXT,
  -- The month in whose file it is, like 202611.
  month  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO seen_keys_10 (hash, id, status, month)
SELECT hash,
       iif(id GLOB '????????-????-????-????-????????????' AND lower(id) = id,
           coalesce(unhex(replace(id, '-', '')), id), id),
       nullif(status, 'completed'), CAST(replace(month, '-', '') AS INTEGER)
  FROM seen_keys;
DROP TABLE seen_keys;
ALTER TABLE seen_keys_10 RENAME TO seen_keys;

-- Events that are kept whatever the settings say: they are neither archived, deleted nor expunged while it is in force.
CREATE TABLE legal_holds (
  seq            INTEGER PRIMARY KEY AUTOINCREMENT,
  id             TEXT NOT NULL UNIQUE,
  tenant         TEXT NOT NULL,
  name           TEXT NOT NULL,
  reason         TEXT NOT NULL,
  -- Which events; NULL: any. since and until are about when they were received.
  event_type     TEXT,
  aggregate_type TEXT,
  aggregate_id   TEXT,
  since          INTEGER,
  until          INTEGER,
  created_at     INTEGER NOT NULL,
  deleted_at     INTEGER,
  CONSTRAINT legal_hold_name_is_1_to_63_of_a_z_0_9_dash
    CHECK (length(name) BETWEEN 1 AND 63 AND name NOT GLOB '*[^a-z0-9-]*')
) STRICT;

CREATE UNIQUE INDEX legal_holds_name ON legal_holds (tenant, name) WHERE deleted_at IS NULL;
CREATE INDEX legal_holds_listed ON legal_holds (tenant, seq) WHERE deleted_at IS NULL;

-- Two more kinds of jobs.
CREATE TABLE jobs_10 (
  seq          INTEGER PRIMARY KEY AUTOINCREMENT,
  id           TEXT NOT NULL UNIQUE,
  tenant       TEXT NOT NULL,
  -- What is done, such as 'dead_letter.replay'.
  kind         TEXT NOT NULL,
  -- JSON: to which rows.
  filter       TEXT NOT NULL,
  -- Maximum deliveries per second; NULL: no limit.
  rate         INTEGER,
  -- The reason that the person gave.
  reason       TEXT,
  state        TEXT NOT NULL DEFAULT 'running',
  -- JSON: the position up to which rows were looked at.
  cursor       TEXT NOT NULL,
  -- How many rows matched when the job was made. matched_more = 1: at least this many.
  matched      INTEGER NOT NULL,
  matched_more INTEGER NOT NULL,
  -- How many were done, how many were skipped because they had changed, and how many deliveries were opened or ended.
  done         INTEGER NOT NULL DEFAULT 0,
  skipped      INTEGER NOT NULL DEFAULT 0,
  deliveries   INTEGER NOT NULL DEFAULT 0,
  error        TEXT,
  requested_by TEXT NOT NULL,
  created_at   INTEGER NOT NULL,
  finished_at  INTEGER,
  -- Since when a person keeps a running job from going on.
  paused_at    INTEGER,
  CONSTRAINT job_kind_is_known CHECK (kind IN ('dead_letter.replay', 'dead_letter.discard', 'event.replay',
    'webhook_event.replay', 'subscription.recover', 'event.expunge', 'webhook_event.expunge')),
  CONSTRAINT job_filter_is_json CHECK (json_valid(filter)),
  CONSTRAINT job_cursor_is_json CHECK (json_valid(cursor)),
  CONSTRAINT job_rate_is_1_to_10000 CHECK (rate BETWEEN 1 AND 10000),
  CONSTRAINT job_state_is_known CHECK (state IN ('running', 'completed', 'cancelled', 'failed')),
  CONSTRAINT job_matched_more_is_0_or_1 CHECK (matched_more IN (0, 1)),
  CONSTRAINT job_discards_with_a_reason CHECK (kind <> 'dead_letter.discard' OR reason IS NOT NULL),
  CONSTRAINT job_failed_with_an_error CHECK ((state = 'failed') = (error IS NOT NULL)),
  CONSTRAINT job_is_finished_with_a_time CHECK ((state = 'running') = (finished_at IS NULL))
) STRICT;
INSERT INTO jobs_10 (seq, id, tenant, kind, filter, rate, reason, state, cursor, matched, matched_more, done, skipped, deliveries, error, requested_by, created_at, finished_at, paused_at)
SELECT seq, id, tenant, kind, filter, rate, reason, state, cursor, matched, matched_more, done, skipped, deliveries, error, requested_by, created_at, finished_at, paused_at FROM jobs;
DROP TABLE jobs;
ALTER TABLE jobs_10 RENAME TO jobs;
CREATE INDEX jobs_running ON jobs (seq) WHERE state = 'running';
CREATE INDEX jobs_listed ON jobs (tenant, seq);
