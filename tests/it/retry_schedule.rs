//! What follows a failed attempt, and exactly when.

use crate::rig::prelude::*;

/// When the one delivery is due, in milliseconds after the start of the clock.
fn due(rig: &Rig) -> i64 {
    let due: i64 = rig.one("SELECT due_at FROM deliveries").parse().unwrap();
    due - START.ms()
}

fn failing_with(reply: Reply) -> (Rig, Receiver) {
    let (rig, receiver) = Rig::subscribed_to("erp", Receiver::with(reply));
    rig.deliver("a");
    (rig, receiver)
}

#[test]
fn a_failing_target_is_tried_by_the_schedule_to_the_second() {
    let (rig, receiver) = failing_with(Reply::status(500));
    let mut at = 0;
    for wait in [5, 30, 300, 1800, 4 * 3600, 4 * 3600] {
        assert_eq!(due(&rig), (at + wait) * 1000);
        rig.pass(Duration::from_millis(u64::try_from(wait * 1000 - 1).unwrap()));
        let before = receiver.count();
        rig.pass(Duration::from_millis(1));
        assert_eq!(receiver.count(), before + 1);
        at += wait;
    }
}

#[test]
fn jitter_adds_a_tenth_at_most_and_takes_nothing_off() {
    for (permille, due_ms) in [(0, 5000), (500, 5250), (1000, 5500)] {
        let rig = Rig::new();
        rig.jitter(permille);
        let receiver = Receiver::scripted([Reply::status(500)]);
        rig.subscribe("erp", &receiver);
        rig.deliver("a");
        assert_eq!(due(&rig), due_ms);
    }
}

#[test]
fn a_failing_target_is_given_up_after_22_attempts() {
    let (rig, receiver) = failing_with(Reply::status(500));
    for _ in 0..21 {
        rig.pass(secs(4 * 3600));
    }
    assert_eq!(receiver.count(), 22);
    assert_eq!(rig.one("SELECT status FROM outbox"), "dead_letter");
    rig.pass(secs(100 * 3600));
    assert_eq!(receiver.count(), 22);
}

