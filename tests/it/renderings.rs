//! What was sent is kept, and sent again. The seeds: `req_envelope`, "the request content", never null; "dead-lettered
//! messages keep the full canonical envelope".

use oncebox::base::id::sha256_hex;

use crate::rig::prelude::*;

const REQUEST: &str = "/v1/deliveries/dlv_1/request";
const NAME: &str = "Johanna-Marker";

fn templated(body: &str, header: &str) -> Value {
    let template =
        json!({ "body": body, "content_type": "text/plain", "headers": { "X-No": header } });
    json!({ "template": template })
}

fn change(rig: &Rig, body: &Value) {
    rig.patch("/v1/subscriptions/erp", body).is(200);
}

fn publish(rig: &Rig, payload: &Value) {
    rig.publish(&json!({ "event_type": "a", "payload": payload }));
}

fn bodies(receiver: &Receiver) -> Vec<String> {
    receiver.seen().iter().map(|one| String::from_utf8(one.body.clone()).unwrap()).collect()
}

fn field(shown: &Value, name: &str) -> Value {
    let fields = shown["headers"].as_array().unwrap();
    fields.iter().find(|field| field["name"] == name).map_or(Value::Null, |f| f["value"].clone())
}

fn renderings(rig: &Rig) -> String {
    rig.one("SELECT count(*) FROM renderings")
}

#[test]
fn the_request_is_shown_as_it_was_sent_whatever_the_subscription_says_later() {
    let more = merged(
        templated("<no>{{payload.no}}</no>", "{{payload.no}}"),
        &json!({ "headers": { "X-Shop": "north" }, "method": "PUT" }),
    );
    let (rig, receiver) = Rig::subscribed_with("erp", Receiver::new(), &more);
    publish(&rig, &json!({ "no": 7 }));
    rig.settle();
    rig.advance(secs(3600));
    let later = json!({
        "url": "http://127.0.0.1:18080/other", "headers": {}, "method": "POST", "template": null,
        "format": "standard_webhooks",
    });
    change(&rig, &later);
    let (shown, sent) = (rig.get(REQUEST), receiver.seen().remove(0));
    has(
        &shown,
        &json!({
            "attempt": 1, "method": "PUT", "url": receiver.url(), "body": "<no>7</no>", "format": "raw", "erased": false,
            "body_sha256": sha256_hex(&sent.body),
        }),
    );
    for name in
        words("content-type webhook-id webhook-timestamp x-idempotency-key traceparent x-no x-shop")
    {
        let value = shown["headers"].as_array().unwrap().iter().find_map(|field| {
            let is_it = field["name"].as_str().unwrap().eq_ignore_ascii_case(name);
            is_it.then(|| field["value"].as_str().unwrap())
        });
        assert_eq!(value, sent.field(name), "{name} of {shown}");
    }
    assert_eq!(field(&shown, "webhook-signature"), "v1,***");
    let curl = shown["curl"].as_str().unwrap();
    shows(curl, &["curl -X PUT 'http", "-H 'X-Shop: north'", "--data-raw '<no>7</no>'"]);
    let attempt = &rig.items("/v1/deliveries/dlv_1/attempts")[0];
    has(
        attempt,
        &json!({ "method": "PUT", "url": receiver.url(), "body_sha256": sha256_hex(&sent.body) }),
    );
}

#[test]
fn every_attempt_sends_the_same_bytes_until_it_is_rendered_anew() {
    let receiver = Receiver::with(Reply::status(500));
    let more =
        merged(templated("first {{payload}}", "1"), &json!({ "policy": { "max_attempts": 2 } }));
    let (rig, receiver) = Rig::subscribed_with("erp", receiver, &more);
    publish(&rig, &json!(1));
    rig.settle();
    change(
        &rig,
        &merged(templated("second {{payload}}", "2"), &json!({ "headers": { "X-Own": "now" } })),
    );
    rig.advance(secs(10));
    rig.sent(&receiver, 2);
    assert_eq!(rig.state(1), "dead_letter");
    let second = receiver.seen().remove(1);
    assert_eq!((second.field("x-no"), second.field("x-own")), (Some("1"), Some("now")));
    let retry = |body: &Value| rig.post("/v1/deliveries/dlv_1/retry", body);
    retry(&json!({})).is(200);
    rig.sent(&receiver, 3);
    // Whoever asked for it holds the delivery for a moment more.
    let anew = |count: usize| {
        retry(&json!({ "rendered_anew": true })).is(200);
        rig.passing("it is sent", Duration::from_millis(20), || receiver.count() == count);
        rig.settle();
    };
    anew(4);
    assert_eq!(bodies(&receiver), ["first 1", "first 1", "first 1", "second 1"]);
    // What waits begins a new run.
    let run =
        || rig.one("SELECT run_no || ' ' || counted_failures || ' ' || state FROM deliveries");
    assert_eq!(run(), "3 1 pending");
    retry(&json!({})).is(200);
    rig.sent(&receiver, 5);
    assert_eq!(run(), "3 2 dead_letter");
    receiver.always(Reply::status(200));
    change(&rig, &templated("third {{payload}}", "3"));
    anew(6);
    assert_eq!((run().as_str(), bodies(&receiver)[5].as_str()), ("4 0 completed", "third 1"));
    retry(&json!({ "anew": true })).is(400);
}

