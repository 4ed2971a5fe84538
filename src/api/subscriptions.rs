//! `/v1/subscriptions`: who wants which events, where they go and how.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::api::audited::{Audited, Change, change};
use crate::api::call::{Call, ok, page_of};
use crate::api::credentials::{ids, to_seal};
use crate::api::problem::Problem;
use crate::api::route::Answer::{Listed, Now};
use crate::api::route::{Answer, Param, Resource, Returns, doc, route};
use crate::api::schema::{AFTER, LIMIT};
use crate::api::subscription_terms::{self as terms, shown};
use crate::api::{Api, lists, subscription_shapes as shapes};
use crate::base::id;
use crate::http::message::Method::{Delete, Get, Patch, Post};
use crate::http::message::Response;
use crate::model::lane::Ordering;
use crate::model::name::Name;
use crate::model::strict_object;
use crate::model::subscription::{
    CallMethod, HoldReason, NewSubscription, Policy, State, Subscription,
};
use crate::model::token::Right;
use crate::signatures::signing::SigningSecret;
use crate::store::credentials::{self, Owner};
use crate::store::error::Result as StoreResult;
use crate::store::tx::WriteTx;
use crate::store::{deliveries, holds, subscriptions};

const ID: Param = Param::path("id", "The subscription's id or name.", shapes::id, "erp");

/// Who wants which events.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Subscriptions",
    about: "Who wants which events, where they go and how.",
    routes: &[
        route(
            Get,
            "/v1/subscriptions",
            Some(Right::Read),
            Listed(list),
            doc(
                "listSubscriptions",
                "List the subscriptions",
                "Without their secrets.",
                &[Returns::page("A page of subscriptions, the oldest first.", "Subscription")],
            )
            .params(&[LIMIT, AFTER]),
        ),
        route(
            Post,
            "/v1/subscriptions",
            Some(Right::Admin),
            Answer::Change("subscription.create", create),
            doc(
                "createSubscription",
                "Make a subscription",
                "Events stored from the answer on are delivered to it. The answer has its signing secret, this \
                 once.",
                &[Returns::json(201, "The subscription.", "NewSubscription")],
            )
            .body("SubscriptionCreation", shapes::creation_example),
        ),
        route(
            Get,
            "/v1/subscriptions/{id}",
            Some(Right::Read),
            Now(show),
            doc(
                "getSubscription",
                "Show a subscription",
                "With what keeps it from being called.",
                &[Returns::json(200, "The subscription.", "Subscription")],
            )
            .params(&[ID]),
        ),
        route(
            Patch,
            "/v1/subscriptions/{id}",
            Some(Right::Admin),
            Answer::Change("subscription.change", change_one),
            doc(
                "changeSubscription",
                "Change a subscription",
                "What is absent stays.",
                &[Returns::json(200, "The subscription as it is now.", "Subscription")],
            )
            .params(&[ID])
            .body("SubscriptionChange", shapes::change_example),
        ),
        route(
            Delete,
            "/v1/subscriptions/{id}",
            Some(Right::Admin),
            Answer::Change("subscription.delete", delete),
            doc(
                "deleteSubscription",
                "Delete a subscription",
                "Refused while deliveries are open or dead.",
                &[Returns::nothing("It is deleted.")],
            )
            .params(&[ID]),
        ),
        route(
            Post,
            "/v1/subscriptions/{id}/pause",
            Some(Right::Operate),
            Answer::Change("subscription.pause", pause),
            doc(
                "pauseSubscription",
                "Pause a subscription",
                "Its deliveries wait. What is in flight goes on.",
                &[Returns::json(200, "The subscription as it is now.", "Subscription")],
            )
            .params(&[ID]),
        ),
        route(
            Post,
            "/v1/subscriptions/{id}/resume",
            Some(Right::Operate),
            Answer::Change("subscription.resume", resume),
            doc(
                "resumeSubscription",
                "Resume a subscription",
                "Ends a pause, and brings back one that was disabled.",
                &[Returns::json(200, "The subscription as it is now.", "Subscription")],
            )
            .params(&[ID]),
        ),
    ],
    shapes: shapes::ALL,
};

