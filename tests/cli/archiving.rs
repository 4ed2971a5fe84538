//! The months of the archive, as an administrator backs them up, verifies them and brings them back.

use crate::cli::rig::prelude::*;

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
    shows(
        &rig.ok(&["archive", "verify"]),
        &[&format!("{month}: valid; outbox 1, "), "deliveries 0"],
    );
    let made = rig.json(&["backup", shelf]);
    assert_eq!(made["months"][0]["month"], month.as_str());
    let file = format!("{shelf}/{}", text(&made, "file"));
    shows(&rig.ok(&["backup", "list", shelf]), &["MONTHS", "1 ("]);
    shows(&rig.ok(&["backup", "verify", shelf]), &[": valid; made ", ", months 1 ("]);
    shows(&rig.ok(&["archive", "verify", &month]), &[&format!("as in {}", text(&made, "file"))]);
    rig.run(&["archive", "verify", "2001-01"]).ends(4, &["the archive has no 2001-01"]);
    rig.run(&["archive", "verify", "2001-13"]).ends(2, &["write a month like 2026-01"]);
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

#[test]
fn what_is_wrong_with_a_month_is_said() {
    let (mut rig, month) = with_a_month();
    let path = rig.dir.path().join("archive").join(format!("{month}.db"));
    rig.kill();
    // The database has its event as well.
    let conn = Connection::open(&path).unwrap();
    conn.run("INSERT INTO payloads (body) VALUES (X'00')");
    conn.run("PRAGMA foreign_keys = OFF");
    conn.run("UPDATE outbox SET seq = 2, payload = NULL, payload_seq = 77");
    drop(conn);
    let wrong = rig.run(&["archive", "verify"]);
    assert_eq!(wrong.code, 65, "{wrong:?}");
    shows(
        &wrong.out,
        &[
            "rows of outbox that refer to missing rows of payloads: 1",
            "rows of payloads that belong to no event: 1",
            "events (event) that the database has as well: 1",
        ],
    );
    let listed = rig.run(&["archive", "verify", "--json"]);
    let listed: Value = serde_json::from_str(&listed.out).unwrap();
    assert_eq!(listed["items"][0]["faults"].as_array().unwrap().len(), 3);
    fs::write(&path, "no database at all").unwrap();
    rig.run(&["archive", "verify"]).ends(65, &["some months are not valid"]);
}

/// A month that was not written since its backup has to have the same bytes.
#[test]
fn a_month_that_rots_is_found_by_its_backup() {
    let (mut rig, month) = with_a_month();
    rig.kill();
    let path = rig.dir.path().join("archive").join(format!("{month}.db"));
    let file = fs::File::options().read(true).write(true).open(&path).unwrap();
    let hour_ago = std::time::SystemTime::now() - Duration::from_hours(1);
    file.set_modified(hour_ago).unwrap();
    let shelf = rig.dir.path().join("backups");
    fs::create_dir(&shelf).unwrap();
    rig.ok(&["backup", shelf.to_str().unwrap()]);
    let mut bytes = fs::read(&path).unwrap();
    let place =
        bytes.windows(4).position(|part| part == b"old\0" || part.starts_with(b"old")).unwrap();
    bytes[place] = b'b';
    std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).unwrap();
    file.set_modified(hour_ago).unwrap();
    let wrong = rig.run(&["archive", "verify"]);
    assert_eq!(wrong.code, 65, "{wrong:?}");
    shows(&wrong.out, &["although it was not written since"]);
}
