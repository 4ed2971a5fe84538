//! Rows of plain SQL on a real file: they are routed as they were examined before the transaction, or left.

use std::cell::Cell;

use oncebox::base::clock::Timestamp;
use oncebox::base::faults::Faults;
use oncebox::model::event::NewEvent;
use oncebox::store::Store;
use oncebox::store::examined_rows::ExaminedRows;
use oncebox::store::outbox_relay::{self, MAX_ROWS, Relayed, Terms};
use oncebox::store::writer::WriterLoop;
use rusqlite::Connection;

const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
const MAX_PAYLOAD: u64 = 1 << 20;
const TERMS: Terms = Terms { payload_bytes_most: MAX_PAYLOAD, wall: NOW, now: NOW };

struct World {
    store: Store,
    writer: WriterLoop,
    erp: Connection,
    uuids: Cell<u32>,
    _directory: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("oncebox.db");
        let (store, writer) = Store::open(&path, Faults::none()).unwrap();
        let erp = Connection::open(&path).unwrap();
        Self { store, writer, erp, uuids: Cell::new(0), _directory: directory }
    }

    /// What another program does in a transaction of its own.
    fn erp(&self, sql: &str) {
        self.erp.execute_batch(sql).unwrap();
    }

    fn examine(&self, misfit: impl Fn(&NewEvent) -> Option<String>) -> ExaminedRows {
        let read = self.store.look_up(|tx| ExaminedRows::batch(tx, 0, MAX_ROWS, MAX_PAYLOAD));
        let mut examined = read.unwrap();
        examined.check_types(|event| Ok(misfit(event))).unwrap();
        examined
    }

    fn relay(&mut self, examined: &ExaminedRows) -> Relayed {
        let uuids = &self.uuids;
        let fresh = || {
            uuids.set(uuids.get() + 1);
            format!("01916f3a-5c1e-7000-8000-{:012x}", uuids.get())
        };
        let relayed =
            self.writer.direct(|tx| outbox_relay::relay(tx, examined, 0, MAX_ROWS, TERMS, &fresh));
        relayed.unwrap()
    }

    /// The rows as type, state and error code.
    fn rows(&self) -> Vec<String> {
        let sql = "SELECT event_type || ' ' || iif(routed_at IS NULL, 'waits', status) || coalesce(' ' || error_code, '')
                     FROM outbox ORDER BY seq";
        let mut statement = self.erp.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    }
}

#[test]
fn a_row_that_was_changed_after_it_was_examined_is_left_and_so_are_the_rows_after_it() {
    let mut world = World::new();
    world.erp(
        "INSERT INTO outbox (event_type, payload) VALUES ('a', '{}'), ('b', '{\"n\":1}'), ('c', '{}')",
    );
    let examined = world.examine(|_| None);
    world.erp("UPDATE outbox SET payload = '{\"n\":2}' WHERE event_type = 'b'");
    let relayed = world.relay(&examined);
    assert_eq!(world.rows(), ["a skipped", "b waits", "c waits"]);
    assert!(relayed.more && relayed.is_stuck, "{relayed:?}");
    assert_eq!(relayed.last, 1, "the next look begins after the last row that was routed");

    let examined = world.examine(|_| None);
    let relayed = world.relay(&examined);
    assert_eq!(world.rows(), ["a skipped", "b skipped", "c skipped"]);
    assert!(!relayed.more && !relayed.is_stuck, "{relayed:?}");
}

#[test]
fn a_row_that_was_not_examined_is_left() {
    let mut world = World::new();
    world.erp("INSERT INTO outbox (event_type, payload) VALUES ('a', '{}')");
    let examined = world.examine(|_| None);
    world.erp("INSERT INTO outbox (event_type, payload) VALUES ('b', '{}')");
    let relayed = world.relay(&examined);
    assert_eq!(world.rows(), ["a skipped", "b waits"]);
    assert!(relayed.is_stuck);
}

#[test]
fn what_was_found_before_the_transaction_is_what_becomes_of_a_row() {
    let mut world = World::new();
    world.erp(
        "INSERT INTO outbox (event_type, payload) VALUES ('fits', '{}'), ('misfit', '{}'), ('poison', '{')",
    );
    let misfit = |event: &NewEvent| {
        (event.event_type == "misfit").then(|| "\"total\" is missing".to_owned())
    };
    let examined = world.examine(misfit);
    assert_eq!(examined.usable().map(|event| &*event.event_type).collect::<Vec<_>>(), ["fits"]);
    let relayed = world.relay(&examined);
    assert_eq!((relayed.routed, relayed.quarantined), (1, 2));
    assert_eq!(
        world.rows(),
        ["fits skipped", "misfit quarantined misfit", "poison quarantined bad_payload"]
    );
}

#[test]
fn a_batch_ends_where_its_payloads_are_large_together() {
    let mut world = World::new();
    for _ in 0..8 {
        world.erp(
            "INSERT INTO outbox (event_type, payload) VALUES ('a', '\"' || printf('%.*c', 1000000, 'x') || '\"')",
        );
    }
    let examined = world.examine(|_| None);
    assert_eq!(examined.usable().count(), 5, "the batch ends after the row that exceeds 4 MiB");
    let relayed = world.relay(&examined);
    assert!(relayed.more && relayed.last == 5, "{relayed:?}");
    let examined = world.examine(|_| None);
    world.relay(&examined);
    assert_eq!(world.rows(), vec!["a skipped"; 8]);
}
