//! Nothing that is stored runs: hostile texts on every page, in a real browser.

use crate::browser::everybody::TOO_WIDE;
use crate::browser::world::prelude::*;
use crate::browser::world::{BEARER, PASSWORD, STRIPE, World};

/// Hostile texts. `BEACON` is an address that counts who calls it; `RUN` is what a script would do.
const TEXTS: [&str; 64] = [
    // Elements that run or load.
    "<script>RUN</script>",
    "<SCRIPT SRC=BEACON></SCRIPT>",
    "</script><script>RUN</script>",
    "<script\x20type=module>import 'BEACON'</script>",
    "<img src=x onerror=RUN>",
    "<img src=BEACON>",
    "<image/src/onerror=RUN>",
    "<svg onload=RUN>",
    "<svg><script>RUN</script></svg>",
    "<svg><animate onbegin=RUN attributeName=x dur=1s>",
    "<svg><use href='BEACON#x'/></svg>",
    "<math><mtext><table><mglyph><style><img src=x onerror=RUN>",
    "<iframe src='javascript:RUN'></iframe>",
    "<iframe srcdoc='<script>parent.pwned=1</script>'>",
    "<object data=BEACON></object>",
    "<embed src=BEACON>",
    "<link rel=stylesheet href=BEACON>",
    "<link rel=prefetch href=BEACON>",
    "<style>@import 'BEACON'; body{display:none}</style>",
    "<style>*{background:url(BEACON)}</style>",
    "<meta http-equiv=refresh content='0;url=BEACON'>",
    "<base href=BEACON>",
    "<video src=BEACON autoplay onloadstart=RUN>",
    "<audio src=x onerror=RUN>",
    "<body onload=RUN>",
    "<details open ontoggle=RUN>",
    "<input autofocus onfocus=RUN>",
    "<form action=BEACON><button>Send again</button></form>",
    "<template><img src=x onerror=RUN></template>",
    "<noscript><p title=\"</noscript><img src=x onerror=RUN>\">",
    // Out of an attribute, a comment, a title, a text field.
    "\" onmouseover=\"RUN\" autofocus onfocus=\"RUN",
    "' onfocus='RUN' autofocus='",
    "\"><script>RUN</script>",
    "'><img src=x onerror=RUN>",
    "`onload=RUN`",
    "--><script>RUN</script><!--",
    "]]><script>RUN</script>",
    "</title><script>RUN</script>",
    "</textarea><script>RUN</script>",
    "</pre></code></td></table><script>RUN</script>",
    "</main><main data-live=1><script>RUN</script>",
    // Addresses.
    "javascript:RUN",
    "JaVaScRiPt:RUN//",
    "java\tscript:RUN",
    "data:text/html,<script>RUN</script>",
    "//evil.example/console/",
    "../../console/log-out?x=1#",
    // Entities and encodings.
    "&lt;script&gt;RUN&lt;/script&gt;",
    "&#60;script&#62;RUN&#60;/script&#62;",
    "%3Cscript%3ERUN%3C/script%3E",
    "\\u003cscript\\u003eRUN\\u003c/script\\u003e",
    "+ADw-script+AD4-RUN+ADw-/script+AD4-",
    // Templates and shells.
    "{{constructor.constructor('RUN')()}}",
    "${RUN} #{RUN} <%= RUN %> {% RUN %}",
    "$(RUN) `RUN`; '; DROP TABLE outbox; --",
    "__proto__",
    // Letters.
    "\u{202e}gnp.ecioni\u{202c} \u{2066}x\u{2069}",
    "z\u{200b}e\u{200c}r\u{200d}o\u{feff}",
    "Z\u{351}\u{36b}\u{343}\u{32a}\u{30a}\u{321}a\u{334}\u{335}\u{300}\u{301}\u{302}\u{303}\u{304}\u{305}l\u{306}\u{307}g\u{308}\u{309}\u{30a}\u{30b}o",
    "LONGWORD",
    "\u{fdfd}\u{fdfd}\u{fdfd}\u{fdfd}\u{fdfd}\u{fdfd}",
    "a\u{1}b\u{8}c\u{1b}[31md\u{7f}",
    "a\u{2028}b\u{85}c\r\nSet-Cookie: x=1",
    "\u{0}nul\u{0}",
];

/// Installed in each page before its own: notes what the page's policy stopped.
const WATCH: &str = "window.stopped = [];\
    document.addEventListener('securitypolicyviolation', (e) => stopped.push(e.violatedDirective + ' ' + e.blockedURI + ' ' + e.sample));";

