//! Event types: what is checked when an event comes in, by whichever way, and what becomes of one that does not fit.

use oncebox::config::Unregistered;

use crate::rig::prelude::*;

/// Sets the type `invoice.created`: an object with a text `total`, and nothing else but a `lines`.
fn register(rig: &Rig, on_invalid: &str) -> Value {
    let schema = json!({
        "type": "object", "required": ["total"], "additionalProperties": false,
        "properties": {
            "total": { "type": "string", "pattern": "^[0-9]+[.][0-9]{2}$" },
            "lines": { "type": "array", "items": { "$ref": "#/$defs/line" } },
        },
        "$defs": { "line": { "type": "object", "properties": { "count": { "type": "integer", "minimum": 1 } } } },
    });
    let body = json!({ "schema": schema, "description": "An invoice was made.",
        "example": { "total": "99.00" }, "on_invalid": on_invalid });
    let answer = put(rig, "invoice.created", &body);
    assert!(matches!(answer.status, 200 | 201), "{answer:?}");
    answer.json()
}

fn put(rig: &Rig, name: &str, body: &Value) -> Answer {
    rig.call("PUT", &format!("/v1/event-types/{name}"), body.to_string().as_bytes())
}

fn invoice(payload: &Value) -> Value {
    json!({ "event_type": "invoice.created", "payload": payload })
}

fn quarantined(rig: &Rig) -> Vec<Value> {
    rig.items("/v1/events?status=quarantined")
}

#[test]
fn an_event_that_does_not_fit_is_rejected_with_the_place_and_the_reason() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    rig.subscribe("erp", &receiver);
    let made = register(&rig, "reject");
    assert_eq!((&made["name"], &made["on_invalid"]), (&json!("invoice.created"), &json!("reject")));
    assert_eq!(rig.get("/v1/event-types/invoice.created"), made);
    for (payload, why) in [
        (json!({ "total": 99 }), "/total must be string, and is number"),
        (json!({ "total": "99" }), "/total does not match the pattern ^[0-9]+[.][0-9]{2}$"),
        (json!({}), "the payload has no member \"total\""),
        (json!({ "total": "1.00", "x": 1 }), "/x is not allowed"),
        (
            json!({ "total": "1.00", "lines": [{ "count": 0 }] }),
            "/lines/0/count must be at least 1",
        ),
        (json!([]), "the payload must be object, and is array"),
    ] {
        let answer = rig.post("/v1/events", &invoice(&payload)).is(422).json();
        let detail = answer["detail"].as_str().unwrap();
        assert!(detail.starts_with("The event does not fit ") && detail.contains(why), "{detail}");
    }
    // All or none, and the item is named.
    let batch = json!([invoice(&json!({ "total": "1.00" })), invoice(&json!({ "total": 1 }))]);
    let detail = rig.post("/v1/events", &batch).is(422).json()["detail"].to_string();
    assert!(detail.contains("Event 1 (counted from 0): it does not fit"), "{detail}");
    assert_eq!(rig.one("SELECT count(*) FROM outbox"), "0");
    let bytes = json!({ "event_type": "invoice.created", "payload_base64": "AAAA" });
    let detail = rig.post("/v1/events", &bytes).is(422).json()["detail"].to_string();
    assert!(detail.contains("the payload is not JSON"), "{detail}");
    // What fits, and what is of another type, passes.
    rig.post("/v1/events", &invoice(&json!({ "total": "1.00" }))).is(201);
    rig.publish_type("order.created");
    until("both are delivered", || receiver.count() == 2);
}

#[test]
fn one_that_is_to_be_quarantined_waits_for_a_person_and_is_checked_again() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    rig.subscribe("erp", &receiver);
    register(&rig, "quarantine");
    let batch =
        json!([invoice(&json!({ "total": "1.00" })), invoice(&json!({ "total": "secret" }))]);
    let events = rig.post("/v1/events", &batch).is(201).json()["events"].clone();
    rig.settle();
    has(&events, &json!({ "0.status": "pending", "1.status": "quarantined" }));
    let found = quarantined(&rig).remove(0);
    assert_eq!(found["error_code"], "misfit");
    let why = found["last_error"].as_str().unwrap();
    assert!(why.contains("/total does not match") && !why.contains("secret"), "{why}");
    let fix = format!("/v1/events/{}/fix", events[1]["id"].as_str().unwrap());
    for body in [json!({}), json!({ "payload": { "total": 2 } })] {
        shows(&rig.post(&fix, &body).is(422).json()["detail"].to_string(), &["misfit: /total"]);
    }
    rig.post(&fix, &json!({ "payload": { "total": "2.00" } })).is(200);
    until("both are delivered", || receiver.count() == 2);
    assert_eq!(quarantined(&rig), [Value::Null; 0]);
    // One that is sent again as a new event with another payload is checked as well.
    let replay = format!("/v1/events/{}/replay", events[0]["id"].as_str().unwrap());
    let body = json!({ "as_new": true, "payload": { "total": 3 } });
    let detail = rig.post(&replay, &body).is(422).json()["detail"].to_string();
    assert!(detail.contains("does not fit its event type"), "{detail}");
}

