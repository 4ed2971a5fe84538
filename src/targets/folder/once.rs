//! A file that is written once by its name, whatever was interrupted before.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::time::Duration;

use crate::base::clock::SureNow;
use crate::base::faults::{Faults, Stall};
use crate::sys::files::{Directory, EntryKind};

/// What the temporary name of a file begins with. Readers ignore names with a dot in front.
const TEMPORARY: &str = ".oncebox-";
/// What it ends with.
const TEMPORARY_END: &str = ".tmp";
/// Temporary names tried for a file.
const MAX_NAMES: u32 = 1000;
/// How old a temporary name is that nobody writes any more. An attempt takes ten minutes at most.
const LEFT_AFTER: Duration = Duration::from_hours(1);
/// Subdirectories into which readers move files that they have handled, as Oncebox's own drop folders do.
const HANDLED: [&str; 2] = ["done", "rejected"];
/// Bytes that are compared at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// A file that is there.
#[derive(Debug, PartialEq, Eq)]
pub enum Written {
    /// This call wrote it.
    New,
    /// It was there before, with the same content.
    Before(Place),
}

/// Where a file was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the folder.
    Here,
    /// In the subdirectory with this name.
    Below(&'static str),
}

impl Place {
    /// The path of a file there, within the folder.
    pub fn path(self, name: &str) -> String {
        match self {
            Self::Here => name.to_owned(),
            Self::Below(below) => format!("{below}/{name}"),
        }
    }
}

/// Why a file was not written.
#[derive(Debug)]
pub enum NotWritten {
    /// Its name is taken by something else.
    Taken {
        /// Where.
        place: Place,
        /// What has the name, for a person.
        what: &'static str,
    },
    /// The folder cannot be read or written.
    Io(io::Error),
}

impl From<io::Error> for NotWritten {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Writes a file, unless it is there.
pub fn write(
    folder: &Directory,
    name: &str,
    content: &[u8],
    faults: &Faults,
) -> Result<Written, NotWritten> {
    if let Some(place) = found(folder, name, content)? {
        return Ok(Written::Before(place));
    }
    let temporary = Temporary::write(folder, content)?;
    faults.stand(Stall::FileWritten);
    match folder.move_to(&temporary.name, folder, name) {
        Ok(()) => {}
        // Another writer was faster.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let place = found(folder, name, content)?.ok_or(error)?;
            return Ok(Written::Before(place));
        }
        Err(error) => return Err(error.into()),
    }
    temporary.keep();
    folder.sync()?;
    faults.stand(Stall::FileRenamed);
    Ok(Written::New)
}

/// Writes content under a temporary name, and removes it.
pub fn try_out(folder: &Directory, content: &[u8]) -> io::Result<()> {
    Temporary::write(folder, content).map(drop)
}

/// Removes temporary files that a killed process left here. Errors do not matter: the next look finds the same files.
pub fn clean(folder: &Directory, now: SureNow) {
    let Ok(names) = folder.names() else { return };
    let before = now.minus(LEFT_AFTER);
    let is_ours = |name: &&String| name.starts_with(TEMPORARY) && name.ends_with(TEMPORARY_END);
    for name in names.usable.iter().filter(is_ours) {
        let is_old = folder.written_at(name).is_some_and(|at| at <= before);
        if is_old && folder.remove(name).is_ok() {
            tracing::info!(name, "a temporary file of an interrupted attempt was removed");
        }
    }
}

/// Where a file is that has this name and this content. Fails if something else has the name.
fn found(folder: &Directory, name: &str, content: &[u8]) -> Result<Option<Place>, NotWritten> {
    if is_same(folder, Place::Here, name, content)? {
        // The process that wrote it may have ended before the name was on the disk.
        folder.sync()?;
        return Ok(Some(Place::Here));
    }
    for below in HANDLED {
        let place = Place::Below(below);
        if let Some(handled) = folder.below(below)?
            && is_same(&handled, place, name, content)?
        {
            return Ok(Some(place));
        }
    }
    Ok(None)
}

/// Whether a file has this name and this content; false if nothing has the name. Fails if something else has it.
fn is_same(
    folder: &Directory,
    place: Place,
    name: &str,
    content: &[u8],
) -> Result<bool, NotWritten> {
    let taken = |what: &'static str| NotWritten::Taken { place, what };
    let file = match folder.look_at(name) {
        Ok(None) => return Ok(false),
        Ok(Some(file)) => file,
        // A link is not followed.
        Err(error) => match folder.kind(name) {
            Some(EntryKind::File | EntryKind::Shared)
                if error.kind() == ErrorKind::PermissionDenied =>
            {
                return Err(taken("exists and cannot be read"));
            }
            None | Some(EntryKind::File | EntryKind::Shared) => return Err(error.into()),
            Some(_) => return Err(taken("is no regular file")),
        },
    };
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(taken("is no regular file"));
    }
    let size = u64::try_from(content.len()).unwrap_or(u64::MAX);
    if found.len() != size || !is_equal(file, content)? {
        return Err(taken("exists with other content"));
    }
    Ok(true)
}

fn is_equal(mut file: File, mut content: &[u8]) -> io::Result<bool> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let read = file.read(&mut chunk)?;
        let (Some(here), true) = (chunk.get(..read), read > 0) else {
            return Ok(content.is_empty());
        };
        match content.strip_prefix(here) {
            Some(rest) => content = rest,
            None => return Ok(false),
        }
    }
}

/// A synced file under a temporary name, which is removed unless it is kept.
struct Temporary<'d> {
    folder: &'d Directory,
    name: String,
    is_kept: bool,
}

impl<'d> Temporary<'d> {
    fn write(folder: &'d Directory, content: &[u8]) -> io::Result<Self> {
        let (mut file, temporary) = Self::create(folder)?;
        file.write_all(content)?;
        folder.share(&file)?;
        file.sync_all()?;
        Ok(temporary)
    }

    fn create(folder: &'d Directory) -> io::Result<(File, Self)> {
        let mut error = io::Error::from(ErrorKind::AlreadyExists);
        for n in 0..MAX_NAMES {
            let name = format!("{TEMPORARY}{}-{n}{TEMPORARY_END}", std::process::id());
            match folder.create(&name) {
                Ok(file) => return Ok((file, Self { folder, name, is_kept: false })),
                Err(taken) if taken.kind() == ErrorKind::AlreadyExists => error = taken,
                Err(other) => return Err(other),
            }
        }
        Err(error)
    }

    fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            drop(self.folder.remove(&self.name));
        }
    }
}
