//! The guards of `packaging/sql/`, word for word, in consumers that `oncebox conformance` kills, repeats and runs at
//! the same time: on SQLite, on a real PostgreSQL and on a real `MariaDB`. And three broken consumers, which it has to find.
//! On the same servers, the outbox of an ERP that `oncebox source ddl` prints, beside four programs that write. SQL Server's texts are run nowhere.
//!
//! `ONCEBOX_GUARD_EVENTS` makes the trials longer.

mod consumer;
mod erp_outbox;
mod erp_writers;
pub(crate) mod server;

use consumer::{Consumer, piece};
use serde_json::Value;
use server::{Mariadb, Postgresql};

fn sqlite_file() -> Consumer {
    let consumer = Consumer::new(
        "sqlite3 -cmd '.timeout 10000' effects.db 'SELECT event_id FROM effects ORDER BY seq'",
    );
    let tables = piece("sqlite", "tables");
    consumer.shell(&format!(
        "sqlite3 -bail effects.db <<'SQL'\nPRAGMA journal_mode = WAL;\n{tables}\n\
         CREATE TABLE effects (seq INTEGER PRIMARY KEY AUTOINCREMENT, event_id TEXT NOT NULL);\nSQL"
    ));
    consumer
}

/// A consumer that is a shell script around the command line client of SQLite.
fn sqlite_script(sql: &str) -> String {
    format!(
        "set -e\ncat > event.$$ && rm event.$$\nsqlite3 -bail effects.db <<SQL\n.timeout 10000\n.parameter init\n\
         .parameter set :consumer_group shipping\n.parameter set :event_id \"'$ONCEBOX_WEBHOOK_ID'\"\n\
         {sql}\nSQL\n"
    )
}

const UNGUARDED: &str = "INSERT INTO effects (event_id) VALUES (:event_id);";
const EFFECT: &str = "INSERT INTO effects (event_id) SELECT :event_id WHERE changes() = 1;";

fn sqlite_claim() -> String {
    ["begin", "claim"].map(|name| piece("sqlite", name)).concat()
}

fn has(report: &Value, what: &str) -> usize {
    report["counted"][what].as_array().unwrap().len()
}

#[test]
fn the_text_for_sqlite_holds_in_its_command_line_client() {
    if server::found("sqlite3").is_none() {
        return crate::rig::skipped("needs sqlite3");
    }
    let consumer = sqlite_file();
    let commit = piece("sqlite", "commit");
    let script = sqlite_script(&format!("{}{EFFECT}\n{commit}", sqlite_claim()));
    consumer.is_good(&["sh", "-c", &script], &[]);
}

#[test]
fn the_text_for_sqlite_holds_in_python_and_lets_no_older_version_through() {
    let (Some(_), Some(python)) = (server::found("sqlite3"), server::found("python3")) else {
        return crate::rig::skipped("needs sqlite3 and python3");
    };
    let consumer = sqlite_file();
    let script = format!(
        "import json, os, sqlite3, sys\nevent = json.load(sys.stdin)\n\
         db = sqlite3.connect('effects.db', isolation_level=None)\ndb.executescript('''{}''')\n\
         claimed = db.execute('''{}''', dict(consumer_group='shipping', entity=event['entity'],\n\
         \x20   version=event['version'])).rowcount\nif claimed == 1:\n\
         \x20   db.execute('INSERT INTO effects (event_id) VALUES (?)', [os.environ['ONCEBOX_WEBHOOK_ID']])\n\
         db.execute('''{}''')\n",
        piece("sqlite", "begin"),
        piece("sqlite", "claim newer"),
        piece("sqlite", "commit"),
    );
    consumer.is_good(&[python.to_str().unwrap(), "-c", &script], &["--newer"]);
}

/// A guard in a transaction of its own, before the effect.
fn before() -> String {
    let claim = sqlite_claim().replace(":event_id", "'$ONCEBOX_WEBHOOK_ID'");
    let claim = claim.replace(":consumer_group", "'shipping'");
    format!(
        "first=$(sqlite3 -bail effects.db \"{claim} SELECT changes(); COMMIT;\" | tail -n 1) || exit 1\n\
         [ \"$first\" = 0 ] && exit 0\n{}",
        sqlite_script(UNGUARDED)
    )
}

/// The same after the effect.
fn afterwards() -> String {
    let claim = sqlite_script(&format!("{}COMMIT;", sqlite_claim()));
    format!(
        "known=$(sqlite3 -cmd '.timeout 10000' effects.db \"SELECT count(*) FROM processed_events\n\
         WHERE event_id = '$ONCEBOX_WEBHOOK_ID'\") || exit 1\n[ \"$known\" = 1 ] && exit 0\n{}{claim}",
        sqlite_script(UNGUARDED)
    )
}

#[test]
fn each_guard_that_is_wrong_is_found_and_named_by_what_it_does() {
    if server::found("sqlite3").is_none() {
        return crate::rig::skipped("needs sqlite3");
    }
    let without_versions = sqlite_script(&format!("{}{EFFECT}\nCOMMIT;", sqlite_claim()));
    for (script, flags, found, others) in [
        (sqlite_script(UNGUARDED), [].as_slice(), "doubled", ["lost"].as_slice()),
        (before(), &[], "lost", &["doubled"]),
        (afterwards(), &[], "doubled", &["lost"]),
        (without_versions, &["--newer"], "stale", &["lost", "doubled"]),
    ] {
        let report = sqlite_file().is_bad(&["sh", "-c", &script], flags, found);
        for other in others {
            assert_eq!(has(&report, other), 0, "{script}: {other}");
        }
    }
}

