//! The thread `archive`: moves what finished long enough ago into the files of the months.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

use crate::archive::audit::AuditMover;
use crate::archive::expiry::{self, Expiry, Parts};
use crate::archive::tables::month_file::{self, MonthFile};
use crate::archive::tables::moves;
use crate::archive::tables::space::{self, Hot};
use crate::archive::tables::walk::{self, Before};
use crate::archive::{AUDIT_DIRECTORY, Archive, Batch, DIRECTORY, Kind, Month};
use crate::base::clock::{SureNow, Timestamp};
use crate::base::stop::Stop;
use crate::model::duty::Duty;
use crate::pipeline::threads::{Bell, Spawner, join};
use crate::store::error::{Error, Result};
use crate::store::schema;
use crate::store::writer::Queue;
use crate::sys::files;

/// How often it is checked whether a walk is due.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// Unused pages that stay in the database: 8 MiB at least, and its tenth.
const MIN_UNUSED: u32 = 2_048;
const UNUSED_PART: u32 = 10;
/// Batches after which the log of a month's file is emptied.
const EMPTY_AFTER: u32 = 32;

/// What the archive does, and did last.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// When the walk under way began.
    pub since: Option<Timestamp>,
    /// When the last one ended.
    pub ended_at: Option<Timestamp>,
    /// Events that it moved.
    pub events: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
    /// Why it ended early.
    pub error: Option<String>,
    /// What the database had at its end.
    pub hot: Option<Hot>,
}

impl Status {
    fn begun(at: Timestamp, before: &Self) -> Self {
        Self { since: Some(at), hot: before.hot, ..Self::default() }
    }
}

/// What came of deleting a month.
#[derive(Clone, Debug)]
pub enum Removal {
    /// The file is gone.
    Done,
    /// There is none.
    Missing,
    /// Events are being moved.
    Busy,
}

/// Asks for walks, and tells how they went. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Archiving {
    /// The files.
    pub archive: Archive,
    /// The files with audit events.
    pub audit: Archive,
    status: Arc<Mutex<Status>>,
    asked: Arc<Mutex<Option<Timestamp>>>,
    /// Whether an event has come back.
    has_back: Arc<AtomicBool>,
    bell: Bell,
}

impl Archiving {
    /// Tells that an event has come back.
    pub fn note_back(&self) {
        self.has_back.store(true, Ordering::Release);
        self.bell.ring();
    }

    /// What it does, and did last.
    pub fn status(&self) -> Status {
        self.status.lock().clone()
    }

    /// Asks for a walk that moves what finished before `by`, after the one under way; `false`: one waits already.
    pub fn ask(&self, by: Timestamp, now: Timestamp) -> bool {
        let mut status = self.status.lock();
        let mut asked = self.asked.lock();
        if asked.is_some() {
            return false;
        }
        *asked = Some(by);
        if status.since.is_none() {
            *status = Status::begun(now, &status);
        }
        self.bell.ring();
        true
    }

    /// Deletes the file of a month.
    pub fn remove(&self, month: &Month) -> io::Result<Removal> {
        // No run begins meanwhile.
        let status = self.status.lock();
        if status.since.is_some() {
            return Ok(Removal::Busy);
        }
        Ok(self.archive.remove(month)?.map_or(Removal::Missing, |_gone| Removal::Done))
    }
}

/// The running thread.
#[derive(Debug)]
pub struct Mover {
    /// What others need of it.
    pub archiving: Archiving,
    stop: Stop,
    thread: JoinHandle<()>,
}

impl Mover {
    /// Starts it.
    /// Fails when a thread cannot be started.
    pub fn start(parts: Parts, spawner: &Spawner) -> Result<Self> {
        let stop = Stop::new();
        let data = files::directory_of(parts.store.path());
        let archiving = Archiving {
            archive: Archive::of(data, DIRECTORY),
            audit: Archive::of(data, AUDIT_DIRECTORY),
            status: Arc::default(),
            asked: Arc::default(),
            has_back: Arc::default(),
            bell: Bell::default(),
        };
        upgrade(&archiving.archive, &parts)?;
        upgrade(&archiving.audit, &parts)?;
        let due = parts.clock.now();
        let parts = Arc::new(parts);
        let audit = AuditMover::new(Arc::clone(&parts), archiving.audit.clone(), stop.clone());
        let moving = Moving {
            parts,
            archiving: archiving.clone(),
            stop: stop.clone(),
            due,
            audit_due: due,
            audit,
            expiry: Expiry::default(),
            file: None,
        };
        let thread = spawner.spawn("archive", move || moving.run())?;
        Ok(Self { archiving, stop, thread })
    }

