//! What each failure leads to, as an operator sees it: one test for each row of `docs/failures.md`.
//!
//! Rows about a site without a line are tried in `offline`, those about a process that ends in the tests of faults.

use std::sync::atomic::AtomicU16;

use oncebox::model::attempt::AttemptReport;
use oncebox::store::settlement;

use crate::rig::prelude::*;

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;

/// A subscription `erp` that sends one request at a time.
fn site(more: &Value) -> (Rig, Receiver) {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    let with = merged(json!({ "policy": { "in_flight_max": 1 } }), more);
    rig.subscribe_with("erp", &receiver, &with);
    (rig, receiver)
}

fn failing(status: u16) -> (Rig, Receiver) {
    let (rig, receiver) = site(&json!({}));
    receiver.always(Reply::status(status));
    (rig, receiver)
}

/// An event with a body of its own.
fn event(rig: &Rig, body: &str) {
    rig.publish(&json!({ "event_type": "a", "payload": body }));
}

/// The same, and waits until nothing is left to do.
fn deliver(rig: &Rig, body: &str) {
    event(rig, body);
    rig.settle();
}

fn is_of(request: &Message, body: &str) -> bool {
    request.body == json!(body).to_string().as_bytes()
}

/// Answers `status` to one body and 200 to the rest.
fn refusing(receiver: &Receiver, body: &'static str, status: u16) {
    receiver.decide(move |request| Reply::status(if is_of(request, body) { status } else { 200 }));
}

fn after(rig: &Rig, seconds: u64) {
    rig.pass(secs(seconds));
}

fn shown(rig: &Rig) -> Value {
    rig.get("/v1/subscriptions/erp")
}

/// The reasons for which the subscription is not called.
fn holds(rig: &Rig) -> Vec<String> {
    let shown = shown(rig);
    let holds = shown["holds"].as_array().unwrap();
    holds.iter().map(|hold| text(hold, "reason")).collect()
}

/// The hold for a reason, which must stand.
fn hold(rig: &Rig, reason: &str) -> Value {
    let holds = shown(rig)["holds"].clone();
    let found = holds.as_array().unwrap().iter().find(|hold| hold["reason"] == reason);
    found.unwrap_or_else(|| panic!("{holds}")).clone()
}

/// The open escalations, each with how often it was raised.
fn escalations(rig: &Rig) -> Vec<String> {
    let open = rig.get("/v1/escalations")["items"].clone();
    let line = |open: &Value| format!("{} {}", open["class"].as_str().unwrap(), open["count"]);
    let mut lines: Vec<String> = open.as_array().unwrap().iter().map(line).collect();
    lines.sort();
    lines
}

fn dead(rig: &Rig) -> usize {
    rig.items("/v1/dead-letters").len()
}

fn delivery(rig: &Rig, number: u32) -> Value {
    rig.get(&format!("/v1/deliveries/dlv_{number}"))
}

fn counted(rig: &Rig) -> u64 {
    rig.one("SELECT count(*) FROM attempts WHERE counted = 1").parse().unwrap()
}

fn resume(rig: &Rig) {
    rig.call("POST", "/v1/subscriptions/erp/resume", b"").is(200);
}

/// A time after the start, as the API shows it.
fn at(seconds: u64) -> String {
    START.plus(secs(seconds)).to_string()
}

#[test]
fn a_404_or_405_is_tried_again_and_counts() {
    for status in [404, 405] {
        let (rig, receiver) = failing(status);
        deliver(&rig, "x");
        let failed = delivery(&rig, 1);
        has(
            &failed,
            &json!({
                "state": "pending", "last_class": "transient", "counted_failures": 1, "due_at": at(5),
            }),
        );
        receiver.always(Reply::status(200));
        after(&rig, 5);
        assert_eq!(delivery(&rig, 1)["state"], "completed");
        assert_eq!(escalations(&rig), [""; 0]);
    }
}

#[test]
fn a_request_that_is_refused_is_a_dead_letter_at_once_and_the_rest_goes_on() {
    for status in [302, 400, 422] {
        let (rig, receiver) = site(&json!({}));
        refusing(&receiver, "wrong", status);
        event(&rig, "wrong");
        deliver(&rig, "right");
        let refused = delivery(&rig, 1);
        has(
            &refused,
            &json!({
                "state": "dead_letter", "last_class": "validation",
                "reason": format!("the target answered {status}"),
            }),
        );
        assert_eq!(delivery(&rig, 2)["state"], "completed");
        assert_eq!((dead(&rig), receiver.count(), counted(&rig)), (1, 2, 1));
        assert_eq!(escalations(&rig), ["delivery.dead_lettered 1"]);
    }
}

