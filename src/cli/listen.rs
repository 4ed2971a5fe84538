//! `oncebox listen`: while developing, shows events as they come, and forwards them.
//!
//! It makes a pull subscription of its own and deletes it at the end. One that was left behind, by a kill or a
//! lost line, is told of at the next start.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use data_encoding::HEXLOWER;
use ipnet::IpNet;
use serde_json::{Value, json};

use crate::base::clock::Clock;
use crate::base::id::{Draw, SystemDraw};
use crate::base::stop::Stop;
use crate::cli::consume::lease::{Consumer, Leased, Next};
use crate::cli::consume::stopped;
use crate::cli::exit::Failure;
use crate::cli::noun::Confirm;
use crate::cli::remote::{ConnectArgs, Remote, once, plain};
use crate::cli::shared::Shared;
use crate::cli::show::{clean, cut, text};
use crate::cli::{noun, out};
use crate::http::client::{Call, Client, ClientSettings};
use crate::model::address::AddressPolicy;

/// What the names of its subscriptions begin with.
const PREFIX: &str = "listen-";
/// Events at once.
const MAX_EVENTS: usize = 20;
/// How long the service may hold a request: Ctrl-C is heeded after it.
const WAIT: Duration = Duration::from_secs(2);
/// When a service that was away is asked again.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Time for forwarding one event.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Rounds of cancelling before a subscription is left behind: what is in hand at that moment needs a second.
const MAX_ROUNDS: u32 = 5;

#[derive(Debug, Args)]
#[command(after_help = "\
Makes a pull subscription named listen-…, and deletes it at the end (Ctrl-C). Each event is shown once, whatever
is answered. Forwarded requests are signed (Standard Webhooks) with the secret that is printed at the start.

  oncebox listen --event-type 'invoice.*' --to http://127.0.0.1:3000/hook")]
pub(super) struct Listen {
    /// A type it wants: invoice.paid, invoice.*; may be repeated [default: *]
    #[arg(long = "event-type", value_name = "PATTERN")]
    event_types: Vec<String>,
    /// Where its events come from: outbox, all, provider:NAME
    #[arg(long, default_value = "all")]
    source: String,
    /// Where each is forwarded to
    #[arg(long, value_name = "URL")]
    to: Option<String>,
    /// Only delete what earlier runs have left behind
    #[arg(long)]
    clean: bool,
    #[command(flatten)]
    confirm: Confirm,
    #[command(flatten)]
    connect: ConnectArgs,
}

impl Listen {
    pub(super) fn run(&self, shared: &Shared) -> Result<(), Failure> {
        let remote = self.connect.open(shared)?;
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
                "There is {names}, of another oncebox listen that runs or was killed; delete what is left \
                 with: oncebox listen --clean"
            ));
        }
        let stopped = stopped()?;
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
            .and_then(|()| self.hear(Consumer { remote: &remote, name: &name }, &stopped));
        // Also where it failed: nothing is to pile up for a listener that has gone.
        let removed = remove(&remote, &name).map_err(|failure| {
            failure.and(format_args!("{name} is left; delete it with: oncebox listen --clean"))
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

    fn hear(&self, consumer: Consumer<'_>, stopped: &AtomicBool) -> Result<(), Failure> {
        let client = self.to.as_ref().map(|_| client()).transpose()?;
        while !stopped.load(Ordering::Relaxed) {
            match consumer.next(MAX_EVENTS, WAIT)? {
                Next::Held(reason) => {
                    out::note(format_args!("nothing is given: the subscription is {reason}"));
                    Stop::new().wait(RETRY_AFTER);
                }
                Next::Later(failure) => {
                    out::note(format_args!("{}; it is asked again", failure.message));
                    Stop::new().wait(RETRY_AFTER);
                }
                Next::Events(events) => {
                    for event in events {
                        self.show(&event, client.as_ref(), consumer.remote.json())?;
                        done(consumer, &event)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn show(&self, event: &Leased, client: Option<&Client>, json: bool) -> Result<(), Failure> {
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
        let (kind, id) = (event.field("event_type"), event.field("webhook_id"));
        let answer = forwarded.map(|answer| format!("  → {answer}")).unwrap_or_default();
        out::line(format_args!("{at}  {kind}  {id}{answer}"))?;
        let payload = clean(&String::from_utf8_lossy(&event.payload));
        out::line(format_args!("          {}", cut(&payload, 400)))
    }
}

/// Says that an event was shown, whatever came of it.
fn done(consumer: Consumer<'_>, event: &Leased) -> Result<(), Failure> {
    let answers = consumer.settle("ack", &[Value::Object(event.reference())], None)?;
    for refused in answers.iter().filter(|one| text(one, "status") != "200") {
        out::note(format_args!("not taken: {}", text(refused, "detail")));
    }
    Ok(())
}

/// A client that may call everything: the person who forwards named the place.
fn client() -> Result<Client, Failure> {
    let everywhere = ["0.0.0.0/0", "::/0"].into_iter().filter_map(|net| net.parse::<IpNet>().ok());
    let settings = ClientSettings {
        policy: AddressPolicy::new(everywhere.collect()),
        ca_pem: None,
        connect_timeout: Duration::from_secs(5),
        idle_connections: 1,
    };
    Client::new(settings).map_err(Failure::failed)
}

/// Sends an event on as it would have been sent; what was answered, and how quickly.
fn forward(client: &Client, url: &str, event: &Leased) -> String {
    let clock = Clock::machine();
    let began = clock.monotonic();
    let headers = event.headers();
    let call =
        Call { method: "POST", url, headers: &headers, body: &event.payload, timeout: TIMEOUT };
    let answer = client.call(&call);
    let took = clock.monotonic().saturating_sub(began).as_millis();
    match answer {
        Ok(answer) => format!("{} in {took} ms", answer.status),
        Err(error) => format!("no answer: {error}"),
    }
}

/// Subscriptions that earlier runs have left behind, or that others have now.
fn left_behind(remote: &Remote) -> Result<Vec<String>, Failure> {
    let mut names = Vec::new();
    noun::each(remote, "/v1/subscriptions", &Vec::new(), |item| {
        let name = text(&item, "name");
        if name.starts_with(PREFIX) && text(&item, "owner_id") == "oncebox listen" {
            names.push(name);
        }
        Ok(())
    })?;
    Ok(names)
}

/// Deletes a subscription with what has come for it.
fn remove(remote: &Remote, name: &str) -> Result<(), Failure> {
    let path = format!("/v1/subscriptions/{}", plain(name));
    // Nothing more is to come while the rest is cancelled.
    remote.patch(&path, &json!({ "event_types": ["oncebox.nothing"] }))?;
    let mut last = Ok(());
    for _ in 0..MAX_ROUNDS {
        for state in ["pending", "leased", "dead_letter", "in_doubt"] {
            let query = noun::query(&json!({ "subscription": name, "state": state }));
            noun::each(remote, "/v1/deliveries", &query, |delivery| {
                let path = format!("/v1/deliveries/{}/cancel", text(&delivery, "id"));
                // It may have been settled meanwhile.
                drop(remote.post(&path, None));
                Ok(())
            })?;
        }
        last = remote.delete(&path).map(drop);
        if last.is_ok() {
            break;
        }
    }
    last
}
