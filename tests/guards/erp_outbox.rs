//! The outbox of an ERP as `oncebox source ddl` prints it: run as printed, its examples with it, and each invoice leaves
//! an event by its trigger, in the ERP's own transaction.

use std::process::Command;

use crate::consumer::Consumer;
use crate::server::{Mariadb, Postgresql};
use crate::{rig, server};

const TABLE: &str = "erp_outbox";

/// What is printed; `examples`: with the grants and the trigger that stand there as comments.
fn printed(database: &str, examples: bool) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_oncebox"))
        .args(["source", "ddl", database, "--table", TABLE])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    if !examples {
        return text;
    }
    let shown = |line: &str| line.strip_prefix("--   ").unwrap_or(line).to_owned();
    text.lines().map(shown).collect::<Vec<_>>().join("\n")
}

const INVOICES: &str =
    "CREATE TABLE invoices (number INTEGER PRIMARY KEY, total DECIMAL(10, 2) NOT NULL);";
/// One invoice that comes to nothing, and one that stays.
const WORK: &str = "BEGIN; INSERT INTO invoices VALUES (4710, 1.00); ROLLBACK;
                    BEGIN; INSERT INTO invoices VALUES (4711, 99.50); COMMIT;";

#[test]
fn the_outbox_for_postgresql_is_filled_by_its_trigger_and_open_to_its_role_alone() {
    let Some(server) = Postgresql::start() else {
        return rig::skipped("needs postgresql");
    };
    let erp = Consumer::new("true");
    let run = |sql: &str| erp.shell(&format!("{} <<'SQL'\n{sql}\nSQL", server.psql("-qAt")));
    run(INVOICES);
    run(&printed("postgresql", false));
    // A second time it changes nothing.
    run(&printed("postgresql", true));
    run(WORK);
    let row = "SELECT event_type, payload->>'number', payload->>'total', idempotency_key,
                      aggregate_type, aggregate_id, taken_at IS NULL, occurred_at <= now() FROM erp_outbox";
    assert_eq!(run(row).trim(), "invoice.created|4711|99.50|invoice.created:4711|invoice|4711|t|t");
    let as_oncebox = |sql: &str| run(&format!("SET ROLE oncebox; {sql}"));
    as_oncebox("UPDATE erp_outbox SET taken_at = now() WHERE taken_at IS NULL;");
    assert_eq!(as_oncebox("SELECT count(*) FROM erp_outbox WHERE taken_at IS NULL;").trim(), "0");
    for denied in
        ["DELETE FROM erp_outbox", "UPDATE erp_outbox SET payload = '{}'", "TABLE invoices"]
    {
        let refused =
            format!("{} -c 'SET ROLE oncebox' -c \"{denied}\" 2>&1 || true", server.psql("-q"));
        let said = erp.shell(&refused);
        assert!(said.contains("permission denied"), "{denied}: {said}");
    }
}

#[test]
fn the_outbox_for_mariadb_is_filled_by_its_trigger_and_open_to_its_user_alone() {
    let Some(server) = Mariadb::start() else {
        return rig::skipped("needs mariadb-server");
    };
    let erp = Consumer::new("true");
    let run = |sql: &str| erp.shell(&format!("{} <<'SQL'\n{sql}\nSQL", server.client("-N")));
    run(INVOICES);
    run(&printed("mariadb", false));
    // A second time it changes nothing.
    run(&printed("mariadb", true));
    run(WORK);
    let row = "SELECT event_type, JSON_VALUE(payload, '$.number'), JSON_VALUE(payload, '$.total'),
                      idempotency_key, aggregate_type, aggregate_id, taken_at IS NULL,
                      occurred_at <= UTC_TIMESTAMP(3) FROM erp_outbox";
    let found = run(row);
    let fields: Vec<&str> = found.split_whitespace().collect();
    assert_eq!(
        fields,
        ["invoice.created", "4711", "99.50", "invoice.created:4711", "invoice", "4711", "1", "1"]
    );
    let as_oncebox = |sql: &str| {
        let client = server.client("-N -u oncebox --password='…'");
        erp.shell(&format!("{client} -e \"{sql}\" 2>&1 || true"))
    };
    as_oncebox("UPDATE erp_outbox SET taken_at = UTC_TIMESTAMP(3) WHERE taken_at IS NULL");
    let left = as_oncebox("SELECT count(*) FROM erp_outbox WHERE taken_at IS NULL");
    assert_eq!(left.trim(), "0");
    for denied in
        ["DELETE FROM erp_outbox", "UPDATE erp_outbox SET payload = '{}'", "SELECT * FROM invoices"]
    {
        let said = as_oncebox(denied);
        assert!(said.contains("command denied"), "{denied}: {said}");
    }
    let bad = "INSERT INTO erp_outbox (event_type, payload, idempotency_key) VALUES ('a', 'no json', 'k')";
    let refused = format!("{} -e \"{bad}\" 2>&1 || true", server.client(""));
    assert!(erp.shell(&refused).contains("CONSTRAINT"), "what is no JSON is refused");
}

#[test]
fn the_outbox_for_sqlite_is_filled_by_its_trigger() {
    if server::found("sqlite3").is_none() {
        return rig::skipped("needs sqlite3");
    }
    let erp = Consumer::new("true");
    let run = |sql: &str| erp.shell(&format!("sqlite3 -bail erp.db <<'SQL'\n{sql}\nSQL"));
    run(INVOICES);
    run(&printed("sqlite", false));
    // What is for a shell is no SQL.
    let printed = printed("sqlite", true);
    let sql = |line: &&str| !line.starts_with("oncebox ") && !line.starts_with("usermod ");
    run(&printed.lines().filter(sql).collect::<Vec<_>>().join("\n"));
    run(WORK);
    let row = "SELECT id, event_type, payload, idempotency_key, aggregate_type, aggregate_id FROM erp_outbox;";
    assert_eq!(
        run(row).trim(),
        r#"1|invoice.created|{"number":4711,"total":99.5}|invoice.created:4711|invoice|4711"#
    );
}

#[test]
fn the_outbox_for_sql_server_says_that_it_was_not_run() {
    let text = printed("sqlserver", false);
    assert!(text.contains("CREATE TABLE dbo.erp_outbox"), "{text}");
    assert!(text.contains("and not run: there was no server"), "{text}");
}
