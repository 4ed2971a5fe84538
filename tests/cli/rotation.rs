//! `oncebox credential rotate`, `schedule` and `reveal`.

use crate::cli::rig::prelude::*;

fn id(rig: &Rig, kind: &str) -> String {
    let all = rig.items(&["credential", "list", "--subscription", "erp"]);
    let one = all.iter().find(|one| one["kind"] == kind && one["state"] == "active").unwrap();
    one["id"].as_str().unwrap().to_owned()
}

#[test]
fn a_rotation_says_what_came_of_it() {
    let rig = Rig::new();
    let target = Target::answering(200);
    rig.ok(&["subscription", "create", "erp", "--url", &target.url]);
    shows(
        &rig.ok(&["credential", "rotate", &id(&rig, "signing"), "--overlap", "1h"]),
        &["secret: whsec_", "when the target accepts it"],
    );
    rig.until("it is promoted", |rig| {
        let all =
            rig.items(&["credential", "list", "--subscription", "erp", "--state", "retiring"]);
        all.len() == 1
    });
    let token = rig.file("token", "token-1\n");
    let set = ["credential", "set", "erp", "--kind", "bearer", "--secret-file"];
    rig.ok(&[&set[..], &[token.to_str().unwrap()]].concat());
    let bearer = id(&rig, "bearer");
    rig.run(&["credential", "rotate", &bearer]).ends(65, &["give a secret, or name a command"]);
    let token = rig.file("token", "token-2\n");
    let from = ["--secret-file", token.to_str().unwrap()];
    target.status.store(401, Ordering::SeqCst);
    let kept = rig.run(&[&["credential", "rotate", &bearer], &from[..]].concat());
    assert_eq!(kept.code, 1, "{kept:?}");
    assert!(kept.out.contains("the target answered 401"), "{kept:?}");
    assert!(kept.out.contains("the old one stays in force"), "{kept:?}");
    target.status.store(200, Ordering::SeqCst);
    let said = rig.ok(&[&["credential", "rotate", &bearer], &from[..]].concat());
    assert!(said.contains("It has taken the place of the old one.") && !said.contains("token-2"));
    assert_eq!(rig.run(&["credential", "rotate", &bearer]).code, 5, "it is revoked");
    let every = rig.run(&["credential", "schedule", &id(&rig, "bearer"), "--every", "90d"]);
    every.ends(65, &["needs a command that gives the new secret"]);
    let unknown =
        ["credential", "schedule", &id(&rig, "bearer"), "--every", "90d", "--command", "x"];
    assert!(rig.run(&unknown).err.contains("[credentials.commands]"));
}

#[test]
fn a_signing_secret_needs_no_command_and_is_shown_while_it_is_next() {
    let rig = Rig::new();
    let target = Target::answering(401);
    rig.ok(&["subscription", "create", "erp", "--url", &target.url]);
    let active = id(&rig, "signing");
    shows(
        &rig.ok(&["credential", "schedule", &active, "--every", "90d"]),
        &["rotated every   90d"],
    );
    rig.run(&["credential", "reveal", &active]).ends(5, &["Only a signing secret that is next"]);
    let made = rig.ok(&["credential", "rotate", &active]);
    let next = &rig.items(&["credential", "list", "--state", "next"])[0];
    let shown = rig.ok(&["credential", "reveal", next["id"].as_str().unwrap()]);
    let secret = |text: &str| {
        text.split("whsec_").nth(1).unwrap().split_whitespace().next().unwrap().to_owned()
    };
    assert_eq!(secret(&shown), secret(&made));
}
