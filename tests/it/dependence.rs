//! Dependence of deliveries: what a newer one makes superfluous, calls that are made once, and what waits too long.

use crate::rig::prelude::*;
use oncebox::base::faults::Stall;

/// A state of an invoice.
fn invoice(rig: &Rig, id: &str, payload: &str) {
    publish(rig, &json!({ "aggregate_id": id, "payload": payload }));
}

fn publish(rig: &Rig, fields: &Value) {
    let event =
        merged(json!({ "event_type": "invoice.changed", "aggregate_type": "invoice" }), fields);
    rig.publish(&event);
}

fn delivery(rig: &Rig, n: u32) -> (String, String) {
    let shown = rig.get(&format!("/v1/deliveries/dlv_{n}"));
    let text = |field: &str| shown[field].as_str().unwrap_or_default().to_owned();
    (text("state"), text("reason"))
}

fn is_in(rig: &Rig, n: u32, state: &str) -> bool {
    rig.state(n) == state
}

fn calls(rig: &Rig) -> Vec<Value> {
    rig.items("/v1/external-calls?subscription=erp")
}

/// The columns of the one call about an entity: its state, its failures, its delivery and the one that was accepted.
fn call_about(rig: &Rig, key: &str) -> (String, u64, String, String) {
    let all = calls(rig);
    let call = all.iter().find(|call| call["entity_key"] == key).unwrap_or(&Value::Null);
    let text = |field: &str| call[field].as_str().unwrap_or_default().to_owned();
    let failed = call["failed_count"].as_u64().unwrap_or(99);
    (text("state"), failed, text("delivery"), text("made_by"))
}

/// A person has everything sent again that has ended.
fn replay_all(rig: &Rig) {
    rig.post("/v1/events/replay", &json!({ "filter": {} })).is(201);
}

#[test]
fn of_two_waiting_states_of_an_entity_the_older_is_skipped() {
    let (rig, receiver, tell) = Rig::on_word("erp", &json!({ "order": { "latest_only": true } }));
    invoice(&rig, "1", "a1");
    until("a1 is sent", || receiver.count() == 1);
    invoice(&rig, "1", "a2");
    publish(&rig, &json!({ "payload": "without" }));
    invoice(&rig, "1", "a3");
    invoice(&rig, "2", "b1");
    // The first waits for its retry when a3 is accepted: it is superfluous as well.
    for status in [500, 200, 200, 200] {
        tell.send(status).unwrap();
    }
    until("the others are sent", || receiver.count() == 4);
    until("a3 is accepted", || is_in(&rig, 4, "completed"));
    rig.pass(secs(6));
    assert_eq!(delivery(&rig, 1).1, "superseded by dlv_4 (latest_only)");
    let mut sent = receiver.bodies();
    sent.sort();
    assert_eq!(sent, ["a1", "a3", "b1", "without"]);
    let (state, reason) = delivery(&rig, 2);
    assert_eq!((state.as_str(), reason.as_str()), ("skipped", "superseded by dlv_4 (latest_only)"));
    assert_eq!(rig.one("SELECT attempt_count FROM deliveries WHERE seq = 2"), "0");
    let event = text(&rig.get("/v1/deliveries/dlv_2"), "event_id");
    assert_eq!(rig.get(&format!("/v1/events/{event}"))["status"], "skipped");
}

#[test]
fn an_older_state_that_a_deliverer_has_in_hand_is_not_sent_after_the_newer() {
    let (faults, receiver) = (Faults::stalling(), Receiver::new());
    let rig = Rig::with_faults(|_| {}, faults.clone());
    rig.subscribe_with("erp", &receiver, &json!({ "order": { "latest_only": true } }));
    // An endpoint gets a second request beside the first once it has answered.
    invoice(&rig, "0", "known");
    rig.sent(&receiver, 1);
    faults.stall(Some(Stall::Admitted));
    invoice(&rig, "1", "older");
    until("a deliverer has the older", || faults.is_standing(Stall::Admitted));
    invoice(&rig, "1", "newer");
    until("the newer is accepted", || is_in(&rig, 3, "completed"));
    faults.stall(None);
    invoice(&rig, "2", "after");
    until("the next is accepted", || is_in(&rig, 4, "completed"));
    let superseded = ("skipped".to_owned(), "superseded by dlv_3 (latest_only)".to_owned());
    assert_eq!(delivery(&rig, 2), superseded);
    rig.pass(secs(60));
    assert_eq!(receiver.bodies(), ["known", "newer", "after"]);
}

