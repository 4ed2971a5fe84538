//! Forms of the console that follow from the API's requests: what they show, what they send, and what they keep.

use std::io::Read as _;

use crate::it::console_rig::{Browser, Form, form, links, unescaped};
use crate::rig::prelude::*;

/// The form that a page's link leads to.
#[track_caller]
fn asked(browser: &Browser<'_>, page: &str, action: &str) -> Form {
    let path = format!("/console/act/{action}");
    let html = browser.get(page);
    let link = links(&html).into_iter().find(|link| link.split('?').next() == Some(&path));
    form(&browser.get(&link.unwrap_or_else(|| panic!("{page} has no {action}"))), &path).unwrap()
}

#[test]
fn a_provider_of_settings_is_made_by_its_fields() {
    let rig = Rig::new();
    rig.user("anna", "admin");
    let browser = Browser::enter(&rig, "anna");
    let form = asked(&browser, "/console/sources", "create-provider");
    let typed = [
        ("name", "shop"),
        ("scheme.kind", "generic"),
        ("scheme.check", "hmac"),
        ("scheme.check.hmac.hash", "sha256"),
        ("scheme.check.hmac.header", "X-Sign"),
        ("scheme.check.hmac.encoding", "hex"),
        ("scheme.check.hmac.signed", "{body}"),
        ("scheme.event_id", "pointer"),
        ("scheme.event_id.pointer", "/id"),
        ("pii", "allow"),
        ("secret", "a-secret-of-more-than-32-characters"),
        ("tolerance_secs", "120"),
    ];
    let answer = browser.submit(&form, &typed).is(303);
    let page = browser.get(answer.field("location").unwrap());
    assert!(page.contains("New provider: done."), "{page}");
    let made = rig.get("/v1/providers/shop");
    assert_eq!(made["scheme"]["check"]["hmac"]["header"], "X-Sign", "{made}");
    assert_eq!(made["scheme"]["event_id"], json!({ "pointer": "/id" }), "{made}");
    assert_eq!((&made["tolerance_secs"], &made["pii"]), (&json!(120), &json!("allow")));
}

