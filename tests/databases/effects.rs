//! Targets: guard and effect are one transaction of the ERP's own database.

use oncebox::databases::product::Product;

use crate::databases::erp::{erps, oncebox};
use crate::databases::line::Line;
use crate::databases::process::prelude::*;
use crate::databases::stock::{
    STOCK, create_taking, pieces, publish, said, set_up, states, taking,
};

#[test]
fn each_event_takes_effect_once_over_kills() {
    for erp in erps("mark") {
        set_up(&erp);
        let (home, mut process) = taking(&erp, &[]);
        let count = 200;
        for n in 0..=number("ONCEBOX_KILLS", 4) {
            for _ in 0..count / 5 {
                publish(&process, "a");
            }
            thread::sleep(ms(n * 53 % 120));
            process = process.killed(home.path());
        }
        let published = file::lines(
            &file::open(&home.path().join("data/oncebox.db")),
            "SELECT count(*) FROM outbox",
        );
        let published: i64 = published[0].parse().unwrap();
        until("all is done", || states(home.path()) == format!("completed {published}"));
        assert_eq!(pieces(&erp, "a"), STOCK - published);
        assert_eq!(erp.run("SELECT count(*) FROM processed_events"), published.to_string());
        process.stop();
    }
}

#[test]
fn one_event_that_the_database_refuses_is_one_dead_letter() {
    for erp in erps("mark") {
        set_up(&erp);
        let (home, process) = taking(&erp, &[]);
        process.call("POST", "/v1/subscriptions/stock/pause", &Value::Null).is(200);
        for n in 0..50 {
            // The second piece of b is not there.
            publish(&process, if matches!(n, 10 | 30) { "b" } else { "a" });
        }
        process.call("POST", "/v1/subscriptions/stock/resume", &Value::Null).is(200);
        until("all is decided", || states(home.path()) == "completed 49, dead_letter 1");
        assert_eq!((pieces(&erp, "a"), pieces(&erp, "b")), (STOCK - 48, 0));
        let refused = said(home.path()).into_iter().find(|said| said.starts_with("validation"));
        let refused = refused.unwrap();
        assert!(refused.contains("check") || refused.contains("CONSTRAINT"), "{refused}");
        assert!(!refused.contains("(b, -1)"), "no data of rows: {refused}");
        process.stop();
    }
}

#[test]
fn a_replay_says_already_done_and_a_test_leaves_nothing() {
    for erp in erps("mark") {
        set_up(&erp);
        let (home, process) = taking(&erp, &[]);
        publish(&process, "a");
        until("it is done", || states(home.path()) == "completed 1");
        assert_eq!(said(home.path()), ["success: 1 row"]);
        let listed = process.call("GET", "/v1/events", &Value::Null).is(200).json();
        let id = listed["items"][0]["id"].as_str().unwrap();
        process.call("POST", &format!("/v1/events/{id}/replay"), &Value::Null);
        until("it is done again", || said(home.path()).len() == 2);
        assert_eq!(said(home.path())[1], "success: already done");
        let tested = oncebox(home.path(), &["subscription", "test", "stock"]);
        assert!(tested.contains("rolled back"), "{tested}");
        assert_eq!(pieces(&erp, "a"), STOCK - 1);
        assert_eq!(erp.run("SELECT count(*) FROM processed_events"), "1");
        process.stop();
    }
}

#[test]
fn a_database_that_is_away_costs_no_attempts_and_one_that_differs_is_a_hold_that_says_why() {
    for mut erp in erps("mark") {
        set_up(&erp);
        let (home, process) = taking(&erp, &["--max-attempts", "2"]);
        erp.stop();
        publish(&process, "a");
        until("it is tried", || said(home.path()).len() >= 2);
        let subscription =
            process.call("GET", "/v1/subscriptions/stock", &Value::Null).is(200).json();
        assert_eq!(subscription["holds"][0]["reason"], "breaker", "{subscription}");
        erp.start_again();
        until("it is done by itself", || states(home.path()) == "completed 1");
        assert_eq!(pieces(&erp, "a"), STOCK - 1);

        erp.run("ALTER TABLE stock RENAME TO stock_2");
        publish(&process, "a");
        until("it says which table", || said(home.path()).last().unwrap().contains("stock"));
        assert_eq!(states(home.path()), "completed 1, pending 1");
        erp.run("ALTER TABLE stock_2 RENAME TO stock");
        until("it goes on", || states(home.path()) == "completed 2");
        process.stop();
    }
}

