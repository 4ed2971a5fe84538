//! `oncebox replay`: copies of stored events for a receiver on trial.

use crate::cli::rig::prelude::*;
use crate::rig::receiver::{Receiver, Reply};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A service with a webhook and two invoices, the second one with a number that no float holds.
fn with_events() -> Rig {
    let rig = Rig::new();
    rig.ok(&[
        "provider",
        "create",
        "stripe",
        "--scheme",
        "stripe",
        "--pii",
        "allow",
        "--generate-secret",
    ]);
    rig.ok(&["trigger", "stripe", "--id", "evt_4711", "--type", "charge.paid"]);
    rig.ok(&["emit", "invoice.paid", "--key", "one", "--payload", "{\"total\": 1.10}"]);
    rig.ok(&[
        "emit",
        "invoice.sent",
        "--key",
        "two",
        "--payload",
        "{\"total\":12345678901234567890.10}",
    ]);
    rig
}

fn replay(rig: &Rig, into: &str, more: &[&str]) -> Ran {
    rig.run(
        &[&["replay", "--since", "1h", "--into", into, "--rate", "1000", "--yes"], more].concat(),
    )
}

#[test]
fn copies_go_out_in_order_marked_and_signed_and_leave_no_trace() {
    let rig = with_events();
    let sandbox = Receiver::new();
    let secret = rig.file("secret", SECRET);
    let before = rig.items(&["delivery", "list"]);
    let ran = replay(&rig, &sandbox.url(), &["--secret-file", secret.to_str().unwrap()]);
    ran.prints(&["sent: 3, accepted: 3"]);
    let seen = sandbox.seen();
    let types: Vec<_> = seen.iter().map(|copy| copy.field("oncebox-event-type").unwrap()).collect();
    assert_eq!(types, ["charge.paid", "invoice.paid", "invoice.sent"]);
    let last = &seen[2];
    assert_eq!(String::from_utf8_lossy(&last.body), "{\"total\":12345678901234567890.10}");
    for copy in &seen {
        assert!(copy.is_signed(SECRET), "{copy:?}");
        assert_eq!(copy.field("oncebox-copy"), Some("1"));
        assert!(copy.field("webhook-id").unwrap().starts_with("copy_"), "{copy:?}");
    }
    assert_eq!(rig.items(&["delivery", "list"]), before);
    // Fewer of them, and none at all.
    let only = replay(
        &rig,
        &sandbox.url(),
        &["--source", "outbox", "--event-type", "invoice.sent", "--json"],
    );
    let told: Value = serde_json::from_str(&only.prints(&[]).out).unwrap();
    assert_eq!((&told["sent"], &told["answers"]["200"]), (&json!(1), &json!(1)));
    let dry = replay(&rig, &sandbox.url(), &["--dry-run"]);
    dry.prints(&["3 events would be sent to http://"]);
    assert_eq!(sandbox.count(), 4);
}

#[test]
fn a_copy_is_what_a_subscription_would_send() {
    let rig = with_events();
    let sandbox = Receiver::new();
    rig.ok(&[
        "subscription",
        "create",
        "erp",
        "--url",
        "https://erp.example/hooks",
        "--event-type",
        "invoice.*",
        "--filter",
        "$.total < 100",
    ]);
    let template = rig.file("sum.txt", "sum={{ payload.total }}");
    let of =
        ["--template-file", template.to_str().unwrap(), "--template-header", "X-Of: {{ type }}"];
    rig.ok(&[&["subscription", "change", "erp"], &of[..]].concat());
    let ran = replay(&rig, &sandbox.url(), &["--subscription", "erp"]);
    ran.prints(&["sent: 1, accepted: 1", "2  left out"]);
    let seen = sandbox.seen();
    assert_eq!(String::from_utf8_lossy(&seen[0].body), "sum=1.10");
    assert_eq!(seen[0].field("x-of"), Some("invoice.paid"));
    // One that the template cannot write does not end the run.
    rig.ok(&["emit", "invoice.odd", "--key", "odd", "--payload", "{\"total\":[1]}"]);
    rig.ok(&["subscription", "change", "erp", "--remove", "filter"]);
    rig.ok(&["emit", "invoice.none", "--key", "none", "--payload", "{}"]);
    let ran = replay(&rig, &sandbox.url(), &["--subscription", "erp"]);
    ran.ends(1, &["payload.total"]);
    shows(&ran.out, &["sent: 2, accepted: 2", "2  could not be written"]);
    replay(&rig, &sandbox.url(), &["--subscription", "crm"]).ends(4, &["crm"]);
}

#[test]
fn refusals_are_counted_and_a_deaf_receiver_ends_the_run() {
    let rig = with_events();
    let sandbox = Receiver::scripted([Reply::status(200), Reply::status(500)]);
    let ran = replay(&rig, &sandbox.url(), &[]);
    ran.ends(1, &["not every event was sent and accepted"]);
    shows(&ran.out, &["sent: 3, accepted: 2", "1  answered with 500"]);
    for n in 0..12 {
        rig.ok(&["emit", "note.made", "--key", &n.to_string(), "--payload", "{}"]);
    }
    // Nobody listens on port 9 of this machine.
    let ran = replay(&rig, "http://127.0.0.1:9/hooks", &[]);
    ran.ends(1, &["not every event was sent and accepted; the last error"]);
    shows(&ran.out, &["10  without an answer", "5  not sent: the run ended before"]);
    for (wrong, why) in
        [("erp-test", "--into must be a URL"), ("ftp://erp/x", "--into must be a URL")]
    {
        replay(&rig, wrong, &[]).ends(2, &[why]);
    }
    let secret = rig.file("secret", "whsec_short");
    replay(&rig, &sandbox.url(), &["--secret-file", secret.to_str().unwrap()])
        .ends(65, &["secret"]);
    rig.run(&["replay", "--since", "2030-01-01", "--into", &sandbox.url(), "--yes"])
        .ends(4, &["no stored event is of that time"]);
}
