//! What a person does: sends again, one and many; rotates, tests; in two tabs, and without JavaScript.

use crate::browser::world::prelude::*;

#[test]
fn an_event_is_sent_again_once_however_often_its_form_is_sent() {
    let Some(driver) = Driver::start() else { return };
    let (world, browser) = (World::new(), driver.browser());
    world.enter(&browser, "otto");
    world.search(&browser, "4711");
    browser.press("4711");
    let before = world.well.count();
    browser.press("Send again");
    assert!(browser.text("main").contains("Invoice 4711"), "it says what it touches");
    // The second click of a double click, and then the button to go back and the same form again.
    let number = browser.run("return document.querySelector('form.act [name=form]').value");
    browser.run("const form = document.querySelector('form.act'); form.requestSubmit(); form.requestSubmit()");
    browser.wait_for(".notice", "Send again: done");
    world.arrives(before + 1);
    browser.go_back();
    browser.run_with(
        "document.querySelector('form.act [name=form]').value = arguments[0]",
        &json!([number]),
    );
    browser.follow("form.act button.primary");
    browser.wait_for("h1", "Invoice 4711");
    world.rig.settle();
    assert_eq!(world.well.count(), before + 1, "one form, one replay");
    let ids: Vec<_> =
        world.well.seen().iter().map(|sent| sent.field("webhook-id").unwrap().to_owned()).collect();
    let last = ids.last().unwrap();
    assert_eq!(ids.iter().filter(|id| *id == last).count(), 2, "the same webhook-id");
    let audit = world.rig.get("/v1/audit-events?action=event.replay");
    has(&audit["items"][0]["actor"], &json!({ "type": "user", "display": "otto" }));
}

#[test]
fn picked_dead_letters_are_sent_again_after_a_look_at_what_that_touches() {
    let Some(driver) = Driver::start() else { return };
    let (world, browser) = (World::new(), driver.browser());
    world.enter(&browser, "otto");
    browser.open(&world.at("/console/dead-letters?subscription=shop"));
    browser.click("input[data-pick-all]");
    browser.press("Send the picked ones again");
    assert!(browser.text("main").contains("3 deliveries"), "{}", browser.text("main"));
    world.bad.always(Reply::status(200));
    browser.follow("form.act button.primary");
    browser.wait_for("main", "completed");
    world.rig.settle();
    browser.open(&world.at("/console/dead-letters?subscription=shop"));
    assert!(browser.text("main").contains("No dead letter matches"), "{}", browser.text("main"));
}

#[test]
fn one_of_a_kind_is_corrected_and_then_the_others_are_sent() {
    let Some(driver) = Driver::start() else { return };
    let (world, browser) = (World::new(), driver.browser());
    world.enter(&browser, "otto");
    browser.press("Dead letters");
    let first = browser.text("main tbody tr");
    assert!(first.contains("the price list is missing") && first.contains("shop"), "{first}");
    browser.press("Correct one");
    browser.fill("[name=payload_base64]", "{\"price\": \"9.90\", \"currency\": \"EUR\"}");
    browser.follow("form.act button.primary");
    world.bad.always(Reply::status(200));
    browser.follow("form.act button.primary");
    assert!(browser.text(".notice").contains("Correct and send: done"), "{}", browser.text("main"));
    assert!(browser.text("h1").contains("the price list is missing"), "{}", browser.text("h1"));
    assert!(browser.text("main tbody tr").contains("the price list is missing"));
    browser.press("Send all again");
    assert!(browser.text("main").contains("2 deliveries"), "{}", browser.text("main"));
    browser.follow("form.act button.primary");
    browser.wait_for("main", "completed");
    world.rig.settle();
    assert_eq!(world.rig.items("/v1/dead-letters?subscription=shop"), [""; 0]);
}

