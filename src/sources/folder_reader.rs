//! Takes the files of a drop folder: each is one transaction, then it is moved to `done` or `rejected`.
//!
//! Killed before COMMIT, nothing has happened. Killed after it, the file is still there and known by its
//! name and SHA-256: it is only moved. Nothing else is remembered.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::Path;
use std::time::Duration;

use ring::digest::{SHA256, digest};

use crate::base::clock::Timestamp;
use crate::base::id;
use crate::model::escalation::Class;
use crate::model::event::NewEvent;
use crate::pipeline::publish::admit;
use crate::privacy::NotAdmitted;
use crate::sources::Source;
use crate::sources::draft::{RowContext, said};
use crate::sources::folder_settings::{
    DONE_ENDING, FolderSettings, MAX_FILE_BYTES, Protocol, is_candidate, is_left, unusable,
};
use crate::sources::reading;
use crate::sources::shared::Shared;
use crate::sources::shared::recognise;
use crate::sources::shared::{Obstacle, SourceError, Turn, escalation, subject};
use crate::sources::tables::{self, Progress, SourceFile, TakenFile};
use crate::sources::transfer::{
    DONE, Outcome, REJECTED, ReadFile, changed, clear, finish, forget_companion, make, put_aside,
};
use crate::store::error::Error;
use crate::store::escalations;
use crate::store::tx::WriteTx;
use crate::store::writer::Queue;
use crate::sys::files::{self, Directory, Kind, Names};

/// How often old files in `done` are looked for.
const CLEARED_EVERY: Duration = Duration::from_hours(1);
/// How much memory a file takes while it is read, for each of its bytes, about. Measured: CSV with long names.
const FILE_FACTOR: usize = 5;
/// Why a file is refused that was in hand at two unclean ends.
const DIED: &str = "the service ended twice in a row while it read this file, without being asked to (for want of \
                    memory, perhaps; its log says more), so the file is not read again. Split it, or look whether \
                    it is what it should be, and put it into the folder once more";
/// The longest reason that is kept for a file.
const MAX_REASON_CHARS: usize = 8_000;

/// What a folder's relay keeps between two turns: nothing that matters.
#[derive(Debug, Default)]
pub(super) struct FolderReader {
    /// Names that were there when it was last listed, and are not looked at yet.
    listed: VecDeque<String>,
    /// How many of what was there have not gone since; `None` while that cannot be looked up.
    waiting: Option<u64>,
    /// For files that have to stand still: what each was, and since when.
    still: BTreeMap<String, (u64, Option<Timestamp>, Timestamp)>,
    /// When it was last looked for old files in `done`.
    cleared_at: Option<Timestamp>,
    /// Why a file cannot be taken. The other files are taken all the same.
    error: Option<SourceError>,
}

impl FolderReader {
    /// Looks at one file, or lists the folder.
    pub(super) fn turn(
        &mut self,
        shared: &Shared,
        source: &Source,
        settings: &FolderSettings,
    ) -> Outcome<Turn> {
        let turn = self.next(shared, source, settings);
        shared.statuses.set(source.seq, |status| status.lag = self.waiting);
        turn
    }

    fn next(
        &mut self,
        shared: &Shared,
        source: &Source,
        settings: &FolderSettings,
    ) -> Outcome<Turn> {
        let path = &settings.path;
        let folder = Directory::open(path).map_err(|error| self.not_listed(path, &error))?;
        let Some(name) = self.listed.pop_front() else {
            self.list(shared, settings, &folder)?;
            if !self.listed.is_empty() {
                return Ok(Turn::Again);
            }
            return self.error.take().map_or(Ok(Turn::Done), Err);
        };
        match self.look(shared, source, (settings, &folder, &name)) {
            Err(error) if error.kind == Obstacle::Ours => return Err(error),
            Err(error) => self.error = Some(error),
            Ok(()) => {}
        }
        if folder.kind(&name).is_none() {
            self.waiting = self.waiting.map(|waiting| waiting.saturating_sub(1));
        }
        if !self.listed.is_empty() {
            return Ok(Turn::Again);
        }
        self.error.take().map_or(Ok(Turn::Done), Err)
    }

