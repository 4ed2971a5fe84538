//! The relay finds events that other programs insert into the outbox by plain SQL, and routes them like published ones.
//!
//! Another process leaves no message. Inotify on the write-ahead log reports a write at once. That report comes before the
//! commit can be seen, so the relay asks `PRAGMA data_version` several times, and every second at any rate: four times a
//! second where there is no inotify. Both also report our own commits. The writer's counts tell which commits are ours, so that the relay does not read the
//! outbox after each of them.
//!
//! Not here: whether a row can be used (`store::sql_rows`), and what becomes of it (`store::outbox_relay`).

use std::path::{Path, PathBuf};

use crate::base::id;
use crate::base::stop::Stop;
use crate::event_types::EventTypes;
use crate::pipeline::counts::Counts;
use crate::pipeline::prelude::*;
use crate::pipeline::source_marks::SourceMarks;
use crate::store::examined_rows::ExaminedRows;
use crate::store::matching::Matches;
use crate::store::outbox_relay::{self, MAX_ROWS, Relayed, Terms};
use crate::store::{OwnReader, outbox_routing, sql_rows, subscriptions};
use crate::sys::watch::Watch;

/// The longest wait, which a stop does not end. Without inotify the relay looks as often.
const LONGEST_WAIT: Duration = Duration::from_millis(250);
/// How many of these waits pass between two looks while inotify watches the log: a look costs 0.2 ms of processor time.
const WAITS_WATCHED: u32 = 4;
/// The delay of the first look after a change of the log. Each further delay is four times as long, up to [`QUIET`]: a
/// commit can only be seen after its sync, which takes a part of a second on a slow card.
const FIRST: Duration = Duration::from_millis(1);
/// How long changes of the log are not looked at after one.
const BUSY: Duration = Duration::from_millis(4);
/// The delay that stands for a log that has not changed for a while.
const QUIET: Duration = Duration::from_secs(1);
/// The delay of the look after a commit of our own, which may hide a foreign one. If the writer notices a foreign
/// commit, the relay looks at once.
const AFTER_OURS: Duration = Duration::from_millis(50);
/// Delay before rows that could not be written are tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// The relay and what it needs.
pub struct Relay {
    /// The environment.
    pub env: Env,
    /// Its own read connection.
    pub reader: OwnReader,
    /// Routes the rows.
    pub sql_rows: SqlRows,
    /// How far the sources are read.
    pub source_marks: SourceMarks,
    /// Counters and histograms.
    pub counts: Arc<Counts>,
}

impl Relay {
    /// Looks until a stop is asked for. The first look finds what was inserted while the service was down.
    pub fn run(&self, stop: &Stop) {
        let watch = Watch::new();
        let log = self.log();
        let mut commits = Commits::default();
        let mut pause = QUIET;
        while !stop.asked() {
            let done = self.env.store.writer().done();
            let now = done.now();
            let wait = commits.wait_after_ours(done.commits.get(), done.foreign_commits.get(), now);
            if let Some(wait) = wait {
                let _asked = stop.wait(wait);
                continue;
            }
            // The counts are read first: the next look finds what is committed after that.
            let counted = self.counted();
            if commits.needs_look(counted, now) {
                let looked = self.look(stop);
                commits = Commits { seen: counted.filter(|_| looked), ours_since: None };
            }
            pause = rest(&watch, &log, pause, stop);
        }
    }

    /// The counts of commits; `None` when the file cannot be read.
    fn counted(&self) -> Option<Counted> {
        let version = outbox_relay::data_version(&self.reader.tx()).ok()?;
        let done = self.env.store.writer().done();
        Some(Counted { version, ours: done.commits.get(), foreign: done.foreign_commits.get() })
    }

    fn log(&self) -> PathBuf {
        let mut log = self.env.store.path().as_os_str().to_owned();
        log.push("-wal");
        log.into()
    }

