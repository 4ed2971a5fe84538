//! What each kind of database is told at the beginning of a transaction.

pub use crate::model::database_product::Product;

/// `SET LOCAL` ends with the transaction, so that nothing stays on a connection of a pooler.
const POSTGRESQL: &[&str] = &["SET TRANSACTION ISOLATION LEVEL READ COMMITTED; \
     SET LOCAL TimeZone = 'UTC'; \
     SET LOCAL DateStyle = 'ISO'; \
     SET LOCAL IntervalStyle = 'iso_8601'; \
     SET LOCAL lock_timeout = '5s'; \
     SET LOCAL statement_timeout = '30s'; \
     SET LOCAL idle_in_transaction_session_timeout = '60s'; \
     SET LOCAL synchronous_commit = on"];

/// At its default, repeatable read, a read with locks would block every insert of others. `/*M!…*/` is read by `MariaDB` alone;
/// `MySQL` has no limit for statements that change something.
const MARIADB: &[&str] = &[
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SET SESSION time_zone = '+00:00', sql_mode = 'TRADITIONAL,NO_ENGINE_SUBSTITUTION', \
     innodb_lock_wait_timeout = 5, lock_wait_timeout = 5 /*M!100100 , max_statement_time = 30 */",
];

/// A language brings its own order of dates, so that the order comes after it.
const SQL_SERVER: &[&str] = &[
    "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET LOCK_TIMEOUT 5000; \
     SET XACT_ABORT ON; SET NOCOUNT OFF; SET ROWCOUNT 0; SET LANGUAGE us_english; SET DATEFORMAT ymd; \
     SET ANSI_WARNINGS ON",
];

/// The statements that come first in each transaction.
pub fn setup(product: Product) -> &'static [&'static str] {
    match product {
        Product::Postgresql => POSTGRESQL,
        Product::Mariadb => MARIADB,
        Product::SqlServer => SQL_SERVER,
    }
}
