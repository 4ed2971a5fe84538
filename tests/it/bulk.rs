//! Acting on many: jobs that replay or discard dead letters and events, in order, once, and at a rate.

use crate::it::console_rig::encoded;
use crate::rig::prelude::*;

/// A rig with so many dead letters of one subscription. They died because their events lack what its URL names, so
/// nothing was sent yet; the URL is mended then.
fn with_dead_letters(count: u32, ordering: &str) -> (Rig, Receiver) {
    let (rig, receiver) = unsendable(ordering);
    let events: Vec<Value> = (0..count).map(|n| event(n, &json!({}))).collect();
    for some in events.chunks(1_000) {
        rig.post("/v1/events", &json!(some)).is(201);
    }
    until("all are dead", || dead(&rig) == count);
    mend(&rig, &receiver);
    (rig, receiver)
}

/// A rig with a subscription whose URL names what no event has.
fn unsendable(ordering: &str) -> (Rig, Receiver) {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    let url = format!("{}/{{aggregate_id}}", receiver.url());
    rig.subscribe_with(
        "erp",
        &receiver,
        &json!({ "ordering": ordering, "url": url, "order": { "head_of_line": "skip" } }),
    );
    (rig, receiver)
}

fn mend(rig: &Rig, receiver: &Receiver) {
    rig.patch("/v1/subscriptions/erp", &json!({ "url": receiver.url() })).is(200);
}

fn event(n: u32, more: &Value) -> Value {
    merged(json!({ "event_type": "a", "payload": n, "ordering_key": format!("k{}", n % 3) }), more)
}

fn dead(rig: &Rig) -> u32 {
    let sql = "SELECT count(*) FROM deliveries WHERE state = 'dead_letter'";
    rig.one(sql).parse().unwrap()
}

/// Makes a job and waits for its end.
#[track_caller]
fn done(rig: &Rig, made: Answer) -> Value {
    let id = made.is(201).json()["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/jobs/{id}");
    until("the job is over", || rig.get(&path)["state"] != "running");
    rig.get(&path)
}

fn replay(rig: &Rig, filter: &Value) -> Value {
    done(rig, rig.post("/v1/dead-letters/replay", &json!({ "filter": filter })))
}

fn bodies(receiver: &Receiver, from: usize) -> Vec<u32> {
    let body = |request: &Message| String::from_utf8_lossy(&request.body).parse().unwrap();
    receiver.seen().iter().skip(from).map(body).collect()
}

#[test]
fn a_strict_lane_of_dead_letters_arrives_in_its_order_by_one_call() {
    let (rig, receiver) = with_dead_letters(230, "strict");
    let job = replay(&rig, &json!({ "subscription": "erp" }));
    assert_eq!(job["state"], "completed");
    let numbers = ["matched", "done", "skipped", "deliveries"].map(|field| job[field].clone());
    assert_eq!(numbers, [230, 230, 0, 230].map(Value::from));
    rig.settle();
    assert_eq!(bodies(&receiver, 0), (0..230).collect::<Vec<_>>());
    let listed = rig.items("/v1/events?limit=500");
    let ids: Vec<&str> =
        listed.iter().rev().map(|event| event["webhook_id"].as_str().unwrap()).collect();
    let seen = receiver.seen();
    let sent: Vec<&str> = seen.iter().map(|seen| seen.field("webhook-id").unwrap()).collect();
    assert_eq!(sent, ids);
    let audited = rig.get("/v1/audit-events?action=job.replay_dead_letters");
    assert_eq!(audited["items"].as_array().unwrap().len(), 1);
    assert_eq!(audited["items"][0]["changes"]["matched"]["after"], 230);
    assert_eq!(rig.one("SELECT count(*) FROM audit_events WHERE action LIKE 'delivery.%'"), "0");
}

#[test]
fn lanes_by_key_are_replayed_each_in_its_order() {
    let (rig, receiver) = with_dead_letters(200, "key");
    replay(&rig, &json!({}));
    rig.settle();
    let sent = bodies(&receiver, 0);
    for key in 0..3 {
        let of_key: Vec<u32> = sent.iter().filter(|n| *n % 3 == key).copied().collect();
        assert!(of_key.is_sorted(), "{of_key:?}");
    }
    assert_eq!(sent.iter().collect::<BTreeSet<_>>().len(), 200);
    assert_eq!(sent.len(), 200);
}

