//! The stock of an ERP, and a service whose events take from it.

use oncebox::databases::product::Product;

use crate::erp::{Erp, oncebox};
use crate::process::prelude::*;

/// Takes an article from the stock, and never below nothing.
pub(crate) const TAKE: &str = "UPDATE stock SET pieces = pieces - 1 WHERE article = :aggregate_id;";

/// The ERP's table, and the tables that `database ddl` prints, with exactly its grants.
pub(crate) fn set_up(erp: &Erp) {
    erp.run(
        "CREATE TABLE stock (article VARCHAR(40) PRIMARY KEY, pieces INTEGER NOT NULL CHECK (pieces >= 0));
         INSERT INTO stock VALUES ('a', 1000), ('b', 1)",
    );
    let user = match erp.product() {
        Product::Postgresql => "oncebox",
        Product::Mariadb | Product::SqlServer => "oncebox@'%'",
    };
    let ddl = Command::new(env!("CARGO_BIN_EXE_oncebox"))
        .args(["database", "ddl", erp.product().as_str(), "--user", user])
        .output()
        .unwrap();
    assert!(ddl.status.success(), "{ddl:?}");
    erp.run(&String::from_utf8(ddl.stdout).unwrap());
    erp.run(&format!("GRANT SELECT, UPDATE ON stock TO {user}"));
}

/// A service that takes from the stock for each event.
pub(crate) fn taking(erp: &Erp, more: &[&str]) -> (TempDir, Process) {
    let home = tempfile::tempdir().unwrap();
    erp.settings(home.path(), "");
    let process = Process::start(home.path());
    let effect = home.path().join("take.sql");
    fs::write(&effect, TAKE).unwrap();
    let effect = effect.to_str().unwrap();
    let create = ["subscription", "create", "stock", "--database", "erp", "--effect-file", effect];
    oncebox(home.path(), &[&create, more].concat());
    (home, process)
}

pub(crate) fn publish(process: &Process, article: &str) {
    process.post(
        "/v1/events",
        &json!({ "event_type": "taken", "payload": { "n": 1 }, "aggregate_type": "article", "aggregate_id": article }),
    );
}

pub(crate) fn pieces(erp: &Erp, article: &str) -> i64 {
    erp.run(&format!("SELECT pieces FROM stock WHERE article = '{article}'")).parse().unwrap()
}

/// The states of all deliveries, each with its number.
pub(crate) fn states(home: &Path) -> String {
    let conn = file::open(&home.join("data/oncebox.db"));
    let sql = "SELECT state || ' ' || count(*) FROM deliveries GROUP BY state ORDER BY state";
    file::lines(&conn, sql).join(", ")
}

/// What the attempts say, oldest first.
pub(crate) fn said(home: &Path) -> Vec<String> {
    let conn = file::open(&home.join("data/oncebox.db"));
    let sql = "SELECT class || ': ' || coalesce(failed_reason, excerpt, '') FROM attempts ORDER BY started_at, delivery_seq, n";
    file::lines(&conn, sql)
}