#[test]
fn an_inbox_has_a_row_for_each_event_byte_for_byte() {
    for erp in erps("mark") {
        set_up(&erp);
        let home = tempfile::tempdir().unwrap();
        erp.settings(home.path(), "");
        let process = Process::start(home.path());
        let create =
            ["subscription", "create", "in", "--database", "erp", "--inbox", "oncebox_inbox"];
        oncebox(home.path(), &create);
        let text = "Größe € Ω 😀 'quoted' \\ \"too\" :payload ?";
        process.post(
            "/v1/events",
            &json!({ "event_type": "order.created", "payload": { "text": text }, "aggregate_type": "order",
                     "aggregate_id": text, "occurred_at": "2026-01-31T12:00:00.123Z" }),
        );
        until("it is done", || states(home.path()) == "completed 1");
        let row = erp.run("SELECT event_type, aggregate_type, aggregate_id, occurred_at, tenant FROM oncebox_inbox");
        for part in ["order.created", "order", "2026-01-31 12:00:00.123", "default"] {
            assert!(row.contains(part), "{part}: {row}");
        }
        let payload = erp.run(match erp.product() {
            Product::Postgresql => "SELECT encode(convert_to(payload || aggregate_id, 'UTF8'), 'hex') FROM oncebox_inbox",
            Product::Mariadb | Product::SqlServer => {
                "SELECT lower(hex(CONCAT(payload, aggregate_id))) FROM oncebox_inbox"
            }
        });
        let sent = json!({ "text": text }).to_string() + text;
        assert_eq!(payload, HEXLOWER.encode(sent.as_bytes()));
        process.stop();
    }
}

#[test]
fn what_cannot_be_used_is_refused_when_it_is_made() {
    let Some(erp) = erps("mark").into_iter().next() else { return };
    let home = tempfile::tempdir().unwrap();
    erp.settings(home.path(), "");
    let process = Process::start(home.path());
    let template = |effect: &str| json!({ "effect": effect });
    for (url, template, says) in [
        ("database:shop", template("SELECT 1"), "[databases.shop]"),
        ("database:erp", Value::Null, "needs what is done in it"),
        ("database:erp", template("DROP TABLE stock"), "begins with"),
        ("database:erp", template("UPDATE a SET b = :amount"), "there is no value :amount"),
        ("database:erp", json!({ "inbox": "a; DROP TABLE b" }), "is no table"),
        ("http://127.0.0.1:9999/", template("SELECT 1"), "of the target database"),
    ] {
        let body = json!({ "name": "s", "url": url, "template": template });
        let answer = process.call("POST", "/v1/subscriptions", &body).is(422).text();
        assert!(answer.contains(says), "{says}: {answer}");
    }
    process.stop();
}

#[test]
fn a_line_that_is_cut_at_commits_doubles_no_effect_and_loses_none() {
    let most = number("ONCEBOX_CUTS", 2);
    for erp in erps("mark") {
        set_up(&erp);
        let home = tempfile::tempdir().unwrap();
        erp.settings(home.path(), "");
        let line = Line::start(erp.port(), most);
        line.put_into(home.path());
        let process = Process::start(home.path());
        create_taking(home.path(), &[]);
        let mut published = 0_i64;
        let mut cuts = 0;
        while !line.is_done() {
            until("the line is cut again", || {
                publish(&process, "a");
                published += 1;
                line.cuts() > cuts
            });
            cuts = line.cuts();
        }
        until("all is done", || states(home.path()) == format!("completed {published}"));
        assert_eq!(line.cuts(), most);
        assert_eq!(pieces(&erp, "a"), STOCK - published);
        assert_eq!(erp.run("SELECT count(*) FROM processed_events"), published.to_string());
        let said = said(home.path());
        assert!(said.iter().any(|said| said == "success: already done"), "{said:?}");
        process.stop();
    }
}

/// `PostgreSQL` refuses a commit of a procedure within a transaction of ours. It is no fault of the event.
#[test]
fn a_procedure_that_commits_is_a_hold_until_it_no_longer_does() {
    for erp in erps("mark").into_iter().filter(|erp| erp.product() == Product::Postgresql) {
        set_up(&erp);
        let procedure = |more: &str| {
            erp.run(&format!(
                "CREATE OR REPLACE PROCEDURE take(a text) LANGUAGE plpgsql AS $$ BEGIN
                   UPDATE stock SET pieces = pieces - 1 WHERE article = a; {more} END $$"
            ));
        };
        procedure("COMMIT;");
        let home = tempfile::tempdir().unwrap();
        erp.settings(home.path(), "");
        let process = Process::start(home.path());
        let effect = home.path().join("take.sql");
        fs::write(&effect, "CALL take(:aggregate_id)").unwrap();
        let effect = effect.to_str().unwrap();
        let create =
            ["subscription", "create", "take", "--database", "erp", "--effect-file", effect];
        oncebox(home.path(), &[&create[..], &["--max-attempts", "2"]].concat());
        publish(&process, "a");
        until("it is tried more often than attempts are left", || said(home.path()).len() >= 3);
        let said = said(home.path()).remove(0);
        assert!(said.contains("invalid transaction termination (2D000); "), "{said}");
        assert!(said.contains("take COMMIT, ROLLBACK and BEGIN TRANSACTION out of it"), "{said}");
        assert_eq!((states(home.path()).as_str(), pieces(&erp, "a")), ("pending 1", STOCK));
        procedure("");
        until("it goes on by itself", || states(home.path()) == "completed 1");
        assert_eq!(pieces(&erp, "a"), STOCK - 1);
        process.stop();
    }
}
