//! A publish token speaks for the source systems and consumer groups that it names, and for no other.

use serde_json::{Value, json};

use crate::rig::Rig;
use crate::rig::http::Answer;

/// A publish token with these names.
fn token(rig: &Rig, names: &Value) -> String {
    let mut body = json!({ "name": "shop", "role": "publish" });
    body.as_object_mut().unwrap().extend(names.as_object().unwrap().clone());
    let made = rig.post("/v1/tokens", &body).is(201).json();
    made["token"].as_str().unwrap().to_owned()
}

fn publish(rig: &Rig, token: &str, source: Option<&str>) -> Answer {
    let body = json!({
        "event_type": "invoice.created", "idempotency_key": "invoice.created:4712", "payload": 1,
        "source_system": source,
    });
    rig.call_as(token, "POST", "/v1/events", body.to_string().as_bytes())
}

fn claim(rig: &Rig, token: &str, group: &str) -> Answer {
    let body = json!({ "consumer_group": group, "event_id": "evt_1" }).to_string();
    rig.call_as(token, "POST", "/v1/processed-events", body.as_bytes())
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
    let detail = refused.detail();
    assert!(detail.contains("\"billing\"") && detail.contains("\"logistics\""), "{detail}");
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
    let refused = rig.call_as(&shop, "POST", "/v1/events", body).is(403);
    assert!(refused.detail().contains("Event 1 (counted from 0)"), "{}", refused.detail());
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
    let source = json!({ "name": "erp", "kind": "drop", "settings": { "path": folder.path() } });
    rig.post("/v1/sources", &source).is(201);
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
    rig.post("/v1/sources", &source).is(201);
    let acme = rig.tenant("acme");
    publish(&rig, &acme, Some("erp")).is(201);
}

#[test]
fn a_publish_token_is_made_with_names_and_shown_with_them() {
    let rig = Rig::new();
    let refused = |more: Value| {
        let mut body = json!({ "name": "x", "role": "publish" });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        rig.post("/v1/tokens", &body).is(422).detail()
    };
    let nothing = refused(json!({}));
    assert!(nothing.contains("--source-system") && nothing.contains("--group"), "{nothing}");
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
    assert_eq!(shown["source_systems"], json!(["shop", "pos"]));
    assert_eq!(shown["consumer_groups"], json!([]));
    let audited = rig.get("/v1/audit-events?limit=1")["items"][0]["changes"].clone();
    assert_eq!(audited["source_systems"]["after"], json!(["shop", "pos"]));
}

#[test]
fn a_repair_gives_no_event_the_name_of_another_way_in() {
    let rig = Rig::new();
    let row =
        "INSERT INTO outbox (event_type, payload, source_system) VALUES ('a', 'no json', 'crm')";
    rusqlite::Connection::open(rig.data().join("oncebox.db")).unwrap().execute(row, []).unwrap();
    crate::rig::until("it is quarantined", || {
        rig.one("SELECT count(*) FROM outbox WHERE status = 'quarantined'") == "1"
    });
    let id = rig.one("SELECT id FROM outbox");
    let fix = |more: Value| rig.post(&format!("/v1/events/{id}/fix"), &more);
    fix(json!({ "payload": 1, "source_system": "sql" })).is(422);
    fix(json!({ "payload": 1, "source_system": "crm" })).is(200);
}
