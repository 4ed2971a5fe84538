//! A file per batch: many small files of a folder become one file in another folder, each in exactly one.
//!
//! A record says which files are in the batch and what it is called. It is on the disk before anything else is done, so a
//! run that was killed anywhere is finished by the next one. The small files end in `done/`, where the target folder sees
//! that they were written, before the batch gets its name.
//!
//! Not here: how each event becomes a file (`targets::folder`).

use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::base::id;
use crate::sys::files::{Directory, EntryKind, read_regular};

/// The record of the batch that is under way.
const RECORD: &str = ".oncebox-batch.json";
/// The record before it has its name.
const NEW_RECORD: &str = ".oncebox-batch.json.new";
/// Locked while a run is under way.
const LOCK: &str = ".oncebox-batch.lock";
/// Where files are that stand in a batch.
const DONE: &str = "done";
/// The largest file that is taken into a batch: more than the largest payload.
const MAX_LINE_BYTES: u64 = 64 * 1024 * 1024;
/// Characters of the fingerprint of a folder.
const FINGERPRINT_CHARS: usize = 8;
/// The largest record that is read: names of as many files as a batch may have.
const MAX_RECORD_BYTES: u64 = 16 * 1024 * 1024;

/// What a file of a batch looks like.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Text before the lines, with its line end.
    pub first_line: Option<String>,
    /// Text at the end of each line but the last one.
    pub between: String,
    /// Text after the lines, with its line end.
    pub last_line: Option<String>,
    /// Lines of a file at most.
    pub max: usize,
}

/// A file that a run has finished.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FinishedBatch {
    /// Its path.
    pub file: PathBuf,
    /// How many lines it has.
    pub lines: usize,
}

/// Why a batch was not finished. Everything stays as it is, and the next run goes on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or a folder cannot be used.
    #[error("{path}: {source}")]
    Io {
        /// Which one.
        path: PathBuf,
        /// What was wrong.
        source: io::Error,
    },
    /// Another run uses the same folder.
    #[error("another run uses {0}; the next one goes on")]
    Busy(PathBuf),
    /// A file of the batch is gone.
    #[error(
        "{0} was moved or deleted while its batch was being made: put it back. If it must not be in the file, delete {1}"
    )]
    Gone(PathBuf, PathBuf),
    /// A name is taken by something else.
    #[error("{0} exists already, and nothing is overwritten: move it away")]
    Taken(PathBuf),
    /// The batch that is under way goes into another folder.
    #[error("a batch was begun for {0}: run once with that folder, so that it is finished")]
    Elsewhere(PathBuf),
    /// The record cannot be read.
    #[error("{0} cannot be read: {1}. Nothing is done until it is mended")]
    Record(PathBuf, String),
    /// The batches would be taken for lines.
    #[error("{0} is the folder of the lines: write the batches into another one")]
    SameFolder(PathBuf),
}

type Result<T> = std::result::Result<T, Error>;

/// What is in a batch. It stands in the folder of the lines until its file has its name.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    /// The folder into which the file goes.
    into: PathBuf,
    /// A fingerprint of the folder of the lines.
    folder: String,
    /// The names of the lines, in their order. The file is named after the first one.
    lines: Vec<String>,
}

/// How far a batch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Its file is not there yet; the lines are in their folder.
    Recorded,
    /// Its file is complete, under a name that readers ignore.
    Assembled,
    /// Its file has its name.
    Named,
}

/// A folder with lines, for one run.
struct Lines {
    path: PathBuf,
    folder: Directory,
    /// Locked until it is dropped.
    _lock: File,
}

