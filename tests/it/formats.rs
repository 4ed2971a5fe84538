//! What is sent of an event, and of which events: formats, header fields of events, templates and filters.

use oncebox::outbox::{self, Event};

use crate::it::delivering::expected;
use crate::rig::prelude::*;

fn json_of(message: &Message) -> Value {
    serde_json::from_slice(&message.body).unwrap()
}

/// Inserts rows as an ERP does.
fn by_sql(rig: &Rig, sql: &str) {
    rig.write(sql);
}

/// An event with everything that a format has a place for.
fn invoice() -> Value {
    json!({
        "event_type": "invoice.paid", "idempotency_key": "paid:4711", "aggregate_type": "invoice",
        "aggregate_id": "47 11/ü%\"", "source_system": "shop 1", "occurred_at": "2026-01-30T08:00:00Z",
        "payload": { "total": "99.00", "lines": [{ "sku": "A-1" }] }, "headers": { "X-Region": "north", "X-Note": "x" },
    })
}

#[track_caller]
fn poisoned(rig: &Rig) -> String {
    rig.says("SELECT class || ' ' || coalesce(http_status, '-') FROM attempts", "poison -");
    rig.one("SELECT failed_reason FROM attempts")
}

/// The value of an attribute in a header field, as the HTTP binding of `CloudEvents` reads it: percent-decoded once.
fn attribute(message: &Message, name: &str) -> Option<String> {
    let value = message.field(&format!("ce-{name}"))?.as_bytes().to_vec();
    let mut decoded = Vec::new();
    let mut at = 0;
    while at < value.len() {
        assert!((0x21..=0x7e).contains(&value[at]) && value[at] != b'"', "{name}: {value:?}");
        if value[at] == b'%' {
            let hex = std::str::from_utf8(&value[at + 1..at + 3]).unwrap();
            decoded.push(u8::from_str_radix(hex, 16).unwrap());
            at += 3;
        } else {
            decoded.push(value[at]);
            at += 1;
        }
    }
    Some(String::from_utf8(decoded).unwrap())
}

/// The rules of `CloudEvents` 1.0.2 that hold for the attributes in every mode.
fn check_attributes(of: &dyn Fn(&str) -> Option<String>, webhook_id: &str, event_id: &str) {
    assert_eq!(of("specversion").as_deref(), Some("1.0"));
    assert_eq!(of("id").as_deref(), Some(webhook_id));
    // A URI-reference (RFC 3986) holds no blank.
    assert_eq!(of("source").as_deref(), Some("/oncebox/default/shop%201"));
    assert_eq!(of("type").as_deref(), Some("invoice.paid"));
    assert_eq!(of("subject").as_deref(), Some("invoice/47 11/ü%\""));
    assert_eq!(of("time").as_deref(), Some("2026-01-30T08:00:00.000Z"));
    let trace = event_id.replace('-', "");
    let span = trace.strip_prefix(trace.get(..16).unwrap()).unwrap();
    assert_eq!(of("traceparent"), Some(format!("00-{trace}-{span}-01")));
    // Names of attributes are lower-case letters and digits.
    assert!(of("event-type").is_none());
}

#[test]
fn cloudevents_binary_has_its_attributes_in_header_fields_and_the_payload_as_it_is() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    let secret = rig.subscribe_with("erp", &receiver, &json!({ "format": "cloudevents_binary" }));
    let line = rig.publish(&invoice());
    rig.settle();
    let seen = receiver.seen();
    let (id, event) = (line["webhook_id"].as_str().unwrap(), line["id"].as_str().unwrap());
    check_attributes(&|name| attribute(&seen[0], name), id, event);
    assert_eq!(seen[0].field("content-type"), Some("application/json"));
    assert_eq!(seen[0].field("ce-datacontenttype"), None, "it is the content-type");
    assert_eq!(seen[0].body, br#"{"total":"99.00","lines":[{"sku":"A-1"}]}"#);
    let signature = expected(&secret, id, START.secs(), &seen[0].body);
    assert_eq!(seen[0].field("webhook-signature"), Some(signature.as_str()));
    assert_eq!(seen[0].field("x-region"), None, "nobody named it");
}

