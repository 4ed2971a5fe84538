//! Backups and the months of the archive: each month is copied once, and comes back with its database.

use std::fs::File;
use std::os::unix::fs::FileExt;

use oncebox::app::data_directory::DATABASE;
use oncebox::archive::Month;
use oncebox::backup::manifest::{Manifest, Reason};
use oncebox::backup::months::{Beside, MonthCopy};
use oncebox::backup::online::{self, Plan as BackupPlan};
use oncebox::backup::restore::{self, Done, Plan};
use oncebox::backup::{Error, retention};

use crate::it::privacy::{erase, named_policy, of_customer, state};
use crate::it::restoring;
use crate::rig::prelude::*;

const DAY: u64 = 24 * 3600;

fn publish(rig: &Rig, from: usize, to: usize) {
    for n in from..to {
        let text = "x".repeat(if n % 7 == 0 { 20_000 } else { 10 });
        rig.publish(&json!({ "event_type": "a", "idempotency_key": format!("k-{n}"), "payload": { "n": n, "text": text } }));
    }
    rig.settle();
}

/// Moves what finished 30 days ago.
fn archive(rig: &Rig) {
    // The settings may have begun one.
    until("the run begins", || {
        rig.post("/v1/archive/runs", &json!({ "older_than": "30days" })).status == 200
    });
    until("the run ends", || rig.get("/v1/archive")["run"]["since"].is_null());
}

/// A service with events of January and February in the archive, and others in the database.
fn with_months() -> Rig {
    let (rig, _receiver) = Rig::subscribed("erp");
    publish(&rig, 0, 20);
    rig.advance(secs(20 * DAY));
    publish(&rig, 20, 30);
    rig.advance(secs(40 * DAY));
    publish(&rig, 30, 35);
    archive(&rig);
    rig.says("SELECT count(*) FROM outbox", "5");
    // Audit events of January have moved as well.
    rig.becomes("SELECT count(*) FROM audit_events WHERE at < 1772323200000", "0");
    rig
}

fn month_file(rig: &Rig, month: &str) -> PathBuf {
    rig.data().join("archive").join(format!("{month}.db"))
}

/// Makes a file look as if nobody had written it for an hour.
fn settle_file(path: &Path) {
    // By the clock of the disk, which this process's may differ from.
    let file = File::options().write(true).open(path).unwrap();
    let at = file.metadata().unwrap().modified().unwrap() - Duration::from_hours(1);
    file.set_modified(at).unwrap();
}

fn back_up(rig: &Rig, name: &str) -> (PathBuf, Vec<MonthCopy>) {
    let directory = rig.home().join("backups");
    fs::create_dir_all(&directory).unwrap();
    let to = directory.join(name);
    let plan = BackupPlan {
        database: rig.data().join(DATABASE),
        to: to.clone(),
        reason: Reason::Scheduled,
        now: rig.now(),
        faults: Faults::none(),
    };
    let manifest = online::take(&plan, &mut |_| true).unwrap();
    online::verify(&to).unwrap();
    (to, of_archive(manifest.months.unwrap()))
}

fn of_archive(mut copies: Vec<MonthCopy>) -> Vec<MonthCopy> {
    copies.retain(|copy| copy.of == Beside::Archive);
    copies
}

fn plan(rig: &Rig, from: &Path) -> Plan {
    Plan { from: from.to_owned(), ..restoring::plan(rig) }
}

fn restore(rig: &mut Rig, from: &Path) -> Done {
    rig.stop();
    let done = restore::run(&plan(rig, from)).unwrap();
    rig.start_again();
    done
}

/// All keys of events, of database and archive.
fn keys(data: &Path) -> Vec<String> {
    let sql = "SELECT idempotency_key FROM outbox";
    let mut all = file::lines(&file::open(&data.join(DATABASE)), sql);
    for entry in fs::read_dir(data.join("archive")).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "db") {
            all.extend(file::lines(&file::open(&path), sql));
        }
    }
    all.sort();
    all
}

