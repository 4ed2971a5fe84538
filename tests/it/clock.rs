//! A clock that may be wrong: nothing is deleted, given up, expired, rotated or ended by it, whatever it shows. Once it is
//! believed, all of that happens.

use oncebox::backup::retention;
use oncebox::base::faults::{Faults, Step};
use oncebox::config::Settings;

use crate::rig::prelude::*;

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;
/// How long before its limit each thing of the box is.
const BEFORE: u64 = 1800;
const REQUEST: &str = "request-0123456789-0123456789-01";
const SECRET: &str = "a-shared-secret-of-32-characters";

/// What the tables and files of a box have that time ends.
type Kept = BTreeMap<&'static str, String>;

/// A box in which each thing that time ends is half an hour before its end.
struct Box {
    rig: Rig,
    home: TempDir,
    /// Answers 202, and wants to confirm.
    confirming: Receiver,
    /// Answers what it was told.
    others: Receiver,
}

impl Box {
    fn new() -> Self {
        Self::with_faults(Faults::none())
    }

    fn with_faults(faults: Faults) -> Self {
        let home = tempfile::tempdir().unwrap();
        let script = home.path().join("vault.sh");
        fs::write(&script, "echo run >> \"$0.runs\"\necho token-$(wc -l < \"$0.runs\")\n").unwrap();
        let argv = vec!["/bin/sh".to_owned(), script.display().to_string()];
        let change = |settings: &mut Settings| {
            settings.archive.after = secs(DAY);
            settings.archive.keep = secs(400 * DAY);
            settings.keys.rotate_every = Some(secs(500 * DAY));
            settings.credentials.commands = [("vault".to_owned(), argv)].into_iter().collect();
        };
        let rig = Rig::with_faults(change, faults);
        let (confirming, others) = (Receiver::new(), Receiver::new());
        let mut made = Self { rig, home, confirming, others };
        made.archive_an_event();
        made.fill();
        made
    }

    /// An event goes into the file of its month, and its key is remembered.
    fn archive_an_event(&self) {
        let rig = &self.rig;
        rig.subscribe("archived", &self.others);
        rig.publish(&json!({ "event_type": "old", "target": "archived", "payload": 1 }));
        rig.settle();
        rig.advance(secs(2 * DAY));
        rig.becomes("SELECT count(*) FROM outbox", "0");
        rig.becomes("SELECT count(*) FROM seen_keys", "1");
        rig.call("DELETE", "/v1/subscriptions/archived", b"").is(204);
        // The month was moved two days after it began; it may go 400 days later.
        rig.advance(secs(400 * DAY - BEFORE));
        until("the duties were done on this day", || {
            let soon = rig.now().minus(secs(2 * HOUR)).ms();
            rig.one(&format!("SELECT count(*) FROM chores WHERE done_at < {soon}")) == "0"
        });
    }

    /// Everything else, half an hour before its end.
    fn fill(&mut self) {
        let rig = &self.rig;
        self.confirming.always(Reply::status(202));
        let policy = json!({ "confirm_within": "30min" });
        rig.subscribe_with("confirming", &self.confirming, &json!({ "policy": policy }));
        rig.publish(&json!({ "event_type": "a", "target": "confirming", "payload": 1 }));
        rig.becomes("SELECT count(*) FROM deliveries WHERE state = 'waiting'", "1");
        rig.pull("pull", &json!({ "policy": { "lease": "30min" } }));
        rig.publish(&json!({ "event_type": "a", "target": "pull", "payload": 1 }));
        rig.get("/v1/consumers/pull/next?max=1");
        rig.becomes("SELECT count(*) FROM deliveries WHERE state = 'leased'", "1");
        let order = json!({ "postpone_limit": "30min" });
        let policy = json!({ "steps": ["4h"] });
        let terms = json!({ "ordering": "strict", "order": order, "policy": policy });
        self.others.always(Reply::status(500));
        rig.subscribe_with("postponing", &self.others, &terms);
        for n in 1..=3 {
            rig.publish(&json!({ "event_type": "a", "target": "postponing", "payload": n }));
        }
        rig.becomes("SELECT count(*) FROM attempts WHERE class = 'transient'", "1");
        self.others.always(Reply::with(429, "Retry-After", "1800"));
        rig.subscribe("limited", &self.others);
        rig.publish(&json!({ "event_type": "a", "target": "limited", "payload": 1 }));
        rig.becomes("SELECT count(*) FROM holds WHERE reason = 'rate_limit'", "1");
        self.credentials();
        self.old_rows();
    }

