//! Alerts and kill -9: an alert is told once under one id, whenever the process dies.

use crate::fault::process::prelude::*;

fn database(home: &Path) -> PathBuf {
    home.join("data/oncebox.db")
}

/// Raises escalations as another program would, also while the service is down.
fn raise(home: &Path, subjects: std::ops::Range<u32>) {
    let conn = Connection::open(database(home)).unwrap();
    conn.busy_timeout(secs(20)).unwrap();
    for n in subjects {
        let sql = format!(
            "INSERT INTO escalations (id, tenant, class, subject, detail, first_at, last_at)
             VALUES ('{n}', 'default', 'source.silent', 'source:s{n}', '', 1, 1)"
        );
        conn.run(&sql);
    }
}

#[test]
fn an_alert_that_was_under_way_at_a_kill_is_told_under_its_id() {
    let home = tempfile::tempdir().unwrap();
    let receiver = Receiver::scripted([Reply::Hang]);
    let process = Process::start(home.path());
    let body = json!({ "name": "ops", "kind": "webhook", "url": receiver.url() });
    process.post("/v1/alert-channels", &body);
    raise(home.path(), 0..1);
    until("the attempt is under way", || receiver.count() == 1);
    process.kill();
    // What is raised while the service is down is told after the next start.
    raise(home.path(), 1..2);
    let process = Process::start(home.path());
    until("both are told", || receiver.count() == 3 && process.pending() == Some(0));
    process.stop();
    let ids: Vec<String> =
        receiver.seen().iter().map(|seen| seen.field("webhook-id").unwrap().to_owned()).collect();
    let mut different = ids.clone();
    different.sort();
    different.dedup();
    assert_eq!(different.len(), 2, "{ids:?}");
    file::check(&database(home.path()));
}

#[test]
fn each_escalation_is_told_once_over_many_kills() {
    const ALL: u32 = 40;
    let home = tempfile::tempdir().unwrap();
    let receiver = Receiver::new();
    let process = Process::start(home.path());
    let body =
        json!({ "name": "ops", "kind": "webhook", "url": receiver.url(), "rate_per_hour": 1000 });
    process.post("/v1/alert-channels", &body);
    let mut process = process;
    for round in 0..4 {
        raise(home.path(), round * 10..(round + 1) * 10);
        // Upkeep looks once a second: it is killed about when it writes.
        let before = receiver.count();
        until("it tells of them", || receiver.count() > before);
        process = process.killed(home.path());
    }
    let conn = file::open(&database(home.path()));
    until("all are told", || {
        file::lines(&conn, "SELECT count(*) FROM alerts") == [ALL.to_string()]
            && process.pending() == Some(0)
    });
    drop(conn);
    process.stop();
    let told =
        "SELECT count(*), count(DISTINCT json_extract(payload, '$.alerts[0].subject')) FROM outbox";
    assert_eq!(file::lines(&file::open(&database(home.path())), told), [format!("{ALL} {ALL}")]);
    file::check(&database(home.path()));
}