/// What each attempt sent: by the view, by the API, and what arrived.
fn each_has_its_own(rig: &Rig, receiver: &Receiver) {
    let arrived = bodies(receiver);
    let by_view = "SELECT CAST(req_envelope AS TEXT) FROM request ORDER BY req_id";
    assert_eq!(rig.lines(by_view), arrived);
    for (body, n) in arrived.iter().zip(1..) {
        let shown = rig.get(&format!("{REQUEST}?attempt={n}"));
        has(
            &shown,
            &json!({ "attempt": n, "body": body, "body_sha256": sha256_hex(body.as_bytes()) }),
        );
    }
}

#[test]
fn each_attempt_is_shown_with_the_bytes_that_it_sent() {
    let receiver = Receiver::with(Reply::status(500));
    let (rig, receiver) = Rig::subscribed_with("erp", receiver, &templated("first", "1"));
    publish(&rig, &json!({ "no": 1 }));
    rig.settle();
    let anew = |content: &Value| {
        change(&rig, content);
        let count = receiver.count();
        rig.post("/v1/deliveries/dlv_1/retry", &json!({ "rendered_anew": true })).is(200);
        rig.passing("it is sent", Duration::from_millis(20), || receiver.count() > count);
        rig.settle();
    };
    anew(&templated("second", "2"));
    rig.advance(secs(10));
    rig.sent(&receiver, 3);
    anew(&json!({ "template": null }));
    anew(&json!({ "format": "standard_webhooks" }));
    anew(&json!({ "format": "raw" }));
    anew(&templated("last", "3"));
    assert_eq!(
        bodies(&receiver).iter().map(|body| body.contains("data")).collect::<Vec<_>>(),
        [false, false, false, false, true, false, false]
    );
    each_has_its_own(&rig, &receiver);
    // What was fixed and never sent is no attempt's.
    rig.get(&format!("{REQUEST}?attempt=1"));
    rig.call("GET", &format!("{REQUEST}?attempt=8"), b"").is(404);
    rig.call("GET", &format!("{REQUEST}?attempt=0"), b"").is(400);
    // It goes with the event.
    receiver.always(Reply::status(200));
    rig.post("/v1/deliveries/dlv_1/retry", &json!({})).is(200);
    rig.sent(&receiver, 8);
    each_has_its_own(&rig, &receiver);
    rig.advance(secs(25 * 3600));
    rig.post("/v1/archive/runs", &json!({ "older_than": "24h" })).is(200);
    rig.becomes("SELECT count(*) FROM past_renderings", "0");
    for (body, n) in bodies(&receiver).iter().zip(1..) {
        assert_eq!(rig.get(&format!("{REQUEST}?attempt={n}"))["body"], json!(body), "{n}");
    }
}

#[test]
fn a_delivery_is_rendered_anew_sixteen_times_at_most() {
    let receiver = Receiver::with(Reply::status(500));
    let (rig, receiver) = Rig::subscribed_with("erp", receiver, &templated("0", "0"));
    publish(&rig, &json!(1));
    rig.settle();
    let anew = || rig.post("/v1/deliveries/dlv_1/retry", &json!({ "rendered_anew": true }));
    for n in 1..=16 {
        change(&rig, &templated(&n.to_string(), "x"));
        // Asked for twice, it is made once.
        anew().is(200);
        rig.passing("it is sent", Duration::from_millis(20), || receiver.count() > n);
        rig.settle();
    }
    anew().is(409).tells("rendered anew 16 times");
    each_has_its_own(&rig, &receiver);
}

