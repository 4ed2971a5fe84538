-- From version 2 to 3: credentials of every kind, formats, filters and templates of subscriptions.

ALTER TABLE failures ADD COLUMN alone INTEGER NOT NULL DEFAULT 0;

CREATE TABLE subscriptions_3 (
  seq             INTEGER PRIMARY KEY AUTOINCREMENT,
  id              TEXT NOT NULL UNIQUE,
  tenant          TEXT NOT NULL DEFAULT 'default',
  name            TEXT NOT NULL,
  owner_id        TEXT NOT NULL DEFAULT '',
  source          TEXT NOT NULL DEFAULT 'outbox',
  event_types     TEXT NOT NULL,
  target_kind     TEXT NOT NULL DEFAULT 'http',
  url             TEXT NOT NULL,
  method          TEXT NOT NULL DEFAULT 'POST',
  headers         TEXT NOT NULL DEFAULT '{}',
  policy          TEXT NOT NULL DEFAULT '{}',
  ordering        TEXT NOT NULL DEFAULT 'none',
  state           TEXT NOT NULL DEFAULT 'ACTIVE',
  failure_count   INTEGER NOT NULL DEFAULT 0,
  failing_since   INTEGER,
  last_success_at INTEGER,
  last_failure_at INTEGER,
  created_at      INTEGER NOT NULL,
  updated_at      INTEGER NOT NULL,
  deleted_at      INTEGER,
  streak_class    TEXT,
  streak_count    INTEGER NOT NULL DEFAULT 0,
  format          TEXT NOT NULL DEFAULT 'raw',
  event_headers   TEXT NOT NULL DEFAULT '[]',
  filter          TEXT,
  template        TEXT,
  CONSTRAINT subscription_name_is_1_to_63_of_a_z_0_9_dash
    CHECK (length(name) BETWEEN 1 AND 63 AND name NOT GLOB '*[^a-z0-9-]*'),
  CONSTRAINT subscription_event_types_is_json CHECK (json_valid(event_types)),
  CONSTRAINT subscription_headers_is_json CHECK (json_valid(headers)),
  CONSTRAINT subscription_policy_is_json CHECK (json_valid(policy)),
  CONSTRAINT subscription_target_kind_is_known CHECK (target_kind IN ('http', 'pull', 'email', 'command')),
  CONSTRAINT subscription_url_is_empty_with_pull CHECK ((target_kind = 'pull') = (url = '')),
  CONSTRAINT subscription_method_is_post_put_or_patch CHECK (method IN ('POST', 'PUT', 'PATCH')),
  CONSTRAINT subscription_ordering_is_none_key_or_strict CHECK (ordering IN ('none', 'key', 'strict')),
  CONSTRAINT subscription_state_is_known CHECK (state IN ('ACTIVE', 'PAUSED', 'DISABLED_DEAD')),
  CONSTRAINT subscription_failing_since_goes_with_failure_count
    CHECK ((failure_count = 0) = (failing_since IS NULL)),
  CONSTRAINT subscription_format_is_known
    CHECK (format IN ('raw', 'standard_webhooks', 'cloudevents_binary', 'cloudevents_structured')),
  CONSTRAINT subscription_event_headers_is_json CHECK (json_valid(event_headers)),
  CONSTRAINT subscription_filter_is_json CHECK (filter IS NULL OR json_valid(filter)),
  CONSTRAINT subscription_template_is_json CHECK (template IS NULL OR json_valid(template))
) STRICT;

INSERT INTO subscriptions_3 (
       seq, id, tenant, name, owner_id, source, event_types, target_kind, url, method, headers, policy, ordering, state,
       failure_count, failing_since, last_success_at, last_failure_at, created_at, updated_at, deleted_at,
       streak_class, streak_count)
SELECT seq, id, tenant, name, owner_id, source, event_types, target_kind, url, method, headers, policy, ordering, state,
       failure_count, failing_since, last_success_at, last_failure_at, created_at, updated_at, deleted_at,
       streak_class, streak_count
  FROM subscriptions;
-- From now on this owner stands for alert channels.
UPDATE subscriptions_3 SET owner_id = '' WHERE owner_id = 'oncebox';
DROP TABLE subscriptions;
ALTER TABLE subscriptions_3 RENAME TO subscriptions;

CREATE UNIQUE INDEX subscriptions_name ON subscriptions (tenant, name) WHERE deleted_at IS NULL;

CREATE TRIGGER subscriptions_updated_at
AFTER UPDATE OF name, owner_id, source, event_types, url, method, headers, policy, state, format, event_headers,
  filter, template ON subscriptions
WHEN NEW.updated_at = OLD.updated_at
BEGIN
  UPDATE subscriptions
     SET updated_at = CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)
   WHERE seq = NEW.seq;
END;

