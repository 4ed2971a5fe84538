//! `oncebox setup`: from an installed program to the first webhook that arrives.
//!
//! A second run keeps all objects and makes the missing ones. The flags are [`wishes`], which [`questions`] fills in on a
//! terminal; [`settings_file`] and [`service`] bring settings into force; [`sample`] shows that an event arrives.

mod questions;
mod sample;
mod service;
mod settings_file;
mod wishes;

use std::fmt::Display;
use std::io::IsTerminal;

use crate::base::id::SystemDraw;
use crate::cli::prelude::*;
use crate::cli::remote::once;
use crate::cli::secrets;
use crate::signatures::new_secret::new_secret;
use settings_file::SettingsChange;
use wishes::{ProviderWish, Wishes};

/// The subscription's name where no provider gives it one.
const EVERYTHING: &str = "everything";

/// Set up this box: settings, a provider, a target, and a signed sample that shows it works
#[derive(Debug, Args)]
#[command(after_help = "\
Without these flags it asks, on a terminal. Settings go into conf.d/setup.toml beside the settings file. The package's
service reads them again or is restarted; another one is waited for. The sample goes to the target as a webhook does. Run it
again to change or to complete something: providers and subscriptions that are there stay as they are.

  oncebox setup
  oncebox setup --public-url https://hooks.example.com --trusted-proxy 127.0.0.1 --provider stripe --pii allow \\
      --secret-file stripe.secret --target http://10.0.0.5:8069/webhooks")]
pub(super) struct Setup {
    #[command(flatten)]
    wishes: Wishes,
    /// Send no sample
    #[arg(long)]
    no_sample: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// What was done, as text while it is done, or as JSON at the end.
struct Report {
    json: bool,
    parts: Map<String, Value>,
}

impl Report {
    fn say(&self, text: impl Display) -> Result<(), Failure> {
        if self.json { Ok(()) } else { out::line(text) }
    }

    fn part(&mut self, name: &str, value: Value) {
        self.parts.insert(name.to_owned(), value);
    }
}

impl Setup {
    pub(super) fn run(&self, global: &GlobalArgs) -> Result<(), Failure> {
        let wishes = self.known_wishes(global)?;
        let change = SettingsChange::of(global, &wishes)?;
        let provider = wishes.provider()?;
        let mut report = Report { json: self.connect.json(), parts: Map::new() };

        change.write(global, &mut report)?;
        let remote = service::with_settings(&self.connect, global, &change, &mut report)?;
        if let Some(provider) = &provider {
            provide(&remote, provider, &mut report)?;
        }
        let subscription = match &wishes.target {
            Some(url) => Some(subscribe(&remote, provider.as_ref(), url, &mut report)?),
            None => None,
        };
        let sent = if self.no_sample {
            Ok(())
        } else {
            match (&provider, &subscription) {
                (Some(provider), to) => {
                    let awaited = to.as_deref();
                    let trigger = provider.trigger(&self.connect);
                    sample::webhook(&remote, trigger, global, awaited, &mut report)
                }
                (None, Some(name)) => sample::ping(&remote, name, &mut report),
                (None, None) => Ok(()),
            }
        };
        if report.json {
            out::json(&report.parts)?;
        } else if sent.is_ok() {
            out::line(
                "Next:\n  oncebox console link   (a link for the browser)\n  oncebox status",
            )?;
        }
        sent
    }

