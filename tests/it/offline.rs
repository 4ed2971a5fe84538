//! A site without a line to the outside: nothing is attempted, nothing counts, and when the line is back everything
//! goes out in its order. The line is the test's, the clock stands still; `tests/fault/offline.rs` pulls a real link.

use oncebox::http::client::{Answer, Call, CallError, Client, ClientSettings, Sender};
use oncebox::model::address::AddressPolicy;
use oncebox::model::outcome::Cause;
use parking_lot::Mutex;

use crate::rig::prelude::*;

const HOUR: u64 = 3600;

/// A line that can be pulled. Hosts beyond it take everything; this machine is called as ever.
struct Line {
    is_up: AtomicBool,
    /// What a request fails with while the line is down.
    cause: Cause,
    /// Whether requests stay under way while the line is down.
    hangs: AtomicBool,
    /// Whether a probe of an address waits.
    probe_hangs: AtomicBool,
    /// Whether the host `near.example` is on the site's own network.
    is_near: AtomicBool,
    /// How often it was looked whether there is a line.
    looks: AtomicUsize,
    /// How often `dead.example` was called, which never answers.
    dead_calls: AtomicUsize,
    under_way: AtomicUsize,
    /// The most requests that were under way at once since the line came up.
    peak: AtomicUsize,
    /// What arrived, as host and body, in order.
    arrived: Mutex<Vec<(String, String)>>,
    here: Client,
}

impl Line {
    fn failing_with(cause: Cause, hangs: bool) -> Arc<Self> {
        let policy = AddressPolicy::new(vec!["127.0.0.0/8".parse().unwrap()]);
        let (connect_timeout, idle_connections) = (secs(5), 2);
        let client =
            ClientSettings { policy, ca_pem: None, connect_timeout, idle_connections, proxy: None };
        Arc::new(Self {
            is_up: AtomicBool::new(true),
            cause,
            hangs: AtomicBool::new(hangs),
            probe_hangs: AtomicBool::new(false),
            is_near: AtomicBool::new(false),
            looks: AtomicUsize::new(0),
            dead_calls: AtomicUsize::new(0),
            under_way: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            arrived: Mutex::default(),
            here: Client::new(client).unwrap(),
        })
    }

    fn new() -> Arc<Self> {
        Self::failing_with(Cause::NoConnection, false)
    }

    fn is_up(&self) -> bool {
        self.is_up.load(Ordering::SeqCst)
    }

    fn pull(&self) {
        self.is_up.store(false, Ordering::SeqCst);
    }

    fn mend(&self) {
        self.peak.store(0, Ordering::SeqCst);
        self.is_up.store(true, Ordering::SeqCst);
    }

    /// The bodies that a host has got, in order.
    fn of(&self, host: &str) -> Vec<String> {
        let arrived = self.arrived.lock();
        arrived.iter().filter(|(to, _)| to == host).map(|(_, body)| body.clone()).collect()
    }
}

impl Sender for Line {
    fn send(&self, call: &Call<'_>) -> Result<Answer, CallError> {
        if call.url.starts_with("http://127.") {
            return self.here.call(call);
        }
        let host = call.url.split('/').nth(2).unwrap().to_owned();
        let is_near = self.is_on_site(&host) == Some(true);
        let was_up = self.is_up() || is_near;
        let failed = || Err(CallError::Failed(self.cause, "no answer in the test".to_owned()));
        self.dead_calls.fetch_add(usize::from(host == "dead.example"), Ordering::SeqCst);
        while self.hangs.load(Ordering::SeqCst) && !self.is_up() && !is_near {
            thread::sleep(Duration::from_millis(5));
        }
        if !was_up || host == "dead.example" {
            return failed();
        }
        let under_way = self.under_way.fetch_add(1, Ordering::SeqCst) + 1;
        self.peak.fetch_max(under_way, Ordering::SeqCst);
        // As long as it takes to see who else is on the way.
        thread::sleep(Duration::from_millis(3));
        self.under_way.fetch_sub(1, Ordering::SeqCst);
        self.arrived.lock().push((host, String::from_utf8_lossy(call.body).into_owned()));
        Ok(Answer {
            status: 200,
            retry_after: None,
            custom_data: None,
            body: Vec::new(),
            oddity: None,
            link: None,
            is_broken_off: false,
        })
    }

