//! Whom Oncebox will not call, and how it says so.

use crate::rig::prelude::*;

#[test]
fn a_target_on_this_machine_or_its_network_is_refused_with_the_line_that_would_allow_it() {
    let rig = Rig::with(|settings| settings.delivery.allow.clear());
    for (host, entry) in [
        ("127.0.0.1", "127.0.0.1/32"),
        ("10.1.2.3", "10.1.2.3/32"),
        ("192.168.0.1", "192.168.0.1/32"),
        ("169.254.169.254", "169.254.169.254/32"),
        ("[::1]", "::1/128"),
        ("[::ffff:10.0.0.1]", "10.0.0.1/32"),
        ("0.0.0.0", "0.0.0.0/32"),
    ] {
        let url = format!("http://{host}:8069/hook");
        let refused = rig.post("/v1/subscriptions", &json!({ "name": "erp", "url": url })).is(422);
        let line = format!("[delivery] allow = [\"{entry}\"]");
        assert!(refused.detail().contains(&line), "{host}: {}", refused.detail());
    }
    assert_eq!(rig.one("SELECT count(*) FROM subscriptions"), "0");
}

#[test]
fn a_target_cannot_be_changed_to_a_forbidden_one() {
    let (rig, receiver) = Rig::subscribed("erp");
    rig.patch("/v1/subscriptions/erp", &json!({ "url": "http://10.0.0.1/" })).is(422);
    assert_eq!(rig.get("/v1/subscriptions/erp")["url"], receiver.url());
}

#[test]
fn a_url_that_is_no_target_is_refused() {
    let rig = Rig::new();
    for url in words(
        "ftp://erp.example/ erp.example http:// http://user:word@erp.example/ \
        http://2130706433/ http://0x7f.1/ http://erp.example:6379/ http://{aggregate_id}/ \
        http://erp.example/{unknown} http://erp.example/#part",
    ) {
        rig.post("/v1/subscriptions", &json!({ "name": "erp", "url": url })).is(422);
    }
}

#[test]
fn a_name_that_leads_to_this_machine_is_refused_at_the_attempt_as_well() {
    let (mut rig, receiver) = (Rig::new(), Receiver::new());
    let url = format!("http://localhost:{}/hook", receiver.address.port());
    rig.post("/v1/subscriptions", &json!({ "name": "erp", "url": url })).is(201);
    rig.restart_with(|settings| settings.delivery.allow.clear());
    rig.deliver("a");
    let attempt = rig.one("SELECT class || ': ' || failed_reason FROM attempts");
    assert!(attempt.starts_with("transient: "), "{attempt}");
    assert!(attempt.contains("loopback") && attempt.contains("[delivery] allow = ["), "{attempt}");
    assert_eq!(receiver.count(), 0);
    assert_eq!(rig.one("SELECT status FROM outbox"), "failed");
}

#[test]
fn a_name_of_this_machine_is_refused_when_the_subscription_is_made() {
    let rig = Rig::with(|settings| settings.delivery.allow.clear());
    for host in ["localhost", "erp.localhost"] {
        let url = format!("http://{host}:8069/");
        rig.post("/v1/subscriptions", &json!({ "name": "erp", "url": url })).is(422);
    }
}

#[test]
fn an_allowed_address_is_called_under_its_name() {
    let rig = Rig::with(|settings| settings.delivery.allow.push("::1/128".parse().unwrap()));
    let receiver = Receiver::new();
    let url = format!("http://localhost:{}/hook", receiver.address.port());
    rig.post("/v1/subscriptions", &json!({ "name": "erp", "url": url })).is(201);
    rig.deliver("a");
    assert_eq!(receiver.count(), 1);
}
