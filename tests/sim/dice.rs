//! Choices that follow from a seed.

use std::sync::Mutex;

use oncebox::base::faults::SplitMix64;
use oncebox::base::id::Draw;

/// Milliseconds: a time since the world began, or a span.
pub(crate) type Ms = i64;

pub(crate) const SECOND: Ms = 1000;
pub(crate) const MINUTE: Ms = 60 * SECOND;
pub(crate) const HOUR: Ms = 60 * MINUTE;
pub(crate) const DAY: Ms = 24 * HOUR;

/// A stream of choices.
#[derive(Clone, Debug)]
pub(crate) struct Dice(SplitMix64);

impl Dice {
    /// A stream of its own for each name.
    pub(crate) fn new(seed: u32, name: &str) -> Self {
        Self(SplitMix64::of(seed, name, 0))
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.0.draw()
    }

    /// A number below `end`, which is at least 1.
    pub(crate) fn below(&mut self, end: i64) -> i64 {
        i64::try_from(self.0.below(end.unsigned_abs())).unwrap()
    }

    /// A number from `from` to `to`, both possible.
    pub(crate) fn between(&mut self, from: i64, to: i64) -> i64 {
        from + self.below((to - from).max(0) + 1)
    }

    /// Like [`Dice::between`], with every order of magnitude as likely as any other.
    pub(crate) fn spread(&mut self, from: i64, to: i64) -> i64 {
        let mut end = from.max(1);
        while end < to && !self.one_in(4) {
            end = end.saturating_mul(4);
        }
        self.between(from, end.min(to))
    }

    pub(crate) fn one_in(&mut self, n: i64) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.below(i64::try_from(from.len()).unwrap())).unwrap()]
    }
}

/// Randomness for the jitter.
#[derive(Debug)]
pub(crate) struct JitterDraw(Mutex<Dice>);

impl JitterDraw {
    pub(crate) fn new(seed: u32) -> Self {
        Self(Mutex::new(Dice::new(seed, "jitter")))
    }
}

impl Draw for JitterDraw {
    fn fill(&self, into: &mut [u8]) {
        let mut dice = self.0.lock().unwrap();
        for byte in into {
            *byte = dice.draw().to_le_bytes()[0];
        }
    }
}
