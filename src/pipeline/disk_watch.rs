//! Watches the room on the disk: below the reserve new work is refused, so that results can still be
//! recorded.
//!
//! Looked at by upkeep every second, and at once when a write found no room. The decision is
//! [`Budget`]'s; what is refused is the API's.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::config::Live;
use crate::model::disk::{Budget, Room};
use crate::store::writer::LogRoom;
use crate::sys::disk::{Gauge, Space};
use crate::telemetry::tally::Counter;

/// The room on the disk, as it was last seen.
#[derive(Debug)]
pub struct DiskWatch {
    gauge: Gauge,
    path: PathBuf,
    settings: Live,
    log: Arc<LogRoom>,
    seen: Mutex<Seen>,
    is_low: AtomicBool,
    /// Requests refused for the reserve.
    pub refused: Counter,
    /// Writes that found no room.
    pub full: Counter,
    /// Times the reserve was reached.
    pub times_low: Counter,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    room: Room,
    space: Option<Space>,
}

/// What was last seen, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskState {
    /// What it means.
    pub room: Room,
    /// The file system; `None` while it could not be looked at.
    pub space: Option<Space>,
    /// Bytes that are kept free.
    pub reserve: u64,
}

impl DiskWatch {
    /// A watch over the file system of the data directory, which has looked once.
    pub fn new(gauge: Gauge, settings: Live, log: Arc<LogRoom>) -> Self {
        let path = settings.get().directory().to_owned();
        let watch = Self {
            gauge,
            path,
            settings,
            log,
            seen: Mutex::new(Seen { room: Room::Enough, space: None }),
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

    /// What was last seen.
    pub fn state(&self) -> DiskState {
        let Seen { room, space } = *self.seen.lock();
        DiskState { room, space, reserve: self.budget().reserve_of(space.map_or(0, |s| s.total)) }
    }

    /// Looks, and says so once when it changes between enough and low. What cannot be looked at stays what
    /// it was.
    pub fn look(&self) {
        let looked = self.gauge.look(&self.path);
        let mut seen = self.seen.lock();
        let space = match looked {
            Ok(space) => space,
            Err(error) => {
                if seen.space.take().is_some() {
                    tracing::warn!(%error, "the room on the disk cannot be looked at");
                }
                return;
            }
        };
        // What is in the log takes its room in the file when it is copied.
        let net = Space { free: space.free.saturating_sub(self.log.owed()), ..space };
        let before = *seen;
        *seen = Seen { room: self.budget().judge(before.room, net), space: Some(space) };
        let now_low = seen.room == Room::Low;
        self.log.set(self.budget().floor_of(space.total), Budget::log_of(space.total));
        if now_low {
            self.log.ask_to_empty();
        }
        self.is_low.store(now_low, Ordering::Release);
        drop(seen);
        let (free_bytes, reserve_bytes) = (space.free, self.budget().reserve_of(space.total));
        match (before.room == Room::Low, now_low) {
            (false, true) => {
                self.times_low.add();
                tracing::error!(
                    free_bytes,
                    reserve_bytes,
                    "the disk is nearly full: new work is refused with 507 until there is room; \
                     deliveries go on"
                );
            }
            (true, false) => {
                tracing::info!(free_bytes, reserve_bytes, "there is room again: new work is taken");
            }
            _ => (),
        }
    }

    /// A write found no room: counted, and looked at at once.
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
    fn a_watch_follows_the_disk_and_keeps_its_mind_when_it_cannot_look() {
        let free = Arc::new(AtomicU64::new(5_000));
        let told = Arc::clone(&free);
        let gauge = Gauge::new(move |_: &Path| match told.load(Ordering::SeqCst) {
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
}
