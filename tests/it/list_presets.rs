//! Lists of providers and ERPs as their presets read them, over HTTP.

use crate::it::http_sources::{json_page, parameter};
use crate::rig::prelude::*;

const SECRET: &str = "gocardless-secret-0123456789abcdef";

/// A page as it is answered, whatever is asked for.
fn server(page: &Value) -> Receiver {
    Receiver::with(json_page(page))
}

fn gocardless(ids: &[&str]) -> Vec<Value> {
    let event = |id: &&str| json!({ "id": id, "created_at": START.to_string(), "resource_type": "payments", "action": "confirmed" });
    ids.iter().map(event).collect()
}

#[test]
fn an_event_of_a_list_is_that_of_a_batch_of_webhooks() {
    let rig = Rig::new();
    let check = json!({ "hmac": { "signed": "{body}", "header": "Webhook-Signature" } });
    rig.provider(
        "gocardless",
        &json!({
            "kind": "generic", "check": check, "items": "/events",
            "event_id": { "pointer": "/id" }, "event_type": { "pointer": "/resource_type" },
        }),
        SECRET,
    );
    let body = json!({ "events": gocardless(&["EV2", "EV1"]) }).to_string();
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    let signature = HEXLOWER.encode(hmac::sign(&key, body.as_bytes()).as_ref());
    let fields = [("webhook-signature", signature.as_str()), ("content-type", "application/json")];
    rig.send("POST", "/in/gocardless", &fields, body.as_bytes()).is(200);
    let listed = json!({ "events": gocardless(&["EV3", "EV2", "EV1"]), "meta": { "cursors": { "after": null } } });
    let list = server(&listed);
    let url = format!("http://{}/events?limit=500", list.address);
    let settings = json!({ "preset": "gocardless", "provider": "gocardless", "url": url });
    rig.source("list", "http", &settings);
    rig.post("/v1/sources/list/credentials", &json!({ "kind": "bearer", "secret": "token" }))
        .is(201);
    rig.becomes("SELECT event_count FROM sources", "1");
    let stored = "SELECT group_concat(provider_event_id || ' ' || origin || ' ' || event_type, ', ') FROM webhook_events";
    rig.says(stored, "EV2 webhook payments, EV1 webhook payments, EV3 listed payments");
    assert_eq!(list.seen()[0].field("gocardless-version"), Some("2015-07-06"));
}

#[test]
fn a_document_of_an_erp_is_a_new_event_with_each_change() {
    let rig = Rig::new();
    let list = Receiver::new();
    let documents = Arc::new(Mutex::new(vec![("ACC-1", "2026-01-31 11:00:00.000000")]));
    let answered = Arc::clone(&documents);
    list.decide(move |request| {
        let is_first = parameter(request, "limit_start").is_none();
        let documents = answered.lock().unwrap();
        let document = |(name, modified): &(&str, &str)| json!({ "name": name, "modified": modified, "grand_total": 99.00 });
        let page: Vec<Value> = documents.iter().filter(|_| is_first).map(document).collect();
        json_page(&json!({ "data": page }))
    });
    let url = format!("http://{}/api/resource/Sales%20Invoice?limit_page_length=100", list.address);
    let settings =
        json!({ "preset": "erpnext", "url": url, "defaults": { "event_type": "invoice.changed" } });
    rig.source("invoices", "http", &settings);
    let key = json!({ "kind": "api_key", "header": "authorization", "secret": "token key:secret" });
    rig.post("/v1/sources/invoices/credentials", &key).is(201);
    rig.becomes("SELECT count(*) FROM outbox WHERE event_type = 'invoice.changed'", "1");
    assert_eq!(list.seen()[0].field("authorization"), Some("token key:secret"));
    documents.lock().unwrap()[0].1 = "2026-01-31 12:00:30.000000";
    rig.passing("the change is read", secs(120), || {
        rig.one("SELECT count(*) FROM outbox WHERE event_type = 'invoice.changed'") == "2"
    });
    let asked = list.seen();
    let since = asked.last().unwrap();
    let filters = parameter(since, "filters").unwrap();
    assert!(filters.contains("%22modified%22%2C%22%3E%3D%22%2C%222026-01-31%20"), "{filters}");
    has(&rig.get("/v1/sources/invoices"), &json!({ "event_count": 2, "last_error": null }));
}

