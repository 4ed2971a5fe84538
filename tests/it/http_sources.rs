//! Sources that read a provider's own list over HTTP: each item once, and one event with its webhook.

use crate::rig::prelude::*;

pub(super) const SECRET: &str = "whsec_stripe0123456789abcdef0123456789";
const KEY: &str = "rk_test_0123456789";

/// A server with a list like Stripe's: the newest first, two to a page.
pub(super) struct ListServer {
    pub(super) server: Receiver,
    pub(super) items: Arc<Mutex<Vec<Value>>>,
}

impl ListServer {
    pub(super) fn new() -> Self {
        let items = Arc::<Mutex<Vec<Value>>>::default();
        let list = Self { server: Receiver::new(), items };
        list.answers();
        list
    }

    /// Answers as it should.
    pub(super) fn answers(&self) {
        let items = Arc::clone(&self.items);
        self.server.decide(move |request| stripe_page(&items.lock().unwrap(), request));
    }

    pub(super) fn add(&self, id: &str, at: Timestamp) {
        self.items.lock().unwrap().insert(0, event(id, at));
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/v1/events?limit=2", self.server.address)
    }

    pub(super) fn settings(&self) -> Value {
        json!({ "preset": "stripe", "provider": "stripe", "url": self.url() })
    }

    /// The targets of the requests so far.
    fn asked(&self) -> Vec<String> {
        let target = |request: &Message| request.first_line.split(' ').nth(1).unwrap().to_owned();
        self.server.seen().iter().map(target).collect()
    }
}

pub(super) fn event(id: &str, at: Timestamp) -> Value {
    json!({ "id": id, "object": "event", "type": "invoice.paid", "created": at.secs(), "data": { "object": { "total": 9900 } } })
}

/// The value of a parameter of a request.
pub(super) fn parameter(request: &Message, name: &str) -> Option<String> {
    let target = request.first_line.split(' ').nth(1)?;
    let (_, query) = target.split_once('?')?;
    let value = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    value.map(str::to_owned)
}

pub(super) fn stripe_page(items: &[Value], request: &Message) -> Reply {
    let since = parameter(request, "created%5Bgte%5D").map_or(0, |text| text.parse().unwrap());
    let after = parameter(request, "starting_after");
    let mut left: Vec<&Value> =
        items.iter().filter(|item| item["created"].as_i64().unwrap() >= since).collect();
    if let Some(after) = after {
        let at = left.iter().position(|item| item["id"] == after.as_str()).unwrap();
        left.drain(..=at);
    }
    let has_more = left.len() > 2;
    left.truncate(2);
    json_page(&json!({ "object": "list", "data": left, "has_more": has_more }))
}

pub(super) fn json_page(body: &Value) -> Reply {
    let json = ("content-type", "application/json".to_owned());
    Reply::Answer(200, vec![json], body.to_string().into_bytes())
}

/// A box with the provider `stripe` and a list of so many events, a minute apart, the last of which happens now.
fn with_list(count: usize) -> (Rig, ListServer) {
    let rig = Rig::new();
    rig.provider("stripe", &json!({ "kind": "stripe" }), SECRET);
    let list = ListServer::new();
    for n in 1..=count {
        let minutes = u64::try_from(count - n).unwrap();
        list.add(&format!("evt_{n}"), rig.now().minus(secs(60 * minutes)));
    }
    (rig, list)
}

/// Makes the source `list` with its credential.
#[track_caller]
fn add(rig: &Rig, settings: &Value) {
    rig.source("list", "http", settings);
    set_credential(rig);
}

#[track_caller]
pub(super) fn set_credential(rig: &Rig) {
    let credential = json!({ "kind": "bearer", "secret": KEY });
    rig.post("/v1/sources/list/credentials", &credential).is(201);
}

fn stored(rig: &Rig) -> String {
    rig.one("SELECT count(*) FROM webhook_events")
}

#[track_caller]
fn until_stored(rig: &Rig, count: usize) {
    until(&format!("{count} are stored"), || stored(rig) == count.to_string());
}

