//! Table `jobs`, and the transaction that handles a batch of a job.
//!
//! Not here: finding the items of a job ([`dead_letters`], [`events`]).

pub mod dead_letters;
pub mod events;
mod expunged;
pub mod held;

use std::collections::BTreeMap;

use crate::base::clock::Timestamp;
use crate::base::id::DeliverySeq;
use crate::jobs::{
    Action, Batch, Became, CountedMatches, Cursor, Job, JobFilter, JobKind, JobState, MAX_COUNTED,
    MAX_REACHED, Matched, NewJob, Pace, Progress,
};
use crate::store::column::{Count, Json, to_json, words};
use crate::store::error::{Error, Result};
use crate::store::page::{Newest, RowPage};
use crate::store::sql::{changes, columns, insert, queries};
use crate::store::tx::{ReadTx, WriteTx};
use crate::store::{meta, settlement};

columns! {
    fn job() -> Job = "jobs" [
        seq, id, tenant, kind, filter as Json(filter), rate, reason,
        "iif(state = 'running' AND paused_at IS NOT NULL, 'paused', state)" as state, cursor as Json(cursor),
        matched as Count(matched), matched_more, done as Count(done), skipped as Count(skipped),
        deliveries as Count(deliveries), error, requested_by, created_at, finished_at
    ] {
        seq, new: NewJob { id, tenant, kind, filter, rate, reason, requested_by, created_at, cursor }, state,
        matched: Matched { count: matched, is_more: matched_more }, progress: Progress { done, skipped, deliveries },
        error, finished_at
    }
    const BY_ID = "WHERE tenant = ?1 AND id = ?2";
    const PAGE = "
     WHERE tenant = ?1
       AND seq < ?2
       AND (?4 IS NULL OR ?4 = iif(state = 'running' AND paused_at IS NOT NULL, 'paused', state))
     ORDER BY seq DESC
     LIMIT ?3";
    /// Tenants take turns, so that the long jobs of one keep no other's from beginning.
    const RUNNING = "
     WHERE state = 'running'
       AND paused_at IS NULL
     ORDER BY row_number() OVER (PARTITION BY tenant ORDER BY seq), seq
     LIMIT ?1";
}

const AT: &str =
    "SELECT cursor FROM jobs WHERE seq = ?1 AND state = 'running' AND paused_at IS NULL";

const REACHED: &str = "SELECT reached FROM jobs WHERE seq = ?1";

const SET_REACHED: &str = "UPDATE jobs SET reached = ?2 WHERE seq = ?1";

const BECAME: &str = "
    SELECT count(*) FILTER (WHERE d.state = 'completed'), count(*) FILTER (WHERE d.state = 'dead_letter'),
           count(*) FILTER (WHERE d.state = 'pending' AND d.delay_ms > 0),
           count(*) FILTER (WHERE d.state NOT IN ('completed', 'dead_letter', 'cancelled', 'skipped')
                              AND (d.state <> 'pending' OR d.delay_ms = 0)),
           count(*) FILTER (WHERE d.state IN ('cancelled', 'skipped')), count(*) FILTER (WHERE d.seq IS NULL)
      FROM jobs AS j, json_each(j.reached)
      LEFT JOIN deliveries AS d ON d.seq = json_each.value
     WHERE j.seq = ?1";

const ADVANCE: &str = "
    UPDATE jobs
       SET cursor = ?3, done = done + ?4, skipped = skipped + ?5, deliveries = deliveries + ?6, state = ?7,
           finished_at = ?8
     WHERE seq = ?1 AND cursor = ?2 AND state = 'running'";

words! {
    JobKind;
    JobState;
}

/// Running jobs that one question reads at most.
const MAX_RUNNING: u32 = 1000;
/// Items that are counted with one query.
const COUNTED_AT_ONCE: u32 = 1000;

queries! {
    /// A job by its id.
    pub fn by_id(tenant: &str, id: &str) -> Option<Job> = first as job BY_ID;
}

