//! What is done with secrets by form: those of providers, and credentials of subscriptions; and alert channels.

use crate::it::console_rig::{Browser, asking, form};
use crate::rig::prelude::*;

#[test]
fn secrets_of_providers_are_added_and_withdrawn_and_never_shown() {
    let rig = Rig::new();
    let browser = Browser::named(&rig, "anna", "admin");
    let (old, new) =
        ("whsec_0123456789abcdef0123456789abcdef", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    rig.provider("shop", &json!({ "kind": "github" }), old);
    let path = "/console/providers/shop";
    assert!(!browser.get(path).contains("withdraw-secret"), "the last one stays");
    let page = browser.act(path, "add-secret", &[("secret", new)]);
    assert!(page.contains("Add a secret: done") && !page.contains(new) && !page.contains(old));
    let oldest =
        rig.get("/v1/providers/shop/secrets")["items"][1]["id"].as_str().unwrap().to_owned();
    let asked = browser.get(&asking(&page, "withdraw-secret", &oldest));
    assert!(asked.contains(&oldest) && asked.contains("created at"), "{asked}");
    browser.submit(&form(&asked, "/console/act/withdraw-secret").unwrap(), &[]).is(303);
    let left = rig.get("/v1/providers/shop/secrets");
    assert!(left["items"].as_array().unwrap().len() == 1 && left["items"][0]["id"] != oldest);
    let reader = Browser::named(&rig, "bela", "read");
    assert!(!reader.get(path).contains("/console/act/"));
}

#[test]
fn a_rotation_is_scheduled_and_a_credential_revoked_by_form() {
    let rig = Rig::with(|settings| {
        let argv =
            vec!["/bin/echo".to_owned(), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned()];
        settings.credentials.commands = [("vault".to_owned(), argv)].into_iter().collect();
    });
    let browser = Browser::named(&rig, "anna", "admin");
    rig.subscribe("erp", &Receiver::new());
    let bearer = json!({ "kind": "bearer", "secret": "a-token-of-theirs" });
    let made = rig.post("/v1/subscriptions/erp/credentials", &bearer).is(201).json();
    let signing = rig.get("/v1/credentials?subscription=erp");
    let signing = signing["items"].as_array().unwrap().iter().find(|row| row["kind"] == "signing");
    let (bearer, signing) =
        (made["id"].as_str().unwrap(), signing.unwrap()["id"].as_str().unwrap().to_owned());
    let path = "/console/subscriptions/erp";
    let send = |action: &str, id: &str, values: &[(&str, &str)]| {
        let asked = browser.get(&asking(&browser.get(path), action, id));
        browser.submit(&form(&asked, &format!("/console/act/{action}")).unwrap(), values)
    };
    let refused = send("schedule-rotation", &signing, &[("every", "soon"), ("command", "vault")]);
    assert_eq!(refused.status, 422);
    assert!(refused.text().contains("value=\"soon\"") && refused.text().contains("span like 24h"));
    send("schedule-rotation", &signing, &[("every", "90d"), ("command", "vault")]).is(303);
    assert!(browser.get(path).contains("90d vault"));
    // What stays empty is removed.
    send("schedule-rotation", &signing, &[("every", ""), ("command", "")]).is(303);
    assert!(rig.get(&format!("/v1/credentials/{signing}"))["rotate_every"].is_null());
    send("revoke-credential", bearer, &[]).is(303);
    assert_eq!(rig.get(&format!("/v1/credentials/{bearer}"))["state"], "revoked");
    assert!(
        !browser.get(path).contains("/console/act/revoke-credential"),
        "the one that signs stays"
    );
}

#[test]
fn a_channel_that_was_never_used_is_neither_ok_nor_failed() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    let browser = Browser::new(&rig, "operate");
    let body = json!({ "name": "ops", "kind": "webhook", "url": receiver.url() });
    rig.post("/v1/alert-channels", &body).is(201);
    let is_ok = || browser.get("/console/alerts").contains("state good");
    assert!(!is_ok());
    browser.act("/console/alerts", "test-channel", &[("name", "ops")]);
    until("the test arrived", is_ok);
}
