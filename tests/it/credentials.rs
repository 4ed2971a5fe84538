//! Credentials of every kind: what a request carries, who gets a token when, and what is refused.

use ring::signature::{ED25519, UnparsedPublicKey};

use crate::rig::prelude::*;

const PATH: &str = "/v1/subscriptions/erp/credentials";

/// A box with one subscription.
fn site() -> (Rig, Receiver) {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    rig.subscribe("erp", &receiver);
    (rig, receiver)
}

/// The same with more deliverers than requests, and a target that has answered: it is sent several at once.
fn wide() -> (Rig, Receiver) {
    let receiver = Receiver::new();
    let rig = Rig::with(|settings| settings.delivery.deliverers = 64);
    rig.subscribe("erp", &receiver);
    request(&rig, &receiver);
    (rig, receiver)
}

#[track_caller]
fn set(rig: &Rig, body: &Value) -> Value {
    rig.post(PATH, body).is(201).json()
}

/// Publishes an event and waits until everything due is sent; the last request.
fn request(rig: &Rig, receiver: &Receiver) -> Message {
    rig.deliver("a");
    receiver.seen().pop().unwrap()
}

fn attempts(rig: &Rig) -> Vec<String> {
    let sql =
        "SELECT class || ' ' || coalesce(http_status, '-') || ' ' || coalesce(failed_reason, '')
                 FROM attempts ORDER BY delivery_seq, n";
    rig.lines(sql)
}

#[test]
fn a_request_carries_what_logs_on_and_a_new_credential_takes_the_place_of_the_old() {
    let (rig, receiver) = site();
    assert_eq!(request(&rig, &receiver).field("authorization"), None);
    let bearer = set(&rig, &json!({ "kind": "bearer", "secret": "tok-1" }));
    assert_eq!(request(&rig, &receiver).field("authorization"), Some("Bearer tok-1"));
    let basic = set(&rig, &json!({ "kind": "basic", "user": "erp", "secret": "pä:ss" }));
    let expected = format!("Basic {}", BASE64.encode("erp:pä:ss".as_bytes()));
    assert_eq!(request(&rig, &receiver).field("authorization"), Some(expected.as_str()));
    let key = json!({ "kind": "api_key", "header": "X-API-Key", "secret": "k-1" });
    let key = set(&rig, &key);
    let sent = request(&rig, &receiver);
    assert_eq!((sent.field("authorization"), sent.field("x-api-key")), (None, Some("k-1")));
    assert!(sent.field("webhook-signature").is_some());

    let listed = rig.get("/v1/credentials?subscription=erp");
    let kinds: Vec<&Value> =
        listed["items"].as_array().unwrap().iter().map(|one| &one["kind"]).collect();
    assert_eq!(kinds, ["signing", "api_key"]);
    assert_eq!(listed["items"][1]["settings"], json!({ "header": "X-API-Key" }));
    let revoked = rig.get("/v1/credentials?subscription=erp&state=revoked");
    let ids: Vec<&Value> =
        revoked["items"].as_array().unwrap().iter().map(|one| &one["id"]).collect();
    assert_eq!(ids, [&bearer["id"], &basic["id"]]);
    for secret in ["tok-1", "pä:ss", "k-1"] {
        assert!(!format!("{listed}{revoked}{key}").contains(secret), "{secret}");
    }
    let path = format!("/v1/credentials/{}", key["id"].as_str().unwrap());
    let gone = rig.post(&format!("{path}/revoke"), &Value::Null).is(200).json();
    assert_eq!(gone["state"], "revoked");
    assert_eq!(rig.get(&path), gone);
    rig.post(&format!("{path}/revoke"), &Value::Null).is(409);
    assert_eq!(request(&rig, &receiver).field("x-api-key"), None);
}

