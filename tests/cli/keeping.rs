//! Backups, restores and upgrades, as an administrator does them.

use std::os::unix::fs::MetadataExt;

use crate::cli::rig::prelude::*;

#[test]
fn a_backup_is_taken_beside_the_running_service_and_when_it_does_not_run() {
    let mut rig = Rig::new();
    let emitted = rig.run_with(&["emit"], "{\"event_type\":\"invoice.paid\",\"payload\":1}\n");
    assert_eq!(emitted.code, 0, "{emitted:?}");
    let shelf = rig.dir.path().join("shelf");
    fs::create_dir(&shelf).unwrap();
    let shelf = shelf.to_str().unwrap();
    let manifest = rig.json(&["backup", shelf]);
    assert_eq!(manifest["rows"]["outbox"], 1);
    assert_eq!(manifest["reason"], "asked");
    let file = format!("{shelf}/{}", manifest["file"].as_str().unwrap());
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    rig.kill();
    let other = rig.dir.path().join("by-name.db");
    shows(&rig.ok(&["backup", other.to_str().unwrap()]), &["read back and verified"]);

    shows(&rig.ok(&["backup", "list", shelf]), &[manifest["file"].as_str().unwrap()]);
    let whole = rig.ok(&["backup", "verify", &file, other.to_str().unwrap()]);
    assert_eq!(whole.matches(": valid; made ").count(), 2, "{whole}");
    // A directory, or what a shell makes of a star, is as good; a spoiled manifest is not passed over.
    let manifest = format!("{file}.manifest.json");
    for args in [&[shelf][..], &[&file, &manifest]] {
        let whole = rig.ok(&[&["backup", "verify"], args].concat());
        assert_eq!(whole.matches(": valid; made ").count(), 1, "{whole}");
    }
    fs::write(&manifest, "{").unwrap();
    assert_eq!(rig.run(&["backup", "verify", shelf]).code, 65);
}

#[test]
fn the_master_key_and_the_token_are_in_no_backup() {
    let rig = Rig::new();
    rig.ok(&words("provider create stripe --scheme stripe --pii allow --generate-secret"));
    let to = rig.dir.path().join("b.db");
    rig.ok(&["backup", to.to_str().unwrap()]);
    let key = fs::read_to_string(rig.dir.path().join("master.key")).unwrap();
    let token = fs::read_to_string(rig.dir.path().join("admin.token")).unwrap();
    for made in [to.clone(), to.with_extension("db.manifest.json")] {
        let bytes = fs::read(&made).unwrap();
        for secret in [key.trim().split(':').next_back().unwrap(), token.trim()] {
            let found = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
            assert!(!found, "{}", made.display());
        }
    }
}

#[test]
fn a_backup_overwrites_nothing_and_says_why_it_cannot_be_made() {
    let rig = Rig::new();
    let there = rig.file("there.db", "somebody's");
    let refused = rig.run(&["backup", there.to_str().unwrap()]);
    assert_eq!(refused.code, 5, "{refused:?}");
    assert_eq!(fs::read_to_string(&there).unwrap(), "somebody's");
    let nowhere = rig.run(&["backup", "/nowhere/at/all.db"]);
    assert_eq!(nowhere.code, 4, "{nowhere:?}");
    assert_eq!(rig.run(&["backup"]).code, 2);
    assert_eq!(rig.run(&["backup", "verify", there.to_str().unwrap()]).code, 65);
}

#[test]
fn what_root_restores_into_a_directory_of_the_service_s_user_is_that_user_s() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        return skipped("needs root, to own nothing");
    }
    let mut rig = Rig::new();
    let data = rig.dir.path().to_owned();
    let copies = tempfile::tempdir().unwrap();
    let (archive, month) = (data.join("archive"), data.join("archive/2026-01.db"));
    fs::create_dir_all(&archive).unwrap();
    let database = Connection::open(data.join("oncebox.db")).unwrap();
    database.run(&format!("VACUUM INTO '{}'", month.display()));
    rig.ok(&["backup", copies.path().to_str().unwrap()]);
    rig.kill();
    fs::remove_dir_all(&archive).unwrap();
    let names = |at: &Path| fs::read_dir(at).unwrap().map(|entry| entry.unwrap().path());
    let made = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name != "oncebox.toml" && (name.starts_with("oncebox.") || name == "admin.token")
    };
    names(&data).filter(made).for_each(|path| fs::remove_file(path).unwrap());
    for place in [&data, &data.join("master.key")] {
        std::os::unix::fs::chown(place, Some(54_321), Some(54_322)).unwrap();
    }
    let copy =
        names(copies.path()).find(|path| path.extension().is_some_and(|end| end == "db")).unwrap();
    rig.ok(&["restore", copy.to_str().unwrap()]);
    let token = data.join("admin.token");
    let create = ["token", "create", "again", "--role", "admin", "--offline", "--out"];
    rig.ok(&[&create[..], &[token.to_str().unwrap()]].concat());
    assert_eq!(fs::metadata(&token).unwrap().mode() & 0o777, 0o600);
    let owners: Vec<_> = names(&data)
        .filter(made)
        .chain([archive, month])
        .map(|path| (fs::metadata(&path).unwrap().uid(), fs::metadata(&path).unwrap().gid(), path))
        .collect();
    assert!(owners.len() >= 3, "{owners:?}");
    assert!(owners.iter().all(|(uid, gid, _)| (*uid, *gid) == (54_321, 54_322)), "{owners:?}");
}
