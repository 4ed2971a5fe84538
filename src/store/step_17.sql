-- From version 16 to 17: sources may be tables of other databases and lists of providers, and targets may be folders and databases. SQLite changes a CHECK only
-- with its table.

CREATE TABLE subscriptions_17 (
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
  order_terms TEXT NOT NULL DEFAULT '{}'
    CONSTRAINT subscription_order_terms_is_json CHECK (json_valid(order_terms)),
  site_host TEXT,
  auth_try_day   INTEGER NOT NULL DEFAULT 0,
  auth_try_count INTEGER NOT NULL DEFAULT 0,
  auth_try_max   INTEGER NOT NULL DEFAULT 0,
  CONSTRAINT subscription_name_is_1_to_63_of_a_z_0_9_dash
    CHECK (length(name) BETWEEN 1 AND 63 AND name NOT GLOB '*[^a-z0-9-]*'),
  CONSTRAINT subscription_event_types_is_json CHECK (json_valid(event_types)),
  CONSTRAINT subscription_headers_is_json CHECK (json_valid(headers)),
  CONSTRAINT subscription_policy_is_json CHECK (json_valid(policy)),
  CONSTRAINT subscription_target_kind_is_known CHECK (target_kind IN ('http', 'kafka', 'folder', 'database', 'pull', 'email', 'command')),
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

INSERT INTO subscriptions_17 (
       seq, id, tenant, name, owner_id, source, event_types, target_kind, url, method, headers, policy,
       ordering, state, failure_count, failing_since, last_success_at, last_failure_at, created_at,
       updated_at, deleted_at, streak_class, streak_count, format, event_headers, filter, template,
       order_terms, site_host, auth_try_day, auth_try_count, auth_try_max)
SELECT seq, id, tenant, name, owner_id, source, event_types, target_kind, url, method, headers, policy,
       ordering, state, failure_count, failing_since, last_success_at, last_failure_at, created_at,
       updated_at, deleted_at, streak_class, streak_count, format, event_headers, filter, template,
       order_terms, site_host, auth_try_day, auth_try_count, auth_try_max
  FROM subscriptions;
DROP TABLE subscriptions;
ALTER TABLE subscriptions_17 RENAME TO subscriptions;

CREATE UNIQUE INDEX subscriptions_name ON subscriptions (tenant, name) WHERE deleted_at IS NULL;

CREATE INDEX subscriptions_probed ON subscriptions (seq)
 WHERE json_extract(policy, '$.probe') IS NOT NULL AND deleted_at IS NULL;

CREATE TRIGGER subscriptions_updated_at
AFTER UPDATE OF name, owner_id, source, event_types, target_kind, url, method, headers, policy, ordering, state, format,
  event_headers, filter, template, order_terms ON subscriptions
WHEN NEW.updated_at = OLD.updated_at
BEGIN
  UPDATE subscriptions
     SET updated_at = CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)
   WHERE seq = NEW.seq;
END;

CREATE TABLE sources_17 (
  seq             INTEGER PRIMARY KEY AUTOINCREMENT,
  id              TEXT NOT NULL UNIQUE,
  tenant          TEXT NOT NULL DEFAULT 'default',
  name            TEXT NOT NULL,
  kind            TEXT NOT NULL,
  settings        TEXT NOT NULL,
  state           TEXT NOT NULL DEFAULT 'ACTIVE',
  cursor          INTEGER NOT NULL DEFAULT 0,
  identity        TEXT,
  event_count     INTEGER NOT NULL DEFAULT 0,
  last_event_at   INTEGER,
  last_read_at    INTEGER,
  last_error      TEXT,
  failing_since   INTEGER,
  silent_after_ms INTEGER,
  created_at      INTEGER NOT NULL,
  updated_at      INTEGER NOT NULL,
  deleted_at      INTEGER,
  CONSTRAINT source_name_is_1_to_63_of_a_z_0_9_dash
    CHECK (length(name) BETWEEN 1 AND 63 AND name NOT GLOB '*[^a-z0-9-]*'),
  CONSTRAINT source_kind_is_known CHECK (kind IN ('sqlite', 'drop', 'database', 'http')),
  CONSTRAINT source_settings_is_json CHECK (json_valid(settings)),
  CONSTRAINT source_state_is_known CHECK (state IN ('ACTIVE', 'PAUSED')),
  CONSTRAINT source_fails_with_an_error CHECK ((last_error IS NULL) = (failing_since IS NULL))
) STRICT;

INSERT INTO sources_17 (
       seq, id, tenant, name, kind, settings, state, cursor, identity, event_count, last_event_at, last_read_at,
       last_error, failing_since, silent_after_ms, created_at, updated_at, deleted_at)
SELECT seq, id, tenant, name, kind, settings, state, cursor, identity, event_count, last_event_at, last_read_at,
       last_error, failing_since, silent_after_ms, created_at, updated_at, deleted_at
  FROM sources;

DROP TABLE sources;
ALTER TABLE sources_17 RENAME TO sources;

CREATE UNIQUE INDEX sources_name ON sources (tenant, name) WHERE deleted_at IS NULL;

