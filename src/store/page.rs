//! Which part of a long list is asked for.

use rusqlite::ToSql;

use crate::base::clock::Timestamp;
use crate::store::error::Result;
use crate::store::tx::{ReadTx, first, rows};

/// A statement for a [`Stretch`]: the numbers of a table's rows that meet a condition, the newest first.
macro_rules! newest_first {
    ($from:literal where $($condition:expr),+) => {
        $crate::store::page::newest_first!($from limit "?3" where $($condition),+)
    };
    ($from:literal limit $limit:literal where $($condition:expr),+) => {
        concat!(
            "SELECT seq FROM ", $from, " WHERE seq < ?1 AND seq >= ?2 AND ", $($condition,)+
            " ORDER BY seq DESC LIMIT ", $limit
        )
    };
}

/// A statement for [`Stretch::cut`]: the number of the row behind so many others that meet a condition.
macro_rules! place {
    ($from:literal where $condition:literal) => {
        $crate::store::page::newest_first!($from limit "1 OFFSET ?3" where $condition)
    };
}

/// A statement for [`Stretch::new`]: the number and the time of a table's first row from a number on.
macro_rules! row_from {
    ($table:literal, $time:literal) => {
        concat!("SELECT seq, ", $time, " FROM ", $table, " WHERE seq >= ?1 ORDER BY seq LIMIT 1")
    };
}

/// A statement for [`Stretch::cut_numbers`]: a table's newest row on the stretch.
macro_rules! newest {
    ($table:literal) => {
        concat!("SELECT max(seq) FROM ", $table, " WHERE seq < ?1 AND seq >= ?2")
    };
}

/// A statement for a [`Stretch`]: rows by an id (?9) that is unique within its source. Each of the tenant's few
/// sources is one seek.
macro_rules! newest_of_id {
    ($table:literal, $source:literal, $id:literal where $($condition:expr),+) => {
        concat!(
            "WITH RECURSIVE sources (name) AS (
                  SELECT min(", $source, ") FROM ", $table, " WHERE tenant = ?4
                   UNION ALL
                  SELECT (SELECT min(t.", $source, ") FROM ", $table, " AS t
                           WHERE t.tenant = ?4 AND t.", $source, " > s.name)
                    FROM sources AS s WHERE s.name IS NOT NULL)
             SELECT seq FROM sources AS s
              CROSS JOIN ", $table, " AS t
                 ON tenant = ?4 AND ", $source, " = s.name AND ", $id, " = ?9
              WHERE seq < ?1 AND seq >= ?2 AND ", $($condition,)+
            " ORDER BY seq DESC LIMIT ?3"
        )
    };
}

pub(super) use {newest, newest_first, newest_of_id, place, row_from};

/// Rows that one page looks at, at most, for a filter that no index serves.
pub const MAX_LOOKED_AT: u32 = 20_000;

/// Rows of a tenant, newest first: at most `limit` below the number `before`.
#[derive(Clone, Copy, Debug)]
pub struct Newest<'a> {
    /// Whose.
    pub tenant: &'a str,
    /// Numbers below this.
    pub before: i64,
    /// So many at most.
    pub limit: u32,
}

/// A stretch of time. Absent means open.
#[derive(Clone, Copy, Debug, Default)]
pub struct Span {
    /// At or after.
    pub since: Option<Timestamp>,
    /// Before.
    pub until: Option<Timestamp>,
}

/// A page, the newest first.
#[derive(Clone, Debug)]
pub struct Found<T> {
    /// Its rows.
    pub rows: Vec<T>,
    /// The number after which the next page begins; `None`: this was the last. A page that looked at
    /// [`MAX_LOOKED_AT`] rows ends there, with fewer rows than were asked for or none.
    pub next: Option<i64>,
}

