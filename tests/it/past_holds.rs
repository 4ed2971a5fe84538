//! Holds that have ended: why a delivery was late.

use oncebox::store::past_holds::{MAX_OF_REASON, MAX_ROWS};

use crate::it::console_rig::Browser;
use crate::rig::prelude::*;

/// The reasons of the ended holds of a subscription, the newest first.
fn reasons(rig: &Rig, token: &str, name: &str) -> Vec<Value> {
    let path = format!("/v1/subscriptions/{name}/past-holds?limit=100");
    let found = rig.get_as(token, &path);
    found["items"].as_array().unwrap().iter().map(|hold| hold["reason"].clone()).collect()
}

#[test]
fn a_delivery_that_waited_during_a_hold_says_so_also_after_a_restart() {
    let (mut rig, receiver) = Rig::subscribed("erp");
    let event = rig.publish_id("before", &json!({}));
    rig.sent(&receiver, 1);
    rig.advance(secs(60));
    rig.post("/v1/subscriptions/erp/pause", &json!({})).is(200);
    rig.advance(secs(60));
    let late = rig.publish_id("late", &json!({}));
    rig.advance(secs(3600));
    rig.post("/v1/subscriptions/erp/resume", &json!({})).is(200);
    rig.sent(&receiver, 2);
    rig.settle();
    rig.advance(secs(60));
    let after = rig.publish_id("after", &json!({}));
    rig.sent(&receiver, 3);
    rig.settle();
    rig.restart();

    let held = |event: &str| {
        let delivery = rig.id(&format!("/v1/deliveries?event_id={event}"));
        rig.get(&format!("/v1/deliveries/{delivery}"))["past_holds"].clone()
    };
    let wanted = json!([{
        "reason": "paused", "since": START.plus(secs(60)), "ended_at": START.plus(secs(3720)),
        "detail": "paused by first admin token",
    }]);
    assert_eq!(held(&late), wanted);
    assert_eq!((held(&event), held(&after)), (json!([]), json!([])));
    assert_eq!(rig.get("/v1/subscriptions/erp/past-holds")["items"], wanted);

    let browser = Browser::new(&rig, "read");
    assert!(browser.get(&format!("/console/events/{late}")).contains("It was held until"));
    assert!(!browser.get(&format!("/console/events/{after}")).contains("It was held until"));
    let page = browser.get("/console/subscriptions/erp");
    for part in ["Holds that have ended", "1 h 1 min", "paused by first admin token"] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[test]
fn what_a_target_and_a_suspended_tenant_held_is_kept_for_each_subscription() {
    let (rig, receiver) = Rig::subscribed_to("erp", Receiver::scripted([Reply::status(401)]));
    rig.publish_type("a");
    rig.becomes("SELECT count(*) FROM holds WHERE reason = 'auth'", "1");
    rig.advance(secs(60));
    rig.sent(&receiver, 2);
    rig.becomes("SELECT count(*) FROM holds", "0");
    assert_eq!(reasons(&rig, &rig.token, "erp"), ["auth"]);

    let second = rig.tenant("second");
    let other = json!({ "name": "other", "url": receiver.url() });
    rig.post_as(&second, "/v1/subscriptions", &other).is(201);
    rig.post("/v1/tenants/second/suspend", &json!({})).is(200);
    rig.advance(secs(60));
    rig.post("/v1/tenants/second/resume", &json!({})).is(200);
    rig.post("/v1/tenants/second/resume", &json!({})).is(200);
    assert_eq!(reasons(&rig, &second, "other"), ["suspended"]);
    assert_eq!(reasons(&rig, &rig.token, "erp"), ["auth"]);
    let elsewhere = rig.call_as(&second, "GET", "/v1/subscriptions/erp/past-holds", b"");
    assert_eq!(elsewhere.status, 404);
}

#[test]
fn ended_holds_are_bounded_by_reason_by_age_and_in_sum_and_the_tenant_with_the_most_pays() {
    let (rig, receiver) = Rig::subscribed("erp");
    for _ in 0..MAX_OF_REASON + 5 {
        rig.post("/v1/subscriptions/erp/pause", &json!({})).is(200);
        rig.post("/v1/subscriptions/erp/resume", &json!({})).is(200);
    }
    let kept = usize::try_from(MAX_OF_REASON).unwrap();
    assert_eq!(reasons(&rig, &rig.token, "erp"), vec![json!("paused"); kept]);

    let second = rig.tenant("second");
    let other = json!({ "name": "other", "url": receiver.url() });
    rig.post_as(&second, "/v1/subscriptions", &other).is(201);
    let (now, most) = (rig.now().ms(), MAX_ROWS);
    rig.write(&format!(
        "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {most} + 700)
         INSERT INTO past_holds (subscription_seq, reason, since, ended_at, detail)
         SELECT s.seq, 'breaker', {now}, {now}, '' FROM n
           JOIN subscriptions AS s ON s.name = 'other'"
    ));
    rig.becomes("SELECT count(*) FROM past_holds", &most.to_string());
    assert_eq!(reasons(&rig, &rig.token, "erp").len(), kept, "the other tenant pays");
    rig.advance(Duration::from_hours(91 * 24));
    rig.becomes("SELECT count(*) FROM past_holds", "0");
}
