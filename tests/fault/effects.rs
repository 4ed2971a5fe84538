//! kill -9 at the writes of each effect outside the file: it is done once, finished or ended, and never half done.
//!
//! A small library counts the writes of the process and ends it at the n-th. `ONCEBOX_WRITES` says how many writes are
//! skipped between two kills; 1 tries every one.

use std::sync::OnceLock;

use crate::fault::process::prelude::*;

const KEY: &str = "1f0c6d3e-8a51-4f7a-9b65-0a4cf5b7f9d2";

/// More writes than one effect can have.
const MAX_WRITES: u64 = 2_000;

/// The library that ends a process at a write.
fn library() -> &'static Path {
    static BUILT: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_dir, path) = BUILT.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("at_write.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/kill/at_write.c");
        let built = Command::new("cc")
            .args(["-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", "-o"])
            .args([&path, &source])
            .status()
            .unwrap();
        assert!(built.success(), "{built}");
        (dir, path)
    });
    path
}

/// Tries an effect with a kill at one write after the other, until it is not killed any more. `attempt` gets the number
/// of the write, and returns whether the process was killed. Returns how many kills there were.
fn at_each_write(first: u64, mut attempt: impl FnMut(u64) -> bool) -> u64 {
    let step = number("ONCEBOX_WRITES", 9).max(1);
    let mut kills = 0;
    let mut at = first;
    while attempt(at) {
        kills += 1;
        at += step;
        assert!(at < MAX_WRITES, "it writes on and on");
    }
    assert!(kills > 2, "it was killed in the middle: {kills}");
    println!("{kills} kills up to write {at}");
    kills
}

/// The file that arms the library.
fn armed(home: &Path) -> PathBuf {
    home.join("armed")
}

/// Starts a service that is killed at the n-th write after it is armed.
fn start(home: &Path, at: u64) -> Process {
    let prefix = format!(
        "export LD_PRELOAD={} KILL_AT={at} KILL_ARMED={}; ",
        library().display(),
        armed(home).display()
    );
    Process::start_under(home, &prefix)
}

fn arm(home: &Path) {
    fs::write(armed(home), b"").unwrap();
}

/// Disarms the library; tells whether the process was killed, maybe after it had answered.
fn disarmed(home: &Path, process: &Process) -> bool {
    fs::remove_file(armed(home)).unwrap();
    process.try_call("GET", "/livez", &Value::Null).is_err()
}

/// A request with an `Idempotency-Key`.
fn keyed(process: &Process, path: &str, key: &str, body: &Value) -> std::io::Result<Answer> {
    let bearer = format!("Bearer {}", process.token());
    let fields = [("Authorization", bearer.as_str()), ("Idempotency-Key", key)];
    let body = if body.is_null() { String::new() } else { body.to_string() };
    http::send(process.address, "POST", path, &fields, body.as_bytes())
}

/// Repeats a request under its key until it is done.
fn repeat(process: &Process, path: &str, key: &str, body: &Value) -> Answer {
    let mut last = None;
    until("the repeated request is done", || {
        let answer = keyed(process, path, key, body).unwrap();
        assert!(matches!(answer.status, 200 | 201 | 409), "{answer:?}");
        let is_done = answer.status != 409;
        last = Some(answer);
        is_done
    });
    last.unwrap()
}

/// What must hold after each kill, once the request was repeated.
fn nothing_is_half_done(home: &Path) {
    let conn = file::open(&home.join("data/oncebox.db"));
    until("no effect is claimed any more", || {
        file::lines(&conn, "SELECT kind, subject FROM claimed_effects").is_empty()
    });
    let open = "SELECT key FROM idempotency_keys WHERE status IS NULL";
    assert_eq!(file::lines(&conn, open), [""; 0]);
}

fn one(home: &Path, sql: &str) -> String {
    file::lines(&file::open(&home.join("data/oncebox.db")), sql).concat()
}

#[test]
fn a_rotation_of_the_master_key_that_is_killed_anywhere_is_one_rotation() {
    let home = tempfile::tempdir().unwrap();
    let receiver = Receiver::new();
    let mut process = Process::start(home.path());
    process.subscribe(&receiver.url());
    let named = || one(home.path(), "SELECT value FROM meta WHERE key = 'master_key_id'");
    let mut rotations = 0;
    at_each_write(1, |at| {
        let key = format!("{KEY}-{at}");
        let before = named();
        process.stop_in_place();
        process = start(home.path(), at);
        arm(home.path());
        let answered = keyed(&process, "/v1/keys/rotate", &key, &Value::Null);
        let is_killed = disarmed(home.path(), &process) || answered.is_err();
        if is_killed {
            process.wait_killed();
            process = Process::start(home.path());
        }
        let done = repeat(&process, "/v1/keys/rotate", &key, &Value::Null).is(200).json();
        assert_eq!((text(&done, "from"), text(&done, "to")), (before, named()), "write {at}");
        if let Ok(first) = answered {
            assert_eq!(first.is(200).json(), done);
        }
        nothing_is_half_done(home.path());
        rotations += 1;
        let retired = fs::read_dir(home.path().join("data")).unwrap().filter(|entry| {
            let name = entry.as_ref().unwrap().file_name().into_string().unwrap();
            name.starts_with("master.key.") && !name.ends_with(".partial")
        });
        assert_eq!(retired.count(), rotations, "write {at}: each rotation retires one key");
        let audited = "SELECT count(*) FROM audit_events WHERE action = 'master_key.rotate' AND result = 'SUCCESS'";
        assert_eq!(one(home.path(), audited), rotations.to_string());
        let others = "SELECT count(*) FROM credentials WHERE master_key_id <> (SELECT value FROM meta WHERE key = 'master_key_id')";
        assert_eq!(one(home.path(), others), "0");
        is_killed
    });
    process.post("/v1/events", &json!({ "event_type": "a", "payload": 1 }));
    process.finish_and_check(home.path());
}

