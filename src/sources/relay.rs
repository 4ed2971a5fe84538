//! The relay of one source: reads, waits, and reports why the source cannot be read.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::base::stop::Stop;
use crate::model::escalation::Class;
use crate::pipeline::source_marks::Mark;
use crate::sources::database_reader::DatabaseReader;
use crate::sources::folder_reader::FolderReader;
use crate::sources::http_reader::HttpReader;
use crate::sources::inspect::permitted;
use crate::sources::reconciliation::runner::Reconciler;
use crate::sources::shared::{Obstacle, RelayServices, SourceError, Turn, escalation, subject};
use crate::sources::table_reader::TableReader;
use crate::sources::{NewSource, Settings, Source, tables};
use crate::store::error::Result;
use crate::store::escalations;
use crate::store::tx::WriteTx;
use crate::store::writer::Queue;
use crate::sys::files::{stamps, with_ending};
use crate::sys::watch::Watch;

/// How often a database is read at least, however long nothing has come.
const MAX_DATABASE_POLL: Duration = Duration::from_secs(2);
/// Nothing has come for this many times as long as the next wait.
const IDLE_PARTS: u32 = 40;
/// The longest pause after an error of a database.
const MAX_DATABASE_PAUSE: Duration = Duration::from_secs(5);
/// A database that is away is escalated after this time. With the longest wait for an answer on a line that went silent
/// that is less than a minute.
const AWAY_RAISED: Duration = Duration::from_secs(40);
/// How often the source is read without a sign of a change.
const POLL: Duration = Duration::from_millis(250);
/// After a sign of a change the source is read at this interval, because the sign comes before the change can be read:
/// for as long as a publish waits for a source.
const POLL_HOT: Duration = Duration::from_millis(1);
/// The pause after an error.
const PAUSE: Duration = Duration::from_millis(500);
/// A passing error is stored after this time.
const PASSING_NOTED: Duration = Duration::from_secs(10);
/// A passing error is escalated after this time.
const PASSING_RAISED: Duration = Duration::from_mins(1);
/// An unchanged error is escalated again after this time.
const RAISED_AGAIN: Duration = Duration::from_hours(1);
/// With more jobs in the writer's queue, nothing more is read.
const MAX_JOBS_WAITING: usize = 2_048;

/// The reader of each kind of source; one of them is used.
#[derive(Default)]
struct Readers {
    table: TableReader,
    folder: FolderReader,
    database: DatabaseReader,
    http: HttpReader,
}

/// The relay of one source.
pub(super) struct Relay {
    shared: RelayServices,
    seq: i64,
    stop: Stop,
    watch: Watch,
    readers: Option<Readers>,
    reconciler: Reconciler,
    /// Since when the source cannot be read, by the monotonic clock.
    since: Option<Duration>,
    /// When it could last be read.
    read_at: Duration,
    /// How many events it had, and since when.
    events: (u64, Duration),
    /// The last escalated error, and when it was escalated, by the monotonic clock.
    raised: Option<(String, Duration)>,
    /// Whether its silence was escalated.
    silence_raised: bool,
    /// Reads left at the short interval.
    hot: u32,
    /// The number of the latest read.
    number: u64,
}

impl Relay {
    pub(super) fn new(shared: RelayServices, seq: i64, stop: Stop) -> Self {
        let now = shared.env.clock.monotonic();
        Self {
            read_at: now,
            events: (0, now),
            shared,
            seq,
            stop,
            watch: Watch::new(),
            readers: None,
            reconciler: Reconciler::default(),
            since: None,
            raised: None,
            silence_raised: false,
            hot: 0,
            number: 0,
        }
    }

    /// Reads until a stop is asked for.
    pub(super) fn run(mut self) {
        while !self.stop.asked() {
            let seq = self.seq;
            match self.shared.env.store.read(|tx| tables::one_to_read(tx, seq)) {
                Ok(Some(source)) => self.tick(&source),
                // Deleted or paused; this thread will soon be asked to stop.
                Ok(None) => self.pause(POLL),
                Err(error) => {
                    tracing::error!(%error, "a source cannot be looked up; it is retried");
                    self.pause(PAUSE);
                }
            }
        }
    }

