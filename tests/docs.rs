//! Runs the commands of the README and of the examples as a reader would paste them: the service in one shell, the
//! rest in another, in a directory of their own.
//!
//! Three things differ from the page: ports are free ones, the demo is given fewer invoices, and what cargo runs has
//! been built before.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::as_conversions,
    reason = "tests fail by panicking and own their processes"
)]

#[path = "rig/mod.rs"]
mod rig;

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const README: &str = include_str!("../README.md");
const EXAMPLES: &str = include_str!("../examples/README.md");

/// A `sh` block of the README and the shell its marker names: `serve`, `client`, or none.
struct Block<'a> {
    shell: &'a str,
    text: &'a str,
}

fn blocks(page: &str) -> Vec<Block<'_>> {
    let mut found = Vec::new();
    let mut before = "";
    for (n, part) in page.split("```").enumerate() {
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
    let data = if script.contains("--data target/shop") { "--data target/shop" } else { "" };
    let until = Instant::now() + Duration::from_secs(20);
    while !shell(&format!("oncebox status {data}"), directory, port)
        .output()
        .unwrap()
        .status
        .success()
    {
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
    let all = blocks(README);
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
fn the_examples_do_everything_once_as_printed() {
    if Command::new("python3").arg("--version").output().is_err() {
        return rig::skipped("needs python3");
    }
    let directory = tempfile::tempdir().unwrap();
    let (home, port) = (directory.path(), free_port());
    let erp = Path::new(env!("CARGO_BIN_EXE_oncebox")).with_file_name("examples").join("erp");
    if !erp.exists() {
        // `cargo test` has built it; `cargo test --test docs` has not.
        let build =
            Command::new(env!("CARGO")).args(["build", "--quiet", "--example", "erp"]).status();
        assert!(build.unwrap().success());
    }
    let ports = [free_port(), free_port()];
    let placed = EXAMPLES
        .replace("cargo run --example erp --", erp.to_str().unwrap())
        .replace("examples/erp.py", concat!(env!("CARGO_MANIFEST_DIR"), "/examples/erp.py"))
        .replace("8720", &ports[0].to_string())
        .replace("8730", &ports[1].to_string());
    let mut said = String::new();
    let mut service = None;
    for Block { shell, text } in blocks(&placed) {
        match shell {
            "serve" => service = Some(start(text, home, port)),
            _ => said.push_str(&run(text, home, port)),
        }
    }
    drop(service);
    // What the page shows, but for the id.
    let shown = EXAMPLES
        .split("```\n")
        .filter(|part| part.starts_with("invoice 1 ") || part.starts_with("order 1 "));
    for line in shown.flat_map(str::lines) {
        let (before, after) = line.split_once("evt_…").unwrap_or((line, ""));
        let is_there = |said: &str| said.starts_with(before) && said.ends_with(after);
        assert!(said.lines().any(is_there), "{line:?} is not in\n{said}");
    }
    assert_eq!(said.matches("completed").count(), 4, "two events and two deliveries:\n{said}");
}

#[test]
fn every_other_command_of_the_readme_is_known_here() {
    let directory = tempfile::tempdir().unwrap();
    for block in blocks(README).iter().filter(|block| block.shell.is_empty()) {
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
