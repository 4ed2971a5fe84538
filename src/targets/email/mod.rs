//! E-mail over the mail server of the settings: of alerts, and of events. Both are sent the same way and counted by
//! themselves; they differ in what is composed.
//!
//! A mail server cannot tell whether it has a mail already: after a lost answer a mail is sent again, with the same
//! Message-ID.

mod compose;
mod server;

use crate::alerts::channel::reserved;
use crate::alerts::message::Message;
use crate::base::clock::Timestamp;
use crate::config::Settings;
use crate::env::Env;
use crate::http::trace::StepName;
use crate::model::outcome::Outcome;
use crate::store::tenants::{self, MailKind};
use crate::store::tx::WriteTx;
use crate::store::writer::Queue;
use crate::targets::parcel::{Parcel, Sends};

pub use server::{MAIL_SERVER, check};

/// The most addresses of a channel, or of a subscription.
const MAX_ADDRESSES: usize = 20;

/// Sends e-mails.
#[derive(Debug)]
pub struct Email {
    /// The environment: its file counts a tenant's e-mails of the day, its settings name the mail server.
    pub env: Env,
}

/// How many mails a tenant may still send today.
struct Limit {
    kind: MailKind,
    /// Mails of a day at most, without those that are kept back.
    max: u32,
    /// What to tell a person when they are used up.
    reason: String,
}

impl Sends for Email {
    /// Sends an e-mail, if the tenant has any left today, and counts it.
    fn send(&self, parcel: &Parcel<'_>) -> Outcome {
        let settings = self.env.settings.get();
        let to = parcel.call.url.strip_prefix("mailto:").unwrap_or(parcel.call.url);
        let (limit, mail) = if parcel.subscription.new.is_of_alerts() {
            let message: Message = match serde_json::from_slice(&parcel.outgoing.payload) {
                Ok(message) => message,
                Err(error) => {
                    let reason = format!("the payload is not an alert: {error}");
                    return Outcome::Unbuildable { reason };
                }
            };
            let mail = compose::of_alert(&settings.smtp, to, parcel, &message);
            (Limit::of_alert(&settings, &message), mail)
        } else {
            (Limit::of_events(&settings), compose::of_event(&settings.smtp, to, parcel))
        };
        let tenant = &parcel.outgoing.tenant;
        let today = self.env.clock.wall();
        if let Some(outcome) = self.exceeded(tenant, today, &limit) {
            return outcome;
        }
        let mail = match mail {
            Ok(mail) => mail,
            Err(reason) => return Outcome::Unbuildable { reason },
        };
        // What is missing in the settings is the administrator's to add: the mail waits for it.
        if let Err(reason) = permitted(to, &settings.alerts.allowed_domains) {
            return Outcome::Blocked { reason };
        }
        let outcome = server::send(&settings, &mail);
        if let Outcome::Accepted { excerpt } = &outcome {
            self.count(tenant, today, limit.kind);
            if let Some(trace) = parcel.trace {
                trace.note(StepName::Answer, excerpt.as_str());
            }
        }
        outcome
    }
}

impl Email {
    /// The outcome if the mails of the day are used up.
    fn exceeded(&self, tenant: &str, today: Timestamp, limit: &Limit) -> Option<Outcome> {
        match self.env.store.read(|tx| tenants::mails(tx, tenant, today, limit.kind)) {
            Ok(sent) if sent < limit.max => None,
            Ok(_) => {
                // The day is that of the count.
                let wait = tenants::end_of_day(today).since(today);
                Some(Outcome::Postponed { wait, reason: limit.reason.clone() })
            }
            Err(error) => Some(Outcome::Blocked { reason: error.to_string() }),
        }
    }

    fn count(&self, tenant: &str, today: Timestamp, kind: MailKind) {
        let tenant = tenant.to_owned();
        let count = move |tx: &WriteTx<'_>| tenants::count_mail(tx, &tenant, today, kind);
        if let Err(error) = self.env.store.writer().write(Queue::Settle, count) {
            tracing::error!(%error, "an e-mail was sent and is not counted");
        }
    }
}

impl Limit {
    fn of_alert(settings: &Settings, message: &Message) -> Self {
        let max = settings.alerts.emails_per_day_max;
        let reserve = if message.is_urgent() { 0 } else { reserved(max) };
        let kept = if reserve > 0 {
            format!("; {reserve} of them are kept for critical alerts")
        } else {
            String::new()
        };
        let reason = format!(
            "the {max} e-mails of the tenant's day (UTC) are sent (alerts.emails_per_day_max in the settings){kept}"
        );
        Self { kind: MailKind::Alert, max: max.saturating_sub(reserve), reason }
    }

    fn of_events(settings: &Settings) -> Self {
        let max = settings.smtp.event_mails_per_day_max;
        let reason = format!(
            "the {max} e-mails of events of the tenant's day (UTC) are sent (smtp.event_mails_per_day_max in the settings)"
        );
        Self { kind: MailKind::Event, max, reason }
    }
}

/// Checks addresses; returns them as they are stored.
pub fn addresses(texts: &[String], allowed: &[String]) -> Result<String, String> {
    if !(1..=MAX_ADDRESSES).contains(&texts.len()) {
        return Err(format!("has {} addresses; it must have 1 to {MAX_ADDRESSES}", texts.len()));
    }
    for text in texts {
        let wrong = |why: String| format!("has {text:?}, which is no e-mail address: {why}");
        text.parse::<lettre::Address>().map_err(|error| wrong(error.to_string()))?;
        if !text.bytes().all(|b| b.is_ascii_graphic() && !b",<>\"?&%".contains(&b)) {
            return Err(wrong("use letters, digits and the usual signs only".to_owned()));
        }
        permitted(text, allowed).map_err(|why| format!("has {text:?}, but {why}"))?;
    }
    Ok(texts.join(","))
}

/// Checks the domains of addresses, which are separated by commas.
fn permitted(to: &str, allowed: &[String]) -> Result<(), String> {
    let is_allowed = |address: &str| {
        let domain = address.rsplit_once('@').map_or("", |(_, domain)| domain);
        allowed.iter().any(|one| one.eq_ignore_ascii_case(domain))
    };
    if allowed.is_empty() || to.split(',').all(is_allowed) {
        return Ok(());
    }
    Err(format!(
        "e-mail may go to {} only (alerts.allowed_domains in the settings)",
        allowed.join(", ")
    ))
}
