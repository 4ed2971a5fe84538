//! What is deleted for good: months that are old, the oldest month when the disk is full, and keys after a year.
//!
//! A month with an event of a legal hold stays. Events in the database are never deleted here.

use std::sync::Arc;
use std::time::Duration;

use crate::archive::tables::month_file;
use crate::archive::{Archive, Month};
use crate::base::clock::{Clock, SureNow, Timestamp};
use crate::base::faults::{Faults, Step};
use crate::base::id;
use crate::base::stop::Stop;
use crate::config::Live;
use crate::model::audit::changes::Changes;
use crate::model::audit::{Actor, NewAuditEvent};
use crate::model::duty::Duty;
use crate::model::escalation::{Class, NewEscalation};
use crate::model::name::DEFAULT_TENANT;
use crate::pipeline::upkeep::disk_watch::DiskWatch;
use crate::store::chores;
use crate::store::error::{Error, Result};
use crate::store::tx::{ReadTx, WriteTx};
use crate::store::writer::Queue;
use crate::store::{Store, audit_events, escalations, legal_holds, seen_keys};

/// How long keys are known after the month in which their event finished.
const KEYS_KEPT: Duration = Duration::from_hours(24 * 366);
/// Keys that are read at once.
const MAX_KEYS: u32 = 1_000;
/// From the escalation that a month is deleted next, until it is.
const NOTICE: Duration = Duration::from_mins(10);

/// The pause after a batch, and after each change of it, as a multiple of its time.
const PAUSE_TIMES: u32 = 9;
/// The longest pause after a batch.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// What the thread needs.
pub struct Parts {
    /// The database.
    pub store: Store,
    /// Time.
    pub clock: Clock,
    /// What stays how long.
    pub settings: Live,
    /// Whether there is room.
    pub disk: Arc<DiskWatch>,
    /// Planned failures.
    pub faults: Faults,
}

impl Parts {
    /// Runs a job of the thread in a transaction of its own, and pauses after it.
    pub(super) fn write_gently<T: Send + 'static>(
        &self,
        stop: &Stop,
        mut job: impl FnMut(&WriteTx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let timer = self.clock.clone();
        let (value, took) = self.store.writer().write(Queue::Upkeep, move |tx| {
            let began = timer.monotonic();
            Ok((job(tx)?, timer.monotonic().saturating_sub(began)))
        })?;
        pause(stop, took);
        Ok(value)
    }

    /// The time, if a duty is due. While the clock may be wrong, the age of a file is not known.
    pub(super) fn due(&self, duty: Duty) -> Result<Option<SureNow>> {
        let Some(now) = self.clock.sure_now() else { return Ok(None) };
        let is_due = self.store.read(|tx| chores::is_due(tx, duty, now))?;
        Ok(Some(now).filter(|_| is_due))
    }

    /// Records that a duty was done. Where the clock became suspect meanwhile, it is done once more.
    pub(super) fn done(&self, duty: Duty) -> Result<()> {
        let Some(now) = self.clock.sure_now() else { return Ok(()) };
        self.store.writer().write(Queue::Upkeep, move |tx| chores::done(tx, duty, now))
    }

    pub(super) fn planned_fault(&self) -> Result<()> {
        if self.faults.hit(Step::Archive) { Err(Error::Full) } else { Ok(()) }
    }
}

/// Leaves the machine to others after work that took so long.
pub(super) fn pause(stop: &Stop, took: Duration) {
    stop.wait((took * PAUSE_TIMES).min(MAX_PAUSE));
}

/// What is deleted next.
#[derive(Debug, Default)]
pub struct Expiry {
    /// The month that is deleted when the disk is still full at that time.
    noticed: Option<(Month, Timestamp)>,
}

impl Expiry {
    /// While the disk is full: tells which month is deleted, and deletes it after [`NOTICE`].
    pub fn make_room(&mut self, parts: &Parts, archive: &Archive) -> Result<()> {
        let is_asked = parts.settings.get().archive.delete_when_full && parts.disk.is_low();
        let now = parts.clock.now();
        match self.noticed.take() {
            Some((month, _)) if !is_asked => tell(&parts.store, None, &month, now),
            Some((month, due)) if now < due => {
                self.noticed = Some((month, due));
                Ok(())
            }
            Some((month, _)) => {
                let is_gone = delete(parts, archive, &month, "archive.delete_when_full")?;
                parts.disk.look();
                tell(&parts.store, is_gone.then_some(Class::ArchiveDeleted), &month, now)
            }
            None if is_asked => {
                for month in oldest_first(archive, &parts.store)? {
                    // One that cannot be read stays.
                    if matches!(is_held(archive, &parts.store, &month), Ok(false)) {
                        tell(&parts.store, Some(Class::ArchiveDeletes), &month, now)?;
                        self.noticed = Some((month, now.plus(NOTICE)));
                        break;
                    }
                }
                Ok(())
            }
            None => Ok(()),
        }
    }
}

