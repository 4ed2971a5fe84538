//! `oncebox credential rotate` and `schedule`.

use crate::rig::prelude::*;

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
    assert_eq!(every.code, 2, "it needs a command: {every:?}");
    let unknown =
        ["credential", "schedule", &id(&rig, "bearer"), "--every", "90d", "--command", "x"];
    assert!(rig.run(&unknown).err.contains("[credentials.commands]"));
}
