//! An ERP's database for benches: a server of its own with the tables that Oncebox prints, and a bare reader and a bare
//! writer. Those use the driver of the service through the same program, `oncebox-odbc`.
//!
//! The servers sync each commit, as those of an ERP do.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use oncebox::base::clock::Clock;
use oncebox::base::secret::SecretBytes;
use oncebox::databases::connection::{Connection, Statement};
use oncebox::databases::helper::{Deadlines, Helper, PROGRAM, Start};
use oncebox::databases::product::Product;
use serde_json::{Value, json};

#[path = "../../tests/guards/server.rs"]
mod database_server;

use database_server::{Mariadb, Postgresql};

use crate::rig::load::EVENT_BYTES;
use crate::rig::rest;
use crate::rig::server::{Server, fresh_directory, program};

/// Events of one transaction of the bare writer: as many as the service writes together at most.
const TOGETHER: usize = 50;
/// Rows of one read of the bare reader: as many as the service reads at most.
const ROWS: usize = 500;
/// What a source reads of a row that is made as `source ddl` prints it.
const FIELDS: [&str; 7] = [
    "id",
    "event_type",
    "payload",
    "idempotency_key",
    "aggregate_type",
    "aggregate_id",
    "occurred_at",
];

enum Process {
    Postgresql(Postgresql),
    Mariadb(Mariadb),
}

/// A database with the tables of a source and of a target.
pub(crate) struct Erp {
    process: Process,
}

impl Erp {
    /// Starts one. `None` where its server is not installed, after saying so.
    pub(crate) fn start(product: Product) -> Option<Self> {
        let process = match product {
            Product::Postgresql => Postgresql::start_with(&[]).map(Process::Postgresql),
            Product::Mariadb | Product::SqlServer => {
                Mariadb::start_with(&["--innodb-buffer-pool-size=128M"]).map(Process::Mariadb)
            }
        };
        let Some(process) = process else {
            println!("  {product}: skipped: its server is not installed");
            return None;
        };
        let erp = Self { process };
        erp.run(match product {
            Product::Postgresql => {
                "CREATE ROLE oncebox LOGIN PASSWORD 'secret'; GRANT ALL ON SCHEMA public TO oncebox"
            }
            Product::Mariadb | Product::SqlServer => {
                "ALTER DATABASE guards CHARACTER SET utf8mb4; CREATE USER oncebox@'%' IDENTIFIED BY 'secret'; \
                 GRANT ALL ON guards.* TO oncebox@'%'"
            }
        });
        let user = if product == Product::Postgresql { "oncebox" } else { "oncebox@'%'" };
        erp.run(&printed(&["source", "ddl", product.as_str()]));
        erp.run(&printed(&["database", "ddl", product.as_str(), "--user", user]));
        if product == Product::Postgresql {
            erp.run("GRANT ALL ON ALL TABLES IN SCHEMA public TO oncebox");
        }
        Some(erp)
    }

    pub(crate) fn product(&self) -> Product {
        match self.process {
            Process::Postgresql(_) => Product::Postgresql,
            Process::Mariadb(_) => Product::Mariadb,
        }
    }

    fn port(&self) -> u16 {
        match &self.process {
            Process::Postgresql(server) => server.port,
            Process::Mariadb(server) => server.port,
        }
    }

