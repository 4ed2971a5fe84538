//! `oncebox credential`: where the secret comes from, what is printed, and that it is printed once.

use crate::cli::rig::{Rig, Target, run};

#[test]
fn a_secret_comes_from_a_file_stdin_or_a_systemd_credential_and_is_never_printed() {
    let (rig, target) = (Rig::new(), Target::answering(200));
    rig.ok(&["subscription", "create", "erp", "--url", &target.url]);
    let set = ["credential", "set", "erp", "--kind"];
    let file = rig.file("token", "tok-file\n");
    let bearer = [&set[..], &["bearer", "--secret-file", file.to_str().unwrap()]].concat();
    let said = rig.ok(&bearer);
    assert!(said.contains("bearer") && said.contains("active"), "{said}");
    let basic = [&set[..], &["basic", "--user", "me", "--secret-stdin"]].concat();
    let ran = rig.run_with(&basic, "tok-stdin\n");
    assert_eq!(ran.code, 0, "{ran:?}");
    rig.file("api-key", "tok-systemd");
    let key = ["api_key", "--header", "X-Key", "--secret-credential", "api-key"];
    let mut command = rig.command(&[&set[..], &key].concat());
    let ran = run(command.env("CREDENTIALS_DIRECTORY", rig.dir.path()), "");
    assert!(ran.code == 0 && ran.out.contains("X-Key"), "{ran:?}");
    rig.run(&[&set[..], &key].concat()).warns(&["CREDENTIALS_DIRECTORY is not set"]);

    rig.run(&[&set[..], &["bearer"]].concat()).ends(2, &["--secret-stdin"]);
    let argument = rig.run(&[&bearer[..], &["--secret", "x"]].concat());
    assert_eq!(argument.code, 2, "{argument:?}");
    rig.run(&[&bearer[..], &["--user", "x"]].concat()).fails(&["user"]);

    let list = rig.ok(&["credential", "list", "--subscription", "erp"]);
    assert!(
        list.contains("signing") && list.contains("api_key") && !list.contains("basic"),
        "{list}"
    );
    let revoked = rig.items(&["credential", "list", "--state", "revoked"]);
    assert_eq!(revoked.len(), 2);
    let id = rig.items(&["credential", "list"])[1]["id"].as_str().unwrap().to_owned();
    rig.run(&["credential", "revoke", &id]).ends(2, &["add --yes"]);
    assert!(rig.ok(&["credential", "revoke", &id, "--yes"]).contains("revoked"));
    assert!(rig.ok(&["credential", "show", &id]).contains("revoked"));
    let everything = format!("{said}{list}{}{}", rig.log(), rig.ok(&["audit", "list"]));
    for secret in ["tok-file", "tok-stdin", "tok-systemd"] {
        assert!(!everything.contains(secret), "{secret}: {everything}");
    }
}

#[test]
fn a_key_pair_is_made_and_shown_once_with_its_public_key() {
    let (rig, target) = (Rig::new(), Target::answering(200));
    rig.ok(&["subscription", "create", "erp", "--url", &target.url]);
    let said = rig.ok(&["credential", "set", "erp", "--kind", "signing_ed25519"]);
    let line = |start: &str| said.lines().find(|line| line.starts_with(start)).unwrap().to_owned();
    assert!(line("secret: whsk_").contains("only time"), "{said}");
    let public = line("public key for the receiver: whpk_");
    let public = public.rsplit(' ').next().unwrap();
    let found = rig.items(&["credential", "list"]);
    assert_eq!((found.len(), &found[0]["settings"]["public_key"]), (1, &public.into()));
    let shown = rig.ok(&["credential", "show", found[0]["id"].as_str().unwrap()]);
    assert!(shown.contains(public) && !shown.contains("whsk_"), "{shown}");
    rig.run(&["credential", "revoke", found[0]["id"].as_str().unwrap(), "--yes"])
        .ends(5, &["set another one"]);
    // A secret that was brought is not repeated.
    let secret = line("secret: ").split(' ').nth(1).unwrap().to_owned();
    let file = rig.file("key", &secret);
    let file = file.to_str().unwrap();
    let again =
        rig.ok(&["credential", "set", "erp", "--kind", "signing_ed25519", "--secret-file", file]);
    assert!(again.contains(public) && !again.contains("whsk_"), "{again}");
}
