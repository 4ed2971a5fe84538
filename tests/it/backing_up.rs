//! Backups by the clock.

use std::fs;
use std::time::Duration;

use oncebox::backup::manifest::Reason;
use oncebox::backup::online;
use oncebox::backup::retention::{self, BackupFile};

use crate::rig::{Rig, secs, until};

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
        faults: oncebox::base::faults::Faults::none(),
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
