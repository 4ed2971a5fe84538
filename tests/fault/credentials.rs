//! kill -9 under load while credentials are set: what was answered is used after the start, and nothing is lost.

use crate::fault::process::prelude::*;

#[test]
fn a_credential_that_was_set_is_used_after_a_kill() {
    let home = tempfile::tempdir().unwrap();
    let (receiver, endpoint) = (Receiver::new(), Receiver::new());
    let mut issued = 0;
    endpoint.decide(move |_| {
        issued += 1;
        let token = json!({ "access_token": format!("t{issued}"), "expires_in": 3600 });
        Reply::Answer(200, Vec::new(), token.to_string().into_bytes())
    });
    let mut process = Process::start(home.path());
    process.subscribe(&receiver.url());
    let mut published = 0;
    for round in 0..number("ONCEBOX_KILLS", 2) {
        let body = match round % 3 {
            0 => {
                json!({ "kind": "oauth2", "token_url": endpoint.url(), "client_id": "c", "secret": "s" })
            }
            1 => json!({ "kind": "signing_ed25519" }),
            _ => json!({ "kind": "bearer", "secret": format!("b{round}") }),
        };
        let made = process.post("/v1/subscriptions/erp/credentials", &body);
        for _ in 0..20 {
            process.post("/v1/events", &json!({ "event_type": "a", "payload": 1 }));
            published += 1;
        }
        thread::sleep(ms(round * 7 % 20));
        process = process.killed(home.path());
        let path = format!("/v1/credentials/{}", made["id"].as_str().unwrap());
        assert_eq!(process.call("GET", &path, &Value::Null).is(200).json()["state"], "active");
        until("everything is delivered", || process.pending() == Some(0));
        let sent = receiver.seen().pop().unwrap();
        let entry = if round == 0 { "v1," } else { "v1a," };
        assert!(sent.field("webhook-signature").unwrap().starts_with(entry));
        let authorization = sent.field("authorization").unwrap().to_owned();
        let expected =
            if round % 3 == 2 { format!("Bearer b{round}") } else { "Bearer ".to_owned() };
        assert!(authorization.starts_with(&expected), "{authorization}");
    }
    process.stop();
    let ids: BTreeSet<String> = receiver
        .seen()
        .iter()
        .map(|request| request.field("webhook-id").unwrap().to_owned())
        .collect();
    assert_eq!(ids.len(), published);
}
