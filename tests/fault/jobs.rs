//! kill -9 in the middle of a job.

use crate::fault::process::prelude::*;

const EVENTS: usize = 450;

fn count(process: &Process, path: &str) -> Option<u64> {
    let found = process.try_call("GET", path, &Value::Null).ok()?.json();
    found["done"].as_u64()
}

#[test]
fn a_job_that_is_killed_goes_on_and_opens_every_delivery_once() {
    let home = tempfile::tempdir().unwrap();
    let receiver = Receiver::new();
    let mut process = Process::start(home.path());
    // What it names no event has: all die without being sent.
    let url = format!("{}/{{aggregate_id}}", receiver.url());
    for (name, ordering) in [("erp", "strict"), ("shop", "key"), ("log", "none")] {
        let body = json!({
            "name": name, "url": url, "ordering": ordering, "order": { "head_of_line": "skip" },
        });
        process.post("/v1/subscriptions", &body);
    }
    let events: Vec<Value> = (0..EVENTS)
        .map(|n| json!({ "event_type": "a", "ordering_key": format!("k{}", n % 7), "payload": n }))
        .collect();
    process.post("/v1/events", &json!(events));
    let dead = |process: &Process| {
        let stats = process.call("GET", "/v1/stats", &Value::Null).json();
        stats["dead_letters"].as_u64() == Some(3 * 450)
    };
    until("all are dead", || dead(&process));
    for name in ["erp", "shop", "log"] {
        let path = format!("/v1/subscriptions/{name}");
        let url = format!("{}/{name}", receiver.url());
        process.call("PATCH", &path, &json!({ "url": url })).is(200);
    }
    let database = home.path().join("data/oncebox.db");
    let body = json!({ "filter": {}, "rate": 2000 });
    let job = process.post("/v1/dead-letters/replay", &body);
    let path = format!("/v1/jobs/{}", job["id"].as_str().unwrap());
    for enough in [1, 250, 500, 750, 1000] {
        until("it is further", || count(&process, &path).is_some_and(|done| done >= enough));
        process = process.killed(home.path());
        // What is in flight at two kills in a row is given up. So all that was open gets through before the next one.
        let conn = file::open(&database);
        let open = "SELECT coalesce(group_concat(seq), 0) FROM deliveries WHERE state = 'pending'";
        let open = file::lines(&conn, open).concat();
        let left =
            format!("SELECT count(*) FROM deliveries WHERE state = 'pending' AND seq IN ({open})");
        until("what was open is through", || file::lines(&conn, &left) == ["0"]);
    }
    until("it is over", || process.call("GET", &path, &Value::Null).json()["state"] == "completed");
    let job = process.call("GET", &path, &Value::Null).json();
    assert_eq!(
        ["done", "skipped", "deliveries"].map(|f| job[f].as_u64().unwrap()),
        [1350, 0, 1350]
    );
    process.finish();

    file::check(&database);
    let runs = file::lines(
        &file::open(&database),
        "SELECT DISTINCT run_no, state FROM deliveries ORDER BY 1, 2",
    );
    assert_eq!(runs, ["2 completed"], "each was opened once");
    check_order(&receiver);
}

/// In each lane the first requests came in the order of the events; what was in flight at a kill came twice.
fn check_order(receiver: &Receiver) {
    let mut lanes: BTreeMap<(String, usize), Vec<usize>> = BTreeMap::new();
    for request in receiver.seen() {
        let n: usize = String::from_utf8_lossy(&request.body).parse().unwrap();
        let to = request.first_line.split(' ').nth(1).unwrap().to_owned();
        let key = if to.ends_with("/shop") { n % 7 } else { 0 };
        let lane = lanes.entry((to, key)).or_default();
        if !lane.contains(&n) {
            lane.push(n);
        }
    }
    assert_eq!(lanes.values().map(Vec::len).sum::<usize>(), 3 * EVENTS);
    for ((to, key), numbers) in lanes {
        assert!(to.ends_with("/log") || numbers.is_sorted(), "{to} {key}: {numbers:?}");
    }
}
