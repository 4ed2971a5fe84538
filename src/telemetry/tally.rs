//! Atomic counters and histograms, cheap enough to update for every event; and heartbeats, by which a thread that works in
//! a loop shows that the loop still runs.
//!
//! Two counters are not read at one moment, so they may not fit together exactly. Not here: names and labels of
//! metrics (`api::metrics`), who asks for heartbeats, and what happens when one is missing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// An idle thread runs its loop at least this often, so that it does not look stuck.
pub const BEAT: Duration = Duration::from_secs(1);

/// A counter or gauge.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub fn add(&self) {
        self.add_many(1);
    }

    /// Adds `more`.
    pub fn add_many(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// Sets the value.
    pub fn set(&self, value: usize) {
        self.0.store(u64::try_from(value).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// The value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts values by bucket, and sums them.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    /// One per bound, and one for larger values.
    buckets: Box<[Counter]>,
    sum: Counter,
}

/// Bounds for spans, in microseconds: 100 µs to a minute.
pub const SPANS: &[u64] = &[
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000, 30_000_000, 60_000_000,
];
/// Bounds for spans that may take days, in microseconds: a millisecond to three days.
pub const LONG_SPANS: &[u64] = &[
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    5_000_000,
    30_000_000,
    300_000_000,
    1_800_000_000,
    14_400_000_000,
    86_400_000_000,
    259_200_000_000,
];
/// Bounds for numbers of items.
pub const AMOUNTS: &[u64] = &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512];

impl Histogram {
    /// An empty histogram; `bounds` must rise.
    pub fn new(bounds: &'static [u64]) -> Self {
        let buckets = (0..=bounds.len()).map(|_| Counter::default()).collect();
        Self { bounds, buckets, sum: Counter::default() }
    }

    /// Records a value.
    pub fn note(&self, value: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        if let Some(bucket) = self.buckets.get(bucket) {
            bucket.add();
        }
        self.sum.add_many(value);
    }

    /// Records a span, in microseconds.
    pub fn note_span(&self, span: Duration) {
        self.note(u64::try_from(span.as_micros()).unwrap_or(u64::MAX));
    }

    /// The values recorded so far.
    pub fn read(&self) -> Observed {
        let mut count = 0_u64;
        let mut below = Vec::with_capacity(self.bounds.len());
        for (bound, bucket) in self.bounds.iter().zip(&self.buckets) {
            count = count.saturating_add(bucket.get());
            below.push((*bound, count));
        }
        let above = self.buckets.last().map_or(0, Counter::get);
        Observed { below, sum: self.sum.get(), count: count.saturating_add(above) }
    }
}

/// A reading of a histogram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// For each bound, the number of values up to it.
    pub below: Vec<(u64, u64)>,
    /// The sum of all values.
    pub sum: u64,
    /// The number of values.
    pub count: u64,
}

/// One thread's heartbeat. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Heartbeat(Arc<Beats>);

#[derive(Debug, Default)]
struct Beats {
    asked: AtomicU64,
    answered: AtomicU64,
}

impl Heartbeat {
    /// Asks for a heartbeat. Earlier ones do not count.
    pub fn ask(&self) {
        self.0.asked.fetch_add(1, Ordering::AcqRel);
    }

    /// Gives a heartbeat; the thread calls it in each pass of its loop.
    pub fn tick(&self) {
        let asked = self.0.asked.load(Ordering::Acquire);
        self.0.answered.store(asked, Ordering::Release);
    }

    /// Whether a heartbeat came since the last [`Heartbeat::ask`].
    ///
    /// ```
    /// let heartbeat = oncebox::telemetry::tally::Heartbeat::default();
    /// heartbeat.ask();
    /// assert!(!heartbeat.has_answered());
    /// heartbeat.tick();
    /// assert!(heartbeat.has_answered());
    /// ```
    pub fn has_answered(&self) -> bool {
        self.0.answered.load(Ordering::Acquire) == self.0.asked.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_counts_in_its_own_bucket_and_all_higher_ones() {
        let histogram = Histogram::new(&[1, 10, 100]);
        for value in [0, 1, 2, 10, 11, 1000] {
            histogram.note(value);
        }
        let observed = histogram.read();
        assert_eq!(observed.below, [(1, 2), (10, 4), (100, 5)]);
        assert_eq!((observed.count, observed.sum), (6, 1024));
    }
}