    const fn driver(&self) -> &'static str {
        match self.process {
            Process::Postgresql(_) => "PostgreSQL Unicode",
            Process::Mariadb(_) => "MariaDB Unicode",
        }
    }

    const fn database(&self) -> &'static str {
        match self.process {
            Process::Postgresql(_) => "postgres",
            Process::Mariadb(_) => "guards",
        }
    }

    /// A service that may use it, with the deliverers that a service has by default.
    pub(crate) fn serve(&self) -> Server {
        self.serve_with(64)
    }

    /// The same with another number of deliverers.
    pub(crate) fn serve_with(&self, deliverers: u32) -> Server {
        let data = fresh_directory("databases");
        let further = data.join("conf.d");
        fs::create_dir(&further).unwrap();
        fs::write(further.join("wide.toml"), format!("[delivery]\ndeliverers = {deliverers}\n"))
            .unwrap();
        let password = data.join("erp.password");
        fs::write(&password, "secret").unwrap();
        fs::set_permissions(&password, fs::Permissions::from_mode(0o600)).unwrap();
        let lines = format!(
            "[databases.erp]\ndriver = {:?}\nserver = \"127.0.0.1\"\nport = {}\ndatabase = {:?}\nuser = \"oncebox\"\n\
             password_file = {:?}\ntls = false\n",
            self.driver(),
            self.port(),
            self.database(),
            password.to_str().unwrap(),
        );
        Server::start_with(&data, &lines)
    }

    /// A connection as the service has one.
    pub(crate) fn connect(&self) -> Helper {
        let connection_string = format!(
            "Driver={{{}}};Server=127.0.0.1;Port={};Database={};UID=oncebox;PWD=secret",
            self.driver(),
            self.port(),
            self.database(),
        );
        let start = Start {
            program: program().with_file_name(PROGRAM),
            without: Vec::new(),
            connection_string: SecretBytes::new(connection_string.into_bytes()),
            product: self.product(),
            deadlines: Deadlines {
                connect: Duration::from_mins(1),
                answer: Duration::from_mins(1),
            },
            clock: Clock::machine(),
        };
        Helper::connect(&start).unwrap()
    }

    /// Runs SQL as the owner of the database, and returns what it prints.
    pub(crate) fn run(&self, sql: &str) -> String {
        let client = match &self.process {
            Process::Postgresql(server) => server.psql("-qAt"),
            Process::Mariadb(server) => server.client("-N"),
        };
        let script = format!("{client} <<'SQL'\n{sql}\nSQL\n");
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Empties the outbox and puts so many rows into it.
    pub(crate) fn fill(&self, rows: u32) {
        let numbers = match self.product() {
            Product::Postgresql => format!("generate_series(1, {rows}) AS t (n)"),
            Product::Mariadb | Product::SqlServer => {
                format!("(SELECT seq AS n FROM seq_1_to_{rows}) AS t")
            }
        };
        let text = "x".repeat(EVENT_BYTES);
        self.run(&format!(
            "TRUNCATE TABLE outbox;
             INSERT INTO outbox (event_type, payload, aggregate_type, aggregate_id)
             SELECT 'bench.event', '{{\"text\":\"{text}\"}}', 'invoice', CAST(n AS CHAR(9)) FROM {numbers}"
        ));
    }

    /// Rows of the outbox that are not marked.
    pub(crate) fn unmarked(&self) -> u64 {
        self.run("SELECT count(*) FROM outbox WHERE taken_at IS NULL").parse().unwrap()
    }

    /// Rows a second of a program that reads and marks them and does nothing else.
    pub(crate) fn bare_read(&self, connection: &mut Helper) -> f64 {
        let text = match self.product() {
            Product::Postgresql => "text",
            Product::Mariadb | Product::SqlServer => "CHAR CHARACTER SET utf8mb4",
        };
        let columns = FIELDS.map(|field| format!("CAST({field} AS {text})")).join(", ");
        let select = Statement::new(format!(
            "SELECT {columns} FROM outbox WHERE taken_at IS NULL ORDER BY outbox.id LIMIT {ROWS}"
        ));
        let mut read = 0;
        let begun = Instant::now();
        loop {
            connection.begin().unwrap();
            let rows = connection.rows(&select, ROWS).unwrap();
            connection.commit().unwrap();
            if rows.is_empty() {
                return read as f64 / begun.elapsed().as_secs_f64();
            }
            let ids: Vec<&str> = rows.iter().filter_map(|row| row[0].as_deref()).collect();
            let ids = ids.join(", ");
            let mark =
                format!("UPDATE outbox SET taken_at = CURRENT_TIMESTAMP WHERE id IN ({ids})");
            connection.begin().unwrap();
            connection.run(&Statement::new(mark)).unwrap();
            connection.commit().unwrap();
            read += rows.len();
        }
    }

    /// Events a second of a program that writes guards and rows of the inbox and does nothing else.
    pub(crate) fn bare_write(&self, connection: &mut Helper, events: usize) -> f64 {
        let guard = "INSERT INTO processed_events (consumer_group, event_id) VALUES (?, ?)";
        let (on_conflict, time, at) = match self.product() {
            Product::Postgresql => {
                (" ON CONFLICT DO NOTHING", "CAST(? AS timestamptz)", "2026-01-31T12:00:00.000Z")
            }
            Product::Mariadb | Product::SqlServer => ("", "?", "2026-01-31 12:00:00.000"),
        };
        let guard = format!("{guard}{on_conflict}");
        let inbox = format!(
            "INSERT INTO oncebox_inbox (webhook_id, tenant, event_type, aggregate_type, aggregate_id, payload, occurred_at) \
             VALUES (?, ?, ?, ?, ?, ?, {time})"
        );
        let payload = "x".repeat(EVENT_BYTES);
        let begun = Instant::now();
        for from in (0..events).step_by(TOGETHER) {
            connection.begin().unwrap();
            for n in from..events.min(from + TOGETHER) {
                let id = format!("019a0000-0000-7000-8000-{n:012}");
                let claim = Statement::new(guard.as_str()).with("bare").with(id.as_str());
                connection.run(&claim).unwrap();
                let row =
                    Statement::new(inbox.as_str()).with(id).with("default").with("bench.event");
                let row = row.with_optional(None::<String>).with_optional(None::<String>);
                connection.run(&row.with(payload.as_str()).with(at)).unwrap();
            }
            connection.commit().unwrap();
        }
        events as f64 / begun.elapsed().as_secs_f64()
    }

    /// How many transactions were committed by all its clients.
    pub(crate) fn commits(&self) -> f64 {
        let sql = match self.product() {
            Product::Postgresql => "SELECT count(DISTINCT CAST(xmin AS text)) FROM oncebox_inbox",
            Product::Mariadb | Product::SqlServer => {
                "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'COM_COMMIT'"
            }
        };
        self.run(sql).parse().unwrap()
    }
}

