//! Texts that are JSON, and texts that are not: the door, a filter and a template agree on each of them.

use data_encoding::BASE64;

use crate::rig::prelude::*;

/// What is JSON by RFC 8259.
const TAKEN: &[&str] = &[
    "null",
    "true",
    "false",
    "0",
    "-0",
    "7",
    "-7",
    "1.5",
    "0.10",
    "-1e-7",
    "1E+2",
    "0e0",
    "1e400",
    "-1e-400",
    "1e99999999999999999999",
    "123456789012345678901234567890",
    " \t\r\n1 \n",
    r#""""#,
    r#""a""#,
    r#""\u0061\/\"\\\b\f\n\r\t""#,
    r#""\u00FC\uD83D\uDE00""#,
    r#""\u0000""#,
    r#""\uFFFF""#,
    // Half a character, and two halves in the wrong order.
    r#""cut \ud83d""#,
    r#""\ude00\ud83d""#,
    r#"{"\ud83d":1}"#,
    "\"ü \u{1f600} \u{7f} \u{2028} \u{feff}\"",
    "[]",
    "[ ]",
    "[[[]],{}]",
    "[1,\"1\",null]",
    "{}",
    r#"{"":0}"#,
    r#"{ "a" : { "b" : [ ] } }"#,
    r#"{"a":1,"A":2}"#,
];

/// What is not.
const REFUSED: &[&str] = &[
    "",
    " ",
    "nul",
    "True",
    "undefined",
    "NaN",
    "-Infinity",
    "-",
    "+1",
    "01",
    "-01",
    "1.",
    ".5",
    "1.e1",
    "1e",
    "1e+",
    "0x1F",
    "1_000",
    "1 2",
    "\u{ff11}",
    "\"a",
    "a\"",
    "'a'",
    r#""\x41""#,
    r#""\u12""#,
    r#""\u12G4""#,
    r#""\"#,
    "\"a\tb\"",
    "\"a\nb\"",
    "\"a\0b\"",
    "[1,]",
    "[,1]",
    "[1 2]",
    "[1,,2]",
    "[1",
    "[\"a",
    "[1}",
    "]",
    r#"{"a":1,}"#,
    r#"{"a"}"#,
    r#"{"a":}"#,
    r#"{"a":1"#,
    r#"{"a" 1}"#,
    r#"{"a":1 "b":2}"#,
    r#"{"a":1]"#,
    "{a:1}",
    "{'a':1}",
    "{1:1}",
    "{,}",
    "{}{}",
    "{} x",
    "/* 1 */ 1",
    "1 // one",
    "\u{c}1",
    "\u{a0}1",
    "[\u{feff}1]",
];

/// What came of an event at a subscription: the state of its delivery, else `none`.
fn state(rig: &Rig, key: &str, subscription: &str) -> String {
    rig.one(&format!(
        "SELECT coalesce((SELECT d.state FROM deliveries d JOIN subscriptions s ON s.seq = d.subscription_seq
                            JOIN outbox o ON o.seq = d.outbox_seq
                           WHERE o.idempotency_key = '{key}' AND s.name = '{subscription}'), 'none')"
    ))
}

