//! The SQL of Oncebox's own for databases of others: what a test asks, and the tables into which events are written.

use crate::databases::connection::Statement;
use crate::databases::product::Product;

/// The tables into which events are written, with their grants. `inbox` and `user` are written as in SQL.
pub fn target_tables(product: Product, inbox: &str, user: &str) -> String {
    let text = match product {
        Product::Postgresql => include_str!("ddl/postgresql.sql"),
        Product::Mariadb => include_str!("ddl/mariadb.sql"),
        Product::SqlServer => include_str!("ddl/sqlserver.sql"),
    };
    text.replace("{inbox}", inbox).replace("{user}", user)
}

/// One row: version, isolation, what a commit is worth, the character set, the user as in a grant, and whether the connection is
/// encrypted.
pub fn facts(product: Product) -> Statement {
    Statement::new(match product {
        Product::Postgresql => {
            "SELECT current_setting('server_version'), current_setting('transaction_isolation'), \
             current_setting('synchronous_commit') || ', fsync ' || current_setting('fsync'), \
             current_setting('server_encoding'), quote_ident(current_user), \
             (SELECT CASE WHEN ssl THEN version || ' ' || cipher END FROM pg_stat_ssl WHERE pid = pg_backend_pid())"
        }
        Product::Mariadb => {
            "SELECT CAST(@@version AS CHAR), \
             (SELECT CAST(variable_value AS CHAR) FROM information_schema.session_variables WHERE variable_name = 'TX_ISOLATION'), \
             CAST(@@innodb_flush_log_at_trx_commit AS CHAR), CAST(@@character_set_database AS CHAR), \
             CONCAT('''', REPLACE(CURRENT_USER(), '@', '''@'''), ''''), \
             (SELECT NULLIF(CAST(variable_value AS CHAR), '') FROM information_schema.session_status \
              WHERE variable_name = 'SSL_CIPHER')"
        }
        Product::SqlServer => {
            // Whether it is encrypted is shown to administrators alone.
            "SELECT CAST(SERVERPROPERTY('ProductVersion') AS nvarchar(128)), \
             (SELECT CASE transaction_isolation_level WHEN 2 THEN N'read committed' \
              ELSE CAST(transaction_isolation_level AS nvarchar(10)) END FROM sys.dm_exec_sessions WHERE session_id = @@SPID), \
             (SELECT delayed_durability_desc FROM sys.databases WHERE database_id = DB_ID()), \
             CAST(DATABASEPROPERTYEX(DB_NAME(), 'Collation') AS nvarchar(128)), QUOTENAME(USER_NAME()), \
             CAST(NULL AS nvarchar(40))"
        }
    })
}

/// Something that the user must be allowed to do: a statement that does it to no row, and the grant that allows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needed {
    /// The statement. It changes nothing.
    pub statement: Statement,
    /// What is granted, such as `INSERT`.
    pub grant: &'static str,
}

/// What the guard needs.
pub fn needed_for_guard(product: Product) -> Vec<Needed> {
    let needed = |grant, sql| Needed { statement: Statement::new(sql), grant };
    let insert = needed(
        "INSERT",
        "INSERT INTO processed_events (consumer_group, event_id) SELECT 'a', 'a' FROM (SELECT 1 AS one) AS nothing WHERE 1 = 0",
    );
    match product {
        Product::Postgresql | Product::Mariadb => vec![insert],
        Product::SqlServer => {
            vec![insert, needed("SELECT", "SELECT event_id FROM processed_events WHERE 1 = 0")]
        }
    }
}
