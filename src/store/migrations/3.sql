-- From schema version 2 to 3: sources, pull consumers, personal data, escalations.
--
-- SQLite cannot change a CHECK in place, so two small tables are made anew and renamed; no row of theirs
-- was ever deleted, so their numbers go on where they were.

CREATE TABLE providers_3 (
  seq             INTEGER PRIMARY KEY AUTOINCREMENT,
  id              TEXT NOT NULL UNIQUE,
  tenant          TEXT NOT NULL DEFAULT 'default',
  name            TEXT NOT NULL,
  -- JSON: how requests are signed and where the event's id and type stand.
  scheme          TEXT NOT NULL,
  -- What happens to personal data in what it sends: 'allow', or JSON with rules (docs/data.md).
  pii             TEXT NOT NULL,
  -- The address the provider posts to, byte for byte, where its signature covers it.
  public_url      TEXT,
  body_bytes_max  INTEGER NOT NULL,
  tolerance_ms    INTEGER NOT NULL,
  created_at      INTEGER NOT NULL,
  updated_at      INTEGER NOT NULL,
  deleted_at      INTEGER,
  CONSTRAINT provider_name_is_1_to_63_of_a_z_0_9_dash
    CHECK (length(name) BETWEEN 1 AND 63 AND name NOT GLOB '*[^a-z0-9-]*'),
  CONSTRAINT provider_scheme_is_json CHECK (json_valid(scheme)),
  CONSTRAINT provider_pii_is_allow_or_json CHECK (pii = 'allow' OR json_valid(pii))
) STRICT;

INSERT INTO providers_3 (seq, id, tenant, name, scheme, pii, body_bytes_max, tolerance_ms, created_at, updated_at,
       deleted_at)
SELECT seq, id, tenant, name, scheme, pii, body_bytes_max, tolerance_ms, created_at, updated_at,
       deleted_at
  FROM providers;

DROP TABLE providers;
ALTER TABLE providers_3 RENAME TO providers;

CREATE UNIQUE INDEX providers_name ON providers (tenant, name) WHERE deleted_at IS NULL;

CREATE TABLE subscriptions_3 (
  seq             INTEGER PRIMARY KEY AUTOINCREMENT,
  id              TEXT NOT NULL UNIQUE,
  tenant          TEXT NOT NULL DEFAULT 'default',
  name            TEXT NOT NULL,
  owner_id        TEXT NOT NULL DEFAULT '',
  -- 'outbox', 'all', or 'provider:' and a provider's name.
  source          TEXT NOT NULL DEFAULT 'outbox',
  -- JSON array of event-type patterns.
  event_types     TEXT NOT NULL,
  -- 'http': we send to `url`. 'pull': consumers ask for what is due, and `url` is ''.
  target_kind     TEXT NOT NULL DEFAULT 'http',
  url             TEXT NOT NULL,
  method          TEXT NOT NULL DEFAULT 'POST',
  -- JSON object of further header fields.
  headers         TEXT NOT NULL DEFAULT '{}',
  -- JSON: steps, max_attempts, timeout, in_flight_max, lease; absent keys take the file's settings.
  policy          TEXT NOT NULL DEFAULT '{}',
  ordering        TEXT NOT NULL DEFAULT 'none',
  state           TEXT NOT NULL DEFAULT 'ACTIVE',
  -- Failed attempts since the last success, and since when; summed by the writer once a commit.
  failure_count   INTEGER NOT NULL DEFAULT 0,
  failing_since   INTEGER,
  last_success_at INTEGER,
  last_failure_at INTEGER,
  created_at      INTEGER NOT NULL,
  updated_at      INTEGER NOT NULL,
  deleted_at      INTEGER,
  CONSTRAINT subscription_name_is_1_to_63_of_a_z_0_9_dash
    CHECK (length(name) BETWEEN 1 AND 63 AND name NOT GLOB '*[^a-z0-9-]*'),
  CONSTRAINT subscription_event_types_is_json CHECK (json_valid(event_types)),
  CONSTRAINT subscription_headers_is_json CHECK (json_valid(headers)),
  CONSTRAINT subscription_policy_is_json CHECK (json_valid(policy)),
  CONSTRAINT subscription_target_kind_is_http_or_pull CHECK (target_kind IN ('http', 'pull')),
  CONSTRAINT subscription_url_goes_with_http CHECK ((target_kind = 'http') = (url <> '')),
  CONSTRAINT subscription_method_is_post_put_or_patch CHECK (method IN ('POST', 'PUT', 'PATCH')),
  CONSTRAINT subscription_ordering_is_none_key_or_strict CHECK (ordering IN ('none', 'key', 'strict')),
  CONSTRAINT subscription_state_is_known CHECK (state IN ('ACTIVE', 'PAUSED', 'DISABLED_DEAD')),
  CONSTRAINT subscription_failing_since_goes_with_failure_count
    CHECK ((failure_count = 0) = (failing_since IS NULL))
) STRICT;

