//! The size and the limits of this process, as `/proc` tells them.

use std::fs;

use rustix::process::{Resource, getrlimit};

/// What a process takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Bytes of memory that are in use and not swapped out.
    pub resident_bytes: u64,
    /// Open file descriptors.
    pub descriptors: u64,
    /// Processor time so far, in milliseconds.
    pub cpu_ms: u64,
}

/// What this process takes now; a part that cannot be read is zero.
pub fn size() -> Size {
    let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let resident = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0);
    let descriptors = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    Size {
        resident_bytes: resident.saturating_mul(page),
        // The directory that is being read is open, too.
        descriptors: u64::try_from(descriptors).unwrap_or(0).saturating_sub(1),
        cpu_ms: cpu_ms().unwrap_or(0),
    }
}

fn cpu_ms() -> Option<u64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name in brackets may hold blanks; the fields after it do not. utime and stime are 14 and 15.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    user.saturating_add(system).saturating_mul(1000).checked_div(per_second)
}

/// How many file descriptors this process may have; `None`: as many as it likes.
pub fn descriptors_most() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_takes_something() {
        let size = size();
        assert!(size.resident_bytes > 100_000 && size.descriptors >= 3, "{size:?}");
        assert!(descriptors_most().is_none_or(|most| most > size.descriptors));
    }
}