    /// The folder cannot be looked into, nor can what waits in it be counted.
    fn not_listed(&mut self, folder: &Path, error: &io::Error) -> SourceError {
        self.waiting = None;
        let why = format!("{} cannot be listed: {error}", folder.display());
        SourceError::passing(why)
    }

    fn list(
        &mut self,
        shared: &Shared,
        settings: &FolderSettings,
        opened: &Directory,
    ) -> Outcome<()> {
        let folder = &settings.path;
        let found = opened.names().map_err(|error| self.not_listed(folder, &error))?;
        if let Some(why) = unnamed(&found) {
            let why = format!("in {} {why}", folder.display());
            self.error = Some(SourceError::passing(why));
        }
        let names = found.usable;
        let is_told = |name: &String| {
            settings.writer != Protocol::Done
                || names.binary_search(&format!("{name}{DONE_ENDING}")).is_ok()
        };
        let candidates = names.iter().filter(|name| is_candidate(name) && is_told(name));
        let there: Vec<_> = candidates.map(|name| (name, opened.kind(name))).collect();
        let waits = |kind: Option<Kind>| kind.is_some_and(|kind| kind != Kind::Directory);
        // Counted before anything that can fail: a failure keeps these files waiting.
        let waiting = there.iter().filter(|(_, kind)| waits(*kind)).count();
        self.waiting = Some(u64::try_from(waiting).unwrap_or(u64::MAX));
        for place in [DONE, REJECTED] {
            make(settings, opened, place)?;
        }
        let now = shared.clock.now();
        if self.cleared_at.is_none_or(|at| now.since(at) >= CLEARED_EVERY) {
            let more = clear(shared, settings, opened)?;
            self.cleared_at = (!more).then_some(now);
        }
        self.still.retain(|name, _| names.binary_search(name).is_ok());
        for (name, kind) in there {
            match odd(kind) {
                Some(why) => {
                    let why = format!("{} {why}", folder.join(name).display());
                    self.error = Some(SourceError::passing(why));
                }
                None if kind == Some(Kind::File) => self.listed.push_back(name.clone()),
                None => {}
            }
        }
        Ok(())
    }

    fn look(
        &mut self,
        shared: &Shared,
        source: &Source,
        (settings, folder, name): (&FolderSettings, &Directory, &str),
    ) -> Outcome<()> {
        let path = settings.path.join(name);
        // A program that writes a file in place makes it empty first.
        let is_begun = path.symlink_metadata().is_ok_and(|meta| meta.len() == 0);
        let must_stand = settings.writer == Protocol::Stable || is_begun;
        if must_stand && !self.stands_still(shared, settings, name, &path) {
            return Ok(());
        }
        let unreadable = |error: io::Error| {
            SourceError::lasting(format!("{} cannot be read: {error}", path.display()))
        };
        let bytes = path.symlink_metadata().map_or(0, |meta| meta.len().min(MAX_FILE_BYTES));
        // The file, what its rows come to, and their events.
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).saturating_mul(FILE_FACTOR);
        let _share = shared.budget.take_own(bytes);
        let contents = match files::read_regular(folder, name, MAX_FILE_BYTES) {
            // Taken away meanwhile: nothing to take.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(unreadable(error)),
            // Still being written, or no file: looked at again.
            Ok(None) => return Ok(()),
            Ok(Some(contents)) => contents,
        };
        let sha256 = digest(&SHA256, &contents.bytes).as_ref().to_vec();
        let whole = ReadFile { folder, name: name.to_owned(), path, contents, sha256 };
        let item = format!("file/{}/{name}", source.seq);
        if shared.suspects.is_convicted(&item) {
            reject(shared, source, (settings, &whole), DIED)?;
            shared.suspects.clear(&item);
        } else {
            let _marked = shared.suspects.mark(&item, whole.contents.bytes.len());
            take(shared, source, settings, &whole)?;
        }
        self.still.remove(name);
        Ok(())
    }

    fn stands_still(
        &mut self,
        shared: &Shared,
        settings: &FolderSettings,
        name: &str,
        path: &Path,
    ) -> bool {
        let now = shared.clock.now();
        let Ok(meta) = path.symlink_metadata() else { return false };
        let is = (meta.len(), meta.modified().ok().map(Timestamp::from));
        match self.still.get(name) {
            Some((size, at, since)) if (*size, *at) == is => now.since(*since) >= settings.stable(),
            _ => {
                self.still.insert(name.to_owned(), (is.0, is.1, now));
                false
            }
        }
    }
}