fn copies(rig: &Rig) -> Vec<String> {
    let entries = fs::read_dir(rig.home().join("backups/archive")).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_month_that_does_not_change_is_copied_once() {
    let rig = with_months();
    for month in ["2026-01", "2026-02"] {
        settle_file(&month_file(&rig, month));
    }
    let (_, first) = back_up(&rig, "oncebox-1.db");
    let months: Vec<String> = first.iter().map(|copy| copy.month.to_string()).collect();
    assert_eq!((months, copies(&rig).len()), (vec!["2026-01".to_owned(), "2026-02".to_owned()], 2));
    // It is not read again: a change that keeps size and time is not seen.
    let path = month_file(&rig, "2026-01");
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let found = file.metadata().unwrap();
    let (at, last) = (found.modified().unwrap(), found.len() - 1);
    let mut byte = [0];
    file.read_exact_at(&mut byte, last).unwrap();
    file.write_all_at(&[byte[0] ^ 1], last).unwrap();
    file.set_modified(at).unwrap();
    assert_eq!(back_up(&rig, "oncebox-2.db").1, first);
    // Written anew with what it had, it is read, and has a copy.
    file.write_all_at(&byte, last).unwrap();
    let hashes = |copies: &[MonthCopy]| copies.iter().map(|copy| copy.sha256.clone()).collect();
    let (anew, before): (Vec<_>, Vec<_>) =
        (hashes(&back_up(&rig, "oncebox-3.db").1), hashes(&first));
    assert_eq!((anew, copies(&rig).len()), (before, 2));
}

#[test]
fn copies_that_no_backup_names_are_removed() {
    let rig = with_months();
    let (first, _) = back_up(&rig, "oncebox-1.db");
    rig.advance(secs(40 * DAY));
    archive(&rig);
    let (_, second) = back_up(&rig, "oncebox-2.db");
    assert_eq!((second.len(), copies(&rig).len()), (3, 3));
    // February gets more events.
    let archived = rig.get("/v1/events?idempotency_key=k-25")["items"][0].clone();
    rig.post(&format!("/v1/events/{}/replay", text(&archived, "id")), &json!({})).is(200);
    let count = "SELECT count(*) FROM outbox";
    until("February does not have it any more", || {
        file::lines(&file::open(&month_file(&rig, "2026-02")), count) == ["9"]
    });
    rig.advance(secs(60));
    let (_, third) = back_up(&rig, "oncebox-3.db");
    assert_eq!((third.len(), copies(&rig).len()), (3, 4));
    let directory = rig.home().join("backups");
    fs::write(directory.join("archive/oncebox-x.db.2026-01.partial"), "half").unwrap();
    fs::write(directory.join("archive/letter.txt"), "dear").unwrap();
    // A manifest that cannot be read may name any of them.
    fs::write(directory.join("mine.db.manifest.json"), "{").unwrap();
    retention::clear(&directory, 1, rig.now()).unwrap();
    assert!(!first.exists());
    assert_eq!(copies(&rig).len(), 6);
    fs::remove_file(directory.join("mine.db.manifest.json")).unwrap();
    retention::clear(&directory, 1, rig.now()).unwrap();
    // A new backup removes what no backup needs, also those that a person removed.
    let unneeded = directory.join("archive/2020-01.0123456789abcdef.db");
    fs::write(&unneeded, "").unwrap();
    back_up(&rig, "oncebox-4.db");
    assert!(!unneeded.exists());
    let mut named: Vec<String> = third
        .iter()
        .map(|copy| copy.path(&directory).file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    named.push("letter.txt".to_owned());
    named.sort();
    assert_eq!(copies(&rig), named);
    online::verify(&directory.join("oncebox-3.db")).unwrap();
}

#[test]
fn a_damaged_copy_of_a_month_is_found_and_not_restored() {
    let mut rig = with_months();
    let (backup, months) = back_up(&rig, "oncebox-1.db");
    let copy = months[0].path(&rig.home().join("backups"));
    let mut bytes = fs::read(&copy).unwrap();
    // The next backup sees that one has another size, and writes it anew.
    fs::write(&copy, &bytes[..9000]).unwrap();
    back_up(&rig, "oncebox-2.db");
    assert!(fs::read(&copy).unwrap() == bytes);
    bytes[9000] ^= 1;
    fs::write(&copy, &bytes).unwrap();
    assert!(matches!(online::verify(&backup), Err(Error::Damaged { path, .. }) if path == copy));
    rig.stop();
    fs::remove_dir_all(rig.data().join("archive")).unwrap();
    let refused = restore::run(&plan(&rig, &backup));
    assert!(matches!(refused, Err(Error::Damaged { path, .. }) if path == copy));
    // The database and the other month come back.
    let without = Plan { without_months: true, ..plan(&rig, &backup) };
    restore::run(&without).unwrap();
    let february = Month::parse("2026-02").unwrap();
    assert!(restore::month(&plan(&rig, &backup), &february).unwrap().is_some());
    rig.start_again();
    assert_eq!(keys(&rig.data()).len(), 15);
    fs::remove_file(&copy).unwrap();
    assert!(matches!(online::verify(&backup), Err(Error::File { path, .. }) if path == copy));
}

#[test]
fn months_come_back_with_their_database() {
    let mut rig = with_months();
    let before = keys(&rig.data());
    let audit = rig.data().join("audit/2026-01.db");
    until("audit events have a file of their own", || audit.exists());
    let (backup, months) = back_up(&rig, "oncebox-1.db");
    // Nothing is there any more.
    rig.stop();
    fs::remove_dir_all(rig.data().join("archive")).unwrap();
    fs::remove_dir_all(audit.parent().unwrap()).unwrap();
    let done = restore::run(&plan(&rig, &backup)).unwrap();
    rig.start_again();
    assert_eq!((of_archive(done.months.unwrap()), done.months_aside), (months, Vec::new()));
    let verified = rig.get("/v1/audit-events/verification");
    assert!(audit.exists() && verified["breaks"] == json!([]), "{verified}");
    assert_eq!(keys(&rig.data()), before);
    assert_eq!(rig.get("/v1/events")["items"].as_array().unwrap().len(), 35);
    let again = json!({ "event_type": "a", "idempotency_key": "k-1", "payload": 1 });
    let again = rig.post("/v1/events", &again).is(200).json()["events"][0].clone();
    assert_eq!(again["already_processed"], true);
    // The months of the backup are there: they stay. Others are set aside.
    rig.advance(secs(40 * DAY));
    archive(&rig);
    let january = fs::metadata(month_file(&rig, "2026-01")).unwrap().modified().unwrap();
    rig.stop();
    let unforced =
        Plan { force: false, database: rig.data().join("none.db"), ..plan(&rig, &backup) };
    assert!(
        matches!(restore::run(&unforced), Err(Error::DatabaseThere(path)) if path == month_file(&rig, "2026-04"))
    );
    let done = restore::run(&plan(&rig, &backup)).unwrap();
    rig.start_again();
    let mut aside =
        done.months_aside.iter().filter(|path| path.to_string_lossy().contains("/archive/"));
    let name = aside.next().unwrap().file_name().unwrap().to_string_lossy().into_owned();
    assert!(name.starts_with("2026-04.db.before-restore-") && aside.next().is_none(), "{name}");
    assert!(done.months_aside.iter().all(|path| path.exists()));
    assert_eq!(fs::metadata(month_file(&rig, "2026-01")).unwrap().modified().unwrap(), january);
    assert_eq!(keys(&rig.data()), before);
    let left = fs::read_dir(rig.data().join("archive")).unwrap();
    let mut left = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(!left.any(|name| name.contains(".restored-")));
}

/// A backup at any moment has each event, in the database or in a month, and none twice after the first start.
#[test]
fn backups_while_events_move_and_come_back_lose_and_double_nothing() {
    let (mut rig, _receiver) = Rig::subscribed("erp");
    publish(&rig, 0, 300);
    rig.advance(secs(40 * DAY));
    let ids = rig.lines("SELECT id FROM outbox ORDER BY seq");
    let before = keys(&rig.data());
    let (mut made, done) = (Vec::new(), AtomicBool::new(false));
    thread::scope(|scope| {
        let mover = scope.spawn(|| {
            for ids in ids.chunks(30) {
                archive(&rig);
                for id in ids {
                    rig.post(&format!("/v1/events/{id}/replay"), &json!({})).is(200);
                }
                rig.settle();
                rig.advance(secs(31 * DAY));
            }
            done.store(true, Ordering::SeqCst);
        });
        while !done.load(Ordering::SeqCst) && made.len() < 40 {
            made.push(back_up(&rig, &format!("oncebox-{}.db", made.len())).0);
        }
        mover.join().unwrap();
    });
    assert!(made.len() > 3, "{}", made.len());
    for backup in made {
        let done = restore(&mut rig, &backup);
        rig.advance(secs(60));
        // While a batch moves, it is in both for a moment.
        until(&format!("each event is in one place: {done:?}"), || keys(&rig.data()) == before);
    }
}

#[test]
fn one_month_comes_back_beside_its_database() {
    let mut rig = with_months();
    let before = keys(&rig.data());
    let (backup, _) = back_up(&rig, "oncebox-1.db");
    let january = Month::parse("2026-01").unwrap();
    rig.call("DELETE", "/v1/archive/2026-01", b"").is(204);
    assert_eq!(keys(&rig.data()).len(), 15);
    rig.stop();
    // A database that does not know its keys, such as one from before.
    Connection::open(rig.data().join(DATABASE)).unwrap().run("DELETE FROM seen_keys");
    assert_eq!(restore::month(&plan(&rig, &backup), &january).unwrap(), Some(Vec::new()));
    assert_eq!(restore::month(&plan(&rig, &backup), &january).unwrap(), None);
    let march = Month::parse("2026-03").unwrap();
    assert!(matches!(restore::month(&plan(&rig, &backup), &march), Err(Error::NoMonth(..))));
    rig.start_again();
    assert_eq!(keys(&rig.data()), before);
    let again = json!({ "event_type": "a", "idempotency_key": "k-1", "payload": 1 });
    let again = rig.post("/v1/events", &again).is(200).json()["events"][0].clone();
    assert_eq!(again["already_processed"], true);
    assert_eq!(
        rig.get("/v1/audit-events?action=archive.restore")["items"][0]["resource"]["id"],
        "2026-01"
    );

    // One that has come back since is in the database, which wins.
    let archived = rig.get("/v1/events?idempotency_key=k-2")["items"][0].clone();
    rig.post(&format!("/v1/events/{}/replay", text(&archived, "id")), &json!({})).is(200);
    until("January does not have it any more", || keys(&rig.data()) == before);
    rig.settle();
    rig.stop();
    let unforced = Plan { force: false, ..plan(&rig, &backup) };
    assert!(matches!(restore::month(&unforced, &january), Err(Error::DatabaseThere(_))));
    let aside = restore::month(&plan(&rig, &backup), &january).unwrap().unwrap();
    assert!(aside[0].exists());
    assert_eq!(keys(&rig.data()).len(), before.len() + 1);
    rig.start_again();
    until("it is in one place", || keys(&rig.data()) == before);
    rig.says("SELECT idempotency_key FROM outbox WHERE seq < 20", "k-2");
}

/// Such as a database that Litestream restored: it gets to know what the months have that stay beside it.
#[test]
fn a_database_without_months_of_its_own_fits_those_that_stay() {
    let (mut rig, _receiver) = Rig::subscribed("erp");
    publish(&rig, 0, 20);
    let (backup, _) = back_up(&rig, "oncebox-1.db");
    fs::remove_file(Manifest::path_of(&backup)).unwrap();
    publish(&rig, 20, 30);
    rig.advance(secs(40 * DAY));
    archive(&rig);
    rig.says("SELECT count(*) FROM outbox", "0");
    let before = keys(&rig.data());
    rig.stop();
    let plan = Plan { without_manifest: true, ..plan(&rig, &backup) };
    assert_eq!(restore::run(&plan).unwrap().months, None);
    rig.start_again();
    until("each event is in one place", || keys(&rig.data()) == before);
    for key in ["k-1", "k-25"] {
        let again = json!({ "event_type": "a", "idempotency_key": key, "payload": 1 });
        let again = rig.post("/v1/events", &again).is(200).json()["events"][0].clone();
        assert_eq!(again["already_processed"], true, "{key}");
    }
}

/// Months have only sealed values: what destroys the key in the database reaches them.
#[test]
fn an_erased_subject_stays_erased_in_months_that_come_back() {
    let (mut rig, receiver) = Rig::subscribed("erp");
    state(&rig, &named_policy());
    for n in [1, 2] {
        let payload: Value = serde_json::from_str(&of_customer(&format!("buyer-{n}"))).unwrap();
        rig.publish(
            &json!({ "event_type": "a", "idempotency_key": format!("o-{n}"), "payload": payload }),
        );
    }
    rig.settle();
    rig.advance(secs(40 * DAY));
    archive(&rig);
    rig.says("SELECT count(*) FROM outbox", "0");
    let (backup, _) = back_up(&rig, "oncebox-1.db");
    let sent_again = |rig: &Rig, key: &str| {
        let event = rig.get(&format!("/v1/events?idempotency_key={key}"))["items"][0].clone();
        let count = receiver.count();
        rig.post(&format!("/v1/events/{}/replay", text(&event, "id")), &json!({})).is(200);
        rig.settle();
        assert_eq!(receiver.count(), count + 1);
        String::from_utf8(receiver.seen()[count].body.clone()).unwrap()
    };
    assert_eq!(sent_again(&rig, "o-1"), of_customer("buyer-1"), "before it is erased");
    until("it is in the database alone", || keys(&rig.data()).len() == 2);
    rig.advance(secs(40 * DAY));
    archive(&rig);
    erase(&rig, "buyer-1").is(200);
    let gone = r#"{"no":1,"customer":null}"#;
    assert_eq!(sent_again(&rig, "o-1"), gone);
    assert_eq!(sent_again(&rig, "o-2"), of_customer("buyer-2"));
    until("they are in the database alone", || keys(&rig.data()).len() == 2);
    // The database and the months from before.
    assert_eq!(restore(&mut rig, &backup).changes.erased, 1);
    assert_eq!(sent_again(&rig, "o-1"), gone);
    // The month alone.
    rig.advance(secs(60));
    rig.stop();
    restore::month(&plan(&rig, &backup), &Month::parse("2026-01").unwrap()).unwrap();
    rig.start_again();
    until("each is in one place", || keys(&rig.data()).len() == 2);
    assert_eq!(sent_again(&rig, "o-1"), gone);
    let months = Manifest::read_of(&backup).unwrap().months.unwrap();
    let copy = fs::read(months[0].path(&rig.home().join("backups"))).unwrap();
    for clear in ["buyer-1", "buyer-2"] {
        assert!(
            !copy.windows(clear.len()).any(|part| part == clear.as_bytes()),
            "{clear} is sealed"
        );
    }
}

/// A restore that dies anywhere is a whole one after the start, or none.
#[test]
fn a_restore_that_dies_at_any_step_brings_database_and_months_back_or_neither() {
    let mut rig = with_months();
    let before = keys(&rig.data());
    let (backup, _) = back_up(&rig, "oncebox-1.db");
    let (mut old, mut new) = (0, 0);
    for nth in 1.. {
        rig.publish(&json!({ "event_type": "a", "idempotency_key": "after", "payload": 1 }));
        rig.settle();
        rig.stop();
        fs::remove_file(month_file(&rig, "2026-01")).unwrap();
        fs::copy(month_file(&rig, "2026-02"), month_file(&rig, "2026-03")).unwrap();
        let faults = Faults::at(Step::Restore, nth);
        let died = restore::run(&Plan { faults: faults.clone(), ..plan(&rig, &backup) }).is_err();
        assert_eq!(died, faults.happened());
        rig.start_again();
        let has = |month: &str| month_file(&rig, month).exists();
        match (has("2026-01"), has("2026-03")) {
            (true, false) => {
                new += 1;
                assert_eq!(keys(&rig.data()), before);
            }
            (false, true) => {
                old += 1;
                assert!(keys(&rig.data()).contains(&"after".to_owned()));
                rig.stop();
                restore::run(&plan(&rig, &backup)).unwrap();
                rig.start_again();
            }
            other => panic!("death {nth} left {other:?}"),
        }
        let left = fs::read_dir(rig.data().join("archive")).unwrap();
        let mut left = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        assert!(!left.any(|name| name.contains(".restored-")), "nothing half done is left");
        if !died {
            break;
        }
        rig.advance(secs(60));
    }
    assert!(old >= 2 && new >= 8, "{old} {new}");
}
