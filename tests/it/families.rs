//! Parent and child: what a parent's status says of its children, and which parents are refused.

use oncebox::outbox::{self, Binding, Event};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::rig::prelude::*;

/// An Oncebox whose events of the type `a` wait for a consumer.
fn pulling() -> Rig {
    let rig = Rig::new();
    let body = json!({ "name": "erp", "target": "pull", "event_types": ["a"] });
    rig.post("/v1/subscriptions", &body).is(201);
    rig
}

fn event(key: &str, parent: Option<(&str, &str)>) -> Value {
    let event_type = if key.starts_with("nobody") { "b" } else { "a" };
    let mut event = json!({ "event_type": event_type, "idempotency_key": key, "payload": key });
    if let Some((parent, binding)) = parent {
        event["parent_key"] = parent.into();
        event["parent_binding"] = binding.into();
    }
    event
}

fn publish(rig: &Rig, key: &str, parent: Option<(&str, &str)>) {
    rig.post("/v1/events", &event(key, parent)).is(201);
}

fn of_key(rig: &Rig, key: &str) -> Value {
    let key = key.replace(' ', "%20");
    rig.get(&format!("/v1/events?idempotency_key={key}"))["items"][0].clone()
}

fn status(rig: &Rig, key: &str) -> String {
    of_key(rig, key)["status"].as_str().unwrap().to_owned()
}

/// The consumer takes everything that waits.
fn lease(rig: &Rig) -> Vec<Value> {
    rig.items("/v1/consumers/erp/next?max=100")
}

/// The consumer says what became of an event that it has leased.
fn say(rig: &Rig, leased: &[Value], key: &str, is_ok: bool) {
    let item = leased.iter().find(|item| item["payload"] == key).unwrap();
    let mut word = json!({ "delivery": item["delivery"], "lease": item["lease"] });
    if !is_ok {
        word["dead"] = true.into();
    }
    let path = format!("/v1/consumers/erp/{}", if is_ok { "ack" } else { "nack" });
    let answer = rig.post(&path, &json!({ "items": [word] })).is(200);
    assert_eq!(answer.json()["items"][0]["status"], 200, "{answer:?}");
}

fn replay(rig: &Rig, key: &str) {
    let id = of_key(rig, key)["id"].as_str().unwrap().to_owned();
    rig.post(&format!("/v1/events/{id}/replay"), &json!({})).is(200);
}

fn routed(rig: &Rig) {
    rig.becomes("SELECT count(*) FROM outbox WHERE routed_at IS NULL", "0");
}

#[test]
fn a_parent_completes_when_its_hard_children_have() {
    let mut rig = pulling();
    let hard = Some(("order", "hard"));
    let mut family = [event("order", None), event("line1", hard), event("line2", hard)];
    for member in &mut family {
        member["process_id"] = "p 1".into();
    }
    rig.post("/v1/events", &json!(family)).is(201);
    publish(&rig, "note", Some(("order", "soft")));
    let leased = lease(&rig);
    for key in ["order", "line1"] {
        say(&rig, &leased, key, true);
    }
    let order = of_key(&rig, "order");
    has(
        &order,
        &json!({
            "status": "processing", "hard_children": 2, "waits_for_children": true,
            "completed_at": null,
        }),
    );
    rig.restart();
    let id = order["id"].as_str().unwrap();
    let children = rig.get(&format!("/v1/events?parent_id={id}"));
    let children = children["items"].as_array().unwrap();
    let bindings: Vec<_> = children.iter().map(|child| child["parent_binding"].clone()).collect();
    assert_eq!(bindings, ["soft", "hard", "hard"]);
    assert!(children.iter().all(|child| child["parent_id"] == id));
    let listed = |query: &str| rig.items(query).len();
    assert_eq!(listed("/v1/events?process_id=p%201"), 3);
    assert_eq!(listed(&format!("/v1/events?process_id=p%201&parent_id={id}&status=pending")), 0);
    assert_eq!(listed("/v1/events?parent_id=019c1447-5800-7000-8000-000000000001"), 0);
    say(&rig, &leased, "line2", true);
    let order = of_key(&rig, "order");
    has(&order, &json!({ "status": "completed", "waits_for_children": false }));
    say(&rig, &leased, "note", false);
    assert_eq!(status(&rig, "order"), "completed", "a soft child has no influence");
}

