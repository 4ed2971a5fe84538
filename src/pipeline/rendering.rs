//! What is sent of an event: made for the first attempt of a delivery, kept for all others.
//!
//! Fixed are body, media type and the header fields that format, template and `event_headers` make. Method, URL, the
//! subscription's own header fields and credentials are those of now, because by them a failing target is mended.

use crate::base::headers::own_field;
use crate::formats::wrap;
use crate::model::delivery::OutgoingRequest;
use crate::model::format::Rendering;
use crate::model::target_url::is_named_like_a_secret;
use crate::pipeline::destinations::Destination;
use crate::pipeline::prelude::*;
use crate::privacy::Privacy;
use crate::store::error::Result as StoreResult;

/// Header fields: name and value.
pub type Fields = Vec<(String, String)>;

/// The stored rendering of a delivery, or a new one by the subscription's template. Its body and media type take the place
/// of the payload; its header fields are returned. The error says why nothing can be sent.
pub fn render(
    privacy: &Privacy,
    outgoing: &mut OutgoingRequest,
    destination: &Destination,
) -> Result<Fields, String> {
    let Some(kept) = outgoing.rendering.take() else { return destination.formats.write(outgoing) };
    let unreadable = |error: Error| format!("what was sent before cannot be read: {error}");
    let open = |sealed: &[u8]| privacy.open_whole(outgoing, sealed).map_err(unreadable);
    let mut fields = kept.fields.into_bytes();
    let mut body = kept.body;
    if kept.is_sealed {
        let whole = body.as_deref().map(open).transpose()?;
        let (Some(opened), None | Some(Some(_))) = (open(&fields)?, &whole) else {
            // Its data was erased: it is made anew of what is left.
            return destination.formats.write(outgoing);
        };
        fields = opened;
        body = whole.flatten();
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

/// The rendering to store, of what [`render`] has made. `stored` is the event's payload if it has sealed fields.
pub fn rendering_to_store(
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
        ..Rendering::raw(&outgoing.content_type)
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

/// Header fields as they are stored: a JSON array of pairs.
pub fn json(fields: &Fields) -> String {
    serde_json::to_string(fields).unwrap_or_default()
}
