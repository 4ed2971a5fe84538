//! Bodies of webhooks that are not plain JSON: packed ones, and forms.

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use crate::rig::prelude::*;

const SECRET: &str = "a-shared-secret-of-32-characters";
const FORM: &str = "application/x-www-form-urlencoded";
const OPENED: &[u8] = br#"{"action":"opened","number":1}"#;

fn signature(secret: &str, signed: &[u8]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    HEXLOWER.encode(hmac::sign(&key, signed).as_ref())
}

/// Posts a pull request to `/in/github` whose signature covers `signed`.
fn github(rig: &Rig, delivery: &str, signed: &[u8], more: &[(&str, &str)], body: &[u8]) -> Answer {
    let signature = format!("sha256={}", signature(SECRET, signed));
    let mut fields = vec![
        ("X-Hub-Signature-256", signature.as_str()),
        ("X-GitHub-Delivery", delivery),
        ("X-GitHub-Event", "pull_request"),
    ];
    fields.extend(more);
    rig.send("POST", "/in/github", &fields, body)
}

/// A rig with the provider `github`, and a receiver of the pull requests that were opened and have the number 1.
fn with_github(more: &Value) -> (Rig, Receiver) {
    let rig = Rig::new();
    let provider = json!({
        "name": "github", "scheme": { "kind": "github" }, "pii": "allow", "secret": SECRET,
    });
    rig.post("/v1/providers", &merged(provider, more)).is(201);
    let receiver = Receiver::new();
    let terms = json!({
        "source": "provider:github", "event_types": ["pull_request.opened"],
        "filter": [{ "path": "$.number", "op": "equals", "value": 1 }],
    });
    rig.subscribe_with("erp", &receiver, &terms);
    (rig, receiver)
}

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

