//! Every change leaves one row in the chain; what is refused leaves few.

use std::collections::BTreeMap;

use oncebox::api::routes;
use serde_json::{Value, json};

use crate::rig::receiver::{Receiver, Reply};
use crate::rig::{Rig, file, secs, until};

const ANNA: &str = "anna";
const SECRET: &str = "whsec_0123456789abcdef0123456789";
const SECOND_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A call that has to succeed: where it goes, and with which body.
type Case = fn(&Rig, &Receiver) -> (String, Value);

/// How each route that changes something is called, once, so that it does.
fn cases() -> BTreeMap<&'static str, Case> {
    let mut cases: BTreeMap<&'static str, Case> = BTreeMap::new();
    cases.insert("provider.create", |_, _| {
        let scheme = json!({ "kind": "stripe" });
        let body = json!({ "name": "p", "scheme": scheme, "pii": "allow", "secret": SECRET });
        ("/v1/providers".to_owned(), body)
    });
    cases.insert("provider.change", |rig, _| {
        rig.provider("p", &json!({ "kind": "stripe" }), SECRET);
        ("/v1/providers/p".to_owned(), json!({ "tolerance_secs": 60, "secret": SECRET }))
    });
    cases.insert("provider.delete", |rig, _| {
        rig.provider("p", &json!({ "kind": "stripe" }), SECRET);
        ("/v1/providers/p".to_owned(), Value::Null)
    });
    cases.insert("provider.secret.add", |rig, _| {
        rig.provider("p", &json!({ "kind": "stripe" }), SECRET);
        ("/v1/providers/p/secrets".to_owned(), json!({ "secret": SECOND_SECRET }))
    });
    cases.insert("provider.secret.withdraw", |rig, _| {
        rig.provider("p", &json!({ "kind": "stripe" }), SECRET);
        let body = json!({ "secret": SECOND_SECRET });
        rig.post("/v1/providers/p/secrets", &body).is(201);
        let kept = rig.get("/v1/providers/p/secrets")["items"][1]["id"].clone();
        (format!("/v1/providers/p/secrets/{}", kept.as_str().unwrap()), Value::Null)
    });
    cases.insert("subscription.secret.replace", |rig, receiver| {
        rig.subscribe("s", receiver);
        ("/v1/subscriptions/s/secrets".to_owned(), json!({ "secret": SECOND_SECRET }))
    });
    cases.insert("credential.set", |rig, receiver| {
        rig.subscribe("s", receiver);
        let body = json!({ "kind": "bearer", "secret": SECRET });
        ("/v1/subscriptions/s/credentials".to_owned(), body)
    });
    cases.insert("credential.revoke", |rig, receiver| {
        rig.subscribe("s", receiver);
        let body = json!({ "kind": "bearer", "secret": SECRET });
        let made = rig.post("/v1/subscriptions/s/credentials", &body).is(201).json();
        (format!("/v1/credentials/{}/revoke", made["id"].as_str().unwrap()), Value::Null)
    });
    cases.insert("subscription.create", |_, receiver| {
        ("/v1/subscriptions".to_owned(), json!({ "name": "s", "url": receiver.url() }))
    });
    cases.insert("subscription.change", |rig, receiver| {
        rig.subscribe("s", receiver);
        ("/v1/subscriptions/s".to_owned(), json!({ "owner_id": "x" }))
    });
    cases.insert("subscription.delete", |rig, receiver| {
        rig.subscribe("s", receiver);
        ("/v1/subscriptions/s".to_owned(), Value::Null)
    });
    cases.insert("subscription.test", |rig, receiver| {
        rig.subscribe("s", receiver);
        ("/v1/subscriptions/s/test".to_owned(), Value::Null)
    });
    cases.insert("subscription.pause", |rig, receiver| {
        rig.subscribe("s", receiver);
        ("/v1/subscriptions/s/pause".to_owned(), Value::Null)
    });
    cases.insert("subscription.resume", |rig, receiver| {
        rig.subscribe("s", receiver);
        ("/v1/subscriptions/s/resume".to_owned(), Value::Null)
    });
    rotates(&mut cases);
    acts_on_deliveries(&mut cases);
    acts_on_many(&mut cases);
    administers(&mut cases);
    acts_on_sources(&mut cases);
    acts_on_alert_channels(&mut cases);
    cases
}

