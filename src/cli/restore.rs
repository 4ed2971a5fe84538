//! `oncebox restore`: restores a backup while the service is stopped.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::app::data_directory::{DataDirectory, DirectoryError, TOKEN_FILE};
use crate::app::master_key;
use crate::archive::Month;
use crate::backup::restore::{self, Done, Plan};
use crate::base::clock::{Clock, Timestamp, span};
use crate::base::faults::Faults;
use crate::cli::archive::month;
use crate::cli::backup::{failure, months_of};
use crate::cli::input::start_command;
use crate::cli::keys;
use crate::cli::out;
use crate::cli::prelude::*;
use crate::config::Settings;
use crate::keys::file;
use crate::model::in_doubt::Window;

#[derive(Debug, Args)]
pub(super) struct Restore {
    #[arg(help = "The backup: a file with its manifest beside it")]
    source: PathBuf,
    /// Rename the existing database to oncebox.db.before-restore-…
    #[arg(long)]
    force: bool,
    #[arg(
        long,
        value_name = "TIME",
        help = "When the lost database was last in use; later events are sent as usual [default: now]"
    )]
    lost_at: Option<String>,
    #[arg(
        long,
        value_name = "SPAN",
        default_value = "24h",
        value_parser = span,
        help = "How long from now to hold incoming events that happened before that time, or have no time; 0s holds none"
    )]
    in_doubt_window: Duration,
    /// Accept a file without a manifest, such as one that Litestream restored
    #[arg(long)]
    without_manifest: bool,
    /// Leave out the months of archive and audit; those of the archive can be brought back one by one
    #[arg(long)]
    without_months: bool,
    /// Bring only this month of the archive back, such as 2026-01, beside the existing database
    #[arg(long, value_name = "MONTH", value_parser = month)]
    month: Option<Month>,
    #[command(flatten)]
    format: Format,
}

fn set_aside(months: &[PathBuf]) -> Result<(), Failure> {
    let say =
        |aside: &PathBuf| out::line(format_args!("a month that differs: {}", aside.display()));
    months.iter().try_for_each(say)
}

/// Locks the data directory for a command that may not run beside the service.
pub(super) fn own_directory(settings: &Settings) -> Result<DataDirectory, Failure> {
    DataDirectory::lock(settings.directory()).map_err(|error| match error {
        DirectoryError::Locked { .. } => {
            let stop = "Stop the service first: systemctl stop oncebox.socket oncebox.service";
            Failure::temporary(error).and(stop)
        }
        other => Failure::failed(other),
    })
}

/// The id of the existing master key.
fn key_id(settings: &Settings) -> Result<Option<String>, Failure> {
    let found = master_key::find(settings);
    let found = found.map_err(|error| Failure::new(exit::NOT_PERMITTED, error))?;
    Ok(found.map(|found| found.key.key_id()))
}

impl Restore {
    pub(super) fn run(&self, global: &GlobalArgs) -> Result<(), Failure> {
        let settings = global.settings()?;
        let now = Clock::machine().wall();
        let lost_at = self.lost_at.as_deref().map_or(Ok(now), |text| {
            let why = "--lost-at: give a time like 2026-01-31T12:00:00Z";
            Timestamp::parse(text).ok_or_else(|| Failure::usage(why))
        })?;
        let until = now.plus(self.in_doubt_window);
        let directory = own_directory(&settings)?;
        let plan = Plan {
            from: self.source.clone(),
            database: directory.database(),
            force: self.force,
            without_manifest: self.without_manifest,
            without_months: self.without_months,
            key_id: key_id(&settings)?,
            retired: file::retired_ids(&settings.master_key_file()),
            now,
            window: (!self.in_doubt_window.is_zero()).then_some(Window { lost_at, until }),
            who: master_key::local_user(),
            faults: Faults::none(),
        };
        if let Some(month) = &self.month {
            return self.bring_back(&plan, month);
        }
        let done = restore::run(&plan).map_err(failure)?;
        keys::bind(&settings, false)?;
        self.print(&plan, &done, settings.directory(), start_command(&settings))
    }

    fn bring_back(&self, plan: &Plan, month: &Month) -> Result<(), Failure> {
        let done = restore::month(plan, month).map_err(failure)?;
        if self.format.json {
            let is_new = done.is_some();
            return out::json(&json!({ "month": month, "restored": is_new, "moved_aside": done }));
        }
        let Some(aside) = done else {
            return out::line(format_args!("{month} is there already, as in the backup"));
        };
        out::line(format_args!("restored {month} from {}", plan.from.display()))?;
        set_aside(&aside)
    }

    fn print(
        &self,
        plan: &Plan,
        done: &Done,
        directory: &Path,
        start: &str,
    ) -> Result<(), Failure> {
        let Done { changes, made_at, aside, months, months_aside } = done;
        let until = plan.window.map(|window| window.until);
        if self.format.json {
            return out::json(&json!({
                "made_at": made_at, "epoch": changes.epoch, "in_doubt": changes.in_doubt,
                "keys_erased": changes.erased,
                "in_doubt_until": until, "moved_aside": aside.as_ref().map(|aside| aside.display().to_string()),
                "months": months, "months_moved_aside": months_aside,
            }));
        }
        let made = made_at.map_or_else(String::new, |at| format!(", made {at}"));
        out::line(format_args!("restored {}{made}", plan.from.display()))?;
        if let Some(aside) = aside {
            out::line(format_args!("the previous database is now {}", aside.display()))?;
        }
        if let Some(months) = months {
            out::line(format_args!("months of archive and audit: {}", months_of(months)))?;
        }
        set_aside(months_aside)?;
        if changes.erased > 0 {
            out::line(format_args!(
                "destroyed again: {} keys of subjects that were erased after the backup",
                changes.erased
            ))?;
        }
        out::line(format_args!(
            "{} open deliveries may have been made after the backup: they are in doubt and are not sent",
            changes.in_doubt
        ))?;
        if let Some(until) = until {
            out::line(format_args!(
                "until {until} new events are held too, unless they happened after the loss"
            ))?;
        }
        let token = directory.join(TOKEN_FILE);
        out::line(format_args!(
            "\nNext:
  oncebox token create restored --role admin --offline --out {}
                                  (if the admin's token is lost too: no backup has it)
  {start}
  oncebox in-doubt list
  oncebox in-doubt release --all     (or settle those that were delivered)
  oncebox token list              (a token revoked after the backup is valid again)",
            token.display()
        ))
    }
}
