//! Watches the free space on the disk: below the reserve new work is refused, so that outcomes can still be stored.
//!
//! Upkeep measures it every second. A write that finds no space causes a measurement at once. [`Budget`] decides, the
//! API refuses.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::model::disk::{Budget, Room};
use crate::pipeline::prelude::*;
use crate::store::writer::LogRoom;
use crate::sys::disk::{Gauge, Space};
use crate::telemetry::tally::Counter;

/// How often the free space is remembered, to tell how long it lasts.
const REMEMBERED_EVERY: Duration = Duration::from_hours(1);
/// How many such measurements are kept.
const MAX_REMEMBERED: usize = 24;

/// The free space, as last measured.
#[derive(Debug)]
pub struct DiskWatch {
    gauge: Gauge,
    path: PathBuf,
    settings: Live,
    log: Arc<LogRoom>,
    seen: Mutex<Seen>,
    trend: Mutex<Trend>,
    is_low: AtomicBool,
    /// Requests refused because of the reserve.
    pub refused: Counter,
    /// Writes that found no space.
    pub full: Counter,
    /// Times the reserve was reached.
    pub times_low: Counter,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    room: Room,
    space: Option<Space>,
}

/// The free space over the last hours, each with its time.
#[derive(Debug, Default)]
struct Trend {
    hourly: VecDeque<(Duration, u64)>,
    latest: (Duration, u64),
}

/// The last measurement, for the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskState {
    /// Whether that is enough.
    pub room: Room,
    /// The file system; `None` while it cannot be measured.
    pub space: Option<Space>,
    /// Bytes that are kept free.
    pub reserve: u64,
}

impl DiskWatch {
    /// A watch over the file system of the data directory, which has measured it once.
    pub fn new(gauge: Gauge, settings: Live, log: Arc<LogRoom>) -> Self {
        let path = settings.get().directory().to_owned();
        let watch = Self {
            gauge,
            path,
            settings,
            log,
            seen: Mutex::new(Seen { room: Room::Enough, space: None }),
            trend: Mutex::default(),
            is_low: AtomicBool::new(false),
            refused: Counter::default(),
            full: Counter::default(),
            times_low: Counter::default(),
        };
        watch.look();
        watch
    }

    fn budget(&self) -> Budget {
        Budget { reserve: self.settings.get().disk.reserve }
    }

    /// Whether new work is refused.
    pub fn is_low(&self) -> bool {
        self.is_low.load(Ordering::Acquire)
    }

    /// The last measurement.
    pub fn state(&self) -> DiskState {
        let Seen { room, space } = *self.seen.lock();
        DiskState { room, space, reserve: self.budget().reserve_of(space.map_or(0, |s| s.total)) }
    }

    /// Remembers the last measurement.
    pub fn note(&self, now: Duration) {
        let Some(Space { free, .. }) = self.state().space else { return };
        let Trend { hourly, latest } = &mut *self.trend.lock();
        *latest = (now, free);
        if hourly.back().is_none_or(|(at, _)| now.saturating_sub(*at) >= REMEMBERED_EVERY) {
            if hourly.len() >= MAX_REMEMBERED {
                hourly.pop_front();
            }
            hourly.push_back(*latest);
        }
    }

    /// How long the space above the reserve lasts, if it shrinks as it did in the last day. `None`: it does not shrink,
    /// or the first hour is not over.
    pub fn lasts(&self) -> Option<Duration> {
        let reserve = self.state().reserve;
        let trend = self.trend.lock();
        let (since, free_then) = *trend.hourly.front()?;
        let (now, free) = trend.latest;
        let span = Some(now.saturating_sub(since)).filter(|span| *span >= REMEMBERED_EVERY)?;
        let used = Some(free_then.saturating_sub(free)).filter(|used| *used > 0)?;
        let seconds = u128::from(free.saturating_sub(reserve)) * u128::from(span.as_secs());
        u64::try_from(seconds / u128::from(used)).ok().map(Duration::from_secs)
    }

