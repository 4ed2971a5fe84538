-- Every table of the one file in which Oncebox keeps its data. Read this second, after ARCHITECTURE.md.
--
-- Conventions
--   *_at      INTEGER, milliseconds since 1970-01-01T00:00:00Z
--   *_ms      INTEGER, a duration in milliseconds
--   seq       the row's number in this file; never reused (AUTOINCREMENT), so that cursors stay valid
--   id        UUIDv7, by which the API names the row
--   tenant    the tenant that owns the row; 'default' if tenants are not used
-- Every table is STRICT. Every CHECK has a name that states the rule. SQLite 3.37 or newer can read this
-- file. An ERP may keep its own tables in the same file under other names.
-- In tables with many writes, CHECKs and partial indexes use a chain of OR comparisons, frequent words first,
-- instead of IN. For an IN of three or more words SQLite builds a b-tree per row, which doubled the cost of an event.

-- Facts about this file: 'epoch' (raised by a restore), 'master_key_id', 'token_pepper' (the sealed key under
-- which tokens are hashed), 'audit_key' (the sealed key that signs exports of audit events), and others. 'audit_head' is
-- the last audit event as number:hash; 'audit_start' is the one before the first. 'clock_known' is the time that the service believed last;
-- 'clock_shown' and 'clock_agrees_since' exist while the clock is suspect. 'in_hand/…' marks work that is in progress after an unclean end.
CREATE TABLE meta (
  key   TEXT NOT NULL PRIMARY KEY,
  value ANY NOT NULL
) STRICT, WITHOUT ROWID;

