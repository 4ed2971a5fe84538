//! `oncebox token`: who may use the API.
//!
//! Not here: the first admin token, which `oncebox serve` writes into the data directory.

use clap::{Args, Subcommand};
use serde_json::json;

use crate::cli::listing::{List, Paging};
use crate::cli::remote::{Reach, once, plain};
use crate::cli::show::{Column, minute, text};
use crate::cli::{Failure, Shared, out};
use crate::clock::{Clock, Timestamp};

/// Who may use the API
#[derive(Debug, Args)]
pub(super) struct Tokens {
    #[command(flatten)]
    reach: Reach,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Tokens, without the tokens themselves
    List {
        #[command(flatten)]
        paging: Paging,
    },
    /// Make a token, and print it this once
    Create {
        /// What you call it, such as the program that uses it
        name: String,
        /// What it may do: publish; read; operate (publish, read, retry, pause); admin (all)
        #[arg(long, value_parser = ["publish", "read", "operate", "admin"])]
        role: String,
        /// When it ends: a time, or a span from now (90days)
        #[arg(long, value_name = "TIME", value_parser = later)]
        expires: Option<String>,
    },
    /// Revoke a token: it opens nothing from now on
    Revoke {
        /// The token's id
        id: String,
    },
}

const COLUMNS: [Column; 7] = [
    Column { title: "ID", of: |t| text(t, "id"), rank: 0 },
    Column { title: "NAME", of: |t| text(t, "name"), rank: 1 },
    Column { title: "ROLE", of: |t| text(t, "role"), rank: 1 },
    Column { title: "LAST USED (UTC)", of: |t| minute(t, "last_used_at"), rank: 2 },
    Column { title: "EXPIRES", of: |t| minute(t, "expires_at"), rank: 3 },
    Column { title: "REVOKED", of: |t| minute(t, "revoked_at"), rank: 2 },
    Column { title: "CREATED", of: |t| minute(t, "created_at"), rank: 4 },
];

fn later(text: &str) -> Result<String, String> {
    if Timestamp::parse(text).is_some() {
        return Ok(text.to_owned());
    }
    let span = humantime::parse_duration(text).map_err(|error| {
        format!("give a time like 2026-12-31T00:00:00Z, or a span from now like 90days: {error}")
    })?;
    Ok(Clock::machine().wall().plus(span).to_string())
}

impl Tokens {
    pub(super) fn run(&self, shared: &Shared) -> Result<(), Failure> {
        let remote = self.reach.open(shared)?;
        match &self.verb {
            Verb::List { paging } => {
                let what = "tokens";
                List { path: "/v1/tokens", query: Vec::new(), columns: &COLUMNS, what }
                    .print(&remote, paging)
            }
            Verb::Create { name, role, expires } => {
                let body = json!({ "name": name, "role": role, "expires_at": expires });
                let made = remote.post("/v1/tokens", Some(&body))?;
                if remote.json() {
                    return out::json(&made);
                }
                // The token alone on stdout, so that it can go into a file or a variable.
                out::line(once(&made, "token")?)?;
                out::note("This is the only time it is shown.");
                out::note(format_args!("To end it: oncebox token revoke {}", text(&made, "id")));
                Ok(())
            }
            Verb::Revoke { id } => {
                let revoked = remote.delete(&format!("/v1/tokens/{}", plain(id)))?;
                if remote.json() {
                    return out::json(&revoked);
                }
                out::line(format_args!("revoked: {}", text(&revoked, "name")))
            }
        }
    }
}
