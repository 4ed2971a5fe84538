//! `oncebox emit`: one event, many lines, bad lines, and a service that restarts meanwhile.

use std::fmt::Write;

use crate::cli::rig::prelude::*;

fn lines(range: std::ops::Range<u32>) -> String {
    let mut text = String::new();
    for n in range {
        writeln!(text, r#"{{"event_type":"order.paid","payload":{{"n":{n}}}}}"#).unwrap();
    }
    text
}

/// What is said of events that nobody gets.
fn unwanted(count: u32) -> String {
    format!("; {count} wanted by no subscription: oncebox event list --status skipped")
}

#[test]
fn who_misspells_a_type_is_told_that_nobody_gets_it() {
    let rig = Rig::new();
    rig.ok(&["subscription", "create", "erp", "--pull", "--event-type", "invoice.*"]);
    let made = rig.ok(&["emit", "invioce.paid", "--payload", "1"]);
    assert!(made.contains("but no subscription wants it"), "{made}");
    let id = made.split_whitespace().find(|word| word.len() > 36).unwrap().trim_end_matches(',');
    shows(&rig.ok(&["event", "show", id]), &["it was sent to nobody", "--subscription NAME"]);
    let made = rig.ok(&["emit", "invoice.paid", "--payload", "1"]);
    assert!(!made.contains("no subscription"), "{made}");
}

#[test]
fn the_same_2500_lines_twice_are_stored_once() {
    let rig = Rig::new();
    let input = lines(0..2500);
    let first = rig.run_with(&["emit", "--batch", "1000"], &input);
    let told = format!("2500 events: 2500 stored, 0 known before{}\n", unwanted(2500));
    assert_eq!((first.code, first.out), (0, told));
    let path = rig.file("events.ndjson", &input);
    let again = rig.ok(&["emit", "--batch", "1000", "--file", path.to_str().unwrap()]);
    assert_eq!(again, "2500 events: 0 stored, 2500 known before\n");
    let all = rig.ok(&["event", "list", "--all", "--json"]);
    let mut ids: Vec<String> = all
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["id"].to_string())
        .collect();
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), all.lines().count()), (2500, 2500));
}

#[test]
fn equal_lines_are_events_of_their_own_unless_a_key_says_otherwise() {
    let rig = Rig::new();
    let line = "{\"event_type\":\"tick\",\"payload\":1}\n";
    let ran = rig.run_with(&["emit", "--batch", "2"], &line.repeat(5));
    assert_eq!(ran.out, format!("5 events: 5 stored, 0 known before{}\n", unwanted(5)));
    let line = "{\"event_type\":\"tick\",\"idempotency_key\":\"k\",\"payload\":1}\n";
    let ran = rig.run_with(&["emit"], &line.repeat(5));
    assert_eq!(ran.out, format!("5 events: 1 stored, 4 known before{}\n", unwanted(1)));
    assert_eq!(rig.items(&["event", "list"]).len(), 6);
}

/// Lines that are no usable events, with the reason that is given for each.
const BAD: [(&str, &str); 6] = [
    ("{\"event_type\":", "EOF while parsing"),
    ("{\"payload\":1}", "missing field `event_type`"),
    ("{\"event_type\":\"\",\"payload\":1}", "event_type has 0 characters"),
    ("{\"event_type\":\"a\",\"payload\":1,\"pay\":2}", "The body is not"),
    ("{\"event_type\":\"a\",\"payload\":1,\"parent_key\":\"none\"}", "cannot be stored"),
    ("{\"event_type\":\"a\",\"payload\":1,\"source_system\":\"sql\"}", "sql"),
];

/// Twelve good lines, a bad one as line 13, and eight good ones.
fn with_bad_line(bad: &str) -> String {
    format!("{}{bad}\n{}", lines(0..12), lines(12..20))
}

#[test]
fn a_bad_line_is_quarantined_with_its_reason_and_stops_no_other() {
    let rig = Rig::new();
    for (bad, why) in BAD {
        let input = with_bad_line(bad);
        let ran = rig.run_with(&["emit", "--batch", "10"], &input);
        assert_eq!(ran.code, 0, "{ran:?}");
        ran.warns(&["line 13: ", why, "It is quarantined as "]);
        ran.prints(&["21 events: ", "1 quarantined"]);
        // The same input again finds every line known.
        let again = rig.run_with(&["emit", "--batch", "10"], &input);
        again.prints(&["21 events: 0 stored, 21 known before"]);
    }
    let quarantined = rig.items(&["event", "list", "--status", "quarantined"]);
    assert_eq!(quarantined.len(), BAD.len());
    let id = quarantined.iter().find(|event| event["event_type"] == "a").unwrap()["id"].as_str();
    shows(&rig.ok(&["event", "show", id.unwrap()]), &["line 13 of oncebox emit: "]);
}

#[test]
fn a_bad_line_is_set_aside_in_a_file() {
    let rig = Rig::new();
    let path = rig.dir.path().join("rejected.ndjson");
    let file = path.to_str().unwrap();
    for (bad, why) in BAD {
        let ran = rig.run_with(&["emit", "--batch", "10", "--rejected", file], &with_bad_line(bad));
        assert_eq!(ran.code, 0, "{ran:?}");
        ran.warns(&["line 13: ", why, "It was appended to ", file]);
        ran.prints(&["20 events: ", "; 1 lines rejected"]);
    }
    let kept = fs::read_to_string(&path).unwrap();
    assert_eq!(kept.lines().collect::<Vec<_>>(), BAD.map(|(bad, _)| bad));
    assert!(rig.items(&["event", "list", "--status", "quarantined"]).is_empty());
    rig.run_with(&["emit", "--rejected", "/none/such"], "").ends(1, &["/none/such cannot be"]);
}

