//! A publish token speaks for the source systems and consumer groups that it names, and for no other.

use crate::rig::prelude::*;

/// A publish token with these names.
fn token(rig: &Rig, names: &Value) -> String {
    let body = merged(json!({ "name": "shop", "role": "publish" }), names);
    let made = rig.post("/v1/tokens", &body).is(201).json();
    text(&made, "token")
}

fn publish(rig: &Rig, token: &str, source: Option<&str>) -> Answer {
    let body = json!({
        "event_type": "invoice.created", "idempotency_key": "invoice.created:4712", "payload": 1,
        "source_system": source,
    });
    rig.post_as(token, "/v1/events", &body)
}

fn claim(rig: &Rig, token: &str, group: &str) -> Answer {
    let body = json!({ "consumer_group": group, "event_id": "evt_1" });
    rig.post_as(token, "/v1/processed-events", &body)
}

fn sources(rig: &Rig) -> String {
    rig.one("SELECT coalesce(group_concat(source_system), '') FROM outbox")
}

#[test]
fn a_publisher_speaks_for_its_own_systems_and_groups_alone() {
    let rig = Rig::new();
    let shop =
        token(&rig, &json!({ "source_systems": ["shop", "pos"], "consumer_groups": ["billing"] }));
    for other in [Some("sql"), Some("erp"), None] {
        let refused = publish(&rig, &shop, other).is(403);
        let (detail, asked) = (refused.detail(), other.unwrap_or("api"));
        for name in ["shop", "pos", asked] {
            assert!(detail.contains(&format!("{name:?}")), "{name}: {detail}");
        }
    }
    let refused = claim(&rig, &shop, "logistics").is(403);
    shows(&refused.detail(), &["\"billing\"", "\"logistics\""]);
    assert_eq!(
        (sources(&rig), rig.one("SELECT count(*) FROM processed_events")),
        (String::new(), "0".into())
    );

    publish(&rig, &shop, Some("pos")).is(201);
    claim(&rig, &shop, "billing").is(201);
    assert_eq!(sources(&rig), "pos");
}

#[test]
fn one_event_of_another_system_refuses_the_whole_request() {
    let rig = Rig::new();
    let shop = token(&rig, &json!({ "source_systems": ["shop"] }));
    let body =
        br#"[{"event_type":"a","payload":1},{"event_type":"a","payload":1,"source_system":"erp"}]"#;
    rig.call_as(&shop, "POST", "/v1/events", body).is(403).tells("Event 1 (counted from 0)");
    assert_eq!(sources(&rig), "");
}

#[test]
fn what_a_token_does_not_name_it_may_not_do() {
    let rig = Rig::new();
    let consumer = token(&rig, &json!({ "consumer_groups": ["billing"] }));
    publish(&rig, &consumer, None).is(403);
    claim(&rig, &consumer, "billing").is(201);
    let shop = token(&rig, &json!({ "source_systems": ["shop"] }));
    claim(&rig, &shop, "billing").is(403);
    // The one system it names is what it publishes as unless told.
    publish(&rig, &shop, None).is(201);
    assert_eq!(sources(&rig), "shop");
}

#[test]
fn a_star_stands_for_every_name_that_is_not_kept() {
    let rig = Rig::new();
    let all = token(&rig, &json!({ "source_systems": ["*"], "consumer_groups": ["*"] }));
    publish(&rig, &all, None).is(201);
    publish(&rig, &all, Some("erp")).is(201);
    claim(&rig, &all, "logistics").is(201);
    assert_eq!(sources(&rig), "api,erp");
    publish(&rig, &all, Some("sql")).is(422);
}

#[test]
fn the_names_of_other_ways_in_are_taken_from_nobody_over_http() {
    let rig = Rig::new();
    let folder = tempfile::tempdir().unwrap();
    rig.source("erp", "drop", &json!({ "path": folder.path() }));
    let (operate, all) =
        (rig.token_of("operate"), token(&rig, &json!({ "source_systems": ["*"] })));
    for caller in [&rig.token, &operate, &all] {
        for (kept, why) in [("sql", "plain SQL"), ("in:stripe", "providers"), ("erp", "the source")]
        {
            let refused = publish(&rig, caller, Some(kept)).is(422);
            assert!(refused.detail().contains(why), "{kept}: {}", refused.detail());
        }
    }
    assert_eq!(sources(&rig), "");
    // Once there is no such source, nobody else speaks under its name.
    rig.delete("/v1/sources/erp").is(204);
    publish(&rig, &all, Some("erp")).is(201);
    // Another tenant's sources are none of ours.
    rig.source("erp", "drop", &json!({ "path": folder.path() }));
    let acme = rig.tenant("acme");
    publish(&rig, &acme, Some("erp")).is(201);
}

#[test]
fn a_publish_token_is_made_with_names_and_shown_with_them() {
    let rig = Rig::new();
    let refused = |more: Value| {
        let body = merged(json!({ "name": "x", "role": "publish" }), &more);
        rig.post("/v1/tokens", &body).is(422).detail()
    };
    shows(&refused(json!({})), &["--source-system", "--group"]);
    for (names, why) in [
        (json!({ "source_systems": ["sql"] }), "plain SQL"),
        (json!({ "source_systems": ["in:stripe"] }), "providers"),
        (json!({ "source_systems": [""] }), "1 to 64"),
        (json!({ "source_systems": ["\u{e4}"] }), "printable ASCII"),
        (json!({ "consumer_groups": ["x".repeat(65)] }), "1 to 64"),
        (json!({ "consumer_groups": ["a\nb"] }), "control character"),
        (json!({ "consumer_groups": vec!["a"; 101] }), "100"),
        (json!({ "source_systems": ["shop"], "role": "read" }), "role publish"),
    ] {
        let detail = refused(names.clone());
        assert!(detail.contains(why), "{names}: {detail}");
    }
    let _secret = token(&rig, &json!({ "source_systems": ["shop", "pos"] }));
    let shown = rig.get("/v1/tokens")["items"][1].clone();
    has(&shown, &json!({ "source_systems": ["shop", "pos"], "consumer_groups": [] }));
    let audited = rig.get("/v1/audit-events?limit=1")["items"][0]["changes"].clone();
    assert_eq!(audited["source_systems"]["after"], json!(["shop", "pos"]));
}

#[test]
fn a_repair_gives_no_event_the_name_of_another_way_in() {
    let rig = Rig::new();
    let row =
        "INSERT INTO outbox (event_type, payload, source_system) VALUES ('a', 'no json', 'crm')";
    rig.write(row);
    rig.becomes("SELECT count(*) FROM outbox WHERE status = 'quarantined'", "1");
    let id = rig.one("SELECT id FROM outbox");
    let fix = |more: Value| rig.post(&format!("/v1/events/{id}/fix"), &more);
    fix(json!({ "payload": 1, "source_system": "sql" })).is(422);
    fix(json!({ "payload": 1, "source_system": "crm" })).is(200);
}
