//! `/v1/subscriptions`: who wants which events, where they go and how.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::Api;
use crate::api::call::{Call, answer, ok, page_of};
use crate::api::credentials::seal;
use crate::api::problem::Problem;
use crate::api::route::Answer::Now;
use crate::api::route::{Param, Resource, Returns, doc, route};
use crate::api::schema::{AFTER, LIMIT};
use crate::api::subscription_shapes as shapes;
use crate::domain::name::Name;
use crate::domain::pattern::Patterns;
use crate::domain::signature::SigningSecret;
use crate::domain::subscription::{
    CallMethod, Hold, HoldReason, NewSubscription, Policy, Source, State, Subscription,
};
use crate::domain::target_url::TargetUrl;
use crate::domain::token::Right;
use crate::flow::destinations::effective;
use crate::http::message::Method::{Delete, Get, Patch, Post};
use crate::http::message::Response;
use crate::id;
use crate::store::credentials::{self, Owner};
use crate::store::tx::WriteTx;
use crate::store::writer::Queue;
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
            Now(list),
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
            Now(create),
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
            Now(change),
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
            Now(delete),
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
            Now(pause),
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
            Now(resume),
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

/// Header fields that are ours to set.
const HEADERS_OURS: [&str; 11] = [
    "host",
    "content-length",
    "content-type",
    "transfer-encoding",
    "connection",
    "webhook-id",
    "webhook-timestamp",
    "webhook-signature",
    "x-idempotency-key",
    "traceparent",
    "expect",
];

/// Header fields that carry secrets. Headers stand in the file in the clear, so these are refused.
const HEADERS_SECRET: [&str; 5] =
    ["authorization", "proxy-authorization", "cookie", "x-api-key", "api-key"];

/// `POST /v1/subscriptions`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Creation {
    name: String,
    url: String,
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
    #[serde(default)]
    policy: Policy,
    /// To keep a secret the receiver has; a new one is made where it is absent.
    secret: Option<String>,
}

fn all_types() -> Vec<String> {
    vec!["*".to_owned()]
}

/// `PATCH /v1/subscriptions/{id}`: what is absent stays.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    url: Option<String>,
    event_types: Option<Vec<String>>,
    source: Option<String>,
    owner_id: Option<String>,
    method: Option<CallMethod>,
    headers: Option<BTreeMap<String, String>>,
    policy: Option<Policy>,
}

/// `POST /v1/subscriptions`: answers with the secret, this once.
pub(super) fn create(api: &Api, call: &Call) -> Result<Response, Problem> {
    let Creation { name, url, event_types, source, owner_id, method, headers, policy, secret } =
        call.json()?;
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
        source: source_of(source.as_deref().unwrap_or("outbox"))?,
        event_types: patterns(&event_types)?,
        url: target(api, &url)?,
        method,
        headers,
        policy,
    };
    check(api, &new)?;
    let text = secret.to_text();
    let sealed = seal(api, now, &text);
    let row = new.clone();
    let stored = api.store.writer().write(Queue::Accept, move |tx: &WriteTx<'_>| {
        let Some(seq) = subscriptions::insert(tx, &row, now)? else { return Ok(None) };
        credentials::insert(tx, &sealed.of(&row.tenant, Owner::Subscription(seq), now))?;
        subscriptions::by_seq(tx, seq)
    })?;
    let Some(subscription) = stored else {
        let detail = format!("There is a subscription named {:?} already.", new.name.as_str());
        return Err(Problem::conflict(detail));
    };
    let mut body = shown(&subscription);
    if let Value::Object(fields) = &mut body {
        fields.insert("secret".to_owned(), text.as_str().into());
    }
    Ok(answer(201, &body))
}

/// `GET /v1/subscriptions`
pub(super) fn list(api: &Api, call: &Call) -> Result<Response, Problem> {
    let page = call.query.page()?;
    let after = page.after.unwrap_or(0);
    let found = api.store.read(|tx| subscriptions::page(tx, &call.tenant, after, page.limit))?;
    Ok(page_of(&found, page, |subscription| subscription.seq.0, shown))
}

/// `GET /v1/subscriptions/{id}`
pub(super) fn show(api: &Api, call: &Call) -> Result<Response, Problem> {
    Ok(ok(&shown(&find(api, call)?)))
}

/// `PATCH /v1/subscriptions/{id}`
pub(super) fn change(api: &Api, call: &Call) -> Result<Response, Problem> {
    let mut subscription = find(api, call)?;
    let Change { url, event_types, source, owner_id, method, headers, policy } = call.json()?;
    let url = url.map(|url| target(api, &url)).transpose()?;
    let event_types = event_types.map(|texts| patterns(&texts)).transpose()?;
    let source = source.map(|text| source_of(&text)).transpose()?;
    let change = move |new: &mut NewSubscription| {
        put(&mut new.url, url.as_ref());
        put(&mut new.event_types, event_types.as_ref());
        put(&mut new.source, source.as_ref());
        put(&mut new.owner_id, owner_id.as_ref());
        put(&mut new.method, method.as_ref());
        put(&mut new.headers, headers.as_ref());
        put(&mut new.policy, policy.as_ref());
    };
    change(&mut subscription.new);
    check(api, &subscription.new)?;
    let (seq, now) = (subscription.seq, api.clock.wall());
    // Read again and written in one transaction, so that two changes at once are both kept.
    let changed = api.store.writer().write(Queue::Accept, move |tx: &WriteTx<'_>| {
        let Some(mut row) = subscriptions::by_seq(tx, seq)? else { return Ok(false) };
        change(&mut row.new);
        subscriptions::update(tx, &row, now).map(|()| true)
    })?;
    if changed { show(api, call) } else { Err(Problem::not_found("subscription")) }
}

