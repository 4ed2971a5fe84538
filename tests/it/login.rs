//! Who gets in: tokens, and what becomes of requests without a valid one.

use crate::rig::prelude::*;

#[test]
fn what_is_not_a_token_opens_nothing() {
    let rig = Rig::new();
    let token = &rig.token;
    for authorization in [
        "Bearer",
        "Bearer ",
        "Bearer nonsense",
        &format!("Basic {token}"),
        token,
        &format!("Bearer {token}x"),
        &format!("Bearer {}", token.to_uppercase()),
    ] {
        let answer = rig.send("GET", "/v1/stats", &[("Authorization", authorization)], b"");
        assert_eq!(answer.status, 401, "{authorization}");
    }
}

#[test]
fn a_revoked_token_opens_nothing_from_then_on() {
    let rig = Rig::new();
    let made = rig.post("/v1/tokens", &json!({ "name": "erp", "role": "read" })).is(201).json();
    let token = made["token"].as_str().unwrap();
    rig.call_as(token, "GET", "/v1/stats", b"").is(200);
    rig.delete(&format!("/v1/tokens/{}", made["id"].as_str().unwrap())).is(200);
    rig.call_as(token, "GET", "/v1/stats", b"").is(401);
}

#[test]
fn a_token_ends_at_its_time() {
    let rig = Rig::new();
    let end = rig.now().plus(secs(60));
    let body = json!({ "name": "erp", "role": "read", "expires_at": end });
    let made = rig.post("/v1/tokens", &body).is(201).json();
    let token = made["token"].as_str().unwrap();
    rig.advance(secs(59));
    rig.call_as(token, "GET", "/v1/stats", b"").is(200);
    rig.advance(secs(1));
    rig.call_as(token, "GET", "/v1/stats", b"").is(401);
    rig.post("/v1/tokens", &body).is(422);
}

#[test]
fn the_last_use_of_a_token_is_noted_to_the_minute() {
    let rig = Rig::new();
    rig.get("/v1/stats");
    rig.advance(secs(30));
    rig.get("/v1/stats");
    let last = "SELECT (last_used_at - created_at) / 1000 FROM tokens";
    until("the first use is noted", || rig.one(last) == "0");
    rig.advance(secs(30));
    rig.get("/v1/stats");
    until("the later use is noted", || rig.one(last) == "60");
}

#[test]
fn the_first_token_is_made_once() {
    let mut rig = Rig::new();
    rig.restart();
    rig.get("/v1/stats");
    assert_eq!(rig.one("SELECT count(*) FROM tokens"), "1");
}

#[test]
fn a_token_row_that_somebody_inserts_opens_nothing() {
    let rig = Rig::new();
    let conn = rig.writable();
    let hash = ring::digest::digest(&ring::digest::SHA256, b"obx_mine");
    conn.execute(
        "INSERT INTO tokens (id, name, role, hash, created_at) VALUES ('x', 'x', 'admin', ?1, 0)",
        [hash.as_ref()],
    )
    .unwrap();
    rig.call_as("obx_mine", "GET", "/v1/stats", b"").is(401);
}

/// Looks like a token, and is none.
fn guess(n: usize) -> String {
    format!("obx_{n:0>43}")
}

#[test]
fn ten_wrong_tokens_a_minute_are_401_further_ones_429_and_a_valid_one_never() {
    let rig = Rig::new();
    for n in 0..10 {
        rig.call_as(&guess(n), "GET", "/v1/stats", b"").is(401);
        rig.advance(secs(2));
    }
    let refused = rig.call_as(&guess(10), "GET", "/v1/stats", b"").is(429);
    assert_eq!(refused.json()["type"], "urn:oncebox:problem:throttled");
    // 20 of the 60 seconds are over; a second more, so that who waits so long is not early.
    assert_eq!(refused.field("retry-after"), Some("41"));
    rig.call_as("nonsense", "GET", "/v1/stats", b"").is(429);
    // A neighbour behind the same address: a token that was seen before, and one that was not.
    rig.get("/v1/stats");
    let fresh = rig.token_of("read");
    rig.call_as(&fresh, "GET", "/v1/stats", b"").is(200);
    // Who sends no token is told what is missing.
    rig.send("GET", "/v1/stats", &[], b"").is(401);
    rig.advance(secs(41));
    rig.call_as(&guess(11), "GET", "/v1/stats", b"").is(401);
}

#[test]
fn a_token_that_was_revoked_or_has_ended_counts_as_a_wrong_one() {
    let rig = Rig::new();
    let body = json!({ "name": "erp", "role": "read", "expires_at": rig.now().plus(secs(5)) });
    let made = rig.post("/v1/tokens", &body).is(201).json();
    let token = made["token"].as_str().unwrap();
    rig.call_as(token, "GET", "/v1/stats", b"").is(200);
    rig.advance(secs(5));
    for _ in 0..10 {
        rig.call_as(token, "GET", "/v1/stats", b"").is(401);
    }
    rig.call_as(token, "GET", "/v1/stats", b"").is(429);
}

#[test]
fn the_last_valid_admin_token_of_the_box_cannot_be_revoked() {
    let rig = Rig::new();
    let tokens = || rig.items("/v1/tokens");
    let first = format!("/v1/tokens/{}", tokens()[0]["id"].as_str().unwrap());
    rig.delete(&first).is(409).tells("oncebox token create");
    // Neither another role, nor another tenant, nor a token that has ended is an administrator.
    rig.token_of("operate");
    rig.tenant("acme");
    let brief = json!({ "name": "brief", "role": "admin", "expires_at": rig.now().plus(secs(60)) });
    rig.post("/v1/tokens", &brief).is(201);
    rig.advance(secs(60));
    rig.delete(&first).is(409);
    let second = rig.token_of("admin");
    rig.delete(&first).is(200);
    rig.call("GET", "/v1/stats", b"").is(401);
    rig.call_as(&second, "DELETE", &first, b"").is(409);
    // One that has ended may go.
    let ended = rig.call_as(&second, "GET", "/v1/tokens", b"").json();
    let ended = ended["items"].as_array().unwrap().iter().find(|t| t["name"] == "brief").unwrap();
    let ended = format!("/v1/tokens/{}", ended["id"].as_str().unwrap());
    rig.call_as(&second, "DELETE", &ended, b"").is(200);
}

#[test]
fn the_administrator_of_a_tenant_may_revoke_his_own_last_token() {
    let rig = Rig::new();
    let admin = rig.tenant("acme");
    let listed = rig.get_as(&admin, "/v1/tokens");
    let own = format!("/v1/tokens/{}", listed["items"][0]["id"].as_str().unwrap());
    rig.call_as(&admin, "DELETE", &own, b"").is(200);
    rig.call_as(&admin, "GET", "/v1/tokens", b"").is(401);
    rig.token_in("acme", "admin");
}

#[test]
fn a_path_or_method_that_does_not_exist_is_told_without_a_token() {
    let rig = Rig::new();
    rig.send("GET", "/v1/nothing", &[], b"").is(404);
    let answer = rig.send("PUT", "/v1/events", &[], b"{}").is(405);
    assert_eq!(answer.field("allow"), Some("POST, GET, HEAD, OPTIONS"));
    assert_eq!(answer.field("content-type"), Some("application/problem+json"));
}
