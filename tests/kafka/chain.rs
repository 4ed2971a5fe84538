//! Two boxes, one topic, one consumer with its guard in PostgreSQL; all of them are killed, and the broker goes down.

use std::process::{Child, Stdio};

use crate::guards::server::Postgresql;
use crate::kafka::cluster::Cluster;
use crate::kafka::kills::started;
use crate::kafka::process::{number, prelude::*};

const TOPIC: &str = "invoices";
const PARTITIONS: i32 = 12;
/// Portions in which the invoices are paid; something is killed after each.
const PORTIONS: u64 = 10;

/// The consumer's process. Dropped, it is killed with -9.
struct Consumer(Child);

impl Drop for Consumer {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// The ERP of a site publishes what was paid.
fn pay(at: &Process, site: &str, invoices: &[u64]) {
    let event = |invoice: &u64| {
        json!({ "event_type": "invoice.paid", "source_system": format!("erp-{site}"),
            "idempotency_key": invoice.to_string(), "payload": format!("{site} {invoice}") })
    };
    for some in invoices.chunks(100) {
        at.post("/v1/events", &json!(some.iter().map(event).collect::<Vec<_>>()));
    }
}

/// Waits for so many. Patience is for the next one, not for all of them.
fn all_are_done(invoices: u64, done: impl Fn() -> u64) {
    let mut seen = 0;
    while seen < invoices {
        until("the next invoice has its effect", || done() > seen);
        seen = done();
    }
}

#[test]
fn two_boxes_a_topic_and_a_consumer_do_each_invoice_once_although_all_are_killed() {
    let Some(python) = std::env::var_os("ONCEBOX_KAFKA_PYTHON") else {
        return skipped("needs ONCEBOX_KAFKA_PYTHON, a Python with confluent-kafka and psycopg");
    };
    let Some(server) = Postgresql::start() else { return skipped("needs PostgreSQL") };
    let invoices = number("ONCEBOX_INVOICES", 1_000);
    let ask = |sql: &str| {
        let asked =
            Command::new("sh").args(["-c", &server.psql(&format!("-At -c '{sql}'"))]).output();
        let asked = asked.unwrap();
        assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
        String::from_utf8(asked.stdout).unwrap().trim().to_owned()
    };
    ask(
        "CREATE TABLE processed_events (consumer_group text, event_id text, PRIMARY KEY (consumer_group, event_id)); \
         CREATE TABLE effects (invoice text)",
    );
    let cluster = Cluster::new();
    cluster.0.create_topic(TOPIC, PARTITIONS, 1).unwrap();
    let consume = || {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kafka/consume.py");
        let mut command = Command::new(&python);
        command.arg(script).args([&cluster.brokers().join(","), TOPIC, &server.address()]);
        Consumer(command.stderr(Stdio::null()).spawn().unwrap())
    };
    let homes = ["north", "south"].map(|name| (name, tempfile::tempdir().unwrap()));
    let mut boxes: Vec<Process> =
        homes.iter().map(|(_, home)| started(home.path(), &cluster.brokers(), TOPIC)).collect();
    let mut consumer = consume();
    for portion in 0..PORTIONS {
        let of = |whole: u64| whole * invoices / PORTIONS;
        for (n, (name, _)) in (0..).zip(&homes) {
            let own = (of(portion)..of(portion + 1)).filter(|invoice| invoice % 2 == n);
            pay(&boxes[usize::try_from(n).unwrap()], name, &own.collect::<Vec<_>>());
        }
        match portion % 4 {
            3 => {
                cluster.0.broker_down(1).unwrap();
                thread::sleep(ms(700));
                cluster.0.broker_up(1).unwrap();
            }
            2 => {
                drop(consumer);
                consumer = consume();
            }
            n => {
                let n = usize::try_from(n).unwrap();
                let killed = boxes.remove(n).killed(homes[n].1.path());
                boxes.insert(n, killed);
            }
        }
    }
    boxes.into_iter().for_each(Process::finish);
    let done = || ask("SELECT count(*) FROM effects").parse::<u64>().unwrap();
    all_are_done(invoices, done);
    drop(consumer);
    // One more reads what no offset was committed for.
    let written = cluster.ends(TOPIC, PARTITIONS);
    let consumer = consume();
    until("all records are read", || cluster.committed_of("erp", TOPIC, PARTITIONS) == written);
    drop(consumer);
    println!("{written} records of {invoices} invoices");
    assert_eq!(
        ask("SELECT count(*), count(DISTINCT invoice) FROM effects"),
        format!("{invoices}|{invoices}")
    );
    for (_, home) in &homes {
        file::check(&home.path().join("data/oncebox.db"));
    }
}
