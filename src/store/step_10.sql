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

-- The sources of their events. A list by key knows no source, and looks the key up under each of the tenant's.
CREATE TABLE seen_sources (
  kind   TEXT NOT NULL,
  tenant TEXT NOT NULL,
  source TEXT NOT NULL,
  PRIMARY KEY (kind, tenant, source)
) STRICT, WITHOUT ROWID;

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

-- Audit events of months that are over move into files: rows up to 'audit_start' may be deleted here.
DROP TRIGGER audit_events_are_never_deleted;
CREATE TRIGGER audit_events_are_never_deleted
BEFORE DELETE ON audit_events
WHEN NOT EXISTS (SELECT 1 FROM meta WHERE key = 'audit_start' AND OLD.seq <= CAST(value AS INTEGER))
BEGIN
  SELECT RAISE(ABORT, 'an audit event is never deleted');
END;

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

-- Names and columns that reports of other outboxes use, over the tables here (docs/data.md). Times are UTC texts, which can
-- be compared with CURRENT_TIMESTAMP. IF NOT EXISTS: an ERP may have a table of the name in this file.
CREATE VIEW IF NOT EXISTS integration_outbox AS
SELECT o.id AS outbox_id, o.aggregate_type, o.aggregate_id, o.event_type,
       coalesce(o.target, (SELECT group_concat(s.name, ',')
                             FROM deliveries AS d
                             JOIN subscriptions AS s ON s.seq = d.subscription_seq
                            WHERE d.outbox_seq = o.seq)) AS target_provider,
       coalesce(o.payload, (SELECT body FROM payloads WHERE seq = o.payload_seq)) AS payload,
       o.status,
       (SELECT coalesce(sum(attempt_count), 0) FROM deliveries WHERE outbox_seq = o.seq) AS attempts,
       o.max_attempts,
       (SELECT strftime('%Y-%m-%d %H:%M:%f', min(due_at) / 1000.0, 'unixepoch')
          FROM deliveries WHERE outbox_seq = o.seq) AS next_attempt_at,
       iif(o.status = 'completed', NULL, o.last_error) AS last_error,
       strftime('%Y-%m-%d %H:%M:%f', o.received_at / 1000.0, 'unixepoch') AS created_at,
       iif(o.status = 'completed', strftime('%Y-%m-%d %H:%M:%f', o.completed_at / 1000.0, 'unixepoch'), NULL) AS completed_at
  FROM outbox AS o
 WHERE o.source_system <> 'oncebox';

CREATE VIEW IF NOT EXISTS outbox_events AS
SELECT o.id, o.aggregate_type, o.aggregate_id, o.event_type,
       coalesce(o.payload, (SELECT body FROM payloads WHERE seq = o.payload_seq)) AS payload,
       CASE o.status
       WHEN 'completed' THEN 'PUBLISHED'
       WHEN 'dead_letter' THEN 'FAILED'
       WHEN 'quarantined' THEN 'FAILED'
       WHEN 'skipped' THEN 'SKIPPED'
       WHEN 'cancelled' THEN 'CANCELLED'
       ELSE 'PENDING'
        END AS status,
       (SELECT coalesce(sum(attempt_count), 0) FROM deliveries WHERE outbox_seq = o.seq) AS attempts,
       iif(o.status = 'completed', NULL, o.last_error) AS last_error,
       strftime('%Y-%m-%d %H:%M:%f', o.received_at / 1000.0, 'unixepoch') AS created_at,
       iif(o.status = 'completed', strftime('%Y-%m-%d %H:%M:%f', o.completed_at / 1000.0, 'unixepoch'), NULL) AS published_at
  FROM outbox AS o
 WHERE o.source_system <> 'oncebox';

CREATE VIEW IF NOT EXISTS webhook_deliveries AS
SELECT 'dlv_' || d.seq AS id, s.id AS subscription_id, coalesce(o.id, w.id) AS event_id,
       CASE d.state
       WHEN 'completed' THEN 'DELIVERED'
       WHEN 'dead_letter' THEN 'PERMANENTLY_FAILED'
       WHEN 'skipped' THEN 'SKIPPED'
       WHEN 'cancelled' THEN 'CANCELLED'
       ELSE iif(d.last_class <> 'success', 'FAILED', 'PENDING')
        END AS status,
       d.attempt_count AS attempts,
       strftime('%Y-%m-%d %H:%M:%f', d.due_at / 1000.0, 'unixepoch') AS next_retry_at,
       l.http_status, l.excerpt AS http_response_body_excerpt, l.latency_ms,
       strftime('%Y-%m-%d %H:%M:%f', coalesce(f.started_at, d.created_at) / 1000.0, 'unixepoch') AS first_attempt_at,
       strftime('%Y-%m-%d %H:%M:%f', coalesce(l.started_at, d.created_at) / 1000.0, 'unixepoch') AS last_attempt_at
  FROM deliveries AS d
  LEFT JOIN subscriptions AS s ON s.seq = d.subscription_seq
  LEFT JOIN outbox AS o ON o.seq = d.outbox_seq
  LEFT JOIN webhook_events AS w ON w.seq = d.webhook_seq
  LEFT JOIN attempts AS f ON f.delivery_seq = d.seq
   AND f.n = (SELECT min(n) FROM attempts WHERE delivery_seq = d.seq)
  LEFT JOIN attempts AS l ON l.delivery_seq = d.seq
   AND l.n = (SELECT max(n) FROM attempts WHERE delivery_seq = d.seq);

