-- The outbox of an ERP on PostgreSQL 13 or later.
[mark]--   oncebox source add erp --database erp --table {table}
[claim]--   oncebox source add erp --database erp --table {table} --mode claim
[xid8]--   oncebox source add erp --database erp --table {table} --mode xid8
--
-- Nothing here can fail or delay a transaction of the ERP: there is no UNIQUE, no CHECK, no limit on a text, no index
-- on a text. Oncebox quarantines a row that it cannot use, with the reason.
CREATE TABLE IF NOT EXISTS {table} (
  id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  event_type      text,
  -- JSON as text: jsonb would sort its members and refuse some texts.
  payload         text,
  -- The fact's own name. By default each row is a fact of its own. If two rows have one key, the first becomes the
  -- event; the second is taken, counted as a repetition and not sent. Give a key only where the ERP may write one
  -- fact twice, and a new key (a version, a time) where a fact happens again.
  -- Time first: keys that come together stand together in indexes.
  idempotency_key text DEFAULT to_hex((extract(epoch FROM clock_timestamp()) * 1000000)::bigint) || '-' || gen_random_uuid(),
  aggregate_type  text,
  aggregate_id    text,
  occurred_at     timestamptz DEFAULT now(),
[claim]  -- The box that takes the row: only that box stores and marks it.
[claim]  taken_by        text,
[mark claim]  -- Set by Oncebox once the row is on its disk. Ids are given before they are committed, and may be committed in
[mark claim]  -- another order: a cursor over ids would miss rows, a mark does not.
[mark claim]  taken_at        timestamptz
[xid8]  -- The transaction that wrote the row; never set it. Oncebox reads a row once every transaction up to this one has
[xid8]  -- ended. So a transaction that stays open (also a forgotten PREPARE TRANSACTION) delays all events after it.
[xid8]  tx              xid8 NOT NULL DEFAULT pg_current_xact_id()
);

[mark claim]CREATE INDEX IF NOT EXISTS {table}_waiting ON {table} (id) WHERE taken_at IS NULL;
[mark claim]-- Each mark leaves a dead copy of its row. Without this they are cleared only when a fifth of the table is dead.
[mark claim]ALTER TABLE {table} SET (autovacuum_vacuum_scale_factor = 0.01);
[xid8]CREATE INDEX IF NOT EXISTS {table}_by_tx ON {table} (tx, id);
[xid8]-- Deleted rows are cleared when a hundredth of the table is dead, not only when a fifth is.
[xid8]ALTER TABLE {table} SET (autovacuum_vacuum_scale_factor = 0.01);

-- Oncebox needs these rights and no more.
--   CREATE ROLE oncebox LOGIN PASSWORD '…';
[mark]--   GRANT SELECT, UPDATE (taken_at) ON {table} TO oncebox;
[claim]--   GRANT SELECT, UPDATE (taken_at, taken_by) ON {table} TO oncebox;
[xid8]--   GRANT SELECT ON {table} TO oncebox;

-- An example: each new and each deleted invoice is a fact, in the ERP's own transaction. INSERT, DELETE, INSERT of
-- one invoice are three rows with three keys. SECURITY DEFINER: programs that write invoices need no right to the
-- outbox; search_path names the schema of the outbox. One thing changes for the ERP: lastval() is the outbox's id
-- afterwards; RETURNING and currval('…') stay as they were. CREATE TRIGGER waits for open transactions on the table,
-- and new ones wait behind it: lock_timeout bounds that.
--   SET lock_timeout = '2s';
--   CREATE FUNCTION invoices_to_{table}() RETURNS trigger
--     LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
--   BEGIN
--     IF TG_OP = 'INSERT' THEN
--       INSERT INTO {table} (event_type, payload, aggregate_type, aggregate_id)
--       VALUES ('invoice.created', json_build_object('number', NEW.number, 'total', NEW.total)::text,
--               'invoice', NEW.number);
--     ELSE
--       INSERT INTO {table} (event_type, payload, aggregate_type, aggregate_id)
--       VALUES ('invoice.deleted', json_build_object('number', OLD.number)::text, 'invoice', OLD.number);
--     END IF;
--     RETURN NULL;
--   END $$;
--   CREATE TRIGGER invoices_to_{table} AFTER INSERT OR DELETE ON invoices
--     FOR EACH ROW EXECUTE FUNCTION invoices_to_{table}();

-- Rows that were taken a month ago, a few at a time, by the table's owner:
[mark claim]--   DELETE FROM {table} WHERE id IN (SELECT id FROM {table}
[mark claim]--     WHERE taken_at < now() - interval '30 days' ORDER BY id LIMIT 10000);
[xid8]--   DELETE FROM {table} WHERE id IN (SELECT id FROM {table}
[xid8]--     WHERE occurred_at < now() - interval '30 days' ORDER BY id LIMIT 10000);
