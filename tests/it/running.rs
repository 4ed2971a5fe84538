//! Starting, stopping, and starting again.

use std::os::unix::fs::PermissionsExt;

use crate::rig::prelude::*;

#[test]
fn a_second_service_on_the_same_directory_is_refused() {
    let rig = Rig::new();
    let refused = rig.appliance_again().unwrap_err().to_string();
    let (process, version) = (std::process::id(), env!("CARGO_PKG_VERSION"));
    let holder = format!("another oncebox (process {process}, version {version}, since 20");
    assert!(refused.contains(&holder), "{refused}");
    rig.get("/v1/stats");
}

#[test]
fn a_key_file_that_others_may_read_is_refused() {
    let mut rig = Rig::new();
    rig.stop();
    let key = rig.data().join("master.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    shows(&rig.appliance_again().unwrap_err().to_string(), &["has mode 644", "chmod 600"]);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    rig.start_again();
}

#[test]
fn another_key_is_refused_and_so_is_none() {
    let (mut rig, mut other) = (Rig::new(), Rig::new());
    rig.stop();
    other.stop();
    let key = rig.data().join("master.key");
    let right = fs::read(&key).unwrap();
    fs::copy(other.data().join("master.key"), &key).unwrap();
    shows(&rig.appliance_again().unwrap_err().to_string(), &["needs the master key"]);
    fs::remove_file(&key).unwrap();
    shows(&rig.appliance_again().unwrap_err().to_string(), &["master.key"]);
    assert!(!key.exists(), "no new key is made beside a database");
    fs::write(&key, "no key").unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(rig.appliance_again().unwrap_err().to_string().contains("master.key"));
    fs::write(&key, right).unwrap();
    rig.start_again();
}

#[test]
fn a_graceful_stop_finishes_what_is_under_way() {
    let (mut rig, receiver) = Rig::subscribed_to("erp", Receiver::scripted([Reply::Hang]));
    rig.publish_type("a");
    until("the attempt is under way", || receiver.count() == 1);
    thread::scope(|scope| {
        let stopping = scope.spawn(|| rig.stop());
        thread::yield_now();
        receiver.release();
        stopping.join().unwrap();
    });
    rig.start_again();
    rig.has_sent(&receiver, 1);
    assert_eq!(rig.one("SELECT state, attempt_count FROM deliveries"), "completed 1");
}

#[test]
fn a_stop_gives_an_attempt_its_grace_and_then_leaves_it_to_the_next_start() {
    let (mut rig, receiver) = Rig::subscribed_to("erp", Receiver::scripted([Reply::Hang]));
    rig.publish_type("a");
    until("the attempt is under way", || receiver.count() == 1);
    let time = rig.time.clone();
    thread::scope(|scope| {
        let stopping = scope.spawn(|| rig.stop());
        // The manual clock stands still: what ends the wait is the grace, and nothing else.
        until("the grace is over", || {
            time.advance(secs(1));
            stopping.is_finished()
        });
        stopping.join().unwrap();
    });
    let left = "SELECT state, attempt_count, counted_failures FROM deliveries";
    assert_eq!(rig.one(left), "pending 0 0", "nothing is counted");
    let clean = "SELECT stopped_at IS NOT NULL FROM boots ORDER BY seq DESC LIMIT 1";
    assert_eq!(rig.one(clean), "0", "the next start is told that an attempt may repeat");
    rig.start_again();
    rig.settle();
    assert_eq!(receiver.count(), 2, "it is sent again");
    assert_eq!(rig.one(left), "completed 1 0");
    receiver.release();
}

#[test]
fn what_waits_at_a_stop_goes_on_after_the_start() {
    let (mut rig, receiver) = Rig::subscribed_to("erp", Receiver::scripted([Reply::status(500)]));
    rig.deliver("a");
    rig.restart();
    rig.settle();
    assert_eq!(receiver.count(), 1, "not before it is due");
    rig.pass(secs(5));
    insta::assert_snapshot!(rig.dump(), @r"
    a completed
      erp completed
        1 +0s transient counted 500
        2 +5s success 200
    ");
}

#[test]
fn what_became_due_while_nothing_ran_is_sent_at_the_start() {
    let (mut rig, receiver) = Rig::subscribed_to("erp", Receiver::scripted([Reply::status(500)]));
    rig.deliver("a");
    rig.stop();
    rig.time.advance(secs(86_400));
    rig.start_again();
    rig.has_sent(&receiver, 2);
}

#[test]
fn what_waits_is_not_stuck_when_the_clock_was_a_day_ahead_at_the_stop() {
    let (mut rig, _receiver) = Rig::subscribed_to("erp", Receiver::scripted([Reply::status(500)]));
    rig.time.set_wall(START.plus(secs(86_400)));
    rig.restart();
    rig.deliver("retried");
    rig.call("POST", "/v1/subscriptions/erp/pause", b"").is(200);
    rig.publish_type("fresh");
    let later = START.plus(secs(3600));
    rig.publish(&json!({ "event_type": "later", "payload": 1, "not_before": later }));
    rig.time.set_wall(START);
    rig.restart();
    until("due times are pulled in", || {
        rig.one("SELECT max(due_at) FROM deliveries").parse::<i64>().unwrap() <= later.ms()
    });
    rig.call("POST", "/v1/subscriptions/erp/resume", b"").is(200);
    rig.settle();
    insta::assert_snapshot!(rig.dump(), @r"
    retried failed
      erp pending due +5s
        1 +86400s transient counted 500
    fresh completed
      erp completed
        1 +0s success 200
    later pending
      erp pending due +3600s
    ");
}

#[test]
fn a_delivery_whose_attempt_was_lost_with_the_process_is_sent_again_under_its_id() {
    let (mut rig, receiver) = Rig::subscribed("erp");
    rig.deliver("a");
    rig.stop();
    // What the file holds when the process dies between the answer and the settlement's COMMIT.
    let conn = rig.writable();
    conn.run(
        "DELETE FROM attempts;
         UPDATE deliveries SET state = 'pending', due_at = order_at, finished_at = NULL,
                attempt_count = 0, last_class = NULL;
         UPDATE outbox SET status = 'pending', completed_at = NULL, open_deliveries = 1;
         UPDATE boots SET stopped_at = NULL;",
    );
    drop(conn);
    rig.start_again();
    rig.settle();
    let seen = receiver.seen();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[0].field("webhook-id"), seen[1].field("webhook-id"));
    assert_eq!(seen[0].body, seen[1].body);
}

#[test]
fn a_writer_that_panics_ends_the_process() {
    let mut rig = Rig::new();
    let writer = rig.appliance().store().writer().clone();
    writer.submit::<(), _, _>(Queue::Accept, |_| panic!("planned"), |_| {});
    until("it asks to be ended", || rig.appliance().stop_signal().asked());
    let answer = rig.post("/v1/events", &json!({ "event_type": "a", "payload": 1 }));
    assert_eq!(answer.status, 503, "{answer:?}");
    assert_eq!(rig.stop_failed().to_string(), "the thread writer failed; the log says where");
    rig.start_again();
    rig.publish_type("a");
}

#[test]
fn the_log_is_left_to_another_program_where_the_settings_say_so() {
    let mut rig = Rig::new();
    let log = rig.data().join("oncebox.db-wal");
    rig.publish_type("a");
    rig.stop();
    assert!(fs::metadata(&log).map_or(0, |log| log.len()) == 0, "it is emptied at a stop");
    rig.start_again();
    rig.restart_with(|settings| settings.database.checkpoints = false);
    // Litestream has the file open all the time.
    let beside = rig.file();
    assert_eq!(file::lines(&beside, "SELECT count(*) FROM outbox"), ["1"]);
    rig.publish_type("b");
    rig.stop();
    assert!(fs::metadata(&log).unwrap().len() > 0, "it is left");
    drop(beside);
    rig.start_again();
    assert_eq!(rig.one("SELECT count(*) FROM outbox"), "2");
}

#[test]
fn a_log_that_a_reader_kept_from_being_copied_is_copied_soon_after_the_reader_ends() {
    const MIB: u64 = 1 << 20;
    let rig = Rig::new();
    let log = rig.data().join("oncebox.db-wal");
    let log_bytes = || fs::metadata(&log).unwrap().len();
    let payload = "x".repeat(256 << 10);
    let grow_to = |bytes: u64, most_events: usize| {
        for _ in 0..most_events {
            if log_bytes() >= bytes {
                break;
            }
            rig.publish(&json!({ "event_type": "a", "payload": payload }));
        }
    };
    let reader = rig.file();
    reader.execute_batch("BEGIN").unwrap();
    let before: i64 =
        reader.query_row("SELECT count(*) FROM outbox", [], |row| row.get(0)).unwrap();
    assert_eq!(before, 0);
    // Copying it is tried at 16 MiB, and the reader needs what was there before.
    grow_to(18 * MIB, 200);
    let blocked = log_bytes();
    assert!(blocked >= 18 * MIB, "the reader keeps the log from being begun anew: {blocked}");
    reader.execute_batch("COMMIT").unwrap();
    grow_to(blocked + 8 * MIB, 60);
    let after = log_bytes();
    assert!(after < blocked + 8 * MIB, "{blocked} bytes have become {after}");
}

#[test]
fn everything_is_as_it_was_after_a_restart() {
    let mut rig = Rig::new();
    let receiver = Receiver::scripted([Reply::status(400), Reply::status(500)]);
    let secret = rig.subscribe("erp", &receiver);
    for event_type in ["a", "b", "c"] {
        rig.deliver(event_type);
    }
    let (before, shown) = (rig.dump(), rig.get("/v1/subscriptions/erp"));
    rig.restart();
    rig.settle();
    assert_eq!(rig.dump(), before);
    assert_eq!(rig.get("/v1/subscriptions/erp"), shown);
    rig.publish(&json!({ "event_type": "d", "payload": 1 }));
    rig.settle();
    assert!(
        receiver.seen().last().unwrap().field("webhook-signature").is_some() && !secret.is_empty()
    );
}

#[test]
fn an_erp_table_with_a_name_of_ours_is_named_before_anything_is_changed() {
    for name in ["jobs", "outbox", "Search_Values"] {
        let mut rig = Rig::new();
        rig.stop();
        let database = rig.data().join("oncebox.db");
        fs::remove_file(&database).unwrap();
        let _log = fs::remove_file(rig.data().join("oncebox.db-wal"));
        rig.write(&format!(
            "PRAGMA auto_vacuum = INCREMENTAL; CREATE TABLE {name} (no INTEGER); INSERT INTO {name} VALUES (4711);"
        ));
        let before = fs::read(&database).unwrap();
        let refused = rig.appliance_again().unwrap_err().to_string();
        shows(&refused, &["Nothing was changed", "Rename your table"]);
        shows(&refused, &[&format!("named {}", name.to_lowercase())]);
        assert!(fs::read(&database).unwrap() == before, "{name}");
        rig.write(&format!("ALTER TABLE {name} RENAME TO my_{name}"));
        rig.start_again();
        assert_eq!(rig.one(&format!("SELECT no FROM my_{name}")), "4711");
    }
}

#[test]
fn an_erp_table_in_the_same_file_is_left_alone() {
    let mut rig = Rig::new();
    rig.stop();
    let conn = rig.writable();
    conn.run("CREATE TABLE invoice (no INTEGER); INSERT INTO invoice VALUES (4711);");
    drop(conn);
    rig.start_again();
    rig.publish_type("a");
    assert_eq!(rig.one("SELECT no FROM invoice"), "4711");
}
