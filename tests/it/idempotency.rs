//! The header `Idempotency-Key` of changes. Published events are in `publishing.rs`, every route in `auditing.rs`.

use crate::rig::prelude::*;

const KEY: &str = "1f0c6d3e-8a51-4f7a-9b65-0a4cf5b7f9d2";
const TOKEN: &str = r#"{"name":"shop","role":"read"}"#;

fn send(rig: &Rig, path: &str, key: &str, body: &str) -> Answer {
    let bearer = format!("Bearer {}", rig.token);
    let fields = [("Authorization", bearer.as_str()), ("Idempotency-Key", key)];
    rig.send("POST", path, &fields, body.as_bytes())
}

fn make(rig: &Rig, key: &str) -> Answer {
    send(rig, "/v1/tokens", key, TOKEN)
}

fn made(rig: &Rig) -> String {
    rig.one("SELECT count(*) FROM tokens WHERE name = 'shop'")
}

/// "Insert-first-on-conflict is the concurrency gate (not check-then-insert) to prevent TOCTOU under concurrent requests
/// with the same key".
#[test]
fn twelve_parallel_requests_with_one_key_make_one_token() {
    let rig = Rig::new();
    let answers: Vec<Answer> = thread::scope(|scope| {
        let all: Vec<_> = (0..12).map(|_| scope.spawn(|| make(&rig, KEY))).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let first = answers[0].json();
    for answer in &answers {
        assert_eq!((answer.status, answer.json()), (201, first.clone()));
    }
    let replayed = answers.iter().filter(|one| one.field("idempotency-replayed").is_some()).count();
    assert_eq!((replayed, made(&rig)), (11, "1".to_owned()));
    // What the handler looks at before the transaction may have changed meanwhile.
    let subscription = r#"{"name":"erp","target":"pull"}"#;
    thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| send(&rig, "/v1/subscriptions", "another", subscription).is(201));
        }
    });
}

