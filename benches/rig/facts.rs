//! What the machine is, and what `/proc` says about a process.

use std::fs;
use std::io::{Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::median;

/// Where benches keep their files: a disk, not memory.
pub(crate) fn scratch() -> PathBuf {
    let place = std::env::var_os("TMPDIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    place.join("oncebox-bench")
}

/// One line about the machine.
pub(crate) fn line() -> String {
    let memory = value("/proc/meminfo", "MemTotal").unwrap_or(0) as f64 / 1024.0 / 1024.0;
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find(|line| line.starts_with("model name"));
    let model = model.and_then(|line| line.split(": ").nth(1)).unwrap_or("unknown processor");
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or("?");
    let place = scratch();
    fs::create_dir_all(&place).unwrap();
    let date = oncebox::base::clock::Clock::machine().wall().to_string();
    format!(
        "{cores} cores ({model}), {memory:.1} GiB, Linux {}, {} with an fsync of {:.2} ms, load {load}, {}",
        kernel.trim(),
        file_system(&place),
        fsync_ms(&place),
        date.get(..16).unwrap_or_default(),
    )
}

/// The type of the file system a directory is on.
fn file_system(place: &Path) -> String {
    let place = fs::canonicalize(place).unwrap();
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let mut best = (0, "unknown");
    for mount in mounts.lines() {
        let mut words = mount.split(' ').skip(1);
        let (at, kind) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if place.starts_with(at) && at.len() >= best.0 {
            best = (at.len(), kind);
        }
    }
    best.1.to_owned()
}

/// How long it takes to append 4 KiB and have them on the disk; the median of 60.
pub(crate) fn fsync_ms(place: &Path) -> f64 {
    let path = place.join("fsync");
    let mut file = fs::File::create(&path).unwrap();
    file.write_all(&vec![0; 1 << 20]).unwrap();
    file.sync_all().unwrap();
    file.rewind().unwrap();
    let spans: Vec<f64> = (0..60_u8)
        .map(|n| {
            let begun = Instant::now();
            file.write_all(&[n; 4096]).unwrap();
            file.sync_data().unwrap();
            begun.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    drop(fs::remove_file(path));
    median(&spans)
}

/// Processor time a process has used, user and system, in seconds. The kernel counts 100 ticks a second.
pub(crate) fn cpu_seconds(process: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let after_name = stat.rsplit(") ").next().unwrap_or_default();
    let ticks = |n: usize| after_name.split(' ').nth(n).and_then(|t| t.parse::<f64>().ok());
    (ticks(11).unwrap_or(0.0) + ticks(12).unwrap_or(0.0)) / 100.0
}

/// Bytes that a process has written into files, as the kernel charges it.
pub(crate) fn written(process: u32) -> f64 {
    value(&format!("/proc/{process}/io"), "write_bytes").unwrap_or(0) as f64
}

/// Bytes that were written to the device a directory is on, by whomever.
pub(crate) fn written_to_device(place: &Path) -> f64 {
    let device = fs::metadata(place).unwrap().dev();
    let (major, minor) = (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xfff00);
    let told =
        fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).unwrap_or_default();
    // The seventh number: sectors of 512 bytes.
    told.split_whitespace().nth(6).and_then(|n| n.parse().ok()).map_or(f64::NAN, |n: f64| n * 512.0)
}

/// Memory a process holds now, in MiB.
pub(crate) fn rss_mib(process: u32) -> f64 {
    value(&format!("/proc/{process}/status"), "VmRSS").unwrap_or(0) as f64 / 1024.0
}

/// Memory a process holds for itself now, in MiB: all but pages of files, which the kernel takes back when it needs them.
pub(crate) fn own_mib(process: u32) -> f64 {
    value(&format!("/proc/{process}/status"), "RssAnon").unwrap_or(0) as f64 / 1024.0
}

/// The most memory a process ever held, in MiB.
pub(crate) fn peak_mib(process: u32) -> f64 {
    value(&format!("/proc/{process}/status"), "VmHWM").unwrap_or(0) as f64 / 1024.0
}

fn value(file: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
