//! `oncebox listen`: shows events as they come, and forwards them, during development.
//!
//! It creates a pull subscription and deletes it at the end. If it was killed or lost its connection, the next start
//! names the subscription that was left behind.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use data_encoding::HEXLOWER;

use crate::base::clock::Clock;
use crate::base::id::{Draw, SystemDraw};
use crate::base::stop::Stop;
use crate::cli::consume::lease::{Consumer, LeasedEvent, NextEvents};
use crate::cli::noun;
use crate::cli::noun::Confirm;
use crate::cli::prelude::*;
use crate::cli::remote::{once, unrestricted_client};
use crate::cli::show::{clean, cut};
use crate::http::client::{Call, Client};
use crate::sys::host::stop_flag;

/// The names of its subscriptions begin with this.
const PREFIX: &str = "listen-";
/// Most events of one request.
const MAX_EVENTS: usize = 20;
/// How long the service may hold a request. Ctrl-C takes effect when the request ends.
const WAIT: Duration = Duration::from_secs(2);
/// Wait before the next request to an unreachable service.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Time for forwarding one event.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Rounds of cancelling before a subscription is left behind. Deliveries that are running need a second round.
const MAX_ROUNDS: u32 = 5;

#[derive(Debug, Args)]
#[command(after_help = "\
Creates a pull subscription named listen-… and deletes it at the end (Ctrl-C). Each event is shown once, even if
forwarding it fails. Forwarded requests are signed (Standard Webhooks) with the secret that is printed at the start.

  oncebox listen --event-type 'invoice.*' --to http://127.0.0.1:3000/hook")]
pub(super) struct Listen {
    /// An event type or pattern: invoice.paid, invoice.*; may be repeated [default: *]
    #[arg(long = "event-type", value_name = "PATTERN")]
    event_types: Vec<String>,
    /// Source of the events: outbox, all, provider:NAME
    #[arg(long, default_value = "all")]
    source: String,
    /// Forward each event to this URL
    #[arg(long, value_name = "URL")]
    to: Option<String>,
    /// Only delete subscriptions that earlier runs left behind
    #[arg(long)]
    clean: bool,
    #[command(flatten)]
    confirm: Confirm,
    #[command(flatten)]
    connect: ConnectArgs,
}

impl Listen {
    pub(super) fn run(&self, global: &GlobalArgs) -> Result<(), Failure> {
        let remote = self.connect.open(global)?;
        let left = left_behind(&remote)?;
        if self.clean {
            if !left.is_empty() {
                self.confirm.ask(format_args!("Delete {}", left.join(", ")))?;
            }
            for name in &left {
                remove(&remote, name)?;
                out::line(format_args!("deleted: {name}"))?;
            }
            return Ok(());
        }
        if !left.is_empty() {
            let names = left.join(", ");
            out::note(format_args!(
                "Another oncebox listen is running or was killed: {names}. If it was killed, delete its \
                 subscription: oncebox listen --clean"
            ));
        }
        let stopped = stop_flag().map_err(Failure::failed)?;
        let mut random = [0; 4];
        SystemDraw::new().fill(&mut random);
        let name = format!("{PREFIX}{}", HEXLOWER.encode(&random));
        let all = vec!["*".to_owned()];
        let types = if self.event_types.is_empty() { &all } else { &self.event_types };
        let body = json!({
            "name": name, "target": "pull", "source": self.source, "event_types": types,
            "policy": { "lease": "40s" }, "owner_id": "oncebox listen",
        });
        let made = remote.post("/v1/subscriptions", Some(&body))?;
        let answers = self
            .greet(&remote, &made, types)
            .and_then(|()| self.receive(Consumer { remote: &remote, name: &name }, &stopped));
        // After a failure too: deliveries must not pile up for a listener that has gone.
        let removed = remove(&remote, &name).map_err(|failure| {
            failure
                .and(format_args!("{name} is left behind; delete it with: oncebox listen --clean"))
        });
        answers.and(removed)
    }

    fn greet(&self, remote: &Remote, made: &Value, types: &[String]) -> Result<(), Failure> {
        if remote.json() {
            return Ok(());
        }
        let to = self.to.as_deref().map(|to| format!(", forwarded to {to}")).unwrap_or_default();
        out::line(format_args!(
            "Listening for {} from {}{to}. Ctrl-C ends it.",
            types.join(", "),
            self.source
        ))?;
        if self.to.is_some() {
            out::line(format_args!("secret: {}", once(made, "secret")?))?;
        }
        Ok(())
    }