/// Waits until the round over the list has ended.
#[track_caller]
fn until_ended(rig: &Rig) {
    until("the round has ended", || {
        let source = rig.get("/v1/sources/list");
        source["cursor"] != 0
            && source["lag"] == 0
            && rig.one("SELECT identity IS NULL FROM sources") == "1"
    });
}

/// Waits for what stands in the way of the source.
#[track_caller]
fn trouble(rig: &Rig, what: &str) {
    rig.passing(what, secs(15), || {
        rig.get("/v1/sources/list")["last_error"].as_str().is_some_and(|text| text.contains(what))
    });
}

pub(super) fn webhook(rig: &Rig, body: &[u8]) -> Answer {
    let at = rig.now().secs();
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    let signed = [format!("{at}.").as_bytes(), body].concat();
    let mac = HEXLOWER.encode(hmac::sign(&key, &signed).as_ref());
    let header = format!("t={at},v1={mac}");
    let fields = [("stripe-signature", header.as_str()), ("content-type", "application/json")];
    rig.send("POST", "/in/stripe", &fields, body)
}

#[test]
fn items_of_a_list_are_webhooks_of_their_provider() {
    let (rig, list) = with_list(3);
    rig.source("list", "http", &list.settings());
    until("it waits for a credential", || {
        let waits_for = rig.get("/v1/sources/list")["waits_for"].clone();
        waits_for.as_str().is_some_and(|text| text.contains("credential"))
    });
    assert_eq!(list.server.count(), 0, "nothing is asked without a credential");
    set_credential(&rig);
    rig.passing("they are stored", secs(1), || stored(&rig) == "3");
    let seen = list.server.seen();
    assert_eq!(seen[0].field("authorization"), Some(format!("Bearer {KEY}").as_str()));
    let listed = rig.get("/v1/webhook-events");
    has(
        &listed["items"][0],
        &json!({ "provider": "stripe", "event_type": "invoice.paid", "provider_event_id": "evt_1", "key_id": null, "origin": "listed" }),
    );
    has(
        &rig.get("/v1/sources/list"),
        &json!({ "kind": "http", "event_count": 3, "last_error": null }),
    );
    until_ended(&rig);
}

#[test]
fn the_next_round_asks_for_what_came_since() {
    let (rig, list) = with_list(30);
    add(&rig, &list.settings());
    until_stored(&rig, 30);
    until_ended(&rig);
    let before = list.server.count();
    rig.advance(secs(61));
    list.add("evt_new", rig.now());
    until_stored(&rig, 31);
    // Since the newest minus the overlap of ten minutes: eleven old events, not thirty.
    let since = format!("created%5Bgte%5D={}", START.minus(secs(600)).secs());
    let asked = list.asked();
    assert!(asked[before].contains(&since), "{}", asked[before]);
    rig.says("SELECT sum(duplicate_count) FROM webhook_events", "0");
}

#[test]
fn list_and_webhook_of_one_event_are_one_event_whichever_came_first() {
    let (rig, list) = with_list(2);
    let first = event("evt_1", rig.now()).to_string();
    webhook(&rig, first.as_bytes()).is(200);
    add(&rig, &list.settings());
    until_stored(&rig, 2);
    until_ended(&rig);
    let second = event("evt_2", rig.now()).to_string();
    let answer = webhook(&rig, second.as_bytes()).is(200).json();
    assert_eq!(answer["already_processed"], true);
    assert_eq!(stored(&rig), "2");
    let origins =
        "SELECT group_concat(provider_event_id || ' ' || origin, ', ') FROM webhook_events";
    rig.says(origins, "evt_1 webhook, evt_2 listed");
    rig.says("SELECT event_count FROM sources", "1");
}

