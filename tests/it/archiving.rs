//! Finished events leave the database for the file of their month, and nothing is lost on the way.

use oncebox::config::Settings;
use oncebox::model::name::Name;
use oncebox::store::legal_holds::{self, Terms};
use oncebox::store::writer::Queue;

use crate::rig::prelude::*;
use crate::rig::process::passes;

const DAY: u64 = 24 * 3600;

/// Tables with rows of events.
const TABLES: [&str; 7] =
    ["outbox", "webhook_events", "deliveries", "attempts", "failures", "renderings", "payloads"];

fn monthly(settings: &mut Settings) {
    settings.archive.after = secs(30 * DAY);
}

/// The files of the archive, by month.
fn months(rig: &Rig) -> Vec<(String, Connection)> {
    let directory = rig.data().join("archive");
    let mut names: Vec<String> = fs::read_dir(&directory)
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| Path::new(name).extension().is_some_and(|ending| ending == "db"))
        .collect();
    names.sort();
    let open = |name: &String| (name.clone(), Connection::open(directory.join(name)).unwrap());
    names.iter().map(open).collect()
}

/// All rows of a table in a file.
fn rows(conn: &Connection, table: &str) -> Vec<String> {
    let columns = file::lines(conn, &format!("SELECT name FROM pragma_table_info('{table}')"));
    let quoted: Vec<String> = columns.iter().map(|name| format!("quote({name})")).collect();
    file::lines(conn, &format!("SELECT {} FROM {table}", quoted.join(" || ' ' || ")))
}

/// What all files together have, each row once.
#[track_caller]
fn all_rows(rig: &Rig) -> Vec<Vec<String>> {
    let months = months(rig);
    TABLES
        .map(|table| {
            let mut all = rows(&rig.file(), table);
            for (_, conn) in &months {
                all.extend(rows(conn, table));
            }
            all.sort();
            all
        })
        .to_vec()
}

fn publish(rig: &Rig, from: usize, to: usize) {
    for n in from..to {
        // Some bodies are large and have a table of their own.
        let text = "x".repeat(if n % 7 == 0 { 20_000 } else { 10 });
        let event = json!({ "event_type": "a", "idempotency_key": format!("k-{n}"), "payload": { "n": n, "text": text } });
        rig.publish(&event);
    }
    rig.settle();
}

const HOT: &str = "SELECT count(*) FROM outbox";

#[test]
fn finished_events_move_into_the_file_of_their_month_after_thirty_days() {
    let mut rig = Rig::with(monthly);
    let receiver = Receiver::new();
    rig.subscribe("erp", &receiver);
    rig.token_provider("shop", "a-shared-secret-of-32-characters");
    // January, and February.
    publish(&rig, 0, 100);
    rig.send("POST", "/in/shop", &[("X-Token", "a-shared-secret-of-32-characters")], b"hook")
        .is(200);
    rig.advance(secs(10 * DAY));
    publish(&rig, 100, 130);
    let before = all_rows(&rig);
    assert!(months(&rig).is_empty());
    rig.advance(secs(29 * DAY));
    rig.becomes(HOT, "30");
    until("a webhook event moves as well", || {
        rig.one("SELECT count(*) FROM webhook_events") == "0"
    });
    rig.advance(secs(5 * DAY));
    rig.becomes(HOT, "0");
    let names: Vec<String> = months(&rig).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["2026-01.db", "2026-02.db"]);
    assert_eq!(all_rows(&rig), before, "each row is where it was, or in the file of its month");
    for table in TABLES {
        rig.says(&format!("SELECT count(*) FROM {table}"), "0");
    }
    // Numbers are not given again.
    rig.restart();
    publish(&rig, 130, 131);
    rig.says("SELECT seq FROM outbox", "131");
    file::check(&rig.data().join("oncebox.db"));
}

#[test]
fn what_is_open_dead_or_quarantined_stays() {
    let rig = Rig::with(monthly);
    let receiver = Receiver::new();
    rig.subscribe_with("erp", &receiver, &json!({ "policy": { "max_attempts": 1 } }));
    publish(&rig, 0, 1);
    receiver.always(Reply::status(500));
    publish(&rig, 1, 2);
    rig.pass(secs(3600));
    rig.says("SELECT state FROM deliveries WHERE outbox_seq = 2", "dead_letter");
    rig.post("/v1/subscriptions/erp/pause", &json!({})).is(200);
    publish(&rig, 2, 3);
    rig.advance(secs(100 * DAY));
    rig.becomes(HOT, "2");
    rig.says("SELECT group_concat(seq) FROM outbox", "2,3");
    rig.says("SELECT count(*) FROM deliveries", "2");
}

#[test]
fn a_parent_goes_after_its_children_and_a_child_after_its_parent_is_finished() {
    let rig = Rig::with(monthly);
    let receiver = Receiver::new();
    rig.subscribe("erp", &receiver);
    publish(&rig, 0, 1);
    let parent = rig.one("SELECT id FROM outbox");
    let child = json!({ "event_type": "a", "idempotency_key": "child", "payload": 1, "parent_id": parent,
        "parent_binding": "hard" });
    rig.publish(&child);
    rig.settle();
    let before = all_rows(&rig);
    rig.advance(secs(31 * DAY));
    rig.becomes(HOT, "1");
    rig.says("SELECT idempotency_key FROM outbox", "k-0");
    rig.advance(secs(3600));
    rig.becomes(HOT, "0");
    assert_eq!(all_rows(&rig), before);
}

/// The disk refuses, or the process ends, at each step of a move: nothing is lost, nothing is there twice.
#[test]
fn a_move_that_fails_anywhere_loses_and_doubles_nothing() {
    let mut failed = 0;
    for step in [Step::Archive, Step::Commit] {
        for nth in (1..200).step_by(passes()) {
            let faults = Faults::at(step, nth);
            let Ok(mut rig) = Rig::try_with(monthly, faults.clone()) else { continue };
            let receiver = Receiver::new();
            if rig
                .post("/v1/subscriptions", &json!({ "name": "erp", "url": receiver.url() }))
                .status
                != 201
            {
                continue;
            }
            for n in 0..3 {
                rig.post("/v1/events", &json!({ "event_type": "a", "payload": n }));
            }
            rig.settle();
            if faults.happened() {
                continue;
            }
            let before = all_rows(&rig);
            rig.advance(secs(31 * DAY));
            let is_over = || rig.get("/v1/archive")["run"]["since"].is_null();
            until("it fails, or all are moved", || {
                faults.happened() || (rig.one(HOT) == "0" && is_over())
            });
            if !faults.happened() {
                break;
            }
            failed += 1;
            rig.restart();
            rig.becomes(HOT, "0");
            assert_eq!(all_rows(&rig), before, "{step:?} {nth}");
        }
    }
    // How many commits there are depends on which writes meet.
    assert!(failed > 2_usize.div_ceil(passes()), "{failed} moves failed");
}

