//! What is sent of an event: made for the first attempt of a delivery, kept for all others; and what is kept of a request.
//!
//! Fixed are body, media type and the header fields that format, template and `event_headers` make. Method, URL, the
//! subscription's own header fields and credentials are those of now, because by them a failing target is mended.

use crate::base::headers::{AGGREGATE_ID, AGGREGATE_TYPE, EVENT_TYPE, own_field};
use crate::formats::wrap;
use crate::model::attempt::Attempt;
use crate::model::delivery::OutgoingRequest;
use crate::model::format::Rendering;
use crate::model::outcome::Outcome;
use crate::model::subscription::Target;
use crate::model::target_url::is_named_like_a_secret;
use crate::pipeline::destinations::Destination;
use crate::pipeline::prelude::*;
use crate::privacy::Privacy;
use crate::store::error::Result as StoreResult;
use crate::targets::parcel::Attachment;

/// Header fields: name and value.
pub type Fields = Vec<(String, String)>;

/// How many header fields every request has, whose values are known without it: they come first.
const STANDARD: usize = 6;

/// Puts what is sent in place of the payload and its media type: what was fixed, else what the subscription makes of it.
/// Returns the header fields of it. The error says why nothing can be sent.
pub fn render(
    privacy: &Privacy,
    outgoing: &mut OutgoingRequest,
    destination: &Destination,
) -> Result<Fields, String> {
    let Some(kept) = outgoing.rendering.take() else { return destination.formats.write(outgoing) };
    let unreadable = |error: Error| format!("what was sent before cannot be read: {error}");
    let open = |sealed: &[u8]| privacy.open_whole(outgoing, sealed).map_err(unreadable);
    let (mut fields, mut body) = (kept.fields.into_bytes(), kept.body);
    if kept.is_sealed {
        let whole = body.as_deref().map(open).transpose()?;
        let (Some(opened), None | Some(Some(_))) = (open(&fields)?, &whole) else {
            // Its data was erased: it is made anew of what is left.
            return destination.formats.write(outgoing);
        };
        (fields, body) = (opened, whole.flatten());
    }
    // An envelope follows from the event and the name of the box.
    if body.is_none() {
        wrap(kept.format, destination.formats.box_name.as_deref(), outgoing)?;
    }
    let fields = serde_json::from_slice(&fields)
        .map_err(|error| format!("header fields sent before cannot be read: {error}"))?;
    outgoing.content_type = kept.content_type;
    if let Some(body) = body {
        outgoing.payload = body;
    }
    Ok(fields)
}

/// What is kept of what [`render`] has made. `stored` is the event's payload if it has sealed fields.
pub fn made(
    privacy: &Privacy,
    outgoing: &OutgoingRequest,
    destination: &Destination,
    rendered: &Fields,
    stored: Option<&[u8]>,
) -> StoreResult<Rendering> {
    let Destination { formats, .. } = destination;
    // An envelope of sealed fields is made again at each attempt: so an erasure leaves nothing of them.
    let keeps_body = formats.makes_body() || (formats.wraps() && stored.is_none());
    let mut made = Rendering {
        format: destination.subscription.new.format,
        fields: json(rendered),
        body: keeps_body.then(|| outgoing.payload.clone()),
        ..Rendering::plain(&outgoing.content_type)
    };
    if let Some(stored) = stored {
        // Opened data is never stored in the clear: what was erased meanwhile is read again.
        let seal = |made: &[u8]| {
            privacy.seal_whole(outgoing, stored, made)?.ok_or(Error::Changed("the subject's key"))
        };
        made.fields = String::from_utf8_lossy(&seal(made.fields.as_bytes())?).into_owned();
        made.body = made.body.as_deref().map(seal).transpose()?;
        made.is_sealed = true;
    }
    Ok(made)
}

/// A request as an attempt sends it. What is not sent by HTTP has no method.
#[derive(Default)]
pub struct Request {
    /// Its method.
    pub method: &'static str,
    /// Time for it, with the token that it may need.
    pub timeout: Duration,
    /// Where it goes.
    pub url: String,
    /// Its header fields.
    pub headers: Fields,
    /// Those of them that were rendered.
    pub rendered: Fields,
    /// The header field in which the event's provider names its type.
    pub type_field: Option<String>,
    /// What is attached to it.
    pub attachment: Option<Attachment>,
    /// The SHA-256 of its body.
    pub body_sha256: [u8; 32],
    /// The credential it is signed with.
    pub key_id: String,
    /// Its span in the trace.
    pub span: String,
}

impl Request {
    /// What its attempt keeps of it. `is_sealed`: the event has sealed fields, which may stand in what was rendered.
    pub fn kept(self, outcome: &Outcome, destination: &Destination, is_sealed: bool) -> Attempt {
        let mut kept = Attempt::default();
        if outcome.was_sent() && !self.method.is_empty() {
            let log_on = destination.access.log_on_field();
            // Both may have been made of sealed fields.
            let from_event = |name: &str| {
                self.rendered.iter().any(|(made, _)| made == name)
                    || self.type_field.as_deref().is_some_and(|own| own.eq_ignore_ascii_case(name))
            };
            kept.named = destination.names_events();
            // They follow from the event.
            let is_naming = |name: &str| {
                kept.named && [EVENT_TYPE, AGGREGATE_TYPE, AGGREGATE_ID].contains(&name)
            };
            let is_log_on = |name: &str| log_on.is_some_and(|own| own.eq_ignore_ascii_case(name));
            let others = self.headers.iter().skip(STANDARD);
            let others = others.filter(|(name, _)| !is_log_on(name) && !is_naming(name));
            let shown = others.map(|(name, value)| match masked(name, value, log_on) {
                Some(masked) => (name.clone(), masked),
                None if is_sealed && from_event(name) => (name.clone(), "***".to_owned()),
                None => (name.clone(), value.clone()),
            });
            let shown: Fields =
                shown.chain(log_on.map(|name| (name.to_owned(), "***".to_owned()))).collect();
            kept.fields = (!shown.is_empty()).then(|| json(&shown));
            kept.method = Some(self.method.to_owned());
            // With a plain hash, a person who knows most of a body could guess what is sealed in it.
            kept.body_sha256 = (!is_sealed).then_some(self.body_sha256);
        }
        let named = |id: String| Some(id).filter(|id| !id.is_empty());
        let mut url = self.url;
        if let (Target::Folder(folder), true) = (&destination.subscription.new.target, is_sealed) {
            // The name of a file may be made of sealed fields.
            url = format!("{}/***", folder.url());
        }
        Attempt { url, key_id: named(self.key_id), span: named(self.span), ..kept }
    }
}

/// The value of a header field with `***` in place of what is secret; `None` if nothing of it is.
pub fn masked(name: &str, value: &str, log_on: Option<&str>) -> Option<String> {
    if let Some(mask) = own_field(name) {
        return mask.map(|mask| mask(value));
    }
    let name = name.to_ascii_lowercase();
    let is_log_on = log_on.is_some_and(|own| own.eq_ignore_ascii_case(&name));
    let is_secret = is_log_on
        || is_named_like_a_secret(&name)
        || matches!(name.as_str(), "cookie" | "proxy-authorization");
    is_secret.then(|| "***".to_owned())
}

fn json(fields: &Fields) -> String {
    serde_json::to_string(fields).unwrap_or_default()
}