CREATE TABLE credentials_3 (
  seq              INTEGER PRIMARY KEY AUTOINCREMENT,
  id               TEXT NOT NULL UNIQUE,
  tenant           TEXT NOT NULL DEFAULT 'default',
  provider_seq     INTEGER REFERENCES providers (seq),
  subscription_seq INTEGER REFERENCES subscriptions (seq),
  kind             TEXT NOT NULL,
  version          INTEGER NOT NULL,
  state            TEXT NOT NULL,
  settings         TEXT NOT NULL DEFAULT '{}',
  sealed           BLOB NOT NULL,
  master_key_id    TEXT NOT NULL,
  created_at       INTEGER NOT NULL,
  valid_until      INTEGER,
  last_used_at     INTEGER,
  verify_at        INTEGER,
  verify_until     INTEGER,
  verify_error     TEXT,
  rotate_every_ms  INTEGER,
  rotate_command   TEXT,
  CONSTRAINT credential_has_one_owner CHECK ((provider_seq IS NULL) <> (subscription_seq IS NULL)),
  CONSTRAINT credential_kind_is_known CHECK (kind IN ('signing', 'signing_ed25519', 'bearer', 'basic', 'api_key',
    'oauth2', 'client_certificate')),
  CONSTRAINT credential_state_is_known CHECK (state IN ('next', 'active', 'retiring', 'revoked')),
  CONSTRAINT credential_settings_is_json CHECK (json_valid(settings)),
  CONSTRAINT credential_verify_goes_with_next CHECK (verify_at IS NULL OR state = 'next')
) STRICT;

INSERT INTO credentials_3 (
       seq, id, tenant, provider_seq, subscription_seq, kind, version, state, sealed, master_key_id, created_at,
       valid_until)
SELECT seq, id, tenant, provider_seq, subscription_seq, kind, version, state, sealed, master_key_id, created_at,
       valid_until
  FROM credentials;
DROP TABLE credentials;
ALTER TABLE credentials_3 RENAME TO credentials;

CREATE UNIQUE INDEX credentials_of_provider ON credentials (provider_seq, version)
  WHERE provider_seq IS NOT NULL;
CREATE UNIQUE INDEX credentials_of_subscription ON credentials (subscription_seq, version)
  WHERE subscription_seq IS NOT NULL;
CREATE INDEX credentials_in_rotation ON credentials (state, seq)
  WHERE state = 'next' OR state = 'retiring' OR rotate_every_ms IS NOT NULL;
CREATE UNIQUE INDEX credentials_one_active ON credentials (subscription_seq,
  CASE kind WHEN 'client_certificate' THEN 'handshake' WHEN 'signing' THEN 'sign' WHEN 'signing_ed25519' THEN 'sign'
    ELSE 'log_on' END)
  WHERE state = 'active' AND subscription_seq IS NOT NULL;

CREATE TABLE event_types (
  seq         INTEGER PRIMARY KEY AUTOINCREMENT,
  tenant      TEXT NOT NULL,
  name        TEXT NOT NULL,
  description TEXT NOT NULL DEFAULT '',
  schema      TEXT NOT NULL,
  example     TEXT,
  on_invalid  TEXT NOT NULL DEFAULT 'reject',
  created_at  INTEGER NOT NULL,
  updated_at  INTEGER NOT NULL,
  CONSTRAINT event_type_name_is_1_to_128 CHECK (length(name) BETWEEN 1 AND 128),
  CONSTRAINT event_type_schema_is_json CHECK (json_valid(schema)),
  CONSTRAINT event_type_example_is_json CHECK (example IS NULL OR json_valid(example)),
  CONSTRAINT event_type_on_invalid_is_known CHECK (on_invalid IN ('reject', 'quarantine'))
) STRICT;

CREATE UNIQUE INDEX event_types_name ON event_types (tenant, name);
CREATE INDEX event_types_listed ON event_types (tenant, seq);

CREATE TABLE alert_channels (
  seq              INTEGER PRIMARY KEY AUTOINCREMENT,
  id               TEXT NOT NULL UNIQUE,
  tenant           TEXT NOT NULL,
  name             TEXT NOT NULL,
  kind             TEXT NOT NULL,
  subscription_seq INTEGER NOT NULL UNIQUE REFERENCES subscriptions (seq),
  terms            TEXT NOT NULL,
  sealed           BLOB,
  master_key_id    TEXT,
  counted_from     INTEGER NOT NULL DEFAULT 0,
  message_count    INTEGER NOT NULL DEFAULT 0,
  created_at       INTEGER NOT NULL,
  updated_at       INTEGER NOT NULL,
  deleted_at       INTEGER,
  CONSTRAINT alert_channel_name_is_1_to_57_of_a_z_0_9_dash
    CHECK (length(name) BETWEEN 1 AND 57 AND name NOT GLOB '*[^a-z0-9-]*'),
  CONSTRAINT alert_channel_kind_is_known CHECK (kind IN ('slack', 'webhook', 'email', 'command')),
  CONSTRAINT alert_channel_terms_is_json CHECK (json_valid(terms)),
  CONSTRAINT alert_channel_url_is_sealed
    CHECK ((sealed IS NOT NULL) = (kind IN ('slack', 'webhook')) AND (sealed IS NULL) = (master_key_id IS NULL))
) STRICT;

CREATE UNIQUE INDEX alert_channels_name ON alert_channels (tenant, name) WHERE deleted_at IS NULL;

CREATE TABLE alerts (
  channel_seq    INTEGER NOT NULL REFERENCES alert_channels (seq),
  escalation_seq INTEGER NOT NULL REFERENCES escalations (seq),
  told           TEXT NOT NULL,
  told_at        INTEGER NOT NULL,
  PRIMARY KEY (channel_seq, escalation_seq),
  CONSTRAINT alert_told_is_raised_or_repeated CHECK (told IN ('raised', 'repeated'))
) STRICT, WITHOUT ROWID;