    fn tick(&mut self, source: &Source) {
        let rest_of_run = self.reconcile(source);
        let rest = self.rest(source);
        if !rest.is_zero() {
            self.watch_silence(source);
            self.pause(rest.min(rest_of_run).min(POLL));
            return;
        }
        // A panic over a foreign file's content must not end the service.
        let turn = catch_unwind(AssertUnwindSafe(|| self.turn(source)));
        let turn = turn.unwrap_or_else(|_panic| {
            self.readers = None;
            Err(SourceError::lasting(
                "reading it failed unexpectedly (a panic): the log says where",
            ))
        });
        match turn {
            Ok(turn) => {
                self.read_at = self.shared.env.clock.monotonic();
                // Only when all is read: before that, another file may still fail.
                if turn == Turn::Done {
                    self.recovered(source);
                }
                self.watch_silence(source);
                if turn == Turn::Done {
                    self.wait(source);
                }
            }
            Err(error) => {
                self.shared.marks.forget(self.seq);
                // A folder's reader is kept: its other files are not affected. A database's reader knows which rows are
                // still to be marked.
                let is_unread = self.readers.is_none() || !is_folder(source);
                if is_table(source) {
                    self.readers = None;
                }
                if is_unread && error.kind != Obstacle::Ours {
                    self.shared.statuses.set(self.seq, |status| status.lag = None);
                }
                self.note(source, &error);
                self.watch_silence(source);
                self.pause(self.pause_after(source));
            }
        }
    }

    /// Reads the next page of the source's reconciliation, if one is under way. Returns how long it rests.
    fn reconcile(&mut self, source: &Source) -> Duration {
        let Settings::Http(list) = &source.new.settings else { return POLL };
        if self.waits_for().is_some() {
            return POLL;
        }
        let reconciler = &mut self.reconciler;
        let shared = &self.shared;
        let turn = catch_unwind(AssertUnwindSafe(|| reconciler.turn(shared, source, list)));
        match turn {
            Ok(Ok(rest)) => rest.unwrap_or(POLL),
            Ok(Err(error)) => {
                tracing::warn!(%error, "a reconciliation cannot go on; it is retried");
                POLL
            }
            Err(_panic) => {
                tracing::error!("a reconciliation failed unexpectedly; it begins again");
                self.reconciler = Reconciler::default();
                POLL
            }
        }
    }

