//! Which part of a long list is asked for.

use rusqlite::{Row, ToSql};

use crate::clock::Timestamp;
use crate::store::error::Result;
use crate::store::tx::{ReadTx, first, rows};

/// Rows that one page looks at, at most, for a filter that no index serves.
pub const LOOKED_AT_MOST: u32 = 20_000;

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
    /// [`LOOKED_AT_MOST`] rows ends there, with fewer rows than were asked for or none.
    pub next: Option<i64>,
}

impl<T> Found<T> {
    /// Nothing, and nothing after it.
    pub(super) const fn nothing() -> Self {
        Self { rows: Vec::new(), next: None }
    }

    /// Rows that an index found; where the page is full there may be more.
    pub(super) fn of(rows: Vec<T>, limit: u32, seq: impl Fn(&T) -> i64) -> Self {
        let is_full = u32::try_from(rows.len()).is_ok_and(|have| have >= limit);
        let next = rows.last().filter(|_| is_full).map(seq);
        Self { rows, next }
    }
}

/// A time and, within the same millisecond, a number.
type Place = (i64, i64);

/// What a page of a list looks at that is ordered by time: below one place, down to another. Its statement orders as
/// `(time, seq) < (?1, ?2) AND (time, seq) >= (?3, ?4)`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    below: Place,
    down_to: Place,
    is_cut: bool,
}

impl Stretch {
    /// From where the page before ended, within a span. `time_of` selects the time of a row by its number. `None` after
    /// a row that there is none of.
    pub(super) fn new(
        tx: &ReadTx<'_>,
        time_of: &str,
        before: i64,
        span: Span,
    ) -> Result<Option<Self>> {
        let mut below = (i64::MAX, i64::MAX);
        if before < i64::MAX {
            let at = first(&mut *tx.prepare(time_of)?, [before], |row| Ok(row.get(0)?))?;
            let Some(at) = at else { return Ok(None) };
            below = (at, before);
        }
        if let Some(until) = span.until {
            below = below.min((until.ms(), i64::MIN));
        }
        let since = span.since.map_or(i64::MIN, Timestamp::ms);
        Ok(Some(Self { below, down_to: (since, i64::MIN), is_cut: false }))
    }

    /// The same of a table whose rows are numbered in the order of their time, which needs no index. `row_from` selects
    /// the number and the time of the first row from a number on. Where the clock was set back, a row made meanwhile may
    /// fall on the other side of an end of the span.
    pub(super) fn by_number(
        tx: &ReadTx<'_>,
        row_from: &str,
        before: i64,
        span: Span,
    ) -> Result<Self> {
        let number = |at: Option<Timestamp>, open: i64| match at {
            Some(at) => number_at(tx, row_from, at),
            None => Ok(open),
        };
        let below = number(span.until, i64::MAX)?.min(before);
        let down_to = number(span.since, i64::MIN)?;
        Ok(Self { below: (0, below), down_to: (0, down_to), is_cut: false })
    }

    /// Ends it where it has [`LOOKED_AT_MOST`] rows. `place` selects the time and the number of the row after so many
    /// (?5), with further parameters.
    pub(super) fn cut(&mut self, tx: &ReadTx<'_>, place: &str, more: &[&dyn ToSql]) -> Result<()> {
        let skipped = LOOKED_AT_MOST.saturating_sub(1);
        let found =
            self.numbered(tx, place, skipped, more, |row| Ok((row.get(0)?, row.get(1)?)))?;
        if let Some(last) = found.first() {
            (self.down_to, self.is_cut) = (*last, true);
        }
        Ok(())
    }

    /// The numbers of at most `limit` (?5) rows on it, with further parameters from ?6 on.
    pub(super) fn seqs(
        &self,
        tx: &ReadTx<'_>,
        sql: &str,
        limit: u32,
        more: &[&dyn ToSql],
    ) -> Result<Vec<i64>> {
        self.numbered(tx, sql, limit, more, |row| Ok(row.get(0)?))
    }

    fn numbered<T>(
        &self,
        tx: &ReadTx<'_>,
        sql: &str,
        count: u32,
        more: &[&dyn ToSql],
        row: impl FnMut(&Row<'_>) -> Result<T>,
    ) -> Result<Vec<T>> {
        let Self { below, down_to, is_cut: _ } = self;
        let mut params: Vec<&dyn ToSql> = vec![&below.0, &below.1, &down_to.0, &down_to.1, &count];
        params.extend(more);
        rows(&mut *tx.prepare(sql)?, &*params, row)
    }

    /// What was found on it.
    pub(super) fn found<T>(&self, rows: Vec<T>, limit: u32, seq: impl Fn(&T) -> i64) -> Found<T> {
        let Found { rows, next } = Found::of(rows, limit, seq);
        Found { rows, next: next.or_else(|| self.is_cut.then_some(self.down_to.1)) }
    }
}

/// The number from which on rows have a time at or after `at`, found by halves.
fn number_at(tx: &ReadTx<'_>, row_from: &str, at: Timestamp) -> Result<i64> {
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
