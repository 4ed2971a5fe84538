//! Sources: events that an ERP leaves in its own file, copied once each.

use crate::rig::prelude::*;

const TABLE: &str = "CREATE TABLE outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT, event_type TEXT NOT NULL, payload TEXT NOT NULL,
    idempotency_key TEXT, aggregate_type TEXT, aggregate_id TEXT, occurred_at TEXT)";

/// An ERP with a file of its own.
struct Erp {
    path: PathBuf,
    conn: Connection,
}

impl Erp {
    fn new(rig: &Rig) -> Self {
        Self::with(rig, TABLE)
    }

    fn with_columns(rig: &Rig, columns: &str) -> Self {
        let id = "id INTEGER PRIMARY KEY AUTOINCREMENT";
        Self::with(rig, &format!("CREATE TABLE outbox ({id}, {columns})"))
    }

    fn with(rig: &Rig, table: &str) -> Self {
        let path = rig.home().join("erp.db");
        let erp = Self { conn: Connection::open(&path).unwrap(), path };
        erp.run("PRAGMA journal_mode = WAL");
        erp.run(table);
        erp
    }

    fn run(&self, sql: &str) {
        self.conn.run(sql);
    }

    /// Writes `count` facts in one transaction.
    fn write(&self, count: usize) {
        self.run(&format!(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})
             INSERT INTO outbox (event_type, payload, aggregate_id)
             SELECT 'invoice.created', '{{\"n\":' || i || '}}', i FROM n"
        ));
    }

    /// A rig beside an ERP that has so many facts.
    fn with_facts(count: usize) -> (Rig, Self) {
        let rig = Rig::new();
        let erp = Self::new(&rig);
        erp.write(count);
        (rig, erp)
    }

    /// Makes its source and waits until so many facts are stored.
    #[track_caller]
    fn read(&self, rig: &Rig, stored: usize) {
        self.source(rig);
        until_stored(rig, stored);
    }

    /// Writes more, and waits until so many are stored.
    #[track_caller]
    fn more(&self, rig: &Rig, count: usize, stored: usize) {
        self.write(count);
        until_stored(rig, stored);
    }

    fn settings(&self) -> Value {
        json!({ "path": self.path })
    }

    /// A source `erp` over its file.
    fn source(&self, rig: &Rig) {
        add(rig, &self.settings());
    }
}

#[track_caller]
fn add(rig: &Rig, settings: &Value) {
    rig.source("erp", "sqlite", settings);
}

fn stored(rig: &Rig) -> String {
    rig.one("SELECT count(*) FROM outbox")
}

#[track_caller]
fn until_stored(rig: &Rig, count: usize) {
    until(&format!("{count} are stored"), || stored(rig) == count.to_string());
}

/// Waits for what stands in the way of the source `erp`.
#[track_caller]
fn trouble(rig: &Rig, what: &str) -> String {
    let mut last = Value::Null;
    until(what, || {
        last = rig.get("/v1/sources/erp")["last_error"].clone();
        last.as_str().is_some_and(|text| text.contains(what))
    });
    last.as_str().unwrap().to_owned()
}

fn escalations(rig: &Rig) -> Vec<(String, u64)> {
    let listed = rig.get("/v1/escalations");
    let of = |item: &Value| (text(item, "class"), item["count"].as_u64().unwrap());
    let of_site = |(class, _): &(String, u64)| class == "event.quarantined";
    listed["items"].as_array().unwrap().iter().map(of).filter(|found| !of_site(found)).collect()
}

#[test]
fn rows_of_an_erps_own_file_are_delivered_once_each() {
    let (rig, receiver) = Rig::subscribed("logistics");
    let erp = Erp::new(&rig);
    erp.run(
        "INSERT INTO outbox (event_type, payload, idempotency_key, aggregate_type, aggregate_id, occurred_at)
         VALUES ('invoice.created', '{\"total\":\"99.00\"}', 'RE-1', 'invoice', '1', '2026-01-31 11:00:00')",
    );
    erp.source(&rig);
    until("it is delivered", || receiver.count() == 1);
    erp.run(
        "INSERT INTO outbox (event_type, payload) VALUES ('invoice.paid', '{ \"total\" : 1 }')",
    );
    until("the next is delivered", || receiver.count() == 2);
    let seen = receiver.seen();
    assert_eq!(seen[0].field("x-idempotency-key"), Some("RE-1"));
    assert_eq!(seen[1].body, b"{ \"total\" : 1 }");
    let listed = rig.get("/v1/events");
    let first = &listed["items"][1];
    has(
        first,
        &json!({
            "source_system": "erp", "occurred_at": "2026-01-31T11:00:00.000Z",
            "aggregate_type": "invoice", "aggregate_id": "1",
        }),
    );
    has(&rig.get("/v1/sources/erp"), &json!({ "cursor": 2, "event_count": 2, "last_error": null }));
    rig.settle();
}