#[test]
fn cloudevents_structured_is_one_json_object_with_data_or_data_base64() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    let more = json!({ "format": "cloudevents_structured" });
    let secret = rig.subscribe_with("erp", &receiver, &more);
    let line = rig.publish(&invoice());
    rig.settle();
    let bytes = json!({ "event_type": "scan", "payload_base64": BASE64.encode(b"\xff\x00"), "content_type": "image/x" });
    rig.publish(&bytes);
    rig.settle();

    let seen = receiver.seen();
    let event = json_of(&seen[0]);
    let of = |name: &str| event.get(name).map(|value| value.as_str().unwrap().to_owned());
    let (id, event_id) = (line["webhook_id"].as_str().unwrap(), line["id"].as_str().unwrap());
    check_attributes(&of, id, event_id);
    assert_eq!(seen[0].field("content-type"), Some("application/cloudevents+json"));
    assert_eq!(of("datacontenttype").as_deref(), Some("application/json"));
    assert_eq!(event["data"], json!({ "total": "99.00", "lines": [{ "sku": "A-1" }] }));
    assert!(event.get("data_base64").is_none());
    assert!(seen[0].fields.iter().all(|(name, _)| !name.starts_with("ce-")));
    let signature = expected(&secret, id, START.secs(), &seen[0].body);
    assert_eq!(seen[0].field("webhook-signature"), Some(signature.as_str()));

    let event = json_of(&seen[1]);
    has(&event, &json!({ "data_base64": "/wA=", "datacontenttype": "image/x" }));
    assert!(event.get("data").is_none() && event.get("subject").is_none());
    assert_eq!(
        event["time"], "2026-01-31T12:00:00.000Z",
        "when it came in, since nobody said when it happened"
    );
}

#[test]
fn standard_webhooks_puts_the_payload_into_its_envelope_and_refuses_what_is_no_json() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    let secret = rig.subscribe_with("erp", &receiver, &json!({ "format": "standard_webhooks" }));
    let line = rig.publish(&invoice());
    rig.settle();
    let seen = receiver.seen();
    let wanted = r#"{"type":"invoice.paid","timestamp":"2026-01-30T08:00:00.000Z","data":{"total":"99.00","lines":[{"sku":"A-1"}]}}"#;
    assert_eq!(String::from_utf8_lossy(&seen[0].body), wanted);
    assert_eq!(seen[0].field("content-type"), Some("application/json"));
    let id = line["webhook_id"].as_str().unwrap();
    let signature = expected(&secret, id, START.secs(), wanted.as_bytes());
    assert_eq!(seen[0].field("webhook-signature"), Some(signature.as_str()));

    let rig = Rig::new();
    rig.subscribe_with("erp", &receiver, &json!({ "format": "standard_webhooks" }));
    let text = BASE64.encode(b"a;b\n1;2\n");
    rig.publish(
        &json!({ "event_type": "csv", "payload_base64": text, "content_type": "text/csv" }),
    );
    rig.has_sent(&receiver, 1);
    let reason = "the payload is no JSON, so it cannot be `data` in the format standard_webhooks";
    assert_eq!(poisoned(&rig), reason);
    assert_eq!(rig.one("SELECT state FROM deliveries"), "dead_letter");
}

