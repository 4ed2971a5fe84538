//! kill -9 while families are stored and delivered: no parent is left waiting, and none completes too early.

use crate::fault::process::prelude::*;

/// A parent with two hard children and a grandchild.
fn family(n: usize) -> Value {
    let event = |name: &str, parent: Option<&str>| {
        let key = format!("{name}-{n}");
        let mut event = json!({ "event_type": name, "idempotency_key": key, "payload": n });
        if let Some(parent) = parent {
            event["parent_key"] = format!("{parent}-{n}").into();
            event["parent_binding"] = "hard".into();
        }
        event
    };
    json!([
        event("order", None),
        event("line", Some("order")),
        event("invoice", Some("order")),
        event("payment", Some("invoice")),
    ])
}

#[test]
fn a_parent_completes_over_kills_when_its_children_have() {
    let receiver = Receiver::new();
    let (home, mut process) = Process::subscribed(&receiver);
    for round in 1..=3 {
        for n in 0..round * 40 {
            let stored = process.call("POST", "/v1/events", &family(n));
            assert!(matches!(stored.status, 200 | 201), "{stored:?}");
        }
        until("some are sent", || receiver.count() >= round * 50);
        process.kill();
        file::check(&home.path().join("data/oncebox.db"));
        process = Process::start(home.path());
    }
    process.finish();
    let database = home.path().join("data/oncebox.db");
    file::check(&database);
    let found = "SELECT event_type, status, count(*), sum(hard_children) FROM outbox GROUP BY 1, 2";
    assert_eq!(
        file::lines(&file::open(&database), found),
        [
            "invoice completed 120 120",
            "line completed 120 0",
            "order completed 120 240",
            "payment completed 120 0"
        ]
    );
}
