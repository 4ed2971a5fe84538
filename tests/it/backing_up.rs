//! Backups by the clock.

use oncebox::backup::manifest::Reason;
use oncebox::backup::online;
use oncebox::backup::retention::{self, BackupFile};

use crate::rig::prelude::*;

const HOUR: Duration = Duration::from_hours(1);

fn rig() -> Rig {
    Rig::with(|settings| {
        settings.backup.every = Some(HOUR);
        settings.backup.keep = 2;
    })
}

fn shelf(rig: &Rig) -> Vec<BackupFile> {
    retention::list(&rig.data().join("backups")).unwrap_or_default()
}

#[test]
fn a_backup_is_made_when_it_is_due_and_only_the_newest_are_kept() {
    let mut rig = rig();
    until("the first is made", || shelf(&rig).len() == 1);
    let first = shelf(&rig).remove(0);
    assert_eq!(first.manifest.reason, Reason::Scheduled);
    rig.publish_type("a");
    rig.advance(HOUR);
    until("the second is made", || shelf(&rig).len() == 2);
    assert_eq!(shelf(&rig)[0].manifest.facts.rows["outbox"], 1);

    // A backup somebody asked for, a stranger's file, and what a killed process left.
    let directory = rig.data().join("backups");
    let asked = online::Plan {
        database: rig.data().join("oncebox.db"),
        to: directory.join("oncebox-mine.db"),
        reason: Reason::Asked,
        now: rig.now().minus(secs(86_400)),
        faults: Faults::none(),
    };
    online::take(&asked, &mut |_| true).unwrap();
    fs::write(directory.join("letter.txt"), "dear").unwrap();
    fs::write(directory.join("oncebox-x.db.partial"), "half").unwrap();
    rig.advance(HOUR);
    until("the third is made and the first removed", || !first.path.exists());
    until("the leavings are removed", || !directory.join("oncebox-x.db.partial").exists());
    let kept = shelf(&rig);
    let of = |reason: Reason| kept.iter().filter(|kept| kept.manifest.reason == reason).count();
    assert_eq!((of(Reason::Scheduled), of(Reason::Asked)), (2, 1));
    assert!(directory.join("letter.txt").exists());
    for kept in kept {
        online::verify(&kept.path).unwrap();
    }
    // A restart makes none before it is due.
    rig.restart();
    assert_eq!(shelf(&rig).len(), 3);
}

#[test]
fn a_failed_backup_is_reported_until_one_succeeds() {
    let rig = Rig::with(|settings| {
        let inside_a_file = settings.database.directory.parent().unwrap().join("file/backups");
        fs::write(inside_a_file.parent().unwrap(), "no directory").unwrap();
        settings.backup.directory = Some(inside_a_file);
        settings.backup.every = Some(HOUR);
    });
    let failure = "SELECT count(*) FROM meta WHERE key = 'backup_failure'";
    until("the failure is noted", || rig.one(failure) == "1");
    fs::remove_file(rig.home().join("file")).unwrap();
    rig.advance(Duration::from_mins(10));
    until("it is tried again and succeeds", || rig.one(failure) == "0");
    assert_eq!(retention::list(&rig.home().join("file/backups")).unwrap().len(), 1);
}