#[test]
fn each_attempt_sends_the_same_bytes_also_after_a_restart() {
    let mut rig = Rig::new();
    let template = json!({ "body": "{{ payload.total }} {{ received_at }} {{ webhook_id }}", "content_type": "text/plain" });
    let contents = [
        json!({ "format": "standard_webhooks" }),
        json!({ "format": "cloudevents_structured" }),
        json!({ "format": "cloudevents_binary" }),
        json!({ "template": template }),
    ];
    let receivers =
        contents.each_ref().map(|_| Receiver::scripted([Reply::status(500), Reply::status(500)]));
    for (n, (content, receiver)) in contents.iter().zip(&receivers).enumerate() {
        rig.subscribe_with(&format!("s{n}"), receiver, content);
    }
    let mut event = invoice();
    event["occurred_at"] = Value::Null;
    rig.publish(&event);
    rig.settle();
    rig.pass(secs(5));
    rig.restart();
    rig.pass(secs(60));
    for receiver in &receivers {
        let seen = receiver.seen();
        assert_eq!(seen.len(), 3);
        let content = |request: &Message| {
            let own =
                ["webhook-id", "content-type"].map(|name| request.field(name).unwrap().to_owned());
            let event = request.fields.iter().filter(|(name, _)| name.starts_with("ce-")).cloned();
            (request.body.clone(), own, event.collect::<Vec<_>>())
        };
        assert!(seen.iter().all(|request| content(request) == content(&seen[0])));
    }
    let text = String::from_utf8(receivers[3].seen()[0].body.clone()).unwrap();
    assert!(text.starts_with("99.00 2026-01-31T12:00:00.000Z evt_"), "{text}");
}

#[test]
fn header_fields_of_an_event_are_sent_where_a_subscription_names_them() {
    let rig = Rig::new();
    let (named, other) = (Receiver::new(), Receiver::new());
    let more = json!({ "event_headers": ["x-REGION", "X-Own"], "headers": { "X-Own": "fixed" } });
    rig.subscribe_with("named", &named, &more);
    rig.subscribe("other", &other);
    let headers = json!({ "X-Region": "north", "X-Note": "x", "X-Own": "from the event" });
    let line = rig.publish(&json!({ "event_type": "a", "payload": 1, "headers": headers }));
    let row = "INSERT INTO outbox (event_type, payload, headers) VALUES ('b', '2', '{\"x-region\":\"south\"}')";
    by_sql(&rig, row);
    until("the row is routed", || rig.one("SELECT count(*) FROM deliveries") == "4");
    rig.settle();
    let seen = named.seen();
    assert_eq!(
        (seen[0].field("X-Region".to_lowercase().as_str()), seen[0].field("x-note")),
        (Some("north"), None)
    );
    assert_eq!(seen[0].fields.iter().filter(|(name, _)| name == "x-own").count(), 1);
    assert_eq!(seen[0].field("x-own"), Some("fixed"));
    assert_eq!(seen[1].field("x-region"), Some("south"));
    assert!(other.seen().iter().all(|request| request.field("x-region").is_none()));
    let path = format!("/v1/events/{}", line["id"].as_str().unwrap());
    assert_eq!(rig.get(&path)["headers"], headers);
    // Sent again as a new event, they go with it.
    rig.post(&format!("{path}/replay"), &json!({ "as_new": true })).is(201);
    rig.settle();
    assert_eq!(named.seen()[2].field("x-region"), Some("north"));

    // A program that embeds us.
    let mut own = rig.writable();
    let tx = own.transaction().unwrap();
    outbox::append(&tx, Event::new("d").json(&4).header("X-Region", "east")).unwrap();
    tx.commit().unwrap();
    until("it is routed", || rig.one("SELECT count(*) FROM deliveries") == "8");
    rig.settle();
    assert_eq!(named.seen()[3].field("x-region"), Some("east"));

    for headers in [
        json!({ "a b": "x" }),
        json!({ "x": "ü" }),
        json!({ "x": "a\nb" }),
        json!({ "x": "y".repeat(20_000) }),
    ] {
        let refused = rig
            .post("/v1/events", &json!({ "event_type": "a", "payload": 1, "headers": headers }))
            .is(422);
        assert!(refused.detail().starts_with("headers has "), "{}", refused.detail());
    }
    let bad = "INSERT INTO outbox (event_type, payload, headers) VALUES ('c', '3', '{\"x\":\"a\\u0000\"}')";
    by_sql(&rig, bad);
    rig.becomes("SELECT count(*) FROM outbox WHERE status = 'quarantined'", "1");
    rig.says("SELECT error_code FROM outbox WHERE status = 'quarantined'", "bad_headers");
}

