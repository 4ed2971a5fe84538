//! Nobody waits for somebody else's endpoint. What hangs here hangs to the end of the test, so that whoever had to
//! wait for it would wait in vain.

use crate::rig::prelude::*;

/// As many as deliverers, and half as many again.
const DEAD: usize = 96;

fn rig(timeout: u64) -> Rig {
    Rig::with(|settings| {
        settings.delivery.deliverers = 64;
        settings.delivery.timeout = secs(timeout);
    })
}

/// The tokens of so many tenants; the first is `default`.
fn tenants(rig: &Rig, count: usize) -> Vec<String> {
    let more = (1..count).map(|n| rig.tenant(&format!("tenant-{n}")));
    std::iter::once(rig.token.clone()).chain(more).collect()
}

fn subscribe(rig: &Rig, token: &str, name: &str, to: &Receiver) {
    let body = json!({ "name": name, "url": to.url(), "event_types": [name.split('-').next()] });
    rig.post_as(token, "/v1/subscriptions", &body).is(201);
}

fn publish(rig: &Rig, token: &str, event_type: &str) {
    rig.post_as(token, "/v1/events", &json!({ "event_type": event_type, "payload": {} })).is(201);
}

/// Shares the endpoints that are dead out among the tenants.
fn subscribe_dead(rig: &Rig, tokens: &[String], to: &Receiver) {
    for (n, token) in (0..DEAD).zip(tokens.iter().cycle()) {
        subscribe(rig, token, &format!("dead-{n}"), to);
    }
}

/// Publishes an event for those who live until that many more have come.
#[track_caller]
fn goes_on(rig: &Rig, token: &str, alive: &Receiver, count: usize) {
    for _ in 0..count {
        let before = alive.count();
        publish(rig, token, "alive");
        until("a healthy endpoint gets its event", || alive.count() > before);
    }
}

#[test]
fn endpoints_that_were_never_called_leave_deliverers_to_others_new_or_not() {
    for count in [1, 20] {
        let (rig, alive, dead) = (rig(120), Receiver::new(), Receiver::new());
        dead.always(Reply::Hang);
        let tokens = tenants(&rig, count);
        subscribe(&rig, &rig.token, "alive", &alive);
        goes_on(&rig, &rig.token, &alive, 1);
        subscribe_dead(&rig, &tokens, &dead);
        for token in &tokens {
            publish(&rig, token, "dead");
        }
        until("they hang", || dead.count() >= 32);
        goes_on(&rig, &rig.token, &alive, 20);
        let new = Receiver::new();
        subscribe(&rig, &rig.token, "alive-new", &new);
        goes_on(&rig, &rig.token, &new, 20);
        assert!(dead.count() <= DEAD, "nobody had two turns");
        dead.release();
    }
}

#[test]
fn a_new_endpoint_is_called_although_a_hundred_new_ones_of_its_host_hang() {
    for (count, timeout) in [(1, 30), (1, 60), (2, 60), (20, 60)] {
        let (rig, receiver) = (rig(timeout), Receiver::new());
        receiver.decide(|request| {
            let is_healthy = request.first_line.contains("/healthy");
            if is_healthy { Reply::status(200) } else { Reply::Hang }
        });
        let tokens = tenants(&rig, count);
        subscribe_dead(&rig, &tokens, &receiver);
        let url = format!("{}/healthy", receiver.url());
        let body = json!({ "name": "dead-not", "url": url, "event_types": ["dead"] });
        rig.post("/v1/subscriptions", &body).is(201);
        for token in &tokens {
            publish(&rig, token, "dead");
        }
        let attempts = |name: &str| -> usize {
            let sql = format!(
                "SELECT count(*) FROM attempts AS a JOIN deliveries AS d ON d.seq = a.delivery_seq
                   JOIN subscriptions AS s ON s.seq = d.subscription_seq WHERE {name}"
            );
            rig.one(&sql).parse().unwrap()
        };
        until("the healthy one gets its event", || attempts("s.name = 'dead-not'") == 1);
        // The first ones still hang: nobody had to wait for their time limit.
        let whole = attempts("s.name <> 'dead-not' AND a.failed_reason NOT LIKE '%first try%'");
        assert_eq!(whole, 0);
        assert!(attempts("a.counted = 1") == 0, "what was cut short is not counted");
        receiver.release();
    }
}

