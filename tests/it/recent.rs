//! `GET /v1/stats/recent`: the last hour of a tenant.

use crate::it::console_rig::Browser;
use crate::rig::prelude::*;

fn last(rig: &Rig, token: &str) -> Value {
    let recent = rig.get_as(token, "/v1/stats/recent");
    let minutes = recent["minutes"].as_array().unwrap();
    assert_eq!(minutes.len(), 60);
    minutes[59].clone()
}

/// Waits until so many deliveries of the current minute are counted, which is after they are settled.
fn counted(rig: &Rig, delivered: u64) {
    until("it is counted", || last(rig, &rig.token)["delivered"] == delivered);
}

#[test]
fn the_last_hour_has_what_came_in_and_what_went_out_by_minute() {
    let (rig, receiver) =
        Rig::subscribed_to("erp", Receiver::scripted([Reply::status(500), Reply::status(200)]));
    let key =
        json!({ "event_type": "a", "payload": 1, "idempotency_key": "k", "source_system": "s" });
    rig.publish(&key);
    // A repeated event is not new.
    rig.post("/v1/events", &key);
    rig.sent(&receiver, 1);
    rig.advance(secs(10));
    rig.sent(&receiver, 2);
    counted(&rig, 1);
    let first = last(&rig, &rig.token);
    for (field, value) in [("events", 1), ("webhooks", 0), ("delivered", 1), ("failed", 1)] {
        assert_eq!(first[field], value, "{field}: {first}");
    }
    let latencies = first["latencies"].as_array().unwrap();
    assert_eq!(latencies.len(), 8);
    assert_eq!(latencies.iter().map(|n| n.as_u64().unwrap()).sum::<u64>(), 2);
    let recent = rig.get("/v1/stats/recent");
    assert_eq!(recent["latency_bounds_ms"], json!([10, 50, 100, 500, 1000, 5000, 30000]));
    let of_erp = &recent["subscriptions"][0];
    assert_eq!(of_erp["subscription"], "erp");
    let attempts: Vec<_> = of_erp["attempts"].as_array().unwrap().iter().collect();
    let shown = |field: &str| attempts.iter().map(|of| of[field].clone()).collect::<Vec<_>>();
    assert_eq!(shown("class"), ["success", "transient"]);
    assert_eq!(shown("http_status"), [200, 500]);
    assert_eq!(shown("delivery"), ["dlv_1", "dlv_1"]);

    rig.advance(secs(3600));
    let later = rig.get("/v1/stats/recent");
    assert!(later["minutes"].as_array().unwrap().iter().all(|m| m["events"] == 0));
    assert_eq!(later["since"], recent["since"]);
    assert_eq!(later["subscriptions"], recent["subscriptions"]);
}

#[test]
fn webhooks_and_rows_of_plain_sql_are_counted_and_a_deleted_subscription_still_counts() {
    let (rig, receiver) = Rig::subscribed("erp");
    crate::it::bulk::skipped_webhook(&rig);
    Connection::open(rig.data().join("oncebox.db"))
        .unwrap()
        .run("INSERT INTO outbox (event_type, payload) VALUES ('a', '1'), ('b', '2')");
    rig.sent(&receiver, 2);
    rig.delete("/v1/subscriptions/erp").is(204);
    counted(&rig, 2);
    let minute = last(&rig, &rig.token);
    for (field, value) in [("events", 2), ("webhooks", 1), ("delivered", 2), ("failed", 0)] {
        assert_eq!(minute[field], value, "{field}: {minute}");
    }
}

#[test]
fn each_tenant_sees_its_own_hour_and_a_restart_forgets_none_of_it() {
    let mut rig = Rig::new();
    let (receiver, second) = (Receiver::new(), rig.tenant("second"));
    rig.subscribe("erp", &receiver);
    rig.publish_type("a");
    rig.sent(&receiver, 1);
    counted(&rig, 1);
    let theirs = last(&rig, &second);
    for field in ["events", "delivered", "failed"] {
        assert_eq!(theirs[field], 0, "{field}");
    }
    let before = rig.get("/v1/stats/recent");
    rig.advance(secs(60));
    rig.restart();
    let after = rig.get("/v1/stats/recent");
    assert_eq!(after["subscriptions"], before["subscriptions"]);
    // The minute that was the last is the one before it now.
    let counts =
        |recent: &Value, back: usize| recent["minutes"].as_array().unwrap()[60 - back].clone();
    for field in ["events", "delivered", "failed", "latencies"] {
        assert_eq!(counts(&after, 2)[field], counts(&before, 1)[field], "{field}");
    }
    rig.publish_type("b");
    rig.sent(&receiver, 2);
    counted(&rig, 1);
    rig.advance(secs(60));
    // A minute that was over is stored even if the process is killed, and each is counted once.
    until("it is stored", || rig.one("SELECT count(DISTINCT minute) FROM recent_minutes") == "2");
    let rows =
        "SELECT max(n) FROM (SELECT count(*) AS n FROM recent_minutes GROUP BY minute, tenant)";
    assert_eq!(rig.one(rows), "1");
    assert_eq!(rig.one("SELECT count(*) FROM recent_minutes WHERE tenant = ''"), "0");
    rig.restart();
    rig.restart();
    let last = rig.get("/v1/stats/recent");
    assert_eq!(
        (&counts(&last, 3)["delivered"], &counts(&last, 2)["delivered"]),
        (&json!(1), &json!(1))
    );
    rig.advance(secs(3600));
    rig.publish_type("c");
    rig.sent(&receiver, 3);
    counted(&rig, 1);
    rig.advance(secs(60));
    rig.becomes("SELECT count(DISTINCT minute) FROM recent_minutes", "1");
}

