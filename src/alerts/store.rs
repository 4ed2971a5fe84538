//! Tables `alert_channels` and `alerts`: where escalations are told, and what was told.

use serde_json::json;

use crate::alerts::channel::{AlertChannelKind, Channel, Counted, Due, Told};
use crate::alerts::message::{self, Affected, MAX_COUNTED};
use crate::base::clock::{Timestamp, millis};
use crate::base::id::{self, SubscriptionSeq};
use crate::model::escalation::{CALM_AFTER, Class, Severity};
use crate::model::event::{ALERT_TYPE, NewEvent, OWN_SOURCE};
use crate::store::column::{Json, words};
use crate::store::error::Result;
use crate::store::sql::{changes, columns, in_order, insert, queries};
use crate::store::tx::{ReadTx, WriteTx, tuple};
use crate::store::{escalations, outbox, settlement, subscriptions};

words! {
    AlertChannelKind;
}

/// Escalations that a channel is told of in one transaction.
const MAX_DUE: u32 = 200;
/// Deliveries that are cancelled when a channel is deleted.
pub const MAX_CANCELLED: u32 = 1000;

columns! {
    fn channel() -> Channel = "alert_channels" [
        seq, id, tenant, name, kind, subscription_seq, terms as Json(terms), counted_from, message_count, created_at,
        updated_at
    ] {
        seq, id, tenant, name, kind, subscription: subscription_seq, terms,
        counted: Counted { from: counted_from, messages: message_count }, created_at, updated_at
    }
    /// A channel by its name.
    pub fn find(tenant: &str, name: &str) -> Option =
        "WHERE deleted_at IS NULL AND tenant = ?1 AND name = ?2";
    /// Channels by number, after `after`.
    pub fn page(tenant: &str, after: i64, limit: u32) -> Vec =
        "WHERE deleted_at IS NULL AND tenant = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3";
    const LIVE = "WHERE deleted_at IS NULL ORDER BY seq LIMIT 10000";
}

const UPDATE: &str = "
    UPDATE alert_channels
       SET terms = ?2, sealed = coalesce(?3, sealed), master_key_id = coalesce(?4, master_key_id),
           updated_at = ?5
     WHERE seq = ?1 AND deleted_at IS NULL";

const DELETE: &str = "
    UPDATE alert_channels SET deleted_at = ?2, updated_at = ?2
     WHERE seq = ?1 AND deleted_at IS NULL";

// An alert is in no lane, so that each is the head of its own.
const UNFINISHED: &str = "
    SELECT seq FROM deliveries
     WHERE subscription_seq = ?1 AND state = 'pending' AND head = 1
     UNION ALL
    SELECT seq FROM deliveries
     WHERE (state = 'dead_letter' OR state = 'parked' OR state = 'in_doubt' OR state = 'waiting' OR state = 'leased')
       AND subscription_seq = ?1
     LIMIT ?2";

const IS_FAILING: &str = "
    SELECT EXISTS (SELECT 1 FROM escalations
                    WHERE tenant = ?1 AND subject = ?2 AND resolved_at IS NULL)";

// The critical ones in ?6 come first: quiet hours let them alone pass. Those in ?3 are about channels. Served by the partial index of those that are open.
const NEW: &str = "
    SELECT e.seq FROM escalations AS e
     WHERE e.resolved_at IS NULL AND e.acknowledged_at IS NULL AND (?4 IS NULL OR e.tenant = ?4)
       AND e.class IN (SELECT value FROM json_each(?2))
       AND NOT EXISTS (SELECT 1 FROM json_each(?3) WHERE value = e.tenant || '/' || e.subject)
       AND NOT EXISTS (SELECT 1 FROM alerts WHERE channel_seq = ?1 AND escalation_seq = e.seq)
     ORDER BY e.class NOT IN (SELECT value FROM json_each(?6)), e.seq LIMIT ?5";

