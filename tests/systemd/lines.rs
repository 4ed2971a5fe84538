//! The log of a real process, line by line.

use serde_json::Value;

use crate::rig::http;
use crate::systemd::process::{Service, Unit};

const BODY: &[u8] = br#"{"event_type":"a","payload":"a-body-that-is-nobody-s-business"}"#;

fn with_log(settings: &str) -> Unit {
    let mut unit = Unit::new();
    unit.settings.push_str(settings);
    unit
}

/// Some requests, good and bad; gives the id of one that was refused.
fn be_used(service: &mut Service) -> String {
    let address = service.address();
    let bearer = format!("Bearer {}", service.token());
    let fields = [("Authorization", bearer.as_str())];
    http::send(address, "POST", "/v1/events", &fields, BODY).unwrap().is(201);
    let subscription = br#"{"name":"erp","url":"https://erp.example/hook"}"#;
    http::send(address, "POST", "/v1/subscriptions", &fields, subscription).unwrap().is(201);
    let wrong = [("Authorization", "Bearer obx_wrong-token-of-somebody")];
    let path = "/v1/events?api_key=in-the-query";
    let refused = http::send(address, "GET", path, &wrong, b"").unwrap().is(401);
    refused.field("x-request-id").unwrap().to_owned()
}

fn objects(log: &str) -> Vec<Value> {
    let object = |line: &str| {
        let read: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        assert!(read.is_object(), "{line}");
        read
    };
    log.lines().map(object).collect()
}

#[track_caller]
fn tells_nothing(log: &str, service: &Service) {
    let token = service.token();
    for secret in [&token, "wrong-token", "nobody-s-business", "in-the-query", "Bearer"] {
        assert!(!log.contains(secret), "{secret}: {log}");
    }
}

#[test]
fn away_from_a_terminal_every_line_is_an_object_and_a_refusal_can_be_found_by_its_id() {
    let unit = Unit::new();
    let mut service = unit.start();
    let id = be_used(&mut service);
    service.stop();
    let log = service.log();
    let lines = objects(&log);
    for line in &lines {
        for field in ["time", "level", "message", "target"] {
            assert!(line[field].is_string(), "{line}");
        }
    }
    let about: Vec<&Value> = lines.iter().filter(|line| line["request_id"] == id).collect();
    assert_eq!(about.len(), 1, "{log}");
    let line = about[0];
    assert_eq!(line["message"], "a request was refused");
    assert_eq!((&line["status"], &line["level"]), (&401.into(), &"info".into()));
    assert_eq!(line["path"], "/v1/events");
    assert_eq!(line["client"], "127.0.0.1");
    let messages = |text: &str| lines.iter().filter(|line| line["message"] == text).count();
    assert_eq!(messages("a change was made"), 1, "{log}");
    let change = lines.iter().find(|line| line["message"] == "a change was made").unwrap();
    assert_eq!(change["actor"], "first admin token");
    assert_eq!(change["action"], "subscription.create");
    assert!(change["resource"].as_str().unwrap().starts_with("subscription/"), "{change}");
    assert_eq!(messages("a request was answered"), 0, "at info a busy box is quiet: {log}");
    tells_nothing(&log, &service);
}

#[test]
fn at_debug_every_request_is_a_line_and_still_nothing_is_told() {
    let unit = with_log("[log]\nlevel = \"debug\"\nformat = \"logfmt\"\n");
    let mut service = unit.start();
    be_used(&mut service);
    service.stop();
    let log = service.log();
    for line in log.lines() {
        assert!(line.starts_with("time=2") && line.contains(" level="), "{line}");
    }
    let published = log.lines().find(|line| line.contains("path=/v1/events status=201"));
    let published = published.unwrap_or_else(|| panic!("{log}"));
    assert!(published.contains("level=debug msg=\"a request was answered\" request_id="));
    tells_nothing(&log, &service);
}

#[test]
fn what_comes_from_outside_forges_no_line() {
    for format in ["json", "logfmt"] {
        let mut unit = with_log(&format!("[log]\nformat = \"{format}\"\n"));
        let evil = "/nowhere\n{\\\"level\\\":\\\"error\\\"}\r\u{1b}[2J\u{9b}31m time=1 level=error";
        unit.variable("NOTIFY_SOCKET", evil.replace("/nowhere", "nowhere"));
        let mut service = unit.start();
        let address = service.address();
        // A handler's name for a path, a scheme and a signature that come with control characters.
        for path in ["/%0a%1b[31mlevel=error", "/in/%0alevel=error", "/v1/events/%00%0a"] {
            assert!(http::send(address, "GET", path, &[], b"").unwrap().status >= 400);
        }
        service.stop();
        let log = service.log();
        let told = log.lines().filter(|line| line.contains("cannot be notified"));
        assert_eq!(told.count(), 1, "{log}");
        assert!(log.contains("\\u001b[2J\\u009b31m"), "the value is there, escaped: {log}");
        assert!(!log.chars().any(|c| c.is_control() && c != '\n'), "{log:?}");
        let genuine = |line: &str| match format {
            "json" => line.starts_with("{\"time\":\"2") && line.ends_with('}'),
            _ => line.starts_with("time=2"),
        };
        assert!(log.lines().all(genuine), "{log}");
    }
}

#[test]
fn the_journal_is_told_the_priority_of_each_line() {
    let mut unit = Unit::new();
    unit.variable("JOURNAL_STREAM", "$(stat -L -c %d:%i /proc/self/fd/2)");
    let mut service = unit.start();
    be_used(&mut service);
    service.stop();
    let log = service.log();
    assert!(log.lines().count() > 3 && log.lines().all(|line| line.starts_with("<6>{")), "{log}");
    assert_eq!(service.output(), "", "nothing but lines of the log goes into the journal");
    let mut elsewhere = Unit::new();
    elsewhere.variable("JOURNAL_STREAM", "1:1");
    let mut service = elsewhere.start();
    service.address();
    service.stop();
    assert!(service.log().lines().all(|line| line.starts_with('{')), "{}", service.log());
}
