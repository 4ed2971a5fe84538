//! What follows an attempt: whether the delivery is retried or given up, and whether its subscription may be called.
//!
//! [`judge`] decides inside the transaction that stores the attempt, from facts that this transaction reads. It is
//! pure, so the transaction may run twice.

use std::sync::Arc;
use std::time::Duration;

use crate::base::clock::Timestamp;
use crate::base::id::{DeliverySeq, SubscriptionSeq};
use crate::model::delivery::{Attempt, Jitter, Schedule};
use crate::model::hold::HoldReason;
use crate::model::outcome::AttemptClass;

/// Counted failures of a delivery that raise an escalation.
pub const ESCALATED_AT: u32 = 8;
/// Refusals in a row after which a subscription is held. Source: the product page, section 7.
pub const REJECTING_AFTER: u32 = 5;
/// Transient failures in a row after which a subscription is held, unless its policy says otherwise.
pub const BREAKER_AFTER: u32 = 10;
/// 5xx answers to one delivery after which it is given up, if others succeeded between any two of them.
pub const POISON_AFTER: u32 = 8;
/// How long a subscription may fail before it is disabled. Source: the product page, section 7.
pub const DISABLED_AFTER: Duration = Duration::from_hours(5 * 24);
/// After this time without an attempt, [`DISABLED_AFTER`] starts anew: the service was off, or the clock was set.
pub const UNSEEN_AFTER: Duration = Duration::from_hours(2 * 24);
/// The longest wait between two probes of the breaker. It is short, because new events wait for the probe.
pub const MAX_BREAKER_WAIT: Duration = Duration::from_mins(5);
/// The shortest wait after a 429 with `Retry-After`. A 429 is not counted, so `Retry-After: 0` would never end.
const MIN_ASKED_WAIT: Duration = Duration::from_secs(1);
/// The shortest wait after a 429 without `Retry-After`.
const MIN_RATE_LIMIT_WAIT: Duration = Duration::from_secs(5);

/// An attempt that has ended, as the deliverer reports it.
#[derive(Clone, Debug)]
pub struct AttemptReport {
    /// The delivery.
    pub delivery: DeliverySeq,
    /// Its subscription.
    pub subscription: SubscriptionSeq,
    /// The run the attempt belongs to. If the delivery was reopened meanwhile, its state does not change.
    pub run_no: u32,
    /// When its event arrived.
    pub accepted_at: Timestamp,
    /// The attempt. `n` is the number expected when it was sent; [`judge`] may change `class` and `counted`.
    pub attempt: Arc<Attempt>,
    /// What failed, in one word: the status, or the cause.
    pub code: String,
    /// The wait the target asked for: `Retry-After`.
    pub retry_after: Option<Duration>,
    /// The rules that apply.
    pub rules: Rules,
    /// How much waits are lengthened.
    pub jitter: Jitter,
    /// Whether it is a probe: sent despite a hold, to test whether the target works again.
    pub is_probe: bool,
    /// Whether it says nothing about the target: the site was offline, or a new target's first try was cut short.
    pub is_inconclusive: bool,
    /// Whether the whole target was away, so that no other delivery could pass.
    pub is_away: bool,
    /// Its part in an order.
    pub order: AttemptOrder,
    /// Schedule time of the report, from which waits are counted.
    pub now: Timestamp,
}

/// What an attempt means for the order of its delivery.
#[derive(Clone, Debug, Default)]
pub struct AttemptOrder {
    /// Whether older deliveries about its entity are superfluous once it is completed.
    pub is_latest_only: bool,
    /// Whether it is noted as an external call.
    pub is_call: bool,
    /// What the target wants to get back with the next attempt.
    pub custom_data: Option<String>,
    /// Whether nothing waits for its outcome, such as the next one in its lane.
    pub can_wait: bool,
}

