//! Finds events, webhook events, deliveries, subscriptions, providers and sources by a text that a person has: an id, a
//! key, a type, a name.
//!
//! Each field is a statement that seeks in an index, or reads at most the newest 5,000 rows where there is none. So
//! the work is bounded, however many rows there are. A whole `webhook-id` is a digest without an index: it is compared
//! with the identities of all events, which only an index is read for, until the caller's time is over.

use rusqlite::{ToSql, params};
use schemars::JsonSchema;
use serde::Serialize;

use crate::base::schema::values;
use crate::base::words::words;
use crate::model::delivery::Delivery;
use crate::model::event::OWN_SOURCE;
use crate::model::name::DEFAULT_TENANT;
use crate::store::delivery_lists;
use crate::store::prelude::*;

/// The most hits of a field. Statements ask for one more, to see whether there are more.
const MAX_HITS: usize = 20;
/// The most source systems, or providers, that are looked in. The statement lists one more.
const MAX_SEARCHED_SOURCES: usize = 50;
/// The fewest characters of the beginning of a value.
const MIN_PREFIX: usize = 2;
/// The fewest characters of the beginning of a UUID: all that are made within weeks begin alike.
const MIN_UUID_PREFIX: usize = 8;
/// Follows every other character.
const LAST: char = '\u{10ffff}';

/// Selects what a hit is read from.
macro_rules! hits {
    ($value:literal, $from:expr, $rest:expr) => {
        sql!(
            "SELECT t.seq, t.id, " $value ", t.event_type, t.status, t.received_at FROM " $from
            " WHERE t.tenant = ?1 AND " $value " BETWEEN ?2 AND ?3 " $rest " LIMIT 21"
        )
    };
}

/// Hits by UUID. UUIDs of other tenants lie between, so the number of rows that are read is limited.
macro_rules! by_id {
    ($table:literal $($of:expr)?) => {
        hits!(
            "t.id",
            sql!(
                "(SELECT seq FROM " $table " WHERE id BETWEEN ?2 AND ?3 ORDER BY id DESC LIMIT 1000) AS n
              CROSS JOIN " $table " AS t ON t.seq = n.seq"
            ),
            sql!("" $($of)?)
        )
    };
}

/// Hits among the newest rows of a tenant, which an index finds.
macro_rules! newest {
    ($limit:literal of $table:literal where $of:literal, $value:literal $(, $own:expr)?) => {
        hits!(
            $value,
            sql!(
                "(SELECT seq FROM " $table " WHERE " $of " ORDER BY seq DESC LIMIT " $limit ") AS n
              CROSS JOIN " $table " AS t ON t.seq = n.seq"
            ),
            sql!("" $($own)?)
        )
    };
}

/// Operational events, or all others.
macro_rules! own {
    () => {
        "AND (t.source_system = 'oncebox') = ?4"
    };
}

/// The names of a tenant's source systems or providers, each found by one seek.
macro_rules! sources {
    ($table:literal, $source:literal) => {
        sql!(
            "WITH RECURSIVE sources (name) AS (
                  SELECT min(" $source ") FROM " $table " WHERE tenant = ?1
                   UNION ALL
                  SELECT (SELECT min(t." $source ") FROM " $table " AS t
                           WHERE t.tenant = ?1 AND t." $source " > s.name)
                    FROM sources AS s WHERE s.name IS NOT NULL
                   LIMIT 51)
             SELECT name FROM sources WHERE name IS NOT NULL"
        )
    };
}

