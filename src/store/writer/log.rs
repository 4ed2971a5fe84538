//! The write-ahead log: when it is copied into the file, what is refused so that there is always room to copy it, and
//! when it is emptied: after a key is destroyed, and when the writer ends.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use rusqlite::config::DbConfig;

use crate::base::clock::Timestamp;
use crate::store::error::{Error, Result};
use crate::store::schema;
use crate::store::subjects::{self, KeyId};
use crate::store::writer::room::Near;
use crate::store::writer::working::{MAX_BATCH_JOBS, WriterLoop};
use crate::sys::locks::{self, LogIndex};

/// Bytes of a page of the file.
const PAGE: u64 = 4096;
/// Bytes of a page in the log.
const FRAME: u64 = PAGE + 24;
/// If the log is this many times as long as it should be, a reader keeps it from being copied.
const HELD_TIMES: u64 = 4;

/// Bytes that one transaction writes at most, about: into the log, and later into the file.
const MAX_WRITTEN: u64 = 64 << 20;

/// Bytes of pages that a job changes without making the file longer, about.
const MAX_REWRITTEN: u64 = 8 * FRAME;

/// The log as SQLite counts it.
#[derive(Clone, Copy, Debug)]
struct Log {
    /// Whether another connection was in the way.
    busy: bool,
    frames: u64,
    copied: u64,
}

impl Log {
    fn uncopied(self) -> u64 {
        self.frames.saturating_sub(self.copied).saturating_mul(FRAME)
    }
}

impl WriterLoop {
    /// Leaves the write-ahead log to another program, which copies it before it empties it.
    pub fn leave_checkpoints(&mut self) {
        self.checkpoints = false;
    }

