//! The exit codes, so that a script can tell what happened without reading the message.
//!
//! 64 and above are those of `sysexits.h`. Which error gets which code is decided where it is met:
//! [`super::remote`] for the API's answers.

/// It was done.
pub(super) const OK: u8 = 0;
/// It was tried and did not work.
pub(super) const FAILED: u8 = 1;
/// The command line cannot be understood.
pub(super) const USAGE: u8 = 2;
/// The service cannot be reached.
pub(super) const UNREACHABLE: u8 = 3;
/// There is no such thing.
pub(super) const NOT_FOUND: u8 = 4;
/// It is not in a state in which this can be done.
pub(super) const CONFLICT: u8 = 5;
/// What was given cannot be accepted.
pub(super) const BAD_INPUT: u8 = 65;
/// Not now; the same command may work later.
pub(super) const TEMPORARY: u8 = 75;
/// The token, or the user, may not do this.
pub(super) const NOT_PERMITTED: u8 = 77;
/// The settings are wrong.
pub(super) const BAD_CONFIGURATION: u8 = 78;

/// Every code with its meaning, as `--help` lists them.
pub(super) const MEANINGS: [(u8, &str); 10] = [
    (OK, "done"),
    (FAILED, "tried, and it did not work"),
    (USAGE, "the command line cannot be understood"),
    (UNREACHABLE, "the service cannot be reached"),
    (NOT_FOUND, "there is no such thing"),
    (CONFLICT, "not in a state in which this can be done"),
    (BAD_INPUT, "what was given cannot be accepted"),
    (TEMPORARY, "not now; the same command may work later"),
    (NOT_PERMITTED, "the token, or the user, may not do this"),
    (BAD_CONFIGURATION, "the settings are wrong"),
];
