//! The audit trail's files of months: audit events of months that are over leave the database for `audit/2026-11.db`.
//!
//! The oldest rows move, in the order of the chain, so the files and the database together are one chain. Rows are copied,
//! synced, read again and compared, and only then deleted. A file names the row before its first one. The rows of a file
//! that follow the start of a later one, or of the database, do not count: a move was cut short, or the database is an
//! older one that was restored.
//!
//! Not here: how rows are copied (`archive::tables`), and how the chain is verified (`store::audit_events`).

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use crate::archive::expiry::oldest_first;
use crate::archive::removal::audit_subject;
use crate::archive::tables::month_file::{self, MonthFile};
use crate::archive::work::ArchiveWork;
use crate::archive::{AUDIT_DIRECTORY, Archive, Month};
use crate::base::clock::{SureNow, Timestamp};
use crate::base::stop::Stop;
use crate::model::audit::chain::Head;
use crate::model::audit::changes::Changes;
use crate::model::audit::{Actor, NewAuditEvent};
use crate::model::duty::Duty;
use crate::model::effect::{AskedBy, EffectKind};
use crate::model::name::DEFAULT_TENANT;
use crate::pipeline::claims::Claim;
use crate::store::audit_events::{self, DELETE, LAST, Trail};
use crate::store::claimed_effects::{self, NewEffect};
use crate::store::error::{Error, Result};
use crate::store::tx::{ReadTx, WriteTx};
use crate::store::writer::Queue;
use crate::store::{meta, read_only};
use crate::sys::files;

/// How long after its end a month stays in the database at least.
const AFTER: Duration = Duration::from_hours(30 * 24);
/// How long the file of a month is kept after rows were moved into it last: seven years.
const KEPT: Duration = Duration::from_hours(7 * 366 * 24);
/// Rows of one batch.
const MAX_ROWS: u32 = 256;

/// Opens the audit events of a database and of the files beside it.
/// Returns `None` if the database has no audit events. Fails if a file cannot be read.
pub fn trail(database: &Path) -> Result<Option<Trail>> {
    let Some(mut trail) = Trail::open(database)? else { return Ok(None) };
    let archive = Archive::of(files::directory_of(database), AUDIT_DIRECTORY);
    let failed = |source| Error::File { path: database.to_owned(), source: Arc::new(source) };
    let months = archive.months().map_err(failed)?;
    trail.add_months(&months.iter().map(|month| archive.path(month)).collect::<Vec<_>>())?;
    Ok(Some(trail))
}

/// Moves audit events, and deletes the oldest files.
pub struct AuditMover {
    work: Arc<ArchiveWork>,
    archive: Archive,
    stop: Stop,
}

/// Rows that move together.
struct Batch {
    month: Month,
    /// Their numbers.
    seqs: Vec<i64>,
    /// The row before the first, and the last row.
    ends: [Head; 2],
}

impl AuditMover {
    /// Moves them between the database and these files.
    pub const fn new(work: Arc<ArchiveWork>, archive: Archive, stop: Stop) -> Self {
        Self { work, archive, stop }
    }

    /// Moves all rows of months that are over for long enough, and deletes the oldest file if it is old, also where a move
    /// failed.
    pub fn run(&self, now: SureNow) -> Result<()> {
        let moved = self.move_all(now);
        let removed = self.remove_old();
        moved.and(removed)
    }

    fn move_all(&self, now: SureNow) -> Result<()> {
        while !self.stop.asked() && !self.work.disk.is_low() {
            let Some(batch) = self.next(now)? else { break };
            self.move_batch(batch)?;
        }
        Ok(())
    }

    /// The next rows, all for one file.
    fn next(&self, now: SureNow) -> Result<Option<Batch>> {
        let recent = Month::at(now.minus(AFTER));
        let read =
            |tx: &ReadTx<'_>| Ok((audit_events::start(tx)?, audit_events::oldest(tx, MAX_ROWS)?));
        let (start, rows) = self.work.env.store.snapshot(read)?;
        let month = self.last_month(start)?;
        let mut batch = Batch { month, seqs: Vec::new(), ends: [start, start] };
        for (head, at) in rows {
            // The files have the order of the chain, whatever the clock said: a row whose time was set back, or is far ahead,
            // stays with the row before it.
            let is_ahead = at > now.at().plus(AFTER);
            let later = Some(Month::at(at)).filter(|its| *its > batch.month && !is_ahead);
            let is_full = later.is_some() && !batch.seqs.is_empty();
            let month = later.unwrap_or_else(|| batch.month.clone());
            if is_full || month >= recent {
                break;
            }
            (batch.month, batch.ends) = (month, [start, head]);
            batch.seqs.push(head.seq);
        }
        Ok(Some(batch).filter(|batch| !batch.seqs.is_empty()))
    }