#[test]
fn in_a_lane_the_older_state_lets_the_newer_go() {
    let terms = json!({ "ordering": "key", "order": { "latest_only": true } });
    let (rig, receiver, tell) = Rig::on_word("erp", &terms);
    // Picked up later, it would be superfluous already.
    invoice(&rig, "1", "a1");
    until("a1 is sent", || receiver.count() == 1);
    for body in ["a2", "a3"] {
        invoice(&rig, "1", body);
    }
    tell.send(500).unwrap();
    until("it waits", || rig.one("SELECT attempt_count FROM deliveries WHERE seq = 1") == "1");
    rig.advance(secs(6));
    tell.send(200).unwrap();
    rig.sent(&receiver, 2);
    assert_eq!(receiver.bodies(), ["a1", "a3"]);
    assert!(is_in(&rig, 1, "skipped") && is_in(&rig, 2, "skipped"));
}

#[test]
fn a_state_that_must_not_go_yet_supersedes_none_and_another_entity_type_is_another_entity() {
    let (rig, receiver, tell) = Rig::on_word("erp", &json!({ "order": { "latest_only": true } }));
    invoice(&rig, "0", "first");
    until("the first is sent", || receiver.count() == 1);
    let later = rig.now().plus(secs(3600));
    invoice(&rig, "1", "now");
    publish(&rig, &json!({ "aggregate_id": "1", "payload": "later", "not_before": later }));
    publish(&rig, &json!({ "aggregate_id": "1", "payload": "other", "entity_type": "order" }));
    answer_all(&tell, 4, 200);
    until("two more are sent", || receiver.count() == 3);
    rig.advance(secs(3600));
    rig.sent(&receiver, 4);
    let mut sent = receiver.bodies();
    sent[1..3].sort();
    assert_eq!(sent, ["first", "now", "other", "later"]);
}

#[test]
fn consumers_get_the_latest_state_alone() {
    let rig = Rig::new();
    let body = json!({ "name": "erp", "target": "pull", "order": { "latest_only": true } });
    rig.post("/v1/subscriptions", &body).is(201);
    for payload in ["a1", "a2", "a3"] {
        invoice(&rig, "1", payload);
    }
    invoice(&rig, "2", "b1");
    // The first two candidates are superfluous: the request goes on to the next.
    let next = rig.get("/v1/consumers/erp/next?max=2");
    let payloads: Vec<&str> =
        next["items"].as_array().unwrap().iter().map(|i| i["payload"].as_str().unwrap()).collect();
    assert_eq!(payloads, ["a3", "b1"]);
    // One that a consumer has handed back is superfluous once a newer one is done.
    let word = |n: usize, more: &Value| {
        let item = &next["items"][n];
        let word = merged(json!({ "delivery": item["delivery"], "lease": item["lease"] }), more);
        json!({ "items": [word] })
    };
    rig.post("/v1/consumers/erp/nack", &word(1, &json!({ "delay": "1h" }))).is(200);
    invoice(&rig, "2", "b2");
    let newest = rig.get("/v1/consumers/erp/next?max=2");
    assert_eq!(newest["items"][0]["payload"], "b2");
    let item = &newest["items"][0];
    let done = json!({ "items": [{ "delivery": item["delivery"], "lease": item["lease"] }] });
    rig.post("/v1/consumers/erp/ack", &done).is(200);
    assert_eq!(delivery(&rig, 4).1, "superseded by dlv_5 (latest_only)");
    assert_eq!(delivery(&rig, 1).1, "superseded by dlv_3 (latest_only)");
    assert!(is_in(&rig, 2, "skipped"));
}

#[test]
fn the_clock_that_is_set_back_makes_no_new_state_an_old_one() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    rig.subscribe_with("erp", &receiver, &json!({ "order": { "external_calls": "entity" } }));
    invoice(&rig, "1", "a1");
    rig.settle();
    rig.time.set_wall(rig.now().minus(secs(3600)));
    invoice(&rig, "1", "a2");
    rig.passing("a2 is sent", secs(1), || receiver.count() == 2);
    rig.settle();
    assert_eq!(receiver.bodies(), ["a1", "a2"]);
}

