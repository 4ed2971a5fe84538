//! The formats: Standard Webhooks (<https://www.standardwebhooks.com>) and `CloudEvents` 1.0 over HTTP.
//!
//! What is written depends on the event and the name of the box, never on the attempt, so that each attempt sends the same bytes.

use data_encoding::BASE64;
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::base::headers::{AGGREGATE_ID, AGGREGATE_TYPE, EVENT_TYPE};
use crate::base::text::without_mark;
use crate::model::delivery::OutgoingRequest;
use crate::model::format::Format;

/// What is encoded in a header field of an attribute: blanks, quotes, percent signs, and what is not printable ASCII.
const IN_HEADER: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');
/// What is encoded in a part of a path.
const IN_PATH: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':');

/// The media type of an event that is JSON itself.
const STRUCTURED: &str = "application/cloudevents+json";

/// Writes a request's payload in the format: body and media type take the place of its own. Returns the further header
/// fields.
pub fn write(
    format: Format,
    box_name: Option<&str>,
    outgoing: &mut OutgoingRequest,
) -> Result<Vec<(String, String)>, String> {
    let (body, content_type) = match format {
        Format::Raw => return Ok(Vec::new()),
        Format::CloudeventsBinary => return Ok(header_fields(box_name, outgoing)),
        Format::StandardWebhooks => (standard(outgoing)?, "application/json"),
        Format::CloudeventsStructured => (structured(box_name, outgoing), STRUCTURED),
    };
    outgoing.payload = body;
    content_type.clone_into(&mut outgoing.content_type);
    Ok(Vec::new())
}

#[derive(Serialize)]
struct Standard<'a> {
    r#type: &'a str,
    timestamp: String,
    data: &'a RawValue,
}

fn standard(outgoing: &OutgoingRequest) -> Result<Vec<u8>, String> {
    let data = json(&outgoing.payload)
        .ok_or("the payload is no JSON, so it cannot be `data` in the format standard_webhooks")?;
    let timestamp = outgoing.happened_at().to_string();
    Ok(bytes(&Standard { r#type: &outgoing.event_type, timestamp, data }))
}

/// The attributes of an event, in the order of the specification.
#[derive(Serialize)]
struct Attributes<'a> {
    specversion: &'static str,
    id: &'a str,
    source: String,
    r#type: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    time: String,
    traceparent: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tracestate: Option<String>,
}

impl<'a> Attributes<'a> {
    fn of(box_name: Option<&str>, outgoing: &'a OutgoingRequest) -> Self {
        let part = |text: &str| utf8_percent_encode(text, IN_PATH).to_string();
        let tenant = part(&outgoing.tenant);
        let system = part(&outgoing.source);
        // The event's own number in the trace, where requests have one for each attempt.
        let span = outgoing.event_id.replace('-', "").chars().skip(16).collect::<String>();
        Self {
            specversion: "1.0",
            id: &outgoing.webhook_id,
            source: format!("/{}/{tenant}/{system}", box_name.unwrap_or("oncebox")),
            r#type: &outgoing.event_type,
            subject: outgoing.aggregate_id.as_deref().map(|id| match &outgoing.aggregate_type {
                Some(kind) => format!("{kind}/{id}"),
                None => id.to_owned(),
            }),
            time: outgoing.happened_at().to_string(),
            traceparent: format!("00-{}-{span}-{}", outgoing.trace(), outgoing.trace_flags()),
            tracestate: outgoing.trace_state(),
        }
    }
}

/// Binary mode: attributes are header fields, and the media type is that of the body.
pub(super) fn header_fields(
    box_name: Option<&str>,
    outgoing: &OutgoingRequest,
) -> Vec<(String, String)> {
    let Attributes { specversion, id, source, r#type, subject, time, traceparent, tracestate } =
        Attributes::of(box_name, outgoing);
    let fields = [
        ("ce-specversion", Some(specversion)),
        ("ce-id", Some(id)),
        ("ce-source", Some(&source)),
        ("ce-type", Some(r#type)),
        ("ce-subject", subject.as_deref()),
        ("ce-time", Some(&time)),
        ("ce-traceparent", Some(&traceparent)),
        ("ce-tracestate", tracestate.as_deref()),
    ];
    let given = fields.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let encoded = |value: &str| utf8_percent_encode(value, IN_HEADER).to_string();
    given.map(|(name, value)| (name.to_owned(), encoded(value))).collect()
}

/// The header fields that name an event: its type and its aggregate, percent-encoded as attributes of `CloudEvents` are.
pub(super) fn naming_fields(outgoing: &OutgoingRequest) -> Vec<(String, String)> {
    let own = [
        (EVENT_TYPE, Some(&outgoing.event_type)),
        (AGGREGATE_TYPE, outgoing.aggregate_type.as_ref()),
        (AGGREGATE_ID, outgoing.aggregate_id.as_ref()),
    ];
    let given = own.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let encoded = |value: &str| utf8_percent_encode(value, IN_HEADER).to_string();
    given.map(|(name, value)| (name.to_owned(), encoded(value))).collect()
}

#[derive(Serialize)]
struct Structured<'a> {
    #[serde(flatten)]
    attributes: Attributes<'a>,
    datacontenttype: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_base64: Option<String>,
}

/// Structured mode. A payload whose media type is JSON is `data` as it is, any other is `data_base64`.
fn structured(box_name: Option<&str>, outgoing: &OutgoingRequest) -> Vec<u8> {
    let media = outgoing.content_type.split(';').next().unwrap_or_default().trim();
    let media = media.to_ascii_lowercase();
    let is_json = media.ends_with("/json") || media.ends_with("+json");
    let data = json(&outgoing.payload).filter(|_| is_json);
    let mut event = bytes(&Structured {
        attributes: Attributes::of(box_name, outgoing),
        datacontenttype: &outgoing.content_type,
        data_base64: data.is_none().then(|| BASE64.encode(&outgoing.payload)),
    });
    // A flattened struct cannot hold JSON that is written as it is.
    if let Some(data) = data
        && event.pop().is_some()
    {
        event.extend_from_slice(b",\"data\":");
        event.extend_from_slice(data.get().as_bytes());
        event.push(b'}');
    }
    event
}

/// A JSON payload to the byte, without a byte order mark.
fn json(payload: &[u8]) -> Option<&RawValue> {
    serde_json::from_str(std::str::from_utf8(without_mark(payload)).ok()?).ok()
}

/// What is written to memory, which cannot fail.
fn bytes(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}
