//! Points in time and spans.

use std::fmt;
use std::time::{Duration, SystemTime};

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// 1973-03-03T09:46:40Z. Read as seconds, the number is beyond the year 5000: no number is likely in both units.
const LIKELY_FROM: i64 = 100_000_000_000;
/// 2200-01-01T00:00:00Z.
const LIKELY_BEFORE: i64 = 7_258_118_400_000;
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
        let y = at.year();
        let mo = u8::from(at.month());
        let d = at.day();
        let h = at.hour();
        let mi = at.minute();
        let s = at.second();
        let ms = at.millisecond();
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
    fn spans_never_wrap() {
        let end = Timestamp::from_ms(i64::MAX);
        assert_eq!(end.plus(Duration::from_secs(1)), end);
        assert_eq!(Timestamp::from_ms(1).since(Timestamp::from_ms(5)), Duration::ZERO);
    }
}
