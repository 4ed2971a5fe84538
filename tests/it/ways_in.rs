//! An event has the same fields on every way in, and ends as the same row.

use oncebox::model::event_field::EventField;
use oncebox::outbox::{self, Binding, Event};
use oncebox::rusqlite::ToSql;

use crate::rig::prelude::*;

/// An event with each field that a way in can fill, but for its key, which is the way's name.
fn event() -> Value {
    json!({
        "event_type": "invoice.created", "payload": { "no": 4711, "total": "99.00" },
        "aggregate_type": "invoice", "aggregate_id": "4711", "occurred_at": "2026-01-31T11:00:00.000Z",
        "target": "books", "ordering_key": "k", "guaranteed_order": true, "exclude_failed": true,
        "funnel_point": "books", "funnel_value": "7", "entity_type": "document", "parent_key": "parent",
        "parent_binding": "hard", "content_type": "application/json", "headers": { "X-Region": "north" },
        "source_system": "shop", "not_before": "2026-03-01T00:00:00.000Z", "process_id": "order-1",
        "max_attempts": 7, "custom_data": "free",
    })
}

/// A field's value as SQL stores it: times in milliseconds, JSON as text.
fn as_sql(field: EventField, value: &Value) -> Box<dyn ToSql> {
    match (field, value) {
        (EventField::OccurredAt | EventField::NotBefore, Value::String(text)) => {
            Box::new(Timestamp::parse(text).unwrap().ms())
        }
        (_, Value::String(text)) => Box::new(text.clone()),
        (_, Value::Bool(flag)) => Box::new(*flag),
        (_, Value::Number(number)) => Box::new(number.as_i64()),
        (_, other) => Box::new(other.to_string()),
    }
}

/// Inserts the event as an ERP does that knows no more than the table.
fn insert(conn: &Connection, key: &str, parent: (&str, &str)) {
    let event = merged(event(), &json!({ "idempotency_key": key }));
    let (parent_column, parent_value) = parent;
    let mut columns = Vec::new();
    let mut values = Vec::new();
    for field in EventField::ALL {
        let is_parent = field == EventField::ParentKey;
        columns.push(if is_parent { parent_column } else { field.as_str() });
        values.push(if is_parent {
            Box::new(parent_value.to_owned())
        } else {
            as_sql(field, &event[field.as_str()])
        });
    }
    let marks = vec!["?"; columns.len()].join(", ");
    let sql = format!("INSERT INTO outbox ({}) VALUES ({marks})", columns.join(", "));
    conn.execute(&sql, rusqlite::params_from_iter(values)).unwrap();
}

fn appended(key: &str) -> Event {
    let at = |text: &str| Timestamp::parse(text).unwrap();
    Event::new("invoice.created")
        .key(key)
        .payload(event()["payload"].to_string())
        .aggregate("invoice", "4711")
        .occurred_at(at("2026-01-31T11:00:00.000Z"))
        .target("books")
        .ordering_key("k")
        .guaranteed_order()
        .exclude_failed()
        .funnel_point("books")
        .funnel_value("7")
        .entity_type("document")
        .parent_key("parent", Binding::Hard)
        .header("X-Region", "north")
        .source_system("shop")
        .not_before(at("2026-03-01T00:00:00.000Z"))
        .process_id("order-1")
        .max_attempts(7)
        .custom_data("free")
}

fn append(conn: &mut Connection, key: &str) {
    let tx = conn.transaction().unwrap();
    outbox::append(&tx, appended(key)).unwrap();
    tx.commit().unwrap();
}

/// The event as it is shown once it has its delivery, without what each event has for itself.
fn shown(rig: &Rig, key: &str) -> Value {
    let listed = || {
        let found = rig.get(&format!("/v1/events?idempotency_key={key}"))["items"].clone();
        found.get(0).cloned()
    };
    // What is written into the file is there before it is routed.
    until(&format!("{key} is routed"), || {
        listed().is_some_and(|event| event["open_deliveries"] == 1)
    });
    let id = text(&listed().unwrap(), "id");
    let mut event = rig.get(&format!("/v1/events/{id}"));
    let fields = event.as_object_mut().unwrap();
    for own in ["id", "idempotency_key", "webhook_id", "received_at", "trace_id"] {
        fields.remove(own);
    }
    event
}

