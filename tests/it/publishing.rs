//! `POST /v1/events`: each event is stored once, all of a request or none.

use crate::rig::prelude::*;

const KEY: &str = "0b8cf1f2-6f2e-4d5c-9c3f-5b1f0f3c7a11";

fn with_key(rig: &Rig, key: &str, body: &str) -> Answer {
    rig.post_keyed(&rig.token, key, body)
}

fn stored(rig: &Rig) -> String {
    rig.one("SELECT count(*) FROM outbox")
}

#[test]
fn an_event_that_is_published_twice_is_answered_twice_and_stored_once() {
    let (rig, receiver) = Rig::subscribed("erp");
    let event =
        json!({ "event_type": "order.paid", "idempotency_key": "o-7", "payload": {"id": 7} });
    let first = rig.post("/v1/events", &event).is(201).json();
    let second = rig.post("/v1/events", &event).is(200).json();
    assert_eq!(first["events"][0]["already_processed"], false);
    assert_eq!(second["events"][0]["already_processed"], true);
    assert_eq!(second["events"][0].get("differs"), None);
    for same in ["id", "webhook_id"] {
        assert_eq!(first["events"][0][same], second["events"][0][same]);
    }
    rig.settle();
    assert_eq!((stored(&rig).as_str(), receiver.count()), ("1", 1));
    assert_eq!(rig.one("SELECT duplicate_count, differing_count FROM outbox"), "1 0");
}

#[test]
fn the_same_key_with_other_content_is_told_and_the_first_content_stays() {
    let rig = Rig::new();
    let event = |paid: u32| json!({ "event_type": "order.paid", "idempotency_key": "o-7", "payload": {"paid": paid} });
    let first = rig.publish(&event(1));
    assert_eq!(rig.post("/v1/events", &event(2)).is(200).json()["events"][0]["differs"], true);
    let id = first["id"].as_str().unwrap();
    assert_eq!(rig.get(&format!("/v1/events/{id}"))["payload"], json!({"paid": 1}));
    assert_eq!(rig.one("SELECT duplicate_count, differing_count FROM outbox"), "1 1");
}

#[test]
fn the_same_key_from_another_source_system_is_another_event() {
    let rig = Rig::new();
    let event = |source: &str| json!({ "event_type": "a", "idempotency_key": "1", "source_system": source, "payload": 1 });
    let (first, second) = (rig.publish(&event("erp")), rig.publish(&event("shop")));
    assert_ne!(first["webhook_id"], second["webhook_id"]);
    assert_eq!(stored(&rig), "2");
}

#[test]
fn a_large_payload_that_comes_again_is_not_stored_again() {
    let rig = Rig::new();
    let event = json!({ "event_type": "a", "idempotency_key": "1", "payload": "x".repeat(20_000) });
    rig.publish(&event);
    assert_eq!(rig.publish(&event)["already_processed"], true);
    assert_eq!(rig.one("SELECT count(*) FROM payloads"), "1");
}

#[test]
fn a_request_with_an_idempotency_key_is_answered_the_same_again_to_the_byte() {
    let rig = Rig::new();
    let body = r#"{"event_type":"order.paid","payload":1}"#;
    let first = with_key(&rig, KEY, body).is(201);
    let second = with_key(&rig, KEY, body).is(201);
    assert_eq!(first.body(), second.body());
    assert_eq!(first.field("idempotency-replayed"), None);
    assert_eq!(second.field("idempotency-replayed"), Some("true"));
    assert_eq!(stored(&rig), "1");
}