    /// The part of our service that a source has to wait for, if any.
    fn waits_for(&self) -> Option<&'static str> {
        if self.shared.disk.is_low() {
            Some("room on the disk")
        } else if self.shared.env.store.writer().waiting_in(Queue::Accept) > MAX_JOBS_WAITING {
            Some("the writer")
        } else {
            None
        }
    }

    fn turn(&mut self, source: &Source) -> std::result::Result<Turn, SourceError> {
        let waits_for = self.waits_for();
        let now = self.shared.env.clock.wall();
        self.shared.statuses.set(self.seq, |status| {
            status.waits_for = waits_for;
            if waits_for.is_none() {
                status.last_read_at = Some(now);
            } else {
                status.lag = None;
            }
        });
        if waits_for.is_some() {
            self.shared.marks.forget(self.seq);
            return Ok(Turn::Done);
        }
        let settings = self.shared.env.settings.get();
        let new = &source.new;
        if let Settings::Database(database) = &new.settings {
            let readers = self.readers.get_or_insert_default();
            return readers.database.turn(&self.shared, source, database);
        }
        if let Settings::Http(list) = &new.settings {
            let readers = self.readers.get_or_insert_default();
            return readers.http.turn(&self.shared, source, list);
        }
        let Some(path) = new.settings.path() else { return Ok(Turn::Done) };
        // Checked each time, because a program that can write there can replace the file by a link at any time.
        let path = match permitted(&settings, &new.tenant, path) {
            Ok(path) => path,
            Err(why) => {
                self.readers = None;
                return Err(SourceError::lasting(why));
            }
        };
        self.number = self.number.saturating_add(1);
        self.shared.marks.begin(self.seq, self.number);
        let files: Arc<[PathBuf]> = watched(&new.settings).into();
        // The sign of a change comes before the change can be read.
        let seen = (self.hot == 0).then(|| stamps(&files));
        let readers = self.readers.get_or_insert_default();
        let new = NewSource { settings: new.settings.at(path), ..new.clone() };
        let resolved = Source { new, ..source.clone() };
        let turn = match &resolved.new.settings {
            Settings::Sqlite(table) => readers.table.turn(&self.shared, &resolved, table),
            Settings::Drop(folder) => readers.folder.turn(&self.shared, &resolved, folder),
            Settings::Database(_) | Settings::Http(_) => Ok(Turn::Done),
        }?;
        if turn == Turn::Done {
            if seen.as_ref().is_some_and(|seen| *seen != stamps(&files)) {
                self.hot = 1;
            }
            let tenant = source.new.tenant.clone();
            let number = self.number;
            let mark = Mark { tenant, files, seen, begun: number, done: number };
            self.shared.marks.done(self.seq, mark);
        }
        Ok(turn)
    }

    /// How long a list is left alone; zero for all other sources.
    fn rest(&self, source: &Source) -> Duration {
        match (&source.new.settings, &self.readers) {
            (Settings::Http(_), Some(readers)) => {
                readers.http.rest(source, self.shared.env.clock.monotonic())
            }
            _ => Duration::ZERO,
        }
    }

    /// Waits for a change, at most the poll interval.
    fn wait(&mut self, source: &Source) {
        if let Settings::Http(_) = source.new.settings {
            // Its reader knows when it is read next.
            self.pause(POLL);
            return;
        }
        if let Settings::Database(_) = source.new.settings {
            let now = self.shared.env.clock.monotonic();
            if self.events.0 != source.event_count {
                self.events = (source.event_count, now);
            }
            self.pause(database_poll(now.saturating_sub(self.events.1)));
            return;
        }
        if self.hot > 0 {
            self.hot = self.hot.saturating_sub(1);
            self.pause(POLL_HOT);
            return;
        }
        for path in watched(&source.new.settings) {
            self.watch.add(&path);
        }
        if self.watch.wait(POLL) && self.readers.is_some() && is_table(source) {
            let polls = self.shared.marks.most_wait().as_millis() / POLL_HOT.as_millis();
            self.hot = u32::try_from(polls).unwrap_or(u32::MAX);
        }
    }

    /// The pause after an error: the longer a database is away, the rarer it is asked.
    fn pause_after(&self, source: &Source) -> Duration {
        let Settings::Database(_) = source.new.settings else { return PAUSE };
        let lasts = self.shared.env.clock.monotonic().saturating_sub(self.read_at);
        (lasts / 4).clamp(PAUSE, MAX_DATABASE_PAUSE)
    }

    fn pause(&self, span: Duration) {
        let _asked = self.stop.wait(span);
    }

    /// Clears the error and resolves the escalations of a source that can be read again.
    fn recovered(&mut self, source: &Source) {
        self.since = None;
        if source.last_error.is_none() && self.raised.is_none() {
            return;
        }
        let seq = self.seq;
        let now = self.shared.env.clock.wall();
        let tenant = source.new.tenant.clone();
        let subject = subject(source);
        let done = self.write(move |tx| {
            tables::clear_error(tx, seq)?;
            escalations::resolve(tx, &tenant, Class::SourceReplaced, &subject, now)?;
            escalations::resolve(tx, &tenant, Class::SourceFailing, &subject, now)
        });
        if done {
            self.raised = None;
            tracing::info!(source = source.new.name.as_str(), "the source can be read again");
        }
    }

    /// Stores and escalates why the source cannot be read, once the error has lasted long enough.
    fn note(&mut self, source: &Source, error: &SourceError) {
        let now = self.shared.env.clock.monotonic();
        if error.kind == Obstacle::Ours {
            return;
        }
        // A line that went silent is noticed long after the last read.
        let since = if error.kind == Obstacle::Away { self.read_at } else { now };
        let lasts = now.saturating_sub(*self.since.get_or_insert(since));
        let passing = matches!(error.kind, Obstacle::Passing | Obstacle::Away);
        let raised_after = if error.kind == Obstacle::Away { AWAY_RAISED } else { PASSING_RAISED };
        let noted = source.last_error.as_deref() == Some(&error.why);
        let raised = self.raised.as_ref();
        let fresh = raised
            .is_none_or(|(why, at)| *why != error.why || now.saturating_sub(*at) >= RAISED_AGAIN);
        let raise = fresh && (!passing || lasts >= raised_after);
        if (passing && lasts < PASSING_NOTED) || (noted && !raise) {
            return;
        }
        let name = source.new.name.as_str();
        tracing::warn!(source = name, why = error.why, "the source cannot be read");
        let class = match error.kind {
            Obstacle::Replaced => Class::SourceReplaced,
            Obstacle::Passing | Obstacle::Away | Obstacle::Lasting | Obstacle::Ours => {
                Class::SourceFailing
            }
        };
        let new = raise.then(|| escalation(&self.shared, source, class, &error.why));
        let seq = self.seq;
        let why = error.why.clone();
        let at = self.shared.env.clock.wall();
        let done = self.write(move |tx| {
            tables::set_error(tx, seq, &why, at)?;
            match &new {
                Some(new) => escalations::raise(tx, new, at).map(drop),
                None => Ok(()),
            }
        });
        if done && raise {
            self.raised = Some((error.why.clone(), now));
        }
    }

    /// Raises an escalation if no event has come for too long. The next event resolves it.
    fn watch_silence(&mut self, source: &Source) {
        let now = self.shared.env.clock.wall();
        let Some(since) = source.silent_since(now) else {
            self.silence_raised = false;
            return;
        };
        if self.silence_raised {
            return;
        }
        // `source` is from before this turn, which may have read an event: look at the current row.
        let seq = self.seq;
        let is_silent = self.shared.env.store.read(|tx| {
            Ok(tables::one_to_read(tx, seq)?.is_some_and(|is| is.silent_since(now).is_some()))
        });
        if !is_silent.unwrap_or(false) {
            return;
        }
        let name = source.new.name.as_str();
        let detail = format!(
            "no event has come from the source {name} since {since}: check whether the ERP still writes"
        );
        tracing::warn!(source = name, detail, "the source is silent");
        let new = escalation(&self.shared, source, Class::SourceSilent, &detail);
        self.silence_raised = self.write(move |tx| escalations::raise(tx, &new, now).map(drop));
    }

    fn write(&self, run: impl FnMut(&WriteTx<'_>) -> Result<()> + Send + 'static) -> bool {
        let written = self.shared.env.store.writer().write(Queue::Accept, run);
        if let Err(error) = &written {
            tracing::debug!(%error, "the status of a source could not be stored; it is retried");
        }
        written.is_ok()
    }
}

const fn is_table(source: &Source) -> bool {
    matches!(source.new.settings, Settings::Sqlite(_))
}

const fn is_folder(source: &Source) -> bool {
    matches!(source.new.settings, Settings::Drop(_))
}

/// How long a database is left alone in which nothing has come for this time.
fn database_poll(idle: Duration) -> Duration {
    (idle / IDLE_PARTS).clamp(POLL, MAX_DATABASE_POLL)
}

/// The paths to watch for changes.
fn watched(settings: &Settings) -> Vec<PathBuf> {
    match settings {
        Settings::Sqlite(table) => vec![table.path.clone(), with_ending(&table.path, "-wal")],
        Settings::Drop(folder) => vec![folder.path.clone()],
        Settings::Database(_) | Settings::Http(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_asked_more_rarely_while_nothing_comes() {
        let polled = |idle| database_poll(Duration::from_secs(idle)).as_millis();
        assert_eq!([0, 10, 40, 80, 9_999].map(polled), [250, 250, 1_000, 2_000, 2_000]);
    }
}
