//! Comparisons of a provider's list with the webhooks that came: numbers, what is taken in, and what is refused.

use super::http_sources::{ListServer, SECRET, event, set_credential, webhook};
use crate::rig::prelude::*;

const RUNS: &str = "/v1/providers/stripe/reconciliations";
const HOUR: u64 = 3_600;

/// A box with the provider `stripe`, a source that reads its list from now on, and a list of these ages in hours. The event
/// `evt_3` is three hours old.
fn with_list(ages: &[u64]) -> (Rig, ListServer) {
    let rig = Rig::new();
    rig.provider("stripe", &json!({ "kind": "stripe" }), SECRET);
    let list = ListServer::new();
    for age in ages {
        list.add(&format!("evt_{age}"), rig.now().minus(secs(age * HOUR)));
    }
    add_source(&rig, &list.settings());
    (rig, list)
}

fn add_source(rig: &Rig, settings: &Value) {
    let body = json!({ "name": "list", "kind": "http", "settings": settings, "from": "now" });
    rig.post("/v1/sources", &body).is(201);
    set_credential(rig);
}

/// The webhook of an event of this age in hours.
fn sent(rig: &Rig, age: u64) -> Answer {
    let at = rig.now().minus(secs(age * HOUR));
    webhook(rig, event(&format!("evt_{age}"), at).to_string().as_bytes())
}

/// Starts a run over the last day, and returns it when it has ended.
fn run(rig: &Rig, is_dry: bool) -> Value {
    let since = rig.now().minus(secs(24 * HOUR));
    let body = json!({ "since": since.to_string(), "dry_run": is_dry });
    ended(rig, &rig.post(RUNS, &body).is(201).json())
}

fn ended(rig: &Rig, begun: &Value) -> Value {
    let path = format!("{RUNS}/{}", text(begun, "id"));
    rig.passing("it has ended", secs(20), || rig.get(&path)["state"] != "RUNNING");
    rig.get(&path)
}

#[test]
fn a_run_takes_in_what_is_missing_and_reports_each_day() {
    let (rig, _list) = with_list(&[20, 15, 10, 5, 2]);
    for age in [15, 5] {
        sent(&rig, age).is(200);
    }
    let done = run(&rig, false);
    has(
        &done,
        &json!({ "state": "DONE", "sent": 5, "received": 2, "missing": 3, "taken_in": 3, "refused": 0, "error": null }),
    );
    let days = done["days"].as_array().unwrap();
    // It is noon.
    has(&days[0], &json!({ "day": "2026-01-30", "sent": 2, "missing": 1 }));
    has(&days[1], &json!({ "day": "2026-01-31", "sent": 3, "missing": 2, "taken_in": 2 }));
    let origins = "SELECT group_concat(provider_event_id || ' ' || origin, ', ')
                     FROM (SELECT * FROM webhook_events ORDER BY provider_event_id)";
    rig.says(
        origins,
        "evt_10 reconciled, evt_15 webhook, evt_2 reconciled, evt_20 reconciled, evt_5 webhook",
    );
    let again = run(&rig, false);
    has(&again, &json!({ "sent": 5, "received": 2, "missing": 0, "taken_in": 3 }));
    assert_eq!(rig.items(RUNS).len(), 2);
    rig.says("SELECT count(*) FROM webhook_events", "5");
    rig.says("SELECT cursor = 0 FROM sources", "0");
}

#[test]
fn a_dry_run_takes_nothing_in() {
    let (rig, _list) = with_list(&[20, 10, 2]);
    sent(&rig, 10).is(200);
    has(
        &run(&rig, true),
        &json!({ "sent": 3, "received": 1, "missing": 2, "taken_in": 0, "dry_run": true }),
    );
    rig.says("SELECT count(*) FROM webhook_events", "1");
}

#[test]
fn a_webhook_that_comes_after_its_list_was_received() {
    let (rig, _list) = with_list(&[10, 2]);
    run(&rig, false);
    assert_eq!(sent(&rig, 10).is(200).json()["already_processed"], true);
    has(&run(&rig, false), &json!({ "sent": 2, "received": 1, "missing": 0, "taken_in": 1 }));
    rig.says("SELECT origin FROM webhook_events WHERE provider_event_id = 'evt_10'", "reconciled");
}

#[test]
fn young_items_and_old_ones_are_left_out() {
    let (rig, list) = with_list(&[30, 2]);
    list.add("evt_young", rig.now().minus(secs(60)));
    until("the round has taken the young one in", || {
        rig.one("SELECT count(*) FROM webhook_events") == "1"
    });
    has(&run(&rig, true), &json!({ "sent": 1, "missing": 1 }));
}

