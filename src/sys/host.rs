//! The machine and this process: file systems, owners, processes that have a file open, clock synchronisation, and
//! the resources and signals of this process.

use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::{fs, thread};

use rustix::fs::statfs;
use rustix::process::{Resource, getrlimit};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level;

/// Network file systems by their magic numbers; SQLite's locks are not reliable on them.
const NETWORK: [(u64, &str); 6] = [
    (0x6969, "nfs"),
    (0xff53_4d42, "cifs"),
    (0xfe53_4d42, "smb2"),
    (0x0102_1997, "9p"),
    (0x6573_5546, "fuse"),
    (0x00c3_6400, "ceph"),
];

/// The network file system that a path is on; `None` if the path is on a local one.
pub fn network_file_system(path: &Path) -> io::Result<Option<&'static str>> {
    let magic = magic(path)?;
    Ok(NETWORK.into_iter().find(|(known, _)| *known == magic).map(|(_, name)| name))
}

/// Whether a path is on a file system in memory.
pub fn is_in_memory(path: &Path) -> io::Result<bool> {
    const TMPFS: u64 = 0x0102_1994;
    const RAMFS: u64 = 0x8584_58f6;
    Ok([TMPFS, RAMFS].contains(&magic(path)?))
}

/// The magic number of the file system that a path is on.
fn magic(path: &Path) -> io::Result<u64> {
    let kind = statfs(path)?.f_type;
    // The sign and the width of the number differ between machines; the magic numbers have 32 bits.
    let low = kind.to_le_bytes().first_chunk().copied().map(u32::from_le_bytes);
    Ok(low.unwrap_or_default().into())
}

/// The name of this machine for people: that in `/etc/hostname`.
pub fn machine_name() -> String {
    let written = fs::read_to_string("/etc/hostname").unwrap_or_default();
    let name =
        written.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
    name.unwrap_or("oncebox").to_owned()
}

/// Mode and owner of a file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Permission bits.
    pub mode: u32,
    /// The owner's number.
    pub owner: u32,
}

/// Mode and owner of a path; `None` if it cannot be read.
pub fn access(path: &Path) -> Option<Access> {
    let meta = fs::metadata(path).ok()?;
    Some(Access { mode: meta.mode() & 0o7777, owner: meta.uid() })
}

/// Whether an address is on a network that this machine is connected to by Ethernet or Wi-Fi: not behind a router, and not
/// behind a tunnel, and with a link. Of IPv4 only.
/// Source: `Documentation/networking` of Linux; `/proc/net/route`, `/sys/class/net/*/type`.
pub fn is_on_site(ip: IpAddr) -> bool {
    const ETHERNET: &str = "1";
    let IpAddr::V4(ip) = ip else { return false };
    let is_ethernet = |name: &str| {
        let kind = fs::read_to_string(format!("/sys/class/net/{name}/type"));
        kind.is_ok_and(|kind| kind.trim() == ETHERNET) && has_link(name)
    };
    let routes = fs::read_to_string("/proc/net/route").unwrap_or_default();
    routes.lines().filter_map(|line| interface_of(line, ip)).any(is_ethernet)
}

/// Whether a cable is in. A route stays when it is pulled, where nothing manages the interface.
fn has_link(interface: &str) -> bool {
    let carrier = fs::read_to_string(format!("/sys/class/net/{interface}/carrier"));
    carrier.ok().is_none_or(|carrier| carrier.trim() != "0")
}

/// The interface of a line of `/proc/net/route`, if an address is reached by that route without a router.
fn interface_of(line: &str, ip: Ipv4Addr) -> Option<&str> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let address = |n: usize| {
        let number = u32::from_str_radix(fields.get(n)?, 16).ok()?;
        Some(u32::from(Ipv4Addr::from(number.to_ne_bytes())))
    };
    let network = address(1)?;
    let router = address(2)?;
    let mask = address(7)?;
    let is_in = mask != 0 && u32::from(ip) & mask == network;
    fields.first().copied().filter(|_| is_in && router == 0)
}

