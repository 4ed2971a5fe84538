//! A 2xx that only means accepted: the delivery waits until its target confirms it, or its time is over.

use crate::it::restoring::{back_up, restore};
use crate::rig::prelude::*;

pub(crate) const PUBLIC: &str = "https://edge.example";

/// A box that knows its public URL, with a subscription whose deliveries have to be confirmed within an hour.
fn confirming(more: &Value) -> (Rig, Receiver) {
    let rig = Rig::with(|settings| settings.listen.public_url = Some(format!("{PUBLIC}/")));
    let receiver = Receiver::new();
    subscribe(&rig, "erp", &receiver, more);
    (rig, receiver)
}

fn subscribe(rig: &Rig, name: &str, receiver: &Receiver, more: &Value) {
    let terms = merged(json!({ "policy": { "confirm_within": "1h" } }), more);
    rig.subscribe_with(name, receiver, &terms);
}

fn publish(rig: &Rig, payload: &str) -> String {
    let event = json!({ "event_type": "a", "ordering_key": "k", "payload": payload });
    text(&rig.publish(&event), "id")
}

/// A delivery that waits for its confirmation, and the token of its confirm URL.
pub(crate) fn waiting(rig: &Rig, receiver: &Receiver) -> (String, String) {
    let (name, n) = (format!("confirming-{}", receiver.count()), receiver.count());
    subscribe(rig, &name, receiver, &json!({}));
    rig.publish(&json!({ "event_type": "confirmed", "target": name, "payload": 1 }));
    let found = "SELECT coalesce(max(seq), 0) FROM deliveries WHERE state = 'waiting'";
    until("it waits", || rig.one(found) != "0");
    let token = path(receiver, n).strip_prefix("/confirm/").unwrap().to_owned();
    (rig.one(found), token)
}

/// Publishes one event and waits until its target has accepted it.
fn accepted(rig: &Rig) -> String {
    let id = publish(rig, "1");
    rig.settle();
    assert_eq!(rig.state(1), "waiting");
    id
}

fn confirm(rig: &Rig, body: &Value) -> Answer {
    rig.post("/v1/deliveries/dlv_1/confirm", body)
}

/// The path of the confirm URL of the `n`-th request.
fn path(receiver: &Receiver, n: usize) -> String {
    let seen = receiver.seen();
    let url = seen[n].field("oncebox-confirm-url").unwrap();
    url.strip_prefix(PUBLIC).unwrap().to_owned()
}

fn by_url(rig: &Rig, path: &str, body: &Value) -> Answer {
    rig.send("POST", path, &[], body.to_string().as_bytes())
}

fn ok() -> Value {
    json!({ "result": "ok" })
}

fn failed(reason: &str) -> Value {
    json!({ "result": "failed", "reason": reason })
}

fn event_status(rig: &Rig, id: &str) -> Value {
    rig.get(&format!("/v1/events/{id}"))["status"].clone()
}

#[test]
fn a_delivery_is_completed_and_told_when_it_is_confirmed_and_not_before() {
    let (rig, _receiver) = confirming(&json!({ "event_types": ["a"] }));
    let told = Receiver::new();
    rig.subscribe_with("told", &told, &json!({ "event_types": ["delivery.completed"] }));
    let id = accepted(&rig);
    assert_eq!(event_status(&rig, &id), "processing");
    let metrics = || rig.call("GET", "/metrics", b"").is(200).text();
    let completed = "oncebox_deliveries_finished_total{state=\"completed\"}";
    assert!(metrics().contains(&format!("{completed} 0")), "{}", metrics());
    let shown = rig.get("/v1/deliveries/dlv_1");
    assert_eq!(shown["waiting"]["reason"], "confirmation", "{shown}");
    assert_eq!(shown["waiting"]["until"], shown["confirm_until"], "{shown}");
    assert_eq!(shown["confirm_until"], "2026-01-31T13:00:00.000Z", "{shown}");
    assert_eq!(told.count(), 0);
    rig.advance(secs(60));
    let done = confirm(&rig, &ok()).is(200).json();
    assert_eq!((&done["state"], &done["attempt_count"]), (&json!("completed"), &json!(1)));
    assert_eq!(event_status(&rig, &id), "completed");
    rig.sent(&told, 1);
    // Both are counted after their COMMIT.
    until("both are counted", || metrics().contains(&format!("{completed} 2")));
    // Repeated, it is answered as before.
    assert_eq!(confirm(&rig, &ok()).is(200).json()["finished_at"], done["finished_at"]);
    confirm(&rig, &failed("no stock")).is(409).tells("dlv_1 is completed");
}

