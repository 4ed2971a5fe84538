//! What is answered, in which order, and what happens when an answer does not come or does not fit.

use crate::listener::rig::prelude::*;

fn rig() -> Rig {
    Rig::new(Limits::default())
}

#[test]
fn a_connection_serves_many_requests() {
    let rig = rig();
    let mut client = rig.client();
    for path in ["/echo", "/later", "/echo", "/echo?x", "/later"] {
        client.send(post(path, path));
        let answer = client.answer();
        assert_eq!((answer.status, answer.body.as_slice()), (200, path.as_bytes()));
        assert!(answer.field("connection").is_none() && answer.field("date").is_some());
    }
    assert_eq!(rig.server.stats().accepted, 1);
}

#[test]
fn a_service_that_hangs_up_gives_no_answer_and_harms_nobody_else() {
    let rig = rig();
    let mut client = rig.client();
    client.send(post("/hang-up", "lost"));
    assert_eq!(client.rest(), b"");
    rig.works();
}

#[test]
fn pipelined_requests_are_answered_in_order_whichever_thread_answers() {
    let rig = rig();
    let mut client = rig.client();
    let paths = ["/later", "/echo", "/later", "/echo", "/panic", "/drop"];
    let requests = (0..300).map(|n| (paths[n % paths.len()], n.to_string()));
    let all: String = requests.clone().map(|(path, body)| post(path, &body)).collect();
    client.send(all);
    for (path, body) in requests {
        let answer = client.answer();
        if path == "/panic" || path == "/drop" {
            assert_eq!(answer.status, 500);
        } else {
            assert_eq!((answer.status, answer.body.as_slice()), (200, body.as_bytes()));
        }
    }
}

#[test]
fn a_large_body_arrives_whole_in_both_codings() {
    let rig = rig();
    let body = "0123456789abcdef".repeat(20 * 65536);
    let mut client = rig.client();
    client.send(post("/big", &body));
    assert!(client.answer().body == body.as_bytes());
    let chunk = format!("10000\r\n{}\r\n", "0123456789abcdef".repeat(4096));
    client.send("POST /big HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send(chunk.repeat(320) + "0\r\n\r\n");
    assert!(client.answer().body == body.as_bytes());
}

#[test]
fn head_is_answered_like_get_without_the_body() {
    let rig = rig();
    let mut client = rig.client();
    client.send("HEAD /large HTTP/1.1\r\nHost: a\r\n\r\n".to_owned() + &post("/echo", "next"));
    let answer = client.answer_to_head();
    assert_eq!((answer.status, answer.field("content-length")), (200, Some("20000000")));
    assert_eq!(client.answer().body, b"next");
}

#[test]
fn http_1_0_is_answered_and_closed_unless_asked_to_stay() {
    let rig = rig();
    let (answer, closed) = rig.exchange("GET / HTTP/1.0\r\n\r\n");
    assert_eq!((answer.status, answer.field("connection"), closed), (200, Some("close"), true));
    let (answer, closed) = rig.exchange("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!(
        (answer.status, answer.field("connection"), closed),
        (200, Some("keep-alive"), false)
    );
}

#[test]
fn either_side_may_ask_for_the_connection_to_end() {
    let rig = rig();
    let (answer, closed) = rig.exchange("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!((answer.status, answer.field("connection"), closed), (200, Some("close"), true));
    let (answer, closed) = rig.exchange(get("/bye"));
    assert_eq!((answer.status, answer.field("connection"), closed), (200, Some("close"), true));
}

#[test]
fn a_client_that_has_ended_its_side_is_still_answered() {
    let rig = rig();
    for path in ["/echo", "/later"] {
        let mut client = rig.client();
        client.send(post(path, "last words"));
        client.half_close();
        assert_eq!(client.answer().body, b"last words");
        assert!(client.rest().is_empty());
    }
}

#[test]
fn a_client_that_waits_with_its_body_is_told_to_go_on() {
    let rig = rig();
    let mut client = rig.client();
    let head = |path| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
        )
    };
    client.send(head("/echo"));
    assert_eq!(client.head(), "HTTP/1.1 100 Continue\r\n\r\n");
    client.send("ok");
    assert_eq!(client.answer().body, b"ok");
    client.send(head("/missing"));
    assert_eq!(client.answer().status, 404);
    assert!(client.rest().is_empty());
}

#[test]
fn a_panic_in_the_service_is_answered_500_and_the_next_request_as_ever() {
    let rig = rig();
    let mut client = rig.client();
    for path in ["/panic", "/limit-panic"] {
        client.send(get(path));
        let answer = client.answer();
        assert_eq!(answer.status, 500);
        assert_eq!(answer.field("content-type"), Some("application/problem+json"));
        client.send(post("/echo", "next"));
        assert_eq!(client.answer().body, b"next");
    }
    // It is counted when it is caught, which may be after the answer.
    until("both are counted", || rig.server.stats().panics == 2);
}

