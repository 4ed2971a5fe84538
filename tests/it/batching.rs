//! `POST /in/…` beyond one event and one answer: batches, hand-shakes, signatures that fit once, and what
//! each provider waits for.

use oncebox::http::client::{self, Call, CallError, Client, ClientSettings, Sender};
use oncebox::model::address::AddressPolicy;

use crate::rig::prelude::*;

const PLAIN: &str = "a-shared-secret-of-32-characters";
const ADYEN: &str = "44782DEF547AAA06C910C43932B1EB0C71FC68D9D0C057550C48EC2ACF6BA056";

fn hex_mac(key: &[u8], parts: &[&[u8]]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    HEXLOWER.encode(hmac::sign(&key, &parts.concat()).as_ref())
}

fn adyen_item(reference: &str) -> Value {
    let key = HEXLOWER.decode(ADYEN.to_lowercase().as_bytes()).unwrap();
    let signed = format!("{reference}::Shop:4711:1130:EUR:AUTHORISATION:true");
    let mac = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), signed.as_bytes());
    json!({ "NotificationRequestItem": {
        "pspReference": reference, "merchantAccountCode": "Shop", "merchantReference": "4711",
        "amount": { "value": 1130, "currency": "EUR" }, "eventCode": "AUTHORISATION",
        "success": "true", "additionalData": { "hmacSignature": BASE64.encode(mac.as_ref()) },
    } })
}

fn adyen_body(references: &[&str]) -> Vec<u8> {
    let items: Vec<Value> = references.iter().map(|reference| adyen_item(reference)).collect();
    json!({ "live": "false", "notificationItems": items }).to_string().into_bytes()
}

fn list() -> Value {
    json!({
        "kind": "generic", "check": { "token": { "header": "X-Token" } }, "items": "/rows",
        "event_id": { "pointer": "/id" }, "event_type": { "pointer": "/type" },
    })
}

#[test]
fn each_item_of_a_batch_is_an_event_of_its_own_and_is_stored_once() {
    let rig = Rig::new();
    rig.provider("adyen", &json!({ "kind": "adyen" }), ADYEN);
    let receiver = Receiver::new();
    rig.subscribe_with("erp", &receiver, &json!({ "source": "provider:adyen" }));
    let first = rig.send("POST", "/in/adyen", &[], &adyen_body(&["A1", "A2"])).is(200).json();
    assert_eq!((&first["stored"], &first["repeated"]), (&json!(2), &json!(0)));
    let again = rig.send("POST", "/in/adyen", &[], &adyen_body(&["A2", "A3", "A3"])).is(200).json();
    assert_eq!((&again["stored"], &again["repeated"]), (&json!(1), &json!(2)));
    assert_ne!(first["batch_id"], again["batch_id"]);
    rig.settle();
    let bodies: Vec<Value> =
        receiver.seen().iter().map(|seen| serde_json::from_slice(&seen.body).unwrap()).collect();
    assert_eq!(bodies.len(), 3);
    assert!(["A1", "A2", "A3"].iter().all(|one| bodies.contains(&adyen_item(one))));
    let sql = "SELECT group_concat(provider_event_id || ' ' || event_type || ' ' || item_no, ', ')
                 FROM webhook_events";
    let wanted = "A1:AUTHORISATION:true AUTHORISATION 1, A2:AUTHORISATION:true AUTHORISATION 2, \
                  A3:AUTHORISATION:true AUTHORISATION 2";
    assert_eq!(rig.one(sql), wanted);
    let shown = &rig.get("/v1/webhook-events")["items"][0];
    assert_eq!((&shown["batch_id"], &shown["item_no"]), (&again["batch_id"], &json!(2)));
}

#[test]
fn a_batch_is_refused_that_would_fill_the_file_with_header_fields() {
    let rig = Rig::new();
    rig.provider("rows", &list(), PLAIN);
    let items: Vec<Value> = (0..5_000).map(|n| json!({ "id": n, "type": "t" })).collect();
    let body = json!({ "rows": items }).to_string();
    let agent = "a".repeat(1_000);
    let post = |fields: &[(&str, &str)]| rig.send("POST", "/in/rows", fields, body.as_bytes());
    let refused = post(&[("X-Token", PLAIN), ("User-Agent", &agent)]).is(422).json();
    shows(refused["detail"].as_str().unwrap(), &["at most 4194304", "body_bytes_max"]);
    assert_eq!(rig.one("SELECT count(*) FROM webhook_events"), "0");
    assert_eq!(post(&[("X-Token", PLAIN)]).is(200).json()["stored"], 5_000);
}