#[test]
fn a_delivery_that_is_confirmed_as_failed_is_sent_again_until_its_attempts_are_used_up() {
    let policy = json!({ "policy": { "confirm_within": "1h", "max_attempts": 2 } });
    let (rig, receiver) = confirming(&policy);
    accepted(&rig);
    let said = confirm(&rig, &failed("no stock")).is(200).json();
    assert_eq!((&said["state"], &said["last_class"]), (&json!("pending"), &json!("transient")));
    assert_eq!((&said["counted_failures"], &said["attempt_count"]), (&json!(1), &json!(2)));
    assert_eq!(confirm(&rig, &failed("no stock")).is(200).json(), said);
    confirm(&rig, &failed("no space")).is(409).tells("dlv_1 is pending (no stock)");
    let attempts = rig.get("/v1/deliveries/dlv_1/attempts");
    assert_eq!(attempts["items"][1]["failed_reason"], "no stock", "{attempts}");
    assert_eq!(rig.get("/v1/deliveries/dlv_1")["failure"]["code"], "unconfirmed");
    // The target has answered: only the work on this delivery has failed.
    assert_eq!(rig.get("/v1/subscriptions/erp")["failure_count"], 0);
    rig.advance(secs(5));
    until("it is sent again", || receiver.count() == 2);
    until("it waits again", || rig.state(1) == "waiting");
    let said = confirm(&rig, &failed("no stock")).is(200).json();
    assert_eq!(said["state"], "dead_letter", "{said}");
    assert!(said["reason"].as_str().unwrap().contains("given up after 2 attempts"), "{said}");
    rig.call("POST", "/v1/deliveries/dlv_1/retry", b"").is(200);
    rig.settle();
    confirm(&rig, &ok()).is(200);
    assert!(!rig.get("/v1/deliveries/dlv_1")["failure"]["resolved_at"].is_null());
}

#[test]
fn a_final_failure_is_given_up_at_once() {
    let (rig, _receiver) = confirming(&json!({}));
    let id = accepted(&rig);
    let body = json!({ "result": "failed", "reason": "unknown article", "final": true });
    let said = confirm(&rig, &body).is(200).json();
    has(&said, &json!({ "state": "dead_letter", "reason": "unknown article" }));
    assert_eq!(event_status(&rig, &id), "dead_letter");
    confirm(&rig, &body).is(200);
    confirm(&rig, &failed("unknown article")).is(409);
    confirm(&rig, &ok()).is(409);
}

#[test]
fn what_is_not_confirmed_in_time_has_failed_and_a_late_confirmation_is_told_so() {
    let (mut rig, receiver) = confirming(&json!({}));
    accepted(&rig);
    let first = path(&receiver, 0);
    rig.advance(secs(3500));
    rig.restart();
    assert_eq!((rig.state(1).as_str(), receiver.count()), ("waiting", 1));
    rig.advance(secs(100));
    until("its time is over", || rig.state(1) == "pending");
    confirm(&rig, &ok()).is(409).tells("dlv_1 is pending (not confirmed within 1h)");
    by_url(&rig, &first, &ok()).is(404);
    rig.advance(secs(5));
    until("it is sent again", || receiver.count() == 2);
    until("it waits again", || rig.state(1) == "waiting");
    by_url(&rig, &first, &ok()).is(404);
    by_url(&rig, &path(&receiver, 1), &ok()).is(204);
    assert_eq!(rig.state(1), "completed");
}

#[test]
fn who_could_not_confirm_while_the_service_was_off_has_a_minute_to_do_it() {
    let (mut rig, receiver) = confirming(&json!({}));
    accepted(&rig);
    rig.stop();
    rig.time.advance(secs(7200));
    rig.start_again();
    rig.advance(secs(50));
    thread::sleep(Duration::from_millis(1500));
    assert_eq!(rig.state(1), "waiting");
    by_url(&rig, &path(&receiver, 0), &ok()).is(204);
}

#[test]
fn a_time_to_confirm_that_a_wrong_clock_set_too_far_ahead_is_corrected() {
    let (mut rig, _receiver) = confirming(&json!({}));
    accepted(&rig);
    rig.stop();
    rig.time.set_wall(rig.now().minus(secs(86_400 * 3)));
    rig.start_again();
    let most = rig.now().plus(secs(3600)).ms().to_string();
    until("it is corrected", || rig.one("SELECT confirm_until FROM deliveries") <= most);
    assert_eq!(rig.state(1), "waiting");
}

