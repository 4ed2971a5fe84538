//! The outbox of an ERP as `oncebox source ddl` prints it: run as printed, its examples with it. Each change of an
//! invoice leaves an event by its trigger, in the ERP's own transaction, and no transaction of the ERP fails or waits
//! because of it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use crate::guards::consumer::Consumer;
use crate::guards::erp_writers::{ALL_EVENTS, ALL_INVOICES, Dialect, TABLE as INVOICES, write};
use crate::guards::server;
use crate::guards::server::{Mariadb, Postgresql};
use crate::rig;

const TABLE: &str = "erp_outbox";
/// One fact three times, and one that comes to nothing.
const WORK: &str = "BEGIN; INSERT INTO invoices VALUES (1, 'RE-1', 1.00); ROLLBACK;
                    INSERT INTO invoices VALUES (1, 'RE-1', 99.50);
                    DELETE FROM invoices WHERE id = 1;
                    INSERT INTO invoices VALUES (1, 'RE-1', 99.50);";
/// Events of [`WORK`].
const WORK_EVENTS: usize = 3;
/// Rows that no consumer could use. The ERP may write them all the same.
const POISON: &str = "INSERT INTO erp_outbox (event_type, payload, idempotency_key) VALUES ('a', 'no json', 'one key');
                      INSERT INTO erp_outbox (event_type, payload, idempotency_key) VALUES ('a', '{}', 'one key');
                      INSERT INTO erp_outbox (event_type, payload, idempotency_key) VALUES (NULL, NULL, NULL);";

