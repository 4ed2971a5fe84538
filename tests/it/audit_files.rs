//! Audit events of months that are over move into files, and all files together are one chain.

use oncebox::archive::audit::trail;
use oncebox::base::faults::Stall;
use oncebox::model::audit::chain::Report;
use oncebox::model::audit::{Actor, NewAuditEvent};
use oncebox::store::audit_events;

use crate::rig::prelude::*;
use crate::rig::process::passes;

const DAY: u64 = 24 * 3600;

fn names(rig: &Rig) -> Vec<String> {
    let entries = fs::read_dir(rig.data().join("audit")).into_iter().flatten();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let is_month = |name: &String| Path::new(name).extension().is_some_and(|end| end == "db");
    let mut names: Vec<String> = names.filter(is_month).collect();
    names.sort();
    names
}

fn month(rig: &Rig, name: &str) -> PathBuf {
    rig.data().join("audit").join(name)
}

fn verified(rig: &Rig) -> Report {
    trail(&rig.data().join("oncebox.db")).unwrap().unwrap().verify(&[]).unwrap()
}

#[track_caller]
fn is_intact(rig: &Rig) -> u64 {
    let report = verified(rig);
    assert_eq!(report.breaks, []);
    report.rows
}

/// What is wrong with the chain, each with its file.
fn breaks(rig: &Rig) -> String {
    verified(rig).breaks.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn tokens(rig: &Rig, from: usize, to: usize) {
    for n in from..to {
        rig.post("/v1/tokens", &json!({ "name": format!("t{n}"), "role": "read" })).is(201);
    }
}

/// Events of three months, none of which is over for long enough before [`pass`].
fn three_months(rig: &Rig) {
    tokens(rig, 0, 9);
    rig.advance(secs(10 * DAY));
    tokens(rig, 9, 14);
    rig.advance(secs(19 * DAY));
    tokens(rig, 14, 18);
}

/// Waits until January and February have moved.
fn pass(rig: &Rig) {
    rig.advance(secs(33 * DAY));
    until("February has moved", || {
        rig.one("SELECT count(*) FROM audit_events WHERE at < 1772323200000") == "0"
    });
}

/// All rows below a number, page by page.
fn listed(rig: &Rig, query: &str, below: u64) -> Vec<Value> {
    let (mut all, mut after) = (Vec::new(), below.to_string());
    loop {
        let page = rig.get(&format!("/v1/audit-events?limit=4&after={after}{query}"));
        all.extend(page["items"].as_array().unwrap().iter().cloned());
        let Some(next) = page["next"].as_str() else { return all };
        next.clone_into(&mut after);
    }
}

#[test]
fn months_that_are_over_move_into_their_files_and_lists_are_as_before() {
    let mut rig = Rig::new();
    three_months(&rig);
    let below = rig.one("SELECT max(seq) + 1 FROM audit_events").parse().unwrap();
    let id = rig.one("SELECT resource_id FROM audit_events WHERE seq = 3");
    let queries = [
        String::new(),
        "&action=token".to_owned(),
        "&action=nothing".to_owned(),
        format!("&resource={id}"),
        "&since=2026-02-05T00:00:00Z".to_owned(),
        "&until=2026-02-05T00:00:00Z".to_owned(),
        "&correlation_id=none".to_owned(),
    ];
    let all = |rig: &Rig| queries.clone().map(|query| listed(rig, &query, below));
    let before = all(&rig);
    assert_eq!(
        before.clone().map(|rows| rows.len() > 1),
        [true, true, false, false, true, true, false]
    );
    assert!(names(&rig).is_empty());
    let first = rig.get("/v1/audit-events?limit=6");
    pass(&rig);
    assert_eq!(names(&rig), ["2026-01.db", "2026-02.db"]);
    assert_eq!(all(&rig), before);
    // A page that follows one from before the move.
    let after = first["next"].as_str().unwrap().parse().unwrap();
    let rest = listed(&rig, "", after);
    assert_eq!([first["items"].as_array().unwrap().clone(), rest].concat(), before[0]);
    assert_eq!(rig.get("/v1/audit-events/3"), before[0][before[0].len() - 3]);
    let acme = rig.tenant("acme");
    rig.call_as(&acme, "GET", "/v1/audit-events/3", b"").is(404);
    assert_eq!(rig.get("/v1/audit-events/verification")["ok"], true);
    // New ones follow, over a restart too, and each file holds alone.
    rig.restart();
    tokens(&rig, 18, 20);
    assert!(is_intact(&rig) >= below);
    for name in names(&rig) {
        file::check(&month(&rig, &name));
    }
    rig.advance(secs(90 * DAY));
    rig.becomes("SELECT count(*) FROM audit_events WHERE action = 'token.create'", "0");
    assert!(is_intact(&rig) >= below);
    assert_eq!(all(&rig), before);
}

#[test]
fn events_about_an_aggregate_are_found_in_the_files() {
    let rig = Rig::with(|settings| settings.archive.after = secs(3_650 * DAY));
    let receiver = Receiver::new();
    rig.subscribe("erp", &receiver);
    receiver.always(Reply::status(400));
    let about = json!({ "event_type": "a", "payload": 1, "aggregate_type": "invoice", "aggregate_id": "4711" });
    rig.publish(&about);
    rig.settle();
    rig.call("POST", "/v1/deliveries/dlv_1/cancel", b"").is(200);
    let found = || rig.get("/v1/audit-events?aggregate_id=4711")["items"].clone();
    assert_eq!(found()[0]["action"], "delivery.cancel");
    rig.advance(secs(60 * DAY));
    rig.becomes("SELECT count(*) FROM audit_events WHERE action = 'delivery.cancel'", "0");
    assert_eq!(found()[0]["action"], "delivery.cancel");
    // The event itself leaves the database too.
    rig.post("/v1/archive/runs", &json!({ "older_than": "30days" })).is(200);
    rig.becomes("SELECT count(*) FROM outbox WHERE aggregate_id = '4711'", "0");
    assert_eq!(found()[0]["action"], "delivery.cancel");
}

/// After a restore, a file may have rows of the database that was lost: they do not count after the start of the next file.
#[test]
fn a_list_by_time_ends_where_the_next_file_starts() {
    let rig = Rig::new();
    three_months(&rig);
    pass(&rig);
    let first = "SELECT min(seq) FROM audit_events";
    let first = file::lines(&file::open(&month(&rig, "2026-02.db")), first)[0].clone();
    let january = Connection::open(month(&rig, "2026-01.db")).unwrap();
    january
        .execute_batch(&format!(
            "CREATE TEMP TABLE lost AS SELECT * FROM audit_events ORDER BY seq DESC LIMIT 1;
             UPDATE lost SET seq = {first}, action = 'token.lost';
             INSERT INTO audit_events SELECT * FROM lost"
        ))
        .unwrap();
    let rows = listed(&rig, "&until=2026-01-31T23:00:00Z", 1_000_000);
    assert!(!rows.is_empty() && rows.iter().all(|row| row["action"] != "token.lost"), "{rows:?}");
}

#[test]
fn nobody_else_deletes_or_changes_what_has_not_moved() {
    let rig = Rig::new();
    three_months(&rig);
    pass(&rig);
    for path in [rig.data().join("oncebox.db"), month(&rig, "2026-01.db")] {
        let conn = Connection::open(path).unwrap();
        for sql in ["DELETE FROM audit_events", "UPDATE audit_events SET action = 'x'"] {
            let refused = conn.execute(sql, []).unwrap_err().to_string();
            assert!(refused.contains("an audit event is never"), "{refused}");
        }
    }
}

/// The disk refuses, or the process ends, at each step of a move: nothing is lost, nothing is there twice.
#[test]
fn a_move_that_fails_anywhere_loses_and_doubles_nothing() {
    let mut failed = 0;
    for step in [Step::Archive, Step::Commit] {
        for nth in (1..200).step_by(passes()) {
            let faults = Faults::at(step, nth);
            let Ok(mut rig) = Rig::try_with_faults(faults.clone()) else { continue };
            for days in [10, 19, 33] {
                rig.call("POST", "/v1/tokens", br#"{"name":"t","role":"read"}"#);
                rig.advance(secs(days * DAY));
            }
            let old = "SELECT count(*) FROM audit_events WHERE at < 1772323200000";
            until("it fails, or all are moved", || faults.happened() || rig.one(old) == "0");
            if !faults.happened() {
                break;
            }
            failed += 1;
            is_intact(&rig);
            let all: Vec<Value> = listed(&rig, "", 1_000_000);
            let seqs: Vec<u64> = all.iter().map(|row| row["seq"].as_u64().unwrap()).collect();
            let (last, count) = (seqs[0], u64::try_from(seqs.len()).unwrap());
            assert_eq!((last, seqs.last()), (count, Some(&1)), "{step:?} {nth}: {seqs:?}");
            rig.restart();
            rig.becomes(old, "0");
            assert!(is_intact(&rig) >= last, "{step:?} {nth}");
            let again = listed(&rig, "", last + 1);
            assert_eq!(again, all, "{step:?} {nth}");
        }
    }
    assert!(failed > 6_usize.div_ceil(passes()), "{failed} moves failed");
}

#[test]
fn what_was_done_to_the_file_of_a_month_is_named_with_the_file() {
    let mut rig = Rig::new();
    three_months(&rig);
    rig.advance(secs(62 * DAY));
    until("March has moved", || names(&rig).len() == 3);
    rig.becomes("SELECT count(*) FROM audit_events WHERE at < 1775001600000", "0");
    rig.stop();
    is_intact(&rig);
    let spoiled = |name: &str, sql: &str| {
        let (path, kept) = (month(&rig, name), rig.home().join("kept"));
        fs::copy(&path, &kept).unwrap();
        let conn = Connection::open(&path).unwrap();
        conn.run("DROP TRIGGER audit_events_are_never_changed; DROP TRIGGER audit_events_are_never_deleted");
        conn.run(sql);
        conn.run("PRAGMA wal_checkpoint(TRUNCATE)");
        drop(conn);
        let found = breaks(&rig);
        fs::copy(&kept, &path).unwrap();
        found
    };
    let found = spoiled("2026-02.db", "UPDATE audit_events SET action = 'x' WHERE seq = 13");
    shows(&found, &["2026-02.db: row 13 was changed"]);
    let found = spoiled("2026-01.db", "DELETE FROM audit_events WHERE seq = 4");
    shows(&found, &["2026-01.db: rows 4 to 4 are missing"]);
    let found = spoiled("2026-03.db", "DELETE FROM audit_events WHERE seq > 17");
    shows(&found, &["oncebox.db: rows 18 to ", "are missing"]);
    let found = spoiled("2026-02.db", "DELETE FROM meta WHERE key = 'audit_start'");
    shows(&found, &["2026-03.db: rows 11 to ", "are missing"]);
    is_intact(&rig);
    for (name, told) in [
        ("2026-01.db", "rows 1 to 10 are missing"),
        ("2026-02.db", "2026-03.db: rows 11 to "),
        ("2026-03.db", "oncebox.db: rows 16 to "),
    ] {
        let away = rig.home().join("away");
        fs::rename(month(&rig, name), &away).unwrap();
        shows(&breaks(&rig), &[told]);
        fs::write(month(&rig, name), "no database, and long enough to be read as one".repeat(20))
            .unwrap();
        let opened = trail(&rig.data().join("oncebox.db"));
        let error = opened.and_then(|trail| trail.unwrap().verify(&[])).unwrap_err().to_string();
        shows(&error, &[name]);
        fs::rename(&away, month(&rig, name)).unwrap();
    }
    is_intact(&rig);
}

#[test]
fn a_file_is_deleted_after_seven_years_and_an_audit_event_says_so() {
    let rig = Rig::new();
    two_files(&rig);
    rig.advance(secs((7 * 366 - 10) * DAY));
    rig.becomes("SELECT count(*) FROM audit_events WHERE action = 'audit.delete'", "1");
    until("the file is gone", || names(&rig)[0] == "2026-02.db");
    let deleted = rig.get("/v1/audit-events?action=audit.delete")["items"][0].clone();
    has(
        &deleted,
        &json!({ "resource.id": "2026-01", "actor.type": "system", "result": "SUCCESS" }),
    );
    is_intact(&rig);
    let rest = listed(&rig, "", 1_000_000);
    assert_eq!(rest.last().unwrap()["seq"], 11);
    // Without that event, the rows are missing.
    let start = deleted["changes"]["last"]["after"].as_str().unwrap();
    assert!(start.starts_with("10:"), "{start}");
    fs::remove_file(month(&rig, "2026-02.db")).unwrap();
    shows(&breaks(&rig), &["rows 1 to "]);
}

/// What became due while a duty ran was not looked at by it.
#[test]
fn a_duty_that_took_long_is_due_an_hour_after_it_was_begun() {
    let faults = Faults::stalling();
    let rig = Rig::with_faults(|_| {}, faults.clone());
    three_months(&rig);
    faults.stall(Some(Stall::Archive));
    rig.advance(secs(5 * DAY));
    let begun = rig.now();
    until("the move has begun", || faults.is_standing(Stall::Archive));
    rig.advance(secs(1_800));
    faults.stall(None);
    rig.becomes("SELECT count(*) FROM audit_events WHERE at < 1769904000000", "0");
    let due = begun.plus(secs(3_600)).ms().to_string();
    rig.becomes("SELECT due_at FROM chores WHERE name = 'archive-audit'", &due);
}

/// When a duty is due stands in the file: it is not counted since the start.
#[test]
fn a_box_that_is_restarted_every_day_deletes_a_file_after_seven_years() {
    let mut rig = Rig::new();
    two_files(&rig);
    rig.stop();
    rig.time.advance(secs((7 * 366 - 10) * DAY));
    let begun = Instant::now();
    let first = month(&rig, "2026-01.db");
    while first.exists() {
        assert!(begun.elapsed() < crate::rig::PATIENCE, "it stays: {:?}", names(&rig));
        rig.start_again();
        // Once a minute a chore tells the file the time; by then the others have run.
        let told = "SELECT value FROM meta WHERE key = 'clock_known'";
        let before = rig.one(told);
        rig.advance(secs(61));
        until("the chores have run", || rig.one(told) != before);
        rig.stop();
        rig.time.advance(secs(20 * 3600));
    }
}

const DELETED: &str = "SELECT count(*) FROM audit_events WHERE action = 'audit.delete'";

/// Two files of audit events, and nothing else to move.
fn two_files(rig: &Rig) {
    three_months(rig);
    rig.advance(secs(5 * DAY));
    rig.becomes("SELECT count(*) FROM audit_events WHERE at < 1769904000000", "0");
    rig.advance(secs(28 * DAY));
    rig.becomes("SELECT count(*) FROM audit_events WHERE at < 1772323200000", "0");
}

/// Waits for an answer while hours pass: a try that was under way may have failed, and the next one is an hour after it.
fn tried_until(rig: &Rig, what: &str, sql: &str, expected: &str) {
    let mut looks = 0_u32;
    until(what, || {
        if looks.is_multiple_of(100) {
            rig.advance(secs(3_601));
        }
        looks += 1;
        rig.one(sql) == expected
    });
}

#[test]
fn a_deletion_that_fails_again_and_again_is_one_audit_event() {
    let faults = Faults::stalling();
    let rig = Rig::with_faults(|_| {}, faults.clone());
    two_files(&rig);
    faults.fail(Some(Step::Archive));
    rig.advance(secs((7 * 366 - 10) * DAY));
    let claimed = "SELECT count(*) FROM claimed_effects WHERE subject = 'audit/2026-01'";
    tried_until(&rig, "the deletion is claimed", claimed, "1");
    for _ in 0..3 {
        rig.advance(secs(25 * 3600));
        rig.says(DELETED, "0");
    }
    is_intact(&rig);
    // It was deleted, and what says so was not stored.
    fs::remove_file(month(&rig, "2026-01.db")).unwrap();
    is_intact(&rig);
    faults.fail(None);
    tried_until(&rig, "the deletion is told", claimed, "0");
    rig.says(DELETED, "1");
    is_intact(&rig);
}

#[test]
fn a_move_that_fails_keeps_no_old_file_from_being_deleted() {
    let rig = Rig::new();
    two_files(&rig);
    // The months after these cannot be moved.
    fs::create_dir(month(&rig, "2026-03.db")).unwrap();
    rig.advance(secs((7 * 366 - 10) * DAY));
    until("the old file is gone", || !month(&rig, "2026-01.db").exists());
    rig.becomes(DELETED, "1");
}

/// A backup from before a move comes back: its rows count again, and those that it does not have do not.
#[test]
fn an_older_database_beside_newer_files_goes_on_with_its_own_chain() {
    let mut rig = Rig::new();
    three_months(&rig);
    rig.stop();
    let (database, kept) = (rig.data().join("oncebox.db"), rig.home().join("kept.db"));
    Connection::open(&database).unwrap().run("PRAGMA wal_checkpoint(TRUNCATE)");
    fs::copy(&database, &kept).unwrap();
    rig.start_again();
    tokens(&rig, 20, 30);
    rig.advance(secs(62 * DAY));
    rig.becomes("SELECT count(*) FROM audit_events WHERE action = 'token.create'", "0");
    assert_eq!(names(&rig), ["2026-01.db", "2026-02.db", "2026-03.db"]);
    rig.stop();
    fs::copy(&kept, &database).unwrap();
    let _log = fs::remove_file(rig.data().join("oncebox.db-wal"));
    let _memory = fs::remove_file(rig.data().join("oncebox.db-shm"));
    rig.start_again();
    tokens(&rig, 40, 42);
    is_intact(&rig);
    until("its old rows have moved", || {
        rig.one("SELECT count(*) FROM audit_events WHERE at < 1775001600000") == "0"
    });
    rig.advance(secs(70 * DAY));
    rig.becomes("SELECT count(*) FROM audit_events WHERE action = 'token.create'", "0");
    is_intact(&rig);
    let all = listed(&rig, "&action=token", 1_000_000);
    let made = |name: &str| all.iter().any(|row| row["changes"]["name"]["after"] == name);
    assert!(made("t0") && made("t17") && made("t41") && !made("t25"));
}

/// A clock that was wrong for a while holds nothing up, and does not change the order.
#[test]
fn rows_with_a_wrong_time_move_with_those_before_them() {
    let rig = Rig::new();
    let append = |at: &str| {
        let at = Timestamp::parse(at).unwrap();
        let event = NewAuditEvent::local(at, "default", Actor::system(), "a.b");
        let writer = rig.appliance().store().writer();
        writer.write(Queue::Accept, move |tx| audit_events::append(tx, &event)).unwrap();
    };
    for at in [
        "2000-01-01T00:00:00Z",
        "2026-01-31T13:00:00Z",
        "2099-01-01T00:00:00Z",
        "1970-01-01T00:00:00Z",
        "2026-02-01T00:00:00Z",
    ] {
        append(at);
    }
    rig.advance(secs(70 * DAY));
    rig.becomes("SELECT count(*) FROM audit_events WHERE action = 'a.b'", "0");
    assert_eq!(names(&rig)[..2], ["2026-01.db", "2026-02.db"]);
    assert_eq!(u64::try_from(listed(&rig, "", 1_000_000).len()).unwrap(), is_intact(&rig));
}
