//! `oncebox token`: who may use the API.
//!
//! Not here: the first admin token, which `oncebox serve` writes into the data directory.

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::api;
use crate::app::Error;
use crate::app::data_directory::{DirectoryError, TOKEN_FILE};
use crate::app::offline::{self, Wanted};
use crate::base::clock::{Clock, Timestamp};
use crate::base::id::{Draw, SystemDraw};
use crate::cli::listing::{List, Paging, filter};
use crate::cli::remote::{ConnectArgs, once, plain, with_query};
use crate::cli::show::{Column, minute, text};
use crate::cli::{Failure, Shared, exit, out};
use crate::model::tenant;
use crate::model::token::{Role, Scope, check_name};
use crate::sys::files;

/// Who may use the API
#[derive(Debug, Args)]
pub(super) struct Tokens {
    #[command(flatten)]
    reach: ConnectArgs,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Tokens, without the tokens themselves
    List {
        /// Of another tenant; for an admin token of the tenant default
        #[arg(long, value_name = "NAME")]
        tenant: Option<String>,
        #[command(flatten)]
        paging: Paging,
    },
    /// Make a token, and print it this once
    Create(Create),
    /// Revoke a token: it opens nothing from now on
    Revoke {
        /// The token's id
        id: String,
        /// Of another tenant; for an admin token of the tenant default
        #[arg(long, value_name = "NAME")]
        tenant: Option<String>,
    },
}

#[derive(Debug, Args)]
struct Create {
    /// What you call it, such as the program that uses it
    name: String,
    /// What it may do: publish; read; operate (publish, read, retry, pause); admin (all)
    #[arg(long, value_parser = ["publish", "read", "operate", "admin"])]
    role: String,
    /// A source system that a publish token publishes as; several times for several, '*' for any
    #[arg(long = "source-system", value_name = "NAME")]
    source_systems: Vec<String>,
    /// A consumer group that a publish token claims events for; several times for several, '*' for any
    #[arg(long = "group", value_name = "NAME")]
    consumer_groups: Vec<String>,
    /// Whose data it opens; for an admin token of the tenant default [default: that of your token]
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// When it ends: a time, or a span from now (90d)
    #[arg(long, visible_alias = "expires-in", value_name = "TIME", value_parser = later)]
    expires: Option<Timestamp>,
    /// Write it into the database of the data directory while the service is stopped: for who has lost
    /// every token
    #[arg(long)]
    offline: bool,
    /// Write the token into FILE (mode 0600) instead of printing it
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

const COLUMNS: [Column; 8] = [
    Column { title: "ID", of: |t| text(t, "id"), rank: 0 },
    Column { title: "NAME", of: |t| text(t, "name"), rank: 1 },
    Column { title: "ROLE", of: |t| text(t, "role"), rank: 1 },
    Column { title: "SPEAKS FOR", of: speaks_for, rank: 3 },
    Column { title: "LAST USED (UTC)", of: |t| minute(t, "last_used_at"), rank: 2 },
    Column { title: "EXPIRES", of: |t| minute(t, "expires_at"), rank: 3 },
    Column { title: "REVOKED", of: |t| minute(t, "revoked_at"), rank: 2 },
    Column { title: "CREATED", of: |t| minute(t, "created_at"), rank: 4 },
];

/// What a publish token publishes as, and claims for.
fn speaks_for(token: &Value) -> String {
    let list = |field: &str| {
        let names = token.get(field).and_then(Value::as_array).into_iter().flatten();
        names.filter_map(Value::as_str).collect::<Vec<_>>().join(" ")
    };
    let (systems, groups) = (list("source_systems"), list("consumer_groups"));
    if groups.is_empty() {
        systems
    } else {
        format!("{systems} groups: {groups}").trim().to_owned()
    }
}

fn later(text: &str) -> Result<Timestamp, String> {
    if let Some(at) = Timestamp::parse(text) {
        return Ok(at);
    }
    let span = humantime::parse_duration(text).map_err(|error| {
        format!("give a time like 2026-12-31T00:00:00Z, or a span from now like 90d: {error}")
    })?;
    Ok(Clock::machine().wall().plus(span))
}

impl Tokens {
    pub(super) fn run(&self, shared: &Shared) -> Result<(), Failure> {
        match &self.verb {
            Verb::List { tenant, paging } => {
                let remote = self.reach.open(shared)?;
                let query = filter("tenant", tenant.as_ref()).into_iter().collect();
                let what = "tokens";
                List { path: "/v1/tokens", query, columns: &COLUMNS, what }.print(&remote, paging)
            }
            Verb::Create(create) if create.offline => create.offline(shared, self.reach.json()),
            Verb::Create(create) => create.run(&self.reach, shared),
            Verb::Revoke { id, tenant } => {
                let remote = self.reach.open(shared)?;
                let query: Vec<_> = filter("tenant", tenant.as_ref()).into_iter().collect();
                let path = with_query(&format!("/v1/tokens/{}", plain(id)), &query);
                let revoked = remote.delete(&path)?;
                if remote.json() {
                    return out::json(&revoked);
                }
                out::line(format_args!("revoked: {}", text(&revoked, "name")))
            }
        }
    }
}

impl Create {
    fn run(&self, reach: &ConnectArgs, shared: &Shared) -> Result<(), Failure> {
        let Self { name, role, tenant, expires, .. } = self;
        let (_, Scope { source_systems, consumer_groups }) = self.terms()?;
        let remote = reach.open(shared)?;
        let mut body = json!({
            "name": name, "role": role, "source_systems": source_systems,
            "consumer_groups": consumer_groups, "expires_at": expires,
        });
        if let (Some(tenant), Value::Object(fields)) = (tenant, &mut body) {
            fields.insert("tenant".to_owned(), tenant.as_str().into());
        }
        self.hand_out(&remote.post("/v1/tokens", Some(&body))?, remote.json())
    }