#[test]
fn alternatives_are_a_choice_with_the_fields_of_each() {
    let rig = Rig::new();
    rig.user("anna", "admin");
    let browser = Browser::enter(&rig, "anna");
    let page = browser.get("/console/act/create-provider?back=/console/sources");
    for part in [
        "How does the sender prove itself?",
        "<option value=\"hmac\">A signature with a shared secret (HMAC)</option>",
        "<fieldset data-by=\"scheme.check\" data-of=\"hmac\"><legend><span class=\"of\">Only for </span>hmac</legend>",
        "data-by=\"scheme.check\" data-of=\"basic\"",
        // An alternative without fields of its own.
        "<option value=\"body_hash\">",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let new = form(&page, "/console/act/create-provider").unwrap();
    let given = [
        ("name", "shop"),
        ("scheme.kind", "generic"),
        ("scheme.check", "token"),
        ("scheme.event_id", "body_hash"),
        ("pii", "allow"),
        ("secret", "a-secret-of-more-than-32-characters"),
        // Without a script, what was typed for another alternative is still there.
        ("scheme.check.basic.user", "left"),
    ];
    let lacking = browser.submit(&new, &given).is(422).text();
    let at_field = "id=\"about.scheme.check.token.header\"><strong class=\"wrong\" role=\"alert\">this field is required.";
    assert!(lacking.contains(at_field), "{lacking}");
    let token = ("scheme.check.token.header", "X-Token");
    browser.submit(&new, &[&given[..], &[token]].concat()).is(303);
    let made = rig.get("/v1/providers/shop");
    assert_eq!(made["scheme"]["check"], json!({ "token": { "header": "X-Token" } }), "{made}");
    assert_eq!(made["scheme"]["event_id"], "body_hash", "{made}");

    let change = asked(&browser, "/console/providers/shop", "change-provider");
    assert_eq!(change.value("scheme.check"), "token");
    assert_eq!(change.value("scheme.check.token.header"), "X-Token");
    let other = [("scheme.check", "basic"), ("scheme.check.basic.user", "erp")];
    browser.submit(&change, &other).is(303);
    let changed = rig.get("/v1/providers/shop");
    assert_eq!(changed["scheme"]["check"], json!({ "basic": { "user": "erp" } }), "{changed}");
    assert_eq!(changed["scheme"]["event_id"], "body_hash", "{changed}");
}

#[test]
fn a_source_has_the_fields_of_each_of_its_kinds() {
    let rig = Rig::new();
    rig.user("anna", "admin");
    let browser = Browser::enter(&rig, "anna");
    let page = browser.get("/console/act/create-source?back=/console/sources");
    for (field, kinds) in [
        ("path", "sqlite drop"),
        ("table", "sqlite database"),
        ("id", "sqlite database"),
        ("database", "database"),
    ] {
        let (before, _) = page.split_once(&format!("name=\"settings.{field}\"")).unwrap();
        let (_, of) = before.rsplit_once("data-of=\"").unwrap();
        assert_eq!(of.split('"').next(), Some(kinds), "{field}");
    }
}

#[test]
fn only_what_was_touched_is_changed() {
    let rig = Rig::new();
    rig.user("anna", "admin");
    let browser = Browser::enter(&rig, "anna");
    let receiver = Receiver::new();
    let terms = json!({
        "event_types": ["invoice.*", "order.created"], "headers": { "X-Shop": "north" },
        "policy": { "max_attempts": 7, "rate": "10/s", "steps": ["5s", "1min"] },
        "filter": [{ "path": "$.total", "op": "gt", "value": 5 }],
    });
    rig.subscribe_with("erp", &receiver, &terms);
    let form = asked(&browser, "/console/subscriptions/erp", "change-subscription");
    assert_eq!(form.value("event_types"), "invoice.*\norder.created");
    assert_eq!(form.value("headers"), "X-Shop: north");
    assert_eq!(form.value("policy.rate"), "10/s");
    assert!(form.value("filter").contains("\"$.total\""), "{form:?}");
    assert!(form.fields.iter().all(|(name, _)| name != "target"), "the kind of target stays");

    // Another person changes what this form shows and does not touch.
    rig.patch("/v1/subscriptions/erp", &json!({ "owner_id": "ben" })).is(200);
    let typed = [("policy.max_attempts", "9"), ("policy.steps", ""), ("filter", "")];
    let answer = browser.submit(&form, &typed).is(303);
    let page = browser.get(answer.field("location").unwrap());
    assert!(page.contains("Change: done."), "{page}");
    let found = rig.get("/v1/subscriptions/erp");
    assert_eq!(found["policy"]["max_attempts"], 9, "{found}");
    assert_eq!(found["policy"].get("steps").unwrap_or(&Value::Null), &Value::Null, "{found}");
    assert_eq!((&found["policy"]["rate"], &found["owner_id"]), (&json!("10/s"), &json!("ben")));
    assert_eq!((&found["filter"], &found["headers"]["X-Shop"]), (&json!([]), &json!("north")));

    // What cannot be removed stays, and the page says so.
    let form = asked(&browser, "/console/subscriptions/erp", "change-subscription");
    let answer = browser.submit(&form, &[("url", "")]).is(303);
    let page = browser.get(answer.field("location").unwrap());
    assert!(page.contains("This cannot be removed, and stays as it was: url"), "{page}");
    assert_eq!(rig.get("/v1/subscriptions/erp")["url"], receiver.url());
}

#[test]
fn what_hides_in_a_term_outlives_a_change_beside_it() {
    let rig = Rig::new();
    rig.user("anna", "admin");
    let browser = Browser::enter(&rig, "anna");
    let body = "{\"note\": \"\u{202e}{{ payload.id }}\u{200f}\"}";
    let terms = json!({ "template": { "body": body, "content_type": "application/json" } });
    rig.subscribe_with("erp", &Receiver::new(), &terms);
    let form = asked(&browser, "/console/subscriptions/erp", "change-subscription");
    browser.submit(&form, &[("template.content_type", "text/plain")]).is(303);
    let found = rig.get("/v1/subscriptions/erp")["template"].clone();
    assert_eq!((&found["body"], &found["content_type"]), (&json!(body), &json!("text/plain")));
}

#[test]
fn what_is_wrong_stands_at_its_field_and_what_was_typed_stays() {
    let rig = Rig::new();
    rig.user("anna", "admin");
    let browser = Browser::enter(&rig, "anna");
    let form = asked(&browser, "/console/subscriptions", "create-subscription");
    let url = Receiver::new().url();
    let well = [("name", "erp"), ("url", &*url), ("owner_id", "ann & ben")];
    for (path, text, why) in [
        ("filter", "[{", "It is not JSON: line 1, column 2."),
        ("filter", "word", "filter must be a list."),
        ("policy.max_attempts", "many", "This must be a whole number."),
        ("headers", "X-Shop north", "has no colon"),
        ("policy.rate", "ten", "ten"),
        ("url", "ftp://there", "url"),
        ("order.group", "NOT A NAME", "group must have 1 to 63 of the characters a-z, 0-9 and -."),
    ] {
        let mut typed = well.to_vec();
        typed.retain(|(name, _)| *name != path);
        typed.push((path, text));
        let answer = browser.submit(&form, &typed);
        let page = answer.text();
        assert!(matches!(answer.status, 400 | 422), "{path}: {} {page}", answer.status);
        let note = page.split(&format!("id=\"about.{path}\"")).nth(1);
        let note = note.unwrap_or_else(|| panic!("{path}: {page}")).split("</p>").next().unwrap();
        assert!(note.contains("role=\"alert\"") && note.contains(why), "{path}: {note}");
        let again = crate::it::console_rig::form(&page, &form.action).unwrap();
        for (name, value) in typed {
            assert_eq!(again.value(name), value, "{path}");
        }
    }
    assert_eq!(rig.get("/v1/subscriptions")["items"], json!([]), "nothing was made");
}

#[test]
fn a_policy_of_ones_own_and_a_secret_that_lacks_are_told_at_their_fields() {
    let rig = Rig::new();
    rig.user("anna", "admin");
    let browser = Browser::enter(&rig, "anna");
    let form = asked(&browser, "/console/sources", "create-provider");
    let page = browser.get("/console/act/create-provider?back=/console/sources");
    assert!(page.contains("Secret <small>(type it, or let it be made"), "{page}");
    let well = [("name", "shop"), ("scheme.kind", "stripe")];
    let rules = r#"{"rules":[{"path":"$.a","action":"blur"}]}"#;
    for (more, path, why) in [
        (
            &[("pii", "own"), ("pii.rules", rules), ("secret", "whsec_x")][..],
            "pii",
            "drop, mask, hash",
        ),
        (
            &[("pii", "own"), ("pii.rules", "{"), ("secret", "whsec_x")],
            "pii",
            "It is not JSON: line 1",
        ),
        (&[("pii", "own"), ("secret", "whsec_x")], "pii", "this field is required."),
        (&[("pii", "allow")], "secret", "Give the provider's signing secret"),
    ] {
        let typed = [&well[..], more].concat();
        let page = browser.submit(&form, &typed).is(422).text();
        let note = page.split(&format!("id=\"about.{path}\"")).nth(1).unwrap();
        let note = note.split("</p>").next().unwrap();
        assert!(unescaped(note).contains(why), "{path}: {note}");
    }
    let rules = rules.replace("blur", "drop");
    let own = [("pii", "own"), ("pii.rules", rules.as_str()), ("secret.make", "yes")];
    let made = [&well[..], &own].concat();
    let page = browser.submit(&form, &made).is(200).text();
    assert!(page.contains("whsec_") && page.contains("/in/shop"), "{page}");
    assert_eq!(rig.get("/v1/providers/shop")["pii"]["rules"][0]["action"], "drop");
    // The form of a change sends nothing that was not touched.
    let change = asked(&browser, "/console/providers/shop", "change-provider");
    assert_eq!(change.value("pii"), "own");
    let before = rig.get("/v1/audit-events?limit=1")["items"][0]["seq"].clone();
    browser.submit(&change, &[]).is(303);
    let last = rig.get("/v1/audit-events?limit=1")["items"][0].clone();
    assert!(
        last["seq"] != before && last["changes"].as_object().is_none_or(serde_json::Map::is_empty),
        "{last}"
    );
}

#[test]
fn a_filter_is_tried_on_an_event_before_it_is_kept() {
    let rig = Rig::new();
    rig.user("anna", "admin");
    let browser = Browser::enter(&rig, "anna");
    let url = Receiver::new().url();
    let event = json!({ "event_type": "invoice.created", "payload": { "total": 7 } });
    let id = text(&rig.publish(&event), "id");
    let form = asked(&browser, "/console/subscriptions", "create-subscription");
    let typed = |limit| {
        let filter = format!(r#"[{{"path":"$.total","op":"gt","value":{limit}}}]"#);
        let typed = [("name", "erp"), ("url", &*url), ("try", id.as_str())];
        let typed = [&typed[..], &[("filter", filter.as_str()), ("again", "yes")]].concat();
        browser.submit(&form, &typed).is(200).text()
    };
    let (wanted, unwanted) = (typed(5), typed(50));
    assert_ne!(
        wanted.contains("matches&quot;: true"),
        unwanted.contains("matches&quot;: true"),
        "{wanted}"
    );
    assert_eq!(rig.get("/v1/subscriptions")["items"], json!([]), "it was only tried");
}

#[test]
fn a_quarantined_event_is_corrected_in_its_form() {
    let rig = Rig::new();
    rig.user("otto", "operate");
    let browser = Browser::enter(&rig, "otto");
    let receiver = Receiver::new();
    rig.subscribe_with("erp", &receiver, &json!({}));
    let event = json!({ "event_type": "a", "payload": { "total": 1.25 }, "target": "nobody" });
    let page = format!("/console/events/{}", text(&rig.publish(&event), "id"));
    let form = asked(&browser, &page, "fix-event");
    assert_eq!(form.value("payload_base64"), "{\n  \"total\": 1.25\n}");
    assert_eq!(form.value("target"), "nobody");
    let looked = |typed: &[(&str, &str)]| {
        let page = browser.submit(&form, typed).is(200).text();
        crate::it::console_rig::form(&page, &form.action).unwrap()
    };
    let still = looked(&[("target", "still-nobody")]);
    browser.submit(&still, &[]).is(422);
    let typed = [("target", "erp"), ("payload_base64", "{\"total\": 99.00}")];
    browser.submit(&looked(&typed), &[]).is(303);
    rig.settle();
    assert_eq!(receiver.bodies(), ["{\"total\": 99.00}"]);
}

/// A dead letter of an event type with a schema, as the page of its delivery has it corrected.
fn dead_letter(rig: &Rig, receiver: &Receiver, payload: &Value) -> String {
    receiver.always(Reply::status(422));
    rig.subscribe_with("erp", receiver, &json!({}));
    let schema = json!({ "schema": { "required": ["total"] } });
    let put = rig.call("PUT", "/v1/event-types/invoice", schema.to_string().as_bytes());
    assert!(put.status < 300, "{put:?}");
    rig.publish(&json!({ "event_type": "invoice", "payload": payload }));
    rig.settle();
    receiver.always(Reply::status(200));
    format!("/console/deliveries/{}", rig.id("/v1/deliveries"))
}

#[test]
fn a_correction_is_checked_and_looked_at_before_it_is_sent() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    rig.user("otto", "operate");
    let browser = Browser::enter(&rig, "otto");
    let payload = json!({ "total": 1.25, "to": "Jane" });
    let page = dead_letter(&rig, &receiver, &payload);
    let form = asked(&browser, &page, "edit-and-resend");
    // What is no JSON, and what does not fit its event type, is told at the field, with what was typed.
    for (typed, why) in [("{\"total\": 1,}", "It is not JSON:"), ("{\"sum\": 1}", "does not fit")] {
        let page = browser.submit(&form, &[("payload_base64", typed)]).is(422).text();
        assert!(page.contains(why) && page.contains("class=\"wrong\""), "{page}");
        let again = crate::it::console_rig::form(&page, &form.action).unwrap();
        assert_eq!(again.value("payload_base64"), typed);
        assert!(!page.contains("name=\"shown\""), "it cannot be sent yet");
    }
    let nothing = browser.submit(&form, &[]).is(422).text();
    assert!(nothing.contains("Give the new payload"), "{nothing}");
    let typed = [("payload_base64", "{\"total\": 99.00, \"to\": \"Jane\"}")];
    let page = browser.submit(&form, &typed).is(200).text();
    for part in ["<del>-   &quot;total&quot;: 1.25", "<ins>+   &quot;total&quot;: 99.00"] {
        assert!(page.contains(part), "{page}");
    }
    assert!(!page.contains("<del>-   &quot;to&quot;"), "only what changes: {page}");
    assert_eq!(receiver.count(), 1, "nothing was sent yet");
    // What hides in a text is seen in the look.
    let hidden = [("payload_base64", "{\"total\": 1, \"to\": \"a\u{202e}b\"}")];
    let seen = browser.submit(&form, &hidden).is(200).text();
    assert!(seen.contains("<ins>+   &quot;to&quot;: &quot;a[U+202E]b&quot;"), "{seen}");
    // What is typed after the look is looked at again.
    let looked = crate::it::console_rig::form(&page, &form.action).unwrap();
    browser.submit(&looked, &[("payload_base64", "{\"total\": 98}")]).is(200);
    browser.submit(&looked, &[]).is(303);
    rig.settle();
    assert_eq!(receiver.bodies()[1], typed[0].1);
}

#[test]
fn a_payload_that_is_too_long_for_a_page_is_corrected_by_a_file() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    rig.user("otto", "operate");
    let browser = Browser::enter(&rig, "otto");
    let payload = json!({ "lines": vec!["4711"; 4000], "total": 1.25 });
    let page = dead_letter(&rig, &receiver, &payload);
    let form = asked(&browser, &page, "edit-and-resend");
    assert_eq!(form.value("payload_base64"), "");
    let path = format!("/console/events/{}/payload", rig.id("/v1/events"));
    let stored = browser.send("GET", &path, b"").is(200);
    assert!(stored.field("content-disposition").unwrap().starts_with("attachment; filename="));
    let corrected = stored.text().replace("1.25", "99.00");
    let sent = |file: &str| {
        let start = "--b0\r\nContent-Disposition: form-data; name=";
        let own = form.fields.iter().filter(|(name, _)| name != "payload_base64.file");
        let own = own.map(|(name, value)| format!("{start}\"{name}\"\r\n\r\n{value}\r\n"));
        let own: Vec<_> = own.collect();
        let kind = "filename=\"a.json\"\r\nContent-Type: application/json";
        let body = format!(
            "{}{start}\"payload_base64.file\"; {kind}\r\n\r\n{file}\r\n--b0--\r\n",
            own.concat()
        );
        browser.send_parts(&form.action, "b0", body.as_bytes())
    };
    let wrong = sent(&corrected.replace("99.00", "99.")).is(422).text();
    assert!(wrong.contains("It is not JSON:"), "{wrong}");
    let looked = sent(&corrected).is(200).text();
    assert!(looked.contains("<ins>+   &quot;total&quot;: 99.00"), "{looked}");
    let looked = crate::it::console_rig::form(&looked, &form.action).unwrap();
    browser.submit(&looked, &[]).is(303);
    rig.settle();
    assert_eq!(receiver.bodies()[1], corrected);
    // What is no form at all is refused, and breaks nothing.
    for body in ["", "--b0", "--b0\r\n\r\n\r\n--b0--", "--b0\r\nname=\"csrf\r\n\r\nx--b0"] {
        browser.send_parts(&form.action, "b0", body.as_bytes()).is(403);
    }
}

