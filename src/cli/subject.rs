//! `oncebox subject`: those whose personal data is sealed.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::cli::listing::{List, Paging};
use crate::cli::remote::Reach;
use crate::cli::show::{self, Column, minute, text};
use crate::cli::{Failure, Shared, out};

/// Those whose personal data is sealed: find, erase
#[derive(Debug, Args)]
pub(super) struct Subjects {
    #[command(flatten)]
    reach: Reach,
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
    /// The keys of one subject
    Show {
        /// Its name: what stands at the policy's subject path, else the event's webhook-id
        subject: String,
    },
    /// Destroy a subject's keys: what is sealed of it can never be opened again. Works on the tenant of the
    /// token; a restore destroys them again
    Erase {
        /// Its name: what stands at the policy's subject path, else the event's webhook-id
        subject: String,
    },
}

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
        match &self.verb {
            Verb::List { erased, paging } => {
                let query = erased.then(|| ("erased", "true".to_owned())).into_iter().collect();
                let what = "keys of subjects";
                List { path: "/v1/subjects", query, columns: &COLUMNS, what }.print(&remote, paging)
            }
            Verb::Show { subject } => {
                let found =
                    remote.post("/v1/subjects/find", Some(&json!({ "subject": subject })))?;
                if remote.json() {
                    return out::json(&found);
                }
                let keys = found.get("keys").and_then(Value::as_array).cloned();
                show::table(&COLUMNS, &keys.unwrap_or_default())
            }
            Verb::Erase { subject } => {
                let erased =
                    remote.post("/v1/subjects/erase", Some(&json!({ "subject": subject })))?;
                if remote.json() {
                    return out::json(&erased);
                }
                out::line(format_args!("erased: {} keys destroyed", text(&erased, "keys_erased")))?;
                out::note(
                    "Backups from before hold the keys until they are deleted; putting one back destroys \
                     them again. Keep oncebox.db.erasures with your backups.",
                );
                Ok(())
            }
        }
    }
}
