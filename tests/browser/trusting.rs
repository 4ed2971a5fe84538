//! What the screen says is true, or it says since when it is not.

use data_encoding::BASE64;

use crate::world::prelude::*;

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
fn an_event_prints_light_on_one_page_with_its_hashes() {
    let Some(driver) = Driver::start() else { return };
    let (world, browser) = (World::new(), driver.browser());
    world.enter(&browser, "anna");
    let id = world.rig.id("/v1/events?aggregate_id=4711");
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
