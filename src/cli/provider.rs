//! `oncebox provider`: the providers that may post webhooks, and their signature schemes.
//!
//! Not here: the posted webhooks ([`super::webhook`]), and reading a secret ([`super::secrets`]).

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::cli::exit::Failure;
use crate::cli::input::{object, seconds};
use crate::cli::noun::{self, Confirm, DeleteArgs, Listing, NameArg, Noun, Verbs};
use crate::cli::remote::{ConnectArgs, Remote, plain};
use crate::cli::secrets::{Secret, SecretFrom};
use crate::cli::shared::Shared;
use crate::cli::show::Cell::{By, Instant, Minute, Text};
use crate::cli::show::{self, Column, text};
use crate::cli::{out, pii};
use crate::signatures::{Scheme, kinds};

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Providers, oldest first
    List(Listing),
    /// Add a provider and print the path that it posts to
    Create(Create),
    /// One provider
    Show(NameArg),
    /// Change a provider; a new secret is added, the others stay valid
    Change(Change),
    /// List the valid secrets by id, newest first; the secrets themselves are not shown
    Secrets(NameArg),
    /// Withdraw a secret: webhooks signed with it are refused from now on
    Withdraw {
        /// The provider's name
        name: String,
        /// The secret's id, as listed by: oncebox provider secrets
        secret: String,
        #[command(flatten)]
        confirm: Confirm,
    },
    /// Delete a provider: its webhooks are refused; stored webhook events stay
    Delete(DeleteArgs),
}

#[derive(Debug, Args, Serialize)]
pub(super) struct Create {
    /// Name of the provider: a-z, 0-9 and -; the last part of its path
    name: String,
    /// Signature scheme
    #[arg(long, value_name = "SCHEME", value_parser = PossibleValuesParser::new(kinds()))]
    #[serde(skip)]
    scheme: String,
    /// Handling of personal data: allow, or a policy (test it: oncebox pii test)
    #[arg(long, value_name = "allow|FILE|JSON")]
    #[serde(skip)]
    pii: String,
    #[command(flatten)]
    #[serde(flatten)]
    terms: Terms,
}

#[derive(Debug, Args, Serialize)]
pub(super) struct Change {
    /// The provider's name
    #[serde(skip)]
    name: String,
    /// Signature scheme
    #[arg(long, value_name = "SCHEME", value_parser = PossibleValuesParser::new(kinds()))]
    #[serde(skip)]
    scheme: Option<String>,
    /// Handling of personal data from now on: allow, or a policy
    #[arg(long, value_name = "allow|FILE|JSON")]
    #[serde(skip)]
    pii: Option<String>,
    #[command(flatten)]
    #[serde(flatten)]
    terms: Terms,
}

/// The flags that `create` and `change` share.
#[derive(Debug, Args, Serialize)]
struct Terms {
    /// Settings of the scheme, if it has any: a JSON object, or @file
    #[arg(long, value_name = "JSON")]
    #[serde(skip)]
    scheme_settings: Option<String>,
    #[command(flatten)]
    #[serde(skip)]
    secret: SecretFrom,
    #[arg(
        long,
        value_name = "URL",
        help = "The URL that the provider posts to, if it is not its path below listen.public_url; some signatures cover it"
    )]
    public_url: Option<String>,
    /// The largest body it may send, in bytes [default: 1048576]
    #[arg(long, value_name = "BYTES")]
    body_bytes_max: Option<u32>,
    /// Largest difference between the signed time and ours, like 5min [default: the scheme's, mostly 5min]
    #[arg(long = "tolerance", value_name = "SPAN", value_parser = seconds)]
    tolerance_secs: Option<u64>,
    #[arg(
        long = "replay-window",
        value_name = "SPAN",
        value_parser = seconds,
        help = "How long identical signed bytes count as one event, for schemes that do not sign the id [default: 24h; \
                0s: each id is an event]"
    )]
    replay_window_secs: Option<u64>,
    #[arg(
        long,
        value_name = "PATH|header:NAME|none",
        value_parser = key_place,
        help = "Where the ordering key of its webhooks is, like '$.data.object.id' or header:X-Order-Id (docs/order.md)"
    )]
    #[serde(skip)]
    ordering_key: Option<Value>,
}

fn key_place(text: &str) -> Result<Value, String> {
    match text.strip_prefix("header:") {
        Some(name) => Ok(json!({ "header": name })),
        None if text.starts_with('$') => Ok(json!({ "path": text })),
        None if text == "none" => Ok(Value::Null),
        None => Err("give a path like $.data.object.id, header:NAME, or none".to_owned()),
    }
}

