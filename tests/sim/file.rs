//! The database of a simulated world: a real file with its writer, and its rows as they were committed last.
//!
//! The store makes every change (`jobs`). After each commit, the rows that have changed are read by SQL: this is what the
//! world and its watch look at.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use oncebox::base::clock::Timestamp;
use oncebox::base::faults::Faults;
use oncebox::base::id::{DeliverySeq, SubscriptionSeq};
use oncebox::model::delivery::DeliveryState;
use oncebox::model::hold::{Hold, HoldReason};
use oncebox::model::lane::{HeadOfLine, OrderTerms};
use oncebox::model::outcome::AttemptClass;
use oncebox::model::subscription::Policy;
use oncebox::store::error::{Error, Result};
use oncebox::store::tx::{Effects, ReadTx, WriteTx};
use oncebox::store::writer::{AroundCommit, Queue};
use oncebox::store::{OwnReader, Store, holds, settlement};
use rusqlite::Connection;
use serde_json::json;

use crate::rig::file::{RULES, lines};
use crate::sim::bug::{Bug, When};
use crate::sim::dice::Ms;
use crate::sim::jobs::{Done, Job, Times};
use crate::sim::plan::Sub;

/// Which rows of `deliveries` have changed; 0 stands for those of `holds`.
const TOUCHED: &str = "
    CREATE TABLE touched (n INTEGER PRIMARY KEY, seq INTEGER NOT NULL);
    CREATE TRIGGER touched_1 AFTER INSERT ON deliveries BEGIN INSERT INTO touched (seq) VALUES (NEW.seq); END;
    CREATE TRIGGER touched_2 AFTER UPDATE ON deliveries BEGIN INSERT INTO touched (seq) VALUES (NEW.seq); END;
    CREATE TRIGGER touched_3 AFTER INSERT ON holds BEGIN INSERT INTO touched (seq) VALUES (0); END;
    CREATE TRIGGER touched_4 AFTER UPDATE ON holds BEGIN INSERT INTO touched (seq) VALUES (0); END;
    CREATE TRIGGER touched_5 AFTER DELETE ON holds BEGIN INSERT INTO touched (seq) VALUES (0); END;";

/// Audit events stay: they are never deleted, and nothing reads them here.
const EMPTY: &str = "
    DROP TRIGGER IF EXISTS bug;
    BEGIN;
    DELETE FROM attempts; DELETE FROM failures; DELETE FROM escalations; DELETE FROM external_calls;
    DELETE FROM holds; DELETE FROM deliveries; DELETE FROM outbox; DELETE FROM subscriptions; DELETE FROM touched;
    DELETE FROM sqlite_sequence;
    COMMIT;";

const SUBSCRIBE: &str = r#"
    INSERT INTO subscriptions
           (seq, id, name, event_types, url, ordering, policy, order_terms, created_at, updated_at)
    VALUES (?1, 's' || ?1, 's' || ?1, '["all","s' || ?1 || '"]', 'https://example.com/', ?2, ?3, ?4, 0, ?5)"#;

const LATEST: &str = "SELECT coalesce(max(n), ?1), coalesce(min(seq), 1) FROM touched WHERE n > ?1";

const ROWS: &str = "
    SELECT d.seq, CAST(o.idempotency_key AS INTEGER), d.subscription_seq, d.lane, d.order_at, d.funnel, d.entity,
           o.exclude_failed, d.state, d.head, d.run_no, d.attempt_count, d.counted_failures,
           coalesce(o.not_before, 0), o.max_attempts, d.confirm_until, d.last_class, d.reason, o.payload
      FROM deliveries AS d
      JOIN outbox AS o ON o.seq = d.outbox_seq
     WHERE d.seq IN (SELECT seq FROM touched WHERE n > ?1)
     ORDER BY d.seq";

const OPEN_CALLS: &str =
    "SELECT subscription_seq, entity FROM external_calls WHERE state = 'PROCESSING'";