#[test]
fn an_event_that_came_late_goes_to_its_place_in_its_lane() {
    let (rig, receiver) = unsendable("strict");
    // The last one that came happened first.
    for n in (0..150).rev() {
        let at = format!("2026-01-31T11:{:02}:{:02}Z", n / 60, n % 60);
        rig.publish(&event(n, &json!({ "occurred_at": at })));
        rig.settle();
    }
    assert_eq!(dead(&rig), 150);
    mend(&rig, &receiver);
    replay(&rig, &json!({}));
    rig.settle();
    assert_eq!(bodies(&receiver, 0), (0..150).collect::<Vec<_>>());
}

#[test]
fn a_dry_run_counts_and_changes_nothing() {
    let (rig, receiver) = with_dead_letters(12, "none");
    let rows = || rig.one("SELECT count(*) FROM audit_events");
    let before = (rig.dump(), rows());
    let body = json!({ "filter": {}, "dry_run": true });
    let found = rig.post("/v1/dead-letters/replay", &body).is(200).json();
    assert_eq!((&found["count"], &found["more"]), (&json!(12), &json!(false)));
    assert_eq!(found["sample"].as_array().unwrap().len(), 10);
    assert_eq!(found["sample"][0]["id"], "dlv_1");
    let body = json!({ "filter": {}, "reason": "x", "dry_run": true });
    assert_eq!(rig.post("/v1/dead-letters/discard", &body).is(200).json()["count"], 12);
    let body = json!({ "filter": {}, "dry_run": true });
    assert_eq!(rig.post("/v1/events/replay", &body).is(200).json()["count"], 12);
    let body = json!({ "since": "2026-01-31T00:00:00Z", "dry_run": true });
    assert_eq!(rig.post("/v1/subscriptions/erp/recover", &body).is(200).json()["count"], 12);
    assert_eq!((rig.dump(), rows()), before);
    assert_eq!(rig.get("/v1/jobs")["items"], json!([]));
    assert_eq!(receiver.count(), 0);
}

/// A webhook event that no subscription wanted; returns its id.
pub(crate) fn skipped_webhook(rig: &Rig) -> String {
    let secret = "a-shared-secret-of-32-characters";
    rig.token_provider("p", secret);
    let answer = rig.send("POST", "/in/p", &[("X-Token", secret)], b"{\"n\":1}").is(200);
    answer.json()["id"].as_str().unwrap().to_owned()
}

#[test]
fn a_job_keeps_its_rate_and_can_be_stopped() {
    let (rig, receiver) = with_dead_letters(60, "none");
    let body = json!({ "filter": {}, "rate": 10 });
    let job = rig.post("/v1/dead-letters/replay", &body).is(201).json();
    let path = format!("/v1/jobs/{}", job["id"].as_str().unwrap());
    let reopened = || 60 - dead(&rig);
    until("the first is sent", || reopened() >= 1);
    assert_eq!(reopened(), 1);
    rig.advance(secs(1));
    until("ten more are sent", || reopened() >= 11);
    thread::sleep(Duration::from_millis(200));
    assert!(reopened() <= 12, "{}", reopened());
    let stopped = rig.call("POST", &format!("{path}/cancel"), b"").is(200).json();
    assert_eq!(stopped["state"], "cancelled");
    let left = dead(&rig);
    assert_eq!(stopped["done"], 60 - left);
    rig.pass(secs(10));
    thread::sleep(Duration::from_millis(1200));
    assert_eq!((dead(&rig), receiver.count()), (left, 60 - usize::try_from(left).unwrap()));
    rig.call("POST", &format!("{path}/cancel"), b"").is(409);
    rig.call("POST", "/v1/jobs/019c1447-5800-7000-8000-000000000001/cancel", b"").is(404);
    assert_eq!(rig.items("/v1/jobs?state=cancelled").len(), 1);
    assert_eq!(rig.get("/v1/jobs?state=running")["items"], json!([]));
}

