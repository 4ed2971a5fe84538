//! `oncebox migrate`: which schema the database has, and bringing it up to date.

use clap::{Args, Subcommand};
use serde_json::json;

use crate::appliance::data_directory::DATABASE;
use crate::appliance::master_key;
use crate::cli::backup::{bar, failure};
use crate::cli::restore::own_directory;
use crate::cli::{Failure, Shared, exit, input, out};
use crate::clock::Clock;
use crate::faults::Faults;
use crate::keeping::restore;
use crate::keeping::upgrade::{self, Rehearsal, Upgraded};
use crate::settings::Settings;
use crate::store::copies::Progress;
use crate::store::schema::VERSION;

/// Which schema the database has; bring it up to date
#[derive(Debug, Args)]
pub(super) struct Migrate {
    #[command(subcommand)]
    verb: Verb,
    /// Print JSON, for programs
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// The database's schema, this program's, and the steps between them
    Status,
    /// Back up, then bring the schema up to date; `oncebox serve` does the same at its start
    Up {
        /// Try it on a copy, which is removed; the service may run
        #[arg(long)]
        dry_run: bool,
    },
}

impl Migrate {
    pub(super) fn run(&self, shared: &Shared) -> Result<(), Failure> {
        let settings = shared.settings()?;
        match &self.verb {
            Verb::Status => self.status(&settings),
            Verb::Up { dry_run: true } => self.rehearse(&settings),
            Verb::Up { dry_run: false } => self.up(&settings),
        }
    }

    fn status(&self, settings: &Settings) -> Result<(), Failure> {
        let have = standing(settings)?;
        let pending = VERSION.saturating_sub(have);
        if self.json {
            return out::json(
                &json!({ "schema": have, "this_program": VERSION, "pending": pending }),
            );
        }
        let what = match pending {
            0 => "up to date".to_owned(),
            1 => "1 step behind: oncebox migrate up".to_owned(),
            _ => format!("{pending} steps behind: oncebox migrate up"),
        };
        out::line(format_args!("schema {have}, this oncebox has {VERSION}: {what}"))
    }

    fn rehearse(&self, settings: &Settings) -> Result<(), Failure> {
        standing(settings)?;
        let bar = bar()?;
        let database = settings.directory().join(DATABASE);
        let rehearsed = upgrade::rehearse(&database, &Clock::machine(), &mut |progress| {
            let Progress { done, all } = progress;
            bar.set_length(all);
            bar.set_position(done);
            true
        });
        bar.finish_and_clear();
        let Rehearsal { from, took, differences } = rehearsed.map_err(failure)?;
        let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        if self.json {
            out::json(&json!({
                "from": from, "to": VERSION, "took_ms": took_ms, "differences": differences,
            }))?;
        } else {
            out::line(format_args!(
                "on a copy: schema {from} to {VERSION} in {took_ms} ms; the copy is whole and removed"
            ))?;
        }
        if differences.is_empty() {
            return Ok(());
        }
        Err(Failure::failed("the schema is not what it should be").and(differences.join("\n")))
    }

    fn up(&self, settings: &Settings) -> Result<(), Failure> {
        let directory = own_directory(settings)?;
        let database = directory.database();
        restore::finish(&database, &Faults::none()).map_err(failure)?;
        standing(settings)?;
        let by = (Clock::machine().wall(), master_key::person());
        let done = upgrade::run(&database, &by, &Faults::none(), &mut |_| true).map_err(failure)?;
        let backup = done.as_ref().map(|done| done.backup.display().to_string());
        let from = done.as_ref().map_or(VERSION, |Upgraded { from, .. }| *from);
        if self.json {
            return out::json(&json!({ "from": from, "to": VERSION, "backup": backup }));
        }
        match backup {
            None => out::line(format_args!("schema {VERSION}: up to date, nothing was done")),
            Some(backup) => {
                out::line(format_args!("schema {from} to {VERSION}; as it was, it is in {backup}"))
            }
        }
    }
}

fn standing(settings: &Settings) -> Result<i64, Failure> {
    let database = settings.directory().join(DATABASE);
    input::check_open(settings.directory())?;
    upgrade::standing(&database).map_err(failure)?.ok_or_else(|| {
        Failure::new(exit::NOT_FOUND, format!("there is no database at {}", database.display()))
    })
}
