//! A mock of a cluster, and an Oncebox that knows it.

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Header, Headers, OwnedHeaders};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::types::RDKafkaApiKey;
use rdkafka::{ClientConfig, Message, Offset, TopicPartitionList};

use crate::rig::prelude::*;

/// The topic that the tests write to.
pub(crate) const TOPIC: &str = "erp";
/// How many partitions it has.
const PARTITIONS: i32 = 3;

/// The cluster `centre` of the settings.
pub(crate) struct Cluster(pub(crate) MockCluster<'static, DefaultProducerContext>);

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) key: Option<String>,
    pub(crate) body: String,
    pub(crate) at: i64,
    fields: Vec<(String, String)>,
}

impl Written {
    /// The value of a header field, of which there must be one at most.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut found = self.fields.iter().filter(|(have, _)| have == name);
        let value = found.next().map(|(_, value)| value.as_str());
        assert!(found.next().is_none(), "{name} stands there twice");
        value
    }
}

impl Cluster {
    pub(crate) fn new() -> Self {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic(TOPIC, PARTITIONS, 1).unwrap();
        Self(cluster)
    }

    /// The addresses of its brokers.
    pub(crate) fn brokers(&self) -> Vec<String> {
        self.0.bootstrap_servers().split(',').map(str::to_owned).collect()
    }

    /// An Oncebox with a subscription `centre` that writes to it.
    pub(crate) fn rig(&self, more: &Value) -> Rig {
        let brokers = self.brokers();
        let rig = Rig::with(|settings| {
            settings.kafka.clusters.insert("centre".to_owned(), brokers);
            settings.kafka.tls = false;
        });
        let body = json!({ "name": "centre", "url": format!("kafka://centre/{TOPIC}"), "event_types": ["*"],
            "policy": { "timeout": "3s" } });
        rig.post("/v1/subscriptions", &merged(body, more)).is(201);
        rig
    }

    /// All that was written to a topic, partition by partition.
    pub(crate) fn written(&self, topic: &str) -> Vec<Written> {
        written(&self.0.bootstrap_servers(), topic)
    }

    /// Writes all records of a topic once more, as a crash before their outcome would.
    pub(crate) fn repeat(&self, topic: &str) {
        let again: BaseProducer = ClientConfig::new()
            .set("bootstrap.servers", self.0.bootstrap_servers())
            .create()
            .unwrap();
        for record in self.written(topic) {
            let headers =
                record.fields.iter().fold(OwnedHeaders::new(), |headers, (key, value)| {
                    headers.insert(Header { key, value: Some(value) })
                });
            let copy = BaseRecord::to(topic).payload(&record.body).partition(record.partition);
            let copy = copy.key(record.key.as_deref().unwrap_or("")).headers(headers);
            again.send(copy).map_err(|(error, _)| error).unwrap();
        }
        again.flush(Duration::from_secs(20)).unwrap();
    }

    /// How many records of a topic a group has done with.
    pub(crate) fn committed_of(&self, group: &str, topic: &str, partitions: i32) -> usize {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", self.0.bootstrap_servers())
            .set("group.id", group)
            .create()
            .unwrap();
        let mut list = TopicPartitionList::new();
        list.add_partition_range(topic, 0, partitions - 1);
        let found = consumer.committed_offsets(list, Duration::from_secs(20)).unwrap();
        let offset = |offset: Offset| offset.to_raw().filter(|offset| *offset > 0).unwrap_or(0);
        found.elements().iter().map(|one| usize::try_from(offset(one.offset())).unwrap()).sum()
    }

    /// How many records a topic has.
    pub(crate) fn ends(&self, topic: &str, partitions: i32) -> usize {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", self.0.bootstrap_servers())
            .create()
            .unwrap();
        let end = |n| consumer.fetch_watermarks(topic, n, Duration::from_secs(20)).unwrap().1;
        (0..partitions).map(|n| usize::try_from(end(n)).unwrap()).sum()
    }

    /// The next requests of this kind fail with these errors.
    pub(crate) fn fails(&self, kind: RDKafkaApiKey, errors: &[rdkafka::types::RDKafkaRespErr]) {
        self.0.request_errors(kind, errors);
    }
}

/// All that was written to a topic of these brokers, partition by partition.
pub(crate) fn written(brokers: &str, topic: &str) -> Vec<Written> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("group.id", "tests")
        .create()
        .unwrap();
    let wait = Duration::from_secs(20);
    let mut written = Vec::new();
    for partition in 0..PARTITIONS {
        let (from, until) = consumer.fetch_watermarks(topic, partition, wait).unwrap();
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(topic, partition, Offset::Beginning).unwrap();
        consumer.assign(&list).unwrap();
        let mut left = until - from;
        let deadline = Instant::now() + wait;
        while left > 0 {
            assert!(Instant::now() < deadline, "{left} records are there and cannot be read");
            let Some(found) = consumer.poll(Duration::from_millis(100)) else { continue };
            let found = found.unwrap();
            left -= 1;
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            let fields = found.headers().into_iter().flat_map(Headers::iter);
            written.push(Written {
                partition,
                offset: found.offset(),
                key: found.key().map(text),
                body: found.payload().map(text).unwrap_or_default(),
                at: found.timestamp().to_millis().unwrap(),
                fields: fields.map(|it| (it.key.to_owned(), text(it.value.unwrap()))).collect(),
            });
        }
    }
    written
}