CREATE VIEW IF NOT EXISTS message AS
SELECT o.seq AS msg_id,
       strftime('%Y-%m-%d %H:%M:%f', o.order_at / 1000.0, 'unixepoch') AS msg_timestamp,
       strftime('%Y-%m-%d %H:%M:%f', o.received_at / 1000.0, 'unixepoch') AS receive_timestamp,
       o.aggregate_type AS service_name, o.event_type AS operation_name, o.aggregate_id AS object_id, o.entity_type,
       o.idempotency_key AS correlation_id, o.process_id,
       coalesce(o.payload, (SELECT body FROM payloads WHERE seq = o.payload_seq)) AS payload,
       -- The request that brought it is not kept.
       coalesce(o.payload, (SELECT body FROM payloads WHERE seq = o.payload_seq)) AS envelope,
       o.source_system,
       CASE
       WHEN o.routed_at IS NULL THEN 'NEW'
       WHEN o.status = 'completed' THEN 'OK'
       WHEN o.status = 'failed' THEN 'PARTLY_FAILED'
       WHEN o.status IN ('dead_letter', 'quarantined') THEN 'FAILED'
       WHEN o.status = 'cancelled' THEN 'CANCEL'
       WHEN o.status = 'skipped' THEN 'SKIPPED'
       WHEN o.hard_children > 0 AND o.open_deliveries = 0 THEN 'WAITING'
       WHEN EXISTS (SELECT 1 FROM deliveries WHERE outbox_seq = o.seq AND state = 'waiting') THEN 'WAITING_FOR_RES'
       WHEN o.status = 'processing' THEN 'PROCESSING'
       WHEN EXISTS (SELECT 1 FROM deliveries WHERE outbox_seq = o.seq AND head = 1) THEN 'IN_QUEUE'
       ELSE 'POSTPONED'
        END AS state,
       (SELECT count(*)
          FROM deliveries AS d
          JOIN attempts AS a ON a.delivery_seq = d.seq
         WHERE d.outbox_seq = o.seq AND a.class <> 'success') AS failed_count,
       coalesce(o.error_code,
                (SELECT f.code
                   FROM deliveries AS d
                   JOIN failures AS f ON f.delivery_seq = d.seq
                  WHERE d.outbox_seq = o.seq AND f.resolved_at IS NULL
                  ORDER BY f.last_at DESC, f.seq DESC LIMIT 1)) AS failed_error_code,
       iif(o.status = 'completed', NULL, o.last_error) AS failed_desc,
       (SELECT strftime('%Y-%m-%d %H:%M:%f', max(a.finished_at) / 1000.0, 'unixepoch')
          FROM deliveries AS d
          JOIN attempts AS a ON a.delivery_seq = d.seq
         WHERE d.outbox_seq = o.seq) AS last_process_timestamp,
       o.custom_data, o.parent_seq AS parent_msg_id,
       iif(o.parent_seq IS NULL, NULL, upper(coalesce(o.parent_binding, 'soft'))) AS parent_binding_type,
       o.funnel_value, o.funnel_point AS funnel_component_id, o.guaranteed_order,
       o.exclude_failed AS exclude_failed_state
  FROM outbox AS o
 WHERE o.source_system <> 'oncebox';

CREATE VIEW IF NOT EXISTS external_call AS
SELECT c.delivery_seq AS call_id, d.outbox_seq AS msg_id, s.name AS operation_name,
       iif(c.state IN ('PROCESSING', 'FAILED') AND d.state IN ('dead_letter', 'skipped', 'cancelled'),
           'FAILED_END', c.state) AS state,
       c.entity_key AS entity_id,
       strftime('%Y-%m-%d %H:%M:%f', d.order_at / 1000.0, 'unixepoch') AS msg_timestamp,
       strftime('%Y-%m-%d %H:%M:%f', c.created_at / 1000.0, 'unixepoch') AS creation_timestamp,
       strftime('%Y-%m-%d %H:%M:%f', c.updated_at / 1000.0, 'unixepoch') AS last_update_timestamp,
       c.failed_count
  FROM external_calls AS c
  JOIN deliveries AS d ON d.seq = c.delivery_seq
  JOIN subscriptions AS s ON s.seq = c.subscription_seq;
