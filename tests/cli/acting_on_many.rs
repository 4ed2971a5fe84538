//! Commands that act on many: one call, one job, and its progress.

use std::io::{BufRead, BufReader};

use crate::cli::rig::prelude::*;

/// So many dead letters of one subscription: its URL named what no event has, and was mended then.
fn with_dead_letters(count: usize) -> (Rig, Target) {
    let (rig, target) = (Rig::new(), Target::answering(200));
    let url = format!("{}/{{aggregate_id}}", target.url);
    rig.ok(&words(&format!(
        "subscription create odoo --url {url} --ordering strict \
        --head-of-line skip"
    )));
    let lines: Vec<String> = (0..count)
        .map(|n| json!({ "event_type": "invoice.paid", "payload": n }).to_string())
        .collect();
    let sent = rig.run_with(&["emit"], &lines.join("\n"));
    assert_eq!(sent.code, 0, "{sent:?}");
    rig.until("all are dead", |rig| rig.json(&["status"])["dead_letters"] == count);
    rig.ok(&["subscription", "change", "odoo", "--url", &target.url]);
    (rig, target)
}

#[test]
fn many_are_sent_again_by_one_job_that_is_watched_to_its_end() {
    let (rig, _target) = with_dead_letters(120);
    let summary = rig.ok(&["dead-letter", "summary"]);
    assert!(summary.contains("120") && summary.contains("poison"), "{summary}");
    let group = rig.json(&["dead-letter", "summary"])["groups"][0].clone();
    assert_eq!(group["count"], 120);
    for (answer, count) in [(group["answer"].as_str().unwrap(), 120), ("other", 0)] {
        let args = ["dead-letter", "replay", "--answer", answer, "--dry-run"];
        assert_eq!(rig.json(&args)["count"], count, "{answer}");
        assert_eq!(
            rig.items(&["dead-letter", "list", "--answer", answer, "--limit", "500"]).len(),
            count
        );
    }
    assert!(rig.ok(&["dead-letter", "show", "dlv_1"]).contains("aggregate_id"));
    rig.run(&["dead-letter", "replay", "--yes"]).ends(2, &["say which"]);
    let job = rig.json(&["dead-letter", "replay", "--class", "poison", "--yes"]);
    assert_eq!((&job["state"], &job["done"]), (&json!("completed"), &json!(120)));
    rig.until("all are sent", |rig| rig.json(&["status"])["pending"] == 0);
    let calls = rig.items(&["audit", "list", "--action", "job.replay_dead_letters"]);
    assert_eq!(calls.len(), 1, "one call");
    assert_eq!(rig.items(&["job", "list", "--state", "completed"]).len(), 1);
    let id = job["id"].as_str().unwrap();
    assert!(rig.ok(&["job", "show", id]).contains("120 of 120"));
    assert!(rig.ok(&["job", "show", id, "--follow"]).contains("is completed"));
    rig.run(&["dead-letter", "replay", "--all", "--yes"]).ends(0, &["no dead letters that match"]);
}

#[test]
fn a_dry_run_shows_only_columns_that_have_a_value() {
    let (rig, _target) = with_dead_letters(1);
    let events = rig.ok(&["event", "replay", "--all", "--dry-run"]);
    shows(&events, &["1 event would be sent again", "ID", "invoice.paid"]);
    assert!(!events.contains("TO") && !events.contains(" - "), "{events}");
    rig.ok(&["subscription", "pause", "odoo"]);
    rig.run(&["dead-letter", "replay", "--all", "--dry-run"])
        .ends(0, &["1 of them wait: odoo is held (paused) since"]);
    rig.ok(&["subscription", "resume", "odoo"]);
    let deliveries = rig.ok(&["dead-letter", "replay", "--all", "--dry-run"]);
    shows(&deliveries, &["TO", "odoo"]);
}

#[test]
fn a_signal_ends_the_watching_and_not_the_job() {
    let (rig, _target) = with_dead_letters(60);
    let args = ["dead-letter", "replay", "--all", "--yes", "--rate", "5"];
    let mut command = rig.command(&args);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    rig.until("the job runs", |rig| rig.items(&["job", "list", "--state", "running"]).len() == 1);
    // Its handler is set when it watches, which is after the answer to the request.
    thread::sleep(Duration::from_millis(500));
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let mut said = String::new();
    for line in BufReader::new(child.stderr.take().unwrap()).lines() {
        said.push_str(&line.unwrap());
    }
    assert_eq!(child.wait().unwrap().code(), Some(0), "{said}");
    assert!(said.contains("goes on without this command"), "{said}");
    assert!(said.contains("oncebox job cancel"), "{said}");
    let job = rig.items(&["job", "list"])[0].clone();
    assert_eq!(job["state"], "running");
    let id = job["id"].as_str().unwrap();
    assert!(rig.ok(&["job", "cancel", id, "--yes"]).contains("cancelled"));
    rig.run(&["job", "show", id, "--follow"]).ends(1, &["is cancelled"]);
}

#[test]
fn dead_letters_are_discarded_with_a_reason() {
    let (rig, _target) = with_dead_letters(3);
    rig.run(&["dead-letter", "discard", "--all", "--reason", "sent by hand"])
        .ends(2, &["discards 3 dead letters"]);
    let args = ["dead-letter", "discard", "dlv_2", "--reason", "sent by hand", "--yes"];
    assert!(rig.ok(&args).contains("1 of 1"));
    assert!(rig.ok(&["delivery", "show", "dlv_2"]).contains("sent by hand"));
    assert_eq!(rig.items(&["dead-letter", "list"]).len(), 2);
}

#[test]
fn an_event_is_sent_again_corrected_or_stopped() {
    let (rig, _target) = with_dead_letters(1);
    let event = rig.items(&["event", "list"])[0]["id"].as_str().unwrap().to_owned();
    assert!(rig.ok(&["event", "replay", &event]).contains(&format!("{event} is ")));
    rig.until("it is sent", |rig| {
        rig.items(&["event", "list", "--status", "completed"]).len() == 1
    });
    let new = rig.json(&["event", "replay", &event, "--payload", "{\"total\":2}"]);
    assert_eq!(new["replay_of"], event.as_str());
    rig.run(&["event", "replay", &event, "--since", "1h"]).ends(2, &["an id stands alone"]);
    rig.until("it is sent", |rig| {
        rig.items(&["event", "list", "--status", "completed"]).len() == 2
    });
    shows(
        &rig.ok(&["event", "replay", "--subscription", "odoo", "--since", "1h", "--yes"]),
        &["2 of 2: 2 deliveries"],
    );
    rig.ok(&["subscription", "pause", "odoo"]);
    let waits = rig.json(&["event", "replay", &event, "--as-new"]);
    let waits = waits["id"].as_str().unwrap();
    assert!(rig.ok(&["event", "cancel", waits, "--yes"]).contains("is cancelled"));
    let started = ["subscription", "recover", "odoo", "--since", "1h", "--yes", "--detach"];
    assert!(rig.ok(&started).contains("oncebox job show"));
    assert_eq!(rig.json(&["subscription", "show", "odoo"])["state"], "ACTIVE");
    assert_eq!(rig.run(&["webhook", "replay", "nobody"]).code, 4);
    rig.run(&["webhook", "replay", "--all", "--yes"]).warns(&["no webhook events that match"]);
}