#[test]
fn what_signs_last_and_a_providers_last_secret_are_not_revoked() {
    let (rig, _receiver) = site();
    rig.provider("shop", &json!({ "kind": "stripe" }), "whsec_0123456789abcdef0123456789");
    let listed = rig.get("/v1/credentials");
    for (n, why) in [(0, "signs the subscription's requests"), (1, "provider's last secret")] {
        let path = format!("/v1/credentials/{}/revoke", listed["items"][n]["id"].as_str().unwrap());
        rig.post(&path, &Value::Null).is(409).tells(why);
    }
    let shops = rig.get("/v1/credentials?provider=shop");
    assert_eq!(
        (shops["items"].as_array().unwrap().len(), &shops["items"][0]["provider"]),
        (1, &json!("shop"))
    );
    rig.post(
        "/v1/providers/shop/secrets",
        &json!({ "secret": "whsec_another_one_of_the_provider" }),
    )
    .is(201);
    let path = format!("/v1/credentials/{}/revoke", shops["items"][0]["id"].as_str().unwrap());
    rig.post(&path, &Value::Null).is(200);
}

/// The entries of a request's signature that this public key made.
fn made_by(public_key: &str, request: &Message) -> usize {
    let key = BASE64.decode(public_key.strip_prefix("whpk_").unwrap().as_bytes()).unwrap();
    let of = |name: &str| request.field(name).unwrap();
    let signed = [of("webhook-id"), ".", of("webhook-timestamp"), "."].concat().into_bytes();
    let signed = [signed, request.body.clone()].concat();
    let entries = of("webhook-signature").split(' ').filter_map(|entry| entry.strip_prefix("v1a,"));
    let key = UnparsedPublicKey::new(&ED25519, key);
    let is_made = |entry: &&str| {
        let signature = BASE64.decode(entry.as_bytes()).unwrap();
        key.verify(&signed, &signature).is_ok()
    };
    entries.filter(is_made).count()
}

#[test]
fn an_ed25519_key_signs_what_its_public_key_verifies() {
    let (mut rig, receiver) = site();
    let made = set(&rig, &json!({ "kind": "signing_ed25519" }));
    let (secret, public) = (made["secret"].as_str().unwrap(), &made["settings"]["public_key"]);
    assert!(secret.starts_with("whsk_"), "{secret}");
    let sent = request(&rig, &receiver);
    assert!(!sent.field("webhook-signature").unwrap().contains(' '));
    assert_eq!(made_by(public.as_str().unwrap(), &sent), 1);
    rig.restart();
    let sent = request(&rig, &receiver);
    assert_eq!(made_by(public.as_str().unwrap(), &sent), 1);
    let shown = rig.get(&format!("/v1/credentials/{}", made["id"].as_str().unwrap()));
    assert_eq!((&shown["settings"]["public_key"], &shown["secret"]), (public, &Value::Null));
    // Our own intake checks it with the public key.
    rig.provider("self", &json!({ "kind": "standard" }), public.as_str().unwrap());
    let fields: Vec<(&str, &str)> = ["webhook-id", "webhook-timestamp", "webhook-signature"]
        .map(|name| (name, sent.field(name).unwrap()))
        .to_vec();
    rig.send("POST", "/in/self", &fields, &sent.body).is(200);
    // Brought by the caller, it is not repeated.
    let again = set(&rig, &json!({ "kind": "signing_ed25519", "secret": secret }));
    assert_eq!((&again["secret"], &again["settings"]["public_key"]), (&Value::Null, public));
}

