//! `oncebox token`: the tokens for the API.
//!
//! Not here: the first admin token, which `oncebox serve` writes into the data directory.

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::Value;
use zeroize::Zeroizing;

use crate::api;
use crate::app::Error;
use crate::app::data_directory::{DirectoryError, TOKEN_FILE};
use crate::app::offline::{self, TokenTerms};
use crate::base::clock::{Clock, Timestamp};
use crate::base::id::{Draw, SystemDraw};
use crate::cli::exit::{self, Failure};
use crate::cli::noun::{self, Confirm, Listing, Noun, Verbs};
use crate::cli::out;
use crate::cli::remote::{ConnectArgs, once, with_query};
use crate::cli::shared::Shared;
use crate::cli::show::Cell::{By, Minute, Text};
use crate::cli::show::{text, words};
use crate::cli::subject::TenantArg;
use crate::model::tenant;
use crate::model::token::{Role, Scope, check_name};
use crate::sys::files;

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Tokens by name and role; the tokens themselves are not shown
    List {
        #[command(flatten)]
        tenant: TenantArg,
        #[command(flatten)]
        listing: Listing,
    },
    /// Create a token and print it; it cannot be shown again
    Create(Box<Create>),
    /// Revoke a token: it is refused from now on
    #[command(visible_alias = "delete")]
    Revoke {
        /// The token's id
        id: String,
        #[command(flatten)]
        tenant: TenantArg,
        #[command(flatten)]
        confirm: Confirm,
    },
}

#[derive(Debug, Args, Serialize)]
pub(super) struct Create {
    /// Name of the token, such as the program that uses it
    name: String,
    /// Permissions: publish; read; operate (publish, read, retry, pause); admin (all)
    #[arg(long, value_parser = ["publish", "read", "operate", "admin"])]
    role: String,
    /// A source system that a publish token may publish as; may be repeated, '*' for any
    #[arg(long = "source-system", value_name = "NAME")]
    source_systems: Vec<String>,
    /// A consumer group that a publish token may claim events for; may be repeated, '*' for any
    #[arg(long = "group", value_name = "NAME")]
    consumer_groups: Vec<String>,
    #[command(flatten)]
    #[serde(flatten)]
    tenant: TenantArg,
    /// When it expires: a time, or a span from now (90d)
    #[arg(long = "expires", visible_alias = "expires-in", value_name = "TIME", value_parser = expiry)]
    expires_at: Option<Timestamp>,
    /// Create it in the database while the service is stopped, for example if every admin token is lost
    #[arg(long)]
    #[serde(skip)]
    offline: bool,
    /// Write the token into FILE (mode 0600) instead of printing it
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    out: Option<PathBuf>,
}

const TOKENS: Noun = Noun {
    path: "/v1/tokens",
    one: "Token",
    many: "tokens",
    time: Some("created_at"),
    columns: &[
        ("ID", 0, Text("id")),
        ("NAME", 1, Text("name")),
        ("ROLE", 1, Text("role")),
        ("SPEAKS FOR", 3, By(scope_text)),
        ("LAST USED (UTC)", 2, Minute("last_used_at")),
        ("EXPIRES (UTC)", 3, Minute("expires_at")),
        ("REVOKED (UTC)", 2, Minute("revoked_at")),
        ("CREATED (UTC)", 4, Minute("created_at")),
    ],
    fields: &[],
};

/// The source systems and consumer groups of a publish token.
fn scope_text(token: &Value) -> String {
    let (systems, groups) = (words(token, "source_systems"), words(token, "consumer_groups"));
    let groups = if groups.is_empty() { groups } else { format!(" groups: {groups}") };
    format!("{systems}{groups}").trim().to_owned()
}

/// Parses an expiry: a time, or a span from now.
fn expiry(text: &str) -> Result<Timestamp, String> {
    if let Some(at) = Timestamp::parse(text) {
        return Ok(at);
    }
    let span = humantime::parse_duration(text).map_err(|error| {
        format!("give a time like 2026-12-31T00:00:00Z, or a span from now like 90d: {error}")
    })?;
    Ok(Clock::machine().wall().plus(span))
}

