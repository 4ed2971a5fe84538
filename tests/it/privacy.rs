//! Personal data: what a policy seals is nowhere on the disk, and the receiver gets all of it.

use crate::it::delivering::expected;
use crate::it::restoring;
use crate::rig::prelude::*;

const GITHUB: &str = "a-shared-secret-of-32-characters";
/// Stands in what is sealed, and nowhere else.
const NAME: &str = "Jane Marker-Roe";
const MAIL: &str = "jane.marker@example.org";
/// Whom no detector finds.
const WHO: &str = "Marker Roe";

#[track_caller]
fn nowhere(rig: &Rig, marks: &[&str]) {
    for mark in marks {
        assert_eq!(holding(&rig.home(), mark), [""; 0], "{mark}");
    }
}

fn sealing() -> Value {
    json!({
        "rules": [
            { "path": "$.customer.name", "action": "seal" },
            { "detect": ["email"], "action": "seal" },
            { "path": "$.tracking", "action": "drop" },
        ],
        "subject": "$.customer.id",
    })
}

/// A body whose every byte counts: order, spaces, digits and escapes.
fn body(customer: &str) -> String {
    format!(
        r#"{{ "total" : 12.50, "customer":{{"id":"{customer}","name" :"{NAME}"}},"to":["{MAIL}"], "n":1e3 }}"#
    )
}

pub(crate) fn state(rig: &Rig, policy: &Value) {
    rig.patch("/v1/tenants/default", &json!({ "pii": policy })).is(200);
}

