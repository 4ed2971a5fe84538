//! `oncebox source ddl`: the table that an ERP needs, in its database's own words.

use clap::{Args, ValueEnum};

use crate::cli::{Failure, out};

/// Which database, and what the table is called
#[derive(Debug, Args)]
pub(super) struct Ddl {
    /// The ERP's database. This version reads sqlite; the others are for the ODBC source of a later one
    #[arg(value_enum)]
    database: Database,
    /// What the table is called
    #[arg(long, default_value = "outbox", value_name = "TABLE", value_parser = identifier)]
    table: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Database {
    Sqlite,
    Postgresql,
    Mariadb,
    Sqlserver,
}

/// What stands in the texts where the table's name belongs.
const TABLE: &str = "{table}";

impl Ddl {
    pub(super) fn print(&self) -> Result<(), Failure> {
        let text = match self.database {
            Database::Sqlite => include_str!("sqlite.sql"),
            Database::Postgresql => include_str!("postgresql.sql"),
            Database::Mariadb => include_str!("mariadb.sql"),
            Database::Sqlserver => include_str!("sqlserver.sql"),
        };
        out::bytes(text.replace(TABLE, &self.table).as_bytes())
    }
}

/// A name that needs no quotes anywhere.
fn identifier(text: &str) -> Result<String, String> {
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if starts && plain && text.len() <= 63 {
        return Ok(text.to_owned());
    }
    Err("use up to 63 letters, digits and _, beginning with a letter".to_owned())
}
