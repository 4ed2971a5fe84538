//! The first admin of a box, made in a browser with the code that the service prints; and the first steps after that.

use crate::it::console_rig::{Browser, Form, form, links, unescaped};
use crate::rig::prelude::*;

const PASSWORD: &str = "correct horse battery";
const PATH: &str = "/console/first-admin";

fn code(rig: &Rig) -> String {
    rig.appliance().first_code().unwrap().to_string()
}

fn open(browser: &Browser<'_>) -> Form {
    form(&browser.get("/console/"), PATH).unwrap()
}

/// What is typed in the form.
fn typed<'a>(code: &'a str, name: &'a str) -> [(&'static str, &'a str); 4] {
    [("code", code), ("name", name), ("password", PASSWORD), ("again", PASSWORD)]
}

/// The text at a field that is wrong.
#[track_caller]
fn wrong(html: &str, field: &str) -> String {
    let note = html.split_once(&format!("id=\"about.{field}\">")).unwrap().1;
    let note = note.strip_prefix("<strong class=\"wrong\" role=\"alert\">");
    let note = note.unwrap_or_else(|| panic!("nothing is wrong with {field}: {html}"));
    assert_eq!(html.matches("role=\"alert\"").count(), 1, "{html}");
    unescaped(note.split("</strong>").next().unwrap())
}

#[test]
fn the_first_admin_is_made_with_the_code_from_another_machine_too() {
    let mut rig = Rig::new();
    rig.restart_with(|settings| {
        settings.listen.trusted_proxies = vec!["127.0.0.1/32".parse().unwrap()];
    });
    let code = code(&rig);
    assert_eq!(code.len(), 34, "{code}");
    let elsewhere = [("X-Forwarded-For", "203.0.113.9"), ("Sec-Fetch-Site", "same-origin")];
    let mut browser = Browser::nobody(&rig);
    let page = browser.send_with(&elsewhere, "GET", "/console/", b"").is(200).text();
    let form = form(&page, PATH).unwrap();
    // People write a code as they like, and read O for 0.
    let spoken = code.replace('-', " ").replace('0', "o").to_uppercase();
    let body = form.body(&typed(&spoken, "anna"));
    let made = browser.send_with(&elsewhere, "POST", PATH, body.as_bytes()).is(303);
    assert_eq!(made.field("location"), Some("/console/"));
    browser.keep(&made);
    shows(&browser.get("/console/"), &["anna · admin"]);
    shows(&browser.get("/console/settings/backups"), &["Back up now"]);
    has(&rig.get("/v1/users/anna"), &json!({ "role": "admin", "tenant": "default" }));
    for action in ["user.create", "user.login"] {
        let row = rig.get(&format!("/v1/audit-events?action={action}"))["items"][0].clone();
        has(&row, &json!({ "result": "SUCCESS", "changes.by.after": "code" }));
        shows(&row.to_string(), &["203.0.113.9"]);
        assert!(!row.to_string().contains(PASSWORD), "{row}");
    }
    assert!(rig.appliance().first_code().is_none());
    rig.stop();
    assert_eq!(holding(&rig.data(), &code), [""; 0]);
    rig.start_again();
    Browser::nobody(&rig)
        .send("POST", "/console/log-in", format!("name=anna&password={PASSWORD}").as_bytes())
        .is(303);
}

#[test]
fn wrong_codes_are_limited_and_audited_as_wrong_passwords_are() {
    let rig = Rig::new();
    let (code, browser) = (code(&rig), Browser::nobody(&rig));
    let form = open(&browser);
    for n in 0..10 {
        let guess = if n == 0 { String::new() } else { format!("{code}{n}") };
        browser.submit(&form, &typed(&guess, "<b>")).is(422);
        let page = browser.submit(&form, &typed(&guess, "anna")).is(401).text();
        assert_eq!(wrong(&page, "code"), "The code is wrong.");
        assert!(page.contains("value=\"anna\"") && !page.contains(PASSWORD), "{page}");
    }
    let page = browser.submit(&form, &typed(&code, "anna")).is(429).text();
    assert!(wrong(&page, "code").contains("Try it again in"), "{page}");
    let failed = "/v1/audit-events?action=user.login&result=FAILURE";
    until("it is audited", || !rig.items(failed).is_empty());
    has(&rig.items(failed)[0], &json!({ "resource.id": "anna", "actor.type": "anonymous" }));
    assert!(!rig.appliance().api().has_users().unwrap());
    rig.advance(secs(61));
    browser.submit(&form, &typed(&code, "anna")).is(429);
    browser.submit(&form, &typed(&code, "bela")).is(303);
}

