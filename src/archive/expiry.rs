//! What is deleted for good: months that are old, the oldest month when the disk is full, and keys after a year.
//!
//! A month with an event of a legal hold stays. Events in the database are never deleted here.

use std::time::Duration;

use crate::archive::tables::month_file;
use crate::archive::work::ArchiveWork;
use crate::archive::{Archive, Month, removal};
use crate::base::clock::Timestamp;
use crate::base::id;
use crate::model::duty::Duty;
use crate::model::escalation::{Class, NewEscalation};
use crate::model::name::DEFAULT_TENANT;
use crate::store::error::Result;
use crate::store::tx::WriteTx;
use crate::store::writer::Queue;
use crate::store::{Store, escalations, seen_keys};

/// How long keys are known after the month in which their event finished.
const KEYS_KEPT: Duration = Duration::from_hours(24 * 366);
/// Keys that are read at once.
const MAX_KEYS: u32 = 1_000;
/// From the escalation that a month is deleted next, until it is.
const NOTICE: Duration = Duration::from_mins(10);

/// What is deleted next.
#[derive(Debug, Default)]
pub struct Expiry {
    /// The month that is deleted when the disk is still full at that time, by the monotonic clock.
    noticed: Option<(Month, Duration)>,
}

impl Expiry {
    /// While the disk is full: tells which month is deleted, and deletes it after [`NOTICE`].
    pub fn make_room(&mut self, work: &ArchiveWork, archive: &Archive) -> Result<()> {
        let is_asked = work.env.settings.get().archive.delete_when_full && work.disk.is_low();
        let now = work.env.clock.now();
        let passed = work.env.clock.monotonic();
        match self.noticed.take() {
            Some((month, _)) if !is_asked => tell(&work.env.store, None, &month, now),
            Some((month, due)) if passed < due => {
                self.noticed = Some((month, due));
                Ok(())
            }
            Some((month, _)) => {
                let is_gone = removal::delete(work, archive, &month, "archive.delete_when_full")?;
                work.disk.look();
                tell(&work.env.store, is_gone.then_some(Class::ArchiveDeleted), &month, now)
            }
            None if is_asked => {
                for month in oldest_first(archive, &work.env.store)? {
                    // One that cannot be read stays.
                    if matches!(removal::is_held(archive, &work.env.store, &month), Ok(false)) {
                        tell(&work.env.store, Some(Class::ArchiveDeletes), &month, now)?;
                        self.noticed = Some((month, passed.saturating_add(NOTICE)));
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
pub(super) fn delete_old(work: &ArchiveWork, archive: &Archive) -> Result<()> {
    let Some(now) = work.due(Duty::DeleteMonths)? else { return Ok(()) };
    let kept_from = now.minus(work.env.settings.get().archive.keep);
    let months = oldest_first(archive, &work.env.store)?;
    let mut read = Ok(());
    for month in months.iter().take_while(|month| month.end() <= kept_from) {
        match is_old(archive, &work.env.store, month, kept_from) {
            Ok(true) if removal::delete(work, archive, month, "archive.keep")? => break,
            Ok(_) => {}
            Err(error) => {
                tracing::error!(%error, %month, "a month of the archive cannot be read, and stays");
                read = Err(error);
            }
        }
    }
    forget_keys(&work.env.store, &Month::at(now.minus(KEYS_KEPT)), &months)?;
    // Also where a month cannot be read: the others are looked at once a day.
    work.done(Duty::DeleteMonths, now)?;
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
    let mut after = Vec::new();
    let of = month.to_string();
    let files: Vec<String> = files.iter().map(Month::to_string).collect();
    while let Some((last, old)) =
        store.read(|tx| seen_keys::old(tx, &after, MAX_KEYS, &of, &files))?
    {
        after = last;
        if !old.is_empty() {
            let forget = move |tx: &WriteTx<'_>| seen_keys::forget_all(tx, &old);
            store.writer().write(Queue::Upkeep, forget)?;
        }
    }
    Ok(())
}