#[test]
fn a_token_that_may_not_publish_quarantines_nothing() {
    let rig = Rig::new();
    let made = rig.json(&["token", "create", "reader", "--role", "read"]);
    rig.file("admin.token", &format!("{}\n", made["token"].as_str().unwrap()));
    let ran = rig.run_with(&["emit", "--batch", "10"], &with_bad_line("{"));
    ran.fails(&["Nothing of its batch was stored (lines 1 to 10)", "Nothing was stored before"]);
    rig.run_with(&["emit"], "{").fails(&["line 1: ", "It cannot be quarantined: ", "--rejected"]);
}

#[test]
fn one_event_is_made_from_flags() {
    let rig = Rig::new();
    let args =
        ["emit", "invoice.paid", "--key", "invoice.paid:4711", "--aggregate", "invoice/4711"];
    shows(
        &rig.ok(&[&args[..], &["--payload", "{\"id\":4711}"]].concat()),
        &["stored as ", "oncebox event show "],
    );
    let again = rig.ok(&[&args[..], &["--payload", "{\"id\":4711}"]].concat());
    assert!(again.contains("known before") && !again.contains("other content"), "{again}");
    rig.run_with(&[&args[..], &["--payload", "-"]].concat(), "{\"id\":4712}")
        .prints(&["with other content"]);
    let found = rig.items(&["event", "list", "--aggregate-id", "4711"]);
    assert_eq!((found.len(), found[0]["aggregate_type"].as_str()), (1, Some("invoice")));
    rig.run(&["emit", "a", "--payload", "not json"]).ends(65, &["--content-type"]);
    let path = rig.file("note.txt", "Guten Tag");
    let path = format!("@{}", path.display());
    let made = rig.json(&["emit", "note", "--content-type", "text/plain", "--payload", &path]);
    let id = made["events"][0]["id"].as_str().unwrap();
    assert_eq!(rig.ok(&["event", "show", id, "--payload"]), "Guten Tag");
}

#[test]
fn a_service_that_restarts_meanwhile_is_waited_for() {
    let mut rig = Rig::new();
    rig.kill();
    rig.run_with(&["emit", "--retry-for", "0s"], &lines(0..1)).ends(3, &["oncebox serve"]);
    let mut waiting = rig.command(&["emit", "--retry-for", "20s"]);
    let waiting = thread::spawn(move || run(&mut waiting, &lines(0..10)));
    thread::sleep(Duration::from_millis(300));
    rig.start();
    let ran = waiting.join().unwrap();
    let told = format!("10 events: 10 stored, 0 known before{}\n", unwanted(10));
    assert_eq!((ran.code, &*ran.out), (0, &*told), "{ran:?}");
}

#[test]
fn an_input_without_an_event_is_silent() {
    let rig = Rig::new();
    for args in [&["emit"][..], &["emit", "--json"]] {
        for input in ["", "\n \n"] {
            let ran = rig.run_with(args, input);
            assert_eq!((ran.code, &*ran.out, &*ran.err), (0, "", ""));
        }
    }
}

#[test]
fn how_long_it_was_tried_is_not_rounded_to_nothing() {
    let rig = Rig::stopped();
    let server = ["--server", "http://127.0.0.1:1", "--retry-for", "900ms"];
    rig.file("admin.token", "obx_none\n");
    let ran = rig.run(&[&["emit", "a.b", "--payload", "1"][..], &server].concat());
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.err.contains("Tried for ") && !ran.err.contains("Tried for 0s"), "{ran:?}");
}

#[test]
fn an_event_that_a_restore_holds_back_is_said_to_be_held() {
    let mut rig = Rig::new();
    let target = Target::answering(200);
    rig.ok(&["subscription", "create", "erp", "--event-type", "*", "--url", &target.url]);
    let backup = rig.dir.path().join("b.db");
    rig.ok(&["emit", "invoice.paid", "--key", "1", "--payload", "1"]);
    rig.ok(&["backup", backup.to_str().unwrap()]);
    rig.kill();
    rig.ok(&["restore", "--force", backup.to_str().unwrap()]);
    rig.start();
    shows(
        &rig.ok(&["emit", "invoice.paid", "--key", "2", "--payload", "1"]),
        &["and held: the database was restored"],
    );
    let answer = rig.json(&["emit", "invoice.paid", "--key", "3", "--payload", "1"]);
    assert_eq!(answer["events"][0]["in_doubt"], true, "{answer}");
    rig.run_with(&["emit"], &lines(10..12)).prints(&["2 held since the restore"]);
    // Their numbers are still ones that a person can type.
    let deliveries = rig.items(&["delivery", "list"]);
    let numbers = deliveries.iter().map(|delivery| delivery["id"].as_str().unwrap().len());
    assert!(numbers.max().unwrap() <= "dlv_1000099".len(), "{deliveries:?}");
}

#[test]
fn an_event_type_with_a_space_is_refused() {
    let rig = Rig::new();
    rig.run(&["emit", "invoice paid", "--payload", "1"]).ends(65, &["event_type contains ' '"]);
    assert!(rig.items(&["event", "list"]).is_empty());
}
