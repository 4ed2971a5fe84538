//! Tables `jobs` and `deliveries`: deliveries of a job which wait, and the holds of their subscriptions.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::base::clock::Timestamp;
use crate::base::id::SubscriptionSeq;
use crate::jobs::{Job, JobKind, JobState, MAX_REACHED, NewJob};
use crate::model::hold::{Hold, HoldReason};
use crate::model::name::Name;
use crate::model::waiting;
use crate::store::column::Count;
use crate::store::error::Result;
use crate::store::page::MAX_OF_INDEX;
use crate::store::subscriptions;
use crate::store::tx::ReadTx;

pub(super) const WAITING: &str = "
    SELECT count(*)
      FROM jobs AS j, json_each(j.reached)
      JOIN deliveries AS d ON d.seq = json_each.value
     WHERE j.seq = ?1 AND d.finished_at IS NULL";

const PENDING: &str = "
    SELECT d.subscription_seq, count(*)
      FROM jobs AS j, json_each(j.reached)
      JOIN deliveries AS d ON d.seq = json_each.value
     WHERE j.seq = ?1 AND d.state = 'pending'
     GROUP BY d.subscription_seq";

/// Deliveries of a job to one subscription, which wait for the end of a hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct HeldDeliveries {
    /// The subscription's name.
    pub subscription: Name,
    /// Their number.
    pub count: u64,
    /// The hold. Of several, the one that lasts longest.
    pub hold: Hold,
}

/// How many deliveries of jobs have not ended, by the numbers of the jobs: of completed jobs that send, the newest first,
/// until enough deliveries were looked at.
pub fn waiting(tx: &ReadTx<'_>, jobs: &[Job]) -> Result<BTreeMap<i64, u64>> {
    let mut found = BTreeMap::new();
    let mut left = u64::from(MAX_OF_INDEX);
    let most = u64::try_from(MAX_REACHED).unwrap_or(u64::MAX);
    for job in jobs.iter().filter(|job| job.state == JobState::Completed && job.new.kind.sends()) {
        let Some(rest) = left.checked_sub(job.progress.deliveries.min(most)) else { break };
        left = rest;
        let Count(waiting) = tx.value(WAITING, [job.seq])?;
        found.insert(job.seq, waiting);
    }
    Ok(found)
}

/// The holds for which deliveries of a job wait now.
pub fn of_job(tx: &ReadTx<'_>, job: &Job, now: Timestamp) -> Result<Vec<HeldDeliveries>> {
    if !job.new.kind.sends() {
        return Ok(Vec::new());
    }
    let counts = tx.rows(PENDING, [job.seq], |row| {
        let Count(count) = row.get(1)?;
        Ok((row.get::<_, i64>(0)?, count))
    })?;
    held(tx, counts, |_| true, now)
}

/// The holds for which the matches of a new job would wait. `counts` has their numbers by subscription.
pub fn of_new(
    tx: &ReadTx<'_>,
    new: &NewJob,
    counts: &BTreeMap<i64, u64>,
    now: Timestamp,
) -> Result<Vec<HeldDeliveries>> {
    if !new.kind.sends() {
        return Ok(Vec::new());
    }
    // A recovery resumes the subscription.
    let stays = |reason: HoldReason| new.kind != JobKind::Recover || !reason.ends_by_resume();
    held(tx, counts.iter().map(|(subscription, count)| (*subscription, *count)), stays, now)
}

fn held(
    tx: &ReadTx<'_>,
    counts: impl IntoIterator<Item = (i64, u64)>,
    stays: impl Fn(HoldReason) -> bool,
    now: Timestamp,
) -> Result<Vec<HeldDeliveries>> {
    let mut all = Vec::new();
    for (seq, count) in counts {
        let Some(mut of) = subscriptions::by_seq(tx, SubscriptionSeq(seq))? else { continue };
        of.holds.retain(|hold| stays(hold.reason));
        if let Some(hold) = waiting::longest(&of.holds, now) {
            let subscription = of.new.name.clone();
            all.push(HeldDeliveries { subscription, count, hold: hold.clone() });
        }
    }
    all.sort_by_key(|held| std::cmp::Reverse(held.count));
    Ok(all)
}
