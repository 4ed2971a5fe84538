//! Clients that send slowly, and how much of the memory and of the connections each may hold.

use socket2::{Domain, Socket, Type};

use crate::listener::rig::prelude::*;

/// One client's share is 1 MiB; large bodies get 6 MiB together.
const MEMORY: usize = 8 * 1024 * 1024;

const MIB: usize = 1024 * 1024;

fn limits() -> Limits {
    Limits { buffered_bytes: MEMORY, ..Limits::default() }
}

/// A server behind a proxy, which is this machine.
fn proxied(limits: Limits) -> Rig {
    let setup = Setup::new(limits, Clock::machine());
    Rig::with(Setup { proxies: Proxies::new(vec!["127.0.0.1/32".parse().unwrap()]), ..setup })
}

/// The head of a request that a proxy passes on for `198.51.100.number`.
fn head(number: usize, length: usize) -> String {
    format!(
        "POST /echo HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 198.51.100.{number}\r\n\
         Content-Length: {length}\r\n\r\n"
    )
}

/// A request of that client, of which `sent` of `length` bytes are sent.
fn begun(rig: &Rig, number: usize, (sent, length): (usize, usize)) -> Client {
    let held = || {
        let stats = rig.server.stats();
        (stats.buffered_bytes, stats.overloaded)
    };
    let before = held();
    let mut client = rig.client();
    client.send(head(number, length) + &"x".repeat(sent));
    until("it has come in", || held() != before);
    client
}

#[track_caller]
fn finishes(mut client: Client, (sent, length): (usize, usize)) {
    client.send("x".repeat(length - sent));
    let answer = client.answer();
    assert_eq!((answer.status, answer.body.len()), (200, length));
}

#[track_caller]
fn was_ended(client: &mut Client) {
    let answer = client.answer();
    assert_eq!((answer.status, answer.field("retry-after")), (503, Some("1")));
    assert_eq!(answer.field("connection"), Some("close"));
}

#[test]
fn a_byte_of_an_announced_body_holds_no_more_than_its_head() {
    let rig = Rig::new(Limits::default());
    let slow: Vec<Client> = (0..100).map(|_| begun(&rig, 1, (1, MIB))).collect();
    assert!(rig.server.stats().buffered_bytes < 100 * 1024);
    drop(slow);
    until("nothing is held", || rig.server.stats().buffered_bytes == 0);
}

#[test]
fn a_body_that_is_half_there_holds_no_more_than_twice_that() {
    let rig = Rig::new(Limits::default());
    let mut client = rig.client();
    client.send(head(1, MIB));
    for sent in 1..=8_u64 {
        client.send("x".repeat(10_000));
        until("it is held", || rig.server.stats().buffered_bytes >= 10_000 * sent);
        assert!(rig.server.stats().buffered_bytes < 20_000 * sent + 1024);
    }
}

#[test]
fn the_request_that_a_client_has_sent_for_longest_makes_room_for_its_next() {
    let rig = Rig::new(limits());
    let mut oldest = begun(&rig, 1, (600_000, 600_001));
    let next = begun(&rig, 1, (600_000, 600_001));
    was_ended(&mut oldest);
    finishes(next, (600_000, 600_001));
    assert_eq!(rig.server.stats().overloaded, 1);
    rig.works();
}

