//! `/v1/subscriptions`: which events go where, and how.

use std::convert::identity;
use std::sync::Arc;

use serde::Deserializer;
use serde::de::Error as _;

use crate::api::audited::ChangeResult;
use crate::api::call::page_found;
use crate::api::prelude::*;
use crate::api::schema::TrueOrFalse;
use crate::api::sealing::{ToSeal, ids, to_seal};
use crate::api::subscription_terms::{self as terms, SecretText};
use crate::api::subscription_trials as trials;
use crate::api::terms_body::{BodyForm, TermsBody, TermsChange};
use crate::api::what_if::WhatIfPeriod;
use crate::api::what_if::terms::{AnyTrial, AskedTerms, OrTrial};
use crate::base::id::{self, SubscriptionSeq};
use crate::model::credential::Settings;
use crate::model::format::PayloadFilter;
use crate::model::hold::PastHold;
use crate::model::lane::{HeadOfLine, Ordering};
use crate::model::name::Name;
use crate::model::subscription::{
    ChosenTargetKind, NewSubscription, Subscription, SubscriptionState, SubscriptionTerms,
};
use crate::signatures::signing::SigningSecret;
use crate::store::credentials::{self, Owner};
use crate::store::routes::Route;
use crate::store::subscriptions::Wanted;
use crate::store::writer::Queue;
use crate::store::{deliveries, lanes, past_holds, settlement, subscriptions};

pub(super) const ID: Param = Param::path::<NameText>("id", "The subscription's id or name.", "erp");
const OWNER_ID: Param =
    Param::query::<SomeText>("owner_id", "Only those of this owner.", "finance");
const EVENT_TYPE: Param =
    Param::query::<SomeText>("event_type", "Only those that want this type.", "invoice.paid");

const STATE: Param =
    Param::query::<SubscriptionState>("state", "Only those in this state.", "ACTIVE");
const TROUBLED: Param = Param::query::<TrueOrFalse>(
    "troubled",
    "`true`: only those that fail or are held; `false`: only the others.",
    "true",
);

/// Lanes that go on in one transaction when their subscription stops blocking them.
const MAX_UNBLOCKED: u32 = 10_000;

/// Subscriptions.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Subscriptions",
    about: "Who wants which events, where they go and how.",
    routes: &[
        get("/v1/subscriptions", Read, Listed(list))
            .doc(
                "listSubscriptions",
                "List the subscriptions",
                &[OWNER_ID, EVENT_TYPE, STATE, TROUBLED, LIMIT, AFTER],
            )
            .about("Without their secrets.")
            .returns(&[Returns::page::<Subscription>(
                "A page of subscriptions, the oldest first.",
            )]),
        post("/v1/subscriptions", Admin, Act("subscription.create", create))
            .doc("createSubscription", "Make a subscription", &[])
            .about(
                "Events stored from the answer on are delivered to it. The answer has its \
                 signing secret, this once.",
            )
            .returns(&[
                Returns::json::<NewSubscriptionAnswer>(201, "The subscription."),
                Returns::json::<AnyTrial>(
                    200,
                    "With `try`: what would be sent. With `what_if`: what would differ.",
                ),
            ])
            .body::<SubscriptionCreation>(
                r#"{"name":"erp","url":"https://erp.example.com/hooks",
                "event_types":["invoice.*"]}"#,
            ),
        get("/v1/subscriptions/{id}", Read, Now(show))
            .doc("getSubscription", "Show a subscription", &[ID])
            .about("With what keeps it from being called.")
            .returns(&[Returns::json::<Subscription>(200, "The subscription.")]),
        patch("/v1/subscriptions/{id}", Admin, Act("subscription.change", change_one))
            .doc("changeSubscription", "Change a subscription", &[ID])
            .about("What is sent from the answer on goes by the new values. What is absent stays.")
            .returns(&[Returns::json::<OrTrial<Subscription>>(
                200,
                "The subscription as it is now; with `try`, what would be sent; with `what_if`, what would differ.",
            )])
            .body::<SubscriptionChange>(r#"{"event_types":["invoice.*","order.created"]}"#),
        delete("/v1/subscriptions/{id}", Admin, Act("subscription.delete", remove))
            .doc("deleteSubscription", "Delete a subscription", &[ID])
            .about("Refused while deliveries are open or dead.")
            .returns(&[Returns::nothing("It is deleted.")]),
        get("/v1/subscriptions/{id}/past-holds", Read, Now(list_past_holds))
            .doc("listPastHolds", "List the holds of a subscription that have ended", &[ID, LIMIT, AFTER])
            .about(
                "The newest first. Kept for 90 days, the latest 20 of each reason; the whole service keeps 10,000, and \
                 the tenant with the most loses its oldest.",
            )
            .returns(&[Returns::page::<PastHold>("A page of holds.")]),
        post("/v1/subscriptions/{id}/pause", Operate, Act("subscription.pause", pause))
            .doc("pauseSubscription", "Pause a subscription", &[ID])
            .about("Its deliveries wait. What is in flight goes on.")
            .returns(&[Returns::json::<Subscription>(200, "The subscription as it is now.")]),
        post("/v1/subscriptions/{id}/resume", Operate, Act("subscription.resume", resume))
            .doc("resumeSubscription", "Resume a subscription", &[ID])
            .about("Ends a pause and every hold but the time a target asked for, and brings back one that was disabled.")
            .returns(&[Returns::json::<Subscription>(200, "The subscription as it is now.")]),
    ],
};