/// Which file cannot be taken for its name, and why, where one cannot: it must not lie there unseen.
pub(super) fn unnamed(names: &Names) -> Option<String> {
    let bytes = "has a name that is no UTF-8: give it another one";
    let other = names.other.iter().map(|name| (name, Some(bytes)));
    let usable = names.usable.iter().map(|name| (name, unusable(name)));
    let mut all = other.chain(usable).filter(|(name, _)| !is_left(name));
    all.find_map(|(name, why)| Some(format!("{name:?} {}", why?)))
}

/// Why what has a name in the folder is not taken, where somebody may expect that it is.
pub(super) fn odd(kind: Option<Kind>) -> Option<&'static str> {
    match kind? {
        Kind::Shared => Some(
            "has other names as well (hard links), which may be somebody else's: it is taken once this is \
             its only one. Copy it instead",
        ),
        Kind::Link => Some("is a link, which is never followed: put the file itself there"),
        Kind::Special => Some("is a pipe, a device or a socket, and is never read: take it away"),
        Kind::File | Kind::Directory => None,
    }
}

/// Takes a file, or refuses it.
fn take(
    shared: &Shared,
    source: &Source,
    settings: &FolderSettings,
    whole: &ReadFile<'_>,
) -> Outcome<()> {
    let (seq, name) = (source.seq, &whole.name);
    if let Some(before) = shared.store.read(|tx| tables::taken_file(tx, seq, name))? {
        if before.sha256 == whole.sha256 {
            return finish(shared, settings, whole);
        }
        return reject(shared, source, (settings, whole), &other_content(&before, whole));
    }
    let hash = reading::fingerprint(settings, name, &whole.sha256);
    let hashes = shared.privacy.hashed(&source.new.tenant, &hash)?;
    let mut events = match events(shared, source, (settings, whole), &hashes) {
        Ok(events) => events,
        Err(why) => return reject(shared, source, (settings, whole), &why),
    };
    for (n, event) in events.iter_mut().enumerate() {
        recognise(shared, event, &hashes.each_ref().map(|hash| row_key(hash, n)))?;
    }
    match shared.privacy.admit(&mut events) {
        Ok(()) => {}
        Err(NotAdmitted::Failed(error)) => return Err(error.into()),
        Err(NotAdmitted::Refused { event, why }) => {
            let why = format!("row {}: it is not taken: {why}", event.saturating_add(1));
            return reject(shared, source, (settings, whole), &why);
        }
    }
    match store(shared, source, whole, events) {
        Ok(()) => finish(shared, settings, whole),
        Err(Error::Constraint(why)) => {
            let why = format!("the database refuses one of its rows: {why}");
            reject(shared, source, (settings, whole), &why)
        }
        // Paused or deleted meanwhile.
        Err(Error::Changed(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Why a file is refused whose name was taken with other content.
fn other_content(before: &TakenFile, whole: &ReadFile<'_>) -> String {
    let first = usize::try_from(before.size).ok().and_then(|size| whole.contents.bytes.get(..size));
    if first.is_some_and(|first| digest(&SHA256, first).as_ref() == before.sha256) {
        let (first, all) = (before.size, whole.contents.size);
        return format!(
            "its first {first} bytes were taken, and then somebody wrote on: what stands in the other \
             {} was not taken. Put that into a file of another name, and write files under a name like \
             {}.tmp before they get their own",
            all.saturating_sub(first),
            whole.name
        );
    }
    "a file of this name was taken before, with other content; nothing of this one was taken. Give it \
     another name"
        .to_owned()
}

/// The key of a row that names none, from 0.
fn row_key(hash: &str, n: usize) -> String {
    format!("{hash}-{}", n.saturating_add(1))
}

/// All events of a file, or what is wrong with it.
fn events(
    shared: &Shared,
    source: &Source,
    (settings, whole): (&FolderSettings, &ReadFile<'_>),
    [hash, _]: &[String; 2],
) -> Result<Vec<NewEvent>, String> {
    let size = whole.contents.size;
    if size > MAX_FILE_BYTES {
        return Err(format!(
            "it has {size} bytes; at most {MAX_FILE_BYTES} are taken at once, because one file is one \
             transaction: split it"
        ));
    }
    let rows = reading::rows(settings, &whole.name, &whole.contents.bytes);
    let rows = rows.map_err(|fault| fault.to_string())?;
    let received_at = shared.clock.wall();
    let most = usize::try_from(shared.settings.get().limits.payload_bytes).unwrap_or(usize::MAX);
    let mut places = Vec::with_capacity(rows.len());
    let (mut events, mut mistakes) = (Vec::with_capacity(rows.len()), Mistakes::default());
    for (n, row) in rows.into_iter().enumerate() {
        let facts = RowContext {
            id: id::uuid7(received_at, &*shared.draw),
            tenant: &source.new.tenant,
            source: source.new.name.as_str(),
            key: row_key(hash, n),
            received_at,
            defaults: &settings.defaults,
            payload_bytes_max: most,
        };
        let key = settings.check_key(&row.draft);
        match key.and_then(|()| row.draft.event(&facts)) {
            Ok(event) => events.push(event),
            Err(error) => {
                let why = said(&error, source.new.settings.names());
                mistakes.add(|| format!("{}: {why}", row.place));
            }
        }
        places.push(row.place);
    }
    if mistakes.is_empty() {
        let place = |n: usize| places.get(n).map(ToString::to_string).unwrap_or_default();
        for (first, second) in contradictions(&events) {
            mistakes.add(|| {
                format!(
                    "{}: it has the key of {} and says something else; only the first of them would be kept. \
                     Give each fact a key of its own, or none",
                    place(second),
                    place(first)
                )
            });
        }
    }
    mistakes.into_text().map_or(Ok(events), Err)
}

/// Stores all events of a file, that it was taken, and nothing else.
fn store(
    shared: &Shared,
    source: &Source,
    whole: &ReadFile<'_>,
    events: Vec<NewEvent>,
) -> crate::store::error::Result<()> {
    let count = u64::try_from(events.len()).unwrap_or(u64::MAX);
    let cursor = source.new.cursor;
    let progress =
        Progress { from: cursor, to: cursor.saturating_add(1), identity: None, events: count };
    let file = SourceFile {
        source_seq: source.seq,
        name: whole.name.clone(),
        sha256: whole.sha256.clone(),
        size: whole.contents.size,
        reason: None,
        event_count: count,
    };
    let (seq, tenant, subject) = (source.seq, source.new.tenant.clone(), subject(source));
    let clock = shared.clock.clone();
    let stored = shared.store.writer().write(Queue::Accept, move |tx: &WriteTx<'_>| {
        tables::advance(tx, seq, &progress, clock.wall())?;
        if !tables::put_file(tx, &file, clock.wall())? {
            return Err(Error::Changed("the file's row"));
        }
        escalations::resolve(tx, &tenant, Class::SourceSilent, &subject, clock.wall())?;
        let now = clock.now();
        events.iter().map(|event| admit(tx, event, now)).collect::<Result<Vec<_>, _>>()
    })?;
    shared.admitted(source.new.name.as_str(), stored.iter());
    shared.counts.files_taken.add();
    Ok(())
}

/// What is said of refused files, of which nobody has seen any: how many there are, and the last one.
fn refused(count: u64, last: &str) -> String {
    match count {
        1 => last.to_owned(),
        count => format!(
            "{count} times a file was refused since somebody acknowledged it last; what still lies in {REJECTED} has \
             its reason beside it. The last: {last}"
        ),
    }
}

/// Refuses a file: says why in an escalation and beside the file, and moves it out of the way.
fn reject(
    shared: &Shared,
    source: &Source,
    (settings, whole): (&FolderSettings, &ReadFile<'_>),
    why: &str,
) -> Outcome<()> {
    let name = &whole.name;
    let why = &why.chars().take(MAX_REASON_CHARS).collect::<String>();
    // The file may have changed since it was read. Then it is read again first, and this content is not refused.
    if whole.folder.stamp(name).is_ok_and(|found| found != Some(whole.contents.stamp)) {
        return Err(changed(whole));
    }
    // The reason beside the file may quote it. The reason in our database follows the tenant's privacy policy.
    let kept = shared.privacy.sanitize(&source.new.tenant, why)?;
    let short: String = kept.lines().next().unwrap_or_default().chars().take(500).collect();
    let mut new = escalation(shared, source, Class::DropRejected, "");
    tracing::warn!(source = source.new.name.as_str(), name, why = short, "a file is refused");
    let last = format!("the file {name:?} was refused and put into {REJECTED}: {short}");
    let file = SourceFile {
        source_seq: source.seq,
        name: name.clone(),
        sha256: whole.sha256.clone(),
        size: whole.contents.size,
        reason: Some(kept),
        event_count: 0,
    };
    let now = shared.clock.wall();
    shared.store.writer().write(Queue::Accept, move |tx: &WriteTx<'_>| {
        tables::put_file(tx, &file, now)?;
        let before = escalations::open_count(tx, &new.tenant, new.class, &new.subject)?;
        new.detail = refused(before.saturating_add(1), &last);
        escalations::raise(tx, &new, now)
    })?;
    if put_aside(shared, settings, whole, why)? {
        shared.counts.files_rejected.add();
    }
    forget_companion(settings, whole);
    Ok(())
}

/// Mistakes of one file that its reason lists.
const MAX_MISTAKES: usize = 20;

/// What is wrong with the rows of a file: the first ones, and how many there are.
#[derive(Default)]
struct Mistakes {
    first: Vec<String>,
    count: usize,
}

impl Mistakes {
    /// Notes one; nothing is written of those that are only counted.
    fn add(&mut self, why: impl FnOnce() -> String) {
        self.count = self.count.saturating_add(1);
        if self.first.len() < MAX_MISTAKES {
            self.first.push(why());
        }
    }

    fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// All of it as one reason; `None` where nothing is wrong.
    fn into_text(mut self) -> Option<String> {
        let more = self.count.saturating_sub(self.first.len());
        if more > 0 {
            self.first.push(format!("and {more} more"));
        }
        (self.count > 0).then(|| self.first.join("\n"))
    }
}

/// Those that are known by the key of one before, which they contradict.
fn contradictions(events: &[NewEvent]) -> Vec<(usize, usize)> {
    let mut known: BTreeMap<(&str, &str), (usize, &NewEvent)> = BTreeMap::new();
    let mut found = Vec::new();
    for (n, event) in events.iter().enumerate() {
        let key = (event.source_system.as_str(), event.idempotency_key.as_str());
        let (first, before) = *known.entry(key).or_insert((n, event));
        if !before.says_the_same(event) {
            found.push((first, n));
        }
    }
    found
}
