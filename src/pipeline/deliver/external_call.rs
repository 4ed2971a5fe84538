//! The external call that a delivery makes, if its subscription protects them.

use crate::formats::filter::{self, Payload};
use crate::model::delivery::OutgoingRequest;
use crate::model::event::EventOrder;
use crate::model::external_call::{NewCall, SentTo};
use crate::model::json_path::Path;
use crate::model::lane::{self, CallKey, Key};
use crate::model::subscription::Subscription;

/// Characters of an external call's key that are kept.
const MAX_KEY_CHARS: usize = 255;

/// The call that sending a delivery is, if its subscription protects them. Its hash and its request are not known yet.
/// The key is read from the stored payload: what is sealed in it stays sealed.
pub fn external_call(outgoing: &OutgoingRequest, subscription: &Subscription) -> Option<NewCall> {
    let kind = subscription.new.order.external_calls?;
    let is_of_event = kind == CallKey::Event;
    // The number of an entity is the one by which the dispatcher sends one after another.
    let entity = if is_of_event { outgoing.delivery.0 } else { outgoing.order.entity? };
    let entity_key =
        if is_of_event { outgoing.event_id.clone() } else { entity_key(outgoing, subscription) };
    Some(NewCall {
        delivery: outgoing.delivery,
        subscription: outgoing.subscription,
        run_no: outgoing.run_no,
        kind,
        entity,
        entity_key,
        body_hash: Vec::new(),
        sent: SentTo::default(),
    })
}

/// The text that names the entity; empty if it cannot be read any more.
fn entity_key(outgoing: &OutgoingRequest, subscription: &Subscription) -> String {
    let entity_type = outgoing.order.entity_type.clone();
    let order = EventOrder { entity_type, ..EventOrder::default() };
    let key = Key {
        aggregate: (None, outgoing.aggregate_id.as_deref()),
        order: Some(&order),
        ..Key::default()
    };
    let at_path = |path: &str| {
        let body = outgoing.body().json_view();
        // What cannot be read was a dead letter when it came; a person has sent it all the same.
        filter::first_text(&Path::parse(path).ok()?, &Payload::read(&body)).ok()?
    };
    let entity = lane::entity(subscription.scope(), &outgoing.event_type, key, at_path);
    let text = entity.map(|entity| entity.key).unwrap_or_default();
    text.chars().take(MAX_KEY_CHARS).collect()
}
