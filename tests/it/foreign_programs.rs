//! Other programs, each with an SQLite of its own, that write into our file.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Child;

use oncebox::store::error::Error;

use crate::rig::prelude::*;

/// An invoice and its event: rolled back, then committed, then committed again.
const PYTHON: &str = r#"
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=5, isolation_level=None)
db.execute("PRAGMA wal_autocheckpoint = 0")
db.execute("CREATE TABLE IF NOT EXISTS erp_invoices (number INTEGER PRIMARY KEY, total TEXT)")
for end in "ROLLBACK", "COMMIT", "COMMIT":
    db.execute("BEGIN IMMEDIATE")
    db.execute("INSERT INTO erp_invoices VALUES (4711, '99.00') ON CONFLICT DO NOTHING")
    db.execute("INSERT INTO outbox (event_type, idempotency_key, payload) VALUES ('invoice', ?, ?) "
               "ON CONFLICT DO NOTHING", ("inv-4711", '{"total":"99.00"}'))
    db.execute(end)
"#;

const PYTHON_CHECKS: &str = r#"said = db.execute("PRAGMA integrity_check").fetchone()
assert said == ("ok",), said"#;

const PHP: &str = r#"
$db = new PDO("sqlite:" . $argv[1], null, null, [PDO::ATTR_TIMEOUT => 5]);
$db->exec("PRAGMA wal_autocheckpoint = 0");
$db->exec("CREATE TABLE IF NOT EXISTS erp_invoices (number INTEGER PRIMARY KEY, total TEXT)");
foreach (["ROLLBACK", "COMMIT", "COMMIT"] as $end) {
    $db->exec("BEGIN IMMEDIATE");
    $db->exec("INSERT INTO erp_invoices VALUES (4711, '99.00') ON CONFLICT DO NOTHING");
    $db->prepare("INSERT INTO outbox (event_type, idempotency_key, payload) VALUES ('invoice', ?, ?) ON CONFLICT DO NOTHING")
       ->execute(["inv-4711", '{"total":"99.00"}']);
    $db->exec($end);
}
"#;

const NODE: &str = r#"
const { DatabaseSync } = require("node:sqlite");
const db = new DatabaseSync(process.argv[1]);
db.exec("PRAGMA wal_autocheckpoint = 0; PRAGMA busy_timeout = 5000");
db.exec("CREATE TABLE IF NOT EXISTS erp_invoices (number INTEGER PRIMARY KEY, total TEXT)");
for (const end of ["ROLLBACK", "COMMIT", "COMMIT"]) {
    db.exec("BEGIN IMMEDIATE");
    db.exec("INSERT INTO erp_invoices VALUES (4711, '99.00') ON CONFLICT DO NOTHING");
    db.prepare("INSERT INTO outbox (event_type, idempotency_key, payload) VALUES ('invoice', ?, ?) ON CONFLICT DO NOTHING")
      .run("inv-4711", '{"total":"99.00"}');
    db.exec(end);
}
"#;

const SHELL: &str = r#"
.bail on
.timeout 5000
PRAGMA wal_autocheckpoint = 0;
CREATE TABLE IF NOT EXISTS erp_invoices (number INTEGER PRIMARY KEY, total TEXT);
BEGIN IMMEDIATE;
INSERT INTO erp_invoices VALUES (4711, '99.00');
INSERT INTO outbox (event_type, idempotency_key, payload) VALUES ('invoice', 'inv-4711', '{"total":"99.00"}');
ROLLBACK;
BEGIN IMMEDIATE;
INSERT INTO erp_invoices VALUES (4711, '99.00');
INSERT INTO outbox (event_type, idempotency_key, payload) VALUES ('invoice', 'inv-4711', '{"total":"99.00"}');
COMMIT;
INSERT INTO outbox (event_type, idempotency_key, payload) VALUES ('invoice', 'inv-4711', '{"total":"99.00"}')
    ON CONFLICT DO NOTHING;
"#;

/// Runs a program of the machine over the file; `false` when the machine has no such program.
fn run(rig: &Rig, program: &str, arguments: &[&str], stdin: &str) -> bool {
    let script = rig.home().join("script");
    fs::write(&script, stdin).unwrap();
    let mut command = Command::new(program);
    command.args(arguments).stdin(fs::File::open(script).unwrap());
    match command.output() {
        Err(_) => false,
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && said.is_empty(), "{program}: {said}");
            true
        }
    }
}

