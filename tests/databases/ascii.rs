//! `PostgreSQL` databases of the encoding `SQL_ASCII`, which do not know which letters their bytes are.

use crate::databases::erp::{Erp, add, erps, fact, oncebox, stored, until_stored};
use crate::databases::process::prelude::*;
use crate::databases::stock::states;

const TEXT: &str = "Größe €";

/// What makes letters of the bytes that a program has written as Latin-1. `docs/databases.md` has it.
const FROM_LATIN_1: &str =
    "convert_from(convert(convert_to(name, 'SQL_ASCII'), 'LATIN1', 'UTF8'), 'SQL_ASCII')";

/// Runs SQL in the database `plain`, whose bytes are not looked at.
fn run(erp: &Erp, sql: &str) -> String {
    erp.run(&format!("\\connect plain\nSET client_encoding = 'SQL_ASCII';\n{sql}"))
}

/// An ERP on `PostgreSQL` with such a database, and the settings of a service that may use it.
fn plain() -> Option<(Erp, TempDir)> {
    let erp = erps("xid8").pop()?;
    erp.run(
        "CREATE DATABASE plain ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0",
    );
    let ddl = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_oncebox"));
        let printed = command.args(arguments).output().unwrap();
        run(&erp, &String::from_utf8(printed.stdout).unwrap());
    };
    ddl(&["source", "ddl", "postgresql"]);
    ddl(&["database", "ddl", "postgresql", "--user", "oncebox"]);
    run(&erp, "GRANT SELECT, UPDATE (taken_at) ON outbox TO oncebox");
    let home = tempfile::tempdir().unwrap();
    erp.settings(home.path(), "");
    let file = home.path().join("oncebox.toml");
    let settings = fs::read_to_string(&file).unwrap();
    fs::write(&file, settings.replace("\"postgres\"", "\"plain\"")).unwrap();
    Some((erp, home))
}

#[test]
fn utf8_is_read_and_other_bytes_are_quarantined_with_the_reason() {
    let Some((erp, home)) = plain() else { return };
    run(
        &erp,
        &format!(
            "CREATE TABLE old (name text);
             INSERT INTO old VALUES (convert_from('\\x4772f6df65', 'SQL_ASCII'));
             INSERT INTO outbox (event_type, payload) SELECT 'fact', '{{\"name\":\"' || name || '\"}}' FROM old;
             INSERT INTO outbox (event_type, payload) SELECT 'fact', '{{\"name\":\"' || {FROM_LATIN_1} || '\"}}' FROM old;
             {}",
            fact(TEXT)
        ),
    );
    let process = Process::start(home.path());
    add(&process, "mark");
    until_stored(home.path(), 2);
    assert_eq!(stored(home.path()), ["Größe", TEXT]);
    until("all is marked", || {
        run(&erp, "SELECT count(*) FROM outbox WHERE taken_at IS NULL") == "0"
    });
    let conn = file::open(&home.path().join("data/oncebox.db"));
    let reasons = file::lines(&conn, "SELECT last_error FROM outbox WHERE status = 'quarantined'");
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    assert!(reasons[0].contains("invalid byte sequence for encoding"), "{reasons:?}");
    assert!(reasons[0].contains("0xf6 0xdf 0x65"), "{reasons:?}");
    process.stop();
}

#[test]
fn letters_are_written_as_utf8_and_the_test_says_so() {
    let Some((erp, home)) = plain() else { return };
    let process = Process::start(home.path());
    oncebox(
        home.path(),
        &["subscription", "create", "in", "--database", "erp", "--inbox", "oncebox_inbox"],
    );
    process.post("/v1/events", &json!({ "event_type": "fact", "payload": { "name": TEXT } }));
    until("it is done", || states(home.path()) == "completed 1");
    let bytes = "SELECT encode(convert_to(payload, 'SQL_ASCII'), 'hex') FROM oncebox_inbox";
    let sent = json!({ "name": TEXT }).to_string();
    assert_eq!(run(&erp, bytes), HEXLOWER.encode(sent.as_bytes()));
    let tested = oncebox(home.path(), &["database", "test", "erp"]);
    assert!(tested.contains("SQL_ASCII") && tested.contains("UTF-8"), "{tested}");
    process.stop();
}
