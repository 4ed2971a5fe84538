//! Backups, restores and upgrades that are killed, and the whole story: load, backup, loss, restore.

use std::process::{Child, Output};

use oncebox::backup::manifest::Reason;
use oncebox::backup::online;
use oncebox::backup::restore;
use oncebox::backup::store;
use oncebox::backup::{retention, upgrade};
use oncebox::model::audit::Actor;
use oncebox::store::schema::Steps;

use crate::fault::process::prelude::*;

/// The program over the files of `home`.
fn oncebox(home: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oncebox"));
    command.arg("--config").arg(home.join("oncebox.toml"));
    command.arg("--data").arg(home.join("data")).args(args);
    command
}

#[track_caller]
fn run(home: &Path, args: &[&str]) -> String {
    let Output { status, stdout, stderr } = oncebox(home, args).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{args:?}: {status}: {out}{err}");
    out.into_owned()
}

/// Invented steps from an invented older version to the schema of today.
const STEPS: Steps = Steps {
    oldest: -1,
    sql: &["ALTER TABLE boots DROP COLUMN host", "ALTER TABLE boots DROP COLUMN kernel"],
};
/// Set for a process that plays an upgrading program: the database.
const UPGRADE_OF: &str = "ONCEBOX_UPGRADE_OF";

/// A home with a database of the version before [`STEPS`], in which a delivery to `receiver` waits.
fn older_home(receiver: &Receiver) -> TempDir {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("oncebox.toml"), SOON).unwrap();
    let process = Process::start(home.path());
    process.subscribe(&receiver.url());
    process.call("POST", "/v1/subscriptions/erp/pause", &Value::Null).is(200);
    process.post("/v1/events", &json!({ "event_type": "a", "payload": "x" }));
    let database = home.path().join("data/oncebox.db");
    let routed = "SELECT count(*) FROM deliveries WHERE state = 'pending'";
    until("it waits", || file::lines(&file::open(&database), routed) == ["1"]);
    process.stop();
    let conn = Connection::open(&database).unwrap();
    conn.run("DELETE FROM holds; UPDATE subscriptions SET state = 'ACTIVE'");
    conn.run("ALTER TABLE boots ADD COLUMN host TEXT");
    conn.run("ALTER TABLE boots ADD COLUMN kernel TEXT");
    conn.pragma_update(None, "user_version", STEPS.oldest).unwrap();
    drop(conn);
    home
}

fn by() -> (Timestamp, Actor) {
    (Timestamp::from_secs(1_769_860_800), Actor::system())
}

/// How many rows each of these tables has.
fn rows(database: &Path, tables: &[String]) -> BTreeMap<String, String> {
    let conn = file::open(database);
    let count = |table: &String| {
        (table.clone(), file::lines(&conn, &format!("SELECT count(*) FROM {table}")).remove(0))
    };
    tables.iter().map(count).collect()
}

fn tables(database: &Path) -> Vec<String> {
    let sql = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'";
    let mut tables = file::lines(&file::open(database), sql);
    // A start and an upgrade add their own rows here.
    tables.retain(|table| !["audit_events", "boots", "meta", "tokens"].contains(&table.as_str()));
    tables
}

