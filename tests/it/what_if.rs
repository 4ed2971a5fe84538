//! `what_if`: what changed terms would have done with the stored events of a period, and that it is so.

use oncebox::config::Settings;

use crate::rig::prelude::*;

/// Publishes twenty invoices with totals from 0 to 19 and five orders.
fn month(rig: &Rig) {
    for total in 0..20 {
        let payload = json!({ "total": total });
        rig.publish(&json!({ "event_type": "invoice.paid", "payload": payload, "ordering_key": format!("c-{total}") }));
    }
    for _ in 0..5 {
        rig.publish_type("order.created");
    }
}

fn deliveries(rig: &Rig, subscription: &str) -> u64 {
    let sql = format!(
        "SELECT count(*) FROM deliveries AS d JOIN subscriptions AS s ON s.seq = d.subscription_seq
          WHERE s.name = '{subscription}'"
    );
    rig.one(&sql).parse().unwrap()
}

fn asked(rig: &Rig, change: &Value) -> Value {
    let body = merged(json!({ "what_if": "7d" }), change);
    rig.patch("/v1/subscriptions/erp", &body).is(200).json()
}

/// The counts of an answer: looked at, wanted now and then, more, fewer, changed, failing, in another lane.
fn counts(found: &Value) -> [u64; 8] {
    ["looked_at", "wanted_now", "wanted_then", "more", "fewer", "changed", "failing", "other_lane"]
        .map(|name| found[name].as_u64().unwrap())
}

#[test]
fn what_would_be_sent_is_what_then_is_sent() {
    let rig = Rig::new();
    rig.pull("erp", &json!({ "event_types": ["invoice.*"] }));
    month(&rig);
    let before = rig.get("/v1/subscriptions/erp");
    let audited = rig.one("SELECT count(*) FROM audit_events");
    let change = json!({
        "event_types": ["invoice.paid", "order.*"],
        "filter": [
            { "path": "$.total", "op": "not_equals", "value": 3 },
            { "path": "$.total", "op": "not_equals", "value": 4 },
        ],
    });
    let found = asked(&rig, &change);
    assert_eq!(counts(&found), [25, 20, 23, 5, 2, 0, 0, 0]);
    assert_eq!(found["next"], Value::Null);
    let examples = found["examples"].as_array().unwrap();
    let of = |difference: &str| {
        examples.iter().filter(|example| example["difference"] == difference).count()
    };
    assert_eq!([of("more"), of("fewer"), examples.len()], [5, 2, 7]);
    let fewer = examples.iter().find(|example| example["difference"] == "fewer").unwrap();
    assert!(text(fewer, "why").contains("$.total"), "{fewer}");
    assert!(text(fewer, "now").ends_with("{\"total\":4}"), "{fewer}");
    assert_eq!(fewer["then"], Value::Null);
    // Nothing was saved, sent or audited.
    assert_eq!(rig.get("/v1/subscriptions/erp"), before);
    assert_eq!(rig.one("SELECT count(*) FROM audit_events"), audited);
    assert_eq!(deliveries(&rig, "erp"), 20);
    // The change does to the same events what was said.
    rig.patch("/v1/subscriptions/erp", &change).is(200);
    month(&rig);
    assert_eq!(deliveries(&rig, "erp"), 20 + 23);
}

#[test]
fn another_body_an_unwritable_one_and_another_lane_are_counted() {
    let rig = Rig::new();
    let receiver = Receiver::new();
    rig.subscribe_with(
        "erp",
        &receiver,
        &json!({ "event_types": ["invoice.*"], "ordering": "key" }),
    );
    month(&rig);
    let same = asked(&rig, &json!({ "event_types": ["invoice.paid"] }));
    assert_eq!(counts(&same), [25, 20, 20, 0, 0, 0, 0, 0]);
    // A total of 0 cannot divide.
    let body = r#"{"part":{{ 100 // payload.total }}}"#;
    let found = asked(&rig, &json!({ "template": { "body": body }, "ordering": "strict" }));
    assert_eq!(counts(&found), [25, 20, 20, 0, 0, 19, 1, 20]);
    let examples = found["examples"].as_array().unwrap();
    assert_eq!(examples.len(), 5 + 1, "five of each difference at most");
    let changed = examples.iter().find(|one| one["difference"] == "changed").unwrap();
    assert!(text(changed, "then").contains("{\"part\":") && text(changed, "now").contains("total"));
    let failing = examples.iter().find(|one| one["difference"] == "failing").unwrap();
    assert!(text(failing, "why").contains("template"), "{failing}");
}

