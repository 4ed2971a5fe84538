//! `oncebox subscription`: who wants which events, where they go and how.
//!
//! Not here: what was sent to them ([`super::delivery`]).

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Map, Value};

use crate::cli::listing::{List, Paging};
use crate::cli::remote::{ConnectArgs, Remote, once, plain};
use crate::cli::show::{self, Column, instant, text, words};
use crate::cli::{Failure, Shared, exit, input, out, secrets};

/// Who wants which events, and where they go
// Here `--url` is where events go, so the service is named by another flag.
#[derive(Debug, Args)]
#[command(mut_arg("service_url", |arg| arg.long("service")))]
pub(super) struct Subscriptions {
    #[command(flatten)]
    reach: ConnectArgs,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Subscriptions, oldest first
    List {
        #[command(flatten)]
        paging: Paging,
    },
    /// Add a subscription; prints the secret its requests are signed with, this once
    Create(Create),
    /// One subscription
    Show {
        /// Its name or id
        name: String,
    },
    /// Change a subscription; what is not given stays
    Change(Change),
    /// Send it nothing for now; its deliveries wait
    Pause {
        /// Its name or id
        name: String,
    },
    /// End a pause, or bring back one that was disabled because its target answered 410
    Resume {
        /// Its name or id
        name: String,
    },
    /// Delete a subscription; refused while it has open or dead deliveries
    Delete {
        /// Its name or id
        name: String,
    },
}

#[derive(Debug, Args)]
struct Create {
    /// What you call it: a-z, 0-9 and -
    name: String,
    #[arg(
        long,
        required_unless_present = "pull",
        conflicts_with = "pull",
        help = "Where its events go; may hold {aggregate_id} and its like"
    )]
    url: Option<String>,
    /// Consumers ask for its events, with oncebox consume or over the API; nothing is sent
    #[arg(long)]
    pull: bool,
    #[command(flatten)]
    terms: Terms,
    /// File with the secret the receiver has already (whsec_…); a new one is made where it is absent
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Change {
    /// Its name or id
    name: String,
    /// Where its events go
    #[arg(long)]
    url: Option<String>,
    #[command(flatten)]
    terms: Terms,
    /// Take a header field away; may be repeated
    #[arg(long, value_name = "NAME")]
    remove_header: Vec<String>,
}

/// What both creating and changing can say.
#[derive(Debug, Args)]
struct Terms {
    /// A type it wants: invoice.paid, invoice.*; may be repeated [all, unless told]
    #[arg(long = "event-type", value_name = "PATTERN")]
    event_types: Vec<String>,
    /// Where its events come from: outbox, all, provider:NAME [outbox, unless told]
    #[arg(long)]
    source: Option<String>,
    /// A further header field, 'Name: value'; may be repeated
    #[arg(long = "header", value_name = "FIELD", value_parser = header)]
    headers: Vec<(String, String)>,
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
    /// Which events go one after another: those of one key or aggregate, or all [none, unless told]
    #[arg(long, value_parser = ["none", "key", "strict"])]
    ordering: Option<String>,
    /// Requests in flight at once
    #[arg(long, value_name = "N")]
    in_flight_max: Option<u32>,
    /// The method it is called with [POST, unless told]
    #[arg(long, ignore_case = true, value_parser = ["POST", "PUT", "PATCH"])]
    method: Option<String>,
    /// Who answers for it; free text
    #[arg(long)]
    owner: Option<String>,
}

const COLUMNS: [Column; 7] = [
    Column { title: "NAME", of: |s| text(s, "name"), rank: 0 },
    Column { title: "STATE", of: standing, rank: 1 },
    Column { title: "TYPES", of: |s| words(s, "event_types"), rank: 2 },
    Column { title: "SOURCE", of: |s| text(s, "source"), rank: 3 },
    Column { title: "TARGET", of: target, rank: 1 },
    Column { title: "FAILURES", of: |s| text(s, "failure_count"), rank: 3 },
    Column { title: "LAST SUCCESS (UTC)", of: |s| show::minute(s, "last_success_at"), rank: 4 },
];