/// `already_processed` (seed 000) outlives the row: `seen_keys`.
#[test]
fn what_is_archived_is_known_when_it_is_sent_again() {
    let mut rig = Rig::with(monthly);
    let receiver = Receiver::new();
    rig.subscribe("erp", &receiver);
    let secret = "a-shared-secret-of-32-characters";
    rig.token_provider("shop", secret);
    let event = json!({ "event_type": "a", "idempotency_key": "k-1", "payload": 1 });
    let hook =
        |rig: &Rig| rig.send("POST", "/in/shop", &[("X-Token", secret)], b"hook").is(200).json();
    let (first, first_hook) = (rig.post("/v1/events", &event).is(201).json(), hook(&rig));
    rig.settle();
    rig.advance(secs(31 * DAY));
    rig.becomes(HOT, "0");
    until("the webhook event is moved", || rig.one("SELECT count(*) FROM webhook_events") == "0");
    for _ in 0..2 {
        let again = rig.post("/v1/events", &event).is(200).json()["events"][0].clone();
        assert_eq!(
            (&again["id"], &again["status"]),
            (&first["events"][0]["id"], &json!("completed"))
        );
        assert_eq!(again["already_processed"], true);
        let again = hook(&rig);
        assert_eq!(again["id"], first_hook["id"], "{again}");
        assert_eq!(again["already_processed"], true, "{again}");
        rig.restart();
    }
    // A row by plain SQL was refused by the database before; now a person is told.
    let insert = "INSERT INTO outbox (source_system, idempotency_key, event_type, payload) VALUES ('api', 'k-1', 'a', 1)";
    Connection::open(rig.data().join("oncebox.db")).unwrap().run(insert);
    rig.becomes("SELECT status FROM outbox", "quarantined");
    let row = rig.get("/v1/events?status=quarantined")["items"][0].clone();
    assert_eq!(row["error_code"], "already_processed");
    // Nor does a repair make two of one event.
    let fix = format!("/v1/events/{}/fix", text(&row, "id"));
    rig.post(&fix, &json!({ "payload": 2 }))
        .is(422)
        .tells("another event of its source with the key");
    shows(
        &text(&row, "last_error"),
        &[&text(&first["events"][0], "id"), "it is in the archive of 2026-01"],
    );
    assert_eq!(receiver.count(), 1);
}

/// "One view": what is archived is found as before, in lists and by id.
#[test]
fn what_is_archived_is_found_as_before() {
    let rig = Rig::with(monthly);
    let receiver = Receiver::new();
    rig.subscribe("erp", &receiver);
    let secret = "a-shared-secret-of-32-characters";
    rig.token_provider("shop", secret);
    let hook = |body: &str| {
        rig.send("POST", "/in/shop", &[("X-Token", secret)], body.as_bytes()).is(200);
    };
    publish(&rig, 0, 5);
    hook("one");
    rig.advance(secs(20 * DAY));
    publish(&rig, 5, 10);
    hook("two");
    let paths = [
        "/v1/events?limit=3",
        "/v1/events?limit=3&aggregate_id=none",
        "/v1/events?idempotency_key=k-1",
        "/v1/deliveries?limit=4",
        "/v1/webhook-events?limit=1",
    ];
    let without = |mut item: Value| {
        item.as_object_mut().unwrap().remove("archived_in");
        item
    };
    // Each page of a list, one after another.
    let all = |path: &str| {
        let (mut all, mut next) = (Vec::new(), String::new());
        loop {
            let page = rig.get(&format!("{path}{next}"));
            all.extend(page["items"].as_array().unwrap().iter().cloned().map(without));
            let Some(before) = page["next"].as_str() else { return all };
            next = format!("&after={before}");
        }
    };
    let one = |kind: &str, n: usize| {
        let item = rig.get(&format!("/v1/{kind}"))["items"][n].clone();
        format!("/v1/{kind}/{}", text(&item, "id"))
    };
    let shown = [
        one("events", 9),
        one("deliveries", 9),
        one("deliveries", 9) + "/attempts",
        one("deliveries", 9) + "/request",
        one("webhook-events", 1),
    ];
    let before = (paths.map(all), shown.clone().map(|path| without(rig.get(&path))));
    assert_eq!(before.0.clone().map(|all| all.len()), [10, 0, 1, 10, 2]);
    // The first five are in a file, then all are.
    for (days, left) in [(11, "5"), (21, "0")] {
        rig.advance(secs(days * DAY));
        rig.becomes(HOT, left);
        until("webhook events move as well", || {
            rig.one("SELECT count(*) FROM webhook_events") == if left == "5" { "1" } else { "0" }
        });
        assert_eq!(paths.map(all), before.0);
        assert_eq!(shown.clone().map(|path| without(rig.get(&path))), before.1);
    }
    assert_eq!(rig.get(&shown[0])["archived_in"], "2026-01");
    // A month whose keys are not known any more is read all the same.
    rig.write("DELETE FROM seen_keys");
    assert_eq!(all(paths[2]), before.0[2]);
    rig.call("GET", "/v1/events/019c13ec-9e00-70fe-86e5-db25a681b320", b"").is(404);
    rig.call("POST", &(shown[1].clone() + "/retry"), b"")
        .is(409)
        .tells("in the archive of 2026-01");
}

/// A replay brings an event back as itself: the same `webhook-id`, and the same number.
#[test]
fn a_replay_brings_an_event_back_as_itself() {
    let mut rig = Rig::with(monthly);
    let receiver = Receiver::new();
    rig.subscribe("erp", &receiver);
    publish(&rig, 0, 3);
    let id = rig.one("SELECT id FROM outbox WHERE seq = 1");
    let before = all_rows(&rig);
    rig.advance(secs(31 * DAY));
    rig.becomes(HOT, "0");
    let sent = |n: usize| receiver.seen()[n].field("webhook-id").unwrap().to_owned();
    let path = format!("/v1/events/{id}/replay");
    rig.post(&path, &json!({ "subscription": "unknown" })).is(422);
    rig.post(&path, &json!({})).is(200);
    rig.settle();
    assert_eq!((receiver.count(), sent(3)), (4, sent(0)));
    rig.says("SELECT group_concat(seq) FROM outbox", "1");
    assert!(rig.get(&format!("/v1/events/{id}"))["archived_in"].is_null());
    // It is one event for lists, and moves again when it is old, also over a restart.
    assert_eq!(rig.get("/v1/events")["items"].as_array().unwrap().len(), 3);
    rig.restart();
    rig.advance(secs(31 * DAY));
    rig.becomes(HOT, "0");
    let after = all_rows(&rig);
    assert_eq!(after[0].len(), before[0].len(), "each event is in one file");
    assert_eq!(rig.get(&format!("/v1/events/{id}"))["archived_in"], "2026-03");
    rig.post("/v1/events", &json!({ "event_type": "a", "idempotency_key": "k-0", "payload": 1 }))
        .is(200);
}

#[test]
fn a_person_moves_events_sees_the_months_and_deletes_one() {
    let rig = Rig::with(|settings| settings.archive.after = secs(31_557_600));
    let receiver = Receiver::new();
    rig.subscribe("erp", &receiver);
    publish(&rig, 0, 3);
    rig.advance(secs(40 * DAY));
    publish(&rig, 3, 5);
    let none = rig.get("/v1/archive");
    assert_eq!((&none["items"], &none["after"]), (&json!([]), &json!("1year")));
    let run = |body: Value| rig.post("/v1/archive/runs", &body);
    run(json!({ "older_than": "1h" })).is(422).tells("24h or more");
    run(json!({ "older_than": "soon" })).is(422).tells("is not a span");
    let would = run(json!({ "older_than": "30days", "dry_run": true })).is(200).json();
    assert_eq!(would["events"], 3);
    // Two months, if nothing else is said.
    assert_eq!(run(json!({ "dry_run": true })).is(200).json()["events"], 0);
    rig.says(HOT, "5");
    run(json!({ "older_than": "30days" })).is(200);
    let ended = || rig.get("/v1/archive")["run"].clone();
    until("the run ends", || ended()["since"].is_null() && !ended()["ended_at"].is_null());
    assert_eq!((&ended()["events"], &ended()["error"]), (&json!(3), &Value::Null));
    let archive = rig.get("/v1/archive");
    assert_eq!(archive["items"][0]["month"], "2026-01");
    assert!(archive["items"][0]["bytes"].as_u64().unwrap() > 4096);
    assert_eq!(archive["run"]["hot_events"], 2);
    let checks = rig.get("/readyz?verbose")["checks"].clone();
    let check = checks.as_array().unwrap().iter().find(|check| check["name"] == "archive").unwrap();
    shows(&text(check, "detail"), &["1 months", "2 events in the database", "the last run ended"]);
    let metrics = rig.call("GET", "/metrics", b"").is(200).text();
    shows(
        &metrics,
        &["oncebox_archive_months 1\n", "oncebox_events_hot 2\n", "oncebox_archive_run_failed 0\n"],
    );
    rig.call("DELETE", "/v1/archive/2026-02", b"").is(404);
    rig.call("DELETE", "/v1/archive/..%2foncebox", b"").is(404);
    let events = || rig.get("/v1/events")["items"].as_array().unwrap().len();
    assert_eq!(events(), 5);
    rig.call("DELETE", "/v1/archive/2026-01", b"").is(204);
    assert_eq!(events(), 2);
    assert!(months(&rig).is_empty());
    // Its events are gone, and still known.
    let again = json!({ "event_type": "a", "idempotency_key": "k-1", "payload": 1 });
    assert_eq!(
        rig.post("/v1/events", &again).is(200).json()["events"][0]["already_processed"],
        true
    );
    let audited =
        |action: &str| rig.get(&format!("/v1/audit-events?action={action}"))["items"][0].clone();
    assert_eq!(audited("archive.delete")["resource"]["id"], "2026-01");
    assert_eq!(audited("archive.run")["result"], "SUCCESS");
}

