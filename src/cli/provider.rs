//! `oncebox provider`: who may post webhooks, and how they sign.
//!
//! Not here: what they posted ([`super::webhook`]), and where their secrets come from
//! ([`super::secrets`]).

use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use serde_json::{Map, Value};

use crate::cli::listing::{List, Paging};
use crate::cli::remote::{ConnectArgs, Remote, plain};
use crate::cli::secrets::{Secret, SecretFrom};
use crate::cli::show::{self, Column, instant, minute, text};
use crate::cli::{Failure, Shared, exit, input, out, pii};
use crate::signatures::Scheme;
use crate::signatures::kinds;

/// Who may post webhooks, and how they sign
#[derive(Debug, Args)]
pub(super) struct Providers {
    #[command(flatten)]
    reach: ConnectArgs,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Providers, oldest first
    List {
        #[command(flatten)]
        paging: Paging,
    },
    /// Add a provider; prints the path to give to it
    Create(Create),
    /// One provider
    Show {
        /// The provider's name
        name: String,
    },
    /// Change a provider; a new secret is added, the others stay in force
    Change(Change),
    /// Its secrets in force, newest first, without the secrets themselves
    Secrets {
        /// The provider's name
        name: String,
    },
    /// Withdraw a secret: what is signed with it is refused from now on
    Withdraw {
        /// The provider's name
        name: String,
        /// The secret's id, as listed by: oncebox provider secrets
        secret: String,
    },
    /// Delete a provider: it can post no more; what it sent stays
    Delete {
        /// The provider's name
        name: String,
    },
}

#[derive(Debug, Args)]
struct Signing {
    /// Settings of a scheme that has some: a JSON object, or @file
    #[arg(long, value_name = "JSON")]
    scheme_settings: Option<String>,
}

#[derive(Debug, Args)]
struct Create {
    /// What you call it: a-z, 0-9 and -; the last part of its path
    name: String,
    /// How it signs
    #[arg(long, value_name = "SCHEME", value_parser = PossibleValuesParser::new(kinds()))]
    scheme: String,
    #[command(flatten)]
    signing: Signing,
    /// What happens to personal data, which has to be stated: allow, or a policy (try it: oncebox pii test)
    #[arg(long, value_name = "allow|FILE|JSON")]
    pii: String,
    #[command(flatten)]
    secret: SecretFrom,
    #[command(flatten)]
    bounds: Bounds,
}

#[derive(Debug, Args)]
struct Change {
    /// The provider's name
    name: String,
    /// How it signs
    #[arg(long, value_name = "SCHEME", value_parser = PossibleValuesParser::new(kinds()))]
    scheme: Option<String>,
    #[command(flatten)]
    signing: Signing,
    /// What happens to personal data from now on
    #[arg(long, value_name = "allow|FILE|JSON")]
    pii: Option<String>,
    #[command(flatten)]
    secret: SecretFrom,
    #[command(flatten)]
    bounds: Bounds,
}

#[derive(Debug, Args)]
struct Bounds {
    #[arg(
        long,
        value_name = "URL",
        help = "The URL it posts to, if not its path below listen.public_url; some signatures cover it"
    )]
    public_url: Option<String>,
    /// The largest body it may send, in bytes [default: 1048576]
    #[arg(long, value_name = "BYTES")]
    body_bytes_max: Option<u32>,
    /// How far its signed time may be from ours, like 5min [default: the scheme's, mostly 5min]
    #[arg(long, value_name = "SPAN", value_parser = humantime::parse_duration)]
    tolerance: Option<Duration>,
    #[arg(
        long,
        value_name = "SPAN",
        value_parser = humantime::parse_duration,
        help = "For how long the same signed bytes count once, where the id is not signed [default: 24h; 0s: each id is \
                an event]"
    )]
    replay_window: Option<Duration>,
}

/// Printed when the settings of the scheme `generic` are wrong or missing; `docs/providers.md` explains them.
const GENERIC_EXAMPLE: &str = r#"For a hex HMAC-SHA256 of the body in the header X-Signature, id and type in the body:
  --scheme-settings '{"check":{"hmac":{"signed":"{body}","header":"X-Signature"}},"event_id":{"pointer":"/id"},"event_type":{"pointer":"/type"}}'"#;

const COLUMNS: [Column; 5] = [
    Column { title: "NAME", of: |p| text(p, "name"), rank: 0 },
    Column { title: "SCHEME", of: scheme_word, rank: 1 },
    Column { title: "PATH", of: |p| text(p, "path"), rank: 1 },
    Column { title: "TOLERANCE", of: |p| format!("{} s", text(p, "tolerance_secs")), rank: 3 },
    Column { title: "CREATED (UTC)", of: |p| minute(p, "created_at"), rank: 2 },
];

