//! A simulator: the dispatcher's decisions and the judgement of attempts in worlds where things go wrong by a seed.
//!
//! `ONCEBOX_SIM_SEED` replays one seed and prints what happened in it; `ONCEBOX_SIM_SEEDS` says how many are tried.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::print_stdout,
    reason = "tests fail by panicking and own their threads"
)]

mod bug;
mod calls;
mod confirm;
mod dice;
mod endpoint;
mod family;
mod file;
mod plan;
mod real;
mod watch;
mod world;

use std::collections::BTreeSet;
use std::iter;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use crate::bug::Bug;
use crate::plan::OLD;
use crate::world::{Ended, World};

/// Seeds that are tried where nobody says how many.
const SEEDS: u32 = 2000;
/// Seeds that have found something once, beyond those that are always tried.
const FOUND: [u32; 6] = [OLD[0], OLD[1], OLD[2], OLD[3], 2157, 3757];
/// Seeds that are also played on a real file, beyond those of planted bugs.
const FILES: u32 = 24;
/// A planted bug is found within so many seeds.
const SEEDS_PER_BUG: u32 = 3000;
/// Lines of a report: the last of what happened.
const LINES: usize = 1000;

fn number(name: &str) -> Option<u32> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn run(seed: u32, bug: Option<Bug>) -> Ended {
    World::new(seed, bug, false).run()
}

/// Fails with everything that happened in a world.
fn report(seed: u32) {
    let ended = World::new(seed, None, true).run();
    let skipped = ended.trace.len().saturating_sub(LINES);
    let mut lines: Vec<&str> = ended.trace.first().map(String::as_str).into_iter().collect();
    lines.extend(ended.trace.iter().skip(skipped.max(1)).map(String::as_str));
    println!("{}", lines.join("\n"));
    let what = ended.violation.unwrap_or_else(|| "nothing is wrong".to_owned());
    panic!("ONCEBOX_SIM_SEED={seed}: {what}");
}

#[test]
fn nothing_is_lost_doubled_early_or_stuck_whatever_goes_wrong() {
    if let Some(seed) = number("ONCEBOX_SIM_SEED") {
        report(seed);
    }
    if let Some(seed) = FOUND.into_iter().find(|seed| run(*seed, None).violation.is_some()) {
        report(seed);
    }
    let (most, began) = (number("ONCEBOX_SIM_SEEDS").unwrap_or(SEEDS), Instant::now());
    let (next, failed) = (AtomicU32::new(0), AtomicU32::new(u32::MAX));
    let events = AtomicU64::new(0);
    thread::scope(|scope| {
        let work = || {
            loop {
                let seed = next.fetch_add(1, Ordering::SeqCst);
                if seed >= most.min(failed.load(Ordering::SeqCst)) {
                    return;
                }
                let ended = run(seed, None);
                events.fetch_add(ended.events, Ordering::SeqCst);
                if ended.violation.is_some() {
                    failed.fetch_min(seed, Ordering::SeqCst);
                }
            }
        };
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let failed = failed.into_inner();
    if failed < u32::MAX {
        report(failed);
    }
    let took = began.elapsed();
    println!(
        "{most} seeds, {events:?} events in {took:?}: {:.0} seeds/s",
        f64::from(most) / took.as_secs_f64()
    );
}

#[test]
fn a_real_file_says_the_same() {
    let most = number("ONCEBOX_SIM_FILES").unwrap_or(FILES);
    // Those that find a planted bug go where it would be.
    let found: BTreeSet<u32> = Bug::ALL.map(|(_, seed)| seed).into_iter().chain(0..most).collect();
    let seeds = number("ONCEBOX_SIM_SEED").map_or(found, |seed| BTreeSet::from([seed]));
    let seeds: Vec<u32> = seeds.into_iter().collect();
    let (next, began) = (AtomicUsize::new(0), Instant::now());
    let jobs = AtomicU64::new(0);
    thread::scope(|scope| {
        let work = || {
            loop {
                let n = next.fetch_add(1, Ordering::SeqCst);
                let Some(seed) = seeds.get(n).copied() else { return };
                let ended = World::beside_a_file(seed).run();
                jobs.fetch_add(ended.events, Ordering::SeqCst);
                assert_eq!(ended.violation, None, "seed {seed}");
            }
        };
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    println!("{} seeds beside a file, {jobs:?} events in {:?}", seeds.len(), began.elapsed());
}

#[test]
fn every_planted_bug_is_found() {
    for (bug, known) in Bug::ALL {
        let found = iter::once(known)
            .chain(0..SEEDS_PER_BUG)
            .find_map(|seed| run(seed, Some(bug)).violation.map(|what| (seed, what)));
        let Some((seed, what)) = found else {
            panic!("{bug:?} is not found in {SEEDS_PER_BUG} seeds");
        };
        println!("{bug:?}: seed {seed}: {}", what.chars().take(160).collect::<String>());
    }
}

#[test]
fn a_seed_says_what_happens() {
    for seed in 0..20 {
        let ended = [0, 1].map(|_| World::new(seed, None, true).run());
        assert_eq!(ended[0].trace, ended[1].trace);
    }
}