/// The limits of a delivery: its subscription's, or the event's own `max_attempts` if it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Waits, and the number of counted attempts.
    pub schedule: Schedule,
    /// Transient failures in a row after which the breaker opens; 0: never.
    pub breaker_after: u32,
    /// Counted failures after which a delivery in a lane is parked; `None`: never.
    pub park_after: Option<u32>,
    /// How long the target has to confirm what it accepted; `None`: a 2xx completes a delivery.
    pub confirm_within: Option<Duration>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            schedule: Schedule::default(),
            breaker_after: BREAKER_AFTER,
            park_after: None,
            confirm_within: None,
        }
    }
}

/// Consecutive failed attempts of a subscription, all of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Streak {
    /// Their class.
    pub class: Option<AttemptClass>,
    /// How many.
    pub count: u32,
}

impl Streak {
    /// The streak after one more failure.
    #[must_use]
    pub fn and(self, class: AttemptClass) -> Self {
        let count = if self.class == Some(class) { self.count } else { 0 };
        Self { class: Some(class), count: count.saturating_add(1) }
    }
}

/// What the transaction knows about the delivery and its subscription before this attempt.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts {
    /// Counted failures of this run.
    pub counted_failures: u32,
    /// Class and time of the delivery's latest failed attempt, unless it has succeeded since.
    pub last_failure: Option<(AttemptClass, Timestamp)>,
    /// How many of its failures came after another delivery had succeeded since its previous one.
    pub failures_alone: u32,
    /// The subscription's consecutive failures.
    pub streak: Streak,
    /// When the subscription began to fail, if it is failing.
    pub failing_since: Option<Timestamp>,
    /// Its latest success.
    pub last_success_at: Option<Timestamp>,
    /// If the subscription has an `auth` hold: how many of its probes have failed.
    pub auth_probe: Option<u32>,
    /// If the subscription has a `breaker` hold: how many of its probes have failed.
    pub breaker_probe: Option<u32>,
    /// Whether it is in a lane.
    pub is_in_lane: bool,
    /// Until when the target has asked us to wait, if it has.
    pub rate_limited_until: Option<Timestamp>,
}

/// What follows for the delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Done.
    Complete,
    /// Accepted: the target has this long to confirm that it is done.
    Confirm(Duration),
    /// Tried again after this wait.
    Retry(Duration),
    /// Given up, with the reason.
    GiveUp(String),
    /// Set aside so that its lane goes on, with the reason.
    Park(String),
}

/// What follows for the subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewHold {
    /// Not called before this time.
    Until(Timestamp),
    /// Not called, except for a probe at this time.
    Probe {
        /// `auth` or `breaker`.
        reason: HoldReason,
        /// When.
        at: Timestamp,
        /// How many probes have failed.
        failed: u32,
    },
    /// Not called until a person acts, because it refuses what it is sent.
    Rejecting,
    /// Disabled, with the reason.
    Disabled(String),
}

/// What [`judge`] decides about an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Its class.
    pub class: AttemptClass,
    /// Whether it counts towards giving up.
    pub counted: bool,
    /// What follows for the delivery.
    pub next: Next,
    /// The hold that follows.
    pub hold: Option<NewHold>,
    /// Whether it failed while others passed: its failure before is older than the latest success of another.
    pub is_alone: bool,
}

/// An attempt and its consequences, as the store writes them.
#[derive(Clone, Debug)]
pub struct Settlement {
    /// The delivery.
    pub delivery: DeliverySeq,
    /// Its subscription.
    pub subscription: SubscriptionSeq,
    /// The run the attempt belongs to.
    pub run_no: u32,
    /// When its event arrived.
    pub accepted_at: Timestamp,
    /// The attempt.
    pub attempt: Arc<Attempt>,
    /// What failed, in one word.
    pub code: String,
    /// Whether it failed while others passed.
    pub is_alone: bool,
    /// What follows.
    pub next: Next,
    /// Schedule time, from which a retry's wait is counted.
    pub now: Timestamp,
}

