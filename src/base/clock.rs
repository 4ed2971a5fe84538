//! Time: the only place that reads it.
//!
//! Two readings exist. [`Clock::wall`] is what a calendar on the wall shows: it goes into records and
//! signatures. [`Clock::now`] is *schedule time*: the wall time at start plus what a monotonic clock
//! has counted since, so that a clock that is set forward or back moves no due time.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// 1973-03-03T09:46:40Z. Read as seconds, the number is beyond the year 5000: no number is likely in both units.
const LIKELY_FROM: i64 = 100_000_000_000;
/// 2200-01-01T00:00:00Z.
const LIKELY_BEFORE: i64 = 7_258_118_400_000;
/// Two readings within this belong to one moment.
const AT_ONCE: Duration = Duration::from_millis(100);

/// A point in time: whole milliseconds since 1970-01-01T00:00:00Z.
///
/// Stored as INTEGER in every `…_at` column, shown as RFC 3339 in UTC.
///
/// ```
/// use oncebox::base::clock::Timestamp;
/// let at = Timestamp::from_ms(1_700_000_000_123);
/// assert_eq!(at.to_string(), "2023-11-14T22:13:20.123Z");
/// assert_eq!(Timestamp::parse("2023-11-14T22:13:20.123Z"), Some(at));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The given number of milliseconds since the epoch.
    pub const fn from_ms(ms: i64) -> Self {
        Self(ms)
    }

    /// The given number of seconds since the epoch.
    pub const fn from_secs(secs: i64) -> Self {
        Self(secs.saturating_mul(1000))
    }

    /// Milliseconds since the epoch.
    pub const fn ms(self) -> i64 {
        self.0
    }

    /// Whole seconds since the epoch, rounded down.
    pub const fn secs(self) -> i64 {
        self.0.div_euclid(1000)
    }

    /// Whether it lies from 1973 to 2199. A number outside was likely meant in another unit, or is no time.
    ///
    /// ```
    /// use oncebox::base::clock::Timestamp;
    /// assert!(Timestamp::from_secs(1_700_000_000).is_likely());
    /// assert!(!Timestamp::from_ms(1_700_000_000).is_likely());
    /// assert!(!Timestamp::from_ms(1_700_000_000_000_000).is_likely());
    /// ```
    pub const fn is_likely(self) -> bool {
        LIKELY_FROM <= self.0 && self.0 < LIKELY_BEFORE
    }

    /// This much later; stops at the end of representable time.
    #[must_use]
    pub fn plus(self, span: Duration) -> Self {
        Self(self.0.saturating_add(millis(span)))
    }

    /// This much earlier; stops at the start of representable time.
    #[must_use]
    pub fn minus(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(millis(span)))
    }

    /// How long after `earlier` this is; zero if it is not.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// Reads RFC 3339, with any offset; `None` if the text is not that.
    pub fn parse(text: &str) -> Option<Self> {
        let at = OffsetDateTime::parse(text, &Rfc3339).ok()?;
        // Near the ends of the calendar a time may have no year in UTC.
        let at = at.checked_to_offset(time::UtcOffset::UTC)?;
        i64::try_from(at.unix_timestamp_nanos().div_euclid(1_000_000)).ok().map(Self)
    }
}

impl From<SystemTime> for Timestamp {
    fn from(at: SystemTime) -> Self {
        let since = at.duration_since(SystemTime::UNIX_EPOCH);
        Self(since.map_or_else(|before| -millis(before.duration()), millis))
    }
}

/// Reads a span. The error says how one is written.
#[cfg(feature = "service")]
pub fn span(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|_why| format!("{text:?} is not a span like 500ms, 30s or 5min"))
}

/// A span in whole milliseconds, as the columns `…_ms` hold it.
pub fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = i128::from(self.0).saturating_mul(1_000_000);
        let Ok(at) = OffsetDateTime::from_unix_timestamp_nanos(nanos) else {
            return write!(f, "{}ms", self.0);
        };
        let (y, mo, d) = (at.year(), u8::from(at.month()), at.day());
        let (h, mi, s, ms) = (at.hour(), at.minute(), at.second(), at.millisecond());
        write!(f, "{y:04}-{mo:02}-{d:02}T{h:02}:{mi:02}:{s:02}.{ms:03}Z")
    }
}

