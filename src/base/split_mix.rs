//! Pseudo-random numbers from a seed, so that planned failures can be repeated.
//!
//! Not here: randomness that must not be guessed, which is [`crate::base::id::Draw`].

use std::time::Duration;

/// A deterministic stream of numbers (`SplitMix64`): short, and even enough for planned failures. Never used
/// for secrets.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// A stream of its own for each name and number.
    pub fn of(seed: u32, name: &str, number: u64) -> Self {
        // FNV-1a, because the names differ in their last digits only, and each has to change all bits.
        let start = 0xcbf2_9ce4_8422_2325_u64 ^ u64::from(seed);
        let hash = name
            .bytes()
            .chain(number.to_le_bytes())
            .fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        let mut mixed = Self(hash);
        Self(mixed.draw())
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.draw().checked_rem(end).unwrap_or(0)
    }

    /// A span from `from` to `to`, in whole milliseconds.
    pub fn between(&mut self, from: Duration, to: Duration) -> Duration {
        let room = u64::try_from(to.saturating_sub(from).as_millis()).unwrap_or(0);
        from.saturating_add(Duration::from_millis(self.below(room.saturating_add(1))))
    }
}