/// `POST /v1/subscriptions`
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct SubscriptionCreation {
    name: Name,
    /// `http`: events are sent to `url`. `kafka`: they are written to a topic. `folder`: each is written into a file.
    /// `email`: each is sent as a mail. `pull`: consumers ask for them, and there is no `url`. It stays what it was made
    /// with. Absent: what `url` says.
    #[schemars(with = "Option<ChosenTargetKind>")]
    target: Option<String>,
    /// Where it is called; may hold `{aggregate_id}` and its like. Of `kafka`: `kafka://<cluster>/<topic>`. Of `folder`:
    /// `folder:` and an absolute path. Of `email`: `mailto:` and the addresses.
    #[schemars(with = "Option<Text<1, 2048>>")]
    url: Option<String>,
    #[schemars(flatten)]
    terms: SubscriptionTerms,
    /// To keep one the receiver has.
    #[schemars(with = "Option<SecretText>")]
    secret: Option<String>,
    /// The id of an event or a webhook event: only show what would be sent of it.
    #[schemars(with = "Option<Uuid>", rename = "try")]
    tried: Option<String>,
    /// A span, such as `7d`: only show what these terms would have done with the events stored since then, beside what
    /// the subscription does now. The newest 10,000 are looked at, for two seconds; with `next` of the answer in place of
    /// the span, the older ones.
    what_if: Option<Is<WhatIfPeriod>>,
}

impl<'de> Deserialize<'de> for SubscriptionCreation {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let form = BodyForm {
            required: Some("name"),
            before: &["name", "target", "url"],
            after: &["secret", "try", "what_if"],
            is_change: false,
        };
        let mut body = TermsBody::read(from, form)?;
        Ok(Self {
            name: Name::parse(&body.text("name").unwrap_or_default()).map_err(D::Error::custom)?,
            target: body.text("target"),
            url: body.text("url"),
            secret: body.text("secret"),
            tried: body.text("try"),
            what_if: body.text("what_if").map(Is::from),
            terms: body.change.into_terms(),
        })
    }
}

/// `PATCH /v1/subscriptions/{id}`: what is absent stays.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct SubscriptionChange {
    #[schemars(with = "Option<ChosenTargetKind>")]
    target: Option<String>,
    /// Where it is called; may hold `{aggregate_id}` and its like. Of `kafka`: `kafka://<cluster>/<topic>`. Of `folder`:
    /// `folder:` and an absolute path. Of `email`: `mailto:` and the addresses.
    #[schemars(with = "Option<Text<1, 2048>>")]
    url: Option<String>,
    #[schemars(flatten)]
    terms: TermsChange,
    /// The id of an event or a webhook event: only show what would be sent of it.
    #[schemars(with = "Option<Uuid>", rename = "try")]
    tried: Option<String>,
    /// A span, such as `7d`: only show what these terms would have done with the events stored since then, beside what
    /// the subscription does now. The newest 10,000 are looked at, for two seconds; with `next` of the answer in place of
    /// the span, the older ones.
    what_if: Option<Is<WhatIfPeriod>>,
}

impl<'de> Deserialize<'de> for SubscriptionChange {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let form = BodyForm {
            required: None,
            before: &["target", "url"],
            after: &["try", "what_if"],
            is_change: true,
        };
        let mut body = TermsBody::read(from, form)?;
        Ok(Self {
            target: body.text("target"),
            url: body.text("url"),
            tried: body.text("try"),
            what_if: body.text("what_if").map(Is::from),
            terms: body.change,
        })
    }
}