/// Finishes what an earlier run left, and then makes files of all that waits.
///
/// # Errors
/// An error loses and doubles no line: finished files stay, and the next run goes on.
pub fn run(
    lines: &Path,
    into: &Path,
    layout: &Layout,
    mut finished: impl FnMut(&FinishedBatch),
) -> Result<()> {
    let lines = Lines::open(lines)?;
    let into = real(into)?;
    if into == lines.path || into == lines.path.join(DONE) {
        return Err(Error::SameFolder(into));
    }
    loop {
        let record = match lines.left()? {
            Some(record) if record.into != into => return Err(Error::Elsewhere(record.into)),
            Some(record) => record,
            None => match lines.record(&into, layout.max)? {
                Some(record) => record,
                None => return Ok(()),
            },
        };
        finished(&lines.finish(&record, layout)?);
    }
}

impl Lines {
    fn open(path: &Path) -> Result<Self> {
        let path = real(path)?;
        let lock_path = path.join(LOCK);
        // A link is not followed: others may write into the folder.
        let mut options = File::options();
        options.create(true).append(true).custom_flags(libc::O_NOFOLLOW);
        let lock = options.open(&lock_path).map_err(at(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(Error::Busy(path)),
            Err(fs::TryLockError::Error(source)) => {
                return Err(Error::Io { path: lock_path, source });
            }
        }
        let folder = Directory::open(&path).map_err(at(&path))?;
        Ok(Self { path, folder, _lock: lock })
    }

    /// The record that an earlier run left. Others may write into the folder, so no name in it may lead elsewhere.
    fn left(&self) -> Result<Option<Record>> {
        let path = self.path.join(RECORD);
        if !self.folder.has(RECORD) {
            return Ok(None);
        }
        let unusable = |why: String| Error::Record(path.clone(), why);
        let text = self.read(RECORD, MAX_RECORD_BYTES)?;
        let record: Record =
            serde_json::from_slice(&text).map_err(|error| unusable(error.to_string()))?;
        let is_hex = record.folder.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_name =
            |name: &String| !name.is_empty() && !name.starts_with('.') && !name.contains('/');
        if record.lines.is_empty() || !is_hex || !record.lines.iter().all(is_name) {
            return Err(unusable("a name in it is none of a file in this folder".to_owned()));
        }
        Ok(Some(record))
    }

    /// Records the next batch; `None` if no line waits.
    fn record(&self, into: &Path, max: usize) -> Result<Option<Record>> {
        let names = self.folder.names().map_err(at(&self.path))?.usable;
        let is_line = |name: &String| {
            let kind = self.folder.kind(name);
            !name.starts_with('.') && kind == Some(EntryKind::File)
        };
        let lines: Vec<String> = names.into_iter().filter(is_line).take(max).collect();
        if lines.is_empty() {
            return Ok(None);
        }
        let folder = id::sha256_hex(self.path.as_os_str().as_bytes());
        let folder = folder.get(..FINGERPRINT_CHARS).unwrap_or_default().to_owned();
        let record = Record { into: into.to_owned(), folder, lines };
        // Where a person has deleted the record of a batch, its file may be there.
        let directory = Directory::open(into).map_err(at(into))?;
        remove_if_there(&directory, &record.hidden()).map_err(at(into))?;
        let path = self.path.join(NEW_RECORD);
        let text = serde_json::to_vec(&record).map_err(io::Error::from).map_err(at(&path))?;
        let write = || {
            remove_if_there(&self.folder, NEW_RECORD)?;
            let mut file = self.folder.create(NEW_RECORD)?;
            file.write_all(&text)?;
            file.sync_all()?;
            self.folder.move_to(NEW_RECORD, &self.folder, RECORD)?;
            self.folder.sync()
        };
        write().map_err(at(&path))?;
        Ok(Some(record))
    }

    /// Takes a batch from wherever it is to its end.
    fn finish(&self, record: &Record, layout: &Layout) -> Result<FinishedBatch> {
        let into = Directory::open(&record.into).map_err(at(&record.into))?;
        if self.stage(record, &into)? == Stage::Recorded {
            self.assemble(record, &into, layout)?;
        }
        if self.stage(record, &into)? == Stage::Assembled {
            self.move_lines(record)?;
            record.give_name(&into)?;
        }
        self.forget()?;
        let file = record.into.join(record.name());
        Ok(FinishedBatch { file, lines: record.lines.len() })
    }

    fn stage(&self, record: &Record, into: &Directory) -> Result<Stage> {
        if into.has(&record.hidden()) {
            return Ok(Stage::Assembled);
        }
        if self.folder.has(record.name()) {
            return Ok(Stage::Recorded);
        }
        // Lines leave their folder once the file is there, so what is not there any more has got its name.
        let done = self.folder.below(DONE).map_err(at(&self.path))?;
        if done.is_some_and(|done| done.has(record.name())) {
            return Ok(Stage::Named);
        }
        Err(self.gone(record.name()))
    }

    /// Writes the file under a name that readers ignore.
    fn assemble(&self, record: &Record, into: &Directory, layout: &Layout) -> Result<()> {
        let part = format!("{}.part", record.hidden());
        let path = record.into.join(&part);
        let create = || {
            remove_if_there(into, &part)?;
            into.create(&part)
        };
        let file = create().map_err(at(&path))?;
        let mut writer = BufWriter::new(file);
        if let Some(text) = &layout.first_line {
            writeln!(writer, "{text}").map_err(at(&path))?;
        }
        let last = record.lines.len().saturating_sub(1);
        for (n, name) in record.lines.iter().enumerate() {
            let between = if n < last { layout.between.as_str() } else { "" };
            let line = self.line(name)?;
            let mut write = || {
                writer.write_all(without_line_end(&line))?;
                writeln!(writer, "{between}")
            };
            write().map_err(at(&path))?;
        }
        let close = || {
            if let Some(text) = &layout.last_line {
                writeln!(writer, "{text}")?;
            }
            let file = writer.into_inner()?;
            into.share(&file)?;
            file.sync_all()?;
            into.move_to(&part, into, &record.hidden())?;
            into.sync()
        };
        close().map_err(at(&path))
    }

    fn line(&self, name: &str) -> Result<Vec<u8>> {
        if !self.folder.has(name) {
            return Err(self.gone(name));
        }
        self.read(name, MAX_LINE_BYTES)
    }

    /// The content of a file of the folder.
    fn read(&self, name: &str, most: u64) -> Result<Vec<u8>> {
        let path = self.path.join(name);
        let failed = |kind, why: &str| Error::Io {
            path: self.path.join(name),
            source: io::Error::new(kind, why.to_owned()),
        };
        let contents = read_regular(&self.folder, name, most).map_err(at(&path))?;
        match contents {
            Some(contents) if contents.size <= most => Ok(contents.bytes),
            Some(_) => Err(failed(ErrorKind::FileTooLarge, "it is too large for a batch")),
            None => Err(failed(
                ErrorKind::InvalidInput,
                "it is a link, has several names, or was changed while it was read",
            )),
        }
    }

    /// Moves the lines to `done/`. From then on they are in this file and in no other.
    fn move_lines(&self, record: &Record) -> Result<()> {
        let path = self.path.join(DONE);
        let done = self.folder.make(DONE).map_err(at(&path))?;
        for name in &record.lines {
            match self.folder.move_to(name, &done, name) {
                Ok(()) => {}
                // An interrupted run has moved it.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    return Err(Error::Taken(path.join(name)));
                }
                Err(source) => return Err(Error::Io { path: self.path.join(name), source }),
            }
        }
        done.sync().map_err(at(&path))?;
        self.folder.sync().map_err(at(&self.path))
    }

