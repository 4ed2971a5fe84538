//! Ports for programs that have to be told theirs.

use std::net::TcpListener;
use std::process;
use std::sync::atomic::{AtomicU16, Ordering};

/// Below those that Linux gives by itself (32,768 to 60,999): whoever asks for any port, or connects, is never given one of them.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// How many were tried by this process.
static TRIED: AtomicU16 = AtomicU16::new(0);

/// A port that nobody uses now. It stays free while the program of the test is stopped.
pub(crate) fn free_port() -> u16 {
    let ports = u32::from(COUNT);
    // Two test programs that run side by side begin at different places.
    let begin = process::id().wrapping_mul(97) % ports;
    for _ in 0..COUNT {
        let tried = u32::from(TRIED.fetch_add(1, Ordering::Relaxed));
        let port = FIRST + u16::try_from((begin + tried) % ports).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("each of {COUNT} ports from {FIRST} is used");
}
