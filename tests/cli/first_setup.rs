//! `oncebox setup`: from a directory with a program to a webhook that arrives.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::cli::rig::prelude::*;

const PUBLIC: &str = "https://hooks.example.com";

/// The flags of a provider and its target.
fn to<'a>(target: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let flags = ["setup", "--provider", "stripe", "--pii", "allow", "--target", target];
    [&flags[..], more].concat()
}

/// What setup has written, if anything.
fn written(rig: &Rig) -> Option<String> {
    fs::read_to_string(rig.dir.path().join("conf.d/setup.toml")).ok()
}

#[test]
fn a_provider_and_a_target_are_made_and_a_sample_arrives() {
    let rig = Rig::new();
    let target = Receiver::new();
    let url = format!("http://{}/hook", target.address);
    let ran = rig.run(&to(&url, &[]));
    ran.ends(0, &[]).prints(&[
        "Settings: nothing to change",
        "Provider stripe: created",
        "/in/stripe",
        "it signs with whsec_",
        &format!("Subscription stripe: created, to {url}"),
        "Oncebox signs with whsec_",
        "Sample: invoice.paid to http://127.0.0.1:",
        "arrived: the target answered 200 after",
        "oncebox console link",
    ]);
    assert_eq!(written(&rig), None);
    assert_eq!(target.count(), 1);

    // Again: what is there stays, and no secret is shown.
    let again = rig.json(&to(&url, &["--no-sample"]));
    has(&again, &json!({ "provider.name": "stripe", "subscription.url": url }));
    assert!(!again.to_string().contains("whsec_"), "{again}");
    let third = rig.ok(&to(&url, &[]));
    shows(&third, &["Provider stripe: is there already; its secret and its terms stay"]);
    assert!(!third.contains("created"), "{third}");
    rig.until("the second sample came", |_| target.count() == 2);
    assert_eq!(rig.items(&["subscription", "list"]).len(), 1);

    let other = rig.run(&to("http://127.0.0.1:9999/other", &[]));
    other.ends(5, &["already, to http", "oncebox subscription change stripe --url"]);
}

#[test]
fn a_target_that_fails_is_said_with_what_to_do() {
    let rig = Rig::new();
    let target = Target::answering(400);
    let ran = rig.run(&to(&target.url, &[]));
    ran.ends(
        1,
        &["the sample did not arrive: ", "answered 400", "oncebox subscription test stripe"],
    );
    // So is a sample that the intake refuses.
    rig.ok(&["provider", "change", "stripe", "--body-bytes-max", "16"]);
    rig.run(&to(&target.url, &[])).ends(65, &["the body is larger than allowed here"]);
    // Without a provider a ping is sent.
    let all = rig.run(&["setup", "--target", &target.url]);
    all.ends(1, &[]).prints(&["Subscription everything: created", "It does not work"]);
    target.status.store(200, Ordering::SeqCst);
    rig.run(&["setup", "--target", &target.url]).ends(0, &[]).prints(&["It works."]);
}

#[test]
fn settings_are_written_beside_the_file_and_the_service_is_waited_for() {
    let mut rig = Rig::stopped();
    fs::remove_file(rig.dir.path().join("oncebox.toml")).unwrap();
    let target = Target::answering(200);
    let flags =
        ["--public-url", PUBLIC, "--trusted-proxy", "10.0.0.1", "--listen", "127.0.0.1:8710"];
    let mut command = rig.command(&to(&target.url, &flags));
    let waiting = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    rig.until("the settings are written", |rig| written(rig).is_some());
    let text = written(&rig).unwrap();
    let (_, keys) = text.split_once("\n\n").unwrap();
    assert_eq!(
        keys,
        "[listen]\npublic_url = \"https://hooks.example.com\"\ntrusted_proxies = [\"10.0.0.1/32\"]\n\
         [delivery]\nallow = [\"127.0.0.1/32\"]\n"
    );
    let main = fs::read_to_string(rig.dir.path().join("oncebox.toml")).unwrap();
    assert!(main.lines().all(|line| line.starts_with('#')), "{main}");
    rig.start();
    let ended = waiting.wait_with_output().unwrap();
    let out = String::from_utf8(ended.stdout).unwrap();
    let err = String::from_utf8(ended.stderr).unwrap();
    assert!(ended.status.success(), "{out}\n{err}");
    shows(&err, &["The service does not run. Start it in another terminal"]);
    let posts_to = format!("it posts to {PUBLIC}/in/stripe");
    let reason = "(127.0.0.1 is a loopback address, which is not called unless it is allowed)";
    shows(
        &out,
        &["listen.public_url = \"https", reason, &posts_to, "arrived: the target answered 200"],
    );

    // A later run keeps what the first has set, and the running service must have all of it.
    let mut command = rig.command(&["setup", "--trusted-proxy", "10.0.0.2"]);
    let waiting = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    rig.until("it is written", |rig| written(rig).unwrap().contains("10.0.0.2/32"));
    shows(&written(&rig).unwrap(), &["public_url = \"https://hooks", "allow = [\"127.0.0.1/32\"]"]);
    rig.kill();
    rig.start();
    let ended = waiting.wait_with_output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
}

