//! What Oncebox says about its own state, and what it refuses to keep a promise.

use std::time::SystemTime;

use oncebox::backup::manifest;
use oncebox::store::tx::WriteTx;

use crate::rig::prelude::*;

const HOUR: Duration = Duration::from_hours(1);

#[test]
fn below_the_reserve_nothing_new_is_taken_and_people_can_still_act() {
    let (rig, _receiver) = Rig::subscribed_to("erp", Receiver::scripted([Reply::status(400)]));
    rig.token_provider("plain", "a-shared-secret-of-32-characters");
    rig.deliver("first");
    rig.disk_free(499_999_999);
    let event = json!({ "event_type": "other", "idempotency_key": "k", "payload": 1 });
    let claim = json!({ "consumer_group": "g", "event_id": "e" });
    until("it is refused", || rig.post("/v1/processed-events", &claim).status == 507);
    for (path, body) in [
        ("/v1/events", event.clone()),
        ("/in/plain", json!({})),
        ("/v1/processed-events", claim),
        ("/v1/providers", json!({})),
        ("/v1/subscriptions", json!({})),
        ("/v1/tokens", json!({})),
        ("/v1/users", json!({})),
    ] {
        let answer = rig.post(path, &body).is(507);
        assert_eq!(answer.field("retry-after"), Some("60"), "{path}");
        assert_eq!(answer.field("content-type"), Some("application/problem+json"), "{path}");
        assert_eq!(answer.json()["type"], "urn:oncebox:problem:disk-full", "{path}");
    }
    // What is there goes on, and a person can look and act.
    assert_eq!(rig.items("/v1/dead-letters").len(), 1);
    rig.call("POST", "/v1/deliveries/dlv_1/retry", b"").is(200);
    rig.settle();
    assert_eq!(rig.one("SELECT state FROM deliveries"), "completed");
    rig.call("POST", "/v1/subscriptions/erp/pause", b"").is(200);
    rig.patch("/v1/subscriptions/erp", &json!({ "owner_id": "x" })).is(200);

    // A little more than the reserve is not enough to come back: it would go to and fro.
    rig.disk_free(500_000_001);
    rig.disk_free(600_000_000);
    until("it is taken again", || rig.post("/v1/events", &event).status == 201);
}

#[test]
fn a_disk_that_breaks_is_answered_503_and_ends_the_process() {
    let mut rig = Rig::with_faults(|_| {}, Faults::at(Step::BreakDisk, 1));
    let event = json!({ "event_type": "a", "idempotency_key": "k", "payload": 1 });
    // The failing write may be the note of the token's use; the process ends all the same.
    rig.post("/v1/events", &event).is(503);
    until("it asks to be ended", || rig.appliance().stop_signal().asked());
    shows(&rig.stop_failed().to_string(), &["the disk failed while writing"]);
    assert_eq!(rig.lines("SELECT seq FROM outbox"), [""; 0]);
    rig.start_again();
    rig.post("/v1/events", &event).is(201);
    rig.advance(secs(1));
}

#[test]
fn what_is_wrong_with_the_site_is_escalated_until_it_is_well_again() {
    let rig = Rig::new();
    let open = || {
        let listed = rig.get("/v1/escalations")["items"].clone();
        let class = |found: &Value| text(found, "class");
        listed.as_array().unwrap().iter().map(class).collect::<Vec<_>>()
    };
    assert_eq!(open(), [""; 0]);
    rig.disk_free(1_000_000);
    until("the disk is escalated", || open() == ["disk.low"]);
    rig.disk_free(5_000_000_000);
    until("that is resolved", || open().is_empty());
    rig.time.set_synchronised(false);
    rig.time.set_wall(rig.now().plus(secs(3600)));
    until("the clock is escalated", || open() == ["clock.wrong"]);
    rig.time.set_synchronised(true);
    until("that is resolved", || open().is_empty());
    let unusable = "INSERT INTO outbox (event_type, payload, target) VALUES ('a', '1', 'nobody')";
    for count in 1..=2 {
        let erp = rig.writable();
        erp.run(unusable);
        until("the quarantine is escalated, and again when it grows", || {
            let listed = rig.get("/v1/escalations")["items"].clone();
            listed[0]["class"] == "event.quarantined" && listed[0]["count"] == count
        });
    }
}

