//! Plans the faults from the seed: which requests fail and how, and which process is killed when.
//!
//! Not here: failing requests ([`super::logistics`]) and killing processes ([`super::children`]).

use std::time::Duration;

use crate::base::faults::SplitMix64;
use crate::demo::site::Role;

/// Answers of Logistics per 1,000 that are a 500 without any effect.
pub(super) const REFUSED_PERMILLE: u64 = 50;
/// Answers of Logistics per 1,000 that are lost after the effect.
pub(super) const LOST_PERMILLE: u64 = 30;
/// Requests to Logistics per 1,000 that hang until the sender gives up.
pub(super) const HANGING_PERMILLE: u64 = 20;
/// Requests per 1,000 that the line between two Onceboxes loses, and answers per 1,000.
pub(super) const LINE_LOSS_PERMILLE: u64 = 20;
/// How long the line is dead, once in each [`DEAD_ONCE_IN`].
pub(super) const DEAD_FOR: Duration = Duration::from_millis(1200);
const DEAD_ONCE_IN: Duration = Duration::from_secs(8);
/// Acknowledgements of Oncebox per 1,000 that Finance loses.
pub(super) const FORGOTTEN_PERMILLE: u64 = 30;
/// Events per 1,000 that are not shipped if Logistics is broken on purpose.
const EFFECTLESS_PERMILLE: u64 = 30;

/// How Logistics fails a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Answers 500 at once, without an effect.
    Refuse,
    /// Ships, then closes the connection without an answer.
    LoseAnswer,
    /// Does nothing and does not answer until the sender gives up.
    Hang,
}

/// The fault of the `nth` request for this event in this life of Logistics, if it has one.
pub(super) fn fault_of(seed: u32, event_id: &str, life: u32, nth: u32) -> Option<Fault> {
    let number = (u64::from(life) << 32) | u64::from(nth);
    let drawn = SplitMix64::of(seed, event_id, number).below(1000);
    let refused = REFUSED_PERMILLE;
    let lost = refused.saturating_add(LOST_PERMILLE);
    let hanging = lost.saturating_add(HANGING_PERMILLE);
    match drawn {
        n if n < refused => Some(Fault::Refuse),
        n if n < lost => Some(Fault::LoseAnswer),
        n if n < hanging => Some(Fault::Hang),
        _ => None,
    }
}

/// A fault of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineFault {
    /// The request is lost.
    Request,
    /// The answer is lost.
    Answer,
}

/// The line's fault for the `nth` request with this id, if it has one.
pub(super) fn line_fault_of(seed: u32, event_id: &str, nth: u32) -> Option<LineFault> {
    let number = (1_u64 << 63) | u64::from(nth);
    match SplitMix64::of(seed, event_id, number).below(1000) {
        n if n < LINE_LOSS_PERMILLE => Some(LineFault::Request),
        n if n < LINE_LOSS_PERMILLE.saturating_mul(2) => Some(LineFault::Answer),
        _ => None,
    }
}

/// Whether the line is dead at this time after the start.
pub(super) fn is_dead(seed: u32, after: Duration) -> bool {
    let span = DEAD_ONCE_IN.as_millis();
    let round = u64::try_from(after.as_millis() / span).unwrap_or(0);
    let within = Duration::from_millis(u64::try_from(after.as_millis() % span).unwrap_or(0));
    let latest = DEAD_ONCE_IN.saturating_sub(DEAD_FOR);
    let from = SplitMix64::of(seed, "dead line", round).between(Duration::ZERO, latest);
    within >= from && within < from.saturating_add(DEAD_FOR)
}

/// Whether Finance loses the acknowledgement of its `nth` batch in this life.
pub(super) fn is_forgotten(seed: u32, life: u32, nth: u32) -> bool {
    let number = (u64::from(life) << 32) | u64::from(nth);
    SplitMix64::of(seed, "acknowledgement", number).below(1000) < FORGOTTEN_PERMILLE
}

/// Whether Logistics, broken on purpose, does not ship this event.
pub(super) fn is_effectless(seed: u32, event_id: &str) -> bool {
    SplitMix64::of(seed, event_id, u64::MAX).below(1000) < EFFECTLESS_PERMILLE
}

/// A planned kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kill {
    /// Time after the start.
    pub(super) at: Duration,
    /// The process.
    pub(super) role: Role,
    /// How long until it is started again.
    pub(super) dead_for: Duration,
}

