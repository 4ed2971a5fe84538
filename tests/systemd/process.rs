//! `oncebox serve` as a service manager starts it.

use std::fmt::Write as _;
use std::fs::File;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};

use tempfile::TempDir;

use crate::rig::until;

/// A home for one service: its settings, its data, its log and the manager's socket.
pub(crate) struct Unit {
    pub(crate) home: TempDir,
    /// `[listen]` and what else the settings say.
    pub(crate) settings: String,
    /// Further variables of its environment.
    pub(crate) variables: Vec<(String, String)>,
    /// Descriptors that are handed over, and their names.
    pub(crate) passed: Vec<(String, OwnedFd)>,
}

/// A running service. Dropped, it is killed.
pub(crate) struct Service {
    child: Child,
    home: PathBuf,
}

impl Unit {
    pub(crate) fn new() -> Self {
        let settings = "[listen]\napi = \"127.0.0.1:0\"\n".to_owned();
        let home = tempfile::tempdir().unwrap();
        Self { home, settings, variables: Vec::new(), passed: Vec::new() }
    }

    /// Hands over a listening socket, and keeps it open, as a manager does.
    pub(crate) fn pass(&mut self, name: &str) -> TcpListener {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        self.passed.push((name.to_owned(), listener.try_clone().unwrap().into()));
        listener
    }

    pub(crate) fn variable(&mut self, name: &str, value: impl Into<String>) {
        self.variables.push((name.to_owned(), value.into()));
    }

    /// A socket on which the manager hears.
    pub(crate) fn manager(&mut self) -> UnixDatagram {
        let path = self.home.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(crate::rig::PATIENCE)).unwrap();
        self.variable("NOTIFY_SOCKET", path.to_str().unwrap());
        socket
    }

    /// Starts the service. It hears of its own process only what the manager would tell it; `$$` in a
    /// variable is its process id.
    pub(crate) fn start(&self) -> Service {
        let home = self.home.path();
        std::fs::write(home.join("oncebox.toml"), &self.settings).unwrap();
        let mut script = String::new();
        for (name, value) in &self.variables {
            write!(script, "export {name}=\"{value}\"; ").unwrap();
        }
        let mut command = Command::new("sh");
        let mut stdio = [Stdio::null(), Stdio::null()];
        if !self.passed.is_empty() {
            let names: Vec<&str> = self.passed.iter().map(|(name, _)| name.as_str()).collect();
            let (count, names) = (names.len(), names.join(":"));
            write!(script, "export LISTEN_PID=$$ LISTEN_FDS={count} LISTEN_FDNAMES={names}; ")
                .unwrap();
        }
        // Descriptors come as standard input and output and move to 3 and 4.
        for (at, (_, descriptor)) in self.passed.iter().enumerate() {
            stdio[at] = descriptor.try_clone().unwrap().into();
        }
        let moves = ["", "3<&0", "3<&0 4<&1"][self.passed.len()];
        write!(
            script,
            "exec \"$0\" --config \"$1\" --data \"$2\" serve {moves} </dev/null >\"${{2%/*}}/out\""
        )
        .unwrap();
        let [input, output] = stdio;
        let child = command
            .args(["-c", &script])
            .arg(env!("CARGO_BIN_EXE_oncebox"))
            .args([home.join("oncebox.toml"), home.join("data")])
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .stdin(input)
            .stdout(output)
            .stderr(File::options().create(true).append(true).open(home.join("log")).unwrap())
            .spawn()
            .unwrap();
        Service { child, home: home.to_owned() }
    }
}

impl Unit {
    /// What a command says that has to work.
    #[track_caller]
    pub(crate) fn run(&self, args: &[&str]) -> String {
        let home = self.home.path();
        let mut command = Command::new(env!("CARGO_BIN_EXE_oncebox"));
        command.arg("--config").arg(home.join("oncebox.toml"));
        command.arg("--data").arg(home.join("data")).args(args).env_clear();
        let output = command.output().unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Service {
    pub(crate) fn data(&self) -> PathBuf {
        self.home.join("data")
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.home.join("log")).unwrap()
    }

    /// What it printed on standard output.
    pub(crate) fn output(&self) -> String {
        std::fs::read_to_string(self.home.join("out")).unwrap()
    }

    pub(crate) fn token(&self) -> String {
        std::fs::read_to_string(self.data().join("admin.token")).unwrap().trim().to_owned()
    }

    /// Where it says it listens.
    pub(crate) fn address(&mut self) -> std::net::SocketAddr {
        let file = self.data().join("oncebox.address");
        let mut address = None;
        until("it says where it listens", || {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("it ended by itself: {status}: {}", self.log());
            }
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            address = text.strip_suffix('\n').and_then(|text| text.parse().ok());
            address.is_some()
        });
        address.unwrap()
    }

    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &id]).status().unwrap().success());
    }

    /// Waits for its end.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let mut ended = None;
        until("it ends", || {
            ended = self.child.try_wait().unwrap();
            ended.is_some()
        });
        ended.unwrap()
    }

    /// SIGTERM, and its end.
    #[track_caller]
    pub(crate) fn stop(&mut self) {
        self.signal("TERM");
        let status = self.ended();
        assert!(status.success(), "{status}: {}", self.log());
    }

    /// kill -9, and its end.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            println!("{}", self.log());
        }
    }
}

#[test]
fn the_unit_allows_as_many_threads_as_the_most_sources_and_deliverers_need() {
    let unit = include_str!("../../packaging/systemd/oncebox.service");
    let tasks = unit.lines().find_map(|line| line.strip_prefix("TasksMax=")).unwrap();
    // One for each source; deliverers as many as the settings allow, with a lookup of a name for each; the others.
    let most = oncebox::sources::relays::MAX_SOURCES + 256 + 256 + 64;
    assert!(tasks.parse::<u32>().unwrap() >= most, "{tasks} of {most}");
}
