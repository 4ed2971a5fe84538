//! A real file beside the simulated one: the store does each job, too, and afterwards both must say the same.
//!
//! A bug in the SQL is found here; what the simulated world cannot ask of it is left out: a restore, and the replay of
//! what is completed.

use std::fmt::Debug;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Sender, bounded};
use oncebox::base::clock::Timestamp;
use oncebox::base::faults::Faults;
use oncebox::base::id::{DeliverySeq, SubscriptionSeq};
use oncebox::model::delivery::Attempt;
use oncebox::model::event::{EventOrder, NewEvent};
use oncebox::model::external_call::{CallState, NewCall};
use oncebox::model::failure::{AttemptOrder, AttemptReport};
use oncebox::model::hold::{Hold, HoldReason};
use oncebox::model::lease::LeaseOutcome;
use oncebox::store::consuming::Consumer;
use oncebox::store::error::{Error, Result};
use oncebox::store::outbox::Inserted;
use oncebox::store::tx::{Effects as Told, WriteTx};
use oncebox::store::writer::{AroundCommit, Queue};
use oncebox::store::{
    Store, confirmations, deliveries, holds, leases, outbox, settlement, subscriptions, superseded,
};
use rusqlite::Connection;
use rusqlite::types::Value;

use crate::calls::CallRow;
use crate::dice::{JitterDraw, Ms};
use crate::family::EventRow;
use crate::file::{Deed, Effects, File, Report, Row, Spec, Sub, terms};

/// Rows that a statement changes at most.
const MANY: u32 = 1000;
const DELIVERIES: &str = "
    SELECT seq, state, due_at, lane, order_at, funnel, entity, run_no, attempt_count, counted_failures,
           iif(state = 'pending', delay_ms, 0), confirm_until,
           iif(finished_at IS NULL OR (state = 'dead_letter' AND lane IS NOT NULL), head, 0)
      FROM deliveries ORDER BY seq";
const EVENTS: &str = "
    SELECT CAST(substr(id, -12) AS INTEGER), status, hard_children FROM outbox WHERE id LIKE '00000000-%' ORDER BY seq";
const CALLS: &str = "
    SELECT subscription_seq, entity, delivery_seq, state, made_seq, made_order_at, made_hash
      FROM external_calls ORDER BY subscription_seq, entity";
const HOLDS: &str = "
    SELECT subscription_seq, reason, since, until, probe_at, probe_no
      FROM holds WHERE subscription_seq > 0 ORDER BY subscription_seq, reason";

/// What the writer tells after a commit.
#[derive(Default)]
struct Listener(Mutex<Told>);

impl AroundCommit for Listener {
    fn complete(&self, tx: &WriteTx<'_>) -> Result<()> {
        settlement::set_aside(tx)
    }

    fn committed(&self, effects: Told) {
        let mut told = self.0.lock().unwrap();
        told.rang.extend(effects.rang);
        told.settled.extend(effects.settled);
    }

    fn full(&self) {}

    fn fatal(&self, error: &Error) {
        panic!("{error}");
    }
}

/// The file and its writer.
pub(crate) struct Real {
    store: Store,
    conn: Connection,
    listener: Arc<Listener>,
    writer: Option<(Sender<()>, JoinHandle<()>)>,
    _directory: tempfile::TempDir,
}

impl Drop for Real {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.writer.take() {
            drop(stop);
            drop(thread.join());
        }
    }
}

impl Real {
    pub(crate) fn new(subs: &[Sub]) -> Self {
        // In memory where that is possible: each transaction is synced.
        let memory = Path::new("/dev/shm");
        let directory = if memory.is_dir() {
            tempfile::tempdir_in(memory).unwrap()
        } else {
            tempfile::tempdir().unwrap()
        };
        let path = directory.path().join("oncebox.db");
        drop(Store::open(&path, Faults::none()).unwrap());
        let conn = Connection::open(&path).unwrap();
        for sub in subs {
            let ordering = if sub.has_lanes { "key" } else { "none" };
            let terms = serde_json::to_string(&terms(sub)).unwrap();
            conn.execute(
                "INSERT INTO subscriptions
                        (seq, id, name, event_types, url, ordering, order_terms, created_at, updated_at)
                 VALUES (?1, 's' || ?1, 's' || ?1, '[\"all\",\"s' || ?1 || '\"]', 'https://example.com/', ?2, ?3, 0, 0)",
                (sub.seq, ordering, terms),
            )
            .unwrap();
        }
        let (store, writer) = Store::open(&path, Faults::none()).unwrap();
        let listener = Arc::new(Listener::default());
        let observer: Arc<dyn AroundCommit> = Arc::<Listener>::clone(&listener);
        let (stop, stopped) = bounded(0);
        let thread = thread::spawn(move || writer.run(&stopped, &observer));
        Self { store, conn, listener, writer: Some((stop, thread)), _directory: directory }
    }

