//! The page of the audit trail.

use oncebox::model::audit::changes::Changes;
use oncebox::model::audit::{Actor, ActorType, NewAuditEvent};
use oncebox::store::audit_events;

use crate::it::console_rig::{Browser, links, unescaped};
use crate::rig::prelude::*;

/// Stores 25 entries with many fields. Each value is as long as it may be, and takes six times as much in a page.
fn long_entries(rig: &Rig) {
    let long = "\"".repeat(2_000);
    let version = |text: &str| {
        let fields = (0..40).map(|n| (format!("a_field_{n:02}"), json!(format!("{text}{long}"))));
        Value::Object(fields.collect())
    };
    let changes = Changes::between(&version("a"), &version("b"));
    let actor = Actor { kind: ActorType::Token, id: "1".to_owned(), display: "\"".repeat(100) };
    let event = NewAuditEvent::local(rig.now(), "default", actor, "subscription.change");
    let event = event.of("subscription", &"\"".repeat(255), changes);
    let writer = rig.appliance().store().writer();
    for _ in 0..25 {
        let event = event.clone();
        writer.write(Queue::Accept, move |tx| audit_events::append(tx, &event)).unwrap();
    }
}

#[test]
fn the_longest_entries_of_the_audit_are_cut_and_have_a_page_of_their_own() {
    let rig = Rig::new();
    let browser = Browser::named(&rig, "anna", "admin");
    rig.subscribe_with("erp", &Receiver::new(), &json!({ "owner_id": "\"".repeat(255) }));
    let page = browser.get("/console/audit");
    let entry = links(&page).into_iter().find(|link| link.starts_with("/console/audit/")).unwrap();
    assert!(page.contains(&format!("<a href=\"{entry}\">and ")), "{page}");
    let whole = browser.get(&entry);
    for part in ["Audit entry", "first admin token", "subscription.create", "owner_id"] {
        assert!(whole.contains(part), "{part}: {whole}");
    }
    assert!(unescaped(&whole).contains(&"\"".repeat(255)));
    // A number of another tenant is as unknown as one that is nobody's.
    let acme = rig.tenant("acme");
    rig.call_as(&acme, "GET", "/v1/audit-events/1", b"").is(404);
    for seq in ["1000000", "none", "0"] {
        rig.call("GET", &format!("/v1/audit-events/{seq}"), b"").is(404);
    }
    assert_eq!(rig.get("/v1/audit-events/1")["seq"], 1);

    long_entries(&rig);
    let page = browser.get("/console/audit");
    let entry = links(&page).into_iter().find(|link| link.starts_with("/console/audit/")).unwrap();
    assert_eq!(page.matches("and 32 more").count(), 25);
    let whole = browser.get(&entry);
    assert!(whole.contains("a_field_39"));
    println!("the list has {} bytes, an entry {}", page.len(), whole.len());
}

#[test]
fn a_text_that_turns_others_around_is_shown_with_its_signs() {
    let rig = Rig::new();
    let owner = "pay\u{202e}lla\u{2069} \u{7}";
    rig.subscribe_with("erp", &Receiver::new(), &json!({ "owner_id": owner }));
    let plain =
        json!({ "event_type": "a", "content_type": "text/plain", "payload_base64": "4oCuYWJj" });
    let event = rig.publish(&plain);
    let browser = Browser::new(&rig, "admin");
    let entries = links(&browser.get("/console/audit"));
    let is_entry = |link: &&String| link.starts_with("/console/audit/");
    let audit: String = entries.iter().filter(is_entry).map(|link| browser.get(link)).collect();
    let subscription = browser.get("/console/subscriptions/erp");
    let event = browser.get(&format!("/console/events/{}", text(&event, "id")));
    for page in [audit, subscription, event] {
        assert!(page.contains("[U+202E]") && !page.contains('\u{202e}'), "{page}");
    }
}

#[test]
fn entries_name_what_was_changed_and_keep_the_id_on_their_page() {
    let rig = Rig::new();
    let browser = Browser::named(&rig, "anna", "admin");
    let receiver = Receiver::new();
    receiver.always(Reply::status(422));
    rig.subscribe("erp", &receiver);
    rig.provider("shop", &json!({ "kind": "github" }), "a-secret-of-more-than-32-characters");
    rig.user("otto", "operate");
    let token = json!({ "name": "program", "role": "read" });
    rig.post("/v1/tokens", &token).is(201);
    let id = text(&rig.get("/v1/subscriptions/erp"), "id");
    let credential = json!({ "kind": "bearer", "secret": "a-secret-of-more-than-32-characters" });
    rig.post("/v1/subscriptions/erp/credentials", &credential).is(201);
    let page = browser.get("/console/audit");
    for name in [
        "subscription erp",
        "provider shop",
        "user otto",
        "token program",
        "credential bearer (erp)",
    ] {
        assert!(page.contains(&format!("<td data-head=\"What\">{name}</td>")), "{name}: {page}");
    }
    assert!(!page.contains(&format!("subscription {id}")), "{page}");
    rig.delete("/v1/subscriptions/erp").is(204);
    let page = browser.get("/console/audit?action=subscription.delete");
    assert!(page.contains("<td data-head=\"What\">subscription erp</td>"), "{page}");
    let entry = links(&page).into_iter().find(|link| link.starts_with("/console/audit/")).unwrap();
    let entry = browser.get(&entry);
    assert!(entry.contains(&format!("subscription erp <code>{id}</code>")), "{entry}");
}
