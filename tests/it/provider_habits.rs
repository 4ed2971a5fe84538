//! What providers do beside signing: how they test an address, what they read of an answer, equal bodies that are different
//! events, and several fields with signatures.

use crate::rig::prelude::*;

const SECRET: &str = "a-shared-secret-of-32-characters";
const FORM: &str = "application/x-www-form-urlencoded";

fn sign(algorithm: hmac::Algorithm, secret: &str, signed: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(algorithm, secret.as_bytes()), signed).as_ref().to_vec()
}

fn sha256(secret: &str, signed: &[u8]) -> Vec<u8> {
    sign(hmac::HMAC_SHA256, secret, signed)
}

/// A generic scheme with an HMAC of the body in base64 in this header field.
fn signed_in(header: &Value, more: &Value) -> Value {
    let check = json!({ "hmac": { "signed": "{body}", "header": header, "encoding": "base64" } });
    merged(json!({ "kind": "generic", "check": check }), more)
}

fn stored(rig: &Rig) -> String {
    rig.one("SELECT count(*) FROM webhook_events")
}

#[test]
fn xero_gets_an_empty_answer_whether_its_scheme_is_known_or_made_of_settings() {
    let rig = Rig::new();
    rig.provider("xero", &json!({ "kind": "xero" }), SECRET);
    let settings = signed_in(&json!("X-Xero-Signature"), &json!({ "items": "/events" }));
    rig.provider("own", &settings, SECRET);
    for provider in ["xero", "own"] {
        let post = |body: &[u8], secret: &str| {
            let signature = BASE64.encode(&sha256(secret, body));
            let path = format!("/in/{provider}");
            rig.send("POST", &path, &[("x-xero-signature", &signature)], body)
        };
        let intent = post(br#"{"events":[],"entropy":"ABC"}"#, SECRET).is(200);
        assert_eq!((intent.body(), intent.field("content-type")), (&b""[..], None));
        post(br#"{"events":[]}"#, "another-secret-of-32-characters!!").is(401);
        let body = br#"{"events":[{"eventCategory":"INVOICE","eventType":"CREATE"}]}"#;
        let answer = post(body, SECRET).is(200);
        assert_eq!(answer.body(), b"");
        let receipt: Value =
            serde_json::from_str(answer.field("oncebox-receipt").unwrap()).unwrap();
        assert_eq!(receipt["stored"], 1);
    }
    let sql = "SELECT provider, event_type FROM webhook_events ORDER BY seq";
    assert_eq!(rig.lines(sql), ["xero INVOICE.CREATE", "own unknown"]);
}

#[test]
fn an_answer_can_be_set() {
    let rig = Rig::new();
    let answer =
        json!({ "status": 202, "content_type": "text/plain; charset=utf-8", "body": "[ok]" });
    let settings = signed_in(&json!("X-Sig"), &json!({ "answer": answer }));
    rig.provider("own", &settings, SECRET);
    let post = |body: &[u8]| {
        let signature = BASE64.encode(&sha256(SECRET, body));
        rig.send("POST", "/in/own", &[("X-Sig", &signature)], body)
    };
    for _again in 0..2 {
        let answer = post(b"{}").is(202);
        assert_eq!(answer.text(), "[ok]");
        assert_eq!(answer.field("content-type"), Some("text/plain; charset=utf-8"));
    }
    rig.send("POST", "/in/own", &[("X-Sig", "AAAA")], b"{}").is(401);
    assert_eq!(rig.get("/v1/providers/own")["scheme"]["answer"]["body"], "[ok]");
    let wrong = signed_in(&json!("X-Sig"), &json!({ "answer": { "status": 500 } }));
    let refused = rig.patch("/v1/providers/own", &json!({ "scheme": wrong })).is(422);
    assert!(refused.detail().contains("200 to 299"), "{refused:?}");
}

#[test]
fn slack_and_twilio_get_what_they_show_to_people() {
    let rig = Rig::new();
    rig.provider("slack", &json!({ "kind": "slack" }), SECRET);
    let slack = |body: &str| {
        let time = rig.now().secs().to_string();
        let signed = format!("v0:{time}:{body}");
        let signature = format!("v0={}", HEXLOWER.encode(&sha256(SECRET, signed.as_bytes())));
        let fields = [
            ("X-Slack-Signature", signature.as_str()),
            ("X-Slack-Request-Timestamp", &time),
            ("Content-Type", FORM),
        ];
        rig.send("POST", "/in/slack", &fields, body.as_bytes()).is(200)
    };
    let view = slack("payload=%7B%22type%22%3A%22view_submission%22%7D");
    assert_eq!(view.json(), json!({ "response_action": "clear" }));
    assert_eq!(slack("command=%2Forder&text=4711").body(), b"");
    let sql = "SELECT event_type FROM webhook_events ORDER BY seq";
    assert_eq!(rig.lines(sql), ["view_submission", "/order"]);

    let twilio = merged(
        json!({ "name": "twilio", "scheme": { "kind": "twilio" }, "pii": "allow", "secret": SECRET }),
        &json!({ "public_url": "https://edge.example/in/twilio" }),
    );
    rig.post("/v1/providers", &twilio).is(201);
    let url = "https://edge.example/in/twilio";
    let signed = format!("{url}MessageSidSM1MessageStatussent");
    let signature =
        BASE64.encode(&sign(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, SECRET, signed.as_bytes()));
    let fields = [("X-Twilio-Signature", signature.as_str()), ("Content-Type", FORM)];
    let answer =
        rig.send("POST", "/in/twilio", &fields, b"MessageSid=SM1&MessageStatus=sent").is(200);
    assert_eq!((answer.field("content-type"), &*answer.text()), (Some("text/xml"), "<Response/>"));
    // The same with GET: the query is signed with the URL, and is the form.
    let signed = format!("{url}?MessageSid=SM2&MessageStatus=sent");
    let signature =
        BASE64.encode(&sign(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, SECRET, signed.as_bytes()));
    let path = "/in/twilio?MessageSid=SM2&MessageStatus=sent";
    rig.send("GET", path, &[("X-Twilio-Signature", &signature)], b"").is(200);
    rig.send("GET", path, &[("X-Twilio-Signature", "AAAA")], b"").is(401);
    let sql = "SELECT provider_event_id, event_type, content_type, CAST(payload AS TEXT) \
               FROM webhook_events WHERE provider = 'twilio' ORDER BY seq DESC LIMIT 1";
    let stored = format!("SM2:message.sent message.sent {FORM} MessageSid=SM2&MessageStatus=sent");
    assert_eq!(rig.one(sql), stored);
    // Signed with a SharedKey: a field names the hash.
    let by_shared_key = |settings: &str| {
        let signed = format!("{url}MessageSidSM3MessageStatussent");
        let signature = BASE64.encode(&sha256(SECRET, signed.as_bytes()));
        let fields = [
            ("X-Twilio-Signature", signature.as_str()),
            ("X-Twilio-Webhooks-Signature-Settings", settings),
            ("Content-Type", FORM),
        ];
        rig.send("POST", "/in/twilio", &fields, b"MessageSid=SM3&MessageStatus=sent")
    };
    by_shared_key("key=webhooks_sharedkey_1,algorithm=HMAC_SHA256").is(200);
    by_shared_key("algorithm=HMAC_SHA256, key=webhooks_sharedkey_1").is(200);
    by_shared_key("key=webhooks_sharedkey_1,algorithm=HMAC_SHA1").is(401);
    by_shared_key("key=webhooks_sharedkey_1").is(401);
    by_shared_key("key=webhooks_sharedkey_1,algorithm=NONE").is(401);
    let sql = "SELECT count(*) FROM webhook_events WHERE provider_event_id = 'SM3:message.sent'";
    assert_eq!(rig.one(sql), "1");
}

#[test]
fn zoom_gets_the_hmac_of_its_token_and_nothing_is_stored() {
    let rig = Rig::new();
    rig.provider("zoom", &json!({ "kind": "zoom" }), SECRET);
    let settings = json!({
        "kind": "generic",
        "check": { "hmac": {
            "signed": "v0:{ts}:{body}", "header": "x-zm-signature", "prefix": "v0=",
            "timestamp": { "header": "x-zm-request-timestamp" },
        } },
    });
    rig.provider("own", &settings, SECRET);
    let body = br#"{"event":"endpoint.url_validation","payload":{"plainToken":"abcDEF"}}"#;
    let time = rig.now().secs().to_string();
    for provider in ["zoom", "own"] {
        let post = |secret: &str| {
            let signed = [format!("v0:{time}:").as_bytes(), body].concat();
            let signature = format!("v0={}", HEXLOWER.encode(&sha256(secret, &signed)));
            let fields =
                [("x-zm-signature", signature.as_str()), ("x-zm-request-timestamp", &time)];
            rig.send("POST", &format!("/in/{provider}"), &fields, body)
        };
        let wanted = json!({
            "plainToken": "abcDEF",
            "encryptedToken": HEXLOWER.encode(&sha256(SECRET, b"abcDEF")),
        });
        assert_eq!(post(SECRET).is(200).json(), wanted);
        post("another-secret-of-32-characters!!").is(401);
    }
    assert_eq!(stored(&rig), "0");
}

#[test]
fn an_address_is_tested_by_query_by_get_and_by_options() {
    let rig = Rig::new();
    rig.provider("list", &json!({ "kind": "dynamics" }), SECRET);
    rig.provider("meta", &json!({ "kind": "meta" }), SECRET);
    rig.provider("stripe", &json!({ "kind": "stripe" }), "whsec_stripe0123456789abcdef0123456789");
    let named = signed_in(&json!("X-Sig"), &json!({ "handshakes": ["challenge", "okta"] }));
    rig.provider("own", &named, SECRET);
    for name in ["validationToken", "validationtoken"] {
        let answer = rig.send("POST", &format!("/in/list?{name}=abc-1"), &[], b"").is(200);
        assert_eq!((answer.field("content-type"), &*answer.text()), (Some("text/plain"), "abc-1"));
    }
    let hub = "/in/meta?hub.mode=subscribe&hub.verify_token=t&hub.challenge=1158201444";
    assert_eq!(rig.send("GET", hub, &[], b"").is(200).text(), "1158201444");
    rig.send("GET", "/in/meta?hub.mode=unsubscribe", &[], b"").is(400);
    assert_eq!(rig.send("GET", "/in/own?challenge=a%20b", &[], b"").is(200).text(), "a b");
    let okta = [("X-Okta-Verification-Challenge", "o-1")];
    assert_eq!(
        rig.send("GET", "/in/own", &okta, b"").is(200).json(),
        json!({ "verification": "o-1" })
    );
    rig.send("GET", "/in/stripe?challenge=a", &[], b"").is(405);
    rig.send("GET", "/in/nobody?challenge=a", &[], b"").is(404);
    // CloudEvents asks whether it may send.
    let asks = [("WebHook-Request-Origin", "events.example")];
    let allowed = rig.send("OPTIONS", "/in/stripe", &asks, b"").is(200);
    assert_eq!(allowed.field("webhook-allowed-origin"), Some("events.example"));
    assert_eq!(allowed.field("webhook-allowed-rate"), Some("*"));
    rig.send("OPTIONS", "/in/nobody", &asks, b"").is(404);
    let plain = rig.send("OPTIONS", "/in/stripe", &[], b"").is(204);
    assert_eq!(plain.field("webhook-allowed-origin"), None);
    assert_eq!(stored(&rig), "0");
}

#[test]
fn equal_bodies_are_events_of_their_own_where_the_provider_says_so() {
    let rig = Rig::new();
    let scheme = |repeats: &Value| {
        json!({
            "kind": "generic", "check": { "token": { "header": "X-Token" } },
            "event_id": { "pointer": "/id" }, "event_type": { "constant": "payment" },
            "repeats": repeats,
        })
    };
    rig.provider("each", &scheme(&json!("never")), SECRET);
    rig.provider("soon", &scheme(&json!({ "within_secs": 10 })), SECRET);
    let receiver = Receiver::new();
    rig.subscribe_with("erp", &receiver, &json!({ "source": "all" }));
    let post = |provider: &str, body: &str| {
        let fields = [("X-Token", SECRET), ("Content-Type", FORM)];
        let answer = rig.send("POST", &format!("/in/{provider}"), &fields, body.as_bytes());
        answer.is(200).json()["already_processed"] == true
    };
    assert!(!post("each", "id=tr_1"));
    assert!(!post("each", "id=tr_1"));
    assert!(!post("soon", "id=tr_1"));
    assert!(post("soon", "id=tr_1"));
    assert!(!post("soon", "id=tr_1&x=1"), "other bytes are another event");
    rig.advance(secs(11));
    assert!(!post("soon", "id=tr_1"));
    rig.sent(&receiver, 5);
    let ids = "SELECT count(DISTINCT provider_event_id) FROM webhook_events";
    assert_eq!(rig.one(ids), "5");
    assert_eq!(rig.get("/v1/providers/soon")["scheme"]["repeats"], json!({ "within_secs": 10 }));
    // A change of the scheme takes effect for the next request.
    rig.patch("/v1/providers/each", &json!({ "scheme": scheme(&json!("by_id")) })).is(200);
    assert!(!post("each", "id=tr_1"));
    assert!(post("each", "id=tr_1"));
    let refused = json!({ "scheme": { "kind": "frappe", "repeats": { "within_secs": 0 } } });
    assert!(rig.patch("/v1/providers/each", &refused).is(422).detail().contains("within_secs"));
}

#[test]
fn a_bare_id_is_an_event_each_time_and_other_equal_bodies_are_one() {
    let rig = Rig::new();
    let scheme = json!({
        "kind": "generic", "check": { "token": { "header": "X-Token" } },
        "event_id": "body_hash", "event_type": { "constant": "payment" },
    });
    rig.provider("shop", &scheme, SECRET);
    let receiver = Receiver::new();
    rig.subscribe_with("erp", &receiver, &json!({ "source": "all" }));
    let post = |content_type: &str, body: &str| {
        let fields = [("X-Token", SECRET), ("Content-Type", content_type)];
        let answer = rig.send("POST", "/in/shop", &fields, body.as_bytes());
        answer.is(200).json()["already_processed"] == true
    };
    let again = [
        (FORM, "id=tr_1", false),
        (FORM, "id=tr_1&status=paid", true),
        (FORM, "number=7", true),
        ("application/json", r#"{"id":"tr_1"}"#, true),
    ];
    for (content_type, body, is_repetition) in again {
        assert!(!post(content_type, body), "{body}");
        assert_eq!(post(content_type, body), is_repetition, "{body}");
    }
    rig.sent(&receiver, 5);
}

#[test]
fn a_signature_counts_under_each_of_its_header_fields() {
    let rig = Rig::new();
    rig.provider("numbered", &signed_in(&json!("X-DocuSign-Signature-1"), &json!({})), SECRET);
    let listed = json!(["X-Signature", "X-Signature-Next"]);
    rig.provider("listed", &signed_in(&listed, &json!({})), SECRET);
    let right = BASE64.encode(&sha256(SECRET, b"{}"));
    let other = BASE64.encode(&sha256("the other key", b"{}"));
    for (provider, fields, status) in [
        ("numbered", [("X-DocuSign-Signature-1", &other), ("X-DocuSign-Signature-2", &right)], 200),
        ("numbered", [("X-DocuSign-Signature-1", &other), ("X-DocuSign-Signature", &right)], 401),
        ("listed", [("X-Signature", &other), ("x-signature-next", &right)], 200),
        ("listed", [("X-Signature", &other), ("X-Signature-Last", &right)], 401),
    ] {
        let fields = fields.map(|(name, value)| (name, value.as_str()));
        rig.send("POST", &format!("/in/{provider}"), &fields, b"{}").is(status);
    }
    let refused = rig.send("POST", "/in/listed", &[], b"{}").is(401);
    assert!(!refused.detail().contains("X-Signature"));
    let reason = text(&rig.items("/v1/refused-webhooks?provider=listed")[0], "reason");
    assert!(reason.contains("X-Signature or X-Signature-Next"), "{reason}");
    // No signature is kept with the event.
    assert!(!rig.one("SELECT group_concat(headers) FROM webhook_events").contains("docusign"));
}
