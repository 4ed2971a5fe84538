//! What people do to deliveries and subscriptions: retry, cancel, pause, resume, delete.

use crate::rig::prelude::*;

/// A rig whose one delivery was tried, and who it went to.
fn tried(receiver: Receiver) -> (Rig, Receiver) {
    let rig = Rig::new();
    rig.subscribe("erp", &receiver);
    rig.deliver("a");
    (rig, receiver)
}

#[test]
fn a_dead_letter_that_is_retried_is_reopened_and_keeps_its_webhook_id() {
    let (rig, receiver) = tried(Receiver::scripted([Reply::status(400)]));
    assert_eq!(rig.call("POST", "/v1/deliveries/dlv_1/retry", b"").is(200).json()["run_no"], 2);
    rig.settle();
    insta::assert_snapshot!(rig.dump(), @r"
    a completed
      erp completed run 2
        1 +0s validation counted 400
        2 +0s success 200
    ");
    let seen = receiver.seen();
    assert_eq!(seen[0].field("webhook-id"), seen[1].field("webhook-id"));
}

#[test]
fn a_reopened_delivery_has_all_its_attempts_again() {
    let (rig, receiver) = (Rig::new(), Receiver::with(Reply::status(500)));
    rig.subscribe_with("erp", &receiver, &json!({ "policy": { "max_attempts": 2 } }));
    rig.publish_type("a");
    for _ in 0..2 {
        rig.settle();
        rig.advance(secs(5));
    }
    rig.settle();
    assert_eq!(rig.one("SELECT state FROM deliveries"), "dead_letter");
    rig.call("POST", "/v1/deliveries/dlv_1/retry", b"").is(200);
    rig.settle();
    rig.says("SELECT state, counted_failures, attempt_count FROM deliveries", "pending 1 3");
    assert_eq!(rig.one("SELECT status FROM outbox"), "failed");
}

#[test]
fn a_delivery_that_waits_is_sent_at_once_when_it_is_retried() {
    let (rig, _receiver) = tried(Receiver::scripted([Reply::status(500)]));
    rig.call("POST", "/v1/deliveries/dlv_1/retry", b"").is(200);
    rig.settle();
    assert_eq!(rig.one("SELECT state, run_no FROM deliveries"), "completed 1");
}

#[test]
fn a_completed_delivery_is_not_sent_again() {
    let (rig, _receiver) = tried(Receiver::new());
    let refused = rig.call("POST", "/v1/deliveries/dlv_1/retry", b"").is(409);
    assert!(refused.detail().starts_with("dlv_1 is completed"), "{}", refused.detail());
    rig.call("POST", "/v1/deliveries/dlv_1/cancel", b"").is(409);
    rig.call("POST", "/v1/deliveries/dlv_99/retry", b"").is(404);
    rig.call("POST", "/v1/deliveries/x/retry", b"").is(404);
}

#[test]
fn a_cancelled_delivery_is_not_sent_and_says_who_cancelled_it() {
    let (rig, receiver) = tried(Receiver::scripted([Reply::status(500)]));
    rig.call("POST", "/v1/deliveries/dlv_1/cancel", b"").is(200);
    rig.pass(secs(3600));
    insta::assert_snapshot!(rig.dump(), @r"
    a cancelled
      erp cancelled: cancelled by first admin token
        1 +0s transient counted 500
    ");
    assert_eq!(receiver.count(), 1);
}

#[test]
fn a_cancel_while_an_attempt_is_under_way_stands_and_the_attempt_is_recorded() {
    let (rig, receiver) = Rig::subscribed_to("erp", Receiver::scripted([Reply::Hang]));
    rig.publish_type("a");
    until("the attempt is under way", || receiver.count() == 1);
    rig.call("POST", "/v1/deliveries/dlv_1/cancel", b"").is(200);
    receiver.release();
    until("the attempt is recorded", || rig.one("SELECT count(*) FROM attempts") == "1");
    assert_eq!(rig.one("SELECT state, attempt_count FROM deliveries"), "cancelled 1");
    assert_eq!(rig.one("SELECT status FROM outbox"), "cancelled");
}

#[test]
fn an_attempt_of_a_run_before_does_not_settle_the_run_after_it() {
    let (rig, receiver) = Rig::subscribed_to("erp", Receiver::scripted([Reply::Hang]));
    rig.publish_type("a");
    until("the attempt is under way", || receiver.count() == 1);
    rig.call("POST", "/v1/deliveries/dlv_1/cancel", b"").is(200);
    rig.call("POST", "/v1/deliveries/dlv_1/retry", b"").is(200);
    receiver.release();
    rig.settle();
    assert_eq!(rig.one("SELECT state, run_no, attempt_count FROM deliveries"), "completed 2 2");
    assert_eq!(receiver.count(), 2);
}

#[test]
fn the_deliveries_of_a_paused_subscription_wait_until_it_is_resumed() {
    let (rig, receiver) = Rig::subscribed("erp");
    let paused = rig.call("POST", "/v1/subscriptions/erp/pause", b"").is(200).json();
    has(&paused, &json!({ "state": "PAUSED", "holds.0.reason": "paused" }));
    rig.publish_type("a");
    rig.advance(secs(3600));
    rig.deliver("b");
    assert_eq!(receiver.count(), 0);
    insta::assert_snapshot!(rig.dump(), @r"
    a pending
      erp pending due +0s
    b pending
      erp pending due +3600s
    ");
    rig.call("POST", "/v1/subscriptions/erp/resume", b"").is(200);
    rig.has_sent(&receiver, 2);
}

#[test]
fn a_pause_survives_a_restart() {
    let (mut rig, receiver) = Rig::subscribed("erp");
    rig.call("POST", "/v1/subscriptions/erp/pause", b"").is(200);
    rig.publish_type("a");
    rig.restart();
    rig.settle();
    assert_eq!(rig.get("/v1/subscriptions/erp")["state"], "PAUSED");
    assert_eq!(receiver.count(), 0);
}

#[test]
fn a_subscription_with_open_or_dead_deliveries_is_not_deleted() {
    let (rig, receiver) = tried(Receiver::scripted([Reply::status(500), Reply::status(400)]));
    rig.delete("/v1/subscriptions/erp").is(409);
    rig.pass(secs(5));
    assert_eq!(rig.one("SELECT state FROM deliveries"), "dead_letter");
    rig.delete("/v1/subscriptions/erp").is(409);
    rig.call("POST", "/v1/deliveries/dlv_1/retry", b"").is(200);
    rig.settle();
    rig.delete("/v1/subscriptions/erp").is(204);
    rig.call("GET", "/v1/subscriptions/erp", b"").is(404);
    assert_eq!(rig.publish_type("b")["status"], "skipped");
    rig.subscribe("erp", &receiver);
}

#[test]
fn a_dead_letter_can_be_cancelled_so_that_its_subscription_can_go() {
    let (rig, _receiver) = tried(Receiver::scripted([Reply::status(400)]));
    rig.delete("/v1/subscriptions/erp").is(409).tells("retry or cancel");
    rig.call("POST", "/v1/deliveries/dlv_1/cancel", b"").is(200);
    assert_eq!(rig.one("SELECT status FROM outbox"), "cancelled");
    rig.delete("/v1/subscriptions/erp").is(204);
}

#[test]
fn a_delivery_of_a_deleted_subscription_cannot_be_sent_again() {
    let (rig, _receiver) = tried(Receiver::scripted([Reply::status(500)]));
    rig.call("POST", "/v1/deliveries/dlv_1/cancel", b"").is(200);
    rig.delete("/v1/subscriptions/erp").is(204);
    rig.call("POST", "/v1/deliveries/dlv_1/retry", b"").is(409);
    assert_eq!(rig.one("SELECT state FROM deliveries"), "cancelled");
}

#[test]
fn two_subscriptions_cannot_have_one_name() {
    let (rig, receiver) = Rig::subscribed("erp");
    rig.post("/v1/subscriptions", &json!({ "name": "erp", "url": receiver.url() })).is(409);
    rig.post("/v1/subscriptions", &json!({ "name": "Erp", "url": receiver.url() })).is(422);
}

#[test]
fn a_policy_that_cannot_be_carried_out_is_refused() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    for policy in [
        json!({ "steps": [] }),
        json!({ "steps": ["soon"] }),
        json!({ "steps": ["0s"] }),
        json!({ "max_attempts": 0 }),
        json!({ "timeout": "1ms" }),
        json!({ "in_flight_max": 0 }),
    ] {
        let body = json!({ "name": "erp", "url": receiver.url(), "policy": policy });
        rig.post("/v1/subscriptions", &body).is(422);
    }
}

#[test]
fn a_refusal_in_the_middle_of_a_change_leaves_nothing_of_it() {
    let (rig, receiver) = (Rig::new(), Receiver::with(Reply::status(500)));
    rig.subscribe_with("erp", &receiver, &json!({ "ordering": "strict" }));
    rig.publish_type("a");
    rig.deliver("b");
    // What comes after the delivery's own row was changed: the next one of its lane is to be the head.
    let conn = rig.writable();
    conn.run(
        "CREATE TRIGGER stands_still BEFORE UPDATE OF head ON deliveries WHEN NEW.head > OLD.head
         BEGIN SELECT RAISE(IGNORE); END",
    );
    let before = rig.dump();
    rig.call("POST", "/v1/deliveries/dlv_1/cancel", b"").is(409);
    conn.run("DROP TRIGGER stands_still");
    assert_eq!(rig.dump(), before);
    assert_eq!(rig.one("SELECT state, head FROM deliveries WHERE seq = 1"), "pending 1");
    let done =
        "SELECT count(*) FROM audit_events WHERE action = 'delivery.cancel' AND result = 'SUCCESS'";
    assert_eq!(rig.one(done), "0");
    rig.call("POST", "/v1/deliveries/dlv_1/cancel", b"").is(200);
    assert_eq!(rig.one("SELECT state, head FROM deliveries WHERE seq = 2"), "pending 1");
}