#[test]
fn an_escalation_about_dead_letters_ends_when_they_are_done_skipped_or_discarded() {
    let (rig, receiver) = failing(422);
    for body in ["done", "skipped", "discarded"] {
        deliver(&rig, body);
    }
    assert_eq!(escalations(&rig), ["delivery.dead_lettered 3"]);
    receiver.always(Reply::status(503));
    rig.call("POST", "/v1/deliveries/dlv_1/retry", b"").is(200);
    rig.post("/v1/deliveries/dlv_2/skip", &json!({ "reason": "it was booked by hand" })).is(200);
    rig.post("/v1/deliveries/dlv_3/cancel", &json!({})).is(200);
    rig.settle();
    after(&rig, 2);
    // The first one is sent again, and that is not over.
    assert_eq!((dead(&rig), escalations(&rig)), (0, vec!["delivery.dead_lettered 3".to_owned()]));
    receiver.always(Reply::status(200));
    after(&rig, HOUR);
    assert_eq!(delivery(&rig, 1)["state"], "completed");
    until("it is over", || escalations(&rig).is_empty());
    // Another one is raised anew.
    receiver.always(Reply::status(422));
    deliver(&rig, "again");
    assert_eq!(escalations(&rig), ["delivery.dead_lettered 1"]);
}

#[test]
fn of_a_flood_no_more_are_sent_than_it_takes_to_hold_a_subscription_that_refuses_them() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    receiver.always(Reply::status(422));
    rig.subscribe("erp", &receiver);
    let flood = json!(vec![json!({ "event_type": "a", "payload": {} }); 100]);
    (0..5).for_each(|_| drop(rig.post("/v1/events", &flood).is(201)));
    until("it is held", || holds(&rig) == ["rejecting"]);
    rig.settle();
    assert_eq!((dead(&rig), receiver.count()), (5, 5));
}

#[test]
fn five_refusals_in_a_row_hold_the_subscription_until_somebody_acts() {
    let (rig, receiver) = failing(422);
    (1..=6).for_each(|n| deliver(&rig, &n.to_string()));
    assert_eq!((dead(&rig), receiver.count()), (5, 5));
    assert_eq!(holds(&rig), ["rejecting"]);
    assert_eq!(delivery(&rig, 6)["state"], "pending");
    assert_eq!(escalations(&rig), ["delivery.dead_lettered 5", "subscription.rejecting 1"]);
    after(&rig, DAY);
    assert_eq!(receiver.count(), 5);

    // Resumed while the target still refuses: one more is tried, and no others.
    resume(&rig);
    rig.settle();
    assert_eq!((dead(&rig), holds(&rig)), (6, vec!["rejecting".to_owned()]));

    // The target was mended, and the URL says so.
    event(&rig, "7");
    receiver.always(Reply::status(200));
    rig.patch("/v1/subscriptions/erp", &json!({ "url": format!("{}/v2", receiver.url()) })).is(200);
    rig.settle();
    assert_eq!((holds(&rig), delivery(&rig, 7)["state"].clone()), (vec![], json!("completed")));
    assert_eq!(escalations(&rig), ["delivery.dead_lettered 6"]);
}

#[test]
fn a_success_between_refusals_starts_their_count_anew() {
    let (rig, receiver) = failing(422);
    for n in 0..12 {
        receiver.always(Reply::status(if n % 4 == 3 { 200 } else { 422 }));
        deliver(&rig, &n.to_string());
    }
    assert_eq!((dead(&rig), holds(&rig)), (9, vec![]));
}

#[test]
fn a_410_disables_the_subscription_and_the_rest_waits() {
    let (rig, receiver) = failing(410);
    deliver(&rig, "first");
    event(&rig, "second");
    after(&rig, DAY);
    let disabled = shown(&rig);
    assert_eq!(disabled["state"], "DISABLED_DEAD");
    assert_eq!(disabled["holds"][0]["detail"], "the target answered 410");
    assert_eq!((dead(&rig), receiver.count()), (1, 1));
    assert_eq!(escalations(&rig), ["delivery.dead_lettered 1", "subscription.disabled 1"]);
    let waiting = delivery(&rig, 2);
    assert_eq!((&waiting["state"], &waiting["counted_failures"]), (&json!("pending"), &json!(0)));
    receiver.always(Reply::status(200));
    resume(&rig);
    rig.settle();
    assert_eq!(delivery(&rig, 2)["state"], "completed");
    assert_eq!((shown(&rig)["state"].clone(), holds(&rig)), (json!("ACTIVE"), vec![]));
    assert_eq!(escalations(&rig), ["delivery.dead_lettered 1"]);
}

