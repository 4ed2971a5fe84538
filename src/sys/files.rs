//! Files: private ones, written atomically, and files that another program writes.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use rustix::fs::{
    Access, AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags, StatxFlags,
    accessat, fchmod, fsync, makedev, mkdirat, openat, openat2, renameat, renameat_with, statat,
    statx, unlinkat,
};
use rustix::io::Errno;
use zeroize::Zeroizing;

use crate::base::clock::Timestamp;
use crate::base::text::remove_mark;
use crate::sys::user;

/// Temporary names tried for a file that is being written.
const MAX_NAMES: u32 = 100;

/// The most that [`read_own`] reads.
const MAX_OWN_BYTES: u64 = 64 << 10;

/// The ending of the temporary name of a file that is being written.
pub const PARTIAL: &str = ".partial";

/// The path with `ending` appended to its file name.
pub fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// Sets group and mode only if they differ: under systemd, even a change to the same value may be refused.
pub fn set_access(path: &Path, group: Option<u32>, mode: u32) -> io::Result<()> {
    let current = fs::metadata(path)?;
    if let Some(group) = group.filter(|group| *group != current.gid()) {
        chown(path, None, Some(group))?;
    }
    if current.mode() & 0o7777 == mode {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// The directory a file is in.
pub fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

/// Syncs the directory of a file, so that a new or changed name survives a crash.
pub fn sync_directory_of(path: &Path) -> io::Result<()> {
    File::open(directory_of(path))?.sync_all()
}

/// Options that open a file, or create it with mode 0600; a link is not followed.
pub fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    options
}

/// Writes a file that only its owner may read, atomically and synced. An existing file is replaced.
pub fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    NewFile::create(path)?.finish(content)
}

/// A private file under a temporary name. An existing file of the final name stays until [`NewFile::finish`]. If
/// dropped before, the temporary file is removed.
#[derive(Debug)]
pub struct NewFile {
    /// Locked, so that a clean-up of leftovers leaves it alone.
    file: File,
    partial: PathBuf,
    path: PathBuf,
    finished: bool,
}

impl NewFile {
    /// Creates the temporary file beside `path`. It follows no link and never reuses the leftover of a killed process,
    /// which in a container has the same process id.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut numbers = 0..MAX_NAMES;
        let create = || loop {
            let n = numbers.next().ok_or(ErrorKind::AlreadyExists)?;
            let partial = with_ending(path, &format!(".{}-{n}{PARTIAL}", std::process::id()));
            match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                opened => return opened.map(|file| (file, partial)),
            }
        };
        let (file, partial) = user::in_directory(directory_of(path), create)?;
        // On a file system without locks nothing is cleaned up either, so a failure does not matter.
        drop(file.try_lock());
        Ok(Self { file, partial, path: path.to_owned(), finished: false })
    }

    /// Lets everybody read it, for what is no secret.
    pub fn readable(self) -> io::Result<Self> {
        self.file.set_permissions(Permissions::from_mode(0o644))?;
        Ok(self)
    }

    /// Writes the content, renames the file to its final name, and syncs both.
    pub fn finish(mut self, content: &[u8]) -> io::Result<()> {
        let path = self.path.clone();
        user::in_directory(directory_of(&path), || {
            self.file.write_all(content)?;
            keep_owner(&self.partial, &path)?;
            self.file.sync_all()?;
            fs::rename(&self.partial, &path)?;
            self.finished = true;
            sync_directory_of(&path)
        })
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.finished {
            drop(user::in_directory(directory_of(&self.path), || fs::remove_file(&self.partial)));
        }
    }
}

/// A file that root writes in a directory of root keeps its owner. Elsewhere root writes as the directory's owner.
fn keep_owner(partial: &Path, path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(before) if user::id() == 0 && before.uid() != 0 => {
            chown(partial, Some(before.uid()), Some(before.gid()))
        }
        _ => Ok(()),
    }
}

/// Reads a text file that a person made, without a byte order mark.
pub fn read_text(path: &Path) -> io::Result<String> {
    let mut text = fs::read_to_string(path)?;
    remove_mark(&mut text);
    Ok(text)
}

