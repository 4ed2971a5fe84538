//! `oncebox subscription`: which events go where, and how.
//!
//! Not here: what was sent to them ([`super::delivery`]).

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::cli::exit::{self, Failure};
use crate::cli::noun::{self, DeleteArgs, Listing, NameArg, Noun, Verbs};
use crate::cli::remote::{ConnectArgs, Remote, once, plain};
use crate::cli::shared::Shared;
use crate::cli::show::Cell::{By, Instant, Minute, Text, Words};
use crate::cli::show::{instant, text};
use crate::cli::subscription_content::{Content, header, print_trial};
use crate::cli::subscription_test::{self, TestArgs};
use crate::cli::{input, job, out, secrets};
use crate::model::hold::HoldReason;

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Subscriptions, oldest first
    List(Listing),
    /// Add a subscription; prints the secret its requests are signed with, this once
    Create(Box<Create>),
    /// One subscription
    Show(NameArg),
    /// Change a subscription; what is not given stays
    Change(Box<Change>),
    /// Send one request as a delivery would, and show each step; a test that works ends the hold auth
    Test(TestArgs),
    /// Send it nothing for now; its deliveries wait
    Pause(NameArg),
    /// End a pause, or enable a subscription again that was disabled because its target answered 410
    Resume(NameArg),
    /// Resume a subscription and send it everything since a time: its dead letters, and events it has no delivery of
    Recover {
        /// Its name or id
        name: String,
        /// Only rows from this time on: 2026-01-31T12:00:00Z, the day 2026-01-31 (UTC), or 2h for two hours ago
        #[arg(long, value_name = "TIME", value_parser = input::time)]
        since: String,
        /// Only rows before this time
        #[arg(long, value_name = "TIME", value_parser = input::time)]
        until: Option<String>,
        #[command(flatten)]
        pace: job::Pace,
    },
    /// Delete a subscription; refused while it has open or dead deliveries
    Delete(DeleteArgs),
}

#[derive(Debug, Args, Serialize)]
pub(super) struct Create {
    /// What you call it: a-z, 0-9 and -
    name: String,
    #[arg(
        long,
        required_unless_present = "pull",
        conflicts_with = "pull",
        help = "Where its events go; may hold {aggregate_id} and other fields of the event"
    )]
    url: Option<String>,
    /// Consumers ask for its events, with oncebox consume or over the API; nothing is sent
    #[arg(long)]
    #[serde(skip)]
    pull: bool,
    #[command(flatten)]
    #[serde(flatten)]
    terms: Terms,
    /// File with the secret that the receiver has already (whsec_…) [default: a new one is made]
    #[arg(long, value_name = "FILE", help_heading = "Secret")]
    #[serde(skip)]
    secret_file: Option<PathBuf>,
}

#[derive(Debug, Args, Serialize)]
pub(super) struct Change {
    /// Its name or id
    #[serde(skip)]
    name: String,
    /// Where its events go
    #[arg(long)]
    url: Option<String>,
    #[command(flatten)]
    #[serde(flatten)]
    terms: Terms,
    /// Remove a header field; may be repeated
    #[arg(long, value_name = "NAME")]
    #[serde(skip)]
    remove_header: Vec<String>,
    /// Remove the filter, the template, the event headers or what the flags of the order say; may be repeated
    #[arg(long, value_parser = ["filter", "template", "event-headers", "order"], help_heading = "Content")]
    #[serde(skip)]
    remove: Vec<String>,
}

