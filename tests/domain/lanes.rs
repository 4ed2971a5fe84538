//! Lanes of a real file under random operations: one head at most, the first that is not blocked; nobody starves.

use std::sync::Arc;

use oncebox::base::clock::Timestamp;
use oncebox::base::faults::Faults;
use oncebox::base::id::{DeliverySeq, SubscriptionSeq, SystemDraw, uuid7};
use oncebox::model::attempt::{Attempt, AttemptReport};
use oncebox::model::event::EventOrder;
use oncebox::model::event::NewEvent;
use oncebox::model::external_call::{NewCall, SentTo};
use oncebox::model::lane::CallKey;
use oncebox::model::outcome::AttemptClass;
use oncebox::model::retry_rules::RetryRules;
use oncebox::store::writer::WriterLoop;
use oncebox::store::{Store, deliveries, outbox, settlement, subscriptions, superseded};
use proptest::prelude::*;
use rusqlite::Connection;

use crate::rig::process::number;

const START: Timestamp = Timestamp::from_secs(1_800_000_000);
/// Three subscriptions: two share their lanes. One blocks, one parks after two failures, one skips.
const SUBSCRIPTIONS: &str = r#"
    INSERT INTO subscriptions (id, name, event_types, url, ordering, order_terms, created_at, updated_at)
    VALUES ('1', 'one', '["*"]', 'https://example.com/', 'key', '{"group":"sap"}', 0, 0),
           ('2', 'two', '["b"]', 'https://example.com/', 'key',
            '{"group":"sap","head_of_line":"park","park_after":2}', 0, 0),
           ('3', 'three', '["*"]', 'https://example.com/', 'none', '{"head_of_line":"skip"}', 0, 0)"#;
/// Lanes whose head is not the first that may go.
const WRONG: &str = "
    WITH waiting AS (
         SELECT d.*, coalesce(o.exclude_failed, 0) AS passes FROM deliveries AS d
           LEFT JOIN outbox AS o ON o.seq = d.outbox_seq
          WHERE d.lane IS NOT NULL AND d.finished_at IS NULL AND d.state <> 'parked'),
    front AS (
         SELECT w.* FROM waiting AS w WHERE NOT EXISTS (
                SELECT 1 FROM waiting AS e WHERE e.lane = w.lane AND (e.order_at, e.seq) < (w.order_at, w.seq)))
    SELECT f.lane FROM front AS f
     WHERE (SELECT count(*) FROM waiting AS w WHERE w.lane = f.lane AND w.head = 1)
           <> (f.passes OR NOT EXISTS (
               SELECT 1 FROM deliveries AS b WHERE b.lane = f.lane AND b.state = 'dead_letter' AND b.head = 1
                  AND (b.order_at, b.seq) < (f.order_at, f.seq)))
        OR (f.head = 0 AND EXISTS (SELECT 1 FROM waiting AS w WHERE w.lane = f.lane AND w.head = 1))";

#[derive(Clone, Debug)]
enum Operation {
    /// An event: its type, its key, how long ago it happened, and whether it passes dead letters and asks for its lane.
    Publish(bool, u8, Option<u8>, bool, bool),
    /// The first due delivery of a subscription is tried.
    Attempt(i64, u16),
    /// A person acts on a delivery.
    Act(&'static str, i64),
}

fn operation() -> impl Strategy<Value = Operation> {
    let verbs = ["retry", "cancel", "park", "skip", "release", "move"];
    prop_oneof![
        3 => (any::<bool>(), 0_u8..3, prop::option::of(1_u8..60), any::<bool>(), any::<bool>())
            .prop_map(|(b, key, ago, passes, asks)| Operation::Publish(b, key, ago, passes, asks)),
        4 => (1_i64..=3, prop::sample::select(vec![200_u16, 200, 500, 400]))
            .prop_map(|(sub, status)| Operation::Attempt(sub, status)),
        2 => (prop::sample::select(verbs.to_vec()), 1_i64..40)
            .prop_map(|(verb, delivery)| Operation::Act(verb, delivery)),
    ]
}

struct World {
    store: Store,
    writer: WriterLoop,
    conn: Connection,
    now: Timestamp,
    published: usize,
    _directory: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("oncebox.db");
        drop(Store::open(&path, Faults::none()).unwrap());
        let conn = Connection::open(&path).unwrap();
        conn.execute_batch(SUBSCRIPTIONS).unwrap();
        let (store, writer) = Store::open(&path, Faults::none()).unwrap();
        Self { store, writer, conn, now: START, published: 0, _directory: directory }
    }