#[test]
fn endpoints_that_failed_before_a_restart_leave_deliverers_to_a_new_one() {
    for count in [1, 20] {
        let (mut rig, alive, dead) = (rig(120), Receiver::new(), Receiver::new());
        dead.always(Reply::status(500));
        let tokens = tenants(&rig, count);
        subscribe_dead(&rig, &tokens, &dead);
        for token in &tokens {
            publish(&rig, token, "dead");
        }
        rig.has_sent(&dead, DEAD);
        dead.always(Reply::Hang);
        rig.restart();
        rig.advance(secs(5));
        until("they hang", || dead.count() == DEAD + 32);
        subscribe(&rig, &rig.token, "alive", &alive);
        goes_on(&rig, &rig.token, &alive, 20);
        assert_eq!(dead.count(), DEAD + 32, "half of the deliverers");
        dead.release();
    }
}

#[test]
fn endpoints_that_never_answer_get_their_retries_while_others_go_on() {
    for count in [1, 20] {
        let (rig, alive, dead) = (rig(1), Receiver::new(), Receiver::new());
        dead.always(Reply::Hang);
        let tokens = tenants(&rig, count);
        subscribe(&rig, &rig.token, "alive", &alive);
        subscribe_dead(&rig, &tokens, &dead);
        for token in &tokens {
            publish(&rig, token, "dead");
        }
        let (mut last, mut wanted) = (Instant::now(), 0);
        let conn = rig.file();
        let tried = "SELECT count(*) FROM deliveries AS d JOIN subscriptions AS s
                         ON s.seq = d.subscription_seq WHERE s.name <> 'alive' AND attempt_count > 1";
        // The clock goes as fast as the wall's, by which the time limits are.
        until("each was tried twice, with events coming through all the while", || {
            rig.advance(last.elapsed());
            last = Instant::now();
            if alive.count() == wanted {
                publish(&rig, &rig.token, "alive");
                wanted += 1;
            }
            conn.query_row(tried, [], |row| row.get::<_, isize>(0)) == Ok(DEAD.cast_signed())
        });
        until("the last one comes", || alive.count() == wanted);
        assert!(wanted > 20, "{wanted} of those who live");
        dead.release();
    }
}

#[test]
fn a_tenant_with_a_flood_has_half_of_the_deliverers_while_another_has_something_due() {
    let (rig, flooded, held, alive) = (rig(120), Receiver::new(), Receiver::new(), Receiver::new());
    let tokens = tenants(&rig, 2);
    (0..DEAD).for_each(|n| subscribe(&rig, &tokens[0], &format!("flood-{n}"), &flooded));
    publish(&rig, &tokens[0], "flood");
    rig.has_sent(&flooded, DEAD);
    // The other tenant has one request under way, and more that wait for its end.
    subscribe(&rig, &tokens[1], "held", &held);
    let one = json!({ "policy": { "in_flight_max": 1 } }).to_string();
    rig.call_as(&tokens[1], "PATCH", "/v1/subscriptions/held", one.as_bytes()).is(200);
    held.always(Reply::Hang);
    (0..3).for_each(|_| publish(&rig, &tokens[1], "held"));
    until("it hangs", || held.count() == 1);
    flooded.always(Reply::Hang);
    publish(&rig, &tokens[0], "flood");
    until("the flood has its share", || flooded.count() == DEAD + 32);
    subscribe(&rig, &tokens[1], "alive", &alive);
    goes_on(&rig, &tokens[1], &alive, 10);
    assert_eq!(flooded.count(), DEAD + 32);
    held.release();
    until("the flood has the rest", || flooded.count() == DEAD + 64);
    flooded.release();
}

#[test]
fn jobs_that_take_hours_keep_no_other_tenants_from_beginning() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    let tokens = tenants(&rig, 2);
    for token in &tokens {
        subscribe(&rig, token, "alive", &receiver);
        (0..3).for_each(|_| publish(&rig, token, "alive"));
    }
    rig.settle();
    let job = |token: &str| {
        let body = json!({ "filter": { "event_type": "alive" }, "rate": 1 });
        rig.post_as(token, "/v1/events/replay", &body).is(201).json()
    };
    // Their rate is counted by a clock that stands still.
    let slow: Vec<_> = (0..20).map(|_| job(&tokens[0])).collect();
    until("the first of them has begun", || {
        let path = format!("/v1/jobs/{}", slow[0]["id"].as_str().unwrap());
        rig.get(&path)["done"] != 0
    });
    let path = format!("/v1/jobs/{}", job(&tokens[1])["id"].as_str().unwrap());
    until("another tenant's begins", || rig.get_as(&tokens[1], &path)["done"] != 0);
    assert_eq!(rig.get(&format!("/v1/jobs/{}", slow[19]["id"].as_str().unwrap()))["done"], 0);
}