/// What both creating and changing can say.
#[derive(Debug, Args, Serialize)]
struct Terms {
    /// A type it wants: invoice.paid, invoice.*; may be repeated [default when created: all]
    #[arg(long = "event-type", value_name = "PATTERN")]
    event_types: Vec<String>,
    /// Where its events come from: outbox, all, provider:NAME [default when created: outbox]
    #[arg(long)]
    source: Option<String>,
    /// A further header field, 'Name: value'; may be repeated
    #[arg(long = "header", value_name = "FIELD", value_parser = header)]
    #[serde(skip)]
    headers: Vec<(String, String)>,
    /// Which events go one after another: those of one key or aggregate, or all [default when created: none]
    #[arg(long, value_parser = ["none", "key", "strict"])]
    ordering: Option<String>,
    #[arg(
        long,
        ignore_case = true,
        value_parser = PossibleValuesParser::new(["POST", "PUT", "PATCH"]).map(|m| m.to_ascii_uppercase()),
        help = "The method of its requests [default when created: POST]"
    )]
    method: Option<String>,
    /// The person or team responsible; free text
    #[arg(long)]
    #[serde(rename = "owner_id")]
    owner: Option<String>,
    #[command(flatten)]
    #[serde(skip)]
    order: Order,
    #[command(flatten)]
    #[serde(skip)]
    policy: Policy,
    #[command(flatten)]
    #[serde(skip)]
    content: Content,
}

/// The field `order`; `--remove order` takes away what there is.
#[derive(Debug, Args, Serialize)]
#[command(next_help_heading = "Order")]
struct Order {
    /// Subscriptions with the same group share their lanes
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// What a lane does when its first delivery fails [default when created: block]
    #[arg(long, value_parser = ["block", "park", "skip"])]
    head_of_line: Option<String>,
    /// Counted failures until a delivery is parked, with --head-of-line park
    #[arg(long, value_name = "N")]
    park_after: Option<u32>,
    /// The point at which one delivery for each funnel value is in flight
    #[arg(long, value_name = "NAME")]
    funnel_point: Option<String>,
    /// Of deliveries about the same entity that wait, only the newest is sent
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    latest_only: Option<bool>,
    /// Never a call for an older state after one for a newer: of one event, one entity, or the text at --call-path
    #[arg(long, value_parser = ["event", "entity", "custom"])]
    external_calls: Option<String>,
    /// Where the key of a custom external call is in the payload, a JSONPath
    #[arg(long, value_name = "PATH")]
    call_path: Option<String>,
    /// How long a delivery may wait behind others until it is given up, like 300s
    #[arg(long, value_name = "SPAN", value_parser = input::span)]
    postpone_limit: Option<String>,
}

#[derive(Debug, Args, Serialize)]
#[command(next_help_heading = "Attempts")]
struct Policy {
    /// Waits between attempts, like 5s,30s,5min; the last is repeated
    #[arg(long, value_name = "SPANS", value_delimiter = ',', value_parser = input::span)]
    steps: Vec<String>,
    /// Counted attempts until a delivery is given up
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,
    /// Time for a whole attempt, like 30s
    #[arg(long, value_name = "SPAN", value_parser = input::span)]
    timeout: Option<String>,
    /// How long a consumer of a pull subscription has an event to itself, like 60s
    #[arg(long, value_name = "SPAN", value_parser = input::span)]
    lease: Option<String>,
    /// How long its target has to confirm what it accepted, like 1h; without it, a 2xx completes a delivery
    #[arg(long, value_name = "SPAN", value_parser = input::span)]
    confirm_within: Option<String>,
    /// Requests in flight at once
    #[arg(long, value_name = "N")]
    in_flight_max: Option<u32>,
}

pub(super) const SUBSCRIPTIONS: Noun = Noun {
    path: "/v1/subscriptions",
    one: "Subscription",
    many: "subscriptions",
    time: Some("created_at"),
    columns: &[
        ("NAME", 0, Text("name")),
        ("STATE", 1, By(|s| text(s, "state").to_ascii_lowercase())),
        ("TYPES", 2, Words("event_types")),
        ("SOURCE", 3, Text("source")),
        ("TARGET", 1, By(target)),
        ("FAILURES", 3, Text("failure_count")),
        ("LAST SUCCESS (UTC)", 4, Minute("last_success_at")),
    ],
    fields: &[
        ("id", Text("id")),
        ("target", By(target)),
        ("ordering", Text("ordering")),
        ("order", By(|s| text(s, "order").replace("{}", ""))),
        ("source", Text("source")),
        ("types", Words("event_types")),
        ("owner", Text("owner_id")),
        ("headers", By(|s| text(s, "headers").replace("{}", ""))),
        ("format", Text("format")),
        ("event headers", Words("event_headers")),
        ("filter", By(|s| text(s, "filter").replace("[]", ""))),
        ("template", Text("template")),
        ("policy", By(|s| text(s, "policy").replace("{}", ""))),
        ("last success", Instant("last_success_at")),
        ("last failure", Instant("last_failure_at")),
        ("failures since success", Text("failure_count")),
    ],
};

