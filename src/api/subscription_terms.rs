//! What a subscription may say, and how one is shown.
//!
//! Not here: its routes, which stand in `subscriptions`.

use serde_json::{Value, json};

use crate::api::problem::Problem;
use crate::api::{Api, own_headers};
use crate::model::lane::Ordering;
use crate::model::pattern::Patterns;
use crate::model::subscription::{
    CallMethod, Hold, NewSubscription, Policy, Source, Subscription, Target,
};
use crate::model::target_url::TargetUrl;
use crate::pipeline::destinations::{effective, lease_time};

/// What a new one goes to.
///
/// # Errors
/// 422 when the two do not go together, or events must not be sent there.
pub(super) fn target(api: &Api, kind: Option<&str>, url: Option<&str>) -> Result<Target, Problem> {
    match (kind.unwrap_or("http"), url) {
        ("http", Some(url)) => address(api, url).map(Target::Http),
        ("http", None) => Err(Problem::unprocessable(
            "url is missing: where its events are sent. Consumers ask for the events of one with \
             \"target\":\"pull\".",
        )),
        ("pull", None) => Ok(Target::Pull),
        ("pull", Some(_)) => Err(no_url()),
        (other, _) => {
            let known = Target::KINDS.join(" or ");
            let detail = format!("target cannot be {other:?}; it is {known}.");
            Err(Problem::unprocessable(detail))
        }
    }
}

/// What it goes to from now on; `None`: where it did.
///
/// # Errors
/// 422 when it is of another kind, or events must not be sent there.
pub(super) fn changed_target(
    api: &Api,
    have: &Target,
    kind: Option<&str>,
    url: Option<&str>,
) -> Result<Option<Target>, Problem> {
    if kind.is_some_and(|kind| kind != have.kind()) {
        let detail = "The target's kind stays what it was made with: make another subscription, and \
                      delete this one when it is empty.";
        return Err(Problem::unprocessable(detail));
    }
    match (have, url) {
        (_, None) => Ok(None),
        (Target::Http(_), Some(url)) => Ok(Some(Target::Http(address(api, url)?))),
        (Target::Pull, Some(_)) => Err(no_url()),
    }
}

fn no_url() -> Problem {
    Problem::unprocessable("A pull subscription has no url: consumers ask for its events.")
}

fn address(api: &Api, url: &str) -> Result<TargetUrl, Problem> {
    let wrong = |why: String| Problem::unprocessable(format!("The url cannot be used: {why}"));
    let url = TargetUrl::parse(url).map_err(|error| wrong(error.to_string()))?;
    url.check(&api.settings.get().delivery.policy())
        .map_err(|refused| wrong(refused.to_string()))?;
    Ok(url)
}

/// Which types it wants.
///
/// # Errors
/// 422 with the pattern that is none.
pub(super) fn patterns(texts: &[String]) -> Result<Patterns, Problem> {
    Patterns::parse(texts)
        .map_err(|error| Problem::unprocessable(format!("event_types cannot be used: {error}.")))
}

/// Where its events come from.
///
/// # Errors
/// 422 with the words there are.
pub(super) fn source(text: &str) -> Result<Source, Problem> {
    Source::parse(text).ok_or_else(|| {
        let detail = format!("source cannot be {text:?}; it is outbox, all, or provider:<name>.");
        Problem::unprocessable(detail)
    })
}

/// Which of its events go one after another.
///
/// # Errors
/// 422 with the words there are.
pub(super) fn ordering(text: Option<&str>) -> Result<Option<Ordering>, Problem> {
    let word = |text: &str| {
        let known = Ordering::ALL.map(Ordering::as_str).join(", ");
        let detail = format!("ordering cannot be {text:?}; it is one of {known}.");
        Ordering::parse(text).ok_or_else(|| Problem::unprocessable(detail))
    };
    text.map(word).transpose()
}

/// Whether what it says can be used, and goes together.
///
/// # Errors
/// 422 with what does not.
pub(super) fn check(api: &Api, new: &NewSubscription) -> Result<(), Problem> {
    let unusable = |error| Problem::unprocessable(format!("The policy cannot be used: {error}."));
    effective(&new.policy, &api.settings.get().delivery).map_err(unusable)?;
    lease_time(&new.policy).map_err(unusable)?;
    let Policy { timeout, in_flight_max, lease, .. } = &new.policy;
    match &new.target {
        Target::Pull if timeout.is_some() || in_flight_max.is_some() => {
            let why = "a pull subscription has a lease; timeout and in_flight_max are of requests, \
                       and none is made";
            return Err(unusable(why.to_owned()));
        }
        Target::Pull if new.method != CallMethod::default() => {
            let detail = "A pull subscription has no method: consumers ask for its events.";
            return Err(Problem::unprocessable(detail));
        }
        Target::Http(_) if lease.is_some() => {
            return Err(unusable("lease is of pull subscriptions".to_owned()));
        }
        Target::Pull | Target::Http(_) => {}
    }
    own_headers::check(&new.headers)?;
    if new.headers.len() > 32 || new.owner_id.len() > 255 {
        let detail = "A subscription has at most 32 headers and an owner_id of at most 255 bytes.";
        return Err(Problem::unprocessable(detail));
    }
    Ok(())
}

/// A subscription, without its secret.
pub(super) fn shown(subscription: &Subscription) -> Value {
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
        target,
        method,
        headers,
        policy,
        ordering,
    } = new;
    let holds: Vec<Value> = holds
        .iter()
        .map(|Hold { reason, since, detail }| {
            json!({ "reason": reason.as_str(), "since": since, "detail": detail })
        })
        .collect();
    let url = Some(target.url()).filter(|url| !url.is_empty());
    json!({
        "id": id, "tenant": tenant, "name": name, "owner_id": owner_id,
        "source": source.to_string(), "event_types": event_types, "target": target.kind(),
        "url": url, "method": method, "headers": headers, "policy": policy,
        "ordering": ordering.as_str(), "state": state.as_str(),
        "holds": holds, "failure_count": failure_count, "failing_since": failing_since,
        "last_success_at": last_success_at, "last_failure_at": last_failure_at,
        "created_at": created_at, "updated_at": updated_at,
    })
}
