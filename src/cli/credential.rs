//! `oncebox credential`: what subscriptions sign with and log on with, and what providers' webhooks are checked with.
//!
//! Not here: adding a provider's secret ([`super::provider`]), and the master key ([`super::keys`]).

use std::time::Duration;

use crate::base::clock::Clock;
use crate::cli::exit::FAILED;
use crate::cli::prelude::*;
use crate::cli::secrets::SecretAt;
use crate::cli::show::instant;

const TABLE: &str = "
credential  Credentials: what requests are signed with and log on with
  columns: ID 0 id; OF 0 owner; KIND 0 kind; STATE 1 state; VERSION 4 version; LAST USED (UTC) 2 last_used_at; VALID UNTIL (UTC) 2 valid_until; CREATED (UTC) 3 created_at
  fields: of = owner; kind; state; version; settings; created = @created_at; valid until; last used = @last_used_at; verified until = @verify_until; not accepted = verify_error; rotated every = rotate_every; by command = rotate_command
  list = listCredentials  Credentials in force, oldest first; the secrets themselves are not shown
    subscription <NAME>
    provider <NAME>
    state of:next,active,retiring,revoked
  show = getCredential  One credential
  set = setCredential  Set what a subscription signs with, logs on with, or its client certificate; the one before is revoked
    id <SUBSCRIPTION>
    kind  What it is
    user  basic: the user; the secret is the password
    header <NAME>  api_key: the header field, like X-API-Key; the secret is its whole value
    token_url <URL>  oauth2: the token endpoint; the secret is the client's
    client_id <ID>  oauth2: the client
    scope  oauth2: what is asked for, words with a space between them
    audience  oauth2: whom the token is for
    client_auth  oauth2: how the client authenticates: a header field, or form fields [default: basic]
    | A signing secret is made if none is given, and shown this once. Examples:
    |   oncebox credential set erp --kind bearer --secret-file token.txt
    |   oncebox credential set erp --kind client_certificate --secret-file erp.pem
    |   oncebox credential set erp --kind signing_ed25519
  rotate = rotateCredential  Replace a credential by a new version, which is verified before the old one ends
    command <NAME> not:secret_file,secret_stdin,secret_credential
    overlap <SPAN>  How long old and new are valid side by side [default: 24h]
    | A signing secret is made if none is given, and shown this once. Examples:
    |   oncebox credential rotate ID
    |   oncebox credential rotate ID --secret-file token.txt
    |   oncebox credential rotate ID --command vault
  schedule = scheduleRotation  Set how often a credential is rotated by itself; without flags, never
    every <SPAN>  How often, like 90d; a signing secret needs no --command
    command <NAME>
    | A signing secret that is made has to be given to the receiver: oncebox credential reveal ID
  reveal = revealCredential  Show a signing secret that is next, so that its receiver can learn it
  revoke = revokeCredential  Revoke a credential: nothing is signed, sent or checked with it from now on
    ? Revoke the credential {id}
";

pub(super) const COMMANDS: Commands = Commands::new(
    &CREDENTIALS,
    TABLE,
    &[
        online("set", set).more(SecretAt::augment_args),
        online("rotate", rotate).more(SecretAt::augment_args),
        online("reveal", reveal),
    ],
);

/// How long a rotation is waited for: a command, and a verification of the longest `policy.timeout`.
const TIMEOUT: Duration = Duration::from_mins(12);

const CREDENTIALS: Noun = Noun::new("/v1/credentials", "Credential", "credentials", TABLE)
    .time("created_at")
    .by(&[("owner", owner), ("valid_until", valid_until)]);

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

fn set(call: &Call<'_>, remote: &Remote) -> Done {
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