#[test]
fn a_job_that_is_paused_waits_for_its_resume_and_its_counts_add_up() {
    let (mut rig, receiver) = with_dead_letters(6, "strict");
    let body = json!({ "filter": {}, "rate": 1 });
    let made = rig.post("/v1/dead-letters/replay", &body).is(201).json();
    let path = format!("/v1/jobs/{}", made["id"].as_str().unwrap());
    let act = |rig: &Rig, verb: &str| rig.call("POST", &format!("{path}/{verb}"), b"");
    until("one is sent", || rig.get(&path)["done"] == 1);
    act(&rig, "resume").is(409).tells("running already");
    assert_eq!(act(&rig, "pause").is(200).json()["state"], "paused");
    act(&rig, "pause").is(409).tells("paused already");
    assert_eq!(rig.get("/v1/jobs?state=paused")["items"][0]["id"], made["id"]);
    rig.restart();
    rig.pass(secs(60));
    assert_eq!(receiver.count(), 1);
    // A person is quicker with one of them.
    rig.post("/v1/deliveries/dlv_2/cancel", &Value::Null).is(200);
    assert_eq!(act(&rig, "resume").is(200).json()["state"], "running");
    // One overtakes nothing that the job will come to.
    rig.post("/v1/deliveries/dlv_6/retry", &json!({}))
        .is(409)
        .tells("replays earlier dead letters of its lane");
    rig.passing("the job is over", secs(1), || rig.get(&path)["state"] == "completed");
    let job = rig.get(&path);
    let counts =
        ["matched", "done", "skipped", "acted_on_meanwhile"].map(|field| job[field].clone());
    assert_eq!(counts, [6, 5, 0, 1].map(Value::from));
    rig.settle();
    assert_eq!(bodies(&receiver, 0), [0, 2, 3, 4, 5]);
    act(&rig, "pause").is(409);
}

#[test]
fn a_job_that_ran_at_a_backup_does_not_go_on_after_the_restore() {
    let (mut rig, receiver) = with_dead_letters(30, "none");
    rig.post("/v1/dead-letters/replay", &json!({ "filter": {}, "rate": 1 })).is(201);
    until("one is sent", || receiver.count() == 1);
    let _copy = crate::it::restoring::back_up(&rig);
    crate::it::restoring::restore(&mut rig);
    // What was sent after the backup is not known, so nothing is sent unasked.
    assert_eq!(rig.get("/v1/jobs")["items"][0]["state"], "cancelled");
    rig.pass(secs(60));
    assert_eq!(receiver.count(), 1);
}

#[test]
fn events_of_a_strict_lane_are_sent_again_in_their_order() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    rig.subscribe_with("erp", &receiver, &json!({ "ordering": "strict" }));
    let events: Vec<Value> = (0..250).map(|n| event(n, &json!({}))).collect();
    rig.post("/v1/events", &json!(events)).is(201);
    rig.sent(&receiver, 250);
    let job = done(&rig, rig.post("/v1/events/replay", &json!({ "filter": {} })));
    assert_eq!((&job["done"], &job["deliveries"]), (&json!(250), &json!(250)));
    rig.sent(&receiver, 500);
    assert_eq!(bodies(&receiver, 250), (0..250).collect::<Vec<_>>());
    assert_eq!(rig.one("SELECT DISTINCT status FROM outbox"), "completed");
}

#[test]
fn a_lease_of_the_run_before_does_not_end_a_replayed_delivery() {
    let rig = Rig::new();
    rig.post("/v1/subscriptions", &json!({ "name": "erp", "target": "pull" })).is(201);
    let event = rig.publish(&json!({ "event_type": "a", "payload": 1 }));
    let item = rig.get("/v1/consumers/erp/next?max=1")["items"][0].clone();
    let ack = |item: &Value| {
        let word = json!({ "delivery": item["delivery"], "lease": item["lease"] });
        rig.post("/v1/consumers/erp/ack", &json!({ "items": [word] })).is(200).json()["items"][0]
            .clone()
    };
    assert_eq!(ack(&item)["status"], 200);
    rig.call("POST", &format!("/v1/events/{}/replay", event["id"].as_str().unwrap()), b"").is(200);
    ack(&item);
    assert_eq!(rig.get("/v1/deliveries/dlv_1")["state"], "pending");
    let again = rig.get("/v1/consumers/erp/next?max=1")["items"][0].clone();
    assert_eq!(again["webhook_id"], item["webhook_id"]);
    assert_eq!(ack(&again)["status"], 200);
    assert_eq!(rig.get("/v1/deliveries/dlv_1")["state"], "completed");
}

#[test]
fn an_event_goes_again_to_all_that_are_named_or_to_none() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    for name in ["a", "b", "c"] {
        rig.subscribe(name, &receiver);
    }
    let event = rig.publish(&json!({ "event_type": "x", "payload": 1 }));
    until("all have it", || rig.items("/v1/deliveries?state=completed").len() == 3);
    let path = format!("/v1/events/{}/replay", event["id"].as_str().unwrap());
    let runs = || rig.items("/v1/deliveries").iter().filter(|row| row["run_no"] == 2).count();
    for (body, status) in [
        (json!({ "subscriptions": ["a", "nobody"] }), 422),
        (json!({ "subscriptions": [] }), 422),
        (json!({ "subscriptions": ["a"], "subscription": "b" }), 422),
        (json!({ "subscriptions": ["a"], "as_new": true }), 422),
    ] {
        rig.post(&path, &body).is(status);
        assert_eq!(runs(), 0, "{body}");
    }
    rig.post(&path, &json!({ "subscriptions": ["a", "b", "a"] })).is(200);
    assert_eq!(runs(), 2);
    until("two have it again", || receiver.count() == 5);
}

