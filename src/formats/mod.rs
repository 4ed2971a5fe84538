//! What is sent of an event: its payload in the subscription's format, or what a template makes of it, and those of its
//! header fields that the subscription names. Which events are sent at all, by conditions on their payloads.
//!
//! Pure: an event and a subscription in, a request's content or a reason out. What a subscription says stands in
//! `model::format`. Not here: signatures, and header fields that every request has (`pipeline::destinations`).

mod envelope;
mod escape;
pub mod filter;
mod naming;
mod template;
mod template_names;
mod template_value;
mod template_work;

use std::collections::BTreeMap;

use minijinja::Value;
use percent_encoding::{CONTROLS, utf8_percent_encode};
use serde::Deserialize;

use crate::model::database_target::Effect;
use crate::model::delivery::OutgoingRequest;
use crate::model::event::{OWN_SOURCE, PING};
use crate::model::format::{Format, TemplateText};
use crate::model::json::Json;
use crate::model::subscription::{NewSubscription, SubscriptionTerms, Target};

use template::{MAX_OUTPUT_BYTES, Rendered, Template};

/// Header fields of events that a subscription may name.
const MAX_EVENT_HEADERS: usize = 64;
/// How much memory a template takes for each byte of a payload.
const TEMPLATE_FACTOR: usize = 32;

/// The placeholder of a file's name among the kept header fields of a request.
pub const FILE_NAME: &str = ":file";
/// What stands for the subject of a mail among them.
pub const SUBJECT: &str = ":subject";

/// What becomes of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    /// A request or a record, with header fields.
    Request,
    /// A file.
    File,
    /// What a database is given: a payload.
    Row,
    /// A mail; whether the payload is attached.
    Mail { attaches: bool },
}

impl Content {
    fn of(new: &NewSubscription) -> Self {
        match &new.target {
            Target::Folder(_) => Self::File,
            Target::Database(_) => Self::Row,
            Target::Email(_) if !new.is_of_alerts() => {
                Self::Mail { attaches: new.template.as_ref().is_some_and(|it| it.attach) }
            }
            _ => Self::Request,
        }
    }

    /// Refuses what it has no place for. The error says what that is.
    fn check(self, new: &NewSubscription) -> Result<(), String> {
        let template = new.template.as_ref();
        let has_name = template.is_some_and(|it| it.name.is_some());
        let has_mail = template.is_some_and(|it| it.subject.is_some() || it.attach);
        let has_fields = template.is_some_and(|it| !it.headers.is_empty())
            || !new.event_headers.is_empty()
            || !new.headers.is_empty();
        let has_effect = template.is_some_and(|it| it.effect.is_some() || it.inbox.is_some());
        let is_by_fields = new.format == Format::CloudeventsBinary;
        let why = match self {
            Self::Request | Self::Row if has_name => {
                "template.name is of the targets folder and email"
            }
            Self::Request | Self::File | Self::Row if has_mail => {
                "template.subject and template.attach are of the target email"
            }
            Self::Mail { attaches: false } if has_name => {
                "template.name is the name of the attachment: give template.attach with it"
            }
            Self::File | Self::Row | Self::Mail { .. } if has_fields => {
                "files, databases and mails have no header fields of an event: leave out headers, event_headers \
                 and template.headers"
            }
            Self::File | Self::Row | Self::Mail { .. } if is_by_fields => {
                "cloudevents_binary needs header fields, which files, databases and mails do not have: use \
                 cloudevents_structured"
            }
            Self::Row => return Effect::of(template).map(drop),
            Self::Request | Self::File | Self::Mail { .. } if has_effect => {
                "template.effect and template.inbox are of the target database"
            }
            _ => return Ok(()),
        };
        Err(why.to_owned())
    }
}

/// How a subscription's requests are written, ready to be used.
#[derive(Debug)]
pub struct Formats {
    /// The name of the box that sends.
    pub box_name: Option<String>,
    content: Content,
    format: Format,
    event_headers: Vec<String>,
    template: Option<Template>,
}