#[test]
fn a_request_that_cannot_be_built_is_poison() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    let template = json!({ "url": format!("{}/{{aggregate_id}}", receiver.url()) });
    rig.subscribe_with("erp", &receiver, &template);
    deliver(&rig, "it has no aggregate");
    let poison = delivery(&rig, 1);
    has(&poison, &json!({ "state": "dead_letter", "last_class": "poison" }));
    assert!(poison["reason"].as_str().unwrap().contains("aggregate_id"), "{poison}");
    assert_eq!(receiver.count(), 0);
    assert_eq!(escalations(&rig), ["delivery.dead_lettered 1"]);
    // It is kept whole.
    assert_eq!(rig.one("SELECT CAST(payload AS TEXT) FROM outbox"), "\"it has no aggregate\"");
}

#[test]
fn an_event_that_alone_is_answered_5xx_is_poison_after_eight_times() {
    let (rig, receiver) = site(&json!({}));
    refusing(&receiver, "bad", 500);
    deliver(&rig, "bad");
    for n in 1..8 {
        assert_eq!(delivery(&rig, 1)["state"], "pending");
        assert_eq!(delivery(&rig, 1)["counted_failures"], n);
        rig.advance(secs(1));
        event(&rig, "good");
        after(&rig, 4 * HOUR);
    }
    let poison = delivery(&rig, 1);
    has(&poison, &json!({ "state": "dead_letter", "last_class": "poison" }));
    assert!(poison["reason"].as_str().unwrap().contains("while others passed"), "{poison}");
    assert_eq!((dead(&rig), holds(&rig)), (1, vec![]));
}

#[test]
fn an_event_that_fails_with_all_others_is_not_poison() {
    let (rig, _receiver) = failing(500);
    deliver(&rig, "a");
    for _ in 0..10 {
        after(&rig, 4 * HOUR);
    }
    assert_eq!((dead(&rig), delivery(&rig, 1)["last_class"].clone()), (0, json!("transient")));
}

#[test]
fn failures_of_an_outage_do_not_make_an_event_poison_once_others_pass() {
    let (rig, receiver) = failing(500);
    deliver(&rig, "bad");
    for _ in 0..8 {
        after(&rig, 4 * HOUR);
    }
    assert_eq!(delivery(&rig, 1)["counted_failures"], 9);
    // The target works again, and answers this one with 500 once more.
    refusing(&receiver, "bad", 500);
    event(&rig, "good");
    after(&rig, 4 * HOUR);
    after(&rig, 4 * HOUR);
    let again = delivery(&rig, 1);
    assert_eq!((&again["state"], dead(&rig)), (&json!("pending"), 0), "{again}");
    assert_eq!(again["counted_failures"], 11);
}

#[test]
fn the_eighth_counted_failure_is_escalated_and_a_success_ends_that() {
    let (rig, receiver) = failing(500);
    deliver(&rig, "x");
    for _ in 0..6 {
        after(&rig, 4 * HOUR);
    }
    assert_eq!((receiver.count(), escalations(&rig)), (7, vec![]));
    after(&rig, 4 * HOUR);
    assert_eq!(escalations(&rig), ["delivery.failing 1"]);
    after(&rig, 4 * HOUR);
    assert_eq!(escalations(&rig), ["delivery.failing 2"]);
    receiver.always(Reply::status(200));
    after(&rig, 4 * HOUR);
    assert_eq!(
        (delivery(&rig, 1)["state"].clone(), escalations(&rig)),
        (json!("completed"), vec![])
    );
}

#[test]
fn a_delivery_that_is_given_up_is_no_longer_failing_but_dead() {
    let (rig, receiver) = failing(500);
    deliver(&rig, "x");
    for _ in 0..21 {
        after(&rig, 4 * HOUR);
    }
    assert_eq!((receiver.count(), counted(&rig), dead(&rig)), (22, 22, 1));
    assert_eq!(escalations(&rig), ["delivery.dead_lettered 1"]);
}

