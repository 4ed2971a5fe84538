//! A wall clock that is set a day forward or back while deliveries wait.

use crate::rig::prelude::*;

const DAY: u64 = 86_400;

/// Ten deliveries that wait 5 s for their retry, and ten not to be sent before an hour has passed.
fn waiting() -> (Rig, Receiver) {
    let (rig, receiver) = Rig::subscribed_to("erp", Receiver::with(Reply::status(500)));
    rig.publish_types(&["retried"; 10]);
    rig.settle();
    let later = START.plus(secs(3600));
    for _ in 0..10 {
        rig.publish(&json!({ "event_type": "later", "payload": 1, "not_before": later }));
    }
    receiver.always(Reply::status(200));
    (rig, receiver)
}

/// Sets the wall clock and waits until that was noticed.
fn set(rig: &Rig, wall: Timestamp) {
    rig.time.set_wall(wall);
    let key = format!("probe-{wall}");
    until("the step is taken over", || {
        // A fresh delivery's due time is schedule time.
        rig.call("POST", "/v1/subscriptions/erp/pause", b"").is(200);
        let event = json!({ "event_type": "probe", "payload": 1, "not_before": null });
        let id = text(&rig.publish(&event), "id");
        let of = format!(
            "FROM deliveries WHERE outbox_seq = (SELECT seq FROM outbox WHERE id = '{id}')"
        );
        let due: i64 = rig.one(&format!("SELECT due_at {of}")).parse().unwrap();
        let seq = rig.one(&format!("SELECT seq {of}"));
        rig.call("POST", &format!("/v1/deliveries/{seq}/cancel"), b"").is(200);
        due == wall.ms()
    });
    rig.call("POST", "/v1/subscriptions/erp/resume", b"").is(200);
    drop(key);
}

fn sent(rig: &Rig, event_type: &str) -> String {
    rig.one(&format!(
        "SELECT count(*) FROM outbox WHERE event_type = '{event_type}' AND status = 'completed'"
    ))
}

#[test]
fn a_clock_set_back_a_day_holds_nothing_up_beyond_its_own_wait() {
    let (rig, receiver) = waiting();
    set(&rig, START.minus(secs(DAY)));
    rig.settle();
    assert_eq!((sent(&rig, "retried").as_str(), receiver.count()), ("0", 10), "nothing too early");
    rig.pass(secs(5));
    assert_eq!((sent(&rig, "retried").as_str(), receiver.count()), ("10", 20));
    rig.pass(secs(DAY + 3600));
    assert_eq!(sent(&rig, "later"), "10");
}

#[test]
fn a_clock_set_forward_a_day_sends_what_is_due_by_it_once() {
    let (rig, receiver) = waiting();
    set(&rig, START.plus(secs(DAY)));
    rig.settle();
    assert_eq!((sent(&rig, "retried").as_str(), sent(&rig, "later").as_str()), ("10", "10"));
    assert_eq!(receiver.count(), 30);
}

#[test]
fn a_clock_set_forward_and_back_leaves_nothing_a_day_ahead() {
    let (rig, receiver) = waiting();
    receiver.always(Reply::status(500));
    set(&rig, START.plus(secs(DAY)));
    rig.settle();
    receiver.always(Reply::status(200));
    set(&rig, START);
    rig.pass(secs(30));
    assert_eq!(sent(&rig, "retried"), "10");
    rig.pass(secs(3600));
    assert_eq!(sent(&rig, "later"), "10");
}

#[test]
fn what_waits_in_a_lane_is_not_kept_there_by_a_clock_that_was_wrong() {
    let (rig, receiver) =
        Rig::subscribed_with("erp", Receiver::new(), &json!({ "ordering": "strict" }));
    set(&rig, START.plus(secs(DAY)));
    rig.call("POST", "/v1/subscriptions/erp/pause", b"").is(200);
    for n in 1..=3 {
        rig.publish(&json!({ "event_type": "a", "payload": n }));
    }
    let later = START.plus(secs(3600));
    rig.publish(&json!({ "event_type": "a", "payload": 4, "not_before": later }));
    set(&rig, START);
    rig.sent(&receiver, 3);
    rig.advance(secs(3600));
    rig.sent(&receiver, 4);
    let seen = receiver.seen();
    let bodies: Vec<&[u8]> = seen.iter().map(|request| request.body.as_slice()).collect();
    assert_eq!(bodies, [b"1", b"2", b"3", b"4"]);
}

#[test]
fn a_clock_that_was_a_day_ahead_keeps_no_lease_and_no_dead_letter_from_its_turn() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    receiver.always(Reply::status(400));
    let order = json!({ "ordering": "strict", "order": { "head_of_line": "skip" } });
    rig.subscribe_with("erp", &receiver, &order);
    let policy = json!({ "lease": "3s" });
    let pull =
        json!({ "name": "pull", "target": "pull", "event_types": ["pulled"], "policy": policy });
    rig.post("/v1/subscriptions", &pull).is(201);
    set(&rig, START.plus(secs(DAY)));
    let dead = "SELECT count(*) FROM deliveries WHERE state = 'dead_letter'";
    for n in 1..=3 {
        rig.publish(&json!({ "event_type": "a", "target": "erp", "payload": n }));
        until("it is dead", || rig.one(dead) == n.to_string());
    }
    // More leases than one transaction corrects.
    let pulled = json!({ "event_type": "pulled", "target": "pull", "payload": 1 });
    rig.post("/v1/events", &json!(vec![pulled; 450])).is(201);
    until("all are leased", || {
        rig.get("/v1/consumers/pull/next?max=100");
        rig.one("SELECT count(*) FROM deliveries WHERE state = 'leased'") == "450"
    });
    set(&rig, START);
    // The lease ends by its own span.
    until("it is corrected", || {
        let ends = "SELECT max(lease_until) FROM deliveries WHERE state = 'leased'";
        rig.one(ends) <= START.plus(secs(3)).ms().to_string()
    });
    rig.advance(secs(3));
    rig.becomes("SELECT count(*) FROM deliveries WHERE state = 'leased'", "0");
    // All are found, and go before what arrived after them.
    receiver.always(Reply::status(200));
    rig.call("POST", "/v1/subscriptions/erp/pause", b"").is(200);
    rig.publish(&json!({ "event_type": "a", "target": "erp", "payload": 4 }));
    let discard = json!({ "filter": {}, "reason": "a test", "dry_run": true });
    assert_eq!(rig.post("/v1/dead-letters/discard", &discard).is(200).json()["count"], 3);
    let job = rig.post("/v1/dead-letters/replay", &json!({ "filter": {} })).is(201).json();
    until("all are replayed", || {
        rig.get(&format!("/v1/jobs/{}", job["id"].as_str().unwrap()))["done"] == 3
    });
    rig.call("POST", "/v1/subscriptions/erp/resume", b"").is(200);
    rig.settle();
    let sent = receiver.seen().iter().map(|sent| sent.body.clone()).collect::<Vec<_>>();
    assert_eq!(sent[3..], ["1", "2", "3", "4"].map(|body| body.as_bytes().to_vec()));
}

#[test]
fn a_drift_below_two_seconds_moves_nothing() {
    let (rig, receiver) = waiting();
    rig.time.set_wall(START.plus(Duration::from_millis(1900)));
    rig.advance(Duration::from_millis(4999));
    rig.settle_at(START.plus(Duration::from_millis(4999)));
    assert_eq!(receiver.count(), 10);
}
