//! What follows an attempt: is the delivery tried again, given up, and may its subscription still be called.
//!
//! [`judge`] decides, inside the transaction that stores the attempt, from facts that this transaction reads. It is pure:
//! the same input gives the same answer, so the transaction may run twice.

use std::sync::Arc;
use std::time::Duration;

use crate::base::clock::Timestamp;
use crate::base::id::{DeliverySeq, SubscriptionSeq};
use crate::model::delivery::{Attempt, Jitter, Schedule};
use crate::model::hold::HoldReason;
use crate::model::outcome::AttemptClass;

/// Counted failures of a delivery at which a person is told. Source: the seed's schedule of eight attempts.
pub const ESCALATED_AT: u32 = 8;
/// Refusals in a row after which a subscription is held. Source: the product page, section 7.
pub const REJECTING_AFTER: u32 = 5;
/// Transient failures in a row after which a subscription is held, where it does not say.
pub const BREAKER_AFTER: u32 = 10;
/// 5xx answers to one delivery, after which it is given up where others passed between any two of them.
pub const POISON_AFTER: u32 = 8;
/// How long a subscription may fail before it is disabled. Source: the product page, section 7.
pub const DISABLED_AFTER: Duration = Duration::from_hours(5 * 24);
/// An endpoint without an attempt for so long has not failed all the while: the service was off, or the clock was set.
pub const UNSEEN_AFTER: Duration = Duration::from_hours(2 * 24);
/// The longest wait between two probes of a broken endpoint: new events wait for the next probe.
const MAX_BREAKER_WAIT: Duration = Duration::from_mins(5);
/// The wait after a 429 that names one, at least. Nothing counts, so that `Retry-After: 0` would be tried without end.
const MIN_ASKED_WAIT: Duration = Duration::from_secs(1);
/// The wait after a 429 that names none, at least.
const MIN_RATE_LIMIT_WAIT: Duration = Duration::from_secs(5);

/// An attempt that has ended, as the deliverer hands it in.
#[derive(Clone, Debug)]
pub struct AttemptReport {
    /// The delivery.
    pub delivery: DeliverySeq,
    /// Its subscription.
    pub subscription: SubscriptionSeq,
    /// The run the attempt belongs to; a delivery that was reopened meanwhile is not moved.
    pub run_no: u32,
    /// When its event arrived.
    pub accepted_at: Timestamp,
    /// The attempt. `n` is the one that was expected when it was sent; `class` and `counted` are judged again.
    pub attempt: Arc<Attempt>,
    /// What failed, in one word: the status, or the cause.
    pub code: String,
    /// The wait the target asked for.
    pub retry_after: Option<Duration>,
    /// The rules in force.
    pub rules: Rules,
    /// How much waits are lengthened.
    pub jitter: Jitter,
    /// Whether it was sent in spite of a hold, to learn whether the target works again.
    pub is_probe: bool,
    /// Whether the site had no line to the outside.
    pub is_offline: bool,
    /// Schedule time of the report, from which waits are counted.
    pub now: Timestamp,
}

/// The numbers a delivery is judged by: its subscription's, with the event's own `max_attempts` where it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Waits, and the number of counted attempts.
    pub schedule: Schedule,
    /// Transient failures in a row after which the breaker opens; 0: never.
    pub breaker_after: u32,
}

impl Default for Rules {
    fn default() -> Self {
        Self { schedule: Schedule::default(), breaker_after: BREAKER_AFTER }
    }
}

/// Failed attempts of a subscription in a row, all of one kind, with no success since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Streak {
    /// Their class.
    pub class: Option<AttemptClass>,
    /// How many.
    pub count: u32,
}

impl Streak {
    /// The streak with one more failure.
    #[must_use]
    pub fn and(self, class: AttemptClass) -> Self {
        let count = if self.class == Some(class) { self.count } else { 0 };
        Self { class: Some(class), count: count.saturating_add(1) }
    }
}

