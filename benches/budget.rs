//! What an event costs in instructions and in system calls (but for waits and the file), against the numbers of `benches/budget.toml`.
//!
//! Times differ from machine to machine, these counts hardly do. Events come one by one, slowly, so that each is settled
//! before the next comes and batches do not vary. Two runs of different length are compared: what a start and a stop
//! cost is no part of the numbers. A count that is 3 % over its number fails; so does one that is 6 % under it, for then the
//! number is to follow. Between machines and runs the middle of a count moves by 2 %.
//! `ONCEBOX_WRITE_DOCS=1` lowers the numbers to what was counted; it raises none.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::float_arithmetic,
    clippy::iter_over_hash_type,
    reason = "a bench owns its processes, ends by panicking, prints what it measures and reckons in floats"
)]

mod rig;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use rig::load::{Kind, Load};
use rig::server::{SECRET, Server, fresh_directory};
use rig::sink::Sink;

/// Events a second.
const RATE: u32 = 40;
/// Events of the short and of the long run.
const EVENTS: [u32; 2] = [20, 300];
/// Calls that are not counted: those that wait, and those that read and write the file. How many there are depends on
/// which thread is faster, and on how many events share a transaction.
const VARYING: [&str; 16] = [
    "clock_nanosleep",
    "epoll_pwait",
    "epoll_pwait2",
    "epoll_wait",
    "fcntl",
    "fdatasync",
    "fsync",
    "futex",
    "poll",
    "ppoll",
    "pread64",
    "pwrite64",
    "read",
    "sched_yield",
    "statfs",
    "statx",
];
/// How much of its number a count may be.
const ALLOWED: RangeInclusive<f64> = 0.94..=1.03;
/// How often it is counted until it is known to be off.
const TRIES: usize = 5;

const HEAD: &str = "\
# What 100 events cost, each sent alone, with the program built in either profile (cargo bench --bench budget, with
# --profile dev or without). A number falls with the program: ONCEBOX_WRITE_DOCS=1 writes it. Raise it in a commit of
# its own, with the reason and who is served.
";

type Table = BTreeMap<String, BTreeMap<String, u64>>;

/// A program that counts what another one does.
struct Counter {
    what: &'static str,
    command: fn(&Path) -> Vec<String>,
    /// Reads the total from what it wrote.
    total: fn(&str) -> Option<u64>,
}

const COUNTERS: [Counter; 2] = [
    Counter {
        what: "instructions",
        command: |out| {
            let out = format!("--callgrind-out-file={}", out.display());
            words(&["valgrind", "--quiet", "--tool=callgrind", &out])
        },
        total: |text| text.lines().find_map(|line| line.strip_prefix("totals: ")?.parse().ok()),
    },
    Counter {
        what: "system calls beside waits and the file",
        command: |out| words(&["strace", "-D", "-f", "-c", "-o", out.to_str().unwrap()]),
        total: |text| {
            // Share, seconds, microseconds a call, calls, errors if there were any, name.
            text.lines().find(|line| line.ends_with(" total"))?;
            let rows = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            let rows = rows.filter(|row| {
                row.last().is_some_and(|name| !VARYING.contains(name) && *name != "total")
            });
            Some(rows.filter_map(|row| row.get(3)?.parse::<u64>().ok()).sum())
        },
    },
];

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// What a whole run counts, from start to stop.
fn run(counter: &Counter, event_type: &str, events: u32) -> u64 {
    let data = fresh_directory(&format!("budget-{event_type}"));
    let out = data.join("count");
    let server = Server::start_under(&(counter.command)(&out), &data);
    let sink = Sink::start(SECRET);
    server.subscribe("wanting", &sink.url("/hook"), "outbox", "wanted");
    let kind = Kind::Publish { token: server.token.clone(), event_type: event_type.to_owned() };
    let span = Duration::from_secs(1) * events / RATE;
    let address = server.address.clone();
    let load = Load { address, kind, connections: 1, span, rate: Some(RATE) };
    let accepted = load.run().accepted;
    assert_eq!(accepted, u64::from(events), "the load was not what it should be");
    if event_type == "wanted" {
        sink.wait_for(accepted);
    }
    server.stop();
    // The counter may end after the program.
    let total = (0..200).find_map(|_| {
        rig::rest(Duration::from_millis(50));
        (counter.total)(&fs::read_to_string(&out).ok()?)
    });
    drop(fs::remove_dir_all(data));
    total.expect("the counter wrote no total")
}

/// What 100 events cost. A count that is off is made anew, and the one next to the number counts: other programs on the
/// machine move it by 3 %, too.
fn cost(counter: &Counter, event_type: &str, most: Option<u64>) -> f64 {
    let mut found = f64::NAN;
    for _ in 0..TRIES {
        let [short, long] = EVENTS.map(|events| run(counter, event_type, events));
        let each = 100.0 * long.saturating_sub(short) as f64 / f64::from(EVENTS[1] - EVENTS[0]);
        let Some(most) = most else { return each };
        let ratio = |count: f64| count / most as f64;
        let off = |count: f64| (ratio(count) - 1.0).abs();
        // Nothing is next to NaN, so the first count replaces it.
        found = if off(found) <= off(each) { found } else { each };
        if ALLOWED.contains(&ratio(found)) {
            break;
        }
    }
    found
}

fn page(table: &Table) -> String {
    let mut page = HEAD.to_owned();
    for (profile, numbers) in table {
        write!(page, "\n[{profile}]\n").unwrap();
        for (what, number) in numbers {
            writeln!(page, "\"{what}\" = {number}").unwrap();
        }
    }
    page
}

fn main() {
    let Some(_) = rig::begin() else { return };
    let profile = if cfg!(debug_assertions) { "dev" } else { "dist" };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/budget.toml");
    let mut table: Table = toml::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let budget = table.entry(profile.to_owned()).or_default();
    let mut faults = Vec::new();
    // Side by side: a run mostly waits for its next event.
    let stages = [("unwanted", "accepted"), ("wanted", "accepted and delivered")];
    let costs = std::thread::scope(|threads| {
        let counted = |(event_type, stage)| {
            let numbers = budget.clone();
            threads.spawn(move || {
                COUNTERS.map(|counter| {
                    let what = format!("{stage}: {}", counter.what);
                    let most = numbers.get(&what).copied();
                    (what, cost(&counter, event_type, most))
                })
            })
        };
        let counting = stages.map(counted);
        counting.map(|stage| stage.join().expect("a run failed")).concat()
    });
    for (what, each) in costs {
        let most = budget.entry(what.clone()).or_insert(each as u64);
        if std::env::var_os("ONCEBOX_WRITE_DOCS").is_some() {
            *most = (*most).min(each as u64);
        }
        let ratio = each / *most as f64;
        println!("{what}: {each:.0}, {ratio:.3} of {most} ({profile})");
        if !ALLOWED.contains(&ratio) {
            faults.push(what);
        }
    }
    if std::env::var_os("ONCEBOX_WRITE_DOCS").is_some() {
        fs::write(&path, page(&table)).unwrap();
    }
    assert!(
        faults.is_empty(),
        "3 % over or 6 % under its number in benches/budget.toml: {}",
        faults.join(", ")
    );
}