#[test]
fn what_is_wrong_stands_at_its_field_and_nothing_is_made() {
    let rig = Rig::new();
    let (code, browser) = (code(&rig), Browser::nobody(&rig));
    let form = open(&browser);
    let submit = |field: &'static str, value: &'static str| {
        let mut typed = typed(&code, "anna").to_vec();
        typed.retain(|(name, _)| *name != field);
        let page = browser.submit(&form, &[&typed[..], &[(field, value)]].concat()).is(422).text();
        assert!(!page.contains(PASSWORD) && !page.contains("another horse"), "{page}");
        assert!(page.contains(&format!("value=\"{code}\"")), "{page}");
        wrong(&page, field)
    };
    assert!(submit("name", "\"><script>").contains("is not a name"));
    assert!(submit("name", "").contains("is not a name"));
    assert_eq!(submit("again", "another horse battery"), "The two passwords differ.");
    let short = browser.submit(
        &form,
        &[("code", code.as_str()), ("name", "anna"), ("password", "short"), ("again", "short")],
    );
    assert!(wrong(&short.is(422).text(), "password").contains("12 to 128"));
    let body = form.body(&typed(&code, "anna"));
    let foreign = [("Sec-Fetch-Site", "cross-site")];
    browser.send_with(&foreign, "POST", PATH, body.as_bytes()).is(403);
    browser.send("GET", PATH, b"").is(200);
    assert!(!rig.appliance().api().has_users().unwrap());
    browser.submit(&form, &typed(&code, "anna")).is(303);
}

#[test]
fn two_browsers_at_the_same_moment_make_one_admin() {
    let rig = Rig::new();
    let (code, browser) = (code(&rig), Browser::nobody(&rig));
    let form = open(&browser);
    let mut statuses = thread::scope(|scope| {
        let other = scope.spawn(|| browser.submit(&form, &typed(&code, "bela")).status);
        [browser.submit(&form, &typed(&code, "anna")).status, other.join().unwrap()]
    });
    statuses.sort_unstable();
    assert_eq!(statuses, [303, 409]);
    assert_eq!(rig.items("/v1/users").len(), 1);
    assert_eq!(rig.items("/v1/audit-events?action=user.create&result=SUCCESS").len(), 1);
}

#[test]
fn with_a_user_the_code_is_void_for_good() {
    let mut rig = Rig::new();
    let (first, code) = (code(&rig), code(&rig));
    let form = open(&Browser::nobody(&rig));
    let submit = |rig: &Rig, code: &str| Browser::nobody(rig).submit(&form, &typed(code, "anna"));
    assert_eq!(submit(&rig, &first).status, 401, "a later code replaced it");
    rig.user("bela", "read");
    let page = submit(&rig, &code).is(409).text();
    assert!(page.contains("There is a user already") && page.contains("/console/log-in"), "{page}");
    assert!(!Browser::nobody(&rig).get("/console/").contains(PATH));
    Browser::enter(&rig, "bela").submit(&form, &typed(&code, "anna")).is(409);
    rig.delete("/v1/users/bela").is(204);
    assert_eq!(submit(&rig, &code).status, 401, "there was a user");
    rig.restart_with(|settings| settings.console.enabled = false);
    assert!(rig.appliance().first_code().is_none(), "there is no console");
}

#[test]
fn the_overview_leads_to_four_steps_until_all_are_done() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    let admin = Browser::new(&rig, "admin");
    let leads = |browser: &Browser<'_>| {
        links(&browser.get("/console/")).contains(&"/console/start".to_owned())
    };
    let operator = Browser::new(&rig, "operate");
    assert!(leads(&admin) && !leads(&operator));
    operator.send("GET", "/console/start", b"").is(403);
    let open = || {
        let page = admin.get("/console/start");
        let steps = page.split_once("<ol class=\"steps\">").unwrap().1.split("</li>");
        let steps: Vec<bool> = steps.take(4).map(|step| step.contains("</span> open")).collect();
        assert_eq!(leads(&admin), steps.contains(&true), "{page}");
        steps
    };
    assert_eq!(open(), [true; 4]);
    let channel = [("name", "ops"), ("kind", "webhook"), ("url", &receiver.url())];
    admin.act("/console/start", "create-channel", &channel);
    assert_eq!(open(), [true, true, true, false], "a channel's subscription is no step");
    assert!(!admin.get("/console/start").contains("test-subscription"));
    admin.act(
        "/console/start",
        "create-subscription",
        &[("name", "erp"), ("url", &receiver.url())],
    );
    assert_eq!(open(), [true, false, true, false]);
    receiver.always(Reply::status(500));
    let tests = || rig.items("/v1/audit-events?action=subscription.test").len();
    admin.act("/console/start", "test-subscription", &[]);
    until("the first test is over", || tests() == 1);
    assert_eq!(open(), [true, false, true, false], "it failed");
    receiver.always(Reply::status(200));
    admin.act("/console/start", "test-subscription", &[]);
    until("the second test is over", || tests() == 2);
    assert_eq!(open(), [true, false, false, false]);
    rig.provider("shop", &json!({ "kind": "github" }), "whsec_0123456789abcdef0123456789");
    assert_eq!(open(), [false; 4]);
    shows(&admin.get("/console/start"), &["All four steps are done."]);
}
