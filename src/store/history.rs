//! Table `history`: what happened to a subscription or a provider in each hour of the last 90 days.
//!
//! A row is a day. The rows are bounded in sum: the tenant with the most rows loses its oldest days.

use std::collections::BTreeMap;

use crate::model::history::{DAYS, Day, HourCounts, Subject};
use crate::store::prelude::*;

/// How many rows are kept in all: a day of a subscription or a provider each, which takes at most 2 KB.
pub const MAX_ROWS: u32 = 20_000;

const READ: &str = "SELECT hours FROM history WHERE day = ?1 AND kind = ?2 AND of_seq = ?3";

const WRITE: &str = "
    INSERT INTO history (day, kind, of_seq, hours) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT DO UPDATE SET hours = excluded.hours";

// One seek for each day.
const BETWEEN: &str = "
    WITH RECURSIVE days (day) AS (
         SELECT ?1
          UNION ALL
         SELECT day + 1 FROM days WHERE day < ?2 LIMIT 1000)
    SELECT h.day, h.hours
      FROM days AS d
     CROSS JOIN history AS h
        ON h.day = d.day AND h.kind = ?3 AND h.of_seq = ?4";

// The newest row of each tenant comes first, then the second newest, so that the cut takes from those who have most.
const TRIM: &str = "
    DELETE FROM history
     WHERE (day, kind, of_seq) IN (SELECT day, kind, of_seq FROM history WHERE day <= ?1 LIMIT ?3)
        OR (day, kind, of_seq) IN (
           SELECT day, kind, of_seq FROM (
                  SELECT h.day, h.kind, h.of_seq,
                         row_number() OVER (PARTITION BY coalesce(s.tenant, p.tenant)
                                            ORDER BY h.day DESC, h.kind, h.of_seq) AS place
                    FROM history AS h
                    LEFT JOIN subscriptions AS s ON h.kind = 'subscription' AND s.seq = h.of_seq
                    LEFT JOIN providers AS p ON h.kind = 'provider' AND p.seq = h.of_seq)
            ORDER BY place, day DESC LIMIT ?3 OFFSET ?2)";

queries! {
    /// Whether there are rows to delete: of old days, or more than are kept.
    fn has_more(old: i64, most: u32) -> bool = value "
        SELECT EXISTS (SELECT 1 FROM history WHERE day <= ?1)
            OR EXISTS (SELECT 1 FROM history LIMIT 1 OFFSET ?2)";
}

/// What happened to a subject in an hour since it was stored last.
#[derive(Clone, Debug)]
pub struct Counted {
    /// The subject.
    pub of: Subject,
    /// The number of the hour since 1970.
    pub hour: i64,
    /// What happened.
    pub counts: HourCounts,
}

/// Adds counts to their hours.
pub fn add(tx: &WriteTx<'_>, counted: &[Counted]) -> Result<()> {
    tx.mark_unseen();
    for Counted { of, hour, counts } in counted {
        let (kind, seq) = of.key();
        let day = hour.div_euclid(24);
        let bytes: Option<Vec<u8>> = tx.find(READ, (day, kind, seq))?;
        let mut stored = Day::of(&bytes.unwrap_or_default());
        let number = u8::try_from(hour.rem_euclid(24)).unwrap_or(0);
        stored.0.entry(number).or_default().add(counts);
        tx.execute(WRITE, (day, kind, seq, stored.to_bytes()))?;
    }
    Ok(())
}

/// The days of a subject that had something, from the first to the last, each by its number since 1970.
pub fn days(tx: &ReadTx<'_>, of: Subject, first: i64, last: i64) -> Result<BTreeMap<i64, Day>> {
    let (kind, seq) = of.key();
    let day = |row: &Row<'_>| Ok((row.get(0)?, Day::of(&row.get::<_, Vec<u8>>(1)?)));
    Ok(tx.rows(BETWEEN, (first, last, kind, seq), day)?.into_iter().collect())
}

/// Whether [`trim`] would delete anything.
pub fn is_over(tx: &ReadTx<'_>, today: i64) -> Result<bool> {
    has_more(tx, today.saturating_sub(DAYS), MAX_ROWS)
}

/// Deletes days that are too old, and those over the bound; returns how many.
pub fn trim(tx: &WriteTx<'_>, today: i64, limit: u32) -> Result<usize> {
    tx.mark_unseen();
    tx.execute(TRIM, (today.saturating_sub(DAYS), MAX_ROWS, limit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::history::BOUNDS_MS;
    use crate::store::schema::open_writer;
    use crate::store::tx::WriterCache;

    #[test]
    fn ninety_busy_days_of_an_ordinary_box_take_less_than_a_megabyte() {
        let dir = tempfile::tempdir().unwrap();
        let conn = open_writer(&dir.path().join("oncebox.db")).unwrap();
        let number = |pragma: &str| {
            conn.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get::<_, i64>(0)).unwrap()
        };
        let before = number("page_count");
        let mut counts = HourCounts::default();
        for bound in &BOUNDS_MS[9..14] {
            (0..40).for_each(|n| counts.note(n == 0, Some(*bound)));
        }
        let mut requests = HourCounts::default();
        (0..200).for_each(|n| requests.note(n == 0, None));
        conn.execute_batch("BEGIN IMMEDIATE").unwrap();
        let cache = WriterCache::default();
        let tx = WriteTx::new(&conn, &cache);
        for hour in 0..90 * 24 {
            let of = |seq| Subject::Subscription(SubscriptionSeq(seq));
            let sent = (1..=20).map(|seq| Counted { of: of(seq), hour, counts: counts.clone() });
            let received = (1..=5).map(|seq| Counted {
                of: Subject::Provider(seq),
                hour,
                counts: requests.clone(),
            });
            add(&tx, &sent.chain(received).collect::<Vec<_>>()).unwrap();
        }
        conn.execute_batch("COMMIT").unwrap();
        let bytes = (number("page_count") - before) * number("page_size");
        assert!(bytes < 1 << 20, "{bytes}");
        let found = days(&tx, Subject::Subscription(SubscriptionSeq(7)), 0, 89).unwrap();
        assert_eq!((found.len(), found[&89].sum().total), (90, 24 * 200));
    }
}
