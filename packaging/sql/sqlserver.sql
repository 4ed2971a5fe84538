-- Guards for a consumer that keeps its data in SQL Server 2016 or newer.
--
-- NOT RUN by the tests of Oncebox, which have no SQL Server. It is written after the documentation; try it with
-- `oncebox conformance` against your own server before you rely on it (docs/guards.md).
--
-- What the consumer does for an event, and the note that it did so, are one transaction of the consumer's own
-- database: they are there together or not at all. docs/guards.md says which guard is right when.
--
--   @consumer_group  who does it, such as N'accounting'; 1 to 64 characters
--   @event_id        the webhook-id header of the request; 1 to 255 characters
--   @entity          what it is about, such as N'article/17'; @version whatever grows with each of its changes
--
-- The part after each [name] is one piece to paste.

-- [tables] Once, in a migration. Ids are compared byte by byte: under the usual collation N'Evt_1' and N'evt_1' would
-- be the same event, and one of them lost. (Blanks at the end are never compared; ids do not end in blanks.)
IF OBJECT_ID(N'dbo.processed_events', N'U') IS NULL
CREATE TABLE dbo.processed_events (
  consumer_group nvarchar(64)  COLLATE Latin1_General_100_BIN2 NOT NULL CHECK (LEN(consumer_group) > 0),
  event_id       nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL CHECK (LEN(event_id) > 0),
  processed_at   datetime2(3) NOT NULL DEFAULT SYSUTCDATETIME(),
  CONSTRAINT processed_events_key PRIMARY KEY CLUSTERED (consumer_group, event_id),
  INDEX processed_events_age NONCLUSTERED (processed_at)
);
IF OBJECT_ID(N'dbo.processed_versions', N'U') IS NULL
CREATE TABLE dbo.processed_versions (
  consumer_group nvarchar(64)  COLLATE Latin1_General_100_BIN2 NOT NULL CHECK (LEN(consumer_group) > 0),
  entity         nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL CHECK (LEN(entity) > 0),
  version        bigint NOT NULL,
  processed_at   datetime2(3) NOT NULL DEFAULT SYSUTCDATETIME(),
  CONSTRAINT processed_versions_key PRIMARY KEY CLUSTERED (consumer_group, entity)
);

-- [begin] XACT_ABORT: whatever error ends the whole transaction, so that no half of it is committed by mistake.
-- DELAYED_DURABILITY must be DISABLED, its default: with it a power cut takes back what was answered 2xx.
SET XACT_ABORT ON;
BEGIN TRANSACTION;

-- [claim] @@ROWCOUNT is 1: the first time, do it. 0: it was done before, so commit and answer 2xx.
-- Without the two hints, two transactions at the same time both see that the row is missing and the second fails with
-- error 2627. With them the second waits at the key for the first's end: UPDLOCK lets only one look, HOLDLOCK
-- locks the place of a row that is not there yet. Under SNAPSHOT isolation the second may fail with 3960: run the
-- whole transaction again.
-- A plain INSERT that catches 2627 is right as well, but with XACT_ABORT the error has ended the transaction already.
INSERT INTO dbo.processed_events (consumer_group, event_id)
SELECT @consumer_group, @event_id
 WHERE NOT EXISTS (
       SELECT 1
         FROM dbo.processed_events WITH (UPDLOCK, HOLDLOCK)
        WHERE consumer_group = @consumer_group
          AND event_id = @event_id);

-- Then the effect, in this transaction, only when the claim inserted a row:
--   IF @@ROWCOUNT = 1 INSERT INTO dbo.bookings (invoice) VALUES (@invoice);
-- It is the count of the statement just before, so put nothing in between.

-- [claim newer] For events that carry a whole state: instead of the claim above. @done is 1: this version is newer than
-- the last one done, do it. 0: it is the same or an older one, which must not be done any more. A version that is NULL is neither.
IF @version IS NULL THROW 50000, 'the version is NULL', 1;
DECLARE @done int;
UPDATE dbo.processed_versions WITH (UPDLOCK, HOLDLOCK)
   SET version = CASE WHEN version < @version THEN @version ELSE version END,
       processed_at = CASE WHEN version < @version THEN SYSUTCDATETIME() ELSE processed_at END,
       @done = CASE WHEN version < @version THEN 1 ELSE 0 END
 WHERE consumer_group = @consumer_group
   AND entity = @entity;
IF @@ROWCOUNT = 0
BEGIN
  INSERT INTO dbo.processed_versions (consumer_group, entity, version)
  VALUES (@consumer_group, @entity, @version);
  SET @done = 1;
END;

-- [commit] Only after it answer 2xx. If anything failed before: ROLLBACK, and answer 500; it comes again.
COMMIT TRANSACTION;

-- [cleanup] From time to time, in a transaction of its own; again while it deletes 1,000 rows. 90 days are longer
-- than anything is retried; a dead letter that a person replays after that takes effect again.
-- processed_versions has one row for each entity and is kept.
DELETE TOP (1000) FROM dbo.processed_events
 WHERE processed_at < DATEADD(day, -90, SYSUTCDATETIME());