#[test]
fn a_subscription_that_fails_for_five_days_is_disabled_and_no_attempt_more_is_made() {
    let (rig, receiver) = failing(500);
    deliver(&rig, "first");
    for hour in (4..5 * 24).step_by(4) {
        if hour % 24 == 0 {
            event(&rig, "another");
        }
        after(&rig, 4 * HOUR);
        assert_eq!(shown(&rig)["state"], "ACTIVE", "{hour}");
    }
    after(&rig, 4 * HOUR);
    assert_eq!(shown(&rig)["state"], "DISABLED_DEAD");
    assert!(hold(&rig, "disabled")["detail"].as_str().unwrap().contains("five days"));
    assert!(escalations(&rig).contains(&"subscription.disabled 1".to_owned()));
    let before = receiver.count();
    event(&rig, "last");
    after(&rig, DAY);
    assert_eq!(receiver.count(), before);
    receiver.always(Reply::status(200));
    resume(&rig);
    rig.settle();
    assert_eq!(rig.one("SELECT count(*) FROM deliveries WHERE state = 'pending'"), "0");
    assert_eq!(shown(&rig)["failing_since"], Value::Null);
}

#[test]
fn days_in_which_nobody_called_are_not_days_of_failing() {
    let (rig, receiver) = failing(500);
    let acme = rig.tenant("acme");
    let body = json!({ "name": "erp", "url": receiver.url() });
    rig.post_as(&acme, "/v1/subscriptions", &body).is(201);
    rig.post_as(&acme, "/v1/events", &json!({ "event_type": "a", "payload": 1 })).is(201);
    rig.settle();
    rig.call("POST", "/v1/tenants/acme/suspend", b"").is(200);
    after(&rig, 6 * DAY);
    rig.call("POST", "/v1/tenants/acme/resume", b"").is(200);
    rig.has_sent(&receiver, 2);
    let shown = rig.get_as(&acme, "/v1/subscriptions/erp");
    assert_eq!((&shown["state"], &shown["holds"]), (&json!("ACTIVE"), &json!([])));
}

#[test]
fn another_url_has_five_days_of_its_own() {
    let (rig, receiver) = failing(500);
    deliver(&rig, "x");
    rig.advance(secs(5 * DAY));
    rig.patch("/v1/subscriptions/erp", &json!({ "url": format!("{}/v2", receiver.url()) })).is(200);
    rig.has_sent(&receiver, 2);
    assert_eq!((shown(&rig)["state"].clone(), holds(&rig)), (json!("ACTIVE"), vec![]));
}

#[test]
fn a_429_holds_the_subscription_for_as_long_as_it_says_and_does_not_count() {
    // START is 12:00.
    let date = "Sat, 31 Jan 2026 12:01:30 GMT";
    for (reply, wait) in [
        (Reply::with(429, "retry-after", "90"), 90),
        (Reply::with(503, "retry-after", "90"), 90),
        (Reply::with(429, "retry-after", date), 90),
        (Reply::with(429, "retry-after", "1"), 1),
        (Reply::status(429), 5),
    ] {
        let (rig, receiver) = site(&json!({}));
        receiver.always(reply);
        deliver(&rig, "first");
        deliver(&rig, "second");
        assert_eq!(
            (holds(&rig).len(), hold(&rig, "rate_limit")["until"].clone()),
            (1, json!(at(wait)))
        );
        let waits = delivery(&rig, 1);
        has(&waits, &json!({ "counted_failures": 0, "last_class": "rate_limited" }));
        rig.pass(secs(wait - 1));
        assert_eq!(receiver.count(), 1);
        receiver.always(Reply::status(200));
        after(&rig, 1);
        assert_eq!((receiver.count(), counted(&rig), dead(&rig)), (3, 0, 0));
        until("its hold ends", || holds(&rig).is_empty());
        assert_eq!(escalations(&rig), [""; 0]);
    }
}

#[test]
fn a_429_that_asks_for_more_than_an_hour_is_escalated_until_that_is_over() {
    let (rig, receiver) = failing(429);
    receiver.always(Reply::with(429, "retry-after", "3601"));
    deliver(&rig, "x");
    deliver(&rig, "y");
    assert_eq!(escalations(&rig), ["subscription.rate_limit 1"]);
    assert_eq!(receiver.count(), 1);
    receiver.always(Reply::status(200));
    after(&rig, 3601);
    until("the hold is over", || escalations(&rig).is_empty());
    assert_eq!((receiver.count(), holds(&rig)), (3, vec![]));
    receiver.always(Reply::with(429, "retry-after", "3600"));
    deliver(&rig, "z");
    assert_eq!((holds(&rig).len(), escalations(&rig)), (1, vec![]));
}

#[test]
fn a_429_that_names_no_time_waits_longer_each_time() {
    let (rig, receiver) = failing(429);
    deliver(&rig, "x");
    for (n, wait) in [5, 30, 300, 1800].into_iter().enumerate() {
        assert_eq!(receiver.count(), n + 1);
        after(&rig, wait - 1);
        assert_eq!(receiver.count(), n + 1);
        after(&rig, 1);
    }
    assert_eq!((receiver.count(), counted(&rig)), (5, 0));
}

