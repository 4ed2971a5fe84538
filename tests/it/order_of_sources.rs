//! Order across the ways in: rows of sources, dropped files, plain SQL and HTTP share their lanes.

use crate::rig::prelude::*;

/// A source `erp` over an ERP's own file.
fn erp(rig: &Rig, journal: &str) -> Connection {
    let path = rig.home().join("erp.db");
    let conn = Connection::open(&path).unwrap();
    conn.busy_timeout(secs(5)).unwrap();
    conn.pragma_update(None, "journal_mode", journal).unwrap();
    conn.run(
        "CREATE TABLE outbox (
           id INTEGER PRIMARY KEY AUTOINCREMENT, event_type TEXT NOT NULL, payload TEXT NOT NULL,
           ordering_key TEXT, guaranteed_order INTEGER, occurred_at TEXT)",
    );
    rig.source("erp", "sqlite", &json!({ "path": path }));
    until_read(rig, "erp");
    conn
}

/// A drop folder `files`, each of whose files is one event.
fn folder(rig: &Rig) -> PathBuf {
    let path = rig.home().join("drop");
    fs::create_dir(&path).unwrap();
    let settings = json!({ "path": path, "defaults": { "event_type": "a", "ordering_key": "a" } });
    rig.source("files", "drop", &settings);
    until_read(rig, "files");
    path
}

fn until_read(rig: &Rig, source: &str) {
    until("it is read", || rig.get(&format!("/v1/sources/{source}"))["lag"] == 0);
}

/// What was sent, in the order it came.
fn numbers(receiver: &Receiver) -> Vec<u32> {
    let number = |body: &[u8]| String::from_utf8_lossy(body).parse().unwrap();
    receiver.seen().iter().map(|request| number(&request.body)).collect()
}

fn publish(rig: &Rig, n: u32, more: &Value) {
    let event = merged(json!({ "event_type": "a", "ordering_key": "a", "payload": n }), more);
    rig.publish(&event);
}

#[test]
fn what_is_published_comes_after_rows_and_files_of_sources_that_were_there_before_it() {
    let (rig, receiver) =
        Rig::subscribed_with("logistics", Receiver::new(), &json!({ "ordering": "key" }));
    let (erp, folder) = (erp(&rig, "WAL"), folder(&rig));
    for n in (0..120).step_by(3) {
        let insert = "INSERT INTO outbox (event_type, ordering_key, payload) VALUES ('a', 'a', ?1)";
        erp.execute(insert, [n.to_string()]).unwrap();
        publish(&rig, n + 1, &json!({}));
        let begun = folder.join(format!("{n}.json.tmp"));
        fs::write(&begun, json!({ "payload": n + 2 }).to_string()).unwrap();
        fs::rename(&begun, folder.join(format!("{n}.json"))).unwrap();
        // Rows of two sources have no order without a time: the file is taken first.
        until("the file is taken", || !folder.join(format!("{n}.json")).exists());
    }
    until("all are delivered", || receiver.count() == 120);
    assert_eq!(numbers(&receiver), (0..120).collect::<Vec<u32>>());
    for n in (120..180).step_by(2) {
        let begun = folder.join(format!("{n}.json.tmp"));
        fs::write(&begun, json!({ "payload": n }).to_string()).unwrap();
        fs::rename(&begun, folder.join(format!("{n}.json"))).unwrap();
        publish(&rig, n + 1, &json!({}));
    }
    until("all are delivered", || receiver.count() == 180);
    assert_eq!(numbers(&receiver), (0..180).collect::<Vec<u32>>());
    rig.settle();
}

#[test]
fn an_event_that_asks_for_its_lane_comes_after_rows_that_ask_for_theirs() {
    let (rig, receiver) = Rig::subscribed("logistics");
    let erp = erp(&rig, "WAL");
    let own = rig.writable();
    let insert = "INSERT INTO outbox (event_type, ordering_key, guaranteed_order, payload)
                  VALUES ('a', 'a', 1, ?1)";
    for n in (0..90).step_by(3) {
        erp.execute(insert, [n.to_string()]).unwrap();
        publish(&rig, n + 1, &json!({ "guaranteed_order": true }));
        own.execute(insert, [n + 2]).unwrap();
        publish(&rig, 1000 + n, &json!({ "ordering_key": "b", "guaranteed_order": true }));
    }
    until("all are delivered", || receiver.count() == 120);
    let of_a: Vec<u32> = numbers(&receiver).into_iter().filter(|n| *n < 1000).collect();
    assert_eq!(of_a, (0..90).collect::<Vec<u32>>());
    rig.settle();
}

#[test]
fn a_row_with_its_own_time_goes_before_later_events_that_still_wait() {
    let rig = Rig::new();
    let (tell, told) = mpsc::channel();
    let receiver = Receiver::new();
    receiver.decide(move |_| Reply::status(told.recv().unwrap_or(200)));
    rig.subscribe_with("logistics", &receiver, &json!({ "ordering": "key" }));
    let erp = erp(&rig, "WAL");
    let time = |n: u32| format!("2026-01-31T11:00:{n:02}Z");
    publish(&rig, 1, &json!({ "occurred_at": time(1) }));
    until("the first is in flight", || receiver.count() == 1);
    for n in [8, 5, 3] {
        publish(&rig, n, &json!({ "occurred_at": time(n) }));
    }
    let insert = "INSERT INTO outbox (event_type, ordering_key, payload, occurred_at)
                  VALUES ('a', 'a', ?1, ?2)";
    for n in [7, 2, 6, 4] {
        erp.execute(insert, [n.to_string(), time(n)]).unwrap();
    }
    until("all are stored", || rig.one("SELECT count(*) FROM deliveries") == "8");
    for _ in 1..=8 {
        tell.send(200).unwrap();
    }
    until("all are delivered", || receiver.count() == 8);
    assert_eq!(numbers(&receiver), [1, 2, 3, 4, 5, 6, 7, 8]);
    let late = "SELECT count(*) FROM deliveries WHERE late = 1";
    assert_eq!(rig.one(late), "6", "all but the first two came after a later one");
    rig.settle();
}

#[test]
fn a_source_that_cannot_be_read_stops_no_publish() {
    let (rig, receiver) =
        Rig::subscribed_with("logistics", Receiver::new(), &json!({ "ordering": "key" }));
    let erp = erp(&rig, "DELETE");
    erp.run("BEGIN EXCLUSIVE");
    erp.run("INSERT INTO outbox (event_type, payload) VALUES ('a', '0')");
    for n in 1..=100 {
        publish(&rig, n, &json!({}));
    }
    erp.run("COMMIT");
    rig.sent(&receiver, 101);
}