// A delivery that was given up fails no more, which is no good news: that is told once the dead letters are gone. One that
// was told later than can be was told before the clock was set back. The end of one that was reopened is told when
// it cannot be reopened any more (?7). If it is open, it is told again, so long after it was told last.
const TOLD: &str = "
    SELECT e.seq, a.told_at FROM alerts AS a
      JOIN escalations AS e ON e.seq = a.escalation_seq
     WHERE a.channel_seq = ?1
       AND ((e.resolved_at IS NOT NULL
             AND NOT (e.class = 'delivery.failing' AND EXISTS (SELECT 1 FROM escalations AS d
                       WHERE d.tenant = e.tenant AND d.class = 'delivery.dead_lettered' AND d.subject = e.subject
                         AND d.resolved_at IS NULL))
             AND (e.reopened_at IS NULL OR e.resolved_at <= ?3 - ?7 OR e.resolved_at > ?3))
            OR (e.resolved_at IS NULL AND e.acknowledged_at IS NULL
                AND ((?4 IS NOT NULL AND (a.told_at <= ?3 - ?4 OR a.told_at > ?3 + ?4))
                     OR (a.told_at < e.reopened_at AND a.told_at <= ?3 - ?7))))
       AND NOT EXISTS (SELECT 1 FROM json_each(?2) WHERE value = e.tenant || '/' || e.subject)
     ORDER BY e.class NOT IN (SELECT value FROM json_each(?6)), e.seq LIMIT ?5";

const AFFECTED: &str = "
    SELECT (SELECT count(*) FROM (SELECT 1 FROM deliveries
             WHERE subscription_seq = s.seq AND state = 'dead_letter' LIMIT ?3)),
           (SELECT count(*) FROM (SELECT 1 FROM deliveries
             WHERE subscription_seq = s.seq AND state = 'pending' AND head = 1 LIMIT ?3))
         + (SELECT count(*) FROM (SELECT 1 FROM deliveries
             WHERE subscription_seq = s.seq AND state = 'pending' AND head = 0 LIMIT ?3))
      FROM subscriptions AS s
     WHERE s.tenant = ?1 AND s.name = ?2 AND s.deleted_at IS NULL";

const KEEP: &str = "
    INSERT INTO alerts (channel_seq, escalation_seq, told, told_at) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT (channel_seq, escalation_seq) DO UPDATE
       SET told = excluded.told, told_at = excluded.told_at";

const DROP: &str = "DELETE FROM alerts WHERE channel_seq = ?1 AND escalation_seq = ?2";

const COUNT: &str =
    "UPDATE alert_channels SET counted_from = ?2, message_count = ?3 WHERE seq = ?1";

queries! {
    /// How many e-mails of a tenant are to be sent before a time, counted up to `limit`.
    pub fn pending_mails(tenant: &str, before: Timestamp, limit: u32) -> u32 = value "
    SELECT count(*)
      FROM (SELECT 1 FROM alert_channels AS c JOIN deliveries AS d ON d.subscription_seq = c.subscription_seq
             WHERE c.tenant = ?1 AND c.kind = 'email' AND c.deleted_at IS NULL
               AND d.state = 'pending' AND d.head = 1 AND d.due_at < ?2
             LIMIT ?3)";

    /// The id and the sealed URL of the channel of a subscription; `None` if it has no such URL.
    pub fn sealed_url(of: SubscriptionSeq) -> Option<(String, Vec<u8>)> = first as tuple "
    SELECT id, sealed FROM alert_channels
     WHERE subscription_seq = ?1 AND deleted_at IS NULL AND sealed IS NOT NULL";

    /// Ids and sealed URLs that another key has sealed.
    pub fn sealed_otherwise(key: &str, limit: u32) -> Vec<(String, Vec<u8>)> = rows as tuple
        "SELECT id, sealed FROM alert_channels WHERE master_key_id <> ?1 LIMIT ?2";
}

changes! {
    /// Replaces a sealed URL by the same one, sealed by another key.
    pub fn reseal(id: &str, sealed: &[u8], key: &str) of "the alert channel" = "
    UPDATE alert_channels SET sealed = ?2, master_key_id = ?3
     WHERE id = ?1 AND master_key_id <> ?3";
}

/// What a channel's URL is bound to when it is sealed.
pub fn context(channel_id: &str) -> String {
    format!("alert_channels|{channel_id}|sealed")
}