#[test]
fn a_dead_child_fails_its_ancestors_and_a_replayed_one_heals_them() {
    let rig = pulling();
    publish(&rig, "nobody wants this", None);
    publish(&rig, "parent", Some(("nobody wants this", "hard")));
    let leased = lease(&rig);
    say(&rig, &leased, "parent", true);
    assert_eq!(status(&rig, "nobody wants this"), "completed");
    publish(&rig, "child", Some(("parent", "hard")));
    let all = ["nobody wants this", "parent"];
    let statuses = |rig: &Rig| all.map(|key| status(rig, key));
    assert_eq!(statuses(&rig), ["processing"; 2], "a new child opens them again");
    say(&rig, &lease(&rig), "child", false);
    assert_eq!(statuses(&rig), ["dead_letter"; 2]);
    let child = of_key(&rig, "child")["id"].as_str().unwrap().to_owned();
    let said = of_key(&rig, "parent")["last_error"].as_str().unwrap().to_owned();
    assert_eq!(said, format!("its hard child {child} is a dead letter"));
    replay(&rig, "child");
    assert_eq!(statuses(&rig), ["processing"; 2]);
    say(&rig, &lease(&rig), "child", true);
    assert_eq!(statuses(&rig), ["completed"; 2]);
    // A child that a person cancels counts as done.
    publish(&rig, "other", Some(("parent", "hard")));
    let other = of_key(&rig, "other")["id"].as_str().unwrap().to_owned();
    rig.call("POST", &format!("/v1/events/{other}/cancel"), b"").is(200);
    assert_eq!(statuses(&rig), ["completed"; 2]);
}

#[test]
fn a_parent_that_an_event_cannot_have_is_refused_with_the_whole_request() {
    let rig = pulling();
    let refused = |event: &Value, words: &str| {
        let answer = rig.post("/v1/events", event).is(422);
        assert!(answer.detail().contains(words), "{words}: {answer:?}");
    };
    let orphan = event("child", Some(("nothing", "hard")));
    refused(&json!([event("first", None), orphan]), "publish the parent first");
    assert_eq!(rig.one("SELECT count(*) FROM outbox"), "0");
    // The parent must come first in a request.
    refused(&json!([event("child", Some(("last", "hard"))), event("last", None)]), "Event 0");
    let keyed = |body: &Value| rig.post_keyed(&rig.token, "k1", &body.to_string());
    keyed(&orphan).is(422);
    publish(&rig, "nothing", None);
    assert!(keyed(&orphan).is(201).field("idempotency-replayed").is_none());
    let token = rig.tenant("other");
    let mut of_another_tenant = event("theirs", None);
    of_another_tenant["parent_id"] = of_key(&rig, "nothing")["id"].clone();
    let answer = rig.post_as(&token, "/v1/events", &of_another_tenant);
    answer.is(422).tells("no event has that id");
    let mut bare = event("bare", None);
    bare["parent_binding"] = "hard".into();
    refused(&bare, "parent_binding needs a parent");
    of_another_tenant["parent_key"] = "nothing".into();
    refused(&of_another_tenant, "give one of them");
    // An event has 16 ancestors at most.
    publish(&rig, "depth0", None);
    for depth in 1..=16 {
        publish(&rig, &format!("depth{depth}"), Some((&format!("depth{}", depth - 1), "soft")));
    }
    refused(&event("depth17", Some(("depth16", "soft"))), "16 ancestors");
    // What is stored already stays so, even if its parent is not found under its key any more.
    assert_eq!(rig.publish(&orphan)["already_processed"], true);
}

#[test]
fn plain_sql_names_the_parent_by_its_number() {
    let rig = pulling();
    rig.tenant("other");
    let erp = rig.writable();
    erp.run(
        "BEGIN;
         INSERT INTO outbox (event_type, payload, idempotency_key) VALUES ('b', '1', 'parent');
         INSERT INTO outbox (event_type, payload, idempotency_key, parent_seq, parent_binding)
         VALUES ('a', '2', 'child', last_insert_rowid(), 'hard');
         INSERT INTO outbox (event_type, payload, idempotency_key, parent_seq, parent_binding)
         VALUES ('a', 'no json', 'bad', 1, 'hard');
         INSERT INTO outbox (event_type, payload, idempotency_key, parent_seq, parent_binding, tenant)
         VALUES ('a', '4', 'theirs', 1, 'hard', 'other');
         INSERT INTO outbox (event_type, payload, idempotency_key, parent_seq) VALUES ('b', '5', 'circle', 2);
         UPDATE outbox SET parent_seq = 5 WHERE seq = 1;
         COMMIT",
    );
    routed(&rig);
    let codes = "SELECT group_concat(idempotency_key || ' ' || error_code) FROM outbox WHERE status = 'quarantined'";
    assert_eq!(rig.one(codes), "parent parent_circle,bad bad_payload,theirs unknown_parent");
    let fix = |key: &str, repair: &Value| {
        let id = of_key(&rig, key)["id"].as_str().unwrap().to_owned();
        rig.post(&format!("/v1/events/{id}/fix"), repair)
    };
    // A repair says which parent it has, or that it has none.
    fix("parent", &json!({})).is(422).tells("give parent_id");
    fix("parent", &json!({ "parent_key": "circle" })).is(422).tells("descendants");
    fix("parent", &json!({ "parent_id": null })).is(200);
    // The children came before: it waits for the valid one and for the quarantined one.
    assert_eq!(of_key(&rig, "parent")["hard_children"], 2);
    assert_eq!(status(&rig, "parent"), "processing");
    let child = rig.get("/v1/consumers/erp/next?max=9")["items"][0].clone();
    let word = json!({ "items": [{ "delivery": child["delivery"], "lease": child["lease"] }] });
    rig.post("/v1/consumers/erp/ack", &word).is(200);
    assert_eq!(status(&rig, "parent"), "processing");
    fix("bad", &json!({ "payload": "good" })).is(200);
    assert_eq!(status(&rig, "parent"), "processing");
    say(&rig, &lease(&rig), "good", true);
    assert_eq!(status(&rig, "parent"), "completed");
}