    /// A credential whose command is due soon, and a secret of a provider whose window ends soon.
    fn credentials(&self) {
        let rig = &self.rig;
        rig.subscribe("rotating", &self.others);
        let set = json!({ "kind": "bearer", "secret": "token-0" });
        let made = rig.post("/v1/subscriptions/rotating/credentials", &set).is(201).json();
        let schedule = format!("/v1/credentials/{}/schedule", made["id"].as_str().unwrap());
        rig.post(&schedule, &json!({ "every": "1h", "command": "vault" })).is(200);
        rig.token_provider("shop", SECRET);
        let next = json!({ "secret": "another-secret-of-32-characters-", "overlap": "30min" });
        let old = rig.one("SELECT id FROM credentials WHERE provider_seq IS NOT NULL");
        rig.post(&format!("/v1/credentials/{old}/rotate"), &next).is(201);
    }

    /// Rows that the service would take months to make.
    fn old_rows(&self) {
        let rig = &self.rig;
        let now = rig.now();
        let near = |age: u64| now.minus(secs(age - BEFORE)).ms();
        rig.post("/v1/processed-events", &json!({ "consumer_group": "erp", "event_id": "e" }))
            .is(201);
        self.publish_once().is(201);
        rig.writable().run(&format!(
            "UPDATE processed_events SET processed_at = {guard};
             UPDATE idempotency_keys SET created_at = {key}, expires_at = {key} + 86400000 WHERE key = '{REQUEST}';
             UPDATE credentials SET created_at = {rotate} WHERE rotate_command IS NOT NULL;
             UPDATE meta SET value = {master} WHERE key = 'master_key_since';
             INSERT INTO past_holds (subscription_seq, reason, since, ended_at, detail)
             VALUES (1, 'breaker', {hold}, {hold}, 'long ago');
             INSERT INTO history (day, kind, of_seq, hours) VALUES ({day}, 'subscription', 1, x'');",
            guard = near(90 * DAY),
            key = near(DAY),
            rotate = near(HOUR),
            master = near(500 * DAY),
            hold = near(90 * DAY),
            day = now.secs() / 86_400 - 89,
        ));
    }

    /// The same request each time.
    fn publish_once(&self) -> Answer {
        let event = json!({ "event_type": "a", "target": "pull", "payload": "once" }).to_string();
        let bearer = format!("Bearer {}", self.rig.token);
        let fields = [("Authorization", bearer.as_str()), ("Idempotency-Key", REQUEST)];
        self.rig.send("POST", "/v1/events", &fields, event.as_bytes())
    }

    fn months(&self) -> String {
        let directory = self.rig.data().join("archive");
        let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
        let names = names.map(|name| name.into_string().unwrap());
        names
            .filter(|name| Path::new(name).extension().is_some_and(|it| it == "db"))
            .collect::<Vec<_>>()
            .join(" ")
    }

