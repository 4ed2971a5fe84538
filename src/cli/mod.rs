//! The command line: one file per command, and what they share.
//!
//! Commands that look or change talk to the running service over its API; [`serve`] is the service.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the command line is what prints")]

mod demo;
mod serve;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::settings::{Raw, Settings, SettingsError};

/// Webhooks in, business events out, each exactly once.
#[derive(Debug, Parser)]
#[command(name = "oncebox", version, about, long_about = None, disable_help_subcommand = true)]
struct Cli {
    #[command(flatten)]
    shared: Shared,
    #[command(subcommand)]
    command: Command,
}

/// Flags every command has.
#[derive(Clone, Debug, Args)]
struct Shared {
    /// Settings file [default: ./oncebox.toml, else /etc/oncebox/oncebox.toml, else none]
    #[arg(long, short, global = true, env = "ONCEBOX_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Directory of the database, the key and the first token
    #[arg(long, short, global = true, env = "ONCEBOX_DATA", value_name = "DIR")]
    data: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the service
    Serve(serve::Serve),
    /// Show and prove it: 10,000 invoices through crashes, lost answers and hanging receivers
    Demo(demo::Demo),
    /// One side of the demo, started by it
    #[command(hide = true)]
    DemoPart(demo::Part),
}

/// Why a command ends with something other than 0.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    /// 1: it was tried and did not work.
    pub(crate) fn failed(message: impl ToString) -> Self {
        Self { code: 1, message: message.to_string() }
    }

    /// 75: another process is in the way; later it may work.
    pub(crate) fn temporary(message: impl ToString) -> Self {
        Self { code: 75, message: message.to_string() }
    }

    /// 78: the settings are wrong.
    pub(crate) fn settings(message: impl ToString) -> Self {
        Self { code: 78, message: message.to_string() }
    }
}

impl From<SettingsError> for Failure {
    fn from(error: SettingsError) -> Self {
        Self::settings(error)
    }
}

impl Shared {
    /// The settings that hold: flags over environment over file over defaults.
    fn raw(&self) -> Result<Raw, Failure> {
        let mut raw = Raw::find(self.config.as_deref())?;
        if let Some(data) = &self.data {
            raw.data = Some(data.clone());
        }
        Ok(raw)
    }

    fn settings(&self) -> Result<Settings, Failure> {
        Ok(self.raw()?.resolve()?)
    }
}

/// Reads the command line and runs its command.
pub fn main() -> ExitCode {
    let Cli { shared, command } = Cli::parse();
    let outcome = match command {
        Command::Serve(serve) => serve.run(&shared),
        Command::Demo(demo) => demo.run(),
        Command::DemoPart(part) => part.run(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { code, message }) => {
            eprintln!("oncebox: {message}");
            ExitCode::from(code)
        }
    }
}
