//! The machine: clock, limits; and how the service is reached: port, public address, proxy, unit.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::app::forward_proxy;
use crate::cli::doctor::{Finding, Installation, fail, ok, warn};
use crate::cli::input::{is_packaged, not_running};
use crate::config::Settings;
use crate::http::server;
use crate::model::health;
use crate::sys::files::is_closed;
use crate::sys::{files, host};

/// Where a unit may stand; the first one holds (systemd.unit(5)).
const UNITS: [&str; 3] = [
    "/etc/systemd/system/oncebox.service",
    "/lib/systemd/system/oncebox.service",
    "/usr/lib/systemd/system/oncebox.service",
];
/// The exposure of the unit as it is shipped, rounded up: 0 is none, 10 is all.
const MAX_EXPOSURE: f64 = 1.5;
/// How long the connection to the proxy is waited for.
const PROXY_TIMEOUT: Duration = Duration::from_secs(5);
/// A file from the future by more than this was written under another clock.
const FUTURE_MS: i64 = 60_000;

pub(super) fn host(here: &Installation) -> Vec<Finding> {
    vec![clock(here), kept(), descriptors(here)]
}

fn clock(here: &Installation) -> Finding {
    let wall = here.clock.wall();
    let newest = files::newest(here.settings.directory(), "");
    let ahead = newest.map_or(0, |at| at.ms().saturating_sub(wall.ms()));
    if ahead > FUTURE_MS {
        let detail = format!(
            "shows {wall}, but a file in the data directory was written {} s later: set the clock",
            ahead / 1000
        );
        return warn("clock", detail);
    }
    health::clock(wall, None).into()
}

fn kept() -> Finding {
    match host::time_is_kept() {
        Some(true) => ok("time_sync", "something keeps the clock right"),
        Some(false) => warn("time_sync", "the clock is not synchronised yet: timedatectl"),
        None => warn("time_sync", "nothing seems to keep the clock right: run NTP (timedatectl)"),
    }
}

fn descriptors(here: &Installation) -> Finding {
    let settings = &here.settings;
    let need = u64::from(settings.limits.connections)
        .saturating_add(u64::from(settings.delivery.deliverers).saturating_mul(2))
        .saturating_add(64);
    match host::descriptors_most() {
        Some(most) if most < need => {
            let detail = format!("{most} for this shell; {need} may be needed: raise LimitNOFILE");
            warn("descriptors", detail)
        }
        _ => ok("descriptors", format!("enough for {need}")),
    }
}

pub(super) fn look(here: &Installation) -> Vec<Finding> {
    let mut findings = vec![port(here)];
    // One that somebody has stopped is not broken.
    let verdict = |why: String| {
        let is_stopped = why.contains("says: inactive");
        if is_stopped { warn("service", why) } else { fail("service", why) }
    };
    findings.extend(not_running(&here.settings).map(verdict));
    findings.extend(socket(&here.settings));
    findings.push(addresses(here));
    findings.extend(public_url(here));
    findings.extend(proxy(&here.settings));
    findings.extend(unit());
    findings
}

/// Whether the forward proxy can be connected to.
fn proxy(settings: &Settings) -> Option<Finding> {
    let proxy = match forward_proxy(&settings.delivery) {
        Ok(proxy) => proxy?,
        Err(error) => return Some(fail("proxy", error.to_string())),
    };
    let rules = &proxy.rules;
    let except: Vec<String> = rules.except.iter().map(ToString::to_string).collect();
    let direct = match except.as_slice() {
        [] => "addresses that are not public".to_owned(),
        some => format!("addresses that are not public, {}", some.join(", ")),
    };
    Some(match proxy.connect(PROXY_TIMEOUT) {
        Ok(()) => ok("proxy", format!("{rules} can be connected to; without it: {direct}")),
        Err(error) => fail(
            "proxy",
            format!("{rules} cannot be connected to: {error}; correct delivery.proxy"),
        ),
    })
}

/// What systemd thinks of the unit, where there are both.
fn unit() -> Option<Finding> {
    let path = UNITS.into_iter().find(|path| Path::new(path).exists())?;
    let arguments = ["security", "--offline=true", "--no-pager", path];
    let asked = Command::new("systemd-analyze").args(arguments).output().ok()?;
    Some(judge(path, &String::from_utf8_lossy(&asked.stdout)))
}

/// Reads `→ Overall exposure level for oncebox.service: 1.1 OK`.
fn judge(path: &str, report: &str) -> Finding {
    let last = report.lines().rfind(|line| line.contains("exposure level"));
    let words = last.and_then(|line| line.rsplit_once(": ")).map(|(_, words)| words);
    let level = words.and_then(|words| words.split_whitespace().next()?.parse::<f64>().ok());
    match level {
        Some(level) if level <= MAX_EXPOSURE => {
            ok("unit", format!("{path} is exposed {level} of 10"))
        }
        Some(level) => warn(
            "unit",
            format!(
                "{path} is exposed {level} of 10, more than it is shipped with: see systemd-analyze security"
            ),
        ),
        None => {
            warn("unit", format!("systemd-analyze says nothing of {path}: look at it yourself"))
        }
    }
}

