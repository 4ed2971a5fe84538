//! Printing: results to stdout, remarks to stderr. A reader that has gone away (`| head`) ends the
//! command quietly instead of with a panic, as `println!` would.
//!
//! Not here: what is printed; the log of `serve`, which is `crate::telemetry`.

use std::fmt::Display;
use std::io::{ErrorKind, Write};

use serde_json::Value;

use crate::cli::Failure;

/// Prints a line of the result.
pub(super) fn line(text: impl Display) -> Result<(), Failure> {
    written(writeln!(std::io::stdout().lock(), "{text}"))
}

/// Prints JSON on one line, as programs read it.
pub(super) fn json(value: &Value) -> Result<(), Failure> {
    line(value)
}

/// Prints bytes as they are.
pub(super) fn bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    written(stdout.write_all(bytes).and_then(|()| stdout.flush()))
}

/// Says something that is not part of the result. That nobody reads it is no reason to stop.
pub(super) fn note(text: impl Display) {
    drop(writeln!(std::io::stderr().lock(), "{text}"));
}

fn written(outcome: std::io::Result<()>) -> Result<(), Failure> {
    outcome.map_err(|error| {
        if error.kind() == ErrorKind::BrokenPipe {
            Failure::quiet()
        } else {
            Failure::failed(format!("stdout: {error}"))
        }
    })
}
