//! What all benches share: the server process, a load generator and a receiver as processes of their
//! own, the bare database as a floor, and readings from `/proc`.
//!
//! A bench binary plays three parts. Started by cargo it measures; started by itself with
//! [`ROLE`] set it is the load generator or the receiver, so that the processor time of the server
//! can be read from `/proc` apart from theirs.

#![allow(dead_code, reason = "each bench uses its part of the rig")]

pub(crate) mod cost;
pub(crate) mod epoll;
pub(crate) mod facts;
pub(crate) mod floor;
pub(crate) mod history;
pub(crate) mod load;
pub(crate) mod plot;
#[path = "../../tests/rig/port.rs"]
pub(crate) mod port;
pub(crate) mod report;
pub(crate) mod server;
pub(crate) mod sink;
pub(crate) mod wire;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The variable that makes a bench binary play another part.
const ROLE: &str = "ONCEBOX_RIG_ROLE";
/// What the other part is told to do, as JSON.
const PLAN: &str = "ONCEBOX_RIG_PLAN";

/// How a bench was called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// A few seconds: only to see that it works.
    pub(crate) quick: bool,
    /// With the parts that take minutes and gigabytes.
    pub(crate) full: bool,
    /// One JSON object instead of tables.
    pub(crate) json: bool,
}

impl Options {
    /// One of two values, by whether it is a quick run.
    pub(crate) fn pick<T>(self, quick: T, usual: T) -> T {
        if self.quick { quick } else { usual }
    }
}

/// Whether a section is to be measured: all are, or the one that `--only NAME` names.
pub(crate) fn is_wanted(name: &str) -> bool {
    let mut words = std::env::args().skip_while(|word| word != "--only").skip(1);
    words.next().is_none_or(|only| only == name)
}

/// Plays another part if asked to, and then returns nothing; else tells how the bench was called.
pub(crate) fn begin() -> Option<Options> {
    if let Ok(role) = std::env::var(ROLE) {
        let plan = std::env::var(PLAN).unwrap_or_default();
        match role.as_str() {
            "load" => load::play(&plan),
            _ => sink::play(&plan),
        }
        return None;
    }
    let has = |flag: &str| std::env::args().any(|arg| arg == flag);
    if !has("--bench") {
        println!("this is measured by `cargo bench`, not by `cargo test`");
        return None;
    }
    Some(Options { quick: has("--quick"), full: has("--full"), json: has("--json") })
}

/// Starts this binary in another part.
fn play_as(role: &str, plan: &serde_json::Value) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .env(ROLE, role)
        .env(PLAN, plan.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Microseconds since 1970: the clock that all parts share.
pub(crate) fn now_us() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap()
}

/// Waits.
pub(crate) fn rest(span: Duration) {
    std::thread::sleep(span);
}

/// The value below which that share of the sorted values lies; 0 of none.
pub(crate) fn quantile(sorted: &[u32], share: f64) -> f64 {
    if sorted.is_empty() {
        return 0.0;
    }
    let at = (sorted.len() as f64 * share) as usize;
    f64::from(sorted[at.min(sorted.len() - 1)])
}

/// The middle value.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}