#[test]
fn the_credentials_of_what_is_deleted_are_revoked_with_it() {
    let (rig, receiver) = site();
    set(&rig, &json!({ "kind": "bearer", "secret": "token-0" }));
    let scheme = json!({ "kind": "generic", "check": { "token": { "header": "X-Token" } },
                         "event_type": { "constant": "a" } });
    rig.provider("shop", &scheme, "0123456789abcdef0123456789abcdef");
    let body = json!({ "name": "ops", "kind": "webhook", "url": receiver.url() });
    rig.post("/v1/alert-channels", &body).is(201);
    let in_force = "SELECT count(*) FROM credentials WHERE state <> 'revoked'";
    assert_eq!(rig.one(in_force), "4");
    for (path, action, count) in [
        ("/v1/subscriptions/erp", "subscription.delete", 2),
        ("/v1/providers/shop", "provider.delete", 1),
        ("/v1/alert-channels/ops", "alert_channel.delete", 1),
    ] {
        rig.delete(path).is(204);
        let audited = rig.get(&format!("/v1/audit-events?action={action}"));
        let revoked = audited["items"][0]["changes"]["revoked"]["after"].clone();
        assert_eq!(revoked.as_array().map(Vec::len), Some(count), "{audited}");
    }
    assert_eq!(rig.one(in_force), "0");
}

#[test]
fn every_signing_credential_in_force_signs() {
    let (mut rig, receiver) = site();
    let keys: Vec<String> = (0..3)
        .map(|_| {
            let made = set(&rig, &json!({ "kind": "signing_ed25519" }));
            text(&made["settings"], "public_key")
        })
        .collect();
    rig.stop();
    let conn = rig.writable();
    conn.run(
        "UPDATE credentials SET state = 'retiring', valid_until = 9e15 WHERE version = 2;
         UPDATE credentials SET state = 'next' WHERE version = 3;",
    );
    rig.start_again();
    let sent = request(&rig, &receiver);
    assert_eq!(sent.field("webhook-signature").unwrap().split(' ').count(), 3);
    for key in &keys {
        assert_eq!(made_by(key, &sent), 1, "{key}");
    }
    rig.says("SELECT version FROM credentials WHERE id = (SELECT key_id FROM attempts)", "4");
    // A new one ends all of them.
    set(&rig, &json!({ "kind": "signing" }));
    let sent = request(&rig, &receiver);
    assert!(sent.field("webhook-signature").unwrap().starts_with("v1,"));
    assert!(!sent.field("webhook-signature").unwrap().contains(' '));
    let two = conn.execute("UPDATE credentials SET state = 'active' WHERE version = 2", []);
    assert!(two.unwrap_err().to_string().contains("UNIQUE"), "the file has one of each purpose");
}

#[test]
fn what_cannot_be_used_is_refused_with_what_is_wrong() {
    let (rig, receiver) = site();
    let refused = |body: &Value| rig.post(PATH, body).is(422).detail();
    for (body, why) in [
        (json!({ "kind": "bearer", "secret": "Bearer x" }), "leave it out"),
        (json!({ "kind": "basic", "user": "a:b", "secret": "x" }), "colon"),
        (json!({ "kind": "api_key", "header": "Content-Type", "secret": "x" }), "set by Oncebox"),
        (json!({ "kind": "api_key", "header": "X Y", "secret": "x" }), "name of a header field"),
        (json!({ "kind": "signing", "secret": "whsk_AAAA" }), "ed25519"),
        (
            json!({ "kind": "signing_ed25519", "secret": "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3" }),
            "kind signing",
        ),
        (json!({ "kind": "client_certificate", "secret": "x" }), "no certificate"),
        (
            json!({ "kind": "oauth2", "token_url": "http://10.0.0.1/", "client_id": "c", "secret": "x" }),
            "private address",
        ),
        (
            json!({ "kind": "oauth2", "token_url": "https://a/?code=1", "client_id": "c", "secret": "x" }),
            "parameter code carries a secret",
        ),
    ] {
        let detail = refused(&body);
        assert!(detail.contains(why), "{body}: {detail}");
    }
    rig.post(PATH, &json!({ "kind": "bearer", "secret": "x", "user": "y" })).is(400);
    rig.post(PATH, &json!({ "kind": "bearer" })).is(400);
    let own = json!({ "headers": { "X-Mine": "1" } });
    rig.patch("/v1/subscriptions/erp", &own).is(200);
    let detail = refused(&json!({ "kind": "api_key", "header": "x-mine", "secret": "x" }));
    assert!(detail.contains("of its own"), "{detail}");
    rig.post("/v1/subscriptions", &json!({ "name": "puller", "target": "pull" })).is(201);
    let body = json!({ "kind": "bearer", "secret": "x" });
    rig.post("/v1/subscriptions/puller/credentials", &body).is(422).tells("no bearer is sent");
    assert_eq!(request(&rig, &receiver).field("authorization"), None);
}