/// A row of `deliveries`, with what its event says.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) seq: i64,
    /// Its event.
    pub(crate) event: usize,
    pub(crate) sub: i64,
    pub(crate) lane: Option<i64>,
    pub(crate) order_at: Ms,
    pub(crate) funnel: Option<i64>,
    pub(crate) entity: Option<i64>,
    /// Whether dead letters ahead of it do not block it.
    pub(crate) exclude_failed: bool,
    pub(crate) state: DeliveryState,
    pub(crate) head: bool,
    pub(crate) run_no: u32,
    pub(crate) attempts: u32,
    pub(crate) counted: u32,
    pub(crate) not_before: Ms,
    pub(crate) max_attempts: Option<u32>,
    /// When its time to be confirmed is over.
    pub(crate) confirm_until: Option<Ms>,
    pub(crate) last_class: Option<AttemptClass>,
    pub(crate) reason: Option<String>,
    /// What its body says.
    pub(crate) content: Vec<u8>,
    /// The commit that inserted or reopened it.
    pub(crate) since: u64,
    /// The commit in which it became a dead letter.
    pub(crate) dead_in: u64,
    /// The commit since which it waits for its confirmation.
    pub(crate) waits_in: u64,
}

impl Row {
    fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        let word = |n| row.get::<_, Option<String>>(n);
        Ok(Self {
            seq: row.get(0)?,
            event: usize::try_from(row.get::<_, i64>(1)?).unwrap(),
            sub: row.get(2)?,
            lane: row.get(3)?,
            order_at: row.get(4)?,
            funnel: row.get(5)?,
            entity: row.get(6)?,
            exclude_failed: row.get(7)?,
            state: word(8)?.and_then(|state| DeliveryState::parse(&state)).unwrap(),
            head: row.get(9)?,
            run_no: row.get(10)?,
            attempts: row.get(11)?,
            counted: row.get(12)?,
            not_before: row.get(13)?,
            max_attempts: row.get(14)?,
            confirm_until: row.get(15)?,
            last_class: word(16)?.and_then(|class| AttemptClass::parse(&class)),
            reason: row.get(17)?,
            content: row.get(18)?,
            since: 0,
            dead_in: 0,
            waits_in: 0,
        })
    }

    /// Notes the commits of a row that was `old` before this one.
    fn dated(mut self, old: Option<&Self>, commit: u64) -> Self {
        let entered = |state| {
            let is_same = |old: &Self| old.state == state && old.run_no == self.run_no;
            self.state == state && !old.is_some_and(is_same)
        };
        let when = |is_now: bool, was: Option<u64>| was.filter(|_| !is_now).unwrap_or(commit);
        let since = when(entered(DeliveryState::Pending), old.map(|old| old.since));
        let dead_in = when(entered(DeliveryState::DeadLetter), old.map(|old| old.dead_in));
        let waits_in = when(entered(DeliveryState::Waiting), old.map(|old| old.waits_in));
        (self.since, self.dead_in, self.waits_in) = (since, dead_in, waits_in);
        self
    }

    pub(crate) fn is_open(&self) -> bool {
        self.state == DeliveryState::Pending
    }

    /// Whether it stands in its lane.
    pub(crate) fn is_standing(&self) -> bool {
        matches!(
            self.state,
            DeliveryState::Pending | DeliveryState::Waiting | DeliveryState::InDoubt
        )
    }

    /// Whether it was skipped because its external call must not be made.
    pub(crate) fn is_call_spared(&self) -> bool {
        let names_it = |why: &String| why.contains("external_calls");
        self.state == DeliveryState::Skipped && self.reason.as_ref().is_some_and(names_it)
    }

    pub(crate) fn place(&self) -> (Ms, i64) {
        (self.order_at, self.seq)
    }
}

/// What the writer tells after a commit.
#[derive(Default)]
struct Listener(Mutex<Effects>);

impl AroundCommit for Listener {
    fn complete(&self, tx: &WriteTx<'_>) -> Result<()> {
        settlement::set_aside(tx)
    }

    fn committed(&self, effects: Effects) {
        *self.0.lock().unwrap() = effects;
    }

    fn full(&self) {}

    fn fatal(&self, error: &Error) {
        panic!("{error}");
    }
}

/// A file and its writer. Worlds use it one after another.
pub(crate) struct Disk {
    store: Store,
    reader: OwnReader,
    /// The connection of the watch.
    conn: Connection,
    listener: Arc<Listener>,
    /// How many subscriptions were written.
    written: AtomicI64,
    writer: Option<JoinHandle<()>>,
    _directory: tempfile::TempDir,
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Some(thread) = self.writer.take() {
            self.store.writer().ask_to_stop();
            drop(thread.join());
        }
    }
}