/// Where its events go, or that they are asked for.
fn target(subscription: &Value) -> String {
    if text(subscription, "target") == "pull" {
        return "pull".to_owned();
    }
    match text(subscription, "method").as_str() {
        "POST" => text(subscription, "url"),
        method => format!("{method} {}", text(subscription, "url")),
    }
}

/// The state in small letters, as everything else on the screen is.
fn standing(subscription: &Value) -> String {
    text(subscription, "state").to_ascii_lowercase()
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("give a header field as 'Name: value'")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

impl Subscriptions {
    pub(super) fn run(&self, shared: &Shared) -> Result<(), Failure> {
        let remote = self.reach.open(shared)?;
        match &self.verb {
            Verb::List { paging } => {
                let (path, what) = ("/v1/subscriptions", "subscriptions");
                List { path, query: Vec::new(), columns: &COLUMNS, what }.print(&remote, paging)
            }
            Verb::Create(create) => create.run(&remote),
            Verb::Show { name } => shown(&remote, &remote.get(&path(name))?),
            Verb::Change(change) => change.run(&remote),
            Verb::Pause { name } => {
                shown(&remote, &remote.post(&format!("{}/pause", path(name)), None)?)
            }
            Verb::Resume { name } => {
                shown(&remote, &remote.post(&format!("{}/resume", path(name)), None)?)
            }
            Verb::Delete { name } => {
                let deleted = remote.delete(&path(name))?;
                if remote.json() {
                    return out::json(&deleted);
                }
                out::line(format_args!("deleted: {name}"))
            }
        }
    }
}

fn path(name: &str) -> String {
    format!("/v1/subscriptions/{}", plain(name))
}

impl Terms {
    /// Puts what was given into the body; `headers` and `policy` are taken over from what there is.
    fn put(&self, body: &mut Map<String, Value>, before: &Value) {
        let Self {
            event_types,
            source,
            headers,
            steps,
            max_attempts,
            timeout,
            lease,
            ordering,
            in_flight_max,
            method,
            owner,
        } = self;
        let mut set = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                body.insert(name.to_owned(), value);
            }
        };
        let word = |text: &Option<String>| text.as_deref().map(Value::from);
        let list = |list: &[String]| (!list.is_empty()).then(|| Value::from(list.to_vec()));
        set("event_types", list(event_types));
        set("source", word(source));
        set("ordering", word(ordering));
        set("method", method.as_deref().map(|method| method.to_ascii_uppercase().into()));
        set("owner_id", word(owner));
        let known = |field: &str| before.get(field).and_then(Value::as_object).cloned();
        if !headers.is_empty() {
            let mut all = known("headers").unwrap_or_default();
            for (name, value) in headers {
                all.retain(|have, _| !have.eq_ignore_ascii_case(name));
                all.insert(name.clone(), value.as_str().into());
            }
            set("headers", Some(Value::Object(all)));
        }
        let policy = [
            ("steps", list(steps)),
            ("max_attempts", max_attempts.map(Value::from)),
            ("timeout", word(timeout)),
            ("lease", word(lease)),
            ("in_flight_max", in_flight_max.map(Value::from)),
        ];
        if policy.iter().any(|(_, value)| value.is_some()) {
            let mut all = known("policy").unwrap_or_default();
            for (name, value) in policy {
                all.extend(value.map(|value| (name.to_owned(), value)));
            }
            set("policy", Some(Value::Object(all)));
        }
    }
}

