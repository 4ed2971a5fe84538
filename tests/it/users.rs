//! People who use the console: log-in, one-time links, sessions, and requests in their name.

use oncebox::api::people::{NewSession, Person, Session};
use oncebox::http::message::{Head, Request, Response};

use crate::rig::prelude::*;

const PASSWORD: &str = "correct horse battery";

/// A rig with an operator, who has a password.
fn rig() -> Rig {
    let rig = Rig::new();
    let body = json!({ "name": "anna", "role": "operate", "password": PASSWORD });
    let made = rig.post("/v1/users", &body).is(201).json();
    assert_eq!((&made["has_password"], &made["tenant"]), (&json!(true), &json!("default")));
    rig
}

fn head() -> Head {
    Rig::head(Method::Post, "/console/login")
}

fn log_in(rig: &Rig, password: &str) -> Result<NewSession, u16> {
    let done = rig.appliance().api().log_in(&head(), "anna", password);
    done.map_err(|problem| problem.status())
}

fn session(rig: &Rig, new: &NewSession) -> Option<Session> {
    rig.appliance().api().session(&new.secret, true).unwrap()
}

fn ask(rig: &Rig, person: &Person, method: Method, path: &str, body: &Value) -> Response {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = Request { head: Rig::head(method, path), body };
    rig.appliance().api().ask_now(person, request)
}

fn json_of(response: &Response) -> Value {
    serde_json::from_slice(&response.body).unwrap()
}

/// The latest audit event with this action.
fn audited(rig: &Rig, action: &str) -> Value {
    let mut found = Value::Null;
    until("it is audited", || {
        found = rig.get(&format!("/v1/audit-events?action={action}"))["items"][0].clone();
        !found.is_null()
    });
    found
}

#[test]
fn a_user_logs_in_with_the_password_and_logs_out() {
    let rig = rig();
    let new = log_in(&rig, PASSWORD).unwrap();
    assert_eq!(new.ends_at, rig.now().plus(secs(7 * 86_400)));
    let live = session(&rig, &new).unwrap();
    assert_eq!((live.person.name.as_str(), live.person.tenant.as_str()), ("anna", "default"));
    let listed = rig.get("/v1/sessions")["items"][0].clone();
    has(&listed, &json!({ "id": live.id.as_str(), "user": "anna", "address": "192.0.2.1" }));
    let row = audited(&rig, "user.login");
    assert_eq!(row["actor"]["type"], "user");
    assert_eq!(row["actor"]["id"], live.person.id.as_str());
    assert_eq!(row["changes"]["by"]["after"], "password");
    assert_eq!(rig.get("/v1/users/anna")["last_login_at"], rig.now().to_string());

    rig.appliance().api().log_out(&head(), &live).unwrap();
    assert!(session(&rig, &new).is_none());
    assert_eq!(audited(&rig, "user.logout")["actor"]["display"], "anna");
    assert_eq!(rig.get("/v1/sessions")["items"], json!([]));
}

#[test]
fn a_wrong_name_and_a_wrong_password_are_answered_alike_and_throttled() {
    let rig = rig();
    let api = rig.appliance().api();
    let wrong = api.log_in(&head(), "anna", "not the password").unwrap_err();
    let unknown = api.log_in(&head(), &"x".repeat(100), PASSWORD).unwrap_err();
    let (wrong, unknown) = (Response::from(wrong), Response::from(unknown));
    assert_eq!((wrong.status, wrong.body), (401, unknown.body));
    let is_hers = |row: &Value| row["result"] == "FAILURE" && row["resource"]["id"] == "anna";
    until("both are recorded", || {
        let rows = rig.get("/v1/audit-events?action=user.login");
        rows["items"].as_array().unwrap().iter().any(is_hers)
    });
    for _ in 0..8 {
        assert_eq!(log_in(&rig, "not the password").unwrap_err(), 401);
    }
    assert_eq!(log_in(&rig, PASSWORD).unwrap_err(), 429, "the client failed ten times");
    rig.advance(secs(61));
    assert_eq!(log_in(&rig, "not the password").unwrap_err(), 401);
    assert_eq!(log_in(&rig, PASSWORD).unwrap_err(), 429, "the name failed ten times from there");
    let elsewhere = Head { client: [198, 51, 100, 7].into(), ..head() };
    api.log_in(&elsewhere, "anna", PASSWORD).unwrap();
    assert!(session(&rig, &rig.log_in_by_link("anna")).is_some(), "a link is let through");
    rig.advance(secs(300));
    log_in(&rig, PASSWORD).unwrap();
}