    fn operate(&mut self, operation: &Operation) {
        self.now = self.now.plus(std::time::Duration::from_mins(10));
        match operation {
            Operation::Publish(b, key, ago, passes, asks) => {
                self.publish(*b, *key, *ago, (*passes, *asks));
            }
            Operation::Attempt(sub, status) => {
                self.attempt(*sub, *status);
            }
            Operation::Act(verb, delivery) => {
                let (delivery, now) = (DeliverySeq(*delivery), self.now);
                // What the state does not allow changes nothing.
                drop(self.writer.direct(|tx| match *verb {
                    "retry" => settlement::retry(tx, delivery, false, now),
                    "cancel" => settlement::cancel(tx, delivery, "a person", now),
                    "park" => settlement::park(tx, delivery, "a person", now),
                    "skip" => settlement::skip(tx, delivery, "a person", now),
                    "release" => settlement::release(tx, delivery, now),
                    _ => settlement::move_to_end(tx, delivery, now),
                }));
            }
        }
        self.check();
    }

    fn check(&self) {
        let mut wrong = self.conn.prepare_cached(WRONG).unwrap();
        let lanes: Vec<i64> =
            wrong.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
        assert_eq!(lanes, [0; 0], "lanes without the right head");
    }

    fn publish(&mut self, b: bool, key: u8, ago: Option<u8>, (passes, asks): (bool, bool)) {
        let id = uuid7(self.now, &SystemDraw::new());
        self.published += 1;
        let event = NewEvent {
            idempotency_key: format!("k{}", self.published),
            id,
            tenant: "default".to_owned(),
            source_system: "api".to_owned(),
            event_type: if b { "b" } else { "a" }.to_owned(),
            payload: b"{}".to_vec(),
            content_type: "application/json".to_owned(),
            ordering_key: Some(key.to_string()),
            occurred_at: ago.map(|m| self.now.minus(std::time::Duration::from_mins(m.into()))),
            received_at: self.now,
            order: EventOrder { guaranteed: asks, exclude_failed: passes, ..EventOrder::default() },
            ..NewEvent::default()
        };
        let now = self.now;
        self.writer.direct(|tx| outbox::insert(tx, &event, now).map(drop)).unwrap();
    }

    /// Whether something was due.
    fn attempt(&mut self, sub: i64, status: u16) -> bool {
        let (seq, now) = (SubscriptionSeq(sub), self.now);
        let read = self.store.read(|tx| deliveries::due(tx, seq, now, 1, &[], None));
        let (due, _) = read.unwrap();
        let Some((delivery, _)) = due.first().copied() else { return false };
        let stored = self.store.read(|tx| deliveries::outgoing(tx, delivery)).unwrap().unwrap();
        let park_after = (sub == 2).then_some(2);
        let attempt = Attempt {
            n: stored.attempt_count + 1,
            started_at: now,
            finished_at: now,
            url: "https://example.com/".to_owned(),
            class: match status {
                200 => AttemptClass::Success,
                500 => AttemptClass::Transient,
                _ => AttemptClass::Validation,
            },
            counted: status != 200,
            http_status: Some(status),
            latency_ms: 1,
            failed_reason: (status != 200).then(|| format!("the target answered {status}")),
            ..Attempt::default()
        };
        let report = AttemptReport {
            code: status.to_string(),
            rules: RetryRules { park_after, breaker_after: 0, ..RetryRules::default() },
            ..AttemptReport::new(delivery, seq, stored.run_no, attempt, now)
        };
        let report = Arc::new(report);
        self.writer.direct(|tx| settlement::settle(tx, &report).map(drop)).unwrap();
        true
    }