fn acts_on_users(cases: &mut BTreeMap<&'static str, Case>) {
    cases.insert("user.create", |_, _| {
        ("/v1/users".to_owned(), json!({ "name": ANNA, "role": "read" }))
    });
    cases.insert("user.change", |rig, _| {
        rig.user(ANNA, "read");
        ("/v1/users/anna".to_owned(), json!({ "role": "admin" }))
    });
    cases.insert("user.delete", |rig, _| {
        rig.user(ANNA, "read");
        ("/v1/users/anna".to_owned(), Value::Null)
    });
    cases.insert("user.link", |rig, _| {
        rig.user(ANNA, "read");
        ("/v1/users/anna/link".to_owned(), Value::Null)
    });
    cases.insert("session.end", |rig, _| {
        rig.user(ANNA, "read");
        drop(rig.log_in_by_link(ANNA));
        let id = rig.get("/v1/sessions")["items"][0]["id"].as_str().unwrap().to_owned();
        (format!("/v1/sessions/{id}"), Value::Null)
    });
}

fn acts_on_sources(cases: &mut BTreeMap<&'static str, Case>) {
    cases.insert("source.create", |rig, _| {
        let path = erp_file(rig);
        let body = json!({ "name": "f", "kind": "sqlite", "settings": { "path": path } });
        ("/v1/sources".to_owned(), body)
    });
    cases.insert("source.change", |rig, _| {
        source(rig);
        ("/v1/sources/f".to_owned(), json!({ "silent_after_ms": 60_000 }))
    });
    cases.insert("source.delete", |rig, _| {
        source(rig);
        ("/v1/sources/f".to_owned(), Value::Null)
    });
    cases.insert("source.pause", |rig, _| {
        source(rig);
        ("/v1/sources/f/pause".to_owned(), Value::Null)
    });
    cases.insert("source.resume", |rig, _| {
        source(rig);
        ("/v1/sources/f/resume".to_owned(), Value::Null)
    });
    cases.insert("source.reset", |rig, _| {
        source(rig);
        ("/v1/sources/f/reset".to_owned(), json!({ "from": "now" }))
    });
    cases.insert("escalation.acknowledge", |rig, _| {
        source(rig);
        let conn = rusqlite::Connection::open(erp_file(rig)).unwrap();
        conn.execute_batch("DROP TABLE outbox").unwrap();
        until("it is raised", || rig.one("SELECT count(*) FROM escalations") == "1");
        let id = rig.get("/v1/escalations")["items"][0]["id"].as_str().unwrap().to_owned();
        (format!("/v1/escalations/{id}/acknowledge"), Value::Null)
    });
}

fn rotates(cases: &mut BTreeMap<&'static str, Case>) {
    cases.insert("credential.rotate", |rig, receiver| {
        (format!("/v1/credentials/{}/rotate", signing(rig, receiver)), json!({}))
    });
    cases.insert("credential.rotate_named", |rig, receiver| {
        let body = json!({ "credential_id": signing(rig, receiver), "reason": "a test" });
        ("/integrations/credentials/rotate".to_owned(), body)
    });
    cases.insert("credential.schedule", |rig, receiver| {
        (format!("/v1/credentials/{}/schedule", signing(rig, receiver)), json!({}))
    });
}

/// The id of the credential that signs a subscription's requests.
fn signing(rig: &Rig, receiver: &Receiver) -> String {
    rig.subscribe("s", receiver);
    rig.one("SELECT id FROM credentials")
}

