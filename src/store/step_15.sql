-- From version 14 to 15: periodic duties have their due times in the file, effects outside the file are claimed, and an
-- escalation whose failure comes back within an hour is reopened.

CREATE TABLE chores (
  name    TEXT NOT NULL PRIMARY KEY,
  due_at  INTEGER NOT NULL,
  done_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The method and the URL of the latest call, for its attempt if the service ends during it.
ALTER TABLE external_calls ADD COLUMN sent_method TEXT;
ALTER TABLE external_calls ADD COLUMN sent_url TEXT;

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

ALTER TABLE escalations ADD COLUMN reopened_at INTEGER;

CREATE INDEX escalations_latest ON escalations (tenant, class, subject, seq);
