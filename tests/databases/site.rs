//! The databases of these tests: one server of each kind for all of them, and how to connect to it.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use oncebox::base::clock::Clock;
use oncebox::base::secret::SecretBytes;
use oncebox::config::databases::DatabaseAt;
use oncebox::databases::connection::{Error, Statement};
use oncebox::databases::database::{Database, Databases, Machine};
use oncebox::databases::helper::{Deadlines, Helper, PROGRAM, Start};
use oncebox::databases::product::Product;
use tempfile::TempDir;

use crate::guards::server::{Mariadb, Postgresql};
use crate::rig;

/// The password of the user `erp` in both databases.
pub(crate) const PASSWORD: &str = "pass;wo}rd {with ='every\"thing";

/// Each is started by the first test that needs it; `None` where it is not installed.
static POSTGRESQL: OnceLock<Option<&'static Postgresql>> = OnceLock::new();
static MARIADB: OnceLock<Option<&'static Mariadb>> = OnceLock::new();

/// A database and how to reach it.
pub(crate) struct Site {
    pub(crate) product: Product,
    pub(crate) port: u16,
    program: PathBuf,
}

/// Each kind that this machine has. Says which it lacks.
pub(crate) fn sites() -> Vec<Site> {
    [postgresql(), mariadb()].into_iter().flatten().collect()
}

/// A `PostgreSQL`, or nothing after saying why.
pub(crate) fn postgresql() -> Option<Site> {
    let start = || {
        let server = Postgresql::start()?.shared();
        let user = format!(
            "CREATE ROLE erp LOGIN PASSWORD $p${PASSWORD}$p$; GRANT ALL ON SCHEMA public TO erp"
        );
        shell(&server.psql("-q"), &user);
        Some(server)
    };
    let server = *POSTGRESQL.get_or_init(start);
    site(Product::Postgresql, server.map(|server| server.port), "PostgreSQL Unicode")
}

/// A `MariaDB`, or nothing after saying why.
pub(crate) fn mariadb() -> Option<Site> {
    let start = || {
        let server = Mariadb::start()?.shared();
        let password = PASSWORD.replace('\'', "''");
        let user = format!(
            "ALTER DATABASE guards CHARACTER SET utf8mb4; CREATE USER erp IDENTIFIED BY '{password}';\n\
             GRANT ALL ON guards.* TO erp;"
        );
        shell(&server.client(""), &user);
        Some(server)
    };
    let server = *MARIADB.get_or_init(start);
    site(Product::Mariadb, server.map(|server| server.port), "MariaDB Unicode")
}

fn site(product: Product, port: Option<u16>, driver: &str) -> Option<Site> {
    let program = program();
    let lacks = match (port, has_driver(driver), &program) {
        (None, _, _) => format!("a server of {product}"),
        (_, false, _) => format!("the ODBC driver {driver}"),
        (_, _, None) => "oncebox-odbc: cargo build -p oncebox-odbc".to_owned(),
        (Some(_), true, Some(_)) => String::new(),
    };
    if !lacks.is_empty() {
        rig::skipped(&format!("needs {lacks}"));
        return None;
    }
    Some(Site { product, port: port?, program: program? })
}

/// Beside the program that these tests start.
pub(crate) fn program() -> Option<PathBuf> {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_oncebox")).with_file_name(PROGRAM);
    program.is_file().then_some(program)
}

pub(crate) fn has_driver(name: &str) -> bool {
    let known = Command::new("odbcinst").args(["-q", "-d", "-n", name]).output();
    known.is_ok_and(|known| known.status.success())
}

/// A file that only its owner may read.
pub(crate) fn write_secret(file: &Path, secret: &str) {
    std::fs::write(file, format!("{secret}\n")).unwrap();
    std::fs::set_permissions(file, Permissions::from_mode(0o600)).unwrap();
}

