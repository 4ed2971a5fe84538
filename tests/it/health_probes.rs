//! Idle targets are probed. Seed 003: "All failures across delivery, runs, and health probes converge"; a run begins when
//! the "connection [is] Active + Healthy".

use crate::it::console_rig::Browser;
use crate::rig::prelude::*;

/// The policy of a subscription that is probed by a request to a path.
fn get(every: &str) -> Value {
    json!({ "policy": { "probe": { "every": every, "method": "GET", "path": "/health" } } })
}

/// The policy of a subscription that is probed by a ping, and whose deliveries are tried once an hour.
fn ping(every: &str) -> Value {
    json!({ "policy": { "probe": { "every": every }, "steps": ["1h"], "breaker_after": 2 } })
}

fn health(rig: &Rig, name: &str) -> Value {
    rig.get(&format!("/v1/subscriptions/{name}"))["health"].clone()
}

fn state(rig: &Rig, name: &str) -> String {
    text(&health(rig, name), "state")
}

/// The open warnings about unhealthy targets.
fn warnings(rig: &Rig) -> Vec<Value> {
    let mut open = rig.items("/v1/escalations");
    open.retain(|one| one["class"] == "subscription.unhealthy");
    open
}

fn holds(rig: &Rig) -> String {
    rig.one("SELECT coalesce(group_concat(reason), '') FROM holds")
}

/// Lets time pass in steps until this holds. What is under way while the clock is set is reckoned from the new time, and puts
/// the next probe off, so that one step may not do.
#[track_caller]
fn in_steps(rig: &Rig, what: &str, mut holds: impl FnMut() -> bool) {
    until(what, || {
        let is_there = holds();
        if !is_there {
            rig.advance(secs(10));
        }
        is_there
    });
}

/// Makes a target unhealthy that answers something wrong.
#[track_caller]
fn becomes_unhealthy(rig: &Rig, name: &str) {
    until("the first probe fails", || health(rig, name)["probed_at"].is_string());
    assert_eq!(
        (state(rig, name).as_str(), warnings(rig).len()),
        ("unknown", 0),
        "one may be an accident"
    );
    rig.advance(secs(30));
    until("the second one fails", || state(rig, name) == "unhealthy");
}

#[test]
fn a_target_is_probed_while_it_is_idle_and_only_if_that_is_asked_for() {
    let rig = Rig::new();
    let [plain, busy, idle] = [(); 3].map(|()| Receiver::new());
    rig.subscribe_with("plain", &plain, &json!({ "event_types": ["none"] }));
    rig.subscribe_with("busy", &busy, &get("5min"));
    rig.subscribe_with("idle", &idle, &merged(get("5min"), &json!({ "event_types": ["none"] })));
    until("each is probed once", || busy.count() == 1 && idle.count() == 1);
    until("that is stored", || {
        state(&rig, "busy") == "healthy" && state(&rig, "idle") == "healthy"
    });
    rig.advance(secs(240));
    rig.deliver("order.created");
    assert_eq!(busy.count(), 2);
    rig.advance(secs(60));
    until("the idle one is probed again", || idle.count() == 2);
    let lines: Vec<String> = busy.seen().iter().map(|seen| seen.first_line.clone()).collect();
    assert_eq!(lines, ["GET /health HTTP/1.1", "POST /hook HTTP/1.1"]);
    rig.advance(secs(240));
    until("both are idle for as long", || busy.count() == 3);
    assert_eq!((plain.count(), health(&rig, "plain")), (0, Value::Null));
    let seen = &idle.seen()[0];
    assert!(seen.body.is_empty() && seen.field("webhook-signature").is_none());
    assert_eq!(rig.one("SELECT count(*) FROM attempts"), "1", "a probe is no attempt");
}

