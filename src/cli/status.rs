//! `oncebox status`: whether the service runs and is ready, and how much waits.
//!
//! Not here: the list of what waits (`oncebox delivery list`, `oncebox dead-letter list`).

use crate::base::clock::Timestamp;
use crate::cli::noun;
use crate::cli::prelude::*;
use crate::cli::show::{instant, minute};
use crate::cli::subscription::{holds, is_ended_by_resume};
use crate::model::health::UNSTATED;

#[derive(Debug, Args)]
pub(super) struct Status {
    #[command(flatten)]
    connect: ConnectArgs,
}

const FIELDS: Cells = Cells {
    cells: &[
        cell("subscriptions", "subscriptions"),
        cell("deliveries waiting", "pending"),
        cell("with consumers", "leased"),
        cell("oldest due", "oldest"),
        cell("dead letters", "dead_letters"),
        cell("in doubt", "in_doubt"),
        cell("parked", "parked"),
        cell("quarantined events", "quarantined"),
    ],
    by: &[("oldest", oldest)],
};

/// Checks that are shown even if they are well.
const SHOWN: [&str; 2] = ["disk", "archive"];

/// What a person does about a number that is not 0.
const NEXT: [(&str, &str, &str); 4] = [
    ("dead_letters", "Deliveries were given up", "dead-letter list"),
    ("in_doubt", "Deliveries may have been made before a restore and wait", "in-doubt list"),
    ("parked", "Deliveries were taken out of their lanes and wait", "delivery list --state parked"),
    ("quarantined", "Events cannot be used as they are", "event list --status quarantined"),
];

impl Status {
    pub(super) fn run(&self, global: &GlobalArgs) -> Result<(), Failure> {
        let remote = self.connect.open_running(global)?;
        let stats = remote.get("/v1/stats")?;
        // A service that reads but cannot write is not ready; its numbers are shown all the same.
        let ready = remote.get("/readyz?verbose");
        if remote.json() {
            out::json(&stats)?;
            return ready.map(drop);
        }
        let running = if ready.is_ok() { "runs and is ready" } else { "runs but is not ready" };
        let base = remote.base();
        out::line(format_args!("oncebox {} at {base} {running}", text(&stats, "version")))?;
        FIELDS.fields(&stats)?;
        let checks = ready.as_ref().map(|ready| list(ready, "checks").to_vec()).unwrap_or_default();
        for check in checks.iter().filter(|check| SHOWN.contains(&text(check, "name").as_str())) {
            out::line(format_args!("  {}: {}", text(check, "name"), text(check, "detail")))?;
        }
        for (field, what, next) in NEXT {
            if stats.get(field).and_then(Value::as_u64).is_some_and(|count| count > 0) {
                out::line(format_args!("\n{what}. Next:\n  oncebox {next}"))?;
            }
        }
        if let Some(reader) = stats.get("log_reader").and_then(Value::as_str) {
            out::line(format_args!(
                "\n{reader} reads the database in a transaction that does not end, so that the write-ahead log \
                 grows.\nEnd that transaction."
            ))?;
        }
        if stats.get("pii_stated") == Some(&Value::Bool(false)) {
            out::line(format_args!("\n{UNSTATED}."))?;
        }
        failing(&remote)?;
        let ready = ready?;
        for warning in warnings(&ready, &stats) {
            out::line(warning)?;
        }
        Ok(())
    }
}

/// Names the subscriptions that are held, or whose target has not taken anything since it began to fail.
fn failing(remote: &Remote) -> Result<(), Failure> {
    noun::each(remote, "/v1/subscriptions", &Vec::new(), |subscription| {
        for hold in holds(&subscription) {
            out::line(format_args!("\n{} is held: {hold}", text(&subscription, "name")))?;
        }
        if is_ended_by_resume(&subscription) {
            let name = text(&subscription, "name");
            out::line(format_args!("To send again: oncebox subscription resume {name}"))?;
        }
        let since = minute(&subscription, "failing_since");
        let failures = text(&subscription, "failure_count");
        if since.is_empty() || failures == "0" {
            return Ok(());
        }
        let name = text(&subscription, "name");
        let waits = with_query(
            "/v1/deliveries",
            &[("subscription", name.clone()), ("state", "pending".into()), ("limit", "1".into())],
        );
        let items = remote.get(&waits)?;
        let some = !list(&items, "items").is_empty();
        let (what, state) = if some {
            ("What waits for it", "pending")
        } else {
            ("Nothing waits for it; what was given up", "dead_letter")
        };
        out::line(format_args!(
            "\n{name} has failed since {since} UTC ({failures} in a row). {what}:\n  \
             oncebox delivery list --subscription {name} --state {state}"
        ))
    })
}

/// What a person should look at. What was shown of the tenant is said once more only where other tenants have
/// some, too: the service looks at all of them together.
fn warnings(ready: &Value, stats: &Value) -> Vec<String> {
    let notable = list(ready, "checks").iter().filter(|check| text(check, "state") != "ok");
    let said = |check: &Value| {
        let name = text(check, "name");
        let detail = text(check, "detail");
        if !matches!(name.as_str(), "dead_letters" | "quarantined") {
            return Some(format!("{name}: {detail}"));
        }
        let own = stats.get(&name).and_then(Value::as_u64).unwrap_or(0);
        let all = check.pointer("/value/count").and_then(Value::as_u64).unwrap_or(0);
        let others = all.saturating_sub(own);
        (others > 0).then(|| format!("{name}: {others} more of other tenants"))
    };
    notable.filter_map(said).collect()
}

/// Since when the most overdue delivery has been due, or when the next one is.
fn oldest(stats: &Value) -> String {
    let time = |field: &str| Timestamp::parse(&text(stats, field));
    match (time("oldest_due_at"), time("now")) {
        (Some(due), Some(now)) => {
            let late = now.since(due).as_secs();
            let when = instant(stats, "oldest_due_at");
            if late == 0 { when } else { format!("{when}, {late} s ago") }
        }
        _ => String::new(),
    }
}
