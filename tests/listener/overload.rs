//! More than the server takes, of everything.

use std::io::ErrorKind;

use crate::listener::rig::prelude::*;

/// As many files as this user may open.
const MANY_FILES: &str = "ulimit -n \"$(ulimit -Hn)\"";

#[test]
fn two_thousand_idle_connections_cost_little_and_hold_up_nobody() {
    if in_own_process(
        "overload::two_thousand_idle_connections_cost_little_and_hold_up_nobody",
        MANY_FILES,
    ) {
        let rig = Rig::new(Limits { connections_per_address: 3_000, ..Limits::default() });
        rig.works();
        let before = resident_kib();
        let mut clients: Vec<Client> = (0..2_000).map(|_| rig.client()).collect();
        until("all are accepted", || rig.server.stats().connections >= 2_000);
        rig.works();
        assert!(resident_kib() < before + 16 * 1024, "{} KiB more", resident_kib() - before);
        for client in clients.iter_mut().step_by(100) {
            client.send(get("/later"));
            assert_eq!(client.answer().status, 200);
        }
        until("nothing is held", || rig.server.stats().buffered_bytes == 0);
    }
}

#[test]
fn when_the_system_has_no_sockets_left_accepting_pauses_and_goes_on() {
    if in_own_process(
        "overload::when_the_system_has_no_sockets_left_accepting_pauses_and_goes_on",
        "ulimit -n 64",
    ) {
        let rig = Rig::new(Limits::default());
        let mut kept = rig.client();
        kept.send(get("/echo"));
        assert_eq!(kept.answer().status, 200);
        let mut clients = Vec::new();
        while let Ok(client) = TcpStream::connect(rig.address) {
            clients.push(client);
        }
        until("accepting pauses", || rig.server.stats().accept_pauses > 0);
        let paused = rig.server.stats().accept_pauses;
        for _ in 0..5 {
            thread::sleep(Duration::from_millis(50));
            kept.send(get("/later"));
            assert_eq!(kept.answer().status, 200);
        }
        assert!(rig.server.stats().accept_pauses - paused <= 10, "accepting spins");
        drop(clients);
        until("sockets are free", || rig.server.stats().connections == 1);
        rig.works();
    }
}

#[test]
fn connections_beyond_the_cap_of_an_address_are_closed_at_once() {
    let rig = Rig::new(Limits { connections_per_address: 3, ..Limits::default() });
    let mut clients: Vec<Client> = (0..3).map(|_| rig.client()).collect();
    assert!(rig.client().rest().is_empty());
    assert_eq!(rig.server.stats().refused, 1);
    for client in &mut clients {
        client.send(get("/echo"));
        assert_eq!(client.answer().status, 200);
    }
    clients.pop();
    until("one is gone", || rig.server.stats().connections == 2);
    rig.works();
}

#[test]
fn connections_beyond_the_cap_of_the_server_are_closed_at_once() {
    let rig = Rig::new(Limits { connections: 2, ..Limits::default() });
    let mut clients = [rig.client(), rig.client()];
    for client in &mut clients {
        client.send(get("/block"));
        rig.entered.recv().unwrap();
    }
    assert!(rig.client().rest().is_empty());
    // Which of the two goes on first is the handlers' affair.
    for _ in &clients {
        rig.gate.send(()).unwrap();
    }
    for client in &mut clients {
        assert!(matches!(client.head().get(..12), Some("HTTP/1.1 200")));
    }
    drop(clients);
    until("all are gone", || rig.server.stats().connections == 0);
    rig.works();
}

#[test]
fn the_longest_idle_connection_makes_room_for_a_new_one() {
    let rig = Rig::new(Limits { connections: 2, ..Limits::default() });
    let mut clients = [rig.client(), rig.client()];
    for client in &mut clients {
        client.send(get("/echo"));
        assert_eq!(client.answer().status, 200);
    }
    rig.works();
    let [oldest, other] = &mut clients;
    assert!(oldest.rest().is_empty(), "it was closed");
    other.send(get("/echo"));
    assert_eq!(other.answer().status, 200);
    assert_eq!(rig.server.stats().refused, 0);
}

#[test]
fn when_too_many_requests_wait_the_next_is_told_when_to_come_again() {
    let rig = Rig::new(Limits { handlers: 1, pending: 2, ..Limits::default() });
    let mut first = rig.client();
    first.send(get("/block"));
    rig.entered.recv().unwrap();
    let mut waiting: Vec<Client> = (0..3).map(|_| rig.client()).collect();
    for client in &mut waiting {
        client.send(get("/echo"));
    }
    until("one is refused", || rig.server.stats().overloaded == 1);
    rig.gate.send(()).unwrap();
    assert_eq!(first.answer().status, 200);
    let answers: Vec<_> = waiting.iter_mut().map(Client::answer).collect();
    let refused: Vec<_> = answers.iter().filter(|answer| answer.status == 503).collect();
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0].field("retry-after"), Some("1"));
    assert_eq!(refused[0].field("connection"), None);
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 2);
}

