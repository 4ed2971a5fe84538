//! The third step of an attempt: the request is made and signed.

use ring::digest::{SHA256, digest};

use crate::base::headers::{AGGREGATE_ID, AGGREGATE_TYPE, CONFIRM_URL, EVENT_TYPE};
use crate::formats::{FILE_NAME, add_headers};
use crate::model::attempt::Attempt;
use crate::model::delivery::{OutgoingRequest, STANDARD_FIELDS};
use crate::model::format::Format;
use crate::model::outcome::Outcome;
use crate::model::subscription::Target;
use crate::pipeline::confirmations;
use crate::pipeline::deliver::deliverer::Deliverer;
use crate::pipeline::deliver::opened::OpenedDelivery;
use crate::pipeline::destinations::Destination;
use crate::pipeline::prelude::*;
use crate::pipeline::rendering::{Fields, json, masked, render};
use crate::pipeline::scheduler::decisions::FIRST_TRY;
use crate::targets::parcel::Attachment;

/// The method of an attempt that writes to a topic.
const PRODUCE: &str = "PRODUCE";
/// The method of an attempt that writes a file.
pub(super) const WRITE: &str = "WRITE";
/// The method of an attempt that runs a statement in a database.
const RUN: &str = "RUN";
/// The method of an attempt that sends a mail.
pub(super) const MAIL: &str = "MAIL";
/// The method of an attempt whose target writes its own words: an alert by mail, a command.
const OWN_WORDS: &str = "";
/// Why a delivery of a pull subscription is not sent.
pub(super) const PULLED: &str = "its consumers fetch its events";

/// A request as an attempt sends it. Its body is the payload of its [`OutgoingRequest`].
#[derive(Default)]
pub(super) struct BuiltRequest {
    /// Its method; empty if its target writes its own words.
    pub(super) method: &'static str,
    /// Time for the work, with the token it may need.
    pub(super) timeout: Duration,
    /// Where it goes.
    pub(super) url: String,
    /// When it was signed.
    pub(super) signed_at: Timestamp,
    /// Its header fields.
    pub(super) headers: Fields,
    /// Those of them that were rendered.
    pub(super) rendered: Fields,
    /// Whether no attempt before has fixed what is rendered.
    pub(super) is_new_rendering: bool,
    /// The header field in which the event's provider names its type.
    pub(super) type_field: Option<String>,
    /// What is attached to it.
    pub(super) attachment: Option<Attachment>,
    /// The SHA-256 of its body.
    pub(super) body_sha256: [u8; 32],
    /// The credential it is signed with.
    pub(super) key_id: String,
    /// Its span in the trace.
    pub(super) span: String,
}

/// The first line of a request: how and where it is sent.
struct RequestLine {
    method: &'static str,
    url: String,
}

impl RequestLine {
    /// The line of a request to a subscription's target. The error says why there is none.
    fn new(outgoing: &OutgoingRequest, destination: &Destination) -> Result<Self, String> {
        let new = &destination.subscription.new;
        let value = |name: &str| match name {
            "id" => Some(outgoing.event_id.as_str()),
            "event_type" => Some(outgoing.event_type.as_str()),
            "aggregate_type" => outgoing.aggregate_type.as_deref(),
            "aggregate_id" => outgoing.aggregate_id.as_deref(),
            "idempotency_key" => Some(outgoing.idempotency_key.as_str()),
            _ => None,
        };
        Ok(match &new.target {
            Target::Http(url) => {
                let url = url.fill(value).map_err(|error| error.to_string())?;
                Self { method: new.method.as_str(), url }
            }
            Target::Kafka(topic) => {
                let value = |name: &str| match name {
                    "tenant" => Some(outgoing.tenant.as_str()),
                    other => value(other),
                };
                let url = format!("kafka://{}/{}", topic.cluster(), topic.fill(value)?);
                Self { method: PRODUCE, url }
            }
            // The name of the file is rendered.
            Target::Folder(_) => Self { method: WRITE, url: String::new() },
            Target::Database(database) => Self { method: RUN, url: database.url().to_owned() },
            Target::Email(url) if !new.is_of_alerts() => Self { method: MAIL, url: url.clone() },
            Target::Email(url) | Target::Command(url) => {
                Self { method: OWN_WORDS, url: url.clone() }
            }
            Target::Pull => return Err(PULLED.to_owned()),
        })
    }
}

impl Deliverer {
    /// Makes the request of a delivery. The error says why it cannot be made.
    pub(super) fn build_opened(
        &self,
        opened: &mut OpenedDelivery<'_>,
    ) -> Result<BuiltRequest, String> {
        if let Some(refusal) = opened.refusal {
            return Err(refusal.to_owned());
        }
        let signed_at = self.env.clock.for_signatures();
        let mut request = self.build(&mut opened.outgoing, &opened.destination, signed_at)?;
        if opened.is_short() {
            request.timeout = FIRST_TRY;
        }
        Ok(request)
    }