#[track_caller]
fn invoices(needs: &str, mut program: impl FnMut(&Rig, &str) -> bool) {
    let (rig, receiver) = Rig::subscribed("logistics");
    if !program(&rig, rig.data().join("oncebox.db").to_str().unwrap()) {
        return skipped(needs);
    }
    rig.sent(&receiver, 1);
    assert_eq!(rig.one("SELECT group_concat(number) FROM erp_invoices"), "4711");
    assert_eq!(rig.dump(), "invoice completed\n  logistics completed\n    1 +0s success 200\n");
    assert_eq!(receiver.seen()[0].body, br#"{"total":"99.00"}"#);
}

#[test]
fn python_inserts_an_event_with_its_invoice() {
    invoices("needs python3", |rig, path| {
        run(rig, "python3", &["-c", &format!("{PYTHON}{PYTHON_CHECKS}"), path], "")
    });
}

#[test]
fn php_inserts_an_event_with_its_invoice() {
    invoices("needs php-cli and php-sqlite3", |rig, path| run(rig, "php", &["-r", PHP, path], ""));
}

#[test]
fn the_sqlite_shell_inserts_an_event_with_its_invoice() {
    invoices("needs sqlite3", |rig, path| run(rig, "sqlite3", &[path], SHELL));
}

#[test]
fn node_inserts_an_event_with_its_invoice() {
    const NEEDS: &str = "needs a Node with node:sqlite (22.5 or newer)";
    let knows = Command::new("node").args(["-e", "require('node:sqlite')"]).output();
    if !knows.is_ok_and(|output| output.status.success()) {
        return skipped(NEEDS);
    }
    let quiet = "--no-warnings";
    invoices(NEEDS, |rig, path| run(rig, "node", &[quiet, "-e", NODE, path], ""));
}

/// Reads every table and view, as a person who looks for an event does. No integrity check: the library is built
/// without JSON functions, as it was by default then, and the CHECKs of other tables than the outbox need them.
const READ_ALL: &str = r#"
assert sqlite3.sqlite_version.startswith("3.37."), sqlite3.sqlite_version
for name, in db.execute("SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')").fetchall():
    db.execute('SELECT * FROM "%s"' % name).fetchall()
"#;

#[test]
fn the_oldest_sqlite_that_may_open_the_file_inserts_an_event_and_reads_every_table() {
    const NEEDS: &str = "needs ONCEBOX_OLDEST_SQLITE, the path of a libsqlite3.so of SQLite 3.37";
    let Ok(library) = std::env::var("ONCEBOX_OLDEST_SQLITE") else {
        return skipped(NEEDS);
    };
    invoices(NEEDS, |rig, path| {
        let program = format!("{PYTHON}{READ_ALL}");
        run(rig, "env", &[&format!("LD_PRELOAD={library}"), "python3", "-c", &program, path], "")
    });
}

/// Python that holds the write lock so long, once it has said that it has it.
fn locked_for(path: &Path, seconds: f64) -> Option<Child> {
    const HOLD: &str = r#"
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], timeout=20, isolation_level=None)
db.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
time.sleep(float(sys.argv[2]))
db.execute("INSERT INTO outbox (event_type, payload) VALUES ('held', '{}')")
db.execute("COMMIT")
"#;
    let mut child = Command::new("python3")
        .args(["-c", HOLD])
        .arg(path)
        .arg(seconds.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
    Some(child)
}

#[test]
fn a_program_that_locks_the_file_for_long_makes_senders_come_again_and_loses_nothing() {
    let (rig, receiver) = Rig::subscribed_to("logistics", Receiver::scripted([Reply::Hang]));
    rig.publish_type("before");
    until("it is under way", || receiver.count() == 1);
    let Some(mut python) = locked_for(&rig.data().join("oncebox.db"), 4.0) else {
        return skipped("needs python3");
    };
    // The result of this attempt has to wait for the lock, and must not be lost.
    receiver.release();
    let refused =
        rig.post("/v1/events", &json!({ "event_type": "meanwhile", "payload": 1 })).is(503);
    assert!(refused.field("retry-after").is_some(), "{refused:?}");
    assert!(python.wait().unwrap().success());
    rig.publish_type("after");
    rig.sent(&receiver, 3);
    let states = "SELECT group_concat(event_type || ' ' || status, ', ') FROM outbox";
    rig.becomes(states, "before completed, held completed, after completed");
    assert_eq!(rig.one("SELECT count(*) FROM attempts"), "3");
}