#[test]
fn a_call_for_an_older_state_is_never_made_after_one_for_a_newer_state() {
    let (rig, receiver, tell) =
        Rig::on_word("erp", &json!({ "order": { "external_calls": "entity" } }));
    let at = |second: u32, body: &str| {
        let at = format!("2026-01-31T11:00:{second:02}Z");
        publish(&rig, &json!({ "aggregate_id": "1", "payload": body, "occurred_at": at }));
    };
    at(2, "a2");
    until("a2 is sent", || receiver.count() == 1);
    let (state, failed, by, made) = call_about(&rig, "invoice.changed/1");
    assert_eq!(
        (state.as_str(), failed, by.as_str(), made.as_str()),
        ("PROCESSING", 0, "dlv_1", "")
    );
    // Of one entity one call is in flight.
    at(3, "a3");
    tell.send(500).unwrap();
    until("a3 is sent", || receiver.count() == 2);
    tell.send(500).unwrap();
    until("a3 has failed", || call_about(&rig, "invoice.changed/1").0 == "FAILED");
    assert_eq!(call_about(&rig, "invoice.changed/1").1, 2);
    rig.advance(secs(6));
    // Both failed: a2 may go first, because nothing newer was accepted.
    tell.send(200).unwrap();
    tell.send(200).unwrap();
    until("a3 is accepted", || is_in(&rig, 2, "completed"));
    at(1, "a1");
    until("a1 is skipped", || is_in(&rig, 3, "skipped"));
    let (_, reason) = delivery(&rig, 3);
    assert_eq!(reason, "a call for a newer state was made: dlv_2 (external_calls)");
    // A person's replay makes no older call either.
    rig.settle();
    let sent = receiver.count();
    replay_all(&rig);
    until("the replays are skipped", || (1..=3).all(|n| is_in(&rig, n, "skipped")));
    assert!(delivery(&rig, 2).1.contains("the target has the same state already: dlv_2"));
    rig.has_sent(&receiver, sent);
    let (state, _, by, made) = call_about(&rig, "invoice.changed/1");
    assert_eq!((state.as_str(), by.as_str(), made.as_str()), ("OK", "dlv_2", "dlv_2"));
}

/// docs/order.md: a call that was answered with an error counts as not made.
#[test]
fn an_older_state_may_follow_a_newer_one_that_was_answered_500() {
    let (rig, receiver) = (Rig::new(), Receiver::scripted([Reply::status(500)]));
    rig.subscribe_with("erp", &receiver, &json!({ "order": { "external_calls": "entity" } }));
    invoice(&rig, "1", "a2");
    until("a2 has failed", || call_about(&rig, "invoice.changed/1").0 == "FAILED");
    let at = "2026-01-31T11:00:00Z";
    publish(&rig, &json!({ "aggregate_id": "1", "payload": "a1", "occurred_at": at }));
    until("a1 is accepted", || is_in(&rig, 2, "completed"));
    rig.advance(secs(6));
    until("a2 is accepted", || is_in(&rig, 1, "completed"));
    assert_eq!(receiver.bodies(), ["a2", "a1", "a2"]);
}

#[test]
fn a_call_without_an_answer_may_have_been_made() {
    let (rig, receiver) = (Rig::new(), Receiver::scripted([Reply::CutRead]));
    rig.subscribe_with("erp", &receiver, &json!({ "order": { "external_calls": "entity" } }));
    invoice(&rig, "1", "a2");
    until("a2 has failed", || call_about(&rig, "invoice.changed/1").0 == "FAILED");
    let at = "2026-01-31T11:00:00Z";
    publish(&rig, &json!({ "aggregate_id": "1", "payload": "a1", "occurred_at": at }));
    until("a1 is skipped", || is_in(&rig, 2, "skipped"));
    let reason = "a call for a newer state may have been made: dlv_1 (external_calls)";
    assert_eq!(delivery(&rig, 2).1, reason);
    rig.advance(secs(6));
    until("a2 is accepted", || is_in(&rig, 1, "completed"));
    assert_eq!(receiver.bodies(), ["a2", "a2"]);
}

