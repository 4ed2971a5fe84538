//! A test of a subscription goes the way of a delivery, tells each step, and moves nothing.

use oncebox::http::client::{Answer, Call, CallError, Sender};

use crate::it::tls::https_server;
use crate::rig::prelude::*;

/// The answer of a test.
#[track_caller]
fn tested(rig: &Rig, name: &str) -> Value {
    rig.call("POST", &format!("/v1/subscriptions/{name}/test"), b"").is(200).json()
}

/// The step that failed, with its detail.
fn failed(test: &Value) -> (String, String) {
    assert_eq!(test["ok"], false, "{test}");
    let steps = test["steps"].as_array().unwrap();
    let failed: Vec<&Value> = steps.iter().filter(|step| step["ok"] == false).collect();
    assert_eq!(failed.len(), 1, "{test}");
    assert_eq!(failed[0], steps.last().unwrap(), "nothing follows the step that failed: {test}");
    let word = |field: &str| failed[0][field].as_str().unwrap().to_owned();
    (word("step"), word("detail"))
}

fn advice(test: &Value) -> &str {
    test["advice"].as_str().unwrap()
}

fn subscribe_to(rig: &Rig, url: &str) {
    rig.post("/v1/subscriptions", &json!({ "name": "erp", "url": url })).is(201);
}

fn steps(test: &Value) -> Vec<&str> {
    test["steps"].as_array().unwrap().iter().map(|step| step["step"].as_str().unwrap()).collect()
}

#[test]
fn a_test_that_works_sends_a_signed_ping_and_leaves_no_delivery() {
    let rig = Rig::new();
    let receiver = Receiver::scripted([Reply::Answer(200, Vec::new(), b"booked".to_vec())]);
    let secret = rig.subscribe("erp", &receiver);
    let test = tested(&rig, "erp");
    assert_eq!(test["ok"], true, "{test}");
    let http = ["build", "credentials", "lookup", "policy", "connect", "request", "answer"];
    assert_eq!(steps(&test), http);
    has(&test, &json!({ "status": 200, "class": "success", "excerpt": "booked" }));
    let seen = receiver.seen();
    assert_eq!(seen.len(), 1);
    let body: Value = serde_json::from_slice(&seen[0].body).unwrap();
    assert_eq!((&body["type"], &body["subscription"]), (&json!("oncebox.ping"), &json!("erp")));
    assert_eq!(seen[0].field("webhook-id"), test["webhook_id"].as_str());
    assert!(seen[0].is_signed(&secret));
    assert_eq!(rig.one("SELECT count(*) FROM deliveries"), "0");
    assert_eq!(rig.one("SELECT count(*) FROM outbox"), "0");
    rig.says("SELECT failure_count || coalesce(last_success_at, '-') FROM subscriptions", "0-");
    let audited = rig.get("/v1/audit-events?action=subscription.test");
    assert_eq!(audited["items"][0]["changes"]["class"]["after"], "success", "{audited}");
}

#[test]
fn a_past_event_goes_out_as_its_delivery_did() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    subscribe_to(&rig, &format!("{}/{{aggregate_id}}", receiver.url()));
    let body = json!({ "event_type": "invoice.paid", "aggregate_type": "invoice", "aggregate_id": "4711",
                       "payload": { "total": "99.00" } });
    let event = rig.publish(&body);
    rig.settle();
    let id = event["id"].as_str().unwrap();
    let test = rig.post("/v1/subscriptions/erp/test", &json!({ "event_id": id })).is(200).json();
    assert_eq!((&test["ok"], &test["event_type"]), (&json!(true), &json!("invoice.paid")));
    let seen = receiver.seen();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[0].body, seen[1].body);
    assert_eq!(seen[0].first_line, "POST /hook/4711 HTTP/1.1");
    assert_eq!(seen[0].first_line, seen[1].first_line);
    for field in ["webhook-id", "x-idempotency-key", "content-type"] {
        assert_eq!(seen[0].field(field), seen[1].field(field));
    }
    assert_eq!(rig.one("SELECT count(*) FROM attempts"), "1");
    let unknown = json!({ "event_id": "019c1447-5800-7000-8000-000000000001" });
    rig.post("/v1/subscriptions/erp/test", &unknown).is(404);
}