/// `POST /v1/subscriptions/{id}/pause`: its deliveries wait.
pub(super) fn pause(api: &Api, call: &Call) -> Result<Response, Problem> {
    let subscription = find(api, call)?;
    let (seq, now) = (subscription.seq, api.clock.wall());
    let disabled = subscription.state == State::DisabledDead;
    let detail = format!("paused by {}", call.actor);
    api.store.writer().write(Queue::Accept, move |tx: &WriteTx<'_>| {
        holds::put(tx, seq, HoldReason::Paused, &detail, now)?;
        if disabled { Ok(()) } else { subscriptions::set_state(tx, seq, State::Paused, now) }
    })?;
    show(api, call)
}

/// `POST /v1/subscriptions/{id}/resume`: ends a pause, and brings back one that was disabled.
pub(super) fn resume(api: &Api, call: &Call) -> Result<Response, Problem> {
    let (seq, now) = (find(api, call)?.seq, api.clock.wall());
    api.store.writer().write(Queue::Accept, move |tx: &WriteTx<'_>| {
        holds::release(tx, seq, HoldReason::Paused)?;
        holds::release(tx, seq, HoldReason::Disabled)?;
        subscriptions::set_state(tx, seq, State::Active, now)
    })?;
    show(api, call)
}

/// `DELETE /v1/subscriptions/{id}`: refused while deliveries are open or dead.
pub(super) fn delete(api: &Api, call: &Call) -> Result<Response, Problem> {
    let (seq, now) = (find(api, call)?.seq, api.clock.wall());
    let deleted = api.store.writer().write(Queue::Accept, move |tx: &WriteTx<'_>| {
        if deliveries::has_unfinished(tx, seq)? {
            return Ok(false);
        }
        subscriptions::delete(tx, seq, now).map(|()| true)
    })?;
    if !deleted {
        return Err(Problem::conflict(
            "The subscription has deliveries that are open or dead: let them finish, retry or cancel \
             them first.",
        ));
    }
    Ok(Response::new(204))
}

/// Takes a value that was given.
fn put<T: Clone>(into: &mut T, given: Option<&T>) {
    if let Some(given) = given {
        into.clone_from(given);
    }
}

/// The subscription that the path names.
pub(super) fn find(api: &Api, call: &Call) -> Result<Subscription, Problem> {
    let found = api.store.read(|tx| subscriptions::find(tx, &call.tenant, call.param(0)))?;
    found.ok_or_else(|| Problem::not_found("subscription"))
}

fn target(api: &Api, url: &str) -> Result<TargetUrl, Problem> {
    let wrong = |why: String| Problem::unprocessable(format!("The url cannot be used: {why}"));
    let url = TargetUrl::parse(url).map_err(|error| wrong(error.to_string()))?;
    url.check(&api.settings.get().delivery.policy())
        .map_err(|refused| wrong(refused.to_string()))?;
    Ok(url)
}

fn patterns(texts: &[String]) -> Result<Patterns, Problem> {
    Patterns::parse(texts)
        .map_err(|error| Problem::unprocessable(format!("event_types cannot be used: {error}.")))
}

fn source_of(text: &str) -> Result<Source, Problem> {
    Source::parse(text).ok_or_else(|| {
        let detail = format!("source cannot be {text:?}; it is outbox, all, or provider:<name>.");
        Problem::unprocessable(detail)
    })
}

fn check(api: &Api, new: &NewSubscription) -> Result<(), Problem> {
    effective(&new.policy, &api.settings.get().delivery)
        .map_err(|error| Problem::unprocessable(format!("The policy cannot be used: {error}.")))?;
    for (name, value) in &new.headers {
        let ours = HEADERS_OURS.iter().any(|ours| name.eq_ignore_ascii_case(ours));
        if ours {
            return Err(Problem::unprocessable(format!("The header {name} is set by Oncebox.")));
        }
        if HEADERS_SECRET.iter().any(|secret| name.eq_ignore_ascii_case(secret)) {
            return Err(Problem::unprocessable(format!(
                "The header {name} carries a secret, and headers are not sealed; this version signs \
                 requests and has no other way to authenticate."
            )));
        }
        let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        let fits = !name.is_empty()
            && name.bytes().all(token)
            && value.bytes().all(|b| (b' '..=b'~').contains(&b));
        if !fits || name.len() + value.len() > 4096 {
            let detail = format!("The header {name:?} is not a valid header field.");
            return Err(Problem::unprocessable(detail));
        }
    }
    if new.headers.len() > 32 || new.owner_id.len() > 255 {
        let detail = "A subscription has at most 32 headers and an owner_id of at most 255 bytes.";
        return Err(Problem::unprocessable(detail));
    }
    Ok(())
}

fn shown(subscription: &Subscription) -> Value {
    let Subscription {
        seq: _,
        new,
        state,
        holds,
        failure_count,
        failing_since,
        last_success_at,
        last_failure_at,
        created_at,
        updated_at,
    } = subscription;
    let NewSubscription {
        id,
        tenant,
        name,
        owner_id,
        source,
        event_types,
        url,
        method,
        headers,
        policy,
    } = new;
    let holds: Vec<Value> = holds
        .iter()
        .map(|Hold { reason, since, detail }| {
            json!({ "reason": reason.as_str(), "since": since, "detail": detail })
        })
        .collect();
    json!({
        "id": id, "tenant": tenant, "name": name, "owner_id": owner_id,
        "source": source.to_string(), "event_types": event_types, "url": url.as_str(),
        "method": method, "headers": headers, "policy": policy, "state": state.as_str(),
        "holds": holds, "failure_count": failure_count, "failing_since": failing_since,
        "last_success_at": last_success_at, "last_failure_at": last_failure_at,
        "created_at": created_at, "updated_at": updated_at,
    })
}
