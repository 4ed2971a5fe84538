//! The kinds of databases of others that Oncebox speaks to.

use crate::base::words::words;

words! {
    /// A kind of database.
    pub enum Product {
        /// `PostgreSQL`, and what speaks like it.
        Postgresql = "postgresql",
        /// `MariaDB` and `MySQL`.
        Mariadb = "mariadb",
        /// Microsoft SQL Server.
        SqlServer = "sqlserver",
    }
}

/// Parts of the names that drivers of ODBC have, in small letters.
const DRIVERS: [(&str, Product); 8] = [
    ("postgres", Product::Postgresql),
    ("psqlodbc", Product::Postgresql),
    ("mariadb", Product::Mariadb),
    ("maodbc", Product::Mariadb),
    ("mysql", Product::Mariadb),
    ("freetds", Product::SqlServer),
    ("tdsodbc", Product::SqlServer),
    ("sql server", Product::SqlServer),
];

impl Product {
    /// The kind of database that a driver is for, if its name tells.
    pub fn of_driver(driver: &str) -> Option<Self> {
        let driver = driver.to_lowercase();
        let known = DRIVERS.iter().find(|(part, _)| driver.contains(part));
        known.map(|(_, product)| *product)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_drivers_tell_what_they_are_for() {
        for (driver, product) in [
            ("PostgreSQL Unicode", Some(Product::Postgresql)),
            ("/usr/lib/x86_64-linux-gnu/odbc/psqlodbcw.so", Some(Product::Postgresql)),
            ("MariaDB Unicode", Some(Product::Mariadb)),
            ("MySQL ODBC 8.0 Unicode Driver", Some(Product::Mariadb)),
            ("FreeTDS", Some(Product::SqlServer)),
            ("ODBC Driver 18 for SQL Server", Some(Product::SqlServer)),
            ("Firebird", None),
        ] {
            assert_eq!(Product::of_driver(driver), product, "{driver}");
        }
    }
}
