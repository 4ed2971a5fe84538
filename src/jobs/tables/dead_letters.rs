//! Table `deliveries`: the next dead letters of a job, lane by lane, and a summary of dead letters by their error and
//! the target's words.

use std::collections::BTreeSet;

use rusqlite::{ToSql, params};
use schemars::JsonSchema;
use serde::Serialize;

use crate::base::clock::Timestamp;
use crate::base::id::DeliverySeq;
use crate::base::schema::{NameText, Whole};
use crate::jobs::{Action, Batch, Cursor, Item, NewJob};
use crate::model::delivery::DeliveryState;
use crate::model::outcome::AttemptClass;
use crate::store::column::{Count, cell};
use crate::store::error::Result;
use crate::store::page::{MAX_OF_INDEX, Span};
use crate::store::sql::{in_order, sql};
use crate::store::subscriptions;
use crate::store::tx::ReadTx;

/// Most dead letters that a summary reads: each is two seeks, far from each other in a large file.
const MAX_SUMMARIZED: u32 = 1_000;
/// Most groups that a summary shows.
const MAX_GROUPS: u32 = 100;

// Dead letters newer than the job are left out: the job itself may have replayed them without success.
macro_rules! matches_filter {
    () => {
        "      AND coalesce(d.died_no, 0) <= ?4
               AND (?5 IS NULL OR d.subscription_seq = ?5)
               AND (?6 IS NULL OR d.last_class = ?6)
               AND (?7 IS NULL OR d.created_at >= ?7)
               AND (?8 IS NULL OR d.created_at < ?8)
               AND (?9 IS NULL OR ?9 = (SELECT a.http_status FROM attempts AS a
                                         WHERE a.delivery_seq = d.seq AND a.n = d.attempt_count))
               AND (?10 IS NULL OR coalesce(o.event_type, w.event_type) = ?10)
               AND (?11 IS NULL OR o.aggregate_type = ?11)
               AND (?12 IS NULL OR o.aggregate_id = ?12)
               AND (?13 IS NULL
                OR ?13 = coalesce((SELECT answer_sentence(a.excerpt, a.failed_reason, d.reason)
                                     FROM attempts AS a
                                    WHERE a.delivery_seq = d.seq AND a.n = d.attempt_count),
                                  answer_sentence(NULL, NULL, d.reason)))"
    };
}

macro_rules! next {
    ($index:literal where $place:literal order $order:literal) => {
        sql!(
            "SELECT d.seq, d.run_no, d.lane, d.order_at, d.subscription_seq
               FROM deliveries AS d INDEXED BY " $index "  LEFT JOIN outbox AS o ON o.seq = d.outbox_seq
               LEFT JOIN webhook_events AS w ON w.seq = d.webhook_seq
              WHERE d.state = 'dead_letter'
                AND d.tenant = ?1
                AND " $place matches_filter!() " ORDER BY " $order " LIMIT ?3"
        )
    };
}

pub(crate) const NEXT: &str =
    next!("deliveries_attention" where "d.seq > ?2 AND d.seq <= ?14" order "d.seq");

pub(crate) const NEXT_OF_LANE: &str = next!(
    "deliveries_dead_in_lane" where "d.lane = ?2 AND (d.order_at, d.seq) > (?14, ?15)
                AND (d.order_at, d.seq) <= (?16, ?17)"
    order "d.order_at, d.seq"
);

pub(crate) const PLACE: &str = "
    SELECT seq FROM deliveries
     WHERE state = 'dead_letter' AND tenant = ?1 AND seq > ?2
     ORDER BY seq LIMIT 1 OFFSET ?3";

pub(crate) const PLACE_IN_LANE: &str = "
    SELECT order_at, seq FROM deliveries
     WHERE lane = ?1 AND state = 'dead_letter' AND (order_at, seq) > (?2, ?3)
     ORDER BY order_at, seq LIMIT 1 OFFSET ?4";

