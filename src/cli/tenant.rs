//! `oncebox tenant`: whose data there is on this box.
//!
//! Not here: tokens of a tenant, which are `oncebox token create … --tenant`.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::cli::listing::{List, Paging};
use crate::cli::provider::personal_data;
use crate::cli::remote::{ConnectArgs, Remote, plain};
use crate::cli::show::{self, Column, instant, minute, text};
use crate::cli::{Failure, Shared, out, pii};

/// Whose data there is on this box; for its administrator
#[derive(Debug, Args)]
pub(super) struct Tenants {
    #[command(flatten)]
    reach: ConnectArgs,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Tenants, oldest first
    List {
        #[command(flatten)]
        paging: Paging,
    },
    /// One tenant
    Show {
        /// The tenant's name
        name: String,
    },
    /// Add a tenant
    Create {
        /// 1 to 63 characters of a-z, 0-9 and -; it never changes
        name: String,
        /// What you call it
        #[arg(long, default_value = "", hide_default_value = true)]
        title: String,
    },
    /// Give a tenant another title
    Change {
        /// The tenant's name
        name: String,
        /// What you call it from now on
        #[arg(long)]
        title: String,
    },
    /// State what happens to personal data in events that are published
    Pii {
        /// The tenant's name
        name: String,
        /// allow, or a policy (try it: oncebox pii test)
        #[arg(value_name = "allow|FILE|JSON")]
        policy: String,
    },
    /// Refuse its tokens and its webhooks, and let its deliveries wait; nothing is deleted
    Suspend {
        /// The tenant's name
        name: String,
    },
    /// End a suspension: everything goes on where it stands
    Resume {
        /// The tenant's name
        name: String,
    },
}

const COLUMNS: [Column; 4] = [
    Column { title: "NAME", of: |t| text(t, "name"), rank: 0 },
    Column { title: "TITLE", of: |t| text(t, "title"), rank: 1 },
    Column { title: "SUSPENDED (UTC)", of: |t| minute(t, "suspended_at"), rank: 1 },
    Column { title: "CREATED", of: |t| minute(t, "created_at"), rank: 2 },
];

impl Tenants {
    pub(super) fn run(&self, shared: &Shared) -> Result<(), Failure> {
        let remote = self.reach.open(shared)?;
        match &self.verb {
            Verb::List { paging } => {
                let what = "tenants";
                List { path: "/v1/tenants", query: Vec::new(), columns: &COLUMNS, what }
                    .print(&remote, paging)
            }
            Verb::Show { name } => shown(&remote, &remote.get(&path(name))?),
            Verb::Create { name, title } => {
                let body = json!({ "name": name, "title": title });
                let made = remote.post("/v1/tenants", Some(&body))?;
                shown(&remote, &made)?;
                if remote.json() {
                    return Ok(());
                }
                out::note(format_args!(
                    "Its first token: oncebox token create {name}-admin --role admin --tenant {name}"
                ));
                Ok(())
            }
            Verb::Change { name, title } => {
                shown(&remote, &remote.patch(&path(name), &json!({ "title": title }))?)
            }
            Verb::Pii { name, policy } => {
                let stated = pii::stated("the policy", policy)?;
                shown(&remote, &remote.patch(&path(name), &json!({ "pii": stated }))?)
            }
            Verb::Suspend { name } => {
                shown(&remote, &remote.post(&format!("{}/suspend", path(name)), None)?)
            }
            Verb::Resume { name } => {
                shown(&remote, &remote.post(&format!("{}/resume", path(name)), None)?)
            }
        }
    }
}

fn path(name: &str) -> String {
    format!("/v1/tenants/{}", plain(name))
}

fn shown(remote: &Remote, tenant: &Value) -> Result<(), Failure> {
    if remote.json() {
        return out::json(tenant);
    }
    out::line(text(tenant, "name"))?;
    show::fields(&[
        ("title", text(tenant, "title")),
        ("personal data", personal_data(tenant)),
        ("suspended since", instant(tenant, "suspended_at")),
        ("created", instant(tenant, "created_at")),
    ])
}
