//! The write-ahead log: when it is copied into the file, and when it is emptied. Refuses transactions after which the
//! disk would have no room to copy the log.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use rusqlite::config::DbConfig;

use crate::store::prelude::*;
use crate::store::schema;
use crate::store::subjects::{self, KeyId};
use crate::store::writer::copy_tries::LogState;
use crate::store::writer::room::LowDisk;
use crate::store::writer::{MAX_BATCH_JOBS, WriterLoop};
use crate::sys::locks::{self, LogIndex};

/// If the log is this many times longer than its checkpoint size, a reader is blocking the copy.
const LONG_LOG_FACTOR: u64 = 4;

/// Bytes that one transaction writes at most, approximately: into the log, and later into the file.
const MAX_TX_BYTES: u64 = 64 << 20;

/// Bytes of existing pages that a job changes at most, approximately.
const MAX_JOB_REWRITE_BYTES: u64 = 32 << 10;

/// How long a disk with plenty of room is not asked again. If another program fills the disk meanwhile, a write fails and
/// the caller gets the same answer.
const PLENTY_FOR: Duration = Duration::from_millis(100);

/// Bytes of the log beside each page.
const FRAME_HEAD: u64 = 24;

/// The result of `PRAGMA wal_checkpoint`.
#[derive(Clone, Copy, Debug)]
struct Log {
    /// Whether another connection blocked the checkpoint.
    busy: bool,
    frames: u64,
    copied: u64,
    /// Bytes of a frame: a page and what stands before it.
    frame: u64,
}

impl Log {
    fn bytes(self) -> u64 {
        self.frames.saturating_mul(self.frame)
    }

    fn uncopied(self) -> u64 {
        self.frames.saturating_sub(self.copied).saturating_mul(self.frame)
    }
}

impl WriterLoop {
    /// Leaves checkpoints to another program, such as a replication tool.
    pub fn leave_checkpoints(&mut self) {
        self.checkpoints = false;
    }

    /// Empties the write-ahead log, which may contain a destroyed key. What a reader keeps from ending is tried again like
    /// every other copy of the log: see [`CopyTries`].
    ///
    /// [`CopyTries`]: crate::store::writer::copy_tries::CopyTries
    pub(super) fn empty_log_of_keys(&mut self) {
        if !self.checkpoints {
            tracing::warn!(
                "a destroyed key stays in the write-ahead log until the program that does the checkpoints empties it"
            );
            return;
        }
        self.tries.ask_to_empty();
        self.maintain_log(false);
    }

    /// After a restore, destroys keys again that were destroyed before it; returns how many existed.
    pub fn erase_again(&mut self, erasures: &[(KeyId, Timestamp)]) -> Result<u64> {
        let mut erased = 0_u64;
        for some in erasures.chunks(MAX_BATCH_JOBS) {
            erased += self.direct(|tx| {
                let gone = some.iter().map(|(id, at)| Ok(u64::from(subjects::erase(tx, id, *at)?)));
                gone.sum::<Result<u64>>()
            })?;
        }
        // Even if no key existed: an earlier run may have destroyed them and been killed before it emptied the log.
        if !erasures.is_empty() {
            self.empty_log_of_keys();
        }
        Ok(erased)
    }

    /// Closes the writer if the loop was never run.
    pub(crate) fn finish(self) {
        self.close();
    }

    /// Copies the write-ahead log into the file and removes the log. If there is no room, the log stays and the next start
    /// reads it.
    pub(super) fn close(self) {
        // The program that does the checkpoints has the file open, so closing it here does not empty the log.
        if !self.checkpoints {
            return;
        }
        match self.empty_if_it_fits() {
            Ok(true) => {
                // SQLite removes the empty log and its index on close.
                let as_usual = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
                let _is_removed = self.conn.set_db_config(as_usual, false).is_ok();
            }
            Ok(false) => {
                tracing::warn!(
                    "the write-ahead log is being read by another program, or the disk has no room for it; \
                     it stays, and the next start reads it"
                );
            }
            Err(error) => {
                tracing::warn!(%error, "the write-ahead log could not be emptied; the next start reads it");
            }
        }
    }

    /// The room on the disk before a transaction; `None` if a transaction cannot fill the disk.
    pub(super) fn low_disk(&self) -> Option<LowDisk> {
        let now = self.done.now();
        if self.plenty_at.get().is_some_and(|at| now.saturating_sub(at) < PLENTY_FOR) {
            return None;
        }
        let floor = self.room.floor.load(Ordering::Relaxed);
        let free = self.free()?;
        let enough = MAX_TX_BYTES.max(floor.saturating_mul(16));
        let has_plenty = free >= enough.saturating_add(self.log_bytes().saturating_mul(2));
        self.plenty_at.set(has_plenty.then_some(now));
        if has_plenty {
            return None;
        }
        Some(LowDisk { free, floor, growth: self.growth().ok()? })
    }

    /// Fails with `Full` if the log could not be copied after the commit of this transaction.
    pub(super) fn leaves_room(&self, low_disk: Option<LowDisk>, jobs: usize) -> Result<()> {
        let Some(LowDisk { free, floor, growth }) = low_disk else { return Ok(()) };
        let after = self.growth()?;
        // New pages are written twice: into the log now, and into the file at the checkpoint.
        let needed = floor.saturating_add(after).saturating_add(after.saturating_sub(growth));
        let rewritten =
            u64::try_from(jobs).unwrap_or(u64::MAX).saturating_mul(MAX_JOB_REWRITE_BYTES);
        if free >= needed.saturating_add(rewritten) { Ok(()) } else { Err(Error::Full) }
    }

