//! Who may do what: tokens and roles.

use oncebox::api::routes;
use oncebox::domain::token::Role;
use serde_json::json;

use crate::rig::{Rig, secs};

/// A path of the table with something in its variable parts.
fn concrete(path: &str) -> String {
    let parts = path.split('/').map(|part| if part.starts_with('{') { "none" } else { part });
    parts.collect::<Vec<_>>().join("/")
}

#[test]
fn every_route_asks_for_a_token_unless_it_is_public() {
    let rig = Rig::new();
    for route in routes() {
        let answer = rig.send(route.method.as_str(), &concrete(route.path), &[], b"{}");
        if route.right.is_some() {
            assert_eq!(answer.status, 401, "{route:?}");
            assert_eq!(answer.field("www-authenticate"), Some("Bearer"), "{route:?}");
        } else {
            assert_ne!(answer.status, 401, "{route:?}");
        }
    }
}

#[test]
fn every_route_is_open_to_the_roles_that_have_its_right_and_to_no_other() {
    let rig = Rig::new();
    for role in Role::ALL {
        let token = rig.token_of(role.as_str());
        for route in routes() {
            let Some(right) = route.right else { continue };
            let answer = rig.call_as(&token, route.method.as_str(), &concrete(route.path), b"{}");
            assert_ne!(answer.status, 401, "{role} {route:?}");
            assert_eq!(answer.status == 403, !role.may(right), "{role} {route:?}: {answer:?}");
        }
    }
}

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
    crate::rig::until("the first use is noted", || rig.one(last) == "0");
    rig.advance(secs(30));
    rig.get("/v1/stats");
    crate::rig::until("the later use is noted", || rig.one(last) == "60");
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
    let conn = rusqlite::Connection::open(rig.data().join("oncebox.db")).unwrap();
    conn.busy_timeout(secs(5)).unwrap();
    let hash = ring::digest::digest(&ring::digest::SHA256, b"obx_mine");
    conn.execute(
        "INSERT INTO tokens (id, name, role, hash, created_at) VALUES ('x', 'x', 'admin', ?1, 0)",
        [hash.as_ref()],
    )
    .unwrap();
    rig.call_as("obx_mine", "GET", "/v1/stats", b"").is(401);
}

#[test]
fn a_path_or_method_that_does_not_exist_is_told_without_a_token() {
    let rig = Rig::new();
    rig.send("GET", "/v1/nothing", &[], b"").is(404);
    let answer = rig.send("PUT", "/v1/events", &[], b"{}").is(405);
    assert_eq!(answer.field("allow"), Some("POST, GET, HEAD, OPTIONS"));
    assert_eq!(answer.field("content-type"), Some("application/problem+json"));
}
