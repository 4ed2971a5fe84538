//! `oncebox provider reconcile`: compares a provider's list with what came, waits for the end, and prints the numbers of each
//! day.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::base::stop::Stop;
use crate::cli::prelude::*;
use crate::cli::show::clean;
use crate::sys::host::stop_flag;

/// How often a run is asked for its end.
const LOOK_EVERY: Duration = Duration::from_millis(200);

pub(super) const RECONCILIATIONS: Noun =
    Noun::new("/v1/providers", "Reconciliation", "reconciliations")
        .columns(&[
            column("ID", 0, "id"),
            column("STATE", 1, "state"),
            column("SENT", 1, "sent"),
            column("MISSING", 0, "missing"),
            column("TAKEN IN", 1, "taken_in"),
            column("REFUSED", 1, "refused"),
            column("SINCE (UTC)", 2, "since"),
            column("BEGAN (UTC)", 2, "began_at"),
            column("BY", 3, "requested_by"),
        ])
        .time("began_at");

const DAYS: Columns = Columns {
    columns: &[
        column("DAY (UTC)", 0, "day"),
        column("SENT", 1, "sent"),
        column("RECEIVED", 1, "received"),
        column("MISSING", 0, "missing"),
        column("TAKEN IN", 1, "taken_in"),
        column("REFUSED", 1, "refused"),
    ],
    by: &[],
};

/// Lists the runs of a provider.
pub(super) fn list_runs(call: &Call<'_>, remote: &Remote) -> Done {
    call.list(remote, &RECONCILIATIONS, call.query())
}

/// Prints a run.
pub(super) fn show(call: &Call<'_>, remote: &Remote) -> Done {
    print(remote, &remote.get(&call.path())?)
}

/// Starts a run and waits for its end. A signal ends the wait, and not the run.
pub(super) fn start(call: &Call<'_>, remote: &Remote) -> Done {
    let mut run = call.send(remote, call.body()?)?;
    let id = text(&run, "id");
    let provider = call.text("name");
    let advice = format!("See it: oncebox provider reconciliation {provider} {id}");
    if call.is("detach") {
        return remote.answer(&run, format_args!("reconciliation {id} runs\n{advice}"));
    }
    let path = format!("{}/{}", call.path(), percent_encoded(&id));
    let stopped = stop_flag().map_err(Failure::failed)?;
    let pause = Stop::new();
    let mut told = String::new();
    while text(&run, "state") == "RUNNING" {
        let error = text(&run, "error");
        if error != told && !error.is_empty() {
            out::note(format_args!("It goes on after an error: {}", clean(&error)));
        }
        told = error;
        if stopped.load(Ordering::Relaxed) {
            out::note(format_args!("It goes on without this command.\n{advice}"));
            return remote.answer(&run, format_args!("reconciliation {id} runs"));
        }
        let _asked = pause.wait(LOOK_EVERY);
        run = remote.get(&path).map_err(|failure| failure.and(&advice))?;
    }
    print(remote, &run)?;
    let count = |name: &str| run.get(name).and_then(Value::as_u64).unwrap_or_default();
    if text(&run, "state") == "FAILED" {
        return Err(Failure::failed(format_args!("it failed: {}", clean(&text(&run, "error")))));
    }
    match count("missing") {
        0 => Ok(()),
        missing => {
            let done = if run.get("dry_run") == Some(&Value::Bool(true)) {
                "and would be taken in"
            } else {
                "and are here now"
            };
            let why = format!("{missing} of {} were missing {done}", count("sent"));
            Err(Failure::new(exit::MISSING, why))
        }
    }
}

fn print(remote: &Remote, run: &Value) -> Done {
    if remote.json() {
        return out::json(run);
    }
    let days = list(run, "days");
    let state = text(run, "state");
    if days.is_empty() && state == "DONE" {
        let [since, until] = [text(run, "since"), text(run, "until")];
        out::line(format_args!("The list has no items from {since} to {until}."))?;
    }
    if state == "RUNNING" {
        out::line("It runs; its numbers are known at its end.")?;
    }
    if !days.is_empty() {
        let mut total = run.clone();
        if let Value::Object(fields) = &mut total {
            fields.insert("day".to_owned(), "total".into());
        }
        let rows: Vec<Value> = days.iter().cloned().chain([total]).collect();
        DAYS.table(&rows)?;
    }
    for day in days {
        for reason in list(day, "reasons").iter().filter_map(Value::as_str) {
            out::line(format_args!("refused on {}: {}", text(day, "day"), clean(reason)))?;
        }
    }
    if run.get("dry_run") == Some(&Value::Bool(true)) {
        out::note("Nothing was taken in.");
    }
    Ok(())
}
