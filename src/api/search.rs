//! `/v1/search`: finds things by a text that a person has.

use schemars::JsonSchema;
use serde::Serialize;

use crate::api::call::{Call, ok};
use crate::api::context::Api;
use crate::api::lists;
use crate::api::problem::Problem;
use crate::api::route::Answer::Listed;
use crate::api::route::{Param, Resource, Returns, get};
use crate::api::schema::{Text, values};
use crate::base::clock::Timestamp;
use crate::http::message::Response;
use crate::model::token::Right::Read;
use crate::store::search::{self, Hit, HitKind};

/// The most characters of a text: those of a provider's id.
const MAX_CHARS: usize = 500;

/// The search.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Search",
    about: "Finds events, webhook events, deliveries, subscriptions, providers and sources by a text.",
    routes: &[get("/v1/search", Read, Listed(find))
        .doc("search", "Find things by a text")
        .about(
            "Looks for an aggregate's id, an idempotency key, a `webhook-id`, a UUID, a provider's id, the id of \
             a delivery or of an attempt, an event type, and the name of a subscription, a provider or a source. The text is the value, or its \
             beginning from 2 characters on, of a UUID from 8 on. Ids of deliveries are given in full. At most 20 \
             are found by each field, the exact ones first, then those with the highest values. A `webhook-id` is \
             found among the newest 4,000 events, an event type among 5,000. Keys and providers' ids are found in the first \
             50 source systems and providers.",
        )
        .returns(&[Returns::json::<SearchAnswer>(
            200,
            "What was found: events, webhook events, deliveries, subscriptions, providers, sources, of each kind the newest \
             first.",
        )])
        .params(&[Q])],
};

const Q: Param =
    Param::query::<Text<1, MAX_CHARS>>("q", "The text. Without it, nothing is found.", "4711");

values! {
    /// The kinds of hits.
    HitKindWord = { "type": "string", "enum": ["event", "webhook_event", "delivery", "subscription", "provider",
        "source"] }
    /// The fields that are searched.
    MatchedField = { "type": "string", "enum": ["id", "aggregate_id", "idempotency_key", "webhook_id",
        "provider_event_id", "event_type", "name"] }
}

/// What was found.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SearchResult")]
struct SearchAnswer {
    items: Vec<HitAnswer>,
    /// Whether a field has more hits.
    more: bool,
}

/// Something that was found.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SearchHit")]
struct HitAnswer {
    #[schemars(with = "HitKindWord")]
    kind: &'static str,
    /// Its id, as its own route takes it.
    id: String,
    /// The field in which the text was found.
    #[schemars(with = "MatchedField")]
    matched: &'static str,
    /// The field's value.
    value: String,
    /// Null for what has none, such as a subscription.
    event_type: Option<String>,
    /// Its status or state, in the words of its own route; null for a provider.
    status: Option<String>,
    /// When it was received or made.
    at: Timestamp,
}

/// `GET /v1/search`
fn find(api: &Api, call: &Call) -> Result<Response, Problem> {
    // Without a text, nothing is found.
    let Some(text) = call.query.get("q").map(str::trim) else {
        return Ok(ok(&SearchAnswer { items: Vec::new(), more: false }));
    };
    if text.is_empty() || text.chars().count() > MAX_CHARS {
        return Err(Problem::bad_request(format!("q must have 1 to {MAX_CHARS} characters.")));
    }
    let (found, more) = lists::read(api, call, |tx| search::find(tx, &call.tenant, text))?;
    Ok(ok(&SearchAnswer { items: found.into_iter().map(HitAnswer::of).collect(), more }))
}

impl HitAnswer {
    fn of(hit: Hit) -> Self {
        let Hit { kind, seq: _, id, matched, value, event_type, status, at } = hit;
        let kind = match kind {
            HitKind::Event => "event",
            HitKind::WebhookEvent => "webhook_event",
            HitKind::Delivery => "delivery",
            HitKind::Subscription => "subscription",
            HitKind::Provider => "provider",
            HitKind::Source => "source",
        };
        Self { kind, id, matched, value, event_type, status, at }
    }
}
