//! Changes to providers and subscriptions: two at once, and secrets that come and go.

use oncebox::model::subscription::SubscriptionTerms;

use crate::rig::prelude::*;

#[test]
fn two_changes_at_once_are_both_kept() {
    let (rig, _receiver) = Rig::subscribed("erp");
    rig.provider("machine", &json!({ "kind": "stripe" }), "whsec_long_enough_for_anybody");
    for round in 1..=20 {
        let changes = [
            ("/v1/subscriptions/erp", json!({ "owner_id": format!("owner {round}") })),
            ("/v1/subscriptions/erp", json!({ "event_types": [format!("type.{round}")] })),
            ("/v1/providers/machine", json!({ "tolerance_secs": round })),
            ("/v1/providers/machine", json!({ "body_bytes_max": round })),
        ];
        thread::scope(|scope| {
            for (path, change) in &changes {
                scope.spawn(|| rig.patch(path, change).is(200));
            }
        });
        let (erp, machine) = (rig.get("/v1/subscriptions/erp"), rig.get("/v1/providers/machine"));
        let kept = json!([
            erp["owner_id"],
            erp["event_types"],
            machine["tolerance_secs"],
            machine["body_bytes_max"]
        ]);
        let wanted = json!([format!("owner {round}"), [format!("type.{round}")], round, round]);
        assert_eq!(kept, wanted);
    }
}

#[test]
fn each_term_of_a_subscription_is_stored_when_it_is_made_and_when_it_is_changed() {
    let rig = Rig::new();
    let url = "https://erp.example.com/hooks";
    let terms = json!({
        "event_types": ["a.*"], "source": "all", "owner_id": "me", "method": "PUT", "headers": { "x-a": "b" },
        "policy": { "timeout": "5s" }, "ordering": "key", "order": { "group": "g" }, "format": "cloudevents_binary",
        "event_headers": ["x-b"], "filter": [{ "path": "$.a", "op": "gt", "value": 1 }],
        "template": { "headers": { "x-c": "{{ type }}" } },
    });
    let terms = terms.as_object().unwrap();
    let default = serde_json::to_value(SubscriptionTerms::default()).unwrap();
    assert_eq!(terms.keys().len(), default.as_object().unwrap().len(), "a term is missing here");

    let mut creation = terms.clone();
    creation.insert("name".to_owned(), "made".into());
    creation.insert("url".to_owned(), url.into());
    rig.post("/v1/subscriptions", &Value::Object(creation)).is(201);
    rig.post("/v1/subscriptions", &json!({ "name": "changed", "url": url })).is(201);
    rig.patch("/v1/subscriptions/changed", &Value::Object(terms.clone())).is(200);
    for name in ["made", "changed"] {
        let shown = rig.get(&format!("/v1/subscriptions/{name}"));
        for (term, value) in terms {
            assert_ne!(*value, default[term], "{term} has its default");
            assert_eq!(shown[term], *value, "{term} of {name}");
        }
    }
}

/// What the intake answers to a request that shows this token.
fn post(rig: &Rig, token: &str) -> u16 {
    rig.send("POST", "/in/machine", &[("X-Token", token)], br#"{"n":1}"#).status
}

#[test]
fn a_secret_is_added_told_apart_and_withdrawn_at_once() {
    let rig = Rig::new();
    rig.token_provider("machine", "old-token-1234567890");
    let path = "/v1/providers/machine/secrets";
    let ask = |secret: &str, dry_run: bool| {
        rig.post(path, &json!({ "secret": secret, "dry_run": dry_run }))
    };
    assert_eq!(ask("new-token-1234567890", true).is(200).json()["id"], Value::Null);
    assert_eq!(post(&rig, "new-token-1234567890"), 401);
    ask("new-token-1234567890", false).is(201);
    let again = ask("new-token-1234567890", false).is(200).json();
    assert_eq!(again["already_in_force"], true);
    assert_eq!(
        (post(&rig, "old-token-1234567890"), post(&rig, "new-token-1234567890")),
        (200, 200)
    );

    let listed = rig.get(path);
    let items = listed["items"].as_array().unwrap();
    assert_eq!((items.len(), &items[0]["id"]), (2, &again["id"]));
    assert!(!listed.to_string().contains("token-1234"));
    let old = format!("{path}/{}", items[1]["id"].as_str().unwrap());
    rig.delete(&old).is(204);
    assert_eq!(
        (post(&rig, "old-token-1234567890"), post(&rig, "new-token-1234567890")),
        (401, 200)
    );
    rig.delete(&old).is(404);
    rig.delete(&format!("{path}/{}", again["id"].as_str().unwrap())).is(409);
    assert_eq!(post(&rig, "new-token-1234567890"), 200);

    let publisher = rig.token_of("publish");
    assert_eq!(rig.call_as(&publisher, "GET", path, b"").status, 403);
}

#[test]
fn a_subscription_signs_with_its_new_secret_alone() {
    let (rig, _receiver) = Rig::subscribed("erp");
    let secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3";
    let path = "/v1/subscriptions/erp/secrets";
    rig.post(path, &json!({ "secret": secret })).is(201);
    rig.post(path, &json!({ "secret": secret })).is(200);
    rig.post(path, &json!({ "secret": "short" })).is(422);
    rig.deliver("a");
    assert_eq!(rig.one("SELECT group_concat(state) FROM credentials"), "revoked,active");
    let used = "SELECT c.state FROM attempts AS a JOIN credentials AS c ON c.id = a.key_id";
    assert_eq!(rig.one(used), "active");
}

#[test]
fn lengths_of_terms_are_those_of_the_description() {
    let rig = Rig::new();
    let owner =
        |chars: usize| json!({ "name": "a", "target": "pull", "owner_id": "ü".repeat(chars) });
    let refused = rig.post("/v1/subscriptions", &owner(256));
    shows(&refused.is(422).text(), &["owner_id must have", "255 characters"]);
    rig.post("/v1/subscriptions", &owner(255)).is(201);
    let headers: BTreeMap<String, &str> = (0..33).map(|n| (format!("X-{n}"), "v")).collect();
    let body = json!({ "name": "b", "url": "https://shop.example/", "headers": headers });
    shows(
        &rig.post("/v1/subscriptions", &body).is(422).text(),
        &["headers must have", "32 members"],
    );
}
