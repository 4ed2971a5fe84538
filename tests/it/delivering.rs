//! From a published event to the request that reaches a subscriber.

use data_encoding::BASE64_NOPAD;

use crate::rig::prelude::*;

/// The signature Standard Webhooks 1.0.0 asks for, worked out without the product's code.
pub(crate) fn expected(secret: &str, id: &str, seconds: i64, body: &[u8]) -> String {
    let key = secret.strip_prefix("whsec_").unwrap().trim_end_matches('=');
    let key = hmac::Key::new(hmac::HMAC_SHA256, &BASE64_NOPAD.decode(key.as_bytes()).unwrap());
    let mut signed = format!("{id}.{seconds}.").into_bytes();
    signed.extend_from_slice(body);
    format!("v1,{}", BASE64.encode(hmac::sign(&key, &signed).as_ref()))
}

#[test]
fn a_published_event_reaches_its_subscriber_once_signed_and_with_every_header() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    let more = json!({ "headers": { "X-Shop": "north" }, "method": "PUT" });
    let secret = rig.subscribe_with("erp", &receiver, &more);
    let event =
        json!({ "event_type": "order.paid", "idempotency_key": "o-7", "payload": {"id": 7} });
    let line = rig.publish(&event);
    rig.settle();

    let seen = receiver.seen();
    assert_eq!(seen.len(), 1, "{seen:?}");
    let (request, id) = (&seen[0], line["webhook_id"].as_str().unwrap());
    assert_eq!(request.first_line, "PUT /hook HTTP/1.1");
    assert_eq!(request.body, br#"{"id":7}"#);
    let trace = line["id"].as_str().unwrap().replace('-', "");
    let span = rig.one("SELECT span FROM attempts");
    for (name, value) in [
        ("content-type", "application/json"),
        ("webhook-id", id),
        ("webhook-timestamp", &START.secs().to_string()),
        ("webhook-signature", &expected(&secret, id, START.secs(), &request.body)),
        ("x-idempotency-key", "o-7"),
        ("traceparent", &format!("00-{trace}-{span}-01")),
        ("user-agent", concat!("oncebox/", env!("CARGO_PKG_VERSION"))),
        ("x-shop", "north"),
        ("content-length", "8"),
        ("host", &receiver.address.to_string()),
    ] {
        assert_eq!(request.field(name), Some(value), "{name}");
    }
    insta::assert_snapshot!(rig.dump(), @r"
    order.paid completed
      erp completed
        1 +0s success 200
    ");
}

#[test]
fn every_attempt_has_the_same_id_and_a_signature_of_its_own_time() {
    let (rig, receiver) = (Rig::new(), Receiver::scripted([Reply::status(500)]));
    let secret = rig.subscribe("erp", &receiver);
    rig.deliver("a");
    rig.pass(secs(5));
    let seen = receiver.seen();
    let id = seen[0].field("webhook-id").unwrap();
    for (request, seconds) in seen.iter().zip([START.secs(), START.secs() + 5]) {
        assert_eq!(request.field("webhook-id"), Some(id));
        let signature = expected(&secret, id, seconds, &request.body);
        assert_eq!(request.field("webhook-signature"), Some(signature.as_str()));
    }
    assert_ne!(seen[0].field("traceparent"), seen[1].field("traceparent"));
}

#[test]
fn the_trace_of_the_publisher_is_carried_on() {
    let (rig, receiver) = Rig::subscribed("erp");
    let bearer = format!("Bearer {}", rig.token);
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let fields = [("Authorization", bearer.as_str()), ("traceparent", trace)];
    rig.send("POST", "/v1/events", &fields, br#"{"event_type":"a","payload":1}"#).is(201);
    rig.settle();
    let seen = receiver.seen();
    assert!(
        seen[0].field("traceparent").unwrap().starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-")
    );
}

#[test]
fn what_vendors_say_of_a_trace_goes_with_it_and_not_without_it() {
    let (rig, receiver) = Rig::subscribed("erp");
    let bearer = format!("Bearer {}", rig.token);
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let state = "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE";
    for with in [
        &[("traceparent", trace), ("tracestate", state)][..],
        &[("tracestate", state)],
        &[("traceparent", trace), ("tracestate", "größe=1")],
    ] {
        let fields = [&[("Authorization", bearer.as_str())], with].concat();
        rig.send("POST", "/v1/events", &fields, br#"{"event_type":"a","payload":1}"#).is(201);
        rig.settle();
    }
    let sent: Vec<_> =
        receiver.seen().iter().map(|seen| seen.field("tracestate").map(str::to_owned)).collect();
    assert_eq!(sent, [Some(state.to_owned()), None, None]);
}

#[test]
fn a_secret_the_receiver_has_already_is_used() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    rig.subscribe_with("erp", &receiver, &json!({ "secret": secret }));
    let line = rig.publish_type("a");
    rig.settle();
    let seen = receiver.seen();
    let signature = expected(secret, line["webhook_id"].as_str().unwrap(), START.secs(), b"{}");
    assert_eq!(seen[0].field("webhook-signature"), Some(signature.as_str()));
}

#[test]
fn payloads_arrive_to_the_byte() {
    let (rig, receiver) = Rig::subscribed("erp");
    let odd = " {\t\"b\" : 1e2,\r\n \"a\": 1.0 , \"a\": \"\\u00e4\" }";
    let body = format!(r#"{{"event_type":"odd","payload": {odd} }}"#);
    rig.call("POST", "/v1/events", body.as_bytes()).is(201);
    rig.settle();
    assert_eq!(String::from_utf8_lossy(&receiver.seen()[0].body), odd.trim());

    let no_text: Vec<u8> = (0..=255).collect();
    let beyond_inline = vec![0xfe; 20_000];
    let megabyte: Vec<u8> = (0..1_u32 << 20).map(|n| (n % 251) as u8).collect();
    for (n, bytes) in [&b""[..], &no_text, &beyond_inline, &megabyte].into_iter().enumerate() {
        let payload = BASE64.encode(bytes);
        let event =
            json!({ "event_type": "bytes", "payload_base64": payload, "content_type": "x/y" });
        rig.publish(&event);
        rig.settle();
        let seen = receiver.seen();
        assert!(seen[n + 1].body == bytes, "{} bytes", bytes.len());
        assert_eq!(seen[n + 1].field("content-type"), Some("x/y"));
    }
}

#[test]
fn an_event_goes_to_everyone_whose_patterns_match_and_to_nobody_else() {
    let rig = Rig::new();
    let receivers = ["all", "invoices", "paid", "exact", "two"].map(|name| (name, Receiver::new()));
    let patterns = [
        json!(["*"]),
        json!(["invoice.*"]),
        json!(["*.paid"]),
        json!(["invoice.sent"]),
        json!(["order.paid", "invoice.sent"]),
    ];
    for ((name, receiver), patterns) in receivers.iter().zip(patterns) {
        rig.subscribe_with(name, receiver, &json!({ "event_types": patterns }));
    }
    rig.publish_types(&["invoice.paid", "invoice.sent", "order.paid", "order"]);
    rig.settle();
    let counts = receivers.each_ref().map(|(name, receiver)| (*name, receiver.count()));
    assert_eq!(counts, [("all", 4), ("invoices", 2), ("paid", 2), ("exact", 1), ("two", 2)]);
}

#[test]
fn a_named_target_gets_the_event_past_its_patterns_and_alone() {
    let rig = Rig::new();
    let (chosen, other) = (Receiver::new(), Receiver::new());
    rig.subscribe_with("chosen", &chosen, &json!({ "event_types": ["nothing.at.all"] }));
    rig.subscribe("other", &other);
    rig.publish(&json!({ "event_type": "a", "payload": 1, "target": "chosen" }));
    rig.settle();
    assert_eq!((chosen.count(), other.count()), (1, 0));
}

#[test]
fn an_event_for_a_subscription_that_does_not_exist_is_quarantined_with_the_reason() {
    let (rig, receiver) = Rig::subscribed("erp");
    let line = rig.publish(&json!({ "event_type": "a", "payload": 1, "target": "erq" }));
    assert_eq!(line["status"], "quarantined");
    let shown = rig.get(&format!("/v1/events/{}", line["id"].as_str().unwrap()));
    assert_eq!(
        shown["last_error"],
        "there is no subscription named \"erq\" that takes events of the outbox"
    );
    rig.has_sent(&receiver, 0);
}

#[test]
fn thirty_endpoints_that_hang_cost_a_healthy_one_nothing() {
    let rig = Rig::with(|settings| settings.delivery.deliverers = 64);
    let (up, down) = (Receiver::new(), Receiver::new());
    down.always(Reply::Hang);
    for n in 0..30 {
        rig.subscribe(&format!("down-{n}"), &down);
    }
    rig.subscribe("up", &up);
    rig.publish_types(&["a"; 20]);
    until("the healthy one has all", || up.count() == 20);
    assert_eq!(
        rig.one("SELECT count(*) FROM attempts WHERE class <> 'success'"),
        "0",
        "nobody waited for a timeout"
    );
    down.release();
    rig.settle();
}

#[test]
fn a_subscription_that_is_down_costs_the_others_nothing() {
    let rig = Rig::new();
    let (up, down) = (Receiver::new(), Receiver::new());
    down.always(Reply::Hang);
    rig.subscribe("up", &up);
    // It hangs until it is told otherwise, however long the others take.
    rig.subscribe_with("down", &down, &json!({ "policy": { "timeout": "10min" } }));
    rig.publish_types(&["a"; 20]);
    until("the healthy one has all", || up.count() == 20);
    rig.becomes("SELECT count(*) FROM outbox WHERE status IN ('processing')", "20");
    assert!(down.count() <= 8, "no more than its cap are under way");
    down.release();
    // On a slow machine its first request was cut short, and is sent again later.
    let completed = "SELECT count(*) FROM outbox WHERE status = 'completed'";
    rig.passing("all are completed", secs(60), || rig.one(completed) == "20");
}

#[test]
fn an_events_status_is_derived_from_all_its_deliveries() {
    let rig = Rig::new();
    let (good, late, bad) = (Receiver::new(), Receiver::new(), Receiver::new());
    late.always(Reply::status(500));
    bad.always(Reply::status(400));
    rig.subscribe("bad", &bad);
    rig.subscribe("good", &good);
    rig.subscribe_with("late", &late, &json!({ "policy": { "max_attempts": 2 } }));
    rig.deliver("a");
    insta::assert_snapshot!(rig.dump(), @r"
    a failed
      bad dead_letter: the target answered 400
        1 +0s validation counted 400
      good completed
        1 +0s success 200
      late pending due +5s
        1 +0s transient counted 500
    ");
    rig.pass(secs(5));
    insta::assert_snapshot!(rig.dump(), @r"
    a dead_letter
      bad dead_letter: the target answered 400
        1 +0s validation counted 400
      good completed
        1 +0s success 200
      late dead_letter: given up after 2 attempts; the last: the target answered 500
        1 +0s transient counted 500
        2 +5s transient counted 500
    ");
}

#[test]
fn the_url_is_filled_with_the_events_values_and_none_of_them_leads_elsewhere() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    let url = format!("http://{}/o/{{aggregate_id}}?t={{event_type}}", receiver.address);
    rig.subscribe_with("erp", &receiver, &json!({ "url": url }));
    for aggregate in ["7", "a/../b ?&#\u{e9}", ".."] {
        rig.publish(&json!({ "event_type": "a", "payload": 1, "aggregate_id": aggregate }));
    }
    rig.deliver("none");
    let lines: Vec<String> =
        receiver.seen().into_iter().map(|request| request.first_line).collect();
    let want = ["POST /o/7?t=a HTTP/1.1", "POST /o/a%2F..%2Fb%20%3F%26%23%C3%A9?t=a HTTP/1.1"];
    for line in want {
        assert!(lines.iter().any(|have| have == line), "{line}: {lines:?}");
    }
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!(rig.one("SELECT count(*) FROM deliveries WHERE last_class = 'poison'"), "2");
}

#[test]
fn a_changed_subscription_is_called_as_changed_at_the_next_attempt() {
    let rig = Rig::new();
    let (old, new) = (Receiver::new(), Receiver::new());
    old.always(Reply::status(500));
    rig.subscribe("erp", &old);
    rig.deliver("a");
    let change = json!({ "url": new.url(), "method": "PATCH", "headers": { "X-New": "1" } });
    rig.patch("/v1/subscriptions/erp", &change).is(200);
    rig.pass(secs(5));
    assert_eq!((old.count(), new.count()), (1, 1));
    let seen = new.seen();
    assert_eq!(seen[0].first_line, "PATCH /hook HTTP/1.1");
    assert_eq!(seen[0].field("x-new"), Some("1"));
}

#[test]
fn a_subscription_cannot_set_the_headers_that_are_ours() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    for (name, value) in
        [("Webhook-Signature", "v1,x"), ("host", "x"), ("bad name", "x"), ("X-A", "a\r\nX-B: b")]
    {
        let body = json!({ "name": "erp", "url": receiver.url(), "headers": { name: value } });
        rig.post("/v1/subscriptions", &body).is(422);
    }
}

#[test]
fn what_a_target_answers_is_kept_as_an_excerpt_of_2048_characters() {
    let rig = Rig::new();
    let mut answer = "\u{e4}".repeat(3000).into_bytes();
    answer.push(0xff);
    let receiver = Receiver::scripted([Reply::Answer(500, Vec::new(), answer)]);
    rig.subscribe("erp", &receiver);
    rig.deliver("a");
    assert_eq!(rig.one("SELECT excerpt FROM attempts"), "\u{e4}".repeat(2048));
}

#[test]
fn an_answer_without_end_is_not_read_to_its_end() {
    let rig = Rig::new();
    let receiver = Receiver::scripted([Reply::Answer(200, Vec::new(), vec![b'x'; 4_000_000])]);
    rig.subscribe("erp", &receiver);
    rig.deliver("a");
    assert_eq!(rig.one("SELECT state FROM deliveries"), "completed");
    rig.deliver("b");
    assert_eq!(receiver.count(), 2);
}