#[test]
fn a_list_goes_on_where_it_was_when_the_box_was_stopped() {
    let (mut rig, list) = with_list(9);
    let items = Arc::clone(&list.items);
    let is_broken = Arc::new(AtomicBool::new(true));
    let broken = Arc::clone(&is_broken);
    list.server.decide(move |request| {
        let is_third = parameter(request, "starting_after").as_deref() == Some("evt_6");
        if is_third && broken.load(Ordering::SeqCst) {
            return Reply::status(500);
        }
        stripe_page(&items.lock().unwrap(), request)
    });
    add(&rig, &list.settings());
    until_stored(&rig, 4);
    until("the third page was asked for", || list.server.count() >= 3);
    assert_eq!(rig.get("/v1/sources/list")["cursor"], 0, "the round has not ended");
    let before = list.server.count();
    rig.restart();
    until("it is asked for again", || list.server.count() > before);
    assert!(list.asked()[before].contains("starting_after=evt_6"));
    is_broken.store(false, Ordering::SeqCst);
    rig.passing("all are stored", secs(15), || stored(&rig) == "9");
    until_ended(&rig);
}

#[test]
fn a_list_that_asks_for_time_gets_it() {
    let (rig, list) = with_list(1);
    let clock = Clock::from_source(rig.time.clone());
    let asked_at = Arc::<Mutex<Vec<Timestamp>>>::default();
    let items = Arc::clone(&list.items);
    let asked = Arc::clone(&asked_at);
    list.server.decide(move |request| {
        let mut asked = asked.lock().unwrap();
        asked.push(clock.wall());
        if asked.len() == 1 {
            return Reply::with(429, "retry-after", "120");
        }
        stripe_page(&items.lock().unwrap(), request)
    });
    add(&rig, &list.settings());
    rig.passing("it is read", secs(10), || stored(&rig) == "1");
    let asked_at = asked_at.lock().unwrap();
    assert!(asked_at[1].since(asked_at[0]) >= secs(120), "{asked_at:?}");
}

#[test]
fn what_stands_in_the_way_is_the_error_of_the_source_with_what_to_do() {
    let (rig, list) = with_list(1);
    list.server.always(Reply::Answer(401, Vec::new(), format!("no such key: {KEY}").into_bytes()));
    add(&rig, &list.settings());
    trouble(&rig, "oncebox source credential list");
    let shown = text(&rig.get("/v1/sources/list"), "last_error");
    assert!(!shown.contains(KEY), "{shown}");
    let escalations = rig.get("/v1/escalations");
    has(&escalations["items"][0], &json!({ "class": "source.failing", "subject": "source:list" }));
    for (reply, why) in [
        (Reply::status(404), "answers 404"),
        (Reply::with(302, "location", "/x"), "redirects are not followed"),
        (Reply::Answer(200, Vec::new(), b"<html>".to_vec()), "is not JSON"),
        (Reply::Answer(200, Vec::new(), b"{}".to_vec()), "no list at /data"),
    ] {
        list.server.always(reply);
        trouble(&rig, why);
    }
    list.answers();
    rig.passing("it is read again", secs(15), || stored(&rig) == "1");
    until("the error is gone", || rig.get("/v1/sources/list")["last_error"].is_null());
    rig.says("SELECT count(*) FROM escalations WHERE resolved_at IS NULL", "0");
}

#[test]
fn a_link_to_another_server_is_not_followed() {
    let rig = Rig::new();
    let other = Receiver::new();
    let link = format!("<http://{}/o>; rel=\"next\"", other.address);
    let body = json!([{ "id": 1 }]).to_string().into_bytes();
    let server = Receiver::with(Reply::Answer(200, vec![("link", link)], body));
    let url = format!("http://{}/o", server.address);
    let defaults = json!({ "event_type": "order" });
    let next = json!({ "by": "link" });
    add(&rig, &json!({ "url": url, "item_id": ["/id"], "next": next, "defaults": defaults }));
    trouble(&rig, "leads to another server");
    assert_eq!(other.count(), 0);
}

