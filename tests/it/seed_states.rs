//! The states that other platforms name: each query of docs/states.md finds a row that is in that state.

use crate::rig::prelude::*;

const PAGE: &str = include_str!("../../docs/states.md");

/// The names of the page's table with their queries.
fn queries() -> BTreeMap<&'static str, &'static str> {
    let row = |line: &'static str| {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [name, _, query] = cells[..] else { return None };
        Some((name, query.strip_prefix("`SELECT")?.strip_suffix('`')?))
    };
    PAGE.lines().filter_map(row).collect()
}

fn publish(rig: &Rig, event_type: &str, more: &Value) -> String {
    let event = merged(json!({ "event_type": event_type, "payload": event_type }), more);
    text(&rig.publish(&event), "id")
}

fn delivery_of(rig: &Rig, event: &str) -> String {
    let of = format!("(SELECT seq FROM outbox WHERE id = '{event}')");
    rig.one(&format!("SELECT seq FROM deliveries WHERE outbox_seq = {of}"))
}

/// What each query is to find, except for what only a stopped service leaves.
fn prepare(rig: &Rig) -> BTreeMap<&'static str, String> {
    let receiver = Receiver::new();
    receiver.decide(|request| {
        let body = String::from_utf8_lossy(&request.body).into_owned();
        Reply::status(match body.trim_matches('"') {
            "dead" => 400,
            "failing" => 500,
            _ => 200,
        })
    });
    rig.subscribe_with(
        "sent",
        &receiver,
        &json!({ "event_types": ["done", "failing", "dead", "later", "parent"] }),
    );
    for (name, ordering) in [("queue", "none"), ("lane", "strict")] {
        let body = json!({
            "name": name, "target": "pull", "event_types": [name], "ordering": ordering,
        });
        rig.post("/v1/subscriptions", &body).is(201);
    }
    let mut wanted = BTreeMap::new();
    for (name, event_type) in
        [("OK", "done"), ("PARTLY_FAILED", "failing"), ("FAILED", "dead"), ("WAITING", "parent")]
    {
        wanted.insert(name, publish(rig, event_type, &json!({})));
    }
    let later = publish(rig, "later", &json!({ "not_before": rig.now().plus(secs(3600)) }));
    rig.call("POST", &format!("/v1/deliveries/{}/cancel", delivery_of(rig, &later)), b"").is(200);
    wanted.insert("CANCEL", later);
    for (name, event_type) in [
        ("IN_QUEUE", "queue"),
        ("PROCESSING", "lane"),
        ("POSTPONED", "lane"),
        ("WAITING_FOR_RES", "queue"),
    ] {
        let event = publish(rig, event_type, &json!({}));
        wanted.insert(name, delivery_of(rig, &event));
    }
    assert_eq!(rig.items("/v1/consumers/lane/next?max=10").len(), 1);
    until("all are tried", || rig.one("SELECT count(*) FROM attempts") == "4");
    wanted
}

#[test]
fn each_query_of_the_page_finds_its_row() {
    let queries = queries();
    let mut rig = Rig::new();
    let mut wanted = prepare(&rig);
    rig.stop();
    let conn = rig.writable();
    conn.run("INSERT INTO outbox (event_type, payload) VALUES ('new', 'null')");
    let new = "SELECT id FROM outbox WHERE event_type = 'new'";
    wanted.insert("NEW", conn.query_row(new, [], |row| row.get(0)).unwrap());
    let parent = "UPDATE outbox SET status = 'processing', completed_at = NULL, hard_children = 1 WHERE id = ?1";
    assert_eq!(conn.execute(parent, [&wanted["WAITING"]]).unwrap(), 1);
    let accepted =
        "UPDATE deliveries SET state = 'waiting', due_at = NULL, confirm_until = 1 WHERE seq = ?1";
    assert_eq!(conn.execute(accepted, [&wanted["WAITING_FOR_RES"]]).unwrap(), 1);
    assert!(queries.keys().eq(wanted.keys()), "{queries:?}");
    for (name, query) in &queries {
        let found = file::lines(&conn, &format!("SELECT{query}"));
        assert!(found.contains(&wanted[name]), "{name}: SELECT{query} gives {found:?}");
        assert!(found.len() < 3, "{name}: SELECT{query} gives {found:?}");
    }
}

