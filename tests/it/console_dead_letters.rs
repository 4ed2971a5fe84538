//! The page of dead letters: kinds by what the targets said, and what is done to one and to all of a kind.

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
    let kind = browser.get(back);
    assert!(kind.contains("Correct and send: done.") && kind.contains(ARTICLE), "{kind}");
    assert_eq!(kind.matches("name=\"filter.ids\"").count(), 2, "two are left: {kind}");
    rig.settle();
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