#[test]
fn thousands_of_rows_are_copied_over_restarts_and_none_twice() {
    let (mut rig, erp) = Erp::with_facts(3000);
    erp.source(&rig);
    rig.stop();
    erp.write(1500);
    rig.start_again();
    until_stored(&rig, 4500);
    assert_eq!(rig.one("SELECT count(DISTINCT idempotency_key) FROM outbox"), "4500");
    assert_eq!(rig.get("/v1/sources/erp")["cursor"], 4500);
    until("nothing is behind", || rig.get("/v1/sources/erp")["lag"] == 0);
    // Nothing was written to the ERP's file.
    assert_eq!(
        erp.conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)),
        Ok("ok".to_owned())
    );
}

#[test]
fn an_unusable_row_is_quarantined_and_the_next_rows_are_copied() {
    let rig = Rig::new();
    let erp = Erp::with_columns(&rig, "event_type, payload");
    erp.run(
        "INSERT INTO outbox (event_type, payload) VALUES
         ('a', '{'), (NULL, '{}'), ('b', CAST(x'ff' AS TEXT)), ('b', zeroblob(2000000)), ('c', '{}')",
    );
    erp.read(&rig, 5);
    assert_eq!(rig.get("/v1/sources/erp")["cursor"], 5);
    let listed = rig.get("/v1/events?status=quarantined");
    let why: Vec<&str> = listed["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["last_error"].as_str().unwrap())
        .collect();
    assert_eq!(why.len(), 4);
    assert!(why[3].starts_with("row 1: payload is not JSON"), "{why:?}");
    assert!(why[2].starts_with("row 2: event_type is missing"), "{why:?}");
    assert!(why[0].contains("2000000 bytes; at most 1048576"), "{why:?}");
}

#[test]
fn a_row_refused_by_our_database_is_quarantined_alone() {
    let (rig, receiver) = Rig::subscribed("logistics");
    // An ERP may have triggers of its own in our file, too.
    let file = rig.writable();
    file.run(
        "CREATE TRIGGER refuses_the_second BEFORE INSERT ON deliveries
           WHEN (SELECT aggregate_id FROM outbox WHERE seq = NEW.outbox_seq) = '2'
           BEGIN SELECT RAISE(ABORT, 'two is one too many'); END",
    );
    let erp = Erp::new(&rig);
    erp.write(4);
    erp.source(&rig);
    rig.sent(&receiver, 3);
    let found = file::lines(
        &rig.file(),
        "SELECT aggregate_id, status, coalesce(last_error, '') FROM outbox ORDER BY seq",
    );
    let refused = "2 quarantined the database refuses it: two is one too many";
    assert_eq!(found, ["1 completed ", refused, "3 completed ", "4 completed "]);
    file.run("DROP TRIGGER refuses_the_second");
}

#[test]
fn columns_and_defaults_are_named_in_the_settings() {
    let rig = Rig::new();
    let erp = Erp::with(
        &rig,
        "CREATE TABLE \"odd \"\"name\" (no INTEGER PRIMARY KEY AUTOINCREMENT, body BLOB, \"the key\" TEXT)",
    );
    erp.run("INSERT INTO \"odd \"\"name\" (body, \"the key\") VALUES ('{}', 'k-1')");
    add(
        &rig,
        &json!({
            "path": erp.path, "table": "odd \"name", "id": "no",
            "columns": { "payload": "body", "idempotency_key": "the key" },
            "defaults": { "event_type": "order.placed", "source_system": "odoo" },
        }),
    );
    until_stored(&rig, 1);
    let event = rig.get("/v1/events")["items"][0].clone();
    has(
        &event,
        &json!({
            "event_type": "order.placed", "source_system": "odoo", "idempotency_key": "k-1",
        }),
    );
}

#[test]
fn a_row_with_a_null_key_is_identified_by_its_id_and_stored_once() {
    let rig = Rig::new();
    let erp = Erp::with_columns(&rig, "event_type, payload, no");
    erp.run("INSERT INTO outbox (event_type, payload, no) VALUES ('a', '1', NULL), ('a', '1', ''), ('a', '1', 'k')");
    add(&rig, &json!({ "path": erp.path, "columns": { "idempotency_key": "no" } }));
    until_stored(&rig, 3);
    let keys = rig.one("SELECT group_concat(substr(idempotency_key, 1, 4), ' ') FROM outbox");
    assert_eq!(keys, "1-0x 2-0x k");
    rig.post("/v1/sources/erp/reset", &json!({ "from": "start" })).is(200);
    until("all of it is read again", || rig.get("/v1/sources/erp")["cursor"] == 3);
    assert_eq!(stored(&rig), "3");
}

#[test]
fn an_unsuitable_table_is_reported_until_it_is_corrected() {
    let rig = Rig::new();
    let erp = Erp::with(&rig, "CREATE TABLE other (a)");
    erp.source(&rig);
    trouble(&rig, "there is no table \"outbox\"");
    erp.run("CREATE TABLE outbox (id INTEGER PRIMARY KEY, event_type TEXT, payload TEXT)");
    trouble(&rig, "without AUTOINCREMENT");
    erp.run("DROP TABLE outbox; CREATE TABLE outbox (id TEXT PRIMARY KEY, event_type TEXT, payload TEXT)");
    trouble(&rig, "outbox.id is not INTEGER PRIMARY KEY");
    erp.run("DROP TABLE outbox; CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, event_type TEXT)");
    trouble(&rig, "has no column \"payload\"");
    assert_eq!(escalations(&rig), [("source.failing".to_owned(), 3)]);
    erp.run("ALTER TABLE outbox ADD COLUMN payload TEXT");
    until("it is read", || rig.get("/v1/sources/erp")["last_error"].is_null());
    assert_eq!(escalations(&rig), []);
    erp.run("INSERT INTO outbox (event_type, payload) VALUES ('a', '{}')");
    until_stored(&rig, 1);
    // A column that goes away while it is read is noticed, and nothing is made up for it.
    erp.run(
        "ALTER TABLE outbox ADD COLUMN aggregate_id TEXT; ALTER TABLE outbox DROP COLUMN payload",
    );
    trouble(&rig, "has no column \"payload\"");
}

#[test]
fn a_source_that_has_stopped_is_escalated_until_it_goes_on() {
    let (rig, erp) = Erp::with_facts(1);
    erp.read(&rig, 1);
    let away = erp.path.with_extension("away");
    fs::rename(&erp.path, &away).unwrap();
    until("its lag is unknown", || rig.get("/v1/sources/erp")["lag"].is_null());
    // It may be on its way back: a person is told when it has been gone for a minute.
    rig.advance(secs(60));
    trouble(&rig, "erp.db");
    until("it is escalated", || escalations(&rig) == [("source.failing".to_owned(), 1)]);
    fs::rename(&away, &erp.path).unwrap();
    until("that is resolved", || escalations(&rig).is_empty());
    erp.more(&rig, 1, 2);
}

#[test]
fn a_file_restored_to_an_older_state_is_not_sent_again_until_a_person_decides() {
    let (rig, erp) = Erp::with_facts(10);
    erp.run("PRAGMA wal_checkpoint(TRUNCATE)");
    let old = rig.home().join("backup.db");
    fs::copy(&erp.path, &old).unwrap();
    erp.write(5);
    erp.read(&rig, 15);
    restore(&erp, &old);
    shows(&trouble(&rig, "highest id ever is 10"), &["oncebox source reset erp --cursor N"]);
    assert_eq!(escalations(&rig), [("source.replaced".to_owned(), 1)]);
    // New facts under the ids 11 to 20 make it look as if nothing had happened; the last row tells.
    let erp = Erp { conn: Connection::open(&erp.path).unwrap(), path: erp.path };
    erp.run(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10)
         INSERT INTO outbox (event_type, payload) SELECT 'after.restore', i FROM n",
    );
    trouble(&rig, "row 15 is not the one that was copied");
    assert_eq!(stored(&rig), "15");
    rig.post("/v1/sources/erp/reset", &json!({ "from": "start" })).is(200);
    // The ten that were known are known again; the ten new ones are new although their ids are not.
    until_stored(&rig, 25);
    until("it is well", || rig.get("/v1/sources/erp")["cursor"] == 20);
    assert_eq!(escalations(&rig), []);
}

