-- The tables of an ERP on SQL Server 2016 or newer into which Oncebox writes events, each once. NOT RUN by the tests of
-- Oncebox, which have no SQL Server.
-- The guard: one row for each event that took effect. Its insert and the effect are one transaction.
IF OBJECT_ID(N'dbo.processed_events', N'U') IS NULL
CREATE TABLE dbo.processed_events (
  consumer_group nvarchar(64)  COLLATE Latin1_General_100_BIN2 NOT NULL CHECK (LEN(consumer_group) > 0),
  event_id       nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL CHECK (LEN(event_id) > 0),
  processed_at   datetime2(3) NOT NULL DEFAULT SYSUTCDATETIME(),
  CONSTRAINT processed_events_key PRIMARY KEY CLUSTERED (consumer_group, event_id),
  INDEX processed_events_age NONCLUSTERED (processed_at)
);

-- The inbox: a row for each event, for programs of the ERP that take it from there. Only with --inbox {inbox}.
IF OBJECT_ID(N'dbo.{inbox}', N'U') IS NULL
CREATE TABLE dbo.{inbox} (
  id             bigint IDENTITY PRIMARY KEY,
  webhook_id     nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
  event_type     nvarchar(128) NOT NULL,
  aggregate_type nvarchar(64),
  aggregate_id   nvarchar(255),
  payload        nvarchar(max) NOT NULL,
  occurred_at    datetime2(3) NOT NULL,
  tenant         nvarchar(63) NOT NULL,
  received_at    datetime2(3) NOT NULL DEFAULT SYSUTCDATETIME()
);

GRANT INSERT, SELECT ON dbo.processed_events TO {user};
GRANT INSERT ON dbo.{inbox} TO {user};