#[test]
fn a_discarded_child_and_a_repair_that_changes_the_parent_leave_no_parent_waiting() {
    let rig = pulling();
    for key in ["nobody1", "nobody2"] {
        publish(&rig, key, None);
    }
    for key in ["one", "two"] {
        let mut child = event(key, Some(("nobody1", "hard")));
        child["target"] = "missing".into();
        assert_eq!(rig.publish(&child)["status"], "quarantined");
    }
    assert_eq!(status(&rig, "nobody1"), "processing");
    let at = |key: &str, verb: &str| {
        format!("/v1/events/{}/{verb}", of_key(&rig, key)["id"].as_str().unwrap())
    };
    rig.post(&at("one", "discard"), &json!({ "reason": "a test" })).is(200);
    assert_eq!(status(&rig, "nobody1"), "processing");
    rig.post(&at("two", "fix"), &json!({ "target": null, "parent_key": "nobody2" })).is(200);
    assert_eq!([status(&rig, "nobody1"), status(&rig, "nobody2")], ["skipped", "processing"]);
    say(&rig, &lease(&rig), "two", true);
    assert_eq!(status(&rig, "nobody2"), "completed");
}

#[test]
fn a_source_names_the_parent_by_its_key() {
    let rig = pulling();
    let path = rig.home().join("erp.db");
    let mut erp = Connection::open(&path).unwrap();
    erp.run(&format!("PRAGMA journal_mode = WAL; {}", outbox::TABLE));
    let child = |key: &str, parent: &str| {
        Event::new("a").key(key).json(&key).source_system("erp").parent_key(parent, Binding::Hard)
    };
    let tx = erp.transaction().unwrap();
    outbox::append(&tx, Event::new("b").key("order").source_system("erp")).unwrap();
    outbox::append(&tx, child("line", "order")).unwrap();
    outbox::append(&tx, child("early", "later")).unwrap();
    outbox::append(&tx, Event::new("b").key("later").source_system("erp")).unwrap();
    tx.commit().unwrap();
    rig.source("erp", "sqlite", &json!({ "path": path }));
    until("all are stored", || rig.one("SELECT count(*) FROM outbox") == "4");
    assert_eq!([status(&rig, "order"), status(&rig, "line")], ["processing", "pending"]);
    // The child came before its parent: a person says that the parent is there now.
    let early = of_key(&rig, "early");
    has(&early, &json!({ "status": "quarantined", "error_code": "unknown_parent" }));
    assert!(early["last_error"].as_str().unwrap().contains("\"later\""), "{early}");
    assert_eq!(status(&rig, "later"), "skipped");
    let path = format!("/v1/events/{}/fix", early["id"].as_str().unwrap());
    rig.post(&path, &json!({ "parent_key": "later" })).is(200);
    let early = of_key(&rig, "early");
    assert_eq!((&early["status"], &early["parent_binding"]), (&json!("pending"), &json!("hard")));
    let leased = lease(&rig);
    for (key, parent) in [("line", "order"), ("early", "later")] {
        assert_eq!(status(&rig, parent), "processing");
        say(&rig, &leased, key, true);
        assert_eq!(status(&rig, parent), "completed");
    }
}

#[test]
fn a_program_appends_a_child_after_its_parent() {
    let rig = pulling();
    let mut erp = rig.writable();
    let tx = erp.transaction().unwrap();
    let child = || Event::new("a").key("child").json(&"child").parent_key("parent", Binding::Hard);
    shows(&outbox::append(&tx, child()).unwrap_err().to_string(), &["append the parent first"]);
    outbox::append(&tx, Event::new("b").key("parent")).unwrap();
    outbox::append(&tx, child()).unwrap();
    tx.commit().unwrap();
    routed(&rig);
    assert_eq!(status(&rig, "parent"), "processing");
    say(&rig, &lease(&rig), "child", true);
    assert_eq!(status(&rig, "parent"), "completed");
}