/// Puts another file in the place of the ERP's, as a person does it: all programs closed, log gone.
fn restore(erp: &Erp, from: &Path) {
    let beside = |ending: &str| format!("{}{ending}", erp.path.display());
    let put = format!("{}.put", erp.path.display());
    fs::copy(from, &put).unwrap();
    for gone in [beside("-wal"), beside("-shm")] {
        drop(fs::remove_file(gone));
    }
    fs::rename(put, &erp.path).unwrap();
}

#[test]
fn a_compacted_or_copied_file_is_read_on() {
    let (rig, erp) = Erp::with_facts(10);
    erp.read(&rig, 10);
    erp.run("VACUUM");
    erp.more(&rig, 1, 11);
    let compact = rig.home().join("compact.db");
    erp.run(&format!("VACUUM INTO '{}'", compact.display()));
    restore(&erp, &compact);
    let erp = Erp { conn: Connection::open(&erp.path).unwrap(), path: erp.path };
    erp.more(&rig, 1, 12);
    // Old rows may be deleted, the last one too.
    erp.run("DELETE FROM outbox");
    erp.more(&rig, 1, 13);
    assert_eq!(rig.get("/v1/sources/erp")["last_error"], Value::Null);
    assert_eq!(escalations(&rig), []);
}

#[test]
fn a_replaced_file_is_not_read() {
    let (rig, erp) = Erp::with_facts(3);
    erp.read(&rig, 3);
    let other = rig.home().join("other.db");
    let conn = Connection::open(&other).unwrap();
    conn.run(TABLE);
    conn.run("INSERT INTO outbox (event_type, payload) VALUES ('x', '1'), ('x', '2'), ('x', '3'), ('x', '4')");
    restore(&erp, &other);
    trouble(&rig, "row 3 is not the one that was copied");
    assert_eq!(stored(&rig), "3");
    // A row waits there, and no 0 says that none does.
    assert_eq!(rig.get("/v1/sources/erp")["lag"], Value::Null);
    shows(&rig.call("GET", "/metrics", b"").is(200).text(), &["oncebox_sources_lag_unknown 1\n"]);
    rig.post("/v1/sources/erp/reset", &json!({ "from": "now" })).is(200);
    let conn = Connection::open(&erp.path).unwrap();
    conn.run("INSERT INTO outbox (event_type, payload) VALUES ('x', '5')");
    until_stored(&rig, 4);
    assert_eq!(rig.one("SELECT CAST(payload AS TEXT) FROM outbox ORDER BY seq DESC LIMIT 1"), "5");
}