#[test]
fn what_cannot_be_set_up_is_refused_before_anything_is_changed() {
    let rig = Rig::new();
    for (flags, code, said) in [
        (&["--listen", "here"][..], 2, "--listen is \"here\"; it must be an address and a port"),
        (&["--public-url", "hooks.example.com"], 2, "--public-url"),
        (&["--trusted-proxy", "the proxy"], 2, "--trusted-proxy"),
        (&["--target", "127.0.0.1"], 2, "--target"),
        (&["--target", "http://169.254.169.254/"], 65, "is a cloud's metadata address"),
        (&["--provider", "stripe"], 2, "--pii"),
        (&["--provider", "strip", "--pii", "allow"], 2, "stripe"),
        (
            &["--provider", "generic", "--pii", "allow"],
            65,
            "oncebox provider create NAME --scheme generic",
        ),
        (&["--provider", "stripe", "--pii", "nowhere.json"], 65, "--pii is allow, a file"),
        (
            &["--provider", "stripe", "--pii", "allow", "--secret-file", "none"],
            65,
            "none: No such file",
        ),
        (&[], 2, "there is no terminal to ask on"),
    ] {
        let ran = rig.run(&[&["setup"], flags].concat());
        assert_eq!(ran.code, code, "{flags:?}: {ran:?}");
        shows(&ran.err, &[said]);
        assert_eq!(written(&rig), None, "{flags:?}");
    }
    assert_eq!(rig.items(&["provider", "list"]), [Value::Null; 0]);

    // What overrides the file is named.
    let mut command = rig.command(&["setup", "--public-url", PUBLIC]);
    command.env("ONCEBOX_LISTEN__PUBLIC_URL", "https://other.example.com");
    let ran = run(&mut command, "");
    ran.ends(78, &["listen.public_url is set elsewhere", "environment ONCEBOX_LISTEN__PUBLIC_URL"]);

    // A token that is refused is said at once, and not waited for.
    let none = rig.file("none", "obx_none\n").display().to_string();
    let refused = rig.run(&["setup", "--public-url", PUBLIC, "--token-file", &none]);
    refused.ends(77, &["The token is from"]);

    let secret = rig.file("secret", "a-secret-of-a-provider\n").display().to_string();
    let made = ["provider", "create", "stripe", "--scheme", "github", "--pii", "allow"];
    rig.ok(&[&made[..], &["--secret-file", &secret]].concat());
    fs::remove_dir_all(rig.dir.path().join("conf.d")).unwrap();
    let taken = rig.run(&["setup", "--provider", "stripe", "--pii", "allow"]);
    taken.ends(5, &["there is a provider stripe already, with the scheme github"]);
}

#[test]
fn on_a_terminal_it_asks_and_asks_again() {
    let rig = Rig::new();
    let target = Target::answering(200);
    let program = assert_cmd::cargo::cargo_bin!("oncebox").display().to_string();
    let mut answers = vec!["nonsense", "", "", "", "?", "stripe", "", "", "somewhere"];
    answers.push(&target.url);
    let mut child = rig.terminal(&format!("{program} setup")).spawn().unwrap();
    // Each answer is typed once its question is there: a terminal that ends early would lose the rest.
    let mut keys = child.stdin.take().unwrap();
    let mut screen = BufReader::new(child.stdout.take().unwrap());
    let mut seen = String::new();
    for answer in answers {
        while !(seen.ends_with("]\r\n") || seen.ends_with("]\n")) {
            let mut line = String::new();
            assert_ne!(screen.read_line(&mut line).unwrap(), 0, "{seen}");
            seen.push_str(&line);
        }
        seen.push_str("> ");
        keys.write_all(format!("{answer}\n").as_bytes()).unwrap();
    }
    screen.read_to_string(&mut seen).unwrap();
    assert!(child.wait().unwrap().success(), "{seen}");
    shows(
        &seen,
        &[
            "1/5  Address",
            "listen.api is \"nonsense\"; it must be",
            "standard stripe github",
            "Its personal data: allow",
            "Provider stripe: created",
            "arrived: the target answered 200",
        ],
    );
}
