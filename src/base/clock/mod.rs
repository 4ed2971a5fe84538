//! Time: the only place that reads it.
//!
//! [`Clock::now`] is *believed time*: the wall time at the start plus what a monotonic clock has counted since. Due times,
//! waits and limits use it, so that a clock that is set forward or back moves none of them. [`Clock::wall`] is for records: what
//! a calendar on the wall shows, as long as it is believed. [`Clock::for_signatures`] is for what others compare with their
//! own clocks. [`Clock::sure_now`] is for decisions that cannot be taken back. [`trust`] says when a clock is believed.

mod source;
mod timestamp;
pub mod trust;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use trust::{ClockDoubt, Judgement, KnownTime, Reading, STEP, Suspicion};

#[cfg(any(test, feature = "internals"))]
pub use source::ManualTime;
pub use source::TimeSource;
#[cfg(feature = "service")]
pub use source::machine_monotonic;
#[cfg(feature = "service")]
pub use timestamp::span;
pub use timestamp::{Timestamp, millis};

/// Two readings within this belong to one moment.
const AT_ONCE: Duration = Duration::from_millis(100);

/// The present, from a clock that is not suspect. Whatever deletes, gives up, expires, rotates or ends something for good
/// asks for one, so that a clock that may be wrong cannot cause it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SureNow(Timestamp);

impl SureNow {
    /// The time.
    pub const fn at(self) -> Timestamp {
        self.0
    }

    /// The time so long before: what is older has reached this age.
    #[must_use]
    pub fn minus(self, age: Duration) -> Timestamp {
        self.0.minus(age)
    }
}

/// The clock, passed to all code that needs time. Cheap to clone; clones share what is believed.
#[derive(Clone)]
pub struct Clock {
    source: Arc<dyn TimeSource>,
    state: Arc<ClockState>,
}

/// What the clones of a clock share.
struct ClockState {
    /// Believed time minus monotonic time, in ms.
    offset_ms: AtomicI64,
    suspicion: SharedSuspicion,
    /// Whether a person has said that the clock is right, and it was not judged since.
    is_confirmed: AtomicBool,
    /// [`Reading::offset_ms`] of the clock that the person saw: the word holds for no other.
    confirmed_offset_ms: AtomicI64,
}

impl Clock {
    /// The machine's own clock; nothing vouches for it.
    pub fn machine() -> Self {
        Self::machine_with(|| false)
    }

    /// The machine's own clock, whose synchronisation a function reports.
    pub fn machine_with(is_synchronised: fn() -> bool) -> Self {
        Self::from_source(Arc::new(source::Machine::new(is_synchronised)))
    }

    /// A clock over another source. It believes what the source shows.
    pub fn from_source(source: Arc<dyn TimeSource>) -> Self {
        let state = ClockState {
            offset_ms: AtomicI64::new(reading(&*source).offset_ms()),
            suspicion: SharedSuspicion::default(),
            is_confirmed: AtomicBool::new(false),
            confirmed_offset_ms: AtomicI64::new(0),
        };
        Self { source, state: Arc::new(state) }
    }

