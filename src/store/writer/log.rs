//! The write-ahead log: what is in it when a key is destroyed, and when the writer ends.

use rusqlite::config::DbConfig;

use crate::base::clock::Timestamp;
use crate::store::error::Result;
use crate::store::subjects::{self, KeyId};
use crate::store::writer::working::{MAX_BATCH_JOBS, WriterLoop};

impl WriterLoop {
    /// Leaves the write-ahead log to another program, which copies it before it empties it.
    pub fn leave_checkpoints(&mut self) {
        self.checkpoints = false;
    }

    /// Empties the write-ahead log where a destroyed key may stand in it. A reader that stands in the way is
    /// waited for in the next turn.
    pub(super) fn empty_owed_log(&mut self) {
        if !self.log_owed {
            return;
        }
        if !self.checkpoints {
            tracing::warn!(
                "a destroyed key stays in the write-ahead log until whoever copies it empties it"
            );
            self.log_owed = false;
            return;
        }
        match self.empty_if_it_fits() {
            Ok(true) => self.log_owed = false,
            Ok(false) => tracing::debug!(
                "the write-ahead log is read, or does not fit; it is emptied in a moment"
            ),
            Err(error) => tracing::warn!(%error, "the write-ahead log could not be emptied yet"),
        }
    }

    /// Destroys keys that were destroyed before, in a database that was put back; tells how many there were.
    pub fn erase_again(&mut self, erasures: &[(KeyId, Timestamp)]) -> Result<u64> {
        let mut erased = 0_u64;
        for some in erasures.chunks(MAX_BATCH_JOBS) {
            erased += self.direct(|tx| {
                let gone = some.iter().map(|(id, at)| Ok(u64::from(subjects::erase(tx, id, *at)?)));
                gone.sum::<Result<u64>>()
            })?;
        }
        // Destroyed by a run that was killed before it could empty the log, none of them is there any more.
        self.log_owed = !erasures.is_empty();
        self.empty_owed_log();
        Ok(erased)
    }

    /// Ends it without ever having run the loop: what was done is in the one file.
    pub(crate) fn finish(self) {
        self.close();
    }

    /// Empties the write-ahead log into the file, so that what is left behind is one file. A log that does not
    /// fit stays: the next start reads it.
    pub(super) fn close(self) {
        // Whoever empties it instead has the file open, so that our closing it empties nothing.
        if !self.checkpoints {
            return;
        }
        match self.empty_if_it_fits() {
            Ok(true) => {
                // With nothing in the log SQLite removes it, and the index with it.
                let as_usual = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
                let _is_removed = self.conn.set_db_config(as_usual, false).is_ok();
            }
            Ok(false) => {
                tracing::warn!(
                    "the write-ahead log is read by another program, or the disk has no room for what is in it; \
                     the next start reads it"
                );
            }
            Err(error) => {
                tracing::warn!(%error, "the write-ahead log could not be emptied; the next start reads it");
            }
        }
    }
}