    fn write<T: Send + 'static>(
        &self,
        run: impl FnMut(&WriteTx<'_>) -> Result<T> + Send + 'static,
    ) -> T {
        self.store.writer().write(Queue::Settle, run).unwrap()
    }

    pub(crate) fn publish(&self, n: usize, spec: &Spec, now: Ms) -> bool {
        let id = |n: usize| format!("00000000-0000-7000-8000-{n:012}");
        let event = NewEvent {
            id: id(n),
            tenant: "default".to_owned(),
            source_system: "sim".to_owned(),
            idempotency_key: n.to_string(),
            event_type: match spec.subs.as_slice() {
                [sub] => format!("s{sub}"),
                _ => "all".to_owned(),
            },
            aggregate_id: spec.entity.map(|entity| entity.to_string()),
            payload: spec.content.to_string().into_bytes(),
            content_type: "application/json".to_owned(),
            occurred_at: spec.earlier.map(|earlier| Timestamp::from_ms(now - earlier)),
            received_at: Timestamp::from_ms(now),
            not_before: spec.not_before.map(|wait| Timestamp::from_ms(now + wait)),
            ordering_key: spec.key.map(|key| key.to_string()),
            order: EventOrder {
                exclude_failed: spec.exclude_failed,
                funnel_value: spec.funnel.map(|value| value.to_string()),
                entity_type: Some("thing".to_owned()),
                parent_id: spec.parent.map(|(parent, _)| id(parent)),
                parent_binding: spec.parent.map(|(_, binding)| binding),
                ..EventOrder::default()
            },
            max_attempts: spec.max_attempts,
            ..NewEvent::default()
        };
        let inserted = self.write(move |tx| outbox::insert(tx, &event, Timestamp::from_ms(now)));
        !matches!(inserted, Inserted::NoParent(_))
    }

    /// `before` is the delivery as it was.
    pub(crate) fn settle(&self, report: &Report, before: &Row) {
        let at = Timestamp::from_ms(report.at);
        let is_success = report.class.is_success();
        let attempt = Attempt {
            n: before.attempts + 1,
            started_at: at,
            finished_at: at,
            url: "https://example.com/".to_owned(),
            class: report.class,
            counted: false,
            http_status: report.status,
            latency_ms: 1,
            excerpt: None,
            failed_reason: (!is_success).then(|| "it failed".to_owned()),
            key_id: None,
            span: None,
        };
        let code = if report.call == Some(true) { "timeout" } else { "500" };
        let report = AttemptReport {
            delivery: DeliverySeq(report.delivery),
            subscription: SubscriptionSeq(report.sub),
            run_no: report.run_no,
            accepted_at: at,
            attempt: Arc::new(attempt),
            code: code.to_owned(),
            retry_after: report.retry_after,
            rules: report.rules.clone(),
            jitter: report.jitter,
            is_probe: report.is_probe,
            is_offline: report.is_offline,
            order: AttemptOrder { is_call: report.call.is_some(), ..AttemptOrder::default() },
            now: Timestamp::from_ms(report.now),
        };
        self.write(move |tx| settlement::settle(tx, &report).map(drop));
    }

    pub(crate) fn begin_call(&self, call: &NewCall, now: Ms) -> bool {
        let (call, now) = (call.clone(), Timestamp::from_ms(now));
        self.write(move |tx| superseded::begin_call(tx, &call, (now, now)))
    }

