//! Operating a lane: what is first in it, why it waits, and what a person does about it while it runs.

use crate::rig::prelude::*;

/// A subscription whose target answers each request when it is told to, and with what.
fn ordered(terms: &Value) -> (Rig, Receiver, mpsc::Sender<u16>) {
    let (rig, (receiver, tell)) = (Rig::new(), Receiver::on_word());
    rig.subscribe_with("erp", &receiver, terms);
    (rig, receiver, tell)
}

fn strict() -> (Rig, Receiver, mpsc::Sender<u16>) {
    ordered(&json!({ "ordering": "strict" }))
}

fn publish(rig: &Rig, key: &str, count: u32) {
    for n in 1..=count {
        let payload = format!("{key}{n}");
        rig.publish(&json!({ "event_type": "a", "ordering_key": key, "payload": payload }));
    }
}

fn is(rig: &Rig, delivery: u32, wanted: &str) {
    until(wanted, || rig.state(delivery) == wanted);
}

fn act(rig: &Rig, delivery: u32, verb: &str) -> Value {
    let body = json!({ "reason": "a test" });
    rig.post(&format!("/v1/deliveries/dlv_{delivery}/{verb}"), &body).is(200).json()
}

fn lanes(rig: &Rig, query: &str) -> Vec<Value> {
    rig.items(&format!("/v1/lanes{query}"))
}

/// One request in flight at a time: the next begins when the one before was answered.
#[track_caller]
fn answer(receiver: &Receiver, tell: &mpsc::Sender<u16>, so_far: usize) {
    assert_eq!(receiver.count(), so_far);
    tell.send(200).unwrap();
}

#[test]
fn a_lane_says_what_is_first_why_it_waits_and_what_is_behind_it() {
    let (rig, receiver, tell) = ordered(&json!({ "ordering": "key" }));
    publish(&rig, "a", 3);
    tell.send(500).unwrap();
    receiver.gets(&["a1"]);
    until("it waits", || rig.one("SELECT attempt_count FROM deliveries WHERE seq = 1") == "1");
    let lane = lanes(&rig, "").remove(0);
    let shown = ["subscription", "key", "delivery", "state"].map(|field| lane[field].clone());
    assert_eq!(shown, ["erp", "a", "dlv_1", "pending"]);
    has(&lane, &json!({ "blocked": false, "waiting": 2, "more": false }));
    assert!(lane["why"].as_str().unwrap().contains("after one failed attempt"), "{lane}");
    let delivery = rig.get("/v1/deliveries/dlv_2");
    assert_eq!((&delivery["lane"], &delivery["late"]), (&lane["id"], &json!(false)));
    // The dead letter blocks it, and is what it says then.
    tell.send(400).unwrap();
    rig.advance(secs(6));
    is(&rig, 1, "dead_letter");
    publish(&rig, "b", 2);
    until("the lane of b is tried", || receiver.count() == 3);
    let [first, second] = <[Value; 2]>::try_from(lanes(&rig, "?limit=2")).unwrap();
    assert_eq!((&first["blocked"], &first["delivery"]), (&json!(true), &json!("dlv_1")));
    assert!(first["why"].as_str().unwrap().contains("blocks its lane until a person"), "{first}");
    assert_eq!((&second["key"], &second["waiting"]), (&json!("b"), &json!(1)));
    assert!(second["why"].as_str().unwrap().contains("an attempt is under way"), "{second}");
    assert_eq!(lanes(&rig, "?blocked=true"), std::slice::from_ref(&first));
    assert_eq!(lanes(&rig, "?blocked=false").len(), 1);
    assert!(lanes(&rig, "?subscription=other").is_empty());
    let path = format!("/v1/lanes/{}", first["id"].as_str().unwrap());
    assert_eq!(rig.get(&path)["lane"], first);
    let ids = |field: &str| -> Vec<String> {
        let rows = rig.get(&path)[field].as_array().unwrap().clone();
        rows.iter().map(|row| text(row, "id")).collect()
    };
    assert_eq!(ids("deliveries"), ["dlv_2", "dlv_3"]);
    act(&rig, 3, "park");
    assert_eq!(
        (ids("deliveries"), ids("parked")),
        (vec!["dlv_2".to_owned()], vec!["dlv_3".to_owned()])
    );
    // Pages of one lane each come to all, the blocked one first.
    let page = rig.get("/v1/lanes?limit=1");
    let rest = rig.get(&format!("/v1/lanes?limit=1&after={}", page["next"].as_str().unwrap()));
    assert_eq!(page["items"][0]["id"], first["id"]);
    assert_eq!(rest["items"][0]["id"], second["id"]);
    rig.call("GET", "/v1/lanes/lane_1", b"").is(404);
    rig.tenant("acme");
    let acme = rig.token_in("acme", "read");
    assert_eq!(rig.get_as(&acme, "/v1/lanes")["items"], json!([]));
    rig.call_as(&acme, "GET", &path, b"").is(404);
    answer_all(&tell, 9, 200);
    rig.settle();
}

