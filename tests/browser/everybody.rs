//! Each page for everybody: by keyboard, by screen reader, on a phone, enlarged, in both color schemes.

use crate::browser::world::prelude::*;

/// Contrast of each text with what is behind it (WCAG 2). Returns those below 4.5.
const CONTRAST: &str = r"
const light = (color) => {
  const [r, g, b] = color.map((part) => {
    const c = part / 255;
    return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const parts = (text) => {
  const numbers = text.match(/[\d.]+/g).map(Number);
  return [numbers.slice(0, 3), numbers.length > 3 ? numbers[3] : 1];
};
const over = ([front, alpha], back) => front.map((part, n) => part * alpha + back[n] * (1 - alpha));
const behind = (element) => {
  const layers = [];
  for (let at = element; at; at = at.parentElement) layers.push(parts(getComputedStyle(at).backgroundColor));
  const base = matchMedia('(prefers-color-scheme: dark)').matches ? [18, 18, 18] : [255, 255, 255];
  return layers.reverse().reduce((back, layer) => over(layer, back), base);
};
const bad = new Set();
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement;
  if (!walker.currentNode.data.trim() || !element.checkVisibility()) continue;
  if (['SCRIPT', 'STYLE', 'TITLE'].includes(element.tagName.toUpperCase())) continue;
  const style = getComputedStyle(element);
  const inSvg = element instanceof SVGElement;
  const ink = inSvg ? style.fill : style.color;
  if (!/^rgb/.test(ink)) continue;
  const back = behind(inSvg ? element.closest('svg').parentElement : element);
  const front = over(parts(ink), back);
  const [a, b] = [light(front), light(back)].sort((x, y) => y - x);
  const ratio = (a + 0.05) / (b + 0.05);
  if (ratio < 4.5) bad.add(`${ratio.toFixed(2)} <${element.tagName.toLowerCase()} class='${element.className.baseVal ?? element.className}'>${walker.currentNode.data.trim().slice(0, 40)}`);
}
for (const field of document.querySelectorAll('input, select, textarea')) {
  if (!field.checkVisibility() || field.type === 'checkbox' || field.type === 'radio') continue;
  const back = behind(field);
  for (const ink of [getComputedStyle(field).color, field.placeholder ? getComputedStyle(field, '::placeholder').color : null]) {
    if (!ink) continue;
    const [a, b] = [light(over(parts(ink), back)), light(back)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) bad.add(`${ratio.toFixed(2)} <${field.tagName.toLowerCase()} name='${field.name}'>`);
  }
}
return [...bad];
";

/// What reaches over the side of the window.
pub(crate) const TOO_WIDE: &str = r"
const root = document.documentElement;
if (root.scrollWidth <= innerWidth) return [];
const wide = [...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && e.checkVisibility());
return [`${root.scrollWidth} of ${innerWidth}`, ...wide.slice(0, 4).map((e) => e.outerHTML.slice(0, 160))];
";

/// Headings, tables and fields as HTML has them.
const STRUCTURE: &str = r"
const faults = [];
const all = (css) => [...document.querySelectorAll(css)];
const h1 = all('h1');
if (h1.length !== 1 || !h1[0].textContent.trim()) faults.push(`${h1.length} h1`);
let level = 1;
for (const heading of all('h1, h2, h3, h4, h5, h6')) {
  const next = Number(heading.tagName[1]);
  if (next > level + 1) faults.push(`a level is left out before ${heading.outerHTML.slice(0, 80)}`);
  level = next;
}
for (const table of all('table')) {
  if (!table.caption?.textContent.trim()) faults.push(`no caption: ${table.outerHTML.slice(0, 120)}`);
  const heads = [...table.querySelectorAll('th')];
  if (!heads.length || heads.some((th) => !th.scope)) faults.push(`th without scope: ${table.caption?.textContent}`);
  if (heads.some((th) => !th.textContent.trim())) faults.push(`th without text: ${table.caption?.textContent}`);
}
for (const svg of all('svg')) {
  if (!svg.closest('[aria-hidden=true]') && !(svg.getAttribute('role') === 'img' && (svg.getAttribute('aria-label') || svg.querySelector('title'))))
    faults.push(`picture without a text: ${svg.outerHTML.slice(0, 120)}`);
}
const ids = all('[id]').map((e) => e.id);
const twice = ids.filter((id, n) => ids.indexOf(id) !== n);
if (twice.length) faults.push(`the same id twice: ${twice}`);
if (!document.title.startsWith(h1[0]?.textContent.trim().slice(0, 20))) faults.push(`the title is ${document.title}`);
if (document.documentElement.lang !== 'en') faults.push('no language');
if (all('[style], [onclick], [onload]').length) faults.push('an attribute that the policy forbids');
if (document.documentElement.outerHTML.length > 110000) faults.push('a page has at most 100 kB');
return faults;
";

/// Notes what gets the focus, and whether one sees it there.
const TRAIL: &str = r"
window.trail = [];
const numbers = new Map();
document.addEventListener('focusin', ({ target }) => {
  if (!numbers.has(target)) numbers.set(target, numbers.size);
  const style = getComputedStyle(target);
  const box = target.getBoundingClientRect();
  const isSeen = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2 && box.width > 0 && box.height > 0;
  trail.push([numbers.get(target), isSeen, target.outerHTML.slice(0, 120)]);
});
";

/// How many elements Tab must reach: radio buttons of one name are one.
const FOCUSABLE: &str = r"
const all = [...document.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex]')];
const isFirst = (e) => e.type !== 'radio' || all.find((other) => other.type === 'radio' && other.name === e.name) === e;
return all.filter((e) => e.tabIndex >= 0 && isFirst(e) && !e.disabled && e.type !== 'hidden' && e.checkVisibility({ visibilityProperty: true })).length;
";

const TAB: &str = "\u{e004}";

fn name(node: &Value) -> &str {
    node["name"]["value"].as_str().unwrap_or_default().trim()
}

/// What a screen reader would miss on this page.
fn unheard(browser: &Browser<'_>, is_inside: bool) -> Vec<String> {
    let nodes = browser.accessibility();
    let role = |node: &Value| node["role"]["value"].as_str().unwrap_or_default().to_owned();
    let count = |wanted: &str| nodes.iter().filter(|node| role(node) == wanted).count();
    let mut faults = Vec::new();
    let landmarks = [("main", 1), ("banner", 1), ("search", 1)];
    for (landmark, wanted) in landmarks.iter().take(if is_inside { 3 } else { 1 }) {
        if count(landmark) != *wanted {
            faults.push(format!("{} landmarks {landmark}", count(landmark)));
        }
    }
    if is_inside && !nodes.iter().any(|node| role(node) == "navigation" && name(node) == "Pages") {
        faults.push("no menu".to_owned());
    }
    let controls = words(
        "link button textbox searchbox checkbox radio combobox listbox region \
        navigation table image spinbutton DisclosureTriangle group",
    );
    for node in &nodes {
        let role = role(node);
        if controls.contains(&role.as_str()) && name(node).is_empty() && role != "group" {
            faults.push(format!("{role} without a name: {}", node["properties"]));
        }
    }
    faults
}

/// A page has 40 kB at most, and what came over the line 12.
const SIZE: &str = "const { decodedBodySize: page, encodedBodySize: sent } = performance.getEntriesByType('navigation')[0];
    return page > 40000 || sent > 12000 ? [`${page} bytes, ${sent} sent`] : []";

#[test]
fn each_page_is_heard_and_seen_by_everybody() {
    let Some(driver) = Driver::start() else { return };
    let (world, browser) = (World::new(), driver.browser());
    let mut faults = Vec::new();
    let mut note = |path: &str, what: &str, found: Value| {
        for fault in found.as_array().unwrap() {
            faults.push(format!("{path}: {what}: {fault}"));
        }
    };
    browser.size(1200, 900, 1);
    browser.open(&world.at("/console/"));
    note("log-in", "a screen reader", json!(unheard(&browser, false)));
    note("log-in", "structure", browser.run(STRUCTURE));
    note("log-in", "contrast", browser.run(CONTRAST));
    world.enter(&browser, "anna");
    let pages = walk::pages(&browser);
    assert!(pages.len() > 40, "{pages:?}");
    let wide = format!(
        "return [(() => {{ {STRUCTURE} }})(), (() => {{ {CONTRAST} }})(), (() => {{ {TOO_WIDE} }})()]"
    );
    let moving = "document.getAnimations().length ? ['it moves'] : []";
    let dark = format!("return [(() => {{ {CONTRAST} }})(), {moving}]");
    for path in &pages {
        browser.size(1200, 900, 1);
        browser.prefers(&[("prefers-color-scheme", "light")]);
        browser.open(&world.at(path));
        note(path, "a screen reader", json!(unheard(&browser, true)));
        note(path, "size", browser.run(SIZE));
        let found = browser.run(&wide);
        for (n, what) in ["structure", "light", "wide"].iter().enumerate() {
            note(path, what, found[n].clone());
        }
        // 200 %: half as many pixels, each twice as large.
        browser.size(1200, 900, 2);
        note(path, "200 %", browser.run(TOO_WIDE));
        browser.size(390, 844, 1);
        note(path, "phone", browser.run(TOO_WIDE));
        browser.prefers(&[("prefers-color-scheme", "dark"), ("prefers-reduced-motion", "reduce")]);
        let found = browser.run(&dark);
        note(path, "dark", found[0].clone());
        note(path, "reduced motion", found[1].clone());
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn the_rules_for_everybody_see_what_they_should() {
    let Some(driver) = Driver::start() else { return };
    let (browser, page) = (driver.browser(), Receiver::new());
    let html = b"<main><h2>x</h2><table><tr><td>1</table><svg></svg><p style='color:#aaa;background:#fff'>pale</p>\
        <p style='width:3000px'>wide</p><a href=x></a><input style='outline:none'>";
    page.always(Reply::Answer(200, vec![("content-type", "text/html".to_owned())], html.to_vec()));
    browser.open(&page.url());
    let sees = |faults: &Value, texts: &[&str]| {
        for text in texts {
            assert!(faults.to_string().contains(text), "{text} is not seen: {faults}");
        }
    };
    sees(
        &browser.run(STRUCTURE),
        &["0 h1", "no caption", "th without scope", "picture", "title", "policy"],
    );
    sees(&browser.run(CONTRAST), &["pale"]);
    sees(&browser.run(TOO_WIDE), &["wide"]);
    let unheard = json!(unheard(&browser, true));
    sees(
        &unheard,
        &[
            "0 landmarks banner",
            "0 landmarks search",
            "no menu",
            "link without a name",
            "textbox without",
        ],
    );
    browser.run(TRAIL);
    browser.keys(TAB, 2);
    sees(&browser.run("return window.trail.map((focus) => focus[1])"), &["false"]);
}

#[test]
fn the_keyboard_reaches_everything_and_one_sees_where_one_is() {
    let Some(driver) = Driver::start() else { return };
    let (world, browser) = (World::new(), driver.browser());
    world.enter(&browser, "anna");
    let mut faults = Vec::new();
    let mut kinds = BTreeSet::new();
    for path in walk::pages(&browser) {
        if !kinds.insert(walk::kind(&path)) {
            continue;
        }
        browser.open(&world.at(&path));
        let all = browser.run(FOCUSABLE).as_u64().unwrap();
        browser.run(TRAIL);
        browser.keys(TAB, all);
        let trail = browser.run("return window.trail");
        let mut reached = BTreeSet::new();
        for focus in trail.as_array().unwrap() {
            reached.insert(focus[0].as_u64().unwrap());
            if focus[1] == false {
                faults.push(format!("{path}: the focus is not seen on {}", focus[2]));
            }
        }
        if (reached.len() as u64) < all {
            faults.push(format!("{path}: Tab reaches {} of {all}", reached.len()));
        }
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}