    fn is_on_site(&self, host: &str) -> Option<bool> {
        (host == "near.example").then(|| self.is_near.load(Ordering::SeqCst))
    }

    fn has_line(&self, probe: &[SocketAddr]) -> bool {
        self.looks.fetch_add(1, Ordering::SeqCst);
        // One with an address takes its time.
        while !probe.is_empty() && self.probe_hangs.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(5));
        }
        self.is_up()
    }
}

fn site(line: Arc<Line>) -> (Arc<Line>, Rig) {
    let mut rig = Rig::new();
    let looks = line.looks.load(Ordering::SeqCst);
    rig.restart_on(Arc::<Line>::clone(&line));
    // A site that was never seen online cannot go offline. A second look shows that the first one has ended.
    until("the line was seen", || line.looks.load(Ordering::SeqCst) > looks + 1);
    (line, rig)
}

fn subscribe(rig: &Rig, name: &str, more: &Value) {
    let body = merged(json!({ "name": name, "url": format!("https://{name}.example/hook") }), more);
    rig.post("/v1/subscriptions", &body).is(201);
}

fn holds(rig: &Rig, name: &str) -> Vec<String> {
    let shown = rig.get(&format!("/v1/subscriptions/{name}"));
    let holds = shown["holds"].as_array().unwrap().iter();
    holds.map(|hold| text(hold, "reason")).collect()
}

fn escalated(rig: &Rig) -> Vec<String> {
    let open = rig.get("/v1/escalations")["items"].clone();
    let class = |open: &Value| text(open, "class");
    open.as_array().unwrap().iter().map(class).collect()
}

fn attempts(rig: &Rig) -> String {
    rig.one("SELECT count(*) FROM attempts")
}

fn counted(rig: &Rig) -> String {
    rig.one("SELECT count(*) FROM attempts WHERE counted = 1")
}

#[test]
fn who_names_it_is_told_that_the_line_is_gone_and_that_it_is_back() {
    let (line, rig) = site(Line::new());
    let told = Receiver::new();
    rig.subscribe_with("told", &told, &json!({ "event_types": ["site.offline", "site.online"] }));
    subscribe(&rig, "far", &json!({ "event_types": ["a"] }));
    rig.deliver("a");
    line.pull();
    rig.advance(secs(1));
    rig.publish_type("a");
    // A receiver on this machine needs no line.
    until("it is told at once", || told.count() == 1);
    line.mend();
    rig.passing("it is told", secs(1), || told.count() == 2);
    let sql = "SELECT group_concat(event_type) FROM outbox WHERE source_system = 'oncebox'";
    assert_eq!(rig.one(sql), "site.offline,site.online");
}

#[test]
fn where_addresses_are_probed_they_alone_decide_and_one_probe_is_for_all() {
    let line = Line::new();
    let mut rig = Rig::with(|settings| {
        settings.delivery.line_probe = vec!["192.0.2.1:53".parse().unwrap()];
    });
    rig.restart_on(Arc::<Line>::clone(&line));
    let near = Receiver::new();
    rig.subscribe_with("near", &near, &json!({ "event_types": ["near"] }));
    for n in 0..3 {
        subscribe(&rig, &format!("far-{n}"), &json!({ "event_types": ["far"] }));
    }
    rig.publish_type("near");
    rig.deliver("far");
    let looks = line.looks.load(Ordering::SeqCst);
    line.pull();
    line.hangs.store(true, Ordering::SeqCst);
    line.probe_hangs.store(true, Ordering::SeqCst);
    rig.publish_type("far");
    rig.becomes("SELECT count(*) FROM deliveries WHERE state = 'pending'", "3");
    rig.advance(secs(1));
    // A host on the site answers after they began.
    rig.publish_type("near");
    until("it answers", || near.count() == 2);
    line.hangs.store(false, Ordering::SeqCst);
    until("it is probed", || line.looks.load(Ordering::SeqCst) > looks);
    // The probe takes longer than its result is good for.
    rig.advance(secs(2));
    line.probe_hangs.store(false, Ordering::SeqCst);
    until("the site is held", || escalated(&rig) == ["site.offline"]);
    until("all have ended", || attempts(&rig) == "8");
    let probes = line.looks.load(Ordering::SeqCst) - looks;
    assert_eq!((counted(&rig).as_str(), probes), ("0", 1));
}

