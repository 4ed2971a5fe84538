//! SQL Server's side of ours, through `FreeTDS`, against a stand-in that notes what it is sent (`tds/`): one connection.
//!
//! What a real server makes of our SQL is not proved here.

use std::sync::Arc;
use std::time::Duration;

use oncebox::config::databases::DatabaseAt;
use oncebox::databases::connection::{Connection, Error, Statement};
use oncebox::databases::database::Database;
use oncebox::databases::failure::Class;
use tempfile::TempDir;

use crate::databases::site::{Site, has_driver, program, words, write_secret};
use crate::databases::tds::{Answer, Request, StandIn, Value};
use crate::rig::skipped;

/// `FreeTDS` cannot be told a `}`.
const PASSWORD: &str = "pass;word {with ='every\"thing";

const LETTERS: &str = "Größe € Ω 😀";

/// A stand-in that answers by a script; nothing after saying what is lacking.
pub(crate) fn stand_in(
    script: impl Fn(&Request) -> Option<Answer> + Send + Sync + 'static,
) -> Option<StandIn> {
    let lacks = match program() {
        None => "oncebox-odbc: cargo build -p oncebox-odbc",
        Some(_) if !has_driver("FreeTDS") => "the ODBC driver FreeTDS",
        Some(_) => return Some(StandIn::start(script)),
    };
    skipped(&format!("needs {lacks}"));
    None
}

/// The database of the settings that leads to a stand-in, and the directory of its password.
fn database(server: &StandIn) -> (Arc<Database>, TempDir) {
    let (settings, secrets) = settings(server);
    (Site::database(&settings, Duration::from_mins(1)), secrets)
}

fn settings(server: &StandIn) -> (DatabaseAt, TempDir) {
    let secrets = tempfile::tempdir().unwrap();
    let password_file = secrets.path().join("password");
    write_secret(&password_file, PASSWORD);
    let settings = DatabaseAt {
        driver: Some("FreeTDS".to_owned()),
        server: Some("127.0.0.1".to_owned()),
        port: Some(server.port.into()),
        database: Some("ERP".to_owned()),
        user: Some("erp".to_owned()),
        password_file: Some(password_file),
        tls: false,
        program: program(),
        ..DatabaseAt::default()
    };
    (settings, secrets)
}

/// Whether a statement has these words.
pub(crate) fn has(request: &Request, words: &str) -> bool {
    matches!(request, Request::Statement { sql, .. } if sql.contains(words))
}

fn update() -> Statement {
    Statement::new("UPDATE stock SET pieces = pieces - 1 WHERE article = ?").with("a")
}

#[test]
fn texts_go_and_come_as_utf16() {
    let long: String = LETTERS.chars().cycle().take(9_000).collect();
    let answered = long.clone();
    let rows = move |request: &Request| {
        let row = vec![Some(LETTERS.to_owned()), None, Some(String::new()), Some(answered.clone())];
        has(request, "SELECT").then(|| Answer::Rows(vec![row]))
    };
    let Some(server) = stand_in(rows) else { return };
    let (database, _secrets) = database(&server);
    let mut connection = database.connection().unwrap();
    connection.begin().unwrap();
    let asked = Statement::new("SELECT ?, ?, ?, ?")
        .with(LETTERS)
        .with_optional(None::<String>)
        .with("")
        .with(long.as_str());
    let row = [Some(LETTERS.to_owned()), None, Some(String::new()), Some(long.clone())];
    assert_eq!(connection.rows(&asked, 5).unwrap(), [row]);
    let (_, values) = server.statements().pop().unwrap();
    let wide = |text: &str| Value::Wide(text.to_owned());
    assert_eq!(values, [wide(LETTERS), Value::Null, wide(""), wide(&long)]);
    let declared = server.heard().into_iter().find_map(|heard| match heard {
        Request::Statement { types, is_call: true, .. } => Some(types),
        _ => None,
    });
    // Not ntext, which many functions do not take.
    let types = "@P1 NVARCHAR(12),@P2 NVARCHAR(1),@P3 NVARCHAR(1),@P4 NVARCHAR(MAX)";
    assert_eq!(declared.unwrap(), types);
    for letters in [3_999, 4_000, 4_001] {
        let text = "ß".repeat(letters);
        connection.run(&Statement::new("UPDATE a SET b = ?").with(text.as_str())).unwrap();
        let (_, values) = server.statements().pop().unwrap();
        assert_eq!(values, [Value::Wide(text)], "{letters}");
    }
    let log_in = Request::LogIn {
        user: "erp".to_owned(),
        database: "ERP".to_owned(),
        program: "oncebox".to_owned(),
        is_odbc: true,
    };
    assert_eq!(server.heard().first(), Some(&log_in));
}

