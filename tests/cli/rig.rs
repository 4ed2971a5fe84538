//! A service in a directory of its own, a target that answers as it is told, and the program.
//!
//! Not here: what is expected of any of them.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::rig::shows;

/// What most files of this program import.
pub(crate) mod prelude {
    pub(crate) use std::os::unix::fs::PermissionsExt;

    pub(crate) use super::{Ran, Rig, Target, run};
    pub(crate) use crate::rig::prelude::*;
}

/// A running service; killed when dropped.
pub(crate) struct Rig {
    pub(crate) dir: TempDir,
    child: Option<Child>,
}

/// What a command came to.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// Asserts its code, and what it says beside its output.
    #[track_caller]
    pub(crate) fn ends(&self, code: i32, said: &[&str]) -> &Self {
        assert_eq!(self.code, code, "{self:?}");
        self.warns(said)
    }

    /// Asserts that it failed, and what it says of that.
    #[track_caller]
    pub(crate) fn fails(&self, said: &[&str]) -> &Self {
        assert_ne!(self.code, 0, "{self:?}");
        self.warns(said)
    }

    /// Asserts what it says beside its output.
    #[track_caller]
    pub(crate) fn warns(&self, said: &[&str]) -> &Self {
        shows(&self.err, said);
        self
    }

    /// Asserts what its output has.
    #[track_caller]
    pub(crate) fn prints(&self, said: &[&str]) -> &Self {
        shows(&self.out, said);
        self
    }
}

/// The program, with nothing of the machine's own settings.
fn program(dir: &Path) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("oncebox"));
    command.env_clear().env("ONCEBOX_DATABASE__DIRECTORY", dir).current_dir(dir);
    command
}

impl Rig {
    /// A service that has answered its first request.
    pub(crate) fn new() -> Self {
        let mut rig = Self::stopped();
        rig.start();
        rig
    }

    /// Only the directory.
    pub(crate) fn stopped() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = "[listen]\napi = \"127.0.0.1:0\"\n[delivery]\nallow = [\"127.0.0.1/32\"]\n\
                      [disk]\nreserve = 0\n";
        std::fs::write(dir.path().join("oncebox.toml"), config).unwrap();
        Self { dir, child: None }
    }

    /// Starts the service, on another port each time.
    pub(crate) fn start(&mut self) {
        let mut command = program(self.dir.path());
        command.args(["serve", "--listen", "127.0.0.1:0"]);
        let log = OpenOptions::new().create(true).append(true).open(self.log_path()).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut greeting = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut greeting).unwrap();
        assert!(greeting.contains("listens on http://127.0.0.1:"), "{greeting:?}");
        self.child = Some(child);
    }

    fn log_path(&self) -> PathBuf {
        self.dir.path().join("serve.log")
    }

    /// What the service has logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap()
    }

    /// Sends the service a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
    }

    /// Ends the service as a power cut would.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// A file in the directory.
    pub(crate) fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// The program, to be run in some special way.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = program(self.dir.path());
        command.args(args);
        command
    }

    /// A shell's command with a terminal of its own, which copies its keys from stdin and its screen to stdout.
    pub(crate) fn terminal(&self, line: &str) -> Command {
        let mut command = Command::new("script");
        let directory = self.dir.path();
        // No shell stays in between: Ctrl-C would end it, and its code would be the answer.
        command.args(["--quiet", "--return", "--command", &format!("exec {line}"), "/dev/null"]);
        command.env("ONCEBOX_DATABASE__DIRECTORY", directory).current_dir(directory);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command
    }

    /// Runs the program to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        self.run_with(args, "")
    }

    /// Runs the program with something on stdin.
    pub(crate) fn run_with(&self, args: &[&str], stdin: &str) -> Ran {
        run(&mut self.command(args), stdin)
    }

    /// Runs what has to work; its stdout.
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let ran = self.run(args);
        assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
        ran.out
    }

    /// Runs what has to work with `--json`; the JSON.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let out = self.ok(&[args, &["--json"]].concat());
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{args:?}: {error}: {out}"))
    }

    /// The items of a list.
    pub(crate) fn items(&self, args: &[&str]) -> Vec<Value> {
        self.json(args)["items"].as_array().unwrap().clone()
    }

    /// Asks again until it is so.
    pub(crate) fn until(&self, what: &str, mut so: impl FnMut(&Self) -> bool) {
        let end = Instant::now() + crate::rig::PATIENCE;
        while !so(self) {
            assert!(Instant::now() < end, "it is still not so: {what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command, stdin: &str) -> Ran {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let text = stdin.to_owned();
    let writer = std::thread::spawn(move || drop(input.write_all(text.as_bytes())));
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    writer.join().unwrap();
    Ran {
        code: status.code().unwrap_or(-1),
        out: String::from_utf8(stdout).unwrap(),
        err: String::from_utf8(stderr).unwrap(),
    }
}

/// A target that answers every request with the same status, which can be changed.
pub(crate) struct Target {
    pub(crate) url: String,
    pub(crate) status: Arc<AtomicU16>,
}

impl Target {
    pub(crate) fn answering(status: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let status = Arc::new(AtomicU16::new(status));
        let told = Arc::clone(&status);
        // Ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let told = told.load(Ordering::SeqCst);
                std::thread::spawn(move || answer(stream, told));
            }
        });
        Self { url, status }
    }
}

/// Answers one request and closes, with something in the body that a terminal must not get.
fn answer(mut stream: std::net::TcpStream, status: u16) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut length = 0;
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        line.clear();
    }
    let mut body = vec![0; length];
    drop(reader.read_exact(&mut body));
    let text = "booked as SI-0042\u{1b}[31m";
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
        text.len()
    );
    drop(stream.write_all(head.as_bytes()));
}