#[test]
fn answers_429_to_requests_side_by_side_are_one_window() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    rig.subscribe_with("erp", &receiver, &json!({ "policy": { "in_flight_max": 6 } }));
    deliver(&rig, "known to be prompt");
    receiver.always(Reply::Hang);
    (0..6).for_each(|n| event(&rig, &n.to_string()));
    until("several are under way", || receiver.count() >= 5);
    receiver.release_with(429);
    until("they are answered", || {
        rig.one("SELECT count(*) FROM attempts WHERE http_status = 429")
            == (receiver.count() - 1).to_string()
    });
    rig.settle();
    assert_eq!(hold(&rig, "rate_limit")["until"], at(5));
}

#[test]
fn a_subscription_is_called_no_faster_than_its_own_rate() {
    let (rig, receiver) = site(&json!({ "policy": { "rate": "60/min" } }));
    (0..4).for_each(|n| event(&rig, &n.to_string()));
    for n in 1..=4 {
        until("the next one goes out", || receiver.count() == n);
        until("it is settled", || rig.one("SELECT count(*) FROM attempts") == n.to_string());
        rig.advance(Duration::from_millis(900));
        assert_eq!(receiver.count(), n);
        rig.advance(Duration::from_millis(100));
    }
    assert_eq!(holds(&rig), [""; 0]);
}

#[test]
fn ten_failures_in_a_row_open_the_breaker_and_a_probe_closes_it() {
    let (rig, receiver) = failing(503);
    (0..12).for_each(|n| deliver(&rig, &n.to_string()));
    assert_eq!((receiver.count(), counted(&rig)), (10, 10));
    assert_eq!((holds(&rig).len(), hold(&rig, "breaker")["probe_at"].clone()), (1, json!(at(5))));

    // One probe at each step, and what it finds counts for nothing.
    for (n, wait) in [5, 30, 300, 300].into_iter().enumerate() {
        after(&rig, wait - 1);
        assert_eq!(receiver.count(), 10 + n);
        after(&rig, 1);
        assert_eq!((receiver.count(), counted(&rig)), (11 + n, 10));
        assert_eq!(hold(&rig, "breaker")["probe_no"], n + 1);
        assert_eq!(escalations(&rig), ["subscription.breaker 1"]);
    }
    receiver.always(Reply::status(200));
    after(&rig, 300);
    assert_eq!((holds(&rig), escalations(&rig)), (vec![], vec![]));
    after(&rig, 4 * HOUR);
    assert_eq!(rig.one("SELECT count(*) FROM deliveries WHERE state = 'completed'"), "12");
    assert_eq!((dead(&rig), counted(&rig)), (0, 10));
}

/// What a person does about a target that fails.
const ACTS: [fn(&Rig, &Receiver); 2] = [
    |rig, _| resume(rig),
    |rig, receiver| {
        let url = json!({ "url": format!("{}/v2", receiver.url()) });
        rig.patch("/v1/subscriptions/erp", &url).is(200);
    },
];

#[test]
fn a_breaker_is_no_longer_escalated_when_a_person_has_acted() {
    for act in ACTS {
        let (rig, receiver) = failing(503);
        (0..10).for_each(|n| deliver(&rig, &n.to_string()));
        assert_eq!(escalations(&rig), ["subscription.breaker 1"]);
        act(&rig, &receiver);
        assert_eq!((holds(&rig), escalations(&rig)), (vec![], vec![]));
    }
}

#[test]
fn a_deleted_subscription_has_no_open_escalations() {
    let (rig, _receiver) = failing(503);
    (0..10).for_each(|n| deliver(&rig, &n.to_string()));
    for n in 1..=10 {
        rig.call("POST", &format!("/v1/deliveries/dlv_{n}/cancel"), b"").is(200);
    }
    assert_eq!(escalations(&rig), ["subscription.breaker 1"]);
    rig.delete("/v1/subscriptions/erp").is(204);
    assert_eq!(escalations(&rig), [""; 0]);
}

#[test]
fn a_subscription_without_a_breaker_goes_on_by_the_schedule() {
    let (rig, receiver) = site(&json!({ "policy": { "breaker_after": 0, "in_flight_max": 1 } }));
    receiver.always(Reply::status(500));
    (0..12).for_each(|n| deliver(&rig, &n.to_string()));
    assert_eq!((receiver.count(), holds(&rig)), (12, vec![]));
}