CREATE TABLE credentials_17 (
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
  unseen INTEGER NOT NULL DEFAULT 0
    CONSTRAINT credential_unseen_is_0_or_1 CHECK (unseen = 0 OR unseen = 1),
  source_seq INTEGER REFERENCES sources (seq),
  CONSTRAINT credential_has_one_owner
    CHECK ((provider_seq IS NOT NULL) + (subscription_seq IS NOT NULL) + (source_seq IS NOT NULL) = 1),
  CONSTRAINT credential_kind_is_known CHECK (kind IN ('signing', 'signing_ed25519', 'bearer', 'basic', 'api_key',
    'oauth2', 'client_certificate')),
  CONSTRAINT credential_state_is_known CHECK (state IN ('next', 'active', 'retiring', 'revoked')),
  CONSTRAINT credential_settings_is_json CHECK (json_valid(settings)),
  CONSTRAINT credential_verify_goes_with_next CHECK (verify_at IS NULL OR state = 'next')
) STRICT;

INSERT INTO credentials_17 (
       seq, id, tenant, provider_seq, subscription_seq, kind, version, state, settings, sealed, master_key_id, created_at,
       valid_until, last_used_at, verify_at, verify_until, verify_error, rotate_every_ms, rotate_command, unseen)
SELECT seq, id, tenant, provider_seq, subscription_seq, kind, version, state, settings, sealed, master_key_id, created_at,
       valid_until, last_used_at, verify_at, verify_until, verify_error, rotate_every_ms, rotate_command, unseen
  FROM credentials;

DROP TABLE credentials;
ALTER TABLE credentials_17 RENAME TO credentials;

CREATE UNIQUE INDEX credentials_of_provider ON credentials (provider_seq, version)
  WHERE provider_seq IS NOT NULL;
CREATE UNIQUE INDEX credentials_of_subscription ON credentials (subscription_seq, version)
  WHERE subscription_seq IS NOT NULL;
CREATE UNIQUE INDEX credentials_of_source ON credentials (source_seq, version)
  WHERE source_seq IS NOT NULL;
CREATE INDEX credentials_in_rotation ON credentials (state, seq)
  WHERE state = 'next' OR state = 'retiring' OR rotate_every_ms IS NOT NULL;
CREATE UNIQUE INDEX credentials_one_active ON credentials (subscription_seq,
  CASE kind WHEN 'client_certificate' THEN 'handshake' WHEN 'signing' THEN 'sign' WHEN 'signing_ed25519' THEN 'sign'
    ELSE 'log_on' END)
  WHERE state = 'active' AND subscription_seq IS NOT NULL;

ALTER TABLE tenants ADD COLUMN event_mail_count INTEGER NOT NULL DEFAULT 0;

ALTER TABLE webhook_events ADD COLUMN origin TEXT NOT NULL DEFAULT 'webhook'
  CONSTRAINT webhook_event_origin_is_known CHECK (origin IN ('webhook', 'listed', 'reconciled'));

ALTER TABLE seen_keys ADD COLUMN unsent INTEGER;

ALTER TABLE providers ADD COLUMN reconcile TEXT NOT NULL DEFAULT '{}'
  CONSTRAINT provider_reconcile_is_json CHECK (json_valid(reconcile));

-- The latest attempts of a subscription. Written once a minute for those that had one.
CREATE TABLE recent_attempts (
  subscription_seq INTEGER PRIMARY KEY,
  -- When the latest one ended.
  latest_at        INTEGER NOT NULL,
  -- At most 50 arrays, the newest first: delivery, end, class, HTTP status, milliseconds.
  attempts         TEXT NOT NULL,
  CONSTRAINT recent_attempts_are_json CHECK (json_valid(attempts))
) STRICT;

-- Comparisons of a provider's list with the webhooks that came.
CREATE TABLE reconciliations (
  seq          INTEGER PRIMARY KEY AUTOINCREMENT,
  id           TEXT NOT NULL UNIQUE,
  tenant       TEXT NOT NULL DEFAULT 'default',
  provider     TEXT NOT NULL,
  -- The source that reads the list.
  source_seq   INTEGER NOT NULL REFERENCES sources (seq),
  -- 1: nothing is taken in.
  is_dry       INTEGER NOT NULL DEFAULT 0,
  -- Items from this time on are compared, up to `until`.
  since        INTEGER NOT NULL,
  until        INTEGER NOT NULL,
  -- Webhook events with higher numbers came after it had begun.
  last_before  INTEGER NOT NULL DEFAULT 0,
  -- Who asked for it; NULL: it was due.
  requested_by TEXT,
  state        TEXT NOT NULL DEFAULT 'RUNNING',
  -- JSON: the numbers of each day.
  days         TEXT NOT NULL DEFAULT '[]',
  error        TEXT,
  began_at     INTEGER NOT NULL,
  ended_at     INTEGER,
  CONSTRAINT reconciliation_is_dry_is_0_or_1 CHECK (is_dry = 0 OR is_dry = 1),
  CONSTRAINT reconciliation_state_is_known CHECK (state IN ('RUNNING', 'DONE', 'FAILED')),
  CONSTRAINT reconciliation_days_is_json CHECK (json_valid(days)),
  CONSTRAINT reconciliation_fails_with_an_error CHECK ((state = 'FAILED') = (error IS NOT NULL)),
  CONSTRAINT reconciliation_ends_with_a_time CHECK ((state = 'RUNNING') = (ended_at IS NULL))
) STRICT;

CREATE INDEX reconciliations_listed ON reconciliations (tenant, provider, seq);
CREATE INDEX reconciliations_of_source ON reconciliations (source_seq, began_at);
-- A source has one run at a time.
CREATE UNIQUE INDEX reconciliations_running ON reconciliations (source_seq) WHERE state = 'RUNNING';
