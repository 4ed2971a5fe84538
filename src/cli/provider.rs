//! `oncebox provider`: the providers that may post webhooks, and their signature schemes.
//!
//! Not here: the posted webhooks ([`super::event`]), and reading a secret ([`super::secrets`]).

use clap::Command;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use crate::cli::input::object;
use crate::cli::noun;
use crate::cli::pii;
use crate::cli::prelude::*;
use crate::cli::reconcile;
use crate::cli::secrets::{Secret, SecretFrom};
use crate::cli::what_if;
use crate::signatures::provider::SchemeSettings;
use crate::signatures::{Scheme, kinds};

const TERMS: &[Flag] = &[
    argument("name").help("Its name: a-z, 0-9 and -; the last part of its path"),
    field("scheme").value("SCHEME").help("Signature scheme"),
    field("pii")
        .value("allow|FILE|JSON")
        .help("Handling of personal data: allow, or a policy (test it: oncebox pii test)"),
    own("scheme-settings")
        .value("JSON")
        .help("Settings of the scheme, if it has any: a JSON object, or @file"),
    field("public_url").value("URL"),
    field("body_bytes_max")
        .value("BYTES")
        .help("The largest body it may send, in bytes [default: 1048576]"),
    field("tolerance_secs")
        .long("tolerance")
        .value("SPAN")
        .help("Largest difference between the signed time and ours, like 5min [default: the scheme's, mostly 5min]"),
    field("replay_window_secs")
        .long("replay-window")
        .value("SPAN")
        .help("How long identical signed bytes count as one event, for schemes that do not sign the id [default: 24h; 0s: each id is an event]"),
    field("ordering_key")
        .value("PATH|header:NAME|none")
        .help("Where the ordering key of its webhooks is, like '$.data.object.id' or header:X-Order-Id (docs/order.md)"),
    field("reconcile.every_secs")
        .long("reconcile")
        .value("SPAN")
        .help("How often its list is compared with what came, like 6h [default: 0s, never]"),
    field("reconcile.since_secs")
        .long("reconcile-since")
        .value("SPAN")
        .help("How far back [default: 3d]"),
    field("reconcile.alert_percent")
        .long("reconcile-alert")
        .value("PERCENT")
        .help("Raise an escalation if more of a day's items were missing [default: 1]"),
];

const VERBS: &[CommandRow] = &[
    command("list", "Providers, oldest first").calls("listProviders"),
    command("create", "Add a provider and print the path that it posts to")
        .calls("createProvider")
        .flags(&[TERMS])
        .online(create)
        .more(of_terms),
    command("show", "One provider").calls("getProvider"),
    command("change", "Change a provider; a new secret is added, the others stay valid")
        .calls("changeProvider")
        .flags(&[
            TERMS,
            &[field("what_if")
                .long("what-if")
                .value("SPAN")
                .help("Save nothing: show what --pii, --ordering-key and --body-bytes-max would have done with the webhooks stored in the last SPAN, such as 7d")],
        ])
        .online(change)
        .more(of_terms),
    command(
        "secrets",
        "List the valid secrets by id, newest first; the secrets themselves are not shown",
    )
    .calls("listProviderSecrets")
    .answered(|_, _, found| SECRETS.table(&noun::items(found))),
    command("withdraw", "Withdraw a secret: webhooks signed with it are refused from now on")
        .calls("withdrawProviderSecret")
        .flags(&[&[field("secret_id")
            .value("SECRET")
            .help("The secret's id, as listed by: oncebox provider secrets")]])
        .asks("Withdraw the secret {secret_id} of {name}")
        .says("withdrawn: {secret_id}"),
    command("reconcile", "Compare the provider's list with what came, and take in what is missing")
        .calls("reconcileProvider")
        .flags(&[&[
            field("since").value("TIME"),
            field("dry_run").help("Take nothing in, and only report"),
            field("source").value("SOURCE"),
            own("detach").help("Do not wait for its end"),
        ]])
        .online(reconcile::start)
        .ends(&[
            "It needs a source that reads the provider's list: oncebox source add stripe-list --list stripe --provider stripe",
            "Exit code 6: something was missing.",
            "",
            "  oncebox provider reconcile stripe --since 7d --dry-run",
        ]),
    command("reconciliations", "Comparisons with the provider's list, newest first")
        .calls("listReconciliations")
        .online(reconcile::list_runs),
    command("reconciliation", "One comparison with the provider's list, day by day")
        .calls("getReconciliation")
        .online(reconcile::show),
    command("delete", "Delete a provider: its webhooks are refused; stored webhook events stay")
        .calls("deleteProvider")
        .asks("Delete the provider {name}")
        .says("deleted: {name}; its webhook events stay"),
];

