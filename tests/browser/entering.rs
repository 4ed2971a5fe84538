//! Who gets in, how long, and what each sees.

use crate::browser::world::prelude::*;
use crate::browser::world::{PASSWORD, World};

#[track_caller]
fn log_in(browser: &Browser<'_>, name: &str, password: &str) {
    browser.fill("#name", name);
    browser.fill("#password", password);
    browser.follow("main button");
}

#[test]
fn a_link_and_a_password_open_the_console_and_logging_out_closes_it() {
    let Some(driver) = Driver::start() else { return };
    let (world, browser) = (World::empty(), driver.browser());
    let link = world.link("anna");
    browser.open(&link);
    browser.follow("main button");
    assert_eq!(browser.text("h1"), "Overview");
    assert!(browser.text(".me").contains("anna · admin"));
    // No script of a page sees the session.
    assert_eq!(browser.run("return document.cookie"), json!(""));
    let cookie = browser.cookies()[0].clone();
    assert_eq!((&cookie["httpOnly"], &cookie["sameSite"]), (&json!(true), &json!("Strict")));
    browser.press("Log out");
    assert_eq!(browser.text("h1"), "Log in");
    // Neither the link, nor the button to go back, nor the old address opens it again.
    browser.go_back();
    assert!(!browser.has(".me"), "{}", browser.text("body"));
    browser.open(&link);
    browser.follow("main button");
    assert!(browser.text(".error").contains("used or expired"), "{}", browser.text("body"));
    browser.open(&world.at("/console/search?q=4711"));
    assert_eq!(browser.text("h1"), "Log in");
    // What was wanted comes after logging in. A wrong password keeps the name and says so.
    log_in(&browser, "otto", "wrong horse battery");
    assert!(browser.text(".error").contains("name or the password is wrong"));
    assert!(
        browser.text("main").contains("Request:"),
        "the request's id helps who is asked for help"
    );
    assert_eq!(browser.run("return document.querySelector('#name').value"), "otto");
    browser.fill("#password", PASSWORD);
    browser.follow("main button");
    assert!(browser.text(".me").contains("otto · operate"));
    assert!(browser.url().ends_with("/console/search?q=4711"), "{}", browser.url());
}

#[test]
fn a_session_that_ended_is_asked_to_log_in_and_nothing_was_changed() {
    let Some(driver) = Driver::start() else { return };
    let (world, browser) = (World::empty(), driver.browser());
    browser.open(&world.at("/console/"));
    log_in(&browser, "anna", PASSWORD);
    assert_eq!(browser.text("h1"), "Overview");
    // Longer than a session may be idle.
    world.rig.advance(secs(9 * 3600));
    browser.press("Log out");
    assert_eq!(browser.text("h1"), "You are logged out");
    browser.open(&world.at("/console/"));
    assert_eq!(browser.text("h1"), "Log in");
}

#[test]
fn two_roles_and_two_tenants_see_their_own() {
    let Some(driver) = Driver::start() else { return };
    let world = World::empty();
    let invoice = world.invoice(4711)["id"].as_str().unwrap().to_owned();
    world.rig.tenant("acme");
    let user =
        json!({ "name": "acme-eva", "role": "admin", "tenant": "acme", "password": PASSWORD });
    world.rig.post("/v1/users", &user).is(201);
    let (reader, stranger) = (driver.browser(), driver.browser());
    world.enter(&reader, "rita");
    world.rig.post("/v1/users/acme-eva/link?tenant=acme", &json!(null)).is(201);
    stranger.open(&world.at("/console/"));
    log_in(&stranger, "acme/acme-eva", PASSWORD);
    assert!(stranger.text(".me").contains("acme-eva · admin · acme"), "{}", stranger.text("body"));
    // A reader finds it, and is offered nothing that acts.
    world.search(&reader, "4711");
    assert!(reader.text("main").contains("4711"), "{}", reader.text("body"));
    assert!(!reader.has("main form[method=post]"));
    reader.open(&world.at(&format!("/console/act/replay-event?id={invoice}")));
    assert_eq!(reader.text("h1"), "Your role does not allow this");
    // Another tenant's people do not find it by any way.
    world.search(&stranger, "4711");
    assert!(
        stranger.text("main").contains("Nothing begins with 4711"),
        "{}",
        stranger.text("body")
    );
    stranger.open(&world.at(&format!("/console/events/{invoice}")));
    assert_eq!(stranger.text("h1"), format!("There is no event {invoice}"));
    stranger.open(&world.at(&format!("/console/act/replay-event?id={invoice}&back=/console/")));
    stranger.follow("main button.primary");
    assert!(stranger.has(".error"), "{}", stranger.text("body"));
}

