//! kill -9 while a target still has to confirm what it accepted.

use crate::fault::process::prelude::*;

#[test]
fn a_kill_neither_ends_nor_repeats_what_waits_for_its_confirmation() {
    let home = tempfile::tempdir().unwrap();
    let receiver = Receiver::new();
    let mut process = Process::start(home.path());
    let body = json!({
        "name": "erp", "url": receiver.url(), "ordering": "strict", "policy": { "confirm_within": "1h" },
    });
    process.post("/v1/subscriptions", &body);
    let event = json!({ "event_type": "a", "payload": 1 });
    process.post("/v1/events", &json!([event, event, event]));
    for delivery in 1..=3 {
        let path = format!("/v1/deliveries/dlv_{delivery}");
        let state =
            |process: &Process| process.call("GET", &path, &Value::Null).json()["state"].clone();
        until("it waits", || state(&process) == "waiting");
        let sent = receiver.count();
        process = process.killed(home.path());
        assert_eq!((state(&process), receiver.count()), (json!("waiting"), sent));
        process.call("POST", &format!("{path}/confirm"), &json!({ "result": "ok" })).is(200);
        process = process.killed(home.path());
        assert_eq!(state(&process), "completed");
    }
    process.stop();
    // The next one may be on its way when the process is killed; it is sent again under its id.
    let requests = receiver.seen();
    let ids: BTreeSet<&str> = requests.iter().filter_map(|one| one.field("webhook-id")).collect();
    assert_eq!(ids.len(), 3);
    file::check(&home.path().join("data/oncebox.db"));
}