#[test]
fn orders_without_a_type_of_their_own_have_that_of_the_preset() {
    let rig = Rig::new();
    let list =
        server(&json!({ "orders": [{ "id": 7, "updated_at": "2026-01-31T06:59:00-05:00" }] }));
    let url = format!("http://{}/admin/api/2025-10/orders.json?status=any&limit=250", list.address);
    let of = |more: &Value| {
        merged(json!({ "preset": "shopify", "url": url, "needs_credential": false }), more)
    };
    rig.source("orders", "http", &of(&json!({})));
    rig.source("named", "http", &of(&json!({ "defaults": { "event_type": "order.seen" } })));
    rig.becomes("SELECT count(*) FROM outbox", "2");
    let types = "SELECT group_concat(event_type || ' ' || idempotency_key, ', ') FROM (SELECT * FROM outbox ORDER BY event_type)";
    rig.says(
        types,
        "order.seen 7:2026-01-31T06:59:00-05:00, orders/updated 7:2026-01-31T06:59:00-05:00",
    );
}

/// Two deliveries of a GitHub webhook, the newest first, and their payloads.
fn github(request: &Message) -> Reply {
    let target = request.first_line.split(' ').nth(1).unwrap();
    let payload = |n: u64| json!({ "request": { "headers": {}, "payload": { "action": "opened", "issue": n } } });
    let delivery = |id: u64, guid: &str, at: &str| json!({ "id": id, "guid": guid, "delivered_at": at, "event": "issues" });
    let first = "/repos/o/r/hooks/1/deliveries";
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    match path.strip_prefix(first) {
        Some("") if query.contains("cursor") => json_page(&json!([
            delivery(11, "guid-1", "2026-01-31T11:50:00Z"),
            delivery(10, "guid-0", "2026-01-31T11:49:00Z"),
        ])),
        Some("") => {
            let host = request.field("host").unwrap();
            let next = format!("<http://{host}{first}?per_page=30&cursor=v1>; rel=\"next\"");
            let page = json!([
                delivery(13, "guid-1", "2026-01-31T11:55:00Z"),
                delivery(12, "guid-2", "2026-01-31T11:51:00Z")
            ]);
            let fields = vec![("link", next), ("content-type", "application/json".to_owned())];
            Reply::Answer(200, fields, page.to_string().into_bytes())
        }
        Some("/13" | "/11") => json_page(&payload(1)),
        Some("/12") => json_page(&payload(2)),
        _ => Reply::status(404),
    }
}

#[test]
fn payloads_that_a_list_does_not_have_are_asked_for_one_by_one() {
    let rig = Rig::new();
    let secret = "github-secret-0123456789abcdef";
    rig.provider("github", &json!({ "kind": "github" }), secret);
    // The webhook of one of them came.
    let body = r#"{"action":"opened","issue":2}"#;
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let signature =
        format!("sha256={}", HEXLOWER.encode(hmac::sign(&key, body.as_bytes()).as_ref()));
    let fields = [
        ("x-hub-signature-256", signature.as_str()),
        ("x-github-delivery", "guid-2"),
        ("x-github-event", "issues"),
        ("content-type", "application/json"),
    ];
    rig.send("POST", "/in/github", &fields, body.as_bytes()).is(200);
    let list = Receiver::new();
    list.decide(github);
    let url = format!("http://{}/repos/o/r/hooks/1/deliveries?per_page=30", list.address);
    let settings = json!({ "preset": "github", "provider": "github", "url": url });
    rig.source("list", "http", &settings);
    rig.post("/v1/sources/list/credentials", &json!({ "kind": "bearer", "secret": "token" }))
        .is(201);
    rig.becomes("SELECT count(*) FROM webhook_events", "2");
    let stored = "SELECT group_concat(provider_event_id || ' ' || origin || ' ' || event_type || ' ' || payload, ', ') FROM webhook_events";
    rig.says(
        stored,
        r#"guid-2 webhook issues.opened {"action":"opened","issue":2}, guid-1 listed issues.opened {"action":"opened","issue":1}"#,
    );
    // What is gone is an event in quarantine, once; what is known is not asked for.
    rig.becomes("SELECT count(*) FROM outbox WHERE status = 'quarantined'", "1");
    let quarantined = rig.get("/v1/events?status=quarantined")["items"][0].to_string();
    assert!(quarantined.contains("item guid-0: its payload cannot be had"), "{quarantined}");
    let asked = |end: &str| {
        let of = |request: &Message| request.first_line.contains(&format!("/deliveries/{end} "));
        list.seen().iter().filter(|request| of(request)).count()
    };
    assert_eq!((asked("12"), asked("13")), (0, 1));
    assert_eq!(list.seen()[0].field("x-github-api-version"), Some("2022-11-28"));
    // A comparison finds the same.
    let runs = "/v1/providers/github/reconciliations";
    let run = rig.post(runs, &json!({ "since": "2026-01-30T00:00:00Z" })).is(201);
    let path = format!("{runs}/{}", text(&run.json(), "id"));
    rig.passing("the comparison ends", secs(120), || rig.get(&path)["state"] != "RUNNING");
    let counts = json!({ "sent": 3, "received": 1, "taken_in": 1, "refused": 1, "missing": 0 });
    has(&rig.get(&path), &counts);
}