fn acts_on_alert_channels(cases: &mut BTreeMap<&'static str, Case>) {
    cases.insert("alert_channel.create", |_, receiver| {
        let body = json!({ "name": "ops", "kind": "slack", "url": receiver.url() });
        ("/v1/alert-channels".to_owned(), body)
    });
    cases.insert("alert_channel.change", |rig, receiver| {
        channel(rig, receiver);
        ("/v1/alert-channels/ops".to_owned(), json!({ "severity": "critical" }))
    });
    cases.insert("alert_channel.delete", |rig, receiver| {
        channel(rig, receiver);
        ("/v1/alert-channels/ops".to_owned(), Value::Null)
    });
    cases.insert("alert_channel.test", |rig, receiver| {
        channel(rig, receiver);
        ("/v1/alert-channels/ops/test".to_owned(), Value::Null)
    });
}

fn channel(rig: &Rig, receiver: &Receiver) {
    let body = json!({ "name": "ops", "kind": "slack", "url": receiver.url() });
    rig.post("/v1/alert-channels", &body).is(201);
}

/// A file of an ERP with an empty outbox.
fn erp_file(rig: &Rig) -> std::path::PathBuf {
    let path = rig.home().join("erp.db");
    let conn = rusqlite::Connection::open(&path).unwrap();
    conn.execute_batch(
        "PRAGMA journal_mode = WAL;
         CREATE TABLE IF NOT EXISTS outbox
             (id INTEGER PRIMARY KEY AUTOINCREMENT, event_type TEXT, payload TEXT)",
    )
    .unwrap();
    path
}

fn source(rig: &Rig) {
    let path = erp_file(rig);
    let body = json!({ "name": "f", "kind": "sqlite", "settings": { "path": path } });
    rig.post("/v1/sources", &body).is(201);
}

fn acts_on_deliveries(cases: &mut BTreeMap<&'static str, Case>) {
    cases.insert("delivery.retry", |rig, receiver| {
        dead_delivery(rig, receiver);
        ("/v1/deliveries/dlv_1/retry".to_owned(), Value::Null)
    });
    cases.insert("delivery.cancel", |rig, receiver| {
        dead_delivery(rig, receiver);
        ("/v1/deliveries/dlv_1/cancel".to_owned(), Value::Null)
    });
    cases.insert("delivery.confirm", |rig, receiver| {
        let classes = json!({ "422": "success" });
        let policy = json!({ "policy": { "confirm_within": "1h", "classes": classes } });
        rig.subscribe_with("erp", receiver, &policy);
        rig.publish_type("a");
        rig.settle();
        ("/v1/deliveries/dlv_1/confirm".to_owned(), json!({ "result": "ok" }))
    });
    cases.insert("subject.erase", |rig, _| {
        let policy = json!({
            "rules": [{ "path": "$.name", "action": "seal" }], "subject": "$.name",
        });
        rig.patch("/v1/tenants/default", &json!({ "pii": policy })).is(200);
        rig.publish(&json!({ "event_type": "a", "payload": { "name": "Jane" } }));
        ("/v1/subjects/erase".to_owned(), json!({ "subject": "Jane" }))
    });
    cases.insert("master_key.rotate", |_, _| ("/v1/keys/rotate".to_owned(), Value::Null));
    cases.insert("delivery.release", |rig, receiver| {
        delivery_in_doubt(rig, receiver);
        ("/v1/deliveries/dlv_1/release".to_owned(), Value::Null)
    });
    cases.insert("delivery.skip", |rig, receiver| {
        delivery_in_doubt(rig, receiver);
        ("/v1/deliveries/dlv_1/skip".to_owned(), Value::Null)
    });
    cases.insert("delivery.park", |rig, receiver| {
        delivery_in_lane(rig, receiver);
        ("/v1/deliveries/dlv_1/park".to_owned(), Value::Null)
    });
    cases.insert("delivery.move_to_end", |rig, receiver| {
        delivery_in_lane(rig, receiver);
        ("/v1/deliveries/dlv_1/move-to-end".to_owned(), json!({ "reason": "a test" }))
    });
    cases.insert("delivery.edit_and_resend", |rig, receiver| {
        delivery_in_lane(rig, receiver);
        ("/v1/deliveries/dlv_1/edit-and-resend".to_owned(), json!({ "payload": 2 }))
    });
    cases.insert("delivery.release_many", |rig, receiver| {
        delivery_in_doubt(rig, receiver);
        ("/v1/deliveries/release".to_owned(), json!({ "filter": {} }))
    });
    cases.insert("delivery.skip_many", |rig, receiver| {
        delivery_in_doubt(rig, receiver);
        ("/v1/deliveries/skip".to_owned(), json!({ "filter": {} }))
    });
    cases.insert("event.fix", |rig, receiver| {
        rig.subscribe("s", receiver);
        (format!("/v1/events/{}/fix", quarantined(rig)), json!({ "target": null }))
    });
    cases.insert("event.discard", |rig, _| {
        (format!("/v1/events/{}/discard", quarantined(rig)), json!({ "reason": "a test" }))
    });
    cases.insert("in_doubt.end", |_, _| ("/v1/in-doubt/end".to_owned(), Value::Null));
}