pub(super) const EVENTS_BY_ID: &str = by_id!("outbox" own!());
// Those that are not wanted lie between, so the number of rows that are read is limited.
pub(super) const EVENTS_OF_AGGREGATE: &str = hits!(
    "t.aggregate_id",
    "(SELECT seq FROM outbox INDEXED BY outbox_aggregate WHERE tenant = ?1 AND aggregate_id BETWEEN ?2 AND ?3
       ORDER BY aggregate_id DESC, seq DESC LIMIT 1000) AS n
     CROSS JOIN outbox AS t ON t.seq = n.seq",
    own!()
);
/// Of an aggregate of this type.
pub(super) const EVENTS_OF_PAIR: &str = hits!(
    "t.aggregate_id",
    "(SELECT seq FROM outbox INDEXED BY outbox_aggregate WHERE tenant = ?1 AND aggregate_id BETWEEN ?2 AND ?3
       ORDER BY aggregate_id DESC, seq DESC LIMIT 1000) AS n
     CROSS JOIN outbox AS t ON t.seq = n.seq",
    "AND t.source_system <> 'oncebox' AND t.aggregate_type = ?4 COLLATE NOCASE"
);
pub(super) const EVENTS_OF_PAYLOAD: &str = "
    SELECT t.seq, t.id, v.value, t.event_type, t.status, t.received_at
      FROM search_values AS v
     CROSS JOIN outbox AS t ON t.seq = v.outbox_seq
     WHERE v.tenant = ?1 AND v.value BETWEEN ?2 AND ?3
     ORDER BY v.value DESC, v.outbox_seq DESC LIMIT 21";
pub(super) const SOURCE_SYSTEMS: &str = sources!("outbox", "source_system");
pub(super) const EVENTS_OF_KEY: &str = hits!(
    "t.idempotency_key",
    "outbox AS t INDEXED BY outbox_identity",
    "AND t.source_system = ?5 ORDER BY t.idempotency_key DESC"
);
pub(super) const EVENTS_OF_WEBHOOK_ID: &str = hits!(
    "webhook_id(t.tenant, t.source_system, t.idempotency_key)",
    "outbox AS t NOT INDEXED",
    sql!("AND t.seq > (SELECT max(seq) FROM outbox) - 1000 " own!() " ORDER BY t.seq DESC")
);
pub(super) const EVENTS_OF_WEBHOOK_ID_OF_TENANT: &str = newest!(
    1000 of "outbox" where "tenant = ?1 AND tenant <> 'default'",
    "webhook_id(t.tenant, t.source_system, t.idempotency_key)", own!()
);
/// The event of any age with these bytes of a `webhook-id`.
pub(super) const EVENT_OF_IDENTITY: &str = "
    SELECT t.seq, t.id, webhook_id(t.tenant, t.source_system, t.idempotency_key), t.event_type, t.status, t.received_at,
           t.source_system = 'oncebox'
      FROM (SELECT seq FROM outbox INDEXED BY outbox_identity
             WHERE tenant = ?1 AND has_webhook_id(tenant, source_system, idempotency_key, ?2) LIMIT 1) AS n
     CROSS JOIN outbox AS t ON t.seq = n.seq";
/// As [`EVENT_OF_IDENTITY`], for a webhook event.
pub(super) const WEBHOOK_EVENT_OF_IDENTITY: &str = "
    SELECT t.seq, t.id, webhook_id(t.tenant, 'in:' || t.provider, t.provider_event_id), t.event_type, t.status,
           t.received_at, 0
      FROM (SELECT seq FROM webhook_events INDEXED BY webhook_events_identity
             WHERE tenant = ?1 AND has_webhook_id(tenant, 'in:' || provider, provider_event_id, ?2) LIMIT 1) AS n
     CROSS JOIN webhook_events AS t ON t.seq = n.seq";
/// Whether a tenant may have more events than those of which types are looked at.
pub(super) const HAS_MORE_EVENTS: &str = "
    SELECT CASE ?1
           WHEN 'default' THEN
                coalesce((SELECT max(seq) FROM outbox) - (SELECT min(seq) FROM outbox), 0) >= 5000
                OR coalesce((SELECT max(seq) FROM webhook_events) - (SELECT min(seq) FROM webhook_events), 0) >= 5000
           ELSE EXISTS (SELECT 1 FROM outbox WHERE tenant = ?1 AND tenant <> 'default' LIMIT 1 OFFSET 5000)
                OR EXISTS (SELECT 1 FROM webhook_events WHERE tenant = ?1 LIMIT 1 OFFSET 5000) END";