/// What got through, and what was stopped too late.
const LOOK: &str = r"
const faults = [];
if ('pwned' in window) faults.push('a script ran');
faults.push(...(window.stopped ?? ['nobody watched']));
for (const entry of performance.getEntriesByType('resource'))
  if (!entry.name.startsWith(location.origin + '/console/')) faults.push('it loaded ' + entry.name);
for (const element of document.querySelectorAll('script, img, image, iframe, object, embed, video, audio, style, base, template, math, use, animate, meta[http-equiv]'))
  if (!/^\/console\/assets\/script-[0-9a-f]+\.js$/.test(element.getAttribute('src') ?? '')) faults.push('an element: ' + element.outerHTML.slice(0, 100));
for (const element of document.querySelectorAll('*'))
  for (const attribute of element.attributes) {
    if (attribute.name.startsWith('on') || attribute.name === 'style') faults.push('an attribute: ' + element.outerHTML.slice(0, 100));
    if (['href', 'action', 'formaction', 'src', 'xlink:href'].includes(attribute.name)) {
      const to = new URL(attribute.value, location.href);
      if (to.origin !== location.origin || !to.pathname.startsWith('/console/')) faults.push('it leads to ' + attribute.value.slice(0, 100));
    }
  }
if (document.querySelectorAll('main').length !== 1 || document.querySelectorAll('h1').length !== 1) faults.push('the frame is broken');
return faults;
";

fn texts(beacon: &Receiver) -> Vec<String> {
    let (long, address) = ("W".repeat(400), beacon.url());
    let fill = |text: &&str| {
        text.replace("RUN", "window.pwned=1").replace("BEACON", &address).replace("LONGWORD", &long)
    };
    TEXTS.iter().map(fill).collect()
}

/// The widths at which pages are looked at.
const WIDTHS: [u32; 2] = [1200, 390];

/// What is wrong with the page that is open, at the width it was opened at and at the other one, which stays.
fn faults(browser: &Browser<'_>, other: u32) -> Vec<String> {
    let secrets = "const secrets = arguments[0].filter((secret) => document.documentElement.outerHTML.includes(secret));";
    let look = format!(
        "{secrets} return secrets.concat((() => {{ {LOOK} }})(), (() => {{ {TOO_WIDE} }})())"
    );
    let mut found = browser.run_with(&look, &json!([[BEARER, STRIPE, PASSWORD]]));
    browser.size(other, 900, 1);
    let resized = browser.run(TOO_WIDE);
    let found = found.as_array_mut().unwrap().iter().chain(resized.as_array().unwrap());
    found.map(|fault| fault.as_str().unwrap_or_default().to_owned()).collect()
}

/// Stores each text wherever the API takes one. Returns the paths of the pages of each one's event and webhook.
fn plant(world: &World, texts: &[String]) -> Vec<[String; 2]> {
    let rig = &world.rig;
    let (count, answers) = (Arc::new(AtomicUsize::new(0)), texts.to_vec());
    world.bad.decide(move |_| {
        let text = &answers[count.fetch_add(1, Ordering::SeqCst) % answers.len()];
        let kind = ("content-type", "text/html".to_owned());
        Reply::Answer(422, vec![kind], text.clone().into_bytes())
    });
    // One that sees every answer, and one whose lanes are blocked.
    for (name, ordering) in [("hostile", "none"), ("hostile-lanes", "key")] {
        let terms = json!({ "ordering": ordering, "event_types": ["hostile.*"] });
        rig.subscribe_with(name, &world.bad, &terms);
    }
    rig.token_provider("plain", "a-shared-secret-of-32-characters");
    let mut pages = Vec::new();
    for (n, text) in texts.iter().enumerate() {
        let in_json = text.replace('\0', "");
        let mut event = json!({
            "event_type": "hostile.text", "aggregate_type": "Text", "custom_data": in_json,
            "payload": { text: text, "list": [text, { "x": text }] },
        });
        // Not every field takes every text: the API refuses control characters in keys. What it takes must be harmless.
        let mut page = None;
        for field in
            ["aggregate_id", "aggregate_type", "ordering_key", "source_system", "process_id"]
        {
            let mut with = event.clone();
            with[field] = json!(in_json.chars().take(120).collect::<String>());
            with["idempotency_key"] = json!(format!("{}{field}", with[field].as_str().unwrap()));
            let mut answer = rig.post("/v1/events", &with);
            if answer.status != 201 {
                with["idempotency_key"] = Value::Null;
                answer = rig.post("/v1/events", &with);
            }
            if answer.status == 201 {
                event = with;
                page = Some(answer.json()["events"][0]["id"].as_str().unwrap().to_owned());
            }
        }
        let event_page = format!("/console/events/{}", page.expect("a field takes it"));
        let broken: &[u8] = if n % 4 == 0 { b"\xff\xfe\xc3\x28\x00" } else { b"" };
        let header: String = text.chars().filter(|c| !c.is_control()).collect();
        let sent = [
            ("X-Token", "a-shared-secret-of-32-characters"),
            ("Content-Type", "text/html"),
            ("User-Agent", header.as_str()),
            ("X-Hostile", header.as_str()),
        ];
        let taken = rig.send("POST", "/in/plain", &sent, &[text.as_bytes(), broken].concat());
        let taken = taken.is(200).json();
        pages.push([event_page, format!("/console/webhooks/{}", taken["id"].as_str().unwrap())]);
    }
    rig.settle();
    pages
}

