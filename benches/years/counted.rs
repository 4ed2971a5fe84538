//! Which events are stored, by the files that have them.

use std::path::Path;

use rusqlite::Connection;

/// The events of files that were read.
#[derive(Default)]
pub(crate) struct Counted {
    /// By the number of the event: those for the target, and those for consumers that ask.
    stored: [Vec<bool>; 2],
    /// Events that are in more than one place.
    pub(crate) doubled: u64,
    /// The newest file of the archive that was read.
    pub(crate) newest: Option<String>,
}

impl Counted {
    /// Checks a file, and counts its events.
    pub(crate) fn read(&mut self, path: &Path) {
        let conn = Connection::open(path).unwrap();
        let whole: String = conn.query_row("PRAGMA quick_check", [], |row| row.get(0)).unwrap();
        assert_eq!(whole, "ok", "{}", path.display());
        let sql = "SELECT idempotency_key FROM outbox WHERE source_system <> 'oncebox'";
        let mut statement = conn.prepare(sql).unwrap();
        let keys = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
        for key in keys {
            let key = key.unwrap();
            let (kind, n) = key.split_once('-').unwrap();
            let stored = &mut self.stored[usize::from(kind == "p")];
            let n: usize = n.parse().unwrap();
            if stored.len() <= n {
                stored.resize(n + 1, false);
            }
            self.doubled += u64::from(std::mem::replace(&mut stored[n], true));
        }
    }

    /// How many of the first `accepted` and of the first `pulled` events are in no file.
    pub(crate) fn missing(&self, accepted: u64, pulled: u64) -> u64 {
        let there =
            |of: &[bool], end: u64| of.iter().take(end as usize).filter(|is| **is).count() as u64;
        accepted + pulled - there(&self.stored[0], accepted) - there(&self.stored[1], pulled)
    }
}