#[test]
fn a_webhook_event_can_be_the_past_event() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    let scheme = json!({ "kind": "generic", "check": { "token": { "header": "X-Token" } },
                         "event_type": { "constant": "order.created" } });
    rig.provider("shop", &scheme, "0123456789abcdef0123456789abcdef");
    rig.subscribe_with("erp", &receiver, &json!({ "source": "provider:shop" }));
    let fields = [("X-Token", "0123456789abcdef0123456789abcdef")];
    rig.send("POST", "/in/shop", &fields, br#"{"id":"1"}"#);
    rig.settle();
    let id = rig.id("/v1/webhook-events");
    let test = rig.post("/v1/subscriptions/erp/test", &json!({ "event_id": id })).is(200).json();
    assert_eq!(test["ok"], true, "{test}");
    let seen = receiver.seen();
    assert_eq!((seen.len(), &seen[0].body), (2, &seen[1].body));
}

#[test]
fn each_failure_names_its_step_and_what_to_change() {
    let rig = Rig::new();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    subscribe_to(&rig, &format!("http://{free}/hook"));
    let test = tested(&rig, "erp");
    let (step, detail) = failed(&test);
    assert!(step == "connect" && detail.contains("refused"), "{test}");
    assert!(advice(&test).starts_with("Nobody listens there"), "{test}");
    assert_eq!((&test["status"], &test["class"]), (&Value::Null, &json!("transient")));

    rig.patch("/v1/subscriptions/erp", &json!({ "url": "http://nowhere.invalid/hook" })).is(200);
    let test = tested(&rig, "erp");
    assert_eq!(failed(&test).0, "lookup", "{test}");
    assert!(advice(&test).contains("host name"), "{test}");
    assert_eq!(steps(&test), ["build", "credentials", "lookup"]);

    let receiver = Receiver::new();
    rig.patch("/v1/subscriptions/erp", &json!({ "url": receiver.url() })).is(200);
    for (status, step, word) in [
        (401, "auth", "credential set"),
        (302, "validation", "final URL"),
        (404, "transient", "path"),
        (422, "validation", "its answer says why"),
        (410, "gone", "new URL"),
        (429, "rate_limited", "policy.rate"),
        (500, "transient", "log"),
    ] {
        receiver.always(Reply::status(status));
        let test = tested(&rig, "erp");
        assert_eq!(failed(&test), ("answer".to_owned(), status.to_string()), "{test}");
        assert_eq!(test["class"], step);
        assert!(advice(&test).contains(word), "{test}");
    }
    receiver.always(Reply::CutRead);
    let test = tested(&rig, "erp");
    assert_eq!(failed(&test).0, "answer", "{test}");
    assert!(advice(&test).contains("without an HTTP answer"), "{test}");
    assert_eq!(rig.one("SELECT state FROM subscriptions"), "ACTIVE");
    assert_eq!(rig.one("SELECT count(*) FROM holds"), "0");
}

#[test]
fn an_address_that_may_not_be_called_is_not_called() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    subscribe_to(&rig, &format!("http://localhost:{}/hook", receiver.address.port()));
    let mut rig = rig;
    rig.restart_with(|settings| settings.delivery.allow = Vec::new());
    let test = tested(&rig, "erp");
    let (step, detail) = failed(&test);
    assert!(step == "policy" && detail.contains("is a loopback address"), "{test}");
    assert!(advice(&test).contains("delivery.allow"), "{test}");
    assert_eq!(receiver.count(), 0);
}

