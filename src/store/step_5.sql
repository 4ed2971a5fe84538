-- From version 4 to 5: users, their sessions and one-time links; audit events by users.

CREATE TABLE users (
  seq           INTEGER PRIMARY KEY AUTOINCREMENT,
  id            TEXT NOT NULL UNIQUE,
  tenant        TEXT NOT NULL,
  name          TEXT NOT NULL,
  role          TEXT NOT NULL,
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

CREATE UNIQUE INDEX users_name ON users (name) WHERE deleted_at IS NULL;
CREATE INDEX users_listed ON users (tenant, seq) WHERE deleted_at IS NULL;

CREATE TABLE sessions (
  seq          INTEGER PRIMARY KEY AUTOINCREMENT,
  id           TEXT NOT NULL UNIQUE,
  user_seq     INTEGER NOT NULL REFERENCES users (seq),
  hash         BLOB NOT NULL UNIQUE,
  created_at   INTEGER NOT NULL,
  last_used_at INTEGER NOT NULL,
  ends_at      INTEGER NOT NULL,
  ended_at     INTEGER,
  address      TEXT NOT NULL,
  user_agent   TEXT
) STRICT;

CREATE INDEX sessions_of_user ON sessions (user_seq, seq);

CREATE TABLE login_links (
  user_seq   INTEGER PRIMARY KEY REFERENCES users (seq),
  hash       BLOB NOT NULL UNIQUE,
  expires_at INTEGER NOT NULL
) STRICT;

-- Every row is copied as it is, so the chain of hashes stays.
CREATE TABLE audit_events_5 (
  seq            INTEGER PRIMARY KEY AUTOINCREMENT,
  at             INTEGER NOT NULL,
  tenant         TEXT NOT NULL,
  actor_type     TEXT NOT NULL,
  actor_id       TEXT NOT NULL DEFAULT '',
  actor_display  TEXT NOT NULL DEFAULT '',
  address        TEXT,
  user_agent     TEXT,
  action         TEXT NOT NULL,
  resource_type  TEXT NOT NULL,
  resource_id    TEXT,
  result         TEXT NOT NULL,
  request_id     TEXT,
  correlation_id TEXT,
  method         TEXT,
  path           TEXT,
  status         INTEGER,
  changes        TEXT NOT NULL DEFAULT '{}',
  previous_hash  BLOB NOT NULL,
  hash           BLOB NOT NULL,
  CONSTRAINT audit_actor_type_is_known CHECK (actor_type IN ('token', 'user', 'cli', 'system', 'anonymous')),
  CONSTRAINT audit_result_is_known CHECK (result IN ('SUCCESS', 'FAILURE', 'DENIED')),
  CONSTRAINT audit_changes_is_json CHECK (json_valid(changes)),
  CONSTRAINT audit_hashes_are_sha_256 CHECK (length(previous_hash) = 32 AND length(hash) = 32)
) STRICT;

INSERT INTO audit_events_5 (
       seq, at, tenant, actor_type, actor_id, actor_display, address, user_agent, action, resource_type, resource_id,
       result, request_id, correlation_id, method, path, status, changes, previous_hash, hash)
SELECT seq, at, tenant, actor_type, actor_id, actor_display, address, user_agent, action, resource_type, resource_id,
       result, request_id, correlation_id, method, path, status, changes, previous_hash, hash
  FROM audit_events
 ORDER BY seq;
DROP TABLE audit_events;
ALTER TABLE audit_events_5 RENAME TO audit_events;

CREATE INDEX audit_events_listed ON audit_events (tenant);

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