    /// Makes a request, and puts its body in place of the payload. The error says why it cannot be made.
    pub(super) fn build(
        &self,
        outgoing: &mut OutgoingRequest,
        destination: &Destination,
        signed_at: Timestamp,
    ) -> Result<BuiltRequest, String> {
        let RequestLine { method, url } = RequestLine::new(outgoing, destination)?;
        let timeout = destination.timeout;
        let is_new_rendering = outgoing.rendering.is_none();
        let mut request = BuiltRequest {
            method,
            timeout,
            url,
            signed_at,
            is_new_rendering,
            ..BuiltRequest::default()
        };
        if method == OWN_WORDS {
            return Ok(request);
        }
        request.span = self.draw_span();
        let attachment = destination.formats.attaches().then(|| Attachment {
            content_type: outgoing.content_type.clone(),
            content: outgoing.payload.clone(),
        });
        request.rendered = render(&self.env.privacy, outgoing, destination)?;
        request.body_sha256 = sha256(&outgoing.payload);
        if matches!(method, WRITE | RUN | MAIL) {
            request.attachment = attachment;
            request.name_file(destination);
            return Ok(request);
        }
        request.headers = self.headers(outgoing, destination, &request);
        destination.access.key_id().clone_into(&mut request.key_id);
        request.type_field.clone_from(&outgoing.type_field);
        Ok(request)
    }

    fn draw_span(&self) -> String {
        let mut span = [0_u8; 8];
        self.env.draw.fill_open(&mut span);
        data_encoding::HEXLOWER.encode(&span)
    }

    fn headers(
        &self,
        outgoing: &OutgoingRequest,
        destination: &Destination,
        request: &BuiltRequest,
    ) -> Fields {
        let new = &destination.subscription.new;
        let mut headers = destination.headers(outgoing, request.signed_at, &request.span);
        // A record without an envelope is a CloudEvent all the same.
        if new.format == Format::Raw && matches!(new.target, Target::Kafka(_)) {
            add_headers(&mut headers, destination.formats.attributes(outgoing));
        }
        add_headers(&mut headers, request.rendered.iter().cloned());
        let confirm_url = confirmations::url(&self.confirm_tokens, destination, outgoing);
        headers.extend(confirm_url.map(|url| (CONFIRM_URL.to_owned(), url)));
        headers
    }
}

impl BuiltRequest {
    /// Completes the URL of a file with its rendered name.
    fn name_file(&mut self, destination: &Destination) {
        let name = self.rendered.iter().find(|(field, _)| field == FILE_NAME);
        if let (WRITE, Some((_, name))) = (self.method, name) {
            self.url = format!("{}/{name}", destination.subscription.new.target.url());
        }
    }

    /// What is kept of the request: the fields of its attempt that describe it. `is_sealed`: the event has sealed fields,
    /// which may stand in what was rendered.
    pub(super) fn into_attempt(
        self,
        outcome: &Outcome,
        destination: &Destination,
        is_sealed: bool,
    ) -> Attempt {
        let mut kept = Attempt::default();
        if outcome.was_sent() && self.method != OWN_WORDS {
            kept.named = destination.names_events();
            let fields = self.shown_fields(destination, is_sealed);
            kept.fields = (!fields.is_empty()).then(|| json(&fields));
            kept.method = Some(self.method.to_owned());
            // With a plain hash, a person who knows most of a body could guess what is sealed in it.
            kept.body_sha256 = (!is_sealed).then_some(self.body_sha256);
        }
        kept.url = match &destination.subscription.new.target {
            // The name of a file may be made of sealed fields.
            Target::Folder(folder) if is_sealed => format!("{}/***", folder.url()),
            _ => self.url,
        };
        let named = |id: String| Some(id).filter(|id| !id.is_empty());
        kept.key_id = named(self.key_id);
        kept.span = named(self.span);
        kept
    }

    /// The header fields that are kept: those that do not follow from the event, without their secrets.
    fn shown_fields(&self, destination: &Destination, is_sealed: bool) -> Fields {
        let log_on = destination.access.log_on_field();
        let names_events = destination.names_events();
        // Both may have been made of sealed fields.
        let from_event = |name: &str| {
            self.rendered.iter().any(|(made, _)| made == name)
                || self.type_field.as_deref().is_some_and(|own| own.eq_ignore_ascii_case(name))
        };
        // They follow from the event.
        let is_naming =
            |name: &str| names_events && [EVENT_TYPE, AGGREGATE_TYPE, AGGREGATE_ID].contains(&name);
        let is_log_on = |name: &str| log_on.is_some_and(|own| own.eq_ignore_ascii_case(name));
        let others = self.headers.iter().skip(STANDARD_FIELDS);
        let others = others.filter(|(name, _)| !is_log_on(name) && !is_naming(name));
        let shown = others.map(|(name, value)| match masked(name, value, log_on) {
            Some(masked) => (name.clone(), masked),
            None if is_sealed && from_event(name) => (name.clone(), "***".to_owned()),
            None => (name.clone(), value.clone()),
        });
        shown.chain(log_on.map(|name| (name.to_owned(), "***".to_owned()))).collect()
    }
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, bytes).as_ref());
    hash
}