    /// Shows a new token, or writes it into its file.
    fn hand_out(&self, made: &Value, as_json: bool) -> Result<(), Failure> {
        let Some(path) = &self.out else { return shown(made, as_json) };
        let id = text(made, "id");
        let content = Zeroizing::new(format!("{}\n", once(made, "token")?));
        files::write_private(path, content.as_bytes()).map_err(|error| {
            Failure::failed(format!("{}: {error}", path.display()))
                .and(format_args!("Nobody has the token now: oncebox token revoke {id}"))
        })?;
        out::line(format_args!("written: {} (token {id})", path.display()))
    }

    /// What it may do, checked before anybody is asked.
    fn terms(&self) -> Result<(Role, Scope), Failure> {
        let Self { role, source_systems, consumer_groups, .. } = self;
        let role = Role::parse(role).ok_or_else(|| Failure::input("there is no such role"))?;
        let (source_systems, consumer_groups) = (source_systems.clone(), consumer_groups.clone());
        let scope = Scope { source_systems, consumer_groups };
        scope.check(role).map_err(Failure::input)?;
        Ok((role, scope))
    }

    /// The database itself, in the place of the service.
    fn offline(&self, shared: &Shared, as_json: bool) -> Result<(), Failure> {
        let settings = shared.settings()?;
        let Self { name, tenant, expires, .. } = self;
        check_name(name).map_err(Failure::input)?;
        let (role, scope) = self.terms()?;
        let tenant = tenant.as_deref().unwrap_or(tenant::DEFAULT).to_owned();
        let clock = Clock::machine();
        if expires.is_some_and(|end| end <= clock.wall()) {
            return Err(Failure::input("the token would have ended already"));
        }
        let wanted = Wanted { tenant, name: name.clone(), role, scope, expires_at: *expires };
        let draw: Arc<dyn Draw> = Arc::new(SystemDraw::new());
        let made = offline::create_token(&settings, wanted, &clock, &draw);
        let (token, secret) = made.map_err(|error| match error {
            Error::Directory(DirectoryError::Locked { .. }) => Failure::temporary(error)
                .and("Stop it first; or leave out --offline and use an admin token."),
            Error::NoDatabase { .. } | Error::NoTenant(_) => Failure::new(exit::NOT_FOUND, error),
            other => Failure::failed(other),
        })?;
        self.hand_out(&api::shown_new_token(&token, &secret), as_json)?;
        if !as_json {
            let path = settings.directory().join(TOKEN_FILE);
            out::note(format_args!("Commands without --token-file read {}.", path.display()));
        }
        Ok(())
    }
}

/// Shows a new token.
fn shown(made: &Value, as_json: bool) -> Result<(), Failure> {
    if as_json {
        return out::json(made);
    }
    // The token alone on stdout, so that it can go into a file or a variable.
    out::line(once(made, "token")?)?;
    out::note("This is the only time it is shown.");
    let (id, tenant) = (text(made, "id"), text(made, "tenant"));
    let whose =
        if tenant == tenant::DEFAULT { String::new() } else { format!(" --tenant {tenant}") };
    out::note(format_args!("To end it: oncebox token revoke {id}{whose}"));
    Ok(())
}