    /// Routes the rows that are there; returns whether all could be handled.
    fn look(&self, stop: &Stop) -> bool {
        let routed = self.unrouted(0, 1).and_then(|found| {
            if found.is_empty() { Ok(()) } else { self.relay_after_sources(stop) }
        });
        match routed {
            Ok(()) => true,
            Err(Error::Stopped) => false,
            Err(error) => {
                tracing::warn!(%error, "events inserted by SQL could not be routed; they are tried again");
                let _asked = stop.wait(AGAIN);
                false
            }
        }
    }

    fn unrouted(&self, after: i64, limit: u32) -> Result<Vec<i64>> {
        sql_rows::unrouted(&self.reader.tx(), after, limit)
    }

    /// Rows of sources that were committed before these go first.
    fn relay_after_sources(&self, stop: &Stop) -> Result<()> {
        let has_order = || subscriptions::has_order(&self.reader.tx(), None).unwrap_or(false);
        self.source_marks.wait(None, has_order);
        self.relay_all(stop)
    }

    /// Fails only with errors that pass by themselves; every other error is handled row by row.
    fn relay_all(&self, stop: &Stop) -> Result<()> {
        let mut after = 0;
        while !stop.asked() {
            let done = match self.relay(after, MAX_ROWS) {
                Err(error) if error.passes() || matches!(error, Error::Fatal(_)) => {
                    return Err(error);
                }
                Err(error) => {
                    tracing::debug!(%error, "rows are routed one by one");
                    self.one_by_one(after)?
                }
                Ok(done) => done,
            };
            self.counts.relayed(&done);
            if done.is_stuck && done.last == after {
                // The first row was examined, so it has changed since.
                return Err(Error::Changed("a row that another program inserted"));
            }
            if !done.more {
                break;
            }
            after = done.last;
        }
        Ok(())
    }

    /// Routes rows singly, so that a failing row does not hold up the others.
    fn one_by_one(&self, after: i64) -> Result<Relayed> {
        let found = self.unrouted(after, MAX_ROWS)?;
        let more = u32::try_from(found.len()).is_ok_and(|have| have >= MAX_ROWS);
        let mut all = Relayed { last: after, more, ..Relayed::default() };
        for seq in found {
            match self.relay(seq.saturating_sub(1), 1) {
                Ok(done) => all.add(done),
                Err(error) if error.passes() => return Err(error),
                Err(error) => {
                    self.set_aside(seq, &error)?;
                    all.quarantined = all.quarantined.saturating_add(1);
                }
            }
            all.last = seq;
        }
        Ok(all)
    }

