//! Sources that mark what they have read, over kills, restores and outages.

use crate::databases::erp::{
    Session, are_stored_once, erps, fact, oncebox, source, stored, trouble, until_stored,
    write_beside,
};
use crate::databases::process::prelude::*;
use oncebox::databases::product::Product;

#[test]
fn kills_beside_four_writers_lose_no_row_and_double_none() {
    for erp in erps("mark") {
        let (home, mut process) = erp.read("mark");
        let (committed, last) = write_beside(&erp, || {
            for n in 0..number("ONCEBOX_KILLS", 5) {
                let before = stored(home.path()).len();
                until("it reads", || {
                    stored(home.path()).len() > before || source(&process)["lag"] == 0
                });
                thread::sleep(ms(n * 37 % 90));
                process = process.killed(home.path());
            }
            process
        });
        until_stored(home.path(), committed.len());
        until("all is marked", || erp.unmarked() == "0");
        are_stored_once(home.path(), &committed);
        last.stop();
        file::check(&home.path().join("data/oncebox.db"));
    }
}

/// As numbers, not as texts: 10 comes after 9.
#[test]
fn rows_come_in_the_order_of_their_ids() {
    for erp in erps("mark") {
        let all = 0..1_200;
        erp.facts(all.clone());
        let (home, process) = erp.read("mark");
        until_stored(home.path(), all.len());
        let names: Vec<String> = all.map(|n| n.to_string()).collect();
        assert_eq!(stored(home.path()), names);
        process.stop();
    }
}

/// More rows than a turn stores, which are read while others are stored.
#[test]
fn a_backlog_over_kills_is_read_once_and_with_it_a_low_id_that_is_committed_late() {
    for erp in erps("mark") {
        let mut late = Session::open(&erp.client());
        late.say("BEGIN;");
        late.say(&fact("late"));
        let mut count = 0;
        until("the late one has an id below the last one", || {
            erp.facts(count..=count);
            count += 1;
            let rows = erp.run("SELECT max(id) - count(*) FROM outbox");
            rows.parse::<u64>().unwrap() > 0
        });
        erp.facts(count..count + 6_000);
        let (home, mut process) = erp.read("mark");
        for _ in 0..3 {
            let before = stored(home.path()).len();
            until("it reads", || stored(home.path()).len() > before);
            process = process.killed(home.path());
        }
        late.say("COMMIT;");
        late.close();
        let mut facts: BTreeSet<String> = (0..count + 6_000).map(|n| n.to_string()).collect();
        facts.insert("late".to_owned());
        until_stored(home.path(), facts.len());
        until("all is marked", || erp.unmarked() == "0");
        are_stored_once(home.path(), &facts);
        process.stop();
    }
}

/// `PostgreSQL` counts the entries of the index that were looked at. Its statistics do not know yet that there is a backlog.
/// A read that sorts all rows that wait looks at eleven entries for each row of this one, a read in order at three.
#[test]
fn a_backlog_is_not_looked_at_again_for_each_read() {
    for erp in erps("mark").into_iter().filter(|erp| erp.product() == Product::Postgresql) {
        let rows = 8_000;
        erp.run("ALTER TABLE outbox SET (autovacuum_enabled = off)");
        erp.facts(0..rows);
        let (home, process) = erp.read("mark");
        until_stored(home.path(), rows);
        until("all is marked", || erp.unmarked() == "0");
        process.stop();
        let looked_at = || -> usize {
            let sql = "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'outbox_waiting'";
            erp.run(sql).parse().unwrap()
        };
        until("it has counted", || looked_at() >= rows);
        assert!(looked_at() < 5 * rows, "{}", looked_at());
    }
}

#[test]
fn a_row_that_cannot_be_used_is_quarantined_with_its_reason_and_marked() {
    for erp in erps("mark") {
        for n in 0..50 {
            erp.run(&match n {
                7 => {
                    "INSERT INTO outbox (event_type, payload) VALUES ('fact', 'no json')".to_owned()
                }
                20 => "INSERT INTO outbox (payload) VALUES ('{}')".to_owned(),
                _ => fact(&n.to_string()),
            });
        }
        let (home, process) = erp.read("mark");
        until_stored(home.path(), 48);
        until("all is marked", || erp.unmarked() == "0");
        let conn = file::open(&home.path().join("data/oncebox.db"));
        let sql = "SELECT last_error FROM outbox WHERE status = 'quarantined'";
        let reasons = file::lines(&conn, sql);
        assert_eq!(reasons.len(), 2, "{reasons:?}");
        let reasons = reasons.join(" ");
        assert!(
            reasons.contains("payload is not JSON") && reasons.contains("event_type is missing"),
            "{reasons}"
        );
        process.stop();
    }
}

#[test]
fn texts_come_as_they_are_byte_for_byte_and_times_as_they_were_meant() {
    for erp in erps("mark") {
        let text = "Größe € Ω 😀";
        erp.run(&format!(
            "INSERT INTO outbox (event_type, payload, aggregate_id, occurred_at)
             VALUES ('fact', '{{ \"name\" : \"{text}\" }}', '{text}', '2026-01-31 12:00:00.123')"
        ));
        let (home, process) = erp.read("mark");
        until_stored(home.path(), 1);
        let conn = file::open(&home.path().join("data/oncebox.db"));
        let row = "SELECT CAST(payload AS TEXT), aggregate_id, occurred_at FROM outbox";
        let wanted = format!("{{ \"name\" : \"{text}\" }} {text} 1769860800123");
        assert_eq!(file::lines(&conn, row), [wanted]);
        process.stop();
    }
}

