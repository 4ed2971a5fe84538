//! Moves the files of a drop folder out of the way: to `done`, or to `rejected` with the reason beside it.
//!
//! Whatever a file's writer does meanwhile, nothing that was not read passes for what was. Not here: what is
//! read, and whether it is taken.

use std::io;
use std::path::{Path, PathBuf};

use crate::base::faults::Stall;
use crate::sources::folder_settings::{DONE_ENDING, FolderSettings, Protocol, REASON_ENDING};
use crate::sources::shared::Shared;
use crate::sources::shared::SourceError;
use crate::sys::files::{Contents, Directory, Kind};

/// Where files go that were taken.
pub(super) const DONE: &str = "done";
/// Where files go that were refused.
pub(super) const REJECTED: &str = "rejected";
/// Why a file is refused that was changed while it was moved, and whose name another one has.
const CHANGED: &str = "somebody wrote into it while it was moved, and another file of its name has come since. \
                       What it was before was read; compare it with the events, and put what is missing into \
                       a file of another name";
/// Old files that are taken away at once.
const MAX_CLEARED: usize = 1_000;
/// Files of one name in `rejected`.
const MAX_SAME_NAME: u32 = 10_000;

/// A result, or why the file cannot be taken.
pub(super) type Outcome<T> = Result<T, SourceError>;

/// A file that can be taken.
pub(super) struct ReadFile<'a> {
    pub(super) folder: &'a Directory,
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) contents: Contents,
    pub(super) sha256: Vec<u8>,
}

/// Moves a file that was taken.
pub(super) fn finish(
    shared: &Shared,
    settings: &FolderSettings,
    whole: &ReadFile<'_>,
) -> Outcome<()> {
    shared.faults.stand(Stall::Stored);
    let done = make(settings, whole.folder, DONE)?;
    if done.kind(&whole.name) == Some(Kind::Directory) {
        return Err(unmoved(&whole.path, DONE, &io::ErrorKind::IsADirectory.into()));
    }
    for name in free_names(&done, &whole.name) {
        match whole.move_to(shared, &done, &name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(unmoved(&whole.path, DONE, &error)),
            Ok(Moved::Changed) => return Err(changed(whole)),
            Ok(Moved::Stuck) => {
                let rejected = make(settings, whole.folder, REJECTED)?;
                return set_aside(settings, (&done, &name), &rejected, &whole.name);
            }
            Ok(Moved::Gone | Moved::There) => {
                forget_companion(settings, whole);
                return Ok(());
            }
        }
    }
    Err(unmoved(&whole.path, DONE, &io::ErrorKind::AlreadyExists.into()))
}

/// What became of a file that was to be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moved {
    /// It is there, as it was read.
    There,
    /// Somebody has taken it away.
    Gone,
    /// It is not what was read, and stands where it stood: it is read again.
    Changed,
    /// It is not what was read, was moved all the same, and cannot go back because its name is taken.
    Stuck,
}

impl ReadFile<'_> {
    /// Moves it, if it is still what was read. Whatever its writer does meanwhile, nothing that was not read
    /// passes for what was.
    fn move_to(&self, shared: &Shared, to: &Directory, name: &str) -> io::Result<Moved> {
        let is = Some(self.contents.stamp);
        match self.folder.stamp(&self.name)? {
            None => return Ok(Moved::Gone),
            found if found != is => return Ok(Moved::Changed),
            Some(_) => {}
        }
        shared.faults.stand(Stall::Unchanged);
        match self.folder.move_to(&self.name, to, name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Moved::Gone),
            moved => moved?,
        }
        if to.stamp(name)? == is {
            return Ok(Moved::There);
        }
        match to.move_to(name, self.folder, &self.name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Moved::Stuck),
            moved => moved.map(|()| Moved::Changed),
        }
    }
}

pub(super) fn changed(whole: &ReadFile<'_>) -> SourceError {
    let why = format!("{} is changed while it is taken; it is read again", whole.path.display());
    SourceError::passing(why)
}

/// Puts a file aside that was changed while it was moved, and whose name another one has.
fn set_aside(
    settings: &FolderSettings,
    (place, name): (&Directory, &str),
    rejected: &Directory,
    own: &str,
) -> Outcome<()> {
    for free in free_names(rejected, own) {
        if reason(settings, rejected, &free, CHANGED)? {
            let moved = place.move_to(name, rejected, &free);
            return moved.map_err(|error| unmoved(&settings.path.join(name), REJECTED, &error));
        }
    }
    Err(unmoved(&settings.path.join(name), REJECTED, &io::ErrorKind::AlreadyExists.into()))
}