impl Formats {
    /// Compiles what a subscription says; the error says which field of it cannot be used, and why.
    pub fn of(new: &NewSubscription, box_name: Option<String>) -> Result<Self, String> {
        let SubscriptionTerms { format, event_headers, template, .. } = &new.terms;
        let content = Content::of(new);
        content.check(new)?;
        if let Some(TemplateText {
            body,
            content_type,
            headers,
            escape,
            name,
            subject,
            attach,
            effect: _,
            inbox: _,
        }) = template
        {
            let is_of_body = body.is_some() || content_type.is_some();
            if is_of_body && *format != Format::Raw {
                let why = "a template of the body goes with the format raw alone";
                return Err(format!("template cannot be used: {why}"));
            }
            let has_line = name.is_some() || subject.is_some() || *attach || escape.is_some();
            let is_of_row = content == Content::Row;
            if !is_of_body && headers.is_empty() && !has_line && !is_of_row {
                return Err("template cannot be used: it has neither body nor headers".to_owned());
            }
        }
        let count = event_headers.len();
        if count > MAX_EVENT_HEADERS {
            return Err(format!(
                "event_headers has {count} names; it may have {MAX_EVENT_HEADERS}"
            ));
        }
        let is_whole = content != Content::Request;
        let compiled = template.as_ref().map(|text| Template::compile(text, is_whole)).transpose();
        let compiled = compiled.map_err(|why| format!("template cannot be used: {why}"))?;
        if let (Content::File, Some(template), Some(name)) =
            (content, &compiled, template.as_ref().and_then(|text| text.name.as_ref()))
        {
            template
                .check_file_name(name.text())
                .map_err(|why| format!("template cannot be used: {why}"))?;
        }
        Ok(Self {
            box_name,
            content,
            format: *format,
            event_headers: event_headers.clone(),
            template: compiled,
        })
    }

    /// Checks what somebody gives: [`Formats::of`], and that all names in templates exist.
    pub fn check(new: &NewSubscription) -> Result<(), String> {
        let formats = Self::of(new, None)?;
        let names = formats.template.as_ref().map_or(Ok(()), Template::check_names);
        names.map_err(|why| format!("template cannot be used: {why}"))
    }

    /// Whether the payload is sent as it is, with no further header fields.
    pub fn is_plain(&self) -> bool {
        self.content == Content::Request
            && self.format == Format::Raw
            && self.template.is_none()
            && self.event_headers.is_empty()
    }

    /// Whether a template makes the body.
    pub fn makes_body(&self) -> bool {
        self.template.as_ref().is_some_and(|it| it.has_body)
    }

    /// Whether the event's payload is attached to its mail.
    pub fn attaches(&self) -> bool {
        self.content == Content::Mail { attaches: true }
    }

    /// Whether the payload stands within an envelope.
    pub fn wraps(&self) -> bool {
        matches!(self.format, Format::StandardWebhooks | Format::CloudeventsStructured)
    }

    /// How much memory a request takes for each byte of its payload, where it is more than the payload itself.
    pub fn memory_factor(&self) -> Option<usize> {
        self.template.is_some().then_some(TEMPLATE_FACTOR)
    }

    /// Writes a request: body and media type take the place of its own. Returns the further header fields, the most
    /// important first: of two with the same name only the first may be sent. The error says why it cannot be sent.
    pub fn write(&self, outgoing: &mut OutgoingRequest) -> Result<Vec<(String, String)>, String> {
        // A ping tests the way to the target. It has nothing that a template could ask for.
        let is_ping = outgoing.source == OWN_SOURCE && outgoing.event_type == PING;
        let template = self.template.as_ref().filter(|_| !is_ping);
        let render = |template: &Template| {
            template.render(&context(outgoing)?).map_err(|why| {
                format!("the subscription's template cannot be used for this event: {why}")
            })
        };
        let mut rendered = template.map(render).transpose()?.unwrap_or_default();
        if let (true, Content::File, Some(template)) = (is_ping, self.content, &self.template) {
            // A test shows the name that events get, unless it is made of their payloads.
            rendered.name = template.name(&context(outgoing)?).unwrap_or_default();
        }
        // The attachment is the payload as it came, so its name is made before the payload is replaced.
        let mail_fields = match self.content {
            Content::Mail { attaches } => mail_fields(attaches, outgoing, &rendered)?,
            Content::Request | Content::File | Content::Row => Vec::new(),
        };
        let mut headers = envelope::write(self.format, self.box_name.as_deref(), outgoing)?;
        headers.extend(rendered.headers);
        self.add_event_headers(&mut headers, outgoing)?;
        if let Some(body) = rendered.body {
            outgoing.payload = body;
        }
        if let Some(content_type) = template.and_then(|template| template.content_type.as_ref()) {
            outgoing.content_type.clone_from(content_type);
        }
        match self.content {
            Content::Request => Ok(headers),
            Content::Row => Ok(Vec::new()),
            Content::File => {
                let name = naming::file(outgoing, rendered.name.as_deref())?;
                Ok(vec![(FILE_NAME.to_owned(), name)])
            }
            Content::Mail { .. } => Ok(mail_fields),
        }
    }

    /// The attributes of an event as header fields: those of the format `cloudevents_binary`.
    pub fn attributes(&self, outgoing: &OutgoingRequest) -> Vec<(String, String)> {
        envelope::header_fields(self.box_name.as_deref(), outgoing)
    }