#[test]
fn a_dead_target_is_a_warning_before_the_first_event_fails() {
    let rig = Rig::new();
    let receiver = Receiver::with(Reply::status(500));
    rig.subscribe_with("erp", &receiver, &get("1h"));
    becomes_unhealthy(&rig, "erp");
    let known = health(&rig, "erp");
    has(
        &known,
        &json!({ "unhealthy_since": Timestamp::to_string(&START), "detail": "the target answered 500" }),
    );
    assert_eq!(rig.items("/v1/subscriptions")[0]["health"], known);
    let warning = &warnings(&rig)[0];
    has(
        warning,
        &json!({ "subject": "subscription:erp", "resolved_at": null,
                          "detail": "probes fail; the last: the target answered 500" }),
    );
    rig.says(
        "SELECT failure_count || coalesce(last_failure_at, '-') || streak_count FROM subscriptions",
        "0-0",
    );
    assert_eq!(rig.one("SELECT count(*) FROM deliveries"), "0");
    let metrics = String::from_utf8(rig.call("GET", "/metrics", b"").body().to_vec()).unwrap();
    shows(
        &metrics,
        &[
            "oncebox_subscriptions_unhealthy 1",
            "oncebox_health_probes_total{result=\"worked\"} 0",
            "oncebox_health_probes_total{result=\"failed\"} 2",
            "oncebox_escalations_open{class=\"subscription.unhealthy\"} 1",
        ],
    );
    let page = Browser::new(&rig, "read").get("/console/subscriptions/erp");
    shows(&page, &["unhealthy", "Unhealthy since", "the target answered 500", "Last probe"]);
    receiver.always(Reply::status(200));
    rig.advance(secs(300));
    until("its recovery is seen although it is probed once an hour", || {
        state(&rig, "erp") == "healthy"
    });
    assert_eq!(warnings(&rig), Vec::<Value>::new());
    has(&health(&rig, "erp"), &json!({ "unhealthy_since": null, "detail": null }));
}

#[test]
fn a_warning_ends_with_a_delivery_a_pause_a_deletion_or_without_the_probe() {
    let rig = Rig::new();
    let receiver = Receiver::new();
    receiver
        .decide(|seen| Reply::status(if seen.first_line.starts_with("GET") { 500 } else { 200 }));
    for end in ["delivery", "pause", "change", "delete"] {
        rig.subscribe_with(end, &receiver, &get("1h"));
        becomes_unhealthy(&rig, end);
        assert_eq!(warnings(&rig).len(), 1);
        let path = format!("/v1/subscriptions/{end}");
        match end {
            "delivery" => rig.deliver("order.created"),
            "pause" => drop(rig.post(&format!("{path}/pause"), &json!({})).is(200)),
            "change" => drop(rig.patch(&path, &json!({ "policy": {} })).is(200)),
            _ => drop(rig.delete(&path).is(204)),
        }
        until("the warning has ended", || warnings(&rig).is_empty());
        match end {
            "delivery" => assert_eq!(state(&rig, end), "healthy"),
            "pause" => assert_eq!(state(&rig, end), "unknown"),
            "change" => assert_eq!(health(&rig, end), Value::Null),
            _ => {}
        }
        if end != "delete" {
            rig.patch(&path, &json!({ "policy": {}, "event_types": ["none"] })).is(200);
        }
    }
    assert_eq!(rig.one("SELECT count(*) FROM health_probes"), "0");
}

#[test]
fn a_ping_is_signed_as_a_delivery_is() {
    let rig = Rig::new();
    let receiver = Receiver::new();
    let secret = rig.subscribe_with("erp", &receiver, &ping("5min"));
    until("it is probed", || receiver.count() == 1);
    let seen = &receiver.seen()[0];
    assert!(seen.is_signed(&secret) && seen.first_line == "POST /hook HTTP/1.1");
    has(&receiver.json(0), &json!({ "type": "oncebox.ping", "subscription": "erp" }));
    until("that is stored", || state(&rig, "erp") == "healthy");
    assert_eq!(
        rig.one("SELECT (SELECT count(*) FROM deliveries) + (SELECT count(*) FROM outbox)"),
        "0"
    );
}

#[test]
fn a_ping_that_works_ends_the_holds_of_a_refused_credential_and_of_the_breaker() {
    for (status, hold) in [(401, "auth"), (500, "breaker")] {
        let rig = Rig::new();
        let receiver = Receiver::with(Reply::status(status));
        rig.subscribe_with("erp", &receiver, &ping("1h"));
        until("it is probed", || state(&rig, "erp") == "unknown" && receiver.count() == 1);
        rig.publish_types(&["order.created", "order.created"]);
        until("a hold begins", || holds(&rig) == hold);
        receiver.always(Reply::status(200));
        in_steps(&rig, "a ping ends it", || holds(&rig).is_empty());
        let audited = rig.items("/v1/audit-events?action=subscription.resume");
        assert_eq!(audited[0]["changes"]["hold"]["after"], hold);
        assert_eq!(audited[0]["actor"]["type"], "system", "{audited:?}");
        until("what waited for the credential goes on", || {
            hold == "breaker"
                || rig.one("SELECT count(*) FROM deliveries WHERE state = 'completed'") == "2"
        });
    }
}

