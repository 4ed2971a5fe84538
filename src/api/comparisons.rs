//! `POST /v1/subscriptions/{id}/comparison`: what was delivered to a target, compared with what the target says that it has.
//!
//! A comparison looks at deliveries, the newest first: in the database, then in the archive's months. An answer is about a bounded
//! part, and says where the next part begins. A delivery that is archived between two parts may be in both.
//! Nothing is sent, and only the audit event is stored. Not here: comparisons with the list of a provider ([`super::reconciliations`]), and reading the
//! target's list ([`crate::sources::target_list`]).

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::api::archived;
use crate::api::prelude::*;
use crate::api::subscriptions;
use crate::archive::Month;
use crate::base::id;
use crate::model::delivery::{Delivery, DeliveryState};
use crate::model::subscription::Subscription;
use crate::pipeline::probe::{FULL, Turn};
use crate::sources::target_list::{NotListed, TargetList};
use crate::store::delivery_lists::{self, DeliveryFilter};
use crate::store::page::{Newest, Span};

/// Deliveries of a part at most.
const MAX_DELIVERIES: u64 = 100_000;
/// How long the deliveries of a part are looked at.
const MAX_TIME: Duration = Duration::from_secs(5);
/// Deliveries of a page.
const PAGE: u32 = 500;
/// Missing deliveries that an answer names. A part ends with that many.
const MAX_MISSING: usize = 1_000;
/// Ids of a body at most.
const MAX_IDS: usize = 10_000;
/// Time for the target's list, each of the two times that it is read.
const MAX_LIST_TIME: Duration = Duration::from_secs(20);
/// Deliveries of the last minutes are left out: the target may list them late.
const YOUNG: Duration = Duration::from_mins(5);
/// The target is asked for what it got this much earlier, because its clock may be behind.
const SKEW: Duration = Duration::from_mins(10);

/// Comparisons with what targets have.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Comparisons",
    about: "What was delivered to a target, compared with what the target says that it has.",
    routes: &[
        post("/v1/subscriptions/{id}/comparison", Operate, ActLater("subscription.compare", compare))
            .doc("compareSubscription", "Compare what was delivered with what the target has", &[subscriptions::ID])
            .about(
                "The target has a delivery if its list, or `ids`, has the `webhook-id` or the key of the event. A list is read \
                 with the credentials of the subscription, within 20 s, and a second time if something is missing. Compared are \
                 completed deliveries, the newest first, archived ones too. An answer is about a part of the period if its `next` is no null: at most \
                 100,000 deliveries, 5 s, or 1,000 that are missing. Nothing is sent: send what is missing again with `POST /v1/events/{id}/replay`. Comparisons, tests and rotations of a tenant run one \
                 at a time; twelve wait.",
            )
            .returns(&[Returns::json::<Comparison>(200, "What the target lacks.")])
            .problems(&[Kind::Unavailable])
            .body::<ComparisonRequest>(
                r#"{"since":"2026-01-24T12:00:00Z","ids":["evt_gq2tmobrgq3dqmzz","invoice-17"]}"#,
            ),
    ],
};

/// What is compared: either `ids` or `list` is given.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ComparisonRequest {
    /// Deliveries that were made from this time on are compared.
    since: Timestamp,
    /// The end of the period; five minutes ago if absent.
    until: Option<Timestamp>,
    /// Ids that the target has: `webhook-id`s, or keys of events.
    #[schemars(length(max = MAX_IDS))]
    ids: Option<Vec<Is<SomeText>>>,
    /// The target's own list.
    list: Option<TargetList>,
    /// `next` of the answer about the part before; absent: the newest part.
    next: Option<Is<ComparisonPlace>>,
}

values! {
    /// Where a comparison goes on: a month of the archive, or none, and a number, as in `2026-05/1234` and `/1234`.
    ComparisonPlace = { "type": "string", "minLength": 2, "maxLength": 40 }
}

/// Where a comparison goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    /// The month of the archive; `None`: the database.
    month: Option<Month>,
    /// Deliveries with lower numbers follow.
    before: i64,
}

impl Place {
    const NEWEST: Self = Self { month: None, before: i64::MAX };

    fn parse(text: &str) -> Option<Self> {
        let (month, before) = text.split_once('/')?;
        let month = if month.is_empty() { None } else { Some(Month::parse(month)?) };
        Some(Self { month, before: before.parse().ok()? })
    }

    fn to_text(&self) -> String {
        let month = self.month.as_ref().map(Month::to_string).unwrap_or_default();
        format!("{month}/{}", self.before)
    }