#[test]
fn a_person_ends_the_doubt_about_a_call() {
    for made in [true, false] {
        let (rig, receiver) = (Rig::new(), Receiver::scripted([Reply::CutRead]));
        rig.subscribe_with("erp", &receiver, &json!({ "order": { "external_calls": "entity" } }));
        invoice(&rig, "1", "a2");
        until("a2 has failed", || call_about(&rig, "invoice.changed/1").0 == "FAILED");
        let (path, told) =
            ("/v1/external-calls/dlv_1/end", json!({ "made": made, "reason": "seen" }));
        let in_doubt = || rig.items("/v1/external-calls?in_doubt=true");
        // It is sent again, so nobody has to decide.
        assert!(in_doubt().is_empty());
        let refused = rig.post(path, &told).is(409);
        assert!(refused.detail().contains("skip or cancel it first"), "{refused:?}");
        rig.call("POST", "/v1/deliveries/dlv_1/cancel", b"").is(200);
        assert_eq!(in_doubt()[0]["in_doubt"], "dlv_1");
        for (body, status) in
            [(json!({ "made": made }), 400), (json!({ "made": 1, "reason": "x" }), 400)]
        {
            rig.post(path, &body).is(status);
        }
        rig.post("/v1/external-calls/dlv_9/end", &told).is(404);
        let ended = rig.post(path, &told).is(200).json();
        assert_eq!((&ended["in_doubt"], &ended["subscription"]), (&Value::Null, &json!("erp")));
        rig.post(path, &told).is(409);
        assert!(in_doubt().is_empty());
        let (state, _, _, by) = call_about(&rig, "invoice.changed/1");
        let expected = if made { ("OK", "dlv_1") } else { ("FAILED_END", "") };
        assert_eq!((state.as_str(), by.as_str()), expected);
        // What the target has is not sent again, and nothing older follows it.
        let older =
            json!({ "aggregate_id": "1", "payload": "a1", "occurred_at": "2026-01-31T11:00:00Z" });
        publish(&rig, &older);
        let state = if made { "skipped" } else { "completed" };
        until("a1 has ended", || is_in(&rig, 2, state));
        invoice(&rig, "1", "a2");
        until("a2 has ended", || is_in(&rig, 3, state));
        assert_eq!(receiver.bodies().len(), if made { 1 } else { 3 });
    }
}

#[test]
fn the_doubt_about_an_earlier_call_is_ended_too() {
    let (rig, receiver) = (Rig::new(), Receiver::scripted([Reply::CutRead, Reply::status(400)]));
    rig.subscribe_with("erp", &receiver, &json!({ "order": { "external_calls": "entity" } }));
    invoice(&rig, "1", "a1");
    until("a1 has failed", || call_about(&rig, "invoice.changed/1").0 == "FAILED");
    rig.call("POST", "/v1/deliveries/dlv_1/cancel", b"").is(200);
    invoice(&rig, "1", "a2");
    until("a2 is refused", || is_in(&rig, 2, "dead_letter"));
    let of = |rig: &Rig| rig.items("/v1/external-calls")[0].clone();
    assert_eq!((&of(&rig)["delivery"], &of(&rig)["in_doubt"]), (&json!("dlv_2"), &json!("dlv_1")));
    let told = json!({ "made": true, "reason": "it has a1" });
    rig.post("/v1/external-calls/dlv_2/end", &told).is(200);
    assert_eq!((&of(&rig)["made_by"], &of(&rig)["state"]), (&json!("dlv_1"), &json!("FAILED_END")));
    assert_eq!(of(&rig)["in_doubt"], Value::Null);
}

#[test]
fn another_payload_replaces_a_call_that_may_have_been_made() {
    for ordering in ["none", "key"] {
        let (rig, receiver) = (Rig::new(), Receiver::scripted([Reply::CutRead]));
        let terms = json!({ "ordering": ordering, "order": { "external_calls": "entity" } });
        rig.subscribe_with("erp", &receiver, &terms);
        invoice(&rig, "1", "a1");
        until("a1 has failed", || call_about(&rig, "invoice.changed/1").0 == "FAILED");
        rig.post("/v1/deliveries/dlv_1/edit-and-resend", &json!({ "payload": "b1" })).is(201);
        receiver.gets(&["a1", "b1"]);
        until("b1 is accepted", || is_in(&rig, 2, "completed"));
    }
}

