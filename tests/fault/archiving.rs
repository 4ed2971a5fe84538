//! kill -9 while finished events move into the archive: each is in one file at the end, as it was.

use oncebox::archive::audit::trail;
use oncebox::backup::online;
use oncebox::backup::retention::{self, BackupFile};

use crate::fault::disk::Tmpfs;
use crate::fault::process::prelude::*;

const EVENTS: usize = 600;
const TABLES: [&str; 5] = ["outbox", "deliveries", "attempts", "failures", "payloads"];

/// All rows of the tables in a file.
fn rows(path: &Path) -> Vec<String> {
    let conn = file::open(path);
    let mut all = Vec::new();
    for table in TABLES {
        let columns = file::lines(&conn, &format!("SELECT name FROM pragma_table_info('{table}')"));
        let quoted: Vec<String> = columns.iter().map(|name| format!("quote({name})")).collect();
        let sql = format!("SELECT '{table} ' || {} FROM {table}", quoted.join(" || ' ' || "));
        all.extend(file::lines(&conn, &sql));
    }
    all
}

/// Events that finished long ago, in several months; the next start moves them.
fn old_events(home: &Path, receiver: &Receiver, long: usize) {
    let process = Process::start(home);
    process.post("/v1/subscriptions", &json!({ "name": "erp", "url": receiver.url() }));
    for n in 0..EVENTS {
        let text = "x".repeat(if n % 10 == 0 { long } else { 10 });
        process
            .post("/v1/events", &json!({ "event_type": "a", "payload": { "n": n, "text": text } }));
    }
    process.finish();
    let conn = Connection::open(home.join("data/oncebox.db")).unwrap();
    for (table, column) in
        [("outbox", "received_at"), ("outbox", "completed_at"), ("deliveries", "finished_at")]
    {
        let earlier =
            format!("UPDATE {table} SET {column} = {column} - 8640000000 + seq * 8640000");
        assert_eq!(conn.execute(&earlier, []).unwrap(), EVENTS);
    }
    let config = fs::read_to_string(home.join("oncebox.toml")).unwrap();
    fs::write(home.join("oncebox.toml"), format!("{config}\n[archive]\nafter = \"24h\"\n"))
        .unwrap();
}

#[test]
fn a_kill_while_events_are_archived_loses_and_doubles_nothing() {
    let home = tempfile::tempdir().unwrap();
    let receiver = Receiver::new();
    old_events(home.path(), &receiver, 20_000);
    let database = home.path().join("data/oncebox.db");
    let mut before = rows(&database);
    before.sort();
    let left = || file::lines(&file::open(&database), "SELECT count(*) FROM outbox")[0].clone();
    let (mut kills, mut counts) = (0, BTreeSet::new());
    let mut process;
    loop {
        process = Process::start(home.path());
        let now = left();
        if now == "0" || kills == number("ONCEBOX_KILLS", 2) * 3 {
            break;
        }
        until("it moves on", || left() != now);
        thread::sleep(ms(kills * 13 % 60));
        process.kill();
        counts.insert(left());
        kills += 1;
    }
    until("all are moved", || left() == "0");
    process.stop();
    assert!(counts.len() > 1, "it was killed in the middle: {counts:?}");
    let mut after = rows(&database);
    for entry in fs::read_dir(home.path().join("data/archive")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "db") {
            after.extend(rows(&path));
            file::check(&path);
        }
    }
    after.sort();
    assert_eq!(after.len(), before.len());
    assert!(after == before, "each row is what it was");
    file::check(&database);
}

/// Bytes of the database.
const BYTES: &str = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()";
/// Bytes of a database that has given back what it does not need: 8 MiB of unused pages stay.
const SMALL: u32 = 9_500_000;

#[test]
fn a_kill_while_the_file_gets_smaller_leaves_it_whole() {
    let home = tempfile::tempdir().unwrap();
    let receiver = Receiver::new();
    old_events(home.path(), &receiver, 250_000);
    let database = home.path().join("data/oncebox.db");
    let one = |sql: &str| file::lines(&file::open(&database), sql)[0].clone();
    let size = || one(BYTES).parse::<u32>().unwrap();
    let (mut kills, mut counts) = (0, BTreeSet::new());
    let mut process = Process::start(home.path());
    until("all are moved", || one("SELECT count(*) FROM outbox") == "0");
    while size() > SMALL && kills < number("ONCEBOX_KILLS", 2) * 3 {
        let now = size();
        until("it gets smaller", || size() < now || now <= SMALL);
        thread::sleep(ms(kills * 13 % 60));
        process.kill();
        file::check(&database);
        counts.insert(size());
        kills += 1;
        process = Process::start(home.path());
    }
    until("it is small", || size() <= SMALL);
    process.stop();
    file::check(&database);
    assert!(counts.len() > 1, "it was killed in the middle: {counts:?}");
}