#[test]
fn an_older_database_is_upgraded_with_all_its_rows_and_goes_on_delivering() {
    let receiver = Receiver::new();
    let home = older_home(&receiver);
    let database = home.path().join("data/oncebox.db");
    let names = tables(&database);
    let before = rows(&database, &names);

    let refused = oncebox(home.path(), &["migrate", "up"]).output().unwrap();
    shows(&String::from_utf8_lossy(&refused.stderr), &["no released oncebox made"]);
    let rehearsed = upgrade::rehearse(&database, STEPS, &Clock::machine(), &mut |_| true).unwrap();
    assert_eq!((rehearsed.from, rehearsed.differences.len()), (STEPS.oldest, 0));
    assert_eq!(rows(&database, &names), before);
    assert_eq!(retention::list(&home.path().join("data")).unwrap().len(), 0);

    let done = upgrade::run(&database, STEPS, &by(), &Faults::none(), &mut |_| true).unwrap();
    assert_eq!(done.unwrap().from, STEPS.oldest);
    assert_eq!(store::schema_differences(&database).unwrap(), [""; 0]);
    assert_eq!(rows(&database, &names), before);
    assert!(run(home.path(), &["migrate", "status"]).contains("up to date"));
    let kept = retention::list(&home.path().join("data")).unwrap();
    assert_eq!(kept.len(), 1);
    assert_eq!(kept[0].manifest.reason, Reason::BeforeUpgrade);
    assert_eq!(rows(&kept[0].path, &names), before);
    online::verify(&kept[0].path).unwrap();

    let process = Process::start(home.path());
    let waits = "SELECT count(*) FROM deliveries WHERE state = 'pending'";
    until("what waited is delivered", || file::lines(&file::open(&database), waits) == ["0"]);
    process.stop();
    assert_eq!(receiver.count(), 1);
    file::check(&database);
}

#[test]
fn an_upgrade_that_fails_at_any_step_is_completed_by_the_next_attempt() {
    let receiver = Receiver::new();
    let older = older_home(&receiver);
    for step in [Step::Backup, Step::Migrate] {
        for nth in 1.. {
            let home = tempfile::tempdir().unwrap();
            let database = home.path().join("oncebox.db");
            fs::copy(older.path().join("data/oncebox.db"), &database).unwrap();
            let faults = Faults::at(step, nth);
            let died = upgrade::run(&database, STEPS, &by(), &faults, &mut |_| true).is_err();
            assert_eq!(died, faults.happened());
            if died {
                let version = upgrade::schema_version(&database).unwrap();
                assert_eq!(version, Some(STEPS.oldest), "{step:?} {nth}");
                upgrade::run(&database, STEPS, &by(), &Faults::none(), &mut |_| true).unwrap();
            }
            assert_eq!(store::schema_differences(&database).unwrap(), [""; 0]);
            // Noted once, in the transaction of the upgrade itself.
            let noted = "SELECT actor_type FROM audit_events WHERE action = 'database.upgrade'";
            assert_eq!(file::lines(&file::open(&database), noted), ["system"]);
            let shelf = retention::list(home.path()).unwrap();
            assert_eq!(shelf.len(), 1, "one backup, however often it is tried");
            if !died {
                assert!(nth > 2, "{step:?} fails at several places");
                break;
            }
        }
    }
}

/// The program that the test below kills: it upgrades a database, and does nothing when none is named.
#[test]
fn upgrade_in_a_process_of_its_own() {
    let Ok(database) = std::env::var(UPGRADE_OF) else { return };
    upgrade::run(Path::new(&database), STEPS, &by(), &Faults::none(), &mut |_| true).unwrap();
}

#[test]
fn a_killed_upgrade_is_completed_by_the_next() {
    let receiver = Receiver::new();
    let home = older_home(&receiver);
    let database = home.path().join("data/oncebox.db");
    // Large enough that a kill falls into the backup as well as after it.
    let conn = Connection::open(&database).unwrap();
    conn.run(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40000)
         INSERT INTO processed_events (consumer_group, event_id) SELECT 'g', printf('%0250d', i) FROM n",
    );
    drop(conn);
    let names = tables(&database);
    let before = rows(&database, &names);
    for n in 0..number("ONCEBOX_KILLS", 2) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["fault::keeping::upgrade_in_a_process_of_its_own", "--exact"]);
        let mut child = start(command.env(UPGRADE_OF, &database));
        thread::sleep(ms(5 + n * 37 % 200));
        kill(&mut child);
        for kept in retention::list(&home.path().join("data")).unwrap() {
            online::verify(&kept.path).unwrap();
        }
    }
    upgrade::run(&database, STEPS, &by(), &Faults::none(), &mut |_| true).unwrap();
    assert_eq!(rows(&database, &names), before);
    assert_eq!(store::schema_differences(&database).unwrap(), [""; 0]);
    let process = Process::start(home.path());
    until("what waited is delivered", || receiver.count() >= 1);
    process.stop();
}