/// Whether the machine has a default route over an interface with a link, for IPv4 or IPv6. Where that cannot be read:
/// yes, so that nothing is held for that.
/// Source: `Documentation/networking` of Linux; `/proc/net/route`, `/proc/net/ipv6_route`, `/sys/class/net/*/carrier`.
pub fn has_default_route() -> bool {
    const UP: u32 = 0x1;
    const REJECT: u32 = 0x200;
    let is_usable = |flags: Option<&str>| {
        let flags = flags.and_then(|flags| u32::from_str_radix(flags, 16).ok()).unwrap_or(0);
        flags & UP != 0 && flags & REJECT == 0
    };
    let v4 = fs::read_to_string("/proc/net/route");
    let v6 = fs::read_to_string("/proc/net/ipv6_route");
    if v4.is_err() && v6.is_err() {
        return true;
    }
    let fields = |line: &str| line.split_ascii_whitespace().map(str::to_owned).collect::<Vec<_>>();
    // Interface, destination, gateway, flags, …, mask is the eighth.
    let is_v4_default = |line: &str| {
        let fields = fields(line);
        let field = |n: usize| fields.get(n).map(String::as_str);
        field(1) == Some("00000000")
            && field(7) == Some("00000000")
            && is_usable(field(3))
            && field(0).is_none_or(has_link)
    };
    // Destination, its length, …, flags is the ninth, interface the last.
    let is_v6_default = |line: &str| {
        let fields = fields(line);
        let field = |n: usize| fields.get(n).map(String::as_str);
        field(0).is_some_and(|to| to.bytes().all(|byte| byte == b'0'))
            && field(1) == Some("00")
            && field(9) != Some("lo")
            && is_usable(field(8))
            && field(9).is_none_or(has_link)
    };
    v4.unwrap_or_default().lines().any(is_v4_default)
        || v6.unwrap_or_default().lines().any(is_v6_default)
}

/// Other processes that have a file open, with their programs. Processes that this user may not inspect are missing.
pub fn holders(path: &Path) -> Vec<(u32, PathBuf)> {
    let Ok(wanted) = fs::canonicalize(path) else { return Vec::new() };
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let ids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let holds = |id: &u32| {
        let open = fs::read_dir(format!("/proc/{id}/fd")).into_iter().flatten().flatten();
        open.filter_map(|entry| fs::read_link(entry.path()).ok()).any(|target| target == wanted)
    };
    ids.filter(|id| *id != std::process::id())
        .filter(holds)
        .map(|id| (id, fs::read_link(format!("/proc/{id}/exe")).unwrap_or_default()))
        .collect()
}

/// The SQLite library that a process has mapped. `None` if this user may not inspect the process, or if SQLite is
/// built into the program. The name does not contain the version.
pub fn sqlite_library(process: u32) -> Option<PathBuf> {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).ok()?;
    let paths = maps.lines().filter_map(|line| line.find('/').and_then(|at| line.get(at..)));
    let mut libraries = paths.filter(|path| path.contains("libsqlite3.so"));
    libraries.next().map(PathBuf::from)
}

/// Whether the kernel says that a time service keeps the wall clock right. A clock that is set by hand is not, until a
/// service has corrected it. `false` too where the kernel may not be asked.
/// Source: `adjtimex(2)`, status bit `STA_UNSYNC`.
pub fn is_clock_synchronised() -> bool {
    #[expect(unsafe_code, reason = "no safe binding asks the kernel for the state of its clock")]
    // SAFETY: the structure is plain numbers, for which zero is valid; `modes` 0 only reads.
    let (state, status) = unsafe {
        let mut clock: libc::timex = std::mem::zeroed();
        (libc::adjtimex(&raw mut clock), clock.status)
    };
    state >= 0 && status & libc::STA_UNSYNC == 0
}

/// Whether a known time service runs; `None` if none is found.
pub fn time_is_kept() -> Option<bool> {
    if Path::new("/run/systemd/timesync/synchronized").exists() {
        return Some(true);
    }
    if Path::new("/run/systemd/timesync").exists() {
        return Some(false);
    }
    let services = ["/run/chrony", "/run/ntpd.pid", "/run/openntpd"];
    services.iter().any(|service| Path::new(service).exists()).then_some(true)
}

/// Resources that a process uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Bytes of resident memory.
    pub resident_bytes: u64,
    /// Open file descriptors.
    pub descriptors: u64,
    /// Processor time so far, in milliseconds.
    pub cpu_ms: u64,
}