fn publish(rig: &Rig, key: &str, payload: &str) -> Answer {
    let body =
        format!(r#"{{"event_type":"order.paid","idempotency_key":"{key}","payload":{payload}}}"#);
    rig.post_keyed(&rig.token, &format!("{key:0>32}"), &body)
}

fn hook(rig: &Rig, body: &str, delivery: &str, fields: &[(&str, &str)]) -> Answer {
    let signature = http::github(GITHUB, body.as_bytes());
    let own = [
        ("X-Hub-Signature-256", signature.as_str()),
        ("X-GitHub-Delivery", delivery),
        ("X-GitHub-Event", "push"),
        ("Content-Type", "application/json"),
    ];
    // Of two fields of one name the first counts.
    rig.send("POST", "/in/github", &[fields, &own].concat(), body.as_bytes())
}

fn provider(rig: &Rig, policy: &Value) {
    let body = json!({
        "name": "github", "scheme": { "kind": "github" }, "pii": policy, "secret": GITHUB,
    });
    rig.post("/v1/providers", &body).is(201);
}

/// Whether a request is signed over exactly what it carries.
fn is_signed(secret: &str, message: &Message) -> bool {
    let field = |name: &str| message.field(name).unwrap();
    let at = field("webhook-timestamp").parse().unwrap();
    field("webhook-signature") == expected(secret, field("webhook-id"), at, &message.body)
}

#[test]
fn sealed_data_is_not_readable_on_the_disk_and_is_delivered_complete() {
    let (mut rig, receiver) = (Rig::new(), Receiver::scripted([Reply::status(500)]));
    let secret = rig.subscribe("erp", &receiver);
    state(&rig, &sealing());
    let first = publish(&rig, "o-1", &body("c-1")).is(201).json()["events"][0].clone();
    rig.sent(&receiver, 1);
    nowhere(&rig, &[NAME, MAIL]);
    assert!(!holding(&rig.home(), "obx-sealed.v.").is_empty(), "the search itself works");

    // Sent again by the schedule, from the file alone.
    rig.restart();
    rig.advance(Duration::from_secs(5));
    rig.sent(&receiver, 2);
    for sent in receiver.seen() {
        assert_eq!(String::from_utf8(sent.body.clone()).unwrap(), body("c-1"));
        assert!(is_signed(&secret, &sent));
    }

    let shown = rig.get(&format!("/v1/events/{}", first["id"].as_str().unwrap()));
    has(
        &shown,
        &json!({
            "payload.customer": { "id": "c-1", "name": "[sealed]" }, "payload.to.0": "[sealed]",
            "sealed_fields": 2,
        }),
    );
    rig.stop();
    nowhere(&rig, &[NAME, MAIL]);
    rig.start_again();
}

#[test]
fn a_repeated_event_is_recognised_by_its_content() {
    let rig = Rig::new();
    state(&rig, &sealing());
    publish(&rig, "o-1", &body("c-1")).is(201);
    let event = |payload: &str| {
        let body =
            format!(r#"{{"event_type":"order.paid","idempotency_key":"o-1","payload":{payload}}}"#);
        rig.call("POST", "/v1/events", body.as_bytes()).is(200).json()["events"][0].clone()
    };
    let again = event(&body("c-1"));
    assert_eq!((&again["already_processed"], again.get("differs")), (&json!(true), None));
    let other = event(&body("c-1").replace("Jane", "June"));
    assert_eq!(other["differs"], true, "another name under the same key");
    assert_eq!(rig.one("SELECT duplicate_count, differing_count FROM outbox"), "2 1");
    assert_eq!(rig.one("SELECT count(*) FROM subjects"), "1");
}

#[test]
fn events_of_one_subject_share_its_key_and_one_without_a_subject_has_its_own() {
    let rig = Rig::new();
    state(&rig, &sealing());
    publish(&rig, "o-1", &body("c-1")).is(201);
    publish(&rig, "o-2", &body("c-1")).is(201);
    let batch: Vec<Value> = (3..6)
        .map(|n| {
            json!({ "event_type": "a", "idempotency_key": format!("o-{n}"),
                    "payload": { "customer": { "id": "c-2", "name": NAME } } })
        })
        .collect();
    rig.post("/v1/events", &json!(batch)).is(201);
    assert_eq!(rig.one("SELECT count(*) FROM subjects"), "2");
    publish(&rig, "o-6", r#"{"customer":{"name":"Joe"}}"#).is(201);
    assert_eq!(rig.one("SELECT count(*) FROM subjects"), "3");
    publish(&rig, "o-7", r#"{"customer":{"id":"c-9"}}"#).is(201);
    assert_eq!(rig.one("SELECT count(*) FROM subjects"), "3", "nothing was sealed in that one");
}

#[test]
fn a_webhook_is_verified_unchanged_and_sealed_before_it_is_stored() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    let secret = rig.subscribe_with("erp", &receiver, &json!({ "source": "all" }));
    provider(&rig, &sealing());
    let agent = [
        ("User-Agent", "hook of jane.marker@example.org"),
        ("Content-Type", "application/json; for=jane.marker@example.org"),
    ];
    let made = hook(&rig, &body("c-1"), "d-1", &agent).is(200).json();
    rig.sent(&receiver, 1);
    nowhere(&rig, &[NAME, MAIL]);
    let sent = receiver.seen().remove(0);
    assert_eq!(String::from_utf8(sent.body.clone()).unwrap(), body("c-1"));
    assert!(is_signed(&secret, &sent));
    let again = hook(&rig, &body("c-1"), "d-1", &agent).is(200).json();
    assert_eq!(again["already_processed"], true);
    let shown = rig.get(&format!("/v1/webhook-events/{}", made["id"].as_str().unwrap()));
    assert_eq!(shown["payload"]["customer"]["name"], "[sealed]");
    assert_eq!(shown["headers"]["user-agent"], "hook of ***@example.org");
    assert_eq!(shown["content_type"], "application/json; for=***@example.org");
    assert_eq!(shown["sealed_fields"], 2);
}

#[test]
fn sealed_data_is_removed_from_a_stored_answer() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    receiver.decide(|message| Reply::Answer(500, Vec::new(), message.body.clone()));
    rig.subscribe("erp", &receiver);
    state(&rig, &sealing());
    publish(&rig, "o-1", &body("c-1")).is(201);
    rig.sent(&receiver, 1);
    nowhere(&rig, &[NAME, MAIL]);
    let attempt = rig.get("/v1/deliveries/dlv_1/attempts")["items"][0].clone();
    shows(attempt["excerpt"].as_str().unwrap(), &["\"total\" : 12.50", "[sealed]"]);
}

#[test]
fn a_rejected_event_is_answered_with_rule_and_path_and_not_stored() {
    let rig = Rig::new();
    let rejecting = json!({ "rules": [
        { "path": "$..ssn", "action": "reject" },
        { "detect": ["card"], "action": "reject" },
    ] });
    state(&rig, &rejecting);
    let refused = publish(&rig, "o-1", r#"{"a":[{"ssn":"987-65-4321"}]}"#).is(422).json();
    let detail = refused["detail"].as_str().unwrap();
    assert!(detail.contains("rule 1") && detail.contains("$.a[0].ssn"), "{detail}");
    assert!(!refused.to_string().contains("987"));
    let refused = publish(&rig, "4111111111111111", "{}").is(422).json();
    assert!(refused["detail"].as_str().unwrap().contains("idempotency_key looks like a card"));
    provider(&rig, &rejecting);
    hook(&rig, r#"{"ssn":1}"#, "d-1", &[]).is(422);
    rig.says("SELECT (SELECT count(*) FROM outbox), (SELECT count(*) FROM webhook_events)", "0 0");
    assert_eq!(rig.one("SELECT count(*) FROM idempotency_keys"), "0");
    nowhere(&rig, &["987-65-4321", "4111111111111111"]);
    rig.patch("/v1/providers/github", &json!({ "pii": "allow" })).is(200);
    hook(&rig, r#"{"ssn":1}"#, "d-1", &[]).is(200);
}

#[test]
fn text_that_only_looks_sealed_is_sent_unchanged() {
    let (rig, receiver) = Rig::subscribed("erp");
    state(&rig, &sealing());
    publish(&rig, "o-1", &body("c-1")).is(201);
    until("it is sent", || receiver.count() == 1);
    // A token of another event, put into an event that has something sealed, and into one that has not.
    let stolen = rig.one("SELECT CAST(payload AS TEXT) FROM outbox");
    let stolen = stolen.split("\"name\" :").nth(1).unwrap().split('}').next().unwrap().to_owned();
    assert!(stolen.starts_with("\"obx-sealed.v."), "{stolen}");
    for (key, payload) in [
        ("o-2", format!(r#"{{"customer":{{"id":"c-1","name":"Joe"}},"x":{stolen}}}"#)),
        ("o-3", format!(r#"{{"x":{stolen}}}"#)),
    ] {
        let sent = receiver.count();
        publish(&rig, key, &payload).is(201);
        until("it is sent", || receiver.count() == sent + 1);
        let body = receiver.seen().pop().unwrap().body;
        assert_eq!(String::from_utf8(body).unwrap(), payload);
    }
}

#[test]
fn hashes_stay_equal_through_a_rotation_of_the_master_key_and_sealed_fields_open_after_it() {
    let (mut rig, receiver) = (Rig::new(), Receiver::new());
    state(
        &rig,
        &json!({ "rules": [
        { "path": "$.mail", "action": "hash" },
        { "path": "$.name", "action": "seal" },
    ] }),
    );
    let payload = format!(r#"{{"mail":"{MAIL}","name":"{NAME}"}}"#);
    let hashed = |key: &str, rig: &Rig| {
        let made = publish(rig, key, &payload).is(201).json();
        let path = format!("/v1/events/{}", made["events"][0]["id"].as_str().unwrap());
        rig.get(&path)["payload"]["mail"].as_str().unwrap().to_owned()
    };
    rig.subscribe("erp", &receiver);
    rig.post("/v1/subscriptions/erp/pause", &Value::Null).is(200);
    let before = hashed("o-1", &rig);
    assert!(before.starts_with("hmac:"), "{before}");
    let rotated = rig.post("/v1/keys/rotate", &Value::Null).is(200).json();
    let under = "SELECT group_concat(DISTINCT master_key_id) FROM subjects";
    assert_eq!(rig.one(under), rotated["to"].as_str().unwrap());
    assert_eq!(hashed("o-2", &rig), before);
    rig.restart();
    rig.post("/v1/subscriptions/erp/resume", &Value::Null).is(200);
    until("both are sent", || receiver.count() == 2);
    for sent in receiver.seen() {
        assert!(String::from_utf8(sent.body).unwrap().contains(NAME));
    }
}

/// Whether bytes stand in a file below the data directory.
fn bytes_on_disk(rig: &Rig, needle: &[u8]) -> bool {
    ["oncebox.db", "oncebox.db-wal", "oncebox.db-shm"].iter().any(|name| {
        let bytes = fs::read(rig.data().join(name)).unwrap_or_default();
        bytes.windows(needle.len()).any(|window| window == needle)
    })
}

/// The sealed keys as the file holds them.
fn kept_keys(rig: &Rig) -> Vec<Vec<u8>> {
    let conn = rig.file();
    let mut all = conn.prepare("SELECT sealed FROM subjects ORDER BY seq").unwrap();
    all.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

pub(crate) fn named_policy() -> Value {
    json!({ "rules": [{ "path": "$.customer", "action": "seal" }], "subject": "$.customer.id" })
}

pub(crate) fn of_customer(id: &str) -> String {
    format!(r#"{{"no":1,"customer":{{"id":"{id}","name":"{NAME}"}}}}"#)
}

pub(crate) fn erase(rig: &Rig, subject: &str) -> Answer {
    rig.post("/v1/subjects/erase", &json!({ "subject": subject }))
}

#[test]
fn an_erased_subject_is_gone_and_its_deliveries_continue_without_the_data() {
    let (rig, receiver) = Rig::subscribed("erp");
    rig.post("/v1/subscriptions/erp/pause", &Value::Null).is(200);
    state(&rig, &named_policy());
    for n in 0..60 {
        publish(&rig, &format!("o-{n}"), &of_customer(&format!("cust-marker-{n}"))).is(201);
    }
    let keys = kept_keys(&rig);
    assert!(keys.len() == 60 && keys.iter().all(|key| bytes_on_disk(&rig, key)));
    erase(&rig, "cust-marker-nobody").is(404);
    for n in [7, 30, 59] {
        let erased = erase(&rig, &format!("cust-marker-{n}")).is(200).json();
        assert_eq!(erased["keys_erased"], 1);
    }
    for (n, key) in keys.iter().enumerate() {
        until("the log is emptied", || bytes_on_disk(&rig, key) != [7, 30, 59].contains(&n));
    }
    nowhere(&rig, &["cust-marker-7", NAME]);
    rig.post("/v1/legal-holds", &json!({ "name": "audit", "reason": "Tax audit" })).is(201);
    let again = erase(&rig, "cust-marker-7").is(200).json();
    assert_eq!((&again["keys_erased"], &again["legal_holds"]), (&json!(0), &json!(["audit"])));

    // What comes in afterwards has a key of its own; the old one stays dead.
    publish(&rig, "o-again", &of_customer("cust-marker-7")).is(201);
    rig.post("/v1/subscriptions/erp/resume", &Value::Null).is(200);
    rig.sent(&receiver, 61);
    let bodies = receiver.bodies();
    let without = bodies.iter().filter(|body| *body == r#"{"no":1,"customer":null}"#).count();
    assert_eq!(without, 3);
    assert!(bodies.contains(&of_customer("cust-marker-7")));
    let found =
        rig.post("/v1/subjects/find", &json!({ "subject": "cust-marker-7" })).is(200).json();
    assert_eq!(found["keys"].as_array().unwrap().len(), 2);
    assert_eq!(rig.items("/v1/subjects?erased=true").len(), 3);
    let audit = rig.get("/v1/audit-events?action=subject.erase").to_string();
    assert!(audit.contains("keys_erased") && !audit.contains("cust-marker"), "{audit}");
}

#[test]
fn while_somebody_reads_an_erasure_does_not_make_each_commit_try_to_empty_the_log() {
    let rig = Rig::new();
    state(&rig, &named_policy());
    publish(&rig, "o-1", &of_customer("cust-marker-1")).is(201);
    let keys = kept_keys(&rig);
    let reader = rig.file();
    reader.run("BEGIN");
    let _rows: i64 = reader.query_row("SELECT count(*) FROM outbox", [], |row| row.get(0)).unwrap();
    erase(&rig, "cust-marker-1").is(200);
    let tries = || rig.appliance().store().writer().done().copy_tries.get();
    let before = tries();
    for _ in 0..100 {
        rig.publish_type("a");
    }
    let made = tries() - before;
    assert!(made < 50, "100 commits made {made} tries");
    assert!(bytes_on_disk(&rig, &keys[0]), "the reader still sees the key");
    drop(reader);
    until("the destroyed key is gone", || !bytes_on_disk(&rig, &keys[0]));
}

#[test]
fn a_repeated_event_of_an_erased_subject_is_not_said_to_differ() {
    let rig = Rig::new();
    state(&rig, &named_policy());
    let event = || {
        let payload: Value = serde_json::from_str(&of_customer("c-1")).unwrap();
        json!({ "event_type": "a", "idempotency_key": "o-1", "payload": payload })
    };
    rig.post("/v1/events", &event()).is(201);
    erase(&rig, "c-1").is(200);
    let again = rig.post("/v1/events", &event()).is(200).json();
    assert_eq!(again["events"][0].get("differs"), None, "{again}");
    assert_eq!(rig.one("SELECT count(*) FROM subjects"), "1", "no key is made for a repetition");
}

#[test]
fn erased_data_stays_erased_when_an_older_backup_is_restored() {
    let (mut rig, receiver) = Rig::subscribed("erp");
    rig.post("/v1/subscriptions/erp/pause", &Value::Null).is(200);
    state(&rig, &named_policy());
    publish(&rig, "o-1", &of_customer("c-1")).is(201);
    publish(&rig, "o-2", &of_customer("c-2")).is(201);
    let keys = kept_keys(&rig);
    let backup = restoring::back_up(&rig);
    let of_backup = fs::read(&backup).unwrap();
    assert!(of_backup.windows(keys[0].len()).any(|window| window == keys[0]), "it has the key");
    nowhere(&rig, &[NAME]);
    erase(&rig, "c-1").is(200);

    let done = restoring::restore(&mut rig);
    assert_eq!(done.changes.erased, 1);
    assert!(!bytes_on_disk(&rig, &keys[0]) && bytes_on_disk(&rig, &keys[1]));
    rig.post("/v1/subscriptions/erp/resume", &Value::Null).is(200);
    rig.post("/v1/deliveries/release", &json!({ "filter": {} })).is(200);
    rig.sent(&receiver, 2);
    let mut bodies: Vec<String> =
        receiver.seen().into_iter().map(|sent| String::from_utf8(sent.body).unwrap()).collect();
    bodies.sort();
    assert_eq!(bodies, [r#"{"no":1,"customer":null}"#.to_owned(), of_customer("c-2")]);
}

#[test]
fn an_interrupted_erasure_is_completed_at_the_next_start() {
    let mut rig = Rig::new();
    state(&rig, &named_policy());
    publish(&rig, "o-1", &of_customer("c-1")).is(201);
    let key = rig.one("SELECT lower(hex(key_id)) FROM subjects");
    rig.stop();
    // As a process leaves it that dies after the list is written and before the commit.
    let backups = rig.data().join("backups");
    fs::create_dir_all(&backups).unwrap();
    fs::write(backups.join("oncebox.db.erasures"), format!("{key} {}\n", rig.now())).unwrap();
    rig.start_again();
    assert_eq!(rig.one("SELECT sealed IS NULL, erased_at IS NOT NULL FROM subjects"), "1 1");
}

#[test]
fn a_plain_sql_row_that_a_policy_matches_is_quarantined_with_a_hint_that_its_text_is_stored() {
    let rig = Rig::new();
    state(&rig, &named_policy());
    rig.insert(&of_customer("c-1"));
    rig.insert(r#"{"no":1}"#);
    rig.becomes("SELECT count(*) FROM outbox WHERE routed_at IS NOT NULL", "2");
    let found = rig.one("SELECT error_code, last_error FROM outbox WHERE status = 'quarantined'");
    assert!(found.starts_with("personal_data rule 1"), "{found}");
    assert!(found.contains("$.customer") && found.contains("as it was inserted"), "{found}");
    assert!(!found.contains(NAME), "{found}");
}

#[test]
fn every_action_but_allow_refuses_a_plain_sql_row() {
    let rig = Rig::new();
    let conn = rig.writable();
    let mut rows = 0;
    let mut insert = |rule: Value| {
        state(&rig, &json!({ "rules": [rule] }));
        let insert = "INSERT INTO outbox (event_type, payload) VALUES ('a', ?1)";
        conn.execute(insert, [body("c-1")]).unwrap();
        rows += 1;
        let routed = "SELECT count(*) FROM outbox WHERE routed_at IS NOT NULL";
        until("it is looked at", || rig.one(routed) == rows.to_string());
        // As it was inserted: by then it has been in the file.
        assert_eq!(
            rig.one("SELECT CAST(payload AS TEXT) FROM outbox ORDER BY seq DESC LIMIT 1"),
            body("c-1")
        );
        rig.one("SELECT status, error_code FROM outbox ORDER BY seq DESC LIMIT 1")
    };
    for action in ["drop", "mask", "hash", "seal", "reject"] {
        let path = json!({ "path": "$.customer.name", "action": action });
        assert_eq!(insert(path), "quarantined personal_data", "{action}");
        let found = json!({ "detect": ["email"], "action": action });
        assert_eq!(insert(found), "quarantined personal_data", "{action}");
        let elsewhere = json!({ "path": "$.nobody", "action": action });
        assert!(insert(elsewhere).starts_with("skipped"), "{action}");
    }
    assert!(insert(json!({ "path": "$.customer", "action": "allow" })).starts_with("skipped"));
    assert_eq!(rig.one("SELECT count(*) FROM subjects"), "0");
    drop(conn);
}

#[test]
fn an_erasure_while_an_attempt_is_under_way_ends_with_that_attempt() {
    let rig = Rig::new();
    let (receiver, gate) = (Receiver::new(), Arc::new(Mutex::new(())));
    let (held, passed) = (gate.lock().unwrap(), Arc::clone(&gate));
    receiver.decide(move |message| {
        drop(passed.lock().unwrap());
        Reply::Answer(500, Vec::new(), message.body.clone())
    });
    rig.subscribe("erp", &receiver);
    provider(&rig, &named_policy());
    rig.subscribe_with("hooks", &receiver, &json!({ "source": "provider:github" }));
    state(&rig, &named_policy());
    publish(&rig, "o-1", &of_customer("c-1")).is(201);
    until("it is under way", || receiver.count() == 1);
    // A webhook of the same person waits for its first attempt.
    rig.post("/v1/subscriptions/hooks/pause", &Value::Null).is(200);
    hook(&rig, &of_customer("c-1"), "d-1", &[]).is(200);
    assert_eq!(rig.one("SELECT count(*) FROM subjects"), "1", "one person, one key");
    erase(&rig, "c-1").is(200);
    // What had left cannot be called back; what is said of it is kept without the person.
    drop(held);
    rig.becomes("SELECT count(*) FROM attempts", "1");
    rig.settle();
    nowhere(&rig, &[NAME]);
    receiver.always(Reply::status(200));
    rig.post("/v1/subscriptions/hooks/resume", &Value::Null).is(200);
    rig.advance(Duration::from_mins(10));
    rig.sent(&receiver, 3);
    let bodies = receiver.bodies();
    let without = r#"{"no":1,"customer":null}"#;
    assert_eq!(bodies, [of_customer("c-1").as_str(), without, without]);

    // What comes of the same person afterwards, by either way, is sealed under one new key and arrives.
    publish(&rig, "o-2", &of_customer("c-1")).is(201);
    // Not the very bytes of the first one, which would be a repetition of it.
    let spaced = of_customer("c-1").replace(':', ": ");
    hook(&rig, &spaced, "d-2", &[]).is(200);
    rig.sent(&receiver, 5);
    let seen = receiver.seen();
    let has = |body: &str| seen[3..].iter().any(|sent| sent.body == body.as_bytes());
    assert!(has(&of_customer("c-1")) && has(&spaced));
    assert_eq!(rig.one("SELECT count(*), count(sealed) FROM subjects"), "2 1");
    // A repetition of what was erased is still known, and brings nothing back.
    hook(&rig, &of_customer("c-1"), "d-1", &[]).is(200);
    assert_eq!(receiver.count(), 5);
    nowhere(&rig, &[NAME]);
}

#[test]
fn rows_of_a_source_are_sealed_and_refused_rows_are_stored_without_content() {
    let (rig, receiver) = Rig::subscribed("erp");
    let policy = json!({
        "rules": [{ "path": "$.customer", "action": "seal" }, { "path": "$.ssn", "action": "reject" }],
        "subject": "$.customer.id",
    });
    state(&rig, &policy);
    // The ERP's own file holds what it holds; it lies where this test does not look.
    let elsewhere = tempfile::tempdir().unwrap();
    let path = elsewhere.path().join("erp.db");
    let erp = file::new_outbox(&path);
    let insert = "INSERT INTO outbox (event_type, payload) VALUES ('a', ?1)";
    erp.execute(insert, [of_customer("c-1")]).unwrap();
    erp.execute(insert, [format!(r#"{{"ssn":"{MAIL}"}}"#)]).unwrap();
    rig.source("erp", "sqlite", &json!({ "path": path }));
    until("both are read", || rig.one("SELECT count(*) FROM outbox") == "2");
    rig.sent(&receiver, 1);
    assert_eq!(String::from_utf8(receiver.seen().remove(0).body).unwrap(), of_customer("c-1"));
    let found = rig.one("SELECT last_error FROM outbox WHERE status = 'quarantined'");
    assert!(found.contains("rule 2") && found.contains("$.ssn"), "{found}");
    nowhere(&rig, &[NAME, MAIL]);
    // It cannot be let go as it is: its content has to be given.
    let id = rig.one("SELECT id FROM outbox WHERE status = 'quarantined'");
    let refused = rig.post(&format!("/v1/events/{id}/fix"), &json!({})).is(422).json();
    assert!(refused["detail"].as_str().unwrap().contains("bad_payload"), "{refused}");
    rig.post(&format!("/v1/events/{id}/fix"), &json!({ "payload": { "total": 1 } })).is(200);
    until("it is sent", || receiver.count() == 2);
    assert_eq!(receiver.seen()[1].body, br#"{"total":1}"#);
}

#[test]
fn keys_of_rows_reveal_nothing_and_are_recognised_when_a_policy_is_added_or_removed() {
    let rig = Rig::new();
    let (erp, drop) = (rig.home().join("erp.db"), rig.home().join("drop"));
    fs::create_dir(&drop).unwrap();
    let conn = file::new_outbox(&erp);
    let write = |n: u32| {
        conn.execute("INSERT INTO outbox (event_type, payload) VALUES ('a', ?1)", [n]).unwrap();
    };
    let put = |name: &str, n: u32| {
        fs::write(drop.join("x.tmp"), format!(r#"{{"event_type":"a","payload":{n}}}"#)).unwrap();
        fs::rename(drop.join("x.tmp"), drop.join(name)).unwrap();
        until("it is taken", || drop.join("done").join(name).exists());
    };
    let source = |name: &str, kind: &str, path: &Path| {
        let settings = json!({ "path": path });
        rig.post("/v1/sources", &json!({ "name": name, "kind": kind, "settings": settings }))
            .is(201);
    };
    source("erp", "sqlite", &erp);
    source("files", "drop", &drop);
    let stored = |count: u32| {
        until("they are stored", || rig.one("SELECT count(*) FROM outbox") == count.to_string());
    };
    let again = |read: u32, count: u32| {
        rig.post("/v1/sources/erp/reset", &json!({ "from": "start" })).is(200);
        until("all are read", || rig.get("/v1/sources/erp")["event_count"] == read);
        stored(count);
    };
    write(1);
    put("1.json", 1);
    stored(2);
    let keyed = || rig.one("SELECT count(*) FROM outbox WHERE idempotency_key LIKE '%hmac:%'");
    assert_eq!(keyed(), "0");
    state(
        &rig,
        &json!({ "rules": [{ "detect": ["email", "phone", "card", "iban"], "action": "mask" }] }),
    );
    write(2);
    put("2.json", 2);
    stored(4);
    assert_eq!(keyed(), "2");
    assert_eq!(rig.one("SELECT identity LIKE '%hmac:%' FROM sources WHERE name = 'erp'"), "1");
    again(4, 4);
    put("1-again.json", 1);
    put("2-again.json", 2);
    stored(4);
    state(&rig, &json!("allow"));
    write(3);
    stored(5);
    again(8, 5);
    put("1-once-more.json", 1);
    put("2-once-more.json", 2);
    stored(5);
    assert_eq!(keyed(), "2");
    assert_eq!(rig.get("/v1/sources/erp")["last_error"], Value::Null);
}

#[test]
fn events_of_one_batch_share_their_subjects_key_and_their_ids_reveal_nothing() {
    let rig = Rig::new();
    let scheme = json!({
        "kind": "generic", "check": { "token": { "header": "X-Token" } }, "items": "/rows",
        "event_id": { "pointer": "/id" },
    });
    let made = json!({
        "name": "crm", "scheme": scheme, "pii": named_policy(), "secret": GITHUB,
    });
    rig.post("/v1/providers", &made).is(201);
    let row = |n: u32| json!({ "n": n, "customer": { "id": "c-1", "name": NAME } });
    let body = json!({ "rows": (0..50).map(row).collect::<Vec<Value>>() }).to_string();
    let token = [("X-Token", GITHUB)];
    assert_eq!(rig.send("POST", "/in/crm", &token, body.as_bytes()).is(200).json()["stored"], 50);
    assert_eq!(rig.one("SELECT count(*) FROM subjects"), "1");
    let again = rig.send("POST", "/in/crm", &token, body.as_bytes()).is(200).json();
    assert_eq!((&again["stored"], &again["repeated"]), (&json!(0), &json!(50)));
    rig.says("SELECT count(*) FROM webhook_events WHERE provider_event_id LIKE 'hmac:%'", "50");
    nowhere(&rig, &[NAME]);
}

#[test]
fn a_subject_with_thousands_of_keys_is_erased_completely() {
    let rig = Rig::new();
    state(&rig, &named_policy());
    publish(&rig, "o-1", &of_customer("c-1")).is(201);
    let conn = rig.writable();
    let more = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500)
                INSERT INTO subjects (tenant, subject, key_id, sealed, master_key_id, created_at)
                SELECT tenant, subject, randomblob(16), sealed, master_key_id, created_at
                  FROM subjects, n";
    assert_eq!(conn.execute(more, []).unwrap(), 2500);
    drop(conn);
    // All of them are found, page by page, the newest first.
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let path = format!("/v1/subjects/find?limit=500{after}");
        let page = rig.post(&path, &json!({ "subject": "c-1" })).is(200).json();
        seen.extend(page["keys"].as_array().unwrap().iter().map(|key| key["key"].to_string()));
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    let newest = rig.one("SELECT lower(hex(key_id)) FROM subjects ORDER BY seq DESC LIMIT 1");
    assert_eq!((seen.len(), &seen[0]), (2501, &format!("{newest:?}")));
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 2501);
    assert_eq!(erase(&rig, "c-1").is(200).json()["keys_erased"], 2501);
    assert_eq!(rig.one("SELECT count(*) FROM subjects WHERE sealed IS NOT NULL"), "0");
    assert_eq!(erase(&rig, "c-1").is(200).json()["keys_erased"], 0);
}

#[test]
fn the_boxs_administrator_erases_in_another_tenant_by_its_name() {
    let rig = Rig::new();
    let token = rig.tenant("acme");
    for tenant in ["default", "acme"] {
        rig.patch(&format!("/v1/tenants/{tenant}"), &json!({ "pii": named_policy() })).is(200);
    }
    let payload: Value = serde_json::from_str(&of_customer("c-1")).unwrap();
    let event = json!({ "event_type": "a", "idempotency_key": "o-1", "payload": payload });
    rig.post("/v1/events", &event).is(201);
    rig.post_as(&token, "/v1/events", &event).is(201);
    let subject = json!({ "subject": "c-1" });
    assert_eq!(rig.items("/v1/subjects?tenant=acme").len(), 1);
    rig.post("/v1/subjects/find?tenant=acme", &subject).is(200);
    let erased = rig.post("/v1/subjects/erase?tenant=acme", &subject).is(200).json();
    assert_eq!(erased["keys_erased"], 1);
    let left = "SELECT group_concat(tenant) FROM subjects WHERE sealed IS NOT NULL";
    assert_eq!(rig.one(left), "default");
    rig.post("/v1/subjects/erase?tenant=nobody", &subject).is(404);
    let named = rig.call_as(
        &token,
        "POST",
        "/v1/subjects/erase?tenant=default",
        subject.to_string().as_bytes(),
    );
    named.is(404);
    assert_eq!(rig.one(left), "default");
    shows(&rig.get("/v1/audit-events?action=subject.erase").to_string(), &["\"acme\""]);
}

#[test]
fn sealed_data_is_removed_from_a_consumers_reason() {
    let rig = Rig::new();
    rig.post("/v1/subscriptions", &json!({ "name": "erp", "target": "pull" })).is(201);
    state(&rig, &sealing());
    publish(&rig, "o-1", &body("c-1")).is(201);
    let item = rig.get("/v1/consumers/erp/next?wait=5")["items"][0].clone();
    let reason = format!("exit 1: no such customer: {NAME}, {MAIL} or bob.marker@x.org");
    let word = json!({ "delivery": item["delivery"], "lease": item["lease"], "reason": reason });
    rig.post("/v1/consumers/erp/nack", &json!({ "items": [word] })).is(200);
    rig.settle();
    nowhere(&rig, &[NAME, MAIL, "bob.marker"]);
    assert!(!holding(&rig.home(), "no such customer: [sealed]").is_empty());
}

#[test]
fn a_sealed_event_keeps_its_key_in_quarantine() {
    let rig = Rig::new();
    rig.subscribe("erp", &Receiver::new());
    state(
        &rig,
        &json!({ "rules": [{ "path": "$.customer", "action": "seal" }], "subject": "$.customer.id" }),
    );
    let own = rig.writable();
    let refused = "CREATE TRIGGER stands_in_the_way BEFORE INSERT ON deliveries
                   BEGIN SELECT RAISE(ABORT, 'no'); END";
    own.run(refused);
    let elsewhere = tempfile::tempdir().unwrap();
    let path = elsewhere.path().join("erp.db");
    let erp = file::new_outbox(&path);
    let insert = "INSERT INTO outbox (event_type, payload) VALUES ('a', ?1)";
    erp.execute(insert, [of_customer("c-1")]).unwrap();
    rig.source("erp", "sqlite", &json!({ "path": path }));
    let quarantined =
        "SELECT count(*) FROM outbox WHERE status = 'quarantined' AND sealed_fields > 0";
    until("it is quarantined", || rig.one(quarantined) == "1");
    assert_eq!(rig.one("SELECT count(*) FROM subjects"), "1");
    own.run("DROP TRIGGER stands_in_the_way");
}

/// Repairs a quarantined event.
fn repair(rig: &Rig, id: &str, with: &Value) -> Answer {
    rig.post(&format!("/v1/events/{id}/fix"), with)
}

#[test]
fn a_sealed_event_for_a_later_target_is_repaired_and_delivered_complete() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    let rules = json!([
        { "path": "$.customer", "action": "seal" }, { "path": "$.iban", "action": "mask" },
        { "path": "$.no", "action": "hash" },
    ]);
    state(&rig, &json!({ "rules": rules, "subject": "$.customer.id" }));
    let payload = json!({
        "customer": { "id": "c-1", "name": NAME }, "iban": "DE89370400440532013000", "no": "4711",
    });
    let event = json!({
        "event_type": "a", "idempotency_key": "o-1", "target": "late", "payload": payload,
    });
    let made = rig.publish(&event);
    assert_eq!(made["status"], "quarantined");
    let id = made["id"].as_str().unwrap();
    repair(&rig, id, &json!({})).is(422);
    rig.subscribe("late", &receiver);
    repair(&rig, id, &json!({})).is(200);
    rig.sent(&receiver, 1);
    let sent = receiver.json(0);
    assert_eq!((&sent["customer"], &sent["iban"]), (&payload["customer"], &json!("***3000")));
    assert!(sent["no"].as_str().unwrap().starts_with("hmac:"), "{sent}");
    nowhere(&rig, &[NAME]);
}

#[test]
fn the_policy_applies_to_the_content_of_a_repair() {
    let (rig, receiver) = Rig::subscribed("erp");
    let policy = json!({
        "rules": [{ "path": "$.customer", "action": "seal" }, { "path": "$.ssn", "action": "reject" },
                  { "detect": ["email"], "action": "seal" }],
        "subject": "$.customer.id",
    });
    state(&rig, &policy);
    rig.insert(r#"{"customer":"somebody"}"#);
    rig.becomes("SELECT count(*) FROM outbox WHERE status = 'quarantined'", "1");
    let id = rig.one("SELECT id FROM outbox");
    repair(&rig, &id, &json!({})).is(422);
    repair(&rig, &id, &json!({ "payload": { "ssn": 1 } })).is(422).tells("rule 2");
    repair(&rig, &id, &json!({ "aggregate_id": MAIL, "payload": {} }))
        .is(422)
        .tells("aggregate_id looks like");
    // Large enough to be kept apart.
    let payload = json!({ "customer": { "id": "c-1", "name": NAME }, "more": "x".repeat(20_000) });
    let fixed = repair(&rig, &id, &json!({ "payload": payload })).is(200).json();
    assert_eq!((&fixed["status"], &fixed["sealed_fields"]), (&json!("pending"), &json!(1)));
    rig.sent(&receiver, 1);
    assert_eq!(receiver.json(0), payload);
    assert_eq!(rig.one("SELECT count(*) FROM payloads"), "1");
    nowhere(&rig, &[NAME, MAIL]);
}

#[test]
fn the_policy_applies_to_identifiers_of_a_repair_of_sealed_content() {
    let rig = Rig::new();
    state(&rig, &sealing());
    let event = json!({ "event_type": "a", "target": "late", "payload": { "to": MAIL } });
    let made = rig.publish(&event);
    let id = made["id"].as_str().unwrap();
    repair(&rig, id, &json!({ "target": null, "process_id": MAIL }))
        .is(422)
        .tells("process_id looks like");
    repair(&rig, id, &json!({ "target": null })).is(200);
    nowhere(&rig, &[MAIL]);
}

#[test]
fn a_repair_that_changes_the_key_of_a_sealed_event_needs_the_payload() {
    let (rig, receiver) = Rig::subscribed("erp");
    state(&rig, &sealing());
    let event = json!({
        "event_type": "a", "idempotency_key": "o-1", "target": "late", "payload": { "to": MAIL },
    });
    let made = rig.publish(&event);
    let id = made["id"].as_str().unwrap();
    for identity in [json!({ "idempotency_key": "o-2" }), json!({ "source_system": "crm" })] {
        let mut with = merged(json!({ "target": null }), &identity);
        repair(&rig, id, &with).is(422).tells("Give the payload too");
        with["payload"] = json!({ "to": MAIL, "fixed": true });
        if with["idempotency_key"] == "o-2" {
            repair(&rig, id, &with).is(200);
            break;
        }
    }
    rig.sent(&receiver, 1);
    assert_eq!(receiver.seen()[0].field("x-idempotency-key"), Some("o-2"));
    assert_eq!(receiver.json(0), json!({ "to": MAIL, "fixed": true }));
    nowhere(&rig, &[MAIL]);
}

#[test]
fn an_event_that_cannot_be_opened_is_given_up_and_never_sent_sealed() {
    let (rig, receiver) = Rig::subscribed("erp");
    rig.post("/v1/subscriptions", &json!({ "name": "asks", "target": "pull" })).is(201);
    rig.post("/v1/subscriptions/erp/pause", &Value::Null).is(200);
    state(&rig, &named_policy());
    publish(&rig, "o-1", &of_customer("c-1")).is(201);
    publish(&rig, "o-2", &of_customer("c-2")).is(201);
    // As after a key row that somebody has deleted.
    let conn = rig.writable();
    assert_eq!(conn.execute("DELETE FROM subjects WHERE seq = 1", []).unwrap(), 1);
    drop(conn);
    rig.post("/v1/subscriptions/erp/resume", &Value::Null).is(200);
    rig.sent(&receiver, 1);
    let bodies: Vec<Vec<u8>> = receiver.seen().into_iter().map(|sent| sent.body).collect();
    assert_eq!(bodies, [of_customer("c-2").into_bytes()]);
    let given = rig.get("/v1/consumers/asks/next?max=10&wait=5");
    assert_eq!(given["items"].as_array().unwrap().len(), 1, "{given}");
    rig.becomes("SELECT count(*) FROM deliveries WHERE state = 'dead_letter'", "2");
    let attempts = "SELECT DISTINCT class || ' ' || counted FROM attempts WHERE failed_reason LIKE '%cannot be opened%'";
    assert_eq!(rig.one(&format!("SELECT count(*) FROM ({attempts})")), "2");
}

#[test]
fn a_target_or_content_type_with_personal_data_is_refused() {
    let rig = Rig::new();
    state(&rig, &sealing());
    for field in ["target", "content_type"] {
        let mut event = json!({ "event_type": "a", "payload": {} });
        event[field] = format!("text/{MAIL}").into();
        if field == "target" {
            event[field] = MAIL.into();
        }
        rig.post("/v1/events", &event).is(422).tells(&format!("{field} looks like"));
    }
    assert_eq!(rig.one("SELECT count(*) FROM outbox"), "0");
    nowhere(&rig, &[MAIL]);
}

#[test]
fn under_a_policy_no_quarantine_reason_quotes_incoming_data() {
    let rig = Rig::new();
    state(&rig, &json!({ "rules": [{ "path": "$.customer", "action": "seal" }] }));
    rig.publish(&json!({ "event_type": "a", "payload": 1, "target": WHO }));
    let conn = rig.writable();
    let insert = |columns: &str, value: &str| {
        let sql = format!(
            "INSERT INTO outbox (event_type, payload, {columns}) VALUES ('a', '{{}}', {value})"
        );
        conn.execute(&sql, []).unwrap();
    };
    insert("id", &format!("'{WHO}'"));
    insert("trace_id", &format!("'{WHO}'"));
    insert("target", &format!("'{WHO}'"));
    insert("headers", &format!("'\"{WHO}\"'"));
    insert("headers", &format!("'{{\"{WHO}\":\"1\"}}'"));
    insert("process_id", &format!("CAST('{WHO}' || X'ff' AS TEXT)"));
    drop(conn);
    rig.becomes("SELECT count(*) FROM outbox WHERE status = 'quarantined'", "7");
    let reasons = rig.lines("SELECT last_error FROM outbox");
    let hex = HEXLOWER.encode(WHO.as_bytes());
    for reason in reasons {
        assert!(reason.contains("\"…\"") && !reason.contains(WHO), "{reason}");
        assert!(!reason.contains(&hex), "{reason}");
    }
}

#[test]
fn the_audit_stores_no_personal_data_of_plain_sql_rows() {
    let rig = Rig::new();
    state(&rig, &sealing());
    let conn = rig.writable();
    let insert = "INSERT INTO outbox (event_type, payload, idempotency_key, headers)
                  VALUES ('a', '{}', ?1, ?2)";
    conn.execute(insert, ["k-1", &format!(r#"{{"x-who":"{MAIL}"}}"#)]).unwrap();
    conn.execute(insert, [MAIL, "{}"]).unwrap();
    drop(conn);
    rig.becomes("SELECT count(*) FROM outbox WHERE error_code = 'personal_data'", "2");
    let id = |seq: u32| rig.one(&format!("SELECT id FROM outbox WHERE seq = {seq}"));
    repair(&rig, &id(1), &json!({ "payload": {} })).is(422).tells("headers looks like");
    repair(&rig, &id(1), &json!({ "headers": {} })).is(200);
    rig.post(&format!("/v1/events/{}/discard", id(2)), &json!({ "reason": "mistyped" })).is(200);
    rig.says("SELECT count(*) FROM audit_events WHERE changes LIKE '%jane.marker%'", "0");
    assert!(
        rig.one("SELECT changes FROM audit_events WHERE action = 'event.discard'").contains("***@")
    );
}

#[test]
fn a_discarded_row_keeps_nothing_of_what_the_policy_caught() {
    // 000: "payload column: PII categorically prohibited."
    let rig = Rig::new();
    state(&rig, &sealing());
    let conn = rig.writable();
    let insert = "INSERT INTO outbox (event_type, payload, aggregate_id, idempotency_key, headers)
                  VALUES ('a', ?1, ?2, ?3, ?4)";
    let large = json!({ "text": "x".repeat(40_000), "by": MAIL }).to_string();
    let header = format!(r#"{{"x-who":"{MAIL}"}}"#);
    conn.execute(insert, [large.as_str(), MAIL, MAIL, &header]).unwrap();
    // This one has no personal data, and cannot be used.
    conn.execute(insert, [&format!("no JSON, of {MAIL}"), "1", "2", "{}"]).unwrap();
    drop(conn);
    rig.becomes("SELECT count(*) FROM outbox WHERE status = 'quarantined'", "2");
    for seq in [1, 2] {
        let id = rig.one(&format!("SELECT id FROM outbox WHERE seq = {seq}"));
        let path = format!("/v1/events/{id}/discard");
        rig.post(&path, &json!({ "reason": "mistyped" })).is(200);
        has(
            &rig.get(&format!("/v1/events/{id}")),
            &json!({ "status": "cancelled", "event_type": "a" }),
        );
    }
    assert!(!rig.dump().contains("jane.marker"));
    until("the log is emptied", || !bytes_on_disk(&rig, b"jane.marker"));
    assert_eq!(rig.one("SELECT count(*) FROM payloads"), "0");
    // Without a policy the content stays, as does that of what has passed one.
    rig.patch("/v1/tenants/default", &json!({ "pii": "allow" })).is(200);
    rig.insert("no JSON");
    rig.becomes("SELECT count(*) FROM outbox WHERE status = 'quarantined'", "1");
    let id = rig.one("SELECT id FROM outbox WHERE status = 'quarantined'");
    rig.post(&format!("/v1/events/{id}/discard"), &json!({ "reason": "mistyped" })).is(200);
    assert_eq!(rig.get(&format!("/v1/events/{id}"))["payload_text"], "no JSON");
}

#[test]
fn until_the_default_tenant_has_a_stated_policy_a_warning_says_what_is_kept() {
    // 000: "Must not contain PII per JSONB governance policy."
    for stated in [json!("allow"), named_policy()] {
        let mut rig = Rig::new();
        let is_stated = |rig: &Rig| rig.get("/v1/stats")["pii_stated"].clone();
        assert_eq!(is_stated(&rig), false);
        // Another title states nothing. What anybody can read does not tell.
        rig.patch("/v1/tenants/default", &json!({ "title": "Ours" })).is(200);
        assert_eq!(is_stated(&rig), false);
        let public = rig.get("/readyz?verbose").to_string();
        assert!(!public.contains("personal"), "{public}");
        assert_eq!(rig.get_as(&rig.tenant("second"), "/v1/stats").get("pii_stated"), None);
        rig.patch("/v1/tenants/default", &json!({ "pii": stated })).is(200);
        assert_eq!(is_stated(&rig), true);
        rig.restart();
        assert_eq!(is_stated(&rig), true);
    }
}

#[test]
fn a_destroyed_key_is_gone_from_the_log_after_the_next_start() {
    let mut rig = Rig::new();
    state(&rig, &named_policy());
    publish(&rig, "o-1", &of_customer("c-1")).is(201);
    let key = kept_keys(&rig).remove(0);
    // A program that reads keeps the log from being emptied, until after the next start.
    let reader = rig.file();
    reader.run("BEGIN; SELECT count(*) FROM outbox");
    erase(&rig, "c-1").is(200);
    rig.restart();
    assert!(bytes_on_disk(&rig, &key), "the reader keeps it there");
    reader.run("COMMIT");
    until("the log is emptied", || !bytes_on_disk(&rig, &key));
    drop(reader);
}

#[test]
fn a_providers_policy_covers_body_header_error_text_and_answer() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    receiver.decide(|message| {
        let said = String::from_utf8_lossy(&message.body).into_owned();
        Reply::Answer(400, Vec::new(), format!("{said}, and bob.marker@x.org").into_bytes())
    });
    let _secret = rig.subscribe_with("erp", &receiver, &json!({ "source": "provider:github" }));
    let asks = json!({ "name": "asks", "target": "pull", "source": "provider:github" });
    rig.post("/v1/subscriptions", &asks).is(201);
    provider(&rig, &sealing());
    let agent = [("User-Agent", "hook of jane.marker@example.org")];
    let made = hook(&rig, &body("c-1"), "d-1", &agent).is(200).json();
    until("it is sent", || receiver.count() == 1);
    let item = rig.get("/v1/consumers/asks/next?wait=5")["items"][0].clone();
    let word = json!({
        "delivery": item["delivery"], "lease": item["lease"], "dead": true,
        "reason": format!("no {NAME}, {MAIL} or bob.marker@x.org"),
    });
    rig.post("/v1/consumers/asks/nack", &json!({ "items": [word] })).is(200);
    rig.settle();
    rig.becomes("SELECT count(*) FROM deliveries WHERE state = 'dead_letter'", "2");
    nowhere(&rig, &[NAME, MAIL, "bob.marker"]);
    // All four are kept, without what they must not say.
    let shown = rig.get(&format!("/v1/webhook-events/{}", made["id"].as_str().unwrap()));
    assert_eq!(shown["payload"]["customer"]["name"], "[sealed]");
    assert_eq!(shown["headers"]["user-agent"], "hook of ***@example.org");
    let kept =
        "SELECT group_concat(coalesce(excerpt, '') || coalesce(failed_reason, '')) FROM attempts";
    let kept = rig.one(kept);
    assert!(kept.contains("no [sealed], [sealed] or ***@x.org"), "{kept}");
    assert!(
        kept.contains("\"name\" :[sealed]") || kept.contains("\"name\" :\"[sealed]\""),
        "{kept}"
    );
    assert!(kept.contains(", and ***@x.org"), "{kept}");
}
