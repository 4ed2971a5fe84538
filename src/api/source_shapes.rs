//! The shapes of sources, as `/openapi.json` describes them.

use serde_json::{Value, json};

use crate::api::route::{Shape, shape};
use crate::api::schema;
use crate::sources::field::Field;
use crate::sources::folder_settings::MAX_DONE_DAYS;
use crate::sources::{MAX_SILENCE, State};

/// All of them.
pub(super) const ALL: &[Shape] = &[
    shape("Source", source),
    shape("SourceCreation", creation),
    shape("SourceChange", change),
    shape("SourceReset", reset),
    shape("SourceTest", test),
    shape("TableSettings", table),
    shape("FolderSettings", folder),
];

/// Where reading begins.
pub(super) const FROM: [&str; 2] = ["start", "now"];

fn source() -> Value {
    let or_null = schema::nullable;
    schema::object(json!({
        "id": schema::uuid(), "tenant": schema::name(), "name": schema::name(), "kind": kind(),
        "settings": { "type": "object" }, "state": schema::words(State::ALL.map(State::as_str)),
        "cursor": schema::about(
            json!({ "type": "integer" }), "The last row that was copied, by its id."),
        "lag": schema::about(
            or_null(schema::count()), "Rows or files that are not copied yet, at most. `null` where that cannot \
             be told: it is paused, waits, or cannot be read (`waits_for`, `last_error`)."),
        "waits_for": schema::about(
            or_null(schema::text()), "What it waits for, where that is nothing of its own."),
        "event_count": schema::count(),
        "last_event_at": or_null(schema::time()), "last_read_at": or_null(schema::time()),
        "last_error": schema::about(or_null(schema::text()), "What stands in the way now."),
        "failing_since": or_null(schema::time()),
        "silent_after_ms": schema::about(
            or_null(schema::count()), "No event for so long is an escalation; null: never."),
        "created_at": schema::time(), "updated_at": schema::time(),
    }))
}

fn kind() -> Value {
    schema::words(["sqlite", "drop"])
}

fn silent_after() -> Value {
    let most = u64::try_from(MAX_SILENCE.as_millis()).unwrap_or(u64::MAX);
    schema::about(
        schema::nullable(schema::integer(0, most)),
        "No event for so long is an escalation; 0: never.",
    )
}

fn from() -> Value {
    schema::about(
        schema::nullable(schema::words(FROM)),
        "Where reading begins: at the first row that is there, or behind the last.",
    )
}

fn settings() -> Value {
    json!({ "anyOf": [schema::of("TableSettings"), schema::of("FolderSettings")] })
}

fn creation() -> Value {
    schema::request(
        &["name", "kind", "settings"],
        json!({
            "name": schema::name(), "kind": kind(), "settings": settings(), "from": from(),
            "silent_after_ms": silent_after(),
        }),
    )
}

/// A source that can be made.
pub(super) fn creation_example() -> Value {
    json!({
        "name": "erp", "kind": "sqlite",
        "settings": { "path": "/srv/erp/erp.db", "table": "outbox" }, "silent_after_ms": 86_400_000,
    })
}

fn change() -> Value {
    let settings = json!({ "anyOf": [settings(), { "type": "null" }] });
    schema::request(&[], json!({ "settings": settings, "silent_after_ms": silent_after() }))
}

/// A change that can be made.
pub(super) fn change_example() -> Value {
    json!({ "silent_after_ms": 3_600_000 })
}

fn reset() -> Value {
    let cursor = schema::nullable(json!({ "type": "integer", "minimum": 0 }));
    let mut schema = schema::request(
        &[],
        json!({
            "cursor": schema::about(cursor, "The last row that is not to be copied."), "from": from(),
        }),
    );
    if let Value::Object(fields) = &mut schema {
        let one = json!([{ "required": ["cursor"] }, { "required": ["from"] }]);
        fields.insert("oneOf".to_owned(), one);
    }
    schema
}

/// A reset that can be made.
pub(super) fn reset_example() -> Value {
    json!({ "from": "start" })
}

fn test() -> Value {
    schema::object(
        json!({ "ok": schema::yes_or_no(), "checks": schema::list(schema::of("Check")) }),
    )
}

fn texts_by_field() -> Value {
    let fields: Vec<&str> = Field::all().map(Field::as_str).collect();
    json!({
        "type": "object", "propertyNames": { "enum": fields },
        "additionalProperties": { "type": "string" },
    })
}

fn table() -> Value {
    schema::request(
        &["path"],
        json!({
            "path": schema::about(schema::text_of(1, 4096), "The file, from the root."),
            "table": schema::about(schema::text_of(1, 128), "The table; `outbox`, if absent."),
            "id": schema::about(
                schema::text_of(1, 128),
                "Its column that is INTEGER PRIMARY KEY AUTOINCREMENT; `id`, if absent."),
            "columns": schema::about(
                texts_by_field(), "Columns that are named otherwise than the field they fill."),
            "defaults": schema::about(texts_by_field(), "What stands in fields that a row has not."),
        }),
    )
}

fn folder() -> Value {
    let formats = schema::words(["auto", "json", "ndjson", "csv", "xml"]);
    let writers = schema::words(["rename", "done", "stable"]);
    let one = json!({ "type": "string", "minLength": 1, "maxLength": 1 });
    schema::request(
        &["path"],
        json!({
            "path": schema::about(schema::text_of(1, 4096), "The folder, from the root."),
            "format": schema::about(formats, "What its files are; `auto`, if absent: by their ending."),
            "writer": schema::about(
                writers,
                "How it shows that a file is whole: it was renamed from `….tmp` (if absent), `….done` is \
                 beside it, or it has stood still for `stable_ms`."),
            "stable_ms": schema::integer(1, 86_400_000),
            "done_days": schema::about(
                schema::integer(0, MAX_DONE_DAYS.into()),
                "For how many days files stay in `done`; 30, if absent; 0: until somebody takes them away."),
            "fields": schema::about(
                texts_by_field(),
                "Columns, members or paths of elements that are named otherwise than the field they fill."),
            "defaults": schema::about(texts_by_field(), "What stands in fields that a row has not."),
            "row": schema::about(schema::some_text(), "For XML: the path of the element that is a row."),
            "delimiter": schema::about(one, "For CSV: what stands between two values; `,`, if absent."),
        }),
    )
}
