//! `/v1/search`: finds things by a text that a person has.

use crate::api::archived;
use crate::api::events::{OPERATIONAL, is_operational};
use crate::api::prelude::*;
use crate::store::search::{self, Hit};

/// The most characters of a text: those of a provider's id.
const MAX_CHARS: usize = 500;

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
             are found by each field, the exact ones first, then those with the highest values. A `webhook-id` is \
             found among the newest 2,500 events, an event type among 5,000. Keys and providers' ids are found in the first \
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
}

/// `GET /v1/search`
fn find(api: &Api, call: &Call) -> Result<Response, Problem> {
    let operational = is_operational(&call.query)?;
    // Without a text, nothing is found.
    let Some(text) = call.query.get("q").map(str::trim) else {
        return Ok(ok(&SearchAnswer { items: Vec::new(), more: false }));
    };
    if text.is_empty() || text.chars().count() > MAX_CHARS {
        return Err(Problem::bad_request(format!("q must have 1 to {MAX_CHARS} characters.")));
    }
    let find = |tx: &ReadTx<'_>| search::find(tx, &call.tenant, text, operational);
    let (mut items, mut more) = archived::search(api, call, find)?;
    let (found, is_more) =
        lists::read(api, call, |tx| search::in_payloads(tx, &call.tenant, text))?;
    let is_new =
        |hit: &Hit| items.iter().all(|known| (known.kind, known.seq) != (hit.kind, hit.seq));
    let new: Vec<Hit> = found.into_iter().filter(is_new).collect();
    items.extend(new);
    more |= is_more;
    search::sort(&mut items);
    Ok(ok(&SearchAnswer { items, more }))
}
