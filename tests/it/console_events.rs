//! The pages of events, webhooks and deliveries.

use crate::it::console_rig::{Browser, form, links, unescaped};
use crate::rig::prelude::*;

/// What a stored text must not become.
const HOSTILE: &str = "<script>alert('x')</script>\"onload=";

/// An event whose delivery failed once and waits; its id and the delivery's.
fn failed(rig: &Rig, receiver: &Receiver) -> (String, String) {
    receiver.always(Reply::status(500));
    rig.subscribe("erp", receiver);
    let payload = json!({ "text": HOSTILE, "name": "Zoë" });
    rig.publish(&json!({
        "event_type": "invoice.created", "idempotency_key": "invoice-4711",
        "aggregate_type": "invoice", "aggregate_id": HOSTILE, "payload": payload,
    }));
    rig.settle();
    let event = rig.id("/v1/events");
    let delivery = rig.id("/v1/deliveries");
    (event, delivery)
}

#[test]
fn an_event_tells_why_it_waits_and_what_each_attempt_came_to() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    let (event, delivery) = failed(&rig, &receiver);
    let browser = Browser::new(&rig, "read");
    rig.advance(secs(2));
    for path in [format!("/console/events/{event}"), format!("/console/deliveries/{delivery}")] {
        let page = browser.get(&path);
        for part in
            ["invoice.created", "invoice-4711", "erp", "temporary error", ">500<", "It waits 2 s"]
        {
            assert!(page.contains(part), "{path} lacks {part}:\n{page}");
        }
        assert!(unescaped(&page).contains(HOSTILE), "{path}");
        assert!(!page.contains("/console/act/"), "a reader has no buttons: {path}");
    }
    for path in
        ["/console/events?status=failed", "/console/deliveries?state=pending&subscription=erp"]
    {
        assert!(browser.get(path).contains("invoice.created"), "{path}");
    }
    assert!(browser.get("/console/events?status=quarantined").contains("No events here yet."));
    assert!(browser.get("/console/deliveries?state=parked").contains("No deliveries here."));
    assert_eq!(browser.send("GET", "/console/events/nothing", b"").status, 404);
    let answer = browser.send("POST", "/console/act/retry-delivery", b"id=dlv_1");
    assert_eq!(answer.status, 403);
}

#[test]
fn an_attempt_at_another_address_says_so() {
    let (rig, receiver, other) = (Rig::new(), Receiver::new(), Receiver::new());
    let (event, delivery) = failed(&rig, &receiver);
    let browser = Browser::new(&rig, "read");
    let addresses = |url: String| {
        let page = browser.get(&format!("/console/events/{event}"));
        page.matches(&format!("<code>{url}</code>")).count()
    };
    assert_eq!(addresses(receiver.url()), 1);
    let change = json!({ "url": other.url() });
    rig.call("PATCH", "/v1/subscriptions/erp", change.to_string().as_bytes()).is(200);
    rig.call("POST", &format!("/v1/deliveries/{delivery}/retry"), b"").is(200);
    until("it arrives at the other", || other.count() == 1);
    rig.settle();
    assert_eq!((addresses(receiver.url()), addresses(other.url())), (1, 1));
}

#[test]
fn the_newest_attempts_of_many_are_shown_and_the_others_are_a_link_away() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    let (event, delivery) = failed(&rig, &receiver);
    let change = json!({ "policy": { "breaker_after": 0 } });
    rig.call("PATCH", "/v1/subscriptions/erp", change.to_string().as_bytes()).is(200);
    for n in 2..=35 {
        rig.call("POST", &format!("/v1/deliveries/{delivery}/retry"), b"").is(200);
        until("the next attempt", || receiver.count() == n);
        rig.settle();
    }
    let browser = Browser::new(&rig, "read");
    let page_of = format!("/console/deliveries/{delivery}");
    let numbers = |path: &str| {
        let page = browser.get(path);
        let attempts = page.split("<div>Attempt ").skip(1);
        let mut numbers: Vec<String> =
            attempts.map(|rest| rest.split(':').next().unwrap().to_owned()).collect();
        if page.contains("class=\"when\">now<") {
            numbers.push("now".to_owned());
        }
        (numbers.first().cloned().unwrap(), numbers.last().cloned().unwrap(), numbers.len(), page)
    };
    let (first, last, rows, page) = numbers(&page_of);
    assert_eq!((first.as_str(), last.as_str(), rows), ("6", "now", 31));
    assert!(page.contains("6–35 / 35"), "{page}");
    assert!(!page.contains(">Newest<"), "{page}");
    let earlier = links(&page).into_iter().find(|link| link.contains("after=")).unwrap();
    let (first, last, rows, page) = numbers(&earlier);
    assert_eq!((first.as_str(), last.as_str(), rows), ("1", "30", 30));
    assert!(page.contains(&format!("href=\"{page_of}\">Newest<")), "{page}");
    assert!(!page.contains(">Earlier<"), "{page}");
    // Of an event it is fewer.
    let (first, _, rows, page) = numbers(&format!("/console/events/{event}"));
    assert_eq!((first.as_str(), rows), ("26", 11));
    assert!(page.contains(&format!("{page_of}?after=15")), "{page}");
    for odd in ["-3", "99999999999999999999", "x", "34"] {
        assert_eq!(numbers(&format!("{page_of}?after={odd}")).2 / 30, 1, "{odd}");
    }
}

