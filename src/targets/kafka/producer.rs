//! A producer: idempotent, acknowledged by all replicas, with a thread that takes the reports.
//!
//! At most one record of a lane is under way, so what is sent here is in order; the producer keeps the order of what it
//! sends again by itself.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::{Sender, bounded};
use parking_lot::Mutex;
use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::error::KafkaError;
use rdkafka::message::{DeliveryResult, Header, Message, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer as _, ProducerContext, ThreadedProducer};
use rdkafka::types::RDKafkaErrorCode;

use crate::base::clock::Clock;
use crate::http::trace::StepName;
use crate::model::outcome::{Cause, Outcome};
use crate::targets::kafka::failures::outcome;
use crate::targets::parcel::Parcel;

/// How often the brokers that a cluster names are compared with those of the settings.
const VOUCHED_FOR: Duration = Duration::from_mins(1);
/// How long those who waited for a comparison that failed take its result.
const REFUSED_FOR: Duration = Duration::from_secs(1);
/// Time for a comparison at most.
const MAX_LOOK: Duration = Duration::from_secs(10);
/// How long the report of a record may come after its time is over.
const GRACE: Duration = Duration::from_secs(5);
/// What every producer is told. Source: the library's CONFIGURATION.md.
const PROPERTIES: [(&str, &str); 7] = [
    ("client.id", "oncebox"),
    // All replicas acknowledge, and what the producer sends again lies there once and in order.
    ("enable.idempotence", "true"),
    // The largest payload in an envelope; the broker has a limit of its own.
    ("message.max.bytes", "67108864"),
    // Records of the same moment are one request.
    ("linger.ms", "1"),
    // As the clients for Java choose, so that a key has one partition whoever writes.
    ("partitioner", "murmur2_random"),
    // An unknown topic is told within the time of an attempt.
    ("topic.metadata.propagation.max.ms", "2000"),
    ("reconnect.backoff.max.ms", "2000"),
];

/// What a producer is made by.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Plan {
    /// The cluster's name.
    pub(super) cluster: String,
    /// Its brokers.
    pub(super) brokers: Vec<String>,
    /// How long a record may take.
    pub(super) timeout: Duration,
    /// What the library is told further, by its names. Holds secrets.
    pub(super) properties: Vec<(&'static str, String)>,
}

impl Plan {
    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        let (brokers, timeout) = (self.brokers.join(","), self.timeout.as_millis().to_string());
        let own = [("bootstrap.servers", brokers.as_str()), ("message.timeout.ms", &timeout)];
        let given = self.properties.iter().map(|(name, value)| (*name, value.as_str()));
        for (name, value) in PROPERTIES.into_iter().chain(own).chain(given) {
            config.set(name, value);
        }
        config
    }
}

/// Where a record came to lie: partition and offset.
type Acknowledged = Result<(i32, i64), RDKafkaErrorCode>;

/// Takes the reports of the library.
struct Reports {
    cluster: String,
    /// Whether no broker is connected.
    is_down: AtomicBool,
}

impl ClientContext for Reports {
    fn log(&self, level: RDKafkaLogLevel, _facility: &str, message: &str) {
        tracing::debug!(cluster = self.cluster, ?level, "{message}");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let code = error.rdkafka_error_code();
        if code == Some(RDKafkaErrorCode::AllBrokersDown) {
            self.is_down.store(true, Ordering::Relaxed);
        }
        tracing::warn!(cluster = self.cluster, %error, "{reason}");
    }
}

impl ProducerContext for Reports {
    type DeliveryOpaque = Box<Sender<Acknowledged>>;

    fn delivery(&self, result: &DeliveryResult<'_>, waits: Self::DeliveryOpaque) {
        let acknowledged = match result {
            Ok(message) => {
                self.is_down.store(false, Ordering::Relaxed);
                Ok((message.partition(), message.offset()))
            }
            Err((error, _)) => Err(code_of(error)),
        };
        // Whoever waited too long has gone.
        let _gone = waits.try_send(acknowledged);
    }
}

fn code_of(error: &KafkaError) -> RDKafkaErrorCode {
    error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail)
}

/// One producer.
pub(super) struct Producer {
    plan: Plan,
    inner: ThreadedProducer<Reports>,
    clock: Clock,
    /// When the cluster's brokers were compared last (monotonic), and why they are refused.
    looked: Mutex<Option<(Duration, Option<Outcome>)>>,
}