#[test]
fn a_backup_that_has_become_old_is_escalated_until_there_is_a_newer_one() {
    let rig = Rig::with(|settings| settings.backup.every = Some(HOUR));
    let directory = rig.data().join("backups");
    // The age is that of the file, which the kernel writes by its own clock.
    let written_at = |at: Timestamp| {
        let manifests = fs::read_dir(&directory).into_iter().flatten().flatten();
        let manifests = manifests
            .filter(|entry| entry.file_name().to_string_lossy().ends_with(manifest::ENDING));
        manifests
            .map(|entry| {
                let file = fs::File::options().append(true).open(entry.path()).unwrap();
                file.set_modified(
                    SystemTime::UNIX_EPOCH + Duration::from_millis(at.ms().unsigned_abs()),
                )
                .unwrap();
            })
            .count()
    };
    let open = || {
        let listed = rig.get("/v1/escalations")["items"].clone();
        let line = |found: &Value| {
            format!("{} {}", found["class"].as_str().unwrap(), found["detail"].as_str().unwrap())
        };
        listed.as_array().unwrap().iter().map(line).collect::<Vec<_>>()
    };
    let state = || checks(&rig.send("GET", "/readyz?verbose", &[], b"").json())["backup"].0.clone();
    until("the first is made", || written_at(rig.now()) == 1);
    assert_eq!(state(), "ok");
    until("it is well", || open().is_empty());
    written_at(rig.now().minus(2 * HOUR + secs(1)));
    assert_eq!(state(), "warn");
    let told = "backup.old the newest is 2h 1s old: the log says why";
    until("it is escalated", || open() == [told]);
    // The next one is made when it is due.
    rig.advance(HOUR);
    until("the second is made", || written_at(rig.now()) == 2);
    until("that is resolved", || open().is_empty());
}

/// The checks of `/readyz?verbose` by name: state and value.
fn checks(answer: &Value) -> BTreeMap<String, (String, Value)> {
    let each = answer["checks"].as_array().unwrap().iter().map(|check| {
        let text = |field: &str| check[field].as_str().unwrap().to_owned();
        (text("name"), (text("state"), check["value"].clone()))
    });
    each.collect()
}

#[test]
fn a_box_that_is_well_is_ready_and_says_what_it_looked_at() {
    let rig = Rig::new();
    assert_eq!(rig.send("GET", "/readyz", &[], b"").is(200).json(), json!({ "status": "ready" }));
    let long = rig.send("GET", "/readyz?verbose", &[], b"").is(200).json();
    let checks = checks(&long);
    let names: Vec<&str> = checks.keys().map(String::as_str).collect();
    let all = words(
        "archive backup clock database dead_letters disk due duties escalations in_doubt log \
        quarantined starts subscriptions writer",
    );
    assert_eq!(names, all);
    assert!(checks.values().all(|(state, _)| state == "ok"), "{checks:?}");
    assert_eq!(checks["disk"].1["free_bytes"], 5_000_000_000_u64);
    assert_eq!(checks["disk"].1["reserve_bytes"], 500_000_000);
    rig.send("GET", "/readyz?verbos", &[], b"").is(400);
}