#[test]
fn a_list_has_tabs_with_counts_chosen_columns_and_a_file() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    failed(&rig, &receiver);
    let row = json!({
        "event_type": "invoice.paid", "idempotency_key": "=SUM(A1:A9)", "payload": {},
    });
    rig.publish(&row);
    rig.settle();
    let browser = Browser::new(&rig, "read");
    let page = browser.get("/console/deliveries?subscription=erp");
    let tab = "data-word=\"pending\">waiting <span class=\"number\">2</span>";
    assert!(unescaped(&page).contains(tab), "{page}");
    let chosen = browser.get("/console/deliveries?columns=event&columns=runs&subscription=erp");
    assert!(chosen.contains(">Run</th>") && !chosen.contains(">Attempts</th>"), "{chosen}");
    // Tabs, spans of time and filters keep the columns, and the columns keep the filters.
    for other in ["state=pending", "since=1h"] {
        let links = links(&chosen);
        let link = links.iter().find(|link| link.contains(other)).unwrap();
        assert!(link.contains("columns=runs") && link.contains("subscription=erp"), "{link}");
    }
    let kept = "<input type=\"hidden\" name=\"columns\" value=\"runs\">";
    assert!(chosen.contains(kept), "{chosen}");
    assert!(chosen.contains("type=\"hidden\" name=\"subscription\" value=\"erp\""), "{chosen}");
    assert!(links(&chosen).iter().any(|link| link.contains("csv=all") && link.contains("erp")));
    let file = browser.send("GET", "/console/events?csv=all&event_type=invoice.paid", b"").is(200);
    let named = "attachment; filename=\"Events.csv\"";
    assert_eq!(file.field("content-disposition"), Some(named));
    let text = file.text();
    let lines: Vec<&str> = text.split_terminator("\r\n").collect();
    assert!(lines[0].starts_with("\u{feff}id,") && lines[0].contains(",event_type,"), "{text}");
    assert!(lines.len() == 2 && lines[1].contains(",'=SUM(A1:A9),"), "{text}");
    // Each list has one, and none has more than the person may see.
    for path in
        ["webhooks", "deliveries", "dead-letters", "subscriptions", "lanes", "jobs", "alerts"]
    {
        browser.send("GET", &format!("/console/{path}?csv=all"), b"").is(200);
    }
    browser.send("GET", "/console/settings/users?csv=all", b"").is(403);
}