#[test]
fn each_transaction_begins_with_its_settings_and_ends_by_a_request() {
    let Some(server) = stand_in(|_| None) else { return };
    let (database, _secrets) = database(&server);
    let mut connection = database.connection().unwrap();
    for _ in 0..2 {
        connection.begin().unwrap();
        assert_eq!(connection.run(&update()).unwrap(), Some(1));
        connection.commit().unwrap();
    }
    connection.begin().unwrap();
    connection.roll_back().unwrap();
    let set = "SET TRANSACTION ISOLATION";
    let once = [set, "UPDATE stock SET", "commit, begin"];
    let wanted = [&["begin"], once.as_slice(), &once, &[set, "roll back, begin"]].concat();
    assert_eq!(server.story(), wanted);
    let (settings, _) = server.statements().swap_remove(0);
    for part in [
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;",
        "SET LOCK_TIMEOUT 5000;",
        "SET XACT_ABORT ON;",
        "SET NOCOUNT OFF;",
        "SET ROWCOUNT 0;",
        // A language resets the order of dates.
        "SET LANGUAGE us_english; SET DATEFORMAT ymd;",
    ] {
        assert!(settings.contains(part), "{part}: {settings}");
    }
}

/// A row: number, severity, words of the server, what follows, the words that are left.
type Case = (i32, u8, &'static str, Class, &'static str);

#[rustfmt::skip]
const ERRORS: &[Case] = &[
    (1205, 13, "Transaction (Process ID 51) was deadlocked on lock resources.", Class::Again, "was deadlocked"),
    (1222, 16, "Lock request time out period exceeded.", Class::Again, "time out"),
    (2627, 14, "Violation of PRIMARY KEY constraint 'pk'. Cannot insert duplicate key in object 'dbo.t'. The duplicate key value is (secret).", Class::Refused, "'dbo.t'. The duplicate key value is (…)"),
    (2601, 14, "Cannot insert duplicate key row in object 'dbo.t' with unique index 'ix'. The duplicate key value is (secret).", Class::Refused, "'ix'. The duplicate key value is (…)"),
    (547, 16, "The UPDATE statement conflicted with the CHECK constraint \"positive\".", Class::Refused, "positive"),
    (515, 16, "Cannot insert the value NULL into column 'c', table 'd.dbo.t'; column does not allow nulls. INSERT fails.", Class::Refused, "column 'c'"),
    (229, 14, "The INSERT permission was denied on the object 't', database 'd', schema 'dbo'.", Class::AuthHold, "INSERT permission was denied"),
    (208, 16, "Invalid object name 'nothere'.", Class::SchemaHold, "'nothere'"),
    (207, 16, "Invalid column name 'nocolumn'.", Class::SchemaHold, "'nocolumn'"),
    (245, 16, "Conversion failed when converting the nvarchar value 'secret' to data type int.", Class::Refused, "value '…' to data type int"),
    (8152, 16, "String or binary data would be truncated.", Class::Refused, "truncated"),
    (2628, 16, "String or binary data would be truncated in table 'd.dbo.t', column 'c'. Truncated value: 'secret'.", Class::Refused, "column 'c'. Truncated value: …"),
    (50000, 16, "the period is closed: März", Class::Refused, "the period is closed: März"),
    (51234, 16, "the stock is empty", Class::Refused, "the stock is empty"),
    (266, 16, "Transaction count after EXECUTE indicates a mismatching number of BEGIN and COMMIT statements.", Class::SchemaHold, "take COMMIT, ROLLBACK"),
    (9002, 17, "The transaction log for database 'ERP' is full.", Class::Away, "is full"),
    (1105, 17, "Could not allocate space for object 't' in database 'ERP'.", Class::Away, "Could not allocate"),
    (3998, 16, "Uncommittable transaction is detected at the end of the batch. The transaction is rolled back.", Class::Unknown, "Uncommittable"),
];

