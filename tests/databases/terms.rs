//! Targets in a database under the terms that every subscription has: order, confirmation, pauses, replays, restores, webhooks.

use oncebox::databases::product::Product;

use crate::databases::erp::{Erp, erps, oncebox};
use crate::databases::process::prelude::*;
use crate::databases::stock::{STOCK, pieces, publish, said, set_up, states, taking};

/// Notes which event came, of which article. The fifth of an article is refused until that is mended.
const NOTE: &str =
    "INSERT INTO arrivals (article, n) VALUES (:aggregate_id, CAST(:payload AS DECIMAL));";

/// The table of [`NOTE`].
fn arrivals(erp: &Erp) {
    let id = match erp.product() {
        Product::Postgresql => "bigint GENERATED ALWAYS AS IDENTITY",
        Product::Mariadb | Product::SqlServer => "BIGINT AUTO_INCREMENT",
    };
    erp.run(&format!(
        "CREATE TABLE arrivals (id {id} PRIMARY KEY, article VARCHAR(40), n INTEGER, CONSTRAINT not_four CHECK (n <> 4))"
    ));
    erp.run(match erp.product() {
        Product::Postgresql => "GRANT INSERT ON arrivals TO oncebox",
        Product::Mariadb | Product::SqlServer => "GRANT INSERT ON arrivals TO oncebox@'%'",
    });
}

/// The numbers that came, in their order: all, or those of one article.
fn came(erp: &Erp, article: &str) -> Vec<u32> {
    let rows =
        erp.run(&format!("SELECT n FROM arrivals WHERE article LIKE '{article}' ORDER BY id"));
    rows.lines().map(|n| n.parse().unwrap()).collect()
}

/// Deliveries that began before the one before them in their lane had ended.
fn overlaps(home: &Path) -> Vec<String> {
    let conn = file::open(&home.join("data/oncebox.db"));
    file::lines(
        &conn,
        "SELECT later.delivery_seq FROM attempts AS earlier
           JOIN deliveries AS e ON e.seq = earlier.delivery_seq
           JOIN deliveries AS l ON l.lane = e.lane AND l.seq > e.seq
           JOIN attempts AS later ON later.delivery_seq = l.seq
          WHERE later.started_at < earlier.finished_at",
    )
}

#[test]
fn events_of_a_lane_come_one_after_another_also_past_an_error() {
    for erp in erps("mark") {
        set_up(&erp);
        arrivals(&erp);
        let even: Vec<u32> = (0..12).step_by(2).collect();
        let odd: Vec<u32> = (1..12).step_by(2).collect();
        // Whether the other article goes on while the first one is stopped.
        for (ordering, goes_on) in [("strict", false), ("key", true)] {
            erp.run("DELETE FROM arrivals; DELETE FROM processed_events");
            let home = tempfile::tempdir().unwrap();
            erp.settings(home.path(), "");
            let process = Process::start(home.path());
            let effect = home.path().join("note.sql");
            fs::write(&effect, NOTE).unwrap();
            let effect = effect.to_str().unwrap();
            let create = ["subscription", "create", "notes", "--database", "erp", "--effect-file"];
            oncebox(home.path(), &[&create, [effect, "--ordering", ordering].as_slice()].concat());
            process.call("POST", "/v1/subscriptions/notes/pause", &Value::Null).is(200);
            for n in 0..12 {
                let article = if n % 2 == 0 { "a" } else { "b" };
                process.post(
                    "/v1/events",
                    &json!({ "event_type": "noted", "payload": n, "aggregate_type": "article", "aggregate_id": article }),
                );
            }
            process.call("POST", "/v1/subscriptions/notes/resume", &Value::Null).is(200);
            let stopped = if goes_on {
                "completed 8, dead_letter 1, pending 3"
            } else {
                "completed 4, dead_letter 1, pending 7"
            };
            until("the first lane is stopped", || states(home.path()) == stopped);
            assert_eq!(came(&erp, "a"), [0, 2], "{ordering}");
            assert_eq!(
                came(&erp, "b"),
                if goes_on { odd.as_slice() } else { &[1, 3] },
                "{ordering}"
            );
            erp.run("ALTER TABLE arrivals DROP CONSTRAINT not_four");
            process.call("POST", "/v1/deliveries/dlv_5/retry", &Value::Null).is(200);
            until("all is done", || states(home.path()) == "completed 12");
            assert_eq!(came(&erp, "a"), even, "{ordering}");
            assert_eq!(came(&erp, "b"), odd, "{ordering}");
            if !goes_on {
                assert_eq!(came(&erp, "%"), (0..12).collect::<Vec<_>>());
            }
            assert_eq!(overlaps(home.path()), [""; 0], "{ordering}");
            process.stop();
            erp.run("DELETE FROM arrivals");
            erp.run("ALTER TABLE arrivals ADD CONSTRAINT not_four CHECK (n <> 4)");
        }
    }
}

