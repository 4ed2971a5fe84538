//! Reads a table of an ERP's own database: stores rows in our file, and only then marks them in the table.
//!
//! A transaction of the ERP's database never waits for our writer. If the process is killed between storing and
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
use crate::sources::shared::{Obstacle, ReadyRow, RelayServices, SourceError, Storing, Turn};
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
/// While rows of at most so many bytes are stored, the next ones are read: the memory of one read suffices for both.
const SMALL_BYTES: usize = MOST_ROWS_BYTES / 8;
/// Batches of one turn. Rows with lower ids that were committed late are seen by the first read of the next turn.
const MAX_BATCHES: u32 = 16;

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
    shared: &'a RelayServices,
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
        shared: &RelayServices,
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
        shared: &RelayServices,
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
        let restored = work.shared.env.store.read(meta::restored)?;
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
        let waiting = if is_full(&rows) { self.lag.count(work, wanted)? } else { count(&rows) };
        work.behind(waiting);
        if *wanted == Wanted::Unmarked {
            return self.store_in_turns(work, rows);
        }
        let state = work.state.clone();
        self.unmarked = work.store(&rows, |_row| state.clone())?;
        let all = self.unmarked.len() == rows.len();
        self.mark(work)?;
        Ok(self.ended(work, &rows, all))
    }

    /// Stores rows and marks them. While our writer stores rows, those before them are marked and those after them are
    /// read: neither waits for the other.
    fn store_in_turns(&mut self, work: &mut Work<'_>, first: Vec<RemoteRow>) -> Outcome<Turn> {
        let mut rows = first;
        let mut cursor = work.source.new.cursor;
        for number in 1..=MAX_BATCHES {
            let storing = work.begin_to_store(&rows, cursor)?;
            let ahead = self.meanwhile(work, &rows, number < MAX_BATCHES);
            let stored = work.stored(storing, &rows, cursor);
            let all = stored.as_ref().is_ok_and(|ids| ids.len() == rows.len());
            // What is stored is marked by the next turn if something fails here.
            self.unmarked.extend(stored?);
            let ahead = ahead?;
            if !all || ahead.is_empty() {
                self.mark(work)?;
                return Ok(self.ended(work, &rows, all));
            }
            self.lag.less(count(&rows));
            cursor = rows.last().map_or(cursor, |row| row.id);
            rows = ahead;
        }
        Ok(Turn::Again)
    }

    /// Marks the rows that were stored before these, and reads those after these; none if these may be the last.
    fn meanwhile(
        &mut self,
        work: &mut Work<'_>,
        rows: &[RemoteRow],
        goes_on: bool,
    ) -> Outcome<Vec<RemoteRow>> {
        self.mark(work)?;
        let bytes: usize = rows.iter().map(|row| row.draft.bytes()).sum();
        match rows.last() {
            Some(last) if goes_on && rows.len() >= MAX_ROWS && bytes <= SMALL_BYTES => {
                work.table.read(&mut work.lease, &Wanted::UnmarkedAbove(last.id))
            }
            _ => Ok(Vec::new()),
        }
    }

    /// How a turn ends with these rows: whether there may be more.
    fn ended(&mut self, work: &Work<'_>, rows: &[RemoteRow], all: bool) -> Turn {
        if is_full(rows) || !all {
            self.lag.less(count(rows));
            return Turn::Again;
        }
        work.behind(0);
        self.has_read = true;
        Turn::Done
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
                work.shared.env.store.writer().write(Queue::Accept, move |tx: &WriteTx<'_>| {
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
        let now = work.shared.env.clock.monotonic();
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
        let settings = self.shared.env.settings.get();
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
        self.shared.env.budget.take_own(MOST_ROWS_BYTES.saturating_mul(3))
    }

    /// The fingerprint of a row as it is stored: in the form of `before` if it is that row.
    fn fingerprint(&self, row: &RemoteRow, before: Option<&str>) -> Outcome<String> {
        let forms =
            self.shared.env.privacy.hashed(&self.source.new.tenant, &row.draft.fingerprint())?;
        let same = before.filter(|before| forms.iter().any(|form| form == before));
        let [now, _other] = &forms;
        Ok(same.unwrap_or(now).to_owned())
    }

    /// Rows as events.
    fn ready(&self, rows: &[RemoteRow]) -> Outcome<Vec<ReadyRow>> {
        let read = rows.iter().map(|RemoteRow { id, draft, unreadable, .. }| ReadRow {
            id: *id,
            row: draft,
            unreadable: unreadable.as_deref(),
        });
        Ok(ready(self.shared, self.source, &read.collect::<Vec<_>>())?)
    }

    /// Hands rows of a table that is marked to our writer. The position before them is `cursor`.
    fn begin_to_store(&self, rows: &[RemoteRow], cursor: i64) -> Outcome<Storing> {
        let events = self.ready(rows)?;
        let identity = self.state.to_text();
        let progress = Progress {
            from: cursor,
            to: rows.last().map_or(cursor, |row| row.id),
            known: self.source.identity.clone(),
            identity,
            events: count(rows),
        };
        Ok(self.shared.begin_to_store(self.source, progress, None, events))
    }

    /// The ids of the rows that are stored: all, but for what a person does meanwhile.
    fn stored(&self, storing: Storing, rows: &[RemoteRow], cursor: i64) -> Outcome<Vec<i64>> {
        match self.shared.stored(self.source, storing) {
            Ok(()) => Ok(rows.iter().map(|row| row.id).collect()),
            Err(Error::Changed(_)) => Ok(Vec::new()),
            Err(Error::Constraint(_)) => {
                let mut source = self.source.clone();
                source.new.cursor = cursor;
                let events = self.ready(rows)?;
                self.store_each(source, rows, events, |_row| self.state.clone())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Stores rows; `after` is the state once the row with this number is stored. Returns the ids of those that are
    /// stored: all, but for what a person does meanwhile.
    fn store(
        &self,
        rows: &[RemoteRow],
        after: impl Fn(usize) -> DatabaseState,
    ) -> Outcome<Vec<i64>> {
        let source = self.source.clone();
        let events = self.ready(rows)?;
        let last = rows.len().saturating_sub(1);
        let progress = progress(&source, rows, last, rows.len(), &after);
        match self.shared.store_rows(&source, progress, None, events.clone()) {
            Ok(()) => Ok(rows.iter().map(|row| row.id).collect()),
            Err(Error::Changed(_)) => Ok(Vec::new()),
            Err(Error::Constraint(_)) => self.store_each(source, rows, events, after),
            Err(error) => Err(error.into()),
        }
    }

    /// Stores each row alone, because our own file refuses one of them.
    fn store_each(
        &self,
        mut source: Source,
        rows: &[RemoteRow],
        events: Vec<ReadyRow>,
        after: impl Fn(usize) -> DatabaseState,
    ) -> Outcome<Vec<i64>> {
        let shared = self.shared;
        let mut stored = Vec::with_capacity(rows.len());
        for (n, (row, event)) in rows.iter().zip(events).enumerate() {
            let one = progress(&source, rows, n, 1, &after);
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

/// The position of a source once its row with the number `n` is stored.
fn progress(
    source: &Source,
    rows: &[RemoteRow],
    n: usize,
    events: usize,
    after: impl Fn(usize) -> DatabaseState,
) -> Progress {
    Progress {
        from: source.new.cursor,
        to: rows.get(n).map_or(source.new.cursor, |row| row.id),
        known: source.identity.clone(),
        identity: after(n).to_text(),
        events: u64::try_from(events).unwrap_or(u64::MAX),
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