-- Periodic duties: when each is due next, and when it was last done. One without a row is due.
CREATE TABLE chores (
  name    TEXT NOT NULL PRIMARY KEY,
  due_at  INTEGER NOT NULL,
  done_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What happened in each minute of the last hour: a tenant's arrivals and deliveries.
CREATE TABLE recent_minutes (
  minute INTEGER NOT NULL,
  tenant TEXT NOT NULL,
  counts TEXT NOT NULL,
  PRIMARY KEY (minute, tenant),
  CONSTRAINT recent_counts_are_json CHECK (json_valid(counts))
) STRICT, WITHOUT ROWID;

-- The latest attempts of a subscription. Written once a minute for those that had one.
CREATE TABLE recent_attempts (
  subscription_seq INTEGER PRIMARY KEY,
  -- When the latest one ended.
  latest_at        INTEGER NOT NULL,
  -- At most 50 arrays, the newest first: delivery, end, class, HTTP status, milliseconds.
  attempts         TEXT NOT NULL,
  CONSTRAINT recent_attempts_are_json CHECK (json_valid(attempts))
) STRICT;

-- What happened to a subscription or a provider in each hour of the last 90 days.
CREATE TABLE history (
  -- Days since 1970 (UTC).
  day    INTEGER NOT NULL,
  kind   TEXT NOT NULL,
  -- The number of the subscription or the provider.
  of_seq INTEGER NOT NULL,
  -- The hours that had something: attempts or requests, failures, and how long they took (docs/data.md).
  hours  BLOB NOT NULL,
  PRIMARY KEY (day, kind, of_seq),
  CONSTRAINT history_is_of_a_subscription_or_a_provider CHECK (kind IN ('subscription', 'provider'))
) STRICT, WITHOUT ROWID;

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

-- One row per start of the service. stopped_at stays NULL when the process was killed.
CREATE TABLE boots (
  seq        INTEGER PRIMARY KEY AUTOINCREMENT,
  started_at INTEGER NOT NULL,
  version    TEXT NOT NULL,
  stopped_at INTEGER,
  -- Until when the counts of recent_minutes and history are complete. NULL: they never were.
  seen_at INTEGER
) STRICT;

-- Bodies over 16 KiB. They have their own table so that a change of status does not rewrite them.
CREATE TABLE payloads (
  seq  INTEGER PRIMARY KEY AUTOINCREMENT,
  body BLOB NOT NULL
) STRICT;

-- External systems that post webhooks to us.
CREATE TABLE providers (
  seq             INTEGER PRIMARY KEY AUTOINCREMENT,
  id              TEXT NOT NULL UNIQUE,
  tenant          TEXT NOT NULL DEFAULT 'default',
  name            TEXT NOT NULL,
  -- JSON: how requests are signed, and where the event's id and type are found.
  scheme          TEXT NOT NULL,
  -- The privacy policy for received events: 'allow', or JSON with rules (docs/privacy.md).
  pii             TEXT NOT NULL,
  -- The exact URL the provider posts to, if its signature covers the URL.
  public_url      TEXT,
  body_bytes_max  INTEGER NOT NULL,
  tolerance_ms    INTEGER NOT NULL,
  -- If the signature does not cover the id, equal signed bytes within this time count once; 0: off.
  replay_window_ms INTEGER NOT NULL DEFAULT 86400000,
  created_at      INTEGER NOT NULL,
  updated_at      INTEGER NOT NULL,
  deleted_at      INTEGER,
  -- JSON: where its webhook events have the key by which lanes are made; NULL: they have none.
  ordering_key TEXT
    CONSTRAINT provider_ordering_key_is_json CHECK (ordering_key IS NULL OR json_valid(ordering_key)),
  -- JSON: when its list is compared with the webhooks that came.
  reconcile TEXT NOT NULL DEFAULT '{}'
    CONSTRAINT provider_reconcile_is_json CHECK (json_valid(reconcile)),
  CONSTRAINT provider_name_is_1_to_63_of_a_z_0_9_dash
    CHECK (length(name) BETWEEN 1 AND 63 AND name NOT GLOB '*[^a-z0-9-]*'),
  CONSTRAINT provider_scheme_is_json CHECK (json_valid(scheme)),
  CONSTRAINT provider_pii_is_allow_or_json CHECK (pii = 'allow' OR json_valid(pii))
) STRICT;

CREATE UNIQUE INDEX providers_name ON providers (tenant, name) WHERE deleted_at IS NULL;

-- Which events are delivered, where, and how.
CREATE TABLE subscriptions (
  seq             INTEGER PRIMARY KEY AUTOINCREMENT,
  id              TEXT NOT NULL UNIQUE,
  tenant          TEXT NOT NULL DEFAULT 'default',
  name            TEXT NOT NULL,
  owner_id        TEXT NOT NULL DEFAULT '',
  -- 'outbox', 'all', or 'provider:<name>'.
  source          TEXT NOT NULL DEFAULT 'outbox',
  -- JSON array of event-type patterns.
  event_types     TEXT NOT NULL,
  -- 'http': we send to `url`. 'kafka': we write to the topic of `url`. 'folder': we write a file into the folder of `url`,
  -- folder: with its path. 'pull': consumers ask for what is due, and `url` is ''. 'email': `url` is mailto: with the
  -- addresses. 'command' is of alert channels: `url` is command: with the name of a command in the settings.
  target_kind     TEXT NOT NULL DEFAULT 'http',
  url             TEXT NOT NULL,
  method          TEXT NOT NULL DEFAULT 'POST',
  -- JSON object of additional header fields.
  headers         TEXT NOT NULL DEFAULT '{}',
  -- JSON: steps, max_attempts, timeout, in_flight_max, lease; absent keys use the configured defaults.
  policy          TEXT NOT NULL DEFAULT '{}',
  ordering        TEXT NOT NULL DEFAULT 'none',
  state           TEXT NOT NULL DEFAULT 'ACTIVE',
  -- Failed attempts since the last success, and since when. The writer updates both once per commit.
  failure_count   INTEGER NOT NULL DEFAULT 0,
  failing_since   INTEGER,
  last_success_at INTEGER,
  last_failure_at INTEGER,
  created_at      INTEGER NOT NULL,
  updated_at      INTEGER NOT NULL,
  deleted_at      INTEGER,
  -- The class of the latest failed attempts, and how many in a row had it.
  streak_class    TEXT,
  streak_count    INTEGER NOT NULL DEFAULT 0,
  -- How the body is written.
  format          TEXT NOT NULL DEFAULT 'raw',
  -- JSON array: names of header fields of events that are sent.
  event_headers   TEXT NOT NULL DEFAULT '[]',
  -- JSON array of conditions on the payload; NULL: none.
  filter          TEXT,
  -- JSON object: the templates of the body and of header fields; NULL: the payload is sent as it is.
  template        TEXT,
  -- JSON: what its order is beyond `ordering`; absent keys are the defaults.
  order_terms TEXT NOT NULL DEFAULT '{}'
    CONSTRAINT subscription_order_terms_is_json CHECK (json_valid(order_terms)),
  -- The host in `url`, if it had an address on a network of this machine when it was last looked up.
  site_host TEXT,
  -- How often a command that makes credentials has run on a day (days since 1970) because the target refused one, and
  -- how often it might.
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

CREATE UNIQUE INDEX subscriptions_name ON subscriptions (tenant, name) WHERE deleted_at IS NULL;

-- Those whose target is probed while it is idle.
CREATE INDEX subscriptions_probed ON subscriptions (seq)
 WHERE json_extract(policy, '$.probe') IS NOT NULL AND deleted_at IS NULL;

-- Updates updated_at for changes made by plain SQL; Oncebox's own statements set it themselves.
CREATE TRIGGER subscriptions_updated_at
AFTER UPDATE OF name, owner_id, source, event_types, target_kind, url, method, headers, policy, ordering, state, format,
  event_headers, filter, template, order_terms ON subscriptions
WHEN NEW.updated_at = OLD.updated_at
BEGIN
  UPDATE subscriptions
     SET updated_at = CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)
   WHERE seq = NEW.seq;
END;

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

-- Why a subscription must not be called for now. A subscription without a row here may be called. `offline` applies
-- to the whole site and is one row with subscription_seq 0.
CREATE TABLE holds (
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

-- Holds that have ended, for the question why a delivery was late. A suspended tenant makes a row for each subscription.
CREATE TABLE past_holds (
  seq              INTEGER PRIMARY KEY AUTOINCREMENT,
  -- 0: the whole site.
  subscription_seq INTEGER NOT NULL,
  reason           TEXT NOT NULL,
  since            INTEGER NOT NULL,
  ended_at         INTEGER NOT NULL,
  -- Who paused it, or what the target answered last: the first 200 characters.
  detail           TEXT NOT NULL,
  CONSTRAINT past_hold_reason_is_known CHECK (reason IN
    ('paused', 'disabled', 'suspended', 'rejecting', 'rate_limit', 'breaker', 'auth', 'offline')),
  CONSTRAINT past_hold_has_ended CHECK (ended_at >= since)
) STRICT;

CREATE INDEX past_holds_of ON past_holds (subscription_seq, reason);

-- Secrets and what else opens a door, each version a row. `sealed` is AES-256-GCM under a data key of its own, which is
-- wrapped by the master key. That one is not in this file. A subscription has one in force to sign with, at most one to log on with (bearer, basic, api_key,
-- oauth2), and at most one client certificate. A source has at most one of the latter two each.
CREATE TABLE credentials (
  seq              INTEGER PRIMARY KEY AUTOINCREMENT,
  id               TEXT NOT NULL UNIQUE,
  tenant           TEXT NOT NULL DEFAULT 'default',
  provider_seq     INTEGER REFERENCES providers (seq),
  subscription_seq INTEGER REFERENCES subscriptions (seq),
  kind             TEXT NOT NULL,
  -- Its number among its owner's, of all kinds.
  version          INTEGER NOT NULL,
  state            TEXT NOT NULL,
  -- JSON: what of it is no secret, such as the header's name, the user or the token's address.
  settings         TEXT NOT NULL DEFAULT '{}',
  sealed           BLOB NOT NULL,
  master_key_id    TEXT NOT NULL,
  created_at       INTEGER NOT NULL,
  -- retiring: when it ends. client_certificate: when the certificate does.
  valid_until      INTEGER,
  last_used_at     INTEGER,
  -- next: when it is verified next, until when, and what the last verification came to.
  verify_at        INTEGER,
  verify_until     INTEGER,
  verify_error     TEXT,
  -- active: how often a new one takes its place, and the command of the settings that makes it.
  rotate_every_ms  INTEGER,
  rotate_command   TEXT,
  -- 1: made by the clock and shown to nobody yet. It is verified once a person has seen it.
  unseen INTEGER NOT NULL DEFAULT 0
    CONSTRAINT credential_unseen_is_0_or_1 CHECK (unseen = 0 OR unseen = 1),
  -- The source whose list is read with it.
  source_seq INTEGER REFERENCES sources (seq),
  CONSTRAINT credential_has_one_owner
    CHECK ((provider_seq IS NOT NULL) + (subscription_seq IS NOT NULL) + (source_seq IS NOT NULL) = 1),
  CONSTRAINT credential_kind_is_known CHECK (kind IN ('signing', 'signing_ed25519', 'bearer', 'basic', 'api_key',
    'oauth2', 'client_certificate')),
  CONSTRAINT credential_state_is_known CHECK (state IN ('next', 'active', 'retiring', 'revoked')),
  CONSTRAINT credential_settings_is_json CHECK (json_valid(settings)),
  CONSTRAINT credential_verify_goes_with_next CHECK (verify_at IS NULL OR state = 'next')
) STRICT;

CREATE UNIQUE INDEX credentials_of_provider ON credentials (provider_seq, version)
  WHERE provider_seq IS NOT NULL;
CREATE UNIQUE INDEX credentials_of_subscription ON credentials (subscription_seq, version)
  WHERE subscription_seq IS NOT NULL;
CREATE UNIQUE INDEX credentials_of_source ON credentials (source_seq, version)
  WHERE source_seq IS NOT NULL;
-- The few that upkeep has to look at.
CREATE INDEX credentials_in_rotation ON credentials (state, seq)
  WHERE state = 'next' OR state = 'retiring' OR rotate_every_ms IS NOT NULL;
-- One to sign with, one to log on with, one certificate.
CREATE UNIQUE INDEX credentials_one_active ON credentials (subscription_seq,
  CASE kind WHEN 'client_certificate' THEN 'handshake' WHEN 'signing' THEN 'sign' WHEN 'signing_ed25519' THEN 'sign'
    ELSE 'log_on' END)
  WHERE state = 'active' AND subscription_seq IS NOT NULL;

-- Who may use the API. `hash` is an HMAC under a key that is sealed in meta: without that key nobody can insert
-- a row that works as a token.
CREATE TABLE tokens (
  seq             INTEGER PRIMARY KEY AUTOINCREMENT,
  id              TEXT NOT NULL UNIQUE,
  tenant          TEXT NOT NULL DEFAULT 'default',
  name            TEXT NOT NULL,
  role            TEXT NOT NULL,
  -- JSON arrays: the source systems and consumer groups that a publish token may use; '*' is any.
  source_systems  TEXT NOT NULL DEFAULT '[]',
  consumer_groups TEXT NOT NULL DEFAULT '[]',
  hash            BLOB NOT NULL UNIQUE,
  created_at      INTEGER NOT NULL,
  expires_at      INTEGER,
  last_used_at    INTEGER,
  revoked_at      INTEGER,
  CONSTRAINT token_role_is_known CHECK (role IN ('publish', 'read', 'operate', 'admin')),
  CONSTRAINT token_names_are_json CHECK (json_valid(source_systems) AND json_valid(consumer_groups))
) STRICT;

-- People who use the console.
CREATE TABLE users (
  seq           INTEGER PRIMARY KEY AUTOINCREMENT,
  id            TEXT NOT NULL UNIQUE,
  tenant        TEXT NOT NULL,
  name          TEXT NOT NULL,
  role          TEXT NOT NULL,
  -- argon2id in PHC form. NULL: the user logs in with one-time links only.
  password_hash TEXT,
  created_at    INTEGER NOT NULL,
  last_login_at INTEGER,
  disabled_at   INTEGER,
  deleted_at    INTEGER,
  CONSTRAINT user_name_is_1_to_63_of_a_z_0_9_dash
    CHECK (length(name) BETWEEN 1 AND 63 AND name NOT GLOB '*[^a-z0-9-]*'),
  CONSTRAINT user_role_is_known CHECK (role IN ('read', 'operate', 'admin')),
  CONSTRAINT user_deleted_has_no_password CHECK (deleted_at IS NULL OR password_hash IS NULL)
) STRICT;

CREATE UNIQUE INDEX users_name ON users (tenant, name) WHERE deleted_at IS NULL;
CREATE INDEX users_listed ON users (tenant, seq) WHERE deleted_at IS NULL;

-- Log-ins of users. A session ends when it is ended, at ends_at, or when it was not used for a while.
CREATE TABLE sessions (
  seq          INTEGER PRIMARY KEY AUTOINCREMENT,
  id           TEXT NOT NULL UNIQUE,
  user_seq     INTEGER NOT NULL REFERENCES users (seq),
  -- HMAC of the cookie's value, as in tokens.
  hash         BLOB NOT NULL UNIQUE,
  created_at   INTEGER NOT NULL,
  last_used_at INTEGER NOT NULL,
  ends_at      INTEGER NOT NULL,
  ended_at     INTEGER,
  address      TEXT NOT NULL,
  user_agent   TEXT
) STRICT;

CREATE INDEX sessions_of_user ON sessions (user_seq, seq);

-- One-time links with which a user logs in. The latest link of a user replaces the one before.
CREATE TABLE login_links (
  user_seq   INTEGER PRIMARY KEY REFERENCES users (seq),
  -- HMAC of the link's secret, as in tokens.
  hash       BLOB NOT NULL UNIQUE,
  expires_at INTEGER NOT NULL
) STRICT;

-- Events received from providers: one row per (tenant, provider, provider_event_id), ever.
CREATE TABLE webhook_events (
  seq                   INTEGER PRIMARY KEY AUTOINCREMENT,
  id                    TEXT NOT NULL UNIQUE,
  tenant                TEXT NOT NULL DEFAULT 'default',
  provider              TEXT NOT NULL,
  provider_event_id     TEXT NOT NULL,
  event_type            TEXT NOT NULL,
  received_at           INTEGER NOT NULL,
  -- As received, byte for byte. NULL if the body is in payloads.
  payload               BLOB,
  payload_seq           INTEGER REFERENCES payloads (seq),
  content_type          TEXT NOT NULL,
  -- JSON array of the stored header fields, each [name, value].
  headers               TEXT NOT NULL DEFAULT '[]',
  -- The credential that verified it.
  key_id                TEXT,
  trace_id              TEXT,
  batch_id              TEXT,
  item_no               INTEGER,
  duplicate_count       INTEGER NOT NULL DEFAULT 0,
  status                TEXT NOT NULL DEFAULT 'received',
  open_deliveries       INTEGER NOT NULL DEFAULT 0,
  processing_started_at INTEGER,
  completed_at          INTEGER,
  error_message         TEXT,
  retry_count           INTEGER NOT NULL DEFAULT 0,
  -- How many fields of the payload and the headers are sealed under their subject's key.
  sealed_fields         INTEGER NOT NULL DEFAULT 0,
  -- HMAC of the signed bytes and the type, under the provider's secret; NULL if the id is signed too.
  fingerprint           BLOB,
  -- The key of its lane, taken from where the provider's ordering_key says.
  ordering_key TEXT,
  -- As in outbox.
  expunged_at INTEGER,
  -- The name of the header field in which its provider names its type; NULL: there is none.
  type_field TEXT,
  -- Its id, by the name that reports of other platforms use.
  event_id TEXT GENERATED ALWAYS AS (id) VIRTUAL,
  -- How it came first: sent by its provider, read in the provider's list, or found missing by a comparison with that list.
  origin TEXT NOT NULL DEFAULT 'webhook'
    CONSTRAINT webhook_event_origin_is_known CHECK (origin IN ('webhook', 'listed', 'reconciled')),
  CONSTRAINT webhook_event_has_one_payload CHECK ((payload IS NULL) <> (payload_seq IS NULL)),
  CONSTRAINT webhook_event_id_is_1_to_500 CHECK (length(provider_event_id) BETWEEN 1 AND 500),
  CONSTRAINT webhook_event_type_is_1_to_128 CHECK (length(event_type) BETWEEN 1 AND 128),
  CONSTRAINT webhook_event_status_is_known
    CHECK (status = 'received' OR status = 'completed' OR status = 'skipped'
      OR status = 'processing' OR status = 'failed'),
  CONSTRAINT webhook_event_is_finished_with_a_time
    CHECK ((status = 'completed' OR status = 'skipped' OR status = 'failed')
      = (completed_at IS NOT NULL)),
  CONSTRAINT webhook_event_is_finished_with_nothing_open
    CHECK ((completed_at IS NULL) = (open_deliveries > 0))
) STRICT;

CREATE UNIQUE INDEX webhook_events_identity ON webhook_events (tenant, provider, provider_event_id);
-- A tenant's list, newest first. Rows are numbered in the order of arrival, so the index needs no time.
CREATE INDEX webhook_events_listed ON webhook_events (tenant);
-- Deleting a body looks for rows that refer to it.
CREATE INDEX webhook_events_payload ON webhook_events (payload_seq) WHERE payload_seq IS NOT NULL;
CREATE INDEX webhook_events_trace ON webhook_events (tenant, trace_id) WHERE trace_id IS NOT NULL;
CREATE INDEX webhook_events_fingerprint ON webhook_events (fingerprint) WHERE fingerprint IS NOT NULL;

-- The outbox: business events to deliver. Every column except event_type and payload is optional, so that an ERP
-- can insert rows in its own transaction (docs/plain-sql.md). The relay finds such a row within milliseconds and
-- routes it. A row that cannot be used is quarantined and does not delay others.
CREATE TABLE outbox (
  seq              INTEGER PRIMARY KEY AUTOINCREMENT,
  id               TEXT NOT NULL UNIQUE DEFAULT (printf('%08x-%04x-7%03x-%04x-%012x',
                     CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER) >> 16,
                     CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER) & 65535,
                     random() & 4095, 32768 | (random() & 16383), random() & 281474976710655)),
  tenant           TEXT NOT NULL DEFAULT 'default',
  source_system    TEXT NOT NULL DEFAULT 'sql',
  -- The event's id at its source. Rows with the same tenant, source_system and key are one event.
  idempotency_key  TEXT NOT NULL DEFAULT ('auto-' || lower(hex(randomblob(16)))),
  event_type       TEXT NOT NULL,
  aggregate_type   TEXT,
  aggregate_id     TEXT,
  -- The name of the only subscription that receives it; NULL: every subscription that matches.
  target           TEXT,
  -- As given, byte for byte. NULL if the body is in payloads.
  payload          ANY,
  payload_seq      INTEGER REFERENCES payloads (seq),
  content_type     TEXT NOT NULL DEFAULT 'application/json',
  headers          TEXT NOT NULL DEFAULT '{}',
  -- When it happened, by the source's clock; NULL if the source did not say.
  occurred_at      INTEGER,
  received_at      INTEGER NOT NULL
                     DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)),
  order_at         INTEGER GENERATED ALWAYS AS (coalesce(occurred_at, received_at)) VIRTUAL,
  not_before       INTEGER,
  ordering_key     TEXT,
  guaranteed_order INTEGER NOT NULL DEFAULT 0,
  exclude_failed   INTEGER NOT NULL DEFAULT 0,
  funnel_point     TEXT,
  funnel_value     TEXT,
  parent_seq       INTEGER REFERENCES outbox (seq),
  parent_binding   TEXT,
  process_id       TEXT,
  trace_id         TEXT,
  max_attempts     INTEGER,
  custom_data      TEXT,
  replay_of        TEXT,
  epoch            INTEGER NOT NULL DEFAULT 0,
  -- How often the event was published again, and how often with different content.
  duplicate_count  INTEGER NOT NULL DEFAULT 0,
  differing_count  INTEGER NOT NULL DEFAULT 0,
  status           TEXT NOT NULL DEFAULT 'pending',
  open_deliveries  INTEGER NOT NULL DEFAULT 0,
  error_code       TEXT,
  last_error       TEXT,
  completed_at     INTEGER,
  -- When it was routed or quarantined. NULL: not looked at yet.
  routed_at        INTEGER,
  -- How many fields of the payload and the headers are sealed under their subject's key.
  sealed_fields    INTEGER NOT NULL DEFAULT 0,
  -- 1: stored by Oncebox. 0: inserted by plain SQL, which must leave Oncebox's own columns at their defaults.
  own              INTEGER NOT NULL DEFAULT 0
                     CONSTRAINT event_own_is_0_or_1 CHECK (own = 0 OR own = 1)
                     CONSTRAINT event_seq_is_left_out CHECK (seq BETWEEN 1 AND 4611686018427387903),
  -- What its aggregate_id is an id of, if different event types change the same thing.
  entity_type TEXT
    CONSTRAINT event_entity_type_is_at_most_64 CHECK (length(entity_type) <= 64),
  -- How many events name it as their parent with the binding 'hard'.
  hard_children INTEGER NOT NULL DEFAULT 0,
  -- When its payload, what was sent of it and the answers were removed; payload is empty then.
  expunged_at INTEGER,
  CONSTRAINT event_has_one_payload CHECK ((payload IS NULL) <> (payload_seq IS NULL)),
  CONSTRAINT event_type_is_1_to_128 CHECK (length(event_type) BETWEEN 1 AND 128),
  CONSTRAINT event_idempotency_key_is_1_to_255 CHECK (length(idempotency_key) BETWEEN 1 AND 255),
  CONSTRAINT event_source_system_is_1_to_64 CHECK (length(source_system) BETWEEN 1 AND 64),
  CONSTRAINT event_aggregate_type_is_at_most_64 CHECK (length(aggregate_type) <= 64),
  CONSTRAINT event_aggregate_id_is_at_most_255 CHECK (length(aggregate_id) <= 255),
  CONSTRAINT event_parent_binding_is_hard_or_soft CHECK (parent_binding IN ('hard', 'soft')),
  CONSTRAINT event_max_attempts_is_1_to_1000 CHECK (max_attempts BETWEEN 1 AND 1000),
  CONSTRAINT event_status_is_known CHECK (status = 'pending' OR status = 'completed'
    OR status = 'skipped' OR status = 'processing' OR status = 'failed' OR status = 'dead_letter'
    OR status = 'cancelled' OR status = 'quarantined'),
  CONSTRAINT event_is_pending_until_routed CHECK (routed_at IS NOT NULL OR status = 'pending'),
  CONSTRAINT event_is_finished_with_a_time CHECK (
    (status = 'completed' OR status = 'skipped' OR status = 'dead_letter' OR status = 'cancelled')
      = (completed_at IS NOT NULL)),
  CONSTRAINT event_is_finished_with_nothing_open CHECK (completed_at IS NULL OR open_deliveries = 0)
) STRICT;

