-- From version 13 to 14: with an upsert in this trigger SQLite copied each page that an outcome changes. The file of a month has
-- no such trigger.

DROP TRIGGER IF EXISTS deliveries_count_deaths;
CREATE TRIGGER deliveries_count_deaths
AFTER UPDATE OF state ON deliveries
WHEN NEW.state = 'dead_letter' AND OLD.state <> 'dead_letter'
BEGIN
  INSERT INTO meta (key, value)
  SELECT 'deaths', 0 WHERE NOT EXISTS (SELECT 1 FROM meta WHERE key = 'deaths');
  UPDATE meta SET value = value + 1 WHERE key = 'deaths';
  UPDATE deliveries SET died_no = (SELECT value FROM meta WHERE key = 'deaths') WHERE seq = NEW.seq;
END;
