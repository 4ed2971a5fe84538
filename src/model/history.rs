//! History: how much happened in each hour, how much of it failed, how long it took, and when the service ran.
//!
//! Durations are counted in buckets whose bounds grow by the square root of two. A percentile is the middle of its
//! bucket, so it is wrong by at most 21 %; of what takes less than 4 ms or more than three minutes, less is known.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::base::clock::Timestamp;
use crate::base::id::SubscriptionSeq;

/// How many days are kept.
pub const DAYS: i64 = 90;
/// The length of an hour and of a day, in milliseconds.
pub const HOUR_MS: i64 = 3_600_000;
/// The length of a day, in milliseconds.
pub const DAY_MS: i64 = 24 * HOUR_MS;
/// The upper bounds of the buckets, in milliseconds. What takes longer is in the last one.
pub const BOUNDS_MS: [u32; 32] = [
    4, 6, 8, 11, 16, 23, 32, 45, 64, 91, 128, 181, 256, 362, 512, 724, 1_024, 1_448, 2_048, 2_896,
    4_096, 5_793, 8_192, 11_585, 16_384, 23_170, 32_768, 46_341, 65_536, 92_682, 131_072, 185_364,
];

/// What has a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// A subscription: its attempts.
    Subscription(SubscriptionSeq),
    /// A provider, by its number: its requests.
    Provider(i64),
}

impl Subject {
    /// As it is stored: the kind, and its number.
    pub const fn key(self) -> (&'static str, i64) {
        match self {
            Self::Subscription(SubscriptionSeq(seq)) => ("subscription", seq),
            Self::Provider(seq) => ("provider", seq),
        }
    }
}

/// The counts of an hour, or of more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HourCounts {
    /// Attempts or requests.
    pub total: u32,
    /// Those that failed or were refused.
    pub failed: u32,
    /// How many took how long, by bucket.
    spans: [u32; BOUNDS_MS.len()],
}

impl HourCounts {
    /// Counts one; `took_ms` if its duration counts.
    pub fn note(&mut self, is_failed: bool, took_ms: Option<u32>) {
        self.total = self.total.saturating_add(1);
        self.failed = self.failed.saturating_add(u32::from(is_failed));
        let Some(took_ms) = took_ms else { return };
        let bucket = BOUNDS_MS.partition_point(|bound| *bound < took_ms);
        if let Some(count) = self.spans.get_mut(bucket.min(BOUNDS_MS.len() - 1)) {
            *count = count.saturating_add(1);
        }
    }

    /// Adds other counts.
    pub fn add(&mut self, other: &Self) {
        self.total = self.total.saturating_add(other.total);
        self.failed = self.failed.saturating_add(other.failed);
        for (sum, more) in self.spans.iter_mut().zip(other.spans) {
            *sum = sum.saturating_add(more);
        }
    }

    /// How long this share, in percent, took at most, in milliseconds; `None` if no duration counts.
    pub fn percentile(&self, percent: u64) -> Option<u32> {
        let all: u64 = self.spans.iter().map(|count| u64::from(*count)).sum();
        let rank = all.saturating_mul(percent).div_ceil(100).max(1);
        let mut below = 0;
        let mut so_far = 0_u64;
        for (bound, count) in BOUNDS_MS.iter().zip(self.spans) {
            so_far = so_far.saturating_add(u64::from(count));
            if so_far >= rank {
                return Some(bound.midpoint(below));
            }
            below = *bound;
        }
        None
    }
}

/// The hours of a day that had something, each with its number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Day(pub BTreeMap<u8, HourCounts>);

impl Day {
    /// All hours together.
    pub fn sum(&self) -> HourCounts {
        self.0.values().fold(HourCounts::default(), |mut sum, hour| {
            sum.add(hour);
            sum
        })
    }

    /// As it is stored: for each hour its number, `total`, `failed`, and the number of buckets that are not empty, each
    /// with its place and its count. Every number takes seven bits of a byte, the lowest first.
    ///
    /// ```
    /// use oncebox::model::history::{Day, HourCounts};
    /// let mut hour = HourCounts::default();
    /// (0..300).for_each(|n| hour.note(n == 0, Some(100)));
    /// let day = Day([(9, hour)].into());
    /// assert_eq!(day.to_bytes(), [9, 0b1010_1100, 0b10, 1, 1, 10, 0b1010_1100, 0b10]);
    /// assert_eq!(Day::of(&day.to_bytes()), day);
    /// ```
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (hour, counts) in &self.0 {
            let filled = (0_u32..).zip(counts.spans).filter(|(_, count)| *count > 0);
            let number = u32::try_from(filled.clone().count()).unwrap_or(0);
            let head = [u32::from(*hour), counts.total, counts.failed, number];
            head.into_iter()
                .chain(filled.flat_map(|(bucket, count)| [bucket, count]))
                .for_each(|number| put(&mut bytes, number));
        }
        bytes
    }

    /// What these bytes say. What cannot be read is left out: it is only missing in a picture.
    pub fn of(mut bytes: &[u8]) -> Self {
        let mut day = Self::default();
        while let Some((hour, counts)) = take_hour(&mut bytes) {
            day.0.insert(hour, counts);
        }
        day
    }
}

