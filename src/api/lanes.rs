//! `/v1/lanes`: which lanes wait for what, and what is in a lane. `/v1/deliveries/{id}/park` and similar routes: what a
//! person does with a delivery of a lane.
//!
//! Not here: sending a delivery with another payload ([`super::replays`]), many at once ([`super::in_doubt`]).

use crate::api::call::{MAX_REASON_CHARS, check_reason};
use crate::api::deliveries::{ID, InFlightDelivery, act, waiting};
use crate::api::in_doubt;
use crate::api::prelude::*;
use crate::api::schema::{AnyLaneId, LaneCursor, LaneId, ListPage, TrueOrFalse};
use crate::base::id::DeliverySeq;
use crate::model::delivery::{Delivery, DeliveryState};
use crate::model::lane::{self, Ordering};
use crate::model::waiting::blocked;
use crate::store::page::MAX_OF_INDEX;
use crate::store::{delivery_lists, lane_lists, settlement, subscriptions};

/// The most deliveries that are counted in a lane.
const MAX_COUNTED: u32 = 1000;
/// The most deliveries that are shown of a lane.
const MAX_SHOWN: u32 = 40;
const LANE: Param = Param::path::<AnyLaneId>("id", "The lane's id.", "lane_4711");
const SUBSCRIPTION: Param = Param::query::<SomeText>(
    "subscription",
    "Only lanes whose first delivery is for the subscription of this name.",
    "erp",
);
const BLOCKED: Param = Param::query::<TrueOrFalse>(
    "blocked",
    "Only lanes that a dead letter blocks, or only the others.",
    "",
)
.quick();
const AFTER: Param = Param::query::<LaneCursor>("after", "`next` of the previous page.", "17");

const ONE: &[Returns] = &[Returns::json::<Delivery>(200, "The delivery as it is now.")];
const REASON: &str = r#"{"reason":"the invoice was sent by hand"}"#;

/// Lanes.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Lanes",
    about: "Deliveries that go one after another. The first one is the head; a dead letter may block its lane.",
    routes: &[
        get("/v1/lanes", Read, Listed(list))
            .doc(
                "listLanes",
                "List the lanes in which something waits",
                &[SUBSCRIPTION, BLOCKED, LIMIT, AFTER],
            )
            .about("The blocked ones first.")
            .returns(&[Returns::page::<LaneAnswer>("A page of lanes.")]),
        get("/v1/lanes/{id}", Read, Listed(show))
            .doc("getLane", "Show a lane", &[LANE])
            .about("Its head or the dead letter that blocks it, its first 40 open deliveries, and parked ones.")
            .returns(&[Returns::json::<LaneDetail>(200, "The lane.")]),
        post("/v1/deliveries/{id}/park", Operate, Act("delivery.park", park))
            .doc("parkDelivery", "Set a delivery aside, so that its lane goes on", &[ID])
            .about("It waits apart until it is released. An attempt that is in flight is not stopped.")
            .returns(ONE)
            .optional_body::<Reason>(REASON),
        post("/v1/deliveries/{id}/release", Operate, Act("delivery.release", release))
            .doc("releaseDelivery", "Let a delivery be sent that is parked or in doubt", &[ID])
            .about(
                "It goes to its place in its lane. It keeps its `webhook-id`, so a consumer with a guard \
                 processes it once.",
            )
            .returns(ONE)
            .optional_body::<Reason>(REASON),
        post("/v1/deliveries/{id}/skip", Operate, Act("delivery.skip", skip))
            .doc("skipDelivery", "End a delivery without sending it", &[ID])
            .about("Its lane goes on. An attempt that is in flight is not stopped.")
            .returns(ONE)
            .optional_body::<Reason>(REASON),
        post("/v1/deliveries/{id}/move-to-end", Operate, Act("delivery.move_to_end", move_to_end))
            .doc("moveDeliveryToEnd", "Move a delivery behind all others of its lane", &[ID])
            .about("An attempt that is in flight is not stopped.")
            .returns(ONE)
            .optional_body::<Reason>(REASON),
    ],
};

/// Why a person changes a delivery.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "GivenReason")]
struct Reason {
    /// Why; kept in the audit log, and with a delivery that is parked or skipped.
    reason: Option<Is<Text<1, MAX_REASON_CHARS>>>,
}

impl Reason {
    fn read(call: &Call) -> Result<Option<String>, Problem> {
        let Self { reason } = call.optional_json()?;
        reason.as_deref().map_or(Ok(()), check_reason)?;
        Ok(bare(reason))
    }
}

