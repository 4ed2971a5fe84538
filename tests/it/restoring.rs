//! A restore holds what may have been sent after the backup, until a person decides.

use oncebox::app::data_directory::DATABASE;
use oncebox::backup::manifest::Reason;
use oncebox::backup::online::{self, Plan as BackupPlan};
use oncebox::backup::restore::{self, Done, Plan};
use oncebox::backup::{Error, Result};
use oncebox::config::KEY_FILE;
use oncebox::keys::file::{read as read_key, retired_ids};
use oncebox::model::audit::Actor;
use oncebox::model::in_doubt::Window;

use crate::it::delivering::expected;
use crate::rig::prelude::*;

/// Backs the rig's file up, whether it runs or not.
pub(crate) fn back_up(rig: &Rig) -> PathBuf {
    let to = rig.home().join("backup.db");
    let plan = BackupPlan {
        database: rig.data().join(DATABASE),
        to: to.clone(),
        reason: Reason::Asked,
        now: rig.now(),
        faults: Faults::none(),
    };
    online::take(&plan, &mut |_| true).unwrap();
    to
}

pub(crate) fn plan(rig: &Rig) -> Plan {
    Plan {
        from: rig.home().join("backup.db"),
        database: rig.data().join(DATABASE),
        force: true,
        without_manifest: false,
        without_months: false,
        retired: retired_ids(&rig.data().join(KEY_FILE)),
        key_id: Some(read_key(&rig.data().join(KEY_FILE)).unwrap().key_id()),
        now: rig.now(),
        window: Some(Window { lost_at: rig.now(), until: rig.now().plus(secs(86_400)) }),
        who: Actor::system(),
        faults: Faults::none(),
    }
}

/// Stops the rig, puts the backup back, and starts it again.
pub(crate) fn restore(rig: &mut Rig) -> Done {
    rig.stop();
    let done = restore::run(&plan(rig)).unwrap();
    rig.start_again();
    done
}

fn refused(rig: &Rig, change: impl FnOnce(&mut Plan)) -> Error {
    let mut plan = plan(rig);
    change(&mut plan);
    let done: Result<Done> = restore::run(&plan);
    done.unwrap_err()
}