    fn forget(&self) -> Result<()> {
        let remove = || {
            self.folder.remove(RECORD)?;
            self.folder.sync()
        };
        remove().map_err(at(&self.path.join(RECORD)))
    }

    fn gone(&self, name: &str) -> Error {
        Error::Gone(self.path.join(name), self.path.join(RECORD))
    }
}

impl Record {
    /// The name of the file.
    fn name(&self) -> &str {
        self.lines.first().map_or("", String::as_str)
    }

    /// Its name until the lines have moved. Two folders of lines may have files of one name, and write into one folder.
    fn hidden(&self) -> String {
        format!(".{}.{}.batch", self.name(), self.folder)
    }

    fn give_name(&self, into: &Directory) -> Result<()> {
        let path = self.into.join(self.name());
        match into.move_to(&self.hidden(), into, self.name()) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(Error::Taken(path)),
            moved => moved.and_then(|()| into.sync()).map_err(at(&path)),
        }
    }
}

/// The path without links.
fn real(path: &Path) -> Result<PathBuf> {
    fs::canonicalize(path).map_err(at(path))
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Io { path, source }
}

fn remove_if_there(folder: &Directory, name: &str) -> io::Result<()> {
    match folder.remove(name) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn without_line_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folders {
        home: tempfile::TempDir,
    }

    impl Folders {
        fn new(names: &[&str]) -> Self {
            let home = tempfile::tempdir().unwrap();
            for folder in ["lines", "in"] {
                fs::create_dir(home.path().join(folder)).unwrap();
            }
            let folders = Self { home };
            for name in names {
                folders.put(name);
            }
            folders
        }

        fn path(&self, folder: &str) -> PathBuf {
            self.home.path().join(folder)
        }

        fn put(&self, name: &str) {
            fs::write(self.path("lines").join(name), format!("{name}\n")).unwrap();
        }

        fn run(&self, layout: &Layout) -> Result<Vec<FinishedBatch>> {
            let mut all = Vec::new();
            run(&self.path("lines"), &self.path("in"), layout, |batch| all.push(batch.clone()))?;
            Ok(all)
        }

        fn said(&self) -> String {
            let error = self.run(&lines_of(10)).unwrap_err().to_string();
            error.replace(self.home.path().to_str().unwrap(), "")
        }

        /// The files, each with its content.
        fn files(&self) -> Vec<String> {
            let mut paths: Vec<PathBuf> =
                fs::read_dir(self.path("in")).unwrap().map(|entry| entry.unwrap().path()).collect();
            paths.sort();
            let shown = |path: PathBuf| {
                let name = path.file_name().unwrap().to_str().unwrap().to_owned();
                format!("{name}: {}", fs::read_to_string(&path).unwrap().replace('\n', "|"))
            };
            paths.into_iter().map(shown).collect()
        }
    }

    fn lines_of(max: usize) -> Layout {
        Layout { first_line: None, between: String::new(), last_line: None, max }
    }

    #[test]
    fn lines_become_files_in_the_order_of_their_names() {
        let folders = Folders::new(&["b", "a", "c", ".hidden"]);
        fs::create_dir(folders.path("lines/rejected")).unwrap();
        std::os::unix::fs::symlink("a", folders.path("lines/link")).unwrap();
        let all = folders.run(&lines_of(2)).unwrap();
        assert_eq!(all.iter().map(|batch| batch.lines).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(folders.files(), ["a: a|b|", "c: c|"]);
        assert_eq!(folders.run(&lines_of(2)).unwrap(), []);
        for stays in ["done/a", "done/b", "done/c", "link", ".hidden", "rejected"] {
            assert!(fs::symlink_metadata(folders.path("lines").join(stays)).is_ok(), "{stays}");
        }
        assert!(!folders.path("lines").join(RECORD).exists());
    }

    #[test]
    fn a_layout_makes_a_file_of_json() {
        let folders = Folders::new(&[]);
        for (name, content) in [("1", "{\"n\":1}"), ("2", "{\"n\":2}\r\n"), ("3", "{\"n\":3}\n")] {
            fs::write(folders.path("lines").join(name), content).unwrap();
        }
        let layout = Layout {
            first_line: Some("[".to_owned()),
            between: ",".to_owned(),
            last_line: Some("]".to_owned()),
            max: 10,
        };
        folders.run(&layout).unwrap();
        let text = fs::read_to_string(folders.path("in/1")).unwrap();
        assert_eq!(text, "[\n{\"n\":1},\n{\"n\":2},\n{\"n\":3}\n]\n");
        let items: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
        assert_eq!(items.len(), 3);
    }

    /// Each state in which a killed run can leave the folders. The next run ends with the same one file.
    #[test]
    fn a_run_that_was_killed_anywhere_is_finished_by_the_next_one() {
        type Killed = fn(&Lines, &Record, &Directory);
        let after_assembly: [Killed; 5] = [
            |_, _, _| {},
            |lines, record, _| {
                // Some of its lines have moved.
                let done = lines.folder.make(DONE).unwrap();
                lines.folder.move_to(&record.lines[0], &done, &record.lines[0]).unwrap();
            },
            |lines, record, _| lines.move_lines(record).unwrap(),
            |lines, record, into| {
                lines.move_lines(record).unwrap();
                record.give_name(into).unwrap();
            },
            |lines, record, into| {
                lines.move_lines(record).unwrap();
                record.give_name(into).unwrap();
                lines.forget().unwrap();
            },
        ];
        let before_assembly: [Killed; 2] = [
            |_, _, _| {},
            |_, record, into| {
                let mut part = into.create(&format!("{}.part", record.hidden())).unwrap();
                part.write_all(b"half a li").unwrap();
            },
        ];
        for killed in before_assembly {
            finishes(killed, false);
        }
        for killed in after_assembly {
            finishes(killed, true);
        }
    }

    fn finishes(killed: fn(&Lines, &Record, &Directory), is_assembled: bool) {
        let folders = Folders::new(&["a", "b", "c"]);
        {
            let lines = Lines::open(&folders.path("lines")).unwrap();
            let into = real(&folders.path("in")).unwrap();
            let record = lines.record(&into, 2).unwrap().unwrap();
            let folder = Directory::open(&into).unwrap();
            if is_assembled {
                lines.assemble(&record, &folder, &lines_of(2)).unwrap();
            }
            killed(&lines, &record, &folder);
        }
        // What comes meanwhile is not in the batch that is under way.
        folders.put("aa");
        folders.run(&lines_of(9)).unwrap();
        assert_eq!(folders.files(), ["a: a|b|", "aa: aa|c|"]);
        assert_eq!(folders.run(&lines_of(9)).unwrap(), []);
    }

    #[test]
    fn another_folder_waits_until_the_batch_that_is_under_way_is_where_it_was_to_go() {
        let folders = Folders::new(&["a"]);
        let other = folders.path("other");
        fs::create_dir(&other).unwrap();
        let lines = Lines::open(&folders.path("lines")).unwrap();
        lines.record(&real(&folders.path("in")).unwrap(), 9).unwrap();
        drop(lines);
        let refused = run(&folders.path("lines"), &other, &lines_of(9), |_| {}).unwrap_err();
        assert!(refused.to_string().contains("was begun for"), "{refused}");
        assert_eq!(fs::read_dir(&other).unwrap().count(), 0);
        folders.run(&lines_of(9)).unwrap();
        assert_eq!(folders.files(), ["a: a|"]);
    }

    /// The record and the lock stand in a folder into which others may write.
    #[test]
    fn nothing_outside_the_folder_is_read_or_written() {
        let folders = Folders::new(&["a"]);
        fs::write(folders.path("secret"), "secret").unwrap();
        let put_record = |folder: &str, name: &str| {
            let record = serde_json::json!({ "into": folders.path("in"), "folder": folder, "lines": [name] });
            fs::write(folders.path("lines").join(RECORD), record.to_string()).unwrap();
        };
        for (folder, name) in
            [("0", "../secret"), ("0", ".."), ("0", ""), ("0", ".hidden"), ("/../../x", "a")]
        {
            put_record(folder, name);
            let said = folders.said();
            assert!(said.contains("cannot be read"), "{folder} {name}: {said}");
        }
        put_record("0", "linked");
        for link in
            [std::os::unix::fs::symlink, |from: PathBuf, to: PathBuf| fs::hard_link(from, to)]
        {
            link(folders.path("secret"), folders.path("lines").join("linked")).unwrap();
            assert!(folders.said().contains("linked: it is a link"), "{}", folders.said());
            fs::remove_file(folders.path("lines").join("linked")).unwrap();
        }
        for name in [RECORD, LOCK] {
            fs::remove_file(folders.path("lines").join(name)).unwrap();
        }
        std::os::unix::fs::symlink(folders.path("new"), folders.path("lines").join(LOCK)).unwrap();
        let said = folders.said();
        assert!(said.contains(LOCK), "{said}");
        assert!(!folders.path("new").exists());
        assert!(!folders.files().concat().contains("secret"), "{:?}", folders.files());
    }

    #[test]
    fn what_is_in_the_way_is_named_and_nothing_is_lost() {
        let folders = Folders::new(&["a", "b"]);
        fs::write(folders.path("in/a"), "of somebody").unwrap();
        assert_eq!(
            folders.said(),
            "/in/a exists already, and nothing is overwritten: move it away"
        );
        fs::remove_file(folders.path("in/a")).unwrap();
        folders.run(&lines_of(9)).unwrap();
        assert_eq!(folders.files(), ["a: a|b|"]);

        let folders = Folders::new(&["a", "b"]);
        let lines = Lines::open(&folders.path("lines")).unwrap();
        lines.record(&real(&folders.path("in")).unwrap(), 9).unwrap();
        assert!(folders.said().starts_with("another run uses /lines"), "{}", folders.said());
        drop(lines);
        fs::remove_file(folders.path("lines/b")).unwrap();
        let said = folders.said();
        assert!(said.starts_with("/lines/b was moved or deleted"), "{said}");
        fs::remove_file(folders.path("lines/a")).unwrap();
        assert!(folders.said().starts_with("/lines/a was moved or deleted"));
        fs::write(folders.path("lines").join(RECORD), "{").unwrap();
        assert!(folders.said().contains(".oncebox-batch.json cannot be read: "));
        for name in ["a", "b"] {
            folders.put(name);
        }
        fs::remove_file(folders.path("lines").join(RECORD)).unwrap();
        folders.run(&lines_of(9)).unwrap();
        assert_eq!(folders.files(), ["a: a|b|"]);
        folders.put("a");
        assert_eq!(
            folders.said(),
            "/lines/done/a exists already, and nothing is overwritten: move it away"
        );
    }

    /// The record is deleted by hand, as the error about a file that is gone says: the rest goes into a file.
    #[test]
    fn a_batch_that_a_person_ended_leaves_nothing_behind() {
        let folders = Folders::new(&["a", "c"]);
        let lines = Lines::open(&folders.path("lines")).unwrap();
        let into = real(&folders.path("in")).unwrap();
        let record = lines.record(&into, 9).unwrap().unwrap();
        lines.assemble(&record, &Directory::open(&into).unwrap(), &lines_of(9)).unwrap();
        lines.forget().unwrap();
        drop(lines);
        folders.put("b");
        folders.run(&lines_of(9)).unwrap();
        assert_eq!(folders.files(), ["a: a|b|c|"]);
    }

    #[test]
    fn batches_do_not_go_where_they_would_be_lines() {
        let folders = Folders::new(&["a"]);
        let lines = folders.path("lines");
        for into in [lines.clone(), lines.join("done")] {
            fs::create_dir_all(&into).unwrap();
            let refused = run(&lines, &into, &lines_of(9), |_| {}).unwrap_err();
            assert!(refused.to_string().contains("write the batches into another one"));
        }
        let missing = run(&lines, &folders.path("nowhere"), &lines_of(9), |_| {}).unwrap_err();
        assert!(missing.to_string().contains("nowhere: No such file"), "{missing}");
    }
}