    /// What becomes of a delivery that waits for its confirmation; `over`: only if its time is over then.
    pub(crate) fn end_wait(
        &self,
        (delivery, outcome): (i64, &LeaseOutcome),
        sub: &Sub,
        over: Option<Ms>,
        (seed, now, at): (u32, Ms, Ms),
    ) {
        let outcome = outcome.clone();
        let target = Consumer {
            subscription: SubscriptionSeq(sub.seq),
            url: String::new(),
            schedule: sub.rules.schedule.clone(),
            park_after: sub.rules.park_after,
            latest_only: false,
            now: Timestamp::from_ms(now),
            wall: Timestamp::from_ms(at),
        };
        let is_over = move |until: Option<Timestamp>| {
            over.is_none_or(|over| until.is_some_and(|until| until.ms() <= over))
        };
        self.write(move |tx| {
            let held = leases::any(tx, DeliverySeq(delivery))?;
            let Some(held) = held.filter(|held| is_over(held.confirm_until)) else {
                return Ok(());
            };
            let draw = JitterDraw::new(seed);
            confirmations::settle(tx, &held, &target, &outcome, &draw).map(drop)
        });
    }

    /// What a person does. What the state does not allow changes nothing.
    pub(crate) fn act(&self, deed: Deed, (now, at): (Ms, Ms)) {
        let (now, at) = (Timestamp::from_ms(now), Timestamp::from_ms(at));
        let done = self.store.writer().write(Queue::Settle, move |tx: &WriteTx<'_>| {
            let sub = |seq| subscriptions::by_seq(tx, SubscriptionSeq(seq));
            let seq = DeliverySeq;
            match deed {
                Deed::Pause(n) => settlement::pause(tx, &sub(n)?.unwrap(), "paused", now),
                Deed::Resume(n) => settlement::resume(tx, &sub(n)?.unwrap(), at),
                Deed::Retry(n) => settlement::retry(tx, seq(n), now),
                Deed::Cancel(n) => settlement::cancel(tx, seq(n), "a person", now),
                Deed::Park(n) => settlement::park(tx, seq(n), "a person", now),
                Deed::Skip(n) => settlement::skip(tx, seq(n), "a person", now),
                Deed::Unpark(n) => settlement::release(tx, seq(n), now),
                Deed::MoveToEnd(n) => settlement::move_to_end(tx, seq(n), now),
                Deed::Limit(..)
                | Deed::ResumeIfNeeded(_)
                | Deed::Replay(_)
                | Deed::EndDoubt
                | Deed::Nothing => Ok(()),
            }
        });
        assert!(matches!(done, Ok(()) | Err(Error::Changed(_))), "{deed:?}: {done:?}");
    }

    pub(crate) fn line(&self, is_down: bool, (now, at): (Ms, Ms)) {
        let (since, at) = (Timestamp::from_ms(now), Timestamp::from_ms(at));
        let reason = HoldReason::Offline;
        let (until, probe_at, probe_no, detail) = (None, None, 0, String::new());
        let hold = Hold { reason, since, until, probe_at, probe_no, detail };
        self.write(move |tx| {
            if is_down {
                return holds::put(tx, holds::SITE, &hold);
            }
            holds::release(tx, holds::SITE, reason)?;
            subscriptions::restart_failing(tx, holds::SITE, at)
        });
    }

    pub(crate) fn restart_failing(&self, at: Ms) {
        let at = Timestamp::from_ms(at);
        self.write(move |tx| subscriptions::restart_failing(tx, holds::SITE, at));
    }

    pub(crate) fn end_over(&self, now: Ms, at: Ms) {
        let (now, at) = (Timestamp::from_ms(now), Timestamp::from_ms(at));
        self.write(move |tx| settlement::end_over(tx, (now, at), MANY));
    }

    pub(crate) fn clamp(&self, sub: i64, now: Ms) {
        let now = Timestamp::from_ms(now);
        self.write(move |tx| {
            deliveries::clamp_due_times(tx, SubscriptionSeq(sub), now, MANY)?;
            confirmations::clamp(tx, now, MANY)?;
            holds::clamp(tx, now)
        });
    }

    /// What the dispatcher would get (`deliveries::due`), and when it would look again.
    pub(crate) fn due(
        &self,
        sub: i64,
        (now, limit): (Ms, u32),
        taken: &[i64],
    ) -> (Vec<i64>, Option<Ms>) {
        let (sub, now) = (SubscriptionSeq(sub), Timestamp::from_ms(now));
        let read = self.store.read(|tx| {
            let (due, _) = deliveries::due(tx, sub, (now, limit), taken, None)?;
            Ok((due, deliveries::next_due(tx, sub, now)?))
        });
        let (due, next) = read.unwrap();
        (due.into_iter().map(|(delivery, _)| delivery.0).collect(), next.map(Timestamp::ms))
    }

    /// What is not the same in both files, and what the writers told.
    pub(crate) fn differs(&self, file: &File, effects: &Effects) -> Option<String> {
        let told = std::mem::take(&mut *self.listener.0.lock().unwrap());
        let rang = |rang: &[SubscriptionSeq]| {
            let mut rang: Vec<i64> = rang.iter().map(|sub| sub.0).collect();
            rang.sort_unstable();
            rang.dedup();
            rang
        };
        different("rang", &rang(&told.rang), &rang(&effects.rang))
            .or_else(|| different("settled", &told.settled, &effects.settled))
            .or_else(|| different("deliveries", &self.lines(DELIVERIES), &deliveries_of(file)))
            .or_else(|| different("events", &self.lines(EVENTS), &events_of(file)))
            .or_else(|| different("calls", &self.lines(CALLS), &calls_of(file)))
            .or_else(|| different("holds", &self.lines(HOLDS), &holds_of(file)))
    }

    fn lines(&self, sql: &str) -> Vec<String> {
        let mut statement = self.conn.prepare_cached(sql).unwrap();
        let columns = statement.column_count();
        let mut rows = statement.query([]).unwrap();
        let mut lines = Vec::new();
        while let Some(row) = rows.next().unwrap() {
            let text = |n| match row.get(n).unwrap() {
                Value::Null => "-".to_owned(),
                Value::Integer(number) => number.to_string(),
                Value::Text(text) => text,
                other => format!("{other:?}"),
            };
            lines.push((0..columns).map(text).collect::<Vec<_>>().join(" "));
        }
        lines
    }
}

