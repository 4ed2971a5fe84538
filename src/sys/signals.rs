//! Signals of this process: a flag for SIGINT and SIGTERM, and the end with the parent process.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level;

/// A flag that SIGINT and SIGTERM set, in place of ending the process.
pub fn stop_flag() -> io::Result<Arc<AtomicBool>> {
    let stopped = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stopped))?;
    }
    Ok(stopped)
}

/// Sends this process SIGTERM when its standard input ends. The parent holds the other end of the pipe and never writes
/// to it: the system closes it when the parent ends, even after `kill -9`.
#[expect(
    clippy::disallowed_methods,
    reason = "this thread blocks in a read until the parent ends, so it cannot be joined"
)]
pub fn end_with_parent() -> io::Result<()> {
    let watched = || {
        let mut byte = [0];
        let mut input = io::stdin().lock();
        while input.read(&mut byte).is_ok_and(|length| length > 0) {}
        if let Err(error) = low_level::raise(SIGTERM) {
            tracing::error!(%error, "the parent has ended, but this process could not be stopped");
        }
    };
    thread::Builder::new().name("parent-watch".to_owned()).spawn(watched).map(drop)
}