CREATE UNIQUE INDEX outbox_identity ON outbox (tenant, source_system, idempotency_key);
CREATE INDEX outbox_unrouted ON outbox (seq) WHERE routed_at IS NULL;
-- Lists, newest first. Most events belong to the tenant `default`, whose list scans the table without this index.
CREATE INDEX outbox_listed ON outbox (tenant) WHERE tenant <> 'default';
CREATE INDEX outbox_quarantined ON outbox (seq) WHERE status = 'quarantined';
CREATE INDEX outbox_aggregate ON outbox (tenant, aggregate_id) WHERE aggregate_id IS NOT NULL;
CREATE INDEX outbox_children ON outbox (parent_seq) WHERE parent_seq IS NOT NULL;
-- The status of a parent is derived by seeks for its hard children of one status.
CREATE INDEX outbox_hard_children ON outbox (parent_seq, status)
  WHERE parent_binding = 'hard' AND routed_at IS NOT NULL;
-- Deleting a body looks for rows that refer to it.
CREATE INDEX outbox_payload ON outbox (payload_seq) WHERE payload_seq IS NOT NULL;
CREATE INDEX outbox_trace ON outbox (tenant, trace_id) WHERE trace_id IS NOT NULL;
CREATE INDEX outbox_process ON outbox (tenant, process_id) WHERE process_id IS NOT NULL;