    /// Believed time: due times, waits and limits. Setting the wall clock does not move it.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_ms(self.offset_ms().saturating_add(millis(self.source.monotonic())))
    }

    /// Wall time, for records: what the wall clock shows, or believed time while the two differ.
    pub fn wall(&self) -> Timestamp {
        let shown = self.source.wall();
        let now = self.now();
        let difference = shown.ms().abs_diff(now.ms());
        if Duration::from_millis(difference) < STEP { shown } else { now }
    }

    /// The wall clock as the machine shows it, right or wrong: for people.
    pub fn shown(&self) -> Timestamp {
        self.source.wall()
    }

    /// The time for timestamps in signatures, which the other side compares with its own clock: the later of what the wall
    /// clock shows and believed time. A clock without a battery is behind; one that a person corrects is mostly set forward.
    pub fn for_signatures(&self) -> Timestamp {
        self.source.wall().max(self.now())
    }

    /// Time since a fixed moment, for measuring how long something took.
    pub fn monotonic(&self) -> Duration {
        self.source.monotonic()
    }

    /// The present for what cannot be taken back; `None` while the clock is suspect, and from the moment on in which it
    /// was set.
    pub fn sure_now(&self) -> Option<SureNow> {
        let reading = reading(&*self.source);
        let step_ms = reading.offset_ms().saturating_sub(self.offset_ms());
        let has_stepped = Duration::from_millis(step_ms.unsigned_abs()) >= STEP;
        (!has_stepped && !self.is_suspect()).then_some(SureNow(reading.shown))
    }

    /// Whether the clock may be wrong.
    pub fn is_suspect(&self) -> bool {
        self.state.suspicion.get().is_some()
    }

    /// Why the clock may be wrong; `None` if it is believed.
    pub fn suspicion(&self) -> Option<Suspicion> {
        self.state.suspicion.get()
    }

    /// Begins a run with the time that the file knows. Returns why the clock is not believed, if it is not.
    pub fn begin(&self, known: Option<KnownTime>) -> Option<Suspicion> {
        let reading = reading(&*self.source);
        let began = trust::begin(reading, known);
        let offset_ms = began.believed.ms().saturating_sub(millis(reading.monotonic));
        self.state.offset_ms.store(offset_ms, Ordering::Release);
        self.state.suspicion.set(began.suspicion);
        let doubted = known.and_then(|known| known.doubted);
        if began.suspicion.is_some() && doubted.is_some_and(|doubted| doubted.is_confirmed) {
            self.confirm();
        }
        began.suspicion
    }

    /// Judges the clock. A clock that is suspect from now on is suspect at once; the caller follows one that is believed
    /// with [`Clock::follow`], after it has moved the ends of waits that the file has.
    pub fn look(&self) -> Judgement {
        let reading = reading(&*self.source);
        let is_confirmed = self.is_confirmed_at(reading);
        let judgement = trust::judge(reading, self.offset_ms(), self.suspicion(), is_confirmed);
        match judgement {
            Judgement::Suspect(suspicion) => {
                self.state.suspicion.set(Some(suspicion));
                self.forget_confirmation();
            }
            Judgement::Unchanged if !self.is_suspect() => self.forget_confirmation(),
            Judgement::Unchanged | Judgement::Believe { .. } => {}
        }
        judgement
    }

    /// Moves believed time by so many milliseconds, and ends the suspicion.
    pub fn follow(&self, step_ms: i64) {
        self.state.offset_ms.fetch_add(step_ms, Ordering::AcqRel);
        self.state.suspicion.set(None);
        self.forget_confirmation();
    }

    /// A person has said that the clock is right. The next look believes the clock, unless somebody has set it meanwhile.
    pub fn confirm(&self) {
        let offset_ms = reading(&*self.source).offset_ms();
        self.state.confirmed_offset_ms.store(offset_ms, Ordering::Release);
        self.state.is_confirmed.store(true, Ordering::Release);
    }

    fn is_confirmed_at(&self, reading: Reading) -> bool {
        let confirmed_ms = self.state.confirmed_offset_ms.load(Ordering::Acquire);
        let difference = Duration::from_millis(confirmed_ms.abs_diff(reading.offset_ms()));
        self.state.is_confirmed.load(Ordering::Acquire) && difference < STEP
    }

    fn forget_confirmation(&self) {
        self.state.is_confirmed.store(false, Ordering::Release);
    }

    fn offset_ms(&self) -> i64 {
        self.state.offset_ms.load(Ordering::Acquire)
    }
}

/// A suspicion that one thread sets and others read. A reader beside a change may see the parts of two suspicions; only
/// [`Clock::look`] decides by them, and it runs on one thread.
#[derive(Debug, Default)]
struct SharedSuspicion {
    /// The number of the doubt in [`ClockDoubt::ALL`], counted from 1; 0: there is no suspicion.
    doubt: AtomicUsize,
    agrees_since_ms: AtomicI64,
    offset_ms: AtomicI64,
}

impl SharedSuspicion {
    fn get(&self) -> Option<Suspicion> {
        let number = self.doubt.load(Ordering::Acquire).checked_sub(1)?;
        Some(Suspicion {
            doubt: *ClockDoubt::ALL.get(number)?,
            agrees_since: Timestamp::from_ms(self.agrees_since_ms.load(Ordering::Acquire)),
            offset_ms: self.offset_ms.load(Ordering::Acquire),
        })
    }

    fn set(&self, suspicion: Option<Suspicion>) {
        let mut number = 0;
        if let Some(Suspicion { doubt, agrees_since, offset_ms }) = suspicion {
            self.agrees_since_ms.store(agrees_since.ms(), Ordering::Release);
            self.offset_ms.store(offset_ms, Ordering::Release);
            number =
                ClockDoubt::ALL.iter().position(|known| *known == doubt).map_or(0, |at| at + 1);
        }
        self.doubt.store(number, Ordering::Release);
    }
}

