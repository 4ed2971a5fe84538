//! The history of subscriptions and providers, by day and by hour.

use oncebox::model::history::{DAY_MS, Day, HourCounts};
use oncebox::store::history::MAX_ROWS;

use crate::it::console_rig::Browser;
use crate::rig::prelude::*;

/// The day of [`START`], at noon of which the clock begins.
const DAY: &str = "2026-01-31";

fn items(rig: &Rig, path: &str) -> Vec<Value> {
    rig.get(path)["items"].as_array().unwrap().clone()
}

/// A minute later, once what was counted is stored.
fn stored(rig: &Rig) {
    rig.settle();
    let seen = rig.one("SELECT max(coalesce(seen_at, 0)) FROM boots");
    rig.advance(secs(60));
    rig.becomes(&format!("SELECT max(coalesce(seen_at, 0)) > {seen} FROM boots"), "1");
}

#[test]
fn attempts_of_a_subscription_are_counted_by_hour_and_by_day_over_a_restart() {
    let (mut rig, receiver) =
        Rig::subscribed_to("erp", Receiver::scripted([Reply::status(500), Reply::status(200)]));
    rig.publish_type("a");
    rig.sent(&receiver, 1);
    rig.advance(secs(10));
    rig.sent(&receiver, 2);
    stored(&rig);
    rig.restart();
    rig.advance(secs(3600));
    rig.publish_type("b");
    rig.sent(&receiver, 3);
    stored(&rig);

    let path = "/v1/subscriptions/erp/history";
    let hours = items(&rig, &format!("{path}?day={DAY}"));
    assert_eq!(hours.len(), 14);
    for (hour, total, failed) in [(11, 0, 0), (12, 2, 1), (13, 1, 0)] {
        has(&hours[hour], &json!({ "total": total, "failed": failed }));
    }
    assert_eq!(hours[11]["minutes"], 0, "it did not run then");
    assert_eq!(hours[12]["minutes"], 60);
    assert_eq!((&hours[11]["p50_ms"], &hours[11]["p95_ms"]), (&Value::Null, &Value::Null));
    assert!(hours[12]["p50_ms"].as_u64() <= hours[12]["p95_ms"].as_u64(), "{hours:?}");
    let days = items(&rig, path);
    assert_eq!(days.len(), 90);
    has(&days[89], &json!({ "total": 3, "failed": 1, "at": "2026-01-31T00:00:00.000Z" }));
    has(&days[88], &json!({ "total": 0, "minutes": 0 }));
    assert_eq!(items(&rig, &format!("{path}?day=2026-02-01")), [Value::Null; 0]);
    assert_eq!(rig.call("GET", &format!("{path}?day=today"), b"").status, 400);

    let page = Browser::new(&rig, "read").get("/console/subscriptions/erp");
    // What was before the first minute is left empty, not shaded.
    assert!(!page.contains("class=\"gap\""), "{page}");
    for part in ["Attempts: 3, 1 failed, 33.3 %", "As a table", "2026-01-31 12:00"] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[test]
fn requests_of_a_provider_are_counted_by_what_they_were_answered() {
    let rig = Rig::new();
    rig.token_provider("shop", "secret-of-the-shop");
    let post = |token: &str, id: &str| {
        let body = json!({ "id": id, "type": "a" }).to_string();
        let fields = [("X-Token", token)];
        http::send(rig.address(), "POST", "/in/shop", &fields, body.as_bytes()).unwrap().status
    };
    let secret = "secret-of-the-shop";
    assert_eq!([post(secret, "1"), post(secret, "1"), post("no", "2")], [200, 200, 401]);
    stored(&rig);
    let days = items(&rig, "/v1/providers/shop/history");
    has(&days[89], &json!({ "total": 3, "failed": 1, "p50_ms": null }));
    let page = Browser::new(&rig, "read").get(&format!("/console/providers/shop?day={DAY}"));
    assert!(page.contains("Requests: 3, 1 failed, 33.3 %"), "{page}");
}

#[test]
fn counts_that_cannot_be_stored_are_neither_lost_nor_counted_twice() {
    let (rig, receiver) = Rig::subscribed("erp");
    let other = rig.writable();
    let refuse =
        "CREATE TRIGGER refuse BEFORE INSERT ON history BEGIN SELECT RAISE(ABORT, 'no'); END";
    other.execute_batch(refuse).unwrap();
    rig.publish_type("a");
    rig.sent(&receiver, 1);
    rig.settle();
    rig.advance(secs(60));
    rig.publish_type("b");
    rig.sent(&receiver, 2);
    rig.settle();
    rig.says("SELECT count(*) FROM history", "0");
    other.execute_batch("DROP TRIGGER refuse").unwrap();
    stored(&rig);
    stored(&rig);
    let days = items(&rig, "/v1/subscriptions/erp/history");
    has(&days[89], &json!({ "total": 2, "failed": 0 }));
}

#[test]
fn the_history_is_bounded_by_age_and_in_sum_and_the_tenant_with_the_most_pays() {
    let (rig, receiver) = Rig::subscribed("erp");
    let second = rig.tenant("second");
    for n in 0..300 {
        let other = json!({ "name": format!("other-{n}"), "url": receiver.url() });
        rig.post_as(&second, "/v1/subscriptions", &other).is(201);
    }
    let today = rig.now().ms().div_euclid(DAY_MS);
    let mut hour = HourCounts::default();
    hour.note(false, Some(100));
    let day = Day([(3, hour)].into()).to_bytes();
    let rows = "WITH RECURSIVE n (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < 89)
                INSERT INTO history (day, kind, of_seq, hours)
                SELECT ?1 - n.n, 'subscription', s.seq, ?2 FROM n JOIN subscriptions AS s";
    rig.writable().execute(rows, (today, day)).unwrap();
    rig.says("SELECT count(*) FROM history", &(301 * 90).to_string());
    stored(&rig);
    rig.becomes("SELECT count(*) FROM history", &MAX_ROWS.to_string());
    let days = items(&rig, "/v1/subscriptions/erp/history");
    assert!(days.iter().all(|day| day["total"] == 1), "the other tenant pays");
    let of_second = "SELECT min(day) FROM history AS h JOIN subscriptions AS s ON s.seq = h.of_seq
                      WHERE s.tenant = 'second'";
    rig.says(of_second, &(today - 66).to_string());
    rig.advance(Duration::from_hours(100 * 24));
    rig.becomes("SELECT count(*) FROM history", "0");
}