#[test]
fn every_filter_finds_what_it_says() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    let other = Receiver::new();
    for (to, status) in [(&receiver, 422), (&other, 410)] {
        to.always(Reply::status(status));
    }
    rig.subscribe_with("erp", &receiver, &json!({ "event_types": ["a.*"] }));
    rig.subscribe_with("shop", &other, &json!({ "event_types": ["b"] }));
    rig.publish(&json!({ "event_type": "a.1", "payload": 1, "aggregate_type": "invoice",
        "aggregate_id": "4711" }));
    rig.settle();
    rig.advance(secs(60));
    rig.publish(&json!({ "event_type": "a.2", "payload": 2 }));
    rig.publish(&json!({ "event_type": "b", "payload": 3 }));
    rig.settle();
    until("all are dead", || dead(&rig) == 3);
    let count = |path: &str, filter: Value| {
        rig.post(path, &json!({ "filter": filter, "dry_run": true })).is(200).json()["count"]
            .clone()
    };
    for (filter, wanted) in [
        (json!({}), 3),
        (json!({ "subscription": "erp" }), 2),
        (json!({ "class": "gone" }), 1),
        (json!({ "code": 422 }), 2),
        (json!({ "code": 500 }), 0),
        (json!({ "event_type": "a.1" }), 1),
        (json!({ "aggregate_type": "invoice" }), 1),
        (json!({ "aggregate_type": "invoice", "aggregate_id": "4712" }), 0),
        (json!({ "since": "2026-01-31T12:00:30Z" }), 2),
        (json!({ "until": "2026-01-31T12:00:30Z" }), 1),
    ] {
        assert_eq!(count("/v1/dead-letters/replay", filter.clone()), wanted, "{filter}");
        assert_eq!(count("/v1/events/replay", filter.clone()), wanted, "{filter}");
    }
    assert_eq!(count("/v1/dead-letters/replay", json!({ "ids": ["dlv_1", "3", "dlv_99"] })), 2);
    let summary = rig.get("/v1/dead-letters/summary");
    let groups = summary["groups"].as_array().unwrap();
    assert_eq!(groups.len(), 2);
    assert_eq!(groups[0]["subscription"], "erp");
    assert_eq!((&groups[0]["count"], &groups[0]["code"]), (&json!(2), &json!(422)));
    assert_eq!((&groups[1]["class"], &groups[1]["sample"]), (&json!("gone"), &json!("dlv_3")));
    for (path, wrong) in [
        ("/v1/dead-letters/replay", json!({ "class": "bad" })),
        ("/v1/dead-letters/replay", json!({ "ids": ["x"] })),
        ("/v1/dead-letters/replay", json!({ "provider": "x" })),
        ("/v1/dead-letters/replay", json!({ "subscription": "nobody" })),
        ("/v1/events/replay", json!({ "ids": ["dlv_1"] })),
        ("/v1/webhook-events/replay", json!({ "aggregate_id": "1" })),
    ] {
        rig.post(path, &json!({ "filter": wrong })).is(422);
    }
    for rate in [0, 10_001] {
        rig.post("/v1/dead-letters/replay", &json!({ "filter": {}, "rate": rate })).is(422);
    }
    rig.post("/v1/dead-letters/replay", &json!({ "dry_run": true })).is(400);
    rig.post("/v1/dead-letters/discard", &json!({ "filter": {}, "reason": " " })).is(422);
}

