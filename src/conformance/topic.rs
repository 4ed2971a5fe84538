//! Tests a consumer of a topic: a mock of a cluster has the events in one partition, many of them twice. The command reads
//! it until it is killed, and is started again, until the last event has its effect.

use crate::base::clock::Clock;
use crate::conformance::plan::Plan;
use crate::conformance::{Error, Options, Progress, Report};

#[cfg(not(feature = "kafka"))]
pub(super) fn run(
    _options: &Options,
    _clock: &Clock,
    _plan: &Plan,
    _tell: &mut dyn FnMut(Progress),
) -> Result<Report, Error> {
    Err(Error::Cluster(crate::targets::kafka::NOT_BUILT.to_owned()))
}

#[cfg(feature = "kafka")]
pub(super) use built::run;

#[cfg(feature = "kafka")]
mod built {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use rdkafka::config::ClientConfig;
    use rdkafka::error::KafkaError;
    use rdkafka::message::{Header, OwnedHeaders};
    use rdkafka::mocking::MockCluster;
    use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};

    use super::{Clock, Error, Options, Plan, Progress, Report};
    use crate::config::own_variables;
    use crate::conformance::plan::Event;
    use crate::conformance::{EffectCounts, MAX_FAILURES, MAX_OUTPUT_BYTES, effects, output, plan};
    use crate::sys::command::{Program, Running, wait};

    /// The topic's name.
    const TOPIC: &str = "conformance";
    /// Kills before the last portion of the records.
    const KILLS: usize = 5;
    /// Between two looks at the effects.
    const LOOK_EVERY: Duration = Duration::from_millis(50);
    /// How long an effect of a portion may take. A group waits up to 45 s for a member that was killed.
    const PORTION: Duration = Duration::from_mins(1);
    /// How long the last event's may take; what has no effect then counts as lost.
    const STALLED: Duration = Duration::from_mins(2);

    pub(in crate::conformance) fn run(
        options: &Options,
        clock: &Clock,
        plan: &Plan,
        tell: &mut dyn FnMut(Progress),
    ) -> Result<Report, Error> {
        let cluster = MockCluster::new(1).map_err(failed)?;
        cluster.create_topic(TOPIC, 1, 1).map_err(failed)?;
        let brokers = cluster.bootstrap_servers();
        let Some(count) = &options.count else { return Ok(Report::default()) };
        let records = records(plan);
        let ids: BTreeSet<&str> = records.iter().map(|event| event.id.as_str()).collect();
        let repeated = u32::try_from(records.len().saturating_sub(ids.len())).unwrap_or(u32::MAX);
        let last = records.last().map(|event| event.id.as_str()).unwrap_or_default();
        let events: Vec<&Event> = plan.events.iter().collect();
        let mut report = Report { duplicates: repeated, ..Report::default() };
        let mut counted = EffectCounts::default();
        let mut failures = 0;
        // The consumer is killed while it is at a portion, or when it has done it and not yet said so to the broker.
        for portion in records.chunks(records.len().div_ceil(KILLS + 1).max(1)) {
            write(&brokers, portion).map_err(failed)?;
            let is_last = portion.last().is_some_and(|event| event.id == last);
            let before = counted.effects;
            let began = clock.monotonic();
            let patience = if is_last { STALLED } else { PORTION };
            let mut running = start(options, &brokers, clock)?;
            report.runs = report.runs.saturating_add(1);
            loop {
                wait(&[&running], LOOK_EVERY);
                let listed = effects(count, options.timeout, clock)?;
                counted = plan::count(&events, &listed, options.guard);
                tell(Progress { acknowledged: counted.effects, runs: report.runs });
                let is_done = if is_last {
                    listed.lines().any(|line| line.trim() == last)
                } else {
                    counted.effects > before
                };
                if is_done || clock.monotonic().saturating_sub(began) > patience {
                    break;
                }
                let ended = running.look().map_err(|source| cannot(options, source))?;
                let Some(ended) = ended else { continue };
                failures += 1;
                if failures >= MAX_FAILURES {
                    let why = format!("{}: {}", ended.how, output(&ended));
                    report.refused.push((last.to_owned(), why));
                    report.counted = Some(counted);
                    return Ok(report);
                }
                running = start(options, &brokers, clock)?;
                report.runs = report.runs.saturating_add(1);
            }
            drop(running);
            report.kills = report.kills.saturating_add(1);
        }
        report.counted = Some(counted);
        Ok(report)
    }

    fn start(options: &Options, brokers: &str, clock: &Clock) -> Result<Running, Error> {
        let environment = [("ONCEBOX_KAFKA_BROKERS", brokers), ("ONCEBOX_KAFKA_TOPIC", TOPIC)];
        let program = Program {
            argv: options.command.clone(),
            without: own_variables(),
            environment: environment
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .to_vec(),
            input: Vec::new(),
            timeout: Duration::from_hours(24),
            output_most: MAX_OUTPUT_BYTES,
        };
        program.start(clock).map_err(|source| cannot(options, source))
    }

    fn cannot(options: &Options, source: std::io::Error) -> Error {
        let command = options.command.first().map(|name| name.to_string_lossy().into_owned());
        Error::Command { command: command.unwrap_or_default(), source }
    }

    /// The events in the plan's order. The last one comes once, so that whoever has done it has done all.
    fn records(plan: &Plan) -> Vec<&Event> {
        let Some(last) = plan.events.last() else { return Vec::new() };
        let planned = plan.order.iter().filter_map(|index| plan.events.get(*index));
        planned.filter(|event| event.id != last.id).chain([last]).collect()
    }

    fn write(brokers: &str, records: &[&Event]) -> Result<(), KafkaError> {
        let producer: BaseProducer =
            ClientConfig::new().set("bootstrap.servers", brokers).create()?;
        for event in records {
            let fields = [("ce_id", event.id.as_str()), ("ce_type", "conformance.changed")];
            let headers = fields.iter().fold(OwnedHeaders::new(), |headers, (key, value)| {
                headers.insert(Header { key, value: Some(*value) })
            });
            let body = event.input();
            let record = BaseRecord::to(TOPIC).key(&event.entity).payload(&body).headers(headers);
            producer.send(record).map_err(|(error, _record)| error)?;
        }
        producer.flush(Duration::from_secs(30))
    }

    fn failed(error: KafkaError) -> Error {
        Error::Cluster(format!("the mock of a cluster: {error}"))
    }
}