#[test]
fn an_idempotency_key_with_another_body_is_refused() {
    let rig = Rig::new();
    with_key(&rig, KEY, r#"{"event_type":"order.paid","payload":1}"#).is(201);
    with_key(&rig, KEY, r#"{"event_type":"order.paid","payload":2}"#)
        .is(422)
        .tells("was used for another request");
    assert_eq!(stored(&rig), "1");
}

#[test]
fn an_idempotency_key_in_quotes_is_the_same_as_without() {
    let rig = Rig::new();
    let body = r#"{"event_type":"order.paid","payload":1}"#;
    for key in ["7", KEY, "urn:order/7+8=15?", &"k".repeat(128)] {
        let first = with_key(&rig, &format!("\"{key}\""), body).is(201);
        let second = with_key(&rig, key, body).is(201);
        assert_eq!(second.field("idempotency-replayed"), Some("true"), "{key}");
        assert_eq!(first.body(), second.body());
    }
    assert_eq!(stored(&rig), "4");
}

#[test]
fn an_idempotency_key_that_is_no_key_is_refused() {
    let rig = Rig::new();
    let long = "k".repeat(129);
    let quoted_long = format!("\"{long}\"");
    for key in [
        "",
        "\"\"",
        "\"",
        "\"a",
        "a\"",
        "a b",
        "a,b",
        "a;b",
        "\"a\\\"b\"",
        "\"a\";q=1",
        "\u{e4}",
        &long,
        &quoted_long,
    ] {
        let refused = with_key(&rig, key, r#"{"event_type":"order.paid","payload":1}"#).is(400);
        assert!(refused.detail().contains("1 to 128"), "{key}");
    }
    let bearer = format!("Bearer {}", rig.token);
    let twice = [
        ("Authorization", bearer.as_str()),
        ("Idempotency-Key", KEY),
        ("Idempotency-Key", "another"),
    ];
    rig.send("POST", "/v1/events", &twice, br#"{"event_type":"order.paid","payload":1}"#).is(400);
    assert_eq!(stored(&rig), "0");
}

#[test]
fn a_request_that_is_refused_does_not_use_up_its_idempotency_key() {
    let rig = Rig::new();
    with_key(&rig, KEY, r#"{"event_type":"","payload":1}"#).is(422);
    with_key(&rig, KEY, r#"{"event_type":"order.paid","payload":1}"#).is(201);
}

#[test]
fn an_idempotency_key_is_forgotten_after_a_day() {
    let rig = Rig::new();
    let body = r#"{"event_type":"order.paid","payload":1}"#;
    with_key(&rig, KEY, body).is(201);
    rig.advance(secs(24 * 3600 - 1));
    assert_eq!(with_key(&rig, KEY, body).field("idempotency-replayed"), Some("true"));
    rig.advance(secs(1));
    assert_eq!(with_key(&rig, KEY, body).is(201).field("idempotency-replayed"), None);
    assert_eq!(stored(&rig), "2");
}

#[test]
fn expired_idempotency_keys_are_swept_away() {
    let rig = Rig::new();
    with_key(&rig, KEY, r#"{"event_type":"order.paid","payload":1}"#).is(201);
    rig.advance(secs(24 * 3600));
    until("the key is swept", || rig.one("SELECT count(*) FROM idempotency_keys") == "0");
}

#[test]
fn two_requests_at_once_with_one_idempotency_key_store_once() {
    let rig = Rig::new();
    let body = r#"{"event_type":"order.paid","payload":1}"#;
    let answers: Vec<_> = thread::scope(|scope| {
        let sends: Vec<_> = (0..8).map(|_| scope.spawn(|| with_key(&rig, KEY, body))).collect();
        sends.into_iter().map(|send| send.join().unwrap()).collect()
    });
    assert_eq!(stored(&rig), "1");
    let fresh = answers.iter().filter(|a| a.field("idempotency-replayed").is_none()).count();
    assert_eq!(fresh, 1, "{answers:?}");
    assert!(answers.iter().all(|answer| answer.body() == answers[0].body()));
}

#[test]
fn an_array_with_a_bad_event_at_its_end_stores_nothing() {
    let rig = Rig::new();
    let good = json!({ "event_type": "order.paid", "payload": 1 });
    let bad = json!({ "event_type": "order.paid", "payload": 1, "max_attempts": 0 });
    let refused = rig.post("/v1/events", &json!([good, good, bad])).is(422);
    assert!(refused.detail().starts_with("Event 2 "), "{}", refused.detail());
    assert_eq!(stored(&rig), "0");
}

#[test]
fn a_thousand_events_at_once_are_stored_and_one_more_is_refused() {
    let rig = Rig::new();
    let event =
        |n: usize| json!({ "event_type": "a", "idempotency_key": n.to_string(), "payload": n });
    let events: Vec<Value> = (0..1001).map(event).collect();
    rig.post("/v1/events", &json!(events)).is(422);
    assert_eq!(stored(&rig), "0");
    let lines = rig.post("/v1/events", &json!(events[..1000])).is(201).json();
    assert_eq!(lines["events"].as_array().unwrap().len(), 1000);
    assert_eq!(stored(&rig), "1000");
    rig.post("/v1/events", &json!([])).is(422);
}

#[test]
fn an_array_whose_events_are_all_known_is_answered_200_and_a_mixed_one_201() {
    let rig = Rig::new();
    let event = |key: &str| json!({ "event_type": "a", "idempotency_key": key, "payload": 1 });
    rig.post("/v1/events", &json!([event("1"), event("2")])).is(201);
    rig.post("/v1/events", &json!([event("2"), event("1")])).is(200);
    let mixed = rig.post("/v1/events", &json!([event("2"), event("3"), event("3")])).is(201).json();
    let known = [0, 1, 2].map(|n| mixed["events"][n]["already_processed"].as_bool().unwrap());
    assert_eq!(known, [true, false, true]);
}

#[test]
fn a_payload_of_a_mebibyte_is_taken_and_one_byte_more_is_refused() {
    let rig = Rig::new();
    let event = |bytes: usize| json!({ "event_type": "a", "payload": "x".repeat(bytes - 2) });
    rig.publish(&event(1 << 20));
    rig.post("/v1/events", &event((1 << 20) + 1)).is(422).tells("at most 1048576");
}

#[test]
fn a_request_of_more_than_16_mebibytes_is_refused() {
    let rig = Rig::new();
    let body = vec![b' '; (16 << 20) + 1];
    rig.call("POST", "/v1/events", &body).is(413);
    let mut fits = br#"{"event_type":"a","payload":1}"#.to_vec();
    fits.resize(16 << 20, b' ');
    rig.call("POST", "/v1/events", &fits).is(201);
}

#[test]
fn an_event_is_not_sent_before_its_time() {
    let (rig, receiver) = Rig::subscribed("erp");
    let at = rig.now().plus(secs(3600)).to_string();
    rig.publish(&json!({ "event_type": "a", "payload": 1, "not_before": at }));
    rig.pass(secs(3599));
    insta::assert_snapshot!(rig.dump(), @r"
    a pending
      erp pending due +3600s
    ");
    rig.pass(secs(1));
    assert_eq!(receiver.count(), 1);
}

#[test]
fn fields_out_of_bounds_are_refused_and_name_themselves() {
    let rig = Rig::new();
    for (field, value) in [
        ("event_type", json!("x".repeat(129))),
        ("idempotency_key", json!("x".repeat(256))),
        ("idempotency_key", json!("")),
        ("idempotency_key", json!("line\nfeed")),
        ("source_system", json!("")),
        ("aggregate_type", json!("x".repeat(65))),
        ("aggregate_id", json!("x".repeat(256))),
        ("max_attempts", json!(1001)),
        ("content_type", json!("a\r\nb: c")),
        ("occurred_at", json!("0000-01-01T00:00:00Z")),
        ("occurred_at", json!("1970-01-01T00:00:00Z")),
        ("not_before", json!("2200-01-01T00:00:00Z")),
        ("not_before", json!("9999-12-31T23:59:59Z")),
    ] {
        let mut event = json!({ "event_type": "a", "payload": 1 });
        event[field] = value;
        let refused = rig.post("/v1/events", &event).is(422);
        assert!(refused.detail().contains(field), "{field}: {}", refused.detail());
    }
    for body in
        [&b"{"[..], b"7", b"", br#"{"event_type":"a","payload":1,"typo":1}"#, &b"[".repeat(200)]
    {
        rig.call("POST", "/v1/events", body).is(400);
    }
    assert_eq!(stored(&rig), "0");
}

#[test]
fn an_event_needs_exactly_one_payload() {
    let rig = Rig::new();
    rig.post("/v1/events", &json!({ "event_type": "a" })).is(422);
    let both = json!({ "event_type": "a", "payload": 1, "payload_base64": "AA==" });
    rig.post("/v1/events", &both).is(422);
}

#[test]
fn an_event_nobody_wants_is_skipped() {
    let (rig, _receiver) =
        Rig::subscribed_with("invoices", Receiver::new(), &json!({ "event_types": ["invoice.*"] }));
    assert_eq!(rig.publish_type("order.paid")["status"], "skipped");
    assert_eq!(rig.dump(), "order.paid skipped\n");
}

#[test]
fn a_guard_is_taken_once_per_consumer_group() {
    let rig = Rig::new();
    let claim = |group: &str| {
        rig.post("/v1/processed-events", &json!({ "consumer_group": group, "event_id": "evt_1" }))
    };
    let at = "2026-01-31T12:00:00.000Z";
    let first = json!({ "already_processed": false, "processed_at": at });
    assert_eq!(claim("stock").is(201).json(), first);
    rig.advance(secs(60));
    let again = json!({ "already_processed": true, "processed_at": at });
    assert_eq!(claim("stock").is(200).json(), again);
    claim("ledger").is(201);
    claim("").is(422);
    claim("sto\u{7}ck").is(422).tells("consumer_group must have no line breaks");
}

#[test]
fn a_quarantined_event_that_is_published_again_is_not_said_to_be_processed() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    let event = |target: &str, size: usize| json!({ "event_type": "a", "idempotency_key": "o-1", "target": target, "payload": "x".repeat(size) });
    let first = rig.post("/v1/events", &event("late", 1)).is(201).json()["events"][0].clone();
    let again = rig.post("/v1/events", &event("late", 1)).is(200).json()["events"][0].clone();
    assert_eq!((&again["id"], &again["status"]), (&first["id"], &json!("quarantined")));
    assert_eq!(again["already_processed"], false);
    assert_eq!(rig.one("SELECT duplicate_count FROM outbox"), "1");
    // It says something else, and is still for nobody.
    let other = rig.post("/v1/events", &event("later", 20_000)).is(201).json()["events"][0].clone();
    assert_ne!(other["id"], first["id"]);
    rig.subscribe("later", &receiver);
    // Nothing has changed but that there is a subscription now.
    let sent = rig.post("/v1/events", &event("later", 20_000)).is(201).json()["events"][0].clone();
    assert_eq!((&sent["status"], &sent["already_processed"]), (&json!("pending"), &json!(false)));
    assert_eq!(sent["webhook_id"], first["webhook_id"]);
    rig.sent(&receiver, 1);
    let last = rig.post("/v1/events", &event("later", 20_000)).is(200).json();
    assert_eq!(last["events"][0]["already_processed"], true);
    let id = first["id"].as_str().unwrap();
    let shown = rig.get(&format!("/v1/events/{id}"));
    assert_eq!(shown["idempotency_key"], format!("discarded {id}: o-1"));
    assert_eq!((&shown["status"], &shown["payload"]), (&json!("cancelled"), &json!("x")));
    assert!(shown["last_error"].as_str().unwrap().contains(other["id"].as_str().unwrap()));
    let audit = rig.get("/v1/audit-events?action=event.discard");
    assert_eq!(audit["items"].as_array().unwrap().len(), 2, "{audit}");
}
