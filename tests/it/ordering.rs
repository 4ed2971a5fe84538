//! Order where it is asked for: one after another within a lane, whatever happens to the first.

use oncebox::base::id::SubscriptionSeq;
use oncebox::store::deliveries;
use oncebox::store::tx::ReadTx;

use crate::rig::prelude::*;

fn pulling(ordering: &str) -> Rig {
    let rig = Rig::new();
    rig.pull("erp", &json!({ "ordering": ordering, "order": { "head_of_line": "skip" } }));
    rig
}

fn publish(rig: &Rig, key: &str, n: u32) -> Value {
    rig.publish(&json!({ "event_type": "a", "ordering_key": key, "payload": format!("{key}{n}") }))
}

fn next(rig: &Rig) -> Vec<Value> {
    rig.items("/v1/consumers/erp/next?max=100")
}

fn payloads(items: &[Value]) -> Vec<&str> {
    items.iter().map(|item| item["payload"].as_str().unwrap()).collect()
}

fn say(rig: &Rig, verb: &str, item: &Value, more: &Value) {
    let word = merged(json!({ "delivery": item["delivery"], "lease": item["lease"] }), more);
    let heard = rig.post(&format!("/v1/consumers/erp/{verb}"), &json!({ "items": [word] })).is(200);
    assert_eq!(heard.json()["items"][0]["status"], 200, "{heard:?}");
}

#[test]
fn of_one_key_the_next_is_given_when_the_one_before_is_done() {
    let mut rig = pulling("key");
    for n in 1..=3 {
        publish(&rig, "a", n);
        publish(&rig, "b", n);
    }
    let heads = next(&rig);
    assert_eq!(payloads(&heads), ["a1", "b1"]);
    assert!(next(&rig).is_empty());
    assert_eq!(rig.get("/v1/deliveries/dlv_3")["is_behind"], true);
    assert_eq!(rig.get("/v1/stats")["pending"], 4);
    say(&rig, "ack", &heads[0], &json!({}));
    let second = next(&rig);
    assert_eq!(payloads(&second), ["a2"]);
    // Handed back, it is still the first of its lane; so it is when its lease is over, and after a restart.
    say(&rig, "nack", &second[0], &json!({ "delay": "1h" }));
    assert!(next(&rig).is_empty());
    rig.advance(secs(3600));
    rig.becomes("SELECT count(*) FROM deliveries WHERE state = 'leased'", "0");
    rig.restart();
    rig.advance(secs(5));
    let again = next(&rig);
    assert_eq!(payloads(&again), ["a2", "b1"]);
    for item in &again {
        say(&rig, "ack", item, &json!({}));
    }
    let third = next(&rig);
    assert_eq!(payloads(&third), ["b2", "a3"]);
}

#[test]
fn one_that_is_given_up_or_cancelled_lets_the_next_go_and_comes_back_in_its_place() {
    let rig = pulling("key");
    (1..=4).for_each(|n| drop(publish(&rig, "a", n)));
    say(&rig, "nack", &next(&rig)[0], &json!({ "dead": true }));
    rig.call("POST", "/v1/deliveries/dlv_2/cancel", b"").is(200);
    let third = next(&rig);
    assert_eq!(payloads(&third), ["a3"]);
    // Who is in hand stays the head; then the earlier one goes first.
    rig.call("POST", "/v1/deliveries/dlv_1/retry", b"").is(200);
    assert!(next(&rig).is_empty());
    say(&rig, "nack", &third[0], &json!({ "delay": "0s" }));
    let first = next(&rig);
    assert_eq!(payloads(&first), ["a1"]);
    say(&rig, "ack", &first[0], &json!({}));
    assert_eq!(payloads(&next(&rig)), ["a3"]);
}