#[test]
fn a_restart_forgets_no_subscriptions_latest_attempts() {
    let (mut rig, quiet) = Rig::subscribed_to("quiet", Receiver::scripted([Reply::status(500)]));
    let busy = Receiver::new();
    rig.publish_type("a");
    rig.sent(&quiet, 1);
    rig.advance(secs(10));
    rig.sent(&quiet, 2);
    counted(&rig, 1);
    rig.delete("/v1/subscriptions/quiet").is(204);
    rig.subscribe("quiet", &quiet);
    rig.publish_type("a");
    rig.sent(&quiet, 3);
    rig.call("PATCH", "/v1/subscriptions/quiet", br#"{"event_types":["other"]}"#).is(200);
    rig.subscribe("busy", &busy);
    for first in (0..4_200).step_by(600) {
        let some: Vec<Value> = (first..first + 600)
            .map(
                |n| json!({ "event_type": "b", "payload": n, "idempotency_key": format!("k-{n}") }),
            )
            .collect();
        rig.post("/v1/events", &json!(some)).is(201);
        rig.settle();
        rig.advance(secs(60));
    }
    rig.becomes("SELECT count(*) FROM recent_attempts", "3");
    let shown = |rig: &Rig| rig.get("/v1/stats/recent")["subscriptions"].clone();
    let before = shown(&rig);
    let lengths: Vec<usize> = before
        .as_array()
        .unwrap()
        .iter()
        .map(|of| of["attempts"].as_array().unwrap().len())
        .collect();
    assert_eq!(lengths, [50, 1], "{before}");
    let of = |query: &str| rig.get(&format!("/v1/stats/recent?{query}"))["subscriptions"].clone();
    assert_eq!(of("subscription=quiet"), json!([before[1]]));
    assert_eq!(of("subscription=nobody"), json!([]));
    let few = of("attempts=30&subscription=busy");
    assert_eq!(
        few[0]["attempts"].as_array().unwrap(),
        &before[0]["attempts"].as_array().unwrap()[..30]
    );
    assert_eq!(rig.call("GET", "/v1/stats/recent?attempts=51", b"").status, 400);
    rig.restart();
    assert_eq!(shown(&rig), before);
    rig.restart();
    assert_eq!(shown(&rig), before);
}

#[test]
fn a_minute_without_the_service_is_a_gap_and_no_zero() {
    let mut rig = Rig::new();
    rig.advance(secs(300));
    rig.becomes("SELECT count(*) FROM boots WHERE seen_at > started_at", "1");
    rig.stop();
    let stopped = rig.now();
    rig.time.advance(secs(600));
    rig.start_again();
    let started = rig.now();
    rig.advance(secs(180));
    let now = rig.now();
    let recent = rig.get("/v1/stats/recent");
    let mut whole = 0;
    let mut before = 0;
    for minute in recent["minutes"].as_array().unwrap() {
        let at = Timestamp::parse(minute["at"].as_str().unwrap()).unwrap();
        let end = at.plus(secs(60)).min(now);
        let ran = (START <= at && end <= stopped) || started <= at;
        assert_eq!(minute["whole"], ran, "{minute}");
        whole += u32::from(ran);
        // What was before the first start is no gap.
        before += u32::from(whole == 0);
    }
    assert!((5..=9).contains(&whole), "{whole}");
    let page = Browser::new(&rig, "read").get("/console/");
    assert!(page.contains(&format!("{} minutes of it are unknown", 60 - whole - before)), "{page}");
}

#[test]
fn counts_that_could_not_be_stored_are_stored_with_the_next_ones() {
    let (rig, receiver) = Rig::subscribed("erp");
    rig.publish_type("a");
    rig.sent(&receiver, 1);
    counted(&rig, 1);
    let other = rig.writable();
    other.execute_batch("CREATE TRIGGER refuse BEFORE INSERT ON recent_minutes BEGIN SELECT RAISE(ABORT, 'no'); END").unwrap();
    rig.advance(secs(60));
    rig.publish_type("b");
    rig.sent(&receiver, 2);
    counted(&rig, 1);
    rig.says("SELECT count(*) FROM boots WHERE seen_at IS NOT NULL", "0");
    other.execute_batch("DROP TRIGGER refuse").unwrap();
    rig.advance(secs(60));
    rig.becomes("SELECT count(DISTINCT minute) FROM recent_minutes", "2");
    rig.becomes("SELECT count(*) FROM boots WHERE seen_at IS NOT NULL", "1");
}
