//! `PostgreSQL` with a right to read alone: rows come in the order of their transactions.

use crate::databases::erp::{
    Session, are_stored_once, erps, fact, oncebox, source, stored, trouble, until_stored,
    write_beside,
};
use crate::databases::process::prelude::*;

#[test]
fn kills_beside_commits_out_of_order_lose_no_row_and_double_none() {
    for erp in erps("xid8") {
        let (home, mut process) = erp.read("xid8");
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
        are_stored_once(home.path(), &committed);
        let conn = file::open(&home.path().join("data/oncebox.db"));
        assert_eq!(file::lines(&conn, "SELECT sum(duplicate_count) FROM outbox"), ["0"]);
        last.stop();
        file::check(&home.path().join("data/oncebox.db"));
    }
}

/// As numbers, not as texts: 1000 comes after 999. A cursor that moved in another order would lose rows.
#[test]
fn rows_come_in_the_order_of_their_transactions() {
    for erp in erps("xid8") {
        let all = 0..1_500;
        // A transaction each.
        let facts: String = all.clone().map(|n| fact(&n.to_string())).collect();
        erp.run(&facts);
        let digits = erp.run(
            "SELECT string_agg(DISTINCT length(tx::text)::text, ' ' ORDER BY length(tx::text)::text) FROM outbox",
        );
        assert_eq!(digits, "3 4", "the test needs transactions on both sides of 1000");
        let (home, process) = erp.read("xid8");
        until_stored(home.path(), all.len());
        let names: Vec<String> = all.map(|n| n.to_string()).collect();
        assert_eq!(stored(home.path()), names);
        process.stop();
    }
}

#[test]
fn rows_wait_for_an_open_transaction_and_the_source_says_for_how_long() {
    for erp in erps("xid8") {
        let (home, process) = erp.read("xid8");
        erp.facts(0..2);
        until_stored(home.path(), 2);
        let mut open = Session::open(&erp.client());
        open.say(&format!("BEGIN; {}", fact("late")));
        until("it is open", || {
            erp.run("SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction'")
                == "1"
        });
        erp.facts(2..5);
        until("they wait", || source(&process)["lag"] == 3);
        let why = trouble(&process, "wait for a transaction");
        assert!(why.starts_with("3 rows wait") && why.contains("open for"), "{why}");
        assert_eq!(stored(home.path()).len(), 2);
        open.say("COMMIT;");
        open.close();
        until_stored(home.path(), 6);
        assert_eq!(stored(home.path())[2..], ["late", "2", "3", "4"]);
        until("it has no error", || source(&process)["last_error"].is_null());
        process.stop();
    }
}

#[test]
fn the_position_is_part_of_a_backup_and_nothing_is_to_be_decided() {
    for erp in erps("xid8") {
        let (home, process) = erp.read("xid8");
        erp.facts(0..20);
        until_stored(home.path(), 20);
        let backup = home.path().join("backup.db");
        let backup = backup.to_str().unwrap();
        oncebox(home.path(), &["backup", backup]);
        erp.facts(20..40);
        until_stored(home.path(), 40);
        process.stop();
        oncebox(home.path(), &["restore", backup, "--force"]);
        let process = Process::start(home.path());
        until_stored(home.path(), 40);
        are_stored_once(home.path(), &(0..40).map(|n| n.to_string()).collect());
        process.stop();
    }
}

#[test]
fn another_cluster_stops_the_source_until_it_is_reset() {
    let mut all = erps("xid8");
    all.extend(erps("xid8"));
    let [first, second] = all.as_slice() else { return };
    let (home, process) = first.read("xid8");
    first.facts(0..5);
    until_stored(home.path(), 5);
    process.stop();
    // The same rows in another cluster, as after a dump and a restore.
    let rows = first.run(
        "SELECT string_agg(format('(%s, %L, %L, %L)', id, event_type, payload, idempotency_key), ',') FROM outbox",
    );
    second.run(&format!(
        "INSERT INTO outbox (id, event_type, payload, idempotency_key) OVERRIDING SYSTEM VALUE VALUES {rows}"
    ));
    second.give_ids_from(6);
    second.settings(home.path(), "[box]\nname = \"north\"");
    let process = Process::start(home.path());
    let why = trouble(&process, "oncebox source reset erp");
    assert!(why.contains("the database was"), "{why}");
    second.facts(5..8);
    process.call("POST", "/v1/sources/erp/reset", &json!({ "from": "start" })).is(200);
    until_stored(home.path(), 8);
    are_stored_once(home.path(), &(0..8).map(|n| n.to_string()).collect());
    process.stop();
}