impl Verbs for Verb {
    fn run(&self, connect: &ConnectArgs, shared: &Shared) -> Result<(), Failure> {
        match self {
            Self::List { tenant, listing } => TOKENS.list(&connect.open(shared)?, listing, tenant),
            Self::Create(create) if create.offline => create.offline(shared, connect.json()),
            Self::Create(create) => {
                create.role_and_scope()?;
                let remote = connect.open(shared)?;
                let body = Value::Object(noun::body(create));
                create.output(&remote.post(TOKENS.path, Some(&body))?, remote.json())
            }
            Self::Revoke { id, tenant, confirm } => {
                let remote = connect.open(shared)?;
                confirm.ask(format_args!("Revoke the token {id}"))?;
                let revoked = remote.delete(&with_query(&TOKENS.at(id), &noun::query(tenant)))?;
                remote.answer(&revoked, format_args!("revoked: {}", text(&revoked, "name")))
            }
        }
    }
}

impl Create {
    /// Prints a new token, or writes it to the file of `--out`.
    fn output(&self, made: &Value, as_json: bool) -> Result<(), Failure> {
        let Some(path) = &self.out else { return print(made, as_json) };
        let id = text(made, "id");
        let content = Zeroizing::new(format!("{}\n", once(made, "token")?));
        files::write_private(path, content.as_bytes()).map_err(|error| {
            Failure::failed(format!("{}: {error}", path.display()))
                .and(format_args!("The token is lost. Revoke it: oncebox token revoke {id}"))
        })?;
        out::line(format_args!("written: {} (token {id})", path.display()))
    }

    /// Its role and scope, checked before the service is called.
    fn role_and_scope(&self) -> Result<(Role, Scope), Failure> {
        let Self { role, source_systems, consumer_groups, .. } = self;
        let role = Role::parse(role).ok_or_else(|| Failure::input("there is no such role"))?;
        let (source_systems, consumer_groups) = (source_systems.clone(), consumer_groups.clone());
        let scope = Scope { source_systems, consumer_groups };
        scope.check(role).map_err(Failure::input)?;
        Ok((role, scope))
    }

    /// Writes the token into the database without the service.
    fn offline(&self, shared: &Shared, as_json: bool) -> Result<(), Failure> {
        let settings = shared.settings()?;
        let Self { name, tenant: TenantArg { tenant }, expires_at, .. } = self;
        check_name(name).map_err(Failure::input)?;
        let (role, scope) = self.role_and_scope()?;
        let tenant = tenant.as_deref().unwrap_or(tenant::DEFAULT).to_owned();
        let clock = Clock::machine();
        if expires_at.is_some_and(|end| end <= clock.wall()) {
            return Err(Failure::input("the token would already be expired"));
        }
        let terms = TokenTerms { tenant, name: name.clone(), role, scope, expires_at: *expires_at };
        let draw: Arc<dyn Draw> = Arc::new(SystemDraw::new());
        let made = offline::create_token(&settings, terms, &clock, &draw);
        let (token, secret) = made.map_err(|error| match error {
            Error::Directory(DirectoryError::Locked { .. }) => Failure::temporary(error)
                .and("Stop it first; or leave out --offline and use an admin token."),
            Error::NoDatabase { .. } | Error::NoTenant(_) => Failure::new(exit::NOT_FOUND, error),
            other => Failure::failed(other),
        })?;
        self.output(&api::shown_new_token(&token, &secret), as_json)?;
        if !as_json {
            let path = settings.directory().join(TOKEN_FILE);
            out::note(format_args!("Commands without --token-file read {}.", path.display()));
        }
        Ok(())
    }
}

/// Prints a new token, alone on stdout so that it can go into a file or a variable.
fn print(made: &Value, as_json: bool) -> Result<(), Failure> {
    if as_json {
        return out::json(made);
    }
    out::line(once(made, "token")?)?;
    out::note("The token cannot be shown again.");
    let (id, tenant) = (text(made, "id"), text(made, "tenant"));
    let whose =
        if tenant == tenant::DEFAULT { String::new() } else { format!(" --tenant {tenant}") };
    out::note(format_args!("To revoke it: oncebox token revoke {id}{whose}"));
    Ok(())
}