    fn relay(&self, after: i64, limit: u32) -> Result<Relayed> {
        let rows = self.sql_rows.clone();
        let examined = rows.examine(&self.reader, after, limit)?;
        let writer = self.env.store.writer();
        let candidates: Vec<_> = examined.usable().map(outbox_routing::candidate).collect();
        let matches = Matches::ahead(writer.routes(), &self.env.budget, &candidates);
        writer.write(Queue::Accept, move |tx: &WriteTx<'_>| {
            tx.set_matches(matches.as_ref());
            rows.relay(tx, &examined, after, limit)
        })
    }

    fn set_aside(&self, seq: i64, error: &Error) -> Result<()> {
        let rows = self.sql_rows.clone();
        let why = error.to_string();
        let writer = self.env.store.writer();
        let set_aside =
            writer.write(Queue::Accept, move |tx: &WriteTx<'_>| rows.set_aside(tx, seq, &why));
        match set_aside {
            Err(error) if error.passes() => Err(error),
            Err(error) => {
                tracing::error!(%error, seq, "an event inserted by SQL can neither be routed nor quarantined");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }
}

/// Routes rows that plain SQL inserted into the outbox. The relay does so as soon as it sees them; a publish does so
/// first, so that its events do not overtake them.
#[derive(Clone)]
pub struct SqlRows {
    /// The environment.
    pub env: Env,
    /// The registered event types.
    pub event_types: Arc<EventTypes>,
}

impl SqlRows {
    /// Examines rows before the transaction that routes them: see [`ExaminedRows::batch`].
    fn examine(&self, reader: &OwnReader, after: i64, limit: u32) -> Result<ExaminedRows> {
        let most = self.payload_bytes_most();
        let examined = ExaminedRows::batch(&reader.tx(), after, limit, most)?;
        self.typed(examined)
    }

    /// Examines the rows that [`SqlRows::relay_before`] is to route.
    pub(super) fn examine_before(
        &self,
        store: &Store,
        is_guaranteed: bool,
    ) -> Result<ExaminedRows> {
        if !is_guaranteed && !store.writer().routes().may_ask_for_order() {
            return Ok(ExaminedRows::default());
        }
        let most = self.payload_bytes_most();
        let examined = store.look_up(|tx| ExaminedRows::before(tx, most))?;
        self.typed(examined)
    }

    /// Rows whose events are checked against their types.
    fn typed(&self, mut examined: ExaminedRows) -> Result<ExaminedRows> {
        examined.check_types(|event| {
            let misfit = self.event_types.misfit(event)?;
            Ok(misfit.map(|misfit| misfit.why))
        })?;
        Ok(examined)
    }

    /// See [`outbox_relay::relay`].
    fn relay(
        &self,
        tx: &WriteTx<'_>,
        examined: &ExaminedRows,
        after: i64,
        limit: u32,
    ) -> Result<Relayed> {
        let terms = self.terms();
        let fresh = || id::uuid7(terms.wall, &*self.env.draw);
        outbox_relay::relay(tx, examined, after, limit, terms, &fresh)
    }

    /// See [`outbox_relay::relay_before`].
    pub(super) fn relay_before(
        &self,
        tx: &WriteTx<'_>,
        examined: &ExaminedRows,
        is_guaranteed: bool,
    ) -> Result<Relayed> {
        let terms = self.terms();
        let fresh = || id::uuid7(terms.wall, &*self.env.draw);
        outbox_relay::relay_before(tx, examined, is_guaranteed, terms, &fresh)
    }

    /// See [`outbox_relay::set_aside`].
    fn set_aside(&self, tx: &WriteTx<'_>, seq: i64, why: &str) -> Result<()> {
        let terms = self.terms();
        outbox_relay::set_aside(tx, seq, why, terms, &id::uuid7(terms.wall, &*self.env.draw))
    }

    fn payload_bytes_most(&self) -> u64 {
        u64::from(self.env.settings.get().limits.payload_bytes)
    }

    fn terms(&self) -> Terms {
        Terms {
            payload_bytes_most: self.payload_bytes_most(),
            wall: self.env.clock.wall(),
            now: self.env.clock.now(),
        }
    }
}

/// The counts of commits at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counted {
    /// Changes with every commit, our own ones included.
    version: i64,
    /// Our own commits.
    ours: u64,
    /// Foreign commits that the writer noticed when it began a transaction.
    foreign: u64,
}

/// What the relay knows of commits.
#[derive(Debug, Default)]
struct Commits {
    /// The counts when the relay last checked them; `None`: a look is due.
    seen: Option<Counted>,
    /// When the first commit of our own came after the last look.
    ours_since: Option<Duration>,
}

impl Commits {
    /// How long not to ask the file after a commit of our own, which wakes the relay as a foreign one would: one look for
    /// all of ours in [`AFTER_OURS`]. `None`: it has to be asked now.
    fn wait_after_ours(&mut self, ours: u64, foreign: u64, now: Duration) -> Option<Duration> {
        let seen = self.seen?;
        if ours == seen.ours || foreign != seen.foreign {
            return None;
        }
        let since = *self.ours_since.get_or_insert(now);
        let wait = since.saturating_add(AFTER_OURS).saturating_sub(now);
        (!wait.is_zero()).then_some(wait)
    }

    /// Whether a foreign commit may have come since the last look.
    fn needs_look(&mut self, counted: Option<Counted>, now: Duration) -> bool {
        let before = std::mem::replace(&mut self.seen, counted);
        let (Some(counted), Some(seen)) = (counted, before) else { return true };
        if counted.ours != seen.ours {
            self.ours_since.get_or_insert(now);
        } else if counted.version != seen.version {
            return true;
        }
        counted.foreign != seen.foreign
            || self.ours_since.is_some_and(|at| now.saturating_sub(at) >= AFTER_OURS)
    }
}

/// Waits until the next look is due, at most `pause`; returns the pause after that look.
fn rest(watch: &Watch, log: &Path, pause: Duration, stop: &Stop) -> Duration {
    if pause < QUIET {
        // The log changed a moment ago. Another change restarts the delays, but only after a while: a busy writer changes
        // the log all the time.
        let has_changed = watch.wait(pause);
        if has_changed {
            let _asked = stop.wait(BUSY);
        }
        return if has_changed { FIRST } else { longer(pause) };
    }
    // The log may have been deleted and created again. A file that is watched already is not added twice.
    let waits = if watch.add(log) { WAITS_WATCHED } else { 1 };
    let has_changed = (0..waits).any(|_| !stop.asked() && watch.wait(LONGEST_WAIT));
    if has_changed { FIRST } else { QUIET }
}

fn longer(pause: Duration) -> Duration {
    pause.saturating_mul(4).min(QUIET)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn asked(commits: &mut Commits, [version, ours, foreign]: [u32; 3], at: u32) -> bool {
        let counted =
            Counted { version: version.into(), ours: ours.into(), foreign: foreign.into() };
        commits.needs_look(Some(counted), at * MS)
    }

    /// The state after a look at version 1, with one commit of ours and none of others.
    fn looked() -> Commits {
        Commits { seen: Some(Counted { version: 1, ours: 1, foreign: 0 }), ours_since: None }
    }

    #[test]
    fn a_look_is_due_at_the_start_and_after_a_failed_read() {
        assert!(asked(&mut Commits::default(), [1, 0, 0], 0));
        assert!(looked().needs_look(None, MS));
    }

    #[test]
    fn a_commit_that_is_not_ours_calls_for_a_look_at_once() {
        assert!(!asked(&mut looked(), [1, 1, 0], 1000));
        assert!(asked(&mut looked(), [2, 1, 0], 1));
        assert!(asked(&mut looked(), [3, 2, 1], 1), "the writer noticed it");
    }

    #[test]
    fn our_own_commits_call_for_one_look_in_50_ms() {
        let mut commits = looked();
        for n in 1..=50 {
            assert!(!asked(&mut commits, [n + 1, n + 1, 0], n), "{n}");
        }
        assert!(asked(&mut commits, [52, 52, 0], 51));
    }

    #[test]
    fn after_a_commit_of_ours_the_file_is_not_asked_for_50_ms() {
        let mut commits = looked();
        assert_eq!(commits.wait_after_ours(1, 0, MS), None, "nobody has committed");
        assert_eq!(commits.wait_after_ours(2, 0, 2 * MS), Some(50 * MS));
        assert_eq!(commits.wait_after_ours(3, 0, 42 * MS), Some(10 * MS));
        assert_eq!(
            commits.wait_after_ours(3, 1, 43 * MS),
            None,
            "the writer noticed a foreign one"
        );
        assert_eq!(commits.wait_after_ours(9, 0, 52 * MS), None);
        assert!(asked(&mut commits, [9, 9, 0], 52));
        assert_eq!(Commits::default().wait_after_ours(2, 0, MS), None, "nothing was seen yet");
    }

    #[test]
    fn a_foreign_commit_between_two_of_ours_is_seen_after_50_ms_at_the_latest() {
        let mut commits = looked();
        assert!(!asked(&mut commits, [2, 2, 0], 1), "it may hide behind ours");
        assert!(!asked(&mut commits, [2, 2, 0], 50));
        assert!(asked(&mut commits, [2, 2, 0], 51));
    }
}