/// A subscription just made.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "NewSubscription")]
struct NewSubscriptionAnswer<T = Subscription> {
    #[serde(flatten)]
    made: T,
    /// What its requests are signed with. It is shown this once.
    #[schemars(with = "SecretText")]
    secret: String,
}

/// `POST /v1/subscriptions`: answers with the secret, this once.
pub(super) fn create(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let given: SubscriptionCreation = call.json()?;
    let secret = match &given.secret {
        None => SigningSecret::generate(&*api.env.draw),
        Some(text) => SigningSecret::parse(text).map_err(|error| {
            Problem::unprocessable(format!("The secret cannot be used: {error}."))
        })?,
    };
    let now = api.env.clock.wall();
    let target = terms::target(api, &call.tenant, given.target.as_deref(), given.url.as_deref())?;
    let new = NewSubscription {
        id: id::uuid7(now, &*api.env.draw),
        tenant: call.tenant.clone(),
        name: given.name,
        target,
        terms: given.terms,
    };
    terms::check(api, &new)?;
    trials::check_one(given.tried.as_deref(), given.what_if.as_deref())?;
    if let Some(event) = given.tried {
        return trials::show(api, call, &new, &event);
    }
    if let Some(period) = &given.what_if {
        return AskedTerms { stored: None, wanted: &new, period }.show(api, call);
    }
    let text = secret.to_text();
    let sealed = to_seal(api, now, Settings::Signing {}, &text);
    let new = PreparedTerms::of(&Arc::new(new));
    change(api, call, move |tx| {
        let made = insert(tx, &new, &sealed, now)?;
        Ok(made.shown(|made| NewSubscriptionAnswer { made, secret: text.as_str().to_owned() }))
    })
}

/// Stores a subscription and its secret, unless its name is taken or its group refuses it.
fn insert(
    tx: &WriteTx<'_>,
    prepared: &PreparedTerms,
    sealed: &ToSeal,
    now: Timestamp,
) -> ChangeResult {
    let new = &prepared.of;
    check_group(tx, new)?;
    let stored = subscriptions::insert(tx, new, now)?;
    let subscription = match stored {
        Some(seq) => {
            credentials::insert(tx, &sealed.of(&new.tenant, Owner::Subscription(seq), now))?;
            subscriptions::by_seq(tx, seq)?
        }
        None => None,
    };
    let Some(subscription) = subscription else {
        let detail = format!("There is a subscription named {:?} already.", new.name.as_str());
        return Err(Problem::conflict(detail).into());
    };
    let secrets = ids(std::slice::from_ref(sealed));
    let made = shown(&subscription, std::slice::from_ref(prepared));
    Ok(Change::made("subscription", &new.id, &made).and("credentials", secrets))
}

/// Terms, with their JSON as an answer and an audit event have it: it is made before the transaction, in which nothing
/// is parsed that a tenant wrote.
#[derive(Clone, Debug)]
struct PreparedTerms {
    of: Arc<NewSubscription>,
    /// The same without the filter, the only term whose JSON has to be parsed.
    light: Arc<NewSubscription>,
    filter: Value,
}

impl PreparedTerms {
    fn of(of: &Arc<NewSubscription>) -> Self {
        let mut light = NewSubscription::clone(of);
        light.terms.filter = PayloadFilter::default();
        Self { of: Arc::clone(of), light: Arc::new(light), filter: exact(&of.filter) }
    }
}

/// A subscription as JSON. If its terms are not among those that were prepared, another change came first.
fn shown(found: &Subscription, prepared: &[PreparedTerms]) -> Value {
    let Some(known) = prepared.iter().find(|one| Arc::ptr_eq(&one.of, &found.new)) else {
        return exact(found);
    };
    let light = Subscription { new: Arc::clone(&known.light), ..found.clone() };
    let mut json = value(&light);
    if let Some(filter) = json.get_mut("filter") {
        filter.clone_from(&known.filter);
    }
    json
}

/// `GET /v1/subscriptions`
pub(super) fn list(api: &Api, call: &Call) -> Result<Response, Problem> {
    let page = call.query.page()?;
    let wanted = Wanted {
        owner_id: call.query.get("owner_id"),
        event_type: call.query.get("event_type"),
        state: call.query.one_of("state", SubscriptionState::ALL, SubscriptionState::as_str)?,
        troubled: call.query.word("troubled", |text| text.parse().ok())?,
        after: page.after.unwrap_or(0),
        limit: page.limit,
    };
    let found = lists::read(api, call, |tx| subscriptions::page(tx, &call.tenant, wanted))?;
    Ok(page_found(&found, identity))
}