/// What the transaction knows of the delivery and its subscription before this attempt.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts {
    /// Counted failures of this run.
    pub counted_failures: u32,
    /// The class and the time of the delivery's latest failed attempt, if it has failed and not succeeded since.
    pub last_failure: Option<(AttemptClass, Timestamp)>,
    /// How many of its failures came after another delivery of its subscription had passed since its failure before.
    pub failures_alone: u32,
    /// Failures in a row of the subscription.
    pub streak: Streak,
    /// When the subscription began to fail, if it does.
    pub failing_since: Option<Timestamp>,
    /// Its latest success.
    pub last_success_at: Option<Timestamp>,
    /// The probed holds that stand, each with the number of probes that have failed.
    pub auth_probe: Option<u32>,
    /// As above, of the breaker.
    pub breaker_probe: Option<u32>,
    /// The end of the window that the target has asked for, if one stands.
    pub rate_limited_until: Option<Timestamp>,
}

/// What follows for the delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Done.
    Complete,
    /// Tried again after this wait.
    Retry(Duration),
    /// Given up, with the reason.
    GiveUp(String),
}

/// What follows for the subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewHold {
    /// Not called before this time.
    Until(Timestamp),
    /// Called for a probe at this time, after so many probes that failed.
    Probe {
        /// `auth` or `breaker`.
        reason: HoldReason,
        /// When.
        at: Timestamp,
        /// How many have failed.
        failed: u32,
    },
    /// Not called until a person acts: it refuses what it is sent.
    Rejecting,
    /// Disabled, with the reason.
    Disabled(String),
}

/// An attempt, judged.
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

/// An attempt whose consequences are decided, as the store writes them.
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

/// Judges an attempt.
///
/// ```
/// use oncebox::base::clock::Timestamp;
/// use oncebox::model::failure::{Facts, Next, Rules, Tried, judge};
/// use oncebox::model::outcome::AttemptClass;
/// let tried = Tried {
///     class: AttemptClass::Validation, reason: "the target answered 422", http_status: Some(422),
///     retry_after: None, is_probe: false, is_offline: false, jitter: Default::default(),
///     now: Timestamp::from_secs(0), at: Timestamp::from_secs(0),
/// };
/// let verdict = judge(&tried, &Rules::default(), &Facts::default());
/// assert_eq!(verdict.next, Next::GiveUp("the target answered 422".to_owned()));
/// ```
pub fn judge(tried: &Tried<'_>, rules: &Rules, facts: &Facts) -> Verdict {
    let class = if facts.is_only_this_one(tried, AttemptClass::Auth) {
        AttemptClass::Validation
    } else {
        tried.class
    };
    let mut verdict = match class {
        AttemptClass::Success => return Verdict::uncounted(class, Next::Complete, None),
        AttemptClass::Validation | AttemptClass::Poison => refused(tried, class, facts),
        AttemptClass::Gone => Verdict {
            class,
            counted: true,
            next: Next::GiveUp(tried.reason.to_owned()),
            hold: Some(NewHold::Disabled(tried.reason.to_owned())),
            is_alone: false,
        },
        AttemptClass::RateLimited => rate_limited(tried, rules, facts),
        AttemptClass::Auth => unauthorized(tried, rules, facts),
        AttemptClass::Transient => transient(tried, rules, facts),
    };
    let failing_for = facts.failing_since.map_or(Duration::ZERO, |since| tried.at.since(since));
    if failing_for >= DISABLED_AFTER && !tried.is_offline {
        let why = format!("it has failed for five days; the last: {}", tried.reason);
        verdict.hold = Some(NewHold::Disabled(why));
    }
    verdict
}

/// What an attempt came to, as [`judge`] needs it.
#[derive(Clone, Copy, Debug)]
pub struct Tried<'a> {
    /// What it means by its answer alone.
    pub class: AttemptClass,
    /// Why it failed.
    pub reason: &'a str,
    /// The status.
    pub http_status: Option<u16>,
    /// The wait the target asked for.
    pub retry_after: Option<Duration>,
    /// Whether it was a probe.
    pub is_probe: bool,
    /// Whether the site had no line to the outside.
    pub is_offline: bool,
    /// How much waits are lengthened.
    pub jitter: Jitter,
    /// Schedule time.
    pub now: Timestamp,
    /// Wall time of its end.
    pub at: Timestamp,
}