/// Starts a program that is not waited for.
fn start(command: &mut Command) -> Child {
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn kill(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_killed_backup_leaves_nothing_that_counts_as_one() {
    let home = tempfile::tempdir().unwrap();
    let process = Process::start(home.path());
    let payload = "x".repeat(8000);
    for _ in 0..40 {
        let events: Vec<_> =
            (0..50).map(|_| json!({ "event_type": "a", "payload": payload })).collect();
        process.post("/v1/events", &json!(events));
    }
    let shelf_dir = home.path().join("shelf");
    fs::create_dir(&shelf_dir).unwrap();
    for n in 0..number("ONCEBOX_KILLS", 2) {
        let to = shelf_dir.join(format!("oncebox-{n}.db"));
        let mut child = start(&mut oncebox(home.path(), &["backup", to.to_str().unwrap()]));
        thread::sleep(ms(10 + n * 41 % 150));
        kill(&mut child);
        if to.exists() {
            online::verify(&to).unwrap();
        }
    }
    for kept in retention::list(&shelf_dir).unwrap() {
        online::verify(&kept.path).unwrap();
    }
    // What SQLite leaves beside a copy when the kill hits one of its transactions.
    for ending in ["partial", "partial-journal"] {
        fs::write(shelf_dir.join(format!("oncebox-0.db.{ending}")), "").unwrap();
    }
    // The leavings are no hindrance, and a schedule clears them away; but for manifests, whose backup
    // somebody may have moved.
    let last = shelf_dir.join("oncebox-last.db");
    run(home.path(), &["backup", last.to_str().unwrap()]);
    let now = Clock::machine().wall();
    retention::clear(&shelf_dir, 7, now).unwrap();
    let listed: BTreeSet<PathBuf> =
        retention::list(&shelf_dir).unwrap().into_iter().map(|kept| kept.path).collect();
    for entry in fs::read_dir(&shelf_dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.to_string_lossy().into_owned();
        let kept = listed.contains(&path) || name.ends_with(".manifest.json");
        assert!(kept, "{name} is left over");
    }
    process.stop();
}

#[test]
fn a_restore_that_fails_at_any_step_leaves_the_old_or_the_new_database() {
    let source = tempfile::tempdir().unwrap();
    let process = Process::start(source.path());
    let event = |key: &str| json!({ "event_type": "a", "idempotency_key": key, "payload": 1 });
    process.call("POST", "/v1/events", &event("in the backup")).is(201);
    let backup = source.path().join("b.db");
    run(source.path(), &["backup", backup.to_str().unwrap()]);
    process.call("POST", "/v1/events", &event("after the backup")).is(201);
    // Killed, so that its latest events are only in the log beside it.
    process.kill();
    let events = "SELECT group_concat(idempotency_key, ', ')
                    FROM (SELECT idempotency_key FROM outbox ORDER BY seq)";
    let (mut old, mut new) = (0, 0);
    for nth in 1.. {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("data")).unwrap();
        for entry in fs::read_dir(source.path().join("data")).unwrap() {
            let path = entry.unwrap().path();
            fs::copy(&path, home.path().join("data").join(path.file_name().unwrap())).unwrap();
        }
        let faults = Faults::at(Step::Restore, nth);
        let database = home.path().join("data/oncebox.db");
        let key = home.path().join("data/master.key");
        let plan = restore::Plan {
            from: backup.clone(),
            database: database.clone(),
            force: true,
            without_manifest: false,
            without_months: false,
            retired: Vec::new(),
            key_id: Some(oncebox::keys::file::read(&key).unwrap().key_id()),
            now: Clock::machine().wall(),
            window: None,
            who: Actor::system(),
            faults: faults.clone(),
        };
        let died = restore::run(&plan).is_err();
        assert_eq!(died, faults.happened());
        let process = Process::start(home.path());
        let have = file::lines(&file::open(&database), events).remove(0);
        process.stop();
        file::check(&database);
        let left = fs::read_dir(home.path().join("data")).unwrap();
        let mut left = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        assert!(!left.any(|name| name.contains(".restored-")), "nothing half done is left");
        match have.as_str() {
            "in the backup, after the backup" => old += 1,
            "in the backup" => new += 1,
            other => panic!("death {nth} left {other:?}"),
        }
        if new > 0 {
            assert_eq!(have, "in the backup", "once it is decided it stays decided");
            check_aside(home.path());
        }
        if !died {
            break;
        }
    }
    assert!(old >= 2 && new >= 4, "{old} {new}");
}

/// The replaced database is there, with what only its log held.
fn check_aside(home: &Path) {
    let aside =
        fs::read_dir(home.join("data")).unwrap().map(|entry| entry.unwrap().path()).find(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            name.contains(".before-restore-") && name.ends_with('Z')
        });
    let conn = Connection::open(aside.unwrap()).unwrap();
    assert_eq!(file::lines(&conn, "SELECT count(*) FROM outbox"), ["2"]);
}