pub(super) const EVENTS_OF_TYPE: &str = hits!(
    "t.event_type",
    "outbox AS t NOT INDEXED",
    sql!("AND t.seq > (SELECT max(seq) FROM outbox) - 5000 " own!() " ORDER BY t.seq DESC")
);
pub(super) const EVENTS_OF_TYPE_OF_TENANT: &str = newest!(
    5000 of "outbox" where "tenant = ?1 AND tenant <> 'default'", "t.event_type", own!()
);
pub(super) const WEBHOOK_EVENTS_BY_ID: &str = by_id!("webhook_events");
pub(super) const PROVIDERS: &str = sources!("webhook_events", "provider");
pub(super) const WEBHOOK_EVENTS_OF_ID: &str = hits!(
    "t.provider_event_id",
    "webhook_events AS t INDEXED BY webhook_events_identity",
    "AND t.provider = ?5 ORDER BY t.provider_event_id DESC"
);
pub(super) const WEBHOOK_EVENTS_OF_WEBHOOK_ID: &str = hits!(
    "webhook_id(t.tenant, 'in:' || t.provider, t.provider_event_id)",
    "webhook_events AS t NOT INDEXED",
    "AND t.seq > (SELECT max(seq) FROM webhook_events) - 1000 ORDER BY t.seq DESC"
);
pub(super) const WEBHOOK_EVENTS_OF_WEBHOOK_ID_OF_TENANT: &str = newest!(
    1000 of "webhook_events" where "tenant = ?1",
    "webhook_id(t.tenant, 'in:' || t.provider, t.provider_event_id)"
);
pub(super) const WEBHOOK_EVENTS_OF_TYPE: &str = hits!(
    "t.event_type",
    "webhook_events AS t NOT INDEXED",
    "AND t.seq > (SELECT max(seq) FROM webhook_events) - 5000 ORDER BY t.seq DESC"
);
pub(super) const WEBHOOK_EVENTS_OF_TYPE_OF_TENANT: &str =
    newest!(5000 of "webhook_events" where "tenant = ?1", "t.event_type");

/// Hits among things with a name, of which a tenant has few.
macro_rules! named {
    ($table:literal, $id:literal, $value:literal, $status:literal) => {
        sql!(
            "SELECT seq, " $id ", " $value ", NULL, " $status ", created_at
               FROM " $table "
              WHERE tenant = ?1 AND deleted_at IS NULL AND " $value " BETWEEN ?2 AND ?3
              ORDER BY name
              LIMIT 21"
        )
    };
}

pub(super) const SUBSCRIPTIONS_BY_ID: &str = named!("subscriptions", "id", "id", "state");
pub(super) const SUBSCRIPTIONS_OF_NAME: &str = named!("subscriptions", "id", "name", "state");
pub(super) const PROVIDERS_OF_NAME: &str = named!("providers", "name", "name", "NULL");
pub(super) const SOURCES_OF_NAME: &str = named!("sources", "name", "name", "state");

words! {
    /// What was found.
    pub enum HitKind {
        /// An event of the outbox.
        Event = "event",
        /// An event of a provider.
        WebhookEvent = "webhook_event",
        /// A delivery.
        Delivery = "delivery",
        /// A subscription.
        Subscription = "subscription",
        /// A provider of webhooks.
        Provider = "provider",
        /// A source of events.
        Source = "source",
    }
}

/// Something that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "SearchHit")]
pub struct Hit {
    pub kind: HitKind,
    /// Its number.
    #[serde(skip)]
    pub seq: i64,
    /// Whether it is an operational event.
    #[serde(skip)]
    pub is_own: bool,
    /// Its id, as its own route takes it.
    pub id: String,
    /// The field in which the text was found.
    #[schemars(with = "MatchedField")]
    pub matched: &'static str,
    /// The field's value.
    pub value: String,
    /// Null for what has none, such as a subscription.
    pub event_type: Option<String>,
    /// Its status or state, in the words of its own route; null for a provider.
    pub status: Option<String>,
    /// When it was received or made.
    pub at: Timestamp,
    /// The month of the archive whose file has it, like `2026-11`; null: the database has it.
    pub archived_in: Option<String>,
}

