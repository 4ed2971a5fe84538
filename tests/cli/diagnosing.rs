//! `oncebox doctor`: each fault is made for real, found, and mended where that loses nothing.

use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::CommandExt;

use crate::cli::rig::prelude::*;

/// The exit code, and each check's state and words.
fn doctor(rig: &Rig, more: &[&str]) -> (i32, BTreeMap<String, (String, String)>) {
    let ran = rig.run(&[&["doctor", "--json"], more].concat());
    let report: Value = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{ran:?}"));
    let each = report["checks"].as_array().unwrap().iter().map(|check| {
        let text = |field: &str| check[field].as_str().unwrap().to_owned();
        (text("name"), (text("state"), text("detail")))
    });
    (ran.code, each.collect())
}

fn set_mode(rig: &Rig, name: &str, mode: u32) {
    fs::set_permissions(rig.dir.path().join(name), Permissions::from_mode(mode)).unwrap();
}

/// A directory a service has used and left in order, as far as a killed one can.
fn used() -> Rig {
    let mut rig = Rig::new();
    rig.ok(&["emit", "invoice.paid", "--payload", "{}"]);
    rig.kill();
    rig
}

#[test]
fn beside_a_running_service_nothing_fails() {
    let rig = Rig::new();
    let (code, checks) = doctor(&rig, &["--deep"]);
    let failed: Vec<_> = checks.iter().filter(|(_, (state, _))| state == "fail").collect();
    assert!(failed.is_empty() && code == 0, "{failed:?}");
    let mut fine = vec![
        "integrity",
        "references",
        "journal",
        "schema",
        "key",
        "key_matches",
        "disk",
        "archive",
    ];
    // The service has the file open, and is no other program.
    fine.push("other_programs");
    for name in fine {
        assert_eq!(checks[name].0, "ok", "{name}: {}", checks[name].1);
    }
    shows(&rig.ok(&["doctor"]), &["ok    integrity", "0 months"]);
    shows(&rig.ok(&["status"]), &["  archive: 0 months", "  disk: "]);
}

/// What a program is told whose SQLite may meet the fault of versions before 3.51.3.
const CAVEAT: &str = "if its SQLite is older than 3.51.3 (sqlite_version()), it must set PRAGMA wal_autocheckpoint=0";

#[test]
fn a_program_that_has_the_file_open_is_named_with_its_sqlite_and_what_it_must_set() {
    let rig = used();
    assert_eq!(doctor(&rig, &[]).1["other_programs"].0, "ok");
    let script = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); \
                  db.execute('SELECT 1 FROM outbox'); print('open', flush=True); sys.stdin.read()";
    let mut python = Command::new("python3");
    python.args(["-c", script]).arg(rig.dir.path().join("oncebox.db"));
    let Ok(mut python) = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() else {
        return skipped("needs python3");
    };
    BufReader::new(python.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
    let maps = fs::read_to_string(format!("/proc/{}/maps", python.id())).unwrap();
    let library = maps.lines().find(|line| line.contains("libsqlite3.so"));
    let library = library.and_then(|line| line.split_once('/')).map(|(_, path)| format!("/{path}"));
    let with = library.unwrap_or_else(|| "no SQLite library, so one that is built in".to_owned());
    let (code, checks) = doctor(&rig, &[]);
    assert_eq!((code, checks["other_programs"].0.as_str()), (0, "warn"), "{checks:?}");
    let detail = &checks["other_programs"].1;
    let named = format!("(process {}, with {with}) has it open: {CAVEAT}", python.id());
    assert!(detail.contains(&named), "{named}\n{detail}");
    // So is one with an SQLite of its own, such as this test.
    let conn = Connection::open(rig.dir.path().join("oncebox.db")).unwrap();
    let detail = doctor(&rig, &[]).1["other_programs"].1.clone();
    let this = format!(
        "(process {}, with no SQLite library, so one that is built in)",
        std::process::id()
    );
    assert!(detail.contains(&this) && detail.ends_with(CAVEAT), "{this}\n{detail}");
    drop(conn);
    drop(python.stdin.take());
    assert!(python.wait().unwrap().success());
    assert_eq!(doctor(&rig, &[]).1["other_programs"].0, "ok");
}