    fn kept(&self) -> Kept {
        let rig = &self.rig;
        let runs = fs::read_to_string(self.home.path().join("vault.sh.runs")).unwrap_or_default();
        let queries = [
            (
                "idempotency keys",
                "SELECT count(*) FROM idempotency_keys WHERE key LIKE 'request-%'",
            ),
            ("history", "SELECT count(*) FROM history WHERE hours = x''"),
            ("past holds", "SELECT count(*) FROM past_holds WHERE detail = 'long ago'"),
            ("guards", "SELECT count(*) FROM processed_events"),
            ("keys of archived events", "SELECT count(*) FROM seen_keys"),
            ("confirmations", "SELECT count(*) FROM deliveries WHERE state = 'waiting'"),
            ("leases", "SELECT count(*) FROM deliveries WHERE state = 'leased'"),
            ("dead letters", "SELECT count(*) FROM deliveries WHERE state = 'dead_letter'"),
            ("holds", "SELECT group_concat(DISTINCT reason) FROM holds"),
            ("old secrets", "SELECT count(*) FROM credentials WHERE state = 'retiring'"),
            ("master key", "SELECT value FROM meta WHERE key = 'master_key_id'"),
        ];
        let mut kept: Kept = queries.map(|(name, sql)| (name, rig.one(sql))).into();
        kept.insert("months", self.months());
        kept.insert("vault commands", runs.lines().count().to_string());
        kept.insert("calls to be confirmed", self.confirming.count().to_string());
        kept
    }

    /// What a request with a key that was used before is answered, and whether an old secret of a provider is accepted.
    fn answers(&self) -> (Option<String>, u16) {
        let answer = self.publish_once();
        let replayed = answer.field("idempotency-replayed").map(str::to_owned);
        let hook = self.rig.send("POST", "/in/shop", &[("X-Token", SECRET)], b"hook");
        (replayed, hook.status)
    }

    /// Waits until all chores have run twice: the clock's chore tells the file the time once a minute.
    fn chores_run(&self) {
        let told = "SELECT value FROM meta WHERE key = 'clock_known'";
        for _ in 0..3 {
            let before = self.rig.one(told);
            self.rig.advance(secs(61));
            until("the file knows the time", || self.rig.one(told) != before);
        }
    }

    #[track_caller]
    fn is_suspect(&self, doubt: &str) {
        until("the clock is suspect", || self.rig.get("/v1/clock")["doubt"] == doubt);
    }

    /// Waits until all has ended that time ends.
    #[track_caller]
    fn all_ends(&self) {
        let before = self.kept();
        let is_over = |kept: &Kept, name: &str| match name {
            "dead letters" | "vault commands" => kept[name] != "0",
            "holds" => !kept[name].contains("rate_limit"),
            "master key" => kept[name] != before[name],
            "months" => kept[name].is_empty(),
            "leases" | "calls to be confirmed" => true,
            _ => kept[name] == "0",
        };
        // Its time limit is one of this clock, too, so that it is not let pass while the command begins.
        self.rig.advance(secs(HOUR));
        until("the vault's command has run", || self.kept()["vault commands"] != "0");
        let mut last = before.clone();
        let begun = Instant::now();
        while !before.keys().all(|name| is_over(&last, name)) {
            assert!(begun.elapsed() < crate::rig::PATIENCE, "not all has ended: {last:#?}");
            if is_over(&last, "dead letters") {
                // Else each end of a hold would begin the next one, and a slow look would always see one.
                self.others.always(Reply::status(200));
                self.confirming.always(Reply::status(200));
            }
            self.rig.advance(secs(DAY));
            thread::sleep(Duration::from_millis(10));
            last = self.kept();
        }
    }
}

