//! Operational events: Oncebox tells the subscriptions that name them what became of deliveries, subscriptions,
//! credentials, sources, the disk and the clock. `offline` tries those about the line.

use oncebox::model::operational::{OfCredential, OperationalKind};
use oncebox::store::operational;
use oncebox::store::tx::WriteTx;

use crate::rig::prelude::*;

/// A subscription `erp` to `invoice.*`, and one `told` that names these operational events.
fn site(names: &[&str]) -> (Rig, Receiver, Receiver) {
    let (rig, erp, told) = (Rig::new(), Receiver::new(), Receiver::new());
    let one_at_once = json!({ "in_flight_max": 1 });
    rig.subscribe_with(
        "erp",
        &erp,
        &json!({ "event_types": ["invoice.*"], "policy": one_at_once }),
    );
    rig.subscribe_with("told", &told, &json!({ "event_types": names }));
    (rig, erp, told)
}

fn invoice(rig: &Rig, number: u32) -> Value {
    let line = rig.publish(&json!({ "event_type": "invoice.created", "payload": { "n": number },
        "source_system": "erp", "idempotency_key": format!("inv-{number}"),
        "aggregate_type": "invoice", "aggregate_id": number.to_string() }));
    rig.settle();
    line
}

/// The types and bodies of the operational events in the file, in order.
fn own(rig: &Rig) -> Vec<(String, Value)> {
    let conn = rig.file();
    let sql = "SELECT event_type, payload FROM outbox WHERE source_system = 'oncebox' ORDER BY seq";
    let mut statement = conn.prepare(sql).unwrap();
    let read = |row: &rusqlite::Row<'_>| {
        Ok((row.get(0)?, serde_json::from_slice(&row.get::<_, Vec<u8>>(1)?).unwrap()))
    };
    statement.query_map([], read).unwrap().map(Result::unwrap).collect()
}

fn types(rig: &Rig) -> Vec<String> {
    own(rig).into_iter().map(|(event_type, _)| event_type).collect()
}

#[track_caller]
fn until_told(rig: &Rig, wanted: &[&str]) {
    until(&format!("{wanted:?} is told"), || types(rig) == wanted);
}

#[test]
fn who_names_it_is_told_of_each_completed_delivery() {
    let (rig, erp, told) = site(&["delivery.completed", "integration.run_completed"]);
    let all = Receiver::new();
    rig.subscribe_with("all", &all, &json!({ "event_types": ["*.completed", "*"] }));
    let published = invoice(&rig, 4711);
    let completed = ["delivery.completed", "integration.run_completed"];
    // Those of `erp` and of `all`.
    rig.sent(&told, 4);
    assert_eq!((erp.count(), all.count()), (1, 1));
    // Which of the two deliveries ends first is not known.
    let is_first = |told: &(String, Value)| told.1["delivery_id"] == "dlv_1";
    let own: Vec<_> = own(&rig).into_iter().filter(is_first).collect();
    assert_eq!(own.iter().map(|(kind, _)| kind.as_str()).collect::<Vec<_>>(), completed);
    let delivery = rig.get("/v1/deliveries/dlv_1");
    let wanted = json!({
        "trace_id": text(&published, "id").replace('-', ""), "delivery_id": "dlv_1", "event_id": published["id"], "webhook_id": published["webhook_id"],
        "event_type": "invoice.created", "aggregate_type": "invoice", "aggregate_id": "4711",
        "idempotency_key": "inv-4711", "subscription": "erp", "attempts": 1, "http_status": 200,
        "completed_at": delivery["finished_at"],
    });
    assert_eq!([&own[0].1, &own[1].1], [&wanted, &wanted]);
    // A URL can name the invoice: the operational event has its aggregate.
    assert_eq!(rig.one("SELECT count(*) FROM outbox WHERE aggregate_id = '4711'"), "5");
}

#[test]
fn a_subscription_whose_own_deliveries_are_told_does_not_go_on_for_ever() {
    let (rig, _erp, told) = site(&["delivery.*", "invoice.*", "integration.*", "subscription.*"]);
    for number in 0..3 {
        invoice(&rig, number);
    }
    // Two deliveries of each invoice, two names for each end.
    rig.sent(&told, 3 + 12);
    assert_eq!(rig.one("SELECT count(*) FROM outbox"), "15");
}

