//! What a driver is told to connect: the settings of a database in the driver's own words.
//!
//! Encrypted and with a checked certificate unless the settings say otherwise. Whatever a driver might misread is refused.

use zeroize::Zeroizing;

use crate::config::databases::DatabaseAt;
use crate::databases::product::Product;

/// Why there is none. It continues a sentence that begins with the database.
pub type Unfit = String;

/// Characters that end a value in a connection string, or begin a quoted one.
const SPECIAL: &[char] =
    &['[', ']', '{', '}', '(', ')', ',', ';', '?', '*', '=', '!', '@', '\'', '"', '\\'];

/// The drivers that differ in how they are told.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dialect {
    Psqlodbc,
    MariadbConnector,
    MysqlConnector,
    FreeTds,
    Microsoft,
}

/// The connection string. `machines_ca`: the file of the authorities that the machine trusts.
pub fn connection_string(
    database: &DatabaseAt,
    product: Product,
    password: Option<&str>,
    machines_ca: Option<&str>,
) -> Result<Zeroizing<String>, Unfit> {
    let dialect = dialect_of(database, product);
    let mut text = Pairs(Zeroizing::new(String::new()));
    match (&database.driver, &database.dsn) {
        (Some(driver), _) if driver.contains(['{', '}', ';']) => {
            return Err(format!(
                "has the driver {driver:?}: a name has no braces and no semicolon"
            ));
        }
        (Some(driver), _) => text.quoted("Driver", driver),
        (None, Some(dsn)) => text.unquoted("DSN", dsn)?,
        (None, None) => return Err("has neither a driver nor a dsn".to_owned()),
    }
    text.server(database, dialect)?;
    if let Some(name) = &database.database {
        text.unquoted("Database", name)?;
    }
    if let Some(user) = &database.user {
        text.unquoted("UID", user)?;
    }
    if let Some(password) = password {
        text.password(password, dialect)?;
    }
    text.encryption(database, dialect, machines_ca)?;
    text.habits(dialect);
    Ok(text.0)
}

/// Whether the driver checks the server's certificate where the connection is encrypted.
pub fn checks_certificate(database: &DatabaseAt, product: Product) -> bool {
    dialect_of(database, product) != Dialect::FreeTds
}

fn dialect_of(database: &DatabaseAt, product: Product) -> Dialect {
    let driver = database.driver.as_deref().unwrap_or_default().to_lowercase();
    match product {
        Product::Postgresql => Dialect::Psqlodbc,
        Product::Mariadb if driver.contains("mysql") => Dialect::MysqlConnector,
        Product::Mariadb => Dialect::MariadbConnector,
        Product::SqlServer if driver.contains("odbc driver") || driver.contains("msodbc") => {
            Dialect::Microsoft
        }
        Product::SqlServer => Dialect::FreeTds,
    }
}

/// Keys and values, each with a semicolon after it.
struct Pairs(Zeroizing<String>);

impl Pairs {
    fn pair(&mut self, key: &str, value: &str) {
        self.0.push_str(key);
        self.0.push('=');
        self.0.push_str(value);
        self.0.push(';');
    }

    fn quoted(&mut self, key: &str, value: &str) {
        let value = Zeroizing::new(value.replace('}', "}}"));
        self.pair(key, &Zeroizing::new(format!("{{{}}}", value.as_str())));
    }

    /// A value that not every driver reads in quotes.
    fn unquoted(&mut self, key: &str, value: &str) -> Result<(), Unfit> {
        let odd = |c: char| SPECIAL.contains(&c) || c.is_control();
        match value.chars().find(|c| odd(*c)) {
            Some(c) => Err(format!("has {c:?} in {key} {value:?}: a driver would misread it")),
            None if value.trim() != value => Err(format!("has spaces around {key} {value:?}")),
            None => {
                self.pair(key, value);
                Ok(())
            }
        }
    }

    fn password(&mut self, password: &str, dialect: Dialect) -> Result<(), Unfit> {
        if password.chars().any(char::is_control) {
            return Err("has a password with a line end or another control character".to_owned());
        }
        if dialect == Dialect::FreeTds && password.contains('}') {
            return Err("has a password with }, which FreeTDS cannot be told".to_owned());
        }
        self.quoted("PWD", password);
        Ok(())
    }