#[test]
fn a_payload_that_is_sent_as_it_is_costs_no_row_and_stays_as_it_is() {
    let (rig, receiver) = Rig::subscribed_to("erp", Receiver::with(Reply::status(500)));
    publish(&rig, &json!({ "no": 1 }));
    rig.settle();
    assert_eq!(renderings(&rig), "0");
    change(&rig, &json!({ "format": "standard_webhooks" }));
    rig.advance(secs(10));
    rig.sent(&receiver, 2);
    assert_eq!(bodies(&receiver), [r#"{"no":1}"#; 2]);
    // An envelope is kept as it was sent: the name of the box is in some.
    publish(&rig, &json!({ "no": 2 }));
    rig.sent(&receiver, 3);
    assert_eq!(
        (renderings(&rig), rig.one("SELECT count(body) FROM renderings")),
        ("1".into(), "1".into())
    );
    change(&rig, &json!({ "format": "raw" }));
    rig.post("/v1/deliveries/dlv_2/retry", &json!({})).is(200);
    rig.sent(&receiver, 4);
    let seen = bodies(&receiver);
    shows(&seen[2], &[r#""data":{"no":2}"#]);
    assert_eq!(seen[2], seen[3]);
    let shown = rig.get("/v1/deliveries/dlv_2/request");
    assert_eq!((&shown["body"], &shown["attempt"]), (&json!(seen[3]), &json!(2)));
}

#[test]
fn the_url_of_an_attempt_is_the_one_of_now_so_that_a_wrong_one_can_be_mended() {
    let (wrong, right) = (Receiver::with(Reply::status(404)), Receiver::new());
    let (rig, wrong) = Rig::subscribed_with("erp", wrong, &templated("{{payload}}", "1"));
    publish(&rig, &json!(1));
    rig.settle();
    change(&rig, &merged(json!({ "url": right.url() }), &templated("other", "2")));
    rig.post("/v1/deliveries/dlv_1/retry", &json!({})).is(200);
    rig.sent(&right, 1);
    assert_eq!((bodies(&wrong), bodies(&right)), (vec!["1".to_owned()], vec!["1".to_owned()]));
    let attempts = rig.items("/v1/deliveries/dlv_1/attempts");
    assert_eq!(
        (&attempts[0]["url"], &attempts[1]["url"]),
        (&json!(wrong.url()), &json!(right.url()))
    );
    assert_eq!(rig.get(REQUEST)["url"], right.url());
}

#[test]
fn what_is_sent_is_in_the_file_before_it_is_sent() {
    let receiver = Receiver::with(Reply::Hang);
    let (mut rig, receiver) = Rig::subscribed_with("erp", receiver, &templated("first", "1"));
    publish(&rig, &json!(1));
    until("it is under way", || receiver.count() == 1);
    assert_eq!(renderings(&rig), "1");
    change(&rig, &templated("second", "2"));
    let anew = json!({ "rendered_anew": true });
    rig.post("/v1/deliveries/dlv_1/retry", &anew).is(409).tells("an attempt is in flight");
    // Its outcome is lost, as with a power cut.
    rig.write("UPDATE boots SET stopped_at = NULL");
    receiver.release_with(500);
    rig.settle();
    rig.restart();
    receiver.always(Reply::status(200));
    rig.advance(secs(10));
    rig.sent(&receiver, 2);
    assert_eq!(bodies(&receiver), ["first", "first"]);
}

#[test]
fn a_rendering_of_sealed_fields_is_sealed_and_is_made_anew_after_an_erasure() {
    let (rig, receiver) = Rig::subscribed_with(
        "erp",
        Receiver::with(Reply::status(500)),
        &templated("To {{payload.customer.name|upper}}.", "{{payload.customer.name}}"),
    );
    let policy = json!({
        "rules": [{ "path": "$.customer.name", "action": "seal" }], "subject": "$.customer.id",
    });
    rig.patch("/v1/tenants/default", &json!({ "pii": policy })).is(200);
    publish(&rig, &json!({ "customer": { "id": "c-1", "name": NAME } }));
    rig.settle();
    change(&rig, &templated("other", "other"));
    rig.advance(secs(10));
    rig.sent(&receiver, 2);
    let upper = format!("To {}.", NAME.to_uppercase());
    assert_eq!(bodies(&receiver), [upper.clone(), upper.clone()]);
    assert_eq!(receiver.seen()[1].field("x-no"), Some(NAME));
    let dump = rig.dump();
    assert!(!dump.contains(NAME) && !dump.contains(&upper), "it is in the file");
    let shown = rig.get(REQUEST);
    has(&shown, &json!({ "body": "[sealed]", "sealed_fields": 1, "erased": false }));
    assert_eq!(field(&shown, "X-No"), "***");
    // Of what was opened not even a hash is kept.
    let attempt = &rig.items("/v1/deliveries/dlv_1/attempts")[0];
    has(attempt, &json!({ "method": "POST", "body_sha256": null }));
    rig.post("/v1/subjects/erase", &json!({ "subject": "c-1" })).is(200);
    assert_eq!(rig.get(REQUEST)["erased"], true);
    rig.post("/v1/deliveries/dlv_1/retry", &json!({})).is(200);
    rig.sent(&receiver, 3);
    assert_eq!(bodies(&receiver)[2], "other");
}

#[test]
fn a_curl_command_sends_no_file_whose_name_is_in_the_body() {
    let more = templated("@/etc/passwd", "it's");
    let (rig, _receiver) = Rig::subscribed_with("erp", Receiver::new(), &more);
    publish(&rig, &json!(1));
    rig.settle();
    let shown = rig.get(REQUEST);
    let curl = shown["curl"].as_str().unwrap();
    shows(curl, &["--data-raw '@/etc/passwd'", r"-H 'X-No: it'\''s'"]);
}
