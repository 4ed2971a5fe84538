//! kill -9 under load, again and again. `ONCEBOX_KILLS` says how often.

use crate::fault::process::prelude::*;

/// Connections that publish.
const PUBLISHERS: u64 = 8;

/// Ends the publishers when it is dropped, so that a test that fails ends too.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// What the publishers share.
struct Load {
    /// Where the service is now; `None` while it is dead.
    address: Mutex<Option<SocketAddr>>,
    token: String,
    done: AtomicBool,
    next: AtomicU64,
    /// The webhook-ids of acknowledged events, by key.
    acknowledged: Mutex<BTreeMap<String, String>>,
}

impl Load {
    fn count(&self) -> u64 {
        self.acknowledged.lock().unwrap().len().try_into().unwrap()
    }

    /// Publishes one event after the other, each until it is acknowledged, and some of them twice.
    fn publish(&self) {
        while !self.done.load(Ordering::SeqCst) {
            let key = format!("key-{}", self.next.fetch_add(1, Ordering::SeqCst));
            self.insist(&key);
            if key.ends_with('7') {
                self.insist(&key);
            }
        }
    }

    /// Publishes one event until it is acknowledged, or the load is done.
    fn insist(&self, key: &str) {
        let payload = json!({ "key": key });
        let event =
            json!({ "event_type": "order.paid", "idempotency_key": key, "payload": payload });
        while !self.done.load(Ordering::SeqCst) {
            let Some(webhook_id) = self.answer(&event) else {
                thread::sleep(ms(5));
                continue;
            };
            let mut acknowledged = self.acknowledged.lock().unwrap();
            let before = acknowledged.insert(key.to_owned(), webhook_id.clone());
            assert!(before.is_none_or(|before| before == webhook_id), "{key} has one webhook-id");
            return;
        }
    }

    fn answer(&self, event: &Value) -> Option<String> {
        let address = (*self.address.lock().unwrap())?;
        let answer = call(address, &self.token, "POST", "/v1/events", event).ok()?;
        assert!(matches!(answer.status, 200 | 201 | 503), "{answer:?}");
        let event = answer.json()["events"][0].clone();
        event["webhook_id"].as_str().map(str::to_owned)
    }
}

#[test]
fn a_delivery_that_was_under_way_at_a_kill_is_sent_again_under_its_id() {
    let receiver = Receiver::scripted([Reply::Hang]);
    let (home, process) = Process::subscribed(&receiver);
    process.post("/v1/events", &json!({ "event_type": "a", "payload": 1 }));
    until("the attempt is under way", || receiver.count() == 1);
    process.kill();
    let process = Process::start(home.path());
    process.finish();
    let seen = receiver.seen();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[0].field("webhook-id"), seen[1].field("webhook-id"));
    file::check(&home.path().join("data/oncebox.db"));
}

#[test]
fn each_completed_delivery_is_told_exactly_once_over_kills() {
    let home = tempfile::tempdir().unwrap();
    let (receiver, told) = (Receiver::new(), Receiver::new());
    let mut process = Process::start(home.path());
    process.subscribe(&receiver.url());
    let body = json!({ "name": "told", "url": told.url(), "event_types": ["delivery.completed"] });
    process.post("/v1/subscriptions", &body);
    let event =
        |key: usize| json!({ "event_type": "a", "idempotency_key": key.to_string(), "payload": 1 });
    let events: Vec<_> = (0..400).map(event).collect();
    process.post("/v1/events", &json!(events));
    for enough in [50, 200] {
        until("some are told", || told.count() >= enough);
        process = process.killed(home.path());
    }
    process.finish();
    let database = home.path().join("data/oncebox.db");
    file::check(&database);
    let conn = file::open(&database);
    let sql =
        "SELECT count(*), count(DISTINCT json_extract(CAST(payload AS TEXT), '$.delivery_id'))
                 FROM outbox WHERE source_system = 'oncebox'";
    assert_eq!(file::lines(&conn, sql), ["400 400"]);
    let ids: BTreeSet<String> =
        told.seen().iter().map(|seen| seen.field("webhook-id").unwrap().to_owned()).collect();
    assert_eq!(ids.len(), 400);
}

