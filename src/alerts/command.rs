//! Alerts to a command of the settings. It gets the alert on stdin as JSON; exit 0 means that people are told.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

use crate::base::clock::Clock;
use crate::config::own_variables;
use crate::model::delivery::OutgoingRequest;
use crate::model::outcome::{Cause, Outcome};
use crate::sys::command::{Ended, How, Program};

/// How long a command may run.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of its output that are kept.
const MAX_OUTPUT_BYTES: usize = 2048;

/// Runs a command for a message.
pub(super) fn run(
    commands: &BTreeMap<String, Vec<String>>,
    name: &str,
    outgoing: &OutgoingRequest,
    clock: &Clock,
) -> Outcome {
    let Some(argv) = commands.get(name) else { return Outcome::Blocked { reason: missing(name) } };
    let program = Program {
        argv: argv.iter().map(OsString::from).collect(),
        without: own_variables(),
        environment: vec![("ONCEBOX_WEBHOOK_ID".to_owned(), outgoing.webhook_id.clone())],
        input: outgoing.payload.clone(),
        timeout: TIMEOUT,
        output_most: MAX_OUTPUT_BYTES,
    };
    match program.run(clock) {
        Ok(Ended { how: How::Exited(0), stdout, .. }) => {
            Outcome::Accepted { excerpt: String::from_utf8_lossy(&stdout).into_owned() }
        }
        Ok(Ended { how, stderr, .. }) => {
            let said = String::from_utf8_lossy(&stderr);
            let reason = format!("the command {name} failed ({how}): {}", said.trim());
            let cause = if how == How::TimedOut { Cause::Timeout } else { Cause::Broken };
            Outcome::Unreachable { cause, reason }
        }
        Err(error) => {
            let reason = format!("the command {name} cannot be run: {error}");
            Outcome::Blocked { reason }
        }
    }
}

/// Why a command cannot be named.
pub fn missing(name: &str) -> String {
    format!("there is no command {name:?} in the settings; add it under [alerts.commands]")
}
