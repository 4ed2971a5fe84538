//! A simulator: the dispatcher's decisions and the store's transactions in worlds where things go wrong by a seed.
//!
//! `ONCEBOX_SIM_SEED` replays one seed and prints what happened in it; `ONCEBOX_SIM_SEEDS` says how many are tried;
//! `ONCEBOX_SIM_BUG` names the one planted bug for which a seed is looked for.

mod bug;
mod dice;
mod endpoint;
mod file;
mod jobs;
mod plan;
mod watch;
mod world;

use std::iter;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use crate::sim::bug::Bug;
use crate::sim::file::Disk;
use crate::sim::world::{Ended, World};

/// Seeds that are tried where nobody says how many.
const SEEDS: u32 = 60;
/// Lines of a report: the last of what happened.
const LINES: usize = 1000;

fn number(name: &str) -> Option<u32> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn seeds() -> u32 {
    number("ONCEBOX_SIM_SEEDS").unwrap_or(SEEDS)
}

fn run(disk: &Disk, seed: u32, bug: Option<Bug>) -> Ended {
    World::new(disk, seed, bug, false).run()
}

/// Fails with everything that happened in a world.
fn report(seed: u32) {
    let ended = World::new(&Disk::new(), seed, None, true).run();
    let (plan, events) = ended.trace.split_first().unwrap();
    println!("{plan}\n{}", events[events.len().saturating_sub(LINES)..].join("\n"));
    let what = ended.violation.unwrap_or_else(|| "nothing is wrong".to_owned());
    panic!("ONCEBOX_SIM_SEED={seed}: {what}");
}

#[test]
fn nothing_is_lost_doubled_early_or_stuck_whatever_goes_wrong() {
    if let Some(seed) = number("ONCEBOX_SIM_SEED") {
        report(seed);
    }
    // The first seed that fails, or else the number of seeds.
    let (next, failed) = (AtomicU32::new(0), AtomicU32::new(seeds()));
    let (events, began) = (AtomicU64::new(0), Instant::now());
    let work = || {
        let disk = Disk::new();
        loop {
            let seed = next.fetch_add(1, Ordering::SeqCst);
            if seed >= failed.load(Ordering::SeqCst) {
                return;
            }
            let ended = run(&disk, seed, None);
            events.fetch_add(ended.events, Ordering::SeqCst);
            if ended.violation.is_some() {
                failed.fetch_min(seed, Ordering::SeqCst);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let failed = failed.into_inner();
    if failed < seeds() {
        report(failed);
    }
    println!("{failed} seeds, {events:?} events in {:?}", began.elapsed());
}

#[test]
fn every_planted_bug_is_found() {
    let disk = Disk::new();
    let wanted = std::env::var("ONCEBOX_SIM_BUG").ok();
    for (bug, known) in Bug::ALL {
        if wanted.as_ref().is_some_and(|wanted| *wanted != format!("{bug:?}")) {
            continue;
        }
        let found = iter::once(known)
            .chain(0..seeds())
            .find_map(|seed| run(&disk, seed, Some(bug)).violation.map(|what| (seed, what)));
        let Some((seed, what)) = found else {
            panic!(
                "{bug:?} is not found: look with more ONCEBOX_SIM_SEEDS for a seed that finds it"
            );
        };
        println!("{bug:?}: seed {seed}: {}", what.chars().take(160).collect::<String>());
        assert_eq!(run(&disk, seed, None).violation, None, "seed {seed} without {bug:?}");
    }
}

#[test]
fn a_seed_says_what_happens() {
    let disk = Disk::new();
    for seed in 0..10 {
        let ended = [0, 1].map(|_| World::new(&disk, seed, None, true).run());
        assert_eq!(ended[0].trace, ended[1].trace);
    }
}