#[test]
fn nobody_waits_for_a_probe() {
    let line = Line::new();
    let mut rig = Rig::with(|settings| {
        settings.delivery.line_probe = vec!["192.0.2.1:53".parse().unwrap()];
        settings.delivery.deliverers = 1;
    });
    rig.restart_on(Arc::<Line>::clone(&line));
    let near = Receiver::new();
    rig.subscribe_with("near", &near, &json!({ "event_types": ["near"] }));
    subscribe(&rig, "dead", &json!({ "event_types": ["dead"] }));
    line.probe_hangs.store(true, Ordering::SeqCst);
    rig.publish_type("dead");
    until("it is probed", || line.looks.load(Ordering::SeqCst) > 0);
    rig.publish_type("near");
    until("the only deliverer is free", || near.count() == 1);
    until("the other is in doubt", || attempts(&rig) == "1");
    line.probe_hangs.store(false, Ordering::SeqCst);
    until("it counts, since the line works", || counted(&rig) == "1");
}

#[test]
fn what_waits_for_a_probe_is_bounded() {
    const MAX: usize = 256;
    let line = Line::new();
    let mut rig = Rig::with(|settings| {
        settings.delivery.line_probe = vec!["192.0.2.1:53".parse().unwrap()];
        settings.delivery.deliverers = 1;
    });
    rig.restart_on(Arc::<Line>::clone(&line));
    subscribe(&rig, "dead", &json!({ "event_types": ["a"] }));
    line.probe_hangs.store(true, Ordering::SeqCst);
    rig.post("/v1/events", &json!(vec![json!({ "event_type": "a", "payload": {} }); 700])).is(201);
    let called = || line.dead_calls.load(Ordering::SeqCst);
    until("as many wait as may", || called() > MAX);
    // One batch is judged, one waits, and the deliverer waits with one more.
    thread::sleep(Duration::from_millis(300));
    assert!(called() <= 2 * MAX + 1, "{}", called());
    line.probe_hangs.store(false, Ordering::SeqCst);
    until("all are judged", || attempts(&rig) == called().to_string());
}

#[test]
fn a_host_on_the_site_is_called_without_a_line_and_fails_by_itself() {
    let (line, mut rig) = site(Line::new());
    line.is_near.store(true, Ordering::SeqCst);
    subscribe(&rig, "near", &json!({ "event_types": ["near"] }));
    subscribe(&rig, "far", &json!({ "event_types": ["far"] }));
    rig.deliver("near");
    line.pull();
    rig.publish_type("far");
    until("the site is held", || holds(&rig, "far") == ["offline"]);
    assert_eq!(holds(&rig, "near"), Vec::<String>::new());
    rig.publish_type("near");
    until("it is called", || line.of("near.example").len() == 2);
    rig.restart_on(Arc::<Line>::clone(&line));
    rig.publish_type("near");
    until("it is called after a restart", || line.of("near.example").len() == 3);
    // Its address is elsewhere now: that is found out by calling it.
    line.is_near.store(false, Ordering::SeqCst);
    rig.publish_type("near");
    until("it is held as well", || holds(&rig, "near") == ["offline"]);
    assert_eq!(counted(&rig), "0");
    line.mend();
    rig.passing("it goes out", secs(1), || line.of("near.example").len() == 4);
}

