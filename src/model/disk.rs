//! The disk budget: how much room is kept free so that results can still be recorded when new work can
//! not be taken any more.

use crate::sys::disk::Space;

/// The least reserve that is asked for on a large disk.
const RESERVE_LEAST: u64 = 64_000_000;
/// The largest reserve that is kept unless the settings ask for more.
const MAX_RESERVE: u64 = 1 << 30;
/// The write-ahead log is copied into the database at this size, or earlier on a small disk.
const MAX_LOG: u64 = 16 << 20;
/// The same size on the smallest disk: a smaller log would cost a sync for nearly every commit.
const MIN_LOG: u64 = 256 << 10;

/// How much is kept free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// What the settings say, in bytes; `None`: it follows from the size of the file system.
    pub reserve: Option<u64>,
}

/// What a reading means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// New work is taken.
    Enough,
    /// New work is taken, but the reserve is near.
    Scarce,
    /// New work is refused.
    Low,
}

impl Budget {
    /// Bytes to keep free on a file system of that size: `min(max(64 MB, 5 %), 25 %, 1 GiB)` unless it was
    /// set.
    ///
    /// ```
    /// use oncebox::model::disk::Budget;
    /// assert_eq!(Budget::default().reserve_of(250_000_000_000), 1 << 30);
    /// assert_eq!(Budget::default().reserve_of(10_000_000_000), 500_000_000);
    /// assert_eq!(Budget::default().reserve_of(1_000_000_000), 64_000_000);
    /// assert_eq!(Budget::default().reserve_of(100_000_000), 25_000_000);
    /// ```
    pub fn reserve_of(self, total: u64) -> u64 {
        self.reserve
            .unwrap_or_else(|| RESERVE_LEAST.max(total / 20).min(total / 4).min(MAX_RESERVE))
    }

    /// Bytes that outcomes may not take either: an eighth of the reserve, and the usual size of the write-ahead
    /// log at least. The log is copied into the database with what is left.
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

    /// What a reading means, after what the one before meant. What was low has to rise an eighth above the
    /// reserve, so that a file that is written and removed does not turn the answers over each second.
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
    fn low_is_left_a_little_above_where_it_is_entered() {
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
    fn a_reserve_of_nothing_switches_the_budget_off() {
        let budget = Budget { reserve: Some(0) };
        assert_eq!(budget.judge(Room::Low, Space { total: 10, free: 0 }), Room::Enough);
    }
}