#[test]
fn a_channel_shows_the_fields_of_its_kind() {
    let rig = Rig::new();
    rig.user("anna", "admin");
    let browser = Browser::enter(&rig, "anna");
    let receiver = Receiver::new();
    let channel = json!({ "name": "ops", "kind": "webhook", "url": receiver.url() });
    rig.post("/v1/alert-channels", &channel).is(201);
    let form = asked(&browser, "/console/alerts", "change-channel");
    let names: Vec<_> = form.fields.iter().map(|(name, _)| name.as_str()).collect();
    assert!(names.contains(&"url") && !names.contains(&"to") && !names.contains(&"command"));
    // Without a script all kinds are there, each with what it is for.
    let path = "/console/act/create-channel";
    let page = browser.get(path);
    assert!(page.contains("data-by=\"kind\" data-of=\"slack webhook\""), "{page}");
    assert!(page.contains("For slack, webhook."), "{page}");
    let classes = [("severity", "info"), ("classes", "delivery.dead_lettered")];
    browser.submit(&form, &classes).is(303);
    let found = rig.get("/v1/alert-channels")["items"][0].clone();
    assert_eq!(
        (&found["severity"], &found["classes"]),
        (&json!("info"), &json!(["delivery.dead_lettered"]))
    );
}

#[test]
fn what_was_typed_outlives_the_session() {
    const PASSWORD: &str = "correct horse battery";
    let rig = Rig::new();
    rig.user("anna", "admin");
    rig.patch("/v1/users/anna", &json!({ "password": PASSWORD })).is(200);
    let mut browser = Browser::enter(&rig, "anna");
    rig.subscribe_with("erp", &Receiver::new(), &json!({}));
    let form = asked(&browser, "/console/subscriptions/erp", "change-subscription");
    let session = rig.id("/v1/sessions");
    rig.delete(&format!("/v1/sessions/{session}")).is(204);

    let typed = [("owner_id", "ann & ben"), ("policy.rate", "5/s")];
    let page = browser.submit(&form, &typed).is(401).text();
    assert!(page.contains("Your session ended, and nothing was changed."), "{page}");
    let log_in = crate::it::console_rig::form(&page, "/console/log-in").unwrap();
    assert!(!log_in.value("keep").contains("csrf"), "{log_in:?}");
    let who = [("name", "anna"), ("password", "wrong but long enough")];
    let page = browser.submit(&log_in, &who).is(401).text();
    let log_in = crate::it::console_rig::form(&page, "/console/log-in").unwrap();
    let entered = browser.submit(&log_in, &[("name", "anna"), ("password", PASSWORD)]).is(200);
    browser.keep(&entered);
    let again = crate::it::console_rig::form(&entered.text(), &form.action).unwrap();
    assert_eq!((again.value("owner_id"), again.value("policy.rate")), ("ann & ben", "5/s"));
    assert_eq!(rig.get("/v1/subscriptions/erp")["owner_id"], "", "nobody pressed the button yet");
    browser.submit(&again, &[]).is(303);
    let found = rig.get("/v1/subscriptions/erp");
    assert_eq!(
        (&found["owner_id"], &found["policy"]["rate"]),
        (&json!("ann & ben"), &json!("5/s"))
    );

    // A secret is typed again; another site's form is not kept.
    let form = asked(&browser, "/console/settings", "own-password");
    let session = rig.id("/v1/sessions");
    rig.delete(&format!("/v1/sessions/{session}")).is(204);
    let page = browser.submit(&form, &[("new", "a new and long password")]).is(401).text();
    assert!(page.contains("name=\"keep\"") && !page.contains("a+new+and"), "{page}");
    let foreign = [("Sec-Fetch-Site", "cross-site")];
    let page = browser.send_with(&foreign, "POST", &form.action, b"new=x").is(401).text();
    assert!(!page.contains("name=\"keep\""), "{page}");
}

