-- From version 12 to 13: what became of jobs, and what is searched in payloads.

ALTER TABLE jobs ADD COLUMN reached TEXT CONSTRAINT job_reached_is_json CHECK (reached IS NULL OR json_valid(reached));

ALTER TABLE event_types ADD COLUMN search_paths TEXT NOT NULL DEFAULT '[]'
  CONSTRAINT event_type_search_paths_is_json CHECK (json_valid(search_paths));

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
