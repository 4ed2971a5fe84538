//! Alerts: escalations are told to people over channels.
//!
//! A channel ([`channel`]) has a subscription. The chore ([`chore`]) finds what a channel is to be told and stores it as an
//! event for that subscription, with the words of [`message`]. The event is delivered like any other: [`Messenger`] sends
//! it where the target is e-mail or a command, and knows the secret URL of the others.

pub mod channel;
pub mod chore;
mod command;
pub mod mail;
pub mod message;
pub mod store;

use std::sync::Arc;

use zeroize::Zeroizing;

use crate::base::clock::Clock;
use crate::config::{Live, Settings};
use crate::keys::Keyring;
use crate::model::delivery::OutgoingRequest;
use crate::model::outcome::Outcome;
use crate::model::subscription::{NewSubscription, Subscription, Target};
use crate::store::tx::WriteTx;
use crate::store::writer::Queue;
use crate::store::{Store, tenants};

/// Sends to the targets that only alert channels have.
#[derive(Clone, Debug)]
pub struct Messenger {
    /// Where sealed URLs are.
    pub store: Store,
    /// Time.
    pub clock: Clock,
    /// What opens sealed URLs.
    pub key: Arc<Keyring>,
    /// The mail server and the commands.
    pub settings: Live,
}

impl Messenger {
    /// Sends a message by e-mail or to a command; `None` if the target is neither.
    pub fn send(&self, new: &NewSubscription, outgoing: &OutgoingRequest) -> Option<Outcome> {
        let settings = self.settings.get();
        match &new.target {
            Target::Email(url) => {
                let to = url.strip_prefix("mailto:").unwrap_or(url);
                Some(self.mail(&settings, to, outgoing))
            }
            Target::Command(url) => {
                let name = url.strip_prefix("command:").unwrap_or(url);
                Some(command::run(&settings.alerts.commands, name, outgoing, &self.clock))
            }
            Target::Http(_) | Target::Pull => None,
        }
    }

    /// Sends an e-mail, if the tenant has any left today, and counts it.
    fn mail(&self, settings: &Settings, to: &str, outgoing: &OutgoingRequest) -> Outcome {
        let (at, max) = (self.clock.wall(), settings.alerts.emails_per_day_max);
        match self.store.read(|tx| tenants::mails(tx, &outgoing.tenant, at)) {
            Ok(sent) if sent < max => {}
            Ok(_) => {
                let reason = format!(
                    "the {max} e-mails of the tenant's day (UTC) are sent (alerts.emails_per_day_max in the settings)"
                );
                return Outcome::Blocked { reason };
            }
            Err(error) => return Outcome::Blocked { reason: error.to_string() },
        }
        let outcome = mail::send(settings, to, outgoing, at);
        if let Outcome::Accepted { .. } = outcome {
            let tenant = outgoing.tenant.clone();
            let count = move |tx: &WriteTx<'_>| tenants::count_mail(tx, &tenant, at);
            if let Err(error) = self.store.writer().write(Queue::Settle, count) {
                tracing::error!(%error, "an e-mail was sent and is not counted");
            }
        }
        outcome
    }

    /// The URL that a channel posts to; `None` for what is no channel. The subscription shows its host alone.
    pub fn sealed_url(&self, of: &Subscription) -> Result<Option<Zeroizing<String>>, String> {
        if !of.new.is_of_alerts() {
            return Ok(None);
        }
        let found = self.store.read(|tx| store::sealed_url(tx, of.seq));
        let Some((id, sealed)) = found.map_err(|error| error.to_string())? else { return Ok(None) };
        let opened = self.key.open(&store::context(&id), &sealed);
        let opened =
            opened.map_err(|error| format!("the channel's URL cannot be opened: {error}"))?;
        Ok(opened.expose_text().map(|url| Zeroizing::new(url.to_owned())))
    }
}