INSERT INTO subscriptions_3 (seq, id, tenant, name, owner_id, source, event_types, target_kind, url, method, headers,
       policy, ordering, state, failure_count, failing_since, last_success_at, last_failure_at,
       created_at, updated_at, deleted_at)
SELECT seq, id, tenant, name, owner_id, source, event_types, target_kind, url, method, headers,
       policy, ordering, state, failure_count, failing_since, last_success_at, last_failure_at,
       created_at, updated_at, deleted_at
  FROM subscriptions;

DROP TABLE subscriptions;
ALTER TABLE subscriptions_3 RENAME TO subscriptions;

CREATE UNIQUE INDEX subscriptions_name ON subscriptions (tenant, name) WHERE deleted_at IS NULL;

CREATE TRIGGER subscriptions_updated_at
AFTER UPDATE OF name, owner_id, source, event_types, url, method, headers, policy, state ON subscriptions
WHEN NEW.updated_at = OLD.updated_at
BEGIN
  UPDATE subscriptions
     SET updated_at = CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)
   WHERE seq = NEW.seq;
END;

ALTER TABLE webhook_events ADD COLUMN sealed_fields INTEGER NOT NULL DEFAULT 0;
ALTER TABLE outbox ADD COLUMN sealed_fields INTEGER NOT NULL DEFAULT 0;
ALTER TABLE outbox ADD COLUMN own INTEGER NOT NULL DEFAULT 0
                     CONSTRAINT event_own_is_0_or_1 CHECK (own = 0 OR own = 1)
                     CONSTRAINT event_seq_is_left_out CHECK (seq BETWEEN 1 AND 4611686018427387903);

DROP TRIGGER outbox_starts_pending;

CREATE TRIGGER outbox_own_columns_are_left_out
BEFORE INSERT ON outbox
WHEN (NEW.seq > 4294967296
      AND NEW.seq - 4294967296 > coalesce((SELECT s.seq FROM sqlite_sequence AS s WHERE s.name = 'outbox'), 0))
  OR (NEW.own = 0
      AND (NEW.status <> 'pending' OR NEW.routed_at IS NOT NULL OR NEW.open_deliveries <> 0
           OR NEW.payload_seq IS NOT NULL OR NEW.sealed_fields <> 0 OR NEW.epoch <> 0
           OR NEW.replay_of IS NOT NULL OR NEW.duplicate_count <> 0 OR NEW.differing_count <> 0
           OR NEW.error_code IS NOT NULL OR NEW.last_error IS NOT NULL OR NEW.completed_at IS NOT NULL))
BEGIN
  SELECT RAISE(ABORT, 'outbox: leave out seq on INSERT: Oncebox numbers the rows, and all later ones would be numbered on from this one')
   WHERE NEW.seq > 4294967296
     AND NEW.seq - 4294967296 > coalesce((SELECT s.seq FROM sqlite_sequence AS s WHERE s.name = 'outbox'), 0);
  SELECT RAISE(ABORT, 'outbox: leave out on INSERT what is Oncebox''s own: status, routed_at, open_deliveries, payload_seq, sealed_fields, epoch, replay_of, duplicate_count, differing_count, error_code, last_error, completed_at');
END;
ALTER TABLE tenants ADD COLUMN pii TEXT NOT NULL DEFAULT 'allow'
  CONSTRAINT tenant_pii_is_allow_or_json CHECK (pii = 'allow' OR json_valid(pii));

CREATE INDEX outbox_quarantined ON outbox (seq) WHERE status = 'quarantined';
DROP INDEX deliveries_lane_head;
DROP INDEX deliveries_lane;
CREATE UNIQUE INDEX deliveries_lane_head ON deliveries (lane)
  WHERE lane IS NOT NULL AND head = 1 AND finished_at IS NULL;
CREATE INDEX deliveries_lane ON deliveries (lane, order_at, seq)
  WHERE lane IS NOT NULL AND finished_at IS NULL;
CREATE INDEX deliveries_behind ON deliveries (subscription_seq) WHERE state = 'pending' AND head = 0;
CREATE INDEX deliveries_leases ON deliveries (lease_until) WHERE state = 'leased';