/// Reads a secret from a file, without the line end after it. Refuses a file that others can read.
pub fn read_secret(path: &Path) -> io::Result<Zeroizing<String>> {
    let mode = fs::metadata(path)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        let why = format!(
            "it has mode {mode:03o}: others could read the password (chmod 600 {})",
            path.display()
        );
        return Err(io::Error::new(ErrorKind::PermissionDenied, why));
    }
    let text = Zeroizing::new(read_text(path)?);
    Ok(Zeroizing::new(text.trim_end_matches(['\r', '\n']).to_owned()))
}

/// Reads a small file of `directory` with the rights of the user who decides what is in it, and follows no link. Refuses
/// a file of somebody else, or one that others can change.
pub fn read_own(directory: &Path, name: &str) -> io::Result<String> {
    user::in_directory(directory, || {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let file = options.open(directory.join(name))?;
        let found = file.metadata()?;
        let theirs = fs::metadata(directory)?.uid();
        let owner = found.uid();
        let mode = found.mode() & 0o777;
        if !found.is_file() || (owner != theirs && owner != 0) || mode & 0o022 != 0 {
            let why = format!(
                "it must be a file of user {theirs} that nobody else can change, but has mode {mode:03o} and owner \
                 {owner}: somebody else may have put it there; remove it and restart the service"
            );
            return Err(io::Error::new(ErrorKind::PermissionDenied, why));
        }
        let mut text = String::new();
        file.take(MAX_OWN_BYTES).read_to_string(&mut text)?;
        remove_mark(&mut text);
        Ok(text)
    })
}

/// When the newest file with that ending in a directory was last written; `None` if there is none.
pub fn newest(directory: &Path, ending: &str) -> Option<Timestamp> {
    times_of(directory, ending).max()
}

/// Like [`newest`], of the files that were not written after `now`: a clock that was ahead has dated those, and nobody knows
/// how old they are.
pub fn newest_until(directory: &Path, ending: &str, now: Timestamp) -> Option<Timestamp> {
    times_of(directory, ending).filter(|at| *at <= now).max()
}

fn times_of(directory: &Path, ending: &str) -> impl Iterator<Item = Timestamp> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter(move |entry| entry.file_name().to_string_lossy().ends_with(ending))
        .filter_map(|entry| entry.metadata().ok()?.modified().ok())
        .map(Timestamp::from)
}

/// Identity and state of a file: another file, or the same file after a write, has another stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    /// Seconds and nanoseconds.
    written_at: (i64, i64),
}

impl Stamp {
    fn of(file: &fs::Metadata) -> Self {
        Self {
            device: file.dev(),
            inode: file.ino(),
            size: file.len(),
            written_at: (file.mtime(), file.mtime_nsec()),
        }
    }
}

/// The stamps of files and directories; `None` where there is none. Other machines are not asked: of a network share this
/// is what is known here.
pub fn stamps(paths: &[PathBuf]) -> Vec<Option<Stamp>> {
    let wanted = StatxFlags::BASIC_STATS;
    let stamp = |path: &PathBuf| {
        let found = statx(CWD, path.as_path(), AtFlags::STATX_DONT_SYNC, wanted).ok()?;
        Some(Stamp {
            device: makedev(found.stx_dev_major, found.stx_dev_minor),
            inode: found.stx_ino,
            size: found.stx_size,
            written_at: (found.stx_mtime.tv_sec, i64::from(found.stx_mtime.tv_nsec)),
        })
    };
    paths.iter().map(stamp).collect()
}

/// A file's content and stamp. The file is held open, so that no other file gets its inode number.
#[derive(Debug)]
pub struct Contents {
    /// Its bytes; empty if it is too large.
    pub bytes: Vec<u8>,
    /// Its size.
    pub size: u64,
    /// Its stamp, equal before and after it was read.
    pub stamp: Stamp,
    _open: File,
}

/// The kind of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file with one name.
    File,
    /// A regular file with several names (hard links). The user who made this name may be unable to read the file.
    Shared,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A pipe, a device, a socket.
    Special,
}

/// The names in a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Names in UTF-8.
    pub usable: Vec<String>,
    /// Other names, converted lossily; without directories.
    pub other: Vec<String>,
}

/// A directory that another user may write into. It is held open, and no link is followed to it or in it:
/// a link made by that user must not make us read or write files that the user cannot.
#[derive(Debug)]
pub struct Directory(OwnedFd);