/// What `source ddl` prints.
fn ddl(database: &str, flags: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_oncebox"))
        .args(["source", "ddl", database, "--table", TABLE])
        .args(flags)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The same with the grants and the trigger, which are printed as comments.
fn with_examples(text: &str) -> String {
    let mut lines = Vec::new();
    for line in text.lines() {
        let shown = line.strip_prefix("--   ").unwrap_or(line);
        // Commands of a shell are no SQL, and what deletes old rows is not for now.
        if !["oncebox ", "usermod ", "DELETE FROM erp_outbox"]
            .iter()
            .any(|no| shown.starts_with(no))
            && !shown.starts_with("  WHERE taken_at <")
            && !shown.starts_with("  WHERE occurred_at <")
        {
            lines.push(shown);
        }
    }
    lines.join("\n")
}

/// A session that keeps its transaction open until it is dropped.
struct OpenTransaction(Child);

impl OpenTransaction {
    /// Runs `sql`, and returns when all of it was done.
    fn begin(client: &str, sql: &str) -> Self {
        let mut child = Command::new("sh")
            .args(["-c", client])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.as_mut().unwrap();
        writeln!(input, "{sql}\nSELECT 'all is done';").unwrap();
        input.flush().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut lines = output.lines().map(Result::unwrap);
        assert!(lines.any(|line| line == "all is done"), "{sql} failed");
        Self(child)
    }
}

impl Drop for OpenTransaction {
    fn drop(&mut self) {
        // The end of its input ends the client, and with it the transaction.
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

#[test]
fn the_outbox_for_postgresql_fails_and_delays_no_transaction_of_the_erp() {
    let Some(server) = Postgresql::start() else {
        return rig::skipped("needs postgresql");
    };
    for (flags, rights) in [
        ([].as_slice(), ["taken_at"].as_slice()),
        (&["--two-boxes"], &["taken_at", "taken_by"]),
        (&["--read-only"], &[]),
    ] {
        let erp = Consumer::new("true");
        let run = |sql: &str| erp.shell(&format!("{} <<'SQL'\n{sql}\nSQL", server.psql("-qAt")));
        run("DROP TABLE IF EXISTS erp_outbox, invoices; DROP ROLE IF EXISTS oncebox;
             DROP FUNCTION IF EXISTS invoices_to_erp_outbox;");
        run(INVOICES);
        let printed = ddl("postgresql", flags);
        run(&printed);
        // A second time it changes nothing.
        run(&with_examples(&printed));
        run(WORK);
        run(POISON);
        let as_oncebox = server.psql("-qAt").replace("-U guards", "-U oncebox");
        let mark = "BEGIN; SELECT id FROM erp_outbox ORDER BY id LIMIT 500 FOR UPDATE SKIP LOCKED;
                    UPDATE erp_outbox SET taken_at = now() WHERE id IN (1, 2, 3);";
        let ours = match flags {
            ["--read-only"] => "BEGIN; SELECT * FROM erp_outbox ORDER BY tx, id;".to_owned(),
            ["--two-boxes"] => mark.replace("taken_at = now()", "taken_by = 'a'"),
            _ => mark.to_owned(),
        };
        {
            let _ours = OpenTransaction::begin(&as_oncebox, &ours);
            let dialect = Dialect { first: "SET lock_timeout = '10s';", begin: "BEGIN" };
            write(&erp, &server.psql("-q"), dialect);
        }
        let found = run("SELECT count(*), count(DISTINCT idempotency_key), count(payload::json ->> 'number')
                           FROM erp_outbox WHERE aggregate_type = 'invoice' AND aggregate_id = payload::json ->> 'number'");
        let all = WORK_EVENTS + ALL_EVENTS;
        assert_eq!(found.trim(), format!("{all}|{all}|{all}"));
        assert_eq!(run("SELECT count(*) FROM invoices").trim(), (1 + ALL_INVOICES).to_string());
        for column in ["taken_at", "taken_by", "payload"] {
            let has = run(&format!("SELECT has_column_privilege('oncebox', 'erp_outbox', name, 'UPDATE')
                                      FROM (VALUES ('{column}')) AS wanted (name)
                                     WHERE EXISTS (SELECT 1 FROM information_schema.columns
                                                    WHERE table_name = 'erp_outbox' AND column_name = name)"));
            assert_eq!(has.trim() == "t", rights.contains(&column), "{flags:?} {column}");
        }
        for denied in ["DELETE FROM erp_outbox", "TABLE invoices"] {
            let said = erp.shell(&format!("{as_oncebox} -c '{denied}' 2>&1 || true"));
            assert!(said.contains("permission denied"), "{denied}: {said}");
        }
    }
}

#[test]
fn the_outbox_for_mariadb_fails_and_delays_no_transaction_of_the_erp() {
    let Some(server) = Mariadb::start() else {
        return rig::skipped("needs mariadb-server");
    };
    // A client of an old program: its own alphabet is not that of the table.
    let old = server.client("-N --default-character-set=latin1");
    for flags in [[].as_slice(), &["--two-boxes"]] {
        let erp = Consumer::new("true");
        let client = server.client("-N --default-character-set=utf8mb4");
        let run = |sql: &str| erp.shell(&format!("{client} <<'SQL'\n{sql}\nSQL"));
        run("DROP TABLE IF EXISTS erp_outbox, invoices; DROP USER IF EXISTS oncebox@'%';");
        run(&INVOICES.replace("TEXT", "LONGTEXT CHARACTER SET utf8mb4"));
        let printed = ddl("mariadb", flags);
        run(&printed);
        // A second time it changes nothing.
        erp.file("examples.sql", &with_examples(&printed));
        erp.shell(&format!("{old} < examples.sql"));
        run(WORK);
        run(POISON);
        let as_oncebox = server.client("-N -n").replace("-u root", "-u oncebox --password='…'");
        let take = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; BEGIN;
                    SELECT id FROM erp_outbox WHERE taken_at IS NULL ORDER BY id LIMIT 500 FOR UPDATE SKIP LOCKED;
                    UPDATE erp_outbox SET taken_at = UTC_TIMESTAMP(3) WHERE id IN (1, 2, 3);";
        let ours = match flags {
            ["--two-boxes"] => take.replace("taken_at = UTC_TIMESTAMP(3)", "taken_by = 'a'"),
            _ => take.to_owned(),
        };
        {
            let _ours = OpenTransaction::begin(&as_oncebox, &ours);
            let first = "SET SESSION innodb_lock_wait_timeout = 10;";
            write(&erp, &client, Dialect { first, begin: "BEGIN" });
        }
        let found =
            run("SELECT count(*), count(DISTINCT idempotency_key), sum(JSON_VALID(payload)),
                                sum(aggregate_id = JSON_VALUE(payload, '$.number'))
                           FROM erp_outbox WHERE aggregate_type = 'invoice'");
        let all = (WORK_EVENTS + ALL_EVENTS).to_string();
        assert_eq!(found.split_whitespace().collect::<Vec<_>>(), [&all, &all, &all, &all]);
        assert_eq!(run("SELECT count(*) FROM invoices").trim(), (1 + ALL_INVOICES).to_string());
        let refused = |sql: &str| erp.shell(&format!("{as_oncebox} -e \"{sql}\" 2>&1 || true"));
        for denied in [
            "DELETE FROM erp_outbox",
            "UPDATE erp_outbox SET payload = '{}'",
            "SELECT * FROM invoices",
        ] {
            let said = refused(denied);
            assert!(said.contains("command denied"), "{denied}: {said}");
        }
    }
}

#[test]
fn old_rows_of_mariadb_are_deleted_beside_the_erp() {
    let Some(server) = Mariadb::start() else {
        return rig::skipped("needs mariadb-server");
    };
    let erp = Consumer::new("true");
    let client = server.client("-N --default-character-set=utf8mb4");
    let run = |sql: &str| erp.shell(&format!("{client} <<'SQL'\n{sql}\nSQL"));
    run(&INVOICES.replace("TEXT", "LONGTEXT CHARACTER SET utf8mb4"));
    let printed = ddl("mariadb", &[]);
    run(&with_examples(&printed));
    run(WORK);
    run("UPDATE erp_outbox SET taken_at = UTC_TIMESTAMP(3) - INTERVAL 31 DAY;");
    let shown = printed.lines().filter_map(|line| line.strip_prefix("--   "));
    let delete = |line: &&str| line.contains("READ COMMITTED") || line.starts_with("DELETE FROM");
    let delete = shown.filter(delete).collect::<Vec<_>>().join("\nBEGIN;\n");
    {
        let _deletes = OpenTransaction::begin(&server.client("-N -n"), &delete);
        let first = "SET SESSION innodb_lock_wait_timeout = 10;";
        write(&erp, &client, Dialect { first, begin: "BEGIN" });
    }
    let left = run("SELECT count(*) FROM erp_outbox").trim().to_owned();
    // The open transaction was rolled back.
    assert_eq!(left, (WORK_EVENTS + ALL_EVENTS).to_string());
}

#[test]
fn the_outbox_for_sqlite_fails_no_transaction_of_the_erp() {
    if server::found("sqlite3").is_none() {
        return rig::skipped("needs sqlite3");
    }
    let erp = Consumer::new("true");
    // Programs of one file wait for each other, with an outbox and without.
    let client = "sqlite3 -bail -cmd '.timeout 60000' erp.db";
    let run = |sql: &str| erp.shell(&format!("{client} <<'SQL'\n{sql}\nSQL"));
    run(INVOICES);
    let printed = ddl("sqlite", &[]);
    run(&printed);
    // A second time it changes nothing.
    run(&with_examples(&printed));
    run(WORK);
    run(POISON);
    write(&erp, client, Dialect { first: "", begin: "BEGIN IMMEDIATE" });
    let found = run("SELECT count(*), count(DISTINCT idempotency_key), sum(json_valid(payload)),
                            sum(aggregate_id = payload ->> 'number')
                       FROM erp_outbox WHERE aggregate_type = 'invoice';");
    let all = WORK_EVENTS + ALL_EVENTS;
    assert_eq!(found.trim(), format!("{all}|{all}|{all}|{all}"));
    assert_eq!(run("SELECT count(*) FROM invoices;").trim(), (1 + ALL_INVOICES).to_string());
}

#[test]
fn the_outbox_for_sql_server_says_that_it_was_not_run() {
    let text = ddl("sqlserver", &["--two-boxes"]);
    assert!(text.contains("CREATE TABLE dbo.erp_outbox"), "{text}");
    assert!(text.contains("GRANT UPDATE ON dbo.erp_outbox (taken_by) TO oncebox"), "{text}");
    assert!(text.contains("NOT RUN against a real server"), "{text}");
    // A limit that the ERP has set must not hold in the triggers.
    let triggers = text.matches("CREATE TRIGGER").count();
    assert_eq!((triggers, text.matches("SET ROWCOUNT 0;").count()), (2, 2), "{text}");
}

#[test]
fn a_form_that_a_database_has_not_is_refused_with_the_reason() {
    for (database, flag, why) in [
        ("sqlite", "--two-boxes", "SQLite"),
        ("sqlite", "--read-only", "SQLite"),
        ("mariadb", "--read-only", "only PostgreSQL"),
        ("sqlserver", "--read-only", "only PostgreSQL"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_oncebox"))
            .args(["source", "ddl", database, flag])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(why), "{said}");
    }
}
