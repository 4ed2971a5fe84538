-- From version 8 to 9.

-- What the last probe of an idle target came to. No row: it was never probed.
CREATE TABLE health_probes (
  subscription_seq INTEGER PRIMARY KEY REFERENCES subscriptions (seq),
  probed_at        INTEGER NOT NULL,
  -- 'healthy', 'unhealthy', or 'unknown' after the first that failed.
  state            TEXT NOT NULL,
  -- When the first of those failed that made it unhealthy.
  unhealthy_since  INTEGER,
  -- Whether the target refused our credential in one of those that failed in a row.
  was_refused      INTEGER NOT NULL,
  -- Why the last one failed; NULL: it worked.
  detail           TEXT,
  -- When one has ended a hold. Until a delivery works, no other one does.
  ended_at         INTEGER
) STRICT;

CREATE INDEX health_probes_failing ON health_probes (subscription_seq) WHERE detail IS NOT NULL;

CREATE INDEX subscriptions_probed ON subscriptions (seq)
 WHERE json_extract(policy, '$.probe') IS NOT NULL AND deleted_at IS NULL;

-- The attempts as requests and responses, for reports by SQL. A number of one is the delivery's and the attempt's.
CREATE VIEW IF NOT EXISTS request AS
SELECT a.delivery_seq * 1048576 + a.n AS req_id,
       d.outbox_seq AS msg_id, d.webhook_seq,
       'dlv_' || a.delivery_seq || '.' || a.n AS res_join_id,
       a.method, a.url AS uri, a.fields, r.format,
       -- The payload, or what a template made of it for the latest attempt; body_sha256 is of what this one sent. Sealed
       -- values stay sealed.
       coalesce(r.body, o.payload, w.payload,
                (SELECT body FROM payloads WHERE seq = coalesce(o.payload_seq, w.payload_seq))) AS req_envelope,
       a.body_sha256, a.started_at AS req_timestamp
  FROM attempts AS a
  JOIN deliveries AS d ON d.seq = a.delivery_seq
  LEFT JOIN outbox AS o ON o.seq = d.outbox_seq
  LEFT JOIN webhook_events AS w ON w.seq = d.webhook_seq
  LEFT JOIN renderings AS r ON r.delivery_seq = a.delivery_seq;

CREATE VIEW IF NOT EXISTS response AS
SELECT a.delivery_seq * 1048576 + a.n AS res_id,
       a.delivery_seq * 1048576 + a.n AS req_id,
       d.outbox_seq AS msg_id, d.webhook_seq,
       a.http_status, a.excerpt AS res_envelope, a.failed_reason, a.finished_at AS res_timestamp,
       a.class <> 'success' AS failed
  FROM attempts AS a
  JOIN deliveries AS d ON d.seq = a.delivery_seq;

-- Events that have left the database for the archive, so that one that is sent again is still known.
CREATE TABLE seen_keys (
  -- Of what made it one event: kind, tenant, source and key. The first 16 bytes of a SHA-256.
  hash    BLOB PRIMARY KEY,
  id      TEXT NOT NULL,
  -- How it ended.
  status  TEXT NOT NULL,
  -- The month in whose file it is, like 2026-11.
  month   TEXT NOT NULL,
  seen_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Deleting a body looks for rows that refer to it.
CREATE INDEX outbox_payload ON outbox (payload_seq) WHERE payload_seq IS NOT NULL;
CREATE INDEX webhook_events_payload ON webhook_events (payload_seq) WHERE payload_seq IS NOT NULL;

ALTER TABLE credentials ADD COLUMN unseen INTEGER NOT NULL DEFAULT 0
  CONSTRAINT credential_unseen_is_0_or_1 CHECK (unseen = 0 OR unseen = 1);

CREATE INDEX subjects_sealed_under ON subjects (master_key_id) WHERE master_key_id IS NOT NULL;
