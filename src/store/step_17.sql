-- From version 16 to 17: sources may be tables of other databases.

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
  CONSTRAINT source_kind_is_known CHECK (kind IN ('sqlite', 'drop', 'database')),
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
