//! Lists: pages without gaps or doubles, and filters that filter.

use crate::rig::prelude::*;

/// The ids of a list, page by page; asserts that no page is too long and no id comes twice.
#[track_caller]
fn ids(rig: &Rig, path: &str, limit: usize) -> Vec<String> {
    let (mut all, mut after) = (Vec::new(), String::new());
    let join = if path.contains('?') { '&' } else { '?' };
    loop {
        let page = rig.get(&format!("{path}{join}limit={limit}{after}"));
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= limit);
        all.extend(items.iter().map(|item| text(item, "id")));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "an id came twice");
    all
}

fn with_120_events() -> (Rig, Receiver) {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    receiver.decide(|request| {
        let refuse = request.field("x-idempotency-key").unwrap().ends_with('3');
        Reply::status(if refuse { 400 } else { 200 })
    });
    rig.subscribe("erp", &receiver);
    let event = |n: u32| {
        let aggregate = format!("order-{}", n % 3);
        let event_type = if n.is_multiple_of(2) { "even" } else { "odd" };
        json!({
            "event_type": event_type, "idempotency_key": format!("k-{n}"), "payload": n,
            "aggregate_id": aggregate
        })
    };
    let events: Vec<Value> = (0..120).map(event).collect();
    rig.post("/v1/events", &json!(events)).is(201);
    rig.settle();
    (rig, receiver)
}

#[test]
fn pages_have_no_gaps_and_no_doubles() {
    let (rig, _receiver) = with_120_events();
    for limit in [1, 7, 40, 50, 119, 120, 121, 500] {
        assert_eq!(ids(&rig, "/v1/events", limit).len(), 120, "{limit}");
        assert_eq!(ids(&rig, "/v1/deliveries", limit).len(), 120, "{limit}");
    }
    assert_eq!(ids(&rig, "/v1/dead-letters", 5).len(), 12);
}

#[test]
fn a_list_stands_still_while_more_comes_in() {
    let (rig, _receiver) = with_120_events();
    let first = rig.get("/v1/events?limit=100");
    rig.publish_type("more");
    let next = first["next"].as_str().unwrap();
    let second = rig.get(&format!("/v1/events?limit=100&after={next}"));
    assert_eq!(second["items"].as_array().unwrap().len(), 20);
    assert_eq!(second["next"], json!(null));
}

#[test]
fn filters_show_what_they_say_and_nothing_else() {
    let (rig, _receiver) = with_120_events();
    rig.advance(secs(60));
    rig.publish(&json!({ "event_type": "late", "idempotency_key": "late", "payload": 1 }));
    rig.settle();
    for (query, count) in [
        ("status=completed", 109),
        ("status=dead_letter", 12),
        ("status=pending", 0),
        ("event_type=odd", 60),
        ("aggregate_id=order-1", 40),
        ("aggregate_id=order-1&event_type=even", 20),
        ("idempotency_key=k-7", 1),
        ("since=2026-01-31T12:01:00Z", 1),
        ("until=2026-01-31T12:01:00Z", 120),
        ("until=2026-01-31T12:01:00Z&since=2026-01-31T12:00:00Z&status=dead_letter", 12),
    ] {
        assert_eq!(ids(&rig, &format!("/v1/events?{query}"), 11).len(), count, "{query}");
    }
    for (query, count) in [
        ("state=completed", 109),
        ("state=dead_letter", 12),
        ("subscription=erp", 121),
        ("subscription=erp&state=dead_letter", 12),
        ("subscription=other", 0),
    ] {
        assert_eq!(ids(&rig, &format!("/v1/deliveries?{query}"), 11).len(), count, "{query}");
    }
}

#[test]
fn an_event_is_found_by_the_webhook_id_a_receiver_saw() {
    let (rig, receiver) = with_120_events();
    let id = receiver.seen()[50].field("webhook-id").unwrap().to_owned();
    let found = rig.get(&format!("/v1/events?webhook_id={id}"));
    assert_eq!(found["items"].as_array().unwrap().len(), 1);
    assert_eq!(found["items"][0]["webhook_id"], id);
}

