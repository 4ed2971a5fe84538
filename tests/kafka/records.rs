//! What is written, and what becomes of a delivery.

use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

use crate::kafka::cluster::{Cluster, TOPIC};
use crate::rig::prelude::*;

#[test]
fn a_record_carries_the_event_and_its_attempt_says_where_it_lies() {
    let cluster = Cluster::new();
    let rig = cluster.rig(&json!({}));
    let sent = rig.publish(&json!({ "event_type": "order.paid", "idempotency_key": "order/7",
        "aggregate_type": "order", "aggregate_id": "7", "occurred_at": "2026-01-31T12:00:00Z",
        "payload": { "total": "9.00" } }));
    rig.settle();
    let written = cluster.written(TOPIC);
    assert_eq!(written.len(), 1);
    let record = &written[0];
    assert_eq!((record.key.as_deref(), record.body.as_str()), (Some("7"), r#"{"total":"9.00"}"#));
    assert_eq!(record.at, 1_769_860_800_000);
    for (field, value) in [
        ("ce_id", text(&sent, "webhook_id").as_str()),
        ("webhook-id", &text(&sent, "webhook_id")),
        ("ce_type", "order.paid"),
        ("ce_specversion", "1.0"),
        ("ce_subject", "order/7"),
        ("content-type", "application/json"),
        ("x-idempotency-key", "order/7"),
    ] {
        assert_eq!(record.field(field), Some(value), "{field}");
    }
    assert!(record.field("ce_source").unwrap().starts_with("/oncebox/default/"));
    assert!(record.field("traceparent").is_some() && record.field("webhook-signature").is_some());
    let attempt = &rig.items("/v1/deliveries/dlv_1/attempts")[0];
    has(
        attempt,
        &json!({ "class": "success", "method": "PRODUCE", "url": format!("kafka://centre/{TOPIC}"),
        "excerpt": format!("partition {}, offset {}", record.partition, record.offset) }),
    );
}

/// A consumer of many boxes sees which one an event is from.
#[test]
fn the_name_of_the_box_is_in_its_source_and_a_field_of_its_own() {
    let cluster = Cluster::new();
    let brokers = cluster.brokers();
    let rig = Rig::with(|settings| {
        settings.kafka.clusters.insert("centre".to_owned(), brokers);
        settings.kafka.tls = false;
        settings.r#box.name = Some("shop-17".to_owned());
    });
    let receiver = Receiver::new();
    for (name, url, format) in [
        ("centre", format!("kafka://centre/{TOPIC}"), "raw"),
        ("erp", receiver.url(), "cloudevents_structured"),
    ] {
        rig.post("/v1/subscriptions", &json!({ "name": name, "url": url, "format": format }))
            .is(201);
    }
    rig.publish(&json!({ "event_type": "order.paid", "source_system": "erp", "payload": 1 }));
    rig.settle();
    let record = &cluster.written(TOPIC)[0];
    assert_eq!(record.field("ce_source"), Some("/shop-17/default/erp"));
    assert_eq!(record.field("oncebox-box"), Some("shop-17"));
    let request = receiver.seen().remove(0);
    assert_eq!(request.field("oncebox-box"), Some("shop-17"));
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    assert_eq!(body["source"], "/shop-17/default/erp");
    // What was sent is shown as it was sent.
    let shown = rig.get("/v1/deliveries/dlv_2/request");
    let hash = HEXLOWER.encode(ring::digest::digest(&ring::digest::SHA256, &request.body).as_ref());
    assert_eq!(shown["body_sha256"], hash.as_str(), "{shown}");
}

#[test]
fn a_topic_is_made_of_the_event_and_the_structured_form_is_one_body() {
    let cluster = Cluster::new();
    cluster.0.create_topic("default.order.paid", 3, 1).unwrap();
    let more = json!({ "url": "kafka://centre/{tenant}.{event_type}", "format": "cloudevents_structured" });
    let rig = cluster.rig(&more);
    rig.publish(&json!({ "event_type": "order.paid", "payload": { "total": 9 } }));
    // No topic can have such a name.
    rig.publish(&json!({ "event_type": "order/odd", "payload": {} }));
    rig.settle();
    let written = cluster.written("default.order.paid");
    assert_eq!(written.len(), 1);
    let body: Value = serde_json::from_str(&written[0].body).unwrap();
    has(&body, &json!({ "type": "order.paid", "data": { "total": 9 } }));
    assert_eq!(
        (written[0].field("content-type"), written[0].field("ce_type")),
        (Some("application/cloudevents+json"), None)
    );
    assert_eq!(rig.state(2), "dead_letter");
    shows(
        &rig.one("SELECT failed_reason FROM attempts WHERE delivery_seq = 2"),
        &["event_type", "order/odd"],
    );
}

#[test]
fn records_of_a_key_lie_in_order_although_requests_fail() {
    let cluster = Cluster::new();
    let rig = cluster.rig(&json!({ "ordering": "key" }));
    cluster
        .fails(RDKafkaApiKey::Produce, &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS; 3]);
    for n in 0..60 {
        rig.publish(
            &json!({ "event_type": "order.changed", "ordering_key": format!("order-{}", n % 4),
            "payload": { "n": n } }),
        );
    }
    rig.settle();
    let written = cluster.written(TOPIC);
    assert_eq!(written.len(), 60);
    for key in 0..4 {
        let key = format!("order-{key}");
        let of_key: Vec<_> = written.iter().filter(|it| it.key.as_ref() == Some(&key)).collect();
        let numbers: Vec<u64> = of_key
            .iter()
            .map(|it| serde_json::from_str::<Value>(&it.body).unwrap()["n"].as_u64().unwrap())
            .collect();
        assert!(numbers.is_sorted() && numbers.len() == 15, "{key}: {numbers:?}");
        assert!(
            of_key.iter().all(|it| it.partition == of_key[0].partition),
            "{key} has one partition"
        );
    }
}

#[test]
fn a_cluster_that_is_away_is_a_hold_and_costs_no_attempt() {
    let cluster = Cluster::new();
    let rig =
        cluster.rig(&json!({ "policy": { "timeout": "1s", "max_attempts": 2, "steps": ["1s"] } }));
    cluster.0.broker_down(1).unwrap();
    rig.publish_type("a");
    rig.publish_type("b");
    for _ in 0..4 {
        rig.pass(Duration::from_secs(10));
        until("an attempt has failed", || rig.one("SELECT count(*) FROM attempts") != "0");
    }
    assert_eq!(rig.one("SELECT count(*) FROM attempts WHERE counted = 1"), "0");
    let hold = &rig.get("/v1/subscriptions/centre")["holds"][0];
    assert_eq!(text(hold, "reason"), "breaker", "{hold}");
    shows(&text(hold, "detail"), &["the cluster centre"]);
    cluster.0.broker_up(1).unwrap();
    rig.passing("both are written", Duration::from_secs(10), || {
        rig.state(1) == "completed" && rig.state(2) == "completed"
    });
    assert_eq!(cluster.written(TOPIC).len(), 2);
}

#[test]
fn what_the_cluster_refuses_is_told_and_treated_as_what_it_is() {
    let cluster = Cluster::new();
    let rig = cluster.rig(&json!({}));
    let refused = |error| {
        cluster.fails(RDKafkaApiKey::Produce, &[error]);
        rig.publish_type("a");
        until("it has an attempt", || {
            rig.one("SELECT count(*) > 0 FROM attempts WHERE delivery_seq = (SELECT max(seq) FROM deliveries)") == "1"
        });
        rig.one("SELECT class FROM attempts ORDER BY delivery_seq DESC, n DESC LIMIT 1")
    };
    assert_eq!(refused(RDKafkaRespErr::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE), "validation");
    assert_eq!(refused(RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED), "auth");
    assert_eq!(rig.state(1), "dead_letter");
    assert_eq!(text(&rig.get("/v1/subscriptions/centre")["holds"][0], "reason"), "auth");
}

#[test]
fn a_topic_that_is_not_there_is_waited_for() {
    let cluster = Cluster::new();
    let rig = cluster.rig(&json!({}));
    cluster
        .0
        .topic_error("later", RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART)
        .unwrap();
    rig.patch("/v1/subscriptions/centre", &json!({ "url": "kafka://centre/later" })).is(200);
    rig.publish_type("a");
    until("it was tried", || rig.one("SELECT count(*) FROM attempts") != "0");
    assert_eq!(rig.one("SELECT class FROM attempts"), "transient");
    assert_eq!(rig.state(1), "pending");
    shows(&rig.one("SELECT failed_reason FROM attempts"), &["opic"]);
}

#[test]
fn a_cluster_that_names_brokers_which_the_settings_do_not_gets_nothing() {
    let cluster = Cluster::new();
    let rig = cluster.rig(&json!({}));
    let named = cluster.brokers()[0].replace("127.0.0.1", "localhost");
    let mut rig = rig;
    rig.restart_with(|settings| {
        settings.kafka.clusters.insert("centre".to_owned(), vec![named.clone()]);
    });
    rig.publish_type("a");
    until("it was refused", || rig.one("SELECT count(*) FROM attempts") != "0");
    shows(
        &rig.one("SELECT failed_reason FROM attempts"),
        &["names the broker 127.0.0.1", "kafka.clusters"],
    );
    assert_eq!(cluster.written(TOPIC).len(), 0);
}

#[test]
fn a_test_of_the_subscription_shows_each_step_and_what_to_change() {
    let cluster = Cluster::new();
    let rig = cluster.rig(&json!({}));
    let tried =
        || rig.post("/v1/subscriptions/centre/test", &json!({ "ping": true })).is(200).json();
    let looked = rig.post("/v1/subscriptions/centre/test", &json!({})).is(200).json();
    has(&looked, &json!({ "class": "success" }));
    assert_eq!(cluster.written(TOPIC).len(), 0, "a look writes nothing");
    let works = tried();
    has(&works, &json!({ "class": "success", "url": format!("kafka://centre/{TOPIC}") }));
    let steps = |of: &Value| {
        let steps = of["steps"].as_array().unwrap().clone();
        steps
            .iter()
            .map(|step| format!("{}: {}", text(step, "step"), text(step, "detail")))
            .collect::<Vec<_>>()
    };
    shows(
        &steps(&works).join("\n"),
        &["connect: the topic erp of centre, 3 partitions", "answer: partition "],
    );
    assert_eq!(cluster.written(TOPIC)[0].field("ce_type"), Some("oncebox.ping"));
    cluster.fails(
        RDKafkaApiKey::Produce,
        &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED],
    );
    let refused = tried();
    assert_eq!(refused["class"], "auth");
    shows(steps(&refused).last().unwrap(), &["answer: ", "authori"]);
    shows(&text(&refused, "advice"), &["right to write"]);
    cluster.0.broker_down(1).unwrap();
    rig.advance(secs(120));
    let away = tried();
    assert_eq!(away["class"], "transient");
    shows(steps(&away).last().unwrap(), &["connect: the cluster centre"]);
    shows(&text(&away, "advice"), &["kafka.clusters"]);
}

