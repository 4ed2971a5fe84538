//! The write-ahead log on a small disk: it is emptied in time, and who keeps it from being emptied is named.

use oncebox::sys::disk::Gauge;

use crate::fault::disk::{Tmpfs, check};
use crate::fault::process::prelude::*;

/// The product's own disk budget.
fn set_up(home: &Path) {
    fs::write(home.join("oncebox.toml"), SOON.replace("[disk]\nreserve = 0\n", "")).unwrap();
}

fn publish(process: &Process, key: &str) -> u16 {
    let payload = "x".repeat(100_000);
    let event = json!({ "event_type": "a", "idempotency_key": key, "payload": payload });
    process.call("POST", "/v1/events", &event).status
}

/// Publishes until it is refused.
fn publish_until_refused(process: &Process) -> BTreeSet<String> {
    let mut acknowledged = BTreeSet::new();
    for n in 0..20_000 {
        let key = format!("n-{n}");
        match publish(process, &key) {
            201 => drop(acknowledged.insert(key)),
            507 => return acknowledged,
            other => panic!("{other}"),
        }
    }
    panic!("the disk was never full");
}

fn free(home: &Path) -> u64 {
    Gauge::machine().look(home).unwrap().free
}

fn length(home: &Path, name: &str) -> u64 {
    fs::metadata(home.join("data").join(name)).map_or(0, |meta| meta.len())
}

/// Who keeps the log, as the API, the metrics of health and `doctor` say it.
fn assert_named(process: &Process, home: &Path) {
    let us = format!("process {}", std::process::id());
    let reader = |process: &Process| process.call("GET", "/v1/stats", &Value::Null).json();
    until("the reader is named", || {
        reader(process)["log_reader"].as_str().is_some_and(|reader| reader.contains(&us))
    });
    let ready = process.call("GET", "/readyz?verbose", &Value::Null).json();
    let checks = ready["checks"].as_array().unwrap();
    let log = checks.iter().find(|check| check["name"] == "log").unwrap();
    assert!(log["state"] == "warn" && !log.to_string().contains(&us), "{log}");
    let run = |command: &[&str]| {
        let mut oncebox = Command::new(env!("CARGO_BIN_EXE_oncebox"));
        oncebox.arg("--config").arg(home.join("oncebox.toml"));
        let output = oncebox.arg("--data").arg(home.join("data")).args(command).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let doctor = run(&["doctor"]);
    let line = doctor.lines().find(|line| line.contains(" log ")).unwrap();
    assert!(line.starts_with("warn") && line.contains(&us), "{line}");
    assert!(run(&["status"]).contains(&us));
}

fn a_reader_pins_the_log(is_failing: bool) {
    let Some(tmpfs) = Tmpfs::mount(96) else { return };
    let home = tmpfs.path();
    set_up(home);
    let receiver = Receiver::new();
    let open = Arc::new(AtomicBool::new(!is_failing));
    let is_open = Arc::clone(&open);
    let reply = move || if is_open.load(Ordering::SeqCst) { 200 } else { 500 };
    receiver.decide(move |_| Reply::status(reply()));
    let process = Process::start(home);
    process.subscribe(&receiver.url());
    // Attempts go on although all of them fail.
    let policy = json!({ "policy": { "breaker_after": 0 } });
    process.call("PATCH", "/v1/subscriptions/erp", &policy).is(200);
    assert_eq!(publish(&process, "first"), 201);

    let reader = file::open(&home.join("data/oncebox.db"));
    reader.run("BEGIN; SELECT count(*) FROM outbox;");
    let mut acknowledged = publish_until_refused(&process);
    acknowledged.insert("first".to_owned());
    assert!(length(home, "oncebox.db-wal") > 6 << 20, "the log was pinned");
    // Outcomes go on; they do not take the room that emptying the log needs.
    let seen = receiver.count();
    until("deliveries go on", || !is_failing || receiver.count() > seen + 100);
    assert!(free(home) > 4 << 20, "{} left", free(home));
    assert_named(&process, home);

    drop(reader);
    for n in 0..20 {
        let key = format!("after-{n}");
        until("it takes events again", || publish(&process, &key) == 201);
        acknowledged.insert(key);
    }
    open.store(true, Ordering::SeqCst);
    process.finish();
    check(home, &receiver, &acknowledged);
}

#[test]
fn a_reader_stops_new_work_only_for_as_long_as_it_reads() {
    a_reader_pins_the_log(false);
}

#[test]
fn a_reader_beside_failing_deliveries_does_not_fill_the_disk() {
    for _ in 0..number("ONCEBOX_KILLS", 1) {
        a_reader_pins_the_log(true);
    }
}

#[test]
fn a_small_disk_holds_events_and_not_the_log() {
    let Some(tmpfs) = Tmpfs::mount(32) else { return };
    let home = tmpfs.path();
    set_up(home);
    let receiver = Receiver::new();
    let process = Process::start(home);
    process.subscribe(&receiver.url());
    let acknowledged = publish_until_refused(&process);
    process.finish();
    // A quarter is the reserve; at most 4 MB are lost to the log and to what came within a second.
    assert!(length(home, "oncebox.db") > 18 << 20, "{}", length(home, "oncebox.db"));
    assert!(free(home) < 13 << 20, "{} left", free(home));
    check(home, &receiver, &acknowledged);
}

#[test]
fn a_log_that_does_not_fit_is_left_to_the_next_start() {
    let Some(tmpfs) = Tmpfs::mount(64) else { return };
    let home = tmpfs.path();
    set_up(home);
    let receiver = Receiver::new();
    let process = Process::start(home);
    process.subscribe(&receiver.url());
    assert_eq!(publish(&process, "first"), 201);
    let reader = file::open(&home.join("data/oncebox.db"));
    reader.run("BEGIN; SELECT count(*) FROM outbox;");
    let mut acknowledged = publish_until_refused(&process);
    acknowledged.insert("first".to_owned());
    // Somebody else takes the room that the log was promised.
    let ballast = home.join("ballast");
    let left = usize::try_from(free(home)).unwrap().saturating_sub(256 << 10);
    fs::write(&ballast, vec![0; left]).unwrap();
    let before = length(home, "oncebox.db");
    drop(reader);
    process.stop();
    assert_eq!(length(home, "oncebox.db"), before, "nothing was copied");
    assert!(length(home, "oncebox.db-wal") > 4 << 20);

    fs::remove_file(&ballast).unwrap();
    let process = Process::start(home);
    until("it takes events again", || publish(&process, "after") == 201);
    acknowledged.insert("after".to_owned());
    process.finish();
    check(home, &receiver, &acknowledged);
}
