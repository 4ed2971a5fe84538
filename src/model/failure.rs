//! What follows an attempt: whether the delivery is retried or given up, and whether its subscription may be called.
//!
//! [`judge`] decides inside the transaction that stores the attempt, from facts that this transaction reads. It is
//! pure, so the transaction may run twice.

use std::time::Duration;

use crate::base::clock::Timestamp;
use crate::model::attempt::AttemptReport;
use crate::model::hold::HoldReason;
use crate::model::outcome::AttemptClass;

/// Counted failures of a delivery that raise an escalation.
pub const ESCALATED_AT: u32 = 8;
/// Refusals in a row after which a subscription is held. Source: the product page, section 7.
pub const REJECTING_AFTER: u32 = 5;
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

/// The state of a delivery and its subscription before an attempt, as the transaction reads it.
#[derive(Clone, Copy, Debug, Default)]
pub struct RetryFacts {
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
    /// Not called until a person acts, because the target refuses its requests.
    Rejecting,
    /// Disabled, with the reason.
    Disabled(String),
}

/// The verdict on an attempt: what [`judge`] decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryVerdict {
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

/// Decides what follows an attempt.
///
/// ```
/// use oncebox::base::clock::Timestamp;
/// use oncebox::base::id::{DeliverySeq, SubscriptionSeq};
/// use oncebox::model::attempt::{Attempt, AttemptReport};
/// use oncebox::model::failure::{Next, RetryFacts, judge};
/// use oncebox::model::outcome::AttemptClass;
/// let attempt = Attempt {
///     class: AttemptClass::Validation,
///     failed_reason: Some("the target answered 422".to_owned()),
///     http_status: Some(422),
///     ..Attempt::default()
/// };
/// let now = Timestamp::from_secs(0);
/// let report = AttemptReport::new(DeliverySeq(1), SubscriptionSeq(1), 1, attempt, now);
/// let verdict = judge(&report, &RetryFacts::default());
/// assert_eq!(verdict.next, Next::GiveUp("the target answered 422".to_owned()));
/// ```
pub fn judge(report: &AttemptReport, facts: &RetryFacts) -> RetryVerdict {
    let class = if facts.only_this_one_fails(report, AttemptClass::Auth) {
        AttemptClass::Validation
    } else {
        report.attempt.class
    };
    let mut verdict = match class {
        AttemptClass::Success => {
            let next = report.rules.confirm_within.map_or(Next::Complete, Next::Confirm);
            return RetryVerdict::uncounted(class, next, None);
        }
        AttemptClass::Validation | AttemptClass::Poison => refused(report, class, facts),
        AttemptClass::Gone => RetryVerdict {
            class,
            counted: true,
            next: Next::GiveUp(report.reason().to_owned()),
            hold: Some(NewHold::Disabled(report.reason().to_owned())),
            is_alone: false,
        },
        AttemptClass::RateLimited => rate_limited(report, facts),
        AttemptClass::Auth => unauthorized(report, facts),
        AttemptClass::Transient => transient(report, facts),
    };
    let failing_for = facts.failing_since.map_or(Duration::ZERO, |since| report.now.since(since));
    if failing_for >= DISABLED_AFTER && !report.is_inconclusive {
        let why = format!("it has failed for five days; the last: {}", report.reason());
        verdict.hold = Some(NewHold::Disabled(why));
    }
    verdict
}

impl RetryFacts {
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
    fn only_this_one_fails(&self, report: &AttemptReport, class: AttemptClass) -> bool {
        let before =
            self.last_failure.filter(|(last, _)| *last == class && report.attempt.class == class);
        let passed = self.last_success_at;
        before.zip(passed).is_some_and(|((_, failed_at), passed_at)| passed_at > failed_at)
    }
}

impl RetryVerdict {
    fn uncounted(class: AttemptClass, next: Next, hold: Option<NewHold>) -> Self {
        Self { class, counted: false, next, hold, is_alone: false }
    }
}

