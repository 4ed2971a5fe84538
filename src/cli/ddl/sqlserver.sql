-- The outbox of an ERP on SQL Server, for the ODBC source of a later version: this version of Oncebox does
-- not read it. Until then, publish with POST /v1/events or `oncebox emit`. Written after SQL Server's
-- documentation and not run: there was no server to try it on.
IF OBJECT_ID(N'dbo.{table}', N'U') IS NULL
CREATE TABLE dbo.{table} (
  id              bigint IDENTITY NOT NULL CONSTRAINT pk_{table} PRIMARY KEY,
  event_type      varchar(128) NOT NULL,
  payload         nvarchar(max) NOT NULL CONSTRAINT ck_{table}_payload CHECK (ISJSON(payload) = 1),
  idempotency_key varchar(255) COLLATE Latin1_General_BIN2 NOT NULL
                  CONSTRAINT uq_{table}_key UNIQUE,
  aggregate_type  nvarchar(64) NULL,
  aggregate_id    nvarchar(255) NULL,
  occurred_at     datetime2(3) NOT NULL CONSTRAINT df_{table}_occurred_at DEFAULT sysutcdatetime(),
  -- Set by Oncebox once the row is on its disk. Ids are given before they are committed, and may be
  -- committed in another order: a cursor would miss rows, a mark does not.
  taken_at        datetime2(3) NULL
);
GO
IF NOT EXISTS (SELECT 1 FROM sys.indexes WHERE name = N'ix_{table}_waiting')
CREATE INDEX ix_{table}_waiting ON dbo.{table} (id) WHERE taken_at IS NULL;
GO

--   CREATE USER oncebox FOR LOGIN oncebox;
--   GRANT SELECT ON dbo.{table} TO oncebox;
--   GRANT UPDATE ON dbo.{table} (taken_at) TO oncebox;

--   CREATE TRIGGER dbo.invoices_to_{table} ON dbo.invoices AFTER INSERT AS
--   BEGIN
--     SET NOCOUNT ON;
--     INSERT INTO dbo.{table} (event_type, payload, idempotency_key, aggregate_type, aggregate_id)
--     SELECT 'invoice.created',
--            (SELECT i.number, i.total FOR JSON PATH, WITHOUT_ARRAY_WRAPPER),
--            CONCAT('invoice.created:', i.number), N'invoice', i.number
--       FROM inserted AS i;
--   END;
