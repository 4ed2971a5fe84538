-- From schema version 1 to 2: tenants, and who changed what.

-- Whose rows these are. Every other table's `tenant` is a name from here; a suspended tenant's tokens and
-- intake are refused, and its deliveries wait.
CREATE TABLE tenants (
  seq          INTEGER PRIMARY KEY AUTOINCREMENT,
  name         TEXT NOT NULL UNIQUE,
  title        TEXT NOT NULL DEFAULT '',
  created_at   INTEGER NOT NULL,
  suspended_at INTEGER,
  CONSTRAINT tenant_name_is_1_to_63_of_a_z_0_9_dash
    CHECK (length(name) BETWEEN 1 AND 63 AND name NOT GLOB '*[^a-z0-9-]*')
) STRICT;

INSERT INTO tenants (name, title, created_at)
VALUES ('default', 'The tenant of everything where nobody asked for tenants',
        CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER));

-- Who changed what. Each row holds the hash of the row before it, so that a row that was changed, taken
-- out or put in shows: hash = SHA-256 over previous_hash and the row's other columns (docs/data.md).
CREATE TABLE audit_events (
  seq            INTEGER PRIMARY KEY AUTOINCREMENT,
  at             INTEGER NOT NULL,
  tenant         TEXT NOT NULL,
  -- 'token', 'cli' (offline, by whoever may open the file), 'system' or 'anonymous'.
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
  -- JSON object: field to {"before":…,"after":…}, changed fields only, never a secret. Of a refused call:
  -- the problem, and how many like it were counted.
  changes        TEXT NOT NULL DEFAULT '{}',
  previous_hash  BLOB NOT NULL,
  hash           BLOB NOT NULL,
  CONSTRAINT audit_actor_type_is_known CHECK (actor_type IN ('token', 'cli', 'system', 'anonymous')),
  CONSTRAINT audit_result_is_known CHECK (result IN ('SUCCESS', 'FAILURE', 'DENIED')),
  CONSTRAINT audit_changes_is_json CHECK (json_valid(changes)),
  CONSTRAINT audit_hashes_are_sha_256 CHECK (length(previous_hash) = 32 AND length(hash) = 32)
) STRICT;

CREATE TRIGGER audit_events_are_never_changed
BEFORE UPDATE ON audit_events
BEGIN
  SELECT RAISE(ABORT, 'an audit event is never changed');
END;

CREATE TRIGGER audit_events_are_never_deleted
BEFORE DELETE ON audit_events
BEGIN
  SELECT RAISE(ABORT, 'an audit event is never deleted');
END;