#[test]
fn a_rotated_secret_is_shown_once_and_a_test_shows_its_steps() {
    let Some(driver) = Driver::start() else { return };
    let (world, browser) = (World::new(), driver.browser());
    world.enter(&browser, "anna");
    browser.open(&world.at("/console/subscriptions/bank"));
    browser.press("Rotate");
    browser.follow("form.act button.primary");
    let secret = browser.text("main .code");
    assert!(secret.contains("whsec_"), "{}", browser.text("main"));
    browser.press("Go on");
    assert!(!browser.source().contains(secret.trim()));
    assert!(browser.text("main").contains("signing 2"), "{}", browser.text("main"));
    // Going back does not show it again, and rotates nothing.
    browser.go_back();
    until("the secret is gone", || !browser.source().contains(secret.trim()));
    browser.open(&world.at("/console/subscriptions/bank"));
    assert!(!browser.text("main").contains("signing 3"), "{}", browser.text("main"));
    // The page of a test that runs shows its steps as they are done, and then what came of it.
    world.well.always(Reply::Hang);
    browser.press("Test");
    browser.wait_for("main", "◔ running");
    browser.wait_for("main", "connect");
    assert!(browser.text("main").contains("● ok"), "{}", browser.text("main"));
    world.well.release();
    browser.wait_for("main", "It works.");
    assert!(browser.has("main[data-live]") && browser.text("main").contains("200"));
}

#[test]
fn a_form_that_fails_keeps_what_was_typed_and_says_what_to_do() {
    let Some(driver) = Driver::start() else { return };
    let (world, browser) = (World::empty(), driver.browser());
    world.enter(&browser, "anna");
    browser.open(&world.at("/console/act/create-subscription"));
    browser.fill("[name=name]", "shop");
    browser.fill("[name=url]", "ftp://shop.example/hook");
    browser.fill("[name=event_types]", "price.*\norder.*");
    browser.follow("form.act button.primary");
    assert!(
        browser.text("[role=alert]:not([hidden])").contains("http"),
        "{}",
        browser.text("main")
    );
    assert!(browser.text("main").contains("Request:"));
    let typed = "return ['name', 'url', 'event_types'].map((name) => document.querySelector(`[name=${name}]`).value)";
    assert_eq!(browser.run(typed), json!(["shop", "ftp://shop.example/hook", "price.*\norder.*"]));
    browser.fill("[name=url]", &world.well.url());
    browser.follow("form.act button.primary");
    assert!(browser.text("main").contains("whsec_"), "{}", browser.text("main"));
}

#[test]
fn everything_works_without_javascript() {
    let Some(driver) = Driver::start() else { return };
    let (world, browser) = (World::new(), driver.browser());
    browser.scripts(false);
    world.enter(&browser, "otto");
    world.search(&browser, "4711");
    browser.press("4711");
    assert!(browser.text("main time").ends_with(" UTC"), "{}", browser.text("main time"));
    let before = world.well.count();
    browser.press("Send again");
    browser.follow("form.act button.primary");
    assert!(browser.text(".notice").contains("Send again: done"));
    world.arrives(before + 1);
    // Filters, picked rows, a second page.
    browser.open(&world.at("/console/deliveries"));
    browser.follow(".tabs a[href*='state=completed']");
    assert!(browser.url().contains("state=completed"), "{}", browser.url());
    browser.open(&world.at("/console/dead-letters?subscription=shop"));
    browser.click("input[name='filter.ids']");
    browser.press("Send the picked ones again");
    assert!(browser.text("main").contains("1 deliveries"), "{}", browser.text("main"));
    browser.press("Log out");
    assert_eq!(browser.text("h1"), "Log in");
}

#[test]
fn a_second_tab_goes_its_own_way_and_knows_when_the_session_ended() {
    let Some(driver) = Driver::start() else { return };
    let (world, browser) = (World::new(), driver.browser());
    world.enter(&browser, "otto");
    world.search(&browser, "4711");
    browser.press("4711");
    let event = browser.url();
    browser.press("Send again");
    let (first, second) = (browser.tab(), browser.new_tab());
    browser.switch_to(&second);
    browser.open(&event);
    browser.press("Send again");
    let before = world.well.count();
    browser.follow("form.act button.primary");
    world.arrives(before + 1);
    world.rig.settle();
    // Two tabs, two forms: each is meant.
    browser.switch_to(&first);
    browser.follow("form.act button.primary");
    world.arrives(before + 2);
    browser.press("Send again");
    browser.switch_to(&second);
    browser.press("Log out");
    browser.switch_to(&first);
    browser.follow("form.act button.primary");
    assert_eq!(browser.text("h1"), "You are logged out");
    world.rig.settle();
    assert_eq!(world.well.count(), before + 2);
}