    /// The month of the row before the first row of the database. If there is none, the first month of all, for rows that a
    /// clock without a battery wrote.
    fn last_month(&self, start: Head) -> Result<Month> {
        for month in oldest_first(&self.archive, &self.work.env.store)?.into_iter().rev() {
            let file = read_only(&self.archive.path(&month))?;
            if meta::audit_start(&file.tx())?.is_some_and(|first| first.seq < start.seq) {
                return Ok(month);
            }
        }
        Ok(Month::at(Timestamp::default()))
    }

    fn move_batch(&self, Batch { month, seqs, ends }: Batch) -> Result<()> {
        let seqs = serde_json::to_string(&seqs).unwrap_or_default();
        month_file::make(&self.archive, &month)?;
        self.work.planned_fault()?;
        let path = self.archive.path(&month);
        let mut file = MonthFile::open(&path)?;
        let reader = self.work.env.store.own_reader()?;
        let now = self.work.env.clock.wall();
        let (there, kept) = file.take_in_audit(&reader.tx(), &seqs, ends, now)?;
        drop(reader);
        file.empty_log()?;
        if there != kept {
            let value = format!("{} has other rows than the database", path.display());
            return Err(Error::Unreadable { column: "a file of audit events", value });
        }
        self.work.planned_fault()?;
        self.work.write_gently(&self.stop, move |tx| {
            if month_file::audit_summary(tx, &seqs)? != there {
                return Err(Error::Changed("audit events that are moved"));
            }
            let [start, last] = ends;
            audit_events::leave(tx, start, last)
        })?;
        self.work.planned_fault()
    }

    /// Deletes the oldest file, if it is old: claimed, done, then finished with its audit event. One that failed is tried
    /// again, and no other one is begun meanwhile.
    fn remove_old(&self) -> Result<()> {
        for claim in self.work.claims.left(&[EffectKind::ArchiveDelete])? {
            if let Some(month) = month_of(&claim) {
                self.finish(&month, &claim)?;
            }
        }
        let Some(now) = self.work.due(Duty::DeleteAudit)? else { return Ok(()) };
        if let Some(month) = oldest_first(&self.archive, &self.work.env.store)?.into_iter().next() {
            let file = read_only(&self.archive.path(&month))?;
            if month_file::since(&file.tx())?.is_some_and(|since| since <= now.minus(KEPT)) {
                let last = audit_events::head(&file.tx())?;
                drop(file);
                let claim = self.claim(&month, last, now.at())?;
                self.finish(&month, &claim)?;
            }
        }
        self.work.done(Duty::DeleteAudit, now)
    }

    /// Claims the deletion of a file whose last row is `last`.
    fn claim(&self, month: &Month, last: Head, at: Timestamp) -> Result<Claim> {
        let by = NewAuditEvent::local(at, DEFAULT_TENANT, Actor::system(), DELETE);
        let new = NewEffect {
            kind: EffectKind::ArchiveDelete,
            subject: audit_subject(month),
            tenant: DEFAULT_TENANT.to_owned(),
            terms: json!({ LAST: last.to_string() }),
            asked_by: AskedBy::of(&by),
            key: None,
            claimed_at: self.work.env.clock.now(),
        };
        let refuse_none = |_: &WriteTx<'_>| Ok(Ok::<(), Error>(()));
        let claimed = self.work.claims.claim(new, refuse_none)?;
        claimed.ok_or(Error::Changed("the file of audit events"))?
    }

    /// Deletes a file whose deletion is claimed, and stores the one audit event about it.
    fn finish(&self, month: &Month, claim: &Claim) -> Result<()> {
        self.work.planned_fault()?;
        let alone = self.archive.write_alone();
        self.archive
            .remove(month, &alone)
            .map_err(|error| self.work.env.store.file_error(error))?;
        drop(alone);
        let changes = Changes::none().and(LAST, claim.effect.term(LAST));
        let asked_by = &claim.effect.new.asked_by;
        let event = asked_by.event(self.work.env.clock.wall(), DEFAULT_TENANT);
        let event = event.of("audit", &month.to_string(), changes);
        let effect = claim.effect.clone();
        let now = self.work.env.clock.now();
        self.work.env.store.writer().write(Queue::Upkeep, move |tx| {
            claimed_effects::finish(tx, &effect, None, now)?;
            audit_events::append(tx, &event).map(drop)
        })
    }
}

/// The month of a claim that deletes a file of audit events.
fn month_of(claim: &Claim) -> Option<Month> {
    let (directory, month) = claim.effect.new.subject.split_once('/')?;
    Month::parse(month).filter(|_| directory == AUDIT_DIRECTORY)
}

/// Whether the file of a month can have rows of a span of time.
pub fn may_have(month: &Month, since: Option<Timestamp>, until: Option<Timestamp>) -> bool {
    since.is_none_or(|since| *month >= Month::at(since))
        && until.is_none_or(|until| *month <= Month::at(until))
}
