//! A process that dies on one payload, again and again: the payload is found and set aside, the rest is delivered.

use std::sync::atomic::AtomicU32;

use crate::fault::process::prelude::*;

const CULPRIT: &str = "\"the process dies on this\"";

fn lines(home: &Path, sql: &str) -> Vec<String> {
    file::lines(&file::open(&home.join("data/oncebox.db")), sql)
}

fn publish(process: &Process, payload: &Value) {
    process.post("/v1/events", &json!({ "event_type": "a", "payload": payload }));
}

#[test]
fn a_payload_that_ends_the_process_is_a_dead_letter_after_three_and_two_ends() {
    let home = tempfile::tempdir().unwrap();
    // Other deliveries are as old as this one: each boot begins with all of them.
    let config = SOON.replace("\"2s\"", "\"10s\"");
    fs::write(home.path().join("oncebox.toml"), config).unwrap();
    let receiver = Receiver::new();
    // Whom to end while the culprit is in hand; 0 as long as nobody is ready.
    let victim = Arc::new(AtomicU32::new(0));
    let ended_by = Arc::clone(&victim);
    receiver.decide(move |request| {
        if request.body != CULPRIT.as_bytes() {
            return Reply::status(200);
        }
        let mut id = 0;
        until("there is somebody to end", || {
            id = ended_by.swap(0, Ordering::SeqCst);
            id > 0
        });
        assert!(Command::new("kill").args(["-KILL", &id.to_string()]).status().unwrap().success());
        Reply::CutRead
    });
    let mut process = Process::start(home.path());
    process.subscribe(&receiver.url());
    process.call("POST", "/v1/subscriptions/erp/pause", &Value::Null).is(200);
    for n in 0..20 {
        if n == 7 {
            publish(&process, &serde_json::from_str(CULPRIT).unwrap());
        }
        publish(&process, &json!(n));
    }
    process.call("POST", "/v1/subscriptions/erp/resume", &Value::Null).is(200);
    for end in 1..=5 {
        victim.store(process.id(), Ordering::SeqCst);
        until(&format!("it ends for the {end}. time"), || process.has_ended());
        process = Process::start(home.path());
    }
    until("everything else is delivered", || process.pending() == Some(0));
    assert!(!process.has_ended());
    let dead = process.call("GET", "/v1/dead-letters", &Value::Null).json();
    assert_eq!(dead["items"].as_array().unwrap().len(), 1, "{dead}");
    assert_eq!(dead["items"][0]["last_class"], "poison");
    assert!(
        dead["items"][0]["reason"].as_str().unwrap().contains("ended twice in a row"),
        "{dead}"
    );
    let open = process.call("GET", "/v1/escalations", &Value::Null).json();
    assert_eq!(open["items"][0]["class"], "delivery.dead_lettered", "{open}");
    process.stop();

    let whole = "SELECT CAST(o.payload AS TEXT) FROM outbox AS o JOIN deliveries AS d ON d.outbox_seq = o.seq
                  WHERE d.state = 'dead_letter'";
    assert_eq!(lines(home.path(), whole), [CULPRIT]);
    assert_eq!(
        lines(home.path(), "SELECT count(*) FROM deliveries WHERE state = 'completed'"),
        ["20"]
    );
    assert_eq!(lines(home.path(), "SELECT count(*) FROM meta WHERE key LIKE 'in_hand/%'"), ["0"]);
    let arrived: BTreeSet<Vec<u8>> = receiver.seen().into_iter().map(|seen| seen.body).collect();
    assert_eq!(arrived.len(), 21);
    // Each of the five starts has sent it once.
    let culprit = receiver.seen().iter().filter(|seen| seen.body == CULPRIT.as_bytes()).count();
    assert_eq!(culprit, 5);
    file::check(&home.path().join("data/oncebox.db"));
}

#[test]
fn somebody_who_kills_the_process_again_and_again_convicts_nothing_that_is_delivered() {
    let home = tempfile::tempdir().unwrap();
    let receiver = Receiver::new();
    // As long as it takes to be hit by a kill.
    receiver.decide(|_| {
        thread::sleep(ms(2));
        Reply::status(200)
    });
    let mut process = Process::start(home.path());
    process.subscribe(&receiver.url());
    for end in 0..8 {
        let enough = receiver.count() + 10;
        let event = |n: u32| json!({ "event_type": "a", "payload": [end, n] });
        let events: Vec<Value> = (0..30).map(event).collect();
        process.post("/v1/events", &json!(events));
        until("some are delivered", || receiver.count() >= enough);
        process = process.killed(home.path());
    }
    process.finish();
    assert_eq!(
        lines(home.path(), "SELECT count(*) FROM deliveries WHERE state <> 'completed'"),
        ["0"]
    );
    assert_eq!(lines(home.path(), "SELECT count(*) FROM meta WHERE key LIKE 'in_hand/%'"), ["0"]);
}