#[test]
fn what_blocks_a_lane_is_sent_again_skipped_or_cancelled() {
    for (verb, wanted) in [
        ("retry", vec!["a1", "a1", "a2"]),
        ("skip", vec!["a1", "a2"]),
        ("cancel", vec!["a1", "a2"]),
    ] {
        let (rig, receiver, tell) = strict();
        publish(&rig, "a", 2);
        tell.send(400).unwrap();
        is(&rig, 1, "dead_letter");
        rig.delete("/v1/subscriptions/erp").is(409);
        answer_all(&tell, 2, 200);
        rig.call("POST", &format!("/v1/deliveries/dlv_1/{verb}"), b"").is(200);
        receiver.gets(&wanted);
        is(&rig, 2, "completed");
        assert!(lanes(&rig, "").is_empty(), "{verb}");
        rig.settle();
    }
}

#[test]
fn a_discarded_dead_letter_lets_its_lane_go_on() {
    let (rig, receiver, tell) = strict();
    publish(&rig, "a", 2);
    tell.send(400).unwrap();
    is(&rig, 1, "dead_letter");
    rig.post("/v1/dead-letters/discard", &json!({ "filter": {}, "reason": "a test" })).is(201);
    tell.send(200).unwrap();
    receiver.gets(&["a1", "a2"]);
    rig.settle();
}

#[test]
fn other_terms_unblock_the_lanes_of_a_subscription() {
    for terms in [json!({ "head_of_line": "skip" }), json!({ "head_of_line": "park" })] {
        let (rig, receiver, tell) = ordered(&json!({ "ordering": "key" }));
        for key in ["a", "b"] {
            publish(&rig, key, 2);
        }
        for dead in [1, 3] {
            tell.send(400).unwrap();
            is(&rig, dead, "dead_letter");
        }
        assert_eq!(lanes(&rig, "?blocked=true").len(), 2);
        rig.patch("/v1/subscriptions/erp", &json!({ "order": terms })).is(200);
        assert!(lanes(&rig, "?blocked=true").is_empty());
        answer_all(&tell, 2, 200);
        rig.sent(&receiver, 4);
    }
}

/// Dead letters, each alone in its lane.
const DEAD: &str = "
    WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?1)
    INSERT INTO deliveries (outbox_seq, subscription_seq, tenant, lane, order_at, state, finished_at, head)
    SELECT 1 + i, 1, 'default', i * 7919, i, 'dead_letter', ?2, 1
      FROM n";

#[test]
fn any_number_of_lanes_is_unblocked_by_one_change() {
    let mut rig = Rig::new();
    rig.subscribe_with("erp", &Receiver::new(), &json!({ "ordering": "key" }));
    rig.stop();
    let conn = rig.writable();
    conn.run("PRAGMA synchronous = OFF");
    let count = 10_050;
    conn.execute(EVENTS, (count, START.ms(), 1)).unwrap();
    conn.execute(DEAD, (count, START.ms())).unwrap();
    drop(conn);
    rig.start_again();
    rig.patch("/v1/subscriptions/erp", &json!({ "order": { "head_of_line": "skip" } })).is(200);
    rig.says("SELECT count(*) FROM deliveries WHERE state = 'dead_letter' AND head = 1", "0");
}

