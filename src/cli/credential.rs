//! `oncebox credential`: what subscriptions sign with and log on with, and what providers' webhooks are checked with.
//!
//! Not here: adding a provider's secret ([`super::provider`]), and the master key ([`super::keys`]).

use std::time::Duration;

use crate::base::clock::Clock;
use crate::cli::exit::FAILED;
use crate::cli::prelude::*;
use crate::cli::secrets::SecretAt;
use crate::cli::show::instant;

const VERBS: &[CommandRow] = &[
    command("list", "Credentials in force, oldest first; the secrets themselves are not shown")
        .calls("listCredentials")
        .flags(&[&[
            field("subscription").value("NAME"),
            field("provider").value("NAME"),
            field("source").value("NAME"),
            field("state").words(&["next", "active", "retiring", "revoked"]),
        ]]),
    command("show", "One credential").calls("getCredential"),
    command("set", "Set what a subscription signs with, logs on with, or its client certificate; the one before is revoked")
        .calls("setCredential")
        .flags(&[&[
            field("id").value("SUBSCRIPTION"),
            field("kind").help("What it is"),
            field("user").help("basic: the user; the secret is the password"),
            field("header")
                .value("NAME")
                .help("api_key: the header field, like X-API-Key; the secret is its whole value"),
            field("token_url")
                .value("URL")
                .help("oauth2: the token endpoint; the secret is the client's"),
            field("client_id").value("ID").help("oauth2: the client"),
            field("scope").help("oauth2: what is asked for, words with a space between them"),
            field("audience").help("oauth2: whom the token is for"),
            field("client_auth")
                .help("oauth2: how the client authenticates: a header field, or form fields [default: basic]"),
        ]])
        .online(set)
        .more(SecretAt::augment_args)
        .ends(&[
            "A signing secret is made if none is given, and shown this once. Examples:",
            "  oncebox credential set erp --kind bearer --secret-file token.txt",
            "  oncebox credential set erp --kind client_certificate --secret-file erp.pem",
            "  oncebox credential set erp --kind signing_ed25519",
        ]),
    command("rotate", "Replace a credential by a new version, which is verified before the old one ends")
        .calls("rotateCredential")
        .flags(&[&[
            field("command")
                .value("NAME")
                .not(&["secret_file", "secret_stdin", "secret_credential"]),
            field("overlap")
                .value("SPAN")
                .help("How long old and new are valid side by side [default: 24h]"),
        ]])
        .online(rotate)
        .more(SecretAt::augment_args)
        .ends(&[
            "A signing secret is made if none is given, and shown this once. Examples:",
            "  oncebox credential rotate ID",
            "  oncebox credential rotate ID --secret-file token.txt",
            "  oncebox credential rotate ID --command vault",
        ]),
    command("schedule", "Set how often a credential is rotated by itself; without flags, never")
        .calls("scheduleRotation")
        .flags(&[&[
            field("every")
                .value("SPAN")
                .help("How often, like 90d; a signing secret needs no --command"),
            field("command").value("NAME"),
        ]])
        .ends(&[
            "A signing secret that is made has to be given to the receiver: oncebox credential reveal ID",
        ]),
    command("reveal", "Show a signing secret that is next, so that its receiver can learn it")
        .calls("revealCredential")
        .online(reveal),
    command("revoke", "Revoke a credential: nothing is signed, sent or checked with it from now on")
        .calls("revokeCredential")
        .asks("Revoke the credential {id}"),
];

pub(super) const COMMANDS: Commands = Commands::new(
    &CREDENTIALS,
    command("credential", "Credentials: what requests are signed with and log on with"),
    VERBS,
);

/// How long a rotation is waited for: a command, and a verification of the longest `policy.timeout`.
const TIMEOUT: Duration = Duration::from_mins(12);

const CREDENTIALS: Noun = Noun::new("/v1/credentials", "Credential", "credentials")
    .columns(&[
        column("ID", 0, "id"),
        column("OF", 0, "owner"),
        column("KIND", 0, "kind"),
        column("STATE", 1, "state"),
        column("VERSION", 4, "version"),
        column("LAST USED (UTC)", 2, "last_used_at"),
        column("VALID UNTIL (UTC)", 2, "valid_until"),
        column("CREATED (UTC)", 3, "created_at"),
    ])
    .fields(&[
        cell("of", "owner"),
        cell("kind", "kind"),
        cell("state", "state"),
        cell("version", "version"),
        cell("settings", "settings"),
        time("created", "created_at"),
        cell("valid until", "valid_until"),
        time("last used", "last_used_at"),
        time("verified until", "verify_until"),
        cell("not accepted", "verify_error"),
        cell("rotated every", "rotate_every"),
        cell("by command", "rotate_command"),
    ])
    .time("created_at")
    .by(&[("owner", owner), ("valid_until", valid_until)]);

fn owner(one: &Value) -> String {
    let named = ["provider", "source"].map(|kind| (kind, text(one, kind)));
    match named.iter().find(|(_, name)| !name.is_empty()) {
        Some((kind, name)) => format!("{kind} {name}"),
        None => text(one, "subscription"),
    }
}

/// When it ends; whether it has.
fn valid_until(one: &Value) -> String {
    let now = Clock::machine().wall().to_string();
    let is_over = |until: &String| !until.is_empty() && *until <= now;
    let over = Some(text(one, "valid_until")).filter(is_over).map_or("", |_| " (expired)");
    format!("{}{over}", instant(one, "valid_until"))
}

/// The body, with the secret that the flags name.
fn with_secret(call: &Call<'_>) -> Result<Value, Failure> {
    let mut body = call.body()?;
    let secret = call.flags::<SecretAt>()?.read()?;
    body.extend(secret.map(|secret| ("secret".to_owned(), secret.as_str().into())));
    Ok(Value::Object(body))
}

fn rotate(call: &Call<'_>, remote: &Remote) -> Done {
    let made = remote.send_within("POST", &call.path(), Some(&with_secret(call)?), TIMEOUT)?;
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

fn reveal(call: &Call<'_>, remote: &Remote) -> Done {
    let next = remote.post(&call.path(), None)?;
    CREDENTIALS.print(remote, &next)?;
    if remote.json() {
        Ok(())
    } else {
        out::line(format_args!("secret: {}", text(&next, "secret")))
    }
}

/// Sets a credential of a subscription or a source.
pub(super) fn set(call: &Call<'_>, remote: &Remote) -> Done {
    let body = with_secret(call)?;
    if body.get("secret").is_none() && !call.text("kind").starts_with("signing") {
        return Err(Failure::usage(
            "say where the secret is: --secret-file, --secret-stdin or --secret-credential",
        ));
    }
    let made = remote.post(&call.path(), Some(&body))?;
    CREDENTIALS.print(remote, &made)?;
    if remote.json() { Ok(()) } else { show_new(&made) }
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