#[test]
fn a_late_arrival_that_happened_earlier_goes_next() {
    let rig = pulling("strict");
    let event = |n: u32, at: &str| {
        rig.publish(&json!({ "event_type": "a", "payload": n.to_string(), "occurred_at": at }));
    };
    event(2, "2026-01-31T11:00:02Z");
    event(3, "2026-01-31T11:00:03Z");
    event(1, "2026-01-31T11:00:01Z");
    for wanted in ["1", "2", "3"] {
        let items = next(&rig);
        assert_eq!(payloads(&items), [wanted]);
        say(&rig, "ack", &items[0], &json!({}));
    }
}

#[test]
fn the_key_is_the_events_own_or_its_aggregate_and_without_one_nobody_waits() {
    let rig = pulling("key");
    for (n, fields) in [
        json!({ "aggregate_type": "invoice", "aggregate_id": "1" }),
        json!({ "aggregate_type": "invoice", "aggregate_id": "1" }),
        json!({ "aggregate_type": "order", "aggregate_id": "1" }),
        json!({}),
        json!({}),
    ]
    .into_iter()
    .enumerate()
    {
        let event = merged(json!({ "event_type": "a", "payload": n.to_string() }), &fields);
        rig.publish(&event);
    }
    assert_eq!(payloads(&next(&rig)), ["0", "2", "3", "4"]);
    assert_eq!(rig.one("SELECT count(*) FROM deliveries WHERE lane IS NULL"), "2");
}

#[test]
fn what_is_sent_keeps_its_order_across_failures_and_a_restart() {
    let mut rig = Rig::new();
    let receiver = Receiver::scripted([Reply::status(200), Reply::status(500), Reply::status(500)]);
    rig.subscribe_with("erp", &receiver, &json!({ "ordering": "strict" }));
    for n in 1..=20 {
        rig.publish(&json!({ "event_type": "a", "payload": n }));
    }
    rig.settle();
    rig.restart();
    for wait in [5, 30] {
        rig.pass(secs(wait));
    }
    let seen = receiver.seen();
    let bodies: Vec<u32> = seen
        .iter()
        .map(|request| String::from_utf8_lossy(&request.body).parse().unwrap())
        .collect();
    let wanted: Vec<u32> = [1, 2, 2].into_iter().chain(2..=20).collect();
    assert_eq!(bodies, wanted);
}

#[test]
fn of_one_key_one_request_is_in_flight_while_other_keys_go_on() {
    let (rig, receiver) =
        Rig::subscribed_with("erp", Receiver::new(), &json!({ "ordering": "key" }));
    // Until an endpoint was called once, it has one request at a time.
    publish(&rig, "c", 1);
    rig.settle();
    receiver.always(Reply::Hang);
    for n in 1..=3 {
        publish(&rig, "a", n);
        publish(&rig, "b", n);
    }
    until("both lanes are called", || receiver.count() == 3);
    receiver.always(Reply::status(200));
    receiver.release();
    rig.passing("all are sent", secs(5), || {
        rig.one("SELECT count(*) FROM deliveries WHERE state = 'completed'") == "7"
    });
    let seen = receiver.seen();
    for key in ["a", "b"] {
        let mut of_key: Vec<String> = seen
            .iter()
            .map(|request| String::from_utf8_lossy(&request.body).into_owned())
            .filter(|body| body.starts_with(&format!("\"{key}")))
            .collect();
        of_key.dedup();
        assert_eq!(of_key, [1, 2, 3].map(|n| format!("\"{key}{n}\"")));
    }
}

#[test]
fn order_is_not_given_up_while_anything_is_open() {
    let rig = pulling("key");
    publish(&rig, "a", 1);
    rig.patch("/v1/subscriptions/erp", &json!({ "ordering": "none" }))
        .is(409)
        .tells("open or dead");
    say(&rig, "ack", &next(&rig)[0], &json!({}));
    rig.patch("/v1/subscriptions/erp", &json!({ "ordering": "none" })).is(200);
    rig.patch("/v1/subscriptions/erp", &json!({ "ordering": "some" }))
        .is(422)
        .tells("one of none, key, strict");
}

/// An event of the one lane, at a second of its source's clock.
fn at(rig: &Rig, second: u32) {
    let occurred_at = format!("2026-01-31T11:00:{second:02}Z");
    rig.publish(&json!({
        "event_type": "a", "payload": second.to_string(), "occurred_at": occurred_at,
    }));
}