#[test]
fn a_webhook_event_is_found_by_what_a_person_knows_of_it() {
    let (rig, receiver) =
        Rig::subscribed_with("shop", Receiver::new(), &json!({ "source": "provider:shop" }));
    let scheme = json!({
        "kind": "generic", "check": { "token": { "header": "X-Token" } }, "event_id": { "pointer": "/id" },
    });
    let secret = "a-shared-secret-of-32-characters";
    rig.provider("shop", &scheme, secret);
    for id in ["4711-paid", "4711-sent", "4712-paid"] {
        rig.advance(secs(1));
        let body = json!({ "id": id, "type": "order" }).to_string();
        rig.send("POST", "/in/shop", &[("X-Token", secret)], body.as_bytes()).is(200);
    }
    rig.settle();
    let last = rig.get("/v1/webhook-events")["items"][0].clone();
    assert_eq!(last["provider_event_id"], "4712-paid");
    let (id, webhook_id) = (last["id"].as_str().unwrap(), last["webhook_id"].as_str().unwrap());
    assert!(receiver.seen().iter().any(|seen| seen.field("webhook-id") == Some(webhook_id)));
    for (query, count) in [
        ("id=4711", 2),
        ("id=4711&provider=other", 0),
        ("id=47", 3),
        ("id=711", 0),
        (&format!("id={id}"), 1),
        (&format!("id={webhook_id}"), 1),
        ("provider_event_id=4711-paid", 1),
        ("provider_event_id=4711-paid&provider=shop", 1),
        ("provider_event_id=4711-paid&provider=other", 0),
        ("provider_event_id=4711", 0),
    ] {
        assert_eq!(ids(&rig, &format!("/v1/webhook-events?{query}"), 1).len(), count, "{query}");
    }
}

#[test]
fn deliveries_are_listed_by_the_time_they_were_made() {
    let (rig, _receiver) = with_120_events();
    rig.advance(secs(60));
    // With a key that the receiver does not refuse.
    rig.post(
        "/v1/events",
        &json!({ "event_type": "late", "idempotency_key": "k-late", "payload": 1 }),
    )
    .is(201);
    rig.settle();
    for (query, count) in [
        ("since=2026-01-31T12:01:00Z", 1),
        ("until=2026-01-31T12:01:00Z", 120),
        ("since=2026-01-31T12:00:00Z&until=2026-01-31T12:01:00Z&state=dead_letter", 12),
        ("since=2026-01-31T12:00:01Z&subscription=erp", 1),
        ("since=2026-01-31T12:01:01Z", 0),
    ] {
        assert_eq!(ids(&rig, &format!("/v1/deliveries?{query}"), 11).len(), count, "{query}");
    }
    let dead = |query: &str| ids(&rig, &format!("/v1/dead-letters?{query}"), 5).len();
    assert_eq!(dead("until=2026-01-31T12:01:00Z"), 12);
    assert_eq!(dead("since=2026-01-31T12:01:00Z"), 0);
}

#[test]
fn a_filter_or_cursor_that_cannot_be_meant_is_refused() {
    let rig = Rig::new();
    for query in words(
        "stauts=pending status=done since=yesterday limit=0 limit=501 limit=x \
        after=x status=%ff",
    ) {
        rig.call("GET", &format!("/v1/events?{query}"), b"").is(400);
    }
}