/// Groups the newest dead letters that an index finds.
macro_rules! summary {
    ($index:literal, $of:literal) => {
        sql!(
            "SELECT s.name, d.last_class, a.http_status, answer_sentence(a.excerpt, a.failed_reason, d.reason),
                    max(d.reason), count(*), min(d.finished_at), max(d.finished_at), max(d.seq),
                    max(iif(d.outbox_seq IS NULL, NULL, d.seq))
               FROM (SELECT l.seq
                       FROM deliveries AS l INDEXED BY " $index "         WHERE l.state = 'dead_letter'
                        AND l.tenant = ?1
                        AND " $of "           AND (?3 IS NULL OR l.created_at >= ?3)
                        AND (?4 IS NULL OR l.created_at < ?4)
                      ORDER BY l.seq DESC
                      LIMIT ?5) AS newest
               JOIN deliveries AS d ON d.seq = newest.seq
               JOIN subscriptions AS s ON s.seq = d.subscription_seq
               LEFT JOIN attempts AS a ON a.delivery_seq = d.seq AND a.n = d.attempt_count
              GROUP BY 1, 2, 3, 4
              ORDER BY count(*) DESC, max(d.seq) DESC
              LIMIT ?6"
        )
    };
}

const SUMMARY: &str = summary!("deliveries_attention", "?2 IS NULL");
const SUMMARY_OF_SUBSCRIPTION: &str =
    summary!("deliveries_attention_of", "l.subscription_seq = ?2");

/// A dead letter that was found.
struct Dead {
    seq: i64,
    run_no: u32,
    lane: Option<i64>,
    order_at: Timestamp,
    subscription_seq: i64,
}

/// A place in a lane: `order_at` and number of the delivery.
pub(super) type Place = (i64, i64);

/// Dead letters of a lane that match a filter.
struct FoundInLane {
    dead: Vec<Dead>,
    /// The last place that was looked at, if the lane may have more.
    next: Option<Place>,
    /// Whether the search has read its share of rows, or the whole lane.
    has_looked_enough: bool,
}

/// The search for dead letters that match a job's filter.
struct Search<'a> {
    tx: &'a ReadTx<'a>,
    job: &'a NewJob,
    subscription: Option<i64>,
    ids: Option<BTreeSet<i64>>,
}

impl<'a> Search<'a> {
    /// `None` if the filter's subscription does not exist any more: then it has no dead letters.
    fn new(tx: &'a ReadTx<'a>, job: &'a NewJob) -> Result<Option<Self>> {
        let subscription = match &job.filter.subscription {
            None => None,
            Some(name) => match subscriptions::find(tx, &job.tenant, name)? {
                None => return Ok(None),
                Some(found) => Some(found.seq.0),
            },
        };
        let ids = job.filter.ids.as_ref().map(|ids| ids.iter().map(|id| id.0).collect());
        Ok(Some(Self { tx, job, subscription, ids }))
    }

    fn rows(&self, sql: &str, at: i64, limit: u32, place: &[&dyn ToSql]) -> Result<Vec<Dead>> {
        let NewJob { tenant, filter, cursor, .. } = self.job;
        let class = filter.class.map(AttemptClass::as_str);
        let mut params: Vec<&dyn ToSql> = vec![tenant, &at, &limit, &cursor.end];
        params.extend_from_slice(params![
            self.subscription,
            class,
            filter.since,
            filter.until,
            filter.code,
            filter.event_type,
            filter.aggregate_type,
            filter.aggregate_id,
            filter.answer,
        ]);
        params.extend_from_slice(place);
        self.tx.rows(
            sql,
            &*params,
            in_order!(Dead { seq, run_no, lane, order_at, subscription_seq }),
        )
    }

    /// The next dead letters by number, and the number up to which was searched; `None` if there are no more.
    fn next(&self, after: i64, limit: u32) -> Result<(Vec<Dead>, Option<i64>)> {
        if let Some(ids) = &self.ids {
            return self.next_of_ids(ids, after, limit);
        }
        let skipped = MAX_OF_INDEX.saturating_sub(1);
        let place = (&self.job.tenant, after, skipped);
        let end: Option<i64> = self.tx.find(PLACE, place)?;
        let found = self.rows(NEXT, after, limit, params![end.unwrap_or(i64::MAX)])?;
        let last = found.last().filter(|_| is_full(&found, limit)).map(|dead| dead.seq);
        Ok((found, last.or(end)))
    }