    fn server(&mut self, database: &DatabaseAt, dialect: Dialect) -> Result<(), Unfit> {
        let port = database.port.map(|port| port.to_string());
        let Some(server) = &database.server else {
            if let Some(port) = port {
                self.pair("Port", &port);
            }
            return Ok(());
        };
        let is_socket = server.starts_with('/');
        match (dialect, port) {
            (Dialect::MariadbConnector | Dialect::MysqlConnector, _) if is_socket => {
                self.unquoted("Socket", server)?;
            }
            (Dialect::Microsoft, Some(port)) => {
                self.unquoted("Server", server)?;
                // The port belongs to the server, after a comma.
                self.0.pop();
                for part in [",", &port, ";"] {
                    self.0.push_str(part);
                }
            }
            (_, port) => {
                self.unquoted("Server", server)?;
                if let Some(port) = port {
                    self.pair("Port", &port);
                }
            }
        }
        Ok(())
    }

    fn encryption(
        &mut self,
        database: &DatabaseAt,
        dialect: Dialect,
        machines_ca: Option<&str>,
    ) -> Result<(), Unfit> {
        let own_ca = database.ca_file.as_ref().map(|path| path.display().to_string());
        let ca = own_ca.as_deref().or(machines_ca).filter(|_| database.tls);
        match (dialect, database.tls) {
            (Dialect::Psqlodbc, true) => self.pair("SSLmode", "verify-full"),
            (Dialect::Psqlodbc, false) => self.pair("SSLmode", "disable"),
            (Dialect::MariadbConnector, true) => self.pair("ForceTLS", "1;SSLVERIFY=1"),
            (Dialect::MysqlConnector, true) => self.pair("SSLMODE", "VERIFY_IDENTITY"),
            (Dialect::MysqlConnector, false) => self.pair("SSLMODE", "DISABLED"),
            (Dialect::FreeTds, true) => self.pair("Encryption", "require"),
            (Dialect::FreeTds, false) => self.pair("Encryption", "off"),
            (Dialect::Microsoft, true) => self.pair("Encrypt", "yes;TrustServerCertificate=no"),
            (Dialect::Microsoft, false) => self.pair("Encrypt", "no"),
            (Dialect::MariadbConnector, false) => {}
        }
        match (dialect, ca) {
            (Dialect::Psqlodbc, ca) => return self.options_of_libpq(ca),
            (Dialect::MariadbConnector | Dialect::MysqlConnector, Some(ca)) => {
                self.unquoted("SSLCA", ca)?;
            }
            (Dialect::FreeTds, Some(_)) if own_ca.is_some() => {
                return Err(
                    "has a ca_file: FreeTDS reads it from freetds.conf (ca file = …) alone"
                        .to_owned(),
                );
            }
            (Dialect::Microsoft, Some(_)) if own_ca.is_some() => {
                return Err(
                    "has a ca_file: Microsoft's driver trusts the machine's authorities alone"
                        .to_owned(),
                );
            }
            (_, _) => {}
        }
        Ok(())
    }

    /// What the library below psqlodbc is told. A line that is silent is given up by the kernel after a while, too.
    fn options_of_libpq(&mut self, ca: Option<&str>) -> Result<(), Unfit> {
        let mut options = "application_name=oncebox tcp_user_timeout=30000".to_owned();
        if let Some(ca) = ca {
            if ca.contains(['\'', '\\', '}', '{']) || ca.chars().any(char::is_control) {
                return Err(format!("has the ca_file {ca:?}: a driver would misread the path"));
            }
            options = format!("{options} sslrootcert='{ca}'");
        }
        self.quoted("pqopt", &options);
        Ok(())
    }

