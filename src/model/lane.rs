//! Order and dependence: lanes, funnels, and what a subscription and an event ask of them.
//!
//! Not here: which delivery is first in a lane, which is SQL (`store::lanes`).

use std::ops::RangeInclusive;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use crate::base::clock::span;
use crate::base::id::{SubscriptionSeq, identity_digest};
use crate::base::schema::{NameText, SomeText, Text, Whole};
use crate::base::words::words;
use crate::model::event::EventOrder;
use crate::model::json_fields;

words! {
    /// Which events of a subscription are kept in order. Stored in `subscriptions.ordering`.
    #[derive(Default)]
    pub enum Ordering as "Ordering" {
        /// None, unless an event asks for it.
        #[default]
        None = "none",
        /// Events with the same key: the event's `ordering_key`, else its aggregate. An event without both waits for no
        /// other.
        Key = "key",
        /// All of them.
        Strict = "strict",
    }
}

words! {
    /// What a lane does when its first delivery fails.
    #[derive(Default)]
    pub enum HeadOfLine as "HeadOfLine" {
        /// A dead letter blocks its lane until a person acts.
        #[default]
        Block = "block",
        /// A delivery that has failed `park_after` times waits apart, and the lane goes on.
        Park = "park",
        /// The lane goes on behind a dead letter.
        Skip = "skip",
    }
}

words! {
    /// What an external call is about.
    pub enum CallKey as "CallKey" {
        /// Its event: each event is sent once.
        Event = "event",
        /// The entity type, else the event type, with the aggregate's id.
        Entity = "entity",
        /// The text at `call_path` in the payload.
        Custom = "custom",
    }
}

/// The counted failures after which a delivery is parked, if the subscription does not say.
pub const PARK_AFTER: u32 = 3;

/// How long a delivery may wait behind others at most, if it is limited.
const POSTPONE_LIMITS: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_hours(30 * 24);

/// What its order is beyond `ordering`. Of events stored from then on.
// Stored as JSON in `order_terms`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OrderTerms {
    /// Subscriptions with the same group share their lanes: an order of one before an invoice of another.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<NameText>")]
    pub group: Option<String>,
    /// What a lane does when its first delivery is given up. `block` (if absent): it waits until a person acts.
    /// `park`: a delivery that has failed `park_after` times waits apart. `skip`: the lane goes on.
    #[serde(skip_serializing_if = "is_default")]
    pub head_of_line: HeadOfLine,
    /// Counted failures after which a delivery is parked; 3 if absent.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "json_fields::whole")]
    #[schemars(with = "Option<Whole<1, 1000>>")]
    pub park_after: Option<u32>,
    /// Events with the same `funnel_value` are in flight one at a time at this point, across all subscriptions of the
    /// point.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<NameText>")]
    pub funnel_point: Option<String>,
    /// A waiting delivery is skipped when a newer one about the same entity waits.
    #[serde(skip_serializing_if = "is_default")]
    pub latest_only: bool,
    /// No call for an older state follows one for a newer state, and no state is sent twice. The states are those of
    /// the `event`, of its `entity`, or of what stands at `call_path`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_calls: Option<CallKey>,
    /// Where the key of `custom` is in the payload: `$`, then `.name`, `['name']` or `[n]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Text<1, 512>>")]
    pub call_path: Option<String>,
    /// How long a delivery may wait behind others, like `300s`, before it becomes a dead letter.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<SomeText>")]
    pub postpone_limit: Option<String>,
}

impl OrderTerms {
    /// The counted failures after which a delivery in a lane is parked, if it is parked at all.
    pub fn parks_after(&self) -> Option<u32> {
        let is_parked = self.head_of_line == HeadOfLine::Park;
        is_parked.then(|| self.park_after.unwrap_or(PARK_AFTER))
    }

    /// How long a delivery may wait behind others; `None`: without limit. The error says why it cannot be used.
    pub fn postponed_after(&self) -> Result<Option<Duration>, String> {
        let Some(text) = &self.postpone_limit else { return Ok(None) };
        let limit = span(text).map_err(|why| format!("postpone_limit {why}"))?;
        let is_usable = POSTPONE_LIMITS.contains(&limit);
        if is_usable {
            Ok(Some(limit))
        } else {
            Err("postpone_limit must be 1s to 30days".to_owned())
        }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The fields of an event that decide its lane and its funnel.
#[derive(Clone, Copy, Debug, Default)]
pub struct Key<'a> {
    /// The event's `ordering_key`.
    pub ordering_key: Option<&'a str>,
    /// The aggregate's type and id.
    pub aggregate: (Option<&'a str>, Option<&'a str>),
    /// What the event asks; `None` for a webhook event.
    pub order: Option<&'a EventOrder>,
}

/// Where a delivery stands. Of those with the same lane or the same funnel, one is in flight at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Its lane, in which deliveries keep their order.
    pub lane: Option<i64>,
    /// Its funnel.
    pub funnel: Option<i64>,
}