#[test]
fn what_a_person_should_see_warns_and_names_nobody() {
    let rig = Rig::with(|settings| {
        settings.backup.every = Some(secs(3600));
        // No backup can be made where there is no directory.
        settings.backup.directory = Some("/dev/null/backups".into());
    });
    let gone = Receiver::scripted([Reply::status(410)]);
    let late = Receiver::scripted(std::iter::repeat_n(Reply::status(500), 50));
    rig.subscribe("left-for-good", &gone);
    rig.deliver("a");
    rig.subscribe("often-late", &late);
    rig.deliver("b");
    rig.disk_free(900_000_000);
    rig.time.set_synchronised(false);
    rig.time.set_wall(rig.now().plus(secs(3600)));
    until("the clock's step and the disk are seen", || {
        let text = rig.send("GET", "/readyz?verbose", &[], b"").is(200).json();
        let checks = checks(&text);
        checks["clock"].0 == "warn" && checks["disk"].0 == "warn"
    });
    let answer = rig.send("GET", "/readyz?verbose", &[], b"").is(200);
    let text = String::from_utf8(answer.message.body.clone()).unwrap();
    assert!(!text.contains("left-for-good") && !text.contains("default"), "{text}");
    let seen = checks(&answer.json());
    assert_eq!(seen["dead_letters"], ("warn".to_owned(), json!({ "count": 1 })));
    assert_eq!(seen["subscriptions"], ("warn".to_owned(), json!({ "disabled": 1 })));
    assert_eq!(seen["backup"], ("warn".to_owned(), json!({ "age_seconds": null })));
    assert_eq!(seen["due"].0, "ok");
}

#[test]
fn a_delivery_that_is_long_overdue_warns_unless_somebody_holds_it() {
    let (rig, receiver) = Rig::subscribed_to("slow", Receiver::with(Reply::Hang));
    rig.publish_type("a");
    until("it is under way", || receiver.count() == 1);
    let due =
        || checks(&rig.send("GET", "/readyz?verbose", &[], b"").is(200).json())["due"].clone();
    assert_eq!(due().0, "ok");
    rig.advance(secs(301));
    assert_eq!(due(), ("warn".to_owned(), json!({ "oldest_seconds": 301.0 })));
    rig.call("POST", "/v1/subscriptions/slow/pause", b"").is(200);
    assert_eq!(due().0, "ok");
    receiver.release();
}

#[test]
fn what_breaks_a_promise_makes_it_unready_with_the_reason() {
    let rig = Rig::new();
    rig.disk_free(1000);
    let mut answer = rig.send("GET", "/readyz?verbose", &[], b"");
    until("the disk is seen to be low", || {
        answer = rig.send("GET", "/readyz?verbose", &[], b"");
        answer.status == 503
    });
    assert_eq!(answer.field("content-type"), Some("application/problem+json"));
    assert_eq!(answer.json()["type"], "urn:oncebox:problem:not-ready");
    assert!(answer.detail().contains("disk: 1000 B free"), "{}", answer.detail());
    assert_eq!(checks(&answer.json())["disk"].0, "fail");
    assert_eq!(checks(&answer.json())["database"].0, "ok");
    rig.send("GET", "/livez", &[], b"").is(200);
    rig.disk_free(DISK_TOTAL / 2);
    until("it is ready again", || rig.send("GET", "/readyz", &[], b"").status == 200);

    rig.time.set_wall(Timestamp::from_secs(0));
    rig.send("GET", "/readyz", &[], b"").is(503).tells("clock: shows 1970-01-01");
}

#[test]
fn a_writer_that_is_stuck_makes_it_unready_within_its_bound() {
    let rig = Rig::new();
    let (go_on, wait) = mpsc::sync_channel::<()>(0);
    let wait = Mutex::new(wait);
    // The check has a queue of its own: it would be before a job that the writer has not begun.
    let (begins, begun) = mpsc::channel::<()>();
    let stuck = move |_: &WriteTx<'_>| {
        begins.send(()).unwrap();
        wait.lock().unwrap().recv().unwrap_err();
        Ok(())
    };
    rig.appliance().store().writer().submit(Queue::Upkeep, stuck, |_| {});
    begun.recv().unwrap();
    rig.send("GET", "/readyz", &[], b"").is(503).tells("database: cannot be written");
    drop(go_on);
    until("it is ready again", || rig.send("GET", "/readyz", &[], b"").status == 200);
}
