//! Requests have names, which stand in their answers.

use crate::rig::{Rig, http};

#[test]
fn every_problem_says_which_request_it_is_about() {
    let rig = Rig::new();
    let answers = [
        rig.call("GET", "/v1/events/none", b"").is(404),
        rig.call("POST", "/v1/events", b"{").is(400),
        rig.send("GET", "/v1/events", &[], b"").is(401),
        rig.call("GET", "/nowhere", b"").is(404),
        rig.call("POST", "/v1/tokens", &vec![b' '; 300_000]).is(413),
        http::send(rig.address(), "BREW", "/", &[], b"").unwrap().is(501),
    ];
    for answer in answers {
        let id = answer.field("x-request-id").unwrap();
        assert_eq!(answer.json()["request_id"], id, "{answer:?}");
    }
    assert!(rig.call("GET", "/livez", b"").is(200).field("x-request-id").is_some());
}
