//! A table with many rows that were taken long ago (`ONCEBOX_MARKED`), and programs of the ERP that write on: nothing of
//! theirs fails or waits for us, and no poll reads the old rows.
//!
//! How long it takes is measured, not tested: `benches/databases.rs`.

use oncebox::databases::product::Product;

use crate::databases::erp::{
    Erp, Server, are_stored_once, erps, fact, source, until_stored, without_waiting, write_beside,
};
use crate::databases::process::prelude::*;

/// So many rows that were taken.
fn marked() -> u64 {
    number("ONCEBOX_MARKED", 10_000)
}

/// Fills the table with them.
fn fill(erp: &Erp) {
    let rows = marked();
    erp.run(&match erp.product() {
        Product::Postgresql => format!(
            "INSERT INTO outbox (event_type, payload, taken_at)
             SELECT 'old', '{{}}', now() FROM generate_series(1, {rows}); VACUUM ANALYZE outbox"
        ),
        Product::Mariadb | Product::SqlServer => format!(
            "INSERT INTO outbox (event_type, payload, taken_at)
             SELECT 'old', '{{}}', UTC_TIMESTAMP(3) FROM seq_1_to_{rows}; ANALYZE TABLE outbox"
        ),
    });
}

/// Makes the server note who reads and who waits.
fn watch(erp: &Erp) {
    erp.run(match erp.product() {
        // Each wait of more than a millisecond is logged.
        Product::Postgresql => {
            "ALTER SYSTEM SET log_lock_waits = on; ALTER SYSTEM SET deadlock_timeout = '1ms';
             ALTER SYSTEM SET log_connections = on; SELECT pg_reload_conf()"
        }
        Product::Mariadb | Product::SqlServer => "SET GLOBAL userstat = 1",
    });
}

/// How often all rows of the table were read (`PostgreSQL`), or how many rows the service has read.
fn read(erp: &Erp) -> u64 {
    let sql = match erp.product() {
        Product::Postgresql => "SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'outbox'",
        Product::Mariadb | Product::SqlServer => {
            "SELECT coalesce(sum(rows_read), 0) FROM information_schema.user_statistics WHERE user = 'oncebox'"
        }
    };
    erp.run(sql).parse().unwrap()
}

/// The waits for a lock that one of the service's connections held: by the server's own notes. In `MariaDB`, whose notes do
/// not say who waited for whom, a statement of the ERP fails instead ([`write_beside`]).
fn waits(erp: &Erp) -> Vec<String> {
    match &erp.server {
        Server::Postgresql(server) => waits_for(&server.log(), "oncebox"),
        Server::Mariadb(_) => Vec::new(),
    }
}

/// The lines of a log of `PostgreSQL` that say who waits for a connection of a user.
fn waits_for(log: &str, user: &str) -> Vec<String> {
    let authorized = format!("connection authorized: user={user} ");
    let number_after = |line: &str, before: &str| {
        let (_, rest) = line.split_once(before)?;
        Some(rest.chars().take_while(char::is_ascii_digit).collect::<String>())
    };
    let own: BTreeSet<String> = log
        .lines()
        .filter(|line| line.contains(&authorized))
        .filter_map(|line| number_after(line, "["))
        .collect();
    let holders = |line: &str| {
        let (_, rest) = line.split_once("holding the lock: ")?;
        Some(rest.split('.').next()?.split(", ").map(str::to_owned).collect::<Vec<_>>())
    };
    let is_own =
        |line: &&str| holders(line).is_some_and(|all| all.iter().any(|id| own.contains(id)));
    log.lines().filter(is_own).map(str::to_owned).collect()
}

#[test]
fn a_wait_for_a_connection_of_ours_is_found_in_a_log() {
    let log = "\
        2026-11-28 21:00:00 UTC [71] LOG:  connection authorized: user=oncebox database=erp\n\
        2026-11-28 21:00:00 UTC [72] LOG:  connection authorized: user=other database=erp\n\
        2026-11-28 21:00:01 UTC [80] DETAIL:  Process holding the lock: 72. Wait queue: 71, 80.\n\
        2026-11-28 21:00:01 UTC [80] DETAIL:  Processes holding the lock: 72, 71. Wait queue: 80.\n";
    let found = waits_for(log, "oncebox");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("Processes holding"));
}

#[test]
fn a_statement_of_an_erp_on_mariadb_that_would_wait_for_a_row_fails() {
    for erp in erps("mark").iter().filter(|erp| erp.product() == Product::Mariadb) {
        let hold = "BEGIN; SELECT id FROM outbox WHERE taken_at IS NULL FOR UPDATE;
                    SELECT SLEEP(600); ROLLBACK";
        thread::scope(|scope| {
            scope.spawn(|| erp.try_run(hold));
            let holders = "SELECT id FROM information_schema.processlist WHERE info LIKE '%SLEEP(600)%' AND id <> connection_id()";
            until("the rows are held", || !erp.run(holders).is_empty());
            let insert = format!("{}{}", without_waiting(erp.product()), fact("a"));
            let refused = erp.try_run(&insert).unwrap_err();
            assert!(refused.contains("Lock wait timeout exceeded"), "{refused}");
            erp.run(&format!("KILL {}", erp.run(holders)));
        });
    }
}

#[test]
fn beside_many_old_rows_nothing_of_the_erp_fails_or_waits_and_no_poll_reads_them() {
    for mode in ["mark", "claim"] {
        for erp in erps(mode) {
            fill(&erp);
            watch(&erp);
            let before = read(&erp);
            let (home, process) = erp.read(mode);
            // A statement of the ERP that fails ends the test.
            let (committed, ()) = write_beside(&erp, || {});
            until_stored(home.path(), committed.len());
            are_stored_once(home.path(), &committed);
            until("all is marked", || source(&process)["lag"] == 0);
            process.stop();
            let last = match erp.product() {
                Product::Postgresql => before,
                // Each new row is read, claimed and marked by its id.
                Product::Mariadb | Product::SqlServer => {
                    before + 8 * u64::try_from(committed.len()).unwrap()
                }
            };
            assert!(last < marked(), "{last} tells nothing about {} rows", marked());
            // The sessions of the service have ended, so that their numbers are there.
            until("the service's sessions have ended", || sessions(&erp) == "0");
            let after = read(&erp);
            assert!((before..=last).contains(&after), "{mode}: {before}, then {after}");
            assert_eq!(waits(&erp), [""; 0], "{mode}");
            assert_eq!(erp.unmarked(), "0");
        }
    }
}

/// The sessions of the service.
fn sessions(erp: &Erp) -> String {
    erp.run(match erp.product() {
        Product::Postgresql => "SELECT count(*) FROM pg_stat_activity WHERE usename = 'oncebox'",
        Product::Mariadb | Product::SqlServer => {
            "SELECT count(*) FROM information_schema.processlist WHERE user = 'oncebox'"
        }
    })
}