/// Gives a client of the command line its input.
pub(crate) fn shell(client: &str, input: &str) {
    let script = format!("{client} <<'SQL'\n{input}\nSQL\n");
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

impl Site {
    /// What the driver is told.
    pub(crate) fn connection_string(&self, password: &str) -> String {
        let port = self.port;
        let password = password.replace('}', "}}");
        match self.product {
            Product::Postgresql => format!(
                "Driver={{PostgreSQL Unicode}};Server=127.0.0.1;Port={port};Database=postgres;UID=erp;PWD={{{password}}}"
            ),
            Product::Mariadb | Product::SqlServer => format!(
                "Driver={{MariaDB Unicode}};Server=127.0.0.1;Port={port};Database=guards;UID=erp;PWD={{{password}}}"
            ),
        }
    }

    /// Runs SQL as the one who owns the database.
    pub(crate) fn as_owner(&self, sql: &str) {
        let client = match self.product {
            Product::Postgresql => POSTGRESQL.get().unwrap().unwrap().psql("-q"),
            Product::Mariadb | Product::SqlServer => MARIADB.get().unwrap().unwrap().client(""),
        };
        shell(&client, sql);
    }

    /// A user of its own without any right but to connect, with the password of these tests.
    pub(crate) fn bare_user(&self, name: &str) {
        let sql = match self.product {
            Product::Postgresql => format!("CREATE ROLE {name} LOGIN PASSWORD $p${PASSWORD}$p$"),
            Product::Mariadb | Product::SqlServer => {
                let password = PASSWORD.replace('\'', "''");
                format!(
                    "CREATE USER {name} IDENTIFIED BY '{password}'; CREATE TABLE IF NOT EXISTS seen (id INTEGER); GRANT SELECT ON seen TO {name}"
                )
            }
        };
        self.as_owner(&sql);
    }

    /// How to start a connection.
    pub(crate) fn start(&self) -> Start {
        Start {
            program: self.program.clone(),
            without: Vec::new(),
            connection_string: SecretBytes::new(self.connection_string(PASSWORD).into_bytes()),
            product: self.product,
            deadlines: Deadlines {
                connect: Duration::from_mins(1),
                answer: Duration::from_mins(1),
            },
            clock: Clock::machine(),
        }
    }

    /// The settings that lead there, and the file of the password, which goes with the directory.
    pub(crate) fn settings(&self, password: &str) -> (DatabaseAt, TempDir) {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("password");
        write_secret(&file, password);
        let (driver, database) = match self.product {
            Product::Postgresql => ("PostgreSQL Unicode", "postgres"),
            Product::Mariadb | Product::SqlServer => ("MariaDB Unicode", "guards"),
        };
        let settings = DatabaseAt {
            driver: Some(driver.to_owned()),
            server: Some("127.0.0.1".to_owned()),
            port: Some(self.port.into()),
            database: Some(database.to_owned()),
            user: Some("erp".to_owned()),
            password_file: Some(file),
            tls: false,
            program: Some(self.program.clone()),
            ..DatabaseAt::default()
        };
        (settings, directory)
    }

    /// The database `erp` of settings.
    pub(crate) fn database(settings: &DatabaseAt, answer: Duration) -> Arc<Database> {
        let machine = Machine {
            clock: Clock::machine(),
            own_program: None,
            path: String::new(),
            deadlines: Deadlines { connect: Duration::from_mins(1), answer },
        };
        let all = [("erp".to_owned(), settings.clone())].into();
        Arc::clone(Databases::of(&all, &machine).get("erp").unwrap())
    }

    /// A statement that takes a minute.
    pub(crate) fn minute(&self) -> Statement {
        Statement::new(match self.product {
            Product::Postgresql => "SELECT pg_sleep(60)",
            Product::Mariadb | Product::SqlServer => "SELECT SLEEP(60)",
        })
    }

    /// A connection.
    #[track_caller]
    pub(crate) fn connect(&self) -> Helper {
        Helper::connect(&self.start())
            .unwrap_or_else(|error| panic!("{}: {}", self.product, words(&error)))
    }

    /// A statement with a parameter that is cast to a text.
    pub(crate) fn echo(&self) -> Statement {
        Statement::new(match self.product {
            Product::Postgresql => "SELECT CAST(? AS text)",
            Product::Mariadb | Product::SqlServer => "SELECT CAST(? AS CHAR CHARACTER SET utf8mb4)",
        })
    }
}

/// An error with the database's own words.
pub(crate) fn words(error: &Error) -> String {
    match error {
        Error::Refused(refusal) => format!("{refusal:?}"),
        other => other.to_string(),
    }
}