#[test]
fn the_events_own_number_of_attempts_wins_over_the_subscriptions() {
    let (rig, receiver) = (Rig::new(), Receiver::with(Reply::status(500)));
    let policy = json!({ "policy": { "max_attempts": 1, "steps": ["1s"] } });
    rig.subscribe_with("erp", &receiver, &policy);
    rig.publish(&json!({ "event_type": "a", "payload": 1, "max_attempts": 2 }));
    rig.settle();
    assert_eq!(due(&rig), 1000);
    rig.pass(secs(1));
    insta::assert_snapshot!(rig.dump(), @r"
    a dead_letter
      erp dead_letter: given up after 2 attempts; the last: the target answered 500
        1 +0s transient counted 500
        2 +1s transient counted 500
    ");
}

#[test]
fn retry_after_in_seconds_is_a_floor() {
    let (rig, _receiver) = failing_with(Reply::with(503, "retry-after", "60"));
    assert_eq!(due(&rig), 60_000);
    assert_eq!(rig.one("SELECT class FROM attempts"), "rate_limited");
    let (rig, _receiver) = failing_with(Reply::with(429, "retry-after", "1"));
    assert_eq!(due(&rig), 1000);
}

#[test]
fn retry_after_as_a_date_is_a_floor() {
    // START is 12:00.
    let date = "Sat, 31 Jan 2026 12:02:03 GMT";
    let (rig, _receiver) = failing_with(Reply::with(429, "retry-after", date));
    assert_eq!(due(&rig), 123_000);
}

#[test]
fn retry_after_is_capped_at_a_day() {
    let (rig, _receiver) = failing_with(Reply::with(429, "retry-after", "999999999999999999999"));
    assert_eq!(due(&rig), 24 * 3_600_000);
}

#[test]
fn a_request_the_target_refuses_is_a_dead_letter_at_once() {
    for status in [400, 402, 406, 409, 411, 413, 415, 418, 422, 451] {
        let (rig, receiver) = failing_with(Reply::status(status));
        assert_eq!(rig.one("SELECT state FROM deliveries"), "dead_letter", "{status}");
        assert_eq!(receiver.count(), 1);
        assert_eq!(rig.items("/v1/dead-letters").len(), 1);
    }
}

#[test]
fn what_may_work_later_is_tried_again() {
    for status in [401, 403, 404, 405, 407, 408, 425, 429, 500, 501, 502, 503, 504, 599] {
        let (rig, receiver) = failing_with(Reply::status(status));
        assert_eq!(due(&rig), 5000, "{status}");
        receiver.always(Reply::status(204));
        rig.pass(secs(5));
        assert_eq!(rig.one("SELECT status FROM outbox"), "completed", "{status}");
    }
}

#[test]
fn a_redirect_is_not_followed() {
    let elsewhere = Receiver::new();
    for status in [301, 302, 303, 307, 308] {
        let (rig, receiver) = failing_with(Reply::with(status, "location", &elsewhere.url()));
        assert_eq!(rig.one("SELECT state FROM deliveries"), "dead_letter", "{status}");
        assert_eq!((receiver.count(), elsewhere.count()), (1, 0));
    }
}

#[test]
fn a_target_that_is_gone_disables_its_subscription_and_the_rest_waits_for_resume() {
    let (rig, _receiver) = Rig::subscribed_to("erp", Receiver::scripted([Reply::status(410)]));
    rig.deliver("first");
    rig.publish_type("second");
    rig.pass(secs(3600));
    let shown = rig.get("/v1/subscriptions/erp");
    has(&shown, &json!({ "state": "DISABLED_DEAD", "holds.0.reason": "disabled" }));
    insta::assert_snapshot!(rig.dump(), @r"
    first dead_letter
      erp dead_letter: the target answered 410
        1 +0s gone counted 410
    second pending
      erp pending due +0s
    ");
    let resumed = rig.call("POST", "/v1/subscriptions/erp/resume", b"").is(200).json();
    assert_eq!((&resumed["state"], &resumed["holds"]), (&json!("ACTIVE"), &json!([])));
    rig.settle();
    assert_eq!(rig.one("SELECT status FROM outbox WHERE event_type = 'second'"), "completed");
}

#[test]
fn a_target_that_hangs_up_is_tried_again() {
    for cut in [Reply::CutUnread, Reply::CutRead] {
        let (rig, _receiver) = Rig::subscribed_to("erp", Receiver::scripted([cut]));
        rig.deliver("a");
        assert_eq!(due(&rig), 5000);
        assert_eq!(rig.one("SELECT class, http_status FROM attempts"), "transient -");
        rig.pass(secs(5));
        assert_eq!(rig.one("SELECT status FROM outbox"), "completed");
    }
}

#[test]
fn a_target_that_does_not_answer_in_time_is_tried_again() {
    let (rig, receiver) = (Rig::new(), Receiver::scripted([Reply::Hang]));
    rig.subscribe_with("erp", &receiver, &json!({ "policy": { "timeout": "200ms" } }));
    rig.deliver("a");
    let attempt = rig.one("SELECT class || ': ' || failed_reason FROM attempts");
    assert!(attempt.starts_with("transient: no answer in time"), "{attempt}");
    assert_eq!(due(&rig), 5000);
}

#[test]
fn a_target_nobody_listens_at_is_tried_again() {
    let (rig, _receiver) = Rig::subscribed("erp");
    let closed = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    rig.patch("/v1/subscriptions/erp", &json!({ "url": format!("http://{closed}/") })).is(200);
    rig.deliver("a");
    shows(&rig.one("SELECT class || ': ' || failed_reason FROM attempts"), &["refused"]);
    assert_eq!(due(&rig), 5000);
}

#[test]
fn where_all_goes_well_the_last_success_is_written_once_a_second() {
    let (rig, receiver) = Rig::subscribed("erp");
    let after = |ms: u64| {
        rig.advance(Duration::from_millis(ms));
        rig.deliver("a");
        rig.get("/v1/subscriptions/erp")["last_success_at"].as_str().unwrap().to_owned()
    };
    let at = |ms: u64| START.plus(Duration::from_millis(ms)).to_string();
    assert_eq!(after(0), at(0));
    assert_eq!(after(900), at(0));
    assert_eq!(after(200), at(1100));
    // A failure is written at once, and so is its end.
    receiver.always(Reply::status(500));
    rig.deliver("b");
    assert_eq!(rig.get("/v1/subscriptions/erp")["last_failure_at"], at(1100));
    receiver.always(Reply::status(200));
    assert_eq!(after(300), at(1400));
}

#[test]
fn a_subscription_counts_its_failures_until_its_next_success() {
    let (rig, receiver) = failing_with(Reply::status(500));
    rig.pass(secs(5));
    let failing = rig.get("/v1/subscriptions/erp");
    assert_eq!(failing["failure_count"], 2);
    assert_eq!(failing["failing_since"], START.to_string());
    assert_eq!(failing["last_failure_at"], START.plus(secs(5)).to_string());
    receiver.always(Reply::status(200));
    rig.pass(secs(30));
    let healthy = rig.get("/v1/subscriptions/erp");
    assert_eq!((&healthy["failure_count"], &healthy["failing_since"]), (&json!(0), &json!(null)));
    assert_eq!(healthy["last_success_at"], START.plus(secs(35)).to_string());
}
