//! `oncebox alert`: channels that tell people of escalations.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::base::stop::Stop;
use crate::cli::exit::{FAILED, Failure};
use crate::cli::noun::{self, DeleteArgs, Listing, NameArg, Noun, Verbs};
use crate::cli::remote::{ConnectArgs, Remote, once, plain};
use crate::cli::shared::Shared;
use crate::cli::show::Cell::{Instant, Minute, Text, Words};
use crate::cli::show::{clean, text};
use crate::cli::{input, out, secrets};

/// A test is looked at so often, which is 15 seconds in all …
const LOOKS: u32 = 75;
/// … at this interval.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Characters of the answer that are shown.
const EXCERPT_CHARS: usize = 200;

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Where alerts go, and which
    Channel {
        #[command(subcommand)]
        verb: ChannelVerb,
    },
    /// Send a message to a channel that says it is a test, and tell whether it arrived
    Test(Test),
}

#[derive(Debug, Args)]
pub(super) struct Test {
    /// Its name
    name: String,
    /// Do not wait for what becomes of it
    #[arg(long)]
    no_wait: bool,
}

#[derive(Debug, Subcommand)]
pub(super) enum ChannelVerb {
    /// Channels, oldest first
    List(Listing),
    /// One channel, and how its deliveries go
    Show(NameArg),
    /// Add a channel; it is told of open escalations at once
    Create(Box<Create>),
    /// Change a channel; what is not given stays
    Change(Box<Change>),
    /// Delete a channel; what is not delivered is cancelled
    Delete(DeleteArgs),
}

#[derive(Debug, Args, Serialize)]
pub(super) struct Create {
    /// What you call it: a-z, 0-9 and -, up to 57
    name: String,
    /// slack: a URL that takes Slack's format; webhook: a URL that gets JSON, signed; command: one of the settings
    #[arg(long, value_parser = ["slack", "webhook", "email", "command"])]
    kind: String,
    #[command(flatten)]
    #[serde(flatten)]
    terms: Terms,
}

#[derive(Debug, Args, Serialize)]
pub(super) struct Change {
    /// Its name
    #[serde(skip)]
    name: String,
    #[command(flatten)]
    #[serde(flatten)]
    terms: Terms,
}

#[derive(Debug, Args, Serialize)]
struct Terms {
    /// slack, webhook: file with the URL, which is a secret
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    url_file: Option<PathBuf>,
    /// email: an address; may be repeated
    #[arg(long, value_name = "ADDRESS")]
    to: Vec<String>,
    /// command: its name under [alerts.commands] in the settings
    #[arg(long, value_name = "NAME")]
    command: Option<String>,
    /// The lowest severity that is told [default when created: warning]
    #[arg(long, value_parser = ["info", "warning", "critical"])]
    severity: Option<String>,
    /// A class that is told, like disk.low; may be repeated [default when created: all]
    #[arg(long = "class", value_name = "CLASS")]
    classes: Vec<String>,
    /// Also tell of the escalations of other tenants: true or false
    #[arg(long, value_name = "BOOL")]
    all_tenants: Option<bool>,
    /// When only critical ones are told: '22:00-06:00 Europe/Budapest', '22:00-06:00 +01:00'; '' for never
    #[arg(long, value_name = "HOURS")]
    quiet_hours: Option<String>,
    /// The most messages in an hour; the last has all the rest [default when created: 20]
    #[arg(long, value_name = "N")]
    rate_per_hour: Option<u32>,
    /// Collect for this long, and send one message; 0s: do not
    #[arg(long, value_name = "SPAN", value_parser = input::span)]
    digest: Option<String>,
    /// Tell again after this long, until somebody acknowledges; 0s: never [default when created: 24h]
    #[arg(long, value_name = "SPAN", value_parser = input::span)]
    repeat_after: Option<String>,
}

const CHANNELS: Noun = Noun {
    path: "/v1/alert-channels",
    one: "Alert channel",
    many: "alert channels",
    time: Some("created_at"),
    columns: &[
        ("NAME", 0, Text("name")),
        ("KIND", 1, Text("kind")),
        ("TARGET", 1, Text("target")),
        ("SEVERITY", 2, Text("severity")),
        ("CLASSES", 3, Words("classes")),
        ("LAST SUCCESS (UTC)", 3, Minute("last_success_at")),
        ("FAILING SINCE (UTC)", 2, Minute("failing_since")),
    ],
    fields: &[
        ("kind", Text("kind")),
        ("target", Text("target")),
        ("subscription", Text("subscription")),
        ("severity", Text("severity")),
        ("classes", Words("classes")),
        ("all tenants", Text("all_tenants")),
        ("quiet hours", Text("quiet_hours")),
        ("messages per hour", Text("rate_per_hour")),
        ("digest", Text("digest")),
        ("told again after", Text("repeat_after")),
        ("last success", Instant("last_success_at")),
        ("failing since", Instant("failing_since")),
    ],
};