#[test]
fn names_of_ours_and_of_secrets_can_be_neither_listed_nor_written() {
    let rig = Rig::new();
    let url = "http://127.0.0.1:9999/";
    for name in [
        "Webhook-Signature",
        "Host",
        "CE-Id",
        "content-type",
        "Authorization",
        "Cookie",
        "TE",
        "Upgrade",
        "Keep-Alive",
        "Trailer",
        "x y",
        "",
    ] {
        for content in [
            json!({ "event_headers": [name] }),
            json!({ "template": { "headers": { name: "x" } } }),
        ] {
            let body = merged(json!({ "name": "erp", "url": url }), &content);
            let detail = rig.post("/v1/subscriptions", &body).is(422).detail();
            let is_name = !name.contains(' ') && !name.is_empty();
            let why = if is_name { "The header " } else { " must be the name of a header field" };
            assert!(detail.contains(why), "{name}: {detail}");
        }
    }
    let both = json!({ "name": "erp", "url": url, "headers": { "X-A": "1" }, "template": { "headers": { "x-a": "2" } } });
    let detail = rig.post("/v1/subscriptions", &both).is(422).detail();
    assert_eq!(detail, "The header x-a has a value and a template: give one of them.");
}

#[test]
fn a_template_writes_body_and_header_fields_and_the_signature_covers_them() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    let body = "<invoice id=\"{{ aggregate_id }}\" total=\"{{ payload.total }}\">{% for l in payload.lines %}<line>{{ l.sku }}</line>{% endfor %}</invoice>";
    let template = json!({ "body": body, "content_type": "application/xml", "headers": { "X-Type": "{{ type|upper }}-{{ headers['X-Region'] }}" } });
    let secret = rig.subscribe_with("erp", &receiver, &json!({ "template": template }));
    let mut event = invoice();
    event["aggregate_id"] = "4711".into();
    let line = rig.publish(&event);
    rig.settle();
    let seen = receiver.seen();
    let sent = "<invoice id=\"4711\" total=\"99.00\"><line>A-1</line></invoice>";
    assert_eq!(String::from_utf8_lossy(&seen[0].body), sent);
    assert_eq!(seen[0].field("content-type"), Some("application/xml"));
    assert_eq!(seen[0].field("x-type"), Some("INVOICE.PAID-north"));
    let id = line["webhook_id"].as_str().unwrap();
    let signature = expected(&secret, id, START.secs(), sent.as_bytes());
    assert_eq!(seen[0].field("webhook-signature"), Some(signature.as_str()));
    assert_eq!(rig.get("/v1/subscriptions/erp")["template"], template);
    // A ping has none of what the template asks for.
    let tested = rig.call("POST", "/v1/subscriptions/erp/test", b"").is(200).json();
    assert_eq!((&tested["ok"], receiver.count()), (&json!(true), 2), "{tested}");
    assert_eq!(json_of(&receiver.seen()[1])["type"], "oncebox.ping");

    // What was changed holds for the next attempt, and null takes it away.
    rig.patch("/v1/subscriptions/erp", &json!({ "template": { "body": "{{ payload.nope }}" } }))
        .is(200);
    rig.publish(&json!({ "event_type": "a", "payload": {} }));
    rig.settle();
    let reason = "the subscription's template cannot be used for this event: body, line 1: undefined value: \
                  `payload.nope` is undefined";
    assert_eq!(rig.one("SELECT failed_reason FROM attempts WHERE class = 'poison'"), reason);
    assert_eq!(rig.one("SELECT count(*) FROM deliveries WHERE state = 'dead_letter'"), "1");
    let changed = rig.patch("/v1/subscriptions/erp", &json!({ "template": null })).is(200).json();
    assert_eq!(changed["template"], Value::Null);
    rig.publish(&json!({ "event_type": "a", "payload": { "plain": true } }));
    rig.settle();
    assert_eq!(receiver.seen()[2].body, br#"{"plain":true}"#);
}

