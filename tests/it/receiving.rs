//! `POST /in/…`: webhooks come in, each is verified, stored once and sent on.

use crate::rig::prelude::*;

const STRIPE: &str = "whsec_stripe0123456789abcdef0123456789";
const PLAIN: &str = "a-shared-secret-of-32-characters";

fn mac(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    hmac::sign(&key, &parts.concat()).as_ref().to_vec()
}

fn stripe_header(secret: &str, at: i64, body: &[u8]) -> String {
    let signature = mac(secret.as_bytes(), &[at.to_string().as_bytes(), b".", body]);
    format!("t={at},v1={}", HEXLOWER.encode(&signature))
}

/// A Stripe webhook, correctly signed for now.
fn stripe(rig: &Rig, body: &[u8]) -> Answer {
    let header = stripe_header(STRIPE, rig.now().secs(), body);
    let fields = [("Stripe-Signature", header.as_str()), ("Content-Type", "application/json")];
    rig.send("POST", "/in/stripe", &fields, body)
}

fn with_stripe() -> Rig {
    let rig = Rig::new();
    rig.provider("stripe", &json!({ "kind": "stripe" }), STRIPE);
    rig
}

/// Posts it twice, and asserts that it is stored under this id and type and counted once more.
#[track_caller]
fn stored_once_as(rig: &Rig, path: &str, fields: &[(&str, &str)], body: &[u8], want: &str) {
    let first = rig.send("POST", path, fields, body).is(200).json();
    assert_eq!(first["status"], "ok");
    let second = rig.send("POST", path, fields, body).is(200).json();
    assert_eq!(second, json!({ "status": "ok", "id": first["id"], "already_processed": true }));
    let sql = "SELECT provider_event_id, event_type, duplicate_count FROM webhook_events";
    assert_eq!(rig.one(sql), want);
}

#[test]
fn a_stripe_webhook_is_taken_once() {
    let rig = with_stripe();
    let body = br#"{"id":"evt_1","type":"invoice.paid"}"#;
    let header = stripe_header(STRIPE, START.secs(), body);
    let fields = [("Stripe-Signature", header.as_str())];
    stored_once_as(&rig, "/in/stripe", &fields, body, "evt_1 invoice.paid 1");
}

#[test]
fn a_github_webhook_is_taken_once() {
    let rig = Rig::new();
    rig.provider("github", &json!({ "kind": "github" }), PLAIN);
    let body = br#"{"action":"opened"}"#;
    let signature = format!("sha256={}", HEXLOWER.encode(&mac(PLAIN.as_bytes(), &[body])));
    let fields = [
        ("X-Hub-Signature-256", signature.as_str()),
        ("X-GitHub-Delivery", "d-1"),
        ("X-GitHub-Event", "pull_request"),
    ];
    stored_once_as(&rig, "/in/github", &fields, body, "d-1 pull_request.opened 1");
}

#[test]
fn a_shopify_webhook_is_taken_once() {
    let rig = Rig::new();
    rig.provider("shopify", &json!({ "kind": "shopify" }), PLAIN);
    let body = br#"{"id":820982911946154508}"#;
    let signature = BASE64.encode(&mac(PLAIN.as_bytes(), &[body]));
    let fields = [
        ("X-Shopify-Hmac-Sha256", signature.as_str()),
        ("X-Shopify-Event-Id", "98880550"),
        ("X-Shopify-Topic", "orders/create"),
    ];
    stored_once_as(&rig, "/in/shopify", &fields, body, "98880550:orders/create orders/create 1");
}

#[test]
fn two_topics_of_what_a_merchant_did_once_are_two_events_and_each_is_taken_once() {
    let rig = Rig::new();
    rig.provider("shopify", &json!({ "kind": "shopify" }), PLAIN);
    let body = br#"{"id":820982911946154508}"#;
    let signature = BASE64.encode(&mac(PLAIN.as_bytes(), &[body]));
    for (topic, status) in
        [("create", "ok"), ("paid", "ok"), ("create", "again"), ("paid", "again")]
    {
        let topic = format!("orders/{topic}");
        let fields = [
            ("X-Shopify-Hmac-Sha256", signature.as_str()),
            ("X-Shopify-Event-Id", "98880550"),
            ("X-Shopify-Topic", topic.as_str()),
        ];
        let answer = rig.send("POST", "/in/shopify", &fields, body).is(200).json();
        assert_eq!(answer.get("already_processed").is_some(), status == "again", "{topic}");
    }
    assert_eq!(rig.one("SELECT count(*) FROM webhook_events"), "2");
}