impl Directory {
    /// Opens a directory whose path contains no link (see `fs::canonicalize`).
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
            // Kernels before 5.6, and sandboxes that do not allow `openat2`.
            Err(Errno::NOSYS | Errno::PERM) => Ok(Self(openat(CWD, path, flags, Mode::empty())?)),
            opened => Ok(Self(opened?)),
        }
    }

    /// Opens a subdirectory, or creates it. Fails if something else has the name, such as a link.
    pub fn make(&self, name: &str) -> io::Result<Self> {
        match mkdirat(&self.0, name, Mode::RWXU | Mode::RWXG | Mode::RWXO) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(&self.0, name, flags, Mode::empty()) {
            Err(Errno::LOOP | Errno::NOTDIR) => Err(io::Error::new(
                ErrorKind::NotADirectory,
                "it exists, but is a link or not a directory",
            )),
            opened => Ok(Self(opened?)),
        }
    }

    /// The subdirectory with this name; `None` if there is none, or if it is a link.
    pub fn below(&self, name: &str) -> io::Result<Option<Self>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(&self.0, name, flags, Mode::empty()) {
            Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => Ok(None),
            opened => Ok(Some(Self(opened?))),
        }
    }

    /// Creates a file that only its owner may read, for writing; fails if the name is taken.
    pub fn create(&self, name: &str) -> io::Result<File> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(File::from(openat(&self.0, name, flags, Mode::RUSR | Mode::WUSR)?))
    }

    /// Opens an existing entry for reading without waiting for it and without following a link; `None` if there is none.
    pub fn look_at(&self, name: &str) -> io::Result<Option<File>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match openat(&self.0, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => Ok(None),
            opened => Ok(Some(File::from(opened?))),
        }
    }

    /// The mode of the directory.
    pub fn mode(&self) -> io::Result<u32> {
        Ok(self.0.try_clone().map(File::from)?.metadata()?.mode())
    }

    /// Lets everybody who may read or write the directory do so with a file of it. Some shares keep no modes; there the
    /// share's own rights count.
    pub fn share(&self, file: &File) -> io::Result<()> {
        match file.set_permissions(Permissions::from_mode(self.mode()? & 0o666)) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
            Err(error) if error.kind() == ErrorKind::Unsupported => Ok(()),
            shared => shared,
        }
    }

    /// Writes its names to the disk. A file system that cannot do so, such as some network shares, does it by itself.
    pub fn sync(&self) -> io::Result<()> {
        match fsync(&self.0) {
            Err(Errno::INVAL | Errno::NOTSUP | Errno::NOSYS) => Ok(()),
            synced => Ok(synced?),
        }
    }

    /// The names in it, sorted.
    pub fn names(&self) -> io::Result<Names> {
        let mut names = Names::default();
        for entry in Dir::read_from(&self.0)? {
            let entry = entry?;
            match entry.file_name().to_str() {
                Ok("." | "..") => {}
                Ok(name) => names.usable.push(name.to_owned()),
                Err(_bytes) if entry.file_type() == FileType::Directory => {}
                Err(_bytes) => names.other.push(entry.file_name().to_string_lossy().into_owned()),
            }
        }
        names.usable.sort_unstable();
        Ok(names)
    }

    /// Whether an entry of any kind has this name.
    pub fn has(&self, name: &str) -> bool {
        !matches!(statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW), Err(Errno::NOENT))
    }

    /// The kind of the entry with this name; `None` if there is none.
    pub fn kind(&self, name: &str) -> Option<EntryKind> {
        let found = statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some(match FileType::from_raw_mode(found.st_mode) {
            FileType::RegularFile if found.st_nlink > 1 => EntryKind::Shared,
            FileType::RegularFile => EntryKind::File,
            FileType::Directory => EntryKind::Directory,
            FileType::Symlink => EntryKind::Link,
            _ => EntryKind::Special,
        })
    }

    /// The stamp of the regular file with this name; `None` if there is no such file.
    pub fn stamp(&self, name: &str) -> io::Result<Option<Stamp>> {
        Ok(self.metadata(name)?.map(|found| Stamp::of(&found)))
    }

    /// When the regular file with this name was last written or renamed; `None` if there is no such file.
    pub fn changed_at(&self, name: &str) -> Option<Timestamp> {
        let found = self.metadata(name).ok()??;
        Some(Timestamp::from_secs(found.ctime().max(found.mtime())))
    }

    /// When the regular file with this name was last written; `None` if there is no such file.
    pub fn written_at(&self, name: &str) -> Option<Timestamp> {
        Some(Timestamp::from_secs(self.metadata(name).ok()??.mtime()))
    }

    fn metadata(&self, name: &str) -> io::Result<Option<fs::Metadata>> {
        // Through an `O_PATH` handle, because the fields of a bare `statat` differ by machine.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(&self.0, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => Ok(None),
            opened => Ok(Some(File::from(opened?).metadata()?).filter(fs::Metadata::is_file)),
        }
    }

    /// Writes a new file; fails if the name is taken.
    pub fn write_new(&self, name: &str, text: &str) -> io::Result<()> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o666);
        let mut file = File::from(openat(&self.0, name, flags, mode)?);
        file.write_all(text.as_bytes())
    }

    /// Moves an entry to another directory; fails if the new name is taken.
    pub fn move_to(&self, name: &str, to: &Self, new: &str) -> io::Result<()> {
        match renameat_with(&self.0, name, &to.0, new, RenameFlags::NOREPLACE) {
            // Some file systems do not support NOREPLACE.
            Err(Errno::INVAL | Errno::NOSYS) if to.has(new) => Err(Errno::EXIST.into()),
            Err(Errno::INVAL | Errno::NOSYS) => Ok(renameat(&self.0, name, &to.0, new)?),
            moved => Ok(moved?),
        }
    }

    /// Removes a name.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(&self.0, name, AtFlags::empty())?)
    }
}