    fn receive(&self, consumer: Consumer<'_>, stopped: &AtomicBool) -> Result<(), Failure> {
        let client = self.to.as_ref().map(|_| unrestricted_client()).transpose()?;
        while !stopped.load(Ordering::Relaxed) {
            match consumer.next(MAX_EVENTS, WAIT)? {
                NextEvents::Held(reason) => {
                    out::note(format_args!("no events: the subscription is {reason}"));
                    Stop::new().wait(RETRY_AFTER);
                }
                NextEvents::Later(failure) => {
                    out::note(format_args!("{}; trying again", failure.message));
                    Stop::new().wait(RETRY_AFTER);
                }
                NextEvents::Events(events) => {
                    for event in events {
                        self.show(&event, client.as_ref(), consumer.remote.json())?;
                        acknowledge(consumer, &event)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn show(
        &self,
        event: &LeasedEvent,
        client: Option<&Client>,
        json: bool,
    ) -> Result<(), Failure> {
        let forwarded = match (client, &self.to) {
            (Some(client), Some(url)) => Some(forward(client, url, event)),
            _ => None,
        };
        if json {
            let mut shown = event.shown.clone();
            if let Some(fields) = shown.as_object_mut() {
                let payload = serde_json::from_slice(&event.payload).ok();
                let lossy = || String::from_utf8_lossy(&event.payload).into_owned().into();
                fields.insert("payload".to_owned(), payload.unwrap_or_else(lossy));
                fields.insert("forwarded".to_owned(), forwarded.into());
            }
            return out::json(&shown);
        }
        let at = Clock::machine().wall().to_string();
        let at: String = at.chars().skip(11).take(8).collect();
        let kind = event.field("event_type");
        let id = event.field("webhook_id");
        let answer = forwarded.map(|answer| format!("  → {answer}")).unwrap_or_default();
        out::line(format_args!("{at}  {kind}  {id}{answer}"))?;
        let payload = clean(&String::from_utf8_lossy(&event.payload));
        out::line(format_args!("          {}", cut(&payload, 400)))
    }
}

/// Acknowledges an event that was shown.
fn acknowledge(consumer: Consumer<'_>, event: &LeasedEvent) -> Result<(), Failure> {
    let answers = consumer.settle("ack", &[Value::Object(event.reference())], None)?;
    for refused in answers.iter().filter(|one| text(one, "status") != "200") {
        out::note(format_args!("not acknowledged: {}", text(refused, "detail")));
    }
    Ok(())
}

/// Forwards an event with the headers of a real delivery. Returns the answer and how long it took.
fn forward(client: &Client, url: &str, event: &LeasedEvent) -> String {
    let clock = Clock::machine();
    let began = clock.monotonic();
    let answer = client.call(&Call {
        method: "POST",
        url,
        headers: &event.headers(),
        body: &event.payload,
        timeout: TIMEOUT,
        ..Call::default()
    });
    let took = clock.monotonic().saturating_sub(began).as_millis();
    match answer {
        Ok(answer) => format!("{} in {took} ms", answer.status),
        Err(error) => format!("no answer: {error}"),
    }
}

/// Subscriptions of earlier runs, and of runs that are still going on.
fn left_behind(remote: &Remote) -> Result<Vec<String>, Failure> {
    let all = noun::collect(remote, "/v1/subscriptions", &Vec::new())?;
    let ours = all.iter().filter(|item| text(item, "owner_id") == "oncebox listen");
    Ok(ours.map(|item| text(item, "name")).filter(|name| name.starts_with(PREFIX)).collect())
}

/// Cancels a subscription's deliveries and deletes it.
fn remove(remote: &Remote, name: &str) -> Result<(), Failure> {
    let path = format!("/v1/subscriptions/{}", percent_encoded(name));
    // No more events may be routed to it while its deliveries are cancelled.
    remote.send("PATCH", &path, Some(&json!({ "event_types": ["oncebox.nothing"] })))?;
    let mut last = Ok(());
    for _ in 0..MAX_ROUNDS {
        for state in ["pending", "leased", "dead_letter", "in_doubt"] {
            let query = [("subscription", name), ("state", state)];
            let query = query.map(|(field, value)| (field.to_owned(), value.to_owned())).to_vec();
            noun::each(remote, "/v1/deliveries", &query, |delivery| {
                let path = format!("/v1/deliveries/{}/cancel", text(&delivery, "id"));
                // A delivery that was settled meanwhile is refused, which is fine.
                drop(remote.post(&path, None));
                Ok(())
            })?;
        }
        last = remote.send("DELETE", &path, None).map(drop);
        if last.is_ok() {
            break;
        }
    }
    last
}
