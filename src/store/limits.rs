//! How much a tenant may have: rows of each kind, and bytes of the terms in them (`[tenants]` in the settings).
//!
//! Counted before and after each change of such a row, in its transaction. A tenant that is over a limit may change and
//! delete, but not grow. The terms of all tenants together have a limit as well, of which a tenant may have a fair share
//! ([`crate::base::fair`]): whatever one tenant stores, something is left for the next. At the start the subscriptions
//! beyond a limit are paused, and an escalation says so.

use std::collections::BTreeMap;

use crate::base::fair;
use crate::config::Tenants;
use crate::model::escalation::{Class, NewEscalation};
use crate::store::column::Count;
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

/// Sums the bytes of the terms of a tenant (`"tenant = ?1"`), or of all, without those of subscriptions: the writer knows
/// them.
macro_rules! terms {
    ($whose:literal) => {
        concat!(
            "SELECT coalesce(sum(bytes), 0)
               FROM (SELECT octet_length(scheme) + octet_length(pii) AS bytes
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

/// Live subscriptions, the oldest first, with the bytes of their terms.
const SIZES: &str = "
    SELECT seq, tenant, state = 'ACTIVE',
           octet_length(event_types) + octet_length(url) + octet_length(headers) + octet_length(policy)
           + octet_length(event_headers) + octet_length(order_terms)
           + coalesce(octet_length(filter), 0) + coalesce(octet_length(template), 0)
      FROM subscriptions
     WHERE deleted_at IS NULL
     ORDER BY seq
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

/// The limits of what an action may add to. Others, such as a pause, count nothing.
fn counted(action: &str) -> impl Iterator<Item = &'static Limit> {
    let (noun, verb) = action.split_once('.').unwrap_or_default();
    let noun = if matches!(verb, "create" | "change" | "set") { noun } else { "-" };
    let is_one = LIMITS.iter().any(|limit| limit.action == noun);
    LIMITS.iter().filter(move |limit| limit.action == noun || (is_one && limit.action.is_empty()))
}

fn count(tx: &WriteTx<'_>, tenant: &str, limit: &Limit) -> Result<u64> {
    let counted = tx.count(limit.count, [tenant])?;
    if limit.count != TERMS {
        return Ok(counted);
    }
    let own = subscriptions::routes(tx)?.of(tenant).facts().bytes;
    Ok(counted.saturating_add(own))
}

/// The bytes of the terms of all tenants. Those without subscriptions are counted again only after one has changed.
fn count_all(tx: &WriteTx<'_>) -> Result<u64> {
    let other = match tx.other_terms().get() {
        Some(known) => known,
        None => tx.count(ALL_TERMS, [])?,
    };
    tx.other_terms().set(Some(other));
    Ok(other.saturating_add(subscriptions::routes(tx)?.facts().bytes))
}

/// What a tenant has of what an action may add to.
pub fn before(tx: &WriteTx<'_>, tenant: &str, action: &str) -> Result<Before> {
    counted(action).map(|limit| count(tx, tenant, limit)).collect::<Result<_>>().map(Before)
}

/// Fails with `OverLimit` if the action has made a tenant grow beyond a limit.
pub fn check(
    tx: &WriteTx<'_>,
    tenant: &str,
    action: &str,
    limits: &Tenants,
    Before(before): &Before,
) -> Result<()> {
    for (limit, before) in counted(action).zip(before) {
        let have = count(tx, tenant, limit)?;
        let most = (limit.most)(limits);
        if have > u64::from(most) && have > *before {
            let Limit { setting, what, .. } = *limit;
            return Err(Error::OverLimit { what, have, most, setting });
        }
        if limit.count == TERMS && have > *before {
            check_all(tx, have, limits)?;
        }
    }
    Ok(())
}

/// Fails with `OverLimit` if the terms of all tenants together are beyond their limit, or those of this tenant, which has
/// `own` bytes, are beyond its share.
fn check_all(tx: &WriteTx<'_>, own: u64, limits: &Tenants) -> Result<()> {
    let all = count_all(tx)?;
    let most = limits.all_terms_bytes_max;
    let setting = "all_terms_bytes_max";
    let Some(free) = u64::from(most).checked_sub(all) else {
        let what =
            "bytes of filters, templates, policies and schemas with those of all other tenants";
        return Err(Error::OverLimit { what, have: all, most, setting });
    };
    if fair::may_keep(own, free) {
        return Ok(());
    }
    let what = "bytes of filters, templates, policies and schemas, more than this tenant's share of what is left";
    Err(Error::OverLimit { what, have: own, most, setting })
}

/// A live subscription and the bytes of its terms.
struct Size {
    seq: SubscriptionSeq,
    tenant: String,
    is_active: bool,
    bytes: u64,
}

/// The active subscriptions that are beyond a limit. Of each tenant the oldest stay. Where all together are too large,
/// each tenant keeps an equal share, and what is left goes to the oldest.
fn beyond(sizes: Vec<Size>, limits: &Tenants) -> Vec<(SubscriptionSeq, String)> {
    let mut own = BTreeMap::<String, (u32, u64)>::new();
    let mut fits_own = |size: &Size| {
        let (number, bytes) = own.entry(size.tenant.clone()).or_default();
        *number = number.saturating_add(1);
        *bytes = bytes.saturating_add(size.bytes);
        *number <= limits.subscriptions_max && *bytes <= u64::from(limits.terms_bytes_max)
    };
    let (within, mut beyond): (Vec<Size>, Vec<Size>) = sizes.into_iter().partition(&mut fits_own);
    let mut wanted = BTreeMap::<&str, u64>::new();
    for size in &within {
        let wanted = wanted.entry(&size.tenant).or_default();
        *wanted = wanted.saturating_add(size.bytes);
    }
    let mut room = u64::from(limits.all_terms_bytes_max);
    let share = fair::equal_share(wanted.into_values().collect(), room);
    let mut kept = BTreeMap::<String, u64>::new();
    let mut fits_share = |size: &Size| {
        let kept = kept.entry(size.tenant.clone()).or_default();
        *kept = kept.saturating_add(size.bytes);
        *kept <= share
    };
    let (shared, rest): (Vec<Size>, Vec<Size>) = within.into_iter().partition(&mut fits_share);
    room = room.saturating_sub(shared.iter().map(|size| size.bytes).sum());
    for size in rest {
        match room.checked_sub(size.bytes) {
            Some(left) => room = left,
            None => beyond.push(size),
        }
    }
    let active = beyond.into_iter().filter(|size| size.is_active);
    active.map(|size| (size.seq, size.tenant)).collect()
}

/// Pauses the active subscriptions that are beyond their tenant's limits, and raises an escalation for each such tenant.
/// Returns how many it paused.
pub fn pause_beyond(
    tx: &WriteTx<'_>,
    limits: &Tenants,
    now: Timestamp,
    new_id: impl Fn() -> String,
) -> Result<usize> {
    let most = limits.subscriptions_max;
    let bytes = limits.terms_bytes_max;
    let all_bytes = limits.all_terms_bytes_max;
    let sizes = tx.rows(SIZES, [], |row| {
        let Count(bytes) = row.get(3)?;
        Ok(Size { seq: row.get(0)?, tenant: row.get(1)?, is_active: row.get(2)?, bytes })
    })?;
    let beyond = beyond(sizes, limits);
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
        let subject = format!("tenant:{tenant}");
        let tenant = tenant.to_owned();
        let class = Class::TenantOverLimit;
        let new = NewEscalation { id: new_id(), tenant, class, subject, detail };
        escalations::raise(tx, &new, now)?;
    }
    Ok(beyond.len())
}
