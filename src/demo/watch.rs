//! The end of a child when its parent is gone.
//!
//! The parent holds the other end of the child's standard input and never writes to it. However the
//! parent ends, by `kill -9` too, the system closes that end, and the child sees it.

use std::io::{self, Read};
use std::thread;

use signal_hook::consts::SIGTERM;
use signal_hook::low_level;

/// Watches standard input, and asks this process to end when it ends.
///
/// # Errors
/// No thread could be started.
#[expect(
    clippy::disallowed_methods,
    reason = "the one thread of the demo: it sleeps in a read that only the parent's end can wake, so \
              nothing could join it"
)]
pub fn end_with_parent() -> io::Result<()> {
    let watched = || {
        let mut byte = [0];
        let mut input = io::stdin().lock();
        while input.read(&mut byte).is_ok_and(|length| length > 0) {}
        if let Err(error) = low_level::raise(SIGTERM) {
            tracing::error!(%error, "the parent is gone, but this process could not be ended");
        }
    };
    thread::Builder::new().name("parent-watch".to_owned()).spawn(watched).map(drop)
}