-- Oncebox's own statements set own = 1 and no seq, which is below 1 in a BEFORE trigger: they pass after two
-- comparisons. AUTOINCREMENT continues from the highest seq ever used. Rows by plain SQL may therefore be at most
-- 2^32 ahead of it, so that nobody can use up the numbers.
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

-- One event (or webhook event) for one subscription: the unit of work. A replay reopens the row
-- (run_no + 1); there is never a second row for one event and one subscription.
CREATE TABLE deliveries (
  seq              INTEGER PRIMARY KEY AUTOINCREMENT,
  outbox_seq       INTEGER REFERENCES outbox (seq),
  webhook_seq      INTEGER REFERENCES webhook_events (seq),
  subscription_seq INTEGER NOT NULL REFERENCES subscriptions (seq),
  tenant           TEXT NOT NULL,
  -- Deliveries in one lane are sent one after another; NULL: no order is required.
  lane             INTEGER,
  order_at         INTEGER NOT NULL,
  -- 1: may be sent when due; 0: waits behind the head of its lane. A dead letter with 1 blocks its lane.
  head             INTEGER NOT NULL DEFAULT 1,
  state            TEXT NOT NULL DEFAULT 'pending',
  due_at           INTEGER,
  -- The wait that led to due_at, lease_until or confirm_until, so that a time set by a wrong clock can be recognised.
  delay_ms         INTEGER NOT NULL DEFAULT 0,
  attempt_count    INTEGER NOT NULL DEFAULT 0,
  -- Failed attempts of this run that count towards giving up.
  counted_failures INTEGER NOT NULL DEFAULT 0,
  last_class       TEXT,
  lease_until      INTEGER,
  -- The lease of the consumer that took the delivery. It stays after expiry, so that a late report is accepted
  -- until another consumer takes the delivery or it is handed back.
  lease_owner      TEXT,
  epoch            INTEGER NOT NULL DEFAULT 0,
  run_no           INTEGER NOT NULL DEFAULT 1,
  finished_at      INTEGER,
  -- Why it is in a final state other than completed.
  reason           TEXT,
  -- When the row was made.
  created_at       INTEGER NOT NULL
                     DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)),
  -- Of deliveries with the same number, of any subscription, one is in flight at a time; NULL: no such limit.
  funnel INTEGER,
  -- Deliveries of a subscription about the same thing have the same number; NULL: it does not ask.
  entity INTEGER,
  -- 1: it arrived after deliveries that come behind it in its lane.
  late INTEGER NOT NULL DEFAULT 0
    CONSTRAINT delivery_late_is_0_or_1 CHECK (late = 0 OR late = 1),
  -- What the receiver's latest answer wants to get back with the next attempt; NULL: the event's custom_data.
  custom_data TEXT,
  -- waiting: when the target's time to confirm ends.
  confirm_until INTEGER
    CONSTRAINT delivery_confirm_until_goes_with_waiting CHECK ((state = 'waiting') = (confirm_until IS NOT NULL)),
  -- Which death in this file made it a dead letter. A job takes those that died before it was made.
  died_no INTEGER,
  -- 1: an attempt has fixed what is sent: the row in renderings, else the payload.
  rendered INTEGER NOT NULL DEFAULT 0
    CONSTRAINT delivery_rendered_is_0_or_1 CHECK (rendered = 0 OR rendered = 1),
  CONSTRAINT delivery_is_of_one_event CHECK ((outbox_seq IS NULL) <> (webhook_seq IS NULL)),
  CONSTRAINT delivery_state_is_known CHECK (state = 'pending' OR state = 'completed'
    OR state = 'dead_letter' OR state = 'leased' OR state = 'waiting' OR state = 'parked'
    OR state = 'in_doubt' OR state = 'skipped' OR state = 'cancelled'),
  CONSTRAINT delivery_is_due_while_pending CHECK ((state = 'pending') = (due_at IS NOT NULL)),
  CONSTRAINT delivery_is_finished_with_a_time CHECK (
    (state = 'completed' OR state = 'dead_letter' OR state = 'skipped' OR state = 'cancelled')
      = (finished_at IS NOT NULL)),
  CONSTRAINT delivery_lease_goes_with_leased CHECK ((state = 'leased') = (lease_until IS NOT NULL)),
  CONSTRAINT delivery_head_is_0_or_1 CHECK (head IN (0, 1)),
  CONSTRAINT delivery_has_no_more_failures_than_attempts
    CHECK (counted_failures BETWEEN 0 AND attempt_count)
) STRICT;

