//! Which subscriptions match an event: found before its transaction where that can be, else in it.
//!
//! Filters may take milliseconds, for which the writer does not wait. What was found of a subscription counts while the
//! writer has the same terms of it: one that was changed meanwhile is matched again, alone. Not here: the deliveries ([`crate::store::deliveries`]).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::budget::Budget;
use crate::base::id::SubscriptionSeq;
use crate::formats::filter::{self, FilterVerdict, Payload, Unknown};
use crate::model::form_body::Body;
use crate::model::json_path::Path;
use crate::model::lane::{self, Places};
use crate::model::subscription::{NewSubscription, Routed};
use crate::store::error::Result;
use crate::store::routes::{Route, SharedRoutes, TenantRoutes};

/// A subscription that matches an event, and the places of the delivery.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MatchedSubscription {
    pub(crate) subscription: SubscriptionSeq,
    pub(super) places: Places,
    pub(super) entity: Option<i64>,
    /// Why it is not known if the subscription wants the event, or to which call the delivery belongs.
    pub(super) unknown: Option<Unknown>,
}

/// How much memory a filter takes for each byte of the largest payload.
const READ_FACTOR: usize = 32;

/// The subscriptions that match events, by the event's id.
#[derive(Debug, Default)]
pub struct Matches(BTreeMap<String, FoundMatches>);

/// The subscriptions that match one event.
#[derive(Debug)]
struct FoundMatches {
    /// The routes that were asked.
    among: Arc<TenantRoutes>,
    matching: Vec<MatchedSubscription>,
}

/// An event as subscriptions look at it.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'e> {
    /// Its UUID.
    pub id: &'e str,
    /// What is asked of it first.
    pub event: Routed<'e>,
    /// What filters ask.
    pub body: Body<'e>,
}

impl Matches {
    /// Finds them before the transaction, so that the writer does not wait for filters. Left out are events of which the
    /// writer finds them, because no payload is looked at, or memory is short. `None`: that is all of them.
    pub fn ahead(
        routes: &SharedRoutes,
        budget: &Budget,
        events: &[Candidate<'_>],
    ) -> Option<Arc<Self>> {
        let mut found = BTreeMap::new();
        for &Candidate { id, event, body } in events {
            let Some(among) = routes.of(event.tenant) else { continue };
            if !among.facts().reads_payload {
                continue;
            }
            let bytes = body.bytes.len().saturating_mul(READ_FACTOR);
            let Some(_share) = budget.try_take(bytes) else { continue };
            let Ok(matching) = matching(&among, event, || Ok(body.json_view())) else { continue };
            found.insert(id.to_owned(), FoundMatches { among, matching });
        }
        (!found.is_empty()).then(|| Arc::new(Self(found)))
    }

    /// Those of an event among the routes that the writer has now. Only routes that are new since are matched.
    pub(super) fn now<'p>(
        &self,
        among: &Arc<TenantRoutes>,
        id: &str,
        event: Routed<'_>,
        payload: impl Fn() -> Result<Cow<'p, [u8]>>,
    ) -> Result<Vec<MatchedSubscription>> {
        let Some(found) = self.0.get(id) else { return matching(among, event, payload) };
        if Arc::ptr_eq(&found.among, among) {
            return Ok(found.matching.clone());
        }
        let (mut all, mut read) = (Vec::with_capacity(found.matching.len()), None);
        for route in among.iter() {
            let is_same = found.among.get(route.seq).is_some_and(|had| Arc::ptr_eq(had, route));
            if is_same {
                all.extend(found.matching.iter().find(|one| one.subscription == route.seq));
            } else {
                all.extend(matched(route, event, &mut read, &payload)?);
            }
        }
        Ok(all)
    }
}

/// The subscriptions of a tenant that match an event of it. Its payload is read where a filter asks for it, and once.
pub(crate) fn matching<'p>(
    among: &TenantRoutes,
    event: Routed<'_>,
    payload: impl Fn() -> Result<Cow<'p, [u8]>>,
) -> Result<Vec<MatchedSubscription>> {
    let (mut matching, mut read) = (Vec::new(), None);
    for route in among.candidates(event).iter() {
        matching.extend(matched(route, event, &mut read, &payload)?);
    }
    Ok(matching)
}

/// A subscription, if it matches an event. `read` has the event's payload once a filter has asked for it.
pub(crate) fn matched<'p>(
    route: &Route,
    event: Routed<'_>,
    read: &mut Option<Payload>,
    payload: impl Fn() -> Result<Cow<'p, [u8]>>,
) -> Result<Option<MatchedSubscription>> {
    let unwanted = match judge(&route.new, event, read, &payload)? {
        FilterVerdict::Unmet => return Ok(None),
        FilterVerdict::Met => None,
        FilterVerdict::Unknown(why) => Some(why),
    };
    let (scope, order) = (route.new.scope(route.seq), &route.new.order);
    if order.call_path.is_some() && read.is_none() {
        *read = Some(Payload::read(&payload()?));
    }
    let mut unread = None;
    let at_path = |path: &str| {
        let found = filter::first_text(&Path::parse(path).ok()?, read.as_ref()?);
        found.unwrap_or_else(|why| {
            unread = Some(why);
            None
        })
    };
    let entity = lane::entity(scope, event.event_type, event.key, at_path);
    let entity = entity.map(|entity| entity.number);
    // Of the calls about one entity, one is in flight at a time.
    let call = entity.filter(|_| order.external_calls.is_some());
    let funnel = call.or_else(|| lane::funnel(scope, event.key));
    let places = Places { lane: lane::lane(scope, event.key), funnel };
    let unknown = unwanted.or(unread);
    Ok(Some(MatchedSubscription { subscription: route.seq, places, entity, unknown }))
}

/// A named target passes a filter by, as it does patterns.
fn is_filtered(new: &NewSubscription, event: Routed<'_>) -> bool {
    !new.filter.is_empty() && event.target.is_none()
}

/// Whether a subscription wants an event, or may want it, because that is not known. `read` has its payload where a
/// filter has asked for it.
pub(crate) fn wants<'p>(
    new: &NewSubscription,
    event: Routed<'_>,
    read: &mut Option<Payload>,
    payload: impl Fn() -> Result<Cow<'p, [u8]>>,
) -> Result<bool> {
    Ok(judge(new, event, read, payload)? != FilterVerdict::Unmet)
}

fn judge<'p>(
    new: &NewSubscription,
    event: Routed<'_>,
    read: &mut Option<Payload>,
    payload: impl Fn() -> Result<Cow<'p, [u8]>>,
) -> Result<FilterVerdict> {
    if !new.wants(event) {
        return Ok(FilterVerdict::Unmet);
    }
    if !is_filtered(new, event) {
        return Ok(FilterVerdict::Met);
    }
    let payload = match read {
        Some(payload) => payload,
        None => read.insert(Payload::read(&payload()?)),
    };
    Ok(filter::judge(&new.filter, payload))
}