/// Three events for a target that does not accept our credential.
fn unauthorized(status: u16) -> (Rig, Receiver) {
    let (rig, receiver) = failing(status);
    (0..3).for_each(|n| deliver(&rig, &n.to_string()));
    (rig, receiver)
}

#[test]
fn a_credential_that_is_refused_is_escalated_once_and_probed_until_it_is_accepted() {
    for status in [401, 403, 407] {
        let (rig, receiver) = unauthorized(status);
        assert_eq!((holds(&rig).len(), hold(&rig, "auth")["probe_at"].clone()), (1, json!(at(5))));
        assert_eq!(receiver.count(), 1);
        for (n, wait) in [5, 30, 300, 1800, 4 * HOUR].into_iter().enumerate() {
            after(&rig, wait - 1);
            assert_eq!(receiver.count(), n + 1);
            after(&rig, 1);
            assert_eq!(receiver.count(), n + 2);
        }
        assert_eq!(escalations(&rig), ["subscription.auth 1"]);
        receiver.always(Reply::status(200));
        after(&rig, 4 * HOUR);
        assert_eq!((holds(&rig), escalations(&rig)), (vec![], vec![]));
        after(&rig, HOUR);
        assert_eq!(
            (rig.one("SELECT count(*) FROM deliveries WHERE state = 'completed'"), counted(&rig)),
            ("3".to_owned(), 0)
        );
    }
}

#[test]
fn a_refused_credential_is_tried_at_once_after_a_change_or_a_resume() {
    for act in ACTS {
        let (rig, receiver) = unauthorized(401);
        // The delivery that was refused waits for a probe that is five minutes away.
        after(&rig, 5);
        after(&rig, 30);
        receiver.always(Reply::status(200));
        act(&rig, &receiver);
        assert_eq!((holds(&rig), escalations(&rig)), (vec![], vec![]));
        rig.settle();
        assert_eq!(rig.one("SELECT count(*) FROM deliveries WHERE state = 'completed'"), "3");
    }
}

#[test]
fn one_event_that_is_not_authorized_while_others_pass_is_refused_alone() {
    let (rig, receiver) = site(&json!({}));
    refusing(&receiver, "secret", 403);
    deliver(&rig, "secret");
    assert_eq!(holds(&rig), ["auth"]);
    rig.advance(secs(1));
    event(&rig, "public");
    after(&rig, 4);
    after(&rig, 30);
    let refused = delivery(&rig, 1);
    has(&refused, &json!({ "state": "dead_letter", "last_class": "validation" }));
    assert_eq!((delivery(&rig, 2)["state"].clone(), holds(&rig)), (json!("completed"), vec![]));
    assert_eq!(escalations(&rig), ["delivery.dead_lettered 1"]);
}

#[test]
fn what_a_person_holds_is_not_called_and_loses_nothing() {
    let (rig, receiver) = site(&json!({}));
    rig.call("POST", "/v1/subscriptions/erp/pause", b"").is(200);
    event(&rig, "x");
    after(&rig, 7 * DAY);
    assert_eq!((receiver.count(), holds(&rig)), (0, vec!["paused".to_owned()]));
    assert_eq!(shown(&rig)["state"], "PAUSED");
    resume(&rig);
    rig.settle();
    assert_eq!((receiver.count(), delivery(&rig, 1)["state"].clone()), (1, json!("completed")));
}

#[test]
fn a_suspended_tenant_holds_its_subscriptions() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    let acme = rig.tenant("acme");
    let body = json!({ "name": "erp", "url": receiver.url() });
    rig.post_as(&acme, "/v1/subscriptions", &body).is(201);
    receiver.always(Reply::status(500));
    rig.post_as(&acme, "/v1/events", &json!({ "event_type": "a", "payload": 1 })).is(201);
    rig.settle();
    rig.call("POST", "/v1/tenants/acme/suspend", b"").is(200);
    receiver.always(Reply::status(200));
    after(&rig, DAY);
    assert_eq!((receiver.count(), counted(&rig)), (1, 1));
    rig.call("POST", "/v1/tenants/acme/resume", b"").is(200);
    rig.settle();
    assert_eq!(rig.one("SELECT state FROM deliveries"), "completed");
}

#[test]
fn a_subscriptions_own_classes_win() {
    let classes = json!({ "409": "success", "5xx": "validation", "400": "transient" });
    let (rig, receiver) = site(&json!({ "policy": { "classes": classes, "in_flight_max": 1 } }));
    for (body, status) in [("known", 409), ("refused", 502), ("later", 400)] {
        receiver.always(Reply::status(status));
        deliver(&rig, body);
    }
    let found = [1, 2, 3].map(|n| {
        let found = delivery(&rig, n);
        format!("{} {}", found["state"].as_str().unwrap(), found["last_class"].as_str().unwrap())
    });
    assert_eq!(found, ["completed success", "dead_letter validation", "pending transient"]);
    rig.patch("/v1/subscriptions/erp", &json!({ "policy": { "classes": { "7xx": "gone" } } }))
        .is(422);
}

