//! A broker that nobody of librdkafka wrote: Tansu, as a process of its own with its store in SQLite: it counts wrong
//! where several write to a partition of its store in memory.

use std::process::Child;

use crate::kafka::cluster::written;
use crate::kafka::kills::started;
use crate::kafka::process::prelude::*;

const TOPIC: &str = "foreign";
/// Events, and their ordering keys.
const EVENTS: usize = 200;
const KEYS: usize = 10;

struct Broker(Child);

impl Drop for Broker {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn an_independent_broker_has_each_record_and_tells_how_large_one_may_be() {
    let Some(tansu) = std::env::var_os("ONCEBOX_TANSU") else {
        return skipped("needs ONCEBOX_TANSU, the broker tansu");
    };
    let home = tempfile::tempdir().unwrap();
    let free = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    let url = format!("tcp://{free}");
    let log = fs::File::create(home.path().join("broker.log")).unwrap();
    let listens = ["--listener-url", &url, "--advertised-listener-url", &url];
    let mut serve = Command::new(&tansu);
    serve.arg("broker").args(listens).args(["--storage-engine", "sqlite://tansu.db"]);
    serve.current_dir(home.path());
    let _broker = Broker(serve.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap());
    until("the topic is made", || {
        let mut create = Command::new(&tansu);
        create.args(["topic", "create", "--broker", &url, "--config", "max.message.bytes=2000000"]);
        create.arg(TOPIC).output().unwrap().status.success()
    });
    let brokers = [free.to_string()];
    let mut process = started(home.path(), &brokers, TOPIC);
    let path = "/v1/subscriptions/centre/test";
    let tried = process.call("POST", path, &json!({})).is(200).json();
    has(&tried, &json!({ "class": "success" }));
    shows(&tried["steps"].to_string(), &["3 partitions, records of at most 2000000 bytes"]);
    let event = |n: usize| {
        json!({ "event_type": "order.changed", "idempotency_key": n.to_string(),
            "ordering_key": format!("order-{}", n % KEYS), "payload": { "n": n } })
    };
    let events: Vec<Value> = (0..EVENTS).map(event).collect();
    process.post("/v1/events", &json!(events));
    let there = || written(&brokers.join(","), TOPIC);
    for enough in [20, 90] {
        until("some are written", || there().len() >= enough);
        process = process.killed(home.path());
    }
    process.finish();
    let mut seen = BTreeSet::new();
    let mut last: BTreeMap<String, u64> = BTreeMap::new();
    for record in there() {
        if seen.insert(record.field("ce_id").unwrap().to_owned()) {
            let n = serde_json::from_str::<Value>(&record.body).unwrap()["n"].as_u64().unwrap();
            let before = last.insert(record.key.unwrap(), n);
            assert!(before < Some(n), "{n} lies behind {before:?} of its key");
        }
    }
    assert_eq!((seen.len(), last.len()), (EVENTS, KEYS));
}
