//! Each kind of page, looked at by axe-core, as others look at their pages: light and dark.

use crate::browser::world::prelude::*;

/// What axe-core finds: the rule, and the first elements.
const FOUND: &str = r"
const done = arguments[arguments.length - 1];
const told = ({ id, help, nodes }) => `${id}: ${help}: ${nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(' | ')}`;
axe.run(document).then(({ violations }) => done(violations.map(told)), (error) => done([`axe failed: ${error}`]));
";

/// The program of axe-core.
fn axe() -> Option<String> {
    let Some(path) = std::env::var_os("ONCEBOX_AXE") else {
        skipped("needs ONCEBOX_AXE, the file axe.min.js of axe-core");
        return None;
    };
    Some(fs::read_to_string(path).unwrap())
}

#[test]
fn axe_core_finds_nothing_on_any_page() {
    let (Some(driver), Some(axe)) = (Driver::start(), axe()) else { return };
    let (world, browser) = (World::new(), driver.browser());
    let mut faults = Vec::new();
    let mut looks_at = |path: &str, scheme: &str| {
        browser.prefers(&[("prefers-color-scheme", scheme)]);
        browser.open(&world.at(path));
        browser.run(&axe);
        for fault in browser.run_until_done(FOUND, &json!([])).as_array().unwrap() {
            faults.push(format!("{path}: {scheme}: {fault}"));
        }
    };
    looks_at("/console/", "light");
    looks_at("/console/", "dark");
    world.enter(&browser, "anna");
    let mut kinds = BTreeSet::new();
    let pages = walk::pages(&browser);
    let pages: Vec<_> = pages.iter().filter(|path| kinds.insert(walk::kind(path))).collect();
    assert!(pages.len() > 30, "{pages:?}");
    for path in pages {
        looks_at(path, "light");
        looks_at(path, "dark");
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn axe_core_sees_what_it_should() {
    let (Some(driver), Some(axe)) = (Driver::start(), axe()) else { return };
    let (browser, page) = (driver.browser(), Receiver::new());
    let html = b"<p style='color:#aaa;background:#fff'>pale</p><img src=x><input>";
    page.always(Reply::Answer(200, vec![("content-type", "text/html".to_owned())], html.to_vec()));
    browser.open(&page.url());
    browser.run(&axe);
    let found = browser.run_until_done(FOUND, &json!([])).to_string();
    for rule in ["color-contrast", "image-alt", "label", "html-has-lang"] {
        assert!(found.contains(&format!("{rule}: ")), "{rule} is not seen: {found}");
    }
}