#[test]
fn what_is_the_same_state_is_told_by_the_payload_and_not_by_its_envelope() {
    for format in ["cloudevents_structured", "standard_webhooks"] {
        let (rig, receiver) = (Rig::new(), Receiver::new());
        let terms = json!({ "format": format, "order": { "external_calls": "entity" } });
        rig.subscribe_with("erp", &receiver, &terms);
        for payload in ["a1", "a1", "a2"] {
            invoice(&rig, "1", payload);
            rig.settle();
            rig.advance(secs(1));
        }
        assert_eq!(receiver.count(), 2, "{format}");
        assert_eq!(
            delivery(&rig, 2).1,
            "the target has the same state already: dlv_1 (external_calls)"
        );
    }
}

#[test]
fn the_same_state_is_sent_once_and_another_state_again() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    let order = json!({ "external_calls": "custom", "call_path": "$.sku" });
    rig.subscribe_with("erp", &receiver, &json!({ "order": order }));
    let stock = |sku: &str, count: u32| {
        rig.publish(&json!({ "event_type": "stock", "payload": { "sku": sku, "count": count } }));
        rig.settle();
    };
    stock("x", 1);
    stock("x", 1);
    stock("y", 1);
    stock("x", 2);
    stock("x", 1);
    rig.publish(&json!({ "event_type": "stock", "payload": { "count": 1 } }));
    rig.settle();
    let skipped = "SELECT seq FROM deliveries WHERE state = 'skipped'";
    assert_eq!(rig.lines(skipped), ["2"]);
    assert_eq!(
        delivery(&rig, 2).1,
        "the target has the same state already: dlv_1 (external_calls)"
    );
    assert_eq!(receiver.count(), 5);
    let all = calls(&rig);
    let keys: Vec<_> = all.iter().map(|call| call["entity_key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["x", "y"]);
    // Pages, and all subscriptions.
    let page = rig.get("/v1/external-calls?limit=1");
    assert_eq!(page["items"][0]["entity_key"], "x");
    let next = page["next"].as_str().unwrap();
    let page = rig.get(&format!("/v1/external-calls?limit=1&after={next}"));
    assert_eq!(page["items"][0]["entity_key"], "y");
    assert!(
        rig.get("/v1/external-calls?subscription=none")["items"].as_array().unwrap().is_empty()
    );
}

#[test]
fn a_state_between_two_equal_ones_is_not_sent_after_the_newer_one() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    rig.subscribe_with("erp", &receiver, &json!({ "order": { "external_calls": "entity" } }));
    // The target has the newest state from the oldest event: another call would change it.
    for (second, body, state) in
        [(1, "a1", "completed"), (3, "a1", "skipped"), (2, "a2", "skipped")]
    {
        let at = format!("2026-01-31T11:00:{second:02}Z");
        publish(&rig, &json!({ "aggregate_id": "1", "payload": body, "occurred_at": at }));
        let count = rig.one("SELECT max(seq) FROM deliveries").parse().unwrap();
        until("it has ended", || is_in(&rig, count, state));
    }
    assert_eq!(
        delivery(&rig, 2).1,
        "the target has the same state already: dlv_1 (external_calls)"
    );
    assert_eq!(delivery(&rig, 3).1, "a call for a newer state was made: dlv_2 (external_calls)");
    assert_eq!(call_about(&rig, "invoice.changed/1").3, "dlv_2");
    assert_eq!(receiver.bodies(), ["a1"]);
}

#[test]
fn each_event_is_sent_once_where_calls_are_of_events() {
    let (rig, receiver) = (Rig::new(), Receiver::scripted([Reply::status(400)]));
    rig.subscribe_with("erp", &receiver, &json!({ "order": { "external_calls": "event" } }));
    invoice(&rig, "1", "a1");
    rig.settle();
    let event = rig.one("SELECT id FROM outbox");
    assert_eq!(call_about(&rig, &event).0, "FAILED_END");
    // It was not accepted, so it may be sent again.
    rig.call("POST", "/v1/deliveries/dlv_1/retry", b"").is(200);
    until("it is accepted", || is_in(&rig, 1, "completed"));
    assert_eq!(call_about(&rig, &event).0, "OK");
    rig.settle();
    replay_all(&rig);
    until("the replay is skipped", || is_in(&rig, 1, "skipped"));
    let (_, reason) = delivery(&rig, 1);
    assert_eq!(reason, "its event was sent before, and external_calls allows that once");
    assert_eq!(receiver.count(), 2);
    // A call that is stopped between two attempts is not tried again.
    receiver.always(Reply::status(500));
    invoice(&rig, "1", "a2");
    let event = rig.one("SELECT id FROM outbox ORDER BY seq DESC LIMIT 1");
    until("it has failed", || call_about(&rig, &event).0 == "FAILED");
    rig.call("POST", "/v1/deliveries/dlv_2/cancel", b"").is(200);
    assert_eq!(call_about(&rig, &event).0, "FAILED_END");
}

