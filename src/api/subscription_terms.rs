//! What a subscription may say, and how one is shown.
//!
//! Not here: its routes, which stand in `subscriptions`.

use std::collections::BTreeMap;

use crate::api::context::Api;
use crate::api::problem::Problem;
use crate::api::schema::values;
use crate::base::headers;
use crate::config::permitted;
use crate::formats::{Formats, filter};
use crate::model::database_target::DatabaseTarget;
use crate::model::folder::Folder;
use crate::model::format::Format;
use crate::model::json_path::Path;
use crate::model::kafka_topic::KafkaTopic;
use crate::model::lane::{CallKey, OrderTerms};
use crate::model::name::Name;
use crate::model::subscription::{CallMethod, NewSubscription, Policy, SubscriptionTerms, Target};
use crate::model::target_url::TargetUrl;
use crate::pipeline::destinations::{effective, lease_time};
use crate::sys::files;
use crate::targets::database::not_there;
use crate::targets::{email, kafka};

/// What a new one goes to.
/// Fails with 422 when the two do not go together, or events must not be sent there.
pub(super) fn target(
    api: &Api,
    tenant: &str,
    kind: Option<&str>,
    url: Option<&str>,
) -> Result<Target, Problem> {
    match (kind.unwrap_or_else(|| kind_of(url.unwrap_or_default())), url) {
        ("http", Some(url)) => address(api, url).map(Target::Http),
        ("kafka", Some(url)) => topic(api, url).map(Target::Kafka),
        ("folder", Some(url)) => folder(api, tenant, url).map(Target::Folder),
        ("folder", None) => Err(Problem::unprocessable(
            "url is missing: the folder that files are written to, like folder:/srv/erp/in.",
        )),
        ("database", Some(url)) => database(api, tenant, url).map(Target::Database),
        ("database", None) => Err(Problem::unprocessable(
            "url is missing: which database of the settings it is, like database:erp.",
        )),
        ("email", Some(url)) => mail_addresses(api, url).map(Target::Email),
        ("email", None) => Err(Problem::unprocessable(
            "url is missing: whom mails are sent to, like mailto:a@example.com,b@example.com.",
        )),
        ("kafka", None) => Err(Problem::unprocessable(
            "url is missing: which topic its events are written to, like kafka://centre/erp.{event_type}.",
        )),
        ("http", None) => Err(Problem::unprocessable(
            "url is missing: where its events are sent. Consumers ask for the events of one with \
             \"target\":\"pull\".",
        )),
        ("pull", None) => Ok(Target::Pull),
        ("pull", Some(_)) => Err(no_url()),
        (other, _) => {
            let known = Target::CHOSEN_KINDS.join(", ");
            let detail = format!("target cannot be {other:?}; it is {known}.");
            Err(Problem::unprocessable(detail))
        }
    }
}

/// What it goes to from now on; `None`: where it did.
/// Fails with 422 when it is of another kind, or events must not be sent there.
pub(super) fn changed_target(
    api: &Api,
    tenant: &str,
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
        (Target::Kafka(_), Some(url)) => Ok(Some(Target::Kafka(topic(api, url)?))),
        (Target::Pull, Some(_)) => Err(no_url()),
        (Target::Folder(_), Some(url)) => Ok(Some(Target::Folder(folder(api, tenant, url)?))),
        (Target::Database(_), Some(url)) => Ok(Some(Target::Database(database(api, tenant, url)?))),
        (Target::Email(_), Some(url)) => Ok(Some(Target::Email(mail_addresses(api, url)?))),
        (Target::Command(_), Some(_)) => Err(of_alerts()),
    }
}

fn of_alerts() -> Problem {
    Problem::unprocessable(
        "The owner oncebox and the target command are of alert channels: make one with POST /v1/alert-channels.",
    )
}

/// The kind of target that a URL is of.
fn kind_of(url: &str) -> &'static str {
    match url.split_once(':') {
        Some(("kafka", _)) => "kafka",
        Some(("folder", _)) => "folder",
        Some(("database", _)) => "database",
        Some(("mailto", _)) => "email",
        _ => "http",
    }
}