#[test]
fn open_deliveries_are_held_after_a_restore_and_keep_their_webhook_id() {
    let (mut rig, receiver) = Rig::subscribed_to("erp", Receiver::scripted([Reply::status(500)]));
    rig.deliver("waits");
    back_up(&rig);
    rig.pass(secs(5));
    assert_eq!(receiver.count(), 2);

    let done = restore(&mut rig);
    assert_eq!((done.changes.epoch, done.changes.in_doubt), (1, 1));
    rig.pass(secs(3600));
    assert_eq!(receiver.count(), 2, "nothing is sent unasked");
    insta::assert_snapshot!(rig.dump(), @r"
    waits pending
      erp in_doubt
        1 +0s transient counted 500
    ");
    assert_eq!(rig.get("/v1/stats")["in_doubt"], 1);
    assert_eq!(rig.get("/v1/deliveries?state=in_doubt")["items"][0]["id"], "dlv_1");
    rig.call("POST", "/v1/deliveries/dlv_1/retry", b"").is(409);
    rig.call("POST", "/v1/deliveries/dlv_1/release", b"").is(200);
    rig.settle();
    let seen = receiver.seen();
    assert_eq!(seen.len(), 3);
    assert_eq!(seen[1].field("webhook-id"), seen[2].field("webhook-id"));
    assert_eq!(rig.get("/v1/in-doubt")["in_doubt"], 0);
    rig.call("POST", "/v1/deliveries/dlv_1/release", b"").is(409);
}

#[test]
fn until_when_new_events_are_held_is_said_wherever_somebody_looks() {
    let (mut rig, _receiver) = Rig::subscribed_to("erp", Receiver::scripted([Reply::status(500)]));
    rig.deliver("waits");
    back_up(&rig);
    restore(&mut rig);
    let until_when = rig.now().plus(secs(86_400)).to_string();
    let check = || {
        let checks = rig.send("GET", "/readyz?verbose", &[], b"").json()["checks"].clone();
        let checks = checks.as_array().unwrap().clone();
        checks.into_iter().find(|check| check["name"] == "in_doubt").unwrap()
    };
    assert_eq!(check()["state"], "warn");
    assert!(check()["detail"].as_str().unwrap().contains(&until_when), "{}", check());
    let metrics = String::from_utf8(rig.call("GET", "/metrics", b"").is(200).message.body).unwrap();
    assert!(metrics.contains("\noncebox_deliveries_in_doubt 1\n"), "{metrics}");
    assert!(metrics.contains("\noncebox_backup_age_seconds NaN\n"), "{metrics}");
    let open = || {
        let items = rig.get("/v1/escalations")["items"].clone();
        let of_site = |found: &&Value| found["class"] == "site.restored";
        items.as_array().unwrap().iter().find(of_site).cloned()
    };
    until("it is escalated", || open().is_some());
    assert!(open().unwrap()["detail"].as_str().unwrap().contains(&until_when));
    rig.advance(secs(86_400));
    assert_eq!(check()["state"], "ok");
    until("that is over", || open().is_none());
}

#[test]
fn sessions_and_one_time_links_end_at_a_restore() {
    let mut rig = Rig::new();
    rig.user("anna", "read");
    let session = rig.log_in_by_link("anna");
    let link = rig.link("anna");
    back_up(&rig);
    restore(&mut rig);
    assert!(rig.appliance().api().session(&session.secret, true).unwrap().is_none());
    let head = Rig::head(Method::Post, "/console/enter");
    assert_eq!(rig.appliance().api().enter(&head, &link).unwrap_err().status(), 401);
    drop(rig.log_in_by_link("anna"));
}

#[test]
fn finished_deliveries_stay_finished_after_a_restore() {
    let (mut rig, _receiver) =
        Rig::subscribed_to("erp", Receiver::scripted([Reply::status(200), Reply::status(400)]));
    rig.deliver("done");
    rig.deliver("dead");
    back_up(&rig);
    assert_eq!(restore(&mut rig).changes.in_doubt, 0);
    insta::assert_snapshot!(rig.dump(), @r"
    done completed
      erp completed
        1 +0s success 200
    dead dead_letter
      erp dead_letter: the target answered 400
        1 +0s validation counted 400
    ");
}

#[test]
fn a_repeated_event_is_held_unless_it_happened_after_the_loss() {
    let (mut rig, _receiver) = Rig::subscribed("erp");
    back_up(&rig);
    let event = |key: &str, occurred_at: Option<Timestamp>| json!({ "event_type": "a", "idempotency_key": key, "payload": 1, "occurred_at": occurred_at });
    let first = rig.publish(&event("before", Some(rig.now())));
    rig.settle();
    rig.advance(secs(60));
    restore(&mut rig);

    let again = rig.publish(&event("before", Some(rig.now().minus(secs(60)))));
    assert_eq!(again["already_processed"], false, "the restored file does not know it");
    assert_eq!(again["webhook_id"], first["webhook_id"]);
    rig.publish(&event("does not say", None));
    rig.publish(&event("after", Some(rig.now().plus(secs(1)))));
    rig.settle();
    let states = "SELECT o.idempotency_key, d.state, d.epoch, o.epoch FROM deliveries AS d
                    JOIN outbox AS o ON o.seq = d.outbox_seq ORDER BY o.seq";
    assert_eq!(
        rig.lines(states),
        ["before in_doubt 1 1", "does not say in_doubt 1 1", "after completed 1 1"]
    );
    rig.advance(secs(86_400));
    rig.publish(&event("a day later", None));
    rig.settle();
    assert_eq!(rig.lines(states)[3], "a day later completed 1 1");
}

#[test]
fn a_person_ends_the_time_of_doubt() {
    let (mut rig, receiver) = Rig::subscribed("erp");
    back_up(&rig);
    restore(&mut rig);
    let doubt = rig.get("/v1/in-doubt");
    assert_eq!(doubt["restored_from"], "backup.db of 2026-01-31T12:00:00.000Z");
    assert_eq!(doubt["until"], "2026-02-01T12:00:00.000Z");
    rig.publish_type("held");
    let ended = rig.call("POST", "/v1/in-doubt/end", b"").is(200).json();
    assert_eq!((&ended["until"], &ended["in_doubt"]), (&json!(null), &json!(1)));
    rig.deliver("sent");
    assert_eq!(receiver.count(), 1);
    let operator = rig.token_of("operate");
    rig.call_as(&operator, "POST", "/v1/in-doubt/end", b"").is(403);
}

#[test]
fn a_repeated_webhook_is_held_by_its_providers_time() {
    let (mut rig, _receiver) =
        Rig::subscribed_with("erp", Receiver::new(), &json!({ "source": "all" }));
    rig.token_provider("plain", "a-shared-secret-of-32-characters");
    back_up(&rig);
    restore(&mut rig);
    let lost = rig.now().secs();
    for body in [
        json!({ "n": "silent" }),
        json!({ "n": "before", "created": lost - 1 }),
        json!({ "n": "after", "created": lost + 1 }),
    ] {
        let token = ("X-Token", "a-shared-secret-of-32-characters");
        rig.send("POST", "/in/plain", &[token], body.to_string().as_bytes()).is(200);
    }
    rig.settle();
    let states = rig.lines("SELECT state FROM deliveries ORDER BY seq");
    assert_eq!(states, ["in_doubt", "in_doubt", "completed"]);
    let statuses = rig.lines("SELECT status FROM webhook_events ORDER BY seq");
    assert_eq!(statuses, ["received", "received", "completed"]);
}

#[test]
fn many_are_released_or_settled_by_filter_after_a_dry_run() {
    let mut rig = Rig::new();
    let (one, two) = (Receiver::new(), Receiver::new());
    rig.subscribe("one", &one);
    rig.subscribe("two", &two);
    for name in ["one", "two"] {
        rig.call("POST", &format!("/v1/subscriptions/{name}/pause"), b"").is(200);
    }
    rig.publish_types(&["a", "b", "b"]);
    back_up(&rig);
    restore(&mut rig);
    for name in ["one", "two"] {
        rig.call("POST", &format!("/v1/subscriptions/{name}/resume"), b"").is(200);
    }
    let act = |verb: &str, filter: Value, dry_run: bool| {
        let body = json!({ "filter": filter, "dry_run": dry_run });
        rig.post(&format!("/v1/deliveries/{verb}"), &body).is(200).json()["count"].as_u64().unwrap()
    };
    assert_eq!(act("release", json!({}), true), 6);
    assert_eq!(act("release", json!({ "event_type": "b", "subscription": "one" }), false), 2);
    rig.settle();
    assert_eq!((one.count(), two.count()), (2, 0));
    assert_eq!(act("skip", json!({ "subscription": "two" }), false), 3);
    assert_eq!(act("release", json!({ "since": rig.now().plus(secs(1)) }), false), 0);
    assert_eq!(act("release", json!({}), false), 1);
    rig.settle();
    assert_eq!((one.count(), two.count()), (3, 0));
    rig.post("/v1/deliveries/release", &json!({ "dry_run": true })).is(400);
    insta::assert_snapshot!(rig.dump().lines().take(4).collect::<Vec<_>>().join("\n"), @r"
    a completed
      one completed
        1 +0s success 200
      two skipped: made before the restore, says first admin token
    ");
}

#[test]
fn leased_events_are_in_doubt_after_a_restore_and_old_leases_are_invalid() {
    let mut rig = Rig::new();
    let pull = json!({ "name": "erp", "target": "pull", "ordering": "key" });
    rig.post("/v1/subscriptions", &pull).is(201);
    for (n, key) in [(1, Some("a")), (2, Some("a")), (3, None)] {
        rig.publish(&json!({ "event_type": "a", "ordering_key": key, "payload": n }));
    }
    let next = |rig: &Rig| {
        let items = rig.get("/v1/consumers/erp/next?max=10")["items"].clone();
        items.as_array().unwrap().clone()
    };
    let say = |rig: &Rig, verb: &str, item: &Value| {
        let word = json!({ "delivery": item["delivery"], "lease": item["lease"] });
        let body = json!({ "items": [word] });
        rig.post(&format!("/v1/consumers/erp/{verb}"), &body).is(200).json()["items"][0].clone()
    };
    let before = next(&rig);
    assert_eq!(before.iter().map(|item| &item["payload"]).collect::<Vec<_>>(), [1, 3]);
    back_up(&rig);
    // One was done, which the restored file does not know.
    assert_eq!(say(&rig, "ack", &before[0])["status"], 200);

    assert_eq!(restore(&mut rig).changes.in_doubt, 3);
    assert!(next(&rig).is_empty(), "nothing is given unasked");
    for verb in ["ack", "nack", "extend"] {
        for item in &before {
            let heard = say(&rig, verb, item);
            let detail = heard["detail"].as_str().unwrap_or_default();
            assert!(heard["status"] == 409 && detail.contains("in doubt since"), "{verb}: {heard}");
        }
    }
    rig.advance(secs(3600));
    assert!(next(&rig).is_empty());
    assert_eq!(rig.one("SELECT count(*) FROM attempts"), "0", "no lease has ended");
    // Behind one in doubt its lane waits, even for a person.
    rig.call("POST", "/v1/deliveries/dlv_2/release", b"").is(200);
    assert!(next(&rig).is_empty());
    rig.call("POST", "/v1/deliveries/dlv_1/release", b"").is(200);
    let again = next(&rig);
    assert_eq!(
        (again.len(), &again[0]["payload"], &again[0]["attempt"]),
        (1, &json!(1), &json!(1))
    );
    assert_eq!(again[0]["webhook_id"], before[0]["webhook_id"], "its guard knows it");
    assert_eq!(say(&rig, "ack", &before[0])["detail"], "another consumer has dlv_1 now");
    assert_eq!(say(&rig, "ack", &again[0])["status"], 200);
    let second = next(&rig);
    assert_eq!(say(&rig, "ack", &second[0])["state"], "completed");
    rig.call("POST", "/v1/deliveries/dlv_3/skip", b"").is(200);
    let late = say(&rig, "ack", &before[1])["detail"].as_str().unwrap().to_owned();
    assert!(late.starts_with("dlv_3 is skipped (made before the restore"), "{late}");
    // What comes in again is held as well.
    rig.publish(&json!({ "event_type": "a", "payload": 4 }));
    assert!(next(&rig).is_empty());
    assert_eq!(rig.get("/v1/stats")["in_doubt"], 1);
}

#[test]
fn a_delivery_in_doubt_can_be_cancelled_and_keeps_its_subscription() {
    let (mut rig, _receiver) = Rig::subscribed_to("erp", Receiver::scripted([Reply::status(500)]));
    rig.deliver("a");
    back_up(&rig);
    restore(&mut rig);
    rig.delete("/v1/subscriptions/erp").is(409);
    rig.call("POST", "/v1/deliveries/dlv_1/cancel", b"").is(200);
    assert_eq!(rig.one("SELECT status FROM outbox"), "cancelled");
    rig.delete("/v1/subscriptions/erp").is(204);
}

#[test]
fn a_backup_from_before_a_key_change_opens_with_the_retired_key() {
    let (mut rig, receiver) = (Rig::new(), Receiver::new());
    let secret = rig.subscribe("erp", &receiver);
    back_up(&rig);
    rig.call("POST", "/v1/keys/rotate", b"").is(200);
    assert_eq!(retired_ids(&rig.data().join(KEY_FILE)).len(), 1);
    restore(&mut rig);
    rig.post("/v1/in-doubt/end", &Value::Null).is(200);
    rig.deliver("a");
    assert_eq!(receiver.count(), 1);
    let request = receiver.seen()[0].clone();
    let id = request.field("webhook-id").unwrap();
    let seconds = request.field("webhook-timestamp").unwrap().parse().unwrap();
    let signature = expected(&secret, id, seconds, &request.body);
    assert_eq!(request.field("webhook-signature"), Some(signature.as_str()));
    // What the old key had sealed is sealed under the one in force again.
    let key = read_key(&rig.data().join(KEY_FILE)).unwrap().key_id();
    assert_eq!(rig.one("SELECT DISTINCT master_key_id FROM credentials"), key);
}

#[test]
fn numbers_given_after_the_backup_are_not_reused() {
    let (mut rig, _receiver) = Rig::subscribed("erp");
    back_up(&rig);
    rig.deliver("lost");
    restore(&mut rig);
    rig.publish_type("new");
    assert_eq!(rig.get("/v1/deliveries")["items"][0]["id"], "dlv_1000001");
}

#[test]
fn a_harmful_restore_is_refused_and_changes_nothing() {
    let mut rig = Rig::new();
    let from = back_up(&rig);
    rig.publish_type("a");
    rig.stop();
    let there = refused(&rig, |plan| plan.force = false);
    assert!(matches!(there, Error::DatabaseThere(_)), "{there}");
    let other = refused(&rig, |plan| plan.key_id = Some("00000000".to_owned()));
    assert!(other.to_string().contains("the key here is 00000000"), "{other}");
    let none = refused(&rig, |plan| plan.key_id = None);
    assert!(none.to_string().contains("the key here is none"), "{none}");

    // A list of what was erased that is there and cannot be read.
    let list = rig.home().join("oncebox.db.erasures");
    drop(fs::remove_file(&list));
    fs::create_dir(&list).unwrap();
    let unread = refused(&rig, |_| {});
    assert!(matches!(unread, Error::Erasures { .. }), "{unread}");
    fs::remove_dir(list).unwrap();

    let log = rig.home().join("backup.db-wal");
    fs::write(&log, "x").unwrap();
    assert!(matches!(refused(&rig, |_| {}), Error::NotAlone { .. }));
    fs::remove_file(log).unwrap();

    let whole = fs::read(&from).unwrap();
    let mut damaged = whole.clone();
    damaged[5000] ^= 1;
    fs::write(&from, &damaged).unwrap();
    assert!(matches!(refused(&rig, |_| {}), Error::Damaged { .. }));
    fs::write(&from, &whole).unwrap();
    fs::remove_file(rig.home().join("backup.db.manifest.json")).unwrap();
    assert!(matches!(refused(&rig, |_| {}), Error::Manifest { .. }));

    Connection::open(&from).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let newer = refused(&rig, |plan| plan.without_manifest = true).to_string();
    assert!(newer.contains("schema 99") && newer.contains("install the newer oncebox"), "{newer}");

    let names: Vec<String> = fs::read_dir(rig.data())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains("restore") || name.contains("partial"))
        .collect();
    assert_eq!(names, [""; 0]);
    rig.start_again();
    assert_eq!(rig.one("SELECT count(*) FROM outbox"), "1");
}

#[test]
fn a_replaced_database_is_moved_aside_complete() {
    let mut rig = Rig::new();
    back_up(&rig);
    rig.publish_type("only.in.the.old.one");
    let aside = restore(&mut rig).aside.unwrap();
    assert_eq!(aside.file_name().unwrap(), "oncebox.db.before-restore-20260131T120000Z");
    let old = file::open(&aside);
    assert_eq!(file::lines(&old, "SELECT event_type FROM outbox"), ["only.in.the.old.one"]);
    assert_eq!(rig.one("SELECT count(*) FROM outbox"), "0");
}
