//! Targets that are topics of Kafka or of what speaks its protocol, such as Redpanda.
//!
//! A record is settled by the broker's acknowledgement alone. Which brokers there are, the settings say: a cluster that
//! names others as its brokers gets nothing. Built with the feature `kafka`; without it such subscriptions wait.

#[cfg(feature = "kafka")]
mod failures;
#[cfg(feature = "kafka")]
mod plan;
#[cfg(feature = "kafka")]
mod producer;
#[cfg(feature = "kafka")]
mod reports;

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
    if matches!(settings.sasl, KafkaSasl::Plain | KafkaSasl::Oauthbearer) && !settings.tls {
        return Err("kafka.sasl sends the password or token in the clear: set kafka.tls".to_owned());
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
    use std::sync::Arc;

    use crate::base::clock::Clock;
    use crate::config::Live;
    use crate::http::client::Sender;
    use crate::model::outcome::{AttemptClass, Outcome};
    use crate::targets::parcel::{Parcel, Sends};

    /// Sends nothing.
    #[derive(Debug)]
    pub struct Kafka;

    impl Kafka {
        /// What sends nothing.
        pub fn new(_settings: Live, _clock: Clock, _sender: Arc<dyn Sender>) -> Self {
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
    use std::hash::{DefaultHasher, Hash, Hasher};
    use std::sync::Arc;

    use super::brokers;
    use super::plan::{Plan, Tokens};
    use super::producer::Producer;
    use crate::base::cache::Cache;
    use crate::base::clock::Clock;
    use crate::config::Live;
    use crate::http::client::Sender;
    use crate::model::outcome::Outcome;
    use crate::model::subscription::Target;
    use crate::targets::parcel::{Parcel, Sends};

    /// Producers that are kept for the tenants of a shard. Each has a thread for every broker, and two more.
    const MAX_PRODUCERS: usize = 8;
    /// Shards, by tenant: one whose subscriptions log on in many ways makes producers anew for its own shard alone.
    const SHARDS: u64 = 8;

    /// Writes to topics. Subscriptions of a shard share a producer where nothing of its plan differs.
    pub struct Kafka {
        settings: Live,
        clock: Clock,
        sender: Arc<dyn Sender>,
        producers: Vec<Cache<Plan, Producer>>,
    }

    impl Kafka {
        /// No producer is there yet.
        pub fn new(settings: Live, clock: Clock, sender: Arc<dyn Sender>) -> Self {
            let producers = (0..SHARDS).map(|_| Cache::new(MAX_PRODUCERS)).collect();
            Self { settings, clock, sender, producers }
        }

        /// The producers of a tenant's shard.
        fn shard(&self, tenant: &str) -> Option<&Cache<Plan, Producer>> {
            let mut hasher = DefaultHasher::new();
            tenant.hash(&mut hasher);
            self.producers.get(usize::try_from(hasher.finish() % SHARDS).ok()?)
        }

        /// The producer of a plan. The error says what is missing in the settings, for the administrator to add: the
        /// record waits for it.
        fn producer(&self, parcel: &Parcel<'_>) -> Result<Arc<Producer>, Outcome> {
            let Parcel { subscription, call, outgoing, at, .. } = parcel;
            let Target::Kafka(topic) = &subscription.new.target else {
                return Err(Outcome::Unbuildable { reason: "its target is no topic".to_owned() });
            };
            let settings = self.settings.get();
            let blocked = |reason| Outcome::Blocked { reason };
            let brokers = brokers(&settings.kafka, topic.cluster()).map_err(blocked)?;
            let tokens = Tokens::of(parcel, &self.sender, &self.clock);
            let plan = Plan::of(&settings, brokers, topic, parcel, tokens).map_err(blocked)?;
            if let Some(tokens) = &plan.tokens {
                // The library waits ten seconds after it got none, and does not tell why.
                tokens.token(None, call.timeout).map_err(|not_sent| not_sent.outcome(*at))?;
            }
            let new = |plan: &Plan| Producer::new(plan, self.clock.clone()).map(Some);
            let made = self.shard(&outgoing.tenant).map(|shard| shard.get(plan, new)).transpose();
            let missing = || blocked("there is no producer".to_owned());
            made.map_err(blocked)?.flatten().ok_or_else(missing)
        }
    }

    impl Sends for Kafka {
        fn send(&self, parcel: &Parcel<'_>) -> Outcome {
            self.producer(parcel).map_or_else(|outcome| outcome, |producer| producer.send(parcel))
        }

        fn look(&self, parcel: &Parcel<'_>) -> Outcome {
            let looked = self.producer(parcel).map(|producer| producer.look(parcel));
            let accepted = || Outcome::Accepted { excerpt: String::new() };
            looked.map_or_else(|outcome| outcome, |refused| refused.unwrap_or_else(accepted))
        }
    }
}
