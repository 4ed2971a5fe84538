//! `oncebox database test`: connects to a database of the settings, and says what was found and what to do.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::databases::connection::{Connection, Error, Refusal};
use crate::databases::connection_string::checks_certificate;
use crate::databases::database::{Database, Lease};
use crate::databases::failure::{Class, Failure};
use crate::databases::product::Product;
use crate::databases::store::{self, Needed};
use crate::model::health::{Check, Level};

/// Whether a subscription writes into the database, which needs the guard; sources do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// One does.
    Needed,
    /// None does.
    NotNeeded,
}

/// What was found, in the order of a connection.
pub fn checks(database: &Arc<Database>, needed: Guard) -> Vec<Check> {
    let mut connection = match database.connection_of_test() {
        Ok(connection) => connection,
        Err(error) => return vec![unreachable_database(database, &error)],
    };
    let mut checks = Vec::new();
    match facts(&mut connection, database) {
        Ok(facts) => {
            checks.extend(facts.checks(database));
            let found = guard(&mut connection, database, &facts.user);
            checks.push(if needed == Guard::Needed { found } else { for_later(found) });
        }
        Err(error) => checks.push(fail("connection", database.judge(&error).words)),
    }
    checks
}

fn check(name: &'static str, level: Level, value: Value, detail: impl Into<String>) -> Check {
    Check::new(name, level, value, detail)
}

fn fail(name: &'static str, detail: impl Into<String>) -> Check {
    check(name, Level::Fail, Value::Null, detail)
}

/// Why there is no connection, and the next step.
fn unreachable_database(database: &Database, error: &Error) -> Check {
    let Failure { class, words } = database.judge(error);
    let name = database.name();
    let next = match (class, error) {
        (_, Error::Refused(refusal)) if lacks_driver(refusal) => format!(
            "install the driver: apt-get install {}; odbcinst -q -d lists what is there",
            package_of(database.product())
        ),
        (Class::AuthHold, _) => {
            format!(
                "correct user and password_file in [databases.{name}], or the server's list of who may connect"
            )
        }
        (Class::SchemaHold, _) => format!("correct database in [databases.{name}]"),
        (_, Error::Lost(_)) => "then test it again".to_owned(),
        _ => format!(
            "is the server there? Look at server, port, tls and ca_file in [databases.{name}]"
        ),
    };
    check("connection", Level::Fail, json!(false), format!("{words}; {next}"))
}

/// unixODBC found no driver of that name, or not its library.
fn lacks_driver(refusal: &Refusal) -> bool {
    refusal.message.contains("Can't open lib")
        || ["IM002", "IM003"].contains(&refusal.sqlstate.as_str())
}

/// The package of Debian that has the driver.
fn package_of(product: Product) -> &'static str {
    match product {
        Product::Postgresql => "odbc-postgresql",
        Product::Mariadb => "odbc-mariadb",
        Product::SqlServer => "tdsodbc",
    }
}

/// What the database says of itself.
struct Facts {
    version: String,
    isolation: String,
    durability: String,
    letters: String,
    user: String,
    encryption: Option<String>,
}

fn facts(connection: &mut Lease, database: &Database) -> Result<Facts, Error> {
    connection.begin()?;
    let rows = connection.rows(&store::facts(database.product()), 1)?;
    connection.roll_back()?;
    let mut values = rows.into_iter().flatten();
    let mut next = || values.next().flatten();
    Ok(Facts {
        version: next().unwrap_or_default(),
        isolation: next().unwrap_or_default(),
        durability: next().unwrap_or_default(),
        letters: next().unwrap_or_default(),
        user: next().unwrap_or_default(),
        encryption: next(),
    })
}