impl Tried<'_> {
    /// A step of the schedule with jitter, or longer if the target asked for more: `Retry-After` is a floor in any
    /// answer.
    fn wait(&self, step: Duration) -> Duration {
        self.jitter.lengthen(step).max(self.retry_after.unwrap_or_default())
    }
}

impl Facts {
    /// The window that the target has asked for and that is not over.
    fn window(&self, now: Timestamp) -> Option<Timestamp> {
        self.rate_limited_until.filter(|until| *until > now)
    }

    /// Whether an attempt is one more failure in a row. Requests that were under way side by side when the target began
    /// to ask for time are one failure together.
    pub fn is_one_more(&self, class: AttemptClass, now: Timestamp) -> bool {
        class != AttemptClass::RateLimited || self.window(now).is_none()
    }

    /// Whether this delivery failed like this before, and another one of its subscription has passed since.
    fn is_only_this_one(&self, tried: &Tried<'_>, class: AttemptClass) -> bool {
        let before = self.last_failure.filter(|(last, _)| *last == class && tried.class == class);
        let passed = self.last_success_at;
        before.zip(passed).is_some_and(|((_, failed_at), passed_at)| passed_at > failed_at)
    }
}

impl Verdict {
    fn uncounted(class: AttemptClass, next: Next, hold: Option<NewHold>) -> Self {
        Self { class, counted: false, next, hold, is_alone: false }
    }
}

/// The request would be refused again.
fn refused(tried: &Tried<'_>, class: AttemptClass, facts: &Facts) -> Verdict {
    // What cannot be sent says nothing of the target.
    let is_refusal = class == AttemptClass::Validation;
    let is_rejecting = is_refusal && facts.streak.and(class).count >= REJECTING_AFTER;
    Verdict {
        class,
        counted: true,
        next: Next::GiveUp(tried.reason.to_owned()),
        hold: is_rejecting.then_some(NewHold::Rejecting),
        is_alone: false,
    }
}

/// The target asked for time: it has as much as it asked for, and never less.
fn rate_limited(tried: &Tried<'_>, rules: &Rules, facts: &Facts) -> Verdict {
    let step = rules.schedule.wait_after(facts.streak.and(tried.class).count);
    let wait = match (tried.retry_after, facts.window(tried.now)) {
        (Some(asked), _) => asked.max(MIN_ASKED_WAIT),
        (None, Some(until)) => until.since(tried.now),
        (None, None) => step.max(MIN_RATE_LIMIT_WAIT),
    };
    let hold = NewHold::Until(tried.now.plus(wait));
    Verdict::uncounted(tried.class, Next::Retry(tried.jitter.lengthen(wait)), Some(hold))
}

/// The target does not accept our credential: nothing is called but a probe by the schedule. The delivery waits for
/// that probe; one that has waited longer goes first, so that a single delivery cannot keep the hold standing.
fn unauthorized(tried: &Tried<'_>, rules: &Rules, facts: &Facts) -> Verdict {
    match facts.auth_probe {
        Some(_) if !tried.is_probe => {
            let wait = tried.wait(rules.schedule.wait_after(1));
            Verdict::uncounted(tried.class, Next::Retry(wait), None)
        }
        failed => {
            let failed = failed.map_or(0, |failed| failed.saturating_add(1));
            probe(tried, HoldReason::Auth, failed, rules.schedule.wait_after(failed + 1))
        }
    }
}

fn probe(tried: &Tried<'_>, reason: HoldReason, failed: u32, wait: Duration) -> Verdict {
    let wait = tried.wait(wait);
    let hold = NewHold::Probe { reason, at: tried.now.plus(wait), failed };
    Verdict::uncounted(tried.class, Next::Retry(wait), Some(hold))
}

