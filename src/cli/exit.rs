//! The exit codes, and the failure of a command. Scripts read the code instead of the message.
//!
//! Codes of 64 and above are those of `sysexits.h`. [`super::remote`] maps the API's answers to codes.

use crate::config::SettingsError;
use crate::store::error::Error as StoreError;

/// Success.
pub(super) const OK: u8 = 0;
/// The command failed.
pub(super) const FAILED: u8 = 1;
/// The command line is wrong.
pub(super) const USAGE: u8 = 2;
/// The service cannot be reached.
pub(super) const UNREACHABLE: u8 = 3;
/// The named object does not exist.
pub(super) const NOT_FOUND: u8 = 4;
/// The object's state does not allow the command.
pub(super) const CONFLICT: u8 = 5;
/// A comparison has found that something was missing.
pub(super) const MISSING: u8 = 6;
/// The input cannot be accepted.
pub(super) const BAD_INPUT: u8 = 65;
/// The same command may work later.
pub(super) const TEMPORARY: u8 = 75;
/// The token, or the user, may not do this.
pub(super) const NOT_PERMITTED: u8 = 77;
/// The settings are wrong.
pub(super) const BAD_CONFIGURATION: u8 = 78;

/// Every code with its meaning, as `--help` lists them.
pub(super) const MEANINGS: [(u8, &str); 11] = [
    (OK, "done"),
    (FAILED, "tried, and it did not work"),
    (USAGE, "the command line is wrong, or a question was not answered with yes"),
    (UNREACHABLE, "the service cannot be reached"),
    (NOT_FOUND, "there is no such thing"),
    (CONFLICT, "its state does not allow it"),
    (MISSING, "compared, and something was missing"),
    (BAD_INPUT, "the input cannot be accepted"),
    (TEMPORARY, "not now; the same command may work later"),
    (NOT_PERMITTED, "the token, or the user, may not do this"),
    (BAD_CONFIGURATION, "the settings are wrong"),
];

/// The exit code and the message of a command that did not work.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(super) code: u8,
    pub(super) message: String,
}

impl Failure {
    pub(super) fn new(code: u8, message: impl ToString) -> Self {
        Self { code, message: message.to_string() }
    }

    /// Ends the command without a message, because the reader of stdout closed the pipe.
    pub(super) fn quiet() -> Self {
        Self::new(OK, "")
    }

    pub(super) fn usage(message: impl ToString) -> Self {
        Self::new(USAGE, message)
    }

    pub(crate) fn failed(message: impl ToString) -> Self {
        Self::new(FAILED, message)
    }

    pub(super) fn input(message: impl ToString) -> Self {
        Self::new(BAD_INPUT, message)
    }

    pub(crate) fn temporary(message: impl ToString) -> Self {
        Self::new(TEMPORARY, message)
    }

    /// Adds a line to the message.
    pub(super) fn and(self, more: impl std::fmt::Display) -> Self {
        Self { code: self.code, message: format!("{}\n{more}", self.message) }
    }
}

impl From<SettingsError> for Failure {
    fn from(error: SettingsError) -> Self {
        Self::new(BAD_CONFIGURATION, error)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::failed(error)
    }
}