#[test]
fn a_week_without_a_line_costs_no_attempt_and_no_order() {
    let (line, mut rig) = site(Line::new());
    let names = ["strict", "keyed", "free"];
    subscribe(&rig, "strict", &json!({ "ordering": "strict" }));
    subscribe(&rig, "keyed", &json!({ "ordering": "key" }));
    subscribe(&rig, "free", &json!({}));
    let mut published = Vec::new();
    let publish = |rig: &Rig, published: &mut Vec<String>| {
        let n = published.len();
        let (body, key) = (format!("{n:03}"), format!("key-{}", n % 3));
        rig.publish(&json!({ "event_type": "a", "payload": body, "ordering_key": key }));
        published.push(json!(body).to_string());
    };
    for _ in 0..3 {
        publish(&rig, &mut published);
    }
    rig.settle();
    rig.advance(secs(1));

    line.pull();
    for _ in 0..3 {
        publish(&rig, &mut published);
    }
    until("the site is held", || escalated(&rig) == ["site.offline"]);
    for name in names {
        until("the hold is shown", || holds(&rig, name) == ["offline"]);
    }
    rig.settle();
    let at_first = attempts(&rig);
    for step in 0..7 * 4 {
        publish(&rig, &mut published);
        rig.pass(secs(6 * HOUR));
        if step == 13 {
            rig.restart();
            assert_eq!(
                (holds(&rig, "free"), escalated(&rig)),
                (vec!["offline".to_owned()], vec!["site.offline".to_owned()])
            );
        }
    }
    assert_eq!(attempts(&rig), at_first);

    line.mend();
    until("the hold ends", || holds(&rig, "free").is_empty());
    // The clock stands still: no more than two at once, however many go out.
    until("some go out", || line.arrived.lock().len() > 30);
    let peak = line.peak.load(Ordering::SeqCst);
    assert!(peak <= 2, "{peak}");
    rig.pass(secs(10));

    assert_eq!((counted(&rig), rig.one("SELECT count(*) FROM failures")), ("0".into(), "0".into()));
    assert_eq!(rig.one("SELECT count(*) FROM deliveries WHERE state <> 'completed'"), "0");
    assert_eq!((escalated(&rig), holds(&rig, "strict")), (vec![], vec![]));
    assert_eq!(line.of("strict.example"), published);
    let mut lanes: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for body in line.of("keyed.example") {
        let n: usize = body.trim_matches('"').parse().unwrap();
        lanes.entry(n % 3).or_default().push(body);
    }
    for (key, lane) in lanes {
        let expected: Vec<String> = published.iter().skip(key).step_by(3).cloned().collect();
        assert_eq!(lane, expected);
    }
    // Without an order the oldest go first, as far as several go side by side.
    let free = line.of("free.example");
    assert_eq!(free.len(), published.len());
    for (n, body) in published.iter().enumerate() {
        let place = free.iter().position(|other| other == body).unwrap();
        assert!(place.abs_diff(n) <= 8, "{body} came as number {place}");
    }
}

#[test]
fn a_request_that_gets_no_answer_because_the_line_is_down_does_not_count() {
    for cause in [Cause::Timeout, Cause::Broken] {
        let (line, rig) = site(Line::failing_with(cause, false));
        subscribe(&rig, "far", &json!({}));
        line.pull();
        rig.publish_type("a");
        until("the site is held", || holds(&rig, "far") == ["offline"]);
        until("it is settled", || attempts(&rig) == "1");
        assert_eq!(counted(&rig), "0");
        line.mend();
        until("the hold ends", || holds(&rig, "far").is_empty());
        rig.pass(secs(5));
        assert_eq!(line.of("far.example").len(), 1);
    }
}

#[test]
fn a_connection_that_was_waited_for_while_the_line_was_down_does_not_count() {
    let (line, rig) = site(Line::failing_with(Cause::NoConnection, true));
    subscribe(&rig, "far", &json!({}));
    line.pull();
    rig.publish_type("a");
    let looks = line.looks.load(Ordering::SeqCst);
    until("upkeep has looked at the line", || line.looks.load(Ordering::SeqCst) > looks + 1);
    line.mend();
    until("it is settled", || attempts(&rig) == "1");
    assert_eq!((counted(&rig), holds(&rig, "far"), escalated(&rig)), ("0".into(), vec![], vec![]));
    rig.pass(secs(5));
    assert_eq!(line.of("far.example").len(), 1);
}

