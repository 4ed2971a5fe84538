//! A failure planned at every pass of every step, one run each, until a run has none left.

use crate::rig::prelude::*;
use crate::rig::process::passes;

const TOKEN: &str = "a-shared-secret-of-32-characters";
/// More passes of one step than the workload can have.
const MAX_PASSES: u32 = 300;

/// Sends it again until it is taken, as a provider or publisher does after 5xx.
#[track_caller]
fn insist(what: &str, mut send: impl FnMut() -> Answer) -> Answer {
    let mut last = None;
    until(what, || {
        let answer = send();
        let taken = matches!(answer.status, 200 | 201);
        assert!(taken || matches!(answer.status, 409 | 500 | 503 | 507), "{what}: {answer:?}");
        // A set-up call whose first try was stored is answered 409 the second time.
        let done = taken || answer.status == 409;
        last = Some(answer);
        done
    });
    last.unwrap()
}

/// The workload: three events and a webhook, one subscriber that takes them and one that refuses each
/// once. Returns whether the planned failure came.
fn run(step: Step, nth: u32) -> bool {
    let faults = Faults::at(step, nth);
    let Some(rig) = start(&faults) else { return true };
    let (good, failing) = (Receiver::new(), Receiver::new());
    let mut refused = BTreeSet::new();
    failing.decide(move |request| {
        let first = refused.insert(request.field("webhook-id").unwrap().to_owned());
        Reply::status(if first { 500 } else { 200 })
    });
    for (name, receiver) in [("good", &good), ("failing", &failing)] {
        let body = json!({ "name": name, "url": receiver.url(), "source": "all" });
        insist("subscribe", || rig.post("/v1/subscriptions", &body));
    }
    let scheme = json!({ "kind": "generic", "check": { "token": { "header": "X-Token" } } });
    let body = json!({ "name": "plain", "scheme": scheme, "pii": "allow", "secret": TOKEN });
    insist("make a provider", || rig.post("/v1/providers", &body));
    let mut ids = BTreeMap::new();
    for n in 0..3 {
        let event = json!({ "event_type": "a", "idempotency_key": format!("k-{n}"), "payload": n });
        let line = insist("publish", || rig.post("/v1/events", &event)).json()["events"][0].clone();
        ids.insert(text(&line, "webhook_id"), n.to_string());
    }
    insist("post a webhook", || rig.send("POST", "/in/plain", &[("X-Token", TOKEN)], b"hook"));
    rig.passing("everything is delivered", secs(1), || {
        rig.one("SELECT count(*) FROM deliveries WHERE state = 'completed'") == "8"
    });
    for receiver in [&good, &failing] {
        let mut bodies: BTreeMap<String, String> = BTreeMap::new();
        for request in receiver.seen() {
            let id = request.field("webhook-id").unwrap().to_owned();
            let body = String::from_utf8(request.body).unwrap();
            let before = bodies.insert(id, body.clone());
            assert!(before.is_none_or(|before| before == body));
        }
        assert_eq!(bodies.len(), 4, "{bodies:?}");
        assert!(ids.iter().all(|(id, body)| bodies.get(id) == Some(body)), "{ids:?} {bodies:?}");
    }
    rig.says(
        "SELECT group_concat(DISTINCT status) FROM
                    (SELECT status FROM outbox UNION ALL SELECT status FROM webhook_events)",
        "completed",
    );
    faults.happened()
}

/// A rig with the failure planned; `None` when it hit the start itself, which then must fail whole.
fn start(faults: &Faults) -> Option<Rig> {
    match Rig::try_with_faults(faults.clone()) {
        Ok(rig) => Some(rig),
        Err(_) if faults.happened() => None,
        Err(error) => panic!("{error}"),
    }
}

#[track_caller]
fn every_pass_of(step: Step) {
    let last = (1..=MAX_PASSES).step_by(passes()).find(|nth| {
        println!("{step:?}, pass {nth}");
        !run(step, *nth)
    });
    println!("{step:?}: {last:?} is the first pass that never came");
    assert!(last.is_some_and(|last| last > 1), "{step:?} was never passed, or the runs do not end");
}

#[test]
fn a_write_that_fails_loses_nothing() {
    every_pass_of(Step::Write);
}

#[test]
fn a_commit_that_fails_loses_nothing() {
    every_pass_of(Step::Commit);
}

#[test]
fn a_look_for_what_is_due_that_fails_loses_nothing() {
    every_pass_of(Step::ReadDue);
}

#[test]
fn a_delivery_that_cannot_be_read_is_not_lost() {
    every_pass_of(Step::ReadOutgoing);
}

#[test]
fn a_line_that_is_down_before_the_request_loses_nothing() {
    every_pass_of(Step::BeforeSend);
}

#[test]
fn an_answer_that_is_lost_loses_nothing() {
    every_pass_of(Step::AfterSend);
}

#[test]
fn a_deliverer_that_panics_loses_nothing() {
    every_pass_of(Step::Panic);
}

#[test]
fn an_intake_that_cannot_read_its_provider_loses_nothing() {
    every_pass_of(Step::ReadIntake);
}

#[test]
fn every_step_has_its_test() {
    let source = include_str!("planned.rs");
    for step in Step::ALL {
        assert!(source.contains(&format!("every_pass_of(Step::{step:?});")), "{step:?}");
    }
}

#[test]
fn what_cannot_be_stored_is_answered_507_and_taken_later() {
    for step in [Step::Write, Step::Commit] {
        // The first start needs no pass of the writer's loop; the first publish is the first pass.
        let rig = Rig::with_faults(|_| {}, Faults::at(step, 1));
        let event = json!({ "event_type": "a", "idempotency_key": "k", "payload": 1 });
        let full = rig.post("/v1/events", &event);
        if full.status != 507 {
            // The token's last use was noted first, and met the failure.
            assert_eq!(full.status, 201);
            continue;
        }
        assert_eq!(full.field("retry-after"), Some("60"));
        assert_eq!(rig.lines("SELECT seq FROM outbox"), [""; 0]);
        rig.post("/v1/events", &event).is(201);
    }
}
