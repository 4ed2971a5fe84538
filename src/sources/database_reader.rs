//! Reads a table of an ERP's own database: stores rows in our file, and only then marks them in the table.
//!
//! A transaction of the ERP's database is never open while we store. If the process is killed between storing and
//! marking, the rows are read again; their keys are known, so that nothing is stored twice.

use std::time::Duration;

use crate::base::budget::Share;
use crate::databases::database::Lease;
use crate::databases::frame::MOST_ROWS_BYTES;
use crate::sources::Source;
use crate::sources::database_connection::{Connected, take};
use crate::sources::database_settings::{DatabaseSettings, Mode};
use crate::sources::database_stall::Stall;
use crate::sources::database_state::{Asked, DatabaseState, Position};
use crate::sources::rows::{ReadRow, ready};
use crate::sources::shared::{Obstacle, Shared, SourceError, Turn};
use crate::sources::tables::dialect::Wanted;
use crate::sources::tables::remote::{MAX_ROWS, RemoteRow, RemoteTable};
use crate::sources::tables::{Progress, set_identity};
use crate::store::error::Error;
use crate::store::meta;
use crate::store::tx::WriteTx;
use crate::store::writer::Queue;

/// Why a table is not read that was being read at two unclean ends.
const DIED: &str = "the service ended unexpectedly twice in a row while it read this source (perhaps for lack of \
                    memory; its log says more), so it is not read: check the oldest rows that are not marked, then \
                    restart the service";
/// A read with so many bytes may have left rows out.
const FULL_BYTES: usize = MOST_ROWS_BYTES / 2;

type Outcome<T> = Result<T, SourceError>;

/// How often the waiting rows are counted while there are many.
const COUNT_EVERY: Duration = Duration::from_secs(10);

/// State of a database's relay between two turns. All of it can be found out again.
#[derive(Debug, Default)]
pub(super) struct DatabaseReader {
    table: Option<RemoteTable>,
    /// Rows that are stored and not marked yet.
    unmarked: Vec<i64>,
    /// The highest id whose mark was taken back, while a person's wish is carried out.
    taken_back_to: i64,
    /// Whether a read has come to its end since the start.
    has_read: bool,
    /// Whether the position was compared with the database, in the mode `xid8`.
    is_checked: bool,
    /// The cluster's number, where we may read it.
    system: Option<String>,
    stall: Stall,
    lag: Lag,
}

/// How many rows wait, while there are many.
#[derive(Debug, Default)]
struct Lag {
    /// When they were counted, by the monotonic clock, and how many there are now.
    counted: Option<(Duration, u64)>,
}

/// A turn and what it works with.
struct Work<'a> {
    shared: &'a Shared,
    source: &'a Source,
    state: DatabaseState,
    settings: &'a DatabaseSettings,
    table: RemoteTable,
    lease: Lease,
}

impl DatabaseReader {
    /// Reads, stores and marks the next rows.
    pub(super) fn turn(
        &mut self,
        shared: &Shared,
        source: &Source,
        settings: &DatabaseSettings,
    ) -> Outcome<Turn> {
        let turn = self.attempt(shared, source, settings);
        if turn.is_err() {
            // The table may be another one by the next turn.
            (self.table, self.is_checked) = (None, false);
        }
        turn
    }

    fn attempt(
        &mut self,
        shared: &Shared,
        source: &Source,
        settings: &DatabaseSettings,
    ) -> Outcome<Turn> {
        let Connected { product, mut lease } =
            take(&shared.databases, &source.new.tenant, settings)?;
        let learned = self.table.take();
        if learned.as_ref().is_some_and(|table| table.settings() != settings) {
            // Their ids are those of another table.
            self.unmarked.clear();
        }
        let table = if let Some(table) = learned.filter(|table| table.settings() == settings) {
            table
        } else {
            self.is_checked = false;
            RemoteTable::learn(&mut lease, product, settings)?
        };
        let state = DatabaseState::read(source.identity.as_deref());
        let mut work = Work { shared, source, state, settings, table, lease };
        let turn = self.work(&mut work);
        self.table = Some(work.table);
        turn
    }

    fn work(&mut self, work: &mut Work<'_>) -> Outcome<Turn> {
        if let Some(asked) = work.state.asked.clone() {
            return self.carry_out(work, &asked);
        }
        self.taken_back_to = 0;
        let restored = work.shared.store.read(meta::restored)?;
        let name = work.source.new.name.as_str();
        work.state
            .check_restore(work.settings, restored.map(|restored| restored.at), name)
            .map_err(|why| SourceError { why, kind: Obstacle::Replaced })?;
        self.mark(work)?;
        match work.settings.mode {
            Mode::Mark => self.read(work, &Wanted::Unmarked),
            Mode::Claim => {
                let own = Wanted::ClaimedBy(work.box_name()?);
                match self.read(work, &own)? {
                    Turn::Done => self.claim(work, &own),
                    Turn::Again => Ok(Turn::Again),
                }
            }
            Mode::Xid8 => self.read_by_transaction(work),
        }
    }

