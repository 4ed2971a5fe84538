//! Settings: shown, checked, and read again while the service runs.

use crate::cli::rig::prelude::*;

#[test]
fn a_mark_before_the_settings_is_skipped_and_a_bad_block_of_the_ca_file_is_named() {
    let rig = Rig::stopped();
    let file = rig.file("marked.toml", "\u{feff}[delivery]\ncap = 4\n");
    let path = file.to_str().unwrap();
    assert!(rig.ok(&["config", "check", path]).contains("no mistakes"));
    let ca_file = rig.file("ca.pem", "# ours\n-----BEGIN CERTIFICATE-----\nAAAA\n");
    fs::write(&file, format!("[delivery]\nca_file = {ca_file:?}\n")).unwrap();
    rig.run(&["config", "check", path]).ends(78, &["delivery.ca_file", "block 1 (line 2)"]);
    fs::write(&file, "[delivery]\nproxy = \"http://erp:word@proxy:3128\"\n").unwrap();
    rig.run(&["config", "check", path]).ends(78, &["delivery.proxy", "proxy_user"]);
}

#[test]
fn more_files_are_read_by_their_names_and_the_last_one_counts() {
    let rig = Rig::stopped();
    let more = rig.dir.path().join("conf.d");
    fs::create_dir(&more).unwrap();
    let write = |name: &str, text: &str| fs::write(more.join(name), text).unwrap();
    write("20-b.toml", "[delivery]\ncap = 3\n");
    write("10-a.toml", "[delivery]\ncap = 2\ndeliverers = 5\n");
    write("30-c.toml.dpkg-old", "[delivery]\ncap = 4\n");
    let shown = rig.json(&["config", "show"]);
    let of = |path: &str| {
        let keys = shown["keys"].as_array().unwrap();
        let key = keys.iter().find(|key| key["key"] == path).unwrap();
        (key["value"].clone(), key["from"].as_str().unwrap().to_owned())
    };
    assert_eq!(of("delivery.cap"), (3.into(), "./conf.d/20-b.toml:2".to_owned()));
    assert_eq!(of("delivery.deliverers"), (5.into(), "./conf.d/10-a.toml:3".to_owned()));
    assert_eq!(of("disk.reserve").1, "oncebox.toml:6");
    write("40-d.toml", "[delivery]\ncap = 0\n");
    rig.run(&["config", "check"]).ends(78, &["40-d.toml:2:7: delivery.cap is 0"]);
}

#[test]
fn what_holds_is_shown_with_where_it_came_from() {
    let rig = Rig::stopped();
    let args = ["config", "show", "--json", "--data", "elsewhere"];
    let ran = run(rig.command(&args).env("ONCEBOX_DELIVERY__TIMEOUT", "3s"), "");
    let shown: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(shown["file"], "oncebox.toml");
    let of = |path: &str| {
        let keys = shown["keys"].as_array().unwrap();
        let key = keys.iter().find(|key| key["key"] == path).unwrap();
        (key["value"].to_string(), key["from"].as_str().unwrap().to_owned())
    };
    assert_eq!(of("database.directory"), ("\"elsewhere\"".into(), "flag --data".into()));
    let from = "environment ONCEBOX_DELIVERY__TIMEOUT";
    assert_eq!(of("delivery.timeout"), ("\"3s\"".into(), from.into()));
    assert_eq!(of("delivery.allow"), ("[\"127.0.0.1/32\"]".into(), "oncebox.toml:4".into()));
    assert_eq!(of("delivery.cap"), ("8".into(), "default".into()));
    shows(&rig.ok(&["config", "show"]), &["oncebox.toml:4", "(never)"]);
}

#[test]
fn every_mistake_is_named_at_once() {
    let rig = Rig::stopped();
    assert!(rig.ok(&["config", "check"]).contains("oncebox.toml: no mistakes"));
    let text = "[listen]\napi = 8710\n[delivery]\nstepps = [\"1s\"]\ncap = 1000\n\
                [events]\nkeep_headers = [\"x-api-key\"]\n";
    let file = rig.file("wrong.toml", text);
    let mut command = rig.command(&["config", "check", file.to_str().unwrap()]);
    let ran = run(command.env("ONCEBOX_LOG__LEVL", "info"), "");
    assert_eq!(ran.code, 78);
    for part in [
        "wrong.toml:2:7: listen.api is a number; it must be a string in quotes",
        "wrong.toml:4:1: unknown key delivery.stepps; did you mean steps?",
        "wrong.toml:5:7: delivery.cap is 1000; it must be 1 to 256",
        "wrong.toml:7:16: events.keep_headers has \"x-api-key\"; each must be a header field without a secret",
        "ONCEBOX_LOG__LEVL: sets no key; did you mean ONCEBOX_LOG__LEVEL?",
    ] {
        assert!(ran.err.contains(part), "{part} is not in {}", ran.err);
    }
    assert_eq!(rig.run(&["config", "check", "nowhere.toml"]).code, 78);
    assert_eq!(rig.run(&["serve", "--config", file.to_str().unwrap()]).code, 78);
}