/// The clock of a running box is set, and nothing vouches for it.
#[test]
fn a_clock_that_is_set_while_the_box_runs_ends_nothing() {
    let held = Box::new();
    held.rig.time.set_synchronised(false);
    let (right, before) = (held.rig.now(), held.kept());
    for (forward, wall) in [
        ("an hour ahead", right.plus(secs(HOUR))),
        ("200 days ahead", right.plus(secs(200 * DAY))),
        ("a day behind", right.minus(secs(DAY))),
        ("in 1971", Timestamp::from_secs(31_536_000)),
    ] {
        held.rig.time.set_wall(wall);
        held.is_suspect("set");
        held.chores_run();
        assert_eq!(held.kept(), before, "the clock is {forward}");
        assert_eq!(held.answers(), (Some("true".to_owned()), 200), "the clock is {forward}");
    }
    // A person says that it is right: waits keep their length, and what is old goes.
    held.rig.time.set_wall(right.plus(secs(800 * DAY)));
    held.is_suspect("set");
    held.rig.post("/v1/clock/confirm", &Value::Null).is(200);
    until("it is believed", || held.rig.get("/v1/clock")["doubt"].is_null());
    held.rig.post("/v1/clock/confirm", &Value::Null).is(409);
    let after = held.kept();
    for wait in ["confirmations", "leases", "dead letters", "holds"] {
        assert_eq!(after[wait], before[wait], "{wait}");
    }
    assert_eq!(held.answers().0, Some("true".to_owned()), "a key lives as long as was said");
    held.all_ends();
}

/// A box starts with a clock far from the last time that its file knows.
#[test]
fn a_start_with_a_wrong_clock_ends_nothing() {
    let mut held = Box::new();
    held.rig.time.set_synchronised(false);
    let right = held.rig.now();
    // Leases end at a start by themselves.
    let mut before = held.kept();
    before.remove("leases");
    for (doubt, wall) in [
        ("too_early", Timestamp::from_secs(31_536_000)),
        ("ahead", right.plus(secs(240 * DAY))),
        ("behind", right.minus(secs(DAY))),
        ("ahead", right.plus(secs(8 * DAY))),
    ] {
        held.rig.stop();
        held.rig.time.set_wall(wall);
        held.rig.start_again();
        held.is_suspect(doubt);
        held.chores_run();
        let mut kept = held.kept();
        kept.remove("leases");
        assert_eq!(kept, before, "{wall}");
        assert_eq!(held.answers(), (Some("true".to_owned()), 200), "{wall}");
    }
    // A time service sets it right.
    held.rig.time.set_wall(right.plus(secs(800 * DAY)));
    held.rig.time.set_synchronised(true);
    until("it is believed", || held.rig.get("/v1/clock")["doubt"].is_null());
    held.all_ends();
}

/// A secret that is replaced under a wrong clock is valid for its overlap, not until that clock's time comes.
#[test]
fn the_overlap_of_a_secret_keeps_its_length_when_the_clock_is_set_right() {
    let ahead = |right: Timestamp| right.plus(secs(240 * DAY));
    let mut held = Box::new();
    let right = held.rig.now();
    held.rig.time.set_synchronised(false);
    held.rig.time.set_wall(ahead(right));
    held.is_suspect("set");
    old_secret_ends(&held, right);

    for (doubt, wall) in [("ahead", ahead(right)), ("too_early", Timestamp::from_secs(31_536_000))]
    {
        let right = held.rig.now();
        held.rig.stop();
        held.rig.time.set_synchronised(false);
        held.rig.time.set_wall(wall);
        held.rig.start_again();
        held.is_suspect(doubt);
        old_secret_ends(&held, right);
    }
}

/// Replaces the secret of a new provider; then a time service sets the clock right, and the old secret is valid for half an
/// hour.
fn old_secret_ends(held: &Box, right: Timestamp) {
    let rig = &held.rig;
    let name = format!("provider-{}", rig.one("SELECT count(*) FROM providers"));
    rig.token_provider(&name, SECRET);
    let next = json!({ "secret": "another-secret-of-32-characters-", "overlap": "30min" });
    let old = rig.one(&format!(
        "SELECT c.id FROM credentials AS c, providers AS p WHERE c.provider_seq = p.seq AND p.name = '{name}'"
    ));
    rig.post(&format!("/v1/credentials/{old}/rotate"), &next).is(201);
    let path = format!("/in/{name}");
    let hook = || rig.send("POST", &path, &[("X-Token", SECRET)], b"hook").status;
    assert_eq!(hook(), 200);
    rig.time.set_wall(right.plus(secs(400)));
    rig.time.set_synchronised(true);
    until("it is believed", || rig.get("/v1/clock")["doubt"].is_null());
    assert_eq!(hook(), 200);
    rig.advance(secs(HOUR));
    until("the old secret is refused", || hook() == 401);
}

