//! From the publisher to a topic: how many a second are accepted and acknowledged, at what cost. The cluster is the library's
//! own mock, in this process, on the same processors.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::float_arithmetic,
    reason = "a bench owns its processes, ends by panicking, prints what it measures and reckons in floats"
)]

mod rig;

use std::time::{Duration, Instant};

use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer};

use rig::load::{Kind, Load};
use rig::report::Report;
use rig::server::{Server, fresh_directory};
use rig::{Options, median, now_us, rest};

const TOPIC: &str = "bench";
const PARTITIONS: i32 = 12;
/// What must be accepted and acknowledged in a second.
const RATE: f64 = 10_000.0;

/// How many records lie in the topic.
fn written(consumer: &BaseConsumer) -> i64 {
    let end = |partition| consumer.fetch_watermarks(TOPIC, partition, Duration::from_secs(20));
    (0..PARTITIONS).map(|partition| end(partition).unwrap().1).sum()
}

/// A producer alone, as ours is set: how many records a second the mock acknowledges.
fn bare(cluster: &MockCluster<'_, DefaultProducerContext>, span: Duration) -> f64 {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", cluster.bootstrap_servers())
        .set("enable.idempotence", "true")
        .set("linger.ms", "0")
        .set("compression.type", "lz4")
        .create()
        .unwrap();
    let body = [b'x'; 500];
    let (begun, mut sent) = (Instant::now(), 0_u64);
    while begun.elapsed() < span {
        let key = sent.to_string();
        let record = BaseRecord::to("floor").key(&key).payload(&body[..]);
        match producer.send(record) {
            Ok(()) => sent += 1,
            Err(_full) => producer.poll(Duration::from_millis(1)),
        }
        producer.poll(Duration::ZERO);
    }
    producer.flush(Duration::from_mins(1)).unwrap();
    sent as f64 / begun.elapsed().as_secs_f64()
}

fn saturated(report: &mut Report, options: Options) {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic(TOPIC, PARTITIONS, 1).unwrap();
    cluster.create_topic("floor", PARTITIONS, 1).unwrap();
    let brokers = cluster.bootstrap_servers();
    let settings = [
        "env".to_owned(),
        "ONCEBOX_KAFKA__TLS=false".to_owned(),
        format!("ONCEBOX_KAFKA__CLUSTERS={{\"centre\":[\"{brokers}\"]}}"),
    ];
    let data = fresh_directory("kafka");
    let server = Server::start_under(&settings, &data);
    server.subscribe_as(&server.token, "centre", &format!("kafka://centre/{TOPIC}"), "bench.event");
    let consumer: BaseConsumer =
        ClientConfig::new().set("bootstrap.servers", &brokers).create().unwrap();
    let span = Duration::from_secs(options.pick(2, 5));
    let (mut rates, mut floors, mut ratios, mut cpus) = (vec![], vec![], vec![], vec![]);
    for _ in 0..options.pick(1, 5) {
        let (before, cpu) = (written(&consumer), server.cpu_seconds());
        let kind =
            Kind::Publish { token: server.token.clone(), event_type: "bench.event".to_owned() };
        let load =
            Load { address: server.address.clone(), kind, connections: 64, span, rate: None };
        let loaded = load.run();
        let wanted = before + i64::try_from(loaded.accepted).unwrap();
        while written(&consumer) < wanted {
            rest(Duration::from_millis(5));
        }
        let seconds = now_us().saturating_sub(loaded.first_us) as f64 / 1e6;
        let rate = loaded.accepted as f64 / seconds;
        let floor = bare(&cluster, span / 2);
        cpus.push((server.cpu_seconds() - cpu) * 1e3 / loaded.accepted as f64);
        rates.push(rate);
        floors.push(floor);
        ratios.push(rate / floor);
    }
    let floor = format!("{:.0}/s bare producer", median(&floors));
    report.ratio(
        "accepted and acknowledged @64".to_owned(),
        (median(&rates), "/s"),
        (floor, median(&ratios)),
        None,
    );
    report.at_most("10,000/s as a part of that", RATE / median(&rates), "", 1.0);
    report.line("server CPU per 1,000 events", median(&cpus), "s");
    server.stop();
    drop(std::fs::remove_dir_all(data));
}

fn main() {
    let Some(options) = rig::begin() else { return };
    let mut report = Report::new("kafka", options);
    saturated(&mut report, options);
}
