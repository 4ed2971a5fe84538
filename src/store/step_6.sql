-- From version 5 to 6.

ALTER TABLE jobs ADD COLUMN paused_at INTEGER;

-- What happened in each minute of the last hour: of a tenant's arrivals (subscription_seq 0), or of a subscription's
-- deliveries (no tenant).
CREATE TABLE recent_minutes (
  minute           INTEGER NOT NULL,
  tenant           TEXT NOT NULL,
  subscription_seq INTEGER NOT NULL,
  counts           TEXT NOT NULL,
  PRIMARY KEY (minute, tenant, subscription_seq),
  CONSTRAINT recent_counts_are_json CHECK (json_valid(counts))
) STRICT, WITHOUT ROWID;