#[test]
fn a_site_is_offline_though_the_line_was_seen_down_before_the_first_request_fails() {
    let (line, rig) = site(Line::failing_with(Cause::NoConnection, true));
    subscribe(&rig, "far", &json!({}));
    line.pull();
    rig.publish_type("a");
    let looks = line.looks.load(Ordering::SeqCst);
    until("upkeep has looked at the line", || line.looks.load(Ordering::SeqCst) > looks + 1);
    line.hangs.store(false, Ordering::SeqCst);
    until("the site is held", || holds(&rig, "far") == ["offline"]);
    line.mend();
    until("the hold ends", || holds(&rig, "far").is_empty());
    rig.pass(secs(5));
    assert_eq!((counted(&rig), line.of("far.example").len()), ("0".into(), 1));
}

#[test]
fn a_line_that_is_back_is_proven_by_an_answer_or_a_minute() {
    let (line, rig) = site(Line::new());
    subscribe(&rig, "dead", &json!({}));
    line.pull();
    rig.publish_type("a");
    until("the site is held", || holds(&rig, "dead") == ["offline"]);
    until("the first is settled", || attempts(&rig) == "1");
    line.mend();
    until("the hold ends", || holds(&rig, "dead").is_empty());
    rig.pass(secs(5));
    assert_eq!((attempts(&rig).as_str(), counted(&rig).as_str()), ("2", "0"));
    rig.pass(secs(60));
    assert_eq!((attempts(&rig).as_str(), counted(&rig).as_str()), ("3", "1"));
}

#[test]
fn one_host_that_cannot_be_reached_while_there_is_a_line_fails_by_itself() {
    let (line, rig) = site(Line::new());
    subscribe(&rig, "dead", &json!({}));
    subscribe(&rig, "far", &json!({}));
    rig.deliver("a");
    assert_eq!((counted(&rig), escalated(&rig)), ("1".into(), vec![]));
    assert_eq!((holds(&rig, "dead"), line.of("far.example").len()), (vec![], 1));
}

#[test]
fn a_request_that_cannot_be_built_does_not_say_that_there_is_a_line() {
    let (line, rig) = site(Line::new());
    subscribe(&rig, "unbuilt", &json!({ "url": "https://unbuilt.example/{aggregate_id}" }));
    subscribe(&rig, "far", &json!({}));
    line.pull();
    rig.publish_type("a");
    until("the site is held", || holds(&rig, "far") == ["offline"]);
    until("both are settled", || attempts(&rig) == "2");
    assert_eq!(rig.one("SELECT class FROM attempts WHERE counted = 1"), "poison");
}

#[test]
fn a_program_on_this_machine_is_called_without_a_line_and_goes_on_afterwards() {
    let (line, rig) = site(Line::new());
    let here = Receiver::new();
    rig.subscribe("here", &here);
    subscribe(&rig, "far", &json!({ "event_types": ["far"] }));
    line.pull();
    rig.publish_type("far");
    until("the site is held", || holds(&rig, "far") == ["offline"]);
    until("the first is settled", || attempts(&rig) == "2");
    assert_eq!((here.count(), holds(&rig, "here")), (1, vec![]));

    here.always(Reply::with(429, "retry-after", "60"));
    rig.publish_type("here");
    until("it is asked to wait", || holds(&rig, "here") == ["rate_limit"]);
    here.always(Reply::status(200));
    rig.advance(secs(60));
    until("it goes on without a line", || here.count() == 3);
    until("its hold ends", || holds(&rig, "here").is_empty());
    line.mend();
    until("the hold ends", || holds(&rig, "far").is_empty());
    rig.publish_type("here");
    until("it goes on with a line", || here.count() == 4);
    rig.pass(secs(60));
    assert_eq!(line.of("far.example").len(), 1);
}
