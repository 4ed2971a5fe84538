//! Tenants and tokens, and what an administrator does who has lost his.

use crate::cli::rig::prelude::*;

#[test]
fn a_tenant_is_made_given_a_token_suspended_and_resumed() {
    let rig = Rig::new();
    rig.run(&["tenant", "create", "acme", "--title", "Acme Ltd", "--pii", "allow"])
        .ends(0, &["--tenant acme"]);
    assert_eq!(rig.run(&["tenant", "create", "acme", "--pii", "allow"]).code, 5);
    let token = rig.run(&["token", "create", "x", "--role", "admin", "--tenant", "acme"]);
    assert!(token.code == 0 && token.err.contains("--tenant acme"), "{token:?}");
    let file = rig.file("acme.token", &token.out);
    let as_acme =
        |args: &[&str]| rig.run(&[args, &["--token-file", file.to_str().unwrap()]].concat());
    assert_eq!(as_acme(&["event", "list"]).code, 0);
    assert_eq!(as_acme(&["tenant", "list"]).code, 77);
    assert!(rig.ok(&["tenant", "suspend", "acme"]).contains("suspended since"));
    let refused = as_acme(&["event", "list"]);
    assert!(refused.code == 77 && refused.err.contains("suspended"), "{refused:?}");
    assert!(!rig.ok(&["tenant", "resume", "acme"]).contains("suspended since"));
    assert_eq!(as_acme(&["event", "list"]).code, 0);
    assert_eq!(rig.run(&["tenant", "suspend", "default"]).code, 5);
    assert_eq!(rig.run(&["tenant", "show", "none"]).code, 4);
    rig.ok(&["tenant", "change", "acme", "--title", "Acme plc"]);
    assert!(rig.ok(&["tenant", "list"]).contains("Acme plc"));
    assert_eq!(rig.items(&["token", "list", "--tenant", "acme"]).len(), 1);
    let id = token.err.lines().last().unwrap().split_whitespace().nth_back(2).unwrap();
    assert_eq!(rig.run(&["token", "revoke", id, "--yes"]).code, 4);
    rig.ok(&["token", "revoke", id, "--tenant", "acme", "--yes"]);
    assert_eq!(as_acme(&["event", "list"]).code, 77);
}

#[test]
fn the_list_of_tokens_shows_what_becomes_of_each() {
    let rig = Rig::new();
    let create = ["token", "create", "erp", "--role", "publish", "--expires-in", "90d"];
    rig.ok(&[&create[..], &["--source-system", "erp", "--group", "billing"]].concat());
    rig.ok(&["token", "create", "gone", "--role", "read"]);
    let of = |name: &str| {
        let all = rig.items(&["token", "list"]);
        all.into_iter().find(|token| token["name"] == name).unwrap()
    };
    rig.ok(&["token", "revoke", of("gone")["id"].as_str().unwrap(), "--yes"]);
    assert_eq!(rig.run(&["token", "revoke", of("gone")["id"].as_str().unwrap(), "--yes"]).code, 5);
    assert!(of("erp")["expires_at"].is_string() && of("erp")["revoked_at"].is_null());
    assert!(of("gone")["revoked_at"].is_string());
    rig.until("the first token's use is noted", |_| {
        of("first admin token")["last_used_at"].is_string()
    });
    let table = rig.ok(&["token", "list"]);
    for title in ["SPEAKS FOR", "LAST USED", "EXPIRES", "REVOKED", "erp groups: billing"] {
        assert!(table.contains(title), "{table}");
    }
    assert_eq!(rig.run(&["token", "create", "x", "--role", "read", "--expires", "soon"]).code, 2);
}

#[test]
fn a_publish_token_is_made_for_what_it_names() {
    let mut rig = Rig::new();
    let create = ["token", "create", "shop", "--role", "publish"];
    let names = ["--source-system", "shop", "--source-system", "pos", "--group", "billing"];
    rig.run(&create).ends(65, &["--source-system shop"]);
    let read = rig.run(&["token", "create", "x", "--role", "read", "--group", "billing"]);
    assert_eq!(read.code, 65, "{read:?}");
    let made = rig.json(&[&create[..], &names].concat());
    assert_eq!(made["source_systems"], serde_json::json!(["shop", "pos"]));
    assert_eq!(made["consumer_groups"], serde_json::json!(["billing"]));
    let file = rig.file("shop.token", made["token"].as_str().unwrap());
    let emit = |source: &[&str]| {
        let file = ["--token-file", file.to_str().unwrap()];
        rig.run(&[&["emit", "order.paid", "--payload", "1"], source, &file].concat())
    };
    assert_eq!(emit(&["--source", "pos"]).code, 0);
    let refused = emit(&["--source", "sql"]);
    assert!(refused.code == 77 && refused.err.contains("\"shop\", \"pos\""), "{refused:?}");
    rig.kill();
    let offline = [&create[..], &["--offline"]].concat();
    assert_eq!(rig.run(&offline).code, 65);
    let made = rig.json(&[&offline[..], &names].concat());
    assert_eq!(made["source_systems"], serde_json::json!(["shop", "pos"]));
}