impl Facts {
    fn checks(&self, database: &Database) -> [Check; 5] {
        let product = database.product();
        let Self { version, isolation, durability, letters, encryption, .. } = self;
        let server = check("connection", Level::Ok, json!(version), format!("{product} {version}"));
        let encryption = match (encryption, database.settings().tls) {
            (Some(how), _) => check("tls", Level::Ok, json!(how), how.clone()),
            (None, false) => check("tls", Level::Warn, json!(false), "not encrypted: tls = false"),
            (None, true) if product == Product::SqlServer => encrypted_by_driver(database),
            // A socket of this machine.
            (None, true) => check("tls", Level::Ok, json!(false), "not needed on this way"),
        };
        let committed = isolation.to_lowercase().replace('-', " ") == "read committed";
        let level = if committed { Level::Ok } else { Level::Fail };
        let isolation = check("isolation", level, json!(isolation), isolation.clone());
        [server, encryption, isolation, durable(product, durability), known_letters(letters)]
    }
}

/// SQL Server tells it to administrators alone; the drivers refuse a server that does not encrypt.
fn encrypted_by_driver(database: &Database) -> Check {
    if checks_certificate(database.settings(), database.product()) {
        return check("tls", Level::Ok, json!(true), "encrypted, as the driver was told");
    }
    let detail = "encrypted, as the driver was told; FreeTDS checks the server's certificate only if freetds.conf has a \
                  ca file for it";
    check("tls", Level::Warn, json!(true), detail)
}

/// Whether what is committed stays after a power cut.
fn durable(product: Product, found: &str) -> Check {
    let (is_durable, shown, next) = match product {
        Product::Postgresql => (
            found.starts_with("on, fsync on") || found.starts_with("remote_apply, fsync on"),
            format!("synchronous_commit {found}"),
            "set fsync = on in postgresql.conf",
        ),
        Product::Mariadb => (
            found == "1",
            format!("innodb_flush_log_at_trx_commit {found}"),
            "set innodb_flush_log_at_trx_commit = 1 in the server's settings",
        ),
        Product::SqlServer => (
            found != "FORCED",
            format!("delayed durability {found}"),
            "ALTER DATABASE CURRENT SET DELAYED_DURABILITY = DISABLED",
        ),
    };
    if is_durable {
        return check("durability", Level::Ok, json!(found), shown);
    }
    let detail = format!("{shown}: a power cut may take back what was committed; {next}");
    check("durability", Level::Warn, json!(found), detail)
}

fn known_letters(found: &str) -> Check {
    if found == "SQL_ASCII" {
        let detail = "SQL_ASCII: the database does not know which letters its bytes are. They are read and written as UTF-8; \
                      a row with other bytes is quarantined (databases.md has what converts them)";
        return check("letters", Level::Warn, json!(found), detail);
    }
    check("letters", Level::Ok, json!(found), found)
}

/// What the guard would lack, while nobody needs it.
fn for_later(found: Check) -> Check {
    if found.level == Level::Ok {
        return found;
    }
    let detail = format!("not needed, as no subscription writes here. For one: {}", found.detail);
    check("guard", Level::Ok, found.value, detail)
}

/// Whether the user may use the guard.
fn guard(connection: &mut Lease, database: &Database, user: &str) -> Check {
    let product = database.product();
    let mut missing = Vec::new();
    for Needed { statement, grant } in store::needed_for_guard(product) {
        let tried = connection
            .begin()
            .and_then(|()| connection.run(&statement))
            .and_then(|_| connection.roll_back());
        let Err(error) = tried else { continue };
        // The transaction is broken, and may be gone with its connection.
        drop(connection.roll_back());
        let Failure { class, words } = database.judge(&error);
        match class {
            Class::AuthHold => missing.push(grant),
            Class::SchemaHold => {
                return fail("guard", format!("{words}; run: oncebox database ddl {product}"));
            }
            _ => return fail("guard", words),
        }
    }
    if missing.is_empty() {
        let detail = "processed_events is there, and the user may use it";
        return check("guard", Level::Ok, json!(true), detail);
    }
    let grant = format!("GRANT {} ON processed_events TO {user};", missing.join(", "));
    let detail = format!(
        "the user may not use processed_events. If it is not there yet: oncebox database ddl {product}. Else run: {grant}"
    );
    check("guard", Level::Fail, json!(grant), detail)
}
