//! Starts, kills and restarts the processes of a run, and never leaves one behind.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use crate::base::clock::Clock;
use crate::base::stop::Stop;
use crate::demo::process;
use crate::demo::site::{Error, LOGISTICS_READY, Role, Site, loopback_client};
use crate::http::client::{Call, Client};

/// How long an orderly stop may take.
const MAX_STOP: Duration = Duration::from_secs(10);
/// How often a stopping process is checked.
const POLL_EVERY: Duration = Duration::from_millis(10);
/// Time limit of a readiness check.
const READY_TIMEOUT: Duration = Duration::from_secs(1);

/// The processes of one run. Dropping it kills them. If this process itself is killed, they end by
/// [`crate::sys::host::end_with_parent`].
pub(super) struct Children {
    site: Site,
    program: PathBuf,
    client: Client,
    clock: Clock,
    running: BTreeMap<Role, Child>,
    lives: BTreeMap<Role, u32>,
}

impl Children {
    pub(super) fn new(site: &Site, clock: &Clock) -> Result<Self, Error> {
        Ok(Self {
            site: site.clone(),
            program: std::env::current_exe()
                .map_err(Error::about("the running program cannot be found"))?,
            client: loopback_client()?,
            clock: clock.clone(),
            running: BTreeMap::new(),
            lives: BTreeMap::new(),
        })
    }

    /// The log file of a process.
    pub(super) fn log(&self, role: Role) -> PathBuf {
        self.site.dir.join(format!("{}.log", role.word()))
    }

    pub(super) fn start(&mut self, role: Role) -> Result<(), Error> {
        let path = self.log(role);
        let log = OpenOptions::new().create(true).append(true).open(&path);
        let log = log.map_err(Error::file(&path))?;
        let life = self.lives.entry(role).or_default();
        let mut command = match role {
            Role::Oncebox | Role::Downstream => {
                process::serve(&self.program, &self.site.settings(role))
            }
            Role::Finance | Role::Logistics => {
                let mut command = Command::new(&self.program);
                command.arg("demo-part").arg(role.word());
                command.arg("--site").arg(self.site.file());
                command.arg("--life").arg(life.to_string());
                process::apart(&mut command);
                command
            }
        };
        *life = life.saturating_add(1);
        command.stdout(log.try_clone().map_err(Error::file(&path))?).stderr(log);
        let child = command.spawn().map_err(Error::about(role))?;
        self.running.insert(role, child);
        Ok(())
    }

    /// `kill -9`.
    pub(super) fn kill(&mut self, role: Role) -> Result<(), Error> {
        if let Some(mut child) = self.running.remove(&role) {
            let killed = child.kill().and_then(|()| child.wait());
            killed.map_err(Error::about(role))?;
        }
        Ok(())
    }

    /// A process that has ended by itself.
    pub(super) fn ended(&mut self) -> Option<(Role, ExitStatus)> {
        self.running
            .iter_mut()
            .find_map(|(role, child)| child.try_wait().ok().flatten().map(|status| (*role, status)))
    }

    /// Whether a process is ready. Finance does not listen, so it is ready when it runs. An Oncebox has written its first
    /// token, else it is another program that answers at its port.
    pub(super) fn is_ready(&self, role: Role) -> bool {
        let url = match role {
            Role::Finance => return true,
            Role::Oncebox => format!("http://{}/readyz", self.site.oncebox),
            Role::Downstream => format!("http://{}/readyz", self.site.downstream),
            Role::Logistics => format!("http://{}{}", self.site.logistics, LOGISTICS_READY),
        };
        if role.is_oncebox() && !self.site.admin_token(role).exists() {
            return false;
        }
        let call = Call { method: "GET", url: &url, timeout: READY_TIMEOUT, ..Call::default() };
        self.client.call(&call).is_ok_and(|answer| (200..300).contains(&answer.status))
    }

    /// Stops all processes in order, the Onceboxes last, so that their files are complete.
    pub(super) fn stop(&mut self) {
        for role in [Role::Finance, Role::Logistics, Role::Oncebox, Role::Downstream] {
            let Some(mut child) = self.running.remove(&role) else { continue };
            drop(child.stdin.take());
            if !self.has_stopped(&mut child) {
                tracing::warn!(%role, "did not stop in time, so it is killed");
                end(&mut child);
            }
        }
    }

    fn has_stopped(&self, child: &mut Child) -> bool {
        let started = self.clock.monotonic();
        let never = Stop::new();
        while self.clock.monotonic().saturating_sub(started) < MAX_STOP {
            if matches!(child.try_wait(), Ok(Some(_)) | Err(_)) {
                return true;
            }
            never.wait(POLL_EVERY);
        }
        false
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        self.running.values_mut().for_each(end);
    }
}

/// Kills a process and waits for it. Both fail only if it has already ended.
fn end(child: &mut Child) {
    let ended: io::Result<ExitStatus> = child.kill().and_then(|()| child.wait());
    drop(ended);
}
