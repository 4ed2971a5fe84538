//! `oncebox in-doubt`: deliveries that may have been made before a restore; look at them, let them be sent,
//! or put them away as done.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::cli::listing::{List, Paging, filter};
use crate::cli::remote::{ConnectArgs, Remote};
use crate::cli::show::{self, instant, text};
use crate::cli::{Failure, Shared, delivery, exit, out};

/// After a restore: deliveries that may have been made before
#[derive(Debug, Args)]
pub(super) struct InDoubt {
    #[command(flatten)]
    reach: ConnectArgs,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// When the database was restored, from what, and how much is in doubt
    Show,
    /// The deliveries in doubt, newest first
    List {
        /// Whose they are: a subscription's name or id
        #[arg(long)]
        subscription: Option<String>,
        #[command(flatten)]
        paging: Paging,
    },
    /// Let them be sent; each keeps its webhook-id, so a consumer with a guard takes it once
    Release(Which),
    /// Put them away as done: they were made before the restore and are not sent
    Settle(Which),
    /// Hold nothing that comes in any more; what is in doubt stays so
    End,
}

/// Which deliveries in doubt.
#[derive(Debug, Args)]
struct Which {
    /// Ids of deliveries
    #[arg(conflicts_with_all = ["all", "subscription", "event_type", "since", "until"])]
    ids: Vec<String>,
    /// All of them
    #[arg(long)]
    all: bool,
    /// All of a subscription
    #[arg(long)]
    subscription: Option<String>,
    /// All of an event type
    #[arg(long, value_name = "TYPE")]
    event_type: Option<String>,
    /// All that were received at or after this time
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// All that were received before this time
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Only say how many
    #[arg(long)]
    dry_run: bool,
}

impl InDoubt {
    pub(super) fn run(&self, shared: &Shared) -> Result<(), Failure> {
        let remote = self.reach.open(shared)?;
        match &self.verb {
            Verb::Show => shown(&remote, &remote.get("/v1/in-doubt")?),
            Verb::List { subscription, paging } => {
                let mut query = vec![("state", "in_doubt".to_owned())];
                query.extend(filter("subscription", subscription.as_ref()));
                let (columns, what) = (&delivery::COLUMNS, "deliveries in doubt");
                List { path: "/v1/deliveries", query, columns, what }.print(&remote, paging)
            }
            Verb::Release(which) => which.act(&remote, "release", "released"),
            Verb::Settle(which) => which.act(&remote, "skip", "settled"),
            Verb::End => shown(&remote, &remote.post("/v1/in-doubt/end", None)?),
        }
    }
}

fn shown(remote: &Remote, doubt: &Value) -> Result<(), Failure> {
    if remote.json() {
        return out::json(doubt);
    }
    show::fields(&[
        ("restored", instant(doubt, "restored_at")),
        ("from", text(doubt, "restored_from")),
        ("times restored", text(doubt, "epoch")),
        ("deliveries in doubt", text(doubt, "in_doubt")),
        ("new events held until", instant(doubt, "until")),
        ("if they happened before", instant(doubt, "lost_at")),
    ])
}

impl Which {
    fn act(&self, remote: &Remote, action: &str, done: &str) -> Result<(), Failure> {
        let Self { ids, all, subscription, event_type, since, until, dry_run } = self;
        if !ids.is_empty() {
            return delivery::each(remote, ids, action);
        }
        let named = [subscription, event_type, since, until].iter().any(|given| given.is_some());
        if !all && !named {
            let why = "say which: ids, --all, --subscription, --event-type, --since or --until";
            return Err(Failure::new(exit::USAGE, why));
        }
        let filter = json!({
            "subscription": subscription, "event_type": event_type, "since": since, "until": until,
        });
        let body = json!({ "filter": filter, "dry_run": dry_run });
        let mut count = 0;
        loop {
            let moved = remote.post(&format!("/v1/deliveries/{action}"), Some(&body))?;
            count += moved.get("count").and_then(Value::as_u64).unwrap_or(0);
            if moved.get("more").and_then(Value::as_bool) != Some(true) {
                break;
            }
        }
        if remote.json() {
            return out::json(&json!({ "count": count, "dry_run": dry_run }));
        }
        let would = if *dry_run { "would be " } else { "" };
        out::line(format_args!("{count} deliveries {would}{done}"))
    }
}