/// "`request_hash` guards against clients replaying the same key with a different request body (conflict returns 422)".
#[test]
fn a_key_is_for_one_request_to_one_route() {
    let rig = Rig::new();
    rig.pull("erp", &json!({}));
    make(&rig, KEY).is(201);
    send(&rig, "/v1/tokens", KEY, r#"{"name":"other","role":"read"}"#).is(422);
    send(&rig, "/v1/tokens?tenant=default", KEY, TOKEN).is(400);
    send(&rig, "/v1/subscriptions/erp/pause", KEY, TOKEN).is(422);
    rig.post_keyed(&rig.token, KEY, r#"{"event_type":"a","payload":1}"#).is(422);
    let published = "published";
    rig.post_keyed(&rig.token, published, r#"{"event_type":"a","payload":1}"#).is(201);
    make(&rig, published).is(422).tells("was used for another request");
    assert_eq!(made(&rig), "1");
    // Another tenant has keys of its own.
    rig.tenant("acme");
    let acme = rig.token_in("acme", "admin");
    let bearer = format!("Bearer {acme}");
    let fields = [("Authorization", bearer.as_str()), ("Idempotency-Key", KEY)];
    rig.send("POST", "/v1/tokens", &fields, TOKEN.as_bytes()).is(201);
    assert_eq!(made(&rig), "2");
}

#[test]
fn a_change_and_a_deletion_are_done_once_under_their_keys() {
    let rig = Rig::new();
    rig.pull("erp", &json!({}));
    let bearer = format!("Bearer {}", rig.token);
    let ask = |method: &str, path: &str, key: &str, body: &str| {
        let fields = [("Authorization", bearer.as_str()), ("Idempotency-Key", key)];
        rig.send(method, path, &fields, body.as_bytes())
    };
    let path = "/v1/subscriptions/erp";
    let first = ask("PATCH", path, "change", r#"{"event_types":["a.*"]}"#).is(200);
    // Somebody else has changed it meanwhile: the repeated request neither changes it back nor tells of that.
    ask("PATCH", path, "another", r#"{"event_types":["b.*"]}"#).is(200);
    let again = ask("PATCH", path, "change", r#"{"event_types":["a.*"]}"#).is(200);
    assert_eq!(again.field("idempotency-replayed"), Some("true"));
    assert_eq!(again.json(), first.json());
    assert_eq!(rig.get(path)["event_types"], json!(["b.*"]));
    ask("PATCH", path, "change", r#"{"event_types":["c.*"]}"#).is(422);
    ask("DELETE", path, "change", "").is(422);
    ask("DELETE", path, "delete", "").is(204);
    let again = ask("DELETE", path, "delete", "").is(204);
    assert_eq!(
        (again.field("idempotency-replayed"), &*again.message.body),
        (Some("true"), &b""[..])
    );
    ask("DELETE", path, "other", "").is(404);
    let key = "event-type";
    ask("PUT", "/v1/event-types/a", key, r#"{"schema":{}}"#);
    let again = ask("PUT", "/v1/event-types/a", key, r#"{"schema":{}}"#);
    assert_eq!(again.field("idempotency-replayed"), Some("true"));
}

#[test]
fn what_is_refused_does_not_use_up_its_key_and_a_key_is_forgotten_after_a_day() {
    let rig = Rig::new();
    send(&rig, "/v1/subscriptions/erp/pause", KEY, "").is(404);
    rig.pull("erp", &json!({}));
    send(&rig, "/v1/subscriptions/erp/pause", KEY, "").is(200);
    rig.post("/v1/subscriptions/erp/resume", &json!({})).is(200);
    let again = send(&rig, "/v1/subscriptions/erp/pause", KEY, "").is(200);
    assert_eq!(again.field("idempotency-replayed"), Some("true"));
    assert_eq!(rig.get("/v1/subscriptions/erp")["state"], "ACTIVE", "it is not paused again");
    rig.advance(secs(24 * 3600));
    send(&rig, "/v1/subscriptions/erp/pause", KEY, "").is(200);
    assert_eq!(rig.get("/v1/subscriptions/erp")["state"], "PAUSED");
    rig.advance(secs(24 * 3600));
    until("it is swept", || rig.one("SELECT count(*) FROM idempotency_keys") == "0");
}

/// A dry run changes nothing and keeps no answer.
#[test]
fn a_dry_run_is_done_again() {
    let rig = Rig::new();
    let body = r#"{"filter":{},"dry_run":true}"#;
    for _ in 0..2 {
        let answer = send(&rig, "/v1/events/replay", KEY, body).is(200);
        assert_eq!(answer.field("idempotency-replayed"), None);
    }
}

#[test]
fn an_answer_that_shows_a_secret_is_kept_sealed() {
    let mut rig = Rig::new();
    let token = text(&make(&rig, KEY).is(201).json(), "token");
    let kept = rig.one("SELECT hex(body) FROM idempotency_keys");
    let hidden = data_encoding::HEXUPPER.encode(token.as_bytes());
    assert!(!kept.contains(&hidden) && kept.len() > hidden.len(), "{kept}");
    assert_eq!(text(&make(&rig, KEY).is(201).json(), "token"), token);
    // The master key that sealed it opens it while the process knows it; then the answer is gone, not the fact.
    rig.post("/v1/keys/rotate", &Value::Null).is(200);
    assert_eq!(text(&make(&rig, KEY).is(201).json(), "token"), token);
    rig.restart();
    make(&rig, KEY).is(409).tells("was carried out before");
    assert_eq!(made(&rig), "1");
}

#[test]
fn the_answers_that_are_kept_are_bounded() {
    let mut rig = Rig::new();
    make(&rig, KEY).is(201);
    // The service counts what it keeps, and counts again at its start.
    rig.writable().run("UPDATE idempotency_keys SET change_bytes = 16777216");
    rig.restart();
    make(&rig, "another").is(503).tells("Too many answers");
    rig.post("/v1/tokens", &json!({ "name": "shop", "role": "read" })).is(201);
    rig.tenant("acme");
    let bearer = format!("Bearer {}", rig.token_in("acme", "admin"));
    rig.writable().run("UPDATE idempotency_keys SET change_bytes = 134217728");
    rig.restart();
    let of_acme = || {
        let fields = [("Authorization", bearer.as_str()), ("Idempotency-Key", KEY)];
        rig.send("POST", "/v1/tokens", &fields, TOKEN.as_bytes())
    };
    of_acme().is(503);
    rig.advance(secs(24 * 3600));
    until("it is swept", || of_acme().status == 201);
}

/// "key format aligns with the API contract: minLength: 32, pattern: ^[A-Za-z0-9_-]+$"; "key VARCHAR(255)".
#[test]
fn strict_keys_have_32_to_255_letters_digits_underscores_and_hyphens() {
    let rig = Rig::with(|settings| settings.idempotency.strict = true);
    let (short, longest) = ("k".repeat(31), "k".repeat(255));
    for key in [&short, &format!("{longest}k"), "urn:order/7+8=15?-and-so-on-and-so-on"] {
        make(&rig, key).is(400).tells("32 to 255");
        rig.post_keyed(&rig.token, key, r#"{"event_type":"a","payload":1}"#).is(400);
    }
    for key in [&"k".repeat(32), &longest, &format!("\"{}\"", "A_z-".repeat(40))] {
        make(&rig, key).is(201);
        assert_eq!(make(&rig, key).is(201).field("idempotency-replayed"), Some("true"));
    }
    let other = format!("{}a", "k".repeat(254));
    assert_eq!(make(&rig, &other).is(201).field("idempotency-replayed"), None);
    assert_eq!(made(&rig), "4");
}
