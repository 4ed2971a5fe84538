-- From version 11 to 12: what was.

-- Holds that have ended, for the question why a delivery was late. A suspended tenant makes a row for each subscription.
CREATE TABLE past_holds (
  seq              INTEGER PRIMARY KEY AUTOINCREMENT,
  -- 0: the whole site.
  subscription_seq INTEGER NOT NULL,
  reason           TEXT NOT NULL,
  since            INTEGER NOT NULL,
  ended_at         INTEGER NOT NULL,
  -- Who paused it, or what the target answered last: the first 200 characters.
  detail           TEXT NOT NULL,
  CONSTRAINT past_hold_reason_is_known CHECK (reason IN
    ('paused', 'disabled', 'suspended', 'rejecting', 'rate_limit', 'breaker', 'auth', 'offline')),
  CONSTRAINT past_hold_has_ended CHECK (ended_at >= since)
) STRICT;

CREATE INDEX past_holds_of ON past_holds (subscription_seq, reason);

-- Until when the counts of recent_minutes and history are complete. NULL: they never were.
ALTER TABLE boots ADD COLUMN seen_at INTEGER;

-- What happened to a subscription or a provider in each hour of the last 90 days.
CREATE TABLE history (
  -- Days since 1970 (UTC).
  day    INTEGER NOT NULL,
  kind   TEXT NOT NULL,
  -- The number of the subscription or the provider.
  of_seq INTEGER NOT NULL,
  -- The hours that had something: attempts or requests, failures, and how long they took (docs/data.md).
  hours  BLOB NOT NULL,
  PRIMARY KEY (day, kind, of_seq),
  CONSTRAINT history_is_of_a_subscription_or_a_provider CHECK (kind IN ('subscription', 'provider'))
) STRICT, WITHOUT ROWID;