/// A refusal, which a retry would only repeat.
fn refused(report: &AttemptReport, class: AttemptClass, facts: &RetryFacts) -> RetryVerdict {
    // A request that cannot be sent says nothing about the target.
    let is_refusal = class == AttemptClass::Validation;
    let is_rejecting = is_refusal && facts.streak.and(class).count >= REJECTING_AFTER;
    RetryVerdict {
        class,
        counted: true,
        next: Next::GiveUp(report.reason().to_owned()),
        hold: is_rejecting.then_some(NewHold::Rejecting),
        is_alone: false,
    }
}

/// The target asked us to wait. We never wait less than that.
fn rate_limited(report: &AttemptReport, facts: &RetryFacts) -> RetryVerdict {
    let step = report.rules.schedule.wait_after(facts.streak.and(report.attempt.class).count);
    let wait = match (report.retry_after, facts.waits_until(report.now)) {
        (Some(asked), _) => asked.max(MIN_ASKED_WAIT),
        (None, Some(until)) => until.since(report.now),
        (None, None) => step.max(MIN_RATE_LIMIT_WAIT),
    };
    let hold = NewHold::Until(report.now.plus(wait));
    RetryVerdict::uncounted(
        report.attempt.class,
        Next::Retry(report.jitter.lengthen(wait)),
        Some(hold),
    )
}

/// The target does not accept our credential. Until it does, only probes are sent, as often as the schedule says. Each
/// probe is the delivery that has waited longest, so that a single bad delivery cannot keep the hold.
fn unauthorized(report: &AttemptReport, facts: &RetryFacts) -> RetryVerdict {
    match facts.auth_probe {
        Some(_) if !report.is_probe => {
            let wait = report.wait(report.rules.schedule.wait_after(1));
            RetryVerdict::uncounted(report.attempt.class, Next::Retry(wait), None)
        }
        failed => {
            let failed = failed.map_or(0, |failed| failed.saturating_add(1));
            probe(report, HoldReason::Auth, failed, report.rules.schedule.wait_after(failed + 1))
        }
    }
}

fn probe(report: &AttemptReport, reason: HoldReason, failed: u32, wait: Duration) -> RetryVerdict {
    let wait = report.wait(wait);
    let hold = NewHold::Probe { reason, at: report.now.plus(wait), failed };
    RetryVerdict::uncounted(report.attempt.class, Next::Retry(wait), Some(hold))
}