#[test]
fn a_locked_file_is_read_later_and_a_long_lock_is_reported() {
    let rig = Rig::new();
    let erp = Erp::new(&rig);
    // Without a write-ahead log a lock keeps readers out.
    erp.run("PRAGMA journal_mode = DELETE");
    erp.source(&rig);
    erp.run("BEGIN EXCLUSIVE");
    erp.write(1);
    rig.passing("it was tried", secs(10), || rig.get("/v1/sources/erp")["last_error"].is_string());
    trouble(&rig, "locked by another program");
    rig.advance(secs(60));
    until("it is an escalation", || escalations(&rig) == [("source.failing".to_owned(), 1)]);
    erp.run("COMMIT");
    until_stored(&rig, 1);
    until("it is over", || escalations(&rig).is_empty());
}

#[test]
fn a_silent_source_raises_an_escalation_until_its_next_event() {
    let rig = Rig::new();
    let erp = Erp::new(&rig);
    let body = json!({
        "name": "erp", "kind": "sqlite", "settings": erp.settings(), "silent_after_ms": 3_600_000,
    });
    rig.post("/v1/sources", &body).is(201);
    rig.advance(secs(3599));
    erp.more(&rig, 1, 1);
    rig.advance(secs(3599));
    assert_eq!(escalations(&rig), []);
    rig.advance(secs(1));
    until("it is raised", || escalations(&rig) == [("source.silent".to_owned(), 1)]);
    let ready = rig.send("GET", "/readyz?verbose", &[], b"").json();
    let check = ready["checks"].as_array().unwrap().iter().find(|c| c["name"] == "escalations");
    assert_eq!(check.unwrap()["state"], "warn");
    let metrics = rig.call("GET", "/metrics", b"").is(200).text();
    assert!(metrics.contains("oncebox_escalations_open{class=\"source.silent\"} 1"), "{metrics}");
    let id = rig.id("/v1/escalations");
    let path = format!("/v1/escalations/{id}/acknowledge");
    let seen = rig.post(&path, &Value::Null).is(200).json();
    assert_eq!(seen["acknowledged_by"], "first admin token");
    rig.post(&path, &Value::Null).is(409);
    erp.write(1);
    until("it is over", || escalations(&rig).is_empty());
    assert!(rig.get("/v1/escalations?all=true")["items"][0]["resolved_at"].is_string());
}

