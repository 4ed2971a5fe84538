//! Targets that are topics of Kafka or of what speaks its protocol, such as Redpanda.
//!
//! A record is settled by the broker's acknowledgement alone. Which brokers there are, the settings say: a cluster that
//! names others as its brokers gets nothing. Built with the feature `kafka`; without it such subscriptions wait.

#[cfg(feature = "kafka")]
mod failures;
#[cfg(feature = "kafka")]
mod producer;

use crate::config::{self, KafkaSasl};
use crate::model::kafka_topic::KafkaTopic;

#[cfg(feature = "kafka")]
pub use linked::Kafka;
#[cfg(not(feature = "kafka"))]
pub use unlinked::Kafka;

/// Why a program without the feature cannot do it.
#[cfg(not(feature = "kafka"))]
pub const NOT_BUILT: &str = "this oncebox is built without Kafka: install the Debian package, or build it with --features kafka";

/// Whether this program was built with Kafka. The error says how to get one.
pub const fn built() -> Result<(), &'static str> {
    #[cfg(not(feature = "kafka"))]
    return Err(NOT_BUILT);
    #[cfg(feature = "kafka")]
    Ok(())
}

/// Whether the settings allow a topic. The error says what to add to them.
pub fn check(settings: &config::Kafka, topic: &KafkaTopic) -> Result<(), String> {
    built().map_err(str::to_owned)?;
    brokers(settings, topic.cluster()).map(drop)
}

/// The brokers of a cluster.
fn brokers<'s>(settings: &'s config::Kafka, cluster: &str) -> Result<&'s [String], String> {
    if settings.sasl == KafkaSasl::Plain && !settings.tls {
        return Err(
            "kafka.sasl is plain, which sends passwords in the clear: set kafka.tls".to_owned()
        );
    }
    let brokers = settings.clusters.get(cluster);
    brokers.map(Vec::as_slice).ok_or_else(|| {
        format!(
            "there is no cluster {cluster:?} in the settings; add its brokers to kafka.clusters, like \
             {cluster} = [\"kafka-1.example.com:9093\"]"
        )
    })
}

#[cfg(not(feature = "kafka"))]
mod unlinked {
    use super::NOT_BUILT;
    use crate::base::clock::Clock;
    use crate::config::Live;
    use crate::model::outcome::{AttemptClass, Outcome};
    use crate::targets::parcel::{Parcel, Sends};

    /// Sends nothing.
    #[derive(Debug)]
    pub struct Kafka;

    impl Kafka {
        /// What sends nothing.
        pub fn new(_settings: Live, _clock: Clock) -> Self {
            Self
        }
    }

    impl Sends for Kafka {
        fn send(&self, _parcel: &Parcel<'_>) -> Outcome {
            Outcome::Unacknowledged {
                class: AttemptClass::Transient,
                is_away: true,
                code: "not_built".to_owned(),
                reason: NOT_BUILT.to_owned(),
            }
        }
    }
}

#[cfg(feature = "kafka")]
mod linked {
    use super::brokers;
    use super::producer::{Plan, Producer};
    use crate::base::cache::Cache;
    use crate::base::clock::Clock;
    use crate::config::{self, KafkaCompression, KafkaSasl, Live, Settings};
    use crate::model::outcome::Outcome;
    use crate::model::subscription::Target;
    use crate::targets::parcel::{Parcel, Sends};

    /// Producers that are kept. Each has a thread for every broker, and two more.
    const MAX_PRODUCERS: usize = 16;

    /// Writes to topics. Subscriptions share a producer where nothing of its plan differs.
    pub struct Kafka {
        settings: Live,
        clock: Clock,
        producers: Cache<Plan, Producer>,
    }

    impl Kafka {
        /// No producer is there yet.
        pub fn new(settings: Live, clock: Clock) -> Self {
            Self { settings, clock, producers: Cache::new(MAX_PRODUCERS) }
        }
    }

    impl Sends for Kafka {
        fn send(&self, parcel: &Parcel<'_>) -> Outcome {
            let plan = match plan(&self.settings.get(), parcel) {
                Ok(plan) => plan,
                // What is missing in the settings is the administrator's to add: the record waits for it.
                Err(reason) => return Outcome::Blocked { reason },
            };
            let make = |plan: &Plan| Producer::new(plan, self.clock.clone()).map(Some);
            match self.producers.get(plan, make) {
                Ok(Some(producer)) => producer.send(parcel),
                Ok(None) => Outcome::Blocked { reason: "there is no producer".to_owned() },
                Err(reason) => Outcome::Blocked { reason },
            }
        }
    }

    /// What a producer for a parcel is made by.
    fn plan(settings: &Settings, parcel: &Parcel<'_>) -> Result<Plan, String> {
        let Target::Kafka(topic) = &parcel.subscription.new.target else {
            return Err("its target is no topic".to_owned());
        };
        let config::Kafka { tls, sasl, compression, .. } = &settings.kafka;
        let protocol = match (*sasl, *tls) {
            (KafkaSasl::None, false) => "plaintext",
            (KafkaSasl::None, true) => "ssl",
            (_, false) => "sasl_plaintext",
            (_, true) => "sasl_ssl",
        };
        let compression = match compression {
            KafkaCompression::None => "none",
            KafkaCompression::Gzip => "gzip",
            KafkaCompression::Snappy => "snappy",
            KafkaCompression::Lz4 => "lz4",
        };
        let mut properties = vec![
            ("security.protocol", protocol.to_owned()),
            ("compression.type", compression.to_owned()),
        ];
        if let Some(file) = settings.delivery.ca_file.as_ref().filter(|_| *tls) {
            properties.push(("ssl.ca.location", file.display().to_string()));
        }
        let mechanism = match sasl {
            KafkaSasl::None => None,
            KafkaSasl::Plain => Some("PLAIN"),
            KafkaSasl::ScramSha256 => Some("SCRAM-SHA-256"),
            KafkaSasl::ScramSha512 => Some("SCRAM-SHA-512"),
        };
        if let Some(mechanism) = mechanism {
            let missing = "has no user and password; set them: oncebox credential set";
            let login = parcel.access.login();
            let (user, password) = login.ok_or_else(|| format!("the subscription {missing}"))?;
            properties.extend([
                ("sasl.mechanism", mechanism.to_owned()),
                ("sasl.username", user.clone()),
                ("sasl.password", password.to_string()),
            ]);
        }
        Ok(Plan {
            cluster: topic.cluster().to_owned(),
            brokers: brokers(&settings.kafka, topic.cluster())?.to_vec(),
            timeout: parcel.call.timeout,
            properties,
        })
    }
}