/// It may work later.
fn transient(tried: &Tried<'_>, rules: &Rules, facts: &Facts) -> Verdict {
    let failures = facts.counted_failures.saturating_add(1);
    if tried.is_offline {
        // The line alone decides when: the hold of the site stands until it works.
        let wait = tried.wait(rules.schedule.wait_after(1));
        return Verdict::uncounted(tried.class, Next::Retry(wait), None);
    }
    let breaker_wait = |failed: u32| rules.schedule.wait_after(failed + 1).min(MAX_BREAKER_WAIT);
    if tried.is_probe {
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
        return probe(tried, reason, failed, wait);
    }
    let is_5xx = tried.http_status.is_some_and(|status| (500..=599).contains(&status));
    let is_alone = is_5xx && facts.is_only_this_one(tried, AttemptClass::Transient);
    // This failure, those like it, and the first of all. Failures of an outage say nothing of this delivery.
    let alone = facts.failures_alone.saturating_add(2);
    if is_alone && alone >= POISON_AFTER {
        let why = format!("failed {alone} times while others passed; the last: {}", tried.reason);
        let (class, next) = (AttemptClass::Poison, Next::GiveUp(why));
        return Verdict { class, counted: true, next, hold: None, is_alone };
    }
    let streak = facts.streak.and(tried.class).count;
    // A single delivery waits by its own schedule, which is as careful. The breaker is for many.
    let others_failed = facts.streak.count > facts.counted_failures;
    let opens = rules.breaker_after > 0
        && streak >= rules.breaker_after
        && others_failed
        && facts.breaker_probe.is_none();
    let hold = opens.then(|| NewHold::Probe {
        reason: HoldReason::Breaker,
        at: tried.now.plus(tried.jitter.lengthen(breaker_wait(0))),
        failed: 0,
    });
    let next = if rules.schedule.gives_up(failures) {
        Next::GiveUp(format!("given up after {failures} attempts; the last: {}", tried.reason))
    } else {
        Next::Retry(tried.wait(rules.schedule.wait_after(failures)))
    };
    Verdict { class: tried.class, counted: true, next, hold, is_alone }
}

impl AttemptReport {
    /// What [`judge`] needs of it.
    pub fn tried(&self) -> Tried<'_> {
        Tried {
            class: self.attempt.class,
            reason: self.attempt.failed_reason.as_deref().unwrap_or_default(),
            http_status: self.attempt.http_status,
            retry_after: self.retry_after,
            is_probe: self.is_probe,
            is_offline: self.is_offline,
            jitter: self.jitter,
            now: self.now,
            at: self.attempt.finished_at,
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

    fn tried(status: u16, class: AttemptClass) -> Tried<'static> {
        Tried {
            class,
            reason: "no",
            http_status: Some(status),
            retry_after: None,
            is_probe: false,
            is_offline: false,
            jitter: Jitter::default(),
            now: Timestamp::from_secs(1000),
            at: Timestamp::from_secs(1000),
        }
    }