#[test]
fn a_reply_that_is_dropped_is_answered_500() {
    let rig = rig();
    for path in ["/drop", "/drop-later", "/no-status"] {
        let (answer, _) = rig.exchange(get(path));
        assert_eq!((answer.status, answer.body.is_empty()), (500, false));
    }
}

#[test]
fn a_client_that_goes_away_mid_answer_leaves_nothing_behind() {
    let rig = rig();
    let mut client = rig.client();
    client.send(get("/large"));
    client.0.read_exact(&mut [0; 1000]).unwrap();
    until("the answer waits", || rig.server.stats().buffered_bytes > 0);
    drop(client);
    until("the connection is gone", || rig.server.stats().connections == 0);
    assert_eq!(rig.server.stats().buffered_bytes, 0);
    rig.works();
}

#[test]
fn a_client_that_goes_away_before_its_answer_leaves_nothing_behind() {
    let rig = rig();
    let mut client = rig.client();
    client.send(post("/hold", "x"));
    let (request, reply) = rig.held.recv().unwrap();
    // More input than was read makes the kernel send a reset.
    client.send(get("/echo"));
    drop(client);
    rig.works();
    reply.send(echo(request));
    until("the connection is gone", || rig.server.stats().connections == 0);
}

#[test]
fn a_slow_reader_gets_all_of_a_large_answer_and_holds_up_nobody() {
    let rig = rig();
    let mut client = rig.client();
    client.send(get("/large"));
    let mut buffer = vec![0; LARGE / 20];
    assert_eq!(client.answer_to_head().status, 200);
    for _ in 0..20 {
        thread::sleep(Duration::from_millis(10));
        rig.works();
        client.0.read_exact(&mut buffer).unwrap();
    }
    client.send(post("/echo", "next"));
    assert_eq!(client.answer().body, b"next");
}

#[test]
fn a_stop_answers_what_is_in_hand_or_begun_and_nothing_else() {
    let rig = rig();
    let mut idle = rig.client();
    let mut begun = rig.client();
    let mut client = rig.client();
    client.send(post("/hold", "in hand"));
    begun.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\no");
    let (request, reply) = rig.held.recv().unwrap();
    rig.exchange(post("/echo", "all are accepted by now"));
    let server = Arc::clone(&rig.server);
    let stopping = thread::spawn(move || server.stop(Duration::from_secs(10)));
    assert!(idle.rest().is_empty());
    let gone = || TcpStream::connect(rig.address).is_err();
    until("no connection is accepted", gone);
    begun.send("k");
    let answer = begun.answer();
    assert_eq!((answer.body.as_slice(), answer.field("connection")), (&b"ok"[..], Some("close")));
    assert!(!stopping.is_finished());
    reply.send(echo(request));
    let answer = client.answer();
    assert_eq!(
        (answer.body.as_slice(), answer.field("connection")),
        (&b"in hand"[..], Some("close"))
    );
    stopping.join().unwrap();
}

#[test]
fn a_stop_does_not_wait_beyond_its_grace() {
    let rig = rig();
    let mut client = rig.client();
    client.send(post("/hold", "in hand"));
    let (request, reply) = rig.held.recv().unwrap();
    rig.server.stop(Duration::from_millis(50));
    assert!(client.rest().is_empty());
    // A reply that comes too late is nobody's.
    reply.send(echo(request));
}

#[test]
fn one_server_answers_on_several_sockets() {
    use oncebox::{base::clock::Clock, http::server};
    let rig = rig();
    let bind = || server::bind(([127, 0, 0, 1], 0).into()).unwrap();
    let doors = vec![bind(), bind()];
    let addresses: Vec<_> = doors.iter().map(|door| door.local_addr().unwrap()).collect();
    let service = Arc::new(Nothing);
    let setup = Setup::new(Limits::default(), Clock::machine());
    let server = server::Server::start(doors, setup, service).unwrap();
    for address in addresses {
        let mut client = Client::new(address);
        client.send(get("/"));
        assert_eq!(client.answer_to_head().status, 204);
    }
    drop(server);
    rig.works();
}

struct Nothing;

impl oncebox::http::service::Service for Nothing {
    fn body_limit(
        &self,
        _: &oncebox::http::message::Head,
    ) -> Result<usize, oncebox::http::message::Response> {
        Err(oncebox::http::message::Response::new(204))
    }
    fn call(&self, _: oncebox::http::message::Request, _: oncebox::http::service::Reply) {}
    fn refusal(&self, status: u16, _: &str) -> oncebox::http::message::Response {
        oncebox::http::message::Response::new(status)
    }
}