#[test]
fn a_database_that_is_away_is_said_and_read_again_when_it_is_back() {
    for mut erp in erps("mark") {
        let (home, process) = erp.read("mark");
        erp.facts(0..3);
        until_stored(home.path(), 3);
        erp.stop();
        trouble(&process, "");
        until("it is escalated", || {
            let listed = process.call("GET", "/v1/escalations", &Value::Null).json().to_string();
            listed.contains("source.failing")
        });
        erp.start_again();
        erp.facts(3..6);
        until_stored(home.path(), 6);
        until("it has no error", || source(&process)["last_error"].is_null());
        process.stop();
    }
}

#[test]
fn missing_rights_are_named_as_the_lines_that_give_them() {
    for erp in erps("mark") {
        erp.revoke_update();
        erp.facts(0..3);
        let (home, process) = erp.read("mark");
        until_stored(home.path(), 3);
        let why = trouble(&process, "oncebox source test");
        assert!(why.contains("denied"), "{why}");
        let test = process.call("GET", "/v1/sources/erp/test", &Value::Null).json();
        assert_eq!(test["ok"], false);
        let said = test.to_string();
        let grant =
            said.split("GRANT").nth(1).unwrap().split(';').next().unwrap().replace("\\\"", "\"");
        erp.run(&format!("GRANT{grant}"));
        until("all is marked", || erp.unmarked() == "0");
        assert_eq!(process.call("GET", "/v1/sources/erp/test", &Value::Null).json()["ok"], true);
        assert_eq!(stored(home.path()).len(), 3);
        process.stop();
    }
}

#[test]
fn a_source_stops_after_a_restore_of_the_box_until_it_is_reopened() {
    for erp in erps("mark") {
        let (home, process) = erp.read("mark");
        erp.facts(0..40);
        until_stored(home.path(), 40);
        until("all is marked", || erp.unmarked() == "0");
        let backup = home.path().join("backup.db");
        let backup = backup.to_str().unwrap();
        oncebox(home.path(), &["backup", backup]);
        // More than are marked in one transaction.
        erp.facts(40..1_500);
        until_stored(home.path(), 1_500);
        until("all is marked", || erp.unmarked() == "0");
        process.stop();
        oncebox(home.path(), &["restore", backup, "--force"]);
        let process = Process::start(home.path());
        let why = trouble(&process, "oncebox source reopen erp --since");
        assert!(why.contains("restored from a backup"), "{why}");
        erp.facts(1_500..1_510);
        thread::sleep(ms(1_000));
        assert_eq!(stored(home.path()).len(), 40, "nothing is read");
        let since = Timestamp::from(std::time::SystemTime::now()).minus(secs(60));
        oncebox(home.path(), &["source", "reopen", "erp", "--since", &since.to_string()]);
        until_stored(home.path(), 1_510);
        until("all is marked", || erp.unmarked() == "0");
        are_stored_once(home.path(), &(0..1_510).map(|n| n.to_string()).collect());
        process.stop();
    }
}

#[test]
fn a_restored_erp_gives_ids_again_and_no_fact_is_lost_or_doubled() {
    for erp in erps("mark") {
        let (home, process) = erp.read("mark");
        erp.facts(0..30);
        until_stored(home.path(), 30);
        until("all is marked", || erp.unmarked() == "0");
        // As of before the marks: the keys are those of then. Then the ids go on from there.
        erp.run("UPDATE outbox SET taken_at = NULL; DELETE FROM outbox WHERE id > 20");
        erp.give_ids_from(21);
        erp.facts(50..60);
        until_stored(home.path(), 40);
        until("all is marked", || erp.unmarked() == "0");
        are_stored_once(home.path(), &(0..30).chain(50..60).map(|n| n.to_string()).collect());
        process.stop();
    }
}

#[test]
fn a_table_that_cannot_be_an_outbox_is_refused_by_name() {
    for erp in erps("mark") {
        let (_home, process) = erp.read("mark");
        for (settings, words) in [
            (json!({ "database": "erp", "table": "nowhere" }), "no table \"nowhere\""),
            (json!({ "database": "erp", "id": "number" }), "no column \"number\""),
            (json!({ "database": "erp", "columns": { "target": "site" } }), "no column \"site\""),
            (json!({ "database": "erp", "mode": "claim" }), "no column taken_by"),
        ] {
            let body = json!({ "name": "other", "kind": "database", "settings": settings });
            process.call("POST", "/v1/sources", &body).is(201);
            let test = process.call("GET", "/v1/sources/other/test", &Value::Null).json();
            assert_eq!(test["ok"], false);
            let said = test.to_string().replace("\\\"", "\"");
            assert!(said.contains(words), "{words}: {said}");
            process.call("DELETE", "/v1/sources/other", &Value::Null).is(204);
        }
        let unknown =
            json!({ "name": "other", "kind": "database", "settings": { "database": "nowhere" } });
        process.call("POST", "/v1/sources", &unknown).is(422);
        process.stop();
    }
}