/// `POST /v1/subscriptions`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Creation {
    name: String,
    #[serde(default)]
    target: Option<String>,
    #[serde(default)]
    url: Option<String>,
    #[serde(default = "all_types")]
    event_types: Vec<String>,
    #[serde(default)]
    source: Option<String>,
    #[serde(default)]
    owner_id: String,
    #[serde(default)]
    method: CallMethod,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "strict_object::read")]
    policy: Policy,
    #[serde(default)]
    ordering: Option<String>,
    /// To keep a secret the receiver has; a new one is made where it is absent.
    secret: Option<String>,
}

fn all_types() -> Vec<String> {
    vec!["*".to_owned()]
}

/// `PATCH /v1/subscriptions/{id}`: what is absent stays.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Alteration {
    target: Option<String>,
    url: Option<String>,
    event_types: Option<Vec<String>>,
    source: Option<String>,
    owner_id: Option<String>,
    method: Option<CallMethod>,
    headers: Option<BTreeMap<String, String>>,
    #[serde(default, deserialize_with = "strict_object::optional")]
    policy: Option<Policy>,
    ordering: Option<String>,
}

/// `POST /v1/subscriptions`: answers with the secret, this once.
pub(super) fn create(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let Creation {
        name,
        target,
        url,
        event_types,
        source,
        owner_id,
        method,
        headers,
        policy,
        ordering,
        secret,
    } = call.json()?;
    let name = Name::parse(&name).map_err(|error| Problem::unprocessable(format!("{error}.")))?;
    let secret = match secret {
        None => SigningSecret::generate(&*api.draw),
        Some(text) => SigningSecret::parse(&text).map_err(|error| {
            Problem::unprocessable(format!("The secret cannot be used: {error}."))
        })?,
    };
    let now = api.clock.wall();
    let new = NewSubscription {
        id: id::uuid7(now, &*api.draw),
        tenant: call.tenant.clone(),
        name,
        owner_id,
        source: terms::source(source.as_deref().unwrap_or("outbox"))?,
        event_types: terms::patterns(&event_types)?,
        target: terms::target(api, target.as_deref(), url.as_deref())?,
        method,
        headers,
        policy,
        ordering: terms::ordering(ordering.as_deref())?.unwrap_or_default(),
    };
    terms::check(api, &new)?;
    let text = secret.to_text();
    let sealed = to_seal(api, now, &text);
    let made = change(api, call, move |tx| {
        let stored = subscriptions::insert(tx, &new, now)?;
        let subscription = match stored {
            Some(seq) => {
                credentials::insert(tx, &sealed.of(&new.tenant, Owner::Subscription(seq), now))?;
                subscriptions::by_seq(tx, seq)?
            }
            None => None,
        };
        let Some(subscription) = subscription else {
            let detail = format!("There is a subscription named {:?} already.", new.name.as_str());
            return Ok(Err(Problem::conflict(detail)));
        };
        let body = shown(&subscription);
        let secrets = ids(std::slice::from_ref(&sealed));
        let change = Change::made("subscription", &new.id, &body).and("credentials", secrets);
        Ok(Ok((body, change)))
    })?;
    Ok(made.map(|mut body| {
        if let Value::Object(fields) = &mut body {
            fields.insert("secret".to_owned(), text.as_str().into());
        }
        body
    }))
}

/// `GET /v1/subscriptions`
pub(super) fn list(api: &Api, call: &Call) -> Result<Response, Problem> {
    let page = call.query.page()?;
    let after = page.after.unwrap_or(0);
    let found =
        lists::read(api, call, |tx| subscriptions::page(tx, &call.tenant, after, page.limit))?;
    Ok(page_of(&found, page, |subscription| subscription.seq.0, shown))
}

/// `GET /v1/subscriptions/{id}`
pub(super) fn show(api: &Api, call: &Call) -> Result<Response, Problem> {
    Ok(ok(&shown(&find(api, call)?)))
}

