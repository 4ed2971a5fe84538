//! Whether the wall clock is believed. Pure decisions over readings; [`Clock`](super::Clock) keeps the state.
//!
//! The service keeps *believed time*: the wall time of its start, carried on by the monotonic clock. A wall clock that agrees
//! with believed time is believed. A wall clock that was set, or that a start finds far from the last time that the file
//! knows, is suspect. A suspect clock moves no due time, and nothing is deleted, given up, expired or rotated by it. The
//! suspicion ends when the clock returns to believed time, when the machine reports that a time service keeps it right,
//! when it was not set again for [`AGREEMENT`], or when a person confirms it. Only then believed time follows the clock.

use std::time::Duration;

use super::timestamp::{Timestamp, millis};
use crate::base::words::words;

/// No clock that is right shows an earlier time: 2026-01-01T00:00:00Z, when this program did not exist.
pub const EARLIEST: Timestamp = Timestamp::from_secs(1_767_225_600);
/// A jump of this much is a step, not drift: time services correct smaller offsets gradually.
pub const STEP: Duration = Duration::from_secs(2);
/// Steps up to this size are believed at once: tools of virtual machines make them often. Waits keep their length all the
/// same, because what the file has of them moves with each step.
pub const SMALL_STEP: Duration = Duration::from_mins(1);
/// How far before the last time of the file a start may be: the clock may have been corrected by a small step meanwhile.
pub const NEAR_BEHIND: Duration = SMALL_STEP;
/// How long after the last time of the file a start may be without a time service that vouches for the clock. Longer than
/// a holiday weekend, and shorter than what is kept for months.
pub const NEAR_AHEAD: Duration = Duration::from_hours(7 * 24);
/// How long a suspect clock must run without being set until it is believed.
pub const AGREEMENT: Duration = Duration::from_hours(24);

/// One look at the machine's clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The wall clock.
    pub shown: Timestamp,
    /// The monotonic clock.
    pub monotonic: Duration,
    /// Whether the machine reports that a time service keeps the wall clock right.
    pub is_synchronised: bool,
}

impl Reading {
    /// The wall clock minus the monotonic clock, in ms. It changes only when the wall clock is set.
    pub fn offset_ms(self) -> i64 {
        self.shown.ms().saturating_sub(millis(self.monotonic))
    }
}

/// The time as the file knows it: what a start compares the clock with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownTime {
    /// Believed time when it was last stored.
    pub believed: Timestamp,
    /// The suspect clock of the last run, if it was suspect when the run ended.
    pub doubted: Option<DoubtedTime>,
}

/// A suspect clock, as the file knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DoubtedTime {
    /// What the clock showed when this was last stored.
    pub shown: Timestamp,
    /// What the clock showed when it was last set.
    pub agrees_since: Timestamp,
    /// Whether a person has said since then that it is right.
    pub is_confirmed: bool,
}

impl DoubtedTime {
    /// Whether the clock of a start is still the doubted clock, and was not set meanwhile. A time service may keep right a
    /// clock ahead of the file: then this holds however long the service was off.
    fn goes_on_at(self, reading: Reading, believed: Timestamp) -> bool {
        let is_later = reading.shown >= self.shown.minus(NEAR_BEHIND);
        let is_kept_right = reading.is_synchronised && self.shown > believed;
        is_later && (is_kept_right || reading.shown <= self.shown.plus(NEAR_AHEAD))
    }
}

words! {
    /// Why a clock is suspect.
    pub enum ClockDoubt as "ClockDoubt" {
        /// It was set while the service ran.
        Set = "set",
        /// A start found it before the last time that the file knows.
        BehindFile = "behind",
        /// A start found it more than a week after the last time that the file knows.
        AheadOfFile = "ahead",
        /// It shows a time before this program existed.
        TooEarly = "too_early",
    }
}

/// A clock that is not believed, and since when it agrees with itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspicion {
    /// Why.
    pub doubt: ClockDoubt,
    /// What the clock showed when it was last set, or when the service started.
    pub agrees_since: Timestamp,
    /// [`Reading::offset_ms`] at that time.
    pub offset_ms: i64,
}

impl Suspicion {
    fn of(doubt: ClockDoubt, reading: Reading) -> Self {
        Self { doubt, agrees_since: reading.shown, offset_ms: reading.offset_ms() }
    }

