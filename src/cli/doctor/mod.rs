//! `oncebox doctor`: looks over the installation, beside a running service or without one.
//!
//! Each group of checks is a file. `/readyz` of a running service uses the same `model::health`. `--fix` does only
//! what cannot lose anything.

mod database;
mod databases;
mod files;
mod service;

use std::fs::File;
use std::path::PathBuf;

use crate::app::data_directory::{DATABASE, LOCK_FILE};
use crate::base::clock::Clock;
use crate::cli::out;
use crate::cli::prelude::*;
use crate::config::Settings;
use crate::model::health::{self, Check, Level};
use crate::sys::files::is_closed;
use crate::sys::user;

#[derive(Debug, Args)]
pub(super) struct Doctor {
    /// Compare indexes with their tables as well: reads the whole database
    #[arg(long)]
    deep: bool,
    /// Fix what can be fixed without risk: modes, missing directories, a stale address, the log
    #[arg(long)]
    fix: bool,
    #[command(flatten)]
    format: Format,
}

/// What the checks look at.
struct Installation {
    settings: Settings,
    clock: Clock,
    deep: bool,
    fix: bool,
    /// Whether a service holds the directory.
    served: bool,
}

/// A check, and what was fixed.
#[derive(Clone)]
struct Finding {
    check: Check,
    fixed: Option<String>,
}

impl From<Check> for Finding {
    fn from(check: Check) -> Self {
        Self { check, fixed: None }
    }
}

impl Installation {
    fn database(&self) -> PathBuf {
        self.settings.directory().join(DATABASE)
    }
}

fn ok(name: &'static str, detail: impl Into<String>) -> Finding {
    Check::new(name, Level::Ok, Value::Null, detail).into()
}

fn warn(name: &'static str, detail: impl Into<String>) -> Finding {
    Check::new(name, Level::Warn, Value::Null, detail).into()
}

fn fail(name: &'static str, detail: impl Into<String>) -> Finding {
    Check::new(name, Level::Fail, Value::Null, detail).into()
}

impl Doctor {
    pub(super) fn run(&self, global: &GlobalArgs) -> Result<(), Failure> {
        let Self { deep, fix, format } = *self;
        let findings = look(global.settings()?, deep, fix)?;
        if format.json {
            out::json(&shown(&findings))?;
        } else {
            out::line(lines(&findings).join("\n"))?;
        }
        let failed = findings.iter().filter(|finding| finding.check.level == Level::Fail).count();
        match failed {
            0 => Ok(()),
            failed => Err(Failure::failed(format!("{failed} of {} checks fail", findings.len()))),
        }
    }
}

/// What `oncebox doctor` prints, as a text.
pub(super) fn report(global: &GlobalArgs) -> Result<String, Failure> {
    let findings = look(global.settings()?, false, false)?;
    Ok(lines(&findings).join("\n"))
}

fn look(settings: Settings, deep: bool, fix: bool) -> Result<Vec<Finding>, Failure> {
    let lock = settings.directory().join(LOCK_FILE);
    let served = user::in_directory(settings.directory(), || Ok(is_locked(&lock)));
    let served = served.map_err(Failure::failed)?;
    let here = Installation { settings, clock: Clock::machine(), deep, fix, served };
    let mut findings = Vec::new();
    if is_closed(here.settings.directory()) {
        findings.push(closed(&here));
    } else {
        let each = || {
            let found = [files::look(&here), database::look(&here), databases::look(&here)];
            Ok(found.concat())
        };
        let found = user::in_directory(here.settings.directory(), each);
        findings.extend(found.map_err(Failure::failed)?);
    }
    findings.extend(service::host(&here));
    findings.extend(service::look(&here));
    Ok(findings)
}

/// A directory that this user may not open cannot be checked.
fn closed(here: &Installation) -> Finding {
    let directory = here.settings.directory().display();
    let detail = format!(
        "{directory} is closed to this user, as it should be: to look into it, run this as root or as the \
         service's user (sudo)"
    );
    warn("directory", detail)
}

/// Whether a running service holds the lock.
fn is_locked(path: &std::path::Path) -> bool {
    File::open(path).is_ok_and(|file| file.try_lock().is_err())
}

fn shown(findings: &[Finding]) -> Value {
    let checks: Vec<Check> = findings.iter().map(|finding| finding.check.clone()).collect();
    let each: Vec<Value> = findings
        .iter()
        .map(|Finding { check, fixed }| {
            json!({
                "name": check.name, "state": check.level.as_str(), "detail": check.detail,
                "value": check.value, "fixed": fixed,
            })
        })
        .collect();
    json!({ "state": health::worst(&checks).as_str(), "checks": each })
}

fn lines(findings: &[Finding]) -> Vec<String> {
    let mut lines = Vec::new();
    for Finding { check: Check { name, level, detail, .. }, fixed } in findings {
        lines.push(format!("{:<5} {name:<14} {detail}", level.as_str()));
        lines.extend(fixed.as_ref().map(|fixed| format!("      {:<14} fixed: {fixed}", "")));
    }
    lines
}
