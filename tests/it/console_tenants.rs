//! The tenant that the console shows: an admin of the box chooses it, and nobody else.

use crate::it::console_rig::{Browser, Form, form, links};
use crate::rig::prelude::*;

const PATH: &str = "/console/tenant";
const PASSWORD: &str = "correct horse battery";

/// A box with the tenants `acme` and `beta`, in which each has an event of its name, and its admin anna.
fn rig() -> (Rig, String) {
    let rig = Rig::new();
    let acme = rig.tenant("acme");
    rig.tenant("beta");
    for (token, id) in [(rig.token.clone(), "of-default"), (acme.clone(), "of-acme")] {
        let event = json!({ "event_type": "a", "aggregate_id": id, "payload": {} });
        rig.post_as(&token, "/v1/events", &event).is(201);
    }
    rig.post("/v1/users", &json!({ "name": "anna", "role": "admin", "password": PASSWORD }))
        .is(201);
    (rig, acme)
}

fn chooser(browser: &Browser<'_>) -> Form {
    form(&browser.get("/console/"), PATH).unwrap()
}

/// Chooses a tenant; returns the cookie.
#[track_caller]
fn choose(browser: &mut Browser<'_>, tenant: &str) -> String {
    let chosen = browser.submit(&chooser(browser), &[("tenant", tenant)]).is(303);
    assert_eq!(chosen.field("location"), Some("/console/"));
    browser.keep(&chosen);
    chosen.field("set-cookie").unwrap().to_owned()
}