/// A folder that files may be written to.
/// Fails with 422 with why it may not.
fn folder(api: &Api, tenant: &str, url: &str) -> Result<Folder, Problem> {
    let folder = Folder::parse(url).map_err(unusable)?;
    let path =
        permitted(&api.env.settings.get(), tenant, folder.path(), "folders").map_err(unusable)?;
    if !path.is_dir() {
        let shown = path.display();
        return Err(unusable(format!(
            "{shown} is no folder that the service sees: make it, or mount it"
        )));
    }
    if !files::may_write(&path) {
        let shown = path.display();
        return Err(unusable(format!(
            "{shown} cannot be written by the service: give its user the right, and under systemd add \
             ReadWritePaths to the unit (docs/files.md)"
        )));
    }
    Ok(folder)
}

/// A database of the settings that the tenant may use.
/// Fails with 422 with what the settings lack.
fn database(api: &Api, tenant: &str, url: &str) -> Result<DatabaseTarget, Problem> {
    let target = DatabaseTarget::parse(url).map_err(unusable)?;
    match api.flow.databases.of_tenant(target.name(), tenant) {
        Some(_) => Ok(target),
        None => Err(unusable(not_there(target.name(), tenant))),
    }
}

/// Addresses that mails may be sent to, as they are stored.
/// Fails with 422 with why they may not.
fn mail_addresses(api: &Api, url: &str) -> Result<String, Problem> {
    let to = url.strip_prefix("mailto:");
    let to = to.ok_or_else(|| {
        unusable("of the target email it is mailto: and the addresses".to_owned())
    })?;
    let to: Vec<String> = to.split(',').map(|one| one.trim().to_owned()).collect();
    let settings = api.env.settings.get();
    let to = email::addresses(&to, &settings.alerts.allowed_domains).map_err(unusable)?;
    email::check(&settings).map_err(unusable)?;
    Ok(format!("mailto:{to}"))
}

fn no_url() -> Problem {
    Problem::unprocessable("A pull subscription has no url: consumers ask for its events.")
}

/// An address that may be called.
/// Fails with 422 with why it may not, or with the secret in it.
pub(super) fn address(api: &Api, url: &str) -> Result<TargetUrl, Problem> {
    let url = sealed_address(api, url)?;
    if let Some(name) = url.secret_in_query() {
        return Err(unusable(format!(
            "the parameter {name} carries a secret, and URLs are not sealed; leave it out, and set a credential of \
             the kind api_key or bearer instead: oncebox credential set"
        )));
    }
    Ok(url)
}

/// As [`address`], for a URL that is sealed: it may carry a secret.
pub(super) fn sealed_address(api: &Api, url: &str) -> Result<TargetUrl, Problem> {
    let url = TargetUrl::parse(url).map_err(|error| unusable(error.to_string()))?;
    url.check(&api.env.settings.get().delivery.policy())
        .map_err(|refused| unusable(refused.to_string()))?;
    Ok(url)
}

/// A topic that may be written to.
/// Fails with 422 with why it may not.
fn topic(api: &Api, url: &str) -> Result<KafkaTopic, Problem> {
    let topic = KafkaTopic::parse(url).map_err(unusable)?;
    kafka::check(&api.env.settings.get().kafka, &topic).map_err(unusable)?;
    Ok(topic)
}

fn unusable(why: String) -> Problem {
    Problem::unprocessable(format!("The url cannot be used: {why}"))
}

/// Whether what it says can be used, and goes together.
/// Fails with 422 with what does not.
pub(super) fn check(api: &Api, new: &NewSubscription) -> Result<(), Problem> {
    let unusable = |error: String| unusable_policy(&error);
    effective(new, &api.env.settings.get().delivery).map_err(unusable)?;
    lease_time(&new.policy).map_err(unusable)?;
    check_target(new)?;
    if new.is_of_alerts() {
        return Err(of_alerts());
    }
    if let (Some(probe), Target::Http(url)) = (&new.policy.probe, &new.target) {
        probe.request(url).map_err(unusable)?;
    }
    check_order(new)?;
    check_headers(&new.headers)?;
    check_content(new)
}

