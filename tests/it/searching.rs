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
fn a_plus_in_a_query_is_a_space() {
    let rig = Rig::new();
    for number in ["RE 4711", "RE+4711"] {
        rig.post("/v1/events", &invoice(number, number)).is(201);
    }
    let of = |query: &str| -> Vec<String> {
        let found = rig.items(&format!("/v1/events?{query}"));
        found.iter().map(|event| event["aggregate_id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(of("aggregate_id=RE+4711"), ["RE 4711"]);
    assert_eq!(of("aggregate_id=RE%204711"), ["RE 4711"]);
    assert_eq!(of("aggregate_id=RE%2B4711"), ["RE+4711"]);
    // The sign of an offset is understood either way.
    for since in ["2020-01-01T00:00:00%2B01:00", "2020-01-01T00:00:00+01:00"] {
        assert_eq!(of(&format!("aggregate_id=RE+4711&since={since}")), ["RE 4711"]);
    }
}

#[test]
fn a_box_that_has_seen_nothing_finds_nothing() {
    let rig = Rig::new();
    for text in ["invoice", "4711", "evt_abc", "invoice 4711"] {
        let found = search(&rig, text);
        assert_eq!(found["items"], json!([]), "{text}");
        assert_eq!(found["incomplete"].is_null(), text != "evt_abc", "{text}: {found}");
    }
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
    assert_eq!(rig.get("/v1/search"), json!({ "items": [], "more": false, "incomplete": null }));
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
    // A bare number is that of an invoice.
    assert!(hits(&rig, "1").is_empty());
    for delivery in ["dlv_1", "dlv_1.1"] {
        assert_eq!(hits(&rig, delivery), [hit("delivery", "id", "dlv_1")], "{delivery}");
    }
    assert_eq!(search(&rig, "dlv_1")["items"][0]["status"], "completed");
    let stored = rig.one("SELECT id FROM subscriptions");
    assert_eq!(hits(&rig, &stored), [hit("subscription", "id", &stored)]);
}

/// Events with the numbers of a range.
fn publish_numbers(rig: &Rig, numbers: std::ops::Range<usize>) {
    for first in numbers.clone().step_by(1_000) {
        let last = numbers.end.min(first + 1_000);
        let some: Vec<Value> =
            (first..last).map(|n| invoice(&format!("A-{n}"), &format!("k-{n}"))).collect();
        rig.post("/v1/events", &json!(some)).is(201);
    }
}

#[test]
fn exact_ids_find_events_of_any_age_and_an_incomplete_search_says_so() {
    let (rig, receiver) = Rig::subscribed("erp");
    let scheme = json!({ "kind": "generic", "check": { "token": { "header": "X-Token" } },
        "event_id": { "pointer": "/id" }, "event_type": { "pointer": "/type" } });
    rig.provider("hub", &scheme, SECRET);
    let body = br#"{"id":"w-1","type":"order.made"}"#;
    rig.send("POST", "/in/hub", &[("X-Token", SECRET)], body).is(200);
    let oldest = rig.publish(&json!({ "event_type": "rare", "source_system": "erp", "idempotency_key": "oldest-key", "payload": 1 }));
    rig.sent(&receiver, 1);
    assert_eq!(search(&rig, "nothing")["incomplete"], Value::Null);
    let subscription = rig.one("SELECT id FROM subscriptions");
    let pause = format!("/v1/subscriptions/{subscription}/pause");
    rig.post(&pause, &json!({})).is(200);
    publish_numbers(&rig, 0..6_100);

    let (id, webhook_id) = (text(&oldest, "id"), text(&oldest, "webhook_id"));
    assert_eq!(hits(&rig, &id), [hit("event", "id", &id)]);
    assert_eq!(hits(&rig, "oldest-key"), [hit("event", "idempotency_key", "oldest-key")]);
    let delivery = rig.one(&format!(
        "SELECT 'dlv_' || d.seq FROM deliveries AS d JOIN outbox AS o ON o.seq = d.outbox_seq WHERE o.id = '{id}'"
    ));
    assert_eq!(hits(&rig, &delivery), [hit("delivery", "id", &delivery)]);
    let found = search(&rig, &webhook_id);
    assert_eq!(hits(&rig, &webhook_id), [hit("event", "webhook_id", &webhook_id)]);
    assert_eq!((&found["items"][0]["id"], &found["incomplete"]), (&json!(id), &Value::Null));
    let of_hub = oncebox::base::id::webhook_id("default", "in:hub", "w-1");
    assert_eq!(hits(&rig, &of_hub), [hit("webhook_event", "webhook_id", &of_hub)]);

    // Another tenant does not find it, and nobody finds an id that no event has.
    let other = rig.tenant("second");
    let of_other = rig.get_as(&other, &format!("/v1/search?q={webhook_id}"));
    assert_eq!(of_other, json!({ "items": [], "more": false, "incomplete": null }));
    let unknown = oncebox::base::id::webhook_id("default", "erp", "unknown");
    assert_eq!(search(&rig, &unknown), json!({ "items": [], "more": false, "incomplete": null }));

    // What was not looked at is said.
    let part = webhook_id.get(..12).unwrap();
    let beginning = search(&rig, part);
    assert_eq!(beginning["items"], json!([]));
    has_text(&beginning, "newest 1,000 events");
    let page = crate::it::console_rig::Browser::new(&rig, "read")
        .get(&format!("/console/search?q={part}"));
    assert!(page.contains("newest 1,000 events"), "{page}");
    has_text(&search(&rig, "rare"), "newest 5,000 events");
    assert_eq!(search(&rig, "4711")["incomplete"], Value::Null, "a number is no event type");

    // In the archive it is found as well.
    rig.advance(secs(40 * 24 * 3600));
    rig.post("/v1/archive/runs", &json!({ "older_than": "30days" })).is(200);
    rig.becomes(&format!("SELECT count(*) FROM outbox WHERE id = '{id}'"), "0");
    let found = search(&rig, &webhook_id);
    assert_eq!(hits(&rig, &webhook_id), [hit("event", "webhook_id", &webhook_id)]);
    assert!(found["items"][0]["archived_in"].is_string(), "{found}");
}

fn has_text(found: &Value, part: &str) {
    assert!(found["incomplete"].as_str().unwrap().contains(part), "{found}");
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

#[test]
fn operational_events_never_hide_the_invoice() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    let types = json!({ "event_types": ["*", "delivery.*", "integration.*"] });
    rig.subscribe_with("erp", &receiver, &types);
    let invoice = rig.publish(&invoice("4711", "k"));
    // The invoice, and two events that tell that it was delivered.
    rig.sent(&receiver, 3);
    rig.settle();
    let own = rig.lines(
        "SELECT event_type, aggregate_id FROM outbox WHERE source_system = 'oncebox' ORDER BY seq",
    );
    assert_eq!(own.len(), 2, "{own:?}");
    let of_invoice = hit("event", "aggregate_id", "4711");
    assert_eq!(hits(&rig, "4711"), [of_invoice]);
    let types = |path: &str| -> Vec<String> {
        rig.items(path).iter().map(|event| text(event, "event_type")).collect()
    };
    // When asked, they stand behind the invoice, although they are newer.
    let found = types("/v1/search?q=4711&operational=true");
    assert_eq!((found.len(), found[0].as_str()), (3, "invoice.paid"));
    assert_eq!(types("/v1/events"), ["invoice.paid"]);
    assert_eq!(types("/v1/events?aggregate_id=4711"), ["invoice.paid"]);
    assert_eq!(types("/v1/events?aggregate_id=4711&operational=true").len(), 3);
    assert_eq!(types("/v1/events?event_type=delivery.completed"), ["delivery.completed"]);
    assert_eq!(types("/v1/search?q=delivery.completed"), [""; 0]);
    rig.call("GET", "/v1/events?operational=perhaps", b"").is(400);
    // Whoever has the exact id of one has asked for it. A page that another one follows is as long as without them.
    let id = rig.one("SELECT id FROM outbox WHERE event_type = 'delivery.completed'");
    assert_eq!(hits(&rig, &id), [hit("event", "id", &id)]);
    assert_eq!(
        rig.items(&format!("/v1/events?webhook_id={}", text(&invoice, "webhook_id"))).len(),
        1
    );
    let token = rig.tenant("second");
    let other = json!({ "name": "erp", "url": receiver.url(), "event_types": ["*", "delivery.*"] });
    rig.post_as(&token, "/v1/subscriptions", &other).is(201);
    let event =
        json!({ "event_type": "a", "aggregate_type": "x", "aggregate_id": "4711", "payload": 1 });
    rig.post_as(&token, "/v1/events", &event).is(201);
    rig.sent(&receiver, 5);
    let events = |query: &str| {
        rig.get_as(&token, &format!("/v1/events{query}"))["items"].as_array().unwrap().len()
    };
    assert_eq!((events(""), events("?operational=true")), (1, 2));
}

/// A type whose payloads are searched by number and total.
fn searched(rig: &Rig) {
    let known = json!({ "schema": true, "search_paths": ["$.number", "$.sum.total", "$.lines[0].article"] });
    rig.call("PUT", "/v1/event-types/invoice.paid", known.to_string().as_bytes()).is(201);
}

fn paid(number: &str, total: f64) -> Value {
    let payload =
        json!({ "number": number, "sum": { "total": total }, "lines": [{ "article": "A-17" }] });
    json!({ "event_type": "invoice.paid", "idempotency_key": number, "payload": payload })
}

#[test]
fn what_a_payload_has_at_the_paths_of_its_type_is_found_until_it_is_removed() {
    let rig = Rig::new();
    // Those that came before are found as well.
    rig.publish(&paid("R-1", 10.0));
    searched(&rig);
    rig.publish(&paid("R-2024-17", 1234.5));
    rig.publish(&json!({ "event_type": "other", "payload": { "number": "R-2024-99" } }));
    rig.publish(&json!({ "event_type": "invoice.paid", "payload": { "number": { "deep": 1 } } }));
    rig.becomes("SELECT count(*) FROM search_values", "6");
    for (text, value) in [
        ("R-2024-17", "R-2024-17"),
        ("R-2024", "R-2024-17"),
        ("1234.5", "1234.5"),
        ("1234,50", "1234.5"),
        ("1234.50", "1234.5"),
        ("10,00", "10.0"),
    ] {
        let found = search(&rig, text);
        let of_payload = |hit: &&Value| hit["matched"] == "payload";
        let hit = found["items"].as_array().unwrap().iter().find(of_payload);
        let is_key = text.starts_with("R-2024");
        assert!(is_key || hit.is_some_and(|hit| hit["value"] == value), "{text}: {found}");
        assert_eq!(found["items"].as_array().unwrap().len(), 1, "{text}: {found}");
    }
    assert_eq!(hits(&rig, "A-17").len(), 2);
    assert!(hits(&rig, "R-2024-99").is_empty());
    // What is removed from an event is not found any more.
    let why = json!({ "filter": {}, "reason": "Not needed" });
    rig.post("/v1/events/expunge", &why).is(201);
    rig.becomes("SELECT count(*) FROM search_values", "0");
    for wrong in ["number", "$", "$..a", "$.a[", "$.a'", "$.a[x]"] {
        let known = json!({ "schema": true, "search_paths": [wrong] });
        let path = "/v1/event-types/invoice.paid";
        let refused = rig.call("PUT", path, known.to_string().as_bytes()).is(422).json();
        assert!(refused["detail"].as_str().unwrap().contains("$.number"), "{refused}");
    }
}

#[test]
fn values_of_payloads_are_bounded_and_the_tenant_with_most_loses_its_oldest() {
    let rig = Rig::new();
    searched(&rig);
    rig.publish(&paid("R-1", 1.0));
    rig.becomes("SELECT count(*) FROM search_values", "3");
    rig.write(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200010)
         INSERT INTO search_values (tenant, value, outbox_seq) SELECT 'greedy', 'v' || i, -i FROM n",
    );
    rig.advance(secs(61));
    rig.publish(&paid("R-2", 2.0));
    rig.becomes("SELECT count(*) FROM search_values", "180000");
    assert_eq!(rig.one("SELECT count(*) FROM search_values WHERE tenant = 'default'"), "6");
    assert_eq!(rig.one("SELECT max(outbox_seq) FROM search_values WHERE tenant = 'greedy'"), "-1");
}

#[test]
fn an_aggregate_is_found_by_its_type_and_id() {
    let rig = Rig::new();
    rig.publish(&invoice("4711", "a"));
    let order = json!({ "event_type": "order.made", "aggregate_type": "order", "aggregate_id": "4711", "payload": 1 });
    rig.publish(&order);
    for text in ["invoice 4711", "invoice/4711", "Invoice 4711"] {
        assert_eq!(hits(&rig, text), [hit("event", "aggregate_id", "4711")], "{text}");
    }
    assert!(hits(&rig, "invoice 4712").is_empty());
}

#[test]
fn what_is_quarantined_is_not_read_until_it_is_repaired() {
    let rig = Rig::new();
    // Before its type is known, an event may have anything.
    rig.publish(&json!({ "event_type": "invoice.paid", "payload_base64": "bm8ganNvbg==", "content_type": "text/plain" }));
    // {"number":"\\ud800"}
    rig.publish(
        &json!({ "event_type": "invoice.paid", "payload_base64": "eyJudW1iZXIiOiJcdWQ4MDAifQ==" }),
    );
    let schema = json!({ "type": "object", "required": ["total"] });
    let known =
        json!({ "schema": schema, "search_paths": ["$.number"], "on_invalid": "quarantine" });
    rig.call("PUT", "/v1/event-types/invoice.paid", known.to_string().as_bytes()).is(201);
    let paid =
        |payload: Value| rig.publish(&json!({ "event_type": "invoice.paid", "payload": payload }));
    let wrong = paid(json!({ "number": "R-9" }));
    paid(json!({ "number": "R-10", "total": 1 }));
    rig.becomes("SELECT group_concat(value ORDER BY value) FROM search_values", "R-10,\u{fffd}");
    let path = format!("/v1/events/{}/fix", wrong["id"].as_str().unwrap());
    rig.post(&path, &json!({ "payload": { "number": "R-9", "total": 1 } })).is(200);
    assert_eq!(hits(&rig, "R-9"), [hit("event", "payload", "R-9")]);
    // Another path: the values of the old one are forgotten.
    let known = json!({ "schema": schema, "search_paths": ["$.total"] });
    rig.call("PUT", "/v1/event-types/invoice.paid", known.to_string().as_bytes()).is(200);
    rig.becomes("SELECT group_concat(DISTINCT value) FROM search_values", "1");
    rig.call("DELETE", "/v1/event-types/invoice.paid", b"").is(204);
    assert_eq!(rig.one("SELECT count(*) FROM search_values"), "0");
}
