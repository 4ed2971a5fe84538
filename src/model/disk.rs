//! The disk budget: how much space is reserved, so that outcomes can still be stored when new work is refused.

use crate::sys::disk::Space;

/// The smallest reserve, unless it is more than a quarter of the disk.
const MIN_RESERVE: u64 = 64_000_000;
/// The largest reserve, unless the settings ask for more.
const MAX_RESERVE: u64 = 1 << 30;
/// The write-ahead log is copied into the database at this size, or earlier on a small disk.
const MAX_LOG: u64 = 16 << 20;
/// The smallest size at which the log is copied. A smaller one would cost a sync for nearly every commit.
const MIN_LOG: u64 = 256 << 10;

/// How much space is reserved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// The configured reserve in bytes; `None`: computed from the size of the file system.
    pub reserve: Option<u64>,
}

/// Whether there is space for new work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// New work is accepted.
    Enough,
    /// New work is accepted, but the reserve is near.
    Scarce,
    /// New work is refused.
    Low,
}

impl Budget {
    /// Bytes to reserve on a file system of this size: `min(max(64 MB, 5 %), 25 %, 1 GiB)` unless configured.
    ///
    /// ```
    /// use oncebox::model::disk::Budget;
    /// assert_eq!(Budget::default().reserve_of(250_000_000_000), 1 << 30);
    /// assert_eq!(Budget::default().reserve_of(10_000_000_000), 500_000_000);
    /// assert_eq!(Budget::default().reserve_of(1_000_000_000), 64_000_000);
    /// assert_eq!(Budget::default().reserve_of(100_000_000), 25_000_000);
    /// ```
    pub fn reserve_of(self, total: u64) -> u64 {
        self.reserve.unwrap_or_else(|| MIN_RESERVE.max(total / 20).min(total / 4).min(MAX_RESERVE))
    }

    /// Bytes that outcomes may not use either: an eighth of the reserve, but at least the size of the write-ahead log.
    /// They are needed to copy the log into the database.
    pub fn floor_of(self, total: u64) -> u64 {
        Self::log_of(total).max(self.reserve_of(total) / 8)
    }

    /// Bytes that the write-ahead log may hold before it is copied into the database.
    ///
    /// ```
    /// use oncebox::model::disk::Budget;
    /// assert_eq!(Budget::log_of(250_000_000_000), 16 << 20);
    /// assert_eq!(Budget::log_of(64 << 20), 1 << 20);
    /// ```
    pub fn log_of(total: u64) -> u64 {
        (total / 64).clamp(MIN_LOG, MAX_LOG)
    }

    /// Judges a reading; `before` is the previous result. `Low` ends only an eighth above the reserve, so that a
    /// temporary file does not change the answers each second.
    pub fn judge(self, before: Room, space: Space) -> Room {
        let reserve = self.reserve_of(space.total);
        let enough =
            if before == Room::Low { reserve.saturating_add(reserve / 8) } else { reserve };
        if space.free < enough {
            Room::Low
        } else if space.free < reserve.saturating_mul(2) {
            Room::Scarce
        } else {
            Room::Enough
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_ends_a_little_above_the_level_where_it_begins() {
        let budget = Budget { reserve: Some(800) };
        let mut room = Room::Enough;
        for (free, expected) in [
            (1600, Room::Enough),
            (1599, Room::Scarce),
            (800, Room::Scarce),
            (799, Room::Low),
            (800, Room::Low),
            (899, Room::Low),
            (900, Room::Scarce),
            (801, Room::Scarce),
            (0, Room::Low),
            (5000, Room::Enough),
        ] {
            room = budget.judge(room, Space { total: 10_000, free });
            assert_eq!(room, expected, "with {free} free");
        }
    }

    #[test]
    fn a_reserve_of_zero_switches_the_budget_off() {
        let budget = Budget { reserve: Some(0) };
        assert_eq!(budget.judge(Room::Low, Space { total: 10, free: 0 }), Room::Enough);
    }
}