const SECRETS: [Column; 3] = [
    Column { title: "ID", of: |s| text(s, "id"), rank: 0 },
    Column { title: "VERSION", of: |s| text(s, "version"), rank: 1 },
    Column { title: "SINCE (UTC)", of: |s| minute(s, "created_at"), rank: 1 },
];

fn secrets(remote: &Remote, name: &str) -> Result<(), Failure> {
    let found = remote.get(&format!("{}/secrets", path(name)))?;
    if remote.json() {
        return out::json(&found);
    }
    let items = found.get("items").and_then(Value::as_array).cloned().unwrap_or_default();
    show::table(&SECRETS, &items)
}

fn scheme_word(provider: &Value) -> String {
    provider.get("scheme").map(|scheme| text(scheme, "kind")).unwrap_or_default()
}

impl Providers {
    pub(super) fn run(&self, shared: &Shared) -> Result<(), Failure> {
        let remote = self.reach.open(shared)?;
        match &self.verb {
            Verb::List { paging } => {
                let (path, what) = ("/v1/providers", "providers");
                List { path, query: Vec::new(), columns: &COLUMNS, what }.print(&remote, paging)
            }
            Verb::Create(create) => create.run(&remote),
            Verb::Secrets { name } => secrets(&remote, name),
            Verb::Withdraw { name, secret } => {
                remote.delete(&format!("{}/secrets/{}", path(name), plain(secret)))?;
                out::line(format_args!("withdrawn: {secret}"))
            }
            Verb::Show { name } => shown(&remote, &remote.get(&path(name))?),
            Verb::Change(change) => change.run(&remote),
            Verb::Delete { name } => {
                let deleted = remote.delete(&path(name))?;
                if remote.json() {
                    return out::json(&deleted);
                }
                out::line(format_args!("deleted: {name}; what it sent stays"))
            }
        }
    }
}

fn path(name: &str) -> String {
    format!("/v1/providers/{}", plain(name))
}

impl Signing {
    /// The scheme as the API takes it, and as this program knows it.
    fn scheme(&self, kind: &str) -> Result<(Value, Scheme), Failure> {
        let mut settings = match &self.scheme_settings {
            Some(text) => input::object("--scheme-settings", text)?,
            None => Map::new(),
        };
        settings.insert("kind".to_owned(), kind.into());
        let scheme = serde_json::from_value(Value::Object(settings.clone())).map_err(|error| {
            let failure = Failure::input(error);
            if kind == "generic" { failure.and(GENERIC_EXAMPLE) } else { failure }
        })?;
        Ok((Value::Object(settings), scheme))
    }
}

impl Bounds {
    fn put(&self, body: &mut Map<String, Value>) {
        if let Some(url) = &self.public_url {
            body.insert("public_url".to_owned(), url.as_str().into());
        }
        if let Some(bytes) = self.body_bytes_max {
            body.insert("body_bytes_max".to_owned(), bytes.into());
        }
        if let Some(tolerance) = self.tolerance {
            body.insert("tolerance_secs".to_owned(), tolerance.as_secs().into());
        }
        if let Some(window) = self.replay_window {
            body.insert("replay_window_secs".to_owned(), window.as_secs().into());
        }
    }
}

impl Create {
    fn run(&self, remote: &Remote) -> Result<(), Failure> {
        let (scheme_json, scheme) = self.signing.scheme(&self.scheme)?;
        let secret = self.secret.read(&scheme)?;
        if secret.is_none() && scheme.has_secret() {
            let why = "give the secret that the provider shows with --secret-file or --secret-stdin, \
                       or make one with --generate-secret";
            return Err(Failure::new(exit::USAGE, why));
        }
        secret.iter().try_for_each(|secret| check(&scheme, secret))?;
        let stated = pii::stated("--pii", &self.pii)?;
        let mut body = Map::new();
        body.insert("name".to_owned(), self.name.as_str().into());
        body.insert("scheme".to_owned(), scheme_json);
        body.insert("pii".to_owned(), stated);
        if let Some(secret) = &secret {
            body.insert("secret".to_owned(), secret.text.as_str().into());
        }
        self.bounds.put(&mut body);
        let made = remote.post("/v1/providers", Some(&Value::Object(body)))?;
        if remote.json() {
            return out::json(&with_secret(made, secret.as_ref()));
        }
        out::line(format_args!("created: {}", self.name))?;
        tell(secret.as_ref())?;
        let (here, path) = (remote.intake_base(), text(&made, "path"));
        match made.get("url").and_then(Value::as_str) {
            Some(public) => out::line(format_args!("URL to give to the provider: {public}"))?,
            None => out::line(format_args!(
                "Path to give to the provider: {path}   (here: {here}{path})"
            ))?,
        }
        match (scheme.kind(), self.name.as_str()) {
            ("generic" | "sendgrid" | "paypal" | "sns", _) => Ok(()),
            _ if secret.as_ref().is_some_and(|secret| secret.text.starts_with("whpk_")) => Ok(()),
            (kind, name) if kind == name => {
                out::line(format_args!("Try it: oncebox trigger {kind}"))
            }
            (kind, name) => {
                out::line(format_args!("Try it: oncebox trigger {kind} --provider {name}"))
            }
        }
    }
}

