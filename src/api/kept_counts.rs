//! Counts of many rows, kept for a while, because counting 100,000 rows takes 5 to 7 ms.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;

use crate::store::stats::{AttentionCounts, TenantCounts};

/// From how many rows on counts are kept.
const MANY: u64 = 10_000;
/// How long counts are kept: a second, and one more for each so many rows.
const ROWS_PER_SECOND: u64 = 50_000;

/// Counts with the end of their use.
#[derive(Clone, Copy, Debug)]
struct TimedCounts<T> {
    until: Duration,
    counts: T,
}

/// The counts that are kept: of tenants with many deliveries that are open or need a person, and of all tenants.
#[derive(Debug, Default)]
pub(super) struct KeptCounts {
    of_tenants: Mutex<HashMap<String, TimedCounts<TenantCounts>>>,
    of_all: Mutex<Option<TimedCounts<AttentionCounts>>>,
}

/// Until when counts of so many rows are kept; `None`: they are counted again at once.
fn kept_until(now: Duration, rows: u64) -> Option<Duration> {
    let seconds = rows.div_euclid(ROWS_PER_SECOND).saturating_add(1);
    (rows > MANY).then(|| now.saturating_add(Duration::from_secs(seconds)))
}

impl KeptCounts {
    /// The counts of a tenant, which `count` makes if none are kept.
    pub(super) fn of_tenant<E>(
        &self,
        tenant: &str,
        now: Duration,
        count: impl FnOnce() -> Result<TenantCounts, E>,
    ) -> Result<TenantCounts, E> {
        if let Some(kept) = self.of_tenants.lock().get(tenant).filter(|kept| now < kept.until) {
            return Ok(kept.counts);
        }
        let counts = count()?;
        let mut all = self.of_tenants.lock();
        match kept_until(now, counts.rows()) {
            Some(until) => drop(all.insert(tenant.to_owned(), TimedCounts { until, counts })),
            None => drop(all.remove(tenant)),
        }
        Ok(counts)
    }

    /// The counts of all tenants, which `count` makes if none are kept.
    pub(super) fn of_all<E>(
        &self,
        now: Duration,
        count: impl FnOnce() -> Result<AttentionCounts, E>,
    ) -> Result<AttentionCounts, E> {
        if let Some(kept) = self.of_all.lock().filter(|kept| now < kept.until) {
            return Ok(kept.counts);
        }
        let counts = count()?;
        *self.of_all.lock() =
            kept_until(now, counts.rows()).map(|until| TimedCounts { until, counts });
        Ok(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_rows_are_counted_again_after_a_while_and_few_at_once() {
        let kept = KeptCounts::default();
        let dead = |dead_letters| AttentionCounts { dead_letters, ..AttentionCounts::default() };
        let seen = |at: u64, rows: u64| {
            let counted = kept.of_all(Duration::from_secs(at), || Ok::<_, ()>(dead(rows)));
            counted.map(|counts| counts.dead_letters)
        };
        assert_eq!((seen(0, 10_000), seen(0, 100_000)), (Ok(10_000), Ok(100_000)));
        assert_eq!((seen(2, 7), seen(3, 7), seen(3, 8)), (Ok(100_000), Ok(7), Ok(8)));
        let one = TenantCounts { dead_letters: 60_000, ..TenantCounts::default() };
        let of = |at: u64, counts| {
            let counted = kept.of_tenant("a", Duration::from_secs(at), || Ok::<_, ()>(counts));
            counted.map(|counts| counts.dead_letters)
        };
        assert_eq!((of(0, one), of(1, TenantCounts::default())), (Ok(60_000), Ok(60_000)));
        assert_eq!((of(2, TenantCounts::default()), of(2, one)), (Ok(0), Ok(60_000)));
    }
}
