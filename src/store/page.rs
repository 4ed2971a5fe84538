//! Paging through long lists, with a limit on the rows that one page reads.

use rusqlite::{Params, Statement, ToSql};

use crate::store::prelude::*;

/// A statement for [`SeqRange::seqs`]: the numbers of rows that meet a condition, the newest first.
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

/// A statement for [`SeqRange::limit_rows`]: the number of the row that follows ?3 rows that meet a condition.
macro_rules! cutoff {
    ($from:literal where $condition:literal) => {
        $crate::store::page::newest_first!($from limit "1 OFFSET ?3" where $condition)
    };
}

/// A statement for [`SeqRange::new`]: number and time of the first row with a given number or a higher one.
macro_rules! row_from {
    ($table:literal, $time:literal) => {
        concat!("SELECT seq, ", $time, " FROM ", $table, " WHERE seq >= ?1 ORDER BY seq LIMIT 1")
    };
}

/// A statement for [`SeqRange::limit_numbers`]: the highest number of a row in the range.
macro_rules! newest_seq {
    ($table:literal) => {
        concat!("SELECT max(seq) FROM ", $table, " WHERE seq < ?1 AND seq >= ?2")
    };
}

/// A statement for [`SeqRange::seqs`]: rows by an id (?9) that is unique within its source. It costs one seek for each
/// of the tenant's few sources.
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

pub(super) use {cutoff, newest_first, newest_of_id, newest_seq, row_from};

/// How many rows a page reads at most for a filter without an index.
pub const MAX_LOOKED_AT: u32 = 10_000;

/// How many rows of an index are read at most for one answer.
pub const MAX_OF_INDEX: u32 = 20_000;

/// A request for a page of a tenant's rows, newest first.
#[derive(Clone, Copy, Debug)]
pub struct Newest<'a> {
    /// The tenant.
    pub tenant: &'a str,
    /// Only rows with a number below this one.
    pub before: i64,
    /// The maximum number of rows.
    pub limit: u32,
}

/// Bytes of texts that a page of [`page`] reads before it ends. As JSON values they take up to 44 times as much.
const MAX_PAGE_BYTES: usize = 256 << 10;

/// A page of at most `limit` rows. It ends early after a row with which it has many bytes, so that long texts do not
/// fill the memory.
pub(crate) fn page<T>(
    statement: &mut Statement<'_>,
    params: impl Params,
    limit: u32,
    seq: impl Fn(&T) -> i64,
    mut row: impl FnMut(&Row<'_>) -> Result<T>,
) -> Result<RowPage<T>> {
    let columns = statement.column_count();
    let mut found = statement.query(params)?;
    let mut rows = Vec::new();
    let mut bytes = 0_usize;
    while let Some(next) = found.next()? {
        for column in 0..columns {
            let text = next.get_ref(column)?.as_bytes_or_null().ok().flatten();
            bytes = bytes.saturating_add(text.map_or(0, <[u8]>::len));
        }
        rows.push(row(next)?);
        if bytes >= MAX_PAGE_BYTES {
            let next = rows.last().map(seq);
            return Ok(RowPage { rows, next });
        }
    }
    Ok(RowPage::of(rows, limit, seq))
}

/// A range of time. `None` means unlimited.
#[derive(Clone, Copy, Debug, Default)]
pub struct Span {
    /// The start, inclusive.
    pub since: Option<Timestamp>,
    /// The end, exclusive.
    pub until: Option<Timestamp>,
}

impl Span {
    /// Whether a time is in the range.
    pub fn has(&self, at: Timestamp) -> bool {
        self.since.is_none_or(|since| since <= at) && self.until.is_none_or(|until| at < until)
    }
}

/// A page of rows, newest first.
#[derive(Clone, Debug)]
pub struct RowPage<T> {
    /// Its rows.
    pub rows: Vec<T>,
    /// The `before` of the next page; `None` if this is the last page. A page ends after reading [`MAX_LOOKED_AT`]
    /// rows, even if it is not full.
    pub next: Option<i64>,
}

impl<T> RowPage<T> {
    /// A page from an index: if it is full, there may be more rows.
    pub(crate) fn of(rows: Vec<T>, limit: u32, seq: impl Fn(&T) -> i64) -> Self {
        let is_full = u32::try_from(rows.len()).is_ok_and(|have| have >= limit);
        let next = rows.last().filter(|_| is_full).map(seq);
        Self { rows, next }
    }

    /// The page over two files. Of a row that is in both, that of `self` counts.
    #[must_use]
    pub fn merge(mut self, other: Self, limit: u32, seq: impl Fn(&T) -> i64) -> Self {
        // Below the end of a page its file may have more.
        let end = self.next.max(other.next);
        self.rows.extend(other.rows);
        self.rows.retain(|row| end.is_none_or(|end| seq(row) >= end));
        self.rows.sort_by_key(|row| std::cmp::Reverse(seq(row)));
        self.rows.dedup_by_key(|row| seq(row));
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let is_cut = self.rows.len() > limit;
        self.rows.truncate(limit);
        let last = self.rows.last().map(&seq);
        Self { next: if is_cut { last } else { end }, rows: self.rows }
    }
}

/// The range of row numbers that a page reads. Its statements contain `seq < ?1 AND seq >= ?2 ... LIMIT ?3`.
///
/// Rows are numbered in the order in which they are made, so no list needs an index by time.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeqRange {
    below: i64,
    down_to: i64,
    is_cut: bool,
}

