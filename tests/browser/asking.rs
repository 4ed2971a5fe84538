//! The accountant's ten questions of `docs/console.md`: each is answered in at most three clicks from the search box.

use crate::browser::world::prelude::*;

const PAGE: &str = include_str!("../../docs/console.md");

/// A person with a question: who types into the search box, and clicks three times at most.
struct Asked<'a> {
    browser: Browser<'a>,
    clicks: u32,
}

impl<'a> Asked<'a> {
    /// Begins at a page that has nothing to do with it, with the question as the page on the console words it.
    #[track_caller]
    fn new(driver: &'a Driver, world: &World, question: &str) -> Self {
        assert!(PAGE.contains(question), "docs/console.md does not ask {question:?}");
        let browser = driver.browser();
        world.enter(&browser, "anna");
        browser.open(&world.at("/console/settings"));
        Self { browser, clicks: 0 }
    }

    fn search(&self, world: &World, text: &str) {
        world.search(&self.browser, text);
    }

    #[track_caller]
    fn click(&mut self, text: &str) {
        self.clicks += 1;
        self.browser.press(text);
    }

    #[track_caller]
    fn sees(&self, css: &str, texts: &[&str]) {
        assert!(self.clicks <= 3, "{} clicks", self.clicks);
        let shown = self.browser.text(css);
        for text in texts {
            assert!(shown.contains(text), "{text:?} is not in {css}:\n{shown}");
        }
    }
}

#[test]
fn did_4711_go_out_and_what_did_they_answer() {
    let Some(driver) = Driver::start() else { return };
    let world = World::new();
    let mut asked = Asked::new(driver, &world, "Did 4711 go out?");
    asked.search(&world, "4711");
    // The list answers already; the page says when and to whom.
    asked.sees("main", &["4711", "invoice.booked", "completed"]);
    asked.click("4711");
    asked.sees("h1", &["Invoice 4711"]);
    asked.sees("main", &["bank", "completed", "success", "200"]);
    assert!(PAGE.contains("What did they answer?"));
    asked.sees("main", &["B-90210"]);
}

#[test]
fn why_not_yet() {
    let Some(driver) = Driver::start() else { return };
    let world = World::new();
    let mut asked = Asked::new(driver, &world, "Why not yet?");
    asked.search(&world, "O-88");
    asked.click("O-88");
    asked.sees("main", &["It waits:", "warehouse", "503", "archive", "paused"]);
}

#[test]
fn who_changed_the_address() {
    let Some(driver) = Driver::start() else { return };
    let world = World::new();
    let mut asked = Asked::new(driver, &world, "Who changed the address?");
    // Somebody does it in the console.
    let browser = &asked.browser;
    browser.open(&world.at("/console/subscriptions/bank"));
    browser.press("Change");
    browser.fill("[name=url]", "http://127.0.0.1:8099/new-bank");
    browser.press("Change");
    assert!(browser.text(".notice").contains("Change: done"), "{}", browser.text("main"));
    browser.open(&world.at("/console/settings"));
    asked.search(&world, "bank");
    asked.click("bank");
    asked.click("Who changed it");
    asked.sees(
        "main",
        &["anna", "subscription.change", "http://127.0.0.1:8099/new-bank", &world.well.url()],
    );
}

#[test]
fn send_last_nights_again() {
    let Some(driver) = Driver::start() else { return };
    let world = World::new();
    let mut asked = Asked::new(driver, &world, "Send last night's again");
    asked.search(&world, "bank");
    asked.click("bank");
    let before = world.well.count();
    asked.click("Send again since");
    // The last day is filled in, and what that touches is counted.
    asked.sees("main", &["This touches", "Invoice 4681"]);
    asked.click("Send again since");
    asked.browser.wait_for("main", "completed");
    world.rig.settle();
    assert!(world.well.count() > before, "{}", asked.browser.text("main"));
    asked.sees("main", &["completed", "anna"]);
}

#[test]
fn what_came_from_stripe_today_and_what_was_refused() {
    let Some(driver) = Driver::start() else { return };
    let world = World::new();
    let mut asked =
        Asked::new(driver, &world, "What came from Stripe today, and what was refused?");
    asked.click("Received");
    asked.click("Today");
    asked.sees("main", &["stripe", "evt_42", "invoice.paid"]);
    asked.sees("main", &["Refused webhooks", "signature", "401"]);
}

#[test]
fn who_is_failing_and_is_anything_stuck() {
    let Some(driver) = Driver::start() else { return };
    let world = World::new();
    let mut asked = Asked::new(driver, &world, "Who is failing?");
    asked.click("Subscriptions");
    asked.sees("main tbody", &["warehouse"]);
    let rows = asked.browser.run(
        "return [...document.querySelectorAll('main tbody tr')].map((row) => row.cells[0].innerText.trim())",
    );
    let place = |name: &str| rows.as_array().unwrap().iter().position(|row| row == name).unwrap();
    assert!(place("warehouse") < place("bank"), "those that need a look come first: {rows}");
    let mut asked = Asked::new(driver, &world, "Is anything stuck?");
    asked.click("Overview");
    asked.sees("main", &["dead letters need a person", "lane is blocked"]);
    asked.click("Lanes");
    asked.sees("main", &["ledger", "A-9"]);
}

#[test]
fn stop_sending_to_somebody() {
    let Some(driver) = Driver::start() else { return };
    let world = World::new();
    let mut asked = Asked::new(driver, &world, "Stop sending to X");
    asked.search(&world, "bank");
    asked.click("bank");
    asked.click("Stop sending");
    asked.sees("main", &["Stop sending: done", "Held: paused"]);
    let before = world.well.count();
    world.invoice(4800);
    asked.browser.press("Resume");
    world.arrives(before + 1);
}

#[test]
fn what_will_this_replay_send() {
    let Some(driver) = Driver::start() else { return };
    let world = World::new();
    let mut asked = Asked::new(driver, &world, "What will this replay send?");
    asked.click("Dead letters");
    let row = "main tbody tr:has(a[href$='subscription=shop']) a[href*='replay-dead-letters']";
    asked.clicks += 1;
    asked.browser.follow(row);
    asked.sees("main", &["This touches", "3 deliveries", "Price P-1", "price.changed", "shop"]);
    // Nothing was sent by asking.
    assert_eq!(world.rig.get("/v1/jobs")["items"], serde_json::json!([]));
}
