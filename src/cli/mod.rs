//! The command line: one file per command, and the code that commands share.
//!
//! Most commands call the running service's API ([`remote`]) and show the answer; [`serve`] is the service.
//! Decisions about events are not made here.

mod alert;
mod apply;
mod archive;
mod audit;
mod backup;
mod batch_files;
mod bench;
mod clock;
mod compare;
mod config;
mod conformance;
mod consume;
mod credential;
mod database;
mod ddl;
mod delivery;
mod demo;
mod doctor;
mod emit;
mod event;
mod exit;
mod flag;
mod help;
mod input;
mod job;
mod keys;
mod lane;
mod listen;
mod migrate;
mod noun;
mod nouns;
mod out;
mod parted_answer;
mod pii;
mod prelude;
mod probe;
mod process;
mod provider;
mod reconcile;
mod remote;
mod replay;
mod restore;
mod secrets;
mod serve;
mod setup;
mod show;
mod source;
mod status;
mod subject;
mod subscription;
mod support;
mod timeline;
mod token;
mod top;
mod trigger;
mod user;
mod verb;
mod verify_signature;
mod what_if;

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::base::build;
use crate::cli::exit::Failure;
use crate::cli::remote::GlobalArgs;
use crate::store::sqlite_version;
use crate::sys::name_service;

/// Webhooks in, business events out, each exactly once.
#[derive(Parser)]
#[command(
    name = "oncebox",
    version,
    long_version = build::describe(sqlite_version()),
    about,
    long_about = None,
    arg_required_else_help = true
)]
struct Cli {
    #[command(flatten)]
    global: GlobalArgs,
    #[command(subcommand)]
    command: Command,
}

// `help::GROUPS` sets the group of a command on the help page.
#[derive(Subcommand)]
enum Command {
    /// Run the service
    Serve(serve::Serve),
    Setup(setup::Setup),
    /// Prove exactly-once: 10,000 invoices through crashes, lost answers and hanging receivers
    Demo(demo::Demo),
    /// Measure what Oncebox does on this machine, in half a minute and without an installation
    Bench(bench::Bench),
    /// One process of the demo, which starts it
    #[command(hide = true)]
    DemoPart(demo::DemoPart),
    /// Show whether the service runs, and how much waits
    Status(status::Status),
    /// Show what happens now, anew each second
    Top(top::Top),
    /// Run a command for each event of a pull subscription
    Consume(Box<consume::Consume>),
    /// Show events as they come, and forward them to a program under development
    Listen(listen::Listen),
    Replay(Box<replay::Replay>),
    /// Post a signed sample webhook to this installation
    Trigger(trigger::Trigger),
    VerifySignature(verify_signature::VerifySignature),
    BatchFiles(batch_files::BatchFiles),
    /// Test a policy for personal data
    Pii(pii::PiiCommand),
    /// Check the installation: files, key, disk, clock, address
    Doctor(doctor::Doctor),
    Support(support::Support),
    /// Show settings and where they are set, and check them for mistakes
    Config(config::Config),
    /// Create and change tenants, providers, subscriptions, tokens and sources to match a file
    Apply(apply::Apply),
    /// Print tenants, providers, subscriptions, tokens and sources as a file for apply, without secrets
    Export(apply::Export),
    /// Copy the database and its months while they are in use; check and list the copies
    Backup(backup::Backup),
    /// Restore a backup; events that may have been sent after it are held
    Restore(restore::Restore),
    /// Show and upgrade the database's schema version
    Migrate(migrate::Migrate),
    /// Test a consumer's guard with repeated, concurrent and out-of-order events and kill -9
    Conformance(conformance::Conformance),
    /// Print the description of the API (OpenAPI 3.1)
    #[command(name = "openapi")]
    OpenApi(help::OpenApi),
    /// Print completions for a shell
    Completions(help::Completions),
    /// Write the manual pages into a directory, one per command
    Manual(help::Manual),
}

/// Calls `run` of the given command.
macro_rules! run {
    ($command:expr, $global:expr, [$($name:ident),*]) => {
        match $command { $(Command::$name(command) => command.run($global),)* }
    };
}

impl Command {
    #[rustfmt::skip]
    fn run(&self, global: &GlobalArgs) -> Result<(), Failure> {
        run!(self, global, [
            Serve, Setup, Demo, Bench, DemoPart, Status, Top, Consume, Listen, Replay, Trigger,
            VerifySignature, BatchFiles, Pii, Doctor, Support,
            Config, Apply, Export, Backup, Restore, Migrate, Conformance, OpenApi, Completions, Manual
        ])
    }
}

/// The command line's definition.
fn command() -> clap::Command {
    help::with_help_page(Cli::command().subcommands(nouns::commands()))
}

/// The command line's definition with all that is otherwise made only when it is needed, for documents.
fn whole_command() -> clap::Command {
    help::with_help_page(Cli::command().subcommands(nouns::complete()))
}

