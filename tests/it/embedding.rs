//! The crate's own doors, for programs that are not the service: an event in an ERP's transaction, an effect
//! that happens once.

use oncebox::guard::{self, Once};
use oncebox::outbox::{self, Event};
use oncebox::rusqlite::{Connection, Error as SqlError, Transaction, TransactionBehavior};

use oncebox::store::Store;

use crate::rig::prelude::*;

fn open(path: &Path) -> Connection {
    let conn = Connection::open(path).unwrap();
    conn.busy_timeout(Duration::from_mins(1)).unwrap();
    conn
}

fn begin(conn: &mut Connection) -> Transaction<'_> {
    conn.transaction_with_behavior(TransactionBehavior::Immediate).unwrap()
}

fn one<T: rusqlite::types::FromSql>(conn: &Connection, sql: &str) -> T {
    conn.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// An ERP whose tables are in `oncebox.db`. Nothing serves that file: none of this needs it.
fn erp() -> (TempDir, Connection) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("oncebox.db");
    drop(Store::open(&path, Faults::none()).unwrap());
    let conn = open(&path);
    conn.run("CREATE TABLE invoices (number INTEGER PRIMARY KEY) STRICT");
    (dir, conn)
}

fn invoice(number: u32) -> Event {
    Event::new("invoice.created")
        .key(format!("invoice.created:{number}"))
        .aggregate("invoice", number.to_string())
        .payload(format!(r#"{{"number":{number}}}"#))
}

#[test]
fn an_appended_event_is_there_when_and_only_when_the_invoice_is() {
    let (_dir, mut erp) = erp();
    for (number, commits) in [(1, true), (2, false), (3, true)] {
        let tx = begin(&mut erp);
        tx.execute("INSERT INTO invoices VALUES (?1)", [number]).unwrap();
        outbox::append(&tx, invoice(number)).unwrap();
        if commits { tx.commit().unwrap() } else { tx.rollback().unwrap() }
    }
    let of = |sql| one::<String>(&erp, sql);
    assert_eq!(of("SELECT group_concat(number) FROM invoices"), "1,3");
    assert_eq!(of("SELECT group_concat(aggregate_id) FROM outbox"), "1,3");
    // For the service to find.
    assert_eq!(
        of("SELECT group_concat(status = 'pending' AND routed_at IS NULL) FROM outbox"),
        "1,1"
    );
}

#[test]
fn an_event_appended_again_is_answered_as_before_and_says_when_it_differs() {
    let (_dir, mut erp) = erp();
    let mut append = |event| {
        let tx = begin(&mut erp);
        let appended = outbox::append(&tx, event).unwrap();
        tx.commit().unwrap();
        appended
    };
    let first = append(invoice(1));
    let again = append(invoice(1));
    let other = append(invoice(1).payload("{}"));
    assert!(!first.already_there && again.already_there && other.already_there);
    assert!(!first.differs && !again.differs && other.differs);
    assert_eq!((&first.id, &first.webhook_id), (&again.id, &again.webhook_id));

    let large = format!("\"{}\"", "x".repeat(100_000));
    let (first, again) = (append(invoice(2).payload(&*large)), append(invoice(2).payload(large)));
    assert!(!first.already_there && again.already_there && !again.differs);
    assert_eq!(one::<i64>(&erp, "SELECT count(*) FROM payloads"), 1);
    let kept = "SELECT group_concat(iif(payload IS NULL, 'apart', payload)) FROM outbox";
    assert_eq!(one::<String>(&erp, kept), r#"{"number":1},apart"#);
}

#[test]
fn an_event_that_cannot_be_used_is_refused_with_what_to_do() {
    let (_dir, mut erp) = erp();
    let tx = begin(&mut erp);
    for (event, says) in [
        (Event::new(""), "event_type has 0 characters; it must have 1 to 128"),
        (invoice(1).key("Rechnung\u{a0}1"), "idempotency_key contains '\\u{a0}'"),
        (invoice(1).payload("4711,99.00"), "payload is not JSON"),
        (invoice(1).tenant("Not A Name"), "tenant is wrong: \"Not A Name\" is not a name"),
        (invoice(1).source_system("in:stripe"), "reserved for providers"),
        (invoice(1).traceparent("00-zz"), "traceparent is not a W3C traceparent"),
        (invoice(1).max_attempts(0), "max_attempts is 0; it must be 1 to 1000"),
    ] {
        shows(&outbox::append(&tx, event).unwrap_err().to_string(), &[says]);
    }
    outbox::append(&tx, invoice(1).payload("4711,99.00").content_type("text/csv")).unwrap();
    tx.commit().unwrap();
    assert_eq!(one::<i64>(&erp, "SELECT count(*) FROM outbox"), 1);

    let mut elsewhere = Connection::open_in_memory().unwrap();
    let tx = begin(&mut elsewhere);
    let refused = outbox::append(&tx, invoice(1)).unwrap_err().to_string();
    shows(&refused, &["this file has no outbox", "oncebox.db"]);
}

#[test]
fn an_event_appended_to_an_erps_own_file_is_known_by_the_same_webhook_id() {
    let rig = Rig::new();
    let mut own = open(&rig.home().join("erp.db"));
    own.run("PRAGMA journal_mode = WAL");
    own.run(outbox::TABLE);
    let mut append = |event: Event| {
        let tx = begin(&mut own);
        let appended = outbox::append(&tx, event.source_system("erp")).unwrap();
        tx.commit().unwrap();
        appended
    };
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let first =
        append(invoice(1).traceparent(trace).header("X-Region", "north").occurred_at(START));
    let (again, other) = (append(invoice(1)), append(invoice(1).payload("{}")));
    assert!(again.already_there && !again.differs && other.differs && other.id == first.id);

    rig.source("erp", "sqlite", &json!({ "path": rig.home().join("erp.db") }));
    until("it is copied", || rig.one("SELECT count(*) FROM outbox") == "1");
    let listed = rig.get("/v1/events");
    let event = &listed["items"][0];
    assert_eq!(event["webhook_id"], first.webhook_id);
    assert_eq!(event["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(event["occurred_at"], "2026-01-31T12:00:00.000Z");
    assert_eq!(event["headers"], json!({ "X-Region": "north", "traceparent": trace }));
    rig.settle();
}

/// The fields of order are the same on every way in.
#[test]
fn all_fields_of_order_arrive_from_both_kinds_of_files() {
    let event = |key: &str| {
        invoice(1)
            .key(key)
            .guaranteed_order()
            .exclude_failed()
            .funnel_point("sap")
            .funnel_value("7")
            .entity_type("document")
    };
    let fields = "SELECT exclude_failed || '/' || funnel_point || '/' || funnel_value || '/' || entity_type FROM outbox";
    let (_dir, mut erp) = erp();
    let tx = begin(&mut erp);
    outbox::append(&tx, event("1")).unwrap();
    tx.commit().unwrap();
    assert_eq!(one::<String>(&erp, fields), "1/sap/7/document");

    let rig = Rig::new();
    let mut own = open(&rig.home().join("erp.db"));
    own.run("PRAGMA journal_mode = WAL");
    own.run(outbox::TABLE);
    let tx = begin(&mut own);
    outbox::append(&tx, event("1").source_system("erp")).unwrap();
    tx.commit().unwrap();
    rig.source("erp", "sqlite", &json!({ "path": rig.home().join("erp.db") }));
    until("it is copied", || rig.one("SELECT count(*) FROM outbox") == "1");
    assert_eq!(rig.one(fields), "1/sap/7/document");

    // A file that was made before it had these columns takes all other events.
    let mut older = Connection::open_in_memory().unwrap();
    let columns = ["exclude_failed  INTEGER,", "funnel_point    TEXT,", "entity_type     TEXT,"];
    let table = columns.iter().fold(outbox::TABLE.to_owned(), |table, column| {
        assert!(table.contains(column), "{column}");
        table.replace(column, "")
    });
    older.run(&table);
    let tx = begin(&mut older);
    outbox::append(&tx, invoice(1).guaranteed_order().funnel_value("7")).unwrap();
    let refused = outbox::append(&tx, event("2")).unwrap_err().to_string();
    shows(&refused, &["no column named exclude_failed"]);
}

fn ship(tx: &Transaction<'_>, event: &str) -> Result<(), SqlError> {
    tx.execute("INSERT INTO shipments VALUES (?1)", [event]).map(drop)
}

fn consumer() -> Connection {
    let conn = Connection::open_in_memory().unwrap();
    conn.run("CREATE TABLE shipments (event TEXT NOT NULL) STRICT");
    conn
}

#[test]
fn a_guarded_effect_happens_once_for_each_consumer_group() {
    let mut conn = consumer();
    for (group, expected) in
        [("a", Once::Done(())), ("a", Once::Before), ("b", Once::Done(())), ("b", Once::Before)]
    {
        let tx = begin(&mut conn);
        assert_eq!(guard::once(&tx, group, "evt_1", |tx| ship(tx, "evt_1")), Ok(expected));
        tx.commit().unwrap();
    }
    assert_eq!(one::<i64>(&conn, "SELECT count(*) FROM shipments"), 2);
}

#[test]
fn an_effect_that_fails_takes_its_claim_with_it_even_when_the_caller_commits() {
    let mut conn = consumer();
    let tx = begin(&mut conn);
    let failed = guard::once(&tx, "a", "evt_1", |tx| {
        ship(tx, "evt_1")?;
        tx.execute("INSERT INTO nowhere VALUES (1)", [])
    });
    assert!(failed.unwrap_err().to_string().contains("no such table: nowhere"));
    tx.commit().unwrap();
    assert_eq!(one::<i64>(&conn, "SELECT count(*) FROM shipments"), 0);
    let tx = begin(&mut conn);
    assert_eq!(guard::once(&tx, "a", "evt_1", |tx| ship(tx, "evt_1")), Ok(Once::Done(())));
    tx.commit().unwrap();
    assert_eq!(one::<i64>(&conn, "SELECT count(*) FROM shipments"), 1);
}

#[test]
fn a_guard_works_beside_the_services_own_and_in_a_table_without_a_key() {
    let (_dir, mut beside) = erp();
    beside.run("CREATE TABLE shipments (event TEXT NOT NULL) STRICT");
    let mut keyless = consumer();
    keyless.run("CREATE TABLE processed_events (consumer_group TEXT, event_id TEXT)");
    for conn in [&mut beside, &mut keyless] {
        for expected in [Once::Done(()), Once::Before] {
            let tx = begin(conn);
            assert_eq!(guard::once(&tx, "a", "evt_1", |tx| ship(tx, "evt_1")), Ok(expected));
            tx.commit().unwrap();
        }
    }
}

#[test]
fn a_guard_that_cannot_tell_does_nothing_and_says_why() {
    let mut conn = consumer();
    conn.run("CREATE TABLE processed_events (id TEXT PRIMARY KEY)");
    let tx = begin(&mut conn);
    let refused = |group: &str, event: &str| {
        let refused: Result<Once<()>, guard::Error> =
            guard::once(&tx, group, event, |_| panic!("it is not carried out"));
        refused.unwrap_err().to_string()
    };
    assert!(refused("a", "evt_1").contains("no column named consumer_group"));
    assert!(refused("", "evt_1").contains("consumer group has 0 characters; it must have 1 to 64"));
    assert!(refused("a", &"x".repeat(256)).contains("event id has 256 characters"));
}

#[test]
fn an_older_version_is_not_carried_out_and_nor_is_the_same() {
    let mut conn = consumer();
    let mut done = Vec::new();
    for version in [3, 1, 3, 2, 5, 4, 5] {
        let tx = begin(&mut conn);
        let name = format!("v{version}");
        let once = guard::once_newer(&tx, "a", "article/17", version, |tx| ship(tx, &name));
        done.extend(once.unwrap().done().map(|()| version));
        tx.commit().unwrap();
    }
    assert_eq!(done, [3, 5]);
    assert_eq!(one::<String>(&conn, "SELECT group_concat(event) FROM shipments"), "v3,v5");
}

#[test]
fn two_consumers_at_once_do_it_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("consumer.db");
    let setup = "PRAGMA journal_mode = WAL; CREATE TABLE shipments (event TEXT NOT NULL) STRICT";
    open(&path).run(setup);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut conn = open(&path);
                for n in 0..50 {
                    let event = format!("evt_{n}");
                    let tx = begin(&mut conn);
                    guard::once(&tx, "a", &event, |tx| ship(tx, &event)).unwrap().done();
                    tx.commit().unwrap();
                }
            });
        }
    });
    let conn = open(&path);
    let counted = "SELECT count(*) || '/' || count(DISTINCT event) FROM shipments";
    assert_eq!(one::<String>(&conn, counted), "50/50");
}

#[test]
fn an_event_appended_again_says_when_the_first_is_quarantined() {
    let rig = Rig::new();
    let mut conn = open(&rig.data().join("oncebox.db"));
    let mut append = || {
        let tx = begin(&mut conn);
        let appended = outbox::append(&tx, invoice(1).target("nobody")).unwrap();
        tx.commit().unwrap();
        appended
    };
    assert!(!append().is_quarantined);
    until("it is looked at", || rig.one("SELECT status FROM outbox") == "quarantined");
    let again = append();
    assert!(again.already_there && again.is_quarantined);
}