/// Commits one event of the outbox, with the time at which that began.
pub(crate) fn commit_one(connection: &mut Helper, sent_us: u64) {
    let insert = "INSERT INTO outbox (event_type, payload) VALUES ('bench.event', ?)";
    let payload = format!("{{\"sent_us\":{sent_us}}}");
    connection.begin().unwrap();
    connection.run(&Statement::new(insert).with(payload)).unwrap();
    connection.commit().unwrap();
}

/// A source over it, which does not read yet.
pub(crate) fn add_source(server: &Server) {
    let settings = json!({ "database": "erp" });
    server.ask(
        "POST",
        "/v1/sources",
        &json!({ "name": "erp", "kind": "database", "settings": settings }),
    );
    server.ask("POST", "/v1/sources/erp/pause", &Value::Null);
}

/// How many events the source has stored.
pub(crate) fn stored(server: &Server) -> u64 {
    let source = server.ask("GET", "/v1/sources/erp", &Value::Null);
    source["event_count"].as_u64().unwrap()
}

/// Lets the source read so many more rows. Rows a second, counted from its first transaction on.
pub(crate) fn catch_up(erp: &Erp, server: &Server, rows: u32) -> f64 {
    let before = stored(server);
    let wanted = before + u64::from(rows);
    server.ask("POST", "/v1/sources/erp/resume", &Value::Null);
    let asked = Instant::now();
    let wait = |until: u64| loop {
        let now = stored(server);
        if now >= until {
            return (now, Instant::now());
        }
        assert!(asked.elapsed() < Duration::from_mins(5), "the source does not read");
        // Each question costs the service a request: seldom enough that they are no part of what is measured.
        rest(Duration::from_millis(25));
    };
    let (first, begun) = wait(before + 1);
    let (last, ended) = wait(wanted);
    while erp.unmarked() > 0 {
        rest(Duration::from_millis(5));
    }
    server.ask("POST", "/v1/sources/erp/pause", &Value::Null);
    (last - first) as f64 / (ended - begun).as_secs_f64()
}

fn printed(arguments: &[&str]) -> String {
    let output = Command::new(program()).args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Whether the program that speaks to databases was built. Says how if not.
pub(crate) fn has_helper() -> bool {
    let helper = program().with_file_name(PROGRAM);
    let is_there = Path::new(&helper).is_file();
    if !is_there {
        println!(
            "  skipped: needs {}: cargo build --profile bench -p oncebox-odbc",
            helper.display()
        );
    }
    is_there
}
