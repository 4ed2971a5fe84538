//! kill -9 while rows that plain SQL inserted are not routed yet, and starts beside programs that lock the file.

use crate::fault::process::prelude::*;

#[test]
fn rows_inserted_by_plain_sql_survive_any_kill_and_become_one_event_each() {
    let receiver = Receiver::new();
    let (home, mut process) = Process::subscribed(&receiver);
    let path = home.path().join("data/oncebox.db");
    let mut count = 0;
    for kill in 0..6 {
        let erp = Connection::open(&path).unwrap();
        erp.busy_timeout(Duration::from_mins(1)).unwrap();
        erp.run(&format!(
            "INSERT INTO outbox (event_type, idempotency_key, payload)
             WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400)
             SELECT 'bulk', 'key-{kill}-' || i, '{{}}' FROM n"
        ));
        count += 400;
        // The first kill comes at once, the next after some of them were sent.
        let sent = receiver.count();
        until("some are sent", || kill == 0 || receiver.count() > sent + 20 * kill);
        process.kill();
        drop(erp);
        process = Process::start(home.path());
    }
    let ids = |receiver: &Receiver| -> BTreeSet<String> {
        let seen = receiver.seen();
        seen.iter().map(|request| request.field("webhook-id").unwrap().to_owned()).collect()
    };
    until("every event is delivered", || ids(&receiver).len() >= count);
    until("nothing is left", || process.pending() == Some(0));
    assert_eq!(ids(&receiver).len(), count);
    process.stop();
    file::check(&path);
}

#[test]
fn a_service_starts_beside_an_erp_that_goes_from_one_long_transaction_to_the_next() {
    let home = tempfile::tempdir().unwrap();
    let process = Process::start(home.path());
    let path = home.path().join("data/oncebox.db");
    let is_over = AtomicBool::new(false);
    let process = thread::scope(|threads| {
        threads.spawn(|| {
            let erp = Connection::open(&path).unwrap();
            erp.busy_timeout(Duration::from_mins(1)).unwrap();
            // Not for ever: a start that fails would never tell that it is over.
            for () in std::iter::repeat_n((), 200).take_while(|()| !is_over.load(Ordering::Relaxed))
            {
                erp.run("BEGIN IMMEDIATE");
                erp.run("INSERT INTO outbox (event_type, payload) VALUES ('a', '{}')");
                thread::sleep(Duration::from_millis(300));
                erp.run("COMMIT");
                // The pause that docs/plain-sql.md asks for.
                thread::sleep(Duration::from_millis(5));
            }
        });
        let started = (0..3).fold(process, |process, _| {
            process.kill();
            Process::start(home.path())
        });
        is_over.store(true, Ordering::Relaxed);
        started
    });
    process.stop();
    file::check(&path);
}

#[test]
fn a_start_waits_for_a_program_that_keeps_the_lock_and_ends_at_once_when_it_is_asked_to() {
    let home = tempfile::tempdir().unwrap();
    Process::start(home.path()).kill();
    let path = home.path().join("data/oncebox.db");
    let erp = Connection::open(&path).unwrap();
    erp.run("BEGIN IMMEDIATE");
    let log = home.path().join("log");
    let mut waiting = Command::new(env!("CARGO_BIN_EXE_oncebox"))
        .args(["serve", "--config"])
        .arg(home.path().join("oncebox.toml"))
        .arg("--data")
        .arg(home.path().join("data"))
        .stdout(Stdio::null())
        .stderr(fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    until("it says what it waits for", || {
        assert_eq!(waiting.try_wait().unwrap(), None, "it did not wait");
        fs::read_to_string(&log).unwrap().contains("keeps the database locked")
    });
    let id = waiting.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    until("it ends", || waiting.try_wait().unwrap().is_some());
    thread::scope(|threads| {
        let start = threads.spawn(|| Process::start(home.path()));
        thread::sleep(Duration::from_secs(3));
        erp.run("COMMIT");
        start.join().unwrap().stop();
    });
    file::check(&path);
}