impl<T> Found<T> {
    /// Rows that an index found; where the page is full there may be more.
    pub(super) fn of(rows: Vec<T>, limit: u32, seq: impl Fn(&T) -> i64) -> Self {
        let is_full = u32::try_from(rows.len()).is_ok_and(|have| have >= limit);
        let next = rows.last().filter(|_| is_full).map(seq);
        Self { rows, next }
    }
}

/// What a page of a list looks at: the numbers below one, down to another. Its statement says
/// `seq < ?1 AND seq >= ?2 ... LIMIT ?3`.
///
/// Rows are numbered in the order in which they are made, so no list needs an index by time, which would cost every
/// event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    below: i64,
    down_to: i64,
    is_cut: bool,
}

impl Stretch {
    /// From where the page before ended, within a span. `row_from` selects the number and the time of the first row from
    /// a number on. Where the clock was set back, a row made meanwhile may fall on the other side of an end of the span.
    pub(super) fn new(tx: &ReadTx<'_>, row_from: &str, before: i64, span: Span) -> Result<Self> {
        let number = |at: Option<Timestamp>, open: i64| match at {
            Some(at) => number_at(tx, row_from, at),
            None => Ok(open),
        };
        let below = number(span.until, i64::MAX)?.min(before);
        Ok(Self { below, down_to: number(span.since, i64::MIN)?, is_cut: false })
    }

    /// Ends it where it has [`MAX_LOOKED_AT`] rows. `place` selects the number of the row after so many (?3), with
    /// further parameters.
    pub(super) fn cut(&mut self, tx: &ReadTx<'_>, place: &str, more: &[&dyn ToSql]) -> Result<()> {
        let skipped = MAX_LOOKED_AT.saturating_sub(1);
        if let Some(last) = self.seqs(tx, place, skipped, more)?.first() {
            (self.down_to, self.is_cut) = (*last, true);
        }
        Ok(())
    }

    /// Ends it [`MAX_LOOKED_AT`] numbers below its first row of any tenant. `newest` selects the number of that row.
    pub(super) fn cut_numbers(&mut self, tx: &ReadTx<'_>, newest: &str) -> Result<()> {
        let newest: Option<i64> =
            tx.prepare(newest)?.query_row([self.below, self.down_to], |row| row.get(0))?;
        if let Some(newest) = newest {
            let end = newest.saturating_sub(i64::from(MAX_LOOKED_AT)).saturating_add(1);
            // The first number is 1.
            self.is_cut = end > self.down_to.max(1);
            self.down_to = end.max(self.down_to);
        }
        Ok(())
    }

    /// The numbers of at most `limit` (?3) rows on it, with further parameters from ?4 on.
    pub(super) fn seqs(
        &self,
        tx: &ReadTx<'_>,
        sql: &str,
        limit: u32,
        more: &[&dyn ToSql],
    ) -> Result<Vec<i64>> {
        let mut params: Vec<&dyn ToSql> = vec![&self.below, &self.down_to, &limit];
        params.extend(more);
        rows(&mut *tx.prepare(sql)?, &*params, |row| Ok(row.get(0)?))
    }

    /// What was found on it.
    pub(super) fn found<T>(&self, rows: Vec<T>, limit: u32, seq: impl Fn(&T) -> i64) -> Found<T> {
        let Found { rows, next } = Found::of(rows, limit, seq);
        Found { rows, next: next.or_else(|| self.is_cut.then_some(self.down_to)) }
    }
}

/// The number from which on rows have a time at or after `at`, found by halves.
pub(crate) fn number_at(tx: &ReadTx<'_>, row_from: &str, at: Timestamp) -> Result<i64> {
    let (mut low, mut high) = (0_i64, i64::MAX);
    while low < high {
        let middle = low.saturating_add(high.saturating_sub(low).div_euclid(2));
        let row = first(&mut *tx.prepare(row_from)?, [middle], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, Timestamp>(1)?))
        })?;
        match row {
            Some((seq, time)) if time < at => low = seq.saturating_add(1),
            _ => high = middle,
        }
    }
    Ok(low)
}