#[test]
fn rows_of_plain_sql_a_table_and_a_folder_that_do_not_fit_are_quarantined() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    rig.subscribe("erp", &receiver);
    register(&rig, "reject");
    let own = rig.writable();
    let rows = "INSERT INTO outbox (event_type, payload) VALUES
                ('invoice.created', '{\"total\":1}'), ('invoice.created', '{\"total\":\"1.00\"}')";
    own.run(rows);
    let path = rig.home().join("erp.db");
    let erp = file::new_outbox(&path);
    erp.run(rows);
    rig.source("erp", "sqlite", &json!({ "path": path }));
    let folder = rig.home().join("drop");
    fs::create_dir(&folder).unwrap();
    rig.source("files", "drop", &json!({ "path": folder }));
    let lines = "{\"event_type\":\"invoice.created\",\"payload\":{\"total\":1}}\n\
                 {\"event_type\":\"invoice.created\",\"payload\":{\"total\":\"1.00\"}}\n";
    fs::write(folder.join("a.tmp"), lines).unwrap();
    fs::rename(folder.join("a.tmp"), folder.join("a.ndjson")).unwrap();
    until("one of each is quarantined", || quarantined(&rig).len() == 3);
    until("the other of each is delivered", || receiver.count() == 3);
    for found in quarantined(&rig) {
        assert_eq!(found["error_code"], "misfit", "{found}");
        assert!(found["last_error"].as_str().unwrap().contains("/total must be string"), "{found}");
    }
}

#[test]
fn the_reason_that_a_row_of_plain_sql_does_not_fit_follows_the_privacy_policy() {
    let rig = Rig::new();
    let schema = json!({ "type": "object", "additionalProperties": false });
    put(&rig, "invoice.created", &json!({ "schema": schema })).is(201);
    let policy = json!({ "pii": { "rules": [{ "detect": ["email"], "action": "mask" }] } });
    rig.patch("/v1/tenants/default", &policy).is(200);
    let own = rig.writable();
    own.run(
        "INSERT INTO outbox (event_type, payload) VALUES
         ('invoice.created', '{\"max@example.org\":1}')",
    );
    until("it is quarantined", || quarantined(&rig).len() == 1);
    let found = quarantined(&rig).remove(0);
    assert_eq!(found["error_code"], "misfit");
    let why = found["last_error"].as_str().unwrap();
    assert!(why.contains("is not allowed") && !why.contains("max@"), "{found}");
}

#[test]
fn a_schema_that_cannot_be_used_is_refused_with_the_place() {
    let rig = Rig::new();
    let recursive =
        json!({ "$ref": "#/$defs/a", "$defs": { "a": { "items": { "$ref": "#/$defs/a" } } } });
    let deep = (0..40).fold(json!({}), |inner, _| json!({ "items": inner }));
    for (schema, why) in [
        (json!(1), "must be an object, true or false"),
        (json!({ "type": "text" }), "#/type must be one or more of string"),
        (json!({ "$ref": "https://example.com/a.json" }), "nothing outside the schema is read"),
        (json!({ "$ref": "#/$defs/none" }), "leads nowhere"),
        (recursive, "is recursive"),
        (deep, "nested more than 32 deep"),
        (json!({ "unevaluatedProperties": false }), "is a keyword that is not checked here"),
        (
            json!({ "properties": { "a": { "pattern": "(" } } }),
            "#/properties/a/pattern cannot be used",
        ),
        (json!({ "pattern": "(((((a{9}){9}){9}){9}){9}" }), "#/pattern cannot be used"),
        (json!({ "description": "x".repeat(70_000) }), "at most 65536 are taken"),
    ] {
        let detail =
            put(&rig, "a", &json!({ "schema": schema })).is(422).json()["detail"].to_string();
        assert!(detail.contains(why), "{why}: {detail}");
    }
    let body = json!({ "schema": { "type": "object" }, "example": 1 });
    let detail = put(&rig, "a", &body).is(422).json()["detail"].to_string();
    assert!(detail.contains("The example does not fit"), "{detail}");
    put(&rig, "delivery.completed", &json!({ "schema": {} })).is(422);
    put(&rig, "a", &json!({ "schema": {}, "on_invalid": "drop" })).is(422);
}

