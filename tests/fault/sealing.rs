//! Sealed events under kill -9: whichever way they come in, what is sealed stands in no file and in no log, and the
//! receiver gets all of it.

use crate::fault::process::prelude::*;

const GITHUB: &str = "a-shared-secret-of-32-characters";
/// Stand in what is sealed, and nowhere else.
const NAME: &str = "Jane Marker-Roe";
const MAIL: &str = "jane.marker@example.org";
/// Events of each way in.
const EACH: usize = 25;

fn body(n: usize) -> String {
    format!(r#"{{"n":{n},"customer":{{"id":"c-{}","name":"{NAME}"}},"note":"to {MAIL}"}}"#, n % 5)
}

#[track_caller]
fn nowhere(home: &Path) {
    for mark in [NAME, MAIL, "Marker-Roe", "jane.marker"] {
        assert_eq!(holding(home, mark), [""; 0], "{mark}");
    }
}

/// Where the service is, while it is killed again and again.
fn address(home: &Path) -> Option<SocketAddr> {
    fs::read_to_string(home.join("data/oncebox.address")).ok()?.trim().parse().ok()
}

/// Sends until it is acknowledged.
#[track_caller]
fn insist(home: &Path, mut send: impl FnMut(SocketAddr) -> std::io::Result<Answer>) {
    until("it is acknowledged", || {
        let answer = address(home).and_then(|address| send(address).ok());
        answer.is_some_and(|answer| matches!(answer.status, 200 | 201))
    });
}

fn publish(home: &Path, token: &str) {
    for n in 0..EACH {
        let payload: Value = serde_json::from_str(&body(n)).unwrap();
        let event =
            json!({ "event_type": "a", "idempotency_key": n.to_string(), "payload": payload });
        insist(home, |address| call(address, token, "POST", "/v1/events", &event));
    }
}

fn hook(home: &Path) {
    for n in 0..EACH {
        let body = body(n);
        let (signature, delivery) = (http::github(GITHUB, body.as_bytes()), format!("d-{n}"));
        let fields = [
            ("X-Hub-Signature-256", signature.as_str()),
            ("X-GitHub-Delivery", delivery.as_str()),
            ("Content-Type", "application/json"),
        ];
        insist(home, |to| http::send(to, "POST", "/in/github", &fields, body.as_bytes()));
    }
}

fn insert(erp: &Connection) {
    for n in 0..EACH {
        let sql = "INSERT INTO outbox (event_type, payload) VALUES ('a', ?1)";
        erp.execute(sql, [body(n)]).unwrap();
        thread::sleep(ms(5));
    }
}

fn drop_files(folder: &Path) {
    for n in 0..EACH {
        let begun = folder.join(format!("{n}.ndjson.tmp"));
        fs::write(&begun, format!("{{\"payload\":{}}}\n", body(n))).unwrap();
        fs::rename(begun, folder.join(format!("{n}.ndjson"))).unwrap();
        thread::sleep(ms(5));
    }
}

/// With its log, which says more than it does unless told, in a file beside the data.
fn start(home: &Path) -> Process {
    let config = home.join("oncebox.toml");
    fs::write(config, format!("{SOON}[log]\nlevel = \"debug\"\n")).unwrap();
    let log = home.join("log.txt");
    fs::OpenOptions::new().create(true).append(true).open(&log).unwrap();
    Process::start_logging_to(home, None, log, None)
}

/// States the policy for every way in, and sends everything to the receiver.
fn arrange(process: &Process, receiver: &Receiver, erp: &Path, folder: &Path) {
    let policy = json!({
        "rules": [
            { "path": "$.customer.name", "action": "seal" },
            { "detect": ["email"], "action": "seal" },
        ],
        "subject": "$.customer.id",
    });
    process.call("PATCH", "/v1/tenants/default", &json!({ "pii": policy })).is(200);
    let scheme = json!({ "kind": "github" });
    let github = json!({ "name": "github", "scheme": scheme, "pii": policy, "secret": GITHUB });
    process.post("/v1/providers", &github);
    let all = json!({ "name": "erp", "url": receiver.url(), "source": "all" });
    process.post("/v1/subscriptions", &all);
    for (name, kind, settings) in [
        ("erp", "sqlite", json!({ "path": erp })),
        ("files", "drop", json!({ "path": folder, "defaults": { "event_type": "a" } })),
    ] {
        process.post("/v1/sources", &json!({ "name": name, "kind": kind, "settings": settings }));
    }
}

/// Sends by all four ways while the service is killed again and again.
fn send_over_kills(
    home: &Path,
    mut process: Process,
    receiver: &Receiver,
    (erp, folder): (Connection, &Path),
) -> Process {
    let token = &process.token();
    thread::scope(|scope| {
        let ways = [
            scope.spawn(move || publish(home, token)),
            scope.spawn(move || hook(home)),
            scope.spawn(move || insert(&erp)),
            scope.spawn(move || drop_files(folder)),
        ];
        for n in 0..number("ONCEBOX_KILLS", 2) {
            let enough = receiver.count() + 8;
            let all_sent = || ways.iter().all(thread::ScopedJoinHandle::is_finished);
            until("more is sent", || receiver.count() >= enough || all_sent());
            thread::sleep(ms(n * 37 % 90));
            process.kill();
            // As the kill has left it.
            nowhere(home);
            process = start(home);
        }
        process
    })
}

/// A backup beside the data, and what is printed about it.
fn back_up(home: &Path) {
    let backups = home.join("backups");
    fs::create_dir(&backups).unwrap();
    let made = Command::new(env!("CARGO_BIN_EXE_oncebox"))
        .args(["--config".as_ref(), home.join("oncebox.toml").as_os_str()])
        .args(["--data".as_ref(), home.join("data").as_os_str()])
        .arg("backup")
        .arg(&backups)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    fs::write(home.join("backup.out"), [made.stdout, made.stderr].concat()).unwrap();
}

#[test]
fn sealed_data_is_in_no_file_or_log_after_kills_and_is_delivered_complete() {
    let (home, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (home, folder) = (home.path(), elsewhere.path().join("drop"));
    fs::create_dir(&folder).unwrap();
    let erp_path = elsewhere.path().join("erp.db");
    let erp = file::new_outbox(&erp_path);
    let receiver = Receiver::new();
    let mut count = 0_usize;
    receiver.decide(move |message| {
        count += 1;
        // What comes back must not stay either, whether it went well or not.
        let status = if count.is_multiple_of(3) { 500 } else { 200 };
        Reply::Answer(status, Vec::new(), message.body.clone())
    });
    let process = start(home);
    arrange(&process, &receiver, &erp_path, &folder);
    let process = send_over_kills(home, process, &receiver, (erp, &folder));
    let names = || -> BTreeSet<String> {
        receiver.seen().iter().map(|one| one.field("webhook-id").unwrap().to_owned()).collect()
    };
    until("every event of every way is sent", || names().len() == 4 * EACH);
    until("nothing waits", || process.pending() == Some(0));
    nowhere(home);
    back_up(home);
    process.stop();
    nowhere(home);
    // The search itself works: what is sealed is in the database and in the backup.
    let sealed = holding(home, "obx-sealed.v.");
    assert!(
        sealed.len() >= 2 && sealed.iter().any(|path| path.contains("/backups/")),
        "{sealed:?}"
    );

    let bodies: BTreeSet<String> = (0..EACH).map(body).collect();
    for sent in receiver.seen() {
        let sent = String::from_utf8(sent.body).unwrap();
        assert!(bodies.contains(&sent), "{sent}");
    }
    let database = home.join("data/oncebox.db");
    file::check(&database);
    let kept = "SELECT count(*) FROM attempts WHERE excerpt LIKE '%[sealed]%'";
    assert_ne!(file::lines(&file::open(&database), kept), ["0"], "answers are kept, without it");
}