impl Terms {
    fn put_url(&self, body: &mut Map<String, Value>) -> Result<(), Failure> {
        if let Some(path) = &self.url_file {
            body.insert("url".to_owned(), secrets::one_line(path)?.as_str().into());
        }
        Ok(())
    }
}

impl Verbs for Verb {
    fn run(&self, connect: &ConnectArgs, shared: &Shared) -> Result<(), Failure> {
        let remote = connect.open(shared)?;
        match self {
            Self::Channel { verb } => verb.run(&remote),
            Self::Test(test) => test.run(&remote),
        }
    }
}

impl Test {
    fn run(&self, remote: &Remote) -> Result<(), Failure> {
        let name = &self.name;
        let mut sent = remote.post(&format!("{}/test", CHANNELS.at(name)), None)?;
        if self.no_wait {
            let subscription = text(&sent, "subscription");
            let look = format_args!(
                "queued for {name}\nWhether it arrived: oncebox delivery list --subscription {subscription}"
            );
            return remote.answer(&sent, look);
        }
        let delivery = tried(remote, &text(&sent, "event_id"))?;
        let id = text(&delivery, "id");
        let attempts = remote.get(&format!("/v1/deliveries/{}/attempts", plain(&id)))?;
        let last = attempts.get("items").and_then(Value::as_array).and_then(|all| all.last());
        let attempt = last.cloned().unwrap_or_default();
        let excerpt: String =
            clean(&text(&attempt, "excerpt")).chars().take(EXCERPT_CHARS).collect();
        let said = if excerpt.is_empty() { excerpt } else { format!("\nit said: {excerpt}") };
        let is_delivered = text(&delivery, "state") == "completed";
        if let (true, Value::Object(told)) = (remote.json(), &mut sent) {
            told.insert("delivery".to_owned(), delivery);
            told.insert("attempt".to_owned(), attempt);
            out::json(&sent)?;
            return if is_delivered { Ok(()) } else { Err(Failure::new(FAILED, "")) };
        }
        if is_delivered {
            let status = text(&attempt, "http_status");
            let answer =
                if status.is_empty() { status } else { format!(", the answer was {status}") };
            return out::line(format_args!("delivered to {name}{answer}{said}"));
        }
        let waits = delivery.pointer("/waiting/detail").and_then(Value::as_str);
        let why = match (text(&attempt, "failed_reason").as_str(), waits) {
            ("", None) => "there was no answer yet".to_owned(),
            ("", Some(waits)) => clean(waits),
            (failed, _) => clean(failed),
        };
        let next = match (text(&delivery, "state").as_str(), attempt.is_null()) {
            ("pending", true) => "It waits",
            ("pending", false) => "It is tried again",
            _ => "It was given up",
        };
        Err(Failure::failed(format_args!(
            "not delivered to {name}: {why}{said}\n{next}: oncebox delivery show {id}"
        )))
    }
}

/// The delivery of an event once it was tried, is held, or has been waited for long enough.
fn tried(remote: &Remote, event: &str) -> Result<Value, Failure> {
    let found = remote.get(&format!("/v1/deliveries?event_id={}", plain(event)))?;
    let id = found.pointer("/items/0/id").and_then(Value::as_str).unwrap_or_default();
    let path = format!("/v1/deliveries/{}", plain(id));
    let mut delivery = remote.get(&path)?;
    for _look in 0..LOOKS {
        let is_untried =
            text(&delivery, "state") == "pending" && text(&delivery, "attempt_count") == "0";
        let hold = delivery.pointer("/waiting/hold").filter(|hold| hold.is_string());
        if !is_untried || hold.is_some() {
            break;
        }
        Stop::new().wait(LOOK_EVERY);
        delivery = remote.get(&path)?;
    }
    Ok(delivery)
}

impl ChannelVerb {
    fn run(&self, remote: &Remote) -> Result<(), Failure> {
        match self {
            Self::List(listing) => CHANNELS.list(remote, listing, &()),
            Self::Show(NameArg { name }) => CHANNELS.show(remote, name),
            Self::Create(create) => create.run(remote),
            Self::Change(change) => {
                let mut body = noun::body(change);
                change.terms.put_url(&mut body)?;
                if body.is_empty() {
                    return Err(Failure::usage("there is nothing to change; see --help"));
                }
                CHANNELS
                    .print(remote, &remote.patch(&CHANNELS.at(&change.name), &Value::Object(body))?)
            }
            Self::Delete(args) => CHANNELS.delete(remote, args, ""),
        }
    }
}

impl Create {
    fn run(&self, remote: &Remote) -> Result<(), Failure> {
        let mut body = noun::body(self);
        self.terms.put_url(&mut body)?;
        let made = remote.post(CHANNELS.path, Some(&Value::Object(body)))?;
        if remote.json() {
            return out::json(&made);
        }
        out::line(format_args!("created: {} {}", self.name, text(&made, "target")))?;
        if self.kind == "webhook" {
            let secret = once(&made, "secret")?;
            out::line(format_args!("secret: {secret}   (this is the only time it is shown)"))?;
        }
        out::line(format_args!("Try it: oncebox alert test {}", self.name))
    }
}
