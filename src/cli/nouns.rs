//! The nouns of the API as commands of the command line.
//!
//! Not here: their verbs, which are tables in the nouns' files.

use clap::{ArgMatches, Command, FromArgMatches};

use crate::cli::prelude::*;
use crate::cli::{
    alert, archive, audit, clock, credential, database, delivery, emit, event, job, keys, lane,
    provider, source, subject, subscription, token, user,
};

static NOUNS: &[&Commands] = &[
    &emit::COMMANDS,
    &event::EVENT,
    &event::WEBHOOK,
    &delivery::DELIVERY,
    &delivery::DEAD_LETTER,
    &delivery::IN_DOUBT,
    &event::EVENT_TYPE,
    &lane::EXTERNAL_CALL,
    &lane::LANE,
    &job::COMMANDS,
    &alert::ESCALATION,
    &token::TENANT,
    &subject::COMMANDS,
    &audit::COMMANDS,
    &archive::COMMANDS,
    &archive::LEGAL_HOLD,
    &clock::COMMANDS,
    &keys::COMMANDS,
    &provider::COMMANDS,
    &subscription::COMMANDS,
    &credential::COMMANDS,
    &source::COMMANDS,
    &database::COMMANDS,
    &alert::ALERT,
    &token::TOKEN,
    &user::USER,
    &user::SESSION,
    &user::CONSOLE,
];

/// The commands of all nouns. The verbs of a noun, whose flags follow from schemas, are made when it is given.
pub(super) fn commands() -> impl Iterator<Item = Command> {
    NOUNS.iter().map(|noun| noun.command().defer(completed))
}

/// The commands of all nouns with their verbs.
pub(super) fn complete() -> impl Iterator<Item = Command> {
    NOUNS.iter().map(|noun| completed(noun.command()))
}

/// Runs the command of a noun; `None` if another command was given.
pub(super) fn run(matches: &ArgMatches) -> Option<Done> {
    let (name, given) = matches.subcommand()?;
    let noun = noun(name)?;
    let flags =
        || Ok((ConnectArgs::from_arg_matches(given)?, GlobalArgs::from_arg_matches(matches)?));
    Some(
        flags()
            .map_err(|error: clap::Error| Failure::usage(error))
            .and_then(|(connect, global)| noun.run(given, &connect, &global)),
    )
}

fn noun(name: &str) -> Option<&'static Commands> {
    NOUNS.iter().find(|noun| noun.name() == name).copied()
}

fn completed(command: Command) -> Command {
    // The type that adds flags also brings a text about itself.
    let about = command.get_about().cloned().unwrap_or_default();
    let command = ConnectArgs::augment_args(command).about(about);
    match noun(command.get_name()) {
        Some(noun) => noun.complete(command),
        None => command,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_tables_is_about_something() {
        let faults: Vec<String> = NOUNS.iter().flat_map(|noun| noun.faults()).collect();
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }
}