#[test]
fn an_answer_after_a_cancel_still_counts_as_made() {
    let (rig, receiver, tell) =
        Rig::on_word("erp", &json!({ "order": { "external_calls": "entity" } }));
    invoice(&rig, "1", "a1");
    until("it is sent", || receiver.count() == 1);
    rig.call("POST", "/v1/deliveries/dlv_1/cancel", b"").is(200);
    tell.send(200).unwrap();
    until("it is noted", || call_about(&rig, "invoice.changed/1").0 == "OK");
    rig.call("POST", "/v1/deliveries/dlv_1/retry", b"").is(200);
    until("it is skipped", || is_in(&rig, 1, "skipped"));
    assert!(delivery(&rig, 1).1.contains("the target has the same state already"));
    rig.has_sent(&receiver, 1);
}

#[test]
fn a_delivery_that_waits_too_long_behind_others_becomes_a_dead_letter() {
    let (rig, receiver) = (Rig::new(), Receiver::with(Reply::status(500)));
    let told = Receiver::new();
    rig.subscribe_with("told", &told, &json!({ "event_types": ["delivery.dead_lettered"] }));
    let order = json!({ "postpone_limit": "100s" });
    let terms = json!({ "ordering": "key", "order": order, "policy": { "steps": ["1h"] } });
    rig.subscribe_with("erp", &receiver, &terms);
    invoice(&rig, "1", "a1");
    until("a1 has failed", || rig.one("SELECT attempt_count FROM deliveries") == "1");
    invoice(&rig, "1", "a2");
    let later = rig.now().plus(secs(90));
    publish(&rig, &json!({ "aggregate_id": "1", "payload": "a3", "not_before": later }));
    // While its subscription is held, and for the limit after that, nothing is given up.
    rig.call("POST", "/v1/subscriptions/erp/pause", b"").is(200);
    rig.advance(secs(200));
    thread::sleep(Duration::from_millis(2500));
    rig.call("POST", "/v1/subscriptions/erp/resume", b"").is(200);
    rig.advance(secs(50));
    thread::sleep(Duration::from_millis(1500));
    assert!(is_in(&rig, 2, "pending"));
    rig.passing("a2 is given up", secs(20), || is_in(&rig, 2, "dead_letter"));
    until("a3 is given up", || is_in(&rig, 3, "dead_letter"));
    let (_, reason) = delivery(&rig, 2);
    assert_eq!(reason, "postponed: it waited behind others for more than 1m 40s");
    assert!(is_in(&rig, 1, "pending"), "the first waits for its time, not behind others");
    assert_eq!(rig.one("SELECT attempt_count FROM deliveries WHERE seq = 2"), "0");
    let escalations = rig.get("/v1/escalations");
    assert_eq!(escalations["items"][0]["class"], "delivery.dead_lettered", "{escalations}");
    until("both are told", || told.count() == 2);
    shows(&String::from_utf8_lossy(&told.seen()[0].body), &["postponed: it waited"]);
    // It blocks its lane like any dead letter.
    invoice(&rig, "1", "a4");
    assert_eq!(rig.one("SELECT head FROM deliveries ORDER BY seq DESC LIMIT 1"), "0");
    let summary = rig.get("/v1/dead-letters/summary");
    assert_eq!(summary["groups"][0]["class"], Value::Null, "{summary}");
}

