//! The two servers: each in a directory of its own, started from the machine's programs, never as root.

use std::fs::{self, DirBuilder, OpenOptions};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::base::clock::Clock;
use crate::base::stop::Stop;
use crate::demo::databases::machine::Machine;
use crate::demo::databases::store;
use crate::demo::site::Error;
use crate::sys::user;

/// How long a server may take until it answers, and to stop.
const PATIENCE: Duration = Duration::from_mins(1);
const POLL: Duration = Duration::from_millis(50);
/// How much of the end of a log is shown.
const MAX_LOG_BYTES: usize = 1_500;

/// A server's signals.
#[derive(Clone, Copy, Debug)]
enum Signal {
    Interrupt,
    Terminate,
}

/// A running server. Dropped, it is killed.
pub(super) struct Server {
    name: &'static str,
    program: PathBuf,
    arguments: Vec<String>,
    /// Whom it runs as, if this process is root.
    user: Option<&'static str>,
    home: PathBuf,
    /// The command of the shell that gives it SQL.
    client: Vec<String>,
    stops_by: Signal,
    clock: Clock,
    child: Option<Child>,
    /// Ends it if this process is killed.
    watch: Option<Child>,
}

impl Server {
    /// A PostgreSQL in a new directory.
    pub(super) fn postgresql(
        machine: &Machine,
        dir: &Path,
        at: SocketAddr,
        clock: &Clock,
    ) -> Result<Self, Error> {
        let home = dir.join("postgresql");
        let text = home.display().to_string();
        let port = at.port().to_string();
        let words =
            |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let data = format!("{text}/data");
        let psql = machine.psql.display().to_string();
        let server = Self {
            name: "PostgreSQL",
            program: machine.postgres.clone(),
            arguments: words(&[
                "-D",
                &data,
                "-k",
                &text,
                "-c",
                "listen_addresses=127.0.0.1",
                "-p",
                &port,
            ]),
            user: owner("postgres"),
            client: words(&[
                &psql,
                "-X",
                "-qAt",
                "-v",
                "ON_ERROR_STOP=1",
                "-h",
                &text,
                "-p",
                &port,
                "-U",
                "demo",
                "-d",
                "postgres",
            ]),
            home,
            stops_by: Signal::Interrupt,
            clock: clock.clone(),
            child: None,
            watch: None,
        };
        server.make_home()?;
        let access = ["--auth-local=trust", "--auth-host=scram-sha-256", "-U", "demo"];
        let letters = ["--locale=C", "--encoding=UTF8"];
        server.prepare(&machine.initdb, &[&["-D", &data], access.as_slice(), &letters].concat())?;
        server.started("")
    }

    /// A `MariaDB` in a new directory, with an empty database `demo`.
    pub(super) fn mariadb(
        machine: &Machine,
        dir: &Path,
        at: SocketAddr,
        clock: &Clock,
    ) -> Result<Self, Error> {
        let home = dir.join("mariadb");
        let text = home.display().to_string();
        let data = format!("--datadir={text}/data");
        let socket = format!("--socket={text}/socket");
        let port = format!("--port={}", at.port());
        let words =
            |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let client = machine.mariadb.display().to_string();
        let server = Self {
            name: "MariaDB",
            program: machine.mariadbd.clone(),
            arguments: words(&["--no-defaults", &data, &socket, "--bind-address=127.0.0.1", &port]),
            user: owner("mysql"),
            client: words(&[&client, "--no-defaults", &socket, "-u", "root", "-N"]),
            home,
            stops_by: Signal::Terminate,
            clock: clock.clone(),
            child: None,
            watch: None,
        };
        server.make_home()?;
        let access = ["--auth-root-authentication-method=normal", "--skip-test-db"];
        server.prepare(
            &machine.mariadb_install_db,
            &[&["--no-defaults", &data], access.as_slice()].concat(),
        )?;
        let mut server = server.started(store::DATABASE)?;
        server.client.extend(words(&["-D", "demo"]));
        Ok(server)
    }

    /// A directory that its user alone may read.
    fn make_home(&self) -> Result<(), Error> {
        DirBuilder::new().create(&self.home).map_err(Error::file(&self.home))?;
        let mut owned = Command::new("chown");
        owned.arg(self.user.unwrap_or_default()).arg(&self.home);
        if self.user.is_some() {
            done(&mut owned, "chown")?;
        }
        let mut private = Command::new("chmod");
        done(private.arg("700").arg(&self.home), "chmod")
    }

