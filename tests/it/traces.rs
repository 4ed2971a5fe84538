//! Spans of attempts, for a collector of OpenTelemetry.

use crate::rig::prelude::*;

/// A box whose traces go to a collector.
fn with_collector() -> (Rig, Receiver) {
    let collector = Receiver::new();
    let endpoint = format!("http://{}/v1/traces", collector.address);
    let rig = Rig::with(|settings| settings.traces.endpoint = Some(endpoint.clone()));
    (rig, collector)
}

/// Publishes an event that goes on with a trace.
fn publish_in(rig: &Rig, traceparent: &str, event: &Value) {
    let bearer = format!("Bearer {}", rig.token);
    let fields = [("Authorization", bearer.as_str()), ("traceparent", traceparent)];
    rig.send("POST", "/v1/events", &fields, event.to_string().as_bytes()).is(201);
}

/// The spans that a collector got.
fn spans(collector: &Receiver) -> Vec<Value> {
    let batches = collector.seen().into_iter().map(|request| {
        assert_eq!(request.first_line, "POST /v1/traces HTTP/1.1");
        assert_eq!(request.field("content-type"), Some("application/json"));
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone()
    });
    batches.flatten().collect()
}

fn metric(rig: &Rig, result: &str) -> u64 {
    let line = format!("oncebox_trace_spans_total{{result=\"{result}\"}} ");
    let page = rig.call("GET", "/metrics", b"").is(200).text();
    let value = page.lines().find_map(|found| found.strip_prefix(line.as_str()));
    value.unwrap_or_else(|| panic!("{page}")).parse().unwrap()
}

#[test]
fn each_attempt_is_a_span_of_the_trace_with_which_its_event_came() {
    let (rig, collector) = with_collector();
    let receiver = Receiver::new();
    let tried = AtomicUsize::new(0);
    receiver.decide(move |_| {
        Reply::status(if tried.fetch_add(1, Ordering::SeqCst) == 0 { 503 } else { 200 })
    });
    rig.subscribe_with("erp", &receiver, &json!({}));
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let parent = format!("00-{trace}-00f067aa0ba902b7-03");
    let event = json!({ "event_type": "invoice.paid", "idempotency_key": "k1", "payload": { "iban": "DE02120300000000202051" } });
    publish_in(&rig, &parent, &event);
    until("the first attempt has failed", || receiver.count() == 1);
    rig.settle();
    rig.advance(secs(3_600));
    rig.becomes("SELECT count(*) FROM deliveries WHERE state = 'completed'", "1");
    until("the collector has both spans", || spans(&collector).len() == 2);
    let found = spans(&collector);
    for (span, request) in found.iter().zip(receiver.seen()) {
        has(
            span,
            &json!({ "traceId": trace, "parentSpanId": "00f067aa0ba902b7", "name": "deliver erp", "kind": 3 }),
        );
        let sent = format!("00-{trace}-{}-03", text(span, "spanId"));
        assert_eq!(
            request.field("traceparent"),
            Some(sent.as_str()),
            "the receiver goes on with it"
        );
    }
    let attribute = |span: &Value, key: &str| {
        let all = span["attributes"].as_array().unwrap().clone();
        all.into_iter().find(|one| one["key"] == key).map(|one| one["value"].clone())
    };
    assert_eq!(found[0]["status"], json!({ "code": 2 }));
    assert_eq!(
        attribute(&found[0], "http.response.status_code"),
        Some(json!({ "intValue": "503" }))
    );
    assert_eq!(attribute(&found[0], "oncebox.attempt"), Some(json!({ "intValue": "1" })));
    assert_eq!(attribute(&found[1], "oncebox.attempt"), Some(json!({ "intValue": "2" })));
    assert_eq!(found[1].get("status"), None);
    let all = json!(found).to_string();
    assert!(!all.contains("DE0212030") && !all.contains("k1"), "no content: {all}");
    until("both are counted", || metric(&rig, "exported") >= 2);
}

#[test]
fn a_trace_that_is_not_recorded_has_no_spans() {
    let (rig, collector) = with_collector();
    let receiver = Receiver::new();
    rig.subscribe_with("erp", &receiver, &json!({}));
    for (key, flags) in [("k1", "00"), ("k2", "01")] {
        let parent = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-{flags}");
        let event = json!({ "event_type": "a", "idempotency_key": key, "payload": 1 });
        publish_in(&rig, &parent, &event);
        until("it is delivered", || {
            rig.one("SELECT count(*) FROM deliveries WHERE state <> 'completed'") == "0"
        });
    }
    until("the collector has a span", || !spans(&collector).is_empty());
    let delivery = json!({ "key": "oncebox.delivery", "value": { "stringValue": "dlv_2" } });
    let found = spans(&collector);
    assert_eq!(found.len(), 1);
    assert!(found[0]["attributes"].as_array().unwrap().contains(&delivery), "{found:?}");
}

#[test]
fn a_collector_that_hangs_or_refuses_holds_up_no_delivery() {
    let (rig, collector) = with_collector();
    collector.always(Reply::status(503));
    let receiver = Receiver::new();
    rig.subscribe_with("erp", &receiver, &json!({}));
    let publish = |from: u32| {
        for n in from..from + 20 {
            rig.publish(
                &json!({ "event_type": "a", "idempotency_key": n.to_string(), "payload": n }),
            );
        }
    };
    publish(0);
    rig.becomes("SELECT count(*) FROM deliveries WHERE state = 'completed'", "20");
    until("they are counted", || metric(&rig, "dropped") >= 20);
    collector.always(Reply::Hang);
    publish(100);
    rig.becomes("SELECT count(*) FROM deliveries WHERE state = 'completed'", "40");
    assert_eq!(metric(&rig, "exported"), 0);
}
