//! The page of dead letters: kinds by what the targets said, what is done to one and to all of a kind, and what holds a
//! replay back.

use crate::it::console_rig::{Browser, encoded, form, links};
use crate::rig::prelude::*;

const ARTICLE: &str = "unknown article A-99";
const PERIOD: &str = "the period is closed";

/// A box with three dead letters of one kind and one of another. The receiver takes everything by now.
fn two_kinds() -> (Rig, Receiver) {
    let (rig, receiver) = Rig::subscribed("erp");
    for said in [ARTICLE, PERIOD, ARTICLE, ARTICLE] {
        let body = json!({ "detail": said }).to_string().into_bytes();
        receiver.always(Reply::Answer(422, Vec::new(), body));
        rig.publish(&json!({ "event_type": "booked", "payload": { "article": "A-99" } }));
        rig.settle();
    }
    receiver.always(Reply::status(200));
    (rig, receiver)
}

/// The page of a kind.
fn page_of(answer: &str) -> String {
    let answer = encoded(answer).replace("%20", "+");
    format!("/console/dead-letters?subscription=erp&class=validation&code=422&answer={answer}")
}

#[test]
fn dead_letters_stand_by_what_the_target_said_the_most_frequent_first() {
    let (rig, _receiver) = two_kinds();
    let reader = Browser::new(&rig, "read");
    let page = reader.get("/console/dead-letters");
    let place = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}: {page}"));
    assert!(place(ARTICLE) < place(PERIOD), "{page}");
    for kind in [ARTICLE, PERIOD] {
        assert!(links(&page).contains(&page_of(kind)), "{page}");
    }
    assert!(!page.contains("/console/act/"), "a reader has no buttons: {page}");
    let page = Browser::new(&rig, "operate").get(&page_of(PERIOD));
    assert!(page.contains(PERIOD) && !page.contains(ARTICLE), "{page}");
    assert_eq!(page.matches("name=\"filter.ids\"").count(), 1, "{page}");
}

#[test]
fn who_has_corrected_one_comes_back_to_its_kind_and_sends_the_others() {
    let (rig, receiver) = two_kinds();
    let browser = Browser::new(&rig, "operate");
    let page = browser.get("/console/dead-letters");
    let is_correction = |link: &String| link.starts_with("/console/act/edit-and-resend?id=dlv_4&");
    let link = links(&page).into_iter().find(is_correction);
    let link = link.unwrap_or_else(|| panic!("the newest of the largest kind: {page}"));
    let asked = form(&browser.get(&link), "/console/act/edit-and-resend").unwrap();
    let typed = [("payload_base64", "{\"article\": \"A-98\"}")];
    let looked = browser.submit(&asked, &typed).is(200).text();
    let looked = form(&looked, "/console/act/edit-and-resend").unwrap();
    let after = browser.submit(&looked, &[]).is(303);
    let back = after.field("location").unwrap();
    assert!(back.starts_with(&page_of(ARTICLE)), "{back}");
    rig.settle();
    let kind = browser.get(back);
    assert!(kind.contains("Correct and send: done.") && kind.contains(ARTICLE), "{kind}");
    assert_eq!(kind.matches("name=\"filter.ids\"").count(), 2, "two are left: {kind}");
    // From the page of a dead letter one comes there, too.
    let own = browser.get("/console/deliveries/dlv_1");
    assert!(links(&own).contains(&page_of(ARTICLE)), "{own}");
    let is_correction = |link: &String| link.starts_with("/console/act/edit-and-resend?id=dlv_1&");
    let link = links(&own).into_iter().find(is_correction).unwrap();
    let asked = form(&browser.get(&link), "/console/act/edit-and-resend").unwrap();
    assert_eq!(asked.value("back"), page_of(ARTICLE));
    let sent = rig.id("/v1/deliveries?state=completed");
    assert_eq!(rig.get(&format!("/v1/deliveries/{sent}"))["answer"], Value::Null);
    let before = receiver.count();
    browser.act(back, "replay-dead-letters", &[]);
    until("both are sent", || rig.get("/v1/stats")["dead_letters"] == 1);
    rig.settle();
    assert_eq!(receiver.count(), before + 2);
    assert!(browser.get(&page_of(ARTICLE)).contains("No dead letter matches."));
    let reason = [("reason", "booked by hand")];
    browser.act(&page_of(PERIOD), "discard-dead-letters", &reason);
    until("it is discarded", || rig.get("/v1/stats")["dead_letters"] == 0);
    assert_eq!(receiver.count(), before + 2);
}

#[test]
fn a_replay_says_before_and_after_what_waits_for_a_target_that_is_held() {
    let (rig, receiver) = (Rig::new(), Receiver::with(Reply::status(422)));
    rig.subscribe("shop", &receiver);
    for _ in 0..5 {
        rig.publish(&json!({ "event_type": "a", "payload": 1 }));
        rig.settle();
    }
    until("it is held", || rig.get("/v1/subscriptions/shop")["holds"][0]["reason"] == "rejecting");
    receiver.always(Reply::status(200));
    let body = json!({ "filter": {}, "dry_run": true });
    let held = rig.post("/v1/dead-letters/replay", &body).is(200).json()["held"].clone();
    has(&held[0], &json!({ "subscription": "shop", "count": 5 }));
    assert_eq!(held[0]["hold"]["reason"], "rejecting");
    // Nothing waits that is not sent, and a recovery ends this hold.
    for (path, more) in [
        ("/v1/dead-letters/discard", json!({ "reason": "x" })),
        (
            "/v1/subscriptions/shop/recover",
            json!({ "since": "2026-01-31T00:00:00Z", "filter": null }),
        ),
    ] {
        let mut body = merged(body.clone(), &more);
        body.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        assert_eq!(rig.post(path, &body).is(200).json()["held"], json!([]), "{path}");
    }
    let browser = Browser::new(&rig, "operate");
    let asked = browser.get("/console/act/replay-dead-letters?filter.subscription=shop");
    let says = |page: &str| {
        for part in
            ["of them wait", "/console/subscriptions/shop", "is held (target refuses), since"]
        {
            assert!(page.contains(part), "{part}: {page}");
        }
    };
    says(&asked);
    browser.act("/console/dead-letters", "replay-dead-letters", &[]);
    let job = rig.id("/v1/jobs");
    until("it is done", || rig.get(&format!("/v1/jobs/{job}"))["state"] == "completed");
    let waits = |page: &str| page.contains(">waiting</abbr></span> 5 of 5");
    let own = browser.get(&format!("/console/jobs/{job}"));
    says(&own);
    assert!(waits(&own), "{own}");
    let listed = browser.get("/console/jobs");
    assert!(waits(&listed), "{listed}");
    has(&rig.items("/v1/jobs")[0], &json!({ "waiting": 5, "held": null, "became": null }));
    rig.call("POST", "/v1/subscriptions/shop/resume", b"").is(200);
    rig.settle();
    has(&rig.get(&format!("/v1/jobs/{job}")), &json!({ "waiting": 0, "held": [] }));
    for path in ["/console/jobs".to_owned(), format!("/console/jobs/{job}")] {
        let page = browser.get(&path);
        assert!(page.contains("state good") && !page.contains("of them wait"), "{page}");
    }
}
