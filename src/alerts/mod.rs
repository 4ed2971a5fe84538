//! Alerts: escalations are told to people over channels.
//!
//! A channel ([`channel`]) has a subscription. The chore ([`chore`]) finds what a channel is to be told and stores it as an
//! event for that subscription, with the words of [`message`]. The event is delivered like any other: [`Messenger`] sends
//! it where the target is e-mail or a command, and knows the secret URL of the others.

pub mod channel;
pub mod chore;
pub mod mail;
pub mod message;
pub mod store;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use zeroize::Zeroizing;

use crate::base::clock::Clock;
use crate::config::{Live, Settings, own_variables};
use crate::keys::Keyring;
use crate::model::delivery::OutgoingRequest;
use crate::model::outcome::{Cause, Outcome};
use crate::model::subscription::{NewSubscription, Subscription, Target};
use crate::store::tx::WriteTx;
use crate::store::writer::Queue;
use crate::store::{Store, tenants};
use crate::sys::command::{Ended, How, Program};

/// How long a command may run.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of its output that are kept.
const MAX_OUTPUT_BYTES: usize = 2048;

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
                Some(run_command(&settings.alerts.commands, name, outgoing, &self.clock))
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

/// Runs a command of the settings. It gets the alert on stdin as JSON; exit 0 means that people are told.
fn run_command(
    commands: &BTreeMap<String, Vec<String>>,
    name: &str,
    outgoing: &OutgoingRequest,
    clock: &Clock,
) -> Outcome {
    let Some(argv) = commands.get(name) else {
        let reason =
            format!("there is no command {name:?} in the settings; add it under [alerts.commands]");
        return Outcome::Blocked { reason };
    };
    let program = Program {
        argv: argv.iter().map(OsString::from).collect(),
        without: own_variables(),
        environment: vec![("ONCEBOX_WEBHOOK_ID".to_owned(), outgoing.webhook_id.clone())],
        input: outgoing.payload.clone(),
        timeout: COMMAND_TIMEOUT,
        output_most: MAX_OUTPUT_BYTES,
    };
    match program.run(clock) {
        Ok(Ended { how: How::Exited(0), stdout, .. }) => {
            Outcome::Accepted { excerpt: String::from_utf8_lossy(&stdout).into_owned() }
        }
        Ok(Ended { how, stderr, .. }) => {
            let said = String::from_utf8_lossy(&stderr);
            let reason = format!("the command {name} failed ({how}): {}", said.trim());
            let cause = if how == How::TimedOut { Cause::Timeout } else { Cause::Broken };
            Outcome::Unreachable { cause, reason }
        }
        Err(error) => {
            let reason = format!("the command {name} cannot be run: {error}");
            Outcome::Blocked { reason }
        }
    }
}