#[test]
fn a_dead_letter_that_is_sent_again_waits_for_who_is_in_flight_and_goes_before_the_rest() {
    let terms = json!({ "ordering": "strict", "order": { "head_of_line": "skip" } });
    let (rig, receiver, tell) = Rig::on_word("erp", &terms);
    (1..=3).for_each(|n| drop(publish(&rig, "a", n)));
    tell.send(400).unwrap();
    receiver.gets(&["a1", "a2"]);
    rig.call("POST", "/v1/deliveries/dlv_1/retry", b"").is(200);
    assert_eq!(rig.get("/v1/deliveries/dlv_2")["is_behind"], true);
    tell.send(500).unwrap();
    receiver.gets(&["a1", "a2", "a1"]);
    tell.send(200).unwrap();
    until("it is done", || rig.one("SELECT state FROM deliveries WHERE seq = 1") == "completed");
    // The second waits for its retry, and the third behind it.
    assert_eq!(receiver.count(), 3);
    rig.advance(secs(5));
    tell.send(200).unwrap();
    receiver.gets(&["a1", "a2", "a1", "a2", "a3"]);
    tell.send(200).unwrap();
    rig.settle();
}

#[test]
fn one_that_is_cancelled_in_flight_lets_the_next_go_when_its_request_has_ended() {
    let (rig, receiver, tell) = Rig::on_word("erp", &json!({ "ordering": "strict" }));
    publish(&rig, "a", 1);
    publish(&rig, "a", 2);
    receiver.gets(&["a1"]);
    rig.call("POST", "/v1/deliveries/dlv_1/cancel", b"").is(200);
    assert_eq!(rig.get("/v1/deliveries/dlv_2")["is_behind"], false);
    // Others are looked at meanwhile, and this lane is passed by.
    rig.advance(secs(60));
    assert_eq!(receiver.bodies(), ["a1"]);
    tell.send(200).unwrap();
    receiver.gets(&["a1", "a2"]);
    tell.send(200).unwrap();
    rig.settle();
    let states = rig.lines("SELECT state FROM deliveries ORDER BY seq");
    assert_eq!(states, ["cancelled", "completed"]);
}

#[test]
fn a_late_arrival_goes_after_who_is_in_flight_and_before_its_retry() {
    let (rig, receiver, tell) = Rig::on_word("erp", &json!({ "ordering": "strict" }));
    at(&rig, 2);
    at(&rig, 3);
    receiver.gets(&["2"]);
    at(&rig, 1);
    assert_eq!(receiver.bodies(), ["2"]);
    tell.send(500).unwrap();
    receiver.gets(&["2", "1"]);
    tell.send(200).unwrap();
    until("it is done", || rig.one("SELECT state FROM deliveries WHERE seq = 3") == "completed");
    rig.advance(secs(5));
    tell.send(200).unwrap();
    receiver.gets(&["2", "1", "2", "3"]);
    tell.send(200).unwrap();
    rig.settle();
}

#[test]
fn a_pause_stops_a_lane_where_it_is_and_it_goes_on_from_there() {
    let (rig, receiver, tell) = Rig::on_word("erp", &json!({ "ordering": "strict" }));
    (1..=3).for_each(|n| drop(publish(&rig, "a", n)));
    receiver.gets(&["a1"]);
    rig.call("POST", "/v1/subscriptions/erp/pause", b"").is(200);
    tell.send(500).unwrap();
    rig.becomes("SELECT counted_failures FROM deliveries WHERE seq = 1", "1");
    rig.advance(secs(5));
    at(&rig, 0);
    assert_eq!(receiver.bodies(), ["a1"]);
    answer_all(&tell, 4, 200);
    rig.call("POST", "/v1/subscriptions/erp/resume", b"").is(200);
    receiver.gets(&["a1", "0", "a1", "a2", "a3"]);
    rig.settle();
}