/// `PATCH /v1/subscriptions/{id}`
pub(super) fn change_one(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let mut wanted = find(api, call)?.new;
    let alteration: Alteration = call.json()?;
    // Checked here, so that it is refused before it waits for the writer; applied there, to what stands
    // there then.
    let (kind, url) = (alteration.target.as_deref(), alteration.url.as_deref());
    let target = terms::changed_target(api, &wanted.target, kind, url)?;
    let event_types = alteration.event_types.as_deref().map(terms::patterns).transpose()?;
    let source = alteration.source.as_deref().map(terms::source).transpose()?;
    let ordering = terms::ordering(alteration.ordering.as_deref())?;
    let apply = move |new: &mut NewSubscription| {
        let Alteration { owner_id, method, headers, policy, .. } = &alteration;
        replace(&mut new.target, target.as_ref());
        replace(&mut new.ordering, ordering.as_ref());
        replace(&mut new.event_types, event_types.as_ref());
        replace(&mut new.source, source.as_ref());
        replace(&mut new.owner_id, owner_id.as_ref());
        replace(&mut new.method, method.as_ref());
        replace(&mut new.headers, headers.as_ref());
        replace(&mut new.policy, policy.as_ref());
    };
    apply(&mut wanted);
    terms::check(api, &wanted)?;
    let now = api.clock.wall();
    act(api, call, move |tx, before| {
        let mut row = before.clone();
        apply(&mut row.new);
        let gives_up = row.new.ordering == Ordering::None && before.new.ordering != Ordering::None;
        if gives_up && deliveries::has_unfinished(tx, before.seq)? {
            let detail = "The order cannot be given up while deliveries are open or dead: they stand in \
                          it. Let them finish, or cancel them.";
            return Ok(Err(Problem::conflict(detail)));
        }
        subscriptions::update(tx, &row, now).map(Ok)
    })
}

fn replace<T: Clone>(have: &mut T, with: Option<&T>) {
    if let Some(with) = with {
        have.clone_from(with);
    }
}

/// `POST /v1/subscriptions/{id}/pause`: its deliveries wait.
pub(super) fn pause(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let now = api.clock.wall();
    let detail = format!("paused by {}", call.who.display);
    act(api, call, move |tx, before| {
        holds::put(tx, before.seq, HoldReason::Paused, &detail, now)?;
        if before.state == State::DisabledDead {
            return Ok(Ok(()));
        }
        subscriptions::set_state(tx, before.seq, State::Paused, now).map(Ok)
    })
}

/// `POST /v1/subscriptions/{id}/resume`: ends a pause, and brings back one that was disabled.
pub(super) fn resume(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let now = api.clock.wall();
    act(api, call, move |tx, before| {
        holds::release(tx, before.seq, HoldReason::Paused)?;
        holds::release(tx, before.seq, HoldReason::Disabled)?;
        subscriptions::set_state(tx, before.seq, State::Active, now).map(Ok)
    })
}

/// Does something to one subscription that stays.
fn act(
    api: &Api,
    call: &Call,
    mut run: impl FnMut(&WriteTx<'_>, &Subscription) -> StoreResult<Result<(), Problem>>
    + Send
    + 'static,
) -> Result<Audited<Value>, Problem> {
    let (tenant, name) = (call.tenant.clone(), call.param(0).to_owned());
    change(api, call, move |tx| {
        let missing = || Ok(Err(Problem::not_found("subscription")));
        let Some(before) = subscriptions::find(tx, &tenant, &name)? else { return missing() };
        if let Err(problem) = run(tx, &before)? {
            return Ok(Err(problem));
        }
        let Some(after) = subscriptions::by_seq(tx, before.seq)? else { return missing() };
        let body = shown(&after);
        let change = Change::changed("subscription", &before.new.id, &shown(&before), &body);
        Ok(Ok((body, change)))
    })
}

/// `DELETE /v1/subscriptions/{id}`: refused while deliveries are open or dead.
pub(super) fn delete(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let (tenant, name) = (call.tenant.clone(), call.param(0).to_owned());
    let now = api.clock.wall();
    change(api, call, move |tx| {
        let Some(before) = subscriptions::find(tx, &tenant, &name)? else {
            return Ok(Err(Problem::not_found("subscription")));
        };
        if deliveries::has_unfinished(tx, before.seq)? {
            return Ok(Err(Problem::conflict(
                "The subscription has deliveries that are open or dead: let them finish, retry or \
                 cancel them first.",
            )));
        }
        subscriptions::delete(tx, before.seq, now)?;
        Ok(Ok((Value::Null, Change::gone("subscription", &before.new.id, &shown(&before)))))
    })
}

/// The subscription that the path names.
pub(super) fn find(api: &Api, call: &Call) -> Result<Subscription, Problem> {
    let found = api.store.read(|tx| subscriptions::find(tx, &call.tenant, call.param(0)))?;
    found.ok_or_else(|| Problem::not_found("subscription"))
}