    /// Empties the write-ahead log where it may hold a destroyed key. If a reader is in the way, the next turn tries
    /// again.
    pub(super) fn empty_owed_log(&mut self) {
        if !self.log_owed {
            return;
        }
        if !self.checkpoints {
            tracing::warn!(
                "a destroyed key stays in the write-ahead log until the program that copies it empties it"
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
        // The program that empties it instead has the file open, so that our closing it empties nothing.
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

    /// Looks at the room; `None` while a transaction cannot fill the disk.
    pub(super) fn near(&self) -> Option<Near> {
        let (floor, free) = (self.room.floor.load(Ordering::Relaxed), self.free()?);
        let enough = MAX_WRITTEN.max(floor.saturating_mul(16));
        if free >= enough.saturating_add(self.log_bytes().saturating_mul(2)) {
            return None;
        }
        Some(Near { free, floor, owed: self.owed().ok()? })
    }

    /// Refuses a transaction that is about to be committed, if the log could not be copied afterwards.
    pub(super) fn leaves_room(&self, near: Option<Near>, jobs: usize) -> Result<()> {
        let Some(Near { free, floor, owed }) = near else { return Ok(()) };
        let after = self.owed()?;
        // What makes the file longer is written twice: into the log now, into the file when it is copied.
        let needed = floor.saturating_add(after).saturating_add(after.saturating_sub(owed));
        let rewritten = u64::try_from(jobs).unwrap_or(u64::MAX).saturating_mul(MAX_REWRITTEN);
        if free >= needed.saturating_add(rewritten) { Ok(()) } else { Err(Error::Full) }
    }

    /// Copies the log into the file where it is long, and cuts it where that was asked for. `idle`: nothing was
    /// committed for a beat.
    pub(super) fn tend_log(&mut self, idle: bool) {
        let Ok(mut log) = self.checkpoint("NOOP") else { return };
        if let Some(index) = &mut self.index {
            // Without it SQLite extends the index itself, and says so when there is no room.
            let _is_allocated = index.allocate(log.frames).is_ok();
        }
        let copied_at = self.room.copied_at.load(Ordering::Relaxed);
        self.keep_short(copied_at);
        let to_empty = self.room.to_empty.swap(false, Ordering::Relaxed) && self.log_bytes() > 0;
        if log.frames < self.tried_at {
            self.tried_at = 0;
        }
        let grown = log.frames.saturating_sub(self.tried_at).saturating_mul(FRAME) >= copied_at;
        let is_due = to_empty || (log.uncopied() >= copied_at && (idle || grown));
        if is_due && self.checkpoints && self.fits() {
            self.tried_at = log.frames;
            match if to_empty { self.empty() } else { self.checkpoint("PASSIVE") } {
                Ok(after) => {
                    log = after;
                    self.note_reader(log, copied_at);
                }
                Err(error) => tracing::warn!(%error, "the write-ahead log could not be copied yet"),
            }
        }
        self.room.bytes.store(log.uncopied(), Ordering::Relaxed);
        let owed = if self.near().is_some() { self.owed().unwrap_or(0) } else { log.uncopied() };
        self.room.owed.store(owed, Ordering::Relaxed);
    }

    /// Has SQLite cut what a reader has made longer, when the log is begun anew.
    fn keep_short(&mut self, copied_at: u64) {
        if self.checkpoints && self.kept_at != copied_at {
            let most = i64::try_from(copied_at.saturating_mul(2)).unwrap_or(i64::MAX);
            if self.conn.pragma_update(None, "journal_size_limit", most).is_ok() {
                self.kept_at = copied_at;
            }
        }
    }

    /// Notes who keeps the log from being copied, and says so once.
    fn note_reader(&mut self, log: Log, copied_at: u64) {
        let is_long = log.frames.saturating_mul(FRAME) >= copied_at.saturating_mul(HELD_TIMES);
        let is_held = is_long && (log.busy || log.uncopied() > 0);
        let reader = self.index.as_ref().filter(|_| is_held).and_then(LogIndex::reader);
        let before = self.room.reader.swap(reader.unwrap_or(0), Ordering::Relaxed);
        if let Some(process) = reader.filter(|_| before == 0) {
            tracing::warn!(
                reader = locks::shown(process),
                log_bytes = log.frames.saturating_mul(FRAME),
                "another program reads the database in a transaction that does not end: the write-ahead log \
                 grows until it ends"
            );
        }
    }

    /// Copies the log into the file and cuts it to nothing, if there is room.
    pub(super) fn empty_if_it_fits(&self) -> Result<bool> {
        Ok(self.fits() && !self.empty()?.busy)
    }

    fn empty(&self) -> Result<Log> {
        schema::waiting_shortly(&self.conn, || self.checkpoint("TRUNCATE"))
    }

    fn checkpoint(&self, mode: &str) -> Result<Log> {
        let sql = format!("PRAGMA wal_checkpoint({mode})");
        Ok(self.conn.prepare_cached(&sql)?.query_row([], |row| {
            let count =
                |column| row.get(column).map(|count: i64| u64::try_from(count).unwrap_or(0));
            Ok(Log { busy: row.get(0)?, frames: count(1)?, copied: count(2)? })
        })?)
    }

    /// Whether the file can grow by what is in the log. A copy that finds no room leaves the file longer, and
    /// the log as it was.
    fn fits(&self) -> bool {
        self.free().zip(self.owed().ok()).is_none_or(|(free, owed)| free >= owed)
    }

    /// Bytes by which the file has yet to grow, for the transaction that is open too.
    fn owed(&self) -> Result<u64> {
        let pages = self.conn.prepare_cached("PRAGMA page_count")?;
        let pages: i64 = { pages }.query_row([], |row| row.get(0))?;
        let bytes = u64::try_from(pages).unwrap_or(0).saturating_mul(PAGE);
        Ok(bytes.saturating_sub(size(self.file())))
    }

    fn free(&self) -> Option<u64> {
        let directory = self.file().parent().unwrap_or_else(|| Path::new("."));
        self.gauge.look(directory).ok().map(|space| space.free)
    }

    fn log_bytes(&self) -> u64 {
        size(&self.beside("-wal"))
    }

    fn file(&self) -> &Path {
        Path::new(self.conn.path().unwrap_or_default())
    }

    /// A file of the same name with an ending.
    pub(super) fn beside(&self, ending: &str) -> PathBuf {
        let mut name = self.file().as_os_str().to_owned();
        name.push(ending);
        PathBuf::from(name)
    }
}

fn size(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |meta| meta.len())
}