changes! {
    /// Keeps a running job from going on since that time; `None` lets it go on.
    /// Fails with `Changed` when it has ended.
    pub fn pause(seq: i64, since: Option<Timestamp>) of "the job" =
        "UPDATE jobs SET paused_at = ?2 WHERE seq = ?1 AND state = 'running'";

    /// Ends a running job, with an error if it failed. What was done stays done.
    /// Fails with `Changed` when it has ended.
    pub fn end(seq: i64, state: JobState, error: Option<&str>, now: Timestamp) of "the job" =
        "UPDATE jobs SET state = ?2, error = ?3, finished_at = ?4 WHERE seq = ?1 AND state = 'running'";
}

/// Stores a job.
pub fn insert(tx: &WriteTx<'_>, new: &NewJob, matched: Matched) -> Result<()> {
    insert!(tx, "jobs" of new {
        id, tenant, kind, filter: Json(&new.filter), rate, reason, cursor: Json(&new.cursor),
        matched: signed(matched.count), matched_more: matched.is_more, requested_by, created_at
    })
    .map(drop)
}

/// Jobs, newest first.
pub fn page(tx: &ReadTx<'_>, newest: Newest<'_>, state: Option<JobState>) -> Result<RowPage<Job>> {
    let Newest { tenant, before, limit } = newest;
    let params = (tenant, before, limit, state.map(JobState::as_str));
    Ok(RowPage::of(tx.rows(PAGE, params, job)?, limit, |job| job.seq))
}