#[test]
fn what_consumers_say_while_a_program_locks_the_file_is_refused_and_heard_when_it_is_said_again() {
    let rig = Rig::new();
    rig.post("/v1/subscriptions", &json!({ "name": "erp", "target": "pull" })).is(201);
    rig.publish_types(&["done", "failed", "slow"]);
    let items = rig.get("/v1/consumers/erp/next?max=3")["items"].clone();
    let say = |n: usize, verb: &str| {
        let item = json!({ "delivery": items[n]["delivery"], "lease": items[n]["lease"] });
        rig.post(&format!("/v1/consumers/erp/{verb}"), &json!({ "items": [item] }))
    };
    let Some(mut python) = locked_for(&rig.data().join("oncebox.db"), 4.0) else {
        return skipped("needs python3");
    };
    for (n, verb) in ["ack", "nack", "extend"].into_iter().enumerate() {
        let refused = say(n, verb).is(503);
        assert!(refused.field("retry-after").is_some(), "{refused:?}");
    }
    assert!(python.wait().unwrap().success());
    for (n, verb) in ["ack", "nack", "extend"].into_iter().enumerate() {
        assert_eq!(say(n, verb).is(200).json()["items"][0]["status"], 200, "{verb}");
    }
    assert_eq!(rig.one("SELECT count(*) FROM attempts"), "2");
    // The lock was the other program's row too: it is given like any other.
    until("it is given", || rig.get("/v1/consumers/erp/next")["items"][0]["event_type"] == "held");
}

#[test]
fn a_user_of_the_group_inserts_whoever_made_the_log_and_whatever_the_umask() {
    const USER: u32 = 54_321;
    const GROUP: u32 = 54_322;
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    if !is_root || Command::new("setpriv").arg("--version").output().is_err() {
        return skipped("needs root and setpriv");
    }
    let mut rig = Rig::with(|settings| {
        settings.database.group = Some(GROUP.to_string());
        let home = settings.database.directory.parent().unwrap();
        fs::set_permissions(home, PermissionsExt::from_mode(0o711)).unwrap();
    });
    let receiver = Receiver::new();
    rig.subscribe("logistics", &receiver);
    let path = rig.data().join("oncebox.db");
    let insert = |key: &str, group: u32| {
        let sql = format!(
            "INSERT INTO outbox (event_type, idempotency_key, payload) VALUES ('a', '{key}', '{{}}')"
        );
        let shell = "umask 077; exec python3 -c \"$0\" \"$1\" \"$2\"";
        let program = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1], timeout=5); \
                       db.execute('PRAGMA wal_autocheckpoint = 0'); db.execute(sys.argv[2]); db.commit()";
        let mut setpriv = Command::new("setpriv");
        setpriv.args([format!("--reuid={USER}"), format!("--regid={USER}")]);
        setpriv.arg(format!("--groups={group}")).args(["sh", "-c", shell, program]);
        setpriv.arg(&path).arg(sql).stderr(Stdio::null()).status().unwrap().success()
    };
    assert!(insert("served", GROUP));
    assert!(!insert("stranger", USER));
    rig.sent(&receiver, 1);
    rig.stop();
    // Now the other program is the one that makes -wal and -shm.
    assert!(insert("down", GROUP));
    rig.start_again();
    until("it is delivered", || receiver.count() == 2);
    assert!(insert("served again", GROUP));
    rig.sent(&receiver, 3);
    for ending in ["", "-wal", "-shm"] {
        let file = fs::metadata(format!("{}{ending}", path.display())).unwrap();
        assert_eq!((file.mode() & 0o777, file.gid()), (0o660, GROUP), "oncebox.db{ending}");
    }
}

