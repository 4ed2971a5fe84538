//! A full disk: nothing acknowledged is lost, and what is refused is told so.

use crate::fault::process::prelude::*;

/// Publishes until it is refused; returns the keys that were acknowledged.
fn publish_until_full(process: &Process, name: &str) -> BTreeSet<String> {
    let mut acknowledged = BTreeSet::new();
    for n in 0..2000 {
        let key = format!("{name}-{n}");
        let payload = "x".repeat(10_000);
        let event = json!({ "event_type": "a", "idempotency_key": key, "payload": payload });
        let answer = process.call("POST", "/v1/events", &event);
        if answer.status == 507 {
            assert_eq!(answer.field("retry-after"), Some("60"));
            assert!(answer.detail().contains("free some disk space"), "{}", answer.detail());
            return acknowledged;
        }
        assert_eq!(answer.status, 201, "{answer:?}");
        acknowledged.insert(key);
    }
    panic!("the disk was never full");
}

/// Asserts that every acknowledged event is there, and was delivered.
pub(crate) fn check(home: &Path, receiver: &Receiver, acknowledged: &BTreeSet<String>) {
    let database = home.join("data/oncebox.db");
    file::check(&database);
    let sql = "SELECT idempotency_key FROM outbox WHERE status = 'completed'";
    let completed: BTreeSet<String> =
        file::lines(&file::open(&database), sql).into_iter().collect();
    let lost: Vec<_> = acknowledged.difference(&completed).collect();
    assert!(lost.is_empty(), "{lost:?}");
    let keys =
        receiver.seen().into_iter().map(|r| r.field("x-idempotency-key").unwrap().to_owned());
    let delivered: BTreeSet<String> = keys.collect();
    assert!(acknowledged.is_subset(&delivered));
}

#[test]
fn a_file_that_may_not_grow_is_answered_507_and_goes_on_after_a_restart_with_room() {
    let home = tempfile::tempdir().unwrap();
    let receiver = Receiver::new();
    let process = Process::start_limited(home.path(), Some(2 << 20));
    process.subscribe(&receiver.url());
    let mut acknowledged = publish_until_full(&process, "before");
    assert!(acknowledged.len() > 10, "{acknowledged:?}");
    // It answers on, and takes nothing it cannot keep.
    process.call("GET", "/livez", &Value::Null).is(200);
    process.kill();

    let process = Process::start(home.path());
    let event = json!({ "event_type": "a", "idempotency_key": "after", "payload": 1 });
    process.post("/v1/events", &event);
    acknowledged.insert("after".to_owned());
    process.finish();
    check(home.path(), &receiver, &acknowledged);
}

#[test]
fn a_stop_ends_although_the_disk_takes_no_outcome() {
    let home = tempfile::tempdir().unwrap();
    let receiver = Receiver::new();
    let process = Process::start_limited(home.path(), Some(2 << 20));
    process.subscribe(&receiver.url());
    let acknowledged = publish_until_full(&process, "before");
    process.stop();
    let process = Process::start(home.path());
    process.finish();
    check(home.path(), &receiver, &acknowledged);
}

#[test]
fn a_log_that_cannot_be_written_stops_nothing() {
    let home = tempfile::tempdir().unwrap();
    let receiver = Receiver::new();
    // Every write to it fails as on a full disk.
    let process = Process::start_logging_to(home.path(), None, "/dev/full".into(), None);
    process.subscribe(&receiver.url());
    let provider = json!({
        "name": "plain", "pii": "allow", "secret": "a-shared-secret-of-32-characters",
        "scheme": { "kind": "generic", "check": { "token": { "header": "X-Token" } } }
    });
    process.post("/v1/providers", &provider);
    // A refusal is logged.
    process.call("POST", "/in/plain", &json!({})).is(401);
    process.post("/v1/events", &json!({ "event_type": "a", "payload": 1 }));
    until("it is delivered", || receiver.count() == 1);
    process.stop();
}

