//! The pages on ERPs, as a reader would paste them: each command in its order, against a real database.
//!
//! Few things differ from the page: the server has a port of its own, the receiver is one of the test's, and the ERP's tables
//! are the few that the page names.

use crate::databases::process::prelude::*;
use crate::databases::site::{has_driver, program};
use crate::guards::server::{Mariadb, Postgresql};

const ODOO: &str = include_str!("../../docs/erp/odoo.md");
const ERPNEXT: &str = include_str!("../../docs/erp/erpnext.md");
const DOLIBARR: &str = include_str!("../../docs/erp/dolibarr.md");

/// The tables of Odoo that its page names.
const TABLES_OF_ODOO: &str = "
    CREATE TABLE account_move (id serial PRIMARY KEY, name text, state text DEFAULT 'draft', move_type text,
      partner_id integer, amount_total numeric, invoice_date date);
    INSERT INTO account_move (name, move_type, partner_id, amount_total, invoice_date)
    VALUES ('INV-1', 'out_invoice', 1, 119.00, '2026-11-28'), ('BILL-1', 'in_invoice', 2, 5, NULL);";

/// The table of ERPNext that its page names.
const TABLES_OF_ERPNEXT: &str = "
    CREATE TABLE `tabSales Invoice` (name VARCHAR(140) PRIMARY KEY, customer VARCHAR(140), grand_total DECIMAL(21,9),
      posting_date DATE, is_return TINYINT DEFAULT 0, docstatus INT DEFAULT 0);
    INSERT INTO `tabSales Invoice` (name, customer, grand_total, posting_date)
    VALUES ('INV-1', 'Größe GmbH', 119.00, '2026-11-28');";

/// The table of Dolibarr that its page names.
const TABLES_OF_DOLIBARR: &str = "
    CREATE TABLE llx_facture (rowid INT AUTO_INCREMENT PRIMARY KEY, ref VARCHAR(30), type SMALLINT DEFAULT 0, fk_soc INT,
      total_ttc DOUBLE(24,8), datef DATE, fk_statut SMALLINT DEFAULT 0);
    INSERT INTO llx_facture (ref, fk_soc, total_ttc, datef) VALUES ('(PROV1)', 1, 119.00, '2026-11-28');";

/// The blocks of a page in this language.
fn blocks<'p>(page: &'p str, language: &str) -> Vec<&'p str> {
    let fenced = page.split("```").skip(1).step_by(2);
    fenced.filter_map(|block| block.strip_prefix(language)?.strip_prefix('\n')).collect()
}

/// Somebody who follows a page.
struct Reader {
    home: TempDir,
    process: Process,
    receiver: Receiver,
    /// What stands before each command: the client of the database, as a function of the shell.
    client: String,
}

impl Reader {
    /// The service with the page's settings.
    fn start(page: &str, port: u16, client: String) -> Self {
        let home = tempfile::tempdir().unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        let password = home.path().join("erp.password");
        fs::write(&password, "change-me\n").unwrap();
        fs::set_permissions(&password, private).unwrap();
        let settings = blocks(page, "toml").concat();
        let settings = settings.replace("/etc/oncebox/erp.password", password.to_str().unwrap());
        let port = format!("port = {port}\ntls = false");
        let settings = format!("{SOON}\n{}", settings.replace("tls = false", &port));
        fs::write(home.path().join("oncebox.toml"), settings).unwrap();
        let process = Process::start(home.path());
        Self { home, process, receiver: Receiver::new(), client }
    }

    /// Runs commands, which end at the first error, and returns what they print.
    #[track_caller]
    fn run(&self, commands: &str) -> String {
        let commands = commands.replace("https://shop.example.com/hooks", &self.receiver.url());
        let program = Path::new(env!("CARGO_BIN_EXE_oncebox")).parent().unwrap().to_owned();
        let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
        let output = Command::new("sh")
            .args(["-c", &format!("set -e\n{}\n{commands}", self.client)])
            .current_dir(self.home.path())
            .env("PATH", path)
            .env("ONCEBOX_SERVER", format!("http://{}", self.process.address))
            .env("ONCEBOX_TOKEN", self.process.token())
            .env("ONCEBOX_CONFIG", self.home.path().join("oncebox.toml"))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{commands}\n{said}{errors}");
        said
    }

