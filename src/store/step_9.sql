-- From version 8 to 9.

-- What the last probe of an idle target came to. No row: it was never probed.
CREATE TABLE health_probes (
  subscription_seq INTEGER PRIMARY KEY REFERENCES subscriptions (seq),
  probed_at        INTEGER NOT NULL,
  -- The class that an attempt would have.
  class            TEXT NOT NULL,
  detail           TEXT NOT NULL,
  -- The first of the probes that failed in a row; NULL: the last one worked.
  unhealthy_since  INTEGER
) STRICT;

CREATE INDEX subscriptions_probed ON subscriptions (seq)
 WHERE json_extract(policy, '$.probe') IS NOT NULL AND deleted_at IS NULL;