/// Seed 004: `NEW` and `IN_QUEUE`. Seed 002: `http_status` and `latency_ms` of a delivery.
#[test]
fn deliveries_are_listed_that_were_never_attempted_and_have_what_the_last_answer_said() {
    let (rig, receiver) =
        Rig::subscribed_with("erp", Receiver::with(Reply::status(503)), &json!({}));
    let lane = json!({ "name": "lane", "target": "pull", "ordering": "strict" });
    rig.post("/v1/subscriptions", &lane).is(201);
    for event_type in ["a", "b"] {
        rig.publish_type(event_type);
    }
    rig.settle();
    assert_eq!(receiver.count(), 2);
    let listed = |query: &str| -> Vec<(String, String)> {
        let items = rig.items(&format!("/v1/deliveries?{query}"));
        items.iter().map(|it| (text(it, "subscription"), text(it, "event_type"))).collect()
    };
    let pair = |name: &str| ("lane".to_owned(), name.to_owned());
    assert_eq!(listed("queue=new"), [pair("b"), pair("a")]);
    assert_eq!(listed("queue=in_queue"), [pair("a")]);
    let event = text(&rig.get("/v1/events?event_type=b")["items"][0], "id");
    assert_eq!(listed(&format!("queue=new&event_id={event}")), [pair("b")]);
    assert!(listed("queue=in_queue&state=completed").is_empty());
    rig.call("GET", "/v1/deliveries?queue=old", b"").is(400);
    let tried = rig.get("/v1/deliveries?subscription=erp")["items"][0].clone();
    assert_eq!((&tried["http_status"], tried["latency_ms"].is_u64()), (&json!(503), true));
    let untried = rig.get("/v1/deliveries?queue=new")["items"][0].clone();
    assert!(untried["http_status"].is_null() && untried["latency_ms"].is_null());
}

