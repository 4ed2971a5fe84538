-- From version 1 to 2: holds that Oncebox puts by itself, failures, jobs.

ALTER TABLE subscriptions ADD COLUMN streak_class TEXT;
ALTER TABLE subscriptions ADD COLUMN streak_count INTEGER NOT NULL DEFAULT 0;

CREATE TABLE holds_2 (
  subscription_seq INTEGER NOT NULL,
  reason           TEXT NOT NULL,
  since            INTEGER NOT NULL,
  -- When it ends by itself (rate_limit).
  until            INTEGER,
  -- When one delivery is tried as a probe (breaker, auth), and how many probes have failed.
  probe_at         INTEGER,
  probe_no         INTEGER NOT NULL DEFAULT 0,
  detail           TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (subscription_seq, reason),
  CONSTRAINT hold_reason_is_known CHECK (reason IN
    ('paused', 'disabled', 'rejecting', 'rate_limit', 'breaker', 'auth', 'offline')),
  CONSTRAINT hold_of_the_site_is_offline CHECK ((subscription_seq = 0) = (reason = 'offline')),
  CONSTRAINT hold_until_goes_with_rate_limit CHECK ((until IS NOT NULL) = (reason = 'rate_limit')),
  CONSTRAINT hold_probe_goes_with_breaker_and_auth
    CHECK ((probe_at IS NOT NULL) = (reason IN ('breaker', 'auth')))
) STRICT, WITHOUT ROWID;

INSERT INTO holds_2 (subscription_seq, reason, since, detail)
SELECT subscription_seq, reason, since, detail FROM holds;
DROP TABLE holds;
ALTER TABLE holds_2 RENAME TO holds;

-- What went wrong with a delivery, from its first failed attempt until it succeeds. The API calls it flr_<seq>.
CREATE TABLE failures (
  seq          INTEGER PRIMARY KEY AUTOINCREMENT,
  delivery_seq INTEGER NOT NULL REFERENCES deliveries (seq),
  -- The class of the latest failed attempt, and its HTTP status or its cause in one word.
  class        TEXT NOT NULL,
  code         TEXT NOT NULL,
  first_at     INTEGER NOT NULL,
  last_at      INTEGER NOT NULL,
  count        INTEGER NOT NULL DEFAULT 1,
  resolved_at  INTEGER
) STRICT;

-- At most one unresolved failure per delivery.
CREATE UNIQUE INDEX failures_open ON failures (delivery_seq) WHERE resolved_at IS NULL;
CREATE INDEX failures_of_delivery ON failures (delivery_seq);

-- Bulk operations, such as a replay of dead letters, done in small batches. The cursor says how far the job is.
CREATE TABLE jobs (
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
  CONSTRAINT job_kind_is_known CHECK (kind IN ('dead_letter.replay', 'dead_letter.discard', 'event.replay',
    'webhook_event.replay', 'subscription.recover')),
  CONSTRAINT job_filter_is_json CHECK (json_valid(filter)),
  CONSTRAINT job_cursor_is_json CHECK (json_valid(cursor)),
  CONSTRAINT job_rate_is_1_to_10000 CHECK (rate BETWEEN 1 AND 10000),
  CONSTRAINT job_state_is_known CHECK (state IN ('running', 'completed', 'cancelled', 'failed')),
  CONSTRAINT job_matched_more_is_0_or_1 CHECK (matched_more IN (0, 1)),
  CONSTRAINT job_discards_with_a_reason CHECK (kind <> 'dead_letter.discard' OR reason IS NOT NULL),
  CONSTRAINT job_failed_with_an_error CHECK ((state = 'failed') = (error IS NOT NULL)),
  CONSTRAINT job_is_finished_with_a_time CHECK ((state = 'running') = (finished_at IS NULL))
) STRICT;

CREATE INDEX jobs_running ON jobs (seq) WHERE state = 'running';
CREATE INDEX jobs_listed ON jobs (tenant, seq);

-- The dead letters of a lane in lane order: they are replayed lane by lane.
CREATE INDEX deliveries_dead_in_lane ON deliveries (lane, order_at, seq)
  WHERE lane IS NOT NULL AND state = 'dead_letter';
