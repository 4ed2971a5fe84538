//! What a kill leaves of the history: a gap in the minute, every hold that had ended, and the latest attempts.

use crate::fault::process::prelude::*;

#[test]
fn a_killed_minute_is_a_gap_and_an_ended_hold_is_not_lost() {
    let receiver = Receiver::new();
    let (home, process) = Process::subscribed(&receiver);
    let post = |path: &str| process.call("POST", path, &Value::Null).is(200);
    let name =
        text(&process.call("GET", "/v1/subscriptions", &Value::Null).json()["items"][0], "name");
    post(&format!("/v1/subscriptions/{name}/pause"));
    post(&format!("/v1/subscriptions/{name}/resume"));
    let process = process.killed(home.path());
    let killed = Clock::machine().wall();
    let path = format!("/v1/subscriptions/{name}/past-holds");
    let ended = process.call("GET", &path, &Value::Null).json();
    assert_eq!(ended["items"][0]["reason"], "paused", "{ended}");
    let recent = process.call("GET", "/v1/stats/recent", &Value::Null).json();
    let at = |minute: &Value| Timestamp::parse(&text(minute, "at")).unwrap();
    let gone = |minute: &&Value| at(minute) <= killed && minute["whole"] == json!(false);
    // The process ran in none of the 58 minutes before, and was killed in one of the last two.
    let minutes = recent["minutes"].as_array().unwrap();
    assert!(minutes.iter().filter(gone).count() >= 59, "{recent}");
    process.stop();
}

#[test]
fn a_kill_loses_none_of_the_latest_attempts() {
    let receiver = Receiver::new();
    receiver.decide(|request| Reply::status(if request.body == b"1" { 503 } else { 200 }));
    let (home, mut process) = Process::subscribed(&receiver);
    let shown = |process: &Process| {
        process.call("GET", "/v1/stats/recent", &Value::Null).json()["subscriptions"].clone()
    };
    let publish = |process: &Process, payload: u32| {
        process.post("/v1/events", &json!({ "event_type": "a", "payload": payload }));
    };
    publish(&process, 1);
    until("it has failed", || shown(&process)[0]["attempts"][0]["http_status"] == 503);
    process.call("POST", "/v1/subscriptions/erp/pause", &Value::Null).is(200);
    until("nothing is under way", || {
        process.call("GET", "/v1/deliveries?in_flight=true", &Value::Null).json()["items"]
            == json!([])
    });
    let before = shown(&process);
    process = process.killed(home.path());
    assert_eq!(shown(&process), before);
    process.stop();
}