    /// Measures the free space, and logs each change between enough and low. If that fails, the last state stays.
    pub fn look(&self) {
        let looked = self.gauge.look(&self.path);
        let mut seen = self.seen.lock();
        let space = match looked {
            Ok(space) => space,
            Err(error) => {
                if seen.space.take().is_some() {
                    tracing::warn!(%error, "the free space on the disk cannot be measured");
                }
                return;
            }
        };
        // The database file will need this space when the write-ahead log is copied into it.
        let net = Space { free: space.free.saturating_sub(self.log.growth()), ..space };
        let before = *seen;
        *seen = Seen { room: self.budget().judge(before.room, net), space: Some(space) };
        let now_low = seen.room == Room::Low;
        self.log.set(self.budget().floor_of(space.total), Budget::log_of(space.total));
        if now_low {
            self.log.ask_to_empty();
        }
        self.is_low.store(now_low, Ordering::Release);
        drop(seen);
        let free_bytes = space.free;
        let reserve_bytes = self.budget().reserve_of(space.total);
        match (before.room == Room::Low, now_low) {
            (false, true) => {
                self.times_low.add();
                tracing::error!(
                    free_bytes,
                    reserve_bytes,
                    "the disk is nearly full: new work is refused with 507 until there is space; \
                     deliveries go on"
                );
            }
            (true, false) => {
                tracing::info!(
                    free_bytes,
                    reserve_bytes,
                    "there is enough free space again: new work is accepted"
                );
            }
            _ => (),
        }
    }

    /// Counts a write that found no space, and measures at once.
    pub fn found_full(&self) {
        self.full.add();
        self.log.ask_to_empty();
        self.look();
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::config::Settings;

    #[test]
    fn the_state_follows_the_disk_and_stays_when_the_disk_cannot_be_measured() {
        let free = Arc::new(AtomicU64::new(5_000));
        let measured = Arc::clone(&free);
        let gauge = Gauge::new(move |_: &Path| match measured.load(Ordering::SeqCst) {
            u64::MAX => Err(io::Error::other("gone")),
            free => Ok(Space { total: 10_000, free }),
        });
        let mut settings = Settings::default();
        settings.disk.reserve = Some(800);
        let settings = Live::new(settings);
        let watch = DiskWatch::new(gauge, settings, Arc::default());
        assert!(!watch.is_low());
        free.store(799, Ordering::SeqCst);
        watch.found_full();
        assert!(watch.is_low());
        free.store(u64::MAX, Ordering::SeqCst);
        watch.look();
        assert!(watch.is_low() && watch.state().space.is_none());
        free.store(900, Ordering::SeqCst);
        watch.look();
        assert!(!watch.is_low());
        assert_eq!((watch.times_low.get(), watch.full.get()), (1, 1));
    }

    #[test]
    fn the_space_lasts_as_long_as_the_last_day_tells() {
        let free = Arc::new(AtomicU64::new(10_800));
        let measured = Arc::clone(&free);
        let gauge = Gauge::new(move |_: &Path| {
            Ok(Space { total: 20_000, free: measured.load(Ordering::SeqCst) })
        });
        let mut settings = Settings::default();
        settings.disk.reserve = Some(800);
        let watch = DiskWatch::new(gauge, Live::new(settings), Arc::default());
        let at = |minutes: u64, bytes: u64| {
            free.store(bytes, Ordering::SeqCst);
            watch.look();
            watch.note(Duration::from_mins(minutes));
            watch.lasts().map(|lasts| lasts.as_secs() / 60)
        };
        assert_eq!(at(0, 10_800), None);
        assert_eq!(at(59, 9_800), None, "too early");
        assert_eq!(at(60, 10_800), None, "it does not shrink");
        assert_eq!(at(120, 8_800), Some(480), "2,000 in two hours, 8,000 are left");
        assert_eq!(at(180, 700), Some(0));
        // After a day, the first hours count no more.
        for hour in 4..40 {
            at(hour * 60, 10_000);
        }
        assert_eq!(at(40 * 60, 10_000), None);
    }
}