/// Sorts hits: by kind, the newest first, operational events behind others.
pub fn sort(hits: &mut [Hit]) {
    hits.sort_by(|a, b| (a.kind, a.is_own, b.seq).cmp(&(b.kind, b.is_own, a.seq)));
}

values! {
    /// The fields that are searched.
    MatchedField = { "type": "string", "enum": ["id", "aggregate_id", "idempotency_key", "webhook_id",
        "provider_event_id", "event_type", "name", "payload"] }
}

/// A field that is searched.
struct Field {
    kind: HitKind,
    matched: &'static str,
    sql: &'static str,
    /// The statement for tenants other than `default`, if it is another one.
    of_tenant: Option<&'static str>,
    /// Lists the sources, each of which is searched.
    sources: Option<&'static str>,
    min_prefix: usize,
    /// Whether a text can be a value, for fields without an index.
    fits: Option<fn(&str) -> bool>,
}

const fn field(kind: HitKind, matched: &'static str, sql: &'static str) -> Field {
    let min_prefix = MIN_PREFIX;
    Field { kind, matched, sql, of_tenant: None, sources: None, min_prefix, fits: None }
}

const FIELDS: [Field; 13] = {
    use HitKind::{Event, Provider, Source, Subscription, WebhookEvent};
    let is_webhook_id: Option<fn(&str) -> bool> = Some(begins_like_webhook_id);
    let is_type: Option<fn(&str) -> bool> = Some(may_be_type);
    [
        Field { min_prefix: MIN_UUID_PREFIX, ..field(Event, "id", EVENTS_BY_ID) },
        field(Event, "aggregate_id", EVENTS_OF_AGGREGATE),
        Field { sources: Some(SOURCE_SYSTEMS), ..field(Event, "idempotency_key", EVENTS_OF_KEY) },
        Field {
            of_tenant: Some(EVENTS_OF_WEBHOOK_ID_OF_TENANT),
            fits: is_webhook_id,
            ..field(Event, "webhook_id", EVENTS_OF_WEBHOOK_ID)
        },
        Field {
            of_tenant: Some(EVENTS_OF_TYPE_OF_TENANT),
            fits: is_type,
            ..field(Event, "event_type", EVENTS_OF_TYPE)
        },
        Field { min_prefix: MIN_UUID_PREFIX, ..field(WebhookEvent, "id", WEBHOOK_EVENTS_BY_ID) },
        Field {
            sources: Some(PROVIDERS),
            ..field(WebhookEvent, "provider_event_id", WEBHOOK_EVENTS_OF_ID)
        },
        Field {
            of_tenant: Some(WEBHOOK_EVENTS_OF_WEBHOOK_ID_OF_TENANT),
            fits: is_webhook_id,
            ..field(WebhookEvent, "webhook_id", WEBHOOK_EVENTS_OF_WEBHOOK_ID)
        },
        Field {
            of_tenant: Some(WEBHOOK_EVENTS_OF_TYPE_OF_TENANT),
            fits: is_type,
            ..field(WebhookEvent, "event_type", WEBHOOK_EVENTS_OF_TYPE)
        },
        Field { min_prefix: MIN_UUID_PREFIX, ..field(Subscription, "id", SUBSCRIPTIONS_BY_ID) },
        field(Subscription, "name", SUBSCRIPTIONS_OF_NAME),
        field(Provider, "name", PROVIDERS_OF_NAME),
        field(Source, "name", SOURCES_OF_NAME),
    ]
};

/// Whether a text may be a `webhook-id` or its beginning.
pub fn begins_like_webhook_id(text: &str) -> bool {
    text.starts_with("evt_")
}