impl Producer {
    /// Starts its threads; connects later. The error says what cannot be used.
    pub(super) fn new(plan: &Plan, clock: Clock) -> Result<Self, String> {
        let reports = Reports { cluster: plan.cluster.clone(), is_down: AtomicBool::new(false) };
        let inner = plan
            .config()
            .set_log_level(RDKafkaLogLevel::Warning)
            .create_with_context(reports)
            .map_err(|error| format!("the settings of kafka cannot be used: {error}"))?;
        Ok(Self { plan: plan.clone(), inner, clock, looked: Mutex::default() })
    }

    /// Sends one record and waits until all replicas have it.
    pub(super) fn send(&self, parcel: &Parcel<'_>) -> Outcome {
        let Parcel { outgoing, call, trace, .. } = parcel;
        let topic = call.url.rsplit_once('/').map_or("", |(_, topic)| topic);
        if let Some(trace) = trace {
            trace.note(StepName::Build, format!("a record of {} bytes", call.body.len()));
        }
        // A test looks for itself.
        let refused = match trace {
            None => self.refused(topic),
            Some(trace) => self.look(topic).map(|found| trace.note(StepName::Connect, found)).err(),
        };
        if let Some(refused) = refused {
            return refused;
        }
        let (waits, acknowledged) = bounded(1);
        let mut record = BaseRecord::with_opaque_to(topic, Box::new(waits))
            .payload(call.body)
            .headers(headers(call.headers))
            .timestamp(outgoing.happened_at().ms());
        let key = outgoing.order.ordering_key.as_ref().or(outgoing.aggregate_id.as_ref());
        if let Some(key) = key {
            record = record.key(key.as_bytes());
        }
        if let Err((error, _record)) = self.inner.send(record) {
            return self.failed(code_of(&error));
        }
        match acknowledged.recv_timeout(call.timeout.saturating_add(GRACE)) {
            Ok(Ok((partition, offset))) => {
                let excerpt = format!("partition {partition}, offset {offset}");
                if let Some(trace) = trace {
                    trace.note(StepName::Answer, excerpt.clone());
                }
                Outcome::Accepted { excerpt }
            }
            Ok(Err(code)) => self.failed(code),
            Err(_) => {
                let reason = format!("the cluster {} sent no report in time", self.plan.cluster);
                Outcome::Unreachable { cause: Cause::Timeout, reason }
            }
        }
    }

    fn failed(&self, code: RDKafkaErrorCode) -> Outcome {
        let failed =
            outcome(&self.plan.cluster, code, self.inner.context().is_down.load(Ordering::Relaxed));
        if failed.is_away() {
            // The next one finds out within the time of a look, not of a record.
            *self.looked.lock() = None;
        }
        failed
    }

    /// Why nothing may be sent: the cluster names a broker that the settings do not, or does not answer.
    fn refused(&self, topic: &str) -> Option<Outcome> {
        // Held while one looks, so that the others take its result.
        let mut looked = self.looked.lock();
        if let Some((at, refused)) = &*looked {
            let holds = if refused.is_some() { REFUSED_FOR } else { VOUCHED_FOR };
            if self.clock.monotonic().saturating_sub(*at) < holds {
                return refused.clone();
            }
        }
        let refused = self.look(topic).err();
        *looked = Some((self.clock.monotonic(), refused.clone()));
        refused
    }

    /// Compares the brokers that the cluster names with those of the settings; tells what it found.
    fn look(&self, topic: &str) -> Result<String, Outcome> {
        let Plan { cluster, brokers, timeout, .. } = &self.plan;
        let found = self.inner.client().fetch_metadata(Some(topic), (*timeout).min(MAX_LOOK));
        let found = found.map_err(|error| outcome(cluster, code_of(&error), true))?;
        self.inner.context().is_down.store(false, Ordering::Relaxed);
        let mut named = found.brokers().iter().map(|one| format!("{}:{}", one.host(), one.port()));
        if let Some(foreign) = named.find(|broker| !brokers.contains(broker)) {
            let reason = format!(
                "the cluster {cluster} names the broker {foreign}, which the settings do not; if it is yours, add it \
                 to kafka.clusters"
            );
            return Err(Outcome::Blocked { reason });
        }
        let partitions = found.topics().first().map_or(0, |topic| topic.partitions().len());
        Ok(format!("the topic {topic} of {cluster}, {partitions} partitions"))
    }
}

/// Header fields as those of a record: the attributes of `CloudEvents` are named as its protocol binding for Kafka says.
fn headers(fields: &[(String, String)]) -> OwnedHeaders {
    let headers = OwnedHeaders::new_with_capacity(fields.len());
    fields.iter().fold(headers, |headers, (name, value)| {
        let renamed = name.strip_prefix("ce-").map(|attribute| format!("ce_{attribute}"));
        let key = renamed.as_deref().unwrap_or(name);
        headers.insert(Header { key, value: Some(value.as_bytes()) })
    })
}