#[test]
fn dead_letters_are_told_and_those_of_operational_events_are_not() {
    let (rig, erp, told) = site(&["delivery.dead_lettered", "subscription.*"]);
    erp.always(Reply::status(422));
    told.always(Reply::status(422));
    // The fifth refusal in a row holds each of them, but only that of `erp` has a cause of its own.
    for number in 0..5 {
        invoice(&rig, number);
    }
    until("the event about the hold is dead as well, or held", || types(&rig).len() == 6);
    rig.settle();
    let own = own(&rig);
    let (kind, body) = &own[0];
    assert_eq!(kind, "delivery.dead_lettered");
    has(
        body,
        &json!({
            "class": "validation", "reason": "the target answered 422", "http_status": 422,
            "attempts": 1,
        }),
    );
    let held: Vec<&Value> =
        own.iter().filter(|(kind, _)| kind == "subscription.held").map(|(_, body)| body).collect();
    assert_eq!(held.len(), 1);
    has(held[0], &json!({ "subscription": "erp", "reason": "rejecting" }));
    // A replay is another run, and its end another event.
    told.always(Reply::status(200));
    rig.call("POST", "/v1/subscriptions/erp/resume", b"").is(200);
    rig.call("POST", "/v1/deliveries/dlv_1/retry", b"").is(200);
    until("it is told again", || types(&rig).len() == 8);
    assert_eq!(types(&rig)[6..], ["subscription.resumed", "delivery.dead_lettered"]);
}

#[test]
fn a_hold_is_told_when_it_is_put_and_when_it_ends() {
    let (rig, erp, _told) = site(&["subscription.*"]);
    rig.call("POST", "/v1/subscriptions/erp/pause", b"").is(200);
    rig.call("POST", "/v1/subscriptions/erp/pause", b"").is(200);
    rig.call("POST", "/v1/subscriptions/erp/resume", b"").is(200);
    let mut wanted = vec!["subscription.held", "subscription.resumed"];
    until_told(&rig, &wanted);
    let own = own(&rig);
    assert_eq!((&own[0].1["reason"], &own[0].1["subscription"]), (&json!("paused"), &json!("erp")));
    assert_eq!(own[0].1["detail"], own[1].1["detail"]);

    erp.always(Reply::status(401));
    invoice(&rig, 1);
    wanted.push("subscription.held");
    until_told(&rig, &wanted);
    erp.always(Reply::status(200));
    rig.pass(secs(5));
    wanted.push("subscription.resumed");
    until_told(&rig, &wanted);

    erp.always(Reply::status(410));
    invoice(&rig, 2);
    wanted.push("subscription.disabled");
    until_told(&rig, &wanted);
    rig.call("POST", "/v1/subscriptions/erp/resume", b"").is(200);
    wanted.push("subscription.resumed");
    until_told(&rig, &wanted);
    // What a target asks for itself passes soon, and is not told.
    erp.always(Reply::with(429, "Retry-After", "1"));
    invoice(&rig, 3);
    erp.always(Reply::status(200));
    rig.advance(secs(2));
    until("it is delivered", || {
        rig.settle();
        rig.get("/v1/events?status=completed")["items"]
            .as_array()
            .unwrap()
            .iter()
            .any(|e| e["idempotency_key"] == "inv-3")
    });
    until_told(&rig, &wanted);
}

#[test]
fn a_hold_that_an_operational_event_caused_is_told_to_nobody() {
    let (rig, _erp, told) = site(&["delivery.completed"]);
    let other = Receiver::new();
    rig.subscribe_with("other", &other, &json!({ "event_types": ["subscription.*"] }));
    told.always(Reply::status(401));
    invoice(&rig, 1);
    until("it is held", || rig.get("/v1/subscriptions/told")["holds"][0]["reason"] == "auth");
    told.always(Reply::status(200));
    rig.pass(secs(5));
    assert_eq!(types(&rig), ["delivery.completed"]);
    // A person's pause is a cause of its own.
    rig.call("POST", "/v1/subscriptions/told/pause", b"").is(200);
    until_told(&rig, &["delivery.completed", "subscription.held"]);
}

#[test]
fn tenants_are_told_of_their_own_alone_and_the_site_is_the_default_tenants() {
    let (rig, _erp, _told) = site(&["invoice.*"]);
    let acme = rig.tenant("acme");
    let theirs = Receiver::new();
    let body = json!({ "name": "theirs", "url": theirs.url(),
        "event_types": ["delivery.completed", "disk.low", "clock.wrong"] });
    rig.post_as(&acme, "/v1/subscriptions", &body).is(201);
    invoice(&rig, 1);
    rig.disk_free(1000);
    until("new work is refused", || rig.post("/v1/events", &json!({})).status == 507);
    rig.disk_free(5_000_000_000);
    until("it is taken again", || rig.post("/v1/events", &json!({})).status != 507);
    assert_eq!(types(&rig), [""; 0]);
}