/// `GET /v1/subscriptions/{id}`
pub(super) fn show(api: &Api, call: &Call) -> Result<Response, Problem> {
    Ok(ok(&find(api, call)?))
}

/// `PATCH /v1/subscriptions/{id}`
pub(super) fn change_one(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let found = latest(api, call)?;
    if found.new.is_of_alerts() {
        return Err(of_channel(&found));
    }
    let mut wanted = NewSubscription::clone(&found.new);
    let given: SubscriptionChange = call.json()?;
    // Checked here, so that it is refused before it waits for the writer; applied there, to what stands
    // there then.
    let kind = given.target.as_deref();
    let url = given.url.as_deref();
    let target = terms::changed_target(api, &call.tenant, &wanted.target, kind, url)?;
    let apply = move |new: &mut NewSubscription| {
        given.terms.apply(&mut new.terms);
        if let Some(target) = &target {
            new.target.clone_from(target);
        }
    };
    apply(&mut wanted);
    terms::check(api, &wanted)?;
    trials::check_one(given.tried.as_deref(), given.what_if.as_deref())?;
    if let Some(event) = given.tried {
        return trials::show(api, call, &wanted, &event);
    }
    if let Some(period) = &given.what_if {
        let stored = Some((&*found.new, found.seq));
        return AskedTerms { stored, wanted: &wanted, period }.show(api, call);
    }
    let now = api.env.clock.wall();
    let is_blocking = wanted.order.head_of_line == HeadOfLine::Block;
    let was = Arc::clone(&found.new);
    let wanted = Arc::new(wanted);
    let prepared = vec![PreparedTerms::of(&was), PreparedTerms::of(&wanted)];
    let changed = act(api, call, prepared, move |tx, before| {
        let mut row = before.clone();
        if Arc::ptr_eq(&before.new, &was) {
            row.new = Arc::clone(&wanted);
        } else {
            apply(Arc::make_mut(&mut row.new));
        }
        check_group(tx, &row.new)?;
        let gives_up = row.new.ordering == Ordering::None && before.new.ordering != Ordering::None;
        if gives_up && deliveries::has_unfinished(tx, before.seq)? {
            let detail = "The order cannot be given up while deliveries are open or dead: they stand in \
                          it. Let them finish, or cancel them.";
            return Err(Problem::conflict(detail).into());
        }
        let content = |of: &NewSubscription| {
            (of.headers.clone(), of.format, of.event_headers.clone(), of.template.clone())
        };
        if row.new.target != before.new.target || content(&row.new) != content(&before.new) {
            settlement::end_holds_by_change(tx, before.seq, now)?;
        }
        if row.new.target != before.new.target || row.new.policy.probe != before.new.policy.probe {
            settlement::forget_health(tx, before.seq, now)?;
        }
        subscriptions::update(tx, &row, now)?;
        Ok(())
    })?;
    if !is_blocking {
        unblock(api, found.seq)?;
    }
    Ok(changed)
}

/// Lets the lanes of a subscription go on if its dead letters block none any more, some in each transaction.
fn unblock(api: &Api, subscription: SubscriptionSeq) -> StoreResult<()> {
    let full = usize::try_from(MAX_UNBLOCKED).unwrap_or(usize::MAX);
    loop {
        let clock = api.env.clock.clone();
        let run = move |tx: &WriteTx<'_>| {
            let found = subscriptions::routes(tx)?.get(subscription);
            if found.is_none_or(|found| found.new.order.head_of_line == HeadOfLine::Block) {
                return Ok(0);
            }
            lanes::unblock_all(tx, subscription, MAX_UNBLOCKED, clock.now())
        };
        if api.env.store.writer().write(Queue::Accept, run)? < full {
            return Ok(());
        }
    }
}

/// Refuses a subscription whose group has one of the other kind: what is in flight and what a consumer has leased cannot
/// see each other.
fn check_group(tx: &WriteTx<'_>, new: &NewSubscription) -> ChangeResult<()> {
    let is_mixed = |found: &&Arc<Route>| {
        new.order.group.is_some()
            && found.new.order.group == new.order.group
            && found.new.target.kind() != new.target.kind()
    };
    let routes = subscriptions::routes(tx)?.of(&new.tenant);
    let Some(found) = routes.iter().find(is_mixed) else { return Ok(()) };
    let name = found.new.name.as_str();
    let kind = found.new.target.kind();
    let detail = format!(
        "The order cannot be used: {name} of this group has the target {kind:?}. The subscriptions of a group have \
         the same kind of target."
    );
    Err(Problem::unprocessable(detail).into())
}