#[test]
fn whoever_can_come_again_is_told_so_however_much_waits_for_the_lock() {
    let rig = Rig::new();
    let lock = rig.writable();
    lock.run("BEGIN IMMEDIATE");
    let writer = rig.appliance().store().writer().clone();
    let (tell, told) = mpsc::channel();
    for n in 0..600 {
        let tell = tell.clone();
        let queue = if n % 2 == 0 { Queue::Settle } else { Queue::Later };
        writer.submit(queue, |_| Ok(()), move |outcome| tell.send(outcome).unwrap());
    }
    for queue in [Queue::Accept, Queue::Upkeep, Queue::Accept] {
        let (tell, told) = mpsc::channel();
        writer.submit(queue, |_| Ok(()), move |outcome| drop(tell.send(outcome)));
        let outcome = told.recv_timeout(crate::rig::PATIENCE);
        assert!(matches!(outcome, Ok(Err(Error::Busy))), "{outcome:?}");
    }
    lock.run("ROLLBACK");
    drop(tell);
    assert_eq!(told.iter().flatten().count(), 600);
}

/// What six jobs tell that came while another program had the lock, in its order.
fn told_of_six(rig: &Rig) -> Vec<&'static str> {
    let lock = rig.writable();
    lock.run("BEGIN IMMEDIATE");
    let writer = rig.appliance().store().writer().clone();
    let (tell, told) = mpsc::channel();
    let submit = || {
        let (ran, done) = (tell.clone(), tell.clone());
        writer.submit(
            Queue::Accept,
            move |_| {
                ran.send("ran").unwrap();
                Ok(())
            },
            move |outcome| done.send(outcome.map_or("failed", |()| "done")).unwrap(),
        );
    };
    submit();
    until("the writer has it in hand", || writer.waiting_in(Queue::Accept) == 0);
    (0..5).for_each(|_| submit());
    lock.run("ROLLBACK");
    // Each job drops its sender when it has ended.
    drop(tell);
    told.iter().collect()
}

#[test]
fn what_comes_while_the_lock_is_waited_for_is_not_left_for_the_next_transaction() {
    let rig = Rig::new();
    // On a machine that stands still for two seconds the writer refuses them, as it should: then once more.
    let mut tries = (0..5).map(|_| told_of_six(&rig));
    let told = tries.find(|told| !told.contains(&"failed"));
    assert_eq!(told, Some([["ran"; 6], ["done"; 6]].concat()));
}

/// Python that writes as fast as it can, and gives up where it is kept out for five seconds.
const WITHOUT_A_PAUSE: &str = r#"
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=5, isolation_level=None)
for number in range(150):
    db.execute("BEGIN IMMEDIATE")
    db.execute("INSERT INTO outbox (event_type, idempotency_key, payload) VALUES ('theirs', ?, '{}')", (number,))
    db.execute("COMMIT")
"#;

#[test]
fn a_program_that_writes_without_a_pause_and_senders_that_do_keep_nobody_out() {
    let rig = Rig::new();
    let path = rig.data().join("oncebox.db");
    let is_over = AtomicBool::new(false);
    let (served, ours) = thread::scope(|scope| {
        let senders: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let mut count = 0_u32;
                    while !is_over.load(Ordering::Relaxed) {
                        rig.post("/v1/events", &json!({ "event_type": "ours", "payload": 1 }))
                            .is(201);
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        let python = Command::new("python3").args(["-c", WITHOUT_A_PAUSE]).arg(&path).output();
        is_over.store(true, Ordering::Relaxed);
        (python.ok(), senders.into_iter().map(|sender| sender.join().unwrap()).sum::<u32>())
    });
    let Some(python) = served else { return skipped("needs python3") };
    assert!(python.status.success(), "{}", String::from_utf8_lossy(&python.stderr));
    let count =
        |whose: &str| rig.one(&format!("SELECT count(*) FROM outbox WHERE event_type = '{whose}'"));
    assert_eq!((count("theirs"), count("ours")), ("150".to_owned(), ours.to_string()));
    // A stop leaves the rest of the rows to the next start.
    rig.becomes("SELECT count(*) FROM outbox WHERE routed_at IS NULL", "0");
}
