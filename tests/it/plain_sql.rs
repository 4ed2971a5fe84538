//! Events that another program inserts into the outbox by plain SQL.

use crate::rig::prelude::*;

#[track_caller]
fn routed(rig: &Rig) {
    rig.becomes("SELECT count(*) FROM outbox WHERE routed_at IS NULL", "0");
}

const INVOICE: &str = r#"INSERT INTO outbox (event_type, idempotency_key, aggregate_id, payload)
    VALUES ('invoice.created', 'inv-1', '4711', '{"total":"99.00"}') ON CONFLICT DO NOTHING"#;

#[test]
fn an_invoice_and_its_event_are_one_transaction_of_the_erp() {
    let (rig, receiver) = Rig::subscribed("logistics");
    let mut erp = rig.writable();
    erp.run("CREATE TABLE invoices (number INTEGER PRIMARY KEY, total TEXT)");
    for commit in [false, true, true] {
        let transaction = erp.transaction().unwrap();
        transaction.execute("INSERT OR IGNORE INTO invoices VALUES (4711, '99.00')", []).unwrap();
        transaction.execute(INVOICE, []).unwrap();
        if commit { transaction.commit() } else { transaction.rollback() }.unwrap();
    }
    rig.sent(&receiver, 1);
    assert_eq!(
        rig.dump(),
        "invoice.created completed\n  logistics completed\n    1 +0s success 200\n"
    );
    let sent = &receiver.seen()[0];
    assert_eq!(sent.body, br#"{"total":"99.00"}"#.to_vec());
    assert_eq!(sent.field("x-idempotency-key"), Some("inv-1"));
    assert_eq!(sent.field("content-type"), Some("application/json"));
}

#[test]
fn what_was_inserted_while_the_service_was_down_is_routed_at_its_start() {
    let (mut rig, receiver) = Rig::subscribed("logistics");
    rig.stop();
    rig.writable().execute(INVOICE, []).unwrap();
    rig.start_again();
    rig.sent(&receiver, 1);
}

#[test]
fn a_row_that_nobody_wants_is_skipped() {
    let rig = Rig::new();
    rig.writable().execute(INVOICE, []).unwrap();
    routed(&rig);
    assert_eq!(rig.dump(), "invoice.created skipped\n");
}

/// Rows that pass the CHECKs and cannot be used: columns, values, and the code they are quarantined with.
const UNUSABLE: &[(&str, &str, &str)] = &[
    ("event_type, payload", "CAST(X'61ff' AS TEXT), '{}'", "invalid_utf8"),
    ("event_type, payload, idempotency_key", "'a', '{}', CAST(X'ff' AS TEXT)", "invalid_utf8"),
    ("event_type, payload, idempotency_key", "'a', '{}', CAST(X'fe' AS TEXT)", "invalid_utf8"),
    ("event_type, payload, source_system", "'a', '{}', CAST(X'ff' AS TEXT)", "invalid_utf8"),
    (
        "event_type, payload, aggregate_type",
        "'a', '{}', CAST(randomblob(40)||X'ff' AS TEXT)",
        "invalid_utf8",
    ),
    ("event_type, payload, target", "'a', '{}', CAST(X'ff' AS TEXT)", "invalid_utf8"),
    ("event_type, payload, custom_data", "'a', '{}', CAST(X'c3' AS TEXT)", "invalid_utf8"),
    ("event_type, payload, trace_id", "'a', '{}', CAST(X'c3' AS TEXT)", "invalid_utf8"),
    ("event_type, payload, id", "'a', '{}', CAST(X'c3' AS TEXT)", "invalid_utf8"),
    ("event_type, payload, id", "'a', '{}', 'four'", "bad_id"),
    ("event_type, payload, idempotency_key", "'a', '{}', char(10)", "bad_field"),
    ("event_type, payload, idempotency_key", "'a', '{}', 'naïve'", "bad_field"),
    ("event_type, payload, source_system", "'a', '{}', 'in:shop'", "bad_field"),
    ("event_type, payload, custom_data", "'a', '{}', printf('%.5000c', 'x')", "bad_field"),
    ("event_type, payload, aggregate_id", "'a', '{}', ''", "bad_field"),
    ("event_type, payload, trace_id", "'a', '{}', 'yes'", "bad_field"),
    ("event_type, payload, headers", "'a', '{}', '[]'", "bad_headers"),
    ("event_type, payload, headers", r#"'a', '{}', '{"a b":"c"}'"#, "bad_headers"),
    ("event_type, payload", "'a', 'no json'", "bad_payload"),
    ("event_type, payload", "'a', X'ff'", "bad_payload"),
    ("event_type, payload", "'a', ''", "bad_payload"),
    ("event_type, payload", "'a', printf('%.200c', '[')", "payload_too_deep"),
    ("event_type, payload", "'a', zeroblob(1048577)", "payload_too_large"),
    ("event_type, payload, occurred_at", "'a', '{}', 1769860800", "bad_time"),
    ("event_type, payload, received_at", "'a', '{}', -1", "bad_time"),
    ("event_type, payload, not_before", "'a', '{}', 9223372036854775807", "bad_time"),
    ("event_type, payload, tenant", "'a', '{}', 'nobody'", "unknown_tenant"),
    ("event_type, payload, parent_seq", "'a', '{}', 4711", "unknown_parent"),
    ("event_type, payload, parent_seq", "'a', 'no json', 4712", "bad_payload"),
    (
        "event_type, payload, parent_seq, custom_data",
        "'a', 'no json', 4713, CAST(X'ff' AS TEXT)",
        "invalid_utf8",
    ),
    ("event_type, payload, target", "'a', '{}', 'nobody'", "unknown_target"),
];

#[test]
fn a_row_that_cannot_even_be_quarantined_is_set_aside_as_everybody_can_read_it() {
    let mut rig = Rig::new();
    let erp = rig.writable();
    erp.run(
        "PRAGMA foreign_keys = OFF;
         CREATE TRIGGER stands_in_the_way BEFORE UPDATE ON outbox
           WHEN NEW.error_code = 'invalid_utf8' BEGIN SELECT RAISE(ABORT, 'no'); END;
         INSERT INTO outbox (event_type, payload, parent_seq, tenant, custom_data)
         VALUES (CAST(X'61ff' AS TEXT), 'no json', 4711, 'default', CAST(X'ff' AS TEXT))",
    );
    routed(&rig);
    assert_eq!(rig.one("SELECT status || ' ' || error_code FROM outbox"), "quarantined unusable");
    assert_eq!(rig.get("/v1/events?status=quarantined")["items"][0]["event_type"], "a\u{fffd}");
    erp.run("DROP TRIGGER stands_in_the_way");
    rig.stop();
    assert_eq!(rig.one("SELECT count(*) FROM pragma_foreign_key_check"), "0");
    rig.start_again();
}

#[test]
fn a_row_that_fails_its_batch_is_set_aside_and_those_before_and_behind_it_are_sent() {
    // Where order is asked for, whoever publishes routes the rows before.
    for ordering in ["none", "key"] {
        let (rig, receiver) =
            Rig::subscribed_with("logistics", Receiver::new(), &json!({ "ordering": ordering }));
        let erp = rig.writable();
        erp.run(
            "BEGIN;
             CREATE TRIGGER stands_in_the_way BEFORE UPDATE ON outbox
               WHEN OLD.event_type = 'bad' AND NEW.error_code IS NULL BEGIN SELECT RAISE(ABORT, 'no'); END;
             INSERT INTO outbox (event_type, payload)
             VALUES ('good', '1'), ('bad', '2'), ('good', '3'), ('bad', '4'), ('good', '5');
             COMMIT",
        );
        rig.publish_type("good");
        until("the good ones are sent", || receiver.count() == 4);
        routed(&rig);
        rig.settle();
        let found = file::lines(
            &rig.file(),
            "SELECT event_type, status, coalesce(error_code, '') FROM outbox ORDER BY seq",
        );
        let (good, bad) = ("good completed ", "bad quarantined unusable");
        assert_eq!(found, [good, bad, good, bad, good, good]);
        erp.run("DROP TRIGGER stands_in_the_way");
    }
}

#[test]
fn rows_that_cannot_be_used_are_quarantined_and_hold_up_no_other() {
    let (mut rig, receiver) = Rig::subscribed("logistics");
    let erp = rig.writable();
    // An ERP's SQLite enforces no foreign keys unless it is told to.
    erp.run("PRAGMA foreign_keys = OFF; BEGIN");
    for (columns, values, _) in UNUSABLE {
        erp.execute(&format!("INSERT INTO outbox ({columns}) VALUES ({values})"), []).unwrap();
    }
    erp.run("COMMIT");
    erp.execute(INVOICE, []).unwrap();
    until("the good one is delivered", || receiver.count() == 1);
    routed(&rig);
    let found = rig.lines("SELECT status, error_code FROM outbox ORDER BY seq");
    for ((columns, values, code), found) in UNUSABLE.iter().zip(found) {
        assert_eq!(found, format!("quarantined {code}"), "{columns} {values}");
    }
    let listed = rig.get("/v1/events?status=quarantined&limit=100");
    // Those who run the box see what is nobody's too: a row of a tenant there is none of.
    assert_eq!(listed["items"].as_array().unwrap().len(), UNUSABLE.len());
    assert_eq!(rig.get("/v1/stats")["quarantined"], UNUSABLE.len());
    let other = rig.tenant("acme");
    assert_eq!(rig.get_as(&other, "/v1/events?status=quarantined")["items"], json!([]));
    rig.settle();
    rig.stop();
    assert_eq!(rig.one("SELECT count(*) FROM pragma_foreign_key_check"), "0");
    rig.start_again();
}

#[test]
fn columns_of_oncebox_are_refused_by_name_in_the_erps_own_transaction() {
    let rig = Rig::new();
    let erp = rig.writable();
    for (column, value) in [
        ("status", "'skipped'"),
        ("routed_at", "1"),
        ("open_deliveries", "1"),
        ("epoch", "1"),
        ("sealed_fields", "1"),
        ("replay_of", "'x'"),
        ("duplicate_count", "-1"),
        ("differing_count", "1"),
        ("error_code", "'x'"),
        ("last_error", "'x'"),
        ("completed_at", "1"),
        ("own", "2"),
        ("seq", "9223372036854775807"),
        ("event_type", "'b'"),
    ] {
        let sql = format!(
            "INSERT INTO outbox (payload, event_type, {column}) VALUES ('{{}}', 'a', {value})"
        );
        let sql = if column == "event_type" {
            "INSERT INTO outbox (event_type, payload) VALUES ('', '')".to_owned()
        } else {
            sql
        };
        let refused = erp.execute(&sql, []).unwrap_err().to_string();
        assert!(refused.contains(column), "{column}: {refused}");
    }
    assert_eq!(rig.one("SELECT count(*) FROM outbox"), "0");
}

#[test]
fn a_row_with_a_number_of_its_own_leaves_numbers_for_all_that_come() {
    let (rig, receiver) = Rig::subscribed("logistics");
    let erp = rig.writable();
    erp.execute(INVOICE, []).unwrap();
    for own in [0, 1] {
        for seq in [i64::MAX, i64::MAX / 2, i64::MAX / 4, 1 << 53, (1 << 32) + 2] {
            let sql = format!(
                "INSERT INTO outbox (event_type, payload, own, seq) VALUES ('a', '{{}}', {own}, {seq})"
            );
            let refused = erp.execute(&sql, []).unwrap_err().to_string();
            assert!(refused.contains("outbox: leave out seq on INSERT"), "{seq}: {refused}");
        }
    }
    for seq in [0, -1, i64::MIN] {
        let sql =
            format!("INSERT INTO outbox (event_type, payload, seq) VALUES ('a', '{{}}', {seq})");
        let refused = erp.execute(&sql, []).unwrap_err().to_string();
        assert!(refused.contains("event_seq_is_left_out"), "{seq}: {refused}");
    }
    // A number that is not far off is taken, and both ways in go on from it.
    let far = "INSERT INTO outbox (event_type, payload, seq) VALUES ('a', '{}', 4294967297)";
    erp.execute(far, []).unwrap();
    erp.execute("INSERT INTO outbox (event_type, payload) VALUES ('a', '{}'), ('a', '{}')", [])
        .unwrap();
    rig.publish_type("a");
    rig.sent(&receiver, 5);
    assert_eq!(rig.one("SELECT max(seq) FROM outbox"), "4294967300");
}

#[test]
fn counts_that_are_none_keep_no_list_from_being_read() {
    let rig = Rig::new();
    let erp = rig.writable();
    for column in ["sealed_fields", "duplicate_count", "differing_count"] {
        for count in ["-1", "4294967296", "9223372036854775807"] {
            let insert = format!(
                "INSERT INTO outbox (event_type, payload, own, {column}) VALUES ('a', '{{}}', 1, {count})"
            );
            erp.execute(&insert, []).unwrap();
        }
    }
    routed(&rig);
    let listed = rig.get("/v1/events");
    assert_eq!(listed["items"].as_array().unwrap().len(), 9);
    for event in listed["items"].as_array().unwrap() {
        assert_eq!(event["status"], "skipped");
        rig.get(&format!("/v1/events/{}", event["id"].as_str().unwrap()));
    }
}

#[test]
fn a_payload_is_sent_as_it_was_inserted_whatever_its_kind_and_size() {
    let (rig, receiver) = Rig::subscribed("logistics");
    let erp = rig.writable();
    let large = format!("\"{}\"", "x".repeat(20_000));
    erp.execute("INSERT INTO outbox (event_type, payload) VALUES ('large', ?1)", [&large]).unwrap();
    let others = [
        ("number", "42", "application/json"),
        ("real", "1.5", "application/json"),
        ("bytes", "X'00ff'", "application/octet-stream"),
        ("text", "'naïve'", "text/plain"),
    ];
    for (event_type, payload, content_type) in others {
        let sql = format!(
            "INSERT INTO outbox (event_type, payload, content_type)
            VALUES ('{event_type}', {payload}, '{content_type}')"
        );
        erp.execute(&sql, []).unwrap();
    }
    rig.sent(&receiver, 5);
    let mut bodies: Vec<Vec<u8>> = receiver.seen().iter().map(|m| m.body.clone()).collect();
    bodies.sort();
    assert_eq!(
        bodies,
        [vec![0, 255], large.into_bytes(), b"1.5".to_vec(), b"42".to_vec(), "naïve".into()]
    );
    assert_eq!(rig.one("SELECT count(*) FROM payloads"), "1");
}

#[test]
fn ten_thousand_rows_in_one_transaction_do_not_hold_up_what_is_published() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    rig.subscribe_with("published", &receiver, &json!({ "event_types": ["published"] }));
    rig.writable().run(
        "
        INSERT INTO outbox (event_type, payload)
        WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000)
        SELECT 'bulk', '{}' FROM n",
    );
    rig.publish_type("published");
    until("it is delivered", || receiver.count() == 1);
    let unrouted: u32 =
        rig.one("SELECT count(*) FROM outbox WHERE routed_at IS NULL").parse().unwrap();
    assert!(unrouted > 0, "all of them went first");
    routed(&rig);
    assert_eq!(rig.one("SELECT count(*) FROM outbox WHERE status = 'skipped'"), "10000");
    rig.settle();
}