fn port(here: &Installation) -> Finding {
    let address = here.settings.listen.api;
    if here.served {
        return ok("port", format!("a service runs here; it is set to {address}"));
    }
    match server::bind(address) {
        Ok(_free) => ok("port", format!("{address} is free")),
        Err(error) if error.kind() == ErrorKind::AddrInUse && socket_is_open() => {
            ok("port", format!("oncebox.socket listens there; it is set to {address}"))
        }
        // Whether it is our service, only the lock in the directory tells.
        Err(error) if is_closed(here.settings.directory()) => {
            warn("port", format!("{address}: {error}; perhaps the service listens there"))
        }
        Err(error) => fail("port", format!("{address} cannot be listened on: {error}")),
    }
}

/// What systemd does with the package's socket.
fn socket(settings: &Settings) -> Option<Finding> {
    let show = ["show", "--property=ActiveState,Listen,FreeBind", "oncebox.socket"];
    let asked =
        is_packaged(settings).then(|| Command::new("systemctl").args(show).output().ok())??;
    judge_socket(settings.listen.api, &String::from_utf8_lossy(&asked.stdout))
}

/// Reads `systemctl show`.
fn judge_socket(api: SocketAddr, shown: &str) -> Option<Finding> {
    const AGAIN: &str = "systemctl stop oncebox.socket oncebox.service && systemctl start oncebox.socket oncebox.service";
    let has = |line: &str| shown.lines().any(|shown| shown == line);
    let listens = shown.lines().find_map(|line| line.strip_prefix("Listen="))?;
    let listens = listens.trim_end_matches(" (Stream)");
    let address: Option<SocketAddr> = listens.parse().ok();
    let is_everywhere = |ip: IpAddr| ip.is_loopback() || ip.is_unspecified();
    Some(if !has("ActiveState=active") {
        let detail = format!(
            "systemd does not hold {listens}, so a restart refuses connections; it tries again when the service \
             restarts, or now: {AGAIN}"
        );
        warn("socket", detail)
    } else if address != Some(api) {
        let detail = format!(
            "systemd listens on {listens}, whatever listen.api ({api}) says: set both to the same address, then: {AGAIN}"
        );
        warn("socket", detail)
    } else if has("FreeBind=no") && !is_everywhere(api.ip()) {
        let detail = format!(
            "at boot systemd cannot listen on {listens} before the machine has that address: add FreeBind=yes \
             (systemctl edit oncebox.socket)"
        );
        warn("socket", detail)
    } else {
        ok("socket", format!("systemd holds {listens}, also while the service restarts"))
    })
}

/// Whether systemd holds the socket, as it does while the service is stopped.
fn socket_is_open() -> bool {
    let asked = Command::new("systemctl").args(["is-active", "--quiet", "oncebox.socket"]).status();
    asked.is_ok_and(|status| status.success())
}

fn addresses(here: &Installation) -> Finding {
    let listen = &here.settings.listen;
    let intake = here.settings.intake();
    if listen.api.ip().is_loopback() {
        return ok("addresses", format!("API on {}, intake on {intake}", listen.api));
    }
    let detail = format!(
        "the API listens on {}, without TLS: put a proxy before it, or give the intake its own address \
         (listen.intake)",
        listen.api
    );
    warn("addresses", detail)
}

fn public_url(here: &Installation) -> Vec<Finding> {
    let listen = &here.settings.listen;
    let Some(url) = &listen.public_url else {
        return vec![ok("public_url", "not set: intake is reached under its own address")];
    };
    let well_formed = url.parse::<http::Uri>().is_ok_and(|uri| {
        uri.scheme_str() == Some("https") && uri.host().is_some_and(|host| !host.is_empty())
    });
    let shape = if well_formed {
        ok("public_url", url.clone())
    } else {
        fail("public_url", format!("{url:?} is not https:// and a host: providers refuse it"))
    };
    let proxies = if listen.trusted_proxies.is_empty() {
        let detail = "a public URL means a proxy, but none is trusted: every client has the proxy's \
                      address (listen.trusted_proxies)";
        warn("proxies", detail)
    } else {
        ok("proxies", format!("{} trusted", listen.trusted_proxies.len()))
    };
    vec![shape, proxies]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::health::Level;

    #[test]
    fn a_socket_is_judged_by_what_systemd_will_do() {
        let judged = |api: &str, state: &str, free: &str| {
            let shown =
                format!("Listen=192.0.2.7:8710 (Stream)\nActiveState={state}\nFreeBind={free}\n");
            let found = judge_socket(api.parse().unwrap(), &shown).unwrap();
            (found.check.level, found.check.detail)
        };
        assert_eq!(judged("192.0.2.7:8710", "active", "yes").0, Level::Ok);
        let (level, detail) = judged("192.0.2.7:8710", "active", "no");
        assert!(level == Level::Warn && detail.contains("FreeBind=yes"), "{detail}");
        let (level, detail) = judged("127.0.0.1:8710", "active", "yes");
        assert!(level == Level::Warn && detail.contains("listen.api (127.0.0.1:8710)"), "{detail}");
        let (level, detail) = judged("192.0.2.7:8710", "failed", "yes");
        assert!(level == Level::Warn && detail.contains("refuses connections"), "{detail}");
        assert!(judge_socket("127.0.0.1:1".parse().unwrap(), "").is_none());
    }

    #[test]
    fn a_unit_is_judged_by_its_exposure() {
        let judged = |report: &str| judge("oncebox.service", report).check.level;
        let line = "→ Overall exposure level for oncebox.service: ";
        assert_eq!(judged(&format!("NAME DESCRIPTION EXPOSURE\n{line}1.1 OK 🙂\n")), Level::Ok);
        assert_eq!(judged(&format!("{line}9.2 UNSAFE 😨\n")), Level::Warn);
        assert_eq!(judged(""), Level::Warn);
    }
}
