//! What a producer's library reports: where records came to lie, and how its line to the cluster is.

use std::error::Error;

use crossbeam_channel::Sender;
use parking_lot::Mutex;
use rdkafka::client::{ClientContext, OAuthToken};
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::producer::ProducerContext;
use rdkafka::types::RDKafkaErrorCode;

use crate::base::clock::Clock;
use crate::targets::http::oauth2::Token;
use crate::targets::kafka::plan::Plan;

/// Where a record came to lie: partition and offset.
pub(super) type Acknowledged = Result<(i32, i64), RDKafkaErrorCode>;

/// The line to a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum BrokerLine {
    /// Nothing is known against it.
    #[default]
    Up,
    /// No broker is connected, and what was said of the last one; may be empty.
    Down(String),
    /// A broker refused the log-on, and what it said.
    Refused(String),
}

/// Takes the reports.
pub(super) struct Reports {
    plan: Plan,
    clock: Clock,
    pub(super) line: Mutex<BrokerLine>,
    /// What was said of the broker that failed last.
    pub(super) said: Mutex<String>,
    /// The token that was given last.
    given: Mutex<Option<Token>>,
}

impl Reports {
    pub(super) fn new(plan: &Plan, clock: Clock) -> Self {
        let (line, said, given) = Default::default();
        Self { plan: plan.clone(), clock, line, said, given }
    }
}

impl ClientContext for Reports {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn log(&self, level: RDKafkaLogLevel, _facility: &str, message: &str) {
        tracing::debug!(cluster = self.plan.cluster, ?level, "{message}");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let mut line = self.line.lock();
        match (code_of(&error), &*line) {
            (RDKafkaErrorCode::Authentication, _) => {
                *line = BrokerLine::Refused(reason.to_owned());
            }
            // A broker that refused is not connected either.
            (RDKafkaErrorCode::AllBrokersDown, BrokerLine::Up) => {
                *line = BrokerLine::Down(self.said.lock().clone());
            }
            (RDKafkaErrorCode::AllBrokersDown, _) => {}
            _ => reason.clone_into(&mut self.said.lock()),
        }
        tracing::warn!(cluster = self.plan.cluster, %error, "{reason}");
    }

    fn generate_oauth_token(&self, _config: Option<&str>) -> Result<OAuthToken, Box<dyn Error>> {
        let tokens = self.plan.tokens.as_ref().ok_or("no client is set for it")?;
        let mut given = self.given.lock();
        let token = tokens.token(given.as_ref(), self.plan.timeout)?;
        let left = token.until.saturating_sub(self.clock.monotonic());
        let made = OAuthToken {
            token: token.value.to_string(),
            principal_name: "oncebox".to_owned(),
            // The library reckons by the machine's clock.
            lifetime_ms: Clock::machine().wall().plus(left).ms(),
        };
        *given = Some(token);
        Ok(made)
    }
}

impl ProducerContext for Reports {
    type DeliveryOpaque = Box<Sender<Acknowledged>>;

    fn delivery(&self, result: &DeliveryResult<'_>, waits: Self::DeliveryOpaque) {
        let acknowledged = match result {
            Ok(message) => {
                *self.line.lock() = BrokerLine::Up;
                Ok((message.partition(), message.offset()))
            }
            Err((error, _)) => Err(code_of(error)),
        };
        // Whoever waited too long has gone.
        let _gone = waits.try_send(acknowledged);
    }
}

/// The code of an error.
pub(super) fn code_of(error: &KafkaError) -> RDKafkaErrorCode {
    error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail)
}