/// Removes hidden commands from an error's suggestions.
fn without_hidden(mut error: clap::Error) -> clap::Error {
    let kind = ContextKind::SuggestedSubcommand;
    let Some(ContextValue::Strings(names)) = error.remove(kind) else { return error };
    let known = command();
    let is_shown =
        |name: &String| known.find_subcommand(name).is_none_or(|command| !command.is_hide_set());
    let shown: Vec<String> = names.into_iter().filter(is_shown).collect();
    if !shown.is_empty() {
        error.insert(kind, ContextValue::Strings(shown));
    }
    error
}

/// Reads the command line and runs its command.
pub fn main() -> ExitCode {
    name_service::use_files_and_dns();
    let matches = match command().try_get_matches() {
        Ok(matches) => matches,
        Err(error) => {
            let error = without_hidden(error);
            // `oncebox --help | head` closes the pipe early, which is not a failure.
            drop(error.print());
            return ExitCode::from(if error.use_stderr() { exit::USAGE } else { exit::OK });
        }
    };
    let other = || {
        let cli = Cli::from_arg_matches(&matches).map_err(Failure::usage)?;
        cli.command.run(&cli.global)
    };
    match nouns::run(&matches).unwrap_or_else(other) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { code, message }) => {
            if !message.is_empty() {
                out::note(format_args!("oncebox: {message}"));
            }
            ExitCode::from(code)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_not_contradictory() {
        command().debug_assert();
    }

    #[test]
    fn the_help_page_has_every_command_and_every_exit_code() {
        let page = command().render_help().to_string();
        for known in command().get_subcommands().filter(|known| !known.is_hide_set()) {
            let name = known.get_name();
            assert!(page.contains(&format!("\n  {name} ")), "{name} is not in\n{page}");
        }
        for (code, meaning) in exit::MEANINGS {
            assert!(page.contains(&format!("{code:<4}{meaning}")), "{page}");
        }
    }

    /// Every command with the words that lead to it.
    fn tree() -> Vec<(String, clap::Command)> {
        let mut root = command();
        root.build();
        let mut open = vec![(String::new(), root)];
        let mut all = Vec::new();
        while let Some((path, command)) = open.pop() {
            let inner = command.get_subcommands().filter(|inner| inner.get_name() != "help");
            open.extend(inner.map(|inner| (format!("{path} {}", inner.get_name()), inner.clone())));
            all.push((path, command));
        }
        all
    }

    fn has(command: &clap::Command, flags: &[&str]) -> bool {
        let longs: Vec<&str> = command.get_arguments().filter_map(clap::Arg::get_long).collect();
        flags.iter().all(|flag| longs.contains(flag))
    }

    #[test]
    fn every_list_has_the_same_pages_and_the_same_time_range() {
        let flags = ["since", "until", "limit", "after", "all", "json"];
        let mut lists = 0;
        for (path, command) in tree() {
            // The keys of a database are two or three, its months and the databases of others a few, and none has times.
            let few = [" keys list", " archive list", " database list"];
            if path.ends_with(" list") && !few.contains(&path.as_str()) {
                lists += 1;
                assert!(has(&command, &flags), "oncebox{path}");
            }
        }
        assert!(lists > 10, "{lists}");
    }

    #[test]
    fn what_deletes_asks_and_what_acts_on_many_has_a_dry_run() {
        let deleting = [
            "delete", "remove", "withdraw", "revoke", "erase", "discard", "cancel", "settle",
            "release", "abandon",
        ];
        for (path, command) in tree() {
            let verb = path.rsplit(' ').next().unwrap();
            if deleting.contains(&verb) || has(&command, &["prune"]) || has(&command, &["clean"]) {
                assert!(has(&command, &["yes"]), "oncebox{path}");
            }
            let is_many =
                path != " listen" && has(&command, &["all"]) && !has(&command, &["limit"]);
            if is_many || has(&command, &["prune"]) {
                assert!(has(&command, &["yes", "dry-run"]), "oncebox{path}");
            }
        }
    }

    #[test]
    fn a_flag_means_the_same_in_every_command() {
        let mut said = std::collections::BTreeMap::new();
        for (path, command) in tree() {
            for flag in ["server", "token-file", "json", "yes", "limit", "after", "since", "until"]
            {
                let other = [" audit export", " archive views"].contains(&path.as_str());
                let same_word = other || path.starts_with(" in-doubt ");
                let argument = command.get_arguments().find(|arg| arg.get_long() == Some(flag));
                let Some(argument) = argument.filter(|_| !same_word) else { continue };
                let help = argument.get_help().map(ToString::to_string);
                let known = said.entry(flag).or_insert_with(|| help.clone());
                assert_eq!(*known, help, "oncebox{path} --{flag}");
            }
            let mut longs = command.get_arguments().filter_map(clap::Arg::get_long);
            let server = longs.any(|long| long == "service");
            assert!(!server, "oncebox{path}: the service is named with --server");
            let page = command.clone().render_long_help().to_string();
            assert!(!page.contains("dlq"), "oncebox{path}");
        }
    }
}
