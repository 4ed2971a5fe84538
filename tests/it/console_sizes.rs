//! What a browser chooses in size: rights first, then one form of bounded size, and one number for each form.

use crate::it::console_rig::{Browser, encoded, form};
use crate::rig::prelude::*;

/// A body of very many fields.
fn many_fields(bytes: usize) -> Vec<u8> {
    "a&".repeat(bytes / 2).into_bytes()
}

#[test]
fn who_may_not_do_it_sends_no_large_form() {
    let rig = Rig::new();
    let viewer = Browser::new(&rig, "read");
    for action in ["create-provider", "send-event", "no-such-action"] {
        let path = format!("/console/act/{action}");
        viewer.send("POST", &path, &many_fields(64 << 10)).is(413);
        let small = viewer.send("POST", &path, b"name=x");
        assert!(matches!(small.status, 403 | 404), "{action}: {}", small.status);
    }
    for path in ["log-out", "tenant", "log-in", "enter", "first-admin"] {
        viewer.send("POST", &format!("/console/{path}"), &many_fields(64 << 10)).is(413);
    }
}

#[test]
fn a_form_of_too_many_fields_or_too_much_text_is_refused() {
    let rig = Rig::new();
    let admin = Browser::new(&rig, "admin");
    let create = "/console/act/create-provider";
    let told = admin.send("POST", create, &many_fields(200 << 10)).is(413).text();
    assert!(told.contains("The form is too large"), "{told}");
    let lines = format!("public_url={}", "a%0A".repeat(140_000));
    admin.send("POST", create, lines.as_bytes()).is(413);
    let name = format!("{}=1", "n".repeat(1_000));
    admin.send("POST", create, name.as_bytes()).is(413);
    let publish = "/console/act/send-event";
    let part = "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n\r\n".repeat(20_000);
    admin.send_parts(publish, "b", part.as_bytes()).is(413);
    // A boundary is short, so that looking for it is cheap.
    let dashes = vec![b'-'; 3 << 20];
    let told = admin.send_parts(publish, &"-".repeat(71), &dashes).is(400).text();
    assert!(told.contains("1 to 70 bytes"), "{told}");
    let query = "a&".repeat(2_000);
    admin.send("GET", &format!("/console/events?{query}"), b"").is(413);
    // What an event's payload may have, a form may have.
    let form = form(&admin.get(publish), publish).unwrap();
    let payload = json!({ "text": "x".repeat(900_000) }).to_string();
    let typed = [("event_type", "a"), ("payload", payload.as_str())];
    admin.submit(&form, &typed).is(303);
}

#[test]
fn the_number_of_a_form_is_a_uuid() {
    let rig = Rig::new();
    let admin = Browser::new(&rig, "admin");
    rig.pull("erp", &json!({}));
    let page = admin.get("/console/subscriptions/erp");
    let form = form(&page, "/console/act/pause-subscription").unwrap();
    for number in ["", "1", "x", &"1".repeat(36), &"a".repeat(100_000)] {
        let answer = admin.submit(&form, &[("form", number)]);
        assert_eq!(answer.status, 403, "{number:.40}");
    }
    assert_eq!(rig.get("/v1/subscriptions/erp")["state"], "ACTIVE");
    admin.submit(&form, &[]).is(303);
    assert_eq!(rig.get("/v1/subscriptions/erp")["state"], "PAUSED");
}

#[test]
fn after_a_log_in_or_an_action_a_page_of_the_console_follows_or_its_first_page() {
    let rig = Rig::new();
    let admin = Browser::new(&rig, "admin");
    rig.pull("erp", &json!({}));
    let long = format!("/console/events?q={}", "x".repeat(5_000));
    let pages = [
        ("/console/events?limit=5", true),
        ("/console/subscriptions/erp", true),
        ("/console/", true),
        ("/console/../../x", false),
        ("/console/./events", false),
        ("/console/%2e%2E/x", false),
        ("/console/events/..%2f..%2fx", false),
        ("/console/no-such-page", false),
        ("/console//evil.example", false),
        ("/console/events#x", false),
        ("https://evil.example/console/", false),
        (&long, false),
    ];
    for (at, (page, is_led_to)) in pages.into_iter().enumerate() {
        let action = if at % 2 == 0 { "pause-subscription" } else { "resume-subscription" };
        let path = format!("/console/act/{action}");
        let form = form(&admin.get(&format!("{path}?id=erp")), &path).unwrap();
        let led = admin.submit(&form, &[("back", page)]).is(303);
        let led = led.field("location").unwrap().split("did=").next().unwrap().to_owned();
        let wanted = if is_led_to { page } else { "/console/" };
        assert_eq!(led.trim_end_matches(['?', '&']), wanted, "back={page}");
        let link = rig.call("POST", "/v1/users/admin/link", b"").is(201).json();
        let query = text(&link, "url").split_once('?').unwrap().1.to_owned();
        let body = format!("{query}&to={}", encoded(page));
        let entered = Browser::nobody(&rig).send("POST", "/console/enter", body.as_bytes());
        if body.len() < 8 << 10 {
            assert_eq!(entered.is(303).field("location"), Some(wanted), "to={page}");
        }
    }
}