#[test]
fn the_door_a_filter_and_a_template_agree_on_what_is_json() {
    let rig = Rig::new();
    let receiver = Receiver::new();
    let absent = json!([{ "path": "$.absent", "op": "exists", "value": false }]);
    let no_breaker = json!({ "breaker_after": 0 });
    let filtered = json!({ "filter": absent, "policy": no_breaker });
    rig.subscribe_with("filtered", &receiver, &filtered);
    let template = json!({ "body": "{{ payload|tojson }}" });
    rig.subscribe_with("made", &receiver, &json!({ "template": template, "policy": no_breaker }));
    let nested = |deep: usize| format!("{}{}", "[".repeat(deep), "]".repeat(deep));
    // The event itself is one level.
    let (deepest, too_deep) = (nested(127), nested(129));
    let taken = TAKEN.iter().copied().chain([deepest.as_str()]).map(|text| (text.as_bytes(), true));
    let refused =
        REFUSED.iter().copied().chain([too_deep.as_str()]).map(|text| (text.as_bytes(), false));
    let bytes = [(&b"[\"\xff\"]"[..], false), (b"[\"\xed\xa0\x80\"]", false)];
    let all: Vec<(&[u8], bool)> = taken.chain(refused).chain(bytes).collect();
    for (n, (text, is_taken)) in all.iter().enumerate() {
        let shown = String::from_utf8_lossy(text);
        let start = format!(r#"{{"event_type":"a","idempotency_key":"door-{n}","payload":"#);
        let answer = rig.call("POST", "/v1/events", &[start.as_bytes(), text, b"}"].concat());
        assert_eq!(answer.status == 201, *is_taken, "{shown}: {}", answer.text());
        // As any bytes it is taken, and read later.
        let payload = BASE64.encode(text);
        let key = format!("bytes-{n}");
        rig.publish(
            &json!({ "event_type": "a", "idempotency_key": key, "payload_base64": payload }),
        );
    }
    rig.settle();
    for (n, (text, is_taken)) in all.iter().enumerate() {
        let shown = String::from_utf8_lossy(text);
        let seen = |way: &str, subscription: &str| state(&rig, &format!("{way}-{n}"), subscription);
        if *is_taken {
            let states =
                [seen("door", "filtered"), seen("door", "made"), seen("bytes", "filtered")];
            assert_eq!(states, ["completed", "completed", "completed"], "{shown}");
            assert_eq!(seen("bytes", "made"), "completed", "{shown}");
            continue;
        }
        // What is meant as JSON is a dead letter that tells why; any other text fits no filter.
        let is_meant = matches!(text.trim_ascii_start().first(), Some(b'{' | b'['));
        let unread = if is_meant { "dead_letter" } else { "none" };
        assert_eq!(
            [seen("bytes", "filtered"), seen("bytes", "made")],
            [unread, "dead_letter"],
            "{shown}"
        );
    }
    let reasons = "SELECT group_concat(DISTINCT substr(d.reason, 1, 60)) FROM deliveries d
                     JOIN subscriptions s ON s.seq = d.subscription_seq WHERE s.name = 'filtered' AND d.reason IS NOT NULL";
    let reasons = rig.one(reasons);
    for part in ["but is not JSON", "but is not UTF-8", "nested deeper than 128"] {
        assert!(reasons.contains(part), "{reasons}");
    }
}

#[test]
fn a_name_twice_and_a_broken_text_are_told_and_sent_by_a_person() {
    let rig = Rig::new();
    let receiver = Receiver::new();
    let total = json!([{ "path": "$.total", "op": "gt", "value": 100 }]);
    rig.subscribe_with("erp", &receiver, &json!({ "filter": total }));
    let publish = |text: &str| {
        let payload = BASE64.encode(text.as_bytes());
        rig.publish(&json!({ "event_type": "a", "payload_base64": payload, "content_type": "application/json" }))
    };
    publish(r#"{"total":50,"total":250}"#);
    publish(r#"{"total":250,"note":1,"note":2}"#);
    publish("\u{feff}{\"total\":250}");
    publish(r#"{"total":250"#);
    rig.settle();
    assert_eq!(receiver.count(), 2);
    assert_eq!(receiver.seen()[1].body, "\u{feff}{\"total\":250}".as_bytes(), "the bytes stay");
    let reasons =
        rig.lines("SELECT reason FROM deliveries WHERE state = 'dead_letter' ORDER BY seq");
    let retry = "A retry sends it without its filter";
    assert_eq!(
        reasons,
        [
            format!("a name that is looked for is twice in an object of the payload. {retry}"),
            format!("the payload begins like JSON, but is not JSON. {retry}"),
        ]
    );
    let first = rig.one("SELECT 'dlv_' || min(seq) FROM deliveries WHERE state = 'dead_letter'");
    rig.post(&format!("/v1/deliveries/{first}/retry"), &json!({})).is(200);
    rig.has_sent(&receiver, 3);
}

#[test]
fn digits_that_a_float_loses_go_through_filters_templates_and_schemas() {
    let rig = Rig::new();
    let (one, made) = (Receiver::new(), Receiver::new());
    let created = rig.call(
        "POST",
        "/v1/subscriptions",
        format!(
            r#"{{"name":"one","url":"{}","event_types":["*"],"filter":[{{"path":"$.id","op":"equals","value":18446744073709551617}}]}}"#,
            one.url()
        )
        .as_bytes(),
    );
    assert!(created.text().contains(":18446744073709551617}"), "{}", created.text());
    created.is(201);
    let stored = "SELECT filter FROM subscriptions WHERE name = 'one'";
    assert!(rig.one(stored).contains("18446744073709551617"), "{}", rig.one(stored));
    let template = json!({ "body": "{{ payload.total }}|{{ payload|tojson }}" });
    rig.subscribe_with("made", &made, &json!({ "template": template }));
    let schema = r#"{"schema":{"properties":{"total":{"multipleOf":0.01,"maximum":5000000000000.05,"exclusiveMaximum":1e400}}}}"#;
    let set = rig.call("PUT", "/v1/event-types/priced", schema.as_bytes());
    assert!(set.text().contains("1e400"), "{}", set.text());
    set.is(201);
    let audited = rig.call("GET", "/v1/audit-events", b"");
    assert!(audited.text().contains("1e400"), "{}", audited.text());
    let publish = |payload: &str| {
        let event = format!(r#"{{"event_type":"priced","payload":{payload}}}"#);
        rig.call("POST", "/v1/events", event.as_bytes())
    };
    let payload = r#"{"id":18446744073709551617,"total":99.90,"note":"Danke \ud83d"}"#;
    publish(payload).is(201);
    publish(r#"{"id":18446744073709551616,"total":5000000000000.05}"#).is(201);
    publish(r#"{"total":5000000000000.055}"#).is(422);
    publish(r#"{"total":5000000000000.06}"#).is(422);
    publish(r#"{"total":1,"total":2}"#).is(422);
    rig.settle();
    assert_eq!((one.count(), made.count()), (1, 2));
    assert_eq!(one.seen()[0].body, payload.as_bytes(), "the bytes that came are sent");
    let written = "99.90|{\"id\":18446744073709551617,\"total\":99.90,\"note\":\"Danke \u{fffd}\"}";
    assert_eq!(String::from_utf8_lossy(&made.seen()[0].body), written);
}

#[test]
fn an_ordering_key_that_cannot_be_read_is_refused() {
    let rig = Rig::new();
    rig.token_provider("shop", "token-1234567890");
    rig.patch("/v1/providers/shop", &json!({ "ordering_key": { "path": "$.order" } })).is(200);
    let send = |body: &str| {
        rig.send("POST", "/in/shop", &[("X-Token", "token-1234567890")], body.as_bytes())
    };
    send(r#"{"order":1.50,"note":"\ud83d"}"#).is(200);
    send("\u{feff}{\"order\":18446744073709551617}").is(200);
    let keys = rig.lines("SELECT ordering_key FROM webhook_events ORDER BY seq");
    assert_eq!(keys, ["1.50", "18446744073709551617"]);
    for body in [r#"{"order":1,"order":2}"#, r#"{"order":1"#] {
        let answer = send(body);
        assert!((400..500).contains(&answer.status), "{}", answer.text());
    }
    assert_eq!(rig.one("SELECT count(*) FROM webhook_events"), "2");
}
