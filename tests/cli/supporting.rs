//! `oncebox support`: all that helps, and nothing that names a person or opens a door.

use crate::cli::rig::prelude::*;

/// What must not be in the text: a payload's name, secrets, a password's place, a person, addresses.
const PLANTED: [&str; 8] = [
    "Anna Berg",
    "planted-secret-of-the-provider",
    "planted-bearer",
    "T0-planted-path",
    "planted-query",
    "otto@shop.example",
    "anna-of-the-login",
    "8.8.4.4",
];

/// A box that has taken, sent and failed something. Its log is where `journalctl` reads it.
fn used() -> Rig {
    let mut rig = Rig::stopped();
    let config = fs::read_to_string(rig.dir.path().join("oncebox.toml")).unwrap();
    rig.file(
        "oncebox.toml",
        &format!("{config}[log]\nlevel = \"debug\"\n[smtp]\nhost = \"smtp.example\"\nfrom = \"otto@shop.example\"\n"),
    );
    rig.start();
    let target = Target::answering(500);
    let url = format!("{}/T0-planted-path?shop=planted-query", target.url);
    let header = "X-Shop: planted-bearer-of-a-header";
    rig.ok(&["subscription", "create", "erp", "--url", &url, "--header", header]);
    let secret = rig.file("secret", "planted-bearer\n").display().to_string();
    rig.ok(&["credential", "set", "erp", "--kind", "bearer", "--secret-file", &secret]);
    rig.ok(&["subscription", "create", "away", "--url", "https://8.8.4.4/T0-planted-path"]);
    rig.ok(&["user", "create", "anna-of-the-login", "--role", "read"]);
    let secret = rig.file("secret", "planted-secret-of-the-provider\n").display().to_string();
    let made = ["provider", "create", "shop", "--scheme", "github", "--pii", "allow"];
    rig.ok(&[&made[..], &["--secret-file", &secret]].concat());
    rig.ok(&["emit", "invoice.paid", "--payload", r#"{"name":"Anna Berg"}"#]);
    rig.until("it was tried", |rig| !rig.items(&["delivery", "list"]).is_empty());
    rig
}

/// The command with a `journalctl` that prints the service's log and a line that no log of ours has.
fn support(rig: &Rig, more: &[&str]) -> Command {
    let line =
        r#"{"msg":"sent by otto@shop.example from 8.8.4.4 to https://8.8.4.4/T0-planted-path"}"#;
    let script = format!("#!/bin/sh\necho \"$@\" >asked\necho '{line}'\ncat serve.log\n");
    let tool = rig.file("journalctl", &script);
    fs::set_permissions(tool, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = rig.command(&[&["support"], more].concat());
    command.env("PATH", format!("{}:/usr/bin:/bin", rig.dir.path().display()));
    command
}

#[track_caller]
fn is_clean(text: &str) {
    for planted in PLANTED {
        assert!(!text.contains(planted), "{planted} is in\n{text}");
    }
}

#[test]
fn the_text_has_what_helps_and_nothing_that_names_a_person_or_opens_a_door() {
    let rig = used();
    let ran = run(&mut support(&rig, &[]), "");
    assert_eq!(ran.code, 0, "{ran:?}");
    is_clean(&ran.out);
    ran.prints(&[
        "Read it before you send it.",
        "== Version\n0.1.0\n",
        "== Machine\nsystem      ",
        "file        oncebox.db ",
        "== Settings that are not the default\n",
        "log.level = \"debug\"",
        "== Checks\n",
        "ok    integrity",
        "== Numbers\n{",
        "\"version\": \"0.1.0\"",
        "== Health\n{",
        "== Open escalations\n",
        "== Metrics\noncebox_",
        "== Log\n{\"msg\":\"sent by [mail] from [public address] to https://[public address]/[path]\"}\n",
    ]);
    let asked = fs::read_to_string(rig.dir.path().join("asked")).unwrap();
    assert_eq!(asked.trim(), "--unit=oncebox --no-pager --output=cat --lines 500");
    let without = run(&mut support(&rig, &["--log-lines", "0"]), "");
    assert!(!without.out.contains("== Log"), "{without:?}");
    let parts: Value = serde_json::from_str(&run(&mut support(&rig, &["--json"]), "").out).unwrap();
    is_clean(&parts.to_string());
    assert_eq!(parts[0]["title"], "Version");
}

#[test]
fn a_service_that_is_away_is_one_more_thing_to_read() {
    let mut rig = used();
    rig.kill();
    let ran = run(&mut support(&rig, &[]), "");
    assert_eq!(ran.code, 0, "{ran:?}");
    is_clean(&ran.out);
    ran.prints(&[
        "== Checks\n",
        "ok    integrity",
        "== Numbers\nnot there: cannot reach http://127",
        "== Log\n",
    ]);
    rig.file("journalctl", "#!/bin/sh\necho 'no journal' >&2\nexit 1\n");
    let mut command = rig.command(&["support"]);
    command.env("PATH", format!("{}:/usr/bin:/bin", rig.dir.path().display()));
    run(&mut command, "").prints(&["== Log\nnot there: journalctl: no journal\n"]);
    rig.file("oncebox.toml", "[listen\n");
    let ran = run(&mut support(&rig, &[]), "");
    assert_eq!(ran.code, 0, "{ran:?}");
    ran.prints(&["== Machine\nnot there: ", "oncebox.toml:1", "== Version\n0.1.0"]);
}

#[test]
fn a_file_is_new_and_its_owners_alone() {
    let rig = Rig::new();
    let path = rig.dir.path().join("support.txt");
    let ran = run(&mut support(&rig, &["--output", "support.txt"]), "");
    ran.prints(&["support.txt is written. Read it before you send it.\n"]);
    let text = fs::read_to_string(&path).unwrap();
    shows(&text, &["== Version", "== Metrics"]);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let again = run(&mut support(&rig, &["--output", "support.txt"]), "");
    again.ends(65, &["support.txt is there already: name another file"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
    let nowhere = run(&mut support(&rig, &["--output", "no/such/support.txt"]), "");
    nowhere.fails(&["no/such/support.txt"]);
}