#[test]
fn a_new_subscription_is_asked_about_and_not_made() {
    let rig = Rig::new();
    month(&rig);
    let new = json!({
        "name": "erp", "url": "http://127.0.0.1:8080/", "event_types": ["order.*"], "what_if": "12h",
    });
    let found = rig.post("/v1/subscriptions", &new).is(200).json();
    assert_eq!(counts(&found), [25, 0, 5, 5, 0, 0, 0, 0]);
    assert_eq!(rig.get("/v1/subscriptions")["items"], json!([]));
}

#[test]
fn only_the_period_and_the_tenant_are_looked_at() {
    let rig = Rig::new();
    rig.pull("erp", &json!({ "event_types": ["*"] }));
    rig.publish_type("old");
    rig.advance(Duration::from_hours(48));
    rig.publish_type("new");
    let token = rig.tenant("acme");
    let event = json!({ "event_type": "new", "payload": {} });
    rig.post_as(&token, "/v1/events", &event).is(201);
    let found = rig.patch("/v1/subscriptions/erp", &json!({ "what_if": "1d" })).is(200).json();
    assert_eq!(counts(&found), [1, 1, 1, 0, 0, 0, 0, 0]);
    let found = rig.patch("/v1/subscriptions/erp", &json!({ "what_if": "7d" })).is(200).json();
    assert_eq!(found["looked_at"], 2);
}

#[test]
fn webhooks_and_named_targets_are_judged_as_they_are_routed() {
    let rig = Rig::new();
    let secret = "a-shared-secret-of-32-characters";
    rig.token_provider("shop", secret);
    rig.pull("erp", &json!({ "source": "all" }));
    rig.send("POST", "/in/shop", &[("X-Token", secret)], b"{\"order\":7}").is(200);
    rig.publish(&json!({ "event_type": "other", "target": "erp", "payload": {} }));
    let found = asked(&rig, &json!({ "source": "outbox", "event_types": ["nothing"] }));
    // The webhook goes no more; the event that names its target does, whatever its type.
    assert_eq!(counts(&found), [2, 2, 1, 0, 1, 0, 0, 0]);
}

