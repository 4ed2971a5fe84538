//! External calls under kill -9: once the target has accepted a state, no older one reaches it.

use crate::fault::process::prelude::*;

const ENTITIES: u64 = 10;
const STATES: u64 = 12;

/// The newest state that the target has accepted, by entity, and what came after a newer one.
#[derive(Debug, Default)]
struct Accepted {
    states: BTreeMap<u64, u64>,
    wrong: Vec<String>,
    refused: u32,
    random: u64,
}

impl Accepted {
    fn take(&mut self, body: &Value) -> Reply {
        let (entity, n) = (body["entity"].as_u64().unwrap(), body["n"].as_u64().unwrap());
        let newest = self.states.entry(entity).or_default();
        if n < *newest {
            self.wrong.push(format!("state {n} of {entity} came after {newest}"));
        }
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // Eight refusals of one delivery would make it poison.
        if (self.random >> 33) % 10 < 4 && self.refused < 4 {
            self.refused += 1;
            return Reply::status(503);
        }
        (*newest, self.refused) = (n.max(*newest), 0);
        // The answer to a third of those that are accepted is lost.
        if (self.random >> 40).is_multiple_of(3) { Reply::CutRead } else { Reply::status(200) }
    }
}

fn event(entity: u64, n: u64, payload: &Value) -> Value {
    let at = format!("2026-01-31T11:00:{n:02}Z");
    json!({
        "event_type": "stock", "aggregate_id": entity.to_string(), "occurred_at": at, "payload": payload,
    })
}

#[test]
fn an_older_state_is_not_sent_after_a_newer_one_whose_answer_a_kill_has_lost() {
    for (answer, state, call) in
        [(200, "completed", "OK 2 2"), (400, "dead_letter", "FAILED_END 2 2")]
    {
        interrupt(answer, state, call);
    }
}

/// The call for the newer state is interrupted, and repeated after the start. `answer` is what the target says then.
fn interrupt(answer: u16, state: &str, call: &str) {
    let home = tempfile::tempdir().unwrap();
    let receiver = Receiver::new();
    let is_first = Arc::new(Mutex::new(true));
    receiver.decide(move |request| match request.body.as_slice() {
        b"\"new\"" if std::mem::take(&mut *is_first.lock().unwrap()) => Reply::Hang,
        b"\"new\"" => Reply::status(answer),
        _ => Reply::status(503),
    });
    let mut process = Process::start(home.path());
    let terms = json!({
        "name": "erp", "url": receiver.url(), "order": { "external_calls": "entity" },
        "policy": { "breaker_after": 0, "timeout": "60s" },
    });
    process.post("/v1/subscriptions", &terms);
    process.post("/v1/events", &event(1, 1, &json!("old")));
    until("the old state has failed", || receiver.count() >= 1);
    process.post("/v1/events", &event(1, 2, &json!("new")));
    let count = |body: &[u8]| receiver.seen().iter().filter(|seen| seen.body == body).count();
    until("the new state is under way", || count(b"\"new\"") == 1);
    let old = count(b"\"old\"");
    process = process.killed(home.path());
    process.finish();
    assert_eq!((count(b"\"old\""), count(b"\"new\"")), (old, 2));
    let conn = file::open(&home.path().join("data/oncebox.db"));
    let states =
        file::lines(&conn, "SELECT state, coalesce(reason, '') FROM deliveries ORDER BY seq");
    assert!(states[0].starts_with("skipped a call for a newer state"), "{states:?}");
    assert!(states[1].starts_with(state), "{states:?}");
    let calls = "SELECT state, delivery_seq, made_seq FROM external_calls";
    assert_eq!(file::lines(&conn, calls), [call]);
    // The history has the call that the kill cut, with where it went.
    let attempts = "SELECT n, class, counted, method, url, coalesce(http_status, 0), coalesce(failed_reason, '')
                      FROM attempts WHERE delivery_seq = 2 ORDER BY n";
    let attempts = file::lines(&conn, attempts);
    let cut = format!("1 transient 0 POST {} 0 the service ended during this call", receiver.url());
    assert!(attempts.len() == 2 && attempts[0].starts_with(&cut), "{attempts:?}");
    assert!(
        attempts[1].starts_with("2 ") && attempts[1].contains(&answer.to_string()),
        "{attempts:?}"
    );
    assert_eq!(file::lines(&conn, "SELECT attempt_count FROM deliveries WHERE seq = 2"), ["2"]);
}

/// Kills the process, lets the receiver read what was on the line (a request that is read after the next start would
/// look like a new one), and starts it again. A clean end follows, because what was alone in hand at two unclean ends in
/// a row is given up.
fn killed(process: Process, home: &Path) -> Process {
    process.kill();
    thread::sleep(ms(400));
    Process::start(home).stop();
    Process::start(home)
}

#[test]
fn no_older_state_follows_an_accepted_one_across_failures_and_kills() {
    let home = tempfile::tempdir().unwrap();
    let receiver = Receiver::new();
    let accepted = Arc::new(Mutex::new(Accepted::default()));
    let shared = Arc::clone(&accepted);
    receiver.decide(move |request| {
        shared.lock().unwrap().take(&serde_json::from_slice(&request.body).unwrap())
    });
    let mut process = Process::start(home.path());
    let terms = json!({
        "name": "erp", "url": receiver.url(), "order": { "external_calls": "entity" },
        "policy": { "breaker_after": 0, "in_flight_max": 64 },
    });
    process.post("/v1/subscriptions", &terms);
    // The states of an entity arrive mixed up.
    for step in 0..STATES {
        let state = |entity: u64| {
            let n = (step * 5 + entity) % STATES + 1;
            event(entity, n, &json!({ "entity": entity, "n": n }))
        };
        let events: Vec<Value> = (0..ENTITIES).map(state).collect();
        process.post("/v1/events", &json!(events));
        if step % 3 == 1 {
            thread::sleep(ms(60));
            process = killed(process, home.path());
        }
    }
    for _ in 0..3 {
        thread::sleep(ms(300));
        process = killed(process, home.path());
    }
    process.finish();
    let accepted = accepted.lock().unwrap();
    assert_eq!(accepted.wrong, [""; 0]);
    let conn = file::open(&home.path().join("data/oncebox.db"));
    let ended = "SELECT state, coalesce(reason, ''), count(*) FROM deliveries GROUP BY 1, 2";
    let ended = file::lines(&conn, ended);
    assert!(accepted.states.values().all(|newest| *newest == STATES), "{accepted:?} {ended:?}");
    let calls = "SELECT state, count(*) FROM external_calls GROUP BY state";
    assert_eq!(file::lines(&conn, calls), [format!("OK {ENTITIES}")], "{ended:?}");
    file::check(&home.path().join("data/oncebox.db"));
}
