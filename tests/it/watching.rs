//! What Oncebox says about its own state, and what it refuses to keep a promise.

use oncebox::faults::{Faults, Step};
use serde_json::json;

use crate::rig::receiver::{Receiver, Reply};
use crate::rig::{Rig, file, secs, until};

#[test]
fn below_the_reserve_nothing_new_is_taken_and_people_can_still_act() {
    let rig = Rig::new();
    let receiver = Receiver::scripted([Reply::status(400)]);
    rig.subscribe("erp", &receiver);
    let scheme = json!({ "kind": "generic", "check": { "token": { "header": "X-Token" } } });
    rig.provider("plain", &scheme, "a-shared-secret-of-32-characters");
    rig.publish_type("first");
    rig.settle();
    rig.disk_free(499_999_999);
    let event = json!({ "event_type": "other", "idempotency_key": "k", "payload": 1 });
    let claim = json!({ "consumer_group": "g", "event_id": "e" });
    until("it is refused", || rig.post("/v1/processed-events", &claim).status == 507);
    for (path, body) in [
        ("/v1/events", event.clone()),
        ("/in/plain", json!({})),
        ("/v1/processed-events", claim),
        ("/v1/providers", json!({})),
        ("/v1/subscriptions", json!({})),
        ("/v1/tokens", json!({})),
    ] {
        let answer = rig.post(path, &body).is(507);
        assert_eq!(answer.field("retry-after"), Some("60"), "{path}");
        assert_eq!(answer.field("content-type"), Some("application/problem+json"), "{path}");
        assert_eq!(answer.json()["type"], "urn:oncebox:problem:disk-full", "{path}");
    }
    // What is there goes on, and a person can look and act.
    assert_eq!(rig.get("/v1/dead-letters")["items"].as_array().unwrap().len(), 1);
    rig.call("POST", "/v1/deliveries/dlv_1/retry", b"").is(200);
    rig.settle();
    assert_eq!(rig.one("SELECT state FROM deliveries"), "completed");
    rig.call("POST", "/v1/subscriptions/erp/pause", b"").is(200);
    rig.patch("/v1/subscriptions/erp", &json!({ "owner_id": "x" })).is(200);

    // A little more than the reserve is not enough to come back: it would go to and fro.
    rig.disk_free(500_000_001);
    rig.disk_free(600_000_000);
    until("it is taken again", || rig.post("/v1/events", &event).status == 201);
}

#[test]
fn a_disk_that_breaks_is_answered_503_and_ends_the_process() {
    let mut rig = Rig::with_faults(|_| {}, Faults::at(Step::BreakDisk, 1));
    let event = json!({ "event_type": "a", "idempotency_key": "k", "payload": 1 });
    // The failing write may be the note of the token's use; the process ends all the same.
    rig.post("/v1/events", &event).is(503);
    until("it asks to be ended", || rig.appliance().stop_signal().asked());
    let end = rig.stop_failed().to_string();
    assert!(end.contains("the disk failed while writing"), "{end}");
    assert_eq!(file::lines(&rig.file(), "SELECT seq FROM outbox"), [""; 0]);
    rig.start_again();
    rig.post("/v1/events", &event).is(201);
    rig.advance(secs(1));
}