#[test]
fn a_filter_takes_what_is_shown_a_day_and_a_span() {
    let rig = Rig::new();
    rig.user("rita", "read");
    let browser = Browser::enter(&rig, "rita");
    rig.publish(&json!({ "event_type": "old", "aggregate_id": "4711", "payload": {} }));
    rig.advance(secs(2 * 3600));
    rig.publish(&json!({ "event_type": "new", "aggregate_id": "4712", "payload": {} }));
    let now = rig.now().to_string();
    let (day, minute) = (now.get(..10).unwrap(), now.get(..16).unwrap().replace('T', " "));
    for (filter, old, new) in [
        ("since=1h".to_owned(), false, true),
        ("since=1d".to_owned(), true, true),
        (format!("since={day}"), true, true),
        ("since=today".to_owned(), true, true),
        (format!("since={}", crate::it::console_rig::encoded(&minute)), false, true),
        ("since=yesterday&until=today".to_owned(), false, false),
        ("until=1h".to_owned(), true, false),
    ] {
        let page = browser.get(&format!("/console/events?{filter}"));
        assert_eq!(
            (page.contains(">4711<"), page.contains(">4712<")),
            (old, new),
            "{filter}: {page}"
        );
    }
    let answer = browser.send("GET", "/console/events?since=soon", b"");
    assert!(answer.status == 400 && answer.text().contains("since"), "{}", answer.text());
}