#[test]
fn a_change_and_its_key_are_both_there_after_a_kill_or_neither() {
    let home = tempfile::tempdir().unwrap();
    let mut process = Process::start(home.path());
    let bearer = format!("Bearer {}", process.token());
    let body = json!({ "name": "made", "role": "read" }).to_string();
    let make = |address: SocketAddr, key: &str| {
        let fields = [("Authorization", bearer.as_str()), ("Idempotency-Key", key)];
        let answer = http::send(address, "POST", "/v1/tokens", &fields, body.as_bytes()).ok()?;
        (answer.status == 201).then(|| answer.json())
    };
    for round in 0..3 {
        let (address, answered) = (process.address, AtomicU64::new(0));
        let sent = thread::scope(|scope| {
            let send = |n: u64| {
                let key = format!("key-{round}-{n}");
                let token = make(address, &key);
                answered.fetch_add(u64::from(token.is_some()), Ordering::SeqCst);
                (key, token)
            };
            let both = [0, 100]
                .map(|from| scope.spawn(move || (from..from + 100).map(send).collect::<Vec<_>>()));
            until("some are made", || answered.load(Ordering::SeqCst) >= 20);
            process.kill();
            both.map(|one| one.join().unwrap()).concat()
        });
        process = Process::start(home.path());
        for (key, before) in sent {
            let after = make(process.address, &key).unwrap();
            assert!(before.is_none_or(|before| before == after), "{key}");
        }
    }
    let conn = file::open(&home.path().join("data/oncebox.db"));
    assert_eq!(file::lines(&conn, "SELECT count(*) FROM tokens WHERE name = 'made'"), ["600"]);
}

#[test]
fn a_second_service_on_the_same_directory_ends_with_75() {
    let home = tempfile::tempdir().unwrap();
    let _first = Process::start(home.path());
    let second = Command::new(env!("CARGO_BIN_EXE_oncebox"))
        .arg("--config")
        .arg(home.path().join("oncebox.toml"))
        .arg("--data")
        .arg(home.path().join("data"))
        .arg("serve")
        .output()
        .unwrap();
    assert_eq!(second.status.code(), Some(75), "{second:?}");
    assert!(String::from_utf8_lossy(&second.stderr).contains("another oncebox"), "{second:?}");
}

#[test]
fn nothing_acknowledged_is_lost_over_many_kills_under_load() {
    let kills = number("ONCEBOX_KILLS", 2);
    let home = tempfile::tempdir().unwrap();
    let receiver = Receiver::new();
    let requests = AtomicU64::new(0);
    receiver.cut_unread(move || requests.fetch_add(1, Ordering::SeqCst) % 20 == 19);
    let mut process = Process::start(home.path());
    process.subscribe(&receiver.url());
    let load = Load {
        address: Mutex::new(Some(process.address)),
        token: process.token(),
        done: AtomicBool::new(false),
        next: AtomicU64::new(0),
        acknowledged: Mutex::default(),
    };
    process = thread::scope(|scope| {
        let done = Done(&load.done);
        for _ in 0..PUBLISHERS {
            scope.spawn(|| load.publish());
        }
        for n in 0..kills {
            let enough = load.count() + 50 + n * 37 % 100;
            until("more is acknowledged", || load.count() >= enough);
            *load.address.lock().unwrap() = None;
            process = process.killed(home.path());
            *load.address.lock().unwrap() = Some(process.address);
        }
        drop(done);
        process
    });
    process.finish();

    let database = home.path().join("data/oncebox.db");
    file::check(&database);
    let acknowledged = load.acknowledged.lock().unwrap();
    assert!(u64::try_from(acknowledged.len()).unwrap() >= 50 * kills, "{}", acknowledged.len());
    check_received(&receiver.seen(), &acknowledged);
    let conn = file::open(&database);
    let unfinished =
        file::lines(&conn, "SELECT seq, status FROM outbox WHERE status <> 'completed'");
    assert_eq!(unfinished, [""; 0]);
    let stored: BTreeSet<String> =
        file::lines(&conn, "SELECT idempotency_key FROM outbox").into_iter().collect();
    assert!(
        acknowledged.keys().all(|key| stored.contains(key)),
        "an acknowledged event is missing"
    );
}

/// Every acknowledged event came at least once, and under its webhook-id only one body.
fn check_received(seen: &[Message], acknowledged: &BTreeMap<String, String>) {
    let mut bodies: BTreeMap<&str, &[u8]> = BTreeMap::new();
    for request in seen {
        let id = request.field("webhook-id").unwrap();
        let before = bodies.insert(id, &request.body);
        assert!(before.is_none_or(|before| before == request.body), "{id} came with two bodies");
    }
    for (key, id) in acknowledged {
        let body = bodies.get(id.as_str()).unwrap_or_else(|| panic!("{key} was never delivered"));
        assert_eq!(String::from_utf8_lossy(body), json!({ "key": key }).to_string());
    }
}
