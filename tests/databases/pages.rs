//! The pages on ERPs, as a reader would paste them: each command in its order, against a real database.
//!
//! Few things differ from the page: the server has a port of its own, the receiver is one of the test's, and the ERP's tables
//! are the few that the page names.

use crate::process::prelude::*;
use crate::server::Postgresql;
use crate::site::{has_driver, program};

const ODOO: &str = include_str!("../../docs/erp/odoo.md");

/// The tables of Odoo that its page names.
const TABLES_OF_ODOO: &str = "
    CREATE TABLE account_move (id serial PRIMARY KEY, name text, state text DEFAULT 'draft', move_type text,
      partner_id integer, amount_total numeric, invoice_date date);
    INSERT INTO account_move (name, move_type, partner_id, amount_total, invoice_date)
    VALUES ('INV/2026/0001', 'out_invoice', 1, 119.00, '2026-11-28'), ('BILL/2026/0001', 'in_invoice', 2, 5, NULL)";

/// The blocks of a page in this language.
fn blocks<'p>(page: &'p str, language: &str) -> Vec<&'p str> {
    let fenced = page.split("```").skip(1).step_by(2);
    fenced.filter_map(|block| block.strip_prefix(language)?.strip_prefix('\n')).collect()
}

#[test]
fn odoo_goes_from_nothing_to_a_webhook_out_and_a_row_in() {
    let lacks = [
        (program().is_none(), "oncebox-odbc: cargo build -p oncebox-odbc"),
        (!has_driver("PostgreSQL Unicode"), "the ODBC driver PostgreSQL Unicode"),
    ];
    if let Some((_, what)) = lacks.into_iter().find(|(is_lacking, _)| *is_lacking) {
        return skipped(&format!("needs {what}"));
    }
    let Some(server) = Postgresql::start() else { return skipped("needs PostgreSQL") };
    let home = tempfile::tempdir().unwrap();
    let receiver = Receiver::new();
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    let password = home.path().join("erp.password");
    fs::write(&password, "change-me\n").unwrap();
    fs::set_permissions(&password, private).unwrap();
    let settings = blocks(ODOO, "toml").concat();
    let settings = settings.replace("/etc/oncebox/erp.password", password.to_str().unwrap());
    let port = format!("port = {}\ntls = false", server.port);
    let settings = format!("{SOON}\n{}", settings.replace("tls = false", &port));
    fs::write(home.path().join("oncebox.toml"), settings).unwrap();
    let process = Process::start(home.path());

    let run = |commands: &str| {
        // The client of this server goes where the page says `psql DATABASE`.
        let client = server.psql("").replace("-d postgres", "");
        let commands = commands.replace("https://shop.example.com/hooks", &receiver.url());
        let script = format!("set -e\npsql() {{ {client} \"$@\"; }}\n{commands}");
        let program = Path::new(env!("CARGO_BIN_EXE_oncebox")).parent().unwrap().to_owned();
        let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
        let output = Command::new("sh")
            .args(["-c", &script])
            .current_dir(home.path())
            .env("PATH", path)
            .env("ONCEBOX_SERVER", format!("http://{}", process.address))
            .env("ONCEBOX_TOKEN", process.token())
            .env("ONCEBOX_CONFIG", home.path().join("oncebox.toml"))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{commands}\n{said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        said
    };
    run("psql postgres -c 'CREATE DATABASE odoo'");
    run(&format!("psql odoo <<'SQL'\n{TABLES_OF_ODOO}\nSQL"));
    let commands = blocks(ODOO, "sh");
    let (look, others) = {
        let at =
            commands.iter().position(|block| block.starts_with("oncebox source list")).unwrap();
        let (before, rest) = commands.split_at(at);
        before.iter().for_each(|block| drop(run(block)));
        (rest[0], &rest[1..])
    };

    run("psql odoo -c \"UPDATE account_move SET state = 'posted'\"");
    until("the receiver has it", || receiver.count() == 1);
    let sent = &receiver.seen()[0];
    assert_eq!(sent.field("oncebox-event-type"), Some("invoice.posted"));
    let payload: Value = serde_json::from_slice(&sent.body).unwrap();
    assert_eq!(
        (&payload["number"], &payload["total"]),
        (&json!("INV/2026/0001"), &json!("119.00"))
    );
    let looked = run(look);
    shows(&looked, &["odoo", "invoice.posted", "completed"]);

    let said: String = others.iter().map(|block| run(block)).collect();
    shows(&said, &["processed_events is there", "1 row; rolled back"]);
    for _ in 0..2 {
        run("oncebox trigger standard --provider webshop --id msg_1 --data data");
    }
    let count = "psql odoo -Atc 'SELECT count(*) FROM oncebox_inbox'";
    until("the row is there", || run(count).trim() == "1");
    let listed = run("oncebox delivery list --subscription orders");
    shows(&listed, &["completed"]);
    assert_eq!(run(count).trim(), "1", "the duplicate has no row");
    process.stop();
}
