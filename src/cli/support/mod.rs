//! `oncebox support`: one text about this installation for somebody who helps, without secrets and personal data.
//!
//! A text and no archive: its sender can read it first. The file [`redaction`] decides what is left out.

mod machine;
mod redaction;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::value_parser;

use crate::base::build;
use crate::base::clock::Clock;
use crate::cli::prelude::*;
use crate::cli::{config, doctor};
use crate::store::sqlite_version;
use crate::sys::files::NewFile;

/// Print one text for somebody who helps, without secrets and personal data
#[derive(Debug, Args)]
#[command(after_help = "\
In it: versions, the machine, settings that are not the default, checks, numbers, metrics, and the newest lines of the log.
Left out are payloads, secrets, names and mail addresses of people, public addresses, and paths of URLs. Names that you have
chosen are in it: of subscriptions, providers, tenants, sources, hosts. Read it before you send it.

  oncebox support --output support.txt")]
pub(super) struct Support {
    /// Write it into this file, which must not be there yet [default: print it]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Lines of the log, the newest ones; 0: none
    #[arg(long, value_name = "LINES", default_value_t = 500, value_parser = value_parser!(u32).range(..=10_000))]
    log_lines: u32,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// A part of the text. One that cannot be made says why.
struct Section {
    title: &'static str,
    text: String,
}

impl Section {
    fn new(title: &'static str, text: Result<String, Failure>) -> Self {
        let text = text.unwrap_or_else(|why| format!("not there: {}", why.message));
        Self { title, text: redaction::redacted(text.trim_end()) }
    }
}

impl Support {
    pub(super) fn run(&self, global: &GlobalArgs) -> Result<(), Failure> {
        // Checked first: it takes seconds to look at all.
        if let Some(path) = self.output.as_ref().filter(|path| path.exists()) {
            return Err(is_there(path));
        }
        let sections = self.sections(global);
        if self.connect.json() {
            let each = sections
                .iter()
                .map(|Section { title, text }| json!({ "title": title, "text": text }));
            return out::json(&each.collect::<Vec<Value>>());
        }
        let head = format!(
            "Oncebox support, {}\nWithout payloads, secrets and personal data. Read it before you send it.\n",
            Clock::machine().wall()
        );
        let each = sections.iter().map(|Section { title, text }| format!("\n== {title}\n{text}\n"));
        let text = head + &each.collect::<String>();
        let Some(path) = &self.output else { return out::exact(text.as_bytes()) };
        write(path, &text)?;
        out::line(format_args!("{} is written. Read it before you send it.", path.display()))
    }

    fn sections(&self, global: &GlobalArgs) -> Vec<Section> {
        let settings = global.settings();
        let described = settings.map(|settings| machine::described(&settings));
        let mut sections = vec![
            Section::new("Version", Ok(build::describe(sqlite_version()))),
            Section::new("Machine", described),
            Section::new("Settings that are not the default", config::changed(global)),
            Section::new("Checks", doctor::report(global)),
        ];
        match self.connect.open_running(global) {
            Err(why) => sections.push(Section::new("Service", Err(why))),
            Ok(remote) => sections.extend(of_service(&remote)),
        }
        if self.log_lines > 0 {
            sections.push(Section::new("Log", log(self.log_lines)));
        }
        sections
    }
}

/// What a running service says of itself.
fn of_service(remote: &Remote) -> Vec<Section> {
    let pretty = |path: &str| {
        let answer = remote.get(path)?;
        serde_json::to_string_pretty(&answer).map_err(Failure::failed)
    };
    vec![
        Section::new("Numbers", pretty("/v1/stats")),
        Section::new("Health", pretty("/readyz?verbose")),
        Section::new("Open escalations", escalations(remote)),
        Section::new("Metrics", metrics(remote)),
    ]
}

/// A line for each escalation. Its detail is left out: it may quote an answer.
fn escalations(remote: &Remote) -> Result<String, Failure> {
    let page = remote.get("/v1/escalations?limit=100")?;
    let line = |item: &Value| {
        let of = ["class", "subject", "severity", "opened_at", "count"];
        of.map(|field| text(item, field)).join("  ")
    };
    Ok(list(&page, "items").iter().map(line).collect::<Vec<String>>().join("\n"))
}

/// The metrics without their explanations, and without those that are 0.
fn metrics(remote: &Remote) -> Result<String, Failure> {
    let text = remote.text("/metrics")?;
    let is_said = |line: &&str| !line.starts_with('#') && !line.ends_with(" 0");
    Ok(text.lines().filter(is_said).collect::<Vec<&str>>().join("\n"))
}

/// The newest lines of the unit's log.
fn log(lines: u32) -> Result<String, Failure> {
    let lines = lines.to_string();
    let arguments = ["--unit=oncebox", "--no-pager", "--output=cat", "--lines", &lines];
    let asked = Command::new("journalctl").args(arguments).output();
    let asked = asked.map_err(|error| Failure::failed(format!("journalctl: {error}")))?;
    if !asked.status.success() {
        let why = String::from_utf8_lossy(&asked.stderr).into_owned();
        return Err(Failure::failed(format!("journalctl: {}", why.trim())));
    }
    Ok(String::from_utf8_lossy(&asked.stdout).into_owned())
}

fn is_there(path: &Path) -> Failure {
    Failure::input(format!("{} is there already: name another file", path.display()))
}

/// Writes a new file that only its owner may read.
fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let written = NewFile::create(path).and_then(|file| file.finish(text.as_bytes()));
    written.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => is_there(path),
        _ => Failure::failed(format!("{}: {error}", path.display())),
    })
}
