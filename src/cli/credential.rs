//! `oncebox credential`: what subscriptions sign with and log on with, and what providers' webhooks are checked with.
//!
//! Not here: adding a provider's secret ([`super::provider`]), and the master key ([`super::keys`]).

use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::Value;

use crate::base::clock::Clock;
use crate::cli::exit::{FAILED, Failure};
use crate::cli::noun::{self, Confirm, Listing, Noun, Verbs};
use crate::cli::remote::{ConnectArgs, Remote, plain};
use crate::cli::secrets::SecretAt;
use crate::cli::shared::Shared;
use crate::cli::show::Cell::{By, Instant, Minute, Text};
use crate::cli::show::{instant, text};
use crate::cli::{input, out};
use crate::model::credential::{ClientAuth, Kind, State};

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Credentials in force, oldest first; the secrets themselves are not shown
    List {
        #[command(flatten)]
        filter: Filter,
        #[command(flatten)]
        listing: Listing,
    },
    /// One credential
    Show {
        /// Its id
        id: String,
    },
    /// Set what a subscription signs with, logs on with, or its client certificate; the one before is revoked
    #[command(
        after_help = "A signing secret is made if none is given, and shown this once. Examples:\n  \
        oncebox credential set erp --kind bearer --secret-file token.txt\n  \
        oncebox credential set erp --kind client_certificate --secret-file erp.pem\n  \
        oncebox credential set erp --kind signing_ed25519"
    )]
    Set(Box<Set>),
    /// Replace a credential by a new version, which is verified before the old one ends
    #[command(
        after_help = "A signing secret is made if none is given, and shown this once. Examples:\n  \
        oncebox credential rotate ID\n  \
        oncebox credential rotate ID --secret-file token.txt\n  \
        oncebox credential rotate ID --command vault"
    )]
    Rotate(Rotate),
    /// Set how often a credential is rotated by itself; without flags, never
    Schedule {
        /// Its id
        id: String,
        #[command(flatten)]
        plan: Plan,
    },
    /// Revoke a credential: nothing is signed, sent or checked with it from now on
    Revoke {
        /// Its id
        id: String,
        #[command(flatten)]
        confirm: Confirm,
    },
}

#[derive(Debug, Args, Serialize)]
pub(super) struct Filter {
    /// Only this subscription's: its name or id
    #[arg(long, value_name = "NAME")]
    subscription: Option<String>,
    /// Only this provider's
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// Only those in this state
    #[arg(long, value_parser = PossibleValuesParser::new(State::ALL.map(State::as_str)))]
    state: Option<String>,
}

#[derive(Debug, Args, Serialize)]
pub(super) struct Rotate {
    /// Its id
    #[serde(skip)]
    id: String,
    #[command(flatten)]
    #[serde(skip)]
    secret: SecretAt,
    /// A command of the settings whose output is the new secret
    #[arg(long, value_name = "NAME", conflicts_with_all = ["secret_file", "secret_stdin", "secret_credential"])]
    command: Option<String>,
    /// How long old and new are valid side by side [default: 24h]
    #[arg(long, value_name = "SPAN", value_parser = input::span)]
    overlap: Option<String>,
    /// Why; kept in the audit
    #[arg(long)]
    reason: Option<String>,
}

#[derive(Debug, Args, Serialize)]
pub(super) struct Plan {
    /// How often, like 90d; needs --command
    #[arg(long, value_name = "SPAN", value_parser = input::span, requires = "command")]
    every: Option<String>,
    /// A command of the settings whose output is the new secret; it also runs when the target refuses the credential
    #[arg(long, value_name = "NAME")]
    command: Option<String>,
}

#[derive(Debug, Args, Serialize)]
pub(super) struct Set {
    /// The subscription's name or id
    #[serde(skip)]
    subscription: String,
    /// What it is
    #[arg(long, value_parser = PossibleValuesParser::new(Kind::ALL.map(Kind::as_str)))]
    kind: String,
    #[command(flatten)]
    #[serde(skip)]
    secret: SecretAt,
    /// basic: the user; the secret is the password
    #[arg(long)]
    user: Option<String>,
    #[arg(
        long,
        value_name = "NAME",
        help = "api_key: the header field, like X-API-Key; the secret is its whole value"
    )]
    header: Option<String>,
    /// oauth2: the token endpoint; the secret is the client's
    #[arg(long, value_name = "URL")]
    token_url: Option<String>,
    /// oauth2: the client
    #[arg(long, value_name = "ID")]
    client_id: Option<String>,
    /// oauth2: what is asked for, words with a space between them
    #[arg(long)]
    scope: Option<String>,
    /// oauth2: whom the token is for
    #[arg(long)]
    audience: Option<String>,
    /// oauth2: how the client authenticates: a header field, or form fields [default: basic]
    #[arg(long, value_parser = PossibleValuesParser::new(ClientAuth::ALL.map(ClientAuth::as_str)))]
    client_auth: Option<String>,
}