#[test]
fn a_delivery_that_cannot_be_given_up_does_not_keep_the_others_from_it() {
    let mut rig = Rig::new();
    let (receiver, _tell) = Receiver::on_word();
    let terms = json!({ "ordering": "key", "order": { "postpone_limit": "100s" } });
    rig.subscribe_with("erp", &receiver, &terms);
    rig.call("POST", "/v1/subscriptions/erp/pause", b"").is(200);
    for n in 1..=3 {
        invoice(&rig, "1", &n.to_string());
    }
    rig.stop();
    let file = rig.writable();
    file.run("PRAGMA foreign_keys = OFF; UPDATE deliveries SET outbox_seq = 99 WHERE seq = 2");
    rig.start_again();
    rig.call("POST", "/v1/subscriptions/erp/resume", b"").is(200);
    rig.passing("the third is given up", secs(20), || is_in(&rig, 3, "dead_letter"));
    assert!(is_in(&rig, 2, "pending"));
    rig.stop();
    file.run("UPDATE deliveries SET outbox_seq = 2 WHERE seq = 2");
}

#[test]
fn a_delivery_that_waits_too_long_for_its_funnel_becomes_a_dead_letter() {
    let rig = Rig::new();
    let (receiver, tell) = Receiver::on_word();
    let order = json!({ "funnel_point": "sap", "postpone_limit": "100s" });
    let terms = json!({ "order": order, "policy": { "timeout": "10min" } });
    rig.subscribe_with("erp", &receiver, &terms);
    rig.publish(&json!({ "event_type": "first", "payload": "first" }));
    until("the first is sent", || receiver.count() == 1);
    tell.send(200).unwrap();
    rig.settle();
    for body in ["x1", "x2"] {
        rig.publish(&json!({ "event_type": "a", "funnel_value": "x", "payload": body }));
    }
    until("x1 is sent", || receiver.count() == 2);
    rig.passing("x2 is given up", secs(20), || is_in(&rig, 3, "dead_letter"));
    assert!(is_in(&rig, 2, "pending"), "it is in flight, and waits for nobody");
    tell.send(200).unwrap();
    until("x1 is accepted", || is_in(&rig, 2, "completed"));
}

#[test]
fn what_an_answer_says_in_custom_data_comes_back_with_the_next_attempt() {
    let rig = Rig::new();
    let data = |text: &str| Reply::with(500, "Oncebox-Custom-Data", text);
    let long = "x".repeat(1025);
    let answers = [Reply::status(500), data("page=2"), data(&long), data(""), data("\u{e9}")];
    let receiver = Receiver::scripted(answers);
    rig.subscribe_with("erp", &receiver, &json!({ "policy": { "steps": ["1s"] } }));
    rig.publish(&json!({ "event_type": "a", "payload": 1, "custom_data": "page=1" }));
    for n in 1..=6 {
        rig.passing("it is sent", secs(1), || receiver.count() >= n);
    }
    rig.settle();
    rig.publish(&json!({ "event_type": "a", "payload": 1, "custom_data": "no header: \u{e9}" }));
    until("another is sent", || receiver.count() == 7);
    let seen = receiver.seen();
    let sent: Vec<_> =
        seen.iter().map(|request| request.field("oncebox-custom-data").unwrap_or("none")).collect();
    assert_eq!(sent, ["page=1", "page=1", "page=2", "page=2", "none", "none", "none"]);
}

#[test]
fn terms_that_cannot_hold_are_refused() {
    let rig = Rig::new();
    let refused = |body: &Value, why: &str| {
        let said = rig.post("/v1/subscriptions", body).is(422);
        assert!(said.text().contains(why), "{said:?}");
    };
    for (order, why) in [
        (json!({ "postpone_limit": "soon" }), "is not a span like 500ms, 30s or 5min"),
        (json!({ "postpone_limit": "1ms" }), "1s to 30days"),
        (json!({ "external_calls": "custom", "call_path": "sku" }), "begins with $"),
        (json!({ "external_calls": "event", "latest_only": true }), "states of an entity"),
    ] {
        refused(&json!({ "name": "erp", "url": "https://example.com/", "order": order }), why);
    }
    let pull = json!({ "name": "erp", "target": "pull", "order": { "external_calls": "entity" } });
    refused(&pull, "makes none");
    let headers = json!({ "Oncebox-Custom-Data": "x" });
    let body = json!({ "name": "erp", "url": "https://example.com/", "headers": headers });
    refused(&body, "is set by Oncebox");
}