#[test]
fn an_event_is_the_same_whichever_way_it_came() {
    let rig = Rig::new();
    let receiver = Receiver::new();
    rig.subscribe_with("books", &receiver, &json!({ "ordering": "key" }));
    let named: Vec<&str> = EventField::ALL.iter().map(|field| field.as_str()).collect();
    let event_fields = event();
    let missing: Vec<&str> = named
        .iter()
        .filter(|name| event_fields.get(**name).is_none() && **name != "idempotency_key")
        .copied()
        .collect();
    assert_eq!(missing, [""; 0], "a field of events is not tried here");
    rig.publish(&json!({
        "event_type": "order.created", "payload": 1, "source_system": "shop", "idempotency_key": "parent",
        "target": "nobody",
    }));

    rig.publish(&merged(event(), &json!({ "idempotency_key": "http" })));
    append(&mut rig.writable(), "own-append");
    let parent = rig.one("SELECT seq FROM outbox WHERE idempotency_key = 'parent'");
    insert(&rig.writable(), "own-sql", ("parent_seq", &parent));

    let path = rig.home().join("erp.db");
    let mut erp = Connection::open(&path).unwrap();
    erp.run("PRAGMA journal_mode = WAL");
    erp.run(outbox::TABLE);
    append(&mut erp, "erp-append");
    insert(&erp, "erp-sql", ("parent_key", "parent"));
    rig.source("erp", "sqlite", &json!({ "path": path }));

    let folder = rig.home().join("drop");
    fs::create_dir(&folder).unwrap();
    rig.source("files", "drop", &json!({ "path": folder }));
    let dropped = merged(event(), &json!({ "idempotency_key": "dropped" }));
    fs::write(folder.join("x.tmp"), dropped.to_string()).unwrap();
    fs::rename(folder.join("x.tmp"), folder.join("x.json")).unwrap();

    let first = shown(&rig, "http");
    has(&first, &json!({ "custom_data": "free", "max_attempts": 7, "parent_binding": "hard" }));
    for key in ["own-append", "own-sql", "erp-append", "erp-sql", "dropped"] {
        assert_eq!(shown(&rig, key), first, "{key}");
    }
}

fn columns(conn: &Connection) -> BTreeSet<String> {
    let mut read = conn.prepare("SELECT name FROM pragma_table_info('outbox')").unwrap();
    let names = read.query_map([], |row| row.get(0)).unwrap();
    names.map(Result::unwrap).collect()
}

fn names(all: &[&str]) -> BTreeSet<String> {
    all.iter().map(ToString::to_string).collect()
}

/// Whoever adds a field learns here where it is missing.
#[test]
fn each_way_in_has_each_field() {
    let rig = Rig::new();
    let fields: BTreeSet<String> =
        EventField::ALL.into_iter().map(|field| field.as_str().to_owned()).collect();
    let api = rig.get("/openapi.json");
    let request = api["components"]["schemas"]["NewEvent"]["properties"].as_object().unwrap();
    let request: BTreeSet<String> = request.keys().cloned().collect();
    let of_http_alone = names(&["payload_base64", "parent_id", "quarantine"]);
    assert_eq!(request, &fields | &of_http_alone);
    for field in EventField::ALL {
        let schema = &api["components"]["schemas"]["NewEvent"]["properties"][field.as_str()];
        if let Some(most) = schema["maxLength"].as_u64() {
            assert_eq!(most, field.most_chars() as u64, "{field}");
        }
    }

    let erp = Connection::open_in_memory().unwrap();
    erp.run(outbox::TABLE);
    assert_eq!(columns(&erp), &fields | &names(&["id"]));

    // The parent is named by its number there.
    let missing = &fields - &columns(&rig.writable());
    assert_eq!(missing, names(&["parent_key"]));
}
