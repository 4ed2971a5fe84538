//! Consumers that ask for events: leases, what they say of them, and requests that wait.

use crate::it::delivering::expected;
use crate::rig::prelude::*;

/// A rig with a pull subscription to everything of the outbox; and its secret.
fn pulling(more: &Value) -> (Rig, String) {
    let rig = Rig::new();
    let secret = rig.pull("erp", more);
    (rig, secret)
}

#[track_caller]
fn next(rig: &Rig, query: &str) -> Vec<Value> {
    let answer = rig.get(&format!("/v1/consumers/erp/next{query}"));
    answer["items"].as_array().unwrap().clone()
}

/// What a consumer shows of an item.
fn shown(item: &Value) -> Value {
    json!({ "delivery": item["delivery"], "lease": item["lease"] })
}

#[track_caller]
fn say(rig: &Rig, verb: &str, items: &[Value]) -> Vec<Value> {
    let body = json!({ "items": items });
    let answer = rig.post(&format!("/v1/consumers/erp/{verb}"), &body).is(200).json();
    answer["items"].as_array().unwrap().clone()
}

#[track_caller]
fn ack(rig: &Rig, item: &Value) -> Value {
    say(rig, "ack", &[shown(item)]).remove(0)
}

#[track_caller]
fn nack(rig: &Rig, item: &Value, more: &Value) -> Value {
    let word = merged(shown(item), more);
    say(rig, "nack", &[word]).remove(0)
}

/// A rig whose one event is leased, and the event.
fn leased() -> (Rig, Value) {
    let (rig, _) = pulling(&json!({}));
    rig.publish_type("a");
    let item = next(&rig, "").remove(0);
    (rig, item)
}

/// Three events of three people, with something sealed in each.
fn publish_sealed(rig: &Rig) {
    let pii = json!({ "rules": [{ "path": "$.name", "action": "seal" }], "subject": "$.id" });
    rig.patch("/v1/tenants/default", &json!({ "pii": pii })).is(200);
    for id in ["c-1", "c-2", "c-3"] {
        rig.publish(&json!({ "event_type": "a", "payload": { "id": id, "name": "Ada" } }));
    }
}

/// Lets time pass until a lease that is over has come back.
fn expired(rig: &Rig, span: Duration) {
    rig.advance(span);
    rig.becomes("SELECT count(*) FROM deliveries WHERE state = 'leased'", "0");
}

/// The reasons of the holds of the subscription.
fn held(rig: &Rig) -> Value {
    rig.get("/v1/subscriptions/erp")["holds"].clone()
}

#[test]
fn a_consumer_that_cannot_work_is_held_and_probed_until_it_can() {
    let (rig, _) = pulling(&json!({}));
    for _ in 0..3 {
        rig.publish_type("a");
    }
    let away = json!({ "away": true, "reason": "no database" });
    let first = next(&rig, "").remove(0);
    let answer = nack(&rig, &first, &away);
    has(&answer, &json!({ "status": 200, "state": "pending" }));
    let asked = rig.get("/v1/consumers/erp/next?max=10");
    assert_eq!((&asked["items"], &asked["held"]), (&json!([]), &json!("breaker")));
    has(&held(&rig)[0], &json!({ "reason": "breaker", "probe_no": 0, "detail": "no database" }));
    assert_eq!(rig.one("SELECT class FROM escalations"), "subscription.breaker");
    // One event at a time, and another one than before.
    rig.advance(secs(10));
    let probe = next(&rig, "?max=10");
    assert_eq!(probe.len(), 1);
    assert_eq!(probe[0]["delivery"], "dlv_2");
    assert!(next(&rig, "?max=10").is_empty());
    nack(&rig, &probe[0], &json!({ "reason": "still none" }));
    has(&held(&rig)[0], &json!({ "probe_no": 1, "detail": "still none" }));
    assert!(next(&rig, "?max=10").is_empty());
    rig.advance(secs(60));
    let probe = next(&rig, "?max=10");
    assert_eq!(probe.len(), 1);
    ack(&rig, &probe[0]);
    assert_eq!(held(&rig), json!([]));
    assert_eq!(next(&rig, "?max=10").len(), 2);
    // Nothing was counted, and it is over.
    assert_eq!(rig.one("SELECT sum(counted_failures) FROM deliveries"), "0");
    assert_eq!(rig.one("SELECT count(*) FROM escalations WHERE resolved_at IS NULL"), "0");
    rig.post(
        "/v1/consumers/erp/nack",
        &json!({ "items": [merged(shown(&first), &json!({ "away": true, "dead": true }))] }),
    )
    .is(422);
}

