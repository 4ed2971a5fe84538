//! `oncebox user`, `oncebox session` and `oncebox console`: the people who use the console.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::cli::exit::{self, Failure};
use crate::cli::noun::{self, Confirm, DeleteArgs, Listing, Noun, Verbs};
use crate::cli::out;
use crate::cli::remote::{ConnectArgs, Remote, once, with_query};
use crate::cli::secrets::one_line;
use crate::cli::shared::Shared;
use crate::cli::show::Cell::{Instant, Minute, Text};
use crate::cli::show::text;
use crate::cli::subject::TenantArg;
use crate::sys::user;

/// The longest name of a user.
const MAX_NAME_CHARS: usize = 63;

#[derive(Debug, Subcommand)]
pub(super) enum UserVerb {
    /// Users by name and role
    List {
        #[command(flatten)]
        tenant: TenantArg,
        #[command(flatten)]
        listing: Listing,
    },
    /// One user
    Show {
        /// The user's name
        name: String,
        #[command(flatten)]
        tenant: TenantArg,
    },
    /// Create a user; without a password the user logs in with one-time links (oncebox console link)
    Create(Create),
    /// Change a user; that ends the user's sessions
    Change(Change),
    /// Delete a user; that ends the user's sessions
    Delete {
        #[command(flatten)]
        delete: DeleteArgs,
        #[command(flatten)]
        tenant: TenantArg,
    },
}

#[derive(Debug, Args, Serialize)]
pub(super) struct Create {
    /// 1 to 63 characters of a-z, 0-9 and -; the user logs in as tenant/name, one of the tenant default by the name alone
    name: String,
    /// Permissions: read; operate (read, publish, retry, pause); admin (all)
    #[arg(long, value_parser = ["read", "operate", "admin"])]
    role: String,
    #[command(flatten)]
    #[serde(flatten)]
    tenant: TenantArg,
    /// File with the password, 12 to 128 characters
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    password_file: Option<PathBuf>,
}

#[derive(Debug, Args, Serialize)]
pub(super) struct Change {
    /// The user's name
    #[serde(skip)]
    name: String,
    /// Permissions: read; operate (read, publish, retry, pause); admin (all)
    #[arg(long, value_parser = ["read", "operate", "admin"])]
    role: Option<String>,
    /// File with the new password, 12 to 128 characters
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    password_file: Option<PathBuf>,
    /// Keep the user from logging in
    #[arg(long)]
    #[serde(skip)]
    disable: bool,
    /// Let the user log in again
    #[arg(long, conflicts_with = "disable")]
    #[serde(skip)]
    enable: bool,
    #[command(flatten)]
    #[serde(skip)]
    tenant: TenantArg,
}