#[test]
fn one_request_may_be_larger_than_the_share_of_its_client() {
    let rig = Rig::new(limits());
    let mut client = rig.client();
    let body = "x".repeat(2 * MIB);
    client.send(format!("POST /big HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len()));
    client.send(&body);
    assert_eq!(client.answer().body.len(), body.len());
}

#[test]
fn a_client_of_a_proxy_that_sends_many_bodies_slowly_ends_its_own() {
    let rig = proxied(limits());
    let other = begun(&rig, 2, (600_000, 600_001));
    let mut slow: Vec<Client> = (0..100).map(|_| begun(&rig, 1, (1, MIB))).collect();
    for _ in 0..10 {
        for client in &mut slow {
            // Those that were ended may be closed already.
            drop(client.0.write(&[b'x'; 4_000]));
        }
    }
    until("some are ended", || rig.server.stats().overloaded > 0);
    until("it has its share", || {
        rig.server.stats().buffered_bytes <= u64::try_from(MIB + 2 * 600_000).unwrap()
    });
    was_ended(&mut slow[0]);
    finishes(other, (600_000, 600_001));
    rig.works();
}

#[test]
fn many_clients_of_a_proxy_with_large_bodies_leave_room_for_small_ones() {
    let rig = proxied(limits());
    let small = begun(&rig, 250, (60_000, 65_536));
    let mut large: Vec<Client> =
        (0..100).map(|number| begun(&rig, number, (100_000, MIB))).collect();
    was_ended(&mut large[0]);
    assert!(rig.server.stats().overloaded > 20);
    assert!(rig.server.stats().buffered_bytes <= u64::try_from(MEMORY).unwrap());
    finishes(small, (60_000, 65_536));
    let newest = large.pop().unwrap();
    finishes(newest, (100_000, MIB));
    rig.works();
}

#[test]
fn when_small_bodies_fill_the_memory_the_oldest_makes_room() {
    let rig = proxied(limits());
    let mut small: Vec<Client> =
        (0..200).map(|number| begun(&rig, number, (50_000, 65_536))).collect();
    was_ended(&mut small[0]);
    assert!(rig.server.stats().buffered_bytes <= u64::try_from(MEMORY).unwrap());
    finishes(small.pop().unwrap(), (50_000, 65_536));
    rig.works();
}

#[test]
fn what_the_service_has_is_not_ended_and_what_does_not_fit_beside_it_is_refused() {
    let rig = Rig::new(limits());
    let mut kept = rig.client();
    kept.send(post("/hold", &"x".repeat(1_000_000)));
    let (request, reply) = rig.held.recv().unwrap();
    let mut next = rig.client();
    next.send(post("/echo", &"x".repeat(200_000)));
    was_ended(&mut next);
    reply.send(echo(request));
    assert_eq!(kept.answer().body.len(), 1_000_000);
    rig.works();
}

#[test]
fn answers_that_are_not_taken_make_room() {
    let limits = Limits { buffered_bytes: 4 * LARGE, ..Limits::default() };
    let rig = proxied(limits);
    let mut clients: Vec<Client> = (0..6)
        .map(|number| {
            let mut client = rig.client();
            client.send(format!(
                "GET /large HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 198.51.100.{number}\r\n\r\n"
            ));
            client.0.read_exact(&mut [0; 12]).unwrap();
            client
        })
        .collect();
    until("some are cut off", || {
        let stats = rig.server.stats();
        stats.timeouts >= 2 && stats.buffered_bytes <= 3 * u64::try_from(LARGE).unwrap()
    });
    assert!(clients[0].rest().len() < LARGE);
    rig.works();
}

#[test]
fn a_client_of_a_proxy_may_have_as_many_requests_as_an_address_connections() {
    let rig = proxied(Limits { connections_per_address: 3, ..Limits::default() });
    let other = begun(&rig, 2, (1, 10));
    let mut mine: Vec<Client> = (0..4).map(|_| begun(&rig, 1, (1, 10))).collect();
    was_ended(&mut mine[0]);
    finishes(mine.pop().unwrap(), (1, 10));
    finishes(other, (1, 10));
    assert_eq!(rig.server.stats().refused, 0);
}

#[test]
fn slow_clients_with_all_connections_make_room_for_a_new_one() {
    let rig = Rig::new(Limits { connections: 20, ..Limits::default() });
    let mut slow: Vec<Client> = (0..20)
        .map(|number| {
            let mut client = connect_from(rig.address, 2 + number % 4);
            client.send(if number % 2 == 0 { head(1, 10) } else { "GET /ec".to_owned() });
            client
        })
        .collect();
    until("all are begun", || rig.server.stats().busy == 20);
    let answered = |rig: &Rig| {
        let mut client = rig.client();
        client.send(get("/echo"));
        client.0.read(&mut [0]).is_ok_and(|length| length == 1)
    };
    until("they are old enough", || answered(&rig));
    assert!(answered(&rig));
    assert!(slow[0].rest().is_empty(), "the oldest was closed");
    assert!(rig.server.stats().timeouts >= 1);
}

fn connect_from(to: SocketAddr, number: u8) -> Client {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, number], 0)).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(crate::rig::PATIENCE)).unwrap();
    Client(stream)
}