#[test]
fn a_source_with_events_during_a_stop_of_the_service_is_not_silent() {
    let mut rig = Rig::new();
    let erp = Erp::new(&rig);
    let body = json!({
        "name": "erp", "kind": "sqlite", "settings": erp.settings(), "silent_after_ms": 3_600_000,
    });
    rig.post("/v1/sources", &body).is(201);
    erp.more(&rig, 1, 1);
    rig.stop();
    rig.time.advance(secs(7200));
    erp.write(1);
    rig.start_again();
    until_stored(&rig, 2);
    // It has been read to its end, and looked at once more since.
    let before = rig.get("/v1/sources/erp")["last_read_at"].clone();
    rig.advance(secs(1));
    until("it is looked at again", || rig.get("/v1/sources/erp")["last_read_at"] != before);
    assert_eq!(rig.get("/v1/escalations?all=true")["items"], json!([]));
}

#[test]
fn sources_wait_while_paused_or_suspended_or_without_disk_space() {
    let rig = Rig::with(|settings| {
        let home = settings.database.directory.parent().unwrap();
        settings.sources.tenants_directory = Some(home.to_owned());
    });
    let admin = rig.tenant("acme");
    fs::create_dir(rig.home().join("acme")).unwrap();
    let path = rig.home().join("acme/erp.db");
    let erp = Erp { conn: Connection::open(&path).unwrap(), path };
    erp.run(TABLE);
    let post = |path: &str, body: &Value| rig.post_as(&admin, path, body);
    let body = json!({ "name": "erp", "kind": "sqlite", "settings": erp.settings() });
    post("/v1/sources", &body).is(201);
    erp.more(&rig, 1, 1);
    let lag = || rig.call_as(&admin, "GET", "/v1/sources/erp", b"").json()["lag"].clone();
    until("all of it is read", || lag() == 0);
    post("/v1/sources/erp/pause", &json!({})).is(200);
    erp.write(1);
    assert_eq!(lag(), Value::Null);
    post("/v1/sources/erp/resume", &json!({})).is(200);
    until_stored(&rig, 2);
    rig.post("/v1/tenants/acme/suspend", &json!({})).is(200);
    erp.write(1);
    rig.post("/v1/tenants/acme/resume", &json!({})).is(200);
    until_stored(&rig, 3);
    rig.disk_free(1);
    let waits = || rig.call_as(&admin, "GET", "/v1/sources/erp", b"").json()["waits_for"].clone();
    until("it waits for room", || waits() == "room on the disk");
    assert_eq!(lag(), Value::Null);
    erp.write(1);
    rig.disk_free(DISK_TOTAL / 2);
    until_stored(&rig, 4);
    until("all of it is read again", || lag() == 0);
}

