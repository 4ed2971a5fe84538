//! What happens to a simulated world, drawn from its seed before it begins.

use std::collections::BTreeSet;
use std::time::Duration;

use oncebox::model::delivery::Schedule;
use oncebox::model::event::Binding;
use oncebox::model::lane::{CallKey, HeadOfLine};
use oncebox::model::retry_rules::RetryRules;

use crate::sim::dice::{DAY, Dice, HOUR, MINUTE, Ms, SECOND};
use crate::sim::endpoint::Endpoint;

/// After the causes are gone, the longest wait that anybody may have asked for, and some.
pub(crate) const PATIENCE: Ms = DAY + 6 * HOUR;

/// Ancestors of an event at most.
const MAX_DEPTH: u32 = 8;

/// A subscription.
#[derive(Clone, Debug)]
pub(crate) struct Sub {
    pub(crate) seq: i64,
    pub(crate) tenant: &'static str,
    /// Requests in flight, where a person asked for a number.
    pub(crate) in_flight_max: Option<u32>,
    pub(crate) has_lanes: bool,
    /// Subscriptions with the same one share their lanes.
    pub(crate) group: Option<i64>,
    pub(crate) head_of_line: HeadOfLine,
    pub(crate) has_funnel: bool,
    /// What its external calls are about, where they are protected.
    pub(crate) calls: Option<CallKey>,
    pub(crate) rules: RetryRules,
    /// Whether it takes a request a second at most.
    pub(crate) is_slow: bool,
    pub(crate) timeout: Ms,
}

/// An event as it is published.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    /// The subscriptions that match it.
    pub(crate) subs: Vec<i64>,
    /// What its lanes are made of.
    pub(crate) key: Option<i64>,
    /// How long it must wait.
    pub(crate) not_before: Option<Ms>,
    /// How much earlier it occurred, where the publisher says when.
    pub(crate) earlier: Option<Ms>,
    pub(crate) max_attempts: Option<u32>,
    pub(crate) funnel: Option<i64>,
    pub(crate) exclude_failed: bool,
    /// What external calls are about, and its state.
    pub(crate) entity: Option<i64>,
    pub(crate) content: u8,
    /// The event that is its parent.
    pub(crate) parent: Option<(usize, Binding)>,
}

/// What a person does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Deed {
    Pause(i64),
    Resume(i64),
    /// A person resumes what a person has to end, and no more: all else must end by itself.
    ResumeIfNeeded(i64),
    /// A change of `in_flight_max`.
    Limit(i64, Option<u32>),
    Retry(i64),
    Cancel(i64),
    Park(i64),
    Skip(i64),
    Unpark(i64),
    MoveToEnd(i64),
    /// Sends a completed delivery again.
    Replay(i64),
    /// Decides about each delivery in doubt.
    EndDoubt,
}

/// Something that is asked of Oncebox, and asked again until it is acknowledged.
#[derive(Clone, Debug)]
pub(crate) enum Wish {
    Publish(Spec),
    Act(Deed),
}

/// The wall clock is set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockSet {
    /// When.
    pub(crate) at: Ms,
    /// How far.
    pub(crate) by: Ms,
    /// Whether the machine says that a time service keeps it right from then on.
    pub(crate) is_synchronised: bool,
}

/// What happens, and when.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) deliverers: usize,
    pub(crate) subs: Vec<Sub>,
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) wishes: Vec<(Ms, Wish)>,
    /// Steps of the process before which it is killed.
    pub(crate) kills: BTreeSet<u64>,
    /// When it is asked to stop.
    pub(crate) stops: Vec<Ms>,
    /// When the wall clock is set.
    pub(crate) clock_sets: Vec<ClockSet>,
    /// When the site has no line to the outside.
    pub(crate) offline: Vec<(Ms, Ms)>,
    /// One transaction in so many fails; 0: none.
    pub(crate) failing_commits: i64,
    /// One read in so many fails; 0: none.
    pub(crate) failing_reads: i64,
    /// Whether the file is restored after some ends of the process: what is not sent is in doubt then.
    pub(crate) is_restored: bool,
    /// From then on nothing goes wrong any more.
    pub(crate) heal_at: Ms,
}