impl Places {
    /// Its numbers. Lanes and funnels are hashes of different texts, so they do not meet.
    pub fn numbers(self) -> impl Iterator<Item = i64> {
        self.lane.into_iter().chain(self.funnel)
    }
}

/// Whose lanes: those of a subscription, or of a group of a tenant's subscriptions.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    /// The subscription.
    pub subscription: SubscriptionSeq,
    /// Its tenant.
    pub tenant: &'a str,
    /// Its order.
    pub ordering: Ordering,
    /// The rest of its order.
    pub terms: &'a OrderTerms,
}

/// The lane of an event's delivery: 63 bits of a hash. Two keys with the same hash share a lane, which does no harm: it
/// only keeps more events in order than necessary.
///
/// ```
/// use oncebox::model::lane::{Key, OrderTerms, Ordering, Scope, lane};
/// use oncebox::base::id::SubscriptionSeq;
/// let terms = OrderTerms::default();
/// let of = |n, ordering| Scope { subscription: SubscriptionSeq(n), tenant: "default", ordering, terms: &terms };
/// let invoice = Key { aggregate: (Some("invoice"), Some("4711")), ..Key::default() };
/// assert_eq!(lane(of(1, Ordering::None), invoice), None);
/// assert!(lane(of(1, Ordering::Key), invoice).is_some_and(|lane| lane >= 0));
/// assert_ne!(lane(of(1, Ordering::Key), invoice), lane(of(2, Ordering::Key), invoice));
/// assert_eq!(lane(of(1, Ordering::Strict), invoice), lane(of(1, Ordering::Strict), Key::default()));
/// assert_eq!(lane(of(1, Ordering::Key), Key::default()), None);
/// ```
pub fn lane(scope: Scope<'_>, key: Key<'_>) -> Option<i64> {
    let is_guaranteed = key.order.is_some_and(|order| order.guaranteed);
    if scope.ordering == Ordering::None && !is_guaranteed {
        return None;
    }
    let subscription = scope.subscription.0.to_string();
    let (kind, owner) = match &scope.terms.group {
        None => ("", subscription),
        Some(group) => ("group:", format!("{}/{group}", scope.tenant)),
    };
    let digest = match (scope.ordering, key) {
        (Ordering::Strict, _) => hash(&[&format!("{kind}strict"), &owner]),
        (_, Key { ordering_key: Some(own), .. }) => hash(&[&format!("{kind}key"), &owner, own]),
        (_, Key { aggregate: (of, Some(id)), .. }) => {
            hash(&[&format!("{kind}aggregate"), &owner, of.unwrap_or_default(), id])
        }
        (Ordering::None | Ordering::Key, _) => return None,
    };
    Some(digest)
}

/// The funnel of an event's delivery, if the event has a value for the subscription's funnel point.
pub fn funnel(scope: Scope<'_>, key: Key<'_>) -> Option<i64> {
    let point = scope.terms.funnel_point.as_deref()?;
    let EventOrder { funnel_point, funnel_value, .. } = key.order?;
    let value = funnel_value.as_deref()?;
    let is_here = funnel_point.as_deref().is_none_or(|named| named == point);
    is_here.then(|| hash(&["funnel", scope.tenant, point, value]))
}

/// What an event is about, to a subscription with `latest_only` or `external_calls`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entity {
    /// Its number.
    pub number: i64,
    /// The text that names it.
    pub key: String,
}

/// What an event is about, if the subscription asks and the event says. `at_path` reads the text at a path of its
/// payload.
pub fn entity(
    scope: Scope<'_>,
    event_type: &str,
    key: Key<'_>,
    at_path: impl FnOnce(&str) -> Option<String>,
) -> Option<Entity> {
    let OrderTerms { external_calls, latest_only, call_path, .. } = scope.terms;
    let subscription = scope.subscription.0.to_string();
    match external_calls {
        // A delivery is the only one of its event.
        Some(CallKey::Event) => return None,
        Some(CallKey::Custom) => {
            let key = at_path(call_path.as_deref()?)?;
            return Some(Entity { number: hash(&["custom", &subscription, &key]), key });
        }
        None if !latest_only => return None,
        Some(CallKey::Entity) | None => {}
    }
    let (_, Some(id)) = key.aggregate else { return None };
    let kind = key.order.and_then(|order| order.entity_type.as_deref()).unwrap_or(event_type);
    let number = hash(&["entity", &subscription, kind, id]);
    Some(Entity { number, key: format!("{kind}/{id}") })
}

/// The id of a lane, like `lane_4711`.
pub fn id(lane: i64) -> String {
    format!("lane_{lane}")
}