/// A replay that is refused brings nothing back for good: the event is in one file at each end.
#[test]
fn replays_of_archived_events_lose_and_double_nothing() {
    let (rig, receiver) = Rig::subscribed_with("erp", Receiver::new(), &json!({}));
    publish(&rig, 0, 6);
    let ids = rig.lines("SELECT id FROM outbox ORDER BY seq");
    rig.advance(secs(40 * DAY));
    let moved = || {
        rig.post("/v1/archive/runs", &json!({ "older_than": "30days" })).is(200);
        until("the run ends", || rig.get("/v1/archive")["run"]["since"].is_null());
        rig.says(HOT, "0");
    };
    moved();
    let everywhere = || {
        let mut all = rows(&rig.file(), "outbox");
        for (_, conn) in months(&rig) {
            all.extend(rows(&conn, "outbox"));
        }
        all.len()
    };
    for id in &ids {
        let path = format!("/v1/events/{id}/replay");
        rig.post(&path, &json!({ "subscription": "unknown" })).is(422);
        moved();
    }
    until("each is in one file", || everywhere() == 6);
    // Twice at once: the second finds what the first has brought back.
    let path = format!("/v1/events/{}/replay", ids[0]);
    let statuses: Vec<u16> = thread::scope(|scope| {
        let calls: Vec<_> =
            (0..4).map(|_| scope.spawn(|| rig.post(&path, &json!({})).status)).collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    assert!(
        statuses.contains(&200) && statuses.iter().all(|status| matches!(status, 200 | 409)),
        "{statuses:?}"
    );
    rig.settle();
    let again = statuses.iter().filter(|status| **status == 200).count();
    assert!((1..=again).contains(&(receiver.count() - 6)), "{} for {statuses:?}", receiver.count());
    until("each is in one file", || everywhere() == 6);
    assert_eq!(rig.get("/v1/events")["items"].as_array().unwrap().len(), 6);
    file::check(&rig.data().join("oncebox.db"));
}

/// "no accepted payload is sent twice" (docs/order.md): what a call protects stays.
#[test]
fn the_latest_call_about_a_thing_goes_into_its_month_and_no_older_one_is_made_later() {
    let order = json!({ "order": { "external_calls": "entity" } });
    let (rig, receiver) = Rig::subscribed_with("erp", Receiver::new(), &order);
    let state = |key: &str, at: &str| {
        rig.publish(&json!({
            "event_type": "customer.changed", "idempotency_key": key, "aggregate_type": "customer",
            "aggregate_id": "7", "occurred_at": at, "payload": { "state": key }
        }));
        rig.settle();
    };
    state("old", "2026-01-01T00:00:00Z");
    state("new", "2026-01-02T00:00:00Z");
    rig.advance(secs(40 * DAY));
    rig.post("/v1/archive/runs", &json!({ "older_than": "30days" })).is(200);
    until("the run ends", || rig.get("/v1/archive")["run"]["since"].is_null());
    rig.says(HOT, "0");
    let (_, month) = months(&rig).remove(0);
    let calls = "SELECT call_id || ' ' || operation_name || ' ' || state FROM external_call";
    assert_eq!(file::lines(&month, calls), ["2 customer.changed OK"]);
    assert!(rig.lines(calls).is_empty(), "it is in one file");
    state("older", "2026-01-01T12:00:00Z");
    assert_eq!(receiver.count(), 2, "an older state does not follow a newer one");
}

/// A subscription of the same name takes nothing from one that was deleted.
#[test]
fn deliveries_of_a_deleted_subscription_are_found_beside_a_new_one_of_its_name() {
    let rig = Rig::new();
    let receiver = Receiver::new();
    for n in 0..2 {
        rig.subscribe("erp", &receiver);
        publish(&rig, n, n + 1);
        rig.call("DELETE", "/v1/subscriptions/erp", b"").is(204);
    }
    rig.advance(secs(40 * DAY));
    for age in ["35days", "30days"] {
        rig.post("/v1/archive/runs", &json!({ "older_than": age })).is(200);
        until("the run ends", || rig.get("/v1/archive")["run"]["since"].is_null());
    }
    rig.says(HOT, "0");
    assert_eq!(rig.get("/v1/deliveries")["items"].as_array().unwrap().len(), 2);
}

/// Waits until no walk over the events can be under way, and one has been.
fn walked(rig: &Rig) {
    let ended = || rig.get("/v1/archive")["run"]["ended_at"].clone();
    let before = ended();
    rig.advance(secs(3601));
    until("a walk ends", || ended() != before && rig.get("/v1/archive")["run"]["since"].is_null());
}

/// Waits until no month has a file.
#[track_caller]
fn is_deleted(rig: &Rig) {
    until("the month is deleted", || {
        let archive = rig.get("/v1/archive");
        assert_eq!(archive["run"]["error"], Value::Null, "{archive}");
        months(rig).is_empty()
    });
}

/// Issue: "settable, per tenant where it differs".
#[test]
fn a_tenant_may_have_a_longer_time_in_the_database() {
    let rig = Rig::with(|settings| {
        settings.archive.after_of.insert("acme".to_owned(), secs(90 * DAY));
    });
    rig.post("/v1/tenants", &json!({ "name": "acme", "pii": "allow" })).is(201);
    let receiver = Receiver::new();
    for token in [rig.token_in("acme", "admin"), rig.token_of("admin")] {
        let erp = json!({ "name": "erp", "url": receiver.url() });
        rig.post_as(&token, "/v1/subscriptions", &erp).is(201);
        rig.post_as(&token, "/v1/events", &json!({ "event_type": "a", "payload": 1 })).is(201);
    }
    rig.settle();
    rig.advance(secs(31 * DAY));
    rig.becomes("SELECT group_concat(tenant) FROM outbox", "acme");
    rig.advance(secs(31 * DAY));
    walked(&rig);
    rig.says("SELECT group_concat(tenant) FROM outbox", "acme");
    rig.advance(secs(31 * DAY));
    rig.becomes(HOT, "0");
}

/// Issue: "`legal_hold` on a filter stops moving and deleting".
#[test]
fn what_a_legal_hold_is_about_stays_where_it_is() {
    let rig = Rig::new();
    let receiver = Receiver::new();
    rig.subscribe("erp", &receiver);
    let invoice = |n: usize| {
        let key = format!("i-{n}");
        rig.publish(&json!({ "event_type": "invoice.paid", "idempotency_key": key, "aggregate_type": "invoice",
                             "aggregate_id": n.to_string(), "payload": n }));
        rig.settle();
    };
    publish(&rig, 0, 2);
    invoice(1);
    invoice(2);
    let hold = json!({ "name": "audit", "reason": "Tax audit", "event_type": "invoice.paid",
                       "aggregate_type": "invoice", "aggregate_id": "2" });
    rig.post("/v1/legal-holds", &json!({ "name": "audit", "reason": "" })).is(422).tells("reason");
    rig.post("/v1/legal-holds", &json!({ "name": "x", "reason": "y", "typo": 1 }))
        .is(400)
        .tells("typo");
    rig.post("/v1/legal-holds", &json!({ "name": "x", "reason": "y", "tenant": "nobody" })).is(422);
    rig.post("/v1/legal-holds", &hold).is(201);
    rig.post("/v1/legal-holds", &hold).is(409);
    rig.advance(secs(31 * DAY));
    rig.becomes(HOT, "1");
    walked(&rig);
    rig.says("SELECT idempotency_key FROM outbox", "i-2");
    // Once it is in a month, the month stays: here by a hold that came later.
    let of_month = json!({ "name": "all", "reason": "A law case", "since": "2026-01-01T00:00:00Z",
                           "until": "2027-01-01T00:00:00Z" });
    rig.post("/v1/legal-holds", &of_month).is(201);
    rig.call("DELETE", "/v1/archive/2026-01", b"").is(409).tells("A legal hold");
    rig.advance(secs(400 * DAY));
    walked(&rig);
    let names = || months(&rig).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(names(), ["2026-01.db"]);
    let listed = rig.get("/v1/legal-holds")["items"].clone();
    assert_eq!((&listed[0]["name"], &listed[1]["name"]), (&json!("audit"), &json!("all")));
    for name in ["all", "audit"] {
        rig.call("DELETE", &format!("/v1/legal-holds/{name}"), b"").is(204);
    }
    rig.call("DELETE", "/v1/legal-holds/all", b"").is(404);
    // The event that was held moves, and its month is kept for a year from then.
    rig.advance(secs(3601));
    rig.becomes(HOT, "0");
    rig.advance(secs(360 * DAY));
    walked(&rig);
    assert_eq!(names(), ["2026-01.db"]);
    rig.advance(secs(10 * DAY));
    is_deleted(&rig);
}

/// A month in a file of its own, and its path.
fn one_month() -> (Rig, PathBuf) {
    let rig = Rig::with(|settings| settings.archive.after = secs(31_557_600));
    let receiver = Receiver::new();
    rig.subscribe("erp", &receiver);
    publish(&rig, 0, 3);
    rig.advance(secs(40 * DAY));
    rig.post("/v1/archive/runs", &json!({ "older_than": "30days" })).is(200);
    rig.becomes(HOT, "0");
    until("the run ends", || rig.get("/v1/archive")["run"]["since"].is_null());
    let path = rig.data().join("archive/2026-01.db");
    assert!(path.exists());
    (rig, path)
}

const CLAIMED: &str = "SELECT count(*) FROM claimed_effects";

#[test]
fn a_month_that_may_be_gone_although_its_deletion_failed_is_finished_later() {
    let (rig, path) = one_month();
    // A directory in the place of the index cannot be deleted as a file.
    let in_the_way = PathBuf::from(format!("{}-shm", path.display()));
    let _index = fs::remove_file(&in_the_way);
    fs::create_dir(&in_the_way).unwrap();
    rig.call("DELETE", "/v1/archive/2026-01", b"").is(503).tells("It is tried again");
    rig.says(CLAIMED, "1");
    // The file is gone, as after a sync of the directory that failed.
    fs::remove_file(&path).unwrap();
    fs::remove_dir(&in_the_way).unwrap();
    rig.becomes(CLAIMED, "0");
    let deleted =
        "SELECT count(*) FROM audit_events WHERE action = 'archive.delete' AND result = 'SUCCESS'";
    rig.says(deleted, "1");
}

#[test]
fn a_month_whose_deletion_fails_stays_claimed_until_a_legal_hold_needs_it() {
    let (rig, path) = one_month();
    let in_the_way = PathBuf::from(format!("{}-shm", path.display()));
    let _index = fs::remove_file(&in_the_way);
    fs::create_dir(&in_the_way).unwrap();
    rig.call("DELETE", "/v1/archive/2026-01", b"").is(503);
    rig.call("DELETE", "/v1/archive/2026-01", b"").is(409).tells("being deleted");
    let alone = rig.appliance().api().flow.archiving.archive.write_alone();
    assert!(hold_all(&rig));
    fs::remove_dir(&in_the_way).unwrap();
    drop(alone);
    rig.becomes(CLAIMED, "0");
    assert!(path.exists());
}

/// Stores a legal hold on everything, as a request does that writes alone; returns whether it was stored.
fn hold_all(rig: &Rig) -> bool {
    let terms = Terms { reason: "A law case".to_owned(), ..Terms::default() };
    let name = Name::parse("all").unwrap();
    let now = rig.now();
    let made = rig.appliance().store().writer().write(Queue::Accept, move |tx| {
        let id = "019c1447-5800-7000-8000-00000000abcd";
        legal_holds::insert(tx, id, "default", &name, &terms, now)
    });
    made.unwrap()
}

/// A new hold and the deletion of a month exclude each other: whoever is first, what the hold needs stays, or is gone
/// before the hold is answered.
#[test]
fn no_legal_hold_is_made_between_the_claim_of_a_month_and_its_deletion() {
    let (rig, path) = one_month();
    let archive = rig.appliance().api().flow.archiving.archive.clone();
    thread::scope(|scope| {
        // A hold is being made.
        let alone = archive.write_alone();
        let deleting = scope.spawn(|| rig.call("DELETE", "/v1/archive/2026-01", b""));
        // Long enough for a claim that does not wait for the hold; one that waits is never seen.
        for _ in 0..50 {
            if rig.one(CLAIMED) != "0" {
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
        assert!(hold_all(&rig));
        drop(alone);
        deleting.join().unwrap().is(409);
    });
    assert!(path.exists());
    rig.says(CLAIMED, "0");
}

/// Defaults of the spec: 30 days in the database, a year in the archive, keys known for a year.
#[test]
fn months_and_keys_are_forgotten_after_a_year() {
    let rig = Rig::new();
    let receiver = Receiver::new();
    rig.subscribe("erp", &receiver);
    publish(&rig, 0, 3);
    rig.advance(secs(31 * DAY));
    rig.becomes(HOT, "0");
    rig.advance(secs(330 * DAY));
    walked(&rig);
    assert_eq!(months(&rig).len(), 1);
    rig.says("SELECT count(*) FROM seen_keys", "3");
    rig.advance(secs(40 * DAY));
    is_deleted(&rig);
    let audited = || rig.get("/v1/audit-events?action=archive.delete")["items"][0].clone();
    until("it is audited", || !audited().is_null());
    let audited = audited();
    assert_eq!(
        (&audited["resource"]["id"], &audited["actor"]["type"]),
        (&json!("2026-01"), &json!("system"))
    );
    rig.advance(secs(40 * DAY));
    rig.becomes("SELECT count(*) FROM seen_keys", "0");
    assert_eq!(rig.get("/v1/events")["items"].as_array().unwrap().len(), 0);
}

/// What is archived long after it finished is kept as long: an old database loses nothing when it is upgraded.
#[test]
fn a_month_is_kept_for_a_year_from_when_it_was_made() {
    let rig = Rig::with(|settings| settings.archive.after = secs(1000 * DAY));
    let receiver = Receiver::new();
    rig.subscribe("erp", &receiver);
    publish(&rig, 0, 3);
    rig.advance(secs(800 * DAY));
    rig.post("/v1/archive/runs", &json!({ "older_than": "30days" })).is(200);
    rig.becomes(HOT, "0");
    walked(&rig);
    rig.advance(secs(360 * DAY));
    walked(&rig);
    assert_eq!(months(&rig).len(), 1);
    rig.advance(secs(10 * DAY));
    is_deleted(&rig);
}

/// Bytes of the database.
const BYTES: &str = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()";
/// Bytes of a database that has given back what it does not need: 8 MiB of unused pages stay.
const SMALL: u64 = 10_000_000;

/// Issue: "Space comes back", in small steps, and a step that fails loses nothing.
#[test]
fn the_file_gets_smaller_after_its_events_are_moved() {
    let rig = Rig::new();
    let receiver = Receiver::new();
    rig.subscribe("erp", &receiver);
    let text = "x".repeat(200_000);
    for n in 0..150 {
        let key = format!("k-{n}");
        rig.publish(&json!({ "event_type": "a", "idempotency_key": key, "payload": text }));
    }
    rig.settle();
    let size = || rig.one(BYTES).parse::<u64>().unwrap();
    let before = size();
    assert!(before > 28_000_000, "{before}");
    rig.advance(secs(31 * DAY));
    rig.becomes(HOT, "0");
    until("the file is small", || size() < SMALL);
    let on_disk = || fs::metadata(rig.data().join("oncebox.db")).unwrap().len();
    until("the log is copied into it", || on_disk() < SMALL);
    assert_eq!(rig.get("/v1/events?limit=100")["items"].as_array().unwrap().len(), 100);
    file::check(&rig.data().join("oncebox.db"));
}

/// The disk refuses at a step of giving room back: the file is whole, and the next run goes on.
#[test]
fn a_file_that_fails_to_get_smaller_is_whole_and_gets_smaller_later() {
    let text = "x".repeat(250_000);
    let mut failed = 0;
    // Each event is a batch of three steps, unless four of them are one; then come the steps that give room back.
    for nth in (60..200).step_by(7) {
        let faults = Faults::at(Step::Archive, nth);
        let mut rig = Rig::try_with(monthly, faults.clone()).unwrap();
        let receiver = Receiver::new();
        rig.subscribe("erp", &receiver);
        for n in 0..60 {
            rig.publish(&json!({ "event_type": "a", "payload": { "n": n, "text": text } }));
        }
        rig.settle();
        let before = all_rows(&rig);
        rig.advance(secs(31 * DAY));
        until("its run is over", || {
            let run = rig.get("/v1/archive")["run"].clone();
            run["since"].is_null() && (run["error"].is_string() || rig.one(HOT) == "0")
        });
        if !faults.happened() {
            break;
        }
        failed += u32::from(rig.one(HOT) == "0");
        file::check(&rig.data().join("oncebox.db"));
        rig.restart();
        rig.becomes(HOT, "0");
        until("the file is small", || rig.one(BYTES).parse::<u64>().unwrap() < SMALL);
        assert_eq!(all_rows(&rig), before, "{nth}");
    }
    assert!(failed > 1, "{failed} failed while the file got smaller");
}

/// Issue: "by id, key, webhook-id or aggregate without naming a month".
#[test]
fn an_archived_event_is_found_by_what_a_person_has() {
    let rig = Rig::new();
    let receiver = Receiver::new();
    rig.subscribe("erp", &receiver);
    for n in 0..4 {
        rig.publish(&json!({ "event_type": "invoice.paid", "idempotency_key": format!("key-{n}"), "aggregate_type": "invoice",
                             "aggregate_id": format!("A-{n}"), "payload": n }));
        rig.settle();
        rig.advance(secs(35 * DAY));
    }
    rig.becomes(HOT, "0");
    assert_eq!(months(&rig).len(), 4);
    let all = rig.get("/v1/events")["items"].clone();
    let third = &all[1];
    let (id, webhook_id) = (text(third, "id"), text(third, "webhook_id"));
    for text in [id.as_str(), "key-2", "A-2", webhook_id.as_str(), "dlv_3"] {
        let found = rig.get(&format!("/v1/search?q={text}"))["items"].clone();
        let hit = &found[0];
        assert_eq!(found.as_array().unwrap().len(), 1, "{text}: {found}");
        assert_eq!(hit["archived_in"], "2026-04", "{text}: {hit}");
    }
    for query in [
        format!("webhook_id={webhook_id}"),
        "idempotency_key=key-2".to_owned(),
        "aggregate_type=invoice&aggregate_id=A-2".to_owned(),
        "since=2026-04-01T00:00:00Z&until=2026-05-01T00:00:00Z".to_owned(),
    ] {
        let found = rig.get(&format!("/v1/events?{query}"));
        assert_eq!(found["items"].as_array().unwrap().len(), 1, "{query}: {found}");
        assert_eq!(found["items"][0]["id"].as_str(), Some(id.as_str()), "{query}");
        assert_eq!(found["next"], Value::Null, "{query}");
    }
    // Among the operational and the other fields nothing is found twice.
    let found = rig.get("/v1/search?q=invoice.paid&operational=true")["items"].clone();
    assert_eq!(found.as_array().unwrap().len(), 4);
}

/// The columns of the seeds' tables, by the names of the views.
const SEEDS: [(&str, &str); 10] = [
    (
        "webhook_events",
        "event_id received_at provider provider_event_id event_type payload status processing_started_at completed_at \
         error_message retry_count",
    ),
    (
        "webhook_subscriptions",
        "id owner_id url events secret_encrypted status failure_count last_success_at last_failure_at created_at \
         updated_at",
    ),
    (
        "audit_events",
        "id occurred_at actor_type actor_id actor_display actor_ip actor_user_agent action resource_type resource_id \
         result correlation_id request_id method path status_code diff_before diff_after",
    ),
    (
        "integration_outbox",
        "outbox_id aggregate_type aggregate_id event_type target_provider payload status attempts max_attempts \
         next_attempt_at last_error created_at completed_at",
    ),
    (
        "outbox_events",
        "id aggregate_type aggregate_id event_type payload status attempts last_error created_at published_at",
    ),
    (
        "webhook_deliveries",
        "id subscription_id event_id status attempts next_retry_at http_status http_response_body_excerpt latency_ms \
         first_attempt_at last_attempt_at",
    ),
    (
        "message",
        "msg_id msg_timestamp receive_timestamp service_name operation_name object_id entity_type correlation_id \
         process_id payload envelope source_system state failed_count failed_error_code failed_desc \
         last_process_timestamp custom_data parent_msg_id parent_binding_type funnel_value funnel_component_id \
         guaranteed_order exclude_failed_state",
    ),
    (
        "external_call",
        "call_id msg_id operation_name state entity_id msg_timestamp creation_timestamp last_update_timestamp \
         failed_count",
    ),
    ("request", "req_id msg_id res_join_id uri req_envelope req_timestamp"),
    ("response", "res_id req_id res_envelope failed_reason res_timestamp failed msg_id"),
];

/// What `oncebox archive views` prints.
fn views(rig: &Rig, more: &[&str]) -> String {
    let data = rig.data();
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("oncebox"));
    let ran = command.args(["archive", "views", "--data"]).arg(&data).args(more).output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
    String::from_utf8(ran.stdout).unwrap()
}

/// A report over database and archive, as an administrator runs it.
fn report(rig: &Rig, sql: &str) -> Vec<String> {
    let init = rig.home().join("views.sql");
    fs::write(&init, views(rig, &[])).unwrap();
    let database = rig.data().join("oncebox.db");
    let mut shell = Command::new("sqlite3");
    let Ok(ran) =
        shell.args(["-batch", "-readonly", "-init"]).args([&init, &database]).arg(sql).output()
    else {
        let conn = rig.file();
        conn.execute_batch(&fs::read_to_string(&init).unwrap()).unwrap();
        return file::lines(&conn, sql);
    };
    assert!(
        ran.status.success() && !String::from_utf8_lossy(&ran.stderr).contains("rror"),
        "{sql}: {ran:?}"
    );
    String::from_utf8(ran.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// "The seeds' names as views over hot and archived": one event moved, one did not.
#[test]
fn reports_by_the_names_of_other_outboxes_read_database_and_archive() {
    let replies = [Reply::status(200), Reply::status(200), Reply::status(503)];
    let order = json!({ "order": { "external_calls": "entity" } });
    // A report names the months that there are: none may come between making its SQL and running it.
    let rig = Rig::with(|settings| settings.archive.after = secs(400 * DAY));
    let receiver = Receiver::scripted(replies);
    rig.subscribe_with("erp", &receiver, &order);
    let publish = |key: &str, customer: &str| {
        rig.publish(&json!({
            "event_type": "customer.changed", "idempotency_key": key, "aggregate_type": "customer",
            "aggregate_id": customer, "occurred_at": "2026-01-30T10:00:00Z", "payload": { "key": key },
            "headers": { "x-region": "north" },
        }));
        rig.settle();
    };
    publish("moved", "7");
    // The latest call about a customer goes with its event, and still keeps an older one from being made.
    publish("later", "7");
    rig.advance(secs(40 * DAY));
    publish("hot", "8");
    // Nothing may be due any more while the last answer is not stored yet.
    until("each was answered", || rig.one("SELECT count(*) FROM attempts") == "3");
    let run = || {
        rig.post("/v1/archive/runs", &json!({ "older_than": "30days" })).is(200);
        until("the run ends", || rig.get("/v1/archive")["run"]["since"].is_null());
    };
    let counts = || -> Vec<Vec<String>> {
        SEEDS.map(|(view, _)| report(&rig, &format!("SELECT count(*) FROM {view}"))).to_vec()
    };
    let before = counts();
    run();
    rig.says("SELECT group_concat(seq) FROM outbox", "3");
    // The run itself is audited.
    let events = |counts: &[Vec<String>]| {
        counts
            .iter()
            .zip(SEEDS)
            .filter(|(_, (view, _))| *view != "audit_events")
            .map(|(c, _)| c.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(events(&counts()), events(&before), "each row is counted once");
    for (view, wanted) in SEEDS {
        let wanted: Vec<&str> = words(wanted);
        let named = report(&rig, &format!("SELECT name FROM pragma_table_info('{view}')"));
        // `request` and `response` have further columns.
        let of_seed = named.iter().filter(|name| wanted.contains(&name.as_str())).count();
        assert_eq!(of_seed, wanted.len(), "{view}: {named:?}");
        let columns = wanted.join(", ");
        report(&rig, &format!("SELECT count(*) FROM (SELECT DISTINCT {columns} FROM {view})"));
    }
    the_columns_say_what_the_seeds_mean(&rig);
}

fn the_columns_say_what_the_seeds_mean(rig: &Rig) {
    let says = |sql: &str, wanted: [&str; 3]| assert_eq!(report(rig, sql), wanted, "{sql}");
    says(
        "SELECT event_type || ' ' || aggregate_id || ' ' || target_provider || ' ' || status || ' ' || attempts
                || ' ' || coalesce(last_error, '-') || ' ' || coalesce(next_attempt_at > created_at, date(completed_at))
           FROM integration_outbox ORDER BY created_at, payload DESC",
        [
            "customer.changed 7 erp completed 1 - 2026-01-31",
            "customer.changed 7 erp completed 1 - 2026-01-31",
            "customer.changed 8 erp failed 1 the target answered 503 1",
        ],
    );
    says(
        "SELECT status || ' ' || attempts || ' ' || coalesce(date(published_at), '-') FROM outbox_events ORDER BY created_at, payload DESC",
        ["PUBLISHED 1 2026-01-31", "PUBLISHED 1 2026-01-31", "PENDING 1 -"],
    );
    says(
        "SELECT w.status || ' ' || w.http_status || ' ' || coalesce(w.next_retry_at > w.last_attempt_at, '-')
                || ' ' || e.payload
           FROM webhook_deliveries AS w JOIN outbox_events AS e ON e.id = w.event_id ORDER BY e.created_at, e.payload DESC",
        [
            r#"DELIVERED 200 - {"key":"moved"}"#,
            r#"DELIVERED 200 - {"key":"later"}"#,
            r#"FAILED 503 1 {"key":"hot"}"#,
        ],
    );
    says(
        "SELECT m.msg_id || ' ' || msg_timestamp || ' ' || service_name || ' ' || correlation_id || ' ' || state || ' '
                || failed_count || ' ' || coalesce(failed_error_code, '-') || ' ' || r.failed || ' '
                || date(last_process_timestamp)
           FROM message AS m JOIN response AS r ON r.msg_id = m.msg_id ORDER BY m.msg_id",
        [
            "1 2026-01-30 10:00:00.000 customer moved OK 0 - 0 2026-01-31",
            "2 2026-01-30 10:00:00.000 customer later OK 0 - 0 2026-01-31",
            "3 2026-01-30 10:00:00.000 customer hot PARTLY_FAILED 1 503 1 2026-03-12",
        ],
    );
    let calls = "SELECT msg_id || ' ' || operation_name || ' ' || entity_id || ' ' || state FROM external_call ORDER BY msg_id";
    assert_eq!(
        report(rig, calls),
        [
            "2 customer.changed customer.changed/7 OK",
            "3 customer.changed customer.changed/8 FAILED"
        ]
    );
    let audited =
        "SELECT resource_type || ' ' || actor_type || ' ' || json_extract(diff_after, '$.name')
                     FROM audit_events WHERE action = 'subscription.create'";
    assert_eq!(report(rig, audited), ["subscription SERVICE erp"]);
    let envelopes = "SELECT DISTINCT replace(substr(envelope, 1, instr(envelope, '{') - 1), char(10), '|') FROM message";
    assert_eq!(report(rig, envelopes), ["content-type: application/json|x-region: north||"]);
    let subscriptions = "SELECT events || ' ' || status || ' ' || (length(secret_encrypted) > 40) FROM webhook_subscriptions";
    assert_eq!(report(rig, subscriptions), [r#"["*"] ACTIVE 1"#]);
}

/// A crash may leave an event in the database and in its month; it is counted once.
#[test]
fn an_event_in_the_database_and_in_a_month_is_counted_once() {
    let (rig, _receiver) = Rig::subscribed("erp");
    publish(&rig, 0, 2);
    let copy = rig.home().join("copy.db");
    rig.write(&format!("VACUUM INTO '{}'", copy.display()));
    fs::create_dir(rig.data().join("archive")).unwrap();
    fs::rename(&copy, rig.data().join("archive/2026-01.db")).unwrap();
    publish(&rig, 2, 3);
    for (view, _) in SEEDS {
        let count = match view {
            "external_call" | "webhook_events" => "0",
            "webhook_subscriptions" => "1",
            // The token of the test, and the subscription.
            "audit_events" => "2",
            _ => "3",
        };
        assert_eq!(report(&rig, &format!("SELECT count(*) FROM {view}")), [count], "{view}");
    }
}

#[test]
fn views_attach_nine_months_and_name_those_they_leave_out() {
    let (rig, _receiver) = Rig::subscribed("erp");
    fs::create_dir(rig.data().join("archive")).unwrap();
    for month in 1..=11 {
        let file = rig.data().join(format!("archive/2025-{month:02}.db"));
        rig.write(&format!("VACUUM INTO '{}'", file.display()));
    }
    // The file of an older version has no such views.
    let old = Connection::open(rig.data().join("archive/2025-11.db")).unwrap();
    old.run("DROP VIEW message");
    let sql = views(&rig, &[]);
    assert_eq!(sql.matches("ATTACH ").count(), 9);
    shows(&sql, &["left out, 9 are attached: 2025-02", "its schema is older: message of 2025-11"]);
    assert_eq!(report(&rig, "SELECT count(*) FROM message"), ["0"]);
    let sql = views(&rig, &["--since", "2025-01", "--until", "2025-02"]);
    assert_eq!((sql.matches("ATTACH ").count(), sql.contains("left out")), (2, false));
}

/// Publishes two events with something personal, one of them with a large body.
fn publish_personal(rig: &Rig, n: usize) {
    for event_type in ["customer.changed", "invoice.paid"] {
        let key = format!("{event_type}-{n}");
        let text = "x".repeat(if n.is_multiple_of(2) { 20_000 } else { 10 });
        rig.publish(
            &json!({ "event_type": event_type, "idempotency_key": key, "custom_data": "marker-77",
                             "payload": { "secret": "marker-77", "text": text } }),
        );
    }
    rig.settle();
}

/// The job of an expunge, once it has ended.
#[track_caller]
fn expunged(rig: &Rig, path: &str, filter: &Value) -> Value {
    let body = json!({ "filter": filter, "reason": "Not needed" });
    let job = rig.post(path, &body).is(201).json();
    let path = format!("/v1/jobs/{}", text(&job, "id"));
    until("the job ends", || rig.get(&path)["state"] == "completed");
    rig.get(&path)
}

/// Whether a file or a log has the bytes.
fn is_anywhere(rig: &Rig, bytes: &[u8]) -> bool {
    let files = [rig.data(), rig.data().join("archive")];
    let mut paths = files.iter().flat_map(|dir| fs::read_dir(dir).unwrap());
    paths.any(|entry| {
        let path = entry.unwrap().path();
        path.to_string_lossy().contains(".db")
            && fs::read(path).unwrap().windows(bytes.len()).any(|part| part == bytes)
    })
}

/// Issue: "payloads, sent requests and answers of finished events by filter, hot and archived; identity, hashes, states
/// and the chain stay, and show says what was removed and when".
#[test]
fn what_finished_events_have_is_removed_in_the_database_and_in_the_archive() {
    let rig = Rig::new();
    let receiver = Receiver::new();
    rig.subscribe_with("erp", &receiver, &json!({ "format": "standard_webhooks" }));
    let secret = "a-shared-secret-of-32-characters";
    rig.token_provider("shop", secret);
    receiver.always(Reply::Answer(200, Vec::new(), b"thank you for marker-77".to_vec()));
    publish_personal(&rig, 1);
    publish_personal(&rig, 2);
    rig.send("POST", "/in/shop", &[("X-Token", secret)], b"marker-77").is(200);
    rig.settle();
    rig.advance(secs(31 * DAY));
    rig.becomes(HOT, "0");
    rig.advance(secs(31 * DAY));
    publish_personal(&rig, 3);
    publish_personal(&rig, 4);
    let hold = json!({ "name": "audit", "reason": "Tax audit", "until": "2026-02-15T00:00:00Z",
                       "aggregate_id": "none" });
    rig.post("/v1/legal-holds", &hold).is(201);
    let expunge = |body: Value| rig.post("/v1/events/expunge", &body);
    let filter = json!({ "event_type": "customer.changed" });
    expunge(json!({ "filter": filter })).is(400);
    expunge(json!({ "filter": { "class": "auth" }, "reason": "x" })).is(422).tells("class");
    let would = expunge(json!({ "filter": filter, "reason": "x", "dry_run": true })).is(200).json();
    assert_eq!((&would["count"], &would["more"]), (&json!(4), &json!(false)));
    let before = rig.get("/v1/events")["items"].clone();
    let job = expunged(&rig, "/v1/events/expunge", &filter);
    assert_eq!((&job["done"], &job["matched"], &job["skipped"]), (&json!(4), &json!(4), &json!(0)));
    expunged(&rig, "/v1/webhook-events/expunge", &json!({ "provider": "shop" }));
    let after = rig.get("/v1/events")["items"].clone();
    for (was, is) in before.as_array().unwrap().iter().zip(after.as_array().unwrap()) {
        let mut without = is.clone();
        let at = without.as_object_mut().unwrap().remove("expunged_at");
        let id = text(is, "id");
        let shown = rig.get(&format!("/v1/events/{id}"));
        if was["event_type"] == "customer.changed" {
            assert!(at.is_some_and(|at| at.is_string()), "{is}");
            assert!(!shown.to_string().contains("marker-77"), "{shown}");
            let path = format!("/v1/events/{id}/replay");
            rig.post(&path, &json!({})).is(409).tells("Its payload was removed");
            rig.post(&path, &json!({ "as_new": true })).is(409).tells("Its payload was removed");
        } else {
            assert!(shown.to_string().contains("marker-77"), "{shown}");
        }
        for field in
            ["id", "idempotency_key", "webhook_id", "status", "received_at", "completed_at"]
        {
            assert_eq!(was[field], is[field], "{field}");
        }
    }
    // No file has a trace of them, nor has a log.
    assert!(is_anywhere(&rig, b"marker-77"));
    assert_eq!(expunged(&rig, "/v1/events/expunge", &json!({}))["done"], 4);
    until("no file has it", || !is_anywhere(&rig, b"marker-77"));
    rig.get("/v1/audit-events/verification");
    file::check(&rig.data().join("oncebox.db"));
    // What is sent again is known, and is no other content.
    let again =
        json!({ "event_type": "invoice.paid", "idempotency_key": "invoice.paid-4", "payload": 1 });
    assert_eq!(
        rig.post("/v1/events", &again).is(200).json()["events"][0]["already_processed"],
        true
    );
}

/// A hold is also obeyed by an expunge, in the database and in a month.
/// A batch that is being carried out has read the holds before, so a hold that is answered knows its end.
#[test]
fn a_legal_hold_is_answered_after_a_batch_that_runs_in_a_month() {
    let (rig, _path) = one_month();
    let archive = rig.appliance().api().flow.archiving.archive.clone();
    thread::scope(|scope| {
        let batch = archive.write_alone();
        let holding = scope.spawn(|| {
            rig.post("/v1/legal-holds", &json!({ "name": "audit", "reason": "A law case" })).is(201)
        });
        thread::sleep(secs(1));
        let is_answered = holding.is_finished();
        drop(batch);
        holding.join().unwrap();
        assert!(!is_answered, "the hold was answered while a batch that does not know it goes on");
    });
}

#[test]
fn what_a_legal_hold_is_about_is_not_expunged() {
    let rig = Rig::new();
    let receiver = Receiver::new();
    rig.subscribe("erp", &receiver);
    publish(&rig, 0, 2);
    rig.advance(secs(31 * DAY));
    rig.becomes(HOT, "0");
    publish(&rig, 2, 4);
    rig.post("/v1/legal-holds", &json!({ "name": "all", "reason": "A law case" })).is(201);
    let expunge = || expunged(&rig, "/v1/events/expunge", &json!({}))["done"].clone();
    assert_eq!(expunge(), 0);
    rig.call("DELETE", "/v1/legal-holds/all", b"").is(204);
    assert_eq!(expunge(), 4);
    assert_eq!(expunge(), 0);
}

/// Issue: "Legal holds that hold nothing are accepted".
#[test]
fn a_legal_hold_that_can_keep_nothing_is_refused_and_another_one_says_what_it_keeps() {
    let rig = Rig::new();
    let receiver = Receiver::new();
    rig.subscribe("erp", &receiver);
    publish(&rig, 0, 2);
    rig.advance(secs(31 * DAY));
    rig.becomes(HOT, "0");
    publish(&rig, 2, 5);
    let hold = |more: &Value| {
        let body = merged(json!({ "name": "audit", "reason": "A law case" }), more);
        rig.post("/v1/legal-holds", &body)
    };
    let (early, late) = ("2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z");
    for (terms, why) in [
        (json!({ "since": late, "until": early }), "until"),
        (json!({ "since": early, "until": early }), "until"),
        (json!({ "event_type": "*" }), "event_type is a pattern"),
        (json!({ "event_type": "invoice.*" }), "event_type is a pattern"),
        (json!({ "aggregate_type": "*" }), "aggregate_type is a pattern"),
        (json!({ "aggregate_id": "" }), "aggregate_id is empty"),
    ] {
        let detail = text(&hold(&terms).is(422).json(), "detail");
        shows(&detail, &[why, "keep nothing"]);
    }
    hold(&json!({ "event_type": "" })).is(422).tells("event_type");
    hold(&json!({ "event_type": "invoice paid" })).is(422).tells("event_type");
    let made = hold(&json!({})).is(201).json();
    let covers = |events: usize| json!({ "events": events, "webhook_events": 0, "more": false });
    assert_eq!(made["covers"], covers(5), "in the database and in the month");
    // A dry run says the same as the job does.
    let dry_run = || {
        let body = json!({ "filter": {}, "reason": "Not needed", "dry_run": true });
        rig.post("/v1/events/expunge", &body).is(200).json()["count"].clone()
    };
    assert_eq!(dry_run(), 0);
    rig.call("DELETE", "/v1/legal-holds/audit", b"").is(204);
    assert_eq!(dry_run(), 5);
    let of_later = json!({ "name": "later", "since": early });
    assert_eq!(hold(&of_later).is(201).json()["covers"], covers(3));
    assert_eq!(dry_run(), 2);
    assert_eq!(expunged(&rig, "/v1/events/expunge", &json!({}))["done"], 2);
}

/// A month that an older binary made gets the schema of the database at the start.
#[test]
fn months_are_upgraded_with_the_database() {
    let mut rig = Rig::new();
    let receiver = Receiver::new();
    rig.subscribe("erp", &receiver);
    publish(&rig, 0, 3);
    rig.advance(secs(31 * DAY));
    rig.becomes(HOT, "0");
    rig.stop();
    // Version 9 had no such columns and tables.
    let older = Connection::open(rig.data().join("archive/2026-01.db")).unwrap();
    older.run("DROP VIEW integration_outbox; DROP VIEW outbox_events; DROP VIEW webhook_deliveries; DROP VIEW message;
               DROP VIEW external_call; DROP VIEW request; DROP VIEW webhook_subscriptions; DROP TABLE past_renderings;
               ALTER TABLE webhook_events DROP COLUMN event_id; ALTER TABLE webhook_events DROP COLUMN type_field; ALTER TABLE webhook_events DROP COLUMN origin; DROP TABLE reconciliations; ALTER TABLE providers DROP COLUMN reconcile;
               ALTER TABLE attempts DROP COLUMN named; DROP TABLE legal_holds; DROP TABLE seen_sources;
               ALTER TABLE outbox DROP COLUMN expunged_at; ALTER TABLE webhook_events DROP COLUMN expunged_at;
               DROP TABLE seen_keys; DROP TRIGGER search_values_end; DROP TRIGGER search_values_change;
               DROP TABLE search_values; DROP TABLE claimed_effects; DROP TABLE chores; ALTER TABLE external_calls DROP COLUMN sent_method;
               ALTER TABLE external_calls DROP COLUMN sent_url; ALTER TABLE jobs DROP COLUMN reached;
               ALTER TABLE event_types DROP COLUMN search_paths; DROP TABLE past_holds; DROP TABLE recent_attempts; DROP TABLE history; ALTER TABLE boots DROP COLUMN seen_at;
               ALTER TABLE tenants DROP COLUMN event_mail_count; DROP INDEX escalations_latest; ALTER TABLE escalations DROP COLUMN reopened_at;
               CREATE TABLE seen_keys (hash BLOB PRIMARY KEY, id TEXT, status TEXT, month TEXT, seen_at INTEGER);
               PRAGMA user_version = 9");
    drop(older);
    rig.start_again();
    assert_eq!(rig.get("/v1/events")["items"].as_array().unwrap().len(), 3);
    let (_, month) = months(&rig).remove(0);
    assert_eq!(
        file::lines(&month, "PRAGMA user_version"),
        file::lines(&rig.file(), "PRAGMA user_version")
    );
    // It can be written as well.
    publish(&rig, 3, 4);
    rig.post("/v1/events/expunge", &json!({ "filter": {}, "reason": "x" })).is(201);
    until("all are expunged", || {
        file::lines(&months(&rig)[0].1, "SELECT count(*) FROM outbox WHERE expunged_at IS NULL")
            == ["0"]
    });
}

/// A clock that is years ahead at a start costs nothing if it is set within a day.
#[test]
fn a_clock_that_is_wrong_at_a_start_deletes_nothing() {
    let mut rig = Rig::new();
    let receiver = Receiver::new();
    rig.subscribe("erp", &receiver);
    publish(&rig, 0, 3);
    rig.advance(secs(31 * DAY));
    rig.becomes(HOT, "0");
    walked(&rig);
    rig.stop();
    let right = rig.now();
    rig.time.set_synchronised(false);
    rig.time.set_wall(right.plus(secs(3_000 * DAY)));
    rig.start_again();
    until("the clock is suspect", || rig.get("/v1/clock")["doubt"] == "ahead");
    let told = "SELECT value FROM meta WHERE key = 'clock_known'";
    for _ in 0..20 {
        let before = rig.one(told);
        rig.advance(secs(3600));
        until("the chores have run", || rig.one(told) != before);
        assert_eq!(months(&rig).len(), 1);
        rig.says("SELECT count(*) FROM seen_keys", "3");
    }
}

/// Issue: "deletes the oldest event archives first where allowed (`archive.delete_when_full`), undelivered data and audit
/// never, with an escalation before and after".
#[test]
fn a_full_disk_deletes_the_oldest_month_where_that_is_allowed() {
    for is_allowed in [false, true] {
        let rig = Rig::with(|settings| settings.archive.delete_when_full = is_allowed);
        let receiver = Receiver::new();
        rig.subscribe("erp", &receiver);
        for n in 0..2 {
            publish(&rig, n, n + 1);
            rig.advance(secs(35 * DAY));
        }
        rig.becomes(HOT, "0");
        rig.post("/v1/subscriptions/erp/pause", &json!({})).is(200);
        rig.publish(&json!({ "event_type": "a", "idempotency_key": "open", "payload": 1 }));
        let names = || months(&rig).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        let classes = || rig.get("/v1/escalations").to_string();
        assert_eq!(names(), ["2026-01.db", "2026-03.db"]);
        rig.disk_free(1 << 20);
        until("the disk is low", || classes().contains("disk.low"));
        if !is_allowed {
            rig.advance(secs(20 * 60));
            rig.advance(secs(20 * 60));
            assert_eq!((names().len(), classes().contains("archive.")), (2, false));
            continue;
        }
        until("it is told before", || classes().contains("archive.deletes"));
        assert_eq!(names().len(), 2);
        until("it is deleted", || {
            let is_gone = names() == ["2026-03.db"];
            let now = rig.now().to_string();
            let is_told = |one: &Value| one["class"] == "archive.deletes" && one["last_at"] == now;
            // One that is in use when its time comes stays, and is announced again.
            if !is_gone && rig.items("/v1/escalations").iter().any(is_told) {
                rig.advance(secs(601));
            }
            is_gone
        });
        until("it is told afterwards", || classes().contains("archive.deleted"));
        rig.disk_free(1 << 40);
        until("the disk is well", || !classes().contains("disk.low"));
        until("nothing else is announced", || !classes().contains("archive.deletes"));
        rig.says("SELECT idempotency_key FROM outbox", "open");
        assert_eq!(names(), ["2026-03.db"]);
    }
}