    /// From the flags, or asked on a terminal.
    fn known_wishes(&self, global: &GlobalArgs) -> Result<Wishes, Failure> {
        if self.wishes.is_any() {
            return Ok(self.wishes.clone());
        }
        if !std::io::stdin().is_terminal() {
            let why = "there is no terminal to ask on: say with flags what to set up (--help)";
            return Err(Failure::usage(why));
        }
        let settings = global.settings()?;
        questions::asked(&mut std::io::stdin().lock(), &settings)
    }
}

/// Makes a missing provider, and prints its URL and its secret.
fn provide(remote: &Remote, wish: &ProviderWish, report: &mut Report) -> Result<(), Failure> {
    let name = &wish.name;
    let path = format!("/v1/providers/{}", percent_encoded(name));
    if let Some(found) = existing(remote, &path)? {
        let kind = found.pointer("/scheme/kind").and_then(Value::as_str).unwrap_or_default();
        if kind != wish.scheme.kind() {
            let why = format!("there is a provider {name} already, with the scheme {kind}");
            return Err(Failure::new(exit::CONFLICT, why));
        }
        report.say(format_args!(
            "Provider {name}: is there already; its secret and its terms stay"
        ))?;
        report.say(format_args!("  it posts to {}", posts_to(remote, &found)))?;
        report.part("provider", found);
        return Ok(());
    }
    let secret = match (&wish.secret_file, wish.scheme.has_secret()) {
        (Some(file), _) => Some(secrets::one_line(file)?),
        (None, true) => Some(new_secret(&wish.scheme, &SystemDraw::new())),
        (None, false) => None,
    };
    if let Some(text) = &secret {
        let refused =
            |error| Failure::input(format!("the secret of {name} cannot be used: {error}"));
        wish.scheme.check_secret(text).map_err(refused)?;
    }
    let mut body = json!({ "name": name, "scheme": wish.scheme_json, "pii": wish.pii });
    if let (Some(text), Value::Object(fields)) = (&secret, &mut body) {
        fields.insert("secret".to_owned(), text.as_str().into());
    }
    let mut made = remote.post("/v1/providers", Some(&body))?;
    report.say(format_args!("Provider {name}: created"))?;
    report.say(format_args!("  it posts to {}", posts_to(remote, &made)))?;
    if let (Some(text), None) = (&secret, &wish.secret_file) {
        let text = text.as_str();
        report.say(format_args!("  it signs with {text}   (this is the only time it is shown)"))?;
        if let Value::Object(fields) = &mut made {
            fields.insert("secret".to_owned(), text.into());
        }
    }
    report.part("provider", made);
    Ok(())
}

/// The URL that the provider is given.
fn posts_to(remote: &Remote, provider: &Value) -> String {
    match provider.get("url").and_then(Value::as_str) {
        Some(public) => public.to_owned(),
        None => format!("{}{}", remote.intake_base(), text(provider, "path")),
    }
}

/// Makes a missing subscription. Returns its name.
fn subscribe(
    remote: &Remote,
    provider: Option<&ProviderWish>,
    url: &str,
    report: &mut Report,
) -> Result<String, Failure> {
    let name = provider.map_or_else(|| EVERYTHING.to_owned(), |provider| provider.name.clone());
    let path = format!("/v1/subscriptions/{}", percent_encoded(&name));
    if let Some(found) = existing(remote, &path)? {
        let before = text(&found, "url");
        if before != url {
            let why = format!("there is a subscription {name} already, to {before}");
            let next = format!("To change it: oncebox subscription change {name} --url {url}");
            return Err(Failure::new(exit::CONFLICT, why).and(next));
        }
        report.say(format_args!("Subscription {name}: is there already, to {url}"))?;
        report.part("subscription", found);
        return Ok(name);
    }
    let mut body = json!({ "name": name, "url": url });
    if let (Some(provider), Value::Object(fields)) = (provider, &mut body) {
        fields.insert("source".to_owned(), format!("provider:{}", provider.name).into());
    }
    let made = remote.post("/v1/subscriptions", Some(&body))?;
    let secret = once(&made, "secret")?;
    report.say(format_args!("Subscription {name}: created, to {url}"))?;
    report.say(format_args!(
        "  Oncebox signs with {secret}   (this is the only time it is shown)\n  \
         The receiver checks webhook-signature with it (Standard Webhooks v1)."
    ))?;
    report.part("subscription", made);
    Ok(name)
}

/// The object under a path of the API, if there is one.
fn existing(remote: &Remote, path: &str) -> Result<Option<Value>, Failure> {
    match remote.get(path) {
        Ok(found) => Ok(Some(found)),
        Err(failure) if failure.code == exit::NOT_FOUND => Ok(None),
        Err(failure) => Err(failure),
    }
}
