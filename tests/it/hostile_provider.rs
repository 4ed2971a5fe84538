//! A provider that loses webhooks, repeats some, lists late and answers badly, and a box that restarts: after a reconciliation
//! each event is here once, and the report says what happened.

use std::collections::BTreeSet;

use super::hostile_lists::Seeded;
use super::http_sources::{SECRET, event, json_page, parameter, set_credential, webhook};
use crate::rig::prelude::*;

const RUNS: &str = "/v1/providers/stripe/reconciliations";
/// Seconds of a day.
const DAY: u64 = 86_400;
/// Items of a page.
const PAGE: usize = 100;
/// Events between two steps of the clock.
const STEP: u64 = 50;
/// Seconds after which every event is listed.
const MAX_LATE: u64 = 120;

/// The events of a day in equal distances, and what the provider does with each.
struct Day {
    count: u64,
    seed: u64,
}

impl Day {
    fn seconds(&self, n: u64) -> u64 {
        n * DAY / self.count
    }

    fn at(&self, n: u64) -> Timestamp {
        START.plus(secs(self.seconds(n)))
    }

    /// A number below `end` that follows from the seed, the event and what it is for.
    fn drawn(&self, n: u64, purpose: u64, end: u64) -> u64 {
        let mut seeded = Seeded(self.seed.wrapping_add(n * 8 + purpose));
        seeded.below(end);
        seeded.below(end)
    }

    fn is_lost(&self, n: u64) -> bool {
        self.drawn(n, 1, 3) == 0
    }

    fn is_repeated(&self, n: u64) -> bool {
        self.drawn(n, 2, 10) == 0
    }

    /// Seconds after which the list shows it.
    fn late(&self, n: u64) -> u64 {
        self.drawn(n, 3, MAX_LATE)
    }

    fn body(&self, n: u64) -> Value {
        event(&format!("evt_{n}"), self.at(n))
    }
}

/// The list of a day, the newest first. It answers some requests badly.
struct HostileProvider {
    day: Day,
    seeded: Seeded,
    clock: Clock,
}

impl HostileProvider {
    fn answer(&mut self, request: &Message) -> Reply {
        match self.seeded.below(60) {
            0 => return Reply::status(500),
            1 => return Reply::CutRead,
            2 => return Reply::with(429, "retry-after", "1"),
            3 => return Reply::Answer(200, Vec::new(), b"<html>busy</html>".to_vec()),
            _ => {}
        }
        let now = self.clock.wall();
        let since = parameter(request, "created%5Bgte%5D")
            .map_or(0, |text| text.parse::<i64>().unwrap() - START.secs());
        let since = u64::try_from(since).unwrap_or(0);
        let day = &self.day;
        let passed = now.since(START).as_secs();
        let newest = (passed * day.count / DAY).min(day.count - 1);
        let before = match parameter(request, "starting_after") {
            Some(id) => id.trim_start_matches("evt_").parse().unwrap(),
            None => newest + 1,
        };
        let is_listed = |n: &u64| day.seconds(*n) + day.late(*n) <= passed;
        let left = (0..before).rev().take_while(|n| day.seconds(*n) >= since).filter(is_listed);
        let mut page: Vec<u64> = left.take(PAGE + 1).collect();
        let has_more = page.len() > PAGE;
        page.truncate(PAGE);
        if self.seeded.is(10) && page.len() > 2 {
            // The last item stays: it names the next page.
            page.insert(0, page[page.len() / 2]);
            page.swap(0, 1);
        }
        let data: Vec<Value> = page.iter().map(|n| day.body(*n)).collect();
        json_page(&json!({ "object": "list", "data": data, "has_more": has_more }))
    }
}

/// Lets a day pass in which the provider sends what it does not lose. Returns the events that came as a webhook.
fn live(rig: &mut Rig, day: &Day) -> BTreeSet<u64> {
    let mut came = BTreeSet::new();
    let restarts = [day.count / 3, day.count / 2];
    for n in 0..day.count {
        if n % STEP == 0 {
            rig.advance(secs(day.seconds(STEP)));
        }
        if restarts.contains(&n) {
            rig.restart();
        }
        if day.is_lost(n) {
            continue;
        }
        let body = day.body(n).to_string();
        webhook(rig, body.as_bytes()).is(200);
        came.insert(n);
        if day.is_repeated(n) {
            webhook(rig, body.as_bytes()).is(200);
        }
    }
    // The last event is listed by then, and old enough to be compared.
    rig.advance(secs(2 * 600));
    came
}