-- Where events are read from besides the API: an ERP's own SQLite file, or a folder that files are dropped in.
CREATE TABLE sources (
  seq             INTEGER PRIMARY KEY AUTOINCREMENT,
  id              TEXT NOT NULL UNIQUE,
  tenant          TEXT NOT NULL DEFAULT 'default',
  -- Also the source_system of its events.
  name            TEXT NOT NULL,
  kind            TEXT NOT NULL,
  -- JSON: the path, and how what stands there is read.
  settings        TEXT NOT NULL,
  state           TEXT NOT NULL DEFAULT 'ACTIVE',
  -- The last row that was copied; moved in the transaction that copies.
  cursor          INTEGER NOT NULL DEFAULT 0,
  -- What the file was when it was last read, so that another or an older one in its place shows.
  identity        TEXT,
  event_count     INTEGER NOT NULL DEFAULT 0,
  last_event_at   INTEGER,
  last_read_at    INTEGER,
  -- What stands in the way now, and since when; NULL: nothing.
  last_error      TEXT,
  failing_since   INTEGER,
  -- No event for this long is an escalation; NULL: never.
  silent_after_ms INTEGER,
  created_at      INTEGER NOT NULL,
  updated_at      INTEGER NOT NULL,
  deleted_at      INTEGER,
  CONSTRAINT source_name_is_1_to_63_of_a_z_0_9_dash
    CHECK (length(name) BETWEEN 1 AND 63 AND name NOT GLOB '*[^a-z0-9-]*'),
  CONSTRAINT source_kind_is_sqlite_or_drop CHECK (kind IN ('sqlite', 'drop')),
  CONSTRAINT source_settings_is_json CHECK (json_valid(settings)),
  CONSTRAINT source_state_is_known CHECK (state IN ('ACTIVE', 'PAUSED')),
  CONSTRAINT source_fails_with_an_error CHECK ((last_error IS NULL) = (failing_since IS NULL))
) STRICT;

CREATE UNIQUE INDEX sources_name ON sources (tenant, name) WHERE deleted_at IS NULL;

-- Files that were taken from a drop folder: the same name with other content is refused.
CREATE TABLE source_files (
  source_seq  INTEGER NOT NULL REFERENCES sources (seq),
  name        TEXT NOT NULL,
  sha256      BLOB NOT NULL,
  size        INTEGER NOT NULL,
  state       TEXT NOT NULL,
  -- Why it was rejected.
  reason      TEXT,
  event_count INTEGER NOT NULL,
  read_at     INTEGER NOT NULL,
  PRIMARY KEY (source_seq, name),
  CONSTRAINT source_file_state_is_done_or_rejected CHECK (state IN ('done', 'rejected')),
  CONSTRAINT source_file_is_rejected_with_a_reason CHECK ((state = 'rejected') = (reason IS NOT NULL)),
  CONSTRAINT source_file_hash_is_sha_256 CHECK (length(sha256) = 32)
) STRICT, WITHOUT ROWID;

CREATE INDEX source_files_age ON source_files (read_at);

-- Failures that a person must see. One that is open counts up instead of standing there twice.
CREATE TABLE escalations (
  seq             INTEGER PRIMARY KEY AUTOINCREMENT,
  id              TEXT NOT NULL UNIQUE,
  tenant          TEXT NOT NULL,
  -- What happened, such as 'source.silent', and to what, such as 'source:erp'.
  class           TEXT NOT NULL,
  subject         TEXT NOT NULL,
  detail          TEXT NOT NULL,
  first_at        INTEGER NOT NULL,
  last_at         INTEGER NOT NULL,
  count           INTEGER NOT NULL DEFAULT 1,
  acknowledged_at INTEGER,
  acknowledged_by TEXT,
  resolved_at     INTEGER,
  CONSTRAINT escalation_is_acknowledged_by_somebody
    CHECK ((acknowledged_at IS NULL) = (acknowledged_by IS NULL))
) STRICT;

CREATE UNIQUE INDEX escalations_open ON escalations (tenant, class, subject) WHERE resolved_at IS NULL;

-- Those whose personal data is sealed, each under a key of its own. Erasing a subject destroys its keys, and with
-- them what is sealed in this file. A backup from before has them still (docs/privacy.md).
CREATE TABLE subjects (
  seq           INTEGER PRIMARY KEY AUTOINCREMENT,
  tenant        TEXT NOT NULL,
  -- HMAC-SHA-256 of the subject's name, under a key that is derived from what meta keeps sealed.
  subject       BLOB NOT NULL,
  -- The key's name, which stands in whatever it seals.
  key_id        BLOB NOT NULL UNIQUE,
  -- The key, sealed under the master key; NULL: destroyed.
  sealed        BLOB,
  master_key_id TEXT,
  created_at    INTEGER NOT NULL,
  erased_at     INTEGER,
  CONSTRAINT subject_is_an_hmac CHECK (length(subject) = 32 AND length(key_id) = 16),
  CONSTRAINT subject_is_erased_without_a_key
    CHECK ((sealed IS NULL) = (erased_at IS NOT NULL) AND (sealed IS NULL) = (master_key_id IS NULL))
) STRICT;

CREATE INDEX subjects_identity ON subjects (tenant, subject);