/// The reason that is kept with a delivery.
fn kept(call: &Call, reason: Option<&str>, done: &str) -> String {
    let who = &call.who.display;
    reason.map_or_else(|| format!("{done} by {who}"), |reason| format!("{reason}, says {who}"))
}

/// `POST /v1/deliveries/{id}/park`
fn park(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let given = Reason::read(call)?;
    let now = api.env.clock.now();
    let reason = kept(call, given.as_deref(), "parked");
    let rule = "only a pending delivery in a lane can be parked";
    act(api, call, rule, given, move |tx, of| settlement::park(tx, of.seq, &reason, now))
}

/// `POST /v1/deliveries/{id}/release`
fn release(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let given = Reason::read(call)?;
    let now = api.env.clock.now();
    let rule = "only a delivery that is parked or in doubt can be released";
    act(api, call, rule, given, move |tx, of| settlement::release(tx, of.seq, now))
}

/// `POST /v1/deliveries/{id}/skip`
fn skip(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let given = Reason::read(call)?;
    let now = api.env.clock.now();
    let reason = kept(call, given.as_deref(), "skipped");
    let in_doubt = if given.is_some() { reason.clone() } else { in_doubt::reason(call) };
    let rule = "only a delivery that is pending, parked, dead or in doubt can be skipped";
    act(api, call, rule, given, move |tx, of| {
        let reason = if of.state == DeliveryState::InDoubt { &in_doubt } else { &reason };
        settlement::skip(tx, of.seq, reason, now)
    })
}

/// `POST /v1/deliveries/{id}/move-to-end`
fn move_to_end(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let given = Reason::read(call)?;
    let now = api.env.clock.now();
    let rule = "only a pending delivery in a lane can be moved";
    act(api, call, rule, given, move |tx, of| settlement::move_to_end(tx, of.seq, now))
}

/// `GET /v1/lanes`
fn list(api: &Api, call: &Call) -> Result<Response, Problem> {
    let query = &call.query;
    let blocked: Option<bool> = query.word("blocked", |text| text.parse().ok())?;
    let subscription = query.text("subscription");
    let limit = usize::try_from(query.limit()?).unwrap_or(usize::MAX);
    let start = query.word("after", Start::parse)?.unwrap_or(Start { is_blocked: true, after: -1 });
    let page = lists::read(api, call, |tx| {
        // A page also ends when it has counted many deliveries.
        let mut items = Vec::new();
        let mut counted = 0_u32;
        let mut start = Some(start);
        while let Some(Start { is_blocked, after }) = start {
            let tenant = call.tenant.as_str();
            let of = subscription.as_deref();
            let rest = limit.saturating_sub(items.len());
            let (found, next) = match blocked {
                Some(wanted) if wanted != is_blocked => (Vec::new(), None),
                _ => lane_lists::fronts(tx, is_blocked, tenant, of, after, rest)?,
            };
            let mut next = next;
            for (lane, front) in found {
                let item = LaneAnswer::read(api, &call.tenant, tx, lane, front, is_blocked)?;
                let Some(item) = item else { continue };
                counted = counted.saturating_add(item.waiting);
                items.push(item);
                if counted >= MAX_OF_INDEX {
                    next = Some(lane);
                    break;
                }
            }
            if let Some(after) = next {
                let next = Some(Start { is_blocked, after }.to_string());
                return Ok(ListPage { items, next });
            }
            start = is_blocked.then_some(Start { is_blocked: false, after: -1 });
        }
        Ok(ListPage { items, next: None })
    })?;
    Ok(ok(&page))
}

/// Where a page of lanes starts: first come all blocked lanes, then the others, each by number.
#[derive(Clone, Copy, Debug)]
struct Start {
    is_blocked: bool,
    after: i64,
}

impl Start {
    /// Reads the cursor: the number of a lane, and whether the blocked ones are over, in one number.
    fn parse(text: &str) -> Option<Self> {
        let number: u64 = text.parse().ok()?;
        let after = i64::try_from(number >> 1).ok()?;
        Some(Self { is_blocked: number & 1 == 0, after })
    }
}

impl std::fmt::Display for Start {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let number = (self.after.unsigned_abs() << 1) | u64::from(!self.is_blocked);
        write!(f, "{number}")
    }
}

