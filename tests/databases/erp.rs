//! An ERP with a database of its own, an outbox as `source ddl` prints it, and a service that reads it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;

use oncebox::config::databases::DatabaseAt;
use oncebox::databases::product::Product;

use crate::databases::process::prelude::*;
use crate::databases::site::{has_driver, program};
use crate::guards::server::{Mariadb, Postgresql};

/// The password of the user that the service logs on with.
pub(crate) const PASSWORD: &str = "secret";

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
        let printed = self.printed();
        self.run(&printed);
        // Exactly the grants that are printed.
        for grant in printed.lines().filter_map(|line| line.strip_prefix("--   GRANT")) {
            self.run(&format!("GRANT{grant}"));
        }
    }

    /// What `source ddl` prints.
    fn printed(&self) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_oncebox"));
        command.args(["source", "ddl", self.product().as_str()]);
        command.args(Some(self.flag).filter(|flag| !flag.is_empty()));
        let printed = command.output().unwrap();
        assert!(printed.status.success(), "{printed:?}");
        String::from_utf8(printed.stdout).unwrap()
    }

    /// The trigger that is printed as an example.
    pub(crate) fn printed_trigger(&self) -> String {
        let printed = self.printed();
        let (_, example) = printed.split_once("-- An example:").unwrap();
        let lines = example.lines().take_while(|line| !line.is_empty());
        lines.filter_map(|line| line.strip_prefix("--   ")).collect::<Vec<_>>().join("\n")
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
        self.try_run(sql).unwrap_or_else(|why| panic!("{sql:.300}: {why}"))
    }

    /// The same; fails with what the server says.
    pub(crate) fn try_run(&self, sql: &str) -> Result<String, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("input.sql");
        fs::write(&file, sql).unwrap();
        let script = format!("{} < {}", self.client(), file.display());
        let Output { status, stdout, stderr } =
            Command::new("sh").args(["-c", &script]).output().unwrap();
        if !status.success() {
            return Err(String::from_utf8_lossy(&stderr).into_owned());
        }
        Ok(String::from_utf8(stdout).unwrap().trim().to_owned())
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

    /// kill -9 of the server and all its processes, and its start, which recovers what was committed.
    pub(crate) fn kill_and_start(&mut self) {
        match &mut self.server {
            Server::Postgresql(server) => server.kill(),
            Server::Mariadb(server) => server.kill(),
        }
        self.start_again();
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
        let settings = format!("{SOON}\n{more}\n{}", self.section(home, "erp"));
        fs::write(home.join("oncebox.toml"), settings).unwrap();
    }

    /// The section of a service's settings with which it may use this database.
    pub(crate) fn section(&self, home: &Path, name: &str) -> String {
        let file = home.join(format!("{name}.password"));
        let settings = self.database_at(self.port(), file);
        let text = |text: &Option<String>| text.clone().unwrap();
        let mut section = format!("[databases.{name}]\n");
        writeln!(section, "driver = {:?}", text(&settings.driver)).unwrap();
        writeln!(section, "server = \"127.0.0.1\"\nport = {}", self.port()).unwrap();
        writeln!(section, "database = {:?}\nuser = \"oncebox\"", text(&settings.database)).unwrap();
        let file = settings.password_file.unwrap().display().to_string();
        writeln!(section, "password_file = {file:?}\ntls = false").unwrap();
        section
    }

    /// The same, for a service in this process, over this port, with the password in a new file.
    pub(crate) fn database_at(&self, port: u16, password: PathBuf) -> DatabaseAt {
        fs::write(&password, PASSWORD).unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(&password, private).unwrap();
        let database = match self.product() {
            Product::Postgresql => "postgres",
            Product::Mariadb | Product::SqlServer => "guards",
        };
        DatabaseAt {
            driver: Some(driver(self.product()).to_owned()),
            server: Some("127.0.0.1".to_owned()),
            port: Some(port.into()),
            database: Some(database.to_owned()),
            user: Some("oncebox".to_owned()),
            password_file: Some(password),
            tls: false,
            program: program(),
            ..DatabaseAt::default()
        }
    }

    /// The service's user, as a GRANT names it.
    pub(crate) fn user(&self) -> &'static str {
        match self.product() {
            Product::Postgresql => "oncebox",
            Product::Mariadb | Product::SqlServer => "oncebox@'%'",
        }
    }

    /// The tables that `database ddl` prints, with exactly its grants.
    pub(crate) fn tables_of_targets(&self) {
        let ddl = Command::new(env!("CARGO_BIN_EXE_oncebox"))
            .args(["database", "ddl", self.product().as_str(), "--user", self.user()])
            .output()
            .unwrap();
        assert!(ddl.status.success(), "{ddl:?}");
        self.run(&String::from_utf8(ddl.stdout).unwrap());
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

/// Writes another port into a service's settings than that of the database.
#[track_caller]
pub(crate) fn redirect(home: &Path, from: u16, to: u16) {
    let file = home.join("oncebox.toml");
    let direct = fs::read_to_string(&file).unwrap();
    let port = |port: u16| format!("port = {port}\n");
    assert!(direct.contains(&port(from)), "{direct}");
    fs::write(&file, direct.replace(&port(from), &port(to))).unwrap();
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

/// Rows of a transaction of [`write_beside`].
const TRANSACTION_ROWS: usize = 3;
/// Of so many transactions of a writer one is rolled back.
const ROLLED_BACK_ONE_IN: usize = 4;
const WRITERS: usize = 4;
/// Transactions of a writer that stay open for a second, at most.
const MOST_OPEN: usize = 20;

/// Four programs that write facts at the same time, of which about `ONCEBOX_ROWS` are committed; a quarter of their
/// transactions is rolled back, and some stay open for a second, so that rows are committed in another order than their
/// ids. In `MariaDB` none of them waits for a row. Returns the names of the committed facts.
pub(crate) fn write_beside<T>(erp: &Erp, meanwhile: impl FnOnce() -> T) -> (BTreeSet<String>, T) {
    let rows = usize::try_from(number("ONCEBOX_ROWS", 540)).unwrap();
    let kept_of_a_round = WRITERS * TRANSACTION_ROWS * (ROLLED_BACK_ONE_IN - 1);
    let rounds = (rows * ROLLED_BACK_ONE_IN).div_ceil(kept_of_a_round);
    let committed = Mutex::new(BTreeSet::new());
    let done = thread::scope(|scope| {
        for writer in 0..WRITERS {
            let committed = &committed;
            scope.spawn(move || {
                let mut names = BTreeSet::new();
                let product = erp.product();
                let transactions = transactions(product, writer, rounds, &mut names);
                erp.run(&format!("{}{transactions}", without_waiting(product)));
                committed.lock().unwrap().extend(names);
            });
        }
        meanwhile()
    });
    let committed = committed.into_inner().unwrap();
    assert!(committed.len() >= rows, "{} of {rows} rows are committed", committed.len());
    (committed, done)
}

/// What makes a statement of `MariaDB` fail that would wait for a row's lock. `PostgreSQL` notes waits in its log.
pub(crate) const fn without_waiting(product: Product) -> &'static str {
    match product {
        Product::Mariadb => "SET SESSION innodb_lock_wait_timeout = 0;\n",
        Product::Postgresql | Product::SqlServer => "",
    }
}

/// What a writer does. The names that it commits are added.
fn transactions(
    product: Product,
    writer: usize,
    rounds: usize,
    committed: &mut BTreeSet<String>,
) -> String {
    // One more than a multiple of the rolled back ones, so that committed ones stay open as well.
    let open_one_in = (rounds / MOST_OPEN).max(16) / ROLLED_BACK_ONE_IN * ROLLED_BACK_ONE_IN + 1;
    let one = |round: usize| {
        let is_open = (round + writer).is_multiple_of(open_one_in);
        let pause = if is_open { pause(product) } else { "" };
        transaction(writer, round, pause, committed)
    };
    (0..rounds).map(one).collect()
}

/// Some facts in one transaction. Its names are added if it commits.
fn transaction(
    writer: usize,
    round: usize,
    pause: &str,
    committed: &mut BTreeSet<String>,
) -> String {
    let names: Vec<String> =
        (0..TRANSACTION_ROWS).map(|n| format!("{writer}-{round}-{n}")).collect();
    let facts: String = names.iter().map(|name| fact(name)).collect();
    if round % ROLLED_BACK_ONE_IN == ROLLED_BACK_ONE_IN - 1 {
        return format!("BEGIN;\n{facts}{pause}ROLLBACK;\n");
    }
    committed.extend(names);
    format!("BEGIN;\n{facts}{pause}COMMIT;\n")
}

const fn pause(product: Product) -> &'static str {
    match product {
        Product::Postgresql => "SELECT pg_sleep(1);\n",
        Product::Mariadb | Product::SqlServer => "SELECT SLEEP(1);\n",
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