    /// Claims rows, and reads them.
    fn claim(&mut self, work: &mut Work<'_>, own: &Wanted) -> Outcome<Turn> {
        let name = work.box_name()?;
        match work.table.claim(&mut work.lease, &name)? {
            0 => Ok(Turn::Done),
            claimed => {
                self.read(work, own)?;
                Ok(if claimed < MAX_ROWS { Turn::Done } else { Turn::Again })
            }
        }
    }

    /// Reads rows, stores them, and marks them.
    fn read(&mut self, work: &mut Work<'_>, wanted: &Wanted) -> Outcome<Turn> {
        let item = format!("source/{}/{}", work.source.seq, work.source.new.cursor);
        let suspects = &work.shared.suspects;
        if suspects.is_convicted(&item) {
            return Err(SourceError::lasting(DIED));
        }
        let _share = work.share();
        // Only the first read is marked: rows that crash the process do so in the next start's first read as well.
        let marked = (!self.has_read).then(|| suspects.mark(&item, usize::MAX)).flatten();
        let rows = work.table.read(&mut work.lease, wanted)?;
        drop(marked);
        if rows.is_empty() {
            work.behind(0);
            self.has_read = true;
            return Ok(Turn::Done);
        }
        let is_full = is_full(&rows);
        let waiting = if is_full { self.lag.count(work, wanted)? } else { count(&rows) };
        work.behind(waiting);
        let state = work.state.clone();
        self.unmarked = work.store(&rows, |_row| state.clone())?;
        let all = self.unmarked.len() == rows.len();
        self.mark(work)?;
        if is_full || !all {
            self.lag.less(count(&rows));
            return Ok(Turn::Again);
        }
        work.behind(0);
        self.has_read = true;
        Ok(Turn::Done)
    }

    /// Reads rows of ended transactions in their order, and stores them with the position.
    fn read_by_transaction(&mut self, work: &mut Work<'_>) -> Outcome<Turn> {
        let mut position = work.state.position.clone().unwrap_or_default();
        if !self.is_checked {
            let system = work.table.system(&mut work.lease)?;
            let row = match position.row {
                Some(_) => work.table.one(&mut work.lease, position.id)?,
                None => None,
            };
            let row = row.map(|row| work.fingerprint(&row, position.row.as_deref())).transpose()?;
            position
                .check(&system, row.as_deref(), work.source.new.name.as_str())
                .map_err(|why| SourceError { why, kind: Obstacle::Replaced })?;
            self.system = system.number;
            self.is_checked = true;
        }
        position.system = position.system.or_else(|| self.system.clone());
        let wanted = Wanted::After { tx: position.tx, id: position.id };
        let _share = work.share();
        let rows = work.table.read(&mut work.lease, &wanted)?;
        if rows.is_empty() {
            let waiting = work.table.waiting(&mut work.lease, &wanted)?;
            work.behind(waiting);
            self.has_read = true;
            return self.stall.look(work.shared, waiting, || work.table.oldest(&mut work.lease));
        }
        self.stall = Stall::default();
        let waiting = if is_full(&rows) { self.lag.count(work, &wanted)? } else { count(&rows) };
        work.behind(waiting);
        let prints = rows.iter().map(|row| work.fingerprint(row, None));
        let prints: Vec<String> = prints.collect::<Outcome<_>>()?;
        let state = work.state.clone();
        let after = |n: usize| {
            let row = rows.get(n);
            let next = Position {
                tx: row.and_then(|row| row.tx).unwrap_or(position.tx),
                id: row.map_or(position.id, |row| row.id),
                row: prints.get(n).cloned(),
                system: position.system.clone(),
            };
            DatabaseState { position: Some(next), ..state.clone() }
        };
        let stored = work.store(&rows, after)?;
        self.lag.less(count(&rows));
        Ok(if is_full(&rows) || stored.len() < rows.len() { Turn::Again } else { Turn::Done })
    }

    /// Marks the rows that are stored.
    fn mark(&mut self, work: &mut Work<'_>) -> Outcome<()> {
        if !self.unmarked.is_empty() {
            work.table.mark(&mut work.lease, &self.unmarked)?;
            self.unmarked.clear();
        }
        Ok(())
    }