/// The same of audit events, which are one chain over all files.
#[test]
fn a_kill_while_audit_events_move_leaves_one_chain() {
    let receiver = Receiver::new();
    let (home, process) = Process::subscribed(&receiver);
    for _ in 0..200 {
        for change in ["pause", "resume"] {
            let path = format!("/v1/subscriptions/erp/{change}");
            process.call("POST", &path, &json!({})).is(200);
        }
    }
    process.stop();
    let database = home.path().join("data/oncebox.db");
    // Five rows a month, over more than six years.
    file::made_earlier(&database, |seq, at| at - 207_360_000_000 + seq * 500_000_000);
    let verified = || trail(&database).unwrap().unwrap().verify(&[]).unwrap();
    let (before, mut counts) = (verified(), BTreeSet::new());
    assert!(before.rows > 400 && before.breaks.is_empty(), "{before:?}");
    let left = || {
        let old = "SELECT count(*) FROM audit_events WHERE action GLOB 'subscription.[pr]*'";
        file::lines(&file::open(&database), old)[0].clone()
    };
    for kills in 0..number("ONCEBOX_KILLS", 2) * 2 {
        let process = Process::start(home.path());
        let now = left();
        if now == "0" {
            break;
        }
        until("they move on", || left() != now);
        thread::sleep(ms(kills * 13 % 60));
        process.kill();
        counts.insert(left());
        let after = verified();
        assert_eq!((&after.breaks, after.start), (&before.breaks, before.start));
        assert!(after.rows >= before.rows);
    }
    assert!(counts.len() > 1, "it was killed in the middle: {counts:?}");
    let process = Process::start(home.path());
    until("all have moved", || left() == "0");
    process.stop();
    assert_eq!(verified().breaks, []);
    for entry in fs::read_dir(home.path().join("data/audit")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "db") {
            file::check(&path);
        }
    }
    file::check(&database);
}

fn back_up(home: &Path, to: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oncebox"));
    command.arg("--config").arg(home.join("oncebox.toml"));
    command.arg("--data").arg(home.join("data")).arg("backup").arg(to);
    command.stdout(Stdio::null());
    command
}

/// What is in a directory of backups, and that each has all events, in the database or in a month.
fn check_backups(shelf: &Path) -> usize {
    let kept = retention::list(shelf).unwrap();
    for BackupFile { path, manifest } in &kept {
        online::verify(path).unwrap();
        let ids = |path: &Path| file::lines(&file::open(path), "SELECT id FROM outbox");
        let mut all: BTreeSet<String> = ids(path).into_iter().collect();
        for copy in manifest.months.iter().flatten() {
            all.extend(ids(&copy.path(shelf)));
        }
        assert_eq!(all.len(), EVENTS, "{}", path.display());
    }
    kept.len()
}

#[test]
fn a_backup_that_is_killed_while_events_move_leaves_nothing_that_counts_as_one() {
    let home = tempfile::tempdir().unwrap();
    let receiver = Receiver::new();
    old_events(home.path(), &receiver, 20_000);
    let shelf = home.path().join("shelf");
    fs::create_dir(&shelf).unwrap();
    let process = Process::start(home.path());
    for n in 0..number("ONCEBOX_KILLS", 2) * 2 {
        let to = shelf.join(format!("oncebox-{n}.db"));
        let mut child = back_up(home.path(), &to).spawn().unwrap();
        thread::sleep(ms(10 + n * 41 % 150));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let killed = check_backups(&shelf);
    let last = shelf.join("oncebox-last.db");
    assert!(back_up(home.path(), &last).status().unwrap().success());
    assert_eq!(check_backups(&shelf), killed + 1);
    process.stop();
    retention::clear(&shelf, 1, Clock::machine().wall()).unwrap();
    let named: BTreeSet<PathBuf> = retention::list(&shelf)
        .unwrap()
        .iter()
        .flat_map(|kept| kept.manifest.months.clone().unwrap())
        .map(|copy| copy.path(&shelf))
        .collect();
    let there = fs::read_dir(shelf.join("archive")).unwrap();
    assert_eq!(there.map(|entry| entry.unwrap().path()).collect::<BTreeSet<_>>(), named);
}

#[test]
fn a_backup_whose_months_do_not_fit_is_refused_and_leaves_nothing() {
    let home = tempfile::tempdir().unwrap();
    let receiver = Receiver::new();
    old_events(home.path(), &receiver, 20_000);
    let process = Process::start(home.path());
    let left = "SELECT count(*) FROM outbox";
    let database = home.path().join("data/oncebox.db");
    until("all are moved", || file::lines(&file::open(&database), left) == ["0"]);
    process.stop();
    // Room for the database and what a service needs, not for the months as well.
    let Some(disk) = Tmpfs::mount(32 + 4) else { return };
    let refused = back_up(home.path(), disk.path()).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(1) && said.contains("are needed"), "{said}");
    assert_eq!(fs::read_dir(disk.path()).unwrap().count(), 0);
    let Some(disk) = Tmpfs::mount(32 + 32) else { return };
    assert!(back_up(home.path(), disk.path()).status().unwrap().success());
    assert_eq!(check_backups(disk.path()), 1);
}
