//! The sources of time: the machine's clocks, or a clock that a test moves.

#[cfg(any(test, feature = "internals"))]
use std::sync::Arc;
#[cfg(any(test, feature = "internals"))]
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use super::timestamp::Timestamp;
#[cfg(any(test, feature = "internals"))]
use super::timestamp::millis;

/// Where the readings come from. Real in the product, set by hand in tests.
pub trait TimeSource: Send + Sync {
    /// What the calendar says.
    fn wall(&self) -> Timestamp;
    /// Time since some fixed moment; never goes back.
    fn monotonic(&self) -> Duration;
    /// Whether the machine reports that a time service keeps the wall clock right; `false` too if that is unknown.
    fn is_synchronised(&self) -> bool;
}

/// The machine's clocks.
pub(super) struct Machine {
    started: Instant,
    is_synchronised: fn() -> bool,
}

impl Machine {
    /// The clocks of the machine, whose synchronisation this function reports.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads time")]
    pub(super) fn new(is_synchronised: fn() -> bool) -> Self {
        Self { started: Instant::now(), is_synchronised }
    }
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

    fn is_synchronised(&self) -> bool {
        (self.is_synchronised)()
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
/// assert_eq!(clock.shown(), Timestamp::from_secs(9));
/// ```
#[cfg(any(test, feature = "internals"))]
#[derive(Debug)]
pub struct ManualTime {
    /// The wall reading minus the monotonic one.
    ahead_ms: AtomicI64,
    monotonic_ms: AtomicI64,
    is_synchronised: AtomicBool,
}

#[cfg(any(test, feature = "internals"))]
impl ManualTime {
    /// A clock that shows `wall`, and that a time service keeps right.
    pub fn at(wall: Timestamp) -> Arc<Self> {
        Arc::new(Self {
            ahead_ms: AtomicI64::new(wall.ms()),
            monotonic_ms: AtomicI64::new(0),
            is_synchronised: AtomicBool::new(true),
        })
    }

    /// Says whether a time service keeps the wall clock right from now on.
    pub fn set_synchronised(&self, is_synchronised: bool) {
        self.is_synchronised.store(is_synchronised, Ordering::SeqCst);
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
        Timestamp::from_ms(self.ahead_ms.load(Ordering::SeqCst).saturating_add(monotonic))
    }

    fn monotonic(&self) -> Duration {
        let ms = self.monotonic_ms.load(Ordering::SeqCst);
        Duration::from_millis(u64::try_from(ms).unwrap_or(0))
    }

    fn is_synchronised(&self) -> bool {
        self.is_synchronised.load(Ordering::SeqCst)
    }
}