/// Decides what follows an attempt.
///
/// ```
/// use oncebox::base::clock::Timestamp;
/// use oncebox::model::failure::{Facts, Next, Rules, AttemptResult, judge};
/// use oncebox::model::outcome::AttemptClass;
/// let attempt = AttemptResult {
///     class: AttemptClass::Validation, reason: "the target answered 422", http_status: Some(422),
///     retry_after: None, is_probe: false, is_inconclusive: false, is_away: false, jitter: Default::default(),
///     now: Timestamp::from_secs(0),
/// };
/// let verdict = judge(&attempt, &Rules::default(), &Facts::default());
/// assert_eq!(verdict.next, Next::GiveUp("the target answered 422".to_owned()));
/// ```
pub fn judge(attempt: &AttemptResult<'_>, rules: &Rules, facts: &Facts) -> Verdict {
    let class = if facts.only_this_one_fails(attempt, AttemptClass::Auth) {
        AttemptClass::Validation
    } else {
        attempt.class
    };
    let mut verdict = match class {
        AttemptClass::Success => {
            let next = rules.confirm_within.map_or(Next::Complete, Next::Confirm);
            return Verdict::uncounted(class, next, None);
        }
        AttemptClass::Validation | AttemptClass::Poison => refused(attempt, class, facts),
        AttemptClass::Gone => Verdict {
            class,
            counted: true,
            next: Next::GiveUp(attempt.reason.to_owned()),
            hold: Some(NewHold::Disabled(attempt.reason.to_owned())),
            is_alone: false,
        },
        AttemptClass::RateLimited => rate_limited(attempt, rules, facts),
        AttemptClass::Auth => unauthorized(attempt, rules, facts),
        AttemptClass::Transient => transient(attempt, rules, facts),
    };
    let failing_for = facts.failing_since.map_or(Duration::ZERO, |since| attempt.now.since(since));
    if failing_for >= DISABLED_AFTER && !attempt.is_inconclusive {
        let why = format!("it has failed for five days; the last: {}", attempt.reason);
        verdict.hold = Some(NewHold::Disabled(why));
    }
    verdict
}

/// The result of an attempt, as [`judge`] needs it.
#[derive(Clone, Copy, Debug)]
pub struct AttemptResult<'a> {
    /// Its class, judged by the answer alone.
    pub class: AttemptClass,
    /// Why it failed.
    pub reason: &'a str,
    /// The HTTP status.
    pub http_status: Option<u16>,
    /// The wait the target asked for: `Retry-After`.
    pub retry_after: Option<Duration>,
    /// Whether it was a probe.
    pub is_probe: bool,
    /// Whether it says nothing about the target.
    pub is_inconclusive: bool,
    /// Whether the whole target was away.
    pub is_away: bool,
    /// How much waits are lengthened.
    pub jitter: Jitter,
    /// Believed time.
    pub now: Timestamp,
}

impl AttemptResult<'_> {
    /// A step of the schedule with jitter, but at least `Retry-After`, which is honored in any answer.
    fn wait(&self, step: Duration) -> Duration {
        self.jitter.lengthen(step).max(self.retry_after.unwrap_or_default())
    }
}

impl Facts {
    /// Until when the target has asked us to wait, if that time is not over.
    fn waits_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.rate_limited_until.filter(|until| *until > now)
    }

    /// Whether a failed attempt makes the streak longer. Concurrent requests that are all answered 429 count as one
    /// failure.
    pub fn extends_streak(&self, class: AttemptClass, now: Timestamp) -> bool {
        class != AttemptClass::RateLimited || self.waits_until(now).is_none()
    }

    /// Whether this delivery failed with this class before, and another one of its subscription has succeeded since.
    fn only_this_one_fails(&self, attempt: &AttemptResult<'_>, class: AttemptClass) -> bool {
        let before = self.last_failure.filter(|(last, _)| *last == class && attempt.class == class);
        let passed = self.last_success_at;
        before.zip(passed).is_some_and(|((_, failed_at), passed_at)| passed_at > failed_at)
    }
}