/// Which tenant's event a browser sees.
#[track_caller]
fn seen(browser: &Browser<'_>, cookie: &str) -> &'static str {
    let page = browser.send_with(&[("Cookie", cookie)], "GET", "/console/events", b"").is(200);
    let page = page.text();
    match (page.contains("of-default"), page.contains("of-acme")) {
        (true, false) => "default",
        (false, true) => "acme",
        _ => panic!("{page}"),
    }
}

#[test]
fn a_choice_that_the_person_derives_from_the_session_counts_for_nothing() {
    let (rig, _) = rig();
    let mut anna = Browser::enter(&rig, "anna");
    let secret = anna.cookie("oncebox_session").to_owned();
    let derived = http::github(&secret, b"the tenant of the console: acme");
    let mark = derived.strip_prefix("sha256=").unwrap();
    assert_eq!(seen(&anna, &format!("oncebox_tenant=acme.{mark}")), "default");
    // A choice is made, and audited, by the service alone.
    let chosen = choose(&mut anna, "acme");
    assert!(!chosen.contains(mark) && seen(&anna, "") == "acme");
    let shown = rig.lines("SELECT 1 FROM audit_events WHERE action = 'session.show_tenant'");
    assert_eq!(shown.len(), 1);
}

#[test]
fn an_admin_of_the_box_chooses_a_tenant_and_acts_in_it() {
    let (rig, acme) = rig();
    let mut anna = Browser::enter(&rig, "anna");
    assert_eq!(seen(&anna, ""), "default");
    let before = anna.send("GET", "/console/events", b"").field("etag").unwrap().to_owned();
    anna.revisit("/console/events", &before).is(304);
    let cookie = choose(&mut anna, "acme");
    shows(&cookie, &["HttpOnly", "SameSite=Strict", "Path=/console"]);
    // A page of before is none of this tenant.
    anna.revisit("/console/events", &before).is(200);
    assert_eq!(seen(&anna, ""), "acme");
    for page in ["/console/", "/console/events", "/console/nothing"] {
        let html = anna.send("GET", page, b"").text();
        assert!(html.contains("<option value=\"acme\" selected>"), "{page}: {html}");
    }
    let typed = [("name", "erp"), ("url", "https://erp.example/in")];
    anna.act("/console/subscriptions", "create-subscription", &typed);
    assert_eq!(rig.get_as(&acme, "/v1/subscriptions")["items"][0]["name"], "erp");
    assert!(rig.items("/v1/subscriptions").is_empty());
    for action in ["subscription.create", "session.show_tenant"] {
        let rows = rig.get_as(&acme, &format!("/v1/audit-events?action={action}"));
        let by = json!({ "actor.display": "default/anna", "actor.type": "user" });
        has(&rows["items"][0], &by);
        assert!(rig.items(&format!("/v1/audit-events?action={action}")).is_empty(), "{action}");
    }
    // What is about the whole box stays that of the box.
    anna.act("/console/settings/backups", "back-up", &[]);
    assert_eq!(rig.items("/v1/audit-events?action=backup.make").len(), 1);
    let cookie = choose(&mut anna, "default");
    assert!(cookie.contains("Max-Age=0"), "{cookie}");
    assert_eq!(seen(&anna, ""), "default");
    // The page of tenants has those that the form in the head has no room for.
    let listed = anna.get("/console/settings/tenants");
    assert!(listed.matches("name=\"tenant\" value=\"beta\"").count() == 1, "{listed}");
}

#[test]
fn nobody_else_sees_or_uses_the_choice() {
    let (rig, acme) = rig();
    let mut anna = Browser::enter(&rig, "anna");
    let cookie = choose(&mut anna, "acme").split(';').next().unwrap().to_owned();
    assert_eq!(seen(&anna, ""), "acme");
    let admin = json!({ "name": "carl", "role": "admin" });
    rig.post_as(&acme, "/v1/users", &admin).is(201);
    let link = text(&rig.call_as(&acme, "POST", "/v1/users/carl/link", b"").is(201).json(), "url");
    let mut carl = Browser::nobody(&rig);
    let query = link.split_once('?').unwrap().1;
    carl.keep(&carl.send("POST", "/console/enter", query.as_bytes()).is(303));
    let others = [
        (carl, "acme"),
        (Browser::new(&rig, "operate"), "default"),
        (Browser::new(&rig, "read"), "default"),
    ];
    for (browser, own) in others {
        let page = browser.get("/console/");
        assert!(form(&page, PATH).is_none() && !page.contains("beta"), "{page}");
        let log_out = form(&page, "/console/log-out").unwrap();
        let sent = Form { action: PATH.to_owned(), ..log_out };
        for tenant in ["beta", own, "nobody"] {
            let refused = browser.submit(&sent, &[("tenant", tenant)]).is(403);
            assert!(refused.field("set-cookie").is_none(), "{refused:?}");
        }
        assert_eq!(seen(&browser, &cookie), own, "the cookie of another session");
    }
    // Further refusals of the same client are counted together.
    let denied = "/v1/audit-events?action=session.show_tenant&result=DENIED";
    until("it is audited", || rig.get_as(&acme, denied)["items"][0]["actor"]["display"] == "carl");
    Browser::nobody(&rig).send("POST", PATH, b"tenant=acme").is(401);
}

#[test]
fn a_tenant_that_cannot_be_shown_and_a_tampered_cookie_are_refused() {
    let (rig, _) = rig();
    let (mut anna, again) = (Browser::enter(&rig, "anna"), Browser::enter(&rig, "anna"));
    rig.post("/v1/tenants/beta/suspend", &Value::Null).is(200);
    let open = chooser(&anna);
    for (tenant, status) in [("nobody", 404), ("", 404), ("beta", 403), ("acme\r\nx: y", 404)] {
        let refused = anna.submit(&open, &[("tenant", tenant)]).is(status);
        assert!(refused.field("set-cookie").is_none(), "{refused:?}");
    }
    anna.submit(&open, &[("tenant", "acme"), ("csrf", "")]).is(403);
    anna.submit(&chooser(&again), &[("tenant", "acme")]).is(403);
    let cookie = choose(&mut anna, "acme").split(';').next().unwrap().to_owned();
    let mark = cookie.rsplit('.').next().unwrap();
    for tampered in [
        "oncebox_tenant=acme".to_owned(),
        "oncebox_tenant=acme.".to_owned(),
        format!("oncebox_tenant=beta.{mark}"),
        format!("oncebox_tenant=acme.{}", "0".repeat(mark.len())),
        cookie.clone(),
    ] {
        // In another session, the mark is none at all.
        assert_eq!(seen(&again, &tampered), "default", "{tampered}");
    }
    assert_eq!(seen(&anna, &format!("oncebox_tenant=beta.{mark}")), "default");
    // A tenant that is suspended later is not shown any more, and can be left.
    rig.post("/v1/tenants/acme/suspend", &Value::Null).is(200);
    let refused = anna.send("GET", "/console/", b"").is(403).text();
    let leave = form(&refused, PATH).unwrap();
    anna.keep(&anna.submit(&leave, &[("tenant", "default")]).is(303));
    assert_eq!(seen(&anna, ""), "default");
}

#[test]
fn a_form_acts_only_on_the_tenant_that_its_page_showed() {
    let (rig, acme) = rig();
    let mut anna = Browser::enter(&rig, "anna");
    let action = "/console/act/create-subscription";
    let opened = form(&anna.get(action), action).unwrap();
    choose(&mut anna, "acme");
    let typed = [("name", "erp"), ("url", "https://erp.example/in")];
    let refused = anna.submit(&opened, &typed).is(403).text();
    assert!(refused.contains("This form is not from this session"), "{refused}");
    let opened = form(&anna.get(action), action).unwrap();
    // A form that comes after the session is not shown to another one, which begins in another tenant.
    for session in rig.items("/v1/sessions") {
        rig.delete(&format!("/v1/sessions/{}", text(&session, "id"))).is(204);
    }
    let ended = anna.submit(&opened, &typed).is(401).text();
    assert!(!ended.contains("name=\"keep\""), "{ended}");
    for token in [&rig.token, &acme] {
        assert_eq!(rig.get_as(token, "/v1/subscriptions")["items"], json!([]));
    }
}

#[test]
fn own_sessions_and_the_own_password_stay_those_of_the_person() {
    let (rig, acme) = rig();
    rig.post_as(&acme, "/v1/users", &json!({ "name": "anna", "role": "read" })).is(201);
    let mut anna = Browser::enter(&rig, "anna");
    drop(rig.log_in_by_link("anna"));
    choose(&mut anna, "acme");
    let own = anna.get("/console/settings/my-sessions");
    assert_eq!(own.matches("/console/act/end-own-session").count(), 2, "{own}");
    let other = text(&rig.items("/v1/sessions")[1], "id");
    anna.act("/console/settings/my-sessions", "end-own-session", &[("id", &other)]);
    assert_eq!(rig.items("/v1/sessions").len(), 1);
    let action = "/console/act/own-password";
    let is_offered = |link: &String| link.split('?').next() == Some(action);
    assert!(!links(&anna.get("/console/settings")).iter().any(is_offered));
    let asked = form(&anna.get(&format!("{action}?name=anna")), action).unwrap();
    let typed = [("current", PASSWORD), ("new", "staple horse battery")];
    assert!(anna.submit(&asked, &typed).status < 400);
    assert_eq!(rig.get_as(&acme, "/v1/users/anna")["has_password"], false);
    let log_in = b"name=anna&password=staple horse battery";
    anna.send("POST", "/console/log-in", log_in).is(303);
}