/// Once a day, deletes the oldest month that is older than `archive.keep`, and keys that are older than
/// [`KEYS_KEPT`]. A month that was deleted by mistake costs one file a day.
/// Fails if a month cannot be read, after it did the others.
pub(super) fn delete_old(parts: &Parts, archive: &Archive) -> Result<()> {
    let Some(now) = parts.due(Duty::DeleteMonths)? else { return Ok(()) };
    let kept_from = now.minus(parts.settings.get().archive.keep);
    let months = oldest_first(archive, &parts.store)?;
    let mut read = Ok(());
    for month in months.iter().take_while(|month| month.end() <= kept_from) {
        match is_old(archive, &parts.store, month, kept_from) {
            Ok(true) if delete(parts, archive, month, "archive.keep")? => break,
            Ok(_) => {}
            Err(error) => {
                tracing::error!(%error, %month, "a month of the archive cannot be read, and stays");
                read = Err(error);
            }
        }
    }
    forget_keys(&parts.store, &Month::at(now.minus(KEYS_KEPT)), &months)?;
    // Also where a month cannot be read: the others are looked at once a day.
    parts.done(Duty::DeleteMonths)?;
    read
}

/// The months that have a file.
pub(super) fn oldest_first(archive: &Archive, store: &Store) -> Result<Vec<Month>> {
    let mut months = archive.months().map_err(|error| store.file_error(error))?;
    months.reverse();
    Ok(months)
}

/// Whether all of a month was moved so long ago.
fn is_old(archive: &Archive, store: &Store, month: &Month, by: Timestamp) -> Result<bool> {
    // What was moved long after it finished is kept as long from then.
    let since = archive.read(month, store)?.read(month_file::since)?;
    Ok(since.is_none_or(|since| since <= by))
}

/// Whether the month has an event that must be kept.
pub fn is_held(archive: &Archive, store: &Store, month: &Month) -> Result<bool> {
    let holds = store.read(legal_holds::all)?;
    if holds.is_empty() {
        return Ok(false);
    }
    let find = |tx: &ReadTx<'_>| {
        for hold in &holds {
            if legal_holds::is_in(tx, hold)? {
                return Ok(true);
            }
        }
        Ok(false)
    };
    archive.read(month, store)?.read(find)
}

/// Deletes a month; `false` if a legal hold needs it.
fn delete(parts: &Parts, archive: &Archive, month: &Month, why: &'static str) -> Result<bool> {
    let (of, at) = (month.to_string(), parts.clock.wall());
    let holds = parts.store.read(legal_holds::all)?;
    if is_held(archive, &parts.store, month)? {
        return Ok(false);
    }
    parts.store.writer().write(Queue::Upkeep, move |tx: &WriteTx<'_>| {
        // A hold may have been made meanwhile.
        if legal_holds::all(tx)? != holds {
            return Err(Error::Changed("the legal holds"));
        }
        let event = NewAuditEvent::local(at, DEFAULT_TENANT, Actor::system(), "archive.delete");
        audit_events::append(tx, &event.of("archive", &of, Changes::none().and("because_of", why)))
    })?;
    archive.remove(month).map_err(|error| parts.store.file_error(error))?;
    tracing::warn!(%month, why, "a month of the archive was deleted");
    Ok(true)
}

/// Ends what was said about a month, and raises what is true now.
fn tell(store: &Store, class: Option<Class>, month: &Month, now: Timestamp) -> Result<()> {
    let subject = format!("archive:{month}");
    store.writer().write(Queue::Upkeep, move |tx: &WriteTx<'_>| {
        escalations::resolve(tx, DEFAULT_TENANT, Class::ArchiveDeletes, &subject, now)?;
        let Some(class) = class else { return Ok(()) };
        let new = NewEscalation {
            id: id::uuid7_of(now, &[class.as_str(), &subject]),
            tenant: DEFAULT_TENANT.to_owned(),
            class,
            subject: subject.clone(),
            detail: "archive.delete_when_full".to_owned(),
        };
        escalations::raise(tx, &new, now).map(drop)
    })
}

/// Forgets the keys of months before `month` that have no file any more.
fn forget_keys(store: &Store, month: &Month, files: &[Month]) -> Result<()> {
    let (mut after, of) = (Vec::new(), month.to_string());
    let files: Vec<String> = files.iter().map(Month::to_string).collect();
    while let Some((last, old)) =
        store.read(|tx| seen_keys::old(tx, &after, MAX_KEYS, (&of, &files)))?
    {
        after = last;
        if !old.is_empty() {
            let forget = move |tx: &WriteTx<'_>| seen_keys::forget_all(tx, &old);
            store.writer().write(Queue::Upkeep, forget)?;
        }
    }
    Ok(())
}
