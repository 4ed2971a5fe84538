//! kill -9 while the master key is rotated under load: everything opens, signatures go on.

use crate::fault::process::prelude::*;

/// Subscriptions, and so secrets to seal anew: more than one transaction takes.
const SECRETS: usize = 250;

/// Calls again and again until it is done; how many calls succeeded.
fn repeat(done: &AtomicBool, one: impl Fn(usize) -> std::io::Result<Answer>) -> usize {
    let mut succeeded = 0;
    while !done.load(Ordering::SeqCst) {
        let answer = one(succeeded);
        succeeded += usize::from(answer.is_ok_and(|answer| matches!(answer.status, 200 | 201)));
    }
    succeeded
}

#[test]
fn a_kill_in_the_middle_of_a_rotation_leaves_everything_readable() {
    let home = tempfile::tempdir().unwrap();
    let receiver = Receiver::new();
    let mut process = Process::start(home.path());
    for n in 0..SECRETS {
        let body = json!({ "name": format!("s-{n}"), "url": receiver.url(), "event_types": [format!("t-{n}")] });
        process.post("/v1/subscriptions", &body);
    }
    for round in 0..number("ONCEBOX_KILLS", 2) {
        let (address, token) = (process.address, process.token());
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let load = scope.spawn(|| {
                repeat(&done, |n| {
                    let event = json!({ "event_type": format!("t-{}", n % SECRETS), "payload": 1 });
                    call(address, &token, "POST", "/v1/events", &event)
                })
            });
            let rotation = scope.spawn(|| {
                repeat(&done, |_| call(address, &token, "POST", "/v1/keys/rotate", &Value::Null))
            });
            thread::sleep(ms(20 + round * 31 % 170));
            process.kill();
            done.store(true, Ordering::SeqCst);
            rotation.join().unwrap();
            load.join().unwrap();
        });
        process = Process::start(home.path());
        // The start has brought the rotation to its end: one key seals everything, and the file names it.
        let conn = file::open(&home.path().join("data/oncebox.db"));
        let ids = file::lines(
            &conn,
            "SELECT DISTINCT master_key_id FROM credentials
              UNION SELECT value FROM meta WHERE key = 'master_key_id'",
        );
        assert_eq!(ids.len(), 1, "{ids:?}");
    }
    for n in [0, SECRETS / 2, SECRETS - 1] {
        process.post("/v1/events", &json!({ "event_type": format!("t-{n}"), "payload": 1 }));
    }
    process.finish();
    assert!(receiver.seen().iter().all(|request| request.field("webhook-signature").is_some()));
    let database = home.path().join("data/oncebox.db");
    let failed =
        file::lines(&file::open(&database), "SELECT * FROM attempts WHERE class = 'poison'");
    assert_eq!(failed, [""; 0]);
    file::check(&database);
}

/// By the schedule, and killed at any moment: the next start goes on, and no key is lost.
#[test]
fn a_kill_in_the_middle_of_a_scheduled_rotation_leaves_everything_readable() {
    let home = tempfile::tempdir().unwrap();
    let receiver = Receiver::new();
    let config = format!("{SOON}\n[keys]\nrotate_every = \"1h\"\n");
    fs::write(home.path().join("oncebox.toml"), config).unwrap();
    let mut process = Process::start(home.path());
    for n in 0..SECRETS {
        let body = json!({ "name": format!("s-{n}"), "url": receiver.url(), "event_types": [format!("t-{n}")] });
        process.post("/v1/subscriptions", &body);
    }
    let database = home.path().join("data/oncebox.db");
    let named = || {
        file::lines(&file::open(&database), "SELECT value FROM meta WHERE key = 'master_key_id'")
    };
    let mut keys = vec![named()];
    for round in 0..number("ONCEBOX_KILLS", 2) {
        process.kill();
        let due = "UPDATE meta SET value = 1 WHERE key = 'master_key_since'";
        assert_eq!(Connection::open(&database).unwrap().execute(due, []).unwrap(), 1);
        process = Process::start(home.path());
        let key = home.path().join("data/master.key");
        let before = fs::read(&key).unwrap();
        until("the rotation has begun", || fs::read(&key).unwrap() != before);
        thread::sleep(ms(round * 7 % 40));
        process.kill();
        process = Process::start(home.path());
        until("one key seals everything", || {
            let under = "SELECT count(*) FROM credentials
                          WHERE master_key_id <> (SELECT value FROM meta WHERE key = 'master_key_id')";
            file::lines(&file::open(&database), under) == ["0"] && !keys.contains(&named())
        });
        keys.push(named());
    }
    for n in [0, SECRETS / 2, SECRETS - 1] {
        process.post("/v1/events", &json!({ "event_type": format!("t-{n}"), "payload": 1 }));
    }
    process.finish();
    assert!(receiver.seen().iter().all(|request| request.field("webhook-signature").is_some()));
    file::check(&database);
}

#[test]
fn the_chain_of_audit_events_holds_over_kills_in_the_middle_of_changes() {
    let receiver = Receiver::new();
    let (home, mut process) = Process::subscribed(&receiver);
    let mut acknowledged = 0_usize;
    for round in 0..number("ONCEBOX_KILLS", 2) {
        let (address, token) = (process.address, process.token());
        let done = AtomicBool::new(false);
        let first = AtomicBool::new(false);
        acknowledged += thread::scope(|scope| {
            let workers = ["pause", "resume", "pause", "resume"].map(|verb| {
                let token = token.as_str();
                let done = &done;
                let first = &first;
                let path = format!("/v1/subscriptions/erp/{verb}");
                let change = move |succeeded| {
                    first.fetch_or(succeeded > 0, Ordering::SeqCst);
                    call(address, token, "POST", &path, &Value::Null)
                };
                scope.spawn(move || repeat(done, change))
            });
            until("a change is acknowledged", || first.load(Ordering::SeqCst));
            thread::sleep(ms(round * 37 % 150));
            process.kill();
            done.store(true, Ordering::SeqCst);
            workers.into_iter().map(|worker| worker.join().unwrap()).sum::<usize>()
        });
        process = Process::start(home.path());
    }
    process.stop();
    let database = home.path().join("data/oncebox.db");
    file::check(&database);
    let conn = file::open(&database);
    let rows =
        file::lines(&conn, "SELECT seq FROM audit_events WHERE action GLOB 'subscription.[pr]*'");
    assert!(acknowledged > 0 && rows.len() >= acknowledged, "{} < {acknowledged}", rows.len());
}
