-- From version 5 to 6.

ALTER TABLE jobs ADD COLUMN paused_at INTEGER;

-- What happened in each minute of the last hour: a tenant's arrivals and deliveries.
CREATE TABLE recent_minutes (
  minute INTEGER NOT NULL,
  tenant TEXT NOT NULL,
  counts TEXT NOT NULL,
  PRIMARY KEY (minute, tenant),
  CONSTRAINT recent_counts_are_json CHECK (json_valid(counts))
) STRICT, WITHOUT ROWID;

-- Dead letters of before have no number; the jobs that run are for them.
ALTER TABLE deliveries ADD COLUMN died_no INTEGER;
UPDATE jobs SET cursor = json_set(cursor, '$.end', 0)
 WHERE state = 'running' AND kind IN ('dead_letter.replay', 'dead_letter.discard');
-- Their leases keep the longest span.
UPDATE deliveries SET delay_ms = 43200000 WHERE state = 'leased';

CREATE TRIGGER deliveries_count_deaths
AFTER UPDATE OF state ON deliveries
WHEN NEW.state = 'dead_letter' AND OLD.state <> 'dead_letter'
BEGIN
  INSERT INTO meta (key, value)
  VALUES ('deaths', 1)
      ON CONFLICT (key) DO UPDATE SET value = meta.value + 1;
  UPDATE deliveries SET died_no = (SELECT value FROM meta WHERE key = 'deaths') WHERE seq = NEW.seq;
END;

-- A name that another tenant has is free: nobody learns of it.
DROP INDEX users_name;
CREATE UNIQUE INDEX users_name ON users (tenant, name) WHERE deleted_at IS NULL;

ALTER TABLE tenants ADD COLUMN mail_day INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tenants ADD COLUMN mail_count INTEGER NOT NULL DEFAULT 0;
