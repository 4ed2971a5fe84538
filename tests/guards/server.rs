//! Database servers that a test has for itself: a directory of their own, a unix socket in it, and a port of their own if it
//! is asked for.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::rig::port::free_port;

/// How long a server may take to answer, and to stop.
const PATIENCE: Duration = Duration::from_mins(3);

/// Where a program is: where Debian puts those of servers, else in `PATH`. The `psql` in Debian's `PATH` is a script that
/// looks for the right one, which takes longer than what it is asked.
pub(crate) fn found(program: &str) -> Option<PathBuf> {
    let mut folders: Vec<PathBuf> = Vec::new();
    if let Ok(versions) = std::fs::read_dir("/usr/lib/postgresql") {
        folders.extend(versions.flatten().map(|version| version.path().join("bin")));
    }
    folders.extend(["/usr/sbin", "/usr/bin"].map(PathBuf::from));
    let path = std::env::var_os("PATH").unwrap_or_default();
    folders.extend(std::env::split_paths(&path));
    folders.into_iter().map(|folder| folder.join(program)).find(|path| path.is_file())
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().unwrap();
    id.stdout.trim_ascii() == b"0"
}

/// A directory that belongs to the server's user, and how its programs are run: a server will not be root.
pub(crate) struct Home {
    directory: TempDir,
    user: Option<&'static str>,
}