#[test]
fn who_asks_for_it_is_told_when_a_delivery_begins_to_fail_and_when_it_works_again() {
    let (rig, receiver) = failing(500);
    let (told, all) = (Receiver::new(), Receiver::new());
    let by_name = json!({ "event_types": ["integration.failed", "integration.resolved"] });
    rig.subscribe_with("told", &told, &by_name);
    rig.subscribe("all", &all);
    deliver(&rig, "x");
    after(&rig, 5);
    receiver.always(Reply::status(200));
    after(&rig, 30);
    rig.settle();
    until("both are told", || told.count() == 2);
    let [failed, resolved] = [0, 1].map(|n| {
        let seen = told.seen();
        serde_json::from_slice::<Value>(&seen[n].body).unwrap()
    });
    assert_eq!(failed["failure_id"], resolved["failure_id"]);
    assert_eq!((&failed["subscription"], &failed["delivery_id"]), (&json!("erp"), &json!("dlv_1")));
    assert_eq!((&failed["class"], &failed["code"]), (&json!("transient"), &json!("500")));
    assert_eq!(failed["is_dead_letter"], false);
    // A pattern with a star at its beginning does not ask for them: the one event, and nothing of ours.
    assert_eq!(all.count(), 1);
}

/// Seed 003: "entering Failed or `DeadLettered` emits `IntegrationFailed`", in a replayed run as well.
#[test]
fn each_run_tells_that_it_has_failed_and_that_it_is_given_up() {
    let (rig, receiver) = site(&json!({ "policy": { "max_attempts": 2 } }));
    receiver.always(Reply::status(500));
    let told = Receiver::new();
    rig.subscribe_with("told", &told, &json!({ "event_types": ["integration.failed"] }));
    deliver(&rig, "x");
    let tells = |count: usize| {
        until("it is told", || told.count() == count);
        let told: Value = serde_json::from_slice(&told.seen()[count - 1].body).unwrap();
        (text(&told, "failure_id"), told["is_dead_letter"].clone())
    };
    let is = |dead: bool| ("flr_1".to_owned(), json!(dead));
    assert_eq!(tells(1), is(false));
    after(&rig, 5);
    assert_eq!(tells(2), is(true));
    rig.post("/v1/deliveries/dlv_1/retry", &json!({})).is(200);
    assert_eq!(tells(3), is(false));
    after(&rig, 5);
    assert_eq!(tells(4), is(true));
    // What fails for good at once is told once.
    receiver.always(Reply::status(400));
    rig.post("/v1/deliveries/dlv_1/retry", &json!({})).is(200);
    assert_eq!(tells(5), is(true));
    rig.settle();
    assert_eq!(told.count(), 5);
}

#[test]
fn telling_of_a_failure_makes_no_other() {
    let (rig, _receiver) = failing(500);
    let told = Receiver::new();
    told.always(Reply::status(500));
    rig.subscribe_with("told", &told, &json!({ "event_types": ["integration.failed"] }));
    deliver(&rig, "x");
    after(&rig, 5);
    after(&rig, 30);
    assert_eq!(rig.one("SELECT count(*) FROM outbox"), "2");
}

#[test]
fn an_outcome_that_is_handed_in_twice_changes_nothing() {
    let status = Arc::new(AtomicU16::new(500));
    let (rig, receiver) = site(&json!({ "policy": { "breaker_after": 2, "in_flight_max": 1 } }));
    let answered = Arc::clone(&status);
    receiver.decide(move |_| Reply::status(answered.load(Ordering::SeqCst)));
    deliver(&rig, "x");
    let writer = rig.appliance().store().writer();
    let everything = || {
        let conn = rig.file();
        ["deliveries", "attempts", "failures", "holds", "escalations", "subscriptions", "outbox"]
            .map(|table| file::lines(&conn, &format!("SELECT * FROM {table}")))
    };
    for class in ["transient", "success"] {
        let before = everything();
        let report = Arc::new(report(&rig));
        assert_eq!(report.attempt.class.as_str(), class);
        let stored = writer.write(Queue::Settle, move |tx| settlement::settle(tx, &report));
        assert!(stored.unwrap().is_none());
        assert_eq!(everything(), before);
        status.store(200, Ordering::SeqCst);
        after(&rig, 5);
    }
}

