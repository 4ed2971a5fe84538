//! The database of a start: restored, upgraded and opened, before any other part exists.

use std::path::{Path, PathBuf};

use crate::app::data_directory::{self, DataDirectory};
use crate::app::error::Error;
use crate::app::injected::Injected;
use crate::app::installation;
use crate::app::master_key::{self, LocatedKey};
use crate::backup::upgrade::{self as schema_upgrade, Upgraded};
use crate::backup::{erasures, restore};
use crate::base::clock::Clock;
use crate::base::faults::Faults;
use crate::base::id::{self, Draw};
use crate::config::Settings;
use crate::model::audit::Actor;
use crate::pipeline::upkeep::clock_watch;
use crate::store::schema::{self, Steps};
use crate::store::writer::WriterLoop;
use crate::store::{Store, chores, known_time, limits, meta};

/// An opened database, and the master key that was found for it.
pub(super) struct OpenedDatabase {
    pub(super) store: Store,
    /// Writes until the pipeline takes it.
    pub(super) writer_loop: WriterLoop,
    pub(super) key: LocatedKey,
}

impl OpenedDatabase {
    /// Finds the master key and opens the database, after finishing an interrupted restore, upgrading the schema and
    /// repeating erasures.
    pub(super) fn open(
        data: &DataDirectory,
        settings: &Settings,
        injected: &Injected,
    ) -> Result<Self, Error> {
        let Injected { clock, draw, faults, .. } = injected;
        finish_restore(data, faults)?;
        installation::check(settings)?;
        let key = master_key::find_or_create(settings, &**draw)?;
        let database = upgrade(data, clock, faults)?;
        let (store, mut writer_loop) = open(&database, settings, faults)?;
        clock_watch::begin(clock, writer_loop.read(known_time::known)?);
        if !clock.is_suspect() {
            writer_loop.direct(|tx| chores::expect(tx, clock.now()))?;
        }
        note_database(&mut writer_loop, settings, clock, &**draw)?;
        pause_beyond_limits(&mut writer_loop, settings, clock, &**draw)?;
        erase_again(&mut writer_loop, &database, settings)?;
        Ok(Self { store, writer_loop, key })
    }
}

/// Repeats recorded erasures: a restored database must not bring back erased data. An erasure may be recorded beside the
/// database only, if it was interrupted, or beside the backups only.
fn erase_again(writer: &mut WriterLoop, database: &Path, settings: &Settings) -> Result<(), Error> {
    let mut recorded = erasures::read(&erasures::beside(database))?;
    recorded.extend(erasures::read(&erasures::within(&settings.backup_directory()))?);
    let erased = writer.erase_again(&recorded)?;
    if erased > 0 {
        tracing::warn!(erased, "destroyed again the keys of erased subjects");
    }
    Ok(())
}

/// Gives the database an id if it has none, and notes it beside the master key. In the package only root may write there:
/// the unit runs `oncebox keys bind` after each start.
fn note_database(
    writer: &mut WriterLoop,
    settings: &Settings,
    clock: &Clock,
    draw: &dyn Draw,
) -> Result<(), Error> {
    let known = writer.read(meta::database_id)?;
    let id = known.unwrap_or_else(|| id::uuid7(clock.wall(), draw));
    writer.direct(|tx| meta::set_database_id(tx, &id))?;
    if let Err(error) = installation::note(settings, Some(&id)) {
        tracing::debug!(%error, "the database could not be noted beside the master key");
    }
    Ok(())
}

/// Pauses the subscriptions that are beyond their tenant's limits.
fn pause_beyond_limits(
    writer: &mut WriterLoop,
    settings: &Settings,
    clock: &Clock,
    draw: &dyn Draw,
) -> Result<(), Error> {
    let now = clock.wall();
    let new_id = || id::uuid7(now, draw);
    let count = writer.direct(|tx| limits::pause_beyond(tx, &settings.tenants, now, new_id))?;
    if count > 0 {
        tracing::error!(count, "subscriptions beyond the limits of their tenants were paused");
    }
    Ok(())
}

/// Opens the database.
fn open(
    database: &Path,
    settings: &Settings,
    faults: &Faults,
) -> Result<(Store, WriterLoop), Error> {
    let (store, mut writer_loop) = Store::open(database, faults.clone())?;
    writer_loop.wait_for_others();
    data_directory::share(database, settings.database.group.as_deref())?;
    if !settings.database.checkpoints {
        writer_loop.leave_checkpoints();
    }
    Ok((store, writer_loop))
}

/// Finishes an interrupted restore, before anything else opens the database.
fn finish_restore(data: &DataDirectory, faults: &Faults) -> Result<(), Error> {
    if restore::finish(&data.database(), faults)? {
        tracing::warn!("an interrupted restore was finished");
    }
    Ok(())
}

/// Backs up and upgrades an older database, before anything else opens it. Returns its path.
pub(super) fn upgrade(
    data: &DataDirectory,
    clock: &Clock,
    faults: &Faults,
) -> Result<PathBuf, Error> {
    let database = data.private_database()?;
    let by = (clock.wall(), Actor::system());
    let done = schema_upgrade::run(&database, Steps::RELEASED, &by, faults, &mut |_| true)?;
    if let Some(Upgraded { from, backup }) = done {
        let backup = backup.display();
        tracing::info!(from, to = schema::VERSION, %backup, "the database was upgraded");
    }
    Ok(database)
}
