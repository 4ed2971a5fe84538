//! kill -9 while rows that plain SQL inserted are not routed yet.

use std::collections::BTreeSet;

use rusqlite::Connection;

use crate::process::Process;
use crate::rig::receiver::Receiver;
use crate::rig::{file, until};

#[test]
fn rows_inserted_by_plain_sql_survive_any_kill_and_become_one_event_each() {
    let home = tempfile::tempdir().unwrap();
    let receiver = Receiver::new();
    let mut process = Process::start(home.path());
    process.subscribe(&receiver.url());
    let path = home.path().join("data/oncebox.db");
    let mut count = 0;
    for kill in 0..6 {
        let erp = Connection::open(&path).unwrap();
        erp.busy_timeout(std::time::Duration::from_secs(10)).unwrap();
        erp.execute_batch(&format!(
            "INSERT INTO outbox (event_type, idempotency_key, payload)
             WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400)
             SELECT 'bulk', 'key-{kill}-' || i, '{{}}' FROM n"
        ))
        .unwrap();
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
