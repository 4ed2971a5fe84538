-- From version 3 to 4: order and dependence.

ALTER TABLE providers ADD COLUMN ordering_key TEXT
  CONSTRAINT provider_ordering_key_is_json CHECK (ordering_key IS NULL OR json_valid(ordering_key));
ALTER TABLE webhook_events ADD COLUMN ordering_key TEXT;

ALTER TABLE subscriptions ADD COLUMN order_terms TEXT NOT NULL DEFAULT '{}'
  CONSTRAINT subscription_order_terms_is_json CHECK (json_valid(order_terms));

DROP TRIGGER subscriptions_updated_at;
CREATE TRIGGER subscriptions_updated_at
AFTER UPDATE OF name, owner_id, source, event_types, url, method, headers, policy, state, format, event_headers,
  filter, template, order_terms ON subscriptions
WHEN NEW.updated_at = OLD.updated_at
BEGIN
  UPDATE subscriptions
     SET updated_at = CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)
   WHERE seq = NEW.seq;
END;

ALTER TABLE outbox ADD COLUMN entity_type TEXT
  CONSTRAINT event_entity_type_is_at_most_64 CHECK (length(entity_type) <= 64);
ALTER TABLE outbox ADD COLUMN hard_children INTEGER NOT NULL DEFAULT 0;

CREATE INDEX outbox_children ON outbox (parent_seq) WHERE parent_seq IS NOT NULL;
CREATE INDEX outbox_hard_children ON outbox (parent_seq, status)
  WHERE parent_binding = 'hard' AND routed_at IS NOT NULL;
CREATE INDEX outbox_process ON outbox (tenant, process_id) WHERE process_id IS NOT NULL;

DROP TRIGGER outbox_own_columns_are_left_out;
CREATE TRIGGER outbox_own_columns_are_left_out
BEFORE INSERT ON outbox
WHEN (NEW.seq > 4294967296
      AND NEW.seq - 4294967296 > coalesce((SELECT s.seq FROM sqlite_sequence AS s WHERE s.name = 'outbox'), 0))
  OR (NEW.own = 0
      AND (NEW.status <> 'pending' OR NEW.routed_at IS NOT NULL OR NEW.open_deliveries <> 0
           OR NEW.payload_seq IS NOT NULL OR NEW.sealed_fields <> 0 OR NEW.epoch <> 0
           OR NEW.replay_of IS NOT NULL OR NEW.duplicate_count <> 0 OR NEW.differing_count <> 0
           OR NEW.error_code IS NOT NULL OR NEW.last_error IS NOT NULL OR NEW.completed_at IS NOT NULL
           OR NEW.hard_children <> 0))
BEGIN
  SELECT RAISE(ABORT, 'outbox: leave out seq on INSERT: Oncebox numbers the rows, and all later ones would be numbered on from this one')
   WHERE NEW.seq > 4294967296
     AND NEW.seq - 4294967296 > coalesce((SELECT s.seq FROM sqlite_sequence AS s WHERE s.name = 'outbox'), 0);
  SELECT RAISE(ABORT, 'outbox: leave out on INSERT what is Oncebox''s own: status, routed_at, open_deliveries, payload_seq, sealed_fields, epoch, replay_of, duplicate_count, differing_count, error_code, last_error, completed_at, hard_children');
END;

ALTER TABLE deliveries ADD COLUMN funnel INTEGER;
ALTER TABLE deliveries ADD COLUMN entity INTEGER;
ALTER TABLE deliveries ADD COLUMN late INTEGER NOT NULL DEFAULT 0
  CONSTRAINT delivery_late_is_0_or_1 CHECK (late = 0 OR late = 1);
ALTER TABLE deliveries ADD COLUMN custom_data TEXT;
ALTER TABLE deliveries ADD COLUMN confirm_until INTEGER
  CONSTRAINT delivery_confirm_until_goes_with_waiting CHECK ((state = 'waiting') = (confirm_until IS NOT NULL));

-- Lanes have gone on past these.
UPDATE deliveries SET head = 0 WHERE lane IS NOT NULL AND state = 'dead_letter';

DROP INDEX deliveries_due;
CREATE INDEX deliveries_due ON deliveries (subscription_seq, due_at, seq, lane, funnel)
  WHERE state = 'pending' AND head = 1;
DROP INDEX deliveries_behind;
CREATE INDEX deliveries_behind ON deliveries (subscription_seq, due_at) WHERE state = 'pending' AND head = 0;
DROP INDEX deliveries_lane;
CREATE INDEX deliveries_lane ON deliveries (lane, order_at, seq)
  WHERE lane IS NOT NULL AND finished_at IS NULL AND state <> 'parked';
CREATE INDEX deliveries_blocking ON deliveries (lane, order_at, seq)
  WHERE lane IS NOT NULL AND state = 'dead_letter' AND head = 1;
CREATE INDEX deliveries_funnel_taken ON deliveries (funnel) WHERE funnel IS NOT NULL AND state = 'waiting';
CREATE INDEX deliveries_entity ON deliveries (entity, order_at, seq)
  WHERE entity IS NOT NULL AND finished_at IS NULL;
CREATE INDEX deliveries_confirmations ON deliveries (confirm_until) WHERE state = 'waiting';

CREATE TABLE external_calls (
  subscription_seq INTEGER NOT NULL REFERENCES subscriptions (seq),
  entity           INTEGER NOT NULL,
  entity_key       TEXT NOT NULL,
  delivery_seq     INTEGER NOT NULL,
  body_hash        BLOB NOT NULL,
  state            TEXT NOT NULL,
  failed_count     INTEGER NOT NULL DEFAULT 0,
  made_seq         INTEGER,
  made_order_at    INTEGER,
  made_hash        BLOB,
  created_at       INTEGER NOT NULL,
  updated_at       INTEGER NOT NULL,
  PRIMARY KEY (subscription_seq, entity),
  CONSTRAINT external_call_state_is_known CHECK (state IN ('PROCESSING', 'OK', 'FAILED', 'FAILED_END'))
) STRICT, WITHOUT ROWID;
CREATE INDEX external_calls_newest ON external_calls (subscription_seq, delivery_seq);
