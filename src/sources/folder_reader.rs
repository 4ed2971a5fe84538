//! Imports the files of a drop folder: each in one transaction, then it is moved to `done` or `rejected`.
//!
//! If the process is killed before COMMIT, nothing has happened. If it is killed afterwards, the file is recognised
//! by its name and SHA-256, and is only moved.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::Path;
use std::time::Duration;

use ring::digest::{SHA256, digest};

use crate::base::clock::Timestamp;
use crate::model::escalation::Class;
use crate::model::event::NewEvent;
use crate::privacy::NotAdmitted;
use crate::sources::draft::describe;
use crate::sources::folder_settings::{
    DONE_ENDING, FolderSettings, MAX_FILE_BYTES, Protocol, is_candidate, is_ignored, unusable,
};
use crate::sources::shared::{
    Obstacle, ReadyRow, RelayServices, SourceError, Turn, escalation, recognise,
};
use crate::sources::tables::{self, Progress, SourceFile, TakenFile};
use crate::sources::transfer::{DONE, Folder, Outcome, REJECTED, ReadFile, changed};
use crate::sources::{Source, reading};
use crate::store::error::Error;
use crate::store::escalations;
use crate::store::tx::WriteTx;
use crate::store::writer::Queue;
use crate::sys::files::{self, Directory, EntryKind, Names};

/// How often old files in `done` are deleted.
const CLEARED_EVERY: Duration = Duration::from_hours(1);
/// Memory taken per byte of a file while it is read. Measured with CSV with long names.
const FILE_FACTOR: usize = 5;
/// Why a file is refused that was being read at two unclean ends.
const DIED: &str = "the service ended unexpectedly twice in a row while it read this file (perhaps for lack of \
                    memory; its log says more), so the file is not read again. Check the file, split it if it is \
                    large, and put it into the folder again";
/// The longest reason that is stored for a file.
const MAX_REASON_CHARS: usize = 8_000;

/// State of a folder's relay between two turns. All of it can be rebuilt from the folder.
#[derive(Debug, Default)]
pub(super) struct FolderReader {
    /// Listed names that are still to be processed.
    listed: VecDeque<String>,
    /// Number of files that wait in the folder; `None` while it cannot be listed.
    waiting: Option<u64>,
    /// For files that must not change for a while: size, modification time, and since when these are unchanged, by the
    /// monotonic clock.
    still: BTreeMap<String, (u64, Option<Timestamp>, Duration)>,
    /// When old files in `done` were last deleted, by the monotonic clock.
    cleared_at: Option<Duration>,
    /// Why a file cannot be imported. The other files are still imported.
    error: Option<SourceError>,
}

impl FolderReader {
    /// Processes one file, or lists the folder.
    pub(super) fn turn(
        &mut self,
        shared: &RelayServices,
        source: &Source,
        settings: &FolderSettings,
    ) -> Outcome<Turn> {
        let turn = self.next(shared, source, settings);
        shared.statuses.set(source.seq, |status| status.lag = self.waiting);
        turn
    }

    fn next(
        &mut self,
        shared: &RelayServices,
        source: &Source,
        settings: &FolderSettings,
    ) -> Outcome<Turn> {
        let opened = Directory::open(&settings.path);
        let directory = opened.map_err(|error| self.not_listed(&settings.path, &error))?;
        let folder = Folder { shared, source, settings, directory };
        if let Some(name) = self.listed.pop_front() {
            match self.process(&folder, &name) {
                Err(error) if error.kind == Obstacle::Ours => return Err(error),
                Err(error) => self.error = Some(error),
                Ok(()) => {}
            }
            if folder.directory.kind(&name).is_none() {
                self.waiting = self.waiting.map(|waiting| waiting.saturating_sub(1));
            }
        } else {
            self.list(&folder)?;
        }
        if !self.listed.is_empty() {
            return Ok(Turn::Again);
        }
        self.error.take().map_or(Ok(Turn::Done), Err)
    }

    /// The error for a folder that cannot be listed; its files cannot be counted either.
    fn not_listed(&mut self, folder: &Path, error: &io::Error) -> SourceError {
        self.waiting = None;
        SourceError::passing(format!("{} cannot be listed: {error}", folder.display()))
    }

