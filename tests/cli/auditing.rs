//! The record of changes: listed from the service, exported and verified from the file.

use crate::cli::rig::prelude::*;

fn changed() -> Rig {
    let rig = Rig::new();
    rig.ok(&["token", "create", "one", "--role", "read"]);
    rig.ok(&["token", "create", "two", "--role", "read"]);
    rig.ok(&["token", "create", "three", "--role", "read"]);
    rig
}

#[test]
fn changes_are_listed_with_who_and_what() {
    let rig = changed();
    shows(&rig.ok(&["audit", "list", "--action", "token"]), &["first admin token", "token.create"]);
    assert_eq!(rig.items(&["audit", "list", "--actor", "system"]).len(), 1);
    assert_eq!(rig.run(&["audit", "list", "--result", "maybe"]).code, 65);
}

#[test]
fn a_chain_is_verified_while_the_service_runs_and_after_and_as_a_copy() {
    let mut rig = changed();
    let running = rig.json(&["audit", "verify"]);
    assert_eq!((running["ok"].clone(), running["rows"].clone()), (true.into(), 4.into()));
    let copy = rig.dir.path().join("copy");
    rig.kill();
    assert!(rig.ok(&["audit", "verify"]).contains("the chain is intact: 4 rows"));
    fs::create_dir(&copy).unwrap();
    let (from, to) = (rig.dir.path().join("oncebox.db"), copy.join("copied.db"));
    // What is in the log belongs to the file; the shell of SQLite, or a backup, folds it in.
    let conn = Connection::open(&from).unwrap();
    conn.execute("VACUUM INTO ?1", [to.to_str().unwrap()]).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o500)).unwrap();
    let copied = rig.json(&["audit", "verify", "--file", to.to_str().unwrap()]);
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(copied["head"], running["head"]);
    let head = running["head"].as_str().unwrap();
    rig.ok(&["audit", "verify", "--noted", head]);
    let other = format!("3:{}", "0".repeat(64));
    rig.run(&["audit", "verify", "--noted", &other])
        .ends(1, &[])
        .prints(&["row 3 is not the one that was noted"]);
}

