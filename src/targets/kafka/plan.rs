//! A plan: what a producer is made by. Whatever shares a plan shares its producer.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use rdkafka::config::ClientConfig;

use crate::base::clock::Clock;
use crate::config::{self, KafkaCompression, KafkaSasl, Settings};
use crate::http::client::{Call, Sender};
use crate::http::identity::Identity;
use crate::model::kafka_topic::KafkaTopic;
use crate::targets::http::oauth2::{Token, TokenSource};
use crate::targets::http::wire::{NetworkLine, NotSent, Wire};
use crate::targets::parcel::Parcel;

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
    /// Where the tokens come from that log on, if such do.
    pub(super) tokens: Option<Tokens>,
    /// What the library is told further, by its names. Holds secrets.
    properties: Vec<(&'static str, String)>,
}

impl Plan {
    /// The plan for a parcel to a topic. The error says what is missing in the credentials.
    pub(super) fn of(
        settings: &Settings,
        brokers: &[String],
        topic: &KafkaTopic,
        parcel: &Parcel<'_>,
        tokens: Option<Tokens>,
    ) -> Result<Self, String> {
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
            KafkaCompression::Zstd => "zstd",
        };
        let mut properties = vec![
            ("security.protocol", protocol.to_owned()),
            ("compression.type", compression.to_owned()),
        ];
        if let Some(file) = settings.delivery.ca_file.as_ref().filter(|_| *tls) {
            properties.push(("ssl.ca.location", file.display().to_string()));
        }
        if let Some(identity) = parcel.access.identity.as_ref().filter(|_| *tls) {
            let pem = identity.pem.to_string();
            properties.extend([("ssl.certificate.pem", pem.clone()), ("ssl.key.pem", pem)]);
        }
        let mechanism = match sasl {
            KafkaSasl::None => None,
            KafkaSasl::Plain => Some("PLAIN"),
            KafkaSasl::ScramSha256 => Some("SCRAM-SHA-256"),
            KafkaSasl::ScramSha512 => Some("SCRAM-SHA-512"),
            KafkaSasl::Oauthbearer => Some("OAUTHBEARER"),
        };
        let missing = |what| {
            format!("the subscription has no {what}; set them: oncebox credential set --kind")
        };
        match (mechanism, &parcel.access.login) {
            (None, _) => {}
            (Some("OAUTHBEARER"), _) if tokens.is_none() => {
                return Err(missing("OAuth 2.0 client") + " oauth2");
            }
            (Some("OAUTHBEARER"), _) => {
                properties.push(("sasl.mechanism", "OAUTHBEARER".to_owned()));
            }
            (Some(_), None) => return Err(missing("user and password") + " basic"),
            (Some(mechanism), Some((user, password))) => properties.extend([
                ("sasl.mechanism", mechanism.to_owned()),
                ("sasl.username", user.clone()),
                ("sasl.password", password.to_string()),
            ]),
        }
        Ok(Self {
            cluster: topic.cluster().to_owned(),
            brokers: brokers.to_vec(),
            timeout: parcel.call.timeout,
            tokens: tokens.filter(|_| *sasl == KafkaSasl::Oauthbearer),
            properties,
        })
    }

    /// What the library is told.
    pub(super) fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        let brokers = self.brokers.join(",");
        let timeout = self.timeout.as_millis().to_string();
        let own = [("bootstrap.servers", brokers.as_str()), ("message.timeout.ms", &timeout)];
        let given = self.properties.iter().map(|(name, value)| (*name, value.as_str()));
        for (name, value) in PROPERTIES.into_iter().chain(own).chain(given) {
            config.set(name, value);
        }
        config
    }
}

/// The tokens of a client, and the line to its endpoint. Equal if they are of the same client. Cheap to clone.
#[derive(Clone)]
pub(super) struct Tokens {
    source: Arc<TokenSource>,
    sender: Arc<dyn Sender>,
    clock: Clock,
    identity: Option<Arc<Identity>>,
    tenant: String,
}

impl Tokens {
    /// Those that a parcel's subscription logs on with, fetched by this sender; `None` if it has no client.
    pub(super) fn of(parcel: &Parcel<'_>, sender: &Arc<dyn Sender>, clock: &Clock) -> Option<Self> {
        let access = parcel.access;
        access.token_source().map(|source| Self {
            source: Arc::clone(source),
            sender: Arc::clone(sender),
            clock: clock.clone(),
            identity: access.identity.clone(),
            tenant: parcel.outgoing.tenant.clone(),
        })
    }

    /// The token that the client has, or a new one; another than that `before`.
    pub(super) fn token(
        &self,
        before: Option<&Token>,
        timeout: Duration,
    ) -> Result<Token, NotSent> {
        let call = Call { timeout, tenant: Some(&self.tenant), ..Call::default() };
        let line = NetworkLine { sender: &*self.sender, clock: &self.clock, trace: None };
        self.source.token(&Wire::new(line, self.identity.as_deref(), &call), before)
    }
}

impl PartialEq for Tokens {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.source, &other.source)
    }
}

impl Eq for Tokens {}

impl Hash for Tokens {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.source).hash(state);
    }
}