impl serde::Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Self::parse(&text).ok_or_else(|| {
            serde::de::Error::custom("not an RFC 3339 time like 2026-01-31T12:00:00Z")
        })
    }
}

/// Where the two readings come from. Real in the product, set by hand in tests.
pub trait TimeSource: Send + Sync {
    /// What the calendar says.
    fn wall(&self) -> Timestamp;
    /// Time since some fixed moment; never goes back.
    fn monotonic(&self) -> Duration;
}

/// The machine's clocks.
struct Machine {
    started: Instant,
}

impl TimeSource for Machine {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place that reads the wall clock"
    )]
    fn wall(&self) -> Timestamp {
        SystemTime::now().into()
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }
}

#[cfg(feature = "service")]
/// What the machine's `CLOCK_MONOTONIC` shows, which other processes can read as well.
pub fn machine_monotonic() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::try_from(now).unwrap_or_default()
}

/// A clock that stands still until a test moves it.
///
/// ```
/// use oncebox::base::clock::{Clock, ManualTime, Timestamp};
/// use std::time::Duration;
/// let time = ManualTime::at(Timestamp::from_secs(1_000));
/// let clock = Clock::from_source(time.clone());
/// time.advance(Duration::from_secs(5));
/// assert_eq!(clock.now(), Timestamp::from_secs(1_005));
/// time.set_wall(Timestamp::from_secs(9)); // somebody sets the wall clock back
/// assert_eq!(clock.now(), Timestamp::from_secs(1_005));
/// assert_eq!(clock.wall(), Timestamp::from_secs(9));
/// ```
#[cfg(any(test, feature = "internals"))]
#[derive(Debug)]
pub struct ManualTime {
    /// The wall reading minus the monotonic one.
    ahead_ms: AtomicI64,
    monotonic_ms: AtomicI64,
}

#[cfg(any(test, feature = "internals"))]
impl ManualTime {
    /// A clock that shows `wall`.
    pub fn at(wall: Timestamp) -> Arc<Self> {
        Arc::new(Self { ahead_ms: AtomicI64::new(wall.ms()), monotonic_ms: AtomicI64::new(0) })
    }

    /// Lets time pass on both readings at once.
    pub fn advance(&self, span: Duration) {
        self.monotonic_ms.fetch_add(millis(span), Ordering::SeqCst);
    }

    /// Sets the wall reading alone, as `date -s` or NTP would.
    pub fn set_wall(&self, wall: Timestamp) {
        let monotonic = self.monotonic_ms.load(Ordering::SeqCst);
        self.ahead_ms.store(wall.ms().saturating_sub(monotonic), Ordering::SeqCst);
    }
}

#[cfg(any(test, feature = "internals"))]
impl TimeSource for ManualTime {
    fn wall(&self) -> Timestamp {
        let monotonic = self.monotonic_ms.load(Ordering::SeqCst);
        Timestamp(self.ahead_ms.load(Ordering::SeqCst).saturating_add(monotonic))
    }

    fn monotonic(&self) -> Duration {
        let ms = self.monotonic_ms.load(Ordering::SeqCst);
        Duration::from_millis(u64::try_from(ms).unwrap_or(0))
    }
}

/// The clock, passed to all code that needs time. Cheap to clone; clones share one anchor.
#[derive(Clone)]
pub struct Clock {
    source: Arc<dyn TimeSource>,
    /// Schedule time minus monotonic time, in ms.
    anchor_ms: Arc<AtomicI64>,
}

impl Clock {
    /// The machine's own clock.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads time")]
    pub fn machine() -> Self {
        Self::from_source(Arc::new(Machine { started: Instant::now() }))
    }

    /// A clock over another source; schedule time starts at its wall time.
    pub fn from_source(source: Arc<dyn TimeSource>) -> Self {
        let anchor_ms = Arc::new(AtomicI64::new(wall_anchor_ms(&*source)));
        Self { source, anchor_ms }
    }