#[test]
fn what_was_done_to_the_file_is_told_by_its_row() {
    for (done, told) in [
        ("UPDATE audit_events SET actor_display = 'nobody' WHERE seq = 2", "row 2 was changed"),
        ("DELETE FROM audit_events WHERE seq = 2", "rows 2 to 2 are missing"),
        ("DELETE FROM audit_events WHERE seq = 4", "rows 4 to 4 are missing at the end"),
        ("DELETE FROM audit_events", "rows 1 to 4 are missing at the end"),
        (
            "INSERT INTO audit_events SELECT 5, at, tenant, actor_type, actor_id, actor_display,
                    address, user_agent, action, resource_type, resource_id, result, request_id,
                    correlation_id, method, path, status, changes, previous_hash, hash
               FROM audit_events WHERE seq = 4",
            "row 5 was written as row 4",
        ),
        (
            "UPDATE audit_events SET seq = -3 WHERE seq = 3;
             UPDATE audit_events SET seq = 3 WHERE seq = 2;
             UPDATE audit_events SET seq = 2 WHERE seq = -3;",
            "row 2 was written as row 3",
        ),
        ("DELETE FROM meta WHERE key = 'audit_head'", "no head is stored"),
    ] {
        let mut rig = changed();
        rig.kill();
        let conn = Connection::open(rig.dir.path().join("oncebox.db")).unwrap();
        assert!(conn.execute("UPDATE audit_events SET action = 'x'", []).is_err());
        assert!(conn.execute("DELETE FROM audit_events", []).is_err());
        conn.run("DROP TRIGGER audit_events_are_never_changed");
        conn.run("DROP TRIGGER audit_events_are_never_deleted");
        conn.run(done);
        drop(conn);
        let ran = rig.run(&["audit", "verify"]);
        assert!(ran.code == 1 && ran.out.contains(told), "{done}: {ran:?}");
        let json = rig.run(&["audit", "verify", "--json"]);
        assert!(json.code == 1 && json.out.starts_with(r#"{"ok":false"#), "{json:?}");
    }
}

#[test]
fn an_export_is_verified_without_the_file() {
    let rig = changed();
    let export = rig.ok(&["audit", "export"]);
    let lines: Vec<&str> = export.lines().collect();
    assert_eq!(lines.len(), 6);
    assert!(!export.contains("obx_"));
    let verify = |text: &str| {
        let path = rig.file("export.ndjson", text);
        rig.run(&["audit", "verify", "--export", path.to_str().unwrap()])
    };
    let whole = verify(&export);
    assert!(whole.code == 0 && whole.out.contains("the chain is intact: 4 rows"), "{whole:?}");
    for (left_out, told) in [
        (2, "rows 2 to 2 are missing"),
        (4, "rows 4 to 4 are missing at the end"),
        (5, "no head is stored"),
    ] {
        let mut cut = lines.clone();
        cut.remove(left_out);
        let ran = verify(&cut.join("\n"));
        assert!(ran.code == 1 && ran.out.contains(told), "{left_out}: {ran:?}");
    }
    let swapped = [lines[0], lines[1], lines[3], lines[2], lines[4], lines[5]].join("\n");
    assert!(verify(&swapped).out.contains("row 2 comes after row 3"));
    assert!(verify(&export.replace("two", "tow")).out.contains("row 3 was changed"));
    assert_eq!(verify("").code, 65);
    assert_eq!(verify("{}").code, 65);
    assert_eq!(verify(lines[1]).code, 65);
    // What comes after an earlier export goes on where it ended.
    let later = rig.ok(&["audit", "export", "--after", "3"]);
    assert_eq!(later.lines().count(), 3);
    assert_eq!(verify(&later).code, 0);
}

/// A service whose rows were made in October 2025, and new ones; the old ones have moved.
fn with_months() -> Rig {
    let mut rig = changed();
    rig.kill();
    file::made_earlier(&rig.dir.path().join("oncebox.db"), |seq, _| OCTOBER + seq * 1000);
    rig.start();
    rig.until("they have moved", |rig| {
        let first = Connection::open(rig.dir.path().join("oncebox.db")).unwrap();
        file::lines(&first, "SELECT count(*) FROM audit_events") == ["0"]
    });
    rig.ok(&["token", "create", "four", "--role", "read"]);
    rig
}

/// 2025-10-05T14:40:00Z.
const OCTOBER: i64 = 1_759_675_200_000;

#[test]
fn the_files_of_months_and_the_database_are_verified_and_exported_as_one_chain() {
    let mut rig = with_months();
    let path = rig.dir.path().join("audit/2025-10.db");
    let month = path.to_str().unwrap();
    assert_eq!(rig.items(&["audit", "list"]).len(), 5);
    for running in [true, false] {
        if !running {
            rig.kill();
        }
        let all = rig.json(&["audit", "verify"]);
        assert_eq!((&all["ok"], &all["rows"]), (&json!(true), &json!(5)));
        assert_eq!(rig.json(&["audit", "verify", "--file", month])["rows"], 4);
        let database = rig.dir.path().join("oncebox.db");
        let alone = rig.json(&["audit", "verify", "--file", database.to_str().unwrap()]);
        assert_eq!((&alone["rows"], &alone["head"]), (&json!(1), &all["head"]));
    }
    let noted = rig.json(&["audit", "verify", "--file", month])["head"].clone();
    rig.ok(&["audit", "verify", "--noted", noted.as_str().unwrap()]);
    let other = format!("3:{}", "0".repeat(64));
    rig.run(&["audit", "verify", "--noted", &other])
        .ends(1, &[])
        .prints(&["2025-10.db: row 3 is not the one that was noted"]);
    let export = |args: &[&str]| {
        let text = rig.ok(&[&["audit", "export"], args].concat());
        let written = rig.file("export.ndjson", &text);
        rig.ok(&["audit", "verify", "--export", written.to_str().unwrap()]);
        text.lines().count() - 2
    };
    assert_eq!(export(&[]), 5);
    assert_eq!(export(&["--after", "3"]), 2);
    assert_eq!(export(&["--since", "2025-10-05T14:40:03Z"]), 3);
    assert_eq!(export(&["--since", "2025-10-05T14:40:03Z", "--until", "2025-10-05T14:40:04Z"]), 1);
    assert_eq!(export(&["--until", "2025-11-01"]), 4);
    assert_eq!(export(&["--since", "2100-01-01"]), 0);
    assert_eq!(export(&["--file", month]), 4);
    rig.run(&["audit", "export", "--since", "soon"]).ends(2, &["--since"]);
    let conn = Connection::open(&path).unwrap();
    conn.run("DROP TRIGGER audit_events_are_never_changed");
    conn.run("UPDATE audit_events SET result = 'DENIED' WHERE seq = 2");
    rig.run(&["audit", "verify"]).ends(1, &[]).prints(&["2025-10.db: row 2 was changed"]);
}

/// "…with a detached ed25519 signature and the command that checks it without Oncebox."
#[test]
fn an_export_is_signed_and_openssl_checks_it() {
    if Command::new("openssl").arg("version").output().is_err() {
        return skipped("no openssl");
    }
    let mut rig = with_months();
    let path = rig.dir.path().join("export.ndjson");
    let name = path.to_str().unwrap();
    let written = |ending: &str| fs::read(format!("{name}{ending}")).unwrap();
    let printed = rig.ok(&["audit", "export", "--out", name]);
    let (public, signature) = (written(".pub"), written(".sig"));
    assert_eq!(signature.len(), 64);
    assert!(printed.starts_with(std::str::from_utf8(&public).unwrap()), "{printed}");
    assert_eq!(String::from_utf8(written("")).unwrap(), rig.ok(&["audit", "export"]));
    let check = || {
        let command = printed.lines().last().unwrap();
        Command::new("sh").args(["-c", command]).output().unwrap()
    };
    let checked = check();
    let said = String::from_utf8_lossy(&checked.stdout);
    assert!(checked.status.success() && said.contains("Verified Successfully"), "{checked:?}");
    fs::write(&path, String::from_utf8(written("")).unwrap().replace("four", "five")).unwrap();
    assert!(!check().status.success());
    // The key stays over a rotation of the master key, and a stop.
    rig.ok(&["keys", "rotate"]);
    let again = || {
        let told = rig.json(&["audit", "export", "--out", name, "--since", "2025-10-05"]);
        assert_eq!(told["public_key"].as_str().unwrap().as_bytes(), public);
        assert!(check().status.success());
    };
    again();
    rig.kill();
    rig.ok(&["keys", "rotate"]);
    let old = fs::read_dir(rig.dir.path()).unwrap().map(|entry| entry.unwrap().path());
    for key in old.filter(|path| path.display().to_string().contains("master.key.")) {
        fs::remove_file(key).unwrap();
    }
    let told = rig.json(&["audit", "export", "--out", name]);
    assert_eq!(told["public_key"].as_str().unwrap().as_bytes(), public);
}

#[test]
fn a_file_without_a_record_is_told_so() {
    let rig = Rig::stopped();
    rig.run(&["audit", "verify"]).ends(4, &["no such file"]);
    let letter = rig.file("letter.txt", &"this is a letter ".repeat(100));
    assert_eq!(rig.run(&["audit", "verify", "--file", letter.to_str().unwrap()]).code, 65);
    let path = rig.dir.path().join("other.db");
    Connection::open(&path).unwrap().run("CREATE TABLE t (a)");
    rig.run(&["audit", "verify", "--file", path.to_str().unwrap()]).ends(65, &["no audit events"]);
}
