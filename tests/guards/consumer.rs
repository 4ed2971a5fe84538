//! A consumer with a directory of its own, tried by `oncebox conformance`.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// Events of a trial, unless the environment says otherwise.
const EVENTS: &str = "25";

/// One piece of a file in `packaging/sql/`, without the comments before it.
pub(crate) fn piece(database: &str, name: &str) -> String {
    let path = format!("{}/packaging/sql/{database}.sql", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let (_, from) = text.split_once(&format!("\n-- [{name}] ")).expect(name);
    let own = from.split("\n-- [").next().unwrap();
    let mut lines: Vec<&str> =
        own.lines().skip(1).skip_while(|line| line.starts_with("--")).collect();
    while lines.last().is_some_and(|line| line.is_empty() || line.starts_with("--")) {
        lines.pop();
    }
    lines.join("\n") + "\n"
}

pub(crate) struct Consumer {
    home: TempDir,
    count: String,
}

impl Consumer {
    pub(crate) fn new(count: &str) -> Self {
        Self { home: tempfile::tempdir().unwrap(), count: count.to_owned() }
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.home.path()).env("HOME", Path::new("/nonexistent"));
        command
    }

    /// Runs a script and tells what it prints.
    pub(crate) fn shell(&self, script: &str) -> String {
        let Output { status, stdout, stderr } =
            self.command("sh").args(["-e", "-c", script]).output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        assert!(status.success(), "{script}\nended with {status}\n{out}\n{err}");
        out.into_owned()
    }

    /// Writes a file into its directory, where its scripts run.
    pub(crate) fn file(&self, name: &str, text: &str) {
        std::fs::write(self.home.path().join(name), text).unwrap();
    }

    /// What `oncebox conformance` finds.
    pub(crate) fn report(&self, command: &[&str], flags: &[&str]) -> Value {
        let events = std::env::var("ONCEBOX_GUARD_EVENTS").unwrap_or_else(|_| EVENTS.to_owned());
        let mut conformance = self.command(env!("CARGO_BIN_EXE_oncebox"));
        conformance.args(["conformance", "--json", "--count", &self.count]);
        if !flags.contains(&"--events") {
            conformance.args(["--events", &events]);
        }
        let Output { status, stdout, stderr } =
            conformance.args(flags).arg("--").args(command).output().unwrap();
        let complained = String::from_utf8_lossy(&stderr);
        let report: Value =
            serde_json::from_slice(&stdout).unwrap_or_else(|error| panic!("{error}: {complained}"));
        assert_eq!(status.code(), Some(i32::from(report["good"] != true)), "{report}");
        report
    }

    pub(crate) fn is_good(&self, command: &[&str], flags: &[&str]) {
        let report = self.report(command, flags);
        assert_eq!(report["good"], true, "{report:#}");
        for what in ["kills", "duplicates", "concurrent", "overtaken"] {
            assert!(report[what].as_u64() > Some(0), "there were no {what}: {report:#}");
        }
    }

    /// A broken consumer has to be found: which kill hits the gap is chance, so it is given several trials.
    pub(crate) fn is_bad(&self, command: &[&str], flags: &[&str], what: &str) -> Value {
        for _ in 0..10 {
            let report = self.report(command, flags);
            if report["counted"][what].as_array().is_some_and(|names| !names.is_empty()) {
                assert_eq!(report["good"], false);
                return report;
            }
        }
        panic!("nothing {what} was found in ten trials");
    }
}
