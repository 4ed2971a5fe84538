//! Every scheme against signatures that other libraries made: see `tests/data/signatures/make.py`.

use std::collections::BTreeMap;
use std::time::Duration;

use oncebox::base::clock::Timestamp;
use oncebox::base::headers::Headers;
use oncebox::signatures::batch::{Item, Unusable};
use oncebox::signatures::signing::SigningSecret;
use oncebox::signatures::{Incoming, Refused, Scheme, kinds};
use serde_json::Value;

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    scheme: Scheme,
    secrets: Vec<String>,
    method: String,
    path: String,
    url: String,
    headers: BTreeMap<String, String>,
    body_base64: String,
    now: i64,
    /// The index of the secret, or the word for the refusal.
    expect: Value,
    id: Option<String>,
    r#type: Option<String>,
    /// Id and type of each item of a batch, or what is wrong with it.
    items: Option<Value>,
}

fn cases() -> Vec<Case> {
    serde_json::from_str(include_str!("../data/signatures/vectors.json")).unwrap()
}

fn outcome(verified: &Result<usize, Refused>) -> Value {
    match verified {
        Ok(index) => Value::from(*index),
        Err(Refused::Missing { .. }) => Value::from("missing"),
        Err(Refused::Malformed { .. }) => Value::from("malformed"),
        Err(Refused::Body { .. }) => Value::from("body"),
        Err(Refused::Stale { .. } | Refused::Untimely { .. }) => Value::from("stale"),
        Err(Refused::Mismatch) => Value::from("mismatch"),
        Err(Refused::NoSecret) => Value::from("no_secret"),
    }
}

#[test]
fn vectors_of_other_libraries_have_the_expected_result() {
    let cases = cases();
    assert!(cases.len() > 100);
    for case in cases {
        let mut headers = Headers::default();
        for (name, value) in &case.headers {
            headers.push(name, value.as_bytes());
        }
        let body = data_encoding::BASE64.decode(case.body_base64.as_bytes()).unwrap();
        let incoming = Incoming {
            method: &case.method,
            path: &case.path,
            url: &case.url,
            headers: &headers,
            body: &body,
        };
        let secrets: Vec<&str> = case.secrets.iter().map(String::as_str).collect();
        let (now, tolerance) = (Timestamp::from_secs(case.now), Duration::from_mins(5));
        let verified = case.scheme.verify(&secrets, &incoming, now, tolerance);
        assert_eq!(outcome(&verified), case.expect, "{}: {verified:?}", case.name);
        if let Some(items) = &case.items {
            let found = match case.scheme.events(&incoming) {
                Ok(events) => {
                    let names = |item: &Item<'_>| {
                        Value::from(vec![
                            item.identity.event_id.clone(),
                            item.identity.event_type.clone(),
                        ])
                    };
                    assert!(events.is_batch, "{}", case.name);
                    events.items.iter().map(names).collect::<Value>()
                }
                Err(Unusable::NoList { .. }) => Value::from("no list"),
                Err(Unusable::Many { .. }) => Value::from("many"),
                Err(Unusable::Item { number }) => Value::from(format!("item {number}")),
                Err(other @ Unusable::Bulky { .. }) => Value::from(other.to_string()),
            };
            assert_eq!(found, *items, "{}", case.name);
        }
        let identity = case.scheme.identify(&incoming);
        if let (Some(event_id), Some(event_type)) = (case.id, case.r#type) {
            assert_eq!((identity.event_id, identity.event_type), (event_id, event_type));
        }
    }
}

/// What becomes of a vector with another body.
fn judged(name: &str, change: impl Fn(String) -> String) -> Result<usize, Refused> {
    let case = cases().into_iter().find(|case| case.name == name).unwrap();
    let body = data_encoding::BASE64.decode(case.body_base64.as_bytes()).unwrap();
    let body = change(String::from_utf8(body).unwrap());
    let (method, body, headers) = ("POST", body.as_bytes(), Headers::default());
    let incoming = Incoming { method, path: &case.path, url: &case.url, headers: &headers, body };
    let now = Timestamp::from_secs(case.now);
    case.scheme.verify(&case.secrets, &incoming, now, Duration::from_mins(5))
}

