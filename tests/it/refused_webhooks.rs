//! `GET /v1/refused-webhooks`: what came in and was refused, and why.

use crate::rig::prelude::*;

const SECRET: &str = "a-shared-secret-of-32-characters";

fn with_provider(more: &Value) -> Rig {
    let rig = Rig::new();
    let scheme = json!({ "kind": "generic", "check": { "token": { "header": "X-Token" } } });
    let body =
        merged(json!({ "name": "hub", "scheme": scheme, "pii": "allow", "secret": SECRET }), more);
    rig.post("/v1/providers", &body).is(201);
    rig
}

fn refused(rig: &Rig) -> Vec<Value> {
    rig.items("/v1/refused-webhooks")
}

fn send(rig: &Rig, path: &str, token: &str, body: &[u8]) -> u16 {
    rig.send("POST", path, &[("X-Token", token)], body).status
}

#[test]
fn each_reason_is_one_row_with_how_often_and_when() {
    let rig = with_provider(&json!({ "body_bytes_max": 1024 }));
    assert_eq!(refused(&rig), [] as [Value; 0]);
    assert_eq!(send(&rig, "/in/hub", SECRET, b"{}"), 200);
    for n in 0..3 {
        assert_eq!(send(&rig, "/in/hub", &format!("wrong-{n}"), b"{}"), 401);
        rig.advance(secs(10));
    }
    assert_eq!(send(&rig, "/in/hub", SECRET, &[b'x'; 2048]), 413);
    assert_eq!(send(&rig, "/in/nobody", SECRET, b"{}"), 404);
    assert_eq!(send(&rig, "/in/no-tenant/hub", SECRET, b"{}"), 404);
    let rows = refused(&rig);
    let shown: Vec<_> =
        rows.iter().map(|row| (row["status"].clone(), row["count"].clone())).collect();
    assert_eq!(shown, [(json!(404), json!(2)), (json!(413), json!(1)), (json!(401), json!(3))]);
    let reason = |row: &Value| text(row, "reason");
    assert_eq!(reason(&rows[0]), "There is no such provider.");
    has(&rows[0], &json!({ "is_known": false, "provider": "no-tenant/hub" }));
    assert!(reason(&rows[2]).contains("signature"), "{}", reason(&rows[2]));
    has(&rows[2], &json!({ "is_known": true, "provider": "hub", "address": "127.0.0.1" }));
    assert_ne!(rows[2]["first_at"], rows[2]["last_at"]);
    rig.advance(secs(3600));
    assert_eq!(send(&rig, "/in/hub", "wrong", b"{}"), 401);
    assert_eq!(refused(&rig)[0]["count"], 1);
    // Nothing of what was sent is kept: no token, no body.
    let text = rig.get("/v1/refused-webhooks").to_string();
    assert!(!text.contains("wrong-") && !text.contains(SECRET), "{text}");
}

#[test]
fn a_full_disk_and_a_policy_are_reasons_and_other_tenants_see_nothing() {
    let policy = json!({ "rules": [{ "path": "$.name", "action": "reject" }] });
    let rig = with_provider(&json!({ "pii": policy }));
    let other = rig.tenant("second");
    assert_eq!(send(&rig, "/in/hub", SECRET, br#"{"name":"Ada"}"#), 422);
    rig.disk_free(0);
    rig.advance(secs(2));
    until("the disk is full", || send(&rig, "/in/hub", SECRET, b"{}") == 507);
    let rows = refused(&rig);
    let statuses: Vec<_> = rows.iter().map(|row| row["status"].clone()).collect();
    assert_eq!(statuses, [507, 422]);
    assert!(rows[1]["reason"].as_str().unwrap().contains("name"), "{rows:?}");
    assert_eq!(rig.get_as(&other, "/v1/refused-webhooks")["items"], json!([]));
}

#[test]
fn what_was_refused_today_has_an_answer_after_a_restart() {
    let mut rig = with_provider(&json!({}));
    for _ in 0..2 {
        assert_eq!(send(&rig, "/in/hub", "wrong", b"{}"), 401);
    }
    // Upkeep stores it within a second, so a killed process has it as well.
    let stored =
        "SELECT group_concat(tenant || provider || status || '×' || count) FROM refused_webhooks";
    rig.becomes(stored, "defaulthub401×2");
    rig.advance(secs(60));
    assert_eq!(send(&rig, "/in/nobody", "wrong", b"{}"), 404);
    let before = refused(&rig);
    rig.restart();
    assert_eq!(refused(&rig), before);
    // The next one is counted in the stored row, and is the latest.
    assert_eq!(send(&rig, "/in/hub", "wrong", b"{}"), 401);
    let rows = refused(&rig);
    has(&rows[0], &json!({ "provider": "hub", "count": 3 }));
    let of = |query: &str| rig.items(&format!("/v1/refused-webhooks?{query}"));
    assert_eq!(of("provider=nobody"), rows[1..]);
    assert_eq!(of("since=2100-01-01T00:00:00Z"), [] as [Value; 0]);
    let page = rig.get("/v1/refused-webhooks?limit=1");
    assert_eq!(page["items"], json!(rows[..1]));
    assert_eq!(of(&format!("limit=1&after={}", text(&page, "next"))), rows[1..]);
}

#[test]
fn a_nearly_full_disk_keeps_refused_webhooks_in_memory() {
    let rig = with_provider(&json!({}));
    rig.disk_free(0);
    until("the disk is full", || send(&rig, "/in/hub", SECRET, b"{}") == 507);
    rig.advance(secs(5));
    assert_eq!(refused(&rig).len(), 1);
    assert_eq!(rig.one("SELECT count(*) FROM refused_webhooks"), "0");
}