/// A small file system in memory, unmounted at the end; says why where there can be none.
pub(crate) struct Tmpfs(TempDir);

impl Tmpfs {
    pub(crate) fn mount(megabytes: u32) -> Option<Self> {
        let place = tempfile::tempdir().unwrap();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={megabytes}m"), "tmpfs"])
            .arg(place.path())
            .output();
        match mount {
            Ok(output) if output.status.success() => Some(Self(place)),
            Ok(output) => {
                println!("skipped: mount: {}", String::from_utf8_lossy(&output.stderr).trim());
                None
            }
            Err(error) => {
                println!("skipped: mount: {error}");
                None
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(self.0.path()).status());
    }
}

#[test]
fn a_full_disk_is_answered_507_and_goes_on_by_itself_when_there_is_room() {
    let Some(tmpfs) = Tmpfs::mount(8) else { return };
    let home = tmpfs.0.path();
    let receiver = Receiver::new();
    let process = Process::start(home);
    process.subscribe(&receiver.url());
    let ballast = home.join("ballast");
    fs::write(&ballast, vec![0; 5 << 20]).unwrap();
    let mut acknowledged = publish_until_full(&process, "before");
    fs::remove_file(&ballast).unwrap();
    let event = json!({ "event_type": "a", "idempotency_key": "after", "payload": 1 });
    until("it takes events again", || process.call("POST", "/v1/events", &event).status == 201);
    acknowledged.insert("after".to_owned());
    process.finish();
    check(home, &receiver, &acknowledged);
}

#[test]
fn below_the_reserve_new_work_waits_outside_and_what_is_there_goes_on() {
    let Some(tmpfs) = Tmpfs::mount(80) else { return };
    let home = tmpfs.0.path();
    // The budget of the product: a quarter of these eighty megabytes.
    fs::write(home.join("oncebox.toml"), SOON.replace("[disk]\nreserve = 0\n", "")).unwrap();
    let receiver = Receiver::new();
    let open = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&open);
    receiver.decide(move |_| Reply::status(if told.load(Ordering::SeqCst) { 200 } else { 500 }));
    let process = Process::start(home);
    process.subscribe(&receiver.url());
    let event = json!({ "event_type": "a", "idempotency_key": "before", "payload": 1 });
    process.post("/v1/events", &event);
    until("it is tried", || receiver.count() > 0);

    let ballast = home.join("ballast");
    fs::write(&ballast, vec![0; 62 << 20]).unwrap();
    let event = json!({ "event_type": "a", "idempotency_key": "during", "payload": 1 });
    let mut refused = None;
    until("new work is refused", || {
        refused = Some(process.call("POST", "/v1/events", &event)).filter(|a| a.status == 507);
        refused.is_some()
    });
    assert_eq!(refused.unwrap().field("retry-after"), Some("60"));
    // There is room still: what was refused was refused for the reserve, and results find it.
    open.store(true, Ordering::SeqCst);
    until("what was there is delivered", || process.pending() == Some(0));
    let event = json!({ "event_type": "a", "idempotency_key": "after", "payload": 1 });
    process.call("POST", "/v1/events", &event).is(507);

    fs::remove_file(&ballast).unwrap();
    until("it takes events again", || process.call("POST", "/v1/events", &event).status == 201);
    process.stop();
    let before = BTreeSet::from(["before".to_owned()]);
    check(home, &receiver, &before);
}

#[test]
fn a_machine_is_not_measured_on_a_disk_without_room() {
    let Some(tmpfs) = Tmpfs::mount(80) else { return };
    let mut bench = Command::new(env!("CARGO_BIN_EXE_oncebox"));
    let output = bench.args(["bench", "--dir"]).arg(tmpfs.path()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("has 80 MB free, and a run asks for 512 MB"), "{said}");
    assert_eq!(fs::read_dir(tmpfs.path()).unwrap().count(), 0);
}
