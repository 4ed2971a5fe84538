-- From version 7 to 8.

-- Webhooks that were refused, without their bodies; those that are alike are one row. A row has one of few slots,
-- which the next one takes over, so that senders cannot fill the disk.
CREATE TABLE refused_webhooks (
  slot     INTEGER PRIMARY KEY,
  -- Its place in time: the row with the latest refusal has the highest.
  seq      INTEGER NOT NULL,
  tenant   TEXT NOT NULL,
  -- As the path has it. Whether there is such a provider.
  provider TEXT NOT NULL,
  is_known INTEGER NOT NULL,
  -- The status that was answered, and why.
  status   INTEGER NOT NULL,
  reason   TEXT NOT NULL,
  address  TEXT NOT NULL,
  first_at INTEGER NOT NULL,
  last_at  INTEGER NOT NULL,
  count    INTEGER NOT NULL,
  CONSTRAINT refused_webhooks_are_few CHECK (slot BETWEEN 1 AND 10000)
) STRICT;

-- What is sent of an event, where it is not the payload as it is. The first attempt fixes it, so that all attempts send
-- the same bytes.
CREATE TABLE renderings (
  delivery_seq INTEGER PRIMARY KEY REFERENCES deliveries (seq),
  format       TEXT NOT NULL,
  content_type TEXT NOT NULL,
  -- Header fields that were made, as a JSON array of pairs.
  fields       TEXT NOT NULL,
  -- The body that a template made; NULL: the event's payload in the format.
  body         BLOB,
  -- 1: fields and body are sealed under the key of the event's subject.
  sealed       INTEGER NOT NULL,
  CONSTRAINT rendering_sealed_is_0_or_1 CHECK (sealed IN (0, 1))
) STRICT;

ALTER TABLE deliveries ADD COLUMN rendered INTEGER NOT NULL DEFAULT 0
  CONSTRAINT delivery_rendered_is_0_or_1 CHECK (rendered = 0 OR rendered = 1);
ALTER TABLE attempts ADD COLUMN method TEXT;
ALTER TABLE attempts ADD COLUMN body_sha256 BLOB;
ALTER TABLE attempts ADD COLUMN fields TEXT;

CREATE INDEX audit_events_correlation ON audit_events (correlation_id) WHERE correlation_id IS NOT NULL;
CREATE INDEX audit_events_resource ON audit_events (resource_id) WHERE resource_id IS NOT NULL;

-- Deliveries that are sent again and not finished.
CREATE INDEX deliveries_again ON deliveries (subscription_seq) WHERE run_no > 1 AND finished_at IS NULL;

ALTER TABLE subscriptions ADD COLUMN auth_try_day INTEGER NOT NULL DEFAULT 0;
ALTER TABLE subscriptions ADD COLUMN auth_try_count INTEGER NOT NULL DEFAULT 0;
ALTER TABLE subscriptions ADD COLUMN auth_try_max INTEGER NOT NULL DEFAULT 0;

-- Events by their trace; without one, it is their own id.
CREATE INDEX outbox_trace ON outbox (tenant, trace_id) WHERE trace_id IS NOT NULL;
CREATE INDEX webhook_events_trace ON webhook_events (tenant, trace_id) WHERE trace_id IS NOT NULL;

ALTER TABLE tenants ADD COLUMN pii_stated INTEGER NOT NULL DEFAULT 0;
UPDATE tenants SET pii_stated = 1 WHERE pii <> 'allow' OR name <> 'default';

ALTER TABLE idempotency_keys ADD COLUMN change_bytes INTEGER;
CREATE INDEX idempotency_keys_of_changes ON idempotency_keys (tenant, change_bytes) WHERE change_bytes IS NOT NULL;
-- Keys of one-time signatures, which have no answer, get a character that clients' keys cannot have.
UPDATE idempotency_keys SET key = 'in,' || substr(key, 4) WHERE key LIKE 'in:%' AND octet_length(body) = 0;
