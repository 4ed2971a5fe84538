//! What a kill leaves of the history: a gap in the minute, and every hold that had ended.

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