/// Printed if the settings of the scheme `generic` are wrong or missing; `docs/providers.md` explains them.
const GENERIC_EXAMPLE: &str = r#"For a hex HMAC-SHA256 of the body in the header X-Signature, id and type in the body:
  --scheme-settings '{"check":{"hmac":{"signed":"{body}","header":"X-Signature"}},"event_id":{"pointer":"/id"},"event_type":{"pointer":"/type"}}'"#;

const SECRETS: &[Column] = &[
    ("ID", 0, Text("id")),
    ("VERSION", 1, Text("version")),
    ("SINCE (UTC)", 1, Minute("created_at")),
];

const PROVIDERS: Noun = Noun {
    path: "/v1/providers",
    one: "Provider",
    many: "providers",
    time: Some("created_at"),
    columns: &[
        ("NAME", 0, Text("name")),
        ("SCHEME", 1, By(scheme_word)),
        ("PATH", 1, Text("path")),
        ("TOLERANCE", 3, By(|p| format!("{} s", text(p, "tolerance_secs")))),
        ("CREATED (UTC)", 2, Minute("created_at")),
    ],
    fields: &[
        ("id", Text("id")),
        ("path", Text("path")),
        ("URL", Text("url")),
        ("scheme", By(scheme)),
        ("personal data", By(pii::policy_of)),
        ("largest body", By(|p| format!("{} bytes", text(p, "body_bytes_max")))),
        ("tolerance", By(|p| format!("{} s", text(p, "tolerance_secs")))),
        ("replay window", By(|p| format!("{} s", text(p, "replay_window_secs")))),
        ("ordering key", Text("ordering_key")),
        ("created", Instant("created_at")),
        ("changed", Instant("updated_at")),
    ],
};

fn scheme_word(provider: &Value) -> String {
    provider.get("scheme").map(|scheme| text(scheme, "kind")).unwrap_or_default()
}

/// The scheme, with its settings if it has any.
fn scheme(provider: &Value) -> String {
    match provider.get("scheme") {
        Some(Value::Object(fields)) if fields.len() > 1 => text(provider, "scheme"),
        _ => scheme_word(provider),
    }
}

impl Verbs for Verb {
    fn run(&self, connect: &ConnectArgs, shared: &Shared) -> Result<(), Failure> {
        let remote = connect.open(shared)?;
        match self {
            Self::List(listing) => PROVIDERS.list(&remote, listing, &()),
            Self::Create(create) => create.run(&remote),
            Self::Show(NameArg { name }) => PROVIDERS.show(&remote, name),
            Self::Change(change) => change.run(&remote),
            Self::Secrets(NameArg { name }) => {
                let found = remote.get(&format!("{}/secrets", PROVIDERS.at(name)))?;
                if remote.json() {
                    return out::json(&found);
                }
                show::table(SECRETS, &noun::items(&found))
            }
            Self::Withdraw { name, secret, confirm } => {
                confirm.ask(format_args!("Withdraw the secret {secret} of {name}"))?;
                let path = format!("{}/secrets/{}", PROVIDERS.at(name), plain(secret));
                remote.answer(&remote.delete(&path)?, format_args!("withdrawn: {secret}"))
            }
            Self::Delete(args) => PROVIDERS.delete(&remote, args, "; its webhook events stay"),
        }
    }
}

/// A scheme with the settings of `--scheme-settings`, as JSON for the API and parsed.
pub(super) fn parse_scheme(kind: &str, settings: Option<&str>) -> Result<(Value, Scheme), Failure> {
    let settings = settings.map(|text| object("--scheme-settings", text)).transpose()?;
    let mut settings = settings.unwrap_or_default();
    settings.insert("kind".to_owned(), kind.into());
    let settings = Value::Object(settings);
    let scheme = serde_json::from_value(settings.clone()).map_err(|error| {
        let failure = Failure::input(error);
        if kind == "generic" { failure.and(GENERIC_EXAMPLE) } else { failure }
    })?;
    Ok((settings, scheme))
}

impl Terms {
    /// The given flags. `--ordering-key none` is a null, which removes the place.
    fn body(&self, flags: &impl Serialize) -> Map<String, Value> {
        let mut body = noun::body(flags);
        body.extend(self.ordering_key.clone().map(|place| ("ordering_key".to_owned(), place)));
        body
    }

    fn scheme(&self, kind: &str) -> Result<(Value, Scheme), Failure> {
        parse_scheme(kind, self.scheme_settings.as_deref())
    }