    /// Carries out a part of what a person asked for.
    fn carry_out(&mut self, work: &mut Work<'_>, asked: &Asked) -> Outcome<Turn> {
        let is_done = match asked {
            Asked::Reopen(since) => {
                // Another box on the table keeps its marks.
                let own = match work.settings.mode {
                    Mode::Claim => Some(work.box_name()?),
                    Mode::Mark | Mode::Xid8 => None,
                };
                let since = since.to_string();
                let after = self.taken_back_to;
                match work.table.unmark(&mut work.lease, &since, own.as_deref(), after)? {
                    Some(last) => {
                        self.taken_back_to = last;
                        false
                    }
                    None => true,
                }
            }
            Asked::Release(name) => work.table.release(&mut work.lease, name)? < MAX_ROWS,
        };
        if is_done {
            self.unmarked.clear();
            let done = DatabaseState { asked: None, ..work.state.clone() };
            let seq = work.source.seq;
            let from = work.source.identity.clone();
            let to = done.to_text();
            let stored =
                work.shared.store.writer().write(Queue::Accept, move |tx: &WriteTx<'_>| {
                    set_identity(tx, seq, from.as_deref(), to.as_deref())
                });
            match stored {
                // A person has asked for something else meanwhile.
                Ok(()) | Err(Error::Changed(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Turn::Again)
    }
}

impl Lag {
    /// The number of rows that wait, counted now and then.
    fn count(&mut self, work: &mut Work<'_>, wanted: &Wanted) -> Outcome<u64> {
        let now = work.shared.clock.monotonic();
        if let Some((at, rows)) = self.counted
            && now.saturating_sub(at) < COUNT_EVERY
        {
            return Ok(rows);
        }
        let rows = work.table.waiting(&mut work.lease, wanted)?;
        self.counted = Some((now, rows));
        Ok(rows)
    }

    fn less(&mut self, read: u64) {
        if let Some((_, rows)) = &mut self.counted {
            *rows = rows.saturating_sub(read);
        }
    }
}

impl Work<'_> {
    /// What rows are claimed with.
    fn box_name(&self) -> Outcome<String> {
        let settings = self.shared.settings.get();
        settings.r#box.name.clone().ok_or_else(|| {
            SourceError::lasting(
                "the mode claim needs the name of this box: set box.name in the settings, another one on each box",
            )
        })
    }

    fn behind(&self, rows: u64) {
        self.shared.statuses.set(self.source.seq, |status| status.lag = Some(rows));
    }

    /// Memory for the rows of one read: as they come, as values, and as events.
    fn share(&self) -> Share {
        self.shared.budget.take_own(MOST_ROWS_BYTES.saturating_mul(3))
    }

    /// The fingerprint of a row as it is stored: in the form of `before` if it is that row.
    fn fingerprint(&self, row: &RemoteRow, before: Option<&str>) -> Outcome<String> {
        let forms =
            self.shared.privacy.hashed(&self.source.new.tenant, &row.draft.fingerprint())?;
        let same = before.filter(|before| forms.iter().any(|form| form == before));
        let [now, _other] = &forms;
        Ok(same.unwrap_or(now).to_owned())
    }

    /// Stores rows; `after` is the state once the row with this number is stored. Returns the ids of those that are
    /// stored: all, but for what a person does meanwhile.
    fn store(
        &self,
        rows: &[RemoteRow],
        after: impl Fn(usize) -> DatabaseState,
    ) -> Outcome<Vec<i64>> {
        let (shared, mut source) = (self.shared, self.source.clone());
        let read = rows.iter().map(|RemoteRow { id, draft, unreadable, .. }| ReadRow {
            id: *id,
            row: draft,
            unreadable: unreadable.as_deref(),
        });
        let events = ready(shared, &source, &read.collect::<Vec<_>>())?;
        let progress = |source: &Source, n: usize, events: usize| Progress {
            from: source.new.cursor,
            to: rows.get(n).map_or(source.new.cursor, |row| row.id),
            known: source.identity.clone(),
            identity: after(n).to_text(),
            events: u64::try_from(events).unwrap_or(u64::MAX),
        };
        let last = rows.len().saturating_sub(1);
        match shared.store_rows(&source, progress(&source, last, rows.len()), None, events.clone())
        {
            Ok(()) => return Ok(rows.iter().map(|row| row.id).collect()),
            Err(Error::Changed(_)) => return Ok(Vec::new()),
            // One of them is refused by our own file: each is stored alone.
            Err(Error::Constraint(_)) => {}
            Err(error) => return Err(error.into()),
        }
        let mut stored = Vec::with_capacity(rows.len());
        for (n, (row, event)) in rows.iter().zip(events).enumerate() {
            let one = progress(&source, n, 1);
            let done = match shared.store_rows(&source, one.clone(), None, vec![event.clone()]) {
                Err(Error::Constraint(why)) => {
                    shared.store_rows(&source, one.clone(), None, vec![event.refused(&why)])
                }
                done => done,
            };
            match done {
                Ok(()) => {}
                Err(Error::Changed(_)) => break,
                Err(error) => return Err(error.into()),
            }
            (source.new.cursor, source.identity) = (one.to, one.identity);
            stored.push(row.id);
        }
        Ok(stored)
    }
}

fn count(rows: &[RemoteRow]) -> u64 {
    u64::try_from(rows.len()).unwrap_or(u64::MAX)
}

/// Whether there may be more rows than were read at once.
fn is_full(rows: &[RemoteRow]) -> bool {
    let bytes: usize = rows.iter().map(|row| row.draft.bytes()).sum();
    rows.len() >= MAX_ROWS || bytes >= FULL_BYTES
}