#[test]
fn a_full_disk_and_a_clock_that_was_set_are_told_once_each_time() {
    let (rig, _erp, told) = site(&["disk.low", "clock.wrong"]);
    rig.disk_free(400_000_000);
    until_told(&rig, &["disk.low"]);
    rig.time.set_synchronised(false);
    rig.time.set_wall(rig.now().plus(secs(3600)));
    until_told(&rig, &["disk.low", "clock.wrong"]);
    until("both are delivered", || told.count() == 2);
    for (kind, body) in own(&rig) {
        assert_eq!((&body["condition"], &body["subject"]), (&json!(kind), &json!("site")));
    }
    rig.disk_free(5_000_000_000);
    let is_over = || {
        rig.one("SELECT count(*) FROM escalations WHERE class = 'disk.low' AND resolved_at IS NULL")
            == "0"
    };
    until("there is room again", is_over);
    rig.disk_free(300_000_000);
    until_told(&rig, &["disk.low", "clock.wrong", "disk.low"]);
}

#[test]
fn a_source_that_fails_and_works_again_is_told() {
    let (rig, _erp, _told) = site(&["source.*"]);
    let path = rig.home().join("erp.db");
    let erp = Connection::open(&path).unwrap();
    erp.run("CREATE TABLE other (a)");
    let body = json!({ "name": "erp", "kind": "sqlite", "settings": { "path": path },
        "silent_after_ms": 3_600_000 });
    rig.post("/v1/sources", &body).is(201);
    until_told(&rig, &["source.failing"]);
    let (_, failing) = own(&rig).remove(0);
    has(&failing, &json!({ "subject": "source:erp", "condition": "source.failing" }));
    erp.run(file::OUTBOX);
    until_told(&rig, &["source.failing", "source.recovered"]);
    let (_, recovered) = own(&rig).remove(1);
    assert_eq!(recovered["escalation_id"], failing["escalation_id"]);
    assert_eq!(recovered["condition"], "source.failing");
    rig.advance(secs(3600));
    until_told(&rig, &["source.failing", "source.recovered", "source.silent"]);
}

#[test]
fn a_source_that_was_replaced_is_told() {
    let (rig, _erp, _told) = site(&["source.replaced"]);
    let path = rig.home().join("erp.db");
    let make = |rows: &str| {
        let erp = file::new_outbox(&path);
        erp.run(&format!("INSERT INTO outbox (event_type, payload) VALUES {rows}"));
    };
    make("('a', '1'), ('a', '2')");
    rig.source("erp", "sqlite", &json!({ "path": path }));
    until("both rows are copied", || rig.one("SELECT count(*) FROM outbox") == "2");
    fs::remove_file(&path).unwrap();
    make("('a', '1')");
    until_told(&rig, &["source.replaced"]);
}

#[test]
fn a_rotation_is_told_once_however_often_its_transaction_runs() {
    let (rig, _erp, told) = site(&["credential.*"]);
    let body = |version, reason: Option<&str>| OfCredential {
        credential_id: format!("019a0000-0000-7000-8000-00000000000{version}"),
        owner: "subscription:erp".to_owned(),
        kind: "bearer".to_owned(),
        version,
        reason: reason.map(str::to_owned),
        at: rig.now(),
    };
    let writer = rig.appliance().store().writer();
    for (kind, body) in [
        (OperationalKind::CredentialRotated, body(2, None)),
        (OperationalKind::CredentialRotated, body(2, None)),
        (OperationalKind::CredentialRotationFailed, body(3, Some("the target answered 401"))),
    ] {
        let run = move |tx: &WriteTx<'_>| operational::credential(tx, (kind, "default"), &body);
        writer.write(Queue::Upkeep, run).unwrap();
    }
    until("both are delivered", || told.count() == 2);
    assert_eq!(types(&rig), ["credential.rotated", "credential.rotation_failed"]);
    let (_, failed) = own(&rig).remove(1);
    has(&failed, &json!({ "version": 3, "reason": "the target answered 401" }));
}

#[test]
fn a_pull_consumer_s_ends_are_told_as_well() {
    let (rig, told) = (Rig::new(), Receiver::new());
    rig.post(
        "/v1/subscriptions",
        &json!({ "name": "worker", "target": "pull", "event_types": ["job"] }),
    )
    .is(201);
    rig.subscribe_with("told", &told, &json!({ "event_types": ["delivery.completed"] }));
    rig.publish_type("job");
    let taken = rig.get("/v1/consumers/worker/next");
    let item = &taken["items"][0];
    let acked = json!({ "items": [{ "delivery": item["delivery"], "lease": item["lease"] }] });
    rig.post("/v1/consumers/worker/ack", &acked).is(200);
    until_told(&rig, &["delivery.completed"]);
    let (_, body) = own(&rig).remove(0);
    assert_eq!((&body["subscription"], &body["http_status"]), (&json!("worker"), &Value::Null));
    // Without an aggregate of its own it is about the delivery.
    assert_eq!(
        rig.one(
            "SELECT aggregate_type || aggregate_id FROM outbox WHERE source_system = 'oncebox'"
        ),
        "deliverydlv_1"
    );
}
