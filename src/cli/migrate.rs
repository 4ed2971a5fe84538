//! `oncebox migrate`: shows the database's schema version, and upgrades it.

use clap::Subcommand;

use crate::app::data_directory::DATABASE;
use crate::app::master_key;
use crate::backup::restore;
use crate::backup::store::Progress;
use crate::backup::upgrade::{self, Rehearsal, Upgraded};
use crate::base::clock::Clock;
use crate::base::faults::Faults;
use crate::cli::backup::{bar, failure};
use crate::cli::prelude::*;
use crate::cli::restore::own_directory;
use crate::config::Settings;
use crate::store::schema::{Steps, VERSION};
use crate::sys::user;

#[derive(Debug, Args)]
pub(super) struct Migrate {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show the schema versions of the database and of this program
    Status,
    /// Back up, then upgrade the schema; `oncebox serve` does the same at its start
    Up {
        /// Only upgrade a copy, which is then removed; the service may run
        #[arg(long)]
        dry_run: bool,
    },
}

impl Migrate {
    pub(super) fn run(&self, global: &GlobalArgs) -> Result<(), Failure> {
        let (said, wrong) = self.carry_out(&global.settings()?, Steps::RELEASED)?;
        out::line(said)?;
        if wrong.is_empty() {
            return Ok(());
        }
        Err(Failure::failed("the schema is not what it should be").and(wrong.join("\n")))
    }

    /// Runs the verb. Returns the text to print, and the differences that a rehearsed upgrade leaves.
    fn carry_out(
        &self,
        settings: &Settings,
        steps: Steps,
    ) -> Result<(String, Vec<String>), Failure> {
        match &self.verb {
            Verb::Status => Ok((self.status(settings)?, Vec::new())),
            Verb::Up { dry_run: true } => self.rehearse(settings, steps),
            Verb::Up { dry_run: false } => Ok((self.up(settings, steps)?, Vec::new())),
        }
    }

    fn status(&self, settings: &Settings) -> Result<String, Failure> {
        let have = schema_version(settings)?;
        let pending = VERSION.saturating_sub(have);
        if self.format.json {
            let all = json!({ "schema": have, "this_program": VERSION, "pending": pending });
            return Ok(all.to_string());
        }
        let what = match pending {
            0 => "up to date".to_owned(),
            1 => "1 step behind: oncebox migrate up".to_owned(),
            _ => format!("{pending} steps behind: oncebox migrate up"),
        };
        Ok(format!("schema {have}, this oncebox has {VERSION}: {what}"))
    }

    fn rehearse(
        &self,
        settings: &Settings,
        steps: Steps,
    ) -> Result<(String, Vec<String>), Failure> {
        schema_version(settings)?;
        user::become_owner_of(settings.directory()).map_err(Failure::failed)?;
        let bar = bar()?;
        let database = settings.directory().join(DATABASE);
        let clock = Clock::machine();
        let rehearsed = upgrade::rehearse(&database, steps, &clock, &mut |progress| {
            let Progress { done, all } = progress;
            bar.set_length(all);
            bar.set_position(done);
            true
        });
        bar.finish_and_clear();
        let Rehearsal { from, took, differences } = rehearsed.map_err(failure)?;
        let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let said = if self.format.json {
            json!({ "from": from, "to": VERSION, "took_ms": took_ms, "differences": differences })
                .to_string()
        } else {
            format!(
                "on a copy: schema {from} to {VERSION} in {took_ms} ms; the copy passed its check and is removed"
            )
        };
        Ok((said, differences))
    }

    fn up(&self, settings: &Settings, steps: Steps) -> Result<String, Failure> {
        let directory = own_directory(settings)?;
        let database = directory.database();
        restore::finish(&database, &Faults::none()).map_err(failure)?;
        schema_version(settings)?;
        let by = (Clock::machine().wall(), master_key::local_user());
        let done = upgrade::run(&database, steps, &by, &Faults::none(), &mut |_| true);
        let done = done.map_err(failure)?;
        let backup = done.as_ref().map(|done| done.backup.display().to_string());
        let from = done.as_ref().map_or(VERSION, |Upgraded { from, .. }| *from);
        if self.format.json {
            return Ok(json!({ "from": from, "to": VERSION, "backup": backup }).to_string());
        }
        Ok(backup.map_or_else(
            || format!("schema {VERSION}: up to date, nothing was done"),
            |backup| format!("upgraded from schema {from} to {VERSION}; the backup is {backup}"),
        ))
    }
}

