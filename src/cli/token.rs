//! `oncebox token`: the tokens for the API. `oncebox tenant`: the tenants of this installation, whose tokens they are.
//!
//! Not here: the first admin token, which `oncebox serve` writes into the data directory.

use std::path::Path;
use std::sync::Arc;

use zeroize::Zeroizing;

use crate::api;
use crate::app::Error;
use crate::app::data_directory::{DirectoryError, TOKEN_FILE};
use crate::app::offline::{self, TokenTerms};
use crate::base::clock::{Clock, Timestamp};
use crate::base::id::{Draw, SystemDraw};
use crate::cli::pii;
use crate::cli::prelude::*;
use crate::cli::remote::once;
use crate::cli::show::words;
use crate::cli::verb::offline;
use crate::model::name::DEFAULT_TENANT;
use crate::model::token::{Role, Scope, check_name};
use crate::sys::files;

const TOKEN_TABLE: &str = "
token  Tokens for the API
  columns: ID 0 id; NAME 1 name; ROLE 1 role; SPEAKS FOR 3 scope_text; LAST USED (UTC) 2 last_used_at; EXPIRES (UTC) 3 expires_at; REVOKED (UTC) 2 revoked_at; CREATED (UTC) 4 created_at
  list = listTokens  Tokens by name and role; the tokens themselves are not shown
    tenant <NAME>
  create = createToken  Create a token and print it; it cannot be shown again
    <name>  Name of the token, such as the program that uses it
    role  Permissions: publish; read; operate (publish, read, retry, pause); admin (all)
    source_systems --source-system <NAME>  A source system that a publish token may publish as; may be repeated, '*' for any
    consumer_groups --group <NAME>  A consumer group that a publish token may claim events for; may be repeated, '*' for any
    tenant <NAME>
    expires_at --expires --expires-in <TIME>  When it expires: a time, or a span from now (90d)
    --offline  Create it in the database while the service is stopped, for example if every admin token is lost
    --out <FILE>  Write the token into FILE (mode 0600) instead of printing it
  revoke|delete = revokeToken  Revoke a token: it is refused from now on
    tenant <NAME>
    ? Revoke the token {id}
";

pub(super) const TOKEN: Commands = Commands::new(
    &TOKENS,
    TOKEN_TABLE,
    &[
        offline("create", create)
            .more(|command| command.mut_arg("expires_at", |flag| flag.value_parser(expiry))),
        answered("revoke", revoke),
    ],
);

const TOKENS: Noun = Noun::new("/v1/tokens", "Token", "tokens", TOKEN_TABLE)
    .time("created_at")
    .by(&[("scope_text", scope_text)]);

const TENANT_TABLE: &str = "
tenant  Tenants of this installation; for its administrator
  columns: NAME 0 name; TITLE 1 title; SUSPENDED (UTC) 1 suspended_at; CREATED (UTC) 2 created_at
  fields: title; personal data = policy_of; suspended since = @suspended_at; created = @created_at
  list = listTenants  Tenants, oldest first
  show = getTenant  One tenant
  create = createTenant  Add a tenant
    <name>  1 to 63 characters of a-z, 0-9 and -; it never changes
    pii <allow|FILE|JSON>  Personal data in its published events: allow, or a policy (test it: oncebox pii test)
  change = changeTenant  Give a tenant another title, or state its policy for personal data in published events
    pii <allow|FILE|JSON>  allow, or a policy (test it: oncebox pii test)
  pii = changeTenant  Set the policy for personal data in published events
    <pii> <allow|FILE|JSON>  allow, or a policy (test it: oncebox pii test)
    !title
  suspend = suspendTenant  Refuse its tokens and webhooks, and hold its deliveries; nothing is deleted
  resume = resumeTenant  End a suspension: deliveries go on
";

pub(super) const TENANT: Commands =
    Commands::new(&TENANTS, TENANT_TABLE, &[answered("create", create_tenant)]);

const TENANTS: Noun = Noun::new("/v1/tenants", "Tenant", "tenants", TENANT_TABLE)
    .time("created_at")
    .by(&[("policy_of", pii::policy_of)]);

/// The source systems and consumer groups of a publish token.
fn scope_text(token: &Value) -> String {
    let systems = words(token, "source_systems");
    let groups = words(token, "consumer_groups");
    let groups = if groups.is_empty() { groups } else { format!(" groups: {groups}") };
    format!("{systems}{groups}").trim().to_owned()
}

