//! What goes wrong, and the exit codes that tell a script so.

use crate::cli::rig::{Rig, run};

#[test]
fn a_service_that_does_not_run_is_3() {
    let mut rig = Rig::stopped();
    rig.run(&["status"]).ends(3, &["oncebox serve"]);
    rig.start();
    rig.ok(&["status"]);
    rig.kill();
    for args in
        [&["status"][..], &["event", "list"], &["emit", "a", "--payload", "1", "--retry-for", "0s"]]
    {
        let ran = rig.run(args);
        assert!(ran.code == 3 && ran.err.contains("Start it with: oncebox serve"), "{ran:?}");
        assert!(ran.out.is_empty());
    }
}

#[test]
fn what_is_not_there_is_4_and_what_cannot_be_is_65() {
    let rig = Rig::new();
    for args in [
        &["event", "show", "nope"][..],
        &["webhook", "show", "../tokens"],
        &["delivery", "show", "dlv_9"],
        &["provider", "show", "nope"],
        &["subscription", "show", "nope"],
        &["token", "revoke", "nope", "--yes"],
    ] {
        let ran = rig.run(args);
        assert!(ran.code == 4 && ran.err.starts_with("oncebox: There is no such"), "{ran:?}");
    }
    for args in [
        &["event", "list", "--status", "lost"][..],
        &["event", "list", "--after", "x"],
        &["emit", "", "--payload", "1"],
        &["emit", "a", "--payload", "{"],
        &["emit", "a", "--payload", "@/nowhere"],
        &["emit", "--file", "/nowhere"],
        &["subscription", "create", "x", "--url", "http://10.0.0.1/"],
        &["subscription", "create", "X!", "--url", "https://erp.example/"],
    ] {
        assert_eq!(rig.run(args).code, 65, "{args:?}");
    }
}

#[test]
fn a_wrong_token_is_77_and_none_for_another_machine_is_taken() {
    let rig = Rig::new();
    let wrong = run(rig.command(&["event", "list"]).env("ONCEBOX_TOKEN", "obx_wrong"), "");
    assert!(wrong.code == 77 && wrong.err.contains("ONCEBOX_TOKEN"), "{wrong:?}");
    assert!(!wrong.err.contains("obx_wrong"));
    rig.run(&["event", "list", "--server", "http://oncebox.example:8710"])
        .ends(77, &["--token-file"]);
    let empty = rig.file("empty.token", "\n");
    let empty = rig.run(&["status", "--token-file", empty.to_str().unwrap()]);
    assert_eq!(empty.code, 77, "{empty:?}");
}

#[test]
fn a_misspelt_command_is_2_with_what_was_meant() {
    let rig = Rig::stopped();
    rig.run(&["subscriptoin", "list"]).ends(2, &["'subscription'"]);
    // Its parts are commands too, but nobody is told of them.
    let ran = rig.run(&["demo-prat"]);
    assert!(ran.err.contains("'demo'") && !ran.err.contains("demo-part"), "{ran:?}");
    assert_eq!(rig.run(&["event", "list", "--server", "ftp://x"]).code, 2);
    assert_eq!(rig.run(&["event", "list", "--since", "yesterday"]).code, 2);
    assert_eq!(rig.run(&["emit", "--batch", "1001"]).code, 2);
}

#[test]
fn wrong_settings_are_78() {
    let rig = Rig::stopped();
    let path = rig.file("wrong.toml", "listne = 1\n");
    let ran = rig.run(&["status", "--config", path.to_str().unwrap()]);
    let meant = "wrong.toml:1:1: unknown section listne; did you mean listen?";
    assert!(ran.code == 78 && ran.err.contains(meant), "{ran:?}");
}

#[test]
fn help_can_be_asked_for_in_both_ways() {
    let rig = Rig::stopped();
    let page = rig.ok(&["help"]);
    assert!(page.contains("Run it:") && page.contains("Exit codes:"), "{page}");
    assert_eq!(rig.ok(&["help", "emit"]), rig.ok(&["emit", "--help"]));
    for noun in ["subscription", "job", "user"] {
        let (page, of_noun) = (rig.ok(&["help"]), rig.ok(&["help", noun]));
        let about = of_noun.lines().next().unwrap();
        assert!(
            page.lines().any(|line| line.trim_start().starts_with(noun) && line.ends_with(about)),
            "{of_noun}"
        );
    }
    rig.run(&["help", "publish"]).ends(2, &["--help"]);
}

#[test]
fn a_wrong_span_is_answered_with_how_one_is_written() {
    let rig = Rig::stopped();
    let path = rig.file("wrong.toml", "[delivery]\ntimeout = \"abc\"\n");
    let said = "is not a span like 500ms, 30s or 5min";
    let ran = rig.run(&["status", "--config", path.to_str().unwrap()]);
    ran.ends(78, &["\"abc\"", said]);
    assert!(!ran.err.contains("expected number"), "{ran:?}");
    for args in [
        &["emit", "a", "--payload", "1", "--retry-for", "abc"][..],
        &["subscription", "create", "a", "--pull", "--timeout", "abc"],
    ] {
        let ran = rig.run(args);
        assert!(ran.err.contains(said) && !ran.err.contains("expected number"), "{ran:?}");
    }
}

#[test]
fn usage_shows_as_required_only_what_is_required() {
    let rig = Rig::stopped();
    let mut command = rig.command(&["event", "show"]);
    command.env("ONCEBOX_CONFIG", "x.toml").env("ONCEBOX_SERVER", "http://127.0.0.1:1");
    run(&mut command, "").ends(2, &["Usage: oncebox event show <ID>"]);
}

#[test]
fn the_service_is_named_before_or_after_the_verb_or_by_the_environment() {
    let rig = Rig::stopped();
    let (flag, url) = ("--server", "http://127.0.0.1:1");
    for args in [["event", flag, url, "list"], ["event", "list", flag, url]] {
        run(rig.command(&args).env("ONCEBOX_TOKEN", "x"), "").ends(3, &["cannot reach", url]);
    }
    let mut command = rig.command(&["event", "list"]);
    command.env("ONCEBOX_TOKEN", "x").env("ONCEBOX_SERVER", url);
    run(&mut command, "").ends(3, &["cannot reach", url]);
}