#[test]
fn modes_that_let_others_in_fail_and_are_mended() {
    let rig = used();
    for (file, name) in [
        (".", "directory"),
        ("oncebox.db", "database_mode"),
        ("admin.token", "token_mode"),
        ("master.key", "key"),
    ] {
        set_mode(&rig, file, 0o777);
        let (code, checks) = doctor(&rig, &[]);
        assert_eq!((code, checks[name].0.as_str()), (1, "fail"), "{file}");
        let (code, checks) = doctor(&rig, &["--fix"]);
        assert_eq!((code, checks[name].0.as_str()), (0, "ok"), "{file}: {checks:?}");
        assert_eq!(doctor(&rig, &[]).0, 0, "{file}");
    }
}

#[test]
fn what_a_killed_service_leaves_is_seen_and_cleared() {
    let rig = used();
    let (code, checks) = doctor(&rig, &[]);
    assert_eq!((code, checks["address"].0.as_str()), (0, "warn"));
    rig.run(&["doctor", "--fix"]).prints(&["fixed: removed", "fixed: emptied"]);
    assert!(!doctor(&rig, &[]).1.contains_key("address"));
    assert_eq!(fs::metadata(rig.dir.path().join("oncebox.db-wal")).map_or(0, |meta| meta.len()), 0);
}

#[test]
fn a_damaged_page_is_found() {
    let rig = used();
    assert_eq!(doctor(&rig, &["--fix"]).0, 0);
    let file = fs::OpenOptions::new().write(true).open(rig.dir.path().join("oncebox.db")).unwrap();
    // Page 1 holds the header; what follows are the trees of tables and indexes.
    for page in 3..20 {
        file.write_all_at(&[0xA5; 4096], page * 4096).unwrap();
    }
    let (code, checks) = doctor(&rig, &["--deep"]);
    assert_eq!((code, checks["integrity"].0.as_str()), (1, "fail"), "{checks:?}");
    assert!(checks["integrity"].1.contains("restore a backup"), "{checks:?}");
}

#[test]
fn a_key_that_is_wrong_or_gone_is_named() {
    let (rig, other) = (used(), used());
    let key = rig.dir.path().join("master.key");
    fs::copy(other.dir.path().join("master.key"), &key).unwrap();
    let (code, checks) = doctor(&rig, &[]);
    assert_eq!((code, checks["key_matches"].0.as_str()), (1, "fail"), "{checks:?}");
    fs::write(&key, "not a key").unwrap();
    assert_eq!(doctor(&rig, &[]).1["key"].0, "fail");
    fs::remove_file(&key).unwrap();
    assert!(doctor(&rig, &[]).1["key"].1.contains("is missing"));
}

#[test]
fn settings_that_cannot_serve_are_found() {
    let rig = Rig::stopped();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let config = format!(
        "[listen]\napi = \"{address}\"\npublic_url = \"https://hooks.example.com\"\n[disk]\nreserve = \"1000000GiB\"\n"
    );
    rig.file("oncebox.toml", &config);
    let (code, checks) = doctor(&rig, &[]);
    assert_eq!(code, 1);
    assert_eq!(checks["port"].0, "fail");
    assert_eq!(checks["disk"].0, "fail");
    assert_eq!(checks["public_url"].0, "ok");
    assert_eq!(checks["proxies"].0, "warn");
    assert_eq!(checks["database"].0, "warn");
    assert_eq!(checks["backup"].0, "warn");
}

#[test]
fn a_directory_that_is_missing_is_made() {
    let rig = Rig::stopped();
    let place = rig.dir.path().join("data");
    let text = place.to_str().unwrap();
    assert_eq!(doctor(&rig, &["--data", text]).1["directory"].0, "fail");
    assert_eq!(doctor(&rig, &["--data", text, "--fix"]).1["directory"].0, "ok");
    assert_eq!(fs::metadata(&place).unwrap().permissions().mode() & 0o777, 0o700);
}

/// Runs the program as a user to whom the directory is closed.
fn as_stranger(rig: &Rig, args: &[&str]) -> Ran {
    as_stranger_with(rig, args, &[])
}