fn unusable_policy(why: &str) -> Problem {
    Problem::unprocessable(format!("The policy cannot be used: {why}."))
}

/// Whether its method and policy go together with its target.
fn check_target(new: &NewSubscription) -> Result<(), Problem> {
    let Policy {
        timeout, in_flight_max, lease, rate, confirm_within, classes, event_fields, ..
    } = &new.policy;
    let is_of_requests = timeout.is_some()
        || in_flight_max.is_some()
        || rate.is_some()
        || confirm_within.is_some()
        || !classes.is_empty()
        || event_fields.is_some()
        || new.policy.probe.is_some();
    let is_confirmed_over_the_api = matches!(new.target, Target::Database(_));
    match &new.target {
        Target::Pull if is_of_requests => {
            let why = "a pull subscription has a lease; timeout, in_flight_max, rate, confirm_within, \
                       classes, event_fields and probe are of requests, and none is made";
            return Err(unusable_policy(why));
        }
        Target::Pull if new.method != CallMethod::default() => {
            let detail = "A pull subscription has no method: consumers ask for its events.";
            return Err(Problem::unprocessable(detail));
        }
        Target::Kafka(_) if new.method != CallMethod::default() || new.policy.probe.is_some() => {
            let detail = "A kafka subscription has neither a method nor a probe: its records are written to a topic.";
            return Err(Problem::unprocessable(detail));
        }
        Target::Kafka(_) if event_fields.is_some() => {
            let why = "event_fields is of requests; a record has the attributes of CloudEvents as header fields";
            return Err(unusable_policy(why));
        }
        Target::Folder(_) | Target::Database(_) | Target::Email(_)
            if new.method != CallMethod::default()
                || new.policy.probe.is_some()
                || (confirm_within.is_some() && !is_confirmed_over_the_api)
                || !classes.is_empty()
                || event_fields.is_some() =>
        {
            let why = "method, probe, confirm_within, classes and event_fields are of HTTP requests, and this target \
                       gets none";
            return Err(unusable_policy(why));
        }
        Target::Http(_)
        | Target::Kafka(_)
        | Target::Folder(_)
        | Target::Database(_)
        | Target::Email(_)
            if lease.is_some() =>
        {
            return Err(unusable_policy("lease is of pull subscriptions"));
        }
        Target::Command(_) => return Err(of_alerts()),
        Target::Pull
        | Target::Http(_)
        | Target::Kafka(_)
        | Target::Folder(_)
        | Target::Database(_)
        | Target::Email(_) => {}
    }
    Ok(())
}

/// Whether the terms of its order can be used, and go together.
fn check_order(new: &NewSubscription) -> Result<(), Problem> {
    let OrderTerms {
        group, park_after, funnel_point, latest_only, external_calls, call_path, ..
    } = &new.order;
    for (field, name) in [("group", group), ("funnel_point", funnel_point)] {
        if let Some(Err(error)) = name.as_deref().map(Name::parse) {
            return Err(Problem::unprocessable(format!("order.{field}: {error}.")));
        }
    }
    let path = call_path.as_deref().map_or(Ok(()), |path| Path::checked(path).map(drop));
    let used = path.map_err(|error| format!("call_path: {error}"));
    used.and_then(|()| new.order.postponed_after().map(drop))
        .map_err(|why| Problem::unprocessable(format!("The order cannot be used: {why}.")))?;
    let is_call = external_calls.is_some();
    let wrong = if park_after.is_some() && new.order.parks_after().is_none() {
        "park_after is of head_of_line park: give both, or leave it out"
    } else if funnel_point.is_some() && new.target == Target::Pull {
        "a pull subscription has no funnel_point: consumers ask for its events. Use ordering and group"
    } else if is_call && new.target == Target::Pull {
        "external_calls is of requests, and a pull subscription makes none: its consumers have guards for that"
    } else if is_call && matches!(new.target, Target::Kafka(_)) {
        "external_calls is of requests, and a kafka subscription makes none: its consumers have guards for that"
    } else if is_call
        && matches!(new.target, Target::Folder(_) | Target::Database(_) | Target::Email(_))
    {
        "external_calls is of HTTP requests: a database has its guard, a file is written once by its name, and a mail has its Message-ID"
    } else if *latest_only && *external_calls == Some(CallKey::Event) {
        "latest_only compares states of an entity: give external_calls entity or custom with it, or none"
    } else if funnel_point.is_some() && is_call {
        "funnel_point and external_calls each keep all but one call waiting: use one of them"
    } else if is_call && new.policy.confirm_within.is_some() {
        "external_calls and confirm_within each decide when a call is done: use one of them"
    } else if (*external_calls == Some(CallKey::Custom)) != call_path.is_some() {
        "call_path is of external_calls custom: give both, or leave it out"
    } else {
        return Ok(());
    };
    Err(Problem::unprocessable(format!("The order cannot be used: {wrong}.")))
}