/// The clock of a running box is set, and is believed only after a restart.
#[test]
fn waits_keep_their_length_where_a_start_believes_the_clock() {
    let mut held = Box::new();
    held.rig.time.set_synchronised(false);
    let right = held.rig.now();
    let mut before = held.kept();
    // Leases end at a start by themselves.
    before.remove("leases");
    held.rig.time.set_wall(right.plus(secs(200 * DAY)));
    held.is_suspect("set");
    held.rig.stop();
    held.rig.time.advance(secs(300));
    held.rig.time.set_synchronised(true);
    held.rig.start_again();
    until("it is believed", || held.rig.get("/v1/clock")["doubt"].is_null());
    assert!(held.rig.now() > right.plus(secs(199 * DAY)));
    assert_eq!(held.answers().0, Some("true".to_owned()), "a key lives as long as was said");
    let after = held.kept();
    for wait in ["confirmations", "dead letters", "holds", "idempotency keys"] {
        assert_eq!(after[wait], before[wait], "{wait}");
    }
    held.chores_run();
    held.rig.says("SELECT count(*) FROM deliveries WHERE state = 'dead_letter'", "0");
    assert_eq!(held.answers().0, Some("true".to_owned()));
}

/// A person's word is kept, also if the service ends before it could follow.
#[test]
fn a_confirmed_clock_is_believed_after_a_restart() {
    let mut held = Box::new();
    held.rig.time.set_synchronised(false);
    held.rig.time.set_wall(held.rig.now().plus(secs(200 * DAY)));
    held.is_suspect("set");
    held.rig.post("/v1/clock/confirm", &Value::Null).is(200);
    held.rig.stop();
    held.rig.start_again();
    until("it is believed", || held.rig.get("/v1/clock")["doubt"].is_null());
    assert_eq!(held.answers().0, Some("true".to_owned()));
}

/// The disk refuses while the file is to follow the clock: nothing has moved, and it is done later, once.
#[test]
fn a_clock_that_the_file_could_not_follow_is_followed_later() {
    let faults = Faults::stalling();
    let held = Box::with_faults(faults.clone());
    let before = held.kept();
    let ends = "SELECT max(coalesce(confirm_until, lease_until)) FROM deliveries WHERE state IN ('waiting', 'leased')";
    let end: i64 = held.rig.one(ends).parse().unwrap();
    let believed = held.rig.get("/v1/clock")["believed"].clone();
    faults.fail(Some(Step::Commit));
    held.rig.time.set_wall(held.rig.now().plus(secs(HOUR)));
    until("a look has failed", || faults.failed() > 3);
    assert_eq!(held.rig.get("/v1/clock")["believed"], believed);
    assert_eq!(held.rig.one(ends), end.to_string());
    faults.fail(None);
    until("the file follows", || held.rig.get("/v1/clock")["believed"] != believed);
    held.chores_run();
    assert_eq!(held.rig.one(ends), (end + 3_600_000).to_string());
    let after = held.kept();
    for wait in ["confirmations", "leases", "dead letters", "holds", "idempotency keys"] {
        assert_eq!(after[wait], before[wait], "{wait}");
    }
}