#[test]
fn payloads_that_came_before_an_error_are_stored() {
    let rig = Rig::new();
    rig.provider("github", &json!({ "kind": "github" }), "github-secret-0123456789abcdef");
    let list = Receiver::new();
    // The first request for the payload of the newest delivery is refused.
    let refusals = Arc::new(Mutex::new(1));
    list.decide(move |request| {
        let mut left = refusals.lock().unwrap();
        if *left > 0 && request.first_line.contains("/deliveries/13 ") {
            *left -= 1;
            return Reply::with(429, "retry-after", "120");
        }
        github(request)
    });
    let url = format!("http://{}/repos/o/r/hooks/1/deliveries?per_page=30", list.address);
    let settings = json!({ "preset": "github", "provider": "github", "url": url });
    rig.source("list", "http", &settings);
    rig.post("/v1/sources/list/credentials", &json!({ "kind": "bearer", "secret": "token" }))
        .is(201);
    let stored =
        "SELECT group_concat(provider_event_id) FROM (SELECT * FROM webhook_events ORDER BY seq)";
    rig.becomes(stored, "guid-2");
    rig.advance(secs(110));
    rig.settle();
    rig.says(stored, "guid-2");
    rig.passing("it is asked for again after its time", secs(2), || {
        rig.one(stored) == "guid-2,guid-1"
    });
}

#[test]
fn payloads_of_a_page_may_be_larger_than_a_turn() {
    let mut rig = Rig::new();
    let provider = json!({
        "name": "github", "scheme": { "kind": "github" }, "pii": "allow", "body_bytes_max": 20 << 20,
        "secret": "github-secret-0123456789abcdef",
    });
    rig.post("/v1/providers", &provider).is(201);
    let list = Receiver::new();
    list.decide(|request| {
        let mib = |count: usize| {
            let text = "x".repeat(count << 20);
            json_page(&json!({ "request": { "payload": { "action": "opened", "text": text } } }))
        };
        let delivery = |id: u64| json!({ "id": id, "guid": format!("guid-{id}"), "delivered_at": "2026-01-31T11:50:00Z", "event": "issues" });
        match request.first_line.split(' ').nth(1).unwrap() {
            "/deliveries/1" | "/deliveries/2" => mib(9),
            "/deliveries/3" => mib(17),
            _ => json_page(&json!([delivery(1), delivery(2), delivery(3)])),
        }
    });
    let url = format!("http://{}/deliveries", list.address);
    rig.source("list", "http", &json!({ "preset": "github", "provider": "github", "url": url }));
    rig.post("/v1/sources/list/credentials", &json!({ "kind": "bearer", "secret": "token" }))
        .is(201);
    let stored = "SELECT group_concat(provider_event_id) FROM webhook_events";
    rig.becomes(stored, "guid-1,guid-2");
    rig.becomes("SELECT count(*) FROM outbox WHERE status = 'quarantined'", "1");
    let quarantined = rig.get("/v1/events?status=quarantined")["items"][0].to_string();
    assert!(quarantined.contains("its payload has more than 16777216 bytes"), "{quarantined}");
    until("the round has ended", || rig.get("/v1/sources/list")["lag"] == 0);
    rig.restart();
    rig.says(stored, "guid-1,guid-2");
}

