//! kill -9 while records are written: what was acknowledged lies in the log, and each key's records lie in order.

use std::ffi::OsStr;

use crate::kafka::cluster::{Cluster, TOPIC};
use crate::kafka::process::prelude::*;

/// Events, and their ordering keys.
const EVENTS: usize = 400;
const KEYS: usize = 20;

/// An Oncebox in a process of its own, whose subscription writes to a cluster.
pub(crate) fn started(home: &Path, brokers: &[String], topic: &str) -> Process {
    let brokers = json!(brokers);
    let kafka = format!("{SOON}[kafka]\ntls = false\nclusters = {{ centre = {brokers} }}\n");
    fs::write(home.join("oncebox.toml"), kafka).unwrap();
    let process = Process::start(home);
    let body = json!({ "name": "centre", "url": format!("kafka://centre/{topic}"), "event_types": ["*"],
        "ordering": "key" });
    process.post("/v1/subscriptions", &body);
    process
}

#[test]
fn after_kills_each_record_lies_there_and_each_key_is_in_order() {
    let (cluster, home) = (Cluster::new(), tempfile::tempdir().unwrap());
    let mut process = started(home.path(), &cluster.brokers(), TOPIC);
    let event = |n: usize| {
        json!({ "event_type": "order.changed", "idempotency_key": n.to_string(),
            "ordering_key": format!("order-{}", n % KEYS), "payload": { "n": n } })
    };
    let events: Vec<Value> = (0..EVENTS).map(event).collect();
    let answer = process.post("/v1/events", &json!(events));
    let accepted: Vec<String> = answer["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| text(event, "webhook_id"))
        .collect();
    for enough in [40, 120, 240] {
        until("some are written", || cluster.written(TOPIC).len() >= enough);
        process = process.killed(home.path());
    }
    process.finish();
    let written = cluster.written(TOPIC);
    let ids: Vec<&str> = written.iter().map(|record| record.field("ce_id").unwrap()).collect();
    for id in &accepted {
        assert!(ids.contains(&id.as_str()), "{id} is lost");
    }
    // What a kill repeated lies there twice, under one id: a consumer leaves out the second.
    let mut seen = BTreeSet::new();
    let first = written.iter().filter(|record| seen.insert(record.field("ce_id").unwrap()));
    let mut last: BTreeMap<&str, u64> = BTreeMap::new();
    for record in first {
        let n = serde_json::from_str::<Value>(&record.body).unwrap()["n"].as_u64().unwrap();
        let before = last.insert(record.key.as_deref().unwrap(), n);
        assert!(before < Some(n), "{n} lies behind {before:?} of its key");
    }
    assert_eq!((seen.len(), last.len()), (EVENTS, KEYS));
    file::check(&home.path().join("data/oncebox.db"));
}

#[test]
fn another_client_reads_what_was_written() {
    const NEEDS: &str = "needs ONCEBOX_KAFKA_PYTHON, a Python with confluent-kafka";
    let Some(python) = std::env::var_os("ONCEBOX_KAFKA_PYTHON") else {
        return skipped(NEEDS);
    };
    let (cluster, home) = (Cluster::new(), tempfile::tempdir().unwrap());
    let process = started(home.path(), &cluster.brokers(), TOPIC);
    let event = json!({ "event_type": "order.paid", "ordering_key": "order-7", "payload": { "total": "9.00" } });
    let answer = process.post("/v1/events", &event);
    process.finish();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kafka/read.py");
    let brokers = cluster.brokers().join(",");
    let read = Command::new(python).arg(script).args([&brokers, TOPIC]).output().unwrap();
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let record: Value = serde_json::from_slice(&read.stdout).unwrap();
    has(&record, &json!({ "key": "order-7", "value": r#"{"total":"9.00"}"# }));
    let wanted = json!({ "ce_id": answer["events"][0]["webhook_id"], "ce_type": "order.paid",
        "ce_specversion": "1.0", "content-type": "application/json" });
    has(&record["headers"], &wanted);
}

/// The consumer of the page on guards, as printed but for how long a group waits for a member that was killed.
fn consumer() -> String {
    let page = include_str!("../../docs/guards.md");
    let program = page.split("```python\n").find(|part| part.starts_with("import os")).unwrap();
    let program = program.split("```").next().unwrap();
    let soon = r#""enable.auto.commit": False, "session.timeout.ms": 6000"#;
    let program = program.replace(r#""enable.auto.commit": False"#, soon);
    assert!(program.contains(soon));
    program
}

fn erp_of(home: &Path) -> Connection {
    let erp = Connection::open(home.join("erp.db")).unwrap();
    erp.busy_timeout(secs(10)).unwrap();
    erp.run("PRAGMA journal_mode = WAL; CREATE TABLE handled (ce_id TEXT PRIMARY KEY); CREATE TABLE effects (body)");
    erp
}

/// `oncebox conformance --kafka` over a consumer; tells what it printed, and whether the guard holds.
fn conforms(python: &OsStr, program: &str) -> (String, bool) {
    let home = tempfile::tempdir().unwrap();
    erp_of(home.path()).run("CREATE TABLE done (ce_id)");
    let count = "import sqlite3; [print(id) for id, in sqlite3.connect('erp.db').execute('SELECT ce_id FROM done')]";
    let count = format!("{} -c \"{count}\"", python.to_str().unwrap());
    let ran = Command::new(env!("CARGO_BIN_EXE_oncebox"))
        .args(["conformance", "--kafka", "--events", "60", "--seed", "7", "--count", &count, "--"])
        .arg(python)
        .args(["-c", program])
        .current_dir(home.path())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&ran.stdout).into_owned();
    (told + &String::from_utf8_lossy(&ran.stderr), ran.status.success())
}

#[test]
fn conformance_tells_a_consumer_with_a_guard_from_one_without() {
    let Some(python) = std::env::var_os("ONCEBOX_KAFKA_PYTHON") else {
        return skipped("needs ONCEBOX_KAFKA_PYTHON, a Python with confluent-kafka");
    };
    let effect = r#"erp.execute("INSERT INTO effects (body) VALUES (?)", (record.value(),))"#;
    let listed = r#"erp.execute("INSERT INTO done VALUES (?)", (ce_id,))"#;
    let right = consumer().replace(effect, listed);
    let (told, is_good) = conforms(&python, &right);
    assert!(is_good, "{told}");
    shows(&told, &["6 killed with -9", "60 effects: lost 0, doubled 0"]);
    let blind = right.replace("if claimed.rowcount == 1:", "if True:");
    assert_ne!(blind, right);
    let (told, is_good) = conforms(&python, &blind);
    assert!(!is_good, "{told}");
    shows(&told, &["doubled: "]);
}

#[test]
fn the_consumer_of_the_page_on_guards_does_each_effect_once_although_it_is_killed() {
    const EVENTS: usize = 60;
    let Some(python) = std::env::var_os("ONCEBOX_KAFKA_PYTHON") else {
        return skipped("needs ONCEBOX_KAFKA_PYTHON, a Python with confluent-kafka");
    };
    let (cluster, home) = (Cluster::new(), tempfile::tempdir().unwrap());
    let process = started(home.path(), &cluster.brokers(), TOPIC);
    let event =
        |n: usize| json!({ "event_type": "a", "idempotency_key": n.to_string(), "payload": n });
    process.post("/v1/events", &json!((0..EVENTS).map(event).collect::<Vec<_>>()));
    process.finish();
    cluster.repeat(TOPIC);
    assert_eq!(cluster.written(TOPIC).len(), 2 * EVENTS);

    let erp = erp_of(home.path());
    let program = consumer();
    let consume = || {
        let mut command = Command::new(&python);
        command.args(["-c", &program]).current_dir(home.path());
        command.env("ONCEBOX_KAFKA_BROKERS", cluster.brokers().join(","));
        command.env("ONCEBOX_KAFKA_TOPIC", TOPIC).spawn().unwrap()
    };
    let effects = || file::lines(&erp, "SELECT count(*) FROM effects")[0].parse::<usize>().unwrap();
    for enough in [EVENTS / 3, EVENTS] {
        let mut consumer = consume();
        until("some effects are there", || effects() >= enough);
        consumer.kill().unwrap();
        consumer.wait().unwrap();
    }
    // One more reads what is left of the topic.
    let mut consumer = consume();
    until("all records are read", || cluster.committed_of("erp", TOPIC, 3) == 2 * EVENTS);
    consumer.kill().unwrap();
    consumer.wait().unwrap();
    assert_eq!(
        file::lines(&erp, "SELECT count(*), count(DISTINCT body) FROM effects"),
        [format!("{EVENTS} {EVENTS}")]
    );
}

#[test]
fn the_command_writes_a_ping_where_that_is_asked() {
    let (cluster, home) = (Cluster::new(), tempfile::tempdir().unwrap());
    let process = started(home.path(), &cluster.brokers(), TOPIC);
    let mut written = Vec::new();
    for more in [&[][..], &["--ping"]] {
        let mut test = Command::new(env!("CARGO_BIN_EXE_oncebox"));
        test.args(["subscription", "test", "centre", "--data"]).arg(home.path().join("data"));
        let ran = test.args(more).output().unwrap();
        assert!(ran.status.success(), "{ran:?}");
        written.push(cluster.written(TOPIC).len());
    }
    assert_eq!(written, [0, 1]);
    process.finish();
}