#[test]
fn the_last_admin_token_is_not_revoked_by_accident() {
    let rig = Rig::new();
    let first = rig.items(&["token", "list"])[0]["id"].as_str().unwrap().to_owned();
    rig.run(&["token", "revoke", &first, "--yes"]).ends(5, &["--role admin"]);
    let second = rig.run(&["token", "create", "second", "--role", "admin"]);
    let file = rig.file("second.token", &second.out);
    rig.ok(&["token", "revoke", &first, "--yes", "--token-file", file.to_str().unwrap()]);
    assert_eq!(rig.run(&["status"]).code, 77);
}

#[test]
fn who_has_lost_every_token_makes_one_while_the_service_is_stopped() {
    let mut rig = Rig::new();
    let path = rig.dir.path().join("admin.token");
    let args = ["token", "create", "again", "--role", "admin", "--offline"];
    rig.run(&args).ends(75, &["Stop it first"]);
    fs::remove_file(&path).unwrap();
    rig.kill();
    let made = rig.run(&args);
    assert!(made.code == 0 && made.out.starts_with("obx_"), "{made:?}");
    assert!(made.err.contains("admin.token"), "{made:?}");
    rig.run(&[&args[..], &["--tenant", "none"]].concat()).ends(4, &["tenant"]);
    let past = rig.run(&[&args[..], &["--expires", "2020-01-01T00:00:00Z"]].concat());
    assert_eq!(past.code, 65, "{past:?}");
    let shown = rig.json(&args);
    assert!(shown["token"].as_str().unwrap().starts_with("obx_") && shown["role"] == "admin");
    fs::write(&path, &made.out).unwrap();
    rig.start();
    assert_eq!(rig.items(&["token", "list"]).len(), 3);
    let audited = rig.items(&["audit", "list", "--actor", "cli"]);
    assert_eq!(audited.len(), 2, "{audited:?}");
    assert_eq!(audited[0]["action"], "token.create");
}

#[test]
fn where_no_oncebox_has_run_no_token_is_made() {
    let rig = Rig::stopped();
    rig.run(&["token", "create", "x", "--role", "admin", "--offline"]).ends(4, &["--data"]);
    let left: Vec<_> = fs::read_dir(rig.dir.path()).unwrap().map(|e| e.unwrap()).collect();
    assert_eq!(left.len(), 1, "nothing is made but what was there: {left:?}");
}

#[test]
fn a_link_is_printed_for_a_user_who_is_created_if_need_be() {
    let rig = Rig::new();
    let link = rig.run(&["console", "link", "--user", "anna"]);
    let url = link.out.trim();
    assert!(
        url.starts_with("http://127.0.0.1:") && url.contains("/console/enter?link=obl_"),
        "{url}"
    );
    assert!(link.err.contains("created with the role admin"), "{link:?}");
    let again = rig.run(&["console", "link", "--user", "anna", "--role", "read"]);
    assert!(again.code == 0 && !again.err.contains("created"), "{again:?}");
    assert_eq!(rig.items(&["user", "list"])[0]["role"], "admin");
    let own = rig.json(&["console", "link"]);
    assert!(own["url"].is_string() && rig.items(&["user", "list"]).len() == 2, "{own}");
    assert!(rig.items(&["session", "list"]).is_empty());
    assert_eq!(rig.run(&["session", "end", "none", "--yes"]).code, 4);
}

#[test]
fn a_user_is_made_shown_changed_and_deleted() {
    let rig = Rig::new();
    let password = rig.file("password", "correct horse battery\n");
    let create = ["user", "create", "anna", "--role", "read"];
    let made = rig.json(&[&create[..], &["--password-file", password.to_str().unwrap()]].concat());
    assert_eq!(made["has_password"], true);
    assert_eq!(rig.run(&create).code, 5);
    assert_eq!(rig.run(&["user", "create", "b", "--role", "publish"]).code, 2);
    assert_eq!(rig.run(&["user", "change", "anna"]).code, 2);
    shows(
        &rig.ok(&["user", "change", "anna", "--role", "operate", "--disable"]),
        &["operate", "disabled since"],
    );
    assert_eq!(rig.run(&["console", "link", "--user", "anna"]).code, 5);
    rig.ok(&["user", "change", "anna", "--enable"]);
    assert!(rig.ok(&["user", "show", "anna"]).contains("operate"));
    let short = rig.file("short", "too short");
    let change = ["user", "change", "anna", "--password-file", short.to_str().unwrap()];
    assert_eq!(rig.run(&change).code, 65);
    rig.ok(&["user", "delete", "anna", "--yes"]);
    assert_eq!(rig.run(&["user", "show", "anna"]).code, 4);
}