#[test]
fn an_event_that_is_mended_goes_to_its_old_place() {
    let rig = pulling("strict");
    let erp = rig.writable();
    let insert = |payload: &str| {
        let sql = "INSERT INTO outbox (event_type, payload) VALUES ('a', ?1)";
        erp.execute(sql, [payload]).unwrap();
    };
    for payload in ["\"1\"", "{no json", "\"3\"", "\"4\""] {
        insert(payload);
        rig.becomes("SELECT count(*) FROM outbox WHERE routed_at IS NULL", "0");
    }
    let first = next(&rig);
    assert_eq!(payloads(&first), ["1"]);
    say(&rig, "ack", &first[0], &json!({}));
    let third = next(&rig);
    let id = rig.one("SELECT id FROM outbox WHERE status = 'quarantined'");
    rig.post(&format!("/v1/events/{id}/fix"), &json!({ "payload": "2" })).is(200);
    assert!(next(&rig).is_empty(), "what somebody has in hand goes first");
    say(&rig, "ack", &third[0], &json!({}));
    let second = next(&rig);
    assert_eq!((payloads(&third), payloads(&second)), (vec!["3"], vec!["2"]));
    say(&rig, "ack", &second[0], &json!({}));
    assert_eq!(payloads(&next(&rig)), ["4"]);
}

#[test]
fn of_a_lane_whose_lease_is_over_the_late_word_is_heard_unless_an_earlier_one_went_ahead() {
    let rig = pulling("strict");
    at(&rig, 2);
    at(&rig, 3);
    let second = next(&rig).remove(0);
    rig.advance(secs(60));
    rig.becomes("SELECT count(*) FROM deliveries WHERE state = 'leased'", "0");
    at(&rig, 1);
    let extended =
        json!({ "items": [{ "delivery": second["delivery"], "lease": second["lease"] }] });
    let heard = rig.post("/v1/consumers/erp/extend", &extended).is(200).json();
    assert_eq!(heard["items"][0]["status"], 409, "one in hand is enough: {heard}");
    let first = next(&rig);
    assert_eq!(payloads(&first), ["1"]);
    // The work on the second is done all the same, and is not done again.
    say(&rig, "ack", &second, &json!({}));
    assert!(next(&rig).is_empty(), "the first is in hand");
    say(&rig, "nack", &first[0], &json!({ "delay": "0s" }));
    let first = next(&rig);
    assert_eq!(payloads(&first), ["1"]);
    say(&rig, "ack", &first[0], &json!({}));
    assert_eq!(payloads(&next(&rig)), ["3"]);
}

#[test]
fn one_that_is_not_to_go_yet_holds_its_key_up_and_no_other() {
    let rig = pulling("key");
    let later = rig.now().plus(secs(3600));
    rig.publish(&json!({
        "event_type": "a", "ordering_key": "a", "payload": "a1", "not_before": later,
    }));
    publish(&rig, "a", 2);
    publish(&rig, "b", 1);
    assert_eq!(payloads(&next(&rig)), ["b1"]);
    rig.advance(secs(3600));
    assert_eq!(payloads(&next(&rig)), ["a1"]);
}

#[test]
fn arrival_is_the_order_of_what_does_not_say_when_it_happened_whatever_the_clock_does() {
    let rig = pulling("strict");
    publish(&rig, "a", 1);
    rig.time.set_wall(rig.now().minus(secs(3600)));
    publish(&rig, "a", 2);
    rig.time.set_wall(rig.now().plus(secs(86_400)));
    publish(&rig, "a", 3);
    rig.time.set_wall(rig.now().minus(secs(86_400)));
    publish(&rig, "a", 4);
    for wanted in ["a1", "a2", "a3", "a4"] {
        let mut items = Vec::new();
        until("the next is given", || {
            rig.advance(secs(1));
            items = next(&rig);
            !items.is_empty()
        });
        assert_eq!(payloads(&items), [wanted]);
        say(&rig, "ack", &items[0], &json!({}));
    }
}

