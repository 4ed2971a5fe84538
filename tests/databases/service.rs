//! The service and its commands, as an operator meets them.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use oncebox::databases::product::Product;
use tempfile::TempDir;

use crate::databases::site::{PASSWORD, Site, program, sites};
use crate::rig::{skipped, until};

/// A service of its own with the database `erp` in its settings.
struct Service {
    directory: TempDir,
    process: Child,
}

impl Service {
    fn start(lines: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("oncebox.toml");
        let data = directory.path().join("data");
        let text = format!(
            "[listen]\napi = \"127.0.0.1:0\"\n[database]\ndirectory = {:?}\n[log]\nlevel = \"error\"\n{lines}",
            data.display().to_string()
        );
        fs::write(&file, text).unwrap();
        let mut command = oncebox(&file);
        command.arg("serve").stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().unwrap();
        let service = Self { directory, process };
        until("the service answers", || service.run(&["status"]).status.success());
        service
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let file = self.directory.path().join("oncebox.toml");
        oncebox(&file).args(arguments).output().unwrap()
    }

    fn helpers(&self) -> Vec<PathBuf> {
        children(self.process.id())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

fn oncebox(file: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oncebox"));
    command.arg("--config").arg(file).stdin(Stdio::null());
    command
}

/// The directories in `/proc` of the processes of `oncebox-odbc` that a process has started.
pub(crate) fn children(parent: u32) -> Vec<PathBuf> {
    let is_child = |path: &PathBuf| {
        let stat = fs::read_to_string(path.join("stat")).unwrap_or_default();
        let fields = stat.split_once("(oncebox-odbc) ").map(|(_, fields)| fields.split(' '));
        fields.and_then(|mut fields| fields.nth(1)?.parse().ok()) == Some(parent)
    };
    let all = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    all.filter(is_child).collect()
}

fn lines(site: &Site, directory: &Path) -> String {
    let (driver, database) = match site.product {
        Product::Postgresql => ("PostgreSQL Unicode", "postgres"),
        Product::Mariadb | Product::SqlServer => ("MariaDB Unicode", "guards"),
    };
    let file = directory.join("erp.password");
    let written = Command::new("sh")
        .args(["-c", "umask 077; cat >\"$1\"", "write"])
        .arg(&file)
        .stdin(Stdio::piped())
        .spawn();
    let mut written = written.unwrap();
    std::io::Write::write_all(&mut written.stdin.take().unwrap(), PASSWORD.as_bytes()).unwrap();
    assert!(written.wait().unwrap().success());
    format!(
        "[databases.erp]\ndriver = \"{driver}\"\nserver = \"127.0.0.1\"\nport = {}\ndatabase = \"{database}\"\n\
         user = \"erp\"\npassword_file = \"{}\"\ntls = false\n",
        site.port,
        file.display()
    )
}

fn said(output: &Output) -> String {
    let [out, error] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{out}{error}")
}

#[test]
fn a_database_is_listed_tested_and_missing_grants_are_lines_to_run() {
    for site in sites() {
        let secrets = tempfile::tempdir().unwrap();
        site.bare_user("bare");
        let settings = lines(&site, secrets.path()).replace("\"erp\"\n", "\"bare\"\n");
        let service = Service::start(&settings);
        let listed = said(&service.run(&["database", "list"]));
        assert!(listed.contains("erp") && listed.contains("unknown"), "{listed}");
        let first = service.run(&["database", "test", "erp"]);
        assert_eq!(first.status.code(), Some(0), "{}", said(&first));
        let first = said(&first);
        assert!(first.contains("not needed, as no subscription writes here"), "{first}");
        let tested = said(&service.run(&["database", "list", "--json"]));
        assert!(tested.contains("\"last_error\":null"), "a test is no error: {tested}");
        for wanted in ["not encrypted: tls = false", "isolation", "durability", "letters"] {
            assert!(first.contains(wanted), "{wanted} is not in {first}");
        }
        let product = site.product.as_str();
        assert!(first.contains(&format!("oncebox database ddl {product}")), "{first}");
        // Its own tables, made by the owner; the grants come afterwards.
        let ddl = said(&service.run(&["database", "ddl", product, "--user", "bare"]));
        let is_grant = |line: &&str| line.starts_with("GRANT ");
        let (grants, tables): (Vec<&str>, Vec<&str>) = ddl.lines().partition(is_grant);
        site.as_owner(&tables.join("\n"));
        service.run(&["tenant", "change", "default", "--no-personal-data"]);
        let made = service.run(&[
            "subscription",
            "create",
            "stock",
            "--database",
            "erp",
            "--inbox",
            "oncebox_inbox",
        ]);
        assert_eq!(made.status.code(), Some(0), "{}", said(&made));
        let listed = said(&service.run(&["database", "list"]));
        assert!(listed.contains("subscription default/stock"), "{listed}");
        let missing = service.run(&["database", "test", "erp"]);
        let told = said(&missing);
        assert_eq!(missing.status.code(), Some(1), "{told}");
        let line = told.lines().find_map(|line| line.split_once("run: ")).unwrap().1;
        assert!(line.starts_with("GRANT INSERT ON processed_events TO "), "{told}");
        site.as_owner(line);
        let whole = service.run(&["database", "test", "erp"]);
        assert_eq!(whole.status.code(), Some(0), "{}", said(&whole));
        assert!(said(&whole).contains("the user may use it"));
        // The printed grants are those that are needed, too.
        site.as_owner(&grants.join("\n"));
        let listed = said(&service.run(&["database", "list", "--json"]));
        assert!(listed.contains("\"up\"") && !listed.contains("pass;wo"), "{listed}");
        assert_eq!(service.helpers().len(), 1, "one connection is kept");
    }
}

/// Beside a service or without one.
#[test]
fn doctor_says_of_each_database_in_one_line_how_it_is() {
    let line = |output: &Output, name: &str| {
        let said = said(output);
        let is_its = |line: &&str| line.contains(&format!("databases      {name}: "));
        let all: Vec<&str> = said.lines().filter(is_its).collect();
        assert_eq!(all.len(), 1, "{said}");
        all[0].to_owned()
    };
    let none = Service::start("");
    let without = said(&none.run(&["doctor"]));
    assert!(!without.contains("databases"), "{without}");
    let mut lacking = Service::start(
        "[databases.shop]\ndriver = \"PostgreSQL Unicode\"\nprogram = \"/nowhere/oncebox-odbc\"\n",
    );
    for is_served in [true, false] {
        if !is_served {
            lacking.process.kill().unwrap();
            lacking.process.wait().unwrap();
        }
        let looked = lacking.run(&["doctor"]);
        assert_eq!(looked.status.code(), Some(1));
        let line = line(&looked, "shop");
        assert!(line.starts_with("fail") && line.contains("install the package"), "{line}");
    }
    for site in sites() {
        let secrets = tempfile::tempdir().unwrap();
        let service = Service::start(&lines(&site, secrets.path()));
        let line = line(&service.run(&["doctor"]), "erp");
        assert!(line.contains("tls: not encrypted: tls = false"), "{line}");
        assert!(!line.contains("connection"), "{line}");
    }
}

/// A server that takes connections and says nothing: the driver hangs.
#[test]
fn no_process_outlives_a_service_that_is_killed_while_a_driver_hangs() {
    for site in sites() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = silent.local_addr().unwrap().port();
        let secrets = tempfile::tempdir().unwrap();
        let lines = lines(&site, secrets.path());
        let lines = lines.replace(&format!("port = {}", site.port), &format!("port = {port}"));
        let mut service = Service::start(&lines);
        let file = service.directory.path().join("oncebox.toml");
        let mut asks = oncebox(&file);
        asks.args(["database", "test", "erp"]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut asks = asks.spawn().unwrap();
        let (_connection, _) = silent.accept().unwrap();
        let helpers = service.helpers();
        assert_eq!(helpers.len(), 1);
        service.process.kill().unwrap();
        service.process.wait().unwrap();
        until("its process is gone", || !helpers[0].exists());
        asks.wait().unwrap();
    }
}

#[test]
fn without_the_program_the_test_says_which_package_to_install() {
    let service = Service::start(
        "[databases.erp]\ndriver = \"PostgreSQL Unicode\"\nprogram = \"/nowhere/oncebox-odbc\"\n",
    );
    let tested = service.run(&["database", "test", "erp"]);
    assert_eq!(tested.status.code(), Some(1));
    assert!(said(&tested).contains("install the package oncebox-odbc"), "{}", said(&tested));
    let unknown = service.run(&["database", "test", "other"]);
    assert_ne!(unknown.status.code(), Some(0));
}

#[test]
fn a_driver_that_is_missing_is_named_with_the_package_that_has_it() {
    let Some(_) = program() else {
        return skipped("needs oncebox-odbc: cargo build -p oncebox-odbc");
    };
    let service = Service::start(
        "[databases.pg]\ndriver = \"PostgreSQL Nowhere\"\n\
         [databases.pg-file]\nproduct = \"postgresql\"\ndriver = \"/nowhere/psqlodbcw.so\"\n\
         [databases.maria]\ndriver = \"MariaDB Nowhere\"\n\
         [databases.tds]\nproduct = \"sqlserver\"\ndriver = \"FreeTDS Nowhere\"\n",
    );
    for (name, package) in [
        ("pg", "odbc-postgresql"),
        ("pg-file", "odbc-postgresql"),
        ("maria", "odbc-mariadb"),
        ("tds", "tdsodbc"),
    ] {
        let tested = service.run(&["database", "test", name]);
        assert_eq!(tested.status.code(), Some(1), "{}", said(&tested));
        let next = format!("install the driver: apt-get install {package};");
        assert!(said(&tested).contains(&next), "{}", said(&tested));
    }
}
