//! `oncebox replay`: sends copies of stored events to another address, to try a receiver with real traffic.
//!
//! The command sends the copies itself: the service makes no delivery and counts nothing. Sealed fields stay hidden.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::value_parser;
use data_encoding::BASE64;

use crate::base::clock::Clock;
use crate::base::id::{self, SystemDraw};
use crate::base::stop::Stop;
use crate::cli::flag::{SINCE, UNTIL};
use crate::cli::noun::{self, Confirm, DryRun, Query};
use crate::cli::out::Progress;
use crate::cli::prelude::*;
use crate::cli::remote::unrestricted_client;
use crate::cli::secrets;
use crate::cli::show::clean;
use crate::cli::timeline::payload_bytes;
use crate::http::client::{Call, Client};
use crate::signatures::signing::SigningSecret;
use crate::sys::host::stop_flag;

/// Events of a run at most; their ids are in memory.
const MAX_EVENTS: usize = 100_000;
/// Time for one copy.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Copies in a row without an answer, after which the run ends: nobody listens.
const MAX_UNANSWERED: u32 = 10;
/// The header field that marks a copy, for a receiver that gets copies by mistake.
const MARK: (&str, &str) = ("oncebox-copy", "1");
/// Lists of events: of the outbox, and of webhooks.
const LISTS: [(&str, &str); 2] = [("outbox", "/v1/events"), ("webhooks", "/v1/webhook-events")];

/// Send copies of stored events to another address, to try a receiver with real traffic
#[derive(Debug, Args)]
#[command(after_help = "\
The oldest event goes first, one request after the other. Copies have webhook-ids of their own and the header field
oncebox-copy. They are no deliveries: nothing is stored or counted, and a failure is not tried again. Sealed personal data
stays hidden. With --subscription a copy has the filter, template and header fields of that subscription.

  oncebox replay --since 30d --until 2d --subscription erp --into http://erp-test:8080/hooks --rate 20")]
pub(super) struct Replay {
    /// Address that gets the copies
    #[arg(long, value_name = "URL")]
    into: String,
    #[arg(long, help = SINCE, value_name = "TIME", value_parser = input::time)]
    since: String,
    #[arg(long, help = UNTIL, value_name = "TIME", value_parser = input::time)]
    until: Option<String>,
    /// As this subscription would send them; it needs a token with the role admin
    #[arg(long, value_name = "NAME")]
    subscription: Option<String>,
    /// Only events of the outbox, or only webhooks [default: both]
    #[arg(long, value_name = "SOURCE", value_parser = ["outbox", "webhooks"])]
    source: Option<String>,
    /// Only events of this type
    #[arg(long, value_name = "TYPE")]
    event_type: Option<String>,
    /// Copies per second at most
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = value_parser!(u16).range(1..=1000))]
    rate: u16,
    /// File with the secret that signs the copies (whsec_…) [default: a new one, which is printed]
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    confirm: Confirm,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// A stored event, as it stands in a list.
struct ListedEvent {
    received_at: String,
    id: String,
    event_type: String,
    /// The list that it stands in.
    path: &'static str,
}

/// A copy before it is signed.
struct Copied {
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

/// What came of a run.
#[derive(Default)]
struct Tally {
    /// Copies by the status that answered them.
    answers: BTreeMap<u16, u64>,
    unanswered: u64,
    /// Events that the subscription does not want, that are quarantined, or whose content was removed.
    left_out: u64,
    /// Events that the subscription's terms cannot write.
    unwritable: u64,
    /// Copies in a row without an answer.
    unanswered_now: u32,
    last_error: Option<String>,
}

impl Replay {
    pub(super) fn run(&self, global: &GlobalArgs) -> Result<(), Failure> {
        self.check_address()?;
        let secret = self.secret()?;
        let remote = self.connect.open(global)?;
        let stopped = stop_flag().map_err(Failure::failed)?;
        if let Some(name) = &self.subscription {
            let path = format!("/v1/subscriptions/{}", percent_encoded(name));
            remote
                .get(&path)
                .map_err(|failure| failure.and(format_args!("--subscription {name}")))?;
        }
        let events = self.events(&remote)?;
        if events.is_empty() {
            return Err(Failure::new(exit::NOT_FOUND, "no stored event is of that time"));
        }
        let count = events.len();
        let into = clean(&self.into);
        if self.dry.dry_run {
            let found = json!({ "events": count, "into": self.into });
            return remote.answer(&found, format_args!("{count} events would be sent to {into}."));
        }
        self.confirm.ask(format_args!("Send copies of {count} events to {into}"))?;
        if self.secret_file.is_none() {
            out::note(format_args!("secret of the copies: {}", secret.to_text().as_str()));
        }
        let client = unrestricted_client()?;
        let run = Run { replay: self, remote: &remote, client: &client, secret: &secret };
        let tally = run.send(&events, &stopped)?;
        tally.tell(&remote, count)
    }

