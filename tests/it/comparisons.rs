//! Comparisons of what was delivered with what a target says that it has.

use crate::it::http_sources::{json_page, parameter};
use crate::rig::prelude::*;

/// A target that lists the webhooks that it keeps, two to a page.
struct ListingTarget {
    receiver: Receiver,
    kept: Arc<Mutex<Vec<String>>>,
    loses: Arc<AtomicBool>,
}

impl ListingTarget {
    fn new() -> Self {
        let receiver = Receiver::new();
        let kept = Arc::<Mutex<Vec<String>>>::default();
        let loses = Arc::new(AtomicBool::new(false));
        let (all, is_losing) = (Arc::clone(&kept), Arc::clone(&loses));
        receiver.decide(move |request| {
            let mut all = all.lock().unwrap();
            if request.first_line.starts_with("GET") {
                let from = parameter(request, "skip").map_or(0, |text| text.parse().unwrap());
                let page: Vec<Value> =
                    all.iter().skip(from).take(2).map(|id| json!({ "webhook_id": id })).collect();
                return json_page(&json!({ "data": page }));
            }
            let id = request.field("webhook-id").unwrap().to_owned();
            if !is_losing.load(Ordering::SeqCst) && !all.contains(&id) {
                all.push(id);
            }
            Reply::status(200)
        });
        Self { receiver, kept, loses }
    }

    fn list(&self) -> Value {
        json!({
            "url": format!("http://{}/received", self.receiver.address), "items": "/data", "item_id": "/webhook_id",
            "next": { "by": "offset", "parameter": "skip" },
            "newer_than": { "parameter": "since", "form": "rfc3339" },
        })
    }
}

/// A box with the subscription `erp`, five events delivered to it ten minutes ago, and the fourth lost by the target.
fn with_a_loss() -> (Rig, ListingTarget) {
    with_a_loss_in(Rig::new())
}

fn with_a_loss_in(rig: Rig) -> (Rig, ListingTarget) {
    let target = ListingTarget::new();
    rig.subscribe_with("erp", &target.receiver, &json!({}));
    for n in 1..=5 {
        target.loses.store(n == 4, Ordering::SeqCst);
        rig.publish(
            &json!({ "event_type": "a", "idempotency_key": format!("k{n}"), "payload": n }),
        );
        until("it is delivered", || {
            rig.one("SELECT count(*) FROM deliveries WHERE state = 'completed'") == n.to_string()
        });
    }
    rig.advance(secs(600));
    (rig, target)
}

#[track_caller]
fn compare(rig: &Rig, more: &Value) -> Answer {
    let asked = merged(json!({ "since": START.minus(secs(60)) }), more);
    rig.post("/v1/subscriptions/erp/comparison", &asked)
}

#[test]
fn what_a_target_lacks_is_found_and_can_be_sent_again() {
    let (rig, target) = with_a_loss();
    let secret = json!({ "kind": "bearer", "secret": "token-of-the-erp" });
    rig.post("/v1/subscriptions/erp/credentials", &secret).is(201);
    let asked = json!({ "list": target.list() });
    let found = compare(&rig, &asked).is(200).json();
    has(
        &found,
        &json!({ "subscription": "erp", "delivered": 5, "listed": 4, "missing": 1, "next": null }),
    );
    has(
        &found["items"][0],
        &json!({ "key": "k4", "event_type": "a", "delivery": "dlv_4", "of_webhook_event": false }),
    );
    let audited = rig.get("/v1/audit-events?action=subscription.compare");
    assert_eq!(audited["items"][0]["changes"]["missing"]["after"], 1);
    let requests = target.receiver.seen();
    let asked_list = requests.iter().find(|request| request.first_line.starts_with("GET")).unwrap();
    assert_eq!(asked_list.field("authorization"), Some("Bearer token-of-the-erp"));
    let since = START.minus(secs(60 + 600)).to_string().replace(':', "%3A");
    assert_eq!(parameter(asked_list, "since"), Some(since), "its clock may be behind ours");

    target.loses.store(false, Ordering::SeqCst);
    let event = text(&found["items"][0], "event");
    rig.post(&format!("/v1/events/{event}/replay"), &json!({ "subscription": "erp" })).is(200);
    let lost = text(&found["items"][0], "webhook_id");
    until("the target has it", || target.kept.lock().unwrap().contains(&lost));
    until("it is completed", || rig.state(4) == "completed");
    has(&compare(&rig, &asked).is(200).json(), &json!({ "listed": 5, "missing": 0, "items": [] }));
}

#[test]
fn ids_and_keys_that_a_person_gives_are_compared_without_asking_the_target() {
    let (rig, target) = with_a_loss();
    let before = target.receiver.count();
    let first = target.kept.lock().unwrap()[0].clone();
    let found = compare(&rig, &json!({ "ids": [first, "k2", "k3", "not-ours"] })).is(200).json();
    has(&found, &json!({ "delivered": 5, "listed": 4, "missing": 2 }));
    let keys: Vec<String> =
        found["items"].as_array().unwrap().iter().map(|item| text(item, "key")).collect();
    assert_eq!(keys, ["k5", "k4"], "the newest first");
    assert_eq!(target.receiver.count(), before);
    let none = compare(&rig, &json!({ "until": START.minus(secs(1)), "ids": [] })).is(200).json();
    has(&none, &json!({ "delivered": 0, "missing": 0 }));
}