#[test]
fn a_backup_that_is_asked_for_is_made_beside_the_scheduled_ones_and_stays() {
    let rig = rig();
    until("the first is made", || shelf(&rig).len() == 1);
    rig.publish_type("a");
    rig.advance(secs(60));
    // The scheduled one is on the shelf before it has ended.
    let mut answer = rig.call("POST", "/v1/backups", b"");
    until("no other backup is being made", || {
        let is_busy = answer.status == 409;
        if is_busy {
            answer = rig.call("POST", "/v1/backups", b"");
        }
        !is_busy
    });
    let made = answer.is(201).json();
    let path = PathBuf::from(made["path"].as_str().unwrap());
    assert_eq!(path.parent().unwrap(), rig.data().join("backups"));
    assert_eq!(made["bytes"], fs::metadata(&path).unwrap().len());
    assert!(made["seconds"].is_number());
    let manifest = online::verify(&path).unwrap();
    assert_eq!((manifest.reason, manifest.facts.rows["outbox"]), (Reason::Asked, 1));
    let listed = rig.get("/v1/backups");
    assert_eq!(listed["every_secs"], 3600);
    let items = listed["items"].as_array().unwrap();
    let reasons: Vec<_> = items.iter().map(|item| item["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons, ["asked", "scheduled"]);
    assert_eq!(items[0]["path"], made["path"]);
    until("two more are made by the clock, and the first is removed", || {
        rig.advance(HOUR);
        let newer = |of: &&BackupFile| of.manifest.created_at > manifest.created_at;
        shelf(&rig).iter().filter(newer).count() == 2
    });
    until("two scheduled ones are kept", || shelf(&rig).len() == 3);
    online::verify(&path).unwrap();
}

#[test]
fn of_backups_at_one_time_one_is_made_and_a_failure_says_why() {
    let rig = Rig::new();
    let listed = rig.get("/v1/backups");
    assert_eq!(
        (listed["every_secs"].clone(), listed["items"].clone()),
        (Value::Null, serde_json::json!([]))
    );
    let statuses: Vec<u16> = thread::scope(|scope| {
        let ask = || rig.call("POST", "/v1/backups", b"").status;
        let asked = [scope.spawn(ask), scope.spawn(ask), scope.spawn(ask), scope.spawn(ask)];
        asked.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(statuses.iter().filter(|status| **status == 201).count(), 1, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 409).count(), 3, "{statuses:?}");
    assert_eq!(shelf(&rig).len(), 1);
    rig.advance(secs(1));
    fs::remove_dir_all(rig.data().join("backups")).unwrap();
    fs::write(rig.data().join("backups"), "a file").unwrap();
    rig.call("POST", "/v1/backups", b"").is(409).tells("backups");
    fs::remove_file(rig.data().join("backups")).unwrap();
    rig.call("POST", "/v1/backups", b"").is(201);
}

#[test]
fn a_backup_is_verified_and_downloaded_by_its_name_alone() {
    let rig = Rig::new();
    // More than one part of a file that is sent.
    let text = "x".repeat(400_000);
    rig.publish(&json!({ "event_type": "a", "idempotency_key": "k", "payload": text }));
    let made = rig.post("/v1/backups", &json!({})).is(201).json();
    let path = PathBuf::from(made["path"].as_str().unwrap());
    let name = path.file_name().unwrap().to_str().unwrap();
    let of = |name: &str| format!("/v1/backups/{name}");
    let verified = rig.post(&format!("{}/verify", of(name)), &json!({})).is(200).json();
    assert_eq!(verified["bytes"], made["bytes"]);
    let file = rig.call("GET", &of(name), b"").is(200);
    assert!(file.body().len() > 400_000 && file.body() == fs::read(&path).unwrap());
    let manifest = rig.get(&of(&format!("{name}.manifest.json")));
    assert_eq!(manifest["file"], name);
    for other in ["..%2Foncebox.db", "oncebox.db", "letter.txt", &format!("{name}.partial")] {
        fs::write(path.with_file_name("letter.txt"), "dear").unwrap();
        rig.call("GET", &of(other), b"").is(404);
        rig.post(&format!("{}/verify", of(other)), &json!({})).is(404);
    }
    // One bit is another one now.
    let mut bytes = file.body().to_vec();
    bytes[200_000] ^= 1;
    fs::write(&path, bytes).unwrap();
    let damaged = rig.post(&format!("{}/verify", of(name)), &json!({})).is(409).json();
    assert!(damaged["detail"].as_str().unwrap().contains("SHA-256"), "{damaged}");
    let audited = rig.get("/v1/audit-events?action=backup.verify&result=FAILURE");
    assert!(!audited["items"].as_array().unwrap().is_empty(), "{audited}");
}