#[test]
fn what_comes_after_the_clock_was_set_back_does_not_pass_a_blocked_lane() {
    let rig = Rig::new();
    let (receiver, tell) = ordered(&rig, "erp", &json!({ "ordering": "strict" }));
    publish(&rig, "a", 1);
    tell.send(400).unwrap();
    until("it is dead", || rig.state(1) == "dead_letter");
    rig.time.set_wall(rig.now().minus(secs(3600)));
    publish(&rig, "a", 2);
    rig.advance(secs(60));
    assert_eq!(rig.one("SELECT head FROM deliveries WHERE seq = 2"), "0");
    answer_all(&tell, 2, 200);
    rig.call("POST", "/v1/deliveries/dlv_1/retry", b"").is(200);
    rig.passing("all are sent", secs(1), || receiver.count() == 3);
    assert_eq!(receiver.bodies(), ["a1", "a1", "a2"]);
    rig.settle();
}

/// Deliveries with the funnel of the first one, all due since the start.
const OF_ONE_VALUE: &str = "
    WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?1)
    INSERT INTO deliveries (outbox_seq, subscription_seq, tenant, order_at, state, due_at, funnel)
    SELECT 1000 + i, 1, 'default', ?2, 'pending', ?2, (SELECT funnel FROM deliveries ORDER BY seq DESC LIMIT 1)
      FROM n";

const THEIR_EVENTS: &str = "
    WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?1)
    INSERT INTO outbox (seq, id, tenant, idempotency_key, event_type, payload, received_at, routed_at, open_deliveries,
                        own)
    SELECT 1000 + i, printf('01980000-0000-7000-8000-%012x', i), 'default', printf('k-%09d', i), 'a', '{}', ?2, ?2, 1, 1
      FROM n";

#[test]
fn what_is_behind_many_deliveries_of_a_taken_funnel_is_sent_in_slices() {
    let mut rig = Rig::new();
    let (erp, tell) = ordered(&rig, "erp", &json!({ "order": { "funnel_point": "sap" } }));
    answered_once(&rig, &[(&erp, &tell)]);
    let of_value = |value: &str| {
        rig.publish(&json!({ "event_type": "a", "funnel_value": value, "payload": value }));
    };
    of_value("x");
    until("x is sent", || erp.count() == 2);
    tell.send(200).unwrap();
    rig.settle();
    rig.stop();
    let conn = rig.writable();
    conn.run("PRAGMA synchronous = OFF");
    conn.execute(THEIR_EVENTS, (20_000, START.ms())).unwrap();
    conn.execute(OF_ONE_VALUE, (20_000, START.ms())).unwrap();
    rig.start_again();
    until("one of x is sent", || erp.count() == 3);
    // One fetch looks at a part of them, and says where it has ended.
    let funnel: i64 = rig.one("SELECT max(funnel) FROM deliveries").parse().unwrap();
    let now = rig.now();
    let fetch = |after| {
        let read =
            |tx: &ReadTx<'_>| deliveries::due(tx, SubscriptionSeq(1), now, 64, &[funnel], after);
        rig.appliance().store().read(read).unwrap()
    };
    let (mut fetches, mut after) = (1, fetch(None).1);
    while after.is_some() {
        let (due, end) = fetch(after);
        assert!(due.is_empty());
        (fetches, after) = (fetches + 1, end);
    }
    assert!((15..25).contains(&fetches), "{fetches}");
    // Each finds its way past those of x, also when x goes on meanwhile and its next is taken.
    for value in ["y", "z"] {
        rig.publish(&json!({ "event_type": "a", "funnel_value": value, "payload": value }));
        rig.passing("it is sent", Duration::from_millis(250), || {
            erp.bodies().contains(&value.to_owned())
        });
        tell.send(200).unwrap();
    }
}