/// A clock that was ahead, and believed, goes back: what is done each hour goes on.
#[test]
fn duties_and_backups_go_on_after_the_clock_went_back() {
    let rig = Rig::with(|settings| settings.backup.every = Some(secs(HOUR)));
    let backups = || retention::list(&rig.data().join("backups")).unwrap_or_default().len();
    until("the first is made", || backups() == 1);
    let right = rig.now();
    rig.time.set_wall(right.plus(secs(200 * DAY)));
    let is_at = |wanted: Timestamp| rig.get("/v1/clock")["believed"] == wanted.to_string();
    until("it is believed", || is_at(right.plus(secs(200 * DAY))));
    rig.passing("another is made", secs(HOUR), || backups() >= 2);
    let ahead = rig.now();
    let made = backups();
    rig.time.set_wall(right.plus(secs(DAY)));
    until("it is believed", || is_at(right.plus(secs(DAY))));
    rig.passing("another is made", secs(HOUR), || backups() > made);
    let done =
        format!("SELECT count(*) FROM chores WHERE done_at < {}", ahead.minus(secs(DAY)).ms());
    rig.passing("each duty is done again", secs(2 * HOUR), || rig.one(&done) == "6");
}

#[test]
fn what_waits_behind_others_waits_its_limit_after_the_clock_was_set_right() {
    let held = Box::new();
    let dead = "SELECT count(*) FROM deliveries WHERE state = 'dead_letter'";
    // The chore knows since when they wait.
    held.chores_run();
    // A time service sets the clock an hour ahead.
    held.rig.time.set_wall(held.rig.now().plus(secs(HOUR)));
    held.chores_run();
    held.rig.says(dead, "0");
    held.rig.says("SELECT count(*) FROM deliveries WHERE state = 'waiting'", "1");
    // Twice 30 minutes at most, and before the first one is tried again.
    for _ in 0..8 {
        held.rig.advance(secs(300));
        held.chores_run();
    }
    held.rig.says(dead, "2");
}

#[test]
fn a_box_that_is_restarted_every_day_deletes_what_is_old() {
    let mut held = Box::new();
    let is_over = |held: &Box| {
        let kept = held.kept();
        let keys = kept["keys of archived events"] == "0";
        kept["months"].is_empty() && keys && kept["guards"] == "0"
    };
    // The keys of a month go a day after its file.
    for _ in 0..4 {
        held.rig.stop();
        held.rig.time.advance(secs(20 * HOUR));
        held.rig.start_again();
        held.chores_run();
        if is_over(&held) {
            return;
        }
    }
    panic!("something stays: {:?}", held.kept());
}

#[test]
fn a_suspect_clock_and_a_late_duty_are_shown() {
    let rig = Rig::new();
    let is_done = |duty: &Value| duty["done_at"].is_string();
    until("the duties were done", || {
        rig.get("/v1/clock")["duties"].as_array().unwrap().iter().all(is_done)
    });
    let metrics = || {
        let body = rig.call("GET", "/metrics", b"").is(200).message.body;
        String::from_utf8(body).unwrap()
    };
    assert!(metrics().contains("oncebox_clock_suspect 0"));
    assert!(metrics().contains("oncebox_duty_overdue_seconds{duty=\"delete-months\"} 0"));
    rig.time.set_synchronised(false);
    rig.time.set_wall(rig.now().plus(secs(200 * DAY)));
    until("the clock is suspect", || metrics().contains("oncebox_clock_suspect 1"));
    // It is set again and again, so that it never agrees with itself for a day.
    for _ in 0..3 {
        rig.advance(secs(23 * HOUR));
        rig.time.set_wall(rig.now().plus(secs(HOUR)));
        let since = rig.now().minus(secs(60)).ms();
        until("that is seen", || {
            let agrees = rig.lines("SELECT value FROM meta WHERE key = 'clock_agrees_since'");
            agrees.first().is_some_and(|at| at.parse::<i64>().unwrap() >= since)
        });
    }
    let late = rig.get("/v1/clock");
    assert_eq!(late["duties"][0]["is_late"], true, "{late}");
    assert!(metrics().contains("oncebox_duty_overdue_seconds{duty=\"delete-months\"} 162000"));
    let ready = rig.send("GET", "/readyz?verbose", &[], b"").is(200).json().to_string();
    shows(&ready, &["oncebox clock confirm", "late by more than a day: archive-events"]);
}
