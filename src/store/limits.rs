//! How much a tenant may have: rows of each kind, and bytes of the terms in them (`[tenants]` in the settings).
//!
//! Counted before and after each change of such a row, in its transaction. A tenant that is over a limit may change and
//! delete, but not grow. The terms of all tenants together have a limit as well. At the start the subscriptions beyond a limit are paused, and an escalation says so.

use std::collections::BTreeMap;

use crate::config::Tenants;
use crate::model::escalation::{Class, NewEscalation};
use crate::store::prelude::*;
use crate::store::{escalations, settlement, subscriptions};

/// Counts the rows of a kind of a tenant.
macro_rules! count {
    ($from:literal) => {
        concat!("SELECT count(*) FROM ", $from, " IS NULL AND tenant = ?1")
    };
}

const SUBSCRIPTIONS: &str = count!("subscriptions WHERE deleted_at");
const PROVIDERS: &str = count!("providers WHERE deleted_at");
const SOURCES: &str = count!("sources WHERE deleted_at");
const CHANNELS: &str = count!("alert_channels WHERE deleted_at");
const TOKENS: &str = count!("tokens WHERE revoked_at");
const USERS: &str = count!("users WHERE deleted_at");
const EVENT_TYPES: &str = "SELECT count(*) FROM event_types WHERE tenant = ?1";

/// Sums the bytes of the terms of a tenant (`"tenant = ?1"`), or of all.
macro_rules! terms {
    ($whose:literal) => {
        concat!(
            "SELECT coalesce(sum(bytes), 0)
               FROM (SELECT octet_length(event_types) + octet_length(url) + octet_length(headers) + octet_length(policy)
                            + octet_length(event_headers) + octet_length(order_terms)
                            + coalesce(octet_length(filter), 0) + coalesce(octet_length(template), 0) AS bytes
                       FROM subscriptions
                      WHERE deleted_at IS NULL AND ", $whose, "
                      UNION ALL
                     SELECT octet_length(scheme) + octet_length(pii)
                       FROM providers
                      WHERE deleted_at IS NULL AND ", $whose, "
                      UNION ALL
                     SELECT octet_length(settings)
                       FROM sources
                      WHERE deleted_at IS NULL AND ", $whose, "
                      UNION ALL
                     SELECT octet_length(description) + octet_length(schema) + coalesce(octet_length(example), 0)
                       FROM event_types
                      WHERE ", $whose, ")"
        )
    };
}

const TERMS: &str = terms!("tenant = ?1");
const ALL_TERMS: &str = terms!("true");

// Those that are beyond a limit in the order in which they were made, and not paused.
const BEYOND: &str = "
    SELECT seq, tenant
      FROM (SELECT seq, tenant, state, row_number() OVER own AS number, sum(bytes) OVER own AS bytes,
                   sum(bytes) OVER (ORDER BY seq) AS all_bytes
              FROM (SELECT seq, tenant, state,
                           octet_length(event_types) + octet_length(url) + octet_length(headers) + octet_length(policy)
                           + octet_length(event_headers) + octet_length(order_terms)
                           + coalesce(octet_length(filter), 0) + coalesce(octet_length(template), 0) AS bytes
                      FROM subscriptions
                     WHERE deleted_at IS NULL)
            WINDOW own AS (PARTITION BY tenant ORDER BY seq))
     WHERE (number > ?1 OR bytes > ?2 OR all_bytes > ?3)
       AND state = 'ACTIVE'
     LIMIT 100000";

/// One limit.
struct Limit {
    /// The first word of the actions that are counted; empty: of any that is.
    action: &'static str,
    setting: &'static str,
    what: &'static str,
    most: fn(&Tenants) -> u32,
    count: &'static str,
}

/// Makes [`LIMITS`] of a table: action, setting, what it is of, statement.
macro_rules! limits {
    ($($action:literal $setting:ident $what:literal $count:ident;)*) => {
        const LIMITS: &[Limit] = &[$(Limit {
            action: $action,
            setting: stringify!($setting),
            what: $what,
            most: |limits| limits.$setting,
            count: $count,
        }),*];
    };
}