#[test]
fn the_text_for_support_has_no_content() {
    let (rig, receiver) = (Rig::new(), Receiver::with(Reply::status(500)));
    let body = json!({ "name": "target", "url": format!("{}?who=personal", receiver.url()), "event_types": ["*"] });
    rig.post("/v1/subscriptions", &body).is(201);
    rig.publish(&json!({
        "event_type": "invoice.created", "idempotency_key": "personal-key", "aggregate_type": "invoice",
        "aggregate_id": "personal-4711", "ordering_key": "personal", "headers": { "x-who": "personal" },
        "payload": { "who": "personal" },
    }));
    rig.settle();
    let browser = Browser::new(&rig, "read");
    let event = rig.id("/v1/events");
    let page = unescaped(&browser.get(&format!("/console/events/{event}/support")));
    assert!(!page.contains("personal"), "{page}");
    for part in [
        &event,
        "event_type=invoice.created",
        "class=transient",
        "http_status=500",
        "waiting.reason=time",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[test]
fn an_example_of_an_event_type_is_sent_as_it_stands_there() {
    let (rig, receiver) = Rig::subscribed_to("erp", Receiver::new());
    let schema = json!({ "type": "object", "required": ["total"] });
    let known =
        json!({ "description": "An invoice.", "schema": schema, "example": { "total": 99.5 } });
    rig.call("PUT", "/v1/event-types/invoice.created", known.to_string().as_bytes()).is(201);
    let browser = Browser::new(&rig, "operate");
    let page = browser.get("/console/events/types/invoice.created");
    let asked = links(&page).into_iter().find(|link| link.contains("send-event")).unwrap();
    let page = browser.get(&asked);
    let sent = form(&page, "/console/act/send-event").unwrap();
    assert_eq!(sent.value("payload"), "{\"total\":99.5}");
    // What does not fit is told at its field, and nothing is sent.
    let wrong = browser.submit(&sent, &[("payload", "{}")]).is(422).text();
    assert!(unescaped(&wrong).contains("total"), "{wrong}");
    let again = form(&wrong, "/console/act/send-event").unwrap();
    browser.submit(&again, &[("payload", "{\"total\": 1}")]).is(303);
    rig.settle();
    assert_eq!(receiver.seen().last().unwrap().body, b"{\"total\":1}");
}

#[test]
fn a_list_of_many_pages_is_one_file() {
    let rig = Rig::new();
    let events: Vec<_> = (0..600)
        .map(|n| json!({ "event_type": "a.b", "idempotency_key": format!("k-{n}"), "payload": n }))
        .collect();
    rig.publish(&json!(events));
    let text =
        Browser::new(&rig, "read").send("GET", "/console/events?csv=all", b"").is(200).text();
    assert_eq!(text.split_terminator("\r\n").count(), 601);
}

#[test]
fn a_delivery_is_tried_edited_and_skipped_in_the_name_of_the_person() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    let (event, delivery) = failed(&rig, &receiver);
    let browser = Browser::named(&rig, "anna", "operate");
    let path = format!("/console/deliveries/{delivery}");
    let sent = receiver.count();
    browser.act(&path, "retry-delivery", &[]);
    rig.has_sent(&receiver, sent + 1);
    // Numbers keep their digits, since the text is sent as it was typed.
    let act = "/console/act/edit-and-resend";
    let edit = form(&browser.get(&format!("{act}?id={delivery}")), act).unwrap();
    assert!(browser.get(&path).contains(act) && edit.value("payload_base64").contains("Zoë"));
    let foreign = browser.submit(&edit, &[("csrf", "wrong")]);
    assert_eq!(foreign.status, 403);
    receiver.always(Reply::status(200));
    let looked = browser.submit(&edit, &[("payload_base64", "{\"total\": 99.00}")]).is(200).text();
    browser.submit(&form(&looked, act).unwrap(), &[]).is(303);
    rig.settle();
    assert_eq!(receiver.seen().last().unwrap().body, b"{\"total\": 99.00}");
    let page = browser.get(&path);
    assert!(page.contains("skipped") && !page.contains("/console/act/skip-delivery"), "{page}");
    assert!(
        !browser.get(&format!("/console/events/{event}")).contains("/console/act/cancel-event")
    );
    let audited = rig.get("/v1/audit-events?action=delivery.edit_and_resend");
    assert_eq!(audited["items"][0]["actor"]["display"], "anna", "{audited}");
}

#[test]
fn the_request_is_shown_without_its_secrets() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    let (_, delivery) = failed(&rig, &receiver);
    let secret = "a-token-of-the-target-4711";
    let body = json!({ "kind": "bearer", "secret": secret });
    rig.post("/v1/subscriptions/erp/credentials", &body).is(201);
    let request = format!("/v1/deliveries/{delivery}/request");
    assert!(!rig.get(&request).to_string().contains("authorization"), "it was sent without");
    rig.post(&format!("/v1/deliveries/{delivery}/retry"), &json!({})).is(200);
    rig.settle();
    let shown = rig.get(&request);
    let value = |name: &str| {
        let headers = shown["headers"].as_array().unwrap();
        let found = headers.iter().find(|field| field["name"] == name);
        found.unwrap_or_else(|| panic!("{name}: {shown}"))["value"].as_str().unwrap().to_owned()
    };
    assert_eq!(
        (value("webhook-signature"), value("authorization")),
        ("v1,***".into(), "***".into())
    );
    assert_eq!(value("x-idempotency-key"), "invoice-4711");
    let sent = receiver.seen().pop().unwrap();
    assert_eq!(sent.field("webhook-id").unwrap(), value("webhook-id"));
    assert_eq!(String::from_utf8(sent.body).unwrap(), shown["body"].as_str().unwrap());
    let page =
        unescaped(&Browser::new(&rig, "read").get(&format!("/console/deliveries/{delivery}")));
    assert!(page.contains("curl -X POST") && page.contains("authorization: ***"), "{page}");
    assert!(!page.contains(secret));
    rig.get(&format!("/v1/deliveries/{delivery}"));
    rig.call("GET", "/v1/deliveries/dlv_99/request", b"").is(404);
}

#[test]
fn webhooks_of_a_provider_stand_beside_those_that_were_refused() {
    let rig = Rig::new();
    rig.provider("shop", &json!({ "kind": "github" }), "whsec_0123456789abcdef0123456789");
    let browser = Browser::new(&rig, "operate");
    assert!(browser.get("/console/webhooks").contains("No webhooks here yet."));
    rig.send(
        "POST",
        "/in/shop",
        &[("Content-Type", "application/json")],
        br#"{"id":"evt_1","type":"order.paid"}"#,
    );
    rig.advance(secs(1));
    shows(&browser.get("/console/webhooks?provider=shop"), &["Refused"]);
    for item in rig.get("/v1/webhook-events")["items"].as_array().unwrap() {
        let path = format!("/console/webhooks/{}", item["id"].as_str().unwrap());
        assert!(browser.get(&path).contains("Signature"));
    }
}