impl Verdict {
    fn uncounted(class: AttemptClass, next: Next, hold: Option<NewHold>) -> Self {
        Self { class, counted: false, next, hold, is_alone: false }
    }
}

/// A refusal, which a retry would only repeat.
fn refused(attempt: &AttemptResult<'_>, class: AttemptClass, facts: &Facts) -> Verdict {
    // A request that cannot be sent says nothing about the target.
    let is_refusal = class == AttemptClass::Validation;
    let is_rejecting = is_refusal && facts.streak.and(class).count >= REJECTING_AFTER;
    Verdict {
        class,
        counted: true,
        next: Next::GiveUp(attempt.reason.to_owned()),
        hold: is_rejecting.then_some(NewHold::Rejecting),
        is_alone: false,
    }
}

/// The target asked us to wait. We never wait less than that.
fn rate_limited(attempt: &AttemptResult<'_>, rules: &Rules, facts: &Facts) -> Verdict {
    let step = rules.schedule.wait_after(facts.streak.and(attempt.class).count);
    let wait = match (attempt.retry_after, facts.waits_until(attempt.now)) {
        (Some(asked), _) => asked.max(MIN_ASKED_WAIT),
        (None, Some(until)) => until.since(attempt.now),
        (None, None) => step.max(MIN_RATE_LIMIT_WAIT),
    };
    let hold = NewHold::Until(attempt.now.plus(wait));
    Verdict::uncounted(attempt.class, Next::Retry(attempt.jitter.lengthen(wait)), Some(hold))
}

/// The target does not accept our credential. Until it does, only probes are sent, as often as the schedule says. Each
/// probe is the delivery that has waited longest, so that a single bad delivery cannot keep the hold.
fn unauthorized(attempt: &AttemptResult<'_>, rules: &Rules, facts: &Facts) -> Verdict {
    match facts.auth_probe {
        Some(_) if !attempt.is_probe => {
            let wait = attempt.wait(rules.schedule.wait_after(1));
            Verdict::uncounted(attempt.class, Next::Retry(wait), None)
        }
        failed => {
            let failed = failed.map_or(0, |failed| failed.saturating_add(1));
            probe(attempt, HoldReason::Auth, failed, rules.schedule.wait_after(failed + 1))
        }
    }
}

fn probe(attempt: &AttemptResult<'_>, reason: HoldReason, failed: u32, wait: Duration) -> Verdict {
    let wait = attempt.wait(wait);
    let hold = NewHold::Probe { reason, at: attempt.now.plus(wait), failed };
    Verdict::uncounted(attempt.class, Next::Retry(wait), Some(hold))
}