/// Parses an expiry: a time, or a span from now.
fn expiry(text: &str) -> Result<Value, String> {
    if let Some(at) = Timestamp::parse(text) {
        return Ok(at.to_string().into());
    }
    let span = humantime::parse_duration(text).map_err(|_why| {
        "give a time like 2026-12-31T00:00:00Z, or a span from now like 90d".to_owned()
    })?;
    Ok(Clock::machine().wall().plus(span).to_string().into())
}

fn revoke(_call: &Call<'_>, _remote: &Remote, revoked: &Value) -> Done {
    out::line(format_args!("revoked: {}", text(revoked, "name")))
}

/// Creates a token over the API, or with `--offline` in the database.
fn create(call: &Call<'_>) -> Done {
    // Checked before the service is called.
    let role = Role::parse(&call.text("role"));
    let role = role.ok_or_else(|| Failure::input("there is no such role"))?;
    let source_systems = call.texts("source_systems");
    let scope = Scope { source_systems, consumer_groups: call.texts("consumer_groups") };
    if call.is("offline") {
        return create_offline(call, role, scope);
    }
    scope.check(role).map_err(Failure::input)?;
    output(call, &call.send(&call.connect.open(call.global)?, call.body()?)?)
}

/// Prints a new token, or writes it to the file of `--out`.
fn output(call: &Call<'_>, made: &Value) -> Done {
    if !call.has("out") {
        return print(made, call.connect.json());
    }
    let path = call.text("out");
    let id = text(made, "id");
    let content = Zeroizing::new(format!("{}\n", once(made, "token")?));
    files::write_private(Path::new(&path), content.as_bytes()).map_err(|error| {
        Failure::failed(format!("{path}: {error}"))
            .and(format_args!("The token is lost. Revoke it: oncebox token revoke {id}"))
    })?;
    out::line(format_args!("written: {path} (token {id})"))
}

/// Writes the token into the database without the service.
fn create_offline(call: &Call<'_>, role: Role, scope: Scope) -> Done {
    let settings = call.global.settings()?;
    let name = call.text("name");
    check_name(&name).map_err(Failure::input)?;
    scope.check(role).map_err(Failure::input)?;
    let tenant = if call.has("tenant") { call.text("tenant") } else { DEFAULT_TENANT.to_owned() };
    let clock = Clock::machine();
    let expires_at = Timestamp::parse(&call.text("expires_at"));
    if expires_at.is_some_and(|end| end <= clock.wall()) {
        return Err(Failure::input("the token would already be expired"));
    }
    let terms = TokenTerms { tenant, name, role, scope, expires_at };
    let draw: Arc<dyn Draw> = Arc::new(SystemDraw::new());
    let made = offline::create_token(&settings, terms, &clock, &draw);
    let (token, secret) = made.map_err(|error| match error {
        Error::Directory(DirectoryError::Locked { .. }) => Failure::temporary(error)
            .and("Stop it first; or leave out --offline and use an admin token."),
        Error::NoDatabase { .. } | Error::NoTenant(_) => Failure::new(exit::NOT_FOUND, error),
        other => Failure::failed(other),
    })?;
    output(call, &api::shown_new_token(&token, &secret))?;
    if !call.connect.json() {
        let path = settings.directory().join(TOKEN_FILE);
        out::note(format_args!("Commands without --token-file read {}.", path.display()));
    }
    Ok(())
}

/// Prints a new token, alone on stdout so that it can go into a file or a variable.
fn print(made: &Value, as_json: bool) -> Result<(), Failure> {
    if as_json {
        return out::json(made);
    }
    out::line(once(made, "token")?)?;
    out::note("The token cannot be shown again.");
    let id = text(made, "id");
    let tenant = text(made, "tenant");
    let whose =
        if tenant == DEFAULT_TENANT { String::new() } else { format!(" --tenant {tenant}") };
    out::note(format_args!("To revoke it: oncebox token revoke {id}{whose}"));
    Ok(())
}

fn create_tenant(call: &Call<'_>, remote: &Remote, made: &Value) -> Done {
    call.noun.print(remote, made)?;
    let name = call.text("name");
    out::note(format_args!(
        "Its first token: oncebox token create {name}-admin --role admin --tenant {name}"
    ));
    Ok(())
}
