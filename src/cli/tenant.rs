//! `oncebox tenant`: the tenants of this installation.
//!
//! Not here: a tenant's tokens (`oncebox token create … --tenant`).

use clap::Subcommand;
use serde_json::json;

use crate::cli::exit::Failure;
use crate::cli::noun::{Listing, NameArg, Noun, Verbs};
use crate::cli::remote::ConnectArgs;
use crate::cli::shared::Shared;
use crate::cli::show::Cell::{By, Instant, Minute, Text};
use crate::cli::{out, pii};

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Tenants, oldest first
    List(Listing),
    /// One tenant
    Show(NameArg),
    /// Add a tenant
    Create {
        /// 1 to 63 characters of a-z, 0-9 and -; it never changes
        name: String,
        /// A name for people
        #[arg(long, default_value = "", hide_default_value = true)]
        title: String,
    },
    /// Give a tenant another title
    Change {
        /// The tenant's name
        name: String,
        /// A name for people
        #[arg(long)]
        title: String,
    },
    /// Set the policy for personal data in published events
    Pii {
        /// The tenant's name
        name: String,
        /// allow, or a policy (test it: oncebox pii test)
        #[arg(value_name = "allow|FILE|JSON")]
        policy: String,
    },
    /// Refuse its tokens and webhooks, and hold its deliveries; nothing is deleted
    Suspend(NameArg),
    /// End a suspension: deliveries go on
    Resume(NameArg),
}

const TENANTS: Noun = Noun {
    path: "/v1/tenants",
    one: "Tenant",
    many: "tenants",
    time: Some("created_at"),
    columns: &[
        ("NAME", 0, Text("name")),
        ("TITLE", 1, Text("title")),
        ("SUSPENDED (UTC)", 1, Minute("suspended_at")),
        ("CREATED (UTC)", 2, Minute("created_at")),
    ],
    fields: &[
        ("title", Text("title")),
        ("personal data", By(pii::policy_of)),
        ("suspended since", Instant("suspended_at")),
        ("created", Instant("created_at")),
    ],
};

impl Verbs for Verb {
    fn run(&self, connect: &ConnectArgs, shared: &Shared) -> Result<(), Failure> {
        let remote = connect.open(shared)?;
        let patch =
            |name: &str, body| TENANTS.print(&remote, &remote.patch(&TENANTS.at(name), &body)?);
        match self {
            Self::List(listing) => TENANTS.list(&remote, listing, &()),
            Self::Show(NameArg { name }) => TENANTS.show(&remote, name),
            Self::Create { name, title } => {
                let body = json!({ "name": name, "title": title });
                TENANTS.print(&remote, &remote.post(TENANTS.path, Some(&body))?)?;
                if !remote.json() {
                    out::note(format_args!(
                        "Its first token: oncebox token create {name}-admin --role admin --tenant {name}"
                    ));
                }
                Ok(())
            }
            Self::Change { name, title } => patch(name, json!({ "title": title })),
            Self::Pii { name, policy } => {
                patch(name, json!({ "pii": pii::policy_from_flag("the policy", policy)? }))
            }
            Self::Suspend(NameArg { name }) => TENANTS.act(&remote, name, "suspend", None),
            Self::Resume(NameArg { name }) => TENANTS.act(&remote, name, "resume", None),
        }
    }
}