    fn add_event_headers(
        &self,
        headers: &mut Vec<(String, String)>,
        outgoing: &OutgoingRequest,
    ) -> Result<(), String> {
        if self.event_headers.is_empty() {
            return Ok(());
        }
        for (name, value) in event_headers(outgoing)? {
            if !self.event_headers.iter().any(|allowed| allowed.eq_ignore_ascii_case(&name)) {
                continue;
            }
            if !value.chars().all(|c| matches!(c, ' '..='~')) {
                let why = "its value has more than printable ASCII";
                return Err(format!("the event's header field {name} cannot be sent: {why}"));
            }
            headers.push((name, value));
        }
        Ok(())
    }
}

/// What is kept of a mail beside its body: the subject, and the name of the attachment if there is one. The error says why
/// that is no name.
fn mail_fields(
    attaches: bool,
    outgoing: &OutgoingRequest,
    rendered: &Rendered,
) -> Result<Vec<(String, String)>, String> {
    let subject = naming::subject(outgoing, rendered.subject.as_deref());
    let mut fields = vec![(SUBJECT.to_owned(), subject)];
    if attaches {
        let name = naming::attachment(outgoing, rendered.name.as_deref())?;
        fields.push((FILE_NAME.to_owned(), name));
    }
    Ok(fields)
}

/// The header fields that name an event: `oncebox-event-type`, `oncebox-aggregate-type`, `oncebox-aggregate-id`. They follow
/// from the event alone.
pub fn naming_fields(outgoing: &OutgoingRequest) -> Vec<(String, String)> {
    envelope::naming_fields(outgoing)
}

/// The header field in which the provider of a webhook event names its type; `None` for others. Its value is as it came,
/// with characters encoded that no header field may have.
pub fn provider_type_field(outgoing: &OutgoingRequest) -> Option<(String, String)> {
    let name = outgoing.type_field.as_deref()?;
    let stored = event_headers(outgoing).ok()?;
    let (name, value) = stored.into_iter().find(|(stored, _)| stored.eq_ignore_ascii_case(name))?;
    Some((name, utf8_percent_encode(&value, CONTROLS).to_string()))
}

/// Writes a request's payload in a format: body and media type take the place of its own.
pub fn wrap(
    format: Format,
    box_name: Option<&str>,
    outgoing: &mut OutgoingRequest,
) -> Result<(), String> {
    envelope::write(format, box_name, outgoing).map(drop)
}

/// Adds header fields whose names are not there yet: nothing that a request has already is changed.
pub fn add_headers(
    headers: &mut Vec<(String, String)>,
    more: impl IntoIterator<Item = (String, String)>,
) {
    for (name, value) in more {
        if headers.iter().all(|(have, _)| !have.eq_ignore_ascii_case(&name)) {
            headers.push((name, value));
        }
    }
}

/// Header fields as they are stored: of an event, or of a webhook event.
#[derive(Deserialize)]
#[serde(untagged)]
enum Stored {
    Object(BTreeMap<String, String>),
    Pairs(Vec<(String, String)>),
}

fn event_headers(outgoing: &OutgoingRequest) -> Result<Vec<(String, String)>, String> {
    match serde_json::from_str(&outgoing.headers) {
        Ok(Stored::Object(fields)) => Ok(fields.into_iter().collect()),
        Ok(Stored::Pairs(fields)) => Ok(fields),
        Err(error) => Err(format!("the event's header fields cannot be read: {error}")),
    }
}

/// What a template is given; `template::VARIABLES` has the names. A payload that is no JSON is undefined in it.
fn context(outgoing: &OutgoingRequest) -> Result<Value, String> {
    let payload = outgoing.body().json_view();
    if payload.len() > MAX_OUTPUT_BYTES {
        let bytes = payload.len();
        return Err(format!(
            "a template takes payloads of {MAX_OUTPUT_BYTES} bytes; this one has {bytes}"
        ));
    }
    let headers = event_headers(outgoing)?;
    let text = |text: &str| Value::from(text);
    let optional =
        |text: &Option<String>| text.as_deref().map_or_else(|| Value::from(()), Value::from);
    let occurred_at = outgoing.occurred_at.map(|at| at.to_string());
    let context = [
        ("id", text(&outgoing.event_id)),
        ("webhook_id", text(&outgoing.webhook_id)),
        ("type", text(&outgoing.event_type)),
        ("tenant", text(&outgoing.tenant)),
        ("source_system", text(&outgoing.source)),
        ("aggregate_type", optional(&outgoing.aggregate_type)),
        ("aggregate_id", optional(&outgoing.aggregate_id)),
        ("idempotency_key", text(&outgoing.idempotency_key)),
        ("occurred_at", optional(&occurred_at)),
        ("received_at", text(&outgoing.accepted_at.to_string())),
        ("headers", Value::from_pairs(headers)),
        ("payload", Json::read(&payload).map_or(Value::UNDEFINED, template_value::of)),
    ];
    Ok(Value::from_pairs(context))
}
