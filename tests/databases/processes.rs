//! The processes behind connections: they hang, crash and are killed, and nothing of a secret is seen from outside.

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use oncebox::databases::connection::{Connection, Error, Lost, Statement};
use oncebox::databases::database::Database;
use oncebox::databases::failure::Class;
use oncebox::databases::state::Standing;

use crate::databases::site::{PASSWORD, Site, sites};
use crate::rig::until;

const LONG: Duration = Duration::from_mins(1);

fn is_there(process: u32) -> bool {
    fs::exists(format!("/proc/{process}")).unwrap()
}

/// The whole way: a connection, a transaction, a row.
#[track_caller]
fn works(site: &Site, database: &Arc<Database>) {
    let mut connection = database.connection().unwrap();
    connection.begin().unwrap();
    assert_eq!(connection.rows(&site.echo().with("x"), 1).unwrap(), [[Some("x".to_owned())]]);
    connection.commit().unwrap();
}

#[test]
fn a_statement_past_its_deadline_is_killed_with_its_process_and_the_next_connection_works() {
    for site in sites() {
        let (settings, _directory) = site.settings(PASSWORD);
        let after = Duration::from_secs(2);
        let database = Site::database(&settings, after);
        let mut connection = database.connection().unwrap();
        connection.begin().unwrap();
        let process = connection.process().unwrap();
        let error = connection.rows(&site.minute(), 1).unwrap_err();
        assert_eq!(error, Error::Lost(Lost::Silent { after }));
        assert_eq!(database.judge(&error).class, Class::Away);
        assert!(!is_there(process));
        assert_eq!(connection.commit().unwrap_err(), Error::Lost(Lost::Ended));
        drop(connection);
        let state = database.state();
        assert_eq!((state.standing, state.restarts, state.in_use), (Standing::Away, 1, 0));
        assert_eq!(state.last_error.unwrap().words, "the database did not answer within 2s");
        works(&site, &database);
        assert_eq!(database.state().standing, Standing::Up);
    }
}

#[test]
fn a_process_that_crashes_is_a_lost_connection_and_nothing_more() {
    for site in sites() {
        let (settings, _directory) = site.settings(PASSWORD);
        let database = Site::database(&settings, LONG);
        let mut connection = database.connection().unwrap();
        connection.begin().unwrap();
        crash(connection.process().unwrap());
        let error = connection.run(&site.echo().with("x")).unwrap_err();
        assert_eq!(error, Error::Lost(Lost::Ended));
        drop(connection);
        works(&site, &database);
        // Between two transactions nobody even sees it.
        let idle = database.connection().unwrap();
        crash(idle.process().unwrap());
        drop(idle);
        works(&site, &database);
        assert_eq!(database.state().restarts, 2);
    }
}

/// A signal that comes from outside is let pass once by Rust's own handler, which waits for the fault to come again.
fn crash(process: u32) {
    let is_dead = || {
        let state = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        state.is_empty() || state.contains(") Z")
    };
    until("the process is dead", || {
        drop(Command::new("kill").args(["-SEGV", &process.to_string()]).output());
        is_dead()
    });
}

#[test]
fn connections_are_kept_bounded_and_ended_inside_a_transaction() {
    for site in sites() {
        let (mut settings, _directory) = site.settings(PASSWORD);
        settings.connections = 1;
        let database = Site::database(&settings, LONG);
        let connection = database.connection().unwrap();
        let first = connection.process();
        let waits = {
            let database = Arc::clone(&database);
            std::thread::spawn(move || database.connection().unwrap().process())
        };
        assert_eq!(database.state().in_use, 1);
        drop(connection);
        assert_eq!(waits.join().unwrap(), first);
        let table = Statement::new("CREATE TABLE bounded (id INTEGER PRIMARY KEY)");
        let mut connection = database.connection().unwrap();
        connection.begin().unwrap();
        connection.run(&table).unwrap();
        connection.commit().unwrap();
        connection.begin().unwrap();
        connection.run(&Statement::new("INSERT INTO bounded VALUES (1)")).unwrap();
        drop(connection);
        assert!(!is_there(first.unwrap()));
        let mut connection = database.connection().unwrap();
        connection.begin().unwrap();
        let count = Statement::new("SELECT count(*) FROM bounded");
        assert_eq!(connection.rows(&count, 1).unwrap(), [[Some("0".to_owned())]]);
    }
}

#[test]
fn nothing_of_a_password_is_seen_from_outside() {
    for site in sites() {
        let (settings, _directory) = site.settings(PASSWORD);
        let database = Site::database(&settings, LONG);
        let connection = database.connection().unwrap();
        let process = connection.process().unwrap();
        let arguments = fs::read(format!("/proc/{process}/cmdline")).unwrap();
        assert!(String::from_utf8_lossy(&arguments).ends_with("/oncebox-odbc\0"));
        // Others of the same user may not even look.
        if let Ok(environment) = fs::read(format!("/proc/{process}/environ")) {
            let environment = String::from_utf8_lossy(&environment);
            assert!(environment.contains("LC_ALL=C.UTF-8"));
            assert!(!environment.contains("pass;wo"), "{environment}");
        }
        let limits = fs::read_to_string(format!("/proc/{process}/limits")).unwrap();
        let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        assert!(core.contains(" 0 "), "{core}");
        let (wrong, _directory) = site.settings("wr-ong");
        let error = Site::database(&wrong, LONG).connection().unwrap_err();
        let database = Site::database(&wrong, LONG);
        let failure = database.judge(&error);
        assert_eq!(failure.class, Class::AuthHold, "{failure}");
        assert!(!format!("{failure} {error} {error:?}").contains("wr-ong"));
    }
}

#[test]
fn what_the_machine_lacks_is_said_with_what_to_do() {
    let Some(site) = crate::databases::site::postgresql() else { return };
    let (settings, directory) = site.settings(PASSWORD);
    let says = |settings: &oncebox::config::databases::DatabaseAt| {
        let database = Site::database(settings, LONG);
        let error = database.connection().unwrap_err();
        let failure = database.judge(&error);
        assert_eq!(failure.class, Class::Away, "{failure}");
        assert_eq!(database.state().standing, Standing::Away);
        failure.words
    };
    let mut other = settings.clone();
    other.program = Some("/nowhere/oncebox-odbc".into());
    assert_eq!(
        says(&other),
        "the program oncebox-odbc is not there; install the package oncebox-odbc (looked for: /nowhere/oncebox-odbc)"
    );
    other = settings.clone();
    other.driver = Some("PostgreSQL Unicorn".to_owned());
    assert!(says(&other).contains("Can't open lib 'PostgreSQL Unicorn'"));
    other = settings.clone();
    other.port = Some(1);
    assert!(says(&other).contains("Connection refused"));
    let file = directory.path().join("password");
    let chmod = Command::new("chmod").args(["0644", file.to_str().unwrap()]).status().unwrap();
    assert!(chmod.success());
    let said = says(&settings);
    assert!(said.contains("databases.erp cannot read its password_file"), "{said}");
    assert!(said.contains("chmod 600"), "{said}");
}