#[test]
fn errors_are_judged_as_they_come_through_the_driver() {
    for (number, severity, message, class, left) in ERRORS {
        let script = |request: &Request| {
            has(request, "UPDATE").then(|| Answer::Error {
                number: *number,
                severity: *severity,
                words: (*message).to_owned(),
                ends_transaction: true,
            })
        };
        let Some(server) = stand_in(script) else { return };
        let (database, _secrets) = database(&server);
        let mut connection = database.connection().unwrap();
        connection.begin().unwrap();
        let error = connection.run(&update()).unwrap_err();
        let failure = database.judge(&error);
        assert_eq!(failure.class, *class, "{}", words(&error));
        assert!(failure.words.contains(left), "{number}: {failure}");
        assert!(!failure.words.contains("secret"), "{number}: {failure}");
    }
}

#[test]
fn a_log_on_that_is_refused_is_a_matter_of_rights() {
    let script = |request: &Request| {
        matches!(request, Request::LogIn { .. }).then(|| Answer::Error {
            number: 18456,
            severity: 14,
            words: "Login failed for user 'erp'.".to_owned(),
            ends_transaction: false,
        })
    };
    let Some(server) = stand_in(script) else { return };
    let (database, _secrets) = database(&server);
    let error = database.connection().unwrap_err();
    let failure = database.judge(&error);
    assert_eq!(failure.class, Class::AuthHold, "{}", words(&error));
    assert!(failure.words.contains("Login failed for user 'erp'."), "{failure}");
    assert!(!failure.words.contains("pass"), "{failure}");
}

#[test]
fn an_error_after_another_result_is_not_hidden() {
    let error = || Answer::error(2627, "Violation of PRIMARY KEY constraint 'pk'.");
    let after: [(&str, Vec<Answer>); 5] = [
        ("a number of rows", vec![Answer::Changed(1), error()]),
        ("no number", vec![Answer::Done, error()]),
        ("rows", vec![Answer::value("x"), error()]),
        (
            "rows and numbers",
            vec![Answer::value("x"), Answer::Changed(1), Answer::Changed(2), error()],
        ),
        ("words", vec![Answer::Words("on the way".to_owned()), error(), Answer::Changed(1)]),
    ];
    for (what, results) in after {
        let script =
            move |request: &Request| has(request, "take").then(|| Answer::Several(results.clone()));
        let Some(server) = stand_in(script) else { return };
        let (database, _secrets) = database(&server);
        let plain = Statement::new;
        for call in
            [plain("EXEC take ?").with("a"), plain("EXEC take"), plain("take one; take two")]
        {
            let mut connection = database.connection().unwrap();
            connection.begin().unwrap();
            match connection.run(&call) {
                Err(Error::Refused(refusal)) => assert_eq!(refusal.native, 2627, "{what}"),
                other => panic!("{} after {what}: {other:?}", call.sql),
            }
            drop(connection.roll_back());
        }
    }
}

#[test]
fn the_number_of_rows_is_that_of_a_statement_and_the_last_one_of_a_procedure() {
    for (sql, results, rows) in [
        ("take", vec![Answer::Changed(3)], Some(3)),
        ("take one; take two", vec![Answer::Changed(2), Answer::Changed(5)], Some(2)),
        ("EXEC take", vec![Answer::Changed(2), Answer::Changed(5)], Some(5)),
        ("EXEC take", vec![Answer::value("x"), Answer::Changed(5)], None),
    ] {
        let several = results.clone();
        let script =
            move |request: &Request| has(request, "take").then(|| Answer::Several(several.clone()));
        let Some(server) = stand_in(script) else { return };
        let (database, _secrets) = database(&server);
        let mut connection = database.connection().unwrap();
        connection.begin().unwrap();
        assert_eq!(connection.run(&Statement::new(sql)).unwrap(), rows, "{results:?}");
        connection.commit().unwrap();
        assert!(!server.heard().contains(&Request::Attention), "nothing is cut off");
    }
}

