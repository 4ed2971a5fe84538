//! The machine's programs for the demo: both servers, their drivers, and `oncebox-odbc`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::config::environment;
use crate::databases::helper::{candidates, find};

/// Where Debian has the programs of PostgreSQL, by version.
const POSTGRESQL: &str = "/usr/lib/postgresql";
/// Where programs are that not every `PATH` names.
const SYSTEM: [&str; 2] = ["/usr/sbin", "/usr/bin"];

/// The drivers, as `odbcinst` knows them.
pub(super) const POSTGRESQL_DRIVER: &str = "PostgreSQL Unicode";
pub(super) const MARIADB_DRIVER: &str = "MariaDB Unicode";

/// The programs, by their paths.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub(super) initdb: PathBuf,
    pub(super) postgres: PathBuf,
    pub(super) psql: PathBuf,
    pub(super) mariadb_install_db: PathBuf,
    pub(super) mariadbd: PathBuf,
    pub(super) mariadb: PathBuf,
    /// `oncebox-odbc`.
    pub(super) odbc: PathBuf,
    /// This program.
    pub(super) oncebox: PathBuf,
}

impl Machine {
    /// Finds every program. The error names the lacking one and its package.
    pub(super) fn look() -> Result<Self, String> {
        let path = environment("PATH").unwrap_or_default();
        let folders = folders(&path);
        let program = |name: &str, package: &str| {
            let found = folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file());
            found.ok_or_else(|| format!("needs {name}; apt-get install {package}"))
        };
        let oncebox = std::env::current_exe()
            .map_err(|error| format!("needs to know where its own program is: {error}"))?;
        let odbc = find(candidates(Some(&oncebox), &path)).map_err(|error| error.to_string())?;
        let machine = Self {
            initdb: program("initdb", "postgresql")?,
            postgres: program("postgres", "postgresql")?,
            psql: program("psql", "postgresql")?,
            mariadb_install_db: program("mariadb-install-db", "mariadb-server")?,
            mariadbd: program("mariadbd", "mariadb-server")?,
            mariadb: program("mariadb", "mariadb-client")?,
            odbc,
            oncebox,
        };
        let odbcinst = program("odbcinst", "odbcinst")?;
        for (driver, package) in
            [(POSTGRESQL_DRIVER, "odbc-postgresql"), (MARIADB_DRIVER, "odbc-mariadb")]
        {
            if !is_known(&odbcinst, driver) {
                return Err(format!("needs the driver {driver}; apt-get install {package}"));
            }
        }
        Ok(machine)
    }
}

/// Where programs are looked for. The newest PostgreSQL comes first; the `psql` of Debian's `PATH` is a script that looks for
/// the right one.
fn folders(path: &str) -> Vec<PathBuf> {
    let versions = fs::read_dir(POSTGRESQL).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    folders.sort();
    folders.reverse();
    folders.extend(SYSTEM.map(PathBuf::from));
    folders.extend(std::env::split_paths(path));
    folders
}

fn is_known(odbcinst: &Path, driver: &str) -> bool {
    let mut asks = Command::new(odbcinst);
    asks.args(["-q", "-d", "-n", driver]).stdout(Stdio::null()).stderr(Stdio::null());
    asks.status().is_ok_and(|status| status.success())
}
