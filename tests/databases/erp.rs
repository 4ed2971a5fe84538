//! An ERP with a database of its own, an outbox as `source ddl` prints it, and a service that reads it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;

use oncebox::databases::product::Product;

use crate::process::prelude::*;
use crate::server::{Mariadb, Postgresql};
use crate::site::{has_driver, program};

/// The password of the user that the service logs on with.
const PASSWORD: &str = "secret";

/// A server of a test.
pub(crate) enum Server {
    Postgresql(Postgresql),
    Mariadb(Mariadb),
}

/// An ERP with an outbox.
pub(crate) struct Erp {
    pub(crate) server: Server,
    /// The mode's flag of `source ddl`.
    flag: &'static str,
}

/// An ERP on each product that this machine has, with an outbox for a mode. Says what is lacking.
pub(crate) fn erps(mode: &str) -> Vec<Erp> {
    let products = match mode {
        "xid8" => [Product::Postgresql].as_slice(),
        _ => &[Product::Postgresql, Product::Mariadb],
    };
    products.iter().filter_map(|product| Erp::start(*product, mode)).collect()
}

impl Erp {
    fn start(product: Product, mode: &str) -> Option<Self> {
        let lacks = |what: &str| {
            skipped(&format!("needs {what}"));
            None
        };
        if program().is_none() {
            return lacks("oncebox-odbc: cargo build -p oncebox-odbc");
        }
        if !has_driver(driver(product)) {
            return lacks(driver(product));
        }
        let server = match product {
            Product::Postgresql => Postgresql::start().map(Server::Postgresql),
            Product::Mariadb | Product::SqlServer => Mariadb::start().map(Server::Mariadb),
        };
        let Some(server) = server else { return lacks(product.as_str()) };
        let flag = match mode {
            "claim" => "--two-boxes",
            "xid8" => "--read-only",
            _ => "",
        };
        let erp = Self { server, flag };
        erp.set_up();
        Some(erp)
    }

    pub(crate) fn product(&self) -> Product {
        match self.server {
            Server::Postgresql(_) => Product::Postgresql,
            Server::Mariadb(_) => Product::Mariadb,
        }
    }

    /// The port of its server.
    pub(crate) fn port(&self) -> u16 {
        match &self.server {
            Server::Postgresql(server) => server.port,
            Server::Mariadb(server) => server.port,
        }
    }

    fn set_up(&self) {
        self.run(match self.product() {
            Product::Postgresql => "CREATE ROLE oncebox LOGIN PASSWORD 'secret'",
            Product::Mariadb | Product::SqlServer => {
                "ALTER DATABASE guards CHARACTER SET utf8mb4; CREATE USER oncebox@'%' IDENTIFIED BY 'secret'"
            }
        });
        let mut command = Command::new(env!("CARGO_BIN_EXE_oncebox"));
        command.args(["source", "ddl", self.product().as_str()]);
        command.args(Some(self.flag).filter(|flag| !flag.is_empty()));
        let printed = command.output().unwrap();
        assert!(printed.status.success(), "{printed:?}");
        let printed = String::from_utf8(printed.stdout).unwrap();
        self.run(&printed);
        // Exactly the grants that are printed.
        for grant in printed.lines().filter_map(|line| line.strip_prefix("--   GRANT")) {
            self.run(&format!("GRANT{grant}"));
        }
    }

    /// The client that reads SQL from its input, and ends at the first error.
    pub(crate) fn client(&self) -> String {
        match &self.server {
            Server::Postgresql(server) => server.psql("-qAt"),
            Server::Mariadb(server) => server.client("-N --default-character-set=utf8mb4"),
        }
    }

    /// Runs SQL as the ERP.
    #[track_caller]
    pub(crate) fn run(&self, sql: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("input.sql");
        fs::write(&file, sql).unwrap();
        let script = format!("{} < {}", self.client(), file.display());
        let Output { status, stdout, stderr } =
            Command::new("sh").args(["-c", &script]).output().unwrap();
        assert!(status.success(), "{sql:.300}: {}", String::from_utf8_lossy(&stderr));
        String::from_utf8(stdout).unwrap().trim().to_owned()
    }

