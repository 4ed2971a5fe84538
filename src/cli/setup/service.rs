//! Brings changed settings into force: by systemd where the package's service runs, otherwise by the person.

use std::fs;
use std::io::IsTerminal;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::base::clock::Clock;
use crate::base::stop::Stop;
use crate::cli::input::{is_packaged, not_running};
use crate::cli::prelude::*;
use crate::cli::setup::Report;
use crate::cli::setup::settings_file::SettingsChange;
use crate::sys::files::directory_of;

/// How often the service is asked.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long it is waited for without a terminal. On a terminal a person ends it.
const PATIENCE: Duration = Duration::from_mins(1);
/// The drop-in of the socket that systemd holds open.
const SOCKET: &str = "/etc/systemd/system/oncebox.socket.d/setup.conf";

/// The running service, once it has the settings.
pub(super) fn with_settings(
    connect: &ConnectArgs,
    global: &GlobalArgs,
    change: &SettingsChange,
    report: &mut Report,
) -> Result<Remote, Failure> {
    let why = match running(connect, global, change) {
        Ok(remote) => return Ok(remote),
        Err(why) if !is_awaited(&why) => return Err(why),
        Err(why) => why,
    };
    if is_packaged(&change.settings) {
        let did = by_systemd(change)?;
        report.say(format_args!("Service: {did}"))?;
    } else if why.code == exit::CONFLICT {
        out::note("Restart the service now, so that it has these settings.");
    } else {
        out::note(
            "The service does not run. Start it in another terminal, in this directory: oncebox serve",
        );
    }
    wait(connect, global, change)
}

/// Asks until the service has the settings.
fn wait(
    connect: &ConnectArgs,
    global: &GlobalArgs,
    change: &SettingsChange,
) -> Result<Remote, Failure> {
    let clock = Clock::machine();
    let is_watched = std::io::stdin().is_terminal();
    let end = clock.monotonic().saturating_add(PATIENCE);
    loop {
        match running(connect, global, change) {
            Ok(remote) => return Ok(remote),
            Err(why) if !is_awaited(&why) => return Err(why),
            Err(why) if !is_watched && clock.monotonic() >= end => {
                let again = "The settings are written. Once the service runs with them, run the same command again.";
                return Err(Failure { code: exit::TEMPORARY, ..why }.and(again));
            }
            // A signal ends the process while it waits.
            Err(_not_yet) => Stop::new().wait(LOOK_EVERY),
        };
    }
}

/// Whether the service may have the settings in a moment.
fn is_awaited(why: &Failure) -> bool {
    matches!(why.code, exit::UNREACHABLE | exit::CONFLICT | exit::TEMPORARY)
}

/// The service if it answers, and has the settings. Fails with `CONFLICT` if it has others.
fn running(
    connect: &ConnectArgs,
    global: &GlobalArgs,
    change: &SettingsChange,
) -> Result<Remote, Failure> {
    let remote = connect.open(global)?;
    let shown = remote.get("/v1/settings")?;
    let sections = list(&shown, "sections").iter();
    let settings = sections.flat_map(|section| list(section, "settings"));
    let wanted = change.shown();
    for setting in settings {
        let key = text(setting, "key");
        let value = setting.get("value").unwrap_or(&Value::Null);
        if wanted.get(&key).is_some_and(|wanted| wanted != value) {
            return Err(Failure::new(exit::CONFLICT, format!("the service has {key} = {value}")));
        }
    }
    Ok(remote)
}

/// Starts, restarts or reloads the package's service. Returns what was done.
fn by_systemd(change: &SettingsChange) -> Result<&'static str, Failure> {
    if change.changes("listen.api") {
        let address = change.settings.listen.api;
        let text = format!(
            "# Written by `oncebox setup`.\n[Socket]\nListenStream=\nListenStream={address}\n"
        );
        let written = fs::create_dir_all(directory_of(Path::new(SOCKET)))
            .and_then(|()| fs::write(SOCKET, text));
        written.map_err(|error| Failure::failed(format!("{SOCKET}: {error}")))?;
        systemctl(&["daemon-reload"])?;
        systemctl(&["stop", "oncebox.socket", "oncebox.service"])?;
        systemctl(&["start", "oncebox.socket", "oncebox.service"])?;
        return Ok("restarted, and listens on the new address");
    }
    if not_running(&change.settings).is_some() {
        systemctl(&["start", "oncebox.socket", "oncebox.service"])?;
        return Ok("started");
    }
    // With no change now, the service waits with one of before.
    if change.needs_restart() || change.is_empty() {
        systemctl(&["restart", "oncebox.service"])?;
        return Ok("restarted");
    }
    systemctl(&["reload-or-restart", "oncebox.service"])?;
    Ok("has read its settings again")
}

fn systemctl(arguments: &[&str]) -> Result<(), Failure> {
    let command = format!("systemctl {}", arguments.join(" "));
    let ran = Command::new("systemctl").args(arguments).output();
    let ran = ran.map_err(|error| Failure::failed(format!("{command}: {error}")))?;
    if ran.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&ran.stderr).trim().to_owned();
    Err(Failure::failed(format!("{command}: {why}")).and("More: journalctl -u oncebox"))
}