#[test]
fn a_request_that_waits_gets_the_probe_when_it_is_due() {
    let (rig, item) = leased();
    nack(&rig, &item, &json!({ "away": true }));
    thread::scope(|scope| {
        let asked = scope.spawn(|| next(&rig, "?wait=30"));
        until("it waits", || waiting(&rig) == 1);
        rig.advance(secs(10));
        assert_eq!(asked.join().unwrap().len(), 1);
    });
}

#[test]
fn failures_of_several_events_in_a_row_hold_the_subscription() {
    let (rig, _) = pulling(&json!({ "policy": { "breaker_after": 3 } }));
    for _ in 0..4 {
        rig.publish_type("a");
    }
    for n in 1..=3 {
        assert_eq!(held(&rig), json!([]), "{n}");
        let item = next(&rig, "").remove(0);
        nack(&rig, &item, &json!({ "reason": "no database" }));
    }
    has(&held(&rig)[0], &json!({ "reason": "breaker" }));
    assert!(next(&rig, "").is_empty());
    assert_eq!(rig.one("SELECT sum(counted_failures) FROM deliveries"), "3");
}

#[test]
fn an_event_is_leased_with_all_that_a_request_with_it_would_have() {
    let (rig, secret) = pulling(&json!({ "headers": { "X-Shop": "north" } }));
    let event = json!({
        "event_type": "order.paid", "idempotency_key": "o-7", "aggregate_type": "order",
        "aggregate_id": "7", "payload": { "id": 7 },
    });
    let line = rig.publish(&event);
    let items = next(&rig, "");
    assert_eq!(items.len(), 1);
    let item = &items[0];
    let id = line["webhook_id"].as_str().unwrap();
    for (field, value) in [
        ("delivery", json!("dlv_1")),
        ("lease_until", json!("2026-01-31T12:01:00.000Z")),
        ("attempt", json!(1)),
        ("event_id", line["id"].clone()),
        ("webhook_id", json!(id)),
        ("event_type", json!("order.paid")),
        ("aggregate_type", json!("order")),
        ("aggregate_id", json!("7")),
        ("content_type", json!("application/json")),
        ("payload", json!({ "id": 7 })),
    ] {
        assert_eq!(item[field], value, "{field}");
    }
    let trace = line["id"].as_str().unwrap().replace('-', "");
    let headers = &item["headers"];
    assert_eq!(headers["webhook-id"], id);
    assert_eq!(headers["webhook-signature"], expected(&secret, id, START.secs(), br#"{"id":7}"#));
    has(headers, &json!({ "x-idempotency-key": "o-7", "X-Shop": "north" }));
    assert_eq!(
        ack(&rig, item),
        json!({
            "delivery": "dlv_1", "status": 200, "state": "completed", "lease_until": null,
        })
    );
    let span = rig.one("SELECT span FROM attempts");
    assert_eq!(headers["traceparent"], format!("00-{trace}-{span}-01"));
    assert_eq!(rig.one("SELECT url FROM attempts"), "pull:erp");
    insta::assert_snapshot!(rig.dump(), @r"
    order.paid completed
      erp completed
        1 +0s success
    ");
}

#[test]
fn a_payload_is_given_as_it_is_and_its_exact_bytes_where_they_are_asked_for() {
    let (rig, _) = pulling(&json!({}));
    let odd = r#"{"b" : 1e2, "a": 1.0 , "a": "ä"}"#;
    let body = format!(r#"{{"event_type":"odd","payload": {odd} }}"#);
    rig.call("POST", "/v1/events", body.as_bytes()).is(201);
    let text = rig.call("GET", "/v1/consumers/erp/next", b"").is(200).text();
    assert!(text.contains(&format!("\"payload\":{odd}")), "{text}");
    rig.publish(&json!({ "event_type": "b", "payload_base64": "/w==", "content_type": "x/y" }));
    let item = &next(&rig, "?max=5")[0];
    assert_eq!((&item["payload_base64"], item.get("payload")), (&json!("/w=="), None));
    rig.publish(&json!({ "event_type": "c", "payload": 1 }));
    assert_eq!(next(&rig, "?payload=base64")[0]["payload_base64"], "MQ==");
}

#[test]
fn what_one_consumer_has_no_other_is_given() {
    let (rig, _) = pulling(&json!({}));
    rig.publish_types(&["a"; 40]);
    let address = rig.address();
    let token = format!("Bearer {}", rig.token);
    let mut had: Vec<String> = thread::scope(|scope| {
        let consumer = || {
            let fields = [("Authorization", token.as_str())];
            let mut had = Vec::new();
            loop {
                let path = "/v1/consumers/erp/next?max=3";
                let answer = http::send(address, "GET", path, &fields, b"").unwrap();
                let items = answer.json()["items"].as_array().unwrap().clone();
                if items.is_empty() {
                    return had;
                }
                had.extend(items.iter().map(|item| text(item, "delivery")));
            }
        };
        let both = [scope.spawn(consumer), scope.spawn(consumer)];
        both.into_iter().flat_map(|consumer| consumer.join().unwrap()).collect()
    });
    had.sort();
    let all = had.len();
    had.dedup();
    assert_eq!((all, had.len()), (40, 40));
}

#[test]
fn a_batch_of_a_hundred_is_leased_and_acknowledged_at_once_with_a_word_for_each() {
    let (rig, _) = pulling(&json!({}));
    let events: Vec<Value> = (0..120).map(|n| json!({ "event_type": "a", "payload": n })).collect();
    rig.post("/v1/events", &json!(events)).is(201);
    rig.call("GET", "/v1/consumers/erp/next?max=101", b"").is(400);
    let items = next(&rig, "?max=100");
    assert_eq!(items.len(), 100);
    let mut words: Vec<Value> = items.iter().map(shown).collect();
    words.push(json!({ "delivery": "dlv_999", "lease": "x" }));
    words.push(json!({ "delivery": "dlv_1", "lease": "somebody-else" }));
    let heard = say(&rig, "ack", &words);
    assert!(heard[..100].iter().all(|one| one["status"] == 200));
    assert_eq!((&heard[100]["status"], &heard[101]["status"]), (&json!(404), &json!(409)));
    assert_eq!(heard[101]["detail"], "dlv_1 was completed under another lease");
    assert_eq!(next(&rig, "?max=100").len(), 20);
}

#[test]
fn large_payloads_make_smaller_batches_but_never_empty_ones() {
    let (rig, _) = pulling(&json!({}));
    let payload = "x".repeat(900_000);
    for _ in 0..12 {
        rig.publish(&json!({ "event_type": "a", "payload": payload }));
    }
    assert_eq!(next(&rig, "?max=100").len(), 9);
    assert_eq!(next(&rig, "?max=100").len(), 3);
}

#[test]
fn an_acknowledgement_that_is_repeated_is_answered_as_before_and_stored_once() {
    let (rig, _) = pulling(&json!({}));
    rig.publish_type("a");
    let item = &next(&rig, "")[0];
    ack(&rig, item);
    let again = ack(&rig, item);
    assert_eq!((&again["status"], &again["already_processed"]), (&json!(200), &json!(true)));
    // Another word of the same lease comes too late.
    let nacked = &say(&rig, "nack", &[shown(item)])[0];
    assert_eq!(nacked["status"], 409);
    assert_eq!(nacked["detail"], "dlv_1 was completed under this lease before");
    assert_eq!(rig.one("SELECT count(*) FROM attempts"), "1");
}

#[test]
fn a_lease_that_is_over_is_a_failed_attempt_and_the_event_is_given_again() {
    let (rig, _) = pulling(&json!({ "policy": { "lease": "10s", "max_attempts": 2 } }));
    rig.publish_type("a");
    let first = next(&rig, "").remove(0);
    assert_eq!(first["lease_until"], "2026-01-31T12:00:10.000Z");
    assert_eq!(rig.get("/v1/deliveries/dlv_1")["lease_until"], first["lease_until"]);
    assert_eq!(rig.one("SELECT status FROM outbox"), "processing");
    assert!(next(&rig, "").is_empty());
    expired(&rig, secs(10));
    assert!(next(&rig, "").is_empty(), "it waits by the schedule");
    rig.advance(secs(5));
    let second = next(&rig, "").remove(0);
    assert_eq!((&second["attempt"], &second["webhook_id"]), (&json!(2), &first["webhook_id"]));
    expired(&rig, secs(10));
    insta::assert_snapshot!(rig.dump(), @r"
    a dead_letter
      erp dead_letter: given up after 2 attempts; the last: lease expired
        1 +0s transient counted
        2 +15s transient counted
    ");
}

#[test]
fn a_late_acknowledgement_is_taken_while_nobody_else_has_the_event() {
    let (rig, _) = pulling(&json!({}));
    rig.publish_type("a");
    rig.publish_type("b");
    let items = next(&rig, "?max=2");
    expired(&rig, secs(60));
    assert_eq!(ack(&rig, &items[0])["state"], "completed");
    rig.advance(secs(5));
    let second = next(&rig, "?max=2").remove(0);
    assert_eq!(second["delivery"], items[1]["delivery"]);
    let late = ack(&rig, &items[1]);
    has(&late, &json!({ "status": 409, "detail": "another consumer has dlv_2 now" }));
    assert_eq!(ack(&rig, &second)["status"], 200);
    assert_eq!(ack(&rig, &items[1])["detail"], "dlv_2 was completed under another lease");
}

#[test]
fn what_is_handed_back_counts_waits_or_dies_as_the_consumer_says() {
    let (rig, _) = pulling(&json!({}));
    rig.publish_types(&["schedule", "delay", "dead", "back"]);
    let items = next(&rig, "?max=4");
    let states = [
        nack(&rig, &items[0], &json!({ "reason": "no stock" })),
        nack(&rig, &items[1], &json!({ "delay": "1h" })),
        nack(&rig, &items[2], &json!({ "dead": true, "reason": "no such customer" })),
        nack(&rig, &items[3], &json!({ "delay": "0s", "counted": false })),
    ];
    let states = states.each_ref().map(|heard| heard["state"].as_str().unwrap());
    assert_eq!(states, ["pending", "pending", "dead_letter", "pending"]);
    insta::assert_snapshot!(rig.dump(), @r"
    schedule failed
      erp pending due +5s
        1 +0s transient counted
    delay failed
      erp pending due +3600s
        1 +0s transient counted
    dead dead_letter
      erp dead_letter: no such customer
        1 +0s validation counted
    back pending
      erp pending due +0s
        1 +0s transient
    ");
    assert_eq!(next(&rig, "?max=4")[0]["event_type"], "back");
    let heard = nack(&rig, &items[0], &json!({}));
    assert_eq!(heard["detail"], "dlv_1 was handed back or taken back, and waits again");
    for (word, why) in [
        (json!({ "dead": true, "delay": "1s" }), "dead gives up at once"),
        (json!({ "delay": "8days" }), "at most 7days"),
        (json!({ "delay": "soon" }), "delay \"soon\" is not a span"),
    ] {
        let mut body = shown(&items[0]);
        body.as_object_mut().unwrap().extend(word.as_object().unwrap().clone());
        rig.post("/v1/consumers/erp/nack", &json!({ "items": [body] })).is(422).tells(why);
    }
}

#[test]
fn a_lease_that_is_made_shorter_ends_sooner() {
    let (rig, item) = leased();
    let body = json!({ "items": [shown(&item)], "lease": "5s" });
    rig.post("/v1/consumers/erp/extend", &body).is(200);
    expired(&rig, secs(5));
}

#[test]
fn an_event_that_cannot_be_opened_keeps_no_other_back_and_does_not_count() {
    let (mut rig, _) = pulling(&json!({}));
    publish_sealed(&rig);
    rig.restart();
    assert_eq!(tampered(&rig, "UPDATE subjects SET sealed = x'00' WHERE seq = 2"), 1);
    let items = next(&rig, "?max=100");
    let given: Vec<&Value> = items.iter().map(|item| &item["payload"]["id"]).collect();
    assert_eq!(given, ["c-1", "c-3"]);
    rig.becomes(
        "SELECT count(*) FROM deliveries
                        WHERE seq = 2 AND state = 'pending' AND counted_failures = 0
                          AND delay_ms = 60000",
        "1",
    );
}

#[test]
fn what_is_said_of_an_event_that_cannot_be_opened_is_stored_without_its_reason_and_the_rest_as_it_is()
 {
    let (mut rig, _) = pulling(&json!({}));
    publish_sealed(&rig);
    let items = next(&rig, "?max=3");
    rig.restart();
    assert_eq!(tampered(&rig, "UPDATE subjects SET sealed = x'00' WHERE seq = 2"), 1);
    let word = |item: &Value| {
        let mut word = shown(item);
        word["reason"] = json!("Ada has moved");
        word
    };
    let heard = say(&rig, "nack", &items.iter().map(word).collect::<Vec<_>>());
    assert!(heard.iter().all(|one| one["status"] == 200), "{heard:?}");
    assert_eq!(
        rig.lines("SELECT failed_reason FROM attempts ORDER BY delivery_seq"),
        ["[sealed] has moved", "not kept: its event cannot be opened", "[sealed] has moved"],
    );
}

#[test]
fn a_delivery_that_cannot_be_settled_is_said_and_costs_the_others_of_its_request_nothing() {
    let (rig, _) = pulling(&json!({}));
    rig.publish_types(&["a", "b", "c"]);
    let items = next(&rig, "?max=3");
    let words: Vec<Value> = items.iter().map(shown).collect();
    assert_eq!(tampered(&rig, PLANTED), 1);
    for (verb, state) in [("nack", "pending"), ("ack", "completed")] {
        if verb == "ack" {
            rig.advance(secs(5));
            next(&rig, "?max=3");
        }
        let leases = rig.lines("SELECT lease_owner FROM deliveries ORDER BY seq");
        let word = |(word, lease): (&Value, &String)| json!({ "delivery": word["delivery"], "lease": lease });
        let now: Vec<Value> = words.iter().zip(&leases).map(word).collect();
        let heard = say(&rig, verb, &now);
        let statuses: Vec<&Value> = heard.iter().map(|one| &one["status"]).collect();
        assert_eq!(statuses, [200, 500, 200], "{heard:?}");
        shows(heard[1]["detail"].as_str().unwrap(), &["dlv_2", "the log says why"]);
        let states = rig.lines("SELECT state FROM deliveries ORDER BY seq");
        assert_eq!(states, [state, "leased", state]);
    }
    // Mended, it is heard.
    tampered(&rig, "DELETE FROM attempts WHERE delivery_seq = 2");
    assert_eq!(ack(&rig, &items[1])["state"], "completed");
}

/// An attempt that nobody made stands where the second delivery's is to be written.
const PLANTED: &str =
    "INSERT INTO attempts (delivery_seq, n, started_at, finished_at, url, class, counted, latency_ms)
     VALUES (2, 1, 0, 0, '', 'success', 0, 0)";

/// Changes the file behind the service's back; tells how many rows.
fn tampered(rig: &Rig, sql: &str) -> usize {
    rig.writable().execute(sql, []).unwrap()
}

#[test]
fn a_subscription_that_cannot_be_read_keeps_no_other_lease_from_ending() {
    let (rig, _) = pulling(&json!({}));
    rig.pull("odd", &json!({}));
    rig.publish_type("a");
    rig.get("/v1/consumers/odd/next");
    next(&rig, "");
    assert_eq!(tampered(&rig, "UPDATE subscriptions SET policy = '5' WHERE name = 'odd'"), 1);
    rig.advance(secs(60));
    rig.becomes(
        "SELECT group_concat(s.name) FROM deliveries AS d
                    JOIN subscriptions AS s ON s.seq = d.subscription_seq WHERE d.state = 'leased'",
        "odd",
    );
    tampered(&rig, "UPDATE subscriptions SET policy = '{}' WHERE name = 'odd'");
    expired(&rig, secs(60));
}

#[test]
fn a_lease_that_cannot_be_ended_keeps_no_other_from_ending_and_ends_when_it_can_be() {
    let (rig, _) = pulling(&json!({}));
    rig.publish_types(&["a", "b", "c"]);
    assert_eq!(next(&rig, "?max=3").len(), 3);
    assert_eq!(tampered(&rig, PLANTED), 1);
    rig.advance(secs(60));
    rig.becomes("SELECT group_concat(seq) FROM deliveries WHERE state = 'leased'", "2");
    tampered(&rig, "DELETE FROM attempts WHERE delivery_seq = 2");
    // The clock may have moved on before the failure was noted, from which the next try counts.
    let is_over = || rig.one("SELECT count(*) FROM deliveries WHERE state = 'leased'") == "0";
    rig.passing("it has ended", secs(60), is_over);
}

#[test]
fn while_another_program_holds_the_file_those_who_ask_are_answered_and_leases_end_after_it() {
    let (mut rig, _) = pulling(&json!({}));
    rig.publish_type("a");
    assert_eq!(next(&rig, "").len(), 1);
    let other = rig.writable();
    other.run("BEGIN IMMEDIATE");
    rig.advance(secs(60));
    thread::sleep(Duration::from_millis(500));
    assert!(next(&rig, "").is_empty());
    other.run("ROLLBACK");
    rig.passing("the lease has ended", secs(1), || rig.one("SELECT count(*) FROM attempts") != "0");
    other.run("BEGIN IMMEDIATE");
    rig.stop();
}

#[test]
fn a_lease_that_is_extended_ends_later_and_one_that_is_over_begins_again_while_nobody_else_has_it()
{
    let (rig, item) = leased();
    rig.advance(secs(50));
    let body = json!({ "items": [shown(&item)], "lease": "5min" });
    let heard = rig.post("/v1/consumers/erp/extend", &body).is(200).json();
    assert_eq!(heard["items"][0]["lease_until"], "2026-01-31T12:05:50.000Z");
    rig.advance(secs(299));
    assert!(next(&rig, "").is_empty());
    assert_eq!(rig.one("SELECT state FROM deliveries"), "leased");
    expired(&rig, secs(1));
    // It is over, and nobody else has the event: it begins again.
    let heard = rig.post("/v1/consumers/erp/extend", &body).is(200).json();
    assert_eq!(heard["items"][0]["lease_until"], "2026-01-31T12:10:50.000Z");
    assert_eq!(rig.one("SELECT status FROM outbox"), "processing");
    rig.advance(secs(30));
    assert!(next(&rig, "").is_empty());
    expired(&rig, secs(270));
    rig.advance(secs(30));
    assert_eq!(next(&rig, "")[0]["attempt"], 3);
    let heard = rig.post("/v1/consumers/erp/extend", &body).is(200).json();
    assert_eq!(heard["items"][0]["detail"], "another consumer has dlv_1 now");
    let wrong = json!({ "items": [shown(&item)], "lease": "13h" });
    rig.post("/v1/consumers/erp/extend", &wrong).is(422);
}

/// A request on a connection of its own that is not waited for.
fn asking(rig: &Rig, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(rig.address()).unwrap();
    let (address, token) = (rig.address(), &rig.token);
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\
         Connection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

fn answered(mut stream: TcpStream) -> Value {
    stream.set_read_timeout(Some(crate::rig::PATIENCE)).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{text}");
    serde_json::from_str(body).unwrap()
}

fn waiting(rig: &Rig) -> u64 {
    rig.get("/v1/stats")["consumers_waiting"].as_u64().unwrap()
}

#[test]
fn a_request_that_waits_is_answered_when_an_event_comes() {
    let (rig, _) = pulling(&json!({}));
    let asked = asking(&rig, "/v1/consumers/erp/next?wait=30");
    until("it waits", || waiting(&rig) == 1);
    rig.publish_type("a");
    assert_eq!(answered(asked)["items"][0]["event_type"], "a");
}

#[test]
fn a_request_that_waits_is_answered_with_nothing_when_its_time_is_over() {
    let (rig, _) = pulling(&json!({}));
    let asked = asking(&rig, "/v1/consumers/erp/next?wait=30");
    until("it waits", || waiting(&rig) == 1);
    rig.advance(secs(29));
    assert_eq!(waiting(&rig), 1);
    rig.advance(secs(1));
    assert_eq!(answered(asked), json!({ "items": [], "held": null }));
}

#[test]
fn a_request_that_waits_is_answered_when_a_retry_becomes_due_or_a_lease_is_over() {
    let (rig, item) = leased();
    nack(&rig, &item, &json!({ "delay": "20s" }));
    let asked = asking(&rig, "/v1/consumers/erp/next?wait=30");
    until("it waits", || waiting(&rig) == 1);
    rig.advance(secs(20));
    let second = answered(asked)["items"][0].clone();
    assert_eq!(second["attempt"], 2);
    rig.advance(secs(40));
    let asked = asking(&rig, "/v1/consumers/erp/next?wait=30");
    until("it waits", || waiting(&rig) == 1);
    // The lease ends; by the schedule it would be given again 30 s later, but a person is quicker.
    expired(&rig, secs(20));
    assert_eq!(waiting(&rig), 1);
    rig.call("POST", "/v1/deliveries/dlv_1/retry", b"").is(200);
    assert_eq!(answered(asked)["items"][0]["attempt"], 3);
}

#[test]
fn requests_that_wait_hold_up_nobody_and_too_many_are_told_to_come_again() {
    let (rig, _) = pulling(&json!({}));
    let waiters: Vec<TcpStream> =
        (0..384).map(|_| asking(&rig, "/v1/consumers/erp/next?wait=30")).collect();
    until("all wait", || waiting(&rig) == 384);
    let crowded = rig.call("GET", "/v1/consumers/erp/next?wait=30", b"").is(503);
    assert_eq!(crowded.field("retry-after"), Some("5"));
    // Another tenant's may wait all the same.
    let other = rig.tenant("acme");
    let pull = json!({ "name": "own", "target": "pull", "event_types": ["a"] });
    rig.post_as(&other, "/v1/subscriptions", &pull).is(201);
    rig.call_as(&other, "GET", "/v1/consumers/own/next", b"").is(200);
    rig.publish(&json!({ "event_type": "a", "payload": 1 }));
    until("one has it", || waiting(&rig) == 383);
    assert_eq!(rig.one("SELECT count(*), state FROM deliveries"), "1 leased");
    rig.advance(secs(30));
    let given = waiters.into_iter().map(answered);
    assert_eq!(given.filter(|answer| answer["items"] != json!([])).count(), 1);
}

#[test]
fn nothing_is_leased_to_a_client_that_has_left() {
    let (rig, _) = pulling(&json!({}));
    let left = asking(&rig, "/v1/consumers/erp/next?wait=30");
    until("it waits", || waiting(&rig) == 1);
    drop(left);
    rig.publish_type("a");
    assert_eq!(next(&rig, "").len(), 1);
    // Time is looked at once a second, and this clock stands still.
    rig.advance(secs(1));
    until("it does not wait", || waiting(&rig) == 0);
}

#[test]
fn a_stop_answers_those_who_wait() {
    let (mut rig, _) = pulling(&json!({}));
    let asked = asking(&rig, "/v1/consumers/erp/next?wait=30");
    until("it waits", || waiting(&rig) == 1);
    rig.stop();
    assert_eq!(answered(asked)["items"], json!([]));
}

#[test]
fn a_lease_outlives_a_restart_and_ends_at_its_time() {
    let (mut rig, _) = pulling(&json!({}));
    rig.publish_type("a");
    rig.publish_type("b");
    let items = next(&rig, "?max=2");
    rig.restart();
    assert!(next(&rig, "").is_empty());
    assert_eq!(ack(&rig, &items[0])["status"], 200);
    rig.stop();
    rig.time.advance(secs(60));
    rig.start_again();
    expired(&rig, Duration::ZERO);
    assert_eq!(rig.one("SELECT last_class FROM deliveries WHERE seq = 2"), "transient");
}

#[test]
fn a_subscription_that_is_held_gives_nothing_and_says_why() {
    let (rig, _) = pulling(&json!({}));
    rig.publish_type("a");
    rig.call("POST", "/v1/subscriptions/erp/pause", b"").is(200);
    assert_eq!(rig.get("/v1/consumers/erp/next"), json!({ "items": [], "held": "paused" }));
    let asked = asking(&rig, "/v1/consumers/erp/next?wait=30");
    until("it waits", || waiting(&rig) == 1);
    rig.call("POST", "/v1/subscriptions/erp/resume", b"").is(200);
    assert_eq!(answered(asked)["items"][0]["event_type"], "a");
}

#[test]
fn who_has_a_lease_of_a_paused_subscription_may_say_what_came_of_it() {
    let (rig, item) = leased();
    rig.call("POST", "/v1/subscriptions/erp/pause", b"").is(200);
    assert_eq!(ack(&rig, &item)["state"], "completed");
}

#[test]
fn a_person_takes_an_event_back_from_its_consumer_or_cancels_it() {
    let (rig, _) = pulling(&json!({}));
    rig.publish_type("a");
    let first = next(&rig, "").remove(0);
    rig.call("POST", "/v1/deliveries/dlv_1/retry", b"").is(200);
    let second = next(&rig, "").remove(0);
    assert_eq!(ack(&rig, &first)["detail"], "another consumer has dlv_1 now");
    rig.call("POST", "/v1/deliveries/dlv_1/cancel", b"").is(200);
    let heard = ack(&rig, &second);
    let detail = "dlv_1 is cancelled (cancelled by first admin token)";
    assert_eq!((&heard["status"], &heard["detail"]), (&json!(409), &json!(detail)));
    assert!(next(&rig, "").is_empty());
    assert_eq!(rig.one("SELECT status FROM outbox"), "cancelled");
}

#[test]
fn a_lease_ends_with_its_run() {
    let (rig, _) = pulling(&json!({}));
    rig.publish_type("a");
    for end in ["cancel", "dead"] {
        let item = next(&rig, "").remove(0);
        if end == "dead" {
            nack(&rig, &item, &json!({ "dead": true }));
        } else {
            rig.call("POST", "/v1/deliveries/dlv_1/cancel", b"").is(200);
        }
        rig.call("POST", "/v1/deliveries/dlv_1/retry", b"").is(200);
        let heard = ack(&rig, &item);
        let detail = "dlv_1 was handed back or taken back, and waits again";
        assert_eq!((&heard["status"], &heard["detail"]), (&json!(409), &json!(detail)), "{end}");
        assert_eq!(say(&rig, "extend", &[shown(&item)])[0]["status"], 409, "{end}");
        assert_eq!(rig.state(1), "pending");
    }
}

#[test]
fn a_dead_letter_that_is_retried_is_given_again() {
    let (rig, item) = leased();
    nack(&rig, &item, &json!({ "dead": true }));
    rig.call("POST", "/v1/deliveries/dlv_1/retry", b"").is(200);
    let again = next(&rig, "").remove(0);
    assert_eq!((&again["webhook_id"], &again["attempt"]), (&item["webhook_id"], &json!(2)));
}

#[test]
fn webhook_events_are_given_to_who_asks_for_their_provider() {
    let (rig, _) = pulling(&json!({ "source": "all" }));
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    rig.provider("shop", &json!({ "kind": "standard" }), secret);
    let (id, seconds) = ("msg_1", START.secs());
    let signature = expected(secret, id, seconds, br#"{"type":"paid"}"#);
    let seconds = seconds.to_string();
    let fields = [
        ("content-type", "application/json"),
        ("webhook-id", id),
        ("webhook-timestamp", seconds.as_str()),
        ("webhook-signature", signature.as_str()),
    ];
    rig.send("POST", "/in/shop", &fields, br#"{"type":"paid"}"#).is(200);
    let item = next(&rig, "").remove(0);
    assert_eq!((&item["event_type"], &item["payload"]["type"]), (&json!("paid"), &json!("paid")));
    ack(&rig, &item);
    assert_eq!(rig.one("SELECT status FROM webhook_events"), "completed");
}

#[test]
fn the_dispatcher_leaves_alone_what_consumers_ask_for() {
    let (rig, _) = pulling(&json!({}));
    let receiver = Receiver::new();
    rig.subscribe("pushed", &receiver);
    rig.publish_types(&["a"; 5]);
    rig.has_sent(&receiver, 5);
    rig.says("SELECT count(*) FROM deliveries WHERE state = 'pending' AND attempt_count = 0", "5");
    rig.call("GET", "/v1/consumers/pushed/next", b"").is(409).tells("is not a pull subscription");
    let numbers = rig.get("/v1/stats");
    assert_eq!((&numbers["pending"], &numbers["leased"]), (&json!(5), &json!(0)));
    assert!(numbers["oldest_due_at"].is_string());
    rig.advance(secs(600));
    let ready = rig.get("/readyz?verbose");
    let due = ready["checks"].as_array().unwrap().iter().find(|check| check["name"] == "due");
    assert_eq!(due.unwrap()["state"], "ok", "nobody waits for us");
}

#[test]
fn what_does_not_go_with_asking_for_events_is_refused() {
    let (rig, _) = pulling(&json!({ "policy": { "lease": "2min" } }));
    for (body, why) in [
        (json!({ "name": "b" }), "url is missing"),
        (
            json!({ "name": "b", "target": "queue" }),
            "it is http, kafka, folder, database, email, pull",
        ),
        (json!({ "name": "b", "target": "pull", "url": "https://a.example/" }), "has no url"),
        (json!({ "name": "b", "target": "pull", "method": "PUT" }), "has no method"),
        (json!({ "name": "b", "target": "pull", "policy": { "timeout": "5s" } }), "has a lease"),
        (
            json!({ "name": "b", "target": "pull", "policy": { "lease": "1ms" } }),
            "must be 1s to 12h",
        ),
        (
            json!({ "name": "b", "url": "https://a.example/", "policy": { "lease": "5s" } }),
            "of pull",
        ),
    ] {
        rig.post("/v1/subscriptions", &body).is(422).tells(why);
    }
    for (change, why) in [
        (json!({ "target": "http" }), "stays what it was made with"),
        (json!({ "url": "https://a.example/" }), "has no url"),
    ] {
        rig.patch("/v1/subscriptions/erp", &change).is(422).tells(why);
    }
    let changed = rig.patch("/v1/subscriptions/erp", &json!({ "target": "pull", "owner_id": "x" }));
    let shown = changed.is(200).json();
    assert_eq!((&shown["target"], &shown["url"]), (&json!("pull"), &Value::Null));
    rig.publish_type("a");
    assert_eq!(next(&rig, "")[0]["lease_until"], "2026-01-31T12:02:00.000Z");
    rig.call("HEAD", "/v1/consumers/erp/next", b"").is(200);
    rig.delete("/v1/subscriptions/erp").is(409);
}
