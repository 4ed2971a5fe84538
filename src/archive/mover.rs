//! The thread `archive`: moves what finished long enough ago into the files of the months.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;

use crate::archive::audit::AuditMover;
use crate::archive::expiry::{self, Expiry};
use crate::archive::tables::month_file::{self, MonthFile};
use crate::archive::tables::moves;
use crate::archive::tables::space::{self, Hot};
use crate::archive::tables::walk::{self, Before};
use crate::archive::work::{self, ArchiveWork};
use crate::archive::{AUDIT_DIRECTORY, Archive, ArchivedKind, Batch, DIRECTORY, Month, removal};
use crate::base::clock::{SureNow, Timestamp};
use crate::base::stop::Stop;
use crate::model::duty::Duty;
use crate::model::effect::EffectKind;
use crate::pipeline::threads::{Bell, Spawner, join};
use crate::store::Store;
use crate::store::claimed_effects::{self, ClaimedEffect};
use crate::store::error::{Error, Result};
use crate::store::schema;
use crate::store::writer::Queue;
use crate::sys::files;

/// How often it is checked whether a walk is due.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// Unused bytes that stay in the database: 8 MiB at least, and its tenth.
const MIN_UNUSED: u64 = 8 << 20;
const UNUSED_PART: u64 = 10;
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

/// The subject of the claim of a walk that somebody has asked for and that has not begun.
pub const WAITING: &str = "waiting";
/// The subject of the claim of the walk under way.
const RUNNING: &str = "running";

/// No walk begins while this exists.
#[derive(Debug)]
pub struct NoWalk(Arc<AtomicU32>);

impl Drop for NoWalk {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Knows what the thread does, and wakes it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Archiving {
    /// The files.
    pub archive: Archive,
    /// The files with audit events.
    pub audit: Archive,
    store: Store,
    status: Arc<Mutex<Status>>,
    /// How many months are being deleted by people.
    removals: Arc<AtomicU32>,
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

    /// The same. A walk that somebody has asked for counts as begun.
    pub fn status_with_asked(&self) -> Result<Status> {
        let asked = self.store.read(|tx| claimed_effects::of_kind(tx, EffectKind::ArchiveRun))?;
        let status = self.status.lock().clone();
        match (status.since, asked.first()) {
            (None, Some(effect)) => Ok(Status::begun(effect.new.claimed_at, &status)),
            _ => Ok(status),
        }
    }

    /// Wakes the thread: somebody has claimed a walk.
    pub fn ring(&self) {
        self.bell.ring();
    }