    fn list(&mut self, folder: &Folder<'_>) -> Outcome<()> {
        let Folder { shared, settings, directory, .. } = folder;
        let path = &settings.path;
        let found = directory.names().map_err(|error| self.not_listed(path, &error))?;
        if let Some(why) = unusable_name(&found) {
            let why = format!("in {} {why}", path.display());
            self.error = Some(SourceError::passing(why));
        }
        let names = found.usable;
        let is_complete = |name: &String| {
            settings.writer != Protocol::Done
                || names.binary_search(&format!("{name}{DONE_ENDING}")).is_ok()
        };
        let candidates = names.iter().filter(|name| is_candidate(name) && is_complete(name));
        let there: Vec<_> = candidates.map(|name| (name, directory.kind(name))).collect();
        let waits = |kind: Option<EntryKind>| kind.is_some_and(|kind| kind != EntryKind::Directory);
        // Counted before anything that can fail, because after a failure these files still wait.
        let waiting = there.iter().filter(|(_, kind)| waits(*kind)).count();
        self.waiting = Some(u64::try_from(waiting).unwrap_or(u64::MAX));
        for place in [DONE, REJECTED] {
            folder.make(place)?;
        }
        let now = shared.env.clock.monotonic();
        if self.cleared_at.is_none_or(|at| now.saturating_sub(at) >= CLEARED_EVERY) {
            let more = folder.clear()?;
            self.cleared_at = (!more).then_some(now);
        }
        self.still.retain(|name, _| names.binary_search(name).is_ok());
        for (name, kind) in there {
            match why_not_read(kind) {
                Some(why) => {
                    let why = format!("{} {why}", path.join(name).display());
                    self.error = Some(SourceError::passing(why));
                }
                None if kind == Some(EntryKind::File) => self.listed.push_back(name.clone()),
                None => {}
            }
        }
        Ok(())
    }

    fn process(&mut self, folder: &Folder<'_>, name: &str) -> Outcome<()> {
        let Folder { shared, source, settings, directory } = folder;
        let path = settings.path.join(name);
        // A program that writes a file in place creates it empty.
        let is_empty = path.symlink_metadata().is_ok_and(|meta| meta.len() == 0);
        let must_be_stable = settings.writer == Protocol::Stable || is_empty;
        if must_be_stable && !self.is_stable(folder, name, &path) {
            return Ok(());
        }
        let bytes = path.symlink_metadata().map_or(0, |meta| meta.len().min(MAX_FILE_BYTES));
        // Memory for the file, its rows and their events.
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).saturating_mul(FILE_FACTOR);
        let _share = shared.env.budget.take_own(bytes);
        let contents = match files::read_regular(directory, name, MAX_FILE_BYTES) {
            // Removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => {
                let why = format!("{} cannot be read: {error}", path.display());
                return Err(SourceError::lasting(why));
            }
            // Still being written, or not a regular file: retried with the next listing.
            Ok(None) => return Ok(()),
            Ok(Some(contents)) => contents,
        };
        let sha256 = digest(&SHA256, &contents.bytes).as_ref().to_vec();
        let file = ReadFile { name: name.to_owned(), path, contents, sha256 };
        let item = format!("file/{}/{name}", source.seq);
        if shared.suspects.is_convicted(&item) {
            folder.reject(&file, DIED)?;
            shared.suspects.clear(&item);
        } else {
            let _marked = shared.suspects.mark(&item, file.contents.bytes.len());
            folder.import(&file)?;
        }
        self.still.remove(name);
        Ok(())
    }

    /// Whether the file has not changed for as long as the settings ask for.
    fn is_stable(&mut self, folder: &Folder<'_>, name: &str, path: &Path) -> bool {
        // A clock that is set must not make a file that is being written look as if it stood still.
        let now = folder.shared.env.clock.monotonic();
        let Ok(meta) = path.symlink_metadata() else { return false };
        let is = (meta.len(), meta.modified().ok().map(Timestamp::from));
        match self.still.get(name) {
            Some((size, at, since)) if (*size, *at) == is => {
                now.saturating_sub(*since) >= folder.settings.stable()
            }
            _ => {
                self.still.insert(name.to_owned(), (is.0, is.1, now));
                false
            }
        }
    }
}

/// The first file that cannot be read because of its name, and why. It is reported, so that no file waits unnoticed.
pub(super) fn unusable_name(names: &Names) -> Option<String> {
    let bytes = "has a name that is not UTF-8: rename it";
    let other = names.other.iter().map(|name| (name, Some(bytes)));
    let usable = names.usable.iter().map(|name| (name, unusable(name)));
    let mut all = other.chain(usable).filter(|(name, _)| !is_ignored(name));
    all.find_map(|(name, why)| Some(format!("{name:?} {}", why?)))
}