#[test]
fn operational_events_are_shown_only_when_asked_for() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    rig.subscribe_with("erp", &receiver, &json!({ "event_types": ["*", "delivery.*"] }));
    rig.publish(&json!({
        "event_type": "invoice.created", "aggregate_type": "invoice", "aggregate_id": "4711", "payload": 1,
    }));
    rig.sent(&receiver, 2);
    let browser = Browser::new(&rig, "read");
    for path in ["/console/events?aggregate_id=4711", "/console/search?q=4711"] {
        let page = browser.get(path);
        assert!(page.contains("invoice.created") && !page.contains("delivery.completed"), "{page}");
        let link = links(&page).into_iter().find(|link| link.contains("operational=true")).unwrap();
        assert!(link.contains("4711"), "{link}");
        let page = browser.get(&unescaped(&link));
        assert!(page.contains("invoice.created") && page.contains("delivery.completed"), "{page}");
    }
}

#[test]
fn an_event_says_that_it_is_archived_and_what_was_removed() {
    let (rig, _receiver) = Rig::subscribed("erp");
    rig.publish(&json!({ "event_type": "a", "payload": { "n": "marker-77" } }));
    rig.settle();
    let path = format!("/console/events/{}", rig.id("/v1/events"));
    rig.advance(secs(31 * 24 * 3600));
    rig.becomes("SELECT count(*) FROM outbox", "0");
    let browser = Browser::new(&rig, "operate");
    let page = browser.get(&path);
    for part in ["In the archive of", "2026-01", "marker-77", "/console/act/"] {
        assert!(page.contains(part), "{part}:\n{page}");
    }
    rig.post("/v1/events/expunge", &json!({ "filter": {}, "reason": "Not needed" })).is(201);
    until("its content is removed", || browser.get(&path).contains("Content removed"));
    let page = browser.get(&path);
    assert!(!page.contains("marker-77") && !page.contains("/console/act/"), "{page}");
}

#[test]
fn a_state_has_one_word_in_badges_tabs_and_legend() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    receiver.always(Reply::status(503));
    rig.subscribe("erp", &receiver);
    rig.publish_type("a");
    rig.becomes("SELECT count(*) FROM outbox WHERE status = 'failed'", "1");
    let browser = Browser::new(&rig, "read");
    let meaning = "An attempt failed. It is tried again without you.";
    let page = browser.get("/console/events");
    for part in [
        &format!("title=\"{meaning}\" data-word=\"retrying\">retrying</a>"),
        "</span> retrying</span>",
        &format!("<dt>retrying</dt><dd>{meaning}</dd>"),
        "data-word=\"pending\">waiting</a>",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!page.contains(">failed<"), "{page}");
    assert_eq!(page.matches(meaning).count(), 2, "once at the word, once in the legend: {page}");
    // A webhook that failed has a dead letter; nobody tries it again.
    let webhooks = browser.get("/console/webhooks");
    assert!(webhooks.contains("data-word=\"dead_letter\">dead letter</a>"), "{webhooks}");
    let deliveries = browser.get("/console/deliveries");
    assert!(deliveries.contains("data-word=\"waiting\">to be confirmed"), "{deliveries}");
    assert!(deliveries.contains("data-word=\"pending\">waiting"), "{deliveries}");
}

#[test]
fn buttons_that_end_something_say_what_they_do() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    receiver.always(Reply::status(422));
    rig.subscribe("erp", &receiver);
    rig.publish_type("a");
    rig.becomes("SELECT count(*) FROM deliveries WHERE state = 'dead_letter'", "1");
    let browser = Browser::new(&rig, "operate");
    let page = browser.get(&format!("/console/deliveries/{}", rig.id("/v1/deliveries")));
    for action in ["skip", "cancel-delivery"] {
        let (before, _) = page.split_once(&format!(" href=\"/console/act/{action}?")).unwrap();
        let tag = before.rsplit('<').next().unwrap();
        assert!(tag.contains(" title=\"It is "), "{action}: {tag}");
    }
    assert!(page.contains("<dt>skip</dt>") && page.contains("<dt>cancel</dt>"), "{page}");
    let reader = Browser::new(&rig, "read");
    let page = reader.get(&format!("/console/deliveries/{}", rig.id("/v1/deliveries")));
    assert!(!page.contains("<dt>skip</dt>"), "nothing to explain: {page}");
}