/// A target that accepts pings and refuses events is held by what it does to events.
#[test]
fn a_ping_that_works_while_deliveries_fail_does_not_end_the_hold() {
    for (status, hold) in [(401, "auth"), (500, "breaker")] {
        let (rig, receiver) = (Rig::new(), Receiver::new());
        receiver.decide(move |request| {
            let is_ping = String::from_utf8_lossy(&request.body).contains("oncebox.ping");
            Reply::status(if is_ping { 200 } else { status })
        });
        let policy = json!({ "probe": { "every": "30s" }, "steps": ["5min"], "breaker_after": 2 });
        rig.subscribe_with("erp", &receiver, &json!({ "policy": policy }));
        until("it is probed", || state(&rig, "erp") == "healthy");
        rig.publish_types(&["order.created", "order.created"]);
        until("a hold begins", || holds(&rig) == hold);
        rig.settle();
        let resumed = || rig.items("/v1/audit-events?action=subscription.resume").len();
        in_steps(&rig, "a ping ends it", || resumed() == 1);
        rig.advance(secs(300));
        until("the deliveries put it back", || holds(&rig) == hold);
        rig.settle();
        // From now on a ping proves nothing.
        for _ in 0..3 {
            let pinged = || rig.one("SELECT probed_at FROM health_probes");
            let before = pinged();
            in_steps(&rig, "it is pinged", || pinged() != before);
        }
        assert_eq!((holds(&rig).as_str(), resumed()), (hold, 1));
    }
}

#[test]
fn a_public_path_proves_nothing_about_a_credential_and_one_that_refused_it_does() {
    a_path_ends_a_hold_only_after_it_has_failed_itself(401, "auth");
}

#[test]
fn a_path_that_works_while_deliveries_fail_does_not_end_the_hold_of_the_breaker() {
    a_path_ends_a_hold_only_after_it_has_failed_itself(500, "breaker");
}

fn a_path_ends_a_hold_only_after_it_has_failed_itself(status: u16, hold: &str) {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    let [is_public, works] = [true, false].map(|is| Arc::new(AtomicBool::new(is)));
    let seen = [&is_public, &works].map(Arc::clone);
    receiver.decide(move |request| {
        let [is_public, works] = seen.each_ref().map(|is| is.load(Ordering::SeqCst));
        let is_open = works || is_public && request.first_line.starts_with("GET");
        Reply::status(if is_open { 200 } else { status })
    });
    let probe = json!({ "every": "30s", "method": "GET", "path": "/me" });
    let policy = json!({ "probe": probe, "steps": ["12h"], "breaker_after": 2 });
    rig.subscribe_with("erp", &receiver, &json!({ "policy": policy }));
    let bearer = json!({ "kind": "bearer", "secret": "let-me-in" });
    rig.post("/v1/subscriptions/erp/credentials", &bearer).is(201);
    until("it is probed", || state(&rig, "erp") == "healthy");
    rig.publish_types(&["order.created", "order.created"]);
    until("a hold begins", || holds(&rig) == hold);
    rig.settle();
    let probed = || rig.one("SELECT probed_at FROM health_probes");
    let before = probed();
    in_steps(&rig, "the path is probed", || probed() != before);
    assert_eq!((state(&rig, "erp").as_str(), holds(&rig).as_str()), ("healthy", hold));
    is_public.store(false, Ordering::SeqCst);
    in_steps(&rig, "the path fails as well", || state(&rig, "erp") != "healthy");
    // Deliveries work as well, or the hold would come back at once, and stay.
    works.store(true, Ordering::SeqCst);
    in_steps(&rig, "the target works again", || holds(&rig).is_empty());
    let seen = receiver.seen();
    let last = seen.iter().rfind(|seen| seen.first_line.starts_with("GET")).unwrap();
    assert_eq!(last.field("authorization"), Some("Bearer let-me-in"));
}

