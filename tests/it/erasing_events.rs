//! What is forgotten once it was remembered for long enough, and what never is.

use std::os::unix::fs::MetadataExt;

use crate::rig::prelude::*;

const DAY: u64 = 86_400;

fn claim(rig: &Rig, event: &str) -> u16 {
    let guard = json!({ "consumer_group": "erp", "event_id": event });
    rig.post("/v1/processed-events", &guard).status
}

fn guards(rig: &Rig) -> String {
    rig.one("SELECT count(*) FROM processed_events")
}

#[test]
fn a_guard_lives_90_days_and_as_long_as_its_event_can_come_again() {
    let rig = Rig::new();
    let (receiver, dead, waits) = (Receiver::new(), Receiver::new(), Receiver::new());
    dead.always(Reply::status(400));
    for (name, to) in [("done", &receiver), ("dead", &dead), ("waits", &waits)] {
        rig.subscribe_with(name, to, &json!({ "event_types": [name] }));
    }
    rig.post("/v1/subscriptions/waits/pause", &json!(null)).is(200);
    let published = |name: &str| {
        let line = rig.publish_type(name);
        text(&line, "webhook_id")
    };
    let events = ["done", "dead", "waits"].map(published);
    rig.sent(&dead, 1);
    rig.sent(&receiver, 1);
    for event in &events {
        assert_eq!(claim(&rig, event), 201);
    }
    // One that came by plain SQL, of bytes that are no text, holds up no other.
    let raw = "INSERT INTO processed_events (tenant, consumer_group, event_id, processed_at)
               VALUES ('default', 'a', CAST(X'ff' AS TEXT), 1)";
    rig.write(raw);
    rig.advance(secs(89 * DAY));
    until("the one that is old is forgotten", || guards(&rig) == "3");
    assert_eq!(claim(&rig, "other"), 201);
    rig.advance(secs(2 * DAY));
    until("the one that is done is forgotten", || guards(&rig) == "3");
    assert_eq!([claim(&rig, &events[1]), claim(&rig, &events[2]), claim(&rig, "other")], [200; 3]);
    assert_eq!(claim(&rig, &events[0]), 201);
    rig.post("/v1/subscriptions/waits/resume", &json!(null)).is(200);
    rig.sent(&waits, 1);
    rig.advance(secs(2 * DAY));
    until("its guard is forgotten", || guards(&rig) == "3");
    assert_eq!(claim(&rig, &events[1]), 200);
}

#[test]
fn a_walk_over_more_guards_than_one_turn_takes_comes_to_the_end() {
    let rig = Rig::new();
    let many = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 2500)
                INSERT INTO processed_events (consumer_group, event_id, processed_at)
                SELECT 'erp', printf('%05d', n), iif(n % 5, 1, 9000000000000) FROM n";
    rig.write(many);
    rig.advance(secs(DAY));
    until("all that are old are forgotten", || guards(&rig) == "500");
}

#[test]
fn files_leave_done_after_their_days_and_are_known_for_a_year() {
    let rig = Rig::new();
    let path = rig.home().join("drop");
    fs::create_dir(&path).unwrap();
    let settings =
        |more: Value| merged(json!({ "path": path, "defaults": { "event_type": "a" } }), &more);
    rig.source("files", "drop", &settings(json!({})));
    let has = |place: &str| path.join(place).exists();
    let put = |name: &str, text: &[u8], place: &str| {
        fs::write(path.join(format!("{name}.tmp")), text).unwrap();
        fs::rename(path.join(format!("{name}.tmp")), path.join(name)).unwrap();
        until("it is moved", || has(&format!("{place}/{name}")) && !has(name));
    };
    // In the database or in the archive.
    let stored = || rig.get("/v1/events")["items"].as_array().unwrap().len();
    put("a.csv", b"x\n1\n", "done");
    put("bad.csv", b"x\n\xf6\n", "rejected");
    fs::create_dir(path.join("done/a person's own")).unwrap();
    // The rig's clock is not the file system's: it is brought to some days after the file's own time.
    let written = fs::metadata(path.join("done/a.csv")).unwrap().mtime().unsigned_abs();
    let ahead = written.saturating_sub(rig.now().ms().unsigned_abs() / 1000);
    rig.advance(secs(ahead + 29 * DAY));
    put("b.csv", b"x\n2\n", "done");
    assert!(has("done/a.csv"));
    rig.advance(secs(2 * DAY));
    until("they are cleared", || !has("done/a.csv") && !has("done/b.csv"));
    assert!(has("done/a person's own") && has("rejected/bad.csv.reason"));
    let test = rig.get("/v1/sources/files/test");
    assert!(test["checks"].to_string().contains("1 files are in rejected"), "{test}");
    // It is known all the same, for a year; after that its rows still are.
    put("a.csv", b"x\n3\n", "rejected");
    // Kept for ever, where that is asked for: by the clock of the disk, the next ones are old when they come.
    let kept = json!({ "settings": settings(json!({ "done_days": 0 })) });
    rig.patch("/v1/sources/files", &kept).is(200);
    rig.advance(secs(366 * DAY));
    until("the files are forgotten", || rig.one("SELECT count(*) FROM source_files") == "0");
    put("c.csv", b"x\n1\n", "done");
    assert_eq!(stored(), 2);
    rig.advance(secs(400 * DAY));
    put("d.csv", b"x\n4\n", "done");
    assert!(has("done/c.csv"));
    let wrong = json!({ "settings": settings(json!({ "done_days": 36_501 })) });
    rig.patch("/v1/sources/files", &wrong).is(422);
}