fn zlib(plain: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

#[test]
fn a_packed_webhook_is_read_and_sent_on_plain_whichever_bytes_are_signed() {
    let (rig, receiver) = with_github(&json!({}));
    let brotli = b"\x8b\x0e\x80{\"action\":\"opened\",\"number\":1}\x03".to_vec();
    let zstd = compress_to_vec(OPENED, CompressionLevel::Fastest);
    // A provider whose packed bytes are signed, and one that signs before it packs.
    for (n, (coding, packed)) in
        [("gzip", gzip(OPENED)), ("deflate", zlib(OPENED)), ("br", brotli), ("zstd", zstd)]
            .iter()
            .enumerate()
    {
        let fields = [("Content-Encoding", *coding), ("Content-Type", "application/json")];
        // Equal signed bytes under another id would be a repetition.
        rig.advance(secs(90_000));
        github(&rig, &format!("{coding}-1"), packed, &fields, packed).is(200);
        rig.sent(&receiver, 2 * n + 1);
        rig.advance(secs(90_000));
        github(&rig, &format!("{coding}-2"), OPENED, &fields, packed).is(200);
        rig.sent(&receiver, 2 * n + 2);
        github(&rig, "wrong", b"something else", &fields, packed).is(401);
    }
    for message in receiver.seen() {
        assert_eq!(message.body, OPENED);
        assert_eq!(message.field("content-type"), Some("application/json"));
        assert_eq!(message.field("content-encoding"), None);
    }
    assert_eq!(rig.one("SELECT count(DISTINCT event_type) FROM webhook_events"), "1");
}

#[test]
fn a_packed_webhook_is_known_again_although_it_was_packed_anew() {
    let (rig, _receiver) = with_github(&json!({}));
    let fields = [("Content-Encoding", "gzip")];
    github(&rig, "a", OPENED, &fields, &gzip(OPENED)).is(200);
    let again = github(&rig, "b", OPENED, &[("Content-Encoding", "deflate")], &zlib(OPENED));
    assert_eq!(again.is(200).json()["already_processed"], true);
}

#[test]
fn a_coding_that_is_not_unpacked_is_refused_with_those_that_are() {
    let (rig, _receiver) = with_github(&json!({ "body_bytes_max": 10_000 }));
    for coding in ["compress", "gzip, gzip, gzip", "identity, exi"] {
        let refused = github(&rig, "a", OPENED, &[("Content-Encoding", coding)], OPENED).is(415);
        assert_eq!(refused.field("accept-encoding"), Some("gzip, deflate, br, zstd"));
        assert_eq!(refused.json()["type"], "urn:oncebox:problem:unsupported-coding");
    }
    let plain = github(&rig, "a", OPENED, &[("Content-Encoding", "gzip")], OPENED).is(422);
    assert!(plain.detail().contains("not valid gzip"), "{plain:?}");
    let bomb = gzip(&vec![b' '; 10_000_000]);
    assert!(bomb.len() < 10_000);
    let large = github(&rig, "a", &bomb, &[("Content-Encoding", "gzip")], &bomb).is(413);
    assert!(large.detail().contains("10000 bytes"), "{large:?}");
    // Who has not signed learns nothing of it.
    github(&rig, "a", b"x", &[("Content-Encoding", "gzip")], &bomb).is(401);
    assert_eq!(rig.one("SELECT count(*) FROM webhook_events"), "0");
    github(&rig, "a", OPENED, &[("Content-Encoding", "identity")], OPENED).is(200);
}

#[test]
fn json_in_a_form_has_its_type_is_filtered_and_is_sent_on_as_it_came() {
    let (rig, receiver) = with_github(&json!({ "ordering_key": { "path": "$.action" } }));
    let form = |json: &str| format!("payload={}", encoded(json)).into_bytes();
    let opened = form(std::str::from_utf8(OPENED).unwrap());
    github(&rig, "a", &opened, &[("Content-Type", FORM)], &opened).is(200);
    let other = form(r#"{"action":"opened","number":2}"#);
    github(&rig, "b", &other, &[("Content-Type", FORM)], &other).is(200);
    rig.sent(&receiver, 1);
    assert_eq!(receiver.seen()[0].body, opened);
    assert_eq!(receiver.seen()[0].field("content-type"), Some(FORM));
    let sql = "SELECT event_type, status, ordering_key FROM webhook_events ORDER BY seq";
    assert_eq!(
        rig.lines(sql),
        ["pull_request.opened completed opened", "pull_request.opened skipped opened"]
    );
    // A later subscription reads the stored form in the same way.
    let late = Receiver::new();
    let terms = json!({
        "source": "provider:github", "filter": [{ "path": "$.number", "op": "equals", "value": 2 }],
    });
    rig.subscribe_with("late", &late, &terms);
    let event = text(&rig.items("/v1/webhook-events")[0], "id");
    let tried = merged(json!({ "name": "try", "url": late.url(), "try": event }), &terms);
    assert_eq!(rig.post("/v1/subscriptions", &tried).json()["matches"], true);
}

#[test]
fn the_fields_of_a_form_are_found_by_pointers_and_filters() {
    let rig = Rig::new();
    let scheme = json!({
        "kind": "generic", "check": { "token": { "header": "X-Token" } },
        "event_id": { "pointer": "/id" }, "event_type": { "pointer": "/meta/kind" },
    });
    rig.provider("shop", &scheme, SECRET);
    let receiver = Receiver::new();
    let terms = json!({
        "source": "provider:shop", "filter": [{ "path": "$.state", "op": "equals", "value": "paid" }],
    });
    rig.subscribe_with("erp", &receiver, &terms);
    let post = |content_type: &str, body: &str| {
        let fields = [("X-Token", SECRET), ("Content-Type", content_type)];
        rig.send("POST", "/in/shop", &fields, body.as_bytes()).is(200);
    };
    post(FORM, "id=tr_1&state=paid&meta=%7B%22kind%22%3A%22order.paid%22%7D");
    let multipart = "--b\r\nContent-Disposition: form-data; name=\"id\"\r\n\r\ntr_2\r\n\
                     --b\r\nContent-Disposition: form-data; name=\"state\"\r\n\r\npaid\r\n--b--\r\n";
    post("multipart/form-data; boundary=b", multipart);
    post(FORM, "id=tr_3&state=open");
    rig.sent(&receiver, 2);
    assert_eq!(
        rig.lines("SELECT provider_event_id, event_type, status FROM webhook_events ORDER BY seq"),
        ["tr_1 order.paid completed", "tr_2 unknown completed", "tr_3 unknown skipped"]
    );
}

#[test]
fn a_list_in_a_form_is_a_batch_of_json() {
    let rig = Rig::new();
    let scheme = json!({
        "kind": "generic", "check": { "token": { "header": "X-Token" } }, "items": "",
        "event_id": { "pointer": "/_id" }, "event_type": { "pointer": "/event" },
    });
    rig.provider("mail", &scheme, SECRET);
    let body = format!(
        "events={}",
        encoded(r#"[{"_id":"a","event":"open"},{"_id":"b","event":"click"}]"#)
    );
    let fields = [("X-Token", SECRET), ("Content-Type", FORM)];
    let answer = rig.send("POST", "/in/mail", &fields, body.as_bytes()).is(200).json();
    assert_eq!(answer["stored"], 2);
    let sql = "SELECT provider_event_id, event_type, content_type, CAST(payload AS TEXT) \
               FROM webhook_events ORDER BY seq";
    assert_eq!(
        rig.lines(sql),
        [
            r#"a open application/json {"_id":"a","event":"open"}"#,
            r#"b click application/json {"_id":"b","event":"click"}"#,
        ]
    );
}

#[test]
fn a_policy_finds_personal_data_in_the_json_of_a_form() {
    let rules = json!({ "rules": [
        { "path": "$.mail", "action": "mask" }, { "path": "$.person", "action": "seal" },
        { "path": "$.pet", "action": "drop" },
    ] });
    let (rig, receiver) = with_github(&json!({ "pii": rules }));
    let json = r#"{"action":"opened","mail":"anna@example.com","person":{"n":["Größe"]},"pet":"Waldemar","number":1}"#;
    let body = format!("payload={}", encoded(json)).into_bytes();
    github(&rig, "a", &body, &[("Content-Type", FORM)], &body).is(200);
    rig.sent(&receiver, 1);
    let stored = rig.one("SELECT CAST(payload AS TEXT) FROM webhook_events");
    for secret in ["anna", "Größe", "%C3%B6", "Waldemar"] {
        assert!(!stored.contains(secret), "{secret} is in {stored}");
    }
    // The receiver gets the form with what was sealed opened again, and all other bytes as they came.
    let masked = encoded(r#"{"action":"opened","mail":"#).into_bytes();
    let sent = receiver.seen()[0].body.clone();
    assert!(sent.starts_with(&[b"payload=", masked.as_slice()].concat()));
    let opened = encoded(r#","person":{"n":["Größe"]},"number":1}"#);
    assert!(sent.ends_with(opened.as_bytes()), "{}", String::from_utf8_lossy(&sent));
    assert_eq!(receiver.seen()[0].field("content-type"), Some(FORM));
}

#[test]
fn mailgun_signs_forms_as_well() {
    let rig = Rig::new();
    rig.provider("mailgun", &json!({ "kind": "mailgun" }), SECRET);
    let time = rig.now().secs().to_string();
    let sign = |token: &str| signature(SECRET, format!("{time}{token}").as_bytes());
    let post = |content_type: &str, body: &str| {
        rig.send("POST", "/in/mailgun", &[("Content-Type", content_type)], body.as_bytes())
    };
    let route = |token: &str| {
        format!(
            "timestamp={time}&token={token}&signature={}&recipient=a%40example.com&\
             Message-Id=%3C1%40x%3E&body-plain=hi",
            sign(token)
        )
    };
    post(FORM, &route("one")).is(200);
    assert_eq!(post(FORM, &route("two")).is(200).json()["already_processed"], true);
    post(FORM, &route("one").replace("hi", "ho")).is(401);
    post(FORM, &route("three").replace("three", "four")).is(401);
    let part = |name: &str, value: &str| {
        format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    let older = [
        part("timestamp", &time),
        part("token", "five"),
        part("signature", &sign("five")),
        part("event", "delivered"),
        "--b--\r\n".to_owned(),
    ];
    post("multipart/form-data; boundary=b", &older.concat()).is(200);
    assert_eq!(
        rig.lines("SELECT event_type FROM webhook_events ORDER BY seq"),
        ["mail", "delivered"]
    );
}