    /// When the clock is believed if it is not set again: a reading of the wall clock.
    pub fn ends_at(self) -> Timestamp {
        self.agrees_since.plus(AGREEMENT)
    }
}

/// The time that a start begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beginning {
    /// Believed time.
    pub believed: Timestamp,
    /// Why the clock is not believed, if it is not.
    pub suspicion: Option<Suspicion>,
}

/// Decides what a start believes. A file without a time knows only [`EARLIEST`].
///
/// A clock that was suspect when the last run ended stays suspect, whatever vouches for it by now: the first look believes
/// it, and then the ends of waits move with believed time, as in a running service. Until then believed time goes on by
/// what that clock has counted.
pub fn begin(reading: Reading, known: Option<KnownTime>) -> Beginning {
    let shown = reading.shown;
    let believed = known.map_or(EARLIEST, |known| known.believed);
    let doubt = match known {
        _ if shown < EARLIEST => Some(ClockDoubt::TooEarly),
        Some(_) if shown < believed.minus(NEAR_BEHIND) => Some(ClockDoubt::BehindFile),
        Some(_) if shown > believed.plus(NEAR_AHEAD) => Some(ClockDoubt::AheadOfFile),
        _ => None,
    };
    let doubted = known.and_then(|known| known.doubted);
    if let Some(before) = doubted.filter(|before| before.goes_on_at(reading, believed)) {
        let mut suspicion = Suspicion::of(doubt.unwrap_or(ClockDoubt::Set), reading);
        suspicion.agrees_since = before.agrees_since;
        let passed = shown.since(before.shown);
        return Beginning { believed: believed.plus(passed), suspicion: Some(suspicion) };
    }
    match doubt.filter(|_| !reading.is_synchronised) {
        None => Beginning { believed: shown, suspicion: None },
        Some(doubt) => Beginning { believed, suspicion: Some(Suspicion::of(doubt, reading)) },
    }
}

/// What follows from a look at the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// Nothing has changed.
    Unchanged,
    /// The clock is suspect from now on, or was set once more.
    Suspect(Suspicion),
    /// The clock is believed: believed time moves by so much, which may be nothing.
    Believe {
        /// Milliseconds; positive: the clock is ahead of believed time.
        step_ms: i64,
    },
}

/// How believed time is about to move.
#[derive(Clone, Copy, Debug)]
pub struct TimeStep {
    /// Believed time before the step.
    pub from: Timestamp,
    /// Believed time after it.
    pub to: Timestamp,
}

impl TimeStep {
    /// A step of so many ms; positive: forward.
    pub const fn of(from: Timestamp, step_ms: i64) -> Self {
        Self { from, to: Timestamp::from_ms(from.ms().saturating_add(step_ms)) }
    }

    /// How far it goes, in ms; positive: forward.
    pub const fn ms(self) -> i64 {
        self.to.ms().saturating_sub(self.from.ms())
    }
}

/// Compares a reading with believed time, whose [`Reading::offset_ms`] is `believed_offset_ms`.
pub fn judge(
    reading: Reading,
    believed_offset_ms: i64,
    suspicion: Option<Suspicion>,
    is_confirmed: bool,
) -> Judgement {
    let step_ms = reading.offset_ms().saturating_sub(believed_offset_ms);
    let believe = Judgement::Believe { step_ms };
    let is_vouched_for = reading.is_synchronised || is_confirmed;
    let has_stepped = is_at_least(step_ms, STEP);
    let Some(suspicion) = suspicion else {
        return match has_stepped {
            false => Judgement::Unchanged,
            true if is_vouched_for || !is_more_than(step_ms, SMALL_STEP) => believe,
            true => Judgement::Suspect(Suspicion::of(ClockDoubt::Set, reading)),
        };
    };
    if !has_stepped || is_vouched_for {
        return believe;
    }
    if is_more_than(reading.offset_ms().saturating_sub(suspicion.offset_ms), SMALL_STEP) {
        return Judgement::Suspect(Suspicion::of(ClockDoubt::Set, reading));
    }
    if has_agreed(suspicion, reading.shown) { believe } else { Judgement::Unchanged }
}