#[test]
fn items_without_a_provider_are_events_of_the_source() {
    let rig = Rig::new();
    let items = json!([
        { "id": 7, "at": "2026-01-31T12:00:00Z", "kind": "order.paid", "total": "9.00" },
        { "id": 7, "at": "2026-01-31T12:00:01Z", "kind": "order.changed" },
        { "id": 8, "at": "2026-01-31T12:00:02Z" },
        { "at": "2026-01-31T12:00:03Z", "kind": "order.paid" },
    ]);
    let server = Receiver::with(json_page(&items));
    let url = format!("http://{}/orders", server.address);
    let fields = json!({ "event_type": "/kind", "aggregate_id": "/id" });
    let settings =
        json!({ "url": url, "item_id": ["/id", "/at"], "time": "/at", "fields": fields });
    rig.source("orders", "http", &settings);
    rig.becomes("SELECT count(*) FROM outbox", "4");
    let listed = rig.get("/v1/events?status=quarantined");
    let reasons: Vec<String> =
        listed["items"].as_array().unwrap().iter().map(|item| text(item, "last_error")).collect();
    assert!(
        reasons.iter().any(|why| why.contains("event_type") && why.contains("item 8:")),
        "{reasons:?}"
    );
    assert!(reasons.iter().any(|why| why.contains("has no id")), "{reasons:?}");
    let paid = rig.lines(
        "SELECT idempotency_key, CAST(payload AS TEXT) FROM outbox WHERE event_type = 'order.paid'",
    );
    assert!(
        paid[0].contains("7:2026-01-31T12:00:00Z") && paid[0].contains("\"total\":\"9.00\""),
        "{paid:?}"
    );
    let before = server.count();
    rig.passing("it is read again", secs(61), || server.count() > before + 1);
    rig.says("SELECT count(*) FROM outbox", "4");
    has(&rig.get("/v1/sources/orders"), &json!({ "event_count": 4, "last_error": null }));
}

#[test]
fn a_list_without_an_end_is_an_error_and_its_items_are_stored() {
    let (rig, list) = with_list(2);
    let items = Arc::clone(&list.items);
    list.server.decide(move |_| {
        let items = items.lock().unwrap().clone();
        json_page(&json!({ "data": items, "has_more": true }))
    });
    add(&rig, &list.settings());
    trouble(&rig, "the list has no end");
    assert_eq!(stored(&rig), "2");
    assert_eq!(rig.get("/v1/sources/list")["cursor"], 0);
}

#[test]
fn a_page_that_is_too_large_is_refused_and_a_large_one_is_read() {
    let (rig, list) = with_list(1);
    let sized = |bytes: usize| {
        let mut item = event("evt_1", START);
        item["note"] = "x".repeat(bytes).into();
        json_page(&json!({ "data": [item], "has_more": false }))
    };
    list.server.always(sized(17 << 20));
    add(&rig, &list.settings());
    trouble(&rig, "more than 16777216 bytes");
    list.server.always(sized(700 << 10));
    rig.passing("it is read", secs(15), || stored(&rig) == "1");
}

#[test]
fn a_reset_reads_everything_again_and_doubles_nothing() {
    let (rig, list) = with_list(5);
    add(&rig, &list.settings());
    until_stored(&rig, 5);
    until_ended(&rig);
    let before = list.server.count();
    rig.post("/v1/sources/list/reset", &json!({ "from": "start" })).is(200);
    until("it is read again", || list.server.count() >= before + 3);
    assert!(!list.asked()[before].contains("created"), "{}", list.asked()[before]);
    until_ended(&rig);
    assert_eq!(stored(&rig), "5");
}

#[test]
fn an_item_that_a_policy_refuses_is_quarantined_without_its_content() {
    let rig = Rig::new();
    let policy = json!({ "rules": [{ "detect": ["iban"], "action": "reject" }] });
    let body = json!({ "name": "stripe", "scheme": { "kind": "stripe" }, "pii": policy, "secret": SECRET });
    rig.post("/v1/providers", &body).is(201);
    let list = ListServer::new();
    let mut item = event("evt_1", rig.now());
    item["iban"] = "DE89370400440532013000".into();
    list.items.lock().unwrap().push(item);
    add(&rig, &list.settings());
    rig.becomes("SELECT count(*) FROM outbox WHERE status = 'quarantined'", "1");
    assert!(!rig.dump().contains("DE89370400440532013000"));
    assert_eq!(stored(&rig), "0");
}

