//! What was sent, where it went, what was answered: lists, single things, and sending again.

use crate::cli::rig::prelude::*;

fn subscribed(status: u16) -> (Rig, Target) {
    let (rig, target) = (Rig::new(), Target::answering(status));
    let args = ["subscription", "create", "odoo", "--url", &target.url];
    rig.ok(&[&args[..], &["--event-type", "invoice.*", "--steps", "100ms", "--max-attempts", "2"]]
        .concat());
    (rig, target)
}

fn emit(rig: &Rig, id: &str) -> String {
    let aggregate = format!("invoice/{id}");
    let payload = format!("{{\"id\":{id}}}");
    let made =
        rig.json(&["emit", "invoice.paid", "--aggregate", &aggregate, "--payload", &payload]);
    made["events"][0]["id"].as_str().unwrap().to_owned()
}

fn settled(rig: &Rig, event: &str, state: &str) {
    rig.until(state, |rig| {
        let found = rig.items(&["delivery", "list", "--event-id", event]);
        found.first().is_some_and(|delivery| delivery["state"] == state)
    });
}

#[test]
fn what_a_target_has_accepted_is_shown_and_confirmed() {
    let (rig, target) = (Rig::new(), Target::answering(202));
    rig.ok(&["subscription", "create", "odoo", "--url", &target.url, "--confirm-within", "1h"]);
    let event = emit(&rig, "4711");
    settled(&rig, &event, "waiting");
    let id = rig.items(&["delivery", "list", "--event-id", &event])[0]["id"].clone();
    let id = id.as_str().unwrap();
    let screen = rig.ok(&["delivery", "show", id]);
    for words in ["the target has to confirm it until 20", "oncebox delivery confirm dlv_"] {
        assert!(screen.contains(words), "{words} is not on\n{screen}");
    }
    shows(
        &rig.ok(&["delivery", "confirm", id, "--failed", "no stock", "--final"]),
        &["is dead_letter"],
    );
    shows(&rig.ok(&["delivery", "show", id]), &["no stock"]);
    rig.ok(&["delivery", "retry", id]);
    settled(&rig, &event, "waiting");
    assert!(rig.ok(&["delivery", "confirm", id]).contains("is completed"));
    shows(&rig.ok(&["subscription", "change", "odoo", "--confirm-within", "2h"]), &["2h"]);
}

#[test]
fn what_probes_say_of_an_idle_target_is_shown() {
    let (rig, target) = (Rig::new(), Target::answering(500));
    let create = ["subscription", "create", "odoo", "--url", &target.url, "--probe"];
    rig.run(&[&create[..], &["often"]].concat()).ends(2, &["is not a span"]);
    rig.run(&[&create[..], &["5min GET health"]].concat()).fails(&["begin with a slash"]);
    rig.ok(&[&create[..], &["1h get /health"]].concat());
    let shown = || rig.ok(&["subscription", "show", "odoo"]);
    rig.until("it is probed", |_| shown().contains(": the target answered 500"));
    shows(&shown(), &["unknown, probed at 20"]);
    shows(&rig.ok(&["subscription", "list"]), &["HEALTH", "unknown"]);
    let made = rig.json(&["subscription", "change", "odoo", "--probe", "2h"]);
    assert_eq!(made["policy"]["probe"], json!({ "every": "2h" }));
    rig.ok(&["subscription", "change", "odoo", "--probe", "off"]);
    assert!(!shown().contains("health") && !rig.ok(&["subscription", "list"]).contains("HEALTH"));
}

#[test]
fn a_delivery_that_never_waited_for_a_confirmation_cannot_be_confirmed() {
    let (rig, _target) = subscribed(200);
    settled(&rig, &emit(&rig, "4711"), "completed");
    rig.run(&["delivery", "confirm", "dlv_1"]).ends(5, &["dlv_1 is completed"]);
}