    /// Schedule time: due times, waits and deadlines. Setting the wall clock does not move it.
    pub fn now(&self) -> Timestamp {
        let anchor = self.anchor_ms.load(Ordering::Acquire);
        Timestamp(anchor.saturating_add(millis(self.source.monotonic())))
    }

    /// Wall time: records, and the timestamps inside signatures.
    pub fn wall(&self) -> Timestamp {
        self.source.wall()
    }

    /// Time since a fixed moment, for measuring how long something took.
    pub fn monotonic(&self) -> Duration {
        self.source.monotonic()
    }

    /// How far the wall clock has moved away from schedule time, in ms: positive when it was set forward.
    pub fn step_ms(&self) -> i64 {
        wall_anchor_ms(&*self.source).saturating_sub(self.anchor_ms.load(Ordering::Acquire))
    }

    /// Sets schedule time to the wall time, after a clock step has been handled.
    pub fn re_anchor(&self) {
        self.anchor_ms.store(wall_anchor_ms(&*self.source), Ordering::Release);
    }
}

/// Wall time minus monotonic time, in ms. A thread that stood still between the two readings reads them again: that is no
/// step of the clock.
fn wall_anchor_ms(source: &dyn TimeSource) -> i64 {
    loop {
        let before = source.monotonic();
        let wall = source.wall();
        if source.monotonic().saturating_sub(before) < AT_ONCE {
            return wall.ms().saturating_sub(millis(before));
        }
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock").field("now", &self.now()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_with_an_offset_is_converted_to_utc() {
        let at = Timestamp::parse("2026-01-31T13:00:00+01:00").unwrap();
        assert_eq!(at.to_string(), "2026-01-31T12:00:00.000Z");
        assert_eq!(Timestamp::parse("yesterday"), None);
        assert_eq!(Timestamp::parse("9999-12-31T23:59:59-23:59"), None);
        assert!(Timestamp::parse("9999-12-31T23:59:59Z").is_some());
    }

    #[test]
    fn a_step_of_the_wall_clock_is_measured_and_can_be_adopted() {
        let time = ManualTime::at(Timestamp::from_secs(100));
        let clock = Clock::from_source(time.clone());
        time.set_wall(Timestamp::from_secs(40));
        assert_eq!(clock.step_ms(), -60_000);
        clock.re_anchor();
        assert_eq!(clock.now(), Timestamp::from_secs(40));
        assert_eq!(clock.step_ms(), 0);
    }

    /// A source whose first readings of the wall take three seconds each, as when a thread stands still.
    struct Halting(Arc<ManualTime>, AtomicI64);

    impl TimeSource for Halting {
        fn wall(&self) -> Timestamp {
            let wall = self.0.wall();
            if self.1.fetch_sub(1, Ordering::SeqCst) > 0 {
                self.0.advance(Duration::from_secs(3));
            }
            wall
        }

        fn monotonic(&self) -> Duration {
            self.0.monotonic()
        }
    }

    #[test]
    fn a_thread_that_stood_still_between_two_readings_sees_no_step() {
        let time = ManualTime::at(Timestamp::from_secs(100));
        let source = Arc::new(Halting(time.clone(), AtomicI64::new(2)));
        let clock = Clock::from_source(source.clone());
        assert_eq!(clock.now(), clock.wall());
        source.1.store(2, Ordering::SeqCst);
        assert_eq!(clock.step_ms(), 0);
        time.set_wall(Timestamp::from_secs(40));
        source.1.store(2, Ordering::SeqCst);
        clock.re_anchor();
        assert_eq!(clock.now(), clock.wall());
    }

    #[test]
    fn spans_never_wrap() {
        let end = Timestamp::from_ms(i64::MAX);
        assert_eq!(end.plus(Duration::from_secs(1)), end);
        assert_eq!(Timestamp::from_ms(1).since(Timestamp::from_ms(5)), Duration::ZERO);
    }
}