#[test]
fn an_item_that_cannot_be_used_is_refused_with_its_reason() {
    let (rig, list) = with_list(&[10]);
    list.items
        .lock()
        .unwrap()
        .push(json!({ "type": "a", "created": START.minus(secs(HOUR)).secs() }));
    for is_dry in [true, false] {
        let done = run(&rig, is_dry);
        has(&done, &json!({ "sent": 2, "refused": 1, "missing": 1 }));
        let reason = done["days"][0]["reasons"][0].as_str().unwrap();
        assert!(reason.contains("without an id: it has no id where"), "{reason}");
    }
    rig.says("SELECT count(*) FROM outbox WHERE status = 'quarantined'", "1");
}

#[test]
fn an_archived_event_is_no_missing_one() {
    let (rig, list) = with_list(&[]);
    for day in 1..=4 {
        list.add(&format!("evt_{day}"), rig.now().minus(secs(day * 24 * HOUR)));
    }
    let since = rig.now().minus(secs(10 * 24 * HOUR)).to_string();
    let begin = || rig.post(RUNS, &json!({ "since": since })).is(201).json();
    webhook(&rig, event("evt_2", rig.now().minus(secs(48 * HOUR))).to_string().as_bytes()).is(200);
    has(&ended(&rig, &begin()), &json!({ "sent": 4, "received": 1, "missing": 3, "taken_in": 3 }));
    rig.advance(secs(40 * 24 * HOUR));
    rig.becomes("SELECT count(*) FROM webhook_events", "0");
    has(&ended(&rig, &begin()), &json!({ "sent": 4, "received": 1, "missing": 0, "taken_in": 3 }));
}

#[test]
fn what_cannot_be_compared_is_refused_with_what_to_do() {
    let (rig, list) = with_list(&[2]);
    let refused = |path: &str, body: &Value, status: u16, why: &str| {
        let answer = rig.post(path, body).is(status).json();
        let detail = text(&answer, "detail");
        assert!(detail.contains(why), "{detail}");
    };
    let nothing = json!({});
    let future = json!({ "since": rig.now().plus(secs(60)).to_string() });
    let old = json!({ "since": rig.now().minus(secs(93 * 24 * HOUR)).to_string() });
    rig.post("/v1/providers/other/reconciliations", &nothing).is(404);
    refused(RUNS, &future, 422, "more than 5 minutes ago");
    refused(RUNS, &old, 422, "at most 92 days");
    refused(RUNS, &json!({ "source": "else" }), 409, "There is no source else");
    rig.provider("hub", &json!({ "kind": "stripe" }), SECRET);
    let path = "/v1/providers/hub/reconciliations";
    refused(path, &nothing, 409, "oncebox source add hub-list --list stripe|json --provider hub");
    rig.post("/v1/sources/list/pause", &json!({})).is(200);
    refused(RUNS, &nothing, 409, "oncebox source resume list");
    rig.post("/v1/sources/list/resume", &json!({})).is(200);
    list.server.always(Reply::status(500));
    rig.post(RUNS, &nothing).is(201);
    refused(RUNS, &nothing, 409, "is under way");
    let untimed =
        json!({ "url": list.url(), "items": "/data", "item_id": ["/id"], "provider": "hub" });
    rig.source("untimed", "http", &untimed);
    refused(path, &nothing, 409, "oncebox source change untimed");
}

#[test]
fn a_run_that_cannot_end_fails_with_the_reason() {
    let (rig, list) = with_list(&[2]);
    list.server.always(Reply::status(401));
    let done = run(&rig, false);
    has(&done, &json!({ "state": "FAILED", "sent": 0, "days": [] }));
    assert!(text(&done, "error").contains("oncebox source credential list"), "{done}");
    list.server.always(Reply::status(500));
    let done = run(&rig, false);
    assert!(text(&done, "error").contains("answers 500"), "{done}");
    let begun = rig.post(RUNS, &json!({})).is(201).json();
    let path = format!("{RUNS}/{}", text(&begun, "id"));
    until("the run tells its error while it goes on", || {
        let run = rig.get(&path);
        run["state"] == "RUNNING" && run["error"].to_string().contains("answers 500")
    });
    rig.post("/v1/sources/list/pause", &json!({})).is(200);
    let done = ended(&rig, &begun);
    assert!(text(&done, "error").contains("paused or deleted"), "{done}");
}