/// Reads a regular file of `most` bytes at most. `None` for anything else, such as a link, for a file with several
/// names, and for a file that changed while it was read.
pub fn read_regular(from: &Directory, name: &str, most: u64) -> io::Result<Option<Contents>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match openat(&from.0, name, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::LOOP | Errno::NXIO) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let before = file.metadata()?;
    if !before.is_file() || before.nlink() > 1 {
        return Ok(None);
    }
    let size = before.len();
    let stamp = Stamp::of(&before);
    if size > most {
        return Ok(Some(Contents { bytes: Vec::new(), size, stamp, _open: file }));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    (&file).take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    let read = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    let is_whole = size == read && Stamp::of(&file.metadata()?) == stamp;
    Ok(is_whole.then_some(Contents { bytes, size, stamp, _open: file }))
}

/// Sets the mode of a file or directory; fails on a link.
pub fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(CWD, path, flags, Mode::empty())?;
    Ok(fchmod(file, Mode::from_raw_mode(mode))?)
}

/// Whether this process may create files in a directory.
pub fn may_write(directory: &Path) -> bool {
    let wanted = Access::WRITE_OK | Access::EXEC_OK;
    accessat(CWD, directory, wanted, AtFlags::EACCESS).is_ok()
}

/// Whether nothing exists at a path. A path that this user may not look at is not missing: opening it says why.
pub fn is_missing(path: &Path) -> bool {
    path.try_exists().is_ok_and(|there| !there)
}

/// Whether this process lacks the permission to list a directory.
pub fn is_closed(directory: &Path) -> bool {
    let denied = ErrorKind::PermissionDenied;
    fs::read_dir(directory).is_err_and(|error| error.kind() == denied)
}

/// Whether this process runs as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_file_is_written_over_nothing_but_its_own_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let theirs = dir.path().join("theirs");
        fs::write(&theirs, "theirs").unwrap();
        // A leftover of a killed process, a link, and a file with a similar name.
        let name = |n: u32| dir.path().join(format!("token.{}-{n}.partial", std::process::id()));
        fs::write(name(0), "left").unwrap();
        std::os::unix::fs::symlink(&theirs, name(1)).unwrap();
        fs::write(dir.path().join("token.new"), "new").unwrap();
        std::os::unix::fs::symlink(&theirs, &path).unwrap();
        write_private(&path, b"mine").unwrap();
        let read = |path: &Path| fs::read_to_string(path).unwrap();
        assert_eq!((read(&path), read(&theirs)), ("mine".to_owned(), "theirs".to_owned()));
        assert_eq!(read(&name(0)) + &read(&dir.path().join("token.new")), "leftnew");
        assert!(!path.symlink_metadata().unwrap().is_symlink() && !name(2).exists());
    }
}
