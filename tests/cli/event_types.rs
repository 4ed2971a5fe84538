//! `oncebox event-type`: from stored events to a schema that is in force.

use crate::cli::rig::prelude::*;

#[test]
fn a_schema_is_proposed_registered_shown_and_deleted() {
    let rig = Rig::new();
    assert_eq!(rig.run(&["event-type", "infer", "invoice.created"]).code, 65);
    rig.ok(&["emit", "invoice.created", "--payload", r#"{"total":"99.00"}"#]);
    let inferred = rig.run(&["event-type", "infer", "invoice.created"]);
    assert!(inferred.err.contains("made from 1 event\n"), "{inferred:?}");
    let proposed = inferred.out;
    let proposed = rig.file("schema.json", &proposed).display().to_string();
    let schema = format!("@{proposed}");
    rig.ok(&[
        "event-type",
        "set",
        "invoice.created",
        "--schema",
        &schema,
        "--description",
        "An invoice.",
    ]);
    assert!(rig.ok(&["event-type", "list"]).contains("invoice.created"));
    shows(&rig.ok(&["event-type", "show", "invoice.created"]), &["An invoice.", "\"total\""]);
    rig.run(&["emit", "invoice.created", "--payload", r#"{"total":1}"#])
        .fails(&["/total must be string"]);
    let lines = rig.file(
        "lines",
        "{\"event_type\":\"invoice.created\",\"payload\":{\"total\":\"1\"}}\n\
         {\"event_type\":\"invoice.created\",\"payload\":{\"total\":1}}\n",
    );
    rig.run(&["emit", "--file", lines.to_str().unwrap()])
        .warns(&["line 2: it does not fit its event type"]);
    let tried = rig.ok(&[
        "event-type",
        "set",
        "invoice.created",
        "--schema",
        "{\"required\":[\"number\"]}",
        "--what-if",
        "1d",
    ]);
    shows(
        &tried,
        &[
            "3 stored events since",
            "1  refused by the schema of now",
            "3  refused by this",
            "number",
        ],
    );
    rig.ok(&["event-type", "infer", "invoice.created", "--save"]);
    assert_eq!(rig.json(&["event-type", "show", "invoice.created"])["on_invalid"], "reject");
    rig.run(&["event-type", "set", "a", "--schema", "{"]).ends(65, &["--schema is not JSON"]);
    rig.ok(&["event-type", "delete", "invoice.created", "--yes"]);
    rig.ok(&["emit", "invoice.created", "--payload", r#"{"total":1}"#]);
}
