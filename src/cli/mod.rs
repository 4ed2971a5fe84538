//! The command line: one file per command, and what they share.
//!
//! Commands that look or change talk to the running service over its API ([`remote`]); [`serve`] is the
//! service. Nothing here decides anything about events: a command asks, and shows the answer.

mod apply;
mod audit;
mod backup;
mod completions;
mod config;
mod conformance;
mod consume;
mod ddl;
mod dead_letter;
mod delivery;
mod demo;
mod difference;
mod doctor;
mod emit;
mod escalation;
mod event;
mod exit;
mod export;
mod failed_starts;
mod help;
mod in_doubt;
mod input;
mod key_pair;
mod keys;
mod listen;
mod listing;
mod manual;
mod migrate;
mod openapi;
mod out;
mod pii;
mod progress;
mod provider;
mod reload;
mod remote;
mod repair;
mod restore;
mod secrets;
mod serve;
mod show;
mod source;
mod status;
mod subject;
mod subscription;
mod tenant;
mod timeline;
mod token;
mod trigger;
mod verify_signature;
mod webhook;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::config::{Environment, Settings, SettingsError, Sources};

/// Webhooks in, business events out, each exactly once.
#[derive(Debug, Parser)]
#[command(name = "oncebox", version, about, long_about = None, arg_required_else_help = true)]
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
    #[arg(
        long,
        short,
        global = true,
        env = "ONCEBOX_CONFIG",
        value_name = "FILE",
        display_order = 900
    )]
    config: Option<PathBuf>,
    /// Directory of the database, the key and the first token
    #[arg(long, short, global = true, value_name = "DIR", display_order = 901)]
    data: Option<PathBuf>,
}

// A command's place on the help page is set in `help::GROUPS`.
#[derive(Debug, Subcommand)]
enum Command {
    /// Run the service
    Serve(serve::Serve),
    /// Show and prove it: 10,000 invoices through crashes, lost answers and hanging receivers
    Demo(demo::Demo),
    /// One side of the demo, started by it
    #[command(hide = true)]
    DemoPart(demo::Part),
    /// Whether it runs, and how much waits
    Status(status::Status),
    /// Publish events: one from flags, or many as lines of JSON
    Emit(Box<emit::Emit>),
    /// What was published, where it went and what was answered
    Event(event::Event),
    /// What providers posted to us
    Webhook(webhook::Webhook),
    /// One event for one subscription: look, send again, cancel
    Delivery(delivery::Deliveries),
    /// Deliveries that were given up: look, send again
    #[command(alias = "dlq")]
    DeadLetter(dead_letter::DeadLetter),
    /// Run a command for each event of a pull subscription
    Consume(Box<consume::Consume>),
    /// Show events as they come, and forward them to a program under development
    Listen(listen::Listen),
    /// Post a signed sample webhook to the own intake
    Trigger(trigger::Trigger),
    VerifySignature(verify_signature::VerifySignature),
    /// Who may post webhooks, and how they sign
    Provider(provider::Providers),
    /// Who wants which events, and where they go
    Subscription(Box<subscription::Subscriptions>),
    /// Where events are read from besides the API: an ERP's own file, a folder
    Source(Box<source::Sources>),
    /// Failures that a person must see
    Escalation(escalation::Escalations),
    /// Whose data there is on this box
    Tenant(tenant::Tenants),
    /// Try a policy on personal data
    Pii(pii::PiiCommand),
    /// Those whose personal data is sealed: find, erase
    Subject(subject::Subjects),
    /// Who may use the API
    Token(token::Tokens),
    /// Look over the installation: file, key, disk, clock, address
    Doctor(doctor::Doctor),
    /// Settings: what holds and why, and what is wrong
    Config(config::Config),
    /// Make tenants, providers, subscriptions, tokens and sources as the file declares them
    Apply(apply::Apply),
    /// Print tenants, providers, subscriptions, tokens and sources as apply takes them, without secrets
    Export(export::Export),
    /// Who changed what, and whether anybody has touched the record of it
    Audit(Box<audit::Audit>),
    /// Copy the database while it is in use; check and list the copies
    Backup(backup::Backup),
    /// Put a backup back; what may have been sent after it is held
    Restore(restore::Restore),
    /// After a restore: deliveries that may have been made before
    InDoubt(in_doubt::InDoubt),
    /// Which schema the database has; bring it up to date
    Migrate(migrate::Migrate),
    /// The master key, under which every stored secret is sealed
    Keys(keys::Keys),
    /// Try whether a consumer's guard holds: repeats, at the same time, out of order, kill -9
    Conformance(conformance::Conformance),
    /// Print the description of the API (OpenAPI 3.1)
    #[command(name = "openapi")]
    OpenApi,
    /// Print the completions of a shell
    Completions(completions::Completions),
    /// Write the manual pages
    Manual(manual::Manual),
}