    /// The number below which the deliveries of a file are read on; `None`: the file is done.
    fn within(&self, month: Option<&Month>) -> Option<i64> {
        match archived::order_of_files(month, self.month.as_ref()) {
            Ordering::Less => None,
            Ordering::Equal => Some(self.before),
            Ordering::Greater => Some(i64::MAX),
        }
    }
}

/// What a comparison found.
#[derive(Default, Serialize, JsonSchema)]
struct Comparison {
    /// The subscription's name.
    subscription: String,
    since: Timestamp,
    until: Timestamp,
    /// Completed deliveries that were compared.
    delivered: u64,
    /// Ids that the target has, of these deliveries or others.
    listed: u64,
    /// Deliveries that the target lacks.
    missing: u64,
    /// Deliveries that the target lacks, the newest first.
    #[schemars(length(max = MAX_MISSING))]
    items: Vec<MissingDelivery>,
    /// What `next` is to compare older ones; null: these were all of the period.
    next: Option<Is<ComparisonPlace>>,
}

/// A delivery that the target lacks.
#[derive(Serialize, JsonSchema)]
struct MissingDelivery {
    /// Its id: `dlv_` and a number.
    delivery: String,
    event: Is<Uuid>,
    /// Whether it is of a webhook event.
    of_webhook_event: bool,
    event_type: String,
    webhook_id: String,
    key: String,
    delivered_at: Option<Timestamp>,
}

/// What is asked, checked.
struct Asked {
    subscription: Subscription,
    since: Timestamp,
    until: Timestamp,
    has: TargetHas,
    place: Place,
}

/// How it is known what a target has.
enum TargetHas {
    Ids(BTreeSet<String>),
    List(TargetList),
}

/// `POST /v1/subscriptions/{id}/comparison`
///
/// The target is waited for on another thread.
fn compare(api: &Api, call: Call, reply: Reply) {
    let asked = match asked(api, &call) {
        Ok(asked) => asked,
        Err(problem) => return reply.send(api.acted(&call, Err(problem))),
    };
    let own = api.clone();
    let tenant = call.tenant.clone();
    let job = move |turn: Turn| {
        let found = match turn {
            Turn::Now => run(&own, &call, &asked),
            Turn::Full => Err(Problem::unavailable(FULL, 5)),
        };
        let done = found.and_then(|found| noted(&own, &call, &asked, found));
        reply.send(own.acted(&call, done));
    };
    api.flow.tests.submit(&tenant, Box::new(job));
}

fn asked(api: &Api, call: &Call) -> Result<Asked, Problem> {
    let ComparisonRequest { since, until, ids, list, next } = call.json()?;
    let subscription = subscriptions::find(api, call)?;
    let until = until.unwrap_or_else(|| api.env.clock.wall().minus(YOUNG));
    if since >= until {
        return Err(Problem::unprocessable(
            "since must be before until, which is five minutes ago if it is absent: the target may list late what it got just now.",
        ));
    }
    let has = match (ids, list) {
        (Some(ids), None) => TargetHas::Ids(ids.iter().map(|id| (**id).to_owned()).collect()),
        (None, Some(list)) => TargetHas::List(list),
        _ => return Err(Problem::unprocessable("Give either ids or list.")),
    };
    let place = match next {
        None => Place::NEWEST,
        Some(next) => Place::parse(&next).ok_or_else(|| {
            Problem::unprocessable("next must be the one of the answer before, or absent.")
        })?,
    };
    Ok(Asked { subscription, since, until, has, place })
}

fn run(api: &Api, call: &Call, asked: &Asked) -> Result<Comparison, Problem> {
    let mut ids = read(api, asked)?;
    let mut found = compared(api, call, asked, &ids)?;
    if found.missing > 0 && matches!(asked.has, TargetHas::List(_)) {
        // Between two pages of a list that changes meanwhile an item can be passed over.
        ids.append(&mut read(api, asked)?);
        found = compared(api, call, asked, &ids)?;
    }
    Ok(found)
}

/// The answer, with an audit event: the credentials of the subscription were used.
fn noted(
    api: &Api,
    call: &Call,
    asked: &Asked,
    found: Comparison,
) -> Result<Audited<Value>, Problem> {
    let id = asked.subscription.new.id.clone();
    change(api, call, move |_tx| {
        let compared = Change::changed("subscription", &id, &(), &())
            .and("delivered", found.delivered)
            .and("missing", found.missing);
        Ok(compared.answer(&found))
    })
}