/// As SQL Server does it under `XACT_ABORT`: the transaction is gone, and a request to roll it back is an error.
#[test]
fn after_an_error_that_ended_the_transaction_the_next_one_is_on_another_connection() {
    let script = |request: &Request| {
        has(request, "nothere").then(|| Answer::error(208, "Invalid object name 'nothere'."))
    };
    let Some(server) = stand_in(script) else { return };
    let (database, _secrets) = database(&server);
    let mut connection = database.connection().unwrap();
    connection.begin().unwrap();
    connection.run(&Statement::new("UPDATE nothere SET a = 1")).unwrap_err();
    connection.roll_back().unwrap_err();
    connection.begin().unwrap();
    assert_eq!(connection.run(&update()).unwrap(), Some(1));
    connection.commit().unwrap();
    let log_ons = server.heard().into_iter().filter(|heard| matches!(heard, Request::LogIn { .. }));
    assert_eq!(log_ons.count(), 2);
    let story = server.story();
    let last = ["begin", "SET TRANSACTION ISOLATION", "UPDATE stock SET", "commit, begin"];
    assert!(story.ends_with(&last.map(str::to_owned)), "{story:?}");
}

/// Who stops a statement ends the transaction, under `XACT_ABORT`.
#[test]
fn rows_are_read_to_their_end_so_that_the_transaction_stays() {
    let script = |request: &Request| has(request, "SELECT").then(|| Answer::value("7"));
    let Some(server) = stand_in(script) else { return };
    let (database, _secrets) = database(&server);
    let mut connection = database.connection().unwrap();
    connection.begin().unwrap();
    let asked = Statement::new("SELECT TOP (1) id FROM outbox WITH (UPDLOCK)");
    assert_eq!(connection.rows(&asked, 1).unwrap(), [[Some("7".to_owned())]]);
    connection.run(&update()).unwrap();
    connection.commit().unwrap();
    assert!(!server.heard().contains(&Request::Attention), "{:?}", server.story());
}

#[test]
fn a_commit_without_a_transaction_is_no_success() {
    let script = |request: &Request| has(request, "EXEC").then_some(Answer::Ends);
    let Some(server) = stand_in(script) else { return };
    let (database, _secrets) = database(&server);
    let mut connection = database.connection().unwrap();
    connection.begin().unwrap();
    connection.run(&Statement::new("EXEC take")).unwrap();
    let error = connection.commit().unwrap_err();
    assert!(words(&error).contains("3902"), "{}", words(&error));
    assert_eq!(database.judge(&error).class, Class::SchemaHold);
}

#[test]
fn a_line_that_is_cut_is_a_database_that_is_away() {
    for cut in [Request::Commit { begins: true }, Request::RollBack { begins: true }] {
        let at = cut.clone();
        let script = move |request: &Request| (*request == at).then_some(Answer::Cut);
        let Some(server) = stand_in(script) else { return };
        let (database, _secrets) = database(&server);
        let mut connection = database.connection().unwrap();
        connection.begin().unwrap();
        connection.run(&update()).unwrap();
        let error = match cut {
            Request::Commit { .. } => connection.commit().unwrap_err(),
            _ => connection.roll_back().unwrap_err(),
        };
        assert_eq!(database.judge(&error).class, Class::Away, "{}", words(&error));
    }
}

#[test]
fn a_server_that_does_not_encrypt_is_refused_unless_the_settings_allow_it() {
    let Some(server) = stand_in(|_| None) else { return };
    let (mut settings, _secrets) = settings(&server);
    settings.tls = true;
    let database = Site::database(&settings, Duration::from_mins(1));
    let error = database.connection().unwrap_err();
    assert_eq!(database.judge(&error).class, Class::Away, "{}", words(&error));
    assert_eq!(server.heard(), [], "no password was sent");
}
