//! The machine in a few lines: system, processors, memory, disk, files, unit. Not its name.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

use crate::config::Settings;
use crate::model::health::bytes;
use crate::sys::disk::Gauge;
use crate::sys::{host, user};

/// What is asked of systemd.
const UNIT: [&str; 3] =
    ["show", "--property=ActiveState,SubState,StatusText,NRestarts,MemoryPeak", "oncebox.service"];

pub(super) fn described(settings: &Settings) -> String {
    let directory = settings.directory();
    let processors = thread::available_parallelism().map_or(0, usize::from);
    let mut lines = vec![
        format!("system      {}", system()),
        format!("kernel      {}", first_line("/proc/sys/kernel/osrelease")),
        format!("processors  {processors}"),
        format!("memory      {}", memory()),
        format!("user        {}", if user::id() == 0 { "root" } else { "not root" }),
        format!("data        {}", directory.display()),
        format!("disk        {}", disk(directory)),
    ];
    lines.extend(files(directory));
    lines.extend(unit());
    lines.join("\n")
}

fn first_line(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().next().unwrap_or("unknown").trim().to_owned()
}

/// The name of the distribution. Source: os-release(5).
fn system() -> String {
    let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.map_or_else(|| "unknown".to_owned(), |name| name.trim_matches('"').to_owned())
}

/// The memory of the machine and what of it can be had. Source: `proc_meminfo(5)`.
fn memory() -> String {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        let kilobytes: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
        Some(bytes(kilobytes.saturating_mul(1024)))
    };
    match (field("MemTotal:"), field("MemAvailable:")) {
        (Some(total), Some(available)) => format!("{total}, {available} available"),
        _ => "unknown".to_owned(),
    }
}

fn disk(directory: &Path) -> String {
    let kind = match host::network_file_system(directory) {
        Ok(Some(kind)) => format!(", on {kind}"),
        Ok(None) | Err(_) => String::new(),
    };
    match Gauge::machine().look(directory) {
        Ok(space) => format!("{} of {} free{kind}", bytes(space.free), bytes(space.total)),
        Err(error) => format!("unknown: {error}"),
    }
}

/// The files of the data directory with their sizes.
fn files(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else {
        return vec!["files       cannot be listed by this user".to_owned()];
    };
    let mut found: Vec<(String, u64)> = entries
        .flatten()
        .filter_map(|entry| {
            let meta = entry.metadata().ok().filter(fs::Metadata::is_file)?;
            Some((entry.file_name().to_string_lossy().into_owned(), meta.len()))
        })
        .collect();
    found.sort();
    found.into_iter().map(|(name, size)| format!("file        {name} {}", bytes(size))).collect()
}

/// What systemd says of the service, where there is one.
fn unit() -> Vec<String> {
    let Ok(shown) = Command::new("systemctl").args(UNIT).output() else { return Vec::new() };
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    text.lines().filter(|line| !line.is_empty()).map(|line| format!("unit        {line}")).collect()
}