#[test]
fn secrets_in_urls_and_headers_are_refused_with_the_credential_to_set() {
    let (rig, receiver) = site();
    for query in ["token=x", "api_key=x", "sig=x", "access-token=x", "q=1&code=x%3D"] {
        let body = json!({ "name": "x", "url": format!("{}?{query}", receiver.url()) });
        rig.post("/v1/subscriptions", &body).is(422).tells("oncebox credential set");
        rig.patch("/v1/subscriptions/erp", &json!({ "url": body["url"] })).is(422);
    }
    let filled = format!("{}?key={{idempotency_key}}&token=", receiver.url());
    rig.patch("/v1/subscriptions/erp", &json!({ "url": filled })).is(200);
    let body = json!({ "name": "x", "url": "http://user:pass@127.0.0.1/" });
    rig.post("/v1/subscriptions", &body).is(422).tells("kind basic");
    for (header, kind) in [("Authorization", "bearer"), ("X-API-Key", "api_key")] {
        let body = json!({ "name": "x", "url": receiver.url(), "headers": { header: "s3cret" } });
        let detail = rig.post("/v1/subscriptions", &body).is(422).detail();
        assert!(detail.contains(kind) && detail.contains("credential set"), "{detail}");
        assert!(!detail.contains("s3cret"), "{detail}");
    }
}

#[test]
fn a_new_credential_ends_the_hold_of_the_refused_one() {
    let (rig, receiver) = site();
    receiver.decide(|request| {
        let is_right = request.field("authorization") == Some("Bearer right");
        Reply::status(if is_right { 200 } else { 401 })
    });
    request(&rig, &receiver);
    let holds = |rig: &Rig| rig.lines("SELECT reason FROM holds");
    assert_eq!(holds(&rig), ["auth"]);
    set(&rig, &json!({ "kind": "bearer", "secret": "right" }));
    assert_eq!(holds(&rig), [""; 0]);
    rig.settle();
    rig.pass(secs(5));
    assert_eq!(rig.one("SELECT state FROM deliveries"), "completed");
}

#[test]
fn an_answer_that_quotes_a_credential_is_kept_without_it() {
    let (rig, receiver) = site();
    receiver.decide(|request| {
        let quoted = request.field("authorization").unwrap_or_default();
        let escaped = quoted.replace('/', "\\/");
        Reply::Answer(422, Vec::new(), format!("you sent {quoted} as {escaped}").into_bytes())
    });
    set(&rig, &json!({ "kind": "basic", "user": "???", "secret": "a secret" }));
    let sent = request(&rig, &receiver);
    let value = sent.field("authorization").unwrap().strip_prefix("Basic ").unwrap();
    assert!(value.contains('/'), "{value}");
    let excerpt = rig.one("SELECT excerpt FROM attempts");
    assert_eq!(excerpt, "you sent Basic [credential] as Basic [credential]");
    assert!(!rig.dump().contains(value));
}

