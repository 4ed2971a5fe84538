//! A picture of each page in both color schemes and on a phone, in `target/screenshots/`. With `ONCEBOX_WRITE_DOCS=1` those
//! that are kept in `docs/console/` are made anew.

use crate::browser::world::prelude::*;

/// The largest that all kept pictures may be together.
const KEPT_BYTES: u64 = 1_100_000;

/// Name, path, and whether the dark picture and the phone's are kept too. `ID` is an event that one target
/// took and another refused.
const PAGES: [(&str, &str, bool); 22] = [
    ("overview", "/console/", true),
    ("search", "/console/search?q=47", false),
    ("event", "/console/events/ID", true),
    ("events", "/console/events", false),
    ("received", "/console/webhooks", false),
    ("webhook", "/console/webhooks/HOOK", false),
    ("deliveries", "/console/deliveries", false),
    ("delivery", "/console/deliveries/WAITING", false),
    ("dead-letters", "/console/dead-letters", false),
    ("discard", "/console/act/discard-dead-letters?filter.subscription=shop&back=/console/", false),
    ("lanes", "/console/lanes", false),
    ("lane", "/console/lanes/LANE", false),
    ("subscriptions", "/console/subscriptions", false),
    ("subscription", "/console/subscriptions/crm", false),
    ("sources", "/console/sources", false),
    ("provider", "/console/providers/stripe", false),
    ("new-provider", "/console/act/create-provider?back=/console/sources", false),
    ("change", "/console/act/change-subscription?id=crm&back=/console/", false),
    ("alerts", "/console/alerts", false),
    ("audit", "/console/audit", false),
    ("settings", "/console/settings", false),
    ("first-visit", "/console/start", false),
];

#[test]
fn each_page_has_its_picture() {
    let Some(driver) = Driver::start() else { return };
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (made, kept) = (root.join("target/screenshots"), root.join("docs/console"));
    fs::create_dir_all(&made).unwrap();
    fs::create_dir_all(&kept).unwrap();
    let keeps = std::env::var_os("ONCEBOX_WRITE_DOCS").is_some();
    let (world, empty, browser) = (World::new(), World::empty(), driver.browser());
    let rig = &world.rig;
    let returned = world.returned();
    let id_of = |path: &str| rig.id(path);
    let ids = [
        ("ID", returned),
        ("HOOK", id_of("/v1/webhook-events")),
        ("WAITING", id_of("/v1/deliveries?subscription=warehouse")),
        ("LANE", id_of("/v1/lanes?subscription=ledger")),
    ];
    world.enter(&browser, "anna");
    for (name, path, is_kept_all) in PAGES {
        let at = if name == "first-visit" {
            empty.enter(&browser, "anna");
            &empty
        } else {
            &world
        };
        let path = ids.iter().fold(path.to_owned(), |path, (name, id)| path.replace(name, id));
        for (kind, width, scheme) in
            [("", 1200, "light"), ("-dark", 1200, "dark"), ("-phone", 390, "light")]
        {
            browser.size(width, 900, 1);
            browser.prefers(&[("prefers-color-scheme", scheme)]);
            if kind.is_empty() {
                browser.open(&at.at(&path));
            }
            let heading = browser.text("h1");
            assert!(
                !heading.is_empty() && !browser.has("main > [role=alert]:not([hidden])"),
                "{path}: {heading}"
            );
            let name = format!("{name}{kind}");
            fs::write(made.join(format!("{name}.png")), browser.screenshot("png", 4000)).unwrap();
            if keeps && (kind.is_empty() || is_kept_all) {
                let picture = browser.screenshot("webp", 1100);
                fs::write(kept.join(format!("{name}.webp")), picture).unwrap();
            }
        }
    }
    let kept = fs::read_dir(kept).unwrap().map(|file| file.unwrap().metadata().unwrap().len());
    let (count, bytes) = kept.fold((0, 0), |(count, bytes), len| (count + 1, bytes + len));
    assert!(
        bytes <= KEPT_BYTES && count >= PAGES.len(),
        "{count} pictures of {bytes} bytes are kept"
    );
}
