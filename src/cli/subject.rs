//! `oncebox subject`: those whose personal data is sealed.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::cli::listing::{List, Paging, filter};
use crate::cli::remote::{ConnectArgs, Remote, with_query};
use crate::cli::show::{self, Column, minute, text};
use crate::cli::{Failure, Shared, out};

/// Those whose personal data is sealed: find, erase
#[derive(Debug, Args)]
pub(super) struct Subjects {
    #[command(flatten)]
    reach: ConnectArgs,
    /// Of another tenant; for an admin token of the tenant default [default: that of your token]
    #[arg(long, global = true, value_name = "NAME")]
    tenant: Option<String>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Keys of subjects, oldest first; names are hashed
    List {
        /// Only keys that were destroyed
        #[arg(long)]
        erased: bool,
        #[command(flatten)]
        paging: Paging,
    },
    /// The keys of one subject, newest first
    Show {
        /// Its name: what stands at the policy's subject path, else the event's webhook-id
        subject: String,
    },
    /// Destroy a subject's keys: what is sealed of it can never be opened again; a restore destroys them again
    Erase {
        /// Its name: what stands at the policy's subject path, else the event's webhook-id
        subject: String,
    },
}

const FIND: &str = "/v1/subjects/find";

const COLUMNS: [Column; 4] = [
    Column { title: "SUBJECT", of: |k| short(&text(k, "subject")), rank: 0 },
    Column { title: "KEY", of: |k| short(&text(k, "key")), rank: 1 },
    Column { title: "SINCE (UTC)", of: |k| minute(k, "created_at"), rank: 1 },
    Column { title: "ERASED", of: |k| minute(k, "erased_at"), rank: 0 },
];

fn short(hash: &str) -> String {
    hash.chars().take(16).collect()
}

impl Subjects {
    pub(super) fn run(&self, shared: &Shared) -> Result<(), Failure> {
        let remote = self.reach.open(shared)?;
        let mut query: Vec<_> = filter("tenant", self.tenant.as_ref()).into_iter().collect();
        match &self.verb {
            Verb::List { erased, paging } => {
                query.extend(erased.then(|| ("erased", "true".to_owned())));
                let what = "keys of subjects";
                List { path: "/v1/subjects", query, columns: &COLUMNS, what }.print(&remote, paging)
            }
            Verb::Show { subject } => show_one(&remote, query, subject),
            Verb::Erase { subject } => {
                let path = with_query("/v1/subjects/erase", &query);
                let erased = remote.post(&path, Some(&json!({ "subject": subject })))?;
                if remote.json() {
                    return out::json(&erased);
                }
                let (count, keys) = (text(&erased, "keys_erased"), "keys destroyed");
                let keys = if count == "1" { "key destroyed" } else { keys };
                out::line(format_args!("erased: {count} {keys}"))?;
                out::note(
                    "Backups from before hold the keys until they are deleted; putting one back destroys \
                     them again. Keep oncebox.db.erasures with your backups.",
                );
                Ok(())
            }
        }
    }
}

/// All keys of a subject, page by page.
fn show_one(
    remote: &Remote,
    mut query: Vec<(&'static str, String)>,
    subject: &str,
) -> Result<(), Failure> {
    let (mut whole, mut keys) = (Value::Null, Vec::new());
    query.push(("limit", "500".to_owned()));
    let (mut path, body) = (with_query(FIND, &query), json!({ "subject": subject }));
    loop {
        let mut page = remote.post(&path, Some(&body))?;
        if let Some(Value::Array(more)) = page.get_mut("keys").map(Value::take) {
            keys.extend(more);
        }
        let next = page.get("next").and_then(Value::as_str).map(str::to_owned);
        whole = if whole.is_null() { page } else { whole };
        let Some(next) = next else { break };
        let from: Vec<_> = query.iter().cloned().chain([("after", next)]).collect();
        path = with_query(FIND, &from);
    }
    if remote.json() {
        return out::json(&json!({ "subject": whole.get("subject"), "keys": keys }));
    }
    show::table(&COLUMNS, &keys)
}
