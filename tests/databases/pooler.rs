//! Behind pgbouncer in transaction mode, where each transaction may run on another connection, and each connection is
//! used by others in between.

use crate::databases::erp::{self, Erp, erps, redirect, stored, until_stored};
use crate::databases::process::prelude::*;
use crate::databases::stock;
use crate::guards::server::{Home, Running, found};
use crate::rig::port::free_port;

/// Transactions of a test, each with a row.
const ROWS: usize = 60;

/// A pgbouncer with one connection to the database of an ERP, which all its clients share.
struct Pooler {
    port: u16,
    running: Running,
    // Its directory goes with it.
    home: Home,
}

impl Pooler {
    /// `None` after saying what is missing.
    fn start(erp: &Erp) -> Option<Self> {
        let erp::Server::Postgresql(server) = &erp.server else { return None };
        let Some(program) = found("pgbouncer") else {
            skipped("needs pgbouncer");
            return None;
        };
        let home = Home::of("postgres")?;
        let port = free_port();
        let folder = home.path().display();
        // Nothing is ignored that the service sends at the start.
        let settings = format!(
            "[databases]\npostgres = {}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             auth_type = scram-sha-256\nauth_file = {folder}/users\npool_mode = transaction\ndefault_pool_size = 1\n",
            server.address().replace("user=guards ", "")
        );
        let file = home.path().join("pgbouncer.ini");
        fs::write(&file, settings).unwrap();
        let users = format!("\"oncebox\" \"{}\"\n", erp::PASSWORD);
        fs::write(home.path().join("users"), users).unwrap();
        let running = home.start(&program, &[file.to_str().unwrap()]);
        home.wait(|| TcpStream::connect(("127.0.0.1", port)).is_ok());
        Some(Self { port, running, home })
    }

    /// What another client is answered, as the same user, and so over the same connection to the database.
    #[track_caller]
    fn ask(&self, sql: &str) -> String {
        let log = || fs::read_to_string(self.home.path().join("log")).unwrap_or_default();
        ask("127.0.0.1", self.port, sql).unwrap_or_else(|error| panic!("{sql}: {error}{}", log()))
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        self.running.stop("-INT");
    }
}

/// What the database answers to the service's user.
fn ask(host: &str, port: u16, sql: &str) -> Result<String, String> {
    let mut client = Command::new(found("psql").unwrap());
    client.args(["-X", "-qAt", "-h", host, "-U", "oncebox", "-d", "postgres", "-p"]);
    client.arg(port.to_string()).args(["-v", "ON_ERROR_STOP=1", "-c", sql]);
    let output = client.env("PGPASSWORD", erp::PASSWORD).output().unwrap();
    if output.status.success() {
        Ok(String::from_utf8(output.stdout).unwrap().trim().to_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// All that a session could have been left with by another one.
const LEFT: &str = "SELECT name || ' = ' || setting FROM pg_settings
    UNION ALL SELECT 'prepared ' || statement FROM pg_prepared_statements
    UNION ALL SELECT 'listens to ' || channel FROM pg_listening_channels() AS channel
    UNION ALL SELECT 'temporary ' || relname FROM pg_class WHERE relpersistence = 't'
    UNION ALL SELECT 'lock ' || classid || ' ' || objid FROM pg_locks WHERE locktype = 'advisory'
    ORDER BY 1";

/// What a client over the pooler finds that a new session does not.
#[track_caller]
fn leaks(erp: &Erp, pooler: &Pooler) -> Vec<String> {
    // The pooler, too, connects over the socket.
    let erp::Server::Postgresql(server) = &erp.server else { return Vec::new() };
    let address = server.address();
    let socket = address.split(' ').next().unwrap().trim_start_matches("host=");
    let fresh = ask(socket, erp.port(), LEFT).unwrap();
    let fresh: BTreeSet<&str> = fresh.lines().collect();
    let left = pooler.ask(LEFT);
    left.lines().filter(|line| !fresh.contains(line)).map(str::to_owned).collect()
}

/// The service and its neighbour have shared one connection.
#[track_caller]
fn is_shared(erp: &Erp) {
    let connections = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'oncebox'";
    assert_eq!(erp.run(connections), "1");
}

#[test]
fn all_rows_come_through_a_pooler_and_no_setting_of_ours_stays_with_another_client() {
    for mode in ["mark", "claim", "xid8"] {
        for erp in erps(mode) {
            let Some(pooler) = Pooler::start(&erp) else { continue };
            // The ERP writes as the same user, through the same connection.
            erp.run("GRANT INSERT ON outbox TO oncebox");
            let home = tempfile::tempdir().unwrap();
            erp.settings(home.path(), "[box]\nname = \"north\"");
            redirect(home.path(), erp.port(), pooler.port);
            let process = Process::start(home.path());
            erp::add(&process, mode);
            for n in 0..ROWS {
                pooler.ask(&erp::fact(&n.to_string()));
                if n.is_multiple_of(10) {
                    until_stored(home.path(), n + 1);
                    assert_eq!(leaks(&erp, &pooler), [""; 0], "{mode}");
                }
            }
            until_stored(home.path(), ROWS);
            erp::are_stored_once(home.path(), &(0..ROWS).map(|n| n.to_string()).collect());
            if mode != "xid8" {
                until("all is marked", || erp.unmarked() == "0");
            }
            is_shared(&erp);
            process.stop();
            assert_eq!(stored(home.path()).len(), ROWS);
        }
    }
}

#[test]
fn all_effects_are_made_through_a_pooler_and_no_setting_of_ours_stays_with_another_client() {
    for erp in erps("mark") {
        let Some(pooler) = Pooler::start(&erp) else { continue };
        stock::set_up(&erp);
        let home = tempfile::tempdir().unwrap();
        erp.settings(home.path(), "");
        redirect(home.path(), erp.port(), pooler.port);
        let process = Process::start(home.path());
        stock::create_taking(home.path(), &[]);
        for n in 1..=ROWS {
            stock::publish(&process, "a");
            if n.is_multiple_of(10) {
                until("they are done", || stock::states(home.path()) == format!("completed {n}"));
                assert_eq!(leaks(&erp, &pooler), [""; 0]);
            }
        }
        let taken = i64::try_from(ROWS).unwrap();
        assert_eq!(stock::pieces(&erp, "a"), stock::STOCK - taken);
        is_shared(&erp);
        process.stop();
    }
}