CREATE TRIGGER deliveries_count_deaths
AFTER UPDATE OF state ON deliveries
WHEN NEW.state = 'dead_letter' AND OLD.state <> 'dead_letter'
BEGIN
  INSERT INTO meta (key, value)
  SELECT 'deaths', 0 WHERE NOT EXISTS (SELECT 1 FROM meta WHERE key = 'deaths');
  UPDATE meta SET value = value + 1 WHERE key = 'deaths';
  UPDATE deliveries SET died_no = (SELECT value FROM meta WHERE key = 'deaths') WHERE seq = NEW.seq;
END;

-- The dispatcher's query for due deliveries of a subscription.
CREATE INDEX deliveries_due ON deliveries (subscription_seq, due_at, seq, lane, funnel)
  WHERE state = 'pending' AND head = 1;
CREATE UNIQUE INDEX deliveries_of_event ON deliveries (outbox_seq, subscription_seq)
  WHERE outbox_seq IS NOT NULL;
CREATE UNIQUE INDEX deliveries_of_webhook_event ON deliveries (webhook_seq, subscription_seq)
  WHERE webhook_seq IS NOT NULL;
-- Enforces one head per lane: the first unfinished delivery, or the one that a consumer has.
CREATE UNIQUE INDEX deliveries_lane_head ON deliveries (lane)
  WHERE lane IS NOT NULL AND head = 1 AND finished_at IS NULL;
CREATE INDEX deliveries_lane ON deliveries (lane, order_at, seq)
  WHERE lane IS NOT NULL AND finished_at IS NULL AND state <> 'parked';
-- Dead letters behind which their lanes wait.
CREATE INDEX deliveries_blocking ON deliveries (lane, order_at, seq)
  WHERE lane IS NOT NULL AND state = 'dead_letter' AND head = 1;
CREATE INDEX deliveries_funnel_taken ON deliveries (funnel) WHERE funnel IS NOT NULL AND state = 'waiting';
CREATE INDEX deliveries_entity ON deliveries (entity, order_at, seq)
  WHERE entity IS NOT NULL AND finished_at IS NULL;
CREATE INDEX deliveries_confirmations ON deliveries (confirm_until) WHERE state = 'waiting';
-- Deliveries that wait behind a head: their number, and those that have waited too long.
CREATE INDEX deliveries_behind ON deliveries (subscription_seq, due_at) WHERE state = 'pending' AND head = 0;
-- The few deliveries that may need attention; a delivery that succeeds at once costs nothing here.
CREATE INDEX deliveries_attention ON deliveries (state, tenant, seq)
  WHERE state = 'dead_letter' OR state = 'parked' OR state = 'in_doubt' OR state = 'waiting'
     OR state = 'leased';
CREATE INDEX deliveries_attention_of ON deliveries (subscription_seq, state)
  WHERE state = 'dead_letter' OR state = 'parked' OR state = 'in_doubt' OR state = 'waiting'
     OR state = 'leased';
-- Deliveries that are sent again and not finished.
CREATE INDEX deliveries_again ON deliveries (subscription_seq) WHERE run_no > 1 AND finished_at IS NULL;

-- Leased deliveries, by the end of the lease.
CREATE INDEX deliveries_leases ON deliveries (lease_until) WHERE state = 'leased';