/// Publishes until told to stop; remembers what was acknowledged.
fn publish(process: &Process, done: &AtomicBool, next: &AtomicU64, keys: &Mutex<BTreeSet<u64>>) {
    while !done.load(Ordering::SeqCst) {
        let n = next.fetch_add(1, Ordering::SeqCst);
        let event = json!({
            "event_type": "invoice.paid", "idempotency_key": n.to_string(), "payload": { "n": n },
            "occurred_at": Clock::machine().wall(),
        });
        if process.try_call("POST", "/v1/events", &event).is_ok_and(|answer| answer.status == 201) {
            keys.lock().unwrap().insert(n);
        }
    }
}

/// A receiver with a guard: how often each event took effect, and how often it came.
fn effects(receiver: &Receiver) -> BTreeMap<String, (BTreeSet<String>, u32)> {
    let mut effects: BTreeMap<String, (BTreeSet<String>, u32)> = BTreeMap::new();
    for request in receiver.seen() {
        let key = request.field("x-idempotency-key").unwrap().to_owned();
        let (ids, times) = effects.entry(key).or_default();
        ids.insert(request.field("webhook-id").unwrap().to_owned());
        *times += 1;
    }
    effects
}

/// What is known when the box is lost.
struct Lost {
    backup: PathBuf,
    token: String,
    /// Acknowledged before the backup was begun.
    before: BTreeSet<u64>,
    /// Acknowledged at all.
    acknowledged: BTreeSet<u64>,
}

/// Publishes, backs up meanwhile, publishes on, and kills the service.
fn back_up_under_load(home: &Path, receiver: &Receiver) -> Lost {
    let process = Process::start(home);
    process.subscribe(&receiver.url());
    let (done, next) = (AtomicBool::new(false), AtomicU64::new(0));
    let acknowledged = Mutex::new(BTreeSet::new());
    let count = || acknowledged.lock().unwrap().len();
    let backup = home.join("backup.db");
    let before = thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| publish(&process, &done, &next, &acknowledged));
        }
        until("there is load", || count() >= 200);
        let before = acknowledged.lock().unwrap().clone();
        run(home, &["backup", backup.to_str().unwrap()]);
        let enough = count() + 100;
        until("more is acknowledged after the backup", || count() >= enough);
        done.store(true, Ordering::SeqCst);
        before
    });
    let token = process.token();
    process.kill();
    Lost { backup, token, before, acknowledged: acknowledged.into_inner().unwrap() }
}