impl Home {
    pub(crate) fn of(user: &'static str) -> Option<Self> {
        let directory = tempfile::Builder::new().prefix("guards").tempdir_in("/tmp").unwrap();
        if !is_root() {
            return Some(Self { directory, user: None });
        }
        let chown = Command::new("chown").arg(user).arg(directory.path()).output().unwrap();
        chown.status.success().then_some(Self { directory, user: Some(user) })
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    fn program(&self, program: &Path) -> Command {
        let mut command = match self.user {
            None => Command::new(program),
            Some(user) => {
                let mut command = Command::new("setpriv");
                let ids = [format!("--reuid={user}"), format!("--regid={user}")];
                command.args(ids).args(["--clear-groups", "--"]).arg(program);
                command
            }
        };
        // MariaDB's temporary files have names that two servers on one machine may share.
        command.env("TMPDIR", self.path());
        command.current_dir(self.path()).stdin(Stdio::null());
        command
    }

    fn run(&self, program: &Path, arguments: &[&str]) {
        let output = self.program(program).args(arguments).output().unwrap();
        let complained = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {complained}", program.display());
    }

    pub(crate) fn start(&self, program: &Path, arguments: &[&str]) -> Running {
        let mut command = self.program(program);
        let log = std::fs::File::create(self.path().join("log")).unwrap();
        command.args(arguments).stdout(log.try_clone().unwrap()).stderr(log);
        Running(command.spawn().unwrap())
    }

    /// Ends a server and removes its directory when this process ends: what is kept for all tests is never dropped.
    fn watch(&self, running: &Running) {
        let script = "read -r nothing; kill -TERM \"$1\"; while kill -0 \"$1\"; do sleep 0.1; done; rm -rf \"$2\"";
        let mut command = Command::new("sh");
        command.args(["-c", script, "watch", &running.0.id().to_string()]).arg(self.path());
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // Its input ends with this process.
        std::mem::forget(command.spawn().unwrap());
    }

    pub(crate) fn wait(&self, is_ready: impl Fn() -> bool) {
        let until = Instant::now() + PATIENCE;
        while !is_ready() {
            let log = std::fs::read_to_string(self.path().join("log")).unwrap_or_default();
            assert!(Instant::now() < until, "the server does not answer:\n{log}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// A server's process. It replaced the `setpriv` that started it, so the id is its own.
pub(crate) struct Running(Child);

impl Running {
    /// kill -9 of it and of what it has started, which could hold its memory and its port.
    fn kill(&mut self) {
        let all = children(self.0.id());
        self.0.kill().unwrap();
        self.0.wait().unwrap();
        for id in &all {
            // It may have ended with its parent.
            drop(Command::new("kill").args(["-9", &id.to_string()]).output());
        }
        let until = Instant::now() + PATIENCE;
        while all.iter().any(|id| is_running(*id)) {
            assert!(Instant::now() < until, "a process of the server does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends it in good order, by its own id.
    pub(crate) fn stop(&mut self, signal: &str) {
        let id = self.0.id().to_string();
        drop(Command::new("kill").args([signal, &id]).status());
        let until = Instant::now() + PATIENCE;
        while self.0.try_wait().unwrap().is_none() {
            if Instant::now() > until {
                self.0.kill().unwrap();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The ids of the processes that a process has started and that have not ended.
fn children(parent: u32) -> Vec<u32> {
    let is_child = |id: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        // The name before it may have brackets and spaces.
        let fields = stat.rsplit_once(") ").map(|(_, fields)| fields.split(' ').take(2));
        let fields: Vec<&str> = fields.into_iter().flatten().collect();
        matches!(fields.as_slice(), [state, of] if *state != "Z" && of.parse() == Ok(parent))
    };
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_child).collect()
}

/// Whether a process runs.
fn is_running(id: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

#[allow(dead_code, reason = "each test program uses the part of it that it needs")]
pub(crate) struct Postgresql {
    running: Running,
    home: Home,
    server: PathBuf,
    arguments: Vec<String>,
    psql: PathBuf,
    /// Asks for passwords, which the socket does not.
    pub(crate) port: u16,
}

impl Postgresql {
    /// One that loses what it committed if the machine dies, and is faster. `None` where it is not installed.
    #[allow(dead_code, reason = "each test program uses the part of it that it needs")]
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(&["-c", "fsync=off"])
    }

    /// One with more arguments. `None` where it is not installed.
    pub(crate) fn start_with(more: &[&str]) -> Option<Self> {
        let [initdb, postgres, psql] = ["initdb", "postgres", "psql"].map(found);
        let (initdb, postgres, psql) = (initdb?, postgres?, psql?);
        let home = Home::of("postgres")?;
        let data = home.path().join("data");
        let data = data.to_str().unwrap();
        let trusted = ["--auth-local=trust", "--auth-host=scram-sha-256", "-U", "guards"];
        let letters = ["--locale=C", "--encoding=UTF8", "--no-sync"];
        home.run(&initdb, &[&["-D", data], trusted.as_slice(), &letters].concat());
        let socket = home.path().to_str().unwrap().to_owned();
        let port = free_port();
        let listens = format!("--port={port}");
        let places = ["-D", data, "-k", &socket, "-c", "listen_addresses=127.0.0.1", &listens];
        let arguments = [places.as_slice(), more].concat();
        let running = home.start(&postgres, &arguments);
        let arguments = arguments.into_iter().map(str::to_owned).collect();
        let server = Self { running, home, server: postgres, arguments, psql, port };
        server.wait();
        Some(server)
    }

    fn wait(&self) {
        let ask = format!("{} >/dev/null 2>&1", self.psql("-c 'SELECT 1'"));
        self.home.wait(|| Command::new("sh").args(["-c", &ask]).status().unwrap().success());
    }

    /// Ends it, and its sessions with it.
    #[allow(dead_code, reason = "each test program uses the part of it that it needs")]
    pub(crate) fn stop(&mut self) {
        self.running.stop("-INT");
    }

    /// kill -9.
    #[allow(dead_code, reason = "each test program uses the part of it that it needs")]
    pub(crate) fn kill(&mut self) {
        self.running.kill();
    }

    /// Starts it over its directory.
    #[allow(dead_code, reason = "each test program uses the part of it that it needs")]
    pub(crate) fn start_again(&mut self) {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        self.running = self.home.start(&self.server, &arguments);
        self.wait();
    }

    /// It runs until this process ends.
    #[allow(dead_code, reason = "each test program uses the part of it that it needs")]
    pub(crate) fn shared(self) -> &'static Self {
        self.home.watch(&self.running);
        Box::leak(Box::new(self))
    }

    /// What a driver is told to connect with.
    #[allow(dead_code, reason = "the consumer of a topic has one")]
    pub(crate) fn address(&self) -> String {
        let home = self.home.path().display();
        format!("host={home} port={} user=guards dbname=postgres", self.port)
    }

    /// What it has logged since its start.
    #[allow(dead_code, reason = "each test program uses the part of it that it needs")]
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.home.path().join("log")).unwrap()
    }

    /// The client, as a shell is told to run it.
    pub(crate) fn psql(&self, more: &str) -> String {
        let (psql, socket) = (self.psql.display(), self.home.path().display());
        let port = self.port;
        format!("{psql} -X -v ON_ERROR_STOP=1 -h {socket} -p {port} -U guards -d postgres {more}")
    }
}

impl Drop for Postgresql {
    fn drop(&mut self) {
        self.running.stop("-INT");
    }
}

#[allow(dead_code, reason = "each test program uses the part of it that it needs")]
pub(crate) struct Mariadb {
    running: Running,
    home: Home,
    server: PathBuf,
    arguments: Vec<String>,
    client: PathBuf,
    /// Of this machine alone.
    pub(crate) port: u16,
}

impl Mariadb {
    /// A small one. `None` where it is not installed.
    #[allow(dead_code, reason = "each test program uses the part of it that it needs")]
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(&["--innodb-buffer-pool-size=16M"])
    }

    /// One with more arguments. `None` where it is not installed.
    pub(crate) fn start_with(more: &[&str]) -> Option<Self> {
        let [install, mariadbd, client] = ["mariadb-install-db", "mariadbd", "mariadb"].map(found);
        let (install, mariadbd, client) = (install?, mariadbd?, client?);
        let home = Home::of("mysql")?;
        let data = format!("--datadir={}/data", home.path().display());
        home.run(
            &install,
            &["--no-defaults", &data, "--auth-root-authentication-method=normal", "--skip-test-db"],
        );
        let socket = format!("--socket={}/socket", home.path().display());
        let port = free_port();
        let listens = format!("--port={port}");
        let places = ["--no-defaults", &data, &socket, "--bind-address=127.0.0.1", &listens];
        let arguments = [places.as_slice(), more].concat();
        let running = home.start(&mariadbd, &arguments);
        let arguments = arguments.into_iter().map(str::to_owned).collect();
        let server = Self { running, home, server: mariadbd, arguments, client, port };
        server.wait("CREATE DATABASE guards");
        Some(server)
    }

    fn wait(&self, sql: &str) {
        let client = self.client(&format!("-e '{sql}'")).replace("-D guards ", "");
        let ask = format!("{client} >/dev/null 2>&1");
        self.home.wait(|| Command::new("sh").args(["-c", &ask]).status().unwrap().success());
    }

    /// Ends it, and its sessions with it.
    #[allow(dead_code, reason = "each test program uses the part of it that it needs")]
    pub(crate) fn stop(&mut self) {
        self.running.stop("-TERM");
    }

    /// kill -9.
    #[allow(dead_code, reason = "each test program uses the part of it that it needs")]
    pub(crate) fn kill(&mut self) {
        self.running.kill();
    }

    /// Starts it over its directory.
    #[allow(dead_code, reason = "each test program uses the part of it that it needs")]
    pub(crate) fn start_again(&mut self) {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        self.running = self.home.start(&self.server, &arguments);
        self.wait("SELECT 1");
    }

    /// It runs until this process ends.
    #[allow(dead_code, reason = "each test program uses the part of it that it needs")]
    pub(crate) fn shared(self) -> &'static Self {
        self.home.watch(&self.running);
        Box::leak(Box::new(self))
    }

    /// The client, as a shell is told to run it.
    pub(crate) fn client(&self, more: &str) -> String {
        let (client, home) = (self.client.display(), self.home.path().display());
        format!("{client} --no-defaults --socket={home}/socket -u root -D guards {more}")
    }
}

impl Drop for Mariadb {
    fn drop(&mut self) {
        self.running.stop("-TERM");
    }
}