#[test]
fn a_link_is_valid_once_and_for_15_minutes() {
    let rig = rig();
    let enter = |link: &str| {
        let done = rig.appliance().api().enter(&head(), link);
        done.map(drop).map_err(|problem| problem.status())
    };
    let first = rig.link("anna");
    let second = rig.link("anna");
    assert_eq!(enter(&first), Err(401), "a later link replaced it");
    assert_eq!(enter("obl_"), Err(401));
    assert_eq!(enter(&second), Ok(()));
    assert_eq!(enter(&second), Err(401), "it is used up");
    let late = rig.link("anna");
    rig.advance(secs(900));
    assert_eq!(enter(&late), Err(401), "it has expired");
    let void = rig.link("anna");
    rig.patch("/v1/users/anna", &json!({ "disabled": true })).is(200);
    rig.post("/v1/users/anna/link", &Value::Null).is(409);
    rig.patch("/v1/users/anna", &json!({ "disabled": false })).is(200);
    assert_eq!(enter(&void), Err(401), "disabling took it away");
}

#[test]
fn a_link_leads_to_the_address_that_the_caller_uses() {
    let mut rig = rig();
    let url = |rig: &Rig| {
        let made = rig.post("/v1/users/anna/link", &Value::Null).is(201).json();
        made["url"].as_str().unwrap().split_once("/console/").unwrap().0.to_owned()
    };
    assert_eq!(url(&rig), format!("http://{}", rig.address()));
    rig.restart_with(|settings| {
        settings.listen.public_url = Some("https://box.example/".to_owned());
    });
    assert_eq!(url(&rig), "https://box.example");
}

#[test]
fn a_session_ends_when_it_is_idle_too_old_or_ended() {
    let mut rig = rig();
    let idle = log_in(&rig, PASSWORD).unwrap();
    let used = log_in(&rig, PASSWORD).unwrap();
    for _ in 0..2 {
        rig.advance(secs(5 * 3600));
        assert!(session(&rig, &used).is_some());
        // A page that asks for itself is no use.
        drop(rig.appliance().api().session(&idle.secret, false).unwrap());
    }
    assert!(session(&rig, &idle).is_none(), "not used for ten hours");
    until("its use is stored", || {
        let noted =
            format!("SELECT count(*) FROM sessions WHERE last_used_at = {}", rig.now().ms());
        rig.one(&noted) == "1"
    });
    assert_eq!(rig.items("/v1/sessions").len(), 1);
    rig.restart();
    assert!(session(&rig, &used).is_some(), "a restart ends no session");
    for _ in 0..22 {
        rig.advance(secs(7 * 3600));
        assert!(session(&rig, &used).is_some());
    }
    rig.advance(secs(5 * 3600));
    assert!(session(&rig, &used).is_none(), "seven days are over");

    let other = log_in(&rig, PASSWORD).unwrap();
    let id = session(&rig, &other).unwrap().id;
    rig.delete(&format!("/v1/sessions/{id}")).is(204);
    assert!(session(&rig, &other).is_none());
    rig.delete(&format!("/v1/sessions/{id}")).is(404);
}

#[test]
fn a_changed_user_is_logged_out() {
    let rig = rig();
    for change in [
        json!({ "role": "read" }),
        json!({ "password": "another password" }),
        json!({ "disabled": true }),
    ] {
        let new = rig.log_in_by_link("anna");
        assert!(session(&rig, &new).is_some());
        rig.patch("/v1/users/anna", &change).is(200);
        assert!(session(&rig, &new).is_none(), "{change}");
    }
    assert_eq!(log_in(&rig, "another password").unwrap_err(), 401, "disabled");
    rig.patch("/v1/users/anna", &json!({ "disabled": false })).is(200);
    let new = log_in(&rig, "another password").unwrap();
    let shown = audited(&rig, "user.change")["changes"].to_string();
    assert!(shown.contains("sessions_ended") && !shown.contains("another"), "{shown}");
    assert!(rig.appliance().api().has_users().unwrap());
    rig.delete("/v1/users/anna").is(204);
    assert!(session(&rig, &new).is_none());
    assert!(!rig.appliance().api().has_users().unwrap());
    assert_eq!(log_in(&rig, "another password").unwrap_err(), 401);
    rig.user("anna", "read");
}

