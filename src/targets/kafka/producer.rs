//! A producer: idempotent, acknowledged by all replicas, with a thread that takes the reports.
//!
//! At most one record of a lane is under way, so what is sent here is in order; the producer keeps the order of what it
//! sends again by itself.

use std::time::Duration;

use crossbeam_channel::bounded;
use parking_lot::Mutex;
use rdkafka::admin::{AdminClient, AdminOptions, ResourceSpecifier};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer as _, ThreadedProducer};
use rdkafka::types::RDKafkaErrorCode;

use crate::base::clock::Clock;
use crate::http::trace::StepName;
use crate::model::outcome::{Cause, Outcome};
use crate::targets::kafka::failures::outcome;
use crate::targets::kafka::plan::Plan;
use crate::targets::kafka::reports::{BrokerLine, Reports, code_of};
use crate::targets::parcel::Parcel;

/// How often the brokers that a cluster names are compared with those of the settings.
const VOUCHED_FOR: Duration = Duration::from_mins(1);
/// How long those who waited for a comparison that failed take its result.
const REFUSED_FOR: Duration = Duration::from_secs(1);
/// Time for a comparison at most.
const MAX_LOOK: Duration = Duration::from_secs(10);
/// How long the report of a record may come after its time is over.
const GRACE: Duration = Duration::from_secs(5);
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
        let reports = Reports::new(plan, clock.clone());
        let inner = plan
            .config()
            .set_log_level(RDKafkaLogLevel::Warning)
            .create_with_context(reports)
            .map_err(|error| format!("the settings of kafka cannot be used: {error}"))?;
        Ok(Self { plan: plan.clone(), inner, clock, looked: Mutex::default() })
    }

    /// Why a record cannot be sent; a test notes what it found.
    pub(super) fn look(&self, parcel: &Parcel<'_>) -> Option<Outcome> {
        let topic = topic(parcel);
        let Some(trace) = parcel.trace else { return self.refused(topic) };
        trace.note(StepName::Build, format!("a record of {} bytes", parcel.call.body.len()));
        let found = self.compare(topic).map(|found| found + &self.largest(topic));
        found.map(|found| trace.note(StepName::Connect, found)).err()
    }

    /// Sends one record and waits until all replicas have it.
    pub(super) fn send(&self, parcel: &Parcel<'_>) -> Outcome {
        let Parcel { outgoing, call, trace, .. } = parcel;
        if let Some(refused) = self.look(parcel) {
            return refused;
        }
        let (waits, acknowledged) = bounded(1);
        let mut record = BaseRecord::with_opaque_to(topic(parcel), Box::new(waits))
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
        let line = self.inner.context().line.lock().clone();
        let failed = outcome(&self.plan.cluster, code, &line);
        if line != BrokerLine::Up || failed.is_away() {
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
        let refused = self.compare(topic).err();
        *looked = Some((self.clock.monotonic(), refused.clone()));
        refused
    }

    /// Compares the brokers that the cluster names with those of the settings; tells what it found.
    fn compare(&self, topic: &str) -> Result<String, Outcome> {
        let Plan { cluster, brokers, timeout, .. } = &self.plan;
        let found = self.inner.client().fetch_metadata(Some(topic), (*timeout).min(MAX_LOOK));
        let context = self.inner.context();
        let mut line = context.line.lock();
        let found = found.map_err(|error| {
            let down = BrokerLine::Down(context.said.lock().clone());
            outcome(cluster, code_of(&error), if *line == BrokerLine::Up { &down } else { &line })
        })?;
        *line = BrokerLine::Up;
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

    /// How large a record of a topic may be. Empty if the cluster does not tell it, as most do not without a right to it.
    fn largest(&self, topic: &str) -> String {
        // The library's client for this knows no tokens.
        let config = self.plan.tokens.is_none().then(|| self.plan.config());
        let asked = || {
            let admin: AdminClient<DefaultClientContext> = config?.create().ok()?;
            let options =
                AdminOptions::new().request_timeout(Some(self.plan.timeout.min(MAX_LOOK)));
            let wanted = [ResourceSpecifier::Topic(topic)];
            let mut told = pollster::block_on(admin.describe_configs(&wanted, &options)).ok()?;
            let told = told.pop()?.ok()?;
            told.get("max.message.bytes")?.value.clone()
        };
        asked().map_or_else(String::new, |most| format!(", records of at most {most} bytes"))
    }
}

/// The topic of a parcel.
fn topic<'p>(parcel: &'p Parcel<'_>) -> &'p str {
    parcel.call.url.rsplit_once('/').map_or("", |(_, topic)| topic)
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