fn hook(rig: &Rig, id: &str) {
    let body = format!(r#"{{"id":"{id}"}}"#);
    let token = [("X-Token", "a-shared-secret-of-32-characters")];
    rig.send("POST", "/in/plain", &token, body.as_bytes()).is(200);
}

fn only(rig: &Rig, list: &str) -> Value {
    let mut items = rig.items(list);
    assert_eq!(items.len(), 1, "{list}: {items:?}");
    items.remove(0)
}

/// Seed 000: "`processing_started_at`: When processing began. `completed_at`: When processing completed. `error_message`: Error
/// detail if processing failed. `retry_count`: Number of processing attempts."
#[test]
fn a_webhook_event_has_the_fields_that_the_seed_names() {
    let all = json!({ "source": "all" });
    let (rig, receiver) = Rig::subscribed_with("erp", Receiver::with(Reply::Hang), &all);
    rig.token_provider("plain", "a-shared-secret-of-32-characters");
    hook(&rig, "evt-1");
    until("it is under way", || receiver.count() == 1);
    let list = "/v1/webhook-events?status=processing";
    let shown = || {
        rig.get(&format!("/v1/webhook-events/{}", text(&only(&rig, "/v1/webhook-events"), "id")))
    };
    assert_eq!(
        (only(&rig, list)["status"].as_str(), shown()["status"].as_str()),
        (Some("processing"), Some("processing"))
    );
    assert!(rig.items("/v1/webhook-events?status=received").is_empty());
    let began = rig.now().to_string();
    for seen in [only(&rig, list), shown()] {
        assert_eq!(seen["processing_started_at"], began, "a row in processing has begun: {seen}");
    }
    rig.advance(secs(2));
    receiver.always(Reply::status(500));
    receiver.release_with(500);
    rig.settle();
    until("it is stored", || shown()["retry_count"] == 1);
    has(
        &shown(),
        &json!({ "processing_started_at": began, "completed_at": null, "finished_at": null }),
    );
    assert!(shown()["error_message"].as_str().unwrap().contains("500"), "{}", shown());
    receiver.always(Reply::status(200));
    rig.advance(secs(10));
    rig.sent(&receiver, 2);
    let ended = rig.now().to_string();
    let wanted = json!({
        "status": "completed", "retry_count": 2, "processing_started_at": began, "completed_at": ended,
        "finished_at": ended, "error_message": null,
    });
    has(&shown(), &wanted);
    rig.call("POST", "/v1/deliveries/dlv_1/cancel", b"").is(409);
    receiver.always(Reply::status(400));
    hook(&rig, "evt-2");
    rig.settle();
    let failed = only(&rig, "/v1/webhook-events?status=failed");
    assert!(failed["completed_at"].is_null() && failed["finished_at"].is_string(), "{failed}");
    assert!(failed["error_message"].is_string(), "{failed}");
}

/// Seed 004: "`failed_count`: Count of unsuccessful tries. Default value is 0. `failed_error_code`: Error code when message
/// processing failed. `last_process_timestamp`: Timestamp when this message was lasttime updated."
#[test]
fn an_event_has_the_fields_that_the_seed_names() {
    let script = [Reply::status(503), Reply::status(500), Reply::Hang];
    let (rig, receiver) = Rig::subscribed_to("erp", Receiver::scripted(script));
    let path = format!("/v1/events/{}", publish(&rig, "a", &json!({})));
    rig.settle();
    rig.advance(secs(10));
    rig.sent(&receiver, 2);
    let (last, shown) = (rig.now().to_string(), || rig.get(&path));
    let wanted = json!({ "failed_count": 2, "failed_error_code": "500", "last_process_timestamp": last, "status": "failed" });
    has(&shown(), &wanted);
    rig.advance(secs(60));
    until("it is under way again", || receiver.count() == 3);
    // Seed 003: the states of a run are seen where people look.
    assert_eq!(only(&rig, "/v1/events?status=processing")["status"], "processing");
    assert_eq!(shown()["status"], "processing");
    assert!(rig.items("/v1/events?status=failed").is_empty());
    let event_id = text(&shown(), "id");
    for more in ["", "&subscription=erp", &format!("&event_id={event_id}")] {
        let running = only(&rig, &format!("/v1/deliveries?in_flight=true&state=pending{more}"));
        assert_eq!(text(&running, "event_id"), event_id);
    }
    let trace = text(&shown(), "trace_id");
    assert_eq!(
        only(&rig, &format!("/v1/deliveries?in_flight=true&trace_id={trace}"))["id"],
        "dlv_1"
    );
    receiver.release();
    rig.settle();
    until("it is done", || shown()["status"] == "completed");
    has(&shown(), &json!({ "failed_count": 2, "failed_error_code": null }));
    assert!(rig.items("/v1/deliveries?in_flight=true").is_empty());
}

/// Seed 004: "POSTPONED" and "WAITING" are states that a list can be filtered by.
#[test]
fn what_is_postponed_and_what_waits_is_listed() {
    let rig = Rig::new();
    rig.pull("lane", &json!({ "ordering": "strict" }));
    let parent = publish(&rig, "parent", &json!({}));
    publish(&rig, "child", &json!({ "parent_id": parent, "parent_binding": "hard" }));
    let found = only(&rig, "/v1/deliveries?postponed=true");
    assert_eq!((&found["id"], &found["is_behind"]), (&json!("dlv_2"), &json!(true)));
    assert_eq!(only(&rig, "/v1/deliveries?postponed=false")["id"], "dlv_1");
    let of_child = format!("/v1/deliveries?postponed=true&event_id={}", text(&found, "event_id"));
    assert_eq!(only(&rig, &of_child)["id"], "dlv_2");
    assert!(rig.items("/v1/deliveries?postponed=true&state=dead_letter").is_empty());
    assert!(rig.items("/v1/events?waiting=true").is_empty());
    rig.post("/v1/consumers/lane/ack", &taken(&rig)).is(200);
    assert_eq!(text(&only(&rig, "/v1/events?waiting=true"), "id"), parent);
    assert_eq!(rig.items("/v1/events?waiting=false").len(), 1);
}

/// Seed 002: "`WHERE status = 'FAILED' AND next_retry_at IS NOT NULL`". Seed 003: failures are "classified".
#[test]
fn what_failed_and_is_tried_again_is_listed_by_class() {
    let (rig, _receiver) = Rig::subscribed_to("erp", Receiver::with(Reply::status(503)));
    let failed = publish(&rig, "a", &json!({}));
    rig.settle();
    publish(&rig, "b", &json!({ "not_before": rig.now().plus(secs(3600)) }));
    let trace = failed.replace('-', "");
    for more in ["", &format!("&event_id={failed}"), &format!("&trace_id={trace}")] {
        let of =
            |class: &str| rig.items(&format!("/v1/deliveries?state=pending&class={class}{more}"));
        assert_eq!((of("transient").len(), of("auth").len()), (1, 0), "{more}");
        assert_eq!(text(&of("transient")[0], "event_id"), failed);
    }
    assert!(rig.items("/v1/deliveries?state=in_doubt&class=transient").is_empty());
    assert!(rig.items("/v1/deliveries?state=dead_letter&class=transient").is_empty());
}

/// Takes the next event of the consumer, and says that it is done.
fn taken(rig: &Rig) -> Value {
    let next = rig.items("/v1/consumers/lane/next?max=1").remove(0);
    json!({ "items": [{ "delivery": next["delivery"], "lease": next["lease"] }] })
}

/// Seed 003: "correlated by `traceId` so the full path from trigger to outcome is traceable".
#[test]
fn a_trace_finds_its_events_deliveries_and_audit_events() {
    let (rig, _receiver) =
        Rig::subscribed_with("erp", Receiver::new(), &json!({ "source": "all" }));
    let told = Receiver::new();
    rig.subscribe_with("told", &told, &json!({ "event_types": ["delivery.completed"] }));
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let auth = format!("Bearer {}", rig.token);
    let parent = format!("00-{trace}-00f067aa0ba902b7-01");
    let fields = [("Authorization", auth.as_str()), ("traceparent", parent.as_str())];
    let event = br#"{"event_type":"a","payload":1}"#;
    rig.send("POST", "/v1/events", &fields, event).is(201);
    let own = publish(&rig, "b", &json!({}));
    rig.sent(&told, 2);
    let of = |list: &str, trace: &str| rig.items(&format!("/v1/{list}trace_id={trace}"));
    // The event, and the one that tells of its delivery.
    assert_eq!(of("events?operational=true&", trace).len(), 2);
    assert_eq!(only(&rig, &format!("/v1/events?trace_id={trace}"))["event_type"], "a");
    assert_eq!(of("deliveries?", trace).len(), 2);
    assert_eq!(of("deliveries?subscription=erp&", trace).len(), 1);
    // One that came without a trace has its own.
    let made = own.replace('-', "");
    assert_eq!(text(&only(&rig, &format!("/v1/events?trace_id={made}")), "trace_id"), made);
    assert_eq!(of("deliveries?state=completed&", &made).len(), 2);
    let told: Vec<Value> = (0..2).map(|n| told.json(n)).collect();
    assert_eq!((&told[0]["trace_id"], &told[1]["trace_id"]), (&json!(trace), &json!(made)));
    rig.send("POST", "/v1/subscriptions/erp/pause", &fields, b"").is(200);
    let audited = rig.items(&format!("/v1/audit-events?correlation_id={trace}"));
    assert_eq!(audited.len(), 1, "{audited:?}");
    rig.call("POST", "/v1/subscriptions/erp/resume", b"").is(200);
    assert!(of("events?", "nothing").is_empty() && of("deliveries?", "nothing").is_empty());
    rig.token_provider("plain", "a-shared-secret-of-32-characters");
    hook(&rig, "evt-1");
    let hooked = only(&rig, "/v1/webhook-events");
    let trace = text(&hooked, "trace_id");
    assert_eq!(only(&rig, &format!("/v1/webhook-events?trace_id={trace}"))["id"], hooked["id"]);
    assert_eq!(of("deliveries?subscription=erp&", &trace).len(), 1);
}

/// Seed 004: "envelope: The whole input request, including headers and body".
#[test]
fn header_fields_of_a_publish_are_kept_where_the_settings_name_them() {
    let mut rig = Rig::new();
    rig.restart_with(|settings| {
        settings.events.keep_headers = ["user-agent", "x-request-no"].map(str::to_owned).into();
    });
    let auth = format!("Bearer {}", rig.token);
    let publish = |event: &Value, agent: &str| {
        let fields = [
            ("Authorization", auth.as_str()),
            ("User-Agent", agent),
            ("X-Request-No", "7"),
            ("X-Other", "8"),
        ];
        let made =
            rig.send("POST", "/v1/events", &fields, event.to_string().as_bytes()).is(201).json();
        rig.get(&format!("/v1/events/{}", text(&made["events"][0], "id")))["headers"].clone()
    };
    let plain = json!({ "event_type": "a", "payload": 1 });
    assert_eq!(publish(&plain, "erp/1"), json!({ "user-agent": "erp/1", "x-request-no": "7" }));
    let own = merged(plain, &json!({ "headers": { "X-Request-No": "own" } }));
    assert_eq!(publish(&own, "erp/1"), json!({ "user-agent": "erp/1", "X-Request-No": "own" }));
    // What cannot be stored costs the event nothing.
    assert_eq!(publish(&own, "b\u{e4}r"), json!({ "X-Request-No": "own" }));
    // A policy on personal data could refuse the event for them.
    let policy = json!({ "rules": [{ "detect": ["email"], "action": "reject" }] });
    rig.patch("/v1/tenants/default", &json!({ "pii": policy })).is(200);
    assert_eq!(publish(&own, "me@example.com"), json!({ "X-Request-No": "own" }));
}

/// Seed 000: "`completed_at`: When the event was successfully processed"; an end without success has `finished_at` alone.
#[test]
fn an_event_tells_success_and_end_apart() {
    let receiver = Receiver::scripted([Reply::status(500), Reply::status(200), Reply::status(400)]);
    let (rig, _receiver) = Rig::subscribed_to("erp", receiver);
    let done = format!("/v1/events/{}", publish(&rig, "a", &json!({})));
    rig.settle();
    assert!(rig.get(&done)["last_error"].is_string());
    rig.advance(secs(10));
    rig.settle();
    let at = rig.now().to_string();
    let wanted =
        json!({ "status": "completed", "completed_at": at, "finished_at": at, "last_error": null });
    has(&rig.get(&done), &wanted);
    let dead = format!("/v1/events/{}", publish(&rig, "a", &json!({})));
    rig.settle();
    has(
        &rig.get(&dead),
        &json!({ "status": "dead_letter", "completed_at": null, "finished_at": at }),
    );
}

/// Seed 004: "Tables request and response": `req_envelope`, `req_timestamp`, `uri`, `res_envelope`, `failed_reason`, `failed`.
#[test]
fn requests_and_responses_are_read_by_sql() {
    let receiver = Receiver::scripted([Reply::status(503), Reply::status(200)]);
    let format = json!({ "format": "standard_webhooks" });
    let (rig, receiver) = Rig::subscribed_with("erp", receiver, &format);
    rig.publish(&json!({ "event_type": "a", "payload": { "total": 119 } }));
    rig.settle();
    rig.advance(secs(10));
    rig.settle();
    let joined = "FROM request JOIN response USING (req_id) ORDER BY req_id";
    let lines = |columns: &str| rig.lines(&format!("SELECT {columns} {joined}"));
    assert_eq!(lines("failed || ' ' || http_status"), ["1 503", "0 200"]);
    assert_eq!(lines("res_join_id"), ["dlv_1.1", "dlv_1.2"]);
    assert_eq!(lines("uri"), [receiver.url(), receiver.url()]);
    assert_eq!(lines("method || ' ' || (req_timestamp <= res_timestamp)"), ["POST 1", "POST 1"]);
    assert_eq!(lines("json_extract(req_envelope, '$.data.total')"), ["119", "119"]);
    assert!(lines("coalesce(failed_reason, '')")[0].contains("503"));
}
