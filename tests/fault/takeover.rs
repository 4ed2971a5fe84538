//! A second machine takes over from a file that Litestream replicated (docs/scaling.md), as printed there.

use std::ffi::OsStr;
use std::process::{Child, Stdio};

use crate::fault::process::prelude::*;

const EVENTS: u64 = 60;

/// Litestream, and what it writes. Dropped, it is killed with -9.
struct Litestream(Child);

impl Drop for Litestream {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn event(n: u64) -> Value {
    json!({ "event_type": "invoice.paid", "idempotency_key": n.to_string(), "payload": n })
}

/// The first machine, and its end while a delivery is under way; returns its master key. `restored` is what its replica has.
fn lost(litestream: &OsStr, receiver: &Receiver, home: &Path, restored: &Path) -> Vec<u8> {
    let process = Process::start(home);
    process.subscribe(&receiver.url());
    let database = home.join("data/oncebox.db");
    let replica = format!("file://{}", restored.with_extension("replica").display());
    let replicating = Command::new(litestream)
        .args(["replicate", database.to_str().unwrap(), &replica])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let replicating = Litestream(replicating.unwrap());
    for n in 0..EVENTS {
        process.post("/v1/events", &event(n));
    }
    until("all are delivered", || process.pending() == Some(0));
    // One is under way when the machine is lost.
    receiver.decide(|_| Reply::Hang);
    process.post("/v1/events", &event(EVENTS));
    until("one is under way", || receiver.count() > usize::try_from(EVENTS).unwrap());
    until("the replica has it", || {
        drop(fs::remove_file(restored));
        let said = Command::new(litestream)
            .args(["restore", "-o", restored.to_str().unwrap(), &replica])
            .output()
            .unwrap();
        said.status.success()
            && file::lines(&file::open(restored), "SELECT count(*) FROM outbox")[0]
                == (EVENTS + 1).to_string()
    });
    let key = fs::read(home.join("data/master.key")).unwrap();
    process.kill();
    drop(replicating);
    fs::remove_dir_all(home.join("data")).unwrap();
    key
}

/// The second machine has a copy of the master key, and nothing else.
fn take_over(home: &Path, key: &[u8], restored: &Path) {
    let data = home.join("data");
    fs::create_dir(&data).unwrap();
    fs::write(data.join("master.key"), key).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(data.join("master.key"), mode).unwrap();
    let own = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_oncebox"));
        command.arg("--config").arg(home.join("oncebox.toml")).arg("--data").arg(&data);
        let ran = command.args(arguments).output().unwrap();
        assert!(ran.status.success(), "{ran:?}");
    };
    own(&["restore", "--without-manifest", restored.to_str().unwrap()]);
    let token = data.join("admin.token");
    own(&[
        "token",
        "create",
        "takeover",
        "--role",
        "admin",
        "--offline",
        "--out",
        token.to_str().unwrap(),
    ]);
}

#[test]
fn a_second_box_takes_over_what_litestream_replicated_and_sends_nothing_twice_unasked() {
    let Some(litestream) = std::env::var_os("ONCEBOX_LITESTREAM") else {
        return skipped("needs ONCEBOX_LITESTREAM, the program litestream");
    };
    let receiver = Receiver::new();
    let [first, second, kept] = std::array::from_fn(|_| tempfile::tempdir().unwrap());
    for home in [&first, &second] {
        let settings = format!("{SOON}[database]\ncheckpoints = false\n");
        fs::write(home.path().join("oncebox.toml"), settings).unwrap();
    }
    let restored = kept.path().join("restored.db");
    let key = lost(&litestream, &receiver, first.path(), &restored);
    take_over(second.path(), &key, &restored);
    receiver.decide(|_| Reply::status(200));
    let process = Process::start(second.path());
    // A source that is not sure sends again: nothing of it is new.
    for n in 0..=EVENTS {
        let answer = process.call("POST", "/v1/events", &event(n)).is(200).json();
        assert_eq!(answer["events"][0]["already_processed"], true, "{n}");
    }
    // What was under way may have arrived, so a person decides.
    let held = process.call("GET", "/v1/in-doubt", &Value::Null).is(200).json();
    assert_eq!(held["in_doubt"], 1, "{held}");
    let sent = receiver.count();
    let happened = Clock::machine().wall().to_string();
    let new = merged(event(EVENTS + 1), &json!({ "occurred_at": happened }));
    process.post("/v1/events", &new);
    until("what is new is delivered", || receiver.count() > sent);
    let times = |n: u64| {
        let body = n.to_string();
        receiver.seen().iter().filter(|seen| seen.body == body.as_bytes()).count()
    };
    for n in 0..EVENTS + 2 {
        assert_eq!(times(n), 1, "{n}");
    }
    process.stop();
    file::check(&second.path().join("data/oncebox.db"));
}