#[test]
fn a_delivery_appears_without_a_reload_and_not_under_the_hands() {
    let Some(driver) = Driver::start() else { return };
    let (world, browser) = (World::new(), driver.browser());
    world.enter(&browser, "rita");
    browser.open(&world.at("/console/events"));
    browser.run("window.mine = 1");
    world.invoice(4900);
    browser.wait_for("main", "4900");
    assert_eq!(browser.run("return window.mine"), 1, "the page was not loaded again");
    assert!(browser.has("main time[title$=UTC]"), "what came later has the reader's time too");
    // In a table, how long ago it is; the exact time where the row has the focus.
    assert!(browser.text("td time").ends_with(" ago"), "{}", browser.text("td time"));
    browser.run("document.querySelector('td a').focus()");
    let exact = "return getComputedStyle(document.querySelector('td time'), '::after').content";
    let shown = browser.run(exact);
    assert!(shown.as_str().is_some_and(|shown| shown.contains("2026-")), "{shown}");
    browser.run("document.activeElement.blur()");
    // Who types in a filter is left alone until the field is left.
    browser.click("[name=event_type]");
    world.invoice(4901);
    thread::sleep(Duration::from_secs(4));
    assert!(!browser.text("main").contains("4901"));
    browser.run("document.activeElement.blur()");
    browser.wait_for("main", "4901");
    // Nothing was committed: the answer is 304, without a body.
    until("an answer without a body", || {
        let last = "const all = performance.getEntriesByType('resource'); return all[all.length - 1]?.responseStatus";
        browser.run(last) == 304
    });
}

#[test]
fn a_typed_time_is_one_of_the_zone_that_pages_show() {
    let Some(driver) = Driver::start() else { return };
    let (world, browser) = (World::new(), driver.browser());
    world.enter(&browser, "otto");
    browser.cdp("Emulation.setTimezoneOverride", &json!({ "timezoneId": "Asia/Kolkata" }));
    let ahead = (5 * 60 + 30) * 60_000;
    let midnight = {
        let local = world.rig.now().ms() + ahead;
        local - local.rem_euclid(86_400_000) - ahead
    };
    let at = |ms: i64| Timestamp::from_ms(ms).to_string();
    let sends = |form: &str, name: &str| {
        let script = "return new FormData(document.querySelector(arguments[0])).get(arguments[1])";
        browser.run_with(script, &json!([form, name])).as_str().unwrap().to_owned()
    };
    browser.open(&world.at("/console/events"));
    assert!(browser.text("#filters .zone").starts_with("Asia/"), "{}", browser.text("#filters"));
    for (typed, sent) in [
        ("2026-01-31 18:00", "2026-01-31T12:30:00.000Z".to_owned()),
        ("2026-01-31T18:00:05", "2026-01-31T12:30:05.000Z".to_owned()),
        ("2026-02-01", "2026-01-31T18:30:00.000Z".to_owned()),
        ("today", at(midnight)),
        ("08:29", at(midnight + (8 * 60 + 29) * 60_000)),
        ("Last night", at(midnight - 6 * 3_600_000)),
        ("2h", "2h".to_owned()),
        ("2026-01-31T12:30:00Z", "2026-01-31T12:30:00Z".to_owned()),
    ] {
        // The list is made anew every few seconds: the field is filled and read at once.
        let script = "const form = document.querySelector('#filters form'); \
                      form.elements.since.value = arguments[0]; return new FormData(form).get('since')";
        assert_eq!(browser.run_with(script, &json!([typed])), sent.as_str(), "{typed}");
    }
    // A form shows what it is given in the same zone, and sends it as it was unless it is touched.
    let given = "filter.subscription=bank&filter.since=2026-01-31T12:30:05.250Z";
    browser.open(&world.at(&format!("/console/act/replay-events?{given}")));
    let shown = "return document.querySelector('[name=\"filter.since\"]').value";
    assert_eq!(browser.run(shown), "2026-01-31 18:00:05");
    assert_eq!(sends("form.act", "filter.since"), "2026-01-31T12:30:05.250Z");
    browser.fill("[name='filter.since']", "2026-01-31 18:00");
    browser.follow("form.act button.primary");
    assert_eq!(browser.run(shown), "2026-01-31 18:00:00");
    assert_eq!(sends("form.act", "filter.since"), "2026-01-31T12:30:00.000Z");
    // Without the script, pages show UTC and forms read it.
    browser.scripts(false);
    browser.open(&world.at(&format!("/console/act/replay-events?{given}")));
    let page = browser.source();
    assert!(page.contains("2026-01-31T12:30:05.250Z") && page.contains(">UTC</small>"), "{page}");
    browser.scripts(true);
}