fn schema_version(settings: &Settings) -> Result<i64, Failure> {
    let database = settings.directory().join(DATABASE);
    input::check_open(settings.directory())?;
    upgrade::schema_version(&database).map_err(failure)?.ok_or_else(|| {
        Failure::new(exit::NOT_FOUND, format!("there is no database at {}", database.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::schema::open_writer;

    /// An invented step to the schema of today.
    const STEPS: Steps =
        Steps { oldest: VERSION - 1, sql: &["ALTER TABLE boots DROP COLUMN host"] };

    fn settings(directory: &tempfile::TempDir) -> Settings {
        let mut settings = Settings::default();
        settings.database.directory = directory.path().to_owned();
        settings
    }

    /// A file of the version before [`STEPS`].
    fn make_older(settings: &Settings) {
        let conn = open_writer(&settings.directory().join(DATABASE)).unwrap();
        conn.execute_batch("ALTER TABLE boots ADD COLUMN host TEXT").unwrap();
        conn.pragma_update(None, "user_version", STEPS.oldest).unwrap();
    }

    fn said(settings: &Settings, verb: Verb, json: bool) -> String {
        let (said, wrong) =
            Migrate { verb, format: Format { json } }.carry_out(settings, STEPS).unwrap();
        assert_eq!(wrong, [""; 0]);
        said
    }

    #[test]
    fn an_older_file_is_rehearsed_and_then_brought_up_to_date_once() {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(&dir);
        make_older(&settings);
        let old = STEPS.oldest;
        let behind =
            format!("schema {old}, this oncebox has {VERSION}: 1 step behind: oncebox migrate up");
        assert_eq!(said(&settings, Verb::Status, false), behind);
        let dry = said(&settings, Verb::Up { dry_run: true }, false);
        assert!(dry.starts_with(&format!("on a copy: schema {old} to {VERSION} in ")), "{dry}");
        assert_eq!(said(&settings, Verb::Status, false), behind, "the file itself is as it was");
        let done = said(&settings, Verb::Up { dry_run: false }, false);
        let upgraded = format!("upgraded from schema {old} to {VERSION}; the backup is ");
        assert!(done.starts_with(&upgraded), "{done}");
        assert!(done.contains("before-upgrade-"), "{done}");
        let current = format!("schema {VERSION}, this oncebox has {VERSION}: up to date");
        assert_eq!(said(&settings, Verb::Status, false), current);
        let again = said(&settings, Verb::Up { dry_run: false }, false);
        assert_eq!(again, format!("schema {VERSION}: up to date, nothing was done"));
    }

    #[test]
    fn programs_are_told_in_json() {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(&dir);
        make_older(&settings);
        let read = |verb| -> Value { serde_json::from_str(&said(&settings, verb, true)).unwrap() };
        let status = json!({ "schema": STEPS.oldest, "this_program": VERSION, "pending": 1 });
        assert_eq!(read(Verb::Status), status);
        let dry = read(Verb::Up { dry_run: true });
        assert_eq!((&dry["from"], &dry["to"]), (&json!(STEPS.oldest), &json!(VERSION)));
        let done = read(Verb::Up { dry_run: false });
        assert!(done["backup"].as_str().unwrap().contains("before-upgrade-"), "{done}");
    }

    #[test]
    fn a_step_that_misses_the_schema_is_told_after_the_rehearsal() {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(&dir);
        make_older(&settings);
        let steps = Steps { oldest: VERSION - 1, sql: &["DROP INDEX deliveries_due"] };
        let up = Migrate { verb: Verb::Up { dry_run: true }, format: Format { json: false } };
        let (_said, wrong) = up.carry_out(&settings, steps).unwrap();
        assert!(wrong.iter().any(|line| line == "index deliveries_due is missing"), "{wrong:?}");
    }
}