#[test]
fn a_subscription_that_cannot_write_is_refused_with_what_to_change() {
    let cluster = Cluster::new();
    let rig = cluster.rig(&json!({}));
    let refused = |more: &Value| {
        let body = json!({ "name": "other", "url": "kafka://centre/erp", "event_types": ["*"] });
        rig.post("/v1/subscriptions", &merged(body, more)).is(422).json()["detail"].to_string()
    };
    for (more, words) in [
        (json!({ "url": "kafka://edge/erp" }), ["no cluster", "kafka.clusters"]),
        (json!({ "url": "kafka://centre/a b" }), ["kafka://<cluster>/<topic>", "letters"]),
        (json!({ "url": "https://erp.example/hooks", "target": "kafka" }), ["kafka://", "topic"]),
        (json!({ "order": { "external_calls": "event" } }), ["external_calls", "guards"]),
        (json!({ "method": "PUT" }), ["method", "topic"]),
        (json!({ "policy": { "lease": "60s" } }), ["lease", "pull"]),
        (json!({ "policy": { "probe": { "every": "5min" } } }), ["probe", "topic"]),
    ] {
        shows(&refused(&more), &words);
    }
    let path = "/v1/subscriptions/centre/credentials";
    rig.post("/v1/subscriptions", &json!({ "name": "erp", "url": "https://127.0.0.1/" })).is(201);
    rig.post("/v1/subscriptions/erp/test", &json!({ "ping": false })).is(422).tells("ping");
    let bearer = rig.post(path, &json!({ "kind": "bearer", "secret": "abc" })).is(422);
    shows(&bearer.json()["detail"].to_string(), &["kafka", "bearer"]);
    rig.post(path, &json!({ "kind": "basic", "user": "erp", "secret": "abc" })).is(201);
}