#[test]
fn the_last_admin_is_warned() {
    let rig = Rig::new();
    rig.user("anna", "admin");
    let browser = Browser::enter(&rig, "anna");
    let path = "/console/act/delete-user?name=anna";
    let warning = "the only person who may administer";
    assert!(browser.get(path).contains(warning));
    rig.user("ben", "admin");
    assert!(!browser.get(path).contains(warning));
    assert!(browser.get(path).contains("class=\"danger\""));
}

#[test]
fn long_pages_are_compressed_for_who_asks() {
    let rig = Rig::new();
    rig.user("anna", "admin");
    let browser = Browser::enter(&rig, "anna");
    let ask = |path: &str, coding: &str| {
        browser.send_with(&[("Accept-Encoding", coding)], "GET", path, b"").is(200)
    };
    let long = "/console/act/create-provider?back=/console/sources";
    let zipped = ask(long, "gzip, deflate, br");
    assert_eq!(zipped.field("content-encoding"), Some("gzip"));
    let mut text = String::new();
    let body = &zipped.message.body[..];
    flate2::read::GzDecoder::new(body).read_to_string(&mut text).unwrap();
    assert!(text.contains("New provider") && text.ends_with("</html>"), "{text}");
    assert!(text.len() <= 40_000 && body.len() <= 12_000, "{} {}", text.len(), body.len());
    for (path, coding) in [(long, "br"), (long, "gzip;q=0"), ("/console/jobs", "gzip")] {
        let plain = ask(path, coding);
        assert_eq!(plain.field("content-encoding"), None, "{path} {coding}");
        assert!(plain.text().ends_with("</html>"));
    }
}