    /// Whether the log has to be looked at after each transaction.
    pub(super) fn may_be_long(&self) -> bool {
        let most = self.room.checkpoint_at.load(Ordering::Relaxed) / 2;
        self.is_low
            || self.tries.is_waiting()
            || self.room.bytes.load(Ordering::Relaxed) >= most
            || self.room.to_empty.load(Ordering::Relaxed)
    }

    /// Copies a long log into the file, and empties it on request. What a reader keeps from ending is tried again soon.
    /// `idle`: there was no job for a heartbeat interval.
    pub(super) fn maintain_log(&mut self, idle: bool) {
        self.unlooked = 0;
        let Ok(mut log) = self.checkpoint("NOOP") else { return };
        if let Some(index) = &mut self.index {
            // If this fails, SQLite extends the index itself and reports if there is no room.
            let _is_allocated = index.allocate(log.frames).is_ok();
        }
        let checkpoint_at = self.room.checkpoint_at.load(Ordering::Relaxed);
        self.limit_log_size(checkpoint_at);
        if self.room.to_empty.swap(false, Ordering::Relaxed) {
            self.tries.ask_to_empty();
        }
        if self.tries.must_empty() && self.log_bytes() == 0 {
            self.tries.emptied();
        }
        let state = LogState { bytes: log.bytes(), uncopied: log.uncopied(), is_idle: idle };
        if self.tries.is_due(state, checkpoint_at) && self.checkpoints && self.fits() {
            self.tries.tried(log.bytes(), checkpoint_at);
            let empties = self.tries.must_empty();
            self.done.copy_tries.add();
            match if empties { self.empty() } else { self.checkpoint("PASSIVE") } {
                Ok(after) => {
                    log = after;
                    if !log.busy {
                        self.tries.emptied();
                    }
                    self.note_reader(log, checkpoint_at);
                }
                Err(error) => tracing::warn!(%error, "the write-ahead log could not be copied yet"),
            }
        }
        self.room.bytes.store(log.uncopied(), Ordering::Relaxed);
        let growth =
            if self.low_disk().is_some() { self.growth().unwrap_or(0) } else { log.uncopied() };
        self.room.growth.store(growth, Ordering::Relaxed);
    }

    /// Makes SQLite truncate a log that a reader has made long, when it starts the log from the beginning.
    fn limit_log_size(&mut self, checkpoint_at: u64) {
        if self.checkpoints && self.limited_to != checkpoint_at {
            let most = i64::try_from(checkpoint_at.saturating_mul(2)).unwrap_or(i64::MAX);
            if self.conn.pragma_update(None, "journal_size_limit", most).is_ok() {
                self.limited_to = checkpoint_at;
            }
        }
    }

    /// Notes the program whose read transaction blocks the copying of the log; logs it once.
    fn note_reader(&mut self, log: Log, checkpoint_at: u64) {
        let is_long = log.bytes() >= checkpoint_at.saturating_mul(LONG_LOG_FACTOR);
        let is_held = is_long && (log.busy || log.uncopied() > 0);
        let reader = self.index.as_ref().filter(|_| is_held).and_then(LogIndex::reader);
        let before = self.room.reader.swap(reader.unwrap_or(0), Ordering::Relaxed);
        if let Some(process) = reader.filter(|_| before == 0) {
            tracing::warn!(
                reader = locks::shown(process),
                log_bytes = log.bytes(),
                "another program reads the database in a transaction that does not end; the write-ahead log \
                 grows until that transaction ends"
            );
        }
    }

    /// Copies the log into the file and empties it, if there is room; returns whether that was done.
    pub(super) fn empty_if_it_fits(&self) -> Result<bool> {
        Ok(self.fits() && !self.empty()?.busy)
    }

    fn empty(&self) -> Result<Log> {
        schema::with_short_timeout(&self.conn, || self.checkpoint("TRUNCATE"))
    }

    fn checkpoint(&self, mode: &str) -> Result<Log> {
        let sql = format!("PRAGMA wal_checkpoint({mode})");
        Ok(self.conn.prepare_cached(&sql)?.query_row([], |row| {
            let count =
                |column| row.get(column).map(|count: i64| u64::try_from(count).unwrap_or(0));
            let frame = self.page.saturating_add(FRAME_HEAD);
            Ok(Log { busy: row.get(0)?, frames: count(1)?, copied: count(2)?, frame })
        })?)
    }

    /// Whether the disk has room to copy the log. A copy without room would only make the file longer and not empty the
    /// log.
    fn fits(&self) -> bool {
        self.free().zip(self.growth().ok()).is_none_or(|(free, growth)| free >= growth)
    }

    /// Bytes by which the file will grow when the log is copied, including the open transaction.
    fn growth(&self) -> Result<u64> {
        let pages = self.conn.prepare_cached("PRAGMA page_count")?;
        let pages: i64 = { pages }.query_row([], |row| row.get(0))?;
        let bytes = u64::try_from(pages).unwrap_or(0).saturating_mul(self.page);
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

    /// The path of the file with a suffix.
    pub(super) fn beside(&self, ending: &str) -> PathBuf {
        let mut name = self.file().as_os_str().to_owned();
        name.push(ending);
        PathBuf::from(name)
    }
}

fn size(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |meta| meta.len())
}