    fn judged(tried: Tried<'_>, facts: Facts) -> Verdict {
        judge(&tried, &Rules::default(), &facts)
    }

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_secs(secs)
    }

    const FIVE: Duration = Duration::from_secs(5);

    #[test]
    fn a_failing_target_is_tried_22_times() {
        let five = tried(500, AttemptClass::Transient);
        let after = |n| judged(five, Facts { counted_failures: n, ..Facts::default() });
        assert!(matches!(after(20).next, Next::Retry(_)));
        assert!(matches!(after(21).next, Next::GiveUp(_)));
        assert!(after(21).counted);
    }

    #[test]
    fn a_target_that_is_gone_is_disabled() {
        let verdict = judged(tried(410, AttemptClass::Gone), Facts::default());
        assert!(matches!(verdict.hold, Some(NewHold::Disabled(_))));
        assert!(matches!(verdict.next, Next::GiveUp(_)));
    }

    #[test]
    fn five_refusals_in_a_row_hold_the_rest() {
        let streak = |count| Streak { class: Some(AttemptClass::Validation), count };
        let after = |count| {
            let facts = Facts { streak: streak(count), ..Facts::default() };
            judged(tried(422, AttemptClass::Validation), facts).hold
        };
        assert_eq!(after(3), None);
        assert_eq!(after(4), Some(NewHold::Rejecting));
    }

    #[test]
    fn a_target_that_asks_for_time_gets_it_and_nothing_counts() {
        let mut asked = tried(429, AttemptClass::RateLimited);
        asked.retry_after = Some(Duration::from_secs(90));
        let verdict = judged(asked, Facts::default());
        assert!(!verdict.counted);
        assert_eq!(verdict.hold, Some(NewHold::Until(at(1090))));
        assert_eq!(verdict.next, Next::Retry(Duration::from_secs(90)));
        asked.retry_after = Some(Duration::ZERO);
        assert_eq!(judged(asked, Facts::default()).next, Next::Retry(Duration::from_secs(1)));
        let unasked = judged(tried(429, AttemptClass::RateLimited), Facts::default());
        assert_eq!(unasked.next, Next::Retry(FIVE));
    }

    #[test]
    fn a_credential_that_is_refused_is_probed_by_the_schedule_and_nothing_counts() {
        let first = judged(tried(401, AttemptClass::Auth), Facts::default());
        let hold = |at, failed| Some(NewHold::Probe { reason: HoldReason::Auth, at, failed });
        assert_eq!((first.hold, first.counted), (hold(at(1005), 0), false));
        let mut probe = tried(401, AttemptClass::Auth);
        probe.is_probe = true;
        let second = judged(probe, Facts { auth_probe: Some(0), ..Facts::default() });
        assert_eq!(second.hold, hold(at(1030), 1));
        let beside = Facts { auth_probe: Some(3), ..Facts::default() };
        assert_eq!(judged(tried(401, AttemptClass::Auth), beside).hold, None);
    }

    #[test]
    fn a_wait_that_was_asked_for_is_a_floor_in_any_answer() {
        let facts = [
            Facts::default(),
            Facts { auth_probe: Some(0), ..Facts::default() },
            Facts { breaker_probe: Some(0), ..Facts::default() },
        ];
        for facts in facts {
            for (status, class) in [(401, AttemptClass::Auth), (500, AttemptClass::Transient)] {
                for is_probe in [false, true] {
                    let retry_after = Some(Duration::from_mins(10));
                    let verdict =
                        judged(Tried { retry_after, is_probe, ..tried(status, class) }, facts);
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
        let verdict = judged(tried(403, AttemptClass::Auth), facts);
        assert_eq!(verdict.class, AttemptClass::Validation);
        assert!(matches!(verdict.next, Next::GiveUp(_)));
    }

    #[test]
    fn the_breaker_opens_when_many_fail_and_not_for_one_alone() {
        let after = |count, counted_failures| {
            let streak = Streak { class: Some(AttemptClass::Transient), count };
            let facts = Facts { counted_failures, streak, ..Facts::default() };
            judged(tried(500, AttemptClass::Transient), facts).hold
        };
        assert_eq!(after(8, 1), None);
        let open = NewHold::Probe { reason: HoldReason::Breaker, at: at(1005), failed: 0 };
        assert_eq!(after(9, 1), Some(open));
        assert_eq!(after(9, 9), None);
    }

    #[test]
    fn a_probe_that_fails_is_not_counted_and_the_next_is_at_most_five_minutes_away() {
        let mut probe = tried(500, AttemptClass::Transient);
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
        let class = |facts| judged(tried(500, AttemptClass::Transient), facts).class;
        assert_eq!(class(facts(6, 200)), AttemptClass::Poison);
        assert_eq!(class(facts(6, 50)), AttemptClass::Transient);
        assert_eq!(class(facts(5, 200)), AttemptClass::Transient);
        assert_eq!(class(facts(0, 200)), AttemptClass::Transient, "seven failed in an outage");
    }

    #[test]
    fn without_a_line_nothing_counts() {
        let mut offline = tried(500, AttemptClass::Transient);
        offline.is_offline = true;
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
        let hold = |facts| judged(tried(500, AttemptClass::Transient), facts).hold;
        assert_eq!(hold(since(5 * 86400 - 1)), None);
        assert!(matches!(hold(since(5 * 86400)), Some(NewHold::Disabled(_))));
    }
}