#[test]
fn the_first_admin_enters_with_the_code_and_chooses_a_tenant_without_scripts_by_keyboard() {
    let Some(driver) = Driver::start() else { return };
    let (rig, browser) = (Rig::new(), driver.browser());
    rig.tenant("acme");
    browser.scripts(false);
    let code = rig.appliance().first_code().unwrap();
    browser.open(&format!("http://{}/console/", rig.address()));
    assert_eq!(browser.text("h1"), "Make the first administrator");
    let fill = |again: &str| {
        for (field, value) in [("#name", "anna"), ("#password", PASSWORD), ("#again", again)] {
            browser.fill(field, value);
        }
        browser.follow("main button");
    };
    browser.fill("#code", &code);
    fill("wrong horse battery");
    assert_eq!(browser.text(".wrong"), "The two passwords differ.");
    // What was typed stays, but not the passwords.
    assert!(browser.source().contains(&format!("value=\"{}\"", &*code)), "{}", browser.source());
    fill(PASSWORD);
    assert_eq!(browser.text("h1"), "Overview");
    browser.click("#tenant");
    browser.keys("\u{e013}", 1);
    browser.keys("\u{e007}", 1);
    browser.follow("#tenant + button");
    assert!(browser.source().contains("<option value=\"acme\" selected"), "{}", browser.source());
    browser.follow("a[href='/console/start']");
    assert_eq!(browser.text("h1"), "First steps");
}

/// A newcomer without the docs: four steps from the overview, each with what its form asks for.
#[test]
fn a_newcomer_sets_up_a_box_in_four_steps() {
    let Some(driver) = Driver::start() else { return };
    let (world, browser) = (World::empty(), driver.browser());
    world.enter(&browser, "anna");
    browser.press("First steps");
    let choose = |name: &str, value: &str| {
        let script = "const field = document.querySelector(`[name='${arguments[0]}']`); field.value = arguments[1]; \
                      field.dispatchEvent(new Event('change', { bubbles: true }))";
        browser.run_with(script, &json!([name, value]));
    };
    browser.press("New provider");
    browser.fill("[name=name]", "webshop");
    choose("scheme.kind", "shopify");
    browser.click("[name='secret.make']");
    browser.click("[name=pii][value=allow]");
    browser.follow("form.act button.primary");
    shows(&browser.text("main"), &["shown once", "/in/webshop"]);
    browser.press("Go on");
    browser.wait_for("h1", "First steps");
    browser.press("New subscription");
    browser.fill("[name=name]", "erp");
    browser.fill("[name=url]", &world.well.url());
    browser.fill("[name=event_types]", "*");
    browser.follow("form.act button.primary");
    shows(&browser.text("main"), &["shown once", "whsec_"]);
    browser.press("Go on");
    browser.wait_for("h1", "First steps");
    browser.press("Test");
    browser.wait_for("main", "It works.");
    browser.press("Overview");
    browser.press("First steps");
    browser.press("New channel");
    browser.fill("[name=name]", "office");
    choose("kind", "webhook");
    browser.fill("[name=url]", &world.well.url());
    browser.follow("form.act button.primary");
    browser.press("Go on");
    browser.wait_for("h1", "First steps");
    shows(&browser.text("main"), &["All four steps are done."]);
    let text = browser.text("main");
    assert_eq!(text.matches("● done").count(), 4, "{text}");
}
