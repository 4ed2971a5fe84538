//! `oncebox subject`: finds and erases the people whose personal data is sealed.

use clap::Subcommand;
use serde_json::{Value, json};

use crate::cli::exit::Failure;
use crate::cli::noun::{self, Confirm, Listing, Noun, Verbs};
use crate::cli::out;
use crate::cli::remote::{ConnectArgs, Remote, with_query};
use crate::cli::shared::Shared;
use crate::cli::show::Cell::{By, Minute};
use crate::cli::show::{self, text};

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Keys of subjects, oldest first; names are hashed
    List {
        /// Only destroyed keys
        #[arg(long)]
        erased: bool,
        #[command(flatten)]
        tenant: TenantArg,
        #[command(flatten)]
        listing: Listing,
    },
    /// The keys of one subject, newest first
    Show {
        /// Its name: the value at the policy's subject path, else the event's webhook-id
        subject: String,
        #[command(flatten)]
        tenant: TenantArg,
    },
    /// Destroy a subject's keys: its sealed data can never be opened again, even after a restore
    Erase {
        /// Its name: the value at the policy's subject path, else the event's webhook-id
        subject: String,
        #[command(flatten)]
        tenant: TenantArg,
        #[command(flatten)]
        confirm: Confirm,
    },
}

/// The flag of commands that an administrator may run for another tenant.
#[derive(Debug, clap::Args, serde::Serialize)]
pub(super) struct TenantArg {
    /// Act for this tenant; needs an admin token of the tenant default [default: your token's tenant]
    #[arg(long, value_name = "NAME")]
    pub(super) tenant: Option<String>,
}

const SUBJECTS: Noun = Noun {
    path: "/v1/subjects",
    one: "Subject",
    many: "keys of subjects",
    time: Some("created_at"),
    columns: &[
        ("SUBJECT", 0, By(|key| short(key, "subject"))),
        ("KEY", 1, By(|key| short(key, "key"))),
        ("SINCE (UTC)", 1, Minute("created_at")),
        ("ERASED (UTC)", 0, Minute("erased_at")),
    ],
    fields: &[],
};

fn short(key: &Value, field: &str) -> String {
    text(key, field).chars().take(16).collect()
}

impl Verbs for Verb {
    fn run(&self, connect: &ConnectArgs, shared: &Shared) -> Result<(), Failure> {
        let remote = connect.open(shared)?;
        match self {
            Self::List { erased, tenant: TenantArg { tenant }, listing } => {
                let filters = json!({ "tenant": tenant, "erased": erased });
                SUBJECTS.list(&remote, listing, &filters)
            }
            Self::Show { subject, tenant } => show_one(&remote, tenant, subject),
            Self::Erase { subject, tenant, confirm } => {
                confirm.ask(format_args!("Destroy the keys of {subject} for good"))?;
                let path = with_query("/v1/subjects/erase", &noun::query(tenant));
                let erased = remote.post(&path, Some(&json!({ "subject": subject })))?;
                let count = text(&erased, "keys_erased");
                let keys = if count == "1" { "key" } else { "keys" };
                remote.answer(&erased, format_args!("erased: {count} {keys} destroyed"))?;
                if !remote.json() {
                    out::note(
                        "Older backups hold the keys until they are deleted; a restore destroys them again. \
                         Keep oncebox.db.erasures with your backups.",
                    );
                }
                Ok(())
            }
        }
    }
}

/// All keys of a subject, page by page.
fn show_one(remote: &Remote, tenant: &TenantArg, subject: &str) -> Result<(), Failure> {
    let (mut hash, mut keys, mut after) = (Value::Null, Vec::new(), None);
    let body = json!({ "subject": subject });
    loop {
        let query = json!({ "tenant": tenant.tenant, "limit": 500, "after": after });
        let path = with_query("/v1/subjects/find", &noun::query(&query));
        let page = remote.post(&path, Some(&body))?;
        keys.extend(page.get("keys").and_then(Value::as_array).into_iter().flatten().cloned());
        hash = page.get("subject").cloned().unwrap_or(hash);
        after = page.get("next").and_then(Value::as_str).map(str::to_owned);
        if after.is_none() {
            break;
        }
    }
    if remote.json() {
        return out::json(&json!({ "subject": hash, "keys": keys }));
    }
    show::table(SUBJECTS.columns, &keys)
}
