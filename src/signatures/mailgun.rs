//! Mailgun: the body contains time, token and signature, and the signature covers only time and token.
//!
//! A recorded signature would be valid for any body, so each token is accepted with one body only
//! ([`super::Scheme::nonce`]).
//!
//! Not here: `parent-signature`, which webhooks of subaccounts contain as well.

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};

use super::check::{Incoming, Refused, Verified, any_match, bad_body, time_digits};
use super::conduct::GiveUp;
use super::naming::Locator::Body;
use super::naming::{Facts, StatedIdentity, json_view};
use super::signing::{Hash, mac};
use crate::base::clock::Timestamp;
use crate::model::pointer::text_at;

pub(super) static FACTS: Facts = Facts {
    ids: &[Body(&["event-data", "id"])],
    types: &[Body(&["event-data", "event"]), Body(&["event"])],
    give_up: GiveUp::NotAcceptable,
    ..Facts::new("mailgun", "delivered")
};

pub(super) fn verify(secrets: &[&[u8]], incoming: &Incoming<'_>) -> Result<Verified, Refused> {
    let field = |name| signed_field(incoming, name);
    let (Some(time), Some(token), Some(signature)) =
        (field("timestamp"), field("token"), field("signature"))
    else {
        return Err(bad_body(
            "it has no timestamp, token and signature, in JSON below signature or as fields of a form",
        ));
    };
    let at = time_digits(&time)
        .ok_or_else(|| bad_body("its timestamp is not a whole number of seconds"))?;
    // Without a token a recorded signature could not be recognised.
    if token.is_empty() {
        return Err(bad_body("its token is empty"));
    }
    let offered = HEXLOWER_PERMISSIVE
        .decode(signature.as_bytes())
        .map_err(|_where| bad_body("its signature is not hex"))?;
    let secret = any_match(secrets, &[offered], |secret| {
        Some(mac(Hash::Sha256, secret, &[time.as_bytes(), token.as_bytes()]))
    })?;
    Ok(Verified { secret, signed_at: Some(Timestamp::from_secs(at)) })
}

/// A field of the signature: in JSON below `signature`; in the forms of routes and older webhooks beside the others.
pub(super) fn signed_field(incoming: &Incoming<'_>, name: &str) -> Option<String> {
    let view = json_view(incoming);
    text_at(&view, &["signature", name]).or_else(|| text_at(&view, &[name]))
}

/// The id and type of a request. Mail that a route forwards has no event id: its message and recipient name it.
pub(super) fn identify(incoming: &Incoming<'_>) -> StatedIdentity {
    let stated = FACTS.identify(incoming);
    if stated != StatedIdentity::default() {
        return stated;
    }
    let field = |name| text_at(incoming.body, &[name]).filter(|text| !text.is_empty());
    let message = field("Message-Id").or_else(|| field("message-id"));
    let id = message.zip(field("recipient")).map(|(message, to)| format!("{message}:{to}"));
    let is_mail = id.is_some() || field("body-plain").is_some();
    StatedIdentity { event_id: id, event_type: is_mail.then(|| "mail".to_owned()) }
}

/// The signature in hex.
pub(super) fn sign(secret: &str, time: &str, token: &str) -> String {
    let parts = [time.as_bytes(), token.as_bytes()];
    HEXLOWER.encode(&mac(Hash::Sha256, secret.as_bytes(), &parts))
}
