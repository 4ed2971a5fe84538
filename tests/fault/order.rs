//! Order under kill -9: lanes whose target fails three times in ten. `ONCEBOX_ORDER_EVENTS` and `ONCEBOX_ORDER_LANES` say
//! how many; 200,000 events in 500 lanes take some minutes.

use crate::fault::process::prelude::*;

/// Events of one request.
const BATCH: u64 = 500;
/// Failures in a row that the target allows itself: eight would make a delivery poison.
const MAX_FAILURES: u32 = 4;

/// What the target has accepted, lane by lane.
#[derive(Debug)]
struct Arrivals {
    /// How many events of each lane were accepted, and failures since.
    lanes: Vec<(u64, u32)>,
    accepted: u64,
    requests: u64,
    wrong: Vec<String>,
    random: u64,
}

impl Arrivals {
    /// An event is accepted after the one before it in its lane. Only the latest may come again.
    fn take(&mut self, body: &Value) -> Reply {
        let (lane, n) = (body["lane"].as_u64().unwrap(), body["n"].as_u64().unwrap());
        self.requests += 1;
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let (last, failures) = &mut self.lanes[usize::try_from(lane).unwrap()];
        if n != *last && n != *last + 1 {
            self.wrong.push(format!("{n} of lane {lane} came after {last}"));
        }
        if (self.random >> 33) % 10 < 3 && *failures < MAX_FAILURES {
            *failures += 1;
            return Reply::status(503);
        }
        self.accepted += u64::from(n > *last);
        (*last, *failures) = (n.max(*last), 0);
        Reply::status(200)
    }
}

#[test]
fn nothing_arrives_out_of_order_across_failures_and_kills() {
    let events = number("ONCEBOX_ORDER_EVENTS", 1200);
    let lanes = number("ONCEBOX_ORDER_LANES", 30);
    let home = tempfile::tempdir().unwrap();
    let (receiver, began) = (Receiver::new(), Instant::now());
    let lane_count = usize::try_from(lanes).unwrap();
    let arrivals = Arc::new(Mutex::new(Arrivals {
        lanes: vec![(0, 0); lane_count],
        accepted: 0,
        requests: 0,
        wrong: Vec::new(),
        random: 1,
    }));
    let shared = Arc::clone(&arrivals);
    receiver.decide(move |request| {
        shared.lock().unwrap().take(&serde_json::from_slice(&request.body).unwrap())
    });
    let mut process = Process::start(home.path());
    let terms = json!({
        "name": "erp", "url": receiver.url(), "ordering": "key",
        "policy": { "breaker_after": 0, "in_flight_max": 64 },
    });
    process.post("/v1/subscriptions", &terms);
    let (mut published, mut kills, mut retried) = (0, 0_u64, 0);
    while arrivals.lock().unwrap().accepted < events {
        let next_kill = Instant::now() + ms(1000);
        while Instant::now() < next_kill && published < events {
            published += publish(&process, published, events, lanes);
        }
        thread::sleep(next_kill.saturating_duration_since(Instant::now()));
        process.kill();
        kills += 1;
        process = Process::start(home.path());
        assert_eq!(arrivals.lock().unwrap().wrong, [""; 0]);
        retried += retry_dead_letters(&process);
    }
    process.finish();
    let arrivals = arrivals.lock().unwrap();
    assert_eq!(arrivals.wrong, [""; 0]);
    assert!(arrivals.lanes.iter().all(|(last, _)| *last >= events / lanes), "nothing is missing");
    println!(
        "{events} events in {lanes} lanes, {} requests, {kills} kills, {retried} set aside and \
         retried, {} s: none out of order",
        arrivals.requests,
        began.elapsed().as_secs()
    );
    file::check(&home.path().join("data/oncebox.db"));
}

/// Retries what was under way at two kills in a row, as a person does: it is set aside then, and its lane waits. Returns
/// how many.
fn retry_dead_letters(process: &Process) -> u64 {
    let found = process.call("GET", "/v1/dead-letters", &Value::Null).is(200).json();
    let mut retried = 0;
    for letter in found["items"].as_array().unwrap() {
        assert_eq!(letter["last_class"], "poison", "{letter}");
        let id = letter["id"].as_str().unwrap();
        process.call("POST", &format!("/v1/deliveries/{id}/retry"), &json!({})).is(200);
        retried += 1;
    }
    retried
}

/// Publishes the next batch; returns how many are acknowledged.
fn publish(process: &Process, from: u64, events: u64, lanes: u64) -> u64 {
    let until = (from + BATCH).min(events);
    let batch: Vec<Value> = (from..until)
        .map(|i| {
            let (lane, n) = (i % lanes, i / lanes + 1);
            json!({
                "event_type": "a", "idempotency_key": format!("k{i}"),
                "ordering_key": lane.to_string(), "payload": { "lane": lane, "n": n },
            })
        })
        .collect();
    process.post("/v1/events", &json!(batch));
    until - from
}