#[test]
fn what_a_terminal_acts_on_is_shown_as_an_escape() {
    let (rig, _target) = subscribed(200);
    let payload = r#"{"note":"\u001b[31m\u009b\u202e"}"#;
    let args = ["emit", "invoice.paid", "--aggregate", "invoice/a\u{202e}b", "--payload", payload];
    let made = rig.json(&args);
    let event = made["events"][0]["id"].as_str().unwrap();
    let screen = rig.ok(&["event", "show", event]);
    assert!(screen.contains(r"invoice/a\u{202e}b") && screen.contains(r"\u{9b}"), "{screen}");
    assert!(rig.ok(&["event", "list"]).contains(r"invoice/a\u{202e}b"));
    let json = rig.ok(&["event", "show", event, "--json"]);
    assert!(json.contains(r"invoice/a\u202eb") || json.contains(r#""a\u202eb""#), "{json}");
    for shown in [&screen, &json] {
        assert!(!shown.contains(['\u{1b}', '\u{9b}', '\u{202e}']), "{shown:?}");
    }
    let parsed: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(parsed["payload"]["note"], "\u{1b}[31m\u{9b}\u{202e}");
    assert!(rig.ok(&["event", "show", event, "--payload"]).contains('\u{202e}'), "for programs");
}

#[test]
fn did_invoice_4711_go_out_when_and_what_did_they_answer() {
    let (rig, target) = subscribed(500);
    let event = emit(&rig, "4711");
    emit(&rig, "4712");
    settled(&rig, &event, "dead_letter");
    let list = rig.ok(&["event", "list", "--aggregate-id", "4711", "--since", "1h"]);
    assert_eq!(list.lines().count(), 2, "{list}");
    assert_eq!(rig.items(&["event", "list", "--operational"]).len(), 2);
    assert!(list.contains(&event) && list.contains("dead_letter"), "{list}");
    let screen = rig.ok(&["event", "show", &event]);
    for words in
        ["invoice/4711", "\"id\": 4711", "to odoo", "answered 500", "#2", "booked as SI-0042"]
    {
        assert!(screen.contains(words), "{words} is not on\n{screen}");
    }
    assert!(!screen.contains('\u{1b}'), "an answer's escape sequence reaches the terminal");
    assert!(screen.contains("  ended ") && !screen.contains("  completed "), "{screen}");
    assert!(screen.contains("--payload @FILE   (repaired, as a new event)"), "{screen}");
    let command = screen.lines().find(|line| line.contains("oncebox delivery retry")).unwrap();
    let (command, _) = command.split_once("   (").unwrap();
    target.status.store(200, Ordering::SeqCst);
    let args: Vec<&str> = command.split_whitespace().skip(1).collect();
    assert!(rig.ok(&args).contains("is pending"));
    settled(&rig, &event, "completed");
    let screen = rig.ok(&["event", "show", &event]);
    assert!(screen.contains("answered 200") && screen.contains("#3"), "{screen}");
    // What was taken goes out a second time as a new event, by the very command that is shown.
    let line = screen.lines().find(|line| line.contains("--as-new")).unwrap();
    let (line, _) = line.split_once("   (").unwrap();
    let args: Vec<&str> = line.split_whitespace().skip(1).collect();
    assert_eq!(rig.json(&args)["replay_of"], event.as_str());
    assert_eq!(rig.items(&["event", "list", "--aggregate-id", "4711"]).len(), 2);
}

#[test]
fn a_delivery_is_shown_with_its_event_and_its_attempts() {
    let (rig, _target) = subscribed(200);
    let event = emit(&rig, "1");
    settled(&rig, &event, "completed");
    let listed = rig.items(&["delivery", "list", "--state", "completed", "--subscription", "odoo"]);
    let id = listed[0]["id"].as_str().unwrap();
    shows(&rig.ok(&["delivery", "show", id]), &[&event, "answered 200"]);
    assert_eq!(rig.json(&["delivery", "show", id])["event_id"], event.as_str());
    assert_eq!(rig.items(&["delivery", "attempts", id])[0]["http_status"], 200);
    assert!(rig.ok(&["delivery", "attempts", id]).contains("success"));
    shows(
        &rig.ok(&["delivery", "request", id]),
        &[
            "as attempt 1 sent it",
            "\nwebhook-signature: v1,***\n",
            "\ncurl -X POST 'http",
            " \\\n  -H '",
        ],
    );
    rig.run(&["delivery", "retry", id]).ends(5, &["completed"]);
    rig.run(&["delivery", "retry", id, "--rendered-anew"]).ends(5, &["completed"]);
    rig.run(&["delivery", "cancel", id, "dlv_999", "--yes"]).ends(5, &["dlv_999"]);
}

#[test]
fn what_waits_is_cancelled_and_what_died_is_sent_again() {
    let (rig, target) = subscribed(500);
    for id in ["1", "2", "3"] {
        let event = emit(&rig, id);
        settled(&rig, &event, "dead_letter");
    }
    assert_eq!(rig.ok(&["dead-letter", "list"]).lines().count(), 4);
    rig.run(&["dead-letter", "retry", "--all"]).ends(2, &["sends 3 dead letters again"]);
    rig.ok(&["subscription", "pause", "odoo"]);
    assert!(rig.ok(&["dead-letter", "replay", "dlv_1", "--yes"]).contains("1 of 1: 1 deliveries"));
    assert!(rig.ok(&["delivery", "cancel", "dlv_1", "--yes"]).contains("dlv_1 is cancelled"));
    target.status.store(200, Ordering::SeqCst);
    let all = rig.ok(&["dead-letter", "retry", "--all", "--yes", "--subscription", "odoo"]);
    assert!(all.contains("is completed: 2 of 2: 2 deliveries"), "{all}");
    rig.ok(&["subscription", "resume", "odoo"]);
    rig.until("all are delivered", |rig| {
        rig.items(&["delivery", "list", "--state", "completed"]).len() == 2
    });
    assert!(rig.run(&["dead-letter", "retry", "--all", "--yes"]).err.contains("no dead letters"));
}

#[test]
fn which_invoice_was_not_sent_stands_in_the_lists_and_in_the_status() {
    let (rig, _target) = subscribed(500);
    rig.ok(&["subscription", "change", "odoo", "--max-attempts", "1"]);
    let event = emit(&rig, "4711");
    settled(&rig, &event, "dead_letter");
    for list in [&["dead-letter", "list"][..], &["delivery", "list", "--status", "dead_letter"]] {
        shows(&rig.ok(list), &["OF", "invoice/4711"]);
    }
    assert!(rig.ok(&["event", "list", "--state", "dead_letter"]).contains("invoice/4711"));
    shows(&rig.ok(&["status"]), &["odoo has failed since ", "(1 in a row)"]);
    // Without an aggregate the key tells it.
    rig.ok(&["emit", "invoice.paid", "--key", "RE-17", "--payload", "1"]);
    assert!(rig.ok(&["delivery", "list", "--limit", "1"]).contains("RE-17"));
    assert!(
        rig.ok(&["event", "list", "--key", "RE-17", "--since", "2026-01-31"]).contains("RE-17")
    );
    // Who asks by what stands on the invoice is told how its event is found.
    rig.run(&["event", "show", "4711"]).ends(4, &["--aggregate-id 4711"]);
    rig.run(&["delivery", "list", "--state", "sent"]).warns(&["it is one of pending, leased,"]);
}

#[test]
fn why_a_delivery_waits_is_said_where_it_is_shown() {
    let rig = Rig::new();
    rig.ok(&["subscription", "create", "erp", "--pull", "--ordering", "key"]);
    let first = emit(&rig, "1");
    let second = emit(&rig, "1");
    shows(
        &rig.ok(&["event", "show", &first]),
        &["for a consumer to ask for it: oncebox consume erp"],
    );
    shows(&rig.ok(&["event", "show", &second]), &["behind dlv_1 of ", "which waits: "]);
    rig.ok(&["subscription", "pause", "erp"]);
    shows(&rig.ok(&["event", "show", &first]), &["erp is held (paused) since "]);
}

#[test]
fn a_quarantined_event_says_how_it_is_repaired() {
    let rig = Rig::new();
    let file = rig.dir.path().join("oncebox.db");
    let db = Connection::open(file).unwrap();
    for (columns, values) in [
        ("event_type, payload", "'a', '{''n'':1}'"),
        ("event_type, payload, target", "'a', '1', 'nobody'"),
        ("event_type, payload, occurred_at", "'a', '1', 1764000000"),
    ] {
        db.execute(&format!("INSERT INTO outbox ({columns}) VALUES ({values})"), []).unwrap();
    }
    let all = |rig: &Rig| rig.items(&["event", "list", "--status", "quarantined"]);
    rig.until("all are looked at", |rig| all(rig).len() == 3);
    // Those of the tenant are told of once, whatever the service says of all tenants together.
    let status = rig.ok(&["status"]);
    let told = status.matches("oncebox event list --status quarantined").count();
    assert!(told == 1 && !status.contains("quarantined: "), "{status}");
    db.execute("INSERT INTO tenants (name, created_at) SELECT 'acme', created_at FROM tenants", [])
        .unwrap();
    db.execute("INSERT INTO outbox (tenant, event_type, payload, target) VALUES ('acme', 'a', '1', 'nobody')", [])
        .unwrap();
    rig.until("others have one, too", |rig| {
        rig.ok(&["status"]).contains("quarantined: 1 more of other tenants")
    });
    for (event, hint) in
        all(&rig).iter().zip(["occurred_at='\"2026-", "--no-target", "--payload @FILE"])
    {
        let id = event["id"].as_str().unwrap();
        let screen = rig.ok(&["event", "show", id]);
        assert!(screen.contains(hint) && screen.contains("event discard"), "{hint}\n{screen}");
        assert!(!screen.contains("No subscription"), "{screen}");
    }
    let id = all(&rig)[0]["id"].as_str().unwrap().to_owned();
    rig.run(&["event", "fix", &id, "--set", "occurred_at=1764000000000"])
        .ends(65, &["a time is a text"]);
    rig.ok(&["event", "fix", &id]);
}

#[test]
fn what_is_sealed_is_not_sent_anew_from_what_is_shown() {
    let (rig, _target) = subscribed(200);
    let policy = "{\"rules\":[{\"path\":\"$.name\",\"action\":\"seal\"}]}";
    rig.ok(&["tenant", "pii", "default", policy]);
    let made = rig.json(&["emit", "invoice.paid", "--payload", "{\"name\":\"Annemarie\"}"]);
    let event = made["events"][0]["id"].as_str().unwrap();
    settled(&rig, event, "completed");
    let screen = rig.ok(&["event", "show", event]);
    assert!(!screen.contains("--as-new") && screen.contains("oncebox event replay"), "{screen}");
}

#[test]
fn pages_are_followed_and_told_of() {
    let rig = Rig::new();
    for id in ["1", "2", "3"] {
        emit(&rig, id);
    }
    let page = rig.run(&["event", "list", "--limit", "2"]);
    assert!(page.out.lines().count() == 3 && page.err.contains("--after"), "{page:?}");
    let next = rig.json(&["event", "list", "--limit", "2"])["next"].as_str().unwrap().to_owned();
    assert_eq!(rig.items(&["event", "list", "--limit", "2", "--after", &next]).len(), 1);
    let all = rig.run(&["event", "list", "--limit", "2", "--all"]);
    assert!(all.out.lines().count() == 4 && all.err.is_empty(), "{all:?}");
    let none = rig.run(&["event", "list", "--status", "dead_letter"]);
    assert_eq!((none.code, &*none.out, &*none.err), (0, "", "There are no such events.\n"));
}

#[test]
fn a_reader_that_goes_away_ends_the_command_quietly() {
    let rig = Rig::new();
    let line = "{\"event_type\":\"tick\",\"payload\":1}\n";
    rig.run_with(&["emit", "--batch", "1000"], &line.repeat(1000));
    let mut command = rig.command(&["event", "list", "--all", "--json"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0_u8; 1];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), &*ended.stderr), (Some(0), &b""[..]));
}

