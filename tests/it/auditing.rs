//! Every change leaves one row in the chain; what is refused leaves few.

use oncebox::api::routes;

use crate::rig::prelude::*;

const SECRET: &str = "whsec_0123456789abcdef0123456789";
const PROVIDER: &str = r#"{"name":"p","scheme":{"kind":"stripe"},"pii":"allow",
    "secret":"whsec_0123456789abcdef0123456789"}"#;
const SECOND_SECRET: &str = r#"{"secret":"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}"#;
const BEARER: &str = r#"{"kind":"bearer","secret":"whsec_0123456789abcdef0123456789"}"#;
const CHANNEL: &str = r#"{"name":"ops","kind":"slack","url":"@"}"#;
const SOURCE: &str = r#"{"name":"f","kind":"sqlite","settings":{"path":"@"}}"#;
const ALL: &str = r#"{"filter":{}}"#;
const WHY: &str = r#"{"reason":"a test"}"#;

/// What there has to be. Tells what `@` stands for in the path and in the body.
type Before = fn(&Rig, &Receiver) -> String;

/// How each route that changes something is called, once, so that it does: action, what is there before, path, body.
const CASES: &[(&str, Before, &str, &str)] = &[
    ("provider.create", nothing, "/v1/providers", PROVIDER),
    ("provider.change", provider, "/v1/providers/p", r#"{"tolerance_secs":60,"secret":"@"}"#),
    ("provider.delete", provider, "/v1/providers/p", ""),
    ("provider.secret.add", provider, "/v1/providers/p/secrets", SECOND_SECRET),
    ("provider.secret.withdraw", second_secret, "/v1/providers/p/secrets/@", ""),
    ("reconciliation.start", with_list, "/v1/providers/p/reconciliations", "{}"),
    ("subscription.secret.replace", signing, "/v1/subscriptions/s/secrets", SECOND_SECRET),
    ("credential.set", signing, "/v1/subscriptions/s/credentials", BEARER),
    ("credential.revoke", bearer, "/v1/credentials/@/revoke", ""),
    ("credential.rotate", signing, "/v1/credentials/@/rotate", "{}"),
    ("credential.rotate_named", signing, "/integrations/credentials/rotate", NAMED),
    ("credential.reveal", next_signing, "/v1/credentials/@/reveal", ""),
    ("credential.schedule", signing, "/v1/credentials/@/schedule", "{}"),
    ("subscription.create", url, "/v1/subscriptions", r#"{"name":"s","url":"@"}"#),
    ("subscription.change", signing, "/v1/subscriptions/s", r#"{"owner_id":"x"}"#),
    ("subscription.delete", signing, "/v1/subscriptions/s", ""),
    ("subscription.test", signing, "/v1/subscriptions/s/test", ""),
    (
        "subscription.compare",
        signing,
        "/v1/subscriptions/s/comparison",
        r#"{"since":"2026-01-01T00:00:00Z","ids":[]}"#,
    ),
    ("subscription.pause", signing, "/v1/subscriptions/s/pause", ""),
    ("subscription.resume", signing, "/v1/subscriptions/s/resume", ""),
    ("subscription.recover", dead, "/v1/subscriptions/s/recover", SINCE),
    ("delivery.retry", dead, "/v1/deliveries/dlv_1/retry", ""),
    ("delivery.cancel", dead, "/v1/deliveries/dlv_1/cancel", ""),
    ("delivery.confirm", unconfirmed, "/v1/deliveries/dlv_1/confirm", r#"{"result":"ok"}"#),
    ("delivery.release", in_doubt, "/v1/deliveries/dlv_1/release", ""),
    ("delivery.skip", in_doubt, "/v1/deliveries/dlv_1/skip", ""),
    ("delivery.park", in_lane, "/v1/deliveries/dlv_1/park", ""),
    ("delivery.move_to_end", in_lane, "/v1/deliveries/dlv_1/move-to-end", WHY),
    ("delivery.edit_and_resend", in_lane, "/v1/deliveries/dlv_1/edit-and-resend", PAYLOAD),
    ("delivery.release_many", in_doubt, "/v1/deliveries/release", ALL),
    ("delivery.skip_many", in_doubt, "/v1/deliveries/skip", ALL),
    ("subject.erase", subject, "/v1/subjects/erase", r#"{"subject":"Jane"}"#),
    ("master_key.rotate", nothing, "/v1/keys/rotate", ""),
    ("event.fix", quarantined, "/v1/events/@/fix", r#"{"target":null}"#),
    ("event.discard", quarantined, "/v1/events/@/discard", WHY),
    ("event.replay", dead, "/v1/events/@/replay", "{}"),
    ("event.cancel", waiting, "/v1/events/@/cancel", ""),
    ("webhook_event.replay", skipped_webhook, "/v1/webhook-events/@/replay", "{}"),
    (
        "external_call.end",
        unanswered,
        "/v1/external-calls/dlv_3/end",
        r#"{"made":true,"reason":"seen"}"#,
    ),
    ("in_doubt.end", nothing, "/v1/in-doubt/end", ""),
    ("job.replay_dead_letters", dead, "/v1/dead-letters/replay", ALL),
    ("job.discard_dead_letters", dead, "/v1/dead-letters/discard", ALL_AND_WHY),
    ("job.replay_events", dead, "/v1/events/replay", ALL),
    ("job.replay_webhook_events", nothing, "/v1/webhook-events/replay", ALL),
    ("job.cancel", slow_job, "/v1/jobs/@/cancel", ""),
    ("job.pause", slow_job, "/v1/jobs/@/pause", ""),
    ("job.resume", paused_job, "/v1/jobs/@/resume", ""),
    ("token.create", nothing, "/v1/tokens", r#"{"name":"t","role":"read"}"#),
    ("token.revoke", token, "/v1/tokens/@", ""),
    ("event_type.set", nothing, "/v1/event-types/a", r#"{"schema":{"type":"object"}}"#),
    ("event_type.delete", event_type, "/v1/event-types/a", ""),
    ("backup.make", nothing, "/v1/backups", ""),
    ("backup.verify", backup, "/v1/backups/@/verify", ""),
    ("backup.download", backup, "/v1/backups/@", ""),
    ("archive.run", nothing, "/v1/archive/runs", r#"{"older_than":"60days"}"#),
    ("job.expunge_events", nothing, "/v1/events/expunge", r#"{"filter":{},"reason":"Old"}"#),
    (
        "job.expunge_webhook_events",
        nothing,
        "/v1/webhook-events/expunge",
        r#"{"filter":{},"reason":"Old"}"#,
    ),
    ("archive.delete", month, "/v1/archive/2026-01", ""),
    ("legal_hold.create", nothing, "/v1/legal-holds", r#"{"name":"audit","reason":"Tax audit"}"#),
    ("clock.confirm", suspect_clock, "/v1/clock/confirm", ""),
    ("legal_hold.delete", legal_hold, "/v1/legal-holds/audit", ""),
    ("tenant.create", nothing, "/v1/tenants", r#"{"name":"acme","pii":"allow"}"#),
    ("tenant.change", tenant, "/v1/tenants/acme", r#"{"title":"Acme Ltd"}"#),
    ("tenant.suspend", tenant, "/v1/tenants/acme/suspend", ""),
    ("tenant.resume", suspended, "/v1/tenants/acme/resume", ""),
    ("user.create", nothing, "/v1/users", r#"{"name":"anna","role":"read"}"#),
    ("user.change", user, "/v1/users/anna", r#"{"role":"admin"}"#),
    ("user.delete", user, "/v1/users/anna", ""),
    ("user.link", user, "/v1/users/anna/link", ""),
    ("session.end", session, "/v1/sessions/@", ""),
    ("source.create", erp_file, "/v1/sources", SOURCE),
    ("source.change", source, "/v1/sources/f", r#"{"silent_after_ms":60000}"#),
    ("source.delete", source, "/v1/sources/f", ""),
    ("source.pause", source, "/v1/sources/f/pause", ""),
    ("source.resume", source, "/v1/sources/f/resume", ""),
    (
        "source.reopen",
        database_source,
        "/v1/sources/f/reopen",
        r#"{"since":"2026-01-01T00:00:00Z"}"#,
    ),
    ("source.release", database_source, "/v1/sources/f/release", r#"{"box":"north"}"#),
    ("credential.set_for_source", list_source, "/v1/sources/f/credentials", BEARER),
    ("source.reset", source, "/v1/sources/f/reset", r#"{"from":"now"}"#),
    ("escalation.acknowledge", escalation, "/v1/escalations/@/acknowledge", ""),
    ("alert_channel.create", url, "/v1/alert-channels", CHANNEL),
    ("alert_channel.change", channel, "/v1/alert-channels/ops", r#"{"severity":"critical"}"#),
    ("alert_channel.delete", channel, "/v1/alert-channels/ops", ""),
    ("alert_channel.test", channel, "/v1/alert-channels/ops/test", ""),
];
const NAMED: &str = r#"{"credential_id":"@","reason":"a test"}"#;
const SINCE: &str = r#"{"since":"2026-01-31T00:00:00Z"}"#;
const PAYLOAD: &str = r#"{"payload":2}"#;
const ALL_AND_WHY: &str = r#"{"filter":{},"reason":"a test"}"#;

fn nothing(_: &Rig, _: &Receiver) -> String {
    String::new()
}

fn url(_: &Rig, receiver: &Receiver) -> String {
    receiver.url()
}

/// Makes something; the id that it is given, if it has one.
#[track_caller]
fn made(rig: &Rig, path: &str, body: &str) -> String {
    let made = rig.call("POST", path, body.as_bytes());
    assert!((200..300).contains(&made.status), "{path}: {made:?}");
    made.json()["id"].as_str().unwrap_or_default().to_owned()
}

fn provider(rig: &Rig, _: &Receiver) -> String {
    made(rig, "/v1/providers", PROVIDER);
    SECRET.to_owned()
}

/// A provider with a source that reads its list.
fn with_list(rig: &Rig, receiver: &Receiver) -> String {
    provider(rig, receiver);
    let terms =
        json!({ "url": receiver.url(), "provider": "p", "item_id": ["/id"], "time": "/at" });
    rig.source("list", "http", &terms);
    String::new()
}

fn second_secret(rig: &Rig, receiver: &Receiver) -> String {
    provider(rig, receiver);
    made(rig, "/v1/providers/p/secrets", SECOND_SECRET);
    text(&rig.items("/v1/providers/p/secrets")[1], "id")
}

/// A subscription; the id of the credential that signs its requests.
fn signing(rig: &Rig, receiver: &Receiver) -> String {
    rig.subscribe("s", receiver);
    rig.one("SELECT id FROM credentials")
}

/// A signing secret that is next.
fn next_signing(rig: &Rig, receiver: &Receiver) -> String {
    let old = signing(rig, receiver);
    made(rig, &format!("/v1/credentials/{old}/rotate"), "{}")
}

fn bearer(rig: &Rig, receiver: &Receiver) -> String {
    signing(rig, receiver);
    made(rig, "/v1/subscriptions/s/credentials", BEARER)
}

fn user(rig: &Rig, _: &Receiver) -> String {
    rig.user("anna", "read");
    String::new()
}

fn session(rig: &Rig, receiver: &Receiver) -> String {
    user(rig, receiver);
    drop(rig.log_in_by_link("anna"));
    rig.id("/v1/sessions")
}

/// A month of the archive.
fn month(rig: &Rig, _: &Receiver) -> String {
    rig.publish_type("a");
    rig.advance(secs(40 * 24 * 3600));
    made(rig, "/v1/archive/runs", r#"{"older_than":"30days"}"#);
    until("it is moved", || {
        let archive = rig.get("/v1/archive");
        archive["run"]["since"].is_null() && archive["items"][0]["month"] == "2026-01"
    });
    // So are the audit events of January, which are counted later.
    rig.becomes("SELECT count(*) FROM audit_events WHERE at < 1769904000000", "0");
    String::new()
}

fn suspect_clock(rig: &Rig, _: &Receiver) -> String {
    rig.time.set_synchronised(false);
    rig.time.set_wall(rig.now().plus(secs(3600)));
    until("the clock is suspect", || rig.get("/v1/clock")["doubt"] == "set");
    String::new()
}

fn legal_hold(rig: &Rig, _: &Receiver) -> String {
    made(rig, "/v1/legal-holds", r#"{"name":"audit","reason":"Tax audit"}"#);
    String::new()
}

fn token(rig: &Rig, _: &Receiver) -> String {
    made(rig, "/v1/tokens", r#"{"name":"t","role":"read"}"#)
}

fn event_type(rig: &Rig, _: &Receiver) -> String {
    rig.call("PUT", "/v1/event-types/a", br#"{"schema":true}"#).is(201);
    String::new()
}

fn tenant(rig: &Rig, _: &Receiver) -> String {
    made(rig, "/v1/tenants", r#"{"name":"acme","pii":"allow"}"#)
}

fn suspended(rig: &Rig, receiver: &Receiver) -> String {
    tenant(rig, receiver);
    made(rig, "/v1/tenants/acme/suspend", "")
}

fn channel(rig: &Rig, receiver: &Receiver) -> String {
    made(rig, "/v1/alert-channels", &CHANNEL.replace('@', &receiver.url()))
}

/// A file of an ERP with an empty outbox.
fn erp_file(rig: &Rig, _: &Receiver) -> String {
    let path = rig.home().join("erp.db");
    file::new_outbox(&path).run("PRAGMA journal_mode = WAL");
    path.to_str().unwrap().to_owned()
}

fn source(rig: &Rig, receiver: &Receiver) -> String {
    made(rig, "/v1/sources", &SOURCE.replace('@', &erp_file(rig, receiver)))
}

/// A source whose database is not in the settings, as a person may have left it.
fn database_source(rig: &Rig, receiver: &Receiver) -> String {
    let id = source(rig, receiver);
    rig.write(
        r#"UPDATE sources SET kind = 'database', settings = '{"database":"erp","mode":"claim"}'"#,
    );
    id
}

/// A source that reads a list.
fn list_source(rig: &Rig, _: &Receiver) -> String {
    let settings = json!({ "url": "http://127.0.0.1:8009/list", "item_id": ["/id"] });
    text(&rig.source("f", "http", &settings), "id")
}

fn escalation(rig: &Rig, receiver: &Receiver) -> String {
    source(rig, receiver);
    let conn = Connection::open(erp_file(rig, receiver)).unwrap();
    conn.run("DROP TABLE outbox");
    rig.becomes("SELECT count(*) FROM escalations", "1");
    rig.id("/v1/escalations")
}

fn unconfirmed(rig: &Rig, receiver: &Receiver) -> String {
    let policy = json!({ "confirm_within": "1h", "classes": { "422": "success" } });
    rig.subscribe_with("erp", receiver, &json!({ "policy": policy }));
    rig.deliver("a");
    String::new()
}

fn subject(rig: &Rig, _: &Receiver) -> String {
    let rules = json!([{ "path": "$.name", "action": "seal" }]);
    let policy = json!({ "pii": { "rules": rules, "subject": "$.name" } });
    rig.patch("/v1/tenants/default", &policy).is(200);
    rig.publish_id("a", &json!({ "payload": { "name": "Jane" } }))
}

fn quarantined(rig: &Rig, _: &Receiver) -> String {
    rig.publish_id("a", &json!({ "target": "nobody" }))
}

/// A delivery that has failed for good; its event.
fn dead(rig: &Rig, receiver: &Receiver) -> String {
    rig.subscribe("s", receiver);
    let event = text(&rig.publish_type("a"), "id");
    rig.becomes("SELECT count(*) FROM deliveries WHERE state = 'dead_letter'", "1");
    event
}

/// A call without an answer, after two that are refused; its delivery was cancelled.
fn unanswered(rig: &Rig, receiver: &Receiver) -> String {
    receiver.always(Reply::CutRead);
    rig.subscribe_with("erp", receiver, &json!({ "order": { "external_calls": "event" } }));
    (0..3).for_each(|_| rig.deliver("a"));
    rig.call("POST", "/v1/deliveries/dlv_3/cancel", b"").is(200);
    String::new()
}

/// An event whose subscription is paused.
fn waiting(rig: &Rig, receiver: &Receiver) -> String {
    rig.subscribe("s", receiver);
    rig.call("POST", "/v1/subscriptions/s/pause", b"").is(200);
    text(&rig.publish_type("a"), "id")
}

fn in_lane(rig: &Rig, receiver: &Receiver) -> String {
    rig.subscribe_with("s", receiver, &json!({ "ordering": "strict" }));
    rig.call("POST", "/v1/subscriptions/s/pause", b"").is(200);
    text(&rig.publish_type("a"), "id")
}

/// As a restore leaves it.
fn in_doubt(rig: &Rig, receiver: &Receiver) -> String {
    let event = waiting(rig, receiver);
    rig.write("UPDATE deliveries SET state = 'in_doubt', due_at = NULL");
    event
}

fn skipped_webhook(rig: &Rig, receiver: &Receiver) -> String {
    let id = crate::it::bulk::skipped_webhook(rig);
    rig.subscribe_with("s", receiver, &json!({ "source": "provider:p" }));
    id
}

/// A job that does one a second while the clock stands still.
fn slow_job(rig: &Rig, receiver: &Receiver) -> String {
    dead(rig, receiver);
    rig.publish_type("a");
    rig.becomes("SELECT count(*) FROM deliveries WHERE state = 'dead_letter'", "2");
    made(rig, "/v1/dead-letters/replay", r#"{"filter":{},"rate":1}"#)
}

fn paused_job(rig: &Rig, receiver: &Receiver) -> String {
    let job = slow_job(rig, receiver);
    made(rig, &format!("/v1/jobs/{job}/pause"), "")
}

fn backup(rig: &Rig, _: &Receiver) -> String {
    let made = rig.post("/v1/backups", &json!({})).is(201).json();
    made["path"].as_str().unwrap().rsplit('/').next().unwrap().to_owned()
}

fn rows(rig: &Rig) -> u64 {
    // Holds and escalations that follow from an attempt are Oncebox's own doing.
    let others = "SELECT count(*) FROM audit_events
                   WHERE action NOT IN ('subscription.hold', 'escalation.raise')";
    rig.one(others).parse().unwrap()
}

#[test]
fn one_call_of_every_route_that_changes_something_makes_one_row() {
    let mut cases: BTreeMap<_, _> = CASES.iter().map(|case| (case.0, case)).collect();
    assert_eq!(cases.len(), CASES.len());
    // No token has a password or a session; tests/it/users.rs does it as the user. tests/databases tests a database.
    for route in routes().filter(|route| route.is_audited()) {
        let action = route.action().unwrap();
        if ["user.password", "session.end_own", "database.test"].contains(&action) {
            continue;
        }
        let case = cases.remove(action).unwrap_or_else(|| panic!("{action} has no case here"));
        let rig = Rig::new();
        let receiver = Receiver::scripted([Reply::status(422), Reply::status(422)]);
        let id = case.1(&rig, &receiver);
        let (path, body) = (case.2.replace('@', &id), case.3.replace('@', &id));
        let before = rows(&rig);
        let send = |body: &str| {
            let bearer = format!("Bearer {}", rig.token);
            let fields = [("Authorization", bearer.as_str()), ("Idempotency-Key", action)];
            rig.send(route.method.as_str(), &path, &fields, body.as_bytes())
        };
        let answer = send(&body);
        assert!((200..300).contains(&answer.status), "{action}: {answer:?}");
        assert_eq!(rows(&rig), before + 1, "{action}");
        let found = rig.items("/v1/audit-events?limit=9");
        let row = found.iter().find(|row| row["actor"]["type"] != "system").unwrap();
        let noun = action.split('.').next().unwrap();
        let wanted = json!({
            "action": action, "result": "SUCCESS", "status": answer.status, "path": path,
            "method": route.method.as_str(), "address": "127.0.0.1", "resource.type": noun,
            "actor.type": "token", "actor.display": "first admin token",
        });
        has(row, &wanted);
        assert!(row["resource"]["id"].is_string(), "{action}");
        // "HTTP-level request deduplication": every change is carried out once under its key.
        if route.takes_key() {
            let again = send(&body).is(answer.status);
            assert_eq!(again.field("idempotency-replayed"), Some("true"), "{action}");
            assert_eq!(again.message.body, answer.message.body, "{action}");
            assert_eq!(rows(&rig), before + 1, "{action}");
            send(&format!("{body} ")).is(422).tells("was used for another request");
        }
        let is_change = route.method.as_str() != "GET" && action != "credential.reveal";
        assert_eq!(route.takes_key(), is_change, "{action}");
    }
    assert!(cases.is_empty(), "no such route: {:?}", cases.keys());
}

#[test]
fn a_row_says_what_changed_from_where_and_within_what() {
    let (rig, _receiver) = Rig::subscribed("erp");
    let bearer = format!("Bearer {}", rig.token);
    let body = json!({ "event_types": ["invoice.*"], "owner_id": "" }).to_string();
    let fields = [
        ("Authorization", bearer.as_str()),
        ("User-Agent", "curl/8.0"),
        ("X-Correlation-Id", "ticket-17"),
    ];
    rig.send("PATCH", "/v1/subscriptions/erp", &fields, body.as_bytes()).is(200);
    let row = rig.get("/v1/audit-events?action=subscription.change")["items"][0].clone();
    has(
        &row,
        &json!({
            "changes": { "event_types": { "before": ["*"], "after": ["invoice.*"] } },
            "user_agent": "curl/8.0", "correlation_id": "ticket-17", "path": "/v1/subscriptions/erp",
        }),
    );
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let fields = [("Authorization", bearer.as_str()), ("traceparent", trace)];
    rig.send("POST", "/v1/subscriptions/erp/pause", &fields, b"").is(200);
    let row = rig.get("/v1/audit-events?action=subscription.pause")["items"][0].clone();
    assert_eq!(row["correlation_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(row["changes"]["state"], json!({ "before": "ACTIVE", "after": "PAUSED" }));
}

/// "Correlation trace: `idx_audit_correlation` (partial)"; "Audit history for a resource".
#[test]
fn audit_events_are_listed_by_correlation_and_by_aggregate() {
    let (rig, receiver) = Rig::subscribed("erp");
    receiver.always(Reply::status(400));
    let mut made = Vec::new();
    for (kind, number) in [("invoice", "4711"), ("order", "4711"), ("invoice", "4712")] {
        let aggregate = json!({ "aggregate_type": kind, "aggregate_id": number });
        let event = merged(json!({ "event_type": "a", "payload": 1 }), &aggregate);
        made.push(text(&rig.publish(&event), "id"));
    }
    rig.settle();
    let bearer = format!("Bearer {}", rig.token);
    let fields = [("Authorization", bearer.as_str()), ("X-Correlation-Id", "ticket-17")];
    for path in ["/v1/deliveries/dlv_1/cancel", "/v1/deliveries/dlv_2/cancel"] {
        rig.send("POST", path, &fields, b"").is(200);
    }
    rig.post(&format!("/v1/events/{}/replay", made[0]), &json!({})).is(200);
    let acme = rig.tenant("acme");
    for (query, actions) in [
        ("correlation_id=ticket-17", "delivery.cancel delivery.cancel"),
        ("correlation_id=ticket-17&resource=dlv_1", "delivery.cancel"),
        ("correlation_id=ticket-1", ""),
        ("aggregate_id=4711", "event.replay delivery.cancel delivery.cancel"),
        ("aggregate_type=invoice&aggregate_id=4711", "event.replay delivery.cancel"),
        ("aggregate_type=order&aggregate_id=4711&action=delivery", "delivery.cancel"),
        ("aggregate_type=invoice&aggregate_id=4711&correlation_id=ticket-17", "delivery.cancel"),
        ("aggregate_id=4712", ""),
    ] {
        let path = format!("/v1/audit-events?{query}");
        let found: Vec<String> = rig.items(&path).iter().map(|row| text(row, "action")).collect();
        assert_eq!(found.join(" "), actions, "{query}");
        assert_eq!(rig.get_as(&acme, &path)["items"], json!([]), "{query}");
    }
    rig.call("GET", "/v1/audit-events?aggregate_type=invoice", b"").is(422).tells("aggregate_id");
}

#[test]
fn no_secret_stands_in_an_audit_event() {
    const HIDDEN: &str = "hiddenhiddenhiddenhiddenhidden12";
    let (rig, receiver) = (Rig::new(), Receiver::new());
    let secret = format!("whsec_{}", BASE64.encode(HIDDEN.as_bytes()));
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
    rig.send("POST", "/v1/tokens", &[("User-Agent", &format!("curl {token}"))], b"{}").is(401);
    until("the refusals are there", || rows(&rig) == 11);
    let columns = rig.lines("SELECT * FROM audit_events").join("\n");
    let encoded = BASE64.encode(HIDDEN.as_bytes());
    let tail = |token: &str| token.strip_prefix("obx_").unwrap().to_owned();
    for hidden in [HIDDEN.to_owned(), encoded, tail(&token), tail(&rig.token)] {
        assert!(!columns.contains(&hidden), "{hidden}: {columns}");
    }
    assert!(columns.contains("X-Pass") && columns.contains("/v1/tokens/obx_…"), "{columns}");
}

#[test]
fn what_providers_and_publishers_send_is_no_audit_event() {
    let mut rig = Rig::new();
    let secret = "a-shared-secret-of-32-characters";
    rig.token_provider("p", secret);
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
fn what_is_denied_is_recorded_ten_times_a_minute_and_then_counted() {
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
    until("they are recorded", || rows(&rig) == before + 11);
    rig.advance(secs(61));
    until("their number is recorded", || rows(&rig) == before + 12);
    let denied = rig.get("/v1/audit-events?result=denied")["items"].clone();
    has(
        &denied,
        &json!({
            "0.action": "token.create", "0.changes.calls.after": 90, "0.actor.type": "anonymous",
            "1.action": "administration.read", "1.path": "/v1/audit-events", "3.actor.display": "read",
            "3.changes.problem.after": "forbidden", "3.status": 403,
        }),
    );
}

#[test]
fn what_fails_is_recorded_without_a_change() {
    let (rig, receiver) = Rig::subscribed("erp");
    rig.post("/v1/subscriptions", &json!({ "name": "erp", "url": receiver.url() })).is(409);
    rig.delete("/v1/subscriptions/nobody").is(404);
    until("they are recorded", || rows(&rig) == 4);
    let failed = rig.get("/v1/audit-events?result=failure")["items"].clone();
    assert_eq!(failed[0]["resource"], json!({ "type": "subscription", "id": "nobody" }));
    assert_eq!(failed[0]["status"], 404);
    assert_eq!(failed[1]["changes"], json!({ "problem": { "before": null, "after": "conflict" } }));
}

/// Asked by id or by name: what was done, what failed and what was denied, at once.
#[test]
fn the_whole_history_of_a_resource_is_one_query() {
    let (rig, receiver) = Rig::subscribed("erp");
    rig.subscribe("other", &receiver);
    let id = text(&rig.get("/v1/subscriptions/erp"), "id");
    let read = rig.token_of("read");
    rig.patch("/v1/subscriptions/erp", &json!({ "owner_id": "anna" })).is(200);
    for n in 0..3 {
        rig.patch("/v1/subscriptions/erp", &json!({ "method": "GET", "n": n })).is(400);
        rig.patch(&format!("/v1/subscriptions/{id}"), &json!({ "url": "nowhere" })).is(422);
        rig.call_as(&read, "POST", "/v1/subscriptions/erp/pause", b"").is(403);
    }
    rig.call_as(&read, "DELETE", "/v1/subscriptions/other", b"").is(403);
    let again = json!({ "name": "erp", "url": receiver.url() });
    rig.post("/v1/subscriptions", &again).is(409);
    rig.delete("/v1/subscriptions/erp").is(204);
    let wanted = "subscription.create SUCCESS|subscription.change SUCCESS|subscription.create FAILURE|\
                  subscription.delete SUCCESS|subscription.change FAILURE 6|subscription.pause DENIED 3";
    let history = |of: &str| {
        let rows = rig.items(&format!("/v1/audit-events?resource={of}&limit=100"));
        let mut counts: BTreeMap<String, u32> = BTreeMap::new();
        for row in rows {
            *counts
                .entry(format!("{} {}", text(&row, "action"), text(&row, "result")))
                .or_default() += 1;
        }
        counts
    };
    let count = |line: &str| {
        let parts = words(line);
        let count = parts.get(2).map_or(1, |count| count.parse().unwrap());
        (format!("{} {}", parts[0], parts[1]), count)
    };
    let wanted: BTreeMap<String, u32> = wanted.split('|').map(count).collect();
    until("all are written", || history("erp") == wanted);
    assert_eq!(history(&id), wanted);
    assert_eq!(history("nobody"), BTreeMap::new());
    // A type means all of its resources.
    assert_eq!(history("subscription").get("subscription.create SUCCESS"), Some(&2));
    assert_eq!(history("other").get("subscription.delete DENIED"), Some(&1));
}

#[test]
fn a_subscription_that_oncebox_disables_is_recorded_as_its_own_doing() {
    let (rig, _receiver) = Rig::subscribed_to("erp", Receiver::scripted([Reply::status(410)]));
    rig.publish_type("a");
    until("it is disabled", || rig.get("/v1/subscriptions/erp")["state"] == "DISABLED_DEAD");
    let row = rig.get("/v1/audit-events?actor=system&resource=subscription")["items"][0].clone();
    assert_eq!(row["action"], "subscription.disable");
    assert_eq!(row["changes"]["state"], json!({ "before": "ACTIVE", "after": "DISABLED_DEAD" }));
    assert_eq!(row["method"], Value::Null);
}

#[test]
fn the_list_is_filtered_and_paged_and_only_an_administrator_sees_it() {
    let (rig, receiver) = Rig::subscribed("one");
    rig.advance(secs(100));
    rig.subscribe("two", &receiver);
    rig.call("POST", "/v1/subscriptions/two/pause", b"").is(200);
    let id = text(&rig.get("/v1/subscriptions/two"), "id");
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
        rig.post("/v1/tokens", &json!({ "name": format!("t{n}"), "role": "read" })).is(201);
    }
    let whole = verify();
    let last = rows(&rig);
    assert_eq!(whole["ok"], true, "{whole}");
    assert_eq!((whole["rows"].clone(), whole["to_seq"].clone()), (json!(1_000), json!(last)));
    assert_eq!(whole["from_seq"], last - 999);
    let conn = rig.writable();
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
        conn.run(&format!("BEGIN; {drop}; {update}; {trigger}; COMMIT"));
    };
    // Older than the newest 1,000: only the command sees it.
    change(2, "nothing");
    assert_eq!(verify()["ok"], true);
    change(last - 5, "nothing");
    let broken = verify();
    assert_eq!(broken["ok"], false);
    shows(broken["breaks"][0].as_str().unwrap(), &[&(last - 5).to_string()]);
    change(2, "token.create");
    change(last - 5, "token.create");
    assert_eq!(verify()["ok"], true);
}