/// `POST /v1/subscriptions/{id}/pause`: its deliveries wait.
pub(super) fn pause(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let now = api.env.clock.wall();
    let detail = format!("paused by {}", call.who.display);
    let prepared = vec![PreparedTerms::of(&latest(api, call)?.new)];
    act(api, call, prepared, move |tx, before| Ok(settlement::pause(tx, before, &detail, now)?))
}

/// `POST /v1/subscriptions/{id}/resume`: ends a pause, and brings back one that was disabled.
pub(super) fn resume(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let now = api.env.clock.wall();
    let prepared = vec![PreparedTerms::of(&latest(api, call)?.new)];
    act(api, call, prepared, move |tx, before| Ok(settlement::resume(tx, before, now)?))
}

/// Does something to one subscription that stays. `prepared`: the terms that it is expected to have before and after.
fn act(
    api: &Api,
    call: &Call,
    prepared: Vec<PreparedTerms>,
    mut run: impl FnMut(&WriteTx<'_>, &Subscription) -> ChangeResult<()> + Send + 'static,
) -> Result<Audited<Value>, Problem> {
    let tenant = call.tenant.clone();
    let name = call.param(0).to_owned();
    change(api, call, move |tx| {
        let missing = || Problem::not_found("subscription");
        let before = subscriptions::find(tx, &tenant, &name)?.ok_or_else(missing)?;
        run(tx, &before)?;
        let after = subscriptions::by_seq(tx, before.seq)?.ok_or_else(missing)?;
        let was = shown(&before, &prepared);
        let is = shown(&after, &prepared);
        Ok(Change::changed("subscription", &before.new.id, &was, &is))
    })
}

/// `DELETE /v1/subscriptions/{id}`: refused while deliveries are open or dead.
pub(super) fn remove(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let tenant = call.tenant.clone();
    let name = call.param(0).to_owned();
    let now = api.env.clock.wall();
    let prepared = [PreparedTerms::of(&latest(api, call)?.new)];
    change(api, call, move |tx| {
        let before = subscriptions::find(tx, &tenant, &name)?
            .ok_or_else(|| Problem::not_found("subscription"))?;
        if before.new.is_of_alerts() {
            return Err(of_channel(&before).into());
        }
        if deliveries::has_unfinished(tx, before.seq)? {
            return Err(Problem::conflict(
                "The subscription has deliveries that are open or dead: let them finish, retry or \
                 cancel them first.",
            )
            .into());
        }
        settlement::resolve_escalations(tx, &before, now)?;
        let revoked = subscriptions::delete(tx, before.seq, now)?;
        let was = shown(&before, &prepared);
        Ok(Change::gone("subscription", &before.new.id, &was).and("revoked", revoked))
    })
}

fn of_channel(subscription: &Subscription) -> Problem {
    let name = subscription.new.name.as_str().trim_start_matches("alert-");
    Problem::conflict(format!(
        "The subscription belongs to the alert channel {name:?}: change or delete that one."
    ))
}

/// `GET /v1/subscriptions/{id}/past-holds`
fn list_past_holds(api: &Api, call: &Call) -> Result<Response, Problem> {
    let page = call.query.page()?;
    let of = find(api, call)?;
    let below = page.after.unwrap_or(i64::MAX);
    let site = subscriptions::site(&of);
    let found = api.env.store.read(|tx| past_holds::page(tx, of.seq, site, below, page.limit))?;
    Ok(page_of(&found, page, |hold| hold.seq, value))
}

/// The subscription that the path names, with the terms that the writer has: nothing is parsed.
fn latest(api: &Api, call: &Call) -> Result<Subscription, Problem> {
    let found =
        api.env.store.read(|tx| subscriptions::find_latest(tx, &call.tenant, call.param(0)))?;
    found.ok_or_else(|| Problem::not_found("subscription"))
}

/// The subscription that the path names.
pub(super) fn find(api: &Api, call: &Call) -> Result<Subscription, Problem> {
    let found = api.env.store.read(|tx| subscriptions::find(tx, &call.tenant, call.param(0)))?;
    found.ok_or_else(|| Problem::not_found("subscription"))
}