#[test]
fn what_is_installed_and_documented_is_what_the_program_knows() {
    let rig = Rig::stopped();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (verb, file) in
        [("default", "packaging/oncebox.toml"), ("reference", "docs/configuration.md")]
    {
        let kept = fs::read_to_string(root.join(file)).unwrap();
        let made = rig.ok(&["config", verb]);
        assert!(kept == made, "{file} is old: oncebox config {verb} > {file}");
    }
    let file = root.join("packaging/oncebox.toml");
    rig.ok(&["config", "check", file.to_str().unwrap()]);
    let schema: Value = serde_json::from_str(&rig.ok(&["config", "schema"])).unwrap();
    let cap = &schema["properties"]["delivery"]["properties"]["cap"];
    assert_eq!((&cap["maximum"], &cap["default"]), (&256.into(), &8.into()));
    assert_eq!(schema["properties"]["delivery"]["additionalProperties"], false);
}

#[test]
fn sighup_takes_what_can_be_taken_and_says_what_cannot() {
    let rig = Rig::new();
    let private = ["subscription", "create", "erp", "--url", "http://10.0.0.9/hook"];
    assert_eq!(rig.run(&private).code, 65);
    let settings = "[listen]\napi = \"127.0.0.1:1\"\n[delivery]\nallow = [\"10.0.0.0/8\"]\ndeliverers = 3\n\
                    [limits]\npayload_bytes = 10\n";
    rig.file("oncebox.toml", settings);
    rig.signal("HUP");
    rig.until("it was read again", |rig| rig.log().contains("settings reloaded"));
    // --listen still beats the file, so listen.api has not changed.
    let log = rig.log();
    assert!(log.contains("delivery.allow, limits.payload_bytes"), "{log}");
    rig.until("what waits is named", |rig| rig.log().contains("only after a restart"));
    assert!(rig.log().contains("\"keys\":\"delivery.deliverers\""), "{log}");
    rig.ok(&private);
    assert_eq!(rig.run(&["emit", "a", "--payload", "\"0123456789\""]).code, 65);

    rig.file("oncebox.toml", "[limits]\npayload_bytes = 0\n");
    rig.signal("HUP");
    rig.until("the mistake is named", |rig| rig.log().contains("the old settings stay in effect"));
    assert!(rig.log().contains("oncebox.toml:2:17: limits.payload_bytes is 0"));
    // The commands read the file as well; the service keeps what held.
    fs::remove_file(rig.dir.path().join("oncebox.toml")).unwrap();
    assert_eq!(rig.run(&["emit", "a", "--payload", "\"0123456789\""]).code, 65);
    rig.ok(&["emit", "a", "--payload", "1"]);
}

#[test]
fn a_proxy_that_is_not_trusted_is_named_once_when_it_has_all_connections_of_a_client() {
    let mut rig = Rig::stopped();
    rig.file("oncebox.toml", "[limits]\nconnections_per_address = 2\n");
    rig.start();
    let address = fs::read_to_string(rig.dir.path().join("oncebox.address")).unwrap();
    let address = address.trim().trim_start_matches("http://").to_owned();
    let connect = || TcpStream::connect(&address).unwrap();
    let kept = [connect(), connect()];
    for _ in 0..3 {
        // The service closes it at once.
        assert!(matches!(Read::read(&mut connect(), &mut [0]), Ok(0)));
    }
    rig.until("it is said", |rig| rig.log().contains("trusted_proxies"));
    let log = rig.log();
    let warnings: Vec<&str> = log.lines().filter(|line| line.contains("trusted_proxies")).collect();
    assert_eq!(warnings.len(), 1, "{log}");
    assert!(warnings[0].contains("127.0.0.1"), "{warnings:?}");
    assert!(warnings[0].contains("connections_per_address"), "{warnings:?}");
    drop(kept);
}