#[test]
fn the_template_for_redpandas_proxy_writes_what_it_takes() {
    let page = include_str!("../../docs/kafka.md");
    let template = page.split("```jinja\n").nth(1).unwrap().split("```").next().unwrap();
    let content_type = "application/vnd.kafka.json.v2+json";
    let more = json!({ "template": { "body": template, "content_type": content_type } });
    let (rig, receiver) = Rig::subscribed_with("centre", Receiver::new(), &more);
    let sent = rig.publish(&invoice());
    rig.settle();
    let seen = &receiver.seen()[0];
    assert_eq!(seen.field("content-type"), Some(content_type));
    let value = json!({ "specversion": "1.0", "id": sent["webhook_id"], "type": "invoice.paid", "source": "shop 1",
        "data": invoice()["payload"] });
    assert_eq!(
        json_of(seen),
        json!({ "records": [{ "key": invoice()["aggregate_id"], "value": value }] })
    );
}

#[test]
fn a_hostile_template_is_poison_and_harms_nobody_else() {
    let rig = Rig::new();
    let (hostile, healthy) = (Receiver::new(), Receiver::new());
    let loops = "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}";
    let large = "{% for a in range(100000) %}{{ payload.long }}{% endfor %}";
    let deep = "{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}";
    for (n, body) in [loops, large, deep].into_iter().enumerate() {
        rig.subscribe_with(&format!("bad-{n}"), &hostile, &json!({ "template": { "body": body } }));
    }
    rig.subscribe("good", &healthy);
    rig.publish(&json!({ "event_type": "a", "payload": { "long": "x".repeat(1000) } }));
    rig.settle();
    assert_eq!((hostile.count(), healthy.count()), (0, 1));
    let reasons = rig.one("SELECT group_concat(substr(failed_reason, 60), ' | ') FROM (
                             SELECT failed_reason FROM attempts WHERE class = 'poison' ORDER BY failed_reason)");
    assert_eq!(
        reasons,
        "body, line 1: invalid operation: recursion limit exceeded | body, line 1: it takes too many steps, or makes too \
         long values | body, line 1: it takes too many steps, or makes too long values"
    );
}

#[test]
fn what_cannot_be_used_is_refused_before_it_is_saved() {
    let rig = Rig::new();
    for (content, detail) in [
        (
            json!({ "template": { "body": "a\n{{ b" } }),
            "template cannot be used: body, line 2: syntax error: unexpected end of input, expected end of variable block.",
        ),
        (json!({ "template": {} }), "template cannot be used: it has neither body nor headers."),
        (
            json!({ "template": { "body": "x" }, "format": "cloudevents_binary" }),
            "template cannot be used: a template of the body goes with the format raw alone.",
        ),
        (
            json!({ "template": { "body": "x".repeat(32_769) } }),
            "body must have at most 32768 characters.",
        ),
        (
            json!({ "filter": [{ "path": "$.a", "op": "in", "value": 1 }] }),
            "filter cannot be used: the condition in on $.a takes a list of 1 to 100 values.",
        ),
        (
            json!({ "filter": [{ "path": "a", "op": "exists" }] }),
            "filter cannot be used: the path \"a\" is wrong at character 1: a path begins with $, the whole body.",
        ),
        (
            json!({ "filter": vec![json!({ "path": "$.a", "op": "exists" }); 17] }),
            "filter must have at most 16 entries.",
        ),
        (json!({ "event_headers": vec!["x"; 65] }), "event_headers must have at most 64 entries."),
    ] {
        let body = merged(json!({ "name": "erp", "url": "http://127.0.0.1:9999/" }), &content);
        assert_eq!(rig.post("/v1/subscriptions", &body).is(422).detail(), detail);
    }
    for content in [json!({ "filter": [["$.a", "exists"]] }), json!({ "format": "xml" })] {
        let body = merged(json!({ "name": "erp", "url": "http://127.0.0.1:9999/" }), &content);
        rig.post("/v1/subscriptions", &body).is(400);
    }
    let pull = json!({ "name": "erp", "target": "pull", "format": "standard_webhooks" });
    let detail = rig.post("/v1/subscriptions", &pull).is(422).detail();
    assert!(detail.starts_with("A pull subscription has no format"), "{detail}");
    assert_eq!(rig.get("/v1/subscriptions")["items"], json!([]));
}