impl Plan {
    pub(crate) fn draw(seed: u32) -> Self {
        let mut dice = Dice::new(seed, "plan");
        let dice = &mut dice;
        // Most attempts are made in the worlds that last for days; a few of these are enough.
        let short = [20 * SECOND, 5 * MINUTE, HOUR, 8 * HOUR];
        let heal_at =
            if dice.one_in(6) { dice.pick(&[2 * DAY, 6 * DAY]) } else { dice.pick(&short) };
        let subs: Vec<Sub> = (1..=dice.between(1, 4)).map(|seq| sub(dice, seq, heal_at)).collect();
        let endpoints = subs.iter().map(|_| Endpoint::draw(dice, heal_at)).collect();
        let mut plan = Self {
            deliverers: usize::try_from(dice.between(1, 8)).unwrap(),
            subs,
            endpoints,
            wishes: Vec::new(),
            kills: BTreeSet::new(),
            stops: Vec::new(),
            clock_sets: Vec::new(),
            offline: Vec::new(),
            failing_commits: dice.pick(&[0, 0, 5, 30]),
            failing_reads: dice.pick(&[0, 0, 5, 30]),
            is_restored: false,
            heal_at,
        };
        plan.publish(dice);
        plan.act(dice);
        plan.disturb(dice);
        plan.depend(&mut Dice::new(seed, "order"));
        plan.doubt(&mut Dice::new(seed, "clock"));
        plan.work(&mut Dice::new(seed, "work"));
        plan
    }

    fn any_time(&self, dice: &mut Dice) -> Ms {
        dice.spread(10, self.heal_at - 1)
    }

    fn publish(&mut self, dice: &mut Dice) {
        let all: Vec<i64> = self.subs.iter().map(|sub| sub.seq).collect();
        for _ in 0..dice.between(3, 30) {
            let subs = if dice.one_in(3) { all.clone() } else { vec![dice.pick(&all)] };
            let spec = Spec {
                subs,
                key: dice.pick(&[None, Some(1), Some(1), Some(2)]),
                not_before: dice.one_in(6).then(|| dice.spread(SECOND, 6 * HOUR)),
                earlier: dice.one_in(8).then(|| dice.spread(SECOND, HOUR)),
                funnel: None,
                exclude_failed: false,
                entity: None,
                content: 0,
                parent: None,
                max_attempts: dice.one_in(8).then(|| u32::try_from(dice.between(1, 6)).unwrap()),
            };
            let at = self.any_time(dice);
            self.wishes.push((at, Wish::Publish(spec)));
        }
    }

    fn act(&mut self, dice: &mut Dice) {
        for _ in 0..dice.below(6) {
            let sub = dice.between(1, i64::try_from(self.subs.len()).unwrap());
            let delivery = dice.between(1, 30);
            let deed = match dice.below(6) {
                0 | 1 => Deed::Pause(sub),
                2 => Deed::Resume(sub),
                3 => Deed::Limit(sub, dice.pick(&[None, Some(1), Some(2)])),
                4 => Deed::Retry(delivery),
                _ => Deed::Cancel(delivery),
            };
            let at = self.any_time(dice);
            self.wishes.push((at, Wish::Act(deed)));
        }
        for sub in &self.subs {
            let at = self.heal_at + dice.between(5 * SECOND, MINUTE);
            self.wishes.push((at, Wish::Act(Deed::ResumeIfNeeded(sub.seq))));
        }
    }

    /// Order and dependence of some worlds: groups, funnels, what a lane does with a dead letter, and people who act.
    fn depend(&mut self, dice: &mut Dice) {
        for sub in &mut self.subs {
            sub.group = dice.one_in(3).then_some(1);
            sub.has_funnel = dice.one_in(3);
            sub.head_of_line = dice.pick(&[HeadOfLine::Block, HeadOfLine::Park, HeadOfLine::Skip]);
            if sub.head_of_line == HeadOfLine::Park {
                sub.rules.park_after = Some(u32::try_from(dice.between(1, 4)).unwrap());
            }
        }
        for (_, wish) in &mut self.wishes {
            if let Wish::Publish(spec) = wish {
                spec.funnel = dice.pick(&[None, Some(1), Some(2)]);
                spec.exclude_failed = dice.one_in(4);
            }
        }
        for _ in 0..dice.below(6) {
            let delivery = dice.between(1, 30);
            let deed = dice.pick(&[
                Deed::Park(delivery),
                Deed::Skip(delivery),
                Deed::Unpark(delivery),
                Deed::MoveToEnd(delivery),
            ]);
            let at = self.any_time(dice);
            self.wishes.push((at, Wish::Act(deed)));
        }
    }