/// A member of a family in the model.
#[derive(Clone, Debug)]
struct Member {
    parent: Option<usize>,
    is_hard: bool,
    /// The status by its own delivery; it has none if nobody wants it.
    alone: &'static str,
}

/// The status of a member, from the rule as it is told: recursively.
fn expected(family: &[Member], n: usize) -> &'static str {
    let alone = family[n].alone;
    if !["completed", "skipped"].contains(&alone) {
        return alone;
    }
    let hard = (0..family.len()).filter(|c| family[*c].parent == Some(n) && family[*c].is_hard);
    let children: Vec<_> = hard.map(|child| expected(family, child)).collect();
    let any = |status: &str| children.contains(&status);
    if any("dead_letter") {
        "dead_letter"
    } else if any("processing") {
        "processing"
    } else if any("completed") {
        "completed"
    } else {
        alone
    }
}

/// A random member: whose child, how, and whether somebody wants it.
type Draft = (usize, u8, u8);

/// A family in the product and in the model.
struct Family<'a> {
    rig: &'a Rig,
    case: u32,
    members: Vec<Member>,
    leased: BTreeMap<String, Value>,
}

impl Family<'_> {
    fn key(&self, n: usize) -> String {
        let nobody = if self.members[n].alone == "skipped" { "nobody" } else { "" };
        format!("{nobody}{}-{n}", self.case)
    }

    fn add(&mut self, (parent, binding, wanted): Draft) {
        let n = self.members.len();
        let parent = (n > 0).then(|| parent % n);
        let binding = if binding > 0 { "hard" } else { "soft" };
        let alone = if wanted > 0 { "processing" } else { "skipped" };
        self.members.push(Member { parent, is_hard: binding == "hard", alone });
        let parent = parent.map(|parent| self.key(parent));
        let mut event = event(&self.key(n), parent.as_deref().map(|key| (key, binding)));
        event["process_id"] = format!("case {}", self.case).into();
        event["custom_data"] = format!("{}-{n}", self.case).into();
        self.rig.publish(&event);
    }

    /// Something happens to a member.
    fn act(&mut self, n: usize, act: u8) {
        let (key, alone) = (self.key(n), self.members[n].alone);
        self.members[n].alone = match (alone, act) {
            ("skipped", _) => return,
            ("processing", 0 | 1) => {
                say(self.rig, &[self.leased.remove(&key).unwrap()], &key, act == 0);
                if act == 0 { "completed" } else { "dead_letter" }
            }
            ("processing", _) => {
                let id = of_key(self.rig, &key)["id"].as_str().unwrap().to_owned();
                self.rig.call("POST", &format!("/v1/events/{id}/cancel"), b"").is(200);
                "cancelled"
            }
            _ => {
                replay(self.rig, &key);
                "processing"
            }
        };
    }

    /// The consumer takes what waits, and every member has the status that the model says.
    fn check(&mut self) -> Result<(), TestCaseError> {
        for item in lease(self.rig) {
            self.leased.insert(text(&item, "payload"), item);
        }
        let path = format!("/v1/events?limit=500&process_id=case%20{}", self.case);
        for found in self.rig.get(&path)["items"].as_array().unwrap() {
            let (_, n) = found["custom_data"].as_str().unwrap().split_once('-').unwrap();
            let n: usize = n.parse().unwrap();
            let status = found["status"].as_str().unwrap();
            prop_assert_eq!(status, expected(&self.members, n), "{} of {:?}", n, self.members);
        }
        Ok(())
    }
}

#[test]
fn random_families_have_the_status_that_the_rule_tells() {
    let rig = pulling();
    let drafts = prop::collection::vec((0..100_usize, 0..4_u8, 0..4_u8), 3..10);
    let steps = prop::collection::vec((0..100_usize, 0..4_u8), 1..24);
    let mut runner = TestRunner::new(Config { cases: 24, ..Config::default() });
    let case = std::cell::Cell::new(0);
    let run = runner.run(&(drafts, steps), |(drafts, steps)| {
        case.set(case.get() + 1);
        let (members, leased) = (Vec::new(), BTreeMap::new());
        let mut family = Family { rig: &rig, case: case.get(), members, leased };
        let mut drafts = drafts.into_iter();
        drafts.by_ref().take(3).for_each(|draft| family.add(draft));
        family.check()?;
        // The rest is added while the others are worked on.
        for (pick, act) in steps {
            match if pick % 4 == 0 { drafts.next() } else { None } {
                Some(draft) => family.add(draft),
                None => family.act(pick % family.members.len(), act),
            }
            family.check()?;
        }
        Ok(())
    });
    run.unwrap();
}