#[test]
fn a_list_that_is_posted_for_gets_time_and_page_in_its_body() {
    let rig = Rig::new();
    let list = Receiver::new();
    list.decide(|request| {
        let asked: Value = serde_json::from_slice(&request.body).unwrap();
        let of = |id: u64| json!({ "id": id, "name": format!("S0000{id}"), "write_date": "2026-01-31 11:59:00" });
        let offset = asked["offset"].as_u64().unwrap();
        json_page(&json!((offset + 1..=3).take(2).map(of).collect::<Vec<_>>()))
    });
    let url = format!("http://{}/json/2/sale.order/search_read", list.address);
    let settings = json!({
        "preset": "odoo", "url": url, "headers": { "X-Odoo-Database": "main" },
        "defaults": { "event_type": "order.changed" },
    });
    rig.source("orders", "http", &settings);
    rig.post("/v1/sources/orders/credentials", &json!({ "kind": "bearer", "secret": "key" }))
        .is(201);
    rig.becomes("SELECT count(*) FROM outbox WHERE event_type = 'order.changed'", "3");
    let seen = list.seen();
    assert!(seen[0].first_line.starts_with("POST /json/2/sale.order/search_read "));
    assert_eq!(seen[0].field("x-odoo-database"), Some("main"));
    assert_eq!(seen[0].field("content-type"), Some("application/json"));
    let body = |n: usize| serde_json::from_slice::<Value>(&seen[n].body).unwrap();
    assert_eq!((&body(0)["offset"], &body(1)["offset"]), (&json!(0), &json!(2)));
    assert_eq!(body(0)["domain"][0][2], "1970-01-01 00:00:00");
    let later =
        || list.seen().last().map(|request| String::from_utf8_lossy(&request.body).into_owned());
    rig.passing("only newer ones are asked for", secs(120), || {
        later().is_some_and(|body| body.contains("2026-01-31 11:49:00"))
    });
    has(&rig.get("/v1/sources/orders"), &json!({ "event_count": 3, "last_error": null }));
}

#[test]
fn a_time_in_a_header_field_may_be_answered_with_nothing_newer() {
    let rig = Rig::new();
    let list = Receiver::new();
    list.decide(|request| match request.field("if-modified-since") {
        Some("2026-01-31T11:49:00") => Reply::status(304),
        None if !request.first_line.contains("page=") => json_page(&json!({
            "Invoices": [{ "InvoiceID": "i-1", "UpdatedDateUTC": "/Date(1769860740000+0000)/", "Total": 99.00 }],
        })),
        _ => json_page(&json!({ "Invoices": [] })),
    });
    let url = format!("http://{}/api.xro/2.0/Invoices", list.address);
    let settings = json!({
        "preset": "xero", "url": url, "headers": { "xero-tenant-id": "t-1" }, "needs_credential": false,
    });
    rig.source("invoices", "http", &settings);
    rig.becomes("SELECT count(*) FROM outbox WHERE event_type = 'invoice.updated'", "1");
    rig.passing("nothing is newer", secs(180), || {
        list.seen().iter().any(|request| request.field("if-modified-since").is_some())
    });
    let rounds = list.count();
    rig.passing("the next round", secs(180), || list.count() > rounds);
    assert_eq!(list.seen()[0].field("xero-tenant-id"), Some("t-1"));
    has(&rig.get("/v1/sources/invoices"), &json!({ "event_count": 1, "last_error": null }));
    // A list without such a field has no 304.
    let plain = Receiver::with(Reply::status(304));
    let url = format!("http://{}/", plain.address);
    rig.source(
        "plain",
        "http",
        &json!({ "url": url, "item_id": ["/id"], "defaults": { "event_type": "a" } }),
    );
    rig.passing("it is an error", secs(30), || {
        rig.get("/v1/sources/plain")["last_error"].to_string().contains("answers 304")
    });
}

