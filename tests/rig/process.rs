//! The real program in a process of its own.
#![allow(
    unused_imports,
    clippy::print_stdout,
    reason = "each test program uses the part of it that it needs; what failed shows its log"
)]

use std::fs::OpenOptions;
use std::process::Child;

use tempfile::NamedTempFile;

use crate::rig::prelude::*;

/// What most files of this program import.
pub(crate) mod prelude {
    pub(crate) use super::{Process, SOON, call, ms, number};
    pub(crate) use crate::rig::prelude::*;
}

/// Settings with which a failed delivery is soon tried again.
pub(crate) const SOON: &str = r#"
[listen]
api = "127.0.0.1:0"
[delivery]
allow = ["127.0.0.0/8"]
steps = ["100ms", "200ms", "500ms"]
max_attempts = 1000
timeout = "2s"
[disk]
reserve = 0
"#;

/// A running `oncebox serve`. Dropped, it is killed.
pub(crate) struct Process {
    child: Child,
    pub(crate) address: SocketAddr,
    token: String,
    /// Where it writes its log: not on a disk that a test fills.
    log: Option<NamedTempFile>,
}

impl Process {
    /// Starts it over `home`, and waits until it says where it listens.
    pub(crate) fn start(home: &Path) -> Self {
        Self::start_limited(home, None)
    }

    /// The same over a directory of its own, with a subscription of this receiver.
    #[track_caller]
    pub(crate) fn subscribed(receiver: &Receiver) -> (TempDir, Self) {
        let home = tempfile::tempdir().unwrap();
        let process = Self::start(home.path());
        process.subscribe(&receiver.url());
        (home, process)
    }

    /// The same, with no file larger than so many bytes.
    pub(crate) fn start_limited(home: &Path, file_bytes_most: Option<u64>) -> Self {
        let log = NamedTempFile::new().unwrap();
        Self::start_logging_to(home, file_bytes_most, log.path().to_owned(), Some(log))
    }

    /// The same, after a command of the shell that limits what it may take.
    pub(crate) fn start_under(home: &Path, limit: &str) -> Self {
        let log = NamedTempFile::new().unwrap();
        Self::start_after(home, limit, log.path().to_owned(), Some(log))
    }

    /// The same, with its log in a file of the test's choice.
    pub(crate) fn start_logging_to(
        home: &Path,
        file_bytes_most: Option<u64>,
        log_path: PathBuf,
        kept: Option<NamedTempFile>,
    ) -> Self {
        // A POSIX shell counts in blocks of 512 bytes.
        let limit =
            file_bytes_most.map_or(String::new(), |most| format!("ulimit -f {}; ", most / 512));
        Self::start_after(home, &limit, log_path, kept)
    }

    fn start_after(
        home: &Path,
        limit: &str,
        log_path: PathBuf,
        kept: Option<NamedTempFile>,
    ) -> Self {
        let data = home.join("data");
        let config = home.join("oncebox.toml");
        if !config.exists() {
            fs::write(&config, SOON).unwrap();
        }
        let address_file = data.join("oncebox.address");
        drop(fs::remove_file(&address_file));
        let log = OpenOptions::new().append(true).open(&log_path).unwrap();
        let mut child = Command::new("sh")
            .args(["-c", &format!("{limit}exec \"$0\" --config \"$1\" --data \"$2\" serve")])
            .arg(env!("CARGO_BIN_EXE_oncebox"))
            .args([&config, &data])
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut address = None;
        until("it says where it listens", || {
            if let Some(status) = child.try_wait().unwrap() {
                let stderr = fs::read_to_string(&log_path).unwrap_or_default();
                panic!("it ended by itself: {status}: {stderr}");
            }
            let text = fs::read_to_string(&address_file).unwrap_or_default();
            address = text.strip_suffix('\n').and_then(|text| text.parse().ok());
            address.is_some()
        });
        // A database that a test took over has its own, which nobody knows.
        let token = fs::read_to_string(data.join("admin.token")).unwrap_or_default();
        let token = token.trim().to_owned();
        Self { child, address: address.unwrap(), token, log: kept }
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits until it has ended by itself: something else has killed it.
    pub(crate) fn wait_killed(&mut self) {
        self.child.wait().unwrap();
    }

    /// SIGTERM, where another one takes its place.
    pub(crate) fn stop_in_place(&mut self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        self.child.wait().unwrap();
    }

    /// kill -9.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// kill -9, and another one over the same directory.
    pub(crate) fn killed(self, home: &Path) -> Self {
        self.kill();
        Self::start(home)
    }

    /// Waits until no delivery waits, and stops it.
    #[track_caller]
    pub(crate) fn finish(self) {
        until("all is delivered", || self.pending() == Some(0));
        self.stop();
    }

    /// The same; then what must hold of its file is checked.
    #[track_caller]
    pub(crate) fn finish_and_check(self, home: &Path) {
        self.finish();
        file::check(&home.join("data/oncebox.db"));
    }

    /// SIGTERM, and waits for its end.
    pub(crate) fn stop(mut self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        let mut ended = None;
        until("it ends when it is asked to", || {
            ended = self.child.try_wait().unwrap();
            ended.is_some()
        });
        assert!(ended.unwrap().success(), "{ended:?}");
    }

    pub(crate) fn try_call(
        &self,
        method: &str,
        path: &str,
        body: &Value,
    ) -> std::io::Result<Answer> {
        call(self.address, &self.token, method, path, body)
    }

    pub(crate) fn call(&self, method: &str, path: &str, body: &Value) -> Answer {
        self.try_call(method, path, body).unwrap()
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn token(&self) -> String {
        self.token.clone()
    }

    /// Makes something, or publishes.
    #[track_caller]
    pub(crate) fn post(&self, path: &str, body: &Value) -> Value {
        self.call("POST", path, body).is(201).json()
    }

    #[track_caller]
    pub(crate) fn subscribe(&self, url: &str) {
        self.call("POST", "/v1/subscriptions", &json!({ "name": "erp", "url": url })).is(201);
    }

    /// Deliveries that wait.
    pub(crate) fn pending(&self) -> Option<u64> {
        self.try_call("GET", "/v1/stats", &Value::Null).ok()?.json()["pending"].as_u64()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        if let Some(log) = self.log.as_ref().filter(|_| thread::panicking()) {
            println!("{}", fs::read_to_string(log.path()).unwrap_or_default());
        }
    }
}

/// A request with a token; `Null` is no body.
pub(crate) fn call(
    address: SocketAddr,
    token: &str,
    method: &str,
    path: &str,
    body: &Value,
) -> std::io::Result<Answer> {
    let bearer = format!("Bearer {token}");
    let body = if body.is_null() { String::new() } else { body.to_string() };
    http::send(address, method, path, &[("Authorization", &bearer)], body.as_bytes())
}

/// A number from the environment.
pub(crate) fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// How far apart the passes are at which a failure is planned: each third, in long runs each.
pub(crate) fn passes() -> usize {
    usize::try_from(number("ONCEBOX_PASSES", 3)).unwrap()
}

pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
