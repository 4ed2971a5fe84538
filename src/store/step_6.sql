-- From version 5 to 6.

ALTER TABLE jobs ADD COLUMN paused_at INTEGER;