-- One attempt of a delivery. Written once, never changed.
CREATE TABLE attempts (
  delivery_seq  INTEGER NOT NULL REFERENCES deliveries (seq),
  n             INTEGER NOT NULL,
  started_at    INTEGER NOT NULL,
  finished_at   INTEGER NOT NULL,
  url           TEXT NOT NULL,
  class         TEXT NOT NULL,
  -- 1: counts towards the maximum number of attempts.
  counted       INTEGER NOT NULL,
  http_status   INTEGER,
  latency_ms    INTEGER NOT NULL,
  -- The first 2,048 characters of the answer.
  excerpt       TEXT,
  failed_reason TEXT,
  key_id        TEXT,
  -- The span id that went out in traceparent.
  span          TEXT,
  -- The method of the request; NULL: nothing was sent, or it was before schema 8. The SHA-256 of its body; NULL also if a
  -- sealed value was opened in it.
  method        TEXT,
  body_sha256   BLOB,
  -- Its header fields besides those of every request, as a JSON array of pairs, without secrets.
  fields        TEXT,
  -- 1: the request also had the header fields that name the event, such as oncebox-event-type.
  named INTEGER NOT NULL DEFAULT 0
    CONSTRAINT attempt_named_is_0_or_1 CHECK (named = 0 OR named = 1),
  PRIMARY KEY (delivery_seq, n),
  CONSTRAINT attempt_class_is_known CHECK (class = 'success' OR class = 'transient'
    OR class = 'rate_limited' OR class = 'auth' OR class = 'validation' OR class = 'gone'
    OR class = 'poison'),
  CONSTRAINT attempt_counted_is_0_or_1 CHECK (counted IN (0, 1)),
  CONSTRAINT attempt_failed_with_a_reason CHECK ((class = 'success') = (failed_reason IS NULL))
) STRICT, WITHOUT ROWID;

-- What is sent of an event, where it is not the payload as it is. The first attempt fixes it, so that all attempts send
-- the same bytes.
CREATE TABLE renderings (
  delivery_seq INTEGER PRIMARY KEY REFERENCES deliveries (seq),
  format       TEXT NOT NULL,
  content_type TEXT NOT NULL,
  -- Header fields that were made, as a JSON array of pairs.
  fields       TEXT NOT NULL,
  -- The body that a template or a format made; NULL: the event's payload, before schema 16 in the format.
  body         BLOB,
  -- 1: fields and body are sealed under the key of the event's subject.
  sealed       INTEGER NOT NULL,
  CONSTRAINT rendering_sealed_is_0_or_1 CHECK (sealed IN (0, 1))
) STRICT;

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

-- The attempts as requests and responses, for reports by SQL. A number of one is the delivery's and the attempt's.
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

CREATE VIEW IF NOT EXISTS response AS
SELECT a.delivery_seq * 1048576 + a.n AS res_id,
       a.delivery_seq * 1048576 + a.n AS req_id,
       d.outbox_seq AS msg_id, d.webhook_seq,
       a.http_status, a.excerpt AS res_envelope, a.failed_reason, a.finished_at AS res_timestamp,
       a.class <> 'success' AS failed
  FROM attempts AS a
  JOIN deliveries AS d ON d.seq = a.delivery_seq;

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
  resolved_at  INTEGER,
  -- How many of them came while other deliveries of the subscription passed.
  alone        INTEGER NOT NULL DEFAULT 0
) STRICT;

-- At most one unresolved failure per delivery.
CREATE UNIQUE INDEX failures_open ON failures (delivery_seq) WHERE resolved_at IS NULL;
CREATE INDEX failures_of_delivery ON failures (delivery_seq);

-- Guards: a consumer group has already processed an event.
CREATE TABLE processed_events (
  tenant         TEXT NOT NULL DEFAULT 'default',
  consumer_group TEXT NOT NULL,
  event_id       TEXT NOT NULL,
  processed_at   INTEGER NOT NULL
                   DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)),
  PRIMARY KEY (tenant, consumer_group, event_id),
  CONSTRAINT guard_event_id_is_1_to_255 CHECK (length(event_id) BETWEEN 1 AND 255),
  CONSTRAINT guard_consumer_group_is_1_to_64 CHECK (length(consumer_group) BETWEEN 1 AND 64)
) STRICT, WITHOUT ROWID;

-- Answers to requests that carried an Idempotency-Key, for 24 hours.
CREATE TABLE idempotency_keys (
  tenant       TEXT NOT NULL,
  key          TEXT NOT NULL,
  -- SHA-256 over method, path, query and body.
  request_hash BLOB NOT NULL,
  -- NULL while the first request is still running.
  status       INTEGER,
  body         BLOB,
  created_at   INTEGER NOT NULL,
  expires_at   INTEGER NOT NULL,
  -- Of a change: the space that its sealed answer takes, at least 1,024, also while it is carried out; NULL: it is a publish.
  change_bytes INTEGER,
  PRIMARY KEY (tenant, key),
  CONSTRAINT idempotency_key_is_1_to_128 CHECK (length(key) BETWEEN 1 AND 128),
  CONSTRAINT idempotency_answer_is_whole CHECK ((status IS NULL) = (body IS NULL))
) STRICT, WITHOUT ROWID;

CREATE INDEX idempotency_keys_expiry ON idempotency_keys (expires_at);
-- What the answers to changes take is summed before each, for the tenant and for all.
CREATE INDEX idempotency_keys_of_changes ON idempotency_keys (tenant, change_bytes) WHERE change_bytes IS NOT NULL;

-- Effects outside this file, such as a command or a key file, that were claimed and are not finished. The row is
-- committed before the effect, with the Idempotency-Key of its request, and deleted by the transaction that stores what
-- came of it. A row that no thread works on was left by a killed process: it is resumed or ended (ARCHITECTURE.md).
CREATE TABLE claimed_effects (
  seq          INTEGER PRIMARY KEY AUTOINCREMENT,
  -- What is done, such as 'credential.rotate', and to what, such as the id of a credential.
  kind         TEXT NOT NULL,
  subject      TEXT NOT NULL,
  tenant       TEXT NOT NULL,
  -- JSON: what later steps need; never a secret.
  terms        TEXT NOT NULL,
  -- JSON: who asked for it, for the audit event of its end.
  asked_by     TEXT NOT NULL,
  -- The Idempotency-Key of its request and the hash of that request; NULL: it had none.
  request_key  TEXT,
  request_hash BLOB,
  -- Rows that it has changed so far.
  done         INTEGER NOT NULL DEFAULT 0,
  claimed_at   INTEGER NOT NULL,
  CONSTRAINT claimed_effect_kind_is_known CHECK (kind IN ('archive.delete', 'archive.run', 'backup.make',
    'credential.rotate', 'master_key.abandon', 'master_key.rotate', 'subject.erase', 'subscription.test')),
  CONSTRAINT claimed_effect_terms_is_json CHECK (json_valid(terms)),
  CONSTRAINT claimed_effect_asked_by_is_json CHECK (json_valid(asked_by)),
  CONSTRAINT claimed_effect_key_has_a_hash CHECK ((request_key IS NULL) = (request_hash IS NULL))
) STRICT;

CREATE UNIQUE INDEX claimed_effects_of ON claimed_effects (kind, subject);