/// Quarantines a row, and returns its id.
fn quarantined(rig: &Rig, columns: &str, values: &str) -> String {
    let sql = format!("INSERT INTO outbox ({columns}) VALUES ({values})");
    rig.writable().execute(&sql, []).unwrap();
    routed(rig);
    let listed = rig.get("/v1/events?status=quarantined");
    text(&listed["items"][0], "id")
}

#[test]
fn a_quarantined_event_is_repaired_and_sent() {
    let (rig, receiver) = Rig::subscribed("logistics");
    let id = quarantined(&rig, "event_type, payload, idempotency_key", "'a', '{total:1}', 'inv-1'");
    let path = format!("/v1/events/{id}/fix");
    let still = rig.post(&path, &json!({})).is(422);
    assert!(still.detail().starts_with("bad_payload: "), "{}", still.detail());
    rig.post(&path, &json!({ "payload": {}, "typo": 1 })).is(400);
    let fixed = rig.post(&path, &json!({ "payload": {"total": 1} })).is(200).json();
    assert_eq!((&fixed["status"], &fixed["error_code"]), (&json!("pending"), &json!(null)));
    rig.sent(&receiver, 1);
    assert_eq!(receiver.seen()[0].body, br#"{"total":1}"#);
    assert_eq!(receiver.seen()[0].field("x-idempotency-key"), Some("inv-1"));
    rig.post(&path, &json!({})).is(409);
}

#[test]
fn an_event_for_a_target_that_comes_later_is_sent_once_it_is_tried_again() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    let large = json!({ "event_type": "a", "target": "late", "payload": "x".repeat(20_000) });
    let published = rig.publish(&large);
    let id = quarantined(&rig, "event_type, payload, target", "'a', '{}', 'late'");
    let path = |id: &str| format!("/v1/events/{id}/fix");
    rig.post(&path(&id), &json!({})).is(422).tells("still no subscription named");
    rig.subscribe("late", &receiver);
    for id in [&id, published["id"].as_str().unwrap()] {
        rig.post(&path(id), &json!({})).is(200);
    }
    rig.sent(&receiver, 2);
}

