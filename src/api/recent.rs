//! `/v1/stats/recent`: what happened in the last hour. [`crate::pipeline::recent`] keeps it.

use std::time::Duration;

use crate::api::prelude::*;
use crate::pipeline::recent::{LATENCY_BOUNDS_MS, Minute, Reading, RecentAttempt};
use crate::store::subscriptions;

/// The last hour of a tenant.
#[derive(Serialize, JsonSchema)]
pub(super) struct RecentStats {
    /// The time on this machine.
    now: Timestamp,
    /// When counting began: the start of the process.
    since: Timestamp,
    /// The upper bounds of the latency buckets, in milliseconds. The last bucket has no bound.
    latency_bounds_ms: [u32; LATENCY_BOUNDS_MS.len()],
    /// The last 60 minutes, the oldest first. The last one is not over.
    minutes: Vec<MinuteAnswer>,
    /// The subscriptions that had attempts, by name.
    subscriptions: Vec<Subscription>,
    /// Attempts, events and webhooks of the whole service that were not counted: only 1,000 subscriptions and 100
    /// tenants are.
    left_out: u64,
}

/// The counts of a minute.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RecentMinute")]
struct MinuteAnswer {
    /// When it began.
    at: Timestamp,
    #[serde(flatten)]
    counts: Minute,
}

/// The latest attempts of a subscription.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RecentSubscription")]
struct Subscription {
    subscription: Is<NameText>,
    /// At most 50, the newest first.
    attempts: Vec<RecentAttempt>,
}

/// `GET /v1/stats/recent`
pub(super) fn show(api: &Api, call: &Call) -> Result<Response, Problem> {
    let own = lists::read(api, call, |tx| subscriptions::all_of(tx, &call.tenant))?;
    let recent = &api.flow.receive.counts.recent;
    let Reading { since, first, minutes, attempts, left_out } =
        recent.read(&call.tenant, |seq| own.contains_key(&seq));
    let at = |n| first.plus(Duration::from_mins(n));
    let each = (0_u64..).zip(minutes).map(|(n, counts)| MinuteAnswer { at: at(n), counts });
    let minutes = each.collect();
    let named = attempts.into_iter().filter(|(_, attempts)| !attempts.is_empty());
    let mut subscriptions: Vec<Subscription> = named
        .filter_map(|(seq, attempts)| {
            let subscription = own.get(&seq)?.clone()?;
            Some(Subscription { subscription: subscription.into(), attempts })
        })
        .collect();
    subscriptions.sort_unstable_by(|a, b| a.subscription.cmp(&b.subscription));
    let (now, latency_bounds_ms) = (api.clock.wall(), LATENCY_BOUNDS_MS);
    Ok(ok(&RecentStats { now, since, latency_bounds_ms, minutes, subscriptions, left_out }))
}