-- Events that have left the database for the archive, so that one that is sent again is still known for a year.
CREATE TABLE seen_keys (
  -- The 16 bytes of its webhook-id, which stand for tenant, source and key.
  hash   BLOB PRIMARY KEY,
  -- Its id; the 16 bytes of a UUID, otherwise as text.
  id     ANY NOT NULL,
  -- How it ended; NULL: completed.
  status TEXT,
  -- The month in whose file it is, like 202611.
  month  INTEGER NOT NULL,
  -- 1: its provider never sent it, and it came by the provider's list; NULL: otherwise.
  unsent INTEGER
) STRICT, WITHOUT ROWID;

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

-- Tenants. The `tenant` of every other table is a name from here. While a tenant is suspended, its tokens and
-- new events are refused, and its deliveries wait.
CREATE TABLE tenants (
  seq          INTEGER PRIMARY KEY AUTOINCREMENT,
  name         TEXT NOT NULL UNIQUE,
  title        TEXT NOT NULL DEFAULT '',
  created_at   INTEGER NOT NULL,
  suspended_at INTEGER,
  -- The privacy policy for published events: 'allow', or JSON with rules (docs/privacy.md).
  pii          TEXT NOT NULL DEFAULT 'allow'
               CONSTRAINT tenant_pii_is_allow_or_json CHECK (pii = 'allow' OR json_valid(pii)),
  -- The last day (UTC, since 1970) on which e-mails were sent, and how many of alerts.
  mail_day     INTEGER NOT NULL DEFAULT 0,
  mail_count   INTEGER NOT NULL DEFAULT 0,
  -- 1: somebody has stated its policy. 0: it is the default.
  pii_stated   INTEGER NOT NULL DEFAULT 0,
  -- How many e-mails of events were sent on `mail_day`.
  event_mail_count INTEGER NOT NULL DEFAULT 0,
  CONSTRAINT tenant_name_is_1_to_63_of_a_z_0_9_dash
    CHECK (length(name) BETWEEN 1 AND 63 AND name NOT GLOB '*[^a-z0-9-]*')
) STRICT;

INSERT INTO tenants (name, title, created_at)
VALUES ('default', 'The tenant of everything where nobody asked for tenants',
        CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER));

-- Who changed what. Each row holds the hash of the row before it, so that a changed, deleted or inserted row is
-- noticed: hash = SHA-256 over previous_hash and the row's other columns (docs/data.md).
CREATE TABLE audit_events (
  seq            INTEGER PRIMARY KEY AUTOINCREMENT,
  at             INTEGER NOT NULL,
  tenant         TEXT NOT NULL,
  -- 'token', 'user' (of the console), 'cli' (offline, by a user of the machine who may open the file), 'system' or
  -- 'anonymous'.
  actor_type     TEXT NOT NULL,
  actor_id       TEXT NOT NULL DEFAULT '',
  actor_display  TEXT NOT NULL DEFAULT '',
  -- The client's address, from trusted proxies only.
  address        TEXT,
  user_agent     TEXT,
  -- What was done, such as 'subscription.pause'.
  action         TEXT NOT NULL,
  resource_type  TEXT NOT NULL,
  resource_id    TEXT,
  result         TEXT NOT NULL,
  request_id     TEXT,
  correlation_id TEXT,
  method         TEXT,
  path           TEXT,
  status         INTEGER,
  -- JSON object: field to {"before":…,"after":…}, changed fields only, never a secret. For a refused call:
  -- the problem, and how many such calls this row counts.
  changes        TEXT NOT NULL DEFAULT '{}',
  previous_hash  BLOB NOT NULL,
  hash           BLOB NOT NULL,
  CONSTRAINT audit_actor_type_is_known CHECK (actor_type IN ('token', 'user', 'cli', 'system', 'anonymous')),
  CONSTRAINT audit_result_is_known CHECK (result IN ('SUCCESS', 'FAILURE', 'DENIED')),
  CONSTRAINT audit_changes_is_json CHECK (json_valid(changes)),
  CONSTRAINT audit_hashes_are_sha_256 CHECK (length(previous_hash) = 32 AND length(hash) = 32)
) STRICT;

-- The order of the list: newest first.
CREATE INDEX audit_events_listed ON audit_events (tenant);
CREATE INDEX audit_events_correlation ON audit_events (correlation_id) WHERE correlation_id IS NOT NULL;
CREATE INDEX audit_events_resource ON audit_events (resource_id) WHERE resource_id IS NOT NULL;

CREATE TRIGGER audit_events_are_never_changed
BEFORE UPDATE ON audit_events
BEGIN
  SELECT RAISE(ABORT, 'an audit event is never changed');
END;

-- Rows up to 'audit_start' are in the files of their months.
CREATE TRIGGER audit_events_are_never_deleted
BEFORE DELETE ON audit_events
WHEN NOT EXISTS (SELECT 1 FROM meta WHERE key = 'audit_start' AND OLD.seq <= CAST(value AS INTEGER))
BEGIN
  SELECT RAISE(ABORT, 'an audit event is never deleted');
END;