/// Where its events go, or that consumers ask for them.
fn target(subscription: &Value) -> String {
    if text(subscription, "target") == "pull" {
        return "pull".to_owned();
    }
    match text(subscription, "method").as_str() {
        "POST" => text(subscription, "url"),
        method => format!("{method} {}", text(subscription, "url")),
    }
}

impl Verbs for Verb {
    fn run(&self, connect: &ConnectArgs, shared: &Shared) -> Result<(), Failure> {
        let remote = connect.open(shared)?;
        let post = |name: &str, verb: &str| {
            let path = format!("{}/{verb}", SUBSCRIPTIONS.at(name));
            print(&remote, &remote.post(&path, None)?)
        };
        match self {
            Self::List(listing) => SUBSCRIPTIONS.list(&remote, listing, &()),
            Self::Create(create) => create.run(&remote),
            Self::Show(NameArg { name }) => print(&remote, &remote.get(&SUBSCRIPTIONS.at(name))?),
            Self::Change(change) => change.run(&remote),
            Self::Test(test) => test.run(&remote, &SUBSCRIPTIONS.at(&test.name)),
            Self::Pause(NameArg { name }) => post(name, "pause"),
            Self::Resume(NameArg { name }) => post(name, "resume"),
            Self::Recover { name, since, until, pace } => {
                let path = format!("{}/recover", SUBSCRIPTIONS.at(name));
                let body = noun::body(&json!({ "since": since, "until": until }));
                let request = job::Request {
                    path: &path,
                    many: "events",
                    question: ["This resumes the subscription and sends it", "again"],
                    done: "sent",
                    is_more: true,
                };
                pace.run(&remote, request, Value::Object(body))
            }
            Self::Delete(args) => SUBSCRIPTIONS.delete(&remote, args, ""),
        }
    }
}

impl Terms {
    /// Adds headers, policy and content to a body: what was given goes over what there is.
    fn put(&self, body: &mut Map<String, Value>, before: &Value) -> Result<(), Failure> {
        let known = |field: &str| before.get(field).and_then(Value::as_object).cloned();
        if !self.headers.is_empty() {
            let mut all = known("headers").unwrap_or_default();
            for (name, value) in &self.headers {
                all.retain(|have, _| !have.eq_ignore_ascii_case(name));
                all.insert(name.clone(), value.as_str().into());
            }
            body.insert("headers".to_owned(), Value::Object(all));
        }
        let order = noun::body(&self.order);
        if !order.is_empty() {
            let removed = body.get("order").and_then(Value::as_object).cloned();
            let mut all = removed.or_else(|| known("order")).unwrap_or_default();
            all.extend(order);
            body.insert("order".to_owned(), Value::Object(all));
        }
        let policy = noun::body(&self.policy);
        if !policy.is_empty() {
            let mut all = known("policy").unwrap_or_default();
            all.extend(policy);
            body.insert("policy".to_owned(), Value::Object(all));
        }
        self.content.put(body, before)
    }
}

impl Create {
    fn run(&self, remote: &Remote) -> Result<(), Failure> {
        let Self { name, pull, terms, secret_file, .. } = self;
        let mut body = noun::body(self);
        if *pull {
            body.insert("target".to_owned(), "pull".into());
        }
        terms.put(&mut body, &Value::Null)?;
        if let Some(path) = secret_file {
            body.insert("secret".to_owned(), secrets::one_line(path)?.as_str().into());
        }
        let mut made = remote.post(SUBSCRIPTIONS.path, Some(&Value::Object(body)))?;
        if terms.content.is_trial() {
            return print_trial(remote, &made);
        }
        // A secret that was brought is known; it is not repeated into a terminal or a log.
        if let (Some(_), Value::Object(fields)) = (secret_file, &mut made) {
            fields.remove("secret");
        }
        if remote.json() {
            return out::json(&made);
        }
        out::line(format_args!("created: {name} {}", target(&made)))?;
        warn_of_missing_provider(remote, &made);
        if secret_file.is_none() {
            let secret = once(&made, "secret")?;
            out::line(format_args!("secret: {secret}   (this is the only time it is shown)"))?;
            out::line("The receiver checks webhook-signature with it (Standard Webhooks v1).")?;
        }
        if *pull {
            return out::line(format_args!(
                "Ask for its events: oncebox consume {name} -- COMMAND"
            ));
        }
        out::line(format_args!("Its deliveries: oncebox delivery list --subscription {name}"))?;
        subscription_test::offer(remote, name, &SUBSCRIPTIONS.at(name))
    }
}

