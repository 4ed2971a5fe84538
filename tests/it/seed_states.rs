//! The states that other platforms name: each query of docs/states.md finds a row that is in that state.

use crate::rig::prelude::*;

const PAGE: &str = include_str!("../../docs/states.md");

/// The names of the page's table with their queries.
fn queries() -> BTreeMap<&'static str, &'static str> {
    let row = |line: &'static str| {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [name, _, query] = cells[..] else { return None };
        Some((name, query.strip_prefix("`SELECT")?.strip_suffix('`')?))
    };
    PAGE.lines().filter_map(row).collect()
}

fn publish(rig: &Rig, event_type: &str, more: &Value) -> String {
    let event = merged(json!({ "event_type": event_type, "payload": event_type }), more);
    text(&rig.publish(&event), "id")
}

fn delivery_of(rig: &Rig, event: &str) -> String {
    let of = format!("(SELECT seq FROM outbox WHERE id = '{event}')");
    rig.one(&format!("SELECT seq FROM deliveries WHERE outbox_seq = {of}"))
}

/// What each query is to find, except for what only a stopped service leaves.
fn prepare(rig: &Rig) -> BTreeMap<&'static str, String> {
    let receiver = Receiver::new();
    receiver.decide(|request| {
        let body = String::from_utf8_lossy(&request.body).into_owned();
        Reply::status(match body.trim_matches('"') {
            "dead" => 400,
            "failing" => 500,
            _ => 200,
        })
    });
    rig.subscribe_with(
        "sent",
        &receiver,
        &json!({ "event_types": ["done", "failing", "dead", "later", "parent"] }),
    );
    for (name, ordering) in [("queue", "none"), ("lane", "strict")] {
        let body = json!({
            "name": name, "target": "pull", "event_types": [name], "ordering": ordering,
        });
        rig.post("/v1/subscriptions", &body).is(201);
    }
    let mut wanted = BTreeMap::new();
    for (name, event_type) in
        [("OK", "done"), ("PARTLY_FAILED", "failing"), ("FAILED", "dead"), ("WAITING", "parent")]
    {
        wanted.insert(name, publish(rig, event_type, &json!({})));
    }
    let later = publish(rig, "later", &json!({ "not_before": rig.now().plus(secs(3600)) }));
    rig.call("POST", &format!("/v1/deliveries/{}/cancel", delivery_of(rig, &later)), b"").is(200);
    wanted.insert("CANCEL", later);
    for (name, event_type) in [
        ("IN_QUEUE", "queue"),
        ("PROCESSING", "lane"),
        ("POSTPONED", "lane"),
        ("WAITING_FOR_RES", "queue"),
    ] {
        let event = publish(rig, event_type, &json!({}));
        wanted.insert(name, delivery_of(rig, &event));
    }
    assert_eq!(rig.items("/v1/consumers/lane/next?max=10").len(), 1);
    until("all are tried", || rig.one("SELECT count(*) FROM attempts") == "4");
    wanted
}

#[test]
fn each_query_of_the_page_finds_its_row() {
    let queries = queries();
    let mut rig = Rig::new();
    let mut wanted = prepare(&rig);
    rig.stop();
    let conn = rig.writable();
    conn.run("INSERT INTO outbox (event_type, payload) VALUES ('new', 'null')");
    let new = "SELECT id FROM outbox WHERE event_type = 'new'";
    wanted.insert("NEW", conn.query_row(new, [], |row| row.get(0)).unwrap());
    let parent = "UPDATE outbox SET status = 'processing', completed_at = NULL, hard_children = 1 WHERE id = ?1";
    assert_eq!(conn.execute(parent, [&wanted["WAITING"]]).unwrap(), 1);
    let accepted =
        "UPDATE deliveries SET state = 'waiting', due_at = NULL, confirm_until = 1 WHERE seq = ?1";
    assert_eq!(conn.execute(accepted, [&wanted["WAITING_FOR_RES"]]).unwrap(), 1);
    assert!(queries.keys().eq(wanted.keys()), "{queries:?}");
    for (name, query) in &queries {
        let found = file::lines(&conn, &format!("SELECT{query}"));
        assert!(found.contains(&wanted[name]), "{name}: SELECT{query} gives {found:?}");
        assert!(found.len() < 3, "{name}: SELECT{query} gives {found:?}");
    }
}