#[test]
fn the_deliveries_of_one_event_can_be_filtered_further_and_paged() {
    let rig = Rig::new();
    let receivers: Vec<Receiver> = (0..6).map(|_| Receiver::new()).collect();
    for (n, receiver) in receivers.iter().enumerate() {
        receiver.always(Reply::status(if n < 3 { 400 } else { 200 }));
        rig.subscribe(&format!("s{n}"), receiver);
    }
    let id = text(&rig.publish_type("a"), "id");
    rig.settle();
    let of_event = format!("/v1/deliveries?event_id={id}");
    assert_eq!(ids(&rig, &of_event, 4).len(), 6);
    assert_eq!(ids(&rig, &format!("{of_event}&state=dead_letter"), 2).len(), 3);
    assert_eq!(ids(&rig, &format!("{of_event}&subscription=s4"), 2).len(), 1);
    assert_eq!(ids(&rig, &format!("{of_event}&subscription=s4&state=dead_letter"), 2).len(), 0);
}

#[test]
fn the_attempts_of_a_delivery_are_shown_in_order() {
    let rig = Rig::new();
    let receiver = Receiver::scripted([Reply::Answer(500, Vec::new(), b"no".to_vec())]);
    rig.subscribe("erp", &receiver);
    rig.deliver("a");
    rig.pass(secs(5));
    assert_eq!(ids(&rig, "/v1/deliveries/dlv_1/attempts", 1), ["dlv_1.1", "dlv_1.2"]);
    let first = rig.get("/v1/deliveries/dlv_1/attempts")["items"][0].clone();
    for (field, value) in [
        ("class", json!("transient")),
        ("counted", json!(true)),
        ("http_status", json!(500)),
        ("excerpt", json!("no")),
        ("failed_reason", json!("the target answered 500")),
        ("url", json!(receiver.url())),
    ] {
        assert_eq!(first[field], value, "{field}");
    }
}

#[test]
fn the_numbers_of_the_stats_are_right() {
    let (rig, _receiver) = with_120_events();
    rig.call("POST", "/v1/subscriptions/erp/pause", b"").is(200);
    rig.publish_type("a");
    let stats = rig.get("/v1/stats");
    for (field, value) in [("subscriptions", 1), ("pending", 1), ("dead_letters", 12)] {
        assert_eq!(stats[field], value, "{field}");
    }
}

#[test]
fn a_running_service_is_alive_and_ready() {
    let rig = Rig::new();
    rig.send("GET", "/livez", &[], b"").is(200);
    rig.send("GET", "/readyz", &[], b"").is(200);
}

/// The names or ids of a list.
fn found(rig: &Rig, path: &str, field: &str) -> Vec<String> {
    rig.items(path).iter().map(|item| text(item, field)).collect()
}

/// Seed 002: "List subscriptions for an owner"; "Find active subscriptions for an event type".
#[test]
fn subscriptions_are_listed_by_owner_event_type_and_state() {
    let rig = Rig::new();
    for (name, types, owner) in [
        ("erp", json!(["invoice.*"]), "finance"),
        ("shop", json!(["invoice.paid", "order.*"]), "sales"),
        ("all", json!(["*"]), "finance"),
    ] {
        rig.pull(name, &json!({ "event_types": types, "owner_id": owner }));
    }
    rig.call("POST", "/v1/subscriptions/shop/pause", b"").is(200);
    for (query, names) in [
        ("event_type=invoice.paid&state=ACTIVE", "erp all"),
        ("state=PAUSED", "shop"),
        ("owner_id=finance", "erp all"),
        ("event_type=invoice.paid", "erp shop all"),
        ("event_type=order.paid", "shop all"),
        ("owner_id=finance&event_type=order.paid", "all"),
        // A page goes on until it has something.
        ("owner_id=finance&event_type=order.paid&limit=1", "all"),
        ("owner_id=nobody", ""),
    ] {
        let path = format!("/v1/subscriptions?{query}");
        assert_eq!(found(&rig, &path, "name").join(" "), names, "{query}");
    }
    assert_eq!(ids(&rig, "/v1/subscriptions?owner_id=finance", 1).len(), 2);
}