    /// Ends it after the batch at hand.
    pub fn stop(self) {
        self.stop.ask();
        self.archiving.bell.ring();
        join(self.thread);
    }
}

struct Moving {
    parts: Arc<Parts>,
    archiving: Archiving,
    stop: Stop,
    /// When the next walk begins.
    due: Timestamp,
    /// When audit events are looked at next.
    audit_due: Timestamp,
    audit: AuditMover,
    expiry: Expiry,
    /// The file that was written last, and how many batches its log has.
    file: Option<(Month, MonthFile, u32)>,
}

impl Moving {
    fn run(mut self) {
        if let Err(error) = self.share_all() {
            tracing::error!(%error, "the group of the database may not open each month of the archive");
        }
        // What an earlier process left.
        self.archiving.has_back.store(true, Ordering::Release);
        while !self.stop.asked() {
            // Also where no walk is due: a month shows what the database has as something else by now.
            if self.archiving.has_back.swap(false, Ordering::AcqRel)
                && let Err(error) = {
                    let taken = self.take_back();
                    let closed = self.close();
                    taken.and(closed)
                }
            {
                tracing::error!(%error, "a month still has what the database has as well; the next run mends it");
            }
            if let Some(before) = self.next_walk() {
                let done = self.walk(&before).and_then(|()| self.give_back());
                let closed = self.close();
                let done = done.and_then(|()| self.parts.done(Duty::ArchiveEvents));
                let expired = expiry::delete_old(&self.parts, &self.archiving.archive);
                if let Err(error) = done.and(closed).and(expired) {
                    tracing::error!(%error, "finished events could not be archived; they stay, and it is tried again");
                    self.archiving.status.lock().error = Some(error.to_string());
                }
                let hot = self.parts.store.read(space::hot).ok();
                let mut status = self.archiving.status.lock();
                let now = self.parts.clock.wall();
                status.hot = hot;
                if self.archiving.asked.lock().is_some() {
                    *status = Status::begun(now, &status);
                } else {
                    (status.since, status.ended_at) = (None, Some(now));
                }
            }
            if let Some(now) = self.may_look(self.audit_due) {
                self.audit_due = self.parts.clock.now().plus(Duty::ArchiveAudit.every());
                let done = self.audit.run(now).and_then(|()| self.parts.done(Duty::ArchiveAudit));
                if let Err(error) = done {
                    tracing::error!(%error, "audit events could not be moved; they stay, and it is tried again");
                }
            }
            if let Err(error) = self.expiry.make_room(&self.parts, &self.archiving.archive) {
                tracing::error!(%error, "the oldest month could not be deleted; it is tried again");
            }
            self.archiving.bell.wait(CHECK_EVERY);
        }
    }

    /// What finished before which time is moved now; `None`: nothing is due.
    fn next_walk(&mut self) -> Option<Before> {
        let Parts { clock, settings, .. } = &*self.parts;
        if let Some(by) = self.archiving.asked.lock().take() {
            return Some(Before::all(by));
        }
        let now = self.may_look(self.due)?;
        self.due = clock.now().plus(Duty::ArchiveEvents.every());
        let mut status = self.archiving.status.lock();
        if status.since.is_some() {
            return None;
        }
        *status = Status::begun(clock.wall(), &status);
        Some(Before::set(&settings.get().archive, now.at()))
    }

    /// The time, if a walk is `due`. While the clock may be wrong, the age of a row is not known; a move needs room before it
    /// gives any.
    fn may_look(&self, due: Timestamp) -> Option<SureNow> {
        let is_due = self.parts.clock.now() >= due && !self.parts.disk.is_low();
        self.parts.clock.sure_now().filter(|_| is_due)
    }

    fn walk(&mut self, before: &Before) -> Result<()> {
        self.take_back()?;
        for kind in Kind::ALL {
            let mut walk = self.parts.store.read(|tx| walk::walk(tx, kind, before))?;
            while let Some(batch) =
                self.parts.store.read(|tx| walk::next(tx, kind, &mut walk, before))?
            {
                // A move needs room before it gives any.
                if self.stop.asked() || self.parts.disk.is_low() {
                    return Ok(());
                }
                if !batch.seqs.is_empty() {
                    let began = self.parts.clock.monotonic();
                    self.move_batch(&batch)?;
                    let took = self.parts.clock.monotonic().saturating_sub(began);
                    // Reading and copying take a processor from deliveries too.
                    expiry::pause(&self.stop, took);
                }
            }
        }
        Ok(())
    }