    /// Follows a page: an invoice that is `posted` goes out once, and a webhook that comes twice is one row, which `count` counts.
    #[track_caller]
    fn follow(&self, page: &str, posted: &str, count: &str) {
        let commands = blocks(page, "sh");
        let look = commands.iter().position(|block| block.starts_with("oncebox source list"));
        let (before, rest) = commands.split_at(look.unwrap());
        let (look, after) = rest.split_first().unwrap();
        for block in before {
            self.run(block);
        }
        self.run(posted);
        until("the receiver has it", || self.receiver.count() == 1);
        let sent = &self.receiver.seen()[0];
        assert_eq!(sent.field("oncebox-event-type"), Some("invoice.posted"));
        let payload: Value = serde_json::from_slice(&sent.body).unwrap();
        assert_eq!(payload["number"], "INV-1");
        assert!(payload["total"].as_str().unwrap().starts_with("119.00"), "{payload}");
        until("it says so", || self.run(look).contains("completed"));

        let said: String = after.iter().map(|block| self.run(block)).collect();
        shows(&said, &["processed_events is there", "1 row; rolled back"]);
        for _ in 0..2 {
            self.run("oncebox trigger standard --provider webshop --id msg_1 --data data");
        }
        until("the row is there", || self.run(count).trim() == "1");
        let listed = self.run("oncebox delivery list --subscription orders");
        shows(&listed, &["completed"]);
        assert_eq!(self.run(count).trim(), "1", "the duplicate has no row");
    }
}

/// Whether the helper program and a driver are there. Says what is not.
fn has(driver_name: &str) -> bool {
    let lacks = if program().is_none() {
        "oncebox-odbc: cargo build -p oncebox-odbc"
    } else if has_driver(driver_name) {
        return true;
    } else {
        driver_name
    };
    skipped(&format!("needs {lacks}"));
    false
}

#[test]
fn odoo_goes_from_nothing_to_a_webhook_out_and_a_row_in() {
    if !has("PostgreSQL Unicode") {
        return;
    }
    let Some(server) = Postgresql::start() else { return skipped("needs PostgreSQL") };
    // The client of this server goes where the page says `psql DATABASE`.
    let client = server.psql("").replace("-d postgres", "");
    let reader = Reader::start(ODOO, server.port, format!("psql() {{ {client} \"$@\"; }}"));
    reader.run("psql postgres -c 'CREATE DATABASE odoo'");
    reader.run(&format!("psql odoo <<'SQL'\n{TABLES_OF_ODOO}\nSQL"));
    reader.follow(
        ODOO,
        "psql odoo -c \"UPDATE account_move SET state = 'posted'\"",
        "psql odoo -Atc 'SELECT count(*) FROM oncebox_inbox'",
    );
    reader.process.stop();
}

/// Follows a page on `MariaDB`.
#[track_caller]
fn follow_on_mariadb(page: &str, database: &str, tables: &str, posted: &str) {
    if !has("MariaDB Unicode") {
        return;
    }
    let Some(server) = Mariadb::start() else { return skipped("needs MariaDB") };
    let client = server.client("--default-character-set=utf8mb4").replace("-D guards", "");
    let reader = Reader::start(page, server.port, format!("mariadb() {{ {client} \"$@\"; }}"));
    reader.run(&format!("mariadb -e 'CREATE DATABASE {database} CHARACTER SET utf8mb4'"));
    reader.run(&format!("mariadb {database} <<'SQL'\n{tables}\nSQL"));
    let posted = format!("mariadb {database} -e \"{posted}\"");
    let count = format!("mariadb {database} -Ne 'SELECT count(*) FROM oncebox_inbox'");
    reader.follow(page, &posted, &count);
    reader.process.stop();
}

#[test]
fn erpnext_goes_from_nothing_to_a_webhook_out_and_a_row_in() {
    let posted = "UPDATE \\`tabSales Invoice\\` SET docstatus = 1";
    follow_on_mariadb(ERPNEXT, "erpnext", TABLES_OF_ERPNEXT, posted);
}

#[test]
fn dolibarr_goes_from_nothing_to_a_webhook_out_and_a_row_in() {
    let posted = "UPDATE llx_facture SET ref = 'INV-1', fk_statut = 1";
    follow_on_mariadb(DOLIBARR, "dolibarr", TABLES_OF_DOLIBARR, posted);
}