#[test]
fn what_a_user_is_made_of_is_checked() {
    let rig = rig();
    let refused = |body: Value| rig.post("/v1/users", &body).is(422).detail();
    assert!(refused(json!({ "name": "b", "role": "publish" })).contains("use a token"));
    let short = json!({ "name": "b", "role": "read", "password": "too short" });
    assert!(refused(short).contains("12 to 128"));
    rig.post("/v1/users", &json!({ "name": "anna", "role": "read" })).is(409).tells("taken");
    rig.tenant("acme");
    rig.post("/v1/users", &json!({ "name": "bela", "role": "read", "tenant": "acme" })).is(201);
    rig.call("GET", "/v1/users/bela", b"").is(404);
    assert_eq!(rig.get("/v1/users/bela?tenant=acme")["tenant"], "acme");
}

#[test]
fn two_tenants_may_have_a_user_of_the_same_name() {
    let rig = rig();
    let admin = rig.tenant("acme");
    let same = json!({ "name": "anna", "role": "read", "password": "staple correct horse" });
    let same = same.to_string();
    rig.call_as(&admin, "POST", "/v1/users", same.as_bytes()).is(201);
    rig.call_as(&admin, "POST", "/v1/users", same.as_bytes()).is(409);
    let log_in = |login: &str, password: &str| {
        let begun = rig.appliance().api().log_in(&head(), login, password);
        begun.map(|new| new.person.tenant).map_err(|problem| problem.status())
    };
    assert_eq!(log_in("anna", PASSWORD), Ok("default".to_owned()));
    assert_eq!(log_in("default/anna", PASSWORD), Ok("default".to_owned()));
    assert_eq!(log_in("acme/anna", "staple correct horse"), Ok("acme".to_owned()));
    assert_eq!(log_in("anna", "staple correct horse"), Err(401));
    assert_eq!(log_in("acme/anna", PASSWORD), Err(401));
}

#[test]
fn a_person_may_do_what_the_role_and_the_tenant_allow() {
    let rig = rig();
    let other = rig.tenant("acme");
    rig.post_as(&other, "/v1/users", &json!({ "name": "bela", "role": "admin" })).is(201);
    let made = rig.call_as(&other, "POST", "/v1/users/bela/link", b"").is(201).json();
    let link = made["url"].as_str().unwrap().rsplit('=').next().unwrap().to_owned();
    let bela = rig.appliance().api().enter(&head(), &link).unwrap().person;
    let anna = log_in(&rig, PASSWORD).unwrap().person;

    rig.publish_type("a");
    let events = |person| json_of(&ask(&rig, person, Method::Get, "/v1/events", &Value::Null));
    assert_eq!(events(&anna)["items"].as_array().unwrap().len(), 1);
    assert_eq!(events(&bela)["items"], json!([]), "another tenant's");

    let token = json!({ "name": "t", "role": "read" });
    let denied = ask(&rig, &anna, Method::Post, "/v1/tokens", &token);
    assert_eq!(denied.status, 403);
    let row = audited(&rig, "token.create&result=DENIED");
    assert_eq!((&row["result"], &row["actor"]["type"]), (&json!("DENIED"), &json!("user")));
    assert_eq!(ask(&rig, &bela, Method::Post, "/v1/tokens", &token).status, 201);
    let rows = rig.call_as(&other, "GET", "/v1/audit-events?action=token.create", b"").json();
    assert_eq!(rows["items"][0]["actor"]["display"], "bela");
    assert_eq!(ask(&rig, &bela, Method::Get, "/v1/tenants", &Value::Null).status, 403);

    assert_eq!(ask(&rig, &anna, Method::Get, "/v1/nothing", &Value::Null).status, 404);
    assert_eq!(ask(&rig, &anna, Method::Post, "/v1/events", &json!({})).status, 500);
    rig.post("/v1/tenants/acme/suspend", &Value::Null).is(200);
    let refused = ask(&rig, &bela, Method::Get, "/v1/events", &Value::Null);
    assert_eq!((refused.status, &json_of(&refused)["title"]), (403, &json!("Tenant suspended")));
}

