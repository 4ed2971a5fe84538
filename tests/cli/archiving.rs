//! The months of the archive, as an administrator backs them up, verifies them and brings them back.

use crate::rig::prelude::*;

/// A service with one event in the archive and one in the database; and that month.
fn with_a_month() -> (Rig, String) {
    let mut rig = Rig::new();
    rig.ok(&["emit", "invoice.paid", "--payload", "{}", "--key", "old"]);
    rig.until("it is finished", |rig| {
        !text(&rig.items(&["event", "list"])[0], "finished_at").is_empty()
    });
    rig.kill();
    let conn = Connection::open(rig.dir.path().join("oncebox.db")).unwrap();
    conn.run("UPDATE outbox SET received_at = received_at - 8640000000, completed_at = completed_at - 8640000000");
    drop(conn);
    rig.start();
    rig.until("it is moved", |rig| {
        let archive = rig.json(&["archive", "list"]);
        archive["items"][0].is_object() && archive["run"]["since"].is_null()
    });
    rig.ok(&["emit", "invoice.paid", "--payload", "{}", "--key", "new"]);
    let month = text(&rig.json(&["archive", "list"])["items"][0], "month");
    (rig, month)
}

#[test]
fn months_are_backed_up_listed_verified_and_brought_back() {
    let (mut rig, month) = with_a_month();
    let shelf = rig.dir.path().join("backups");
    fs::create_dir(&shelf).unwrap();
    let shelf = shelf.to_str().unwrap();
    let made = rig.json(&["backup", shelf]);
    assert_eq!(made["months"][0]["month"], month.as_str());
    let file = format!("{shelf}/{}", text(&made, "file"));
    shows(&rig.ok(&["backup", "list", shelf]), &["MONTHS", "1 ("]);
    shows(&rig.ok(&["backup", "verify", shelf]), &[": valid; made ", ", months 1 ("]);
    rig.run(&["restore", &file, "--month", &month]).ends(75, &["Stop the service first"]);

    rig.ok(&["archive", "delete", &month, "--yes"]);
    assert_eq!(rig.items(&["event", "list"]).len(), 1);
    rig.kill();
    shows(&rig.ok(&["restore", &file, "--month", &month]), &[&format!("restored {month} from")]);
    shows(&rig.ok(&["restore", &file, "--month", &month]), &["is there already, as in the backup"]);
    rig.run(&["restore", &file, "--month", "2001-01"]).ends(4, &["has no archive of 2001-01"]);
    rig.start();
    assert_eq!(rig.items(&["event", "list"]).len(), 2);
    rig.kill();
    shows(&rig.ok(&["restore", &file, "--force"]), &["months of archive and audit: 1 ("]);
    rig.start();
    assert_eq!(rig.items(&["event", "list"]).len(), 2);
}