#[test]
fn send_again_offers_who_has_not_got_it() {
    let rig = Rig::new();
    rig.user("anna", "operate");
    let browser = Browser::enter(&rig, "anna");
    let (well, bad, away) = (Receiver::new(), Receiver::new(), Receiver::new());
    bad.always(Reply::status(422));
    away.always(Reply::status(503));
    for (name, to) in [("well", &well), ("bad", &bad), ("worse", &bad), ("away", &away)] {
        rig.subscribe(name, to);
    }
    let event = rig.publish(&json!({ "event_type": "a", "payload": 1 }));
    let page = format!("/console/events/{}", event["id"].as_str().unwrap());
    rig.becomes("SELECT count(*) FROM deliveries WHERE state = 'dead_letter'", "2");
    rig.settle();
    let html = browser.get(&page);
    let link = links(&html).into_iter().find(|link| link.starts_with("/console/act/replay-event"));
    let asked = browser.get(&link.unwrap());
    // The open delivery is tried anyway, so it is not offered.
    assert!(asked.contains("value=\"well\"") && !asked.contains("value=\"away\""), "{asked}");
    let form = form(&asked, "/console/act/replay-event").unwrap();
    let checked = |body: &str| body.matches("subscriptions=").count();
    assert_eq!(checked(&form.body(&[])), 2, "{form:?}");
    // Without a choice nothing is sent, and the boxes stay.
    let before = bad.count();
    let mut none = form.clone();
    none.fields.retain(|(name, _)| name != "subscriptions");
    let refused = browser.submit(&none, &[]).is(422).text();
    assert!(refused.contains("this field is required") && refused.contains("value=\"bad\""));
    assert_eq!(bad.count(), before);
    browser.submit(&form, &[]).is(303);
    rig.becomes("SELECT count(*) FROM deliveries WHERE run_no = 2", "2");
    until("both are tried again", || bad.count() == before + 2);
    assert_eq!(well.count(), 1);
}