#[test]
fn what_is_published_comes_after_the_rows_that_were_committed_before_it() {
    let (mut rig, receiver) =
        Rig::subscribed_with("logistics", Receiver::new(), &json!({ "ordering": "key" }));
    let insert = "INSERT INTO outbox (event_type, ordering_key, payload) VALUES ('a', 'a', ?1)";
    let erp = rig.writable();
    for n in (0..60).step_by(2) {
        erp.execute(insert, [n]).unwrap();
        publish_as(&rig, n + 1);
    }
    until("all are delivered", || receiver.count() == 60);
    // The same of what was committed while nobody served the file.
    rig.stop();
    for n in 60..300 {
        erp.execute(insert, [n]).unwrap();
    }
    rig.start_again();
    publish_as(&rig, 300);
    until("all are delivered", || receiver.count() == 301);
    let sent: Vec<u32> = receiver
        .seen()
        .iter()
        .map(|message| String::from_utf8_lossy(&message.body).parse().unwrap())
        .collect();
    assert_eq!(sent, (0..=300).collect::<Vec<u32>>());
    rig.settle();
}

fn publish_as(rig: &Rig, n: u32) {
    rig.publish(&json!({ "event_type": "a", "ordering_key": "a", "payload": n }));
}

/// A subscription with an order, and a way to say what its target answers.
fn ordered(rig: &Rig, name: &str, terms: &Value) -> (Receiver, mpsc::Sender<u16>) {
    let (receiver, tell) = Receiver::on_word();
    rig.subscribe_with(name, &receiver, terms);
    (receiver, tell)
}

/// The targets answer once: from then on they get several requests at a time.
fn answered_once(rig: &Rig, targets: &[(&Receiver, &mpsc::Sender<u16>)]) {
    rig.publish(&json!({ "event_type": "first", "payload": "first" }));
    for (receiver, tell) in targets {
        tell.send(200).unwrap();
        until("it is sent", || receiver.count() == 1);
    }
    rig.settle();
}

#[test]
fn a_dead_letter_blocks_its_lane_until_a_person_acts() {
    let rig = Rig::new();
    let (receiver, tell) = ordered(&rig, "erp", &json!({ "ordering": "key" }));
    (1..=2).for_each(|n| drop(publish(&rig, "a", n)));
    tell.send(400).unwrap();
    until("a1 is dead", || rig.state(1) == "dead_letter");
    publish(&rig, "b", 1);
    tell.send(200).unwrap();
    receiver.gets(&["a1", "b1"]);
    let waits = rig.get("/v1/deliveries/dlv_2");
    assert_eq!(waits["waiting"]["behind"], "dlv_1", "{waits}");
    assert_eq!(waits["waiting"]["reason"], "earlier", "{waits}");
    // One that asks to pass dead letters still waits for the pending one ahead.
    let passes = json!({
        "event_type": "a", "ordering_key": "a", "exclude_failed": true, "payload": "a3",
    });
    rig.publish(&passes);
    rig.call("POST", "/v1/deliveries/dlv_2/cancel", b"").is(200);
    tell.send(200).unwrap();
    receiver.gets(&["a1", "b1", "a3"]);
    rig.call("POST", "/v1/deliveries/dlv_1/retry", b"").is(200);
    tell.send(200).unwrap();
    receiver.gets(&["a1", "b1", "a3", "a1"]);
    rig.settle();
}

#[test]
fn a_delivery_that_is_parked_waits_apart_and_its_lane_goes_on() {
    let rig = Rig::new();
    let terms = json!({ "ordering": "key", "order": { "head_of_line": "park", "park_after": 2 } });
    let (receiver, tell) = ordered(&rig, "erp", &terms);
    (1..=2).for_each(|n| drop(publish(&rig, "a", n)));
    tell.send(500).unwrap();
    receiver.gets(&["a1"]);
    until("it waits", || rig.one("SELECT attempt_count FROM deliveries WHERE seq = 1") == "1");
    tell.send(500).unwrap();
    rig.advance(secs(6));
    tell.send(200).unwrap();
    receiver.gets(&["a1", "a1", "a2"]);
    assert_eq!(rig.state(1), "parked");
    rig.settle();
}