#[test]
fn a_filter_decides_by_the_payload_for_events_webhooks_and_replays() {
    let rig = Rig::new();
    let (large, all) = (Receiver::new(), Receiver::new());
    let filter = json!([{ "path": "$.total", "op": "gt", "value": 100 }, { "path": "$.status", "op": "equals", "value": "paid" }]);
    rig.subscribe_with(
        "large",
        &large,
        &json!({ "filter": filter, "source": "all", "event_headers": ["User-Agent"] }),
    );
    for (total, status) in [("150.00", "paid"), ("99.00", "paid"), ("150.00", "open")] {
        rig.publish(
            &json!({ "event_type": "invoice", "payload": { "total": total, "status": status } }),
        );
    }
    let text = BASE64.encode(b"no JSON");
    let line = rig.publish(
        &json!({ "event_type": "invoice", "payload_base64": text, "content_type": "text/plain" }),
    );
    assert_eq!(line["status"], "skipped");
    let row = |total| {
        format!(
            "INSERT INTO outbox (event_type, payload) VALUES ('invoice', '{{\"total\":{total},\"status\":\"paid\"}}')"
        )
    };
    by_sql(&rig, &[row("101"), row("7")].join(";"));
    rig.becomes("SELECT count(*) FROM outbox WHERE routed_at IS NULL", "0");
    rig.has_sent(&large, 2);
    assert_eq!(rig.one("SELECT count(*) FROM outbox WHERE status = 'skipped'"), "4");

    rig.token_provider("machine", "token-1234567890");
    for total in [500, 5] {
        let body = json!({ "total": total, "status": "paid" }).to_string();
        let fields = [("X-Token", "token-1234567890"), ("User-Agent", "machine/1")];
        rig.send("POST", "/in/machine", &fields, body.as_bytes()).is(200);
    }
    rig.has_sent(&large, 3);
    assert_eq!(large.seen()[2].field("user-agent"), Some("machine/1"), "what is kept of a webhook");
    assert_eq!(rig.one("SELECT group_concat(status) FROM webhook_events"), "completed,skipped");

    // A named target gets the event whatever is in it.
    rig.publish(&json!({ "event_type": "invoice", "payload": {}, "target": "large" }));
    rig.has_sent(&large, 4);

    // A replay asks the filter, too: as it is now.
    rig.subscribe_with(
        "all",
        &all,
        &json!({ "filter": [{ "path": "$.status", "op": "equals", "value": "open" }] }),
    );
    let skipped = rig.one("SELECT id FROM outbox WHERE seq = 2");
    rig.post(&format!("/v1/events/{skipped}/replay"), &json!({ "subscription": "all" })).is(409);
    let open = rig.one("SELECT id FROM outbox WHERE seq = 3");
    rig.post(&format!("/v1/events/{open}/replay"), &json!({ "subscription": "all" })).is(200);
    let changed = rig.patch("/v1/subscriptions/all", &json!({ "filter": null })).is(200).json();
    assert_eq!(changed["filter"], json!([]));
    rig.post(&format!("/v1/events/{skipped}/replay"), &json!({ "subscription": "all" })).is(200);
    rig.has_sent(&all, 2);
}

