//! Oncebox between the two servers: its settings, its process, and what it is told to do.

use std::fs::{self, OpenOptions};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::base::clock::Clock;
use crate::base::stop::Stop;
use crate::config::Environment;
use crate::databases::helper::PROGRAM;
use crate::demo::databases::machine::{MARIADB_DRIVER, Machine, POSTGRESQL_DRIVER};
use crate::demo::databases::store;
use crate::demo::setup::Api;
use crate::demo::site::{Error, write_secret};
use crate::sys::host;

/// How long it may take to be ready, and to stop.
const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);

/// Its process. Dropped, it is killed.
pub(super) struct Service {
    program: PathBuf,
    dir: PathBuf,
    address: SocketAddr,
    clock: Clock,
    child: Option<Child>,
}

/// Where the servers are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    pub(super) postgresql: SocketAddr,
    pub(super) mariadb: SocketAddr,
}

impl Service {
    /// Writes the settings, starts the service, and makes its source and its subscription.
    pub(super) fn start(
        machine: &Machine,
        dir: &Path,
        address: SocketAddr,
        ports: Ports,
        password: &str,
        clock: &Clock,
    ) -> Result<Self, Error> {
        let secret = dir.join("erp.password");
        write_secret(&secret, password)?;
        let program = machine.odbc.display().to_string();
        let password_file = secret.display().to_string();
        let section = |name: &str, driver: &str, port: u16, database: &str| {
            format!(
                "[databases.{name}]\ndriver = {driver:?}\nserver = \"127.0.0.1\"\nport = {port}\ndatabase = \"{database}\"\n\
                 user = \"oncebox\"\npassword_file = {password_file:?}\ntls = false\nprogram = {program:?}\n"
            )
        };
        let settings = format!(
            "# Written by `oncebox demo --databases`. The short steps are for the demo alone.\n[listen]\napi = \"{address}\"\n\
             [database]\ndirectory = {:?}\n[delivery]\nsteps = [\"100ms\", \"200ms\", \"500ms\"]\nmax_attempts = 1000\n\
             [disk]\nreserve = 0\n{}{}",
            dir.join("oncebox").display().to_string(),
            section("erp", POSTGRESQL_DRIVER, ports.postgresql.port(), "postgres"),
            section("books", MARIADB_DRIVER, ports.mariadb.port(), "demo"),
        );
        let file = dir.join("oncebox.toml");
        fs::write(&file, settings).map_err(Error::file(&file))?;
        let mut service = Self {
            program: machine.oncebox.clone(),
            dir: dir.to_owned(),
            address,
            clock: clock.clone(),
            child: None,
        };
        service.run()?;
        let source =
            json!({ "name": "erp", "kind": "database", "settings": { "database": "erp" } });
        let api = service.api()?;
        api.request("POST", "/v1/sources", "making the source", &source)?;
        let subscription = json!({
            "name": "books", "url": "database:books", "event_types": ["invoice.*"], "template": { "effect": store::BOOK },
        });
        api.request("POST", "/v1/subscriptions", "making the subscription", &subscription)?;
        Ok(service)
    }

    fn api(&self) -> Result<Api, Error> {
        Api::at(self.address, &self.dir.join("oncebox/admin.token"))
    }

    fn run(&mut self) -> Result<(), Error> {
        let path = self.dir.join("oncebox.log");
        let log = OpenOptions::new().create(true).append(true).open(&path);
        let log = log.map_err(Error::file(&path))?;
        let mut command = Command::new(&self.program);
        command
            .args(["serve", "--until-stdin-ends", "--config"])
            .arg(self.dir.join("oncebox.toml"));
        // The settings of a real service must not reach the demo.
        for (name, _) in Environment::of_process().settings() {
            command.env_remove(name);
        }
        command.env_remove("ONCEBOX_CONFIG").process_group(0).stdin(Stdio::piped());
        command.stdout(log.try_clone().map_err(Error::file(&path))?).stderr(log);
        self.child = Some(command.spawn().map_err(Error::about("Oncebox"))?);
        let begun = self.clock.monotonic();
        let never = Stop::new();
        while !self.is_ready() {
            if self.clock.monotonic().saturating_sub(begun) > PATIENCE {
                return Err(Error::Failed(format!(
                    "Oncebox does not answer; its log is {}",
                    path.display()
                )));
            }
            never.wait(POLL);
        }
        Ok(())
    }

    /// Whether the service answers. Its token proves that no other program has its port.
    fn is_ready(&self) -> bool {
        self.api().is_ok_and(|api| api.pending().is_some())
    }

    /// Deliveries that wait; `None` if it does not answer.
    pub(super) fn pending(&self) -> Option<u32> {
        self.api().ok()?.pending()
    }

    /// Why its source cannot be read, and its holds, for who looks why nothing goes on.
    pub(super) fn trouble(&self) -> String {
        let asked = ["/v1/sources/erp", "/v1/subscriptions/books"].map(|path| {
            let answer = self
                .api()
                .and_then(|api| api.request("GET", path, "asking how it is", &Value::Null));
            answer.map_or_else(|error| error.to_string(), |answer| answer.to_string())
        });
        asked.join("\n")
    }

    /// `kill -9`, and its start.
    pub(super) fn kill_and_start(&mut self) -> Result<(), Error> {
        self.end();
        self.run()
    }

    /// `kill -9` of the programs that hold its connections.
    pub(super) fn kill_connections(&self) -> Result<(), Error> {
        let Some(child) = &self.child else { return Ok(()) };
        for id in host::children(child.id(), PROGRAM) {
            // It may have ended meanwhile: then it says so.
            let mut kill = Command::new("kill");
            kill.args(["-KILL", &id.to_string()]).stderr(Stdio::null());
            kill.status().map(drop).map_err(Error::about("kill"))?;
        }
        Ok(())
    }

    /// Stops it in order, so that its file is complete.
    pub(super) fn stop(&mut self) {
        if let Some(child) = &mut self.child {
            drop(child.stdin.take());
            let begun = self.clock.monotonic();
            let never = Stop::new();
            while matches!(child.try_wait(), Ok(None))
                && self.clock.monotonic().saturating_sub(begun) < PATIENCE
            {
                never.wait(POLL);
            }
        }
        self.end();
    }

    fn end(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Both fail only if it has ended already.
            drop(child.kill().and_then(|()| child.wait()));
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.end();
    }
}