#[test]
fn what_a_person_holds_is_not_probed() {
    let rig = Rig::new();
    let [held, other] = [(); 2].map(|()| Receiver::new());
    for (name, receiver) in [("held", &held), ("other", &other)] {
        rig.subscribe_with(name, receiver, &get("5min"));
    }
    until("both are probed", || {
        state(&rig, "held") == "healthy" && state(&rig, "other") == "healthy"
    });
    rig.post("/v1/subscriptions/held/pause", &json!({})).is(200);
    rig.advance(secs(300));
    until("the other one is probed", || other.count() == 2);
    assert_eq!(held.count(), 1);
    rig.post("/v1/subscriptions/held/resume", &json!({})).is(200);
    rig.advance(secs(30));
    until("it is probed again", || held.count() == 2);
}

#[test]
fn targets_of_a_tenant_that_hang_delay_no_probe_of_another_and_no_test() {
    let rig = Rig::new();
    let (hanging, receiver) = (Receiver::with(Reply::Hang), Receiver::new());
    let acme = rig.tenant("acme");
    for n in 0..6 {
        let wanted =
            merged(get("5min"), &json!({ "name": format!("erp-{n}"), "url": hanging.url() }));
        rig.post_as(&acme, "/v1/subscriptions", &wanted).is(201);
    }
    until("as many hang as a tenant may have", || hanging.count() == 2);
    rig.subscribe_with("erp", &receiver, &get("5min"));
    until("another tenant's target is probed", || receiver.count() == 1);
    rig.post("/v1/subscriptions/erp/test", &json!({})).is(200);
    hanging.always(Reply::status(200));
    hanging.release();
    until("the others are probed later", || hanging.count() == 6);
}

#[test]
fn a_setting_that_cannot_be_used_is_refused_with_the_reason() {
    let rig = Rig::new();
    let post = |url: &str, probe: Value| {
        let body = json!({ "name": "erp", "url": url, "policy": { "probe": probe } });
        rig.post("/v1/subscriptions", &body)
    };
    let url = "https://erp.example/in";
    for (probe, part) in [
        (json!({ "every": "10s" }), "30s to 30days"),
        (json!({ "every": "31days" }), "30s to 30days"),
        (json!({ "every": "often" }), "is not a span"),
        (json!({ "every": "5min", "method": "GET" }), "go together"),
        (json!({ "every": "5min", "path": "/health" }), "go together"),
        (json!({ "every": "5min", "method": "POST", "path": "/health" }), "GET, HEAD, OPTIONS"),
        (json!({ "every": "5min", "method": "GET", "path": "health" }), "begin with a slash"),
        (json!({ "every": "5min", "method": "GET", "path": "/a b" }), "probe.path"),
        (json!({ "every": "5min", "method": "GET", "path": "/{id}" }), "placeholder"),
        (json!({ "every": "5min", "method": "GET", "path": "/h?api_key=1" }), "carries a secret"),
    ] {
        post(url, probe).is(422).tells(part);
    }
    let templated = "https://erp.example/in/{aggregate_id}";
    post(templated, json!({ "every": "5min" })).is(422).tells("placeholders of the url");
    post(url, json!({ "path": "/health" })).is(422).tells("probe.every");
    let pull =
        json!({ "name": "erp", "target": "pull", "policy": { "probe": { "every": "5min" } } });
    rig.post("/v1/subscriptions", &pull).is(422).tells("probe are of requests");
    post(templated, json!({ "every": "5min", "method": "HEAD", "path": "/health" })).is(201);
}

#[test]
fn what_probes_found_is_known_after_a_restart() {
    let mut rig = Rig::new();
    let receiver = Receiver::with(Reply::status(503));
    rig.subscribe_with("erp", &receiver, &get("5min"));
    becomes_unhealthy(&rig, "erp");
    let before = health(&rig, "erp");
    rig.restart();
    assert_eq!((health(&rig, "erp"), warnings(&rig).len()), (before, 1));
    receiver.always(Reply::status(200));
    rig.advance(secs(300));
    until("it is probed on", || state(&rig, "erp") == "healthy" && warnings(&rig).is_empty());
}