fn as_stranger_with(rig: &Rig, args: &[&str], more: &[(&str, &Path)]) -> Ran {
    // Where a stranger can get at it: the directory of the build may be closed as well.
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
    let program = place.path().join("oncebox");
    // Not copied by this process: a fork of another test would keep it open for writing for a moment.
    let mut copy = Command::new("cp");
    copy.arg(assert_cmd::cargo::cargo_bin!("oncebox")).arg(&program);
    assert!(copy.status().unwrap().success());
    let mut command = Command::new(program);
    command.args(args).env_clear().env("ONCEBOX_DATABASE__DIRECTORY", rig.dir.path());
    command.envs(more.iter().copied()).current_dir("/");
    let ours = fs::metadata("/proc/self").unwrap();
    if ours.uid() == 0 {
        command.uid(54_321).gid(54_321);
    } else {
        set_mode(rig, ".", 0o000);
    }
    let ran = run(&mut command, "");
    set_mode(rig, ".", 0o700);
    ran
}

#[test]
fn another_user_is_told_that_it_is_closed_and_not_that_nothing_is_there() {
    let rig = used();
    let ran = as_stranger(&rig, &["status"]);
    assert!(ran.code == 77 && ran.err.contains("sudo -u oncebox"), "{ran:?}");
    assert!(!ran.err.contains("no oncebox has run"), "{ran:?}");
    let ran = as_stranger(&rig, &["doctor"]);
    assert!(ran.code == 0, "that it is closed is right: {ran:?}");
    assert!(ran.out.contains("is closed to this user, as it should be"), "{ran:?}");
    assert!(!ran.out.contains("first start makes it"), "{ran:?}");
    let ran = as_stranger(&rig, &["keys", "list"]);
    assert!(
        ran.code == 77 && ran.err.contains("is closed to this user: run it as root"),
        "{ran:?}"
    );
    for args in [&["keys", "list"][..], &["audit", "verify", "--offline"], &["trigger", "stripe"]] {
        let ran = as_stranger(&rig, args);
        assert!(!ran.err.contains("there is no database"), "{args:?} {ran:?}");
        assert!(!ran.err.contains("no such file"), "{args:?} {ran:?}");
    }
}

#[test]
fn a_start_on_a_damaged_file_says_what_to_do() {
    let mut rig = used();
    rig.kill();
    fs::write(rig.dir.path().join("oncebox.db"), "no database at all ".repeat(500)).unwrap();
    // Its log has every page of a database this small.
    fs::remove_file(rig.dir.path().join("oncebox.db-wal")).unwrap();
    let ran = rig.run(&["serve"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    for said in ["oncebox.db is damaged", "oncebox doctor", "oncebox restore --force"] {
        assert!(ran.err.contains(said), "{said}: {ran:?}");
    }
}

/// As with the package: root's key, and a directory of the service's user.
#[test]
fn the_service_s_user_finds_a_key_that_only_root_may_read_and_nothing_fails() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        return skipped("needs root, to run as another user");
    }
    let rig = used();
    for entry in fs::read_dir(rig.dir.path()).unwrap() {
        std::os::unix::fs::chown(entry.unwrap().path(), Some(54_321), Some(54_321)).unwrap();
    }
    std::os::unix::fs::chown(rig.dir.path(), Some(54_321), Some(54_321)).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    fs::set_permissions(elsewhere.path(), Permissions::from_mode(0o755)).unwrap();
    let key = elsewhere.path().join("master.key");
    fs::copy(rig.dir.path().join("master.key"), &key).unwrap();
    let ran = as_stranger_with(&rig, &["doctor"], &[("ONCEBOX_KEYS__MASTER_KEY_FILE", &key)]);
    assert!(ran.code == 0, "{ran:?}");
    assert!(ran.out.contains("master.key is closed to this user, as it should be"), "{ran:?}");
}

#[test]
fn the_clock_and_the_periodic_duties_are_shown_and_a_clock_that_is_believed_needs_no_confirmation()
{
    let rig = Rig::new();
    let page = rig.ok(&["clock", "show"]);
    shows(&page, &["the clock shows", "the service goes by", "believed", "yes", "delete-months"]);
    assert_eq!(rig.json(&["clock", "show"])["doubt"], Value::Null);
    let refused = rig.run(&["clock", "confirm"]);
    assert_eq!(refused.code, 5, "{refused:?}");
    shows(&refused.err, &["The clock is believed already."]);
}