#[test]
fn an_ambiguous_body_is_refused_if_its_fields_are_signed() {
    let adyen = "adyen: the documentation's vector";
    let twice = |why: Refused| why.to_string().contains("a signed name is in it twice");
    for (from, to) in [
        (r#""value": 1130"#, r#""value": 9, "value": 1130"#),
        (r#""value": 1130"#, r#""valu\u0065": 9, "value": 1130"#),
        (r#""value": 1130"#, r#""Value": 9, "value": 1130"#),
        (r#""success""#, r#""success": "false", "success""#),
        (r#""amount""#, r#""amount": {"value": 9}, "amount""#),
        (
            r#""NotificationRequestItem""#,
            r#""NotificationRequestItem": {}, "NotificationRequestItem""#,
        ),
        (r#""notificationItems""#, r#""notificationItems": [], "notificationItems""#),
        (r#""hmacSignature""#, r#""hmacSignature": "", "hmacSignature""#),
    ] {
        let found = judged(adyen, |body| body.replacen(from, to, 1));
        assert!(found.is_err_and(twice), "{to}");
    }
    // What counts as empty is empty, or whoever reads the item later finds something there.
    for other in ["true", "{}", r#""\ud800""#] {
        let found = judged(adyen, |body| {
            body.replace(r#""originalReference": """#, &format!(r#""originalReference": {other}"#))
        });
        assert!(found.is_err_and(|why| why.to_string().contains("not a text")), "{other}");
    }
    // Names that are not signed are the shop's own affair.
    assert_eq!(judged(adyen, |body| body.replacen('{', r#"{"live":"true","live":"","#, 1)), Ok(0));

    for (name, from, to) in [
        ("sns: good, version 2", r#""Message""#, r#""Message": "x", "Message""#),
        ("sns: good, version 2", r#""Message""#, r#""message": "x", "Message""#),
        ("sns: good, version 2", r#""TopicArn""#, r#""TopicArn": "x", "TopicArn""#),
        ("sns: good, version 2", r#""Type""#, r#""Type": "SubscriptionConfirmation", "Type""#),
        ("sns: without a subject", r#""Type""#, r#""subject": "x", "Type""#),
        ("sns: a confirmation", r#""SubscribeURL""#, r#""SubscribeURL": "x", "SubscribeURL""#),
    ] {
        let found = judged(name, |body| body.replacen(from, to, 1));
        assert!(found.is_err_and(twice), "{name}: {to}");
    }
    let shifted = r#""MessageId": "n-1\nSubject\ns""#;
    let shifted = judged("sns: good, version 2", |body| {
        body.replace(r#""MessageId": "n-1""#, shifted).replace(r#""Subject": "s", "#, "")
    });
    assert!(shifted.is_err_and(|why| why.to_string().contains("line break")));
    let added = |body: String| body.replacen('{', r#"{"Subject": {"x": 1}, "#, 1);
    let added = judged("sns: without a subject", added);
    assert!(added.is_err_and(|why| why.to_string().contains("not a text")));
}

#[test]
fn twilio_forms_of_one_message_have_different_ids_with_and_without_a_status() {
    let scheme = Scheme::of("twilio").unwrap();
    let (path, url, headers) = ("/", "https://edge.example/", Headers::default());
    let id = |body: &str| {
        let body = body.as_bytes();
        let incoming = Incoming { method: "POST", path, url, headers: &headers, body };
        scheme.identify(&incoming).event_id
    };
    let added = "EventType=onMessageAdded&MessageSid=IM1&Body=a+b";
    assert_ne!(id(added), id("EventType=onMessageUpdated&MessageSid=IM1&Body=a+c"));
    assert!(id(added).starts_with("IM1:"));
    // Sent again it may be written otherwise.
    assert_eq!(id(added), id("MessageSid=IM1&Body=a%20b&EventType=onMessageAdded"));
    let sent = "MessageSid=SM1&MessageStatus=sent";
    assert_eq!(id(sent), id(&format!("{sent}&RawDlrDoneDate=1")));
    assert_ne!(id(sent), id("MessageSid=SM1&MessageStatus=delivered"));
    assert_ne!(id("CallSid=CA1&CallStatus=ringing"), id("CallSid=CA1&CallStatus=ringing&Digits=1"));
}

#[test]
fn every_scheme_of_the_vectors_survives_being_stored() {
    for case in cases() {
        let stored = serde_json::to_string(&case.scheme).unwrap();
        assert_eq!(serde_json::from_str::<Scheme>(&stored).unwrap(), case.scheme, "{}", case.name);
    }
}

#[test]
fn what_we_sign_is_what_the_reference_library_signs() {
    let mut compared = 0;
    for case in cases() {
        let headers = &case.headers;
        let (Some(id), Some(at)) = (headers.get("webhook-id"), headers.get("webhook-timestamp"))
        else {
            continue;
        };
        if case.expect != 0 || headers["webhook-signature"].contains(' ') {
            continue;
        }
        // Public keys sign nothing, and Polar's secrets are not decoded.
        let Ok(secret) = SigningSecret::parse(&case.secrets[0]) else { continue };
        let body = data_encoding::BASE64.decode(case.body_base64.as_bytes()).unwrap();
        let at = Timestamp::from_ms(at.parse::<i64>().unwrap() * 1000 + 999);
        assert_eq!(secret.sign(id, at, &body), headers["webhook-signature"], "{}", case.name);
        compared += 1;
    }
    assert!(compared >= 5, "only {compared} compared");
}

#[test]
fn several_signature_headers_count_as_one_list() {
    let secret = SigningSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
    let at = Timestamp::from_secs(1_700_000_000);
    let mut headers = Headers::default();
    headers.push("webhook-id", b"msg_1");
    headers.push("webhook-timestamp", b"1700000000");
    headers.push("webhook-signature", b"v1,AAAA");
    headers.push("webhook-signature", secret.sign("msg_1", at, b"{}").as_bytes());
    let incoming = Incoming { method: "POST", path: "/", url: "", headers: &headers, body: b"{}" };
    let text = secret.to_text();
    let verified = Scheme::Standard.verify(&[&text], &incoming, at, Duration::from_mins(5));
    assert_eq!(verified, Ok(0));
}

#[test]
fn headers_of_two_families_are_not_mixed() {
    let secret = SigningSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
    let at = Timestamp::from_secs(1_700_000_000);
    let mut headers = Headers::default();
    headers.push("webhook-id", b"msg_1");
    headers.push("webhook-timestamp", b"1700000000");
    headers.push("svix-signature", secret.sign("msg_1", at, b"{}").as_bytes());
    let incoming = Incoming { method: "POST", path: "/", url: "", headers: &headers, body: b"{}" };
    let text = secret.to_text();
    let verified = Scheme::Standard.verify(&[&text], &incoming, at, Duration::from_mins(5));
    assert_eq!(verified, Err(Refused::Missing { header: "svix-id".to_owned() }));
}

#[test]
fn a_time_far_from_ours_is_stale_and_never_overflows() {
    let key = "whsec_test_secret";
    for time in ["0", "999999999999999"] {
        let signed = format!("{time}.{{}}");
        let parts: [&[u8]; 1] = [signed.as_bytes()];
        let hash = oncebox::signatures::signing::Hash::Sha256;
        let mac = oncebox::signatures::signing::mac(hash, key.as_bytes(), &parts);
        let value = format!("t={time},v1={}", data_encoding::HEXLOWER.encode(&mac));
        let mut headers = Headers::default();
        headers.push("stripe-signature", value.as_bytes());
        let incoming =
            Incoming { method: "POST", path: "/", url: "", headers: &headers, body: b"{}" };
        for now in [i64::MIN, 1_700_000_000_000, i64::MAX] {
            let now = Timestamp::from_ms(now);
            let verified = Scheme::of("stripe").unwrap().verify(
                &[key],
                &incoming,
                now,
                Duration::from_mins(5),
            );
            assert!(matches!(verified, Err(Refused::Stale { .. })), "{verified:?}");
        }
    }
}

#[test]
fn hostile_sizes_are_handled_quickly() {
    let secret = "0123456789abcdef0123456789abcdef";
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(200_000), "]".repeat(200_000));
    let signature = "00".repeat(32);
    let entries = format!("v1={signature},").repeat(16_000);
    let list = format!("{}v1,AAAA", "v1,AAAA ".repeat(100_000));
    for kind in kinds() {
        let Some(scheme) = Scheme::of(kind) else { continue };
        for (header, body) in [(&entries, deep.as_bytes()), (&list, b"\xff\xfe\x00{")] {
            let mut headers = Headers::default();
            for name in [
                "webhook-signature",
                "stripe-signature",
                "paddle-signature",
                "x-pagerduty-signature",
                "x-hub-signature-256",
                "x-slack-signature",
                "x-twilio-signature",
                "x-twilio-email-event-webhook-signature",
            ] {
                headers.push(name, header.as_bytes());
            }
            for name in ["webhook-id", "webhook-timestamp", "x-slack-request-timestamp"] {
                headers.push(name, b"1700000000");
            }
            let incoming =
                Incoming { method: "POST", path: "/", url: "https://e/", headers: &headers, body };
            let now = Timestamp::from_secs(1_700_000_000);
            let verified = scheme.verify(&[secret; 32], &incoming, now, Duration::from_mins(5));
            assert!(verified.is_err(), "{kind}");
            let _events = scheme.events(&incoming);
        }
    }
}

#[test]
fn of_repeated_names_the_last_one_counts() {
    let headers = Headers::default();
    let incoming = |body| Incoming { method: "POST", path: "/", url: "", headers: &headers, body };
    let stripe = Scheme::of("stripe").unwrap();
    let identity = stripe.identify(&incoming(br#"{"id":"a","type":"t","id":"b","type":{}}"#));
    assert_eq!((&*identity.event_id, &*identity.event_type), ("b", "unknown"));
}