#[test]
fn a_link_created_later_does_not_leave_the_tenants_directory() {
    let rig = Rig::with(|settings| {
        let home = settings.database.directory.parent().unwrap();
        settings.sources.tenants_directory = Some(home.to_owned());
    });
    let admin = rig.tenant("acme");
    let theirs = rig.home().join("acme");
    fs::create_dir(&theirs).unwrap();
    let make = |path: PathBuf| {
        let erp = Erp { conn: Connection::open(&path).unwrap(), path };
        erp.run(TABLE);
        erp
    };
    let (erp, other) = (make(theirs.join("erp.db")), make(rig.home().join("other.db")));
    let post = |path: &str, body: &Value| rig.post_as(&admin, path, body);
    let body = json!({ "name": "erp", "kind": "sqlite", "settings": erp.settings() });
    post("/v1/sources", &body).is(201);
    erp.more(&rig, 1, 1);
    other.write(5);
    let link = theirs.join("link");
    std::os::unix::fs::symlink(&other.path, &link).unwrap();
    fs::rename(&link, &erp.path).unwrap();
    until("it is said", || {
        let source = rig.call_as(&admin, "GET", "/v1/sources/erp", b"").json();
        source["last_error"].as_str().is_some_and(|why| why.contains("must be in"))
    });
    post("/v1/sources/erp/reset", &json!({ "from": "now" })).is(422);
    until_stored(&rig, 1);
}

#[test]
fn a_tenant_reads_only_its_own_files() {
    let rig = Rig::new();
    let admin = rig.tenant("acme");
    let body = |path: &Path| {
        let settings = json!({ "path": path });
        json!({ "name": "x", "kind": "sqlite", "settings": settings }).to_string()
    };
    let elsewhere = rig.home().join("erp.db");
    let own = rig.data().join("oncebox.db");
    rig.call("POST", "/v1/sources", body(&own).as_bytes()).is(422).tells("data directory");
    let link = rig.home().join("link.db");
    std::os::unix::fs::symlink(&own, &link).unwrap();
    rig.call("POST", "/v1/sources", body(&link).as_bytes()).is(422);
    fs::remove_file(&link).unwrap();
    // A hard link to the database, or to its log beside another file.
    for (from, to) in [("oncebox.db", "link.db"), ("oncebox.db-wal", "link.db-wal")] {
        let link = rig.home().join(to);
        fs::hard_link(rig.data().join(from), &link).unwrap();
        let path = rig.home().join("link.db");
        rig.call("POST", "/v1/sources", body(&path).as_bytes()).is(422).tells("data directory");
        fs::remove_file(&link).unwrap();
    }
    rig.call_as(&admin, "POST", "/v1/sources", body(&elsewhere).as_bytes())
        .is(422)
        .tells("sources.tenants_directory");
}

#[test]
fn a_source_is_tested_shown_changed_and_deleted() {
    let (rig, erp) = Erp::with_facts(2);
    let body =
        json!({ "name": "erp", "kind": "sqlite", "settings": erp.settings(), "from": "now" });
    assert_eq!(rig.post("/v1/sources", &body).is(201).json()["cursor"], 2);
    rig.post("/v1/sources", &body).is(409);
    let tested = rig.get("/v1/sources/erp/test");
    assert_eq!(tested["ok"], true, "{tested}");
    assert!(
        tested["checks"][1]["detail"].as_str().unwrap().contains("event_type, payload"),
        "{tested}"
    );
    let wrong = json!({ "settings": { "path": "/x", "tabel": "y" } });
    rig.patch("/v1/sources/erp", &wrong).is(422).tells("tabel");
    rig.patch("/v1/sources/erp", &json!({ "silent_after_ms": 5 })).is(422);
    let changed =
        rig.patch("/v1/sources/erp", &json!({ "silent_after_ms": 60_000 })).is(200).json();
    assert_eq!(changed["silent_after_ms"], 60_000);
    rig.post("/v1/sources/erp/reset", &json!({})).is(422);
    rig.delete("/v1/sources/erp").is(204);
    rig.call("GET", "/v1/sources/erp", b"").is(404);
    assert_eq!(stored(&rig), "0");
    rig.source("erp", "sqlite", &erp.settings());
    until_stored(&rig, 2);
}