/// "Aggregate event history: (`aggregate_type`, `aggregate_id`, `created_at`)".
#[test]
fn the_events_of_an_aggregate_are_listed_in_the_order_of_time() {
    let rig = Rig::new();
    for (kind, n) in [("invoice", 1), ("order", 2), ("invoice", 3)] {
        rig.publish(&json!({
            "event_type": "a", "aggregate_type": kind, "aggregate_id": "4711", "payload": 1, "process_id": n.to_string()
        }));
    }
    rig.post(
        "/v1/events",
        &json!({ "event_type": "a", "aggregate_type": "invoice", "payload": 1, "target": "none" }),
    )
    .is(201);
    for (query, processes) in [
        ("aggregate_type=invoice&aggregate_id=4711", "3 1"),
        ("aggregate_type=order&aggregate_id=4711", "2"),
        ("aggregate_type=invoice&aggregate_id=4712", ""),
        ("aggregate_id=4711", "3 2 1"),
        ("aggregate_type=order", "2"),
        ("aggregate_type=order&process_id=1", ""),
    ] {
        let path = format!("/v1/events?{query}");
        assert_eq!(found(&rig, &path, "process_id").join(" "), processes, "{query}");
    }
    let quarantined = |kind: &str| {
        found(&rig, &format!("/v1/events?status=quarantined&aggregate_type={kind}"), "id").len()
    };
    assert_eq!((quarantined("invoice"), quarantined("order")), (1, 0));
}

/// "`webhook_deliveries`: `http_status`".
#[test]
fn deliveries_are_listed_by_the_status_of_the_last_answer() {
    let (rig, _receiver) = with_120_events();
    let event = rig.items("/v1/events?idempotency_key=k-3")[0]["id"].clone();
    let event = event.as_str().unwrap();
    for (query, count) in [
        ("code=400", 12),
        ("code=200", 108),
        ("code=503", 0),
        ("code=400&state=completed", 0),
        ("code=400&state=dead_letter&subscription=erp", 12),
        ("code=400&state=in_doubt", 0),
        (&format!("code=400&event_id={event}"), 1),
        (&format!("code=200&event_id={event}"), 0),
    ] {
        assert_eq!(ids(&rig, &format!("/v1/deliveries?{query}"), 11).len(), count, "{query}");
    }
    rig.call("GET", "/v1/deliveries?code=99", b"").is(400);
}

#[test]
fn those_that_need_a_look_are_a_list_without_gaps() {
    let rig = Rig::new();
    let names: Vec<String> = (1..=25).map(|n| format!("shop-{n:02}")).collect();
    let owner = |n: usize| if n.is_multiple_of(2) { "erp" } else { "crm" };
    for (n, name) in names.iter().enumerate() {
        let body = json!({ "name": name, "target": "pull", "owner_id": owner(n) });
        rig.post("/v1/subscriptions", &body).is(201);
    }
    for name in ["shop-02", "shop-25"] {
        rig.call("POST", &format!("/v1/subscriptions/{name}/pause"), b"").is(200);
    }
    let page = |query: &str| {
        let found = rig.get(&format!("/v1/subscriptions?{query}"));
        let names: Vec<String> =
            found["items"].as_array().unwrap().iter().map(|row| text(row, "name")).collect();
        (names, found["next"].clone())
    };
    let both = || vec!["shop-02".to_owned(), "shop-25".to_owned()];
    assert_eq!(page("troubled=true&limit=5"), (both(), Value::Null));
    let (rest, next) = page("troubled=false&limit=30");
    assert_eq!((rest.len(), next), (23, Value::Null));
    assert!(!rest.iter().any(|name| both().contains(name)));
    let (of_erp, next) = page("owner_id=erp&limit=5");
    assert_eq!(of_erp, ["shop-01", "shop-03", "shop-05", "shop-07", "shop-09"]);
    let (more, _) = page(&format!("owner_id=erp&limit=5&after={}", next.as_str().unwrap()));
    assert_eq!(more.first().unwrap(), "shop-11");
    assert_eq!(page("state=DISABLED_DEAD&limit=5"), (Vec::new(), Value::Null));
    assert_eq!(page("owner_id=erp&troubled=true").0, ["shop-25"]);
}