#[derive(Debug, Subcommand)]
pub(super) enum SessionVerb {
    /// Who is logged in to the console
    List {
        #[command(flatten)]
        tenant: TenantArg,
        #[command(flatten)]
        listing: Listing,
    },
    /// End a session: whoever uses it has to log in again
    End {
        /// The session's id
        id: String,
        #[command(flatten)]
        tenant: TenantArg,
        #[command(flatten)]
        confirm: Confirm,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum ConsoleVerb {
    /// Print a link that logs a user in, once and within 15 minutes; creates the user if there is none of that name
    Link {
        /// The user's name [default: your name on this machine]
        #[arg(long, value_name = "NAME")]
        user: Option<String>,
        /// Permissions of a user that is created
        #[arg(long, default_value = "admin", value_parser = ["read", "operate", "admin"])]
        role: String,
        #[command(flatten)]
        tenant: TenantArg,
    },
}

const USERS: Noun = Noun {
    path: "/v1/users",
    one: "User",
    many: "users",
    time: Some("created_at"),
    columns: &[
        ("NAME", 0, Text("name")),
        ("ROLE", 1, Text("role")),
        ("LAST LOGIN (UTC)", 2, Minute("last_login_at")),
        ("DISABLED (UTC)", 2, Minute("disabled_at")),
        ("CREATED (UTC)", 4, Minute("created_at")),
    ],
    fields: &[
        ("tenant", Text("tenant")),
        ("role", Text("role")),
        ("password", Text("has_password")),
        ("last login", Instant("last_login_at")),
        ("disabled since", Instant("disabled_at")),
        ("created", Instant("created_at")),
    ],
};

const SESSIONS: Noun = Noun {
    path: "/v1/sessions",
    one: "Session",
    many: "sessions",
    time: Some("created_at"),
    columns: &[
        ("ID", 0, Text("id")),
        ("USER", 1, Text("user")),
        ("ADDRESS", 1, Text("address")),
        ("LAST USED (UTC)", 2, Minute("last_used_at")),
        ("ENDS (UTC)", 3, Minute("ends_at")),
        ("BROWSER", 4, Text("user_agent")),
    ],
    fields: &[],
};

/// The path of one user or session, with the tenant.
fn at(noun: &Noun, name: &str, tenant: &TenantArg) -> String {
    with_query(&noun.at(name), &noun::query(tenant))
}

/// Adds the password of a file to a body.
fn add_password(body: &mut Map<String, Value>, file: Option<&PathBuf>) -> Result<(), Failure> {
    if let Some(path) = file {
        body.insert("password".to_owned(), one_line(path)?.as_str().into());
    }
    Ok(())
}

impl Verbs for UserVerb {
    fn run(&self, connect: &ConnectArgs, shared: &Shared) -> Result<(), Failure> {
        let remote = connect.open(shared)?;
        match self {
            Self::List { tenant, listing } => USERS.list(&remote, listing, tenant),
            Self::Show { name, tenant } => {
                USERS.print(&remote, &remote.get(&at(&USERS, name, tenant))?)
            }
            Self::Create(create) => {
                let mut body = noun::body(create);
                add_password(&mut body, create.password_file.as_ref())?;
                USERS.print(&remote, &remote.post(USERS.path, Some(&Value::Object(body)))?)
            }
            Self::Change(change) => {
                let mut body = noun::body(change);
                add_password(&mut body, change.password_file.as_ref())?;
                if change.disable || change.enable {
                    body.insert("disabled".to_owned(), change.disable.into());
                }
                if body.is_empty() {
                    let why = "say what to change: --role, --password-file, --disable or --enable";
                    return Err(Failure::usage(why));
                }
                let path = at(&USERS, &change.name, &change.tenant);
                USERS.print(&remote, &remote.patch(&path, &Value::Object(body))?)
            }
            Self::Delete { delete: DeleteArgs { name, confirm }, tenant } => {
                confirm.ask(format_args!("Delete the user {name}"))?;
                let deleted = remote.delete(&at(&USERS, name, tenant))?;
                remote.answer(&deleted, format_args!("deleted: {name}"))
            }
        }
    }
}

impl Verbs for SessionVerb {
    fn run(&self, connect: &ConnectArgs, shared: &Shared) -> Result<(), Failure> {
        let remote = connect.open(shared)?;
        match self {
            Self::List { tenant, listing } => SESSIONS.list(&remote, listing, tenant),
            Self::End { id, tenant, confirm } => {
                confirm.ask(format_args!("End the session {id}"))?;
                let ended = remote.delete(&at(&SESSIONS, id, tenant))?;
                remote.answer(&ended, format_args!("ended: {id}"))
            }
        }
    }
}

impl Verbs for ConsoleVerb {
    fn run(&self, connect: &ConnectArgs, shared: &Shared) -> Result<(), Failure> {
        let Self::Link { user, role, tenant } = self;
        let remote = connect.open(shared)?;
        let name = user.clone().unwrap_or_else(|| name_from(&user::name()));
        let link = link(&remote, &name, role, tenant)?;
        if remote.json() {
            return out::json(&link);
        }
        out::line(once(&link, "url")?)?;
        let until = text(&link, "expires_at");
        out::note(format_args!("It logs in {name}, once and until {until}."));
        Ok(())
    }
}

/// A new link of a user, which is created if it does not exist.
fn link(remote: &Remote, name: &str, role: &str, tenant: &TenantArg) -> Result<Value, Failure> {
    let path = with_query(&format!("{}/link", USERS.at(name)), &noun::query(tenant));
    match remote.post(&path, None) {
        Err(failure) if failure.code == exit::NOT_FOUND => {}
        done => return done,
    }
    let mut body = noun::body(tenant);
    body.extend(noun::body(&json!({ "name": name, "role": role })));
    remote.post(USERS.path, Some(&Value::Object(body)))?;
    out::note(format_args!("The user {name} was created with the role {role}."));
    remote.post(&path, None)
}

/// A user's name on this machine as a name here; `admin` if nothing of it can stay.
fn name_from(login: &str) -> String {
    let kept = |c: char| {
        let c = c.to_ascii_lowercase();
        if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' }
    };
    let name: String = login.chars().map(kept).take(MAX_NAME_CHARS).collect();
    let name = name.trim_matches('-');
    if name.is_empty() { "admin".to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_name_becomes_a_name() {
        for (login, name) in
            [("root", "root"), ("Anna.Kiss", "anna-kiss"), ("_ß_", "admin"), ("", "admin")]
        {
            assert_eq!(name_from(login), name);
        }
    }
}