    /// Every target is well, and a person retries what blocks: in the end nothing waits but what is parked.
    fn drain(&mut self) {
        for _ in 0..1000 {
            self.now = self.now.plus(std::time::Duration::from_hours(5));
            let tried = (1..=3).filter(|sub| self.attempt(*sub, 200)).count();
            self.check();
            if tried > 0 {
                continue;
            }
            let dead = "SELECT seq FROM deliveries WHERE state = 'dead_letter' AND head = 1 AND lane IS NOT NULL";
            let dead = self.conn.query_row(dead, [], |row| row.get::<_, i64>(0));
            let Ok(dead) = dead else { break };
            let (dead, now) = (DeliverySeq(dead), self.now);
            self.writer.direct(|tx| settlement::retry(tx, dead, false, now)).unwrap();
        }
        let pending = "SELECT count(*) FROM deliveries WHERE state = 'pending'";
        let pending: i64 = self.conn.query_row(pending, [], |row| row.get(0)).unwrap();
        assert_eq!(pending, 0, "nobody starves");
    }
}

fn cases() -> u32 {
    u32::try_from(number("ONCEBOX_CASES", 16)).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn a_lane_has_its_first_delivery_as_head_and_nobody_starves(
        operations in prop::collection::vec(operation(), 1..60)
    ) {
        let mut world = World::new();
        for operation in &operations {
            world.operate(operation);
        }
        world.drain();
    }
}

#[test]
fn an_external_call_is_not_made_once_its_subscription_is_paused() {
    let mut world = World::new();
    world.publish(false, 0, None, (false, false));
    let (seq, now) = (SubscriptionSeq(1), world.now);
    let call = NewCall {
        delivery: DeliverySeq(1),
        subscription: seq,
        run_no: 1,
        kind: CallKey::Entity,
        entity: 1,
        entity_key: "invoice/1".to_owned(),
        body_hash: vec![1],
        sent: SentTo::default(),
    };
    let mut is_made = |is_paused: bool| {
        let found = world.store.read(|tx| subscriptions::by_seq(tx, seq)).unwrap().unwrap();
        let done = world.writer.direct(|tx| {
            if is_paused {
                settlement::pause(tx, &found, "a person", now)?;
            } else {
                settlement::resume(tx, &found, now)?;
            }
            superseded::begin_call(tx, &call, now, now)
        });
        done.unwrap()
    };
    assert_eq!([true, false].map(&mut is_made), [false, true]);
}

#[test]
fn what_keeps_an_older_state_back_asks_for_order_as_lanes_do() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("oncebox.db");
    drop(Store::open(&path, Faults::none()).unwrap());
    let conn = Connection::open(&path).unwrap();
    for (tenant, ordering, terms) in [
        ("keyed", "key", "{}"),
        ("latest", "none", r#"{"latest_only":true}"#),
        ("calls", "none", r#"{"external_calls":"entity"}"#),
        ("none", "none", r#"{"head_of_line":"skip"}"#),
    ] {
        let row = (tenant, ordering, terms);
        let sql = r#"INSERT INTO subscriptions
                (id, tenant, name, event_types, url, ordering, order_terms, created_at, updated_at)
              VALUES (?1, ?1, ?1, '["*"]', 'https://example.com/', ?2, ?3, 0, 0)"#;
        conn.execute(sql, row).unwrap();
    }
    let (store, _writer) = Store::open(&path, Faults::none()).unwrap();
    let has = |tenant| store.read(|tx| subscriptions::has_order(tx, Some(tenant))).unwrap();
    assert_eq!(["keyed", "latest", "calls", "none"].map(has), [true, true, true, false]);
    let live = store.read(subscriptions::live).unwrap();
    for found in &live {
        assert_eq!(found.new.asks_for_order(), has(&found.new.tenant), "{}", found.new.tenant);
    }
}
