//! Lists of many rows: whatever is asked of them, a page looks at few, and nobody waits for them.

use oncebox::base::id;
use oncebox::store::page::MAX_LOOKED_AT;

use crate::rig::prelude::*;

/// Events that are over, a second apart, the last of them at the rig's start: one in 10,000 of the tenant `acme`, the
/// very first of a type of its own.
const PAST: &str = "
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
    INSERT INTO outbox (id, tenant, idempotency_key, event_type, payload, received_at, routed_at,
                        status, completed_at)
    SELECT printf('01980000-0000-7000-8000-%012x', i), iif(i % 10000 = 5000, 'acme', 'default'),
           printf('k-%09d', i), iif(i = 1, 'first.of.all', 'a.type'), '{}', ?2 - (?1 - i) * 1000, ?2, 'skipped', ?2
      FROM n";

/// A service that has had so many events.
fn with_past(events: u32) -> Rig {
    let mut rig = Rig::new();
    rig.tenant("acme");
    rig.stop();
    let conn = rig.writable();
    let trigger = "SELECT sql FROM sqlite_master WHERE name = 'outbox_own_columns_are_left_out'";
    let trigger: String = conn.query_row(trigger, [], |row| row.get(0)).unwrap();
    conn.run("PRAGMA synchronous = OFF; DROP TRIGGER outbox_own_columns_are_left_out");
    conn.execute(PAST, (events, START.ms())).unwrap();
    conn.run(&trigger);
    drop(conn);
    rig.start_again();
    rig
}

/// What a list has, and in how many pages.
#[track_caller]
fn all(rig: &Rig, token: &str, path: &str) -> (Vec<Value>, usize) {
    let (mut items, mut after, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let page = rig.get_as(token, &format!("{path}{after}"));
        pages += 1;
        items.extend(page["items"].as_array().unwrap().iter().cloned());
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return (items, pages),
        }
    }
}

#[test]
fn a_rare_row_is_found_page_by_page_and_an_indexed_one_at_once() {
    let rig = with_past(3 * MAX_LOOKED_AT - 1);
    let webhook_id = id::webhook_id("default", "sql", "k-000000001");
    for query in ["event_type=first.of.all".to_owned(), format!("webhook_id={webhook_id}")] {
        let (found, pages) = all(&rig, &rig.token, &format!("/v1/events?{query}"));
        assert_eq!(found.len(), 1, "{query}");
        assert_eq!(found[0]["idempotency_key"], "k-000000001", "{query}");
        assert_eq!(pages, 3, "{query}");
    }
    for (query, count) in [
        ("idempotency_key=k-000000001", 1),
        ("idempotency_key=k-000000001&event_type=a.type", 0),
        ("since=2026-01-31T11:59:58Z", 3),
        // 29,998 s before the start.
        ("until=2026-01-31T03:40:04Z", 2),
        ("until=2026-01-31T03:40:04Z&event_type=first.of.all", 1),
    ] {
        let (found, pages) = all(&rig, &rig.token, &format!("/v1/events?{query}"));
        assert_eq!((found.len(), pages), (count, 1), "{query}");
    }
    let acme = rig.token_in("acme", "read");
    let (found, pages) = all(&rig, &acme, "/v1/events?limit=500");
    assert_eq!((found.len(), pages), (3, 1));
}

#[test]
fn a_list_that_takes_too_long_is_given_up_and_says_what_is_quick() {
    let rig = with_past(MAX_LOOKED_AT);
    let over = AtomicBool::new(false);
    let refused = thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                rig.time.advance(secs(1));
            }
        });
        // The list may have ended before the time was looked at.
        let ask = || rig.call("GET", "/v1/events?event_type=none", b"");
        let refused = (0..1000).map(|_| ask()).find(|answer| answer.status == 503);
        over.store(true, Ordering::SeqCst);
        refused.unwrap()
    });
    assert_eq!(
        refused.detail(),
        "The list took longer than 1 s and was stopped. It is faster with: idempotency_key, aggregate_id, \
         parent_id, process_id, trace_id, since, until."
    );
    assert_eq!(refused.field("retry-after"), Some("1"));
    // The connection is as good as before.
    assert_eq!(rig.items("/v1/events?event_type=a.type").len(), 50);
}

#[test]
fn while_sixteen_scan_each_webhook_and_event_is_taken() {
    let rig = with_past(300_000);
    let secret = "a-shared-secret-of-32-characters";
    rig.token_provider("plain", secret);
    let read = rig.token_of("read");
    let (over, listed) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                while !over.load(Ordering::SeqCst) {
                    let answer = rig.call_as(&read, "GET", "/v1/events?event_type=none", b"");
                    listed.fetch_add(usize::from(answer.status == 200), Ordering::SeqCst);
                    let later = (answer.status, answer.field("retry-after")) == (503, Some("1"));
                    assert!(answer.status == 200 || later, "{}", answer.status);
                }
            });
        }
        for n in 0..40 {
            let body = json!({ "id": format!("w-{n}"), "type": "a" }).to_string();
            rig.send("POST", "/in/plain", &[("X-Token", secret)], body.as_bytes()).is(200);
            rig.publish_type("a");
        }
        over.store(true, Ordering::SeqCst);
    });
    assert!(listed.into_inner() > 0, "nobody was shown anything");
}

/// Deliveries that wait, each of an event of its own.
const WAITING: [&str; 2] = [
    "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10001)
     INSERT INTO outbox (seq, id, idempotency_key, event_type, payload, received_at, routed_at, open_deliveries, own)
     SELECT i, printf('01980000-0000-7000-8000-%012x', i), printf('k-%09d', i), 'a', '{}', 1, 1, 1, 1 FROM n",
    "INSERT INTO deliveries (outbox_seq, subscription_seq, tenant, order_at, state, due_at)
     SELECT seq, 1, 'default', 1, 'pending', 1 FROM outbox",
];

#[test]
fn what_waits_in_a_long_queue_is_counted_once_a_second() {
    let (mut rig, _receiver) = Rig::subscribed("erp");
    rig.call("POST", "/v1/subscriptions/erp/pause", b"{}").is(200);
    rig.stop();
    let conn = rig.writable();
    for rows in WAITING {
        conn.run(rows);
    }
    drop(conn);
    rig.start_again();
    let pending = || rig.get("/v1/stats")["pending"].clone();
    assert_eq!(pending(), 10_001);
    for n in 1..=2 {
        rig.call("POST", &format!("/v1/deliveries/dlv_{n}/cancel"), b"{}").is(200);
    }
    assert_eq!(pending(), 10_001);
    rig.advance(secs(1));
    assert_eq!(pending(), 9_999);
    rig.call("POST", "/v1/deliveries/dlv_3/cancel", b"{}").is(200);
    assert_eq!(pending(), 9_998);
}