#[test]
fn a_change_is_in_force_with_its_answer_and_tenants_have_their_own() {
    let rig = Rig::new();
    put(&rig, "a", &json!({ "schema": { "type": "object" } })).is(201);
    let event = json!({ "event_type": "a", "payload": 1 });
    rig.post("/v1/events", &event).is(422);
    let acme = rig.tenant("acme");
    rig.post_as(&acme, "/v1/events", &event).is(201);
    assert_eq!(rig.call_as(&acme, "GET", "/v1/event-types", b"").json()["items"], json!([]));
    put(&rig, "a", &json!({ "schema": { "type": "integer" } })).is(200);
    rig.post("/v1/events", &event).is(201);
    put(&rig, "a", &json!({ "schema": false })).is(200);
    rig.post("/v1/events", &event).is(422);
    rig.delete("/v1/event-types/a").is(204);
    rig.post("/v1/events", &event).is(201);
    rig.delete("/v1/event-types/a").is(404);
}

#[test]
fn types_that_are_not_registered_pass_unless_told_otherwise() {
    let rig = Rig::with(|settings| settings.events.unregistered = Unregistered::Reject);
    let answer = rig.post("/v1/events", &json!({ "event_type": "a", "payload": 1 })).is(422).json();
    assert!(answer["detail"].as_str().unwrap().contains("is not registered"), "{answer}");
    put(&rig, "a", &json!({ "schema": {} })).is(201);
    rig.publish_type("a");
    // Oncebox's own events are none of a tenant's.
    let told = Receiver::new();
    rig.subscribe_with(
        "told",
        &told,
        &json!({ "event_types": ["a", "delivery.completed", "subscription.*"] }),
    );
    rig.call("POST", "/v1/subscriptions/told/pause", b"").is(200);
    rig.call("POST", "/v1/subscriptions/told/resume", b"").is(200);
    until("both are told", || told.count() == 2);
}

#[test]
fn a_schema_is_proposed_from_stored_events_and_they_fit_it() {
    let rig = Rig::new();
    let id = "019c1447-5800-7000-8000-000000000009";
    for payload in [
        json!({ "id": id, "at": "2026-01-31T12:00:00Z", "total": 1, "lines": [{ "n": 1 }] }),
        json!({ "id": id, "at": "2026-01-31T12:00:00Z", "total": 1.5, "lines": [], "note": null }),
    ] {
        rig.publish(&invoice(&payload));
    }
    let proposal = rig.get("/v1/event-types/invoice.created/proposal");
    assert_eq!(proposal["events"], 2);
    let schema = &proposal["schema"];
    assert_eq!(schema["required"], json!(["at", "id", "lines", "total"]));
    let properties = &schema["properties"];
    assert_eq!(properties["total"], json!({ "type": "number" }));
    assert_eq!(properties["id"], json!({ "type": "string", "format": "uuid" }));
    assert_eq!(properties["at"], json!({ "type": "string", "format": "date-time" }));
    assert_eq!(properties["lines"]["items"]["properties"]["n"], json!({ "type": "integer" }));
    put(&rig, "invoice.created", &json!({ "schema": schema })).is(201);
    rig.publish(&invoice(
        &json!({ "id": id, "at": "2026-01-31T12:00:00Z", "total": 2, "lines": [] }),
    ));
    rig.post("/v1/events", &invoice(&json!({ "id": "1" }))).is(422);
    assert_eq!(rig.get("/v1/event-types/nothing/proposal")["events"], 0);
}

#[test]
fn the_document_describes_the_types_to_those_who_have_a_token() {
    let rig = Rig::new();
    register(&rig, "reject");
    let public = rig.send("GET", "/openapi.json", &[], b"").is(200).json();
    let webhooks = public["webhooks"].as_object().unwrap();
    assert!(
        webhooks.contains_key("delivery.completed") && !webhooks.contains_key("invoice.created")
    );
    let shown = rig.get("/openapi.json");
    let post = &shown["webhooks"]["invoice.created"]["post"];
    assert_eq!(post["description"], "An invoice was made.");
    let content = &post["requestBody"]["content"]["application/json"];
    has(content, &json!({ "example": { "total": "99.00" }, "schema.required": ["total"] }));
    let other = rig.tenant("acme");
    assert_eq!(rig.get_as(&other, "/openapi.json"), public);
}

