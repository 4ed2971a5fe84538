//! Requests of new deliveries, which the first attempt takes from memory instead of reading their rows.

use oncebox::base::id::DeliverySeq;
use oncebox::model::delivery::OutgoingRequest;
use oncebox::store::deliveries;

use crate::rig::prelude::*;

const LATER: &str = "2199-01-01T00:00:00Z";

fn kept(rig: &Rig, delivery: i64) -> Option<OutgoingRequest> {
    rig.appliance().store().writer().fresh().take(DeliverySeq(delivery))
}

fn read(rig: &Rig, delivery: i64) -> OutgoingRequest {
    let found = rig.appliance().store().read(|tx| deliveries::outgoing(tx, DeliverySeq(delivery)));
    found.unwrap().unwrap()
}

/// An event that is due long after, so that nobody takes its request.
fn later(rig: &Rig, payload: &str) {
    rig.publish(
        &json!({ "event_type": "invoice.created", "payload": payload, "not_before": LATER }),
    );
}

#[test]
fn a_request_in_memory_is_the_one_that_would_be_read() {
    let (rig, _receiver) = Rig::subscribed("erp");
    let erp = rig.writable();
    erp.run(&format!(
        "INSERT INTO outbox (event_type, idempotency_key, payload, not_before)
         VALUES ('invoice.created', 'inv-1', '{{\"a\":1}}', unixepoch('{LATER}') * 1000)"
    ));
    rig.becomes("SELECT count(*) FROM deliveries", "1");
    rig.publish(&json!({
        "event_type": "invoice.created", "idempotency_key": "invoice-4711", "source_system": "sap",
        "aggregate_type": "invoice", "aggregate_id": "4711", "payload": { "name": "Zoë", "total": 1.10 },
        "headers": { "x-branch": "Graz" }, "occurred_at": "2026-01-31T12:00:00Z", "not_before": LATER,
        "max_attempts": 7, "custom_data": "abc",
        "ordering_key": "4711", "entity_type": "document",
    }));
    later(&rig, "plain");
    for delivery in 1..=3 {
        assert_eq!(kept(&rig, delivery), Some(read(&rig, delivery)), "{delivery}");
        assert_eq!(kept(&rig, delivery), None, "it is taken once");
    }
}

#[test]
fn what_touches_a_delivery_ends_its_request() {
    let (rig, receiver) = Rig::subscribed("erp");
    for what in ["retry", "skip", "cancel"] {
        later(&rig, what);
        let newest = rig.id("/v1/deliveries");
        let number: i64 = newest.strip_prefix("dlv_").unwrap().parse().unwrap();
        assert_eq!(read(&rig, number).payload, json!(what).to_string().into_bytes());
        let reason = json!({ "reason": "tried" }).to_string();
        let body = if what == "retry" { "" } else { &reason };
        let path = format!("/v1/deliveries/{newest}/{what}");
        rig.call("POST", &path, body.as_bytes()).is(200);
        assert_eq!(kept(&rig, number), None, "{what}");
    }
    rig.sent(&receiver, 1);
}

#[test]
fn what_another_program_commits_is_seen() {
    let (rig, _receiver) = Rig::subscribed("erp");
    later(&rig, "before");
    let change = "UPDATE outbox SET content_type = 'text/plain' WHERE seq = 1";
    rig.writable().run(change);
    later(&rig, "after");
    assert_eq!((kept(&rig, 1), kept(&rig, 2)), (None, Some(read(&rig, 2))));
    assert_eq!(read(&rig, 1).content_type, "text/plain");
}

#[test]
fn the_oldest_requests_are_forgotten_and_sent_all_the_same() {
    let (rig, receiver) = Rig::subscribed("erp");
    rig.call("POST", "/v1/subscriptions/erp/pause", br#"{"reason":"tried"}"#).is(200);
    let payload = "x".repeat(15_000);
    for _ in 0..200 {
        rig.publish(&json!({ "event_type": "invoice.created", "payload": payload }));
    }
    let found = (1..=200).filter(|delivery| kept(&rig, *delivery).is_some());
    let found: Vec<_> = found.collect();
    assert!((100..150).contains(&found.len()), "2 MiB hold {} of them", found.len());
    assert_eq!(found.last(), Some(&200));
    rig.call("POST", "/v1/subscriptions/erp/resume", b"").is(200);
    rig.sent(&receiver, 200);
}

#[test]
fn a_large_one_one_with_a_lane_and_a_rolled_back_one_are_read() {
    let rig = Rig::subscribed_with("erp", Receiver::new(), &json!({ "ordering": "key" })).0;
    let large = "x".repeat(17_000);
    later(&rig, &large);
    rig.publish(&json!({
        "event_type": "invoice.created", "payload": {}, "not_before": LATER, "ordering_key": "4711",
    }));
    assert_eq!((kept(&rig, 1), kept(&rig, 2)), (None, None));
    assert_eq!(read(&rig, 1).payload.len(), 17_002);
    assert_eq!(read(&rig, 2).order.ordering_key.as_deref(), Some("4711"));
    // The second event cannot have its parent, so the first one's delivery is undone, and its number is given again.
    let of = |n: i64| json!({ "event_type": "invoice.created", "payload": n, "not_before": LATER });
    let orphan = json!({
        "event_type": "invoice.created", "payload": {}, "parent_id": "00000000-0000-7000-8000-000000000000",
    });
    let both = json!([of(1), orphan]).to_string();
    rig.call("POST", "/v1/events", both.as_bytes()).is(422);
    rig.publish(&of(2));
    assert_eq!(kept(&rig, 3).map(|request| request.payload), Some(b"2".to_vec()));
}