/// `GET /v1/lanes/{id}`
fn show(api: &Api, call: &Call) -> Result<Response, Problem> {
    let lane = lane::parse_id(call.param(0)).or_not_found("lane")?;
    let tenant = &call.tenant;
    let detail = lists::read(api, call, |tx| {
        let all = |seqs: Vec<DeliverySeq>| -> StoreResult<Vec<_>> {
            let found = seqs.into_iter().map(|seq| delivery_lists::by_seq(tx, tenant, seq));
            let found = found.filter_map(Result::transpose);
            found.map(|found| Ok(InFlightDelivery::of(api, found?))).collect()
        };
        let parked = all(lane_lists::parked(tx, tenant, lane, MAX_SHOWN)?)?;
        let front = match lane_lists::front(tx, lane)? {
            Some((front, is_blocked)) => {
                LaneAnswer::read(api, tenant, tx, lane, front, is_blocked)?
            }
            None => None,
        };
        let deliveries = all(lane_lists::open(tx, lane, MAX_SHOWN)?)?;
        let is_there = !deliveries.is_empty() || !parked.is_empty() || front.is_some();
        Ok(is_there.then_some(LaneDetail { id: lane::id(lane), lane: front, deliveries, parked }))
    })?;
    detail.map(|detail| ok(&detail)).or_not_found("lane")
}

/// A lane, and what it waits for.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Lane")]
struct LaneAnswer {
    id: Is<LaneId>,
    /// The subscription of its first delivery.
    subscription: Is<NameText>,
    /// The group of subscriptions that share it.
    group: Option<String>,
    /// The key of its first delivery: `ordering_key`, else the aggregate; null if all events are in one lane.
    key: Option<String>,
    /// Whether a dead letter blocks it.
    blocked: bool,
    /// Its first delivery: its head, or the dead letter that blocks it.
    delivery: DeliverySeq,
    state: DeliveryState,
    /// Open deliveries behind that one, counted up to 1,000.
    waiting: u32,
    /// Whether there are more than were counted.
    more: bool,
    /// Since when its first delivery is there; of a dead letter, when it was given up.
    since: Timestamp,
    /// Why it waits, for a person.
    why: String,
}

impl LaneAnswer {
    /// Reads a lane with its first delivery; `None` if that is gone, or another tenant's.
    fn read(
        api: &Api,
        tenant: &str,
        tx: &ReadTx<'_>,
        lane: i64,
        front: DeliverySeq,
        is_blocked: bool,
    ) -> StoreResult<Option<Self>> {
        let Some(first) = delivery_lists::by_seq(tx, tenant, front)? else { return Ok(None) };
        let subscription = subscriptions::find(tx, tenant, &first.subscription)?;
        let terms = subscription.map(|found| (found.new.ordering, found.new.order.group.clone()));
        let (ordering, group) = terms.unwrap_or_default();
        let not_behind = u32::from(!is_blocked);
        let open = lane_lists::count(tx, lane, MAX_COUNTED + not_behind + 1)?;
        let behind = open.saturating_sub(not_behind);
        let why = if is_blocked {
            format!("{front} of {}: {}", first.about(), blocked(&first))
        } else {
            waiting(api, tx, &first)?.map(|why| why.detail).unwrap_or_default()
        };
        let given_up = first.finished_at.filter(|_| is_blocked);
        Ok(Some(Self {
            id: lane::id(lane).into(),
            key: if ordering == Ordering::Strict { None } else { key(&first) },
            subscription: first.subscription.into(),
            group,
            blocked: is_blocked,
            delivery: front,
            state: first.state,
            waiting: behind.min(MAX_COUNTED),
            more: behind > MAX_COUNTED,
            since: given_up.unwrap_or(first.created_at),
            why,
        }))
    }
}

/// What decides a delivery's lane.
fn key(of: &Delivery) -> Option<String> {
    of.ordering_key.clone().or_else(|| of.aggregate_id.is_some().then(|| of.about()))
}

/// A lane and its deliveries.
#[derive(Serialize, JsonSchema)]
struct LaneDetail<D = InFlightDelivery> {
    #[schemars(with = "LaneId")]
    id: String,
    /// What it waits for; null if only parked deliveries are left.
    lane: Option<LaneAnswer>,
    /// Its first 40 open deliveries, in its order.
    deliveries: Vec<D>,
    /// Deliveries that were taken out of it: 50 at most, of the tenant's first 20,000 parked ones.
    parked: Vec<D>,
}