    /// Ends the server.
    pub(crate) fn stop(&mut self) {
        match &mut self.server {
            Server::Postgresql(server) => server.stop(),
            Server::Mariadb(server) => server.stop(),
        }
    }

    /// Starts the server again.
    pub(crate) fn start_again(&mut self) {
        match &mut self.server {
            Server::Postgresql(server) => server.start_again(),
            Server::Mariadb(server) => server.start_again(),
        }
    }

    /// Takes the right to mark rows away.
    pub(crate) fn revoke_update(&self) {
        self.run(match self.product() {
            Product::Postgresql => "REVOKE UPDATE (taken_at) ON outbox FROM oncebox",
            Product::Mariadb | Product::SqlServer => {
                "REVOKE UPDATE (taken_at) ON outbox FROM oncebox@'%'"
            }
        });
    }

    /// The next id that is given.
    pub(crate) fn give_ids_from(&self, id: u32) {
        self.run(&match self.product() {
            Product::Postgresql => format!("ALTER TABLE outbox ALTER id RESTART WITH {id}"),
            Product::Mariadb | Product::SqlServer => {
                format!("ALTER TABLE outbox AUTO_INCREMENT = {id}")
            }
        });
    }

    /// Rows that no box has marked.
    pub(crate) fn unmarked(&self) -> String {
        self.run("SELECT count(*) FROM outbox WHERE taken_at IS NULL")
    }

    /// Puts so many facts into the outbox, in one transaction.
    pub(crate) fn facts(&self, names: impl Iterator<Item = usize>) {
        let mut sql = "BEGIN;\n".to_owned();
        for name in names {
            sql += &fact(&name.to_string());
        }
        self.run(&(sql + "COMMIT;"));
    }

    /// Writes the settings of a service that may use this database.
    pub(crate) fn settings(&self, home: &Path, more: &str) {
        let password = home.join("erp.password");
        fs::write(&password, PASSWORD).unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(&password, private).unwrap();
        let (port, database) = match &self.server {
            Server::Postgresql(server) => (server.port, "postgres"),
            Server::Mariadb(server) => (server.port, "guards"),
        };
        let mut settings = format!("{SOON}\n{more}\n[databases.erp]\n");
        let driver = driver(self.product());
        writeln!(settings, "driver = {driver:?}\nserver = \"127.0.0.1\"\nport = {port}").unwrap();
        writeln!(settings, "database = {database:?}\nuser = \"oncebox\"\ntls = false").unwrap();
        writeln!(settings, "password_file = {:?}", password.to_str().unwrap()).unwrap();
        fs::write(home.join("oncebox.toml"), settings).unwrap();
    }

    /// A service over a directory of its own, which reads this database.
    pub(crate) fn read(&self, mode: &str) -> (TempDir, Process) {
        let home = tempfile::tempdir().unwrap();
        self.settings(home.path(), "[box]\nname = \"north\"");
        let process = Process::start(home.path());
        add(&process, mode);
        (home, process)
    }
}

/// A session of the ERP that stays open.
pub(crate) struct Session(Child);

impl Session {
    pub(crate) fn open(client: &str) -> Self {
        let child = Command::new("sh")
            .args(["-c", client])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn();
        Self(child.unwrap())
    }

    pub(crate) fn say(&mut self, sql: &str) {
        let input = self.0.stdin.as_mut().unwrap();
        writeln!(input, "{sql}").unwrap();
        input.flush().unwrap();
    }