    /// Reads each by its number, which is fast however many dead letters there are.
    fn next_of_ids(
        &self,
        ids: &BTreeSet<i64>,
        after: i64,
        limit: u32,
    ) -> Result<(Vec<Dead>, Option<i64>)> {
        let mut found = Vec::new();
        for id in ids.range(after.saturating_add(1)..) {
            found.extend(self.rows(NEXT, id.saturating_sub(1), 1, params![id])?);
            if is_full(&found, limit) {
                return Ok((found, Some(*id)));
            }
        }
        Ok((found, None))
    }

    /// The next dead letters of a lane after a place, in its order.
    fn next_of_lane(&self, lane: i64, place: Place, limit: u32) -> Result<FoundInLane> {
        let (order_at, seq) = place;
        let skipped = MAX_OF_INDEX.saturating_sub(1);
        let end: Option<Place> =
            self.tx.first(PLACE_IN_LANE, (lane, order_at, seq, skipped), |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?;
        let (end_at, end_seq) = end.unwrap_or((i64::MAX, i64::MAX));
        let range = params![order_at, seq, end_at, end_seq];
        let mut dead = self.rows(NEXT_OF_LANE, lane, limit, range)?;
        let last = dead.last().filter(|_| is_full(&dead, limit));
        let last = last.map(|dead| (dead.order_at.ms(), dead.seq));
        dead.retain(|dead| self.ids.as_ref().is_none_or(|ids| ids.contains(&dead.seq)));
        Ok(FoundInLane { dead, has_looked_enough: last.is_none(), next: last.or(end) })
    }

    /// Adds dead letters of the current lane until the batch is full, or enough rows were looked at. The cursor stays in
    /// the lane if there may be more.
    fn take_lane(&self, batch: &mut Batch, limit: u32) -> Result<()> {
        while let Some((lane, order_at, seq)) = batch.cursor.lane {
            let have = u32::try_from(batch.items.len()).unwrap_or(u32::MAX);
            let room = limit.saturating_sub(have);
            if room == 0 {
                break;
            }
            let found = self.next_of_lane(lane, (order_at, seq), room)?;
            batch.items.extend(found.dead.iter().map(item));
            batch.cursor.lane = found.next.map(|(order_at, seq)| (lane, order_at, seq));
            if found.has_looked_enough {
                break;
            }
        }
        Ok(())
    }
}

fn is_full<T>(found: &[T], limit: u32) -> bool {
    u32::try_from(found.len()).is_ok_and(|have| have >= limit)
}

fn item(dead: &Dead) -> Item {
    let delivery = DeliverySeq(dead.seq);
    let action = Action::Change { delivery, state: DeliveryState::DeadLetter, run_no: dead.run_no };
    let actions = vec![((dead.order_at, dead.seq), action)];
    let subscription = Some(dead.subscription_seq);
    Item { seq: dead.seq, is_webhook_event: false, subscription, actions }
}

/// The next dead letters, in the order in which they are handled. After the first one of a lane, the others of the lane
/// follow in the lane's order. If they do not fit into the batch, the next batch continues with them.
pub(super) fn next(tx: &ReadTx<'_>, job: &NewJob, cursor: &Cursor, limit: u32) -> Result<Batch> {
    let Some(search) = Search::new(tx, job)? else { return Ok(last(cursor)) };
    let mut batch = Batch { items: Vec::new(), cursor: cursor.clone(), is_last: false };
    // Lanes that this batch has handled. In its snapshot their dead letters are unchanged and would be found again.
    let mut lanes = BTreeSet::new();
    lanes.extend(cursor.lane.map(|(lane, ..)| lane));
    search.take_lane(&mut batch, limit)?;
    if is_full(&batch.items, limit) || batch.cursor.lane.is_some() {
        return Ok(batch);
    }
    let (found, end) = search.next(cursor.after, limit)?;
    for dead in &found {
        if is_full(&batch.items, limit) {
            return Ok(batch);
        }
        batch.cursor.after = dead.seq;
        match dead.lane {
            None => batch.items.push(item(dead)),
            Some(lane) if lanes.insert(lane) => {
                batch.cursor.lane = Some((lane, i64::MIN, i64::MIN));
                search.take_lane(&mut batch, limit)?;
                if batch.cursor.lane.is_some() {
                    return Ok(batch);
                }
            }
            Some(_) => {}
        }
    }
    batch.cursor.after = end.unwrap_or(batch.cursor.after);
    batch.is_last = end.is_none() && batch.cursor.lane.is_none();
    Ok(batch)
}

/// The place of the first dead letter of a lane that a job will handle.
pub(super) fn first_of_lane(tx: &ReadTx<'_>, job: &NewJob, lane: i64) -> Result<Option<Place>> {
    let Some(search) = Search::new(tx, job)? else { return Ok(None) };
    let cursor = Cursor { lane: Some((lane, i64::MIN, i64::MIN)), ..Cursor::default() };
    let mut batch = Batch { cursor, ..Batch::default() };
    while batch.items.is_empty() && batch.cursor.lane.is_some() {
        search.take_lane(&mut batch, 1)?;
    }
    let places = batch.items.iter().flat_map(|item| &item.actions);
    Ok(places.map(|((order_at, seq), _)| (order_at.ms(), *seq)).min())
}

/// The next dead letters by number, for counting.
pub(super) fn next_by_number(
    tx: &ReadTx<'_>,
    job: &NewJob,
    cursor: &Cursor,
    limit: u32,
) -> Result<Batch> {
    let Some(search) = Search::new(tx, job)? else { return Ok(last(cursor)) };
    let (found, end) = search.next(cursor.after, limit)?;
    let cursor = Cursor { after: end.unwrap_or(cursor.after), ..cursor.clone() };
    Ok(Batch { items: found.iter().map(item).collect(), cursor, is_last: end.is_none() })
}

fn last(cursor: &Cursor) -> Batch {
    Batch { items: Vec::new(), cursor: cursor.clone(), is_last: true }
}

/// Dead letters of one subscription with the same error and the same answer.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "DeadLetterGroup")]
pub struct Group {
    #[schemars(with = "NameText")]
    pub subscription: String,
    /// The class of the last attempt.
    pub class: Option<AttemptClass>,
    /// Its HTTP status.
    #[schemars(with = "Option<Whole<100, 999>>")]
    pub code: Option<u16>,
    /// The sentence in which the target answered; if it sent no answer, why the attempt failed. What differs between
    /// requests is left out: UUIDs, times of day, long hexadecimal numbers.
    pub answer: Option<String>,
    /// Why one of them was given up.
    pub reason: Option<String>,
    pub count: u64,
    /// When the oldest one was given up.
    pub oldest_at: Timestamp,
    /// When the newest one was given up.
    pub newest_at: Timestamp,
    /// The one that was made last.
    pub sample: DeliverySeq,
    /// The last one whose payload can be corrected; null if all are webhook events.
    pub editable: Option<DeliverySeq>,
}

/// The newest dead letters by subscription and error, the largest groups first.
pub fn summary(
    tx: &ReadTx<'_>,
    tenant: &str,
    subscription: Option<&str>,
    made: Span,
) -> Result<Vec<Group>> {
    let (sql, of) = match subscription {
        None => (SUMMARY, None),
        Some(name) => match subscriptions::find(tx, tenant, name)? {
            None => return Ok(Vec::new()),
            Some(found) => (SUMMARY_OF_SUBSCRIPTION, Some(found.seq)),
        },
    };
    let params = (tenant, of, made.since, made.until, MAX_SUMMARIZED, MAX_GROUPS);
    tx.rows(sql, params, |row| {
        Ok(Group {
            subscription: row.get(0)?,
            class: cell(row, 1, "deliveries.last_class")?,
            code: row.get(2)?,
            answer: row.get(3)?,
            reason: row.get(4)?,
            count: row.get::<_, Count>(5)?.0,
            oldest_at: row.get(6)?,
            newest_at: row.get(7)?,
            sample: row.get(8)?,
            editable: row.get(9)?,
        })
    })
}