/// How long a rotation is waited for: a command, and a verification of the longest `policy.timeout`.
const TIMEOUT: Duration = Duration::from_mins(12);

const CREDENTIALS: Noun = Noun {
    path: "/v1/credentials",
    one: "Credential",
    many: "credentials",
    time: Some("created_at"),
    columns: &[
        ("ID", 0, Text("id")),
        ("OF", 0, By(owner)),
        ("KIND", 0, Text("kind")),
        ("STATE", 1, Text("state")),
        ("VERSION", 4, Text("version")),
        ("LAST USED (UTC)", 2, Minute("last_used_at")),
        ("VALID UNTIL (UTC)", 2, Minute("valid_until")),
        ("CREATED (UTC)", 3, Minute("created_at")),
    ],
    fields: &[
        ("of", By(owner)),
        ("kind", Text("kind")),
        ("state", Text("state")),
        ("version", Text("version")),
        ("settings", By(|one| text(one, "settings").replace("{}", ""))),
        ("created", Instant("created_at")),
        ("valid until", By(valid_until)),
        ("last used", Instant("last_used_at")),
        ("verified until", Instant("verify_until")),
        ("not accepted", Text("verify_error")),
        ("rotated every", Text("rotate_every")),
        ("by command", Text("rotate_command")),
    ],
};

fn owner(one: &Value) -> String {
    let provider = text(one, "provider");
    if provider.is_empty() { text(one, "subscription") } else { format!("provider {provider}") }
}

/// When it ends; whether it has.
fn valid_until(one: &Value) -> String {
    let now = Clock::machine().wall().to_string();
    let is_over = |until: &String| !until.is_empty() && *until <= now;
    let over = Some(text(one, "valid_until")).filter(is_over).map_or("", |_| " (expired)");
    format!("{}{over}", instant(one, "valid_until"))
}

impl Verbs for Verb {
    fn run(&self, connect: &ConnectArgs, shared: &Shared) -> Result<(), Failure> {
        let remote = connect.open(shared)?;
        match self {
            Self::List { filter, listing } => CREDENTIALS.list(&remote, listing, filter),
            Self::Show { id } => CREDENTIALS.show(&remote, id),
            Self::Set(set) => set.run(&remote),
            Self::Rotate(rotate) => rotate.run(&remote),
            Self::Schedule { id, plan } => {
                let plan = Value::Object(noun::body(plan));
                CREDENTIALS.act(&remote, id, "schedule", Some(&plan))
            }
            Self::Revoke { id, confirm } => {
                confirm.ask(format_args!("Revoke the credential {id}"))?;
                CREDENTIALS.act(&remote, id, "revoke", None)
            }
        }
    }
}

impl Rotate {
    fn run(&self, remote: &Remote) -> Result<(), Failure> {
        let mut body = noun::body(self);
        if let Some(secret) = self.secret.read()? {
            body.insert("secret".to_owned(), secret.as_str().into());
        }
        let path = format!("{}/rotate", CREDENTIALS.at(&self.id));
        let made = remote.post_within(&path, Some(&Value::Object(body)), TIMEOUT)?;
        CREDENTIALS.print(remote, &made)?;
        let is_kept = text(&made, "state") == "revoked";
        if !remote.json() {
            show_new(&made)?;
            out::line(match text(&made, "state").as_str() {
                "next" => "It takes the place of the old one when the target accepts it.",
                "revoked" => "The target does not accept it; the old one stays in force.",
                _ => "It has taken the place of the old one.",
            })?;
        }
        if is_kept { Err(Failure::new(FAILED, "")) } else { Ok(()) }
    }
}

/// A secret that was made now, and the public key for the receiver.
fn show_new(made: &Value) -> Result<(), Failure> {
    if let Some(secret) = made.get("secret").and_then(Value::as_str) {
        out::line(format_args!("secret: {secret}   (this is the only time it is shown)"))?;
    }
    let public = made.get("settings").map(|settings| text(settings, "public_key"));
    match public.filter(|key| !key.is_empty()) {
        Some(key) => out::line(format_args!("public key for the receiver: {key}")),
        None => Ok(()),
    }
}

impl Set {
    fn run(&self, remote: &Remote) -> Result<(), Failure> {
        let mut body = noun::body(self);
        match self.secret.read()? {
            Some(secret) => body.insert("secret".to_owned(), secret.as_str().into()),
            None if self.kind.starts_with("signing") => None,
            None => {
                return Err(Failure::usage(
                    "say where the secret is: --secret-file, --secret-stdin or --secret-credential",
                ));
            }
        };
        let path = format!("/v1/subscriptions/{}/credentials", plain(&self.subscription));
        let made = remote.post(&path, Some(&Value::Object(body)))?;
        CREDENTIALS.print(remote, &made)?;
        if remote.json() {
            return Ok(());
        }
        show_new(&made)
    }
}