#[test]
fn a_change_is_asked_about_the_stored_events_before_it_is_kept() {
    let rig = Rig::new();
    rig.user("anna", "admin");
    let browser = Browser::enter(&rig, "anna");
    rig.pull("erp", &json!({ "event_types": ["invoice.*"] }));
    rig.publish_types(&["invoice.created", "invoice.paid", "order.created"]);
    let change = asked(&browser, "/console/subscriptions/erp", "change-subscription");
    let typed = [("event_types", "invoice.paid\norder.*"), ("what_if", "7d")];
    let page = browser.submit(&change, &[&typed[..], &[("again", "yes")]].concat()).is(200).text();
    assert!(page.contains("3 stored events were looked at"), "{page}");
    for part in
        ["<strong>1</strong> more than now", "<strong>1</strong> fewer than now", "order.created"]
    {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert_eq!(rig.get("/v1/subscriptions/erp")["event_types"], json!(["invoice.*"]));
    // The change itself is carried out, whatever was asked before.
    browser.submit(&change, &typed).is(303);
    assert_eq!(rig.get("/v1/subscriptions/erp")["event_types"], json!(["invoice.paid", "order.*"]));
    let wrong = asked(&browser, "/console/subscriptions/erp", "change-subscription");
    let wrong = browser.submit(&wrong, &[("what_if", "soon"), ("again", "yes")]).is(200).text();
    assert!(wrong.contains("what_if must be a span"), "{wrong}");
}

#[test]
fn what_a_target_lacks_is_shown_with_the_button_that_sends_it_again() {
    let rig = Rig::new();
    rig.user("anna", "admin");
    let browser = Browser::enter(&rig, "anna");
    let receiver = Receiver::new();
    rig.subscribe_with("erp", &receiver, &json!({}));
    for key in ["k1", "k2"] {
        rig.publish(&json!({ "event_type": "a", "idempotency_key": key, "payload": 1 }));
    }
    rig.becomes("SELECT count(*) FROM deliveries WHERE state = 'completed'", "2");
    rig.advance(secs(600));
    let form = asked(&browser, "/console/subscriptions/erp", "compare-subscription");
    let page = browser.submit(&form, &[("ids", "k1\nsomething-else")]).is(200).text();
    for part in ["<strong>2</strong> deliveries were compared", "<strong>1</strong> missing", "k2"]
    {
        assert!(page.contains(part), "{part}: {page}");
    }
    let event = rig.one("SELECT id FROM outbox WHERE idempotency_key = 'k2'");
    let again = format!("/console/act/replay-event?id={event}&amp;subscriptions=erp");
    assert!(page.contains(&again), "{again}: {page}");
    let form = asked(&browser, "/console/subscriptions/erp", "compare-subscription");
    let page = browser.submit(&form, &[("ids", "k1\nk2")]).is(200).text();
    assert!(page.contains("The target has all of them."), "{page}");
    let form = asked(&browser, "/console/subscriptions/erp", "compare-subscription");
    let neither = browser.submit(&form, &[]).is(422).text();
    assert!(neither.contains("Give either ids or list"), "{neither}");
}

#[test]
fn a_provider_is_asked_about_the_stored_webhooks_before_it_is_changed() {
    let rig = Rig::new();
    rig.user("anna", "admin");
    let browser = Browser::enter(&rig, "anna");
    let secret = "a-shared-secret-of-32-characters";
    rig.token_provider("shop", secret);
    for body in [r#"{"order":7}"#, r#"{"order":8,"note":"a longer one"}"#] {
        rig.send("POST", "/in/shop", &[("X-Token", secret)], body.as_bytes()).is(200);
    }
    let change = asked(&browser, "/console/providers/shop", "change-provider");
    let typed = [
        ("ordering_key", "path"),
        ("ordering_key.path", "$.order"),
        ("body_bytes_max", "20"),
        ("what_if", "7d"),
    ];
    let tried = browser.submit(&change, &[&typed[..], &[("again", "yes")]].concat()).is(200).text();
    for part in [
        "2 stored events were looked at",
        "<strong>1</strong> would be refused",
        "<strong>1</strong> would have another ordering key",
        "7 in place of none",
        "body_bytes_max is 20",
        "/console/webhooks/",
    ] {
        assert!(tried.contains(part), "{part}: {tried}");
    }
    assert_eq!(rig.get("/v1/providers/shop")["ordering_key"], Value::Null);
    browser.submit(&change, &typed).is(303);
    assert_eq!(rig.get("/v1/providers/shop")["ordering_key"], json!({ "path": "$.order" }));
}

#[test]
fn a_schema_is_asked_about_the_stored_events_before_it_is_kept() {
    let rig = Rig::new();
    rig.user("anna", "admin");
    let browser = Browser::enter(&rig, "anna");
    rig.publish_types(&["invoice.paid", "invoice.paid", "order.created"]);
    let path = "/v1/event-types/invoice.paid";
    rig.call("PUT", path, json!({ "schema": true }).to_string().as_bytes()).is(201);
    let page = "/console/events/types/invoice.paid";
    let change = asked(&browser, page, "change-event-type");
    let typed = [("schema", "{\"required\":[\"number\"]}"), ("what_if", "7d")];
    let tried = browser.submit(&change, &[&typed[..], &[("again", "yes")]].concat()).is(200).text();
    for part in [
        "2 stored events were looked at",
        "<strong>0</strong> refused by the schema of now",
        "<strong>2</strong> refused by this schema",
        "the payload has no member",
    ] {
        assert!(tried.contains(part), "{part}: {tried}");
    }
    assert_eq!(rig.get(path)["schema"], json!(true));
    browser.submit(&change, &typed).is(303);
    assert_eq!(rig.get(path)["schema"], json!({ "required": ["number"] }));
}