/// Serializes the id of a lane, if there is one.
#[expect(clippy::ref_option, reason = "serde passes a field by reference")]
pub(crate) fn write_id<S: Serializer>(lane: &Option<i64>, to: S) -> Result<S::Ok, S::Error> {
    lane.map(id).serialize(to)
}

/// The lane with an id, with its prefix or without.
pub fn parse_id(text: &str) -> Option<i64> {
    let digits = text.strip_prefix("lane_").unwrap_or(text);
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

/// 63 bits of a hash over the parts.
pub fn hash(parts: &[&str]) -> i64 {
    let digest = identity_digest(parts);
    let head = digest.first_chunk::<8>().copied().unwrap_or_default();
    i64::from_be_bytes(head) & i64::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(terms: &OrderTerms, n: i64, ordering: Ordering) -> Scope<'_> {
        Scope { subscription: SubscriptionSeq(n), tenant: "default", ordering, terms }
    }

    #[test]
    fn subscriptions_of_a_group_share_their_lanes() {
        let terms = OrderTerms { group: Some("sap".into()), ..OrderTerms::default() };
        let invoice = Key { aggregate: (Some("invoice"), Some("4711")), ..Key::default() };
        for ordering in [Ordering::Key, Ordering::Strict] {
            let of = |n| lane(scope(&terms, n, ordering), invoice);
            assert_eq!(of(1), of(2));
            assert_ne!(of(1), lane(scope(&OrderTerms::default(), 1, ordering), invoice));
        }
    }

    #[test]
    fn an_event_may_ask_for_its_lane_where_the_subscription_has_none() {
        let order = EventOrder { guaranteed: true, ..EventOrder::default() };
        let terms = OrderTerms::default();
        let invoice = Key { aggregate: (Some("invoice"), Some("4711")), ..Key::default() };
        let asked = Key { order: Some(&order), ..invoice };
        let lane_of = |ordering, key| lane(scope(&terms, 1, ordering), key);
        assert_eq!(lane_of(Ordering::None, asked), lane_of(Ordering::Key, invoice));
        assert_eq!(lane_of(Ordering::None, invoice), None);
    }

    #[test]
    fn an_entity_is_of_a_type_and_an_id_or_of_a_text_in_the_payload() {
        let of = |calls, latest_only, entity_type: Option<&str>, event_type| {
            let call_path = (calls == Some(CallKey::Custom)).then(|| "$.sku".to_owned());
            let external_calls = calls;
            let terms =
                OrderTerms { latest_only, external_calls, call_path, ..OrderTerms::default() };
            let order =
                EventOrder { entity_type: entity_type.map(str::to_owned), ..EventOrder::default() };
            let key = Key { aggregate: (None, Some("7")), order: Some(&order), ..Key::default() };
            let at_path = |path: &str| Some(format!("at {path}"));
            entity(scope(&terms, 1, Ordering::None), event_type, key, at_path)
        };
        assert_eq!(of(None, false, None, "a"), None);
        assert_eq!(of(Some(CallKey::Event), false, None, "a"), None);
        let latest = of(None, true, None, "a").unwrap();
        assert_eq!(latest.key, "a/7");
        assert_ne!(of(None, true, None, "b").unwrap().number, latest.number);
        let named = of(Some(CallKey::Entity), false, Some("invoice"), "a");
        assert_eq!(named, of(None, true, Some("invoice"), "b"));
        assert_eq!(of(Some(CallKey::Custom), true, None, "a").unwrap().key, "at $.sku");
    }

    #[test]
    fn a_postpone_limit_is_a_span() {
        let limit = |text: &str| {
            OrderTerms { postpone_limit: Some(text.into()), ..OrderTerms::default() }
                .postponed_after()
        };
        assert_eq!(limit("300s"), Ok(Some(Duration::from_mins(5))));
        assert_eq!(OrderTerms::default().postponed_after(), Ok(None));
        assert!(limit("soon").unwrap_err().contains("not a span"));
        assert!(limit("1ms").unwrap_err().contains("1s to 30days"));
    }

    #[test]
    fn a_funnel_is_of_a_point_and_a_value_in_any_subscription() {
        let terms = OrderTerms { funnel_point: Some("sap".into()), ..OrderTerms::default() };
        let order = |point: Option<&str>| EventOrder {
            funnel_point: point.map(str::to_owned),
            funnel_value: Some("customer 7".into()),
            ..EventOrder::default()
        };
        let of = |n, point| {
            let order = order(point);
            let key = Key { order: Some(&order), ..Key::default() };
            funnel(scope(&terms, n, Ordering::None), key)
        };
        assert!(of(1, None).is_some());
        assert_eq!(of(1, None), of(2, Some("sap")));
        assert_eq!(of(1, Some("crm")), None);
    }
}