#[test]
fn a_user_changes_the_own_password_only() {
    let rig = rig();
    rig.user("bela", "admin");
    let anna = log_in(&rig, PASSWORD).unwrap();
    let change = |name: &str, current: &str, new: &str| {
        let body = json!({ "current": current, "new": new });
        let path = format!("/v1/users/{name}/password");
        ask(&rig, &anna.person, Method::Post, &path, &body).status
    };
    assert_eq!(change("bela", PASSWORD, "another password"), 403);
    assert_eq!(change("anna", "wrong", "another password"), 403);
    assert_eq!(change("anna", PASSWORD, "short"), 422);
    assert_eq!(change("anna", PASSWORD, "another password"), 200);
    assert!(session(&rig, &anna).is_none(), "it ends the sessions");
    assert_eq!(log_in(&rig, PASSWORD).unwrap_err(), 401);
    log_in(&rig, "another password").unwrap();
    let row = audited(&rig, "user.password");
    assert_eq!((&row["actor"]["type"], &row["result"]), (&json!("user"), &json!("SUCCESS")));
    // Whoever has no password needs none to set the first.
    let bela = rig.log_in_by_link("bela").person;
    let body = json!({ "new": "the first password" });
    assert_eq!(ask(&rig, &bela, Method::Post, "/v1/users/bela/password", &body).status, 200);
}

#[test]
fn a_user_sees_and_ends_the_own_sessions_only() {
    let rig = rig();
    rig.user("bela", "admin");
    let (first, second, bela) = (
        log_in(&rig, PASSWORD).unwrap(),
        log_in(&rig, PASSWORD).unwrap(),
        rig.log_in_by_link("bela"),
    );
    let [first_id, second_id, belas] =
        [&first, &second, &bela].map(|new| session(&rig, new).unwrap().id);
    let list = |person| json_of(&ask(&rig, person, Method::Get, "/v1/me/sessions", &Value::Null));
    let ids = |of: &Value| -> Vec<String> {
        let items = of["items"].as_array().unwrap().iter();
        items.map(|item| text(item, "id")).collect()
    };
    assert_eq!(ids(&list(&first.person)), [first_id.as_str(), second_id.as_str()]);
    assert_eq!(ids(&list(&bela.person)), [belas.as_str()], "an admin's own are no others");
    let end = |person, id: &str| {
        let path = format!("/v1/me/sessions/{id}");
        ask(&rig, person, Method::Delete, &path, &Value::Null).status
    };
    assert_eq!(end(&first.person, &belas), 404);
    assert_eq!(end(&bela.person, &first_id), 404);
    assert_eq!(end(&first.person, &second_id), 204);
    assert!(session(&rig, &second).is_none() && session(&rig, &bela).is_some());
    let row = audited(&rig, "session.end_own");
    has(&row, &json!({ "actor.display": "anna", "resource.id": second_id }));
    assert_eq!(ids(&rig.get("/v1/me/sessions")), [""; 0], "a token has none");
    rig.delete(&format!("/v1/me/sessions/{first_id}")).is(404);
    assert_eq!(rig.get(&format!("/v1/sessions/{belas}"))["user"], "bela");
    rig.call("GET", &format!("/v1/sessions/{second_id}"), b"").is(404);
}

#[test]
fn a_list_is_answered_while_others_are_asked_for() {
    let rig = rig();
    let anna = log_in(&rig, PASSWORD).unwrap().person;
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let status = ask(&rig, &anna, Method::Get, "/v1/events", &Value::Null).status;
                    assert!(matches!(status, 200 | 503), "{status}");
                }
            });
        }
    });
    assert_eq!(ask(&rig, &anna, Method::Get, "/v1/events", &Value::Null).status, 200);
}

#[test]
fn no_secret_of_a_log_in_is_stored() {
    let mut rig = rig();
    let link = rig.link("anna");
    let by_link = rig.appliance().api().enter(&head(), &link).unwrap();
    let by_password = log_in(&rig, PASSWORD).unwrap();
    rig.stop();
    for secret in [link.as_str(), &by_link.secret, &by_password.secret] {
        let bare = secret.split_once('_').unwrap().1;
        assert_eq!(holding(&rig.data(), bare), [""; 0]);
    }
    assert_eq!(holding(&rig.data(), PASSWORD), [""; 0]);
    rig.start_again();
}