#[test]
fn an_event_may_ask_for_its_lane() {
    let rig = Rig::new();
    let (receiver, tell) = ordered(&rig, "erp", &json!({}));
    answered_once(&rig, &[(&receiver, &tell)]);
    for n in 1..=2 {
        rig.publish(&json!({
            "event_type": "a", "ordering_key": "a", "guaranteed_order": true, "payload": format!("a{n}"),
        }));
    }
    publish(&rig, "a", 3);
    until("two are sent", || receiver.count() == 3);
    assert_eq!(rig.get("/v1/deliveries/dlv_3")["is_behind"], true);
    answer_all(&tell, 3, 200);
    until("all are sent", || receiver.count() == 4);
    let at = |text: &str| receiver.bodies().iter().position(|body| body == text);
    assert!(at("a1") < at("a2"));
    rig.settle();
}

#[test]
fn subscriptions_of_a_group_send_one_after_another() {
    let rig = Rig::new();
    let group = json!({ "ordering": "key", "order": { "group": "sap" }, "event_types": ["order"] });
    let (orders, tell_orders) = ordered(&rig, "orders", &group);
    let group =
        json!({ "ordering": "key", "order": { "group": "sap" }, "event_types": ["invoice"] });
    let (invoices, tell_invoices) = ordered(&rig, "invoices", &group);
    for kind in ["order", "invoice"] {
        rig.publish(&json!({ "event_type": kind, "ordering_key": "7", "payload": kind }));
    }
    until("the order is sent", || orders.count() == 1);
    tell_orders.send(500).unwrap();
    until("it waits", || rig.one("SELECT attempt_count FROM deliveries WHERE seq = 1") == "1");
    rig.advance(secs(6));
    until("the order is sent again", || orders.count() == 2);
    assert_eq!(invoices.count(), 0);
    tell_orders.send(200).unwrap();
    tell_invoices.send(200).unwrap();
    rig.sent(&invoices, 1);
}

#[test]
fn of_a_funnel_value_one_is_in_flight_across_subscriptions() {
    let rig = Rig::new();
    let (one, tell_one) = ordered(&rig, "one", &json!({ "order": { "funnel_point": "sap" } }));
    let (two, tell_two) = ordered(&rig, "two", &json!({ "order": { "funnel_point": "sap" } }));
    answered_once(&rig, &[(&one, &tell_one), (&two, &tell_two)]);
    rig.publish(&json!({ "event_type": "a", "funnel_value": "7", "payload": "7" }));
    until("one of them is sent", || one.count() + two.count() == 3);
    rig.publish(&json!({ "event_type": "b", "funnel_value": "8", "payload": "8" }));
    // Of the value 8 one goes at once.
    until("8 is sent", || one.count() + two.count() == 4);
    for _ in 0..2 {
        tell_one.send(200).unwrap();
        tell_two.send(200).unwrap();
    }
    rig.sent(&one, 3);
    rig.sent(&two, 3);
}

#[test]
fn terms_of_an_order_that_do_not_go_together_are_refused() {
    let rig = Rig::new();
    for (order, why) in [
        (json!({ "group": "S P" }), "group must have 1 to 63"),
        (json!({ "park_after": 3 }), "head_of_line park"),
        (json!({ "external_calls": "custom" }), "call_path"),
        (json!({ "funnel_point": "sap", "external_calls": "entity" }), "use one of them"),
    ] {
        let body = json!({ "name": "erp", "url": "https://example.com/", "order": order });
        let said = rig.post("/v1/subscriptions", &body).is(422);
        assert!(said.text().contains(why), "{said:?}");
    }
    let of = |name: &str, target: &str| {
        let mut body = json!({ "name": name, "target": target, "order": { "group": "sap" } });
        if target == "http" {
            body["url"] = json!("https://example.com/");
        }
        rig.post("/v1/subscriptions", &body)
    };
    of("sent", "http").is(201);
    assert!(of("pulled", "pull").is(422).text().contains("sent of this group"));
    rig.post("/v1/subscriptions", &json!({ "name": "pulled", "target": "pull" })).is(201);
    rig.patch("/v1/subscriptions/pulled", &json!({ "order": { "group": "sap" } })).is(422);
}
