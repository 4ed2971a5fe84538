//! `oncebox alert`: whether a test of a channel arrived.

use crate::cli::rig::prelude::*;

/// A channel `ops` that posts to a target.
fn channel(status: u16) -> (Rig, Target) {
    let (rig, target) = (Rig::new(), Target::answering(status));
    let url = rig.file("url", &target.url).display().to_string();
    rig.ok(&["alert", "channel", "create", "ops", "--kind", "slack", "--url-file", &url]);
    (rig, target)
}

#[test]
fn a_test_says_whether_it_was_delivered_and_what_was_answered() {
    let (rig, target) = channel(200);
    let said = rig.ok(&["alert", "test", "ops"]);
    assert!(said.contains("delivered to ops") && said.contains("200"), "{said}");
    assert!(said.contains("it said: booked as SI-0042") && !said.contains('\u{1b}'), "{said:?}");
    let told = rig.json(&["alert", "test", "ops"]);
    assert_eq!(
        (&told["delivery"]["state"], &told["attempt"]["http_status"]),
        (&"completed".into(), &200.into())
    );

    // One that is not accepted at once is tried again later; the command does not wait for that.
    target.status.store(503, Ordering::SeqCst);
    let failed = rig.run(&["alert", "test", "ops"]);
    assert_eq!(failed.code, 1, "{failed:?}");
    assert!(
        failed.err.contains("not delivered to ops") && failed.err.contains("503"),
        "{failed:?}"
    );
    assert!(failed.err.contains("It is tried again"), "{failed:?}");
    target.status.store(404, Ordering::SeqCst);
    let failed = rig.run(&["alert", "test", "ops", "--json"]);
    assert_eq!(failed.code, 1, "{failed:?}");
    let told: Value = serde_json::from_str(&failed.out).unwrap();
    assert_eq!(told["attempt"]["http_status"], 404);
}

#[test]
fn a_test_that_waits_for_something_else_says_for_what() {
    let (rig, _target) = channel(200);
    rig.ok(&["subscription", "pause", "alert-ops"]);
    let waits = rig.run(&["alert", "test", "ops"]);
    assert_eq!(waits.code, 1, "{waits:?}");
    assert!(waits.err.contains("paused") && waits.err.contains("It waits: "), "{waits:?}");
    shows(&rig.ok(&["alert", "test", "ops", "--no-wait"]), &["queued for ops"]);
}
