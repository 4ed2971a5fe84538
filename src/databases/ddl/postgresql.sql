-- The tables of an ERP on PostgreSQL into which Oncebox writes events, each once. Run it as the owner of the database.
-- The guard: one row for each event that took effect. Its insert and the effect are one transaction.
CREATE TABLE IF NOT EXISTS processed_events (
  consumer_group text NOT NULL CHECK (length(consumer_group) BETWEEN 1 AND 64),
  event_id       text NOT NULL CHECK (length(event_id) BETWEEN 1 AND 255),
  processed_at   timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (consumer_group, event_id)
);
CREATE INDEX IF NOT EXISTS processed_events_age ON processed_events (processed_at);

-- The inbox: a row for each event, for programs of the ERP that take it from there. Only with --inbox {inbox}.
CREATE TABLE IF NOT EXISTS {inbox} (
  id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  webhook_id     text NOT NULL,
  event_type     text NOT NULL,
  aggregate_type text,
  aggregate_id   text,
  payload        text NOT NULL,
  occurred_at    timestamptz NOT NULL,
  tenant         text NOT NULL,
  received_at    timestamptz NOT NULL DEFAULT now()
);

GRANT INSERT ON processed_events TO {user};
GRANT INSERT ON {inbox} TO {user};