#[test]
fn dead_letters_are_sent_again_or_discarded_by_what_the_target_said() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    let terms = json!({ "ordering": "strict", "order": { "head_of_line": "skip" } });
    rig.subscribe_with("erp", &receiver, &terms);
    let json_type = [("content-type", "application/json".to_owned())];
    receiver.decide(move |request| {
        let n: u32 = String::from_utf8_lossy(&request.body).parse().unwrap();
        // Five refusals in a row would hold the rest.
        let detail = match n % 4 {
            3 => return Reply::status(200),
            1 => "the period is closed".to_owned(),
            _ => format!("unknown article A-99 (0199aa11-bb22-7cc3-8dd4-{n:012})"),
        };
        let body = json!({ "title": "Unprocessable", "detail": detail }).to_string();
        Reply::Answer(422, json_type.to_vec(), body.into_bytes())
    });
    for n in 0..12 {
        rig.publish(&event(n, &json!({})));
    }
    until("nine are dead", || dead(&rig) == 9);
    rig.settle();
    let (article, period) = ("unknown article A-99 (…)", "the period is closed");
    let groups = rig.get("/v1/dead-letters/summary")["groups"].clone();
    assert_eq!(groups.as_array().unwrap().len(), 2, "{groups}");
    has(&groups[0], &json!({ "answer": article, "count": 6, "code": 422, "editable": "dlv_11" }));
    has(&groups[1], &json!({ "answer": period, "count": 3, "subscription": "erp" }));
    let listed = |answer: &str| {
        let path = format!("/v1/dead-letters?answer={}", encoded(answer));
        rig.items(&path).iter().map(|row| row["id"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(listed(article).len(), 6);
    assert_eq!(listed(period), ["dlv_10", "dlv_6", "dlv_2"]);
    assert_eq!(listed("unknown article"), [""; 0]);
    let of_article = json!({ "subscription": "erp", "code": 422, "answer": article });
    let body = json!({ "filter": of_article, "dry_run": true });
    let counted = rig.post("/v1/dead-letters/replay", &body).is(200).json();
    has(&counted, &json!({ "count": 6, "more": false }));
    let before = receiver.count();
    receiver.always(Reply::status(200));
    let job = replay(&rig, &of_article);
    has(&job, &json!({ "state": "completed", "matched": 6, "done": 6, "skipped": 0 }));
    rig.settle();
    assert_eq!(bodies(&receiver, before), [0, 2, 4, 6, 8, 10], "in the order of the lane");
    assert_eq!(listed(article), [""; 0]);
    let of_period = json!({ "answer": period });
    let body = json!({ "filter": of_period, "reason": "booked by hand" });
    let job = done(&rig, rig.post("/v1/dead-letters/discard", &body));
    has(&job, &json!({ "matched": 3, "done": 3 }));
    assert_eq!((dead(&rig), receiver.count()), (0, before + 6));
    for path in ["/v1/events/replay", "/v1/webhook-events/replay"] {
        rig.post(path, &json!({ "filter": of_period })).is(422).tells("answer is not a filter");
    }
}

#[test]
fn dead_letters_in_lanes_are_sent_again_by_what_the_target_said_at_a_rate() {
    let (rig, receiver) = with_dead_letters(30, "key");
    let other = rig.publish(&event(30, &json!({ "aggregate_id": "x" })));
    rig.settle();
    assert_eq!(receiver.count(), 1, "{other}");
    receiver.always(Reply::status(422));
    rig.publish(&event(31, &json!({ "aggregate_id": "x" })));
    until("one is refused", || dead(&rig) == 31);
    receiver.always(Reply::status(200));
    let sent = receiver.count();
    let job = replay(&rig, &json!({ "answer": "the target answered 422" }));
    has(&job, &json!({ "matched": 1, "done": 1 }));
    rig.settle();
    assert_eq!(bodies(&receiver, sent), [31]);
    let groups = rig.get("/v1/dead-letters/summary")["groups"].clone();
    let filter = json!({ "answer": groups[0]["answer"] });
    let made = rig.post("/v1/dead-letters/replay", &json!({ "filter": filter, "rate": 10_000 }));
    has(&done(&rig, made), &json!({ "matched": 30, "done": 30 }));
    rig.settle();
    let sent = bodies(&receiver, sent + 1);
    for key in 0..3 {
        let of_key: Vec<u32> = sent.iter().filter(|n| *n % 3 == key).copied().collect();
        assert!(of_key.len() == 10 && of_key.is_sorted(), "{of_key:?}");
    }
}

const MANY_EVENTS: &str = "
    WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?1)
    INSERT INTO outbox (seq, id, tenant, idempotency_key, event_type, payload, received_at, routed_at, own, status,
                        completed_at)
    SELECT 1000 + i, printf('01980000-0000-7000-8000-%012x', i), 'default', printf('k-%09d', i), 'a', 1000 + i, ?2, ?2, 1,
           'dead_letter', ?2
      FROM n";

// All but the last one had the same answer, in the lane of the first delivery.
const MANY_DEAD: &str = "
    INSERT INTO deliveries (outbox_seq, subscription_seq, tenant, lane, order_at, head, state, finished_at, reason,
                            created_at, died_no)
    SELECT e.seq, d.subscription_seq, d.tenant, d.lane, e.received_at + e.seq, 0, 'dead_letter', e.received_at,
           iif(e.seq = 999 + ?1, 'unknown article A-99', 'the period is closed'), e.received_at, 1
      FROM outbox AS e, deliveries AS d
     WHERE e.seq >= 1000 AND d.seq = 1";

#[test]
fn one_answer_behind_many_others_of_a_lane_is_found_in_slices() {
    let (mut rig, receiver) = with_dead_letters(1, "strict");
    rig.stop();
    let conn = rig.writable();
    conn.run("PRAGMA synchronous = OFF");
    conn.execute(MANY_EVENTS, (20_500, START.ms())).unwrap();
    conn.execute(MANY_DEAD, [20_500]).unwrap();
    drop(conn);
    rig.start_again();
    let job = replay(&rig, &json!({ "answer": "unknown article A-99" }));
    has(&job, &json!({ "state": "completed", "done": 1, "deliveries": 1 }));
    rig.settle();
    assert_eq!(bodies(&receiver, 0), [21_499]);
    assert_eq!(dead(&rig), 20_500);
}

#[test]
fn what_dies_again_during_a_job_is_left_alone() {
    let (rig, receiver) = unsendable("key");
    let events: Vec<Value> = (0..30).map(|n| event(n, &json!({}))).collect();
    rig.post("/v1/events", &json!(events)).is(201);
    until("all are dead", || dead(&rig) == 30);
    rig.advance(secs(1));
    let job =
        replay(&rig, &json!({ "ids": (1..=20).map(|n| format!("dlv_{n}")).collect::<Vec<_>>() }));
    assert_eq!((&job["matched"], &job["done"]), (&json!(20), &json!(20)));
    until("they are dead again", || dead(&rig) == 30);
    assert_eq!(receiver.count(), 0);
    assert_eq!(rig.one("SELECT count(*) FROM deliveries WHERE run_no = 2"), "20");
}

#[test]
fn discarded_dead_letters_keep_the_reason_and_are_not_sent() {
    let (rig, receiver) = with_dead_letters(5, "strict");
    let body = json!({ "filter": { "subscription": "erp" }, "reason": "sent by hand" });
    let job = done(&rig, rig.post("/v1/dead-letters/discard", &body));
    assert_eq!((&job["done"], &job["reason"]), (&json!(5), &json!("sent by hand")));
    let reason = rig.get("/v1/deliveries/dlv_1")["reason"].clone();
    assert_eq!(reason, "discarded by first admin token: sent by hand");
    assert_eq!(rig.one("SELECT DISTINCT state FROM deliveries"), "cancelled");
    assert_eq!(rig.one("SELECT DISTINCT status FROM outbox"), "cancelled");
    assert_eq!(receiver.count(), 0);
    rig.call("DELETE", "/v1/subscriptions/erp", b"").is(204);
}

#[test]
fn a_job_says_what_became_of_its_deliveries() {
    let (rig, receiver) = with_dead_letters(1_003, "none");
    receiver.decide(|request| {
        Reply::status(match request.body.as_slice() {
            b"1" => 422,
            b"2" => 500,
            _ => 200,
        })
    });
    let job = replay(&rig, &json!({ "ids": ["dlv_1", "dlv_2", "dlv_3"] }));
    let path = format!("/v1/jobs/{}", job["id"].as_str().unwrap());
    let all =
        json!({ "sent": 1, "failed_again": 1, "retrying": 1, "waiting": 0, "ended": 0, "gone": 0 });
    until("three are tried", || rig.get(&path)["became"] == all);
    rig.post("/v1/deliveries/dlv_3/cancel", &json!({})).is(200);
    let found = rig.get(&path);
    assert_eq!((&found["became"]["retrying"], &found["became"]["ended"]), (&json!(0), &json!(1)));
    // Of a larger job, the first thousand are known.
    let discard = json!({ "filter": {}, "reason": "of no use" });
    let job = done(&rig, rig.post("/v1/dead-letters/discard", &discard));
    assert_eq!((&job["deliveries"], &job["became"]["ended"]), (&json!(1_001), &json!(1_000)));
    assert_eq!(rig.get("/v1/jobs")["items"][0]["became"], Value::Null);
    // All of them were moved to the archive since.
    rig.write("UPDATE jobs SET reached = '[900001, 900002]'");
    assert_eq!(rig.get(&path)["became"]["gone"], 2);
    // Made anew for a subscription that came later.
    let (_, later) = (rig.publish_type("a"), Receiver::new());
    rig.subscribe("later", &later);
    let filter = json!({ "filter": { "subscription": "later", "event_type": "a" } });
    let job = done(&rig, rig.post("/v1/events/replay", &filter));
    let path = format!("/v1/jobs/{}", job["id"].as_str().unwrap());
    until("they arrived", || rig.get(&path)["became"]["sent"] == 1_000);
}

#[test]
fn a_skipped_event_is_sent_to_a_subscription_that_came_later() {
    let rig = Rig::new();
    let event = rig.publish(&json!({ "event_type": "a", "payload": 1 }));
    let other = rig.publish(&json!({ "event_type": "b", "payload": 2 }));
    let webhook = skipped_webhook(&rig);
    assert_eq!(event["status"], "skipped");
    let path = format!("/v1/events/{}/replay", event["id"].as_str().unwrap());
    rig.call("POST", &path, b"").is(409).tells("no subscription matches it");
    let receiver = Receiver::new();
    rig.subscribe_with("erp", &receiver, &json!({ "source": "all", "ordering": "strict" }));
    let now = rig.call("POST", &path, b"").is(200).json();
    assert_eq!((&now["status"], &now["open_deliveries"]), (&json!("pending"), &json!(1)));
    rig.settle();
    let path = format!("/v1/webhook-events/{webhook}/replay");
    rig.post(&path, &json!({ "subscription": "erp" })).is(200);
    rig.has_sent(&receiver, 2);
    assert_eq!(receiver.seen()[0].field("webhook-id"), event["webhook_id"].as_str());
    assert_eq!(rig.get(&path.replace("/replay", ""))["status"], "completed");
    // The same by a job, which sends the ones that were taken again.
    let job = done(&rig, rig.post("/v1/events/replay", &json!({ "filter": {} })));
    assert_eq!((&job["matched"], &job["deliveries"]), (&json!(2), &json!(2)));
    // While they wait, the webhook would go before the second one, as it did at first.
    rig.has_sent(&receiver, 4);
    let job = done(&rig, rig.post("/v1/webhook-events/replay", &json!({ "filter": {} })));
    assert_eq!((&job["matched"], &job["deliveries"]), (&json!(1), &json!(1)));
    rig.has_sent(&receiver, 5);
    assert_eq!(receiver.seen()[3].field("webhook-id"), other["webhook_id"].as_str());
    assert_eq!(rig.one("SELECT count(*) FROM deliveries"), "3");
    rig.post("/v1/events/replay", &json!({ "filter": { "subscription": "nobody" } })).is(422);
}

#[test]
fn a_recovered_subscription_gets_its_dead_letters_and_what_it_missed_in_order() {
    let rig = Rig::new();
    let first = Receiver::new();
    rig.subscribe("first", &first);
    for n in 0..3 {
        rig.publish(&event(n, &json!({})));
    }
    rig.settle();
    let receiver = Receiver::with(Reply::status(410));
    rig.subscribe_with("erp", &receiver, &json!({ "ordering": "strict" }));
    for n in 3..6 {
        rig.advance(secs(1));
        rig.publish(&event(n, &json!({})));
        until("it is tried", || first.count() > usize::try_from(n).unwrap());
    }
    until("it is disabled", || rig.get("/v1/subscriptions/erp")["state"] == "DISABLED_DEAD");
    receiver.always(Reply::status(200));
    let sent = receiver.count();
    let body = json!({ "since": "2026-01-31T00:00:00Z" });
    let job = done(&rig, rig.post("/v1/subscriptions/erp/recover", &body));
    assert_eq!((&job["kind"], &job["done"]), (&json!("subscription.recover"), &json!(4)));
    assert_eq!(rig.get("/v1/subscriptions/erp")["state"], "ACTIVE");
    rig.settle();
    let mut got = bodies(&receiver, sent);
    got.dedup();
    assert_eq!(got, [0, 1, 2, 3, 4, 5], "what waited goes behind what it missed");
    assert_eq!(first.count(), 6, "nobody else is sent anything");
    let changes =
        rig.get("/v1/audit-events?action=subscription.recover")["items"][0]["changes"].clone();
    assert_eq!(changes["state"], json!({ "before": "DISABLED_DEAD", "after": "ACTIVE" }));
    assert_eq!(changes["job"]["after"]["matched"], 4);
}

#[test]
fn an_event_is_sent_again_as_a_new_one_with_another_payload() {
    let (rig, receiver) = Rig::subscribed("erp");
    let old = rig.publish(&json!({ "event_type": "a", "payload": 1, "aggregate_id": "4711" }));
    rig.settle();
    let path = format!("/v1/events/{}/replay", old["id"].as_str().unwrap());
    assert_eq!(rig.post(&path, &json!({})).is(200).json()["replay_of"], Value::Null);
    rig.settle();
    let copy = rig.post(&path, &json!({ "as_new": true })).is(201).json();
    rig.settle();
    let edited =
        rig.post(&path, &json!({ "payload": { "x": 2 }, "subscription": "erp" })).is(201).json();
    rig.settle();
    for new in [&copy, &edited] {
        assert_eq!(new["replay_of"], old["id"]);
        assert_eq!(new["aggregate_id"], "4711");
        assert_ne!(new["webhook_id"], old["webhook_id"]);
    }
    assert_eq!(edited["target"], "erp");
    let seen = receiver.seen();
    let ids: Vec<&str> = seen.iter().map(|seen| seen.field("webhook-id").unwrap()).collect();
    assert_eq!(ids[0], ids[1]);
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 3);
    assert_eq!(seen[2].body, b"1");
    assert_eq!(seen[3].body, b"{\"x\":2}");
    let webhook = skipped_webhook(&rig);
    let refused =
        rig.post(&format!("/v1/webhook-events/{webhook}/replay"), &json!({ "as_new": true }));
    refused.is(422).tells("publish an event instead");
}