/// Whether a text may be an event type. Reading so many rows for a number would be in vain.
fn may_be_type(text: &str) -> bool {
    !text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether the tenant has events that were not looked at for an event type, which the text may be.
pub fn leaves_types_out(tx: &ReadTx<'_>, tenant: &str, text: &str) -> Result<bool> {
    if may_be_type(text) && !begins_like_webhook_id(text) {
        tx.value(HAS_MORE_EVENTS, [tenant])
    } else {
        Ok(false)
    }
}

/// Finds the event or webhook event of any age by the bytes of its `webhook-id`. Reads the identities of all events of the
/// tenant, from an index alone.
pub fn by_webhook_id(tx: &ReadTx<'_>, tenant: &str, bytes: &[u8]) -> Result<Option<Hit>> {
    for (kind, sql) in
        [(HitKind::Event, EVENT_OF_IDENTITY), (HitKind::WebhookEvent, WEBHOOK_EVENT_OF_IDENTITY)]
    {
        let of = field(kind, "webhook_id", sql);
        let found = tx.first(sql, (tenant, bytes), |row| of.hit(row, row.get(6)?))?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Finds what a tenant has by a text: by kind, the newest first, operational events behind others. Also tells whether
/// there may be more. Operational events are found by their exact id alone, unless they are asked for.
pub fn find(
    tx: &ReadTx<'_>,
    tenant: &str,
    text: &str,
    operational: bool,
) -> Result<(Vec<Hit>, bool)> {
    let mut all: Vec<Hit> = Vec::new();
    let mut more = false;
    let others = FIELDS.iter().map(|field| (field, false));
    let names_one = |field: &Field| ["id", "webhook_id"].contains(&field.matched);
    let own = FIELDS.iter().filter(|field| field.kind == HitKind::Event);
    let own = own.filter(|field| operational || names_one(field)).map(|field| (field, true));
    for (field, is_own) in others.chain(own) {
        if field.fits.is_some_and(|fits| !fits(text)) {
            continue;
        }
        let (mut found, has_more) = field.find(tx, tenant, is_own, text)?;
        if is_own && !operational {
            found.retain(|hit| hit.value == text);
        } else {
            more |= has_more;
        }
        for hit in found {
            if !all.iter().any(|known| (known.kind, known.seq) == (hit.kind, hit.seq)) {
                all.push(hit);
            }
        }
    }
    // `invoice 4711` and `invoice/4711` are an aggregate.
    if let Some((kind, id)) = text.split_once([' ', '/']) {
        let of = field(HitKind::Event, "aggregate_id", EVENTS_OF_PAIR);
        let params = (tenant, id.trim(), id.trim(), kind);
        all.extend(tx.rows(EVENTS_OF_PAIR, params, |row| of.hit(row, false))?);
    }
    // `dlv_17.3` is an attempt of a delivery. A bare number is that of an invoice, not of a delivery.
    let number = text.split_once('.').map_or(text, |(number, _attempt)| number);
    let seq = Some(number).filter(|number| number.starts_with("dlv_"));
    let seq = seq.and_then(|number| DeliverySeq::parse(number).ok());
    let delivery = seq.map(|seq| delivery_lists::by_seq(tx, tenant, seq)).transpose()?.flatten();
    all.extend(delivery.map(of_delivery));
    sort(&mut all);
    Ok((all, more))
}

/// Finds events by what their payloads have at the paths that their types name; and whether there may be more. Of an amount
/// the form may be another one: `99,5` finds 99.5, 99.50 and `"99.50"`.
pub fn in_payloads(tx: &ReadTx<'_>, tenant: &str, text: &str) -> Result<(Vec<Hit>, bool)> {
    let of = field(HitKind::Event, "payload", EVENTS_OF_PAYLOAD);
    let mut all: Vec<Hit> = Vec::new();
    let amount = text.replace(',', ".");
    let short = amount.trim_end_matches('0').trim_end_matches('.');
    let is_amount = amount.contains('.') && amount.parse::<f64>().is_ok();
    let decimals = short.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let padded = [1, 2].map(|to: usize| {
        let point = if decimals == 0 { "." } else { "" };
        format!("{short}{point}{}", "0".repeat(to.saturating_sub(decimals)))
    });
    let [one, two] = &padded;
    let others = if is_amount { vec![amount.as_str(), short, one, two] } else { Vec::new() };
    let end = format!("{text}{LAST}");
    let is_prefix = text.chars().count() >= MIN_PREFIX;
    let spans = [(text, text), (text, if is_prefix { end.as_str() } else { text })];
    for (from, to) in spans.into_iter().chain(others.into_iter().map(|other| (other, other))) {
        for hit in tx.rows(EVENTS_OF_PAYLOAD, (tenant, from, to), |row| of.hit(row, false))? {
            if !all.iter().any(|known| known.seq == hit.seq) {
                all.push(hit);
            }
        }
    }
    let more = all.len() > MAX_HITS;
    all.truncate(MAX_HITS);
    Ok((all, more))
}

impl Field {
    /// Hits of the text itself, then of values that begin with it.
    fn find(
        &self,
        tx: &ReadTx<'_>,
        tenant: &str,
        is_own: bool,
        text: &str,
    ) -> Result<(Vec<Hit>, bool)> {
        let to = format!("{text}{LAST}");
        let is_prefix = text.chars().count() >= self.min_prefix;
        // Without an index the same rows would be read twice.
        let mut found = if is_prefix && self.fits.is_some() {
            Vec::new()
        } else {
            self.between(tx, tenant, is_own, text, text)?
        };
        if is_prefix && found.len() <= MAX_HITS {
            let beginning = self.between(tx, tenant, is_own, text, &to)?;
            let is_new = |hit: &Hit| !found.iter().any(|known| known.seq == hit.seq);
            let new: Vec<Hit> = beginning.into_iter().filter(is_new).collect();
            found.extend(new);
        }
        let more = found.len() > MAX_HITS;
        found.truncate(MAX_HITS);
        Ok((found, more))
    }

    fn between(
        &self,
        tx: &ReadTx<'_>,
        tenant: &str,
        is_own: bool,
        from: &str,
        to: &str,
    ) -> Result<Vec<Hit>> {
        let sql = self.of_tenant.filter(|_| tenant != DEFAULT_TENANT).unwrap_or(self.sql);
        let hits = |params: &[&dyn ToSql]| tx.rows(sql, params, |row| self.hit(row, is_own));
        let Some(sources) = self.sources else {
            return match self.kind {
                HitKind::Event => hits(params![tenant, from, to, is_own]),
                _ => hits(params![tenant, from, to]),
            };
        };
        let names = tx.list::<String>(sources, [tenant])?;
        let mut all = Vec::new();
        for name in
            names.iter().take(MAX_SEARCHED_SOURCES).filter(|name| (*name == OWN_SOURCE) == is_own)
        {
            all.extend(hits(params![tenant, from, to, is_own, name])?);
        }
        all.sort_by_key(|hit: &Hit| std::cmp::Reverse(hit.seq));
        Ok(all)
    }

    fn hit(&self, row: &Row<'_>, is_own: bool) -> Result<Hit> {
        Ok(Hit {
            kind: self.kind,
            is_own,
            seq: row.get(0)?,
            id: row.get(1)?,
            matched: self.matched,
            value: row.get(2)?,
            event_type: row.get(3)?,
            status: row.get(4)?,
            at: row.get(5)?,
            archived_in: None,
        })
    }
}

fn of_delivery(delivery: Delivery) -> Hit {
    let id = delivery.seq.to_string();
    Hit {
        kind: HitKind::Delivery,
        seq: delivery.seq.0,
        is_own: false,
        value: id.clone(),
        id,
        matched: "id",
        event_type: Some(delivery.event_type),
        status: Some(delivery.state.as_str().to_owned()),
        at: delivery.created_at,
        archived_in: None,
    }
}
