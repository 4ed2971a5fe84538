//! `oncebox lane`, and what is done with the deliveries of a lane.

use crate::cli::rig::prelude::*;

#[test]
fn a_blocked_lane_is_found_shown_and_let_go_on() {
    let (rig, target) = (Rig::new(), Target::answering(400));
    let terms = ["--ordering", "key", "--head-of-line", "block"];
    rig.ok(&[&["subscription", "create", "erp", "--url", &target.url], &terms[..]].concat());
    for n in 1..=4 {
        let payload = n.to_string();
        rig.ok(&["emit", "a", "--ordering-key", "4711", "--payload", &payload]);
    }
    rig.until("the first is dead", |rig| rig.json(&["status"])["dead_letters"] == 1);
    shows(&rig.ok(&["lane", "list", "--blocked"]), &["4711", "blocked"]);
    let lane = rig.items(&["lane", "list", "--subscription", "erp"])[0].clone();
    assert_eq!((&lane["waiting"], &lane["delivery"]), (&3.into(), &"dlv_1".into()));
    let id = lane["id"].as_str().unwrap();
    shows(&rig.ok(&["lane", "show", id]), &["oncebox delivery skip dlv_1", "dlv_4"]);
    assert!(rig.ok(&["delivery", "show", "dlv_2"]).contains(id));

    shows(
        &rig.ok(&["delivery", "park", "dlv_2", "--reason", "the ERP is told"]),
        &["dlv_2 is parked"],
    );
    shows(&rig.ok(&["delivery", "show", "dlv_2"]), &["the ERP is told", "delivery release dlv_2"]);
    assert!(rig.ok(&["lane", "show", id]).contains("Parked (of the tenant's first 20,000):"));
    assert!(rig.ok(&["delivery", "release", "dlv_2", "--yes"]).contains("dlv_2 is pending"));
    assert!(rig.ok(&["delivery", "move-to-end", "dlv_2"]).contains("dlv_2 is pending"));
    let order = rig.json(&["lane", "show", id])["deliveries"].clone();
    let ids: Vec<&str> =
        order.as_array().unwrap().iter().map(|d| d["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["dlv_3", "dlv_4", "dlv_2"]);
    rig.file("new.json", "{\"n\":5}");
    let edit =
        ["delivery", "edit-and-resend", "dlv_3", "--payload", "@new.json", "--header", "X-A: b"];
    assert!(rig.ok(&edit).contains("dlv_3 is skipped; dlv_5 of event"));
    rig.run(&["delivery", "skip", "dlv_1"]).ends(2, &["--yes"]);
    assert!(rig.ok(&["delivery", "skip", "dlv_1", "--yes"]).contains("dlv_1 is skipped"));
    rig.until("the next is tried", |rig| rig.json(&["status"])["dead_letters"] == 1);
    assert_eq!(rig.items(&["lane", "list"])[0]["delivery"], "dlv_5");
    rig.run(&["delivery", "park", "dlv_1"]).fails(&["Possible now: retry"]);
}

#[test]
fn the_flags_of_the_order_go_over_what_there_is() {
    let rig = Rig::new();
    let url = "http://127.0.0.1:9999/";
    rig.ok(&words(&format!(
        "subscription create erp --url {url} --ordering key --group sap \
        --head-of-line park --park-after 2 --funnel-point sap --postpone-limit 300s"
    )));
    let order = |rig: &Rig| rig.json(&["subscription", "show", "erp"])["order"].to_string();
    assert_eq!(
        order(&rig),
        r#"{"group":"sap","head_of_line":"park","park_after":2,"funnel_point":"sap","postpone_limit":"300s"}"#
    );
    assert!(rig.ok(&["subscription", "show", "erp"]).contains("park_after"));
    rig.ok(&["subscription", "change", "erp", "--park-after", "5", "--latest-only"]);
    let changed = order(&rig);
    shows(&changed, &[r#""park_after":5"#, r#""group":"sap""#]);
    assert!(changed.contains(r#""latest_only":true"#), "{changed}");
    rig.ok(&["subscription", "change", "erp", "--latest-only", "false"]);
    assert!(!order(&rig).contains("latest_only"));
    rig.ok(&["subscription", "change", "erp", "--remove", "order", "--group", "other"]);
    assert_eq!(order(&rig), r#"{"group":"other"}"#);
    let calls = ["--external-calls", "custom", "--call-path", "$.customer"];
    rig.ok(&[&["subscription", "change", "erp"], &calls[..]].concat());
    assert!(order(&rig).contains("$.customer"));
}

#[test]
fn an_order_is_declared_in_a_file() {
    let rig = Rig::new();
    rig.file(
        "declared.toml",
        "[[subscription]]\nname = \"erp\"\nurl = \"http://127.0.0.1:9999/\"\nordering = \"key\"\n\
         order = { group = \"sap\", head_of_line = \"park\", park_after = 2 }\n",
    );
    let apply = ["apply", "--file", "declared.toml"];
    assert!(rig.ok(&apply).contains("create"));
    let order = rig.json(&["subscription", "show", "erp"])["order"].to_string();
    assert_eq!(order, r#"{"group":"sap","head_of_line":"park","park_after":2}"#);
    assert!(!rig.ok(&[&apply[..], &["--dry-run"]].concat()).contains("would"));
}