impl SeqRange {
    /// The rows below `before` within a span of time. `row_from` is a statement of the macro of that name. If the clock
    /// was set back, rows near an end of the span may be on the wrong side.
    pub(super) fn new(tx: &ReadTx<'_>, row_from: &str, before: i64, span: Span) -> Result<Self> {
        let number = |at: Option<Timestamp>, open: i64| match at {
            Some(at) => number_at(tx, row_from, at),
            None => Ok(open),
        };
        let below = number(span.until, i64::MAX)?.min(before);
        Ok(Self { below, down_to: number(span.since, i64::MIN)?, is_cut: false })
    }

    /// Limits the range to [`MAX_LOOKED_AT`] rows. `cutoff` is a statement of the macro of that name, with parameters
    /// from ?4 on.
    pub(super) fn limit_rows(
        &mut self,
        tx: &ReadTx<'_>,
        cutoff: &str,
        more: &[&dyn ToSql],
    ) -> Result<()> {
        let skipped = MAX_LOOKED_AT.saturating_sub(1);
        if let Some(last) = self.seqs(tx, cutoff, skipped, more)?.first() {
            (self.down_to, self.is_cut) = (*last, true);
        }
        Ok(())
    }

    /// Limits the range to [`MAX_LOOKED_AT`] numbers below its newest row of any tenant. `newest` is a statement of
    /// `newest_seq!`.
    pub(super) fn limit_numbers(&mut self, tx: &ReadTx<'_>, newest: &str) -> Result<()> {
        let newest: Option<i64> = tx.value(newest, [self.below, self.down_to])?;
        if let Some(newest) = newest {
            let end = newest.saturating_sub(i64::from(MAX_LOOKED_AT)).saturating_add(1);
            // The first number is 1.
            self.is_cut = end > self.down_to.max(1);
            self.down_to = end.max(self.down_to);
        }
        Ok(())
    }

    /// The numbers of at most `limit` (?3) rows in the range. `more` are the parameters from ?4 on.
    pub(super) fn seqs(
        &self,
        tx: &ReadTx<'_>,
        sql: &str,
        limit: u32,
        more: &[&dyn ToSql],
    ) -> Result<Vec<i64>> {
        let mut params: Vec<&dyn ToSql> = vec![&self.below, &self.down_to, &limit];
        params.extend(more);
        tx.list(sql, &*params)
    }

    /// The page of rows that were found in the range.
    pub(super) fn found<T>(&self, rows: Vec<T>, limit: u32, seq: impl Fn(&T) -> i64) -> RowPage<T> {
        let RowPage { rows, next } = RowPage::of(rows, limit, seq);
        RowPage { rows, next: next.or_else(|| self.is_cut.then_some(self.down_to)) }
    }
}

/// The number of the first row at or after a time, by binary search.
pub(crate) fn number_at(tx: &ReadTx<'_>, row_from: &str, at: Timestamp) -> Result<i64> {
    let mut low = 0_i64;
    let mut high = i64::MAX;
    while low < high {
        let middle = low.saturating_add(high.saturating_sub(low).div_euclid(2));
        let row = tx.first(row_from, [middle], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, Timestamp>(1)?))
        })?;
        match row {
            Some((seq, time)) if time < at => low = seq.saturating_add(1),
            _ => high = middle,
        }
    }
    Ok(low)
}
