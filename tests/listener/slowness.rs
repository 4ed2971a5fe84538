//! Clients that take their time.

use crate::listener::rig::prelude::*;

const SHORT: Duration = Duration::from_millis(300);

#[test]
fn an_idle_connection_is_closed_without_a_word() {
    let rig = Rig::new(Limits { idle_timeout: SHORT, ..Limits::default() });
    let (mut fresh, mut used) = (rig.client(), rig.client());
    used.send(get("/echo"));
    assert_eq!(used.answer().status, 200);
    assert!(fresh.rest().is_empty() && used.rest().is_empty());
    assert_eq!(rig.server.stats().timeouts, 0);
}

#[test]
fn a_head_that_comes_byte_by_byte_is_timed_out() {
    let rig = Rig::new(Limits { head_timeout: SHORT, ..Limits::default() });
    let mut client = rig.client();
    let mut sender = client.0.try_clone().unwrap();
    let started = Instant::now();
    let sending = thread::spawn(move || {
        for byte in get(&"/slow".repeat(1000)).as_bytes() {
            thread::sleep(Duration::from_millis(20));
            if sender.write_all(&[*byte]).is_err() {
                return;
            }
        }
    });
    let answer = client.answer();
    assert_eq!((answer.status, answer.field("connection")), (408, Some("close")));
    assert!(started.elapsed() >= SHORT);
    sending.join().unwrap();
    assert!(client.rest().is_empty());
    assert_eq!(rig.server.stats().timeouts, 1);
    rig.works();
}

#[test]
fn a_body_that_does_not_come_is_timed_out() {
    let rig = Rig::new(Limits { body_timeout: SHORT, ..Limits::default() });
    for framing in ["Content-Length: 100", "Transfer-Encoding: chunked\r\nContent-Type: x"] {
        let path = if framing.starts_with('T') { "/tiny" } else { "/echo" };
        let mut client = rig.client();
        client.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n5\r\nhel"));
        let started = Instant::now();
        assert_eq!(client.answer().status, 408);
        assert!(started.elapsed() >= SHORT);
        assert!(client.rest().is_empty());
    }
}

#[test]
fn a_long_body_gets_the_time_it_needs() {
    let rig = Rig::new(Limits { body_timeout: SHORT, ..Limits::default() });
    let mut client = rig.client();
    let body = "x".repeat(400_000);
    client
        .send(format!("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len()));
    for piece in body.as_bytes().chunks(40_000) {
        thread::sleep(SHORT / 5);
        client.send(piece);
    }
    assert_eq!(client.answer().body.len(), body.len());
}

#[test]
fn a_client_that_does_not_take_its_answer_is_cut_off() {
    let rig = Rig::new(Limits { answer_timeout: SHORT, ..Limits::default() });
    let mut client = rig.client();
    client.send(get("/large"));
    until("the answer is given up", || rig.server.stats().timeouts == 1);
    until("the connection is gone", || rig.server.stats().connections == 0);
    assert!(client.rest().len() < LARGE);
    assert_eq!(rig.server.stats().buffered_bytes, 0);
    rig.works();
}

#[test]
fn a_client_that_never_closes_a_closed_connection_is_closed_for_it() {
    let rig = Rig::new(Limits::default());
    let mut client = rig.client();
    client.send("NONSENSE\r\n\r\n");
    assert_eq!(client.answer().status, 400);
    until("the connection is gone", || rig.server.stats().connections == 0);
}
