//! What a change of one subscription costs: its own terms are parsed once, outside the writer, and nothing of others.

use std::sync::Arc;

use oncebox::model::pattern::Patterns;
use oncebox::store::error::Error;
use oncebox::store::subscriptions;
use oncebox::store::writer::Queue;

use crate::rig::prelude::*;

/// How often terms were parsed: by the writer, and by other threads.
fn parsed(rig: &Rig) -> [u64; 2] {
    let routes = rig.appliance().store().writer().routes();
    [routes.parsed_by_writer.get(), routes.parsed_by_readers.get()]
}

/// A filter of 15 KB that payloads with a number `a` below 100 meet.
fn large_filter() -> Value {
    let values: Vec<String> = (0..150).map(|n| format!("{n:0>98}")).collect();
    json!([
        { "path": "$.a", "op": "lt", "value": 100 },
        { "path": "$.b", "op": "not_equals", "value": values },
    ])
}

fn of_many() -> Rig {
    let rig = Rig::new();
    for n in 0..20 {
        let types = if n == 19 { "never" } else { "*" };
        rig.pull(&format!("s{n}"), &json!({ "filter": large_filter(), "event_types": [types] }));
    }
    rig
}

fn open(rig: &Rig, subscription: &str) -> u64 {
    let sql = format!(
        "SELECT count(*) FROM deliveries AS d JOIN subscriptions AS s ON s.seq = d.subscription_seq
          WHERE s.name = '{subscription}'"
    );
    rig.one(&sql).parse().unwrap()
}

#[test]
fn a_change_parses_what_it_brings_and_no_stored_terms() {
    let rig = of_many();
    rig.publish(&json!({ "event_type": "a", "payload": { "a": 1 } }));
    for (method, path, body) in [
        ("PATCH", "/v1/subscriptions/s3", json!({ "owner_id": "erp" })),
        ("POST", "/v1/subscriptions/s3/pause", Value::Null),
        ("POST", "/v1/subscriptions/s3/resume", Value::Null),
        ("DELETE", "/v1/subscriptions/s19", Value::Null),
        (
            "PATCH",
            "/v1/subscriptions/s4",
            json!({ "filter": [{ "path": "$.a", "op": "gt", "value": 5 }] }),
        ),
    ] {
        let before = parsed(&rig);
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = rig.call(method, path, body.as_bytes());
        assert!(answer.status < 300, "{method} {path}: {}", answer.status);
        rig.publish(&json!({ "event_type": "a", "payload": { "a": 1 } }));
        rig.settle();
        let [by_writer, by_readers] = parsed(&rig);
        assert_eq!(by_writer, before[0], "{method} {path}: the writer parsed terms");
        assert_eq!(by_readers, before[1], "{method} {path}: stored terms were parsed");
    }
    assert_eq!([open(&rig, "s3"), open(&rig, "s4")], [6, 5]);
}

#[test]
fn a_start_parses_each_subscription_once_before_the_first_transaction() {
    let mut rig = of_many();
    rig.restart();
    rig.publish(&json!({ "event_type": "a", "payload": { "a": 1 } }));
    rig.call("POST", "/v1/subscriptions/s3/pause", b"").is(200);
    assert_eq!(parsed(&rig)[0], 0);
    assert_eq!(open(&rig, "s3"), 1);
}

#[test]
fn what_is_rolled_back_leaves_no_terms_behind() {
    let rig = of_many();
    let writer = rig.appliance().store().writer();
    let change = |ends_with: Option<Error>, is_part: bool| {
        let now = rig.now();
        let done = writer.write(Queue::Accept, move |tx| {
            let mut found = subscriptions::find(tx, "default", "s3")?.unwrap();
            Arc::make_mut(&mut found.new).terms.event_types = Patterns::parse(&["b"]).unwrap();
            if is_part {
                let undone = tx.in_savepoint(|| {
                    subscriptions::update(tx, &found, now)?;
                    Err::<(), _>(Error::Changed("the test"))
                })?;
                assert!(undone.is_err());
                return Ok(());
            }
            subscriptions::update(tx, &found, now)?;
            ends_with.clone().map_or(Ok(()), Err)
        });
        drop(done);
    };
    change(Some(Error::Changed("the test")), false);
    rig.publish(&json!({ "event_type": "a", "payload": { "a": 1 } }));
    assert_eq!(open(&rig, "s3"), 1, "a transaction was rolled back");
    change(None, true);
    rig.publish(&json!({ "event_type": "a", "payload": { "a": 1 } }));
    assert_eq!(open(&rig, "s3"), 2, "a savepoint was rolled back");
    change(None, false);
    rig.publish(&json!({ "event_type": "a", "payload": { "a": 1 } }));
    rig.publish(&json!({ "event_type": "b", "payload": { "a": 1 } }));
    assert_eq!(open(&rig, "s3"), 3);
    assert_eq!(parsed(&rig)[0], 0);
}

/// How many transactions were rolled back.
fn rolled_back(rig: &Rig) -> u64 {
    rig.appliance().store().writer().done().failures.get()
}

