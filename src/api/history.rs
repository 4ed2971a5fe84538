//! `/v1/subscriptions/{id}/history` and `/v1/providers/{name}/history`: the last 90 days, or the hours of a day.

use crate::api::prelude::*;
use crate::api::{providers, subscriptions};
use crate::model::history::{DAY_MS, DAYS, HOUR_MS, HourCounts, Subject};
use crate::store::{history, runs};

const DAY: Param =
    Param::query::<DayText>("day", "The hours of this day (UTC), not the days.", "2026-01-31");
const ABOUT: &str = "Counted by hour and kept for 90 days. `p50_ms` and `p95_ms` come from buckets and are wrong by at \
                     most 21 %. A kill loses the minute that runs. The whole service keeps 20,000 days of \
                     subscriptions and providers; the tenant with the most loses its oldest.";

/// Histories.
pub(super) const RESOURCE: Resource = Resource {
    tag: "History",
    about: "What happened by day and by hour: volume, failures and durations.",
    routes: &[
        get("/v1/subscriptions/{id}/history", Read, Listed(of_subscription))
            .doc(
                "getSubscriptionHistory",
                "Show the history of a subscription",
                &[subscriptions::ID, DAY],
            )
            .about(ABOUT)
            .returns(&[Returns::json::<History>(200, "Its attempts, the oldest first.")]),
        get("/v1/providers/{name}/history", Read, Listed(of_provider))
            .doc("getProviderHistory", "Show the history of a provider", &[providers::NAME, DAY])
            .about(ABOUT)
            .returns(&[Returns::json::<History>(200, "Its requests, the oldest first.")]),
    ],
};

/// Days, or hours of a day. Those that have not begun are absent.
#[derive(Serialize, JsonSchema)]
struct History {
    items: Vec<HistoryItem>,
}

/// What happened in a day or an hour.
#[derive(Serialize, JsonSchema)]
struct HistoryItem {
    /// When it began.
    at: Timestamp,
    /// In how many minutes of it the service ran and counted. 0: nothing is known.
    minutes: u64,
    /// Attempts, or requests of a provider.
    total: u32,
    /// Attempts that failed, or requests that were refused or could not be stored.
    failed: u32,
    /// How long half of the requests to the target took at most; null if there was none.
    p50_ms: Option<u32>,
    /// How long 95 % of them took at most.
    p95_ms: Option<u32>,
}

fn of_subscription(api: &Api, call: &Call) -> Result<Response, Problem> {
    show(api, call, Subject::Subscription(subscriptions::find(api, call)?.seq))
}

fn of_provider(api: &Api, call: &Call) -> Result<Response, Problem> {
    show(api, call, Subject::Provider(providers::find(api, call)?.seq))
}

fn show(api: &Api, call: &Call, of: Subject) -> Result<Response, Problem> {
    let midnight = |text: &str| Timestamp::parse(&format!("{text}T00:00:00Z"));
    let day = call.query.word("day", midnight)?.map(|day| day.ms().div_euclid(DAY_MS));
    let now = api.env.clock.wall();
    let today = now.ms().div_euclid(DAY_MS);
    let first = day.unwrap_or_else(|| today.saturating_sub(DAYS - 1));
    let last = day.unwrap_or(today);
    let start = |day: i64| Timestamp::from_ms(day.saturating_mul(DAY_MS));
    let (days, coverage) = lists::read(api, call, |tx| {
        Ok((history::days(tx, of, first, last)?, runs::coverage(tx, start(first), now)?))
    })?;
    let item = |at: Timestamp, span: i64, counts: HourCounts| {
        let end = Timestamp::from_ms(at.ms().saturating_add(span)).min(now);
        let minutes = coverage.within(at, end).as_secs() / 60;
        let p50_ms = counts.percentile(50);
        let p95_ms = counts.percentile(95);
        HistoryItem { at, minutes, total: counts.total, failed: counts.failed, p50_ms, p95_ms }
    };
    let stored = |day: i64| days.get(&day).cloned().unwrap_or_default();
    let items: Vec<HistoryItem> = match day {
        None => (first..=last).map(|day| item(start(day), DAY_MS, stored(day).sum())).collect(),
        Some(day) => {
            let hour = |hour: u8| {
                let at = start(day).ms().saturating_add(i64::from(hour).saturating_mul(HOUR_MS));
                let counts = stored(day).0.get(&hour).cloned().unwrap_or_default();
                item(Timestamp::from_ms(at), HOUR_MS, counts)
            };
            (0..24).map(hour).filter(|item| item.at <= now).collect()
        }
    };
    Ok(ok(&History { items }))
}
