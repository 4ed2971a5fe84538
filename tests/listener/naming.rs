//! Every request has a name and an address, and neither can be forged.

use crate::listener::rig::prelude::*;
use crate::listener::rig::{Answer, Rig, get, post};

const SPOOFED: &str = "X-Request-Id: chosen-by-client\r\nX-Forwarded-For: 192.0.2.66\r\n";

fn behind(proxies: &[&str]) -> Rig {
    let networks = proxies.iter().map(|network| network.parse().unwrap()).collect();
    let setup = Setup::new(Limits::default(), Clock::machine());
    Rig::with(Setup { proxies: Proxies::new(networks), ..setup })
}

/// The address and the id the service was told.
fn who(rig: &Rig, fields: &str) -> (String, String, Answer) {
    let (answer, _) = rig.exchange(format!("GET /who HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
    let text = String::from_utf8(answer.body.clone()).unwrap();
    let (address, id) = text.split_once(' ').unwrap();
    (address.to_owned(), id.to_owned(), answer)
}

#[track_caller]
fn id_of(answer: &Answer) -> String {
    answer.field("x-request-id").unwrap_or_else(|| panic!("no id: {answer:?}")).to_owned()
}

#[test]
fn every_answer_names_its_request_and_no_two_have_the_same_name() {
    let rig = Rig::new(Limits::default());
    let requests = [
        get("/echo"),
        get("/later"),
        get("/missing"),
        get("/panic"),
        get("/limit-panic"),
        get("/drop"),
        get("/drop-later"),
        "nonsense\r\n\r\n".to_owned(),
        "BREW / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        post("/tiny", &"x".repeat(101)),
    ];
    let mut ids: Vec<String> =
        requests.iter().map(|request| id_of(&rig.exchange(request).0)).collect();
    let mut client = rig.client();
    for _ in 0..3 {
        client.send(get("/echo"));
        ids.push(id_of(&client.answer()));
    }
    assert!(ids.iter().all(|id| id.len() == 36 && id.as_bytes()[14] == b'7'), "{ids:?}");
    let count = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), count, "{ids:?}");
}

#[test]
fn a_client_cannot_choose_its_address_or_its_request_s_name() {
    for rig in [Rig::new(Limits::default()), behind(&["192.0.2.0/24"])] {
        let (address, id, answer) = who(&rig, SPOOFED);
        assert_eq!(address, "127.0.0.1");
        assert_ne!(id, "chosen-by-client");
        assert_eq!(id, id_of(&answer), "the service knows the name that is answered");
    }
}

#[test]
fn a_trusted_proxy_tells_both() {
    let rig = behind(&["127.0.0.0/8"]);
    let (address, id, answer) = who(&rig, SPOOFED);
    assert_eq!((address.as_str(), id.as_str()), ("192.0.2.66", "chosen-by-client"));
    assert_eq!(id_of(&answer), "chosen-by-client");
    let (_, id, _) = who(&rig, "X-Request-Id: bad id\r\n");
    assert_eq!(id.len(), 36, "{id}");
}
