//! Header fields that name the event: its type, its aggregate, and the field in which a provider names its type.

use crate::rig::prelude::*;

const PLAIN: &str = "a-shared-secret-of-32-characters";
const NAMES: [&str; 3] = ["oncebox-event-type", "oncebox-aggregate-type", "oncebox-aggregate-id"];

fn named(message: &Message) -> [Option<String>; 3] {
    NAMES.map(|name| message.field(name).map(str::to_owned))
}

fn shown(rig: &Rig, delivery: u32) -> Vec<(String, String)> {
    let request = rig.get(&format!("/v1/deliveries/dlv_{delivery}/request"));
    let fields = request["headers"].as_array().unwrap().clone();
    fields.iter().map(|field| (text(field, "name"), text(field, "value"))).collect()
}

#[test]
fn each_request_names_its_event_whatever_the_format() {
    let rig = Rig::new();
    let formats = ["raw", "standard_webhooks", "cloudevents_binary", "cloudevents_structured"];
    for format in formats {
        let receiver = Receiver::new();
        let name = format.replace('_', "-");
        rig.subscribe_with(&name, &receiver, &json!({ "format": format }));
        rig.publish(&json!({
            "event_type": "invoice.refunded", "aggregate_type": "invoice", "aggregate_id": "4711",
            "payload": { "id": 4711 }, "target": name,
        }));
        rig.sent(&receiver, 1);
        let wanted = ["invoice.refunded", "invoice", "4711"].map(|text| Some(text.to_owned()));
        assert_eq!(named(&receiver.seen()[0]), wanted, "{format}");
    }
}

/// What stands in an aggregate or a type is of others. It adds no header field, and can be read back.
#[test]
fn values_are_percent_encoded() {
    let (rig, receiver) = Rig::subscribed("erp");
    for (given, wanted) in [
        ("47 11", "47%2011"),
        ("50%", "50%25"),
        ("a\"b", "a%22b"),
        ("Zürich", "Z%C3%BCrich"),
        ("a\r\nx-evil: 1", "a%0D%0Ax-evil:%201"),
        ("a/b:c,d;e", "a/b:c,d;e"),
    ] {
        rig.publish(&json!({
            "event_type": "a", "aggregate_type": "t", "aggregate_id": given, "payload": 1
        }));
        rig.settle();
        let last = receiver.seen().pop().unwrap();
        assert_eq!(last.field("oncebox-aggregate-id"), Some(wanted), "{given:?}");
        assert_eq!(last.field("x-evil"), None);
    }
    // Without an aggregate there are no such fields.
    rig.publish_type("plain");
    rig.settle();
    let last = receiver.seen().pop().unwrap();
    assert_eq!(named(&last), [Some("plain".to_owned()), None, None]);
}

#[test]
fn a_subscription_switches_them_off_and_the_request_is_shown_with_what_it_had() {
    let (rig, receiver) = Rig::subscribed("erp");
    rig.publish_type("a");
    rig.settle();
    let off = json!({ "policy": { "event_fields": false } });
    let changed = rig.patch("/v1/subscriptions/erp", &off).is(200).json();
    assert_eq!(changed["policy"]["event_fields"], false);
    rig.publish_type("b");
    rig.settle();
    assert_eq!(receiver.seen()[0].field("oncebox-event-type"), Some("a"));
    assert_eq!(named(&receiver.seen()[1]), [None, None, None]);
    // The first request is shown as it was sent.
    let has = |fields: Vec<(String, String)>| fields.iter().any(|(name, _)| name == NAMES[0]);
    assert_eq!((has(shown(&rig, 1)), has(shown(&rig, 2))), (true, false));
    // They cost no room in each attempt.
    rig.says("SELECT group_concat(named || coalesce(fields, '-')) FROM attempts", "1-,0-");
    for name in NAMES {
        for body in [json!({ "headers": { name: "x" } }), json!({ "event_headers": [name] })] {
            rig.patch("/v1/subscriptions/erp", &body).is(422).tells("is set by Oncebox");
        }
    }
    let pull = json!({ "name": "pull", "target": "pull", "policy": { "event_fields": true } });
    rig.post("/v1/subscriptions", &pull).is(422).tells("event_fields");
}

fn github(rig: &Rig, event: &str, body: &[u8]) -> Answer {
    let signature = http::github(PLAIN, body);
    let fields = [
        ("X-Hub-Signature-256", signature.as_str()),
        ("X-GitHub-Delivery", event),
        ("X-GitHub-Event", event),
    ];
    rig.send("POST", "/in/shop", &fields, body)
}

#[test]
fn a_forwarded_webhook_keeps_the_field_in_which_its_provider_names_the_type() {
    let rig = Rig::new();
    rig.provider("shop", &json!({ "kind": "github" }), PLAIN);
    let (receiver, silent) = (Receiver::new(), Receiver::new());
    rig.subscribe_with("all", &receiver, &json!({ "source": "provider:shop" }));
    let off = json!({ "source": "provider:shop", "policy": { "event_fields": false } });
    rig.subscribe_with("silent", &silent, &off);
    github(&rig, "pull_request", br#"{"action":"opened"}"#).is(200);
    rig.settle();
    let sent = receiver.seen().remove(0);
    assert_eq!(sent.field("x-github-event"), Some("pull_request"));
    assert_eq!(sent.field("oncebox-event-type"), Some("pull_request.opened"));
    // Its id is the idempotency key, and its signature is for nobody else.
    assert_eq!(sent.field("x-idempotency-key"), Some("pull_request"));
    assert_eq!(sent.field("x-hub-signature-256"), None);
    assert_eq!(silent.seen()[0].field("x-github-event"), None);
    let seen = shown(&rig, 1);
    assert!(seen.contains(&("x-github-event".to_owned(), "pull_request".to_owned())), "{seen:?}");

    // A generic provider names the field itself.
    let scheme = json!({
        "kind": "generic", "check": { "token": { "header": "X-Token" } },
        "event_id": "body_hash", "event_type": { "header": "X-What" },
    });
    rig.provider("own", &scheme, PLAIN);
    rig.subscribe_with("own", &receiver, &json!({ "source": "provider:own" }));
    let fields = [("X-Token", PLAIN), ("X-What", "Order Paid")];
    rig.send("POST", "/in/own", &fields, b"{}").is(200);
    rig.settle();
    assert_eq!(receiver.seen()[1].field("x-what"), Some("Order Paid"));
    assert_eq!(receiver.seen()[1].field("oncebox-event-type"), Some("Order_Paid"));
}

/// One Oncebox sends to another one, which is itself here.
#[test]
fn another_oncebox_takes_the_type_from_the_field() {
    let rig = Rig::new();
    let secret = format!("whsec_{}", BASE64.encode(&[7; 24]));
    rig.provider("finance", &json!({ "kind": "standard" }), &secret);
    let url = format!("http://{}/in/finance", rig.address());
    let body = json!({ "name": "next", "url": url, "secret": secret });
    rig.post("/v1/subscriptions", &body).is(201);
    for event_type in ["invoice.paid", "rechnung%bezahlt"] {
        rig.publish_type(event_type);
        rig.settle();
    }
    let types = "SELECT group_concat(event_type, '|') FROM webhook_events";
    assert_eq!(rig.one(types), "invoice.paid|rechnung%bezahlt");
}