/// The shortest and the longest time between two kills, if Finance pays for `span`. Gives about 13 kills in all, but leaves
/// time for a restarted process to work before the next kill.
pub(super) fn kill_gaps(span: Duration) -> (Duration, Duration) {
    let shortest = (span / 20).clamp(Duration::from_millis(300), Duration::from_secs(2));
    (shortest, shortest.saturating_mul(2))
}

/// The kills during `span`. Each round kills every process once.
pub(super) fn kills(seed: u32, span: Duration, roles: &[Role]) -> Vec<Kill> {
    let mut seeded = SplitMix64::of(seed, "kills", 0);
    let (shortest, longest) = kill_gaps(span);
    let mut kills = Vec::new();
    let mut at = seeded.between(shortest, longest);
    let mut round = Vec::new();
    while at < span {
        if round.is_empty() {
            round = roles.to_vec();
        }
        let left = u64::try_from(round.len()).unwrap_or(1);
        let chosen = usize::try_from(seeded.below(left)).unwrap_or(0);
        let role = round.swap_remove(chosen);
        let dead_for = seeded.between(Duration::from_millis(20), Duration::from_millis(400));
        kills.push(Kill { at, role, dead_for });
        at = at.saturating_add(seeded.between(shortest, longest));
    }
    kills
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREE: &[Role] = &[Role::Finance, Role::Oncebox, Role::Logistics];

    #[test]
    fn the_same_seed_plans_the_same_misfortune() {
        let span = Duration::from_secs(20);
        assert_eq!(kills(7, span, THREE), kills(7, span, THREE));
        assert_ne!(kills(7, span, THREE), kills(8, span, THREE));
        let faults = |seed| (0..500).map(|n| fault_of(seed, "evt_a", 0, n)).collect::<Vec<_>>();
        assert_eq!(faults(7), faults(7));
        assert_ne!(faults(7), faults(8));
    }

    #[test]
    fn faults_are_as_frequent_as_the_demo_says() {
        let drawn: Vec<_> =
            (0..20_000).map(|n| fault_of(42, &format!("evt_{n}"), n % 3, n % 5)).collect();
        let share = |fault| drawn.iter().filter(|drawn| **drawn == Some(fault)).count();
        assert!((800..1200).contains(&share(Fault::Refuse)), "{}", share(Fault::Refuse));
        assert!((450..750).contains(&share(Fault::LoseAnswer)), "{}", share(Fault::LoseAnswer));
        assert!((280..520).contains(&share(Fault::Hang)), "{}", share(Fault::Hang));
        let forgotten = (0..10_000).filter(|n| is_forgotten(42, 0, *n)).count();
        assert!((220..380).contains(&forgotten), "{forgotten}");
    }

    #[test]
    fn each_of_the_three_is_killed_several_times_and_none_is_spared() {
        for seed in 0..50 {
            let kills = kills(seed, Duration::from_secs(20), THREE);
            for role in THREE {
                let count = kills.iter().filter(|kill| kill.role == *role).count();
                assert!((3..=7).contains(&count), "seed {seed}: {role:?} {count} times");
            }
            assert!(kills.windows(2).all(|pair| pair[0].at < pair[1].at));
        }
    }

    #[test]
    fn a_line_is_dead_for_a_while_in_every_eight_seconds_and_cuts_a_few_requests() {
        for seed in 0..20 {
            let dead = (0..800).filter(|n| is_dead(seed, Duration::from_millis(n * 100))).count();
            assert!((110..=130).contains(&dead), "seed {seed}: {dead} of 800");
        }
        let cut = (0..10_000).filter_map(|n| line_fault_of(42, &format!("evt_{n}"), 1));
        let cut: Vec<LineFault> = cut.collect();
        let requests = cut.iter().filter(|cut| **cut == LineFault::Request).count();
        assert!((140..260).contains(&requests), "{requests}");
        assert!((140..260).contains(&(cut.len() - requests)), "{}", cut.len());
    }

    #[test]
    fn a_broken_receiver_forgets_some_effects_and_not_all() {
        let forgotten = (0..300).filter(|n| is_effectless(7, &format!("evt_{n}"))).count();
        assert!((1..30).contains(&forgotten), "{forgotten}");
    }
}