#[test]
fn one_type_that_cannot_be_read_does_not_stop_the_others() {
    let rig = Rig::new();
    register(&rig, "reject");
    let schema = json!({ "type": "object" });
    put(&rig, "order.created", &json!({ "schema": schema })).is(201);
    let own = rig.writable();
    let spoil = "UPDATE event_types SET schema = '{' WHERE name = 'order.created'";
    own.run(&format!("PRAGMA ignore_check_constraints = 1; {spoil}"));
    put(&rig, "order.changed", &json!({ "schema": schema })).is(201);
    rig.post("/v1/events", &invoice(&json!({ "total": 1 }))).is(422);
    rig.post("/v1/events", &invoice(&json!({ "total": "1.00" }))).is(201);
}

#[test]
fn large_types_are_listed_a_few_at_a_time() {
    let rig = Rig::new();
    let example = "x".repeat(100_000);
    for n in 0..4 {
        put(&rig, &format!("large.{n}"), &json!({ "schema": true, "example": example })).is(201);
    }
    let first = rig.get("/v1/event-types?limit=500");
    assert_eq!(first["items"].as_array().unwrap().len(), 3);
    let next = first["next"].as_str().unwrap();
    let rest = rig.get(&format!("/v1/event-types?limit=500&after={next}"));
    assert_eq!((&rest["items"][0]["name"], &rest["next"]), (&json!("large.3"), &Value::Null));
    let document = rig.get("/openapi.json");
    assert!((0..4).all(|n| document["webhooks"][format!("large.{n}")].is_object()));
}

/// How often a schema was compiled to check an event.
fn compiled(rig: &Rig) -> u64 {
    rig.appliance().api().flow.publish.event_types.compiled.get()
}

#[test]
fn a_change_of_one_event_type_makes_no_other_one_be_compiled_again() {
    let rig = Rig::new();
    let acme = rig.tenant("acme");
    register(&rig, "quarantine");
    let fits = || rig.publish(&invoice(&json!({ "total": "1.00" })));
    fits();
    let before = compiled(&rig);
    for n in 0..5 {
        let body = json!({ "schema": { "type": "object" } }).to_string();
        let path = format!("/v1/event-types/t{n}");
        rig.call_as(&acme, "PUT", &path, body.as_bytes()).is(201);
        put(&rig, &format!("other{n}"), &json!({ "schema": true })).is(201);
        rig.publish_type(&format!("never-registered-{n}"));
        fits();
    }
    assert_eq!(compiled(&rig), before);
    // The type itself is compiled again, once.
    register(&rig, "reject");
    fits();
    fits();
    assert_eq!(compiled(&rig), before + 1);
    rig.call("DELETE", "/v1/event-types/invoice.created", b"").is(204);
    rig.publish(&invoice(&json!({ "total": 1 })));
    register(&rig, "reject");
    rig.post("/v1/events", &invoice(&json!({ "total": 1 }))).is(422);
}

#[test]
fn rows_of_many_registered_types_are_routed_in_their_order_before_what_is_published_later() {
    let rig = Rig::new();
    let schema = json!({ "schema": { "type": "object", "required": ["a"] } });
    for n in 0..9 {
        put(&rig, &format!("t{n}"), &schema).is(201);
    }
    rig.pull("erp", &json!({ "ordering": "key" }));
    let rows: Vec<String> = (0..18)
        .map(|n| {
            let payload = if n % 9 == 4 { "{}" } else { "{\"a\":1}" };
            format!(
                "INSERT INTO outbox (event_type, payload, ordering_key) VALUES ('t{}', '{payload}', 'k');",
                n % 9
            )
        })
        .collect();
    rig.write(&rows.concat());
    rig.publish(&json!({ "event_type": "t1", "payload": { "a": 1 }, "ordering_key": "k" }));
    rig.becomes(
        "SELECT count(*) FROM outbox WHERE routed_at IS NULL AND status <> 'quarantined'",
        "0",
    );
    assert_eq!(quarantined(&rig).len(), 2);
    let order = "SELECT count(*) FROM (SELECT outbox_seq, lag(outbox_seq) OVER (ORDER BY seq) AS before FROM deliveries)
                  WHERE before > outbox_seq";
    rig.says(order, "0");
    rig.says("SELECT count(*) FROM deliveries", "17");
}
