//! The mails themselves: of an alert, and of an event.
//!
//! The Message-ID follows from the `webhook-id`, so it is the same at every attempt, and a receiver can drop a mail that
//! comes twice.

use std::time::{Duration, SystemTime};

use lettre::Message as Mail;
use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::message::{Attachment, Mailbox, MessageBuilder, MultiPart, SinglePart};

use crate::alerts::message::Message;
use crate::base::clock::Timestamp;
use crate::config::Smtp;
use crate::formats::{FILE_NAME, SUBJECT};
use crate::sys::host::machine_name;
use crate::targets::parcel::Parcel;

/// A mail that tells of an alert.
pub(super) fn of_alert(
    smtp: &Smtp,
    to: &str,
    parcel: &Parcel<'_>,
    message: &Message,
) -> Result<Mail, String> {
    let subject = format!("{}: {}", machine_name(), message.title);
    begun(smtp, to, &parcel.outgoing.webhook_id, parcel.at)?
        .subject(subject)
        .header(ContentType::TEXT_PLAIN)
        .body(message.text.clone())
        .map_err(|error| error.to_string())
}

/// A mail that carries an event. A mailbox may get the same event of several subscriptions, each with a mail of its own,
/// so the Message-ID names the subscription too.
pub(super) fn of_event(smtp: &Smtp, to: &str, parcel: &Parcel<'_>) -> Result<Mail, String> {
    let rendered = |name: &str| {
        let found = parcel.rendered.iter().find(|(field, _)| field == name);
        found.map(|(_, value)| value.clone())
    };
    let id = format!("{}.{}", parcel.outgoing.webhook_id, parcel.subscription.new.name.as_str());
    let builder = begun(smtp, to, &id, parcel.at)?.subject(rendered(SUBJECT).unwrap_or_default());
    let text = String::from_utf8(parcel.outgoing.payload.clone()).map_err(|_bytes| {
        "the event is no text: give a template of the body, and --attach for the event itself"
            .to_owned()
    })?;
    let is_html = parcel.outgoing.content_type.to_ascii_lowercase().starts_with("text/html");
    let kind = if is_html { ContentType::TEXT_HTML } else { ContentType::TEXT_PLAIN };
    let text = SinglePart::builder().header(kind).body(text);
    let mail = match parcel.attachment {
        None => builder.singlepart(text),
        Some(attached) => {
            let kind = ContentType::parse(&attached.content_type)
                .or_else(|_| ContentType::parse("application/octet-stream"))
                .map_err(|error| error.to_string())?;
            let name = rendered(FILE_NAME).unwrap_or_default();
            let file = Attachment::new(name).body(attached.content.clone(), kind);
            builder.multipart(MultiPart::mixed().singlepart(text).singlepart(file))
        }
    };
    let mut mail = mail.map_err(|error| error.to_string())?;
    // Programs that answer mails by themselves do not answer this one (RFC 3834).
    let field = HeaderName::new_from_ascii_str("Auto-Submitted");
    mail.headers_mut().insert_raw(HeaderValue::new(field, "auto-generated".to_owned()));
    Ok(mail)
}

/// A mail with sender, receivers, date and Message-ID.
fn begun(smtp: &Smtp, to: &str, id: &str, at: Timestamp) -> Result<MessageBuilder, String> {
    let host = smtp.host.as_deref().unwrap_or("localhost");
    let from = smtp.from.clone().unwrap_or_else(|| format!("oncebox@{host}"));
    let from: Mailbox = from.parse().map_err(|error| format!("smtp.from is {from:?}: {error}"))?;
    let id = format!("<{id}@{}>", from.email.domain());
    let date = SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(at.secs()).unwrap_or(0));
    let mut builder = Mail::builder().from(from).date(date).message_id(Some(id));
    for address in to.split(',') {
        let wrong = |error| format!("{address:?}: {error}");
        builder = builder.to(address.parse().map_err(wrong)?);
    }
    Ok(builder)
}