#[test]
fn a_provider_is_made_with_a_new_secret_and_a_policy_in_words() {
    let Some(driver) = Driver::start() else { return };
    let (world, browser) = (World::empty(), driver.browser());
    world.enter(&browser, "anna");
    browser.open(&world.at("/console/act/create-provider?back=/console/sources"));
    browser.fill("[name=name]", "shop");
    browser.run("const kind = document.querySelector('[name=\"scheme.kind\"]'); kind.value = 'stripe'; kind.dispatchEvent(new Event('change', { bubbles: true }))");
    browser.click("[name=secret\\.make]");
    // Rules are typed only for a policy of one's own.
    assert!(!browser.has("[name=\"pii.rules\"]:enabled"));
    browser.click("[name=pii][value=own]");
    assert!(browser.has("[name=\"pii.rules\"]:enabled"));
    browser.click("[name=pii][value*=seal]");
    browser.follow("form.act button.primary");
    shows(&browser.text("main"), &["shown once", "whsec_", "/in/shop"]);
    let made = world.rig.get("/v1/providers/shop");
    assert_eq!(made["pii"]["rules"][0]["action"], "seal", "{made}");
    browser.press("Go on");
    assert!(!browser.text("main").contains("whsec_"));
    browser.press("A signed sample");
    shows(&browser.text("main"), &["is taken"]);
    // A change shows the sentence that was chosen, and sends nothing of it.
    browser.press("Change");
    assert!(browser.has("[name=pii][value*=seal]:checked"), "{}", browser.text("main"));
}

#[test]
fn what_is_typed_stays_for_its_person_when_the_service_is_gone() {
    let Some(driver) = Driver::start() else { return };
    let (mut world, browser) = (World::empty(), driver.browser());
    // The same address after the restart, as a service has it.
    let address = world.rig.address();
    world.rig.restart_with(|settings| settings.listen.api = address);
    world.enter(&browser, "anna");
    let form = "/console/act/create-user?back=/console/";
    browser.open(&world.at(form));
    assert!(browser.has(".kept[hidden]"));
    browser.fill("[name=name]", "night-work");
    browser.fill("[name=password]", "a-secret-that-nobody-keeps");
    world.rig.stop();
    browser.run("document.querySelector('form.act').requestSubmit()");
    world.rig.start_again();
    let kept = || browser.run("return document.querySelector('[name=name]').value");
    browser.open(&world.at(form));
    assert_eq!(kept(), "night-work");
    assert!(browser.has(".kept:not([hidden])"));
    let stored = browser.run("return JSON.stringify({ ...sessionStorage })");
    assert!(!stored.to_string().contains("nobody-keeps"), "{stored}");
    // Another person who logs in here sees nothing of it.
    world.enter(&browser, "otto");
    world.enter(&browser, "anna");
    browser.open(&world.at(form));
    assert_eq!(kept(), "");
    // What is not wanted goes at once, and what was done is not kept.
    browser.fill("[name=name]", "night-work");
    browser.open(&world.at(form));
    browser.click(".kept button");
    assert_eq!(kept(), "");
    browser.fill("[name=name]", "night-work");
    browser.run("document.querySelector('[name=role]').value = 'read'");
    browser.follow("form.act button.primary");
    browser.open(&world.at(form));
    assert_eq!(kept(), "");
    assert_eq!(world.rig.get("/v1/users/night-work")["role"], "read");
}