/// A failure that a retry may repair.
fn transient(attempt: &AttemptResult<'_>, rules: &Rules, facts: &Facts) -> Verdict {
    let failures = facts.counted_failures.saturating_add(1);
    if attempt.is_inconclusive {
        // The hold of the site ends when the network works again. Until then nothing is counted. A first try that was cut
        // short is followed by an attempt with all of its time.
        let wait = attempt.wait(rules.schedule.wait_after(1));
        return Verdict::uncounted(attempt.class, Next::Retry(wait), None);
    }
    let breaker_wait = |failed: u32| rules.schedule.wait_after(failed + 1).min(MAX_BREAKER_WAIT);
    if attempt.is_away && !attempt.is_probe && facts.breaker_probe.is_some() {
        // It was under way when another one found the target away.
        let wait = attempt.wait(rules.schedule.wait_after(1));
        return Verdict::uncounted(attempt.class, Next::Retry(wait), None);
    }
    if attempt.is_probe || attempt.is_away {
        let (reason, failed, wait) = match (facts.auth_probe, facts.breaker_probe) {
            (Some(failed), _) => {
                let failed = failed.saturating_add(1);
                (HoldReason::Auth, failed, rules.schedule.wait_after(failed + 1))
            }
            (None, failed) => {
                let failed = failed.map_or(0, |failed| failed.saturating_add(1));
                (HoldReason::Breaker, failed, breaker_wait(failed))
            }
        };
        return probe(attempt, reason, failed, wait);
    }
    let is_5xx = attempt.http_status.is_some_and(|status| (500..=599).contains(&status));
    let is_alone = is_5xx && facts.only_this_one_fails(attempt, AttemptClass::Transient);
    // This failure, those like it, and the first of all. Failures of an outage say nothing of this delivery.
    let alone = facts.failures_alone.saturating_add(2);
    if is_alone && alone >= POISON_AFTER {
        let why = format!("failed {alone} times while others passed; the last: {}", attempt.reason);
        return Verdict {
            class: AttemptClass::Poison,
            counted: true,
            next: Next::GiveUp(why),
            hold: None,
            is_alone,
        };
    }
    let streak = facts.streak.and(attempt.class).count;
    // The breaker is for several failing deliveries. A single one already waits by its own schedule.
    let others_failed = facts.streak.count > facts.counted_failures;
    let opens = rules.breaker_after > 0
        && streak >= rules.breaker_after
        && others_failed
        && facts.breaker_probe.is_none();
    let hold = opens.then(|| NewHold::Probe {
        reason: HoldReason::Breaker,
        at: attempt.now.plus(attempt.jitter.lengthen(breaker_wait(0))),
        failed: 0,
    });
    let next = if rules.schedule.gives_up(failures) {
        Next::GiveUp(format!("given up after {failures} attempts; the last: {}", attempt.reason))
    } else if facts.is_in_lane && rules.park_after.is_some_and(|most| failures >= most) {
        Next::Park(format!("failed {failures} times; the last: {}", attempt.reason))
    } else {
        Next::Retry(attempt.wait(rules.schedule.wait_after(failures)))
    };
    Verdict { class: attempt.class, counted: true, next, hold, is_alone }
}

impl Settlement {
    /// What follows for a delivery that is given up without an attempt. `at` is wall time.
    pub fn without_attempt(
        delivery: DeliverySeq,
        subscription: SubscriptionSeq,
        run_no: u32,
        reason: &str,
        now: Timestamp,
        at: Timestamp,
    ) -> Self {
        let attempt = Attempt {
            started_at: at,
            finished_at: at,
            failed_reason: Some(reason.to_owned()),
            ..Attempt::default()
        };
        Self {
            delivery,
            subscription,
            run_no,
            accepted_at: at,
            attempt: Arc::new(attempt),
            code: String::new(),
            is_alone: false,
            next: Next::GiveUp(reason.to_owned()),
            now,
        }
    }
}