/// Writes the reason, and moves the file beside it. Nothing there is replaced: what was refused before under
/// the same name stays. Tells whether it was there to be moved.
pub(super) fn put_aside(
    shared: &Shared,
    settings: &FolderSettings,
    whole: &ReadFile<'_>,
    why: &str,
) -> Outcome<bool> {
    let rejected = make(settings, whole.folder, REJECTED)?;
    for name in free_names(&rejected, &whole.name) {
        if !reason(settings, &rejected, &name, why)? {
            continue;
        }
        let moved = whole.move_to(shared, &rejected, &name);
        if !matches!(moved, Ok(Moved::There)) {
            // It would be a reason for nothing, and one more with each try.
            drop(rejected.remove(&format!("{name}{REASON_ENDING}")));
        }
        match moved {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(unmoved(&whole.path, REJECTED, &error)),
            Ok(Moved::There) => return Ok(true),
            Ok(Moved::Gone) => return Ok(false),
            Ok(Moved::Changed) => return Err(changed(whole)),
            Ok(Moved::Stuck) => return reason(settings, &rejected, &name, CHANGED),
        }
    }
    Err(unmoved(&whole.path, REJECTED, &io::ErrorKind::AlreadyExists.into()))
}

/// Writes why a file of that name is refused; tells whether the reason's own name was free.
fn reason(settings: &FolderSettings, rejected: &Directory, name: &str, why: &str) -> Outcome<bool> {
    let reason = format!("{name}{REASON_ENDING}");
    match rejected.write_new(&reason, &format!("{why}\n")) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => {
            let place = settings.path.join(REJECTED).join(&reason);
            Err(SourceError::lasting(format!("{} cannot be written: {error}", place.display())))
        }
        Ok(()) => Ok(true),
    }
}

/// Names that are free now, for a file of this one.
fn free_names<'a>(place: &'a Directory, name: &'a str) -> impl Iterator<Item = String> + 'a {
    let others = (2..MAX_SAME_NAME).map(move |n| format!("{name}.{n}"));
    std::iter::once(name.to_owned()).chain(others).filter(|name| !place.has(name))
}

fn unmoved(from: &Path, to: &str, error: &io::Error) -> SourceError {
    SourceError::lasting(format!("{} cannot be moved to {to}: {error}", from.display()))
}

pub(super) fn forget_companion(settings: &FolderSettings, whole: &ReadFile<'_>) {
    if settings.writer == Protocol::Done {
        // Left behind it does no harm: it belongs to no file.
        drop(whole.folder.remove(&format!("{}{DONE_ENDING}", whole.name)));
    }
}

/// The directory of that name in the folder, which is made where there is none.
pub(super) fn make(
    settings: &FolderSettings,
    folder: &Directory,
    place: &str,
) -> Outcome<Directory> {
    folder.make(place).map_err(|error| {
        SourceError::lasting(format!(
            "{} cannot be made: {error}. The service moves files there and has to be able to write",
            settings.path.join(place).display()
        ))
    })
}

/// Takes away what has lain in `done` for long enough; tells whether there may be more of it. What was refused is
/// never taken away: it stands nowhere else.
pub(super) fn clear(
    shared: &Shared,
    settings: &FolderSettings,
    folder: &Directory,
) -> Outcome<bool> {
    let wall = shared.clock.wall();
    let Some(kept) = settings.done_kept() else { return Ok(false) };
    // By a clock that may be wrong, nothing is old.
    if shared.clock_watch.is_suspect(shared.clock.now()) {
        return Ok(false);
    }
    let done = make(settings, folder, DONE)?;
    let place = settings.path.join(DONE);
    let failed = |error: io::Error, place: &Path| {
        SourceError::lasting(format!("{} cannot be cleared: {error}", place.display()))
    };
    let names = done.names().map_err(|error| failed(error, &place))?;
    let is_old = |name: &&String| done.changed_at(name).is_some_and(|at| wall.since(at) >= kept);
    let mut cleared = 0_usize;
    for name in names.usable.iter().filter(is_old).take(MAX_CLEARED) {
        done.remove(name).map_err(|error| failed(error, &place.join(name)))?;
        cleared = cleared.saturating_add(1);
    }
    if cleared > 0 {
        tracing::info!(cleared, days = settings.done_days, place = %place.display(), "old files are deleted");
    }
    Ok(cleared == MAX_CLEARED)
}