#[test]
fn filters_that_take_too_many_steps_make_dead_letters_and_hold_up_nobody() {
    let rig = Rig::new();
    let (filtered, plain) = (Receiver::new(), Receiver::new());
    // Each condition looks at all 20,000 places, so the second subscription is over the bound of its tenant.
    let all = json!({ "path": "$..none", "op": "not_equals", "value": 1 });
    for name in ["first", "second"] {
        rig.subscribe_with(name, &filtered, &json!({ "filter": vec![&all; 16], "source": "all" }));
    }
    let cheap = json!([{ "path": "$[0]", "op": "exists" }]);
    rig.subscribe_with("third", &filtered, &json!({ "filter": cheap, "ordering": "strict" }));
    rig.subscribe("plain", &plain);
    let places = vec![0; 20_000];
    for _ in 0..2 {
        rig.publish(&json!({ "event_type": "a", "payload": places }));
    }
    rig.settle();
    assert_eq!((filtered.count(), plain.count()), (2, 2), "the first holds, the last does not ask");
    let dead = "SELECT count(*) || ' ' || sum(attempt_count) || ' ' || min(substr(reason, 1, 70)) FROM deliveries
                 WHERE state = 'dead_letter'";
    let reason = "the filters of this tenant's subscriptions take more than 500000 steps";
    assert_eq!(rig.one(dead), format!("4 0 {reason}"));
    assert_eq!(rig.one("SELECT group_concat(DISTINCT status) FROM outbox"), "dead_letter");
    rig.says("SELECT count(*) FROM escalations WHERE class = 'delivery.dead_lettered'", "2");

    // A webhook and a row of plain SQL are judged the same; a person decides what is sent.
    rig.token_provider("machine", "token-1234567890");
    let body = json!(places).to_string();
    rig.send("POST", "/in/machine", &[("X-Token", "token-1234567890")], body.as_bytes()).is(200);
    by_sql(&rig, &format!("INSERT INTO outbox (event_type, payload) VALUES ('a', '{body}')"));
    rig.becomes("SELECT count(*) FROM outbox WHERE routed_at IS NULL", "0");
    rig.settle();
    assert_eq!((filtered.count(), plain.count()), (4, 3));
    assert_eq!(rig.one(dead), format!("7 0 {reason}"));
    let first = rig.one("SELECT 'dlv_' || min(seq) FROM deliveries WHERE state = 'dead_letter'");
    rig.post(&format!("/v1/deliveries/{first}/retry"), &json!({})).is(200);
    rig.has_sent(&filtered, 5);
    let tried =
        json!({ "try": rig.one("SELECT id FROM outbox WHERE seq = 1"), "filter": vec![&all; 16] });
    rig.patch("/v1/subscriptions/third", &tried).is(200);
}

#[test]
fn while_sixteen_try_a_costly_template_each_event_is_taken() {
    let rig = Rig::new();
    let event = rig.publish(&json!({ "event_type": "a", "payload": vec![1; 5000] }));
    let body = "{% for a in payload %}{% for b in payload %}{{ b }}{% endfor %}{% endfor %}";
    let asked = json!({ "name": "erp", "url": "http://127.0.0.1/", "try": event["id"], "template": { "body": body } });
    let (over, tried) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                while !over.load(Ordering::SeqCst) {
                    let answer = rig.post("/v1/subscriptions", &asked);
                    tried.fetch_add(1, Ordering::SeqCst);
                    let later = (answer.status, answer.field("retry-after")) == (503, Some("1"));
                    assert!(answer.status == 422 || later, "{}", answer.text());
                }
            });
        }
        for _ in 0..40 {
            rig.publish_type("a");
        }
        until("a trial is answered", || tried.load(Ordering::SeqCst) > 0);
        over.store(true, Ordering::SeqCst);
    });
}

#[test]
fn a_thousand_events_go_to_twenty_filtered_subscriptions() {
    let (mut rig, receiver) = (Rig::new(), Receiver::new());
    for n in 0..20 {
        let filter = json!([{ "path": "$.group", "op": "equals", "value": n }, { "path": "$.lines[*].n", "op": "gte", "value": 500 }]);
        rig.subscribe_with(&format!("group-{n}"), &receiver, &json!({ "filter": filter }));
    }
    let event = |n: u32| json!({ "event_type": "a", "payload": { "group": n % 25, "lines": [{ "n": 0 }, { "n": n }] } });
    let batch: Vec<Value> = (0..1000).map(event).collect();
    let answer = rig.post("/v1/events", &Value::from(batch)).is(201).json();
    rig.settle();
    // 25 groups, 20 of them wanted; of those, the half with 500 or more.
    assert_eq!(receiver.count(), 400);
    let skipped =
        answer["events"].as_array().unwrap().iter().filter(|line| line["status"] == "skipped");
    assert_eq!(skipped.count(), 600);
    rig.restart();
    rig.publish(&json!({ "event_type": "a", "payload": { "group": 3, "lines": [{ "n": 900 }] } }));
    rig.has_sent(&receiver, 401);
}