    /// Runs a program as the server's user, in its directory.
    fn prepare(&self, program: &Path, arguments: &[&str]) -> Result<(), Error> {
        done(self.command(program).args(arguments), &program.display().to_string())
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = match self.user {
            None => Command::new(program),
            Some(user) => {
                let mut command = Command::new("setpriv");
                command.args([format!("--reuid={user}"), format!("--regid={user}")]);
                command.args(["--clear-groups", "--"]).arg(program);
                command
            }
        };
        command.env("TMPDIR", &self.home).current_dir(&self.home).stdin(Stdio::null());
        command
    }

    fn started(mut self, first: &str) -> Result<Self, Error> {
        self.start()?;
        self.sql(first)?;
        Ok(self)
    }

    /// Starts it, and waits until it answers. After a kill its other processes may hold its memory for a moment.
    pub(super) fn start(&mut self) -> Result<(), Error> {
        let begun = self.clock.monotonic();
        let never = Stop::new();
        loop {
            let has_ended = match &mut self.child {
                None => true,
                Some(child) => !matches!(child.try_wait(), Ok(None)),
            };
            if has_ended {
                self.spawn()?;
            }
            if self.sql(store::ALIVE).is_ok() {
                return Ok(());
            }
            if self.clock.monotonic().saturating_sub(begun) > PATIENCE {
                let name = self.name;
                let log = self.log_end();
                return Err(Error::Failed(format!("{name} does not answer:\n{log}")));
            }
            never.wait(POLL);
        }
    }

    fn spawn(&mut self) -> Result<(), Error> {
        self.forget();
        let path = self.log();
        let log = OpenOptions::new().create(true).append(true).open(&path);
        let log = log.map_err(Error::file(&path))?;
        let mut command = self.command(&self.program);
        command
            .args(&self.arguments)
            .stdout(log.try_clone().map_err(Error::file(&path))?)
            .stderr(log);
        let child = command.spawn().map_err(Error::about(self.name))?;
        // Its input ends with this process, also after kill -9.
        let mut watch = Command::new("sh");
        watch.args(["-c", "read -r nothing; kill -KILL \"$1\"", "watch", &child.id().to_string()]);
        watch.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        self.child = Some(child);
        self.watch = Some(watch.spawn().map_err(Error::about("sh"))?);
        Ok(())
    }

    /// `kill -9`, and its start.
    pub(super) fn kill_and_start(&mut self) -> Result<(), Error> {
        self.forget();
        self.start()
    }

    /// Ends what runs.
    fn forget(&mut self) {
        for mut child in [self.watch.take(), self.child.take()].into_iter().flatten() {
            // Both fail only if it has ended already.
            drop(child.kill().and_then(|()| child.wait()));
        }
    }

    /// Stops it in order.
    pub(super) fn stop(&mut self) {
        if let Some(child) = &mut self.child {
            let signal = match self.stops_by {
                Signal::Interrupt => "-INT",
                Signal::Terminate => "-TERM",
            };
            drop(Command::new("kill").args([signal, &child.id().to_string()]).status());
            let begun = self.clock.monotonic();
            let never = Stop::new();
            while matches!(child.try_wait(), Ok(None))
                && self.clock.monotonic().saturating_sub(begun) < PATIENCE
            {
                never.wait(POLL);
            }
        }
        self.forget();
    }

    /// Gives SQL to it as its owner. Returns what it answers.
    pub(super) fn sql(&self, sql: &str) -> Result<String, Error> {
        let Some((program, arguments)) = self.client.split_first() else {
            return Ok(String::new());
        };
        let file = self.log().with_extension("sql");
        fs::write(&file, sql).map_err(Error::file(&file))?;
        let input = fs::File::open(&file).map_err(Error::file(&file))?;
        let mut command = Command::new(program);
        let output =
            command.args(arguments).stdin(input).output().map_err(Error::about(program))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(Error::Failed(format!("{}: {}", self.name, said.trim())));
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Its log, beside its directory, which may belong to somebody else.
    fn log(&self) -> PathBuf {
        self.home.with_extension("log")
    }

    fn log_end(&self) -> String {
        let log = fs::read(self.log()).unwrap_or_default();
        let end = log.get(log.len().saturating_sub(MAX_LOG_BYTES)..).unwrap_or_default();
        String::from_utf8_lossy(end).into_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.forget();
    }
}

/// The user of a server, if this process is root's: a server will not run as root.
fn owner(user: &'static str) -> Option<&'static str> {
    (user::id() == 0).then_some(user)
}

fn done(command: &mut Command, what: &str) -> Result<(), Error> {
    let output = command.output().map_err(Error::about(what))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Error::Failed(format!("{what}: {}", said.trim())))
}