    /// Keeps walks from beginning, also one that was asked for. `None`: one is under way.
    pub fn without_walk(&self) -> Option<NoWalk> {
        let status = self.status.lock();
        if status.since.is_some() {
            return None;
        }
        self.removals.fetch_add(1, Ordering::AcqRel);
        Some(NoWalk(Arc::clone(&self.removals)))
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
    pub fn start(work: ArchiveWork, spawner: &Spawner) -> Result<Self> {
        let stop = Stop::new();
        let data = files::directory_of(work.env.store.path());
        let archiving = Archiving {
            archive: Archive::of(data, DIRECTORY),
            audit: Archive::of(data, AUDIT_DIRECTORY),
            store: work.env.store.clone(),
            status: Arc::default(),
            removals: Arc::default(),
            has_back: Arc::default(),
            bell: Bell::default(),
        };
        upgrade(&archiving.archive, &work)?;
        upgrade(&archiving.audit, &work)?;
        let due = work.env.clock.monotonic();
        let work = Arc::new(work);
        let audit = AuditMover::new(Arc::clone(&work), archiving.audit.clone(), stop.clone());
        let moving = Moving {
            work,
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

/// A walk that begins.
struct Walk {
    before: Before,
    reason: Reason,
}

/// Why a walk begins.
enum Reason {
    /// The hourly one was due at this time.
    Due(SureNow),
    /// A person asked for it.
    Asked(Box<ClaimedEffect>),
}

struct Moving {
    work: Arc<ArchiveWork>,
    archiving: Archiving,
    stop: Stop,
    /// When the next walk begins, by the monotonic clock.
    due: Duration,
    /// When audit events are looked at next, likewise.
    audit_due: Duration,
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
            if let Err(error) = removal::resume(&self.work, &self.archiving.archive) {
                tracing::error!(%error, "a month could not be deleted; it is tried again");
            }
            match self.next_walk() {
                Ok(Some(walk)) => self.carry_out(&walk),
                Ok(None) => {}
                Err(error) => {
                    tracing::error!(%error, "it is not known whether events are to be archived; it is tried again");
                }
            }
            if let Err(error) = self.move_audit() {
                tracing::error!(%error, "audit events could not be moved; they stay, and it is tried again");
            }
            if let Err(error) = self.expiry.make_room(&self.work, &self.archiving.archive) {
                tracing::error!(%error, "the oldest month could not be deleted; it is tried again");
            }
            self.archiving.bell.wait(CHECK_EVERY);
        }
    }

    fn move_audit(&mut self) -> Result<()> {
        let begun = self.work.env.clock.monotonic();
        let Some(now) = self.may_look(self.audit_due) else { return Ok(()) };
        self.audit_due = begun.saturating_add(Duty::ArchiveAudit.every());
        self.audit.run(now)?;
        self.work.done(Duty::ArchiveAudit, now)
    }

    /// Carries out a walk, and finishes its claim. A claimed walk that is cut short by a stop or by a full disk is resumed.
    fn carry_out(&mut self, walk: &Walk) {
        let done = self.walk(&walk.before).and_then(|()| self.give_back());
        let closed = self.close();
        let expired = expiry::delete_old(&self.work, &self.archiving.archive);
        let is_cut_short = self.stop.asked() || self.work.disk.is_low();
        let recorded = match &walk.reason {
            Reason::Due(now) if done.is_ok() => self.work.done(Duty::ArchiveEvents, *now),
            Reason::Asked(effect) if !is_cut_short => self.finish(ClaimedEffect::clone(effect)),
            Reason::Due(_) | Reason::Asked(_) => Ok(()),
        };
        if let Err(error) = done.and(closed).and(expired).and(recorded) {
            tracing::error!(%error, "finished events could not be archived; they stay, and it is tried again");
            self.archiving.status.lock().error = Some(error.to_string());
        }
        let hot = self.work.env.store.read(space::hot).ok();
        let mut status = self.archiving.status.lock();
        status.hot = hot;
        status.since = None;
        status.ended_at = Some(self.work.env.clock.wall());
    }

    fn finish(&self, effect: ClaimedEffect) -> Result<()> {
        let now = self.work.env.clock.now();
        let writer = self.work.env.store.writer();
        // The answer was sent when the walk was claimed.
        writer.write(Queue::Upkeep, move |tx| claimed_effects::finish(tx, &effect, None, now))
    }

    /// The walk that begins now: one that somebody has asked for, or the hourly one. `None`: nothing is due.
    fn next_walk(&mut self) -> Result<Option<Walk>> {
        let begun = self.work.env.clock.monotonic();
        let reason = match (self.next_claimed()?, self.may_look(self.due)) {
            (Some(effect), _) => Reason::Asked(Box::new(effect)),
            (None, Some(now)) => Reason::Due(now),
            (None, None) => return Ok(None),
        };
        {
            let mut status = self.archiving.status.lock();
            if self.archiving.removals.load(Ordering::Acquire) > 0 {
                return Ok(None);
            }
            *status = Status::begun(self.work.env.clock.wall(), &status);
        }
        let before = match &reason {
            Reason::Due(now) => {
                self.due = begun.saturating_add(Duty::ArchiveEvents.every());
                Before::set(&self.work.env.settings.get().archive, now.at())
            }
            Reason::Asked(effect) => {
                let before = effect.new.terms.get("before_ms").and_then(Value::as_i64);
                Before::all(Timestamp::from_ms(before.unwrap_or(0)))
            }
        };
        Ok(Some(Walk { before, reason }))
    }

    /// The walk that was claimed and is to be carried out. From then on another one can be claimed.
    fn next_claimed(&self) -> Result<Option<ClaimedEffect>> {
        let kind = EffectKind::ArchiveRun;
        let claimed = self.work.env.store.read(|tx| claimed_effects::of_kind(tx, kind))?;
        // A move needs room before it gives any.
        if self.work.disk.is_low() {
            return Ok(None);
        }
        if let Some(running) = claimed.iter().find(|effect| effect.new.subject == RUNNING) {
            return Ok(Some(running.clone()));
        }
        let Some(waiting) = claimed.into_iter().next() else { return Ok(None) };
        let seq = waiting.seq;
        let writer = self.work.env.store.writer();
        writer.write(Queue::Upkeep, move |tx| claimed_effects::rename(tx, seq, RUNNING))?;
        Ok(Some(waiting))
    }

    /// The time, if a walk is `due`. While the clock may be wrong, the age of a row is not known; a move needs room before it
    /// gives any.
    fn may_look(&self, due: Duration) -> Option<SureNow> {
        let is_due = self.work.env.clock.monotonic() >= due && !self.work.disk.is_low();
        self.work.env.clock.sure_now().filter(|_| is_due)
    }

    fn walk(&mut self, before: &Before) -> Result<()> {
        self.take_back()?;
        for kind in ArchivedKind::ALL {
            let mut walk = self.work.env.store.read(|tx| walk::walk(tx, kind, before))?;
            while let Some(batch) =
                self.work.env.store.read(|tx| walk::next(tx, kind, &mut walk, before))?
            {
                // A move needs room before it gives any.
                if self.stop.asked() || self.work.disk.is_low() {
                    return Ok(());
                }
                if !batch.seqs.is_empty() {
                    let began = self.work.env.clock.monotonic();
                    self.move_batch(&batch)?;
                    let took = self.work.env.clock.monotonic().saturating_sub(began);
                    // Reading and copying take a processor from deliveries too.
                    work::pause(&self.stop, took);
                }
            }
        }
        Ok(())
    }

    /// Takes rows out of the files of months that the database has: a move was cut short, or an event came back. What the
    /// database does not have stays where it is.
    fn take_back(&mut self) -> Result<()> {
        for batch in self.work.env.store.read(moves::out)? {
            if self.stop.asked() {
                break;
            }
            let there = self.work.env.store.read(|tx| moves::present(tx, &batch))?;
            if !there.seqs.is_empty() && self.archiving.archive.path(&batch.month).exists() {
                let archive = self.archiving.archive.clone();
                let _alone = archive.write_alone();
                self.open(&batch.month)?.drop_out(&there)?;
                self.archiving.archive.note_change(&batch.month);
            }
            self.work.planned_fault()?;
            let writer = self.work.env.store.writer();
            writer.write(Queue::Upkeep, move |tx| moves::forget_out(tx, &batch))?;
        }
        Ok(())
    }

    fn move_batch(&mut self, batch: &Batch) -> Result<()> {
        let store = &self.work.env.store;
        let writer = store.writer().clone();
        let noted = batch.clone();
        if !writer.write(Queue::Upkeep, move |tx| moves::note_out(tx, &noted))? {
            return self.take_back();
        }
        self.work.planned_fault()?;
        let reader = store.own_reader()?;
        let now = self.work.env.clock.wall();
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
        self.work.planned_fault()?;
        let moved = batch.clone();
        let is_moved =
            self.work.write_gently(&self.stop, move |tx| moves::end(tx, &moved, &copied))?;
        self.work.planned_fault()?;
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
        let store = &self.work.env.store;
        loop {
            let (unused, all) = store.read(space::bytes)?;
            if unused < MIN_UNUSED.max(all / UNUSED_PART) || self.stop.asked() {
                break;
            }
            self.work.planned_fault()?;
            self.work.write_gently(&self.stop, space::give_back)?;
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
        let months = months.map_err(|error| self.work.env.store.file_error(error))?;
        months.iter().try_for_each(|month| self.share(month))
    }

    fn share(&self, month: &Month) -> Result<()> {
        let store = &self.work.env.store;
        self.archiving.archive.share(month, store.path()).map_err(|error| store.file_error(error))
    }

    fn close(&mut self) -> Result<()> {
        self.file.take().map_or(Ok(()), |(_, file, _)| file.empty_log())
    }
}

/// Upgrades the files of months to the schema of the database. One that cannot be read is left: the log says so.
fn upgrade(archive: &Archive, work: &ArchiveWork) -> Result<()> {
    for month in archive.months().map_err(|error| work.env.store.file_error(error))? {
        if let Err(error) = schema::migrate_month(&archive.path(&month), &work.env.faults) {
            tracing::error!(%error, %month, "a month of the archive cannot be upgraded and is not shown");
        }
    }
    Ok(())
}
