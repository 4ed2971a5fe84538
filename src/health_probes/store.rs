//! Table `health_probes`: what the last probe of an idle target came to. A subscription is read with its row.

use crate::base::clock::Timestamp;
use crate::base::id::{self, SubscriptionSeq};
use crate::model::escalation::{Class, NewEscalation};
use crate::model::health_probe::HealthState;
use crate::model::hold::HoldReason;
use crate::model::outcome::AttemptClass;
use crate::model::subscription::Subscription;
use crate::store::error::Result;
use crate::store::sql::{insert, queries};
use crate::store::tx::{WriteTx, tuple};
use crate::store::{escalations, settlement, subscriptions};

/// A subscription, its tenant, `probe.every`, what the last probes say, and when something was last sent.
type Idle = (SubscriptionSeq, String, String, HealthState, Timestamp);

queries! {
    // A time that is to come was stored before the clock was set back, and does not count.
    /// Those whose target is probed. Their holds are looked at when one is due.
    pub(super) fn idle(now: Timestamp) -> Vec<Idle> = rows as tuple "
    SELECT s.seq, s.tenant, json_extract(s.policy, '$.probe.every'), coalesce(p.state, 'healthy'),
           max(iif(s.last_success_at <= ?1, s.last_success_at, 0), iif(s.last_failure_at <= ?1, s.last_failure_at, 0),
               iif(p.probed_at <= ?1, p.probed_at, 0))
      FROM subscriptions AS s
      LEFT JOIN health_probes AS p ON p.subscription_seq = s.seq
     WHERE json_extract(s.policy, '$.probe') IS NOT NULL AND s.deleted_at IS NULL
     LIMIT 100000";

    /// Failing ones of which a probe says no more: a delivery has succeeded since, or a person holds the subscription.
    pub(super) fn over(now: Timestamp) -> Vec<SubscriptionSeq> = list "
    SELECT p.subscription_seq FROM health_probes AS p
      JOIN subscriptions AS s ON s.seq = p.subscription_seq
     WHERE p.detail IS NOT NULL
       AND (s.last_success_at BETWEEN p.probed_at AND ?1 OR s.state <> 'ACTIVE'
            OR EXISTS (SELECT 1 FROM tenants AS t WHERE t.name = s.tenant AND t.suspended_at IS NOT NULL))
     LIMIT 500";

    /// Whether one of these deliveries, a JSON array of numbers, is of a subscription.
    pub(super) fn is_busy(of: SubscriptionSeq, among: &str) -> bool = exists "
    SELECT 1 FROM deliveries
     WHERE seq IN (SELECT value FROM json_each(?2)) AND subscription_seq = ?1";

    /// How many subscriptions are unhealthy, over all tenants.
    pub fn unhealthy() -> u64 = count
        "SELECT count(*) FROM health_probes WHERE detail IS NOT NULL AND state = 'unhealthy'";
}

/// Forgets what [`over`] finds, and resolves the escalations about it.
pub(super) fn end_over(tx: &WriteTx<'_>, now: Timestamp) -> Result<()> {
    over(tx, now)?.into_iter().try_for_each(|seq| settlement::forget_health(tx, seq, now))
}

/// Stores what a probe came to and what follows, unless the subscription was changed or held meanwhile.
///
/// A ping is what a delivery would be, so one that works ends the holds `breaker` and `auth`. A path may be public, and work
/// while deliveries fail: it ends `breaker` only after it has failed itself, and `auth` only after it has refused our
/// credential. Where a hold has come back since a probe has ended it, and no delivery has worked, the probe proves nothing.
/// Otherwise such a hold would come and go without end.
pub(super) fn note(
    tx: &WriteTx<'_>,
    probed: &Subscription,
    result: (AttemptClass, &str),
    at: Timestamp,
) -> Result<()> {
    let Some(Subscription { seq, new, health: Some(had), holds, last_success_at, .. }) =
        subscriptions::by_seq(tx, probed.seq)?
    else {
        return Ok(());
    };
    let is_same = new.target == probed.new.target && new.policy.probe == probed.new.policy.probe;
    if !is_same || holds.iter().any(|hold| hold.reason.is_by_a_person()) {
        return Ok(());
    }
    let mut known = had.and(result.0, result.1, at);
    if known.detail.is_none() {
        let is_ping = new.policy.probe.as_ref().is_some_and(|probe| probe.path.is_none());
        let proves = had.ended_at.is_none_or(|ended| last_success_at >= Some(ended));
        let ends = |reason| match reason {
            HoldReason::Breaker => proves && (is_ping || had.detail.is_some()),
            HoldReason::Auth => proves && (is_ping || had.was_refused),
            _ => false,
        };
        let has_ended = settlement::end_audited(tx, seq, ends, None, at)?;
        known.ended_at = if has_ended { Some(at) } else { had.ended_at };
        settlement::forget_health(tx, seq, at)?;
    } else if known.state == HealthState::Unhealthy {
        let class = Class::SubscriptionUnhealthy;
        let id = id::uuid7_of(at, &[class.as_str(), &new.id]);
        let subject = format!("subscription:{}", new.name);
        let detail = format!("probes fail; the last: {}", result.1);
        let tenant = new.tenant.clone();
        let raised = NewEscalation { id, tenant, class, subject, detail };
        escalations::raise(tx, &raised, at)?;
    }
    insert!(tx, "health_probes" of known {
        subscription_seq: seq, probed_at, state, unhealthy_since, was_refused, detail: &known.detail, ended_at
    } "ON CONFLICT DO UPDATE SET probed_at = excluded.probed_at, state = excluded.state, detail = excluded.detail,
         unhealthy_since = excluded.unhealthy_since, was_refused = excluded.was_refused, ended_at = excluded.ended_at")
    .map(drop)
}