#[test]
fn a_row_without_a_key_is_recognised_however_it_is_read() {
    let rig = Rig::new();
    let erp = Erp::with_columns(&rig, "event_type TEXT, payload TEXT, kunde TEXT");
    erp.run(
        "INSERT INTO outbox (event_type, payload, kunde) VALUES ('a', '{}', '1'), ('a', '{}', '2')",
    );
    erp.read(&rig, 2);
    rig.delete("/v1/sources/erp").is(204);
    erp.run("ALTER TABLE outbox ADD COLUMN target TEXT DEFAULT 'x'");
    add(&rig, &json!({ "path": erp.path, "columns": { "aggregate_id": "kunde" } }));
    let read = |count: u64| {
        until("they are read", || rig.get("/v1/sources/erp")["event_count"] == count);
        assert_eq!(stored(&rig), "2");
    };
    read(2);
    erp.run("ALTER TABLE outbox ADD COLUMN process_id TEXT DEFAULT 'x'");
    rig.post("/v1/sources/erp/reset", &json!({ "from": "start" })).is(200);
    read(4);
    // What another fact has left under the same id is another one.
    erp.run("UPDATE outbox SET event_type = 'b' WHERE id = 2");
    rig.post("/v1/sources/erp/reset", &json!({ "from": "start" })).is(200);
    until_stored(&rig, 3);
}

#[test]
fn changed_settings_limits_and_columns_do_not_make_it_another_file() {
    let mut rig = Rig::new();
    let erp = Erp::new(&rig);
    // Too large to be used, for now.
    let next = |rig: &Rig, count: usize| {
        erp.run(
            "INSERT INTO outbox (event_type, payload, aggregate_type)
             VALUES ('a', zeroblob(2000000), 'x')",
        );
        until_stored(rig, count);
    };
    erp.source(&rig);
    next(&rig, 1);
    rig.restart_with(|settings| settings.limits.payload_bytes = 4 << 20);
    next(&rig, 2);
    erp.run("ALTER TABLE outbox ADD COLUMN target TEXT DEFAULT 'x'");
    next(&rig, 3);
    let also = |field: &str| {
        let settings = json!({ "path": erp.path, "columns": { field: "aggregate_type" } });
        rig.patch("/v1/sources/erp", &json!({ "settings": settings })).is(200);
    };
    also("ordering_key");
    next(&rig, 4);
    // Other columns cannot be compared with what was kept of these.
    also("event_type");
    next(&rig, 5);
    erp.run("VACUUM");
    next(&rig, 6);
    assert_eq!(escalations(&rig), []);
    // That it is another row is still noticed.
    erp.run("UPDATE outbox SET payload = 'y' WHERE id = 6");
    trouble(&rig, "row 6 is not the one that was copied");
}

#[test]
fn rounded_keys_lose_no_row() {
    let rig = Rig::new();
    let erp = Erp::with_columns(&rig, "event_type TEXT, payload TEXT, idempotency_key NUMERIC");
    erp.run(
        "INSERT INTO outbox (event_type, payload, idempotency_key) VALUES
         ('a', '{}', 20261121123456000001), ('a', '{}', 20261121123456000002), ('a', '{}', 7)",
    );
    erp.read(&rig, 3);
    let listed = rig.get("/v1/events?status=quarantined");
    assert_eq!(listed["items"].as_array().unwrap().len(), 2);
    let why = listed["items"][1]["last_error"].as_str().unwrap();
    assert!(why.starts_with("row 1: idempotency_key is 2.0261121123456e19, a floating"), "{why}");
    assert_eq!(rig.items("/v1/events?idempotency_key=7").len(), 1);
}

#[test]
fn a_row_with_a_time_in_another_unit_is_quarantined_alone() {
    let rig = Rig::new();
    let erp = Erp::with_columns(&rig, "event_type TEXT, payload TEXT, start");
    erp.run(
        "INSERT INTO outbox (event_type, payload, start) VALUES
         ('a', '{}', 1763728496000000), ('a', '{}', 1763728496), ('a', '{}', '9999-12-31 00:00:00')",
    );
    add(&rig, &json!({ "path": erp.path, "columns": { "not_before": "start" } }));
    until_stored(&rig, 3);
    let listed = rig.get("/v1/events?status=quarantined");
    let why = |n: usize| listed["items"][n]["last_error"].as_str().unwrap().to_owned();
    let first =
        "row 1: not_before (here \"start\") is \"1763728496000000\", which is not a time from 1973";
    assert!(why(1).starts_with(first), "{}", why(1));
    assert!(why(1).contains("seconds or milliseconds since 1970"), "{}", why(1));
    assert!(why(0).starts_with("row 3"), "{}", why(0));
}
