//! The topic between Oncebox and Logistics: on the library's own mock of a cluster, in the parent process, which is never
//! killed. Its broker is down for a while every few seconds.

#[cfg(feature = "kafka")]
pub(super) use built::{Reader, Topic};
#[cfg(not(feature = "kafka"))]
pub(super) use unbuilt::{Reader, Topic};

/// The topic's name.
pub(super) const TOPIC: &str = "invoices";

/// A record as Logistics needs it.
pub(super) struct Record {
    /// Its `ce_id`.
    pub(super) event_id: String,
    /// Its value.
    pub(super) body: Vec<u8>,
}

#[cfg(feature = "kafka")]
mod built {
    use std::time::Duration;

    use rdkafka::config::ClientConfig;
    use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
    use rdkafka::error::KafkaError;
    use rdkafka::message::{BorrowedMessage, Headers as _, Message as _};
    use rdkafka::mocking::MockCluster;
    use rdkafka::producer::DefaultProducerContext;
    use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

    use super::{Record, TOPIC};
    use crate::demo::site::{Error, Site};

    /// The mock forgets what is older than 5 MiB in a partition.
    const PARTITIONS: i32 = 8;
    /// Time for an answer of the broker.
    const ANSWER: Duration = Duration::from_secs(2);
    /// The id of the only broker.
    const BROKER: i32 = 1;

    /// The cluster with the topic. Dropping it ends it.
    pub(in crate::demo) struct Topic {
        cluster: MockCluster<'static, DefaultProducerContext>,
        is_down: bool,
    }

    impl Topic {
        /// Starts the cluster.
        pub(in crate::demo) fn start() -> Result<Self, Error> {
            let cluster = MockCluster::new(BROKER).map_err(failed())?;
            cluster.create_topic(TOPIC, PARTITIONS, 1).map_err(failed())?;
            Ok(Self { cluster, is_down: false })
        }

        /// Its broker's address.
        pub(in crate::demo) fn broker(&self) -> String {
            self.cluster.bootstrap_servers()
        }

        /// Takes the broker down, or up again.
        pub(in crate::demo) fn set_down(&mut self, is_down: bool) -> Result<(), Error> {
            if self.is_down == is_down {
                return Ok(());
            }
            self.is_down = is_down;
            let cluster = &self.cluster;
            let set = if is_down { cluster.broker_down(BROKER) } else { cluster.broker_up(BROKER) };
            set.map_err(failed())
        }
    }

    fn failed() -> impl FnOnce(KafkaError) -> Error {
        Error::about("the mock of a cluster")
    }

    /// Reads the topic for Logistics.
    pub(in crate::demo) struct Reader(BaseConsumer);

    impl Reader {
        /// Begins behind what was committed.
        pub(in crate::demo) fn start(site: &Site) -> Result<Self, Error> {
            let consumer: BaseConsumer = ClientConfig::new()
                .set("bootstrap.servers", site.brokers.join(","))
                .set("group.id", "logistics")
                .set("enable.auto.commit", "false")
                .set("enable.auto.offset.store", "false")
                .set("auto.offset.reset", "earliest")
                // The mock answers a fetch late if nothing is there.
                .set("fetch.wait.max.ms", "20")
                .set("fetch.error.backoff.ms", "20")
                .set("fetch.queue.backoff.ms", "20")
                // A request that the mock never answers, because its broker went down, is given up.
                .set("socket.timeout.ms", "2000")
                .set("reconnect.backoff.max.ms", "500")
                .create()
                .map_err(failed())?;
            // Without a group's election nobody waits for a member that was killed.
            let mut partitions = TopicPartitionList::new();
            partitions.add_partition_range(TOPIC, 0, PARTITIONS - 1);
            let from = loop {
                match consumer.committed_offsets(partitions.clone(), ANSWER) {
                    Ok(found) => break found,
                    Err(error) => {
                        tracing::warn!(%error, "the offsets cannot be read; it is tried again");
                    }
                }
            };
            for mut partition in from.elements_for_topic(TOPIC) {
                if partition.offset() == Offset::Invalid {
                    partition.set_offset(Offset::Beginning).map_err(failed())?;
                }
            }
            consumer.assign(&from).map_err(failed())?;
            Ok(Self(consumer))
        }

        /// Waits for records, and takes what is there.
        pub(in crate::demo) fn take(&self, most: usize, wait: Duration) -> Vec<Record> {
            let mut records = Vec::new();
            let mut wait = wait;
            while records.len() < most
                && let Some(polled) = self.0.poll(wait)
            {
                wait = Duration::ZERO;
                match polled {
                    Ok(message) => {
                        let _stored = self.0.store_offset_from_message(&message);
                        records.push(record(&message));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "the topic cannot be read; it is tried again");
                    }
                }
            }
            records
        }

        /// Has the offsets committed of what was taken. What is not committed comes again after a kill. Nobody waits for it: a
        /// commit does not end while the broker is down.
        pub(in crate::demo) fn commit(&self) {
            if let Err(error) = self.0.commit_consumer_state(CommitMode::Async) {
                tracing::warn!(%error, "offsets were not committed; the guard knows the records");
            }
        }
    }

    fn record(message: &BorrowedMessage<'_>) -> Record {
        let id = message.headers().and_then(|headers| headers.iter().find(|it| it.key == "ce_id"));
        let id = id.and_then(|header| header.value).unwrap_or_default();
        Record {
            event_id: String::from_utf8_lossy(id).into_owned(),
            body: message.payload().unwrap_or_default().to_vec(),
        }
    }
}

#[cfg(not(feature = "kafka"))]
mod unbuilt {
    use std::time::Duration;

    use super::Record;
    use crate::demo::site::{Error, Site};
    use crate::targets::kafka::NOT_BUILT;

    /// There is none.
    pub(in crate::demo) enum Topic {}

    impl Topic {
        pub(in crate::demo) fn start() -> Result<Self, Error> {
            Err(Error::Failed(NOT_BUILT.to_owned()))
        }

        pub(in crate::demo) fn broker(&self) -> String {
            match *self {}
        }

        pub(in crate::demo) fn set_down(&mut self, _is_down: bool) -> Result<(), Error> {
            match *self {}
        }
    }

    /// There is none.
    pub(in crate::demo) enum Reader {}

    impl Reader {
        pub(in crate::demo) fn start(_site: &Site) -> Result<Self, Error> {
            Err(Error::Failed(NOT_BUILT.to_owned()))
        }

        pub(in crate::demo) fn take(&self, _most: usize, _wait: Duration) -> Vec<Record> {
            match *self {}
        }

        pub(in crate::demo) fn commit(&self) {
            match *self {}
        }
    }
}