#[test]
fn what_cannot_be_sent_to_a_list_is_refused() {
    let rig = Rig::new();
    let refused = |settings: &Value, why: &str| {
        let url = json!({ "url": "http://127.0.0.1:8080/", "item_id": ["/id"], "defaults": { "event_type": "a" } });
        let source = json!({ "name": "x", "kind": "http", "settings": merged(url, settings) });
        rig.post("/v1/sources", &source).is(422).tells(why);
    };
    let at = json!({ "time": "/at" });
    for name in ["Host", "content-length", "a b", ""] {
        refused(&json!({ "headers": { name: "x" } }), "no header field that can be set");
    }
    refused(&json!({ "headers": { "x": "a\nb" } }), "no header field that can be set");
    refused(&json!({ "headers": { "Authorization": "Bearer x" } }), "kind bearer");
    let offset = json!({ "by": "offset", "parameter": "skip" });
    refused(&json!({ "body": {}, "next": offset }), "the body has no place skip");
    let deep = json!({ "by": "offset", "parameter": "/page/skip" });
    refused(&json!({ "body": { "page": 1 }, "next": deep }), "no place /page/skip");
    let since = json!({ "parameter": "a b", "form": "rfc3339", "in_header": true });
    refused(&merged(at, &json!({ "newer_than": since })), "is no header field");
}

/// Nothing is passed over in silence: a list that ends early says so if it has the newest first.
#[test]
fn a_search_that_ends_early_must_have_the_oldest_first() {
    let rig = Rig::new();
    let list = Receiver::new();
    list.decide(|request| {
        let skip = parameter(request, "skip").map_or(0, |text| text.parse().unwrap());
        let at = |n: u64| START.minus(secs(60 * n)).to_string();
        let object = |n: u64| json!({ "id": n.to_string(), "at": at(n) });
        json_page(&json!((1..=50).skip(skip).take(10).map(object).collect::<Vec<_>>()))
    });
    let settings = json!({
        "url": format!("http://{}/list", list.address), "item_id": ["/id"], "time": "/at", "items_max": 20,
        "next": { "by": "offset", "parameter": "skip" },
        "newer_than": { "parameter": "since", "form": "rfc3339" },
        "defaults": { "event_type": "deal.changed" },
    });
    rig.source("deals", "http", &settings);
    let error = || rig.get("/v1/sources/deals")["last_error"].as_str().map(str::to_owned);
    until("it says why", || error().is_some_and(|why| why.contains("the oldest first")));
    rig.says("SELECT cursor FROM sources", "0");
}

/// A search as `HubSpot`'s: the oldest first, ten to a page, and an error after the thirtieth.
#[test]
fn a_search_that_ends_early_is_read_on_from_its_newest_item() {
    let rig = Rig::new();
    let list = Receiver::new();
    list.decide(|request| {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        let since: i64 =
            text(&body["filterGroups"][0]["filters"][0], "value").parse().unwrap_or_default();
        let after = body["after"].as_str().map_or(0, |after| after.parse().unwrap());
        if after >= 30 {
            return Reply::Answer(
                400,
                Vec::new(),
                b"{\"message\":\"paging cannot go beyond 30\"}".to_vec(),
            );
        }
        let at = |n: i64| START.minus(secs(10_000)).plus(secs(60 * u64::try_from(n).unwrap()));
        let found: Vec<i64> = (1..=95).filter(|n| at(*n).ms() >= since).collect();
        let object = |n: &i64| json!({ "id": n.to_string(), "updatedAt": at(*n).to_string() });
        let page: Vec<Value> = found.iter().skip(after).take(10).map(object).collect();
        let next = (after + 10 < found.len())
            .then(|| json!({ "next": { "after": (after + 10).to_string() } }));
        json_page(&json!({ "results": page, "paging": next }))
    });
    let url = format!("http://{}/crm/v3/objects/deals/search", list.address);
    let settings = json!({
        "preset": "hubspot", "url": url, "items_max": 30, "overlap_ms": 120_000,
        "defaults": { "event_type": "deal.changed" },
    });
    rig.source("deals", "http", &settings);
    rig.post("/v1/sources/deals/credentials", &json!({ "kind": "bearer", "secret": "token" }))
        .is(201);
    rig.becomes("SELECT count(*) FROM outbox", "95");
    rig.says("SELECT count(DISTINCT idempotency_key) FROM outbox", "95");
    let source = rig.get("/v1/sources/deals");
    assert_eq!(source["last_error"], Value::Null);
    let everything = merged(settings, &json!({ "overlap_ms": 86_400_000 }));
    rig.patch("/v1/sources/deals", &json!({ "settings": everything })).is(200);
    until("it says that it comes no further", || {
        rig.get("/v1/sources/deals")["last_error"]
            .as_str()
            .is_some_and(|why| why.contains("Make the overlap shorter"))
    });
}
