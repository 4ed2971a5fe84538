-- From version 15 to 16: requests name the event in header fields, each attempt keeps what it sent, and views have what the
-- same tables of other platforms have. A view of ours is dropped before its step makes it again (`store::report_views`).

ALTER TABLE webhook_events ADD COLUMN type_field TEXT;
ALTER TABLE webhook_events ADD COLUMN event_id TEXT GENERATED ALWAYS AS (id) VIRTUAL;

ALTER TABLE attempts ADD COLUMN named INTEGER NOT NULL DEFAULT 0
  CONSTRAINT attempt_named_is_0_or_1 CHECK (named = 0 OR named = 1);

-- What earlier attempts of a delivery sent that was rendered anew since: each rendering with the last attempt that sent it. A
-- delivery has at most 16.
CREATE TABLE past_renderings (
  delivery_seq INTEGER NOT NULL REFERENCES deliveries (seq),
  last_n       INTEGER NOT NULL,
  format       TEXT NOT NULL,
  content_type TEXT NOT NULL,
  fields       TEXT NOT NULL,
  body         BLOB,
  sealed       INTEGER NOT NULL,
  PRIMARY KEY (delivery_seq, last_n),
  CONSTRAINT past_rendering_sealed_is_0_or_1 CHECK (sealed IN (0, 1))
) STRICT;

CREATE VIEW IF NOT EXISTS request AS
SELECT a.delivery_seq * 1048576 + a.n AS req_id,
       d.outbox_seq AS msg_id, d.webhook_seq,
       'dlv_' || a.delivery_seq || '.' || a.n AS res_join_id,
       a.method, a.url AS uri, a.fields,
       iif(p.last_n IS NULL, r.format, p.format) AS format,
       -- The body that this attempt sent: a rendering, else the payload. Sealed values stay sealed.
       coalesce(iif(p.last_n IS NULL, r.body, p.body), o.payload, w.payload,
                (SELECT body FROM payloads WHERE seq = coalesce(o.payload_seq, w.payload_seq))) AS req_envelope,
       a.body_sha256, a.started_at AS req_timestamp
  FROM attempts AS a
  JOIN deliveries AS d ON d.seq = a.delivery_seq
  LEFT JOIN outbox AS o ON o.seq = d.outbox_seq
  LEFT JOIN webhook_events AS w ON w.seq = d.webhook_seq
  LEFT JOIN renderings AS r ON r.delivery_seq = a.delivery_seq
  LEFT JOIN past_renderings AS p ON p.delivery_seq = a.delivery_seq
   AND p.last_n = (SELECT min(last_n) FROM past_renderings WHERE delivery_seq = a.delivery_seq AND last_n >= a.n);

CREATE VIEW IF NOT EXISTS message AS
SELECT o.seq AS msg_id,
       strftime('%Y-%m-%d %H:%M:%f', o.order_at / 1000.0, 'unixepoch') AS msg_timestamp,
       strftime('%Y-%m-%d %H:%M:%f', o.received_at / 1000.0, 'unixepoch') AS receive_timestamp,
       o.aggregate_type AS service_name, o.event_type AS operation_name, o.aggregate_id AS object_id, o.entity_type,
       o.idempotency_key AS correlation_id, o.process_id,
       coalesce(o.payload, (SELECT body FROM payloads WHERE seq = o.payload_seq)) AS payload,
       -- The header fields that are kept, one a line, an empty line, and the payload.
       (SELECT group_concat(name || ': ' || text, char(10))
          FROM (SELECT 'content-type' AS name, o.content_type AS text
                 UNION ALL
                SELECT key, value FROM json_each(iif(json_valid(o.headers), o.headers, '{}'))))
         || char(10) || char(10)
         || coalesce(o.payload, (SELECT body FROM payloads WHERE seq = o.payload_seq)) AS envelope,
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
SELECT c.delivery_seq AS call_id, d.outbox_seq AS msg_id, coalesce(o.event_type, w.event_type) AS operation_name,
       iif(c.state IN ('PROCESSING', 'FAILED') AND d.state IN ('dead_letter', 'skipped', 'cancelled'),
           'FAILED_END', c.state) AS state,
       c.entity_key AS entity_id,
       strftime('%Y-%m-%d %H:%M:%f', d.order_at / 1000.0, 'unixepoch') AS msg_timestamp,
       strftime('%Y-%m-%d %H:%M:%f', c.created_at / 1000.0, 'unixepoch') AS creation_timestamp,
       strftime('%Y-%m-%d %H:%M:%f', c.updated_at / 1000.0, 'unixepoch') AS last_update_timestamp,
       c.failed_count
  FROM external_calls AS c
  JOIN deliveries AS d ON d.seq = c.delivery_seq
  LEFT JOIN outbox AS o ON o.seq = d.outbox_seq
  LEFT JOIN webhook_events AS w ON w.seq = d.webhook_seq;

CREATE VIEW IF NOT EXISTS webhook_subscriptions AS
SELECT s.id, s.owner_id, s.url, s.event_types AS events,
       (SELECT c.sealed
          FROM credentials AS c
         WHERE c.subscription_seq = s.seq
           AND c.state = 'active'
           AND c.kind IN ('signing', 'signing_ed25519')) AS secret_encrypted,
       s.state AS status, s.failure_count,
       strftime('%Y-%m-%d %H:%M:%f', s.last_success_at / 1000.0, 'unixepoch') AS last_success_at,
       strftime('%Y-%m-%d %H:%M:%f', s.last_failure_at / 1000.0, 'unixepoch') AS last_failure_at,
       strftime('%Y-%m-%d %H:%M:%f', s.created_at / 1000.0, 'unixepoch') AS created_at,
       strftime('%Y-%m-%d %H:%M:%f', s.updated_at / 1000.0, 'unixepoch') AS updated_at
  FROM subscriptions AS s
 WHERE s.deleted_at IS NULL;