#[test]
fn the_last_use_of_a_credential_is_shown_to_the_minute() {
    let (rig, receiver) = site();
    rig.token_provider("shop", "a-shared-secret-of-32-characters");
    let bearer = set(&rig, &json!({ "kind": "bearer", "secret": "x" }));
    let used = |rig: &Rig| {
        file::lines(
            &rig.file(),
            "SELECT kind FROM credentials WHERE last_used_at IS NOT NULL ORDER BY kind",
        )
    };
    request(&rig, &receiver);
    let at = rig.now();
    assert_eq!(used(&rig), [""; 0], "nothing is written with the delivery");
    rig.advance(secs(61));
    until("the uses are stored", || used(&rig) == ["bearer", "signing"]);
    let shown = rig.get(&format!("/v1/credentials/{}", bearer["id"].as_str().unwrap()));
    assert_eq!(shown["last_used_at"], at.to_string());
    let fields = [("X-Token", "a-shared-secret-of-32-characters")];
    rig.send("POST", "/in/shop", &fields, b"hook").is(200);
    rig.advance(secs(61));
    until("the provider's too", || used(&rig) == ["bearer", "signing", "signing"]);
}

#[test]
fn a_changed_scheme_is_refused_with_the_secret_that_does_not_fit() {
    let rig = Rig::new();
    rig.provider("shop", &json!({ "kind": "github" }), "a secret of no special form");
    let listed = rig.get("/v1/credentials?provider=shop");
    let change = json!({ "scheme": { "kind": "stripe" } });
    let detail = rig.patch("/v1/providers/shop", &change).is(422).detail();
    assert!(detail.contains(listed["items"][0]["id"].as_str().unwrap()), "{detail}");
    assert!(detail.contains("whsec_") && detail.contains("withdraw"), "{detail}");
    assert!(!detail.contains("special"), "{detail}");
    assert_eq!(rig.get("/v1/providers/shop")["scheme"], json!({ "kind": "github" }));
    rig.patch("/v1/providers/shop", &json!({ "scheme": { "kind": "gitea" } })).is(200);
}

#[test]
fn a_rotation_of_the_master_key_seals_every_kind_anew() {
    let (mut rig, receiver) = site();
    let endpoint = Endpoint::new();
    let more = |name: &str, body: &Value| {
        rig.subscribe(name, &receiver);
        rig.post(&format!("/v1/subscriptions/{name}/credentials"), body).is(201);
    };
    more("bearer", &json!({ "kind": "bearer", "secret": "b" }));
    more("basic", &json!({ "kind": "basic", "user": "u", "secret": "p" }));
    more("key", &json!({ "kind": "api_key", "header": "X-Key", "secret": "k" }));
    more("ed", &json!({ "kind": "signing_ed25519" }));
    more("oauth", &endpoint.client(&json!({})));
    more(
        "tls",
        &json!({ "kind": "client_certificate", "secret": crate::it::credentials_tls::pem(2090) }),
    );
    let check = |rig: &Rig| {
        let before = receiver.count();
        rig.deliver("a");
        let seen = receiver.seen().split_off(before);
        let of = |name: &str| seen.iter().filter(|request| request.field(name).is_some()).count();
        assert_eq!((seen.len(), of("authorization"), of("x-key")), (7, 3, 1));
    };
    check(&rig);
    rig.post("/v1/keys/rotate", &Value::Null).is(200);
    rig.says("SELECT count(DISTINCT master_key_id) || ' ' || count(*) FROM credentials", "1 13");
    check(&rig);
    rig.restart();
    fs::read_dir(rig.data()).unwrap().flatten().for_each(|entry| {
        let name = entry.file_name().into_string().unwrap();
        if name.starts_with("master.key.") {
            fs::remove_file(entry.path()).unwrap();
        }
    });
    rig.restart();
    check(&rig);
    assert_eq!(attempts(&rig).iter().filter(|attempt| attempt.starts_with("success")).count(), 21);
}

/// A token endpoint: each token has a number, and lives for an hour.
pub(crate) struct Endpoint(Receiver);