    /// The secret that the flags name, checked against the scheme.
    fn secret(&self, scheme: &Scheme) -> Result<Option<Secret>, Failure> {
        let secret = self.secret.read(scheme)?;
        if let Some(secret) = &secret {
            let checked = scheme.check_secret(&secret.text);
            let refused = |error| Failure::input(format!("the secret cannot be used: {error}"));
            checked.map_err(refused)?;
        }
        Ok(secret)
    }
}

impl Create {
    fn run(&self, remote: &Remote) -> Result<(), Failure> {
        let (scheme_json, scheme) = self.terms.scheme(&self.scheme)?;
        let secret = self.terms.secret(&scheme)?;
        if secret.is_none() && scheme.has_secret() {
            return Err(Failure::usage(
                "give the provider's secret with --secret-file or --secret-stdin, or make one with --generate-secret",
            ));
        }
        let mut body = self.terms.body(self);
        body.insert("scheme".to_owned(), scheme_json);
        body.insert("pii".to_owned(), pii::policy_from_flag("--pii", &self.pii)?);
        let made = send(body, secret.as_ref(), |body| remote.post(PROVIDERS.path, Some(body)))?;
        if remote.json() {
            return out::json(&made);
        }
        out::line(format_args!("created: {}", self.name))?;
        print_secret(secret.as_ref())?;
        let (here, path) = (remote.intake_base(), text(&made, "path"));
        match made.get("url").and_then(Value::as_str) {
            Some(public) => out::line(format_args!("URL to give to the provider: {public}"))?,
            None => out::line(format_args!(
                "Path to give to the provider: {path}   (here: {here}{path})"
            ))?,
        }
        let kind = scheme.kind();
        let is_public_key = secret.as_ref().is_some_and(|secret| secret.text.starts_with("whpk_"));
        if is_public_key || ["generic", "sendgrid", "paypal", "sns"].contains(&kind) {
            return Ok(());
        }
        let name = Some(&self.name).filter(|name| *name != kind);
        let flag = name.map(|name| format!(" --provider {name}")).unwrap_or_default();
        out::line(format_args!("Try it: oncebox trigger {kind}{flag}"))
    }
}

impl Change {
    fn run(&self, remote: &Remote) -> Result<(), Failure> {
        let mut body = self.terms.body(self);
        let mut scheme = None;
        if let Some(kind) = &self.scheme {
            let (json, parsed) = self.terms.scheme(kind)?;
            body.insert("scheme".to_owned(), json);
            scheme = Some(parsed);
        } else if self.terms.scheme_settings.is_some() {
            return Err(Failure::usage("--scheme-settings goes with --scheme"));
        }
        if let Some(stated) = &self.pii {
            body.insert("pii".to_owned(), pii::policy_from_flag("--pii", stated)?);
        }
        let path = PROVIDERS.at(&self.name);
        let mut secret = None;
        if self.terms.secret.is_given() {
            // The secret must fit the scheme after the change.
            let scheme = scheme.map_or_else(
                || {
                    let known = remote.get(&path)?.get("scheme").cloned().unwrap_or_default();
                    serde_json::from_value(known).map_err(Failure::failed)
                },
                Ok,
            )?;
            secret = self.terms.secret(&scheme)?;
        }
        if body.is_empty() && secret.is_none() {
            return Err(Failure::usage("there is nothing to change; see --help"));
        }
        let changed = send(body, secret.as_ref(), |body| remote.patch(&path, body))?;
        PROVIDERS.print(remote, &changed)?;
        if remote.json() { Ok(()) } else { print_secret(secret.as_ref()) }
    }
}

/// Sends a body with its secret. A secret that was generated here is added to the answer.
fn send(
    mut body: Map<String, Value>,
    secret: Option<&Secret>,
    send: impl FnOnce(&Value) -> Result<Value, Failure>,
) -> Result<Value, Failure> {
    let text = secret.map(|secret| Value::from(secret.text.as_str()));
    body.extend(text.clone().map(|text| ("secret".to_owned(), text)));
    let mut answer = send(&Value::Object(body))?;
    if let (Value::Object(fields), true) = (&mut answer, secret.is_some_and(|s| s.generated)) {
        fields.extend(text.map(|text| ("secret".to_owned(), text)));
    }
    Ok(answer)
}

/// Prints a secret that was generated here. It cannot be shown again.
fn print_secret(secret: Option<&Secret>) -> Result<(), Failure> {
    match secret {
        Some(Secret { text, generated: true }) => out::line(format_args!(
            "secret: {}   (this is the only time it is shown)",
            text.as_str()
        )),
        Some(_) | None => Ok(()),
    }
}
