//! Table `deliveries`, the dead letters: the next ones that a job finds, lane by lane, and how many died of what.

use std::collections::BTreeSet;

use rusqlite::{Row, ToSql, params};

use crate::base::clock::Timestamp;
use crate::base::id::DeliverySeq;
use crate::jobs::{Act, Cursor, Item, Looked, NewJob};
use crate::model::delivery::State;
use crate::model::outcome::AttemptClass;
use crate::store::column::{count, word};
use crate::store::error::Result;
use crate::store::page::{MAX_LOOKED_AT, Span};
use crate::store::subscriptions;
use crate::store::tx::{ReadTx, first, rows};

/// Dead letters that a summary looks at, at most.
const MAX_SUMMARIZED: u32 = 50_000;
/// Groups that a summary shows, at most.
const MAX_GROUPS: u32 = 100;

// What died after the job was made is not its concern: it may have died of the job itself.
macro_rules! fits {
    () => {
        "      AND d.finished_at <= ?4
               AND (?5 IS NULL OR d.subscription_seq = ?5)
               AND (?6 IS NULL OR d.last_class = ?6)
               AND (?7 IS NULL OR d.created_at >= ?7)
               AND (?8 IS NULL OR d.created_at < ?8)
               AND (?9 IS NULL OR ?9 = (SELECT a.http_status FROM attempts AS a
                                         WHERE a.delivery_seq = d.seq AND a.n = d.attempt_count))
               AND (?10 IS NULL OR coalesce(o.event_type, w.event_type) = ?10)
               AND (?11 IS NULL OR o.aggregate_type = ?11)
               AND (?12 IS NULL OR o.aggregate_id = ?12)"
    };
}

macro_rules! next {
    ($index:literal where $place:literal order $order:literal) => {
        concat!(
            "SELECT d.seq, d.run_no, d.lane, d.order_at
               FROM deliveries AS d INDEXED BY ",
            $index,
            "  LEFT JOIN outbox AS o ON o.seq = d.outbox_seq
               LEFT JOIN webhook_events AS w ON w.seq = d.webhook_seq
              WHERE d.state = 'dead_letter'
                AND d.tenant = ?1
                AND ",
            $place,
            fits!(),
            " ORDER BY ",
            $order,
            " LIMIT ?3"
        )
    };
}

pub(crate) const NEXT: &str =
    next!("deliveries_attention" where "d.seq > ?2 AND d.seq <= ?13" order "d.seq");

pub(crate) const NEXT_OF_LANE: &str = next!(
    "deliveries_dead_in_lane" where "d.lane = ?2 AND (d.order_at, d.seq) > (?13, ?14)"
    order "d.order_at, d.seq"
);

pub(crate) const PLACE: &str = "
    SELECT seq
      FROM deliveries
     WHERE state = 'dead_letter'
       AND tenant = ?1
       AND seq > ?2
     ORDER BY seq
     LIMIT 1 OFFSET ?3";

const SUMMARY: &str = "
    SELECT s.name, d.last_class,
           (SELECT a.http_status FROM attempts AS a WHERE a.delivery_seq = d.seq AND a.n = d.attempt_count),
           d.reason, count(*), min(d.finished_at), max(d.finished_at), max(d.seq)
      FROM (SELECT l.seq
              FROM deliveries AS l INDEXED BY deliveries_attention
             WHERE l.state = 'dead_letter'
               AND l.tenant = ?1
               AND (?2 IS NULL OR EXISTS (SELECT 1 FROM subscriptions AS n
                                           WHERE n.seq = l.subscription_seq AND (n.name = ?2 OR n.id = ?2)))
               AND (?3 IS NULL OR l.created_at >= ?3)
               AND (?4 IS NULL OR l.created_at < ?4)
             ORDER BY l.seq DESC
             LIMIT ?5) AS newest
      JOIN deliveries AS d ON d.seq = newest.seq
      JOIN subscriptions AS s ON s.seq = d.subscription_seq
     GROUP BY 1, 2, 3, 4
     ORDER BY count(*) DESC, max(d.seq) DESC
     LIMIT ?6";

/// A dead letter as a look finds it.
struct Dead {
    seq: i64,
    run_no: u32,
    lane: Option<i64>,
    order_at: Timestamp,
}

