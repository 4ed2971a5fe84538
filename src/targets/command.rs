//! Alerts to a command of the settings. It gets the alert on stdin as JSON; exit 0 means that people are told.

use std::ffi::OsString;
use std::time::Duration;

use crate::base::clock::Clock;
use crate::config::{Live, own_variables};
use crate::model::outcome::{Cause, Outcome};
use crate::sys::command::{Ended, How, Program};
use crate::targets::parcel::{Parcel, Sends};

/// How long a command may run.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of its output that are kept.
const MAX_OUTPUT_BYTES: usize = 2048;

/// Runs commands.
#[derive(Debug)]
pub struct Command {
    /// Time.
    pub clock: Clock,
    /// Which commands there are.
    pub settings: Live,
}

impl Sends for Command {
    fn send(&self, parcel: &Parcel<'_>) -> Outcome {
        let url = parcel.call.url;
        let name = url.strip_prefix("command:").unwrap_or(url);
        let settings = self.settings.get();
        let Some(argv) = settings.alerts.commands.get(name) else {
            let reason = format!(
                "there is no command {name:?} in the settings; add it under [alerts.commands]"
            );
            return Outcome::Blocked { reason };
        };
        let program = Program {
            argv: argv.iter().map(OsString::from).collect(),
            without: own_variables(),
            environment: vec![(
                "ONCEBOX_WEBHOOK_ID".to_owned(),
                parcel.outgoing.webhook_id.clone(),
            )],
            input: parcel.outgoing.payload.clone(),
            timeout: TIMEOUT,
            output_most: MAX_OUTPUT_BYTES,
        };
        match program.run(&self.clock) {
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
}
