//! The service asks for no right that is not printed, and leaves nothing running in the database: while it is off, the
//! outbox grows and nothing else.

use oncebox::databases::product::Product;

use crate::databases::erp::{Erp, add, are_stored_once, erps, until_stored};
use crate::databases::process::prelude::*;

/// Rows of a day that the service is off.
const A_DAY: usize = 3_000;

/// What the database lets the service's user do: one right a line.
fn rights(erp: &Erp) -> Vec<String> {
    let said = erp.run(match erp.product() {
        Product::Postgresql => {
            "SELECT 'may be all' FROM pg_roles WHERE rolname = 'oncebox'
                AND (rolsuper OR rolreplication OR rolcreaterole OR rolcreatedb OR rolbypassrls)
             UNION ALL SELECT 'is a member' FROM pg_auth_members WHERE member = 'oncebox'::regrole
             UNION ALL SELECT privilege_type || ' ' || table_name FROM information_schema.role_table_grants
                WHERE grantee = 'oncebox'
             UNION ALL SELECT privilege_type || ' ' || table_name || ' ' || column_name
                FROM information_schema.column_privileges
                WHERE grantee = 'oncebox' AND privilege_type = 'UPDATE' ORDER BY 1"
        }
        Product::Mariadb | Product::SqlServer => {
            "SELECT CONCAT(privilege_type, ' of all') FROM information_schema.user_privileges
                WHERE grantee = '''oncebox''@''%''' AND privilege_type <> 'USAGE'
             UNION ALL SELECT CONCAT(privilege_type, ' of a database') FROM information_schema.schema_privileges
                WHERE grantee = '''oncebox''@''%'''
             UNION ALL SELECT CONCAT(privilege_type, ' ', table_name) FROM information_schema.table_privileges
                WHERE grantee = '''oncebox''@''%'''
             UNION ALL SELECT CONCAT(privilege_type, ' ', table_name, ' ', column_name)
                FROM information_schema.column_privileges
                WHERE grantee = '''oncebox''@''%''' AND privilege_type = 'UPDATE' ORDER BY 1"
        }
    });
    said.lines().map(str::to_owned).collect()
}

/// All that could keep something, or grow, but for the outbox: its name and its size.
fn others(erp: &Erp) -> String {
    erp.run(match erp.product() {
        Product::Postgresql => {
            "SELECT 'session', count(*) FROM pg_stat_activity WHERE usename = 'oncebox'
             UNION ALL SELECT 'slot', count(*) FROM pg_replication_slots
             UNION ALL SELECT 'publication', count(*) FROM pg_publication
             UNION ALL SELECT 'prepared', count(*) FROM pg_prepared_xacts
             UNION ALL SELECT relname, pg_total_relation_size(oid) FROM pg_class
                WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND relname <> 'outbox' ORDER BY 1"
        }
        Product::Mariadb | Product::SqlServer => {
            "SELECT 'session', count(*) FROM information_schema.processlist WHERE user = 'oncebox'
             UNION ALL SELECT 'transaction', count(*) FROM information_schema.innodb_trx
             UNION ALL SELECT table_name, data_length + index_length FROM information_schema.tables
                WHERE table_schema = DATABASE() AND table_name <> 'outbox' ORDER BY 1"
        }
    })
}

#[test]
fn with_the_printed_rights_alone_all_works_and_only_the_outbox_grows_while_the_service_is_off() {
    for (mode, marks) in
        [("mark", vec!["taken_at"]), ("claim", vec!["taken_at", "taken_by"]), ("xid8", vec![])]
    {
        for erp in erps(mode) {
            erp.tables_of_targets();
            let mut wanted = ["INSERT oncebox_inbox", "INSERT processed_events", "SELECT outbox"]
                .map(str::to_owned)
                .to_vec();
            wanted.extend(marks.iter().map(|column| format!("UPDATE outbox {column}")));
            assert_eq!(rights(&erp), wanted, "{mode}");
            let home = tempfile::tempdir().unwrap();
            erp.settings(home.path(), "[box]\nname = \"north\"");
            let process = Process::start(home.path());
            add(&process, mode);
            let target = json!({ "name": "in", "url": "database:erp", "template": { "inbox": "oncebox_inbox" } });
            process.post("/v1/subscriptions", &target);
            erp.facts(0..10);
            let inbox = || erp.run("SELECT count(*) FROM oncebox_inbox");
            until("they are in the inbox", || inbox() == "10");
            process.stop();

            let has_none = |what: &str| {
                others(&erp)
                    .lines()
                    .any(|line| line == format!("{what}|0") || line == format!("{what}\t0"))
            };
            until("its sessions have ended", || has_none("session"));
            let before = others(&erp);
            for part in 0..A_DAY / 500 {
                erp.facts(10 + part * 500..10 + (part + 1) * 500);
            }
            assert_eq!(others(&erp), before, "{mode}");
            assert!(has_none(match erp.product() {
                Product::Postgresql => "slot",
                Product::Mariadb | Product::SqlServer => "transaction",
            }));

            let process = Process::start(home.path());
            let all = 10 + A_DAY;
            until_stored(home.path(), all);
            until("all is in the inbox", || inbox() == all.to_string());
            are_stored_once(home.path(), &(0..all).map(|n| n.to_string()).collect());
            process.stop();
        }
    }
}