#[test]
fn what_is_replaced_is_not_sent_even_if_its_turn_comes_at_the_same_moment() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    rig.subscribe_with("erp", &receiver, &json!({ "policy": { "rate": "60/h" } }));
    publish(&rig, "a", 2);
    is(&rig, 1, "completed");
    // The change is checked, and waits for the file.
    let other = rig.writable();
    other.run("BEGIN IMMEDIATE");
    let edited = json!({ "payload": "new" });
    thread::scope(|scope| {
        let edit = scope.spawn(|| rig.post("/v1/deliveries/dlv_2/edit-and-resend", &edited));
        thread::sleep(Duration::from_millis(500));
        rig.advance(secs(60));
        thread::sleep(Duration::from_millis(200));
        other.run("ROLLBACK");
        edit.join().unwrap().is(201);
    });
    rig.passing("the new one is sent", secs(1), || rig.state(3) == "completed");
    receiver.gets(&["a1", "new"]);
}

#[test]
fn what_waits_for_its_rate_and_is_first_no_more_lets_the_others_go_before() {
    let policy = json!({ "rate": "60/h" });
    let terms = json!({ "ordering": "strict", "policy": policy, "event_types": ["a"] });
    let (rig, receiver, tell) = ordered(&terms);
    let beside = Receiver::new();
    rig.subscribe_with("beside", &beside, &json!({ "event_types": ["b"] }));
    (0..4).for_each(|_| tell.send(200).unwrap());
    publish(&rig, "a", 3);
    is(&rig, 1, "completed");
    // When this is sent, the dispatcher has fetched the second one.
    rig.publish_type("b");
    until("it is sent", || beside.count() == 1);
    act(&rig, 2, "move-to-end");
    let late =
        json!({ "event_type": "a", "payload": "late", "occurred_at": "2026-01-31T11:00:00Z" });
    rig.publish(&late);
    for sent in [&["a1", "late"][..], &["a1", "late", "a3"], &["a1", "late", "a3", "a2"]] {
        rig.advance(secs(60));
        receiver.gets(sent);
        is(&rig, [5, 3, 2][sent.len() - 2], "completed");
    }
}

#[test]
fn a_delivery_that_is_parked_moved_or_skipped_in_flight_keeps_its_lane_until_it_is_settled() {
    let (rig, receiver, tell) = strict();
    publish(&rig, "a", 6);
    receiver.gets(&["a1"]);
    act(&rig, 1, "park");
    assert_eq!(rig.get("/v1/deliveries/dlv_2")["is_behind"], false);
    rig.advance(secs(60));
    answer(&receiver, &tell, 1);
    // Its request succeeded; it is parked all the same, and a person decides.
    receiver.gets(&["a1", "a2"]);
    act(&rig, 2, "move-to-end");
    rig.advance(secs(60));
    assert_eq!(receiver.count(), 2);
    tell.send(500).unwrap();
    receiver.gets(&["a1", "a2", "a3"]);
    act(&rig, 3, "skip");
    rig.advance(secs(60));
    answer(&receiver, &tell, 3);
    receiver.gets(&["a1", "a2", "a3", "a4"]);
    // The parked one goes to its place: before the rest, and after who is in flight.
    act(&rig, 1, "release");
    rig.advance(secs(60));
    answer(&receiver, &tell, 4);
    receiver.gets(&["a1", "a2", "a3", "a4", "a1"]);
    for so_far in 5..8 {
        answer(&receiver, &tell, so_far);
        until("the next is sent", || receiver.count() > so_far);
        rig.advance(secs(60));
    }
    assert_eq!(receiver.bodies()[5..], ["a5", "a6", "a2"]);
    tell.send(200).unwrap();
    rig.settle();
    let states = rig.lines("SELECT state FROM deliveries ORDER BY seq");
    assert_eq!(states[2], "skipped");
    assert_eq!(states.iter().filter(|state| *state == "completed").count(), 5);
    let reason = rig.one("SELECT reason FROM deliveries WHERE seq = 3");
    assert_eq!(reason, "a test, says first admin token");
}

#[test]
fn a_parked_delivery_is_sent_by_a_retry_too() {
    let (rig, receiver, tell) = strict();
    rig.call("POST", "/v1/subscriptions/erp/pause", b"").is(200);
    publish(&rig, "a", 2);
    let parked = act(&rig, 1, "park");
    has(&parked, &json!({ "state": "parked", "reason": "a test, says first admin token" }));
    assert_eq!(rig.get("/v1/deliveries/dlv_1")["waiting"]["reason"], "person");
    rig.call("POST", "/v1/deliveries/dlv_1/retry", b"").is(200);
    answer_all(&tell, 2, 200);
    rig.call("POST", "/v1/subscriptions/erp/resume", b"").is(200);
    receiver.gets(&["a1", "a2"]);
    rig.settle();
}