pub(super) const COMMANDS: Commands = Commands::new(
    &PROVIDERS,
    command("provider", "Providers that may post webhooks, and their signatures"),
    VERBS,
);

fn of_terms(command: Command) -> Command {
    let schemes = || PossibleValuesParser::new(kinds()).map(Value::from);
    SecretFrom::augment_args(command)
        .mut_arg("scheme", |flag| flag.value_parser(schemes()))
        .mut_arg("ordering_key", |flag| flag.value_parser(key_place))
}

/// Where an ordering key is; null: nowhere.
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

const SECRETS: Columns = Columns {
    columns: &[
        column("ID", 0, "id"),
        column("VERSION", 1, "version"),
        column("SINCE (UTC)", 1, "created_at"),
    ],
    by: &[],
};

const PROVIDERS: Noun = Noun::new("/v1/providers", "Provider", "providers")
    .columns(&[
        column("NAME", 0, "name"),
        column("SCHEME", 1, "scheme_word"),
        column("PATH", 1, "path"),
        column("TOLERANCE", 3, "tolerance"),
        column("CREATED (UTC)", 2, "created_at"),
    ])
    .fields(&[
        cell("id", "id"),
        cell("path", "path"),
        cell("URL", "url"),
        cell("scheme", "scheme"),
        cell("personal data", "policy_of"),
        cell("largest body", "largest_body"),
        cell("tolerance", "tolerance"),
        cell("replay window", "replay_window"),
        cell("ordering key", "ordering_key"),
        cell("reconciled", "reconciled"),
        time("created", "created_at"),
        time("changed", "updated_at"),
    ])
    .time("created_at")
    .by(&[
        ("scheme_word", scheme_word),
        ("tolerance", |p| format!("{} s", text(p, "tolerance_secs"))),
        ("scheme", scheme),
        ("policy_of", pii::policy_of),
        ("largest_body", |p| format!("{} bytes", text(p, "body_bytes_max"))),
        ("reconciled", reconciled),
        ("replay_window", |p| format!("{} s", text(p, "replay_window_secs"))),
    ]);

/// How often its list is compared with what came; empty: never.
fn reconciled(provider: &Value) -> String {
    let terms = provider.get("reconcile").unwrap_or(&Value::Null);
    match terms.get("every_secs").and_then(Value::as_u64) {
        None | Some(0) => String::new(),
        Some(every) => format!("every {every} s, {} s back", text(terms, "since_secs")),
    }
}

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

/// A scheme with the settings of `--scheme-settings`, as JSON for the API and parsed.
pub(super) fn parse_scheme(kind: &str, settings: Option<&str>) -> Result<(Value, Scheme), Failure> {
    let settings = settings.map(|text| object("--scheme-settings", text)).transpose()?;
    let mut settings = settings.unwrap_or_default();
    settings.insert("kind".to_owned(), kind.into());
    let settings = Value::Object(settings);
    let read = serde_json::from_value(settings.clone()).map_err(|error| {
        let failure = Failure::input(error);
        if kind == "generic" { failure.and(GENERIC_EXAMPLE) } else { failure }
    })?;
    let SchemeSettings { scheme, repeats: _ } = read;
    Ok((settings, scheme))
}