    /// What targets do with what they accept: confirmations, external calls, families, restores.
    fn work(&mut self, dice: &mut Dice) {
        if dice.one_in(3) {
            return;
        }
        for sub in &mut self.subs {
            match dice.below(5) {
                0 | 1 => {
                    let within = dice.pick(&[3 * SECOND, MINUTE, HOUR, 5 * HOUR]);
                    let within = Duration::from_millis(within.unsigned_abs());
                    sub.rules.confirm_within = Some(within);
                }
                2 | 3 => {
                    let kind = dice.pick(&[CallKey::Entity, CallKey::Entity, CallKey::Event]);
                    sub.calls = Some(kind);
                }
                _ => {}
            }
        }
        let has_families = dice.one_in(2);
        let mut depths: Vec<(usize, u32)> = Vec::new();
        for n in 0..self.wishes.len() {
            let begun = depths.clone();
            let parent = (has_families && !begun.is_empty() && dice.one_in(2))
                .then(|| dice.pick(&begun))
                .filter(|(_, depth)| *depth < MAX_DEPTH);
            let after = parent.map(|(parent, _)| self.wishes[parent].0 + dice.below(2 * SECOND));
            let (at, wish) = &mut self.wishes[n];
            let Wish::Publish(spec) = wish else { continue };
            spec.entity = dice.pick(&[None, Some(1), Some(1), Some(2)]);
            spec.content = u8::try_from(dice.between(1, 3)).unwrap();
            let binding = dice.pick(&[Binding::Hard, Binding::Hard, Binding::Soft]);
            spec.parent = parent.map(|(parent, _)| (parent, binding));
            *at = (*at).max(after.unwrap_or(0));
            depths.push((n, parent.map_or(0, |(_, depth)| depth + 1)));
        }
        for _ in 0..dice.below(6) {
            let delivery = dice.between(1, 30);
            let deed = dice.pick(&[
                Deed::Replay(delivery),
                Deed::Replay(delivery),
                Deed::Retry(delivery),
                Deed::Cancel(delivery),
            ]);
            let at = self.any_time(dice);
            self.wishes.push((at, Wish::Act(deed)));
        }
        self.is_restored = dice.one_in(6);
        let ends = [self.any_time(dice), self.heal_at + dice.between(5 * SECOND, MINUTE)];
        self.wishes.extend(ends.map(|at| (at, Wish::Act(Deed::EndDoubt))));
    }

    /// Of some clocks nobody says that they are right.
    fn doubt(&mut self, dice: &mut Dice) {
        for set in &mut self.clock_sets {
            set.is_synchronised = !dice.one_in(4);
        }
    }

    fn disturb(&mut self, dice: &mut Dice) {
        for _ in 0..dice.pick(&[0, 1, 1, 3, 8]) {
            self.kills.insert(dice.spread(3, 3000).unsigned_abs());
        }
        if dice.one_in(4) {
            let at = self.any_time(dice);
            self.stops.push(at);
        }
        if dice.one_in(3) {
            for _ in 0..dice.between(1, 3) {
                let by = dice.spread(SECOND, 20 * DAY) * dice.pick(&[1, -1]);
                let at = self.any_time(dice);
                self.clock_sets.push(ClockSet { at, by, is_synchronised: true });
            }
        }
        if dice.one_in(3) {
            let from = self.any_time(dice);
            self.offline.push((from, from + dice.spread(MINUTE, self.heal_at)));
        }
        self.offline.iter_mut().for_each(|(_, to)| *to = (*to).min(self.heal_at));
    }

    /// When the time without a line ends that now is in.
    pub(crate) fn line_is_back(&self, now: Ms) -> Option<Ms> {
        self.offline.iter().find(|(from, to)| (*from..*to).contains(&now)).map(|(_, to)| *to)
    }

    pub(crate) fn is_offline(&self, now: Ms) -> bool {
        self.offline.iter().any(|(from, to)| (*from..*to).contains(&now))
    }
}

fn sub(dice: &mut Dice, seq: i64, heal_at: Ms) -> Sub {
    let short = || vec![Duration::from_millis(200), Duration::from_secs(2), Duration::from_mins(1)];
    let schedule = match dice.below(4) {
        // For days it would be too many attempts.
        0 if heal_at <= HOUR => Schedule::new(short(), 1000).unwrap(),
        1 if heal_at <= HOUR => Schedule::new(short(), 5).unwrap(),
        _ => Schedule::default(),
    };
    Sub {
        seq,
        tenant: dice.pick(&["one", "one", "two"]),
        in_flight_max: dice.pick(&[None, None, Some(1), Some(3)]),
        has_lanes: dice.one_in(2),
        group: None,
        head_of_line: HeadOfLine::Skip,
        has_funnel: false,
        calls: None,
        rules: RetryRules {
            schedule,
            breaker_after: u32::try_from(dice.pick(&[0, 3, 10])).unwrap(),
            ..RetryRules::default()
        },
        is_slow: dice.one_in(5),
        timeout: dice.pick(&[2 * SECOND, 30 * SECOND]),
    }
}