/// Why an entry of the folder is not read, if a person may expect it to be.
pub(super) fn why_not_read(kind: Option<EntryKind>) -> Option<&'static str> {
    match kind? {
        EntryKind::Shared => Some(
            "has other names as well (hard links), which may belong to another user: it is read once this is \
             its only name. Copy it instead",
        ),
        EntryKind::Link => Some("is a link, which is never followed: put the file itself there"),
        EntryKind::Special => Some("is a pipe, a device or a socket, and is never read: remove it"),
        EntryKind::File | EntryKind::Directory => None,
    }
}

impl Folder<'_> {
    /// Imports a file, or refuses it.
    fn import(&self, file: &ReadFile) -> Outcome<()> {
        let Self { shared, source, settings, .. } = self;
        let seq = source.seq;
        let name = &file.name;
        if let Some(before) = shared.env.store.read(|tx| tables::taken_file(tx, seq, name))? {
            if before.sha256 == file.sha256 {
                return self.finish(file);
            }
            return self.reject(file, &other_content(&before, file));
        }
        let hash = reading::fingerprint(settings, name, &file.sha256);
        let hashes = shared.env.privacy.hashed(&source.new.tenant, &hash)?;
        let mut events = match self.events(file, &hashes) {
            Ok(events) => events,
            Err(why) => return self.reject(file, &why),
        };
        for (n, event) in events.iter_mut().enumerate() {
            recognise(shared, event, &hashes.each_ref().map(|hash| row_key(hash, n)))?;
        }
        let misfits: Vec<_> =
            events.iter().map(|event| shared.misfit(event)).collect::<Result<_, Error>>()?;
        match shared.env.privacy.admit(&mut events) {
            Ok(()) => {}
            Err(NotAdmitted::Failed(error)) => return Err(error.into()),
            Err(NotAdmitted::Refused { event, why }) => {
                let why = format!("row {}: it is refused: {why}", event.saturating_add(1));
                return self.reject(file, &why);
            }
        }
        let cursor = source.new.cursor;
        let count = u64::try_from(events.len()).unwrap_or(u64::MAX);
        let progress = Progress {
            from: cursor,
            to: cursor.saturating_add(1),
            known: self.source.identity.clone(),
            identity: None,
            events: count,
        };
        let rows = events.into_iter().zip(misfits);
        let rows = rows.map(|(event, unusable)| ReadyRow { event, unusable }).collect();
        match shared.store_rows(source, progress, Some(self.record(file, None, count)), rows) {
            Ok(()) => {
                shared.counts.files_taken.add();
                self.finish(file)
            }
            Err(Error::Constraint(why)) => {
                self.reject(file, &format!("the database refuses one of its rows: {why}"))
            }
            // Paused or deleted meanwhile.
            Err(Error::Changed(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// What is stored about a file: why it was refused, or the number of its events.
    fn record(&self, file: &ReadFile, reason: Option<String>, event_count: u64) -> SourceFile {
        SourceFile {
            source_seq: self.source.seq,
            name: file.name.clone(),
            sha256: file.sha256.clone(),
            size: file.contents.size,
            reason,
            event_count,
        }
    }

    /// All events of a file, or why it is refused.
    fn events(&self, file: &ReadFile, [hash, _]: &[String; 2]) -> Result<Vec<NewEvent>, String> {
        let Self { shared, source, settings, .. } = self;
        let size = file.contents.size;
        if size > MAX_FILE_BYTES {
            return Err(format!(
                "it has {size} bytes; at most {MAX_FILE_BYTES} are taken at once, because one file is one \
                 transaction: split it"
            ));
        }
        let rows = reading::rows(settings, &file.name, &file.contents.bytes)?;
        let received_at = shared.env.clock.wall();
        let mut positions = Vec::with_capacity(rows.len());
        let mut events = Vec::with_capacity(rows.len());
        let mut mistakes = Mistakes::default();
        for (n, row) in rows.into_iter().enumerate() {
            let facts = shared.context(source, row_key(hash, n), received_at);
            let key = settings.check_key(&row.draft);
            match key.and_then(|()| row.draft.event(&facts)) {
                Ok(event) => events.push(event),
                Err(error) => {
                    let why = describe(&error, source.new.settings.names());
                    mistakes.add(|| format!("{}: {why}", row.position));
                }
            }
            positions.push(row.position);
        }
        if mistakes.count == 0 {
            let shown = |n: usize| positions.get(n).map(ToString::to_string).unwrap_or_default();
            for (first, second) in contradictions(&events) {
                mistakes.add(|| {
                    format!(
                        "{}: it has the key of {}, but other content, so only the first of them would be stored. \
                         Give each event its own key, or none",
                        shown(second),
                        shown(first)
                    )
                });
            }
        }
        mistakes.into_text().map_or(Ok(events), Err)
    }

    /// Refuses a file: gives the reason in an escalation and beside the file, and moves the file to `rejected`.
    fn reject(&self, file: &ReadFile, why: &str) -> Outcome<()> {
        let Self { shared, source, .. } = self;
        let name = &file.name;
        let why = &why.chars().take(MAX_REASON_CHARS).collect::<String>();
        // If the file has changed since it was read, it is read again instead.
        if self.directory.stamp(name).is_ok_and(|found| found != Some(file.contents.stamp)) {
            return Err(changed(file));
        }
        // The reason beside the file may quote it. The reason in our database follows the tenant's privacy policy.
        let reason = shared.env.privacy.sanitize(&source.new.tenant, why)?;
        let short: String = reason.lines().next().unwrap_or_default().chars().take(500).collect();
        let mut new = escalation(shared, source, Class::DropRejected, "");
        tracing::warn!(source = source.new.name.as_str(), name, why = short, "a file is refused");
        let last = format!("the file {name:?} was refused and put into {REJECTED}: {short}");
        let record = self.record(file, Some(reason), 0);
        let now = shared.env.clock.wall();
        shared.env.store.writer().write(Queue::Accept, move |tx: &WriteTx<'_>| {
            tables::put_file(tx, &record, now)?;
            let before = escalations::open_count(tx, &new.tenant, new.class, &new.subject)?;
            new.detail = refused(before.saturating_add(1), &last);
            escalations::raise(tx, &new, now)
        })?;
        if self.put_aside(file, why)? {
            shared.counts.files_rejected.add();
        }
        self.remove_companion(file);
        Ok(())
    }
}

/// Why a file is refused if a file of this name was imported before, with other content.
fn other_content(before: &TakenFile, file: &ReadFile) -> String {
    let first = usize::try_from(before.size).ok().and_then(|size| file.contents.bytes.get(..size));
    if first.is_some_and(|first| digest(&SHA256, first).as_ref() == before.sha256) {
        let first = before.size;
        let all = file.contents.size;
        return format!(
            "its first {first} bytes were taken, and then a program appended to it: the other {} bytes were \
             not taken. Put them into a file of another name, and write files under a name like {}.tmp before \
             they get their own",
            all.saturating_sub(first),
            file.name
        );
    }
    "a file of this name was taken before, with other content; nothing of this one was taken. Give it \
     another name"
        .to_owned()
}

/// The key of a row without its own, numbered from 0.
fn row_key(hash: &str, n: usize) -> String {
    format!("{hash}-{}", n.saturating_add(1))
}

/// The text of the escalation about refused files: how many since the last acknowledgement, and the last one.
fn refused(count: u64, last: &str) -> String {
    match count {
        1 => last.to_owned(),
        count => format!(
            "{count} times a file was refused since the last acknowledgement; each file in {REJECTED} has its reason \
             beside it. The last: {last}"
        ),
    }
}

/// Mistakes listed in the reason of one file.
const MAX_MISTAKES: usize = 20;

/// The mistakes in the rows of a file: the first ones, and their number.
#[derive(Default)]
struct Mistakes {
    first: Vec<String>,
    count: usize,
}

impl Mistakes {
    /// Adds a mistake; beyond the limit it is only counted.
    fn add(&mut self, why: impl FnOnce() -> String) {
        self.count = self.count.saturating_add(1);
        if self.first.len() < MAX_MISTAKES {
            self.first.push(why());
        }
    }

    /// All mistakes as one reason; `None` if there are none.
    fn into_text(mut self) -> Option<String> {
        let more = self.count.saturating_sub(self.first.len());
        if more > 0 {
            self.first.push(format!("and {more} more"));
        }
        (self.count > 0).then(|| self.first.join("\n"))
    }
}

/// Pairs of different events with the same key, as indexes of the first and the later.
fn contradictions(events: &[NewEvent]) -> Vec<(usize, usize)> {
    let mut known: BTreeMap<(&str, &str), (usize, &NewEvent)> = BTreeMap::new();
    let mut found = Vec::new();
    for (n, event) in events.iter().enumerate() {
        let key = (event.source_system.as_str(), event.idempotency_key.as_str());
        let (first, before) = *known.entry(key).or_insert((n, event));
        if !before.has_same_content(event) {
            found.push((first, n));
        }
    }
    found
}