limits! {
    "subscription" subscriptions_max "subscriptions" SUBSCRIPTIONS;
    "event_type" event_types_max "event types" EVENT_TYPES;
    "provider" providers_max "providers" PROVIDERS;
    "source" sources_max "sources" SOURCES;
    "alert_channel" channels_max "alert channels" CHANNELS;
    "token" tokens_max "tokens" TOKENS;
    "user" users_max "users" USERS;
    "" terms_bytes_max "bytes of filters, templates, policies and schemas" TERMS;
}

/// What a tenant has before a change.
#[derive(Debug)]
pub struct Before(Vec<u64>);

fn counted(action: &str) -> impl Iterator<Item = &'static Limit> {
    let noun = action.split('.').next().unwrap_or_default();
    let is_one = LIMITS.iter().any(|limit| limit.action == noun);
    LIMITS.iter().filter(move |limit| limit.action == noun || (is_one && limit.action.is_empty()))
}

fn count(tx: &ReadTx<'_>, tenant: &str, limit: &Limit) -> Result<u64> {
    tx.count(limit.count, [tenant])
}

/// What a tenant has of what an action may add to.
pub fn before(tx: &ReadTx<'_>, tenant: &str, action: &str) -> Result<Before> {
    counted(action).map(|limit| count(tx, tenant, limit)).collect::<Result<_>>().map(Before)
}

/// Fails with `OverLimit` if the action has made a tenant grow beyond a limit.
pub fn check(
    tx: &ReadTx<'_>,
    (tenant, action): (&str, &str),
    limits: &Tenants,
    Before(before): &Before,
) -> Result<()> {
    for (limit, before) in counted(action).zip(before) {
        let (have, most) = (count(tx, tenant, limit)?, (limit.most)(limits));
        if have > u64::from(most) && have > *before {
            let Limit { setting, what, .. } = *limit;
            return Err(Error::OverLimit { what, have, most, setting });
        }
        if limit.count == TERMS && have > *before {
            check_all(tx, limits)?;
        }
    }
    Ok(())
}

/// Fails with `OverLimit` if the terms of all tenants together are beyond their limit.
fn check_all(tx: &ReadTx<'_>, limits: &Tenants) -> Result<()> {
    let have = tx.count(ALL_TERMS, [])?;
    let (most, setting) = (limits.all_terms_bytes_max, "all_terms_bytes_max");
    if have <= u64::from(most) {
        return Ok(());
    }
    let what = "bytes of filters, templates, policies and schemas with those of all other tenants";
    Err(Error::OverLimit { what, have, most, setting })
}

/// Pauses the active subscriptions that are beyond their tenant's limits, and raises an escalation for each such tenant.
/// Returns how many it paused.
pub fn pause_beyond(
    tx: &WriteTx<'_>,
    limits: &Tenants,
    now: Timestamp,
    new_id: impl Fn() -> String,
) -> Result<usize> {
    let (most, bytes) = (limits.subscriptions_max, limits.terms_bytes_max);
    let all_bytes = limits.all_terms_bytes_max;
    let beyond: Vec<(SubscriptionSeq, String)> =
        tx.rows(BEYOND, (most, bytes, all_bytes), tuple)?;
    let why = "beyond tenants.subscriptions_max, terms_bytes_max or all_terms_bytes_max";
    let mut by_tenant = BTreeMap::<&str, usize>::new();
    for (seq, tenant) in &beyond {
        if let Some(found) = subscriptions::by_seq(tx, *seq)? {
            settlement::pause(tx, &found, why, now)?;
            let count = by_tenant.entry(tenant).or_default();
            *count = count.saturating_add(1);
        }
    }
    for (tenant, count) in by_tenant {
        let detail = format!(
            "{count} subscriptions were paused at the start: they are {why} ({most}, {bytes} and {all_bytes}). Delete some or raise \
             the setting, then resume them: oncebox subscription resume"
        );
        let (tenant, subject) = (tenant.to_owned(), format!("tenant:{tenant}"));
        let class = Class::TenantOverLimit;
        let new = NewEscalation { id: new_id(), tenant, class, subject, detail };
        escalations::raise(tx, &new, now)?;
    }
    Ok(beyond.len())
}