/// Jobs that run: the oldest of each tenant first, then the second oldest of each.
pub fn running(tx: &ReadTx<'_>, limit: u32) -> Result<Vec<Job>> {
    let found = tx.rows(RUNNING, [limit], |row| Ok(job(row)))?;
    let mut running = Vec::with_capacity(found.len());
    for job in found {
        match job {
            Ok(job) => running.push(job),
            // A row that was edited by hand must not stop the other jobs.
            Err(error @ Error::Unreadable { .. }) => {
                tracing::error!(%error, "a job cannot be read; it waits until its row is repaired");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(running)
}

/// The id of a running replay that will come to dead letters of this lane before the given place in it.
pub fn replays_before(
    tx: &ReadTx<'_>,
    tenant: &str,
    lane: i64,
    order_at: Timestamp,
    seq: DeliverySeq,
) -> Result<Option<String>> {
    for Job { new, .. } in running(tx, MAX_RUNNING)? {
        let is_replay = new.kind == JobKind::ReplayDeadLetters && new.tenant == tenant;
        let first = if is_replay { dead_letters::first_of_lane(tx, &new, lane)? } else { None };
        if first.is_some_and(|first| first < (order_at.ms(), seq.0)) {
            return Ok(Some(new.id));
        }
    }
    Ok(None)
}

/// The cursor of a new job, which covers what exists now.
pub fn start(tx: &ReadTx<'_>, kind: JobKind, filter: &JobFilter) -> Result<Cursor> {
    if kind.is_of_dead_letters() {
        return Ok(Cursor { end: meta::deaths(tx)?, ..Cursor::default() });
    }
    events::start(tx, kind, filter)
}

/// What became of a job's deliveries; `None` if it opened or ended none.
pub fn became(tx: &ReadTx<'_>, seq: i64) -> Result<Option<Became>> {
    let has_any: Option<Option<String>> = tx.find(REACHED, [seq])?;
    if has_any.flatten().is_none() {
        return Ok(None);
    }
    tx.first(BECAME, [seq], |row| {
        let Count(sent) = row.get(0)?;
        let Count(failed_again) = row.get(1)?;
        let Count(retrying) = row.get(2)?;
        let Count(waiting) = row.get(3)?;
        let Count(ended) = row.get(4)?;
        let Count(gone) = row.get(5)?;
        Ok(Became { sent, failed_again, retrying, waiting, ended, gone })
    })
}

/// Notes deliveries that a job opened or ended, as long as there is room.
fn note_reached(tx: &WriteTx<'_>, seq: i64, new: &[DeliverySeq]) -> Result<()> {
    let known: Option<Option<String>> = tx.find(REACHED, [seq])?;
    let known = known.flatten().map(|json| serde_json::from_str::<Vec<i64>>(&json));
    let mut reached = known.transpose().unwrap_or_default().unwrap_or_default();
    let room = MAX_REACHED.saturating_sub(reached.len());
    if room > 0 && !new.is_empty() {
        let is_new = |seq: &i64| !reached.contains(seq);
        let more: Vec<i64> = new.iter().map(|new| new.0).filter(is_new).take(room).collect();
        reached.extend(more);
        tx.execute(SET_REACHED, (seq, to_json("jobs.reached", &reached)?))?;
    }
    Ok(())
}

/// The next batch of a job.
pub fn next_batch(tx: &ReadTx<'_>, job: &NewJob, cursor: &Cursor) -> Result<Batch> {
    let size = Pace::batch_size(job.rate);
    if job.kind.is_of_dead_letters() {
        return dead_letters::next(tx, job, cursor, size);
    }
    if job.kind.is_expunging() {
        return events::finished(tx, job, cursor, size);
    }
    events::next(tx, job, cursor, size)
}

/// Counts the items of a job, and returns the first `sample` of them; `is_over` says when counting takes too long.
pub fn matched(
    tx: &ReadTx<'_>,
    job: &NewJob,
    sample: usize,
    is_over: impl Fn() -> bool,
) -> Result<CountedMatches> {
    let mut count = 0_u64;
    let mut first = Vec::new();
    let mut by_subscription = BTreeMap::new();
    let mut cursor = job.cursor.clone();
    loop {
        let batch = if job.kind.is_of_dead_letters() {
            dead_letters::next_by_number(tx, job, &cursor, COUNTED_AT_ONCE)?
        } else if job.kind.is_expunging() {
            events::finished(tx, job, &cursor, COUNTED_AT_ONCE)?
        } else {
            events::next(tx, job, &cursor, COUNTED_AT_ONCE)?
        };
        let Batch { items, cursor: next, is_last } = batch;
        count = count.saturating_add(u64::try_from(items.len()).unwrap_or(u64::MAX));
        for subscription in items.iter().filter_map(|item| item.subscription) {
            let of_it: &mut u64 = by_subscription.entry(subscription).or_default();
            *of_it = of_it.saturating_add(1);
        }
        let room = sample.saturating_sub(first.len());
        first.extend(items.into_iter().take(room));
        if is_last || count > MAX_COUNTED || is_over() {
            let is_more = !is_last;
            let matched = Matched { count: count.min(MAX_COUNTED), is_more };
            return Ok(CountedMatches { matched, first, by_subscription });
        }
        cursor = next;
    }
}

/// Handles a batch and moves the cursor, in one transaction; `None` if the job does not run any more. `done`: it was
/// handled in another file.
pub fn advance(
    tx: &WriteTx<'_>,
    job: &Job,
    batch: &Batch,
    done: Option<Progress>,
    now: Timestamp,
) -> Result<Option<Progress>> {
    let was = to_json("jobs.cursor", &job.new.cursor)?;
    let at: Option<String> = tx.find(AT, [job.seq])?;
    if at.as_deref() != Some(was.as_str()) {
        return Ok(None);
    }
    let (progress, reached) = match done {
        Some(done) => (done, Vec::new()),
        None => carry_out(tx, &job.new, batch, now)?,
    };
    note_reached(tx, job.seq, &reached)?;
    let state = if batch.is_last { JobState::Completed } else { JobState::Running };
    tx.change_one(
        ADVANCE,
        (
            job.seq,
            was,
            to_json("jobs.cursor", &batch.cursor)?,
            signed(progress.done),
            signed(progress.skipped),
            signed(progress.deliveries),
            state.as_str(),
            batch.is_last.then_some(now),
        ),
        "the job",
    )?;
    Ok(Some(progress))
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Handles the items of a batch in their order. Items that have changed since they were read are skipped. Also tells which
/// deliveries it opened or ended.
pub fn carry_out(
    tx: &WriteTx<'_>,
    job: &NewJob,
    batch: &Batch,
    now: Timestamp,
) -> Result<(Progress, Vec<DeliverySeq>)> {
    if job.kind.is_expunging() {
        let seqs: Vec<i64> = batch.items.iter().map(|item| item.seq).collect();
        let done = expunged::expunge(tx, job.kind, &seqs, now)?;
        let skipped = u64::try_from(seqs.len()).unwrap_or(u64::MAX).saturating_sub(done);
        return Ok((Progress { done, skipped, deliveries: 0 }, Vec::new()));
    }
    let mut actions: Vec<_> = Vec::new();
    for (n, item) in batch.items.iter().enumerate() {
        actions.extend(item.actions.iter().map(|(place, action)| (*place, n, *action)));
    }
    // Dead letters are already in the order of their lanes. The deliveries of events have to be sorted.
    if !job.kind.is_of_dead_letters() {
        actions.sort_by_key(|(place, ..)| *place);
    }
    let mut progress = Progress::default();
    let mut reached = Vec::new();
    let mut is_done = vec![false; batch.items.len()];
    for (_, n, action) in actions {
        match tx.in_savepoint(|| carry_out_one(tx, job, action, now))? {
            Ok(delivery) => {
                reached.extend(delivery);
                progress.deliveries = progress.deliveries.saturating_add(1);
                if let Some(is_done) = is_done.get_mut(n) {
                    *is_done = true;
                }
            }
            Err(Error::Changed(_)) => {}
            Err(error) => return Err(error),
        }
    }
    let done = is_done.iter().filter(|is_done| **is_done).count();
    progress.done = u64::try_from(done).unwrap_or(0);
    progress.skipped = u64::try_from(is_done.len().saturating_sub(done)).unwrap_or(0);
    Ok((progress, reached))
}

/// Returns the delivery that it opened or ended.
fn carry_out_one(
    tx: &WriteTx<'_>,
    job: &NewJob,
    action: Action,
    now: Timestamp,
) -> Result<Option<DeliverySeq>> {
    match action {
        Action::Change { delivery, run_no, .. } if job.kind == JobKind::DiscardDeadLetters => {
            let reason = job.reason.as_deref().unwrap_or_default();
            let reason = format!("discarded by {}: {reason}", job.requested_by);
            settlement::discard(tx, delivery, run_no, &reason, now).map(|()| Some(delivery))
        }
        Action::Change { delivery, state, run_no } => {
            settlement::replay(tx, delivery, (state, run_no), now).map(|()| Some(delivery))
        }
        Action::Create(origin, subscription) => events::create(tx, origin, subscription, now),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::uses;

    #[test]
    fn items_of_a_job_are_found_by_number_or_index() {
        let row = "USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)";
        uses(events::NEXT, &[row]);
        uses(events::NEXT_WEBHOOK, &[row]);
        uses(events::DELIVERIES_OF, &["INDEX deliveries_of_event (outbox_seq=?)"]);
        uses(events::DELIVERIES_OF_WEBHOOK, &["INDEX deliveries_of_webhook_event (webhook_seq=?)"]);
        let attention = "INDEX deliveries_attention (state=? AND tenant=? AND seq>? AND seq<?)";
        uses(dead_letters::NEXT, &[attention]);
        uses(dead_letters::PLACE, &["COVERING INDEX deliveries_attention"]);
        uses(dead_letters::NEXT_OF_LANE, &["INDEX deliveries_dead_in_lane (lane=? AND order_at>?"]);
        uses(
            dead_letters::PLACE_IN_LANE,
            &["COVERING INDEX deliveries_dead_in_lane (lane=? AND order_at>?)"],
        );
        for sql in [AT, ADVANCE, REACHED, SET_REACHED] {
            uses(sql, &["INTEGER PRIMARY KEY"]);
        }
        uses(BECAME, &["SEARCH d USING INTEGER PRIMARY KEY (rowid=?) LEFT-JOIN"]);
        uses(held::WAITING, &["SEARCH d USING INTEGER PRIMARY KEY (rowid=?)"]);
        uses(PAGE, &["INDEX jobs_listed (tenant=? AND seq<?)"]);
        uses(BY_ID, &["INDEX sqlite_autoindex_jobs_1 (id=?)"]);
    }
}