#[test]
fn an_effect_waits_for_its_confirmation_and_a_failed_one_repeats_no_effect() {
    for erp in erps("mark") {
        set_up(&erp);
        let (home, process) = taking(&erp, &["--confirm-within", "1h", "--ordering", "strict"]);
        publish(&process, "a");
        publish(&process, "a");
        until("the first one waits", || states(home.path()) == "pending 1, waiting 1");
        assert_eq!(pieces(&erp, "a"), STOCK - 1);
        let confirm = |delivery: &str, body: &Value| {
            process.call("POST", &format!("/v1/deliveries/{delivery}/confirm"), body).is(200);
        };
        confirm("dlv_1", &json!({ "result": "failed", "reason": "not booked" }));
        until("it waits again", || {
            said(home.path()).len() == 3 && states(home.path()) == "pending 1, waiting 1"
        });
        assert_eq!(
            said(home.path()),
            ["success: 1 row", "transient: not booked", "success: already done"]
        );
        assert_eq!(pieces(&erp, "a"), STOCK - 1);
        confirm("dlv_1", &json!({ "result": "ok" }));
        until("the next one waits", || states(home.path()) == "completed 1, waiting 1");
        assert_eq!(pieces(&erp, "a"), STOCK - 2);
        confirm("dlv_2", &json!({ "result": "ok" }));
        until("both are done", || states(home.path()) == "completed 2");
        process.stop();
    }
}

#[test]
fn nothing_is_written_while_a_subscription_is_paused_or_held() {
    for erp in erps("mark") {
        set_up(&erp);
        let (home, process) = taking(&erp, &[]);
        let user = match erp.product() {
            Product::Postgresql => "oncebox",
            Product::Mariadb | Product::SqlServer => "oncebox@'%'",
        };
        let ask = |verb: &str| {
            process.call("POST", &format!("/v1/subscriptions/stock/{verb}"), &Value::Null).is(200);
        };
        let reasons = || {
            let shown = process.call("GET", "/v1/subscriptions/stock", &Value::Null).json();
            let holds = shown["holds"].as_array().cloned().unwrap_or_default();
            holds.iter().map(|hold| text(hold, "reason")).collect::<Vec<_>>()
        };
        let mut published = 0;
        for reason in ["paused", "auth"] {
            if reason == "paused" {
                ask("pause");
            } else {
                erp.run(&format!("REVOKE UPDATE ON stock FROM {user}"));
            }
            for _ in 0..5 {
                publish(&process, "a");
            }
            until(reason, || reasons() == [reason]);
            assert_eq!(pieces(&erp, "a"), STOCK - published, "{reason}");
            published += 5;
            if reason == "auth" {
                erp.run(&format!("GRANT UPDATE ON stock TO {user}"));
            }
            ask("resume");
            until("all is done", || states(home.path()) == format!("completed {published}"));
            assert_eq!(pieces(&erp, "a"), STOCK - published, "{reason}");
        }
        process.stop();
    }
}

/// The box forgets what it did after the backup: what it sends again, and what is published again, meets the guard.
#[test]
fn a_box_that_is_restored_from_a_backup_repeats_no_effect() {
    for erp in erps("mark") {
        set_up(&erp);
        let (home, process) = taking(&erp, &[]);
        let publish = |process: &Process, n: u32| {
            process.call(
                "POST",
                "/v1/events",
                &json!({ "event_type": "taken", "payload": n, "aggregate_type": "article", "aggregate_id": "a",
                         "idempotency_key": format!("order-{n}") }),
            );
        };
        process.call("POST", "/v1/subscriptions/stock/pause", &Value::Null).is(200);
        (0..10).for_each(|n| publish(&process, n));
        let backup = home.path().join("backup.db");
        let backup = backup.to_str().unwrap();
        oncebox(home.path(), &["backup", backup]);
        process.call("POST", "/v1/subscriptions/stock/resume", &Value::Null).is(200);
        (10..20).for_each(|n| publish(&process, n));
        until("all is done", || states(home.path()) == "completed 20");
        process.stop();

        oncebox(home.path(), &["restore", backup, "--force"]);
        let process = Process::start(home.path());
        assert_eq!(states(home.path()), "in_doubt 10");
        oncebox(home.path(), &["in-doubt", "end"]);
        oncebox(home.path(), &["in-doubt", "release", "--all", "--yes"]);
        process.call("POST", "/v1/subscriptions/stock/resume", &Value::Null).is(200);
        (10..25).for_each(|n| publish(&process, n));
        until("all is done", || states(home.path()) == "completed 25");
        assert_eq!(pieces(&erp, "a"), STOCK - 25);
        let said = said(home.path());
        let repeated = said.iter().filter(|said| *said == "success: already done").count();
        assert_eq!(repeated, 20, "{said:?}");
        process.stop();
    }
}