    fn check_address(&self) -> Result<(), Failure> {
        let url: Option<http::Uri> = self.into.parse().ok();
        let is_address = url.is_some_and(|url| {
            matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some()
        });
        let wrong = || Failure::usage("--into must be a URL such as http://erp-test:8080/hooks");
        if is_address { Ok(()) } else { Err(wrong()) }
    }

    fn secret(&self) -> Result<SigningSecret, Failure> {
        match &self.secret_file {
            Some(path) => SigningSecret::parse(&secrets::one_line(path)?)
                .map_err(|error| Failure::input(format!("{}: {error}", path.display()))),
            None => Ok(SigningSecret::generate(&SystemDraw::new())),
        }
    }

    /// The events that are meant, the oldest first.
    fn events(&self, remote: &Remote) -> Result<Vec<ListedEvent>, Failure> {
        let mut query: Query = vec![("since".to_owned(), self.since.clone())];
        let more = [("until", &self.until), ("event_type", &self.event_type)];
        for (name, value) in more {
            query.extend(value.iter().map(|value| (name.to_owned(), value.clone())));
        }
        let mut found = Vec::new();
        for (source, path) in LISTS {
            if self.source.as_deref().is_some_and(|only| only != source) {
                continue;
            }
            noun::each(remote, path, &query, |event| {
                if found.len() >= MAX_EVENTS {
                    let why = format!("there are more than {MAX_EVENTS} events");
                    return Err(
                        Failure::usage(why).and("Give a shorter time: --since and --until.")
                    );
                }
                found.push(ListedEvent {
                    received_at: text(&event, "received_at"),
                    id: text(&event, "id"),
                    event_type: text(&event, "event_type"),
                    path,
                });
                Ok(())
            })?;
        }
        found.sort_by(|one, other| {
            (&one.received_at, &one.id).cmp(&(&other.received_at, &other.id))
        });
        Ok(found)
    }
}

/// A run over the events.
struct Run<'a> {
    replay: &'a Replay,
    remote: &'a Remote,
    client: &'a Client,
    secret: &'a SigningSecret,
}

impl Run<'_> {
    fn send(&self, events: &[ListedEvent], stopped: &AtomicBool) -> Result<Tally, Failure> {
        let clock = Clock::machine();
        let began = clock.monotonic();
        let pause = Duration::from_secs(1) / u32::from(self.replay.rate);
        let mut progress = Progress::new();
        let mut tally = Tally::default();
        let count = events.len();
        let mut sent = 0_u32;
        for (index, event) in events.iter().enumerate() {
            if stopped.load(Ordering::Relaxed) {
                break;
            }
            progress.show(|| format!("{index} of {count} events, {} accepted", tally.accepted()));
            let copied = match self.copy(event) {
                Ok(Some(copied)) => copied,
                Ok(None) => {
                    tally.left_out = tally.left_out.saturating_add(1);
                    continue;
                }
                // Only this event: the service says what is wrong with it.
                Err(failure) if failure.code == exit::BAD_INPUT => {
                    tally.unwritable = tally.unwritable.saturating_add(1);
                    tally.last_error = Some(failure.message);
                    continue;
                }
                Err(failure) => return Err(failure),
            };
            let due = began.saturating_add(pause.saturating_mul(sent));
            Stop::new().wait(due.saturating_sub(clock.monotonic()));
            sent = sent.saturating_add(1);
            tally.add(self.call(&clock, copied));
            if tally.unanswered_now >= MAX_UNANSWERED {
                break;
            }
        }
        progress.end();
        Ok(tally)
    }

    /// What would be sent of an event; `None`: nothing.
    fn copy(&self, event: &ListedEvent) -> Result<Option<Copied>, Failure> {
        let Some(name) = &self.replay.subscription else { return self.as_stored(event) };
        let path = format!("/v1/subscriptions/{}", percent_encoded(name));
        let trial = self.remote.send("PATCH", &path, Some(&json!({ "try": event.id })))?;
        if trial.get("matches") != Some(&Value::Bool(true)) {
            return Ok(None);
        }
        let fields = trial.get("headers").and_then(Value::as_object);
        let headers = fields
            .into_iter()
            .flatten()
            .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
        let body = match trial.get("body").and_then(Value::as_str) {
            Some(text) => text.as_bytes().to_vec(),
            None => BASE64
                .decode(text(&trial, "body_base64").as_bytes())
                .map_err(|error| Failure::failed(format!("the body is not base64: {error}")))?,
        };
        Ok(Some(Copied { headers: headers.collect(), body }))
    }

    /// The payload as it is stored.
    fn as_stored(&self, event: &ListedEvent) -> Result<Option<Copied>, Failure> {
        let path = format!("{}/{}", event.path, percent_encoded(&event.id));
        let stored = self.remote.get(&path)?;
        let is_expunged = stored.get("expunged_at").is_some_and(Value::is_string);
        if is_expunged || text(&stored, "status") == "quarantined" {
            return Ok(None);
        }
        let headers = vec![
            ("content-type".to_owned(), text(&stored, "content_type")),
            ("oncebox-event-type".to_owned(), event.event_type.clone()),
        ];
        Ok(Some(Copied { headers, body: payload_bytes(&stored)? }))
    }

    /// Signs a copy and sends it. Returns the status of the answer, or why there is none.
    fn call(&self, clock: &Clock, copied: Copied) -> Result<u16, String> {
        let Copied { mut headers, body } = copied;
        let at = clock.wall();
        let webhook_id = format!("copy_{}", id::uuid7(at, &SystemDraw::new()));
        let signature = self.secret.sign(&webhook_id, at, &body);
        let own = [
            (MARK.0, MARK.1.to_owned()),
            ("webhook-id", webhook_id),
            ("webhook-timestamp", at.secs().to_string()),
            ("webhook-signature", signature),
        ];
        headers.retain(|(name, _)| !own.iter().any(|(field, _)| name.eq_ignore_ascii_case(field)));
        headers.extend(own.map(|(name, value)| (name.to_owned(), value)));
        let call = Call {
            method: "POST",
            url: &self.replay.into,
            headers: &headers,
            body: &body,
            timeout: TIMEOUT,
            ..Call::default()
        };
        self.client.call(&call).map(|answer| answer.status).map_err(|error| error.to_string())
    }
}