#[test]
fn what_cannot_be_done_is_refused_with_the_state_and_what_can() {
    let rig = Rig::new();
    rig.post("/v1/subscriptions", &json!({ "name": "erp", "target": "pull" })).is(201);
    rig.publish_type("a");
    let say = |verb: &str, body: &Value, status: u16| {
        let path = format!("/v1/deliveries/dlv_1/{verb}");
        rig.post(&path, body).is(status).detail()
    };
    let refused = say("park", &json!({}), 409);
    assert_eq!(
        refused,
        "dlv_1 is pending; only a pending delivery in a lane can be parked. Possible now: retry, skip, cancel."
    );
    assert!(say("move-to-end", &json!({}), 409).contains("can be moved"));
    assert!(say("release", &json!({}), 409).contains("parked or in doubt"));
    assert!(say("skip", &json!({ "reason": " " }), 422).contains("must say something"));
    assert!(say("edit-and-resend", &json!({}), 422).contains("Give the new payload"));
    rig.get("/v1/consumers/erp/next");
    let edited = json!({ "payload": 2 });
    assert!(say("edit-and-resend", &edited, 409).contains("is leased; only one that is pending"));
    assert!(say("skip", &json!({}), 409).ends_with("Possible now: retry, cancel."));
    rig.call("POST", "/v1/deliveries/dlv_1/cancel", b"").is(200);
    assert!(say("edit-and-resend", &edited, 409).contains("is cancelled"));
    assert_eq!(rig.one("SELECT count(*) FROM outbox"), "1", "nothing was left behind");
}

#[test]
fn another_payload_goes_to_the_place_of_what_it_replaces() {
    let (rig, receiver, tell) = strict();
    // All in one millisecond, so that nothing but the order of arrival tells them apart.
    publish(&rig, "a", 4);
    receiver.gets(&["a1"]);
    let edit = |delivery: u32, payload: &str| {
        let body = json!({ "payload": payload, "headers": { "X-Site": "north" } });
        rig.post(&format!("/v1/deliveries/dlv_{delivery}/edit-and-resend"), &body)
    };
    edit(1, "b1").is(409).tells("an attempt is in flight: park it");
    tell.send(400).unwrap();
    is(&rig, 1, "dead_letter");
    // One in the middle keeps its place behind the dead letter and before the last.
    let third = edit(3, "b3").is(201).json();
    let first = edit(1, "b1").is(201).json();
    let old = rig.get("/v1/deliveries/dlv_1");
    let event = first["event_id"].as_str().unwrap();
    has(&old, &json!({ "state": "skipped", "reason": format!("replaced by event {event}") }));
    let new = rig.get(&format!("/v1/events/{event}"));
    assert_eq!((&new["replay_of"], &new["target"]), (&old["event_id"], &json!("erp")));
    has(&new, &json!({ "ordering_key": "a", "headers": { "X-Site": "north" } }));
    assert_eq!((&first["lane"], &third["lane"]), (&old["lane"], &old["lane"]));
    answer_all(&tell, 4, 200);
    receiver.gets(&["a1", "b1", "a2", "b3", "a4"]);
    assert_eq!((&first["late"], &third["late"]), (&json!(false), &json!(false)));
    rig.settle();
    let audited = rig.get("/v1/audit-events?action=delivery.edit_and_resend");
    shows(&audited["items"][0]["changes"].to_string(), &["payload_sha256", "replaced_by"]);
}

#[test]
fn another_payload_goes_behind_the_dead_letter_that_blocks_its_lane() {
    let (rig, receiver, tell) = strict();
    publish(&rig, "a", 2);
    tell.send(400).unwrap();
    is(&rig, 1, "dead_letter");
    rig.post("/v1/deliveries/dlv_2/edit-and-resend", &json!({ "payload": "b2" })).is(201);
    assert_eq!(lanes(&rig, "?blocked=true").len(), 1);
    answer_all(&tell, 2, 200);
    rig.call("POST", "/v1/deliveries/dlv_1/retry", b"").is(200);
    receiver.gets(&["a1", "a1", "b2"]);
    rig.settle();
}