/// Destroys the data directory and puts the backup back; returns what the command said.
fn lose_and_restore(home: &Path, lost: &Lost) -> Value {
    let key = fs::read(home.join("data/master.key")).unwrap();
    fs::remove_dir_all(home.join("data")).unwrap();
    let backup = lost.backup.to_str().unwrap();
    let refused = oncebox(home, &["restore", backup]).output().unwrap();
    assert_eq!(refused.status.code(), Some(78), "without the key nothing is restored: {refused:?}");
    let key_file = home.join("data/master.key");
    fs::write(&key_file, key).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(&key_file, mode).unwrap();
    let said = run(home, &["restore", backup, "--json"]);
    fs::write(home.join("data/admin.token"), &lost.token).unwrap();
    serde_json::from_str(&said).unwrap()
}

/// Publishes what the restored file does not know, as its source would to fill the gap.
fn send_again(process: &Process, lost: &Lost, stored: &BTreeSet<String>, happened: &Value) -> u64 {
    let gap: Vec<&u64> =
        lost.acknowledged.iter().filter(|n| !stored.contains(&n.to_string())).collect();
    assert!(gap.len() >= 50, "{}", gap.len());
    for n in &gap {
        let event = json!({
            "event_type": "invoice.paid", "idempotency_key": n.to_string(), "payload": { "n": n },
            "occurred_at": happened,
        });
        call(process.address, &lost.token, "POST", "/v1/events", &event).unwrap().is(201);
    }
    gap.len().try_into().unwrap()
}

#[test]
fn under_load_backed_up_lost_and_restored_nothing_is_missing_and_nothing_takes_effect_twice() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let receiver = Receiver::new();
    let lost = back_up_under_load(home, &receiver);
    let restored = lose_and_restore(home, &lost);
    assert_eq!(restored["epoch"], 1);

    let process = Process::start(home);
    let count_at_loss = receiver.count();
    let database = home.join("data/oncebox.db");
    let keys = "SELECT idempotency_key FROM outbox";
    let stored: BTreeSet<String> = file::lines(&file::open(&database), keys).into_iter().collect();
    let missing: Vec<_> = lost.before.iter().filter(|n| !stored.contains(&n.to_string())).collect();
    assert!(missing.is_empty(), "acknowledged before the backup and missing: {missing:?}");

    let gap = send_again(&process, &lost, &stored, &restored["made_at"]);
    let fresh = json!({
        "event_type": "invoice.paid", "idempotency_key": "fresh", "payload": {},
        "occurred_at": Clock::machine().wall().plus(ms(1)),
    });
    call(process.address, &lost.token, "POST", "/v1/events", &fresh).unwrap().is(201);
    until("the new one is delivered", || receiver.count() > count_at_loss);
    assert_eq!(receiver.count(), count_at_loss + 1, "nothing else is sent unasked");
    let doubt: Value = serde_json::from_str(&run(home, &["in-doubt", "show", "--json"])).unwrap();
    let held = doubt["in_doubt"].as_u64().unwrap();
    assert_eq!(held, restored["in_doubt"].as_u64().unwrap() + gap);
    assert!(run(home, &["in-doubt", "list"]).contains("in_doubt"));

    let dry = run(home, &["in-doubt", "release", "--all", "--dry-run"]);
    assert_eq!(dry, format!("{held} deliveries would be released\n"));
    run(home, &["in-doubt", "release", "--all", "--yes"]);
    process.finish();
    file::check(&database);
    let open = "SELECT count(*) FROM deliveries WHERE state <> 'completed'";
    assert_eq!(file::lines(&file::open(&database), open), ["0"]);
    let effects = effects(&receiver);
    for n in &lost.acknowledged {
        let (ids, times) = &effects[&n.to_string()];
        assert_eq!(ids.len(), 1, "{n} came {times} times under one webhook-id: one effect");
    }
    assert!(effects.values().any(|(_, times)| *times > 1), "some were sent twice, as feared");
}
