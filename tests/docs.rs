//! Runs the commands of the README as a reader would paste them: the service in one shell, the rest in
//! another, in a directory of their own.
//!
//! Two things differ from the page: the port is a free one, and the demo is given fewer invoices.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests fail by panicking and own their processes"
)]

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const README: &str = include_str!("../README.md");

/// A `sh` block of the README and the shell its marker names: `serve`, `client`, or none.
struct Block<'a> {
    shell: &'a str,
    text: &'a str,
}

fn blocks() -> Vec<Block<'static>> {
    let mut found = Vec::new();
    let mut before = "";
    for (n, part) in README.split("```").enumerate() {
        if n % 2 == 0 {
            before = part;
        } else if let Some(text) = part.strip_prefix("sh\n") {
            let marker = before.trim_end().rsplit_once("<!-- run: ");
            let shell = marker.and_then(|(_, rest)| rest.strip_suffix(" -->")).unwrap_or("");
            found.push(Block { shell, text });
        }
    }
    found
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn shell(script: &str, directory: &Path, port: u16) -> Command {
    let binary = Path::new(env!("CARGO_BIN_EXE_oncebox"));
    let path = format!(
        "{}:{}",
        binary.parent().unwrap().display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let mut command = Command::new("sh");
    command
        .args(["-e", "-c", &script.replace("8710", &port.to_string())])
        .current_dir(directory)
        .env("PATH", path)
        .env("HOME", directory)
        .env_remove("XDG_DATA_HOME")
        .env_remove("STATE_DIRECTORY")
        .env("ONCEBOX_LISTEN__API", format!("127.0.0.1:{port}"))
        // This machine may be fuller than one that keeps invoices.
        .env("ONCEBOX_DISK__RESERVE", "0");
    command
}

struct Service(Child);

impl Drop for Service {
    fn drop(&mut self) {
        // The shell is replaced by the service (exec), so this ends the service itself.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn start(script: &str, directory: &Path, port: u16) -> Service {
    let script = script.replace("oncebox serve", "exec oncebox serve");
    let child = shell(&script, directory, port).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let service = Service(child.unwrap());
    let until = Instant::now() + Duration::from_secs(20);
    while !shell("oncebox status", directory, port).output().unwrap().status.success() {
        assert!(Instant::now() < until, "the service did not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    service
}

fn run(script: &str, directory: &Path, port: u16) -> String {
    let Output { status, stdout, stderr } = shell(script, directory, port).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{script}\nended with {status}\n{out}\n{err}");
    out.into_owned()
}

#[test]
fn the_ten_minutes_of_the_readme_work_as_printed() {
    let directory = tempfile::tempdir().unwrap();
    let (home, port) = (directory.path(), free_port());
    let all = blocks();
    let of =
        |shell: &str| all.iter().filter(|b| b.shell == shell).map(|b| b.text).collect::<Vec<_>>();
    let [serve] = of("serve")[..] else { panic!("one block starts the service") };
    let [webhook, event] = of("client")[..] else { panic!("two blocks use it") };

    let service = start(serve, home, port);
    let seen = run(webhook, home, port);
    assert!(seen.contains("/in/stripe"), "{seen}");
    run(event, home, port);
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let delivered = run("oncebox delivery list", home, port);
        let received = run("oncebox webhook list --provider from-finance", home, port);
        if delivered.contains("completed") && received.contains("from-finance") {
            break;
        }
        assert!(Instant::now() < until, "not delivered:\n{delivered}\n{received}");
        std::thread::sleep(Duration::from_millis(50));
    }

    // "Run the emit line again … Kill the service with kill -9 and start it again."
    let emit = event.lines().find(|line| line.starts_with("oncebox emit")).unwrap();
    let again = run(emit, home, port);
    assert!(again.contains("known before"), "{again}");
    drop(service);
    let _service = start(serve, home, port);
    let events = run("oncebox event list --aggregate-id 4711 --json", home, port);
    assert_eq!(events.matches("invoice.paid:4711").count(), 1, "{events}");
}

#[test]
fn every_other_command_of_the_readme_is_known_here() {
    let directory = tempfile::tempdir().unwrap();
    for block in blocks().iter().filter(|block| block.shell.is_empty()) {
        for line in block.text.lines() {
            match line {
                "cargo run --release -- demo" => {
                    let report = directory.path().join("report.html");
                    let demo = format!("oncebox demo --invoices 100 --report {}", report.display());
                    let said = run(&demo, directory.path(), free_port());
                    assert!(said.contains("0 lost, 0 duplicated"), "{said}");
                }
                // Builds what this test already runs, or runs this test.
                "cargo install --path ." | "cargo test" => {}
                other => panic!("the README has a command that no test runs: {other}"),
            }
        }
    }
}
