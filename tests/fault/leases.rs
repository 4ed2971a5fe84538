//! kill -9 while consumers have leases.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::process::Process;
use crate::rig::{file, until};

const KEYS: usize = 4;
const EVENTS: usize = 24;

fn next(process: &Process, most: usize) -> Vec<Value> {
    let path = format!("/v1/consumers/erp/next?max={most}");
    let answer = process.call("GET", &path, &Value::Null).is(200).json();
    answer["items"].as_array().unwrap().clone()
}

fn ack(process: &Process, items: &[Value]) {
    let word = |item: &Value| json!({ "delivery": item["delivery"], "lease": item["lease"] });
    let body = json!({ "items": items.iter().map(word).collect::<Vec<_>>() });
    let heard = process.call("POST", "/v1/consumers/erp/ack", &body).is(200).json();
    let heard = heard["items"].as_array().unwrap();
    assert!(heard.iter().all(|one| one["state"] == "completed"), "{heard:?}");
}

#[test]
fn a_kill_ends_no_lease_gives_nothing_twice_and_breaks_no_order() {
    let home = tempfile::tempdir().unwrap();
    let mut process = Process::start(home.path());
    let pull = json!({ "name": "erp", "target": "pull", "ordering": "key" });
    process.call("POST", "/v1/subscriptions", &pull).is(201);
    let events: Vec<Value> = (0..EVENTS)
        .map(|n| json!({ "event_type": "a", "ordering_key": format!("k{}", n % KEYS), "payload": n }))
        .collect();
    process.call("POST", "/v1/events", &json!(events)).is(201);
    let mut done: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for _ in 0..EVENTS / KEYS {
        let first = next(&process, 2);
        process.kill();
        process = Process::start(home.path());
        // The other keys' heads, and nothing that somebody has or that stands behind it.
        let second = next(&process, 100);
        assert_eq!((first.len(), second.len()), (2, KEYS - 2));
        for item in first.iter().chain(&second) {
            let n = usize::try_from(item["payload"].as_u64().unwrap()).unwrap();
            assert_eq!(item["attempt"], 1);
            done.entry(n % KEYS).or_default().push(n);
        }
        ack(&process, &first);
        ack(&process, &second);
    }
    for (key, numbers) in done {
        let wanted: Vec<usize> = (key..EVENTS).step_by(KEYS).collect();
        assert_eq!(numbers, wanted);
    }
    until("nothing is left", || process.pending() == Some(0));
    process.stop();
    file::check(&home.path().join("data/oncebox.db"));
}
