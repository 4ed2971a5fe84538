//! Nothing that is stored runs: hostile texts on every page, in a real browser.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::everybody::TOO_WIDE;
use crate::rig::receiver::{Receiver, Reply};
use crate::rig::secs;
use crate::rig::webdriver::{Browser, Driver};
use crate::walk;
use crate::world::{BEARER, PASSWORD, STRIPE, World};

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

/// What is wrong with the page that is open.
fn faults(browser: &Browser<'_>) -> Vec<String> {
    let mut found = browser.run(LOOK).as_array().unwrap().clone();
    for (width, height) in [(1200, 900), (390, 844)] {
        browser.size(width, height, 1);
        found.extend(browser.run(TOO_WIDE).as_array().unwrap().iter().cloned());
    }
    let source = browser.source();
    for secret in [BEARER, STRIPE, PASSWORD] {
        if source.contains(secret) {
            found.push(format!("{secret} stands in the page").into());
        }
    }
    found.iter().map(|fault| fault.as_str().unwrap_or_default().to_owned()).collect()
}

/// Stores each text wherever the API takes one. Returns the paths of the pages that show them.
#[expect(clippy::too_many_lines, reason = "one list of all places that take a text")]
fn plant(world: &World, texts: &[String]) -> Vec<String> {
    let rig = &world.rig;
    let (count, answers) = (Arc::new(AtomicUsize::new(0)), texts.to_vec());
    world.bad.decide(move |_| {
        let text = &answers[count.fetch_add(1, Ordering::SeqCst) % answers.len()];
        let kind = ("content-type", "text/html".to_owned());
        Reply::Answer(422, vec![kind], text.clone().into_bytes())
    });
    rig.subscribe_with(
        "hostile",
        &world.bad,
        &json!({ "ordering": "key", "event_types": ["hostile.*"] }),
    );
    let scheme = json!({ "kind": "generic", "check": { "token": { "header": "X-Token" } } });
    rig.provider("plain", &scheme, "a-shared-secret-of-32-characters");
    let mut pages = Vec::new();
    for (n, text) in texts.iter().enumerate() {
        let without_nul = text.replace('\0', "");
        // The API refuses control characters in names and keys; what it takes must be harmless.
        let mut event = json!({
            "event_type": "hostile.text", "aggregate_type": "Text", "payload": { text: text, "list": [text, { "x": text }] },
            "custom_data": without_nul,
        });
        let fields = [
            "aggregate_id",
            "idempotency_key",
            "ordering_key",
            "source_system",
            "aggregate_type",
            "process_id",
        ];
        for field in fields {
            let mut with = event.clone();
            with[field] = json!(without_nul.chars().take(120).collect::<String>());
            // Tried first: not every field takes every text.
            let answer = rig.post("/v1/events", &with);
            if answer.status == 201 {
                event = with;
                event["idempotency_key"] = Value::Null;
                let id = answer.json()["events"][0]["id"].as_str().unwrap().to_owned();
                if field == "aggregate_id" {
                    pages.push(format!("/console/events/{id}"));
                }
            }
        }
        let raw = [text.as_bytes(), b"\xff\xfe\xc3\x28\x00"].concat();
        let number = format!("id-{n}");
        let header: String = text.chars().filter(|c| !c.is_control()).collect();
        let sent = [
            ("X-Token", "a-shared-secret-of-32-characters"),
            ("X-Id", number.as_str()),
            ("Content-Type", "text/html"),
            ("User-Agent", header.as_str()),
            ("X-Hostile", header.as_str()),
        ];
        let answer = rig.send("POST", "/in/plain", &sent, &raw);
        if answer.status == 200 {
            pages.push(format!("/console/webhooks/{}", answer.json()["id"].as_str().unwrap()));
        }
        let query: String = form_urlencoded::byte_serialize(text.as_bytes()).collect();
        pages.push(format!("/console/search?q={query}"));
        // In an address, as a filter, as what was done, as where to go back to.
        let filters = [
            "state",
            "status",
            "subscription",
            "event_type",
            "since",
            "after",
            "did",
            "back",
            "id",
            "name",
        ];
        let filters: Vec<_> = filters.iter().map(|name| format!("{name}={query}")).collect();
        let lists = [
            "events",
            "received",
            "deliveries",
            "audit",
            "dead-letters",
            "lanes",
            "act/replay-event",
            "enter",
        ];
        pages.push(format!("/console/{}?{}", lists[n % lists.len()], filters.join("&")));
        pages
            .push(format!("/console/{}/{query}", ["events", "subscriptions", "deliveries"][n % 3]));
    }
    rig.settle();
    for _ in 0..14 {
        rig.advance(secs(48 * 3600));
        rig.settle();
    }
    pages
}

#[test]
fn nothing_that_is_stored_runs_leaves_or_breaks_a_page() {
    let Some(driver) = Driver::start() else { return };
    let (world, browser, beacon) = (World::new(), driver.browser(), Receiver::new());
    let texts = texts(&beacon);
    let mut pages = plant(&world, &texts);
    browser.cdp("Page.addScriptToEvaluateOnNewDocument", &json!({ "source": WATCH }));
    let mut found = Vec::new();
    // Before logging in: the name that was typed, the page that was wanted, the link.
    for text in texts.iter().filter(|text| !text.chars().any(char::is_control)) {
        let query: String = form_urlencoded::byte_serialize(text.as_bytes()).collect();
        for path in
            [format!("/console/enter?link={query}&to={query}"), format!("/console/x?{query}")]
        {
            browser.open(&world.at(&path));
            found.extend(faults(&browser).iter().map(|fault| format!("{path}: {fault}")));
        }
    }
    world.enter(&browser, "anna");
    pages.extend(walk::pages(&world, &browser));
    let mut kinds = std::collections::BTreeMap::new();
    for path in &pages {
        browser.open(&world.at(path));
        *kinds.entry(walk::kind(path)).or_insert(0) += 1;
        found.extend(faults(&browser).iter().map(|fault| format!("{path}: {fault}")));
    }
    println!("{kinds:#?}");
    assert!(found.is_empty(), "{} faults:\n{}", found.len(), found.join("\n"));
    assert_eq!(beacon.count(), 0, "nobody called out");
    let page = b"<h1>x</h1><main><img src=x onerror='window.pwned=1'>".to_vec();
    beacon.always(Reply::Answer(200, vec![("content-type", "text/html".to_owned())], page));
    // The rules above see what they should: the same look at a page that has no policy.
    browser.open(&beacon.url());
    crate::rig::until("the planted script ran", || {
        browser.run(LOOK).to_string().contains("a script ran")
    });
}