/// The ERP forgets what happened after its backup, guards and effects alike: a replay does what is missing and nothing twice.
#[test]
fn a_replay_gives_a_restored_erp_what_it_lost_and_nothing_twice() {
    for erp in erps("mark") {
        set_up(&erp);
        let (home, process) = taking(&erp, &[]);
        (0..6).for_each(|_| publish(&process, "a"));
        until("the first are done", || states(home.path()) == "completed 6");
        erp.run("CREATE TABLE kept_stock AS SELECT * FROM stock; CREATE TABLE kept_events AS SELECT * FROM processed_events");
        (0..4).for_each(|_| publish(&process, "a"));
        until("all are done", || states(home.path()) == "completed 10");
        // Both tables as of one moment, as a backup has them.
        erp.run(
            "DELETE FROM stock; INSERT INTO stock SELECT * FROM kept_stock;
             DELETE FROM processed_events; INSERT INTO processed_events SELECT * FROM kept_events",
        );
        assert_eq!(pieces(&erp, "a"), STOCK - 6);
        let since = Timestamp::from(std::time::SystemTime::now()).minus(secs(3_600)).to_string();
        oncebox(home.path(), &["event", "replay", "--since", &since, "--yes"]);
        until("all are sent again", || said(home.path()).len() == 20);
        until("all are done", || states(home.path()) == "completed 10");
        assert_eq!(pieces(&erp, "a"), STOCK - 10);
        let said = said(home.path());
        let again = said[10..].iter().filter(|said| *said == "success: already done").count();
        assert_eq!(again, 6, "{said:?}");
        process.stop();
    }
}

#[test]
fn a_webhook_that_comes_twice_takes_effect_once() {
    const SECRET: &str = "a-shared-secret-of-32-characters";
    for erp in erps("mark") {
        set_up(&erp);
        let home = tempfile::tempdir().unwrap();
        erp.settings(home.path(), "");
        let process = Process::start(home.path());
        let provider = json!({ "name": "shop", "scheme": { "kind": "github" }, "pii": "allow", "secret": SECRET });
        process.post("/v1/providers", &provider);
        let source = ["--source", "provider:shop", "--database", "erp", "--inbox", "oncebox_inbox"];
        oncebox(home.path(), &[["subscription", "create", "in"].as_slice(), &source].concat());
        let send = |id: &str| {
            let body = format!("{{\"order\":\"{id}\"}}");
            let signature = http::github(SECRET, body.as_bytes());
            let fields = [
                ("X-Hub-Signature-256", signature.as_str()),
                ("X-GitHub-Delivery", id),
                ("X-GitHub-Event", "push"),
                ("Content-Type", "application/json"),
            ];
            http::send(process.address, "POST", "/in/shop", &fields, body.as_bytes())
                .unwrap()
                .is(200);
        };
        ["1", "2", "1", "3"].into_iter().for_each(send);
        until("all is done", || states(home.path()) == "completed 3");
        assert_eq!(
            erp.run("SELECT payload FROM oncebox_inbox ORDER BY payload"),
            "{\"order\":\"1\"}\n{\"order\":\"2\"}\n{\"order\":\"3\"}"
        );
        let ids = file::lines(
            &file::open(&home.path().join("data/oncebox.db")),
            "SELECT id FROM webhook_events ORDER BY seq LIMIT 1",
        );
        process.call("POST", &format!("/v1/webhook-events/{}/replay", ids[0]), &Value::Null);
        until("it is sent again", || said(home.path()).len() == 4);
        assert_eq!(said(home.path())[3], "success: already done");
        assert_eq!(erp.run("SELECT count(*) FROM oncebox_inbox"), "3");
        process.stop();
    }
}
