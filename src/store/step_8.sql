-- From version 7 to 8.

-- Webhooks that were refused, without their bodies; those that are alike are one row. A row has one of few slots,
-- which the next one takes over, so that senders cannot fill the disk.
CREATE TABLE refused_webhooks (
  slot     INTEGER PRIMARY KEY,
  -- Its place in time: the row with the latest refusal has the highest.
  seq      INTEGER NOT NULL,
  tenant   TEXT NOT NULL,
  -- As the path has it. Whether there is such a provider.
  provider TEXT NOT NULL,
  is_known INTEGER NOT NULL,
  -- The status that was answered, and why.
  status   INTEGER NOT NULL,
  reason   TEXT NOT NULL,
  address  TEXT NOT NULL,
  first_at INTEGER NOT NULL,
  last_at  INTEGER NOT NULL,
  count    INTEGER NOT NULL,
  CONSTRAINT refused_webhooks_are_few CHECK (slot BETWEEN 1 AND 10000)
) STRICT;