/// Starts a run over the day, restarts the box in its middle, and returns the run when it has ended.
fn reconciled(rig: &mut Rig, server: &Receiver) -> Value {
    let body = json!({ "since": START.minus(secs(60)).to_string() });
    let begun = rig.post(RUNS, &body).is(201).json();
    let path = format!("{RUNS}/{}", text(&begun, "id"));
    for _ in 0..2 {
        let before = server.count();
        rig.passing("some pages are read", secs(2), || server.count() > before + 5);
        rig.restart();
    }
    ended(rig, server, &path)
}

/// Waits until a run has ended. Time passes only while it waits: pages that are read take none.
fn ended(rig: &Rig, server: &Receiver, path: &str) -> Value {
    let mut count = 0;
    until("it has ended", || {
        thread::sleep(Duration::from_millis(20));
        if server.count() == count {
            rig.advance(secs(2));
        }
        count = server.count();
        rig.get(path)["state"] != "RUNNING"
    });
    rig.get(path)
}

#[test]
fn a_provider_that_loses_webhooks_is_made_whole_and_reported() {
    let count = std::env::var("ONCEBOX_PROVIDER_EVENTS").map_or(800, |text| text.parse().unwrap());
    let seed = std::env::var("ONCEBOX_LIST_SEED").map_or(1, |text| text.parse().unwrap());
    let day = Day { count, seed };
    let mut rig = Rig::new();
    rig.provider("stripe", &json!({ "kind": "stripe" }), SECRET);
    let server = Receiver::new();
    let clock = Clock::from_source(rig.time.clone());
    let mut list = HostileProvider { day: Day { count, seed }, seeded: Seeded(seed), clock };
    server.decide(move |request| list.answer(request));
    let url = format!("http://{}/v1/events?limit={PAGE}", server.address);
    // Its rounds find some of what was lost, and runs the rest.
    let settings = json!({ "preset": "stripe", "provider": "stripe", "url": url, "interval_ms": 16 * 3_600_000 });
    let source = json!({ "name": "list", "kind": "http", "settings": settings, "from": "now" });
    rig.post("/v1/sources", &source).is(201);
    set_credential(&rig);
    let came = live(&mut rig, &day);
    let done = reconciled(&mut rig, &server);
    let not_sent = count - u64::try_from(came.len()).unwrap();
    let missing = late(&rig, &came);
    has(
        &done,
        &json!({
            "state": "DONE", "sent": count, "received": came.len(), "missing": missing, "taken_in": not_sent, "refused": 0,
        }),
    );
    assert!(missing > 0, "{done}");
    report_is_true(&done, &day, &came);
    rig.says(
        "SELECT count(*), count(DISTINCT provider_event_id) FROM webhook_events",
        &format!("{count} {count}"),
    );
    rig.says("SELECT count(*) FROM outbox WHERE status = 'quarantined'", "0");
    let again = reconciled_again(&rig, &server);
    has(
        &again,
        &json!({ "sent": count, "received": came.len(), "missing": 0, "taken_in": not_sent }),
    );
}

/// How many events that never came as a webhook were not here when the run began. A round may take some of them in beside it.
fn late(rig: &Rig, came: &BTreeSet<u64>) -> usize {
    let after = "SELECT provider_event_id FROM webhook_events WHERE seq > (SELECT last_before FROM reconciliations)";
    let number = |id: &String| id.trim_start_matches("evt_").parse::<u64>().unwrap();
    rig.lines(after).iter().map(number).filter(|n| !came.contains(n)).count()
}

/// Compares each day of the report with what the provider did.
#[track_caller]
fn report_is_true(done: &Value, day: &Day, came: &BTreeSet<u64>) {
    for reported in done["days"].as_array().unwrap() {
        let of_day = |n: &u64| day.at(*n).to_string().starts_with(&text(reported, "day"));
        let sent: Vec<u64> = (0..day.count).filter(of_day).collect();
        let received = sent.iter().filter(|n| came.contains(n)).count();
        has(
            reported,
            &json!({ "sent": sent.len(), "received": received, "taken_in": sent.len() - received, "refused": 0 }),
        );
    }
}

/// A second run over the day.
fn reconciled_again(rig: &Rig, server: &Receiver) -> Value {
    let body = json!({ "since": START.minus(secs(60)).to_string() });
    let begun = rig.post(RUNS, &body).is(201).json();
    ended(rig, server, &format!("{RUNS}/{}", text(&begun, "id")))
}