#[test]
fn what_is_sealed_is_opened_for_a_template_and_hidden_from_filters_and_trials() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    let pii = json!({ "rules": [{ "path": "$.iban", "action": "seal" }], "identifiers": "allow" });
    rig.patch("/v1/tenants/default", &json!({ "pii": pii })).is(200);
    let template = json!({ "body": "{{ payload.iban }}" });
    rig.subscribe_with(
        "erp",
        &receiver,
        &json!({ "template": template, "filter": [{ "path": "$.n", "op": "equals", "value": 1 }] }),
    );
    let by_iban = json!([{ "path": "$.iban", "op": "exists" }]);
    rig.subscribe_with("by-iban", &receiver, &json!({ "filter": by_iban }));
    let line = rig.publish(
        &json!({ "event_type": "a", "payload": { "n": 1, "iban": "DE02120300000000202051" } }),
    );
    rig.has_sent(&receiver, 1);
    assert_eq!(receiver.seen()[0].body, b"DE02120300000000202051");
    let tried = rig.patch("/v1/subscriptions/erp", &json!({ "try": line["id"] })).is(200).json();
    assert_eq!((&tried["matches"], &tried["body"]), (&json!(true), &json!("[sealed]")));

    // Header fields are refused like other words beside the body.
    let pii = json!({ "rules": [{ "detect": ["email"], "action": "mask" }] });
    rig.patch("/v1/tenants/default", &json!({ "pii": pii })).is(200);
    let mail =
        json!({ "event_type": "a", "payload": 1, "headers": { "X-Mail": "anna@example.com" } });
    let refused = rig.post("/v1/events", &mail).is(422).detail();
    assert!(refused.contains("headers") && !refused.contains("anna"), "{refused}");
}

#[test]
fn a_trial_shows_what_would_be_sent_and_saves_nothing() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    let line = rig.publish(&invoice());
    let event = line["id"].clone();
    let audited = || rig.one("SELECT count(*) FROM audit_events WHERE result = 'SUCCESS'");
    let before = audited();
    let mut body = json!({ "name": "erp", "url": receiver.url(), "try": event, "event_headers": ["x-region"],
        "headers": { "X-Own": "1" }, "template": { "body": "{{ payload.total }}", "headers": { "X-Id": "{{ idempotency_key }}" } } });
    let tried = rig.post("/v1/subscriptions", &body).is(200).json();
    let wanted = json!({ "event": event, "matches": true, "why_not": null, "body": "99.00", "headers": {
        "content-type": "application/json", "X-Own": "1", "X-Id": "paid:4711", "X-Region": "north" } });
    assert_eq!(tried, wanted);
    body["filter"] = json!([{ "path": "$.total", "op": "gt", "value": 100 }]);
    let tried = rig.post("/v1/subscriptions", &body).is(200).json();
    has(
        &tried,
        &json!({
            "matches": false, "why_not": "the condition does not hold: $.total gt 100",
        }),
    );
    body["template"]["body"] = "\n{{ payload.nope }}".into();
    let detail = rig.post("/v1/subscriptions", &body).is(422).detail();
    assert!(
        detail.ends_with("body, line 2: undefined value: `payload.nope` is undefined."),
        "{detail}"
    );
    assert_eq!((rig.get("/v1/subscriptions")["items"].clone(), audited()), (json!([]), before));

    rig.subscribe("erp", &receiver);
    let saved = rig.get("/v1/subscriptions/erp");
    let change = json!({ "try": event, "event_types": ["order.*"], "format": "standard_webhooks" });
    let tried = rig.patch("/v1/subscriptions/erp", &change).is(200).json();
    assert_eq!((&tried["matches"], tried["why_not"].is_string()), (&json!(false), true));
    assert!(tried["body"].as_str().unwrap().starts_with(r#"{"type":"invoice.paid","#), "{tried}");
    assert_eq!(rig.get("/v1/subscriptions/erp"), saved);
    let unknown = json!({ "try": "01916f3a-5c1e-7000-8000-000000000001" });
    rig.patch("/v1/subscriptions/erp", &unknown).is(404);
    rig.has_sent(&receiver, 0);
}