#[test]
fn what_is_sealed_for_an_event_is_not_copied_into_another() {
    let (rig, receiver) = Rig::subscribed("erp");
    let sealing = json!({ "rules": [{ "path": "$.name", "action": "seal" }], "subject": "$.name" });
    rig.patch("/v1/tenants/default", &json!({ "pii": sealing })).is(200);
    let old = rig.publish(&json!({ "event_type": "a", "payload": { "name": "Jane" } }));
    let path = format!("/v1/events/{}/replay", old["id"].as_str().unwrap());
    rig.settle();
    rig.post(&path, &json!({ "as_new": true })).is(422).tells("give a payload");
    let new = rig.post(&path, &json!({ "payload": { "name": "Jane Doe" } })).is(201).json();
    assert_eq!(new["sealed_fields"], 1);
    rig.settle();
    assert_eq!(receiver.seen()[1].body, b"{\"name\":\"Jane Doe\"}");
}

#[test]
fn a_cancelled_event_ends_all_its_open_deliveries() {
    let (rig, receiver) = Rig::subscribed_to("erp", Receiver::with(Reply::status(500)));
    rig.subscribe("shop", &receiver);
    let event = rig.publish(&json!({ "event_type": "a", "payload": 1 }));
    rig.settle();
    let path = format!("/v1/events/{}/cancel", event["id"].as_str().unwrap());
    assert_eq!(rig.call("POST", &path, b"").is(200).json()["status"], "cancelled");
    rig.call("POST", &path, b"").is(409);
    rig.pass(secs(3600));
    assert_eq!(receiver.count(), 2);
    let quarantined = rig.publish(&json!({ "event_type": "a", "payload": 1, "target": "nobody" }));
    let path = format!("/v1/events/{}/replay", quarantined["id"].as_str().unwrap());
    rig.call("POST", &path, b"").is(409);
}

#[test]
fn a_job_touches_nothing_of_another_tenant() {
    let (rig, receiver) = with_dead_letters(3, "strict");
    let theirs = rig.tenant("acme");
    let call = |method: &str, path: &str, body: &Value| {
        rig.call_as(&theirs, method, path, body.to_string().as_bytes())
    };
    let made = call("POST", "/v1/dead-letters/replay", &json!({ "filter": {} })).is(201).json();
    let path = format!("/v1/jobs/{}", made["id"].as_str().unwrap());
    until("the job is over", || call("GET", &path, &Value::Null).json()["state"] == "completed");
    assert_eq!(call("GET", &path, &Value::Null).json()["matched"], 0);
    rig.call("GET", &path, b"").is(404);
    rig.call("POST", &format!("{path}/cancel"), b"").is(404);
    let ids = json!({ "filter": { "ids": ["dlv_1"] }, "dry_run": true });
    assert_eq!(call("POST", "/v1/dead-letters/replay", &ids).is(200).json()["count"], 0);
    let named = json!({ "filter": { "subscription": "erp" } });
    call("POST", "/v1/dead-letters/replay", &named).is(422);
    assert_eq!((dead(&rig), receiver.count()), (3, 0));
}
