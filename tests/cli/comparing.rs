//! `oncebox subscription compare`: what a target lacks, by a file of ids.

use crate::cli::rig::prelude::*;

#[test]
fn what_a_target_lacks_is_listed_and_sent_again() {
    let (rig, target) = (Rig::new(), Target::answering(200));
    rig.ok(&words(&format!("subscription create erp --url {} --ordering none", target.url)));
    let event =
        |key| json!({ "event_type": "a", "idempotency_key": key, "payload": 1 }).to_string();
    let sent = rig.run_with(&["emit"], &["k1", "k2", "k3"].map(event).join("\n"));
    sent.ends(0, &[]);
    let completed = |rig: &Rig| rig.items(&["delivery", "list", "--state", "completed"]).len();
    rig.until("all are delivered", |rig| completed(rig) == 3);
    let has = rig.file("has.txt", "k1\n\nk3\n");
    let has = format!("@{}", has.display());
    // Up to a later time: what was delivered in the last minutes counts too.
    let compare = |ids: &str| {
        let until = "2100-01-01T00:00:00Z";
        ["subscription", "compare", "erp", "--since", "1h", "--until", until, "--ids", ids]
            .map(str::to_owned)
    };
    let args = compare(&has);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let found = rig.run(&args);
    found.ends(6, &["1 of 3 deliveries are missing at erp", "--send-again"]);
    found.prints(&["3 deliveries from", "2 ids at the target, 1 missing", "k2"]);
    let again = rig.run(&[args.as_slice(), &["--send-again"]].concat());
    again.ends(0, &["1 are sent again"]);
    let all = compare("-");
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    rig.until("it is delivered again", |rig| {
        completed(rig) == 3 && rig.json(&["delivery", "show", "dlv_2"])["run_no"] == 2
    });
    rig.run_with(&all, "k1\nk2\nk3\n").ends(0, &[]).prints(&["0 missing"]);
    rig.run(&["subscription", "compare", "erp", "--since", "1h"]).ends(2, &["--ids", "--list"]);
}
