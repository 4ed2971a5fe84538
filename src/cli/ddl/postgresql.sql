-- The outbox of an ERP on PostgreSQL, for the ODBC source of a later version: this version of Oncebox does
-- not read it. Until then, publish with POST /v1/events or `oncebox emit`.
CREATE TABLE IF NOT EXISTS {table} (
  id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  event_type      varchar(128) NOT NULL,
  payload         jsonb NOT NULL,
  idempotency_key varchar(255) NOT NULL UNIQUE,
  aggregate_type  varchar(64),
  aggregate_id    varchar(255),
  occurred_at     timestamptz NOT NULL DEFAULT now(),
  -- Set by Oncebox once the row is on its disk. Ids are given before they are committed, and may be
  -- committed in another order: a cursor would miss rows, a mark does not.
  taken_at        timestamptz
);

CREATE INDEX IF NOT EXISTS {table}_waiting ON {table} (id) WHERE taken_at IS NULL;

--   CREATE ROLE oncebox LOGIN;
--   GRANT SELECT, UPDATE (taken_at) ON {table} TO oncebox;

--   CREATE FUNCTION invoices_to_{table}() RETURNS trigger LANGUAGE plpgsql AS $$
--   BEGIN
--     INSERT INTO {table} (event_type, payload, idempotency_key, aggregate_type, aggregate_id)
--     VALUES ('invoice.created', jsonb_build_object('number', NEW.number, 'total', NEW.total),
--             'invoice.created:' || NEW.number, 'invoice', NEW.number);
--     RETURN NULL;
--   END $$;
--   CREATE TRIGGER invoices_to_{table} AFTER INSERT ON invoices
--     FOR EACH ROW EXECUTE FUNCTION invoices_to_{table}();