/// Reads both clocks. A thread that stood still between the two readings reads them again: that is no step of the clock.
fn reading(source: &dyn TimeSource) -> Reading {
    loop {
        let monotonic = source.monotonic();
        let shown = source.wall();
        if source.monotonic().saturating_sub(monotonic) < AT_ONCE {
            return Reading { shown, monotonic, is_synchronised: source.is_synchronised() };
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

    fn manual(secs: i64) -> (Arc<ManualTime>, Clock) {
        let time = ManualTime::at(Timestamp::from_secs(secs));
        let clock = Clock::from_source(time.clone());
        (time, clock)
    }

    #[test]
    fn a_clock_that_is_set_moves_nothing_until_something_vouches_for_it() {
        let (time, clock) = manual(1_780_000_000);
        time.set_synchronised(false);
        let before = clock.now();
        assert!(clock.sure_now().is_some());
        time.set_wall(before.plus(Duration::from_hours(200 * 24)));
        assert_eq!(clock.sure_now(), None, "also before anybody looked");
        assert!(matches!(clock.look(), Judgement::Suspect(_)));
        assert_eq!((clock.now(), clock.is_suspect()), (before, true));
        assert_eq!((clock.wall(), clock.for_signatures()), (before, clock.shown()));
        time.set_wall(before.minus(Duration::from_hours(24)));
        assert_eq!((clock.wall(), clock.for_signatures()), (before, before));
        time.set_synchronised(true);
        let Judgement::Believe { step_ms } = clock.look() else { panic!("it is synchronised") };
        clock.follow(step_ms);
        assert_eq!(clock.now(), before.minus(Duration::from_hours(24)));
        assert!(clock.sure_now().is_some() && !clock.is_suspect());
    }

    #[test]
    fn a_person_confirms_a_clock_once() {
        let (time, clock) = manual(1_780_000_000);
        time.set_synchronised(false);
        time.set_wall(clock.now().plus(Duration::from_hours(1)));
        clock.look();
        clock.confirm();
        assert_eq!(clock.look(), Judgement::Believe { step_ms: 3_600_000 });
        clock.follow(3_600_000);
        time.set_wall(clock.now().plus(Duration::from_hours(1)));
        assert!(matches!(clock.look(), Judgement::Suspect(_)));
        // It is set between the word and the look: the word was about another time.
        clock.confirm();
        time.set_wall(clock.now().plus(Duration::from_hours(5)));
        assert!(matches!(clock.look(), Judgement::Suspect(_)));
        time.set_wall(clock.now().plus(Duration::from_hours(1)));
        assert!(matches!(clock.look(), Judgement::Suspect(_)));
    }

    #[test]
    fn the_word_of_a_person_outlives_a_restart() {
        let (time, clock) = manual(1_780_000_000);
        time.set_synchronised(false);
        let believed = clock.now();
        time.set_wall(believed.plus(Duration::from_hours(240)));
        let doubted = trust::DoubtedTime {
            shown: clock.shown(),
            agrees_since: clock.shown(),
            is_confirmed: true,
        };
        let again = Clock::from_source(time);
        assert!(again.begin(Some(KnownTime { believed, doubted: Some(doubted) })).is_some());
        assert_eq!(again.look(), Judgement::Believe { step_ms: 240 * 3_600_000 });
    }

    #[test]
    fn time_that_passes_while_it_looks_is_no_step() {
        let (time, clock) = manual(1_000_000);
        std::thread::scope(|scope| {
            let passing = scope.spawn(|| {
                (0..100_000).for_each(|_| time.advance(Duration::from_mins(1)));
            });
            while !passing.is_finished() {
                assert_eq!(clock.look(), Judgement::Unchanged);
            }
        });
        assert_eq!(clock.now(), clock.wall());
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

        fn is_synchronised(&self) -> bool {
            false
        }
    }

    #[test]
    fn a_thread_that_stood_still_between_two_readings_sees_no_step() {
        let time = ManualTime::at(Timestamp::from_secs(1_780_000_000));
        let source = Arc::new(Halting(time, AtomicI64::new(2)));
        let clock = Clock::from_source(source.clone());
        assert_eq!(clock.now(), clock.wall());
        source.1.store(2, Ordering::SeqCst);
        assert_eq!(clock.look(), Judgement::Unchanged);
        source.1.store(2, Ordering::SeqCst);
        assert!(clock.sure_now().is_some());
    }
}
