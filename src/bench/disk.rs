//! The disk alone: whether there is room, and how long a sync takes.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::bench::time::{RunLimits, per_second};
use crate::demo::site::Error;
use crate::sys::disk::Gauge;
use crate::sys::host;

/// Free room before a run, which takes a good third of it.
const ROOM: u64 = 512 << 20;
/// Bytes of each write: a page of most disks.
const WRITTEN: [u8; 4096] = [0x5a; 4096];
/// Pages of the file that is written: 4 MiB, as a log has that is emptied in time.
const PAGES: u64 = 1_024;
/// Most syncs: they write 8 MiB.
const MAX_SYNCS: usize = 2_000;

/// How long syncs took, one after the other.
#[derive(Clone, Debug, Serialize)]
pub struct Syncs {
    /// How many were done.
    pub count: usize,
    /// The middle one, in microseconds.
    pub median_us: u64,
    /// One in a hundred takes longer, in microseconds.
    pub p99_us: u64,
    /// How many fit into a second.
    pub per_second: u64,
    /// What keeps the directory from being a disk that a service should use.
    pub unfit: Option<&'static str>,
}

/// Fails unless the disk of a directory has room for a run.
pub(super) fn check_room(gauge: &Gauge, dir: &Path) -> Result<(), Error> {
    let space = gauge.look(dir).map_err(|error| {
        let dir = dir.display();
        Error::Failed(format!("{dir}: {error}; give --dir a directory that exists"))
    })?;
    if space.free >= ROOM {
        return Ok(());
    }
    let free = space.free >> 20;
    let dir = dir.display();
    Err(Error::Failed(format!(
        "the disk of {dir} has {free} MB free, and a run asks for 512 MB: make room, or give --dir another disk"
    )))
}

/// Writes and syncs, as the service does with its log: page after page of a file that does not grow. Where it grows, a file system
/// writes its own journal with each sync, which takes several times as long.
pub(super) fn syncs(limits: &RunLimits<'_>, dir: &Path) -> Result<Syncs, Error> {
    let path = dir.join("syncs");
    let mut open = OpenOptions::new();
    let file = open.write(true).create_new(true).mode(0o600).open(&path);
    let mut file = file.map_err(Error::file(&path))?;
    for _ in 0..PAGES {
        file.write_all(&WRITTEN).map_err(Error::file(&path))?;
    }
    file.sync_all().map_err(Error::file(&path))?;
    let mut spans = Vec::new();
    let mut offsets = (0..PAGES).map(|page| page.saturating_mul(4096)).cycle();
    let begun = limits.clock.monotonic();
    while spans.len() < MAX_SYNCS && limits.since(begun) < limits.span {
        limits.check()?;
        let offset = offsets.next().unwrap_or(0);
        let before = limits.clock.monotonic();
        let synced = file.write_all_at(&WRITTEN, offset).and_then(|()| file.sync_data());
        synced.map_err(Error::file(&path))?;
        spans.push(limits.since(before));
    }
    let took = limits.since(begun);
    drop(file);
    std::fs::remove_file(&path).map_err(Error::file(&path))?;
    Ok(Syncs { unfit: unfit(dir)?, ..summed(spans, took) })
}

fn unfit(dir: &Path) -> Result<Option<&'static str>, Error> {
    if host::is_in_memory(dir).map_err(Error::file(dir))? {
        return Ok(Some("memory"));
    }
    host::network_file_system(dir).map_err(Error::file(dir))
}

fn summed(mut spans: Vec<Duration>, took: Duration) -> Syncs {
    spans.sort_unstable();
    let count = spans.len();
    let at = |index: usize| {
        let span = spans.get(index).copied().unwrap_or_default();
        u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
    };
    Syncs {
        count,
        median_us: at(count / 2),
        p99_us: at(count.saturating_mul(99) / 100),
        per_second: per_second(u64::try_from(count).unwrap_or(0), took),
        unfit: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::disk::Space;

    #[test]
    fn a_disk_with_less_than_512_mb_is_refused_with_what_it_has() {
        let here = Path::new("/srv");
        let with = |free: u64| Gauge::new(move |_| Ok(Space { total: 1 << 40, free }));
        assert!(check_room(&with(512 << 20), here).is_ok());
        let refused = check_room(&with(511 << 20), here).unwrap_err().to_string();
        assert!(refused.contains("/srv has 511 MB free") && refused.contains("--dir"), "{refused}");
    }

    #[test]
    fn the_slowest_of_a_hundred_syncs_is_beyond_the_p99_of_two_hundred() {
        let spans = (1..=200).rev().map(Duration::from_millis).collect();
        let syncs = summed(spans, Duration::from_secs(20));
        assert_eq!((syncs.median_us, syncs.p99_us), (101_000, 199_000));
        assert_eq!(syncs.per_second, 10);
        let none = summed(Vec::new(), Duration::ZERO);
        assert_eq!((none.median_us, none.per_second), (0, 0));
    }
}
