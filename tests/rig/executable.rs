//! Programs that a test makes and runs.
//!
//! Another thread of the test program may start a process at any moment, which inherits every file that is open for
//! writing until its own program is loaded. A program that is open for writing cannot be run (`ETXTBSY`). So these are
//! written by a process of their own, and by none that other threads fork.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes a script that can be run.
#[track_caller]
pub(crate) fn write(path: &Path, script: &str) {
    let mut writing = Command::new("/bin/sh")
        .args(["-c", "cat >\"$0\" && chmod 755 \"$0\""])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    writing.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(writing.wait().unwrap().success(), "{} is not written", path.display());
}

/// Copies a program.
#[track_caller]
pub(crate) fn copy(from: &Path, to: &Path) {
    let copied = Command::new("/bin/cp").arg(from).arg(to).status().unwrap();
    assert!(copied.success(), "{} is not copied", from.display());
}