#[test]
fn another_payload_is_checked_like_a_published_one() {
    let (rig, _receiver, tell) = strict();
    let policy = json!({ "rules": [{ "path": "$.card", "action": "reject" }] });
    rig.patch("/v1/tenants/default", &json!({ "pii": policy })).is(200);
    publish(&rig, "a", 1);
    tell.send(400).unwrap();
    is(&rig, 1, "dead_letter");
    let edit = |body: &Value| rig.post("/v1/deliveries/dlv_1/edit-and-resend", body);
    edit(&json!({ "payload": { "card": "1" } })).is(422);
    edit(&json!({ "payload": 1, "headers": { "no name": "x" } })).is(422);
    edit(&json!({ "payload": 1, "payload_base64": "MQ==" })).is(422);
    // As large as a published one may be.
    let large = "x".repeat((1 << 20) - 2);
    edit(&json!({ "payload": large })).is(201);
    assert_eq!(rig.state(1), "skipped");
    tell.send(200).unwrap();
    is(&rig, 2, "completed");
    let webhook = crate::it::bulk::skipped_webhook(&rig);
    tell.send(400).unwrap();
    rig.patch("/v1/subscriptions/erp", &json!({ "source": "all" })).is(200);
    rig.post(&format!("/v1/webhook-events/{webhook}/replay"), &json!({})).is(200);
    is(&rig, 3, "dead_letter");
    let refused = rig.post("/v1/deliveries/dlv_3/edit-and-resend", &json!({ "payload": 1 }));
    refused.is(422).tells("publish an event instead");
}

/// Events with one delivery each; that of every ?3-th is dead.
const EVENTS: &str = "
    WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?1)
    INSERT INTO outbox (id, tenant, idempotency_key, event_type, payload, received_at, routed_at, open_deliveries,
                        own, status, completed_at)
    SELECT printf('01980000-0000-7000-8000-%012x', i), 'default', printf('k-%09d', i), 'a', '{}', ?2, ?2, i % ?3 <> 0, 1,
           iif(i % ?3 = 0, 'dead_letter', 'pending'), iif(i % ?3 = 0, ?2, NULL)
      FROM n";

/// Deliveries in lanes of 100, each with a head; every hundredth lane is blocked.
const MANY: &str = "
    WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?1)
    INSERT INTO deliveries (outbox_seq, subscription_seq, tenant, lane, order_at, state, due_at, finished_at, head)
    SELECT 1 + i, 1, 'default', i / 100 * 7919, i,
           iif(i % 10000 = 0, 'dead_letter', 'pending'), iif(i % 10000 = 0, NULL, ?2),
           iif(i % 10000 = 0, ?2, NULL), i % 100 = 0
      FROM n";

#[test]
fn many_lanes_are_listed_by_one_seek_each() {
    let (mut rig, _receiver) =
        Rig::subscribed_with("erp", Receiver::new(), &json!({ "ordering": "key" }));
    rig.call("POST", "/v1/subscriptions/erp/pause", b"").is(200);
    rig.stop();
    let conn = rig.writable();
    conn.run("PRAGMA synchronous = OFF");
    let count = 200_000;
    conn.execute(EVENTS, (count, START.ms(), 10_000)).unwrap();
    conn.execute(MANY, (count, START.ms())).unwrap();
    drop(conn);
    rig.start_again();
    let page = rig.get("/v1/lanes?limit=500");
    let items = page["items"].as_array().unwrap();
    let blocked = items.iter().take_while(|lane| lane["blocked"] == true).count();
    // A page ends when it has counted 20,000 deliveries.
    assert_eq!((items.len(), blocked), (203, 20));
    assert!(items.iter().all(|lane| lane["waiting"] == 99));
    let (mut all, mut next) = (items.len(), page["next"].clone());
    while let Some(after) = next.as_str() {
        let page = rig.get(&format!("/v1/lanes?limit=500&after={after}"));
        all += page["items"].as_array().unwrap().len();
        next = page["next"].clone();
    }
    assert_eq!(all, 2000);
    assert_eq!(lanes(&rig, "?blocked=true&limit=500").len(), 20);
}
