//! What is wrong on our side costs nobody a delivery, and what is refused is refused before it costs us.

use crate::rig::prelude::*;

/// Changes the file as a person with a shell would, while nothing serves it.
fn edit(rig: &mut Rig, sql: &str) {
    rig.stop();
    let conn = rig.writable();
    assert_eq!(conn.execute(sql, []).unwrap(), 1, "{sql}");
    drop(conn);
    rig.start_again();
}

#[test]
fn a_secret_that_does_not_open_kills_no_delivery() {
    let (mut rig, receiver) = Rig::subscribed("erp");
    let sealed = rig.one("SELECT hex(sealed) FROM credentials");
    edit(&mut rig, "UPDATE credentials SET sealed = x'00'");
    rig.publish_type("invoice.paid");
    rig.advance(secs(60));
    thread::yield_now();
    assert_eq!(rig.get("/v1/dead-letters")["items"], json!([]));
    assert_eq!(rig.get("/v1/deliveries")["items"][0]["state"], "pending");
    assert_eq!(rig.get("/v1/deliveries")["items"][0]["attempt_count"], 0);
    edit(&mut rig, &format!("UPDATE credentials SET sealed = x'{sealed}'"));
    rig.passing("it is delivered once the secret is mended", secs(30), || receiver.count() == 1);
    rig.settle();
}

#[test]
fn a_subscription_that_cannot_be_read_stops_no_other() {
    let mut rig = Rig::new();
    let (good, bad) = (Receiver::new(), Receiver::new());
    rig.subscribe("good", &good);
    rig.subscribe("bad", &bad);
    let url = bad.url();
    edit(&mut rig, "UPDATE subscriptions SET url = 'nonsense' WHERE name = 'bad'");
    rig.deliver("invoice.paid");
    assert_eq!((good.count(), bad.count()), (1, 0));
    edit(&mut rig, &format!("UPDATE subscriptions SET url = '{url}' WHERE name = 'bad'"));
    rig.deliver("invoice.paid");
    assert_eq!((good.count(), bad.count()), (2, 1));
}

#[test]
fn a_body_from_nobody_is_refused_at_its_head() {
    let rig = Rig::new();
    for (path, status) in [("/v1/events", "401"), ("/in/nobody", "404")] {
        let mut socket = TcpStream::connect(rig.address()).unwrap();
        socket.set_read_timeout(Some(crate::rig::PATIENCE)).unwrap();
        let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
        socket.write_all(head.as_bytes()).unwrap();
        let mut answer = [0; 12];
        socket.read_exact(&mut answer).unwrap();
        assert_eq!(answer, format!("HTTP/1.1 {status}").as_bytes(), "{path}");
    }
}

#[test]
fn a_header_that_carries_a_secret_is_refused_because_headers_are_not_sealed() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    let headers = json!({ "Authorization": "Bearer abc" });
    let body = json!({ "name": "erp", "url": receiver.url(), "headers": headers });
    rig.post("/v1/subscriptions", &body).is(422).tells("not sealed");
}

#[test]
fn a_publisher_cannot_pass_for_a_provider() {
    let rig = Rig::new();
    let body = json!({ "event_type": "a", "payload": 1, "source_system": "in:stripe" });
    rig.post("/v1/events", &body).is(422).tells("reserved for providers");
}

#[test]
fn a_guard_claim_with_an_empty_name_is_refused_and_a_good_one_counts_once() {
    let rig = Rig::new();
    let claim = |group: &str| {
        rig.post("/v1/processed-events", &json!({ "consumer_group": group, "event_id": "evt_1" }))
    };
    claim("").is(422);
    assert_eq!(claim("logistics").is(201).json()["already_processed"], false);
    assert_eq!(claim("logistics").is(200).json()["already_processed"], true);
    assert_eq!(claim("finance").is(201).json()["already_processed"], false);
}
