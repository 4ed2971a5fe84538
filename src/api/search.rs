//! `/v1/search`: finds things by a text that a person has.

use std::time::Duration;

use crate::api::archived;
use crate::api::events::{OPERATIONAL, is_operational};
use crate::api::prelude::*;
use crate::base::id;
use crate::store::error::Error;
use crate::store::search::{self, Hit};

/// The most characters of a text: those of a provider's id.
const MAX_CHARS: usize = 500;

const BEGINNING: &str = "The beginning of a webhook-id was looked for among the newest 1,000 events. The whole \
                         webhook-id, of 30 characters, finds an older one.";
const OVER_TIME: &str = "Not all events could be compared with this webhook-id within a second. Each request has the \
                         field x-idempotency-key beside it: search for that value, which finds events of any age.";
const TYPES: &str = "Event types were looked for among the newest 5,000 events. The lists of events and of received \
                     webhooks find older ones by their filter for the event type.";

/// The search.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Search",
    about: "Finds events, webhook events, deliveries, subscriptions, providers and sources by a text.",
    routes: &[get("/v1/search", Read, Listed(find))
        .doc("search", "Find things by a text", &[Q, OPERATIONAL])
        .about(
            "Looks for an aggregate's id, an idempotency key, a `webhook-id`, a UUID, a provider's id, the id of \
             a delivery or of an attempt, an event type, an aggregate's type and id (`invoice 4711`, `invoice/4711`), what \
             payloads have at the `search_paths` of their types, and the name of a subscription, a provider or a source. The text is the value, or its \
             beginning from 2 characters on, of a UUID from 8 on. Ids of deliveries are given in full. At most 20 \
             are found by each field, the exact ones first, then those with the highest values. A whole `webhook-id` is \
             found at any age, as far as a second allows; its beginning among the newest 1,000 events, an event type among \
             5,000. `incomplete` says so where older ones were not looked at. Keys and providers' ids are found in the first \
             50 source systems and providers. Operational events are found by their exact UUID or `webhook-id`, by other \
             fields with `operational`; they stand behind other events. Months of the archive are searched as well, the \
             latest first, as far as a second allows.",
        )
        .returns(&[Returns::json::<SearchAnswer>(
            200,
            "What was found: events, webhook events, deliveries, subscriptions, providers, sources, of each kind the newest \
             first.",
        )])],
};

const Q: Param =
    Param::query::<Text<1, MAX_CHARS>>("q", "The text. Without it, nothing is found.", "4711");

/// What was found.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SearchResult")]
struct SearchAnswer {
    items: Vec<Hit>,
    /// Whether a field has more hits.
    more: bool,
    /// A sentence about older events that were not looked at, with a way to find them; null: none were left out, or an
    /// event was found all the same.
    incomplete: Option<&'static str>,
}

/// `GET /v1/search`
fn find(api: &Api, call: &Call) -> Result<Response, Problem> {
    let operational = is_operational(&call.query)?;
    // Without a text, nothing is found.
    let Some(text) = call.query.get("q").map(str::trim) else {
        return Ok(ok(&SearchAnswer { items: Vec::new(), more: false, incomplete: None }));
    };
    if text.is_empty() || text.chars().count() > MAX_CHARS {
        return Err(Problem::bad_request(format!("q must have 1 to {MAX_CHARS} characters.")));
    }
    let end = lists::end(api);
    let find = |tx: &ReadTx<'_>| search::find(tx, &call.tenant, text, operational);
    let (mut items, mut more) = archived::search(api, call, end, find)?;
    let (found, is_more) =
        lists::read(api, call, |tx| search::in_payloads(tx, &call.tenant, text))?;
    add(&mut items, found);
    more |= is_more;
    let incomplete = if search::begins_like_webhook_id(text) {
        complete_webhook_id(api, call, end, text, &mut items)?
    } else if !items.is_empty() {
        None
    } else {
        let leaves_out = |tx: &ReadTx<'_>| search::leaves_types_out(tx, &call.tenant, text);
        lists::read(api, call, leaves_out)?.then_some(TYPES)
    };
    search::sort(&mut items);
    Ok(ok(&SearchAnswer { items, more, incomplete }))
}

/// Adds hits of what is not among the others.
fn add(items: &mut Vec<Hit>, found: impl IntoIterator<Item = Hit>) {
    for hit in found {
        if !items.iter().any(|known| (known.kind, known.seq) == (hit.kind, hit.seq)) {
            items.push(hit);
        }
    }
}

/// Adds an event of any age that has a whole `webhook-id`. Returns a sentence about events that were not looked at.
fn complete_webhook_id(
    api: &Api,
    call: &Call,
    end: Duration,
    text: &str,
    items: &mut Vec<Hit>,
) -> Result<Option<&'static str>, Problem> {
    let Some(bytes) = id::webhook_id_bytes(text) else { return Ok(Some(BEGINNING)) };
    if items.iter().any(|hit| hit.matched == "webhook_id") {
        return Ok(None);
    }
    if let Some(hit) = archived::hit_of_webhook_id(api, call, text)? {
        add(items, [hit]);
        return Ok(None);
    }
    let clock = api.env.clock.clone();
    let is_over = move || clock.monotonic() >= end;
    match api.env.store.list(is_over, |tx| search::by_webhook_id(tx, &call.tenant, &bytes)) {
        Ok(hit) => {
            add(items, hit);
            Ok(None)
        }
        Err(Error::TooLong) => Ok(Some(OVER_TIME)),
        Err(error) => Err(error.into()),
    }
}
