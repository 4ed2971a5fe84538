//! What the pages tell: tests that run, waits, what needs a person, what is not there; and pages that did not change.

use oncebox::model::escalation::{Class, NewEscalation};
use oncebox::store::escalations;

use crate::it::console_rig::{Browser, form, links, without_meanings};
use crate::rig::prelude::*;

/// The id of a test in the background.
fn begin(rig: &Rig, name: &str) -> String {
    let path = format!("/v1/subscriptions/{name}/test");
    let begun = rig.post(&path, &json!({ "background": true })).is(202).json();
    text(&begun, "id")
}

#[test]
fn a_test_in_the_background_tells_its_steps_while_it_runs() {
    let (rig, receiver) = Rig::subscribed_to("erp", Receiver::with(Reply::Hang));
    let path = format!("/v1/subscription-tests/{}", begin(&rig, "erp"));
    until("it waits for the answer", || rig.get(&path)["step"] == "answer");
    let test = rig.get(&path);
    assert_eq!((&test["is_running"], &test["result"]), (&json!(true), &Value::Null), "{test}");
    let steps: Vec<&Value> =
        test["steps"].as_array().unwrap().iter().map(|step| &step["step"]).collect();
    assert_eq!(steps, ["build", "credentials", "lookup", "policy", "connect", "request"]);
    assert_eq!(rig.get("/v1/audit-events?action=subscription.test")["items"], json!([]));
    let other = rig.tenant("other");
    rig.call_as(&other, "GET", &path, b"").is(404);
    receiver.release();
    until("it ends", || rig.get(&path)["is_running"] == false);
    let test = rig.get(&path);
    assert_eq!((&test["step"], &test["problem"]), (&Value::Null, &Value::Null), "{test}");
    assert_eq!(test["result"]["subscription"], "erp", "{test}");
    assert_eq!(
        rig.get("/v1/audit-events?action=subscription.test")["items"][0]["result"],
        "SUCCESS"
    );
    rig.call("GET", "/v1/subscription-tests/019c1447-5800-7000-8000-000000000001", b"").is(404);
}

#[test]
fn a_test_that_finds_no_room_says_so_and_the_oldest_is_forgotten() {
    let (rig, receiver) = Rig::subscribed_to("erp", Receiver::with(Reply::Hang));
    let of = |test: &str| rig.get(&format!("/v1/subscription-tests/{test}"));
    // How many wait depends on how fast the first ones are taken up.
    let mut tests = vec![begin(&rig, "erp")];
    while of(&tests[tests.len() - 1])["problem"].is_null() {
        assert!(tests.len() < 50, "all find room");
        tests.push(begin(&rig, "erp"));
    }
    let last = tests.pop().unwrap();
    // A refusal takes its time, so several may have been refused.
    let before = tests.into_iter().rfind(|test| of(test)["is_running"] == true).unwrap();
    let found = of(&last);
    assert_eq!((&found["is_running"], &found["result"]), (&json!(false), &Value::Null), "{found}");
    assert!(found["problem"].as_str().unwrap().contains("of this tenant wait"), "{found}");
    receiver.always(Reply::status(200));
    receiver.release();
    for _ in 0..99 {
        begin(&rig, "erp");
    }
    let status =
        |test: &str| rig.call("GET", &format!("/v1/subscription-tests/{test}"), b"").status;
    assert_eq!((status(&before), status(&last)), (404, 200));
}

#[test]
fn the_page_of_a_test_refreshes_itself_until_it_is_done() {
    let (rig, receiver) = Rig::subscribed_to("erp", Receiver::with(Reply::Hang));
    let browser = Browser::new(&rig, "operate");
    let html = browser.get("/console/subscriptions/erp");
    let sent = form(&html, "/console/act/test-subscription").unwrap();
    let page = browser.submit(&sent, &[]).is(303).field("location").unwrap().to_owned();
    assert!(page.starts_with("/console/subscriptions/tests/"), "{page}");
    until("it arrived", || receiver.count() == 1);
    until("it waits for the answer", || {
        browser.get(&page).contains("<td data-head=\"Step\">answer")
    });
    let running = browser.send("GET", &page, b"");
    assert!(running.field("etag").is_none(), "{running:?}");
    let html = running.text();
    assert!(html.contains("<noscript><meta http-equiv=\"refresh\"") && html.contains("under way"));
    // The same form again is the same test.
    assert_eq!(browser.submit(&sent, &[]).field("location"), Some(page.as_str()));
    assert_eq!(receiver.count(), 1);
    receiver.release_with(422);
    until("it is done", || !browser.get(&page).contains("http-equiv=\"refresh\""));
    let html = browser.get(&page);
    assert!(html.contains("It does not work.") && html.contains("its answer says why"), "{html}");
    receiver.always(Reply::Answer(200, Vec::new(), b"booked it".to_vec()));
    // The page of the test that failed offers another one.
    let again = form(&html, "/console/act/test-subscription").unwrap();
    let page = browser.submit(&again, &[]).is(303).field("location").unwrap().to_owned();
    until("it is done", || !browser.get(&page).contains("http-equiv=\"refresh\""));
    shows(&browser.get(&page), &["It works.", "booked it"]);
    assert!(browser.send("GET", &page, b"").field("etag").is_some());
    let missing = browser.send("GET", "/console/subscriptions/tests/nothing", b"").is(404).text();
    assert!(missing.contains("<h1>There is no test nothing</h1>"), "{missing}");
}