fn has_agreed(suspicion: Suspicion, shown: Timestamp) -> bool {
    shown >= EARLIEST && shown >= suspicion.ends_at()
}

fn is_at_least(step_ms: i64, span: Duration) -> bool {
    Duration::from_millis(step_ms.unsigned_abs()) >= span
}

fn is_more_than(step_ms: i64, span: Duration) -> bool {
    Duration::from_millis(step_ms.unsigned_abs()) > span
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_hours(24);
    const KNOWN: Timestamp = Timestamp::from_secs(1_780_000_000);

    fn reading(shown: Timestamp) -> Reading {
        Reading { shown, monotonic: Duration::from_secs(5), is_synchronised: false }
    }

    fn begun(reading: Reading, doubted: Option<DoubtedTime>) -> Beginning {
        begin(reading, Some(KnownTime { believed: KNOWN, doubted }))
    }

    #[test]
    fn a_start_believes_a_clock_near_the_last_time_of_the_file() {
        let cases = [
            (KNOWN, None),
            (KNOWN.plus(DAY * 3), None),
            (KNOWN.minus(Duration::from_secs(30)), None),
            (KNOWN.plus(DAY * 8), Some(ClockDoubt::AheadOfFile)),
            (KNOWN.plus(DAY * 240), Some(ClockDoubt::AheadOfFile)),
            (KNOWN.minus(Duration::from_hours(1)), Some(ClockDoubt::BehindFile)),
            (Timestamp::from_secs(31_536_000), Some(ClockDoubt::TooEarly)),
        ];
        for (shown, doubt) in cases {
            let began = begun(reading(shown), None);
            assert_eq!(began.suspicion.map(|suspicion| suspicion.doubt), doubt, "{shown}");
            let believed = if doubt.is_none() { shown } else { KNOWN };
            assert_eq!(began.believed, believed, "{shown}");
            let synchronised = Reading { is_synchronised: true, ..reading(shown) };
            let sure = Beginning { believed: shown, suspicion: None };
            assert_eq!(begun(synchronised, None), sure, "{shown}");
        }
    }

    #[test]
    fn a_file_without_a_time_knows_that_the_program_exists() {
        let early = begin(reading(Timestamp::from_secs(60)), None);
        assert_eq!(early.suspicion.map(|suspicion| suspicion.doubt), Some(ClockDoubt::TooEarly));
        assert_eq!(early.believed, EARLIEST);
        assert_eq!(begin(reading(KNOWN), None), Beginning { believed: KNOWN, suspicion: None });
    }

    /// The first look after a start.
    fn first_look(reading: Reading, began: Beginning) -> Judgement {
        let offset_ms = began.believed.ms() - millis(reading.monotonic);
        judge(reading, offset_ms, began.suspicion, false)
    }

    #[test]
    fn a_clock_that_was_suspect_is_believed_by_a_look_so_that_waits_move() {
        let ahead = KNOWN.plus(DAY * 200);
        let doubted = Some(doubted_since(ahead, ahead.plus(DAY / 3)));
        // Synchronised while the service was off for an hour, or for a month; and a day of agreement is over.
        let kept_right = |shown: Timestamp| Reading { is_synchronised: true, ..reading(shown) };
        let starts = [
            (kept_right(ahead.plus(DAY / 3 + DAY / 24)), DAY / 24),
            (kept_right(ahead.plus(DAY / 3 + DAY * 30)), DAY * 30),
            (reading(ahead.plus(DAY / 3 + DAY * 2)), DAY * 2),
        ];
        for (start, passed) in starts {
            let began = begun(start, doubted);
            assert_eq!(began.believed, KNOWN.plus(passed), "what the clock has counted goes on");
            let step_ms = start.shown.ms() - began.believed.ms();
            assert_eq!(first_look(start, began), Judgement::Believe { step_ms });
        }
        // An hour, which is near the last time of the file as well.
        let hour = KNOWN.plus(DAY / 24);
        let began = begun(reading(hour), Some(doubted_since(hour, hour)));
        assert_eq!(began.believed, KNOWN);
        assert_eq!(began.suspicion.map(|suspicion| suspicion.doubt), Some(ClockDoubt::Set));
        assert_eq!(first_look(reading(hour), began), Judgement::Unchanged);
    }

    #[test]
    fn a_clock_that_was_put_right_while_the_service_was_off_is_believed() {
        let doubted = Some(doubted_since(KNOWN.plus(DAY * 200), KNOWN.plus(DAY * 200)));
        let right = KNOWN.plus(DAY);
        assert_eq!(begun(reading(right), doubted), Beginning { believed: right, suspicion: None });
        let early = Timestamp::from_secs(31_536_000);
        let synchronised = Reading { is_synchronised: true, ..reading(KNOWN.plus(DAY * 30)) };
        let began = begun(synchronised, Some(doubted_since(early, early)));
        assert_eq!(began, Beginning { believed: KNOWN.plus(DAY * 30), suspicion: None });
    }

    fn doubted_since(agrees_since: Timestamp, shown: Timestamp) -> DoubtedTime {
        DoubtedTime { shown, agrees_since, is_confirmed: false }
    }

    #[test]
    fn a_day_of_agreement_is_counted_across_restarts() {
        let ahead = KNOWN.plus(DAY * 200);
        let after = |span: Duration| {
            let doubted = doubted_since(ahead, ahead.plus(DAY / 3));
            begun(reading(ahead.plus(span)), Some(doubted))
        };
        let suspicion = after(DAY / 2).suspicion.unwrap();
        assert_eq!(suspicion.agrees_since, ahead);
        // It is set once more: the day begins again.
        let set_again = after(Duration::ZERO).suspicion.unwrap();
        assert_eq!(set_again.agrees_since, ahead, "a minute and more back is another clock");
        let doubted = doubted_since(ahead, ahead.plus(DAY / 3));
        let other = begun(reading(ahead.plus(DAY * 90)), Some(doubted)).suspicion.unwrap();
        assert_eq!(other.agrees_since, ahead.plus(DAY * 90));
    }

    #[test]
    fn a_clock_without_a_battery_never_agrees() {
        let boot = Timestamp::from_secs(31_536_000);
        let mut doubted = None;
        for _ in 0..9 {
            let began = begun(reading(boot), doubted);
            let suspicion = began.suspicion.unwrap();
            let shown = boot.plus(DAY / 3);
            doubted = Some(doubted_since(suspicion.agrees_since, shown));
            assert_eq!(began.believed, KNOWN);
        }
    }

    #[test]
    fn a_running_clock_that_is_set_is_suspect_until_something_vouches_for_it() {
        let base = reading(KNOWN);
        let offset = base.offset_ms();
        let later = |by_ms: i64, passed: Duration| Reading {
            shown: Timestamp::from_ms(KNOWN.ms() + by_ms).plus(passed),
            monotonic: base.monotonic + passed,
            is_synchronised: false,
        };
        let hour = 3_600_000;
        assert_eq!(judge(later(1_999, DAY), offset, None, false), Judgement::Unchanged);
        for small in [2_000, -60_000] {
            let judged = judge(later(small, DAY), offset, None, false);
            assert_eq!(judged, Judgement::Believe { step_ms: small });
        }
        let Judgement::Suspect(suspicion) = judge(later(hour, DAY), offset, None, false) else {
            panic!("an hour is no small step");
        };
        assert_eq!(suspicion.doubt, ClockDoubt::Set);
        let doubted = Some(suspicion);
        let unchanged = judge(later(hour, DAY + DAY / 2), offset, doubted, false);
        assert_eq!(unchanged, Judgement::Unchanged);
        let believe = Judgement::Believe { step_ms: hour };
        assert_eq!(judge(later(hour, DAY * 2), offset, doubted, false), believe);
        assert_eq!(judge(later(hour, DAY), offset, doubted, true), believe);
        let synchronised = Reading { is_synchronised: true, ..later(hour, DAY) };
        assert_eq!(judge(synchronised, offset, doubted, false), believe);
        assert_eq!(judge(synchronised, offset, None, false), believe);
        let back = judge(later(0, DAY), offset, doubted, false);
        assert_eq!(back, Judgement::Believe { step_ms: 0 });
        let Judgement::Suspect(again) = judge(later(2 * hour, DAY * 2), offset, doubted, false)
        else {
            panic!("it was set once more");
        };
        assert_eq!(again.agrees_since, later(2 * hour, DAY * 2).shown);
    }
}
