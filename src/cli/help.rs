//! The page of `oncebox --help`: commands in groups, one line each, and the exit codes.
//!
//! Not here: the text of each command, which is its doc comment.

use clap::builder::StyledStr;

use crate::cli::exit;

/// The commands under each heading. A command that is not listed comes under [`REST`].
const GROUPS: [(&str, &[&str]); 4] = [
    ("Run it", &["serve", "demo", "status", "top", "console"]),
    (
        "Send and look",
        &[
            "emit",
            "event",
            "webhook",
            "delivery",
            "dead-letter",
            "external-call",
            "lane",
            "job",
            "consume",
            "listen",
            "trigger",
            "verify-signature",
        ],
    ),
    (
        "Set it up",
        &[
            "config",
            "provider",
            "subscription",
            "credential",
            "source",
            "event-type",
            "token",
            "user",
            "tenant",
            "pii",
            "apply",
            "export",
        ],
    ),
    (
        "Keep it",
        &[
            "doctor",
            "escalation",
            "alert",
            "backup",
            "restore",
            "in-doubt",
            "migrate",
            "audit",
            "subject",
            "keys",
            "session",
        ],
    ),
];
const REST: &str = "More";

/// Adds the help page to the command line.
pub(super) fn with_help_page(command: clap::Command) -> clap::Command {
    let names = command.get_subcommands().map(clap::Command::get_name);
    let placed = |name: &&str| GROUPS.iter().any(|(_, of)| of.contains(name));
    let rest: Vec<&str> = names.filter(|name| !placed(name)).collect();
    let mut page = String::new();
    for (heading, names) in GROUPS.into_iter().chain([(REST, rest.as_slice())]) {
        let group: String = names.iter().filter_map(|name| entry(&command, name)).collect();
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