/// A place in a lane: what it is ordered by, and the number of the delivery.
type Place = (i64, i64);

/// The dead letters that fit a job's filter.
struct Fitting<'a> {
    tx: &'a ReadTx<'a>,
    job: &'a NewJob,
    subscription: Option<i64>,
    ids: Option<BTreeSet<i64>>,
}

impl<'a> Fitting<'a> {
    /// `None` where the subscription that is named is not there any more: it has no dead letters.
    fn new(tx: &'a ReadTx<'a>, job: &'a NewJob) -> Result<Option<Self>> {
        let subscription = match &job.filter.subscription {
            None => None,
            Some(name) => match subscriptions::find(tx, &job.tenant, name)? {
                None => return Ok(None),
                Some(found) => Some(found.seq.0),
            },
        };
        let number = |id: &String| DeliverySeq::parse(id).map(|seq| seq.0);
        let ids = job.filter.ids.as_ref().map(|ids| ids.iter().filter_map(number).collect());
        Ok(Some(Self { tx, job, subscription, ids }))
    }

    fn rows(&self, sql: &str, at: i64, limit: u32, place: &[&dyn ToSql]) -> Result<Vec<Dead>> {
        let NewJob { tenant, filter, created_at, .. } = self.job;
        let mut params: Vec<&dyn ToSql> = vec![tenant, &at, &limit, created_at];
        params.extend_from_slice(params![
            self.subscription,
            filter.class,
            filter.since,
            filter.until,
            filter.code,
            filter.event_type,
            filter.aggregate_type,
            filter.aggregate_id,
        ]);
        params.extend_from_slice(place);
        rows(&mut *self.tx.prepare(sql)?, &*params, dead)
    }

    /// The next ones by their numbers, and the number that was looked at last; `None`: there is none after these.
    fn next(&self, after: i64, limit: u32) -> Result<(Vec<Dead>, Option<i64>)> {
        if let Some(ids) = &self.ids {
            return self.next_of_ids(ids, after, limit);
        }
        let skipped = MAX_LOOKED_AT.saturating_sub(1);
        let place = (&self.job.tenant, after, skipped);
        let end: Option<i64> = first(&mut *self.tx.prepare(PLACE)?, place, |row| Ok(row.get(0)?))?;
        let found = self.rows(NEXT, after, limit, params![end.unwrap_or(i64::MAX)])?;
        let last = found.last().filter(|_| is_full(&found, limit)).map(|dead| dead.seq);
        Ok((found, last.or(end)))
    }

    /// Each is one seek, however many dead letters there are.
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

    /// The next ones of a lane after a place, in its order; second the place of the last one, where there may be more.
    fn next_of_lane(
        &self,
        lane: i64,
        place: Place,
        limit: u32,
    ) -> Result<(Vec<Dead>, Option<Place>)> {
        let mut found = self.rows(NEXT_OF_LANE, lane, limit, params![place.0, place.1])?;
        let last = found.last().filter(|_| is_full(&found, limit));
        let last = last.map(|dead| (dead.order_at.ms(), dead.seq));
        found.retain(|dead| self.ids.as_ref().is_none_or(|ids| ids.contains(&dead.seq)));
        Ok((found, last))
    }

    /// Adds the rest of the lane that is worked off, as far as there is room.
    fn take_lane(&self, looked: &mut Looked, limit: u32) -> Result<()> {
        while let Some((lane, order_at, seq)) = looked.cursor.lane {
            let have = u32::try_from(looked.items.len()).unwrap_or(u32::MAX);
            let room = limit.saturating_sub(have);
            if room == 0 {
                break;
            }
            let (found, last) = self.next_of_lane(lane, (order_at, seq), room)?;
            looked.items.extend(found.iter().map(item));
            looked.cursor.lane = last.map(|(order_at, seq)| (lane, order_at, seq));
        }
        Ok(())
    }
}

fn is_full<T>(found: &[T], limit: u32) -> bool {
    u32::try_from(found.len()).is_ok_and(|have| have >= limit)
}