#[test]
fn a_delivery_shows_each_wait_and_why() {
    let (rig, receiver) = (Rig::new(), Receiver::with(Reply::status(503)));
    rig.subscribe_with("erp", &receiver, &json!({ "ordering": "key" }));
    let event = |key: &str| {
        let of = json!({ "event_type": "a", "aggregate_type": "invoice", "aggregate_id": "4711",
                         "idempotency_key": key, "payload": {} });
        text(&rig.publish(&of), "id")
    };
    let (first, second) = (event("1"), event("2"));
    rig.settle();
    let due = text(&rig.get("/v1/deliveries/dlv_1"), "due_at");
    assert!(rig.get("/v1/deliveries/dlv_1")["created_at"].as_str().unwrap() < due.as_str());
    rig.pass(secs(90));
    let browser = Browser::new(&rig, "read");
    let page = browser.get(&format!("/console/events/{first}"));
    for part in ["It came.", "Attempt 1", "waited 1 min 30 s: retry", "after 2 failed attempts"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let page = browser.get(&format!("/console/events/{second}"));
    for part in ["It waits 1 min 30 s", "behind dlv_1", "has not got it yet"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    rig.call("POST", "/v1/subscriptions/erp/pause", b"").is(200);
    shows(&browser.get(&format!("/console/events/{first}")), &["(paused)", "li class=\"warn\""]);
    rig.advance(secs(3_600));
    shows(&browser.get(&format!("/console/events/{first}")), &["It waits 1 h:"]);
    receiver.always(Reply::status(200));
    rig.call("POST", "/v1/subscriptions/erp/resume", b"").is(200);
    until("both arrive", || rig.items("/v1/deliveries?state=completed").len() == 2);
    let page = browser.get("/console/deliveries/dlv_2");
    assert!(
        page.contains("waited 1 h 1 min: its turn in the lane") && !page.contains("It waits"),
        "{page}"
    );
}

#[test]
fn the_overview_says_what_needs_a_person_in_plain_words() {
    let rig = Rig::new();
    let browser = Browser::new(&rig, "admin");
    assert!(browser.get("/console/").contains("nobody has stated a policy yet"));
    rig.patch("/v1/tenants/default", &json!({ "pii": "allow" })).is(200);
    let page = browser.get("/console/");
    assert!(page.contains("All is well."), "{page}");
    let receiver = Receiver::with(Reply::status(400));
    rig.subscribe_with("erp", &receiver, &json!({ "ordering": "key" }));
    for n in 0..2 {
        let of = json!({ "event_type": "a", "aggregate_type": "invoice", "aggregate_id": n.to_string(), "payload": {} });
        rig.publish(&of);
    }
    until("both are dead", || rig.get("/v1/stats")["dead_letters"] == 2);
    let page = browser.get("/console/");
    assert!(!page.contains("All is well."), "{page}");
    for (path, text) in [
        ("/console/dead-letters", "2 dead letters need a person"),
        ("/console/lanes?blocked=true", "2 lanes are blocked"),
    ] {
        assert!(page.contains(&format!("<a href=\"{path}\">{text}</a>")), "{text}: {page}");
    }
    // Pictures have a legend and say their sums.
    for text in [
        "aria-label=\"Accepted: 2. Delivered: 0. 2 most in a minute.\"",
        "figcaption",
        "<span class=\"key-b\"",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    // The dead letter that blocks a lane stands on the lane's page, with what can be done.
    let lane = rig.id("/v1/lanes");
    let page = Browser::new(&rig, "operate").get(&format!("/console/lanes/{lane}"));
    for action in ["retry-delivery", "skip"] {
        assert!(page.contains(&format!("/console/act/{action}")), "{action}: {page}");
    }
    let page = browser.get("/console/subscriptions");
    assert!(page.contains("failing") && !page.contains("</span> active"), "{page}");
    rig.call("POST", "/v1/deliveries/dlv_1/cancel", b"").is(200);
    assert!(browser.get("/console/").contains(">1 dead letter needs a person<"));
}

#[test]
fn the_overview_has_one_headline_and_critical_kinds_first() {
    let rig = Rig::new();
    rig.patch("/v1/tenants/default", &json!({ "pii": "allow" })).is(200);
    let (refuses, dead) = (Receiver::with(Reply::status(401)), Receiver::with(Reply::status(400)));
    for n in 0..7 {
        rig.subscribe_with(&format!("crm-{n}"), &refuses, &json!({ "event_types": ["a"] }));
    }
    rig.subscribe_with("erp", &dead, &json!({ "event_types": ["b"] }));
    rig.publish_type("b");
    rig.publish_type("a");
    until("all are told", || rig.items("/v1/escalations").len() >= 8);
    let page = Browser::new(&rig, "read").get("/console/");
    shows(
        &page,
        &[">7 critical, 1 warning, 7 waiting<", ">Credential refused</a>: ", ">all 7</a>"],
    );
    let verdicts = page.split_once("class=\"verdicts\"").unwrap().1;
    let verdicts = verdicts.split_once("</ul>").unwrap().0;
    let place = |text: &str| verdicts.find(text).unwrap_or_else(|| panic!("{text}: {verdicts}"));
    assert!(place("Credential refused") < place("1 dead letter needs a person"));
    assert_eq!(verdicts.matches("/console/subscriptions/crm-").count(), 5);
    assert_eq!(verdicts.matches("class=\"bad\"").count(), 1, "a warning is not red: {verdicts}");
    assert!(!verdicts.contains("oncebox "), "no command of a shell: {verdicts}");
    // The worst, each with what its target said. Two of eight are behind a link.
    let worst = page.split_once("Subscriptions in trouble</h2>").unwrap().1;
    let worst = worst.split_once("</table>").unwrap().0;
    assert_eq!(worst.matches("the target answered 40").count(), 5, "{worst}");
    assert!(page.contains("/console/subscriptions?troubled=true"), "{page}");
    let page = Browser::new(&rig, "operate").get("/console/");
    assert!(page.contains("/console/act/resume-subscription"), "{page}");
}

#[test]
fn the_overview_tells_how_late_the_queue_is_and_how_long_the_disk_lasts() {
    let (rig, receiver) = Rig::subscribed_to("erp", Receiver::with(Reply::Hang));
    let browser = Browser::new(&rig, "read");
    shows(&browser.get("/console/"), &["Nothing is late", "It is not filling up"]);
    rig.publish_type("a");
    rig.advance(secs(7_200));
    assert!(browser.get("/console/").contains("The oldest is late by 2 h"));
    let disk = rig.get("/readyz?verbose")["checks"][1]["value"].clone();
    let free = disk["free_bytes"].as_u64().unwrap();
    let left = free - disk["reserve_bytes"].as_u64().unwrap();
    rig.disk_free(free - left / 2);
    until("the disk is measured", || {
        browser.get("/console/").contains("At the rate of the last hours it lasts 2 h")
    });
    receiver.release();
}

#[test]
fn what_is_not_there_is_named_and_can_be_searched() {
    let rig = Rig::new();
    rig.provider("shop", &json!({ "kind": "github" }), "whsec_0123456789abcdef0123456789");
    let browser = Browser::new(&rig, "read");
    for (path, text) in [
        ("/console/events/4711", "There is no event 4711"),
        ("/console/webhooks/4711", "There is no webhook 4711"),
        ("/console/deliveries/dlv_99", "There is no delivery dlv_99"),
        ("/console/subscriptions/erp", "There is no subscription erp"),
        ("/console/jobs/9", "There is no job 9"),
        ("/console/sources/erp", "There is no source erp"),
        ("/console/providers/erp", "There is no provider erp"),
        ("/console/events/%3Cb%3E", "There is no event &lt;b&gt;"),
        ("/console/nothing", "There is no such page"),
    ] {
        let page = browser.send("GET", path, b"").is(404).text();
        assert!(page.contains(&format!("<h1>{text}</h1>")), "{path}: {page}");
    }
    let page = browser.send("GET", "/console/events/4711", b"").text();
    assert!(links(&page).contains(&"/console/search?q=4711".to_owned()), "{page}");
    let page = browser.get("/console/search?q=shop");
    assert!(links(&page).contains(&"/console/providers/shop".to_owned()), "{page}");
    let page = browser.get("/console/search?q=4711");
    assert!(page.contains("Nothing begins with 4711.") && page.contains("47 finds 4711"), "{page}");
    assert!(links(&page).contains(&"/console/webhooks".to_owned()), "{page}");
    shows(&browser.get("/console/lanes"), &["A lane keeps an order", "--ordering key"]);
    assert!(browser.get("/console/lanes/lane_7").contains("Nothing waits in this lane."));
}

#[test]
fn dead_letters_are_filtered_by_class_and_code() {
    let (rig, receiver) =
        Rig::subscribed_with("erp", Receiver::new(), &json!({ "policy": { "max_attempts": 1 } }));
    for status in [400, 400, 503] {
        receiver.always(Reply::status(status));
        rig.deliver("a");
    }
    until("all are dead", || rig.get("/v1/stats")["dead_letters"] == 3);
    let count = |query: &str| {
        let found = rig.get(&format!("/v1/dead-letters?{query}"));
        found["items"].as_array().unwrap().len()
    };
    for (query, expected) in [
        ("class=validation", 2),
        ("class=transient", 1),
        ("code=400", 2),
        ("code=503&class=transient&subscription=erp", 1),
        ("code=503&class=validation", 0),
        ("class=auth", 0),
    ] {
        assert_eq!(count(query), expected, "{query}");
    }
    for query in ["class=bad", "code=99", "code=x"] {
        rig.call("GET", &format!("/v1/dead-letters?{query}"), b"").is(400);
    }
    let browser = Browser::new(&rig, "operate");
    let page = browser.get("/console/dead-letters");
    let link = "/console/dead-letters?subscription=erp&class=transient&code=503\
                &answer=the+target+answered+503";
    assert!(links(&page).contains(&link.to_owned()), "{page}");
    let page = browser.get(link);
    assert!(
        page.contains("<h1>Dead letters: erp, temporary error, 503, the target answered 503</h1>"),
        "{page}"
    );
    assert_eq!(page.matches("type=\"checkbox\" name=\"filter.ids\"").count(), 1, "{page}");
    assert!(links(&page).contains(&"/console/dead-letters".to_owned()), "{page}");
    shows(&browser.get("/console/dead-letters?class=auth"), &["No dead letter matches."]);
}

#[test]
fn a_page_explains_its_words_and_groups_its_numbers() {
    let (rig, receiver) = Rig::subscribed_to(
        "erp",
        Receiver::scripted([Reply::Answer(500, Vec::new(), "long ".repeat(60).into_bytes())]),
    );
    let order = json!({ "ordering": "key" });
    rig.call("PATCH", "/v1/subscriptions/erp", order.to_string().as_bytes()).is(200);
    rig.publish(&json!({ "event_type": "a", "payload": 1, "ordering_key": "R-1" }));
    rig.sent(&receiver, 1);
    rig.settle();
    let browser = Browser::new(&rig, "operate");
    rig.post("/v1/deliveries/dlv_1/park", &json!({})).is(200);
    let page = browser.get("/console/deliveries/dlv_1");
    shows(
        &page,
        &["set aside", "<dt>lane</dt>", "What the words on this page mean", "temporary error"],
    );
    let meaning = "It is not sent until a person releases or skips it.";
    shows(&page, &[meaning, "<details class=\"answer\"><summary>long long", "\u{202f}ms</span>"]);
    assert!(!page.contains("parked<") && !page.contains("transient<"), "{page}");
    let list = browser.get("/console/deliveries?state=parked");
    shows(&list, &[meaning, "fetched", "perhaps sent"]);
    assert!(!browser.get("/console/events/types").contains("What the words on this page mean"));

    rig.call("POST", "/v1/subscriptions/erp/pause", b"").is(200);
    let some: Vec<Value> = (0..600).map(|n| json!({ "event_type": "b", "payload": n })).collect();
    rig.post("/v1/events", &json!(some)).is(201);
    rig.post("/v1/events", &json!(some)).is(201);
    rig.settle();
    shows(&browser.get("/console/"), &["1\u{202f}200 waiting", ">1\u{202f}201<"]);
}

#[test]
fn a_quiet_box_answers_304_for_a_minute_however_often_it_is_checked() {
    let (rig, _receiver) = Rig::subscribed("erp");
    rig.deliver("a");
    let browser = Browser::new(&rig, "operate");
    let paths = [
        "/console/",
        "/console/events",
        "/console/deliveries",
        "/console/subscriptions",
        "/console/alerts",
    ];
    let etag =
        |path: &str| browser.send("GET", path, b"").is(200).field("etag").unwrap().to_owned();
    until("it is quiet", || rig.get("/v1/deliveries?state=completed")["items"] != json!([]));
    let known = paths.map(etag);
    let again = |n: usize| browser.revisit(paths[n], &known[n]).status;
    // Upkeep runs each second of the machine's clock; health checks write to the file, and tokens are used.
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(2_500) {
        rig.send("GET", "/readyz", &[], b"").is(200);
        rig.get("/v1/stats");
        browser.get("/console/settings");
        for (n, path) in paths.iter().enumerate() {
            assert_eq!(again(n), 304, "{path}");
        }
        thread::sleep(Duration::from_millis(100));
    }
    rig.publish_type("a");
    assert!((0..paths.len()).all(|n| again(n) == 200), "a change is seen at once");
    rig.settle();
    let known = etag("/console/");
    rig.advance(secs(60));
    assert_eq!(browser.revisit("/console/", &known).status, 200, "ages are told anew each minute");
}

#[test]
fn each_of_many_subscriptions_that_fail_is_on_a_page() {
    let rig = Rig::new();
    // One with long texts ends each answer of the API early.
    let long = json!({ "X-Long": "x".repeat(4_000) });
    for n in 0..105 {
        let body = json!({ "name": format!("shop-{n:03}"), "url": "http://127.0.0.1:9123/", "headers": long });
        rig.post("/v1/subscriptions", &body).is(201);
        rig.call("POST", &format!("/v1/subscriptions/shop-{n:03}/pause"), b"").is(200);
    }
    rig.post("/v1/subscriptions", &json!({ "name": "well", "target": "pull" })).is(201);
    let browser = Browser::new(&rig, "read");
    let first = browser.get("/console/subscriptions");
    assert!(first.contains(">105</span> fail or are held"), "{first}");
    assert!(first.contains("/console/subscriptions/well"), "{first}");
    let mut page = "/console/subscriptions?troubled=true".to_owned();
    assert!(links(&first).contains(&page), "{first}");
    let mut seen = BTreeSet::new();
    loop {
        let html = browser.get(&page);
        assert!(!html.contains("/console/subscriptions/well"), "{html}");
        let named = |link: String| link.strip_prefix("/console/subscriptions/").map(str::to_owned);
        seen.extend(links(&html).into_iter().filter_map(named));
        let Some((before, _)) = html.split_once("\" rel=\"next\"") else { break };
        let (_, next) = before.rsplit_once("href=\"").unwrap();
        assert_ne!(page, next.replace("&amp;", "&"));
        page = next.replace("&amp;", "&");
    }
    assert_eq!(seen.iter().filter(|name| name.starts_with("shop-")).count(), 105, "{seen:?}");
}

#[test]
fn what_holds_a_thing_is_said_wherever_it_stands() {
    let (rig, receiver) = Rig::subscribed("shop");
    receiver.always(Reply::status(401));
    rig.publish_type("a");
    until("it is held", || rig.get("/v1/subscriptions/shop")["holds"][0]["reason"] == "auth");
    // A file without the table.
    let erp = rig.home().join("erp.db");
    file::new_outbox(&erp);
    rig.source("shop-erp", "sqlite", &json!({ "path": erp, "table": "outbox" }));
    file::new_outbox(&erp).run("DROP TABLE outbox");
    rig.passing("it is not read", secs(10), || {
        rig.get("/v1/sources/shop-erp")["last_error"].is_string()
    });
    let browser = Browser::new(&rig, "read");
    let bad = |word: &str| {
        format!("<span class=\"state bad\"><span aria-hidden=\"true\">▲</span> {word}</span>")
    };
    for path in ["/console/subscriptions", "/console/subscriptions/shop", "/console/search?q=shop"]
    {
        let page = without_meanings(&browser.get(path));
        assert!(page.contains(&bad("held")), "{path}: {page}");
    }
    for path in ["/console/sources", "/console/sources/shop-erp", "/console/search?q=shop-erp"] {
        let page = browser.get(path);
        assert!(page.contains(&bad("failing")) && !page.contains("state good"), "{path}: {page}");
    }
}

#[test]
fn alerts_and_lanes_say_what_the_target_said() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    let answer = b"{\"detail\":\"unknown article A-99\"}".to_vec();
    receiver.always(Reply::Answer(422, Vec::new(), answer));
    rig.subscribe_with("erp", &receiver, &json!({ "ordering": "key" }));
    rig.publish(&json!({ "event_type": "a", "ordering_key": "R-1", "payload": 1 }));
    rig.becomes("SELECT count(*) FROM deliveries WHERE state = 'dead_letter'", "1");
    let browser = Browser::new(&rig, "operate");
    let alerts = browser.get("/console/alerts");
    assert!(alerts.contains("the target answered 422: unknown article A-99"), "{alerts}");
    // A hold's alert names no delivery.
    rig.subscribe("shop", &receiver);
    for _ in 0..8 {
        rig.publish_type("a");
    }
    until("it is held", || rig.get("/v1/subscriptions/shop")["holds"][0]["reason"] == "rejecting");
    let alerts = browser.get("/console/alerts?subject=subscription:shop&severity=critical");
    assert!(alerts.contains("the target answered 422: unknown article A-99"), "{alerts}");
    let lanes = browser.get("/console/lanes");
    assert!(lanes.contains("cancels it: unknown article A-99"), "{lanes}");
    let lane = links(&lanes).into_iter().find(|link| link.starts_with("/console/lanes/")).unwrap();
    let lane = browser.get(&lane);
    assert!(lane.contains("cancels it: unknown article A-99"), "{lane}");
}

#[test]
fn a_provider_without_a_known_host_says_what_to_do() {
    let rig = Rig::new();
    let stripe = json!({ "kind": "stripe" });
    rig.provider("stripe", &stripe, "whsec_0123456789abcdef0123456789");
    let browser = Browser::new(&rig, "admin");
    let page = browser.get("/console/providers/stripe?sample=now");
    for part in [
        "https://&lt;your public host&gt;/in/stripe",
        "Set listen.public_url in the file of settings",
        "\nstripe-signature: t=",
        ",v1=***",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let listed = browser.get("/console/sources");
    assert!(listed.contains("<code>https://&lt;your public host&gt;/in/stripe</code>"), "{listed}");
    let known = json!({ "public_url": "https://hooks.example.com/in/stripe" });
    rig.patch("/v1/providers/stripe", &known).is(200);
    let page = browser.get("/console/providers/stripe");
    assert!(page.contains("<code>https://hooks.example.com/in/stripe</code>"), "{page}");
    assert!(!page.contains("listen.public_url"), "{page}");
}

#[test]
fn a_page_of_many_alerts_and_channels_stays_small() {
    let rig = Rig::new();
    let writer = rig.appliance().store().writer();
    let now = rig.now();
    for n in 0..60_u32 {
        let class = if n % 2 == 0 { Class::DeliveryDead } else { Class::SubscriptionRejecting };
        let new = NewEscalation {
            id: format!("019b0000-0000-7000-8000-{n:012x}"),
            tenant: "default".to_owned(),
            class,
            subject: format!("subscription:target-{n}"),
            detail: "Deliveries were given up: the target answered 422.".to_owned(),
        };
        writer.write(Queue::Accept, move |tx| escalations::raise(tx, &new, now)).unwrap();
    }
    for n in 0..20 {
        let url = "http://127.0.0.1:40009/hook";
        let name = format!("channel-{n}");
        let channel =
            json!({ "name": name, "kind": "webhook", "url": url, "severity": "critical" });
        rig.post("/v1/alert-channels", &channel).is(201);
    }
    let browser = Browser::new(&rig, "admin");
    let page = browser.get("/console/alerts");
    println!("the page of alerts has {} bytes", page.len());
    assert!(page.len() <= 40_000, "{} bytes: {page}", page.len());
    let form = form(&page, "/console/act/acknowledge").unwrap();
    let id = "019b0000-0000-7000-8000-00000000003b";
    assert!(page.contains(&format!("form=\"acknowledge\" name=\"id\" value=\"{id}\"")), "{page}");
    browser.submit(&form, &[("id", id)]).is(303);
    assert!(rig.get(&format!("/v1/escalations/{id}"))["acknowledged_at"].is_string());
}