#[test]
fn a_confirm_url_works_once_and_only_by_post() {
    let (rig, receiver) = confirming(&json!({}));
    accepted(&rig);
    let path = path(&receiver, 0);
    rig.send("GET", &path, &[], b"").is(405);
    rig.send("HEAD", &path, &[], b"").is(405);
    assert_eq!(rig.state(1), "waiting");
    for (body, status) in [
        ("", 400),
        ("{}", 400),
        ("\u{0}garbage", 400),
        (r#"{"result":"done"}"#, 400),
        (r#"{"result":"ok","more":1}"#, 400),
        (r#"{"result":"ok","final":true}"#, 422),
        (r#"{"result":"failed"}"#, 422),
        (r#"{"result":"failed","reason":"  "}"#, 422),
    ] {
        let said = rig.send("POST", &path, &[], body.as_bytes()).is(status);
        assert!(!said.text().contains("dlv_"), "{said:?}");
    }
    assert_eq!(rig.state(1), "waiting");
    let said = by_url(&rig, &path, &ok()).is(204);
    assert!(said.body().is_empty());
    assert_eq!(rig.state(1), "completed");
    by_url(&rig, &path, &ok()).is(404);
    by_url(&rig, &path, &failed("late")).is(404);
    assert_eq!(rig.state(1), "completed");
}

#[test]
fn a_wrong_token_is_answered_alike_whatever_is_wrong_and_before_its_body_is_read() {
    let (rig, receiver) = confirming(&json!({}));
    accepted(&rig);
    publish(&rig, "2");
    rig.settle();
    let (one, two) = (path(&receiver, 0), path(&receiver, 1));
    let mac = |path: &str| path.splitn(4, '-').nth(3).unwrap().to_owned();
    let long = "x".repeat(5000);
    let mut answers = Vec::new();
    for wrong in [
        format!("/confirm/1-1-1-{}", mac(&two)),
        format!("/confirm/1-2-1-{}", mac(&one)),
        format!("/confirm/1-1-2-{}", mac(&one)),
        format!("/confirm/99-1-1-{}", mac(&one)),
        format!("{one}x"),
        one.split_at(one.len() - 1).0.to_owned(),
        "/confirm/1-1-1-".to_owned(),
        "/confirm/-1-1-1-x".to_owned(),
        "/confirm/%00".to_owned(),
        "/confirm/%FF%FE".to_owned(),
        "/confirm/dlv_1".to_owned(),
        format!("/confirm/{long}"),
    ] {
        for body in ["{\"result\":\"ok\"}", "garbage"] {
            let said = rig.send("POST", &wrong, &[], body.as_bytes()).is(404);
            let mut said = said.json();
            said.as_object_mut().unwrap().remove("request_id");
            answers.push(said.to_string());
        }
    }
    answers.dedup();
    // A path that is no text at all has no route.
    assert!(answers.iter().all(|said| said.contains("There is no such")), "{answers:?}");
    assert!(answers.len() <= 3, "{answers:?}");
    assert_eq!((rig.state(1).as_str(), rig.state(2).as_str()), ("waiting", "waiting"));
    // Too large a body is refused by its head, with the right token and with a wrong one.
    let huge = vec![b' '; 200_000];
    rig.send("POST", &one, &[], &huge).is(413);
    assert_eq!(rig.send("POST", "/confirm/1-1-1-x", &[], &huge).status, 404);
    assert_eq!(rig.state(1), "waiting");
    by_url(&rig, &one, &ok()).is(204);
}

#[test]
fn a_target_that_confirms_before_it_answers_is_told_to_do_it_again() {
    let (rig, receiver) = confirming(&json!({}));
    receiver.always(Reply::Hang);
    publish(&rig, "1");
    until("it is sent", || receiver.count() == 1);
    let path = path(&receiver, 0);
    let early = by_url(&rig, &path, &ok()).is(503);
    assert_eq!(early.field("retry-after"), Some("1"));
    let early = confirm(&rig, &ok()).is(503);
    assert_eq!(early.field("retry-after"), Some("1"));
    receiver.release();
    until("it waits", || rig.state(1) == "waiting");
    by_url(&rig, &path, &ok()).is(204);
}

#[test]
fn an_early_failure_with_the_reason_of_the_attempt_before_is_told_to_come_again() {
    let (rig, receiver) = confirming(&json!({}));
    accepted(&rig);
    confirm(&rig, &failed("no stock")).is(200);
    receiver.always(Reply::Hang);
    rig.advance(secs(5));
    until("it is sent again", || receiver.count() == 2);
    let path = path(&receiver, 1);
    confirm(&rig, &failed("no stock")).is(503);
    by_url(&rig, &path, &failed("no stock")).is(503);
    receiver.release();
    until("it waits again", || rig.state(1) == "waiting");
    let said = confirm(&rig, &failed("no stock")).is(200).json();
    assert_eq!((&said["counted_failures"], &said["attempt_count"]), (&json!(2), &json!(4)));
}

#[test]
fn a_confirm_url_is_neither_kept_nor_logged_nor_sent_where_there_is_nothing_to_confirm() {
    let (rig, receiver) = confirming(&json!({}));
    let plain = Receiver::new();
    rig.subscribe_with("plain", &plain, &json!({}));
    // A target that repeats what it was sent.
    receiver.decide(|request| {
        let url = request.field("oncebox-confirm-url").unwrap().to_owned();
        Reply::Answer(200, Vec::new(), url.into_bytes())
    });
    publish(&rig, "1");
    rig.settle();
    until("it waits", || rig.one("SELECT count(*) FROM deliveries WHERE state = 'waiting'") == "1");
    assert!(plain.seen()[0].field("oncebox-confirm-url").is_none());
    let path = path(&receiver, 0);
    let token = path.strip_prefix("/confirm/").unwrap();
    assert!(!rig.dump().contains(token));
    let excerpt = rig.one("SELECT excerpt FROM attempts WHERE excerpt IS NOT NULL");
    assert_eq!(excerpt, format!("{PUBLIC}/confirm/***"));
    let own = json!({ "headers": { "Oncebox-Confirm-URL": "x" } });
    rig.patch("/v1/subscriptions/erp", &own).is(422);
}

#[test]
fn without_a_public_url_nothing_is_sent_and_a_token_of_the_api_confirms() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    subscribe(&rig, "erp", &receiver, &json!({}));
    accepted(&rig);
    assert!(receiver.seen()[0].field("oncebox-confirm-url").is_none());
    confirm(&rig, &ok()).is(200);
}

#[test]
fn confirm_urls_are_served_where_webhooks_are_and_not_where_the_api_is() {
    let (mut rig, receiver) = confirming(&json!({}));
    accepted(&rig);
    rig.restart_with(|settings| settings.listen.intake = Some("127.0.0.2:0".parse().unwrap()));
    let path = path(&receiver, 0);
    by_url(&rig, &path, &ok()).is(404);
    let intake = rig.appliance().intake_address();
    let body = ok().to_string();
    let said = http::send(intake, "POST", &path, &[], body.as_bytes()).unwrap();
    assert_eq!(said.status, 204, "{said:?}");
    assert_eq!(rig.state(1), "completed");
}

#[test]
fn what_waits_takes_no_request_of_its_subscription() {
    let policy = json!({ "confirm_within": "1h", "in_flight_max": 1 });
    let (rig, receiver) = confirming(&json!({ "policy": policy }));
    for payload in ["1", "2", "3"] {
        publish(&rig, payload);
    }
    until("all wait", || (1..=3).all(|n| rig.state(n) == "waiting"));
    assert_eq!(receiver.count(), 3);
}

#[test]
fn the_rest_of_a_lane_waits_for_the_confirmation() {
    let (rig, receiver) = confirming(&json!({ "ordering": "key" }));
    publish(&rig, "1");
    publish(&rig, "2");
    rig.settle();
    rig.pass(secs(60));
    assert_eq!(receiver.count(), 1);
    let behind = rig.get("/v1/deliveries/dlv_2");
    assert_eq!(behind["waiting"]["behind"], "dlv_1", "{behind}");
    confirm(&rig, &failed("no stock")).is(200);
    rig.settle();
    assert_eq!(receiver.count(), 1, "the first is still the first");
    rig.advance(secs(5));
    until("it is sent again", || receiver.count() == 2);
    until("it waits again", || rig.state(1) == "waiting");
    confirm(&rig, &ok()).is(200);
    rig.sent(&receiver, 3);
    assert_eq!(rig.state(2), "waiting");
}

#[test]
fn an_earlier_event_that_arrives_meanwhile_waits_for_the_confirmation_as_well() {
    let (rig, receiver) = confirming(&json!({ "ordering": "strict" }));
    receiver.always(Reply::Hang);
    let at = |second: u32| {
        let occurred_at = format!("2026-01-31T11:00:{second:02}Z");
        rig.publish(&json!({ "event_type": "a", "payload": second, "occurred_at": occurred_at }));
    };
    at(2);
    until("it is sent", || receiver.count() == 1);
    at(1);
    receiver.release();
    until("it waits", || rig.state(1) == "waiting");
    rig.pass(secs(60));
    assert_eq!((receiver.count(), rig.state(2).as_str()), (1, "pending"));
    confirm(&rig, &ok()).is(200);
    rig.sent(&receiver, 2);
}

#[test]
fn a_funnel_is_held_until_the_confirmation_or_a_cancel_and_other_subscriptions_wake() {
    let funnel = json!({ "order": { "funnel_point": "sap" }, "event_types": ["a"] });
    let (rig, one) = confirming(&funnel);
    let two = Receiver::new();
    let other = json!({ "order": { "funnel_point": "sap" }, "event_types": ["b"] });
    rig.subscribe_with("two", &two, &other);
    let publish = |kind: &str| {
        rig.publish(&json!({ "event_type": kind, "funnel_value": "7", "payload": kind }));
    };
    publish("a");
    rig.settle();
    publish("b");
    rig.advance(secs(60));
    let due = "SELECT count(*) FROM deliveries WHERE seq = 2 AND state = 'pending'";
    assert_eq!((one.count(), two.count(), rig.one(due).as_str()), (1, 0, "1"));
    confirm(&rig, &ok()).is(200);
    rig.sent(&two, 1);
    publish("a");
    rig.settle();
    publish("b");
    rig.call("POST", "/v1/deliveries/dlv_3/cancel", b"").is(200);
    rig.sent(&two, 2);
    let states = rig.lines("SELECT state FROM deliveries ORDER BY seq");
    assert_eq!(states, ["completed", "completed", "cancelled", "completed"]);
}

#[test]
fn a_pause_leaves_what_waits_alone() {
    let (rig, receiver) = confirming(&json!({}));
    accepted(&rig);
    rig.call("POST", "/v1/subscriptions/erp/pause", b"").is(200);
    rig.call("POST", "/v1/deliveries/dlv_1/retry", b"").is(409);
    assert_eq!(rig.state(1), "waiting");
    confirm(&rig, &failed("no stock")).is(200);
    rig.advance(secs(60));
    assert_eq!((receiver.count(), rig.state(1).as_str()), (1, "pending"));
    rig.call("POST", "/v1/subscriptions/erp/resume", b"").is(200);
    rig.sent(&receiver, 2);
}

#[test]
fn a_restore_puts_what_waits_in_doubt_and_makes_its_url_worthless() {
    let (mut rig, receiver) = confirming(&json!({}));
    accepted(&rig);
    back_up(&rig);
    publish(&rig, "lost");
    rig.settle();
    let (kept, lost) = (path(&receiver, 0), path(&receiver, 1));
    restore(&mut rig);
    assert_eq!(rig.state(1), "in_doubt");
    confirm(&rig, &ok()).is(409);
    by_url(&rig, &kept, &ok()).is(404);
    rig.call("POST", "/v1/in-doubt/end", b"").is(200);
    publish(&rig, "after the restore");
    rig.settle();
    by_url(&rig, &lost, &ok()).is(404);
    by_url(&rig, &path(&receiver, 2), &ok()).is(204);
    let states = rig.lines("SELECT state FROM deliveries ORDER BY seq");
    assert_eq!(states, ["in_doubt", "completed"]);
}

#[test]
fn a_time_to_confirm_that_cannot_be_is_refused() {
    let rig = Rig::new();
    for (within, why) in
        [("0s", "1s to 30days"), ("31days", "1s to 30days"), ("soon", "not a span")]
    {
        let body = json!({
            "name": "erp", "url": "https://example.com/", "policy": { "confirm_within": within },
        });
        rig.post("/v1/subscriptions", &body).is(422).tells(why);
    }
    let pull = json!({ "name": "erp", "target": "pull", "policy": { "confirm_within": "1h" } });
    rig.post("/v1/subscriptions", &pull).is(422).tells("confirm_within");
}