impl Change {
    fn run(&self, remote: &Remote) -> Result<(), Failure> {
        let mut body = Map::new();
        let mut scheme = None;
        if let Some(kind) = &self.scheme {
            let (json, parsed) = self.signing.scheme(kind)?;
            body.insert("scheme".to_owned(), json);
            scheme = Some(parsed);
        } else if self.signing.scheme_settings.is_some() {
            return Err(Failure::new(exit::USAGE, "--scheme-settings goes with --scheme"));
        }
        if let Some(stated) = &self.pii {
            body.insert("pii".to_owned(), pii::stated("--pii", stated)?);
        }
        self.bounds.put(&mut body);
        let secret = self.secret(remote, scheme)?;
        if let Some(secret) = &secret {
            body.insert("secret".to_owned(), secret.text.as_str().into());
        }
        if body.is_empty() {
            return Err(Failure::new(exit::USAGE, "there is nothing to change; see --help"));
        }
        let changed = remote.patch(&path(&self.name), &Value::Object(body))?;
        if remote.json() {
            return out::json(&with_secret(changed, secret.as_ref()));
        }
        shown(remote, &changed)?;
        tell(secret.as_ref())
    }

    /// A new secret has to suit the scheme that holds afterwards.
    fn secret(&self, remote: &Remote, scheme: Option<Scheme>) -> Result<Option<Secret>, Failure> {
        if !self.secret.is_given() {
            return Ok(None);
        }
        let scheme = if let Some(scheme) = scheme {
            scheme
        } else {
            let provider = remote.get(&path(&self.name))?;
            let known = provider.get("scheme").cloned().unwrap_or_default();
            serde_json::from_value(known).map_err(Failure::failed)?
        };
        let secret = self.secret.read(&scheme)?;
        secret.iter().try_for_each(|secret| check(&scheme, secret))?;
        Ok(secret)
    }
}

/// Looked at here as well, so that a wrong paste does not travel.
fn check(scheme: &Scheme, secret: &Secret) -> Result<(), Failure> {
    scheme
        .check_secret(&secret.text)
        .map_err(|error| Failure::input(format!("the secret cannot be used: {error}")))
}

/// Prints a secret that was made here. Nobody can read it again afterwards.
fn tell(secret: Option<&Secret>) -> Result<(), Failure> {
    match secret {
        Some(Secret { text, generated: true }) => out::line(format_args!(
            "secret: {}   (this is the only time it is shown)",
            text.as_str()
        )),
        Some(_) | None => Ok(()),
    }
}

fn with_secret(mut answer: Value, secret: Option<&Secret>) -> Value {
    if let (Value::Object(fields), Some(Secret { text, generated: true })) = (&mut answer, secret) {
        fields.insert("secret".to_owned(), text.as_str().into());
    }
    answer
}

/// What is stated of a provider or a tenant.
pub(super) fn personal_data(of: &Value) -> String {
    match of.get("pii") {
        Some(policy @ Value::Object(_)) => show::clean(&policy.to_string()),
        _ => text(of, "pii"),
    }
}

fn shown(remote: &Remote, provider: &Value) -> Result<(), Failure> {
    if remote.json() {
        return out::json(provider);
    }
    out::line(format_args!("Provider {}", text(provider, "name")))?;
    // Its settings are shown with it, where it has some.
    let scheme = provider.get("scheme").map(|scheme| match scheme.as_object().map(Map::len) {
        Some(1) => scheme_word(provider),
        Some(_) | None => show::clean(&scheme.to_string()),
    });
    show::fields(&[
        ("id", text(provider, "id")),
        ("path", text(provider, "path")),
        ("URL", text(provider, "url")),
        ("scheme", scheme.unwrap_or_default()),
        ("personal data", personal_data(provider)),
        ("largest body", format!("{} bytes", text(provider, "body_bytes_max"))),
        ("tolerance", format!("{} s", text(provider, "tolerance_secs"))),
        ("replay window", format!("{} s", text(provider, "replay_window_secs"))),
        ("created", instant(provider, "created_at")),
        ("changed", instant(provider, "updated_at")),
    ])
}
