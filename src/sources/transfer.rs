//! Moves the files of a drop folder to `done`, or to `rejected` with the reason beside it.
//!
//! Content that was not read never ends up in `done`, even if a program writes to the file while it is moved. Not
//! here: reading files, and the decision to import or refuse one.

use std::io;
use std::path::{Path, PathBuf};

use crate::base::faults::Stall;
use crate::sources::Source;
use crate::sources::folder_settings::{DONE_ENDING, FolderSettings, Protocol, REASON_ENDING};
use crate::sources::shared::{RelayServices, SourceError};
use crate::sys::files::{Contents, Directory, EntryKind};

/// The directory of imported files.
pub(super) const DONE: &str = "done";
/// The directory of refused files.
pub(super) const REJECTED: &str = "rejected";
/// Why a file is refused that changed while it was moved, if its name is taken again.
const CHANGED: &str = "a program wrote to it while it was moved, and there is a new file of its name by now. \
                       Its earlier content was read; compare it with the events, and put what is missing into \
                       a file of another name";
/// Old files deleted at once.
const MAX_CLEARED: usize = 1_000;
/// Files of one name in a directory.
const MAX_SAME_NAME: u32 = 10_000;

/// A result, or why the file cannot be imported.
pub(super) type Outcome<T> = Result<T, SourceError>;

/// A source's folder during one turn.
pub(super) struct Folder<'a> {
    pub(super) shared: &'a RelayServices,
    pub(super) source: &'a Source,
    pub(super) settings: &'a FolderSettings,
    pub(super) directory: Directory,
}

/// A file that was read.
pub(super) struct ReadFile {
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) contents: Contents,
    pub(super) sha256: Vec<u8>,
}

/// The result of moving a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moved {
    /// It was moved, with the content that was read.
    There,
    /// It was removed meanwhile.
    Gone,
    /// It has changed since it was read, and was not moved or was moved back: it is read again.
    Changed,
    /// It changed during the move, and cannot be moved back because its name is taken.
    Stuck,
}

