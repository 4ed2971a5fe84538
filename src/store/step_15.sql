-- From version 14 to 15: periodic duties have their due times in the file.

CREATE TABLE chores (
  name    TEXT NOT NULL PRIMARY KEY,
  due_at  INTEGER NOT NULL,
  done_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
