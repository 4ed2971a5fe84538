//! The member `try` of a subscription that is made or changed: what would be sent of a stored event. Nothing is saved,
//! and nothing is sent.
//!
//! What is sealed in the event stays hidden: it is opened in what is sent alone.

use data_encoding::BASE64;
use serde_json::Map;

use crate::api::call::SHOWN_FACTOR;
use crate::api::prelude::*;
use crate::api::schema::Base64;
use crate::base::id::SubscriptionSeq;
use crate::formats::filter::{self, FilterVerdict, Payload};
use crate::formats::{FILE_NAME, Formats, SUBJECT, add_headers};
use crate::model::delivery::OutgoingRequest;
use crate::model::event::OWN_SOURCE;
use crate::model::lane::Key;
use crate::model::sealed;
use crate::model::subscription::{NewSubscription, Routed};
use crate::store::deliveries;

/// The members of a body that ask for a trial.
const TRIALS: [&str; 2] = ["try", "what_if"];

/// What would be sent of an event. Nothing was saved or sent.
#[derive(Serialize, JsonSchema)]
pub(super) struct Trial<'a> {
    #[schemars(with = "Uuid")]
    event: &'a str,
    /// Whether the subscription wants the event.
    matches: bool,
    /// Why it does not.
    why_not: Option<String>,
    /// The name of the file, or of the attachment.
    #[serde(skip_serializing_if = "Option::is_none")]
    file_name: Option<String>,
    /// The subject of the mail.
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    /// The request's header fields, but for those of signatures and credentials.
    headers: Map<String, Value>,
    /// The request's body, where it is text. What is sealed in the event stays hidden.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    body: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Base64")]
    body_base64: Option<String>,
}

/// Whether a call asks for a trial.
pub(super) fn is_asked(call: &Call) -> bool {
    let may_ask = call.action.starts_with("subscription.")
        || matches!(call.action, "event_type.set" | "provider.change");
    may_ask && has_event(&call.request.body)
}

fn has_event(body: &[u8]) -> bool {
    let members = serde_json::from_slice::<Map<String, Value>>(body);
    members.is_ok_and(|members| TRIALS.iter().any(|name| members.contains_key(*name)))
}

/// Refuses a body that asks for two trials at once.
pub(super) fn check_one(event: Option<&str>, period: Option<&str>) -> Result<(), Problem> {
    match (event, period) {
        (Some(_), Some(_)) => Err(Problem::unprocessable("Give either try or what_if.")),
        _ => Ok(()),
    }
}

/// Shows what a subscription would send of an event or a webhook event.
/// Fails with 404 where there is no such event, and with 422 where it cannot be sent.
pub(super) fn show(
    api: &Api,
    call: &Call,
    new: &NewSubscription,
    event: &str,
) -> Result<Audited<Value>, Problem> {
    let event_of = (call.tenant.as_str(), event);
    let found =
        api.env.store.read(|tx| deliveries::outgoing_of_event(tx, SubscriptionSeq(0), event_of))?;
    let mut outgoing = found.ok_or_else(|| Problem::not_found("event"))?;
    let box_name = api.env.settings.get().r#box.name.clone();
    let formats =
        Formats::of(new, box_name).map_err(|why| Problem::unprocessable(format!("{why}.")))?;
    let factor = formats.memory_factor().unwrap_or(SHOWN_FACTOR);
    let _share = api.share(outgoing.payload.len().saturating_mul(factor))?;
    let why_not = why_not(new, &outgoing, None);
    let mut headers = match written(new, &formats, &mut outgoing) {
        Ok(headers) => headers,
        // Its template was not made for such events.
        Err(_) if !takes(new, &outgoing, None) => {
            outgoing.payload.clear();
            Vec::new()
        }
        Err(why) => {
            return Err(Problem::unprocessable(format!("This event cannot be sent: {why}.")));
        }
    };
    let mut taken = |name: &str| {
        let at = headers.iter().position(|(field, _)| field == name)?;
        Some(headers.remove(at).1)
    };
    let file_name = taken(FILE_NAME);
    let subject = taken(SUBJECT);
    let body = std::str::from_utf8(&outgoing.payload).ok();
    Ok(Audited::dry_run(value(Trial {
        event,
        matches: why_not.is_none(),
        why_not,
        file_name,
        subject,
        headers: headers.into_iter().map(|(name, value)| (name, value.into())).collect(),
        body,
        body_base64: body.is_none().then(|| BASE64.encode(&outgoing.payload)),
    })))
}

/// Writes what would be sent of an event: the body takes the place of its payload. Returns the header fields, but for those
/// of signatures and credentials. The error says why it cannot be sent.
pub(super) fn written(
    new: &NewSubscription,
    formats: &Formats,
    outgoing: &mut OutgoingRequest,
) -> Result<Vec<(String, String)>, String> {
    if outgoing.sealed_fields > 0 {
        outgoing.payload = sealed::redact(&outgoing.payload);
    }
    let more = formats.write(outgoing)?;
    let mut headers = vec![("content-type".to_owned(), outgoing.content_type.clone())];
    add_headers(&mut headers, new.headers.clone());
    add_headers(&mut headers, more);
    Ok(headers)
}

/// Whether a subscription takes events of this source and type.
fn takes(new: &NewSubscription, outgoing: &OutgoingRequest, target: Option<&str>) -> bool {
    new.wants(Routed {
        tenant: &outgoing.tenant,
        provider: outgoing.source.strip_prefix("in:"),
        is_own: outgoing.source == OWN_SOURCE,
        event_type: &outgoing.event_type,
        target,
        key: Key::default(),
    })
}

/// Why a subscription does not want an event; `None`: it does. `target`: the only subscription that the event is for.
pub(super) fn why_not(
    new: &NewSubscription,
    outgoing: &OutgoingRequest,
    target: Option<&str>,
) -> Option<String> {
    if !takes(new, outgoing, target) {
        return Some("its source or its event_types do not match".to_owned());
    }
    // An event that names its target passes the filter by.
    if new.filter.is_empty() || target.is_some() {
        return None;
    }
    let payload = Payload::read(&outgoing.body().json_view());
    let conditions = new.filter.conditions();
    let (unmet, verdict) = filter::unmet(&conditions, &payload)?;
    Some(match verdict {
        FilterVerdict::Unknown(why) => format!("its filter cannot be applied: {why}"),
        _ => format!("the condition does not hold: {} {} {}", unmet.path, unmet.op, unmet.value),
    })
}

#[cfg(test)]
mod tests {
    use super::has_event;

    #[test]
    fn a_trial_is_recognized_however_its_member_is_written() {
        for body in
            [r#"{"try":"a"}"#, r#"{"what_if":"7d"}"#, r#"{ "name": "b", "\u0074ry" : null }"#]
        {
            assert!(has_event(body.as_bytes()), "{body}");
        }
        for body in ["", "{}", "[]", r#"{"template":{"try":1}}"#, r#"{"name":"try"}"#] {
            assert!(!has_event(body.as_bytes()), "{body}");
        }
    }
}