impl Tally {
    fn add(&mut self, answer: Result<u16, String>) {
        match answer {
            Ok(status) => {
                let known = self.answers.entry(status).or_default();
                *known = known.saturating_add(1);
                self.unanswered_now = 0;
            }
            Err(why) => {
                self.unanswered = self.unanswered.saturating_add(1);
                self.unanswered_now = self.unanswered_now.saturating_add(1);
                self.last_error = Some(why);
            }
        }
    }

    fn accepted(&self) -> u64 {
        self.answers.iter().filter(|(status, _)| (200..300).contains(*status)).map(|(_, n)| n).sum()
    }

    fn sent(&self) -> u64 {
        self.answers.values().sum::<u64>().saturating_add(self.unanswered)
    }

    /// Prints the numbers. Fails unless each copy was accepted.
    fn tell(&self, remote: &Remote, count: usize) -> Result<(), Failure> {
        let sent = self.sent();
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        let looked_at = sent.saturating_add(self.left_out).saturating_add(self.unwritable);
        let not_reached = count.saturating_sub(looked_at);
        if remote.json() {
            let answers: BTreeMap<String, u64> =
                self.answers.iter().map(|(status, n)| (status.to_string(), *n)).collect();
            out::json(&json!({
                "sent": sent, "answers": answers, "unanswered": self.unanswered,
                "left_out": self.left_out, "unwritable": self.unwritable, "not_reached": not_reached,
            }))?;
        } else {
            out::line(format_args!("sent: {sent}, accepted: {}", self.accepted()))?;
            for (status, n) in &self.answers {
                out::line(format_args!("{n:>8}  answered with {status}"))?;
            }
            let rest = [
                (self.unanswered, "without an answer"),
                (
                    self.left_out,
                    "left out: not wanted by the subscription, quarantined, or without their content",
                ),
                (self.unwritable, "could not be written by the subscription's terms"),
                (not_reached, "not sent: the run ended before"),
            ];
            for (n, meaning) in rest.into_iter().filter(|(n, _)| *n > 0) {
                out::line(format_args!("{n:>8}  {meaning}"))?;
            }
        }
        if self.accepted() == count.saturating_sub(self.left_out) {
            return Ok(());
        }
        let why = match &self.last_error {
            Some(error) => {
                format!("not every event was sent and accepted; the last error: {error}")
            }
            None => "not every event was sent and accepted".to_owned(),
        };
        Err(Failure::failed(why))
    }
}
