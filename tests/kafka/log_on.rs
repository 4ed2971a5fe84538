//! How Oncebox logs on to a cluster, and what becomes of it when it may not.

use oncebox::config::{KafkaCompression, KafkaSasl};

use crate::kafka::cluster::{Cluster, TOPIC};
use crate::kafka::door::Door;
use crate::rig::prelude::*;

const CREDENTIALS: &str = "/v1/subscriptions/centre/credentials";

fn site(cluster: &Cluster, door: &Door, sasl: KafkaSasl) -> Rig {
    let rig = Rig::with(|settings| {
        settings.kafka.clusters.insert("centre".to_owned(), vec![door.address.clone()]);
        settings.kafka.sasl = sasl;
        settings.kafka.compression = KafkaCompression::Zstd;
        settings.delivery.ca_file = Some(door.ca_file.clone());
    });
    let body = json!({ "name": "centre", "url": format!("kafka://centre/{TOPIC}"), "event_types": ["*"],
        "policy": { "timeout": "3s" } });
    rig.post("/v1/subscriptions", &body).is(201);
    assert!(cluster.written(TOPIC).is_empty());
    rig
}

fn tried(rig: &Rig) -> Value {
    rig.post("/v1/subscriptions/centre/test", &json!({})).is(200).json()
}

/// The log-on of a token. Source: RFC 7628, section 3.1.
fn bearer(token: &str) -> String {
    format!("n,,\u{1}auth=Bearer {token}\u{1}\u{1}")
}

#[test]
fn a_token_logs_on_and_what_stands_in_its_way_is_told() {
    let cluster = Cluster::new();
    let door = Door::new(&cluster);
    let endpoint = Receiver::new();
    let granted = |token: &str| {
        let body = json!({ "access_token": token, "expires_in": 3600 }).to_string();
        Reply::Answer(200, vec![], body.into_bytes())
    };
    endpoint.always(granted("t1"));
    door.guard.lock().unwrap().log_on = Some(bearer("t1"));
    let rig = site(&cluster, &door, KafkaSasl::Oauthbearer);
    let without = tried(&rig);
    shows(&text(&without, "reason"), &["no OAuth 2.0 client", "oncebox credential set"]);
    let client =
        json!({ "kind": "oauth2", "token_url": endpoint.url(), "client_id": "erp", "secret": "s" });
    rig.post(CREDENTIALS, &client).is(201);
    rig.publish_type("a");
    rig.settle();
    assert_eq!((rig.state(1), cluster.written(TOPIC).len()), ("completed".to_owned(), 1));
    assert_eq!(endpoint.count(), 1, "one token serves all connections");
    // Another client: its endpoint refuses it, then gives a token that the cluster refuses.
    endpoint.always(Reply::status(400));
    rig.post(CREDENTIALS, &client).is(201);
    let refused = tried(&rig);
    has(&refused, &json!({ "class": "auth" }));
    shows(&text(&refused, "reason"), &["the token endpoint at 127.0.0.1", "400"]);
    endpoint.always(granted("t2"));
    let refused = tried(&rig);
    has(&refused, &json!({ "class": "auth" }));
    shows(&text(&refused, "reason"), &["the cluster centre", "not let in"]);
    shows(&text(&refused, "advice"), &["refuses the log-on"]);
    assert_eq!(door.guard.lock().unwrap().tried.last(), Some(&bearer("t2")));
    door.guard.lock().unwrap().log_on = Some(bearer("t2"));
    until("it is let in", || tried(&rig)["class"] == "success");
}

#[test]
fn a_refused_password_is_a_hold_until_another_is_verified() {
    let cluster = Cluster::new();
    let door = Door::new(&cluster);
    let plain = |password: &str| Some(format!("\0erp\0{password}"));
    door.guard.lock().unwrap().log_on = plain("old");
    let rig = site(&cluster, &door, KafkaSasl::Plain);
    shows(&text(&tried(&rig), "reason"), &["no user and password", "--kind basic"]);
    let made = rig.post(CREDENTIALS, &json!({ "kind": "basic", "user": "erp", "secret": "old" }));
    let id = text(&made.is(201).json(), "id");
    rig.publish_type("a");
    rig.settle();
    assert_eq!(cluster.written(TOPIC).len(), 1);
    // The next one is tried by logging on, and nothing is written for it.
    door.guard.lock().unwrap().log_on = plain("new");
    rig.post(&format!("/v1/credentials/{id}/rotate"), &json!({ "secret": "new" })).is(201);
    until("the next one is in force", || {
        rig.one("SELECT count(*) FROM credentials WHERE state = 'active' AND kind = 'basic'") == "1"
            && rig.one("SELECT count(*) FROM credentials WHERE state = 'next'") == "0"
    });
    rig.publish_type("a");
    rig.settle();
    assert_eq!(cluster.written(TOPIC).len(), 2);
    // Nobody is let in any more: this waits for a person, not for the cluster.
    door.guard.lock().unwrap().log_on = plain("other");
    rig.post(CREDENTIALS, &json!({ "kind": "basic", "user": "erp", "secret": "wrong" })).is(201);
    rig.publish_type("a");
    until("it is held", || !rig.get("/v1/subscriptions/centre")["holds"][0].is_null());
    let hold = &rig.get("/v1/subscriptions/centre")["holds"][0];
    assert_eq!(text(hold, "reason"), "auth", "{hold}");
    shows(&text(hold, "detail"), &["SASL"]);
}

#[test]
fn a_client_certificate_is_shown_with_its_chain() {
    let cluster = Cluster::new();
    let door = Door::new(&cluster);
    let rig = site(&cluster, &door, KafkaSasl::None);
    let body = json!({ "kind": "client_certificate", "secret": door.certificate() });
    rig.post(CREDENTIALS, &body).is(201);
    rig.publish_type("a");
    rig.settle();
    assert_eq!(cluster.written(TOPIC).len(), 1);
    let chains = door.guard.lock().unwrap().chains.clone();
    assert!(!chains.is_empty() && chains.iter().all(|length| *length == 2), "{chains:?}");
}