#[test]
fn a_request_over_a_limit_is_refused_without_rolling_back_the_transaction_of_others() {
    let rig = Rig::with(|settings| {
        settings.tenants.subscriptions_max = 2;
        settings.tenants.all_terms_bytes_max = 8_000;
    });
    rig.pull("s0", &json!({}));
    rig.pull("s1", &json!({}));
    let before = rolled_back(&rig);
    let pull = json!({ "name": "s2", "target": "pull" }).to_string();
    let over = rig.call("POST", "/v1/subscriptions", pull.as_bytes()).is(422).text();
    assert!(over.contains("subscriptions_max"), "{over}");
    let event_type =
        |bytes: usize| json!({ "schema": true, "example": "x".repeat(bytes) }).to_string();
    rig.call("PUT", "/v1/event-types/large", event_type(9_000).as_bytes()).is(422);
    // The bytes of what was refused do not count from then on.
    rig.call("PUT", "/v1/event-types/small", event_type(100).as_bytes()).is(201);
    assert_eq!(rolled_back(&rig), before, "a refusal rolled the transaction back");
    assert_eq!(rig.one("SELECT count(*) FROM subscriptions"), "2");
    rig.publish(&json!({ "event_type": "a", "payload": { "a": 1 } }));
    assert_eq!([open(&rig, "s0"), open(&rig, "s1")], [1, 1]);
}

#[test]
fn a_rollback_after_a_foreign_commit_reads_only_what_another_program_changed() {
    let rig = of_many();
    rig.publish(&json!({ "event_type": "a", "payload": { "a": 1 } }));
    rig.call("POST", "/v1/subscriptions/s5/pause", b"").is(200);
    rig.call("POST", "/v1/subscriptions/s5/resume", b"").is(200);
    let parsed_at_loads = || rig.appliance().store().writer().routes().parsed_at_loads.get();
    let fail = || {
        let writer = rig.appliance().store().writer();
        let failed = writer.write(Queue::Accept, |_| Err::<(), _>(Error::Changed("the test")));
        assert!(failed.is_err());
        rig.publish(&json!({ "event_type": "a", "payload": { "a": 1 } }));
    };
    rig.write("CREATE TABLE erp_orders (id INTEGER)");
    fail();
    let before = parsed_at_loads();
    rig.write("INSERT INTO erp_orders VALUES (1)");
    fail();
    assert_eq!(parsed_at_loads(), before, "nothing of subscriptions has changed");
    assert_eq!(open(&rig, "s3"), 3);
    rig.write("UPDATE subscriptions SET event_types = '[\"b\"]', updated_at = updated_at + 1 WHERE name = 's3'");
    rig.write("UPDATE subscriptions SET deleted_at = updated_at WHERE name = 's19'");
    fail();
    assert_eq!(parsed_at_loads(), before + 1, "one row is read again");
    fail();
    rig.publish(&json!({ "event_type": "never", "payload": { "a": 1 } }));
    assert_eq!([open(&rig, "s3"), open(&rig, "s5"), open(&rig, "s19")], [3, 6, 0]);
    assert_eq!(parsed(&rig)[0], 0, "nothing was parsed in a transaction");
}

/// How many deliveries each subscription has, by its name.
fn open_by_name(rig: &Rig) -> String {
    rig.one(
        "SELECT group_concat(name || ' ' || n, ', ') FROM (
           SELECT s.name AS name, count(*) AS n
             FROM deliveries AS d JOIN subscriptions AS s ON s.seq = d.subscription_seq
            GROUP BY s.name ORDER BY s.name)",
    )
}

#[test]
fn beside_a_hundred_others_an_event_reaches_who_wants_it() {
    let rig = Rig::new();
    for n in 0..100 {
        rig.pull(&format!("other-{n}"), &json!({ "event_types": [format!("other.{n}"), "x.*.y"] }));
    }
    rig.pull("all", &json!({ "event_types": ["*"] }));
    rig.pull("exact", &json!({ "event_types": ["invoice.paid"] }));
    rig.pull("family", &json!({ "event_types": ["invoice.*", "invoice.paid"] }));
    rig.pull("last", &json!({ "event_types": ["*.paid"] }));
    rig.publish_type("invoice.paid");
    rig.publish_type("invoice.sent");
    assert_eq!(open_by_name(&rig), "all 2, exact 1, family 2, last 1");
    // Who is named gets it, whatever the patterns say.
    rig.publish(&json!({ "event_type": "invoice.paid", "target": "other-7", "payload": {} }));
    assert_eq!(open_by_name(&rig), "all 2, exact 1, family 2, last 1, other-7 1");
    let patterns = json!({ "event_types": ["invoice.sent"] });
    rig.call("PATCH", "/v1/subscriptions/exact", patterns.to_string().as_bytes()).is(200);
    rig.call("DELETE", "/v1/subscriptions/other-0", b"").is(204);
    rig.publish_type("invoice.sent");
    assert_eq!(open_by_name(&rig), "all 3, exact 2, family 3, last 1, other-7 1");
    // An event of Oncebox itself is only for who names it.
    rig.pull("own", &json!({ "event_types": ["delivery.completed"] }));
    rig.publish_type("other.99");
    assert_eq!(open_by_name(&rig), "all 4, exact 2, family 3, last 1, other-7 1, other-99 1");
}