    /// How a driver behaves.
    fn habits(&mut self, dialect: Dialect) {
        match dialect {
            // After an error we roll back: no savepoint for each statement.
            Dialect::Psqlodbc => {
                self.pair("Protocol", "7.4-0");
                // The driver sets it for the session, which behind a pooler would be somebody else's next.
                self.quoted("ConnSettings", "RESET extra_float_digits");
            }
            Dialect::FreeTds => self.pair("TDS_Version", "7.4;ClientCharset=UTF-8;APP=oncebox"),
            Dialect::Microsoft => self.pair("APP", "oncebox"),
            Dialect::MariadbConnector | Dialect::MysqlConnector => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn odoo() -> DatabaseAt {
        DatabaseAt {
            driver: Some("PostgreSQL Unicode".to_owned()),
            server: Some("10.0.0.5".to_owned()),
            port: Some(5432),
            database: Some("odoo".to_owned()),
            user: Some("oncebox".to_owned()),
            ..DatabaseAt::default()
        }
    }

    fn of(database: &DatabaseAt, password: &str) -> Result<String, Unfit> {
        let product = database.product().unwrap();
        let text = connection_string(database, product, Some(password), Some("/ca.crt"))?;
        Ok(text.as_str().to_owned())
    }

    #[test]
    fn each_driver_is_told_in_its_own_words() {
        let with = |driver: &str| DatabaseAt { driver: Some(driver.to_owned()), ..odoo() };
        for (driver, wanted) in [
            (
                "PostgreSQL Unicode",
                "Driver={PostgreSQL Unicode};Server=10.0.0.5;Port=5432;Database=odoo;UID=oncebox;PWD={a}};b};\
                 SSLmode=verify-full;pqopt={application_name=oncebox tcp_user_timeout=30000 sslrootcert='/ca.crt'};\
                 Protocol=7.4-0;ConnSettings={RESET extra_float_digits};",
            ),
            (
                "MariaDB Unicode",
                "Driver={MariaDB Unicode};Server=10.0.0.5;Port=5432;Database=odoo;UID=oncebox;PWD={a}};b};ForceTLS=1;\
                 SSLVERIFY=1;SSLCA=/ca.crt;",
            ),
            (
                "MySQL ODBC 8.0 Unicode Driver",
                "Driver={MySQL ODBC 8.0 Unicode Driver};Server=10.0.0.5;Port=5432;Database=odoo;UID=oncebox;\
                 PWD={a}};b};SSLMODE=VERIFY_IDENTITY;SSLCA=/ca.crt;",
            ),
            (
                "ODBC Driver 18 for SQL Server",
                "Driver={ODBC Driver 18 for SQL Server};Server=10.0.0.5,5432;Database=odoo;UID=oncebox;PWD={a}};b};\
                 Encrypt=yes;TrustServerCertificate=no;APP=oncebox;",
            ),
        ] {
            assert_eq!(of(&with(driver), "a};b").unwrap(), wanted);
        }
        assert_eq!(
            of(&with("FreeTDS"), "a;b").unwrap(),
            "Driver={FreeTDS};Server=10.0.0.5;Port=5432;Database=odoo;UID=oncebox;PWD={a;b};Encryption=require;\
             TDS_Version=7.4;ClientCharset=UTF-8;APP=oncebox;"
        );
    }

    #[test]
    fn without_encryption_only_if_it_is_said() {
        let database = DatabaseAt { tls: false, ..odoo() };
        let text = of(&database, "x").unwrap();
        assert!(text.contains("SSLmode=disable;") && !text.contains("/ca.crt"), "{text}");
        let text = connection_string(&odoo(), Product::Postgresql, None, None).unwrap();
        assert!(text.contains("SSLmode=verify-full;") && !text.contains("PWD"), "{}", *text);
    }

    #[test]
    fn a_socket_and_a_data_source_have_their_own_words() {
        let mut database = DatabaseAt {
            driver: Some("MariaDB Unicode".to_owned()),
            server: Some("/run/mysqld/mysqld.sock".to_owned()),
            ..DatabaseAt::default()
        };
        assert!(of(&database, "x").unwrap().contains(";Socket=/run/mysqld/mysqld.sock;"));
        database = DatabaseAt {
            dsn: Some("erp".to_owned()),
            product: Some(Product::Mariadb),
            ..DatabaseAt::default()
        };
        assert!(of(&database, "x").unwrap().starts_with("DSN=erp;PWD={x};"));
    }

    #[test]
    fn what_a_driver_would_misread_is_refused_by_name() {
        let refused = [
            (DatabaseAt { server: Some("a;UID=root".to_owned()), ..odoo() }, "x", "';' in Server"),
            (
                DatabaseAt { database: Some(" odoo".to_owned()), ..odoo() },
                "x",
                "spaces around Database",
            ),
            (DatabaseAt { user: Some("a\nb".to_owned()), ..odoo() }, "x", "'\\n' in UID"),
            (DatabaseAt { driver: Some("FreeTDS".to_owned()), ..odoo() }, "a}b", "password with }"),
            (DatabaseAt { driver: Some("postgres}".to_owned()), ..odoo() }, "x", "no braces"),
            (DatabaseAt { ca_file: Some("/a'b".into()), ..odoo() }, "x", "misread the path"),
            (
                DatabaseAt {
                    driver: Some("FreeTDS".to_owned()),
                    ca_file: Some("/ca".into()),
                    ..odoo()
                },
                "x",
                "freetds.conf",
            ),
            (odoo(), "secret\u{0}", "control character"),
        ];
        for (database, password, wanted) in refused {
            let why = of(&database, password).unwrap_err();
            assert!(why.contains(wanted), "{why}");
            assert!(!why.contains("secret"), "{why}");
        }
    }
}
