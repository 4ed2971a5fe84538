//! Jobs that remove what finished events have: first in the database, then in each month of the archive.
//!
//! An event that moves meanwhile is found in its month. A batch that was cut short is done again: what is expunged does
//! not match any more.

use crate::archive::tables::month_file::MonthFile;
use crate::archive::{Archive, Month};
use crate::base::clock::Timestamp;
use crate::jobs::{Batch, Cursor, Job, Matched, NewJob, Progress, tables};
use crate::store::error::{Error, Result};
use crate::store::tx::WriteTx;
use crate::store::writer::Queue;
use crate::store::{Store, legal_holds};

/// Does the next batch, and notes how far the job is.
pub(super) fn batch(store: &Store, archive: &Archive, job: &Job, now: Timestamp) -> Result<()> {
    let new = &job.new;
    let month = job.new.cursor.month.as_deref();
    let (mut batch, done) = match month.and_then(Month::parse) {
        None => (store.snapshot(|tx| tables::next_batch(tx, new, &new.cursor))?, None),
        Some(month) => {
            let (batch, done) = in_month(store, archive, new, &month, now)?;
            (batch, Some(done))
        }
    };
    if batch.is_last {
        let mut months = archive.months().map_err(|error| store.file_error(error))?;
        months.reverse();
        let is_next = |of: &Month| month.is_none_or(|month| of.to_string().as_str() > month);
        if let Some(next) = months.into_iter().find(is_next) {
            let month = Some(next.to_string());
            batch.cursor = Cursor { month, after: 0, webhook_after: 0, ..batch.cursor };
            batch.is_last = false;
        } else {
            store.writer().room().ask_to_empty();
        }
    }
    let job = job.clone();
    let run = move |tx: &WriteTx<'_>| tables::advance(tx, &job, &batch, done, now).map(drop);
    store.writer().write(Queue::Upkeep, run)
}

/// How many events of a month a job would remove what they have from. The legal holds of the database are obeyed, which a
/// file of a month does not have.
pub fn matched_in_month(
    store: &Store,
    archive: &Archive,
    job: &NewJob,
    month: &Month,
    is_over: impl Fn() -> bool,
) -> Result<Matched> {
    let holds = store.read(legal_holds::all)?;
    let matched = if holds.is_empty() {
        archive.read(month, store)?.read(|tx| tables::matched(tx, job, 0, is_over))
    } else {
        let _alone = archive.write_alone();
        MonthFile::open(&archive.path(month))?.try_out(|tx| {
            legal_holds::lend(tx, &holds)?;
            tables::matched(tx, job, 0, is_over)
        })
    };
    matched.map(|counted| counted.matched)
}

fn in_month(
    store: &Store,
    archive: &Archive,
    job: &NewJob,
    month: &Month,
    now: Timestamp,
) -> Result<(Batch, Progress)> {
    let _alone = archive.write_alone();
    let path = archive.path(month);
    if !path.exists() {
        let batch = Batch { items: Vec::new(), cursor: job.cursor.clone(), is_last: true };
        return Ok((batch, Progress::default()));
    }
    let holds = store.read(legal_holds::all)?;
    let mut file = MonthFile::open(&path)?;
    let (mut batch, done) = file.change(|tx| {
        legal_holds::lend(tx, &holds)?;
        let batch = tables::next_batch(tx, job, &job.cursor)?;
        let (done, _none) = tables::carry_out(tx, job, &batch, now)?;
        legal_holds::take_back(tx)?;
        Ok((batch, done))
    })?;
    // What was removed is in the log as well, which must not grow with the job.
    match file.empty_log_surely() {
        // Somebody reads an earlier state. What was done is noted first; then the job waits for them.
        Err(Error::Busy) if !batch.items.is_empty() => batch.is_last = false,
        emptied => emptied?,
    }
    Ok((batch, done))
}