#[test]
fn a_consumer_that_cannot_work_is_named_with_what_it_says() {
    let consumer = Consumer::new("true");
    let report =
        consumer.report(&["sh", "-c", "echo the ledger is closed >&2; exit 3"], &["--events", "2"]);
    let refused = report["refused"].as_array().unwrap();
    assert_eq!(refused.len(), 2);
    assert_eq!(refused[0]["reason"], "exit 3: the ledger is closed");
    assert_eq!(report["good"], false);
}

#[test]
fn the_text_for_postgresql_holds_on_a_real_server() {
    let Some(server) = Postgresql::start() else {
        return crate::rig::skipped("needs postgresql");
    };
    let consumer =
        Consumer::new(&server.psql("-At -c 'SELECT event_id FROM effects ORDER BY seq'"));
    let tables = piece("postgresql", "tables");
    let setup = "CREATE TABLE effects (seq bigserial PRIMARY KEY, event_id text NOT NULL);";
    consumer.shell(&format!("{} <<'SQL'\n{tables}\n{setup}\nSQL", server.psql("-q")));
    for (claim, flags) in [("claim", [].as_slice()), ("claim newer", &["--newer"])] {
        let script = format!(
            "version=$(sed 's/.*\"version\":\\([0-9]*\\).*/\\1/') || exit 1\n{} <<'SQL'\n{}{}\n\\if :ROW_COUNT\n\
             INSERT INTO effects (event_id) VALUES (:'event_id');\n\\endif\n{}\nSQL\n",
            server.psql(
                "-q -v consumer_group=shipping -v \"event_id=$ONCEBOX_WEBHOOK_ID\" \
                 -v \"entity=$ONCEBOX_AGGREGATE_ID\" -v \"version=$version\""
            ),
            piece("postgresql", "begin"),
            piece("postgresql", claim),
            piece("postgresql", "commit"),
        );
        consumer.is_good(&["sh", "-c", &script], flags);
    }
    for entity in ["known", "new"] {
        let script = format!(
            "{} 2>&1 <<'SQL' && echo taken || echo refused\nINSERT INTO processed_versions (consumer_group, entity, version) VALUES \
             ('shipping', 'known', 5) ON CONFLICT DO NOTHING;\n\\set consumer_group shipping\n\\set entity {entity}\n{}{}\nSQL\n",
            server.psql("-q -v ON_ERROR_STOP=1"),
            piece("postgresql", "begin"),
            piece("postgresql", "claim newer")
                .replace(":'version'", "NULL")
                .replace(":version", "NULL"),
        );
        let said = consumer.shell(&script);
        assert!(said.contains("null value") && said.ends_with("refused\n"), "{said}");
    }
    let cleanup = piece("postgresql", "cleanup");
    let old = "UPDATE processed_events SET processed_at = now() - interval '91 days';";
    let left = format!(
        "{} <<'SQL'\n{old}\n{cleanup}\nSELECT count(*) FROM processed_events;\nSQL",
        server.psql("-qAt")
    );
    assert_eq!(consumer.shell(&left).trim(), "0");
}

#[test]
fn the_text_for_mariadb_holds_on_a_real_server() {
    let Some(server) = Mariadb::start() else {
        return crate::rig::skipped("needs mariadb-server");
    };
    let consumer =
        Consumer::new(&server.client("-N -e 'SELECT event_id FROM effects ORDER BY seq'"));
    let tables = piece("mariadb", "tables");
    let setup = "CREATE TABLE effects (seq BIGINT AUTO_INCREMENT PRIMARY KEY, event_id VARCHAR(255) NOT NULL);";
    consumer.shell(&format!("{} <<'SQL'\n{tables}\n{setup}\nSQL", server.client("")));
    let effect = "INSERT INTO effects (event_id) SELECT @event_id FROM DUAL WHERE ROW_COUNT() = 1;";
    for (claim, flags) in [("claim", [].as_slice()), ("claim newer", &["--newer"])] {
        let script = format!(
            "version=$(sed 's/.*\"version\":\\([0-9]*\\).*/\\1/') || exit 1\n{} <<SQL\n\
             SET @consumer_group = 'shipping', @event_id = '$ONCEBOX_WEBHOOK_ID',\n\
             \x20   @entity = '$ONCEBOX_AGGREGATE_ID', @version = $version;\n{}{}\n{effect}\n{}\nSQL\n",
            server.client(""),
            piece("mariadb", "begin"),
            piece("mariadb", claim),
            piece("mariadb", "commit"),
        );
        consumer.is_good(&["sh", "-c", &script], flags);
    }
    for entity in ["known", "new"] {
        let script = format!(
            "{} 2>&1 <<'SQL' && echo taken || echo refused\nINSERT IGNORE INTO processed_versions (consumer_group, entity, version) VALUES \
             ('shipping', 'known', 5);\nSET @consumer_group = 'shipping', @entity = '{entity}', @version = NULL;\n{}{}\nSQL\n",
            server.client(""),
            piece("mariadb", "begin"),
            piece("mariadb", "claim newer"),
        );
        let said = consumer.shell(&script);
        assert!(said.contains("cannot be null") && said.ends_with("refused\n"), "{said}");
    }
    let cleanup = piece("mariadb", "cleanup");
    let old = "UPDATE processed_events SET processed_at = NOW() - INTERVAL 91 DAY;";
    let left = format!(
        "{} <<'SQL'\n{old}\n{cleanup}\nSELECT count(*) FROM processed_events;\nSQL",
        server.client("-N")
    );
    assert_eq!(consumer.shell(&left).trim(), "0");
}

#[test]
fn the_tables_of_the_crate_are_those_of_the_text_for_sqlite() {
    let bare = |sql: &str| {
        let lines = sql.lines().filter(|line| !line.trim_start().starts_with("--"));
        lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(bare(oncebox::guard::TABLE), bare(&piece("sqlite", "tables")));
}