impl Endpoint {
    fn new() -> Self {
        let receiver = Receiver::new();
        let mut issued = 0;
        receiver.decide(move |_| {
            issued += 1;
            let token = json!({ "access_token": format!("t{issued}"), "token_type": "Bearer", "expires_in": 3600 });
            Reply::Answer(200, Vec::new(), token.to_string().into_bytes())
        });
        Self(receiver)
    }

    fn client(&self, more: &Value) -> Value {
        merged(
            json!({
                "kind": "oauth2", "token_url": self.0.url(), "client_id": "erp client", "secret": "s3cret&more"
            }),
            more,
        )
    }
}

#[test]
fn a_token_is_fetched_once_kept_and_fetched_again_before_it_expires() {
    let (rig, receiver) = wide();
    let endpoint = Endpoint::new();
    set(&rig, &endpoint.client(&json!({ "scope": "orders write", "audience": "https://erp/" })));
    receiver.decide(|_| Reply::Hang);
    rig.publish_types(&["a"; 4]);
    until("all are in flight", || receiver.count() == 5);
    receiver.release();
    rig.settle();
    receiver.always(Reply::status(200));
    let all = |token: &str| {
        receiver.seen().iter().skip(1).all(|r| r.field("authorization") == Some(token))
    };
    assert!(endpoint.0.count() == 1 && all("Bearer t1"), "{:?}", endpoint.0.seen());
    let asked = endpoint.0.seen().pop().unwrap();
    let basic = format!("Basic {}", BASE64.encode(b"erp%20client:s3cret%26more"));
    assert_eq!(asked.field("authorization"), Some(basic.as_str()));
    assert_eq!(asked.field("content-type"), Some("application/x-www-form-urlencoded"));
    let form = String::from_utf8(asked.body).unwrap();
    assert_eq!(
        form,
        "grant_type=client_credentials&scope=orders%20write&audience=https%3A%2F%2Ferp%2F"
    );
    // A subscription that changes loses no token; one minute before its end it is fetched again.
    rig.patch("/v1/subscriptions/erp", &json!({ "owner_id": "x" })).is(200);
    rig.advance(secs(3539));
    assert_eq!(request(&rig, &receiver).field("authorization"), Some("Bearer t1"));
    rig.advance(secs(1));
    assert_eq!(request(&rig, &receiver).field("authorization"), Some("Bearer t2"));
    // Another credential has tokens of its own.
    set(&rig, &endpoint.client(&json!({ "client_auth": "body" })));
    assert_eq!(request(&rig, &receiver).field("authorization"), Some("Bearer t3"));
    let asked = endpoint.0.seen().pop().unwrap();
    let form = String::from_utf8(asked.body.clone()).unwrap();
    assert_eq!(
        form,
        "grant_type=client_credentials&client_id=erp%20client&client_secret=s3cret%26more"
    );
    assert_eq!(asked.field("authorization"), None);
}

#[test]
fn a_token_that_is_refused_is_fetched_again_once() {
    let (rig, receiver) = site();
    let endpoint = Endpoint::new();
    set(&rig, &endpoint.client(&json!({})));
    receiver.decide(|request| {
        let is_old = request.field("authorization") == Some("Bearer t1");
        Reply::Answer(if is_old { 401 } else { 200 }, Vec::new(), b"t1 t2 s3cret&more".to_vec())
    });
    request(&rig, &receiver);
    assert_eq!(
        (receiver.count(), endpoint.0.count(), attempts(&rig)),
        (2, 2, vec!["success 200 ".to_owned()])
    );
    assert_eq!(rig.one("SELECT excerpt FROM attempts"), "t1 [credential] [credential]");
    receiver.always(Reply::status(401));
    request(&rig, &receiver);
    assert_eq!((receiver.count(), endpoint.0.count()), (4, 3));
    assert_eq!(attempts(&rig)[1], "auth 401 the target answered 401");
    assert_eq!(rig.one("SELECT reason FROM holds"), "auth");
}

