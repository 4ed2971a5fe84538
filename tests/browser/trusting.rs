//! What the screen says is true, or it says since when it is not.

use data_encoding::BASE64;

use crate::browser::world::prelude::*;

#[test]
fn a_page_that_cannot_be_updated_says_since_when_and_greys_its_verdict() {
    let Some(driver) = Driver::start() else { return };
    let (mut world, browser) = (World::empty(), driver.browser());
    world.enter(&browser, "rita");
    assert!(browser.text("main").contains("The last hour"));
    let is_stale = || browser.has("main.stale");
    // The line is down, then it is up again.
    let down = |is_down: bool| {
        let state = json!({ "offline": is_down, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1 });
        browser.cdp("Network.enable", &json!({}));
        browser.cdp("Network.emulateNetworkConditions", &state);
    };
    down(true);
    until("it says so", is_stale);
    shows(&browser.text("#stale"), &["Not updated since", ":"]);
    assert!(!browser.text("#stale").contains("log in again"));
    down(false);
    until("it is fresh again", || !is_stale());
    assert!(browser.has("#stale[hidden]"));
    // The session ends while the page is looked at: its polls keep it from nothing.
    world.rig.advance(secs(5 * 3600));
    let polls =
        || browser.run("return performance.getEntriesByType('resource').length").as_u64().unwrap();
    let before = polls();
    until("it has asked", || polls() > before);
    world.rig.advance(secs(4 * 3600));
    until("the session is over", is_stale);
    shows(&browser.text("#stale"), &["Your session ended: log in again."]);
    browser.follow("#stale a");
    assert_eq!(browser.text("h1"), "Log in");
    // A service that is gone for good.
    world.enter(&browser, "rita");
    world.rig.stop();
    until("it says so", is_stale);
}

#[test]
fn a_page_that_somebody_reads_is_paused_and_raises_no_alarm() {
    let Some(driver) = Driver::start() else { return };
    let (mut world, browser) = (World::empty(), driver.browser());
    world.enter(&browser, "rita");
    browser.open(&world.at("/console/events"));
    let polls =
        || browser.run("return performance.getEntriesByType('resource').length").as_u64().unwrap();
    let polled = |what: &str| {
        let before = polls();
        // The second has begun after the first was answered.
        until(what, || polls() >= before + 2);
    };
    polled("the page asks");
    // The focus stays on a link for longer than any page may be old.
    browser.run("document.querySelector('main .tabs a').focus()");
    browser.run("const now = Date.now; Date.now = () => now() + 3600000");
    polled("the page asks though it is read");
    assert!(browser.has("#stale[hidden]") && browser.has("#paused[hidden]"), "nothing is new");
    world.rig.publish(&json!({ "event_type": "invoice.booked", "aggregate_type": "invoice", "aggregate_id": "9001", "payload": 1 }));
    until("it says that there is more", || browser.has("#paused:not([hidden])"));
    shows(&browser.text("#paused"), &["Paused while you read", "Update"]);
    assert!(!browser.text("main").contains("9001") && !browser.has("main.stale"));
    browser.run("document.activeElement.blur()");
    browser.wait_for("main table", "9001");
    assert!(browser.has("#paused[hidden]"));
    // A form tells of a service that is gone.
    world.enter(&browser, "anna");
    browser.open(&world.at("/console/act/create-source"));
    assert!(browser.has("form.act"));
    world.rig.stop();
    browser.run("const now = Date.now; Date.now = () => now() + 3600000");
    until("the form says so", || browser.has("#stale:not([hidden])"));
    shows(&browser.text("#stale"), &["The service has not answered since", ":"]);
}

#[test]
fn an_event_prints_light_on_one_page_with_its_hashes() {
    let Some(driver) = Driver::start() else { return };
    let (world, browser) = (World::new(), driver.browser());
    world.enter(&browser, "anna");
    let id = world.returned();
    browser.open(&world.at(&format!("/console/events/{id}")));
    let newest = world.rig.get("/v1/audit-events?limit=1")["items"][0].clone();
    let hash = newest["hash"].as_str().unwrap();
    shows(&browser.text("main"), &["SHA-256", "Sent to", hash, &newest["seq"].to_string()]);
    let dark = json!({ "name": "prefers-color-scheme", "value": "dark" });
    browser.cdp("Emulation.setEmulatedMedia", &json!({ "media": "print", "features": [dark] }));
    let page = "return getComputedStyle(document.body).backgroundColor";
    assert_eq!(browser.run(page), "rgb(255, 255, 255)");
    let printed = browser.cdp("Page.printToPDF", &json!({ "preferCSSPageSize": true }));
    let pdf = BASE64.decode(printed["data"].as_str().unwrap().as_bytes()).unwrap();
    let pdf = String::from_utf8_lossy(&pdf);
    let pages = pdf.matches("/Type /Page").count() - pdf.matches("/Type /Pages").count();
    assert_eq!(pages, 1);
    // A4 in points.
    assert!(pdf.contains("[0 0 594.95") || pdf.contains("[0 0 595"), "{:?}", pdf.find("MediaBox"));
}

/// A morning on which much is wrong: the screen says the worst first, in people's words, also after a restart.
#[test]
fn a_bad_morning_is_told_in_order_and_a_restart_forgets_nothing() {
    let Some(driver) = Driver::start() else { return };
    let (mut world, browser) = (World::empty(), driver.browser());
    for n in 0..51_u32 {
        // The last one is on the last page, and broken.
        let to = if n == 50 { &world.bad } else { &world.well };
        world.rig.subscribe_with(
            &format!("s-{n:02}"),
            to,
            &json!({ "event_types": [format!("t{n}")] }),
        );
    }
    world.bad.always(Reply::status(422));
    world.rig.publish(&json!({ "event_type": "t1", "payload": 1 }));
    world.rig.publish(&json!({ "event_type": "t50", "payload": 1 }));
    world.rig.becomes("SELECT count(*) FROM deliveries WHERE finished_at IS NOT NULL", "2");
    let raise = |class: &str, of: &str, count: u32| {
        world.rig.write(&format!(
            "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {count})
             INSERT INTO escalations (id, tenant, class, subject, detail, first_at, last_at)
             SELECT '{class}-' || n, 'default', '{class}', '{of}:x-' || n, 'It is wrong.', {now}, {now} FROM n",
            now = world.rig.now().ms()
        ));
    };
    raise("subscription.auth", "subscription", 20);
    raise("source.silent", "source", 40);
    world.enter(&browser, "otto");
    shows(&browser.text(".headline"), &["20 critical", "warnings"]);
    let verdicts = browser.text(".verdicts");
    let at = |text: &str| verdicts.find(text).unwrap_or_else(|| panic!("{text}: {verdicts}"));
    assert!(at("all 20") < at("all 40"), "the worst comes first: {verdicts}");
    assert!(!verdicts.contains("subscription.auth"), "{verdicts}");
    // Who is failing stands first, wherever it is in the list.
    browser.press("Subscriptions");
    let first = browser.text("tbody tr");
    assert!(first.contains("s-50"), "{first}");
    // The last hour is still there after a restart.
    browser.press("Overview");
    shows(&browser.text(".cards"), &["2 events, 0 webhooks"]);
    world.rig.advance(secs(60));
    until("the minute is stored", || world.rig.one("SELECT count(*) FROM recent_minutes") != "0");
    world.rig.restart();
    browser.open(&world.at("/console/"));
    shows(&browser.text(".cards"), &["2 events, 0 webhooks"]);
    shows(&browser.text(".headline"), &["20 critical", "warnings"]);
}