#[test]
fn a_repair_cannot_take_the_key_of_another_event() {
    let (rig, receiver) = Rig::subscribed("logistics");
    rig.writable().execute(INVOICE, []).unwrap();
    let id = quarantined(&rig, "event_type, payload, idempotency_key", "'a', '{}', 'naïve'");
    let path = format!("/v1/events/{id}/fix");
    rig.post(&path, &json!({ "idempotency_key": "inv-1" })).is(422).tells("another event");
    rig.post(&path, &json!({ "idempotency_key": "inv-2" })).is(200);
    rig.sent(&receiver, 2);
}

#[test]
fn a_discarded_event_is_cancelled_and_stays() {
    let (rig, receiver) = Rig::subscribed("logistics");
    let id = quarantined(&rig, "event_type, payload", "'a', 'no'");
    let path = format!("/v1/events/{id}/discard");
    for bad in [json!({}), json!({ "reason": " " })] {
        assert!(rig.post(&path, &bad).status >= 400);
    }
    let discarded = rig.post(&path, &json!({ "reason": "a test" })).is(200).json();
    has(&discarded, &json!({ "status": "cancelled", "error_code": "bad_payload" }));
    assert!(discarded["last_error"].as_str().unwrap().ends_with(": a test"), "{discarded}");
    rig.post(&path, &json!({ "reason": "again" })).is(409);
    rig.post(&format!("/v1/events/{id}/fix"), &json!({ "payload": 1 })).is(409);
    assert_eq!(receiver.count(), 0);
}