/// A browser that notes what its pages try.
fn watching(driver: &Driver) -> Browser<'_> {
    let browser = driver.browser();
    browser.cdp("Page.addScriptToEvaluateOnNewDocument", &json!({ "source": WATCH }));
    browser
}

/// Looks at all these pages.
#[track_caller]
fn all_are_harmless(world: &World, browser: &Browser<'_>, pages: &[String]) {
    let mut found = Vec::new();
    browser.size(WIDTHS[0], 900, 1);
    for (path, other) in pages.iter().zip(WIDTHS.iter().cycle().skip(1)) {
        browser.open(&world.at(path));
        found.extend(faults(browser, *other).iter().map(|fault| format!("{path}: {fault}")));
    }
    assert!(found.is_empty(), "{} faults:\n{}", found.len(), found.join("\n"));
}

#[test]
fn nothing_that_is_stored_runs_leaves_or_breaks_a_page() {
    let Some(driver) = Driver::start() else { return };
    let (world, browser, beacon) = (World::new(), watching(driver), Receiver::new());
    // Each text has the page of its event and that of its webhook.
    let mut pages = Vec::new();
    for (n, [event, webhook]) in plant(&world, &texts(&beacon)).into_iter().enumerate() {
        if walk::is_long() {
            pages.extend([event, webhook]);
        } else {
            pages.push(if n % 2 == 0 { event } else { webhook });
        }
    }
    world.enter(&browser, "anna");
    pages.extend(walk::pages(&browser));
    let kinds: BTreeSet<_> = pages.iter().map(|path| walk::kind(path)).collect();
    assert!(kinds.len() > 30 && pages.len() > TEXTS.len() + 30, "{kinds:#?}");
    all_are_harmless(&world, &browser, &pages);
    assert_eq!(beacon.count(), 0, "nobody called out");
    // The rules see what they should: the same look at a page that has no policy.
    let page = b"<h1>x</h1><main><img src=x onerror='window.pwned=1'>".to_vec();
    beacon.always(Reply::Answer(200, vec![("content-type", "text/html".to_owned())], page));
    browser.open(&beacon.url());
    until("the planted script ran", || browser.run(LOOK).to_string().contains("a script ran"));
}

#[test]
fn nothing_that_stands_in_an_address_runs_leaves_or_breaks_a_page() {
    let Some(driver) = Driver::start() else { return };
    let (world, browser, beacon) = (World::new(), watching(driver), Receiver::new());
    let texts: Vec<String> = texts(&beacon)
        .iter()
        .map(|text| form_urlencoded::byte_serialize(text.as_bytes()).collect())
        .collect();
    // In the short form every second text, from another one on for each list of starts.
    let step = if walk::is_long() { 1 } else { 2 };
    let beginning_with = |starts: &[&str]| {
        let all = texts.iter().skip(starts.len() % step).step_by(step).zip(starts.iter().cycle());
        all.map(|(text, start)| format!("/console/{start}{text}")).collect::<Vec<_>>()
    };
    // Before logging in: the link, the page that was wanted.
    let entrances = beginning_with(&["enter?link=", "enter?to=", "x?"]);
    all_are_harmless(&world, &browser, &entrances);
    world.enter(&browser, "anna");
    let starts = ["search?q=", "events/", "subscriptions/", "search?q=", "deliveries/", "act/"];
    let mut pages = beginning_with(&starts);
    // As a filter, as what was done, as where to go back to.
    let names = words("state subscription event_type since after did back id name resource");
    let lists = words(
        "events webhooks deliveries audit dead-letters lanes alerts \
        act/replay-event",
    );
    for (n, list) in lists.iter().enumerate() {
        let pairs = names.iter().enumerate();
        let pairs =
            pairs.map(|(m, name)| format!("{name}={}", texts[(n * names.len() + m) % texts.len()]));
        pages.push(format!("/console/{list}?{}", pairs.collect::<Vec<_>>().join("&")));
    }
    all_are_harmless(&world, &browser, &pages);
    assert_eq!(beacon.count(), 0, "nobody called out");
}