/// The scheme that the flags name, as JSON for the API and parsed.
fn given_scheme(call: &Call<'_>) -> Result<(Value, Scheme), Failure> {
    let settings = call.has("scheme-settings").then(|| call.text("scheme-settings"));
    parse_scheme(&call.text("scheme"), settings.as_deref())
}

/// The secret that the flags name, checked against the scheme.
fn checked(flags: &SecretFrom, scheme: &Scheme) -> Result<Option<Secret>, Failure> {
    let secret = flags.read(scheme)?;
    if let Some(secret) = &secret {
        let refused = |error| Failure::input(format!("the secret cannot be used: {error}"));
        scheme.check_secret(&secret.text).map_err(refused)?;
    }
    Ok(secret)
}

fn create(call: &Call<'_>, remote: &Remote) -> Done {
    let (scheme_json, scheme) = given_scheme(call)?;
    let secret = checked(&call.flags()?, &scheme)?;
    if secret.is_none() && scheme.has_secret() {
        return Err(Failure::usage(
            "give the provider's secret with --secret-file or --secret-stdin, or make one with --generate-secret",
        ));
    }
    let mut body = call.body()?;
    body.insert("scheme".to_owned(), scheme_json);
    let made = send(call, remote, body, secret.as_ref())?;
    if remote.json() {
        return out::json(&made);
    }
    let given = call.text("name");
    out::line(format_args!("created: {given}"))?;
    print_secret(secret.as_ref())?;
    let here = remote.intake_base();
    let path = text(&made, "path");
    match made.get("url").and_then(Value::as_str) {
        Some(public) => out::line(format_args!("URL to give to the provider: {public}"))?,
        None => {
            out::line(format_args!("Path to give to the provider: {path}   (here: {here}{path})"))?;
        }
    }
    let kind = scheme.kind();
    let is_public_key = secret.as_ref().is_some_and(|secret| secret.text.starts_with("whpk_"));
    if is_public_key || ["generic", "sendgrid", "paypal", "sns"].contains(&kind) {
        return Ok(());
    }
    let name = Some(given).filter(|name| *name != kind);
    let flag = name.map(|name| format!(" --provider {name}")).unwrap_or_default();
    out::line(format_args!("Try it: oncebox trigger {kind}{flag}"))
}

fn change(call: &Call<'_>, remote: &Remote) -> Done {
    let mut body = call.body()?;
    let mut scheme = None;
    if call.has("scheme") {
        let (json, parsed) = given_scheme(call)?;
        body.insert("scheme".to_owned(), json);
        scheme = Some(parsed);
    } else if call.has("scheme-settings") {
        return Err(Failure::usage("--scheme-settings goes with --scheme"));
    }
    let flags: SecretFrom = call.flags()?;
    let mut secret = None;
    if flags.is_given() {
        // The secret must fit the scheme after the change.
        let known = || {
            let known = remote.get(&call.path())?.get("scheme").cloned().unwrap_or_default();
            serde_json::from_value(known).map_err(Failure::failed)
        };
        secret = checked(&flags, &scheme.map_or_else(known, Ok)?)?;
    }
    if body.is_empty() && secret.is_none() {
        return Err(Failure::usage("there is nothing to change; see --help"));
    }
    if call.has("what_if") && secret.is_none() {
        return what_if::print_of_provider(remote, &what_if::ask(call, remote, body)?);
    }
    PROVIDERS.print(remote, &send(call, remote, body, secret.as_ref())?)?;
    if remote.json() { Ok(()) } else { print_secret(secret.as_ref()) }
}

/// Sends a body with its secret. A secret that was generated here is added to the answer.
fn send(
    call: &Call<'_>,
    remote: &Remote,
    mut body: Map<String, Value>,
    secret: Option<&Secret>,
) -> Result<Value, Failure> {
    let text = secret.map(|secret| Value::from(secret.text.as_str()));
    body.extend(text.clone().map(|text| ("secret".to_owned(), text)));
    let mut answer = call.send(remote, body)?;
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