#[test]
fn the_status_is_one_screen() {
    let rig = Rig::new();
    shows(&rig.ok(&["status"]), &["runs and is ready", "dead letters"]);
    assert_eq!(rig.json(&["status"])["dead_letters"], 0);
}

#[test]
fn a_paused_subscription_is_not_overdue_and_one_with_dead_letters_alone_points_at_them() {
    let (rig, target) = subscribed(503);
    rig.ok(&["subscription", "create", "paused", "--event-type", "*", "--url", &target.url]);
    rig.ok(&["subscription", "pause", "paused"]);
    rig.ok(&["emit", "invoice.paid", "--key", "4711", "--payload", "1", "--max-attempts", "1"]);
    rig.until("it is given up", |rig| rig.ok(&["status"]).contains("given up"));
    assert_eq!(rig.json(&["status"])["oldest_due_at"], Value::Null);
    let status = rig.ok(&["status"]);
    assert!(status.contains("--state dead_letter"), "{status}");
    assert!(!status.contains("--state pending"), "{status}");
}

#[test]
fn a_whole_process_is_shown_as_a_tree() {
    let (rig, target) = subscribed(200);
    let emit = |event_type: &str, key: &str, more: &[&str]| {
        let all = [&["emit", event_type, "--key", key, "--payload", "1"], more].concat();
        rig.json(&all)["events"][0]["id"].as_str().unwrap().to_owned()
    };
    let order = emit("order.placed", "o1", &["--process-id", "p 1"]);
    let hard = ["--parent-key", "o1", "--parent-binding", "hard"];
    let invoice = emit("invoice.paid", "i1", &[&hard[..], &["--aggregate", "invoice/1"]].concat());
    let note = emit("note.made", "n1", &["--parent-id", &invoice]);
    settled(&rig, &invoice, "completed");
    let tree = rig.ok(&["event", "process", "p 1"]);
    let line = |n: usize| {
        let line = tree.lines().nth(n).unwrap();
        (
            line.len() - line.trim_start().len(),
            line.split_whitespace().collect::<Vec<_>>().join(" "),
        )
    };
    assert_eq!(line(0), (0, format!("order.placed completed {order}")), "{tree}");
    assert_eq!(line(1), (2, format!("invoice.paid invoice/1 completed {invoice} hard")), "{tree}");
    assert_eq!(line(2), (4, format!("note.made skipped {note} soft")), "{tree}");
    assert_eq!(rig.json(&["event", "process", "p 1"])["items"].as_array().unwrap().len(), 3);
    target.status.store(500, Ordering::SeqCst);
    let open = emit("invoice.paid", "i2", &hard);
    let shown = rig.ok(&["event", "show", &order]);
    assert!(
        shown.contains("it waits until all are done") || shown.contains("dead_letter"),
        "{shown}"
    );
    settled(&rig, &open, "dead_letter");
    shows(
        &rig.ok(&["event", "show", &order]),
        &[&format!("its hard child {open} is a dead letter")],
    );
    assert!(rig.ok(&["event", "show", &open]).contains(&format!("{order} (hard)")));
    assert_eq!(rig.items(&["event", "list", "--parent-id", &order]).len(), 2);
}