-- Where events are read from, besides the API: an ERP's own SQLite file, or a drop folder.
CREATE TABLE sources (
  seq             INTEGER PRIMARY KEY AUTOINCREMENT,
  id              TEXT NOT NULL UNIQUE,
  tenant          TEXT NOT NULL DEFAULT 'default',
  -- Also the source_system of its events.
  name            TEXT NOT NULL,
  kind            TEXT NOT NULL,
  -- JSON: the path, the database or the address, and how it is read.
  settings        TEXT NOT NULL,
  state           TEXT NOT NULL DEFAULT 'ACTIVE',
  -- The last row that was copied; set in the transaction that copies it. For a list the time up to which it was read.
  cursor          INTEGER NOT NULL DEFAULT 0,
  -- JSON. Identifies the file or database as it was last read, so that a replaced or restored one is noticed; for a
  -- database also what a person asked for that is not done yet. For a list how far the present round has come.
  identity        TEXT,
  event_count     INTEGER NOT NULL DEFAULT 0,
  last_event_at   INTEGER,
  last_read_at    INTEGER,
  -- The current error, and since when it lasts; NULL: none.
  last_error      TEXT,
  failing_since   INTEGER,
  -- Raise an escalation after this long without an event; NULL: never.
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

CREATE UNIQUE INDEX sources_name ON sources (tenant, name) WHERE deleted_at IS NULL;

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

-- Files that were read from a drop folder. A known name with different content is refused.
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

-- Failures that a person must see. If one is already open, or ended within the last hour and nobody has acknowledged it, its
-- count is raised instead of adding a row.
CREATE TABLE escalations (
  seq             INTEGER PRIMARY KEY AUTOINCREMENT,
  id              TEXT NOT NULL UNIQUE,
  tenant          TEXT NOT NULL,
  -- What happened, such as 'source.silent', and the object concerned, such as 'source:erp'.
  class           TEXT NOT NULL,
  subject         TEXT NOT NULL,
  detail          TEXT NOT NULL,
  first_at        INTEGER NOT NULL,
  last_at         INTEGER NOT NULL,
  count           INTEGER NOT NULL DEFAULT 1,
  acknowledged_at INTEGER,
  acknowledged_by TEXT,
  resolved_at     INTEGER,
  -- When it was last raised again within an hour after its end; NULL: never.
  reopened_at     INTEGER,
  CONSTRAINT escalation_is_acknowledged_by_somebody
    CHECK ((acknowledged_at IS NULL) = (acknowledged_by IS NULL))
) STRICT;

CREATE UNIQUE INDEX escalations_open ON escalations (tenant, class, subject) WHERE resolved_at IS NULL;
CREATE INDEX escalations_listed ON escalations (tenant, seq);
-- The latest one of a cause may be reopened.
CREATE INDEX escalations_latest ON escalations (tenant, class, subject, seq);
CREATE INDEX escalations_open_listed ON escalations (tenant, seq) WHERE resolved_at IS NULL;

-- Data subjects, each with its own keys for sealing personal data. Erasing a subject destroys its keys, so that
-- its sealed data cannot be read any more. Backups taken before that still contain the keys (docs/privacy.md).
CREATE TABLE subjects (
  seq           INTEGER PRIMARY KEY AUTOINCREMENT,
  tenant        TEXT NOT NULL,
  -- HMAC-SHA-256 of the subject's name, under a key derived from a sealed secret in meta.
  subject       BLOB NOT NULL,
  -- The key's id, which is part of every value it seals.
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
-- A rotation of the master key looks for those under another one.
CREATE INDEX subjects_sealed_under ON subjects (master_key_id) WHERE master_key_id IS NOT NULL;
CREATE INDEX subjects_listed ON subjects (tenant, seq);
CREATE INDEX subjects_erased ON subjects (tenant, seq) WHERE erased_at IS NOT NULL;

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
  -- Since when a person keeps a running job from going on.
  paused_at    INTEGER,
  -- JSON: the numbers of the first 1,000 deliveries that it opened or ended.
  reached      TEXT CONSTRAINT job_reached_is_json CHECK (reached IS NULL OR json_valid(reached)),
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

CREATE INDEX jobs_running ON jobs (seq) WHERE state = 'running';
CREATE INDEX jobs_listed ON jobs (tenant, seq);

-- The dead letters of a lane in lane order: they are replayed lane by lane.
CREATE INDEX deliveries_dead_in_lane ON deliveries (lane, order_at, seq)
  WHERE lane IS NOT NULL AND state = 'dead_letter';

-- Event types that a tenant has registered. Events that do not fit the schema are rejected or quarantined.
CREATE TABLE event_types (
  seq         INTEGER PRIMARY KEY AUTOINCREMENT,
  tenant      TEXT NOT NULL,
  name        TEXT NOT NULL,
  description TEXT NOT NULL DEFAULT '',
  -- JSON Schema 2020-12.
  schema      TEXT NOT NULL,
  -- JSON: a payload.
  example     TEXT,
  on_invalid  TEXT NOT NULL DEFAULT 'reject',
  created_at  INTEGER NOT NULL,
  updated_at  INTEGER NOT NULL,
  -- JSON: where payloads have what the search finds, such as "$.number".
  search_paths TEXT NOT NULL DEFAULT '[]' CONSTRAINT event_type_search_paths_is_json CHECK (json_valid(search_paths)),
  CONSTRAINT event_type_name_is_1_to_128 CHECK (length(name) BETWEEN 1 AND 128),
  CONSTRAINT event_type_schema_is_json CHECK (json_valid(schema)),
  CONSTRAINT event_type_example_is_json CHECK (example IS NULL OR json_valid(example)),
  CONSTRAINT event_type_on_invalid_is_known CHECK (on_invalid IN ('reject', 'quarantine'))
) STRICT;

CREATE UNIQUE INDEX event_types_name ON event_types (tenant, name);
CREATE INDEX event_types_listed ON event_types (tenant, seq);

-- Values of payloads that the search finds, at the paths that an event type names.
CREATE TABLE search_values (
  tenant     TEXT NOT NULL,
  value      TEXT NOT NULL,
  outbox_seq INTEGER NOT NULL,
  PRIMARY KEY (tenant, value, outbox_seq)
) STRICT, WITHOUT ROWID;

CREATE INDEX search_values_of ON search_values (outbox_seq);

-- A value goes with its event, and with its event's payload.
CREATE TRIGGER search_values_end AFTER DELETE ON outbox
BEGIN
  DELETE FROM search_values WHERE outbox_seq = OLD.seq;
END;
CREATE TRIGGER search_values_change AFTER UPDATE OF expunged_at, payload, payload_seq ON outbox
BEGIN
  DELETE FROM search_values WHERE outbox_seq = NEW.seq;
END;

-- Where escalations are told. Each channel has a subscription, `alert-` and its name, through which its alerts are
-- delivered like other events.
CREATE TABLE alert_channels (
  seq              INTEGER PRIMARY KEY AUTOINCREMENT,
  id               TEXT NOT NULL UNIQUE,
  tenant           TEXT NOT NULL,
  name             TEXT NOT NULL,
  kind             TEXT NOT NULL,
  subscription_seq INTEGER NOT NULL UNIQUE REFERENCES subscriptions (seq),
  -- JSON: which escalations are told, and when.
  terms            TEXT NOT NULL,
  -- slack and webhook: the URL, whose path is a secret. The subscription has its host alone.
  sealed           BLOB,
  master_key_id    TEXT,
  -- Since when messages are counted for the rate, and how many there were.
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

-- What a channel was told of an escalation, and when last. The row goes when the channel is told that it is resolved.
CREATE TABLE alerts (
  channel_seq    INTEGER NOT NULL REFERENCES alert_channels (seq),
  escalation_seq INTEGER NOT NULL REFERENCES escalations (seq),
  told           TEXT NOT NULL,
  told_at        INTEGER NOT NULL,
  PRIMARY KEY (channel_seq, escalation_seq),
  CONSTRAINT alert_told_is_raised_or_repeated CHECK (told IN ('raised', 'repeated'))
) STRICT, WITHOUT ROWID;

-- The latest call about each thing, for subscriptions that protect external calls: a call for a newer state is never
-- followed by one for an older state, and the same state is not sent twice.
CREATE TABLE external_calls (
  subscription_seq INTEGER NOT NULL REFERENCES subscriptions (seq),
  -- A hash of entity_key, as in deliveries; where each event is sent once: the delivery's number.
  entity           INTEGER NOT NULL,
  entity_key       TEXT NOT NULL,
  -- The latest call: its delivery, and the SHA-256 of its body.
  delivery_seq     INTEGER NOT NULL,
  body_hash        BLOB NOT NULL,
  state            TEXT NOT NULL,
  -- Failed calls since the last one that was accepted before the latest.
  failed_count     INTEGER NOT NULL DEFAULT 0,
  -- The newest call that was made: its delivery, place and SHA-256. Without the SHA-256 no answer came, and it
  -- may have been made.
  made_seq         INTEGER,
  made_order_at    INTEGER,
  made_hash        BLOB,
  created_at       INTEGER NOT NULL,
  updated_at       INTEGER NOT NULL,
  -- The method and the URL of the latest call, for its attempt if the service ends during it.
  sent_method      TEXT,
  sent_url         TEXT,
  PRIMARY KEY (subscription_seq, entity),
  CONSTRAINT external_call_state_is_known CHECK (state IN ('PROCESSING', 'OK', 'FAILED', 'FAILED_END'))
) STRICT, WITHOUT ROWID;
CREATE INDEX external_calls_newest ON external_calls (subscription_seq, delivery_seq);