fn item(dead: &Dead) -> Item {
    let act =
        Act::To { delivery: DeliverySeq(dead.seq), state: State::DeadLetter, run_no: dead.run_no };
    let acts = vec![((dead.order_at, dead.seq), act)];
    Item { seq: dead.seq, is_webhook_event: false, acts }
}

/// The next ones, in the order in which they are acted on. Where one stands in a lane, all of the lane that fit go
/// first, in the lane's order; a lane that has more of them than a batch takes is gone on with in the next.
pub(super) fn look(tx: &ReadTx<'_>, job: &NewJob, cursor: &Cursor, limit: u32) -> Result<Looked> {
    let Some(fitting) = Fitting::new(tx, job)? else { return Ok(over(cursor)) };
    let mut looked = Looked { items: Vec::new(), cursor: cursor.clone(), is_over: false };
    // Lanes that this look has worked off: in its snapshot their dead letters still are dead.
    let mut lanes = BTreeSet::new();
    lanes.extend(cursor.lane.map(|(lane, ..)| lane));
    fitting.take_lane(&mut looked, limit)?;
    if is_full(&looked.items, limit) {
        return Ok(looked);
    }
    let (found, end) = fitting.next(cursor.after, limit)?;
    for dead in &found {
        if is_full(&looked.items, limit) {
            return Ok(looked);
        }
        looked.cursor.after = dead.seq;
        match dead.lane {
            None => looked.items.push(item(dead)),
            Some(lane) if lanes.insert(lane) => {
                looked.cursor.lane = Some((lane, i64::MIN, i64::MIN));
                fitting.take_lane(&mut looked, limit)?;
            }
            Some(_) => {}
        }
    }
    looked.cursor.after = end.unwrap_or(looked.cursor.after);
    looked.is_over = end.is_none() && looked.cursor.lane.is_none();
    Ok(looked)
}

/// The next ones by their numbers, for counting.
pub(super) fn look_by_number(
    tx: &ReadTx<'_>,
    job: &NewJob,
    cursor: &Cursor,
    limit: u32,
) -> Result<Looked> {
    let Some(fitting) = Fitting::new(tx, job)? else { return Ok(over(cursor)) };
    let (found, end) = fitting.next(cursor.after, limit)?;
    let cursor = Cursor { after: end.unwrap_or(cursor.after), ..cursor.clone() };
    Ok(Looked { items: found.iter().map(item).collect(), cursor, is_over: end.is_none() })
}

fn over(cursor: &Cursor) -> Looked {
    Looked { items: Vec::new(), cursor: cursor.clone(), is_over: true }
}

fn dead(row: &Row<'_>) -> Result<Dead> {
    Ok(Dead { seq: row.get(0)?, run_no: row.get(1)?, lane: row.get(2)?, order_at: row.get(3)? })
}

/// Dead letters that died of the same.
#[derive(Clone, Debug)]
pub struct Group {
    /// The subscription's name.
    pub subscription: String,
    /// The class of the last attempt.
    pub class: Option<AttemptClass>,
    /// Its HTTP status.
    pub code: Option<u16>,
    /// Why they were given up.
    pub reason: Option<String>,
    /// How many.
    pub count: u64,
    /// When the first one was given up.
    pub oldest_at: Timestamp,
    /// When the last one was.
    pub newest_at: Timestamp,
    /// The newest of them.
    pub sample: DeliverySeq,
}

/// The newest dead letters by subscription and error, the largest groups first.
pub fn summary(
    tx: &ReadTx<'_>,
    tenant: &str,
    subscription: Option<&str>,
    made: Span,
) -> Result<Vec<Group>> {
    let params = (tenant, subscription, made.since, made.until, MAX_SUMMARIZED, MAX_GROUPS);
    rows(&mut *tx.prepare(SUMMARY)?, params, |row| {
        let class: Option<String> = row.get(1)?;
        Ok(Group {
            subscription: row.get(0)?,
            class: class
                .map(|class| word("deliveries.last_class", &class, AttemptClass::parse))
                .transpose()?,
            code: row.get(2)?,
            reason: row.get(3)?,
            count: count(row, 4)?,
            oldest_at: row.get(5)?,
            newest_at: row.get(6)?,
            sample: row.get(7)?,
        })
    })
}
