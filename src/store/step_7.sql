-- From version 6 to 7.

ALTER TABLE subscriptions ADD COLUMN site_host TEXT;