impl Create {
    fn run(&self, remote: &Remote) -> Result<(), Failure> {
        let mut body = Map::new();
        body.insert("name".to_owned(), self.name.as_str().into());
        if let Some(url) = &self.url {
            body.insert("url".to_owned(), url.as_str().into());
        }
        if self.pull {
            body.insert("target".to_owned(), "pull".into());
        }
        self.terms.put(&mut body, &Value::Null);
        if let Some(path) = &self.secret_file {
            let secret = secrets::one_line(path)?;
            body.insert("secret".to_owned(), secret.as_str().into());
        }
        let mut made = remote.post("/v1/subscriptions", Some(&Value::Object(body)))?;
        // Who brought the secret knows it; it is not repeated into a terminal or a log.
        if self.secret_file.is_some()
            && let Value::Object(fields) = &mut made
        {
            fields.remove("secret");
        }
        if remote.json() {
            return out::json(&made);
        }
        out::line(format_args!("created: {} {}", self.name, target(&made)))?;
        tell_of_source(remote, &made);
        if self.secret_file.is_none() {
            let secret = once(&made, "secret")?;
            out::line(format_args!("secret: {secret}   (this is the only time it is shown)"))?;
            out::line("The receiver checks webhook-signature with it (Standard Webhooks v1).")?;
        }
        if self.pull {
            return out::line(format_args!(
                "Ask for its events: oncebox consume {} -- COMMAND",
                self.name
            ));
        }
        out::line(format_args!(
            "Look at what goes there: oncebox delivery list --subscription {}",
            self.name
        ))
    }
}

impl Change {
    fn run(&self, remote: &Remote) -> Result<(), Failure> {
        let before = remote.get(&path(&self.name))?;
        let mut body = Map::new();
        if let Some(url) = &self.url {
            body.insert("url".to_owned(), url.as_str().into());
        }
        self.terms.put(&mut body, &before);
        if !self.remove_header.is_empty() {
            let known = || before.get("headers").cloned().unwrap_or_default();
            let mut headers = body.remove("headers").unwrap_or_else(known);
            if let Value::Object(fields) = &mut headers {
                let gone = |name: &str| {
                    self.remove_header.iter().any(|one| one.eq_ignore_ascii_case(name))
                };
                fields.retain(|name, _| !gone(name));
            }
            body.insert("headers".to_owned(), headers);
        }
        if body.is_empty() {
            return Err(Failure::new(exit::USAGE, "there is nothing to change; see --help"));
        }
        let changed = remote.patch(&path(&self.name), &Value::Object(body))?;
        tell_of_source(remote, &changed);
        shown(remote, &changed)
    }
}

/// Tells who misspelt a provider that nothing comes from it; it may be made later, too.
fn tell_of_source(remote: &Remote, subscription: &Value) {
    let source = text(subscription, "source");
    let Some(provider) = source.strip_prefix("provider:") else { return };
    let found = remote.get(&format!("/v1/providers/{}", plain(provider)));
    if found.is_err_and(|failure| failure.code == exit::NOT_FOUND) {
        out::note(format_args!(
            "There is no provider {provider}: until there is, nothing comes from it (oncebox provider list)."
        ));
    }
}

fn shown(remote: &Remote, subscription: &Value) -> Result<(), Failure> {
    if remote.json() {
        return out::json(subscription);
    }
    let title = format!("Subscription {}", text(subscription, "name"));
    out::line(format_args!("{title:<40}  {}", standing(subscription)))?;
    let filled = |field: &str| {
        let object = subscription.get(field).and_then(Value::as_object);
        let filled = object.filter(|fields| !fields.is_empty());
        filled.map(|fields| show::clean(&Value::Object(fields.clone()).to_string()))
    };
    show::fields(&[
        ("id", text(subscription, "id")),
        ("target", target(subscription)),
        ("ordering", text(subscription, "ordering")),
        ("source", text(subscription, "source")),
        ("types", words(subscription, "event_types")),
        ("owner", text(subscription, "owner_id")),
        ("headers", filled("headers").unwrap_or_default()),
        ("policy", filled("policy").unwrap_or_default()),
        ("last success", instant(subscription, "last_success_at")),
        ("last failure", instant(subscription, "last_failure_at")),
        ("failures since success", text(subscription, "failure_count")),
    ])?;
    let holds = subscription.get("holds").and_then(Value::as_array);
    for hold in holds.into_iter().flatten() {
        let (reason, since) = (text(hold, "reason"), instant(hold, "since"));
        out::line(format_args!("  held: {reason} since {since} ({})", text(hold, "detail")))?;
    }
    if standing(subscription) != "active" {
        let name = text(subscription, "name");
        out::line(format_args!("To send again: oncebox subscription resume {name}"))?;
    }
    Ok(())
}