/// The path of a job that does one a second while the clock stands still.
fn slow_job(rig: &Rig, receiver: &Receiver) -> String {
    dead_delivery(rig, receiver);
    rig.publish_type("a");
    until("both are dead", || {
        rig.one("SELECT count(*) FROM deliveries WHERE state = 'dead_letter'") == "2"
    });
    let body = json!({ "filter": {}, "rate": 1 });
    let job = rig.post("/v1/dead-letters/replay", &body).is(201).json();
    format!("/v1/jobs/{}", job["id"].as_str().unwrap())
}

fn acts_on_many(cases: &mut BTreeMap<&'static str, Case>) {
    cases.insert("job.replay_dead_letters", |rig, receiver| {
        dead_delivery(rig, receiver);
        ("/v1/dead-letters/replay".to_owned(), json!({ "filter": {} }))
    });
    cases.insert("job.discard_dead_letters", |rig, receiver| {
        dead_delivery(rig, receiver);
        ("/v1/dead-letters/discard".to_owned(), json!({ "filter": {}, "reason": "a test" }))
    });
    cases.insert("job.replay_events", |rig, receiver| {
        dead_delivery(rig, receiver);
        ("/v1/events/replay".to_owned(), json!({ "filter": {} }))
    });
    cases.insert("job.replay_webhook_events", |_, _| {
        ("/v1/webhook-events/replay".to_owned(), json!({ "filter": {} }))
    });
    cases.insert("job.cancel", |rig, receiver| (slow_job(rig, receiver) + "/cancel", Value::Null));
    cases.insert("job.pause", |rig, receiver| (slow_job(rig, receiver) + "/pause", Value::Null));
    cases.insert("job.resume", |rig, receiver| {
        let job = slow_job(rig, receiver);
        rig.post(&(job.clone() + "/pause"), &Value::Null).is(200);
        (job + "/resume", Value::Null)
    });
    cases.insert("subscription.recover", |rig, receiver| {
        dead_delivery(rig, receiver);
        let body = json!({ "since": "2026-01-31T00:00:00Z" });
        ("/v1/subscriptions/s/recover".to_owned(), body)
    });
    cases.insert("event.replay", |rig, receiver| {
        dead_delivery(rig, receiver);
        let id = rig.one("SELECT id FROM outbox");
        (format!("/v1/events/{id}/replay"), json!({}))
    });
    cases.insert("event.cancel", |rig, receiver| {
        rig.subscribe("s", receiver);
        rig.call("POST", "/v1/subscriptions/s/pause", b"").is(200);
        let id = rig.publish_type("a")["id"].as_str().unwrap().to_owned();
        (format!("/v1/events/{id}/cancel"), Value::Null)
    });
    cases.insert("webhook_event.replay", |rig, receiver| {
        let id = crate::bulk::skipped_webhook(rig);
        rig.subscribe_with("s", receiver, &json!({ "source": "provider:p" }));
        (format!("/v1/webhook-events/{id}/replay"), json!({}))
    });
}

fn quarantined(rig: &Rig) -> String {
    let event = json!({ "event_type": "a", "payload": 1, "target": "nobody" });
    rig.publish(&event)["id"].as_str().unwrap().to_owned()
}