#[test]
fn one_wrong_item_refuses_the_batch_as_a_whole() {
    let rig = Rig::new();
    rig.provider("adyen", &json!({ "kind": "adyen" }), ADYEN);
    let mixed = String::from_utf8(adyen_body(&["A1", "A2"])).unwrap().replace("\"A2\"", "\"A9\"");
    rig.send("POST", "/in/adyen", &[], mixed.as_bytes()).is(401);
    rig.provider("rows", &list(), PLAIN);
    let post = |body: &str| rig.send("POST", "/in/rows", &[("X-Token", PLAIN)], body.as_bytes());
    let broken = post(r#"{"rows":[{"id":1},"x"]}"#).is(422).json();
    let detail = "Item 2 of the batch is not a JSON object; nothing of the batch was stored.";
    assert_eq!(
        (&broken["detail"], rig.one("SELECT count(*) FROM webhook_events")),
        (&json!(detail), "0".into())
    );
    let none = post("not JSON").is(422).json();
    assert_eq!(none["detail"], "The body must be JSON with a list of events at /rows.");
    let many = format!(r#"{{"rows":[{}{{}}]}}"#, "{},".repeat(10_000));
    let many = post(&many).is(422).json();
    assert_eq!(many["detail"], "The batch has 10001 events; at most 10000 are taken at once.");
    post(r#"{"rows":[]}"#).is(200);
    assert_eq!(rig.one("SELECT count(*) FROM webhook_events"), "0");
}

#[test]
fn a_full_batch_is_one_transaction() {
    let rig = Rig::new();
    rig.provider("rows", &list(), PLAIN);
    let rows: Vec<Value> = (0..10_000).map(|n| json!({ "id": n, "type": "row" })).collect();
    let body = json!({ "rows": rows }).to_string();
    let post =
        || rig.send("POST", "/in/rows", &[("X-Token", PLAIN)], body.as_bytes()).is(200).json();
    assert_eq!(post()["stored"], 10_000);
    assert_eq!(post()["repeated"], 10_000);
    assert_eq!(rig.one("SELECT count(*), count(DISTINCT batch_id) FROM webhook_events"), "10000 1");
}

#[test]
fn adyen_is_answered_the_word_that_older_accounts_wait_for() {
    let rig = Rig::new();
    rig.provider("adyen", &json!({ "kind": "adyen", "accepted": true }), ADYEN);
    for _ in 0..2 {
        let answer = rig.send("POST", "/in/adyen", &[], &adyen_body(&["A1"])).is(200);
        assert_eq!(
            (answer.field("content-type"), &*answer.text()),
            (Some("text/plain"), "[accepted]")
        );
    }
    rig.send("POST", "/in/adyen", &[], b"{}").is(401);
}

fn slack(rig: &Rig, body: &[u8]) -> Answer {
    let at = START.secs().to_string();
    let signature = hex_mac(PLAIN.as_bytes(), &[b"v0:", at.as_bytes(), b":", body]);
    let signature = format!("v0={signature}");
    let fields = [("X-Slack-Signature", &*signature), ("X-Slack-Request-Timestamp", &*at)];
    rig.send("POST", "/in/slack", &fields, body)
}

#[test]
fn slack_gets_its_challenge_back_and_nothing_is_stored() {
    let rig = Rig::new();
    rig.provider("slack", &json!({ "kind": "slack" }), PLAIN);
    let asked = br#"{"token":"x","challenge":"3eZbrw1a","type":"url_verification"}"#;
    assert_eq!(slack(&rig, asked).is(200).json(), json!({ "challenge": "3eZbrw1a" }));
    rig.send("POST", "/in/slack", &[], asked).is(401);
    assert_eq!(rig.one("SELECT count(*) FROM webhook_events"), "0");
    slack(&rig, br#"{"event_id":"E1","challenge":"x","event":{"type":"message"}}"#).is(200);
    assert_eq!(rig.one("SELECT event_type FROM webhook_events"), "message");
}

#[test]
fn dynamics_gets_its_token_back_as_plain_text() {
    let rig = Rig::new();
    rig.provider("bc", &json!({ "kind": "dynamics" }), PLAIN);
    let answer = rig.send("POST", "/in/bc?validationToken=a%20b%3Cscript%3E", &[], b"").is(200);
    assert_eq!(
        (answer.field("content-type"), &*answer.text()),
        (Some("text/plain"), "a b<script>")
    );
    assert_eq!(answer.field("x-content-type-options"), Some("nosniff"));
    rig.send("POST", "/in/bc?validationToken=a%0d%0ab", &[], b"").is(401);
    rig.send("POST", "/in/bc", &[], b"").is(401);
    let note =
        json!({ "value": [{ "clientState": PLAIN, "changeType": "updated", "resource": "r" }] });
    let post = || rig.send("POST", "/in/bc", &[], note.to_string().as_bytes()).is(200).json();
    assert_eq!((&post()["stored"], &post()["repeated"]), (&json!(1), &json!(1)));
}

#[test]
fn woocommerce_may_try_the_address_before_it_signs() {
    let rig = Rig::new();
    rig.provider("shop", &json!({ "kind": "woocommerce" }), PLAIN);
    rig.send("POST", "/in/shop", &[], b"webhook_id=17").is(200);
    rig.send("POST", "/in/shop", &[], b"webhook_id=17&x=1").is(401);
    rig.send("POST", "/in/shop", &[("X-WC-Webhook-Signature", "AAAA")], b"webhook_id=17").is(401);
    assert_eq!(rig.one("SELECT count(*) FROM webhook_events"), "0");
}

/// The vector of that name: settings, fields and body.
fn vector(name: &str) -> (Value, Vec<(String, String)>, Vec<u8>) {
    let all: Value = serde_json::from_str(include_str!("../data/signatures/vectors.json")).unwrap();
    let found = all.as_array().unwrap().iter().find(|case| case["name"] == name).unwrap();
    let fields = found["headers"].as_object().unwrap().iter();
    let fields = fields.map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()));
    let body = BASE64.decode(found["body_base64"].as_str().unwrap().as_bytes()).unwrap();
    (found["scheme"].clone(), fields.collect(), body)
}

#[test]
fn what_is_signed_with_a_certificate_needs_no_secret() {
    let rig = Rig::new();
    for (provider, name) in [("sns", "sns: good, version 2"), ("sns-2", "sns: good, version 1")] {
        let (scheme, _, body) = vector(name);
        let made = json!({ "name": provider, "scheme": scheme, "pii": "allow" });
        rig.post("/v1/providers", &made).is(201);
        let post = |body: &[u8]| rig.send("POST", &format!("/in/{provider}"), &[], body);
        post(&body).is(200);
        assert_eq!(post(&body).is(200).json()["already_processed"], true);
        let changed = String::from_utf8(body).unwrap().replace("n-1", "n-2");
        post(changed.as_bytes()).is(401);
    }
    let (scheme, fields, body) = vector("paypal: good");
    let made = json!({ "name": "paypal", "scheme": scheme, "pii": "allow", "secret": PLAIN });
    rig.post("/v1/providers", &made).is(422);
    let made = json!({ "name": "paypal", "scheme": scheme, "pii": "allow" });
    assert_eq!(rig.post("/v1/providers", &made).is(201).json()["tolerance_secs"], 345_600);
    rig.time.set_wall(Timestamp::from_secs(1_700_000_000));
    let fields: Vec<(&str, &str)> = fields.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    let post = || rig.send("POST", "/in/paypal", &fields, &body).status;
    until("the clock is believed", || post() == 200);
    assert_eq!(
        rig.one("SELECT event_type FROM webhook_events WHERE provider = 'paypal'"),
        "PAYMENT.SALE.COMPLETED"
    );
}

#[test]
fn a_certificate_is_fetched_from_its_own_host_alone() {
    let rig = Rig::new();
    let scheme = json!({ "kind": "paypal", "webhook_id": "4JH86294D6297924G" });
    rig.post("/v1/providers", &json!({ "name": "paypal", "scheme": scheme, "pii": "allow" }))
        .is(201);
    let (_, fields, body) = vector("paypal: good");
    for url in words(
        "https://evil.example/v1/notifications/certs/x \
        https://api.paypal.com.evil.example/v1/notifications/certs/x \
        http://api.paypal.com/v1/notifications/certs/x https://api.paypal.com/elsewhere",
    ) {
        let mut own: Vec<(&str, &str)> =
            fields.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        own.retain(|(name, _)| *name != "PAYPAL-CERT-URL");
        own.push(("PAYPAL-CERT-URL", url));
        rig.send("POST", "/in/paypal", &own, &body).is(401);
    }
}

/// Sends whatever goes to a certificate's host to a server of the test's.
struct Elsewhere(Client, String);

fn elsewhere(host: &Receiver) -> Elsewhere {
    let policy = AddressPolicy::new(vec!["127.0.0.0/8".parse().unwrap()]);
    let (connect_timeout, idle_connections) = (secs(5), 2);
    let client =
        ClientSettings { policy, ca_pem: None, connect_timeout, idle_connections, proxy: None };
    Elsewhere(Client::new(client).unwrap(), format!("http://{}", host.address))
}

impl Sender for Elsewhere {
    fn send(&self, call: &Call<'_>) -> Result<client::Answer, CallError> {
        let (_, path) = call.url.strip_prefix("https://").unwrap().split_once('/').unwrap();
        let url = format!("{}/{path}", self.1);
        self.0.call(&Call { url: &url, ..call.clone() })
    }

    fn is_on_site(&self, host: &str) -> Option<bool> {
        self.0.is_on_site(host)
    }
}

#[test]
fn a_subscription_is_confirmed_once_however_often_its_request_is_sent_again() {
    let mut rig = Rig::new();
    let host = Receiver::new();
    rig.restart_on(Arc::new(elsewhere(&host)));
    let (mut scheme, _, body) = vector("sns: a confirmation");
    scheme["confirm"] = json!(true);
    rig.post("/v1/providers", &json!({ "name": "sns", "scheme": scheme, "pii": "allow" })).is(201);
    let post = || rig.send("POST", "/in/sns", &[], &body);

    // It is not confirmed: nothing is stored, and it is not tried again for a minute.
    host.always(Reply::status(403));
    for _ in 0..20 {
        post().is(503);
    }
    assert_eq!(host.count(), 1);
    rig.advance(secs(61));
    host.always(Reply::status(200));
    post().is(200);
    for _ in 0..20 {
        assert_eq!(post().is(200).json()["already_processed"], true);
    }
    assert_eq!(host.count(), 2);
    assert_eq!(rig.one("SELECT count(*) FROM webhook_events"), "1");
}

#[test]
fn forged_requests_have_little_fetched_and_right_ones_are_taken_all_the_same() {
    let mut rig = Rig::new();
    let host = Receiver::new();
    rig.restart_on(Arc::new(elsewhere(&host)));

    let (mut scheme, _, right) = vector("sns: good, version 2");
    let certificate = scheme.as_object_mut().unwrap().remove("certificates").unwrap();
    let certificate = certificate.as_str().unwrap().as_bytes().to_vec();
    rig.post("/v1/providers", &json!({ "name": "sns", "scheme": scheme, "pii": "allow" })).is(201);
    let right = String::from_utf8(right).unwrap();
    let post = |body: &str| rig.send("POST", "/in/sns", &[], body.as_bytes());
    let named = |n: usize| right.replace("Service-1.pem", &format!("Service-{n}.pem"));

    // A host that gives nothing, no certificate, too much, or somebody else's.
    host.always(Reply::status(404));
    post(&named(2)).is(503);
    for n in 0..50 {
        post(&named(n)).is(503);
    }
    assert_eq!(host.count(), 1);
    for (answer, status) in [
        (b"no certificate".to_vec(), 401),
        (vec![b'-'; 60 * 1024], 503),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_vec(), 401),
    ] {
        rig.advance(secs(61));
        host.always(Reply::Answer(200, Vec::new(), answer));
        let before = host.count();
        post(&named(before + 10)).is(status);
        for n in 100..150 {
            post(&named(n)).is(503);
        }
        assert_eq!(host.count(), before + 1);
    }
    assert_eq!(rig.one("SELECT count(*) FROM webhook_events"), "0");

    // A stranger names the right one first, for a body that is not signed; it is fetched once.
    rig.advance(secs(61));
    host.always(Reply::Answer(200, Vec::new(), certificate));
    let before = host.count();
    post(&right.replace("n-1", "n-2")).is(401);
    post(&right).is(200);
    assert_eq!(host.count(), before + 1);
    // From then on it is kept, whatever strangers name.
    host.always(Reply::status(500));
    for n in 200..300 {
        post(&named(n)).is(503);
        rig.advance(secs(2));
    }
    let asked = host.count();
    assert_eq!(post(&right).is(200).json()["already_processed"], true);
    assert_eq!(host.count(), asked);

    // What could not be believed anyway is refused before anything is fetched.
    rig.advance(secs(61));
    for (from, to) in [
        ("\"SignatureVersion\": \"2\"", "\"SignatureVersion\": \"3\""),
        ("\"Signature\": \"", "\"Signature\": \"AAAA\", \"x\": \""),
        ("\"Message\"", "\"Message\": \"\", \"Message\""),
    ] {
        post(&named(400).replace(from, to)).is(401);
    }
    let scheme = json!({ "kind": "paypal", "webhook_id": "4JH86294D6297924G" });
    rig.post("/v1/providers", &json!({ "name": "pp", "scheme": scheme, "pii": "allow" })).is(201);
    let (_, fields, body) = vector("paypal: good");
    let fields: Vec<(&str, &str)> = fields.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    rig.send("POST", "/in/pp", &fields, &body).is(401);
    assert_eq!(host.count(), asked);
    // In time it is asked for, and no root vouches for what is given.
    rig.time.set_wall(Timestamp::from_secs(1_700_000_000));
    rig.send("POST", "/in/pp", &fields, &body).is(503);
    assert_eq!(host.count(), asked + 1);
}

#[test]
fn settings_that_a_scheme_cannot_do_without_are_asked_for() {
    let rig = Rig::new();
    let refused = |scheme: Value, secret: &str| {
        let body = json!({ "name": "x", "scheme": scheme, "pii": "allow", "secret": secret });
        rig.post("/v1/providers", &body).is(422).json()["detail"].as_str().unwrap().to_owned()
    };
    assert!(refused(json!({ "kind": "adyen" }), PLAIN).contains("hex, as Adyen shows it"));
    assert!(refused(json!({ "kind": "sendgrid" }), PLAIN).contains("public key"));
    assert!(refused(json!({ "kind": "paypal" }), PLAIN).contains("webhook_id"));
    assert!(refused(json!({ "kind": "sns" }), PLAIN).contains("topics"));
    assert!(refused(json!({ "kind": "sns", "topics": ["x".repeat(8)] }), PLAIN).contains("ARNs"));
    assert!(refused(json!({ "kind": "chargebee" }), PLAIN).contains("user"));
    let ed25519 =
        json!({ "ed25519": { "signed": "{body}", "header": "X", "secret_encoding": "hex" } });
    assert!(refused(json!({ "kind": "generic", "check": ed25519 }), PLAIN).contains("not hex"));
}

#[test]
fn a_signature_that_does_not_cover_the_body_is_taken_with_one_body_only() {
    let rig = Rig::new();
    rig.provider("mail", &json!({ "kind": "mailgun" }), PLAIN);
    let body = |token: &str, id: &str| {
        let at = START.secs().to_string();
        let signature = hex_mac(PLAIN.as_bytes(), &[at.as_bytes(), token.as_bytes()]);
        json!({
            "signature": { "timestamp": at, "token": token, "signature": signature },
            "event-data": { "id": id, "event": "delivered" },
        })
    };
    let post = |body: &Value| rig.send("POST", "/in/mail", &[], body.to_string().as_bytes());
    post(&body("t1", "m1")).is(200);
    assert_eq!(post(&body("t1", "m1")).is(200).json()["already_processed"], true);
    post(&body("t1", "m2")).is(401);
    // No client can take or learn the key that remembers it.
    let key = rig.one("SELECT key FROM idempotency_keys");
    rig.post_keyed(&rig.token, &key, r#"{"event_type":"a","payload":1}"#).is(400);
    post(&body("t2", "m2")).is(200);
    assert_eq!(post(&body("t3", "m2")).is(200).json()["already_processed"], true);
    assert_eq!(rig.one("SELECT count(*) FROM webhook_events"), "2");
    rig.provider("mail-2", &json!({ "kind": "mailgun" }), PLAIN);
    rig.send("POST", "/in/mail-2", &[], body("t1", "m9").to_string().as_bytes()).is(200);
}
