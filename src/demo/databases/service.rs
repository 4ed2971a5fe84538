//! Oncebox between the two servers: its settings, its process, and what it is told to do.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::base::clock::Clock;
use crate::databases::helper::PROGRAM;
use crate::demo::databases::machine::{MARIADB_DRIVER, Machine, POSTGRESQL_DRIVER};
use crate::demo::databases::store;
use crate::demo::process::OnceboxProcess;
use crate::demo::site::{Error, write_secret};
use crate::sys::host;

/// Its process.
pub(super) struct Service {
    process: OnceboxProcess,
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
            "# Written by `oncebox demo --databases`. The short steps are for the demo alone.\n\
             [delivery]\nsteps = [\"100ms\", \"200ms\", \"500ms\"]\nmax_attempts = 1000\n{}{}",
            section("erp", POSTGRESQL_DRIVER, ports.postgresql.port(), "postgres"),
            section("books", MARIADB_DRIVER, ports.mariadb.port(), "demo"),
        );
        let mut process = OnceboxProcess::new(&machine.oncebox, dir, address, &settings, clock)?;
        process.start()?;
        let source =
            json!({ "name": "erp", "kind": "database", "settings": { "database": "erp" } });
        let api = process.api()?;
        api.request("POST", "/v1/sources", "making the source", &source)?;
        let subscription = json!({
            "name": "books", "url": "database:books", "event_types": ["invoice.*"], "template": { "effect": store::BOOK },
        });
        api.request("POST", "/v1/subscriptions", "making the subscription", &subscription)?;
        Ok(Self { process })
    }

    /// Deliveries that wait; `None` if it does not answer.
    pub(super) fn pending(&self) -> Option<u32> {
        self.process.api().ok()?.pending()
    }

    /// Why its source cannot be read, and its holds, for who looks why nothing goes on.
    pub(super) fn trouble(&self) -> String {
        let asked = ["/v1/sources/erp", "/v1/subscriptions/books"].map(|path| {
            let answer = self
                .process
                .api()
                .and_then(|api| api.request("GET", path, "asking how it is", &Value::Null));
            answer.map_or_else(|error| error.to_string(), |answer| answer.to_string())
        });
        asked.join("\n")
    }

    /// `kill -9`, and its start.
    pub(super) fn kill_and_start(&mut self) -> Result<(), Error> {
        self.process.kill();
        self.process.start()
    }

    /// `kill -9` of the programs that hold its connections.
    pub(super) fn kill_connections(&self) -> Result<(), Error> {
        let Some(process) = self.process.id() else { return Ok(()) };
        for id in host::children(process, PROGRAM) {
            // It may have ended meanwhile: then it says so.
            let mut kill = Command::new("kill");
            kill.args(["-KILL", &id.to_string()]).stderr(Stdio::null());
            kill.status().map(drop).map_err(Error::about("kill"))?;
        }
        Ok(())
    }

    /// Stops it in order, so that its file is complete.
    pub(super) fn stop(&mut self) {
        self.process.stop(|_process| {});
    }
}