#[test]
fn a_target_that_hangs_is_left_after_the_subscriptions_own_time() {
    let (rig, receiver) = (Rig::new(), Receiver::scripted([Reply::Hang]));
    rig.subscribe_with("erp", &receiver, &json!({ "policy": { "timeout": "200ms" } }));
    let test = tested(&rig, "erp");
    assert_eq!(failed(&test).0, "answer", "{test}");
    assert!(advice(&test).contains("policy.timeout"), "{test}");
    assert_eq!(test["reason"], "no answer in time");
}

#[test]
fn tests_that_hang_keep_no_handler_from_its_work() {
    let (rig, receiver) = Rig::subscribed_to("erp", Receiver::with(Reply::Hang));
    let (address, other) = (rig.address(), rig.tenant("other"));
    let body = json!({ "name": "erp", "url": receiver.url() });
    rig.post_as(&other, "/v1/subscriptions", &body).is(201);
    let tokens = [&rig.token, &other].map(|token| format!("Bearer {token}"));
    thread::scope(|scope| {
        for n in 0..8 {
            let token = &tokens[n % 2];
            scope.spawn(move || assert_eq!(test_status(address, token), 200));
        }
        until("two run", || receiver.count() == 2);
        rig.publish_type("a");
        rig.get("/v1/subscriptions/erp");
        receiver.release();
    });
}

fn test_status(address: SocketAddr, token: &str) -> u16 {
    let fields = [("Authorization", token)];
    let path = "/v1/subscriptions/erp/test";
    http::send(address, "POST", path, &fields, b"").unwrap().status
}

#[test]
fn tls_tells_its_version_and_the_end_of_the_certificate() {
    let home = tempfile::tempdir().unwrap();
    let ca_file = home.path().join("ca.pem");
    let address = https_server("127.0.0.1", &ca_file);
    let mut rig = Rig::new();
    subscribe_to(&rig, &format!("https://{address}/hook"));
    let test = tested(&rig, "erp");
    let (step, detail) = failed(&test);
    assert!(step == "tls" && detail.contains("UnknownIssuer"), "{test}");
    assert!(detail.contains("certificate valid until 4096-01-01"), "{test}");
    assert!(advice(&test).contains("delivery.ca_file"), "{test}");
    rig.restart_with(|settings| settings.delivery.ca_file = Some(ca_file));
    let test = tested(&rig, "erp");
    assert_eq!(test["ok"], true, "{test}");
    let tls = test["steps"].as_array().unwrap().iter().find(|step| step["step"] == "tls").unwrap();
    assert_eq!(tls["detail"], "TLSv1.3, certificate valid until 4096-01-01");

    let other = https_server("erp.example", &home.path().join("other.pem"));
    rig.restart_with(|settings| {
        settings.delivery.ca_file = Some(home.path().join("other.pem"));
    });
    rig.patch("/v1/subscriptions/erp", &json!({ "url": format!("https://{other}/hook") })).is(200);
    assert!(advice(&tested(&rig, "erp")).contains("for another host"));
    let plain = Receiver::new();
    let url = plain.url().replace("http:", "https:");
    rig.patch("/v1/subscriptions/erp", &json!({ "url": url })).is(200);
    let test = tested(&rig, "erp");
    assert_eq!(failed(&test).0, "tls", "{test}");
}

#[test]
fn a_test_that_works_ends_the_hold_for_a_refused_credential_and_no_other() {
    let (rig, _receiver) =
        Rig::subscribed_to("erp", Receiver::scripted([Reply::status(401), Reply::status(401)]));
    rig.publish_type("a");
    until("it is held", || rig.one("SELECT group_concat(reason) FROM holds") == "auth");
    let test = tested(&rig, "erp");
    assert_eq!((test["ok"].clone(), test["ended_holds"].clone()), (json!(false), json!([])));
    rig.post("/v1/subscriptions/erp/pause", &json!({})).is(200);
    let test = tested(&rig, "erp");
    assert_eq!((test["ok"].clone(), test["ended_holds"].clone()), (json!(true), json!(["auth"])));
    assert_eq!(rig.one("SELECT group_concat(reason) FROM holds"), "paused");
    let open = rig.get("/v1/escalations");
    assert_eq!(open["items"], json!([]), "{open}");
    rig.post("/v1/subscriptions/erp/resume", &json!({})).is(200);
    rig.advance(secs(10));
    until("it is delivered", || rig.one("SELECT state FROM deliveries") == "completed");
}