#[test]
fn what_cannot_be_asked_is_said() {
    let rig = Rig::new();
    rig.pull("erp", &json!({}));
    let path = "/v1/subscriptions/erp";
    for span in ["week", "-1d", "500d"] {
        rig.patch(path, &json!({ "what_if": span })).is(422).tells("what_if must be a span");
    }
    let odd = "2026-01-01T00:00:00Z/2026-13/event/1";
    rig.patch(path, &json!({ "what_if": odd })).is(422).tells("next of an answer");
    let both = json!({ "what_if": "1d", "try": "01916f3a-5c1e-7000-8000-000000000001" });
    rig.patch(path, &both).is(422).tells("either try or what_if");
    let token = rig.token_of("read");
    assert_eq!(rig.call_as(&token, "PATCH", path, br#"{"what_if":"1d"}"#).status, 403);
}

#[test]
fn a_schema_is_asked_what_it_would_refuse() {
    let rig = Rig::new();
    month(&rig);
    let path = "/v1/event-types/invoice.paid";
    let of = |most: u32| json!({ "schema": { "properties": { "total": { "maximum": most } } } });
    let put = |body: &Value| rig.call("PUT", path, body.to_string().as_bytes());
    let ask = |most: u32| put(&merged(json!({ "what_if": "7d" }), &of(most)));
    let found = ask(14).is(200).json();
    assert_eq!((&found["looked_at"], &found["next"]), (&json!(20), &Value::Null));
    assert_eq!((&found["refused_now"], &found["refused_then"]), (&json!(0), &json!(5)));
    let examples = found["examples"].as_array().unwrap();
    assert_eq!(examples.len(), 5);
    assert!(text(&examples[0], "why").contains("total"), "{found}");
    rig.call("GET", path, b"").is(404);
    // What is stored now is the other side.
    put(&of(9)).is(201);
    let found = ask(17).is(200).json();
    assert_eq!((&found["refused_now"], &found["refused_then"]), (&json!(10), &json!(2)));
    let stored = &rig.get(path)["schema"];
    assert_eq!(*stored, of(9)["schema"]);
    let wrong = merged(json!({ "what_if": "often" }), &of(9));
    put(&wrong).is(422);
}

/// Asks about a period part by part; returns the sum of the counts, and the number of parts.
fn asked_to_the_end(rig: &Rig, change: &Value) -> ([u64; 8], u64) {
    let mut sum = [0; 8];
    let mut what_if = json!("90d");
    let mut parts = 0;
    while !what_if.is_null() {
        parts += 1;
        let body = merged(json!({ "what_if": what_if }), change);
        let found = rig.patch("/v1/subscriptions/erp", &body).is(200).json();
        for (sum, count) in sum.iter_mut().zip(counts(&found)) {
            *sum += count;
        }
        what_if = found["next"].clone();
    }
    (sum, parts)
}

/// Publishes invoices with these totals, a thousand at once.
fn invoices(rig: &Rig, totals: std::ops::Range<u64>) {
    let totals: Vec<u64> = totals.collect();
    for thousand in totals.chunks(1000) {
        let event =
            |total: &u64| json!({ "event_type": "invoice.paid", "payload": { "total": total } });
        let events: Vec<Value> = thousand.iter().map(event).collect();
        rig.post("/v1/events", &json!(events)).is(201);
    }
}

/// `ONCEBOX_WHAT_IF_EVENTS`: how many.
#[test]
fn more_events_than_one_answer_looks_at_are_looked_at_part_by_part() {
    let count =
        std::env::var("ONCEBOX_WHAT_IF_EVENTS").map_or(10_100, |text| text.parse().unwrap());
    let rig = Rig::new();
    let filter = |from: u64| json!([{ "path": "$.total", "op": "gte", "value": from }]);
    rig.pull("erp", &json!({ "event_types": ["invoice.*"], "filter": filter(count - 50) }));
    invoices(&rig, 0..count);
    assert_eq!(deliveries(&rig, "erp"), 50);
    let change = json!({ "filter": filter(count - 170) });
    let (sum, parts) = asked_to_the_end(&rig, &change);
    assert_eq!(sum, [count, 50, 170, 120, 0, 0, 0, 0]);
    assert_eq!(parts, count / 10_000 + 1);
    rig.patch("/v1/subscriptions/erp", &change).is(200);
    invoices(&rig, count - 1_000..count);
    assert_eq!(deliveries(&rig, "erp"), 50 + 170);
}

#[test]
fn months_of_the_archive_are_looked_at() {
    let day = Duration::from_hours(24);
    let rig = Rig::with(|settings: &mut Settings| settings.archive.after = day * 10);
    let receiver = Receiver::new();
    rig.subscribe_with("erp", &receiver, &json!({ "event_types": ["invoice.*"], "source": "all" }));
    let secret = "a-shared-secret-of-32-characters";
    rig.token_provider("shop", secret);
    for month in 0..2 {
        invoices(&rig, 0..5);
        let body = format!("{{\"order\":{month}}}");
        rig.send("POST", "/in/shop", &[("X-Token", secret)], body.as_bytes()).is(200);
        rig.settle();
        rig.advance(day * 20);
    }
    rig.advance(day * 20);
    rig.becomes(
        "SELECT (SELECT count(*) FROM outbox) + (SELECT count(*) FROM webhook_events)",
        "0",
    );
    invoices(&rig, 0..3);
    let change =
        json!({ "event_types": ["*"], "template": { "body": "{{ 100 // payload.total }}" } });
    let (sum, parts) = asked_to_the_end(&rig, &change);
    assert_eq!((sum, parts), ([15, 13, 15, 2, 0, 10, 5, 0], 1), "three totals are 0");
    let short = merged(json!({ "what_if": "50d" }), &change);
    let found = rig.patch("/v1/subscriptions/erp", &short).is(200).json();
    assert_eq!(found["looked_at"], 9, "one month is before the period");
}

#[test]
fn a_policy_of_a_provider_is_asked_what_it_would_do() {
    let rig = Rig::new();
    let secret = "a-shared-secret-of-32-characters";
    rig.token_provider("shop", secret);
    for body in [
        r#"{"order":1,"customer":{"email":"ada@example.com"}}"#,
        r#"{"order":2,"customer":{"card":"4111 1111 1111 1111"}}"#,
        r#"{"order":3}"#,
        "no json, and 40 bytes long: nothing more",
    ] {
        rig.send("POST", "/in/shop", &[("X-Token", secret)], body.as_bytes()).is(200);
    }
    let before = rig.get("/v1/providers/shop");
    let ask = |change: &Value| {
        rig.patch("/v1/providers/shop", &merged(json!({ "what_if": "7d" }), change)).is(200).json()
    };
    let of = |found: &Value| {
        ["looked_at", "refused", "changed", "other_key", "sealed"]
            .map(|name| found[name].as_u64().unwrap())
    };
    let policy = json!({ "rules": [
        { "path": "$.customer.email", "action": "seal" },
        { "detect": ["card"], "action": "reject" },
    ] });
    let found = ask(&json!({ "pii": policy }));
    // The text cannot be searched for paths.
    assert_eq!(of(&found), [4, 2, 1, 0, 0]);
    let examples = found["examples"].as_array().unwrap();
    let why: Vec<String> = examples.iter().map(|example| text(example, "why")).collect();
    assert!(why[0].contains("neither JSON"), "{why:?}");
    assert!(why[1].contains("rule 2") && why[1].contains("card"), "{why:?}");
    assert_eq!(why[2], "seal $.customer.email");
    assert!(!found.to_string().contains("4111"), "{found}");
    let found = ask(&json!({ "ordering_key": { "path": "$.order" }, "body_bytes_max": 30 }));
    assert_eq!(of(&found), [4, 3, 0, 1, 0]);
    let examples = found["examples"].as_array().unwrap();
    let moved = examples.iter().find(|example| example["difference"] == "other_key").unwrap();
    assert_eq!(moved["why"], "3 in place of none");
    // Nothing was saved.
    assert_eq!(rig.get("/v1/providers/shop"), before);
    // What is in force is the other side; sealed fields are counted.
    rig.patch("/v1/providers/shop", &json!({ "pii": policy })).is(200);
    let body = r#"{"order":5,"customer":{"email":"bob@example.com"}}"#;
    rig.send("POST", "/in/shop", &[("X-Token", secret)], body.as_bytes()).is(200);
    assert_eq!(of(&ask(&json!({ "pii": policy }))), [5, 2, 0, 0, 1]);
    let found = ask(&json!({ "pii": "allow" }));
    assert_eq!(of(&found), [5, 0, 2, 0, 1]);
    assert_eq!(found["examples"][0]["why"], "no longer seal $.customer.email");
    for (change, why) in [
        (json!({ "tolerance_secs": 10 }), "what_if goes with pii"),
        (json!({ "ordering_key": { "header": "X-Order" } }), "not all header fields"),
        (json!({ "what_if": "soon" }), "must be a span"),
    ] {
        let body = merged(json!({ "what_if": "7d" }), &change);
        rig.patch("/v1/providers/shop", &body).is(422).tells(why);
    }
}
