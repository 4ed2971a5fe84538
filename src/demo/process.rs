//! The process of an Oncebox with a settings file of its own: start, wait for an answer, stop in order.

use std::fs::{self, OpenOptions};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::app::data_directory::TOKEN_FILE;
use crate::base::clock::Clock;
use crate::base::stop::Stop;
use crate::config::Environment;
use crate::demo::setup::Api;
use crate::demo::site::Error;

/// How long it may take to be ready, and to stop.
const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);

/// An Oncebox in a directory. Dropped, it is killed.
pub struct OnceboxProcess {
    program: PathBuf,
    dir: PathBuf,
    address: SocketAddr,
    clock: Clock,
    child: Option<Child>,
}

impl OnceboxProcess {
    /// An Oncebox that is not started yet. Its files are in `dir`; `settings` are lines of its settings file.
    pub fn new(
        program: &Path,
        dir: &Path,
        address: SocketAddr,
        settings: &str,
        clock: &Clock,
    ) -> Result<Self, Error> {
        let process = Self {
            program: program.to_owned(),
            dir: dir.to_owned(),
            address,
            clock: clock.clone(),
            child: None,
        };
        let file = process.settings();
        let data = process.data().display().to_string();
        let text = format!(
            "[listen]\napi = \"{address}\"\n[database]\ndirectory = {data:?}\n[disk]\nreserve = 0\n{settings}"
        );
        fs::write(&file, text).map_err(Error::file(&file))?;
        Ok(process)
    }

    fn settings(&self) -> PathBuf {
        self.dir.join("oncebox.toml")
    }

    /// Its data directory.
    pub fn data(&self) -> PathBuf {
        self.dir.join("oncebox")
    }

    /// Its API, once it was ready.
    pub fn api(&self) -> Result<Api, Error> {
        Api::at(self.address, &self.data().join(TOKEN_FILE))
    }

    /// Its address.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The id of its process; `None` if it does not run.
    pub fn id(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Starts it and waits until it is ready.
    pub fn start(&mut self) -> Result<(), Error> {
        let path = self.dir.join("oncebox.log");
        let log = OpenOptions::new().create(true).append(true).open(&path);
        let log = log.map_err(Error::file(&path))?;
        let mut command = serve(&self.program, &self.settings());
        command.stdout(log.try_clone().map_err(Error::file(&path))?).stderr(log);
        self.child = Some(command.spawn().map_err(Error::about("Oncebox"))?);
        let begun = self.clock.monotonic();
        let never = Stop::new();
        while !self.is_ready() {
            let has_ended = self.has_ended();
            if has_ended || self.clock.monotonic().saturating_sub(begun) > PATIENCE {
                let what = if has_ended { "ended by itself" } else { "does not answer" };
                // If the log cannot be read, the failure is reported without it.
                let said = fs::read_to_string(&path).unwrap_or_default();
                return Err(Error::Failed(format!("Oncebox {what}; it said:\n{}", said.trim())));
            }
            never.wait(POLL);
        }
        Ok(())
    }

    /// Whether the service answers. Its token proves that no other program has its port.
    fn is_ready(&self) -> bool {
        self.api().is_ok_and(|api| api.pending().is_some())
    }

    fn has_ended(&mut self) -> bool {
        self.child.as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None)))
    }

    /// Stops it in order, so that its file is complete. `ended` is called when the process has ended and the system still
    /// knows it.
    pub fn stop(&mut self, ended: impl FnOnce(u32)) {
        let Some(child) = &mut self.child else { return };
        drop(child.stdin.take());
        let id = child.id();
        let begun = self.clock.monotonic();
        let never = Stop::new();
        while !crate::sys::host::has_ended(id)
            && self.clock.monotonic().saturating_sub(begun) < PATIENCE
        {
            never.wait(POLL);
        }
        ended(id);
        self.kill();
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Both fail only if it has ended already.
            drop(child.kill().and_then(|()| child.wait()));
        }
    }
}

impl Drop for OnceboxProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The command of a service that ends with this process, and that Ctrl-C does not reach.
pub(super) fn serve(program: &Path, settings: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(["serve", "--until-stdin-ends", "--config"]).arg(settings);
    apart(&mut command);
    command
}

/// Keeps a child apart from what is around this process: the settings of a real service, and Ctrl-C, which reaches the
/// parent alone, and the parent stops its children in order.
pub(super) fn apart(command: &mut Command) {
    for (name, _) in Environment::of_process().settings() {
        command.env_remove(name);
    }
    command.env_remove("ONCEBOX_CONFIG").process_group(0).stdin(Stdio::piped());
}