#[test]
fn a_source_is_tested_and_deleted_with_its_credential() {
    let (rig, list) = with_list(3);
    add(&rig, &list.settings());
    until_stored(&rig, 3);
    let test = rig.get("/v1/sources/list/test");
    has(&test, &json!({ "ok": true, "checks.0.name": "provider", "checks.1.name": "list" }));
    let credentials = rig.items("/v1/credentials?source=list");
    has(
        &credentials[0],
        &json!({ "source": "list", "provider": null, "kind": "bearer", "state": "active" }),
    );
    rig.delete("/v1/sources/list").is(204);
    assert_eq!(rig.items("/v1/credentials?source=list").len(), 0);
    rig.says("SELECT state FROM credentials WHERE source_seq IS NOT NULL", "revoked");
}

#[test]
fn a_source_without_a_list_has_no_credential_and_a_list_no_signature() {
    let (rig, list) = with_list(1);
    rig.source("list", "http", &list.settings());
    let drop = rig.home().join("drop");
    fs::create_dir(&drop).unwrap();
    rig.source("folder", "drop", &json!({ "path": drop }));
    let bearer = json!({ "kind": "bearer", "secret": KEY });
    rig.post("/v1/sources/folder/credentials", &bearer).is(409).tells("kind http");
    let signing = json!({ "kind": "signing" });
    rig.post("/v1/sources/list/credentials", &signing).is(422).tells("without a signature");
    let blocked =
        json!({ "preset": "stripe", "provider": "stripe", "url": "http://10.0.0.1/v1/events" });
    let body = json!({ "name": "inside", "kind": "http", "settings": blocked });
    rig.post("/v1/sources", &body).is(422).tells("10.0.0.1");
}

#[test]
fn items_of_a_page_go_out_in_the_order_in_which_they_happened() {
    let (rig, list) = with_list(2);
    let receiver = Receiver::new();
    rig.subscribe_with("erp", &receiver, &json!({ "source": "all", "ordering": "strict" }));
    add(&rig, &list.settings());
    until_stored(&rig, 2);
    rig.settle();
    let keys: Vec<String> = receiver
        .seen()
        .iter()
        .map(|request| request.field("x-idempotency-key").unwrap().to_owned())
        .collect();
    assert_eq!(keys, ["evt_1", "evt_2"]);
}

/// A list that sends a byte now and then is given up after half a minute; then it is read as if nothing had been.
#[test]
fn a_list_that_drips_is_given_up_and_read_again() {
    let (rig, list) = with_list(3);
    let front = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1/events?limit=2", front.local_addr().unwrap());
    let behind = list.server.address;
    thread::spawn(move || {
        let mut dripped = front.accept().unwrap().0;
        thread::spawn(move || {
            let head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9999\r\n\r\n";
            let _gone = dripped.write_all(head);
            while dripped.write_all(b" ").is_ok() {
                thread::sleep(Duration::from_millis(200));
            }
        });
        for stream in front.incoming() {
            let mut client = stream.unwrap();
            let mut server = TcpStream::connect(behind).unwrap();
            let mut answers = (server.try_clone().unwrap(), client.try_clone().unwrap());
            thread::spawn(move || std::io::copy(&mut answers.0, &mut answers.1));
            thread::spawn(move || std::io::copy(&mut client, &mut server));
        }
    });
    add(&rig, &merged(list.settings(), &json!({ "url": url })));
    rig.passing("the list is read again", secs(2), || stored(&rig) == "3");
    until_ended(&rig);
    assert_eq!(rig.get("/v1/sources/list")["last_error"], Value::Null);
}