/// A failure that a retry may repair.
fn transient(report: &AttemptReport, facts: &RetryFacts) -> RetryVerdict {
    let failures = facts.counted_failures.saturating_add(1);
    if report.is_inconclusive {
        // The hold of the site ends when the network works again. Until then nothing is counted. A first try that was cut
        // short is followed by an attempt with all of its time.
        let wait = report.wait(report.rules.schedule.wait_after(1));
        return RetryVerdict::uncounted(report.attempt.class, Next::Retry(wait), None);
    }
    let breaker_wait =
        |failed: u32| report.rules.schedule.wait_after(failed + 1).min(MAX_BREAKER_WAIT);
    if report.is_away && !report.is_probe && facts.breaker_probe.is_some() {
        // It was under way when another one found the target away.
        let wait = report.wait(report.rules.schedule.wait_after(1));
        return RetryVerdict::uncounted(report.attempt.class, Next::Retry(wait), None);
    }
    if report.is_probe || report.is_away {
        let (reason, failed, wait) = match (facts.auth_probe, facts.breaker_probe) {
            (Some(failed), _) => {
                let failed = failed.saturating_add(1);
                (HoldReason::Auth, failed, report.rules.schedule.wait_after(failed + 1))
            }
            (None, failed) => {
                let failed = failed.map_or(0, |failed| failed.saturating_add(1));
                (HoldReason::Breaker, failed, breaker_wait(failed))
            }
        };
        return probe(report, reason, failed, wait);
    }
    let is_5xx = report.attempt.http_status.is_some_and(|status| (500..=599).contains(&status));
    let is_alone = is_5xx && facts.only_this_one_fails(report, AttemptClass::Transient);
    // This failure, those like it, and the first of all. Failures of an outage say nothing of this delivery.
    let alone = facts.failures_alone.saturating_add(2);
    if is_alone && alone >= POISON_AFTER {
        let why =
            format!("failed {alone} times while others passed; the last: {}", report.reason());
        return RetryVerdict {
            class: AttemptClass::Poison,
            counted: true,
            next: Next::GiveUp(why),
            hold: None,
            is_alone,
        };
    }
    let streak = facts.streak.and(report.attempt.class).count;
    // The breaker is for several failing deliveries. A single one already waits by its own schedule.
    let others_failed = facts.streak.count > facts.counted_failures;
    let opens = report.rules.breaker_after > 0
        && streak >= report.rules.breaker_after
        && others_failed
        && facts.breaker_probe.is_none();
    let hold = opens.then(|| NewHold::Probe {
        reason: HoldReason::Breaker,
        at: report.now.plus(report.jitter.lengthen(breaker_wait(0))),
        failed: 0,
    });
    let next = if report.rules.schedule.gives_up(failures) {
        Next::GiveUp(format!("given up after {failures} attempts; the last: {}", report.reason()))
    } else if facts.is_in_lane && report.rules.park_after.is_some_and(|most| failures >= most) {
        Next::Park(format!("failed {failures} times; the last: {}", report.reason()))
    } else {
        Next::Retry(report.wait(report.rules.schedule.wait_after(failures)))
    };
    RetryVerdict { class: report.attempt.class, counted: true, next, hold, is_alone }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::{DeliverySeq, SubscriptionSeq};
    use crate::model::attempt::Attempt;
    use crate::model::retry_rules::RetryRules;

    fn attempt(status: u16, class: AttemptClass) -> AttemptReport {
        let attempt = Attempt {
            class,
            failed_reason: Some("no".to_owned()),
            http_status: Some(status),
            ..Attempt::default()
        };
        AttemptReport::new(DeliverySeq(1), SubscriptionSeq(1), 1, attempt, at(1000))
    }

    fn judged(report: AttemptReport, facts: RetryFacts) -> RetryVerdict {
        judge(&report, &facts)
    }

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_secs(secs)
    }

    const FIVE: Duration = Duration::from_secs(5);

    #[test]
    fn what_has_to_be_confirmed_is_not_completed_by_its_answer() {
        let rules = RetryRules { confirm_within: Some(FIVE), ..RetryRules::default() };
        let judged = |status, class| {
            let report = AttemptReport { rules: rules.clone(), ..attempt(status, class) };
            judge(&report, &RetryFacts::default())
        };
        assert_eq!(judged(200, AttemptClass::Success).next, Next::Confirm(FIVE));
        let failed = judged(500, AttemptClass::Transient);
        assert!(matches!(failed.next, Next::Retry(_)));
    }

    #[test]
    fn a_failing_target_is_tried_22_times() {
        let five = || attempt(500, AttemptClass::Transient);
        let after = |n| judged(five(), RetryFacts { counted_failures: n, ..RetryFacts::default() });
        assert!(matches!(after(20).next, Next::Retry(_)));
        assert!(matches!(after(21).next, Next::GiveUp(_)));
        assert!(after(21).counted);
    }

    #[test]
    fn a_target_that_is_gone_is_disabled() {
        let verdict = judged(attempt(410, AttemptClass::Gone), RetryFacts::default());
        assert!(matches!(verdict.hold, Some(NewHold::Disabled(_))));
        assert!(matches!(verdict.next, Next::GiveUp(_)));
    }

    #[test]
    fn five_refusals_in_a_row_hold_the_rest() {
        let streak = |count| Streak { class: Some(AttemptClass::Validation), count };
        let after = |count| {
            let facts = RetryFacts { streak: streak(count), ..RetryFacts::default() };
            judged(attempt(422, AttemptClass::Validation), facts).hold
        };
        assert_eq!(after(3), None);
        assert_eq!(after(4), Some(NewHold::Rejecting));
    }

    #[test]
    fn a_target_gets_the_wait_it_asks_for_and_nothing_counts() {
        let mut asked = attempt(429, AttemptClass::RateLimited);
        asked.retry_after = Some(Duration::from_secs(90));
        let verdict = judged(asked.clone(), RetryFacts::default());
        assert!(!verdict.counted);
        assert_eq!(verdict.hold, Some(NewHold::Until(at(1090))));
        assert_eq!(verdict.next, Next::Retry(Duration::from_secs(90)));
        asked.retry_after = Some(Duration::ZERO);
        assert_eq!(judged(asked, RetryFacts::default()).next, Next::Retry(Duration::from_secs(1)));
        let unasked = judged(attempt(429, AttemptClass::RateLimited), RetryFacts::default());
        assert_eq!(unasked.next, Next::Retry(FIVE));
    }

    #[test]
    fn a_credential_that_is_refused_is_probed_by_the_schedule_and_nothing_counts() {
        let first = judged(attempt(401, AttemptClass::Auth), RetryFacts::default());
        let hold = |at, failed| Some(NewHold::Probe { reason: HoldReason::Auth, at, failed });
        assert_eq!((first.hold, first.counted), (hold(at(1005), 0), false));
        let mut probe = attempt(401, AttemptClass::Auth);
        probe.is_probe = true;
        let second = judged(probe, RetryFacts { auth_probe: Some(0), ..RetryFacts::default() });
        assert_eq!(second.hold, hold(at(1030), 1));
        let beside = RetryFacts { auth_probe: Some(3), ..RetryFacts::default() };
        assert_eq!(judged(attempt(401, AttemptClass::Auth), beside).hold, None);
    }

    #[test]
    fn retry_after_is_the_shortest_wait_in_any_answer() {
        let facts = [
            RetryFacts::default(),
            RetryFacts { auth_probe: Some(0), ..RetryFacts::default() },
            RetryFacts { breaker_probe: Some(0), ..RetryFacts::default() },
        ];
        for facts in facts {
            for (status, class) in [(401, AttemptClass::Auth), (500, AttemptClass::Transient)] {
                for is_probe in [false, true] {
                    let retry_after = Some(Duration::from_mins(10));
                    let verdict = judged(
                        AttemptReport { retry_after, is_probe, ..attempt(status, class) },
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
        let facts = RetryFacts {
            last_failure: Some((AttemptClass::Auth, at(100))),
            last_success_at: Some(at(200)),
            ..RetryFacts::default()
        };
        let verdict = judged(attempt(403, AttemptClass::Auth), facts);
        assert_eq!(verdict.class, AttemptClass::Validation);
        assert!(matches!(verdict.next, Next::GiveUp(_)));
    }

    #[test]
    fn the_breaker_opens_when_many_fail_and_not_for_one_alone() {
        let after = |count, counted_failures| {
            let streak = Streak { class: Some(AttemptClass::Transient), count };
            let facts = RetryFacts { counted_failures, streak, ..RetryFacts::default() };
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
        let verdict = judged(probe, RetryFacts { breaker_probe: Some(9), ..RetryFacts::default() });
        assert!(!verdict.counted);
        let hold = NewHold::Probe { reason: HoldReason::Breaker, at: at(1300), failed: 10 };
        assert_eq!(verdict.hold, Some(hold));
    }

    #[test]
    fn a_delivery_that_alone_fails_is_poison() {
        let facts = |failures_alone, passed| RetryFacts {
            counted_failures: 7,
            failures_alone,
            last_failure: Some((AttemptClass::Transient, at(100))),
            last_success_at: Some(at(passed)),
            ..RetryFacts::default()
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
        let facts = RetryFacts {
            counted_failures: 21,
            failing_since: Some(at(1000 - 6 * 86400)),
            ..RetryFacts::default()
        };
        let verdict = judged(offline, facts);
        assert_eq!((verdict.counted, verdict.hold), (false, None));
        assert!(matches!(verdict.next, Next::Retry(_)));
    }

    #[test]
    fn five_days_of_failing_disable() {
        let since = |secs: i64| RetryFacts {
            failing_since: Some(at(1000 - secs)),
            ..RetryFacts::default()
        };
        let hold = |facts| judged(attempt(500, AttemptClass::Transient), facts).hold;
        assert_eq!(hold(since(5 * 86400 - 1)), None);
        assert!(matches!(hold(since(5 * 86400)), Some(NewHold::Disabled(_))));
    }
}