    pub(crate) fn close(mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

/// Runs a command of the program over a service's directory.
#[track_caller]
pub(crate) fn oncebox(home: &Path, arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_oncebox"))
        .arg("--config")
        .arg(home.join("oncebox.toml"))
        .arg("--data")
        .arg(home.join("data"))
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Adds the source `erp`.
#[track_caller]
pub(crate) fn add(process: &Process, mode: &str) {
    let settings = json!({ "database": "erp", "mode": mode });
    process
        .post("/v1/sources", &json!({ "name": "erp", "kind": "database", "settings": settings }));
}

/// An INSERT of a fact.
pub(crate) fn fact(name: &str) -> String {
    format!(
        "INSERT INTO outbox (event_type, payload) VALUES ('fact', '{{\"name\":\"{name}\"}}');\n"
    )
}

/// The facts that a service has stored, each as often as it is stored.
pub(crate) fn stored(home: &Path) -> Vec<String> {
    let conn = file::open(&home.join("data/oncebox.db"));
    let sql = "SELECT coalesce(json_extract(CAST(payload AS TEXT), '$.name'), '') FROM outbox
                WHERE status <> 'quarantined' AND source_system = 'erp' ORDER BY seq";
    file::lines(&conn, sql)
}

/// Waits until so many facts are stored.
#[track_caller]
pub(crate) fn until_stored(home: &Path, count: usize) {
    until(&format!("{count} are stored"), || stored(home).len() >= count);
}

/// What a service says of its source.
#[track_caller]
pub(crate) fn source(process: &Process) -> Value {
    process.call("GET", "/v1/sources/erp", &Value::Null).is(200).json()
}

/// Waits until the source has an error with these words, and returns it.
#[track_caller]
pub(crate) fn trouble(process: &Process, words: &str) -> String {
    let mut last = Value::Null;
    until(words, || {
        last = source(process)["last_error"].clone();
        last.as_str().is_some_and(|text| text.contains(words))
    });
    last.as_str().unwrap().to_owned()
}

/// Four programs that write facts at the same time; a quarter of their transactions is rolled back, and some stay open
/// for a while, so that rows are committed in another order than their ids. Returns the names of the committed facts.
pub(crate) fn write_beside<T>(
    erp: &Erp,
    rounds: usize,
    meanwhile: impl FnOnce() -> T,
) -> (BTreeSet<String>, T) {
    let committed = Mutex::new(BTreeSet::new());
    let done = thread::scope(|scope| {
        for writer in 0..4 {
            let committed = &committed;
            scope.spawn(move || {
                let mut names = BTreeSet::new();
                let rounds =
                    (0..rounds).map(|round| transaction(erp.product(), writer, round, &mut names));
                let script: String = rounds.collect();
                erp.run(&script);
                committed.lock().unwrap().extend(names);
            });
        }
        meanwhile()
    });
    (committed.into_inner().unwrap(), done)
}

/// Three facts in one transaction. Its names are added if it commits.
fn transaction(
    product: Product,
    writer: usize,
    round: usize,
    committed: &mut BTreeSet<String>,
) -> String {
    let names: Vec<String> = (0..3).map(|n| format!("{writer}-{round}-{n}")).collect();
    let facts: String = names.iter().map(|name| fact(name)).collect();
    let pause = if (round + writer).is_multiple_of(7) { pause(product) } else { "" };
    if round % 4 == 3 {
        return format!("BEGIN;\n{facts}{pause}ROLLBACK;\n");
    }
    committed.extend(names);
    format!("BEGIN;\n{facts}{pause}COMMIT;\n")
}

const fn pause(product: Product) -> &'static str {
    match product {
        Product::Postgresql => "SELECT pg_sleep(0.3);\n",
        Product::Mariadb | Product::SqlServer => "SELECT SLEEP(0.3);\n",
    }
}

const fn driver(product: Product) -> &'static str {
    match product {
        Product::Postgresql => "PostgreSQL Unicode",
        Product::Mariadb | Product::SqlServer => "MariaDB Unicode",
    }
}

/// Each of these facts is stored once, and no other.
#[track_caller]
pub(crate) fn are_stored_once(home: &Path, committed: &BTreeSet<String>) {
    let stored = stored(home);
    let once: BTreeSet<String> = stored.iter().cloned().collect();
    assert_eq!(once, *committed);
    assert_eq!(stored.len(), committed.len(), "none is doubled");
}