/// The first that is different.
fn different<T: Debug + PartialEq>(what: &str, real: &[T], simulated: &[T]) -> Option<String> {
    let most = real.len().max(simulated.len());
    let n = (0..most).find(|n| real.get(*n) != simulated.get(*n))?;
    let (real, simulated) = (real.get(n), simulated.get(n));
    Some(format!("{what}: the real file has\n{real:?}, the simulated one\n{simulated:?}"))
}

fn or_none<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

fn deliveries_of(file: &File) -> Vec<String> {
    let line = |row: &Row| {
        [
            row.seq.to_string(),
            row.state.to_string(),
            or_none(row.due_at),
            or_none(row.lane),
            row.order_at.to_string(),
            or_none(row.funnel),
            or_none(row.entity),
            row.run_no.to_string(),
            row.attempts.to_string(),
            row.counted.to_string(),
            if row.is_open() { row.delay } else { 0 }.to_string(),
            or_none(row.confirm_until),
            i32::from(row.head && (row.is_standing() || row.is_blocking())).to_string(),
        ]
        .join(" ")
    };
    file.rows.iter().map(line).collect()
}

fn events_of(file: &File) -> Vec<String> {
    let mut lines: Vec<_> = file.events.iter().collect();
    // In the order of their rows.
    lines.sort_by_key(|(_, event)| event.deliveries.first().copied());
    let line =
        |(n, event): &(&usize, &EventRow)| format!("{n} {} {}", event.status, event.hard_children);
    lines.iter().map(line).collect()
}

fn calls_of(file: &File) -> Vec<String> {
    let line = |((sub, entity), call): (&(i64, i64), &CallRow)| {
        let state: CallState = call.state;
        let made = call.made.as_ref();
        let hash = made.and_then(|made| made.body_hash.clone());
        [
            sub.to_string(),
            entity.to_string(),
            call.delivery.to_string(),
            state.as_str().to_owned(),
            or_none(made.map(|made| made.delivery.0)),
            or_none(made.map(|made| made.order_at.ms())),
            or_none(hash.map(|hash| format!("{:?}", Value::Blob(hash)))),
        ]
        .join(" ")
    };
    file.calls.iter().map(line).collect()
}

fn holds_of(file: &File) -> Vec<String> {
    let mut lines = Vec::new();
    for sub in file.subs.values() {
        let mut holds = sub.holds.clone();
        holds.sort_by_key(|hold| hold.reason.as_str());
        lines.extend(holds.iter().map(|hold| {
            [
                sub.seq.to_string(),
                hold.reason.as_str().to_owned(),
                hold.since.ms().to_string(),
                or_none(hold.until.map(Timestamp::ms)),
                or_none(hold.probe_at.map(Timestamp::ms)),
                hold.probe_no.to_string(),
            ]
            .join(" ")
        }));
    }
    lines
}
