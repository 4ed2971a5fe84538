//! Messages as real servers and drivers gave them, and what follows.

use std::time::Duration;

use super::*;

fn judged(product: Product, sqlstate: &str, native: i32, message: &str) -> Failure {
    let refusal = Refusal { sqlstate: sqlstate.to_owned(), native, message: message.to_owned() };
    judge(product, &Error::Refused(refusal))
}

/// A row: state, number, message, what follows, the words that are left.
type Case = (&'static str, i32, &'static str, Class, &'static str);

#[rustfmt::skip]
const POSTGRESQL: &[Case] = &[
    ("22P02", 1, "ERROR: invalid input syntax for type integer: \"x\"y\";\nError while", Class::Refused, "invalid input syntax for type integer: \"…\" (22P02)"),
    ("22P05", 1, "ERROR: character with byte sequence 0xce 0xa9 in encoding \"UTF8\" has no equivalent in encoding \"LATIN1\";\nE", Class::Refused, "character with byte sequence 0xce 0xa9 in encoding \"UTF8\" has no equivalent in encoding \"LATIN1\" (22P05)"),
    ("P0001", 1, "ERROR: item 17 is locked;\nError while", Class::Refused, "item 17 is locked (P0001)"),
    ("42P01", 1, "ERROR: relation \"nothere\" does not exist;\nE", Class::SchemaHold, "relation \"nothere\" does not exist (42P01)"),
    ("42703", 1, "ERROR: column \"a\" of relation \"b\" does not exist;\nE", Class::SchemaHold, "column \"a\" of relation \"b\" does not exist (42703)"),
    ("42501", 1, "ERROR: permission denied for table item;\nE", Class::AuthHold, "permission denied for table item (42501)"),
    ("2D000", 1, "ERROR: invalid transaction termination;\nE", Class::SchemaHold, "invalid transaction termination (2D000); it runs in a transaction of Oncebox: take COMMIT, ROLLBACK and BEGIN TRANSACTION out of it"),
    ("40001", 1, "ERROR: could not serialize access;\nE", Class::Again, "could not serialize access (40001)"),
    ("40P01", 1, "ERROR: deadlock detected\nDETAIL: Process 1 waits", Class::Again, "deadlock detected (40P01)"),
    ("55P03", 1, "ERROR: canceling statement due to lock timeout;\nE", Class::Again, "canceling statement due to lock timeout (55P03)"),
    ("57014", 1, "ERROR: canceling statement due to statement timeout;\nE", Class::Away, "canceling statement due to statement timeout (57014)"),
    ("57P01", 1, "FATAL: terminating connection due to administrator command", Class::Away, "terminating connection due to administrator command (57P01)"),
    ("53300", 1, "FATAL: too many connections", Class::Away, "too many connections (53300)"),
    ("08S01", 35, "could not receive data from server", Class::Away, "could not receive data from server (08S01)"),
    ("08001", 101, "connection to server at \"h\", port 1 failed: Connection refused\n\tIs the server", Class::Away, "connection to server at \"h\", port 1 failed: Connection refused (08001)"),
    ("08001", 101, "connection failed: FATAL:  password authentication failed for user \"erp\"\n", Class::AuthHold, "connection failed: FATAL:  password authentication failed for user \"erp\" (08001)"),
    ("08001", 101, "FATAL:  Passwort-Authentifizierung für Benutzer »erp« fehlgeschlagen", Class::AuthHold, "Passwort-Authentifizierung für Benutzer »erp« fehlgeschlagen (08001)"),
    ("08001", 101, "FATAL:  database \"odo\" does not exist", Class::SchemaHold, "database \"odo\" does not exist (08001)"),
    ("IM002", 0, "[unixODBC][Driver Manager]Data source name not found", Class::Away, "Data source name not found (IM002)"),
    ("HY000", 0, "something new", Class::Unknown, "something new (HY000)"),
];

#[rustfmt::skip]
const MARIADB: &[Case] = &[
    ("23000", 1062, "[ma-3.1.15][10.11.19-MariaDB]Duplicate entry 'it's mine' for key 'sku'", Class::Refused, "Duplicate entry '…' for key 'sku' (23000, 1062)"),
    ("22007", 1366, "[ma-3.1.15]Incorrect integer value: 'geheim 'x' for column `a`.`b`.`n` at row 1", Class::Refused, "Incorrect integer value: '…' for column `a`.`b`.`n` at row 1 (22007, 1366)"),
    ("22007", 1292, "[ma-3.1.15]Incorrect date value: '2020-13-45' for column `d` at row 1", Class::Refused, "Incorrect date value: '…' for column `d` at row 1 (22007, 1292)"),
    ("22001", 1406, "[ma-3.1.15]Data too long for column 'sku' at row 1", Class::Refused, "Data too long for column 'sku' at row 1 (22001, 1406)"),
    ("23000", 4025, "[ma-3.1.15]CONSTRAINT `n` failed for `a`.`b`", Class::Refused, "CONSTRAINT `n` failed for `a`.`b` (23000, 4025)"),
    ("HY000", 1364, "[ma-3.1.15]Field 'sku' doesn't have a default value", Class::Refused, "Field 'sku' doesn't have a default value (HY000, 1364)"),
    ("45000", 1644, "[ma-3.1.15]the period is closed", Class::Refused, "the period is closed (45000, 1644)"),
    ("42S02", 1146, "[ma-3.1.15]Table 'a.nothere' doesn't exist", Class::SchemaHold, "Table 'a.nothere' doesn't exist (42S02, 1146)"),
    ("42S22", 1054, "[ma-3.1.15]Unknown column 'nocol' in 'INSERT INTO'", Class::SchemaHold, "Unknown column 'nocol' in 'INSERT INTO' (42S22, 1054)"),
    ("HY000", 1422, "[ma-3.1.15]Explicit or implicit commit is not allowed in stored function or trigger", Class::SchemaHold, "Explicit or implicit commit is not allowed in stored function or trigger (HY000, 1422); it runs in a transaction of Oncebox: take COMMIT, ROLLBACK and BEGIN TRANSACTION out of it"),
    ("42000", 1142, "[ma-3.1.15]INSERT command denied to user 'erp'@'h' for table `a`.`b`", Class::AuthHold, "INSERT command denied to user 'erp'@'h' for table `a`.`b` (42000, 1142)"),
    ("28000", 1045, "[ma-3.1.15]Access denied for user 'erp'@'localhost' (using password: YES)", Class::AuthHold, "Access denied for user 'erp'@'localhost' (using password: YES) (28000, 1045)"),
    ("HY000", 1205, "[ma-3.1.15]Lock wait timeout exceeded; try restarting transaction", Class::Again, "Lock wait timeout exceeded; try restarting transaction (HY000, 1205)"),
    ("40001", 1213, "[ma-3.1.15]Deadlock found", Class::Again, "Deadlock found (40001, 1213)"),
    ("HY000", 2006, "[ma-3.1.15]Server has gone away", Class::Away, "Server has gone away (HY000, 2006)"),
    ("HY000", 2002, "[ma-3.1.15]Can't connect to server on '127.0.0.1' (115)", Class::Away, "Can't connect to server on '127.0.0.1' (115) (HY000, 2002)"),
    ("70100", 1969, "[ma-3.1.15]Query execution was interrupted (max_statement_time exceeded)", Class::Away, "Query execution was interrupted (max_statement_time exceeded) (70100, 1969)"),
];

#[rustfmt::skip]
const SQL_SERVER: &[Case] = &[
    ("23000", 2627, "[FreeTDS][SQL Server]Violation of PRIMARY KEY constraint 'pk'. Cannot insert duplicate key in object 'dbo.t'. The duplicate key value is (X-1).", Class::Refused, "Violation of PRIMARY KEY constraint 'pk'. Cannot insert duplicate key in object 'dbo.t'. The duplicate key value is (…). (23000, 2627)"),
    ("22001", 2628, "[FreeTDS][SQL Server]String or binary data would be truncated in table 'd.t', column 'c'. Truncated value: 'it's'.", Class::Refused, "String or binary data would be truncated in table 'd.t', column 'c'. Truncated value: … (22001, 2628)"),
    ("22018", 245, "[FreeTDS][SQL Server]Conversion failed when converting the nvarchar value 'abc' to data type int.", Class::Refused, "Conversion failed when converting the nvarchar value '…' to data type int. (22018, 245)"),
    ("42S02", 208, "[FreeTDS][SQL Server]Invalid object name 'nothere'.", Class::SchemaHold, "Invalid object name 'nothere'. (42S02, 208)"),
    ("42000", 229, "[FreeTDS][SQL Server]The INSERT permission was denied on the object 't'.", Class::AuthHold, "The INSERT permission was denied on the object 't'. (42000, 229)"),
    ("40001", 1205, "[FreeTDS][SQL Server]Transaction was deadlocked", Class::Again, "Transaction was deadlocked (40001, 1205)"),
    ("42000", 3998, "[FreeTDS][SQL Server]Uncommittable transaction is detected at the end of the batch.", Class::Unknown, "Uncommittable transaction is detected at the end of the batch. (42000, 3998)"),
    ("42000", 0, "[Microsoft][ODBC Driver 18 for SQL Server]Syntax error", Class::SchemaHold, "Syntax error (42000, 0)"),
    ("25000", 266, "[FreeTDS][SQL Server]Transaction count after EXECUTE indicates a mismatching number of BEGIN and COMMIT statements.", Class::SchemaHold, "Transaction count after EXECUTE indicates a mismatching number of BEGIN and COMMIT statements. (25000, 266); it runs in a transaction of Oncebox: take COMMIT, ROLLBACK and BEGIN TRANSACTION out of it"),
    ("42000", 50001, "[FreeTDS][SQL Server]the period is closed", Class::Refused, "the period is closed (42000, 50001)"),
    ("28000", 18456, "[FreeTDS][SQL Server]Login failed for user 'erp'.", Class::AuthHold, "Login failed for user 'erp'. (28000, 18456)"),
    ("08S01", 20006, "[FreeTDS][SQL Server]Write to the server failed", Class::Away, "Write to the server failed (08S01, 20006)"),
];

#[track_caller]
fn hold(product: Product, cases: &[Case]) {
    for (sqlstate, native, message, class, words) in cases {
        let failure = judged(product, sqlstate, *native, message);
        assert_eq!((failure.class, failure.words.as_str()), (*class, *words), "{message}");
    }
}

#[test]
fn what_postgresql_says() {
    let end = ";\nError while executing the query";
    let with_end = |message: &str| format!("{message}{end}");
    let duplicate = with_end(
        "ERROR: duplicate key value violates unique constraint \"sku\"\nDETAIL: Key (sku)=(abc) already exists.",
    );
    let failing = with_end(
        "ERROR: null value in column \"sku\" of relation \"item\" violates not-null constraint\nDETAIL: Failing row contains (2, abf (x), -1, null).",
    );
    let failing_german = with_end(
        "FEHLER: neue Zeile für Relation »item« verletzt Check-Constraint »n«\nDETAIL: Fehlgeschlagene Zeile enthält (2, abf).",
    );
    let own: [(&str, i32, &str, Class, &str); 3] = [
        (
            "23505",
            1,
            &duplicate,
            Class::Refused,
            "duplicate key value violates unique constraint \"sku\" (23505)",
        ),
        (
            "23502",
            1,
            &failing,
            Class::Refused,
            "null value in column \"sku\" of relation \"item\" violates not-null constraint (23502)",
        ),
        (
            "23514",
            1,
            &failing_german,
            Class::Refused,
            "neue Zeile für Relation »item« verletzt Check-Constraint »n« (23514)",
        ),
    ];
    for (sqlstate, native, message, class, words) in own {
        let failure = judged(Product::Postgresql, sqlstate, native, message);
        assert_eq!((failure.class, failure.words.as_str()), (class, words));
    }
    hold(Product::Postgresql, POSTGRESQL);
}

#[test]
fn what_mariadb_says() {
    hold(Product::Mariadb, MARIADB);
}

#[test]
fn what_sql_server_says() {
    hold(Product::SqlServer, SQL_SERVER);
}

#[test]
fn a_lost_connection_is_away_and_what_is_too_large_is_refused() {
    for lost in [
        Lost::Ended,
        Lost::Silent { after: Duration::from_secs(33) },
        Lost::Busy { connections: 2, after: Duration::from_secs(15) },
    ] {
        assert_eq!(judge(Product::Mariadb, &lost.into()).class, Class::Away);
    }
    let large = judge(Product::Mariadb, &Error::TooLarge("a frame of 99 bytes".to_owned()));
    assert_eq!((large.class, large.words.as_str()), (Class::Refused, "a frame of 99 bytes"));
}

#[test]
fn long_words_are_cut() {
    let failure = judged(Product::Mariadb, "45000", 1644, &"x".repeat(999));
    assert_eq!(failure.words, format!("{}… (45000, 1644)", "x".repeat(MOST_LETTERS)));
}