impl Change {
    fn run(&self, remote: &Remote) -> Result<(), Failure> {
        let path = SUBSCRIPTIONS.at(&self.name);
        let before = remote.get(&path)?;
        let mut body = noun::body(self);
        for name in &self.remove {
            let nothing = match name.as_str() {
                "event-headers" => json!([]),
                "order" => json!({}),
                _ => Value::Null,
            };
            body.insert(name.replace('-', "_"), nothing);
        }
        self.terms.put(&mut body, &before)?;
        if !self.remove_header.is_empty() {
            let known = || before.get("headers").cloned().unwrap_or_default();
            let mut headers = body.remove("headers").unwrap_or_else(known);
            if let Value::Object(fields) = &mut headers {
                fields.retain(|name, _| {
                    !self.remove_header.iter().any(|gone| gone.eq_ignore_ascii_case(name))
                });
            }
            body.insert("headers".to_owned(), headers);
        }
        if body.is_empty() {
            return Err(Failure::usage("there is nothing to change; see --help"));
        }
        let changed = remote.patch(&path, &Value::Object(body))?;
        if self.terms.content.is_trial() {
            return print_trial(remote, &changed);
        }
        warn_of_missing_provider(remote, &changed);
        print(remote, &changed)
    }
}

/// A source may name a provider that is made later, or is misspelt.
fn warn_of_missing_provider(remote: &Remote, subscription: &Value) {
    let source = text(subscription, "source");
    let Some(provider) = source.strip_prefix("provider:") else { return };
    let found = remote.get(&format!("/v1/providers/{}", plain(provider)));
    if found.is_err_and(|failure| failure.code == exit::NOT_FOUND) {
        out::note(format_args!(
            "There is no provider {provider}: until there is one, no events come from it (oncebox provider list)."
        ));
    }
}

/// Whether a person can end what holds it back.
pub(super) fn is_ended_by_resume(subscription: &Value) -> bool {
    let holds = subscription.get("holds").and_then(Value::as_array).into_iter().flatten();
    let reasons = holds.filter_map(|hold| HoldReason::parse(&text(hold, "reason")));
    reasons.into_iter().any(HoldReason::ends_by_resume)
}

/// What holds a subscription back: `paused since 2026-01-31 12:00:00.000 (by a person)`.
pub(super) fn holds(subscription: &Value) -> Vec<String> {
    let holds = subscription.get("holds").and_then(Value::as_array).into_iter().flatten();
    let said = |hold: &Value| {
        let (reason, since) = (text(hold, "reason"), instant(hold, "since"));
        let mut said = format!("{reason} since {since} ({})", text(hold, "detail"));
        for (field, what) in [("until", "until"), ("probe_at", "next probe at")] {
            let at = instant(hold, field);
            if !at.is_empty() {
                said.extend([", ", what, " ", &at]);
            }
        }
        said
    };
    holds.map(said).collect()
}

fn print(remote: &Remote, subscription: &Value) -> Result<(), Failure> {
    SUBSCRIPTIONS.print(remote, subscription)?;
    if remote.json() {
        return Ok(());
    }
    for hold in holds(subscription) {
        out::line(format_args!("  held: {hold}"))?;
    }
    if is_ended_by_resume(subscription) {
        let name = text(subscription, "name");
        out::line(format_args!("To send again: oncebox subscription resume {name}"))?;
    }
    Ok(())
}
