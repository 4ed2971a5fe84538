//! The way out of one attempt: what sends, with which certificate, and how much time is left. An attempt may be more
//! than one request where a token has to be fetched.

use std::time::Duration;

use crate::base::clock::{Clock, Timestamp};
use crate::http::client::{Answer, Call, CallError, Sender};
use crate::http::identity::Identity;
use crate::http::trace::{StepName, Trace};
use crate::model::delivery::retry_after;
use crate::model::outcome::{AttemptClass, Cause, Outcome};

/// Why a request got no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NotSent {
    /// The request itself, or that for a token, was not answered.
    #[error("{0}")]
    Call(CallError),
    /// There is no token to send it with.
    #[error("{reason}")]
    NoToken {
        /// What that means for the attempt.
        class: AttemptClass,
        /// The `Retry-After` of the token endpoint.
        retry_after: Option<String>,
        /// What the endpoint answered; without secrets.
        reason: String,
    },
}

impl NotSent {
    /// The outcome of the attempt, made at that time.
    pub(in crate::targets) fn outcome(self, at: Timestamp) -> Outcome {
        match self {
            Self::Call(CallError::Blocked(reason)) => Outcome::Blocked { reason },
            Self::Call(CallError::Unbuildable(reason)) => Outcome::Unbuildable { reason },
            Self::Call(CallError::Failed(cause, reason)) => Outcome::Unreachable { cause, reason },
            Self::NoToken { class, retry_after: wait, reason } => Outcome::NoToken {
                class,
                retry_after: wait.and_then(|value| retry_after(&value, at)),
                reason,
            },
        }
    }
}

/// The line to the outside, as an attempt uses it.
#[derive(Clone, Copy)]
pub struct NetworkLine<'a> {
    /// What sends.
    pub sender: &'a dyn Sender,
    /// Time.
    pub clock: &'a Clock,
    /// Where a test notes its steps.
    pub trace: Option<&'a Trace>,
}

/// The way of the requests of one attempt: a line, a certificate and a time limit.
pub(in crate::targets) struct Wire<'a> {
    line: NetworkLine<'a>,
    identity: Option<&'a Identity>,
    tenant: Option<&'a str>,
    /// When the attempt's time is over (monotonic).
    deadline: Duration,
}

impl<'a> Wire<'a> {
    pub(in crate::targets) fn new(
        line: NetworkLine<'a>,
        identity: Option<&'a Identity>,
        call: &Call<'a>,
    ) -> Self {
        let deadline = line.clock.monotonic().saturating_add(call.timeout);
        Self { line, identity, tenant: call.tenant, deadline }
    }

    pub(super) fn monotonic(&self) -> Duration {
        self.line.clock.monotonic()
    }

    /// Notes what a request carries, before it is sent.
    pub(super) fn carries(&self, what: &str) {
        if let Some(trace) = self.line.trace {
            trace.note(StepName::Credentials, what);
        }
    }

    /// Asks a token endpoint, within the time that is left. Its steps are not noted.
    pub(super) fn ask(&self, call: &Call<'_>) -> Result<Answer, NotSent> {
        let call = Call {
            timeout: self.left()?,
            identity: self.identity,
            tenant: self.tenant,
            ..call.clone()
        };
        self.line.sender.send(&call).map_err(NotSent::Call)
    }

    /// Sends the attempt's request, with the certificate and within the time that is left.
    pub(super) fn send(&self, call: &Call<'_>) -> Result<Answer, NotSent> {
        let call = Call { identity: self.identity, timeout: self.left()?, ..call.clone() };
        let NetworkLine { sender, trace, .. } = self.line;
        let answer = match trace {
            None => sender.send(&call),
            Some(trace) => sender.send_traced(&call, trace),
        };
        answer.map_err(NotSent::Call)
    }

    fn left(&self) -> Result<Duration, NotSent> {
        let left = self.deadline.saturating_sub(self.monotonic());
        if left.is_zero() {
            let why = "no time was left after the token was fetched".to_owned();
            return Err(NotSent::Call(CallError::Failed(Cause::Timeout, why)));
        }
        Ok(left)
    }
}