#[test]
fn a_standard_webhook_is_taken_once() {
    let rig = Rig::new();
    rig.provider("clerk", &json!({ "kind": "standard" }), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    let key = BASE64.decode(b"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
    let (at, body) = (START.secs().to_string(), br#"{"type":"user.created"}"#);
    let signature = mac(&key, &[b"msg_1.", at.as_bytes(), b".", body]);
    let signature = format!("v1,{}", BASE64.encode(&signature));
    let fields = [
        ("webhook-id", "msg_1"),
        ("webhook-timestamp", at.as_str()),
        ("webhook-signature", signature.as_str()),
    ];
    stored_once_as(&rig, "/in/clerk", &fields, body, "msg_1 user.created 1");
}

#[test]
fn a_webhook_of_a_generic_scheme_is_taken_once() {
    let rig = Rig::new();
    let scheme = json!({
        "kind": "generic",
        "check": { "hmac": {
            "signed": "v0:{ts}:{body}", "header": "X-Sig", "prefix": "v0=",
            "timestamp": { "header": "X-Ts" }
        } },
        "event_id": { "pointer": "/event_id" },
        "event_type": { "pointer": "/event/type" }
    });
    rig.provider("slack", &scheme, PLAIN);
    let (at, body) = (START.secs().to_string(), br#"{"event_id":"E1","event":{"type":"ping"}}"#);
    let signature = mac(PLAIN.as_bytes(), &[b"v0:", at.as_bytes(), b":", body]);
    let signature = format!("v0={}", HEXLOWER.encode(&signature));
    let fields = [("X-Sig", signature.as_str()), ("X-Ts", at.as_str())];
    stored_once_as(&rig, "/in/slack", &fields, body, "E1 ping 1");
}

#[test]
fn a_webhook_without_an_id_is_known_by_its_body() {
    let rig = Rig::new();
    rig.token_provider("plain", PLAIN);
    let body = b"any bytes";
    let digest = ring::digest::digest(&ring::digest::SHA256, body);
    let want = format!("{} unknown 1", HEXLOWER.encode(digest.as_ref()));
    stored_once_as(&rig, "/in/plain", &[("X-Token", PLAIN)], body, &want);
}

#[test]
fn a_providers_own_url_is_what_its_signature_covers() {
    let rig = Rig::with(|settings| {
        settings.listen.public_url = Some("https://edge.example/".to_owned());
    });
    rig.provider("square", &json!({ "kind": "square" }), PLAIN);
    let shown = rig.get("/v1/providers/square");
    has(&shown, &json!({ "public_url": null, "url": "https://edge.example/in/square" }));
    let post = |url: &str, n: u32| {
        let body = format!(r#"{{"event_id":"e{n}","type":"payment.updated"}}"#);
        let signature = BASE64.encode(&mac(PLAIN.as_bytes(), &[url.as_bytes(), body.as_bytes()]));
        let fields = [("x-square-hmacsha256-signature", signature.as_str())];
        rig.send("POST", "/in/square", &fields, body.as_bytes())
    };
    post("https://edge.example/in/square", 1).is(200);
    let own = "https://hooks.example/square?a=b";
    let changed = rig.patch("/v1/providers/square", &json!({ "public_url": own })).is(200).json();
    assert_eq!((&changed["public_url"], &changed["url"]), (&json!(own), &json!(own)));
    post("https://edge.example/in/square", 2).is(401);
    post(own, 2).is(200);
    rig.patch("/v1/providers/square", &json!({ "public_url": "hooks.example" })).is(422);
    rig.patch("/v1/providers/square", &json!({ "tolerance_secs": 60 })).is(200);
    post(own, 3).is(200);
    rig.patch("/v1/providers/square", &json!({ "public_url": "" })).is(200);
    post("https://edge.example/in/square", 4).is(200);
}

#[test]
fn each_scheme_keeps_its_own_header_fields_and_no_signature() {
    let rig = Rig::new();
    rig.provider("gitlab", &json!({ "kind": "gitlab" }), PLAIN);
    let fields = [
        ("X-Gitlab-Token", PLAIN),
        ("X-Gitlab-Event", "Push Hook"),
        ("X-Gitlab-Event-UUID", "u-1"),
        ("X-Shopify-Topic", "orders/paid"),
        ("X-Other", "x"),
    ];
    let answer =
        rig.send("POST", "/in/gitlab", &fields, br#"{"object_kind":"push"}"#).is(200).json();
    let shown = rig.get(&format!("/v1/webhook-events/{}", answer["id"].as_str().unwrap()));
    let wanted = json!({ "x-gitlab-event": "Push Hook", "x-gitlab-event-uuid": "u-1" });
    assert_eq!((&shown["headers"], &shown["event_type"]), (&wanted, &json!("push")));
}

/// An answer without what is each request's own: the time and the request's id.
fn impersonal(answer: &Answer) -> (String, Vec<(String, String)>, String) {
    let id = answer.field("x-request-id").unwrap();
    let mut fields = answer.message.fields.clone();
    fields.retain(|(name, _)| name != "date" && name != "x-request-id");
    (answer.message.first_line.clone(), fields, answer.text().replace(id, "its id"))
}

#[test]
fn every_bad_signature_is_answered_the_same_to_the_byte() {
    let rig = with_stripe();
    let body = br#"{"id":"evt_1","type":"a"}"#;
    let now = START.secs();
    let headers = [
        String::new(),
        "nonsense".to_owned(),
        format!("t={now},v1=00"),
        stripe_header("whsec_another0123456789abcdef01234567", now, body),
        stripe_header(STRIPE, now, b"another body"),
        stripe_header(STRIPE, now - 301, body),
        stripe_header(STRIPE, now + 301, body),
        stripe_header(STRIPE, now, body).replace("v1=", "v0="),
    ];
    let mut answers = Vec::new();
    for header in headers {
        let fields = [("Stripe-Signature", header.as_str())];
        answers.push(impersonal(&rig.send("POST", "/in/stripe", &fields, body).is(401)));
    }
    answers.push(impersonal(&rig.send("POST", "/in/stripe", &[], body).is(401)));
    answers.dedup();
    assert_eq!(answers.len(), 1, "{answers:?}");
    let way_in = ("www-authenticate".to_owned(), "Signature".to_owned());
    assert!(answers[0].1.contains(&way_in), "{answers:?}");
    assert_eq!(rig.one("SELECT count(*) FROM webhook_events"), "0");
}

#[test]
fn a_timestamp_at_the_edge_of_the_tolerance_is_taken() {
    let rig = with_stripe();
    for (n, at) in [START.secs() - 300, START.secs() + 300].into_iter().enumerate() {
        let body = format!(r#"{{"id":"evt_{n}","type":"a"}}"#);
        let header = stripe_header(STRIPE, at, body.as_bytes());
        let fields = [("Stripe-Signature", header.as_str())];
        rig.send("POST", "/in/stripe", &fields, body.as_bytes()).is(200);
    }
}

#[test]
fn an_unknown_provider_is_not_found() {
    let rig = with_stripe();
    rig.send("POST", "/in/strife", &[], b"{}").is(404);
    rig.send("POST", "/in/acme/stripe", &[], b"{}").is(404);
    rig.send("GET", "/in/stripe", &[], b"").is(405);
}

#[test]
fn a_provider_of_the_default_tenant_is_found_under_both_paths() {
    let rig = with_stripe();
    let body = br#"{"id":"evt_1","type":"a"}"#;
    let header = stripe_header(STRIPE, START.secs(), body);
    rig.send("POST", "/in/default/stripe", &[("Stripe-Signature", &header)], body).is(200);
}

#[test]
fn while_a_secret_is_replaced_both_are_taken() {
    let rig = with_stripe();
    let new = "whsec_replacement0123456789abcdef0123";
    let body = |n: u32| format!(r#"{{"id":"evt_{n}","type":"a"}}"#);
    let post = |secret: &str, n: u32| {
        let header = stripe_header(secret, START.secs(), body(n).as_bytes());
        rig.send("POST", "/in/stripe", &[("Stripe-Signature", &header)], body(n).as_bytes())
    };
    post(STRIPE, 1).is(200);
    post(new, 2).is(401);
    rig.patch("/v1/providers/stripe", &json!({ "secret": new })).is(200);
    post(STRIPE, 3).is(200);
    post(new, 4).is(200);
    assert_eq!(rig.one("SELECT count(DISTINCT key_id) FROM webhook_events"), "2");
}

#[test]
fn a_deleted_provider_takes_nothing_more() {
    let rig = with_stripe();
    stripe(&rig, br#"{"id":"evt_1","type":"a"}"#).is(200);
    rig.delete("/v1/providers/stripe").is(204);
    stripe(&rig, br#"{"id":"evt_2","type":"a"}"#).is(404);
}

#[test]
fn a_body_above_the_providers_limit_is_refused() {
    let rig = with_stripe();
    stripe(&rig, &vec![b' '; (1 << 20) + 1]).is(413);
    rig.patch("/v1/providers/stripe", &json!({ "body_bytes_max": 100 })).is(200);
    let body = format!(r#"{{"id":"evt_1","type":"a","x":"{}"}}"#, "x".repeat(100));
    stripe(&rig, body.as_bytes()).is(413);
    rig.patch("/v1/providers/stripe", &json!({ "body_bytes_max": 2_000_000 })).is(200);
    let body = format!(r#"{{"id":"evt_1","type":"a","x":"{}"}}"#, "x".repeat(1_900_000));
    stripe(&rig, body.as_bytes()).is(200);
}

#[test]
fn a_right_signature_at_a_wrong_time_is_asked_for_again_while_our_clock_is_suspect() {
    let rig = with_stripe();
    let (body, right) = (br#"{"id":"evt_1","type":"a"}"#, rig.now().secs());
    let post = |header: &str| rig.send("POST", "/in/stripe", &[("Stripe-Signature", header)], body);
    rig.time.set_synchronised(false);
    rig.time.set_wall(START.plus(secs(86_400)));
    let header = stripe_header(STRIPE, right, body);
    until("the step is noticed", || post(&header).status == 503);
    assert_eq!(post(&header).field("retry-after"), Some("60"));
    post(&stripe_header("whsec_another0123456789abcdef01234567", right, body)).is(401);
    post(&stripe_header(STRIPE, rig.now().secs(), body)).is(200);
    rig.advance(secs(600));
    post(&header).is(503);
    rig.time.set_synchronised(true);
    until("the clock is believed", || post(&header).status == 401);
}

#[test]
fn a_webhook_is_sent_on_to_whoever_asks_for_its_provider() {
    let rig = with_stripe();
    let receivers = ["of-stripe", "of-all", "of-outbox", "of-other", "of-type"]
        .map(|name| (name, Receiver::new()));
    let wants = [
        json!({ "source": "provider:stripe" }),
        json!({ "source": "all" }),
        json!({ "source": "outbox" }),
        json!({ "source": "provider:github" }),
        json!({ "source": "provider:stripe", "event_types": ["refund.*"] }),
    ];
    for ((name, receiver), wants) in receivers.iter().zip(&wants) {
        rig.subscribe_with(name, receiver, wants);
    }
    let body = b" {\"id\":\"evt_1\", \"type\":\"invoice.paid\"}\n";
    stripe(&rig, body).is(200);
    rig.settle();
    let counts = receivers.each_ref().map(|(_, receiver)| receiver.count());
    assert_eq!(counts, [1, 1, 0, 0, 0]);
    let seen = receivers[0].1.seen();
    assert_eq!(seen[0].body, body);
    assert_eq!(seen[0].field("x-idempotency-key"), Some("evt_1"));
    insta::assert_snapshot!(rig.dump(), @r"
    in invoice.paid completed
      of-stripe completed
        1 +0s success 200
      of-all completed
        1 +0s success 200
    ");
}

#[test]
fn a_webhook_nobody_wants_is_kept_and_skipped() {
    let rig = with_stripe();
    let answer = stripe(&rig, br#"{"id":"evt_1","type":"a"}"#).is(200).json();
    let shown = rig.get(&format!("/v1/webhook-events/{}", answer["id"].as_str().unwrap()));
    assert_eq!((&shown["status"], &shown["payload"]["id"]), (&json!("skipped"), &json!("evt_1")));
}

#[test]
fn a_webhook_that_cannot_be_sent_on_has_failed_until_it_is_retried() {
    let rig = with_stripe();
    let receiver = Receiver::scripted([Reply::status(500), Reply::status(400)]);
    rig.subscribe_with("erp", &receiver, &json!({ "source": "provider:stripe" }));
    stripe(&rig, br#"{"id":"evt_1","type":"a"}"#).is(200);
    rig.settle();
    assert_eq!(rig.one("SELECT status, retry_count FROM webhook_events"), "processing 1");
    rig.pass(secs(5));
    assert_eq!(rig.one("SELECT status, retry_count FROM webhook_events"), "failed 2");
    rig.call("POST", "/v1/deliveries/dlv_1/retry", b"").is(200);
    rig.settle();
    assert_eq!(rig.one("SELECT status, open_deliveries FROM webhook_events"), "completed 0");
}

#[test]
fn a_body_that_is_not_text_is_kept_and_sent_on_to_the_byte() {
    let rig = Rig::new();
    rig.token_provider("plain", PLAIN);
    let receiver = Receiver::new();
    rig.subscribe_with("erp", &receiver, &json!({ "source": "all" }));
    for body in [(0..=255).collect::<Vec<u8>>(), vec![0xff; 20_000], vec![b'\n'; 1 << 20]] {
        let fields = [("X-Token", PLAIN), ("Content-Type", "x/y")];
        rig.send("POST", "/in/plain", &fields, &body).is(200);
        rig.settle();
        let last = receiver.seen().pop().unwrap();
        assert!(last.body == body, "{} bytes", body.len());
        assert_eq!(last.field("content-type"), Some("x/y"));
    }
}

#[test]
fn a_provider_needs_a_pii_policy_a_secret_and_a_name_of_its_own() {
    let rig = with_stripe();
    let base = json!({
        "name": "other", "scheme": { "kind": "stripe" }, "pii": "allow", "secret": STRIPE
    });
    let with = |field: &str, value: Value| {
        let mut body = base.clone();
        body[field] = value;
        rig.post("/v1/providers", &body)
    };
    with("pii", json!(null)).is(422);
    with("pii", json!("mask")).is(422);
    with("secret", json!(null)).is(422);
    with("secret", json!("whsec_short")).is(422);
    with("name", json!("stripe")).is(409);
    with("name", json!("UPPER")).is(422);
    with("body_bytes_max", json!(26 << 20)).is(422);
    with("tolerance_secs", json!(0)).is(422);
    with("scheme", json!({ "kind": "strype" })).is(422);
}

#[test]
fn a_sample_of_a_provider_is_checked_and_not_stored() {
    let rig = Rig::new();
    let secrets = [
        ("github", "whsec_0123456789abcdef0123456789"),
        ("gitlab", "a-shared-token-of-32-characters!"),
        ("chargebee", "a-password-of-32-characters-long"),
        ("dynamics", "a-client-\"state\"-of-32-characters"),
        ("stripe", "whsec_0123456789abcdef0123456789"),
        ("mailgun", "0123456789abcdef0123456789abcdef"),
    ];
    for (kind, secret) in secrets {
        let mut scheme = json!({ "kind": kind });
        if kind == "chargebee" {
            scheme["user"] = json!("shop");
        }
        rig.provider(kind, &scheme, secret);
        let found = rig.get(&format!("/v1/providers/{kind}/sample"));
        assert_eq!((&found["ok"], &found["why"]), (&json!(true), &Value::Null), "{found}");
        assert!(!found["event_id"].as_str().unwrap().is_empty(), "{found}");
        assert!(!found.to_string().contains(secret), "{kind}: {found}");
        let fields = found["headers"].as_array().unwrap();
        let value = |name: &str| {
            let field = fields.iter().find(|field| field["name"] == name).unwrap();
            field["value"].as_str().unwrap().to_owned()
        };
        assert!(!value("content-type").is_empty(), "{found}");
        match kind {
            "stripe" => {
                let signature = value("stripe-signature");
                assert!(signature.starts_with("t=") && signature.ends_with(",v1=***"), "{found}");
            }
            "github" => assert_eq!(value("x-hub-signature-256"), "sha256=***", "{found}"),
            "gitlab" => assert_eq!(value("x-gitlab-token"), "***", "{found}"),
            "chargebee" => assert_eq!(value("authorization"), "Basic ***", "{found}"),
            _ => {}
        }
        if kind == "mailgun" {
            assert!(found["body"].as_str().unwrap().contains(r#""signature":"***""#), "{found}");
        }
    }
    assert!(rig.get("/v1/webhook-events")["items"].as_array().unwrap().is_empty());
    // Nobody but PayPal has its key.
    let paypal = json!({ "name": "paypal", "scheme": { "kind": "paypal", "webhook_id": "1AB23456CD789012E" }, "pii": "allow" });
    rig.post("/v1/providers", &paypal).is(201);
    let refused = rig.call("GET", "/v1/providers/paypal/sample", b"").is(409).json();
    assert!(refused["detail"].as_str().unwrap().contains("sandbox"), "{refused}");
}
