//! What an administrator meets at night: a disk that is not mounted, a key that is lost, a service that does not start.

use tempfile::TempDir;

use crate::cli::rig::prelude::*;
use crate::rig::skipped;

/// A service whose key is kept apart from its data; the key's file.
fn with_key_apart() -> (Rig, TempDir, PathBuf) {
    let (mut rig, etc) = (Rig::stopped(), tempfile::tempdir().unwrap());
    let key = etc.path().join("master.key");
    let settings = fs::read_to_string(rig.dir.path().join("oncebox.toml")).unwrap();
    rig.file(
        "oncebox.toml",
        &format!("{settings}[keys]\nmaster_key_file = \"{}\"\n", key.display()),
    );
    rig.start();
    (rig, etc, key)
}

/// Moves the database away, as if its disk were not mounted, and returns where it is.
fn unmounted(rig: &Rig) -> TempDir {
    let away = tempfile::tempdir().unwrap();
    move_all(rig.dir.path(), away.path());
    away
}

fn move_all(from: &Path, to: &Path) {
    for name in ["oncebox.db", "oncebox.db-wal", "oncebox.db-shm", "admin.token"] {
        drop(fs::copy(from.join(name), to.join(name)));
        drop(fs::remove_file(from.join(name)));
    }
}

fn refused(rig: &Rig) -> Ran {
    let ran = rig.run(&["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("mount its disk") && ran.err.contains("keys bind --none"), "{ran:?}");
    ran
}

#[test]
fn a_start_without_the_database_of_the_installation_is_refused_and_makes_no_other() {
    let (mut rig, _etc, key) = with_key_apart();
    let backups = tempfile::tempdir().unwrap();
    rig.ok(&["emit", "invoice.paid", "--payload", "{}"]);
    rig.ok(&["backup", backups.path().join("b.db").to_str().unwrap()]);
    rig.kill();
    let note = PathBuf::from(format!("{}.database", key.display()));
    assert_eq!(fs::metadata(&note).unwrap().permissions().mode() & 0o777, 0o644);
    let away = unmounted(&rig);
    refused(&rig);
    assert!(!rig.dir.path().join("oncebox.db").exists(), "no other database was made");
    rig.run(&["doctor"]).ends(1, &[]).prints(&["mount its disk"]);
    // The database of another installation is as wrong.
    let mut other = Rig::new();
    other.kill();
    move_all(other.dir.path(), rig.dir.path());
    assert!(refused(&rig).err.contains("is another one"));
    // Mounted again, nothing is missing.
    move_all(away.path(), rig.dir.path());
    rig.start();
    assert_eq!(rig.items(&["event", "list"]).len(), 1);
    rig.kill();
    // A backup of this installation is as good as the database.
    drop(unmounted(&rig));
    rig.ok(&["restore", backups.path().join("b.db").to_str().unwrap()]);
    rig.start();
    rig.kill();
    // Beginning anew is a decision of its own.
    drop(unmounted(&rig));
    refused(&rig);
    rig.ok(&["keys", "bind", "--none"]);
    rig.start();
    assert_eq!(rig.items(&["event", "list"]).len(), 0);
}

#[test]
fn a_lost_key_is_abandoned_with_what_it_sealed_and_the_events_stay_in_order() {
    let (mut rig, _etc, key) = with_key_apart();
    let target = Target::answering(200);
    rig.ok(&words("provider create shop --scheme shopify --pii allow --generate-secret"));
    rig.ok(&["subscription", "create", "erp", "--event-type", "*", "--url", &target.url]);
    rig.ok(&["subscription", "pause", "erp"]);
    for n in ["1", "2", "3"] {
        rig.ok(&["emit", "invoice.paid", "--payload", n]);
    }
    let before = rig.items(&["delivery", "list"]);
    assert_eq!(before.len(), 3);
    let old_token = fs::read_to_string(rig.dir.path().join("admin.token")).unwrap();
    rig.kill();
    rig.run(&["keys", "abandon", "--yes"]).ends(5, &["nothing to give up"]);
    fs::remove_file(&key).unwrap();
    let asked = rig.run(&["keys", "abandon"]);
    assert_eq!(asked.code, 2, "without a terminal it wants --yes: {asked:?}");
    let done = rig.json(&["keys", "abandon", "--yes"]);
    let anew: Vec<String> = done["set_anew"]
        .as_array()
        .unwrap()
        .iter()
        .map(|lost| format!("{} {}", lost["of"].as_str().unwrap(), lost["name"].as_str().unwrap()))
        .collect();
    assert_eq!(anew, ["provider shop", "subscription erp"]);
    assert_eq!(done["tokens_revoked"], 1);
    rig.start();
    assert_ne!(fs::read_to_string(rig.dir.path().join("admin.token")).unwrap(), old_token);
    let seqs = |items: &[Value]| items.iter().map(|item| item["id"].clone()).collect::<Vec<_>>();
    assert_eq!(seqs(&rig.items(&["delivery", "list"])), seqs(&before));
    let audited = rig.items(&["audit", "list", "--action", "master_key.abandon"]);
    assert_eq!((audited.len(), &audited[0]["actor"]["type"]), (1, &"cli".into()), "{audited:?}");
    // What was lost is set anew, and everything goes out.
    rig.ok(&["credential", "set", "erp", "--kind", "signing"]);
    rig.ok(&["subscription", "resume", "erp"]);
    rig.until("all three are delivered", |rig| {
        rig.items(&["delivery", "list", "--state", "completed"]).len() == 3
    });
}

/// Runs the program where the package is installed and systemd says `shown` of its unit.
fn under_systemd(shown: &str, command: &str) -> Option<Ran> {
    let bin = tempfile::tempdir().unwrap();
    let fake = bin.path().join("systemctl");
    let script = format!("#!/bin/sh\n[ \"$1\" = show ] && printf '{shown}'\nexit 3\n");
    executable::write(&fake, &script);
    let program = assert_cmd::cargo::cargo_bin!("oncebox");
    // A view of the machine of its own, in which the package is installed. The program is read before the rest is hidden.
    let script = format!(
        "cp {program} {bin}/oncebox && mount -t tmpfs none /var/lib && mkdir -p /var/lib/oncebox && \
         mount -t tmpfs none /lib/systemd/system && touch /lib/systemd/system/oncebox.service && \
         exec {bin}/oncebox --data /var/lib/oncebox {command}",
        program = program.display(),
        bin = bin.path().display()
    );
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "sh", "-c", &script]).env_clear();
    unshare.env("PATH", format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", bin.path().display()));
    let ran = run(&mut unshare, "");
    if ran.err.contains("unshare") || ran.err.contains("mount") {
        skipped("only root with the right to mount can play an installed package");
        return None;
    }
    Some(ran)
}

#[test]
fn a_service_that_does_not_get_to_run_is_told_in_the_words_of_systemd() {
    let refused = "ActiveState=activating\\nSubState=start\\nStatusText=Not started, trying again in 60 s: \
                   the disk is read-only\\nResult=success\\n";
    let missing =
        "ActiveState=activating\\nSubState=auto-restart\\nStatusText=\\nResult=resources\\n";
    for command in ["status", "emit invoice.paid --payload 1", "doctor"] {
        for (shown, words) in
            [(refused, "the disk is read-only"), (missing, "ended with resources")]
        {
            let Some(ran) = under_systemd(shown, command) else { return };
            let told = format!("{}{}", ran.out, ran.err);
            assert!(ran.code == 1 && told.contains(words), "{command}: {ran:?}");
        }
    }
}

#[test]
fn the_log_tells_of_holds_and_log_ins() {
    let rig = Rig::new();
    rig.ok(&words("subscription create erp --event-type * --url http://127.0.0.1:8799/"));
    rig.ok(&["subscription", "pause", "erp"]);
    rig.ok(&["subscription", "pause", "erp"]);
    rig.ok(&["subscription", "resume", "erp"]);
    let lines = |rig: &Rig, words: &str| rig.log().matches(words).count();
    rig.until("both are told", |rig| lines(rig, "a hold ends") == 1);
    assert_eq!(lines(&rig, "a hold begins"), 1, "one that stands does not begin: {}", rig.log());
    assert!(rig.log().contains("default/erp"), "{}", rig.log());
    let address = fs::read_to_string(rig.dir.path().join("oncebox.address")).unwrap();
    let body = "name=anna&password=wrong-password";
    let request = format!(
        "POST /console/log-in HTTP/1.1\r\nHost: {}\r\nSec-Fetch-Site: same-origin\r\nContent-Type: \
         application/x-www-form-urlencoded\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        address.trim(),
        body.len()
    );
    let mut stream = TcpStream::connect(address.trim()).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    rig.until("it is told", |rig| lines(rig, "a log-in was refused") == 1);
    let log = rig.log();
    let line = log.lines().find(|line| line.contains("a log-in was refused")).unwrap();
    assert!(line.contains("anna") && line.contains("user.login"), "{line}\n{answer}");
    assert!(!log.contains("wrong-password"), "{log}");
}