/// A sealed URL, and the key that sealed it.
pub type SealedUrl = (Vec<u8>, String);

/// Stores a channel; its subscription is there. Its name is free if that of the subscription was.
pub fn insert(tx: &WriteTx<'_>, new: &Channel, sealed: Option<&SealedUrl>) -> Result<()> {
    insert!(tx, "alert_channels" of new {
        id, tenant, name, kind, subscription_seq: new.subscription, terms: Json(&new.terms),
        sealed: sealed.map(|(sealed, _)| sealed), master_key_id: sealed.map(|(_, key)| key), created_at,
        updated_at: new.created_at
    })
    .map(drop)
}

/// Every channel that can be read, of all tenants.
pub fn live(tx: &ReadTx<'_>) -> Result<Vec<Channel>> {
    let found = tx.rows(LIVE, [], |row| Ok(channel(row)))?;
    let readable = found.into_iter().filter_map(|channel| {
        channel.inspect_err(|error| tracing::error!(%error, "an alert channel cannot be read")).ok()
    });
    Ok(readable.collect())
}

/// Changes the terms, and the sealed URL if there is a new one.
/// Fails with `Changed` when it was deleted meanwhile.
pub fn update(
    tx: &WriteTx<'_>,
    changed: &Channel,
    sealed: Option<&SealedUrl>,
    now: Timestamp,
) -> Result<()> {
    let (sealed, key) = sealed.map(|(sealed, key)| (sealed, key)).unzip();
    let row = (changed.seq, Json(&changed.terms), sealed, key, now);
    tx.change_one(UPDATE, row, "the alert channel")
}

/// Deletes a channel and its subscription, cancels what is not delivered, and resolves the escalations about it.
/// Returns the ids of the revoked credentials, or `None`, and changes nothing, if more than [`MAX_CANCELLED`] deliveries are open or dead.
pub fn delete(tx: &WriteTx<'_>, gone: &Channel, now: Timestamp) -> Result<Option<Vec<String>>> {
    let key = (gone.subscription, MAX_CANCELLED + 1);
    let open = tx.list(UNFINISHED, key)?;
    if open.len() > usize::try_from(MAX_CANCELLED).unwrap_or(usize::MAX) {
        return Ok(None);
    }
    for delivery in open {
        settlement::cancel(tx, delivery, "its alert channel was deleted", now)?;
    }
    for class in Class::ALL {
        escalations::resolve(tx, &gone.tenant, class, &gone.subject(), now)?;
    }
    tx.execute("DELETE FROM alerts WHERE channel_seq = ?1", [gone.seq])?;
    let revoked = subscriptions::delete(tx, gone.subscription, now)?;
    tx.change_one(DELETE, (gone.seq, now), "the alert channel")?;
    Ok(Some(revoked))
}

