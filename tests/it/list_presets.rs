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
