//! `oncebox subscription test`, and its offer after `subscription create`.

use crate::cli::rig::prelude::*;

#[test]
fn a_test_prints_a_line_for_each_step_and_ends_with_its_result() {
    let rig = Rig::new();
    let target = Target::answering(200);
    shows(
        &rig.ok(&["subscription", "create", "erp", "--url", &target.url]),
        &["Test it: oncebox subscription test erp"],
    );
    let said = rig.ok(&["subscription", "test", "erp"]);
    assert!(said.starts_with(&format!("erp: oncebox.ping to {}\n", target.url)), "{said}");
    for step in ["build", "credentials", "lookup", "policy", "connect", "request", "answer"] {
        let line = said.lines().find(|line| line.starts_with(&format!("  {step} ")));
        assert!(line.is_some_and(|line| line.contains(" ms")), "{step}: {said}");
    }
    assert!(said.contains("it said: booked as SI-0042"), "{said}");
    assert!(!said.contains('\u{1b}'), "what a receiver says must not control a terminal");
    assert!(said.ends_with("It works.\n"), "{said}");
    assert_eq!(rig.json(&["subscription", "test", "erp"])["ok"], true);
}

#[test]
fn a_test_that_fails_says_what_to_change_and_ends_with_one() {
    let rig = Rig::new();
    let target = Target::answering(401);
    rig.ok(&["subscription", "create", "erp", "--url", &target.url]);
    let ran = rig.run(&["subscription", "test", "erp"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.out.contains("FAILED 401"), "{ran:?}");
    assert!(ran.out.contains("It does not work (auth). The target does not accept"), "{ran:?}");
    assert_eq!(ran.err, "");
    let ran = rig.run(&["subscription", "test", "erp", "--json"]);
    let test: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, &test["ok"], &test["status"]), (1, &json!(false), &json!(401)));
    assert_eq!(rig.run(&["subscription", "test", "nobody"]).code, 4);
    rig.ok(&["subscription", "create", "ask", "--pull"]);
    assert_eq!(rig.run(&["subscription", "test", "ask"]).code, 5);
}

#[test]
fn a_past_event_can_be_sent() {
    let rig = Rig::new();
    let target = Target::answering(200);
    rig.ok(&["subscription", "create", "erp", "--url", &target.url]);
    rig.ok(&["emit", "invoice.paid", "--key", "k", "--payload", "{}"]);
    let id = rig.items(&["event", "list"])[0]["id"].as_str().unwrap().to_owned();
    let said = rig.ok(&["subscription", "test", "erp", "--event", &id]);
    assert!(said.starts_with("erp: invoice.paid to "), "{said}");
    let ran = rig.run(&["subscription", "test", "erp", "--event", "no-id"]);
    assert_eq!(ran.code, 4, "{ran:?}");
}

#[test]
fn on_a_terminal_a_test_is_offered_after_create() {
    if which("script").is_none() {
        skipped("script (util-linux) gives a terminal");
        return;
    }
    let rig = Rig::new();
    let target = Target::answering(200);
    let create = |name: &str, answer: &str| {
        let program = rig.command(&[]).get_program().to_string_lossy().into_owned();
        let line = format!("{program} subscription create {name} --url {}", target.url);
        let mut script = Command::new(which("script").unwrap());
        script.args(["-qec", &line, "/dev/null"]).env_clear().current_dir(rig.dir.path());
        script.env("ONCEBOX_DATABASE__DIRECTORY", rig.dir.path());
        run(&mut script, answer)
    };
    let ran = create("yes", "\n");
    assert!(ran.code == 0 && ran.out.contains("Test it now? [Y/n]"), "{ran:?}");
    assert!(ran.out.contains("It works."), "{ran:?}");
    let ran = create("no", "n\n");
    assert!(ran.code == 0 && !ran.out.contains("It works."), "{ran:?}");
    target.status.store(500, Ordering::SeqCst);
    let ran = create("broken", "y\n");
    assert!(ran.code == 0 && ran.out.contains("It does not work (transient)."), "{ran:?}");
}

/// A program of this machine.
fn which(name: &str) -> Option<PathBuf> {
    let places = ["/usr/bin", "/bin", "/usr/local/bin"];
    places.iter().map(|place| Path::new(place).join(name)).find(|path| path.exists())
}
