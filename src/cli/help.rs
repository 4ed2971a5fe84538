//! The page of `oncebox --help`: commands in groups, one line each, and the exit codes. `oncebox openapi`, `completions` and
//! `manual`: documents generated from the program, without a service.
//!
//! Not here: the text of each command, which is its doc comment.

use std::path::PathBuf;

use clap::builder::StyledStr;
use clap_complete::Shell;

use crate::api::openapi;
use crate::cli::prelude::*;

/// The commands under each heading, with a space between them. A command that is not listed comes under [`REST`].
const GROUPS: [(&str, &str); 4] = [
    ("Run it", "serve demo bench status top console"),
    (
        "Send and look",
        "emit event webhook delivery dead-letter external-call lane job consume listen replay trigger \
         verify-signature batch-files",
    ),
    (
        "Set it up",
        "setup config provider subscription credential source event-type token user tenant pii apply \
         export",
    ),
    (
        "Keep it",
        "doctor support clock escalation alert backup restore in-doubt archive legal-hold migrate audit subject keys session",
    ),
];
const REST: &str = "More";

/// Adds the help page to the command line.
pub(super) fn with_help_page(command: clap::Command) -> clap::Command {
    let names = command.get_subcommands().map(clap::Command::get_name);
    let placed =
        |name: &&str| GROUPS.iter().any(|(_, of)| of.split(' ').any(|known| known == *name));
    let rest = names.filter(|name| !placed(name)).collect::<Vec<_>>().join(" ");
    let mut page = String::new();
    for (heading, names) in GROUPS.into_iter().chain([(REST, rest.as_str())]) {
        let group: String = names.split(' ').filter_map(|name| entry(&command, name)).collect();
        if !group.is_empty() {
            page.push_str(heading);
            page.push_str(":\n");
            page.push_str(&group);
            page.push('\n');
        }
    }
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{page}Options:\n{{options}}{{after-help}}"
    );
    command.help_template(template).after_help(exit_codes())
}

fn entry(command: &clap::Command, name: &str) -> Option<String> {
    let found = command.find_subcommand(name).filter(|found| !found.is_hide_set())?;
    let about = found.get_about().map(StyledStr::to_string).unwrap_or_default();
    Some(format!("  {name:<18}{}\n", about.lines().next().unwrap_or_default()))
}

fn exit_codes() -> String {
    let lines = exit::MEANINGS.map(|(code, meaning)| format!("  {code:<4}{meaning}\n"));
    let more = "More about a command: oncebox event --help";
    format!("Exit codes:\n{}\n{more}", lines.concat())
}

#[derive(Debug, Args)]
pub(super) struct OpenApi {}

#[derive(Debug, Args)]
#[command(
    after_help = "For bash: oncebox completions bash > ~/.local/share/bash-completion/completions/oncebox"
)]
pub(super) struct Completions {
    /// Which shell
    shell: Shell,
}

#[derive(Debug, Args)]
#[command(after_help = "To read one: man ./oncebox-serve.1")]
pub(super) struct Manual {
    /// The directory; created if missing
    directory: PathBuf,
}

impl OpenApi {
    #[expect(clippy::unused_self, reason = "every command is run alike")]
    pub(super) fn run(&self, _global: &GlobalArgs) -> Result<(), Failure> {
        out::line(format_args!("{:#}", openapi::document()))
    }
}

impl Completions {
    pub(super) fn run(&self, _global: &GlobalArgs) -> Result<(), Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut super::whole_command(), "oncebox", &mut script);
        out::bytes(&script)
    }
}

impl Manual {
    pub(super) fn run(&self, _global: &GlobalArgs) -> Result<(), Failure> {
        let shown = self.directory.display();
        let failed = |error: std::io::Error| Failure::failed(format!("{shown}: {error}"));
        std::fs::create_dir_all(&self.directory).map_err(failed)?;
        clap_mangen::generate_to(super::whole_command(), &self.directory).map_err(failed)
    }
}