fn administers(cases: &mut BTreeMap<&'static str, Case>) {
    cases.insert("token.create", |_, _| {
        ("/v1/tokens".to_owned(), json!({ "name": "t", "role": "read" }))
    });
    cases.insert("token.revoke", |rig, _| {
        let made = rig.post("/v1/tokens", &json!({ "name": "t", "role": "read" })).is(201).json();
        (format!("/v1/tokens/{}", made["id"].as_str().unwrap()), Value::Null)
    });
    cases.insert("event_type.set", |_, _| {
        ("/v1/event-types/a".to_owned(), json!({ "schema": { "type": "object" } }))
    });
    cases.insert("event_type.delete", |rig, _| {
        rig.call("PUT", "/v1/event-types/a", br#"{"schema":true}"#).is(201);
        ("/v1/event-types/a".to_owned(), Value::Null)
    });
    cases.insert("backup.make", |_, _| ("/v1/backups".to_owned(), Value::Null));
    cases.insert("tenant.create", |_, _| ("/v1/tenants".to_owned(), json!({ "name": "acme" })));
    cases.insert("tenant.change", |rig, _| {
        rig.post("/v1/tenants", &json!({ "name": "acme" })).is(201);
        ("/v1/tenants/acme".to_owned(), json!({ "title": "Acme Ltd" }))
    });
    cases.insert("tenant.suspend", |rig, _| {
        rig.post("/v1/tenants", &json!({ "name": "acme" })).is(201);
        ("/v1/tenants/acme/suspend".to_owned(), Value::Null)
    });
    cases.insert("tenant.resume", |rig, _| {
        rig.post("/v1/tenants", &json!({ "name": "acme" })).is(201);
        rig.post("/v1/tenants/acme/suspend", &Value::Null).is(200);
        ("/v1/tenants/acme/resume".to_owned(), Value::Null)
    });
    acts_on_users(cases);
}

fn dead_delivery(rig: &Rig, receiver: &Receiver) {
    rig.subscribe("s", receiver);
    rig.publish_type("a");
    until("it is dead", || {
        rig.one("SELECT count(*) FROM deliveries WHERE state = 'dead_letter'") == "1"
    });
}

fn delivery_in_lane(rig: &Rig, receiver: &Receiver) {
    rig.subscribe_with("s", receiver, &json!({ "ordering": "strict" }));
    rig.call("POST", "/v1/subscriptions/s/pause", b"").is(200);
    rig.publish_type("a");
}

/// As a restore leaves it.
fn delivery_in_doubt(rig: &Rig, receiver: &Receiver) {
    rig.subscribe("s", receiver);
    rig.call("POST", "/v1/subscriptions/s/pause", b"").is(200);
    rig.publish_type("a");
    let conn = rusqlite::Connection::open(rig.data().join("oncebox.db")).unwrap();
    conn.execute("UPDATE deliveries SET state = 'in_doubt', due_at = NULL", []).unwrap();
}

fn rows(rig: &Rig) -> u64 {
    // Holds and escalations that follow from an attempt are Oncebox's own doing.
    let others = "SELECT count(*) FROM audit_events
                   WHERE action NOT IN ('subscription.hold', 'escalation.raise')";
    rig.one(others).parse().unwrap()
}

#[test]
fn one_call_of_every_route_that_changes_something_makes_one_row() {
    let mut cases = cases();
    // No token has a password or a session; tests/it/users.rs does it as the user.
    for route in routes().filter(|route| route.is_audited()) {
        let action = route.action().unwrap();
        if ["user.password", "session.end_own"].contains(&action) {
            continue;
        }
        let case = cases.remove(action).unwrap_or_else(|| panic!("{action} has no case here"));
        let rig = Rig::new();
        let receiver = Receiver::scripted([Reply::status(422), Reply::status(422)]);
        let (path, body) = case(&rig, &receiver);
        let before = rows(&rig);
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = rig.call(route.method.as_str(), &path, body.as_bytes());
        assert!((200..300).contains(&answer.status), "{action}: {answer:?}");
        assert_eq!(rows(&rig), before + 1, "{action}");
        let found = rig.get("/v1/audit-events?limit=9")["items"].clone();
        let by_a_person = |row: &&Value| row["actor"]["type"] != "system";
        let row = found.as_array().unwrap().iter().find(by_a_person).unwrap().clone();
        assert_eq!(row["action"], action);
        assert_eq!(row["result"], "SUCCESS");
        assert_eq!(row["status"], answer.status, "{action}");
        assert_eq!(row["method"], route.method.as_str());
        assert_eq!(row["path"], path.as_str());
        assert_eq!(row["actor"]["type"], "token");
        assert_eq!(row["actor"]["display"], "first admin token");
        assert_eq!(row["address"], "127.0.0.1");
        assert_eq!(row["resource"]["type"], action.split('.').next().unwrap());
        assert!(row["resource"]["id"].is_string());
    }
    assert!(cases.is_empty(), "no such route: {:?}", cases.keys());
}

#[test]
fn a_row_says_what_changed_from_where_and_within_what() {
    let rig = Rig::new();
    let receiver = Receiver::new();
    rig.subscribe("erp", &receiver);
    let bearer = format!("Bearer {}", rig.token);
    let body = json!({ "event_types": ["invoice.*"], "owner_id": "" }).to_string();
    let fields = [
        ("Authorization", bearer.as_str()),
        ("User-Agent", "curl/8.0"),
        ("X-Correlation-Id", "ticket-17"),
    ];
    rig.send("PATCH", "/v1/subscriptions/erp", &fields, body.as_bytes()).is(200);
    let row = rig.get("/v1/audit-events?action=subscription.change")["items"][0].clone();
    assert_eq!(
        row["changes"],
        json!({ "event_types": { "before": ["*"], "after": ["invoice.*"] } })
    );
    assert_eq!(row["user_agent"], "curl/8.0");
    assert_eq!(row["correlation_id"], "ticket-17");
    assert_eq!(row["path"], "/v1/subscriptions/erp");
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let fields = [("Authorization", bearer.as_str()), ("traceparent", trace)];
    rig.send("POST", "/v1/subscriptions/erp/pause", &fields, b"").is(200);
    let row = rig.get("/v1/audit-events?action=subscription.pause")["items"][0].clone();
    assert_eq!(row["correlation_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(row["changes"]["state"], json!({ "before": "ACTIVE", "after": "PAUSED" }));
}

#[test]
fn no_secret_stands_in_an_audit_event() {
    const HIDDEN: &str = "hiddenhiddenhiddenhiddenhidden12";
    let rig = Rig::new();
    let receiver = Receiver::new();
    let secret = format!("whsec_{}", data_encoding::BASE64.encode(HIDDEN.as_bytes()));
    let url = format!("{}?q={HIDDEN}", receiver.url());
    let headers = json!({ "X-Pass": HIDDEN });
    let body = json!({ "name": "erp", "url": url, "secret": secret, "headers": headers });
    rig.post("/v1/subscriptions", &body).is(201);
    rig.patch("/v1/subscriptions/erp", &json!({ "headers": {}, "url": receiver.url() })).is(200);
    for kind in ["bearer", "signing"] {
        let secret = if kind == "signing" { &secret } else { HIDDEN };
        let body = json!({ "kind": kind, "secret": secret });
        rig.post("/v1/subscriptions/erp/credentials", &body).is(201);
    }
    rig.provider("p", &json!({ "kind": "stripe" }), &format!("whsec_{HIDDEN}"));
    rig.patch("/v1/providers/p", &json!({ "secret": format!("whsec_2{HIDDEN}") })).is(200);
    let token = rig.token_of("read");
    rig.call_as(&token, "DELETE", &format!("/v1/tokens/{token}"), b"").is(403);
    rig.call("DELETE", &format!("/v1/tokens/{token}"), b"").is(404);
    let agent = format!("curl {token}");
    rig.send("POST", "/v1/tokens", &[("User-Agent", &agent)], b"{}").is(401);
    until("the refusals are there", || rows(&rig) == 11);
    let columns = file::lines(&rig.file(), "SELECT * FROM audit_events").join("\n");
    let encoded = data_encoding::BASE64.encode(HIDDEN.as_bytes());
    let tail = |token: &str| token.strip_prefix("obx_").unwrap().to_owned();
    for hidden in [HIDDEN.to_owned(), encoded, tail(&token), tail(&rig.token)] {
        assert!(!columns.contains(&hidden), "{hidden}: {columns}");
    }
    assert!(columns.contains("X-Pass") && columns.contains("/v1/tokens/obx_…"), "{columns}");
}

#[test]
fn what_providers_and_publishers_send_is_no_audit_event() {
    let mut rig = Rig::new();
    let scheme = json!({ "kind": "generic", "check": { "token": { "header": "X-Token" } } });
    let secret = "a-shared-secret-of-32-characters";
    rig.provider("p", &scheme, secret);
    let before = rows(&rig);
    rig.publish_type("a");
    rig.send("POST", "/in/p", &[("X-Token", secret)], b"hook").is(200);
    rig.send("POST", "/in/p", &[("X-Token", "wrong")], b"hook").is(401);
    rig.post("/v1/processed-events", &json!({ "consumer_group": "g", "event_id": "e" })).is(201);
    rig.get("/v1/subscriptions");
    rig.restart();
    assert_eq!(rows(&rig), before);
}

#[test]
fn what_is_denied_is_recorded_once_a_minute_with_its_number() {
    let rig = Rig::new();
    let read = rig.token_of("read");
    let before = rows(&rig);
    for _ in 0..50 {
        rig.call_as(&read, "POST", "/v1/tokens", b"{}").is(403);
        // From the eleventh on it is throttled, which is a denial as well.
        let status = rig.call_as("obx_wrong", "POST", "/v1/tokens", b"{}").status;
        assert!(matches!(status, 401 | 429), "{status}");
    }
    // A look that anybody may have is nobody's business; an administrator's is.
    rig.call_as("obx_wrong", "GET", "/v1/subscriptions", b"").is(429);
    rig.call_as(&read, "GET", "/v1/audit-events", b"").is(403);
    until("they are recorded", || rows(&rig) == before + 2);
    rig.advance(secs(61));
    until("their number is recorded", || rows(&rig) == before + 3);
    let denied = rig.get("/v1/audit-events?result=denied")["items"].clone();
    assert_eq!(denied[0]["action"], "token.create");
    assert_eq!(denied[0]["changes"]["calls"]["after"], 99);
    assert_eq!(denied[0]["actor"]["type"], "anonymous");
    assert_eq!(denied[1]["action"], "administration.read");
    assert_eq!(denied[1]["path"], "/v1/audit-events");
    assert_eq!(denied[2]["actor"]["display"], "read");
    assert_eq!(denied[2]["changes"]["problem"]["after"], "forbidden");
    assert_eq!(denied[2]["status"], 403);
}

#[test]
fn what_fails_is_recorded_without_a_change() {
    let rig = Rig::new();
    let receiver = Receiver::new();
    rig.subscribe("erp", &receiver);
    let body = json!({ "name": "erp", "url": receiver.url() });
    rig.post("/v1/subscriptions", &body).is(409);
    rig.delete("/v1/subscriptions/nobody").is(404);
    until("they are recorded", || rows(&rig) == 4);
    let failed = rig.get("/v1/audit-events?result=failure")["items"].clone();
    assert_eq!(failed[0]["resource"], json!({ "type": "subscription", "id": "nobody" }));
    assert_eq!(failed[0]["status"], 404);
    assert_eq!(failed[1]["changes"], json!({ "problem": { "before": null, "after": "conflict" } }));
}

#[test]
fn a_subscription_that_oncebox_disables_is_recorded_as_its_own_doing() {
    let rig = Rig::new();
    let receiver = Receiver::scripted([Reply::status(410)]);
    rig.subscribe("erp", &receiver);
    rig.publish_type("a");
    until("it is disabled", || rig.get("/v1/subscriptions/erp")["state"] == "DISABLED_DEAD");
    let row = rig.get("/v1/audit-events?actor=system&resource=subscription")["items"][0].clone();
    assert_eq!(row["action"], "subscription.disable");
    assert_eq!(row["changes"]["state"], json!({ "before": "ACTIVE", "after": "DISABLED_DEAD" }));
    assert_eq!(row["method"], Value::Null);
}

#[test]
fn the_list_is_filtered_and_paged_and_only_an_administrator_sees_it() {
    let rig = Rig::new();
    let receiver = Receiver::new();
    rig.subscribe("one", &receiver);
    rig.advance(secs(100));
    rig.subscribe("two", &receiver);
    rig.call("POST", "/v1/subscriptions/two/pause", b"").is(200);
    let id = rig.get("/v1/subscriptions/two")["id"].as_str().unwrap().to_owned();
    let count = |query: &str| {
        let page = rig.get(&format!("/v1/audit-events?{query}"));
        page["items"].as_array().unwrap().len()
    };
    let noon = "since=2026-01-31T12:01:00Z";
    let until_then = "until=2026-01-31T12:01:00Z";
    for (query, rows) in [
        ("", 4),
        ("action=subscription", 3),
        ("action=subscription.create", 2),
        ("action=sub", 0),
        ("resource=subscription", 3),
        (&format!("resource={id}"), 2),
        ("actor=first%20admin%20token", 3),
        ("actor=system", 1),
        ("result=SUCCESS", 4),
        ("result=DENIED", 0),
        (noon, 2),
        (until_then, 2),
    ] {
        assert_eq!(count(query), rows, "{query}");
    }
    let first = rig.get("/v1/audit-events?limit=3");
    let next = first["next"].as_str().unwrap();
    let second = rig.get(&format!("/v1/audit-events?limit=3&after={next}"));
    assert_eq!(
        (first["items"][2]["seq"].clone(), second["items"][0]["seq"].clone()),
        (2.into(), 1.into())
    );
    assert_eq!(second["items"][0]["hash"], first["items"][2]["previous_hash"]);
    for role in ["publish", "read", "operate"] {
        let token = rig.token_of(role);
        rig.call_as(&token, "GET", "/v1/audit-events", b"").is(403);
    }
    rig.call("GET", "/v1/audit-events?result=maybe", b"").is(400);
}

#[test]
fn the_newest_rows_are_verified_and_a_changed_one_is_named() {
    let rig = Rig::with(|settings| settings.tenants.tokens_max = 2_000);
    let verify = || rig.get("/v1/audit-events/verification");
    let first = verify();
    assert_eq!((first["ok"].clone(), first["from_seq"].clone()), (json!(true), json!(1)));
    for n in 0..1_010 {
        let token = json!({ "name": format!("t{n}"), "role": "read" });
        rig.post("/v1/tokens", &token).is(201);
    }
    let whole = verify();
    let last = rows(&rig);
    assert_eq!(whole["ok"], true, "{whole}");
    assert_eq!((whole["rows"].clone(), whole["to_seq"].clone()), (json!(1_000), json!(last)));
    assert_eq!(whole["from_seq"], last - 999);
    let conn = rusqlite::Connection::open(rig.data().join("oncebox.db")).unwrap();
    let change = |seq: u64, action: &str| {
        let trigger: String = conn
            .query_row(
                "SELECT sql FROM sqlite_master WHERE name = 'audit_events_are_never_changed'",
                [],
                |row| row.get(0),
            )
            .unwrap();
        let update = format!("UPDATE audit_events SET action = '{action}' WHERE seq = {seq}");
        let drop = "DROP TRIGGER audit_events_are_never_changed";
        conn.execute_batch(&format!("BEGIN; {drop}; {update}; {trigger}; COMMIT")).unwrap();
    };
    // Older than the newest 1,000: only the command sees it.
    change(2, "nothing");
    assert_eq!(verify()["ok"], true);
    change(last - 5, "nothing");
    let broken = verify();
    assert_eq!(broken["ok"], false);
    let told = broken["breaks"][0].as_str().unwrap().to_owned();
    assert!(told.contains(&(last - 5).to_string()), "{told}");
    change(2, "token.create");
    change(last - 5, "token.create");
    assert_eq!(verify()["ok"], true);
}