/// Whether format, event headers, filter and template can be used, and go together.
fn check_content(new: &NewSubscription) -> Result<(), Problem> {
    let SubscriptionTerms { format, event_headers, filter, template, .. } = &new.terms;
    let is_of_requests =
        *format != Format::default() || !event_headers.is_empty() || template.is_some();
    if is_of_requests && new.target == Target::Pull {
        let detail = "A pull subscription has no format, event_headers and template: they are of requests, and \
                      none is made.";
        return Err(Problem::unprocessable(detail));
    }
    event_headers.iter().try_for_each(|name| check_header_name(name))?;
    for name in template.iter().flat_map(|template| template.headers.keys()) {
        check_header_name(name)?;
        if new.headers.keys().any(|own| own.eq_ignore_ascii_case(name)) {
            let detail = format!("The header {name} has a value and a template: give one of them.");
            return Err(Problem::unprocessable(detail));
        }
    }
    filter::check(&filter.conditions())
        .map_err(|why| Problem::unprocessable(format!("filter cannot be used: {why}.")))?;
    Formats::check(new).map_err(|why| Problem::unprocessable(format!("{why}.")))?;
    Ok(())
}

values! {
    /// A signing secret.
    SecretText = { "type": "string", "pattern": "^whsec_[A-Za-z0-9+/]+={0,2}$" }
}

/// Refuses a field that requests have anyway.
/// Fails with 422 with the field's name.
pub(super) fn check_not_ours(name: &str) -> Result<(), Problem> {
    if headers::is_of_framing(name)
        || headers::own_field(name).is_some()
        || name.get(..3).is_some_and(|start| start.eq_ignore_ascii_case("ce-"))
    {
        return Err(Problem::unprocessable(format!("The header {name} is set by Oncebox.")));
    }
    Ok(())
}

/// Refuses our own fields, fields that carry secrets, and texts that are no header fields. Fails with 422 with the field's
/// name.
fn check_headers(headers: &BTreeMap<String, String>) -> Result<(), Problem> {
    for (name, value) in headers {
        check_header_name(name)?;
        if !headers::is_field(name, value) {
            let detail = format!("The header {name:?} is not a valid header field.");
            return Err(Problem::unprocessable(detail));
        }
    }
    Ok(())
}

/// Refuses the names of our own fields, of fields that carry secrets, and texts that are no names. Fails with 422 with the
/// name.
fn check_header_name(name: &str) -> Result<(), Problem> {
    check_not_ours(name)?;
    if let Some(kinds) = headers::credential_of(name) {
        return Err(Problem::unprocessable(format!(
            "The header {name} carries a secret, and headers are not sealed; set a credential of the kind \
             {kinds} instead: oncebox credential set."
        )));
    }
    if !headers::is_name(name) {
        let detail = format!("The header {name:?} is not a valid header field.");
        return Err(Problem::unprocessable(detail));
    }
    Ok(())
}