impl Disk {
    pub(crate) fn new() -> Self {
        // In memory where that is possible: each transaction is synced.
        let memory = Some(Path::new("/dev/shm")).filter(|memory| memory.is_dir());
        let directory = memory.map_or_else(tempfile::tempdir, tempfile::tempdir_in).unwrap();
        let path = directory.path().join("oncebox.db");
        let (store, writer) = Store::open(&path, Faults::none()).unwrap();
        let conn = Connection::open(&path).unwrap();
        conn.execute_batch(TOUCHED).unwrap();
        let listener = Arc::new(Listener::default());
        let observer: Arc<dyn AroundCommit> = Arc::<Listener>::clone(&listener);
        let writer = Some(thread::spawn(move || writer.run(&observer)));
        let reader = store.own_reader().unwrap();
        let written = AtomicI64::new(0);
        Self { store, reader, conn, listener, written, writer, _directory: directory }
    }

    fn write<T: Send + 'static>(
        &self,
        run: impl FnMut(&WriteTx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<(T, Effects)> {
        let done = self.store.writer().write(Queue::Settle, run)?;
        Ok((done, std::mem::take(&mut *self.listener.0.lock().unwrap())))
    }
}

/// The file of one world.
pub(crate) struct File<'d> {
    disk: &'d Disk,
    pub(crate) subs: Arc<BTreeMap<i64, Sub>>,
    /// In the order of their numbers, from 1.
    pub(crate) rows: Vec<Row>,
    /// The holds of each subscription, that of the site included.
    pub(crate) holds: BTreeMap<i64, Vec<Hold>>,
    /// The commits that last changed them.
    held_in: BTreeMap<i64, u64>,
    /// Transactions so far.
    pub(crate) commits: u64,
    /// The latest row of `touched` that was read.
    touched: i64,
    bug: Option<Bug>,
}

impl<'d> File<'d> {
    pub(crate) fn new(disk: &'d Disk, subs: &[Sub], bug: Option<Bug>) -> Self {
        disk.conn.execute_batch(EMPTY).unwrap();
        for sub in subs {
            let ordering = if sub.has_lanes { "key" } else { "none" };
            let rate = sub.is_slow.then(|| "60/min".to_owned());
            let policy = Policy { in_flight_max: sub.in_flight_max, rate, ..Policy::default() };
            let terms = OrderTerms {
                group: sub.group.map(|group| group.to_string()),
                head_of_line: sub.head_of_line,
                park_after: sub.rules.park_after,
                funnel_point: sub.has_funnel.then(|| "point".to_owned()),
                external_calls: sub.calls,
                ..OrderTerms::default()
            };
            // The writer takes a row that was written at the same time for the one that it knows from the world before.
            let written_at = disk.written.fetch_add(1, Ordering::Relaxed);
            let policy = json!(policy).to_string();
            let terms = json!(terms).to_string();
            let row = (sub.seq, ordering, policy, terms, written_at);
            disk.conn.execute(SUBSCRIBE, row).unwrap();
        }
        let file = Self {
            disk,
            subs: Arc::new(subs.iter().map(|sub| (sub.seq, sub.clone())).collect()),
            rows: Vec::new(),
            holds: subs.iter().map(|sub| (sub.seq, Vec::new())).collect(),
            held_in: BTreeMap::new(),
            commits: 0,
            touched: 0,
            bug,
        };
        file.spoil(When::Start);
        file.boot();
        file
    }

    /// The process starts: what the writer has in memory is gone.
    pub(crate) fn boot(&self) {
        self.spoil(When::Boot);
        // After a transaction that fails, it reads everything again.
        assert!(self.disk.write(|_| Err::<(), _>(Error::Full)).is_err());
    }

    fn spoil(&self, when: When) {
        self.disk.conn.execute_batch(self.bug.map_or("", |bug| bug.sql(when))).unwrap();
    }