/// The report of the latest attempt, as its deliverer handed it in.
fn report(rig: &Rig) -> AttemptReport {
    use oncebox::base::clock::Timestamp;
    use oncebox::base::id::{DeliverySeq, SubscriptionSeq};
    use oncebox::store::attempts;

    let store = rig.appliance().store();
    let attempts = store.read(|tx| attempts::of(tx, DeliverySeq(1), 0, 100)).unwrap();
    let attempt = attempts.last().unwrap().clone();
    let now = Timestamp::from_ms(rig.now().ms());
    AttemptReport {
        accepted_at: START,
        code: "500".to_owned(),
        ..AttemptReport::new(DeliverySeq(1), SubscriptionSeq(1), 1, attempt, now)
    }
}

/// Starts of the service that ended uncleanly, so many minutes before now, the last with these deliveries in hand; then
/// this start.
fn start_after_ends(rig: &mut Rig, minutes_ago: &[i64], in_hand: &[u32]) {
    rig.stop();
    let file = rig.writable();
    for minutes in minutes_ago {
        let at = rig.now().ms() - minutes * 60_000;
        file.execute("INSERT INTO boots (started_at, version) VALUES (?1, '0.1.0')", [at]).unwrap();
    }
    for number in in_hand {
        let mark =
            "INSERT INTO meta SELECT 'in_hand/delivery/dlv_' || ?1, max(seq) || ':-1' FROM boots";
        file.execute(mark, [number]).unwrap();
    }
    drop(file);
    rig.start_again();
}

#[test]
fn after_unclean_ends_what_was_in_hand_is_sent_alone_for_a_minute() {
    let marks = "SELECT count(*) FROM meta WHERE key LIKE 'in_hand/%'";
    for (ends, is_careful) in
        [(&[9, 5, 1][..], true), (&[5, 1], true), (&[5, 11], false), (&[1], false)]
    {
        let (mut rig, receiver) = (Rig::new(), Receiver::new());
        rig.subscribe("erp", &receiver);
        deliver(&rig, "it is known to be prompt");
        rig.call("POST", "/v1/subscriptions/erp/pause", b"").is(200);
        (2..=6).for_each(|n| event(&rig, &n.to_string()));
        start_after_ends(&mut rig, ends, &[2, 3, 4]);
        receiver.always(Reply::Hang);
        resume(&rig);
        // One subscription has half of the deliverers at most.
        until("it goes on", || receiver.count() == if is_careful { 2 } else { 5 });
        thread::sleep(Duration::from_millis(200));
        let suspects = receiver.seen()[1..]
            .iter()
            .filter(|seen| ["2", "3", "4"].iter().any(|n| is_of(seen, n)))
            .count();
        let checks = rig.send("GET", "/readyz?verbose", &[], b"").is(200).json()["checks"].clone();
        let starts = checks.as_array().unwrap().iter().find(|check| check["name"] == "starts");
        let starts = starts.unwrap()["state"].as_str().unwrap().to_owned();
        let expected = if is_careful { (1, "warn") } else { (3, "ok") };
        assert_eq!((suspects, starts.as_str()), expected, "{ends:?}");
        // A suspect is alone, and marked as the others still are.
        assert_eq!(
            (receiver.count(), rig.one(marks).as_str()),
            if is_careful { (2, "3") } else { (5, "3") }
        );
        rig.advance(secs(60));
        until("what is no suspect goes on", || receiver.count() > 2);
        receiver.release();
        rig.settle();
        rig.stop();
        rig.start_again();
        assert_eq!((rig.one(marks), dead(&rig)), ("0".to_owned(), 0));
    }
}

#[test]
fn every_test_that_the_page_names_is_there() {
    let page = include_str!("../../docs/failures.md");
    let tests = [
        include_str!("failures.rs"),
        include_str!("event_mails.rs"),
        include_str!("fairness.rs"),
        include_str!("folders.rs"),
        include_str!("health_probes.rs"),
        include_str!("offline.rs"),
        include_str!("outgoing.rs"),
        include_str!("past_holds.rs"),
        include_str!("../databases/effects.rs"),
        include_str!("../fault/offline.rs"),
        include_str!("../fault/crash_loop.rs"),
    ];
    let named = page.split('`').skip(1).step_by(2).filter(|text| text.matches('_').count() > 3);
    let mut count = 0;
    for name in named {
        assert!(tests.iter().any(|text| text.contains(&format!("fn {name}()"))), "{name}");
        count += 1;
    }
    assert!(count > 25, "{count}");
}
