//! The table `reconciliations`: runs that compare a provider's list with what came.

use crate::base::clock::Timestamp;
use crate::sources::reconciliation::{NewRun, ReconciledDay, Run, RunState};
use crate::store::column::{Count, Json, to_json, words};
use crate::store::error::Result;
use crate::store::page::{Newest, RowPage};
use crate::store::sql::{changes, columns, insert, queries};
use crate::store::tx::{ReadTx, WriteTx, tuple};

columns! {
    fn run() -> Run = ("reconciliations" from "reconciliations AS r JOIN sources AS s ON s.seq = r.source_seq") [
        r.seq, r.id, r.tenant, r.provider, r.source_seq, "s.name" as source, r.is_dry, r.since, r.until, r.last_before,
        r.requested_by, r.state, r.days as Json(days), r.error, r.began_at, r.ended_at
    ] {
        seq,
        new: NewRun { id, tenant, provider, source_seq, is_dry, since, until, requested_by, began_at },
        source, last_before, state, days, error, ended_at
    }
    /// A run by its id.
    pub fn by_id(tenant: &str, provider: &str, id: &str) -> Option =
        "WHERE r.tenant = ?1 AND r.provider = ?2 AND r.id = ?3";
    /// The run of a source that is under way.
    pub fn running_of(source_seq: i64) -> Option = "WHERE r.source_seq = ?1 AND r.state = 'RUNNING'";
    const PAGE = "WHERE r.tenant = ?1 AND r.seq < ?2 AND r.provider = ?4 ORDER BY r.seq DESC LIMIT ?3";
}

/// Runs of a provider that are kept.
const MAX_KEPT: u32 = 200;
/// Runs that are deleted with a new one, at most.
const MAX_DELETED: u32 = 20;

const LAST_BEFORE: &str = "
    UPDATE reconciliations SET last_before = (SELECT coalesce(max(seq), 0) FROM webhook_events) WHERE seq = ?1";

const DELETE_OLD: &str = "
    DELETE FROM reconciliations
     WHERE seq IN (SELECT seq FROM reconciliations
                    WHERE tenant = ?1 AND provider = ?2 AND state <> 'RUNNING'
                    ORDER BY seq DESC LIMIT ?4 OFFSET ?3)";

const END: &str = "
    UPDATE reconciliations SET state = ?2, days = ?3, error = ?4, ended_at = ?5 WHERE seq = ?1 AND state = 'RUNNING'";

const LATEST: &str = "
    SELECT coalesce(sum((SELECT sum(value ->> 'missing') FROM json_each(r.days))), 0),
           coalesce(sum((SELECT sum(value ->> 'taken_in') FROM json_each(r.days))), 0),
           count(*) FILTER (WHERE r.state = 'FAILED'), min(r.ended_at)
      FROM reconciliations AS r
      JOIN providers AS p ON p.tenant = r.tenant AND p.name = r.provider AND p.deleted_at IS NULL
     WHERE r.seq IN (SELECT max(seq) FROM reconciliations WHERE state <> 'RUNNING' GROUP BY tenant, provider)";

words! {
    RunState;
}

/// Numbers of the latest run of each provider that has ended, over all tenants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatestRuns {
    /// Items that were missing.
    pub missing: u64,
    /// Items that came by the list alone.
    pub taken_in: u64,
    /// Runs that failed.
    pub failed: u64,
    /// When the one that ended first has ended; `None`: there is none.
    pub oldest_at: Option<Timestamp>,
}

queries! {
    /// Whether a run is under way whose source is not read: it is paused or deleted.
    pub fn has_abandoned() -> bool = value "
    SELECT EXISTS (SELECT 1 FROM reconciliations AS r JOIN sources AS s ON s.seq = r.source_seq
                    WHERE r.state = 'RUNNING' AND (s.state <> 'ACTIVE' OR s.deleted_at IS NOT NULL))";

    /// When the newest run of a source that takes something in began. The latest time may be from a clock that was ahead.
    pub fn last_begun(source_seq: i64) -> Option<Timestamp> = value "
    SELECT (SELECT began_at FROM reconciliations WHERE source_seq = ?1 AND is_dry = 0 ORDER BY seq DESC LIMIT 1)";
}

/// Sums up the latest run of each provider.
pub fn latest(tx: &ReadTx<'_>) -> Result<LatestRuns> {
    let latest = tx.first(LATEST, [], |row| {
        let (Count(missing), Count(taken_in), Count(failed), oldest_at) = tuple(row)?;
        Ok(LatestRuns { missing, taken_in, failed, oldest_at })
    })?;
    Ok(latest.unwrap_or_default())
}

changes! {
    /// Ends the runs whose source is not read.
    pub fn end_abandoned(why: &str, now: Timestamp) = "
    UPDATE reconciliations SET state = 'FAILED', error = ?1, ended_at = ?2
     WHERE state = 'RUNNING'
       AND EXISTS (SELECT 1 FROM sources AS s
                    WHERE s.seq = source_seq AND (s.state <> 'ACTIVE' OR s.deleted_at IS NOT NULL))";
}

/// Stores a run, and deletes the oldest ones of its provider beyond those that are kept. `None` if the source has one under way.
pub fn insert(tx: &WriteTx<'_>, new: &NewRun) -> Result<Option<i64>> {
    let inserted = insert!(tx, "reconciliations" of new {
        id, tenant, provider, source_seq, is_dry, since, until, requested_by, began_at
    } "ON CONFLICT DO NOTHING")?;
    if inserted == 0 {
        return Ok(None);
    }
    let seq = tx.conn().last_insert_rowid();
    tx.execute(LAST_BEFORE, [seq])?;
    tx.execute(DELETE_OLD, (&new.tenant, &new.provider, MAX_KEPT, MAX_DELETED))?;
    Ok(Some(seq))
}

/// Runs of a provider, the newest first.
pub fn page(tx: &ReadTx<'_>, newest: Newest<'_>, provider: &str) -> Result<RowPage<Run>> {
    let Newest { tenant, before, limit } = newest;
    let rows = tx.rows(PAGE, (tenant, before, limit, provider), run)?;
    Ok(RowPage::of(rows, limit, |run: &Run| run.seq))
}

/// The end of a run.
#[derive(Clone, Debug)]
pub(super) struct RunEnd {
    /// Its numbers; empty if it failed.
    pub(super) days: Vec<ReconciledDay>,
    /// Why it failed.
    pub(super) error: Option<String>,
}

/// Ends a run.
/// Fails with `Changed` when it has ended.
pub(super) fn end(tx: &WriteTx<'_>, seq: i64, end: &RunEnd, now: Timestamp) -> Result<()> {
    let state = if end.error.is_some() { RunState::Failed } else { RunState::Done };
    let days = to_json("reconciliations.days", &end.days)?;
    tx.change_one(END, (seq, state, days, &end.error, now), "the reconciliation")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::uses;

    #[test]
    fn runs_are_found_by_indexes() {
        uses(PAGE, &["INDEX reconciliations_listed (tenant=? AND provider=? AND seq<?)"]);
        uses(DELETE_OLD, &["INDEX reconciliations_listed (tenant=? AND provider=?)"]);
        uses(END, &["INTEGER PRIMARY KEY"]);
    }
}