#[test]
fn deliveries_of_the_archive_are_compared_and_a_part_goes_on_where_the_last_one_ended() {
    let day = Duration::from_hours(24);
    let rig = Rig::with(|settings| settings.archive.after = day * 10);
    let (rig, target) = with_a_loss_in(rig);
    rig.advance(day * 40);
    rig.becomes("SELECT count(*) FROM deliveries", "0");
    let asked = json!({ "list": target.list() });
    let found = compare(&rig, &asked).is(200).json();
    has(&found, &json!({ "delivered": 5, "listed": 4, "missing": 1, "next": null }));
    assert_eq!(found["items"][0]["key"], "k4");
    // As if the part before had ended behind the third delivery.
    let month = START.to_string().chars().take(7).collect::<String>();
    let rest = merged(asked, &json!({ "next": format!("{month}/4") }));
    has(&compare(&rig, &rest).is(200).json(), &json!({ "delivered": 3, "missing": 0 }));
    let wrong = merged(rest, &json!({ "next": "yesterday" }));
    compare(&rig, &wrong).is(422).tells("next must be the one of the answer before");
}

#[test]
fn a_part_ends_with_a_thousand_that_are_missing_and_the_parts_name_each_once() {
    let rig = Rig::new();
    let target = ListingTarget::new();
    rig.subscribe_with("erp", &target.receiver, &json!({}));
    let events: Vec<Value> = (1..=1_003)
        .map(|n| json!({ "event_type": "a", "idempotency_key": format!("k{n}"), "payload": n }))
        .collect();
    for some in events.chunks(100) {
        rig.post("/v1/events", &json!(some)).is(201);
    }
    until("they are delivered", || {
        rig.one("SELECT count(*) FROM deliveries WHERE state = 'completed'") == "1003"
    });
    rig.advance(secs(600));
    let first = compare(&rig, &json!({ "ids": ["k1003"] })).is(200).json();
    has(&first, &json!({ "delivered": 1_001, "missing": 1_000 }));
    let next = &first["next"];
    let rest = compare(&rig, &json!({ "ids": ["k1003"], "next": next })).is(200).json();
    has(&rest, &json!({ "delivered": 2, "missing": 2, "next": null }));
    let missing = [&first, &rest].map(|part| part["items"].as_array().unwrap().clone()).concat();
    let keys: BTreeSet<String> = missing.iter().map(|item| text(item, "key")).collect();
    assert_eq!(keys.len(), 1_002);
}

#[test]
fn an_item_that_moves_between_two_pages_is_not_missing() {
    let (rig, target) = with_a_loss();
    let kept = target.kept.lock().unwrap().clone();
    let gets = AtomicUsize::new(0);
    target.receiver.decide(move |request| {
        // While the first pass reads the second page, an older row is deleted: the rows after it move forward.
        let is_first_pass = gets.fetch_add(1, Ordering::SeqCst) < 3;
        let from: usize = parameter(request, "skip").map_or(0, |text| text.parse().unwrap());
        let moved = usize::from(is_first_pass && from > 0);
        let page: Vec<Value> =
            kept.iter().skip(from + moved).take(2).map(|id| json!({ "webhook_id": id })).collect();
        json_page(&json!({ "data": page }))
    });
    has(
        &compare(&rig, &json!({ "list": target.list() })).is(200).json(),
        &json!({ "listed": 4, "missing": 1 }),
    );
}

#[test]
fn what_cannot_be_compared_is_refused_with_the_reason() {
    let (rig, target) = with_a_loss();
    let other = Receiver::new();
    let elsewhere =
        merged(target.list(), &json!({ "url": format!("http://{}/received", other.address) }));
    compare(&rig, &json!({ "list": elsewhere }))
        .is(422)
        .tells("must be on the server of the target");
    assert_eq!(other.count(), 0, "no credential goes to another server");
    compare(&rig, &json!({})).is(422).tells("Give either ids or list");
    compare(&rig, &json!({ "ids": [], "list": target.list() }))
        .is(422)
        .tells("Give either ids or list");
    compare(&rig, &json!({ "ids": [], "since": rig.now() }))
        .is(422)
        .tells("since must be before until");
    for (reply, why) in [
        (Reply::status(500), "answers 500"),
        (Reply::status(401), "oncebox credential set erp"),
        (Reply::Answer(200, Vec::new(), b"<html>".to_vec()), "is not JSON"),
    ] {
        target.receiver.always(reply);
        let asked = json!({ "list": target.list() });
        compare(&rig, &asked).is(422).tells("Nothing was compared").tells(why);
    }
    let page = json!({ "data": [{ "webhook_id": "x" }], "next": "again" });
    target.receiver.always(json_page(&page));
    let next = json!({ "by": "cursor", "path": "/next", "parameter": "cursor" });
    let endless = merged(target.list(), &json!({ "next": next }));
    compare(&rig, &json!({ "list": endless })).is(422).tells("has no end");
    rig.call("GET", "/v1/subscriptions/none/comparison", b"").is(405);
    let none = json!({ "since": START, "ids": [] });
    rig.post("/v1/subscriptions/none/comparison", &none).is(404);
}