impl Folder<'_> {
    /// Moves an imported file to `done`.
    pub(super) fn finish(&self, file: &ReadFile) -> Outcome<()> {
        self.shared.env.faults.stand(Stall::Stored);
        let done = self.make(DONE)?;
        if done.kind(&file.name) == Some(EntryKind::Directory) {
            return Err(unmoved(&file.path, DONE, &io::ErrorKind::IsADirectory.into()));
        }
        for name in free_names(&done, &file.name) {
            match self.move_to(file, &done, &name) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(unmoved(&file.path, DONE, &error)),
                Ok(Moved::Changed) => return Err(changed(file)),
                Ok(Moved::Stuck) => return self.set_aside(&done, &name, &file.name),
                Ok(Moved::Gone | Moved::There) => {
                    self.remove_companion(file);
                    return Ok(());
                }
            }
        }
        Err(unmoved(&file.path, DONE, &io::ErrorKind::AlreadyExists.into()))
    }

    /// Writes the reason to `rejected` and moves the file beside it, replacing no file there. Returns whether the file
    /// still existed.
    pub(super) fn put_aside(&self, file: &ReadFile, why: &str) -> Outcome<bool> {
        let rejected = self.make(REJECTED)?;
        for name in free_names(&rejected, &file.name) {
            if !self.reason(&rejected, &name, why)? {
                continue;
            }
            let moved = self.move_to(file, &rejected, &name);
            if !matches!(moved, Ok(Moved::There)) {
                // Otherwise each attempt would leave a reason without its file.
                drop(rejected.remove(&format!("{name}{REASON_ENDING}")));
            }
            match moved {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(unmoved(&file.path, REJECTED, &error)),
                Ok(Moved::There) => return Ok(true),
                Ok(Moved::Gone) => return Ok(false),
                Ok(Moved::Changed) => return Err(changed(file)),
                Ok(Moved::Stuck) => return self.reason(&rejected, &name, CHANGED),
            }
        }
        Err(unmoved(&file.path, REJECTED, &io::ErrorKind::AlreadyExists.into()))
    }

    /// Moves the file, if it has not changed since it was read; checked before and after the move.
    fn move_to(&self, file: &ReadFile, to: &Directory, name: &str) -> io::Result<Moved> {
        let read = Some(file.contents.stamp);
        match self.directory.stamp(&file.name)? {
            None => return Ok(Moved::Gone),
            found if found != read => return Ok(Moved::Changed),
            Some(_) => {}
        }
        self.shared.env.faults.stand(Stall::Unchanged);
        match self.directory.move_to(&file.name, to, name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Moved::Gone),
            moved => moved?,
        }
        if to.stamp(name)? == read {
            return Ok(Moved::There);
        }
        match to.move_to(name, &self.directory, &file.name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Moved::Stuck),
            moved => moved.map(|()| Moved::Changed),
        }
    }

    /// Moves a [`Moved::Stuck`] file to `rejected`.
    fn set_aside(&self, from: &Directory, name: &str, own: &str) -> Outcome<()> {
        let rejected = self.make(REJECTED)?;
        let failed = |error| unmoved(&self.settings.path.join(name), REJECTED, &error);
        for free in free_names(&rejected, own) {
            if self.reason(&rejected, &free, CHANGED)? {
                return from.move_to(name, &rejected, &free).map_err(failed);
            }
        }
        Err(failed(io::ErrorKind::AlreadyExists.into()))
    }

    /// Writes the reason for a refused file; returns `false` if the reason's own name is taken.
    fn reason(&self, rejected: &Directory, name: &str, why: &str) -> Outcome<bool> {
        let reason = format!("{name}{REASON_ENDING}");
        match rejected.write_new(&reason, &format!("{why}\n")) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => {
                let path = self.settings.path.join(REJECTED).join(&reason);
                Err(SourceError::lasting(format!("{} cannot be written: {error}", path.display())))
            }
            Ok(()) => Ok(true),
        }
    }

    /// Removes the `.done` file of a file that was moved.
    pub(super) fn remove_companion(&self, file: &ReadFile) {
        if self.settings.writer == Protocol::Done {
            // On failure it stays, which does no harm without its file.
            drop(self.directory.remove(&format!("{}{DONE_ENDING}", file.name)));
        }
    }

    /// Opens or creates a directory in the folder.
    pub(super) fn make(&self, name: &str) -> Outcome<Directory> {
        self.directory.make(name).map_err(|error| {
            SourceError::lasting(format!(
                "{} cannot be created: {error}. The service moves files there and must be able to write",
                self.settings.path.join(name).display()
            ))
        })
    }

    /// Deletes old files in `done`; returns whether there may be more. Refused files are never deleted, because their
    /// content exists nowhere else.
    pub(super) fn clear(&self) -> Outcome<bool> {
        let Self { shared, settings, .. } = self;
        let Some(kept) = settings.done_kept() else { return Ok(false) };
        // While the clock may be wrong, no age is reliable.
        let Some(now) = shared.env.clock.sure_now() else { return Ok(false) };
        let done = self.make(DONE)?;
        let path = settings.path.join(DONE);
        let failed = |error: io::Error, path: &Path| {
            SourceError::lasting(format!("{} cannot be cleared: {error}", path.display()))
        };
        let names = done.names().map_err(|error| failed(error, &path))?;
        let is_old =
            |name: &&String| done.changed_at(name).is_some_and(|at| now.at().since(at) >= kept);
        let mut cleared = 0_usize;
        for name in names.usable.iter().filter(is_old).take(MAX_CLEARED) {
            done.remove(name).map_err(|error| failed(error, &path.join(name)))?;
            cleared = cleared.saturating_add(1);
        }
        if cleared > 0 {
            tracing::info!(cleared, days = settings.done_days, place = %path.display(), "old files are deleted");
        }
        Ok(cleared == MAX_CLEARED)
    }
}

pub(super) fn changed(file: &ReadFile) -> SourceError {
    let why = format!("{} was changed while it was read; it is read again", file.path.display());
    SourceError::passing(why)
}

/// Names for a file that are free in a directory now: its own, then numbered ones.
fn free_names<'a>(within: &'a Directory, name: &'a str) -> impl Iterator<Item = String> + 'a {
    let others = (2..MAX_SAME_NAME).map(move |n| format!("{name}.{n}"));
    std::iter::once(name.to_owned()).chain(others).filter(|name| !within.has(name))
}

fn unmoved(from: &Path, to: &str, error: &io::Error) -> SourceError {
    SourceError::lasting(format!("{} cannot be moved to {to}: {error}", from.display()))
}