#[test]
fn top_prints_one_picture_without_a_terminal() {
    let (rig, _target) = subscribed(422);
    let event = emit(&rig, "4711");
    settled(&rig, &event, "dead_letter");
    for args in [&["top"][..], &["top", "--once"]] {
        let picture = rig.ok(args);
        for words in ["oncebox 0", "1 dead letters", "THIS MINUTE", "odoo", "failed attempts"] {
            assert!(picture.contains(words), "{words} is not in\n{picture}");
        }
        let odoo = picture.lines().find(|line| line.starts_with("odoo")).unwrap();
        assert!(odoo.trim_end().ends_with(" x"), "one attempt that was refused: {odoo}");
        assert!(picture.lines().all(|line| line.chars().count() <= 80), "{picture}");
        assert!(!picture.contains('\u{1b}'), "no terminal, no escapes: {picture}");
    }
    let all = rig.json(&["top"]);
    assert_eq!(all["stats"]["dead_letters"], 1, "{all}");
    rig.signal("TERM");
    rig.until("the service is gone", |rig| rig.run(&["top"]).code != 0);
}

#[test]
fn top_draws_on_a_screen_of_its_own_and_leaves_the_terminal_as_it_was() {
    let (mut rig, _target) = subscribed(200);
    // `script` gives the program a terminal.
    let top = format!("{} top", assert_cmd::cargo::cargo_bin!("oncebox").display());
    let mut child = rig.terminal(&top).spawn().unwrap();
    let (mut typed, mut drawn) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let (mut seen, mut part) = (String::new(), [0; 4096]);
    let mut read_until = |words: &str| {
        while !seen.contains(words) {
            let length = drawn.read(&mut part).unwrap();
            assert!(length > 0, "it has ended: {seen}");
            seen.push_str(&String::from_utf8_lossy(&part[..length]));
        }
        std::mem::take(&mut seen)
    };
    let first = read_until("odoo");
    assert!(first.starts_with("\x1b[?1049h"), "{first:?}");
    read_until("\x1b[H");
    rig.kill();
    read_until("NO ANSWER");
    typed.write_all(b"\x03").unwrap();
    read_until("\x1b[?25h\x1b[?1049l");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// Seed 000: "`processing_started_at`: When processing began." Seed 003: "correlated by `traceId`".
#[test]
fn a_screen_says_when_an_event_began_and_ended_and_its_trace() {
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
    rig.ok(&["trigger", "stripe"]);
    let skipped = rig.items(&["webhook", "list"]).remove(0);
    let screen = |id: &Value| rig.ok(&["webhook", "show", id.as_str().unwrap()]);
    shows(&screen(&skipped["id"]), &["ended", "trace", skipped["trace_id"].as_str().unwrap()]);
    let target = Target::answering(400);
    let args = ["subscription", "create", "odoo", "--url", &target.url, "--source", "all"];
    rig.ok(&args);
    rig.ok(&["trigger", "stripe"]);
    rig.until("it failed", |rig| rig.items(&["webhook", "list", "--status", "failed"]).len() == 1);
    let failed = rig.items(&["webhook", "list", "--status", "failed"]).remove(0);
    shows(&screen(&failed["id"]), &["began", "ended", "last error"]);
    let event = emit(&rig, "4711");
    settled(&rig, &event, "dead_letter");
    shows(&rig.ok(&["event", "show", &event]), &["trace", &event.replace('-', "")]);
    let escalations = rig.ok(&["escalation", "list"]);
    shows(&escalations, &["is a dead letter: the target answered 400"]);
    let active =
        rig.ok(&["subscription", "list", "--event-type", "invoice.paid", "--state", "ACTIVE"]);
    shows(&active, &["odoo"]);
}
