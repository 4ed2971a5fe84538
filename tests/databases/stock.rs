//! The stock of an ERP, and a service whose events take from it.

use crate::databases::erp::{Erp, oncebox};
use crate::databases::process::prelude::*;

/// Takes an article from the stock, and never below nothing.
const TAKE: &str = "UPDATE stock SET pieces = pieces - 1 WHERE article = :aggregate_id;";

/// What is there of the article `a`.
pub(crate) const STOCK: i64 = 100_000;

/// The ERP's table, and the tables that `database ddl` prints, with exactly its grants.
pub(crate) fn set_up(erp: &Erp) {
    erp.run(&format!(
        "CREATE TABLE stock (article VARCHAR(40) PRIMARY KEY, pieces INTEGER NOT NULL CHECK (pieces >= 0));
         INSERT INTO stock VALUES ('a', {STOCK}), ('b', 1)"
    ));
    erp.tables_of_targets();
    erp.run(&format!("GRANT SELECT, UPDATE ON stock TO {}", erp.user()));
}

/// A service that takes from the stock for each event.
pub(crate) fn taking(erp: &Erp, more: &[&str]) -> (TempDir, Process) {
    let home = tempfile::tempdir().unwrap();
    erp.settings(home.path(), "");
    let process = Process::start(home.path());
    create_taking(home.path(), more);
    (home, process)
}

/// The subscription that takes from the stock for each event.
pub(crate) fn create_taking(home: &Path, more: &[&str]) {
    let effect = home.join("take.sql");
    fs::write(&effect, TAKE).unwrap();
    let effect = effect.to_str().unwrap();
    let create = ["subscription", "create", "stock", "--database", "erp", "--effect-file", effect];
    oncebox(home, &[&create, more].concat());
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
