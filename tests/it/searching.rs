//! `GET /v1/search`: one text finds what a person looks for.

use crate::rig::prelude::*;

const SECRET: &str = "a-shared-secret-of-32-characters";

fn search(rig: &Rig, text: &str) -> Value {
    let text = text
        .replace('%', "%25")
        .replace('+', "%2B")
        .replace(' ', "%20")
        .replace('\u{10ffff}', "%F4%8F%BF%BF");
    rig.get(&format!("/v1/search?q={text}"))
}

/// Kind, field and value of what a text finds.
fn hits(rig: &Rig, text: &str) -> Vec<[String; 3]> {
    let found = search(rig, text);
    let items = found["items"].as_array().unwrap();
    let word = |item: &Value, field: &str| item[field].as_str().unwrap().to_owned();
    items.iter().map(|item| ["kind", "matched", "value"].map(|field| word(item, field))).collect()
}

fn hit(kind: &str, matched: &str, value: &str) -> [String; 3] {
    [kind, matched, value].map(str::to_owned)
}

fn invoice(number: &str, key: &str) -> Value {
    json!({
        "event_type": "invoice.paid", "source_system": "erp", "idempotency_key": key,
        "aggregate_type": "invoice", "aggregate_id": number, "payload": 1,
    })
}

#[test]
fn a_number_finds_an_event_by_its_aggregate_and_its_key_and_a_webhook_by_the_providers_id() {
    let (rig, receiver) = Rig::subscribed("shop-4711");
    let check = json!({ "token": { "header": "X-Token" } });
    let scheme = json!({ "kind": "generic", "check": check, "event_id": { "pointer": "/id" }, "event_type": { "pointer": "/type" } });
    rig.provider("hub", &scheme, SECRET);
    rig.publish(&invoice("4711", "invoice.paid:4711"));
    rig.publish(&invoice("471", "4711-a"));
    rig.publish(&invoice("47112", "other"));
    rig.publish(&invoice("0815", "another"));
    let body = br#"{"id":"4711","type":"order.made"}"#;
    rig.send("POST", "/in/hub", &[("X-Token", SECRET)], body).is(200);
    rig.sent(&receiver, 4);

    let found = search(&rig, "4711");
    assert_eq!(found["more"], false);
    assert_eq!(
        hits(&rig, "4711"),
        [
            hit("event", "aggregate_id", "47112"),
            hit("event", "idempotency_key", "4711-a"),
            hit("event", "aggregate_id", "4711"),
            hit("webhook_event", "provider_event_id", "4711"),
        ]
    );
    has(&found["items"][0], &json!({ "event_type": "invoice.paid", "status": "completed" }));
    assert_eq!(hits(&rig, "shop"), [hit("subscription", "name", "shop-4711")]);
    assert_eq!(hits(&rig, "hub"), [hit("provider", "name", "hub")]);
    assert_eq!(search(&rig, "hub")["items"][0]["id"], "hub");
    let settings = json!({ "path": rig.home().join("erp.db"), "table": "outbox" });
    rig.source("hub-files", "sqlite", &settings);
    assert_eq!(hits(&rig, "hub-f"), [hit("source", "name", "hub-files")]);
    assert_eq!(hits(&rig, "order.made"), [hit("webhook_event", "event_type", "order.made")]);
    assert_eq!(hits(&rig, "ord").len(), 1);
    // One character is only found as a whole, and nothing in a text is a pattern.
    for nothing in ["i", "nothing", "47%", "471_", "*", "' OR 1=1 --", "\u{10ffff}"] {
        assert_eq!(hits(&rig, nothing), [] as [[String; 3]; 0], "{nothing}");
    }
    rig.publish(&invoice("7", "seven"));
    assert_eq!(hits(&rig, "7"), [hit("event", "aggregate_id", "7")]);
    assert_eq!(rig.get("/v1/search"), json!({ "items": [], "more": false }));
    rig.call("GET", "/v1/search?q=%20", b"").is(400);
    rig.call("GET", &format!("/v1/search?q={}", "x".repeat(501)), b"").is(400);
}

#[test]
fn ids_find_what_they_name() {
    let (rig, receiver) = Rig::subscribed("erp");
    let event = rig.publish(&invoice("4711", "k"));
    rig.sent(&receiver, 1);
    let text = |field: &str| event[field].as_str().unwrap().to_owned();
    let (id, webhook_id) = (text("id"), text("webhook_id"));
    assert_eq!(hits(&rig, &id), [hit("event", "id", &id)]);
    assert_eq!(hits(&rig, id.get(..20).unwrap()), [hit("event", "id", &id)]);
    assert_eq!(
        hits(&rig, id.get(..7).unwrap()),
        [] as [[String; 3]; 0],
        "a UUID needs 8 characters"
    );
    assert_eq!(hits(&rig, &webhook_id), [hit("event", "webhook_id", &webhook_id)]);
    assert_eq!(
        hits(&rig, webhook_id.get(..12).unwrap()),
        [hit("event", "webhook_id", &webhook_id)]
    );
    for delivery in ["dlv_1", "dlv_1.1", "1", "1.1"] {
        assert_eq!(hits(&rig, delivery), [hit("delivery", "id", "dlv_1")], "{delivery}");
    }
    assert_eq!(search(&rig, "dlv_1")["items"][0]["status"], "completed");
    let stored = rig.one("SELECT id FROM subscriptions");
    assert_eq!(hits(&rig, &stored), [hit("subscription", "id", &stored)]);
}

#[test]
fn a_field_shows_twenty_hits_the_exact_ones_first_and_says_that_there_are_more() {
    let rig = Rig::new();
    let many: Vec<Value> =
        (0..30).map(|n| invoice(&format!("A-{n:02}"), &format!("k{n}"))).collect();
    rig.post("/v1/events", &json!(many)).is(201);
    let found = search(&rig, "A-");
    assert_eq!(
        (found["more"].clone(), found["items"].as_array().unwrap().len()),
        (json!(true), 20)
    );
    assert_eq!(hits(&rig, "A-")[0], hit("event", "aggregate_id", "A-29"));
    let same: Vec<Value> = (0..3).map(|n| invoice("A-1", &format!("x{n}"))).collect();
    rig.post("/v1/events", &json!(same)).is(201);
    let found = hits(&rig, "A-1");
    assert_eq!(found.len(), 13);
    assert!(found[..3].iter().all(|of| *of == hit("event", "aggregate_id", "A-1")), "{found:?}");
}
