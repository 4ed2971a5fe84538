//! Lanes of webhooks: where a provider says that the ordering key is, events with the same key go one after another.

use oncebox::base::id::sha256_hex;

use crate::rig::prelude::*;

/// A provider `shop` whose webhooks have an id and a type in the body.
fn shop(rig: &Rig, more: &Value) -> Value {
    let body = merged(
        json!({
            "name": "shop", "pii": "allow", "secret": "a-shared-secret-of-32-characters",
            "scheme": {
                "kind": "generic", "check": { "token": { "header": "X-Secret" } },
                "event_id": { "pointer": "/id" }, "event_type": { "constant": "order" },
            },
        }),
        more,
    );
    rig.post("/v1/providers", &body).is(201).json()
}

fn pulling(rig: &Rig, ordering: &str) {
    rig.pull("erp", &json!({ "source": "provider:shop", "ordering": ordering }));
}

fn post(rig: &Rig, order: &str, body: &Value) {
    let fields = [
        ("X-Secret", "a-shared-secret-of-32-characters"),
        ("X-Order-Id", order),
        ("Content-Type", "application/json"),
    ];
    rig.send("POST", "/in/shop", &fields, body.to_string().as_bytes()).is(200);
}

/// The ids of the webhooks that may be worked on now.
fn next(rig: &Rig) -> Vec<u64> {
    let items = rig.get("/v1/consumers/erp/next?max=100")["items"].clone();
    items.as_array().unwrap().iter().map(|item| item["payload"]["id"].as_u64().unwrap()).collect()
}

fn keys(rig: &Rig) -> Vec<String> {
    let sql = "SELECT coalesce(ordering_key, '-') FROM webhook_events ORDER BY seq";
    rig.lines(sql)
}

#[test]
fn webhooks_with_the_same_key_in_the_body_go_one_after_another() {
    let rig = Rig::new();
    let made = shop(&rig, &json!({ "ordering_key": { "path": "$..order.id" } }));
    assert_eq!(made["ordering_key"], json!({ "path": "$..order.id" }));
    pulling(&rig, "key");
    for (id, order) in
        [json!("a"), json!(7), json!("a"), json!("7"), json!(""), json!({ "id": "b" })]
            .into_iter()
            .enumerate()
    {
        post(&rig, "", &json!({ "id": id, "data": { "order": { "id": order } } }));
    }
    post(&rig, "", &json!({ "id": 6 }));
    post(&rig, "", &json!({ "id": 7 }));
    assert_eq!(keys(&rig), ["a", "7", "a", "7", "-", "-", "-", "-"]);
    assert_eq!(next(&rig), [0, 1, 4, 5, 6, 7], "an event without a key waits for no other");
    assert_eq!(rig.get("/v1/webhook-events?provider_event_id=2")["items"][0]["ordering_key"], "a");
}

#[test]
fn the_key_may_be_in_a_header_and_a_long_one_is_hashed() {
    let rig = Rig::new();
    shop(&rig, &json!({ "ordering_key": { "header": "x-order-id" } }));
    pulling(&rig, "key");
    let long = "x".repeat(256);
    for (id, order) in ["a", " a ", &long, &long, ""].into_iter().enumerate() {
        post(&rig, order, &json!({ "id": id }));
    }
    let hashed = sha256_hex(long.as_bytes());
    assert_eq!(keys(&rig), ["a", "a", &hashed, &hashed, "-"]);
    assert_eq!(next(&rig), [0, 2, 4]);
}

#[test]
fn strict_is_one_lane_with_and_without_a_key() {
    let rig = Rig::new();
    shop(&rig, &json!({ "ordering_key": { "header": "X-Order-Id" } }));
    pulling(&rig, "strict");
    for (id, order) in ["a", "", "b"].into_iter().enumerate() {
        post(&rig, order, &json!({ "id": id }));
    }
    assert_eq!(next(&rig), [0]);
}

#[test]
fn a_changed_place_counts_from_then_on_and_a_replay_keeps_the_stored_key() {
    let rig = Rig::new();
    shop(&rig, &json!({}));
    post(&rig, "a", &json!({ "id": 1 }));
    let place = |place: Value| rig.patch("/v1/providers/shop", &json!({ "ordering_key": place }));
    place(json!({ "header": "X-Order-Id" })).is(200);
    for id in 2..=3 {
        post(&rig, "a", &json!({ "id": id }));
    }
    assert_eq!(place(Value::Null).is(200).json()["ordering_key"], Value::Null);
    post(&rig, "a", &json!({ "id": 4 }));
    assert_eq!(keys(&rig), ["-", "a", "a", "-"]);
    pulling(&rig, "key");
    let all = json!({ "filter": { "provider": "shop" } });
    let job = rig.post("/v1/webhook-events/replay", &all).is(201).json();
    let at = format!("/v1/jobs/{}", job["id"].as_str().unwrap());
    until("all are sent again", || rig.get(&at)["state"] == "completed");
    assert_eq!(next(&rig), [1, 2, 4]);
}

#[test]
fn a_place_that_cannot_be_used_is_refused_with_the_reason() {
    let rig = Rig::new();
    shop(&rig, &json!({}));
    for (place, why) in [
        (json!({ "path": "$.a[-1]" }), "wrong at character 5"),
        (json!({ "header": "Order Id" }), "header must be the name of a header field"),
        (json!({ "header": "Authorization" }), "may carry a secret"),
        (json!({ "pointer": "/id" }), "unknown variant"),
        (json!("$.id"), "write it as"),
    ] {
        let said = rig.patch("/v1/providers/shop", &json!({ "ordering_key": place })).is(422);
        assert!(said.text().contains(why), "{said:?}");
    }
}

#[test]
fn a_key_that_the_privacy_policy_changes_is_never_stored_in_the_clear() {
    for (action, place) in [
        ("seal", json!({ "path": "$.customer.mail" })),
        ("mask", json!({ "path": "$.customer.mail" })),
        ("drop", json!({ "path": "$.customer.mail" })),
        ("mask", json!({ "header": "X-Order-Id" })),
    ] {
        let rig = Rig::new();
        let rules = json!([
            { "path": "$.customer.mail", "action": action }, { "detect": ["email"], "action": "mask" },
        ]);
        shop(&rig, &json!({ "pii": { "rules": rules }, "ordering_key": place }));
        pulling(&rig, "key");
        for (id, mail) in
            ["jane@example.com", "john@example.com", "jane@example.com"].into_iter().enumerate()
        {
            post(&rig, mail, &json!({ "id": id, "customer": { "mail": mail } }));
        }
        let keys = keys(&rig);
        assert!(keys.iter().all(|key| key.starts_with("hmac:")), "{action}: {keys:?}");
        assert_eq!((&keys[0], next(&rig)), (&keys[2], vec![0, 1]), "{action}");
        assert!(!rig.dump().contains("jane@"), "{action}");
    }
    // A key that the policy leaves alone is stored as it is.
    let rig = Rig::new();
    let pii = json!({ "rules": [{ "detect": ["email"], "action": "mask" }] });
    shop(&rig, &json!({ "pii": pii, "ordering_key": { "path": "$.order" } }));
    post(&rig, "", &json!({ "id": 1, "order": "4711" }));
    assert_eq!(keys(&rig), ["4711"]);
}