#[test]
fn a_rotation_by_a_command_that_is_killed_anywhere_runs_it_at_most_once_for_each_claim() {
    let home = tempfile::tempdir().unwrap();
    let receiver = Receiver::new();
    let runs = home.path().join("runs");
    let script = format!("echo run >> {0}; wc -l < {0}", runs.display());
    let config =
        format!("{SOON}\n[credentials.commands]\nvault = [\"/bin/sh\", \"-c\", \"{script}\"]\n");
    fs::write(home.path().join("oncebox.toml"), config).unwrap();
    let mut process = Process::start(home.path());
    process.subscribe(&receiver.url());
    let given = json!({ "kind": "bearer", "secret": "first" });
    process.post("/v1/subscriptions/erp/credentials", &given);
    let count = || fs::read_to_string(&runs).unwrap_or_default().lines().count();
    let wanted = json!({ "command": "vault" });
    at_each_write(1, |at| {
        let key = format!("{KEY}-{at}");
        let listed =
            process.call("GET", "/v1/credentials?subscription=erp&state=active", &Value::Null);
        let bearer = listed.json()["items"]
            .as_array()
            .unwrap()
            .iter()
            .find(|one| one["kind"] == "bearer")
            .cloned();
        let path = format!("/v1/credentials/{}/rotate", text(&bearer.unwrap(), "id"));
        let before = count();
        process.stop_in_place();
        process = start(home.path(), at);
        arm(home.path());
        let answered = keyed(&process, &path, &key, &wanted);
        let is_killed = disarmed(home.path(), &process) || answered.is_err();
        if is_killed {
            process.wait_killed();
            process = Process::start(home.path());
        }
        let made = repeat(&process, &path, &key, &wanted);
        let ran = count() - before;
        let is_replayed = made.field("idempotency-replayed").is_some();
        // A run that was cut off from its result is ended and told, and the repeated request runs the command again.
        assert!(ran == 1 || (ran == 2 && is_killed && !is_replayed), "write {at}: {ran} runs");
        let cut = "SELECT count(*) FROM audit_events WHERE action = 'credential.rotate' AND result = 'FAILURE'
                      AND correlation_id IS NULL AND changes LIKE '%the service ended%'";
        assert!(ran == 1 || one(home.path(), cut) != "0", "write {at}: the lost run is audited");
        let made = text(&made.json(), "id");
        until("the new one is active", || {
            one(home.path(), &format!("SELECT state FROM credentials WHERE id = '{made}'"))
                == "active"
        });
        nothing_is_half_done(home.path());
        is_killed
    });
    process.post("/v1/events", &json!({ "event_type": "a", "payload": 1 }));
    until("it is sent with what the last run made", || {
        let wanted = format!("Bearer {}", count());
        receiver.seen().iter().any(|request| {
            let is_event = !String::from_utf8_lossy(&request.body).contains("oncebox.ping");
            is_event && request.field("authorization") == Some(wanted.as_str())
        })
    });
    process.finish_and_check(home.path());
}

#[test]
fn a_run_of_the_archive_that_is_killed_anywhere_goes_on_after_the_start() {
    let home = tempfile::tempdir().unwrap();
    let receiver = Receiver::new();
    let mut process = Process::start(home.path());
    process.subscribe(&receiver.url());
    let database = home.path().join("data/oncebox.db");
    let hot = || one(home.path(), "SELECT count(*) FROM outbox");
    let body = json!({ "older_than": "30days" });
    at_each_write(1, |at| {
        let key = format!("{KEY}-{at}");
        process.post(
            "/v1/events",
            &json!([1, 2, 3].map(|n| json!({ "event_type": "a", "payload": n }))),
        );
        until("all is delivered", || process.pending() == Some(0));
        // The next process is started over events of long ago.
        process.stop_in_place();
        let conn = Connection::open(&database).unwrap();
        for (table, column) in
            [("outbox", "received_at"), ("outbox", "completed_at"), ("deliveries", "finished_at")]
        {
            conn.execute(&format!("UPDATE {table} SET {column} = {column} - 3456000000"), [])
                .unwrap();
        }
        drop(conn);
        process = start(home.path(), at);
        arm(home.path());
        let answered =
            keyed(&process, "/v1/archive/runs", &key, &body).ok().filter(|one| one.status == 200);
        let mut is_killed = false;
        until("it is done or killed", || {
            is_killed = process.has_ended();
            is_killed
                || (answered.is_some()
                    && hot() == "0"
                    && one(home.path(), "SELECT kind FROM claimed_effects").is_empty())
        });
        is_killed |= disarmed(home.path(), &process);
        if is_killed {
            process.wait_killed();
            process = Process::start(home.path());
        }
        // What was answered is not asked for again.
        if answered.is_none() {
            repeat(&process, "/v1/archive/runs", &key, &body).is(200);
        }
        until("all are moved", || hot() == "0");
        nothing_is_half_done(home.path());
        is_killed
    });
    process.finish_and_check(home.path());
}