#[test]
fn a_token_endpoint_that_fails_gives_the_attempt_its_reason_and_no_request_is_made() {
    let says =
        |status: u16, body: &str| Reply::Answer(status, Vec::new(), body.as_bytes().to_vec());
    let table = [
        (
            says(400, r#"{"error":"invalid_client","error_description":"unknown"}"#),
            "auth",
            "answered 400: invalid_client unknown",
        ),
        (
            says(401, r#"{"error":"invalid_client","error_description":"s3cret&more is wrong"}"#),
            "auth",
            "answered 401",
        ),
        // Form-encoded, and as the field that it was sent in: `s3cret&more` of the client `erp client`.
        (says(400, r#"{"error":"bad","error_description":"got s3cret%26more"}"#), "auth", "400"),
        (
            says(
                401,
                r#"{"error":"bad","error_description":"got Basic ZXJwJTIwY2xpZW50OnMzY3JldCUyNm1vcmU="}"#,
            ),
            "auth",
            "answered 401",
        ),
        (says(403, "<html>"), "auth", "answered 403"),
        (says(404, ""), "transient", "answered 404"),
        (says(500, "token t1"), "transient", "answered 500"),
        (says(302, ""), "transient", "answered 302"),
        (Reply::with(429, "retry-after", "60"), "rate_limited", "answered 429"),
        (says(200, "ok"), "transient", "no JSON object with an access_token"),
        (says(200, r#"{"access_token":"a\nb"}"#), "transient", "header field cannot carry it"),
        (
            says(200, r#"{"access_token":"t1","token_type":"mac"}"#),
            "transient",
            "not of the type bearer",
        ),
        (Reply::CutRead, "transient", "the token endpoint at "),
    ];
    for (reply, class, why) in table {
        let (rig, receiver) = site();
        let endpoint = Endpoint::new();
        set(&rig, &endpoint.client(&json!({})));
        endpoint.0.always(reply.clone());
        rig.deliver("a");
        let attempt = attempts(&rig).remove(0);
        assert!(attempt.starts_with(class) && attempt.contains(why), "{reply:?}: {attempt}");
        assert!(attempt.contains("the token endpoint at 127.0.0.1:"), "{attempt}");
        assert_eq!(receiver.count(), 0, "{reply:?}");
        let dump = rig.dump();
        assert!(!dump.contains("s3cret") && !dump.contains("t1 "), "{dump}");
        assert!(!dump.contains("ZXJwJTIwY2xpZW50OnMzY3JldCUyNm1vcmU"), "{dump}");
    }
}

#[test]
fn those_who_wait_for_a_token_that_is_refused_take_the_same_answer() {
    let (rig, receiver) = wide();
    let endpoint = Endpoint::new();
    set(&rig, &endpoint.client(&json!({})));
    endpoint.0.always(Reply::Hang);
    rig.publish_types(&["a"; 4]);
    let is_sent =
        |n: i32| !rig.get(&format!("/v1/deliveries/dlv_{n}"))["in_flight_since"].is_null();
    until("all wait", || endpoint.0.count() == 1 && (2..=5).all(is_sent));
    endpoint.0.release_with(503);
    rig.settle();
    assert_eq!((attempts(&rig).len(), receiver.count()), (5, 1));
    // One that comes to the lock after that asks for itself.
    assert!(endpoint.0.count() < 4, "{}", endpoint.0.count());
}

#[test]
fn a_token_endpoint_at_an_address_that_is_not_allowed_is_not_asked() {
    let (mut rig, receiver) = site();
    let endpoint = Endpoint::new();
    set(&rig, &endpoint.client(&json!({})));
    rig.restart_with(|settings| settings.delivery.allow.clear());
    rig.deliver("a");
    let attempt = attempts(&rig).remove(0);
    assert!(attempt.starts_with("transient - the token endpoint at 127.0.0.1"), "{attempt}");
    assert_eq!((endpoint.0.count(), receiver.count()), (0, 0));
}