#[test]
fn every_handler_of_a_payer_is_woken_while_the_others_are_busy() {
    // The fourth handler is kept for other payers.
    let rig = Rig::new(Limits { handlers: 4, ..Limits::default() });
    for _ in 0..50 {
        let mut clients: Vec<Client> = (0..3).map(|_| rig.client()).collect();
        for client in &mut clients {
            client.send(get("/block"));
        }
        for _ in 0..3 {
            rig.entered.recv_timeout(crate::rig::PATIENCE).unwrap();
        }
        for _ in 0..3 {
            rig.gate.send(()).unwrap();
        }
        for client in &mut clients {
            assert_eq!(client.answer().status, 200);
        }
    }
}

#[test]
fn a_payer_whose_requests_hold_handlers_leaves_one_to_another() {
    let rig = Rig::new(Limits { handlers: 4, pending: 8, ..Limits::default() });
    let mut many: Vec<Client> = (0..12).map(|_| rig.client()).collect();
    let (first, more) = many.split_at_mut(3);
    for client in first {
        client.send(get("/block"));
        rig.entered.recv().unwrap();
    }
    for client in more {
        client.send(get("/block"));
    }
    // Six of the eight places for what waits are theirs.
    until("three are refused", || rig.server.stats().overloaded == 3);
    let mut other = rig.client();
    other.send(b"GET /block HTTP/1.1\r\nhost: x\r\ntenant: acme\r\n\r\n");
    rig.entered.recv().unwrap();
    (0..10).for_each(|_| rig.gate.send(()).unwrap());
    assert_eq!(other.answer().status, 200);
    let answers = many.iter_mut().map(|client| client.answer().status);
    assert_eq!(answers.filter(|status| *status == 200).count(), 9);
}

#[test]
fn honest_requests_are_answered_while_others_misbehave() {
    if in_own_process("overload::honest_requests_are_answered_while_others_misbehave", MANY_FILES) {
        let rig = Rig::new(Limits { connections_per_address: 5_000, ..Limits::default() });
        rig.works();
        let (threads, before) = (server_threads(), resident_kib());
        let idle: Vec<Client> = (0..1_000).map(|_| rig.client()).collect();
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| dribble(&rig, &done));
            scope.spawn(|| babble(&rig, &done));
            let honest = [(); 4].map(|()| scope.spawn(|| be_honest(&rig)));
            for client in honest {
                client.join().unwrap();
            }
            done.store(true, Ordering::SeqCst);
        });
        assert_eq!(server_threads(), threads);
        assert!(resident_kib() < before + 48 * 1024, "{} KiB more", resident_kib() - before);
        drop(idle);
    }
}

/// 200 heads, a byte each in turn.
fn dribble(rig: &Rig, done: &AtomicBool) {
    let mut clients: Vec<Client> = (0..200).map(|_| rig.client()).collect();
    for byte in get(&"/slow".repeat(3000)).as_bytes() {
        for client in &mut clients {
            client.send([*byte]);
        }
        thread::sleep(Duration::from_millis(20));
        if done.load(Ordering::SeqCst) {
            return;
        }
    }
}

/// One nonsense after the other, each on a new connection that is left without a look at the answer.
fn babble(rig: &Rig, done: &AtomicBool) {
    let long = "X".repeat(100_000);
    let nonsense =
        ["\x16\x03\x01", "GET\r\n\r\n", long.as_str(), "POST / HTTP/1.1\r\nContent-Length: 9\r\n"];
    for bytes in nonsense.iter().cycle() {
        let mut client = rig.client();
        if let Err(error) = client.0.write_all(bytes.as_bytes()) {
            assert!(matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe));
        }
        thread::sleep(Duration::from_millis(2));
        if done.load(Ordering::SeqCst) {
            return;
        }
    }
}

/// Requests one after another; each is answered, and none is refused.
fn be_honest(rig: &Rig) {
    let mut client = rig.client();
    for _ in 0..500 {
        client.send(post("/later", "an honest request"));
        assert_eq!(client.answer().status, 200);
        thread::sleep(Duration::from_millis(1));
    }
}

fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Threads of this process that belong to a server.
fn server_threads() -> usize {
    let names = fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| fs::read_to_string(task.unwrap().path().join("comm")).ok());
    names.filter(|name| name.starts_with("http-")).count()
}
