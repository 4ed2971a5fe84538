//! What the screen says is true, or it says since when it is not.

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