#[test]
fn only_the_fields_of_the_chosen_alternative_are_shown() {
    let Some(driver) = Driver::start() else { return };
    let (world, browser) = (World::empty(), driver.browser());
    world.enter(&browser, "anna");
    browser.open(&world.at("/console/act/create-provider?back=/console/sources"));
    let choose = |name: &str, value: &str| {
        let script = "const by = document.getElementsByName(arguments[0])[0]; by.value = arguments[1]; \
                      by.dispatchEvent(new Event('change', { bubbles: true }))";
        browser.run_with(script, &json!([name, value]));
    };
    // The names of the fields of a check that a person sees.
    let shown = || {
        let script = "return [...document.querySelectorAll('[name^=\"scheme.check.\"]')]\
                      .filter((field) => field.offsetParent && !field.disabled).map((field) => field.name)";
        browser.run(script)
    };
    assert_eq!(shown(), json!([]));
    choose("scheme.kind", "generic");
    assert!(browser.has("[name=\"scheme.check\"]:required"));
    assert_eq!(shown(), json!([]), "nothing is chosen yet");
    choose("scheme.check", "token");
    assert_eq!(shown(), json!(["scheme.check.token.header", "scheme.check.token.prefix"]));
    assert!(!browser.text("form.act").contains("Only for"), "{}", browser.text("form.act"));
    choose("scheme.check", "basic");
    assert_eq!(shown(), json!(["scheme.check.basic.user"]));
    choose("scheme.kind", "stripe");
    assert_eq!(shown(), json!([]), "the choice itself is not shown");
    choose("scheme.kind", "generic");
    browser.fill("[name=name]", "shop");
    browser.fill("[name=\"scheme.check.basic.user\"]", "erp");
    browser.click("[name=secret\\.make]");
    browser.click("[name=pii][value=allow]");
    browser.follow("form.act button.primary");
    shows(&browser.text("main"), &["shown once", "<your public host>/in/shop"]);
    let made = world.rig.get("/v1/providers/shop");
    assert_eq!(made["scheme"]["check"], json!({ "basic": { "user": "erp" } }), "{made}");
    // Without a script, each group says what it is for.
    browser.scripts(false);
    browser.open(&world.at("/console/act/create-provider?back=/console/sources"));
    shows(&browser.source(), &["Only for </span>hmac", "Only for </span>token"]);
    browser.scripts(true);
}

#[test]
fn what_an_action_did_is_said_once_and_words_say_their_meaning_on_focus() {
    let Some(driver) = Driver::start() else { return };
    let (world, browser) = (World::new(), driver.browser());
    world.enter(&browser, "otto");
    browser.open(&world.at("/console/subscriptions/bank"));
    browser.press("Stop sending");
    browser.wait_for(".notice[role=status]", "Stop sending: done");
    assert!(!browser.url().contains("did="), "{}", browser.url());
    browser.reload();
    assert!(!browser.has(".notice[role=status]"), "{}", browser.text("main"));

    browser.open(&world.at("/console/lanes"));
    let told = "const word = document.querySelector('abbr[title]'); word.focus(); \
                return [document.activeElement === word, word.title, getComputedStyle(word, '::after').content]";
    let found = browser.run(told);
    assert_eq!(found[0], true, "{found}");
    let title = found[1].as_str().unwrap();
    assert!(title.len() > 20, "{found}");
    assert!(found[2].as_str().unwrap().contains(title), "{found}");
}