/// The runs of the service, each from its start until its counts were stored last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage(Vec<(Timestamp, Timestamp)>);

impl Coverage {
    /// These runs.
    pub const fn of(runs: Vec<(Timestamp, Timestamp)>) -> Self {
        Self(runs)
    }

    /// For how much of the time between these two there are counts.
    ///
    /// ```
    /// use std::time::Duration;
    /// use oncebox::base::clock::Timestamp;
    /// use oncebox::model::history::Coverage;
    /// let at = Timestamp::from_secs;
    /// let runs = Coverage::of(vec![(at(90), at(200)), (at(10), at(70))]);
    /// assert_eq!(runs.within(at(60), at(120)), Duration::from_secs(40));
    /// assert!(runs.is_whole(at(10), at(70)));
    /// assert!(!runs.is_whole(at(60), at(120)));
    /// ```
    pub fn within(&self, from: Timestamp, until: Timestamp) -> Duration {
        let part =
            |(start, end): &(Timestamp, Timestamp)| (*end).min(until).since((*start).max(from));
        self.0.iter().map(part).sum::<Duration>().min(until.since(from))
    }

    /// Whether there are counts of all the time between these two.
    pub fn is_whole(&self, from: Timestamp, until: Timestamp) -> bool {
        self.within(from, until) == until.since(from)
    }
}

fn take_hour(bytes: &mut &[u8]) -> Option<(u8, HourCounts)> {
    let hour = u8::try_from(take(bytes)?).ok().filter(|hour| *hour < 24)?;
    let mut counts =
        HourCounts { total: take(bytes)?, failed: take(bytes)?, ..HourCounts::default() };
    for _ in 0..take(bytes)? {
        let bucket = usize::try_from(take(bytes)?).ok()?;
        *counts.spans.get_mut(bucket)? = take(bytes)?;
    }
    Some((hour, counts))
}

fn put(bytes: &mut Vec<u8>, mut number: u32) {
    loop {
        let [low, ..] = number.to_le_bytes();
        number >>= 7;
        if number == 0 {
            return bytes.push(low & 0x7f);
        }
        bytes.push(low | 0x80);
    }
}

fn take(bytes: &mut &[u8]) -> Option<u32> {
    let mut number = 0;
    for shift in [0, 7, 14, 21, 28] {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u32::from(first & 0x7f) << shift;
        if *first < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_wrong_by_less_than_21_percent() {
        for took in 5..=185_364_u32 {
            let mut counts = HourCounts::default();
            counts.note(false, Some(took));
            let told = counts.percentile(95).unwrap();
            let wrong = u64::from(told.abs_diff(took)) * 100;
            // Of a few milliseconds, one is more than that.
            assert!(told.abs_diff(took) <= 1 || wrong <= u64::from(took) * 21, "{took}: {told}");
        }
        let mut counts = HourCounts::default();
        (0..95).for_each(|_| counts.note(false, Some(100)));
        (0..5).for_each(|_| counts.note(true, Some(4_000_000)));
        counts.note(false, None);
        let found = [50, 94, 95, 96, 100].map(|percent| counts.percentile(percent));
        assert_eq!(found, [109, 109, 109, 158_218, 158_218].map(Some));
        assert_eq!((counts.total, counts.failed), (101, 5));
        assert_eq!(HourCounts::default().percentile(50), None);
    }

    #[test]
    fn damaged_bytes_lose_only_what_follows() {
        let mut hour = HourCounts::default();
        hour.note(false, Some(7));
        let day = Day([(1, hour.clone()), (23, hour.clone())].into());
        let bytes = day.to_bytes();
        assert_eq!(Day::of(&bytes[..bytes.len() - 1]), Day([(1, hour)].into()));
        assert_eq!(Day::of(&[0xff; 40]), Day::default());
        assert_eq!(Day::of(&[1, 1, 1, 1, 99, 1]), Day::default());
    }
}