#[test]
fn too_many_missing_webhooks_are_an_escalation_until_a_run_finds_none() {
    let (rig, list) = with_list(&[5]);
    let raised = || rig.items("/v1/escalations");
    run(&rig, true);
    let found = raised();
    has(&found[0], &json!({ "class": "provider.missing", "subject": "provider:stripe" }));
    let detail = text(&found[0], "detail");
    assert_eq!(detail, "1 of 1 webhooks of 2026-01-31 were missing and are not taken in yet");
    run(&rig, false);
    assert_eq!(raised().len(), 1);
    run(&rig, false);
    assert_eq!(raised().len(), 0, "it is resolved");
    // A run that fails knows nothing, and a share that is allowed is none.
    list.add("evt_4", rig.now().minus(secs(4 * HOUR)));
    let terms = json!({ "reconcile": { "alert_percent": 50 } });
    rig.patch("/v1/providers/stripe", &terms).is(200);
    run(&rig, true);
    assert_eq!(raised().len(), 0);
    let metrics = rig.call("GET", "/metrics", b"").is(200).text();
    assert!(metrics.contains("oncebox_reconciled_items{state=\"missing\"} 1\n"), "{metrics}");
    assert!(metrics.contains("oncebox_reconciled_items{state=\"taken_in\"} 1\n"), "{metrics}");
    assert!(metrics.contains("oncebox_reconciliations_failed 0\n"), "{metrics}");
}

#[test]
fn a_list_is_compared_regularly_as_its_provider_says() {
    let (rig, list) = with_list(&[5]);
    let set = |terms: &Value| rig.patch("/v1/providers/stripe", &json!({ "reconcile": terms }));
    let runs = || rig.one("SELECT count(*) FROM reconciliations WHERE state = 'DONE'");
    rig.advance(secs(60));
    let six_hours = 6 * HOUR;
    let answer = set(&json!({ "every_secs": six_hours })).is(200).json();
    has(
        &answer,
        &json!({ "reconcile": { "every_secs": six_hours, "since_secs": 259_200, "alert_percent": 1 } }),
    );
    rig.passing("the first has ended", secs(2), || runs() == "1");
    has(&rig.items(RUNS)[0], &json!({ "requested_by": null, "missing": 1, "taken_in": 1 }));
    list.add("evt_new", rig.now());
    rig.advance(secs(six_hours - 600));
    rig.advance(secs(700));
    rig.passing("the second has ended", secs(2), || runs() == "2");
    has(&rig.items(RUNS)[0], &json!({ "sent": 2, "received": 0, "taken_in": 2 }));
    set(&json!({ "every_secs": 0 })).is(200);
    let noted = "SELECT count(*) FROM audit_events WHERE action = 'reconciliation.start'";
    rig.says(noted, "0");
    run(&rig, true);
    rig.says(noted, "1");
    for (terms, why) in [
        (json!({ "every_secs": 1 }), "0 (never), or 600 to"),
        (json!({ "every_secs": 864_000 }), "must be at least every_secs"),
        (json!({ "since_secs": 1 }), "since_secs"),
        (json!({ "alert_percent": 101 }), "alert_percent"),
    ] {
        set(&terms).is(422).tells(why);
    }
    rig.call("DELETE", "/v1/sources/list", b"").is(204);
    set(&json!({ "every_secs": six_hours })).is(409).tells("oncebox source add stripe-list");
}

#[test]
fn a_clock_that_was_ahead_and_is_set_back_makes_one_comparison_due() {
    let (rig, list) = with_list(&[5]);
    let done = || rig.one("SELECT count(*) FROM reconciliations WHERE state = 'DONE'");
    let days = 24 * HOUR * 6;
    let terms = json!({ "reconcile": { "every_secs": days, "since_secs": days } });
    rig.patch("/v1/providers/stripe", &terms).is(200);
    rig.passing("the first has ended", secs(2), || done() == "1");
    let right = rig.now();
    rig.time.set_wall(right.plus(secs(2 * days)));
    rig.passing("one of the future has ended", secs(2), || done() == "2");
    rig.time.set_wall(right.plus(secs(60)));
    rig.passing("one of the right time has ended", secs(2), || done() == "3");
    let asked = list.server.count();
    rig.passing("it is read again", secs(61), || list.server.count() >= asked + 8);
    rig.says("SELECT count(*) FROM reconciliations", "3");
}