#[test]
fn a_backup_that_is_killed_anywhere_is_there_whole_or_not_at_all_and_is_made_when_asked_again() {
    let home = tempfile::tempdir().unwrap();
    let receiver = Receiver::new();
    let mut process = Process::start(home.path());
    process.subscribe(&receiver.url());
    at_each_write(1, |at| {
        let key = format!("{KEY}-{at}");
        process.stop_in_place();
        process = start(home.path(), at);
        arm(home.path());
        let answered = keyed(&process, "/v1/backups", &key, &Value::Null);
        let is_killed = disarmed(home.path(), &process) || answered.is_err();
        if is_killed {
            process.wait_killed();
            process = Process::start(home.path());
        }
        let made = repeat(&process, "/v1/backups", &key, &Value::Null).is(201).json();
        let path = text(&made, "path");
        let name = Path::new(&path).file_name().unwrap().to_str().unwrap();
        process.call("POST", &format!("/v1/backups/{name}/verify"), &Value::Null).is(200);
        nothing_is_half_done(home.path());
        is_killed
    });
    process.finish_and_check(home.path());
}

/// Runs the program over a data directory; with `at`, it is killed at the n-th write.
fn abandon(data: &Path, at: Option<u64>) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oncebox"));
    command.arg("--data").arg(data).args(["keys", "abandon", "--yes", "--json"]);
    if let Some(at) = at {
        let armed = data.join("oncebox.db");
        command
            .env("LD_PRELOAD", library())
            .env("KILL_AT", at.to_string())
            .env("KILL_ARMED", armed);
    }
    command.output().unwrap()
}

/// The names of what was lost, as the program printed them; `None`: it printed nothing.
fn lost(output: &std::process::Output) -> Option<Vec<String>> {
    let printed: Value = serde_json::from_slice(&output.stdout).ok()?;
    let names = printed["set_anew"].as_array()?.iter();
    Some(names.map(|one| format!("{} {}", text(one, "of"), text(one, "name"))).collect())
}

#[test]
fn a_lost_key_that_is_given_up_with_a_kill_anywhere_names_and_holds_everything() {
    let home = tempfile::tempdir().unwrap();
    let receiver = Receiver::new();
    let process = Process::start(home.path());
    process.subscribe(&receiver.url());
    let scheme = json!({ "kind": "generic", "check": { "token": { "header": "X-Token" } } });
    let secret = "a-shared-secret-of-32-characters";
    let provider = json!({ "name": "shop", "scheme": scheme, "pii": "allow", "secret": secret });
    process.post("/v1/providers", &provider);
    process.stop();
    fs::remove_file(home.path().join("data/master.key")).unwrap();
    let expected = vec!["provider shop".to_owned(), "subscription erp".to_owned()];
    at_each_write(1, |at| {
        let copy = tempfile::tempdir().unwrap();
        fs::copy(home.path().join("oncebox.toml"), copy.path().join("oncebox.toml")).unwrap();
        let data = copy.path().join("data");
        fs::create_dir(&data).unwrap();
        for entry in fs::read_dir(home.path().join("data")).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_file() {
                fs::copy(entry.path(), data.join(entry.file_name())).unwrap();
            }
        }
        let first = abandon(&data, Some(at));
        let is_killed = !first.status.success();
        let mut told = lost(&first);
        if is_killed {
            let second = abandon(&data, None);
            let is_over = second.status.code() == Some(5);
            assert!(
                second.status.success() || (is_over && told.is_some()),
                "write {at}: {second:?}"
            );
            told = told.or_else(|| lost(&second));
        }
        let mut told = told.unwrap();
        told.sort();
        assert_eq!(told, expected, "write {at}");
        let process = Process::start(copy.path());
        let held = "SELECT reason FROM holds WHERE detail LIKE '%is lost'";
        assert_eq!(one(copy.path(), held), "paused", "write {at}");
        process.call("GET", "/v1/subscriptions", &Value::Null).is(200);
        let made = "SELECT count(*) FROM tokens WHERE revoked_at IS NULL";
        assert_eq!(one(copy.path(), made), "1", "write {at}");
        nothing_is_half_done(copy.path());
        is_killed
    });
}