#[test]
fn an_event_of_a_tenant_that_comes_later_is_its_own_from_then_on() {
    let rig = Rig::new();
    let id = quarantined(&rig, "event_type, payload, tenant", "'a', '{}', 'acme'");
    assert_eq!(rig.get(&format!("/v1/events/{id}"))["tenant"], "acme");
    rig.post(&format!("/v1/events/{id}/fix"), &json!({})).is(422);
    let theirs = rig.tenant("acme");
    rig.post(&format!("/v1/events/{id}/fix"), &json!({})).is(404);
    let fixed = rig.call_as(&theirs, "POST", &format!("/v1/events/{id}/fix"), b"{}").is(200).json();
    assert_eq!(fixed["status"], "skipped");
}

#[test]
fn a_key_is_free_once_its_quarantined_event_is_discarded() {
    let (rig, receiver) = Rig::subscribed("logistics");
    let columns = "event_type, payload, idempotency_key";
    let id = quarantined(&rig, columns, "'invoice.created', 'no json', 'inv-1'");
    let conn = rig.writable();
    assert_eq!(conn.execute(INVOICE, []).unwrap(), 0, "the key is taken");
    rig.post(&format!("/v1/events/{id}/discard"), &json!({ "reason": "mistyped" })).is(200);
    assert_eq!(conn.execute(INVOICE, []).unwrap(), 1);
    rig.sent(&receiver, 1);
    let shown = rig.get(&format!("/v1/events/{id}"));
    has(
        &shown,
        &json!({
            "idempotency_key": format!("discarded {id}: inv-1"), "status": "cancelled",
            "payload_text": "no json",
        }),
    );
    drop(conn);
}

#[test]
fn what_is_published_under_the_key_of_a_row_that_cannot_be_used_takes_its_place() {
    let (rig, receiver) = Rig::subscribed("logistics");
    let key = format!("inv-{}", "4".repeat(251));
    let values = format!("'invoice.created', 'no json', '{key}', 'erp'");
    let id = quarantined(&rig, "event_type, payload, idempotency_key, source_system", &values);
    let event = json!({
        "event_type": "invoice.created", "source_system": "erp", "idempotency_key": key, "payload": 1,
    });
    let line = rig.publish(&event);
    assert_eq!((&line["status"], &line["already_processed"]), (&json!("pending"), &json!(false)));
    rig.sent(&receiver, 1);
    let shown = rig.get(&format!("/v1/events/{id}"));
    has(&shown, &json!({ "status": "cancelled", "error_code": "bad_payload" }));
}
