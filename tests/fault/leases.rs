//! kill -9 while consumers have leases.

use crate::fault::process::prelude::*;

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
    process.post("/v1/subscriptions", &pull);
    let events: Vec<Value> = (0..EVENTS)
        .map(|n| json!({ "event_type": "a", "ordering_key": format!("k{}", n % KEYS), "payload": n }))
        .collect();
    process.post("/v1/events", &json!(events));
    let mut done: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for _ in 0..EVENTS / KEYS {
        let first = next(&process, 2);
        process = process.killed(home.path());
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
    process.finish_and_check(home.path());
}

/// Waits so long for events that a kill comes first; what was given, if an answer came.
fn waits(process: &Process) -> impl FnOnce() -> Vec<Value> + Send + use<> {
    let (address, token) = (process.address, process.token());
    move || {
        let answer =
            call(address, &token, "GET", "/v1/consumers/erp/next?max=2&wait=30", &Value::Null);
        let items = answer.ok().filter(|answer| answer.status == 200);
        items.map_or_else(Vec::new, |answer| answer.json()["items"].as_array().unwrap().clone())
    }
}

#[test]
fn a_kill_while_requests_wait_loses_nothing_whether_it_was_handed_out_or_not() {
    const ROUNDS: usize = 5;
    let home = tempfile::tempdir().unwrap();
    let mut process = Process::start(home.path());
    let policy = json!({ "lease": "1s" });
    let pull = json!({ "name": "erp", "target": "pull", "policy": policy });
    process.post("/v1/subscriptions", &pull);
    for round in 0..ROUNDS {
        let waiters = [waits(&process), waits(&process), waits(&process)];
        let waiters = waiters.map(thread::spawn);
        // A lease of the round before may end meanwhile, and somebody has its event at once.
        until("they wait", || {
            let stats = process.call("GET", "/v1/stats", &Value::Null).json();
            let answered = waiters.iter().filter(|waiter| waiter.is_finished()).count();
            stats["consumers_waiting"].as_u64().unwrap() + u64::try_from(answered).unwrap() >= 3
        });
        // Nothing came for those of the first round; for the others it comes with the kill.
        if round > 0 {
            let event = json!({ "event_type": "a", "payload": round });
            let events = json!([event, event, event, event]);
            process.post("/v1/events", &events);
        }
        process.kill();
        let given: Vec<Value> =
            waiters.into_iter().flat_map(|waiter| waiter.join().unwrap()).collect();
        assert!(round > 0 || given.is_empty());
        process = Process::start(home.path());
        if !given.is_empty() {
            ack(&process, &given);
        }
    }
    // What was leased for an answer that never arrived is given again when the lease is over.
    until("all is done", || {
        let left = next(&process, 100);
        if !left.is_empty() {
            ack(&process, &left);
        }
        let stats = process.call("GET", "/v1/stats", &Value::Null).json();
        (stats["pending"].as_u64(), stats["leased"].as_u64()) == (Some(0), Some(0))
    });
    process.stop();
    let path = home.path().join("data/oncebox.db");
    file::check(&path);
    let done =
        "SELECT count(*), count(DISTINCT delivery_seq) FROM attempts WHERE class = 'success'";
    let events = 4 * (ROUNDS - 1);
    assert_eq!(file::lines(&file::open(&path), done), [format!("{events} {events}")]);
}
