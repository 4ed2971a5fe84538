//! The pages of event types.

use crate::it::console_rig::{Browser, encoded, links, unescaped};
use crate::rig::prelude::*;

#[test]
fn event_types_show_their_schema_and_example() {
    let rig = Rig::new();
    let browser = Browser::new(&rig, "read");
    assert!(browser.get("/console/events").contains("/console/events/types"));
    assert!(browser.get("/console/events/types").contains("No event types are registered."));
    let name = "invoice/<b>created";
    let properties: serde_json::Map<_, _> = (0..400)
        .map(|n| (format!("\"\"\"\"{n}"), json!({ "type": "string", "maxLength": n })))
        .collect();
    let body = json!({
        "description": "An invoice was <b>made</b>.", "schema": { "type": "object", "properties": properties },
        "example": { "\"0": "99.00" }, "on_invalid": "quarantine",
    });
    let path = format!("/v1/event-types/{}", encoded(name));
    rig.call("PUT", &path, body.to_string().as_bytes()).is(201);
    let page = browser.get("/console/events/types");
    assert!(page.contains("An invoice was &lt;b&gt;made") && page.contains("quarantine"), "{page}");
    let link = links(&page).into_iter().find(|link| link.contains("/types/")).unwrap();
    let page = browser.get(&link);
    for part in [name, "\"maxLength\": 7", "99.00", "Only the beginning is shown."] {
        assert!(unescaped(&page).contains(part), "{part}: {page}");
    }
    assert!(page.contains("/console/events?event_type=invoice%2F%3Cb%3Ecreated"));
    assert_eq!(browser.send("GET", "/console/events/types/none", b"").status, 404);
}
