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
use crate::model::name::DEFAULT_TENANT;
use crate::model::token::{Role, Scope, check_name};
use crate::sys::files;

const TOKEN_VERBS: &[CommandRow] = &[
    command("list", "Tokens by name and role; the tokens themselves are not shown")
        .calls("listTokens")
        .flags(&[&[
            field("tenant").value("NAME"),
        ]]),
    command("create", "Create a token and print it; it cannot be shown again")
        .calls("createToken")
        .flags(&[&[
            argument("name").help("Name of the token, such as the program that uses it"),
            field("role")
                .help("Permissions: publish; read; operate (publish, read, retry, pause); admin (all)"),
            field("source_systems")
                .long("source-system")
                .value("NAME")
                .help("A source system that a publish token may publish as; may be repeated, '*' for any"),
            field("consumer_groups")
                .long("group")
                .value("NAME")
                .help("A consumer group that a publish token may claim events for; may be repeated, '*' for any"),
            field("tenant").value("NAME"),
            field("expires_at")
                .long("expires")
                .also(&["expires-in"])
                .value("TIME")
                .help("When it expires: a time, or a span from now (90d)"),
            own("offline")
                .help("Create it in the database while the service is stopped, for example if every admin token is lost"),
            own("out")
                .value("FILE")
                .help("Write the token into FILE (mode 0600) instead of printing it"),
        ]])
        .offline(create)
        .more(|command| command.mut_arg("expires_at", |flag| flag.value_parser(expiry))),
    command("revoke", "Revoke a token: it is refused from now on")
        .calls("revokeToken")
        .also(&["delete"])
        .flags(&[&[
            field("tenant").value("NAME"),
        ]])
        .asks("Revoke the token {id}")
        .answered(revoke),
];

pub(super) const TOKEN: Commands =
    Commands::new(&TOKENS, command("token", "Tokens for the API"), TOKEN_VERBS);

const TOKENS: Noun = Noun::new("/v1/tokens", "Token", "tokens")
    .columns(&[
        column("ID", 0, "id"),
        column("NAME", 1, "name"),
        column("ROLE", 1, "role"),
        column("SPEAKS FOR", 3, "scope_text"),
        column("LAST USED (UTC)", 2, "last_used_at"),
        column("EXPIRES (UTC)", 3, "expires_at"),
        column("REVOKED (UTC)", 2, "revoked_at"),
        column("CREATED (UTC)", 4, "created_at"),
    ])
    .time("created_at")
    .by(&[("scope_text", scope_text)]);

const TENANT_VERBS: &[CommandRow] = &[
    command("list", "Tenants, oldest first").calls("listTenants"),
    command("show", "One tenant").calls("getTenant"),
    command("create", "Add a tenant")
        .calls("createTenant")
        .flags(&[&[
            argument("name").help("1 to 63 characters of a-z, 0-9 and -; it never changes"),
            field("pii")
                .value("allow|FILE|JSON")
                .help("Personal data in its published events: allow, or a policy (test it: oncebox pii test)"),
        ]])
        .answered(create_tenant),
    command("change", "Give a tenant another title, or state its policy for personal data in published events")
        .calls("changeTenant")
        .flags(&[&[
            field("pii")
                .value("allow|FILE|JSON")
                .help("allow, or a policy (test it: oncebox pii test)"),
        ]]),
    command("pii", "Set the policy for personal data in published events")
        .calls("changeTenant")
        .flags(&[&[
            argument("pii")
                .value("allow|FILE|JSON")
                .help("allow, or a policy (test it: oncebox pii test)"),
            without("title"),
        ]]),
    command("suspend", "Refuse its tokens and webhooks, and hold its deliveries; nothing is deleted")
        .calls("suspendTenant"),
    command("resume", "End a suspension: deliveries go on").calls("resumeTenant"),
];

pub(super) const TENANT: Commands = Commands::new(
    &TENANTS,
    command("tenant", "Tenants of this installation; for its administrator"),
    TENANT_VERBS,
);

const TENANTS: Noun = Noun::new("/v1/tenants", "Tenant", "tenants")
    .columns(&[
        column("NAME", 0, "name"),
        column("TITLE", 1, "title"),
        column("SUSPENDED (UTC)", 1, "suspended_at"),
        column("CREATED (UTC)", 2, "created_at"),
    ])
    .fields(&[
        cell("title", "title"),
        cell("personal data", "policy_of"),
        time("suspended since", "suspended_at"),
        time("created", "created_at"),
    ])
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