/// The resources that this process uses now; a part that cannot be read is zero.
pub fn size() -> Size {
    let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let resident = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0);
    let descriptors = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    Size {
        resident_bytes: resident.saturating_mul(page),
        // One of them is the directory that is being read.
        descriptors: u64::try_from(descriptors).unwrap_or(0).saturating_sub(1),
        cpu_ms: cpu_ms().unwrap_or(0),
    }
}

fn cpu_ms() -> Option<u64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name in brackets may contain spaces; the fields after it do not. utime and stime are fields 14 and 15.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    user.saturating_add(system).saturating_mul(1000).checked_div(per_second)
}

/// The limit of open file descriptors of this process; `None` if there is none.
pub fn descriptors_most() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// A flag that SIGINT and SIGTERM set, in place of ending the process.
pub fn stop_flag() -> io::Result<Arc<AtomicBool>> {
    let stopped = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stopped))?;
    }
    Ok(stopped)
}

/// The ids of the processes of this name that a process has started.
pub fn children(parent: u32, name: &str) -> Vec<u32> {
    let of = parent.to_string();
    let is_child = |id: &u32| {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        let fields = stat.split_once(&format!("({name}) ")).map(|(_, fields)| fields);
        fields.and_then(|fields| fields.split(' ').nth(1)) == Some(of.as_str())
    };
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_child).collect()
}

/// Whether a process has ended. Its parent may not have waited for it yet.
pub fn has_ended(process: u32) -> bool {
    // The state follows the name in brackets, which may contain spaces.
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, fields)| fields.starts_with('Z'))
}

/// Bytes of a process's writes to disks since it began; `None` where the system does not count them. After its end a process
/// is counted until its parent has waited for it.
/// Source: `proc_pid_io(5)`.
pub fn written_bytes(process: u32) -> Option<u64> {
    let io = fs::read_to_string(format!("/proc/{process}/io")).ok()?;
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: "))?;
    line.trim().parse().ok()
}

/// Sends this process SIGTERM when its standard input ends. The parent holds the other end of the pipe and never writes
/// to it: the system closes it when the parent ends, even after `kill -9`.
#[expect(
    clippy::disallowed_methods,
    reason = "this thread blocks in a read until the parent ends, so it cannot be joined"
)]
pub fn end_with_parent() -> io::Result<()> {
    let watched = || {
        let mut byte = [0];
        let mut input = io::stdin().lock();
        while input.read(&mut byte).is_ok_and(|length| length > 0) {}
        if let Err(error) = low_level::raise(SIGTERM) {
            tracing::error!(%error, "the parent has ended, but this process could not be stopped");
        }
    };
    thread::Builder::new().name("parent-watch".to_owned()).spawn(watched).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_memory_and_descriptors() {
        let size = size();
        assert!(size.resident_bytes > 100_000 && size.descriptors >= 3, "{size:?}");
        assert!(descriptors_most().is_none_or(|most| most > size.descriptors));
    }

    #[test]
    fn a_child_that_has_ended_is_known_until_its_parent_waits() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let id = child.id();
        assert!(!has_ended(id));
        child.kill().unwrap();
        let stop = crate::base::stop::Stop::new();
        while !has_ended(id) {
            stop.wait(std::time::Duration::from_millis(1));
        }
        assert!(written_bytes(id).is_some());
        child.wait().unwrap();
        assert!(has_ended(id) && written_bytes(id).is_none());
    }

    #[test]
    fn a_network_without_a_router_is_on_the_site() {
        let direct = "eth0\t0001A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0";
        let default = "eth0\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0";
        let routed = "eth0\t0000000A\t0101A8C0\t0003\t0\t0\t0\t000000FF\t0\t0\t0";
        for (line, ip, wanted) in [
            (direct, [192, 168, 1, 77], Some("eth0")),
            (direct, [192, 168, 2, 77], None),
            (default, [192, 168, 1, 77], None),
            (routed, [10, 1, 2, 3], None),
            ("Iface Destination Gateway", [10, 1, 2, 3], None),
        ] {
            assert_eq!(interface_of(line, ip.into()), wanted, "{line}");
        }
    }
}