/// What the target has.
fn read(api: &Api, asked: &Asked) -> Result<BTreeSet<String>, Problem> {
    let list = match &asked.has {
        TargetHas::Ids(ids) => return Ok(ids.clone()),
        TargetHas::List(list) => list,
    };
    let read =
        list.read(&api.flow.lists, &asked.subscription, asked.since.minus(SKEW), MAX_LIST_TIME);
    read.map_err(|why| match why {
        NotListed::Unusable(why) => Problem::unprocessable(format!("{why}.")),
        NotListed::Unanswered(why) => {
            Problem::unprocessable(format!("Nothing was compared: {why}."))
        }
        NotListed::Ours(error) => error.into(),
    })
}

/// Compares the completed deliveries of a part of the period with ids.
fn compared(
    api: &Api,
    call: &Call,
    asked: &Asked,
    ids: &BTreeSet<String>,
) -> Result<Comparison, Problem> {
    let Asked { subscription, since, until, place, .. } = asked;
    let filter = DeliveryFilter {
        state: Some(DeliveryState::Completed),
        subscription: Some(subscription.new.name.to_string()),
        made: Span { since: Some(*since), until: Some(*until) },
        ..DeliveryFilter::default()
    };
    let mut found = Comparison {
        subscription: subscription.new.name.to_string(),
        since: *since,
        until: *until,
        listed: u64::try_from(ids.len()).unwrap_or(u64::MAX),
        ..Comparison::default()
    };
    let clock = &api.env.clock;
    let ends_at = clock.monotonic().saturating_add(MAX_TIME);
    for month in archived::files_since(api, *since)? {
        let mut next = place.within(month.as_ref());
        if next.is_none() {
            continue;
        }
        let file = archived::file(api, month.as_ref())?;
        while let Some(before) = next {
            if found.is_full() || clock.monotonic() >= ends_at {
                found.next = Some(Place { month, before }.to_text().into());
                return Ok(found);
            }
            let newest = Newest { tenant: &call.tenant, before, limit: PAGE };
            let (page, sources) = lists::read(&file, call, |tx| {
                let page = delivery_lists::page(tx, newest, &filter)?;
                let sources = delivery_lists::sources_of(tx, &page.rows)?;
                Ok((page, sources))
            })?;
            next = page.next;
            for delivery in &page.rows {
                if found.is_full() {
                    next = Some(delivery.seq.0.saturating_add(1));
                    break;
                }
                found.look(&call.tenant, delivery, &sources, ids);
            }
        }
    }
    Ok(found)
}

impl Comparison {
    /// Whether the part ends before the next delivery.
    fn is_full(&self) -> bool {
        self.delivered >= MAX_DELIVERIES || self.items.len() >= MAX_MISSING
    }

    fn look(
        &mut self,
        tenant: &str,
        delivery: &Delivery,
        sources: &BTreeMap<i64, String>,
        ids: &BTreeSet<String>,
    ) {
        self.delivered = self.delivered.saturating_add(1);
        let source = sources.get(&delivery.seq.0).map(String::as_str).unwrap_or_default();
        let webhook_id = id::webhook_id(tenant, source, &delivery.key);
        if ids.contains(&webhook_id) || ids.contains(&delivery.key) {
            return;
        }
        self.missing = self.missing.saturating_add(1);
        self.items.push(MissingDelivery {
            delivery: delivery.seq.to_string(),
            event: delivery.event_id.clone().into(),
            of_webhook_event: delivery.of_webhook_event,
            event_type: delivery.event_type.clone(),
            webhook_id,
            key: delivery.key.clone(),
            delivered_at: delivery.finished_at,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_was_written_and_leads_through_the_files_once() {
        let may = Month::parse("2026-05");
        let april = Month::parse("2026-04");
        let june = Month::parse("2026-06");
        let in_may = Place { month: may.clone(), before: 17 };
        for place in [Place::NEWEST, in_may.clone()] {
            assert_eq!(Place::parse(&place.to_text()), Some(place));
        }
        for wrong in ["", "17", "/x", "2026-13/1", "May/1"] {
            assert_eq!(Place::parse(wrong), None, "{wrong}");
        }
        let files = [None, june.as_ref(), may.as_ref(), april.as_ref()];
        assert_eq!(files.map(|at| in_may.within(at)), [None, None, Some(17), Some(i64::MAX)]);
        let in_database = Place { month: None, before: 5 };
        assert_eq!(
            files.map(|at| in_database.within(at)),
            [Some(5), Some(i64::MAX), Some(i64::MAX), Some(i64::MAX)]
        );
    }
}