/// What a channel is to be told, at most [`MAX_DUE`] things: none about the channel itself and, while it fails itself,
/// none about other channels. So channels that fail cannot go on telling each other.
pub fn due(
    tx: &ReadTx<'_>,
    channel: &Channel,
    all: &[Channel],
    repeat_after: Option<std::time::Duration>,
    now: Timestamp,
) -> Result<Vec<Due>> {
    let key = (&channel.tenant, channel.subject());
    let is_failing: bool = tx.value(IS_FAILING, key)?;
    let left_out = all.iter().filter(|other| is_failing || other.seq == channel.seq);
    let left_out: Vec<String> =
        left_out.map(|other| format!("{}/{}", other.tenant, other.subject())).collect();
    let left_out = json!(left_out).to_string();
    let classes: Vec<&str> = channel.terms.wanted().into_iter().map(Class::as_str).collect();
    let tenant = Some(&channel.tenant).filter(|_| !channel.terms.all_tenants);
    let critical = Class::ALL.into_iter().filter(|class| class.severity() == Severity::Critical);
    let critical = json!(critical.map(Class::as_str).collect::<Vec<_>>()).to_string();
    let key = (channel.seq, json!(classes).to_string(), &left_out, tenant, MAX_DUE, &critical);
    let mut due = Vec::new();
    for seq in tx.list(NEW, key)? {
        let Some(escalation) = escalations::by_seq(tx, seq)? else { continue };
        // It may be older than the channel, or than its terms.
        let since = escalation.reopened_at.unwrap_or(escalation.first_at).max(channel.updated_at);
        due.push(Due { escalation, told: Told::Raised, since });
    }
    let calm_after = millis(CALM_AFTER);
    let repeat = repeat_after.map(millis);
    let key = (channel.seq, &left_out, now, repeat, MAX_DUE, &critical, calm_after);
    for (seq, told_at) in tx.rows(TOLD, key, tuple::<(i64, Timestamp)>)? {
        let Some(escalation) = escalations::by_seq(tx, seq)? else { continue };
        let repeat_at = told_at.plus(repeat_after.unwrap_or(CALM_AFTER)).min(now);
        let told = if escalation.resolved_at.is_some() { Told::Resolved } else { Told::Repeated };
        let since = escalation.resolved_at.unwrap_or(repeat_at);
        due.push(Due { escalation, told, since });
    }
    due.sort_by_key(|one| std::cmp::Reverse(one.severity()));
    due.truncate(usize::try_from(MAX_DUE).unwrap_or(usize::MAX));
    Ok(due)
}

/// How many deliveries of its subscription an open escalation is about.
fn affected(tx: &ReadTx<'_>, due: &Due) -> Result<Affected> {
    let new = &due.escalation.new;
    match new.subject.strip_prefix("subscription:").filter(|_| !due.is_over()) {
        Some(name) => {
            let read = in_order!(Affected { dead, waiting });
            Ok(tx.first(AFFECTED, (&new.tenant, name, MAX_COUNTED), read)?.unwrap_or_default())
        }
        None => Ok(Affected::default()),
    }
}

/// Stores messages as events, and what was told with them. `at` is the wall's time, `now` the schedule's.
pub fn tell(
    tx: &WriteTx<'_>,
    channel: &Channel,
    messages: &[Vec<Due>],
    at: Timestamp,
    now: Timestamp,
) -> Result<()> {
    for message in messages {
        let Some(head) = message.first() else { continue };
        let count = head.escalation.count.to_string();
        let parts = [&channel.id, &head.escalation.new.id, head.told.as_str(), &count];
        let id = id::uuid7_of(at, &parts);
        let affected = message.iter().take(message::MAX_LISTED).map(|due| affected(tx, due));
        let affected = affected.collect::<Result<Vec<_>>>()?;
        let payload = message::payload(channel, message, &affected);
        send(tx, channel, &id, payload, at, now)?;
        for Due { escalation, told, .. } in message {
            match told {
                Told::Raised | Told::Repeated => {
                    tx.execute(KEEP, (channel.seq, escalation.seq, told.as_str(), at))
                }
                Told::Resolved => tx.execute(DROP, (channel.seq, escalation.seq)),
            }?;
        }
    }
    let Counted { from, messages: before } = channel.counted.at(at);
    let counted = messages.iter().filter(|message| !message.iter().all(Due::is_over)).count();
    let count = before.saturating_add(u32::try_from(counted).unwrap_or(u32::MAX));
    tx.execute(COUNT, (channel.seq, from, count)).map(drop)
}

/// Stores one message as an event for the channel's subscription. `at` is the wall's time, `now` the schedule's.
pub fn send(
    tx: &WriteTx<'_>,
    channel: &Channel,
    id: &str,
    payload: Vec<u8>,
    at: Timestamp,
    now: Timestamp,
) -> Result<()> {
    let new = NewEvent {
        id: id.to_owned(),
        tenant: channel.tenant.clone(),
        source_system: OWN_SOURCE.to_owned(),
        idempotency_key: id.to_owned(),
        event_type: ALERT_TYPE.to_owned(),
        target: Some(Channel::subscription_name(channel.name.as_str())),
        payload,
        content_type: "application/json".to_owned(),
        received_at: at,
        ..NewEvent::default()
    };
    outbox::insert(tx, &new, now).map(drop)
}