#[test]
fn what_is_asked_for_by_consumers_is_not_tested() {
    let rig = Rig::new();
    rig.post("/v1/subscriptions", &json!({ "name": "erp", "target": "pull" })).is(201);
    let refused = rig.call("POST", "/v1/subscriptions/erp/test", b"").is(409);
    assert!(refused.json()["detail"].as_str().unwrap().contains("oncebox consume"));
    rig.call("POST", "/v1/subscriptions/nobody/test", b"").is(404);
}

#[test]
fn a_tenant_whose_targets_hang_delays_no_other_and_is_told_when_too_many_wait() {
    let (rig, hanging, receiver) = (Rig::new(), Receiver::new(), Receiver::new());
    hanging.always(Reply::Hang);
    let subscribe = |token: &str, url: &str| {
        let body = json!({ "name": "erp", "url": url, "policy": { "timeout": "30s" } });
        rig.post_as(token, "/v1/subscriptions", &body).is(201);
    };
    let test = |token: &str| rig.call_as(token, "POST", "/v1/subscriptions/erp/test", b"");
    let (slow, quick) = (rig.tenant("slow"), rig.tenant("quick"));
    subscribe(&slow, &hanging.url());
    subscribe(&quick, &receiver.url());
    thread::scope(|scope| {
        let mut all = vec![scope.spawn(|| test(&slow))];
        until("one runs", || hanging.count() == 1);
        all.extend((0..14).map(|_| scope.spawn(|| test(&slow))));
        until("those beyond are answered", || {
            all.iter().filter(|one| one.is_finished()).count() == 2
        });
        assert_eq!(test(&quick).is(200).json()["ok"], true);
        assert_eq!(hanging.count(), 1, "one of a tenant at a time");
        let refused = test(&slow).is(503);
        assert!(refused.detail().contains("of this tenant"), "{refused:?}");
        assert!(refused.field("retry-after").is_some(), "{refused:?}");
        hanging.release();
        let answers: Vec<u16> = all.into_iter().map(|one| one.join().unwrap().status).collect();
        assert_eq!(answers.iter().filter(|status| **status == 200).count(), 13, "{answers:?}");
        assert_eq!(answers.iter().filter(|status| **status == 503).count(), 2, "{answers:?}");
    });
    assert_eq!(test(&slow).is(200).json()["ok"], true);
}

/// Notes how much time each request has, and answers 200.
#[derive(Default)]
struct Timeouts(Mutex<Vec<Duration>>);

impl Sender for Timeouts {
    fn send(&self, call: &Call<'_>) -> Result<Answer, CallError> {
        self.0.lock().unwrap().push(call.timeout);
        Ok(Answer {
            status: 200,
            retry_after: None,
            custom_data: None,
            body: Vec::new(),
            oddity: None,
            link: None,
            is_broken_off: false,
        })
    }

    fn is_on_site(&self, _host: &str) -> Option<bool> {
        None
    }
}

#[test]
fn a_test_takes_half_a_minute_at_most_however_long_the_target_may_take() {
    let (mut rig, line) = (Rig::new(), Arc::new(Timeouts::default()));
    rig.restart_on(Arc::<Timeouts>::clone(&line));
    for (name, timeout) in [("erp", "10min"), ("quick", "2s")] {
        let body = json!({ "name": name, "url": "http://127.0.0.1/hook", "policy": { "timeout": timeout } });
        rig.post("/v1/subscriptions", &body).is(201);
        assert_eq!(tested(&rig, name)["ok"], true);
    }
    assert_eq!(*line.0.lock().unwrap(), [secs(30), secs(2)]);
}