    /// Takes rows out of the files of months that the database has: a move was cut short, or an event came back. What the
    /// database does not have stays where it is.
    fn take_back(&mut self) -> Result<()> {
        for batch in self.parts.store.read(moves::out)? {
            if self.stop.asked() {
                break;
            }
            let there = self.parts.store.read(|tx| moves::present(tx, &batch))?;
            if !there.seqs.is_empty() && self.archiving.archive.path(&batch.month).exists() {
                let archive = self.archiving.archive.clone();
                let _alone = archive.write_alone();
                self.open(&batch.month)?.drop_out(&there)?;
                self.archiving.archive.note_change(&batch.month);
            }
            self.parts.planned_fault()?;
            let writer = self.parts.store.writer();
            writer.write(Queue::Upkeep, move |tx| moves::forget_out(tx, &batch))?;
        }
        Ok(())
    }

    fn move_batch(&mut self, batch: &Batch) -> Result<()> {
        let store = &self.parts.store;
        let (writer, noted) = (store.writer().clone(), batch.clone());
        if !writer.write(Queue::Upkeep, move |tx| moves::note_out(tx, &noted))? {
            return self.take_back();
        }
        self.parts.planned_fault()?;
        let (reader, now) = (store.own_reader()?, self.parts.clock.wall());
        let archive = self.archiving.archive.clone();
        let alone = archive.write_alone();
        let (copied, kept) = self.open(&batch.month)?.take_in(&reader.tx(), batch, now)?;
        self.archiving.archive.note_change(&batch.month);
        drop((reader, alone));
        if copied != kept {
            self.take_back()?;
            let value = format!("{} rows, {} expected", kept.rows, copied.rows);
            return Err(Error::Unreadable { column: "a file of the archive", value });
        }
        self.parts.planned_fault()?;
        let moved = batch.clone();
        let is_moved =
            self.parts.write_gently(&self.stop, move |tx| moves::end(tx, &moved, &copied))?;
        self.parts.planned_fault()?;
        if !is_moved {
            return self.take_back();
        }
        let mut status = self.archiving.status.lock();
        status.events += u64::try_from(batch.seqs.len()).unwrap_or(0);
        status.bytes += batch.bytes;
        Ok(())
    }

    /// Gives unused pages back to the file system, as far as more of them are unused than new events soon need.
    fn give_back(&self) -> Result<()> {
        let store = &self.parts.store;
        loop {
            let (unused, all) = store.read(space::pages)?;
            if unused < MIN_UNUSED.max(all / UNUSED_PART) || self.stop.asked() {
                break;
            }
            self.parts.planned_fault()?;
            self.parts.write_gently(&self.stop, space::give_back)?;
        }
        store.writer().room().ask_to_empty();
        Ok(())
    }

    fn open(&mut self, month: &Month) -> Result<&mut MonthFile> {
        let is_open = self
            .file
            .as_ref()
            .is_some_and(|(open, _, batches)| open == month && *batches < EMPTY_AFTER)
            && self.archiving.archive.path(month).exists();
        if !is_open {
            self.close()?;
            month_file::make(&self.archiving.archive, month)?;
            self.share(month)?;
        }
        let path = self.archiving.archive.path(month);
        let (_, file, batches) = match self.file.take() {
            Some(open) => self.file.insert(open),
            None => self.file.insert((month.clone(), MonthFile::open(&path)?, 0)),
        };
        *batches += 1;
        Ok(file)
    }

    fn share_all(&self) -> Result<()> {
        let months = self.archiving.archive.months();
        let months = months.map_err(|error| self.parts.store.file_error(error))?;
        months.iter().try_for_each(|month| self.share(month))
    }

    fn share(&self, month: &Month) -> Result<()> {
        let store = &self.parts.store;
        self.archiving.archive.share(month, store.path()).map_err(|error| store.file_error(error))
    }

    fn close(&mut self) -> Result<()> {
        self.file.take().map_or(Ok(()), |(_, file, _)| file.empty_log())
    }
}

/// Upgrades the files of months to the schema of the database. One that cannot be read is left: the log says so.
fn upgrade(archive: &Archive, parts: &Parts) -> Result<()> {
    for month in archive.months().map_err(|error| parts.store.file_error(error))? {
        if let Err(error) = schema::migrate_month(&archive.path(&month), &parts.faults) {
            tracing::error!(%error, %month, "a month of the archive cannot be upgraded and is not shown");
        }
    }
    Ok(())
}
