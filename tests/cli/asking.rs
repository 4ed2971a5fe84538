//! Commands that delete, or act on many things: they ask, take `--yes`, or refuse.

use crate::cli::rig::prelude::*;

#[test]
fn without_a_terminal_nothing_is_deleted_unless_yes_is_said() {
    let rig = Rig::new();
    rig.ok(&["subscription", "create", "erp", "--pull"]);
    for args in [
        &["subscription", "delete", "erp"][..],
        &["provider", "delete", "nobody"],
        &["source", "remove", "nobody"],
        &["token", "revoke", "nobody"],
        &["subject", "erase", "nobody"],
        &["event", "discard", "nobody", "--reason", "a test"],
        &["delivery", "cancel", "dlv_1"],
        &["in-doubt", "settle", "dlv_1"],
        &["event", "cancel", "nobody"],
        &["job", "cancel", "nobody"],
        &["in-doubt", "release", "--all"],
    ] {
        let refused = rig.run(args);
        assert!(refused.code == 2 && refused.err.contains("add --yes"), "{args:?}: {refused:?}");
        assert_eq!(refused.out, "", "{args:?}");
    }
    rig.ok(&["subscription", "show", "erp"]);
    rig.ok(&["subscription", "delete", "erp", "--yes"]);
    assert_eq!(rig.run(&["subscription", "show", "erp"]).code, 4);
}

#[test]
fn only_what_is_in_doubt_is_settled_or_released_as_such() {
    let rig = Rig::new();
    rig.ok(&["subscription", "create", "erp", "--pull"]);
    rig.ok(&["emit", "invoice.paid", "--payload", "1"]);
    for args in [&["in-doubt", "settle", "dlv_1", "--yes"][..], &["in-doubt", "release", "dlv_1"]] {
        rig.run(args).ends(5, &["dlv_1 is pending"]);
    }
    assert_eq!(rig.json(&["delivery", "show", "dlv_1"])["state"], "pending");
}

#[test]
fn a_dry_run_says_how_many_and_sends_nothing() {
    let (rig, target) = (Rig::new(), Target::answering(500));
    rig.ok(&["subscription", "create", "odoo", "--url", &target.url, "--max-attempts", "1"]);
    rig.ok(&["emit", "invoice.paid", "--payload", "1"]);
    rig.until("it is given up", |rig| rig.items(&["dead-letter", "list"]).len() == 1);
    let dry = rig.ok(&["dead-letter", "retry", "--all", "--dry-run"]);
    assert!(dry.starts_with("1 dead letter would be sent again\n"), "{dry}");
    assert!(dry.contains("dlv_1") && dry.contains("odoo"), "{dry}");
    assert_eq!(rig.items(&["job", "list"]).len(), 0);
    let dry = rig.json(&["in-doubt", "release", "--all", "--dry-run"]);
    assert_eq!(dry, serde_json::json!({ "count": 0, "dry_run": true }));
    assert_eq!(rig.items(&["dead-letter", "list"]).len(), 1);
}

#[test]
fn every_list_takes_the_same_time_range() {
    let rig = Rig::new();
    for name in ["one", "two", "three"] {
        rig.ok(&["subscription", "create", name, "--pull"]);
    }
    let list = ["subscription", "list"];
    let count = |flags: &[&str]| rig.items(&[&list[..], flags].concat()).len();
    assert_eq!(count(&["--since", "1h"]), 3);
    assert_eq!(count(&["--until", "1h"]), 0);
    assert_eq!(count(&["--since", "2026-01-31", "--limit", "2"]), 2);
    let all = rig.ok(&["subscription", "list", "--all", "--since", "1h", "--json"]);
    assert_eq!(all.lines().count(), 3);
    // Files of a directory are listed alike.
    let copies = rig.dir.path().join("copies");
    fs::create_dir(&copies).unwrap();
    let copies = copies.to_str().unwrap();
    for name in ["one.db", "two.db", "three.db"] {
        rig.ok(&["backup", &format!("{copies}/{name}")]);
    }
    let first = rig.json(&["backup", "list", copies, "--limit", "2"]);
    assert_eq!(first["items"].as_array().unwrap().len(), 2);
    let next = first["next"].as_str().unwrap();
    assert_eq!(rig.items(&["backup", "list", copies, "--after", next]).len(), 1);
    assert_eq!(rig.items(&["backup", "list", copies, "--since", "1h"]).len(), 3);
    assert_eq!(rig.items(&["backup", "list", copies, "--until", "1h"]).len(), 0);
}