/// Why a command ends with something other than 0.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    /// Any code of [`exit`].
    fn new(code: u8, message: impl ToString) -> Self {
        Self { code, message: message.to_string() }
    }

    /// Nobody reads what is printed: there is nothing to say, and nothing went wrong.
    fn quiet() -> Self {
        Self::new(exit::OK, "")
    }

    /// 1: it was tried and did not work.
    pub(crate) fn failed(message: impl ToString) -> Self {
        Self::new(exit::FAILED, message)
    }

    /// 65: what was given cannot be accepted.
    fn input(message: impl ToString) -> Self {
        Self::new(exit::BAD_INPUT, message)
    }

    /// 75: another process is in the way; later it may work.
    pub(crate) fn temporary(message: impl ToString) -> Self {
        Self::new(exit::TEMPORARY, message)
    }

    /// 78: the settings are wrong.
    pub(crate) fn settings(message: impl ToString) -> Self {
        Self::new(exit::BAD_CONFIGURATION, message)
    }

    /// The same, with more to say.
    fn and(self, more: impl std::fmt::Display) -> Self {
        Self { code: self.code, message: format!("{}\n{more}", self.message) }
    }
}

impl From<SettingsError> for Failure {
    fn from(error: SettingsError) -> Self {
        Self::settings(error)
    }
}

impl Shared {
    /// Where settings come from: flags over environment over file over defaults.
    fn sources(&self) -> Sources {
        let mut sources = Sources {
            file: self.config.clone(),
            environment: Environment::of_process(),
            flags: Vec::new(),
        };
        if let Some(data) = &self.data {
            sources.flag("database.directory", "--data", data.display());
        }
        sources
    }

    /// The settings that hold.
    fn settings(&self) -> Result<Settings, Failure> {
        Ok(self.sources().load()?.settings)
    }
}

impl Command {
    fn run(&self, shared: &Shared) -> Result<(), Failure> {
        match self {
            Self::Serve(serve) => serve.run(shared),
            Self::Status(status) => status.run(shared),
            Self::Doctor(doctor) => doctor.run(shared),
            Self::Emit(emit) => emit.run(shared),
            Self::Event(event) => event.run(shared),
            Self::Webhook(webhook) => webhook.run(shared),
            Self::Delivery(deliveries) => deliveries.run(shared),
            Self::DeadLetter(dead_letter) => dead_letter.run(shared),
            Self::Consume(consume) => consume.run(shared),
            Self::Listen(listen) => listen.run(shared),
            Self::Trigger(trigger) => trigger.run(shared),
            Self::VerifySignature(verify) => verify.run(),
            Self::Provider(providers) => providers.run(shared),
            Self::Subscription(subscriptions) => subscriptions.run(shared),
            Self::Source(sources) => sources.run(shared),
            Self::Escalation(escalations) => escalations.run(shared),
            Self::Tenant(tenants) => tenants.run(shared),
            Self::Pii(pii) => pii.run(),
            Self::Subject(subjects) => subjects.run(shared),
            Self::Token(tokens) => tokens.run(shared),
            Self::Config(config) => config.run(shared),
            Self::Apply(apply) => apply.run(shared),
            Self::Export(export) => export.run(shared),
            Self::Audit(audit) => audit.run(shared),
            Self::Backup(backup) => backup.run(shared),
            Self::Restore(restore) => restore.run(shared),
            Self::InDoubt(in_doubt) => in_doubt.run(shared),
            Self::Migrate(migrate) => migrate.run(shared),
            Self::Keys(keys) => keys.run(shared),
            Self::Conformance(conformance) => conformance.run(),
            Self::OpenApi => openapi::print(),
            Self::Completions(completions) => completions.run(),
            Self::Manual(manual) => manual.run(),
            Self::Demo(demo) => demo.run(),
            Self::DemoPart(part) => part.run(),
        }
    }
}

/// The command line as clap knows it.
fn command() -> clap::Command {
    help::arranged(Cli::command())
}

/// A mistake on the command line, without the advice to use a command that is hidden.
fn without_hidden(mut error: clap::Error) -> clap::Error {
    let kind = ContextKind::SuggestedSubcommand;
    let Some(ContextValue::Strings(names)) = error.remove(kind) else { return error };
    let known = Cli::command();
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
    let parsed = command().try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    let Cli { shared, command } = match parsed {
        Ok(cli) => cli,
        Err(error) => {
            let error = without_hidden(error);
            // `oncebox --help | head` closes the pipe early; that is no failure.
            drop(error.print());
            return ExitCode::from(if error.use_stderr() { exit::USAGE } else { exit::OK });
        }
    };
    match command.run(&shared) {
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
        for known in Cli::command().get_subcommands().filter(|known| !known.is_hide_set()) {
            let name = known.get_name();
            assert!(page.contains(&format!("\n  {name} ")), "{name} is not in\n{page}");
        }
        for (code, meaning) in exit::MEANINGS {
            assert!(page.contains(&format!("{code:<4}{meaning}")), "{page}");
        }
    }
}
