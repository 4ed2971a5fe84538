-- The outbox of an ERP on SQL Server 2016 or later. NOT RUN against a real server, of which there was none: it is
-- written after SQL Server's documentation. Try it on a copy of your database first.
[mark]--   oncebox source add erp --database erp --table {table}
[claim]--   oncebox source add erp --database erp --table {table} --mode claim
--
-- Nothing here can fail or delay a transaction of the ERP: there is no UNIQUE, no CHECK, no limit on a text, no index
-- on a text. Oncebox quarantines a row that it cannot use, with the reason.

-- A sequence, because an IDENTITY column would change what the ERP reads from @@IDENTITY after its own INSERT. It gives
-- no number to an INSERT with TOP, nor in a session that has set ROWCOUNT: such a statement would fail.
IF OBJECT_ID(N'dbo.{table}_id', N'SO') IS NULL
CREATE SEQUENCE dbo.{table}_id AS bigint START WITH 1 INCREMENT BY 1;
GO
IF OBJECT_ID(N'dbo.{table}', N'U') IS NULL
CREATE TABLE dbo.{table} (
  id              bigint NOT NULL CONSTRAINT pk_{table} PRIMARY KEY
                  CONSTRAINT df_{table}_id DEFAULT (NEXT VALUE FOR dbo.{table}_id),
  event_type      nvarchar(max) NULL,
  payload         nvarchar(max) NULL,
  -- The fact's own name. By default each row is a fact of its own. If two rows have one key, the first becomes the
  -- event; the second is taken, counted as a repetition and not sent. Give a key only where the ERP may write one
  -- fact twice, and a new key (a version, a time) where a fact happens again.
  idempotency_key nvarchar(max) NULL CONSTRAINT df_{table}_key DEFAULT (CONVERT(nvarchar(36), NEWID())),
  aggregate_type  nvarchar(max) NULL,
  aggregate_id    nvarchar(max) NULL,
  -- In UTC.
  occurred_at     datetime2(3) NULL CONSTRAINT df_{table}_occurred_at DEFAULT (SYSUTCDATETIME()),
[claim]  -- The box that takes the row: only that box stores and marks it.
[claim]  taken_by        nvarchar(255) NULL,
  -- Set by Oncebox once the row is on its disk. Ids are given before they are committed, and may be committed in
  -- another order: a cursor over ids would miss rows, a mark does not.
  taken_at        datetime2(3) NULL
);
GO
-- Not a filtered index (WHERE taken_at IS NULL): with one, an INSERT of a program that has ARITHABORT or
-- QUOTED_IDENTIFIER off would fail.
IF NOT EXISTS (SELECT 1 FROM sys.indexes
                WHERE name = N'ix_{table}_waiting' AND object_id = OBJECT_ID(N'dbo.{table}'))
CREATE INDEX ix_{table}_waiting ON dbo.{table} (taken_at, id);
GO
-- A transaction of the ERP with thousands of rows must not lock the table for the ERP's other transactions.
ALTER TABLE dbo.{table} SET (LOCK_ESCALATION = DISABLE);
GO

-- Oncebox needs these rights and no more.
--   CREATE LOGIN oncebox WITH PASSWORD = N'…';
--   CREATE USER oncebox FOR LOGIN oncebox;
--   GRANT SELECT ON dbo.{table} TO oncebox;
--   GRANT UPDATE ON dbo.{table} (taken_at) TO oncebox;
[claim]--   GRANT UPDATE ON dbo.{table} (taken_by) TO oncebox;

-- An example: each new and each deleted invoice is a fact, in the ERP's own transaction. INSERT, DELETE, INSERT of
-- one invoice are three rows with three keys. Not for a table that a program writes with OUTPUT without INTO
-- (Entity Framework Core does so unless told that the table has a trigger): SQL Server refuses such a statement on a
-- table that has any trigger. There the ERP itself inserts the row.
-- Both tables must have one owner, as all in dbo have: so users of the ERP need no right to the outbox. ROWCOUNT 0,
-- which holds in the trigger alone: a limit that the ERP has set would cut off facts, or make its INSERT fail.
--   CREATE TRIGGER dbo.invoices_to_{table}_new ON dbo.invoices AFTER INSERT AS
--   BEGIN
--     SET NOCOUNT ON;
--     SET ROWCOUNT 0;
--     INSERT INTO dbo.{table} (event_type, payload, aggregate_type, aggregate_id)
--     SELECT N'invoice.created', (SELECT i.number, i.total FOR JSON PATH, WITHOUT_ARRAY_WRAPPER),
--            N'invoice', i.number
--       FROM inserted AS i;
--   END;
--   GO
--   CREATE TRIGGER dbo.invoices_to_{table}_gone ON dbo.invoices AFTER DELETE AS
--   BEGIN
--     SET NOCOUNT ON;
--     SET ROWCOUNT 0;
--     INSERT INTO dbo.{table} (event_type, payload, aggregate_type, aggregate_id)
--     SELECT N'invoice.deleted', (SELECT d.number FOR JSON PATH, WITHOUT_ARRAY_WRAPPER), N'invoice', d.number
--       FROM deleted AS d;
--   END;
--   GO

-- Rows that were taken a month ago, a few at a time:
--   DELETE TOP (1000) FROM dbo.{table} WITH (READPAST) WHERE taken_at < DATEADD(day, -30, SYSUTCDATETIME());