impl AttemptReport {
    /// What [`judge`] needs to know about it.
    pub fn result(&self) -> AttemptResult<'_> {
        AttemptResult {
            class: self.attempt.class,
            reason: self.attempt.failed_reason.as_deref().unwrap_or_default(),
            http_status: self.attempt.http_status,
            retry_after: self.retry_after,
            is_probe: self.is_probe,
            is_inconclusive: self.is_inconclusive,
            is_away: self.is_away,
            jitter: self.jitter,
            now: self.now,
        }
    }

    /// What the store writes after a verdict.
    pub fn settled_as(&self, verdict: &Verdict) -> Settlement {
        let mut attempt = Arc::clone(&self.attempt);
        let Verdict { class, counted, .. } = *verdict;
        if (attempt.class, attempt.counted) != (class, counted) {
            attempt = Arc::new(Attempt { class, counted, ..Attempt::clone(&attempt) });
        }
        Settlement {
            delivery: self.delivery,
            subscription: self.subscription,
            run_no: self.run_no,
            accepted_at: self.accepted_at,
            attempt,
            code: self.code.clone(),
            is_alone: verdict.is_alone,
            next: verdict.next.clone(),
            now: self.now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(status: u16, class: AttemptClass) -> AttemptResult<'static> {
        AttemptResult {
            class,
            reason: "no",
            http_status: Some(status),
            retry_after: None,
            is_probe: false,
            is_inconclusive: false,
            is_away: false,
            jitter: Jitter::default(),
            now: Timestamp::from_secs(1000),
        }
    }

    fn judged(attempt: AttemptResult<'_>, facts: Facts) -> Verdict {
        judge(&attempt, &Rules::default(), &facts)
    }

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_secs(secs)
    }

    const FIVE: Duration = Duration::from_secs(5);

    #[test]
    fn what_has_to_be_confirmed_is_not_completed_by_its_answer() {
        let rules = Rules { confirm_within: Some(FIVE), ..Rules::default() };
        let verdict = judge(&attempt(200, AttemptClass::Success), &rules, &Facts::default());
        assert_eq!(verdict.next, Next::Confirm(FIVE));
        let failed = judge(&attempt(500, AttemptClass::Transient), &rules, &Facts::default());
        assert!(matches!(failed.next, Next::Retry(_)));
    }

    #[test]
    fn a_failing_target_is_tried_22_times() {
        let five = attempt(500, AttemptClass::Transient);
        let after = |n| judged(five, Facts { counted_failures: n, ..Facts::default() });
        assert!(matches!(after(20).next, Next::Retry(_)));
        assert!(matches!(after(21).next, Next::GiveUp(_)));
        assert!(after(21).counted);
    }

    #[test]
    fn a_target_that_is_gone_is_disabled() {
        let verdict = judged(attempt(410, AttemptClass::Gone), Facts::default());
        assert!(matches!(verdict.hold, Some(NewHold::Disabled(_))));
        assert!(matches!(verdict.next, Next::GiveUp(_)));
    }

    #[test]
    fn five_refusals_in_a_row_hold_the_rest() {
        let streak = |count| Streak { class: Some(AttemptClass::Validation), count };
        let after = |count| {
            let facts = Facts { streak: streak(count), ..Facts::default() };
            judged(attempt(422, AttemptClass::Validation), facts).hold
        };
        assert_eq!(after(3), None);
        assert_eq!(after(4), Some(NewHold::Rejecting));
    }

    #[test]
    fn a_target_gets_the_wait_it_asks_for_and_nothing_counts() {
        let mut asked = attempt(429, AttemptClass::RateLimited);
        asked.retry_after = Some(Duration::from_secs(90));
        let verdict = judged(asked, Facts::default());
        assert!(!verdict.counted);
        assert_eq!(verdict.hold, Some(NewHold::Until(at(1090))));
        assert_eq!(verdict.next, Next::Retry(Duration::from_secs(90)));
        asked.retry_after = Some(Duration::ZERO);
        assert_eq!(judged(asked, Facts::default()).next, Next::Retry(Duration::from_secs(1)));
        let unasked = judged(attempt(429, AttemptClass::RateLimited), Facts::default());
        assert_eq!(unasked.next, Next::Retry(FIVE));
    }

    #[test]
    fn a_credential_that_is_refused_is_probed_by_the_schedule_and_nothing_counts() {
        let first = judged(attempt(401, AttemptClass::Auth), Facts::default());
        let hold = |at, failed| Some(NewHold::Probe { reason: HoldReason::Auth, at, failed });
        assert_eq!((first.hold, first.counted), (hold(at(1005), 0), false));
        let mut probe = attempt(401, AttemptClass::Auth);
        probe.is_probe = true;
        let second = judged(probe, Facts { auth_probe: Some(0), ..Facts::default() });
        assert_eq!(second.hold, hold(at(1030), 1));
        let beside = Facts { auth_probe: Some(3), ..Facts::default() };
        assert_eq!(judged(attempt(401, AttemptClass::Auth), beside).hold, None);
    }

    #[test]
    fn retry_after_is_the_shortest_wait_in_any_answer() {
        let facts = [
            Facts::default(),
            Facts { auth_probe: Some(0), ..Facts::default() },
            Facts { breaker_probe: Some(0), ..Facts::default() },
        ];
        for facts in facts {
            for (status, class) in [(401, AttemptClass::Auth), (500, AttemptClass::Transient)] {
                for is_probe in [false, true] {
                    let retry_after = Some(Duration::from_mins(10));
                    let verdict = judged(
                        AttemptResult { retry_after, is_probe, ..attempt(status, class) },
                        facts,
                    );
                    let Next::Retry(wait) = verdict.next else { panic!("{verdict:?}") };
                    assert!(wait >= Duration::from_mins(10), "{status} {is_probe}: {wait:?}");
                    if let Some(NewHold::Probe { at: probe_at, .. }) = verdict.hold
                        && (is_probe || status == 401)
                    {
                        assert!(probe_at >= at(1600), "{status} {is_probe}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_single_event_that_is_refused_while_others_pass_is_given_up() {
        let facts = Facts {
            last_failure: Some((AttemptClass::Auth, at(100))),
            last_success_at: Some(at(200)),
            ..Facts::default()
        };
        let verdict = judged(attempt(403, AttemptClass::Auth), facts);
        assert_eq!(verdict.class, AttemptClass::Validation);
        assert!(matches!(verdict.next, Next::GiveUp(_)));
    }

    #[test]
    fn the_breaker_opens_when_many_fail_and_not_for_one_alone() {
        let after = |count, counted_failures| {
            let streak = Streak { class: Some(AttemptClass::Transient), count };
            let facts = Facts { counted_failures, streak, ..Facts::default() };
            judged(attempt(500, AttemptClass::Transient), facts).hold
        };
        assert_eq!(after(8, 1), None);
        let open = NewHold::Probe { reason: HoldReason::Breaker, at: at(1005), failed: 0 };
        assert_eq!(after(9, 1), Some(open));
        assert_eq!(after(9, 9), None);
    }

    #[test]
    fn a_probe_that_fails_is_not_counted_and_the_next_is_at_most_five_minutes_away() {
        let mut probe = attempt(500, AttemptClass::Transient);
        probe.is_probe = true;
        let verdict = judged(probe, Facts { breaker_probe: Some(9), ..Facts::default() });
        assert!(!verdict.counted);
        let hold = NewHold::Probe { reason: HoldReason::Breaker, at: at(1300), failed: 10 };
        assert_eq!(verdict.hold, Some(hold));
    }

    #[test]
    fn a_delivery_that_alone_fails_is_poison() {
        let facts = |failures_alone, passed| Facts {
            counted_failures: 7,
            failures_alone,
            last_failure: Some((AttemptClass::Transient, at(100))),
            last_success_at: Some(at(passed)),
            ..Facts::default()
        };
        let class = |facts| judged(attempt(500, AttemptClass::Transient), facts).class;
        assert_eq!(class(facts(6, 200)), AttemptClass::Poison);
        assert_eq!(class(facts(6, 50)), AttemptClass::Transient);
        assert_eq!(class(facts(5, 200)), AttemptClass::Transient);
        assert_eq!(class(facts(0, 200)), AttemptClass::Transient, "seven failed in an outage");
    }

    #[test]
    fn while_the_site_is_offline_nothing_counts() {
        let mut offline = attempt(500, AttemptClass::Transient);
        offline.is_inconclusive = true;
        let facts = Facts {
            counted_failures: 21,
            failing_since: Some(at(1000 - 6 * 86400)),
            ..Facts::default()
        };
        let verdict = judged(offline, facts);
        assert_eq!((verdict.counted, verdict.hold), (false, None));
        assert!(matches!(verdict.next, Next::Retry(_)));
    }

    #[test]
    fn five_days_of_failing_disable() {
        let since = |secs: i64| Facts { failing_since: Some(at(1000 - secs)), ..Facts::default() };
        let hold = |facts| judged(attempt(500, AttemptClass::Transient), facts).hold;
        assert_eq!(hold(since(5 * 86400 - 1)), None);
        assert!(matches!(hold(since(5 * 86400)), Some(NewHold::Disabled(_))));
    }
}