    /// Does jobs in one transaction. One that `fails` ends with `Full`.
    pub(crate) fn write(
        &mut self,
        jobs: &Arc<Vec<Job>>,
        times: Times,
        fails: bool,
    ) -> Result<(Vec<Done>, Effects)> {
        let (jobs, subs, bug) = (Arc::clone(jobs), Arc::clone(&self.subs), self.bug);
        let written = self.disk.write(move |tx| {
            let done = jobs.iter().map(|job| job.run(tx, times, (&subs, bug)));
            let done = done.collect::<Result<Vec<Done>>>()?;
            if fails { Err(Error::Full) } else { Ok(done) }
        })?;
        self.committed();
        Ok(written)
    }

    /// Puts everything that is not sent in doubt: the process is down, and its file is restored.
    pub(crate) fn restore(&mut self, now: Ms) {
        let is_unsent =
            |row: &&Row| matches!(row.state, DeliveryState::Pending | DeliveryState::Waiting);
        let unsent = self.rows.iter().filter(is_unsent).map(|row| DeliverySeq(row.seq));
        let (unsent, now) = (unsent.collect::<Vec<_>>(), Timestamp::from_ms(now));
        let put = move |tx: &WriteTx<'_>| {
            unsent.iter().try_for_each(|seq| settlement::put_in_doubt(tx, *seq, now))
        };
        drop(self.disk.write(put).unwrap());
        self.committed();
    }

    /// Reads what a transaction has changed.
    fn committed(&mut self) {
        self.commits += 1;
        self.spoil(When::Committed);
        let conn = &self.disk.conn;
        let mut changed = conn.prepare_cached(ROWS).unwrap();
        let changed = changed.query_map([self.touched], Row::read).unwrap();
        for row in changed.map(rusqlite::Result::unwrap) {
            let at = usize::try_from(row.seq - 1).unwrap();
            let row = row.dated(self.rows.get(at), self.commits);
            match self.rows.get_mut(at) {
                Some(old) => *old = row,
                None => self.rows.push(row),
            }
        }
        let mut latest = conn.prepare_cached(LATEST).unwrap();
        let latest = latest.query_row([self.touched], |row| <(i64, i64)>::try_from(row)).unwrap();
        self.touched = latest.0;
        for (sub, known) in self.holds.iter_mut().filter(|_| latest.1 == 0) {
            let holds = holds::of(&self.disk.reader.tx(), SubscriptionSeq(*sub)).unwrap();
            if *known != holds {
                *known = holds;
                self.held_in.insert(*sub, self.commits);
            }
        }
    }

    /// The first rule of every file that it breaks, among those whose name `which` takes.
    pub(crate) fn broken(&self, which: impl Fn(&str) -> bool) -> Option<String> {
        let broken = |(rule, sql): &(&str, &str)| {
            let found = lines(&self.disk.conn, sql);
            (!found.is_empty()).then(|| format!("{rule}: {found:?}"))
        };
        RULES.iter().filter(|(rule, _)| which(rule)).find_map(broken)
    }

    /// Reads as a thread of the process does.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&ReadTx<'_>) -> Result<T>) -> T {
        read(&self.disk.reader.tx()).unwrap()
    }

    /// External calls that have begun and not ended, each by its subscription and entity.
    pub(crate) fn open_calls(&self) -> Vec<(i64, i64)> {
        let mut found = self.disk.conn.prepare_cached(OPEN_CALLS).unwrap();
        let found = found.query_map([], |row| row.try_into()).unwrap();
        found.map(rusqlite::Result::unwrap).collect()
    }

    pub(crate) fn row(&self, seq: i64) -> Option<&Row> {
        self.rows.get(usize::try_from(seq).ok()?.checked_sub(1)?)
    }

    /// The commit that last changed the holds of a subscription.
    pub(crate) fn held_in(&self, sub: i64) -> u64 {
        self.held_in.get(&sub).copied().unwrap_or_default()
    }

    pub(crate) fn is_offline(&self) -> bool {
        self.holds.values().flatten().any(|hold| hold.reason == HoldReason::Offline)
    }

    /// Whether a delivery is a dead letter behind which its lane waits.
    pub(crate) fn is_blocking(&self, row: &Row) -> bool {
        let blocks = self.subs[&row.sub].head_of_line == HeadOfLine::Block;
        row.state == DeliveryState::DeadLetter && row.lane.is_some() && blocks
    }
}
