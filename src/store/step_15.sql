-- From version 14 to 15: an escalation whose failure comes back within an hour is reopened.

ALTER TABLE escalations ADD COLUMN reopened_at INTEGER;

CREATE INDEX escalations_latest ON escalations (tenant, class, subject, seq);
